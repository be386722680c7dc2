# SPDX-License-Identifier: Apache-2.0
"""The observer compensates the same friction law that was identified."""

from __future__ import annotations

import numpy as np
import pytest

from robocal_ros.robot.friction_law import SteadyFriction
from robocal_ros.wrench.parameters import WrenchParameters
from robocal_ros.wrench.torque import FrictionInUse


@pytest.mark.parametrize('exponent', [1.0, 0.6])
def test_a_law_sublinear_in_speed_is_compensated(exponent: float) -> None:
    law = SteadyFriction(np.array([2.0, 1.8]), np.array([3.0, 2.5]), np.array([0.05, 0.04]),
                         np.array([4.0, 5.0]), exponent=np.full(2, exponent))
    friction = FrictionInUse({'a': law}, ('a', 'b'), WrenchParameters())
    for v in (-0.7, -0.2, 0.3, 0.9):
        speed = np.array([v, v])
        expected = [float(law.torque(v)), 0.0]
        np.testing.assert_allclose(friction.torque(speed), expected, rtol=1e-6)
        one = [friction.near_standstill(joint, v) for joint in range(2)]
        np.testing.assert_allclose(one, expected, rtol=1e-6)
