# SPDX-License-Identifier: Apache-2.0
"""Small bags, valid and damaged."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
from rosbags.typesys import Stores, get_typestore

from robocal_ros.messages import BagWriter
from robocal_ros.messages.bag import Bag, in_order, listed

STORE = get_typestore(Stores.LATEST)
NAMES = ('a', 'b')
JOINT_STATE = 'sensor_msgs/msg/JointState'
WRENCH = 'geometry_msgs/msg/WrenchStamped'
IMU = 'sensor_msgs/msg/Imu'
MARKS = 'diagnostic_msgs/msg/DiagnosticArray'
STRING = 'std_msgs/msg/String'
TEMPERATURE = 'sensor_msgs/msg/Temperature'


def _header(stamp: float | tuple[int, int], frame: str = '') -> object:
    sec, nanosec = stamp if isinstance(stamp, tuple) else divmod(round(stamp * 1e9), 10**9)
    return STORE.types['std_msgs/msg/Header'](
        STORE.types['builtin_interfaces/msg/Time'](sec, nanosec), frame)


def joint_state(
    stamp: float | tuple[int, int], names: Sequence[str] = NAMES,
    position: Sequence[float] = (0.1, 0.2), velocity: Sequence[float] = (0.3, 0.4),
    effort: Sequence[float] = (1.0, 2.0), *, big_endian: bool = False,
) -> bytes:
    """Return a serialized joint state, written by rosbags."""
    message = STORE.types[JOINT_STATE](
        _header(stamp), list(names), np.array(position, float), np.array(velocity, float),
        np.array(effort, float))
    return bytes(STORE.serialize_cdr(message, JOINT_STATE, little_endian=not big_endian))


def wrench(stamp: float, frame: str, values: Sequence[float]) -> bytes:
    """Return a serialized reading, written by rosbags."""
    vector = STORE.types['geometry_msgs/msg/Vector3']
    message = STORE.types[WRENCH](
        _header(stamp, frame), STORE.types['geometry_msgs/msg/Wrench'](
            vector(*values[:3]), vector(*values[3:])))
    return bytes(STORE.serialize_cdr(message, WRENCH))


def temperature(value: float) -> bytes:
    """Return a serialized temperature [°C], written by rosbags."""
    message = STORE.types[TEMPERATURE](_header(0.0, ''), value, 0.0)
    return bytes(STORE.serialize_cdr(message, TEMPERATURE))


def imu(stamp: float, frame: str, acceleration: Sequence[float], rate: Sequence[float]) -> bytes:
    """Return a serialized IMU reading, written by rosbags."""
    vector = STORE.types['geometry_msgs/msg/Vector3']
    message = STORE.types[IMU](
        _header(stamp, frame), STORE.types['geometry_msgs/msg/Quaternion'](0.1, 0.2, 0.3, 0.4),
        np.full(9, 1.0), vector(*rate), np.full(9, 2.0), vector(*acceleration), np.full(9, 3.0))
    return bytes(STORE.serialize_cdr(message, IMU))


def point(stamp: float, frame: str, values: Sequence[float]) -> bytes:
    """Return a serialized reading of a tracker, written by rosbags."""
    kind = 'geometry_msgs/msg/PointStamped'
    message = STORE.types[kind](
        _header(stamp, frame), STORE.types['geometry_msgs/msg/Point'](*values))
    return bytes(STORE.serialize_cdr(message, kind))


def marks(name: str, verb: str, **values: str) -> bytes:
    """Return a serialized mark, written by rosbags."""
    types = STORE.types
    pairs = [types['diagnostic_msgs/msg/KeyValue'](*pair) for pair in values.items()]
    status = types['diagnostic_msgs/msg/DiagnosticStatus'](0, name, verb, 'live', pairs)
    return bytes(STORE.serialize_cdr(types[MARKS](_header(1.0), [status]), MARKS))


def text(words: str) -> bytes:
    """Return a serialized text, written by rosbags."""
    return bytes(STORE.serialize_cdr(STORE.types[STRING](words), STRING))


def write(
    path: Path, messages: Sequence[bytes], *, topic: str = '/joint_states',
    kind: str = JOINT_STATE, storage: str = 'mcap',
) -> Path:
    """Write a bag of one topic; messages are recorded a millisecond apart."""
    with BagWriter(path, storage) as bag:
        bag.add(topic, kind)
        for i, message in enumerate(messages):
            bag.write(topic, 10**6 * i, message)
    return path


def file_of(path: Path) -> Path:
    """Return the only file in the folder of a bag."""
    (found,) = (item for item in path.iterdir() if item.suffix in ('.db3', '.mcap'))
    return found


def without_summary(path: Path) -> Path:
    """Remove the summary from an MCAP file, which recorders may omit."""
    file = file_of(path)
    raw = file.read_bytes()
    (summary_start,) = struct.unpack('<Q', raw[-37 + 9:-37 + 17])
    footer = b'\x02' + struct.pack('<QQQI', 20, 0, 0, 0) + b'\x89MCAP0\r\n'
    file.write_bytes(raw[:summary_start] + footer)
    return path


def recorded(bag: Bag, topics: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Yield topics and serialized messages in the order in which they were recorded."""
    for group in bag.groups(topics):
        pairs = [(part.topic, data) for part in group for data in listed(part.messages)]
        yield from (pairs[row] for row in in_order(group).tolist())
