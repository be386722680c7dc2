# SPDX-License-Identifier: Apache-2.0
"""Pacing of simulated time by the wall clock and by the consumers of the data."""

from __future__ import annotations

from dataclasses import dataclass

from robocal_ros.errors import ConfigurationError


@dataclass
class Consumer:
    """Progress of one consumer of the joint states.

    Attributes:
        time: Newest stamp that it has processed [s].
        last_report: Wall time of its last report [s].

    """

    time: float
    last_report: float


class Pacer:
    """Limiter of simulated time.

    With a real-time factor, simulated time follows the wall clock; delays of a slow machine are
    not made up for. It always stays within `max_lead` of the slowest consumer. A consumer that
    blocks simulated time without a report for `patience` is dropped.

    Args:
        factor: Simulated over wall time; 0: as fast as the consumers keep up.
        free_factor: Factor used instead of 0 without consumers; 0: unlimited.
        max_lead: Largest lead over the slowest consumer [s].
        patience: Wall time to wait for a consumer that does not report [s].

    """

    def __init__(
        self,
        factor: float,
        free_factor: float = 10.0,
        max_lead: float = 0.1,
        patience: float = 2.0,
    ) -> None:
        values = {'real_time_factor': factor, 'free_run_factor': free_factor, 'max_lead': max_lead}
        for name, value in values.items():
            if not 0.0 <= value < float('inf'):
                raise ConfigurationError(
                    f'The parameter {name} is {value}; expected a finite number that is not '
                    'negative.'
                )
        self._factor = factor
        self._free_factor = free_factor
        self._max_lead = max_lead
        self._patience = patience
        self._consumers: dict[str, Consumer] = {}
        self._anchor: tuple[float, float] | None = None
        self._rate = factor

    @property
    def consumers(self) -> tuple[str, ...]:
        """Names of the known consumers."""
        return tuple(self._consumers)

    def acknowledge(self, name: str, time: float, wall: float) -> None:
        """Record that a consumer has processed everything up to a stamp [s]."""
        self._consumers[name] = Consumer(time, wall)

    def remove(self, name: str) -> None:
        """Remove a consumer."""
        self._consumers.pop(name, None)

    def reset(self) -> None:
        """Remove all consumers and restart the clock comparison, after a clock jump."""
        self._consumers.clear()
        self._anchor = None

    def delay(self, now: float, wall: float) -> float:
        """Return the wall time to wait before simulated time may advance [s].

        Args:
            now: Simulated time [s].
            wall: Wall time [s].

        """
        rate = self._factor or (0.0 if self._consumers else self._free_factor)
        if not rate:
            self._anchor = None
            return 0.0
        if self._anchor is None or rate != self._rate:
            self._anchor = (now, wall)
            self._rate = rate
        due = self._anchor[1] + (now - self._anchor[0]) / rate
        if wall > due + 0.1:
            self._anchor = (now, wall)
            return 0.0
        return max(0.0, due - wall)

    def held_up(self, newest: float) -> bool:
        """Return whether simulated time has to wait for the slowest consumer.

        Args:
            newest: Stamp of the newest published joint states [s].

        """
        limit = newest - self._max_lead
        return any(consumer.time < limit for consumer in self._consumers.values())

    def drop_silent(self, newest: float, wall: float, since: float) -> list[str]:
        """Drop consumers that block simulated time without a report; return their names.

        Args:
            newest: Stamp of the newest published joint states [s].
            wall: Wall time [s].
            since: Wall time since which simulated time has been blocked [s].

        """
        limit = newest - self._max_lead
        silent = [
            name for name, consumer in self._consumers.items()
            if consumer.time < limit and wall - max(consumer.last_report, since) > self._patience
        ]
        for name in silent:
            del self._consumers[name]
        return silent
