# SPDX-License-Identifier: Apache-2.0
"""Estimation of payload and drive gains from recordings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from robocal_ros.errors import ConfigurationError
from robocal_ros.estimation import check_contents
from robocal_ros.estimators import Estimator, Needs, WrenchNeed
from robocal_ros.messages import Recording
from robocal_ros.payload import (
    arm_identification,
    drive_gain_regression,
    excitation,
    static_poses,
    two_plane,
)
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.result import COM
from robocal_ros.results import CalibrationResult, Inputs, half_width
from robocal_ros.robot import (
    ARM,
    DRIVE_GAINS,
    ArmModel,
    Robot,
    check_effort_unit,
    effort_scale,
    friction_by_joint,
    identified_arm,
    identified_model,
    relative_covariance,
    urdf_model,
)

# An exciting motion is filtered to a few hertz; more samples carry no more information.
_EXCITATION_BUDGET = 2**15
# Standard deviation of drive gains in an unknown unit: any.
_UNKNOWN_STD = 10.0


def needs(values: PayloadParameters) -> Needs:
    """Return the streams that the method reads."""
    sensor = WrenchNeed(values.sensor_topic, values.sensor_frame, values.sensor_sign,
                        values.sensor_message_frame)
    return Needs(
        effort=not values.reads_wrench, wrenches=(sensor,) if values.reads_wrench else (),
        budget=_EXCITATION_BUDGET if values.method == 'excitation' else Needs.budget)


def gain_needs(values: PayloadParameters) -> Needs:
    """Return the streams that the calibration of drive gains reads."""
    return Needs(effort=True, budget=_EXCITATION_BUDGET)


def estimate(
    robot: Robot, recording: Recording, values: PayloadParameters, inputs: Inputs
) -> CalibrationResult:
    """Estimate the payload from a recording, by ``values.method``.

    Args:
        robot: The arm without the payload.
        recording: The recorded samples.
        values: The parameters.
        inputs: Results to build on: friction, the payload's mass, a reference run, gains or arm.

    Raises:
        RobocalError: If parameters or data are unsuitable.

    """
    joints, stored, arm = recording.joints, inputs.get('friction'), None
    friction = {} if stored is None else friction_by_joint(stored)
    if not values.reads_wrench:
        check_effort_unit(values, inputs.gains)
        check_contents(joints, robot, values.effort_contains, values.min_weight_share,
                       values.known_mass if values.method == 'two_plane' else 0.0)
        arm = arm_in_use(robot, values, inputs)
        robot = arm.robot
        if values.effort_contains == 'external':
            # Neither the arm's own dynamics nor its friction are in the efforts.
            arm, robot, friction = arm.gains_alone(), robot.without_mass(), {}
    if values.method == 'two_plane':
        return two_plane.estimate(
            robot, joints, values, friction, inputs.get('payload'), arm)
    sensor = recording.wrench(values.sensor_topic) if values.reads_wrench else None
    if values.method == 'static_poses' and sensor is not None:
        return static_poses.estimate(robot, joints, sensor, values)
    reference = inputs.get(excitation.REFERENCE)
    if reference is not None and sensor is None:
        _check_gains(reference, inputs.gains)
    return excitation.estimate(robot, joints, values, sensor=sensor, friction=friction,
                               reference=reference, arm=arm)


def arm_in_use(robot: Robot, values: PayloadParameters, inputs: Inputs) -> ArmModel:
    """Return the arm's model for torque-based methods, with its uncertainty.

    It is the identified arm, or the URDF with ``arm_model_std``; without calibrated drive gains
    there is no evidence of its accuracy.

    Args:
        robot: The arm by its URDF.
        values: The parameters.
        inputs: Results to build on.

    """
    identified = identified_arm(robot, values, inputs.gains)
    if identified is not None:
        return identified
    return urdf_model(robot, values.arm_model_std,
                      relative_covariance(robot, inputs.gains, _gain_std(values)),
                      calibrated=inputs.gains is not None)


def _gain_std(values: PayloadParameters) -> float:
    """Return the standard deviation of gains that are not calibrated, as a share."""
    return _UNKNOWN_STD if values.effort_source == 'unknown' else values.gain_std


def _check_gains(
    reference: CalibrationResult, gains: CalibrationResult | None
) -> None:
    """Raise a ConfigurationError if a reference run was recorded with other drive gains."""
    recorded = {item.sha256 for item in reference.inputs if item.kind in (DRIVE_GAINS, ARM)}
    if ('' if gains is None else gains.sha256) not in (recorded or {''}):
        raise ConfigurationError(
            'The reference run was recorded with other drive gains. Estimate it again from its '
            "recording, or record it again with reference_run 'record'.")


def estimate_gains(
    robot: Robot, recording: Recording, values: PayloadParameters, inputs: Inputs
) -> CalibrationResult:
    """Estimate effort scales from an exciting motion with a tool of known mass.

    Args:
        robot: The arm without the payload.
        recording: The recorded samples, efforts divided by the scales in use, which the estimate
            replaces.
        values: The parameters.
        inputs: Results to build on: the scales in use, links and rotors of the identified arm.

    """
    joints = recording.joints
    if values.effort_contains == 'external':
        raise ConfigurationError(
            "effort_contains is 'external': without the arm's own torques there is nothing to "
            "calibrate gains by. Record all torques of the drives, and set it to 'all'.")
    if values.effort_source != 'unknown':
        check_contents(joints, robot, values.effort_contains, values.min_weight_share,
                       values.known_mass)
    stored = inputs.get(ARM) if values.use_arm_model else None
    effort = joints.effort * effort_scale(robot, inputs.gains)
    return drive_gain_regression.estimate(
        robot, replace(joints, effort=effort), values,
        None if stored is None else identified_model(robot, stored).without_gains())


def estimate_arm(
    robot: Robot, recording: Recording, values: PayloadParameters, inputs: Inputs
) -> CalibrationResult:
    """Identify the arm from an exciting motion, without load or with a weighed one.

    Args:
        robot: The arm without load, by its URDF.
        recording: The recorded samples, efforts divided by the scales in use.
        values: The parameters.
        inputs: Results to build on: drive gains, and the arm without load.

    """
    check_effort_unit(values, inputs.gains)
    return arm_identification.estimate(
        robot, recording.joints, values, scale=effort_scale(robot, inputs.gains),
        scale_covariance=relative_covariance(robot, inputs.gains, _gain_std(values)),
        before=inputs.get(ARM) if values.arm_load > 0.0 else None)


def centre_text(result: CalibrationResult) -> str:
    """Return the centre of mass with 95 % intervals as text."""
    parts = []
    for name in COM:
        found = result.parameter(name)
        value, half = found.value or 0.0, half_width(found) or 0.0
        parts.append(f'{name[-1]} {1e3 * value:.2f} ± {1e3 * half:.2f} mm')
    return f'{", ".join(parts)} in {result.frame} (95 %)'


def mass_text(result: CalibrationResult) -> str:
    """Return the mass with its 95 % interval as text."""
    found = result.parameter('mass')
    value: Any = found.value if found.value is not None else np.nan
    half = half_width(found)
    interval = f' ± {half:.4f}' if half else ''
    return f'{value:.4f}{interval} kg'


def summary(result: CalibrationResult) -> str:
    """Return a sentence that sums up a payload result of any method."""
    if result.kind == excitation.REFERENCE:
        return ("Reference recorded: runs with reference_run 'subtract' subtract the error of "
                "the arm's own model.")
    if result.method == 'two_plane':
        return f'Centre of mass {centre_text(result)} for a mass of {mass_text(result)}.'
    text = f'Mass {mass_text(result)}, centre of mass {centre_text(result)}'
    if result.method == 'static_poses':
        return f'{text}{_mounted_text(result)}.'
    moments = [result.parameter(f'inertia_{axis}') for axis in ('xx', 'yy', 'zz')]
    inertia = ('not identified' if any(p.value is None for p in moments) else ', '.join(
        f'{p.name[-2:]} {p.value:.5f} ± {1.96 * (p.std or 0.0):.5f}' for p in moments)
        + ' kg·m²')
    return f'{text}, inertia about it {inertia}{_mounted_text(result)}.'


def _mounted_text(result: CalibrationResult) -> str:
    """Return the URDF's inertia at the tool frame, if there is any."""
    mounted = result.settings.get('urdf_payload_mass', 0.0)
    if not mounted:
        return ''
    total = mounted + (result.parameter('mass').value or 0.0)
    return (f"; extra to the {mounted:.4f} kg that the URDF has distal to '{result.frame}', "
            f'{total:.4f} kg in total')


def gains_summary(result: CalibrationResult) -> str:
    """Return a sentence that states the scales."""
    scales = ', '.join(
        f'{p.name.split(".")[0]} {p.value:.4f} ± {1.96 * (p.std or 0.0):.4f}'
        if p.value is not None else f'{p.name.split(".")[0]} not identified'
        for p in result.parameters)
    text = f'Effort scales (measured over delivered torque): {scales}.'
    if any(item.kind == ARM and item.sha256 for item in result.inputs):
        text += (' The arm was identified before these gains, so its links are no longer used: '
                 'identify it again.')
    return text


def arm_summary(result: CalibrationResult) -> str:
    """Return the identified arm in a sentence."""
    left = ', '.join(f'{fit.what.removeprefix("torque of ")} {fit.after:.2f} of {fit.before:.2f}'
                     for fit in result.validation)
    return f'Torque left on the held-out part of the motion, RMS: {left} N·m.'


def kinds(values: PayloadParameters) -> tuple[str, ...]:
    """Return the kinds of results that an estimate of the payload uses."""
    used = []
    if values.use_friction and not values.reads_wrench:
        used.append('friction')
    if values.method == 'two_plane':
        used.append('payload')
    elif values.method == 'excitation' and values.reference_run == 'subtract':
        used.append(excitation.REFERENCE)
    return tuple(used)


def _carried(values: PayloadParameters) -> tuple[str, ...]:
    """Return the inputs whose uncertainty the methods themselves propagate."""
    return 'payload', excitation.REFERENCE, 'friction', DRIVE_GAINS, ARM


PAYLOAD = Estimator(
    'payload', PayloadParameters, ('run', 'estimate'), needs,
    kinds, estimate, summary, _carried)
ARM_IDENTIFICATION = Estimator(
    ARM, PayloadParameters, ('identify_arm',), gain_needs,
    lambda values: (ARM,) if values.arm_load > 0.0 else (), estimate_arm, arm_summary, _carried)
GAINS = Estimator(
    DRIVE_GAINS, PayloadParameters, ('calibrate_gains',), gain_needs,
    lambda values: (ARM,) if values.use_arm_model else (), estimate_gains, gains_summary,
    _carried)
