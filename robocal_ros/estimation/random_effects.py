# SPDX-License-Identifier: Apache-2.0
"""Linear mixed models: fixed parameters, random effects of unknown size, and noise.

By ``fit_mixed``, y = X b + Σ Z_j u_j + e, with e of known standard deviations and u_j independent,
of standard deviation √(prior_j² + s_j²): ``prior_j`` is stated, s_j is estimated by restricted
maximum likelihood (Patterson, Thompson, Recovery of Inter-Block Information when Block Sizes are
Unequal, Biometrika 58 (1971) 545, doi 10.1093/biomet/58.3.545). Computed by the mixed-model
equations (Henderson, Best Linear Unbiased Estimation and Prediction under a Selection Model,
Biometrics 31 (1975) 423, doi 10.2307/2529430).

By ``integrate``, y_k = X_k b + Σ_j s_j U_jk u_j + e_k with u_j of standard normal elements and e_k
of covariance Σ_k + Σ_m t_m² T_mk. For given sizes (s, t) the estimate and their likelihood are the
same, but each size has a uniform prior (Gelman, Bayesian Analysis 1 (2006) 515, doi
10.1214/06-BA117A) and is integrated out, so that an effect the data cannot tell from others widens
their intervals. The integral is taken by importance sampling from a Student t whose shape is
adapted (Cappé, Guillin, Marin, Robert, J. Comput. Graph. Stat. 13 (2004) 907, doi
10.1198/106186004X12803).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy

from robocal_ros.arrays import Array, Flags
from robocal_ros.estimation.adequacy import degrees_of_freedom
from robocal_ros.estimation.least_squares import RANK_TOLERANCE, scaled_inverse

# Range in which the sizes of random effects are searched, relative to the residuals.
_SMALLEST, _LARGEST = 1e-4, 1e2
# Steps of the logarithms of these sizes for numerical derivatives.
_STEP = 0.05
# Sizes this close to the lower end are zero: they carry no uncertainty. As a logarithm.
_AT_END = 1.0
# Least information about the logarithm of a size: that of half a degree of freedom.
_LEAST_INFORMATION = 0.25
# Range of each size that is integrated out, relative to what would explain the residuals.
_LEAST_SIZE, _LARGEST_SIZE = 1e-3, 1e2
# Powers of the weights from round to round: the first draws hardly meet the peak.
_POWERS = (0.05, 0.2, 0.6, 1.0, 1.0)
_DRAWS, _FREEDOM = 256, 5
_BATCH, _TINY = 2e6, 1e-6


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
        certain: Whether this part is known not to be zero. The likelihood is multiplied by its
            size, so that few data do not find zero by chance (Chung, Rabe-Hesketh, Dorie, Gelman,
            Liu, Psychometrika 78 (2013) 685, doi 10.1007/s11336-013-9328-2).

    """

    name: str
    columns: Array
    rows: Flags | None = None
    prior_std: float = 0.0
    estimated: bool = True
    certain: bool = False


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
        likelihood: Logarithm of the restricted likelihood, apart from a constant that does not
            depend on the effects.
        explained: Returns by how much further columns, shape (k, r), would reduce the squares of
            the residuals in standard deviations.

    """

    value: Array
    covariance: Array
    coefficients: dict[str, Array]
    std: dict[str, float]
    freedom: Callable[[Array], float | None]
    left_out: Callable[[slice | Flags], tuple[Array, Array]]
    complete: Array
    places: dict[str, slice]
    likelihood: float
    explained: Callable[[Array], float]


@dataclass(frozen=True)
class _Equations:
    """Mixed-model equations for given sizes, about a first solution.

    Attributes:
        weight: One over the noise, shape (k,).
        weighted: Columns of fixed parameters and coefficients over the noise, shape (k, p + q).
        right: Residuals of the first solution over the noise, shape (k,).
        matrix: Normal equations, shape (p + q, p + q).
        inverse: Their inverse.
        solution: Fixed parameters and coefficients, beyond the first solution, shape (p + q,).
        objective: Minus the logarithm of the restricted likelihood, apart from a constant.
        slope: Its derivatives by the logarithms of the unknown sizes.

    """

    weight: Array
    weighted: Array
    right: Array
    matrix: Array
    inverse: Array
    solution: Array
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
            inverse = scaled_inverse(matrix)
            return _Equations(weight, weighted, right, matrix, inverse,
                              inverse @ (weighted.T @ right), np.inf, np.zeros(len(logarithms)))
        lower = np.tril(scipy.linalg.lapack.dpotri(factor, lower=1)[0])
        inverse = (lower + np.tril(lower, -1).T) * np.outer(scale, scale)
        solution = inverse @ (weighted.T @ right)
        left = right - weighted @ solution
        # One step of refinement: of small noise, rounding would make the squares of the residuals
        # so uneven that no minimum is found.
        solution += inverse @ (weighted.T @ left - penalty * solution)
        left = right - weighted @ solution
        objective = 0.5 * (
            float(np.log(variance).sum()) + size_term
            + 2.0 * float(np.log(np.diag(factor) / scale).sum())
            # The sum of squares itself: right @ right minus what is explained cancels.
            + float(left @ left + penalty @ solution**2))
        # The solution minimises the squares, so that only what depends on sizes explicitly counts.
        by_variance = (1.0 - ((weighted @ inverse) * weighted).sum(axis=1) - left**2) / variance
        moments = np.diag(inverse) + solution**2
        by_size = [float(by_variance[effect.rows].sum()) if effect.rows is not None else
                   float((1.0 - moments[part] / size**2).sum()) / size**2
                   for (effect, part), size in zip(self.effects, sizes, strict=True)
                   if effect.estimated]
        slope = np.array(by_size) * (self.scales * np.exp(logarithms))**2
        return _Equations(weight, weighted, right, matrix, inverse, solution, objective, slope)

    def objective(self, logarithms: Array) -> tuple[float, Array]:
        """Return the objective per measurement and its derivatives.

        Of larger ones L-BFGS-B sometimes takes its first step to be the last.
        """
        found, count = self.equations(logarithms), max(len(self._residual), 1)
        certain = np.array([float(effect.certain) for effect in self.unknown])
        return ((found.objective - float(certain @ logarithms)) / count,
                (found.slope - certain) / count)


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
        problem.objective, np.zeros(count), jac=True, method='L-BFGS-B',
        bounds=[(low, high)] * count,
        options={'ftol': 1e-13, 'gtol': 1e-7, 'maxcor': 20}).x
    equations = problem.equations(best)
    active, p = np.flatnonzero(best > low + _AT_END), problem.fixed
    steps = _STEP * np.eye(count)[active]
    ends = [(problem.equations(best + step), problem.equations(best - step)) for step in steps]
    slopes = [(above.inverse - below.inverse) / (2.0 * _STEP) for above, below in ends]
    curvature = np.array([(above.slope - below.slope)[active] for above, below in ends])
    information = curvature.reshape(len(active), len(active)) / (2.0 * _STEP)
    sizes, vectors = np.linalg.eigh(0.5 * (information + information.T))
    # Covariance of the logarithms of the sizes.
    of_sizes = (vectors / np.maximum(sizes, _LEAST_INFORMATION)) @ vectors.T
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

    def explained(columns: Array) -> float:
        more = columns * equations.weight[:, None]
        free = more - weighted @ (equations.inverse @ (weighted.T @ more))
        slope = more.T @ (right - weighted @ equations.solution)
        return float(slope @ np.linalg.pinv(more.T @ free, RANK_TOLERANCE, hermitian=True) @ slope)

    solution = problem.start + equations.solution
    return MixedFit(
        solution[:p], equations.inverse[:p, :p],
        {effect.name: solution[part] for effect, part in problem.effects if effect.rows is None},
        {effect.name: size for (effect, _), size in zip(
            problem.effects, problem.sizes(best), strict=True)},
        freedom, left_out, equations.inverse,
        {effect.name: part for effect, part in problem.effects if effect.rows is None},
        -equations.objective, explained)


@dataclass(frozen=True)
class IntegratedFit:
    """Estimate with the sizes integrated out.

    Attributes:
        mean: Fixed parameters, then the effects' coefficients s u in order, shape (p + q,).
        covariance: Their covariance, shape (p + q, p + q).
        size: Mean of each size, by name.

    """

    mean: Array
    covariance: Array
    size: dict[str, float]


class _Integrand:
    """Arrays of the model; sizes as the logarithms of those not known."""

    def __init__(
        self, fixed: Array, measured: Array, covariance: Array, scatter: Mapping[str, Array],
        effects: Mapping[str, Array], known: Mapping[str, float], doubts: Array,
    ) -> None:
        self.covariance, self.scatter, self.effects = covariance, scatter, effects
        self.count = fixed.shape[2]
        self.names = tuple(dict.fromkeys((*scatter, *effects)))
        self.known = np.array([np.log(max(known.get(name, 1.0), 1e-12)) for name in self.names])
        self.unknown = np.array([name not in known for name in self.names])
        white = np.linalg.inv(np.linalg.cholesky(covariance))
        own, aims = (white @ fixed).reshape(-1, self.count), (white @ measured[:, :, None]).ravel()
        # Residuals of a first solution have the same likelihood, without cancellation.
        self.start = np.linalg.lstsq(own, aims, rcond=None)[0]
        left = aims - own @ self.start
        left_over = (measured - fixed @ self.start)[:, :, None]
        self.columns = np.concatenate((fixed, *effects.values(), left_over, doubts), axis=2)
        self.width = self.columns.shape[2]
        rms = max(float(np.sqrt(np.mean(left**2))), 1.0)
        power = {name: np.square(white @ part).sum(axis=2).mean()
                 for name, part in effects.items()} | {
            name: np.trace(white @ part @ white.transpose(0, 2, 1), axis1=1, axis2=2).mean()
            / measured.shape[1] for name, part in scatter.items()}
        self.scale = np.log([rms / np.sqrt(max(power[name], 1e-300)) for name in self.names])

    def sizes(self, draws: Array) -> Array:
        """Return the logarithms of all sizes, shape (draws, names)."""
        full = np.tile(self.known, (len(draws), 1))
        full[:, self.unknown] = draws
        return full

    def _normal(self, draws: Array) -> tuple[Array, Array, Array]:
        """Return normal equations (draws, c, c), their scales, and the logarithm of det Σ."""
        middle = self.scale[self.unknown]
        size = np.exp(self.sizes(np.clip(draws, middle + 2.0 * np.log(_LEAST_SIZE),
                                         middle + np.log(_LARGEST_SIZE))))
        total = np.broadcast_to(self.covariance, (len(draws), *self.covariance.shape)) + sum(
            size[:, self.names.index(name), None, None, None]**2 * part
            for name, part in self.scatter.items())
        factor = np.linalg.cholesky(total)
        rows = (np.linalg.inv(factor) @ self.columns).reshape(len(draws), -1, self.width)
        owners = [self.names.index(name) for name, part in self.effects.items()
                  for _ in range(part.shape[2])]
        stretch, ridge = np.ones((len(draws), self.width)), self.count + np.arange(len(owners))
        stretch[:, ridge] = size[:, owners]
        normal = (rows.transpose(0, 2, 1) @ rows) * stretch[:, :, None] * stretch[:, None]
        normal[:, ridge, ridge] += 1.0
        return normal, stretch[:, :self.count + len(owners)], 2.0 * np.log(
            np.diagonal(factor, axis1=2, axis2=3)).sum(axis=(1, 2))

    def logarithm(self, draws: Array) -> Array:
        """Return the logarithm of the posterior of each draw, apart from a constant."""
        normal, stretch, determinant = self._normal(draws)
        # The last element of the factor is the length of the residual, which may be zero.
        end = stretch.shape[1] + 1
        normal[:, end - 1, end - 1] += _TINY
        pivots = np.diagonal(np.linalg.cholesky(normal[:, :end, :end]), axis1=1, axis2=2)
        found = draws.sum(axis=1) - 0.5 * determinant - np.log(pivots[:, :-1]).sum(
            axis=1) - 0.5 * pivots[:, -1]**2
        found[(draws > self.scale[self.unknown] + np.log(_LARGEST_SIZE)).any(axis=1)] = -np.inf
        return np.asarray(found)

    def solved(self, draws: Array) -> tuple[Array, Array]:
        """Return the coefficients by each right side, and their covariance, for each draw."""
        normal, stretch, _ = self._normal(draws)
        end = stretch.shape[1]
        inverse = np.linalg.inv(normal[:, :end, :end])
        return (inverse @ normal[:, :end, end:] * stretch[:, :, None],
                inverse * stretch[:, :, None] * stretch[:, None])


def integrate(
    fixed: Array, measured: Array, covariance: Array, scatter: Mapping[str, Array],
    effects: Mapping[str, Array], known: Mapping[str, float], doubts: Array,
) -> IntegratedFit:
    """Estimate fixed parameters and coefficients.

    Args:
        fixed: Columns X of the fixed parameters, shape (k, d, p).
        measured: Shape (k, d).
        covariance: Known part of the covariance of each row, shape (k, d, d).
        scatter: Covariances T by name, whose sizes are unknown, shape (k, d, d) each.
        effects: Columns U by name, shape (k, d, q) each; under the name of a scatter, of its size.
        known: Sizes that are known, by name.
        doubts: Independent errors common to all rows, of one standard deviation each, by which
            the covariance is widened, shape (k, d, r).

    """
    norm = np.sqrt(np.square(fixed).sum(axis=(0, 1)))
    model = _Integrand(fixed / norm, measured, covariance, scatter, effects, known, doubts)
    start = model.scale[model.unknown] + np.log(_LEAST_SIZE)
    width = np.log(_LARGEST_SIZE / _LEAST_SIZE)
    dimension = len(start)
    draws = start + width * scipy.stats.qmc.Sobol(dimension, seed=0).random(2 * _DRAWS)
    density = np.zeros(len(draws))
    step = max(1, int(_BATCH / model.columns.size))
    for number, power in enumerate(_POWERS):
        weight = scipy.special.softmax(power * (np.concatenate([
            model.logarithm(draws[at:at + step]) for at in range(0, len(draws), step)]) - density))
        centre = weight @ draws
        spread = np.atleast_2d(np.cov(draws.T, aweights=weight, ddof=0)) + 0.01 * np.eye(dimension)
        if number + 1 < len(_POWERS):
            proposal = scipy.stats.multivariate_t(centre, 1.2 * spread, _FREEDOM)
            # Low-discrepancy points scatter less than independent ones.
            even = scipy.stats.qmc.Sobol(dimension + 1, seed=number).random(_DRAWS)
            draws = centre + (
                scipy.stats.norm.ppf(even[:, 1:]) @ np.linalg.cholesky(1.2 * spread).T
                / np.sqrt(scipy.stats.chi2.ppf(even[:, :1], _FREEDOM) / _FREEDOM))
            density = np.asarray(proposal.logpdf(draws)).reshape(_DRAWS)
    parts = [model.solved(draws[at:at + step]) for at in range(0, len(draws), step)]
    solution, inverse = (np.concatenate(part) for part in zip(*parts, strict=True))
    mean = np.einsum('n,nij->ij', weight, solution)
    off = solution[:, :, 0] - mean[:, 0]
    mean[:model.count, 0] += model.start
    total = (np.einsum('n,nij->ij', weight, inverse) + (off * weight[:, None]).T @ off
             + mean[:, 1:] @ mean[:, 1:].T)
    scale = np.concatenate((1.0 / norm, np.ones(len(mean) - len(norm))))
    size = dict(zip(model.names, (weight @ np.exp(model.sizes(draws))).tolist(), strict=True))
    return IntegratedFit(mean[:, 0] * scale, total * np.outer(scale, scale), size)
