# SPDX-License-Identifier: Apache-2.0
"""All ten parameters of a payload from an exciting motion, by joint torques or a wrist sensor.

Samples → block averages → linear regressor → weighted least squares with nuisance parameters →
physical consistency → mass, centre of mass, inertia about it → checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import scipy

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError
from robocal_ros.messages.samples import JointSamples, WrenchSamples
from robocal_ros.payload.model import (
    BODY,
    PARAMETERS,
    UNITS,
    centred,
    centred_covariance,
    consistent,
    moving,
)
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.regression import (
    BAND,
    MIN_MOTION,
    NuisanceParameters,
    Rows,
    RowsFit,
    held_out_fits,
    scatter,
    torque_rows,
    wrench_rows,
)
from robocal_ros.payload.result import (
    ARM_SOURCE,
    MAX_HELD_OUT_RATIO,
    centre_checks,
    check_payload_limit,
    largest_source,
    links_cause,
    make_result,
    mass_check,
    motion_checks,
    settings_of,
)
from robocal_ros.results.result import (
    CalibrationResult,
    Check,
    Fit,
    Parameter,
    Series,
    State,
    spread,
)
from robocal_ros.robot.arm_model import ArmModel, body_covariance
from robocal_ros.robot.friction_law import SteadyFriction
from robocal_ros.robot.model import Robot

REFERENCE = 'payload_reference'
"""Kind of the result of a reference run."""

MAX_INERTIA_STD = 0.1
"""Largest standard deviation of an element of inertia, as a share of the mean moment, that counts
as identified."""

# Starts of the names of nuisance parameters, by source of uncertainty and remedy.
_SOURCES: dict[str, tuple[str, ...]] = {
    ARM_SOURCE: ('arm',),
    'the calibration of the wrist sensor (sensor_gain_std)': ('gain of',),
    'the deflection of joints (sag_std)': ('compliance',),
    'joint angles (posture_std)': ('angle',),
    'the tilt of the base (tilt_std)': ('tilt',),
    'a cable to the wrist sensor (cable_stiffness_std)': ('cable',),
    'delays (delay_std)': ('delay', 'low-pass'),
    'friction that changes or grows with the load (friction_change_std, load_friction_std)': (
        'load-dependent', 'drift', 'sublinear'),
}
_NOISE = ('noise and what the model does not explain: use a faster motion or more '
          'excitation_repeats')
_REFERENCE_NOISE = 'the reference run: record it again with a faster motion or more repeats'
# Largest difference of the joints' mean positions and ranges within the same motion [rad].
_SAME_MOTION = 0.1
_MAX_CONDITION = 1e5
_PASSES = 3
_LEAST_HELD_OUT = 50
_PLOT_POINTS = 150
# Probability that ten true parameters are farther off than the nearest consistent body may be.
_TOO_FAR = 1e-4


def check_reference(
    robot: Robot, values: PayloadParameters, reference: CalibrationResult | None
) -> None:
    """Raise a ConfigurationError if a reference is to be subtracted and none fits."""
    if values.method != 'excitation' or values.reference_run != 'subtract':
        return
    if reference is None:
        raise ConfigurationError(
            "reference_run is 'subtract', but no reference is stored: unmount the tool and run "
            "once with reference_run 'record'.")
    if reference.covariance_names != BODY or reference.frame != robot.tool_frame:
        raise ConfigurationError(
            f"The reference run is of method '{reference.method}' in frame '{reference.frame}'; "
            f"expected 'excitation' without payload in '{robot.tool_frame}'. Record it anew.")


def check_fit(
    robot: Robot, joints: JointSamples, channels: Sequence[str], reference: CalibrationResult
) -> None:
    """Raise a ConfigurationError if a reference run does not fit a run with payload.

    The error of the arm's model is that of the same arm, measured by the same channels in the
    same motion.

    Args:
        robot: The arm.
        joints: Joint states of the run with payload.
        channels: Names of the measured channels.
        reference: Result of the reference run.

    """
    wrong = ''
    centre, extent = (np.array(reference.settings.get(f'motion_{what}', np.full(robot.n, np.nan)))
                      for what in ('centre', 'extent'))
    if reference.robot.urdf_sha256 != robot.urdf_hash:
        wrong = 'was recorded with another robot description'
    elif reference.settings.get('channels') != list(channels):
        wrong = f'measured {reference.settings.get("channels")}, not {list(channels)}'
    elif not (np.abs(joints.position.mean(axis=0) - centre).max() <= _SAME_MOTION
              and np.abs(np.ptp(joints.position, axis=0) - extent).max() <= _SAME_MOTION):
        wrong = (f'is of another motion: mean or range of a joint differs by more than '
                 f'{_SAME_MOTION} rad')
    if wrong:
        raise ConfigurationError(
            f"The reference run {wrong}. Unmount the tool and record it again in this motion with "
            "reference_run 'record'.")


def fit_rows(rows: Rows, nuisance: NuisanceParameters | None = None) -> RowsFit:
    """Solve with each channel weighted by the scatter of its residuals, iteratively.

    Args:
        rows: The problem.
        nuisance: The nuisance columns; by default they are computed about a first estimate.

    Raises:
        DataError: If rows are too few.
        ExcitationError: If directions are unobservable; they are named.

    """
    if nuisance is None:
        body, own, _ = rows.split(fit_rows(rows, rows.no_nuisance()).value)
        nuisance = rows.nuisance_about(body, own)
    noise = scatter(rows.measured, rows.valid, rows.near_reversal)
    used, scale = np.isfinite(noise), np.ones(len(rows.channels))
    few, shared = rows.condensed(nuisance, used)
    for repetition in range(_PASSES + 1):
        fit = few.solve(few.columns(shared), few.measured, noise,
                        rows.names(nuisance), nuisance, _MAX_CONDITION)
        residual = rows.residual(fit.value, nuisance, scale)
        if repetition == _PASSES:
            break
        noise = scatter(residual, rows.valid, rows.near_reversal)
        if repetition:
            nuisance = nuisance.widened(fit.value, fit.covariance)
            shared = replace(shared, std=nuisance.std)
        if (np.isfinite(noise) != used).any():
            used = np.isfinite(noise)
            few, shared = rows.condensed(nuisance, used)
    count = int(used.sum())
    return RowsFit(fit.value, fit.covariance * (count / max(count - rows.width, 1)),
                   fit.covariance, residual, noise, nuisance, scale)


def estimate(
    robot: Robot,
    joints: JointSamples,
    values: PayloadParameters,
    *,
    sensor: WrenchSamples | None = None,
    friction: Mapping[str, SteadyFriction] | None = None,
    reference: CalibrationResult | None = None,
    arm: ArmModel | None = None,
) -> CalibrationResult:
    """Estimate all ten parameters, or with reference_run 'record' the error of the arm's model.

    A reference run is an excitation without payload. Its ten parameters, of either sign, are
    those of a body in the tool frame that would explain the error of the arm's own model.

    Args:
        robot: The arm without the payload.
        joints: Joint states.
        values: The node's parameters.
        sensor: Readings of the wrist sensor; None to use joint torques.
        friction: Identified friction by joint name, for joint torques.
        reference: Result of a reference run, subtracted with reference_run 'subtract'.
        arm: Knowledge of the arm's own dynamics, for joint torques; None without. Without it or a
            reference, joint torques cannot show whether the arm's model holds.

    Raises:
        ConfigurationError: If the reference is missing, or of another method or frame.
        DataError: If the motion is not exciting, or the payload exceeds max_payload.
        ExcitationError: If directions are unobservable; they are named.

    """
    check_reference(robot, values, reference)
    if sensor is not None:
        rows = wrench_rows(robot, joints, sensor, values)
    elif reference is not None and arm is not None:
        # What is wrong with the arm cancels; the gains act on the payload, too.
        rows = torque_rows(robot, joints, values, friction, arm.gains_alone(),
                           reference.values(BODY))
    else:
        rows = torque_rows(robot, joints, values, friction,
                           arm if values.reference_run == 'off' else None)
    fit = fit_rows(rows)
    fit = rows.inflated(rows.columns(fit.nuisance), fit)
    move = moving(robot, rows.frame)
    body, covariance = move @ fit.value[:10], move @ fit.covariance[:10, :10] @ move.T
    if sensor is not None and values.reference_run == 'off':
        # Links between sensor and payload are subtracted by the URDF.
        distal = body_covariance(robot.distal_inertia(sensor.frame), values.arm_model_std)
        covariance = covariance + move @ distal @ move.T
    if values.reference_run == 'record':
        parameters = tuple(
            Parameter(name, unit, float(number), float(sigma)) for name, unit, number, sigma
            in zip(BODY, ('kg', *['kg·m'] * 3, *['kg·m²'] * 6), body,
                   np.sqrt(np.diag(covariance)), strict=True))
        return _result(robot, joints, values, rows, fit, REFERENCE, parameters, BODY, covariance)
    if values.reference_run == 'subtract' and reference is not None:
        check_fit(robot, joints, rows.channels, reference)
        body = body - reference.values(BODY)
        covariance = covariance + np.array(reference.covariance)
    body, distance = consistent(body, covariance)
    check_payload_limit(float(body[0]), values)
    value, covariance = centred(body), centred_covariance(body, covariance)
    parameters = _parameters(value, covariance)
    links = '' if sensor is None else links_cause(
        robot.distal_inertia(sensor.frame).mass, parameters[0], values)
    of_mass, of_centre = (
        links or largest_source(_variances(fit, places, reference))
        for places in (slice(0, 1), slice(1, 4)))
    checks = (mass_check(parameters[0], values, of_mass),
              *centre_checks(parameters[1:4], values, of_centre),
              *_consistency_check(distance),
              *(() if sensor is not None else _evidence(values, arm)))
    identified = [i for i, parameter in enumerate(parameters) if parameter.value is not None]
    return _result(
        robot, joints, values, rows, fit, 'payload', (*parameters, *_delay(rows, fit)),
        tuple(PARAMETERS[i] for i in identified), covariance[np.ix_(identified, identified)],
        checks)


def _variances(
    fit: RowsFit, places: slice, reference: CalibrationResult | None
) -> dict[str, float]:
    """Return by source what it contributes to the variance of some of the ten parameters.

    That of nuisance parameters is what the variance would lose if they were known.
    """
    names = fit.nuisance.names
    first = len(fit.value) - len(names)
    found = {_REFERENCE_NOISE: 0.0 if reference is None else float(
        np.trace(np.array(reference.covariance)[places, places]))}
    own = fit.covariance[places, places]
    for source, starts in _SOURCES.items():
        at = [first + i for i, name in enumerate(names) if name.startswith(starts)]
        if at:
            cross = fit.covariance[places, at]
            found[source] = float(np.trace(
                cross @ np.linalg.pinv(fit.covariance[np.ix_(at, at)]) @ cross.T))
    found[_NOISE] = max(float(np.trace(own)) - sum(found.values()) + found[_REFERENCE_NOISE], 0.0)
    return found


def _evidence(values: PayloadParameters, arm: ArmModel | None) -> list[Check]:
    external = values.effort_contains == 'external'
    source = ("efforts do not contain the arm's own torques" if external
              else 'a reference run' if values.reference_run == 'subtract'
              else arm.source if arm is not None and arm.evidence else '')
    return [Check(
        'evidence of the arm model', True, float(bool(source)), 1.0, '1',
        f'Evidence of the arm model: {source}.' if source else
        "Nothing shows that the arm's own model holds, and its errors pass for payload: identify "
        'the arm (robocal estimate arm), calibrate the drive gains, or record a reference run '
        'without the tool and subtract it.', evaluated=bool(source))]


def _result(
    robot: Robot, joints: JointSamples, values: PayloadParameters, rows: Rows, fit: RowsFit,
    kind: str, parameters: tuple[Parameter, ...], names: tuple[str, ...], covariance: Array,
    checks: tuple[Check, ...] = (),
) -> CalibrationResult:
    fitted = rows.fits(fit.used, fit.residual, rows.measured, rows.lack_of_fit(fit))
    by_torque = () if rows.readings else (
        rows.unexplained_check(fit, values.unexplained_torque(robot.effort_limit)),)
    validation, expected = held_out_fits(
        rows, fit, fit_rows, lambda part, first: part.columns(first.nuisance), rows.measured,
        _LEAST_HELD_OUT)
    return make_result(
        robot, joints, kind=kind, method='excitation', parameters=parameters,
        covariance_names=names, covariance=covariance, fit=fitted, validation=validation,
        checks=(*checks, *by_torque, *_wrench_checks(fitted, validation, values), *motion_checks(
            fitted, validation, [f'in {channel}' for channel in rows.channels], expected)),
        counts={'rows': int(fit.used.sum()), **rows.readings},
        settings={
            'band': BAND, 'min_motion': MIN_MOTION,
            'max_inertia_std': MAX_INERTIA_STD, 'max_held_out_ratio': MAX_HELD_OUT_RATIO,
            **settings_of(values, 'tool', 'arm_model_std', 'posture_std', 'sag_std', 'delay_std',
                          'load_friction_std', 'friction_change_std', 'max_unexplained_torque',
                          'sensor_gain_std', 'cable_stiffness_std',
                          'max_force_residual', 'max_torque_residual', 'max_residual_share',
                          'max_payload',
                          'max_mass_interval', 'max_com_distance', 'max_com_interval'),
            'channels': list(rows.channels),
            'widened_priors': sorted(fit.nuisance.contradicted),
            'reference_run': values.reference_run == 'subtract',
            'motion_centre': joints.position.mean(axis=0).tolist(),
            'motion_extent': np.ptp(joints.position, axis=0).tolist()},
        series=_series(rows, fit))


def _wrench_checks(
    fitted: tuple[Fit, ...], validation: tuple[Fit, ...], values: PayloadParameters
) -> list[Check]:
    """Check what a rigid load leaves of the wrench in newtons; nothing for joint torques."""
    checks = []
    for what, unit, limit in (('force', 'N', values.max_force_residual),
                              ('torque', 'N·m', values.max_torque_residual)):
        parts = [fit for fit in (*fitted, *validation) if fit.what in
                 tuple(f'{what} {axis}' for axis in 'xyz')]
        if not parts:
            continue
        worst = max(parts, key=lambda fit: fit.after)
        load = float(np.sqrt(np.mean([fit.before**2 for fit in parts])))
        limit = max(limit, values.max_residual_share * load)
        checks.append(Check(
            f'residual {what}', worst.after <= limit, worst.after, limit, unit,
            f'{worst.what.capitalize()} differs by {worst.after:.3g} {unit} RMS from that of a '
            f'rigid load (limit {limit:.3g} {unit}). Beyond the limit, the load is not rigid, '
            'positions and wrench are not on the same clock, or the sensor drifts or is '
            'miscalibrated: lower excitation_acceleration, and check the stamps.', 'adequate'))
    return checks


def _parameters(value: Array, covariance: Array) -> tuple[Parameter, ...]:
    std = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    moment = float(value[[4, 7, 9]].mean())
    worst = float(std[4:].max()) / max(abs(moment), 1e-12)
    found = []
    for name, unit, number, sigma in zip(PARAMETERS, UNITS, value, std, strict=True):
        if name.startswith('inertia') and worst > MAX_INERTIA_STD:
            found.append(Parameter(
                name, unit, state=State.NOT_IDENTIFIED,
                note=f'standard deviation up to {100 * worst:.0f} % of the mean moment (limit '
                     f'{100 * MAX_INERTIA_STD:.0f} %)'))
        else:
            found.append(Parameter(name, unit, float(number), float(sigma)))
    return tuple(found)


def _delay(rows: Rows, fit: RowsFit) -> tuple[Parameter, ...]:
    names = fit.nuisance.names
    if 'delay' not in names:
        return ()
    at = len(fit.value) - len(names) + names.index('delay')
    return (Parameter('delay', 's', rows.delay.value + float(fit.value[at]),
                      float(np.sqrt(fit.covariance[at, at])),
                      note='of the measured values against the positions'),)


def _consistency_check(distance: float) -> list[Check]:
    if distance == 0.0:
        return []
    limit = float(np.sqrt(scipy.special.chdtri(10, _TOO_FAR)))
    return [Check(
        'physical consistency', distance <= limit, distance, limit, '1',
        'The best fit is not physically consistent; the nearest consistent body, which is the '
        f'result, is {distance:.1f} standard deviations off (limit {limit:.1f}). Beyond the '
        "limit, a sign of sensor or effort is wrong, or the arm's model.", 'adequate')]


def _series(rows: Rows, fit: RowsFit) -> tuple[Series, ...]:
    series = []
    for name, unit, measured, left, used in zip(
        rows.channels, rows.units, rows.measured, fit.residual, fit.used, strict=True
    ):
        places = np.flatnonzero(used)
        pick = places[spread(len(places), _PLOT_POINTS)]
        series.append(Series(
            f'{name[0].upper()}{name[1:]}, minus the arm', 'block', f'{name} [{unit}]',
            pick.astype(float),
            {'measured': measured[pick], 'fit': (measured - left)[pick], 'residual': left[pick]}))
    return tuple(series)
