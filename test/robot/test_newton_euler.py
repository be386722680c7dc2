# SPDX-License-Identifier: Apache-2.0
"""Whole records at once against Pinocchio, one instant after the other."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest
from support.arms import ARMS, arm

from robocal_ros.errors import ConfigurationError
from robocal_ros.robot import NewtonEuler, Robot, arm_regressor, bending, on_leaning_base

# A gantry that slides along x and z, and turns about a slanting axis in between.
SLIDING = """
<robot name="gantry"><link name="base"/>{}</robot>
""".format(''.join(f"""
  <link name="link_{number}"><inertial><origin xyz="0.1 0.2 -0.1" rpy="0.3 0 1"/>
    <mass value="3"/><inertia ixx="0.1" iyy="0.2" izz="0.15" ixy="0.02" ixz="0.01" iyz="0"/>
  </inertial></link>
  <joint name="joint_{number}" type="{kind}"><origin xyz="0.2 -0.1 0.3" rpy="0.4 1.1 -0.6"/>
    <parent link="{before}"/><child link="link_{number}"/><axis xyz="{axis}"/>
    <limit lower="-2" upper="2" velocity="2" effort="100"/></joint>"""
    for number, kind, before, axis in (
        (1, 'prismatic', 'base', '1 0 0'), (2, 'revolute', 'link_1', '0.6 0 0.8'),
        (3, 'prismatic', 'link_2', '0 0 -1'), (4, 'revolute', 'link_3', '0 -1 0'))))


@pytest.fixture(scope='module', params=(*ARMS, 'gantry'))
def robot(request) -> Robot:
    if request.param == 'gantry':
        return Robot(SLIDING, tool_frame='link_4', gravity=(1.0, 2.0, -9.0))
    return arm(request.param).robot('wall_30')


def motion(robot: Robot, count: int = 30) -> np.ndarray:
    return np.random.default_rng(4).uniform(-1.5, 1.5, (3, count, robot.n))


def body_regressor(
    robot: Robot, frame: str, q: np.ndarray, v: np.ndarray, a: np.ndarray
) -> np.ndarray:
    """Return the regressor of the wrench of a body on a frame at one instant, by Pinocchio."""
    # frameBodyRegressor reads the accelerations, gravity included, that rnea left in the data.
    pin.rnea(robot.model, robot.data, q, v, a)
    return np.array(pin.frameBodyRegressor(robot.model, robot.data, robot.frame_id(frame)))


def body_torques(
    robot: Robot, frame: str, q: np.ndarray, v: np.ndarray, a: np.ndarray
) -> np.ndarray:
    """Return the regressor of its joint torques."""
    rows = body_regressor(robot, frame, q, v, a)
    return pin.computeFrameJacobian(robot.model, robot.data, q, robot.frame_id(frame),
                                    pin.ReferenceFrame.LOCAL).T @ rows


def frames(robot: Robot) -> list[str]:
    """Return a frame on the tip, one on a link half-way, and one on the base."""
    half = next(frame.name for frame in robot.model.frames if frame.parentJoint == robot.n // 2)
    return [robot.tool_frame, half, robot.root_frame]


def test_the_wrench_of_a_body_is_that_of_its_regressor(robot):
    parameters = np.random.default_rng(6).normal(size=10)
    for frame in frames(robot):
        dynamics = NewtonEuler(robot, frame)
        expected = np.array([body_regressor(robot, frame, *row)
                             for row in zip(*motion(robot), strict=True)])
        np.testing.assert_allclose(dynamics.wrench_regressor(*motion(robot)), expected, atol=1e-11)
        np.testing.assert_allclose(
            dynamics.wrench(*motion(robot), parameters), expected @ parameters, atol=1e-11)


def test_the_torque_of_the_arm_is_that_of_recursive_newton_euler(robot):
    found = NewtonEuler(robot, robot.tool_frame).torque(*motion(robot))
    expected = [robot.inverse_dynamics(*row) for row in zip(*motion(robot), strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-11)


def test_the_torque_of_a_body_is_that_of_its_regressor(robot):
    parameters = np.random.default_rng(5).normal(size=10)
    for frame in frames(robot):
        dynamics = NewtonEuler(robot, frame)
        expected = np.array([body_torques(robot, frame, *row)
                             for row in zip(*motion(robot), strict=True)])
        np.testing.assert_allclose(dynamics.torque_regressor(*motion(robot)), expected, atol=1e-11)
        added = (dynamics.torque(*motion(robot), parameters) - dynamics.torque(*motion(robot)))
        np.testing.assert_allclose(added, expected @ parameters, atol=1e-11)


def test_a_frame_that_is_not_there_is_refused(robot):
    with pytest.raises(ConfigurationError, match="Frame 'nowhere' is not in"):
        NewtonEuler(robot, 'nowhere')


def test_a_leaning_base_turns_gravity(robot):
    q = motion(robot)[0]
    still = np.zeros_like(q)
    usual = NewtonEuler(robot, robot.tool_frame)
    slopes = [tilted.torque(q, still, still) for tilted in usual.tilts()]
    for tilt in 1e-4 * np.eye(2):
        leaning = on_leaning_base(robot, tilt)
        found = NewtonEuler(leaning, robot.tool_frame).torque(q, still, still)
        expected = usual.torque(q, still, still) + np.tensordot(tilt, slopes, axes=1)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    leaning = on_leaning_base(robot, np.array([0.3, -0.2]))
    assert np.linalg.norm(leaning.gravity) == pytest.approx(np.linalg.norm(robot.gravity))
    angle = np.arccos(leaning.gravity @ robot.gravity / np.linalg.norm(robot.gravity)**2)
    assert angle == pytest.approx(np.hypot(0.3, 0.2))
    np.testing.assert_allclose(
        [leaning.inverse_dynamics(*row) for row in zip(*motion(robot), strict=True)],
        NewtonEuler(leaning, robot.tool_frame).torque(*motion(robot)), atol=1e-11)


def test_the_regressor_of_the_links_is_pinocchios(robot):
    found = arm_regressor(robot, *motion(robot))
    expected = [pin.computeJointTorqueRegressor(robot.model, robot.data, *row)
                for row in zip(*motion(robot), strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-11)


# ----------------------------------------------------------------------------------- bending


def test_links_that_bend_carry_the_same_torques_and_those_across(robot):
    """Of the whole moment at each joint, which Pinocchio leaves in its data."""
    body = pin.Inertia(2.0, np.array([0.1, -0.2, 0.3]), 0.01 * np.eye(3)).toDynamicParameters()
    flexible = NewtonEuler(bending(robot, robot.tool_frame, body), robot.tool_frame)
    q, v, a = motion(robot)
    wide = np.zeros((3, *q.shape, 3))
    wide[..., 0] = q, v, a
    found = flexible.torque(*wide.reshape(3, len(q), -1)).reshape(*q.shape, 3)
    usual = NewtonEuler(robot, robot.tool_frame)
    np.testing.assert_allclose(found[:, :, 0], usual.torque(q, v, a, body), atol=1e-9)
    loaded = robot.copy()
    carrier = loaded.model.frames[loaded.frame_id(robot.tool_frame)]
    loaded.model.appendBodyToJoint(
        carrier.parentJoint, pin.Inertia.FromDynamicParameters(body), carrier.placement)
    data = loaded.model.createData()
    for row in range(len(q)):
        pin.rnea(loaded.model, data, q[row], v[row], a[row])
        for joint in np.flatnonzero(~robot.prismatic).tolist():
            np.testing.assert_allclose(
                np.linalg.norm(found[row, joint]), np.linalg.norm(data.f[joint + 1].angular),
                rtol=1e-9)


def test_a_link_that_bends_turns_what_it_carries(robot):
    """At rest, what holds it is its weight, in axes that the bending turned."""
    body = pin.Inertia(2.0, np.array([0.1, -0.2, 0.3]), 0.01 * np.eye(3)).toDynamicParameters()
    model = bending(robot, robot.tool_frame, body)
    q = np.zeros(model.model.nq)
    q[::3] = motion(robot)[0, 0]
    still = np.zeros_like(q)
    straight = np.array(pin.updateFramePlacement(
        model.model, _placed(model, q), model.frame_id(robot.tool_frame)).rotation)
    for place in np.flatnonzero(np.arange(len(q)) % 3):
        bent = q.copy()
        bent[place] = 0.01
        turned = np.array(pin.updateFramePlacement(
            model.model, _placed(model, bent), model.frame_id(robot.tool_frame)).rotation)
        angle = np.linalg.norm(pin.log3(straight.T @ turned))
        assert angle == pytest.approx(0.01)
        force = NewtonEuler(model, robot.tool_frame).wrench(
            bent[None], still[None], still[None], body)[0, :3]
        np.testing.assert_allclose(turned @ force, -2.0 * robot.gravity, atol=1e-9)


def _placed(robot: Robot, q: np.ndarray) -> pin.Data:
    data = robot.model.createData()
    pin.forwardKinematics(robot.model, data, q)
    return data
