# SPDX-License-Identifier: Apache-2.0
from .bag import (
    WrenchFollowing as WrenchFollowing,
    WrenchOutcome as WrenchOutcome,
)
from .fusion import (
    Fusion as Fusion,
)
from .model import (
    ImuLink as ImuLink,
    Instant as Instant,
    SensedArm as SensedArm,
    SensorMount as SensorMount,
    TareRecord as TareRecord,
    TareReference as TareReference,
)
from .observer import (
    Observation as Observation,
    WrenchObserver as WrenchObserver,
)
from .offline_observer import (
    OfflineObserver as OfflineObserver,
)
from .output_file import (
    Digest as Digest,
    Episode as Episode,
    TorqueDigest as TorqueDigest,
)
from .parameters import (
    WrenchParameters as WrenchParameters,
)
from .tare import (
    Taring as Taring,
    Zeroing as Zeroing,
)
from .torque import (
    tool_wrench as tool_wrench,
)
