# SPDX-License-Identifier: Apache-2.0
"""Delay of measured values relative to positions: the shift of the best fit.

The profile likelihood over the shift is used, with all linear parameters free at each shift: a
column of the time derivative is valid for short delays only, and its prior would bias longer ones
towards zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from robocal_ros.arrays import Array, Flags
from robocal_ros.estimation.least_squares import autocorrelation_time

RANGE = (-0.03, 0.12)
"""Range of the search [s]."""

MAX_STD = 0.002
"""Largest standard deviation of a delay that counts as identified [s]."""

_STEP = 0.005
_FIRST = 0.001
_TINY = 1e-12
# Least gain in log-likelihood over the ends of the range; noise causes a smaller one.
_LEAST_GAIN = 20.0


@dataclass(frozen=True)
class Delay:
    """Delay of measured values relative to positions.

    Attributes:
        value: Best shift; 0 if it is not identified [s].
        std: Its standard deviation; infinite if no shift improves the fit [s].

    """

    value: float
    std: float

    @property
    def identified(self) -> bool:
        """True if the data determine the delay."""
        return self.std <= MAX_STD


def find_delay(
    shifted: Callable[[float], Array], columns: Sequence[Array], known: Array,
    used: Flags | None = None,
) -> Delay:
    """Find the shift of measured values that leaves the least residuals.

    Args:
        shifted: Returns the measured values of all channels, shape (k, c), for a delay [s].
        columns: Regressor of each channel, shape (k, p) each.
        known: Known part of the values, shape (k, c).
        used: Values to use, shape (k, c); all by default. Friction after a reversal lags behind
            speed and would bias the delay.

    Returns:
        The delay; not identified if the optimum is at an end of the range or too flat.

    """
    rows = [np.ones(len(known), dtype=bool)] * len(columns) if used is None else list(used.T)
    bases = [orthonormal(item[chosen]) for item, chosen in zip(columns, rows, strict=True)]

    def residuals(delay: float) -> list[Array]:
        values = shifted(delay) - known
        return [value[chosen] - basis @ (basis.T @ value[chosen])
                for basis, value, chosen in zip(bases, values.T, rows, strict=True)]

    begin = residuals(0.0)
    counts = np.array([
        max(len(item) - basis.shape[1], 1) / autocorrelation_time(item)
        for item, basis in zip(begin, bases, strict=True)])

    def cost(delay: float) -> float:
        power = np.array([item @ item + _TINY for item in residuals(delay)])
        return 0.5 * float(counts @ np.log(power))

    grid = np.arange(RANGE[0], RANGE[1] + 0.5 * _STEP, _STEP)
    costs = [cost(delay) for delay in grid]
    best = int(np.argmin(costs))
    if best in (0, len(grid) - 1) or min(costs[0], costs[-1]) - costs[best] < _LEAST_GAIN:
        return Delay(0.0, np.inf)
    found = scipy.optimize.minimize_scalar(
        cost, bounds=(grid[best - 1], grid[best + 1]), method='bounded',
        options={'xatol': 1e-6})
    value = float(found.x)
    # Residuals are less correlated at the optimum.
    counts = np.array([
        max(len(item) - basis.shape[1], 1) / autocorrelation_time(item)
        for item, basis in zip(residuals(value), bases, strict=True)])
    curvature = (cost(value + _FIRST) + cost(value - _FIRST) - 2.0 * cost(value)) / _FIRST**2
    std = float(1.0 / np.sqrt(curvature)) if curvature > 0.0 else np.inf
    return Delay(value, std) if std <= MAX_STD else Delay(0.0, std)


def orthonormal(columns: Array) -> Array:
    """Return an orthonormal basis of the span of columns, shape (k, r)."""
    scale = np.linalg.norm(columns, axis=0)
    kept = columns[:, scale > 0.0] / scale[scale > 0.0]
    basis, triangle, _ = scipy.linalg.qr(kept, mode='economic', pivoting=True)
    size = np.abs(np.diag(triangle))
    return np.asarray(basis[:, size > 1e-8 * size.max(initial=0.0)])
