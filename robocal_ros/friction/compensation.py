# SPDX-License-Identifier: Apache-2.0
"""What identified friction is good for: torque to add to a motion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.robot.friction_law import SteadyFriction
from robocal_ros.robot.model import Robot
from robocal_ros.robot.motion import Trajectory


class Compensator:
    """Friction torque for the present speed, without chatter at standstill.

    Friction has a step at zero speed. A commanded speed is clean and may cross that step; a
    measured one scatters about zero, and the step would turn its noise into torque. So within
    ``width`` of zero the step is replaced by a smooth rise, and a measured speed counts as zero
    until it has left a dead band, which it must enter again to count as zero (hysteresis).
    """

    def __init__(
        self, laws: Mapping[str, SteadyFriction], joint_names: Sequence[str],
        *, width: float, dead_band: float,
    ) -> None:
        """Prepare for a set of joints.

        Args:
            laws: Identified friction by joint name; other joints get no torque.
            joint_names: The arm's joints, the order of all arrays.
            width: Speed over which the torque rises from zero [rad/s].
            dead_band: Measured speeds below this are standstill [rad/s].

        """
        self._laws = [laws.get(name) for name in joint_names]
        self._width = width
        self._dead_band = dead_band
        self._moving = np.zeros(len(self._laws), dtype=bool)

    def torque(self, velocity: Array, *, measured: bool) -> Array:
        """Return the torque to add, shape (n,) [N·m].

        Args:
            velocity: Joint velocities, shape (n,) [rad/s].
            measured: Whether they were measured, not commanded.

        """
        speed = np.abs(velocity)
        gain = np.tanh(speed / self._width)
        if measured:
            self._moving = speed > np.where(self._moving, 0.5 * self._dead_band, self._dead_band)
            gain = np.where(self._moving, gain, 0.0)
        torque = np.zeros_like(velocity)
        for i, law in enumerate(self._laws):
            if law is not None and gain[i] > 0.0:
                torque[i] = gain[i] * law.torque(velocity[i])
        return torque


def feed_forward(
    robot: Robot, laws: Mapping[str, SteadyFriction], trajectory: Trajectory
) -> Array:
    """Return the drive torques of a motion: gravity, inertia and friction.

    Args:
        robot: The arm with what it carries.
        laws: Identified friction by joint name.
        trajectory: The motion; where it gives no accelerations those of its spline are used.

    Returns:
        Torque at each knot, shape (k, n) [N·m].

    Raises:
        DataError: If the trajectory has another number of joints.

    """
    if trajectory.position.shape[1] != robot.n:
        raise DataError(f'The trajectory has {trajectory.position.shape[1]} joints, the arm '
                        f'{robot.n}; name all of them.')
    position, velocity, acceleration = trajectory.sample(trajectory.time)
    if trajectory.acceleration is not None:
        acceleration = trajectory.acceleration
    torque = np.array([robot.inverse_dynamics(q, v, a) for q, v, a
                       in zip(position, velocity, acceleration, strict=True)])
    for i, name in enumerate(robot.joint_names):
        if name in laws:
            torque[:, i] += laws[name].torque(velocity[:, i])
    return torque
