# SPDX-License-Identifier: Apache-2.0
"""Samples of several sources on common instants: checked, buffered, interpolated, windowed."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.wrench.parameters import WrenchParameters
from robocal_ros.wrench.smoothing import Window

COLUMNS = 6
"""Values of one reading: force and torque, or specific force and angular velocity."""

# Readings that are kept at least: seconds of them, for those who come late.
_KEPT = 4000


class Feed:
    """The readings of one sensor, by stamps.

    A reading that is not usable counts as lost. What is wrong stays known until a good one
    comes, so that whoever misses the readings can say why.

    Attributes:
        name: Name of the sensor, for sentences.
        newest: Newest usable stamp, -inf before the first [s].
        problem: What is wrong with the newest reading, empty if nothing is.
        rejected: How many readings were not usable.

    """

    def __init__(
        self, name: str, values: WrenchParameters, ranges: Sequence[float] = ()
    ) -> None:
        """Start without readings.

        Args:
            name: Name of the sensor.
            values: The parameters; ``max_delay`` is also the longest gap between readings
                across which they are interpolated.
            ranges: Largest magnitude that each value can show; 0 or none for no limit.

        """
        self.name = name
        self.newest = float('-inf')
        self.problem = ''
        self.rejected = 0
        self._max_gap = values.max_delay
        self._stuck_time = values.stuck_time
        # A converter at its end may show one step less.
        self._limits = [(i, 0.999 * limit) for i, limit in enumerate(ranges) if limit > 0.0]
        self._stamps: list[float] = []
        self._values: list[tuple[float, ...]] = []
        self._last: tuple[float, ...] = ()
        self._same_since = float('-inf')

    def clear(self) -> None:
        """Forget all readings, as after a jump of the clock."""
        self._stamps.clear()
        self._values.clear()
        self.newest = float('-inf')
        self.problem = ''
        self._last = ()

    def refuse(self, problem: str) -> None:
        """Note a reading that is not usable, and why."""
        self.problem = problem
        self.rejected += 1

    def add(self, stamp: float, values: tuple[float, ...]) -> None:
        """Check and keep a reading.

        Args:
            stamp: Its stamp, newer than the newest [s].
            values: Its values, finite numbers.

        """
        for index, limit in self._limits:
            if not -limit < values[index] < limit:
                self.refuse(f"Sensor '{self.name}' is saturated: value {index + 1} of "
                            f'{len(values)} reads {values[index]:.4g}, its range ends at '
                            f'{limit / 0.999:.4g}. Take the load off.')
                return
        if values != self._last:
            self._last, self._same_since = values, stamp
        elif self._stuck_time and stamp - self._same_since > self._stuck_time:
            self.refuse(f"Sensor '{self.name}' has sent the same values for "
                        f'{stamp - self._same_since:.1f} s; a live one scatters. Check it.')
            return
        self.problem = ''
        self.newest = stamp
        self._stamps.append(stamp)
        self._values.append(values)
        if len(self._stamps) > 2 * _KEPT:
            del self._stamps[:_KEPT], self._values[:_KEPT]

    def at(self, instant: float) -> Sequence[float] | None:
        """Return the values at an instant, interpolated; None where there are none.

        Args:
            instant: Any instant of the last seconds [s].

        """
        stamps = self._stamps
        place = bisect_right(stamps, instant)
        if place == 0:
            return None
        before, values = stamps[place - 1], self._values[place - 1]
        if before == instant:
            return values
        if place == len(stamps) or stamps[place] - before > self._max_gap:
            return None
        after, others = stamps[place], self._values[place]
        share = (instant - before) / (after - before)
        return [a + share * (b - a) for a, b in zip(values, others, strict=True)]

    def missing_reason(self, lag: float) -> str:
        """Return in a sentence why readings are missing.

        Args:
            lag: How far the newest reading lies behind [s].

        """
        if self.problem:
            return self.problem
        if not np.isfinite(self.newest):
            return f"No readings come from sensor '{self.name}'; check its topic and driver."
        if lag > 1.0:
            return f"Sensor '{self.name}' has been silent for {lag:.1f} s; check its driver."
        if lag > self._max_gap:
            return (f"Readings of sensor '{self.name}' come {1e3 * lag:.0f} ms late, more than "
                    f'max_delay ({1e3 * self._max_gap:.0f} ms).')
        return f"Readings of sensor '{self.name}' are missing."


class AlignedWindow:
    """Window over the rows of a leading stream, completed by the readings of sensors.

    Rows wait until the sensors have caught up with them. A sensor that stays behind by more
    than ``max_delay`` is waited for no more until it has caught up: it costs its own links, not
    the others.

    Attributes:
        newest: Newest stamp of the leading stream, -inf before the first [s].
        window: The rows that are complete: the leading columns, then 6 for each sensor.

    """

    def __init__(self, feeds: Sequence[Feed], leading: int, values: WrenchParameters) -> None:
        """Start empty.

        Args:
            feeds: The sensors' readings, of 6 values each.
            leading: Number of columns of the leading stream.
            values: The parameters.

        """
        columns = leading + COLUMNS * len(feeds)
        self.newest = float('-inf')
        self.window = Window(values.window, columns)
        self._feeds = tuple(feeds)
        self._leading = leading
        self._max_delay = values.max_delay
        self._waiting: deque[tuple[float, Array | tuple[float, ...]]] = deque()
        self._row = np.zeros(columns)
        # By sensor: the last instant without a reading, and why there was none.
        self._missed = [float('-inf')] * len(feeds)
        self._why = [''] * len(feeds)
        self._last_missed = float('-inf')

    def clear(self) -> None:
        """Forget all rows."""
        self.newest = self._last_missed = float('-inf')
        self._waiting.clear()
        self.window.clear()
        self._missed = [float('-inf')] * len(self._feeds)

    def add(self, stamp: float, row: Array | tuple[float, ...]) -> None:
        """Add a row of the leading stream; stamps must increase [s]."""
        self._waiting.append((stamp, row))
        self.newest = stamp

    def take(self) -> float | None:
        """Complete the next row, move it into the window and return its stamp [s].

        Columns of a sensor without a reading at that instant keep earlier values; see
        ``missing``.

        Returns:
            None while no row waits, or readings that may come in time are still missing.

        """
        if not self._waiting:
            return None
        instant, newest, patience = self._waiting[0][0], self.newest, self._max_delay
        if newest - instant <= patience:
            for feed in self._feeds:
                if feed.newest < instant and newest - feed.newest <= patience:
                    return None
        row, column = self._row, self._leading
        row[:column] = self._waiting.popleft()[1]
        for index, feed in enumerate(self._feeds):
            values = feed.at(instant)
            if values is None:
                self._missed[index] = self._last_missed = instant
                self._why[index] = feed.missing_reason(newest - feed.newest)
            else:
                row[column:column + COLUMNS] = values
            column += COLUMNS
        self.window.add(instant, row)
        return instant

    def missing(self, since: float) -> list[str] | None:
        """Return by sensor why its readings since a stamp are incomplete, empty where complete.

        Args:
            since: The stamp [s].

        Returns:
            None if the readings of all sensors are complete.

        """
        if self._last_missed < since:
            return None
        return [why if missed >= since else ''
                for why, missed in zip(self._why, self._missed, strict=True)]
