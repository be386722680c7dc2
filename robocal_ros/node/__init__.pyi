# SPDX-License-Identifier: Apache-2.0
from . import status as status
from .arm_node import (
    ArmNode as ArmNode,
    DriveGains as DriveGains,
)
from .calibration_node import (
    CalibrationNode as CalibrationNode,
)
from .executables import (
    StopRequest as StopRequest,
)
from .journal import (
    Journal as Journal,
)
from .procedure_node import (
    Action as Action,
    Answer as Answer,
)
from .process import (
    spin as spin,
)
from .sample_recorder import (
    Marks as Marks,
    SampleRecorder as SampleRecorder,
)
