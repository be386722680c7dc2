# SPDX-License-Identifier: Apache-2.0
"""The service ``~/tare``: collects at rest, checks, and hands the biases over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robocal_ros import __version__
from robocal_ros.errors import CancelledError, DataError
from robocal_ros.messages import marks
from robocal_ros.results.result import CalibrationResult
from robocal_ros.wrench import tare
from robocal_ros.wrench.capability import TARE, tare_settings

if TYPE_CHECKING:
    from robocal_ros.wrench.node import WrenchObserverNode


# Wall time allowed per time of rest, and at least [s]: a simulation may be slow.
_PATIENCE_FACTOR = 10.0
_LEAST_PATIENCE = 5.0
# Longest wait for the first sample [s].
_FIRST = 2.0


class TareProcedure:
    """Tares when asked, and uses tares that are stored."""

    def __init__(self, node: WrenchObserverNode) -> None:
        """Prepare.

        Args:
            node: The configured node.

        """
        self._node = node
        self._settings = tare_settings(node.values)
        self._frames = [mount.frame for mount in node.observer.arm.mounts]
        self._taring = tare.Taring(node.observer.arm, self._frames, self._settings)
        self._stop = ''

    def forget_postures(self) -> None:
        """Forget earlier postures, as when the load has changed."""
        self._taring.forget()

    def cancel(self, reason: str) -> None:
        """Have a tare that is under way end."""
        self._stop = reason

    def use(self, result: CalibrationResult) -> None:
        """Use a stored tare.

        Raises:
            DataError: If it is of other sensors.

        """
        self._node.set_bias(tare.biases(result, self._frames))
        self._node.publish_tare(result)

    async def run(self) -> str:
        """Tare; returns a sentence.

        Raises:
            DataError: If the arm moves, readings are missing, or no bias explains them.
            CancelledError: If it was ended meanwhile.

        """
        node, observer = self._node, self._node.observer
        self._stop = ''
        record = tare.TareRecord()
        observer.recorder = record
        node.status.say('taring', 'Collecting at rest; let nothing touch the arm.')
        duration = self._settings.duration
        patience = max(_LEAST_PATIENCE, _PATIENCE_FACTOR * duration)

        def begun() -> bool:
            return bool(self._stop or record.stamps or record.link_duration)

        def done() -> bool:
            heard = record.duration if record.stamps else record.link_duration
            return bool(self._stop) or heard >= duration

        try:
            if await node.pulse.until(begun, _FIRST):
                await node.pulse.until(done, patience)
        finally:
            observer.recorder = None
        if self._stop:
            raise CancelledError(self._stop)
        if not record.stamps and record.link_duration >= duration:
            return self._tare_links(record)
        self._refuse_silence(record)
        found = self._taring.find(record)
        node.set_bias(found.bias)
        observer.link_bias.clear()
        # Whoever reads a bag can tare with the same samples.
        node.marks.say(marks.TARED, TARE, {
            marks.JOINTS: f'{record.stamps[0]!r} {record.stamps[-1]!r}'})
        result = tare.to_result(
            found, self._frames, node.identity, self._settings, source='live',
            software_version=__version__)
        node.store.save(result)
        node.publish_tare(result)
        force = abs(found.bias[:, :3]).max()
        torque = abs(found.bias[:, 3:]).max()
        return ' '.join((
            f'{len(self._frames)} sensors tared over {duration:g} s with the weight taken off; '
            f'biases up to {force:.2f} N and {torque:.3f} N·m.', *found.remarks))

    def _refuse_silence(self, record: tare.TareRecord) -> None:
        if record.stamps:
            return
        node = self._node
        why = node.observer.joint_complaint or node.health.first_reason
        raise DataError(
            f'{why or "No joint states came during the tare."} Nothing was tared.')

    def _tare_links(self, record: tare.TareRecord) -> str:
        """Tare links with IMUs as a whole, where there are no joint states to tell weights."""
        found = self._taring.find_links(record)
        observer = self._node.observer
        observer.link_bias.update(found)
        observer.settle()
        self._node.tared = True
        names = ', '.join(observer.arm.chains[index].link for index in found)
        return (f'No joint states come, so only links with IMUs were tared, each as a whole: '
                f'{names}. This holds while their weight and biases turn with them.')
