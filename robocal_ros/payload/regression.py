# SPDX-License-Identifier: Apache-2.0
"""From an exciting record to a linear problem: joint torques or wrist wrenches of a payload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.estimation.blocks import Blocks, low_passed
from robocal_ros.estimation.least_squares import autocorrelation_time
from robocal_ros.messages.samples import JointSamples, WrenchSamples, check_effort, check_joints
from robocal_ros.payload.nuisance import Doubts, DoubtSettings, doubts
from robocal_ros.results.result import rms
from robocal_ros.robot.friction_law import SteadyFriction
from robocal_ros.robot.model import Robot
from robocal_ros.robot.newton_euler import NewtonEuler, wrench_of, wrench_regressor

LOSSES = ('offset', 'coulomb', 'viscous', 'viscous_asymmetry')
"""Columns of what a drive loses: 1, sgn v, v, |v|."""

Mask = npt.NDArray[np.bool_]
"""Which rows are meant."""

SLOWEST = 0.12
"""Slowest speed at which these columns are friction [rad/s]; below, it rises to standstill."""

_LATE = 0.5
# Cutoff of the torque in the columns of compliance, as a share of the band. Beyond it, the second
# derivative of that torque is mostly the quantisation of the encoders: noisy columns attenuate the
# estimated compliance, sag leaks into gains and masses, and the noise counts as information.
# The columns of a wrist sensor pass unfiltered: with encoder steps of 0.02 mrad, the errors of its
# moments of inertia grow by half with the cutoff, for their bias is small without.
_SAG_CUTOFF = 0.6
_LEAST_SCATTER = 1e-9
# Shaken rows scatter more than the others if they do so by this factor; with the fifty rows or so
# that there are, chance hardly ever makes it.
_SHAKEN = 1.3


@dataclass(frozen=True)
class DynamicSettings:
    """Settings of the estimation.

    Attributes:
        band: End of the band in which the arm is excited and noise is not averaged away [Hz].
        min_motion: Least joint travel for a record to count as exciting [rad].
        posture_std: Standard deviation of the angle of each joint: encoder offsets, a base out
            of level [rad].
        sag_std: Standard deviation of a joint's sag under its largest torque [rad].
        delay_std: Standard deviation of the delay of what is measured against positions [s].
        max_payload: Heaviest payload the arm may carry, 0 for no limit [kg].
        max_com_distance: Farthest plausible centre of mass from the tool frame [m].
        max_mass_interval: Widest acceptable half-width of the mass's 95 % interval, as a share.
        max_com_interval: Widest acceptable half-width of a centre's 95 % interval [m].
        max_inertia_std: Largest standard deviation of an element of inertia, as a share of the
            mean moment, that counts as identified.
        max_held_out_ratio: Largest ratio of held-out to fitted residuals.

    """

    band: float = 5.0
    min_motion: float = 0.2
    posture_std: float = 0.0
    sag_std: float = 0.0
    delay_std: float = 0.0
    max_payload: float = 0.0
    max_com_distance: float = 1.0
    max_mass_interval: float = 0.03
    max_com_interval: float = 0.01
    max_inertia_std: float = 0.1
    max_held_out_ratio: float = 1.5

    def check(self) -> None:
        """Refuse settings without meaning; raises ConfigurationError."""
        if not (np.isfinite(self.band) and self.band > 0.0):
            raise ConfigurationError(f'band must be a frequency above 0 Hz, got {self.band}.')
        for name in ('posture_std', 'sag_std', 'delay_std'):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0.0):
                raise ConfigurationError(
                    f'{name} is a standard deviation, 0 or more; got {value}.')

    def doubts(self) -> DoubtSettings:
        """Return what is doubted besides the payload."""
        return DoubtSettings(self.posture_std, self.sag_std, self.delay_std)


def scatter(values: Array, valid: Mask, shaken: Mask) -> Array:
    """Return the standard deviation of each row, infinite where it does not count.

    It is the scatter of the row's channel, correlation allowed for: a mean over rows scatters
    as if they were independent. Shaken rows count while they scatter as all others; once they
    scatter more in one channel, they count in none: what is left in them then is no noise.

    Args:
        values: Residuals, shape (channels, k).
        valid: Rows that count, shape (channels, k).
        shaken: Which of them lie beside a turn, shape (channels, k).

    Returns:
        Shape (channels, k).

    """
    calm = valid & ~shaken
    size = _rms_by_channel(values, calm)
    if (_rms_by_channel(values, shaken) < _SHAKEN * size).all():
        calm = valid
        size = _rms_by_channel(values, valid)
    found = np.full(values.shape, np.inf)
    for channel, counted in enumerate(calm):
        if not counted.any():
            continue
        time = autocorrelation_time(values[channel, counted])
        found[channel, counted] = size[channel] * np.sqrt(time)
    return found


def _rms_by_channel(values: Array, rows: Mask) -> Array:
    return np.array([max(rms(channel[counted]), _LEAST_SCATTER)
                     for channel, counted in zip(values, rows, strict=True)])


def condensed(columns: Array, unknowns: int) -> Array:
    """Return a few rows that say what all rows say, weighted alike: the triangular factor.

    Args:
        columns: What explains a channel, and what is measured, shape (k, p).
        unknowns: Of the whole problem, of which this is one channel.

    Returns:
        Shape (m, p); rows of zeros among them, where there are more unknowns than columns, so
        that too few rows are told from rows that are blind.

    """
    factor = np.linalg.qr(columns, mode='r')
    least = min(len(columns), unknowns + 1)
    return np.pad(factor, ((0, max(0, least - len(factor))), (0, 0)))


@dataclass(frozen=True)
class Rows:
    """A linear problem whose first ten columns are the payload.

    Attributes:
        regressor: Shape (channels, k, 10 + nuisances), nuisances per channel.
        measured: Shape (channels, k).
        valid: Rows that count, shape (channels, k): friction near standstill is no function of
            the speed.
        shaken: Rows beside those that do not count, where the drive may still feel that it
            turned round, shape (channels, k).
        nuisances: Names of a channel's nuisance columns.
        channels: Names of the channels.
        units: Their units.
        doubts: Works out the columns that all channels share, about an estimate of the payload
            and of the nuisances, channel by channel.
        readings: What became of the sensor's readings, by name; empty without a sensor.

    """

    regressor: Array
    measured: Array
    valid: Mask
    shaken: Mask
    nuisances: tuple[str, ...]
    channels: tuple[str, ...]
    units: tuple[str, ...]
    doubts: Callable[[Array], Doubts]
    readings: Mapping[str, int] = field(default_factory=dict)

    def part(self, rows: slice) -> Rows:
        """Return some of the instants."""
        return Rows(self.regressor[:, rows], self.measured[:, rows], self.valid[:, rows],
                    self.shaken[:, rows], self.nuisances, self.channels, self.units,
                    lambda value: self.doubts(value).part(rows), self.readings)


@dataclass(frozen=True)
class TorqueColumns:
    """Joint torques and everything that could explain them, in the same blocks.

    Attributes:
        effort: Measured, shape (n, k) [N·m].
        arm: What the arm alone takes, by its model, shape (n, k) [N·m].
        payload: Columns of a body on the tool frame, shape (n, k, 10).
        losses: Columns of friction, as of ``LOSSES``, shape (n, k, 4).
        valid: Blocks in which friction is a function of the speed, shape (n, k).
        shaken: Blocks beside others, shape (n, k).
        doubts: Works out what is doubted, as torques without gains, about an estimate of the
            payload, shape (10,), and of the losses, shape (n, 4).

    """

    effort: Array
    arm: Array
    payload: Array
    losses: Array
    valid: Mask
    shaken: Mask
    doubts: Callable[[Array, Array], Doubts]


def torque_columns(
    robot: Robot,
    samples: JointSamples,
    settings: DynamicSettings,
    friction: Mapping[str, SteadyFriction],
) -> TorqueColumns:
    """Compute the columns of a record of joint torques.

    Args:
        robot: The arm without the payload.
        samples: Joint states.
        settings: For the band, and for what is doubted.
        friction: Identified friction by joint name; it is subtracted from the effort.

    Raises:
        DataError: If the record is no excitation or its effort is dead.

    """
    check_joints(samples, robot.joint_names)
    check_effort(samples, robot.joint_names)
    blocks = Blocks.of(samples, settings.band, settings.min_motion)
    laws = [(joint, friction[name]) for joint, name in enumerate(robot.joint_names)
            if name in friction]

    def identified(velocity: Array) -> Array:
        torque = np.zeros_like(velocity)
        for joint, law in laws:
            torque[..., joint] = law.torque(velocity[..., joint])
        return torque

    effort = (blocks.sample_means(samples.time, samples.effort)
              - blocks.velocity_means(identified))
    dynamics = NewtonEuler(robot, robot.tool_frame)
    arm = blocks.means(dynamics.torque)
    payload = blocks.means(dynamics.torque_regressor)

    def doubted(body: Array, losses: Array) -> Doubts:
        def carried(q: Array, v: Array, a: Array) -> Array:
            return dynamics.torque(q, v, a, body)

        def effort_of(q: Array, v: Array, a: Array) -> Array:
            return carried(q, v, a) + identified(v) + (loss_columns(v) * losses).sum(axis=-1)

        torque = low_passed(
            blocks.centre.values_of(carried), blocks.period, _SAG_CUTOFF * settings.band)
        return doubts(robot, blocks, torque, effort_of, settings.doubts())

    valid = (blocks.slowest >= SLOWEST).T
    return TorqueColumns(
        effort.T, arm.T, _by_channel(payload), _by_channel(blocks.velocity_means(loss_columns)),
        valid, beside(valid), doubted)


def _by_channel(columns: Array) -> Array:
    """Return columns of shape (k, channels, p) in the order (channels, k, p)."""
    return np.ascontiguousarray(np.moveaxis(columns, 1, 0))


def beside(valid: Mask) -> Mask:
    """Return which of the blocks that count lie beside one that does not, shape (n, k)."""
    before, after = np.ones_like(valid), np.ones_like(valid)
    before[:, 1:], after[:, :-1] = valid[:, :-1], valid[:, 1:]
    return np.asarray(valid & ~(before & after))


def loss_columns(velocity: Array) -> Array:
    """Return the columns of friction at joint velocities [rad/s], shape (…, 4)."""
    return np.stack((np.ones_like(velocity), np.sign(velocity), velocity, np.abs(velocity)),
                    axis=-1)


def torque_rows(
    robot: Robot,
    samples: JointSamples,
    settings: DynamicSettings,
    friction: Mapping[str, SteadyFriction],
) -> Rows:
    """Build the problem of joint torques; arguments as of ``torque_columns``."""
    columns = torque_columns(robot, samples, settings, friction)
    shape = (robot.n, len(LOSSES))
    nuisances = slice(10, 10 + robot.n * len(LOSSES))
    return Rows(
        np.concatenate((columns.payload, columns.losses), axis=2), columns.effort - columns.arm,
        columns.valid, columns.shaken, LOSSES,
        tuple(f'torque of {name}' for name in robot.joint_names), ('N·m',) * robot.n,
        lambda value: columns.doubts(value[:10], value[nuisances].reshape(shape)))


def wrench_rows(
    robot: Robot, samples: JointSamples, sensor: WrenchSamples, settings: DynamicSettings
) -> Rows:
    """Build the problem of a wrist sensor; its biases are the nuisances.

    The body's parameters are those in the sensor frame.

    Args:
        robot: The arm without the payload.
        samples: Joint states; effort is not looked at.
        sensor: Readings.
        settings: For the band, and for what is doubted.

    Raises:
        DataError: If the record is no excitation, or the readings do not span it.

    """
    check_joints(samples, robot.joint_names)
    blocks = Blocks.of(samples, settings.band, settings.min_motion)
    if not len(sensor) or sensor.time[0] > blocks.edges[0] + _LATE or (
        sensor.time[-1] < blocks.edges[-1] - _LATE
    ):
        raise DataError(
            f"Readings of F/T sensor '{sensor.frame}' do not span the motion; is its topic "
            'published throughout, on the same clock?')
    wrench = blocks.sample_means(sensor.time, sensor.wrench)
    own = robot.distal_inertia(sensor.frame).to_pinocchio().toDynamicParameters()

    dynamics = NewtonEuler(robot, sensor.frame)

    def doubted(value: Array) -> Doubts:
        body = value[:10]
        read = -wrench_of(body + own)
        torque = blocks.centre.values_of(lambda q, v, a: dynamics.torque(q, v, a, body))
        return doubts(robot, blocks, torque, lambda q, v, a: dynamics.terms(q, v, a) @ read.T,
                      settings.doubts())

    # The sensor reads what the distal side exerts on it: the reaction of what carries it.
    payload = -wrench_regressor(blocks.means(dynamics.terms))
    measured = (wrench - payload @ own).T
    bias = np.ones((*payload.shape[:2], 1))
    return Rows(
        _by_channel(np.concatenate((payload, bias), axis=2)), measured,
        np.ones(measured.shape, dtype=bool), np.zeros(measured.shape, dtype=bool), ('bias',),
        tuple(f'{kind} {axis}' for kind in ('force', 'torque') for axis in 'xyz'),
        ('N',) * 3 + ('N·m',) * 3, doubted, sensor.counted())
