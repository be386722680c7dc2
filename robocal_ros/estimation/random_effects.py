# SPDX-License-Identifier: Apache-2.0
"""Linear mixed model: fixed parameters, random effects of unknown size, noise of known size.

y = X b + Σ Z_j u_j + e, with e of known standard deviations and u_j independent, of standard
deviation √(prior_j² + s_j²): ``prior_j`` is stated, s_j is estimated by restricted maximum
likelihood (Patterson, Thompson, Recovery of Inter-Block Information when Block Sizes are Unequal,
Biometrika 58 (1971) 545, doi 10.1093/biomet/58.3.545). Computed by the mixed-model equations
(Henderson, Best Linear Unbiased Estimation and Prediction under a Selection Model, Biometrics 31
(1975) 423, doi 10.2307/2529430).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy

from robocal_ros.arrays import Array, Flags
from robocal_ros.estimation.adequacy import degrees_of_freedom
from robocal_ros.estimation.least_squares import scaled_inverse

# Range in which the sizes of random effects are searched, relative to the residuals.
_SMALLEST, _LARGEST = 1e-4, 1e2
# Steps of the logarithms of these sizes for numerical derivatives.
_STEP = 0.05
# Sizes this close to the lower end are zero: they carry no uncertainty. As a logarithm.
_AT_END = 1.0
# Least information about the logarithm of a size: that of half a degree of freedom.
_LEAST_INFORMATION = 0.25


@dataclass(frozen=True)
class Effect:
    """Random effect: coefficients of columns, or scatter of rows.

    Attributes:
        name: Name.
        columns: Columns of its coefficients, shape (k, q); or, with q = 0, none: each of
            ``rows`` scatters by itself.
        rows: Rows that scatter, shape (k,), boolean; not used with columns.
        prior_std: Stated standard deviation.
        estimated: Whether an unknown part is estimated in addition.

    """

    name: str
    columns: Array
    rows: Flags | None = None
    prior_std: float = 0.0
    estimated: bool = True


class MixedFit(NamedTuple):
    """Estimate of a mixed model.

    Attributes:
        value: Fixed parameters, shape (p,).
        covariance: Their covariance, shape (p, p).
        coefficients: Predicted coefficients of each effect with columns, by name.
        std: Standard deviation of each effect, stated and estimated part, by name.
        freedom: Returns the degrees of freedom of the variance of a weighted sum of the fixed
            parameters, or of these and the coefficients, given the weights, shape (p,) or
            (p + q,); None if it is known.
        left_out: Returns fixed parameters and coefficients, shape (p + q,), and their covariance,
            estimated without some rows.
        complete: Covariance of fixed parameters and coefficients, shape (p + q, p + q).
        places: Places of each effect's coefficients among both, by name.

    """

    value: Array
    covariance: Array
    coefficients: dict[str, Array]
    std: dict[str, float]
    freedom: Callable[[Array], float | None]
    left_out: Callable[[slice | Flags], tuple[Array, Array]]
    complete: Array
    places: dict[str, slice]


@dataclass(frozen=True)
class _Equations:
    """Mixed-model equations for given sizes, about a first solution.

    Attributes:
        weighted: Columns of fixed parameters and coefficients over the noise, shape (k, p + q).
        right: Residuals of the first solution over the noise, shape (k,).
        matrix: Normal equations, shape (p + q, p + q).
        inverse: Their inverse.
        objective: Minus the logarithm of the restricted likelihood, apart from a constant.
        slope: Its derivatives by the logarithms of the unknown sizes.

    """

    weighted: Array
    right: Array
    matrix: Array
    inverse: Array
    objective: float
    slope: Array


class _Problem:
    """Restricted likelihood as a function of the logarithms of the unknown sizes."""

    def __init__(
        self, regressor: Array, measured: Array, std: Array, effects: Sequence[Effect]
    ) -> None:
        self._std2 = std**2
        self.fixed = regressor.shape[1]
        self._columns = np.hstack((regressor, *(e.columns for e in effects)))
        ends = np.cumsum([self.fixed, *(e.columns.shape[1] for e in effects)])
        self.effects = [(effect, slice(*borders)) for effect, borders in zip(
            effects, pairwise(ends), strict=True)]
        self.unknown = [effect for effect in effects if effect.estimated]
        # Likelihoods of residuals of a first solution: the same, without cancellation.
        first = np.linalg.lstsq(regressor, measured, rcond=None)[0]
        self.start = np.concatenate((first, np.zeros(self._columns.shape[1] - self.fixed)))
        self._residual = measured - regressor @ first
        self.scales = np.array([self._scale(effect) for effect in self.unknown])

    def _scale(self, effect: Effect) -> float:
        """Return the size of an effect that would explain the residuals."""
        rows, power = effect.rows, 1.0
        if rows is None:
            rows = np.asarray(effect.columns.any(axis=1))
            power = np.square(effect.columns[rows]).sum(axis=1).mean()
        return max(float(np.sqrt(np.mean(np.square(self._residual[rows])) / power)), 1e-12)

    def sizes(self, logarithms: Array) -> list[float]:
        """Return the standard deviation of each effect."""
        unknown = iter(self.scales * np.exp(logarithms))
        return [float(np.hypot(effect.prior_std, next(unknown) if effect.estimated else 0.0))
                for effect, _ in self.effects]

    def equations(self, logarithms: Array) -> _Equations:
        variance, penalty, size_term = self._std2.copy(), np.zeros(self._columns.shape[1]), 0.0
        sizes = [max(size, 1e-12) for size in self.sizes(logarithms)]
        for (effect, part), size in zip(self.effects, sizes, strict=True):
            if effect.rows is not None:
                variance[effect.rows] += size**2
            penalty[part] = size**-2
            size_term += 2.0 * effect.columns.shape[1] * np.log(size)
        weight = 1.0 / np.sqrt(variance)
        weighted, right = self._columns * weight[:, None], self._residual * weight
        matrix = weighted.T @ weighted + np.diag(penalty)
        scale = 1.0 / np.sqrt(np.diag(matrix))
        factor, info = scipy.linalg.lapack.dpotrf(matrix * np.outer(scale, scale), lower=1)
        if info != 0:
            return _Equations(weighted, right, matrix, scaled_inverse(matrix), np.inf,
                              np.zeros(len(logarithms)))
        lower = np.tril(scipy.linalg.lapack.dpotri(factor, lower=1)[0])
        inverse = (lower + np.tril(lower, -1).T) * np.outer(scale, scale)
        solution = inverse @ (weighted.T @ right)
        left = right - weighted @ solution
        objective = 0.5 * (
            float(np.log(variance).sum()) + size_term
            + 2.0 * float(np.log(np.diag(factor) / scale).sum())
            # The sum of squares itself: right @ right minus what is explained cancels.
            + float(left @ left + penalty @ solution**2))
        # The solution minimises the squares, so that only what depends on sizes explicitly counts.
        by_variance = (1.0 - ((weighted @ inverse) * weighted).sum(axis=1)
                       - left**2) / variance
        moments = np.diag(inverse) + solution**2
        by_size = [float(by_variance[effect.rows].sum()) if effect.rows is not None else
                   float((1.0 - moments[part] / size**2).sum()) / size**2
                   for (effect, part), size in zip(self.effects, sizes, strict=True)
                   if effect.estimated]
        slope = np.array(by_size) * (self.scales * np.exp(logarithms))**2
        return _Equations(weighted, right, matrix, inverse, objective, slope)

    def objective(self, logarithms: Array) -> tuple[float, Array]:
        """Return the objective and its derivatives."""
        found = self.equations(logarithms)
        return found.objective, found.slope


def fit_mixed(
    regressor: Array, measured: Array, std: Array, effects: Sequence[Effect]
) -> MixedFit:
    """Estimate a mixed model; the fixed parameters must be observable.

    Args:
        regressor: Columns of the fixed parameters, shape (k, p).
        measured: Shape (k,).
        std: Known standard deviation of each measurement, 0 if only effects scatter, (k,).
        effects: Random effects.

    """
    problem = _Problem(regressor, measured, std, effects)
    count = len(problem.unknown)
    low, high = np.log(_SMALLEST), np.log(_LARGEST)
    best = np.zeros(0) if not count else scipy.optimize.minimize(
        problem.objective, np.full(count, -1.0), jac=True, method='L-BFGS-B',
        bounds=[(low, high)] * count,
        options={'ftol': 1e-13, 'gtol': 1e-7, 'maxcor': 20}).x
    equations = problem.equations(best)
    active, p = np.flatnonzero(best > low + _AT_END), problem.fixed
    steps = _STEP * np.eye(count)[active]
    ends = [(problem.equations(best + step), problem.equations(best - step)) for step in steps]
    slopes = [(above.inverse - below.inverse) / (2.0 * _STEP) for above, below in ends]
    curvature = np.array([(above.slope - below.slope)[active] for above, below in ends])
    of_sizes = _covariance_of_sizes(curvature.reshape(len(active), len(active)) / (2.0 * _STEP))
    weighted, right = equations.weighted, equations.right

    def freedom(direction: Array) -> float | None:
        size = len(direction)
        slope = np.array([direction @ part[:size, :size] @ direction for part in slopes])
        return degrees_of_freedom(float(direction @ equations.inverse[:size, :size] @ direction),
                                  float(slope @ of_sizes @ slope))

    def left_out(rows: slice | Flags) -> tuple[Array, Array]:
        inverse = scaled_inverse(equations.matrix - weighted[rows].T @ weighted[rows])
        return np.asarray(problem.start + inverse @ (
            weighted.T @ right - weighted[rows].T @ right[rows])), inverse

    solution = problem.start + equations.inverse @ (weighted.T @ right)
    return MixedFit(
        solution[:p], equations.inverse[:p, :p],
        {effect.name: solution[part] for effect, part in problem.effects if effect.rows is None},
        {effect.name: size for (effect, _), size in zip(
            problem.effects, problem.sizes(best), strict=True)},
        freedom, left_out, equations.inverse,
        {effect.name: part for effect, part in problem.effects if effect.rows is None})


def _covariance_of_sizes(information: Array) -> Array:
    """Return the covariance of the logarithms of the sizes, shape (a, a)."""
    sizes, vectors = np.linalg.eigh(0.5 * (information + information.T))
    return np.asarray((vectors / np.maximum(sizes, _LEAST_INFORMATION)) @ vectors.T)
