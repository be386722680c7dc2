# SPDX-License-Identifier: Apache-2.0
from .model import (
    Tool as Tool,
    tilt as tilt,
)
from .parameters import (
    LevelingParameters as LevelingParameters,
)
from .plan import (
    LevelingPlanner as LevelingPlanner,
    LevelPlan as LevelPlan,
)
