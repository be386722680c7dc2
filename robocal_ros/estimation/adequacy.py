# SPDX-License-Identifier: Apache-2.0
"""Model adequacy: lack of fit against pure error, its consequence, and its likely cause.

A motion that repeats gives the noise without any model: the scatter of residuals at the same
place of the motion, the pure error. What all repeats have in common is lack of fit (Draper,
Smith, Applied Regression Analysis, 3rd ed., sec. 2.1). It does not average over repeats, and it
has content where the regressors have it, so it enters the covariance by its spectrum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from robocal_ros.arrays import Array, Flags, covariance_factor

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
    every = np.where(used, residual, 0.0).reshape(repeats, -1)
    counts = used.reshape(repeats, -1).sum(axis=0)
    mean = every.sum(axis=0) / np.maximum(counts, 1)
    differing = used.reshape(repeats, -1) * (every - mean)
    pure = float(np.sum(differing**2)) / max(float(np.sum(np.maximum(counts - 1, 0))), 1.0)
    places = int(np.sum(counts > 0))
    common = float(np.sum(counts * mean**2)) / max(places - fitted, 1.0)
    count = int(counts.sum())
    return LackOfFit(float(np.sqrt(pure)) if count and repeats > 1 else None,
                     float(np.sqrt(max(common - pure, 0.0) * places / max(count, 1))))


class StructuredCovariance(NamedTuple):
    """Covariance of an estimate whose residuals are not white.

    Attributes:
        matrix: The covariance, shape (p, p).
        freedom: Returns the degrees of freedom of the variance along a direction, shape (p,);
            None if it is known.

    """

    matrix: Array
    freedom: Callable[[Array], float | None]


def structured_covariance(
    columns: Array, residual: Array, noise: Array, inverse: Array, prior: Array, guessed: Array,
    repeats: int,
) -> StructuredCovariance:
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
        guessed: Information of the priors whose widths were estimated too, shape (p,).
        repeats: Number of repeats of the motion.

    """
    middle = prior.astype(float)
    # Of each channel: lines x(f), factor of |direction · H⁻¹ x(f)|² S(f) in a variance, freedom of
    # the power summed over the neighbours of each line, standard deviation of the line's power.
    spectra: list[tuple[npt.NDArray[np.complex128], Array, Array, Array]] = []
    for rows, left, std in zip(columns, residual, noise, strict=True):
        used = np.isfinite(std)
        if not used.any():
            continue
        weight, count, length = float(std[used].min())**-2, int(used.sum()), len(used)
        lines = np.fft.rfft(np.where(used[:, None], rows, 0.0), axis=0)
        power = np.abs(np.fft.rfft(np.where(used, left, 0.0)))**2
        taken = weight * np.sum((lines.conj() @ inverse * lines).real, axis=1)
        # Offsets and biases are always fitted: the mean holds no information about its neighbours.
        power[0] = 0.0
        rest = np.maximum(count - taken, _LEAST_LEFT * count)
        rest[0] = 0.0
        free = _neighbours(rest, repeats)
        spectrum = _neighbours(power, repeats) / free
        # Lines at frequencies of both signs, but for the mean and the highest frequency.
        both = np.where(np.isin(np.arange(len(power)), (0.0, 0.5 * length)), 1.0, 2.0)
        factor = weight**2 / length * both
        middle += np.asarray((lines.conj() * (spectrum * factor)[:, None]).T @ lines).real
        # A line of which the fit leaves the share s has 2 s degrees of freedom.
        spectra.append((lines, factor, free, spectrum * np.sqrt(rest * count)))
    # A product with its own transpose stays positive semidefinite though H is nearly singular.
    half = inverse @ covariance_factor(middle)
    matrix = half @ half.T

    def freedom(direction: Array) -> float | None:
        slope = inverse @ direction
        # The width of a prior that follows from one estimate has one degree of freedom.
        spread = 2.0 * float(np.sum((slope**2 * guessed) ** 2))
        for lines, factor, free, deviation in spectra:
            share = factor * np.abs(lines @ slope) ** 2 / free
            spread += float(np.sum((deviation * _neighbours(share, repeats)) ** 2))
        return degrees_of_freedom(float(direction @ matrix @ direction), spread)

    return StructuredCovariance(matrix, freedom)


def degrees_of_freedom(variance: float, spread: float) -> float | None:
    """Return the degrees of freedom of an estimated variance, None if it is known.

    By Satterthwaite's approximation (An Approximate Distribution of Estimates of Variance
    Components, Biometrics Bull. 2 (1946) 110, doi 10.2307/3002019).

    Args:
        variance: The variance.
        spread: Variance of its estimate.

    """
    return None if spread <= 1e-6 * variance**2 else max(2.0 * variance**2 / spread, 1.0)


def combined_freedom(variance: float, parts: Sequence[tuple[float, float | None]]) -> float | None:
    """Return the degrees of freedom of a sum of variances; None if it is known.

    Args:
        variance: The sum.
        parts: Each part that was estimated, with its degrees of freedom, None if it is known.

    """
    return degrees_of_freedom(float(variance), 2.0 * float(sum(
        part**2 / freedom for part, freedom in parts if freedom is not None)))


def _neighbours(values: Array, repeats: int) -> Array:
    """Return sums over lines and their neighbours of the same kind, shape (f,)."""
    sums = np.empty(len(values))
    number = np.arange(len(values))
    for group, reach in ((number % repeats == 0, _LINES),
                         (number % repeats != 0, _LINES * max(repeats - 1, 1))):
        if not group.any():
            continue
        size = int(group.sum())
        kernel = np.ones(min(2 * reach + 1, 2 * (size // 2) + 1))
        at = len(kernel) // 2
        sums[group] = np.convolve(values[group], kernel, mode='full')[at:at + size]
    return sums


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
