# SPDX-License-Identifier: Apache-2.0
"""How fast simulated time may run: by the wall clock, and by those who consume the data."""

from __future__ import annotations

from dataclasses import dataclass

from robocal_ros.errors import ConfigurationError


@dataclass
class Consumer:
    """Someone who reports how far it has processed the joint states.

    Attributes:
        time: Newest stamp that it has processed [s].
        last_report: Wall time of its last report [s].

    """

    time: float
    last_report: float


class Pacer:
    """Decides when simulated time may go on.

    With a real-time factor, simulated time follows the wall clock; what is lost when the
    machine is too slow is not caught up. In any case it stays within `max_lead` of the slowest
    consumer. A consumer that is waited for and silent for `patience` is dropped.

    Args:
        factor: Simulated over wall time; 0 for as fast as the consumers keep up.
        free_factor: Factor used for 0 while there is no consumer; 0 for no bound.
        max_lead: Lead over the slowest consumer [s].
        patience: Wall time that a silent consumer is waited for [s].

    """

    def __init__(
        self,
        factor: float,
        free_factor: float = 10.0,
        max_lead: float = 0.1,
        patience: float = 2.0,
    ) -> None:
        values = {'real_time_factor': factor, 'free_run_factor': free_factor,
                  'max_lead': max_lead}
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
        """Note that a consumer has processed everything up to a stamp [s]."""
        self._consumers[name] = Consumer(time, wall)

    def forget(self, name: str) -> None:
        """Wait no more for a consumer that takes its leave."""
        self._consumers.pop(name, None)

    def reset(self) -> None:
        """Forget all consumers and start the clock comparison anew, as after a clock jump."""
        self._consumers.clear()
        self._anchor = None

    def delay(self, now: float, wall: float) -> float:
        """Return how long to wait by the wall clock before simulated time goes on [s].

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
        """Tell whether the slowest consumer is too far behind for time to go on.

        Args:
            newest: Stamp of the newest joint states that were published [s].

        """
        limit = newest - self._max_lead
        return any(consumer.time < limit for consumer in self._consumers.values())

    def drop_silent(self, newest: float, wall: float, since: float) -> list[str]:
        """Drop consumers that hold time up and are silent; return their names.

        Args:
            newest: Stamp of the newest joint states that were published [s].
            wall: Wall time [s].
            since: Wall time since which time has been held up [s].

        """
        limit = newest - self._max_lead
        silent = [
            name for name, consumer in self._consumers.items()
            if consumer.time < limit and wall - max(consumer.last_report, since) > self._patience
        ]
        for name in silent:
            del self._consumers[name]
        return silent
