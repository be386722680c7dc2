# SPDX-License-Identifier: Apache-2.0
"""How a payload at rest, or nearly, shows in joint torques and in a wrist sensor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robocal_ros.core.arrays import Array
from robocal_ros.core.robot import RigidBodyInertia, Robot
from robocal_ros.errors import ExcitationError


@dataclass(frozen=True)
class Plane:
    """The plane in which a payload's centre of mass circles about one joint.

    With r the vector from the joint's axis to the centre of mass at rotation zero,
    x = r·down and y = r·side, the drive holds τ(θ) = m |g⊥| (x sinθ + y cosθ): the two-plane
    method's l cosγ and l sinγ. It follows from τ = −m a·(r × g) with r turned by θ about a.

    Attributes:
        joint: Column of the joint.
        reference: Posture of rotation zero, shape (n,) [rad].
        axis: Joint axis in the root frame, unit vector, shape (3,).
        origin: A point on the axis, root frame, shape (3,) [m].
        down: Direction of gravity's part perpendicular to the axis, root frame, shape (3,).
        side: axis × down, shape (3,).
        gravity: Size of that part, |g⊥| [m/s²].

    """

    joint: int
    reference: Array
    axis: Array
    origin: Array
    down: Array
    side: Array
    gravity: float

    @classmethod
    def at(cls, robot: Robot, reference: Array, joint: int, min_share: float = 0.5) -> Plane:
        """Build the plane of a joint in a posture.

        Args:
            robot: The arm.
            reference: Posture of rotation zero, shape (n,) [rad].
            joint: Column of the joint.
            min_share: Least share of gravity that must be perpendicular to the axis.

        Raises:
            ExcitationError: If the axis is so close to vertical that gravity says nothing.

        """
        axis, origin = robot.joint_axis(reference, joint)
        gravity = np.array(robot.gravity)
        total = float(np.linalg.norm(gravity))
        perpendicular = gravity - (gravity @ axis) * axis
        size = float(np.linalg.norm(perpendicular))
        if total == 0.0 or size < min_share * total:
            raise ExcitationError(
                f"Axis of joint '{robot.joint_names[joint]}' is so close to gravity's direction "
                f'that only {size:.2f} of {total:.2f} m/s² turn the payload about it; at least '
                f'{min_share * total:.2f} m/s² are needed. Choose a posture in which that axis '
                'is horizontal.'
            )
        down = perpendicular / size
        return cls(joint, reference, axis, origin, down, np.cross(axis, down), size)

    def regressor(self, angle: Array, mass: float) -> Array:
        """Return the rows of (x, y) for joint angles.

        Args:
            angle: Angles of the plane's joint, shape (k,) [rad].
            mass: Mass of the payload [kg].

        Returns:
            Shape (k, 2) [N].

        """
        turn = np.asarray(angle) - self.reference[self.joint]
        return mass * self.gravity * np.column_stack((np.sin(turn), np.cos(turn)))

    def lever_rows(self, robot: Robot) -> tuple[Array, Array]:
        """Return how (x, y) follow from a centre of mass in the tool frame: A c + b.

        By forward kinematics between the two frames in the reference posture.

        Returns:
            A, shape (2, 3), and b, shape (2,) [m].

        """
        tool = robot.transform_frame_to_root(self.reference, robot.tool_frame)
        directions = np.stack((self.down, self.side))
        return directions @ tool.rotation, directions @ (tool.translation - self.origin)

    def torque(self, robot: Robot, angle: Array, mass: float, com: Array) -> Array:
        """Return the payload's holding torque for joint angles, shape (k,) [N·m].

        Args:
            robot: The arm.
            angle: Angles of the plane's joint, shape (k,) [rad].
            mass: Mass [kg].
            com: Centre of mass, tool frame, shape (3,) [m].

        """
        rows, offset = self.lever_rows(robot)
        return self.regressor(angle, mass) @ (rows @ com + offset)


def skew(vector: Array) -> Array:
    """Return the matrix whose product with b is the cross product a × b, shape (3, 3)."""
    x, y, z = vector
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


WRENCH_PARAMETERS = (
    'mass', 'moment_x', 'moment_y', 'moment_z',
    'bias_fx', 'bias_fy', 'bias_fz', 'bias_tx', 'bias_ty', 'bias_tz',
)


def static_wrench_regressor(gravity: Array) -> Array:
    """Return the rows of a wrist sensor at rest for the ten parameters of a load and a bias.

    Force m g + bF and torque (m c) × g + bT, linear in (m, m c, bF, bT).

    Args:
        gravity: Gravity in the sensor frame, shape (3,) [m/s²].

    Returns:
        Shape (6, 10), columns as ``WRENCH_PARAMETERS``.

    """
    rows = np.zeros((6, 10))
    rows[:3, 0] = gravity
    rows[3:, 1:4] = -skew(gravity)
    rows[:, 4:] = np.eye(6)
    return rows


def static_wrench(load: RigidBodyInertia, gravity: Array) -> Array:
    """Return the wrench of a load at rest on its sensor, shape (6,) [N, N·m].

    Args:
        load: The load, in the sensor frame.
        gravity: Gravity in the sensor frame, shape (3,) [m/s²].

    """
    force = load.mass * gravity
    return np.concatenate((force, np.cross(load.com, force)))
