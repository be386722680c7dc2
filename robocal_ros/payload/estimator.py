# SPDX-License-Identifier: Apache-2.0
"""Estimators of payload, by each method, and of drive gains and arm from recordings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, DataError, RobocalError
from robocal_ros.estimation import check_contents
from robocal_ros.estimators import Estimator, Needs, WrenchNeed
from robocal_ros.messages import BUDGET, JointSamples, Recording, WrenchSamples
from robocal_ros.payload import arm_identification, excitation, static_poses, two_plane
from robocal_ros.payload.model import second_plane
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.regression import gain_terms
from robocal_ros.payload.result import rated_efforts, same_tool, stored_load_checks, summary
from robocal_ros.results import Z95, CalibrationResult, Inputs, Load, Verdict, absence, wording
from robocal_ros.robot import (
    ARM,
    DRIVE_GAINS,
    GRAVITY,
    SENSOR_CALIBRATION,
    TORQUE_ZERO,
    ArmFriction,
    ArmModel,
    NewtonEuler,
    RigidBodyInertia,
    Robot,
    SteadyFriction,
    Trajectory,
    carried_load,
    check_effort_unit,
    effort_scale,
    friction_by_joint,
    identified_model,
    known_with_gains,
    relative_covariance,
    torque_zero,
    urdf_model,
    without_zeros,
)

EXCITATION_BUDGET = 2**15
"""Number of samples of an exciting motion; it is filtered to a few hertz, and more of them carry
no more information."""

# Standard deviation of drive gains in an unknown unit: any.
_UNKNOWN_STD = 10.0


def reads_wrench(values: PayloadParameters) -> bool:
    """Return whether the method reads the wrist sensor, and efforts otherwise."""
    return values.method == 'static_poses' or (
        values.method == 'excitation' and values.excitation_source == 'wrench')


def check(robot: Robot, values: PayloadParameters, load: Load) -> None:
    """Raise a ConfigurationError for parameters that fit neither arm nor stored results."""
    if values.method == 'two_plane':
        two_plane.check_sweeps(values)
        second_plane(robot, values.second_joint)
        if values.known_mass > 0.0:
            two_plane.known_mass(values, None)
    elif values.method == 'excitation':
        excitation.check_reference(robot, values, load(excitation.REFERENCE),
                                   absence(load, excitation.REFERENCE))
    for need in needs(values).wrenches:
        robot.frame_id(need.frame)


def gain_std(values: PayloadParameters) -> float:
    """Return the standard deviation of drive gains that are not calibrated, as a share."""
    return _UNKNOWN_STD if values.effort_source == 'unknown' else values.gain_std


def _arm(robot: Robot, values: PayloadParameters, inputs: Inputs) -> ArmModel:
    """Return the arm as identified with the drive gains in use, or that of the URDF."""
    std = gain_std(values)
    return known_with_gains(robot, values, inputs.gains, std) or urdf_model(
        robot, values.arm_model_std, relative_covariance(robot, inputs.gains, std),
        calibrated=inputs.gains is not None)


def _by_torque(
    robot: Robot, recording: Recording, values: PayloadParameters, inputs: Inputs,
    mass: float | None = 0.0,
) -> tuple[ArmModel, Mapping[str, SteadyFriction]]:
    """Return what of arm and friction is in the efforts, after checks of unit and contents.

    Without an identified arm or calibrated drive gains there is no evidence of its accuracy.

    Args:
        robot: The arm by its URDF.
        recording: The recorded samples.
        values: The parameters.
        inputs: Results to build on.
        mass: Known mass of the payload [kg]; 0 if it is not known, None for no payload.

    """
    check_effort_unit(values, inputs.gains)
    check_contents(recording.joints, robot, values.effort_contains, values.min_weight_share, mass)
    arm = _arm(robot, values, inputs)
    if values.effort_contains == 'external':
        # Neither the arm's own dynamics nor its friction are in the efforts.
        return replace(arm.gains_alone(), robot=arm.robot.without_mass()), {}
    friction, zero = inputs.get('friction'), inputs.get(TORQUE_ZERO)
    laws = {} if friction is None else friction_by_joint(friction, recording.temperature)
    return arm, laws if zero is None else without_zeros(
        laws, dict(zip(robot.joint_names, torque_zero(robot, zero).offset, strict=True)))


def _estimate_excitation(
    robot: Robot, recording: Recording, values: PayloadParameters, inputs: Inputs
) -> CalibrationResult:
    reference = inputs.get(excitation.REFERENCE)
    excitation.check_reference(
        robot, values, reference, inputs.absent.get(excitation.REFERENCE, ''))
    if values.excitation_source == 'wrench':
        return excitation.estimate(
            robot, recording.joints, values, sensor=recording.wrench(values.sensor_topic),
            reference=reference)
    # In a reference run there is no payload.
    arm, friction = _by_torque(robot, recording, values, inputs,
                               None if values.reference_run == 'record' else 0.0)
    if reference is not None:
        _check_gains(reference, inputs.gains)
    result = excitation.estimate(arm.robot, recording.joints, values, friction=friction,
                                 reference=reference, arm=arm)
    return replace(result, checks=(*result.checks, *stored_load_checks(
        result, inputs.beside.get('payload'))))


def _check_gains(reference: CalibrationResult, gains: CalibrationResult | None) -> None:
    """Raise a ConfigurationError if a reference run was recorded with other drive gains."""
    recorded = {item.sha256 for item in reference.inputs if item.kind in (DRIVE_GAINS, ARM)}
    if ('' if gains is None else gains.sha256) not in (recorded or {''}):
        raise ConfigurationError(
            'The reference run was recorded with other drive gains. Estimate it again from its '
            "recording, or record it again with reference_run 'record'.")


def needs(values: PayloadParameters) -> Needs:
    """Return the streams that the method reads."""
    budget = EXCITATION_BUDGET if values.method == 'excitation' else BUDGET
    if not reads_wrench(values):
        return Needs(effort=True, budget=budget, temperature_topic=values.temperature_topic)
    return Needs(effort=False, budget=budget, wrenches=(WrenchNeed(
        values.sensor_topic, values.sensor_frame, values.sensor_sign,
        values.sensor_message_frame),))


def gain_needs(values: PayloadParameters) -> Needs:
    """Return the streams that the calibration of drive gains reads."""
    return needs(replace(values, method='excitation', excitation_source='torque'))


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
    joints = recording.joints
    if values.method == 'static_poses':
        return static_poses.estimate(robot, joints, recording.wrench(values.sensor_topic), values)
    if values.method == 'two_plane':
        arm, friction = _by_torque(robot, recording, values, inputs, values.known_mass)
        return two_plane.estimate(
            arm.robot, joints, values, friction,
            inputs.get('payload') or inputs.beside.get('payload'), arm)
    return _estimate_excitation(robot, recording, values, inputs)


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
    return excitation.estimate_gains(
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
        inputs: Results to build on: drive gains, friction, and the arm without load.

    """
    friction = inputs.get('friction')
    arm_identification.check_load(values, inputs.get(ARM), inputs.absent.get(ARM, ''))
    check_effort_unit(values, inputs.gains)
    return arm_identification.estimate(
        robot, recording.joints, values, scale=effort_scale(robot, inputs.gains),
        scale_covariance=relative_covariance(robot, inputs.gains, gain_std(values)),
        calibrated=inputs.gains is not None, before=inputs.get(ARM),
        stored=inputs.beside.get('payload'),
        friction=None if friction is None else friction_by_joint(
            friction, recording.temperature))


def sensor_summary(result: CalibrationResult) -> str:
    """Return errors of readings before and after the calibration in a sentence."""
    return f'Readings of {result.frame} against those of the weighed tool, held out, RMS: ' + (
        ', '.join(f'{fit.what} {fit.before:.2g} → {fit.after:.2g} {fit.unit}'
                  for fit in result.validation)) + '.'


def gains_summary(result: CalibrationResult) -> str:
    """Return a sentence that states the scales."""
    scales = ', '.join(f'{p.name.split(".")[0]} {p.text(4)}' for p in result.parameters
                       if p.name.endswith('.effort_scale'))
    text = f'Drive gains (measured over delivered torque): {scales}.'
    if any(item.kind == ARM and item.sha256 for item in result.inputs):
        text += (' The arm was identified before these gains, so its links are no longer used: '
                 'identify it again.')
    return text


def arm_summary(result: CalibrationResult) -> str:
    """Return the identified arm in a sentence."""
    left = ', '.join(f'{fit.what.removeprefix("torque of ")} {fit.after:.2f} of {fit.before:.2f}'
                     for fit in result.validation)
    changed, sprung = (', '.join(
        f'{p.name.removesuffix(suffix)} {p.text(2)}' for p in result.parameters
        if p.name.endswith(suffix) and (interval := p.interval()) and np.prod(interval) > 0.0)
        for suffix in ('.friction_change', '.spring'))
    leaning = ''.join(f' {p.note.capitalize()}.' for p in result.parameters
                      if p.name == GRAVITY[0])
    return f'Torque left on the held-out part of the motion, RMS: {left} N·m.' + (
        f' Friction has changed since it was identified, as a share of it: {changed}.'
        if changed else '') + (
        f' Hoses or springs hold joints back, in N·m/rad: {sprung}.' if sprung else '') + leaning


def kinds(values: PayloadParameters) -> tuple[str, ...]:
    """Return the kinds of results that an estimate of the payload uses."""
    return tuple(kind for kind, used in (
        ('friction', values.use_friction and not reads_wrench(values)),
        (TORQUE_ZERO, values.use_torque_zero and not reads_wrench(values)),
        ('payload', values.method == 'two_plane' and values.known_mass <= 0.0),
        (excitation.REFERENCE,
         values.method == 'excitation' and values.reference_run == 'subtract')) if used)


PAYLOAD = Estimator(
    'payload', PayloadParameters, ('run', 'estimate'), needs, kinds, estimate,
    summary, beside=('payload',))
ARM_IDENTIFICATION = Estimator(
    ARM, PayloadParameters, ('identify_arm',), gain_needs,
    lambda values: (ARM,) if values.arm_load > 0.0 else (), estimate_arm, arm_summary,
    beside=('payload',), priors=lambda values: ('friction',) if values.use_friction else ())
SENSOR = Estimator(
    SENSOR_CALIBRATION, PayloadParameters, ('calibrate_sensor',),
    lambda values: needs(replace(values, method='static_poses')), lambda values: (),
    lambda robot, recording, values, inputs: static_poses.estimate_calibration(
        robot, recording.joints, recording.wrench(values.sensor_topic), values), sensor_summary)
GAINS = Estimator(
    DRIVE_GAINS, PayloadParameters, ('calibrate_gains',), gain_needs,
    lambda values: (ARM,) if values.use_arm_model else (), estimate_gains, gains_summary)


# ----------------------------------------------------------------------- expected results

# Friction of joints whose friction is not identified, as a share of the effort limit.
_FRICTION = 0.03
# Speed at which friction sets in [rad/s], and least noise as a share of the largest torque.
_SLOW, _LEAST_NOISE = 1e-3, 1e-4
# Centre of an unknown load in the tool frame, beside the axis by a third of its distance, because
# what is on the axis by chance is known better than others; and its radius of gyration [m].
_CENTRE, _RADIUS = (0.03, 0.03, 0.1), 0.05
# Scatter of a sensor's readings between postures, as by hysteresis, as a share of the load's
# largest: an assumption, of what only the run can tell.
_SCATTER = 0.003
# Travel within which friction of which nothing is known, and that scatter, stay the same [rad].
_LASTING = 0.2


def expected_result(
    by: Estimator, robot: Robot, values: Any, inputs: Inputs, motion: Trajectory, rest: Recording,
    mass: float,
) -> CalibrationResult:
    """Return the result of a motion that was not carried out.

    The estimator gets the samples that the arm as it is known would give, with the noise of the
    resting arm and what the identification did not explain, and states the intervals and checks of
    its own regressors and priors, but for those whether the model holds.
    Errors that priors do not cover are not in it, but for the hysteresis of a wrist sensor.

    Args:
        by: The estimator.
        robot: The arm without the load.
        values: The parameters.
        inputs: Results to build on.
        motion: The motion, with knots at the rate of the joint states, and its rests.
        rest: Samples of the resting arm, of which the scatter is used.
        mass: Mass of the load [kg]; its centre is that of the stored payload, if that is the same
            tool, or else a guess.

    Raises:
        RobocalError: If such a motion is not enough.

    """
    load = RigidBodyInertia(mass, np.array(_CENTRE), mass * _RADIUS**2 * np.eye(3))
    stored = inputs.get('payload') or inputs.beside.get('payload')
    if by.name == 'payload' and stored is not None and same_tool(
            stored, values.tool, robot.tool_frame):
        body = carried_load(stored)
        load = RigidBodyInertia(mass, body.com, body.inertia * mass / body.mass
                                if body.inertia.any() else load.inertia)
    q, v = motion.position, motion.velocity
    a = np.zeros_like(q) if motion.acceleration is None else motion.acceleration
    external = values.effort_contains == 'external'
    found = inputs.get(ARM) or inputs.gains
    known = found if found is not None and found.kind == ARM and values.use_arm_model else None
    arm = (_arm(robot, values, inputs).robot if by.name == 'payload' else
           robot if known is None else identified_model(robot, known).robot)
    carrying = (arm.without_mass() if external else arm).with_payload(load)
    torque = NewtonEuler(carrying, robot.tool_frame).torque(q, v, a)
    noise = np.maximum(rest.joints.effort.std(axis=0), _LEAST_NOISE * np.abs(torque).max())
    generator = np.random.default_rng(0)
    path = np.cumsum(np.abs(np.diff(q, axis=0, prepend=q[:1])), axis=0)
    if not external:
        friction = _friction(robot, inputs, motion, torque, known)
        left, travel = values.friction_change_std * friction, np.full(robot.n, _LASTING)
        if known is not None and 'unexplained' in known.settings:
            # What links and friction did not explain, noise included, they will not explain here.
            lasting = known.settings.get('unexplained_travel', {})
            left, travel = np.array([(known.settings['unexplained'][name], lasting.get(
                name, _LASTING)) for name in robot.joint_names]).T
            noise = np.zeros_like(noise)
        torque = torque + friction + left * _lasting(generator, path / travel)
    joints = JointSamples(robot.joint_names, motion.time, q, v,
                          torque + noise * generator.normal(size=torque.shape))
    wrenches = {}
    for need in by.needs(values).wrenches:
        place = robot.transform_frame_to_root(q[0], need.frame).inverse() * (
            robot.transform_frame_to_root(q[0], robot.tool_frame))
        body = robot.distal_inertia(need.frame, q[0]).to_pinocchio() + place.act(
            load.to_pinocchio())
        wrench = -NewtonEuler(robot, need.frame).wrench(q, v, a, body.toDynamicParameters())
        if not len(readings := rest.wrench(need.topic)):
            raise DataError(f"No readings of F/T sensor '{need.frame}' on topic '{need.topic}'. "
                            'Correct sensor_topic, or start its driver.')
        # As precise with one reading for each joint state as with those of the sensor's own rate.
        every, wanted = (float(np.ptp(time)) / max(len(time) - 1, 1) for time in (
            readings.time, motion.time))
        spread = readings.wrench.std(axis=0) * np.sqrt(every / wanted)
        size = np.repeat([np.abs(part).max() for part in np.split(wrench, 2, axis=1)], 3)
        # The estimator sees how large errors of its calibration are: they are as usual.
        wrench = wrench + sum(std * generator.normal() * column for _, std, column in gain_terms(
            wrench, values.sensor_gain_std))
        wrench = wrench + _SCATTER * size * _lasting(
            generator, np.tile(path.sum(axis=1, keepdims=True) / _LASTING, 6))
        wrenches[need.topic] = WrenchSamples(
            need.frame, motion.time, wrench + spread * generator.normal(size=wrench.shape))
    result = by.result(robot, Recording(joints, wrenches), values, inputs)
    # Whether the arm is as its model cannot be foreseen: these samples are.
    return replace(result, checks=tuple(
        check for check in result.checks if check.question != 'adequate'))


def _friction(
    robot: Robot, inputs: Inputs, motion: Trajectory, load: Array, arm: CalibrationResult | None
) -> Array:
    """Return identified friction under transmitted torques (k, n), or a guess, (k, n) [N·m]."""
    torque = _FRICTION * rated_efforts(robot, load) * (
        np.tanh(motion.velocity / _SLOW) + motion.velocity)
    if arm is not None:
        torque = arm_identification.friction_of(arm, motion.velocity, load)
    result = inputs.get('friction')
    known = ArmFriction({} if result is None else friction_by_joint(result), robot.joint_names)
    return np.where(known.known, known.torque(motion.velocity, load), torque)


def _lasting(generator: np.random.Generator, path: Array) -> Array:
    """Return errors of standard deviation 1 that last for a path of 1, shape (k, n)."""
    place = path.astype(int)
    return np.take_along_axis(
        generator.normal(size=(place.max() + 1, place.shape[1])), place, axis=0)


_SHOWN = 7
_WORD = 'Expected verdict: '
NARROWLY = 'fail, narrowly'
"""Expected verdict of a run that may pass: limits are missed by less than previews err."""
# Factors within which most deviations that runs state are of what previews expect: usually, and
# for drive gains of an arm that was never identified, whose friction is a guess, and with them.
_ACCURACY, _GUESSED = 1.5, 3.0


def expected_text(result: CalibrationResult) -> str:
    """Return an expected result in a sentence or more."""
    if result.verdict is not Verdict.PASS:
        missed = [check for check in result.checks if not check.passed]
        known = {item.kind for item in result.inputs if item.sha256} | {result.kind}
        factor = _GUESSED if DRIVE_GAINS in known and ARM not in known else _ACCURACY
        word = NARROWLY if missed and all(
            check.limit / factor <= check.value <= check.limit * factor
            for check in missed) else result.verdict.value
        return f'{_WORD}{word}. {" ".join(result.reasons)}'
    shown = [(item.name, wording.reading(item)) for item in wording.shown(result.parameters)
             if item.std]
    return f'{_WORD}pass: ' + ', '.join(
        f'{name} ± {own.half} {own.unit}'.rstrip() for name, own in shown[:_SHOWN]) + '.'


def refused_text(error: RobocalError) -> str:
    """Return why an estimate is expected to be refused."""
    return f'{_WORD}refused. {error}'


def verdict_in(text: str) -> str:
    """Return the expected verdict in the answer of a preview, empty for none."""
    return text.partition(_WORD)[2].partition('.')[0].partition(':')[0]


def objection_in(text: str) -> str:
    """Return the first reason against a pass in the answer of a preview; all of it for none."""
    verdict, (_, said, reasons) = verdict_in(text), text.partition(_WORD)
    first = reasons.partition('. ')[2].partition('. ')[0]
    return f'Expected verdict {verdict}: {first}' if said and first else text


def duration_in(text: str) -> float:
    """Return the duration in the answer of a preview, 0 for none [s]."""
    found = re.search(r'(\d+) s with rests', text)
    return float(found[1]) if found else 0.0


def gain_std_in(text: str) -> float:
    """Return the largest standard deviation of a drive gain that a preview expects, 0 for none."""
    halves = re.findall(r'effort_scale ± (\d+\.?\d*)', text)
    return max(map(float, halves), default=0.0) / Z95
