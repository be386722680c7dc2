# SPDX-License-Identifier: Apache-2.0
"""Check of the stamps of a stream: order, repeats, jumps of the clock, gaps.

Stamps are integer nanoseconds, so that comparisons are exact; samples contain seconds. Live
messages and blocks of a bag follow the same rules, with equal samples and counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any, overload

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from robocal_ros.arrays import Array, Flags
from robocal_ros.messages.samples import StreamCounts

SECOND = 10**9
"""Nanoseconds in a second."""

Stamps = npt.NDArray[np.int64]

# A stamp this much older, or this much newer, than the newest is neither late nor early: either
# the clock was set (simulated to wall time, a bag that restarts) or the stamp is corrupt. The
# clock was set if this number of stamps in a row is consistent; until then they are left out.
LEAP = 3600 * SECOND
_CLOCK_JUMP = SECOND
_FAR_IN_A_ROW = 3
# The same for stamps that are a little older, which also are late messages.
_LATE_IN_A_ROW = 10
# A longer gap is a pause of the recording or a clock that was set, not lost messages.
_PAUSE = 60 * SECOND
# The usual interval is updated after this number of stamps, at this place among them.
_LEARN_EVERY, _LEARN_AT = 50, 20
_REMEMBERED = 101
_GAP = 1.5


@overload
def to_seconds(stamp: int) -> float: ...


@overload
def to_seconds(stamp: Stamps) -> Array: ...


def to_seconds(stamp: Any) -> Any:
    """Return one or many stamps in seconds [s], given nanoseconds."""
    seconds, nanoseconds = divmod(stamp, SECOND)
    return seconds + 1e-9 * nanoseconds


def from_seconds(time: float) -> int:
    """Return a time in nanoseconds, given seconds [s]."""
    return round(time * 1e9)


class StampGuard:
    """Check of a stream's stamps, with counts of repeated, late, jumping and missing ones.

    Attributes:
        newest: Newest admitted stamp, None before the first [ns].

    """

    def __init__(self) -> None:
        """Start empty."""
        self.newest: int | None = None
        self._tally = vars(StreamCounts()).copy()
        self._intervals: deque[int] = deque(maxlen=_REMEMBERED)
        self._period = 0.0
        self._admitted = 0
        self._late = 0
        self._late_stamp: int | None = None

    @property
    def counts(self) -> StreamCounts:
        """Counts of messages since the last reset."""
        return StreamCounts(**self._tally)

    @property
    def jumps(self) -> int:
        """Jumps of the clock since the last reset."""
        return self._tally['clock_jumps']

    @property
    def newest_time(self) -> float:
        """Newest admitted stamp, -inf before the first [s]."""
        return -np.inf if self.newest is None else to_seconds(self.newest)

    @property
    def period(self) -> float:
        """Usual interval between stamps, 0 until it is known [s]."""
        return to_seconds(round(self._period))

    def count(self, **more: int) -> None:
        """Add to the counts by name."""
        for name, number in more.items():
            self._tally[name] += number

    def reset_counts(self) -> None:
        """Reset the counts."""
        self._tally = dict.fromkeys(self._tally, 0)

    def admit(self, stamp: int) -> bool:
        """Process a stamp [ns]; return whether its message is used.

        The message that confirms a jump of the clock is used; see ``jumps``.
        """
        tally = self._tally
        tally['received'] += 1
        if self.newest is not None:
            step = stamp - self.newest
            if not 0 < step <= LEAP:
                follows = (self._late_stamp is not None
                           and 0 < stamp - self._late_stamp <= LEAP)
                self._late = self._late + 1 if follows else 1
                self._late_stamp = stamp
                near = -_CLOCK_JUMP < step <= 0
                if self._late < (_LATE_IN_A_ROW if near else _FAR_IN_A_ROW):
                    tally['out_of_order'] += 1
                    if near and step < 0 and tally['dropped']:
                        # A late message had been counted as lost when its successor came.
                        tally['dropped'] -= 1
                    return False
                tally['clock_jumps'] += 1
                self._intervals.clear()
            else:
                if self._period and _GAP * self._period < step < _PAUSE:
                    tally['dropped'] += round(step / self._period) - 1
                self._intervals.append(step)
                self._admitted += 1
                if self._admitted % _LEARN_EVERY == _LEARN_AT:
                    self._period = _median(self._intervals)
        self.newest = stamp
        self._late, self._late_stamp = 0, None
        return True

    def admit_block(self, stamps: Stamps) -> tuple[Flags, list[int]]:
        """Process many stamps, equal to ``admit`` for each of them.

        Args:
            stamps: Stamps in the order of arrival, shape (k,) [ns].

        Returns:
            Mask of the messages to use, shape (k,), and the rows at which the clock jumped, before
            which samples must be discarded.

        """
        counts = np.zeros(len(stamps), dtype=bool)
        # Rows that do not follow their predecessor; all others are in order.
        steps = np.diff(stamps)
        breaks = np.append(1 + np.flatnonzero((steps <= 0) | (steps > LEAP)), len(stamps))
        row, jumps = 0, list[int]()
        while row < len(stamps):
            before = self.jumps
            counts[row] = self.admit(int(stamps[row]))
            if self.jumps > before:
                jumps.append(row)
            row += 1
            if not counts[row - 1]:
                continue
            stop = int(breaks[np.searchsorted(breaks, row)]) if row < len(stamps) else row
            if stop > row:
                self._admit_increasing(stamps[row - 1:stop])
                counts[row:stop] = True
                row = stop
        return counts, jumps

    def _admit_increasing(self, stamps: Stamps) -> None:
        """Admit stamps that increase; the first of them has been admitted already."""
        steps = np.diff(stamps)
        count = len(steps)
        # Steps after which the usual interval is updated.
        learnt = np.arange((_LEARN_AT - self._admitted - 1) % _LEARN_EVERY, count, _LEARN_EVERY)
        known = np.concatenate((np.array(self._intervals, dtype=np.int64), steps))
        ends = learnt + (len(known) - count + 1)
        full = ends >= _REMEMBERED
        periods = [self._period, *(_median(known[:end].tolist()) for end in ends[~full].tolist())]
        if full.any():
            windows = sliding_window_view(known, _REMEMBERED)[ends[full] - _REMEMBERED]
            middle = _REMEMBERED // 2
            periods += np.partition(windows, middle, axis=1)[:, middle].astype(float).tolist()
        dropped = 0
        if count and steps.max() > _GAP * min(periods):
            usual = np.array(periods)[np.searchsorted(learnt, np.arange(count))]
            wide = (usual > 0.0) & (steps > _GAP * usual) & (steps < _PAUSE)
            dropped = int((np.round(steps[wide] / usual[wide]) - 1.0).sum())
        self._intervals.extend(steps[-_REMEMBERED:].tolist())
        self._period = periods[-1]
        self._admitted += count
        self.count(received=count, dropped=dropped)
        self.newest = int(stamps[-1])


def _median(values: Collection[int]) -> float:
    """Return the median, much faster than NumPy for a hundred numbers."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return float(ordered[middle])
    return 0.5 * (ordered[middle - 1] + ordered[middle])
