# SPDX-License-Identifier: Apache-2.0
"""Drive gains: one per joint, from a payload of known mass.

Many drivers publish motor current times a nominal constant, which may be 15 % off. With the
arm's model and a known mass, the gains follow from the efforts of an exciting motion:
effort_j = e_j (arm_j + payload_j) + losses_j. The payload's centre and inertia, the errors of the
arm's model and the nuisance parameters are estimated jointly. The problem is bilinear in gains
and payload, and solved by Gauss-Newton steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, ConvergenceError, DataError
from robocal_ros.estimation import Blocks, combined_freedom
from robocal_ros.messages import JointSamples, check_effort
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.regression import (
    BAND,
    MIN_MOTION,
    Iteration,
    Rows,
    RowsFit,
    loss_columns,
    on_found_base,
    scatter,
    torque_rows,
    validated,
)
from robocal_ros.payload.result import MAX_GAIN_STD, identified, make_result, settings_of
from robocal_ros.results import CalibrationResult, Check, Parameter, State, rms
from robocal_ros.robot import DRIVE_GAINS, REVERSED, ArmModel, NewtonEuler, Robot, urdf_model

PLAUSIBLE = (0.3, 3.0)
"""Plausible range of drive gains."""

# Distance of a payload's centre from a wrist, for an order of magnitude [m].
_OFF_CENTRE = 0.1
_STEPS = 30
# Steps that update the weights, whose autocorrelation times vary in jumps.
_WEIGHED = 12
_CONVERGED = 1e-3
_MAX_CONDITION = 1e6


def check_mass(values: PayloadParameters) -> None:
    """Raise a ConfigurationError if known_mass is not set."""
    if not values.known_mass > 0.0:
        raise ConfigurationError(
            f'calibrate_gains needs the mass of the mounted tool: set known_mass (kg, from '
            f'a scale); got {values.known_mass}.')


def estimate(
    robot: Robot, samples: JointSamples, values: PayloadParameters, arm: ArmModel | None = None
) -> CalibrationResult:
    """Estimate one drive gain per joint.

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
    check_mass(values)
    check_effort(samples, robot.joint_names)
    n, mass = robot.n, values.known_mass
    arm = arm or urdf_model(robot, values.arm_model_std, np.zeros((n, n)))
    rough = (_rough_gain(robot, samples, mass) if values.effort_source == 'unknown'
             else np.ones(n))
    scaled = replace(samples, effort=samples.effort / rough)
    fit = _fit(torque_rows(arm.robot, scaled, values, arm=arm), mass)
    found = on_found_base(arm.robot, fit.tilt, values)
    if found is not None:
        leaning, tilted = found
        fit = _fit(torque_rows(leaning, scaled, tilted, arm=replace(arm, robot=leaning)), mass)
    fit = fit.inflated(_about(fit.rows, fit))
    gain, covariance = fit.gain, fit.covariance[:n, :n]
    if values.known_mass_std > 0.0:
        step = 1e-3 * mass
        slope = (_settled(fit.rows, np.array([mass + step])).gain - gain) / step
        covariance = covariance + np.outer(slope, slope) * values.known_mass_std**2
    std = np.sqrt(np.diag(covariance))
    freedom = [combined_freedom(std[i]**2, [(fit.covariance[i, i], fit.freedom(direction))])
               for i, direction in enumerate(np.eye(n, len(fit.covariance)))]
    fitted, validation, checks = validated(
        fit, lambda part: _settled(part, np.array([mass])), _about,
        fit.rows.measured + fit.rows.known, values.max_held_out_ratio)
    known = std <= MAX_GAIN_STD
    names = [f'{name}.effort_scale' for name in robot.joint_names]
    unit = '1/(N·m)' if values.effort_source == 'unknown' else '1'
    places, units = np.flatnonzero(known), np.outer(rough, rough)
    scales = identified(names, [unit] * n, rough * gain, covariance * units, freedom)
    return make_result(
        robot, samples, kind=DRIVE_GAINS, method='known_mass', frame='',
        parameters=tuple(
            scale if share <= MAX_GAIN_STD else
            Parameter(scale.name, unit, state=State.NOT_IDENTIFIED,
                      note=f'standard deviation {100 * share:.1f} % (limit '
                           f'{100 * MAX_GAIN_STD:.1f} %)')
            for scale, share in zip(scales, std, strict=True)),
        covariance_names=tuple(names[i] for i in places),
        covariance=(covariance * units)[np.ix_(places, places)],
        fit=fitted, validation=validation,
        checks=(*_checks(robot.joint_names, gain, std), *checks),
        settings={'band': BAND, 'widened_priors': sorted(fit.rows.contradicted), **settings_of(
            values, 'known_mass', 'known_mass_std', 'posture_std', 'sag_std', 'delay_std',
            'load_friction_std', 'friction_change_std', 'arm_model_std',
            'max_unexplained_torque')})


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


def _fit(rows: Rows, mass: float) -> RowsFit:
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
    for step in range(_STEPS):
        # Linearised about the current payload: e (τ + Y dp), with unknowns e and p.
        few = state.few
        regressor, explained = _linearised(few, gain, value)
        fit = state.solve(regressor, few.measured + few.known + explained, names, _MAX_CONDITION)
        # In standard deviations.
        change = float((np.abs(fit.value[:n] - gain) / fit.std()[:n]).max())
        gain, value = fit.value[:n], np.concatenate((value[:1], fit.value[n:]))
        residual = rows.residual(value, gain)
        if change < _CONVERGED:
            return state.fit(value, fit, residual, gain)
        if step < _WEIGHED:
            state.update(scatter(residual, rows.valid, rows.near_reversal), fit if step else None)
    raise ConvergenceError(
        f'The drive gains did not converge in {_STEPS} steps (last change {change:.2g} standard '
        'deviations). Use a faster or wider motion, or check known_mass.')


def _about(rows: Rows, fit: RowsFit) -> Array:
    """Return the columns of all unknowns about a fit."""
    return _linearised(rows, fit.gain, fit.value)[0]


def _linearised(rows: Rows, gain: Array, value: Array) -> tuple[Array, Array]:
    """Linearise about an estimate.

    Args:
        rows: The problem.
        gain: Scale of each joint, shape (n,).
        value: Values of the columns; the first one, the mass, is fixed.

    Returns:
        Regressor of gains and of all columns except the mass, shape (n, k, q), and the part
        that both current gains and current values explain, shape (n, k).

    """
    n, width, columns = len(gain), rows.width, rows.columns
    variable = columns[:, :, 1:10] @ value[1:10] + columns[:, :, width:] @ value[width:]
    regressor = np.concatenate((np.zeros((*rows.measured.shape, n)), columns[:, :, 1:]), axis=2)
    joints = np.arange(n)
    regressor[joints, :, joints] = rows.known + value[0] * columns[:, :, 0] + variable
    regressor[:, :, n:n + 9] *= gain[:, None, None]
    regressor[:, :, n + width - 1:] *= gain[:, None, None]
    return regressor, gain[:, None] * variable


def _checks(joint_names: Sequence[str], gain: Array, std: Array) -> list[Check]:
    low, high = PLAUSIBLE
    known, best = std <= MAX_GAIN_STD, int(np.argmin(std))
    far = np.where(known, np.maximum(gain / high, low / np.maximum(gain, 1e-9)), 0.0)
    worst = int(np.argmax(far))
    return [
        Check('gains identified', bool(known.any()), float(known.sum()), 1.0, '1',
              f'{int(known.sum())} of {len(gain)} drive gains are identified; that of '
              f"'{joint_names[best]}' is known best, to {100.0 * std[best]:.1f} % (limit "
              f'{100.0 * MAX_GAIN_STD:.1f} %). A heavier load, a faster motion or a more accurate '
              'URDF (arm_model_std) improves them.'),
        Check('plausible gains', bool(far[worst] <= 1.0), float(gain[worst]), high, '1',
              f"The gain farthest from 1 is that of '{joint_names[worst]}', "
              f'{gain[worst]:.3f} (plausible: {low} … {high}).'),
    ]
