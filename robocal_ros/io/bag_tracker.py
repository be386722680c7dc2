# SPDX-License-Identifier: Apache-2.0
"""A tracker's readings out of a bag, by the same rules as readings off the network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robocal_ros.core.compliance.tracker import TrackerRecord, TrackerSamples
from robocal_ros.core.marks import Rest, Span
from robocal_ros.errors import DataError
from robocal_ros.io import bag_cdr

_EVERYTHING = Span()
_NOTHING = 'is empty, or the run that its marks tell of is not in the bag'


class TrackerStream:
    """Readings of one tracker."""

    def __init__(
        self, topic: str, *, orientation: bool, source: str, span: Span = _EVERYTHING,
        rests: Sequence[Rest] = (),
    ) -> None:
        """Say what is wanted.

        Args:
            topic: The topic, for sentences.
            orientation: Whether the messages are poses.
            source: Name of the bag.
            span: Which stamps count.
            rests: If there are any, only what was read in them is kept.

        """
        self._topic = topic
        self._orientation = orientation
        self._source = source
        self._span = span
        self._rests = tuple(rests)
        self._begun = span.begin == -np.inf
        self._ended = False
        self._record = TrackerRecord(orientation)
        self._complaint = ''

    def take(self, raw: Sequence[bytes]) -> None:
        """Take messages as they were recorded."""
        batch = (bag_cdr.poses if self._orientation else bag_cdr.points)(raw)
        frames = [''] * len(raw)
        values = np.empty((len(raw), 7 if self._orientation else 3))
        for group in batch.groups:
            values[group.rows] = group.blocks[0]
            for row in group.rows.tolist():
                frames[row] = group.layout
        if batch.unreadable:
            self._complaint = 'holds messages that do not have the layout of their type'
        kept = self._span.holds(batch.time)
        if self._rests:
            kept &= np.any([rest.holds(batch.time) for rest in self._rests], axis=0)
        for row in np.flatnonzero(np.isfinite(batch.time)).tolist():
            self._take(float(batch.time[row]), frames[row], values[row].tolist(), bool(kept[row]))

    def _take(self, stamp: float, frame: str, values: Sequence[float], kept: bool) -> None:
        if not self._begun and stamp > self._span.begin:
            # Where a run begins, a node starts counting anew.
            self._record.clear()
            self._begun = True
        self._ended = self._ended or (self._begun and stamp > self._span.end)
        if self._ended:
            return
        self._record.recording = kept
        self._record.add(stamp, frame, values)
        self._complaint = self._record.complaint or self._complaint

    def samples(self) -> TrackerSamples:
        """Return the readings.

        Raises:
            DataError: If no message was of use; the sentence says why.

        """
        if not len(self._record):
            raise DataError(
                f"Bag '{self._source}' holds no tracker reading of use "
                f"({self._record.counts.received} messages came): topic '{self._topic}' "
                f'{self._complaint or _NOTHING}.')
        return self._record.samples()
