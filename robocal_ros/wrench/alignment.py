# SPDX-License-Identifier: Apache-2.0
"""Readings of one sensor on their way to a common instant: checked, kept, interpolated."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError

# Readings that are kept at least: seconds of them, for those who come late.
_KEPT = 4000


class Feed:
    """The readings of one sensor, by stamps.

    A reading that is not usable counts as lost. What is wrong stays known until a good one
    comes, so that whoever misses the readings can say why.

    Attributes:
        name: Name of the sensor, for sentences.
        newest: Newest usable stamp, -inf before the first [s].
        complaint: What is wrong with the newest reading, empty if nothing is.
        rejected: How many readings were not usable.

    """

    def __init__(
        self, name: str, *, max_gap: float, stuck_time: float = 0.0,
        ranges: Sequence[float] = (),
    ) -> None:
        """Start with nothing heard.

        Args:
            name: Name of the sensor.
            max_gap: Longest gap between readings across which is interpolated [s].
            stuck_time: Readings that stay the same for so long are stuck; 0 for no such check
                [s].
            ranges: Largest magnitude that each value can show; 0 or none for no limit.

        Raises:
            ConfigurationError: If a limit is negative.

        """
        if max_gap <= 0.0 or stuck_time < 0.0 or any(limit < 0.0 for limit in ranges):
            raise ConfigurationError(
                f"Limits of sensor '{name}' must not be negative: gap {max_gap} s, stuck "
                f'{stuck_time} s, ranges {list(ranges)}.')
        self.name = name
        self.newest = float('-inf')
        self.complaint = ''
        self.rejected = 0
        self._max_gap = max_gap
        self._stuck_time = stuck_time
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
        self.complaint = ''
        self._last = ()

    def refuse(self, complaint: str) -> None:
        """Note a reading that is not usable, and why."""
        self.complaint = complaint
        self.rejected += 1

    def refuse_frame(self, frame: str) -> None:
        """Note a reading that names another frame than the sensor's own, which is its name."""
        self.refuse(f"Sensor '{self.name}' names frame '{frame}' in its messages, expected "
                    f"'{self.name}'; correct its frame parameter or its driver.")

    def add(self, stamp: float, values: tuple[float, ...]) -> None:
        """Check and keep a reading.

        Args:
            stamp: Its stamp, newer than the newest [s].
            values: Its values.

        """
        total = sum(values)
        if total - total != 0.0:
            self.refuse(f"Sensor '{self.name}' sends values that are not finite numbers; check "
                        'its driver.')
            return
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
        self.complaint = ''
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


class Instants:
    """Rows of a leading stream that wait until the sensors have caught up with them.

    A sensor that stays behind by more than ``max_delay`` is waited for no more until it has
    caught up: it costs its own links, not the others.

    Attributes:
        newest: Newest stamp, -inf before the first [s].

    """

    def __init__(self, feeds: Sequence[Feed], max_delay: float) -> None:
        """Take the sensors.

        Args:
            feeds: The sensors' readings.
            max_delay: Longest wait, by stamps [s].

        """
        self.newest = float('-inf')
        self._feeds = tuple(feeds)
        self._max_delay = max_delay
        self._waiting: deque[tuple[float, Array]] = deque()

    def clear(self) -> None:
        """Forget what waits."""
        self._waiting.clear()
        self.newest = float('-inf')

    def add(self, stamp: float, row: Array) -> None:
        """Add a row; stamps must increase [s]."""
        self._waiting.append((stamp, row))
        self.newest = stamp

    def take(self) -> tuple[float, Array] | None:
        """Return the next row for which all is there that will come in time, or None."""
        if not self._waiting:
            return None
        instant, newest, patience = self._waiting[0][0], self.newest, self._max_delay
        if newest - instant <= patience:
            for feed in self._feeds:
                if feed.newest < instant and newest - feed.newest <= patience:
                    return None
        return self._waiting.popleft()

    def lag(self, feed: Feed) -> float:
        """Return how far a sensor's newest reading lies behind the newest row [s]."""
        return self.newest - feed.newest
