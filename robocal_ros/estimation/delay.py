# SPDX-License-Identifier: Apache-2.0
"""Delay of measured values relative to positions: the shift of the best fit.

The measured values are shifted, and the fit repeated, until the residuals no longer contain the
time derivative of the fitted values (Gauss-Newton). A column of that derivative alone would be
valid for short delays only, and its prior would bias longer ones towards zero. The residuals
themselves are no measure of a shift: other noise falls into each block at each shift, and its
chance minima, sharper than the true one, would be mistaken for delays.
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

# Most steps, and the share of the standard deviation below which a step is the last one.
_STEPS, _CONVERGED = 20, 0.02
_TINY = 1e-12


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
        return self.std <= MAX_STD


def find_delay(
    shifted: Callable[[float], Array], columns: Sequence[Array], known: Array, period: float,
    used: Flags | None = None,
) -> Delay:
    """Find the shift of measured values after which the fit leaves none of their derivative.

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
    for _ in range(_STEPS):
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
        value = float(np.clip(value + change, *RANGE))
        if abs(change) <= _CONVERGED * std:
            break
    else:
        std = float(np.hypot(std, change))
    if std > MAX_STD or value in RANGE:
        return Delay(0.0, max(std, 2.0 * MAX_STD))
    return Delay(value, std)


def orthonormal(columns: Array) -> Array:
    """Return an orthonormal basis of the span of columns, shape (k, r)."""
    scale = np.linalg.norm(columns, axis=0)
    return np.asarray(scipy.linalg.orth(
        columns[:, scale > 0.0] / scale[scale > 0.0], rcond=1e-8))
