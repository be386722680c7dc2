# SPDX-License-Identifier: Apache-2.0
"""Zero-phase derivatives, and detection of constant-velocity sweeps and dwells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robocal_ros.arrays import Array, Flags
from robocal_ros.messages import JointSamples

SLOWEST_SWEEP = 0.02
"""Default lower limit of the speed of sweeps [rad/s]."""

# Stamps farther apart end an interval [s].
_MAX_GAP = 0.1
# Usual steps between stamps that are no gap where stamps are far apart.
_MANY_STEPS = 4.0
# Speed below which a joint rests, by differentiated positions [rad/s].
_STILL = 0.003
# Half the length of the chords of that speed [s].
_CHORD = 0.05
# Positions nearer to each other are equal but for rounding [rad].
_EQUAL = 1e-9
# Distance from a multiple of the encoder's step, over the step, by rounding.
_MULTIPLE = 0.05
# Half-length of a chord in which one encoder step is just slower than a speed, times that speed
# over the step.
_ONE_STEP = 0.51


@dataclass(frozen=True)
class Sweep:
    """Interval in which one joint turns at constant speed and all others rest.

    Attributes:
        joint: Index of the moving joint.
        start: First sample.
        stop: One past the last sample.
        speed: Mean signed speed [rad/s].
        posture: Mean joint angles, shape (n,) [rad].
        span: Angle covered [rad].
        wander: Relative standard deviation of the speed, where it exceeds the tolerance; else 0.

    """

    joint: int
    start: int
    stop: int
    speed: float
    posture: Array
    span: float
    wander: float = 0.0

    @classmethod
    def of(cls, samples: JointSamples, joint: int, start: int, stop: int) -> Sweep:
        """Return an interval of joint states, at its mean speed."""
        position, time = samples.position[start:stop], samples.time[start:stop]
        angles = position[:, joint]
        return cls(joint, start, stop, float((angles[-1] - angles[0]) / np.ptp(time)),
                   position.mean(axis=0), float(np.ptp(angles)))

    @property
    def direction(self) -> int:
        """Return +1 or -1."""
        return 1 if self.speed > 0.0 else -1


@dataclass(frozen=True)
class Dwell:
    """Interval in which no joint moves.

    Attributes:
        start: First sample.
        stop: One past the last sample.
        posture: Mean joint angles, shape (n,) [rad].

    """

    start: int
    stop: int
    posture: Array


def encoder_steps(position: Array) -> Array:
    """Return the quantisation of positions, 0 where there is none, shape (n,) [rad].

    All positions of a joint differ by multiples of it, and some samples are a step from equal
    ones on either side, or go back and forth: those of an exact steady motion are not.
    """
    steps = np.zeros(position.shape[1])
    for joint, column in enumerate(position.T):
        change = np.diff(column)
        moved = np.abs(change) > _EQUAL
        alone = moved[1:-1] & ~moved[:-2] & ~moved[2:]
        back = moved[1:] & moved[:-1] & (change[1:] * change[:-1] < 0.0)
        gaps = np.diff(np.unique(column))
        gaps = gaps[gaps > _EQUAL]
        if len(gaps) and (alone.any() or back.any()):
            multiples = gaps / gaps.min()
            steps[joint] = gaps.min() * (np.abs(multiples - np.round(multiples)) < _MULTIPLE).all()
    return steps


def central_velocity(time: Array, position: Array, half_width: float | Array = 0.05) -> Array:
    """Return velocities by central differences, without phase error.

    The slope of the chord from ``t - half_width`` to ``t + half_width`` (shortened at the
    ends); positions between samples by linear interpolation, so stamps may be uneven.

    Args:
        time: Stamps, strictly increasing, shape (k,) [s].
        position: Joint angles, shape (k, n) [rad].
        half_width: Half the length of the chord, one or one for each joint [s].

    Returns:
        Velocities, shape (k, n) [rad/s].

    """
    speeds = []
    for column, half in zip(position.T, np.broadcast_to(half_width, position.shape[1]),
                            strict=True):
        early, late = np.maximum(time - half, time[0]), np.minimum(time + half, time[-1])
        speeds.append((np.interp(late, time, column) - np.interp(early, time, column))
                      / np.maximum(late - early, np.finfo(float).tiny))
    return np.column_stack(speeds)


def _chords(steps: Array, speed: float, half_width: float) -> Array:
    """Return half-lengths of chords in which one encoder step is slower than a speed [s].

    Args:
        steps: Encoder steps of the joints, shape (n,) [rad].
        speed: The speed [rad/s].
        half_width: Least half-length [s].

    """
    return np.maximum(half_width, _ONE_STEP * steps / speed)


def runs(mask: np.ndarray) -> list[tuple[int, int]]:
    """Return the (start, stop) pairs of the intervals where ``mask`` is true."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def gaps(time: Array) -> Array:
    """Return begin and end of the intervals in which samples are lost, shape (g, 2) [s]."""
    steps = np.diff(time)
    at = np.flatnonzero(steps > max(_MAX_GAP, _MANY_STEPS * float(np.median(steps))))
    return np.column_stack((time[at], time[at + 1]))


def in_gap(time: Array, at: Array, reach: float) -> Flags:
    """Return whether instants are within a distance of a gap.

    Args:
        time: Stamps, shape (k,) [s].
        at: Instants, shape (m,) [s].
        reach: Distance [s].

    """
    begin, end = gaps(time).T
    first = np.searchsorted(end + reach, at, side='right')
    return np.asarray(at > np.append(begin - reach, np.inf)[first])


def _without_gaps(time: Array, mask: np.ndarray) -> list[tuple[int, int]]:
    """Split the intervals of ``mask`` at gaps of the stamps."""
    cuts = 1 + np.flatnonzero((np.diff(time) > _MAX_GAP) & mask[1:] & mask[:-1])
    borders = np.sort(np.concatenate((np.ravel(runs(mask)), cuts, cuts))).astype(int)
    return [(int(a), int(b)) for a, b in borders.reshape(-1, 2)]


def _trimmed(time: Array, start: int, stop: int, settle: float) -> tuple[int, int]:
    """Cut ``settle`` seconds from both ends."""
    part = time[start:stop]
    first = start + int(np.searchsorted(part, part[0] + settle))
    last = start + int(np.searchsorted(part, part[-1] - settle, side='right'))
    return first, max(first, last)


def steady_sweeps(
    samples: JointSamples, *, min_speed: float = SLOWEST_SWEEP, max_speed: float = np.inf,
    still_speed: float = 0.01, tolerance: float = 0.05, settle: float = 0.3,
    min_span: float = 0.05, half_width: float = 0.05,
) -> list[Sweep]:
    """Find intervals in which one joint turns at constant speed while all others rest.

    Speeds are differentiated positions, not commands, so that any recording is treated alike.

    Args:
        samples: Joint states.
        min_speed: Lower limit of the speed [rad/s].
        max_speed: Upper limit of the speed [rad/s].
        still_speed: Upper limit of the speed of resting joints [rad/s].
        tolerance: Allowed relative deviation from the median speed.
        settle: Time cut from both ends of every interval [s].
        min_span: Shortest angle [rad].
        half_width: Half the length of the chord of the speed; slow speeds need a long one
            because of encoder quantisation [s].

    Returns:
        The sweeps in the order of time.

    """
    if len(samples) < 3:
        return []
    velocity, steps = (central_velocity(samples.time, samples.position, half_width),
                       encoder_steps(samples.position))
    turning = (np.abs(velocity) > min_speed) & (np.abs(velocity) <= max_speed)
    still = np.abs(central_velocity(samples.time, samples.position, _chords(
        steps, still_speed, half_width))) < still_speed
    sweeps = []
    for joint in range(velocity.shape[1]):
        alone = turning[:, joint] & (np.delete(still, joint, axis=1)).all(axis=1)
        for sign in (1.0, -1.0):
            mask = alone & (velocity[:, joint] * sign > 0.0)
            for start, stop in _without_gaps(samples.time, mask):
                speed = velocity[start:stop, joint]
                plateau = float(np.median(speed))
                # Encoder steps, one at each end of a chord, change the speed.
                allowed = tolerance * abs(plateau) + steps[joint] / half_width
                parts = [_trimmed(samples.time, start + begin, start + end, settle)
                         for begin, end in runs(np.abs(speed - plateau) <= allowed)]
                sweeps += [Sweep.of(samples, joint, *part) for part in parts
                           if part[1] - part[0] >= 3]
    return sorted((sweep for sweep in sweeps if sweep.span >= min_span),
                  key=lambda sweep: sweep.start)


def dwells(
    samples: JointSamples, *, settle: float = 0.15, min_duration: float = 0.3
) -> list[Dwell]:
    """Find intervals in which the whole arm rests.

    Args:
        samples: Joint states.
        settle: Time cut from both ends of every interval [s].
        min_duration: Shortest duration after cutting [s].

    Returns:
        The dwells in the order of time.

    """
    if len(samples) < 3:
        return []
    chords = _chords(encoder_steps(samples.position), _STILL, _CHORD)
    velocity = central_velocity(samples.time, samples.position, chords)
    mask: Flags = np.all(np.abs(velocity) < _STILL, axis=1)
    # Longer chords end farther from motion by themselves.
    settle, found = max(0.0, settle - float(chords.max()) + _CHORD), []
    for start, stop in _without_gaps(samples.time, mask):
        first, last = _trimmed(samples.time, start, stop, settle)
        if last - first < 3 or samples.time[last - 1] - samples.time[first] < min_duration:
            continue
        found.append(Dwell(first, last, samples.position[first:last].mean(axis=0)))
    return found
