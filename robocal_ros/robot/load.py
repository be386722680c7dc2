# SPDX-License-Identifier: Apache-2.0
"""A payload result as the body that the arm carries."""

from __future__ import annotations

import numpy as np

from robocal_ros.arrays import Array, covariance_factor, frozen
from robocal_ros.results import CalibrationResult, State
from robocal_ros.robot.model import RigidBodyInertia

_WEIGHT = ('mass', 'com_x', 'com_y', 'com_z')
_INERTIA = tuple(f'inertia_{axes}' for axes in ('xx', 'xy', 'xz', 'yy', 'yz', 'zz'))


def carried_load(result: CalibrationResult) -> RigidBodyInertia:
    """Return mass, centre of mass and inertia of a payload result, in its frame.

    An inertia that was not identified is zero about the centre of mass, as of a point mass.

    Raises:
        DataError: If the result is of another kind, or lacks mass or centre of mass.

    """
    result.check_kind('payload')
    inertia = result.values(_INERTIA) if _has_inertia(result) else np.zeros(len(_INERTIA))
    return body_of(np.concatenate((result.values(_WEIGHT), inertia)))


def alternative_loads(
    result: CalibrationResult, *, inertia: bool = False
) -> list[RigidBodyInertia]:
    """Return loads one standard deviation off, along the principal axes of the covariance.

    The variance of a quantity that depends on the load is, to first order, the sum of the squared
    changes caused by these loads.

    Args:
        result: A payload result.
        inertia: Whether an identified inertia varies too, not mass and centre of mass alone.

    Raises:
        DataError: As for ``carried_load``.

    """
    body = carried_load(result)
    estimate = np.array([body.mass, *body.com, *np.asarray(body.inertia)[np.triu_indices(3)]])
    names = _WEIGHT + (_INERTIA if inertia and _has_inertia(result) else ())
    covariance = result.covariance_of(names)
    for row, name in enumerate(names):
        if name not in result.covariance_names:
            covariance[row, row] = (result.parameter(name).std or 0.0)**2
    steps = np.pad(covariance_factor(covariance), ((0, len(estimate) - len(names)), (0, 0)))
    return [body_of(estimate + step) for step in steps.T]


def _has_inertia(result: CalibrationResult) -> bool:
    return all(p.state is State.IDENTIFIED and p.value is not None
               for p in map(result.parameter, _INERTIA))


def body_of(values: Array) -> RigidBodyInertia:
    """Return the body of mass, centre of mass and inertia about it.

    Args:
        values: Mass, centre of mass, and xx, xy, xz, yy, yz, zz of the inertia, shape (10,).

    """
    tensor = np.zeros((3, 3))
    tensor[np.triu_indices(3)] = values[4:]
    return RigidBodyInertia(
        float(values[0]), frozen(values[1:4]), frozen(tensor + np.triu(tensor, 1).T))
