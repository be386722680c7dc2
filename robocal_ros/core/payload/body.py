# SPDX-License-Identifier: Apache-2.0
"""A rigid body by its ten dynamic parameters: what carries it, what it may be, where it is.

Source of the ten parameters and of their linearity: Atkeson, An, Hollerbach, Estimation of
Inertial Parameters of Manipulator Loads and Links, Int. J. Robot. Res. 5 (1986) 101, doi
10.1177/027836498600500306.
"""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import scipy

from robocal_ros.core.arrays import Array
from robocal_ros.core.robot import Robot

BODY = ('mass', 'moment_x', 'moment_y', 'moment_z',
        'I_xx', 'I_xy', 'I_yy', 'I_xz', 'I_yz', 'I_zz')
"""Pinocchio's order of a body's dynamic parameters; inertia about the frame's origin."""

PARAMETERS = ('mass', 'com_x', 'com_y', 'com_z',
              'inertia_xx', 'inertia_xy', 'inertia_xz', 'inertia_yy', 'inertia_yz', 'inertia_zz')
"""The same body by its centre of mass and the inertia about it, as results hold it."""

UNITS = ('kg', 'm', 'm', 'm', *['kg·m²'] * 6)
"""Units of ``PARAMETERS``."""

_ROWS, _COLUMNS = np.triu_indices(3)


def body_regressor(robot: Robot, frame: str, q: Array, v: Array, a: Array) -> Array:
    """Return the wrench that carries a body in motion, linear in its ten parameters.

    Args:
        robot: The arm.
        frame: Frame on which the body is mounted.
        q: Joint angles, shape (n,) [rad].
        v: Joint velocities, shape (n,) [rad/s].
        a: Joint accelerations, shape (n,) [rad/s²].

    Returns:
        Shape (6, 10), force first, in the frame; columns as ``BODY``.

    """
    # The regressor takes accelerations, gravity among them, from a recursion that has been run.
    pin.rnea(robot.model, robot.data, q, v, a)
    return np.array(pin.frameBodyRegressor(robot.model, robot.data, robot.frame_id(frame)))


def torque_regressor(robot: Robot, q: Array, v: Array, a: Array, frame: str = '') -> Array:
    """Return the joint torques that a body takes, shape (n, 10).

    Args:
        robot: The arm.
        q: Joint angles, shape (n,) [rad].
        v: Joint velocities, shape (n,) [rad/s].
        a: Joint accelerations, shape (n,) [rad/s²].
        frame: Frame on which the body is mounted; the tool frame by default.

    """
    frame = frame or robot.tool_frame
    rows = body_regressor(robot, frame, q, v, a)
    jacobian = pin.computeFrameJacobian(
        robot.model, robot.data, q, robot.frame_id(frame), pin.ReferenceFrame.LOCAL)
    return np.asarray(jacobian.T @ rows)


def _split(parameters: Array) -> tuple[float, Array, Array]:
    """Return mass, centre of mass, and the tensor of inertia about it."""
    mass, com = float(parameters[0]), parameters[1:4] / parameters[0]
    xx, xy, yy, xz, yz, zz = parameters[4:]
    about_origin = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    return mass, com, about_origin - mass * ((com @ com) * np.eye(3) - np.outer(com, com))


def centred(parameters: Array) -> Array:
    """Return mass, centre of mass and inertia about it.

    Args:
        parameters: As of ``BODY``, shape (10,).

    Returns:
        As of ``PARAMETERS``, shape (10,).

    """
    mass, com, inertia = _split(parameters)
    return np.concatenate(([mass], com, inertia[_ROWS, _COLUMNS]))


def centred_covariance(parameters: Array, covariance: Array) -> Array:
    """Return the covariance of ``centred``, to first order, by central differences.

    Args:
        parameters: As of ``BODY``, shape (10,).
        covariance: Their covariance, shape (10, 10).

    """
    step = 1e-6
    jacobian = np.column_stack([
        (centred(parameters + shift) - centred(parameters - shift)) / (2.0 * step)
        for shift in step * np.eye(10)])
    return np.asarray(jacobian @ covariance @ jacobian.T)


def consistent(parameters: Array, covariance: Array) -> tuple[Array, float]:
    """Return the physically consistent body nearest to an estimate, and how far off that is.

    Consistent: the pseudo-inertia matrix is positive definite, so mass and density are positive
    somewhere (Wensing, Kim, Slotine, IEEE RA-L 3 (2018) 60, doi 10.1109/LRA.2017.2729659).
    Nearest in the metric of the estimate's covariance, over log-Cholesky coordinates.

    Args:
        parameters: Dynamic parameters as of ``BODY``, shape (10,).
        covariance: Their covariance, shape (10, 10).

    Returns:
        The body, and its distance from the estimate in standard deviations; 0 if the estimate
        is consistent itself.

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
        frame: Frame in which they are; it and the tool frame must be fixed to one link.

    Returns:
        Shape (10, 10), parameters as of ``BODY``.

    """
    posture = np.zeros(robot.n)
    tool = robot.transform_frame_to_root(posture, robot.tool_frame)
    transform = tool.actInv(robot.transform_frame_to_root(posture, frame))
    return np.column_stack([_moved(column, transform) for column in np.eye(10)])


def _moved(column: Array, transform: pin.SE3) -> Array:
    """Move one unit parameter: moving bodies is linear in their dynamic parameters."""
    rotation, shift = transform.rotation, transform.translation
    mass, moment = column[0], rotation @ column[1:4]
    xx, xy, yy, xz, yz, zz = column[4:]
    about = rotation @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ rotation.T
    moved = moment + mass * shift
    total = (about + (2.0 * (shift @ moment) + mass * (shift @ shift)) * np.eye(3)
             - np.outer(shift, moment) - np.outer(moment, shift) - mass * np.outer(shift, shift))
    return np.array([mass, *moved, total[0, 0], total[0, 1], total[1, 1], total[0, 2],
                     total[1, 2], total[2, 2]])
