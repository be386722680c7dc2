# SPDX-License-Identifier: Apache-2.0
"""Records of any length in bounded memory: what is too long is averaged pairwise until it fits.

Nothing is lost for models that are smooth over a few milliseconds, and a record comes out the
same whether it was handed over at once or in pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.messages.samples import JointSamples, WrenchSamples

BUDGET = 2**18
"""Most rows that an estimation works on."""

LONGEST = 0.035
"""Longest time over which samples are averaged [s]; beyond it the oldest are forgotten instead.

With the budget above that is more than two hours; and 28 Hz are enough for every method.
"""

# Stamps further apart than this are not averaged with each other [s].
_GAP = 0.1
# Pieces of a stretch that are thinned out for themselves: a power of two, so that pairs stay
# pairs whatever the pieces in which samples arrive.
_PIECE = 1024
_FIRST = 200


class Record:
    """Rows of one stream, stamp first, in bounded memory."""

    def __init__(self, columns: int, budget: int = BUDGET, longest: float = LONGEST) -> None:
        """Start empty.

        Args:
            columns: Number of columns, the stamp among them.
            budget: Most rows that are kept, except for what fits into one piece.
            longest: Longest time over which rows are averaged [s].

        """
        self._budget = budget
        self._longest = longest
        self._open = np.empty((0, columns))
        self._pieces: list[Array] = []
        self._level = 0
        self._kept = 0
        self._period = 0.0
        self._start: list[float] = []
        self.forgotten = 0

    def add(self, rows: Array) -> None:
        """Take in rows whose stamps increase; rows of shape (k, columns)."""
        if len(self._start) < _FIRST:
            self._start += rows[:_FIRST - len(self._start), 0].tolist()
        begin = 0
        for cut in _cuts(self._open, rows):
            self._extend(rows[begin:cut])
            self._close()
            begin = cut
        self._extend(rows[begin:])

    def clear(self) -> None:
        """Forget everything."""
        self._open = self._open[:0]
        self._pieces.clear()
        self._level = self._kept = self.forgotten = 0
        self._start.clear()

    def rows(self) -> Array:
        """Return the rows."""
        return np.concatenate((*self._pieces, _halved(self._open, self._level)))

    def release(self) -> Array:
        """Return the rows, and keep nothing of them; what was averaged and forgotten stays."""
        rows = self.rows()
        self._pieces.clear()
        self._open = self._open[:0].copy()
        return rows

    @property
    def averaged(self) -> int:
        """How many rows that came in make one that is kept."""
        return 2**self._level

    def _extend(self, rows: Array) -> None:
        self._open = np.concatenate((self._open, rows)) if len(self._open) else rows.copy()
        whole = len(self._open) // _PIECE * _PIECE
        for at in range(0, whole, _PIECE):
            self._keep(self._open[at:at + _PIECE])
        self._open = self._open[whole:].copy()

    def _close(self) -> None:
        """End a stretch: what comes next does not follow."""
        if len(self._open):
            self._keep(self._open)
            self._open = self._open[:0]

    def _keep(self, piece: Array) -> None:
        self._pieces.append(_halved(piece, self._level))
        self._kept += len(self._pieces[-1])
        while self._kept > self._budget and self._may_average():
            self._level += 1
            self._pieces = [_halved(item, 1) for item in self._pieces]
            self._kept = sum(len(item) for item in self._pieces)
        while self._kept > self._budget and len(self._pieces) > 1:
            dropped = self._pieces.pop(0)
            self._kept -= len(dropped)
            self.forgotten += len(dropped)

    def _may_average(self) -> bool:
        # A piece must stay a multiple of two rows long.
        usual = float(np.median(np.diff(self._start))) if len(self._start) > 1 else 0.0
        return 2**(self._level + 1) < _PIECE and usual * 2**(self._level + 1) <= self._longest


class Averages:
    """Rows of one stream, stamp first, averaged over given stretches; the others are left out.

    The rows of a stretch are held until it is over, so that the average is that of all of them
    at once, to the last bit.

    Attributes:
        averaged: As of ``Record``: rows are never averaged because they are too many.
        forgotten: As of ``Record``: none is.

    """

    averaged = 1
    forgotten = 0

    def __init__(self, columns: int, stretches: Sequence[tuple[float, float]]) -> None:
        """Start empty.

        Args:
            columns: Number of columns, the stamp among them.
            stretches: From the first to before the second stamp of each [s].

        """
        self._columns = columns
        self._stretches = sorted(stretches)
        self.clear()

    def add(self, rows: Array) -> None:
        """Take in rows whose stamps increase; rows of shape (k, columns)."""
        if not len(rows):
            return
        for number, (begin, end) in enumerate(self._stretches):
            first, last = np.searchsorted(rows[:, 0], (begin, end)).tolist()
            if first < last:
                self._open.setdefault(number, []).append(rows[first:last].copy())
        for number in [item for item in self._open if rows[-1, 0] >= self._stretches[item][1]]:
            self._means[number] = np.concatenate(self._open.pop(number)).mean(axis=0)

    def clear(self) -> None:
        """Forget everything."""
        self._open: dict[int, list[Array]] = {}
        self._means: dict[int, Array] = {}

    def release(self) -> Array:
        """Return one row for each stretch that had any, by time, and keep nothing of them."""
        means = {**self._means, **{number: np.concatenate(held).mean(axis=0)
                                   for number, held in self._open.items()}}
        self.clear()
        rows = np.array([means[number] for number in sorted(means)])
        return rows.reshape(-1, self._columns)


def _cuts(before: Array, rows: Array) -> list[int]:
    """Return the rows that begin a new stretch."""
    if not len(rows):
        return []
    steps = np.diff(rows[:, 0], prepend=before[-1, 0] if len(before) else rows[0, 0])
    return np.flatnonzero(steps > _GAP).tolist()


def _halved(rows: Array, times: int) -> Array:
    """Average neighbours pairwise, several times over; a last one without partner stays."""
    for _ in range(times):
        even = len(rows) // 2 * 2
        pairs = 0.5 * (rows[:even:2] + rows[1:even:2])
        rows = np.concatenate((pairs, rows[even:])) if even < len(rows) else pairs
    return rows


def within_budget(samples: JointSamples, budget: int = BUDGET) -> JointSamples:
    """Return joint samples in bounded memory: themselves unless they are too many."""
    if len(samples) <= budget:
        return samples
    n = len(samples.joint_names)
    record = Record(1 + 3 * n, budget)
    record.add(np.column_stack((samples.time, samples.position, samples.velocity,
                                samples.effort)))
    rows = record.rows()
    return replace(samples, time=rows[:, 0], position=rows[:, 1:1 + n],
                   velocity=rows[:, 1 + n:1 + 2 * n], effort=rows[:, 1 + 2 * n:])


def wrench_within_budget(samples: WrenchSamples, budget: int = BUDGET) -> WrenchSamples:
    """Return readings in bounded memory: themselves unless they are too many."""
    if len(samples) <= budget:
        return samples
    record = Record(7, budget)
    record.add(np.column_stack((samples.time, samples.wrench)))
    rows = record.rows()
    return replace(samples, time=rows[:, 0], wrench=rows[:, 1:])
