# SPDX-License-Identifier: Apache-2.0
"""Small linear regressions with Student's distribution, many at once, and their evidence.

The likelihood is integrated over the parameters by Laplace's approximation. Student's likelihood
bounds the influence of single measurements (Lange, Little, Taylor, Robust Statistical Modeling
Using the t Distribution, J. Am. Stat. Assoc. 84 (1989) 881, doi 10.2307/2290063).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robocal_ros.arrays import Array

# The degrees of freedom are high: these are enough.
_ITERATIONS = 5


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
        information: Information about the parameters as for `inverse`.

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
    p = columns.shape[-1]
    rows, cols = np.tril_indices(p)
    products = (columns[..., rows] * columns[..., cols])[..., 0, :, :]
    moments = (columns * value[..., None])[..., 0, :, :]
    scale = used / deviation**2
    slim = columns[..., 0, :, :].swapaxes(-1, -2)
    diagonal = np.flatnonzero(rows == cols)

    def solved(weight: Array) -> tuple[Array, Array, Array]:
        matrix = weight @ products
        matrix[..., diagonal] += precision
        return (*_solved(matrix, weight @ moments), matrix)

    if residual is None:
        solution, determinant, matrix = solved(scale)
        residual = value - solution @ slim
        density = -used * (np.log(deviation) + 0.5 * (residual / deviation)**2)
    else:
        for _ in range(_ITERATIONS):
            weight = scale * (freedom + 1.0) / (freedom + (residual / deviation)**2)
            solution = solved(weight)[0]
            residual = value - solution @ slim
        squares = (residual / deviation)**2
        weight = scale * (freedom + 1.0)**2 / (freedom + squares) / (freedom + 3.0)
        _, determinant, matrix = solved(weight)
        density = -used * (
            np.log(deviation) + 0.5 * (freedom + 1.0) * np.log1p(squares / freedom))
    proper = np.log(np.where(precision > 0.0, precision, 1.0)).sum(axis=-1)
    evidence = density.sum(axis=-1) + 0.5 * (
        proper - (precision * solution**2).sum(axis=-1) - determinant)
    return Fit(solution, residual, evidence, matrix)


def _solved(matrix: Array, right: Array) -> tuple[Array, Array]:
    """Solve small positive definite systems by Cholesky's factorisation, all at once.

    Args:
        matrix: Lower triangles row by row, shape (…, p(p + 1)/2).
        right: Right sides, shape (…, p).

    Returns:
        The solutions, shape (…, p), and the logarithms of the determinants, shape (…).

    """
    p = right.shape[-1]
    at = {(i, j): i * (i + 1) // 2 + j for i in range(p) for j in range(i + 1)}
    factor: dict[tuple[int, int], Array] = {}
    for j in range(p):
        square = matrix[..., at[j, j]].copy()
        for k in range(j):
            square -= factor[j, k]**2
        # Rounding of nearly equal columns must not end in a root of a negative number.
        factor[j, j] = np.sqrt(np.maximum(square, 1e-12 * matrix[..., at[j, j]] + 1e-300))
        for i in range(j + 1, p):
            rest = matrix[..., at[i, j]].copy()
            for k in range(j):
                rest -= factor[i, k] * factor[j, k]
            factor[i, j] = rest / factor[j, j]
    solution = np.empty(np.broadcast_shapes(right.shape, (*matrix.shape[:-1], p)))
    for i in range(p):
        rest = right[..., i].copy()
        for k in range(i):
            rest -= factor[i, k] * solution[..., k]
        solution[..., i] = rest / factor[i, i]
    for i in reversed(range(p)):
        rest = solution[..., i]
        for k in range(i + 1, p):
            rest = rest - factor[k, i] * solution[..., k]
        solution[..., i] = rest / factor[i, i]
    return solution, 2.0 * np.asarray(sum(np.log(factor[i, i]) for i in range(p)))


def inverse(matrix: Array, p: int) -> Array:
    """Return the inverses of matrices given as by `_solved`, shape (…, p, p)."""
    units = [np.broadcast_to(row, (*matrix.shape[:-1], p)) for row in np.eye(p)]
    return np.stack([_solved(matrix, unit)[0] for unit in units], axis=-1)


def log_sum(logarithms: Array) -> Array:
    """Return logarithms of sums along the last axis; −∞ stands for 0."""
    most = logarithms.max(axis=-1, keepdims=True)
    most = np.where(np.isfinite(most), most, 0.0)
    with np.errstate(divide='ignore'):
        return np.asarray(np.log(np.exp(logarithms - most).sum(axis=-1)) + most[..., 0])
