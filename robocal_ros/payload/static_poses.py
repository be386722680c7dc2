# SPDX-License-Identifier: Apache-2.0
"""Mass and centre of mass of a payload, and a wrist sensor's biases, from postures at rest.

Samples → dwells, each averaged → ten linear parameters → load in the tool frame → checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError, ExcitationError
from robocal_ros.estimation.least_squares import LinearFit, autocorrelation_time, solve
from robocal_ros.estimation.signals import Dwell, dwells
from robocal_ros.messages.samples import JointSamples, WrenchSamples, check_joints
from robocal_ros.payload.model import WRENCH_PARAMETERS, static_wrench, static_wrench_regressor
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.result import (
    COM,
    centre_checks,
    check_payload_limit,
    make_result,
    mass_check,
    settings_of,
    unidentified_inertia,
)
from robocal_ros.results.result import CalibrationResult, Check, Fit, Parameter, Series, rms
from robocal_ros.robot.model import Robot

PARAMETERS = ('mass', *COM, *WRENCH_PARAMETERS[4:])
_UNITS = ('kg', 'm', 'm', 'm', 'N', 'N', 'N', 'N·m', 'N·m', 'N·m')
MIN_POSES = 6
"""Fewest different postures."""

MIN_MASS = 0.02
"""Smallest mass that is distinguished from no payload [kg]."""

MAX_MASS_INTERVAL = 0.02
"""Widest acceptable half-width of the mass's 95 % interval, as a share."""

MAX_RESIDUAL_RATIO = 4.0
"""Largest ratio of held-out residuals to the sensor's own scatter."""

_SAME_POSTURE = 0.05
_CHANNELS = ('force x', 'force y', 'force z', 'torque x', 'torque y', 'torque z')


@dataclass(frozen=True)
class PoseMeasurement:
    """The sensor's mean reading in one posture.

    Attributes:
        posture: Joint angles, shape (n,) [rad].
        gravity: Gravity in the sensor frame, shape (3,) [m/s²].
        wrench: Mean reading minus the wrench of links distal to the sensor, (6,) [N, N·m].
        scatter: Standard deviation of single readings, shape (6,) [N, N·m].
        count: Number of readings divided by their autocorrelation time.

    """

    posture: Array
    gravity: Array
    wrench: Array
    scatter: Array
    count: float


def measure(
    robot: Robot, joints: JointSamples, sensor: WrenchSamples
) -> list[PoseMeasurement]:
    """Average the sensor's readings over every dwell.

    Args:
        robot: The arm without the payload.
        joints: Joint states.
        sensor: Readings of the wrist sensor.

    """
    found = []
    for dwell in dwells(joints):
        begin, end = joints.time[dwell.start], joints.time[dwell.stop - 1]
        rows = slice(int(np.searchsorted(sensor.time, begin)),
                     int(np.searchsorted(sensor.time, end, side='right')))
        readings = sensor.wrench[rows]
        if len(readings) < 10:
            continue
        found.append(_pose(robot, dwell, readings, sensor.frame))
    return _merged(found)


def _pose(robot: Robot, dwell: Dwell, readings: Array, frame: str) -> PoseMeasurement:
    rotation = robot.transform_frame_to_root(dwell.posture, frame).rotation
    gravity = rotation.T @ np.array(robot.gravity)
    own = static_wrench(robot.distal_inertia(frame, dwell.posture), gravity)
    correlated = max(autocorrelation_time(column) for column in readings.T)
    # Exactly zero for a constant channel, without rounding errors of the standard deviation.
    scatter = np.where(np.ptp(readings, axis=0) > 0.0, readings.std(axis=0, ddof=1), 0.0)
    return PoseMeasurement(
        dwell.posture, gravity, readings.mean(axis=0) - own, scatter, len(readings) / correlated
    )


def _merged(poses: Sequence[PoseMeasurement]) -> list[PoseMeasurement]:
    """Pool dwells of the same posture, so that leave-one-out omits all of them."""
    groups: list[list[PoseMeasurement]] = []
    for pose in poses:
        for group in groups:
            if np.abs(pose.posture - group[0].posture).max() < _SAME_POSTURE:
                group.append(pose)
                break
        else:
            groups.append([pose])
    return [_pooled(group) if len(group) > 1 else group[0] for group in groups]


def _pooled(poses: Sequence[PoseMeasurement]) -> PoseMeasurement:
    """Average dwells of one posture; the wrench is linear in gravity."""
    counts = np.array([pose.count for pose in poses])

    def mean(values: Sequence[Array]) -> Array:
        return np.asarray(np.average(values, axis=0, weights=counts))

    return PoseMeasurement(
        mean([pose.posture for pose in poses]), mean([pose.gravity for pose in poses]),
        mean([pose.wrench for pose in poses]),
        np.sqrt(mean([pose.scatter**2 for pose in poses])), float(counts.sum()),
    )


def _solve(poses: Sequence[PoseMeasurement], noise: Array) -> LinearFit:
    regressor = np.vstack([static_wrench_regressor(pose.gravity) for pose in poses])
    measured = np.concatenate([pose.wrench for pose in poses])
    std = np.concatenate([noise / np.sqrt(pose.count) for pose in poses])
    return solve(
        regressor, measured, std, WRENCH_PARAMETERS, max_condition=200.0,
        hint='The gravity directions seen by the sensor must span all three axes: tilt the '
             'sensor about both horizontal axes, also upside down if the arm allows it.',
    )


def estimate(
    robot: Robot, joints: JointSamples, sensor: WrenchSamples, values: PayloadParameters
) -> CalibrationResult:
    """Estimate mass, centre of mass and the sensor's biases from postures at rest.

    Args:
        robot: The arm without the payload.
        joints: Joint states.
        sensor: Readings of the wrist sensor.
        values: The node's parameters.

    Raises:
        DataError: If postures are too few, or the sensor's readings unusable.
        ExcitationError: If a direction is unobservable; it is named.

    """
    if not len(joints):
        raise DataError('No joint states are recorded; call run, or play a bag first.')
    if not len(sensor):
        raise DataError(
            f"No readings of F/T sensor '{sensor.frame}' are recorded; is its topic published?"
        )
    check_joints(joints, robot.joint_names)
    poses = measure(robot, joints, sensor)
    if len(poses) < MIN_POSES:
        raise DataError(
            f'{len(poses)} different postures at rest are recorded; the method needs at least '
            f'{MIN_POSES}. Hold each for at least a second.'
        )
    noise = _noise(poses, sensor.frame)
    fit = _solve(poses, noise)
    if fit.value[0] < MIN_MASS:
        raise DataError(
            f'The estimated mass is {fit.value[0]:.3f} kg; at least {MIN_MASS} kg are needed to '
            'distinguish it from no payload. Is a tool mounted? Is sensor_sign right (a hanging '
            'tool must read a force along gravity)?'
        )
    check_payload_limit(float(fit.value[0]), values)
    inflation = max(1.0, fit.reduced_chi_square if _unlikely(fit, len(poses)) else 1.0)
    value, covariance = _load_in_tool_frame(robot, sensor.frame, fit, inflation)
    left_out = _leave_one_out(poses, noise)
    return make_result(
        robot, joints, method='static_poses',
        parameters=_parameters(value, covariance, sensor.frame),
        covariance_names=PARAMETERS,
        covariance=covariance,
        fit=_fits(poses, fit, fit.residual.reshape(-1, 6)),
        validation=() if left_out is None else _fits(poses, fit, left_out),
        checks=(
            mass_check(float(value[0]), float(np.sqrt(covariance[0, 0])), MAX_MASS_INTERVAL),
            *centre_checks(value[1:4], covariance[1:4, 1:4], values),
            *_held_out_checks(poses, noise, left_out)),
        counts={'poses': len(poses), **sensor.counted()},
        settings={
            'min_poses': MIN_POSES, 'min_mass': MIN_MASS, 'max_mass_interval': MAX_MASS_INTERVAL,
            'max_residual_ratio': MAX_RESIDUAL_RATIO,
            **settings_of(values, 'max_payload', 'max_com_distance', 'max_com_interval'),
            'sensor_frame': sensor.frame},
        series=_series(fit, left_out, len(poses)),
    )


def _noise(poses: Sequence[PoseMeasurement], frame: str) -> Array:
    """Return the pooled standard deviation within the dwells by channel, shape (6,)."""
    noise = np.sqrt(np.mean([pose.scatter**2 for pose in poses], axis=0))
    if (noise <= 0.0).any():
        channel = _CHANNELS[int(np.argmin(noise))]
        raise DataError(
            f"Channel {channel} of F/T sensor '{frame}' is constant; a working sensor has noise. "
            'Check its driver and cable.'
        )
    return np.asarray(noise)


def _unlikely(fit: LinearFit, poses: int) -> bool:
    """Return whether the residuals exceed the noise significantly (about 3 sigma)."""
    freedom = 6 * poses - len(WRENCH_PARAMETERS)
    return fit.reduced_chi_square > 1.0 + 3.0 * float(np.sqrt(2.0 / freedom))


def _load_in_tool_frame(
    robot: Robot, frame: str, fit: LinearFit, inflation: float
) -> tuple[Array, Array]:
    """Convert (m, m c, biases) to (m, c in the tool frame, biases) with covariance."""
    posture = np.zeros(robot.n)
    transform_sensor_to_tool = robot.transform_frame_to_root(posture, robot.tool_frame).actInv(
        robot.transform_frame_to_root(posture, frame)
    )
    mass = fit.value[0]
    com = fit.value[1:4] / mass
    rotation = transform_sensor_to_tool.rotation
    value = fit.value.copy()
    value[1:4] = rotation @ com + transform_sensor_to_tool.translation
    jacobian = np.eye(10)
    jacobian[1:4, 0] = -rotation @ com / mass
    jacobian[1:4, 1:4] = rotation / mass
    return value, jacobian @ fit.covariance @ jacobian.T * inflation


def _leave_one_out(poses: Sequence[PoseMeasurement], noise: Array) -> Array | None:
    """Predict each posture from all others; residuals, shape (k, 6), or None if too few."""
    residuals = []
    for i, pose in enumerate(poses):
        try:
            fit = _solve([*poses[:i], *poses[i + 1:]], noise)
        except (ExcitationError, DataError):
            return None
        residuals.append(pose.wrench - static_wrench_regressor(pose.gravity) @ fit.value)
    return np.array(residuals)


def _fits(poses: Sequence[PoseMeasurement], fit: LinearFit, residual: Array) -> tuple[Fit, ...]:
    readings = np.array([pose.wrench for pose in poses]) - fit.value[4:]
    return tuple(
        Fit(what, unit, rms(readings[:, columns]), rms(residual[:, columns]), 3 * len(poses))
        for what, unit, columns in (('force', 'N', slice(0, 3)), ('torque', 'N·m', slice(3, 6)))
    )


def _held_out_checks(
    poses: Sequence[PoseMeasurement], noise: Array, left_out: Array | None
) -> list[Check]:
    if left_out is None:
        return []
    expected = noise / np.sqrt(np.mean([pose.count for pose in poses]))
    ratio = float(np.sqrt(np.mean((left_out / expected) ** 2)))
    return [Check(
        'held-out postures', ratio <= MAX_RESIDUAL_RATIO, ratio, MAX_RESIDUAL_RATIO, '1',
        f'Each posture predicted from the others: RMS residual {ratio:.2f} times the '
        f"scatter of the sensor's means (limit {MAX_RESIDUAL_RATIO:.0f}).")]


def _parameters(value: Array, covariance: Array, frame: str) -> tuple[Parameter, ...]:
    std = np.sqrt(np.diag(covariance))
    found = [
        Parameter(name, unit, float(v), float(s),
                  note=f'bias of {frame}' if name.startswith('bias') else '')
        for name, unit, v, s in zip(PARAMETERS, _UNITS, value, std, strict=True)
    ]
    inertia = unidentified_inertia('readings at rest do not depend on inertia')
    return (*found[:4], *inertia, *found[4:])


def _series(fit: LinearFit, left_out: Array | None, poses: int) -> tuple[Series, ...]:
    number = np.arange(1, poses + 1, dtype=float)
    residual = fit.residual.reshape(-1, 6)
    series = []
    for start, what, unit in ((0, 'Force', 'N'), (3, 'Torque', 'N·m')):
        curves = {f'{axis}': residual[:, start + i] for i, axis in enumerate('xyz')}
        if left_out is not None:
            curves |= {f'{axis}, held out': left_out[:, start + i]
                       for i, axis in enumerate('xyz')}
        series.append(Series(f'{what} residuals by posture', 'posture', f'residual [{unit}]',
                             number, curves))
    return tuple(series)
