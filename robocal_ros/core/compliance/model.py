# SPDX-License-Identifier: Apache-2.0
"""How a compliant arm moves its end point under a load.

Encoders sit on the motor side: a joint that transmits the torque τ stands c·τ away from where
its encoder says. To first order a load with the weight m·g moves the end point by
Σ a_i × (p − o_i) c_i Δτ_i with Δτ_i = a_i · ((p_load − o_i) × m g): a_i a joint's axis, o_i a
point on it. With a heavy load that is not enough (the arm sags without it too, and a sagging
arm has other levers), so the prediction solves for the posture at rest, and the first-order
form serves as its derivative. Sources: Dumas, Caro, Garnier, Furet, Joint stiffness
identification of six-revolute industrial serial robots, Robot. Comput.-Integr. Manuf. 27 (2011)
881, doi 10.1016/j.rcim.2011.02.003.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from robocal_ros.core.arrays import Array
from robocal_ros.core.robot import Robot
from robocal_ros.errors import ConfigurationError

_ITERATIONS = 4


@dataclass(frozen=True)
class Target:
    """What the tracker sees.

    Attributes:
        frame: A frame of the URDF that it is fixed to.
        xyz: Where it is in that frame, shape (3,) [m].

    """

    frame: str
    xyz: Array


def check_turning(robot: Robot) -> None:
    """Refuse an arm with a joint that slides; raises ConfigurationError."""
    jacobian = pin.computeJointJacobians(
        robot.model, robot.data, np.zeros(robot.n)).reshape(6, robot.n)
    sliding = [name for name, axis in zip(robot.joint_names, jacobian[3:].T, strict=True)
               if np.linalg.norm(axis) < 0.5]
    if sliding:
        raise ConfigurationError(
            f"Joint '{sliding[0]}' slides; compliance is defined here for turning joints, in "
            'rad/(N·m). Leave it out of the parameter joints.')


def deflected(robot: Robot, encoders: Array, compliance: Array) -> tuple[Array, Array]:
    """Return where the links of a compliant arm rest.

    Solves q = encoders − c ∘ G(q), with G the torque that holds the arm against gravity.

    Args:
        robot: The arm with what it carries.
        encoders: Joint angles by the encoders, shape (n,) [rad].
        compliance: c, shape (n,) [rad/(N·m)].

    Returns:
        Link angles, shape (n,) [rad], and G there, shape (n,) [N·m].

    """
    angles = np.asarray(encoders)
    torque = robot.gravity_torque(angles)
    if not compliance.any():
        return angles, torque
    for _ in range(_ITERATIONS):
        angles = encoders - compliance * torque
        torque = robot.gravity_torque(angles)
    return angles, torque


def target_pose(robot: Robot, q: Array, target: Target) -> tuple[Array, Array]:
    """Return rotation (3, 3) of the target's frame and position (3,) [m] of the target, in root.

    Args:
        robot: The arm.
        q: Joint angles, shape (n,) [rad].
        target: What is looked at.

    """
    placement = robot.transform_frame_to_root(q, target.frame)
    return placement.rotation, placement.act(np.asarray(target.xyz))


def target_jacobian(robot: Robot, q: Array, target: Target) -> Array:
    """Return how the target moves and turns with the joints, root axes, shape (6, n).

    Column i is a_i × (p − o_i), then a_i.
    """
    jacobian = np.array(pin.computeFrameJacobian(
        robot.model, robot.data, q, robot.frame_id(target.frame),
        pin.ReferenceFrame.LOCAL_WORLD_ALIGNED)).reshape(6, robot.n)
    rotation, _ = target_pose(robot, q, target)
    lever = rotation @ np.asarray(target.xyz)
    jacobian[:3] += np.cross(jacobian[3:].T, lever).T
    return jacobian


def predicted(
    robot: Robot, loaded: Robot, target: Target, without: Array, with_load: Array,
    compliance: Array, rows: int = 3,
) -> tuple[Array, Array]:
    """Return the displacement that the load causes, and its derivative.

    Args:
        robot: The arm without the load.
        loaded: The arm with it.
        target: What the tracker sees.
        without: Encoder angles without the load, shape (n,) [rad].
        with_load: Encoder angles with it, shape (n,) [rad].
        compliance: Shape (n,) [rad/(N·m)].
        rows: 3 for position, 6 for position [m] and rotation vector [rad].

    Returns:
        Displacement in root axes, shape (rows,), and derivative by the compliances, to first
        order, shape (rows, n).

    """
    q0, torque0 = deflected(robot, without, compliance)
    q1, torque1 = deflected(loaded, with_load, compliance)
    slope = (target_jacobian(robot, q0, target) * torque0
             - target_jacobian(robot, q1, target) * torque1)[:rows]
    turn0, point0 = target_pose(robot, q0, target)
    turn1, point1 = target_pose(robot, q1, target)
    change = point1 - point0
    if rows == 6:
        change = np.concatenate((change, pin.log3(turn1 @ turn0.T)))
    return change, slope
