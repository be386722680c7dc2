# SPDX-License-Identifier: Apache-2.0
"""Estimators of payload, drive gains and arm from recordings."""

from __future__ import annotations

from dataclasses import replace

from robocal_ros.errors import ConfigurationError
from robocal_ros.estimation import check_contents
from robocal_ros.estimators import Estimator, Needs, WrenchNeed
from robocal_ros.messages import Recording
from robocal_ros.payload import arm_identification, drive_gain_regression, excitation
from robocal_ros.payload.arm_identification import check_load
from robocal_ros.payload.methods import EXCITATION_BUDGET, METHODS, gain_std
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.results import CalibrationResult, Inputs
from robocal_ros.robot import (
    ARM,
    DRIVE_GAINS,
    Robot,
    check_effort_unit,
    effort_scale,
    identified_model,
    relative_covariance,
)


def needs(values: PayloadParameters) -> Needs:
    """Return the streams that the method reads."""
    method = METHODS[values.method]
    if not method.reads_wrench(values):
        return Needs(effort=True, budget=method.budget)
    return Needs(effort=False, budget=method.budget, wrenches=(WrenchNeed(
        values.sensor_topic, values.sensor_frame, values.sensor_sign,
        values.sensor_message_frame),))


def gain_needs(values: PayloadParameters) -> Needs:
    """Return the streams that the calibration of drive gains reads."""
    return Needs(effort=True, budget=EXCITATION_BUDGET)


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
    return METHODS[values.method].estimate(robot, recording, values, inputs)


def estimate_gains(
    robot: Robot, recording: Recording, values: PayloadParameters, inputs: Inputs
) -> CalibrationResult:
    """Estimate drive gains from an exciting motion with a tool of known mass.

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
    check_load(values, inputs.get(ARM), inputs.absent.get(ARM, ''))
    check_effort_unit(values, inputs.gains)
    return arm_identification.estimate(
        robot, recording.joints, values, scale=effort_scale(robot, inputs.gains),
        scale_covariance=relative_covariance(robot, inputs.gains, gain_std(values)),
        before=inputs.get(ARM) if values.arm_load > 0.0 else None,
        stored=inputs.beside.get('payload'))


def gains_summary(result: CalibrationResult) -> str:
    """Return a sentence that states the scales."""
    scales = ', '.join(
        f'{p.name.split(".")[0]} {p.text(4)}' for p in result.parameters)
    text = f'Drive gains (measured over delivered torque): {scales}.'
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
    method = METHODS[values.method]
    friction = values.use_friction and not method.reads_wrench(values)
    return (*(('friction',) if friction else ()), *method.kinds(values))


def summary(result: CalibrationResult) -> str:
    """Return a sentence that sums up a payload result of any method."""
    return METHODS[result.method].summary(result)


def _carried(values: PayloadParameters) -> tuple[str, ...]:
    """Return the inputs whose uncertainty the methods themselves propagate."""
    return 'payload', excitation.REFERENCE, 'friction', DRIVE_GAINS, ARM


PAYLOAD = Estimator(
    'payload', PayloadParameters, ('run', 'estimate'), needs,
    kinds, estimate, summary, _carried, beside=('payload',))
ARM_IDENTIFICATION = Estimator(
    ARM, PayloadParameters, ('identify_arm',), gain_needs,
    lambda values: (ARM,) if values.arm_load > 0.0 else (), estimate_arm, arm_summary, _carried,
    beside=('payload',))
GAINS = Estimator(
    DRIVE_GAINS, PayloadParameters, ('calibrate_gains',), gain_needs,
    lambda values: (ARM,) if values.use_arm_model else (), estimate_gains, gains_summary,
    _carried)
