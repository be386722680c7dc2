# SPDX-License-Identifier: Apache-2.0
"""A payload result as the body that the arm carries."""

from __future__ import annotations

import numpy as np

from robocal_ros.arrays import Array, frozen
from robocal_ros.errors import DataError
from robocal_ros.results.result import CalibrationResult, State
from robocal_ros.robot.model import RigidBodyInertia

_WEIGHT = ('mass', 'com_x', 'com_y', 'com_z')


def carried_load(result: CalibrationResult) -> RigidBodyInertia:
    """Return mass, centre of mass and inertia of a payload result, in its frame.

    An inertia that was not identified is zero about the centre of mass, as of a point mass.

    Raises:
        DataError: If the result is of another kind, or lacks mass or centre of mass.

    """
    mass, *com = _weight(result)
    inertia = [result.parameter(f'inertia_{axes}')
               for axes in ('xx', 'xy', 'xz', 'yy', 'yz', 'zz')]
    tensor = np.zeros((3, 3))
    if all(p.state is State.IDENTIFIED and p.value is not None for p in inertia):
        tensor[np.triu_indices(3)] = [p.value for p in inertia]
        tensor = tensor + np.triu(tensor, 1).T
    return RigidBodyInertia(float(mass), frozen(com), frozen(tensor))


def alternative_loads(result: CalibrationResult) -> list[RigidBodyInertia]:
    """Return loads one standard deviation off, along the principal axes of the covariance.

    The variance of a quantity that depends on the load is, to first order, the sum of the squared
    changes caused by these loads.

    Raises:
        DataError: As for ``carried_load``.

    """
    estimate, inertia = _weight(result), carried_load(result).inertia
    stated = [result.parameter(name).std or 0.0 for name in _WEIGHT]
    covariance = np.diag(np.square(stated))
    known = [i for i, name in enumerate(_WEIGHT) if name in result.covariance_names]
    rows = [result.covariance_names.index(_WEIGHT[i]) for i in known]
    covariance[np.ix_(known, known)] = result.covariance[np.ix_(rows, rows)]
    variance, directions = np.linalg.eigh(covariance)
    loads = []
    for size, direction in zip(variance, directions.T, strict=True):
        if size > 0.0:
            mass, *com = estimate + np.sqrt(size) * direction
            loads.append(RigidBodyInertia(float(mass), frozen(com), inertia))
    return loads


def _weight(result: CalibrationResult) -> Array:
    """Return mass and centre of mass of a payload result, shape (4,)."""
    if result.kind != 'payload':
        raise DataError(f"Expected a result of kind 'payload', got '{result.kind}'.")
    return result.values(_WEIGHT)
