# SPDX-License-Identifier: Apache-2.0
"""A path of postures made a motion: as fast as speed and acceleration limits allow, smoothly.

Postures are joined by a cubic spline over the joint travel, measured in seconds at full speed.
Along it runs one quintic from rest to rest, so that speed and acceleration are continuous and
both end at zero. (Time-optimal parameterisation, such as TOPP-RA's, would be faster, but its
acceleration jumps from limit to limit, which spills what a level tool is to carry.)


From a posture to a checked motion that makes the tool level.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy

from robocal_ros.arrays import Array
from robocal_ros.errors import MotionError
from robocal_ros.leveling.inverse_kinematics import Bounds
from robocal_ros.leveling.model import LevelingTask, LevelTarget, Tool, level_targets, tilt
from robocal_ros.leveling.parameters import LevelingParameters
from robocal_ros.leveling.path import Obstacle, Way, WayRules, follow, refined, search, smoothed
from robocal_ros.leveling.refusal import LevelingRefusal, Refusal, explain
from robocal_ros.robot.collision import CollisionChecker
from robocal_ros.robot.motion import MotionLimits, Trajectory

_SAMPLES = 1000
# What interpolation between knots may add.
_RESERVE = 1.02
_MIN_DURATION = 0.2
# Knots closer than this say nothing new to a controller [s].
_SHORTEST_KNOT = 0.002


def timed(positions: Array, max_velocity: Array, max_acceleration: Array) -> Trajectory:
    """Return the motion along postures that reaches a limit somewhere, and passes none.

    Args:
        positions: Different postures in their order, shape (k, n) [rad].
        max_velocity: Speed that no joint exceeds, shape (n,) [rad/s].
        max_acceleration: Acceleration that no joint exceeds, shape (n,) [rad/s²].

    """
    steps = np.linalg.norm(np.diff(positions, axis=0) / max_velocity, axis=1)
    travel = np.concatenate(([0.0], np.cumsum(steps)))
    spline = scipy.interpolate.CubicSpline(travel / travel[-1], positions)
    duration = _duration(spline, max_velocity, max_acceleration)
    time = _knot_times(spline.x)
    # A knot of the path is one of the motion, but for those that would come too close.
    keep = _spaced(time * duration, _SHORTEST_KNOT)
    position, velocity, acceleration = _along(spline, time[keep])
    velocity[[0, -1]] = acceleration[[0, -1]] = 0.0
    position[0], position[-1] = positions[0], positions[-1]
    return Trajectory(time[keep] * duration, position, velocity / duration,
                      acceleration / duration**2)


def _along(spline: scipy.interpolate.CubicSpline, time: Array) -> tuple[Array, Array, Array]:
    """Return position and its derivatives by relative time, the quintic run along a spline."""
    x = time[:, None]
    way = (10.0 * x**3 - 15.0 * x**4 + 6.0 * x**5)[:, 0]
    speed = 30.0 * x**2 - 60.0 * x**3 + 30.0 * x**4
    change = 60.0 * x - 180.0 * x**2 + 120.0 * x**3
    slope, bend = spline(way, 1), spline(way, 2)
    return spline(way), slope * speed, bend * speed**2 + slope * change


def _duration(
    spline: scipy.interpolate.CubicSpline, max_velocity: Array, max_acceleration: Array
) -> float:
    """Return the shortest duration: speed falls with it, acceleration with its square."""
    _, velocity, acceleration = _along(spline, np.linspace(0.0, 1.0, _SAMPLES))
    by_velocity = float((np.abs(velocity) / max_velocity).max())
    by_acceleration = float(np.sqrt((np.abs(acceleration) / max_acceleration).max()))
    return max(_RESERVE * by_velocity, _RESERVE * by_acceleration, _MIN_DURATION)


def _knot_times(way: Array) -> Array:
    """Return the relative times at which the quintic has gone given parts of its way."""
    fine = np.linspace(0.0, 1.0, 20 * _SAMPLES)
    gone = 10.0 * fine**3 - 15.0 * fine**4 + 6.0 * fine**5
    time = np.interp(way, gone, fine)
    time[0], time[-1] = 0.0, 1.0
    return time


def _spaced(time: Array, shortest: float) -> list[int]:
    """Return the rows to keep so that times are not too close, the first and last included."""
    keep = [0]
    for row in range(1, len(time) - 1):
        if time[row] - time[keep[-1]] >= shortest and time[-1] - time[row] >= shortest:
            keep.append(row)
    return [*keep, len(time) - 1]


# A joint may stand this much past its limit, by the noise of its encoder [rad].
_START_NOISE = 1e-3
# Straight joint lines between the points may use this part of the allowed drift; tracking by
# the drives needs the rest.
_SHARE_OF_DRIFT = 0.4
# How near to a limit the null space begins to pull away [rad].
_ZONE = 0.2


@dataclass(frozen=True)
class LevelPlan:
    """A way to become level, or the finding that the tool is level.

    Attributes:
        tilt: Tilt of the tool at the start [rad].
        task: What the motion does; None if the tool is level already.
        way: The postures; None if the tool is level already.
        trajectory: The motion; None if the tool is level already.
        note: What the user should know; empty for nothing.

    """

    tilt: float
    task: LevelingTask | None = None
    way: Way | None = None
    trajectory: Trajectory | None = None
    note: str = ''


class LevelingPlanner:
    """Plans leveling motions of one arm."""

    def __init__(
        self, tool: Tool, axis: Array, limits: MotionLimits, values: LevelingParameters,
        checker: CollisionChecker | None = None,
    ) -> None:
        """Prepare.

        Args:
            tool: Forward kinematics of the tool.
            axis: The reference's z axis in the root frame, shape (3,).
            limits: What the motion may not exceed.
            values: The parameters.
            checker: Collision geometry; None for no check.

        """
        self.tool = tool
        self.axis = axis
        self.limits = limits
        self.values = values
        self.checker = checker

    def plan(self, start: Array) -> LevelPlan:
        """Plan the motion from a posture.

        Where several targets are equally near, the one with the least joint travel is taken.

        Args:
            start: Current posture, shape (n,) [rad].

        Raises:
            LevelingRefusal: If there is no way; with the reason.
            MotionError: If the arm stands outside its limits, or touches something.

        """
        start = self._checked_start(start)
        values = self.values
        rotation = self.tool.pose(start)[0]
        before = tilt(rotation, self.axis, values.direction)
        if before <= values.tolerance:
            return LevelPlan(before)
        targets = level_targets(rotation, self.axis, heading=values.heading,
                                direction=values.direction)
        plans, refusals = [], []
        for target in targets:
            found = self._planned(before, start, target)
            if isinstance(found, Refusal):
                refusals.append(found)
            else:
                plans.append(found)
        if not plans:
            raise LevelingRefusal(max(refusals, key=lambda refusal: refusal.share))
        return min(plans, key=lambda plan: plan.way.travel if plan.way else 0.0)

    def _checked_start(self, start: Array) -> Array:
        """Return the start, moved onto a limit that it passes by noise."""
        inside = np.clip(start, self.limits.lower, self.limits.upper)
        excess = np.abs(start - inside)
        joint = int(np.argmax(excess))
        if excess[joint] > _START_NOISE:
            raise MotionError(
                f"Joint '{self.limits.joint_names[joint]}' stands at {start[joint]:.4f} rad, "
                f'{excess[joint]:.4f} rad past its limit of {inside[joint]:.4f} rad. The arm was '
                'not moved; jog the joint back.')
        pair = self.checker.touching(inside) if self.checker is not None else None
        if pair:
            raise MotionError(
                f"Where the arm stands '{pair[0]}' touches '{pair[1]}'. The arm was not moved; "
                'move it clear by hand, or correct the collision geometry.')
        return inside

    def _planned(self, before: float, start: Array, target: LevelTarget) -> LevelPlan | Refusal:
        task = LevelingTask(self.tool, start, target, self.axis,
                            free_heading=self.values.heading == 'free')
        rules = self._rules(start, redundant=task.redundancy > 0)
        problem, share = '', 0.0
        for way in self._ways(task, rules):
            if way.obstacle is not None:
                return explain(task, rules, way)
            trajectory = timed(way.positions, self.limits.velocity, self.limits.acceleration)
            problem, share = self._problem(task, trajectory), way.share
            if not problem:
                return LevelPlan(before, task, way, trajectory, target.note)
        return Refusal(Obstacle.LIMIT, share, problem)

    def _ways(self, task: LevelingTask, rules: WayRules) -> Iterator[Way]:
        """Yield complete ways, the best first; or, last, how far the furthest one leads."""
        if task.redundancy <= 0:
            yield follow(task, rules)
            return
        direct = follow(task, rules, bias=partial(_away_from_limits, rules))
        if direct.obstacle is None:
            yield direct
            even = smoothed(task, rules, direct)
            if even is not None:
                yield even
        found = search(task, rules, self.values.search_time)
        if found.obstacle is not None:
            furthest = max(found, direct, key=lambda way: way.share)
            yield replace(furthest, cut_short=found.cut_short)
            return
        for even in (smoothed(task, rules, found), refined(task, rules, found)):
            if even is not None:
                yield even

    def _problem(self, task: LevelingTask, trajectory: Trajectory) -> str:
        """Return what is wrong with a motion between its points too, or an empty string."""
        try:
            self.limits.check(trajectory)
        except MotionError as refusal:
            return str(refusal)
        positions = trajectory.sample(trajectory.dense())[0]
        middles = 0.5 * (trajectory.position[1:] + trajectory.position[:-1])
        drift = max(float(np.linalg.norm(self.tool.poses(part)[1] - task.point, axis=1).max())
                    for part in (positions, middles))
        if drift > self.values.max_drift:
            return (f'The tool point would drift {1e3 * drift:.2f} mm; max_drift is '
                    f'{1e3 * self.values.max_drift:.2f} mm.')
        contact = None if self.checker is None else self.checker.first_contact(positions)
        return f'On the way {contact}.' if contact else ''

    def _rules(self, start: Array, *, redundant: bool) -> WayRules:
        values = self.values
        half = 0.5 * (self.limits.upper - self.limits.lower)
        margin = np.minimum(values.limit_margin if redundant else 0.0, half)
        bounds = Bounds(np.minimum(self.limits.lower + margin, start),
                        np.maximum(self.limits.upper - margin, start))
        return WayRules(bounds, values.max_step, _SHARE_OF_DRIFT * values.max_drift,
                        values.singularity_margin, self.checker)


def _away_from_limits(rules: WayRules, q: Array) -> Array:
    """Return the joint step that leads away from limits that are near, shape (n,) [rad]."""
    into_lower = np.clip(1.0 - (q - rules.bounds.lower) / _ZONE, 0.0, 1.0)
    into_upper = np.clip(1.0 - (rules.bounds.upper - q) / _ZONE, 0.0, 1.0)
    return 0.5 * rules.max_step * (into_lower - into_upper)
