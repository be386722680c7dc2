# SPDX-License-Identifier: Apache-2.0
"""Records of any length in bounded memory: neighbours are averaged pairwise beyond a budget.

Models that are smooth over a few milliseconds are not affected. A record does not depend on
whether its rows are added at once or in parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.messages.samples import Samples

S = TypeVar('S', bound=Samples)

BUDGET = 2**18
"""Largest number of rows of an estimation."""

LONGEST = 0.035
"""Longest time over which samples are averaged [s]; longer records lose their oldest samples.

With ``BUDGET`` that is more than two hours at 28 Hz, which suffices for every method.
"""

# Longest gap over which neighbours are averaged [s].
_GAP = 0.1
# Pieces of a stretch that are thinned out for themselves: a power of two, so that pairs stay
# pairs whatever the pieces in which samples arrive.
_PIECE = 1024
_FIRST = 200


class BoundedBuffer:
    """Record of one stream in bounded memory; the first column is the stamp.

    Attributes:
        forgotten: Number of oldest rows discarded to stay within the budget.

    """

    def __init__(self, columns: int, budget: int = BUDGET, longest: float = LONGEST) -> None:
        """Start empty.

        Args:
            columns: Number of columns with the stamp.
            budget: Largest number of rows kept, plus one piece.
            longest: Longest time over which rows are averaged [s]; 0 to discard the oldest rows
                without averaging.

        """
        self._budget = budget
        self._longest = longest
        self._open = np.empty((_PIECE, columns))
        self._filled = 0
        self._pieces: list[Array] = []
        self._level = 0
        self._kept = 0
        self._start: list[float] = []
        self.forgotten = 0

    def add(self, rows: Array) -> None:
        """Add rows with increasing stamps, shape (k, columns)."""
        if len(self._start) < _FIRST:
            self._start += rows[:_FIRST - len(self._start), 0].tolist()
        begin = 0
        for cut in self._cuts(rows):
            self._extend(rows[begin:cut])
            self._close()
            begin = cut
        self._extend(rows[begin:])

    def add_one(self, time: float, values: Sequence[float] | Array) -> None:
        """Add one row, equal to ``add`` at a tenth of its time: a newer stamp, and values."""
        if len(self._start) < _FIRST:
            self._start.append(time)
        if self._filled and time - self._open[self._filled - 1, 0] > _GAP:
            self._close()
        row = self._open[self._filled]
        row[0], row[1:] = time, values
        self._filled += 1
        if self._filled == _PIECE:
            self._close()

    @property
    def newest(self) -> float:
        """Newest stamp, -inf without rows [s]."""
        if self._filled:
            return float(self._open[self._filled - 1, 0])
        return float(self._pieces[-1][-1, 0]) if self._pieces else -np.inf

    def __len__(self) -> int:
        """Return the number of rows kept."""
        return self._kept - (-self._filled >> self._level)

    def clear(self) -> None:
        """Discard all rows."""
        self._pieces.clear()
        self._filled = self._level = self._kept = self.forgotten = 0
        self._start.clear()

    def forget_after(self, time: float) -> None:
        """Discard rows with stamps after a time [s]; averaged rows stay averaged."""
        cut = [piece[:np.searchsorted(piece[:, 0], time, 'right')]
               for piece in (*self._pieces, self._open[:self._filled])]
        self._filled = len(cut.pop())
        self._pieces = [piece for piece in cut if len(piece)]
        self._kept = sum(map(len, self._pieces))
        if not self._filled and not self._pieces:
            self.clear()

    def restore(self, rows: Array, averaged: int, forgotten: int) -> None:
        """Go on from the rows of another record, with its counts of averaged and lost rows."""
        self.clear()
        self._level = averaged.bit_length() - 1
        self._pieces = np.split(rows, self._cuts(rows)) if len(rows) else []
        self._kept, self.forgotten = len(rows), forgotten

    def rows(self, after: float = -np.inf) -> Array:
        """Return the rows with stamps after a time [s]."""
        pieces = [piece for piece in self._pieces if piece[-1, 0] > after]
        rows = np.concatenate((*pieces, _halved(self._open[:self._filled], self._level)))
        return rows[np.searchsorted(rows[:, 0], after, 'right'):]

    def release(self) -> Array:
        """Return and release the rows; the counts of averaged and discarded rows stay."""
        rows = self.rows()
        self._pieces.clear()
        self._filled = 0
        return rows

    @property
    def averaged(self) -> int:
        """Number of received rows per row kept."""
        return 2**self._level

    def _cuts(self, rows: Array) -> list[int]:
        """Return the rows that begin a new stretch."""
        if not len(rows):
            return []
        before = self._open[self._filled - 1, 0] if self._filled else rows[0, 0]
        return np.flatnonzero(np.diff(rows[:, 0], prepend=before) > _GAP).tolist()

    def _extend(self, rows: Array) -> None:
        while len(rows):
            taken = rows[:_PIECE - self._filled]
            self._open[self._filled:self._filled + len(taken)] = taken
            self._filled += len(taken)
            rows = rows[len(taken):]
            if self._filled == _PIECE:
                self._close()

    def _close(self) -> None:
        """End a piece that is full or followed by a gap."""
        if self._filled:
            self._keep(self._open[:self._filled].copy())
            self._filled = 0

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


def _halved(rows: Array, times: int) -> Array:
    """Return neighbours averaged pairwise several times; a last row without partner stays."""
    for _ in range(times):
        even = len(rows) // 2 * 2
        pairs = 0.5 * (rows[:even:2] + rows[1:even:2])
        rows = np.concatenate((pairs, rows[even:])) if even < len(rows) else pairs
    return rows


def within_budget(samples: S, budget: int = BUDGET) -> S:
    """Return samples, averaged if they exceed the budget."""
    if len(samples) <= budget:
        return samples
    widths = samples.columns
    record = BoundedBuffer(1 + sum(widths.values()), budget)
    record.add(np.column_stack([getattr(samples, name) for name in ('time', *widths)]))
    time, *arrays = np.split(record.rows(), np.cumsum([1, *widths.values()])[:-1], axis=1)
    whole: Any = samples
    return replace(whole, time=time[:, 0], **dict(zip(widths, arrays, strict=True)))
