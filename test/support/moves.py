# SPDX-License-Identifier: Apache-2.0
"""Motions between two postures."""

from __future__ import annotations

import numpy as np

from robocal_ros.robot.trajectories import Trajectory, quintic_path


def quintic_move(
    start: np.ndarray, goal: np.ndarray, max_velocity: np.ndarray, max_acceleration: np.ndarray,
    min_duration: float = 0.2,
) -> Trajectory:
    """Return a straight line in joint space; arguments as for ``quintic_path``."""
    return quintic_path(np.stack((start, goal)), max_velocity, max_acceleration, min_duration)
