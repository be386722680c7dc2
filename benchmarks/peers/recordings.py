# SPDX-License-Identifier: Apache-2.0
"""Published recordings of real arms, which are not part of this repository."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.messages import Bag, JointSamples

FOLDER = 'ROBOCAL_DATA'
"""Environment variable with the folder of the recordings; by default ``../shared/data``."""


def recording(name: str) -> Path | None:
    """Return the path of a recording, None if it is not there."""
    default = Path(__file__).resolve().parents[3] / 'shared' / 'data'
    path = Path(os.environ.get(FOLDER, default)) / name
    return path if path.exists() else None


def joint_states(path: Path, names: tuple[str, ...]) -> JointSamples:
    """Return the joint states of some joints in an order, by their own stamps."""
    with Bag(path) as bag:
        found = list(bag.messages('/joint_states'))
    order = [list(found[0].name).index(name) for name in names]
    time = np.array([item.header.stamp.sec + 1e-9 * item.header.stamp.nanosec for item in found])
    position, effort = (np.array([getattr(item, what) for item in found])[:, order]
                        for what in ('position', 'effort'))
    kept = np.concatenate(([True], np.diff(time) > 0.0))
    return JointSamples(names, time[kept] - time[0], position[kept],
                        np.zeros_like(position[kept]), effort[kept])


def trajectory(path: Path) -> tuple[Array, Array, Array, Array]:
    """Return positions, velocities, accelerations and efforts of a bag's one trajectory."""
    with Bag(path) as bag:
        points = [point for message in bag.messages('/joint_space_trajectory')
                  for point in message.points]
    q, v, a, effort = (np.array([getattr(point, name) for point in points]) for name in (
        'positions', 'velocities', 'accelerations', 'effort'))
    return q, v, a, effort
