# SPDX-License-Identifier: Apache-2.0
"""A payload result as the body that the arm carries."""

from __future__ import annotations

import numpy as np

from robocal_ros.core.arrays import frozen
from robocal_ros.core.result import CalibrationResult, State
from robocal_ros.core.robot import RigidBodyInertia
from robocal_ros.errors import DataError


def carried_load(result: CalibrationResult) -> RigidBodyInertia:
    """Return mass, centre of mass and inertia of a payload result, in its frame.

    Inertia that was not identified counts as zero about the centre of mass: that of a point,
    the least there can be, and none at all at rest.

    Raises:
        DataError: If the result is not one of a payload, or lacks mass or centre.

    """
    if result.kind != 'payload':
        raise DataError(f"Expected a result of kind 'payload', got '{result.kind}'.")
    mass, *com = result.values(('mass', 'com_x', 'com_y', 'com_z'))
    inertia = [result.parameter(f'inertia_{axes}')
               for axes in ('xx', 'xy', 'xz', 'yy', 'yz', 'zz')]
    tensor = np.zeros((3, 3))
    if all(p.state is State.IDENTIFIED and p.value is not None for p in inertia):
        tensor[np.triu_indices(3)] = [p.value for p in inertia]
        tensor = tensor + np.triu(tensor, 1).T
    return RigidBodyInertia(float(mass), frozen(com), frozen(tensor))
