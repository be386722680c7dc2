# SPDX-License-Identifier: Apache-2.0
"""Greedy D-optimal selection of measurements, groups of like ones, and short tours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

from robocal_ros.arrays import Array

T = TypeVar('T')


def d_optimal(blocks: Array, count: int, prior: float = 1e-6) -> list[int]:
    """Choose measurements that maximise the determinant of their information matrix.

    Greedy growth (Fedorov, Theory of Optimal Experiments, 1972; matrix determinant lemma),
    then exchanges of single measurements until none helps.

    Args:
        blocks: Regressor rows of each candidate, weighted to unit noise, columns scaled to
            about one, shape (candidates, rows, parameters).
        count: Number of measurements, limited to the number of candidates.
        prior: Initial information on each parameter, which keeps the matrix invertible.

    Returns:
        Indices of the chosen candidates.

    """
    count = min(count, len(blocks))
    chosen: list[int] = []
    information = prior * np.eye(blocks.shape[2])
    for _ in range(count):
        gains = _gains(blocks, information)
        gains[chosen] = -np.inf
        best = int(np.argmax(gains))
        chosen.append(best)
        information = information + blocks[best].T @ blocks[best]
    for _ in range(3 * count):
        improved = False
        for place, index in enumerate(chosen):
            without = information - blocks[index].T @ blocks[index]
            gains = _gains(blocks, without)
            current = gains[index]
            gains[chosen] = -np.inf
            best = int(np.argmax(gains))
            if gains[best] > current + 1e-6:
                chosen[place] = best
                information = without + blocks[best].T @ blocks[best]
                improved = True
        if not improved:
            break
    return chosen


def _gains(blocks: Array, information: Array) -> Array:
    """Return log det(I + B M⁻¹ Bᵀ) of every candidate, shape (candidates,)."""
    # All rows are one right-hand side: a stack of them would factorise the matrix for each.
    solved = np.linalg.solve(information, blocks.reshape(-1, blocks.shape[2]).T)
    solved = solved.T.reshape(blocks.shape).transpose(0, 2, 1)
    _, logarithm = np.linalg.slogdet(np.eye(blocks.shape[1]) + blocks @ solved)
    return np.asarray(logarithm)


def grouped(items: Iterable[T], alike: Callable[[T, T], bool]) -> list[list[T]]:
    """Group items with the first group whose first item is alike, in their order."""
    groups: list[list[T]] = []
    for item in items:
        group = next((group for group in groups if alike(group[0], item)), None)
        if group is None:
            groups.append(group := [])
        group.append(item)
    return groups


def short_tour(postures: Array, start: Array) -> list[int]:
    """Order postures by nearest neighbour.

    Args:
        postures: Shape (k, n) [rad].
        start: Posture of the arm, shape (n,) [rad].

    """
    left, order, here = list(range(len(postures))), [], start
    while left:
        nearest = min(left, key=lambda i: float(np.abs(postures[i] - here).max()))
        left.remove(nearest)
        order.append(nearest)
        here = postures[nearest]
    return order
