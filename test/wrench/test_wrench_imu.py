# SPDX-License-Identifier: Apache-2.0
"""A link with an IMU against the same link by joint kinematics."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest
from support.arms import arm

from robocal_ros.errors import ConfigurationError
from robocal_ros.robot.model import RigidBodyInertia
from robocal_ros.wrench.model import ImuLink, SensedArm, SensorMount

FRAMES = ('ft_link_2_proximal', 'ft_link_2_distal', 'ft_link_3_proximal', 'ft_link_3_distal',
          'ft_wrist')


@pytest.fixture
def cut() -> SensedArm:
    return SensedArm(arm('robocal').robot(), [SensorMount(frame) for frame in FRAMES])


def imu_reading(
    cut: SensedArm, frame: str, q: np.ndarray, v: np.ndarray, a: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return specific force, rate and angular acceleration at a frame, by Pinocchio."""
    robot = cut.robot
    model, data = robot.model, robot.data
    pin.forwardKinematics(model, data, q, v, a)
    index = robot.frame_id(frame)
    pin.updateFramePlacement(model, data, index)
    local = pin.ReferenceFrame.LOCAL
    classical = pin.getFrameClassicalAcceleration(model, data, index, local)
    gravity = data.oMf[index].rotation.T @ np.array(robot.gravity)
    return (classical.linear - gravity, pin.getFrameVelocity(model, data, index, local).angular,
            classical.angular)


@pytest.mark.parametrize(('index', 'frame'), [
    (0, 'imu_link_2'), (2, 'imu_link_3'), (4, 'imu_flange')])
def test_agrees_with_the_joints(cut: SensedArm, index: int, frame: str) -> None:
    cut.carry(RigidBodyInertia(1.5, np.array([0.02, 0.01, 0.08]), 4e-3 * np.eye(3)), 'flange')
    generator = np.random.default_rng(index)
    for _ in range(20):
        q, v, a = (generator.uniform(-s, s, 6) for s in (1.5, 1.5, 6.0))
        link = ImuLink(cut, cut.chains[index], frame)
        inertial = link.inertial(*imu_reading(cut, frame, q, v, a))
        held = cut.held(q, v, a)
        expected = cut.between(held)[index]
        np.testing.assert_allclose(inertial, expected, atol=1e-9)
        # With readings that hold the link exactly nothing external is left.
        chain = cut.chains[index]
        distal = -held[chain.distal[0]] if chain.distal else None
        np.testing.assert_allclose(link.net(inertial, -held[index], distal), 0.0, atol=1e-9)


def test_the_load_is_taken_over(cut: SensedArm) -> None:
    link = ImuLink(cut, cut.chains[4], 'imu_flange')
    up = np.array([0.0, 0.0, 9.81])
    before = link.inertial(up, np.zeros(3), np.zeros(3))
    cut.carry(RigidBodyInertia(2.0, np.zeros(3), np.zeros((3, 3))), 'flange')
    link.use(cut.chains[4])
    after = link.inertial(up, np.zeros(3), np.zeros(3))
    assert np.linalg.norm(after[:3]) - np.linalg.norm(before[:3]) == pytest.approx(2.0 * 9.81)


def test_joints_within_and_strange_frames_are_refused(cut: SensedArm) -> None:
    with pytest.raises(ConfigurationError, match='joints move'):
        ImuLink(cut, cut.chains[1], 'imu_link_2')
    with pytest.raises(ConfigurationError, match='is not on'):
        ImuLink(cut, cut.chains[0], 'imu_link_3')
    with pytest.raises(ConfigurationError, match='not in the robot description'):
        ImuLink(cut, cut.chains[0], 'imu_moon')
