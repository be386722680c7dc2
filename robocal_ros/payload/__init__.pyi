# SPDX-License-Identifier: Apache-2.0
from . import static_poses as static_poses
from .estimator import (
    ARM_IDENTIFICATION as ARM_IDENTIFICATION,
    GAINS as GAINS,
    PAYLOAD as PAYLOAD,
    estimate as estimate,
    estimate_arm as estimate_arm,
    estimate_gains as estimate_gains,
)
from .parameters import (
    PayloadParameters as PayloadParameters,
)
from .result import (
    MAX_GAIN_STD as MAX_GAIN_STD,
)
