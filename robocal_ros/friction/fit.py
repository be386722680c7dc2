# SPDX-License-Identifier: Apache-2.0
"""Friction law of one joint, fitted to torque against speed and tested on left-out speeds.

Both directions are fitted separately, on |v| and |F|, by f(v) = Fc + D exp(−(v/vs)²) + B v with
Fs = Fc + D. For a given vs it is linear in the rest, so vs is searched on a grid with
non-negative least squares inside (variable projection; Golub, Pereyra, Inverse Problems 19
(2003) R1, doi 10.1088/0266-5611/19/2/201) and the best point is refined by bounded nonlinear
least squares. Which of the nested models holds is chosen by information criterion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.friction.model import MODELS, evaluate, jacobian, parameter_names
from robocal_ros.friction.parameters import FrictionParameters
from robocal_ros.friction.reversals import Presliding
from robocal_ros.friction.runs import (
    GravityComparison,
    SpeedPoint,
    compare_gravity,
    ripple_of,
    without_ripple,
)
from robocal_ros.results.result import rms
from robocal_ros.robot.friction_law import DIRECTIONS, SteadyFriction

GRAVITY_ERROR = 0.2
"""Largest gravity-like torque missing from the model, as a share of the joint's friction."""
MIN_POINTS = 3
"""Fewest usable runs in each direction that leave a residual for the simplest laws."""

_GRID = 48
_MAX_RELATIVE_STD = 0.5
# Runs whose speeds differ by less than this share are repetitions.
_SAME = 0.02
_HELD_OUT_EVERY = 4

Side = tuple[Array, Array, Array]
"""|v| [rad/s], |F| [N·m] and its standard deviation [N·m] of one direction, each shape (k,)."""


@dataclass(frozen=True)
class DirectionFit:
    """Fitted law of one direction.

    Attributes:
        model: Name of the model.
        value: Parameters in the order of ``parameter_names(model)``, shape (p,).
        covariance: Their covariance, shape (p, p).
        chi_square: Weighted squared residual.
        residual: Measured minus fitted |F|, shape (k,) [N·m].

    """

    model: str
    value: Array
    covariance: Array
    chi_square: float
    residual: Array


def fit_direction(speed: Array, torque: Array, std: Array, model: str) -> DirectionFit:
    """Fit one direction.

    Args:
        speed: |v|, shape (k,) [rad/s].
        torque: |F| (negative where noise or a wrong gravity model makes it so), shape (k,).
        std: Standard deviations of ``torque``, shape (k,) [N·m].
        model: One of ``MODELS``.

    Raises:
        DataError: If there are not more points than parameters.

    """
    count = len(parameter_names(model))
    if len(speed) <= count:
        raise DataError(
            f"Model '{model}' has {count} parameters in each direction, so it needs more than "
            f'{count} usable runs; got {len(speed)}. Add speeds.')
    value = _linear_start(speed, torque, std, model)
    if model == 'stribeck':
        value = _refined(speed, torque, std, value)
    residual = torque - evaluate(model, value, speed)
    weighted = jacobian(model, value, speed) / std[:, None]
    information = weighted.T @ weighted
    scale = np.sqrt(np.maximum(np.diag(information), 1e-300))
    covariance = np.linalg.pinv(information / np.outer(scale, scale)) / np.outer(scale, scale)
    return DirectionFit(model, value, covariance, float(((residual / std) ** 2).sum()), residual)


def _linear_start(speed: Array, torque: Array, std: Array, model: str) -> Array:
    """Fit by non-negative least squares over a grid of Stribeck velocities."""
    def solve(columns: list[Array]) -> tuple[Array, float]:
        return scipy.optimize.nnls(np.column_stack(columns) / std[:, None], torque / std)

    ones = np.ones_like(speed)
    if model == 'coulomb':
        return solve([ones])[0]
    if model == 'coulomb_viscous':
        return solve([ones, speed])[0]
    best, found = np.inf, np.zeros(4)
    for velocity in np.geomspace(0.5 * speed.min(), speed.max(), _GRID):
        (coulomb, excess, viscous), norm = solve(
            [ones, np.exp(-((speed / velocity) ** 2)), speed])
        if norm < best:
            best, found = norm, np.array([coulomb, coulomb + excess, velocity, viscous])
    return found


def _refined(speed: Array, torque: Array, std: Array, start: Array) -> Array:
    """Refine (Fc, Fs, vs, B) with Fs ≥ Fc ≥ 0, vs > 0, B ≥ 0, in (Fc, D, vs, B)."""
    def expanded(x: Array) -> Array:
        return np.array([x[0], x[0] + x[1], x[2], x[3]])

    def residual(x: Array) -> Array:
        return (evaluate('stribeck', expanded(x), speed) - torque) / std

    def slopes(x: Array) -> Array:
        full = jacobian('stribeck', expanded(x), speed)
        full[:, 0] += full[:, 1]
        return full / std[:, None]

    low = np.array([0.0, 0.0, 0.3 * speed.min(), 0.0])
    high = np.array([np.inf, np.inf, 2.0 * speed.max(), np.inf])
    first = np.array([start[0], start[1] - start[0], start[2], start[3]])
    inside = np.clip(first, low + 1e-9 * np.maximum(1.0, np.abs(low)), high)
    scale = np.array([max(start[1], 1e-3), max(start[1], 1e-3), start[2],
                      max(start[1], 1e-3) / speed.max()])
    solution = scipy.optimize.least_squares(
        residual, inside, jac=slopes, bounds=(low, high), x_scale=scale)
    better = 2.0 * solution.cost < (residual(inside) ** 2).sum()
    return expanded(solution.x if better else inside)


def distinct(speed: Array) -> Array:
    """Return one speed for each group of repeated speeds, which differ by noise, ascending.

    Args:
        speed: |v|, shape (k,) [rad/s].

    """
    ordered = np.sort(speed)
    if not len(ordered):
        return ordered
    return ordered[np.concatenate(([True], np.diff(ordered) > _SAME * ordered[1:]))]


def stribeck_unidentified(fit: DirectionFit, speed: Array) -> str:
    """Return the reason why the Stribeck part is not identified, empty if it is identified."""
    if fit.model != 'stribeck':
        return 'a simpler model was chosen'
    coulomb, static, velocity, _ = fit.value
    std = np.sqrt(np.maximum(np.diag(fit.covariance), 0.0))
    excess_std = float(np.sqrt(max(
        fit.covariance[0, 0] + fit.covariance[1, 1] - 2.0 * fit.covariance[0, 1], 0.0)))
    different = distinct(speed)
    # A tenth of the rise is left at 1.5 vs, so faster runs carry no information about it.
    slow, informative = (int((different < factor * velocity).sum()) for factor in (1.0, 1.5))
    if slow < 1 or informative < 2:
        return (f'{slow} of the speeds lie below the Stribeck velocity ({velocity:.4f} rad/s) and '
                f'{informative} below 1.5 times that (at least 1 and 2 needed); add lower speeds')
    if static - coulomb < 2.0 * excess_std:
        return 'the rise of friction towards low speed is within twice its standard deviation'
    if std[2] > _MAX_RELATIVE_STD * velocity:
        return (f'the Stribeck velocity is uncertain by {100 * std[2] / velocity:.0f} % '
                f'(limit {100 * _MAX_RELATIVE_STD:.0f} %)')
    return ''


def information_criterion(fits: Sequence[DirectionFit]) -> float:
    """Return the Bayesian information criterion of both directions together.

    n ln(χ²/n) + p ln n, for noise of unknown scale (Schwarz, Ann. Statist. 6 (1978) 461, doi
    10.1214/aos/1176344136).
    """
    count = sum(len(fit.residual) for fit in fits)
    chi_square = max(sum(fit.chi_square for fit in fits), 1e-12)
    parameters = sum(len(fit.value) for fit in fits)
    return count * float(np.log(chi_square / count)) + parameters * float(np.log(count))


def law(forward: DirectionFit, backward: DirectionFit) -> SteadyFriction:
    """Return the law of both directions, with the RMS of their residuals as deviation."""
    sides = [dict(zip(parameter_names(fit.model), fit.value, strict=True))
             for fit in (forward, backward)]
    return SteadyFriction(
        coulomb=np.array([side['coulomb'] for side in sides]),
        static=np.array([side.get('static', side['coulomb']) for side in sides]),
        stribeck_velocity=np.array([side.get('stribeck_velocity', 1.0) for side in sides]),
        viscous=np.array([side.get('viscous', 0.0) for side in sides]),
        std=rms(np.concatenate((forward.residual, backward.residual))),
    )


def fit_degree(torque: Array, fitted: Array) -> float:
    """Return 100 · sqrt(Σ (f − f̂)² / Σ f²) [%]; smaller is better."""
    total = float((torque**2).sum())
    return 100.0 * float(np.sqrt(((torque - fitted) ** 2).sum() / total)) if total else np.inf


@dataclass(frozen=True)
class JointFriction:
    """Friction of one joint, with the evidence for and against it.

    Attributes:
        joint: Name of the joint.
        points: All its runs including rejected ones, torque ripple removed.
        failures: Reasons why its runs or its fit are not accepted; empty if they are.
        fits: Forward and backward fit; empty if nothing could be fitted.
        stribeck_unidentified: Reason why the Stribeck part is not identified; empty if it is.
        offset_std: Standard deviation of the gravity torque, common to both directions [N·m].
        fit_degree: 100 · sqrt(Σ(f − f̂)²/Σf²) over the points [%].
        held_out_degree: The same for left-out speeds; None with too few speeds.
        gravity: Model gravity compared with pairs of runs; None without a pair.
        gravity_failure: Reason why the model's gravity is wrong; empty if it is not.
        presliding: Bristle parameters; None if not requested or without reversals.

    """

    joint: str
    points: tuple[SpeedPoint, ...]
    failures: tuple[str, ...]
    fits: tuple[DirectionFit, ...] = ()
    stribeck_unidentified: str = ''
    offset_std: float = 0.0
    fit_degree: float = np.inf
    held_out_degree: float | None = None
    gravity: GravityComparison | None = None
    gravity_failure: str = ''
    presliding: Presliding | None = None

    @property
    def passed(self) -> bool:
        """Whether the joint is accepted."""
        return not self.objections

    @property
    def objections(self) -> tuple[str, ...]:
        """All reasons why the joint is not accepted, as sentences."""
        return (*self.failures, *filter(None, (self.gravity_failure,)))

    @property
    def usable(self) -> list[SpeedPoint]:
        """Runs that are not rejected, sorted by speed."""
        return sorted((p for p in self.points if not p.rejected), key=lambda p: p.speed)

    def law(self) -> SteadyFriction:
        """Return the fitted law.

        Raises:
            DataError: If nothing was fitted.

        """
        if not self.fits:
            raise DataError(f"Friction of joint '{self.joint}' was not fitted: "
                            f'{" ".join(self.objections)}')
        return law(*self.fits)


def fit_joint(
    joint: str, points: Sequence[SpeedPoint], values: FrictionParameters
) -> JointFriction:
    """Fit one joint and test the fit.

    Args:
        joint: Name of the joint.
        points: Its runs.
        values: The node's parameters.

    """
    points = without_ripple(points, ripple_of(points))
    sides = [_side(points, 1), _side(points, -1)]
    gravity = compare_gravity(points)
    offset = rms(np.array([p.gravity_std for p in points]))
    few = [f'{len(side[0])} usable runs {direction} (at least {MIN_POINTS} needed)'
           for direction, side in zip(DIRECTIONS, sides, strict=True)
           if len(side[0]) < MIN_POINTS]
    rejected = [p for p in points if p.rejected]
    rejections = '' if not rejected else (
        f' {len(rejected)} of {len(points)} runs were rejected, first at '
        f'{rejected[0].speed:+.4g} rad/s: {rejected[0].rejected}.')
    if few:
        failure = f"Joint '{joint}': {' and '.join(few)}.{rejections}"
        return JointFriction(joint, points, (failure,), offset_std=offset, gravity=gravity)
    fits, unidentified = _choose(sides, values.steady_model)
    extra = _extra_std(sides, fits)
    if extra > 0.0:
        sides = [(speed, size, np.hypot(std, extra)) for speed, size, std in sides]
        fits, unidentified = _choose(sides, values.steady_model)
    torque = np.concatenate([side[1] for side in sides])
    fitted = torque - np.concatenate([fit.residual for fit in fits])
    degree = fit_degree(torque, fitted)
    held_out = _held_out_degree(sides, fits[0].model)
    limit, failures = values.fit_threshold, []
    if degree > limit:
        failures.append(f"Joint '{joint}': fit degree {degree:.1f} % (limit {limit:.1f} %)."
                        f'{rejections}')
    if held_out is not None and held_out > limit:
        failures.append(f"Joint '{joint}': speeds left out of the fit are predicted with a fit "
                        f'degree of {held_out:.1f} % (limit {limit:.1f} %).')
    wrong = (gravity is not None and gravity.significant
             and gravity.error > GRAVITY_ERROR * rms(fitted))
    return JointFriction(
        joint, points, tuple(failures), fits, unidentified, offset, degree, held_out, gravity,
        '' if gravity is None or not wrong else
        f"Joint '{joint}': the runs forward and back show {gravity.error:.2f} N·m of gravity "
        'that the model lacks, so its payload is wrong. Identify the payload first, or remove '
        'the tool.')


def _side(points: Sequence[SpeedPoint], sign: int) -> Side:
    """Return the usable runs of one direction, sorted by speed."""
    chosen = sorted((p for p in points if p.speed * sign > 0.0 and not p.rejected),
                    key=lambda p: abs(p.speed))
    return (np.array([abs(p.speed) for p in chosen]), np.array([sign * p.torque for p in chosen]),
            np.array([p.std for p in chosen]))


def _choose(sides: Sequence[Side], wanted: str) -> tuple[tuple[DirectionFit, ...], str]:
    """Return the fits of the chosen model, and why its Stribeck part is not identified."""
    candidates = MODELS if wanted == 'auto' else (wanted,)
    fitted, refusal = {}, ''
    for model in candidates:
        try:
            fitted[model] = tuple(fit_direction(*side, model) for side in sides)
        except DataError as error:
            refusal = str(error)
    if not fitted:
        raise DataError(refusal)
    unidentified = {
        model: '; '.join(
            f'{direction}: {reason}'
            for direction, fit, side in zip(DIRECTIONS, fits, sides, strict=True)
            if (reason := stribeck_unidentified(fit, side[0])))
        for model, fits in fitted.items()
    }
    if wanted != 'auto':
        return fitted[wanted], unidentified[wanted] if wanted == 'stribeck' else 'not requested'
    identifiable = [model for model in fitted
                    if model != 'stribeck' or not unidentified['stribeck']]
    best = min(identifiable or fitted, key=lambda model: information_criterion(fitted[model]))
    if best == 'stribeck':
        return fitted[best], unidentified[best]
    return fitted[best], (unidentified.get('stribeck') or refusal
                          or 'a simpler model has the lower information criterion')


def _extra_std(sides: Sequence[Side], fits: Sequence[DirectionFit]) -> float:
    """Return the standard deviation between runs beyond the noise within runs [N·m].

    Zero while the residuals are consistent with the noise; otherwise the value that brings the
    reduced chi-square to one (random effects; Paule, Mandel, J. Res. NBS 87 (1982) 377).
    """
    residual = np.concatenate([fit.residual for fit in fits])
    std = np.concatenate([side[2] for side in sides])
    freedom = max(1, len(residual) - sum(len(fit.value) for fit in fits))

    def excess(extra: float) -> float:
        return float((residual**2 / (std**2 + extra**2)).sum()) / freedom - 1.0

    if excess(0.0) <= 3.0 * np.sqrt(2.0 / freedom):
        return 0.0
    return float(scipy.optimize.brentq(excess, 0.0, 10.0 * rms(residual) + 1e-9))


def _held_out_degree(sides: Sequence[Side], model: str) -> float | None:
    """Return the fit degree of every fourth speed, predicted from the others; None if too few."""
    torque, predicted = [], []
    for side in sides:
        count = len(side[0])
        out = np.zeros(count, dtype=bool)
        # Interior speeds only, so that nothing is extrapolated.
        out[2:count - 1:_HELD_OUT_EVERY] = True
        if not out.any():
            return None
        try:
            speed, size, std = (column[~out] for column in side)
            fit = fit_direction(speed, size, std, model)
        except DataError:
            return None
        torque.append(side[1][out])
        predicted.append(evaluate(model, fit.value, side[0][out]))
    return fit_degree(np.concatenate(torque), np.concatenate(predicted))
