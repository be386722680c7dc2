# SPDX-License-Identifier: Apache-2.0
"""Sag of an arm by its identified joint compliance, and correction of motions for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.results import CalibrationResult, State
from robocal_ros.robot.model import Robot
from robocal_ros.robot.trajectories import Trajectory

# Fixed-point iterations for the equilibrium posture; each gains about two digits.
_ITERATIONS = 4
# Time step of central differences along a trajectory [s].
_STEP = 1e-3


def deflected(
    holding: Callable[[Array], Array], encoders: Array, compliance: Array
) -> tuple[Array, Array]:
    """Return the link angles of a compliant arm in equilibrium.

    Solves q = encoders − c ∘ G(q), where G is the torque that holds the arm against gravity.

    Args:
        holding: Returns G at link angles, shape (n,) [N·m].
        encoders: Encoder angles, shape (n,) [rad].
        compliance: c, shape (n,) [rad/(N·m)].

    Returns:
        Link angles, shape (n,) [rad], and G there, shape (n,) [N·m].

    """
    angles = np.asarray(encoders, dtype=float)
    torque = holding(angles)
    for _ in range(_ITERATIONS if compliance.any() else 0):
        angles = encoders - compliance * torque
        torque = holding(angles)
    return angles, torque


def compliance_by_joint(result: CalibrationResult) -> dict[str, float]:
    """Return the compliances that predict the sag, by joint name [rad/(N·m)].

    Where links bend across the joints, they are other than the compliances of the joints alone.

    Raises:
        DataError: If the result is of another kind.

    """
    result.check_kind('compliance')
    correction = result.settings.get('correction', {})
    found = ((p.name.rpartition('.')[0], p) for p in result.parameters)
    return {name: correction.get(name, p.value) for name, p in found
            if p.state is State.IDENTIFIED and p.value is not None}


class SagCorrection:
    """Prediction and correction of the tool's sag.

    The links reach q when the encoders are at q + c ∘ G(q), where G is the torque that holds arm
    and payload in q. This is exact within the model. Joints of unknown compliance count as rigid.
    """

    def __init__(self, robot: Robot, carrying: Robot, compliance: Mapping[str, float]) -> None:
        """Copy the models.

        Args:
            robot: The arm without payload.
            carrying: The arm with its present payload.
            compliance: Compliances by joint name [rad/(N·m)].

        """
        self._robot = robot.copy()
        self._carrying = carrying.copy()
        self._compliance = np.array([compliance.get(name, 0.0) for name in robot.joint_names])

    def torque(self, q: Array, *, payload_alone: bool = False) -> Array:
        """Return the holding torque that causes sag, shape (n,) [N·m].

        Args:
            q: Link angles, shape (n,) [rad].
            payload_alone: Without the arm's own weight.

        """
        torque = self._carrying.gravity_torque(q)
        return torque - self._robot.gravity_torque(q) if payload_alone else torque

    def link_angles(self, encoders: Array, *, payload_alone: bool = False) -> Array:
        """Return the link angles at given encoder angles, shape (n,) [rad]."""
        return deflected(partial(self.torque, payload_alone=payload_alone), encoders,
                         self._compliance)[0]

    def sag(self, encoders: Array, *, payload_alone: bool = False) -> Array:
        """Return the sag of the tool frame's origin in root axes, shape (3,) [m].

        Args:
            encoders: Encoder angles, shape (n,) [rad].
            payload_alone: Without the arm's own weight.

        """
        robot = self._robot
        angles = self.link_angles(encoders, payload_alone=payload_alone)
        there = robot.transform_frame_to_root(angles, robot.tool_frame).translation
        return np.asarray(
            there - robot.transform_frame_to_root(encoders, robot.tool_frame).translation)

    def corrected(self, trajectory: Trajectory, *, payload_alone: bool = False) -> Trajectory:
        """Return a trajectory corrected for the sag.

        Positions become q + c ∘ G(q); velocities and accelerations follow by the chain rule,
        with central differences of G along the motion. Deflection by inertial torques is not
        corrected.

        Args:
            trajectory: The desired motion of the links.
            payload_alone: Without the sag under the arm's own weight.

        """
        position, velocity = trajectory.position, trajectory.velocity
        given = trajectory.acceleration
        bend = np.zeros_like(position) if given is None else given

        def offset(step: float) -> Array:
            """Return c ∘ G a time step along the motion from each knot, shape (k, n) [rad]."""
            return self._compliance * np.array([
                self.torque(q, payload_alone=payload_alone)
                for q in position + step * velocity + 0.5 * step**2 * bend])

        here, ahead, behind = map(offset, (0.0, _STEP, -_STEP))
        return replace(
            trajectory, position=position + here,
            velocity=velocity + (ahead - behind) / (2.0 * _STEP),
            acceleration=None if given is None
            else given + (ahead - 2.0 * here + behind) / _STEP**2)
