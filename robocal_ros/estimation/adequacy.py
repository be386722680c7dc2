# SPDX-License-Identifier: Apache-2.0
"""Model adequacy: lack of fit against pure error, its consequence, and its likely cause.

A motion that repeats gives the noise without any model: the scatter of residuals at the same
place of the motion, the pure error. What all repeats have in common is lack of fit (Draper,
Smith, Applied Regression Analysis, 3rd ed., sec. 2.1). It does not average over repeats, and it
has content where the regressors have it, so it enters the covariance by its spectrum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from robocal_ros.arrays import Array, Flags

# Spectral lines on either side over which the power of residuals is averaged.
_LINES = 2
# Least share of a line's power that is taken to be left in the residuals.
_LEAST_LEFT = 0.15
# Least share of the unexplained sum of squares that a cause must explain to be named.
_LEAST_SHARE = 0.5


@dataclass(frozen=True)
class LackOfFit:
    """Residuals of a channel, divided by their origin.

    Attributes:
        pure_error: RMS of what differs between repeats; None without repeats.
        unexplained: RMS of what all repeats have in common; the RMS of all residuals without
            repeats.

    """

    pure_error: float | None
    unexplained: float


def lack_of_fit(residual: Array, used: Flags, repeats: int, fitted: float) -> LackOfFit:
    """Return the lack of fit of one channel.

    With n residuals at each of K places of the motion, of mean m, the pure error is
    σ² = Σ (r - m)² / Σ (n - 1), and the mean square Σ n m² / (K - p) is expected to be
    σ² + n λ², with the unexplained RMS λ.

    Args:
        residual: Shape (k,), k a multiple of ``repeats``.
        used: Residuals that count, shape (k,).
        repeats: Number of repeats of the motion.
        fitted: Number of parameters p that the channel determines.

    """
    count = int(used.sum())
    if repeats < 2 or not count:
        freedom = max(count - fitted, 1.0)
        return LackOfFit(None, float(np.sqrt(np.sum(residual[used]**2) / freedom)))
    every = np.where(used, residual, 0.0).reshape(repeats, -1)
    counts = used.reshape(repeats, -1).sum(axis=0)
    mean = every.sum(axis=0) / np.maximum(counts, 1)
    differing = used.reshape(repeats, -1) * (every - mean)
    pure = float(np.sum(differing**2)) / max(float(np.sum(np.maximum(counts - 1, 0))), 1.0)
    places = int(np.sum(counts > 0))
    common = float(np.sum(counts * mean**2)) / max(places - fitted, 1.0)
    return LackOfFit(float(np.sqrt(pure)),
                     float(np.sqrt(max(common - pure, 0.0) * places / count)))


def structured_covariance(
    columns: Array, residual: Array, noise: Array, inverse: Array, prior: Array, repeats: int
) -> Array:
    """Return the covariance of an estimate whose residuals are not white.

    V = H⁻¹ (P + Σ_c σ_c⁻⁴ X_cᵀ Σ_c X_c) H⁻¹ with H = P + Σ_c σ_c⁻² X_cᵀ X_c (White, Econometrica
    50 (1982) 1, doi 10.2307/1912526). X_cᵀ Σ_c X_c = Σ_f S_c(f) x_c(f)* x_c(f) / k, with the
    discrete Fourier transform x_c of the columns, and the power S_c of the residuals averaged
    over neighbouring lines (Andrews, Heteroskedasticity and Autocorrelation Consistent Covariance
    Matrix Estimation, Econometrica 59 (1991) 817, doi 10.2307/2938229). Lines at multiples of the
    repeated motion's frequency hold what all repeats have in common and are averaged by
    themselves. The fit removes the share h(f) = x_c(f)* H⁻¹ x_c(f) σ_c⁻² / k of a line's power,
    for which S_c is corrected (Bell, McCaffrey, Survey Methodology 28 (2002) 169).

    Args:
        columns: Regressor X of each channel, shape (c, k, p).
        residual: Shape (c, k).
        noise: Standard deviation σ of the rows that weighted them, equal within a channel,
            infinite for unused rows, shape (c, k).
        inverse: H⁻¹, shape (p, p).
        prior: Information P of the priors, shape (p, p).
        repeats: Number of repeats of the motion.

    """
    middle = prior.astype(float)
    for rows, left, std in zip(columns, residual, noise, strict=True):
        used = np.isfinite(std)
        if not used.any():
            continue
        weight, count, length = float(std[used].min())**-2, int(used.sum()), len(used)
        lines = np.fft.rfft(np.where(used[:, None], rows, 0.0), axis=0)
        power = np.abs(np.fft.rfft(np.where(used, left, 0.0)))**2
        taken = weight * np.sum((lines.conj() @ inverse * lines).real, axis=1)
        spectrum = _averaged(power, count - taken, count, repeats)
        both = np.full(len(power), 2.0)
        both[0] = 1.0
        if length % 2 == 0:
            both[-1] = 1.0
        middle += weight**2 / length * np.asarray(
            (lines.conj() * (spectrum * both)[:, None]).T @ lines).real
    found = inverse @ middle @ inverse
    return np.asarray(0.5 * (found + found.T))


def _averaged(power: Array, left: Array, count: int, repeats: int) -> Array:
    """Return the power of lines per sample, averaged over neighbours of the same kind."""
    spectrum = np.empty(len(power))
    number = np.arange(len(power))
    # Offsets and biases are always fitted: the mean holds no information about its neighbours.
    power[0] = 0.0
    left = np.where(number > 0, np.maximum(left, _LEAST_LEFT * count), 0.0)
    for group, reach in ((number % repeats == 0, _LINES),
                         (number % repeats != 0, _LINES * max(repeats - 1, 1))):
        if not group.any():
            continue
        kernel = np.ones(min(2 * reach + 1, 2 * (int(group.sum()) // 2) + 1))
        total = np.convolve(power[group], kernel, mode='full')
        free = np.convolve(left[group], kernel, mode='full')
        at = slice(len(kernel) // 2, len(kernel) // 2 + int(group.sum()))
        spectrum[group] = total[at] / free[at]
    return spectrum


def likely_cause(
    residual: Array, fitted: Array, causes: Mapping[str, Array]
) -> tuple[str, float] | None:
    """Return the cause whose columns explain residuals best, and the share that it explains.

    The one with the least Bayesian information criterion is chosen (Schwarz, Ann. Stat. 6 (1978)
    461, doi 10.1214/aos/1176344136); None if it explains less than half of the sum of squares.

    Args:
        residual: Of the used rows, shape (k,).
        fitted: Columns that were fitted, shape (k, p).
        causes: Columns of each cause, shape (k, q), by its name.

    """
    whole = float(residual @ residual)
    if whole <= 0.0 or not causes:
        return None
    basis = np.linalg.qr(fitted / np.maximum(np.linalg.norm(fitted, axis=0), 1e-300))[0]
    count, ranked = len(residual), []
    for name, columns in causes.items():
        free = columns - basis @ (basis.T @ columns)
        free /= np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
        left = residual - free @ np.linalg.lstsq(free, residual, rcond=1e-6)[0]
        rest = max(float(left @ left), 1e-12 * whole)
        ranked.append((count * np.log(rest) + columns.shape[1] * np.log(count), name, rest))
    _, name, rest = min(ranked)
    share = 1.0 - rest / whole
    return (name, share) if share >= _LEAST_SHARE else None
