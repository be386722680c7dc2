# SPDX-License-Identifier: Apache-2.0
"""From the messages of a topic to samples: decoding, check of stamps, counts, recording.

Live, replayed and bag messages are processed here with equal results, one by one or thousands at
a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.messages import decode
from robocal_ros.messages.checks import PostureCheck, StampGuard, largest_values, to_seconds
from robocal_ros.messages.decode import (
    Decoded,
    Decoder,
    JointDecoder,
    Message,
    Messages,
    Rows,
    State,
)
from robocal_ros.messages.marks import Span, StationaryInterval
from robocal_ros.messages.samples import (
    BUDGET,
    LONGEST,
    BoundedBuffer,
    JointSamples,
    StreamCounts,
    TrackerSamples,
    WrenchSamples,
)

if TYPE_CHECKING:
    from robocal_ros.robot import Robot

TRACKER_BUDGET = 2**21
"""Largest number of readings of a tracker, which must not be averaged with neighbours."""

_EVERYTHING = Span()
# Largest shares of messages with stamps that do not increase and with implausible positions; a
# record with more is refused.
_MOST_REPEATED, _MOST_IMPLAUSIBLE = 0.5, 0.1
_NOTHING = 'The topic is empty, or the bag does not hold the run that its marks describe.'


@dataclass(frozen=True)
class Recorded:
    """What an intake has recorded, from which another one can go on.

    Attributes:
        rows: Stamps [s] and values, shape (k, 1 + values).
        averaged: Number of messages averaged into one row.
        forgotten: Number of oldest rows discarded.
        newest: Newest stamp received [s].
        counts: Counts since the last clear.

    """

    rows: Array
    averaged: int
    forgotten: int
    newest: float
    counts: StreamCounts


class Intake:
    """Intake of one topic: decodes, checks, counts and records its messages.

    Attributes:
        decoder: Decoder of the messages.
        guard: Check and counts of the stamps.
        record: The recorded messages.
        recording: Whether usable messages are recorded.
        recorded: Number of recorded messages.
        problem: Problem of the newest unusable message, empty if there was none.
        on_jump: Called before the record is emptied because the clock jumped back, with the new
            stamp [s].

    """

    _what = 'message', ''

    def __init__(
        self, decoder: Decoder, *, span: Span = _EVERYTHING, budget: int = BUDGET,
        longest: float = LONGEST, stationary: Sequence[StationaryInterval] = (),
        source: str = 'live',
    ) -> None:
        """Start empty.

        Args:
            decoder: Decoder of the messages.
            span: Stamps to use.
            budget: Largest number of samples kept.
            longest: Longest time over which samples are averaged to stay within the budget [s].
            stationary: Intervals to record; all samples if there are none.
            source: ``live``, or the name of a bag.

        """
        self.decoder = decoder
        self.guard = StampGuard()
        self.recording = True
        self.problem = ''
        self.on_jump: Callable[[float], None] = lambda stamp: None
        self._source = source
        self._span = span
        self._stationary = tuple(stationary)
        self.record = BoundedBuffer(1 + decoder.width, budget, longest)
        # Stamps that are still to be passed: where the span begins, and where it ends.
        self._ahead = [span.end] if span.begin == -np.inf else [span.begin, span.end]
        self.recorded = 0
        # Messages that the driver sent before it had read the joints; they are not faults.
        self._unread = 0

    # -------------------------------------------------------------------- taking in

    def take(self, raw: Messages) -> None:
        """Add messages of a bag in the order of recording."""
        decoded = self.decoder(raw)
        time = to_seconds(decoded.stamps)
        row = 0
        while self._ahead and row < len(time):
            row = self._admit_until(decoded, time, row, self._ahead[0])
            if row < len(time):
                del self._ahead[0]
                if self._ahead:
                    # Where a run begins, a node starts counting anew.
                    self.clear()

    def _admit_until(self, decoded: Decoded, time: Array, begin: int, stamp: float) -> int:
        """Add messages from a row to before the first one after a stamp [s]; return its row."""
        own = np.flatnonzero(decoded.states < State.UNREADABLE)
        beyond = time[own] > stamp
        # A corrupt stamp does not count: one that does not follow, or is not followed.
        for row in own[beyond & np.append(beyond[1:], True)].tolist():
            if row >= begin:
                self._admit(decoded, time, np.arange(begin, row))
                begin = row
                if self.guard.admits(int(decoded.stamps[row])):
                    return row
        self._admit(decoded, time, np.arange(begin, len(time)))
        return len(time)

    def take_regular(self, raw: Sequence[bytes]) -> tuple[Decoded, Rows] | None:
        """Add messages if each of the arm's is readable and their stamps increase.

        Equal to ``take_one`` for each of them, in an eighth of the time.

        Returns:
            Their contents, and the rows of those that are used; None if nothing was added, because
            they must be added one by one.

        """
        decoded, guard = self.decoder(raw), self.guard
        own = decoded.states != State.FOREIGN
        steps = np.diff(decoded.stamps[own], prepend=guard.newest or 0)
        if (guard.newest is None or (decoded.states[own] != State.USABLE).any()
                or not ((steps > 0) & (steps <= guard.doubted)).all()):
            return None
        return decoded, self._admit(decoded, to_seconds(decoded.stamps), np.arange(len(raw)))

    def take_one(self, raw: bytes) -> Message | None:
        """Add one message; return it unless it is foreign or its stamp is not used."""
        guard, message = self.guard, self.decoder.one(raw)
        stamp, state = message.stamp, message.state
        if state is State.FOREIGN:
            self._note_foreign(1, message.reason)
            return None
        if state is State.UNREADABLE:
            guard.count(received=1, incomplete=1)
            self.problem = message.reason
            return message
        if not guard.admit(stamp):
            return None
        if guard.jumped:
            self.on_jump(to_seconds(stamp))
            self._forget()
        self._forget_corrupt(to_seconds(stamp))
        message = self._checked(message)
        if message.state is State.USABLE:
            if self.recording:
                self.recorded += 1
                self.record.add_one(to_seconds(stamp), self.decoder.recordable(
                    np.asarray(message.values)))
        else:
            self.problem = message.reason
            guard.count(**{_COUNTED[message.state]: 1})
        return message

    def judge(self, decoded: Decoded, rows: Rows) -> tuple[Rows, list[int]]:
        """Check and count messages by their stamps.

        Args:
            decoded: Contents of messages.
            rows: Rows of the messages to check, in order of arrival.

        Returns:
            Rows to use, and those of them that invalidate all earlier messages, because the clock
            jumped, or the driver had not read the joints before.

        """
        given = decoded.states[rows]
        own = rows[given < State.UNREADABLE]
        if len(foreign := rows[given == State.FOREIGN]):
            alone = not len(own) or foreign[0] < own[0]
            self._note_foreign(len(foreign), decoded.reasons[foreign[0]] if alone else '')
        unreadable = rows[given == State.UNREADABLE]
        if lost := len(unreadable):
            self.guard.count(received=lost, incomplete=lost)
        counts, jumps = self.guard.admit_block(decoded.stamps[own])
        counted = own[counts]
        restarts = self._check(decoded, counted)
        states = decoded.states[counted]
        self.guard.count(**{name: int((states == state).sum())
                            for state, name in _COUNTED.items()})
        relevant = np.union1d(unreadable, counted) if lost else counted
        bad = relevant[decoded.states[relevant] != State.USABLE]
        if len(bad):
            self.problem = decoded.reasons[bad[-1]]
        return counted, sorted({*own[jumps].tolist(), *restarts})

    def _note_foreign(self, count: int, reason: str) -> None:
        """Count messages of other joints; they matter only while there are no others."""
        self.guard.count(received=count, foreign=count)
        if reason and self.guard.newest is None and not self.problem:
            self.problem = reason

    def _admit(self, decoded: Decoded, time: Array, rows: Rows) -> Rows:
        """Add messages; return the rows of those whose stamps are used."""
        counted, jumps = self.judge(decoded, rows)
        if jumps:
            self._forget()
            counted = counted[counted >= jumps[-1]]
        elif len(counted):
            self._forget_corrupt(time[counted[0]])
        if not self.recording:
            return counted
        usable = counted[decoded.states[counted] == State.USABLE]
        held = self._span.holds(time[usable])
        if self._stationary:
            held &= np.any([rest.holds(time[usable]) for rest in self._stationary], axis=0)
        chosen = usable[held]
        self.recorded += len(chosen)
        self.record.add(np.column_stack((
            time[chosen], self.decoder.recordable(decoded.values[chosen]))))
        return counted

    def _checked(self, message: Message) -> Message:
        """Return a counted message, as unusable if it contradicts earlier ones."""
        return message

    def _check(self, decoded: Decoded, rows: Rows) -> list[int]:
        """Mark messages that contradict earlier ones as unusable.

        Returns:
            Rows that invalidate all earlier messages.

        """
        return []

    # --------------------------------------------------------------------- the record

    def clear(self) -> None:
        """Discard the recording and reset the counts."""
        self._forget()
        self.guard.reset_counts()

    def _forget(self) -> None:
        self.record.clear()
        self.recorded = 0

    def forget_after(self, time: float) -> tuple[float, float]:
        """Discard the samples after a stamp [s], those of an interrupted motion.

        Returns:
            That stamp, and the one up to which samples are discarded [s].

        """
        before = len(self.record)
        self.record.forget_after(time)
        self.recorded -= (before - len(self.record)) * self.record.averaged
        return time, self.newest

    def _forget_corrupt(self, time: float) -> None:
        """Discard the sample of a corrupt stamp, which the next one [s] showed to be one."""
        if self.guard.withdrawn is not None:
            # The first of all may be older than those that follow.
            time = min(time, to_seconds(self.guard.withdrawn))
            if self.record.newest >= time:
                self.forget_after(np.nextafter(time, -np.inf))

    def saved(self, *, samples: bool) -> Recorded:
        """Return the recording and its counts, on request without the samples."""
        return Recorded(self.record.rows() if samples else np.empty((0, 1 + self.decoder.width)),
                        self.record.averaged, self.record.forgotten, self.newest, self.counts)

    def restore(self, earlier: Recorded) -> None:
        """Replace recording and counts by earlier ones, older than all messages to come."""
        self.clear()
        self.record.restore(earlier.rows, earlier.averaged, earlier.forgotten)
        self.recorded = len(earlier.rows) * earlier.averaged
        self.guard.count(**asdict(earlier.counts))

    @property
    def newest(self) -> float:
        """Newest stamp received, -inf before the first [s]."""
        newest = self.guard.newest
        return -np.inf if newest is None else to_seconds(newest)

    @property
    def counts(self) -> StreamCounts:
        """Counts since the last clear."""
        return self.guard.counts

    def samples(self, after: float = -np.inf) -> Any:
        """Return the samples recorded after a stamp [s]; by default rows of stamp and values."""
        return self._samples(self.record.rows(after))

    def bag_samples(self) -> Any:
        """Return and release the samples, which may be large.

        Raises:
            DataError: If no message was usable, with the reason.

        """
        rows, counts, source = self.record.release(), self.counts, self.decoder.source
        (what, where), own = self._what, counts.received - counts.foreign
        if counts.out_of_order > _MOST_REPEATED * own:
            raise DataError(
                f"Bag '{self._source}': {counts.out_of_order} of {own} stamps on {source} repeat "
                'or go back; expected the time of measurement, increasing. Check that the driver '
                'fills in header.stamp.')
        if not len(rows):
            raise DataError(
                f"Bag '{self._source}' holds no usable {what}{where} ({counts.received} messages)"
                f'. {self.problem or _NOTHING}')
        if counts.implausible - self._unread > _MOST_IMPLAUSIBLE * own:
            raise DataError(
                f"Bag '{self._source}': {counts.implausible} of {own} {what}s{where} "
                f'are implausible. {self.problem}')
        return self._samples(rows)

    def _samples(self, rows: Array) -> Any:
        """Return rows as samples."""
        return rows


_COUNTED = {State.INCOMPLETE: 'incomplete', State.NOT_FINITE: 'not_finite',
            State.IMPLAUSIBLE: 'implausible'}


class JointIntake(Intake):
    """Joint states of one arm."""

    decoder: JointDecoder

    def __init__(
        self, joints: Robot, factor: Array, *, need_effort: bool = False, **others: Any
    ) -> None:
        """Start empty.

        Args:
            joints: The n joints of the arm.
            factor: Factors from the driver's efforts to torques, shape (n,).
            need_effort: True to refuse messages without effort.
            others: As for ``Intake``.

        """
        super().__init__(
            JointDecoder(joints.joint_names, factor, need_effort=need_effort,
                         largest=largest_values(joints)), **others)
        self._what = 'joint state', ''
        self._posture = PostureCheck(joints)

    def _checked(self, message: Message) -> Message:
        if not np.isfinite(message.values[:len(self.decoder.names)]).all():
            return message
        reason = self._posture.check(message.stamp, message.values)
        if zeros := self._posture.restarted:
            self._forget()
            self._count_unread(zeros)
        return message._replace(state=State.IMPLAUSIBLE, reason=reason) if reason else message

    def _check(self, decoded: Decoded, rows: Rows) -> list[int]:
        n = len(self.decoder.names)
        rows = rows[np.isfinite(decoded.values[rows, :n]).all(axis=1)]
        values = decoded.values[rows]
        reasons, restarts = self._posture.check_block(decoded.stamps[rows], values)
        decoded.values[rows] = values
        for place, reason in reasons.items():
            decoded.refuse(rows[place:place + 1], State.IMPLAUSIBLE, reason)
        self._count_unread(sum(restarts.values()))
        return [int(rows[place]) for place in restarts]

    def _count_unread(self, count: int) -> None:
        self._unread += count
        self.guard.count(implausible=count)

    def set_factor(self, factor: Array) -> None:
        """Set the factors from the driver's efforts to torques; discard recorded samples."""
        self.decoder.factor = factor
        self._forget()

    def _samples(self, rows: Array) -> JointSamples:
        n = len(self.decoder.names)
        return JointSamples(
            self.decoder.names, rows[:, 0], rows[:, 1:1 + n], rows[:, 1 + n:1 + 2 * n],
            rows[:, 1 + 2 * n:], self.counts, self._source)


class WrenchIntake(Intake):
    """Readings of one F/T sensor."""

    def __init__(
        self, topic: str, frame: str, sign: float, message_frame: str = '', **others: Any
    ) -> None:
        """Start empty.

        Args:
            topic: The topic in error texts.
            frame: Frame of the samples.
            sign: +1, or -1 for a sensor that reports what it exerts on the distal side.
            message_frame: Required frame of the messages; empty for ``frame``.
            others: As for ``Intake``.

        """
        super().__init__(
            decode.wrenches(f"F/T topic '{topic}'", message_frame or frame, sign), **others)
        self._what = 'reading', f" on '{topic}'"
        self._frame = frame

    def _samples(self, rows: Array) -> WrenchSamples:
        return WrenchSamples(self._frame, rows[:, 0], rows[:, 1:], self.counts)


class TrackerIntake(Intake):
    """Readings of one tracker: points, or poses.

    Attributes:
        frame: Frame of the readings, empty before the first.

    """

    def __init__(self, topic: str, *, orientation: bool, **others: Any) -> None:
        """Start empty.

        Args:
            topic: The topic in error texts.
            orientation: Whether the messages are poses.
            others: As for ``Intake``.

        """
        super().__init__(
            (decode.poses if orientation else decode.points)(f"Tracker topic '{topic}'"),
            budget=TRACKER_BUDGET, longest=0.0, **others)
        self._what = 'tracker reading', f" on '{topic}'"
        self._orientation = orientation
        self.frame = ''

    def clear(self) -> None:
        """Discard the readings and reset counts and frame."""
        super().clear()
        self.frame = ''

    def _checked(self, message: Message) -> Message:
        if message.state is not State.USABLE:
            return message
        self.frame = self.frame or message.frame
        if message.frame == self.frame:
            return message
        return message._replace(state=State.INCOMPLETE, reason=self._other_frame(message.frame))

    def _check(self, decoded: Decoded, rows: Rows) -> list[int]:
        usable = rows[decoded.states[rows] == State.USABLE]
        if len(usable):
            self.frame = self.frame or decoded.frames[usable[0]]
        others = usable[decoded.frames[usable] != self.frame]
        for frame in dict.fromkeys(decoded.frames[others].tolist()):
            decoded.refuse(others[decoded.frames[others] == frame], State.INCOMPLETE,
                           self._other_frame(frame))
        return []

    def _other_frame(self, frame: str) -> str:
        return (f"{self.decoder.source} names frame '{frame}' now and '{self.frame}' before; "
                'let one tracker send, in one frame.')

    def _samples(self, rows: Array) -> TrackerSamples:
        return TrackerSamples(self.frame, rows[:, 0], rows[:, 1:4],
                              rows[:, 4:] if self._orientation else None, self.counts)


def temperature_intake(topic: str, **others: Any) -> Intake:
    """Return the intake of temperatures [°C]; arguments as for ``TrackerIntake``."""
    return Intake(decode.temperatures(f"Temperature topic '{topic}'"), longest=0.0, **others)
