# SPDX-License-Identifier: Apache-2.0
"""Samples of several sources at common instants: checked, buffered, interpolated, windowed."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.messages import SECOND
from robocal_ros.wrench.parameters import WrenchParameters
from robocal_ros.wrench.smoothing import Window

COLUMNS = 6
"""Values of one reading: force and torque, or specific force and angular velocity."""

NEVER = -2**62
"""Stamp before the first one [ns]."""

# Smallest number of readings that are kept: seconds of them, for late instants; and how many are
# forgotten at a time, because thousands of several sensors together take milliseconds.
_KEPT, _FORGOTTEN = 4000, 200

Reading = tuple[float, ...]

_UNKNOWN: Reading = (0.0,) * COLUMNS

FORCE_TORQUE, ACCELERATION_RATE = (1e5,) * COLUMNS, (1e4,) * 3 + (1e3,) * 3
"""Largest plausible values of F/T sensors without stated range [N, N·m] and of IMUs [m/s²,
rad/s]."""

# Multiple of the stated range up to which a reading is saturated; beyond it is implausible.
_PLAUSIBLE = 10.0


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

    """

    def __init__(
        self, name: str, values: WrenchParameters, ranges: Sequence[float] = (),
        delay: float = 0.0, plausible: Sequence[float] = FORCE_TORQUE,
    ) -> None:
        """Start without readings.

        Args:
            name: Name of the sensor.
            values: The parameters; ``max_delay`` is also the longest gap between readings
                that is interpolated.
            ranges: Measuring range of each value; 0 or none for no limit.
            delay: Time by which readings are older than their stamps [s].
            plausible: Largest plausible size of each value, where no range is given.

        """
        self.name = name
        self.newest = NEVER
        self.problem = ''
        self.rejected = 0
        self.several = False
        self.refused = NEVER, ''
        self.max_gap = round(values.max_delay * SECOND)
        self.stuck_time = round(values.stuck_time * SECOND)
        self.delay = round(delay * SECOND)
        # A converter may reach one step less than its range.
        self.limits = [(i, 0.999 * limit) for i, limit in enumerate(ranges) if limit > 0.0]
        self.plausible = list(plausible)
        for i, limit in self.limits:
            self.plausible[i] = _PLAUSIBLE * limit
        self.inner = min(*self.plausible, *(limit for _, limit in self.limits))
        self._inner_square = self.inner**2
        self._stamps: list[int] = []
        self._values: list[Reading | None] = []
        self._last: Reading = ()
        self._same_since = NEVER

    def clear(self) -> None:
        """Discard all readings, as after a jump of the clock."""
        self._stamps.clear()
        self._values.clear()
        self.newest = NEVER
        self.problem = ''
        self._last = ()

    def refuse(self, problem: str, stamp: int | None = None) -> None:
        """Note an unusable reading.

        Args:
            problem: Its problem, as a sentence.
            stamp: Its stamp [ns]; None if it has none.

        """
        if stamp is not None:
            self._keep(stamp - self.delay, None)
        self._note(problem, self.newest)

    def _note(self, problem: str, stamp: int) -> None:
        self.problem = problem
        self.rejected += 1
        self.refused = stamp, problem

    def add(self, stamp: int, values: Reading) -> None:
        """Check and keep a reading.

        Args:
            stamp: Its stamp, newer than the newest [ns].
            values: Its values, finite numbers.

        """
        stamp -= self.delay
        fx, fy, fz, mx, my, mz = values
        within = fx * fx + fy * fy + fz * fz + mx * mx + my * my + mz * mz < self._inner_square
        if not within:
            for index, limit in enumerate(self.plausible):
                if not -limit < values[index] < limit:
                    self.refuse(self.implausible(values, index), stamp + self.delay)
                    return
            for index, limit in self.limits:
                if not -limit < values[index] < limit:
                    self._note(self.saturation(values, index), stamp)
                    self._keep(stamp, Saturated(values))
                    return
        if values != self._last:
            self._last, self._same_since = values, stamp
        elif self.stuck_time and stamp - self._same_since > self.stuck_time:
            self.refuse(self.stuck(stamp - self._same_since), stamp + self.delay)
            return
        self.problem = ''
        self.newest = stamp
        self._stamps.append(stamp)
        self._values.append(values)
        if len(self._stamps) >= _KEPT + _FORGOTTEN:
            self._forget()

    def saturation(self, values: Sequence[float], index: int) -> str:
        """Return a sentence on a reading of which value ``index`` is at the end of its range."""
        return (f"Sensor '{self.name}' is saturated: value {index + 1} of {len(values)} reads "
                f'{values[index]:.4g}, its range ends at '
                f'{dict(self.limits)[index] / 0.999:.4g}. Reduce the load.')

    def implausible(self, values: Sequence[float], index: int) -> str:
        """Return a sentence on a reading of which value ``index`` is beyond any real one."""
        return (f"Sensor '{self.name}' sent an implausible reading: value {index + 1} of "
                f'{len(values)} is {values[index]:.4g}, expected less than '
                f'{self.plausible[index]:.4g}. Check sensor, driver and units.')

    def stuck(self, since: int) -> str:
        """Return a sentence on constant values since a time [ns]."""
        return (f"Sensor '{self.name}' has sent the same values for {since / SECOND:.1f} s; "
                'a working one scatters. Check it.')

    def _keep(self, stamp: int, values: Reading | None) -> None:
        self.newest = stamp
        self._stamps.append(stamp)
        self._values.append(values)
        if len(self._stamps) >= _KEPT + _FORGOTTEN:
            self._forget()

    def _forget(self) -> None:
        del self._stamps[:_FORGOTTEN], self._values[:_FORGOTTEN]

    def at(self, instant: int, since: int = NEVER) -> Reading | None:
        """Return the values at an instant, interpolated; None if they are not known.

        Args:
            instant: Any instant of the last seconds [ns].
            since: The instant before, for ``several`` [ns].

        """
        stamps = self._stamps
        place = bisect_right(stamps, instant)
        if place == 0:
            self.several = False
            return None
        begin = stamps[place - 1]
        last = place - 2 if begin < instant else place - 3
        self.several = last >= 0 and stamps[last] > since
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
        return self._values[max(0, place - 1):place + 1]

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
        if self.newest == NEVER:
            return (f"No readings are received from sensor '{self.name}'; check its topic and "
                    'driver.')
        if lag > 1.0:
            return f"Sensor '{self.name}' has been silent for {lag:.1f} s; check its driver."
        longest = self.max_gap / SECOND
        if lag > longest:
            return (f"Readings of sensor '{self.name}' are {1e3 * lag:.0f} ms late, more than "
                    f'max_delay ({1e3 * longest:.0f} ms).')
        return f"Readings of sensor '{self.name}' are missing."


class AlignedWindow:
    """Window over the rows of a leading stream, completed by the readings of sensors.

    Rows wait until the sensors have caught up with them. A sensor that lags by more than
    ``max_delay`` is not waited for until it has caught up: only its own links become invalid.

    Attributes:
        newest: Newest stamp of the leading stream, ``NEVER`` before the first [ns].
        window: Complete rows: the leading columns, and 6 for each sensor's reading; and further
            columns, 6 for each sensor by which its mean since the row before differs from that of
            both readings.
        uneven_mean: Newest stamp at which such a difference is not zero [ns].

    """

    def __init__(self, feeds: Sequence[Feed], leading: int, values: WrenchParameters) -> None:
        """Start empty.

        Args:
            feeds: The sensors' readings, of 6 values each.
            leading: Number of columns of the leading stream.
            values: The parameters.

        """
        count = COLUMNS * len(feeds)
        self.newest = NEVER
        self.window = Window(values.window, leading + count, values.window_samples, count)
        self.uneven_mean = NEVER
        self._feeds = tuple(feeds)
        self._leading = leading
        self._max_delay = round(values.max_delay * SECOND)
        self._waiting: deque[tuple[int, Array | Reading]] = deque()
        self._row = np.zeros(leading + count)
        # Sensor that was last waited for.
        self._awaited: Feed | None = None
        self._before = NEVER
        # By sensor: last row without a reading, and the reason.
        self._missed = [NEVER] * len(feeds)
        self._why = [''] * len(feeds)
        self._last_missed = NEVER

    def clear(self) -> None:
        """Discard all rows."""
        self.newest = self._last_missed = self._before = self.uneven_mean = NEVER
        self._waiting.clear()
        self.window.clear()
        self._missed = [NEVER] * len(self._feeds)

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
            awaited = self._awaited
            if awaited is not None and awaited.newest < instant \
                    and newest - awaited.newest <= patience:
                return None
            for feed in self._feeds:
                if feed.newest < instant and newest - feed.newest <= patience:
                    self._awaited = feed
                    return None
        row, leading = self._row, self._leading
        row[:leading] = self._waiting.popleft()[1]
        readings: list[float] = []
        several, since = False, self._before
        for index, feed in enumerate(self._feeds):
            found = feed.at(instant, since)
            if found is None:
                self._miss(index, instant, newest)
                found = _UNKNOWN
            readings += found
            if feed.several:
                several = True
        extra = None
        if readings:
            last = row[leading:].copy() if several else row
            row[leading:] = readings
            if several and since != NEVER:
                extra = self._average(last, instant)
        self._before = instant
        self.window.add(instant, row, extra)
        return instant

    def _miss(self, index: int, instant: int, newest: int) -> None:
        feed = self._feeds[index]
        self._missed[index] = self._last_missed = instant
        self._why[index] = feed.missing_reason((newest - feed.newest) / SECOND, instant)

    def _average(self, before: Array, instant: int) -> Array:
        """Return the further columns of the row, for sensors faster than the leading stream."""
        now = self._row[self._leading:]
        extra = np.zeros_like(now)
        for index, feed in enumerate(self._feeds):
            place = slice(COLUMNS * index, COLUMNS * (index + 1))
            if self._missed[index] < self._before and feed.several:
                excess = feed.excess(self._before, before[place], instant, now[place])
                if excess is None:
                    self._miss(index, instant, self.newest)
                else:
                    extra[place] = excess
        self.uneven_mean = instant
        return extra

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
