# SPDX-License-Identifier: Apache-2.0
"""Torque ripple over the joint angle, found in the runs and taken out of their means.

Gears and motors add a torque that repeats over the angle, whatever the speed. A slow run covers
only a part of its period, so that ripple would shift that run's mean and pass for friction. It
is looked for as a sinusoid a sin kθ + b cos kθ of unknown k: what is left within the runs is
projected onto each k in turn (Lomb-Scargle periodogram with weights and means of their own for
each run; Zechmeister, Kürster, A&A 496 (2009) 577, doi 10.1051/0004-6361:200811296), and the
best one is kept only if chance could not have made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from robocal_ros.core.arrays import Array
from robocal_ros.core.friction.points import SpeedPoint

# Fewer cycles per turn than this look like an error of gravity.
_FEWEST_CYCLES = 8.0
# A block of samples must not cover more than this share of a cycle, or it would average it out.
_MAX_BLOCK_SHARE = 0.25
_MOST_CYCLES = 250.0
_OVERSAMPLING = 4.0
_MOST_COMPONENTS = 3
# Drop of chi-square that noise alone reaches at one k with probability 1e-6, two free numbers.
_SIGNIFICANT = 27.6
_MIN_BLOCKS = 60
_REFINEMENT = 41


@dataclass(frozen=True)
class Ripple:
    """One component of torque ripple.

    Attributes:
        cycles: Periods per turn of the joint.
        sine: Factor of sin(cycles θ) [N·m].
        cosine: Factor of cos(cycles θ) [N·m].
        covariance: Covariance of sine, cosine and cycles, shape (3, 3).

    """

    cycles: float
    sine: float
    cosine: float
    covariance: Array

    @property
    def amplitude(self) -> float:
        """Amplitude [N·m]."""
        return float(np.hypot(self.sine, self.cosine))

    def torque(self, angle: Array) -> Array:
        """Return the torque at joint angles [N·m]."""
        return np.asarray(self.sine * np.sin(self.cycles * angle)
                          + self.cosine * np.cos(self.cycles * angle))

    def mean_std(self, angle: Array) -> float:
        """Return the standard deviation of the mean torque over joint angles [N·m]."""
        slope = _slopes(self.cycles, self.sine, self.cosine, angle).mean(axis=0)
        return float(np.sqrt(max(slope @ self.covariance @ slope, 0.0)))


def _slopes(cycles: float, sine: float, cosine: float, angle: Array) -> Array:
    """Return the derivatives of the torque by sine, cosine and cycles, shape (k, 3)."""
    s, c = np.sin(cycles * angle), np.cos(cycles * angle)
    return np.column_stack((s, c, angle * (sine * c - cosine * s)))


def find_ripple(points: Sequence[SpeedPoint]) -> tuple[Ripple, ...]:
    """Find what repeats over the angle in the runs of one joint, strongest first.

    Args:
        points: Runs of one joint; rejected ones are not used.

    """
    usable = [p for p in points if not p.rejected and len(p.angle) > 2]
    if sum(len(p.angle) for p in usable) < _MIN_BLOCKS:
        return ()
    left = [p.total - p.gravity for p in usable]
    found: list[Ripple] = []
    while len(found) < _MOST_COMPONENTS:
        ripple = _strongest(usable, left)
        if ripple is None:
            break
        found.append(ripple)
        left = [item - ripple.torque(p.angle) for item, p in zip(left, usable, strict=True)]
    return tuple(found)


def without_ripple(
    points: Sequence[SpeedPoint], ripples: Sequence[Ripple]
) -> tuple[SpeedPoint, ...]:
    """Return the points with ripple taken out of their torques.

    Args:
        points: Runs of one joint.
        ripples: What repeats over its angle.

    """
    def cleaned(point: SpeedPoint) -> SpeedPoint:
        known = np.zeros_like(point.angle)
        for ripple in ripples:
            known += ripple.torque(point.angle)
        std = np.linalg.norm([point.std, *(ripple.mean_std(point.angle) for ripple in ripples)])
        return replace(point, torque=point.torque - float(known.mean()), std=float(std),
                       total=point.total - known)

    return tuple(cleaned(point) for point in points) if ripples else tuple(points)


@dataclass(frozen=True)
class _Blocks:
    """Means of short blocks of all runs, one after the other."""

    run: np.ndarray
    angle: Array
    step: Array
    torque: Array
    weight: Array

    @classmethod
    def of(cls, points: Sequence[SpeedPoint], left: Sequence[Array]) -> _Blocks:
        """Line up the blocks; torques and slopes count without their run's mean."""
        counts = [len(p.angle) for p in points]
        run = np.repeat(np.arange(len(points)), counts)
        return cls(
            run, np.concatenate([p.angle for p in points]),
            np.repeat([(p.high - p.low) / len(p.angle) for p in points], counts),
            _demeaned(np.concatenate(left), run),
            np.repeat([1.0 / _block_variance(item) for item in left], counts))

    def seen(self, cycles: float) -> Array:
        """Return the weights; blocks that are long against the cycle know little about it."""
        return np.where(self.step * cycles < 2.0 * np.pi * _MAX_BLOCK_SHARE, self.weight, 0.0)

    def fit(self, cycles: float) -> tuple[float, float, float]:
        """Return by how much chi-square falls, sine and cosine of the best sinusoid."""
        sine = _demeaned(np.sin(cycles * self.angle), self.run)
        cosine = _demeaned(np.cos(cycles * self.angle), self.run)
        weight = self.seen(cycles)
        ss, sc, cc = (weight * sine) @ sine, (weight * sine) @ cosine, (weight * cosine) @ cosine
        determinant = ss * cc - sc * sc
        if determinant <= 1e-3 * ss * cc:
            return 0.0, 0.0, 0.0
        s, c = (weight * sine) @ self.torque, (weight * cosine) @ self.torque
        a, b = (cc * s - sc * c) / determinant, (ss * c - sc * s) / determinant
        return float(a * s + b * c), float(a), float(b)

    def covariance(self, cycles: float, sine: float, cosine: float) -> Array:
        """Return the covariance of sine, cosine and cycles, shape (3, 3)."""
        slopes = np.column_stack([
            _demeaned(column, self.run)
            for column in _slopes(cycles, sine, cosine, self.angle).T])
        return np.asarray(np.linalg.pinv(slopes.T @ (self.seen(cycles)[:, None] * slopes)))


def _strongest(points: Sequence[SpeedPoint], left: Sequence[Array]) -> Ripple | None:
    """Return the sinusoid that explains most, or None if chance may have made it."""
    blocks = _Blocks.of(points, left)
    candidates = _candidates(points)
    if not len(candidates):
        return None
    gains = [blocks.fit(cycles)[0] for cycles in candidates]
    best = int(np.argmax(gains))
    if gains[best] <= _SIGNIFICANT:
        return None
    around = candidates[max(best - 1, 0)], candidates[min(best + 1, len(candidates) - 1)]
    cycles = float(max(np.linspace(*around, _REFINEMENT), key=lambda k: blocks.fit(k)[0]))
    _, sine, cosine = blocks.fit(cycles)
    return Ripple(cycles, sine, cosine, blocks.covariance(cycles, sine, cosine))


def _candidates(points: Sequence[SpeedPoint]) -> Array:
    """Return the k to look at: as close as the range tells apart, as many as blocks resolve."""
    width = max(p.high for p in points) - min(p.low for p in points)
    finest = min((p.high - p.low) / len(p.angle) for p in points)
    most = min(2.0 * np.pi * _MAX_BLOCK_SHARE / finest, _MOST_CYCLES)
    count = int((most - _FEWEST_CYCLES) * width / (2.0 * np.pi) * _OVERSAMPLING) + 1
    return np.linspace(_FEWEST_CYCLES, most, count) if most > _FEWEST_CYCLES else np.zeros(0)


def _demeaned(values: Array, run: np.ndarray) -> Array:
    """Take each run's own mean off: it is friction, not ripple."""
    sums = np.bincount(run, values)
    return np.asarray(values - (sums / np.bincount(run))[run])


def _block_variance(values: Array) -> float:
    """Return the variance of single blocks from neighbours, which slow ripple hardly moves."""
    return max(0.5 * float(np.mean(np.diff(values) ** 2)), 1e-12)
