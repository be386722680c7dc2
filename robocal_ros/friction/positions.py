# SPDX-License-Identifier: Apache-2.0
"""Torques of the positions of a joint's runs, estimated beside its law of friction.

Gravity that the model lacks, sag, and ripple with few periods per turn have the same sign in both
directions. What they make over the runs looks like friction that differs by direction, as far as
it is constant, and bends the law otherwise. Each is a source of random size and known effects; the
runs update the sizes by what no law of the speed can follow, and by the shape within runs. How
much larger than expected some sources are, and how much runs scatter, is a mean over what these
residuals make likely (restricted maximum likelihood; Patterson, Thompson, Biometrika 58 (1971)
545, doi 10.1093/biomet/58.3.545).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import log
from typing import NamedTuple

import numpy as np
import scipy

from robocal_ros.arrays import Array, covariance_factor
from robocal_ros.estimation import PERIODS, SLOW_RIPPLE, waves
from robocal_ros.friction.runs import (
    GravityComparison,
    SpeedPoint,
    amplitudes,
    is_pair,
    mean_waves,
    sag_torque,
)
from robocal_ros.results import rms
from robocal_ros.robot import DIRECTIONS, DRIVEN_STD

# What errors of gravity, and this ripple, may be times their standard deviations, and the power by
# which scales above one are rarer.
_GRAVITY_SCALES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_RIPPLE_SCALES = (0.125, 0.25, 0.5, 1.0, 2.0)
_TAIL = 2.0
# Steps of the scatter that is considered.
_STEPS = 6
# Likelihood, over the largest, of what is left out.
_UNLIKELY = 1e-4
# Least share of a function of the speed that others do not contain.
_ALIKE = 1e-4


class Told(NamedTuple):
    """What runs tell of torques of their positions; by direction, of |F|.

    Attributes:
        torque: Their mean, shape (k,) [N·m].
        extra: Standard deviation of the runs beyond the noise within them [N·m].
        common: Standard deviation of other torques that both runs of a pair share [N·m].
        left: What remains unknown, one source in each column, shape (k, m) [N·m].
        by_tilt: The same by each tilt of the base, which joints have in common, shape (k, t).

    """

    torque: Mapping[str, Array]
    extra: float
    common: float
    left: Mapping[str, Array]
    by_tilt: Mapping[str, Array]


class PositionTorques:
    """Sources of torques of the positions of one joint's runs."""

    def __init__(
        self, runs: Mapping[str, Sequence[SpeedPoint]], gravity: GravityComparison | None,
        tilt_std: float, load_factor: float,
    ) -> None:
        """Collect the sources.

        Args:
            runs: Usable runs of each direction, sorted by speed.
            gravity: Comparison of the model's gravity with pairs of runs; None without a pair.
            tilt_std: Standard deviation of the tilts of the base [rad].
            load_factor: Share of its load by which friction grows.

        """
        every = [p for points in runs.values() for p in points]
        tilted = tilt_std * amplitudes(every, [p.tilted for p in every])
        by_links = amplitudes(every, [p.by_links for p in every])
        by_links = covariance_factor(by_links @ by_links.T)
        size = abs(float(np.mean([np.sign(p.speed) * p.torque for p in every])))
        largest = max(float(np.abs(p.gravity).max()) for p in every)
        basis = np.vstack([waves(p.angle) for p in every])
        driven = DRIVEN_STD * load_factor
        shapes = np.vstack([np.column_stack((
            sag_torque(p.angle, p.gravity, largest), driven * p.gravity)) for p in every])
        by_shape = np.linalg.lstsq(np.column_stack((basis, np.ones(len(basis)))), shapes)[0][:-1]
        # Amplitudes of waves by gravity, ripple, sag and drive.
        by_wave = np.hstack((np.pad(np.hstack((tilted, by_links)), ((0, 2 * PERIODS - 2), (0, 0))),
                             size * np.diag(SLOW_RIPPLE), by_shape))
        signs = {name: np.sign(points[0].speed) for name, points in runs.items()}
        pairs = _pairs(runs)
        # What is alike over all runs is friction of a driven gear, and no error.
        means = {name: mean_waves(points, PERIODS) @ by_wave for name, points in runs.items()}
        alike = np.zeros(by_wave.shape[1])
        alike[-1] = np.vstack(list(means.values()))[:, -1].mean()
        # Effects on |F| of these, of the other sources, and of a torque of each pair.
        self._runs = {name: np.hstack((signs[name] * np.column_stack((
            means[name] - alike, [p.errors for p in points])), pairs[name]))
            for name, points in runs.items()}
        count, paired = self._runs[next(iter(runs))].shape[1], pairs[next(iter(runs))].shape[1]
        # Those of the shape within runs.
        self._told: Array = np.zeros(0) if gravity is None else gravity.told
        rows = np.zeros((0, len(by_wave))) if gravity is None else gravity.rows
        self._shape = np.pad(rows @ by_wave, ((0, 0), (0, count - by_wave.shape[1])))
        self._tilts = tilted.shape[1]
        self._groups = np.zeros((3, count))
        self._groups[0, :self._tilts + by_links.shape[1]] = 1.0
        self._groups[1, self._tilts + by_links.shape[1]:-2 + by_wave.shape[1]] = 1.0
        self._groups[2, count - paired:] = 1.0

    def told(
        self, rest: Mapping[str, Array], slopes: Mapping[str, Array], std: Mapping[str, Array]
    ) -> Told:
        """Return what runs tell.

        Args:
            rest: Torque |F| of the runs of each direction beside a law, shape (k,) [N·m].
            slopes: Its derivatives by the law's parameters, shape (k, p).
            std: Standard deviation of each run, shape (k,) [N·m].

        """
        # What no law of the speed can follow, of unit variance within the runs.
        free = {name: unexplained(slopes[name], std[name]) / std[name] for name in rest}
        told = np.concatenate([self._told, *(free[name] @ rest[name] for name in rest)])
        effects = np.vstack([self._shape, *(free[name] @ self._runs[name] for name in rest)])
        noise = scipy.linalg.block_diag(
            np.zeros(2 * (len(self._told),)), *(item @ item.T for item in free.values()))
        weight, variance, inverse, extra, common = _sizes(told, effects, self._groups, noise)
        gains = variance[:, :, None] * (effects.T @ inverse)
        means = gains @ told
        mean = weight @ means
        unknown = (np.eye(len(mean)) - gains @ effects) * np.sqrt(variance[:, None, :])
        # The covariance is that for each size, on average, and that of the means.
        covariance = np.tensordot(weight, unknown * np.sqrt(variance[:, None, :]), 1) + (
            (weight[:, None] * means).T @ means - np.outer(mean, mean))
        tilts = np.tensordot(weight, unknown[:, :, :self._tilts], 1)
        others = covariance_factor(covariance - tilts @ tilts.T)
        torque, left, by_tilt = ({name: self._runs[name] @ factor for name in rest}
                                 for factor in (mean, others, tilts))
        return Told(torque, extra, common, left, by_tilt)


def unexplained(slopes: Array, std: Array) -> Array:
    """Return orthonormal combinations of weighted torques that no law can follow, shape (m, k).

    Args:
        slopes: Derivatives of the torques by the parameters of the law, shape (k, p).
        std: Standard deviations of the torques, shape (k,) [N·m].

    """
    return np.asarray(scipy.linalg.null_space((slopes / std[:, None]).T, rcond=_ALIKE).T)


def _sizes(
    told: Array, effects: Array, groups: Array, noise: Array
) -> tuple[Array, Array, Array, float, float]:
    """Return the sizes of sources and scatter that residuals make likely.

    Args:
        told: Residuals, shape (m,).
        effects: Effects of the sources, shape (m, s).
        groups: Which sources are gravity, ripple, and torques of pairs, shape (3, s).
        noise: Covariance by runs that scatter with unit variance, shape (m, m) [1/(N·m)²].

    Returns:
        Probability of each combination of sizes, shape (c,); variance of the sources, shape
        (c, s); inverse covariance of the residuals, shape (c, m, m); and ``extra`` and ``common``
        as in ``Told``.

    """
    # Scatter: none, or from a tenth of the noise to three times the residuals.
    unit = np.sqrt(np.linalg.matrix_rank(noise) / max(float(np.trace(noise)), 1e-300))
    scatter = (0.0, *unit * np.geomspace(0.1, max(3.0, 3.0 * rms(told)), _STEPS))
    scatters = np.array(list(product(scatter, scatter)))**2
    found, best = [], -np.inf
    # One after the other, because many runs need much memory, and leave few sizes likely.
    for scales in product(_GRAVITY_SCALES, _RIPPLE_SCALES):
        squares = np.column_stack((np.tile(np.square(scales), (len(scatters), 1)), scatters))
        variance = 1.0 - groups.sum(axis=0) + squares[:, :3] @ groups
        covariance = (np.eye(len(told)) + squares[:, 3, None, None] * noise
                      + (effects * variance[:, None]) @ effects.T)
        inverse = np.linalg.inv(covariance)
        likelihood = -0.5 * (np.linalg.slogdet(covariance)[1] + inverse @ told @ told) - (
            _TAIL * float(np.log(np.maximum(scales, 1.0)).sum()))
        best = max(best, float(likelihood.max()))
        likely = likelihood > best + log(_UNLIKELY)
        found.append((likelihood[likely], scatters[likely], variance[likely], inverse[likely]))
    likelihood, scatters, variance, inverse = (
        np.concatenate(arrays) for arrays in zip(*found, strict=True))
    weight = np.exp(likelihood - likelihood.max())
    weight /= weight.sum()
    common, extra = np.sqrt(weight @ scatters).tolist()
    return weight, variance, inverse, extra, common


def _pairs(runs: Mapping[str, Sequence[SpeedPoint]]) -> dict[str, Array]:
    """Return which runs of each direction are those of which pair, signed, shape (k, pairs)."""
    forward, backward = (runs.get(name, []) for name in DIRECTIONS)
    pairs: list[tuple[int, int]] = []
    for row, first in enumerate(forward):
        pairs += [(row, other) for other, second in enumerate(backward) if is_pair(first, second)
                  and other not in [number for _, number in pairs]][:1]
    rows = dict(zip(DIRECTIONS, np.array(pairs, dtype=int).reshape(-1, 2).T, strict=True))
    return {name: np.sign(points[0].speed) * (np.arange(len(points))[:, None] == rows[name])
            for name, points in runs.items()}
