# SPDX-License-Identifier: Apache-2.0
"""Samples out of a bag, in bounded memory, by the same rules as samples off the network.

A tracker's readings out of a bag, by the same rules as readings off the network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.messages import layout
from robocal_ros.messages.decode import JointRows, Rows, WrenchRows
from robocal_ros.messages.layout import Batch, Group
from robocal_ros.messages.marks import Rest, Span
from robocal_ros.messages.record import BUDGET, Averages, Record
from robocal_ros.messages.samples import JointSamples, StreamCounts, WrenchSamples
from robocal_ros.messages.stamps import StampGuard
from robocal_ros.messages.tracker import TrackerRecord, TrackerSamples

L = TypeVar('L')

# Columns of what came of a message: its stamp, whether it is of use, and if not, why.
_TIME, _USABLE, _INCOMPLETE, _NOT_FINITE, _VALUES = range(5)
_EVERYTHING = Span()
_NOTHING = 'The topic is empty, or the run that its marks tell of is not in the bag.'


class _Stream(ABC, Generic[L]):
    """Takes the messages of one topic and keeps what counts.

    Attributes:
        complaint: What is wrong with messages that were of no use, empty if nothing is.

    """

    def __init__(
        self, columns: int, read: Callable[[Sequence[bytes]], Batch[L]], span: Span, budget: int,
    ) -> None:
        self._record: Record | Averages = Record(1 + columns, budget)
        self._columns = columns
        self._read = read
        self._guard = StampGuard()
        self._span = span
        self._begun = span.begin == -np.inf
        self._ended = False
        self._kept = 0
        self.complaint = ''

    @property
    def counts(self) -> StreamCounts:
        """What the stream went through."""
        return self._guard.counts

    @property
    def kept(self) -> int:
        """How many messages count."""
        return self._kept

    @property
    def averaged(self) -> int:
        """How many messages make one sample."""
        return self._record.averaged

    @property
    def forgotten(self) -> int:
        """How many samples were too many, the oldest ones."""
        return self._record.forgotten

    def take(self, raw: Sequence[bytes]) -> None:
        """Take messages as they were recorded."""
        batch = self._read(raw)
        if batch.unreadable:
            self._guard.count(received=batch.unreadable, incomplete=batch.unreadable)
            self.complaint = 'Messages do not have the layout of their type.'
        rows = np.zeros((len(raw), _VALUES + self._columns))
        rows[:, _TIME] = batch.time
        for group in batch.groups:
            read = self._rows_of(group)
            rows[group.rows, _USABLE] = read.usable
            rows[group.rows, _INCOMPLETE if read.incomplete else _NOT_FINITE] = ~read.usable
            rows[group.rows, _VALUES:] = read.values
            self.complaint = read.complaint or self.complaint
        self._take(rows[np.isfinite(batch.time)])

    def _take(self, rows: Array) -> None:
        """Take rows: stamp, three flags, values; split them where the run begins and ends."""
        if not self._begun:
            before = _first(rows[:, _TIME] > self._span.begin)
            self._admit(rows[:before])
            rows = rows[before:]
            if not len(rows):
                return
            # Where a run begins, a node starts counting anew.
            self._guard.reset_counts()
            self._begun = True
        if self._ended:
            return
        last = _first(rows[:, _TIME] > self._span.end)
        self._ended = last < len(rows)
        self._admit(rows[:last])

    def _admit(self, rows: Array) -> None:
        time = rows[:, _TIME]
        counts, jump = self._guard.admit_block(time)
        incomplete, not_finite = rows[counts][:, [_INCOMPLETE, _NOT_FINITE]].sum(axis=0)
        self._guard.count(incomplete=int(incomplete), not_finite=int(not_finite))
        chosen = counts & (rows[:, _USABLE] > 0.0) & self._span.holds(time)
        if jump >= 0:
            chosen[:jump] = False
            self._record.clear()
            self._kept = 0
        self._kept += int(chosen.sum())
        self._record.add(np.column_stack((time[chosen], rows[chosen, _VALUES:])))

    @abstractmethod
    def _rows_of(self, group: Group[L]) -> Rows:
        """Turn messages of one layout into rows."""


def _first(mask: npt.NDArray[np.bool_]) -> int:
    """Return the first row where a mask is true, the number of rows if nowhere."""
    return int(np.argmax(mask)) if mask.any() else len(mask)


class JointStream(_Stream[tuple[str, ...]]):
    """Joint states of one arm."""

    def __init__(
        self, names: Sequence[str], factor: Array, *, need_effort: bool, source: str,
        span: Span = _EVERYTHING, budget: int = BUDGET, rests: Sequence[Rest] = (),
    ) -> None:
        """Say what is wanted.

        Args:
            names: Names of the n joints wanted.
            factor: From the driver's effort to torque, joint by joint, shape (n,).
            need_effort: Whether a message without effort is of no use.
            source: Name of the bag.
            span: Which stamps count.
            budget: Most samples that are kept.
            rests: If there are any, each of them becomes one sample, the average over it.

        """
        super().__init__(3 * len(names), layout.joint_states, span, budget)
        if rests:
            self._record = Averages(1 + 3 * len(names), [(r.begin, r.end) for r in rests])
        self._reader = JointRows(names, factor, need_effort=need_effort)
        self._source = source

    def _rows_of(self, group: Group[tuple[str, ...]]) -> Rows:
        return self._reader.read(group.layout, *group.blocks)

    def samples(self) -> JointSamples:
        """Return the samples; once, for they may fill the memory.

        Raises:
            DataError: If no message was of use; the sentence says why.

        """
        rows, n = self._record.release(), len(self._reader.names)
        if not len(rows):
            raise DataError(
                f"Bag '{self._source}' holds no joint state of use ({self.counts.received} "
                f'messages came). {self.complaint or _NOTHING}')
        return JointSamples(
            self._reader.names, rows[:, 0], rows[:, 1:1 + n], rows[:, 1 + n:1 + 2 * n],
            rows[:, 1 + 2 * n:], self.counts, self._source)


class WrenchStream(_Stream[str]):
    """Readings of one F/T sensor."""

    def __init__(
        self, topic: str, frame: str, sign: float, *, source: str, span: Span = _EVERYTHING,
        budget: int = BUDGET,
    ) -> None:
        """Say what is wanted.

        Args:
            topic: The topic, for sentences.
            frame: The frame that messages must name.
            sign: +1, or -1 for a sensor that reports what it exerts on the distal side.
            source: Name of the bag.
            span: Which stamps count.
            budget: Most samples that are kept.

        """
        super().__init__(6, layout.wrenches, span, budget)
        self._reader = WrenchRows(frame, sign)
        self._topic = topic
        self._frame = frame
        self._source = source

    def _rows_of(self, group: Group[str]) -> Rows:
        return self._reader.read(
            group.layout, group.blocks[0], lambda what: f"F/T topic '{self._topic}' {what}.")

    def samples(self) -> WrenchSamples:
        """Return the samples; once, for they may fill the memory.

        Raises:
            DataError: If no message was of use; the sentence says why.

        """
        rows = self._record.release()
        if not len(rows):
            raise DataError(
                f"Bag '{self._source}' holds no reading of use on '{self._topic}' "
                f'({self.counts.received} messages came). {self.complaint or _NOTHING}')
        return WrenchSamples(self._frame, rows[:, 0], rows[:, 1:], self.counts)


_EVERY_STAMP = Span()
_NO_STAMP = 'is empty, or the run that its marks tell of is not in the bag'


class TrackerStream:
    """Readings of one tracker."""

    def __init__(
        self, topic: str, *, orientation: bool, source: str, span: Span = _EVERY_STAMP,
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
        batch = (layout.poses if self._orientation else layout.points)(raw)
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
                f'{self._complaint or _NO_STAMP}.')
        return self._record.samples()
