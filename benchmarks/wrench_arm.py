# SPDX-License-Identifier: Apache-2.0
"""The simulated arm and the observer in one process: motions and pushes in, observations out."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from demo import default_cell
from robocal_ros.arrays import Array
from robocal_ros.errors import MotionError
from robocal_ros.robot.model import RigidBodyInertia, Robot
from robocal_ros.robot.motion import quintic_path
from robocal_ros.wrench.estimate import Tare, TareRecord, Taring
from robocal_ros.wrench.observer import Observation, WrenchObserver
from robocal_ros.wrench.parameters import WrenchParameters
from robocal_sim.model import read_description
from robocal_sim.simulator import ArmSimulator, Readings
from robocal_sim.trajectory import Trajectory as Command
from robocal_sim.trajectory import TrajectoryPoint
from robocal_sim.truth import Cell, HiddenTruth, ToolTruth

_ACCELERATION = 2.0
# Postures are drawn in the middle of what joints reach, where the arm does not fold.
_REACH = 1.2


@dataclass(frozen=True)
class PushTruth:
    """A push as it was given.

    Attributes:
        chain: Index of the pushed sub-chain.
        point: Where, in its frame, shape (3,) [m].
        force: Force in its frame, shape (3,) [N].
        begin: When it began [s].

    """

    chain: int
    point: Array
    force: Array
    begin: float


def tool_body(tool: ToolTruth) -> RigidBodyInertia:
    """Return a tool of the truth as a body."""
    xx, yy, zz, xy, xz, yz = tool.inertia
    return RigidBodyInertia(tool.mass, np.array(tool.centre_of_mass),
                            np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]))


class ObservedArm:
    """An arm in simulated time whose sensors feed an observer.

    Attributes:
        robot: Its model.
        arm: The model, cut at its sensors.
        observer: The observer.
        simulator: The arm; tests and benchmarks alone may look inside.
        seconds: Time that each joint state took the observer, when kept [s].

    """

    def __init__(
        self, seed: int, *, truth: HiddenTruth | None = None, cell: Cell | None = None,
        rate: float = 500.0, imus: Mapping[str, str] | None = None,
        **values: Any,
    ) -> None:
        """Build it at rest; nothing is tared, nothing carried.

        Args:
            seed: Seed of noise and of the drawn biases.
            truth: What is hidden; the default arm's by default.
            cell: Noise of the sensors; the reference cell's by default.
            rate: Rate of joint states and sensors [Hz].
            imus: Frames of IMUs by the link whose motion they measure.
            **values: Parameters of the observer; joint torques are not followed by default.

        """
        urdf = default_cell.urdf()
        self.truth = default_cell.hidden_truth() if truth is None else truth
        self.simulator = ArmSimulator(
            read_description(urdf), self.truth,
            default_cell.reference_cell() if cell is None else cell, seed=seed, rate=rate)
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
        self.keep_seconds = False
        self.seconds: list[float] = []

    @property
    def now(self) -> float:
        """Simulated time [s]."""
        return self.simulator.now

    def carry_tool(self) -> None:
        """Tell the observer what the truth's tool weighs, as an identified payload would."""
        if self.truth.tool is not None:
            self.observer.carry(tool_body(self.truth.tool), self.truth.tool.parent)

    def tare(self) -> Tare:
        """Tare at rest, and compensate the biases from now on; errors as of ``Taring.find``."""
        record = TareRecord()
        self.observer.recorder = record
        try:
            self.run(self.values.tare_duration)
        finally:
            self.observer.recorder = None
        found = Taring(self.arm).find(record, self.values)
        self.observer.use_bias(found.bias)
        return found

    def random_path(
        self, generator: np.random.Generator, count: int, *, measured: bool = False
    ) -> Array:
        """Return postures from the present one through random ones, shape (count + 1, n).

        Args:
            generator: Source of chance.
            count: Number of random postures.
            measured: Whether to begin where the encoders say that the arm is, which is a small
                step away from where the drives hold it, and begins with a jolt.

        """
        low = np.maximum(self.robot.lower, -_REACH)
        high = np.minimum(self.robot.upper, _REACH)
        here = (self.simulator.physics.encoder if measured
                else np.array(self.simulator.controller.desired.position)).copy()
        return np.array([here, *(generator.uniform(low, high) for _ in range(count))])

    def begin_motion(self, path: Array, speed: float = 1.0) -> float:
        """Start moving through postures, at rest in each; returns the duration [s].

        Args:
            path: Postures, shape (k, n) [rad].
            speed: Fastest joint speed [rad/s].

        Raises:
            MotionError: If the controller refuses.

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
            raise MotionError(f'The simulated controller refuses a motion: {refusal}')
        simulator.controller.accept_goal(command, simulator.now)
        return motion.duration

    def push(self, chain: int, point: Array, force: Array, duration: float) -> PushTruth:
        """Push a link.

        Args:
            chain: Index of the sub-chain; the push is on the link that names it.
            point: Where, in its frame, shape (3,) [m].
            force: In its frame, shape (3,) [N].
            duration: How long [s].

        """
        self.simulator.physics.push(
            self.arm.chains[chain].link, force, np.cross(point, force), duration)
        return PushTruth(chain, point, force, self.now)

    def run(self, duration: float) -> list[Observation]:
        """Let simulated time pass; returns what was observed meanwhile.

        Args:
            duration: For how long [s].

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
        began = time.perf_counter()
        for index, stamp, values in wrenches:
            # What the decoder of messages does in the node.
            if math.isfinite(sum(values)):
                observer.add_reading(index, stamp, values)
            else:
                feed = observer.feeds[index]
                feed.refuse(f"Sensor '{feed.name}' sends values that are not finite numbers.")
        for index, stamp, values in imus:
            observer.imu_feeds[index].add(stamp, values)
        for joint in readings.joints:
            observer.add_joint_state(joint.time, joint.position, joint.velocity, joint.effort)
        while (observation := observer.take()) is not None:
            observations.append(observation)
        if self.keep_seconds:
            self.seconds.append(time.perf_counter() - began)


def of_chain(observations: Sequence[Observation], chain: int) -> list[Observation]:
    """Return the observations that know a sub-chain's wrench."""
    return [item for item in observations if chain in item.links and not item.reasons[chain]]
