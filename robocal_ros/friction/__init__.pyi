# SPDX-License-Identifier: Apache-2.0
from .estimator import (
    FRICTION as FRICTION,
    estimate as estimate,
)
from .model import (
    Compensator as Compensator,
)
from .parameters import (
    FrictionParameters as FrictionParameters,
)
from .track import (
    FrictionTracker as FrictionTracker,
)
