# SPDX-License-Identifier: Apache-2.0
"""Where the tool is: orientation of the tool frame, and the point of it that is held."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pinocchio as pin

from robocal_ros.core.arrays import Array, frozen
from robocal_ros.core.robot import Robot
from robocal_ros.errors import ConfigurationError


class Tool:
    """Forward kinematics of a point of the tool, quick enough for thousands of postures.

    Attributes:
        robot: The arm, with scratch memory of its own.
        point: The point, in the tool frame, shape (3,) [m].
        length: Half the arm's stretched length, which makes metres comparable with radians in
            singular values [m].

    """

    def __init__(self, robot: Robot, point: Sequence[float] = (0.0, 0.0, 0.0)) -> None:
        """Prepare.

        Args:
            robot: The arm.
            point: Point of the tool that is held, in the tool frame [m].

        Raises:
            ConfigurationError: If the point is not three finite numbers.

        """
        self.point = frozen(point)
        if self.point.shape != (3,) or not np.isfinite(self.point).all():
            raise ConfigurationError(
                f'tool_point must be three finite numbers in m, got {list(point)}.')
        self.robot = robot.copy()
        self._frame = robot.frame_id(robot.tool_frame)
        model = robot.model
        offsets = [placement.translation for placement in list(model.jointPlacements)[2:]]
        offsets.append(model.frames[self._frame].placement.act(self.point))
        self.length = max(0.5 * sum(float(np.linalg.norm(offset)) for offset in offsets), 1e-2)

    def pose(self, q: Array) -> tuple[Array, Array]:
        """Return orientation (3, 3) and held point (3,) [m] in the root frame.

        Args:
            q: Joint angles, shape (n,) [rad].

        """
        model, data = self.robot.model, self.robot.data
        pin.forwardKinematics(model, data, q)
        placement = pin.updateFramePlacement(model, data, self._frame)
        rotation = placement.rotation.copy()
        return rotation, placement.translation + rotation @ self.point

    def poses(self, positions: Array) -> tuple[Array, Array]:
        """Return orientations (k, 3, 3) and held points (k, 3) of postures of shape (k, n)."""
        found = [self.pose(q) for q in positions]
        return np.array([pose[0] for pose in found]), np.array([pose[1] for pose in found])

    def skeleton(self, q: Array) -> Array:
        """Return what a stick figure of the arm needs: base, joints, tool frame, held point.

        Args:
            q: Joint angles, shape (n,) [rad].

        Returns:
            Points in the root frame, shape (n + 3, 3) [m].

        """
        model, data = self.robot.model, self.robot.data
        pin.forwardKinematics(model, data, q)
        placement = pin.updateFramePlacement(model, data, self._frame)
        joints = [data.oMi[joint].translation for joint in range(1, model.njoints)]
        return np.array([np.zeros(3), *joints, placement.translation,
                         placement.act(self.point)])

    def pose_and_jacobian(self, q: Array) -> tuple[Array, Array, Array]:
        """Return orientation, held point, and the Jacobian of both, shape (6, n).

        The Jacobian is in root axes: velocity of the held point first, then angular velocity.
        """
        model, data = self.robot.model, self.robot.data
        pin.computeJointJacobians(model, data, q)
        placement = pin.updateFramePlacement(model, data, self._frame)
        rotation = placement.rotation.copy()
        lever = rotation @ self.point
        jacobian = np.array(pin.getFrameJacobian(
            model, data, self._frame, pin.ReferenceFrame.LOCAL_WORLD_ALIGNED)).reshape(6, -1)
        jacobian[:3] -= pin.skew(lever) @ jacobian[3:]
        return rotation, placement.translation + lever, jacobian

    def least_singular_value(self, jacobian: Array) -> float:
        """Return how far the arm is from a singularity: 0 in it, about 1 in the best posture.

        The smallest singular value of the Jacobian whose linear rows are divided by
        ``length`` (Yoshikawa, Foundations of Robotics, sec. 4.3).
        """
        scaled = jacobian.copy()
        scaled[:3] /= self.length
        return float(np.linalg.svd(scaled, compute_uv=False)[-1])
