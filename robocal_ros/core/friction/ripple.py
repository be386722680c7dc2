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
_OVERSAMPLING = 6.0
_MOST_COMPONENTS = 3
# Drop of chi-square that noise alone reaches at one k with probability 1e-6, two free numbers.
_SIGNIFICANT = 27.6
_MIN_BLOCKS = 60


@dataclass(frozen=True)
class Ripple:
    """One component of torque ripple.

    Attributes:
        cycles: Periods per turn of the joint.
        sine: Factor of sin(cycles θ) [N·m].
        cosine: Factor of cos(cycles θ) [N·m].

    """

    cycles: float
    sine: float
    cosine: float

    @property
    def amplitude(self) -> float:
        """Amplitude [N·m]."""
        return float(np.hypot(self.sine, self.cosine))

    def torque(self, angle: Array) -> Array:
        """Return the torque at joint angles [N·m]."""
        return np.asarray(self.sine * np.sin(self.cycles * angle)
                          + self.cosine * np.cos(self.cycles * angle))


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
        return replace(point, torque=point.torque - float(known.mean()),
                       total=point.total - known)

    return tuple(cleaned(point) for point in points) if ripples else tuple(points)


def _strongest(points: Sequence[SpeedPoint], left: Sequence[Array]) -> Ripple | None:
    """Return the sinusoid that explains most, or None if chance may have made it."""
    run = np.repeat(np.arange(len(points)), [len(p.angle) for p in points])
    angle = np.concatenate([p.angle for p in points])
    centred = _demeaned(np.concatenate(left), run)
    weight = np.repeat([1.0 / _block_variance(item) for item in left],
                       [len(item) for item in left])
    step = np.repeat([(p.high - p.low) / len(p.angle) for p in points],
                     [len(p.angle) for p in points])
    best, found = 0.0, None
    for cycles in _candidates(points):
        # Blocks that are long against the cycle know little about it.
        seen = weight * (step * cycles < 2.0 * np.pi * _MAX_BLOCK_SHARE)
        sine = _demeaned(np.sin(cycles * angle), run)
        cosine = _demeaned(np.cos(cycles * angle), run)
        weighted_sine, weighted_cosine = seen * sine, seen * cosine
        ss, sc, cc = weighted_sine @ sine, weighted_sine @ cosine, weighted_cosine @ cosine
        determinant = ss * cc - sc * sc
        if determinant <= 1e-3 * ss * cc:
            continue
        s, c = weighted_sine @ centred, weighted_cosine @ centred
        a, b = (cc * s - sc * c) / determinant, (ss * c - sc * s) / determinant
        gain = float(a * s + b * c)
        if gain > best:
            best, found = gain, Ripple(float(cycles), float(a), float(b))
    return found if best > _SIGNIFICANT else None


def _candidates(points: Sequence[SpeedPoint]) -> Array:
    """Return the k to look at: as close as the range tells apart, as many as blocks resolve."""
    width = max(p.high for p in points) - min(p.low for p in points)
    finest = min((p.high - p.low) / len(p.angle) for p in points)
    most = min(2.0 * np.pi * _MAX_BLOCK_SHARE / finest, 400.0)
    count = int((most - _FEWEST_CYCLES) * width / (2.0 * np.pi) * _OVERSAMPLING) + 1
    return np.linspace(_FEWEST_CYCLES, most, count) if most > _FEWEST_CYCLES else np.zeros(0)


def _demeaned(values: Array, run: np.ndarray) -> Array:
    """Take each run's own mean off: it is friction, not ripple."""
    sums = np.bincount(run, values)
    return np.asarray(values - (sums / np.bincount(run))[run])


def _block_variance(values: Array) -> float:
    """Return the variance of single blocks from neighbours, which slow ripple hardly moves."""
    return max(0.5 * float(np.mean(np.diff(values) ** 2)), 1e-12)
