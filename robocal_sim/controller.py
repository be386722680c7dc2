# SPDX-License-Identifier: Apache-2.0
"""Joint trajectory controller without ROS, with the measured behaviour of the real one.

That includes goals that `ControllerSettings.strict` rejects: values that are not finite, distant
starts, duplicate joint names, and tolerances that are dropped silently.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from robocal_sim.model import JointLimits
from robocal_sim.trajectory import JointState, Knot, Spline, Trajectory, TrajectoryPoint

FloatArray = npt.NDArray[np.float64]

SUCCESSFUL = 0
INVALID_GOAL = -1
PATH_TOLERANCE_VIOLATED = -4
GOAL_TOLERANCE_VIOLATED = -5

# Fastest last point that counts as still, as in the original [rad/s].
_STILL = float(np.finfo(np.float32).eps)

ACTION_PERIOD = 0.05
"""Period of the action's results and feedback [s]."""

START_TOLERANCE = 0.02
"""Largest distance between arm and first point at time zero in strict mode [rad]."""


class Status(enum.Enum):
    """Final status of a goal."""

    SUCCEEDED = 'succeeded'
    ABORTED = 'aborted'
    CANCELED = 'canceled'


@dataclass(frozen=True)
class Outcome:
    """Result of a goal: status, error code and text."""

    status: Status
    code: int
    text: str


@dataclass(frozen=True)
class ToleranceRequest:
    """Tolerance in a goal: 0 keeps the default, -1 disables it."""

    joint: str
    position: float = 0.0
    velocity: float = 0.0
    acceleration: float = 0.0


@dataclass(frozen=True)
class StateTolerance:
    """Largest errors of position, velocity and acceleration, shape (3, n); 0: unlimited."""

    values: FloatArray

    def violated(self, error: JointState) -> bool:
        """Return whether an error exceeds its tolerance; NaN never does, as in the original."""
        if not self.values.any():
            return False
        errors = np.abs((error.position, error.velocity, error.acceleration))
        return bool(((self.values > 0.0) & (errors > self.values)).any())


@dataclass(frozen=True)
class Tolerances:
    """Path and goal tolerances, and time to reach the goal [s]; 0: unlimited."""

    path: StateTolerance
    goal: StateTolerance
    goal_time: float = 0.0


@dataclass(frozen=True)
class ControllerSettings:
    """Settings of the controller.

    Attributes:
        strict: Reject unsafe goals that the real controller accepts.
        allow_partial_joints_goal: Accept goals for a subset of the joints; the others hold.
        decelerate_on_cancel: Decelerate on cancel, instead of stopping in one cycle.
        cancel_deceleration: Deceleration of the fastest joint on cancel [rad/s²].
        path_tolerance: Default position tolerance on the path [rad], one for all joints or one
            per joint; 0: unlimited.
        goal_tolerance: Default position tolerance at the goal, likewise.
        stopped_velocity_tolerance: Default velocity tolerance at the goal [rad/s]; 0: unlimited.
        goal_time: Default time past the end to reach the goal tolerance [s]; 0: unlimited.
        cubic_segments: Ignore the accelerations of trajectories.
        command_interfaces: What the drives are commanded; with effort, that of trajectories is
            passed to them beside the positions, linear between the points.

    """

    strict: bool = False
    allow_partial_joints_goal: bool = False
    decelerate_on_cancel: bool = False
    cancel_deceleration: float = 2.0
    path_tolerance: float | tuple[float, ...] = 0.0
    goal_tolerance: float | tuple[float, ...] = 0.0
    stopped_velocity_tolerance: float = 0.0
    goal_time: float = 0.0
    cubic_segments: bool = False
    command_interfaces: tuple[str, ...] = ('position',)


@dataclass(eq=False)
class Goal:
    """Accepted action goal; `outcome` is set when it ends."""

    tolerances: Tolerances
    outcome: Outcome | None = None


@dataclass
class _Motion:
    """Trajectory being executed; its spline is built on the first update."""

    knots: list[Knot]
    clock: float
    tolerances: Tolerances
    spline: Spline | None = None


class TrajectoryController:
    """Trajectory controller with position commands, one update per control cycle.

    With an effort interface, the effort of a trajectory is commanded, too: zero while the arm is
    held, and that of the last point after the end.

    Points that are not finite are accepted and commanded, as measured on the real controller;
    the drives ignore them.

    Attributes:
        joints: Controlled joints, in the order of all arrays.
        settings: Settings; may be replaced at run time.
        speed_scaling: Speed of the trajectory's time.
        active: Whether goals are accepted.
        desired: Desired state of the trajectory.
        measured: Measured state of the last update; its acceleration is zero.
        error: Desired minus measured state.
        effort: Effort command of the last update, shape (n,) [N·m].

    """

    def __init__(
        self,
        joints: Sequence[str],
        limits: JointLimits,
        settings: ControllerSettings,
        start: FloatArray,
    ) -> None:
        self.joints = tuple(joints)
        self.settings = settings
        self.speed_scaling = 1.0
        self.active = True
        self._zero = zero = np.zeros(len(self.joints))
        self.desired = JointState(start.copy(), zero, zero)
        self.error = JointState(zero, zero, zero)
        self.effort: FloatArray = zero
        self._limits = limits
        self._index = {name: index for index, name in enumerate(self.joints)}
        self.measured = self.desired
        self._hold: FloatArray | None = start.copy()
        self._motion: _Motion | None = None
        self._goal: Goal | None = None
        self._ended: list[Goal] = []

    @property
    def commands_effort(self) -> bool:
        """Whether effort is among the command interfaces."""
        return 'effort' in self.settings.command_interfaces

    @property
    def goal(self) -> Goal | None:
        """Active action goal."""
        return self._goal

    @property
    def moving(self) -> bool:
        """Whether a goal is active, or a trajectory has not ended."""
        motion = self._motion
        return self._goal is not None or (motion is not None and (
            motion.spline is None or motion.clock < motion.spline.end))

    def check(
        self,
        trajectory: Trajectory,
        now: float,
        path: Sequence[ToleranceRequest] = (),
        goal: Sequence[ToleranceRequest] = (),
    ) -> str | None:
        """Return the reason to reject a trajectory, or None if it is accepted.

        Args:
            trajectory: Trajectory as received.
            now: Time [s].
            path: Requested path tolerances.
            goal: Requested goal tolerances.

        """
        if not self.active:
            return "Can't accept new action goals. Controller is not running."
        reason = self._check_joints(trajectory) or self._check_points(trajectory, now)
        if reason is None and self.settings.strict:
            reason = self._check_strictly(trajectory, path, goal)
        return reason

    def accept_goal(
        self,
        trajectory: Trajectory,
        now: float,
        path: Sequence[ToleranceRequest] = (),
        goal: Sequence[ToleranceRequest] = (),
        goal_time: float = 0.0,
    ) -> Goal:
        """Start a goal that passed `check`; an active goal is aborted.

        Args:
            trajectory: Trajectory as received.
            now: Time [s].
            path: Requested path tolerances.
            goal: Requested goal tolerances.
            goal_time: Time past the end to reach the goal [s]; 0 keeps the default, a negative
                value disables it.

        """
        self._end_goal(Outcome(
            Status.ABORTED, INVALID_GOAL, 'Current goal preempted by new incoming action.'
        ))
        tolerances = self._requested_tolerances(path, goal, goal_time)
        self._start(trajectory, now, tolerances)
        self._goal = Goal(tolerances)
        return self._goal

    def accept_topic(self, trajectory: Trajectory, now: float) -> str | None:
        """Start a trajectory from the topic if it is valid, else return the reason.

        An active action goal stays active and ends with the new trajectory.
        """
        reason = self.check(trajectory, now)
        if reason is None:
            tolerances = self._goal.tolerances if self._goal else self._default_tolerances()
            self._start(trajectory, now, tolerances)
        return reason

    def cancel(self, goal: Goal) -> None:
        """Cancel a goal and stop the arm, unless the goal has already ended."""
        if goal is not self._goal:
            return
        self._end_goal(Outcome(Status.CANCELED, SUCCESSFUL, ''))
        if self.settings.decelerate_on_cancel:
            self._brake()
        else:
            self.hold()

    def abort(self, code: int, text: str) -> None:
        """Abort the active goal and hold."""
        self._end_goal(Outcome(Status.ABORTED, code, text))
        self.hold()

    def deactivate(self) -> None:
        """Abort the active goal, hold, and reject new goals."""
        if self.active:
            self.abort(INVALID_GOAL, 'Current goal cancelled during deactivate transition.')
            self.active = False

    def activate(self) -> None:
        """Accept goals again, from the current position."""
        if not self.active:
            self.hold()
            self.active = True

    def hold(self) -> None:
        """Drop the trajectory and hold the position measured at the next update."""
        self._motion = None
        self._hold = None

    def take_ended(self) -> list[Goal]:
        """Return the goals that have ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def update(self, position: FloatArray, velocity: FloatArray, period: float) -> FloatArray:
        """Return the position command of this cycle, shape (n,) [rad].

        Args:
            position: Measured positions, shape (n,) [rad].
            velocity: Measured velocities, shape (n,) [rad/s].
            period: Time since the last update [s].

        """
        self.measured = JointState(position, velocity, self._zero)
        if self._motion is not None:
            # Values that are not finite are accepted; see the class.
            with np.errstate(invalid='ignore', over='ignore'):
                self._follow(self._motion, period)
        if self._motion is None:
            if self._hold is None:
                self._hold = position.copy()
            self.desired = JointState(self._hold, self._zero, self._zero)
            self.effort = self._zero
            self.error = self._deviation()
        return self.desired.position

    def _follow(self, motion: _Motion, period: float) -> None:
        if motion.spline is None:
            motion.spline = self._spline(motion)
        else:
            motion.clock += period * self.speed_scaling
        self.desired = motion.spline.sample(motion.clock)
        self.effort = motion.spline.effort(motion.clock)
        self.error = self._deviation()
        late = motion.clock - motion.spline.end
        if late < 0.0:
            if motion.tolerances.path.violated(self.error):
                self.abort(PATH_TOLERANCE_VIOLATED, 'Aborted due to path tolerance violation')
        elif self._goal is not None:
            self._judge_end(motion.tolerances, late)

    def _judge_end(self, tolerances: Tolerances, late: float) -> None:
        if not tolerances.goal.violated(self.error):
            self._end_goal(Outcome(Status.SUCCEEDED, SUCCESSFUL, 'Goal successfully reached!'))
        elif 0.0 < tolerances.goal_time < late:
            self.abort(
                GOAL_TOLERANCE_VIOLATED,
                'Aborted due to goal_time_tolerance exceeding by '
                f'{late:f} seconds',
            )

    def _deviation(self) -> JointState:
        desired, measured = self.desired, self.measured
        return JointState(
            desired.position - measured.position,
            desired.velocity - measured.velocity,
            # Acceleration is not measured.
            self._zero,
        )

    def _end_goal(self, outcome: Outcome) -> None:
        if self._goal is not None:
            self._goal.outcome = outcome
            self._ended.append(self._goal)
            self._goal = None

    def _start(self, trajectory: Trajectory, now: float, tolerances: Tolerances) -> None:
        clock = now - trajectory.stamp if trajectory.stamp else 0.0
        self._motion = _Motion(self._knots(trajectory), clock, tolerances)

    def _knots(self, trajectory: Trajectory) -> list[Knot]:
        """Map the points to the controller's joint order; joints left out hold."""
        order = [self._index[name] for name in trajectory.joints]
        rest = self.measured.position
        zero = np.zeros_like(rest)

        def mapped(values: Sequence[float], default: FloatArray) -> FloatArray:
            result = default.copy()
            for index, value in zip(order, values, strict=True):
                result[index] = value
            return result

        return [
            Knot(
                point.time,
                mapped(point.positions, rest),
                mapped(point.velocities, zero) if point.velocities else None,
                mapped(point.accelerations, zero)
                if point.accelerations and not self.settings.cubic_segments else None,
                mapped(point.effort, zero) if point.effort else None,
            )
            for point in trajectory.points
        ]

    def _spline(self, motion: _Motion) -> Spline:
        """Join the measured state to the first point, if that still lies ahead.

        The effort begins with the one that is commanded at present.
        """
        if motion.knots[0].time <= motion.clock:
            return Spline(motion.knots)
        start = Knot(motion.clock, self.measured.position.copy(), self.measured.velocity.copy(),
                     effort=self.effort)
        return Spline([start, *motion.knots])

    def _brake(self) -> None:
        """Slow all joints down together, along the direction in which they move."""
        position, velocity = self.measured.position, self.measured.velocity
        duration = float(np.abs(velocity).max()) / self.settings.cancel_deceleration
        if duration <= 0.0:
            self.hold()
            return
        zero = np.zeros_like(position)
        knots = [
            Knot(0.0, position.copy(), velocity.copy()),
            # A cubic with these ends is the parabola of constant deceleration.
            Knot(duration, position + 0.5 * velocity * duration, zero),
        ]
        self._motion = _Motion(knots, 0.0, self._without_tolerances(), Spline(knots))

    def _check_joints(self, trajectory: Trajectory) -> str | None:
        names = trajectory.joints
        if not names:
            return 'Empty joint names on incoming trajectory.'
        unknown = [name for name in names if name not in self._index]
        if unknown:
            return f"Incoming joint {unknown[0]} doesn't match the controller's joints."
        count = len(self.joints)
        if len(names) > count or (
            len(names) < count and not self.settings.allow_partial_joints_goal
        ):
            return f'Incoming trajectory has {len(names)} joints, the controller has {count}.'
        return None

    def _check_points(self, trajectory: Trajectory, now: float) -> str | None:
        points = trajectory.points
        if not points:
            return 'Empty trajectory received.'
        if any(abs(velocity) > _STILL for velocity in points[-1].velocities):
            return 'Velocity of last trajectory point is not zero.'
        for index, (a, b) in enumerate(pairwise(points)):
            if b.time <= a.time:
                return f'Time between points {index} and {index + 1} is not strictly increasing.'
        for index, point in enumerate(points):
            reason = _check_sizes(point, len(trajectory.joints), index)
            if reason:
                return reason
            if point.effort and not self.commands_effort:
                return ("Trajectories with effort fields are only supported for controllers using "
                        "the 'effort' command interface.")
        if trajectory.stamp and trajectory.stamp + points[-1].time < now:
            return 'Received trajectory with non-zero start time that ends in the past.'
        return None

    def _check_strictly(
        self,
        trajectory: Trajectory,
        path: Sequence[ToleranceRequest],
        goal: Sequence[ToleranceRequest],
    ) -> str | None:
        names = trajectory.joints
        if len(set(names)) != len(names):
            return f'A joint is named twice: {", ".join(names)}.'
        for point in trajectory.points:
            values = (*point.positions, *point.velocities, *point.accelerations, *point.effort)
            if not np.isfinite(values).all():
                return 'A point holds a value that is not finite.'
        if not self._tolerances_valid((*path, *goal)):
            return 'A tolerance names an unknown joint or has an invalid value.'
        return self._check_limits(self._knots(trajectory))

    def _check_limits(self, knots: Sequence[Knot]) -> str | None:
        limits = self._limits
        here = self.measured.position
        speed = np.where(np.isfinite(limits.velocity), limits.velocity, np.inf)
        first = knots[0]
        with np.errstate(invalid='ignore'):
            reach = START_TOLERANCE + np.where(first.time > 0.0, speed * first.time, 0.0)
        if (np.abs(first.position - here) > reach).any():
            return 'The first point is too far from the arm.'
        for knot in knots:
            if (knot.position < limits.lower).any() or (knot.position > limits.upper).any():
                return 'A point lies outside the joint limits.'
            if knot.velocity is not None and (np.abs(knot.velocity) > speed).any():
                return 'A point is faster than the joint allows.'
        for a, b in pairwise(knots):
            if (np.abs(b.position - a.position) > speed * (b.time - a.time) * 1.001).any():
                return 'Two points are further apart than the joint can move in their time.'
        return None

    def _tolerances_valid(self, requests: Sequence[ToleranceRequest]) -> bool:
        return all(
            request.joint in self._index
            and all(
                value >= 0.0 or value == -1.0
                for value in (request.position, request.velocity, request.acceleration)
            )
            for request in requests
        )

    def _requested_tolerances(
        self,
        path: Sequence[ToleranceRequest],
        goal: Sequence[ToleranceRequest],
        goal_time: float,
    ) -> Tolerances:
        tolerances = self._default_tolerances()
        if not self._tolerances_valid((*path, *goal)):
            # One bad entry loses all tolerances of the goal, silently: measured.
            return tolerances
        if goal_time:
            tolerances = replace(tolerances, goal_time=max(goal_time, 0.0))
        return replace(
            tolerances,
            path=self._merged(tolerances.path, path),
            goal=self._merged(tolerances.goal, goal),
        )

    def _merged(
        self, default: StateTolerance, requests: Sequence[ToleranceRequest]
    ) -> StateTolerance:
        values = default.values.copy()
        for request in requests:
            column = self._index[request.joint]
            wanted = (request.position, request.velocity, request.acceleration)
            for row, value in enumerate(wanted):
                if value:
                    values[row, column] = max(value, 0.0)
        return StateTolerance(values)

    def _default_tolerances(self) -> Tolerances:
        settings = self.settings
        tolerances = self._without_tolerances()
        tolerances.path.values[0] = settings.path_tolerance
        tolerances.goal.values[0] = settings.goal_tolerance
        tolerances.goal.values[1] = settings.stopped_velocity_tolerance
        return replace(tolerances, goal_time=settings.goal_time)

    def _without_tolerances(self) -> Tolerances:
        shape = (3, len(self.joints))
        return Tolerances(StateTolerance(np.zeros(shape)), StateTolerance(np.zeros(shape)))


def _check_sizes(point: TrajectoryPoint, count: int, index: int) -> str | None:
    if not point.positions:
        return f'Point {index} holds no positions.'
    for name in ('positions', 'velocities', 'accelerations', 'effort'):
        values = getattr(point, name)
        if len(values) not in (0, count):
            return (
                f'Mismatch between joint_names size ({count}) and {name} ({len(values)}) '
                f'at point #{index}.'
            )
    return None
