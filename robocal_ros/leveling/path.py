# SPDX-License-Identifier: Apache-2.0
"""Along the whole way, in steps as long as accuracy, limits and singularities allow.

A redundant arm's other ways: all postures that can be reached at each share of the way.

A redundant arm can meet the task at one share of the way with a whole curve of postures (or
more). A front of them, a small distance apart, is carried from share to share; from every one
the null space is explored sideways. Each move is short and checked, so a way through the front
is a way of the arm, and a front that dies out shows that there is none, up to its spacing.

A way with corners made even, and any way made dense enough for a controller.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.leveling.inverse_kinematics import Bias, Bounds, Reached, converge
from robocal_ros.leveling.model import LevelingTask
from robocal_ros.robot.collision import CollisionChecker

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


_SPACING = 0.12
_NEAR = 0.6
_LAYER = 0.1
_HALVINGS = 3
_LONGEST = 3.0


@dataclass
class _State:
    """A posture of the front, how it was reached, and at what travel."""

    share: float
    q: Array
    parent: int
    cost: float


def search(task: LevelingTask, rules: WayRules, patience: float) -> Way:
    """Look for a way through the null space.

    Args:
        task: What to do.
        rules: What to keep.
        patience: Longest search [s].

    Returns:
        A complete way with corners, or how far any posture gets.

    """
    return _Front(task, rules, time.monotonic() + patience).run()


class _Front:
    def __init__(self, task: LevelingTask, rules: WayRules, deadline: float) -> None:
        self._task = task
        self._rules = rules
        self._deadline = deadline
        jacobian = task.linearised(task.start, 0.0)[2]
        start = Reached(task.start, task.tool.least_singular_value(jacobian))
        self._gate = Gate(rules, start)
        self._states = [_State(0.0, task.start, -1, 0.0)]
        self._blocked = Obstacle.LIMIT
        self._touching: tuple[str, ...] = ()

    def run(self) -> Way:
        layers = max(2, int(np.ceil(self._task.angle / _LAYER)))
        front = self._spread([0], 0.0)
        deepest = front[0]
        for share in np.arange(1, layers + 1) / layers:
            front = self._spread(self._advance(front, float(share)), float(share))
            if not front:
                return self._way(deepest, self._blocked)
            deepest = min(front, key=lambda index: self._states[index].cost)
        return self._way(deepest, None)

    def _way(self, last: int, obstacle: Obstacle | None) -> Way:
        chain = []
        while last >= 0:
            chain.append(self._states[last])
            last = self._states[last].parent
        chain.reverse()
        return Way(np.array([state.share for state in chain]),
                   np.array([state.q for state in chain]), obstacle, touching=self._touching,
                   cut_short=time.monotonic() > self._deadline)

    def _advance(self, front: list[int], share: float) -> list[int]:
        """Carry every posture of the front on to the next share."""
        carried: list[int] = []
        for index in sorted(front, key=lambda item: self._states[item].cost):
            if time.monotonic() > self._deadline:
                break
            found = self._carried(self._states[index], share)
            if found is not None and not self._known(found.q, carried):
                carried.append(self._add(found, share, index))
        return carried

    def _carried(self, state: _State, share: float) -> Reached | None:
        """Follow one posture from its share to another, in smaller steps where needed."""
        for halving in range(_HALVINGS):
            shares = np.linspace(state.share, share, 2**halving + 1)[1:]
            found: Reached | None = Reached(state.q, 1.0)
            for part in shares:
                if found is not None:
                    found = self._moved(found.q, found.q, float(part))
            if found is not None:
                return found
        return None

    def _moved(self, start: Array, guess: Array, share: float) -> Reached | None:
        """Return the checked posture at a share near a guess; None if it may not be entered."""
        found = converge(self._task, guess, share, bounds=self._rules.bounds)
        if found is None:
            self._blocked = Obstacle.LIMIT
            return None
        if np.abs(found.q - start).max() > _LONGEST * _SPACING:
            return None
        if self._gate.singular(found):
            self._blocked = Obstacle.SINGULARITY
            return None
        touching = self._gate.touching(found.q)
        if touching:
            self._blocked, self._touching = Obstacle.COLLISION, touching
            return None
        return found

    def _spread(self, layer: list[int], share: float) -> list[int]:
        """Explore the null space sideways from all postures of a share."""
        waiting = list(layer)
        while waiting and time.monotonic() < self._deadline:
            index = waiting.pop(0)
            q = self._states[index].q
            jacobian = self._task.linearised(q, share)[1]
            for direction in _null_space(jacobian):
                for sign in (1.0, -1.0):
                    room = np.clip(q + sign * _SPACING * direction, self._rules.bounds.lower,
                                   self._rules.bounds.upper)
                    if self._known(room, layer):
                        continue
                    found = self._moved(q, room, share)
                    if found is not None and not self._known(found.q, layer):
                        layer.append(self._add(found, share, index))
                        waiting.append(layer[-1])
        return layer

    def _known(self, q: Array, layer: list[int]) -> bool:
        if not layer:
            return False
        others = np.array([self._states[index].q for index in layer])
        return bool(np.abs(others - q).max(axis=1).min() < _NEAR * _SPACING)

    def _add(self, found: Reached, share: float, parent: int) -> int:
        before = self._states[parent]
        travel = float(np.abs(found.q - before.q).sum())
        self._states.append(_State(share, found.q, parent, before.cost + travel))
        return len(self._states) - 1


def _null_space(jacobian: Array) -> Array:
    """Return directions that leave the task alone, largest joint step 1, shape (k, n)."""
    rows, n = jacobian.shape
    vectors = np.linalg.svd(jacobian)[2][min(rows, n):]
    return vectors / np.abs(vectors).max(axis=1, keepdims=True)


_SWEEPS = 30
_DEEPEST = 8


def smoothed(task: LevelingTask, rules: WayRules, way: Way) -> Way | None:
    """Return a way without the corners that a search leaves; None if it cannot be refined.

    Every point moves to the middle of its neighbours, back onto the task, as often as that is
    allowed; start and end stay.

    Args:
        task: What the way does.
        rules: What it keeps.
        way: A complete way of a redundant arm.

    """
    even = _Refiner(task, rules, np.inf).refined(way)
    if even is None:
        return None
    gate = _gate(task, rules)
    shares, positions = even.shares.copy(), even.positions.copy()
    for _ in range(_SWEEPS):
        for row in range(1, len(shares) - 1):
            share = 0.5 * (shares[row - 1] + shares[row + 1])
            middle = 0.5 * (positions[row - 1] + positions[row + 1])
            found = converge(task, middle, share, bounds=rules.bounds)
            if found is None or gate.singular(found) or gate.touching(found.q):
                continue
            shares[row], positions[row] = share, found.q
    return refined(task, rules, Way(shares, positions))


def refined(task: LevelingTask, rules: WayRules, way: Way) -> Way | None:
    """Return a way with points between its points; None if some cannot be put there."""
    return _Refiner(task, rules, rules.max_drift).refined(way)


def _gate(task: LevelingTask, rules: WayRules) -> Gate:
    jacobian = task.linearised(task.start, 0.0)[2]
    return Gate(rules, Reached(task.start, task.tool.least_singular_value(jacobian)))


class _Refiner:
    """Puts points between points until steps and drift are small enough."""

    def __init__(self, task: LevelingTask, rules: WayRules, max_drift: float) -> None:
        self._task = task
        self._rules = rules
        self._max_drift = max_drift
        self._gate = _gate(task, rules)

    def refined(self, way: Way) -> Way | None:
        points = list(zip(way.shares.tolist(), way.positions, strict=True))
        found = [points[0]]
        for point in points[1:]:
            if not self._connect(found, point, 0):
                return None
        return Way(np.array([share for share, _ in found]), np.array([q for _, q in found]))

    def _connect(
        self, found: list[tuple[float, Array]], point: tuple[float, Array], depth: int
    ) -> bool:
        share, q = found[-1]
        if self._short(q, point[1]):
            found.append(point)
            return True
        middle = 0.5 * (share + point[0])
        between = converge(self._task, 0.5 * (q + point[1]), middle, bounds=self._rules.bounds)
        if (between is None or depth > _DEEPEST or self._gate.singular(between)
                or self._gate.touching(between.q)):
            return False
        return (self._connect(found, (middle, between.q), depth + 1)
                and self._connect(found, point, depth + 1))

    def _short(self, first: Array, second: Array) -> bool:
        return bool(np.abs(second - first).max() <= self._rules.max_step
                    and self._task.drift(0.5 * (first + second)) <= self._max_drift)
