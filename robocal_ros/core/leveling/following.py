# SPDX-License-Identifier: Apache-2.0
"""Along the whole way, in steps as long as accuracy, limits and singularities allow."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from robocal_ros.core.arrays import Array
from robocal_ros.core.collision import CollisionChecker
from robocal_ros.core.leveling.inverse_kinematics import Bias, Bounds, Reached, converge
from robocal_ros.core.leveling.task import LevelingTask

_SHORTEST = 1e-5
_GROWTH = 1.6
# A short step towards a singularity is never longer than this part of the distance to it.
_CAUTION = 0.5


class Obstacle(Enum):
    """What can end a way before its end."""

    LIMIT = 'position limit'
    COLLISION = 'collision'
    SINGULARITY = 'singularity'
    FREEDOM = 'missing freedom'


@dataclass(frozen=True)
class WayRules:
    """What a way has to keep.

    Attributes:
        bounds: Where joints may be.
        max_step: Largest joint step, and turn, from one point to the next [rad].
        max_drift: Largest drift of the tool point on straight joint lines between points [m].
        singularity_margin: Smallest allowed singular value; see ``Tool``.
        checker: Collision geometry; None for no check.

    """

    bounds: Bounds
    max_step: float
    max_drift: float
    singularity_margin: float
    checker: CollisionChecker | None = None


@dataclass(frozen=True)
class Way:
    """How far a way was followed, and what ended it.

    Attributes:
        shares: Shares of the way, ascending from 0, shape (k,).
        positions: Postures, shape (k, n) [rad].
        obstacle: What ended it before its end; None if it is complete.
        touching: The two bodies that would touch; empty for none.
        cut_short: Whether the search for it ran out of time.

    """

    shares: Array
    positions: Array
    obstacle: Obstacle | None = None
    touching: tuple[str, ...] = ()
    cut_short: bool = False

    @property
    def share(self) -> float:
        """Share of the way that was reached."""
        return float(self.shares[-1])

    @property
    def travel(self) -> float:
        """Travel of all joints together [rad]."""
        return float(np.abs(np.diff(self.positions, axis=0)).sum())


class Gate:
    """Lets pass what a way may pass through; leaving a singular start is allowed."""

    def __init__(self, rules: WayRules, start: Reached) -> None:
        """Begin at a start.

        Args:
            rules: What has to be kept.
            start: The posture from which the way leads.

        """
        self._rules = rules
        self._threshold = min(rules.singularity_margin, start.singular)

    def passed(self, found: Reached) -> None:
        """Demand from now on what was met here, up to the full margin."""
        self._threshold = min(
            self._rules.singularity_margin, max(self._threshold, found.singular))

    def singular(self, found: Reached) -> bool:
        """Tell whether a posture is too near a singularity."""
        return found.singular < self._threshold * (1.0 - 1e-6)

    def touching(self, q: Array) -> tuple[str, ...]:
        """Return the bodies that touch in a posture, or nothing."""
        checker = self._rules.checker
        return () if checker is None else (checker.touching(q) or ())


def follow(
    task: LevelingTask, rules: WayRules, *, bias: Bias | None = None, bounded: bool = True
) -> Way:
    """Follow the way from its start as far as it leads.

    Args:
        task: What to do.
        rules: What to keep.
        bias: Pull of the null space of a redundant arm, for a step of full length.
        bounded: Whether a redundant arm keeps its limits on the way; without, they are only
            looked at, as they are for other arms.

    Returns:
        The way, complete or with what ended it.

    """
    return _Follower(task, rules, bias, bounded).run()


class _Follower:
    def __init__(
        self, task: LevelingTask, rules: WayRules, bias: Bias | None, bounded: bool
    ) -> None:
        self._task = task
        self._rules = rules
        self._bias = bias
        self._bounds = rules.bounds if bounded else None
        jacobian = task.linearised(task.start, 0.0)[2]
        self._now = Reached(task.start, task.tool.least_singular_value(jacobian))
        self._gate = Gate(rules, self._now)
        self._shares = [0.0]
        self._positions = [task.start]
        self._step = min(1.0, rules.max_step / max(task.angle, 1e-9))

    def run(self) -> Way:
        while self._shares[-1] < 1.0:
            found = self._next()
            if found is None:
                return self._ended(self._reason())
            share, reached = found
            if self._rules.bounds.excess(reached.q).any():
                return self._ended(Obstacle.LIMIT)
            if self._gate.singular(reached):
                return self._ended(Obstacle.SINGULARITY)
            touching = self._gate.touching(reached.q)
            if touching:
                return self._ended(Obstacle.COLLISION, touching)
            self._accept(share, reached)
        return self._ended(None)

    def _next(self) -> tuple[float, Reached] | None:
        """Return the next point, its step shortened until it is good enough; None if none is."""
        share, longest = self._shares[-1], min(1.0, self._rules.max_step / self._task.angle)
        while self._step > _SHORTEST:
            goal = min(1.0, share + self._step)
            reached = converge(self._task, self._now.q, goal, bias=self._scaled_bias(),
                               bounds=self._bounds)
            shrink = 0.4 if reached is None else self._shrink(reached)
            if reached is not None and shrink >= 1.0:
                self._step = min(longest, self._step * min(_GROWTH, shrink))
                return goal, reached
            self._step *= shrink
        return None

    def _scaled_bias(self) -> Bias | None:
        bias = self._bias
        if bias is None:
            return None
        part = self._step * self._task.angle / self._rules.max_step
        return lambda q: part * bias(q)

    def _shrink(self, reached: Reached) -> float:
        """Return by what a step has to be shortened; above 1 it may be lengthened."""
        rules = self._rules
        length = float(np.abs(reached.q - self._now.q).max())
        near = min(reached.singular, self._now.singular)
        allowed = min(rules.max_step, max(_CAUTION * near, _CAUTION * rules.singularity_margin))
        by_length = 0.95 * allowed / max(length, 1e-12)
        drift = self._task.drift(0.5 * (reached.q + self._now.q))
        # The sag of a chord grows with the square of its length.
        by_drift = 0.95 * float(np.sqrt(rules.max_drift / max(drift, 1e-15)))
        shrink = min(by_length, by_drift)
        return shrink if length <= allowed and drift <= rules.max_drift else max(shrink, 0.2)

    def _accept(self, share: float, reached: Reached) -> None:
        self._now = reached
        self._gate.passed(reached)
        self._shares.append(share)
        self._positions.append(reached.q)

    def _reason(self) -> Obstacle:
        if self._task.redundancy < 0:
            return Obstacle.FREEDOM
        if self._task.redundancy > 0 and self._bounds is not None:
            blocked = self._rules.bounds
            near = np.minimum(self._now.q - blocked.lower, blocked.upper - self._now.q)
            if near.min() < self._rules.max_step:
                return Obstacle.LIMIT
        return Obstacle.SINGULARITY

    def _ended(self, obstacle: Obstacle | None, touching: tuple[str, ...] = ()) -> Way:
        return Way(np.array(self._shares), np.array(self._positions), obstacle, touching)
