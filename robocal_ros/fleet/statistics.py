# SPDX-License-Identifier: Apache-2.0
"""Statistics of a fleet: many small regressions at once, and robots that differ from siblings.

The regressions are linear with Student's distribution, whose likelihood bounds the influence of
single measurements (Lange, Little, Taylor, Robust Statistical Modeling Using the t Distribution,
J. Am. Stat. Assoc. 84 (1989) 881, doi 10.2307/2290063); it is integrated over the parameters by
Laplace's approximation. Robots are compared by robust random effects, with multiplicity
controlled. SciPy has neither of them.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.special

from robocal_ros.arrays import Array, Flags
from robocal_ros.errors import DataError

LEAST = 5
"""Smallest number of robots that are compared."""

# The degrees of freedom are high: these are enough.
_ITERATIONS = 5
# Share by which the diagonal of normal equations is enlarged.
_RIDGE = 1e-12
# Huber's constant: 95 % efficiency for normal values.
_HUBER = 1.345
# Bisections of the spread between robots, and steps of the mean in each.
_BISECTIONS, _CENTRING = 40, 5

log_sum = partial(scipy.special.logsumexp, axis=-1)
"""Logarithms of sums along the last axis; −∞ stands for 0."""

# ------------------------------------------------------------------------- regressions


class Problem(NamedTuple):
    """Regressions for several scales each; … are any further axes, as broadcast.

    Attributes:
        columns: Regressor, shape (…, 1, n, p).
        value: Measurements, shape (…, 1, n).
        deviation: Scale of each measurement, shape (…, g, n).
        freedom: Degrees of freedom, shape (…, 1, n).
        used: 1 for measurements that count, else 0, shape (…, 1, n).
        precision: Inverse prior variances, 0 for a flat prior, shape (…, g, p).

    """

    columns: Array
    value: Array
    deviation: Array
    freedom: Array
    used: Array
    precision: Array


class Fit(NamedTuple):
    """Fit of regressions.

    Attributes:
        parameters: Most probable parameters, shape (…, g, p).
        residual: Residuals, shape (…, g, n).
        evidence: Logarithms of the integrated likelihoods, shape (…, g); constants that depend on
            ``freedom`` alone, and 2π, are left out.
        information: Information about the parameters, shape (…, g, p, p).

    """

    parameters: Array
    residual: Array
    evidence: Array
    information: Array


def fit(problem: Problem, residual: Array | None = None) -> Fit:
    """Fit by iteratively reweighted least squares, and integrate by Laplace's approximation.

    The weights are those of the expectation-maximisation of Student's distribution (Lange et
    al.). Multiplied by (ν + 1)/(ν + 3), their mean is Fisher's information.

    Args:
        problem: The regressions.
        residual: Residuals to start from, shape (…, g, n) as broadcast; None for least squares,
            whatever the degrees of freedom.

    """
    columns, value, deviation, freedom, used, precision = problem
    slim = columns[..., 0, :, :]
    p = slim.shape[-1]
    products = (slim[..., None] * slim[..., None, :]).reshape(*slim.shape[:-1], p * p)
    moments = slim * value[..., 0, :, None]
    scale = used / deviation**2

    def solved(weight: Array) -> tuple[Array, Array]:
        matrix = weight @ products
        # Rounding of nearly equal columns must not end in a singular matrix.
        matrix = matrix.reshape(*matrix.shape[:-1], p, p) * (1.0 + _RIDGE * np.eye(p))
        matrix = matrix + precision[..., None] * np.eye(p)
        solution = np.linalg.solve(matrix, (weight @ moments)[..., None])[..., 0]
        return np.asarray(solution, dtype=np.float64), matrix

    if residual is None:
        solution, matrix = solved(scale)
        residual = value - solution @ slim.swapaxes(-1, -2)
        density = -used * (np.log(deviation) + 0.5 * (residual / deviation)**2)
    else:
        for _ in range(_ITERATIONS):
            weight = scale * (freedom + 1.0) / (freedom + (residual / deviation)**2)
            solution = solved(weight)[0]
            residual = value - solution @ slim.swapaxes(-1, -2)
        squares = (residual / deviation)**2
        weight = scale * (freedom + 1.0)**2 / (freedom + squares) / (freedom + 3.0)
        matrix = solved(weight)[1]
        density = -used * (np.log(deviation) + 0.5 * (freedom + 1.0) * np.log1p(squares / freedom))
    proper = np.log(np.where(precision > 0.0, precision, 1.0)).sum(axis=-1)
    evidence = density.sum(axis=-1) + 0.5 * (
        proper - (precision * solution**2).sum(axis=-1) - np.linalg.slogdet(matrix)[1])
    return Fit(solution, residual, evidence, matrix)


# ----------------------------------------------------------------------------- siblings


class Population(NamedTuple):
    """Distribution of a parameter over robots of one kind; … are any further axes.

    Attributes:
        mean: Robust mean, shape (…).
        std: Its standard deviation, shape (…).
        between: Standard deviation between robots, shape (…).

    """

    mean: Array
    std: Array
    between: Array


class Comparison(NamedTuple):
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
        value: Value of each robot, shape (…, r), r ≥ 2.
        std: Its standard deviation, shape (…, r).

    """
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
    return Population(mean[..., 0], error, high[..., 0])


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
    mean, error, between = population(value[others], std[others])
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
    found = np.empty(len(order), dtype=bool)
    found[order] = np.logical_and.accumulate(
        probability[order] <= level / np.arange(len(order), 0, -1))
    return found
