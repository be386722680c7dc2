# SPDX-License-Identifier: Apache-2.0
from .expected import (
    Motion as Motion,
    duration_in as duration_in,
    expected_result as expected_result,
    expected_text as expected_text,
    refused_text as refused_text,
    verdict_in as verdict_in,
)
from .gate import (
    GuardedArm as GuardedArm,
)
from .preview import (
    Arm as Arm,
    PreviewArm as PreviewArm,
    PreviewRecorder as PreviewRecorder,
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
