# SPDX-License-Identifier: Apache-2.0
"""From a posture to a checked motion that makes the tool level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from robocal_ros.core.arrays import Array
from robocal_ros.core.collision import CollisionChecker
from robocal_ros.core.leveling.following import Obstacle, Way, WayRules, follow
from robocal_ros.core.leveling.front import search
from robocal_ros.core.leveling.inverse_kinematics import Bounds
from robocal_ros.core.leveling.refusal import LevelingRefusal, Refusal, explain
from robocal_ros.core.leveling.smoothing import refined, smoothed
from robocal_ros.core.leveling.target import LevelTarget, level_targets, tilt
from robocal_ros.core.leveling.task import LevelingTask
from robocal_ros.core.leveling.timing import timed
from robocal_ros.core.leveling.tool import Tool
from robocal_ros.core.motion import MotionLimits, Trajectory
from robocal_ros.errors import MotionError

# A joint may stand this much past its limit, by the noise of its encoder [rad].
_START_NOISE = 1e-3
# Straight joint lines between the points may use this part of the allowed drift; tracking by
# the drives needs the rest.
_SHARE_OF_DRIFT = 0.4
# How near to a limit the null space begins to pull away [rad].
_ZONE = 0.2


@dataclass(frozen=True)
class LevelingSettings:
    """How leveling is planned.

    Attributes:
        heading: One of ``target.HEADINGS``.
        direction: One of ``target.DIRECTIONS``.
        tolerance: Tilt that counts as level [rad].
        max_drift: Largest drift of the tool point on the way [m].
        max_step: Largest turn of the tool and step of a joint between two points [rad].
        singularity_margin: Smallest singular value that is allowed; see ``Tool``.
        limit_margin: Distance that redundant arms keep from their position limits [rad].
        search_time: Longest search for other ways of a redundant arm [s].

    """

    heading: str = 'nearest'
    direction: str = 'nearest'
    tolerance: float = 8.7e-4
    max_drift: float = 5e-4
    max_step: float = 0.087
    singularity_margin: float = 0.01
    limit_margin: float = 0.002
    search_time: float = 3.0


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
        self, tool: Tool, axis: Array, limits: MotionLimits, settings: LevelingSettings,
        checker: CollisionChecker | None = None,
    ) -> None:
        """Prepare.

        Args:
            tool: Forward kinematics of the tool.
            axis: The reference's z axis in the root frame, shape (3,).
            limits: What the motion may not exceed.
            settings: How it is planned.
            checker: Collision geometry; None for no check.

        """
        self.tool = tool
        self.axis = axis
        self.limits = limits
        self.settings = settings
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
        settings = self.settings
        rotation = self.tool.pose(start)[0]
        before = tilt(rotation, self.axis, settings.direction)
        if before <= settings.tolerance:
            return LevelPlan(before)
        targets = level_targets(rotation, self.axis, heading=settings.heading,
                                direction=settings.direction)
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
                            free_heading=self.settings.heading == 'free')
        rules = self._rules(start, redundant=task.redundancy > 0)
        complaint, share = '', 0.0
        for way in self._ways(task, rules):
            if way.obstacle is not None:
                return explain(task, rules, way)
            trajectory = timed(way.positions, self.limits.velocity, self.limits.acceleration)
            complaint, share = self._complaint(task, trajectory), way.share
            if not complaint:
                return LevelPlan(before, task, way, trajectory, target.note)
        return Refusal(Obstacle.LIMIT, share, complaint)

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
        found = search(task, rules, self.settings.search_time)
        if found.obstacle is not None:
            furthest = max(found, direct, key=lambda way: way.share)
            yield replace(furthest, cut_short=found.cut_short)
            return
        for even in (smoothed(task, rules, found), refined(task, rules, found)):
            if even is not None:
                yield even

    def _complaint(self, task: LevelingTask, trajectory: Trajectory) -> str:
        """Return what is wrong with a motion between its points too, or an empty string."""
        try:
            self.limits.check(trajectory)
        except MotionError as refusal:
            return str(refusal)
        positions = trajectory.sample(trajectory.dense())[0]
        middles = 0.5 * (trajectory.position[1:] + trajectory.position[:-1])
        drift = max(float(np.linalg.norm(self.tool.poses(part)[1] - task.point, axis=1).max())
                    for part in (positions, middles))
        if drift > self.settings.max_drift:
            return (f'The tool point would drift {1e3 * drift:.2f} mm; max_drift is '
                    f'{1e3 * self.settings.max_drift:.2f} mm.')
        contact = None if self.checker is None else self.checker.first_contact(positions)
        return f'On the way {contact}.' if contact else ''

    def _rules(self, start: Array, *, redundant: bool) -> WayRules:
        settings = self.settings
        half = 0.5 * (self.limits.upper - self.limits.lower)
        margin = np.minimum(settings.limit_margin if redundant else 0.0, half)
        bounds = Bounds(np.minimum(self.limits.lower + margin, start),
                        np.maximum(self.limits.upper - margin, start))
        return WayRules(bounds, settings.max_step, _SHARE_OF_DRIFT * settings.max_drift,
                        settings.singularity_margin, self.checker)


def _away_from_limits(rules: WayRules, q: Array) -> Array:
    """Return the joint step that leads away from limits that are near, shape (n,) [rad]."""
    into_lower = np.clip(1.0 - (q - rules.bounds.lower) / _ZONE, 0.0, 1.0)
    into_upper = np.clip(1.0 - (rules.bounds.upper - q) / _ZONE, 0.0, 1.0)
    return 0.5 * rules.max_step * (into_lower - into_upper)
