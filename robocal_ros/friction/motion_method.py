# SPDX-License-Identifier: Apache-2.0
"""Friction from an arbitrary motion, estimated jointly with the arm's rigid-body parameters.

The drive torques τ = Y(q, q̇, q̈) π + I_r q̈ + F(q̇) of an exciting motion are linear in the link
parameters π, the rotor inertias I_r, and Coulomb and viscous friction, so that no rigid-body
parameter of the URDF is needed (Swevers et al., Dynamic Model Identification for Industrial
Robots, IEEE Control Systems 27(5), 2007, doi 10.1109/MCS.2007.904659). Parameters of π
that the motion does not determine are left out by singular values; friction parameters must not
depend on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.estimation import autocorrelation_time, low_passed
from robocal_ros.friction.parameters import FrictionParameters
from robocal_ros.friction.runs import resampled
from robocal_ros.messages import JointSamples
from robocal_ros.results import Z95, rms
from robocal_ros.robot import DIRECTIONS, Robot, arm_regressor, gravity_changes

# Band of positions and efforts [Hz], at most this share of the sampling rate.
_BAND, _SHARE = 30.0, 1.0 / 6.0
# Rows per period of the band, and time at both ends that belongs to the filter [s].
_OVERSAMPLING, _ENDS = 5.0, 0.5
# Speed below which a sample is taken to stick [rad/s].
_MOVING = 0.02
_RANK_TOLERANCE = 1e-5
# Largest standard deviation of an identified exponent; steps of Gauss-Newton.
_MAX_EXPONENT_STD, _STEPS = 0.15, 5
# Largest share of a friction parameter in directions that the motion does not determine.
_UNOBSERVABLE = 1e-3
# Standard deviations below zero at which friction is negative, not zero (99.9 %).
_CERTAIN = 3.29
_BINS = 12


class MotionJoint:
    """Friction of one joint from a motion.

    Attributes:
        joint: Name of the joint.
        unidentified: Reason why its friction is not identified; empty if it is.
        model: Name of the law.
        torque: RMS of the torque [N·m].
        residual: RMS of what the model leaves of it [N·m].
        held_out: The same for each law, the halves of the motion predicted from each other [N·m].
        misfit: RMS over speed bins of the mean residual: lack of fit of the law [N·m].
        scatter: RMS of what the misfit would be by the scatter of repeated passes through a speed
            alone [N·m].
        degree: Misfit beyond the scatter, relative to friction [%].
        speed: Mean speed of each bin, shape (k,) [rad/s].
        measured: Friction with the residual, bin by bin, shape (k,) [N·m].
        fitted: Friction of the law there, shape (k,) [N·m].
        rows: Number of rows of the regression.

    """

    def __init__(
        self, robot: Robot, motion: _Motion, joint: int, friction: Array, residual: Array,
        shares: Array, negative: str, model: str, held_out: Mapping[str, float],
    ) -> None:
        """Judge the friction of one joint.

        Args:
            robot: The arm.
            motion: The motion.
            joint: Column of the joint.
            friction: Friction torque by the law, shape (k,) [N·m].
            residual: What the model leaves of the torque, shape (k,) [N·m].
            shares: Unobservable shares of the friction parameters, shape (4,).
            negative: Reason why the friction is none; empty if it is.
            model: Name of the law.
            held_out: See above.

        """
        self.joint, self.model, self.held_out = robot.joint_names[joint], model, held_out
        v, reasons = motion.velocity[:, joint], [negative] if negative else []
        bins: list[np.ndarray] = []
        for sign, direction in zip((1.0, -1.0), DIRECTIONS, strict=True):
            chosen = np.flatnonzero(sign * v > _MOVING)
            if len(chosen) < 4 * _BINS:
                reasons.append(f'{len(chosen)} samples of motion {direction} (at least '
                               f'{4 * _BINS} needed)')
                continue
            bins += map(np.sort, np.array_split(chosen[np.argsort(v[chosen])], _BINS))
        if (shares > _UNOBSERVABLE).any():
            reasons.append('the motion does not separate friction from rigid-body torques')
        self.unidentified = '; '.join(reasons)
        self.torque, self.residual = rms(motion.torque[:, joint]), rms(residual)
        self.speed, self.measured, self.fitted = (
            np.array([part[rows].mean() for rows in bins])
            for part in (v, friction + residual, friction))
        self.misfit = rms(self.measured - self.fitted)
        self.scatter, self.rows = pass_scatter(residual, bins), len(v)
        excess = float(np.sqrt(max(0.0, self.misfit**2 - self.scatter**2)))
        self.degree = 100.0 * excess / rms(self.fitted) if bins else np.inf


class _Motion:
    """Smoothed motion, its regressor and torques.

    Attributes:
        velocity: Shape (k, n) [rad/s].
        torque: Shape (k, n) [N·m].
        names: Names of the first parameters: friction and couplings.
        precision: Inverse prior variances of the parameters of ``regressor``, about zero.
        weight: Standard deviation of each joint's torque, shape (n,) [N·m].

    """

    def __init__(
        self, robot: Robot, samples: JointSamples, couplings: Sequence[tuple[int, int]],
        *, tilt_std: float,
    ) -> None:
        robot.check_untied('Friction from any motion')
        step, *values = resampled(samples)
        band = min(_BAND, _SHARE / step)
        smooth = partial(low_passed, period=step, cutoff=band)
        position, effort = map(smooth, values)
        velocity = np.gradient(position, step, axis=0)
        acceleration = np.gradient(smooth(velocity), step, axis=0)
        ends = int(_ENDS / step)
        rows = slice(ends, len(position) - ends, max(1, int(1.0 / (_OVERSAMPLING * band * step))))
        q, self.velocity, a = position[rows], velocity[rows], acceleration[rows]
        self.torque, count, n = effort[rows], len(q), robot.n
        self.weight = np.ones(n)
        # Steps at reversals are smoothed over the speeds at which joints stick, and filtered as
        # the effort is.
        forward = smooth(0.5 + 0.5 * np.tanh(velocity / _MOVING))[rows]
        self.names = [f'{name}.{part}_{direction}' for name in robot.joint_names
                      for part in ('coulomb', 'viscous') for direction in DIRECTIONS]
        self._forward, columns = forward, []
        for first, second in couplings:
            pair = f'{robot.joint_names[first]}+{robot.joint_names[second]}'
            total = smooth(np.tanh((velocity[:, first] + velocity[:, second]) / _MOVING)
                               [:, None])[rows, 0]
            for part, of_first, of_second in (
                    ('coulomb', total, total),
                    ('viscous', self.velocity[:, second], self.velocity[:, first]),
                    ('inertia', a[:, second], a[:, first])):
                columns.append(np.zeros((count, n)))
                columns[-1][:, first], columns[-1][:, second] = of_first, of_second
                self.names.append(f'{pair}.{part}')
        # No parameter of the bodies makes what a tilt of the base adds at vertical axes.
        tilts = [arm.gravity_torques(q) for arm in gravity_changes(robot) if tilt_std]
        rotors = np.zeros((count, n, n))
        rotors[:, np.arange(n), np.arange(n)] = a
        self._others = np.concatenate((
            *(item[:, :, None] for item in columns), arm_regressor(robot, q, self.velocity, a),
            rotors, *(item[:, :, None] for item in tilts)), 2)
        self.precision = np.zeros(4 * n + self._others.shape[2])
        self.precision[len(self.precision) - len(tilts):] = 1.0 / max(tilt_std, 1e-9) ** 2

    def regressor(self, exponents: Array, slopes: Array | None = None) -> Array:
        """Return the regressor, shape (k, n, p): friction, couplings, bodies, rotors, tilts.

        Args:
            exponents: Exponent of the speed of each joint, shape (n,).
            slopes: Viscous friction of each joint, forward and backward, shape (n, 2), for further
                columns at the end, which are the derivatives by the exponents.

        """
        count, n = self.velocity.shape
        v = self.velocity
        size = np.maximum(np.abs(v), 1e-6)
        power = np.sign(v) * size**exponents
        friction = np.zeros((count, n, n, 4))
        each = np.arange(n)
        friction[:, each, each] = np.stack((
            self._forward, self._forward - 1.0, np.where(v > 0.0, power, 0.0),
            np.where(v < 0.0, power, 0.0)), axis=2)
        parts = [friction.reshape(count, n, -1), self._others]
        if slopes is not None:
            further = np.zeros((count, n, n))
            further[:, each, each] = power * np.log(size) * np.where(v > 0.0, *slopes.T)
            parts.append(further)
        return np.concatenate(parts, axis=2)

    def solved(
        self, regressor: Array, torque: Array | None = None, precision: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """Return parameters, their covariance, and their shares that are unobservable, (p,).

        Args:
            regressor: Shape (k, n, p).
            torque: Shape (k, n) [N·m]; None for that of the motion.
            precision: Inverse prior variances of the first parameters, shape (≤ p,); None for
                those of the motion.

        """
        torque = self.torque if torque is None else torque
        precision = self.precision if precision is None else precision
        matrix = (regressor / self.weight[:, None]).reshape(-1, regressor.shape[2])
        scale = np.maximum(np.linalg.norm(matrix, axis=0), 1e-12)
        matrix = matrix / scale
        prior = np.pad(precision, (0, len(scale) - len(precision))) / scale**2
        squares, vectors = np.linalg.eigh(matrix.T @ matrix + np.diag(prior))
        seen = squares > _RANK_TOLERANCE**2 * squares[-1]
        inverse = (vectors[:, seen] / squares[seen]) @ vectors[:, seen].T
        value = inverse @ (matrix.T @ (torque / self.weight).reshape(-1)) / scale
        return value, inverse / np.outer(scale, scale), 1.0 - (vectors[:, seen] ** 2).sum(axis=1)

    def weigh(self, exponents: Array, times: int) -> None:
        """Weigh by uncorrelated noise with the information of the residuals, several times."""
        regressor = self.regressor(exponents)
        for _ in range(times):
            residual = self.torque - regressor @ self.solved(regressor)[0]
            freedom = max(0.2, 1.0 - regressor.shape[2] / residual.size)
            self.weight = np.maximum(np.sqrt((residual**2).mean(axis=0) / freedom * np.array(
                [autocorrelation_time(column) for column in residual.T])), 1e-9)


def friction_from_motion(
    robot: Robot, samples: JointSamples, values: FrictionParameters, wanted: Sequence[str]
) -> tuple[dict[str, float], Array, tuple[MotionJoint, ...]]:
    """Estimate Coulomb and viscous friction of joints from one exciting motion.

    Args:
        robot: The arm; of its rigid bodies only the kinematics are used.
        samples: Joint states.
        values: The node's parameters; ``coupled_joints`` names pairs with a common motor.
        wanted: Names of the joints that are stated; all are estimated.

    Returns:
        Values of the identified friction parameters by name, as in results; their covariance,
        shape (p, p); and the joints.

    Raises:
        ConfigurationError: If the arm lacks a coupled joint.
        DataError: If the recording is too short.

    """
    couplings = [(robot.index(a), robot.index(b)) for a, b in values.couplings]
    if np.ptp(samples.time) < 4.0 * _ENDS + 2.0:
        raise DataError(f'The motion lasts {np.ptp(samples.time):.1f} s; friction without '
                        f'constant-speed runs needs at least {4.0 * _ENDS + 2.0:.0f} s.')
    motion = _Motion(robot, samples, couplings, tilt_std=values.tilt_std)
    n = motion.torque.shape[1]
    exponents = np.ones(n)
    motion.weigh(exponents, 3)
    held_out = {'coulomb_viscous': _held_out(motion, exponents)}
    if values.steady_model in ('auto', 'coulomb_power'):
        found, std = _exponents(motion)
        sublinear = (std < _MAX_EXPONENT_STD) & (1.0 - found > 2.0 * std) & (found > 0.1)
        trial = np.where(sublinear, found, 1.0)
        held_out['coulomb_power'] = _held_out(motion, trial)
        better = held_out['coulomb_power'] < held_out['coulomb_viscous']
        exponents = np.where(sublinear & better, found, 1.0)
        motion.weigh(exponents, 2)
    regressor = motion.regressor(exponents)
    value, covariance, shares = motion.solved(regressor)
    if (exponents < 1.0).any():
        # The covariance includes that of the exponents.
        slopes = value[:4 * n].reshape(n, 4)[:, 2:]
        free = np.append(np.arange(len(value)), len(value) + np.flatnonzero(exponents < 1.0))
        covariance = motion.solved(motion.regressor(exponents, slopes)[:, :, free])[1]
    value, negative, absent = _of_one_sign(
        motion, regressor, value, np.sqrt(np.maximum(np.diag(covariance)[:4 * n], 0.0)))
    friction = regressor[:, :, :4 * n] @ value[:4 * n]
    residual = motion.torque - regressor @ value
    joints = tuple(
        MotionJoint(
            robot, motion, joint, friction[:, joint], residual[:, joint],
            shares[4 * joint:4 * joint + 4], negative[joint],
            'coulomb_power' if exponents[joint] < 1.0 else 'coulomb_viscous',
            {law: float(found[joint]) for law, found in held_out.items()})
        for joint in range(n))
    # Lack of fit of the law moves its level.
    levels = 4 * np.arange(n) + [[0], [1]]
    covariance[levels, levels] += [item.misfit**2 for item in joints]
    joints = tuple(item for item in joints if item.joint in wanted)
    good = {item.joint for item in joints if not item.unidentified}
    rows = [row for row, name in enumerate(motion.names)
            if row not in absent and good.issuperset(name.partition('.')[0].split('+'))]
    numbers = {motion.names[row]: float(value[row]) for row in rows}
    for number, joint in enumerate(np.flatnonzero(exponents < 1.0).tolist()):
        name = robot.joint_names[joint]
        for direction in DIRECTIONS if name in good and 4 * joint + 2 not in absent else ():
            rows.append(len(value) + number)
            numbers[f'{name}.exponent_{direction}'] = float(exponents[joint])
    return numbers, covariance[np.ix_(rows, rows)], joints


def _of_one_sign(
    motion: _Motion, regressor: Array, value: Array, std: Array
) -> tuple[Array, list[str], list[int]]:
    """Return parameters without viscous friction that is negative by chance.

    Args:
        motion: The motion.
        regressor: Its regressor, shape (k, n, p).
        value: Parameters, shape (p,).
        std: Standard deviations of those of friction, shape (4 n,).

    Returns:
        The parameters, reasons why friction of each joint is none (empty if it is), and the rows
        of viscous friction that is left out, in both directions of a joint.

    """
    std = std.reshape(-1, 2, 2)
    kept = np.ones(len(value), dtype=bool)
    while True:
        friction = value[:std.size].reshape(std.shape)
        certain = friction < -_CERTAIN * std
        chance = (friction[:, 1] < 0.0).any(axis=1) & ~certain[:, 1].any(axis=1)
        if not chance.any():
            break
        kept[:std.size].reshape(std.shape)[chance, 1] = False
        value = np.zeros(len(value))
        value[kept] = motion.solved(regressor[:, :, kept], precision=motion.precision[kept])[0]
    none = certain | ((friction < 0.0) & [[True], [False]])
    return value, ['; '.join(
        f'{("Coulomb", "viscous")[part]} friction {DIRECTIONS[side]} '
        f'{"is negative" if certain[joint, part, side] else "may be none"} '
        f'({friction[joint, part, side]:.3g} ± {Z95 * std[joint, part, side]:.2g})'
        for part, side in np.argwhere(each).tolist()) for joint, each in enumerate(none)
    ], np.flatnonzero(~kept).tolist()


def _exponents(motion: _Motion) -> tuple[Array, Array]:
    """Return the exponents of all joints and their standard deviations, by Gauss-Newton."""
    n = motion.torque.shape[1]
    exponents, std = np.full(n, 0.7), np.full(n, np.inf)
    for _ in range(_STEPS):
        linear = motion.regressor(exponents)
        value = motion.solved(linear)[0]
        slopes = value[:4 * n].reshape(n, 4)[:, 2:]
        full = motion.regressor(exponents, slopes)
        step, covariance, _ = motion.solved(full, motion.torque - linear @ value)
        exponents = np.clip(exponents + np.clip(step[-n:], -0.2, 0.2), 0.05, 1.2)
        std = np.sqrt(np.maximum(np.diag(covariance)[-n:], 0.0))
    return exponents, std


def _held_out(motion: _Motion, exponents: Array) -> Array:
    """Return the RMS of each joint's residual, halves predicted from each other, (n,) [N·m]."""
    regressor, half = motion.regressor(exponents), len(motion.torque) // 2
    parts = (slice(0, half), slice(half, None))
    residual = np.concatenate([
        motion.torque[other] - regressor[other] @ motion.solved(
            regressor[part], motion.torque[part])[0]
        for part, other in (parts, parts[::-1])])
    return np.asarray(np.sqrt((residual**2).mean(axis=0)))


def pass_scatter(residual: Array, bins: Sequence[np.ndarray]) -> float:
    """Return the RMS error of bin means by the scatter between passes of the motion [N·m].

    The passes through a speed are repeats, whose scatter is the pure error of a lack-of-fit test
    (Draper, Smith, Applied Regression Analysis, sec. 2.1). It is pooled over the bins.

    Args:
        residual: Shape (k,) [N·m].
        bins: Rows of each bin, ascending; adjacent rows belong to one pass.

    """
    square = freedom = 0.0
    shares = []
    for rows in bins:
        passes = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
        weight = np.array([len(part) for part in passes]) / len(rows)
        means = np.array([residual[part].mean() for part in passes])
        shares.append(float((weight**2).sum()))
        square += float((weight * (means - weight @ means) ** 2).sum())
        freedom += 1.0 - shares[-1]
    return float(np.sqrt(square / freedom * np.mean(shares))) if freedom > 0.0 else 0.0
