# SPDX-License-Identifier: Apache-2.0
"""Detection of torque ripple over the joint angle in constant-velocity runs.

Gears and motors add a torque that is periodic in the angle. In short runs it biases friction, in
long ones it correlates the noise. The model is a sin kθ + b cos kθ of unknown k: the residuals of
the runs are projected onto each k (Lomb-Scargle periodogram with weights and a separate mean for
each run; Zechmeister, Kürster, A&A 496 (2009) 577, doi 10.1051/0004-6361:200811296), and the best
one is kept if it is significant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.estimation.least_squares import autocorrelation_time

FEWEST_CYCLES = 8.0
"""Least number of periods per turn; fewer resemble an error of gravity."""

PERIODS = 3
"""Most periods per turn of torques that resemble weight: of bearings and gears out of true."""

_SHARES = np.repeat(1.0 / np.arange(1, PERIODS + 1), 2)
SLOW_RIPPLE = 0.03 * _SHARES / np.sqrt(0.5 * _SHARES @ _SHARES)
"""Prior standard deviations of the amplitudes of ``waves`` as a share of friction, alike in both
directions, shape (2 ``PERIODS``,)."""

# Largest share of a cycle that a block of samples may average over.
_MAX_BLOCK_SHARE = 0.25
_MOST_CYCLES = 250.0
_OVERSAMPLING = 4.0
_MOST_COMPONENTS = 3
# Chi-square with two degrees of freedom at probability 1e-6.
_SIGNIFICANT = 27.6
_MIN_BLOCKS = 60
# Limit of the number of blocks, for the computing time of long bags.
_MOST_BLOCKS = 10_000
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

    def torque(self, angle: Array) -> Array:
        """Return the torque at joint angles [N·m]."""
        return np.asarray(ripple_columns(angle, (self,)) @ (self.sine, self.cosine))

    def mean_std(self, angle: Array) -> float:
        """Return the standard deviation of the mean torque over joint angles [N·m]."""
        slope = _slopes(self.cycles, self.sine, self.cosine, angle).mean(axis=0)
        return float(np.sqrt(max(slope @ self.covariance @ slope, 0.0)))


def _slopes(cycles: float, sine: float, cosine: float, angle: Array) -> Array:
    """Return the derivatives of the torque by sine, cosine and cycles, shape (k, 3)."""
    s, c = np.sin(cycles * angle), np.cos(cycles * angle)
    return np.column_stack((s, c, angle * (sine * c - cosine * s)))


def waves(angle: Array, periods: int = PERIODS) -> Array:
    """Return sinθ, cosθ, sin2θ, cos2θ and so on, up to a number of periods, (m, 2 periods)."""
    phase = np.outer(angle, np.arange(1, periods + 1))
    return np.stack((np.sin(phase), np.cos(phase)), axis=2).reshape(len(angle), -1)


def ripple_columns(angle: Array, ripples: Sequence[Ripple]) -> Array:
    """Return sine and cosine of each component, shape (k, 2 len(ripples)).

    Args:
        angle: Joint angles, shape (k,) [rad].
        ripples: The components.

    """
    phase = np.outer(angle, [ripple.cycles for ripple in ripples])
    return np.hstack((np.sin(phase), np.cos(phase)))


@dataclass(frozen=True)
class RippleRun:
    """Constant-velocity run in blocks of samples.

    Attributes:
        angle: Mean joint angle of each block, shape (m,) [rad].
        torque: Mean torque residual of a smooth model in each block, shape (m,) [N·m].

    """

    angle: Array
    torque: Array

    @classmethod
    def of_samples(cls, angle: Array, torque: Array) -> RippleRun:
        """Average samples over blocks that are short against every searched period.

        Args:
            angle: Joint angles in the order of time, shape (k,) [rad].
            torque: Torque residual of a smooth model, shape (k,) [N·m].

        """
        count = int(np.clip(np.ptp(angle) * _MOST_CYCLES / (2.0 * np.pi * _MAX_BLOCK_SHARE),
                            4, max(len(angle) // 2, 4)))
        starts = np.unique(np.linspace(0, len(angle), count + 1).astype(int))[:-1]
        lengths = np.diff(np.append(starts, len(angle)))
        return cls(*(np.asarray(np.add.reduceat(values, starts) / lengths)
                     for values in (angle, torque)))

    @property
    def step(self) -> float:
        """Angle covered by a block [rad]."""
        return float(np.ptp(self.angle)) / max(len(self.angle) - 1, 1)

    @property
    def variance(self) -> float:
        """Variance of blocks from successive differences, insensitive to slow ripple."""
        return max(0.5 * float(np.mean(np.diff(self.torque) ** 2)), 1e-12)

    def without(self, ripple: Ripple) -> RippleRun:
        """Return the run with a component of ripple subtracted."""
        return replace(self, torque=self.torque - ripple.torque(self.angle))

    def weight(self, cycles: Array) -> Array:
        """Return the weight at each k, zero if a block is long against the cycle."""
        return np.where(self.step * cycles < 2.0 * np.pi * _MAX_BLOCK_SHARE,
                        1.0 / self.variance, 0.0)

    def products(self, cycles: Array) -> Array:
        """Return weighted products with the torque, whose mean, which is friction, is removed.

        Returns:
            sine·sine, sine·cosine, cosine·cosine, sine·torque and cosine·torque, shape (5, k).

        """
        # exp(i (k + l) θ) = exp(i k θ) exp(i l θ): few exponentials make all evenly spaced k.
        width = int(np.ceil(np.sqrt(len(cycles))))
        coarse = np.exp(1j * np.outer(cycles[::width], self.angle))
        fine = np.exp(1j * np.outer(self.angle, cycles[:width] - cycles[0]))
        total, double, torque = ((one @ other).ravel()[:len(cycles)] for one, other in (
            (coarse, fine), (coarse**2, fine**2),
            (coarse * (self.torque - self.torque.mean()), fine)))
        count = len(self.angle)
        return np.asarray(self.weight(cycles) * (
            0.5 * (count - double.real) - total.imag**2 / count,
            0.5 * double.imag - total.real * total.imag / count,
            0.5 * (count + double.real) - total.real**2 / count,
            torque.imag, torque.real))


def find_ripple(
    runs: Sequence[RippleRun], fewest_cycles: float = FEWEST_CYCLES
) -> tuple[Ripple, ...]:
    """Return the torque ripple in the runs of one joint, strongest component first.

    Args:
        runs: The runs.
        fewest_cycles: Least number of periods per turn.

    """
    usable = _usable(runs)
    found: list[Ripple] = []
    while len(found) < _MOST_COMPONENTS:
        ripple, gain = _strongest(usable, fewest_cycles)
        if gain <= _SIGNIFICANT:
            break
        found.append(ripple)
        usable = [run.without(ripple) for run in usable]
    return tuple(found)


def suspected_ripple(runs: Sequence[RippleRun]) -> tuple[float, float]:
    """Return periods per turn and expected RMS torque [N·m] of ripple that is not significant.

    The strongest sinusoid has the probability that Schwarz's criterion gives its three parameters
    against none (Annals of Statistics 6 (1978) 461, doi 10.1214/aos/1176344136).

    Args:
        runs: The runs, significant ripple removed.

    """
    usable = _usable(runs)
    ripple, gain = _strongest(usable, FEWEST_CYCLES)
    count = max(sum(len(run.angle) for run in usable), 1)
    probability = 1.0 / (1.0 + count**1.5 * np.exp(-0.5 * gain))
    return ripple.cycles, float(np.sqrt(0.5 * probability) * np.hypot(ripple.sine, ripple.cosine))


def _usable(runs: Sequence[RippleRun]) -> list[RippleRun]:
    """Return the runs in which ripple shows, empty if they are too short together."""
    usable = [run for run in runs if len(run.angle) > 2]
    blocks = sum(len(run.angle) for run in usable)
    # Thinned evenly; ripple is the same in both directions.
    return [] if blocks < _MIN_BLOCKS else usable[::-(-blocks // _MOST_BLOCKS)]


def _fit(runs: Sequence[RippleRun], cycles: Array) -> tuple[Array, Array, Array]:
    """Return the decrease of chi-square, sine and cosine of the best sinusoid of each k.

    Args:
        runs: The runs.
        cycles: The k, evenly spaced, shape (m,).

    """
    ss, sc, cc, s, c = np.sum([run.products(cycles) for run in runs], axis=0)
    determinant = ss * cc - sc * sc
    solvable = determinant > 1e-3 * ss * cc
    inverse = np.where(solvable, 1.0, 0.0) / np.where(solvable, determinant, 1.0)
    sine, cosine = (cc * s - sc * c) * inverse, (ss * c - sc * s) * inverse
    return sine * s + cosine * c, sine, cosine


def _covariance(runs: Sequence[RippleRun], cycles: float, sine: float, cosine: float) -> Array:
    """Return the covariance of sine, cosine and cycles, shape (3, 3)."""
    information = np.zeros((3, 3))
    for run in runs:
        slopes = _slopes(cycles, sine, cosine, run.angle)
        slopes -= slopes.mean(axis=0)
        information += slopes.T @ slopes * run.weight(np.array(cycles))
    return np.asarray(np.linalg.pinv(information))


def _strongest(runs: Sequence[RippleRun], fewest_cycles: float) -> tuple[Ripple, float]:
    """Return the strongest sinusoid, and its decrease of chi-square; of nothing without runs."""
    candidates = _candidates(runs, fewest_cycles) if runs else np.zeros(0)
    if not len(candidates):
        return Ripple(fewest_cycles, 0.0, 0.0, np.zeros((3, 3))), 0.0
    gains, *_ = _fit(runs, candidates)
    best = int(np.argmax(gains))
    refined = np.linspace(candidates[max(best - 1, 0)],
                          candidates[min(best + 1, len(candidates) - 1)], _REFINEMENT)
    fits = _fit(runs, refined)
    best = int(np.argmax(fits[0]))
    cycles = float(refined[best])
    gain, sine, cosine = (float(column[best]) for column in fits)
    ripple = Ripple(cycles, sine, cosine, _covariance(runs, cycles, sine, cosine))
    # Correlated noise raises many k and remains after subtraction of the best one.
    rest = [run.without(ripple) for run in runs]
    memory = np.average(
        [float(np.var(run.torque)) * autocorrelation_time(run.torque) / run.variance
         for run in rest], weights=[len(run.torque) for run in rest])
    return ripple, gain / max(1.0, float(memory))


def _candidates(runs: Sequence[RippleRun], fewest: float) -> Array:
    """Return the candidate k: spaced by the resolution of the range, limited by the blocks."""
    width = max(run.angle.max() for run in runs) - min(run.angle.min() for run in runs)
    finest = min(run.step for run in runs)
    if width <= 0.0 or finest <= 0.0:
        return np.zeros(0)
    most = min(2.0 * np.pi * _MAX_BLOCK_SHARE / finest, _MOST_CYCLES)
    count = int((most - fewest) * width / (2.0 * np.pi) * _OVERSAMPLING) + 1
    return np.linspace(fewest, most, count) if most > fewest else np.zeros(0)
