# SPDX-License-Identifier: Apache-2.0
"""Division of efforts by identified scales of the drives."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.node.calibration_node import CalibrationNode
from robocal_ros.results.result import CalibrationResult
from robocal_ros.robot.setup import ARM, DRIVE_GAINS, effort_factor, effort_scale, effort_scales


class Scaled(Protocol):
    """Joint states whose efforts are scaled."""

    def set_factor(self, factor: Array) -> None:
        """Set the factors from the driver's efforts to torques, shape (n,)."""


class DriveGains:
    """Effort scales, stored and as published, applied to the joint states.

    Attributes:
        scale: Divisor of the efforts, shape (n,).

    """

    def __init__(self, node: CalibrationNode, joints: Scaled) -> None:
        """Follow the results if the parameter ``use_drive_gains`` is true.

        Args:
            node: The node.
            joints: The joint states, scaled by ``effort_factor`` so far.

        """
        self._node = node
        self._joints = joints
        self.scale = np.ones(node.robot.n)
        self._newest = -np.inf
        if node.values.use_drive_gains:
            node.follow(DRIVE_GAINS, 'payload_identification/drive_gains', self.use)
            node.follow(ARM, 'payload_identification/arm', self.use)

    def use(self, result: CalibrationResult) -> None:
        """Use effort scales from now on, unless newer ones are already in use.

        Samples with other scales are discarded.
        """
        if result.time < self._newest:
            return
        self._newest = result.time
        node = self._node
        scale = effort_scale(node.robot, result)
        if np.array_equal(scale, self.scale):
            return
        self.scale = scale
        self._joints.set_factor(effort_factor(node.robot, node.values) / scale)
        known = effort_scales(result)
        scales = ', '.join(f'{name} {known[name]:.3f}' for name in known)
        node.get_logger().info(f'Efforts are divided by the identified scales: {scales}.')
