# SPDX-License-Identifier: Apache-2.0
"""What the arm is to do at every share of the way: hold the tool point, turn the tool."""

from __future__ import annotations

import numpy as np
import pinocchio as pin

from robocal_ros.core.arrays import Array
from robocal_ros.core.leveling.target import LevelTarget
from robocal_ros.core.leveling.tool import Tool


class LevelingTask:
    """The tool point held while the tool turns evenly about one axis (SLERP).

    Shares of the way run from 0 to 1. With a free heading only the tool's z axis follows the
    way; the tool may turn about the reference axis as suits the arm.

    Attributes:
        tool: Forward kinematics.
        start: Posture at share 0, shape (n,) [rad].
        point: Where the tool point is held, shape (3,) [m].
        target: Where the way leads to.
        rows: Number of conditions that a posture has to meet: 6, or 5 with a free heading.
        free_heading: Whether the tool may turn about the reference axis.
        across: Two unit vectors across the reference axis, shape (2, 3).

    """

    def __init__(
        self, tool: Tool, start: Array, target: LevelTarget, axis: Array, *,
        free_heading: bool = False,
    ) -> None:
        """Prepare.

        Args:
            tool: Forward kinematics.
            start: Current posture, shape (n,) [rad].
            target: Level orientation and the turn to it.
            axis: The reference's z axis in the root frame, shape (3,).
            free_heading: Whether the tool may turn about that axis.

        """
        self.tool = tool
        self.start = start
        self.target = target
        self._first, self.point = tool.pose(start)
        self._axis = axis
        self.free_heading = free_heading
        self.across = _plane_across(axis)
        self.rows = 5 if free_heading else 6

    @property
    def redundancy(self) -> int:
        """Number of freedoms that the task leaves to the arm; negative if some are missing."""
        return int(self.tool.robot.n) - self.rows

    @property
    def angle(self) -> float:
        """Angle of the whole turn [rad]."""
        return self.target.angle

    def orientation(self, share: float) -> Array:
        """Return the orientation at a share of the way, shape (3, 3)."""
        return pin.exp3(share * self.target.turn) @ self._first

    def transition_poses(self, max_step: float) -> Array:
        """Return the orientations between start and target, at least one, shape (k, 3, 3).

        Args:
            max_step: Largest angle from one to the next [rad].

        """
        count = max(1, int(np.ceil(self.angle / max_step)) - 1)
        shares = np.arange(1, count + 1) / (count + 1)
        return np.array([self.orientation(share) for share in shares])

    def linearised(self, q: Array, share: float) -> tuple[Array, Array, Array]:
        """Return what is missing at a posture, its Jacobian, and the tool's full Jacobian.

        Args:
            q: Joint angles, shape (n,) [rad].
            share: Share of the way.

        Returns:
            What is missing, shape (rows,) [m, rad]; the Jacobian that maps joint steps to it,
            shape (rows, n); Jacobian of the tool, shape (6, n).

        """
        rotation, point, jacobian = self.tool.pose_and_jacobian(q)
        wanted = self.orientation(share)
        missing = np.empty(self.rows)
        missing[:3] = self.point - point
        if not self.free_heading:
            missing[3:] = pin.log3(wanted @ rotation.T)
            return missing, jacobian, jacobian
        now = rotation @ (wanted.T @ self._axis)
        missing[3:] = self.across @ np.cross(now, self._axis)
        return missing, np.vstack((jacobian[:3], self.across @ jacobian[3:])), jacobian

    def drift(self, q: Array) -> float:
        """Return how far the tool point is from where it is held [m]."""
        return float(np.linalg.norm(self.tool.pose(q)[1] - self.point))


def _plane_across(axis: Array) -> Array:
    """Return two unit vectors across an axis, shape (2, 3)."""
    helper = np.eye(3)[int(np.argmin(np.abs(axis)))]
    first = np.cross(axis, helper)
    first /= np.linalg.norm(first)
    return np.stack((first, np.cross(axis, first)))
