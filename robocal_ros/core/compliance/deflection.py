# SPDX-License-Identifier: Apache-2.0
"""Known compliance at work: predicted sag, and joint targets that make up for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from robocal_ros.core.arrays import Array
from robocal_ros.core.motion import Trajectory
from robocal_ros.core.result import CalibrationResult, State
from robocal_ros.core.robot import Robot
from robocal_ros.errors import DataError

_STEP = 1e-3
_ITERATIONS = 4


def compliance_by_joint(result: CalibrationResult) -> dict[str, float]:
    """Return the identified compliances of a result by joint name [rad/(N·m)].

    Raises:
        DataError: If the result is not one of compliance.

    """
    if result.kind != 'compliance':
        raise DataError(f"Expected a result of kind 'compliance', got '{result.kind}'.")
    return {p.name.rpartition('.')[0]: p.value for p in result.parameters
            if p.state is State.IDENTIFIED and p.value is not None}


class SagCorrection:
    """Predicts how far the tool hangs below where the encoders say, and corrects for it.

    The tool is where the rigid model says when every link is; so the encoders have to stand at
    q + c ∘ G(q), G being the torque that holds arm and payload in q. That is exact in the model
    where an inverse-kinematics step on the tool alone would only be close, and needs no inverse
    of a Jacobian that may be singular. Joints whose compliance is not known count as rigid.
    """

    def __init__(self, robot: Robot, carrying: Robot, compliance: Mapping[str, float]) -> None:
        """Prepare.

        Args:
            robot: The arm as the rigid model has been calibrated: without anything that makes
                it sag, or with what it then carried.
            carrying: The arm with what it carries now.
            compliance: Compliances by joint name [rad/(N·m)].

        """
        self._robot = robot.copy()
        self._carrying = carrying.copy()
        self._compliance = np.array([compliance.get(name, 0.0) for name in robot.joint_names])

    def torque(self, q: Array, *, payload_alone: bool = False) -> Array:
        """Return the holding torque that counts, shape (n,) [N·m].

        Args:
            q: Link angles, shape (n,) [rad].
            payload_alone: Count what the arm carries, not the arm's own weight.

        """
        torque = self._carrying.gravity_torque(q)
        return torque - self._robot.gravity_torque(q) if payload_alone else torque

    def link_angles(self, encoders: Array, *, payload_alone: bool = False) -> Array:
        """Return where the links stand when the encoders say ``encoders``, shape (n,) [rad]."""
        angles = np.asarray(encoders, dtype=float)
        for _ in range(_ITERATIONS):
            angles = encoders - self._compliance * self.torque(
                angles, payload_alone=payload_alone)
        return angles

    def sag(self, encoders: Array, *, payload_alone: bool = False) -> Array:
        """Return how the tool frame's origin lies off the rigid model, root axes, (3,) [m].

        Args:
            encoders: Joint angles by the encoders, shape (n,) [rad].
            payload_alone: Leave out what the arm's own weight does.

        """
        robot = self._robot
        angles = self.link_angles(encoders, payload_alone=payload_alone)
        there = robot.transform_frame_to_root(angles, robot.tool_frame).translation
        return np.asarray(
            there - robot.transform_frame_to_root(encoders, robot.tool_frame).translation)

    def corrected(self, trajectory: Trajectory, *, payload_alone: bool = False) -> Trajectory:
        """Return a motion on which the loaded tool goes where the rigid model says.

        Positions become q + c ∘ G(q); velocities and accelerations follow by the chain rule,
        with derivatives of G along the motion by central differences. G is that of rest: what
        acceleration adds to the torque is not corrected.

        Args:
            trajectory: The motion as it is meant.
            payload_alone: Leave the sag under the arm's own weight uncorrected.

        """
        def offset(q: Array) -> Array:
            return self._compliance * self.torque(q, payload_alone=payload_alone)

        position, velocity = trajectory.position.copy(), trajectory.velocity.copy()
        given = trajectory.acceleration
        acceleration = None if given is None else given.copy()
        for row, (q, v) in enumerate(zip(trajectory.position, trajectory.velocity, strict=True)):
            a = np.zeros_like(q) if given is None else given[row]
            here = offset(q)
            ahead = offset(q + _STEP * v + 0.5 * _STEP**2 * a)
            behind = offset(q - _STEP * v + 0.5 * _STEP**2 * a)
            position[row] += here
            velocity[row] += (ahead - behind) / (2.0 * _STEP)
            if acceleration is not None:
                acceleration[row] += (ahead - 2.0 * here + behind) / _STEP**2
        return replace(trajectory, position=position, velocity=velocity,
                       acceleration=acceleration)
