# SPDX-License-Identifier: Apache-2.0
"""Models of a payload at rest and in motion.

At rest it is a lever about a joint, or a force and a moment on a wrist sensor. In motion it is a
rigid body of ten dynamic parameters, in which torques and wrenches are linear (Atkeson, An,
Hollerbach, Estimation of Inertial Parameters of Manipulator Loads and Links, Int. J. Robot. Res. 5
(1986) 101, doi 10.1177/027836498600500306).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pinocchio as pin
import scipy

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, ExcitationError
from robocal_ros.robot import Robot, moved_parameters

# Smallest share of gravity perpendicular to the axis of a plane's joint.
_LEAST_SHARE = 0.5


@dataclass(frozen=True)
class Plane:
    """Plane in which a payload's centre of mass moves as one joint turns.

    With r the vector from the joint's axis to the centre of mass at rotation zero,
    x = r·down and y = r·side, the drive holds τ(θ) = m |g⊥| (x sinθ + y cosθ): the two-plane
    method's l cosγ and l sinγ. It follows from τ = −m a·(r × g) with r turned by θ about a.

    Attributes:
        joint: Column of the joint.
        name: Its name.
        reference: Posture of rotation zero, shape (n,) [rad].
        gravity: Magnitude of gravity's part perpendicular to the axis, |g⊥| [m/s²].
        rows: A of the map A c + b from a centre of mass in the tool frame to (x, y), by forward
            kinematics in the reference posture, shape (2, 3).
        offset: b, shape (2,) [m].

    """

    joint: int
    name: str
    reference: Array
    gravity: float
    rows: Array
    offset: Array

    @classmethod
    def at(cls, robot: Robot, reference: Array, joint: int) -> Plane:
        """Build the plane of a joint in a posture.

        Args:
            robot: The arm.
            reference: Posture of rotation zero, shape (n,) [rad].
            joint: Column of the joint.

        Raises:
            ExcitationError: If the axis is too close to vertical.

        """
        name = robot.joint_names[joint]
        axis, origin, _ = robot.joint_axis(reference, joint)
        gravity = np.array(robot.gravity)
        total = float(np.linalg.norm(gravity))
        perpendicular = gravity - (gravity @ axis) * axis
        size = float(np.linalg.norm(perpendicular))
        if total == 0.0 or size < _LEAST_SHARE * total:
            raise ExcitationError(
                f"The axis of joint '{name}' is so close to vertical that "
                f'only {size:.2f} of {total:.2f} m/s² of gravity act about it; at least '
                f'{_LEAST_SHARE * total:.2f} m/s² are needed. Choose a posture in which that axis '
                'is horizontal.')
        down = perpendicular / size
        directions = np.stack((down, np.cross(axis, down)))
        tool = robot.transform_frame_to_root(reference, robot.tool_frame)
        return cls(joint, name, reference, size, directions @ tool.rotation,
                   directions @ (tool.translation - origin))

    def lever(self, com: Array) -> Array:
        """Return (x, y) of a centre of mass in the tool frame, shape (2,) [m]."""
        return np.asarray(self.rows @ com + self.offset)

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


def second_plane(robot: Robot, name: str) -> int | None:
    """Return the column of the second plane's joint by its name, None for an empty one.

    Raises:
        ConfigurationError: If there is no such joint, or it is the last one.

    """
    if not name:
        return None
    joint = robot.index(name)
    if joint == robot.n - 1:
        raise ConfigurationError(f"second_joint '{name}' is the last joint; name one before it.")
    return joint


WRENCH_PARAMETERS = (
    'mass', 'moment_x', 'moment_y', 'moment_z',
    'bias_fx', 'bias_fy', 'bias_fz', 'bias_tx', 'bias_ty', 'bias_tz',
)


def static_wrench_regressor(gravity: Array) -> Array:
    """Return the regressor of a wrist sensor at rest for a load and the sensor's biases.

    Force m g + bF and torque (m c) × g + bT, linear in (m, m c, bF, bT).

    Args:
        gravity: Gravity in the sensor frame, shape (3,) [m/s²].

    Returns:
        Shape (6, 10), columns as ``WRENCH_PARAMETERS``.

    """
    rows = np.zeros((6, 10))
    rows[:3, 0] = gravity
    rows[3:, 1:4] = -pin.skew(gravity)
    rows[:, 4:] = np.eye(6)
    return rows


CHANNELS = ('force x', 'force y', 'force z', 'torque x', 'torque y', 'torque z')
"""Channels of a wrist sensor."""

BODY = ('mass', 'moment_x', 'moment_y', 'moment_z', 'I_xx', 'I_xy', 'I_yy', 'I_xz', 'I_yz', 'I_zz')
"""Pinocchio's order of a body's dynamic parameters; inertia about the frame's origin."""

PARAMETERS = ('mass', 'com_x', 'com_y', 'com_z',
              'inertia_xx', 'inertia_xy', 'inertia_xz', 'inertia_yy', 'inertia_yz', 'inertia_zz')
"""The same body by its centre of mass and the inertia about it, as results store it."""

UNITS = ('kg', 'm', 'm', 'm', *['kg·m²'] * 6)
"""Units of ``PARAMETERS``."""


def centred(parameters: Array) -> Array:
    """Return mass, centre of mass and inertia about it.

    Args:
        parameters: As for ``BODY``, shape (10,).

    Returns:
        As for ``PARAMETERS``, shape (10,).

    """
    body = pin.Inertia.FromDynamicParameters(parameters)
    return np.concatenate(([body.mass], body.lever, body.inertia[np.triu_indices(3)]))


def centred_jacobian(parameters: Array) -> Array:
    """Return the derivatives of ``centred`` by central differences, shape (10, 10).

    Args:
        parameters: As for ``BODY``, shape (10,).

    """
    step = 1e-6
    return np.column_stack([
        (centred(parameters + shift) - centred(parameters - shift)) / (2.0 * step)
        for shift in step * np.eye(10)])


def consistent(parameters: Array, covariance: Array) -> tuple[Array, float]:
    """Return the physically consistent body nearest to an estimate, and its distance.

    A body is consistent if its pseudo-inertia matrix is positive definite, so that some positive
    density has these parameters (Wensing, Kim, Slotine, IEEE RA-L 3 (2018) 60, doi
    10.1109/LRA.2017.2729659). Distances are measured by the estimate's covariance; the search
    is over log-Cholesky coordinates.

    Args:
        parameters: Dynamic parameters as for ``BODY``, shape (10,).
        covariance: Their covariance, shape (10, 10).

    Returns:
        The body, and its distance from the estimate in standard deviations, 0 if the estimate
        is consistent.

    """
    pseudo = pin.PseudoInertia.FromDynamicParameters(parameters).toMatrix()
    smallest = float(np.linalg.eigvalsh(pseudo)[0])
    if smallest > 1e-9 * abs(float(np.trace(pseudo))):
        return parameters, 0.0
    whitening = np.linalg.inv(np.linalg.cholesky(
        covariance + 1e-18 * np.eye(10) * np.trace(covariance)))

    def residual(x: Array) -> Array:
        body = pin.LogCholeskyParameters(x).toDynamicParameters()
        return np.asarray(whitening @ (body - parameters))

    start = np.array([np.log(max(parameters[0], 1e-3)) / 2.0, *[-2.0] * 3, *[0.0] * 6])
    solution = scipy.optimize.least_squares(residual, start, max_nfev=2000, x_scale=1.0)
    return (np.asarray(pin.LogCholeskyParameters(solution.x).toDynamicParameters()),
            float(np.sqrt(2.0 * solution.cost)))


def moving(robot: Robot, frame: str) -> Array:
    """Return the matrix that moves a body's parameters from a frame into the tool frame.

    Args:
        robot: The arm.
        frame: Frame of the parameters, fixed to the same link as the tool frame.

    Returns:
        Shape (10, 10), parameters as for ``BODY``.

    """
    posture = np.zeros(robot.n)
    tool = robot.transform_frame_to_root(posture, robot.tool_frame)
    return moved_parameters(tool.actInv(robot.transform_frame_to_root(posture, frame)))
