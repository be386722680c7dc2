# SPDX-License-Identifier: Apache-2.0
"""Joint states and readings of sensors out of serialized messages, thousands at a time.

The messages of a topic hardly ever differ in anything but their numbers. So the layout of one is
taken apart (OMG's Common Data Representation, XCDR1, as ROS 2 writes it), and all messages with
the same layout are read as columns of one array of bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from robocal_ros.arrays import Array

_ENCAPSULATION = 4
_STAMP = slice(4, 12)
_NUMBER = 8

L = TypeVar('L')
Bytes = npt.NDArray[np.uint8]


class LayoutError(Exception):
    """A message that is not what its topic's type says."""


@dataclass(frozen=True)
class Group(Generic[L]):
    """Messages that differ in their numbers only.

    Attributes:
        rows: Their places among all messages, shape (k,).
        layout: What they have in common.
        blocks: Their numbers, one array for each block of them, each of shape (k, …).

    """

    rows: npt.NDArray[np.intp]
    layout: L
    blocks: tuple[Array, ...]


@dataclass(frozen=True)
class Batch(Generic[L]):
    """What became of k serialized messages.

    Attributes:
        time: Stamps, shape (k,) [s]; NaN for messages that are unreadable.
        groups: Their contents.
        unreadable: How many do not have their type's layout.

    """

    time: Array
    groups: tuple[Group[L], ...]
    unreadable: int


class _Cursor:
    """Walks through one message and notes where its numbers stand."""

    def __init__(self, raw: bytes) -> None:
        if len(raw) < _ENCAPSULATION or raw[0] != 0 or raw[1] not in (0, 1):
            raise LayoutError('no CDR')
        self.order = '<' if raw[1] else '>'
        self.blocks: list[tuple[int, int]] = []
        self.fixed: list[slice] = [slice(0, 2)]
        self._raw = raw
        self._at = _ENCAPSULATION

    def skip(self, size: int, align: int = 1) -> None:
        """Pass over something that may differ from message to message."""
        self._aligned(align)
        self._at += size
        if self._at > len(self._raw):
            raise LayoutError('too short')

    def count(self) -> int:
        """Read a length; every message of the layout has the same."""
        self._aligned(4)
        self.fixed.append(slice(self._at, self._at + 4))
        self.skip(4)
        return int(struct.unpack_from(f'{self.order}I', self._raw, self._at - 4)[0])

    def text(self) -> str:
        """Read a text; every message of the layout has the same."""
        size = self.count()
        begin = self._at
        self.fixed.append(slice(begin, begin + size))
        self.skip(size)
        return self._raw[begin:max(begin, begin + size - 1)].decode('utf-8', 'replace')

    def numbers(self, count: int) -> None:
        """Note a block of doubles."""
        if count:
            self._aligned(_NUMBER)
        self.blocks.append((self._at, count))
        self.skip(_NUMBER * count)

    def _aligned(self, size: int) -> None:
        self._at += -(self._at - _ENCAPSULATION) % size


def _joint_layout(cursor: _Cursor) -> tuple[str, ...]:
    cursor.skip(8)
    cursor.text()
    names = tuple(cursor.text() for _ in range(_plausible(cursor.count())))
    for _ in range(3):
        cursor.numbers(_plausible(cursor.count()))
    return names


def _stamped_layout(cursor: _Cursor, numbers: int) -> str:
    """Walk through a header and a fixed count of doubles; return the frame."""
    cursor.skip(8)
    frame = cursor.text()
    cursor.numbers(numbers)
    return frame


def _plausible(count: int) -> int:
    if count > 10_000:
        raise LayoutError('more elements than any arm has joints')
    return count


def joint_states(raw: Sequence[bytes]) -> Batch[tuple[str, ...]]:
    """Read sensor_msgs/JointState: layouts are joint names; blocks position, velocity, effort."""
    return _read(raw, _joint_layout)


def wrenches(raw: Sequence[bytes]) -> Batch[str]:
    """Read geometry_msgs/WrenchStamped: layouts are frames; the block is force, then torque."""
    return _read(raw, partial(_stamped_layout, numbers=6))


def points(raw: Sequence[bytes]) -> Batch[str]:
    """Read geometry_msgs/PointStamped: layouts are frames; the block is the point."""
    return _read(raw, partial(_stamped_layout, numbers=3))


def poses(raw: Sequence[bytes]) -> Batch[str]:
    """Read geometry_msgs/PoseStamped: layouts are frames; the block is point and quaternion."""
    return _read(raw, partial(_stamped_layout, numbers=7))


def imus(raw: Sequence[bytes]) -> Batch[str]:
    """Read sensor_msgs/Imu: layouts are frames.

    The block is orientation (4), rate (3) and acceleration (3), each with its covariance (9)
    after it.
    """
    return _read(raw, partial(_stamped_layout, numbers=37))


def _read(raw: Sequence[bytes], walk: Callable[[_Cursor], L]) -> Batch[L]:
    time = np.full(len(raw), np.nan)
    groups: list[Group[L]] = []
    unreadable = 0
    lengths = np.array([len(message) for message in raw])
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        block = np.frombuffer(b''.join([raw[row] for row in rows.tolist()]), np.uint8).reshape(
            len(rows), length)
        for part, cursor, layout in _alike(block, raw, rows, walk):
            if layout is None:
                unreadable += len(part)
                continue
            mine = block[part]
            time[rows[part]] = _stamps(mine, cursor.order)
            groups.append(Group(rows[part], layout, tuple(
                _doubles(mine, begin, count, cursor.order) for begin, count in cursor.blocks)))
    return Batch(time, tuple(groups), unreadable)


def _alike(
    block: Bytes, raw: Sequence[bytes], rows: npt.NDArray[np.intp], walk: Callable[[_Cursor], L]
) -> Iterator[tuple[npt.NDArray[np.intp], _Cursor, L | None]]:
    """Yield rows of one length that have the same layout; None for one that has none."""
    left = np.arange(len(rows))
    while len(left):
        first = int(left[0])
        try:
            cursor = _Cursor(raw[int(rows[first])])
            layout = walk(cursor)
        except LayoutError:
            yield left[:1], _Cursor(b'\0\1\0\0'), None
            left = left[1:]
            continue
        fixed = np.concatenate([np.arange(part.start, part.stop) for part in cursor.fixed])
        same = (block[left][:, fixed] == block[first, fixed]).all(axis=1)
        yield left[same], cursor, layout
        left = left[~same]


def _stamps(block: Bytes, order: str) -> Array:
    seconds = np.ascontiguousarray(block[:, _STAMP]).view([
        ('sec', f'{order}i4'), ('nanosec', f'{order}u4')])[:, 0]
    # The same arithmetic as for single messages, to the last bit.
    return np.asarray(seconds['sec'].astype(float) + 1e-9 * seconds['nanosec'].astype(float))


def _doubles(block: Bytes, begin: int, count: int, order: str) -> Array:
    columns = np.ascontiguousarray(block[:, begin:begin + _NUMBER * count])
    return columns.view(f'{order}f8').astype(float).reshape(len(block), count)
