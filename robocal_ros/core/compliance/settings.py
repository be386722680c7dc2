# SPDX-License-Identifier: Apache-2.0
"""Settings of compliance calibration."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from robocal_ros.core.compliance.model import Target, check_turning
from robocal_ros.core.compliance.positions import DwellSettings
from robocal_ros.core.compliance.sets import MATCH_TOLERANCE
from robocal_ros.core.robot import Robot
from robocal_ros.errors import ConfigurationError


@dataclass(frozen=True)
class ComplianceSettings:
    """Settings of the estimation.

    Attributes:
        target_frame: Frame of the URDF that the target is fixed to.
        target_xyz: The target in that frame [m].
        match_tolerance: Largest difference of joint angles between the two sets [rad].
        max_drift: Largest shift of a reference posture within a set [m].
        max_registration_residual: Largest distance of a target from where the arm says [m].
        min_sag_removed: Least share of the sag on held-out postures that must be explained.
        dwell: How rests of a record become end positions.
        registration: One of the registration's ``METHODS``, for positions that are there to
            place the tracker.
        find_target: Whether these tell where the target is, too.

    """

    target_frame: str = 'tool0'
    target_xyz: tuple[float, float, float] = (0.0, 0.0, 0.0)
    match_tolerance: float = MATCH_TOLERANCE
    max_drift: float = 5e-5
    max_registration_residual: float = 3e-3
    min_sag_removed: float = 0.8
    dwell: DwellSettings = field(default_factory=DwellSettings)
    registration: str = 'least_squares'
    find_target: bool = False

    @property
    def target(self) -> Target:
        """What the tracker sees."""
        return Target(self.target_frame, np.array(self.target_xyz))

    def check(self, robot: Robot) -> None:
        """Refuse settings that don't fit the arm; raises ConfigurationError."""
        check_turning(robot)
        robot.frame_id(self.target_frame)
        if not np.isfinite(self.target_xyz).all():
            raise ConfigurationError(
                f'target_xyz is {list(self.target_xyz)}; expected three finite numbers.')
