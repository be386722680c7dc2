# SPDX-License-Identifier: Apache-2.0
"""A redundant arm's other ways: all postures that can be reached at each share of the way.

A redundant arm can meet the task at one share of the way with a whole curve of postures (or
more). A front of them, a small distance apart, is carried from share to share; from every one
the null space is explored sideways. Each move is short and checked, so a way through the front
is a way of the arm, and a front that dies out shows that there is none, up to its spacing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from robocal_ros.core.arrays import Array
from robocal_ros.core.leveling.following import Gate, Obstacle, Way, WayRules
from robocal_ros.core.leveling.inverse_kinematics import Reached, converge
from robocal_ros.core.leveling.task import LevelingTask

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
