# SPDX-License-Identifier: Apache-2.0
"""Simulated arm and observer in one process: motions and pushes in, observations out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.wrench_samples import Stream
from demo import default_cell
from robocal_ros.arrays import Array
from robocal_ros.errors import MotionError
from robocal_ros.messages import from_seconds
from robocal_ros.results import CalibrationResult
from robocal_ros.robot import Robot, quintic_path
from robocal_ros.wrench import (
    Fusion,
    Observation,
    OfflineObserver,
    TareRecord,
    Taring,
    WrenchObserver,
    WrenchParameters,
)
from robocal_ros.wrench.offline_observer import Block
from robocal_sim.model import read_description
from robocal_sim.simulator import ArmSimulator, JointReading, Readings
from robocal_sim.trajectory import Trajectory as Command, TrajectoryPoint

FRAMES = ['ft_link_2_proximal', 'ft_link_2_distal', 'ft_link_3_proximal', 'ft_link_3_distal',
          'ft_wrist']
"""Frames of the F/T sensors of the default arm, from the base on."""

_ACCELERATION = 2.0
# Range of random postures, in which the arm does not collide with itself [rad].
_REACH = 1.2


class ObservedArm:
    """An arm in simulated time whose sensors feed an observer.

    Attributes:
        robot: Model of the arm.
        arm: Model with sub-chains between the sensors.
        observer: The observer.
        simulator: The simulated arm, with its hidden state.

    """

    def __init__(
        self, seed: int, *, rate: float = 500.0, imus: Mapping[str, str] | None = None,
        **values: Any,
    ) -> None:
        """Create the arm at rest, without tare and payload.

        Args:
            seed: Seed of noise and sensor biases.
            rate: Rate of joint states and sensors [Hz].
            imus: Frames of IMUs by the link whose motion they measure.
            **values: Parameters of the observer; joint torques are not observed by default.

        """
        urdf = default_cell.urdf()
        self.truth = default_cell.hidden_truth()
        self.simulator = ArmSimulator(
            read_description(urdf), self.truth, default_cell.reference_cell(), seed=seed,
            rate=rate)
        self.robot = Robot(urdf)
        self.frames = [item.frame for item in self.truth.force_torque_sensors]
        imus = imus or {}
        imu_frames = [item.frame for item in self.truth.imus]
        self._imus = {imu_frames.index(frame): self.frames.index(link)
                      for link, frame in imus.items()}
        with_imu = [imus.get(frame, '') for frame in self.frames]
        self.values = WrenchParameters(**{
            'sensor_frames': self.frames, 'observe_torque': False,
            'kinematics': ['imu' if frame else 'joint_states' for frame in with_imu],
            'imu_topics': with_imu if imus else [''], 'imu_frames': with_imu if imus else [''],
            **values})
        self.observer = WrenchObserver(self.robot, self.values)
        self.arm = self.observer.arm

    @property
    def now(self) -> float:
        """Simulated time [s]."""
        return self.simulator.now

    def carry_tool(self) -> None:
        """Give the observer the hidden tool as its payload."""
        tool = self.truth.tool
        self.observer.carry(default_cell.rigid_body(tool), tool.parent)

    def tare(self) -> tuple[TareRecord, CalibrationResult]:
        """Tare at rest and use the biases from now on; errors as for ``Taring.find``."""
        record = TareRecord()
        self.observer.recorder = record
        try:
            self.run(self.values.tare_duration)
        finally:
            self.observer.recorder = None
        result, _ = Taring(self.arm).find(record, self.values)
        self.observer.use_tare(result)
        return record, result

    def random_path(
        self, generator: np.random.Generator, count: int, *, measured: bool = False
    ) -> Array:
        """Return the current posture and random ones, shape (count + 1, n) [rad].

        Args:
            generator: Random generator.
            count: Number of random postures.
            measured: True to start from the measured instead of the commanded posture: a small
                step, so that the motion begins with a jolt.

        """
        low = np.maximum(self.robot.lower, -_REACH)
        high = np.minimum(self.robot.upper, _REACH)
        here = (self.simulator.physics.encoder if measured
                else np.array(self.simulator.controller.desired.position)).copy()
        return np.array([here, *(generator.uniform(low, high) for _ in range(count))])

    def begin_motion(self, path: Array, speed: float = 1.0) -> float:
        """Start a motion that stops in every posture and return its duration [s].

        Args:
            path: Postures, shape (k, n) [rad].
            speed: Largest joint speed [rad/s].

        Raises:
            MotionError: The controller refuses it.

        """
        simulator, n = self.simulator, self.robot.n
        motion = quintic_path(path, np.full(n, speed), np.full(n, _ACCELERATION))
        command = Command(simulator.description.joints, tuple(
            TrajectoryPoint(float(motion.time[i]), tuple(motion.position[i]),
                            tuple(motion.velocity[i]),
                            () if motion.acceleration is None else tuple(motion.acceleration[i]))
            for i in range(len(motion.time))))
        refusal = simulator.controller.check(command, simulator.now)
        if refusal:
            raise MotionError(f'The simulated controller refused a trajectory: {refusal}')
        simulator.controller.accept_goal(command, simulator.now)
        return motion.duration

    def push(self, chain: int, point: Array, force: Array, duration: float) -> float:
        """Push a link and return the simulated time [s].

        Args:
            chain: Index of the sub-chain; the push acts on the link that names it.
            point: Point of application in its frame, shape (3,) [m].
            force: Force in its frame, shape (3,) [N].
            duration: Duration [s].

        """
        self.simulator.physics.push(
            self.arm.chains[chain].link, force, np.cross(point, force), duration)
        return self.now

    def run(self, duration: float) -> list[Observation]:
        """Advance simulated time and return the observations.

        Args:
            duration: Duration [s].

        """
        observations: list[Observation] = []
        end = self.now + duration - 1e-9
        while self.now < end:
            readings = self.simulator.step()
            self.simulator.controller.take_ended()
            if readings.joints or readings.wrenches:
                self._hand_over(readings, observations)
        return observations

    def _hand_over(self, readings: Readings, observations: list[Observation]) -> None:
        wrenches = [(item.index, item.time, tuple(item.values.tolist()))
                    for item in readings.wrenches]
        imus = [(self._imus[item.index], item.time, tuple(item.values.tolist()))
                for item in readings.imus if item.index in self._imus]
        observer = self.observer
        for index, stamp, values in wrenches:
            # Like the message decoder of the node.
            if math.isfinite(sum(values)):
                observer.feeds[index].add(from_seconds(stamp), values)
            else:
                observer.feeds[index].refuse(
                    from_seconds(stamp), f"Sensor '{observer.feeds[index].name}' sends "
                    'values that are not finite numbers.')
        for index, stamp, values in imus:
            observer.imu_chains[index].imu.add(from_seconds(stamp), values)
        for joint in readings.joints:
            observer.joint_chains.add(from_seconds(joint.time), joint_row(joint))
        while (observation := observer.take()) is not None:
            observations.append(observation)


def joint_row(joint: JointReading) -> Array:
    """Return a joint state as the observer takes it, shape (3 n,)."""
    unknown = np.full(len(joint.position), np.nan)
    return np.concatenate([unknown if part is None else part
                           for part in (joint.position, joint.velocity, joint.effort)])


def of_chain(observations: Sequence[Observation], chain: int) -> list[Observation]:
    """Return the observations with a valid wrench of a sub-chain."""
    return [item for item in observations if chain in item.links and not item.reasons[chain]]


def in_blocks(
    observer: WrenchObserver, joints: Stream, sensors: Sequence[Stream], size: int = 4096,
    problems: Mapping[tuple[int, int], str] | None = None, fusion: Fusion | None = None,
) -> tuple[OfflineObserver, list[Block]]:
    """Observe whole arrays, of samples that are added some at a time.

    Args:
        observer: The observer.
        joints: Joint states.
        sensors: Readings of the sensors.
        size: Samples of a source that are added at a time.
        problems: Problems of readings by sensor and row.
        fusion: Gives the tool wrench and covariances; None for none.

    """
    whole, found, known = OfflineObserver(observer, fusion), [], problems or {}
    longest = max(len(stream.stamps) for stream in (joints, *sensors))
    for begin in range(0, longest + size, size):
        part = slice(begin, begin + size)
        whole.add_joint_states(joints.stamps[part], joints.values[part])
        for index, stream in enumerate(sensors):
            rows = range(len(stream.stamps))[part]
            whole.add_readings(index, stream.stamps[part], stream.values[part], {
                place: known[index, row] for place, row in enumerate(rows)
                if (index, row) in known})
        found.append(whole.take())
    return whole, [block for block in (*found, whole.take(final=True)) if block is not None]
