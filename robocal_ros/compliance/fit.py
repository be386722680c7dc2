# SPDX-License-Identifier: Apache-2.0
"""Robust, bounded least-squares fit of joint compliances to displacements.

Sources: Lawson, Hanson, Solving Least Squares Problems (SIAM 1995), ch. 23, for the bounds;
Huber, Robust Statistics (1981), sec. 7.8, for the iteration of weights; Paule, Mandel, J. Res. NBS
87 (1982) 377, for scatter beyond the stated covariance; James, Stein, Proc. 4th Berkeley Symp.
Math. Stat. Prob. 1 (1961) 361, for shrinkage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from robocal_ros.arrays import Array
from robocal_ros.compliance.measurement import Displacements
from robocal_ros.compliance.model import GEAR_ERROR, Target, predicted, target_jacobian
from robocal_ros.errors import DataError, ExcitationError
from robocal_ros.estimation import solve
from robocal_ros.robot import Robot

# A joint whose torque stays below this share of the load's weight at one metre gets none.
_NO_TORQUE = 1e-3
_NO_LEVER = 1e-3
_MAX_CONDITION = 1e4
_REWEIGHTINGS = 20
# Tail probabilities beyond which a displacement loses weight, and beyond which it is rejected.
_DOWNWEIGHTED, _REJECTED = 1e-3, 1e-6
_LINEARISATIONS = 4
_WEIGHINGS = 4
_OFFSET_SIGNIFICANT = 1e-5
_LARGEST_ANGLE_STD = 1e-2
_UPPER = 0.975


def shrunk_angles(data: Displacements, share: float) -> Array:
    """Return the joint angles with the load, shrunk towards those without, shape (k, n) [rad].

    Args:
        data: Displacements.
        share: Share of the encoders' difference between the sets that is kept, 0 … 1.

    """
    return data.unloaded + share * (data.loaded - data.unloaded)


class _Problem:
    """Displacements with their predictions and weights.

    Attributes:
        kept: Displacements used in the fit, shape (k,).
        seen: Columns of the observable joints.
        offset: Whether a common displacement of the tracker is estimated jointly.
        covariance: Covariance of the displacements by the tracker's scatter, and by the
            compensation of different joint angles, shape (k, d, d).
        torque: Torques of the load, shape (k, n) [N·m].
        angle_std: Scatter of joint angles in addition to that [rad].
        encoder_share: Share of the encoders' differences between the sets that is used, 0 … 1.

    """

    def __init__(
        self, robot: Robot, loaded: Robot, target: Target, data: Displacements
    ) -> None:
        self.robot, self.loaded, self.target, self.data = robot, loaded, target, data
        self.count, self.rows = data.value.shape
        self.kept = np.ones(self.count, dtype=bool)
        self.offset = data.drifted
        self.seen: list[int] = list(range(robot.n))
        self.jacobians = np.array([
            target_jacobian(robot, q, target)[:self.rows] for q in data.loaded])
        # Links follow the encoders' differences but for the transmission error of the gears.
        unsure = self.jacobians * (GEAR_ERROR * (data.loaded - data.unloaded))[:, None]
        self.covariance = data.covariance + unsure @ unsure.transpose(0, 2, 1)
        self.torque = np.array([
            loaded.gravity_torque(q) - robot.gravity_torque(q) for q in data.loaded])
        self.angle_std = 0.0
        self.encoder_share = 1.0

    def linearised(self, compliance: Array) -> tuple[Array, Array]:
        """Return prediction (k, d) and slope (k, d, n)."""
        angles = shrunk_angles(self.data, self.encoder_share)
        both = [predicted(self.robot, self.loaded, self.target, a, b, compliance, self.rows)
                for a, b in zip(self.data.unloaded, angles, strict=True)]
        return np.array([p for p, _ in both]), np.array([s for _, s in both])

    def whitening(self, angle_std: float) -> Array:
        """Return the whitening matrix of each displacement, shape (k, d, d)."""
        total = self.covariance + angle_std**2 * (
            self.jacobians @ self.jacobians.transpose(0, 2, 1))
        return np.linalg.inv(np.linalg.cholesky(total))

    def regressor(self, slope: Array) -> Array:
        """Return the regressor of observable joints and offset, shape (k, d, p)."""
        columns = slope[:, :, self.seen]
        if not self.offset:
            return columns
        shift = np.zeros((self.count, self.rows, 3))
        shift[:, :3] = np.eye(3)
        return np.concatenate((columns, shift), axis=2)

    def bounds(self) -> tuple[Array, Array]:
        """Return lower and upper bounds: compliances are not negative, shape (p,) each."""
        free = 3 if self.offset else 0
        lower = np.concatenate((np.zeros(len(self.seen)), np.full(free, -np.inf)))
        return lower, np.full(len(lower), np.inf)

    @property
    def unknowns(self) -> int:
        """Number of unknowns: observable joints and offset."""
        return len(self.seen) + 3 * self.offset

    def freedom(self) -> int:
        """Return the degrees of freedom.

        Raises:
            DataError: If there are none.

        """
        kept = int(self.kept.sum())
        if kept * self.rows <= self.unknowns:
            raise DataError(
                f'{kept} postures give {kept * self.rows} measurements for {self.unknowns} '
                'unknowns, which leaves no residual; measure at least '
                f'{self.unknowns // self.rows + 2} postures, better 30.')
        return kept * self.rows - self.unknowns


def _without_torque(problem: _Problem) -> dict[int, str]:
    """Return joints without torque by the load, or without effect on the target, and why."""
    robot, torque = problem.robot, problem.torque
    weight = _weight(problem.robot, problem.loaded)
    lever = np.linalg.norm(problem.jacobians[:, :3], axis=1)
    unobservable = {}
    for joint in range(robot.n):
        largest = float(np.abs(torque[:, joint]).max())
        if largest < _NO_TORQUE * weight:
            unobservable[joint] = (
                f'the weight of the load exerts no torque about it (at most {largest:.2g} N·m): '
                'its axis is parallel to gravity, or the load is centred on it')
        elif float(lever[:, joint].max()) < _NO_LEVER and problem.rows == 3:
            unobservable[joint] = (
                'the target lies on its axis (at most '
                f'{1e3 * float(lever[:, joint].max()):.2g} mm off), so that it does not move; '
                'mount the target off the axis')
    return unobservable


def _weight(robot: Robot, loaded: Robot) -> float:
    masses = [sum(inertia.mass for inertia in model.inertias)
              for model in (robot.model, loaded.model)]
    return float((masses[1] - masses[0]) * np.linalg.norm(robot.gravity))


def _drop_unobservable(problem: _Problem, white: Array, unobservable: dict[int, str]) -> float:
    """Remove joints that are not separable from others; return the condition of the rest."""
    names = problem.robot.joint_names
    _, slope = problem.linearised(np.zeros(problem.robot.n))
    while problem.seen:
        columns = (white @ problem.regressor(slope)).reshape(-1, len(problem.bounds()[0]))
        labels = [names[i] for i in problem.seen] + ['x', 'y', 'z'][:3 * problem.offset]
        try:
            return solve(columns, np.zeros(len(columns)), 1.0, labels,
                         max_condition=_MAX_CONDITION).condition
        except ExcitationError as error:
            together = ([i for i in problem.seen if names[i] in error.unobservable]
                        or problem.seen[-1:])
            group = ', '.join(names[i] for i in together)
            for joint in together:
                problem.seen.remove(joint)
                unobservable[joint] = (
                    f'in these postures the effects of {group} are not separable (condition '
                    f'number {error.condition:.2g})')
    raise ExcitationError(
        'These postures and this load make no joint compliance observable: '
        + '; '.join(f"'{names[i]}': {reason}" for i, reason in sorted(unobservable.items())) + '.',
        needed=problem.robot.n, unobservable=tuple(names[i] for i in unobservable))


def _solve_bounded(columns: Array, measured: Array, bounds: tuple[Array, Array]) -> Array:
    """Return the bounded least-squares solution of whitened rows."""
    scale = np.linalg.norm(columns, axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    solution = scipy.optimize.lsq_linear(
        columns / scale, measured, bounds=bounds, method='bvls', tol=1e-12)
    return np.asarray(solution.x / scale)


def _inverse_information(columns: Array) -> Array:
    """Return the covariance of the least-squares solution of whitened rows."""
    scale = np.linalg.norm(columns, axis=0)
    inverse = np.linalg.inv((columns / scale).T @ (columns / scale))
    return np.asarray(inverse / np.outer(scale, scale))


def _distances(white: Array, residual: Array) -> Array:
    """Return the Mahalanobis length of each residual, shape (k,)."""
    return np.asarray(np.linalg.norm(np.einsum('kij,kj->ki', white, residual), axis=1))


def _robust_scale(distance: Array, rows: int) -> float:
    """Return the ratio of the residuals to their stated scatter, by the median; at least 1."""
    return max(1.0, float(np.median(distance)) / float(np.sqrt(scipy.stats.chi2.ppf(0.5, rows))))


def _robust_solution(
    problem: _Problem, white: Array, slope: Array, measured: Array
) -> tuple[Array, np.ndarray]:
    """Return the robust solution and the mask of displacements that agree with it."""
    rows = white @ problem.regressor(slope)
    aims = np.einsum('kij,kj->ki', white, measured)
    size = rows.shape[2]
    weight = np.ones(problem.count)
    bend = float(np.sqrt(scipy.stats.chi2.isf(_DOWNWEIGHTED, problem.rows)))
    solution = np.zeros(size)
    for _ in range(_REWEIGHTINGS):
        root = np.sqrt(weight)
        solution = _solve_bounded((rows * root[:, None, None]).reshape(-1, size),
                                  (aims * root[:, None]).ravel(), problem.bounds())
        distance = np.linalg.norm(aims - rows @ solution, axis=1)
        limit = bend * _robust_scale(distance, problem.rows)
        fresh = np.minimum(1.0, limit / np.maximum(distance, 1e-300))
        if np.abs(fresh - weight).max() < 1e-6:
            break
        weight = fresh
    distance = np.linalg.norm(aims - rows @ solution, axis=1)
    cut = float(np.sqrt(scipy.stats.chi2.isf(_REJECTED, problem.rows)))
    return solution, distance <= cut * _robust_scale(distance, problem.rows)


def _weighted_solution(
    problem: _Problem, white: Array, slope: Array, measured: Array
) -> tuple[Array, Array, Array]:
    """Return bounded solution, unbounded solution and covariance from the kept displacements."""
    kept = problem.kept
    rows = (white @ problem.regressor(slope))[kept]
    size = rows.shape[2]
    columns = rows.reshape(-1, size)
    aims = np.einsum('kij,kj->ki', white, measured)[kept].ravel()
    inverse = _inverse_information(columns)
    free = inverse @ (columns.T @ aims)
    if (free[:len(problem.seen)] >= 0.0).all():
        return free, free, inverse
    return _solve_bounded(columns, aims, problem.bounds()), free, inverse


@dataclass(frozen=True)
class ComplianceFit:
    """Fitted compliances with their uncertainty.

    Attributes:
        value: Compliances; 0 where unobservable, shape (n,) [rad/(N·m)].
        covariance: Covariance of all joints; 0 where unobservable, shape (n, n).
        unobservable: Reason why a joint's compliance is not observable, by its column.
        clipped: Unbounded estimates of joints at the bound of zero, by column [rad/(N·m)].
        residual: Measured minus predicted displacement, shape (k, d).
        kept: Displacements used in the fit, shape (k,).
        angle_std: Scatter of joint angles that the tracker's scatter does not explain
            (quantisation, repeatability of the arm) [rad].
        offset: Common displacement of the tracker between the sets in root axes, shape (3,)
            [m]; None where it was not estimated.
        chi_square: Weighted squared residual per degree of freedom, with the tracker's scatter
            alone.
        condition: Condition number of the weighted regressor, columns scaled.
        seen: Columns of the observable joints.
        encoder_share: Share of the encoders' differences between the sets that is used, 0 … 1;
            below 1 where they are comparable to the encoders' own error.

    """

    value: Array
    covariance: Array
    unobservable: dict[int, str]
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
        """Return the standard deviations, 0 where unobservable, shape (n,)."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    def relative_std(self) -> Array:
        """Return standard deviation over value, infinite at zero, NaN where unobservable, (n,)."""
        ratio = np.full(len(self.value), np.nan)
        for joint in self.seen:
            value = float(self.value[joint])
            ratio[joint] = self.std()[joint] / value if value > 0.0 else np.inf
        return ratio

    def correlation(self) -> Array:
        """Return the correlation matrix, 0 where unobservable, shape (n, n)."""
        std = self.std()
        scale = np.where(std > 0.0, std, 1.0)
        return np.asarray(self.covariance / np.outer(scale, scale))


def _extra_angle_std(problem: _Problem, residual: Array) -> float:
    """Return the scatter of joint angles that brings the reduced chi-square to one [rad]."""
    kept, freedom = problem.kept, problem.freedom()

    def excess(angle_std: float) -> float:
        white = problem.whitening(angle_std)[kept]
        return float((_distances(white, residual[kept]) ** 2).sum()) / freedom - 1.0

    if excess(0.0) <= 0.0:
        return 0.0
    if excess(_LARGEST_ANGLE_STD) > 0.0:
        return _LARGEST_ANGLE_STD
    return float(scipy.optimize.brentq(excess, 0.0, _LARGEST_ANGLE_STD, xtol=1e-10))


def _offset_needed(problem: _Problem, white: Array, residual: Array, slope: Array) -> bool:
    """Return whether a common displacement of the tracker explains the residuals significantly."""
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
    # F test: with few postures, chance alone explains much of large residuals.
    ratio = (squares[0] - squares[1]) / 3.0 / max(1.0, squares[1] / freedom)
    return ratio > float(scipy.stats.f.isf(_OFFSET_SIGNIFICANT, 3, freedom))


def fit_compliance(
    robot: Robot, loaded: Robot, target: Target, data: Displacements, encoder_std: float = 0.0
) -> ComplianceFit:
    """Fit the joint compliances to displacements.

    Args:
        robot: The arm without the load.
        loaded: The arm with it.
        target: Tracked target.
        data: Displacements of the postures to fit.
        encoder_std: Standard deviation of an angle by the resolution of its encoder [rad].

    Raises:
        DataError: If there are too few displacements.
        ExcitationError: If no joint's compliance is observable.

    """
    problem = _Problem(robot, loaded, target, data)
    unobservable = _without_torque(problem)
    problem.seen = [joint for joint in problem.seen if joint not in unobservable]
    problem.freedom()
    white = problem.whitening(0.0)
    condition = _drop_unobservable(problem, white, unobservable)
    compliance = np.zeros(robot.n)
    for step in range(_LINEARISATIONS):
        prediction, slope = problem.linearised(compliance)
        aims = data.value - prediction + slope @ compliance
        solution, fits = _robust_solution(problem, white, slope, aims)
        if step:
            problem.kept = fits
            left = aims - slope[:, :, problem.seen] @ solution[:len(problem.seen)]
            if not problem.offset and _offset_needed(problem, white, left, slope):
                problem.offset = True
                continue
        compliance = np.zeros(robot.n)
        compliance[problem.seen] = solution[:len(problem.seen)]
    return _finished(problem, compliance, unobservable, condition, encoder_std)


@dataclass(frozen=True)
class _Weighed:
    """Solution weighted by tracker scatter and angle scatter.

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
    problem: _Problem, compliance: Array, unobservable: dict[int, str], condition: float,
    encoder_std: float,
) -> ComplianceFit:
    """Solve with full weights and return the fit with its covariance."""
    weighed = _weighed(problem, compliance)
    problem.encoder_share = _encoder_share(problem)
    if problem.encoder_share < 1.0:
        weighed = _weighed(problem, weighed.compliance)
    covariance, seen = weighed.covariance, problem.seen
    if problem.angle_std > 0.0:
        covariance = _cautious(problem, covariance, weighed.compliance)
    covariance = covariance + _unresolved(problem, weighed.compliance, encoder_std)
    full = np.zeros((problem.robot.n, problem.robot.n))
    full[np.ix_(seen, seen)] = covariance[:len(seen), :len(seen)]
    clipped = {joint: float(weighed.free[i]) for i, joint in enumerate(seen)
               if weighed.free[i] < 0.0}
    return ComplianceFit(
        weighed.compliance, full, unobservable, clipped, weighed.residual, problem.kept,
        problem.angle_std, weighed.offset, weighed.chi_square, condition, tuple(seen),
        problem.encoder_share)


def _unresolved(problem: _Problem, compliance: Array, encoder_std: float) -> Array:
    """Return the covariance by motion of the motors that their encoders do not resolve.

    Within the dead band of a position loop, or a step of the encoder, each motor gives way in the
    direction of the load's torque. That is no scatter: it acts like compliance. The angle is the
    same in all postures but for its sign, and independent between the joints and the two sets.

    Args:
        problem: The displacements.
        compliance: The solution, shape (n,) [rad/(N·m)].
        encoder_std: Standard deviation of such an angle in one set [rad].

    """
    _, slope = problem.linearised(compliance)
    white, kept = problem.whitening(problem.angle_std)[problem.kept], problem.kept
    columns = (white @ problem.regressor(slope)[kept]).reshape(-1, problem.unknowns)
    angle = np.sqrt(2.0) * encoder_std * np.sign(problem.torque[kept])
    moved = (white @ (problem.jacobians[kept] * angle[:, None])).reshape(len(columns), -1)
    change = _inverse_information(columns) @ columns.T @ moved
    return np.asarray(change @ change.T)


def _cautious(problem: _Problem, covariance: Array, compliance: Array) -> Array:
    """Return the covariance widened for the uncertainty of the estimated angle scatter.

    The variance of the angles is raised by one standard error, then the intervals are scaled by
    the ratio of Student's to the normal quantile with Satterthwaite's degrees of freedom
    (Biometrics Bull. 2 (1946) 110): 2 V² over the variance of V. Both use the information of the
    residuals on the variance of the angles.
    """
    _, slope = problem.linearised(compliance)
    kept, square = problem.kept, problem.angle_std**2
    spread = problem.whitening(problem.angle_std)[kept] @ problem.jacobians[kept]
    inner = spread @ spread.transpose(0, 2, 1)
    error = float(np.sqrt(2.0 / (inner**2).sum()))
    columns = (problem.whitening(float(np.sqrt(square + error)))[kept]
               @ problem.regressor(slope)[kept]).reshape(-1, problem.unknowns)
    wider = _inverse_information(columns)
    variance = np.diag(covariance)
    change = np.maximum(np.diag(wider) - variance, 1e-300)
    freedom = np.clip(2.0 * (variance / change) ** 2, 3.0, 1e6)
    widths = scipy.stats.t.ppf(_UPPER, freedom) / scipy.stats.norm.ppf(_UPPER)
    return np.asarray(wider * np.outer(widths, widths))


def _encoder_share(problem: _Problem) -> float:
    """Return the share of the encoders' differences between the sets that is real motion.

    Their variance is the sum of real motion and encoder error, the latter being the angle
    scatter estimated from the residuals; the estimate is shrunk to the real share.
    """
    variance = float(np.mean(np.square(problem.data.loaded - problem.data.unloaded)))
    return 1.0 if variance == 0.0 else max(0.0, 1.0 - problem.angle_std**2 / variance)


def _weighed(problem: _Problem, compliance: Array) -> _Weighed:
    """Iterate solution and angle scatter until the reduced chi-square is one."""
    data, seen = problem.data, problem.seen
    problem.angle_std, chi_square = 0.0, 0.0
    for step in range(_WEIGHINGS):
        prediction, slope = problem.linearised(compliance)
        aims = data.value - prediction + slope @ compliance
        white = problem.whitening(problem.angle_std)
        solution, free, covariance = _weighted_solution(problem, white, slope, aims)
        residual = aims - problem.regressor(slope) @ solution
        compliance = np.zeros(problem.robot.n)
        compliance[seen] = solution[:len(seen)]
        if not step:
            plain = _distances(white, residual)[problem.kept]
            chi_square = float((plain**2).sum()) / problem.freedom()
        if step < _WEIGHINGS - 1:
            problem.angle_std = _extra_angle_std(problem, residual)
    offset = solution[len(seen):] if problem.offset else None
    return _Weighed(compliance, free, covariance, residual, offset, chi_square)
