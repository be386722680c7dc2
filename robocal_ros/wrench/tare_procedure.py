# SPDX-License-Identifier: Apache-2.0
"""Steps of a tare: collect samples at rest, check them, compensate the biases found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from robocal_ros.errors import DataError
from robocal_ros.results import CalibrationResult, Verdict
from robocal_ros.wrench.model import TareRecord
from robocal_ros.wrench.observer import WrenchObserver
from robocal_ros.wrench.parameters import WrenchParameters
from robocal_ros.wrench.tare import FEWEST_POSTURES, Taring, Zeroing

# Wall time allowed per second at rest, and at least [s]: a simulation may be slow.
_PATIENCE_FACTOR = 10.0
_LEAST_PATIENCE = 5.0
# Longest wait for the first sample [s].
_FIRST = 2.0


@dataclass(frozen=True)
class TareOutcome:
    """Outcome of a tare.

    Attributes:
        message: Sentence for the user.
        result: The biases; None where only links with IMUs were tared.
        span: Stamps of the first and the last instant used [ns].

    """

    message: str
    result: CalibrationResult | None = None
    span: tuple[int, int] = (0, 0)


class TareProcedure:
    """Tare of an observer.

    Attributes:
        taring: Estimates the biases.
        zeroing: Estimates the torque zeros.

    """

    def __init__(
        self, observer: WrenchObserver,
        until_stopped: Callable[[Callable[[], bool], float], Awaitable[bool]],
        why_silent: Callable[[], str],
    ) -> None:
        """Set the attributes.

        Args:
            observer: The observer.
            until_stopped: Waits until a condition holds, at most for a time [s]; returns whether
                it does, and raises CancelledError if the procedure was cancelled.
            why_silent: Returns why no wrench is valid, empty if unknown.

        """
        self.taring = Taring(observer.arm)
        self.zeroing = Zeroing(observer)
        self._observer = observer
        self._until_stopped = until_stopped
        self._why_silent = why_silent
        self._record = TareRecord()

    def clear(self) -> int:
        """Discard samples and earlier postures, as after a change of the load.

        Returns:
            Number of instants that were recorded.

        """
        count = len(self._record.rows)
        self._record = TareRecord()
        self.taring.seen.clear()
        self.zeroing.rests.clear()
        return count

    async def run(self, values: WrenchParameters) -> TareOutcome:
        """Collect samples at rest and tare with them.

        Args:
            values: The parameters.

        Raises:
            DataError: If the arm moves, readings are missing, or no plausible bias explains them.
            CancelledError: If the procedure was cancelled.

        """
        if not self._observer.sensors:
            raise DataError('The arm has no F/T sensor to tare; for the zeros of joint torques '
                            'call ~/zero.')
        await self._collect(values)
        return self.estimate(values)

    async def zero(
        self, values: WrenchParameters, before: CalibrationResult | None
    ) -> TareOutcome:
        """Collect samples at rest, and find torque zeros with those of earlier postures.

        Args:
            values: The parameters.
            before: Zeros in use, which tell the drift since then; None without any.

        Raises:
            DataError: If the arm moves, efforts are missing, or no plausible zeros explain them.
            CancelledError: If the procedure was cancelled.

        """
        observer = self._observer
        touched = [name for name, judge in zip(
            self.taring.names, observer.contacts.judges, strict=True) if judge.in_contact]
        if observer.tared and touched:
            raise DataError(f'Something touches the arm distal to {", ".join(touched)}. Let '
                            'nothing touch it and call again.')
        await self._collect(values)
        self.zeroing.add(self.taring.at_rest(self._record, values), values)
        result = self.zeroing.result(values, before)
        count = len(self.zeroing.rests)
        if result.verdict is not Verdict.PASS:
            reasons = '' if count < FEWEST_POSTURES else f'{" ".join(result.reasons)} '
            return TareOutcome(
                f'{count} postures so far, of {FEWEST_POSTURES} or more; the zeros are not used '
                f'yet. {reasons}Move the arm so that the weight on its joints differs, and call '
                'again.', result)
        observer.use_torque_zero(result)
        largest = abs(result.values(result.covariance_names)).max()
        return TareOutcome(
            f'Zeros of the joint torques from {count} postures, up to {largest:.3f} N·m, with '
            f'standard deviations up to {max(p.std or 0.0 for p in result.parameters):.3f} N·m.',
            result)

    async def _collect(self, values: WrenchParameters) -> None:
        """Collect samples at rest; errors as for ``run``."""
        observer, duration = self._observer, values.tare_duration
        record = self._record = observer.recorder = TareRecord()
        try:
            if await self._until_stopped(
                    lambda: bool(record.rows or record.link_duration), _FIRST):
                await self._until_stopped(
                    lambda: (record.duration if record.rows else record.link_duration)
                    >= duration,
                    max(_LEAST_PATIENCE, _PATIENCE_FACTOR * duration))
        finally:
            observer.recorder = None
        if not record.rows and record.link_duration < duration:
            why = observer.joint_chains.problem or self._why_silent()
            raise DataError(
                f'{why or "No joint states were received during the tare."} Nothing was tared.')

    def estimate(self, values: WrenchParameters) -> TareOutcome:
        """Tare with the samples collected last, and compensate the biases from now on.

        Args:
            values: The parameters.

        Raises:
            DataError: If there are none, or as for ``run``.

        """
        record = self._record
        if not record.rows:
            return self._tare_links(record, values)
        result, remarks = self.taring.find(record, values)
        self._observer.use_tare(result)
        size = abs(self._observer.bias)
        message = ' '.join((
            f'{len(size)} sensors tared over {values.tare_duration:g} s with gravity compensated; '
            f'biases up to {size[:, :3].max():.2f} N and {size[:, 3:].max():.3f} N·m.', *remarks))
        return TareOutcome(message, result, (record.rows[0].stamp, record.rows[-1].stamp))

    def _tare_links(self, record: TareRecord, values: WrenchParameters) -> TareOutcome:
        """Tare links with IMUs as a whole if there are no joint states to predict weights."""
        if record.link_duration == 0.0:
            raise DataError('No samples at rest are recorded; call run with the arm at rest.')
        found = self.taring.find_links(record, values)
        self._observer.use_link_biases(found)
        names = ', '.join(self._observer.arm.chains[index].link for index in found)
        return TareOutcome(
            f'Without joint states only links with IMUs were tared, each as a whole: {names}. '
            'The tare is valid while their weight and biases rotate with them.')
