# SPDX-License-Identifier: Apache-2.0
"""Constant-speed runs as points of friction torque against speed.

Friction is the drive torque minus gravity. A run with other torques (a stop, an obstacle, a push,
a saturated drive) is rejected with the reason. Pairs of runs give gravity without a model, to
compare with; torque ripple, which repeats over the joint angle, is subtracted.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import scipy

from robocal_ros.arrays import Array, Flags
from robocal_ros.estimation import (
    PERIODS,
    Ripple,
    RippleRun,
    Sweep,
    autocorrelation_time,
    central_velocity,
    encoder_steps,
    find_ripple,
    ripple_columns,
    runs,
    steady_sweeps,
    suspected_ripple,
    waves,
)
from robocal_ros.messages import JointSamples
from robocal_ros.results import Z95, rms, spread
from robocal_ros.robot import DIRECTIONS, ArmModel, Robot, gravity_changes


class SpeedPoint:
    """Speed and friction torque of one run.

    Attributes:
        joint: Column of the joint.
        speed: Mean signed speed [rad/s].
        direction: Direction of the motion, one of ``DIRECTIONS``.
        torque: Mean torque minus gravity, signed [N·m].
        std: Standard deviation of that mean for autocorrelated samples [N·m].
        errors: Mean changes of the gravity torque by one standard deviation of each of the joint's
            own sources of error, signed alike in all runs, shape (m,) [N·m].
        travel: Angle from where the joint last turned to each of ``angle``, shape (m,) [rad].
        low: Lower end of the window [rad].
        high: Upper end of the window [rad].
        begin: Stamp of the first sample [s].
        end: Stamp of the last sample [s].
        age: Time to the joint's last usable run, as a share of that from its first one.
        rejected: Reason why the run is rejected; empty if it is used.
        angle: Joint angles in the window, thinned, shape (m,) [rad].
        total: Drive torque at those angles, block means, shape (m,) [N·m].
        gravity: Gravity torque of the model at those angles, shape (m,) [N·m].
        load: Mean absolute torque that the gear transmits to the link [N·m].
        by_links: Mean changes of the gravity torque, as it is measured, by one standard deviation
            of links and drive gains along each independent direction, shape (r,) [N·m].
        tilted: Mean change of the gravity torque per tilt of the base about each horizontal axis,
            shape (2,), or (0,) without gravity [N·m/rad].
        built: Relative changes of the torque by one standard deviation of each independent error
            of the friction that was not built up yet, shape (b,).

    """

    def __init__(
        self, robot: Robot, samples: JointSamples, run: Sweep, alternatives: Sequence[Robot] = (),
        tilts: Sequence[Robot] = (), arm: ArmModel | None = None,
    ) -> None:
        """Read a run.

        Args:
            robot: The arm with its payload.
            samples: Joint states.
            run: Rows and speed of the run.
            alternatives: The arm with payloads one standard deviation off along independent
                directions.
            tilts: The arm under the changes of gravity per tilt of the base.
            arm: What is known of links and drive gains; None if they are exact.

        """
        part = samples.rows(run.start, run.stop)
        effort, angle = part.effort[:, run.joint], part.position[:, run.joint]
        gravity = _gravity(robot, part.position, run.joint)
        torque = effort - gravity
        if 0.0 < run.wander < np.inf:
            # A speed that is not the same at both ends took inertia torque on average.
            first, last = central_velocity(part.time, angle[:, None], _HALF_WIDTH)[[0, -1], 0]
            acceleration = np.eye(robot.n)[run.joint] * (last - first) / np.ptp(part.time)
            torque = torque - float((robot.inverse_dynamics(
                run.posture, np.zeros(robot.n), acceleration)
                - robot.gravity_torque(run.posture))[run.joint])
        self.joint, self.speed, self.torque = run.joint, run.speed, float(torque.mean())
        self.direction = DIRECTIONS[run.speed < 0.0]
        self.std = _mean_std(torque)
        self.errors = _gravity_errors(robot, part.position, run, alternatives)
        self.low, self.high = float(angle.min()), float(angle.max())
        self.begin, self.end = float(part.time[0]), float(part.time[-1])
        starts = _blocks(part.time)
        self.rejected = _why_rejected(
            torque, effort, starts, float(robot.effort_limit[run.joint]), abs(self.torque),
            run.wander)
        self.angle, self.total, self.gravity = (
            _means(values, starts) for values in (angle, effort, gravity))
        self.load = float(np.abs(gravity).mean())
        self.tilted = np.array([_gravity(other, part.position, run.joint).mean()
                                for other in tilts])
        some = part.position[spread(len(part), _FEW_KNOTS)]
        still = np.zeros_like(some)
        self.by_links = np.zeros(0) if arm is None else arm.uncertain_torques(
            some, still, still, robot.gravity_torques(some))[:, run.joint].mean(axis=0)
        begin = int(np.searchsorted(samples.time, part.time[0] - _RUN_IN))
        way = run.direction * samples.position[begin:run.start + 1, run.joint][::-1]
        lowest = np.minimum.accumulate(way)
        turned = np.append(way > lowest + _TURN, True)
        self.travel = run.direction * self.angle - lowest[:np.argmax(turned) + 1].min()
        self.built = np.zeros(0)
        self.age = 0.0

    def read(self, total: Array, gravity: Array) -> SpeedPoint:
        """Return the run with other torques of drive and gravity, shape (m,) each [N·m]."""
        left, then = self.total - self.gravity, total - gravity
        # What the model lacked is no noise.
        before, after = (_mean_std(torque) ** 2 for torque in (left, then))
        return self.changed(torque=self.torque + float((then - left).mean()), total=total,
                            gravity=gravity,
                            std=float(np.sqrt(max(self.std**2 - before, 0.0) + after)))

    def changed(self, **values: Any) -> SpeedPoint:
        """Return the run with other values of attributes."""
        twin = copy(self)
        vars(twin).update(values)
        return twin


SLOW = 0.02
"""Speed below which runs are detected over longer intervals [rad/s]."""
MIN_SPAN = 0.004
"""Smallest angle covered by a run [rad]."""
ANGLE_STD = 5e-4
"""Standard deviation of joint angles due to zero offsets and sag [rad]."""

UNSTEADY = 'its speed was constant for too short a time, or within too wide bounds'
"""Reason why a motion at one speed, by and large, is no run."""

# Upper speed of the slow detection, so that a run near SLOW is found whole at least once.
_OVERLAP = 1.3 * SLOW
# Stretches whose speed wanders are runs below this median speed [rad/s], if they last as long [s]
# and their speed has at most this relative standard deviation (that of half a sine is 0.48).
_SLOW_RUN, _LASTING, _ATTEMPT = 0.1, 1.5, 0.45
# Such a run is used, with its own mean speed, up to this relative standard deviation: the law's
# curvature then changes the mean torque by at most _MAX_WANDER² / 2 = 3 % of its part that varies.
_MAX_WANDER = 0.25
# Shortest motion that is a failed run [s], and the share of it within a fifth of its usual speed:
# that of moves from rest to rest is 0.2 to 0.45.
_BRIEF, _CONSTANT = 0.3, 0.6
# Longest stick of a run that sticks and slips [s].
_STICK = 0.4
# Half the time over which slow speeds are averaged [s].
_HALF_WIDTH = 0.25
_BLOCK = 0.05
_KNOTS, _FEW_KNOTS = 60, 12
# Standard deviation of a joint's yield under its largest load [rad]: arms of a few kilograms of
# payload sag by 0.5 to 3 mrad per joint.
_SAG = 3e-3
# Information below this share of the largest is rounding.
_NEGLIGIBLE = 1e-9
# Step of derivatives by joint angles [rad].
_STEP = 1e-3
# Delay of efforts against positions [s]: usual, possible, longest; and how many standard
# deviations are significant.
_DELAY, _ANY_DELAY, _LONGEST_DELAY, _SIGNIFICANT = 2e-3, 0.05, 0.12, 4.0
# Longest time before a run in which its direction is followed back [s], angle that shows a turn
# [rad], and angles over which friction may build up [rad].
_RUN_IN, _TURN = 60.0, 1e-3
_BUILD_UP = np.geomspace(1e-3, 0.02, 13)
# Rounds in which ripple, and the amplitude of the build-up, are found; least error of a shape as
# a share of friction, and information beside which runs have none.
_ROUNDS, _SHAPE_STD, _LEAST = 4, 1e-3, 1e-12
_SPIKE = 8.0
_SPIKE_FLOOR = 0.15
_SATURATED = 0.98


def find_runs(samples: JointSamples, joints: Sequence[int]) -> list[Sweep]:
    """Find the constant-speed parts of single-joint motions.

    A slow run whose speed wanders beyond the tolerance is returned as a whole, with its wander.

    Args:
        samples: Joint states.
        joints: Columns of the joints.

    """
    fast = steady_sweeps(samples, min_speed=SLOW, min_span=MIN_SPAN, settle=0.2)
    slow = steady_sweeps(
        samples, min_speed=0.0008, max_speed=_OVERLAP, still_speed=0.0005,
        half_width=_HALF_WIDTH, settle=0.4, min_span=MIN_SPAN, tolerance=0.1)
    steady: list[Sweep] = []
    for sweep in sorted((item for item in (*fast, *slow) if item.joint in joints),
                        key=lambda item: item.start):
        # Where both detections found the same run, the longer one counts.
        same = [steady.pop()] if steady and sweep.start < steady[-1].stop else []
        steady.append(max((*same, sweep), key=lambda item: item.stop - item.start))
    # Wandering runs of which the steady ones cover less than half.
    if len(samples) < 3:
        return steady
    velocity = central_velocity(samples.time, samples.position, _HALF_WIDTH)
    # One step of an encoder to and fro is no motion.
    resting = np.abs(velocity) < np.maximum(
        5e-4, 1.5 * encoder_steps(samples.position) / (2.0 * _HALF_WIDTH))
    period = float(np.median(np.diff(samples.time)))
    found = list(steady)
    for joint in joints:
        alone = np.delete(resting, joint, axis=1).all(axis=1)
        for sign in (1.0, -1.0):
            moving = closed(alone & (sign * velocity[:, joint] > 8e-4),
                            alone & (sign * velocity[:, joint] > -8e-4), int(_STICK / period))
            for start, stop in runs(moving):
                inside = [item for item in steady if item.joint == joint
                          and item.start >= start and item.stop <= stop]
                whole = _wandering(samples, velocity[:, joint], joint, start, stop)
                if whole is None and not inside:
                    whole = _attempt(samples, joint, start, stop)
                if whole is not None and (
                        sum(item.stop - item.start for item in inside) < 0.5 * (stop - start)):
                    found = [item for item in found if item not in inside] + [whole]
    return sorted(found, key=lambda sweep: sweep.start)


def closed(mask: Flags, allowed: Flags, longest: int) -> Flags:
    """Return a mask with short gaps filled, where they are allowed.

    Args:
        mask: Shape (k,).
        allowed: Rows that may be filled, shape (k,).
        longest: Longest gap [rows].

    """
    filled = mask.copy()
    for start, stop in runs(~mask):
        if start > 0 and stop < len(mask) and stop - start <= longest and (
                allowed[start:stop].all()):
            filled[start:stop] = True
    return filled


def _wandering(
    samples: JointSamples, velocity: Array, joint: int, start: int, stop: int
) -> Sweep | None:
    """Return the interior of a stretch of motion as a run with its own speed, if it is one."""
    time = samples.time[start:stop]
    # The interior excludes settling, acceleration and deceleration.
    part = np.abs(velocity[start:stop])
    fast = np.flatnonzero(part > 0.5 * np.median(part))
    first, last = np.searchsorted(
        time, (time[fast[0]] + 2.0 * _HALF_WIDTH, time[fast[-1]] - 2.0 * _HALF_WIDTH))
    first, last = start + int(first), start + int(last)
    if last - first < 3 or samples.time[last - 1] - samples.time[first] < _LASTING:
        return None
    # Gaps in the stamps end a run.
    if np.diff(samples.time[first:last]).max() > 0.1:
        return None
    run = Sweep.of(samples, joint, first, last)
    if not 8e-4 < abs(run.speed) < _SLOW_RUN or run.span < MIN_SPAN:
        return None
    wander = float(velocity[first:last].std() / abs(run.speed))
    return None if wander > _ATTEMPT else replace(run, wander=wander)


def _attempt(samples: JointSamples, joint: int, start: int, stop: int) -> Sweep | None:
    """Return a stretch of motion as a run that cannot be used, if it kept its speed by and large.

    Moves from posture to posture do not.
    """
    time, angles = samples.time[start:stop], samples.position[start:stop, joint]
    if len(time) < 3 or np.ptp(time) < _BRIEF or np.ptp(angles) < MIN_SPAN:
        return None
    speed = np.abs(central_velocity(time, angles[:, None])[:, 0])
    speed = speed[speed > 0.5 * np.median(speed)]
    typical = float(np.median(speed))
    if np.mean(np.abs(speed - typical) < 0.2 * typical) < _CONSTANT:
        return None
    run = Sweep.of(samples, joint, start, stop)
    return replace(run, speed=run.direction * float(np.quantile(speed, 0.9)), wander=np.inf)


def read_runs(
    robot: Robot, samples: JointSamples, joints: Sequence[int],
    alternatives: Sequence[Robot] = (), arm: ArmModel | None = None,
) -> list[SpeedPoint]:
    """Find and read all runs.

    Arguments as for ``find_runs`` and ``SpeedPoint``.
    """
    tilts = gravity_changes(robot)
    return [SpeedPoint(robot, samples, run, alternatives, tilts, arm)
            for run in find_runs(samples, joints)]


def _gravity(robot: Robot, positions: Array, joint: int) -> Array:
    """Return the gravity torque of a joint along its run, interpolated, shape (k,) [N·m]."""
    count = len(positions)
    knots = spread(count, _KNOTS)
    values = robot.gravity_torques(positions[knots])[:, joint]
    return np.interp(np.arange(count), knots, values)


def _gravity_errors(
    robot: Robot, positions: Array, run: Sweep, alternatives: Sequence[Robot]
) -> Array:
    """Return the mean changes of gravity by each payload and each joint angle, (a + n,) [N·m].

    The other joints yield as in ``sag_torque``, under their torques in this posture.
    """
    some = positions[spread(len(positions), _FEW_KNOTS)]

    def mean(arm: Robot, postures: Array) -> float:
        return float(arm.gravity_torques(postures)[:, run.joint].mean())

    assumed, every = mean(robot, some), np.eye(robot.n)
    loads = [mean(other, some) - assumed for other in alternatives]
    torque = robot.gravity_torque(run.posture)
    largest = np.hypot(torque, robot.gravity_torques(run.posture + 0.5 * np.pi * every).diagonal())
    share = np.abs(torque) / np.maximum(largest, 1e-9)
    share[run.joint] = 0.0
    changed = np.array([mean(robot, some + _STEP * axis) for axis in every]) - assumed
    return np.append(loads, np.hypot(ANGLE_STD, _SAG * share) / _STEP * changed)


def _blocks(time: Array) -> np.ndarray:
    """Return the first rows of blocks of equal duration."""
    count = max(4, int((time[-1] - time[0]) / _BLOCK))
    edges = np.searchsorted(time, np.linspace(time[0], time[-1], min(count, 200) + 1))
    edges[-1] = len(time)
    return np.unique(edges)[:-1]


def _mean_std(torque: Array) -> float:
    """Return the standard deviation of the mean of autocorrelated samples, shape (m,)."""
    inflation = autocorrelation_time(torque - torque.mean())
    return max(float(torque.std(ddof=1)) * float(np.sqrt(inflation / len(torque))), 1e-6)


def _means(values: Array, starts: np.ndarray) -> Array:
    lengths = np.diff(np.append(starts, len(values)))
    return np.asarray(np.add.reduceat(values, starts) / lengths)


def _why_rejected(
    torque: Array, effort: Array, starts: np.ndarray, limit: float, size: float, wander: float
) -> str:
    if not np.isfinite(wander):
        return UNSTEADY
    if wander > _MAX_WANDER:
        return (f'its speed wandered by {100.0 * wander:.0f} % '
                f'(limit {100.0 * _MAX_WANDER:.0f} %)')
    if np.ptp(effort) == 0.0:
        return f'the effort was stuck at {effort[0]:.4g} N·m'
    saturated = float(np.mean(np.abs(effort) >= _SATURATED * limit))
    if saturated > 0.01:
        return f'the drive was saturated at its limit of {limit:.4g} N·m'
    means = _means(torque, starts)
    trend = np.polynomial.Polynomial.fit(np.arange(len(means)), means, 1)
    deviation = np.abs(means - trend(np.arange(len(means))))
    typical = 1.4826 * float(np.median(deviation))
    worst = float(deviation.max())
    if worst > max(_SPIKE * typical, _SPIKE_FLOOR, 0.25 * size):
        return f'the torque jumped by {worst:.2f} N·m: a stop, an obstacle or a push'
    return ''


class GravityComparison:
    """Comparison of the model's gravity with that of pairs of runs.

    Forward and backward, the drive torques over the same positions contain gravity alike and
    friction oppositely, so that friction cancels. Its asymmetry does not depend on the position.

    Attributes:
        pairs: Number of pairs.
        error: Amplitude of a torque a sinθ + b cosθ that is missing from the model [N·m].
        std: Its standard deviation [N·m].
        significant: Whether it exceeds four standard deviations.
        value: (a, b), shape (2,) [N·m].
        covariance: Covariance of both, shape (2, 2).
        tilted: Amplitude of that torque per tilt of the base [N·m/rad].
        stated: Its standard deviation by what is stated of links, payload and angles [N·m].
        rows: What the pairs tell of the amplitudes of ``waves``: their product with these is
            ``told``, with errors of unit variance, shape (r, 2 ``PERIODS``).
        told: Shape (r,).

    """

    def __init__(
        self, rows: Sequence[Array], left: Sequence[Array], points: Sequence[SpeedPoint]
    ) -> None:
        """Compare.

        Args:
            rows: ``waves``, and the effect of sag, of each run of a pair, shape
                (m, 2 ``PERIODS`` + 1).
            left: Torque of each run minus gravity by the model, shape (m,) [N·m].
            points: All runs.

        """
        # The sag has a prior; both other amplitudes have none here.
        value, covariance = _by_shape(
            [item[:, [0, 1, -1]] for item in rows], left, (0.0, 0.0, 1.0), together=2)
        self.pairs = len(rows) // 2
        self.value, self.covariance = value[:2], covariance[:2, :2]
        self.error = float(np.linalg.norm(self.value))
        direction = self.value / self.error if self.error > 0.0 else np.array([1.0, 0.0])
        self.std = float(np.sqrt(direction @ self.covariance @ direction))
        self.significant = self.error > 4.0 * self.std
        self.tilted, self.stated = (
            float(np.linalg.norm(direction @ amplitudes(points, changes))) for changes in (
                [p.tilted for p in points], [np.append(p.by_links, p.errors) for p in points]))
        information, moment, factor = _shape_information(
            [item[:, :-1] for item in rows], left, [0.0] * 2 * PERIODS, together=2)
        sizes, axes = np.linalg.eigh(information / factor)
        known = sizes > _NEGLIGIBLE * sizes[-1]
        self.rows = np.sqrt(sizes[known])[:, None] * axes[:, known].T
        self.told = axes[:, known].T @ moment / (factor * np.sqrt(sizes[known]))


def is_pair(first: SpeedPoint, second: SpeedPoint) -> bool:
    """Return whether a run has the other one's speed, opposite, over the same positions."""
    overlap = min(first.high, second.high) - max(first.low, second.low)
    return (abs(first.speed + second.speed) < 0.1 * abs(first.speed)
            and overlap > 0.5 * (first.high - first.low))


def compare_gravity(points: Sequence[SpeedPoint]) -> GravityComparison | None:
    """Compare the model's gravity with pairs of usable runs; None without a pair."""
    rows, left = [], []
    for first in points:
        second = next((p for p in points if is_pair(first, p)), None)
        if first.speed <= 0.0 or second is None:
            continue
        low, high = max(first.low, second.low), min(first.high, second.high)
        for run in (first, second):
            common = (run.angle >= low) & (run.angle <= high)
            angle, gravity = run.angle[common], run.gravity[common]
            rows.append(np.column_stack((waves(angle), sag_torque(angle, gravity))))
            left.append(run.total[common] - gravity)
    # Asymmetry shifts each pair by a constant, so only the shape within runs is compared.
    return GravityComparison(rows, left, points) if rows else None


def _by_shape(
    regressors: Sequence[Array], measured: Sequence[Array], precision: Sequence[float],
    together: int = 1,
) -> tuple[Array, Array]:
    """Return parameters and their covariance; arguments as for ``_shape_information``."""
    information, moment, factor = _shape_information(regressors, measured, precision, together)
    covariance = np.linalg.pinv(information)
    return np.asarray(covariance @ moment), np.asarray(covariance * factor)


def _shape_information(
    regressors: Sequence[Array], measured: Sequence[Array], precision: Sequence[float],
    together: int,
) -> tuple[Array, Array, float]:
    """Return what shapes of runs, whose means are free, tell of parameters.

    Each run is weighted by its own noise, for autocorrelated samples. Where runs contradict each
    other by more than that, the covariance grows alike (Birge, Phys. Rev. 40 (1932) 207, doi
    10.1103/PhysRev.40.207).

    Args:
        regressors: Of each run, shape (m, p).
        measured: Of each run, shape (m,).
        precision: Inverse prior variances of the parameters, about zero.
        together: Number of consecutive runs that are compared as one.

    Returns:
        Information matrix with the priors, shape (p, p); its product with the parameters, shape
        (p,); and the factor of the covariance.

    """
    rows = [item - item.mean(axis=0) for item in regressors]
    torques = [item - item.mean() for item in measured]
    value = np.linalg.lstsq(np.vstack(rows), np.concatenate(torques), rcond=1e-9)[0]
    own = []
    for row, torque in zip(rows, torques, strict=True):
        residual = torque - row @ value
        freedom = max(len(residual) - 1 - len(value), 1)
        own.append(residual @ residual / freedom * autocorrelation_time(residual) + 1e-12)
    # Runs that are compared have equal weights, so that what is opposite in them cancels.
    variances = np.repeat(np.mean(np.reshape(own, (-1, together)), axis=1), together)
    information, moment = (
        np.array([row.T @ item / variance for row, item, variance in zip(
            rows, items, variances, strict=True)]).reshape(-1, together, len(value), *more).sum(
                axis=1) for items, more in ((rows, (len(value),)), (torques, ())))
    total = information.sum(axis=0) + np.diag(precision)
    value = np.linalg.pinv(total) @ moment.sum(axis=0)
    pull = moment - information @ value
    excess = np.einsum('ri,rij,rj->', pull, np.linalg.pinv(information, hermitian=True), pull)
    count = int(np.linalg.matrix_rank(information, hermitian=True).sum()) - len(value)
    return total, moment.sum(axis=0), max(1.0, float(excess) / max(count, 1))


def with_delay_correction(points: Sequence[SpeedPoint]) -> tuple[SpeedPoint, ...]:
    """Return the runs with efforts aligned with positions.

    Efforts that are late by d belong to positions v d earlier, so that gravity leaves -G'(θ) v d:
    it looks like viscous friction where G' has a mean, and shows in the shape of the runs where it
    varies. The delay is estimated from that shape, with a prior about zero; one beside which the
    prior is improbable is subtracted, any other one is part of the standard deviation, which joins
    the ``errors`` of the runs.

    Args:
        points: Usable runs of one joint.

    """
    if not points:
        return ()
    slopes = [_gravity_slope(p.angle, p.gravity) for p in points]
    # Besides the delay: errors of gravity, sag, and friction that grows with the load or changes
    # along the run.
    rows = [np.column_stack((
        -p.speed * slope, np.sin(p.angle), np.cos(p.angle), sag_torque(p.angle, p.gravity),
        np.sign(p.speed) * np.abs(p.gravity),
        np.sign(p.speed) * np.linspace(-1.0, 1.0, len(slope))))
        for p, slope in zip(points, slopes, strict=True)]
    value, covariance = _by_shape(rows, [p.total - p.gravity for p in points],
                                  (_ANY_DELAY**-2, 0.0, 0.0, 1.0, 0.0, 0.0))
    delay, deviation = float(value[0]), float(np.sqrt(covariance[0, 0]))
    if not max(_DELAY, _SIGNIFICANT * deviation) < abs(delay) < _LONGEST_DELAY:
        delay, deviation = 0.0, min(_DELAY, float(np.hypot(delay, deviation)))
    return tuple(p.read(p.total, p.gravity + delay * (-p.speed * slope)).changed(
        errors=np.append(p.errors, deviation * -p.speed * slope.mean()))
        for p, slope in zip(points, slopes, strict=True))


def without_build_up(points: Sequence[SpeedPoint]) -> list[SpeedPoint]:
    """Return the runs with the friction of full sliding, of which slow and short ones show less.

    After a rest or a reversal, friction F (1 − A exp(−x/s)) builds up with the travel x, as that
    of bristles does (Canudas de Wit et al., IEEE TAC 40 (1995) 419, doi 10.1109/9.376053). A,
    about 1 from relaxed bristles and 2 after a reversal, is estimated from the shapes of all runs,
    for several s that count by how well the runs agree about it, beside gravity a sinθ + b cosθ
    that the model lacks, which bends runs over one range alike, and without significant ripple.
    What other ripple adds to the shapes differs from run to run, and shows in the scatter of A.

    Args:
        points: Usable runs of one joint.

    """
    if len(points) < 2:
        return list(points)
    speeds, signed = np.array([(abs(p.speed), np.sign(p.speed) * p.torque) for p in points]).T
    # Of both directions together, gravity that the model lacks is no friction.
    sizes = np.maximum([signed[np.abs(speeds - speed) < 0.1 * speed].mean() for speed in speeds],
                       0.0)
    typical = max(rms(sizes), 1e-9)
    shapes = [np.exp(-p.travel[:, None] / _BUILD_UP) for p in points]
    ripples = ripple_of(points)
    means = np.array([shape.mean(axis=0) for shape in shapes])
    # Shapes of all runs, each of the same weight.
    counts = np.array([len(p.angle) for p in points])
    lacking, gravity, torque = (np.concatenate([
        (item - item.mean(axis=0)) / np.sqrt(len(item)) for item in items]) for items in (
            [-np.sign(p.speed) * size / typical * shape
             for p, size, shape in zip(points, sizes, shapes, strict=True)],
            [waves(p.angle, 1) for p in points],
            [(p.total - p.gravity - np.sum([item.torque(p.angle) for item in ripples], axis=0))[
                :, None] / typical for p in points]))
    axes = scipy.linalg.orth(gravity)
    torque -= axes @ (axes.T @ torque)
    amplitude = np.zeros_like(_BUILD_UP)
    for _ in range(_ROUNDS):
        factor = 1.0 / np.maximum(1.0 - amplitude * means, 0.2)
        shown = np.repeat(factor, counts, axis=0) * lacking
        shown -= axes @ (axes.T @ shown)
        information, moment = (np.add.reduceat(shown * item, np.cumsum(counts) - counts)
                               for item in (shown, torque))
        total = information.sum(axis=0) + _LEAST
        free = moment.sum(axis=0) / total
        # The scatter between runs is known by few of them.
        count = np.clip(total**2 / ((information**2).sum(axis=0) + _LEAST**2), 1.1, len(points))
        variance = ((moment - information * free) ** 2).sum(axis=0) / total**2 * (
            count / (count - 1.0)) * (scipy.stats.t.ppf(0.975, count - 1.0) / Z95) ** 2 + (
                _SHAPE_STD**2 / total)
        precision = 1.0 / variance + 1.0
        amplitude = free * (1.0 - 1.0 / precision)
    evidence = 0.5 * (amplitude**2 * precision - np.log(precision))
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    found = []
    for p, shape, size, mean, grown in zip(points, shapes, sizes, means, factor, strict=True):
        usual = float(weights @ grown)
        doubts = np.sqrt(weights) * ((grown - usual), grown**2 * mean / np.sqrt(precision))
        added = np.sign(p.speed) * size * shape @ (weights * amplitude * grown)
        found.append(p.read(p.total + added, p.gravity).changed(built=doubts.ravel() / usual))
    return found


def _gravity_slope(angle: Array, gravity: Array) -> Array:
    """Return the derivative of gravity a sinθ + b cosθ + c by the angle, shape (m,) [N·m/rad]."""
    sine, cosine = np.sin(angle), np.cos(angle)
    basis = np.column_stack((sine, cosine, np.ones(len(angle))))
    of_sine, of_cosine, _ = np.linalg.lstsq(basis, gravity, rcond=1e-6)[0]
    return np.asarray(of_sine * cosine - of_cosine * sine)


def sag_torque(angle: Array, gravity: Array, largest: float = 0.0) -> Array:
    """Return the error of the model's gravity torque due to one standard deviation of sag [N·m].

    Joints yield in proportion to their load: G(θ + δ G/max|G|) − G(θ) ≈ G'(θ) δ G(θ)/max|G|, with
    the deviation δ at the largest load: ``largest``, or the largest one of these [N·m].
    """
    size = max(float(np.abs(gravity).max()), largest)
    if size == 0.0:
        return np.zeros(len(angle))
    return _SAG * _gravity_slope(angle, gravity) * gravity / size


def mean_waves(points: Sequence[SpeedPoint], periods: int = 1) -> Array:
    """Return the means of ``waves`` over each run, shape (k, 2 periods)."""
    return np.array([waves(p.angle, periods).mean(axis=0) for p in points])


def amplitudes(points: Sequence[SpeedPoint], changes: Sequence[Array]) -> Array:
    """Return (a, b) of changes of gravity a sinθ + b cosθ by their means over runs, shape (2, m).

    Args:
        points: The k runs.
        changes: Of each run, shape (m,).

    """
    return np.asarray(np.linalg.lstsq(mean_waves(points), np.array(changes), rcond=1e-2)[0])


def ripple_of(points: Sequence[SpeedPoint]) -> tuple[Ripple, ...]:
    """Find the torque ripple in the runs of one joint, largest amplitude first.

    Args:
        points: Usable runs of one joint.

    """
    # Either may pass for the other one, until both are found together.
    found = find_ripple([RippleRun(p.angle, p.total - p.gravity) for p in points])
    for _ in range(_ROUNDS):
        found = find_ripple(_ripple_runs(points, found))
        if not found:
            break
    return found


def _ripple_runs(points: Sequence[SpeedPoint], known: Sequence[Ripple] = ()) -> list[RippleRun]:
    """Return the runs beside gravity that the model lacks, which bends them like slow ripple.

    Args:
        points: Usable runs of one joint.
        known: Ripple beside which that gravity is found.

    """
    if not points:
        return []
    rows, torques = zip(*((item - item.mean(axis=0), torque - torque.mean()) for item, torque in (
        (np.hstack((waves(p.angle, 1), ripple_columns(p.angle, known))), p.total - p.gravity)
        for p in points)), strict=True)
    value = np.linalg.lstsq(np.vstack(rows), np.concatenate(torques))[0]
    return [RippleRun(p.angle, torque - row[:, :2] @ value[:2]) for p, row, torque in zip(
        points, rows, torques, strict=True)]


def without_ripple(
    points: Sequence[SpeedPoint], ripples: Sequence[Ripple]
) -> tuple[SpeedPoint, ...]:
    """Return the points with ripple subtracted from their torques.

    Ripple that is not significant beside it is part of their standard deviations.

    Args:
        points: Usable runs of one joint.
        ripples: Its torque ripple.

    """
    def cleaned(point: SpeedPoint) -> SpeedPoint:
        known = np.sum([ripple.torque(point.angle) for ripple in ripples], axis=0)
        std = np.linalg.norm([point.std, *(ripple.mean_std(point.angle) for ripple in ripples)])
        return point.changed(torque=point.torque - float(known.mean()), std=float(std),
                             total=point.total - known)

    points = [cleaned(point) for point in points] if ripples else points
    cycles, size = suspected_ripple(_ripple_runs(points))
    return tuple(point.changed(std=float(np.hypot(
        point.std, size * np.abs(np.exp(1j * cycles * point.angle).mean()))))
        for point in points)
