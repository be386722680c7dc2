# SPDX-License-Identifier: Apache-2.0
"""Block averages of an exciting recording: measurements and regressors over the same blocks.

Averaging both sides of the equation is unbiased and leaves white noise white. Positions of the
window in which a motion repeats are a Fourier series, those of any other recording a spline with
as few knots as the noise demands, both without phase error. Noise of encoders and stamps in the
accelerations would attenuate the estimates: its share is estimated from halves of the samples.
Functions of the motion are averaged by Gauss-Legendre quadrature with five nodes per block.

A motion that repeats has content at multiples of its base frequency only; everything between them
is noise. The harmonics that rise above that noise are fitted to all repeats at once, with the base
frequency, an offset and a slow trend, and are differentiated analytically (Swevers, Ganseman,
Tükel, De Schutter, Van Brussel, IEEE Trans. Robot. Autom. 13 (1997) 730, doi 10.1109/70.631234;
Pintelon, Schoukens, System Identification: A Frequency Domain Approach, 2nd ed., ch. 2). With N
samples, noise of an encoder step falls by √N, where numerical differentiation amplifies it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from robocal_ros.arrays import Array, Flags
from robocal_ros.errors import DataError
from robocal_ros.estimation.signals import gaps, in_gap, runs
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

# Of periodic motions.
# Rate of the search for periods [Hz], and largest number of samples compared.
_SEARCH_RATE = 50.0
_SEARCH_SAMPLES = 3000
_SHORTEST = 1.0
# Largest difference of repeats, as a share of the motion's RMS.
_REPEATABILITY = 0.01
_MOVING_SHARE = 0.02
# Longest difference that is bridged [s], share of a period that may lack at the ends, least power
# of a window, as a share, and length of a window that is as good as the longest one.
_BRIDGED = 0.1
_SLACK = 0.02
_LEAST_POWER = 0.25
_AS_LONG = 0.9
# Power of a harmonic over that of the noise beside it. Noise alone reaches it at one line in
# 8,000 (exponential distribution).
_SIGNIFICANT = 9.0
_MOST_HARMONICS = 150
# Number of consecutive harmonics without content that ends the series.
_GAP = 5
_FIT_RATE = 200.0
_OUTLIER = 6.0
_LEAST_OUTLIER = 2e-3
_PERIOD_STEPS = 4
# Least power of accelerations of which the share of noise counts, relative to the fastest joint.
_LEAST_SHARE = 0.01

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
        return function(self.position, self.velocity, self.acceleration)


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
                f'Joint states have new values at {1.0 / period:.0f} Hz; a band of {band} Hz '
                f'needs at least {_LEAST_RATE * band:.0f} Hz. Raise the rate or lower band.')
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
        velocity = np.array([node.velocity for node in nodes])
        # 0 at reversals.
        slowest = np.maximum(np.maximum(velocity.min(axis=0), -velocity.max(axis=0)), 0.0)
        return cls(edges, Kinematics(*curve(middle)), slowest, repeats, known, noise, account,
                   nodes, reach)

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


@dataclass(frozen=True)
class PeriodicMotion:
    """Joint positions over whole periods: a Fourier series with a linear trend.

    Attributes:
        start: Start of the first whole period [s].
        period: Length of a period [s].
        repeats: Number of whole periods.
        noise: Share of noise in the variance of the accelerations of each joint, shape (n,).

    """

    start: float
    period: float
    repeats: int
    noise: Array
    _coefficients: Array

    @property
    def harmonics(self) -> int:
        """Number of harmonics."""
        return (len(self._coefficients) - 2) // 2

    def at(self, time: Array) -> tuple[Array, Array, Array]:
        """Return positions, velocities and accelerations.

        Args:
            time: Shape (k,) [s].

        Returns:
            Three arrays of shape (k, n).

        """
        basis = _basis(time - self.start, self.period, self.harmonics)
        position, velocity, acceleration = (item @ self._coefficients for item in basis)
        return position, velocity, acceleration


def periodic_motion(time: Array, position: Array, max_frequency: float) -> PeriodicMotion | None:
    """Fit a motion that is repeated at least twice.

    Args:
        time: Stamps, strictly increasing, shape (k,) [s].
        position: Joint positions, shape (k, n) [rad].
        max_frequency: Highest frequency of a harmonic [Hz].

    Returns:
        The fitted series, or None if the motion does not repeat.

    """
    found = _search(time, position)
    if found is None:
        return None
    start, period, repeats = found
    inside = (time >= start) & (time <= start + repeats * period)
    time, position = _thinned(time[inside], position[inside])
    size = np.sqrt(np.mean((position - position.mean(axis=0)) ** 2))
    for _ in range(_PERIOD_STEPS):
        count = _significant(time, position, period, repeats, max_frequency)
        coefficients, residual = _fitted(time - start, position, period, count)
        basis, rate, _ = _basis(time - start, period, count)
        # A longer period delays the series in proportion to the time since the start; what the
        # coefficients can follow of that is theirs (variable projection, Golub and Pereyra).
        slope = -(time - start)[:, None] / period * (rate @ coefficients - coefficients[1])
        slope -= basis @ np.linalg.lstsq(basis, slope, rcond=None)[0]
        change = float(np.sum(slope * residual) / np.sum(slope**2))
        period += change
        if abs(change) < 1e-7 * period:
            break
    coefficients, residual = _fitted(time - start, position, period, count)
    if float(np.sqrt(np.mean(residual**2))) > _REPEATABILITY * size:
        return None
    # Each coefficient has twice the variance of the positions over their number.
    pulsation = 2.0 * np.pi / period * np.arange(1, count + 1)
    noise = np.mean(residual**2, axis=0) * 2.0 / len(time) * np.sum(pulsation**4)
    return PeriodicMotion(start, period, repeats, share_of_noise(
        noise, _basis(time - start, period, count)[2] @ coefficients), coefficients)


def share_of_noise(noise: Array, acceleration: Array) -> Array:
    """Return the share of noise in accelerations; joints that hardly accelerate count as others.

    Args:
        noise: Variance of the noise of each joint, shape (n,).
        acceleration: Shape (k, n).

    """
    size = np.mean(acceleration**2, axis=0)
    return np.asarray(noise / np.maximum(size, _LEAST_SHARE * size.max()))


def _basis(time: Array, period: float, harmonics: int) -> tuple[Array, Array, Array]:
    """Return offset, trend, cosines and sines, and their first two derivatives, (k, 2 + 2h)."""
    pulsation = 2.0 * np.pi / period * np.arange(1, harmonics + 1)
    phase = np.outer(time, pulsation)
    cosine, sine = np.cos(phase), np.sin(phase)
    one, zero = np.ones((len(time), 1)), np.zeros((len(time), 1))
    return (np.hstack((one, time[:, None], cosine, sine)),
            np.hstack((zero, one, -sine * pulsation, cosine * pulsation)),
            np.hstack((zero, zero, -cosine * pulsation**2, -sine * pulsation**2)))


def _fitted(time: Array, position: Array, period: float, harmonics: int) -> tuple[Array, Array]:
    """Return the coefficients, shape (2 + 2h, n), and residuals; outliers are left out."""
    basis = _basis(time, period, harmonics)[0]
    coefficients: Array = np.asarray(np.linalg.lstsq(basis, position, rcond=None)[0], dtype=float)
    residual = position - basis @ coefficients
    # What the series does not follow, as at the ends of a motion, is no outlier: without it the
    # series would be free there.
    scale = np.maximum(1.4826 * np.median(np.abs(residual), axis=0),
                       _LEAST_OUTLIER * position.std(axis=0)) + 1e-12
    good: Flags = np.all(np.abs(residual) <= _OUTLIER * scale, axis=1)
    # Without samples over a quarter of the shortest wave the series would be arbitrary there.
    for first, end in runs(~good):
        if time[end - 1] - time[first] > 0.25 * period / harmonics:
            good[first:end] = True
    if not good.all() and good.sum() > 2 * basis.shape[1]:
        coefficients = np.asarray(
            np.linalg.lstsq(basis[good], position[good], rcond=None)[0], dtype=float)
        residual = np.where(good[:, None], position - basis @ coefficients, 0.0)
    return coefficients, residual


def _thinned(time: Array, position: Array) -> tuple[Array, Array]:
    """Return means of neighbouring samples at no more than some rate."""
    each = int(1.0 / (_FIT_RATE * np.median(np.diff(time))))
    if each < 2:
        return time, position
    count = len(time) // each * each
    return (time[:count].reshape(-1, each).mean(axis=1),
            position[:count].reshape(-1, each, position.shape[1]).mean(axis=1))


def means_between(edges: Array, time: Array, values: Array) -> tuple[npt.NDArray[np.intp], Array]:
    """Return the intervals that hold a value, shape (m,), and the means there, shape (m, c).

    Args:
        edges: Borders of the intervals, shape (k + 1,) [s].
        time: Stamps, increasing, shape (n,) [s].
        values: Shape (n, c).

    """
    sums = np.concatenate((np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)))
    borders = np.searchsorted(time, edges)
    filled = np.flatnonzero(np.diff(borders))
    return filled, ((sums[borders[filled + 1]] - sums[borders[filled]])
                    / np.diff(borders)[filled, None])


def _search(time: Array, position: Array) -> tuple[float, float, int] | None:
    """Return begin, rough period and number of whole periods of the window that repeats.

    A window is where positions come back after the same time; approaches, returns and pauses
    beside it do not. The window of the longest path is chosen. None if nothing repeats.
    """
    step = max(1.0 / _SEARCH_RATE, (time[-1] - time[0]) / _SEARCH_SAMPLES)
    grid = np.arange(time[0], time[-1], step)
    if len(grid) < 10:
        return None
    # Differences of running means: free of steps, whatever the rate.
    filled, means = means_between(np.append(grid, grid[-1] + step), time, position)
    track = np.column_stack([np.interp(grid, grid[filled], column) for column in means.T])
    unknown = in_gap(time, grid, step)
    half = max(1, round(0.05 / step))
    speed = np.zeros(len(track))
    speed[half:-half] = np.abs(track[2 * half:] - track[:-2 * half]).max(axis=1)
    moving = speed > _MOVING_SHARE * speed.max()
    if not moving.any():
        return None
    path = np.concatenate(([0.0], np.cumsum(np.linalg.norm(np.diff(track, axis=0), axis=1))))
    power = float(np.sum(np.var(track[moving], axis=0)))
    # Half a step beside the period, repeats differ by as much as the arm moves in that time.
    limit = 2.0 * _REPEATABILITY**2 * power + np.sum(np.gradient(track, axis=0)**2, axis=1)
    # Single outliers and losses are bridged.
    bridge = 2 * round(_BRIDGED / step) + 1
    windows: dict[int, tuple[float, float, int, int]] = {}
    # Steps are longer than the shortest period in recordings of hours.
    shortest = max(1, round(_SHORTEST / step))
    for lag in range(shortest, int(0.52 * len(track))):
        difference = np.sum((track[lag:] - track[:-lag])**2, axis=1)
        known = ~(unknown[lag:] | unknown[:-lag])
        alike = (difference < limit[lag:]) | ~known
        alike = np.convolve(alike, np.ones(bridge), mode='same') > 0.5 * bridge
        found = [(path[stop - 1 + lag] - path[start], start, stop) for start, stop in runs(alike)
                 if stop - start > (1.0 - _SLACK) * lag]
        if not found:
            continue
        length, start, stop = max(found)
        apart = difference[start:stop][known[start:stop]]
        if np.sum(np.var(track[start:stop + lag], axis=0)) > _LEAST_POWER * power:
            # Of a window within a gap, nothing is known.
            mean = float(np.mean(apart)) if len(apart) else np.nan
            windows[lag] = (mean, length, start, stop)
    size = {lag: window[0] for lag, window in windows.items()}
    # Where the arm has hardly moved since is no repeat, but any minimum behind is.
    dips = [lag for lag in windows if lag > shortest and size[lag] <= min(
        size.get(lag - 1, np.inf), size.get(lag + 1, np.inf))]
    if not dips:
        return None
    longest = max(windows[lag][1] for lag in dips)
    dip = next(lag for lag in dips if windows[lag][1] > _AS_LONG * longest)
    _, _, start, stop = windows[dip]
    left, middle, right = (float(np.mean(np.sum((
        track[start + lag:stop + lag] - track[start:stop][:len(track) - start - lag])**2, axis=1)))
        for lag in (dip - 1, dip, dip + 1))
    curvature = left - 2.0 * middle + right
    shift = 0.5 * (left - right) / curvature if curvature > 0.0 else 0.0
    period = (dip + shift) * step
    # Approaches and rests beside the window come near the motion at its ends.
    whole = (stop - start + dip) * step
    repeats = int(whole / period + _SLACK)
    begin = grid[start] + 0.5 * (whole - repeats * period)
    begin = min(max(begin, time[0]), time[-1] - repeats * period)
    if begin < time[0] - step:
        repeats -= 1
        begin = float(grid[start])
    return (float(begin), float(period), repeats) if repeats >= 2 else None


def _significant(time: Array, position: Array, period: float, repeats: int, highest: float) -> int:
    """Return the number of harmonics that rise above the noise between them."""
    rate = 1.0 / float(np.median(np.diff(time)))
    # The grid is that of the samples: interpolation between them would attenuate the noise.
    each = max(8, round(rate * period))
    grid = time[0] + period / each * np.arange(each * repeats)
    values = np.column_stack([np.interp(grid, time, column) for column in position.T])
    # Across a gap, positions are those of the other repeats.
    parts, lost = values.reshape(repeats, each, -1), in_gap(time, grid, 0.0).reshape(repeats, each)
    others = np.sum(np.where(lost[:, :, None], 0.0, parts), axis=0) / np.maximum(
        np.sum(~lost, axis=0), 1)[:, None]
    parts[:] = np.where((lost & ~lost.all(axis=0))[:, :, None], others, parts)
    # The trend is what the repeats differ by: a line through all values would take a part of the
    # motion for a trend, whose lines hide weak harmonics.
    trend = (values[each:] - values[:-each]).mean(axis=0) / each
    values = values - values.mean(axis=0) - np.arange(len(grid))[:, None] * trend
    power = np.abs(np.fft.rfft(values, axis=0)) ** 2
    most = min(int(highest * period), _MOST_HARMONICS, each // 2 - 2)
    # An encoder that stands alike in each repeat errs alike: this noise is in the harmonics too.
    # Beyond the band, but not where means of samples attenuate it. The mean of an exponential
    # distribution is its median divided by ln 2.
    above = slice(min(most, each // 4) + 1, min(3 * most, each // 2 - 1))
    floor = np.median(power[::repeats][above], axis=0) / np.log(2.0)
    kept = 1
    for harmonic in range(1, most + 1):
        lines = np.arange(max((harmonic - 2) * repeats, 1), (harmonic + 3) * repeats)
        between = power[lines[lines % repeats != 0]].mean(axis=0)
        noise = np.maximum(between, floor)
        if (power[harmonic * repeats] > _SIGNIFICANT * noise).any():
            kept = harmonic
        elif harmonic - kept >= _GAP:
            break
    return kept
