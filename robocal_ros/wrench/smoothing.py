# SPDX-License-Identifier: Apache-2.0
"""Causal window over joint motion and readings, with the same delay for all of them.

The acceleration is the slope of a line fitted to the velocities in the window (Savitzky, Golay,
Analytical Chemistry 36 (1964) 1627, doi 10.1021/ac60214a047), which is a weighted mean of the
acceleration over the window. Readings, positions and torques are averaged with the same weights,
so that linear relations between them hold exactly, half a window later. Stamps may be uneven.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from robocal_ros.arrays import Array, Flags, frozen
from robocal_ros.messages import SECOND

Stamps = npt.NDArray[np.int64]

FEWEST = 5
"""Smallest number of rows in a window."""

LONGEST = SECOND // 10
"""Longest time that a window may span to contain ``FEWEST`` rows [ns]: 5 rows at 40 Hz."""

# A deviation is a leap above a multiple of the median deviation plus an absolute value: of
# positions from velocities [rad], and of velocities from their neighbours [rad/s].
_MISFIT = (5.0, 3e-6)
_BEND = (8.0, 1e-3)
# Fraction of its length that a window must span.
FULL = 0.6
# Longest gap, as a fraction of what the window spans.
GAP = 0.6
_CAPACITY = 512
# Steps that differ by less than this fraction from the one before count as even. With jitter of
# 5 % of a step, weights of even steps add 0.2 % of an acceleration to its noise.
UNEVEN = 0.5
_WIDER = 1.0 + UNEVEN


class Weights(NamedTuple):
    """Weights of the m rows in a window.

    Attributes:
        both: Weights of means, which sum to 1, and of slopes times ``rate``, shape (2, m).
        intervals: Weights of means over the intervals that end in each row, shape (m,).
        delay: Delay of means and slopes with respect to the newest stamp [s].
        rate: Factor of the slopes [1/s].

    """

    both: Array
    intervals: Array
    delay: float
    rate: float

    @property
    def mean(self) -> Array:
        """Weights of means, shape (m,)."""
        return np.asarray(self.both[0])

    @property
    def slope(self) -> Array:
        """Weights of slopes, shape (m,) [1/s]."""
        return np.asarray(self.rate * self.both[1])


class Window:
    """Newest rows with their stamps: those within a time, but not less than a number.

    Attributes:
        length: Length of the window [ns].
        slack: Largest age of a row, the length plus rounding errors [ns].
        fewest: Smallest number of rows, independent of their stamps.
        step: Time between the two newest rows, 0 before the second [ns].

    """

    def __init__(self, length: float, columns: int, fewest: int = FEWEST, extra: int = 0) -> None:
        """Start empty.

        Args:
            length: Length of the window [s].
            columns: Number of columns.
            fewest: Smallest number of rows.
            extra: Number of further, optional columns.

        """
        self.length = round(length * SECOND)
        self.fewest = fewest
        self.step = 0
        self.slack = self.length + self.length // 10**6 + 1000
        self._shortest, self._longest = FULL * self.length, max(self.slack, LONGEST)
        self._time: list[int] = []
        self._rows = np.empty((_CAPACITY, columns))
        self._extra = np.zeros((_CAPACITY, extra))
        self._has_extra = False
        self._begin = self._end = 0
        # Rows since the last uneven step, and the newest weights of even steps.
        self._even = 0
        self._count, self._known = fewest, even_weights(fewest)

    def clear(self) -> None:
        """Discard all rows."""
        self._time.clear()
        self._begin = self._end = self.step = self._even = 0

    def add(self, stamp: int, row: Array, extra: Array | None = None) -> None:
        """Add a row, with zeros for omitted further columns; stamps must increase [ns]."""
        if self._end == len(self._rows):
            self._make_room()
        time, begin, end = self._time, self._begin, self._end
        if end > begin:
            step = stamp - time[-1]
            before = self.step
            if step > _WIDER * before > 0.0 or _WIDER * step < before:
                self._even = 0
            self.step = step
        self._even += 1
        time.append(stamp)
        self._rows[end] = row
        if extra is not None:
            self._extra[end], self._has_extra = extra, True
        elif self._has_extra:
            self._extra[end] = 0.0
        self._end = end + 1
        oldest = stamp - self.slack
        while end - begin >= self.fewest and time[begin] < oldest:
            begin += 1
        self._begin = begin

    def _make_room(self) -> None:
        begin, end = self._begin, self._end
        kept = end - begin
        if 2 * kept > len(self._rows):
            self._rows = np.concatenate((self._rows, np.empty_like(self._rows)))
            self._extra = np.concatenate((self._extra, np.zeros_like(self._extra)))
        self._rows[:kept] = self._rows[begin:end].copy()
        self._extra[:kept] = self._extra[begin:end].copy()
        del self._time[:begin]
        self._begin, self._end = 0, kept

    def __len__(self) -> int:
        """Return the number of rows in the window."""
        return self._end - self._begin

    @property
    def oldest(self) -> int:
        """Stamp of the oldest row in the window [ns]."""
        return self._time[self._begin]

    @property
    def time(self) -> Stamps:
        """Stamps of the rows in the window [ns]."""
        return np.array(self._time[self._begin:], dtype=np.int64)

    @property
    def rows(self) -> Array:
        """The rows in the window, a view; the last one may be corrected in place."""
        return self._rows[self._begin:self._end]

    @property
    def extra(self) -> Array:
        """Further columns of the rows in the window, a view."""
        return self._extra[self._begin:self._end]

    def weights(self) -> Weights | None:
        """Return the weights, None if the rows do not cover the window.

        That is if there are too few, over too short a time, or with a gap between them.
        """
        count = self._end - self._begin
        if count < self.fewest:
            return None
        span = self._time[-1] - self._time[self._begin]
        if not self._shortest <= span <= self._longest:
            return None
        # The first two rows have no earlier step in the window to compare with.
        if self._even + 2 > count:
            if self._count != count:
                self._count, self._known = count, even_weights(count)
            both, intervals, _, _ = self._known
            return Weights(both, intervals, 0.5 * span / SECOND, SECOND * (count - 1) / span)
        elapsed = (self.time - self._time[-1]) / SECOND
        if (elapsed[1:] - elapsed[:-1]).max() * SECOND > GAP * max(self.length, span):
            return None
        return matched_weights(elapsed)


@lru_cache(maxsize=64)
def even_weights(count: int) -> Weights:
    """Return the weights of rows one second apart, read-only."""
    found = matched_weights(np.arange(1.0 - count, 1.0))
    return found._replace(both=frozen(found.both), intervals=frozen(found.intervals))


def matched_weights(time: Array) -> Weights:
    """Return weights of means and of slopes that average the same part of a motion.

    The slope of the line fitted to velocities v is Σ s v. Summation by parts gives Σ Cᵢ ∫ a dt
    over the intervals, where Cᵢ is the sum of the s from row i on: a mean of the acceleration with
    interval weights Cᵢ Δtᵢ, and with row weights by the trapezoidal rule.

    Args:
        time: Increasing times, shape (m,) [s].

    """
    mean, slope, intervals, delay = matched_rows(time)
    return Weights(np.array((mean, slope)), intervals, float(delay), 1.0)


def matched_rows(time: Array) -> tuple[Array, Array, Array, Array]:
    """Return the numbers of ``matched_weights`` for many windows of the same number of rows.

    Args:
        time: Times of each window, shape (..., m) [s].

    Returns:
        Weights of means, of slopes and of means over intervals, shape (..., m), and delays,
        shape (...,).

    """
    centred = time - time.mean(axis=-1, keepdims=True)
    slope = centred / (centred * centred).sum(axis=-1, keepdims=True)
    intervals = np.zeros_like(time)
    intervals[..., 1:] = slope[..., ::-1].cumsum(axis=-1)[..., ::-1][..., 1:] * (
        time[..., 1:] - time[..., :-1])
    mean = 0.5 * intervals
    mean[..., :-1] += 0.5 * intervals[..., 1:]
    return mean, slope, intervals, time[..., -1] - (mean * time).sum(axis=-1)


def leaps(time: Stamps, position: Array, velocity: Array) -> Flags:
    """Return whether each joint's motion contains a leap.

    A sudden torque deflects an elastic joint between two samples: the encoder jumps, the link
    does not. Velocities then contradict the positions, or one differs from its neighbours.

    Args:
        time: Increasing stamps, shape (m,) [ns].
        position: Joint angles, shape (m, n) [rad].
        velocity: Joint velocities, shape (m, n) [rad/s].

    Returns:
        Shape (n,).

    """
    steps = ((time[1:] - time[:-1]) / SECOND)[:, None]
    misfit = position[1:] - position[:-1] - 0.5 * steps * (velocity[1:] + velocity[:-1])
    bend = velocity[2:] - 2.0 * velocity[1:-1] + velocity[:-2]
    found = np.zeros(velocity.shape[1], dtype=bool)
    for deviation, (factor, least) in ((np.abs(misfit), _MISFIT), (np.abs(bend), _BEND)):
        found |= deviation.max(axis=0) > factor * (np.median(deviation, axis=0) + least)
    return found


def slopes_without(time: Stamps, velocity: Array, leaping: Flags) -> Array:
    """Return the slopes of velocities; for joints with leaps, without the two worst samples.

    Args:
        time: Increasing stamps, shape (m,) [ns].
        velocity: Joint velocities, shape (m, n) [rad/s].
        leaping: Whether each joint's motion contains a leap, shape (n,).

    Returns:
        Accelerations, shape (n,) [rad/s²].

    """
    slopes = np.empty(velocity.shape[1])
    for joint, leaps_there in enumerate(leaping.tolist()):
        t, v = (time - time[0]) / SECOND, velocity[:, joint]
        for _ in range(2 if leaps_there else 0):
            centred = t - t.mean()
            line = v.mean() + centred * (centred @ v) / (centred @ centred)
            worst = int(np.argmax(np.abs(v - line)))
            t, v = np.delete(t, worst), np.delete(v, worst)
        centred = t - t.mean()
        slopes[joint] = (centred @ v) / (centred @ centred)
    return slopes
