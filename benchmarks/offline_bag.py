# SPDX-License-Identifier: Apache-2.0
"""Bags of procedures on the simulated arm, of any length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import merge
from pathlib import Path

import numpy as np

from benchmarks.arm import InProcessArm
from demo import default_cell
from robocal_ros.arrays import Array
from robocal_ros.friction import FrictionParameters
from robocal_ros.friction.plan import plan_runs
from robocal_ros.messages import BagWriter, JointSamples, TopicQos, WrenchSamples
from robocal_ros.payload import PayloadParameters
from robocal_ros.payload.model import body_regressor
from robocal_ros.payload.plan import plan_excitation, plan_static_poses, plan_two_plane
from robocal_ros.robot import (
    CollisionChecker,
    Lspb,
    MotionLimits,
    RigidBodyInertia,
    Robot,
    Trajectory,
    connect,
    quintic_path,
)
from robocal_sim.truth import HiddenTruth

JOINT_STATES, WRENCH, DESCRIPTION = '/joint_states', '/ft_wrist/wrench', '/robot_description'
KNOWN_MASS = 2.0
_SENSOR = 'ft_wrist'
_BLOCK = 20_000
_PERIOD = 0.001
# Standard deviation of efforts and readings added between simulated samples [N·m, N].
_EFFORT_NOISE, _WRENCH_NOISE = 0.1, 0.1


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


class RecordedProcedures:
    """Short procedures on the simulated arm in this process."""

    def __init__(
        self, seed: int = 1, *, speed: float = 0.5, truth: HiddenTruth | None = None
    ) -> None:
        """Create the arm.

        Args:
            seed: Seed of noise and biases.
            speed: Speed of sweeps [rad/s].
            truth: Hidden truth; that of the default arm if None.

        """
        self._urdf = default_cell.urdf()
        self._robot = Robot(self._urdf)
        self._checker = CollisionChecker(self._robot)
        truth = truth or default_cell.hidden_truth()
        wrist = tuple(s for s in truth.force_torque_sensors if s.frame == _SENSOR)
        self._arm = InProcessArm(
            self._urdf, replace(truth, force_torque_sensors=wrist),
            default_cell.reference_cell(), seed)
        self._home = self._arm.posture
        self._speed = speed
        self._limits = (np.minimum(self._robot.velocity_limit, 2.0), np.full(self._robot.n, 4.0))

    def two_plane(self) -> Record:
        """Run the sweeps of the two-plane method."""
        plan = plan_two_plane(self._robot, self._checker, self._arm.posture, mass=KNOWN_MASS)
        self._arm.move(self._through(plan.approach))
        for sweep in plan.sweeps:
            self._go(sweep.end(high=False))
            for start, goal in ((sweep.low, sweep.high), (sweep.high, sweep.low)):
                segment = Lspb.with_acceleration(start, goal, self._speed, 2.0)
                self._arm.move(segment.trajectory(sweep.posture, sweep.joint))
        return self._taken()

    def static_poses(self, count: int = 8) -> Record:
        """Visit static postures."""
        for posture in plan_static_poses(
            self._robot, self._checker, self._arm.posture, sensor_frame=_SENSOR, count=count
        ):
            self._go(posture)
            self._arm.dwell(0.8)
        return self._taken()

    def friction(self, joint: str = 'joint_6', speeds: int = 5) -> Record:
        """Run one joint at a few speeds."""
        home = self._arm.posture
        values = FrictionParameters(
            min_speed=0.03, max_speed=0.6, speed_count=speeds, max_range=1.2, max_cruise=4.0)
        for run in plan_runs(
            self._robot, self._checker, home, self._robot.index(joint), values
        ):
            self._go(run.start_posture())
            self._arm.dwell(0.3)
            self._arm.move(run.trajectory())
            self._arm.dwell(0.3)
        return self._taken()

    def excitation(self) -> Record:
        """Run an exciting motion."""
        robot = self._robot
        limits = MotionLimits(robot.joint_names, robot.lower, robot.upper, robot.velocity_limit,
                              np.full(robot.n, 6.0))
        guess = RigidBodyInertia(KNOWN_MASS, np.zeros(3), np.zeros((3, 3)))
        values = PayloadParameters(excitation_period=6.0, excitation_repeats=2)
        trajectory = plan_excitation(
            robot.with_payload(guess), self._checker, limits, self._arm.posture,
            lambda robot, q, v, a: body_regressor(robot, _SENSOR, q, v, a), values)
        self._arm.dwell(0.5)
        self._arm.move(trajectory)
        self._arm.dwell(0.5)
        return self._taken()

    def _taken(self) -> Record:
        """Move back to the start posture of all procedures and return the samples."""
        self._go(self._home)
        self._arm.dwell(0.3)
        return Record(self._urdf, *self._arm.take_samples())

    def _through(self, path: Array) -> Trajectory:
        return quintic_path(path, *self._limits)

    def _go(self, posture: Array) -> None:
        here = self._arm.posture
        if np.abs(posture - here).max() > 1e-3:
            self._arm.move(self._through(connect(self._robot, self._checker, here, posture)))


def write_record(
    record: Record, path: Path, storage: str = 'mcap', *, wrench: bool = True
) -> None:
    """Write a recording unchanged.

    Args:
        record: The recording.
        path: Folder of the bag; must not exist.
        storage: ``mcap`` or ``sqlite3``.
        wrench: True to write the wrist sensor too.

    """
    with BagWriter(path, storage) as bag:
        _announce(bag, record, wrench=wrench)
        stamped = [(int(stamp), JOINT_STATES, raw)
                   for stamp, raw in serialized_joint_states(record.joints)]
        if wrench:
            stamped += [(int(stamp), WRENCH, raw)
                        for stamp, raw in serialized_wrenches(record.wrench)]
        for stamp, topic, raw in sorted(stamped, key=lambda item: item[0]):
            bag.write(topic, stamp, raw)


def write_long(
    record: Record, path: Path, duration: float, storage: str = 'mcap', *, wrench: bool = False
) -> int:
    """Write a recording repeatedly, at 1 kHz, to a bag of a given duration.

    The samples are interpolated and get sensor noise, so that no two rounds are equal.

    Args:
        record: The recording.
        path: Folder of the bag; must not exist.
        duration: Duration of the bag [s].
        storage: ``mcap`` or ``sqlite3``.
        wrench: True to write the wrist sensor too.

    Returns:
        The number of joint states.

    """
    rng = np.random.default_rng(1)
    count = round(duration / _PERIOD)
    with BagWriter(path, storage) as bag:
        _announce(bag, record, wrench=wrench)
        for begin in range(0, count, _BLOCK):
            rows = np.arange(begin, min(begin + _BLOCK, count))
            time: Array = 1.0 + _PERIOD * rows.astype(float)
            streams = [((stamp, JOINT_STATES, raw) for stamp, raw in serialized_joint_states(
                later(record.joints, time, rng)))]
            if wrench:
                streams.append(((stamp, WRENCH, raw) for stamp, raw in serialized_wrenches(
                    read_later(record.wrench, time, rng))))
            for stamp, topic, raw in merge(*streams):
                bag.write(topic, stamp, raw)
    return count


def _phase(recorded: Array, time: Array) -> Array:
    """Return the times within a recording that is repeated."""
    return recorded[0] + time % (recorded[-1] - recorded[0])


def _at(phase: Array, recorded: Array, values: Array) -> Array:
    return np.column_stack([np.interp(phase, recorded, column) for column in values.T])


def later(joints: JointSamples, time: Array, rng: np.random.Generator) -> JointSamples:
    """Return joint states at some times, repeated with fresh noise."""
    phase = _phase(joints.time, time)
    position, velocity, effort = (
        _at(phase, joints.time, values)
        for values in (joints.position, joints.velocity, joints.effort))
    return JointSamples(joints.joint_names, time, position, velocity,
                        effort + _EFFORT_NOISE * rng.normal(size=effort.shape))


def read_later(wrench: WrenchSamples, time: Array, rng: np.random.Generator) -> WrenchSamples:
    """Return readings at some times, repeated with fresh noise."""
    values = _at(_phase(wrench.time, time), wrench.time, wrench.wrench)
    return WrenchSamples(
        wrench.frame, time, values + _WRENCH_NOISE * rng.normal(size=values.shape))


# ------------------------------------------------------------------------ serialization


def _announce(bag: BagWriter, record: Record, *, wrench: bool) -> None:
    bag.add(DESCRIPTION, 'std_msgs/msg/String', TopicQos(latched=True, depth=1))
    bag.write(DESCRIPTION, 0, text_message(record.urdf))
    bag.add(JOINT_STATES, 'sensor_msgs/msg/JointState', TopicQos(latched=True))
    if wrench:
        bag.add(WRENCH, 'geometry_msgs/msg/WrenchStamped')


def text_message(text: str) -> bytes:
    """Return a serialized std_msgs/String."""
    raw = text.encode() + b'\0'
    return b'\0\1\0\0' + np.uint32(len(raw)).tobytes() + raw


def _serialized(head: bytes, time: Array, values: Array, counts: bool) -> Iterator[
        tuple[int, bytes]]:
    """Yield stamps [ns] and messages: head with the stamp, then blocks of numbers."""
    nanoseconds = np.round(time * 1e9).astype(np.int64)
    stamps = np.empty((len(time), 2), '<u4')
    stamps[:, 0], stamps[:, 1] = nanoseconds // 10**9, nanoseconds % 10**9
    for stamp, first, row in zip(nanoseconds.tolist(), stamps, values, strict=True):
        message = head[:4] + first.tobytes() + head[12:]
        for block in row.reshape(3, -1) if counts else (row,):
            if counts:
                message += np.uint32(len(block)).tobytes()
            message += b'\0' * (-(len(message) - 4) % 8) + block.tobytes()
        yield stamp, message


def serialized_joint_states(joints: JointSamples) -> Iterator[tuple[int, bytes]]:
    """Yield stamp [ns] and serialized message of each sample."""
    head = bytearray(b'\0\1\0\0' + b'\0' * 8 + np.uint32(1).tobytes() + b'\0\0\0\0')
    head += np.uint32(len(joints.joint_names)).tobytes()
    for name in joints.joint_names:
        raw = name.encode() + b'\0'
        head += np.uint32(len(raw)).tobytes() + raw
        head += b'\0' * (-(len(head) - 4) % 4)
    values = np.hstack((joints.position, joints.velocity, joints.effort))
    return _serialized(bytes(head), joints.time, values, counts=True)


def serialized_wrenches(readings: WrenchSamples) -> Iterator[tuple[int, bytes]]:
    """Yield stamp [ns] and serialized message of each reading."""
    raw = readings.frame.encode() + b'\0'
    head = b'\0\1\0\0' + b'\0' * 8 + np.uint32(len(raw)).tobytes() + raw
    return _serialized(head, readings.time, readings.wrench, counts=False)
