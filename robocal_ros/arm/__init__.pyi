# SPDX-License-Identifier: Apache-2.0
from .controller import (
    ControllerGoals as ControllerGoals,
)
from .gate import (
    Arm as Arm,
    PreviewArm as PreviewArm,
    PreviewRecorder as PreviewRecorder,
    PreviewReport as PreviewReport,
)
from .protocols import (
    Keep as Keep,
    MotionFailedError as MotionFailedError,
    MotionStatus as MotionStatus,
    Recorder as Recorder,
    Report as Report,
    Watch as Watch,
    keep_nothing as keep_nothing,
)
from .waiting import (
    ServiceCall as ServiceCall,
    TimedExecutor as TimedExecutor,
    Waiter as Waiter,
)
