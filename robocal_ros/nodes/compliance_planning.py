# SPDX-License-Identifier: Apache-2.0
"""Which postures the compliance node visits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from robocal_ros.capabilities.compliance import visibility_of
from robocal_ros.core.arrays import Array
from robocal_ros.core.compliance.load import Load
from robocal_ros.core.compliance.model import Target
from robocal_ros.core.compliance.postures import (
    Visibility,
    least_count,
    plan_postures,
    plan_registration,
)
from robocal_ros.core.compliance.registration import Registration
from robocal_ros.core.compliance.settings import ComplianceSettings
from robocal_ros.errors import ConfigurationError
from robocal_ros.io.posture_set import load_postures
from robocal_ros.ros.procedure import ProcedureNode


class CompliancePlanner:
    """Plans postures by what is known of the tracker's place, or takes those of the user."""

    def __init__(
        self, node: ProcedureNode, settings: ComplianceSettings, load: Callable[[], Load],
        registration: Callable[[], Registration | None],
    ) -> None:
        """Read the user's postures, if there are any.

        Args:
            node: The node.
            settings: Settings of the estimation.
            load: Returns what is mounted between the two sets.
            registration: Returns where the tracker stands; None while that is not known.

        Raises:
            ConfigurationError: If the user's postures are too few, or touch something.

        """
        self._node = node
        self._settings = settings
        self._load = load
        self._registration = registration
        self._cone = visibility_of(node.values)
        self._given = self._own_postures()

    def _own_postures(self) -> Array | None:
        node = self._node
        if not node.values.posture_file:
            return None
        given = load_postures(node.values.posture_file, node.robot)
        least = least_count(node.robot.n)
        if len(given) < least:
            raise ConfigurationError(
                f'posture_file holds {len(given)} postures; at least {least} are needed for '
                f'{node.robot.n} joints, better 30.')
        for number, posture in enumerate(given, 1):
            pair = node.checker.touching(posture)
            if pair:
                raise ConfigurationError(
                    f"In posture {number} of posture_file '{pair[0]}' touches '{pair[1]}'. "
                    'Correct it.')
        return given

    def _target(self) -> Target:
        found = self._registration()
        if found is not None and found.target is not None:
            return Target(self._settings.target_frame, found.target)
        return self._settings.target

    def _visibility(self) -> Visibility | None:
        """Return from where the target is seen: by the registration, else by parameters."""
        values, found = self._node.values, self._registration()
        if found is None or values.visibility_angle >= np.pi:
            return self._cone
        return Visibility(found.translation, np.array(values.target_axis),
                          values.visibility_angle)

    def postures(self, current: Array) -> Array:
        """Return the postures to measure in, for where the arm is, shape (k, n) [rad]."""
        if self._given is not None:
            return self._given
        node = self._node
        robot = node.robot.copy()
        return plan_postures(
            robot, self._load().on(robot), node.checker, current, self._target(),
            self._visibility(), count=node.values.posture_count,
            reach=node.values.posture_range)

    def for_registration(self, current: Array, count: int) -> Array:
        """Return postures to place the tracker by, shape (count, n) [rad]."""
        node = self._node
        return plan_registration(
            node.robot.copy(), node.checker, current, self._settings.target, self._cone,
            count=count, reach=node.values.posture_range)
