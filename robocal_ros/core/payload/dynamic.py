# SPDX-License-Identifier: Apache-2.0
"""All ten parameters of a payload from an exciting motion, by joint torques or a wrist sensor.

Samples → filtered derivatives without phase error → linear regressor → weighted least squares →
physical consistency (Wensing, Kim, Slotine, IEEE RA-L 3 (2018) 60, doi
10.1109/LRA.2017.2729659) → mass, centre of mass, inertia about it → checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pinocchio as pin
from scipy.ndimage import maximum_filter1d
from scipy.optimize import least_squares
from scipy.signal import butter, sosfiltfilt

from robocal_ros import __version__
from robocal_ros.core.arrays import Array
from robocal_ros.core.friction.law import SteadyFriction
from robocal_ros.core.least_squares import LinearFit, autocorrelation_time, solve
from robocal_ros.core.payload.checks import centre_checks, mass_check
from robocal_ros.core.result import (
    CalibrationResult,
    Check,
    Fit,
    Parameter,
    RobotIdentity,
    Series,
    State,
    rms,
)
from robocal_ros.core.robot import Robot
from robocal_ros.core.samples import JointSamples, WrenchSamples, check_effort, check_joints
from robocal_ros.errors import ConfigurationError, DataError

BODY = ('mass', 'moment_x', 'moment_y', 'moment_z',
        'I_xx', 'I_xy', 'I_yy', 'I_xz', 'I_yz', 'I_zz')
"""Pinocchio's order of a body's dynamic parameters; inertia about the frame's origin."""

PARAMETERS = ('mass', 'com_x', 'com_y', 'com_z',
              'inertia_xx', 'inertia_xy', 'inertia_xz', 'inertia_yy', 'inertia_yz', 'inertia_zz')
_UNITS = ('kg', 'm', 'm', 'm', *['kg·m²'] * 6)
_ROWS, _COLUMNS = np.triu_indices(3)
_POSITION_CUTOFF = 4.0
_STRIBECK = 0.05
_SIGN = 0.01
# Slowest speed at which friction is modelled [rad/s], and how far a filter of the band reaches,
# as a share of the band's period.
_SLOW = 0.06
_SPREAD = 0.5
_HELD_OUT_SHARE = 0.25


@dataclass(frozen=True)
class DynamicSettings:
    """Settings of the estimation.

    Attributes:
        band: End of the band in which the arm is excited and noise is not filtered away [Hz].
        min_motion: Least joint travel for a record to count as exciting [rad].
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


@dataclass(frozen=True)
class Rows:
    """A linear problem whose first ten columns are the payload.

    Attributes:
        regressor: Shape (channels, k, 10 + nuisances), nuisances per channel.
        measured: Shape (channels, k).
        valid: Rows that count, shape (channels, k): friction near standstill is no function of
            the speed.
        nuisances: Names of a channel's nuisance columns.
        channels: Names of the channels.
        units: Their units.

    """

    regressor: Array
    measured: Array
    valid: npt.NDArray[np.bool_]
    nuisances: tuple[str, ...]
    channels: tuple[str, ...]
    units: tuple[str, ...]

    def part(self, rows: slice) -> Rows:
        """Return some of the instants."""
        return Rows(self.regressor[:, rows], self.measured[:, rows], self.valid[:, rows],
                    self.nuisances, self.channels, self.units)


def body_regressor(robot: Robot, frame: str, q: Array, v: Array, a: Array) -> Array:
    """Return the wrench that carries a body in motion, linear in its ten parameters.

    Args:
        robot: The arm.
        frame: Frame on which the body is mounted.
        q: Joint angles, shape (n,) [rad].
        v: Joint velocities, shape (n,) [rad/s].
        a: Joint accelerations, shape (n,) [rad/s²].

    Returns:
        Shape (6, 10), force first, in the frame; columns as ``BODY``.

    """
    # The regressor takes accelerations, gravity among them, from a recursion that has been run.
    pin.rnea(robot.model, robot.data, q, v, a)
    return np.array(pin.frameBodyRegressor(robot.model, robot.data, robot.frame_id(frame)))


def torque_regressor(robot: Robot, q: Array, v: Array, a: Array) -> Array:
    """Return the joint torques that a body on the tool frame takes, shape (n, 10)."""
    rows = body_regressor(robot, robot.tool_frame, q, v, a)
    jacobian = pin.computeFrameJacobian(
        robot.model, robot.data, q, robot.frame_id(robot.tool_frame), pin.ReferenceFrame.LOCAL)
    return np.asarray(jacobian.T @ rows)


@dataclass(frozen=True)
class _Motion:
    """Uniformly sampled kinematics."""

    time: Array
    position: Array
    velocity: Array
    acceleration: Array
    rate: float


def _motion(samples: JointSamples, settings: DynamicSettings) -> _Motion:
    """Resample, filter without phase error, differentiate."""
    period = float(np.median(np.diff(samples.time)))
    rate = 1.0 / period
    if rate < 4.0 * settings.band:
        raise DataError(
            f'Joint states come at {rate:.0f} Hz; a band of {settings.band} Hz needs at least '
            f'{4.0 * settings.band:.0f} Hz. Raise the rate or lower band.')
    time = np.arange(samples.time[0], samples.time[-1], period)
    if len(time) < 4 * rate / settings.band:
        raise DataError(f'The record lasts {samples.time[-1] - samples.time[0]:.2f} s, too short '
                        'to excite anything; several seconds are needed.')
    raw = np.column_stack([np.interp(time, samples.time, c) for c in samples.position.T])
    # Well above the band, so that positions in the band pass untouched.
    position = _lowpass(raw, min(_POSITION_CUTOFF * settings.band, 0.4 * rate), rate)
    velocity = np.gradient(position, period, axis=0)
    acceleration = np.gradient(velocity, period, axis=0)
    if float(np.ptp(position, axis=0).max()) < settings.min_motion:
        raise DataError(
            f'No joint moved by more than {settings.min_motion} rad in this record; expected an '
            'exciting motion. Call run, or play a bag with one.')
    return _Motion(time, position, velocity, acceleration, rate)


def _lowpass(values: Array, cutoff: float, rate: float) -> Array:
    sections = butter(4, cutoff / (0.5 * rate), output='sos')
    return np.asarray(sosfiltfilt(sections, values, axis=0))


def _banded(values: Array, motion: _Motion, settings: DynamicSettings) -> Array:
    """Filter to the band and thin out; the same for both sides of the equation.

    Args:
        values: Shape (k, …), time first.
        motion: For the rate.
        settings: For the band.

    """
    flat = values.reshape(len(values), -1)
    filtered = _lowpass(flat, settings.band, motion.rate)
    return filtered[_kept(motion, settings)].reshape(-1, *values.shape[1:])


def _kept(motion: _Motion, settings: DynamicSettings) -> slice:
    """Return the instants that are kept: thinned out to the band, without the ends."""
    # The filter starts and ends in what it cannot know.
    edge = int(motion.rate / settings.band)
    return slice(edge, -edge, max(1, int(motion.rate / (2.5 * settings.band))))


@dataclass(frozen=True)
class TorqueColumns:
    """Joint torques and everything that could explain them, filtered alike.

    Attributes:
        effort: Measured, shape (n, k) [N·m].
        arm: What the arm alone takes, by its model, shape (n, k) [N·m].
        payload: Columns of a body on the tool frame, shape (n, k, 10).
        losses: Columns of friction, as of ``LOSSES``, shape (n, k, 5).
        valid: Instants at which friction is a function of the speed, shape (n, k).

    """

    effort: Array
    arm: Array
    payload: Array
    losses: Array
    valid: npt.NDArray[np.bool_]


LOSSES = ('offset', 'coulomb', 'viscous', 'viscous_asymmetry', 'stribeck')
"""Columns of what a drive loses: 1, sgn v, v, |v|, sgn v exp(-(v/vs)²)."""


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
        settings: For the band.
        friction: Identified friction by joint name; it is subtracted from the effort.

    Raises:
        DataError: If the record is no excitation or its effort is dead.

    """
    check_joints(samples, robot.joint_names)
    check_effort(samples, robot.joint_names)
    motion = _motion(samples, settings)
    effort = np.column_stack([
        np.interp(motion.time, samples.time, column) for column in samples.effort.T])
    count, n = effort.shape
    arm, payload = np.empty((count, n)), np.empty((count, n, 10))
    for i in range(count):
        q, v, a = motion.position[i], motion.velocity[i], motion.acceleration[i]
        arm[i] = robot.inverse_dynamics(q, v, a)
        payload[i] = torque_regressor(robot, q, v, a)
    for joint, name in enumerate(robot.joint_names):
        if name in friction:
            effort[:, joint] -= friction[name].torque(motion.velocity[:, joint])
    sign = np.tanh(motion.velocity / _SIGN)
    bell = sign * np.exp(-((motion.velocity / _STRIBECK) ** 2))
    losses = np.stack(
        (np.ones_like(sign), sign, motion.velocity, np.abs(motion.velocity), bell), axis=2)
    # Filtering spreads what happens near standstill over the filter's length.
    slow = (np.abs(motion.velocity) < _SLOW).astype(float)
    reach = int(_SPREAD * motion.rate / settings.band)
    valid = maximum_filter1d(slow, 2 * reach + 1, axis=0)[_kept(motion, settings)] < 0.5
    return TorqueColumns(
        _banded(effort, motion, settings).T, _banded(arm, motion, settings).T,
        np.moveaxis(_banded(payload, motion, settings), 1, 0),
        np.moveaxis(_banded(losses, motion, settings), 1, 0), valid.T)


def torque_rows(
    robot: Robot,
    samples: JointSamples,
    settings: DynamicSettings,
    friction: Mapping[str, SteadyFriction],
) -> Rows:
    """Build the problem of joint torques; arguments as of ``torque_columns``."""
    columns = torque_columns(robot, samples, settings, friction)
    return Rows(
        np.concatenate((columns.payload, columns.losses), axis=2), columns.effort - columns.arm,
        columns.valid, LOSSES, tuple(f'torque of {name}' for name in robot.joint_names),
        ('N·m',) * robot.n)


def wrench_rows(
    robot: Robot, samples: JointSamples, sensor: WrenchSamples, settings: DynamicSettings
) -> Rows:
    """Build the problem of a wrist sensor; its biases are the nuisances.

    The body's parameters are those in the sensor frame.
    """
    check_joints(samples, robot.joint_names)
    motion = _motion(samples, settings)
    if not len(sensor) or sensor.time[0] > motion.time[0] + 0.5 or (
        sensor.time[-1] < motion.time[-1] - 0.5
    ):
        raise DataError(
            f"Readings of F/T sensor '{sensor.frame}' do not span the motion; is its topic "
            'published throughout, on the same clock?')
    wrench = np.column_stack([
        np.interp(motion.time, sensor.time, column) for column in sensor.wrench.T])
    own = robot.distal_inertia(sensor.frame).to_pinocchio().toDynamicParameters()
    count = len(motion.time)
    payload = np.empty((count, 6, 10))
    for i in range(count):
        payload[i] = body_regressor(
            robot, sensor.frame, motion.position[i], motion.velocity[i], motion.acceleration[i])
    # The sensor reads what the distal side exerts on it: the reaction of what carries the body.
    wrench += payload @ own
    bias = np.ones((count, 6, 1))
    regressor = _banded(np.concatenate((-payload, bias), axis=2), motion, settings)
    measured = _banded(wrench, motion, settings).T
    return Rows(
        np.moveaxis(regressor, 1, 0), measured, np.ones(measured.shape, dtype=bool), ('bias',),
        tuple(f'{kind} {axis}' for kind in ('force', 'torque') for axis in 'xyz'),
        ('N',) * 3 + ('N·m',) * 3)


def _assembled(rows: Rows, noise: Array) -> tuple[Array, Array, Array, tuple[str, ...]]:
    """Stack the channels; nuisance columns of a channel touch its rows only."""
    channels, count, width = rows.regressor.shape
    extra = width - 10
    regressor = np.zeros((channels * count, 10 + channels * extra))
    names = list(BODY)
    for channel in range(channels):
        part = slice(channel * count, (channel + 1) * count)
        regressor[part, :10] = rows.regressor[channel, :, :10]
        at = 10 + channel * extra
        regressor[part, at:at + extra] = rows.regressor[channel, :, 10:]
        names += [f'{rows.channels[channel]}: {name}' for name in rows.nuisances]
    valid = rows.valid.ravel()
    return regressor[valid], rows.measured.ravel()[valid], np.repeat(noise, count)[valid], (
        tuple(names))


def fit_rows(rows: Rows) -> tuple[LinearFit, Array]:
    """Solve, with each channel weighted by the scatter that it turns out to have.

    Returns:
        The fit, and the scatter of each channel, shape (channels,).

    """
    noise = _scatter(rows, rows.measured)
    for _ in range(3):
        regressor, measured, std, names = _assembled(rows, noise)
        fit = solve(
            regressor, measured, std, names, max_condition=1e5,
            hint='Excite the arm more: faster, farther, with all joints turned.')
        noise = _scatter(rows, _by_channel(rows, fit.residual))
    return fit, noise


def _by_channel(rows: Rows, values: Array) -> Array:
    """Return values of the rows that count as channels, zero elsewhere, shape (channels, k)."""
    spread = np.zeros(rows.measured.shape)
    spread[rows.valid] = values
    return spread


def _scatter(rows: Rows, values: Array) -> Array:
    return np.array([max(rms(channel[valid]), 1e-9)
                     for channel, valid in zip(values, rows.valid, strict=True)])


def consistent(parameters: Array, covariance: Array) -> tuple[Array, bool]:
    """Return the physically consistent body nearest to an estimate, and whether it had to move.

    Consistent: the pseudo-inertia matrix is positive definite, so mass and density are positive
    somewhere. Nearest in the metric of the estimate's covariance, over log-Cholesky
    coordinates.

    Args:
        parameters: Dynamic parameters as of ``BODY``, shape (10,).
        covariance: Their covariance, shape (10, 10).

    """
    pseudo = pin.PseudoInertia.FromDynamicParameters(parameters).toMatrix()
    smallest = float(np.linalg.eigvalsh(pseudo)[0])
    if smallest > 1e-9 * abs(float(np.trace(pseudo))):
        return parameters, False
    whitening = np.linalg.inv(np.linalg.cholesky(
        covariance + 1e-18 * np.eye(10) * np.trace(covariance)))

    def residual(x: Array) -> Array:
        body = pin.LogCholeskyParameters(x).toDynamicParameters()
        return np.asarray(whitening @ (body - parameters))

    start = np.array([np.log(max(parameters[0], 1e-3)) / 2.0, *[-2.0] * 3, *[0.0] * 6])
    solution = least_squares(residual, start, max_nfev=2000, x_scale=1.0)
    return np.asarray(pin.LogCholeskyParameters(solution.x).toDynamicParameters()), True


def _centred(parameters: Array) -> Array:
    """Return mass, centre of mass, inertia about it, as of ``PARAMETERS``."""
    mass, com = parameters[0], parameters[1:4] / parameters[0]
    xx, xy, yy, xz, yz, zz = parameters[4:]
    about_origin = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    inertia = about_origin - mass * ((com @ com) * np.eye(3) - np.outer(com, com))
    return np.concatenate(([mass], com, inertia[_ROWS, _COLUMNS]))


def _propagated(parameters: Array, covariance: Array) -> Array:
    """Return the covariance of ``_centred`` by central differences."""
    jacobian = np.empty((10, 10))
    step = 1e-6
    for i in range(10):
        shift = np.zeros(10)
        shift[i] = step
        jacobian[:, i] = (_centred(parameters + shift) - _centred(parameters - shift)) / (2 * step)
    return jacobian @ covariance @ jacobian.T


def estimate(
    robot: Robot,
    rows: Rows,
    frame: str,
    settings: DynamicSettings,
    *,
    samples: JointSamples,
    reference: CalibrationResult | None = None,
) -> CalibrationResult:
    """Estimate all ten parameters.

    Args:
        robot: The arm without the payload.
        rows: The problem, by ``torque_rows`` or ``wrench_rows``.
        frame: Frame in which the body's columns are expressed.
        settings: Settings of the estimation.
        samples: The record behind the rows.
        reference: Result of the same motion without the payload: what it found is the error of
            the arm's own model, and is subtracted.

    Raises:
        DataError: If the record is no excitation, or the payload too heavy.
        ExcitationError: If directions stay blind; they are named.

    """
    settings.check()
    fit = fit_rows(rows)[0]
    residual = _by_channel(rows, fit.residual)
    body, covariance = _body_in_tool_frame(robot, frame, rows, fit, residual)
    if reference is not None:
        known, uncertainty = _reference_body(reference, robot)
        body, covariance = body - known, covariance + uncertainty
    forced = False
    if reference is None or body[0] > 0.0:
        body, forced = consistent(body, covariance)
    if 0.0 < settings.max_payload < body[0]:
        raise DataError(
            f'The payload weighs {body[0]:.2f} kg, more than max_payload allows '
            f'({settings.max_payload} kg). Take it off, or correct the limit.')
    value, spread = _centred(body), _propagated(body, covariance)
    held_out = _held_out(rows)
    return CalibrationResult(
        kind='payload',
        method='excitation',
        robot=RobotIdentity(robot.name, robot.urdf_hash, robot.joint_names),
        frame=robot.tool_frame,
        parameters=_parameters(value, spread, settings),
        covariance_names=PARAMETERS,
        covariance=spread,
        fit=_fits(rows, residual),
        validation=() if held_out is None else _fits(*held_out),
        checks=_checks(settings, value, spread, rows, residual, held_out, forced),
        counts={'samples': len(samples), 'rows': int(rows.measured.size),
                **asdict(samples.counts)},
        settings=_plain_settings(settings, robot, rows, reference),
        source=samples.source,
        time=float(samples.time[-1]),
        software_version=__version__,
        series=_series(rows, residual),
    )


def _plain_settings(
    settings: DynamicSettings, robot: Robot, rows: Rows, reference: CalibrationResult | None
) -> dict[str, Any]:
    return {**asdict(settings), 'tool_frame': robot.tool_frame,
            'gravity': [float(g) for g in robot.gravity], 'channels': list(rows.channels),
            'reference_run': reference is not None}


def _transform(robot: Robot, frame: str) -> pin.SE3:
    """Return the placement of a frame in the tool frame; both must move together."""
    posture = np.zeros(robot.n)
    tool = robot.transform_frame_to_root(posture, robot.tool_frame)
    return tool.actInv(robot.transform_frame_to_root(posture, frame))


def _moved_column(column: Array, transform: pin.SE3) -> Array:
    """Move one unit parameter: moving bodies is linear in their dynamic parameters."""
    rotation, shift = transform.rotation, transform.translation
    mass, moment = column[0], rotation @ column[1:4]
    xx, xy, yy, xz, yz, zz = column[4:]
    about = rotation @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ rotation.T
    moved = moment + mass * shift
    total = (about + (2.0 * (shift @ moment) + mass * (shift @ shift)) * np.eye(3)
             - np.outer(shift, moment) - np.outer(moment, shift) - mass * np.outer(shift, shift))
    return np.array([mass, *moved, total[0, 0], total[0, 1], total[1, 1], total[0, 2],
                     total[1, 2], total[2, 2]])


def _body_in_tool_frame(
    robot: Robot, frame: str, rows: Rows, fit: LinearFit, residual: Array
) -> tuple[Array, Array]:
    """Return the body's dynamic parameters in the tool frame, and their covariance."""
    inflation = float(np.mean([autocorrelation_time(channel[valid]) for channel, valid
                               in zip(residual, rows.valid, strict=True)]))
    transform = _transform(robot, frame)
    moving = np.column_stack([_moved_column(column, transform) for column in np.eye(10)])
    scale = fit.reduced_chi_square * inflation
    return (moving @ fit.value[:10],
            moving @ fit.covariance[:10, :10] @ moving.T * scale)


def estimate_reference(
    robot: Robot, rows: Rows, frame: str, settings: DynamicSettings, *, samples: JointSamples
) -> CalibrationResult:
    """Estimate what the arm's own model lacks, from an excitation without payload.

    Arguments as of ``estimate``. The ten parameters are those of the body that would explain
    it, in the tool frame; they may be of either sign.
    """
    settings.check()
    fit = fit_rows(rows)[0]
    residual = _by_channel(rows, fit.residual)
    body, covariance = _body_in_tool_frame(robot, frame, rows, fit, residual)
    std = np.sqrt(np.diag(covariance))
    held_out = _held_out(rows)
    return CalibrationResult(
        kind='payload',
        method='excitation',
        robot=RobotIdentity(robot.name, robot.urdf_hash, robot.joint_names),
        frame=robot.tool_frame,
        parameters=tuple(
            Parameter(name, unit, float(value), float(sigma))
            for name, unit, value, sigma in zip(
                BODY, ('kg', *['kg·m'] * 3, *['kg·m²'] * 6), body, std, strict=True)),
        covariance_names=BODY,
        covariance=covariance,
        fit=_fits(rows, residual),
        validation=() if held_out is None else _fits(*held_out),
        checks=() if held_out is None else tuple(
            _held_out_checks(settings, rows, residual, held_out)),
        counts={'samples': len(samples), **asdict(samples.counts)},
        settings=_plain_settings(settings, robot, rows, None),
        source=samples.source,
        time=float(samples.time[-1]),
        software_version=__version__,
    )


def _reference_body(reference: CalibrationResult, robot: Robot) -> tuple[Array, Array]:
    """Return the dynamic parameters that a run without payload found, and their covariance."""
    if reference.covariance_names != BODY or reference.frame != robot.tool_frame:
        raise ConfigurationError(
            f"The reference run is of method '{reference.method}' in frame '{reference.frame}'; "
            f"expected 'excitation' without payload in '{robot.tool_frame}'. Record it anew.")
    return reference.values(BODY), np.array(reference.covariance)


def _held_out(rows: Rows) -> tuple[Rows, Array] | None:
    """Fit the first part of the motion and predict the last; None if it is too short."""
    count = rows.measured.shape[1]
    border = int((1.0 - _HELD_OUT_SHARE) * count)
    if (count - border) * len(rows.channels) < 50:
        return None
    try:
        fit, noise = fit_rows(rows.part(slice(0, border)))
    except DataError:
        return None
    last = rows.part(slice(border, count))
    regressor, measured, _, _ = _assembled(last, noise)
    return last, _by_channel(last, measured - regressor @ fit.value)


def _fits(rows: Rows, residual: Array) -> tuple[Fit, ...]:
    return tuple(
        Fit(name, unit, rms(measured[valid]), rms(left[valid]), int(valid.sum()))
        for name, unit, measured, left, valid
        in zip(rows.channels, rows.units, rows.measured, residual, rows.valid, strict=True))


def _parameters(
    value: Array, covariance: Array, settings: DynamicSettings
) -> tuple[Parameter, ...]:
    std = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    moment = float(value[[4, 7, 9]].mean())
    worst = float(std[4:].max()) / max(abs(moment), 1e-12)
    found = []
    for name, unit, number, sigma in zip(PARAMETERS, _UNITS, value, std, strict=True):
        if name.startswith('inertia') and worst > settings.max_inertia_std:
            found.append(Parameter(
                name, unit, state=State.NOT_IDENTIFIED,
                note=f'standard deviation up to {100 * worst:.0f} % of the mean moment (limit '
                     f'{100 * settings.max_inertia_std:.0f} %)'))
        else:
            found.append(Parameter(name, unit, float(number), float(sigma)))
    return tuple(found)


def _checks(
    settings: DynamicSettings, value: Array, covariance: Array, rows: Rows, residual: Array,
    held_out: tuple[Rows, Array] | None, forced: bool,
) -> tuple[Check, ...]:
    checks = [
        mass_check(float(value[0]), float(np.sqrt(covariance[0, 0])), settings.max_mass_interval),
        *centre_checks(value[1:4], covariance[1:4, 1:4], settings.max_com_interval,
                       settings.max_com_distance),
    ]
    if forced:
        checks.append(Check(
            'physical consistency', True, 1.0, 1.0, '1',
            'The unconstrained estimate was no possible body within its uncertainty; the '
            'nearest possible one was taken.'))
    if held_out is not None:
        checks += _held_out_checks(settings, rows, residual, held_out)
    return tuple(checks)


def _held_out_checks(
    settings: DynamicSettings, rows: Rows, residual: Array, held_out: tuple[Rows, Array]
) -> Sequence[Check]:
    ratios = [after.after / max(before.after, 1e-12) for after, before
              in zip(_fits(*held_out), _fits(rows, residual), strict=True)]
    worst = int(np.argmax(ratios))
    limit = settings.max_held_out_ratio
    return [Check(
        'held-out part of the motion', ratios[worst] <= limit, ratios[worst], limit, '1',
        f'The last part of the motion is predicted with residuals up to {ratios[worst]:.2f} '
        f'times those of the fit, in {rows.channels[worst]} (limit {limit:.1f}).')]


def _series(rows: Rows, residual: Array) -> tuple[Series, ...]:
    count = rows.measured.shape[1]
    pick = np.unique(np.linspace(0, count - 1, min(count, 150)).astype(int))
    series = []
    for name, unit, measured, left in zip(
        rows.channels, rows.units, rows.measured, residual, strict=True
    ):
        series.append(Series(
            f'{name[0].upper()}{name[1:]}, less the arm', 'sample', f'{name} [{unit}]',
            pick.astype(float),
            {'measured': measured[pick], 'fit': (measured - left)[pick],
             'residual': left[pick]}))
    return tuple(series)
