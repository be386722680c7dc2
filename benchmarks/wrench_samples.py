# SPDX-License-Identifier: Apache-2.0
"""Samples of an arm as real ones send them: asynchronous, filtered, jittering, off the model.

The arm follows sine waves exactly, so that everything its sensors read is known. What it believes
of its inertias and of its payload is wrong by given amounts.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pinocchio as pin
import scipy

from robocal_ros.arrays import Array
from robocal_ros.messages import Stamps
from robocal_ros.robot import RigidBodyInertia, Robot, SteadyFriction
from robocal_ros.wrench import Observation, SensedArm, SensorMount, WrenchObserver

EPOCH = 1_790_000_000 * 10**9
"""First stamp: that of a wall clock [ns]."""

FORCE_NOISE, TORQUE_NOISE, EFFORT_NOISE = 0.3, 0.01, 0.2
"""Standard deviation of readings [N, N·m], and of drive torques [N·m]."""


@dataclass(frozen=True)
class Impact:
    """Force on a link for some time.

    Attributes:
        chain: Index of the sub-chain.
        force: In its frame, shape (3,) [N].
        point: Where it acts, in its frame, shape (3,) [m].
        begin: When it begins, since the first stamp [s].
        duration: How long it lasts [s].

    """

    chain: int
    force: Array
    point: Array
    begin: float
    duration: float

    @property
    def wrench(self) -> Array:
        """Force and moment about the sub-chain's origin, shape (6,)."""
        return np.concatenate((self.force, np.cross(self.point, self.force)))


@dataclass(frozen=True)
class Settings:
    """Properties of the streams.

    Attributes:
        rate: Rate of the joint states [Hz].
        sensor_rates: Rate of each sensor, one for each or one for all [Hz].
        jitter: Standard deviation of the sampling instants [s].
        filtered: Weight of the newest value in each sensor's first-order filter; 1 for none.
        inertia_error: Standard deviation of each link's true inertia from the URDF's, relative.
        range: Largest force that a sensor shows [N].
        centre: Middle of the joints' motion [rad].
        amplitude: Amplitude of the joints' motion [rad].
        frequency: Frequency of the joints' motion [Hz].

    """

    rate: float = 1000.0
    sensor_rates: Sequence[float] = (1000.0,)
    jitter: float = 5e-5
    filtered: float = 0.5
    inertia_error: float = 0.0
    range: float = np.inf
    centre: float = 0.0
    amplitude: float = 0.5
    frequency: float = 0.25


@dataclass
class Stream:
    """Samples of one source, in the order of their stamps.

    Attributes:
        stamps: Stamps, shape (m,) [ns].
        values: Rows, shape (m, columns).

    """

    stamps: Stamps
    values: Array


@dataclass
class SampledArm:
    """An arm in motion, and all that its sensors send.

    Attributes:
        urdf: URDF that the observer reads.
        sensors: Frames of the F/T sensors.
        settings: Properties of the streams.
        seed: Seed of noise, jitter, motion and model errors.
        load: Load that the arm carries; None for none.
        laws: Friction by joint name.
        now: Time of the next sample, since the first stamp [s].

    """

    urdf: str
    sensors: Sequence[str]
    settings: Settings = field(default_factory=Settings)
    seed: int = 0
    load: RigidBodyInertia | None = None
    laws: dict[str, SteadyFriction] = field(default_factory=dict)
    now: float = 0.0

    def __post_init__(self) -> None:
        """Draw what is random about the arm."""
        self.generator = np.random.default_rng(self.seed)
        mounts = [SensorMount(frame) for frame in self.sensors]
        self.robot = Robot(self.urdf)
        self.truth = SensedArm(Robot(self._true_urdf()), mounts)
        self.truth.carry(self.load, 'tool0')
        n = self.robot.n
        self._phase = self.generator.uniform(0.0, 2.0 * np.pi, n)
        self._rate = 2.0 * np.pi * self.settings.frequency * self.generator.uniform(0.7, 1.3, n)

    def _true_urdf(self) -> str:
        tree = ElementTree.fromstring(self.urdf)
        for body in tree.iter('inertial'):
            factor = 1.0 + self.settings.inertia_error * self.generator.normal()
            for element, names in (('mass', ('value',)),
                                   ('inertia', ('ixx', 'iyy', 'izz', 'ixy', 'ixz', 'iyz'))):
                for found in body.findall(element):
                    for name in names:
                        found.set(name, repr(factor * float(found.get(name, '0'))))
        return ElementTree.tostring(tree, encoding='unicode')

    def motion(self, time: Array, moving: bool = True) -> tuple[Array, Array, Array]:
        """Return joint angles, velocities and accelerations, shape (m, n) each."""
        angle = self._rate * time[:, None] + self._phase if moving else \
            np.broadcast_to(self._phase, (len(time), self.robot.n))
        size, rate = self.settings.amplitude, self._rate * moving
        return (self.settings.centre + size * np.sin(angle), size * rate * np.cos(angle),
                -size * rate**2 * np.sin(angle))

    def _instants(self, rate: float, duration: float) -> Array:
        count = int(duration * rate)
        begin = self.now + self.generator.uniform(0.0, 1.0 / rate)
        jitter = np.clip(self.generator.normal(0.0, self.settings.jitter, count),
                         -0.4 / rate, 0.4 / rate)
        return np.asarray(begin + np.arange(count) / rate + jitter)

    def samples(
        self, duration: float, impacts: Sequence[Impact] = (), *, moving: bool = True
    ) -> tuple[Stream, list[Stream]]:
        """Return joint states, and readings of each sensor, of the next time.

        Args:
            duration: How long [s].
            impacts: Forces on links, by time since the first stamp.
            moving: Whether the arm moves, from where the motion begins; it rests otherwise.

        Returns:
            Rows of joint angles, velocities and drive torques, shape (m, 3 n); and of readings.

        """
        streams = []
        for index, rate in enumerate(np.resize(self.settings.sensor_rates, len(self.sensors))):
            time = self._instants(rate, duration)
            held, _ = self.truth.held_many(*self.motion(time, moving))
            values = -held[:, index]
            for row, links, _ in self._pushes(time, impacts, moving):
                values[row] += links[index]
            weight = self.settings.filtered
            values += self.generator.normal(size=values.shape) * np.repeat(
                [FORCE_NOISE, TORQUE_NOISE], 3) * np.sqrt((2.0 - weight) / weight)
            # From the first value, y_i = y_{i-1} + weight (x_i - y_{i-1}).
            values = values[:1] + scipy.signal.lfilter(
                [weight], [1.0, weight - 1.0], values - values[:1], axis=0)
            values[:, :3] = np.clip(values[:, :3], -self.settings.range, self.settings.range)
            streams.append(Stream(_stamps(time), values))
        time = self._instants(self.settings.rate, duration)
        q, v, a = self.motion(time, moving)
        torque = self.truth.held_many(q, v, a)[1] + self._friction(v)
        for row, _, push in self._pushes(time, impacts, moving):
            torque[row] -= push
        noise = self.generator.normal(size=(2, *v.shape))
        rows = np.column_stack((q, v + 1e-3 * noise[0] * moving, torque + EFFORT_NOISE * noise[1]))
        self.now += duration
        return Stream(_stamps(time), rows), streams

    def _friction(self, v: Array) -> Array:
        torque = np.zeros_like(v)
        for name, law in self.laws.items():
            column = self.robot.joint_names.index(name)
            torque[:, column] = law.torque(v[:, column])
        return torque

    def _pushes(
        self, time: Array, impacts: Sequence[Impact], moving: bool
    ) -> Iterator[tuple[int, Array, Array]]:
        """Yield rows with an impact, what it adds to readings (s, 6), and takes from torques."""
        for impact in impacts:
            rows = np.flatnonzero((time >= impact.begin) & (time < impact.begin + impact.duration))
            for row, q in zip(rows.tolist(), self.motion(time[rows], moving)[0], strict=True):
                links, torque = exerted(
                    self.robot, q, self.sensors[impact.chain], impact.wrench, self.sensors)
                # Sensors distal to the impact do not carry it.
                links[impact.chain + 1:] = 0.0
                yield row, links, torque


def exerted(
    robot: Robot, q: Array, frame: str, wrench: Array, links: Sequence[str]
) -> tuple[Array, Array]:
    """Return what a wrench on a frame exerts on links and joints.

    Args:
        robot: The arm.
        q: Joint angles, shape (n,) [rad].
        frame: The frame.
        wrench: In this frame, shape (6,) [N, N·m].
        links: Links proximal to it, or its own.

    Returns:
        Wrenches in the frames of the links, shape (s, 6), and torques, shape (n,) [N·m].

    """
    place = robot.transform_frame_to_root(q, frame)
    jacobian = np.reshape(pin.computeFrameJacobian(
        robot.model, robot.data, q, robot.frame_id(frame), pin.LOCAL), (6, robot.n))
    return np.array([robot.transform_frame_to_root(q, link).actInv(place).toDualActionMatrix()
                     @ wrench for link in links]).reshape(-1, 6), jacobian.T @ wrench


def _stamps(time: Array) -> Stamps:
    return EPOCH + np.rint(1e9 * time).astype(np.int64)


def in_order(joints: Stream, sensors: Sequence[Stream]) -> Iterator[tuple[int, int, Any]]:
    """Yield stamp [ns], sensor (-1 for joint states) and row of all samples, by stamps."""
    streams = [joints, *sensors]
    stamps = np.concatenate([stream.stamps for stream in streams])
    source = np.repeat(np.arange(-1, len(sensors)), [len(s.stamps) for s in streams])
    place = np.concatenate([np.arange(len(stream.stamps)) for stream in streams])
    rows = [list(map(tuple, stream.values.tolist())) for stream in sensors]
    for number in np.argsort(stamps, kind='stable').tolist():
        index, row = int(source[number]), int(place[number])
        yield int(stamps[number]), index, joints.values[row] if index < 0 else rows[index][row]


def follow(
    observer: WrenchObserver, joints: Stream, sensors: Sequence[Stream]
) -> list[Observation]:
    """Feed samples to an observer in the order of their stamps; returns what it observes."""
    found = []
    for stamp, index, row in in_order(joints, sensors):
        if index < 0:
            observer.joint_chains.add(stamp, row)
        else:
            observer.feeds[index].add(stamp, row)
        while (observation := observer.take()) is not None:
            found.append(observation)
    return found
