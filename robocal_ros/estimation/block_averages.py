# SPDX-License-Identifier: Apache-2.0
"""Block averages of an exciting recording: measurements and regressors over the same blocks.

Averaging both sides of the equation is unbiased and leaves white noise white. Positions of the
window in which a motion repeats are a Fourier series (``periodic``), those of any other recording
a spline with as few knots as the noise demands, both without phase error. Noise of encoders and
stamps in the accelerations would attenuate the estimates: its share is estimated from halves of
the samples. Functions of the motion are averaged by Gauss-Legendre quadrature with five nodes per
block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from robocal_ros.arrays import Array, Flags
from robocal_ros.errors import DataError
from robocal_ros.estimation.periodic import means_between, periodic_motion, share_of_noise
from robocal_ros.estimation.signals import gaps, in_gap
from robocal_ros.messages import JointSamples

Curve = Callable[[Array], tuple[Array, Array, Array]]
"""Function of times, shape (m,) [s], with values and their first two derivatives, (m, c) each."""


def _curve(spline: scipy.interpolate.BSpline) -> Curve:
    value, slope, curvature = (spline.derivative(order) for order in range(3))
    return lambda time: (value(time), slope(time), curvature(time))


_NODES, _WEIGHTS = (0.5 * part for part in np.polynomial.legendre.leggauss(5))
_BLOCKS_PER_PERIOD = 5.0
# Well above the band, so that jerks at reversals of drives pass.
_POSITION_CUTOFF = 6.0
_LEAST_RATE = 4.0
# Candidate cutoffs of splines through positions [Hz], length of the pieces that alternate between
# the halves of the samples [s], and distance from ends and gaps where they have no effect [s].
_CUTOFFS = 16.0 * 2.0**(-0.5 * np.arange(9))
_APART = 0.01
# Highest cutoff relative to the rate of samples that are apart.
_MOST_KNOTS = 0.2
_MARGIN = 0.2
_LEAST_BLOCKS = 40
# Instants per batch, so that the data stay in the cache.
_AT_ONCE = 2048

MAX_NOISE = 0.02
"""Largest share of noise in the variance of a joint's accelerations for which the attenuation that
it causes is a small change, which estimators count as an unknown."""

# Share at which a spline is smooth enough.
_SMOOTH = 1e-5

Channels = Callable[[Array, Array, Array], Array]
"""Function of positions, velocities and accelerations, (k, n) each, with values (k, …)."""


@dataclass(frozen=True)
class Kinematics:
    """Positions, velocities and accelerations of n joints at k instants, each of shape (k, n)."""

    position: Array
    velocity: Array
    acceleration: Array

    def values_of(self, function: Channels) -> Array:
        """Return a function's values at all instants, shape (k, …)."""
        parts = [slice(at, at + _AT_ONCE) for at in range(0, len(self.position), _AT_ONCE)]
        return np.concatenate([
            function(self.position[part], self.velocity[part], self.acceleration[part])
            for part in parts])


@dataclass(frozen=True)
class Blocks:
    """Recording in blocks of equal duration.

    Attributes:
        edges: Borders, shape (k + 1,) [s].
        centre: Kinematics at the middle of each block, shape (k, n) each.
        slowest: Lowest speed of each joint in each block, shape (k, n) [rad/s].
        repeats: Number of repeats of a periodic motion, each of the same number of blocks at the
            same places of the motion; 1 otherwise.
        known: Blocks whose motion is known, away from gaps of the joint states, shape (k,).
        noise: Share of noise in the variance of the accelerations of each joint, shape (n,).
        account: Sentences on which part of the recording is used.

    """

    edges: Array
    centre: Kinematics
    slowest: Array
    repeats: int
    known: Flags
    noise: Array
    account: str
    nodes: tuple[Kinematics, ...]
    _window: float

    @classmethod
    def of(cls, samples: JointSamples, band: float, min_motion: float) -> Blocks:
        """Return the blocks of the window in which a motion repeats, or of the whole recording.

        Args:
            samples: Joint states.
            band: Upper limit of the excitation band [Hz].
            min_motion: Least joint travel of an exciting recording [rad].

        Raises:
            DataError: If the recording is too coarse, too short, or not exciting.

        """
        if len(samples) < 2:
            raise DataError('No joint states are recorded; call run, or play a bag first.')
        time, position = samples.time, samples.position
        period = float(np.median(np.diff(time)))
        if period * _LEAST_RATE * band > 1.0:
            raise DataError(
                f'Joint states arrive at {1.0 / period:.0f} Hz; a band of {band} Hz needs at '
                f'least {_LEAST_RATE * band:.0f} Hz. Raise the rate or lower band.')
        if float(np.ptp(position, axis=0).max()) < min_motion:
            raise DataError(
                f'No joint moved by more than {min_motion} rad in this record; expected an '
                'exciting motion. Call run, or play a bag with one.')
        samples_each = max(1, round(1.0 / (_BLOCKS_PER_PERIOD * band * period)))
        length = samples_each * period
        # Margin for end effects of the spline.
        edge = 1.0 / band
        count = int((time[-1] - time[0] - 2.0 * edge) / length)
        if count < _LEAST_BLOCKS:
            raise DataError(f'The record lasts {time[-1] - time[0]:.2f} s, too short to excite '
                            'anything; several seconds are needed.')
        curve: Curve
        lost, motion = gaps(time), periodic_motion(time, position, _POSITION_CUTOFF * band)
        if motion is not None:
            each, repeats, curve, noise = (round(motion.period / length), motion.repeats,
                                           motion.at, motion.noise)
            length = motion.period / each
            # Borders lie between stamps, where a whole number of them falls into a block.
            place = int(np.searchsorted(time, motion.start + 0.5 * period))
            edges = time[max(place - 1, 0)] - 0.5 * period + length * np.arange(each * repeats + 1)
            around = (edges[0] - time[0], time[-1] - edges[-1])
            account = (f'The motion repeats {repeats} times every {motion.period:.2f} s; '
                       f'{max(around[0], 0.0):.1f} s before and {max(around[1], 0.0):.1f} s after '
                       'it are left out.')
        else:
            curve, noise = _smooth_motion(time, position)
            repeats, account = 1, 'The motion does not repeat; the whole recording is used.'
            edges = time[0] + edge - 0.5 * period + length * np.arange(count + 1)
        if len(lost):
            account += (f' {len(lost)} gaps of the joint states, {np.ptp(lost, axis=1).sum():.2f} '
                        's in all, are left out.')
        middle = 0.5 * (edges[:-1] + edges[1:])
        # Evenly spaced samples have the variance of a slightly shorter continuous block.
        reach = length * np.sqrt(1.0 - 1.0 / samples_each**2)
        nodes = tuple(Kinematics(*curve(middle + reach * node)) for node in _NODES)
        known = ~in_gap(time, middle, 1.5 * length if repeats > 1 else 0.5 * length + edge)
        return cls(edges, Kinematics(*curve(middle)),
                   _slowest(np.array([node.velocity for node in nodes])), repeats, known, noise,
                   account, nodes, reach)

    @property
    def period(self) -> float:
        """Duration of a block [s]."""
        return float(self.edges[1] - self.edges[0])

    @property
    def fundamental(self) -> npt.NDArray[np.complex128]:
        """Fundamental of the positions over one repeat, whose phase gives its place [rad]."""
        once = self.centre.position[:len(self.centre.position) // self.repeats]
        found: npt.NDArray[np.complex128] = np.fft.rfft(once, axis=0)[1] * (2.0 / len(once))
        return found

    def means(self, function: Channels) -> Array:
        """Return the means over the blocks of a function of the motion, shape (k, …)."""
        return np.asarray(sum(weight * node.values_of(function) for weight, node in zip(
            _WEIGHTS, self.nodes, strict=True)))

    def means_of_velocity(self, function: Callable[[Array], Array]) -> Array:
        """Return the means over the blocks of a function of all velocities, shape (k, …).

        Args:
            function: Of the velocities at one instant of each block, shape (k, n).

        """
        return np.asarray(sum(weight * function(node.velocity) for weight, node in zip(
            _WEIGHTS, self.nodes, strict=True)))

    def seen(self, time: Array) -> Flags:
        """Return the blocks away from gaps of joint states and other stamps, shape (k,)."""
        return np.asarray(self.known & ~in_gap(
            time, 0.5 * (self.edges[:-1] + self.edges[1:]), 1.5 * self.period))

    def sample_means(self, time: Array, values: Array) -> Array:
        """Return the means over the blocks of measured values.

        A mean whose stamps are off the middle of the block, as after a loss, or spread otherwise
        than those of the joint states, as at another rate, is corrected by slope and curvature.
        Between sparse samples, blocks without one are interpolated; those in a gap are to be left
        out (``known``, ``seen``).

        Args:
            time: Stamps, shape (m,) [s].
            values: Shape (m, c).

        Returns:
            Shape (k, c).

        Raises:
            DataError: If less than half of the blocks have a sample.

        """
        blocks = len(self.edges) - 1
        middle = 0.5 * (self.edges[:-1] + self.edges[1:])
        off = time - middle[np.clip(np.searchsorted(self.edges, time, side='right') - 1,
                                    0, blocks - 1)]
        filled, means = means_between(self.edges, time, np.column_stack((off, off**2, values)))
        if len(filled) < 0.5 * blocks:
            raise DataError(
                f'Only {len(filled)} of {blocks} stretches of {1e3 * self.period:.0f} ms hold a '
                'measured value; at least half of them must. Raise the rate of the sensor, or '
                'find what loses its messages.')
        off, spread, means = means[:, 0], means[:, 1] - means[:, 0]**2, means[:, 2:]
        stamps = middle[filled] + off - self.edges[0]
        slope = np.gradient(means, stamps, axis=0, edge_order=2)
        curvature = np.gradient(slope, stamps, axis=0, edge_order=2)
        means += 0.5 * (self._window**2 / 12.0 - spread)[:, None] * curvature
        means -= off[:, None] * slope
        return np.column_stack([np.interp(middle, middle[filled], c) for c in means.T])


def derivatives(blocks: Blocks, values: Array) -> tuple[Array, Array, Array]:
    """Return values at the middles of the blocks, and their first two derivatives.

    Args:
        blocks: The blocks.
        values: Shape (k, c); they are interpolated by a quintic spline.

    """
    time: Array = blocks.period * np.arange(len(values), dtype=float)
    return _curve(scipy.interpolate.make_interp_spline(time, values, k=5))(time)


def _smooth_motion(time: Array, position: Array) -> tuple[Curve, Array]:
    """Return positions and derivatives as functions of time, and the noise of accelerations.

    Positions are a quintic spline of least squares. Splines through the two halves of the samples
    err independently, so half of their difference is the noise of a spline through all. The most
    knots are chosen with which its share is negligible; what the spline does not follow is in no
    regressor, and biases nothing.

    Args:
        time: Stamps, shape (k,) [s].
        position: Shape (k, n) [rad].

    Returns:
        The function, and the share of noise in the variance of each joint, shape (n,).

    """
    period = float(np.median(np.diff(time)))
    number = np.arange(len(time)) // max(1, round(_APART / period))
    inner = time[::max(1, round(_APART / period))]
    inner = inner[~in_gap(time, inner, _MARGIN)]
    inner = inner[(inner > time[0] + _MARGIN) & (inner < time[-1] - _MARGIN)]
    least = np.full(position.shape[1], np.inf)
    for cutoff in _CUTOFFS[max(period, _APART) * _CUTOFFS <= _MOST_KNOTS]:
        whole, *halves = (_spline(time[part], position[part], 0.5 / cutoff) for part in (
            number >= 0, number % 2 == 0, number % 2 == 1))
        one, other = (half.derivative(2)(inner) for half in halves)
        noise = 0.25 * np.mean((one - other)**2, axis=0)
        share = share_of_noise(noise, whole.derivative(2)(inner))
        if share.max() < least.max():
            best, least = whole, share
        if least.max() <= _SMOOTH:
            break
    return _curve(best), least


def _spline(time: Array, values: Array, spacing: float) -> scipy.interpolate.BSpline:
    """Return a quintic spline of least squares; knots with no sample between are left out."""
    knots = np.arange(time[0] + spacing, time[-1] - 0.5 * spacing, spacing)
    _, first = np.unique(np.searchsorted(time, knots), return_index=True)
    return scipy.interpolate.make_lsq_spline(
        time, values, np.concatenate((time[:1].repeat(6), knots[first], time[-1:].repeat(6))), k=5)


def low_passed(values: Array, period: float, cutoff: float) -> Array:
    """Return evenly spaced values after a zero-phase low-pass filter.

    Args:
        values: Shape (k, c).
        period: Time between values [s].
        cutoff: Frequency of half amplitude [Hz].

    """
    sections = scipy.signal.butter(4, 2.0 * cutoff * period, output='sos')
    return np.asarray(scipy.signal.sosfiltfilt(sections, values, axis=0))


def _slowest(velocity: Array) -> Array:
    """Return the lowest speed within each block, 0 at reversals, shape (k, n).

    Args:
        velocity: At the nodes of each block, shape (nodes, k, n) [rad/s].

    """
    low, high = velocity.min(axis=0), velocity.max(axis=0)
    return np.where(low * high > 0.0, np.minimum(np.abs(low), np.abs(high)), 0.0)
