# SPDX-License-Identifier: Apache-2.0
"""The simulated arm stepped in this process, without ROS: trajectories in, samples out."""

from __future__ import annotations

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import MotionError
from robocal_ros.messages import JointSamples, StreamCounts, WrenchSamples
from robocal_ros.robot import Trajectory
from robocal_sim.controller import Status
from robocal_sim.model import read_description
from robocal_sim.physics import CONTROL_STEP
from robocal_sim.simulator import ArmSimulator, JointReading, SensorReading
from robocal_sim.trajectory import Trajectory as Command, TrajectoryPoint
from robocal_sim.truth import Cell, HiddenTruth

_GOAL_TIME = 2.0


class InProcessArm:
    """A simulated arm that follows the procedures' trajectories as fast as the CPU allows."""

    def __init__(self, urdf: str, truth: HiddenTruth, cell: Cell, seed: int) -> None:
        """Create the arm at rest in its start posture.

        Args:
            urdf: URDF text.
            truth: Hidden truth; leave out sensors that are not needed, to save time.
            cell: Noise of the sensors.
            seed: Seed of noise and sensor biases.

        """
        self._simulator = ArmSimulator(read_description(urdf), truth, cell, seed=seed)
        self._joints: list[JointReading] = []
        self._wrenches: list[SensorReading] = []
        self.recording = True

    @property
    def posture(self) -> Array:
        """Joint positions measured by the encoders, shape (n,) [rad]."""
        return self._simulator.physics.encoder.copy()

    @property
    def time(self) -> float:
        """Simulated time [s]."""
        return self._simulator.now

    def move(self, trajectory: Trajectory) -> None:
        """Follow a trajectory to its end.

        Raises:
            MotionError: The controller refuses it or does not reach the goal.

        """
        simulator = self._simulator
        controller = simulator.controller
        command = self._command(trajectory)
        refusal = controller.check(command, simulator.now)
        if refusal:
            raise MotionError(f'The simulated controller refused a trajectory: {refusal}')
        goal = controller.accept_goal(command, simulator.now)
        deadline = simulator.now + trajectory.duration + _GOAL_TIME
        while goal.outcome is None and simulator.now < deadline:
            self._step()
        if goal.outcome is None or goal.outcome.status is not Status.SUCCEEDED:
            raise MotionError(f'The simulated arm did not reach a goal: {goal.outcome}.')

    def dwell(self, duration: float) -> None:
        """Stay at rest for a duration [s]."""
        for _ in range(round(duration / CONTROL_STEP)):
            self._step()

    def take_samples(self) -> tuple[JointSamples, WrenchSamples]:
        """Return joint states and readings of the first F/T sensor since the last call."""
        joints, wrenches = self._joints, self._wrenches
        self._joints, self._wrenches = [], []
        return (
            JointSamples(
                self._simulator.description.joints,
                np.array([reading.time for reading in joints]),
                np.array([reading.position for reading in joints]),
                np.array([reading.velocity for reading in joints]),
                np.array([reading.effort for reading in joints]),
                StreamCounts(received=len(joints)),
                'simulation',
            ),
            WrenchSamples(
                self._simulator.truth.force_torque_sensors[0].frame,
                np.array([reading.time for reading in wrenches]),
                np.array([reading.values for reading in wrenches]),
                StreamCounts(received=len(wrenches)),
            ),
        )

    def _step(self) -> None:
        readings = self._simulator.step()
        self._simulator.controller.take_ended()
        if self.recording:
            self._joints += readings.joints
            self._wrenches += [reading for reading in readings.wrenches if reading.index == 0]

    def _command(self, trajectory: Trajectory) -> Command:
        accelerations = trajectory.acceleration
        return Command(
            self._simulator.description.joints,
            tuple(
                TrajectoryPoint(
                    float(trajectory.time[i]),
                    tuple(trajectory.position[i]),
                    tuple(trajectory.velocity[i]),
                    () if accelerations is None else tuple(accelerations[i]),
                )
                for i in range(len(trajectory.time))
            ),
        )
