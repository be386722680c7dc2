# SPDX-License-Identifier: Apache-2.0
"""Block averages of an exciting recording: measurements and regressors over the same blocks.

Averaging both sides of the equation is unbiased and leaves white noise white. Positions of a
repeated motion are a Fourier series (``periodic``), those of any other are low-passed and
interpolated by splines, both without phase error and with hardly any noise in the derivatives,
which would attenuate the estimates; functions of them are averaged by Gauss-Legendre quadrature
with five nodes per block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.estimation.periodic import means_between, periodic_motion
from robocal_ros.messages import JointSamples


def interpolated(
    start: float, period: float, values: Array
) -> Callable[[Array], tuple[Array, Array, Array]]:
    """Return a quintic spline through evenly spaced values.

    Args:
        start: Time of the first value [s].
        period: Time between values [s].
        values: Shape (k, c).

    Returns:
        A function of times within the record, shape (m,) [s], that returns the values there and
        their first two derivatives, each of shape (m, c).

    """
    spline = scipy.interpolate.make_interp_spline(
        start + period * np.arange(len(values)), values, k=5)
    slope, curvature = spline.derivative(), spline.derivative(2)
    return lambda time: (spline(time), slope(time), curvature(time))


_NODES, _WEIGHTS = (0.5 * part for part in np.polynomial.legendre.leggauss(5))
_BLOCKS_PER_PERIOD = 5.0
# Well above the band, so that jerks at reversals of drives pass; low enough to suppress the
# acceleration noise of encoder steps.
_POSITION_CUTOFF = 6.0
_LEAST_RATE = 4.0
# Power of the motion over that of the noise at the cutoff, the resolution of both, and the lowest
# cutoff [Hz].
_ABOVE_NOISE = 2.0
_RESOLUTION = 0.5
_LOWEST_CUTOFF = 1.0
_LEAST_BLOCKS = 40
# Instants per batch, so that the data stay in the cache.
_AT_ONCE = 2048

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

    """

    edges: Array
    centre: Kinematics
    slowest: Array
    repeats: int
    nodes: tuple[Kinematics, ...]
    _window: float

    @classmethod
    def of(
        cls, samples: JointSamples, band: float, min_motion: float, highest: float = np.inf
    ) -> Blocks:
        """Return the blocks of joint states.

        Args:
            samples: Joint states.
            band: Upper limit of the excitation band [Hz].
            min_motion: Least joint travel of an exciting recording [rad].
            highest: Cutoff of positions that are known not to repeat, if it is below the one
                found [Hz].

        Raises:
            DataError: If the recording is too coarse, too short, or not exciting.

        """
        if len(samples) < 2:
            raise DataError('No joint states are recorded; call run, or play a bag first.')
        time, position = _uniform(samples, band)
        if float(np.ptp(position, axis=0).max()) < min_motion:
            raise DataError(
                f'No joint moved by more than {min_motion} rad in this record; expected an '
                'exciting motion. Call run, or play a bag with one.')
        period = time[1] - time[0]
        samples_each = max(1, round(1.0 / (_BLOCKS_PER_PERIOD * band * period)))
        length = samples_each * period
        # Margin for end effects of filter and spline.
        edge = 1.0 / band
        count = int((time[-1] - time[0] - 2.0 * edge) / length)
        if count < _LEAST_BLOCKS:
            raise DataError(f'The record lasts {time[-1] - time[0]:.2f} s, too short to excite '
                            'anything; several seconds are needed.')
        curve: Callable[[Array], tuple[Array, Array, Array]]
        motion = None if np.isfinite(highest) else periodic_motion(
            samples.time, samples.position, _POSITION_CUTOFF * band)
        if motion is not None:
            each, repeats, curve = round(motion.period / length), motion.repeats, motion.at
            length = motion.period / each
            # Borders lie between stamps, where a whole number of them falls into a block.
            place = int(np.searchsorted(time, motion.start + 0.5 * period))
            first = time[max(place - 1, 0)]
            edges = first - 0.5 * period + length * np.arange(each * repeats + 1)
        else:
            position = _smoothed(position, period, min(_POSITION_CUTOFF * band, highest))
            repeats, curve = 1, interpolated(time[0], period, position)
            edges = time[0] + edge - 0.5 * period + length * np.arange(count + 1)
        middle = 0.5 * (edges[:-1] + edges[1:])
        # Evenly spaced samples have the variance of a slightly shorter continuous block.
        reach = length * np.sqrt(1.0 - 1.0 / samples_each**2)
        nodes = tuple(Kinematics(*curve(middle + reach * node)) for node in _NODES)
        return cls(edges, Kinematics(*curve(middle)),
                   _slowest(np.array([node.velocity for node in nodes])), repeats, nodes, reach)

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
        return _averaged(node.values_of(function) for node in self.nodes)

    def velocity_means(self, function: Callable[[Array], Array]) -> Array:
        """Return the means over the blocks of a function of velocities alone, shape (k, …)."""
        return _averaged(function(node.velocity) for node in self.nodes)

    def sample_means(self, time: Array, values: Array) -> Array:
        """Return the means over the blocks of measured values.

        A mean whose stamps are off the middle of the block, as after a loss, or spread otherwise
        than those of the joint states, as at another rate, is corrected by slope and curvature.
        Blocks without a sample are interpolated.

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


def _averaged(values: Iterable[Array]) -> Array:
    """Return the quadrature over each block from the values at its nodes."""
    total: Array | float = 0.0
    for weight, part in zip(_WEIGHTS, values, strict=True):
        total = total + weight * part
    return np.asarray(total)


def _uniform(samples: JointSamples, band: float) -> tuple[Array, Array]:
    """Return evenly spaced stamps and positions."""
    period = float(np.median(np.diff(samples.time)))
    rate = 1.0 / period
    if rate < _LEAST_RATE * band:
        raise DataError(
            f'Joint states arrive at {rate:.0f} Hz; a band of {band} Hz needs at least '
            f'{_LEAST_RATE * band:.0f} Hz. Raise the rate or lower band.')
    time = samples.time[0] + period * np.arange(
        int((samples.time[-1] - samples.time[0]) / period) + 1)
    return time, np.column_stack([
        np.interp(time, samples.time, c) for c in samples.position.T])


def _smoothed(position: Array, period: float, highest: float) -> Array:
    """Return positions low-passed where the arm's motion no longer exceeds the noise.

    Beyond this frequency, derivatives are noise of the encoders, which attenuates what is
    estimated from them; it holds for each derivative alike. The noise is that of the upper half
    of the spectrum.

    Args:
        position: Evenly spaced, shape (k, n).
        period: Time between positions [s].
        highest: Highest cutoff [Hz].

    """
    # Mirrored at both ends, so that the spectrum holds no step.
    mirrored = np.concatenate((position, 2.0 * position[-1] - position[-2::-1]))
    mirrored = mirrored - np.linspace(mirrored[0], mirrored[-1], len(mirrored))
    window = np.hanning(len(mirrored))[:, None]
    power = np.abs(np.fft.rfft(mirrored * window, axis=0)) ** 2
    frequency = np.fft.rfftfreq(len(mirrored), period)
    width = max(3, int(_RESOLUTION * len(mirrored) * period))
    mean = np.column_stack([
        np.convolve(column, np.full(width, 1.0 / width), mode='same') for column in power.T])
    floor = np.median(mean[len(mean) // 2:], axis=0)
    noise = (mean < _ABOVE_NOISE * floor).all(axis=1) & (frequency > _LOWEST_CUTOFF)
    cutoff = min(float(frequency[np.argmax(noise)]) if noise.any() else highest, highest)
    if cutoff >= 0.4 / period:
        return position
    return low_passed(position, period, cutoff)


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
