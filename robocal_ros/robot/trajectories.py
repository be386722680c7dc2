# SPDX-License-Identifier: Apache-2.0
"""Trajectories: quintic moves, linear segments with parabolic blends, limits, speed scale.

A trajectory is a list of knots with position, velocity and (for quintics) acceleration: the
points of the goal sent to a joint trajectory controller. It interpolates as that controller
does: cubic through positions and velocities, quintic with accelerations.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import scipy

from robocal_ros.arrays import Array, freeze
from robocal_ros.errors import ConfigurationError, MotionError

# Peak velocity and acceleration of s(x) = 10x³ - 15x⁴ + 6x⁵ over 0 … 1.
_QUINTIC_PEAK_VELOCITY = 15.0 / 8.0
_QUINTIC_PEAK_ACCELERATION = 10.0 / np.sqrt(3.0)
# Points per segment, however short: a spline can overshoot between knots.
_MIN_POINTS = 5


@dataclass(frozen=True)
class Trajectory:
    """A motion of n joints.

    Attributes:
        time: Knot times from 0, strictly increasing, shape (k,) [s].
        position: Shape (k, n) [rad].
        velocity: Shape (k, n) [rad/s].
        acceleration: Shape (k, n) [rad/s²], or None for cubic interpolation.

    """

    time: Array
    position: Array
    velocity: Array
    acceleration: Array | None = None

    def __post_init__(self) -> None:
        """Freeze and check the arrays; raises MotionError."""
        freeze(self, 'time', 'position', 'velocity', 'acceleration')
        shape = self.position.shape
        arrays = [a for a in (self.position, self.velocity, self.acceleration) if a is not None]
        if any(a.shape != shape for a in arrays) or shape[0] != len(self.time):
            raise MotionError(
                'Knots of a trajectory must have one position, velocity and time each; got shapes '
                f'{self.time.shape}, {", ".join(str(a.shape) for a in arrays)}.')
        if not all(np.isfinite(a).all() for a in [*arrays, self.time]):
            raise MotionError('A knot of the trajectory is not finite; nothing was sent.')
        if len(self.time) < 2 or self.time[0] != 0.0 or (np.diff(self.time) <= 0.0).any():
            raise MotionError('Knot times must start at 0 and increase; nothing was sent.')

    @property
    def duration(self) -> float:
        """Time of the last knot [s]."""
        return float(self.time[-1])

    @property
    def start(self) -> Array:
        """First posture, shape (n,) [rad]."""
        return self.position[0]

    @property
    def goal(self) -> Array:
        """Last posture, shape (n,) [rad]."""
        return self.position[-1]

    @cached_property
    def _splines(self) -> list[scipy.interpolate.BPoly]:
        """Splines of position, velocity and acceleration."""
        given = [a for a in (self.position, self.velocity, self.acceleration) if a is not None]
        spline = scipy.interpolate.BPoly.from_derivatives(self.time, np.stack(given, axis=1))
        return [spline, spline.derivative(1), spline.derivative(2)]

    def sample(self, time: Array | float) -> tuple[Array, Array, Array]:
        """Return position, velocity and acceleration at given times, shape (m, n) each.

        Beyond the ends, the values there are held.

        Args:
            time: Times from the start, shape (m,) [s].

        """
        t = np.clip(time, 0.0, self.duration)
        position, velocity, acceleration = (spline(t) for spline in self._splines)
        return position, velocity, acceleration

    def dense(self, period: float = 0.01) -> Array:
        """Return times from start to end at most ``period`` apart, with those of the knots [s]."""
        pieces = [
            np.linspace(begin, end, max(_MIN_POINTS, int(np.ceil((end - begin) / period)) + 1))
            for begin, end in zip(self.time[:-1], self.time[1:], strict=True)]
        return np.unique(np.concatenate(pieces))

    def slowed(self, scale: float) -> Trajectory:
        """Return the same path at ``scale`` times the speed.

        Raises:
            ConfigurationError: If the scale is outside (0, 1].

        """
        if not 0.0 < scale <= 1.0:
            raise ConfigurationError(f'speed_scale must be above 0 and at most 1, got {scale}.')
        acceleration = None if self.acceleration is None else self.acceleration * scale**2
        return Trajectory(self.time / scale, self.position, self.velocity * scale, acceleration)


def quintic_path(
    postures: Array, max_velocity: Array, max_acceleration: Array, min_duration: float = 0.2
) -> Trajectory:
    """Return straight lines through several postures, at rest in each of them.

    Args:
        postures: At least two, shape (k, n) [rad].
        max_velocity: Shape (n,) [rad/s].
        max_acceleration: Shape (n,) [rad/s²].
        min_duration: Shortest duration of a line [s].

    """
    step = np.abs(np.diff(postures, axis=0))
    by_velocity = (_QUINTIC_PEAK_VELOCITY * step / max_velocity).max(axis=1)
    by_acceleration = np.sqrt((_QUINTIC_PEAK_ACCELERATION * step / max_acceleration).max(axis=1))
    duration = np.maximum(np.maximum(by_velocity, by_acceleration), min_duration)
    rest = np.zeros_like(postures)
    return Trajectory(np.concatenate(([0.0], np.cumsum(duration))), postures, rest, rest)


@dataclass(frozen=True)
class Lspb:
    """Linear segment with parabolic blends: accelerate, cruise, decelerate.

    q(t) = q0 + ½ a t² up to tb; q0 + v (t − tb/2) up to tf − te; qf − ½ b (tf − t)² up to tf;
    with a = v / tb, b = v / te and tb + te = 2 (q0 − qf + v tf) / v, mirrored when qf < q0. Both
    blends are equal unless the first acceleration is given (Spong, Hutchinson, Vidyasagar, Robot
    Modeling and Control, sec. 5.5, has equal ones).

    Attributes:
        start: q0 [rad].
        goal: qf [rad].
        speed: Cruise speed, positive [rad/s].
        duration: tf [s].
        first: a, positive; equal accelerations if None [rad/s²].
        blend: tb [s].
        end: te [s].

    """

    start: float
    goal: float
    speed: float
    duration: float
    first: float | None = None
    blend: float = field(init=False)
    end: float = field(init=False)

    def __post_init__(self) -> None:
        """Check that a cruise phase exists; raises MotionError with the valid speeds."""
        span = abs(self.goal - self.start)
        if not (span > 0.0 and self.duration > 0.0):
            raise MotionError(
                f'A segment needs a positive length and duration; got {span:.4g} rad in '
                f'{self.duration:.4g} s.')
        slowest, fastest = span / self.duration, 2.0 * span / self.duration
        if not slowest < self.speed <= fastest * (1.0 + 1e-12):
            raise MotionError(
                f'Cruise speed {self.speed:.4g} rad/s does not fit {span:.4g} rad in '
                f'{self.duration:.4g} s; it must be above {slowest:.4g} and at most '
                f'{fastest:.4g} rad/s.')
        both = 2.0 * (self.duration - span / self.speed)
        blend = 0.5 * both if self.first is None else (
            self.speed / self.first if self.first > 0.0 else np.inf)
        if not 0.0 < blend < both:
            raise MotionError(
                f'An acceleration of {self.first:.4g} rad/s² at the start does not fit '
                f'{span:.4g} rad in {self.duration:.4g} s at {self.speed:.4g} rad/s; it must be '
                f'above {self.speed / both:.4g} rad/s². Equal ones at start and end are '
                f'{2.0 * self.speed / both:.4g} rad/s².')
        object.__setattr__(self, 'blend', blend)
        object.__setattr__(self, 'end', both - blend)

    @classmethod
    def with_acceleration(
        cls, start: float, goal: float, speed: float, acceleration: float
    ) -> Lspb:
        """Return the segment with a given acceleration instead of a duration.

        Args:
            start: q0 [rad].
            goal: qf [rad].
            speed: Cruise speed, positive [rad/s].
            acceleration: Acceleration of the blends, positive [rad/s²].

        Raises:
            MotionError: If the distance is too short to reach the speed.

        """
        if not (speed > 0.0 and acceleration > 0.0):
            raise MotionError(
                f'Speed and acceleration must be positive, got {speed} rad/s, '
                f'{acceleration} rad/s².')
        return cls(start, goal, speed, abs(goal - start) / speed + speed / acceleration)

    def trajectory(self, posture: Array, joint: int) -> Trajectory:
        """Return the segment as a motion of one joint, the others at rest.

        Cubic interpolation through its four knots is exact: a parabola and a line are cubics.

        Args:
            posture: Angles of the other joints, shape (n,) [rad].
            joint: Column of the moving joint.

        """
        sign = 1.0 if self.goal > self.start else -1.0
        half = 0.5 * self.speed * sign
        time = np.array([0.0, self.blend, self.duration - self.end, self.duration])
        position = np.tile(posture, (4, 1))
        position[:, joint] = (self.start, self.start + half * self.blend,
                              self.goal - half * self.end, self.goal)
        velocity = np.zeros_like(position)
        velocity[1:3, joint] = sign * self.speed
        keep = [0, 1, 2, 3] if time[2] - time[1] > 1e-9 else [0, 1, 3]
        return Trajectory(time[keep], position[keep], velocity[keep])


@dataclass(frozen=True)
class MotionLimits:
    """Limits of motions.

    Attributes:
        joint_names: Names of the n joints.
        lower: Shape (n,) [rad].
        upper: Shape (n,) [rad].
        velocity: Shape (n,) [rad/s].
        acceleration: Shape (n,) [rad/s²].
        scale: Speed scale that is part of speeds and accelerations; motions that were planned for
            these limits are not slowed by it once more.

    """

    joint_names: tuple[str, ...]
    lower: Array
    upper: Array
    velocity: Array
    acceleration: Array
    scale: float = 1.0

    def scaled(self, scale: float) -> MotionLimits:
        """Return the limits of motions that are planned for a speed scale.

        Speeds and accelerations are lowered by it: a motion of the same frequencies has both.
        """
        return replace(self, velocity=scale * self.velocity,
                       acceleration=scale * self.acceleration, scale=scale)

    def fitted(self, trajectory: Trajectory) -> Trajectory:
        """Return a motion, slowed as far as speeds and accelerations need it."""
        _, velocity, acceleration = (
            np.abs(part).max(axis=0) for part in trajectory.sample(trajectory.dense()))
        excess = max(float((velocity / self.velocity).max()),
                     float(np.sqrt((acceleration / self.acceleration).max())))
        return trajectory if excess <= 1.0 else trajectory.slowed(1.0 / excess)

    def check(self, trajectory: Trajectory) -> None:
        """Check a trajectory at and between its knots.

        Raises:
            MotionError: If it exceeds a limit; with joint, value and limit.

        """
        # Acceleration may jump at a knot: check both sides.
        before = np.nextafter(trajectory.time[1:], 0.0)
        position, velocity, acceleration = trajectory.sample(
            np.concatenate((trajectory.dense(), before)))
        tolerance = 1e-6
        for sign, values, limit, what, unit in (
            (1.0, position, self.upper, 'goes up to', 'rad'),
            (-1.0, -position, -self.lower, 'goes down to', 'rad'),
            (1.0, np.abs(velocity), self.velocity, 'moves at', 'rad/s'),
            (1.0, np.abs(acceleration), self.acceleration, 'accelerates at', 'rad/s²'),
        ):
            excess = values - limit - tolerance * np.maximum(1.0, np.abs(limit))
            if (excess > 0.0).any():
                joint = int(np.argmax(excess.max(axis=0)))
                worst = float(values[:, joint].max())
                raise MotionError(
                    f"Joint '{self.joint_names[joint]}' {what} {sign * worst:.4g} {unit} on "
                    f'this motion; the limit is {sign * limit[joint]:.4g} {unit}. '
                    'Nothing was sent.')
