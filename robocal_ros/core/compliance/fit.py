# SPDX-License-Identifier: Apache-2.0
"""Compliances from displacements: weighted, robust, non-negative, honest about what is blind.

Sources: Paule, Mandel, J. Res. NBS 87 (1982) 377, for scatter beyond the stated one; James,
Stein, Proc. 4th Berkeley Symp. Math. Stat. Prob. 1 (1961) 361, for shrinking.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from robocal_ros.core.arrays import Array
from robocal_ros.core.compliance.model import Target
from robocal_ros.core.compliance.problem import Problem, drop_blind, without_torque
from robocal_ros.core.compliance.robust import distances, robust_solution, weighted_solution
from robocal_ros.core.compliance.sets import Displacements
from robocal_ros.core.robot import Robot

_LINEARISATIONS = 4
_WEIGHINGS = 4
_OFFSET_SIGNIFICANT = 1e-5
_LARGEST_ANGLE_STD = 1e-2
_UPPER = 0.975


@dataclass(frozen=True)
class ComplianceFit:
    """What the displacements told.

    Attributes:
        value: Compliances; 0 where blind, shape (n,) [rad/(N·m)].
        covariance: Covariance of all joints; 0 where blind, shape (n, n).
        blind: Why a joint's compliance cannot be told, by its column.
        clipped: What joints would have without the bound at zero, by column [rad/(N·m)].
        residual: Measured minus predicted displacement, shape (k, d).
        kept: Whether a displacement took part, shape (k,).
        angle_std: Scatter of joint angles that the tracker's scatter does not explain
            (quantisation, repeatability of the arm) [rad].
        offset: Common displacement of the tracker between the sets, in root axes, where it was
            found along, shape (3,) [m].
        chi_square: Weighted squared residual per degree of freedom, with the tracker's scatter
            alone.
        condition: Condition number of the weighted regressor, columns scaled.
        seen: Columns of the joints whose compliance can be told.
        encoder_share: By how much the encoders' differences between the sets are believed, 0 …
            1: below 1 where they are little more than the encoders' own steps.

    """

    value: Array
    covariance: Array
    blind: dict[int, str]
    clipped: dict[int, float]
    residual: Array
    kept: np.ndarray
    angle_std: float
    offset: Array | None
    chi_square: float
    condition: float
    seen: tuple[int, ...] = ()
    encoder_share: float = 1.0

    def std(self) -> Array:
        """Return the standard deviations, 0 where blind, shape (n,)."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    def relative_std(self) -> Array:
        """Return standard deviation over value, infinite at zero, NaN where blind, (n,)."""
        ratio = np.full(len(self.value), np.nan)
        for joint in self.seen:
            value = float(self.value[joint])
            ratio[joint] = self.std()[joint] / value if value > 0.0 else np.inf
        return ratio

    def correlation(self) -> Array:
        """Return the correlation matrix, 0 where blind, shape (n, n)."""
        std = self.std()
        scale = np.where(std > 0.0, std, 1.0)
        return np.asarray(self.covariance / np.outer(scale, scale))


def _extra_angle_std(problem: Problem, residual: Array) -> float:
    """Return the scatter of joint angles that brings the reduced chi-square to one [rad]."""
    kept, freedom = problem.kept, problem.freedom()

    def excess(angle_std: float) -> float:
        white = problem.whitening(angle_std)[kept]
        return float((distances(white, residual[kept]) ** 2).sum()) / freedom - 1.0

    if excess(0.0) <= 0.0:
        return 0.0
    if excess(_LARGEST_ANGLE_STD) > 0.0:
        return _LARGEST_ANGLE_STD
    return float(scipy.optimize.brentq(excess, 0.0, _LARGEST_ANGLE_STD, xtol=1e-10))


def _offset_needed(problem: Problem, white: Array, residual: Array, slope: Array) -> bool:
    """Tell whether a common displacement of the tracker would explain the residuals better."""
    if problem.offset:
        return True
    kept = problem.kept
    aims = np.einsum('kij,kj->ki', white, residual)[kept].ravel()
    squares = []
    for offset in (False, True):
        problem.offset = offset
        columns = (white @ problem.regressor(slope))[kept]
        columns = columns.reshape(-1, columns.shape[2])
        left = aims - columns @ np.linalg.lstsq(columns, aims, rcond=None)[0]
        squares.append(float(left @ left))
    problem.offset = False
    freedom = len(aims) - len(problem.seen) - 3
    if freedom < 3:
        return False
    # Fisher's ratio: with few postures, chance explains much of residuals that are large anyway.
    ratio = (squares[0] - squares[1]) / 3.0 / max(1.0, squares[1] / freedom)
    return ratio > float(scipy.stats.f.isf(_OFFSET_SIGNIFICANT, 3, freedom))


def fit_compliance(
    robot: Robot, loaded: Robot, target: Target, data: Displacements
) -> ComplianceFit:
    """Find the compliances that explain the displacements.

    Args:
        robot: The arm without the load.
        loaded: The arm with it.
        target: What the tracker sees.
        data: Displacements of the postures to fit.

    Raises:
        DataError: If there are too few displacements.
        ExcitationError: If no joint's compliance can be told.

    """
    problem = Problem(robot, loaded, target, data)
    blind = without_torque(problem)
    problem.seen = [joint for joint in problem.seen if joint not in blind]
    problem.freedom()
    white = problem.whitening(0.0)
    condition = drop_blind(problem, white, blind)
    compliance = np.zeros(robot.n)
    for step in range(_LINEARISATIONS):
        prediction, slope = problem.linearised(compliance)
        aims = data.value - prediction + slope @ compliance
        solution, fits = robust_solution(problem, white, slope, aims)
        if step:
            problem.kept = fits
            left = aims - slope[:, :, problem.seen] @ solution[:len(problem.seen)]
            if not problem.offset and _offset_needed(problem, white, left, slope):
                problem.offset = True
                continue
        compliance = np.zeros(robot.n)
        compliance[problem.seen] = solution[:len(problem.seen)]
    return _finished(problem, compliance, blind, condition)


@dataclass(frozen=True)
class _Weighed:
    """A solution by all the scatter there is.

    Attributes:
        compliance: Shape (n,).
        free: The solution without bounds, shape (p,).
        covariance: Shape (p, p).
        residual: Shape (k, d).
        offset: Shape (3,), or None.
        chi_square: Reduced, with the tracker's scatter alone.

    """

    compliance: Array
    free: Array
    covariance: Array
    residual: Array
    offset: Array | None
    chi_square: float


def _finished(
    problem: Problem, compliance: Array, blind: dict[int, str], condition: float
) -> ComplianceFit:
    """Weigh what is kept by all its scatter, and state the covariance."""
    weighed = _weighed(problem, compliance)
    problem.encoder_share = _encoder_share(problem)
    if problem.encoder_share < 1.0:
        weighed = _weighed(problem, weighed.compliance)
    covariance, seen = weighed.covariance, problem.seen
    if problem.angle_std > 0.0:
        covariance = _cautious(problem, covariance, weighed.compliance)
    full = np.zeros((problem.robot.n, problem.robot.n))
    full[np.ix_(seen, seen)] = covariance[:len(seen), :len(seen)]
    clipped = {joint: float(weighed.free[i]) for i, joint in enumerate(seen)
               if weighed.free[i] < 0.0}
    return ComplianceFit(
        weighed.compliance, full, blind, clipped, weighed.residual, problem.kept,
        problem.angle_std, weighed.offset, weighed.chi_square, condition, tuple(seen),
        problem.encoder_share)


def _cautious(problem: Problem, covariance: Array, compliance: Array) -> Array:
    """Return the covariance with what it takes that the scatter was told from few residuals.

    Once by caution: an estimated scatter is too small as often as too large, and intervals that
    are too narrow harm more; so the squared scatter of the angles is stated one standard error
    above its estimate. Then Student's over the normal quantile, with degrees of freedom by
    Satterthwaite (Biometrics Bull. 2 (1946) 110): 2 V² over the variance of V. Both follow from
    the information of the residuals on the squared scatter.
    """
    _, slope = problem.linearised(compliance)
    kept, square = problem.kept, problem.angle_std**2
    spread = problem.whitening(problem.angle_std)[kept] @ problem.jacobians[kept]
    inner = spread @ spread.transpose(0, 2, 1)
    error = float(np.sqrt(2.0 / (inner**2).sum()))
    columns = (problem.whitening(float(np.sqrt(square + error)))[kept]
               @ problem.regressor(slope)[kept]).reshape(-1, problem.unknowns)
    scale = np.linalg.norm(columns, axis=0)
    wider = np.linalg.inv((columns / scale).T @ (columns / scale)) / np.outer(scale, scale)
    variance = np.diag(covariance)
    change = np.maximum(np.diag(wider) - variance, 1e-300)
    freedom = np.clip(2.0 * (variance / change) ** 2, 3.0, 1e6)
    widths = scipy.stats.t.ppf(_UPPER, freedom) / scipy.stats.norm.ppf(_UPPER)
    return np.asarray(wider * np.outer(widths, widths))


def _encoder_share(problem: Problem) -> float:
    """Return by how much to believe the encoders' differences between the sets.

    What they show scatters by their own error (the scatter of angles that the residuals tell)
    and by what the joints really did; the best guess of the latter is what they show, shrunk to
    the real share of the variance.
    """
    shown = float(np.mean(np.square(problem.data.loaded - problem.data.unloaded)))
    return 1.0 if shown == 0.0 else max(0.0, 1.0 - problem.angle_std**2 / shown)


def _weighed(problem: Problem, compliance: Array) -> _Weighed:
    """Solve again and again, until the scatter of the angles explains the residuals."""
    data, seen = problem.data, problem.seen
    problem.angle_std, chi_square = 0.0, 0.0
    for step in range(_WEIGHINGS):
        prediction, slope = problem.linearised(compliance)
        aims = data.value - prediction + slope @ compliance
        white = problem.whitening(problem.angle_std)
        solution, free, covariance = weighted_solution(problem, white, slope, aims)
        residual = aims - problem.regressor(slope) @ solution
        compliance = np.zeros(problem.robot.n)
        compliance[seen] = solution[:len(seen)]
        if not step:
            plain = distances(white, residual)[problem.kept]
            chi_square = float((plain**2).sum()) / problem.freedom()
        if step < _WEIGHINGS - 1:
            problem.angle_std = _extra_angle_std(problem, residual)
    offset = solution[len(seen):] if problem.offset else None
    return _Weighed(compliance, free, covariance, residual, offset, chi_square)
