# SPDX-License-Identifier: Apache-2.0
"""Linear model with random effects and scatter of unknown size, the sizes integrated out.

y_k = X_k b + Σ_j s_j U_jk u_j + e_k with u_j of standard normal elements and e_k of covariance
Σ_k + Σ_m t_m² T_mk. For given sizes (s, t) the estimate is that of Henderson's mixed-model
equations (Biometrics 31 (1975) 423, doi 10.2307/2529430), and the likelihood of the sizes the
restricted one (Patterson, Thompson, Biometrika 58 (1971) 545, doi 10.1093/biomet/58.3.545).
Each size has a uniform prior (Gelman, Bayesian Analysis 1 (2006) 515, doi 10.1214/06-BA117A), so
that an effect the data cannot tell from others widens their intervals. The integral is taken by
importance sampling from a Student t whose shape is adapted (Cappé, Guillin, Marin, Robert,
J. Comput. Graph. Stat. 13 (2004) 907, doi 10.1198/106186004X12803).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy

from robocal_ros.arrays import Array

# Range of each size, relative to what would explain the residuals.
_SMALLEST, _LARGEST = 1e-3, 1e2
# Powers of the weights from round to round: the first draws hardly meet the peak.
_POWERS = (0.05, 0.2, 0.6, 1.0, 1.0)
_DRAWS, _FREEDOM = 256, 5.0
_BATCH, _TINY = 2e6, 1e-6


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


class _Model:
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
        size = np.exp(self.sizes(np.clip(draws, middle + 2.0 * np.log(_SMALLEST),
                                         middle + np.log(_LARGEST))))
        total = np.broadcast_to(self.covariance, (len(draws), *self.covariance.shape)) + sum(
            size[:, self.names.index(name), None, None, None]**2 * part
            for name, part in self.scatter.items())
        factor = np.linalg.cholesky(total)
        rows = (np.linalg.inv(factor) @ self.columns).reshape(len(draws), -1, self.width)
        stretch, at = np.ones((len(draws), self.width)), self.count
        for name, part in self.effects.items():
            stretch[:, at:at + part.shape[2]] = size[:, self.names.index(name), None]
            at += part.shape[2]
        normal = (rows.transpose(0, 2, 1) @ rows) * stretch[:, :, None] * stretch[:, None]
        ridge = np.arange(self.count, at)
        normal[:, ridge, ridge] += 1.0
        return normal, stretch[:, :at], 2.0 * np.log(
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
        found[(draws > self.scale[self.unknown] + np.log(_LARGEST)).any(axis=1)] = -np.inf
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
    model = _Model(fixed / norm, measured, covariance, scatter, effects, known, doubts)
    start, width = model.scale[model.unknown] + np.log(_SMALLEST), np.log(_LARGEST / _SMALLEST)
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
            proposal = scipy.stats.multivariate_t(centre, 1.2 * spread, _FREEDOM, seed=number)
            draws = proposal.rvs(_DRAWS).reshape(_DRAWS, dimension)
            density = proposal.logpdf(draws)
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
