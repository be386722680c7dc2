# SPDX-License-Identifier: Apache-2.0
"""Behaviour of the controller against the measured table, without ROS and physics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from robocal_sim.controller import (
    ControllerSettings,
    Goal,
    StateTolerance,
    Status,
    ToleranceRequest,
    TrajectoryController,
)
from robocal_sim.model import JointLimits
from robocal_sim.trajectory import JointState, Knot, Spline, Trajectory, TrajectoryPoint

JOINTS = ('a', 'b', 'c')
PERIOD = 0.01
LIMITS = JointLimits(
    lower=np.full(3, -1.0), upper=np.full(3, 1.0),
    velocity=np.full(3, 2.0), effort=np.full(3, 100.0),
)


class Rig:
    """Controller of an arm that follows without lag, within position and velocity limits."""

    def __init__(self, **settings: object) -> None:
        self.controller = TrajectoryController(
            JOINTS, LIMITS, ControllerSettings(**settings), np.zeros(3)
        )
        self.now = 100.0
        self.position = np.zeros(3)
        self.velocity = np.zeros(3)
        self.run(0.02)

    def goal(
        self, trajectory: Trajectory, path: Sequence[ToleranceRequest] = (),
        goal: Sequence[ToleranceRequest] = (), goal_time: float = 0.0,
    ) -> Goal | None:
        if self.controller.check(trajectory, self.now, path, goal) is not None:
            return None
        return self.controller.accept_goal(trajectory, self.now, path, goal, goal_time)

    def run(self, duration: float) -> None:
        for _ in range(round(duration / PERIOD)):
            command = self.controller.update(self.position, self.velocity, PERIOD)
            wanted = np.where(np.isfinite(command), command, self.position)
            wanted = np.clip(wanted, LIMITS.lower, LIMITS.upper)
            reach = LIMITS.velocity * PERIOD
            step = np.clip(wanted - self.position, -reach, reach)
            self.velocity = step / PERIOD
            self.position = self.position + step
            self.now += PERIOD


def halfway(**settings: object) -> tuple[Rig, Goal]:
    """Return the arm in the middle of a motion."""
    rig = Rig(**settings)
    goal = rig.goal(SIMPLE)
    rig.run(0.5)
    return rig, goal


def trajectory(*rows: tuple[float, list[float]], joints: tuple[str, ...] = JOINTS,
               stamp: float = 0.0) -> Trajectory:
    return Trajectory(joints, tuple(TrajectoryPoint(*row) for row in rows), stamp)


SIMPLE = trajectory((1.0, [0.5, -0.2, 0.1]))


def tolerances(value: float) -> list[ToleranceRequest]:
    return [ToleranceRequest(name, position=value) for name in JOINTS]


def test_valid_goal_succeeds() -> None:
    rig = Rig()
    goal = rig.goal(SIMPLE)
    rig.run(0.99)
    assert goal.outcome is None
    rig.run(0.05)
    assert goal.outcome.status is Status.SUCCEEDED
    assert goal.outcome.code == 0
    assert goal.outcome.text == 'Goal successfully reached!'
    assert rig.position == pytest.approx([0.5, -0.2, 0.1])


def _with(**fields: object) -> Trajectory:
    return replace(SIMPLE, points=(replace(SIMPLE.points[0], **fields),))


@pytest.mark.parametrize('bad', [
    pytest.param(trajectory((1.0, [0.1, 0.1, 0.1]), joints=('a', 'b', 'x')), id='unknown_joint'),
    pytest.param(trajectory((1.0, [0.1] * 4), joints=(*JOINTS, 'a')), id='too_many_joints'),
    pytest.param(trajectory((1.0, [0.1, 0.1]), joints=('a', 'b')), id='partial_set'),
    pytest.param(trajectory((1.0, [0.1] * 3), (1.0, [0.2] * 3)), id='equal_times'),
    pytest.param(trajectory((1.0, [0.1] * 3), (0.5, [0.2] * 3)), id='decreasing_times'),
    pytest.param(trajectory(), id='no_points'),
    pytest.param(trajectory((1.0, [0.1] * 2)), id='wrong_length_positions'),
    pytest.param(_with(velocities=[0.1, 0.0, 0.0]), id='last_point_with_velocity'),
    pytest.param(_with(positions=(), velocities=[0.0] * 3), id='velocities_only'),
    pytest.param(_with(effort=[1.0] * 3), id='positions_and_effort'),
    pytest.param(_with(velocities=[0.0] * 2), id='wrong_length_velocities'),
    pytest.param(replace(SIMPLE, stamp=50.0), id='ends_in_the_past'),
])
def test_rejected(bad: Trajectory) -> None:
    rig = Rig()
    assert rig.goal(bad) is None
    rig.run(1.1)
    assert not rig.position.any()


def test_a_first_point_before_the_start_is_joined_midway() -> None:
    rig = Rig()
    goal = rig.goal(trajectory((-0.5, [0.0] * 3), (0.5, [0.04, 0.0, 0.0])))
    rig.run(0.03)
    assert rig.position[0] == pytest.approx(0.021, abs=1e-3)
    rig.run(0.5)
    assert goal.outcome.status is Status.SUCCEEDED


def test_a_last_point_that_all_but_rests_is_accepted() -> None:
    assert Rig().goal(_with(velocities=[1e-7, 0.0, 0.0])) is not None


@pytest.mark.parametrize(('joints', 'wanted', 'reached'), [
    pytest.param(('b',), [0.3], [0.0, 0.3, 0.0], id='partial_if_allowed'),
    pytest.param(('c', 'a', 'b'), [0.3, 0.1, 0.2], [0.1, 0.2, 0.3], id='other_order'),
    pytest.param(('a', 'a', 'b'), [0.3, 0.3, 0.2], [0.3, 0.2, 0.0], id='missing_joint_holds'),
])
def test_joints_are_moved_by_their_names(
    joints: tuple[str, ...], wanted: list[float], reached: list[float]
) -> None:
    rig = Rig(allow_partial_joints_goal=len(joints) < 3)
    goal = rig.goal(trajectory((1.0, wanted), joints=joints))
    rig.run(1.1)
    assert goal.outcome.status is Status.SUCCEEDED
    assert rig.position == pytest.approx(reached)


def test_effort_is_commanded_between_the_points_and_not_while_held() -> None:
    """As joint_trajectory_controller with position and effort, by its sources."""
    rig = Rig(command_interfaces=('position', 'effort'))
    points = [replace(point, effort=(force, 0.0, -force)) for point, force in zip(
        trajectory((1.0, [0.1] * 3), (2.0, [0.2] * 3)).points, (4.0, 8.0), strict=True)]
    assert rig.goal(trajectory((1.0, [0.1] * 2 + [0.3]))) is not None
    goal = rig.goal(replace(SIMPLE, points=tuple(points)))
    # From nothing, where the arm is, to the first point; then linear; then that of the last.
    for passed, effort in ((0.5, 2.0), (1.0, 6.0), (1.0, 8.0)):
        rig.run(passed)
        assert rig.controller.effort == pytest.approx([effort, 0.0, -effort], abs=0.1)
    assert goal.outcome.status is Status.SUCCEEDED
    # The next motion begins with the effort that is commanded; points without effort have none.
    assert rig.goal(SIMPLE) is not None
    rig.run(0.5)
    assert rig.controller.effort == pytest.approx([4.0, 0.0, -4.0], abs=0.1)
    rig.controller.hold()
    rig.run(2.6)
    assert not rig.controller.effort.any()


OUTSIDE = trajectory((1.0, [1.4, 0.0, 0.0]))
DISTANT = trajectory((0.0, [0.9, 0.0, 0.0]), (1.0, [0.9, 0.0, 0.0]))
EXACT = {'goal': tolerances(0.01), 'goal_time': 0.5}


@pytest.mark.parametrize(('message', 'options', 'end', 'status', 'code', 'reached'), [
    (trajectory((1.0, [math.nan, 0.2, 0.1])), {}, 1.05, Status.SUCCEEDED, 0, 0.0),
    (trajectory((1.0, [math.inf, 0.2, 0.1])), {}, 1.05, Status.SUCCEEDED, 0, 0.0),
    # Without velocities, the first point is where the motion begins.
    (DISTANT, {'path': tolerances(0.1)}, 0.05, Status.ABORTED, -4, 0.0),
    (OUTSIDE, {}, 1.05, Status.SUCCEEDED, 0, 1.0),
    (OUTSIDE, EXACT, 1.5, Status.ABORTED, -5, 1.0),
    # An invalid tolerance drops all of them.
    *((OUTSIDE, {**EXACT, 'goal': [*tolerances(0.01), bad]}, 1.05, Status.SUCCEEDED, 0, 1.0)
      for bad in (ToleranceRequest('x', position=0.1), ToleranceRequest('a', position=-0.5))),
])
def test_ends_of_goals(
    message: Trajectory, options: dict, end: float, status: Status, code: int, reached: float
) -> None:
    rig = Rig()
    goal = rig.goal(message, **options)
    rig.run(end - 0.05)
    assert goal.outcome is None or end < 0.1
    rig.run(0.1)
    assert (goal.outcome.status, goal.outcome.code) == (status, code)
    assert rig.position[0] == pytest.approx(reached)


def test_distant_first_point_is_approached_at_the_velocity_limit() -> None:
    rig = Rig()
    assert rig.goal(DISTANT) is not None
    rig.run(0.1)
    assert rig.velocity[0] == pytest.approx(2.0)


def test_outside_limits_with_goal_time_zero_never_ends() -> None:
    rig = Rig()
    goal = rig.goal(OUTSIDE, goal=tolerances(0.01))
    rig.run(20.0)
    assert goal.outcome is None
    rig.controller.cancel(goal)
    assert goal.outcome.status is Status.CANCELED


def test_path_tolerance_violation_aborts_and_holds() -> None:
    rig = Rig()
    goal = rig.goal(trajectory((0.5, [0.1, 0.0, 0.0]), (0.6, [0.9, 0.0, 0.0])),
                    path=tolerances(0.1))
    rig.run(1.0)
    assert (goal.outcome.status, goal.outcome.code) == (Status.ABORTED, -4)
    stopped = rig.position.copy()
    assert stopped[0] < 0.5
    rig.run(0.5)
    assert rig.position == pytest.approx(stopped)


def test_cancel_stops_in_one_cycle() -> None:
    rig, goal = halfway()
    rig.controller.cancel(goal)
    assert goal.outcome.status is Status.CANCELED
    here = rig.position.copy()
    rig.run(0.3)
    assert rig.position == pytest.approx(here)
    assert rig.controller.desired.position == pytest.approx(here)


def test_cancel_with_deceleration_keeps_moving() -> None:
    rig, goal = halfway(decelerate_on_cancel=True, cancel_deceleration=1.0)
    speed = rig.velocity.copy()
    rig.controller.cancel(goal)
    assert goal.outcome.status is Status.CANCELED
    rig.run(0.25)
    assert rig.velocity[0] == pytest.approx(0.5 * speed[0], rel=0.05)
    rig.run(0.5)
    assert rig.velocity == pytest.approx(np.zeros(3), abs=1e-9)


def test_second_goal_preempts_the_first() -> None:
    rig, first = halfway()
    here = rig.position.copy()
    second = rig.goal(trajectory((1.0, [0.0, 0.0, 0.0])))
    assert (first.outcome.status, first.outcome.code) == (Status.ABORTED, -1)
    assert 'preempted by new incoming action' in first.outcome.text
    rig.run(PERIOD)
    assert rig.position == pytest.approx(here)
    rig.run(1.1)
    assert second.outcome.status is Status.SUCCEEDED


def test_topic_replaces_the_motion_and_the_goal_succeeds() -> None:
    rig, goal = halfway()
    assert rig.controller.accept_topic(trajectory((1.0, [-0.3, 0.0, 0.0])), rig.now) is None
    rig.run(0.6)
    assert goal.outcome is None
    rig.run(0.5)
    assert goal.outcome.status is Status.SUCCEEDED
    assert rig.position[0] == pytest.approx(-0.3)


def test_deactivation_aborts_holds_and_rejects_goals() -> None:
    rig, goal = halfway()
    rig.controller.deactivate()
    here = rig.position.copy()
    assert (goal.outcome.status, goal.outcome.code) == (Status.ABORTED, -1)
    assert rig.goal(SIMPLE) is None
    rig.run(0.5)
    assert rig.position == pytest.approx(here)
    rig.controller.activate()
    assert rig.goal(SIMPLE) is not None


def test_future_stamp_starts_at_once_and_stretches_the_motion() -> None:
    rig = Rig()
    goal = rig.goal(replace(SIMPLE, stamp=rig.now + 1.0))
    rig.run(1.0)
    assert rig.position[0] == pytest.approx(0.25, abs=0.01)
    rig.run(1.1)
    assert goal.outcome.status is Status.SUCCEEDED


def test_past_stamp_joins_midway() -> None:
    rig = Rig()
    goal = rig.goal(trajectory((0.0, [0.0] * 3), (1.0, [0.1] * 3), stamp=rig.now - 0.5))
    rig.run(2 * PERIOD)
    assert rig.controller.desired.position == pytest.approx([0.05] * 3, abs=0.002)
    rig.run(0.55)
    assert goal.outcome.status is Status.SUCCEEDED


def test_speed_scaling_stretches_the_motion() -> None:
    rig = Rig()
    rig.controller.speed_scaling = 0.5
    goal = rig.goal(SIMPLE)
    rig.run(1.5)
    assert goal.outcome is None
    rig.run(0.6)
    assert goal.outcome.status is Status.SUCCEEDED


@pytest.mark.parametrize('bad', [
    pytest.param(trajectory((1.0, [math.nan, 0.0, 0.0])), id='nan'),
    pytest.param(trajectory((0.0, [0.5, 0.0, 0.0]), (1.0, [0.5, 0.0, 0.0])), id='far_start'),
    pytest.param(OUTSIDE, id='outside_limits'),
    pytest.param(trajectory((0.1, [0.9, 0.0, 0.0])), id='too_fast'),
    pytest.param(trajectory((1.0, [0.1] * 3), (1.1, [0.9, 0.1, 0.1])), id='segment_too_fast'),
    pytest.param(trajectory((1.0, [0.1] * 3), joints=('a', 'a', 'b')), id='duplicate'),
])
def test_strict_mode_rejects_unsafe_goals(bad: Trajectory) -> None:
    assert Rig().goal(bad) is not None
    assert Rig(strict=True).goal(bad) is None


def test_strict_mode_rejects_invalid_tolerances_only() -> None:
    rig = Rig(strict=True)
    assert rig.goal(SIMPLE, path=[ToleranceRequest('x', 0.1)]) is None
    assert rig.goal(SIMPLE, path=tolerances(0.1)) is not None


@pytest.mark.parametrize('order', [3, 5])
def test_spline_interpolates_its_knots(order: int) -> None:
    rng = np.random.default_rng(0)
    knots = [
        Knot(time, rng.normal(size=2), rng.normal(size=2),
             rng.normal(size=2) if order == 5 else None)
        for time in (0.0, 0.7, 2.0)
    ]
    spline = Spline(knots)
    for knot in knots[:-1]:
        for time in (knot.time, knot.time + 1e-9):
            state = spline.sample(time)
            assert state.position == pytest.approx(knot.position, abs=1e-7)
            assert state.velocity == pytest.approx(knot.velocity, abs=1e-7)
            if order == 5:
                assert state.acceleration == pytest.approx(knot.acceleration, abs=1e-6)
    before = spline.sample(0.7 - 1e-9)
    assert before.position == pytest.approx(knots[1].position, abs=1e-7)
    assert before.velocity == pytest.approx(knots[1].velocity, abs=1e-6)
    assert spline.sample(2.0).position == pytest.approx(knots[2].position)


@pytest.mark.parametrize('quantity', range(3))
def test_an_error_just_beyond_its_tolerance_violates_it(quantity: int) -> None:
    limits, error = np.zeros((2, 3, 2))
    limits[quantity, 1] = 0.1
    for size, violated in ((0.099, False), (-0.101, True)):
        error[:, 0], error[quantity, 1] = 9.0, size
        assert StateTolerance(limits).violated(JointState(*error)) is violated
