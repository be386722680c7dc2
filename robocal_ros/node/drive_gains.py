# SPDX-License-Identifier: Apache-2.0
"""Identified drive gains and links in use: efforts divided by scales, and the arm's own model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.node.calibration_node import CalibrationNode
from robocal_ros.results import CalibrationResult, provenance
from robocal_ros.robot import (
    ARM,
    DRIVE_GAINS,
    Robot,
    effort_factor,
    effort_scale,
    effort_scales,
    identified_model,
    other_efforts,
)


class DriveGains:
    """Drive gains and identified arms, stored and as published, in use by a node.

    Attributes:
        scale: Divisor of the efforts, shape (n,).

    """

    def __init__(
        self, node: CalibrationNode, set_factor: Callable[[Array], None],
        use_arm: Callable[[Robot], object] | None = None,
        on_use: Callable[[CalibrationResult], object] | None = None,
    ) -> None:
        """Follow the results if the parameter ``use_drive_gains`` is true.

        Args:
            node: The node.
            set_factor: Sets the factors from efforts to torques, shape (n,), which have been those
                of ``effort_factor`` so far.
            use_arm: Uses the arm with its identified links from now on, or that of the URDF.
            on_use: Called with the result that is in use from now on.

        """
        self._node = node
        self._set_factor = set_factor
        self.scale = np.ones(node.robot.n)
        self._known: dict[str, CalibrationResult] = {}
        self._used: CalibrationResult | None = None
        self._use_arm = use_arm
        self._on_use = on_use
        self._identified = False
        if node.values.use_drive_gains:
            node.results.follow(DRIVE_GAINS, self.use)
            node.results.follow(ARM, self.use)

    def use(self, result: CalibrationResult) -> None:
        """Use drive gains and links from now on, unless later ones are known.

        Samples with other scales are discarded. Results of other efforts are not used; procedures
        that would build on them refuse.
        """
        if text := other_efforts(self._node.robot, self._node.values, result):
            self._node.get_logger().warning(text)
            return
        self._known[result.kind] = result
        later = provenance.later(list(self._known.values()))
        if later is None or later is self._used:
            return
        result = self._used = later
        node = self._node
        identified = result.kind == ARM and node.values.use_arm_model
        if self._use_arm is not None and (identified or self._identified):
            self._use_arm(identified_model(node.robot, result).robot if identified else node.robot)
        if self._on_use is not None:
            self._on_use(result)
        self._identified = identified
        scale = effort_scale(node.robot, result)
        if np.array_equal(scale, self.scale):
            return
        self.scale = scale
        self._set_factor(effort_factor(node.robot, node.values) / scale)
        known = effort_scales(result)
        scales = ', '.join(f'{name} {known[name]:.3f}' for name in known)
        node.get_logger().info(f'Efforts are divided by the identified scales: {scales}.')
