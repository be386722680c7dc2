# SPDX-License-Identifier: Apache-2.0
"""Inverse dynamics of an arm and of a body on it, for all instants of a record, by Pinocchio.

Each instant takes a call of 3 to 5 µs, which an estimation does not notice beside what it does
with the results. Calls for many instants need a Pinocchio that is built with OpenMP.
"""

from __future__ import annotations

import numpy as np
import pinocchio as pin

from robocal_ros.arrays import Array, frozen
from robocal_ros.robot.model import Robot


def level_axes(gravity: Array) -> Array:
    """Return two unit vectors perpendicular to gravity, in its frame, shape (2, 3)."""
    down = gravity / np.linalg.norm(gravity)
    first = np.cross(down, np.eye(3)[int(np.argmin(np.abs(down)))])
    first /= np.linalg.norm(first)
    return np.stack((np.cross(down, first), first))


def on_leaning_base(robot: Robot, tilt: Array) -> Robot:
    """Return a copy of the arm whose base leans against gravity.

    Args:
        robot: The arm.
        tilt: Rotations of gravity about its ``level_axes``, shape (2,) [rad].

    """
    return _under(robot, pin.exp3(tilt @ level_axes(robot.gravity)) @ robot.gravity)


def _under(robot: Robot, gravity: Array) -> Robot:
    """Return a copy of the arm under another gravity [m/s²]."""
    other = robot.copy()
    other.gravity = frozen(gravity)
    other.model.gravity.linear = gravity
    return other


def gravity_changes(robot: Robot) -> list[Robot]:
    """Return the arm under the change of gravity per tilt of the base, about two axes [1/rad].

    At rest, its torques and wrenches are the derivatives by these tilts; none without gravity.
    """
    if not robot.gravity.any():
        return []
    return [_under(robot, np.cross(axis, robot.gravity)) for axis in level_axes(robot.gravity)]


def moved_parameters(placement: pin.SE3) -> Array:
    """Return the matrix from dynamic parameters in a frame to those outside, shape (10, 10).

    Args:
        placement: Placement of the frame.

    """
    unit = np.eye(10)

    def moved(parameters: Array) -> Array:
        body = pin.Inertia.FromDynamicParameters(parameters)
        return np.asarray(placement.act(body).toDynamicParameters())

    mass = moved(unit[0])
    return np.column_stack([mass, *(moved(unit[0] + other) - mass for other in unit[1:])])


def arm_regressor(robot: Robot, q: Array, v: Array, a: Array) -> Array:
    """Return the regressor of the joint torques in the inertial parameters of all links.

    Args:
        robot: The arm.
        q: Joint angles, shape (k, n) [rad].
        v: Joint velocities, shape (k, n) [rad/s].
        a: Joint accelerations, shape (k, n) [rad/s²].

    Returns:
        Shape (k, n, 10 n), link by link in Pinocchio's order, in the frames of the joints.

    Raises:
        ConfigurationError: If a joint mimics another one.

    """
    robot.check_untied('Identification of links')
    model, n = robot.model, robot.n
    data = model.createData()
    # Copies, because the result is the same memory in each call.
    rows = [np.array(pin.computeJointTorqueRegressor(model, data, *row))
            for row in zip(q, v, a, strict=True)]
    return np.reshape(rows, (len(q), n, 10 * n))


class NewtonEuler:
    """Inverse dynamics of an arm and of a body on one of its frames."""

    def __init__(self, robot: Robot, frame: str) -> None:
        """Mount the body.

        Args:
            robot: The arm.
            frame: Frame on which the body is mounted.

        Raises:
            ConfigurationError: If there is no such frame, or a joint mimics another one.

        """
        robot.check_untied('Identification of links')
        self._robot, self._name, self._frame = robot, frame, robot.frame_id(frame)

    def tilts(self) -> tuple[NewtonEuler, ...]:
        """Return the same for each arm of ``gravity_changes``."""
        return tuple(NewtonEuler(robot, self._name) for robot in gravity_changes(self._robot))

    def torque(self, q: Array, v: Array, a: Array, parameters: Array | None = None) -> Array:
        """Return the joint torques of the arm, with or without the body.

        Args:
            q: Joint angles, shape (k, n) [rad].
            v: Joint velocities, shape (k, n) [rad/s].
            a: Joint accelerations, shape (k, n) [rad/s²].
            parameters: Inertial parameters of the body, also physically inconsistent ones, shape
                (10,); None for no body.

        Returns:
            Shape (k, n) [N·m].

        """
        model, data = self._robot.model, self._robot.model.createData()
        arm = np.reshape([np.array(pin.rnea(model, data, *row))
                          for row in zip(q, v, a, strict=True)], q.shape)
        return arm if parameters is None else arm + self.torque_regressor(q, v, a) @ parameters

    def wrench(self, q: Array, v: Array, a: Array, parameters: Array) -> Array:
        """Return the wrench that moves the body; arguments as for ``torque``.

        Returns:
            Shape (k, 6), force first, in the axes of the frame about its origin [N, N·m].

        """
        return self.wrench_regressor(q, v, a) @ parameters

    def torque_regressor(self, q: Array, v: Array, a: Array) -> Array:
        """Return the regressor of the joint torques in the body's ten parameters.

        Args:
            q: Joint angles, shape (k, n) [rad].
            v: Joint velocities, shape (k, n) [rad/s].
            a: Joint accelerations, shape (k, n) [rad/s²].

        Returns:
            Shape (k, n, 10).

        """
        mounted = self._robot.model.frames[self._frame]
        carrier = int(mounted.parentJoint)
        if not carrier:
            return np.zeros((*q.shape, 10))
        # As a part of the link that carries it.
        own = slice(10 * carrier - 10, 10 * carrier)
        return np.asarray(arm_regressor(self._robot, q, v, a)[:, :, own]
                          @ moved_parameters(mounted.placement))

    def wrench_regressor(self, q: Array, v: Array, a: Array) -> Array:
        """Return the regressor of ``wrench`` in the body's ten parameters, shape (k, 6, 10).

        Args:
            q: Joint angles, shape (k, n) [rad].
            v: Joint velocities, shape (k, n) [rad/s].
            a: Joint accelerations, shape (k, n) [rad/s²].

        """
        model = self._robot.model
        data = model.createData()
        rows = []
        for row in zip(q, v, a, strict=True):
            # The regressor is that of the motion, and of the gravity, that it leaves in the data.
            pin.rnea(model, data, *row)
            rows.append(np.array(pin.frameBodyRegressor(model, data, self._frame)))
        return np.reshape(rows, (len(q), 6, 10))
