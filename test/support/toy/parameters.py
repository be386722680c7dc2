# SPDX-License-Identifier: Apache-2.0
"""Parameters of the mean posture."""

from __future__ import annotations

from dataclasses import dataclass

from robocal_ros.parameters import RobotParameters, parameter


@dataclass(frozen=True)
class ToyParameters(RobotParameters):
    """Parameters of the mean posture.

    Attributes:
        max_scatter: Largest accepted scatter of a joint.

    """

    max_scatter: float = parameter(0.01, unit='rad', minimum=0.0, maximum=1.0)
