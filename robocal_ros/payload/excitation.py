# SPDX-License-Identifier: Apache-2.0
"""All ten parameters of a payload, or drive gains by a weighed one, from an exciting motion.

Samples → block averages → linear regressor → weighted least squares with nuisance parameters →
physical consistency → mass, centre of mass, inertia about it → checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, ConvergenceError, DataError
from robocal_ros.estimation import Blocks, combined_freedom
from robocal_ros.messages import JointSamples, WrenchSamples, check_effort
from robocal_ros.payload.model import (
    BODY,
    PARAMETERS,
    UNITS,
    centred,
    centred_jacobian,
    consistent,
    moving,
)
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.regression import (
    ARM,
    ARM_GAIN,
    BAND,
    LOSSES,
    MIN_MOTION,
    Iteration,
    Rows,
    RowsFit,
    Validation,
    lever_arm,
    loss_columns,
    on_found_base,
    torque_rows,
    validated,
    wrench_rows,
)
from robocal_ros.payload.result import (
    ACCURACY_SETTINGS,
    ARM_SOURCE,
    CERTAIN,
    MAX_GAIN_STD,
    PLAUSIBLE_GAINS,
    accuracy_checks,
    at_most,
    braking_check,
    check_payload_limit,
    check_sign,
    fit_series,
    identified,
    largest_source,
    make_result,
    unidentified_inertia,
)
from robocal_ros.results import CalibrationResult, Check, Parameter, State, rms
from robocal_ros.robot import (
    DRIVE_GAINS,
    LINK_UNITS,
    REVERSED,
    URDF_FREEDOM,
    ArmModel,
    NewtonEuler,
    Robot,
    SteadyFriction,
    body_covariance,
    link_parameters,
    parameter_names,
    urdf_model,
)

REFERENCE = 'payload_reference'
"""Kind of the result of a reference run."""

Earlier = Mapping[str, Any]
"""Settings of a reference run that state its fit, see ``_for_later``."""

MAX_INERTIA_STD = 0.1
"""Largest standard deviation of an element of inertia, as a share of the mean moment, that counts
as identified."""

# Start of the names of what a load changes by during a motion.
_NEW_LOAD = 'change of the load'
# Starts of the names of nuisance parameters, by source of uncertainty and remedy.
_SOURCES: dict[str, tuple[str, ...]] = {
    ARM_SOURCE: (ARM,),
    'the calibration of the wrist sensor (sensor_gain_std)': (
        'gain of', 'calibration', 'hysteresis'),
    'drift of the wrist sensor (max_force_residual, max_torque_residual)': ('sensor drift',),
    'the deflection of joints and links (sag_std)': ('compliance', 'bending'),
    'joint angles (posture_std)': ('angle',),
    'the tilt of the base (tilt_std)': ('tilt',),
    'a cable to the wrist sensor (cable_stiffness_std)': ('cable',),
    'delays (delay_std)': ('delay', 'low-pass'),
    'the saturation of motors (saturation_std)': ('saturation',),
    'friction that changes or grows with the load (friction_change_std, load_friction_std)': (
        'load-dependent', 'drift', 'sublinear', 'rise', 'build-up', 'ripple'),
}
_NOISE = ('noise and what the model does not explain: use a faster motion or more '
          'excitation_repeats')
_REFERENCE_NOISE = 'the reference run: record it again with a faster motion or more repeats'
# Largest difference of the joints' mean positions and ranges within the same motion [rad].
_SAME_MOTION = 0.1
_MAX_CONDITION = 1e5
# Least passes, for the weights, and most, for priors that the data contradict.
_PASSES, _MOST_PASSES = 3, 12
# Mean share of what a payload's motion says of identified gains that comes from errors which both
# have in common; any share is as likely.
_SHARED = 0.5
# Instants at which a load may change, evenly spaced over the motion.
_CHANGES = 49
# Standard deviation of a channel without usable rows.
_UNUSED = 1e9
# Standard deviation of nuisance parameters that are not estimated.
_FIXED = 1e-6
# Probability that ten true parameters are farther off than the nearest consistent body may be.
_TOO_FAR = 1e-4


def check_reference(
    robot: Robot, values: PayloadParameters, reference: CalibrationResult | None,
    absent: str = '',
) -> None:
    """Raise a ConfigurationError if a reference is to be subtracted and none fits.

    Args:
        robot: The arm.
        values: The parameters.
        reference: The stored reference run, None without one.
        absent: Sentence on a reference run that did not pass, from ``absence``.

    """
    if values.method != 'excitation' or values.reference_run != 'subtract':
        return
    if reference is None:
        raise ConfigurationError(
            f"reference_run is 'subtract', but no reference is stored.{absent} Unmount "
            "the tool and run once with reference_run 'record'.")
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
    wrong, settings = '', reference.settings
    if not reference.robot.is_described_as(robot.identity):
        wrong = 'was recorded with another robot description'
    elif 'motion_phase' not in settings:
        wrong = 'does not state its residuals'
    elif settings['channels'] != list(channels):
        wrong = f'measured {settings["channels"]}, not {list(channels)}'
    elif np.abs([joints.position.mean(axis=0) - settings['motion_centre'],
                 np.ptp(joints.position, axis=0) - settings['motion_extent']
                 ]).max() > _SAME_MOTION:
        wrong = (f'is of another motion: mean or range of a joint differs by more than '
                 f'{_SAME_MOTION} rad')
    if wrong:
        raise ConfigurationError(
            f"The reference run {wrong}. Unmount the tool and record it again in this motion with "
            "reference_run 'record'.")


def _for_later(fit: RowsFit) -> dict[str, object]:
    """Return the fit of a reference run as settings of its result.

    ``noise``: standard deviation of the rows of each channel; ``nuisance_std``: those of nuisance
    parameters, by name; ``residual``: mean residuals at each place of the motion, zero where no
    row was used, shape (channels, places); ``motion_phase``: real and imaginary part of the
    fundamental of the positions, shape (2, n) [rad].
    """
    rows, used = fit.rows, fit.used.astype(float)
    total, count = (values.reshape(len(values), rows.repeats, -1).sum(axis=1)
                    for values in (used * fit.residual, used))
    residual = total / np.maximum(count, 1.0)
    return {
        'noise': np.nan_to_num(fit.noise.min(axis=1), posinf=_UNUSED).tolist(),
        'nuisance_std': dict(zip(
            rows.names[rows.width:], rows.std[rows.width:].tolist(), strict=True)),
        'residual': [[float(f'{value:.3g}') for value in channel] for channel in residual],
        'motion_phase': [rows.fundamental.real.tolist(), rows.fundamental.imag.tolist()]}


def _earlier_residual(earlier: Earlier, rows: Rows) -> Array | None:
    """Return the residuals of a reference run at the places of some rows, shape (channels, k).

    None if motions do not repeat, so that places cannot be found again.
    """
    residual, (real, imaginary) = np.array(earlier['residual']), np.array(earlier['motion_phase'])
    places = residual.shape[1]
    if rows.repeats < 2 or places * rows.repeats != rows.measured.shape[1]:
        return None
    ahead = np.angle(np.vdot(real + 1j * imaginary, rows.fundamental)) / (2.0 * np.pi) * places
    at = np.arange(places) + ahead
    return np.tile([np.interp(at, np.arange(places), channel, period=places)
                    for channel in residual], rows.repeats)


def fit_rows(rows: Rows, earlier: Earlier | None = None) -> RowsFit:
    """Solve, with nuisance columns that are computed about a first estimate; see ``solved``."""
    return solved(rows.with_nuisance(*rows.split(solved(rows, earlier).value)), earlier)


def solved(rows: Rows, earlier: Earlier | None = None) -> RowsFit:
    """Solve with each channel weighted by the scatter of its residuals, iteratively.

    Args:
        rows: The problem.
        earlier: The fit of a reference run, with whose weights errors that both motions share
            enter both estimates alike.

    Raises:
        DataError: If rows are too few.
        ExcitationError: If directions are unobservable; they are named.

    """
    if earlier is not None:
        rows = replace(rows, std=np.where(np.isinf(rows.std), np.inf, [
            earlier['nuisance_std'].get(name, _FIXED) for name in rows.names]))

    def noise_of(residual: Array) -> Array:
        found = rows.scatter(residual)
        return found if earlier is None else np.where(
            np.isfinite(found), np.array(earlier['noise'])[:, None], np.inf)

    state, gain = Iteration(rows, noise_of(rows.measured)), np.ones(len(rows.channels))
    settled = False
    for repetition in range(_MOST_PASSES + 1):
        fit = state.solve(state.few.columns, state.few.measured, rows.names, _MAX_CONDITION)
        residual = rows.residual(fit.value, gain)
        if repetition == _MOST_PASSES or (repetition >= _PASSES and settled):
            break
        settled = state.update(noise_of(residual), fit if repetition and earlier is None else None)
    return state.fit(fit.value, fit, residual, gain)


def _on_its_base(
    robot: Robot, values: PayloadParameters, fitted: Callable[[Robot, PayloadParameters], RowsFit]
) -> RowsFit:
    """Return a fit, repeated on the base as the data find it if that leans."""
    fit = fitted(robot, values)
    found = on_found_base(robot, fit.tilt, values)
    return fit if found is None else fitted(*found)


def _with_new_load(fit: RowsFit, links: Array) -> RowsFit:
    """Return a fit with a load that changes once, if that is likelier than one that does not.

    It may change by as much as it is, at any of some instants, each of which is as likely. How
    much likelier follows from how likely no change is, before and after the fit (Dickey, Ann.
    Math. Stat. 42 (1971) 204, doi 10.1214/aoms/1177693507).

    Args:
        fit: A fit of a wrist sensor.
        links: What else the covariance of the ten parameters has, shape (10, 10).

    """
    rows, count = fit.rows, fit.residual.shape[1]
    lever = lever_arm((rows.columns[:, :, :10] @ fit.value[:10]).T)
    std = abs(fit.value[0]) * np.repeat([1.0, lever, lever**2], [1, 3, 6])
    weight = fit.noise**-1.0
    whole, left = rows.columns * weight[:, :, None], fit.residual * weight

    def step(share: float) -> Array:
        return rows.columns[:, :, :10] * np.where(
            np.arange(count) < share * count, -0.5, 0.5)[:, None]

    def explained(share: float) -> float:
        column = step(share) * std * weight[:, :, None]
        cross, slope = (np.einsum('ckp,ck...->p...', column, part) for part in (whole, left))
        known = np.einsum('ckp,ckr->pr', column, column) - cross @ fit.inverse @ cross.T
        return float(slope @ np.linalg.solve(np.eye(10) + known, slope))

    share = max(np.arange(1, _CHANGES + 1) / (_CHANGES + 1), key=explained)
    other = solved(replace(
        rows, names=(*rows.names, *(
            f'{_NEW_LOAD} after {100 * share:.0f} % of the motion: {name}' for name in BODY)),
        std=np.append(rows.std, std), columns=np.append(rows.columns, step(share), axis=2)))
    change, covariance = other.value[-10:], other.covariance[-10:, -10:]
    likelier = 0.5 * (change @ np.linalg.solve(covariance, change)
                      + np.linalg.slogdet(covariance / np.outer(std, std))[1])
    # Half of it adds little to intervals that are wider.
    counts = np.square(0.5 * change) > np.diag(fit.covariance[:10, :10] + links)
    return other if likelier > np.log(_CHANGES) and counts[:4].any() else fit


def _new_load(fit: RowsFit) -> Array:
    """Return by how much the loads before and after a change differ from their mean.

    In mean squares of the ten parameters in the frame of the fit, shape (10, 10); zero without.
    """
    at = np.flatnonzero([name.startswith(_NEW_LOAD) for name in fit.rows.names])
    if not len(at):
        return np.zeros((10, 10))
    return 0.25 * (np.outer(fit.value[at], fit.value[at]) + fit.covariance[np.ix_(at, at)])


def _said_of_new_load(fit: RowsFit) -> Iterator[tuple[float, str]]:
    """Yield by how much the mass changes [kg], and what to say of it."""
    for name, value in zip(fit.rows.names, fit.value.tolist(), strict=True):
        if name.startswith(_NEW_LOAD) and name.endswith(BODY[0]):
            yield value, (f'a {name.split(":")[0]} by {value:+.2g} kg: fasten what is loose, hold '
                          'hoses, and measure again')


def _solved(
    robot: Robot, joints: JointSamples, values: PayloadParameters, sensor: WrenchSamples | None,
    friction: Mapping[str, SteadyFriction] | None, reference: CalibrationResult | None,
    arm: ArmModel | None,
) -> tuple[RowsFit, Validation]:
    """Return the fit, with the structure of its residuals and what a reference run adds."""
    earlier = None if reference is None else reference.settings

    def fitted(robot: Robot, values: PayloadParameters) -> RowsFit:
        known = None if arm is None else replace(arm, robot=robot)
        if sensor is not None:
            rows = wrench_rows(robot, joints, sensor, values)
        elif reference is not None and known is not None:
            # What is wrong with the arm cancels; the gains act on the payload, too.
            rows = torque_rows(robot, joints, values, friction, known.gains_alone(),
                               reference.values(BODY))
        else:
            rows = torque_rows(robot, joints, values, friction,
                               known if values.reference_run == 'off' else None)
        if reference is not None:
            check_fit(robot, joints, rows.channels, reference)
        fit = fit_rows(rows, earlier)
        return fit if sensor is None or values.reference_run != 'off' else _with_new_load(
            fit, body_covariance(robot.distal_inertia(sensor.frame), values.arm_model_std))

    fit = _on_its_base(robot, values, fitted)
    if earlier is not None:
        fit = replace(fit, common=_earlier_residual(earlier, fit.rows))
    validation = validated(
        fit, solved, lambda part, _: part.columns, fit.rows.measured, values.max_held_out_ratio,
        None if sensor is None else np.repeat(
            (values.max_force_residual, values.max_torque_residual), 3))
    fit = fit.inflated(fit.rows.columns, validation.widening)
    if earlier is not None:
        return _with_considered(fit), validation
    if arm is None or not arm.evidence:
        return fit, validation
    return _with_shared(fit, ARM if arm.one_motion else ARM_GAIN), validation


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
    if values.reference_run != 'subtract':
        reference = None
    fit, validation = _solved(robot, joints, values, sensor, friction, reference, arm)
    # Without residuals in common, the reference run counts as independent.
    independent = reference if fit.common is None else None
    move = moving(robot, fit.rows.frame)
    body, covariance = move @ fit.value[:10], move @ fit.covariance[:10, :10] @ move.T
    signs = () if sensor is not None or values.effort_contains == 'external' else (
        braking_check(robot.joint_names, _powers(robot, fit, friction)),)
    # What else the variance of the ten parameters has, with degrees of freedom.
    others: list[tuple[Array, float | None]] = [(move @ _new_load(fit) @ move.T, None)]
    distal = None if sensor is None else robot.distal_inertia(sensor.frame)
    if independent is not None:
        known = [item.freedom for item in independent.parameters if item.freedom is not None]
        others.append((independent.covariance, min(known, default=None)))
    links, carried = 0.0, covariance + sum(part for part, _ in others)
    if distal is not None and values.reference_run == 'off':
        # Links between sensor and payload are subtracted by the URDF.
        links = distal.mass
        others.append((move @ body_covariance(distal, values.arm_model_std) @ move.T,
                       URDF_FREEDOM))
    covariance = covariance + sum(part for part, _ in others)
    if values.reference_run == 'record':
        parameters = identified(BODY, ('kg', *['kg·m'] * 3, *['kg·m²'] * 6), body, covariance,
                                _freedom(fit, others, move, np.eye(10), covariance))
        return _result(robot, joints, values, fit, validation, REFERENCE, parameters, BODY,
                       covariance, signs)
    if reference is not None:
        body = body - reference.values(BODY)
    if distal is not None:
        check_sign(float(body[0]), float(np.sqrt(covariance[0, 0])), distal.mass, values)
    body, distance = consistent(body, covariance)
    check_payload_limit(float(body[0]), values)
    jacobian = centred_jacobian(body)
    covariance, carried = (jacobian @ item @ jacobian.T for item in (covariance, carried))
    parameters = _parameters(centred(body), covariance,
                             _freedom(fit, others, move, jacobian, covariance))
    of_mass, of_centre = (largest_source(_variances(fit, independent, places))
                          for places in (slice(0, 1), slice(1, 4)))
    found = [i for i, parameter in enumerate(parameters) if parameter.value is not None]
    checks = (*accuracy_checks(robot, parameters, carried[np.ix_(found, found)], values,
                               of_mass, of_centre, links),
              *_consistency_check(distance),
              *(Check('constant load', True, abs(change), abs(float(body[0])), 'kg',
                      f'The intervals contain {said}.')
                for change, said in _said_of_new_load(fit)),
              *signs, *(() if sensor is not None else _evidence(values, arm)))
    return _result(
        robot, joints, values, fit, validation, 'payload', (*parameters, *_delay(fit)),
        tuple(PARAMETERS[i] for i in found), covariance[np.ix_(found, found)], checks)


def _with_considered(fit: RowsFit) -> RowsFit:
    """Return a fit with what errors of the drive gains add, which it does not estimate.

    Estimated here, they would absorb errors of the arm that the reference run contains otherwise
    (consider filter: Schmidt, Application of State-Space Methods to Navigation Problems, Adv.
    Control Syst. 3 (1966) 293).
    """
    columns = fit.rows.columns
    at = np.flatnonzero([name.startswith(ARM) for name in fit.rows.names])
    shift = fit.inverse @ np.einsum(
        'ckp,ckr->pr', columns / fit.noise[:, :, None]**2, columns[:, :, at])
    covariance = fit.covariance + shift @ shift.T
    covariance[:, at], covariance[at] = -shift, -shift.T
    covariance[np.ix_(at, at)] = np.eye(len(at))
    return replace(fit, covariance=covariance)


def _with_shared(fit: RowsFit, which: str) -> RowsFit:
    """Return a fit with errors that identified gains share with what the motion says of them.

    So do links that were found with gains in one motion; those of an identified arm already
    contain such errors. Both come from exciting motions of the same arm, whose lag, ripple and
    load-dependent friction they contain: what looks like a correction of gains may be the same
    error again. Of the gains g with the prior covariance 1 and the posterior one C, the motion
    contributes (1 - C) of the estimate; were its error as large as the prior's, that would add
    (1 - C)(1 - C)ᵀ, of which an unknown share counts by its mean, and moves the other unknowns x
    by C_xg C⁻¹.

    Args:
        fit: The fit.
        which: Start of the names of the unknowns g.

    """
    at = np.flatnonzero([name.startswith(which) for name in fit.rows.names])
    own = fit.inverse[np.ix_(at, at)]
    shift = fit.inverse[:, at] @ np.linalg.inv(own) @ (np.eye(len(at)) - own)
    return replace(fit, covariance=fit.covariance + _SHARED * shift @ shift.T)


def _freedom(
    fit: RowsFit, others: Sequence[tuple[Array, float | None]], move: Array, change: Array,
    covariance: Array,
) -> list[float | None]:
    """Return the degrees of freedom of parameters of the body, by Satterthwaite.

    Args:
        fit: The fit.
        others: Other parts of the covariance of the body's ten parameters, shape (10, 10), with
            their degrees of freedom.
        move: Transform of the ten from the fit's frame, shape (10, 10).
        change: Derivatives of the parameters by the ten, shape (10, 10).
        covariance: Covariance of the parameters, shape (10, 10).

    """
    directions = np.pad(change @ move, ((0, 0), (0, len(fit.value) - 10)))
    return [combined_freedom(variance, [
        (direction @ fit.covariance @ direction, fit.freedom(direction)),
        *((row @ part @ row, count) for part, count in others)])
        for row, direction, variance in zip(change, directions, np.diag(covariance), strict=True)]


def _variances(
    fit: RowsFit, independent: CalibrationResult | None, places: slice
) -> dict[str, float]:
    """Return by source what it contributes to the variance of some of the ten parameters.

    That of nuisance parameters is what the variance would lose if they were known.
    """
    parts, own = {}, fit.covariance[places, places]
    for source, starts in _SOURCES.items():
        at = [i for i, name in enumerate(fit.rows.names) if name.startswith(starts)]
        if at:
            cross = fit.covariance[places, at]
            parts[source] = float(np.trace(
                cross @ np.linalg.pinv(fit.covariance[np.ix_(at, at)]) @ cross.T))
    parts[_NOISE] = max(float(np.trace(own)) - sum(parts.values()), 0.0)
    for _, source in _said_of_new_load(fit):
        parts[source] = float(np.trace(_new_load(fit)[places, places]))
    if independent is not None:
        parts[_REFERENCE_NOISE] = float(np.trace(independent.covariance[places, places]))
    return parts


def _powers(
    robot: Robot, fit: RowsFit, friction: Mapping[str, SteadyFriction] | None
) -> Iterator[tuple[float, float]]:
    """Yield for each joint the mean power that its friction takes and its standard deviation.

    Friction that was identified before is subtracted; what is left of it may drive a joint.
    """
    for joint, (name, used) in enumerate(zip(robot.joint_names, fit.used, strict=True)):
        at = 10 + len(LOSSES) * joint + np.arange(len(LOSSES))
        columns = fit.rows.columns[joint, used][:, at]
        direction = columns[:, LOSSES.index('viscous')] @ columns
        direction[LOSSES.index('offset')] = 0.0
        yield (0.0, 0.0) if name in (friction or ()) else (
            float(direction @ fit.value[at]),
            float(np.sqrt(direction @ fit.covariance[np.ix_(at, at)] @ direction)))


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
    robot: Robot, joints: JointSamples, values: PayloadParameters, fit: RowsFit,
    validation: Validation, kind: str, parameters: tuple[Parameter, ...], names: tuple[str, ...],
    covariance: Array, checks: tuple[Check, ...] = (),
) -> CalibrationResult:
    rows = fit.rows
    return make_result(
        robot, joints, kind=kind, method='excitation', parameters=parameters,
        covariance_names=names, covariance=covariance, fit=validation.whole,
        validation=validation.held_out,
        checks=(*checks, *validation.checks, *_wrench_checks(fit, validation, values)),
        counts={'rows': int(fit.used.sum()), **rows.readings},
        settings={
            'band': BAND, 'min_motion': MIN_MOTION,
            'max_inertia_std': MAX_INERTIA_STD,
            **values.settings(
                'tool', 'arm_model_std', 'posture_std', 'sag_std', 'delay_std',
                'max_held_out_ratio', 'load_friction_std', 'friction_change_std', 'saturation_std',
                'max_unexplained_torque', 'sensor_gain_std', 'cable_stiffness_std',
                'max_force_residual', 'max_torque_residual', 'max_residual_share',
                *ACCURACY_SETTINGS),
            'channels': list(rows.channels),
            'widened_priors': sorted(rows.contradicted),
            **(_for_later(fit) if kind == REFERENCE else {}),
            'reference_run': values.reference_run == 'subtract',
            'motion_centre': joints.position.mean(axis=0).tolist(),
            'motion_extent': np.ptp(joints.position, axis=0).tolist()},
        series=tuple(
            fit_series(f'{name[0].upper()}{name[1:]}, minus the arm', f'{name} [{unit}]', *parts)
            for name, unit, *parts in zip(rows.channels, rows.units, rows.measured, fit.residual,
                                          fit.used, strict=True)))


def _wrench_checks(
    fit: RowsFit, validation: Validation, values: PayloadParameters
) -> Iterator[Check]:
    """Check what a rigid load leaves of the wrench in newtons; nothing for joint torques."""
    # What a new load of the last part weighs cannot be predicted.
    held_out = () if any(_said_of_new_load(fit)) else validation.held_out
    for what, unit, limit in (('force', 'N', values.max_force_residual),
                              ('torque', 'N·m', values.max_torque_residual)):
        parts = [part for part in (*validation.whole, *held_out)
                 if part.what in [f'{what} {axis}' for axis in 'xyz']]
        if not parts:
            continue
        worst = max(parts, key=lambda part: part.after)
        load = float(np.sqrt(np.mean([part.before**2 for part in parts])))
        limit = max(limit, values.max_residual_share * load)
        yield at_most(
            f'residual {what}', worst.after, limit, unit,
            f'{worst.what.capitalize()} differs by {worst.after:.3g} {unit} RMS from that of a '
            f'rigid load (limit {limit:.3g} {unit}). Beyond the limit, the load is not rigid, '
            'positions and wrench are not on the same clock, or the sensor drifts or is '
            'miscalibrated: lower excitation_acceleration, and check the stamps.', 'adequate')


def _parameters(
    value: Array, covariance: Array, freedom: Sequence[float | None]
) -> tuple[Parameter, ...]:
    worst = float(np.sqrt(np.diag(covariance)[4:].max(initial=0.0))) / max(
        abs(float(value[[4, 7, 9]].mean())), 1e-12)
    known = identified(PARAMETERS, UNITS, value, covariance, freedom)
    if worst <= MAX_INERTIA_STD:
        return known
    return (*known[:4], *unidentified_inertia(
        f'standard deviation up to {100 * worst:.0f} % of the mean moment (limit '
        f'{100 * MAX_INERTIA_STD:.0f} %)', State.NOT_IDENTIFIED))


def _delay(fit: RowsFit) -> tuple[Parameter, ...]:
    if 'delay' not in fit.rows.names:
        return ()
    at = fit.rows.names.index('delay')
    return (Parameter('delay', 's', fit.rows.delay.value + float(fit.value[at]),
                      float(np.sqrt(fit.covariance[at, at])),
                      note='of the measured values against the positions'),)


def _consistency_check(distance: float) -> Iterator[Check]:
    if distance == 0.0:
        return
    limit = float(np.sqrt(scipy.special.chdtri(10, _TOO_FAR)))
    yield at_most(
        'physical consistency', distance, limit, '1',
        'The best fit is not physically consistent; the nearest consistent body, which is the '
        f'result, is {distance:.1f} standard deviations off (limit {limit:.1f}). Beyond the '
        "limit, a sign of sensor or effort is wrong, or the arm's model.", 'adequate')


# ---------------------------------------------------------------------------- drive gains

# Distance of a payload's centre from a wrist, for an order of magnitude [m].
_OFF_CENTRE = 0.1
_STEPS = 100
# Steps that update the weights, whose autocorrelation times vary in jumps.
_WEIGHED = 12
_CONVERGED = 1e-3
_MAX_GAIN_CONDITION = 1e6
# Note on links and rotors of a result.
_WITH_GAINS = 'by the URDF and this motion, with which the gains are known'


def estimate_gains(
    robot: Robot, samples: JointSamples, values: PayloadParameters, arm: ArmModel | None = None
) -> CalibrationResult:
    """Estimate one drive gain per joint.

    Many drivers publish motor current times a nominal constant, which may be 15 % off. With the
    arm's model and a known mass, the gains follow from the efforts of an exciting motion:
    effort_j = e_j (arm_j + payload_j) + losses_j. The payload's centre and inertia, the errors of
    the arm's model and the nuisance parameters are estimated jointly. The problem is bilinear in
    gains and payload, and solved by Gauss-Newton steps. Links and rotors of the URDF are part of
    the result, as the motion corrects them: their errors and those of the gains go together.

    Args:
        robot: The arm without the payload.
        samples: Joint states of an exciting motion with the payload, efforts unscaled.
        values: The node's parameters.
        arm: Model of links and rotors; by default the URDF with ``arm_model_std``.

    Raises:
        ConfigurationError: If known_mass is not set.
        DataError: If the samples are not those of an exciting motion.
        ExcitationError: If a joint's gain is unobservable.
        ConvergenceError: If the iteration does not converge.

    """
    values.check_weighed('calibrate_gains')
    check_effort(samples, robot.joint_names)
    n, mass = robot.n, values.known_mass
    rough = (_rough_gain(robot, samples, mass) if values.effort_source == 'unknown'
             else np.ones(n))
    scaled = replace(samples, effort=samples.effort / rough)
    known = arm or urdf_model(robot, values.arm_model_std, np.zeros((n, n)))

    fit = _on_its_base(known.robot, values, lambda robot, values: _fit_gains(
        torque_rows(robot, scaled, values, arm=replace(known, robot=robot)), mass))
    validation = validated(
        fit, lambda part: _settled(part, np.array([mass])), _about,
        fit.rows.measured + fit.rows.known, values.max_held_out_ratio)
    fit = fit.inflated(_about(fit.rows, fit), validation.widening)
    value, covariance, freedom = _gains_with_links(known, fit, mass, values.known_mass_std)
    std = np.sqrt(np.diag(covariance))
    gain, shares = value[11 * n:], std[11 * n:] / np.abs(value[11 * n:])
    names, unit = parameter_names(robot.joint_names), (
        '1/(N·m)' if values.effort_source == 'unknown' else '1')
    shown = np.append(np.ones(11 * n), rough)
    found = identified(names, [*LINK_UNITS * n, *['kg·m²'] * n, *[unit] * n], shown * value,
                       covariance * np.outer(shown, shown), freedom)
    # Links that were identified belong to the scales of before.
    places = np.flatnonzero(np.append(np.full(11 * n, arm is None), shares <= MAX_GAIN_STD))
    return make_result(
        robot, samples, kind=DRIVE_GAINS, method='known_mass', frame='',
        parameters=(*(
            scale if share <= MAX_GAIN_STD else
            Parameter(scale.name, unit, state=State.NOT_IDENTIFIED,
                      note=f'standard deviation {100 * share:.1f} % (limit '
                           f'{100 * MAX_GAIN_STD:.1f} %)')
            for scale, share in zip(found[11 * n:], shares, strict=True)), *(
            replace(found[at], state=State.NOT_IDENTIFIED, note=_WITH_GAINS)
            for at in places[places < 11 * n])),
        covariance_names=tuple(names[at] for at in places),
        covariance=(covariance * np.outer(shown, shown))[np.ix_(places, places)],
        fit=validation.whole, validation=validation.held_out,
        checks=(*_gain_checks(robot.joint_names, gain, shares,
                              unit=values.effort_source != 'unknown'),
                _weight_check(known, fit),
                *validation.checks),
        settings={'band': BAND, 'widened_priors': sorted(fit.rows.contradicted), **values.settings(
            'known_mass', 'known_mass_std', 'posture_std', 'sag_std', 'delay_std',
            'load_friction_std', 'friction_change_std', 'arm_model_std', 'saturation_std',
            'max_unexplained_torque')})


def _gains_with_links(
    known: ArmModel, fit: RowsFit, mass: float, mass_std: float
) -> tuple[Array, Array, list[float | None]]:
    """Return links and rotors as the motion corrects them, and the gains.

    Args:
        known: The arm that the fit started from.
        fit: The fit.
        mass: Known mass [kg].
        mass_std: Its standard deviation [kg].

    Returns:
        Values in the order of ``parameter_names``, shape (12 n,), their covariance, and the
        degrees of freedom of each.

    """
    n = known.robot.n
    own = np.flatnonzero([name.startswith(ARM) for name in fit.rows.names])
    factor, change = np.hstack(known.factor())[:11 * n], np.zeros((12 * n, len(fit.covariance)))
    change[:11 * n, own - len(fit.rows.names)], change[11 * n:, :n] = factor, np.eye(n)
    value = np.concatenate((
        link_parameters(known.robot).ravel(), known.robot.model.armature, np.zeros(n)))
    value += np.append(factor @ fit.value[own], fit.gain)
    covariance = change @ fit.covariance @ change.T
    if mass_std > 0.0:
        step = 1e-3 * mass
        heavier = _settled(fit.rows, np.array([mass + step]))
        moved = np.append(factor @ (heavier.value - fit.value)[own], heavier.gain - fit.gain)
        covariance += np.outer(moved, moved) * (mass_std / step)**2
    return value, covariance, [
        combined_freedom(total, [(float(row @ fit.covariance @ row), fit.freedom(row))])
        for row, total in zip(change, np.diag(covariance).tolist(), strict=True)]


def _rough_gain(robot: Robot, samples: JointSamples, mass: float) -> Array:
    """Return the order of the effort that each joint reports per torque, shape (n,).

    Raises:
        DataError: If the effort of a joint falls where its torque rises.

    """
    blocks = Blocks.of(samples, BAND, MIN_MOTION)
    torque = blocks.means(partial(NewtonEuler(robot, robot.tool_frame).torque,
                                  parameters=np.array([mass, *[0.0] * 9])))
    effort = blocks.sample_means(samples.time, samples.effort)
    losses = loss_columns(blocks.centre.velocity)
    unknown = mass * float(np.linalg.norm(robot.gravity)) * _OFF_CENTRE
    gain = np.empty(robot.n)
    for joint, name in enumerate(robot.joint_names):
        own = rms(torque[:, joint])
        columns = np.column_stack((torque[:, joint], losses[:, joint]))
        gain[joint] = (
            np.linalg.lstsq(columns, effort[:, joint])[0][0] if own > unknown else
            # The payload's unknown centre adds most, as at wrists.
            rms(effort[:, joint] - effort[:, joint].mean()) / (own + unknown))
        if gain[joint] <= 0.0:
            raise DataError(
                f"The effort of joint '{name}' falls where its torque rises: its sign is wrong. "
                f'{REVERSED}')
    return gain


def _fit_gains(rows: Rows, mass: float) -> RowsFit:
    """Solve, with nuisance columns that are computed about a first estimate of the payload."""
    fit = _settled(rows, np.array([mass]))
    body, losses = rows.split(fit.value)
    return _settled(rows.with_nuisance(body, losses / fit.gain[:, None]), fit.value, fit.gain)


def _settled(rows: Rows, value: Array, gain: Array | None = None) -> RowsFit:
    """Iterate to convergence; the mass stays fixed.

    Args:
        rows: The problem.
        value: Start of the first unknowns, at least the mass; the others start at zero.
        gain: Start of the gains, shape (n,); 1 by default.

    """
    n = len(rows.channels)
    gain = np.ones(n) if gain is None else gain
    names = [*(f'drive gain of {name}' for name in rows.channels), *rows.names[1:]]
    value = np.concatenate((value, np.zeros(len(rows.names) - len(value))))
    state = Iteration(rows, np.where(rows.valid, 1.0, np.inf))
    damping, before = 1.0, np.zeros(n)
    for step in range(_STEPS):
        # Linearised about the current payload: e (τ + Y dp), with unknowns e and p.
        few = state.few
        regressor, explained = _linearised(few, gain, value)
        fit = state.solve(regressor, few.measured + few.known + explained, names,
                          _MAX_GAIN_CONDITION)
        # In standard deviations.
        moved = (fit.value[:n] - gain) / fit.std()[:n]
        change = float(np.abs(moved).max())
        # Steps that turn round are too long; those that grow only cross a flat region.
        if step > _WEIGHED and moved @ before < 0.0:
            damping *= 0.5
        before = moved
        gain = gain + damping * (fit.value[:n] - gain)
        value = np.append(value[:1], value[1:] + damping * (fit.value[n:] - value[1:]))
        residual = rows.residual(value, gain)
        if change < _CONVERGED:
            return state.fit(value, fit, residual, gain)
        if step < _WEIGHED:
            state.update(rows.scatter(residual), fit if step else None)
    raise ConvergenceError(
        f'The drive gains did not converge in {_STEPS} steps (last change {change:.2g} standard '
        'deviations). Use a faster or wider motion, or check known_mass.')


def _about(rows: Rows, fit: RowsFit) -> Array:
    """Return the columns of all unknowns about a fit."""
    return _linearised(rows, fit.gain, fit.value)[0]


def _linearised(rows: Rows, gain: Array, value: Array) -> tuple[Array, Array]:
    """Linearise about an estimate.

    Nuisance parameters have the scale of the present gains, which do not follow their torques: the
    mode of gains times parameters with priors favours large gains with small parameters, by as
    much as the number of parameters that the data tell (MacKay, Neural Comput. 11 (1999) 1035,
    doi 10.1162/089976699300016331).

    Args:
        rows: The problem.
        gain: Scale of each joint, shape (n,).
        value: Values of the columns; the first one, the mass, is fixed.

    Returns:
        Regressor of gains and of all columns except the mass, shape (n, k, q), and the part
        that current gains and the current payload explain, shape (n, k).

    """
    n, width, columns = len(gain), rows.width, rows.columns
    variable = columns[:, :, 1:10] @ value[1:10]
    regressor = np.concatenate((np.zeros((*rows.measured.shape, n)), columns[:, :, 1:]), axis=2)
    joints = np.arange(n)
    regressor[joints, :, joints] = rows.known + value[0] * columns[:, :, 0] + variable
    regressor[:, :, n:n + 9] *= gain[:, None, None]
    regressor[:, :, n + width - 1:] *= gain[:, None, None]
    return regressor, gain[:, None] * variable


def _weight_check(arm: ArmModel, fit: RowsFit) -> Check:
    """Check that the links need not weigh altogether what their model excludes.

    What dynamic errors of the model look like is links that are all heavier or lighter, and gains
    by which efforts become those of the known mass.
    """
    change = fit.value[[name.startswith('arm ') for name in fit.rows.names]]
    heavier = np.hstack(arm.factor())[:10 * arm.robot.n:10].sum(axis=0)
    off, limit = float(heavier @ change), CERTAIN * float(np.linalg.norm(heavier))
    return at_most(
        'weight of the links', abs(off), limit, 'kg',
        f'With the known mass, the efforts are those of links that weigh {abs(off):.2g} kg '
        f'{"more" if off > 0.0 else "less"} altogether than by the {arm.source} (limit '
        f'{limit:.2g} kg). Beyond it, identify the arm without and with the load instead '
        '(identify_arm), correct the URDF, or state what is known of its links (arm_model_std).',
        'adequate')


def _gain_checks(
    joint_names: Sequence[str], gain: Array, shares: Array, *, unit: bool
) -> list[Check]:
    """Check gains; without a unit of the efforts, no value of them is implausible but its sign."""
    known, best = shares <= MAX_GAIN_STD, int(np.argmin(shares))
    low, high = PLAUSIBLE_GAINS if unit else (0.0, np.inf)
    worst = int(np.argmax(np.where(known, np.abs(np.log(np.maximum(gain, 1e-9))), 0.0)))
    return [
        Check('gains identified', bool(known.any()), float(shares[best]), MAX_GAIN_STD, '1',
              f'{int(known.sum())} of {len(gain)} drive gains are identified; that of '
              f"'{joint_names[best]}' is known best, to {100.0 * shares[best]:.1f} % (limit "
              f'{100.0 * MAX_GAIN_STD:.1f} %). A heavier load, a faster motion or a more accurate '
              'URDF (arm_model_std) improves them.'),
        Check('plausible gains', bool(((gain > low) & (gain < high))[known].all()),
              float(gain[worst]), high if unit else low, '1',
              f"The gain farthest from 1 is that of '{joint_names[worst]}', "
              f'{gain[worst]:.3f} (plausible: {low} … {high}).' if unit else
              f"The efforts of '{joint_names[worst]}' are {gain[worst]:.3g} times what their size "
              'suggests; a negative factor means that their sign is wrong.'),
    ]
