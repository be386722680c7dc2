# SPDX-License-Identifier: Apache-2.0
"""Reading the tracker while the arm rests."""

from __future__ import annotations

import numpy as np

from robocal_ros.core.compliance.positions import (
    DwellSettings,
    EndPosition,
    find_end_positions,
)
from robocal_ros.errors import DataError
from robocal_ros.ros.procedure import ProcedureNode
from robocal_ros.ros.tracker_stream import TrackerStream

# How often a rest is prolonged by another dwell before the target counts as not seen.
_PATIENCE = 3
# Stamps of tracker and joint states further apart than this come from different clocks [s].
_OTHER_CLOCK = 5.0
# Readings older than this by the newest joint state may still be on their way [s].
_LATE = 0.2


class RestReader:
    """Collects joint angles and tracker readings of one rest, and averages them."""

    def __init__(self, node: ProcedureNode, tracker: TrackerStream, dwell: DwellSettings) -> None:
        """Prepare.

        Args:
            node: The node.
            tracker: The tracker's topic.
            dwell: How rests become end positions.

        """
        self._node = node
        self._tracker = tracker
        self._dwell = dwell
        self._received = 0

    async def wait(self) -> None:
        """Wait until somebody sends tracker messages that are of use.

        Raises:
            DataError: If nobody does within the tracker's timeout.
            CancelledError: If a stop was asked for meanwhile.

        """
        node, tracker = self._node, self._tracker
        await node.pulse.until(
            lambda: tracker.age() < np.inf or node.count_publishers(tracker.topic) > 0
            or bool(node.arm.stop_reason), node.values.tracker_timeout)
        node.check_stopped()
        if tracker.complaint():
            raise DataError(f'{tracker.complaint()} The arm was not moved.')
        if tracker.age() == np.inf and not node.count_publishers(tracker.topic):
            raise DataError(
                f"Nobody sends tracker readings on '{tracker.topic}'. Start the tracker's driver, "
                'or correct tracker_topic and tracker_message. The arm was not moved.')

    def silence(self) -> str:
        """Return how long nothing has been heard, as a sentence with a space, or nothing."""
        age = self._tracker.age()
        if age <= self._node.values.tracker_timeout:
            return ''
        since = f'for {age:.0f} s' if np.isfinite(age) else 'at all'
        return f"No reading has come on '{self._tracker.topic}' {since}. "

    def fault(self) -> str:
        """Return what is wrong with the tracker's messages, or an empty string."""
        tracker = self._tracker
        if tracker.complaint():
            return tracker.complaint()
        latest = self._node.joints.latest
        apart = abs(tracker.record.newest - latest[0]) if latest else 0.0
        if tracker.counts.received > self._received + 1 and apart > _OTHER_CLOCK:
            return (f'Tracker messages came, but the newest stamp is {apart:.1f} s off the joint '
                    'states; both must use one clock.')
        return ''

    async def read(self) -> EndPosition | None:
        """Rest until enough readings are in; return their average, None if too few come.

        Raises:
            DataError: If joint states stop coming.
            CancelledError: If a stop was asked for.

        """
        node, dwell = self._node, self._dwell
        latest = node.joints.latest
        begin = latest[0] if latest else 0.0
        # Nothing of the way here is needed, and one measurement may last for hours.
        node.joints.forget_from(0)
        self._received = self._tracker.counts.received
        # A little more than settle and dwell: the arm may still creep when it has arrived.
        await node.dwell(dwell.settle + dwell.dwell + 0.1)
        await self._tracker_keeps_up()
        for _ in range(_PATIENCE):
            found = self._average(begin)
            # Where nothing was seen, more patience won't help; where little was, it may.
            if found is not None or not len(self._tracker.samples(begin)):
                return found
            await node.dwell(dwell.dwell)
            await self._tracker_keeps_up()
        return self._average(begin)

    async def _tracker_keeps_up(self) -> None:
        """Let messages arrive that were sent before the newest joint state."""
        node, record = self._node, self._tracker.record
        latest = node.joints.latest
        newest = latest[0] if latest else 0.0
        await node.pulse.until(
            lambda: record.newest >= newest - _LATE
            or bool(node.arm.stop_reason), min(1.0, node.values.tracker_timeout))
        node.check_stopped()

    def _average(self, begin: float) -> EndPosition | None:
        found = find_end_positions(
            self._node.joints.samples(), self._tracker.samples(begin), self._dwell)
        return found[-1] if found else None
