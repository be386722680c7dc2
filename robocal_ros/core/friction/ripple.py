# SPDX-License-Identifier: Apache-2.0
"""Torque ripple taken out of the points of friction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from robocal_ros.core.friction.points import SpeedPoint
from robocal_ros.core.ripple import Ripple, RippleRun, find_ripple


def ripple_of(points: Sequence[SpeedPoint]) -> tuple[Ripple, ...]:
    """Find what repeats over the angle in the runs of one joint, strongest first.

    Args:
        points: Runs of one joint; rejected ones are not used.

    """
    return find_ripple([RippleRun(p.angle, p.total - p.gravity)
                        for p in points if not p.rejected])


def without_ripple(
    points: Sequence[SpeedPoint], ripples: Sequence[Ripple]
) -> tuple[SpeedPoint, ...]:
    """Return the points with ripple taken out of their torques.

    Args:
        points: Runs of one joint.
        ripples: What repeats over its angle.

    """
    def cleaned(point: SpeedPoint) -> SpeedPoint:
        known = np.zeros_like(point.angle)
        for ripple in ripples:
            known += ripple.torque(point.angle)
        std = np.linalg.norm([point.std, *(ripple.mean_std(point.angle) for ripple in ripples)])
        return replace(point, torque=point.torque - float(known.mean()), std=float(std),
                       total=point.total - known)

    return tuple(cleaned(point) for point in points) if ripples else tuple(points)
