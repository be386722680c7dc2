# SPDX-License-Identifier: Apache-2.0
"""Stiffness and damping of the bristles of LuGre friction, from small slow reversals.

In presliding, friction acts as a spring: dz/dt = v − σ0 |v| z / g(v), F = σ0 z + σ1 dz/dt
+ B v, with g(v) the steady level (Canudas de Wit et al., IEEE TAC 40 (1995) 419, doi
10.1109/9.376053). Constant speeds identify g, reversals identify σ0 and σ1. The state z is
simulated along the measured motion, exactly for a constant speed within each step. Nonlinear
least squares on the torque estimate σ0 and σ1 jointly with nuisance parameters: a factor of the
level in each direction, an offset of gravity, and the initial z.
"""

from __future__ import annotations

from itertools import pairwise
from math import exp

import numpy as np
import scipy

from robocal_ros.arrays import Array
from robocal_ros.estimation import autocorrelation_time, low_passed, runs
from robocal_ros.messages import JointSamples
from robocal_ros.results import rms, spread
from robocal_ros.robot import Robot, SteadyFriction, bristle_springs

# Smallest and largest angle between two turning points of a reversal [rad].
_SHORTEST, _FARTHEST = 3e-4, 0.03
_LONGEST = 10.0
_FEWEST_TURNS = 6
_STILL = 5e-4
# Positions are smoothed up to this frequency [Hz].
_BAND = 22.0
# Standard deviation of the delay between efforts and positions [s].
_DELAY_STD = 5e-4
# Presliding angles to start the fit from [rad].
_WAYS = np.geomspace(1e-6, 1e-2, 25)
# Limits for stiffness and damping.
_MAX_RELATIVE_STD = (0.3, 0.5)
_FEWEST_STEPS = 3.0
_MAX_DEGREE = 10.0
_BLOCK = 10
_PLOT_POINTS = 150


class Presliding:
    """Bristle parameters of one joint, estimated from its reversals.

    Attributes:
        value: Stiffness σ0 [N·m/rad] and damping σ1 [N·m·s/rad], shape (2,).
        covariance: Covariance of both, shape (2, 2).
        unidentified: Reason why each of them is not identified; empty if it is.
        angle: Joint angles, thinned, shape (k,) [rad].
        torque: Friction torque measured there, shape (k,) [N·m].
        fitted: Friction torque of the model there, shape (k,) [N·m].

    """

    def __init__(
        self, robot: Robot, part: JointSamples, joint: int, law: SteadyFriction
    ) -> None:
        """Estimate; arguments as for ``estimate_presliding``, ``part`` with reversals alone."""
        data = _Reversals(robot, part, joint, law, _BAND)
        value, covariance = data.fitted()
        self.value = np.exp(value[:2])
        stiffness = float(self.value[0])
        # The change with half the band bounds the effect of smoothing.
        coarse, _ = _Reversals(robot, part, joint, law, 0.5 * _BAND).fitted()
        change = value[:2] - coarse[:2]
        relative = covariance[:2, :2] + np.outer(change, change)
        # Presliding spans few encoder steps; smoothing spreads their error over whole reversals,
        # so that it does not average out.
        steps = np.abs(np.diff(part.position[:, joint]))
        step = float(steps[steps > 0.0].min())
        relative[0, 0] += (step * stiffness / data.size) ** 2 / 12.0
        self.covariance = relative * np.outer(self.value, self.value)
        # A delay δ of the torque is equivalent to a damping of σ0 δ.
        self.covariance[1, 1] += (stiffness * _DELAY_STD) ** 2
        torque, fitted = data.torque - value[4], data.predicted(value) - value[4]
        degree = 100.0 * rms(_block_means(torque - fitted)) / max(rms(_block_means(torque)), 1e-12)
        self.unidentified = _unidentified(
            self.value, self.covariance, degree, data.size / stiffness, step)
        pick = spread(len(torque), _PLOT_POINTS)
        self.angle, self.torque, self.fitted = data.angle[pick], torque[pick], fitted[pick]


def find_reversals(samples: JointSamples, joint: int) -> tuple[int, int] | None:
    """Return the longest stretch of repeated small reversals of one joint.

    Args:
        samples: Joint states.
        joint: Column of the joint.

    Returns:
        First row and one past the last; None if there are no reversals.

    """
    # Turning points at least _SHORTEST apart.
    turns = sorted(row for sign in (1.0, -1.0) for row in scipy.signal.find_peaks(
        sign * samples.position[:, joint], prominence=_SHORTEST)[0].tolist())
    small = []
    for before, after in pairwise(turns):
        way, duration = (values[after] - values[before]
                         for values in (samples.position[:, joint], samples.time))
        others = np.delete(samples.position[before:after + 1], joint, axis=1)
        small.append(abs(way) <= _FARTHEST and duration <= _LONGEST
                     and (np.ptp(others, axis=0) < _STILL).all())
    first, last = max(runs(np.array(small, dtype=bool)), key=lambda run: run[1] - run[0],
                      default=(0, 0))
    return (turns[first], turns[last] + 1) if last - first >= _FEWEST_TURNS else None


class _Reversals:
    """Reversals of a joint, evenly sampled and smoothed; arrays of shape (k,).

    Attributes:
        angle: Joint angles [rad].
        speed: Joint speeds [rad/s].
        torque: Drive torque minus rigid-body torque [N·m].
        side: 0 for forward and 1 for backward motion.
        level: Steady level g of the law, |F| without its viscous part [N·m].
        viscous: Viscous part [N·m].
        size: Typical level, a number [N·m].

    """

    def __init__(
        self, robot: Robot, samples: JointSamples, joint: int, law: SteadyFriction, band: float
    ) -> None:
        """Low-pass the positions at a frequency [Hz] without phase error, and read the torque."""
        step = float(np.median(np.diff(samples.time)))
        time = np.arange(samples.time[0], samples.time[-1], step)
        position, effort = (np.column_stack([np.interp(time, samples.time, c) for c in columns.T])
                            for columns in (samples.position, samples.effort))
        if band * step < 0.4:
            position = low_passed(position, step, band)
        velocity = np.gradient(position, step, axis=0)
        acceleration = np.gradient(velocity, step, axis=0)
        rigid = np.array([robot.inverse_dynamics(q, v, a)[joint] for q, v, a
                          in zip(position, velocity, acceleration, strict=True)])
        self.angle, self.speed = position[:, joint], velocity[:, joint]
        self.torque = effort[:, joint] - rigid
        self.side = (self.speed < 0.0).astype(np.intp)
        self.level = law.level(self.speed, rigid)
        self.viscous = law.torque(self.speed, rigid) - self.level * np.sign(self.speed)
        self.size = float(np.mean(self.level))

    def predicted(self, x: Array) -> Array:
        """Return the torque for (ln σ0, ln σ1, two level factors, offset, initial z)."""
        level = self.level * x[2:4][self.side]
        springs = bristle_springs(self.angle, level, exp(x[0]), x[5] * self.size)
        rate = self.speed - np.abs(self.speed) * springs / level
        return np.asarray(x[4] + self.viscous + springs + exp(x[1]) * rate)

    def fitted(self) -> tuple[Array, Array]:
        """Return those six numbers and their covariance, shapes (6,) and (6, 6)."""
        def residual(x: Array) -> Array:
            return self.predicted(x) - self.torque

        # Logarithms keep stiffness and damping positive over many orders of magnitude.
        starts = [np.array([np.log(self.size / way), np.log(1e-3 * self.size / way), 1.0, 1.0,
                            0.0, 0.0]) for way in _WAYS]
        start = min(starts, key=lambda x: float((residual(x) ** 2).sum()))
        solution = scipy.optimize.least_squares(
            residual, start, x_scale=[0.3, 0.5, 0.05, 0.05, 0.1 * self.size, 0.5],
            bounds=([-5.0, -15.0, 0.3, 0.3, -np.inf, -3.0], [25.0, 20.0, 3.0, 3.0, np.inf, 3.0]))
        left, slopes = solution.fun, np.asarray(solution.jac)
        scatter = float((left**2).sum()) / max(len(left) - len(start), 1)
        covariance = np.linalg.pinv(slopes.T @ slopes)
        return solution.x, covariance * scatter * autocorrelation_time(left)


def estimate_presliding(
    robot: Robot, samples: JointSamples, joint: int, law: SteadyFriction
) -> Presliding | None:
    """Estimate the bristle stiffness and damping of a joint from its reversals.

    Args:
        robot: The arm with its payload.
        samples: Joint states.
        joint: Column of the joint.
        law: Its steady friction.

    Returns:
        None if no reversals are recorded.

    """
    found = find_reversals(samples, joint)
    return None if found is None else Presliding(robot, samples.rows(*found), joint, law)


def _block_means(values: Array) -> Array:
    """Average over short blocks, so that noise of single samples is no misfit."""
    count = len(values) // _BLOCK
    return np.asarray(values[:count * _BLOCK].reshape(count, _BLOCK).mean(axis=1))


def _unidentified(
    values: Array, covariance: Array, degree: float, way: float, resolution: float
) -> tuple[str, str]:
    """Return reasons why stiffness and damping are not identified, empty if they are."""
    if degree > _MAX_DEGREE:
        reason = (f'the model leaves {degree:.0f} % of the torque at the reversals unexplained '
                  f'(limit {_MAX_DEGREE:.0f} %)')
        return reason, reason
    if way < _FEWEST_STEPS * resolution:
        reason = (f'the joint slides after {1e6 * way:.1f} µrad, less than {_FEWEST_STEPS:.0f} '
                  f'encoder steps of {1e6 * resolution:.1f} µrad')
        return reason, reason
    shares = np.sqrt(np.diag(covariance)) / values
    stiffness, damping = (
        '' if share <= limit else
        f'its standard deviation is {100.0 * share:.0f} % (limit {100.0 * limit:.0f} %)'
        for share, limit in zip(shares, _MAX_RELATIVE_STD, strict=True))
    return stiffness, damping
