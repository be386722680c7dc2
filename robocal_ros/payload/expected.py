# SPDX-License-Identifier: Apache-2.0
"""Result that a motion is expected to give, before it is carried out.

The estimator gets the samples that the arm of the URDF would give, with the noise of the resting
arm, and states the intervals and checks of its own regressors and priors. Errors that priors do
not cover are not in it.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError, RobocalError
from robocal_ros.estimators import Estimator
from robocal_ros.messages import JointSamples, Recording, WrenchSamples
from robocal_ros.payload.result import rated_efforts
from robocal_ros.results import Z95, CalibrationResult, Inputs, Verdict, wording
from robocal_ros.robot import (
    ArmFriction,
    NewtonEuler,
    RigidBodyInertia,
    Robot,
    Trajectory,
    friction_by_joint,
)

# Friction of joints whose friction is not identified, as a share of the effort limit.
_FRICTION = 0.03
# Speed at which friction sets in [rad/s], and least noise as a share of the largest torque.
_SLOW, _LEAST_NOISE = 1e-3, 1e-4
# Distance of the centre of an unknown load from the flange, and its radius of gyration [m].
_REACH, _RADIUS = 0.1, 0.05
# Time within which friction that is not modelled stays the same [s].
_LASTING = 0.5


def expected_result(
    by: Estimator, robot: Robot, values: Any, inputs: Inputs, motion: Trajectory, rest: Recording,
    mass: float,
) -> CalibrationResult:
    """Return the result of a motion that was not carried out.

    Args:
        by: The estimator.
        robot: The arm without the load.
        values: The parameters.
        inputs: Results to build on.
        motion: The motion, with knots at the rate of the joint states, and its rests.
        rest: Samples of the resting arm, of which the scatter is used.
        mass: Mass of the load [kg].

    Raises:
        RobocalError: If such a motion is not enough.

    """
    load = RigidBodyInertia(mass, np.array([0.0, 0.0, _REACH]), mass * _RADIUS**2 * np.eye(3))
    q, v = motion.position, motion.velocity
    a = np.zeros_like(q) if motion.acceleration is None else motion.acceleration
    external = values.effort_contains == 'external'
    carrying = (robot.without_mass() if external else robot).with_payload(load)
    torque = NewtonEuler(carrying, robot.tool_frame).torque(q, v, a)
    noise = np.maximum(rest.joints.effort.std(axis=0), _LEAST_NOISE * np.abs(torque).max())
    generator = np.random.default_rng(0)
    if not external:
        friction = _friction(robot, inputs, motion, torque)
        torque = torque + friction * (
            1.0 + values.friction_change_std * _lasting(generator, motion))
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
        spread = readings.wrench.std(axis=0)
        wrenches[need.topic] = WrenchSamples(
            need.frame, motion.time, wrench + spread * generator.normal(size=wrench.shape))
    return by.result(robot, Recording(joints, wrenches), values, inputs)


def _friction(robot: Robot, inputs: Inputs, motion: Trajectory, load: Array) -> Array:
    """Return identified friction under transmitted torques (k, n), or a guess, (k, n) [N·m]."""
    torque = _FRICTION * rated_efforts(robot, load) * (
        np.tanh(motion.velocity / _SLOW) + motion.velocity)
    result = inputs.get('friction')
    known = ArmFriction({} if result is None else friction_by_joint(result), robot.joint_names)
    return np.where(known.known, known.torque(motion.velocity, load), torque)


def _lasting(generator: np.random.Generator, motion: Trajectory) -> Array:
    """Return a random change of each joint's friction with standard deviation 1, shape (k, n)."""
    knots = np.arange(0.0, motion.duration + _LASTING, _LASTING)
    drawn = generator.normal(size=(len(knots), motion.position.shape[1]))
    return np.stack([np.interp(motion.time, knots, column) for column in drawn.T], axis=1)


# ------------------------------------------------------------------------------- wording

_SHOWN = 7
_WORD = 'Expected verdict: '


def expected_text(result: CalibrationResult) -> str:
    """Return an expected result in a sentence or more."""
    if result.verdict is not Verdict.PASS:
        return f'{_WORD}{result.verdict.value}. {" ".join(result.reasons)}'
    shown = [(item.name, wording.reading(item)) for item in result.parameters if item.std]
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
