# SPDX-License-Identifier: Apache-2.0
from . import status as status
from .arm_node import (
    ArmNode as ArmNode,
)
from .calibration_node import (
    CalibrationNode as CalibrationNode,
)
from .drive_gains import (
    DriveGains as DriveGains,
)
from .executables import (
    StopRequest as StopRequest,
)
from .journal import (
    Journal as Journal,
)
from .process import (
    spin as spin,
)
from .sample_recorder import (
    Marks as Marks,
    SampleRecorder as SampleRecorder,
)
from .services import (
    Action as Action,
    Answer as Answer,
)
