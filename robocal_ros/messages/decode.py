# SPDX-License-Identifier: Apache-2.0
"""Decoder of serialized messages into arrays, for live messages, replayed ones and bags.

Messages of a topic usually differ in their numbers only. So the layout of one message is parsed
(OMG's Common Data Representation, XCDR1, as ROS 2 writes it), and all messages with the same
layout are read as rows of one table.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robocal_ros.arrays import Array, Flags
from robocal_ros.messages.checks import SECOND, Stamps

_ENCAPSULATION = 4
_STAMP_AT = 4
_AFTER_STAMP = 12
_NUMBER = 8
# Number of cached layouts; topics with more are decoded more slowly.
_REMEMBERED = 16

Rows = npt.NDArray[np.intp]

Messages = Sequence[bytes] | npt.NDArray[np.void]
"""Serialized messages; an array if all have the same length."""


class State(IntEnum):
    """Usability of a message."""

    USABLE = 0
    INCOMPLETE = 1
    """A field is missing or invalid."""
    NOT_FINITE = 2
    """A value is NaN or infinite."""
    IMPLAUSIBLE = 3
    """Values that the arm cannot have."""
    UNREADABLE = 4
    """Not all of the arm's joints, or not of the type; its stamp, and those below, are ignored."""
    FOREIGN = 5
    """Other joints only, such as a gripper's: not a message of the stream."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Contents of k messages.

    Attributes:
        stamps: Stamps, shape (k,) [ns]; undefined for unreadable and foreign messages.
        values: One row of numbers per message; undefined for unusable messages.
        states: ``State`` of each message, shape (k,).
        reasons: Problem of each message, empty for none, shape (k,).
        frames: Frame of each message, shape (k,); empty for joint states.

    """

    stamps: Stamps
    values: Array
    states: npt.NDArray[np.int8]
    reasons: npt.NDArray[np.object_]
    frames: npt.NDArray[np.object_]

    def message(self, row: int) -> Message:
        """Return the contents of one message."""
        return Message(int(self.stamps[row]), self.values[row], State(self.states[row]),
                       self.reasons[row], self.frames[row])

    def refuse(self, rows: Rows, state: State, sentence: str) -> None:
        """Mark messages as unusable, with the reason."""
        self.states[rows] = state
        self.reasons[rows] = sentence


class Message(NamedTuple):
    """Contents of one message; attributes as for ``Decoded``."""

    stamp: int
    values: Any
    state: State
    reason: str
    frame: str


# ------------------------------------------------------------------------------ layouts


class _UnreadableError(Exception):
    """Message that does not match the type of its topic."""


class _Layout:
    """Layout of messages that differ in their numbers only.

    Attributes:
        order: Byte order in the notation of ``struct``.
        names: The frame, or the names of the joints.
        blocks: Offset and number of doubles of each block.
        begin: Offset of the first double.
        doubles: Number of doubles, with the lengths between the blocks.
        plan: Result of a decoder's ``_plan`` for this layout.

    """

    def __init__(self, raw: bytes, walk: Callable[[_Layout], tuple[str, ...]]) -> None:
        if len(raw) < _AFTER_STAMP or raw[0] != 0 or raw[1] not in (0, 1):
            raise _UnreadableError
        self.order = '<' if raw[1] else '>'
        self._raw = raw
        self._fixed: list[tuple[int, int]] = [(0, 2)]
        self.blocks: list[tuple[int, int]] = []
        self._at = _AFTER_STAMP
        self.names = walk(self)
        self.plan: Any = None
        # All blocks have the same alignment, so all doubles are columns of one array.
        self.begin, (last, count) = self.blocks[0][0], max(self.blocks)
        self.doubles = (last - self.begin) // _NUMBER + count
        self.kind = f'{self.order}f8'
        self._parts = [(begin, end, raw[begin:end]) for begin, end in self._fixed]
        self._stamp = struct.Struct(f'{self.order}iI')
        self._table = np.dtype({
            'names': ['sec', 'nanosec', 'numbers'],
            'formats': [f'{self.order}i4', f'{self.order}u4', (self.kind, (self.doubles,))],
            'offsets': [_STAMP_AT, _STAMP_AT + 4, self.begin], 'itemsize': len(raw)})

    # ---- walking through the message

    def count(self, most: int | None = None) -> int:
        """Read a length; every message of the layout has the same."""
        self._align(4)
        begin = self._at
        self._fix(4)
        count = int(struct.unpack_from(f'{self.order}I', self._raw, begin)[0])
        if most is not None and count > most:
            raise _UnreadableError
        return count

    def text(self) -> str:
        """Read a text; every message of the layout has the same."""
        size = self.count()
        begin = self._at
        self._fix(size)
        return self._raw[begin:max(begin, begin + size - 1)].decode('utf-8', 'replace')

    def numbers(self, count: int) -> None:
        """Register a block of doubles."""
        if count:
            self._align(_NUMBER)
        self.blocks.append((self._at, count))
        self._pass(_NUMBER * count)

    def _align(self, size: int) -> None:
        self._at += -(self._at - _ENCAPSULATION) % size

    def _pass(self, size: int) -> None:
        self._at += size
        if self._at > len(self._raw):
            raise _UnreadableError

    def _fix(self, size: int) -> None:
        begin = self._at
        self._pass(size)
        if self._fixed[-1][1] == begin:
            begin = self._fixed.pop()[0]
        self._fixed.append((begin, self._at))

    # ---- reading others like it

    def fits(self, raw: bytes) -> bool:
        """Return whether a message of the same length has the layout."""
        for begin, end, part in self._parts:  # noqa: SIM110 - three times as fast as all()
            if raw[begin:end] != part:
                return False
        return True

    def fitting(self, table: npt.NDArray[np.uint8]) -> Flags:
        """Return which messages have the layout, given their bytes, shape (k, length)."""
        fits: Flags = np.ones(len(table), bool)
        for begin, end, part in self._parts:
            # Slices of all messages are compared faster than chosen bytes of each.
            same = table[:, begin:end] == np.frombuffer(part, np.uint8)
            if not same.all():
                fits &= same.all(axis=1)
        return fits

    def read(self, table: npt.NDArray[np.uint8]) -> tuple[Stamps, Array]:
        """Return stamps [ns] and numbers of messages, given their bytes, shape (k, length)."""
        rows = table.view(self._table)[:, 0]
        return rows['sec'].astype(np.int64) * SECOND + rows['nanosec'], rows['numbers']

    def stamp(self, raw: bytes) -> int:
        """Return the stamp of one message [ns]."""
        sec, nanosec = self._stamp.unpack_from(raw, _STAMP_AT)
        return int(sec) * SECOND + int(nanosec)


def _walk_joint_state(layout: _Layout) -> tuple[str, ...]:
    most = 10_000  # more elements than any arm has joints
    layout.text()
    names = tuple(layout.text() for _ in range(layout.count(most)))
    for _ in range(3):
        layout.numbers(layout.count(most))
    return names


def _walk_stamped(layout: _Layout, numbers: int) -> tuple[str, ...]:
    """Parse a header and a fixed number of doubles."""
    frame = layout.text()
    layout.numbers(numbers)
    return (frame,)


# ----------------------------------------------------------------------------- decoders


class Decoder(ABC):
    """Decoder of the messages of one topic.

    Attributes:
        width: Number of columns.

    """

    width: int

    def __init__(
        self, source: str, walk: Callable[[_Layout], tuple[str, ...]], width: int
    ) -> None:
        self.source = source
        self.width = width
        self._walk = walk
        self._known: list[tuple[int, _Layout]] = []

    def __call__(self, raw: Messages) -> Decoded:
        """Decode messages, one or many."""
        count = len(raw)
        made = Decoded(
            np.zeros(count, np.int64), np.full((count, self.width), np.nan),
            np.zeros(count, np.int8), np.full(count, '', object), np.full(count, '', object))
        for rows, layout, table in self._alike(raw):
            if layout is None:
                made.refuse(rows, State.UNREADABLE,
                        f'{self.source} holds messages that do not have the layout of their type.')
                continue
            made.stamps[rows], numbers = layout.read(table)
            self._fill(made, rows, layout, numbers)
        return made

    def recordable(self, values: Array) -> Array:
        """Return the rows of usable messages that are recorded."""
        return values

    def one(self, raw: bytes) -> Message:
        """Decode one message by the same rules, with fewer array operations if it is valid."""
        layout = self._layout_of(raw)
        message = None if layout is None else self._fast(raw, layout)
        return message or self([raw]).message(0)

    @abstractmethod
    def _fast(self, raw: bytes, layout: _Layout) -> Message | None:
        """Return a usable message; None to decode it by ``_fill``."""

    @abstractmethod
    def _fill(self, made: Decoded, rows: Rows, layout: _Layout, numbers: Array) -> None:
        """Fill in the rows of messages with one layout."""

    def _alike(
        self, raw: Messages
    ) -> Iterator[tuple[Rows, _Layout | None, npt.NDArray[np.uint8]]]:
        """Yield rows and bytes of messages by layout, None for unreadable messages."""
        for rows, table in _by_length(raw):
            while len(rows):
                layout = self._layout_of(table[0].tobytes())
                fits = np.arange(len(rows)) == 0 if layout is None else layout.fitting(table)
                if fits.all():
                    yield rows, layout, table
                    break
                yield rows[fits], layout, table[fits]
                rows, table = rows[~fits], table[~fits]

    def _layout_of(self, message: bytes) -> _Layout | None:
        """Return a message's layout, None if it does not match the type."""
        size = len(message)
        for length, layout in self._known:
            if length == size and layout.fits(message):
                return layout
        try:
            layout = _Layout(message, self._walk)
        except _UnreadableError:
            return None
        self._known = [(size, layout), *self._known[:_REMEMBERED - 1]]
        return layout


def _by_length(raw: Messages) -> Iterator[tuple[Rows, npt.NDArray[np.uint8]]]:
    """Yield rows and bytes, shape (k, length), of messages of the same length."""
    count = len(raw)
    if isinstance(raw, np.ndarray):
        yield np.arange(count), raw.view(np.uint8).reshape(count, raw.itemsize)
        return
    lengths = np.fromiter(map(len, raw), np.intp, count)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        data = b''.join(raw if len(rows) == count else [raw[row] for row in rows.tolist()])
        yield rows, np.frombuffer(data, np.uint8).reshape(len(rows), length)


class SensorDecoder(Decoder):
    """Decoder of messages with a header and a fixed number of doubles.

    Attributes:
        source: Name of the source in error texts.

    """

    def __init__(
        self, source: str, *, numbers: int, columns: Sequence[int] | None = None,
        largest: Sequence[float], frame: str = '', sign: float = 1.0,
        unit_from: int | None = None,
    ) -> None:
        """Set the format; see ``wrenches``, ``imus``, ``points``, ``poses``, ``temperatures``.

        Args:
            source: Name of the source in error texts, such as ``F/T topic '/ft'``.
            numbers: Number of doubles after the header.
            columns: Doubles to read, at least two; None for all.
            largest: Largest plausible size of each of them.
            frame: Required frame of the messages; empty for any.
            sign: Factor of all numbers.
            unit_from: First column of a unit quaternion; None for no quaternion.

        """
        super().__init__(source, partial(_walk_stamped, numbers=numbers),
                         numbers if columns is None else len(columns))
        self._columns = None if columns is None else list(columns)
        self._pick = None if columns is None else itemgetter(*columns)
        self._largest = np.array(largest)
        self._plain = min(largest)
        self._frame = frame
        self._sign = sign
        self._unit_from = unit_from

    def _fast(self, raw: bytes, layout: _Layout) -> Message | None:
        if self._unit_from is not None or (self._frame and layout.names[0] != self._frame):
            return None
        if layout.plan is None:
            layout.plan = struct.Struct(f'{layout.order}{layout.doubles}d')
        values = layout.plan.unpack_from(raw, layout.begin)
        if self._pick is not None:
            values = self._pick(values)
        if self._sign != 1.0:
            values = tuple(self._sign * value for value in values)
        if not sum(map(abs, values)) <= self._plain:  # large, infinite or NaN
            return None
        return Message(layout.stamp(raw), values, State.USABLE, '', layout.names[0])

    def _fill(self, made: Decoded, rows: Rows, layout: _Layout, numbers: Array) -> None:
        (frame,) = layout.names
        values = numbers if self._columns is None else numbers[:, self._columns]
        made.values[rows] = values = self._sign * values
        made.frames[rows] = frame
        if self._frame and frame != self._frame:
            made.refuse(rows, State.INCOMPLETE, (
                f"{self.source} names frame '{frame}', but '{self._frame}' is expected; correct "
                'the parameter that names the frame, or the driver.'))
            return
        if self._unit_from is not None:
            length = np.linalg.norm(values[:, self._unit_from:], axis=1)
            odd = ~(np.abs(length - 1.0) <= _UNIT)
            if odd.any():
                made.refuse(rows[odd], State.INCOMPLETE, (
                    f'{self.source} sends quaternions of length {length[odd][-1]:.3g}, expected '
                    "1; is the orientation measured? Set tracker_message to 'point' if it is "
                    'not.'))
        beyond = np.isfinite(values) & (np.abs(values) > self._largest)
        for column in np.flatnonzero(beyond.any(axis=0)).tolist():
            odd = beyond[:, column]
            made.refuse(rows[odd], State.IMPLAUSIBLE, (
                f'{self.source} sent an implausible reading: value {column + 1} of {self.width} '
                f'is {values[odd, column][-1]:.4g}, expected less than '
                f'{self._largest[column]:.4g}. Check sensor, driver and units.'))
        made.refuse(rows[~np.isfinite(values).all(axis=1)], State.NOT_FINITE,
                    f'{self.source} sends values that are not finite numbers; check the sensor.')


# Largest deviation of a quaternion from unit length, by rounding of drivers.
_UNIT = 0.01

FORCE_TORQUE, ACCELERATION_RATE = (1e5,) * 6, (1e4,) * 3 + (1e3,) * 3
"""Largest plausible values of F/T sensors [N, N·m] and of IMUs [m/s², rad/s]."""

# Those of trackers [m] and thermometers [°C].
_FARTHEST, _HOTTEST = 1e4, 1e4


def wrenches(source: str, frame: str, sign: float) -> SensorDecoder:
    """Return a decoder of geometry_msgs/WrenchStamped: force, then torque [N, N·m].

    Args:
        source: Name of the source in error texts.
        frame: Required frame of the messages.
        sign: +1, or -1 for a sensor that reports what it exerts on the distal side.

    """
    return SensorDecoder(source, numbers=6, largest=FORCE_TORQUE, frame=frame, sign=sign)


def imus(source: str, frame: str) -> SensorDecoder:
    """Return a decoder of sensor_msgs/Imu: specific force [m/s²], then angular velocity [rad/s].

    A message holds orientation (4), angular velocity (3) and specific force (3), each with its
    covariance (9) after it.
    """
    return SensorDecoder(source, numbers=37, columns=(25, 26, 27, 13, 14, 15),
                         largest=ACCELERATION_RATE, frame=frame)


def points(source: str) -> SensorDecoder:
    """Return a decoder of geometry_msgs/PointStamped: the point [m]."""
    return SensorDecoder(source, numbers=3, largest=(_FARTHEST,) * 3)


def poses(source: str) -> SensorDecoder:
    """Return a decoder of geometry_msgs/PoseStamped: point [m] and quaternion x, y, z, w."""
    return SensorDecoder(source, numbers=7, largest=(_FARTHEST,) * 7, unit_from=3)


def temperatures(source: str) -> SensorDecoder:
    """Return a decoder of sensor_msgs/Temperature: the temperature [°C]."""
    return SensorDecoder(source, numbers=1, largest=(_HOTTEST,))


_QUANTITIES = ('Position', 'Velocity', 'Effort')


class JointDecoder(Decoder):
    """Decoder of sensor_msgs/JointState into position, velocity and torque in the arm's order.

    A row has 3 n numbers. Missing and non-finite velocities and efforts are NaN, joint by joint;
    positions are valid also without effort.

    Attributes:
        names: Names of the n joints.
        need_effort: Whether a message without effort is unusable.
        factor: Factors from the driver's efforts to torques, shape (n,).

    """

    def __init__(
        self, names: Sequence[str], factor: Array, *, need_effort: bool = False,
        largest: Array | None = None,
    ) -> None:
        """Set the attributes.

        Args:
            names: Names of the n joints.
            factor: Factors from the driver's efforts to torques, shape (n,).
            need_effort: Whether a message without effort is unusable.
            largest: Largest plausible velocities and torques, shape (2 n,); None for any.

        """
        super().__init__('joint_states', _walk_joint_state, 3 * len(names))
        self.names = tuple(names)
        self.need_effort = need_effort
        self._largest = (np.full(2 * len(names), np.finfo(float).max)
                         if largest is None else largest)
        self.factor = factor

    def recordable(self, values: Array) -> Array:
        """Return the recorded rows, with zero for missing velocities and efforts.

        Methods that need velocities differentiate positions; those that need efforts refuse
        messages without.
        """
        n = len(self.names)
        values = values.copy()
        velocity = values[..., n:2 * n]
        velocity[np.isnan(velocity)] = 0.0
        if not self.need_effort:
            values[..., 2 * n:] = 0.0
        return values

    def _fill(self, made: Decoded, rows: Rows, layout: _Layout, numbers: Array) -> None:
        n, plan = len(self.names), self._plan(layout)
        if isinstance(plan, tuple):
            made.refuse(rows, *plan)
            return
        values = numbers[:, plan.places]
        for part in plan.absent:
            values[:, part] = np.nan
        with np.errstate(over='ignore'):
            values[:, 2 * n:] *= self.factor
        finite = np.isfinite(values)
        beyond = finite[:, n:] & (np.abs(values[:, n:]) > self._largest)
        if beyond.any():
            self._refuse_implausible(made, rows, values, beyond)
            finite = np.isfinite(values)
        values[~finite] = np.nan
        made.values[rows] = values
        if finite.all():
            return
        efforts, joints = layout.blocks[2][1], len(layout.names)
        if self.need_effort and efforts != joints:
            made.refuse(rows, State.INCOMPLETE, (
                f'joint_states holds {efforts} efforts for {joints} joints; '
                f'the method needs the drive torque of every joint. {_remedy(2)}'))
            return
        finite[:, n:2 * n] = True
        if not self.need_effort:
            finite[:, 2 * n:] = True
        for column, bad in _by_first(~finite):
            made.refuse(rows[bad], State.NOT_FINITE, (
                f"{_QUANTITIES[column // n]} of joint '{self.names[column % n]}' is not a finite "
                'number in joint_states; joint_state_broadcaster sends NaN for what the hardware '
                f'interface does not export. {_remedy(column // n)}'))

    def _refuse_implausible(self, made: Decoded, rows: Rows, values: Array, beyond: Flags) -> None:
        """Refuse messages with values beyond the largest ones; efforts only if they are needed."""
        n = len(self.names)
        if not self.need_effort:
            values[:, 2 * n:][beyond[:, n:]] = np.nan
            beyond = beyond[:, :n]
        for column, chosen in _by_first(beyond):
            made.refuse(rows[chosen], State.IMPLAUSIBLE, (
                f"{_QUANTITIES[1 + column // n]} of joint '{self.names[column % n]}' is "
                f'{values[chosen[-1], n + column]:.4g} in joint_states, far beyond what an arm '
                'has; the row is corrupt, or its unit is another one than those of the URDF.'))

    def _plan(self, layout: _Layout) -> _JointPlan | tuple[State, str]:
        """Return the places of the joints, or state and problem of messages without them."""
        if layout.plan is None:
            names, positions = layout.names, layout.blocks[0][1]
            missing = [name for name in self.names if name not in names]
            if missing:
                foreign = names and len(missing) == len(self.names)
                layout.plan = State.FOREIGN if foreign else State.UNREADABLE, (
                    f"Joint '{missing[0]}' is missing from joint_states, which holds "
                    f'{", ".join(names) or "no names"}. Check joint_state_broadcaster, and '
                    'whether the robot description is that of this arm.')
            elif positions != len(names):
                layout.plan = State.INCOMPLETE, (
                    f'joint_states holds {positions} positions for {len(names)} joints.')
            else:
                layout.plan = _JointPlan(layout, [names.index(name) for name in self.names])
        return layout.plan

    def _fast(self, raw: bytes, layout: _Layout) -> Message | None:
        plan, n = self._plan(layout), len(self.names)
        if isinstance(plan, tuple):
            return None
        values = np.frombuffer(raw, layout.kind, layout.doubles, layout.begin)[plan.places]
        for part in plan.absent:
            values[part] = np.nan
        with np.errstate(over='ignore'):
            values[2 * n:] *= self.factor
        finite = np.isfinite(values)
        if (np.abs(values[n:]) > self._largest).any() or not (
                finite[:n].all() and (not self.need_effort or finite[2 * n:].all())):
            return None
        return Message(layout.stamp(raw), values, State.USABLE, '', '')


class _JointPlan:
    """Places of the arm's joints in messages of one layout.

    Attributes:
        places: Indices of position, velocity and effort in the numbers.
        absent: Missing numbers of a row.

    """

    def __init__(self, layout: _Layout, columns: list[int]) -> None:
        n, joints = len(columns), len(layout.names)
        self.absent = [slice(i * n, (i + 1) * n)
                       for i, (_, count) in enumerate(layout.blocks) if count != joints]
        self.places = np.concatenate([
            (at - layout.begin) // _NUMBER * (count == joints) + np.array(columns, np.intp)
            for at, count in layout.blocks])


def _by_first(flags: Flags) -> Iterator[tuple[int, Rows]]:
    """Yield columns with the rows in which they hold the first flag."""
    flagged = np.flatnonzero(flags.any(axis=1))
    first = flags[flagged].argmax(axis=1)
    for column in np.unique(first).tolist():
        yield column, flagged[first == column]


def _remedy(quantity: int) -> str:
    name = _QUANTITIES[quantity].lower()
    return (f'If the hardware measures it, add <state_interface name="{name}"/> to each joint of '
            "the URDF's <ros2_control> block.")


def stamp_of(raw: bytes) -> int | None:
    """Return the stamp of a message with a header [ns], None if it is too short for one."""
    if len(raw) < _AFTER_STAMP:
        return None
    sec, nanosec = struct.unpack_from('<iI' if raw[1] else '>iI', raw, _STAMP_AT)
    return int(sec) * SECOND + int(nanosec)
