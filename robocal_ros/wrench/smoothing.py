# SPDX-License-Identifier: Apache-2.0
"""A causal window over joint motion and readings, with one delay for all of them.

An acceleration is the slope of a straight line fitted to the velocities in the window. That is
exactly a weighted mean of the acceleration over the window; the same weights average readings,
positions and torques, so that whatever is linear in them cancels as if nothing were filtered,
only later, by half the window (Savitzky and Golay, Analytical Chemistry 36 (1964) 1627,
doi 10.1021/ac60214a047, for the fit). Stamps may be uneven.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from robocal_ros.arrays import Array

FEWEST = 5
"""Fewest rows that a window must hold."""

# So many times the usual deviation is a leap; the usual one is at least this: of positions from
# the velocities [rad], and of velocities from their neighbours [rad/s].
_MISFIT = (5.0, 3e-6)
_BEND = (8.0, 1e-3)
# The window counts as full when it covers this share of its length: a gap may just be leaving it.
_FULL = 0.6
# A gap longer than this share of the window leaves too little around it.
_GAP = 0.6
_CAPACITY = 512
# Times count in steps so long [s], so that even stamps share their weights and the weights are
# those of the stamps alone, whatever came before. Finer than any clock is even.
_TICK = 1e-7


class Window:
    """The newest rows of numbers, stamped.

    Attributes:
        length: Length of the window [s].
        step: Time between the two newest rows, infinite before the second [s].

    """

    def __init__(self, length: float, columns: int) -> None:
        """Start empty.

        Args:
            length: Length of the window [s].
            columns: Number of columns.

        """
        self.length = length
        self.step = float('inf')
        self._newest = float('-inf')
        self._time = np.empty(_CAPACITY)
        self._rows = np.empty((_CAPACITY, columns))
        self._begin = self._end = 0
        self._known: tuple[bytes, Array, Array, float] | None = None

    def clear(self) -> None:
        """Forget all rows."""
        self._begin = self._end = 0
        self.step = float('inf')
        self._newest = float('-inf')

    def add(self, stamp: float, row: Array) -> None:
        """Add a row; stamps must increase [s]."""
        if self._end == len(self._time):
            self._make_room()
        self.step, self._newest = stamp - self._newest, stamp
        self._time[self._end] = stamp
        self._rows[self._end] = row
        self._end += 1
        oldest = stamp - self.length * (1.0 + 1e-6) - 1e-6
        while self._time[self._begin] < oldest:
            self._begin += 1

    def _make_room(self) -> None:
        kept = self._end - self._begin
        if 2 * kept > len(self._time):
            self._time = np.concatenate((self._time, np.empty_like(self._time)))
            self._rows = np.concatenate((self._rows, np.empty_like(self._rows)))
        self._time[:kept] = self._time[self._begin:self._end].copy()
        self._rows[:kept] = self._rows[self._begin:self._end].copy()
        self._begin, self._end = 0, kept

    def __len__(self) -> int:
        """Return the number of rows in the window."""
        return self._end - self._begin

    @property
    def time(self) -> Array:
        """Stamps of the rows in the window, a view [s]."""
        return self._time[self._begin:self._end]

    @property
    def rows(self) -> Array:
        """The rows in the window, a view; the last one may be corrected in place."""
        return self._rows[self._begin:self._end]

    def weights(self) -> tuple[Array, Array, float] | None:
        """Return the weights of means and slopes, and how far the means lie back.

        Returns:
            Weights of the mean, shape (m,); weights of the slope, shape (m,) [1/s]; the delay
            of both against the newest stamp [s]. None while rows do not cover the window well
            enough: too few, too short a time, or a gap.

        """
        count = self._end - self._begin
        if count < FEWEST:
            return None
        ticks = np.rint((self.time - self._newest) * (1.0 / _TICK))
        key = ticks.tobytes()
        known = self._known
        if known is not None and known[0] == key:
            return known[1], known[2], known[3]
        elapsed = ticks * _TICK
        if -elapsed[0] < _FULL * self.length \
                or (elapsed[1:] - elapsed[:-1]).max() > _GAP * self.length:
            return None
        mean, slope = matched_weights(elapsed)
        self._known = (key, mean, slope, float(-(mean @ elapsed)))
        return mean, slope, self._known[3]


def matched_weights(time: Array) -> tuple[Array, Array]:
    """Return weights of a mean and of a slope that see the same part of a motion.

    The slope of the line fitted to velocities v at times t is Σ s v. Summed by parts it is
    Σ Cᵢ ∫ a dt over the intervals, with Cᵢ the sum of the s from there on: a mean of the
    acceleration whose weights, by the trapezoidal rule, are those returned.

    Args:
        time: Increasing times, shape (m,) [s].

    Returns:
        Weights of the mean, which sum to 1, and of the slope, shape (m,) each.

    """
    centred = time - time.mean()
    slope = centred / (centred @ centred)
    areas = slope[::-1].cumsum()[::-1][1:] * (time[1:] - time[:-1])
    mean = np.zeros_like(time)
    mean[:-1] = areas
    mean[1:] += areas
    mean *= 0.5
    return mean, slope


def leaps(time: Array, position: Array, velocity: Array) -> npt.NDArray[np.bool_]:
    """Tell which joints' motion holds a leap somewhere.

    A sudden torque winds up an elastic joint between two samples: the encoder leaps, the link
    does not. Velocities then don't fit the positions, or one stands out from its neighbours.

    Args:
        time: Increasing times, shape (m,) [s].
        position: Joint angles, shape (m, n) [rad].
        velocity: Joint velocities, shape (m, n) [rad/s].

    Returns:
        Shape (n,).

    """
    steps = (time[1:] - time[:-1])[:, None]
    misfit = position[1:] - position[:-1] - 0.5 * steps * (velocity[1:] + velocity[:-1])
    bend = velocity[2:] - 2.0 * velocity[1:-1] + velocity[:-2]
    found = np.zeros(velocity.shape[1], dtype=bool)
    for deviation, (factor, least) in ((np.abs(misfit), _MISFIT), (np.abs(bend), _BEND)):
        found |= deviation.max(axis=0) > factor * (np.median(deviation, axis=0) + least)
    return found


def slopes_without(time: Array, velocity: Array, leaping: npt.NDArray[np.bool_]) -> Array:
    """Return the slopes of velocities; of joints that leap, without the two worst samples.

    Args:
        time: Increasing times, shape (m,) [s].
        velocity: Joint velocities, shape (m, n) [rad/s].
        leaping: Which joints leap, shape (n,).

    Returns:
        Accelerations, shape (n,) [rad/s²].

    """
    slopes = np.empty(velocity.shape[1])
    for joint, leaps_there in enumerate(leaping.tolist()):
        t, v = time - time[0], velocity[:, joint]
        for _ in range(2 if leaps_there else 0):
            centred = t - t.mean()
            line = v.mean() + centred * (centred @ v) / (centred @ centred)
            worst = int(np.argmax(np.abs(v - line)))
            t, v = np.delete(t, worst), np.delete(v, worst)
        centred = t - t.mean()
        slopes[joint] = (centred @ v) / (centred @ centred)
    return slopes
