# SPDX-License-Identifier: Apache-2.0
"""From points of torque against speed to a friction law: nested models, honest choice.

Both directions are fitted apart, on |v| and |F|, by f(v) = Fc + D exp(−(v/vs)²) + B v with
Fs = Fc + D. For a given vs it is linear in the rest, so vs is searched on a grid with
non-negative least squares inside (variable projection; Golub, Pereyra, Inverse Problems 19
(2003) R1, doi 10.1088/0266-5611/19/2/201) and the best point is refined by bounded nonlinear
least squares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.robot.friction_law import SteadyFriction

MODELS = ('coulomb', 'coulomb_viscous', 'stribeck')
"""From the simplest to the full eight parameters."""

_COLUMNS = {
    'coulomb': ('coulomb',),
    'coulomb_viscous': ('coulomb', 'viscous'),
    'stribeck': ('coulomb', 'excess', 'stribeck_velocity', 'viscous'),
}
_GRID = 48
_MAX_RELATIVE_STD = 0.5
# Runs whose speeds differ by less than this share are repetitions.
_SAME = 0.02


@dataclass(frozen=True)
class DirectionFit:
    """One direction's law.

    Attributes:
        model: Name of the model.
        value: Parameters as of ``parameter_names(model)``, shape (p,).
        covariance: Their covariance, shape (p, p).
        chi_square: Weighted squared residual.
        residual: Measured minus fitted |F|, shape (k,) [N·m].

    """

    model: str
    value: Array
    covariance: Array
    chi_square: float
    residual: Array


def parameter_names(model: str) -> tuple[str, ...]:
    """Return the names of a model's parameters, as they stand in results."""
    return tuple('static' if name == 'excess' else name for name in _COLUMNS[model])


def evaluate(model: str, value: Array, speed: Array) -> Array:
    """Return |F| of a direction's law.

    Args:
        model: Name of the model.
        value: Parameters as of ``parameter_names(model)``.
        speed: |v|, shape (k,) [rad/s].

    """
    named = dict(zip(parameter_names(model), value, strict=True))
    torque = np.full_like(speed, named['coulomb'])
    if 'static' in named:
        torque += (named['static'] - named['coulomb']) * np.exp(
            -((speed / named['stribeck_velocity']) ** 2))
    return np.asarray(torque + named.get('viscous', 0.0) * speed)


def jacobian(model: str, value: Array, speed: Array) -> Array:
    """Return the derivatives of ``evaluate`` by the parameters, shape (k, p)."""
    named = dict(zip(parameter_names(model), value, strict=True))
    columns = {'coulomb': np.ones_like(speed), 'viscous': speed}
    if 'static' in named:
        ratio = speed / named['stribeck_velocity']
        bell = np.exp(-(ratio**2))
        columns['coulomb'] = 1.0 - bell
        columns['static'] = bell
        columns['stribeck_velocity'] = (
            (named['static'] - named['coulomb']) * bell * 2.0 * ratio**2
            / named['stribeck_velocity'])
    return np.column_stack([columns[name] for name in parameter_names(model)])


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
            f"Model '{model}' has {count} parameters in each direction; {len(speed)} usable runs "
            'cannot tell them with a residual to judge by. Add speeds.')
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
    """Solve the linear part by non-negative least squares, vs by a grid."""
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
    """Return the different speeds among repeated ones, which differ by noise, ascending.

    Args:
        speed: |v|, shape (k,) [rad/s].

    """
    ordered = np.sort(speed)
    if not len(ordered):
        return ordered
    return ordered[np.concatenate(([True], np.diff(ordered) > _SAME * ordered[1:]))]


def stribeck_doubt(fit: DirectionFit, speed: Array) -> str:
    """Return why a Stribeck part can't be told from these points, or an empty string."""
    if fit.model != 'stribeck':
        return 'a simpler model was chosen'
    coulomb, static, velocity, _ = fit.value
    std = np.sqrt(np.maximum(np.diag(fit.covariance), 0.0))
    excess_std = float(np.sqrt(max(
        fit.covariance[0, 0] + fit.covariance[1, 1] - 2.0 * fit.covariance[0, 1], 0.0)))
    different = distinct(speed)
    # At 1.5 vs a tenth of the rise is left: runs beyond tell nothing about it.
    slow, telling = int((different < velocity).sum()), int((different < 1.5 * velocity).sum())
    if slow < 1 or telling < 2:
        return (f'{slow} of the speeds lie below the Stribeck velocity ({velocity:.4f} rad/s) and '
                f'{telling} below 1.5 times that (1 and 2 needed): no low speeds, no Stribeck '
                'numbers')
    if static - coulomb < 2.0 * excess_std:
        return 'the rise of friction towards low speed is within its own uncertainty'
    if std[2] > _MAX_RELATIVE_STD * velocity:
        return (f'the Stribeck velocity is uncertain by {100 * std[2] / velocity:.0f} % '
                f'(limit {100 * _MAX_RELATIVE_STD:.0f} %)')
    return ''


def information_criterion(fits: Sequence[DirectionFit]) -> float:
    """Return the Bayesian information criterion of both directions together.

    With the scatter's overall size unknown: n ln(χ²/n) + p ln n (Schwarz, Ann. Statist. 6
    (1978) 461, doi 10.1214/aos/1176344136).
    """
    count = sum(len(fit.residual) for fit in fits)
    chi_square = max(sum(fit.chi_square for fit in fits), 1e-12)
    parameters = sum(len(fit.value) for fit in fits)
    return count * float(np.log(chi_square / count)) + parameters * float(np.log(count))


def law(forward: DirectionFit, backward: DirectionFit, std: float = 0.0) -> SteadyFriction:
    """Join two directions into one law."""
    sides = [dict(zip(parameter_names(fit.model), fit.value, strict=True))
             for fit in (forward, backward)]
    return SteadyFriction(
        coulomb=np.array([side['coulomb'] for side in sides]),
        static=np.array([side.get('static', side['coulomb']) for side in sides]),
        stribeck_velocity=np.array([side.get('stribeck_velocity', 1.0) for side in sides]),
        viscous=np.array([side.get('viscous', 0.0) for side in sides]),
        std=std,
    )
