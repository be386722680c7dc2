# SPDX-License-Identifier: Apache-2.0
"""Robust, bounded least-squares fit of joint compliances to displacements.

Sources: Lawson, Hanson, Solving Least Squares Problems (SIAM 1995), ch. 23, for the bounds;
Huber, Robust Statistics (1981), sec. 7.8, for the iteration of weights; James, Stein, Proc. 4th
Berkeley Symp. Math. Stat. Prob. 1 (1961) 361, for shrinkage.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pinocchio as pin
import scipy

from robocal_ros.arrays import Array
from robocal_ros.compliance.measurement import GEAR_ERROR, Displacements, Target
from robocal_ros.compliance.model import Load, PulledArm, bending_columns, predicted
from robocal_ros.errors import DataError, ExcitationError
from robocal_ros.estimation import integrate, solve
from robocal_ros.robot import Robot, deflected

# A joint whose torque stays below this share of the load's weight at one metre gets none.
_NO_TORQUE = 1e-3
_NO_LEVER = 1e-3
_MAX_CONDITION = 1e4
_REWEIGHTINGS = 20
# Tail probabilities beyond which a displacement loses weight, and beyond which it is rejected.
_DOWNWEIGHTED, _REJECTED = 1e-3, 1e-6
_LINEARISATIONS = 4
_PASSES = 2
# More passes, for each coordinate of a load's centre, until it is as near its estimate [std].
_MORE, _NEAR = 2, 0.1
# Stiffer than any joint [rad/(N·m)].
_LEAST = 1e-9
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
        unobservable: Reason why a joint's compliance is not observable, by its column.
        covariance: Covariance of the displacements by the tracker's scatter, and by the
            compensation of different joint angles, shape (k, d, d).
        white: Whitening matrix of each displacement, shape (k, d, d).
        torque: Torques of the load, shape (k, n) [N·m].
        flank: Change by the load of the flank on which each gear carries, −1, 0 or 1, (k, n).
        bearings: Displacements per compliance across the joints, shape (k, d, n, 5).
        links: Displacements per compliance of the links, shape (k, d, n, 6).
        encoder_share: Share of the encoders' differences between the sets that is used, 0 … 1.

    """

    def __init__(self, robot: Robot, loaded: Robot, target: Target, data: Displacements) -> None:
        self.robot, self.loaded, self.target, self.data = robot, loaded, target, data
        self.count, self.rows = data.value.shape
        self.kept = np.ones(self.count, dtype=bool)
        self.unobservable: dict[int, str] = {}
        self.jacobians = np.array([
            robot.pose_and_jacobian(q, target.frame, target.xyz)[2][:self.rows]
            for q in data.loaded])
        # Links follow the encoders' differences but for the transmission error of the gears.
        unsure = self.jacobians * (GEAR_ERROR * (data.loaded - data.unloaded))[:, None]
        self.covariance = data.covariance + unsure @ unsure.transpose(0, 2, 1)
        self.white = np.linalg.inv(np.linalg.cholesky(self.covariance))
        held = [arm.gravity_torques(data.loaded) for arm in (robot, loaded)]
        # Of a joint that carries nothing, the sign would be that of rounding errors.
        signs = np.sign(np.round(held, 6))
        self.torque, self.flank = held[1] - held[0], 0.5 * (signs[1] - signs[0])
        self.encoder_share = 1.0
        self.bearings, self.links = map(np.array, zip(*(
            bending_columns(robot, loaded, target, q, self.rows) for q in data.loaded),
            strict=True))

    def linearised(
        self, compliance: Array, loaded: Robot | None = None, target: Target | None = None
    ) -> tuple[Array, Array]:
        """Return prediction (k, d) and slope (k, d, n), also for another load or target."""
        angles = shrunk_angles(self.data, self.encoder_share)
        both = [predicted(self.robot, loaded or self.loaded, target or self.target, a, b,
                          compliance, self.rows)
                for a, b in zip(self.data.unloaded, angles, strict=True)]
        return np.array([p for p, _ in both]), np.array([s for _, s in both])

    def displaced_targets(self, compliance: Array) -> list[Target]:
        """Return targets that are each displaced by one standard deviation along an axis.

        That is what forward kinematics with the sag misses of where the tracker sees the target,
        apart from the tracker's pose. If link frames are off instead, levers are as uncertain.
        """
        poses = [self.robot.pose_and_jacobian(
            deflected(self.robot.gravity_torque, q, compliance)[0], self.target.frame,
            self.target.xyz)[:2] for q in self.data.unloaded]
        points = np.array([point for _, point in poses])
        rigid = np.concatenate((np.tile(np.eye(3), (self.count, 1, 1)), np.cross(
            np.eye(3), points[:, None])), axis=2).reshape(-1, 6)
        rows = np.column_stack((np.concatenate([turn for turn, _ in poses]),
                                (self.data.place - points).ravel()))
        left = rows - rigid @ np.linalg.lstsq(rigid, rows, rcond=None)[0]
        std = np.linalg.norm(left[:, 3]) / max(float(np.linalg.norm(left[:, :3])), _LEAST)
        return [replace(self.target, xyz=self.target.xyz + std * axis) for axis in np.eye(3)]

    def whitened(self, rows: Array) -> Array:
        """Return displacements, shape (k, d), in standard deviations."""
        return np.einsum('kij,kj->ki', self.white, rows)

    def regressor(self, slope: Array) -> Array:
        """Return the whitened regressor of observable joints, shape (k, d, p)."""
        return np.asarray(self.white @ slope[:, :, self.seen])

    @property
    def seen(self) -> list[int]:
        """Columns of the observable joints."""
        return [joint for joint in range(self.robot.n) if joint not in self.unobservable]

    @property
    def placed(self) -> Array:
        """Matrix from figures of the observable joints to those of all, 0 for others."""
        return np.eye(self.robot.n)[:, self.seen]

    def freedom(self) -> int:
        """Return the degrees of freedom beyond observable joints.

        Raises:
            DataError: If there are none.

        """
        kept, unknowns = int(self.kept.sum()), len(self.seen)
        if kept * self.rows <= unknowns:
            raise DataError(
                f'{kept} postures give {kept * self.rows} measurements for {unknowns} unknowns, '
                'which leaves no residual; measure at least '
                f'{unknowns // self.rows + 2} postures, better 30.')
        return kept * self.rows - unknowns


def _drop_without_torque(problem: _Problem) -> None:
    """Drop joints without torque by the load, or without effect on the target."""
    robot, torque = problem.robot, problem.torque
    weight = np.linalg.norm(robot.gravity) * (
        pin.computeTotalMass(problem.loaded.model) - pin.computeTotalMass(robot.model))
    if isinstance(problem.loaded, PulledArm):
        weight += problem.loaded.pull.force
    largest = np.abs(torque).max(axis=0)
    lever = np.linalg.norm(problem.jacobians[:, :3], axis=1).max(axis=0)
    for joint in range(robot.n):
        if largest[joint] < _NO_TORQUE * weight:
            problem.unobservable[joint] = (
                'the weight of the load exerts no torque about it (at most '
                f'{largest[joint]:.2g} N·m): its axis is parallel to gravity, or the load is '
                'centred on it; a rope that pulls sideways does (pull_force)')
        elif lever[joint] < _NO_LEVER and problem.rows == 3:
            problem.unobservable[joint] = (
                f'the target lies on its axis (at most {1e3 * lever[joint]:.2g} mm off), so that '
                'it does not move; mount the target off the axis')


def _drop_inseparable(problem: _Problem) -> float:
    """Drop joints that are not separable from others; return the condition of the rest."""
    names = problem.robot.joint_names
    _, slope = problem.linearised(np.zeros(problem.robot.n))
    while seen := problem.seen:
        columns = problem.regressor(slope).reshape(-1, len(seen))
        try:
            return solve(columns, np.zeros(len(columns)), 1.0, [names[i] for i in seen],
                         max_condition=_MAX_CONDITION).condition
        except ExcitationError as error:
            together = [i for i in seen if names[i] in error.unobservable] or seen[-1:]
            problem.unobservable |= dict.fromkeys(together, (
                f'in these postures the effects of {", ".join(names[i] for i in together)} are '
                f'not separable (condition number {error.condition:.2g})'))
    raise ExcitationError(
        'These postures and this load make no joint compliance observable: ' + '; '.join(
            f"'{names[i]}': {reason}" for i, reason in sorted(problem.unobservable.items())) + '.',
        needed=problem.robot.n, unobservable=tuple(names[i] for i in problem.unobservable))


def _robust_solution(problem: _Problem, slope: Array, measured: Array) -> tuple[Array, np.ndarray]:
    """Return the robust solution and the mask of displacements that agree with it."""
    rows, aims = problem.regressor(slope), problem.whitened(measured)
    size = rows.shape[2]
    weight = np.ones(problem.count)
    bend, middle, cut = np.sqrt(scipy.stats.chi2.isf(
        (_DOWNWEIGHTED, 0.5, _REJECTED), problem.rows))
    for _ in range(_REWEIGHTINGS):
        root = np.sqrt(weight)
        solution = scipy.optimize.nnls((rows * root[:, None, None]).reshape(-1, size),
                                       (aims * root[:, None]).ravel())[0]
        distance = np.linalg.norm(aims - rows @ solution, axis=1)
        # The ratio of the residuals to their stated scatter, by the median.
        scale = max(1.0, float(np.median(distance) / middle))
        fresh = np.minimum(1.0, bend * scale / np.maximum(distance, 1e-300))
        if np.abs(fresh - weight).max() < 1e-6:
            break
        weight = fresh
    return solution, distance <= cut * scale


@dataclass(frozen=True)
class ComplianceFit:
    """Fitted compliances with their uncertainty.

    Attributes:
        value: Compliances; 0 where unobservable, shape (n,) [rad/(N·m)].
        covariance: Covariance of all joints; 0 where unobservable, shape (n, n).
        unobservable: Reason why a joint's compliance is not observable, by its column.
        clipped: Unbounded estimates of joints at the bound of zero, by column [rad/(N·m)].
        kept: Displacements used in the fit, shape (k,).
        size: Sizes of scatter and effects that are no compliance, by name: ``noise`` in excess
            of the tracker's within a dwell, relative to it; scatter of the joint ``angles``
            [rad]; ``backlash`` of the gears [rad]; ``bending`` of bearings and links, relative to
            the joints' compliance; ``drift`` of tracker and target between the sets, and of
            the tracker within them [m]; ``load``, by which its centre is off, if unknown [m].
        drift: Coefficients of ``Displacements.drift``, shape (15,) [m].
        chi_square: Weighted squared residual per degree of freedom, with the tracker's scatter
            alone.
        condition: Condition number of the weighted regressor, columns scaled.
        correction: Compliances that alone predict the displacements best, shape (n,): where
            bearings or links bend, other than those of the joints [rad/(N·m)].
        bending: Compliance across each joint, mean of both directions, then of the link behind
            each, mean of all directions, shape (2 n,) [rad/(N·m)].
        bending_std: Standard deviation of each, shape (2 n,).
        bending_covariance: Covariance of compliances and bending, shape (n, 2 n).
        by_bending: Share of each compliance's variance that bending causes, shape (n,).
        freedom: Degrees of freedom of each interval, with which the covariance is that of 95 %,
            shape (n,).
        seen: Columns of the observable joints.
        encoder_share: Share of the encoders' differences between the sets that is used, 0 … 1;
            below 1 where they are comparable to the encoders' own error.
        centre: Load's centre of mass less the stated one, shape (3,) [m].

    """

    value: Array
    covariance: Array
    unobservable: dict[int, str]
    clipped: dict[int, float]
    kept: np.ndarray
    size: dict[str, float]
    drift: Array
    chi_square: float
    condition: float
    correction: Array
    bending: Array
    bending_std: Array
    bending_covariance: Array
    by_bending: Array
    freedom: Array
    seen: tuple[int, ...] = ()
    encoder_share: float = 1.0
    centre: Array = field(default_factory=lambda: np.zeros(3))

    def std(self) -> Array:
        """Return the standard deviations, 0 where unobservable, shape (n,)."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))


def fit_compliance(
    robot: Robot, loaded: Robot, target: Target, data: Displacements, encoder_std: float = 0.0,
    load: Load | None = None,
) -> ComplianceFit:
    """Fit the joint compliances to displacements.

    Args:
        robot: The arm without the load.
        loaded: The arm with it.
        target: Tracked target.
        data: Displacements of the postures to fit.
        encoder_std: Standard deviation of an angle by the resolution of its encoder; 0: estimated
            [rad].
        load: What is known of the load; None if it is exact.

    Raises:
        DataError: If there are too few displacements.
        ExcitationError: If no joint's compliance is observable.

    """
    problem = _Problem(robot, loaded, target, data)
    _drop_without_torque(problem)
    problem.freedom()
    condition = _drop_inseparable(problem)
    compliance = np.zeros(robot.n)
    for _ in range(_LINEARISATIONS):
        prediction, slope = problem.linearised(compliance)
        aims = data.value - prediction + slope @ compliance
        compliance = problem.placed @ _robust_solution(problem, slope, aims)[0]
    return _finished(problem, compliance, condition, encoder_std, load)


def _finished(
    problem: _Problem, compliance: Array, condition: float, encoder_std: float,
    load: Load | None,
) -> ComplianceFit:
    """Return the fit with all that the model of the robust fit leaves out."""
    data, seen, size, placed = problem.data, problem.seen, len(problem.seen), problem.placed
    scale = placed @ np.maximum(compliance[seen], _LEAST)
    angles = problem.jacobians @ problem.jacobians.transpose(0, 2, 1)
    axes = np.eye(0 if load is None or load.centred else 3, 3)
    # Coefficients of drift, and of the load's centre where it is to be estimated.
    aside, of_drift = np.zeros(data.drift.shape[2] + len(axes)), data.drift.shape[2]

    def carrying(centre: Array) -> Robot:
        return problem.loaded if load is None else load.moved(centre).on(problem.robot)

    # Torques by the centre are products of unknowns, until it is near its estimate.
    for number in range(_PASSES + _MORE * len(axes)):
        at, centre = aside[of_drift:], aside[of_drift:] @ axes
        problem.loaded = carrying(centre)
        prediction, slope = problem.linearised(compliance)
        effects = {'drift': data.drift, **({'load': np.stack([
            problem.linearised(compliance, carrying(centre + axis))[0] - prediction
            for axis in axes], axis=2)} if len(axes) else {})}
        known = np.concatenate(list(effects.values()), axis=2)
        aims = data.value - prediction + slope @ compliance
        aims += known[:, :, of_drift:] @ at
        problem.kept = kept = _robust_solution(problem, slope, aims - known @ aside)[1]
        # What one standard deviation of load and target displaces, shape (k, d, r) [m].
        doubts = np.stack([
            *(problem.linearised(compliance, other.moved(centre).on(problem.robot))[0] - prediction
              for other in (load.others() if load else ())),
            *(problem.linearised(compliance, target=other)[0] - prediction
              for other in problem.displaced_targets(compliance))], axis=2)
        across, more = _effects(problem, scale, 'give' if encoder_std > 0.0 else 'angles')
        effects |= more
        fit = integrate(
            slope[kept][:, :, seen], aims[kept], problem.covariance[kept],
            {'noise': data.covariance[kept], 'angles': angles[kept]},
            {name: columns[kept] for name, columns in effects.items()},
            {'give': np.sqrt(2.0) * encoder_std}, doubts[kept])
        free, variance = fit.mean[:size], np.diag(fit.covariance)[:size]
        aside = fit.mean[size:size + len(aside)]
        root = np.linalg.cholesky(np.linalg.inv(fit.covariance[:size, :size])).T
        compliance = placed @ scipy.optimize.nnls(root, root @ free)[0]
        scale = placed @ np.sqrt(free**2 + variance)
        # Differences of the encoders are real motion, and encoder error as large as the scatter
        # of the angles by the residuals; the angles are shrunk to the real share.
        moved = float(np.mean(np.square(data.loaded - data.unloaded)))
        problem.encoder_share = max(0.0, 1.0 - fit.size['angles']**2 / moved) if moved else 1.0
        std = np.sqrt(np.diag(fit.covariance)[size + of_drift:size + len(aside)])
        if number + 1 >= _PASSES and (np.abs(aside[of_drift:] - at) < _NEAR * std).all():
            break
    # What the tracker has drifted, or was moved by, is no sag.
    correction = placed @ _robust_solution(problem, slope, aims - known @ aside)[0]
    n = problem.robot.n
    bearings = len(fit.mean) - effects['bending'].shape[2]
    links = bearings + 5 * n
    # What bearings or links cause is as uncertain as the spread of so few of them: Satterthwaite,
    # Biometrics Bull. 2 (1946) 110, doi 10.2307/3002019.
    freedom = n * variance**2 / np.maximum(1e-300, sum(
        _caused(fit.covariance, size, rows)**2
        for rows in (slice(bearings, links), slice(links, None))))
    by_bending = placed @ (_caused(fit.covariance, size, slice(bearings, None)) / variance)
    width = placed @ (scipy.stats.norm.ppf(_UPPER) / scipy.stats.t.ppf(_UPPER, freedom))
    freedoms = np.full(n, np.inf)
    freedoms[seen] = freedom
    own, both = placed @ fit.covariance[:size], scipy.linalg.block_diag(across, across)
    bends = np.r_[bearings:bearings + n, links:links + n]
    plain = problem.whitened(aims - slope @ compliance)[kept]
    return ComplianceFit(
        compliance, own[:, :size] @ placed.T * np.outer(width, width), problem.unobservable,
        {joint: float(free[i]) for i, joint in enumerate(seen) if free[i] < 0.0}, kept, fit.size,
        aside[:of_drift], float((plain**2).sum()) / problem.freedom(), condition, correction,
        both @ fit.mean[bends],
        np.sqrt(np.diag(both @ fit.covariance[np.ix_(bends, bends)] @ both.T)),
        own[:, bends] @ both.T, by_bending, freedoms, tuple(seen), problem.encoder_share,
        aside[of_drift:] @ axes)


def _caused(covariance: Array, count: int, rows: slice) -> Array:
    """Return the part of the compliances' variances that effects cause, shape (p,).

    Args:
        covariance: Covariance of compliances and effects, shape (p + q, p + q).
        count: Number p of compliances.
        rows: Rows of these effects.

    """
    scale = np.sqrt(np.diag(covariance)[rows])
    together = covariance[:count, rows] / scale
    return np.asarray(np.sum(together * np.linalg.lstsq(
        covariance[rows, rows] / np.outer(scale, scale), together.T, rcond=1e-9)[0].T, axis=1))


def _effects(problem: _Problem, scale: Array, give: str) -> tuple[Array, dict[str, Array]]:
    """Return what the compliances alone leave out, as columns of shape (k, d, q) each.

    Within the dead band of a position loop, or a step of the encoder, each motor gives way in the
    direction of the load's torque, which acts like compliance. The angle is the same in all
    postures but for its sign, and as large as the scatter of the angles unless it is known.
    Backlash moves a joint only where the load turns the sign of its torque.

    Bearings bend across their joints by a multiple of the compliance, on average by as much as
    the bearings differ in it; links likewise.

    Args:
        problem: The displacements.
        scale: Size of each joint's compliance, 0 where it is not known, shape (n,) [rad/(N·m)].
        give: Name of the size of that angle.

    Returns:
        The compliances by the first n coefficients of bearings, and of links, shape (n, n)
        [rad/(N·m)], and the columns by name, those of the bending, bearings first, last.

    """
    robot = problem.robot
    known = np.flatnonzero(scale)
    nearest = known[np.abs(np.arange(robot.n)[:, None] - known).argmin(axis=1)]
    # Between a bending in proportion to each joint's compliance, and one alike in all joints.
    sizes = np.sqrt(scale * np.exp(np.log(scale[known]).mean()))[nearest][:, None]
    across = sizes * np.linalg.cholesky(np.ones((robot.n, robot.n)) + np.eye(robot.n))
    return across, {
        give: problem.jacobians * np.sign(problem.torque)[:, None],
        'backlash': problem.jacobians * problem.flank[:, None],
        'bending': np.concatenate([
            part for kind in (problem.bearings, problem.links) for part in (
                kind[..., 0] @ across,
                (0.5 * sizes * kind[..., 1:]).reshape(problem.count, problem.rows, -1))],
            axis=2)}
