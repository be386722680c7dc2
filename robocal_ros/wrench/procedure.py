# SPDX-License-Identifier: Apache-2.0
"""Steps of a tare: collect samples at rest, check them, compensate the biases found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from robocal_ros.errors import CancelledError, DataError
from robocal_ros.results.result import CalibrationResult, RobotIdentity
from robocal_ros.wrench.estimate import TareRecord, Taring, to_result
from robocal_ros.wrench.observer import WrenchObserver
from robocal_ros.wrench.parameters import WrenchParameters

# Wall time allowed per time of rest, and at least [s]: a simulation may be slow.
_PATIENCE_FACTOR = 10.0
_LEAST_PATIENCE = 5.0
# Longest wait for the first sample [s].
_FIRST = 2.0


class Waiting(Protocol):
    """Waits while samples come in."""

    async def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds, at most ``timeout`` [s]; return whether it does."""


@dataclass(frozen=True)
class TareOutcome:
    """What came of a tare.

    Attributes:
        message: A sentence.
        result: The biases; None where only links with IMUs were tared.
        span: Stamps of the first and the last instant that was used [s].

    """

    message: str
    result: CalibrationResult | None = None
    span: tuple[float, float] = (0.0, 0.0)


class TareProcedure:
    """Tares an observer.

    Attributes:
        taring: Finds the biases.

    """

    def __init__(
        self, observer: WrenchObserver, values: WrenchParameters, robot: RobotIdentity,
        waiting: Waiting, why_silent: Callable[[], str],
    ) -> None:
        """Prepare.

        Args:
            observer: The observer.
            values: The parameters.
            robot: For which robot.
            waiting: Waits while samples come in.
            why_silent: Returns why no wrench is known, empty if that is not known.

        """
        self.taring = Taring(observer.arm, values)
        self._observer = observer
        self._values = values
        self._robot = robot
        self._waiting = waiting
        self._why_silent = why_silent
        self._stop = ''

    def cancel(self, reason: str) -> None:
        """Have a tare that is under way end."""
        self._stop = reason

    async def run(self) -> TareOutcome:
        """Tare, and compensate the biases from then on.

        Raises:
            DataError: If the arm moves, readings are missing, or no bias explains them.
            CancelledError: If it was ended meanwhile.

        """
        observer, duration = self._observer, self._values.tare_duration
        record = await self._collected(duration)
        if not record.stamps:
            if record.link_duration >= duration:
                return self._tare_links(record)
            why = observer.joint_complaint or self._why_silent()
            raise DataError(
                f'{why or "No joint states came during the tare."} Nothing was tared.')
        found = self.taring.find(record)
        observer.use_bias(found.bias)
        force, torque = abs(found.bias[:, :3]).max(), abs(found.bias[:, 3:]).max()
        names = self.taring.names
        message = ' '.join((
            f'{len(names)} sensors tared over {duration:g} s with the weight taken off; '
            f'biases up to {force:.2f} N and {torque:.3f} N·m.', *found.remarks))
        return TareOutcome(message, to_result(found, names, self._robot, self._values, 'live'),
                           (record.stamps[0], record.stamps[-1]))

    async def _collected(self, duration: float) -> TareRecord:
        self._stop = ''
        record = TareRecord()

        def begun() -> bool:
            return bool(self._stop or record.stamps or record.link_duration)

        def done() -> bool:
            covered = record.duration if record.stamps else record.link_duration
            return bool(self._stop) or covered >= duration

        self._observer.recorder = record
        try:
            if await self._waiting.until(begun, _FIRST):
                await self._waiting.until(
                    done, max(_LEAST_PATIENCE, _PATIENCE_FACTOR * duration))
        finally:
            self._observer.recorder = None
        if self._stop:
            raise CancelledError(self._stop)
        return record

    def _tare_links(self, record: TareRecord) -> TareOutcome:
        """Tare links with IMUs as a whole, where there are no joint states to tell weights."""
        found = self.taring.find_links(record)
        self._observer.use_link_biases(found)
        names = ', '.join(self._observer.arm.chains[index].link for index in found)
        return TareOutcome(
            f'No joint states come, so only links with IMUs were tared, each as a whole: {names}. '
            'This holds while their weight and biases turn with them.')
