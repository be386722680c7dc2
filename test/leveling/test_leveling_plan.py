# SPDX-License-Identifier: Apache-2.0
"""Leveling motions: what they keep all along, on arms with enough joints, too many, too few."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from support.arms import arm
from support.leveling_rig import TILTED, UP, chain_urdf, checker, limits, planner, urdf_planner

from robocal_ros.errors import MotionError
from robocal_ros.leveling.model import Tool, tilt
from robocal_ros.leveling.parameters import LevelingParameters
from robocal_ros.leveling.plan import (
    Bounds,
    LevelingPlanner,
    LevelingRefusal,
    LevelPlan,
    Obstacle,
    Paths,
    joint_step,
    timed,
)
from robocal_ros.robot.trajectories import MotionLimits

ARMS = ('robocal', 'ur5', 'panda', 'xarm7')


def postures(name: str, count: int, seed: int = 3) -> list[np.ndarray]:
    """Draw free postures."""
    robot = arm(name).robot()
    generator = np.random.default_rng(seed)
    low, high = robot.sampling_limits()
    found: list[np.ndarray] = []
    while len(found) < count:
        q = generator.uniform(low, high)
        if checker(name).is_free(q):
            found.append(q)
    return found


def attempt(
    made: LevelingPlanner, start: np.ndarray
) -> tuple[LevelPlan, None] | tuple[None, LevelingRefusal]:
    """Return a plan or its refusal."""
    try:
        return made.plan(start), None
    except LevelingRefusal as refusal:
        return None, refusal


def keeps_everything(made: LevelingPlanner, plan: LevelPlan, start: np.ndarray) -> None:
    """The motion begins at the start, ends level, holds the point and keeps all limits."""
    trajectory, values = plan.trajectory, made.values
    assert trajectory is not None
    np.testing.assert_allclose(trajectory.start, start, atol=1e-12)
    assert tilt(made.tool.pose(trajectory.goal)[0], made.axis, values.direction) < 1e-6
    positions = trajectory.sample(trajectory.dense(0.005))[0]
    knots = trajectory.position
    lines = np.concatenate([knots[:-1] + part * np.diff(knots, axis=0)
                            for part in (0.2, 0.5, 0.8)])
    held = made.tool.pose(start)[1]
    points = made.tool.poses(np.concatenate((positions, lines)))[1]
    assert np.linalg.norm(points - held, axis=1).max() <= values.max_drift
    assert np.abs(np.diff(knots, axis=0)).max() <= values.max_step
    made.limits.check(trajectory)
    for ends in (trajectory.velocity, trajectory.acceleration):
        assert not ends[[0, -1]].any()
    if made.checker is not None:
        assert made.checker.first_contact(positions) is None


def test_a_direct_path_is_smoothed_before_a_search() -> None:
    """The spline through the direct path exceeds a limit, and no time is left for a search."""
    made = planner('panda', heading='free', search_time=1e-6)
    start = np.array([-0.409, 0.507, -1.592, -0.823, 0.129, 2.592, -0.779])
    keeps_everything(made, made.plan(start), start)


@pytest.mark.parametrize('name', ARMS)
def test_random_postures(name: str) -> None:
    made = planner(name)
    solved = 0
    for start in postures(name, 6):
        plan, refusal = attempt(made, start)
        if plan is not None:
            solved += 1
            keeps_everything(made, plan, start)
        else:
            assert refusal is not None
            assert 0.0 <= refusal.share <= 1.0
            assert 'The arm was not moved.' in str(refusal)
    assert solved >= 3


def test_the_tool_turns_evenly_about_one_axis() -> None:
    made = planner('robocal')
    plan = made.plan(TILTED)
    assert plan.task is not None
    assert plan.path is not None
    turned = [pin.log3(made.tool.pose(q)[0] @ made.tool.pose(TILTED)[0].T)
              for q in plan.path.positions]
    np.testing.assert_allclose(
        turned, plan.path.shares[:, None] * plan.task.target.turn, atol=1e-7)
    assert plan.tilt == pytest.approx(plan.task.target.angle)


@pytest.mark.parametrize('settings', [
    {'heading': 'x'}, {'heading': 'y'}, {'heading': 'free'}, {'direction': 'down'},
    {'max_step': 0.02}, {'max_drift': 1e-4},
])
def test_choices(settings: dict[str, object]) -> None:
    made = planner('robocal', **settings)
    keeps_everything(made, made.plan(TILTED), TILTED)


def test_another_point_of_the_tool_is_held() -> None:
    made = planner('robocal', point=(0.05, -0.02, 0.18))
    keeps_everything(made, made.plan(TILTED), TILTED)
    flange = planner('robocal').tool
    plan = made.plan(TILTED)
    assert plan.trajectory is not None
    assert np.linalg.norm(flange.pose(plan.trajectory.goal)[1] - flange.pose(TILTED)[1]) > 0.02


def test_a_level_tool_stays() -> None:
    made = planner('robocal')
    goal = made.plan(TILTED).trajectory.goal
    again = made.plan(goal)
    assert again.trajectory is None
    assert again.task is None
    assert again.tilt < 1e-6
    tolerant = planner('robocal', tolerance=0.5)
    assert tolerant.plan(TILTED).trajectory is None


def test_upside_down_takes_the_axis_of_least_travel() -> None:
    """Of all axes of half a turn the one is taken on which the joints travel least."""
    made = planner('xarm7', free=True, search_time=0.05)
    level = np.array([0.4, -0.3, 0.2, 1.6, 0.1, 1.9, 0.5])
    first = made.plan(level)
    if first.trajectory is not None:
        level = first.trajectory.goal
    down = made.tool.pose(level)[0][2, 2] < 0.0
    turned = planner('xarm7', free=True, search_time=0.05, direction='up' if down else 'down')
    assert tilt(turned.tool.pose(level)[0], UP, turned.values.direction) == pytest.approx(np.pi)
    plan = turned.plan(level)
    keeps_everything(turned, plan, level)
    assert 'upside down' in plan.note
    assert plan.path is not None
    kept = LevelingPlanner(turned.tool, UP, turned.limits, replace(turned.values, heading='x'))
    other, _ = attempt(kept, level)
    assert other is None or other.path is None or plan.path.travel <= other.path.travel + 1e-6


class TestRedundantArms:
    @pytest.mark.parametrize('start', [
        (-1.108, -0.644, -2.38, -2.553, -2.755, 3.146, -0.195),
        (-2.063, -0.124, -2.611, -0.665, 1.267, 3.016, 1.509),
    ])
    def test_the_null_space_goes_round_a_limit(self, start: tuple[float, ...]) -> None:
        """Where the least motion runs into a limit, another elbow is found."""
        made = planner('panda', search_time=30.0)
        plan = made.plan(np.array(start))
        assert plan.task is not None
        alone = Paths(plan.task, Bounds(made.limits.lower, made.limits.upper), made.values,
                      made.checker).follow()
        assert alone.obstacle is not None
        keeps_everything(made, plan, np.array(start))

class TestFewJoints:
    FIVE = chain_urdf(['0 0 1', '0 1 0', '0 1 0', '0 1 0', '0 0 1'],
                      ['0 0 0', '0 0 0.3', '0 0 0.4', '0 0 0.3', '0 0 0.1'])

    def test_a_turn_that_five_joints_can_make(self) -> None:
        made = urdf_planner(self.FIVE, 'tip')
        start = np.array([0.4, -0.9, 1.7, -0.2, 0.0])
        keeps_everything(made, made.plan(start), start)

    def test_the_missing_freedom_is_named(self) -> None:
        """A tool tilted in its plane can be leveled, but not keep its y axis's heading."""
        made = urdf_planner(self.FIVE, 'tip', heading='x', direction='up')
        start = np.array([0.4, 0.5, 0.7, -0.6, 1.0])
        with pytest.raises(LevelingRefusal) as refusal:
            made.plan(start)
        assert refusal.value.obstacle is Obstacle.FREEDOM
        message = str(refusal.value)
        assert 'With 5 joints the arm lacks a degree of freedom' in message
        assert 'turn the tool about' in message
        assert "heading to 'free'" in message

    def test_a_planar_arm_cannot_leave_its_plane(self) -> None:
        urdf = chain_urdf(['0 0 1', '1 0 0', '1 0 0', '1 0 0'],
                          ['0 0 0', '0 0 0', '0 0.3 0', '0 0.3 0.1'])
        sideways = urdf.replace('<origin xyz="0 0 0.2"/>', '<origin xyz="0 0 0.2" rpy="0 0.5 0"/>')
        made = urdf_planner(sideways, 'tip', heading='free', direction='up')
        with pytest.raises(LevelingRefusal) as refusal:
            made.plan(np.array([0.3, -0.2, 0.5, 0.4]))
        assert refusal.value.obstacle is Obstacle.FREEDOM
        assert 'With 4 joints' in str(refusal.value)


class TestRefusals:
    def narrowed(self, joint: int, past: float) -> tuple[LevelingPlanner, float]:
        """Return a planner whose limit of one joint ends before the leveling motion does."""
        made = planner('robocal', free=True)
        plan = made.plan(TILTED)
        assert plan.path is not None
        column = plan.path.positions[:, joint]
        assert (np.diff(column) > 0.0).all() or (np.diff(column) < 0.0).all()
        upward = column[-1] > column[0]
        lower, upper = made.limits.lower.copy(), made.limits.upper.copy()
        limit = column[-1] - past if upward else column[-1] + past
        (upper if upward else lower)[joint] = limit
        bounds = made.limits
        narrow = MotionLimits(bounds.joint_names, lower, upper, bounds.velocity,
                              bounds.acceleration)
        robot = made.tool.robot.copy()
        robot.lower, robot.upper = lower, upper
        return LevelingPlanner(Tool(robot), UP, narrow, made.values), float(limit)

    def test_a_limit_says_which_joint_and_by_how_much(self) -> None:
        made, limit = self.narrowed(3, 0.123)
        with pytest.raises(LevelingRefusal) as refusal:
            made.plan(TILTED)
        told = refusal.value
        assert told.obstacle is Obstacle.LIMIT
        assert 0.3 < told.share < 1.0
        assert f"Joint 'joint_4' reaches its limit of {limit:.3f} rad" in str(told)
        assert f'after {100 * told.share:.0f} % of the turn' in str(told)
        assert '0.123 rad past it' in str(told)

    def test_a_joint_at_its_limit_may_leave_it(self) -> None:
        made, _ = self.narrowed(3, 0.0)
        plan = planner('robocal', free=True).plan(TILTED)
        assert plan.path is not None
        column = plan.path.positions[:, 3]
        lower, upper = made.limits.lower.copy(), made.limits.upper.copy()
        (lower if column[-1] > column[0] else upper)[3] = TILTED[3]
        at_limit = LevelingPlanner(
            made.tool, UP, replace(made.limits, lower=lower, upper=upper), LevelingParameters())
        keeps_everything(at_limit, at_limit.plan(TILTED), TILTED)

    def test_encoder_noise_past_a_limit_is_forgiven_and_more_is_not(self) -> None:
        made = planner('robocal', free=True)
        upper = made.limits.upper.copy()
        upper[2] = TILTED[2]
        tight = LevelingPlanner(made.tool, UP, replace(made.limits, upper=upper),
                                LevelingParameters())
        noisy = TILTED + np.array([0.0, 0.0, 5e-4, 0.0, 0.0, 0.0])
        plan = tight.plan(noisy)
        assert plan.trajectory is not None
        np.testing.assert_allclose(plan.trajectory.start, TILTED)
        with pytest.raises(MotionError, match=r"'joint_3' is at 0.3100 rad, 0.0100 rad past"):
            tight.plan(TILTED + np.array([0.0, 0.0, 0.01, 0.0, 0.0, 0.0]))

    def test_a_stretched_arm_is_at_the_edge_of_its_reach(self) -> None:
        made = planner('robocal', free=True)
        stretched = np.array([0.2, 0.6, -1.5, 0.1, 0.4, 0.0])
        with pytest.raises(LevelingRefusal) as refusal:
            made.plan(stretched)
        told = refusal.value
        assert told.obstacle is Obstacle.SINGULARITY
        assert 'edge of its workspace or a singular posture' in str(told)
        assert 'tool point along' in str(told) or 'turn the tool about' in told.sentence

    def test_a_collision_names_the_bodies(self) -> None:
        with pytest.raises(LevelingRefusal) as refusal:
            planner('ur5').plan(np.array([4.072, 0.588, 1.838, -1.181, 5.963, 1.321]))
        told = refusal.value
        assert told.obstacle is Obstacle.COLLISION
        assert "'base_link_0' touches 'upper_arm_link_0' after 31 % of the turn" in str(told)

    def test_touching_at_the_start(self) -> None:
        made = planner('robocal')
        robot = made.tool.robot
        generator = np.random.default_rng(1)
        low, high = robot.sampling_limits()
        q = next(q for q in generator.uniform(low, high, (500, 6))
                 if not checker('robocal').is_free(q) and tilt(
                     made.tool.pose(q)[0], UP, 'nearest') > 0.1)
        with pytest.raises(MotionError, match='In the current posture'):
            made.plan(q)

    def test_a_search_that_is_cut_short_says_so(self) -> None:
        made = planner('panda', search_time=1e-6)
        told = [str(attempt(made, start)[1]) for start in postures('panda', 15)]
        assert any('ended at search_time' in text for text in told)


def test_limits_of_speed_and_acceleration_are_used() -> None:
    """The motion takes no longer than one of the limits demands."""
    made = planner('robocal')
    trajectory = made.plan(TILTED).trajectory
    assert trajectory is not None
    _, velocity, acceleration = trajectory.sample(trajectory.dense(0.002))
    bounds = limits(made.tool.robot)
    used = max((np.abs(velocity) / bounds.velocity).max(),
               (np.abs(acceleration) / bounds.acceleration).max())
    assert 0.93 < used <= 1.0


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
