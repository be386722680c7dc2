# SPDX-License-Identifier: Apache-2.0
"""Planning of a checked leveling motion from a posture.

The postures of a path are joined by a cubic spline over the joint travel, measured in seconds at
full speed. Time follows one quintic from rest to rest, so that speed and acceleration are
continuous and zero at both ends. (Time-optimal parameterisation, such as TOPP-RA's, is faster, but
its acceleration jumps between limits, which spills the load of a level tool.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy

from robocal_ros.arrays import Array
from robocal_ros.errors import MotionError
from robocal_ros.leveling.model import LevelingTask, LevelTarget, Tool, level_targets, tilt
from robocal_ros.leveling.parameters import LevelingParameters
from robocal_ros.leveling.path import (
    Bounds,
    JointPath,
    Obstacle,
    PathRules,
    follow,
    refined,
    search,
    smoothed,
)
from robocal_ros.robot import CollisionChecker, MotionLimits, Trajectory

# Share of the path by relative time.
_QUINTIC = np.polynomial.Polynomial([0.0, 0.0, 0.0, 10.0, -15.0, 6.0])
_SAMPLES = 1000
# Factor of the duration that allows for interpolation between knots.
_RESERVE = 1.02
_MIN_DURATION = 0.2
# Smallest time between knots [s].
_SHORTEST_KNOT = 0.002
# Cosine of the angle above which two directions count as parallel.
_ALIGNED = 0.99


def timed(positions: Array, max_velocity: Array, max_acceleration: Array) -> Trajectory:
    """Return the fastest motion along postures within speed and acceleration limits.

    Args:
        positions: Distinct postures in order, shape (k, n) [rad].
        max_velocity: Speed limits, shape (n,) [rad/s].
        max_acceleration: Acceleration limits, shape (n,) [rad/s²].

    """
    steps = np.linalg.norm(np.diff(positions, axis=0) / max_velocity, axis=1)
    travel = np.concatenate(([0.0], np.cumsum(steps)))
    spline = scipy.interpolate.CubicSpline(travel / travel[-1], positions)
    _, velocity, acceleration = _along(spline, np.linspace(0.0, 1.0, _SAMPLES))
    duration = max(
        _RESERVE * float((np.abs(velocity) / max_velocity).max()),
        _RESERVE * float(np.sqrt((np.abs(acceleration) / max_acceleration).max())), _MIN_DURATION)
    # The relative times at which the quintic reaches the knots.
    fine = np.linspace(0.0, 1.0, 20 * _SAMPLES)
    time = np.interp(spline.x, _QUINTIC(fine), fine)
    time[0], time[-1] = 0.0, 1.0
    keep = _spaced(time * duration, _SHORTEST_KNOT)
    position, velocity, acceleration = _along(spline, time[keep])
    velocity[[0, -1]] = acceleration[[0, -1]] = 0.0
    position[0], position[-1] = positions[0], positions[-1]
    return Trajectory(time[keep] * duration, position, velocity / duration,
                      acceleration / duration**2)


def _along(spline: scipy.interpolate.CubicSpline, time: Array) -> tuple[Array, Array, Array]:
    """Return position and its derivatives by relative time along a spline."""
    share, speed, change = (_QUINTIC.deriv(order)(time) for order in range(3))
    speed, change = speed[:, None], change[:, None]
    slope, bend = spline(share, 1), spline(share, 2)
    return spline(share), slope * speed, bend * speed**2 + slope * change


def _spaced(time: Array, shortest: float) -> list[int]:
    """Return the rows of times that are not too close, with the first and last row."""
    keep = [0]
    for row in range(1, len(time) - 1):
        if time[row] - time[keep[-1]] >= shortest and time[-1] - time[row] >= shortest:
            keep.append(row)
    return [*keep, len(time) - 1]


# Tolerated excess of a position limit at the start, for encoder noise [rad].
_START_NOISE = 1e-3
# Distance of an arm with more than six joints from its limits, where others may take over; more
# than an arm overshoots its goal [rad].
_LIMIT_MARGIN = 0.002
# Share of max_drift for straight joint lines between points; the rest is for tracking errors.
_SHARE_OF_DRIFT = 0.4


@dataclass(frozen=True)
class LevelPlan:
    """Plan of a leveling motion, or the finding that the tool is level.

    Attributes:
        tilt: Tilt of the tool at the start [rad].
        task: The task; None if the tool is level already.
        path: The postures; None if the tool is level already.
        trajectory: The motion; None if the tool is level already.
        note: Explanation of the choice for the user; empty for none.

    """

    tilt: float
    task: LevelingTask | None = None
    path: JointPath | None = None
    trajectory: Trajectory | None = None
    note: str = ''


@dataclass(frozen=True, eq=False)
class LevelingPlanner:
    """Plans leveling motions of one arm.

    Attributes:
        tool: Forward kinematics of the tool.
        axis: The reference's z axis in the root frame, shape (3,).
        limits: Limits of the motion.
        values: The parameters.
        checker: Collision geometry; None for no check.

    """

    tool: Tool
    axis: Array
    limits: MotionLimits
    values: LevelingParameters
    checker: CollisionChecker | None = None

    def plan(self, start: Array) -> LevelPlan:
        """Plan the motion from a posture.

        Of several equally near targets, the one with the least joint travel is selected.

        Args:
            start: Current posture, shape (n,) [rad].

        Raises:
            LevelingRefusal: If there is no path; with the reason.
            MotionError: If the arm is outside its limits or in contact.

        """
        start = self._checked_start(start)
        values = self.values
        rotation = self.tool.pose(start)[0]
        before = tilt(rotation, self.axis, values.direction)
        if before <= values.tolerance:
            return LevelPlan(before)
        plans, refusals = [], []
        for target in level_targets(rotation, self.axis, heading=values.heading,
                                    direction=values.direction):
            try:
                plans.append(self._planned(before, start, target))
            except LevelingRefusal as refusal:
                refusals.append(refusal)
        if not plans:
            raise max(refusals, key=lambda refusal: refusal.share)
        return min(plans, key=lambda plan: plan.path.travel if plan.path else 0.0)

    def _checked_start(self, start: Array) -> Array:
        """Return the start, clipped to limits that it exceeds by noise."""
        inside = np.clip(start, self.limits.lower, self.limits.upper)
        excess = np.abs(start - inside)
        joint = int(np.argmax(excess))
        if excess[joint] > _START_NOISE:
            raise MotionError(
                f"Joint '{self.limits.joint_names[joint]}' is at {start[joint]:.4f} rad, "
                f'{excess[joint]:.4f} rad past its limit of {inside[joint]:.4f} rad. The arm was '
                'not moved; jog the joint back.')
        if self.checker is not None and (contact := self.checker.touching(inside)):
            raise MotionError(
                f'In the current posture {contact}. The arm was not moved; move it clear by hand, '
                'or correct the collision geometry or clearance.')
        return inside

    def _planned(self, before: float, start: Array, target: LevelTarget) -> LevelPlan:
        """Plan the turn to one target; raises LevelingRefusal."""
        task = LevelingTask(self.tool, start, target, self.axis,
                            free_heading=self.values.heading == 'free')
        values, limits = self.values, self.limits
        margin = np.minimum(_LIMIT_MARGIN if task.redundancy > 0 else 0.0,
                            0.5 * (limits.upper - limits.lower))
        rules = PathRules(
            Bounds(np.minimum(limits.lower + margin, start),
                   np.maximum(limits.upper - margin, start)),
            values.max_step, _SHARE_OF_DRIFT * values.max_drift, values.singularity_margin,
            self.checker)
        violation, share = '', 0.0
        for path in self._paths(task, rules):
            if path.obstacle is not None:
                raise explain(task, rules, path)
            trajectory = timed(path.positions, self.limits.velocity, self.limits.acceleration)
            violation, share = self._violation(task, trajectory), path.share
            if not violation:
                return LevelPlan(before, task, path, trajectory, target.note)
        raise LevelingRefusal(Obstacle.LIMIT, share, violation)

    def _paths(self, task: LevelingTask, rules: PathRules) -> Iterator[JointPath]:
        """Yield complete paths, the best first, or last an incomplete one."""
        if task.redundancy <= 0:
            yield follow(task, rules)
            return
        direct = follow(task, rules)
        if direct.obstacle is None:
            yield direct
            even = smoothed(task, rules, direct)
            if even is not None:
                yield even
        found = search(task, rules, self.values.search_time)
        if found.obstacle is not None:
            furthest = max(found, direct, key=lambda path: path.share)
            yield replace(furthest, cut_short=found.cut_short)
            return
        for even in (smoothed(task, rules, found),
                     refined(task, rules, found, rules.max_drift)):
            if even is not None:
                yield even

    def _violation(self, task: LevelingTask, trajectory: Trajectory) -> str:
        """Return the constraint that a motion violates, also between its points, or nothing."""
        try:
            self.limits.check(trajectory)
        except MotionError as error:
            return str(error)
        positions = trajectory.sample(trajectory.dense())[0]
        middles = 0.5 * (trajectory.position[1:] + trajectory.position[:-1])
        drift = max(float(np.linalg.norm(self.tool.poses(part)[1] - task.point, axis=1).max())
                    for part in (positions, middles))
        if drift > self.values.max_drift:
            return (f'The tool point would drift {1e3 * drift:.2f} mm; max_drift is '
                    f'{1e3 * self.values.max_drift:.2f} mm.')
        contact = None if self.checker is None else self.checker.first_contact(positions)
        return f'During the motion {contact}.' if contact else ''


# ----------------------------------------------------------------------------- refusals

class LevelingRefusal(MotionError):
    """Leveling is refused because there is no path.

    Attributes:
        obstacle: Reason why the path ends early.
        share: Share of the turn that can be reached.

    """

    def __init__(self, obstacle: Obstacle, share: float, sentence: str) -> None:
        super().__init__(f'{sentence} The arm was not moved.')
        self.obstacle, self.share = obstacle, share


def explain(task: LevelingTask, rules: PathRules, path: JointPath) -> LevelingRefusal:
    """Return the refusal of an incomplete path.

    Args:
        task: The task.
        rules: Constraints.
        path: The path that leads furthest, with its obstacle.

    """
    without_limits = np.full(task.tool.robot.n, np.inf)
    free = follow(task, replace(rules, bounds=Bounds(-without_limits, without_limits),
                                checker=None))
    past = next((row for row, q in enumerate(free.positions) if rules.bounds.excess(q).any()),
                None)
    obstacle = path.obstacle or Obstacle.LIMIT
    if obstacle is Obstacle.COLLISION:
        sentence = _collision(path)
    elif past is not None:
        obstacle, sentence = Obstacle.LIMIT, _limit(task, rules.bounds, free, past, path)
    elif obstacle is Obstacle.FREEDOM:
        sentence = _freedom(task, path)
    elif free.obstacle is None and path.touching:
        obstacle, sentence = Obstacle.COLLISION, _collision(path)
    else:
        obstacle, sentence = Obstacle.SINGULARITY, _singularity(task, path)
    if task.redundancy > 0:
        sentence += _search(path)
    return LevelingRefusal(obstacle, path.share, sentence)


def _search(path: JointPath) -> str:
    if path.cut_short:
        return (f' The search for other postures of the redundant arm ended at search_time; they '
                f'reach {_percent(path)}.')
    return f' No other posture of the redundant arm reaches more than {_percent(path)}.'


def _percent(path: JointPath) -> str:
    return f'{100.0 * path.share:.0f} % of the turn'


def _limit(task: LevelingTask, bounds: Bounds, free: JointPath, row: int, path: JointPath) -> str:
    robot = task.tool.robot
    joint = int(np.argmax(bounds.excess(free.positions[row])))
    column = free.positions[row:, joint]
    above = free.positions[row, joint] > bounds.upper[joint]
    extreme = float(column.max() if above else column.min())
    limit = float(bounds.upper[joint] if above else bounds.lower[joint])
    end = '' if free.obstacle is None else ' and further'
    share = 100.0 * (path.share if robot.n <= task.rows else free.shares[row])
    return (
        f"Joint '{robot.joint_names[joint]}' reaches its limit of {limit:.3f} rad after "
        f'{share:.0f} % of the turn; to level the tool it would have to move to '
        f'{extreme:.3f} rad, {abs(extreme - limit):.3f} rad past it{end}.')


def _collision(path: JointPath) -> str:
    return (f'{path.touching} after {_percent(path)}; make room, lower clearance, or level the '
            'tool further by hand.')


def _singularity(task: LevelingTask, path: JointPath) -> str:
    _, _, jacobian = task.linearised(path.positions[-1], path.share)
    lost = np.linalg.svd(task.tool.scaled(jacobian))[0][:, min(jacobian.shape) - 1]
    return (f'After {_percent(path)} the arm reaches the edge of its workspace or a singular '
            f'posture, in which it can hardly {_motion(lost)}; level the tool elsewhere, or from '
            'another posture.')


def _freedom(task: LevelingTask, path: JointPath) -> str:
    robot = task.tool.robot
    error, jacobian, _ = task.linearised(path.positions[-1], min(1.0, path.share + 1e-3))
    scaled, error = task.tool.scaled(jacobian), task.tool.scaled(error)
    left = error - scaled @ np.linalg.lstsq(scaled, error, rcond=None)[0]
    if task.free_heading:
        left = np.concatenate((left[:3], task.across.T @ left[3:]))
        remedy = 'tilt the tool about another axis, or use an arm with more joints.'
    else:
        remedy = "set heading to 'free' to allow rotation about the vertical."
    return (f'With {robot.n} joints the arm lacks a degree of freedom for leveling here: with the '
            f'tool point held it cannot {_motion(left)}; {remedy}')


def _motion(direction: Array) -> str:
    """Return a tool velocity (linear, angular) in words."""
    point, turn = direction[:3], direction[3:]
    if np.linalg.norm(point) > np.linalg.norm(turn):
        return f'move the tool point along {_axis(point)}'
    return f'turn the tool about {_axis(turn)}'


def _axis(vector: Array) -> str:
    unit = vector / max(float(np.linalg.norm(vector)), 1e-12)
    column = int(np.argmax(np.abs(unit)))
    if abs(unit[column]) > _ALIGNED:
        return f"the root frame's {'xyz'[column]} axis"
    x, y, z = unit * np.sign(unit[column])
    return f"the root frame's direction ({x:.2f}, {y:.2f}, {z:.2f})"
