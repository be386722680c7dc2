# SPDX-License-Identifier: Apache-2.0
"""Bounded least squares that a few bad displacements cannot spoil.

Sources: Lawson, Hanson, Solving Least Squares Problems (SIAM 1995), ch. 23, for the bounds;
Huber, Robust Statistics (1981), sec. 7.8, for the iteration of weights.
"""

from __future__ import annotations

import numpy as np
import scipy

from robocal_ros.core.arrays import Array
from robocal_ros.core.compliance.problem import Problem

_REWEIGHTINGS = 20
# Shares of normal displacements beyond which weights fall, and beyond which one is left out.
_DOUBTED, _IMPOSSIBLE = 1e-3, 1e-6


def solve_bounded(columns: Array, measured: Array, bounds: tuple[Array, Array]) -> Array:
    """Return the bounded least-squares solution of whitened rows."""
    scale = np.linalg.norm(columns, axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    solution = scipy.optimize.lsq_linear(
        columns / scale, measured, bounds=bounds, method='bvls', tol=1e-12)
    return np.asarray(solution.x / scale)


def distances(white: Array, residual: Array) -> Array:
    """Return the Mahalanobis length of each residual, shape (k,)."""
    return np.asarray(np.linalg.norm(np.einsum('kij,kj->ki', white, residual), axis=1))


def _robust_scale(distance: Array, rows: int) -> float:
    """Return by how much residuals exceed what their covariances say, by the median; ≥ 1."""
    return max(1.0, float(np.median(distance)) / float(np.sqrt(scipy.stats.chi2.ppf(0.5, rows))))


def robust_solution(
    problem: Problem, white: Array, slope: Array, measured: Array
) -> tuple[Array, np.ndarray]:
    """Return the robust solution, and which displacements fit it."""
    rows = white @ problem.regressor(slope)
    aims = np.einsum('kij,kj->ki', white, measured)
    size = rows.shape[2]
    weight = np.ones(problem.count)
    bend = float(np.sqrt(scipy.stats.chi2.isf(_DOUBTED, problem.rows)))
    solution = np.zeros(size)
    for _ in range(_REWEIGHTINGS):
        root = np.sqrt(weight)
        solution = solve_bounded((rows * root[:, None, None]).reshape(-1, size),
                                  (aims * root[:, None]).ravel(), problem.bounds())
        distance = np.linalg.norm(aims - rows @ solution, axis=1)
        limit = bend * _robust_scale(distance, problem.rows)
        fresh = np.minimum(1.0, limit / np.maximum(distance, 1e-300))
        if np.abs(fresh - weight).max() < 1e-6:
            break
        weight = fresh
    distance = np.linalg.norm(aims - rows @ solution, axis=1)
    cut = float(np.sqrt(scipy.stats.chi2.isf(_IMPOSSIBLE, problem.rows)))
    return solution, distance <= cut * _robust_scale(distance, problem.rows)


def weighted_solution(
    problem: Problem, white: Array, slope: Array, measured: Array
) -> tuple[Array, Array, Array]:
    """Return bounded solution, unbounded solution and covariance, of what is kept."""
    kept = problem.kept
    rows = (white @ problem.regressor(slope))[kept]
    size = rows.shape[2]
    columns = rows.reshape(-1, size)
    aims = np.einsum('kij,kj->ki', white, measured)[kept].ravel()
    scale = np.linalg.norm(columns, axis=0)
    inverse = np.linalg.inv((columns / scale).T @ (columns / scale)) / np.outer(scale, scale)
    free = inverse @ (columns.T @ aims)
    if (free[:len(problem.seen)] >= 0.0).all():
        return free, free, inverse
    return solve_bounded(columns, aims, problem.bounds()), free, inverse
