# SPDX-License-Identifier: Apache-2.0
"""The proof afterwards: by joint states, and by an IMU on the tool."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest
from support.leveling_rig import TILTED, UP, planner

from robocal_ros.errors import DataError
from robocal_ros.leveling.plan import Bounds, joint_step, timed
from robocal_ros.leveling.procedure import LevelCheck, tilt_by_imu

GRAVITY = np.array([0.0, 0.0, -9.81])


def turned(roll: float, pitch: float, yaw: float) -> np.ndarray:
    return np.array(pin.rpy.rpyToMatrix(roll, pitch, yaw))


class TestJointStates:
    def test_a_perfect_motion(self) -> None:
        made = planner('robocal')
        plan = made.plan(TILTED)
        rest = np.tile(plan.trajectory.goal, (20, 1))
        way = plan.trajectory.sample(plan.trajectory.dense(0.002))[0]
        check = LevelCheck(plan.task, UP, way, rest)
        assert check.tilt < 1e-6
        assert check.drift < 1e-6
        assert check.drift_in_motion < 2e-5

    def test_what_is_left_is_seen(self) -> None:
        made = planner('robocal')
        plan = made.plan(TILTED)
        off = np.array([0.0, 0.0, 0.0, 0.0, 0.004, 0.0])
        rest = np.tile(plan.trajectory.goal + off, (20, 1))
        way = plan.trajectory.sample(plan.trajectory.dense(0.002))[0]
        check = LevelCheck(plan.task, UP, way, rest)
        assert check.tilt == pytest.approx(0.004, rel=0.05)
        assert check.drift == pytest.approx(0.0004, rel=0.2)
        assert check.drift_in_motion == pytest.approx(check.drift)

    def test_a_jerk_of_two_samples_is_the_encoder_and_a_longer_one_is_drift(self) -> None:
        made = planner('robocal')
        plan = made.plan(TILTED)
        rest = np.tile(plan.trajectory.goal, (20, 1))
        way = plan.trajectory.sample(plan.trajectory.dense())[0].copy()
        for samples, seen in ((2, False), (6, True)):
            jerked = way.copy()
            jerked[:samples] += 1e-3
            check = LevelCheck(plan.task, UP, jerked, rest)
            assert (check.drift_in_motion > 3e-4) == seen


class TestImu:
    @pytest.mark.parametrize('mounting', [turned(0.0, 0.0, 0.0), turned(0.4, -1.2, 2.0)])
    @pytest.mark.parametrize('error', [0.0, 0.01, 0.2])
    def test_along_gravity_it_is_the_angle_of_what_is_felt(
        self, mounting: np.ndarray, error: float
    ) -> None:
        """The joint states say level, the tool is not."""
        said = turned(0.0, 0.0, 0.7)
        true = turned(error, 0.0, 0.0) @ said
        felt = mounting.T @ true.T @ -GRAVITY
        seen = tilt_by_imu(felt, mounting, said, GRAVITY, UP)
        assert seen == pytest.approx(error, abs=1e-9)

    def test_a_reference_off_gravity(self) -> None:
        """On a tilted base the tool is level with the base, and the IMU agrees."""
        axis = turned(0.3, 0.0, 0.0)[:, 2]
        said = turned(0.3, 0.0, 0.0) @ turned(0.0, 0.0, 1.0)
        felt = said.T @ -GRAVITY
        assert tilt_by_imu(felt, np.eye(3), said, GRAVITY, axis) < 1e-9
        wrong = (turned(0.02, 0.0, 0.0) @ said).T @ -GRAVITY
        assert tilt_by_imu(wrong, np.eye(3), said, GRAVITY, axis) == pytest.approx(0.02, rel=1e-6)

    def test_free_fall_is_no_rest(self) -> None:
        with pytest.raises(DataError, match='units and scale'):
            tilt_by_imu(np.array([0.0, 0.0, 1.0]), np.eye(3), np.eye(3), GRAVITY, UP)


class TestKinematics:
    @pytest.mark.parametrize('name', ['robocal', 'xarm7'])
    @pytest.mark.parametrize('heading', ['nearest', 'free'])
    def test_jacobian_of_what_is_missing(self, name: str, heading: str) -> None:
        """Finite differences of the task agree with its Jacobian."""
        made = planner(name, heading=heading, free=True)
        robot = made.tool.robot
        q = TILTED if name == 'robocal' else np.array([0.3, 0.4, 0.2, 1.2, 0.3, 0.9, 0.1])
        task = made.plan(q).task
        near = q + 1e-3 * np.arange(1.0, robot.n + 1.0)
        missing, jacobian, _ = task.linearised(near, 0.05)
        step = 1e-6
        numeric = np.column_stack([
            (task.linearised(near - step * unit, 0.05)[0]
             - task.linearised(near + step * unit, 0.05)[0]) / (2.0 * step)
            for unit in np.eye(robot.n)])
        assert missing.shape == (task.rows,)
        # The logarithm's own slope differs from one by half the angle that is missing.
        np.testing.assert_allclose(jacobian, numeric, atol=0.03)

    def test_a_redundant_step_keeps_its_room(self) -> None:
        generator = np.random.default_rng(4)
        jacobian = generator.normal(size=(6, 7))
        missing = 0.01 * generator.normal(size=6)
        tight = Bounds(np.full(7, -np.inf), np.full(7, np.inf))
        free = joint_step(jacobian, missing, tight)
        joint = int(np.argmax(np.abs(free)))
        tight.upper[joint] = 0.5 * abs(free[joint])
        tight.lower[joint] = -0.5 * abs(free[joint])
        step = joint_step(jacobian, missing, tight)
        np.testing.assert_allclose(jacobian @ step, missing, atol=1e-9)
        assert abs(step[joint]) <= tight.upper[joint] + 1e-9
        assert np.linalg.norm(step) >= np.linalg.norm(free)
        none = Bounds(np.full(7, -1e-5), np.full(7, 1e-5))
        assert joint_step(jacobian, missing, none) is None

def test_timing_follows_the_path() -> None:
    """The motion stays on the line through the postures and rests at both ends."""
    angle = np.linspace(0.0, 2.0, 40)
    path = np.column_stack((np.sin(angle), np.cos(angle)))
    velocity, acceleration = np.array([0.5, 1.0]), np.array([1.0, 0.7])
    motion = timed(path, velocity, acceleration)
    q, v, a = motion.sample(motion.dense(0.002))
    np.testing.assert_allclose(np.linalg.norm(q, axis=1), 1.0, atol=2e-4)
    assert (np.abs(v) <= velocity).all()
    assert (np.abs(a) <= acceleration).all()
    np.testing.assert_array_equal(motion.position[[0, -1]], path[[0, -1]])
