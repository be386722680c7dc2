# SPDX-License-Identifier: Apache-2.0
"""A way with corners made even, and any way made dense enough for a controller."""

from __future__ import annotations

import numpy as np

from robocal_ros.core.arrays import Array
from robocal_ros.core.leveling.following import Gate, Way, WayRules
from robocal_ros.core.leveling.inverse_kinematics import Reached, converge
from robocal_ros.core.leveling.task import LevelingTask

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
