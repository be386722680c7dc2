# SPDX-License-Identifier: Apache-2.0
"""Numbers straight out of, and into, serialized messages: a fraction of the cost of objects.

Building a WrenchStamped or Imu object takes several times as long as all that is computed from
it. Successive messages of a topic differ in stamp and numbers alone, so the layout of one (OMG's
Common Data Representation, as ROS 2 writes it) serves all that begin alike. Whatever does not
fit is read the usual way.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import WrenchStamped
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import Imu, JointState

from robocal_ros.arrays import Array
from robocal_ros.messages import conversions
from robocal_ros.messages.decode import NO_POSITION, missing_joint

_LITTLE_ENDIAN = b'\x00\x01'
_STAMP = struct.Struct('<iI')
_COUNT = struct.Struct('<I')
_BODY = 4
_AFTER_STAMP = 12


def _stamp(raw: bytes) -> float:
    seconds, nanoseconds = _STAMP.unpack_from(raw, _BODY)
    return float(seconds) + 1e-9 * float(nanoseconds)


def _aligned(at: int, size: int) -> int:
    return at + -(at - _BODY) % size


def _after_text(raw: bytes, at: int) -> int:
    at = _aligned(at, 4)
    return at + 4 + int(_COUNT.unpack_from(raw, at)[0])


class SensorReader:
    """Reads WrenchStamped: frame, stamp, force and torque."""

    kind: Any = WrenchStamped
    _numbers = struct.Struct('<6d')
    _skipped = 0

    def __init__(self) -> None:
        """Know no layout yet."""
        self._head = b''
        self._at = 0
        self._size = -1
        self._frame = ''

    def read(self, raw: bytes) -> tuple[str, float, tuple[float, ...]]:
        """Return frame, stamp [s] and numbers of a message."""
        if len(raw) == self._size and raw[_AFTER_STAMP:self._at] == self._head \
                and raw[:2] == _LITTLE_ENDIAN:
            return self._frame, _stamp(raw), self._picked(raw)
        return self._read_anew(raw)

    def _read_anew(self, raw: bytes) -> tuple[str, float, tuple[float, ...]]:
        message = deserialize_message(raw, self.kind)
        if raw[:2] == _LITTLE_ENDIAN:
            end = _after_text(raw, _AFTER_STAMP)
            self._frame = message.header.frame_id
            # The head ends with the frame's name; padding after it may hold anything.
            self._at, self._size = end, len(raw)
            self._head = raw[_AFTER_STAMP:end]
        return (message.header.frame_id, conversions.seconds(message.header.stamp),
                self._values(message))

    def _picked(self, raw: bytes) -> tuple[float, ...]:
        return self._numbers.unpack_from(raw, _aligned(self._at, 8) + self._skipped)

    def _values(self, message: Any) -> tuple[float, ...]:
        return conversions.wrench_row(message)


class ImuReader(SensorReader):
    """Reads Imu: frame, stamp, linear acceleration and angular velocity."""

    kind = Imu
    # After the orientation (4) and its covariance (9): rate (3), covariance (9), acceleration.
    _numbers = struct.Struct('<15d')
    _skipped = 8 * 13

    def _picked(self, raw: bytes) -> tuple[float, ...]:
        numbers = super()._picked(raw)
        return (*numbers[12:], *numbers[:3])

    def _values(self, message: Any) -> tuple[float, ...]:
        a, w = message.linear_acceleration, message.angular_velocity
        return (a.x, a.y, a.z, w.x, w.y, w.z)


class WrenchWriter:
    """Writes WrenchStamped of one frame: two thirds of the cost of publishing an object."""

    _numbers = struct.Struct('<6d')

    def __init__(self, frame: str) -> None:
        """Lay a message out.

        Args:
            frame: The frame that all messages name.

        """
        self._message = WrenchStamped()
        self._message.header.frame_id = frame
        self._raw = bytearray(serialize_message(self._message))
        self._fast = bytes(self._raw[:2]) == _LITTLE_ENDIAN
        self._at = _aligned(_after_text(bytes(self._raw), _AFTER_STAMP), 8) if self._fast else 0

    def write(self, stamp: Time, values: Sequence[float]) -> bytes:
        """Return a serialized message.

        Args:
            stamp: Its stamp.
            values: Force, then torque [N, N·m].

        """
        if self._fast:
            _STAMP.pack_into(self._raw, _BODY, stamp.sec, stamp.nanosec)
            self._numbers.pack_into(self._raw, self._at, *values)
            return bytes(self._raw)
        message = self._message
        message.header.stamp = stamp
        force, torque = message.wrench.force, message.wrench.torque
        force.x, force.y, force.z, torque.x, torque.y, torque.z = values
        return bytes(serialize_message(message))


class JointReader:
    """Reads JointState: stamp, and position, velocity, effort of the wanted joints.

    Attributes:
        complaint: Why the last message was of no use, empty if it was.

    """

    kind: Any = JointState

    def __init__(self, joint_names: Sequence[str]) -> None:
        """Take the n joints wanted, in their order."""
        self._wanted = tuple(joint_names)
        self._head = b''
        self._at = 0
        self._size = -1
        self._count = 0
        self._columns: list[int] | None = None
        # Of each block: where its count stands, where its numbers begin, how many they are.
        self._blocks: list[tuple[int, int, int]] = []
        self.complaint = ''

    def read(
        self, raw: bytes
    ) -> tuple[float, Array | None, Array | None, Array | None]:
        """Return the stamp [s] and what there is: position, velocity, effort, (n,) each.

        Without a usable position there is a complaint; velocity and effort may be missing.
        """
        if len(raw) == self._size and raw[_AFTER_STAMP:self._at] == self._head \
                and raw[:2] == _LITTLE_ENDIAN and self._same_counts(raw):
            stamp = _stamp(raw)
            blocks = [np.frombuffer(raw, '<f8', count, at) if count else None
                      for _, at, count in self._blocks]
        else:
            stamp, blocks = self._read_anew(raw)
        if self._columns is None:
            return stamp, None, None, None
        position, velocity, effort = (
            None if block is None or len(block) != self._count else block[self._columns]
            for block in blocks)
        if position is None or not np.isfinite(position).all():
            self.complaint = NO_POSITION
            return stamp, None, None, None
        self.complaint = ''
        return stamp, position, _if_finite(velocity), _if_finite(effort)

    def _same_counts(self, raw: bytes) -> bool:
        return all(_COUNT.unpack_from(raw, place)[0] == count
                   for place, _, count in self._blocks)

    def _read_anew(self, raw: bytes) -> tuple[float, list[Array | None]]:
        message = deserialize_message(raw, JointState)
        self._name(message.name)
        if raw[:2] == _LITTLE_ENDIAN:
            self._learn(raw, message)
        return conversions.seconds(message.header.stamp), [
            np.asarray(block, dtype=float) if len(block) else None
            for block in (message.position, message.velocity, message.effort)]

    def _name(self, names: Sequence[str]) -> None:
        self._count = len(names)
        complaint = missing_joint(self._wanted, names)
        if complaint:
            self._columns = None
            self.complaint = complaint
        else:
            self._columns = [list(names).index(name) for name in self._wanted]

    def _learn(self, raw: bytes, message: Any) -> None:
        """Note where the numbers of messages with these names stand."""
        at = _aligned(_after_text(raw, _AFTER_STAMP), 4) + 4
        for _ in message.name:
            at = _after_text(raw, at)
        self._at, self._size = at, len(raw)
        self._head = raw[_AFTER_STAMP:at]
        self._blocks = []
        for block in (message.position, message.velocity, message.effort):
            place = _aligned(at, 4)
            at = _aligned(place + 4, 8) if len(block) else place + 4
            self._blocks.append((place, at, len(block)))
            at += 8 * len(block)


def _if_finite(values: Array | None) -> Array | None:
    return values if values is not None and np.isfinite(values).all() else None
