# SPDX-License-Identifier: Apache-2.0
"""Samples of several sources at common instants: checked, buffered, interpolated, windowed.

The acceleration is the slope of a line fitted to the velocities in the window (Savitzky, Golay,
Analytical Chemistry 36 (1964) 1627, doi 10.1021/ac60214a047), which is a weighted mean of the
acceleration over the window. Readings, positions and torques are averaged with the same weights,
so that linear relations between them hold exactly, half a window later. Stamps may be uneven.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy

from robocal_ros.arrays import Array, Flags, frozen
from robocal_ros.messages import SECOND, Stamps
from robocal_ros.wrench.parameters import WrenchParameters

COLUMNS = 6
"""Values of one reading: force and torque, or specific force and angular velocity."""

NEVER = -2**62
"""Stamp before the first one [ns]."""

# Time after which, and number of arrivals that, stamps are seen ahead before that counts [s]: a
# message may be late.
_AHEAD_FOR, _AHEAD_TIMES = 0.1, 3
# Largest difference of stamps and clock that is stated [s]; replayed stamps are far off.
_FAR = 3600.0
# Smallest number of readings that are kept: seconds of them, for late instants; and how many are
# forgotten at a time, because thousands of several sensors together take milliseconds.
_KEPT, _FORGOTTEN = 4000, 200

Reading = tuple[float, ...]

_UNKNOWN: Reading = (0.0,) * COLUMNS

# Fraction of the stated range that counts as its end: converters reach one step less.
_INSIDE = 0.999
# Multiple of the stated range up to which a reading is saturated; beyond it is implausible.
_PLAUSIBLE = 10.0


FEWEST = 5
"""Smallest number of rows in a window."""

LONGEST = SECOND // 10
"""Longest time that a window may span to contain ``FEWEST`` rows [ns]: 5 rows at 40 Hz."""

# A deviation is a leap above a multiple of the median deviation plus an absolute value: of
# positions from velocities [rad], and of velocities from their neighbours [rad/s].
_MISFIT = (5.0, 3e-6)
_BEND = (8.0, 1e-3)
# Fraction of its length that a window must span.
_FULL = 0.6
# Longest gap, as a fraction of what the window spans.
GAP = 0.6
_CAPACITY = 512
# Probability of larger errors of accelerations than those of the interval that is right.
_RISK = 1e-3
# Steps that differ by less than this fraction from the one before count as even. With jitter of
# 5 % of a step, weights of even steps add 0.2 % of an acceleration to its noise.
UNEVEN = 0.5
_WIDER = 1.0 + UNEVEN


class Saturated(tuple[float, ...]):
    """Reading at the end of the sensor's range: a bound of what acts on it."""


class Feed:
    """Readings of one sensor by stamps.

    A lost reading is bridged by interpolation. A refused one is not: the sensor has no values
    between the usable readings before and after it.

    Attributes:
        name: Name of the sensor, for messages.
        newest: Newest stamp, ``NEVER`` before the first [ns].
        problem: Problem of the newest reading, empty if there is none.
        rejected: Number of readings that were refused.
        refused: Stamp and problem of the last one; ``NEVER`` and empty before the first.
        inner: Smallest limit of any value: readings of a smaller norm are within all limits.
        several: Whether two or more readings were between the instants last given to ``at``.
        on_reading: Called with the stamp of each reading [ns], and its values, zeros for refused
            ones; None for nothing.

    """

    def __init__(
        self, name: str, values: WrenchParameters, ranges: Sequence[float] = (),
        delay: float = 0.0,
    ) -> None:
        """Start without readings.

        Args:
            name: Name of the sensor.
            values: The parameters; ``max_delay`` is also the longest gap between readings
                that is interpolated.
            ranges: Measuring range of each value; 0 or none for no limit.
            delay: Time by which readings are older than their stamps [s].

        """
        self.name = name
        self.several = False
        self.on_reading: Callable[[int, Reading], None] | None = None
        self.rejected, self.refused = 0, (NEVER, '')
        self.max_gap = round(values.max_delay * SECOND)
        self.stuck_time = round(values.stuck_time * SECOND)
        self.delay = round(delay * SECOND)
        self.limits = [(i, _INSIDE * limit) for i, limit in enumerate(ranges) if limit > 0.0]
        self.inner = min((limit for _, limit in self.limits), default=math.inf)
        self._inner_square = self.inner**2
        self._same_since = NEVER
        self.clear()

    def clear(self) -> None:
        """Discard all readings, as after a jump of the clock."""
        # As if one had been refused long ago.
        self._stamps = [NEVER]
        self._values: list[Reading | None] = [None]
        self.newest = NEVER
        self.problem = ''
        self.refused = NEVER, self.refused[1]
        self._last: Reading = ()

    def take(self, stamp: int | None, content: Array | Reading | str) -> None:
        """Add a reading, or refuse it, given its problem; arguments as for these."""
        if isinstance(content, str):
            self.refuse(stamp, content)
        elif stamp is not None:
            # Numbers of Python, with which a feed computes.
            self.add(stamp, content if isinstance(content, tuple) else tuple(content.tolist()))

    def refuse(self, stamp: int | None, problem: str, values: Reading | None = None) -> None:
        """Note an unusable reading.

        Args:
            stamp: Its stamp [ns]; None if it has none.
            problem: Its problem, as a sentence.
            values: Its values if they bound what acts on the sensor, else None.

        """
        if stamp is not None:
            self._keep(stamp - self.delay, values)
        self.problem = problem
        self.rejected += 1
        self.refused = self.newest, problem

    def add(self, stamp: int, values: Reading) -> None:
        """Check and keep a reading.

        Args:
            stamp: Its stamp, newer than the newest [ns].
            values: Its values, finite and plausible numbers.

        """
        instant = stamp - self.delay
        fx, fy, fz, mx, my, mz = values
        if not fx * fx + fy * fy + fz * fz + mx * mx + my * my + mz * mz < self._inner_square:
            problem, bounding = self.beyond(values)
            if problem:
                self.refuse(stamp, problem, Saturated(values) if bounding else None)
                return
        if values != self._last:
            self._last, self._same_since = values, instant
        elif self.stuck_time and instant - self._same_since > self.stuck_time:
            self.refuse(stamp, self.stuck(instant - self._same_since))
            return
        self.problem = ''
        self._keep(instant, values)

    def beyond(self, values: Sequence[float]) -> tuple[str, bool]:
        """Return the problem of values that are beyond limits, and whether they are a bound.

        Values at the end of the sensor's range bound what acts on it; beyond any real ones, they
        say nothing. Without a problem the sentence is empty.
        """
        share, index, limit = max(
            ((abs(values[i]) / limit, i, limit) for i, limit in self.limits),
            default=(0.0, 0, 0.0))
        if share < 1.0:
            return '', False
        if share < _PLAUSIBLE:
            return (f"Sensor '{self.name}' is saturated: value {index + 1} of {len(values)} reads "
                    f'{values[index]:.4g}, its range ends at {limit / _INSIDE:.4g}. Reduce the '
                    'load.'), True
        return (f"Sensor '{self.name}' sent an implausible reading: value {index + 1} of "
                f'{len(values)} is {values[index]:.4g}, expected less than '
                f'{_PLAUSIBLE * limit:.4g}. Check sensor, driver and units.'), False

    def stuck(self, since: int) -> str:
        """Return a sentence on constant values since a time [ns]."""
        return (f"Sensor '{self.name}' has sent the same values for {since / SECOND:.1f} s; "
                'a working one scatters. Check it.')

    def _keep(self, stamp: int, values: Reading | None) -> None:
        self.newest = stamp
        self._stamps.append(stamp)
        self._values.append(values)
        # By hundreds, because thousands of several sensors together take milliseconds.
        if len(self._stamps) >= _KEPT + _FORGOTTEN:
            del self._stamps[1:1 + _FORGOTTEN], self._values[1:1 + _FORGOTTEN]
        if self.on_reading is not None:
            self.on_reading(stamp, values if values.__class__ is tuple else _UNKNOWN)

    def at(self, instant: int, since: int = NEVER) -> Reading | None:
        """Return the values at an instant, interpolated; None if they are not known.

        Args:
            instant: Any instant of the last seconds [ns].
            since: The instant before, for ``several`` [ns].

        """
        stamps = self._stamps
        place = bisect_right(stamps, instant)
        begin = stamps[place - 1]
        last = place - 2 if begin < instant else place - 3
        self.several = last > 0 and stamps[last] > since
        before = self._values[place - 1]
        if before.__class__ is not tuple:
            return None
        if begin == instant:
            return before
        if place == len(stamps):
            return None
        after, gap = self._values[place], stamps[place] - begin
        if after.__class__ is not tuple or gap > self.max_gap:
            return None
        share = (instant - begin) / gap
        # One by one, because a loop would take twice as long.
        a, b, c, d, e, f = before
        u, v, w, x, y, z = after
        return (a + share * (u - a), b + share * (v - b), c + share * (w - c),
                d + share * (x - d), e + share * (y - e), f + share * (z - f))

    def around(self, instant: int) -> list[Reading | None]:
        """Return the readings before and after an instant [ns], None for refused ones."""
        place = bisect_right(self._stamps, instant)
        return self._values[place - 1:place + 1]

    def excess(self, begin: int, first: Array, end: int, last: Array) -> Array | None:
        """Return by how much the mean over an interval differs from that of its ends.

        Args:
            begin: Begin of the interval [ns].
            first: Values there, shape (6,).
            end: End of the interval [ns].
            last: Values there, shape (6,).

        Returns:
            Shape (6,), None if a reading in the interval was refused.

        """
        stamps = self._stamps
        inside = range(bisect_right(stamps, begin), bisect_right(stamps, end - 1))
        readings = [self._values[place] for place in inside]
        if any(values.__class__ is not tuple for values in readings):
            return None
        times = np.array([begin, *(stamps[place] for place in inside), end])
        rows = np.array([first, *readings, last])
        steps = (times[1:] - times[:-1]) / (end - begin)
        return np.asarray(0.5 * (steps @ (rows[1:] + rows[:-1]) - first - last))

    def missing_reason(self, lag: float, instant: int | None = None) -> str:
        """Return in a sentence why readings are missing.

        Args:
            lag: Age of the newest reading [s].
            instant: The instant at which they are missing [ns]; None for now.

        """
        if self.problem:
            return self.problem
        if instant is not None and instant - self.refused[0] < self.max_gap:
            return self.refused[1]
        return self.absence(math.inf if self.newest == NEVER else lag)

    def absence(self, lag: float) -> str:
        """Return why readings are missing of which none was refused, given their age [s]."""
        longest = self.max_gap / SECOND
        if lag == math.inf:
            return (f"No readings are received from sensor '{self.name}'; check its topic and "
                    'driver.')
        if lag > 1.0:
            return f"Sensor '{self.name}' has been silent for {lag:.1f} s; check its driver."
        if lag > longest:
            return (f"Readings of sensor '{self.name}' are {1e3 * lag:.0f} ms late, more than "
                    f'max_delay ({1e3 * longest:.0f} ms).')
        return f"Readings of sensor '{self.name}' are missing."


class Weights(NamedTuple):
    """Weights of the m rows in a window.

    Attributes:
        both: Weights of means, which sum to 1, and of slopes times ``rate``, shape (..., 2, m).
        intervals: Weights of means over the intervals that end in each row, shape (..., m).
        delay: Delay of means and slopes with respect to the newest stamp [s].
        rate: Factor of the slopes [1/s].

    """

    both: Array
    intervals: Array
    delay: Any
    rate: float


class Window:
    """Newest rows with their stamps: those within a time, but not less than a number.

    Attributes:
        length: Length of the window [ns].
        slack: Largest age of a row, the length plus rounding errors [ns].
        shortest: Shortest time that the rows must span [ns].
        longest: Longest one that they may span [ns].
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
        self.slack = self.length + self.length // 10**6 + 1000
        self.shortest, self.longest = _FULL * self.length, max(self.slack, LONGEST)
        # Apart, because products with rows that are not contiguous copy them.
        self._rows, self._extra = np.empty((_CAPACITY, columns)), np.empty((_CAPACITY, extra))
        self.clear()

    def clear(self) -> None:
        """Discard all rows."""
        self._time: list[int] = []
        # ``_even`` counts rows since the last uneven step.
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
        self._extra[end] = 0.0 if extra is None else extra
        self._end = end + 1
        oldest = stamp - self.slack
        while end - begin >= self.fewest and time[begin] < oldest:
            begin += 1
        self._begin = begin

    def _make_room(self) -> None:
        begin = self._begin
        self._rows, self._extra = (
            np.concatenate((rows[begin:], np.empty((_CAPACITY, rows.shape[1]))))
            for rows in (self._rows, self._extra))
        del self._time[:begin]
        self._begin, self._end = 0, self._end - begin

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
        if not self.shortest <= span <= self.longest:
            return None
        # The first two rows have no earlier step in the window to compare with.
        if self._even + 2 > count:
            both, intervals, _, _ = even_weights(count)
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
        time: Increasing times, of one window or many, shape (..., m) [s].

    """
    centred = time - time.mean(axis=-1, keepdims=True)
    slope = centred / (centred * centred).sum(axis=-1, keepdims=True)
    intervals = np.zeros_like(time)
    intervals[..., 1:] = slope[..., ::-1].cumsum(axis=-1)[..., ::-1][..., 1:] * (
        time[..., 1:] - time[..., :-1])
    mean = 0.5 * intervals
    mean[..., :-1] += 0.5 * intervals[..., 1:]
    return Weights(np.stack((mean, slope), axis=-2), intervals,
                   time[..., -1] - (mean * time).sum(axis=-1), 1.0)


def parabola_weights(time: Array) -> Array:
    """Return weights of value, slope and second derivative at time zero of a fitted parabola.

    Args:
        time: Times, three or more of which differ, shape (..., m) [s].

    Returns:
        Shape (..., 3, m).

    """
    powers = np.arange(3)[:, None]
    size = np.abs(time).max(axis=-1, keepdims=True)[..., None]
    basis = (time[..., None, :] / size)**powers
    return np.asarray(np.linalg.solve(basis @ basis.swapaxes(-1, -2), basis)
                      * np.array([[1.0], [1.0], [2.0]]) / size**powers)


def scatter_of_accelerations(time: Array, position: Array) -> Array:
    """Return the errors of second derivatives of parabolas, by what these leave of positions.

    Quantisation, noise and stamps that jitter are in what is left; the latter err all joints
    together, in proportion to their speeds. Rows may err by different amounts (MacKinnon, White,
    J. Econometrics 29 (1985) 305, doi 10.1016/0304-4076(85)90158-7). Few rows tell the size
    badly: with Student's quantile the interval of 99.9 % is right.

    Args:
        time: Times as for ``parabola_weights``, shape (m,) [s].
        position: Joint angles, shape (m, n) [rad].

    Returns:
        By independent unknowns of unit variance, shape (n, m) [rad/s²].

    """
    weights, free = parabola_weights(time), len(time) - 3
    taylor = np.column_stack((np.ones_like(time), time, 0.5 * time**2))
    factor = scipy.special.stdtrit(free, 1.0 - 0.5 * _RISK) / -scipy.special.ndtri(0.5 * _RISK)
    # What is left of a row by the parabola of the others, which it does not pull.
    left = (position - taylor @ (weights @ position)).T / (1.0 - (taylor.T * weights).sum(axis=0))
    return np.asarray(factor * weights[2] * left)


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
            worst = int(np.argmax(np.abs(v - np.polyval(np.polyfit(t, v, 1), t))))
            t, v = np.delete(t, worst), np.delete(v, worst)
        slopes[joint] = np.polyfit(t, v, 1)[0]
    return slopes


class AlignedWindow:
    """Window over the rows of a leading stream, completed by the readings of sensors.

    Rows wait until the sensors have caught up with them. A sensor that lags by more than
    ``max_delay`` is not waited for until it has caught up: only its own links become invalid.

    Attributes:
        newest: Newest stamp of the leading stream, ``NEVER`` before the first [ns].
        ahead: By sensor, why its stamps are ahead of those of the leading stream; empty if they
            are not.
        window: Complete rows: the leading columns, and 6 for each sensor's reading; and further
            columns, 6 for each sensor by which its mean since the row before differs from that of
            both readings.
        uneven_mean: Newest stamp at which such a difference is not zero [ns].

    """

    def __init__(
        self, feeds: Sequence[Feed], leading: int, values: WrenchParameters,
        name: str = 'joint_states',
    ) -> None:
        """Start empty.

        Args:
            feeds: The sensors' readings, of 6 values each.
            leading: Number of columns of the leading stream.
            values: The parameters.
            name: Name of the leading stream.

        """
        self._name = name
        count = COLUMNS * len(feeds)
        self.window = Window(values.window, leading + count, values.window_samples, count)
        self._feeds = tuple(feeds)
        self._leading = leading
        self._max_delay = round(values.max_delay * SECOND)
        self._waiting: deque[tuple[int, Array | Reading]] = deque()
        self._row = np.zeros(leading + count)
        self._why = [''] * len(feeds)
        self.clear()

    def clear(self) -> None:
        """Discard all rows."""
        self.newest = self._last_missed = self._before = self.uneven_mean = NEVER
        self._waiting.clear()
        self.window.clear()
        # By sensor: last row without a reading; the reason is in ``_why``.
        self._missed = [NEVER] * len(self._feeds)
        self.ahead = [''] * len(self._feeds)
        # By sensor: when its stamps were in step last, the newest check, and checks since then.
        self._in_step = [(-math.inf, -math.inf, 0)] * len(self._feeds)

    def add(self, stamp: int, row: Array | Reading) -> None:
        """Add a row of the leading stream; stamps must increase [ns]."""
        self._waiting.append((stamp, row))
        self.newest = stamp

    def take(self) -> int | None:
        """Complete the next row, move it into the window and return its stamp [ns].

        Columns of a sensor without a reading at that instant are zero; see ``missing``.

        Returns:
            None while no row waits, or readings that may still arrive in time are missing.

        """
        if not self._waiting:
            return None
        instant, newest, patience = self._waiting[0][0], self.newest, self._max_delay
        if newest - instant <= patience:
            for feed in self._feeds:
                if feed.newest < instant and newest - feed.newest <= patience:
                    return None
        row, leading = self._row, self._leading
        row[:leading] = self._waiting.popleft()[1]
        readings: list[float] = []
        several, since = False, self._before
        for index, feed in enumerate(self._feeds):
            found = feed.at(instant, since)
            if found is None or self.ahead[index]:
                self._miss(index, instant)
                found = _UNKNOWN
            readings += found
            several = several or feed.several
        extra, last = None, row[leading:].copy() if several else row
        row[leading:] = readings
        if several and since != NEVER:
            extra = self._average(last, instant)
        self._before = instant
        self.window.add(instant, row, extra)
        return instant

    def _miss(self, index: int, instant: int) -> None:
        feed = self._feeds[index]
        self._missed[index] = self._last_missed = instant
        self._why[index] = self.ahead[index] or feed.missing_reason(
            (self.newest - feed.newest) / SECOND, instant)

    def _average(self, before: Array, instant: int) -> Array:
        """Return the further columns of the row, for sensors faster than the leading stream."""
        now = self._row[self._leading:]
        extra = np.zeros_like(now)
        for index, feed in enumerate(self._feeds):
            place = slice(COLUMNS * index, COLUMNS * (index + 1))
            if self._missed[index] < self._before and feed.several:
                excess = feed.excess(self._before, before[place], instant, now[place])
                if excess is None:
                    self._miss(index, instant)
                else:
                    extra[place] = excess
        self.uneven_mean = instant
        return extra

    def compare(self, now: float, clock: Callable[[], int]) -> None:
        """Find sensors whose stamps are ahead of the leading stream, as samples arrive.

        Args:
            now: Time by a steady clock [s].
            clock: Returns the time by the clock with which samples are stamped [ns].

        """
        for index, feed in enumerate(self._feeds):
            self.judge(index, now, 0 if self.newest == NEVER else feed.newest - self.newest, clock)

    def judge(
        self, index: int, now: float, skew: int, clock: Callable[[], int] | None = None
    ) -> str:
        """Judge whether stamps of a sensor are ahead of the leading stream.

        Its readings are missing then, until they are in step again.

        Args:
            index: The sensor.
            now: Time of arrival of the newest samples [s].
            skew: Newest stamp of the sensor minus that of the leading stream [ns].
            clock: As for ``compare``; None if it is not that of the samples' arrival.

        Returns:
            ``ahead`` of the sensor.

        """
        if skew <= self._max_delay:
            self._in_step[index], self.ahead[index] = (now, now, 0), ''
            return ''
        since, last, count = self._in_step[index]
        count += now > last
        self._in_step[index] = since, now, count
        if not self.ahead[index] and count >= _AHEAD_TIMES and now - since >= _AHEAD_FOR:
            feed, most = self._feeds[index], self._max_delay
            early = 0 if clock is None else feed.newest - clock()
            also = f' and {1e3 * early / SECOND:.0f} ms ahead of the clock of this computer' if (
                most < early < _FAR * SECOND) else ''
            self.ahead[index] = (
                f"Stamps of sensor '{feed.name}' are {1e3 * skew / SECOND:.0f} ms "
                f'ahead of {self._name}{also}; at most max_delay ({1e3 * most / SECOND:.0f} ms) '
                'is expected. Synchronise the clocks (chrony, PTP), or set sensor_delays.')
        return self.ahead[index]

    def missing(self, since: int) -> list[str] | None:
        """Return by sensor why its readings since a stamp are incomplete, empty if complete.

        Args:
            since: The stamp [ns].

        Returns:
            None if the readings of all sensors are complete.

        """
        if self._last_missed < since:
            return None
        return [why if missed >= since else ''
                for why, missed in zip(self._why, self._missed, strict=True)]
