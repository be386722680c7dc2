# SPDX-License-Identifier: Apache-2.0
"""Stamps of a stream of messages: which of them count, and what is missing between them.

One rule for messages that arrive one by one and for blocks of them out of a bag, so that both
ways give the same samples and the same counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from robocal_ros.arrays import Array
from robocal_ros.messages.samples import StreamCounts

# A stamp this much older than the newest one is a jump of the clock, not a late message; so are
# this many older stamps in a row that increase among themselves.
_CLOCK_JUMP = 1.0
_LATE_IN_A_ROW = 10
# A gap longer than this is a pause of the recording or a clock that was set: nothing was lost.
_PAUSE = 60.0
# The usual interval is learnt anew each time so many stamps have come, at this place among them.
_LEARN_EVERY, _LEARN_AT = 50, 20
_REMEMBERED = 101
_GAP = 1.5


class StampGuard:
    """Tells new stamps from repeated, late and jumping ones, and counts the gaps.

    Attributes:
        counts: What the stream went through since the last reset.
        newest: Newest stamp that counts, -inf before the first [s].

    """

    def __init__(self) -> None:
        """Start with nothing heard."""
        self.counts = StreamCounts()
        self.newest = -np.inf
        self._intervals: deque[float] = deque(maxlen=_REMEMBERED)
        self._period = 0.0
        self._admitted = 0
        self._late = 0
        self._late_stamp = np.inf

    def count(self, **more: int) -> None:
        """Add to the counts by name."""
        self.counts = replace(
            self.counts, **{name: getattr(self.counts, name) + n for name, n in more.items()}
        )

    def reset_counts(self) -> None:
        """Start counting anew."""
        self.counts = StreamCounts()

    def admit(self, stamp: float) -> bool:
        """Take note of a stamp; return whether its message counts.

        A jump back of the clock counts too; tell it by ``counts.clock_jumps``.
        """
        self.count(received=1)
        step = stamp - self.newest
        if step <= 0.0:
            self._late = self._late + 1 if stamp > self._late_stamp else 1
            self._late_stamp = stamp
            if step > -_CLOCK_JUMP and self._late < _LATE_IN_A_ROW:
                # A late message had been taken for a lost one when its successor came.
                found = step < 0.0 and self.counts.dropped > 0
                self.count(out_of_order=1, dropped=-1 if found else 0)
                return False
            self.count(clock_jumps=1)
            self._intervals.clear()
        elif np.isfinite(step):
            if self._period > 0.0 and _GAP * self._period < step < _PAUSE:
                self.count(dropped=round(step / self._period) - 1)
            self._learn_period(step)
        self.newest = stamp
        self._late, self._late_stamp = 0, np.inf
        return True

    def admit_block(self, stamps: Array) -> tuple[npt.NDArray[np.bool_], int]:
        """Take note of many stamps, exactly as ``admit`` would one after the other.

        Args:
            stamps: Stamps in the order of arrival, shape (k,) [s].

        Returns:
            Which of the messages count, shape (k,), and the row of the last jump back of the
            clock, -1 for none: what came before that row is to be forgotten.

        """
        counts = np.zeros(len(stamps), dtype=bool)
        # Rows that do not follow their predecessor; between them all is in order.
        breaks = np.append(1 + np.flatnonzero(np.diff(stamps) <= 0.0), len(stamps))
        row, jump = 0, -1
        while row < len(stamps):
            before = self.counts.clock_jumps
            counts[row] = self.admit(float(stamps[row]))
            if self.counts.clock_jumps > before:
                jump = row
            row += 1
            if not counts[row - 1]:
                continue
            stop = int(breaks[np.searchsorted(breaks, row)]) if row < len(stamps) else row
            if stop > row:
                self._admit_increasing(stamps[row:stop])
                counts[row:stop] = True
                row = stop
        return counts, jump

    def _admit_increasing(self, stamps: Array) -> None:
        steps = np.diff(stamps, prepend=self.newest)
        dropped, begin = 0, 0
        while begin < len(steps):
            until = (_LEARN_AT - self._admitted - 1) % _LEARN_EVERY + 1
            part = steps[begin:begin + until]
            if self._period > 0.0:
                wide = part[(part > _GAP * self._period) & (part < _PAUSE)]
                dropped += int((np.round(wide / self._period) - 1.0).sum())
            self._intervals.extend(part.tolist())
            self._admitted += len(part)
            if self._admitted % _LEARN_EVERY == _LEARN_AT:
                self._period = _median(self._intervals)
            begin += until
        self.count(received=len(stamps), dropped=dropped)
        self.newest = float(stamps[-1])

    def _learn_period(self, step: float) -> None:
        """Keep the median interval; a new one now and then is enough, and cheap."""
        self._intervals.append(step)
        self._admitted += 1
        if self._admitted % _LEARN_EVERY == _LEARN_AT:
            self._period = _median(self._intervals)


def _median(values: Collection[float]) -> float:
    """Return the median; for a hundred numbers far faster than NumPy's."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return 0.5 * (ordered[middle - 1] + ordered[middle])
