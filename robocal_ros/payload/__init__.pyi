# SPDX-License-Identifier: Apache-2.0
from . import static_poses as static_poses
from .arm_identification import (
    MotionFriction as MotionFriction,
    friction_in_motion as friction_in_motion,
)
from .estimator import (
    ARM_IDENTIFICATION as ARM_IDENTIFICATION,
    GAINS as GAINS,
    NARROWLY as NARROWLY,
    PAYLOAD as PAYLOAD,
    duration_in as duration_in,
    estimate as estimate,
    estimate_arm as estimate_arm,
    estimate_gains as estimate_gains,
    expected_result as expected_result,
    expected_text as expected_text,
    gain_std_in as gain_std_in,
    objection_in as objection_in,
    verdict_in as verdict_in,
)
from .parameters import (
    PayloadParameters as PayloadParameters,
)
from .result import (
    MAX_GAIN_STD as MAX_GAIN_STD,
)
