# SPDX-License-Identifier: Apache-2.0
"""Robots that differ from their siblings: robust random effects, with multiplicity controlled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.special

from robocal_ros.arrays import Array, Flags
from robocal_ros.errors import DataError

LEAST = 5
"""Smallest number of robots that are compared."""

# Huber's constant: 95 % efficiency for normal values.
_HUBER = 1.345
# Bisections of the spread between robots, and steps of the mean in each.
_BISECTIONS, _CENTRING = 40, 5


@dataclass(frozen=True)
class Population:
    """Distribution of a parameter over robots of one kind.

    Attributes:
        mean: Robust mean.
        std: Its standard deviation.
        between: Standard deviation between robots.

    """

    mean: float
    std: float
    between: float


@dataclass(frozen=True)
class Comparison:
    """Each robot against all others.

    Attributes:
        deviation: Value minus mean of the others, shape (r,).
        std: Standard deviation of `deviation`, including that between robots, shape (r,).
        probability: Probability of a deviation as large for a robot like the others, shape (r,).

    """

    deviation: Array
    std: Array
    probability: Array


def population(value: Array, std: Array) -> Population:
    """Estimate mean and standard deviation between robots, robustly.

    The moment equation of Paule and Mandel (Consensus Values and Weighting Factors, J. Res. Natl.
    Bur. Stand. 87 (1982) 377, doi 10.6028/jres.087.022), Σ z² = r − 1 with
    z = (value − mean)/√(std² + between²), with Huber's function in place of the square
    ("Proposal 2": Huber, Robust Estimation of a Location Parameter, Ann. Math. Stat. 35 (1964) 73,
    doi 10.1214/aoms/1177703732), so that single robots do not widen it.

    Args:
        value: Value of each robot, shape (r,), r ≥ 2.
        std: Its standard deviation, shape (r,).

    """
    mean, error, between = _populations(value, std)
    return Population(float(mean), float(error), float(between))


def _populations(value: Array, std: Array) -> tuple[Array, Array, Array]:
    """Return mean, its standard deviation, and that between robots, along the last axis."""
    count = value.shape[-1]
    # Mean of Huber's squared function over the normal distribution.
    inside = scipy.special.erf(_HUBER / np.sqrt(2.0))
    density = np.exp(-0.5 * _HUBER**2) / np.sqrt(2.0 * np.pi)
    expected = inside - 2.0 * _HUBER * density + _HUBER**2 * (1.0 - inside)
    mean = np.median(value, axis=-1, keepdims=True)
    low = np.zeros_like(mean)
    high = 10.0 * np.ptp(value, axis=-1, keepdims=True)
    weight = np.ones_like(value)
    for step in range(_BISECTIONS + 1):
        # No spread between the robots, if that suffices.
        between = low if step == 0 else 0.5 * (low + high)
        scale = np.hypot(std, between) + 1e-300
        for _ in range(_CENTRING):
            distance = np.abs(value - mean) / scale
            weight = np.minimum(1.0, _HUBER / np.maximum(distance, 1e-12)) / scale**2
            mean = (weight * value).sum(axis=-1, keepdims=True) / weight.sum(
                axis=-1, keepdims=True)
        clipped = np.minimum(np.abs(value - mean) / scale, _HUBER)
        wider = (clipped**2).sum(axis=-1, keepdims=True) > (count - 1) * expected
        low = np.where(wider, between, low)
        high = np.where(wider, high, between)
    # Winsorised values have 1/0.95 of the variance of a mean.
    error = np.sqrt(1.0 / (0.95 * weight.sum(axis=-1)))
    return mean[..., 0], error, high[..., 0]


def compare(value: Array, std: Array) -> Comparison:
    """Compare each robot with the population of the others.

    Deviations from a population estimated without the robot follow Student's distribution with
    r − 2 degrees of freedom (externally studentised residuals: Cook, Weisberg, Residuals and
    Influence in Regression, 1982, ch. 2).

    Args:
        value: Value of each robot, shape (r,).
        std: Its standard deviation, shape (r,).

    Raises:
        DataError: There are fewer robots than `LEAST`.

    """
    count = len(value)
    if count < LEAST:
        raise DataError(f'There are {count} robots to compare; expected at least {LEAST}.')
    others = np.array([np.delete(np.arange(count), i) for i in range(count)])
    mean, error, between = _populations(value[others], std[others])
    deviation = value - mean
    spread = np.sqrt(std**2 + between**2 + error**2)
    return Comparison(deviation, spread, 2.0 * scipy.special.stdtr(
        count - 2, -np.abs(deviation / spread)))


def rejected(probability: Array, level: float) -> Flags:
    """Return which hypotheses are rejected, with a family-wise error of at most ``level``.

    Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scand. J. Stat. 6 (1979) 65,
    whatever their dependence.

    Args:
        probability: Probability of each hypothesis, shape (m,).
        level: Probability that any true hypothesis is rejected.

    """
    order = np.argsort(probability)
    held = probability[order] > level / np.arange(len(order), 0, -1)
    count = int(held.argmax()) if held.any() else len(order)
    found = np.zeros(len(order), dtype=bool)
    found[order[:count]] = True
    return found
