# SPDX-License-Identifier: Apache-2.0
"""Bags of recordings, of any length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from pathlib import Path
from typing import Any

import numpy as np
from rosbags.typesys import Stores, get_typestore

from robocal_ros.arrays import Array
from robocal_ros.messages import BagWriter, JointSamples, WrenchSamples

JOINT_STATES, WRENCH, DESCRIPTION = '/joint_states', '/ft_wrist/wrench', '/robot_description'
STORE = get_typestore(Stores.LATEST)
_TYPES: Any = STORE.types
_BLOCK, _PERIOD = 20_000, 0.001
# Standard deviation of efforts and readings added between simulated samples [N·m, N].
_EFFORT_NOISE, _WRENCH_NOISE = 0.1, 0.1

Stamped = Iterator[tuple[int, str, bytes]]
"""Stamps [ns], topics and messages, in order."""


@dataclass(frozen=True)
class Record:
    """Recording of one procedure.

    Attributes:
        urdf: URDF text.
        joints: Joint states.
        wrench: Readings of the wrist sensor.

    """

    urdf: str
    joints: JointSamples
    wrench: WrenchSamples


def header(stamp: float, frame: str = '') -> Any:
    """Return a header with a stamp [s]."""
    seconds, nanoseconds = divmod(round(stamp * 1e9), 10**9)
    return _TYPES['std_msgs/msg/Header'](
        _TYPES['builtin_interfaces/msg/Time'](seconds, nanoseconds), frame)


def _copies(
    topic: str, kind: str, message: Any, time: Array, blocks: Mapping[int, Array]
) -> Stamped:
    """Yield copies of a message with other stamps [s] and numbers, by places from the end."""
    # Numbers are counted from the end: what precedes them depends on names.
    template = np.frombuffer(bytes(STORE.serialize_cdr(message, kind)), np.uint8)
    rows = np.tile(template, (len(time), 1))
    stamps = np.rint(1e9 * time).astype(np.int64)
    rows[:, 4:12] = np.stack(np.divmod(stamps, 10**9), 1).astype('<u4').view(np.uint8)
    for back, values in blocks.items():
        raw = np.ascontiguousarray(values).view(np.uint8)
        begin = rows.shape[1] - back
        rows[:, begin:begin + raw.shape[1]] = raw
    for stamp, row in zip(stamps.tolist(), rows, strict=True):
        yield stamp, topic, row.tobytes()


def joint_states(joints: JointSamples) -> Stamped:
    """Yield the messages of joint states."""
    kind, size = 'sensor_msgs/msg/JointState', 8 * len(joints.joint_names)
    zeros = np.zeros(len(joints.joint_names))
    return _copies(JOINT_STATES, kind, _TYPES[kind](
        header(0.0), list(joints.joint_names), zeros, zeros, zeros), joints.time, {
            3 * size + 16: joints.position, 2 * size + 8: joints.velocity, size: joints.effort})


def wrenches(readings: WrenchSamples, topic: str = WRENCH) -> Stamped:
    """Yield the messages of an F/T sensor."""
    vector = _TYPES['geometry_msgs/msg/Vector3'](0.0, 0.0, 0.0)
    kind = 'geometry_msgs/msg/WrenchStamped'
    return _copies(topic, kind, _TYPES[kind](
        header(0.0, readings.frame), _TYPES['geometry_msgs/msg/Wrench'](vector, vector)),
        readings.time, {48: readings.wrench})


def text_message(text: str) -> bytes:
    """Return a serialized std_msgs/String."""
    raw = text.encode() + b'\0'
    return b'\0\1\0\0' + np.uint32(len(raw)).tobytes() + raw


def announce(bag: BagWriter, urdf: str, *topics: str) -> None:
    """Add the topics of joint states and some F/T sensors, and a robot description."""
    bag.add(DESCRIPTION, 'std_msgs/msg/String', latched=True, depth=1)
    bag.write(DESCRIPTION, 0, text_message(urdf))
    bag.add(JOINT_STATES, 'sensor_msgs/msg/JointState', latched=True)
    for topic in topics:
        bag.add(topic, 'geometry_msgs/msg/WrenchStamped')


def write_record(record: Record, path: Path, storage: str = 'mcap') -> None:
    """Write a recording unchanged.

    Args:
        record: The recording.
        path: Folder of the bag; must not exist.
        storage: ``mcap`` or ``sqlite3``.

    """
    with BagWriter(path, storage) as bag:
        announce(bag, record.urdf, WRENCH)
        for stamp, topic, raw in merge(joint_states(record.joints), wrenches(record.wrench)):
            bag.write(topic, stamp, raw)


def write_long(
    record: Record, path: Path, duration: float, storage: str = 'mcap', *, wrench: bool = False
) -> None:
    """Write a recording repeatedly, at 1 kHz, to a bag of a given duration.

    The samples are interpolated and get sensor noise, so that no two rounds are equal.

    Args:
        record: The recording.
        path: Folder of the bag; must not exist.
        duration: Duration of the bag [s].
        storage: ``mcap`` or ``sqlite3``.
        wrench: True to write the wrist sensor too.

    """
    draw, joints, sensor = np.random.default_rng(1), record.joints, record.wrench
    count = round(duration / _PERIOD)
    with BagWriter(path, storage) as bag:
        announce(bag, record.urdf, *[WRENCH] * wrench)
        for begin in range(0, count, _BLOCK):
            time: Array = 1.0 + _PERIOD * np.arange(
                begin, min(begin + _BLOCK, count), dtype=float)
            position, velocity, effort = (
                _later(joints.time, values, time, noise, draw) for values, noise in (
                    (joints.position, 0.0), (joints.velocity, 0.0),
                    (joints.effort, _EFFORT_NOISE)))
            streams = [joint_states(JointSamples(
                joints.joint_names, time, position, velocity, effort))]
            if wrench:
                streams.append(wrenches(WrenchSamples(sensor.frame, time, _later(
                    sensor.time, sensor.wrench, time, _WRENCH_NOISE, draw))))
            for stamp, topic, raw in merge(*streams):
                bag.write(topic, stamp, raw)


def _later(
    recorded: Array, values: Array, time: Array, noise: float, draw: np.random.Generator
) -> Array:
    """Return values at some times, repeated with fresh noise."""
    phase = recorded[0] + time % (recorded[-1] - recorded[0])
    found = np.column_stack([np.interp(phase, recorded, column) for column in values.T])
    return found + noise * draw.normal(size=found.shape)
