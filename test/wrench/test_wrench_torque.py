# SPDX-License-Identifier: Apache-2.0
"""External joint torques from momentum, and the tool wrench that explains them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pinocchio as pin
import pytest
from support.arms import arm

from robocal_ros.errors import ConfigurationError
from robocal_ros.robot.friction_law import SteadyFriction
from robocal_ros.robot.model import RigidBodyInertia, Robot
from robocal_ros.wrench.model import SensedArm, SensorMount
from robocal_ros.wrench.parameters import WrenchParameters
from robocal_ros.wrench.torque import JointFriction, MomentumObserver, ToolFrame, tool_wrench

STEP = 1e-3
VALUES = WrenchParameters(observer_gain=50.0, torque_thresholds=[5.0], friction_width=1e-3)
LAW = SteadyFriction([4.0, 5.0], [7.0, 8.0], [0.05, 0.05], [6.0, 6.0])


def joint_friction(robot: Robot, *known: str) -> JointFriction:
    return JointFriction(dict.fromkeys(known, LAW), robot.joint_names, VALUES)


class Swinging:
    """An arm under drive torques, integrated by forward dynamics."""

    def __init__(self, robot: Robot) -> None:
        self.robot = robot
        self.q = np.array([0.2, 0.4, -0.6, 0.3, 0.5, 0.1])
        self.v = np.zeros(robot.n)
        self.stamp = 0.0

    def step(self, external: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Advance by a step; returns the drive torque, which would give the acceleration."""
        model, data = self.robot.model, self.robot.data
        torque = np.array(pin.rnea(model, data, self.q, self.v, wanted))
        acceleration = pin.aba(model, data, self.q, self.v, torque + external)
        self.v = self.v + STEP * acceleration
        self.q = self.q + STEP * self.v
        self.stamp += STEP
        return torque


def follow(
    observer: MomentumObserver, swinging: Swinging, external: np.ndarray, count: int
) -> np.ndarray:
    told = []
    # Drives hold against what pushes, or the light joints would spin up.
    yielding = np.linalg.solve(
        pin.crba(swinging.robot.model, swinging.robot.data, swinging.q), external)
    for number in range(count):
        wanted = 2.0 * np.sin(0.01 * number + np.arange(6)) - 5.0 * swinging.v - yielding
        torque = swinging.step(external, wanted)
        told.append(observer.update(swinging.stamp, swinging.q, swinging.v, torque))
    return np.array(told)


def observer_of(robot: Robot, friction: JointFriction | None = None) -> MomentumObserver:
    return MomentumObserver(robot, friction or joint_friction(robot), VALUES)


def test_external_torques_are_found_and_nothing_else() -> None:
    robot = arm('robocal').robot()
    observer, swinging = observer_of(robot), Swinging(robot)
    quiet = follow(observer, swinging, np.zeros(6), 500)
    assert np.abs(quiet).max() < 0.3
    external = np.array([6.0, -9.0, 4.0, 2.0, -1.5, 0.8])
    pushed = follow(observer, swinging, external, 300)
    np.testing.assert_allclose(pushed[-1], external, atol=0.2)
    # A low pass of the gain: 63 % after 1 / gain.
    assert np.argmax(pushed[:, 1] < -0.63 * 9.0) == pytest.approx(20, abs=4)


def test_the_load_is_counted() -> None:
    robot = arm('robocal').robot()
    load = RigidBodyInertia(2.0, np.array([0.02, -0.01, 0.1]), 5e-3 * np.eye(3))
    carrying = robot.with_payload(load, 'flange')
    ignorant, knowing = observer_of(robot), observer_of(robot)
    knowing.use(robot=carrying)
    swinging = Swinging(carrying)
    both = [follow(observer, swinging, np.zeros(6), 300)[-1]
            for observer in (ignorant, knowing)]
    assert np.abs(both[0]).max() > 5.0
    assert np.abs(both[1]).max() < 0.3


def test_friction_is_taken_off_and_flags_wait_where_it_is_open() -> None:
    robot = arm('robocal').robot()
    friction = joint_friction(robot, 'joint_2')
    speed = np.array([0.3, -0.3, 0.3, 0.3, 0.3, 0.3])
    taken = friction.torque(speed)
    assert taken[1] == pytest.approx(float(LAW.torque(-0.3)))
    assert taken[0] == 0.0
    assert friction.known.tolist() == [False, True, False, False, False, False]
    assert friction.open_torque(np.zeros(6))[1] == pytest.approx(8.0 + 5.0)
    assert friction.open_torque(speed)[1] < 1e-6

    observer = observer_of(robot, friction)
    q, rest = np.zeros(6), np.zeros(6)
    torque = robot.gravity_torque(q)
    push = np.array([30.0, 10.0, 0.0, 0.0, 0.0, 0.0])
    for number in range(1, 400):
        observer.update(STEP * number, q, rest, torque - push)
    np.testing.assert_allclose(observer.external, push, atol=1e-3)
    # Joint 1 has no law, joint 2 may still be sticking: neither is called a collision.
    assert not observer.colliding.any()
    for number in range(400, 800):
        observer.update(STEP * number, q, rest, torque - 2.0 * push)
    assert observer.colliding.tolist() == [False, True, False, False, False, False]
    for number in range(800, 1200):
        observer.update(STEP * number, q, rest, torque)
    assert not observer.colliding.any()


def test_a_pause_begins_the_balance_anew() -> None:
    robot = arm('robocal').robot()
    observer = observer_of(robot)
    torque = robot.gravity_torque(np.zeros(6))
    for number in range(1, 200):
        observer.update(STEP * number, np.zeros(6), np.zeros(6), torque - 3.0)
    assert np.abs(observer.external).max() > 2.0
    np.testing.assert_array_equal(
        observer.update(5.0, np.zeros(6), np.zeros(6), torque - 3.0), np.zeros(6))


class TestToolWrench:
    """From torques to the tool, as far as the posture shows it."""

    values: ClassVar = {'min_singular_value': 0.02, 'damping': 1e-4}
    wrench = np.array([20.0, -10.0, 5.0, 1.0, -2.0, 0.5])

    def frame(self, source: str = 'torque') -> ToolFrame:
        cut = SensedArm(arm('robocal').robot(), [SensorMount('ft_wrist')])
        return ToolFrame(cut, WrenchParameters(tool_wrench_source=source, **self.values))

    def torque(self, posture: np.ndarray) -> np.ndarray:
        robot = arm('robocal').robot()
        jacobian = pin.computeFrameJacobian(
            robot.model, robot.data, posture, robot.frame_id('tool0'), pin.ReferenceFrame.LOCAL)
        return jacobian.T @ self.wrench

    def test_a_regular_posture_shows_all(self) -> None:
        posture = np.array([0.2, 0.4, 0.6, 0.3, 0.9, 0.1])
        told = self.frame().of_torque(posture, self.torque(posture))
        np.testing.assert_allclose(told.wrench, self.wrench, rtol=1e-3, atol=1e-2)
        assert told.smallest > 0.02
        assert told.unobservable == ()

    def test_a_singular_posture_masks_what_it_hides(self) -> None:
        # Elbow stretched: a pull along the arm is felt by no joint.
        posture = np.array([0.0, 0.0, -np.pi / 2, 0.0, 0.5, 0.0])
        told = self.frame().of_torque(posture, self.torque(posture))
        assert told.smallest < 0.02
        assert told.unobservable
        hidden = np.isnan(told.wrench)
        assert hidden.any()
        assert not hidden.all()
        np.testing.assert_allclose(told.wrench[~hidden], self.wrench[~hidden], rtol=0.02, atol=0.4)

    def test_nothing_is_zero_by_default(self) -> None:
        told = tool_wrench(
            np.zeros(3), np.eye(6)[:, :3], WrenchParameters(**self.values))
        assert np.isnan(told.wrench[3:]).all()
        np.testing.assert_array_equal(told.wrench[:3], 0.0)
        assert set(told.unobservable) == {'moment x', 'moment y', 'moment z'}

    def test_by_sensor(self) -> None:
        frame = self.frame('auto')
        assert frame.by_sensor
        point = np.array([0.0, 0.0, 0.025])
        at_sensor = self.wrench.copy()
        at_sensor[3:] += np.cross(point, self.wrench[:3])
        np.testing.assert_allclose(frame.of_link(at_sensor), self.wrench, atol=1e-12)

    def test_a_sensor_that_is_asked_for_must_be_there(self) -> None:
        robot = Robot(arm('robocal').urdf, tool_frame='link_1')
        cut = SensedArm(arm('robocal').robot(), [SensorMount('ft_wrist')])
        cut.robot = robot
        with pytest.raises(ConfigurationError, match="no F/T sensor carries 'link_1'"):
            ToolFrame(cut, WrenchParameters(tool_wrench_source='sensor'))
