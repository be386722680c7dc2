# SPDX-License-Identifier: Apache-2.0
"""Weighted linear least squares with covariance, rank and condition number, and delays.

Sources: Björck, Numerical Methods for Least Squares Problems (SIAM 1996), ch. 1-2; Ljung,
System Identification (2nd ed.), ch. 11 for the estimate after each sample; Geyer, Practical
Markov Chain Monte Carlo, Stat. Sci. 7 (1992) 473, doi 10.1214/ss/1177011137, for
autocorrelation times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from robocal_ros.arrays import Array, Flags
from robocal_ros.errors import DataError, ExcitationError

RANK_TOLERANCE = 1e-9
_UNOBSERVABLE_SHARE = 0.3
# Range of the search for delays, and largest standard deviation of an identified one [s].
_DELAYS, _MAX_STD = (-0.03, 0.12), 0.002
# Most steps, and the share of the standard deviation below which a step is the last one.
_MOST_STEPS, _CONVERGED = 20, 0.02
_TINY = 1e-12
# Share of the largest column below which one is rounding of differences, such as those of tilts.
_ROUNDING = 1e-10


@dataclass(frozen=True)
class LinearFit:
    """A solved linear least-squares problem.

    Attributes:
        value: Estimates, shape (p,).
        covariance: Their covariance, shape (p, p).
        residual: Measured minus fitted, unweighted, shape (k,).
        reduced_chi_square: Weighted squared residual per degree of freedom; 1 where the
            given standard deviations describe the scatter.
        condition: Condition number of the weighted regressor with columns scaled to length 1.

    """

    value: Array
    covariance: Array
    residual: Array
    reduced_chi_square: float
    condition: float

    def std(self) -> Array:
        """Return the standard deviations, shape (p,)."""
        return np.sqrt(np.diag(self.covariance))


def solve(
    regressor: Array, measured: Array, std: Array | float, names: Sequence[str], *,
    max_condition: float = 1e6, hint: str = '',
) -> LinearFit:
    """Solve ``regressor @ value = measured`` by weighted least squares.

    The covariance assumes the given standard deviations; multiply it by
    ``reduced_chi_square`` where only their ratios are known.

    Args:
        regressor: Shape (k, p).
        measured: Shape (k,).
        std: Standard deviation of each measurement, shape (k,) or one for all.
        names: Names of the p parameters.
        max_condition: Largest condition number, columns scaled, that counts as solvable.
        hint: What to do about an unobservable direction; appended to the error message.

    Raises:
        DataError: If there are not more measurements than parameters, or one is not finite.
        ExcitationError: If a direction of the parameter space is unobservable.

    """
    rows, columns = regressor.shape
    if rows <= columns:
        raise DataError(
            f'{rows} measurements are too few for {columns} parameters; expected at least '
            f'{columns + 1}. {hint}'.strip())
    sigma = np.broadcast_to(np.asarray(std, dtype=float), (rows,))
    if not (np.isfinite(regressor).all() and np.isfinite(measured).all()
            and np.isfinite(sigma).all()):
        raise DataError('A measurement, its model or its weight is not finite; leave it out.')
    if not (sigma > 0.0).all():
        raise DataError(f'A standard deviation of a measurement is {float(sigma.min())}; expected '
                        'a positive number.')
    weight = 1.0 / sigma
    weighted = regressor * weight[:, None]
    scale = np.linalg.norm(weighted, axis=0)
    safe = np.where(scale > 0.0, scale, 1.0)
    # SVD of the triangular factor: the same singular values at a fraction of the cost.
    triangle = np.linalg.qr(weighted / safe, mode='r')
    _, singular, vectors = np.linalg.svd(triangle)
    floor = max(RANK_TOLERANCE, 1.0 / max_condition) * max(float(singular[0]), 1e-300)
    rank = int((singular > floor).sum())
    condition = float(singular[0] / singular[-1]) if singular[-1] > 0.0 else float('inf')
    if rank < columns:
        # Parameters in directions with (nearly) no information.
        weight = np.sqrt((vectors[rank:]**2).sum(axis=0))
        unobservable = tuple(name for name, share in zip(names, weight, strict=True)
                             if share > _UNOBSERVABLE_SHARE)
        raise ExcitationError(
            f'Only {rank} of {columns} parameters are observable; unobservable: '
            f'{", ".join(unobservable)} (condition number {condition:.3g}, limit '
            f'{max_condition:.3g}). {hint}'.strip(),
            rank=rank, needed=columns, condition=condition, unobservable=unobservable)
    inverse_triangle = vectors.T / singular / safe[:, None]
    covariance = inverse_triangle @ inverse_triangle.T
    value = covariance @ (weighted.T @ (measured * weight))
    # One step of iterative refinement; the normal equations alone lose half the digits.
    value = value + covariance @ (weighted.T @ ((measured - regressor @ value) * weight))
    residual = measured - regressor @ value
    return LinearFit(
        value, covariance, residual,
        float(((residual * weight)**2).sum()) / (rows - columns), condition)


def autocorrelation_time(residual: Array) -> float:
    """Return the integrated autocorrelation time of residuals, 1 for white ones.

    It is the factor by which correlation inflates the variance of a mean: 1 + 2 Σ ρ(lag), summed
    while the autocorrelation exceeds its 3-sigma noise level, up to a quarter of the record.

    Args:
        residual: Residuals in the order of time, evenly spaced, shape (k,).

    """
    k = len(residual)
    if k < 16:
        return 1.0
    centred = residual - residual.mean()
    variance = float(centred @ centred)
    if variance == 0.0:
        return 1.0
    lags = slice(k - 1, k - 1 + k // 4)
    correlation = scipy.signal.correlate(centred, centred, method='fft')[lags] / variance
    level = 3.0 / np.sqrt(k)
    below = np.flatnonzero(correlation[1:] < level)
    stop = int(below[0]) + 1 if len(below) else len(correlation)
    return max(1.0, 1.0 + 2.0 * float(correlation[1:stop].sum()))


def scaled_inverse(matrix: Array) -> Array:
    """Return the inverse of a positive definite matrix whose rows differ much in scale."""
    scale = 1.0 / np.sqrt(np.diag(matrix))
    outer = np.outer(scale, scale)
    return np.asarray(outer * np.linalg.inv(matrix * outer))


@dataclass(frozen=True)
class Delay:
    """Delay of measured values relative to positions.

    Attributes:
        value: Best shift; 0 if it is not identified [s].
        std: Its standard deviation; infinite if no shift improves the fit [s].

    """

    value: float = 0.0
    std: float = np.inf

    @property
    def identified(self) -> bool:
        """True if the data determine the delay."""
        return self.std <= _MAX_STD


def find_delay(
    shifted: Callable[[float], Array], columns: Sequence[Array], known: Array, period: float,
    used: Flags | None = None,
) -> Delay:
    """Find the shift of measured values after which the fit leaves none of their derivative.

    The measured values are shifted, and the fit repeated, until the residuals no longer contain
    the time derivative of the fitted values (Gauss-Newton). A column of that derivative alone
    would be valid for short delays only, and its prior would bias longer ones towards zero. The
    residuals themselves are no measure of a shift: other noise falls into each block at each
    shift, and its chance minima, sharper than the true one, would be mistaken for delays.

    Args:
        shifted: Returns the measured values of all channels, shape (k, c), for a delay [s].
        columns: Regressor of each channel, shape (k, p) each.
        known: Known part of the values, shape (k, c).
        period: Time between values [s].
        used: Values to use, shape (k, c); all by default. Friction after a reversal lags behind
            speed and would bias the delay.

    Returns:
        The delay; not identified if the optimum is at an end of the range or too flat.
        Steps that do not settle count as its uncertainty.

    """
    every = np.ones(known.shape, dtype=bool) if used is None else used
    # Derivatives are differences of neighbours.
    inner = every.copy()
    inner[1:] &= every[:-1]
    inner[:-1] &= every[1:]
    channels = []
    for item, chosen in zip(columns, inner.T, strict=True):
        basis = orthonormal(item[chosen])
        rates = np.gradient(item, period, axis=0)[chosen]
        channels.append((item[chosen], basis, rates - basis @ (basis.T @ rates), chosen))
    value, std = 0.0, np.inf
    for _ in range(_MOST_STEPS):
        measured = shifted(value) - known
        information = gain = 0.0
        for (item, basis, rates, chosen), own in zip(channels, measured.T, strict=True):
            left = own[chosen] - basis @ (basis.T @ own[chosen])
            slope = rates @ np.linalg.lstsq(item, own[chosen], rcond=1e-8)[0]
            variance = (float(left @ left) + _TINY) * autocorrelation_time(left) / max(
                len(left) - basis.shape[1], 1)
            information += float(slope @ slope) / variance
            gain -= float(slope @ left) / variance
        if information <= 0.0:
            break
        std = float(information**-0.5)
        change = gain / information
        value = float(np.clip(value + change, *_DELAYS))
        if abs(change) <= _CONVERGED * std:
            break
    else:
        std = float(np.hypot(std, change))
    if std > _MAX_STD or value in _DELAYS:
        return Delay(0.0, max(std, 2.0 * _MAX_STD))
    return Delay(value, std)


def orthonormal(columns: Array) -> Array:
    """Return an orthonormal basis of the span of columns, shape (k, r).

    Columns that are zero but for rounding have no direction.
    """
    scale = np.linalg.norm(columns, axis=0)
    some = scale > _ROUNDING * scale.max(initial=0.0)
    return np.asarray(scipy.linalg.orth(columns[:, some] / scale[some], rcond=1e-8))
