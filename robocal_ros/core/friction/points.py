# SPDX-License-Identifier: Apache-2.0
"""What a run at constant speed says: one point of torque against speed, and what is behind it."""

from __future__ import annotations

from dataclasses import dataclass

from robocal_ros.core.arrays import Array


@dataclass(frozen=True)
class SpeedPoint:
    """One run at constant speed, read.

    Attributes:
        joint: Column of the joint.
        speed: Mean signed speed [rad/s].
        torque: Mean torque less gravity, signed [N·m].
        std: Standard deviation of that mean, correlated samples allowed for [N·m].
        scatter: Standard deviation of single samples about their mean [N·m].
        low: Lower end of the window [rad].
        high: Upper end of the window [rad].
        gravity_std: Standard deviation of what the gravity model may be off by, the same for
            all samples of the run [N·m].
        count: Number of samples.
        rejected: Why the run does not count, empty if it does.
        angle: Joint angles through the window, thinned, shape (m,) [rad].
        total: Drive torque at those angles, block means, shape (m,) [N·m].
        gravity: Gravity torque of the model at those angles, shape (m,) [N·m].

    """

    joint: int
    speed: float
    torque: float
    std: float
    scatter: float
    gravity_std: float
    low: float
    high: float
    count: int
    rejected: str
    angle: Array
    total: Array
    gravity: Array
