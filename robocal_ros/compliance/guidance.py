# SPDX-License-Identifier: Apache-2.0
"""Guidance for postures that are moved to by hand: what they determine, and which next.

With the derivatives of the residuals at the present estimate, the information of all observations
and what is known before give how well each parameter is known. The next postures are those that
raise its determinant most (Fedorov, Theory of Optimal Experiments, 1972).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.compliance.geometry import (
    ArmGeometry,
    Observations,
    ObservedSet,
    fit_geometry,
    read_observations,
)
from robocal_ros.compliance.geometry_estimator import OBSERVABLE, order_of, other_socket
from robocal_ros.compliance.measurement import Target
from robocal_ros.compliance.model import Mounted
from robocal_ros.compliance.parameters import ComplianceParameters
from robocal_ros.errors import DataError
from robocal_ros.estimation import d_optimal
from robocal_ros.robot import CollisionChecker, Robot

_CANDIDATES, _STEPS, _NEAR = 200, 30, 1e-6
_LEAST_KNOWN = 3


@dataclass(frozen=True, eq=False)
class Advice:
    """What the observations determine.

    Attributes:
        known: Parameters that are known to less than half of what is known before.
        total: All parameters of frames, compliances and targets.
        least: Names of those of which least is known, compared with what more postures could add.
        off: Distance of the newest observation from the fit of all [m]; None while they
            are too few.
        doubt: Why the newest contradicts the others, as a sentence; empty if it does not.
        postures: Postures that would add most, shape (k, n) [rad].

    """

    known: int
    total: int
    least: tuple[str, ...]
    off: float | None
    doubt: str
    postures: Array


def read_guided(robot: Robot, folder: Path, newest: Path) -> Observations:
    """Return the observations of all files of a folder, those of the newest file last.

    Args:
        robot: The nominal arm.
        folder: Folder of CSV files.
        newest: The file to which the newest observation was added.

    Raises:
        RobocalError: If a file cannot be used.

    """
    data = read_observations([folder], robot)
    name = '/'.join(newest.resolve().with_suffix('').parts[-2:])
    last = next(item for item in data.sets if item.name == name)
    return replace(data, sets=(*(item for item in data.sets if item is not last), last))


def advise(
    robot: Robot, data: Observations, values: ComplianceParameters, mounted: Mounted, *,
    count: int = 3, seed: int = 0,
) -> Advice:
    """Return what observations determine, the last of the last set being the newest.

    Args:
        robot: The nominal arm.
        data: The observations.
        values: The node's parameters.
        mounted: What is mounted without and with the load.
        count: Number of postures to propose.
        seed: Seed of the candidates.

    """
    target, newest = Target.of(robot, values), data.sets[-1]
    off, doubt = None, ''
    try:
        geometry = ArmGeometry(robot, mounted, target, data, values)
        geometry.check_amount()
        fit = fit_geometry(geometry)
        off = float(fit.rows.distances()[-1])
        if not fit.fits[-1]:
            doubt = (f'It contradicts the others by {1e3 * off:.2f} mm'
                     f'{other_socket(fit, newest, len(newest) - 1, off)}: repeat it.')
    except DataError:
        geometry = ArmGeometry(robot, mounted, target, data, values)
    candidates = _candidates(geometry, newest, seed)
    proposed = replace(newest, posture=candidates, reading=np.zeros((
        len(candidates), newest.reading.shape[1])))
    every = ArmGeometry(robot, mounted, target, replace(data, sets=(
        *data.sets, *([proposed] if len(candidates) else ()))), values)
    rows = every.scaled()
    begin = len(rows) - len(candidates) * newest.coordinates
    own, blocks = rows[:begin], rows[begin:].reshape(
        len(candidates), newest.coordinates, every.width)
    covariance = np.linalg.inv(np.eye(every.width) + own.T @ own)
    std = np.sqrt(np.diag(covariance))
    order = {name: column for name, (_, column, _) in order_of(every).items()
             if np.abs(rows[:, column]).max() > 0.0}
    best = np.sqrt(np.diag(np.linalg.inv(np.eye(every.width) + rows.T @ rows)))
    # What the next postures could determine best, compared with what is known.
    open_ones = sorted(order, key=lambda name: best[order[name]] / std[order[name]])
    factor = np.linalg.cholesky(covariance)
    chosen = d_optimal(blocks @ factor, count, prior=1.0) if len(candidates) else []
    return Advice(
        sum(std[column] < OBSERVABLE for column in order.values()), len(order_of(every)),
        tuple(open_ones[:_LEAST_KNOWN]), off, doubt, candidates[chosen])


def _candidates(geometry: ArmGeometry, item: ObservedSet, seed: int) -> Array:
    """Return postures within limits and without collision, shape (k, n) [rad].

    Those of sockets and planes are in contact; there are none for cameras, whose view is unknown.
    """
    robot = geometry.robot
    if item.corners:
        return np.empty((0, robot.n))
    checker, (lower, upper) = CollisionChecker(robot.copy()), robot.sampling_limits()
    drawn = np.random.default_rng(seed).uniform(lower, upper, (_CANDIDATES, robot.n))
    reached = [_in_contact(geometry, item, q) for q in drawn]
    return np.array([q for q in reached if ((q > lower) & (q < upper)).all()
                     and checker.is_free(q)]).reshape(-1, robot.n)


def _in_contact(geometry: ArmGeometry, item: ObservedSet, q: Array) -> Array:
    """Return the posture nearest to ``q`` in which the target is in the socket or on the plane.

    By Newton's method; infinite if it does not get there.
    """
    fixture, target = geometry.fixtures[item.fixture], geometry.targets[item.target]
    if not isinstance(fixture, np.ndarray):
        return q
    across = np.eye(3) if len(fixture) == 3 else fixture[None, :3]
    aim = fixture if len(fixture) == 3 else fixture[3:]
    for _ in range(_STEPS):
        _, point, jacobian = geometry.robot.pose_and_jacobian(q, geometry.frame, target)
        left = aim - across @ point
        if np.abs(left).max() < _NEAR:
            return q
        q = q + np.linalg.lstsq(across @ jacobian[:3], left, rcond=1e-3)[0]
    return np.full(len(q), np.inf)
