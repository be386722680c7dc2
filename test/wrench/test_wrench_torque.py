# SPDX-License-Identifier: Apache-2.0
"""External joint torques, and the tool wrench that explains them."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest
from support.arms import arm

from robocal_ros.robot.friction_law import SteadyFriction
from robocal_ros.robot.model import Robot
from robocal_ros.wrench.parameters import WrenchParameters
from robocal_ros.wrench.torque import FrictionInUse, JointTorques, ToolWrench, tool_wrench

LAW = SteadyFriction([4.0, 5.0], [7.0, 8.0], [0.05, 0.05], [6.0, 6.0], std=0.5)


def exact() -> np.ndarray:
    """Return the standard deviations of a model without errors."""
    return np.zeros(6)


def torques_of(robot: Robot, *known: str, **values: object) -> JointTorques:
    made = JointTorques(robot, WrenchParameters(**{
        'torque_thresholds': [5.0], 'friction_width': 1e-3, 'unidentified_friction': [20.0],
        **values}))
    made.use_friction(dict.fromkeys(known, LAW))
    return made


def test_external_torque_is_what_model_rotors_and_friction_leave() -> None:
    robot = arm('robocal').robot()
    made = torques_of(robot, 'joint_2', rotor_inertias=[0.5])
    q, v, a = np.full(6, 0.3), np.full(6, 0.2), np.linspace(1.0, 2.0, 6)
    external = np.array([6.0, -9.0, 4.0, 2.0, -1.5, 0.8])
    model = np.array(pin.rnea(robot.model, robot.data, q, v, a))
    taken = np.zeros(6)
    taken[1] = float(LAW.torque(0.2))
    np.testing.assert_allclose(
        made.update(model, v, a, model + 0.5 * a + taken - external, exact), external,
        atol=1e-9)
    # Many instants at once, by the same law.
    np.testing.assert_allclose(made.friction.torque(np.array([v, -v]), np.ones((2, 6)))[1],
                               made.friction.torque(-v, np.ones(6)))


def test_rotors_of_an_identified_arm_replace_those_of_the_parameter() -> None:
    robot = arm('robocal').robot()
    made = torques_of(robot, 'joint_2', rotor_inertias=[0.5])

    def accelerated() -> np.ndarray:
        still = np.zeros((1, 6))
        return made.external_torque(still, np.ones((1, 6)), np.ones((1, 6)), still)[0]

    by_parameter = accelerated()
    made.use_rotors(np.full(6, 0.7))
    np.testing.assert_allclose(accelerated() - by_parameter, 0.2)
    # The URDF, which drive gains that are newer than the identified arm bring back, has none.
    made.use_rotors(np.zeros(6))
    np.testing.assert_array_equal(accelerated(), by_parameter)


def test_thresholds_wait_where_friction_is_uncertain() -> None:
    robot = arm('robocal').robot()
    made = torques_of(robot, 'joint_2')
    friction = made.friction
    moving, rest = np.full(6, 0.3), np.zeros(6)
    assert friction.known.tolist() == [False, True, False, False, False, False]
    assert friction.uncertainty(rest, rest)[1] == pytest.approx(8.0 + 5.0 + 3.0 * LAW.std)
    assert friction.uncertainty(moving, rest)[1] == pytest.approx(3.0 * LAW.std)
    # Joint 1 has no law: its threshold is wider by unidentified_friction.
    assert friction.uncertainty(moving, rest)[0] == 20.0

    def colliding(joint: int, size: float, velocity: np.ndarray = rest) -> bool:
        torque = np.zeros(6)
        torque[joint] = -size
        made.update(np.zeros(6), velocity, rest, torque - friction.torque(-velocity, rest), exact)
        return bool(made.colliding[joint])

    assert not colliding(1, 17.9)
    assert colliding(1, 19.6)
    # It ends at 60 % of the threshold.
    assert colliding(1, 12.0)
    assert not colliding(1, 11.0)
    assert not colliding(0, 24.9)
    assert colliding(0, 25.1)


class TestToolWrench:
    """From torques to the tool, as far as the posture shows it."""

    values = WrenchParameters(min_singular_value=0.02, damping=1e-4)
    wrench = np.array([20.0, -10.0, 5.0, 1.0, -2.0, 0.5])

    def told(self, posture: np.ndarray) -> ToolWrench:
        robot = arm('robocal').robot()
        jacobian = pin.computeFrameJacobian(
            robot.model, robot.data, posture, robot.frame_id('tool0'), pin.ReferenceFrame.LOCAL)
        return tool_wrench(jacobian.T @ self.wrench, jacobian, self.values, 0.04 * np.eye(6))

    def test_a_regular_posture_shows_all(self) -> None:
        told = self.told(np.array([0.2, 0.4, 0.6, 0.3, 0.9, 0.1]))
        np.testing.assert_allclose(told.wrench, self.wrench, rtol=1e-3, atol=1e-2)
        assert told.smallest > 0.02
        assert told.unobservable == ()
        assert np.isfinite(told.covariance).all()

    def test_a_singular_posture_masks_what_it_hides(self) -> None:
        # Elbow stretched: a pull along the arm is felt by no joint.
        told = self.told(np.array([0.0, 0.0, -np.pi / 2, 0.0, 0.5, 0.0]))
        assert told.smallest < 0.02
        assert told.unobservable
        hidden = np.isnan(told.wrench)
        assert hidden.any()
        assert not hidden.all()
        np.testing.assert_array_equal(np.isinf(np.diag(told.covariance)), hidden)
        np.testing.assert_allclose(told.wrench[~hidden], self.wrench[~hidden], rtol=0.02, atol=0.4)

    def test_nothing_is_zero_by_default(self) -> None:
        told = tool_wrench(np.zeros(3), np.eye(6)[:, :3], self.values, np.eye(3))
        assert np.isnan(told.wrench[3:]).all()
        np.testing.assert_array_equal(told.wrench[:3], 0.0)
        assert set(told.unobservable) == {'torque x', 'torque y', 'torque z'}


@pytest.mark.parametrize('exponent', [1.0, 0.6])
def test_a_law_sublinear_in_speed_is_compensated(exponent: float) -> None:
    law = SteadyFriction(np.array([2.0, 1.8]), np.array([3.0, 2.5]), np.array([0.05, 0.04]),
                         np.array([4.0, 5.0]), exponent=np.full(2, exponent))
    friction = FrictionInUse({'a': law}, ('a', 'b'), WrenchParameters())
    for v in (-0.7, -0.2, 0.3, 0.9):
        speed = np.array([v, v])
        expected = [float(law.torque(v)), 0.0]
        np.testing.assert_allclose(friction.torque(speed, 0.0 * speed), expected, rtol=1e-6)
        one = [friction.one_torque(joint, v, 0.0) for joint in range(2)]
        np.testing.assert_allclose(one, expected, rtol=1e-6)
