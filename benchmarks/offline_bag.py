# SPDX-License-Identifier: Apache-2.0
"""Bags of recordings, of any length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from pathlib import Path

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.messages import (
    JOINT_STATE,
    STRING,
    WRENCH as WRENCH_STAMPED,
    BagWriter,
    JointSamples,
    WrenchSamples,
    serialized,
)

JOINT_STATES, WRENCH, DESCRIPTION = '/joint_states', '/ft_wrist/wrench', '/robot_description'
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


def _copies(topic: str, message: bytes, time: Array, blocks: Mapping[int, Array]) -> Stamped:
    """Yield copies of a message with other stamps [s] and numbers, by places from the end."""
    # Numbers are counted from the end: what precedes them depends on names.
    template = np.frombuffer(message, np.uint8)
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
    size, zeros = 8 * len(joints.joint_names), np.zeros(len(joints.joint_names))
    return _copies(JOINT_STATES, serialized(
        JOINT_STATE, name=list(joints.joint_names), position=zeros, velocity=zeros, effort=zeros),
        joints.time, {3 * size + 16: joints.position, 2 * size + 8: joints.velocity,
                      size: joints.effort})


def wrenches(readings: WrenchSamples, topic: str = WRENCH) -> Stamped:
    """Yield the messages of an F/T sensor."""
    return _copies(topic, serialized(WRENCH_STAMPED, header={'frame_id': readings.frame}),
                   readings.time, {48: readings.wrench})


def announce(bag: BagWriter, urdf: str, *topics: str) -> None:
    """Add the topics of joint states and some F/T sensors, and a robot description."""
    bag.add(DESCRIPTION, STRING, latched=True, depth=1)
    bag.write(DESCRIPTION, 0, serialized(STRING, data=urdf))
    bag.add(JOINT_STATES, JOINT_STATE, latched=True)
    for topic in topics:
        bag.add(topic, WRENCH_STAMPED)


def write_record(record: Record, path: Path) -> Path:
    """Write a recording unchanged; return the path, a folder that must not exist."""
    with BagWriter(path) as bag:
        announce(bag, record.urdf, WRENCH)
        for stamp, topic, raw in merge(joint_states(record.joints), wrenches(record.wrench)):
            bag.write(topic, stamp, raw)
    return path


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
            time: Array = 1.0 + _PERIOD * np.arange(begin, min(begin + _BLOCK, count), dtype=float)
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
