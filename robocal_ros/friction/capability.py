# SPDX-License-Identifier: Apache-2.0
"""Friction identification without ROS: parameters, and how recorded runs become a result."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.capability.capability import Capability, Needs
from robocal_ros.friction.estimate import (
    DYNAMIC,
    FrictionSettings,
    estimate,
    summary,
    with_temperatures,
)
from robocal_ros.friction.fit import MODELS
from robocal_ros.friction.runs import find_runs
from robocal_ros.messages.recording import Recording
from robocal_ros.messages.samples import JointSamples
from robocal_ros.parameters import ArmParameters, named, parameter
from robocal_ros.results.result import CalibrationResult
from robocal_ros.results.store import ResultStore
from robocal_ros.robot.load import alternative_loads, carried_load
from robocal_ros.robot.model import Robot


@dataclass(frozen=True)
class FrictionParameters(ArmParameters):
    """Parameters of friction identification."""

    measure_joints: list[str] = parameter(
        [''], "Joints to identify, in this order; [''] for all of the arm's.")
    speeds: list[float] = parameter(
        [0.0], 'Speeds to run, each in both directions; [0.0] plans them from the limits: '
        'log-spaced from min_speed to max_speed, so denser near zero.', unit='rad/s',
        minimum=0.0, maximum=10.0)
    min_speed: float = parameter(
        0.005, 'Slowest planned speed.', unit='rad/s', minimum=0.001, maximum=1.0)
    max_speed: float = parameter(
        0.6, 'Fastest planned speed; half the joint limit if that is less.', unit='rad/s',
        minimum=0.01, maximum=10.0)
    speed_count: int = parameter(
        10, 'Number of planned speeds in each direction.', minimum=3, maximum=100)
    max_range: float = parameter(
        1.6, 'Widest range of joint angle that is used about the start posture.', unit='rad',
        minimum=0.05, maximum=6.3)
    max_cruise: float = parameter(
        20.0, 'Longest time at constant speed.', unit='s', minimum=1.0, maximum=600.0)
    trajectory_file: str = parameter(
        '', 'YAML file with a trajectory set of your own, run as the first round; empty plans '
        'one. Further rounds stay within its range; set max_rounds to 1 for none.')
    model: str = parameter(
        'auto', 'Friction model; auto chooses by information criterion among those that the '
        'data can tell; lugre_dynamic chooses likewise, and finds stiffness and damping of the '
        'bristles from slow small reversals besides.', choices=('auto', *MODELS, DYNAMIC))
    reversal_size: float = parameter(
        4e-3, 'With model lugre_dynamic: size of the reversals; several times the angle over '
        'which the torque turns round.', unit='rad', minimum=1e-4, maximum=0.015)
    fit_threshold: float = parameter(
        5.0, 'Largest fit degree that passes: 100 sqrt(Σ(f-f̂)²/Σf²).', unit='%', minimum=0.01,
        maximum=100.0)
    max_rounds: int = parameter(
        2, 'Most rounds of runs for a joint before it fails.', minimum=1, maximum=20)
    use_payload: bool = parameter(
        True, 'Count the identified payload in the gravity torque, when there is a result.')
    temperature_topic: str = parameter(
        '', 'sensor_msgs/Temperature to file with the result; empty for none.')
    temperature_warning: float = parameter(
        10.0, 'Warn when the temperature is this far from that of the identification.',
        unit='K', minimum=0.1, maximum=200.0)
    compensation_width: float = parameter(
        0.002, 'Speed over which the compensation rises from zero to full friction.',
        unit='rad/s', minimum=1e-5, maximum=1.0)
    compensation_dead_band: float = parameter(
        0.01, 'Measured speeds below this count as standstill in the compensation.',
        unit='rad/s', minimum=0.0, maximum=1.0)


def settings_of(values: FrictionParameters) -> FrictionSettings:
    """Return the settings of the estimation."""
    return FrictionSettings(joints=named(values.measure_joints), model=values.model,
                            fit_threshold=values.fit_threshold)


def loaded(robot: Robot, payload: CalibrationResult | None) -> tuple[Robot, list[Robot]]:
    """Return the arm with what it carries, and with what it may carry instead."""
    if payload is None:
        return robot, []
    return (robot.with_payload(carried_load(payload), payload.frame),
            [robot.with_payload(load, payload.frame) for load in alternative_loads(payload)])


def estimate_friction(
    robot: Robot, alternatives: list[Robot], recording: Recording, settings: FrictionSettings
) -> CalibrationResult:
    """Estimate friction from recorded runs.

    Args:
        robot: The arm with what it carries.
        alternatives: The arm with what it may carry instead.
        recording: Joint states of the runs, and temperatures.
        settings: Settings; joints that they do not name may be named by the recording.

    """
    settings = replace(settings, joints=settings.joints or recording.joints_wanted)
    result, found = estimate(robot, recording.joints, settings, alternatives)
    readings = recording.temperatures
    readings = readings[np.isfinite(readings).all(axis=1)]
    if not len(readings):
        return result
    return with_temperatures(result, _temperatures(
        robot, recording.joints, [item.joint for item in found], readings, settings.min_span))


def _temperatures(
    robot: Robot, samples: JointSamples, joints: list[str], readings: Array, min_span: float
) -> dict[str, float]:
    """Return the mean temperature from each joint's first run to its last [°C]."""
    columns = [robot.index(name) for name in joints]
    runs = find_runs(samples, columns, min_span)
    found = {}
    for name, column in zip(joints, columns, strict=True):
        mine = [run for run in runs if run.joint == column]
        during = np.zeros(len(readings), dtype=bool)
        if mine:
            begin, end = samples.time[mine[0].start], samples.time[mine[-1].stop - 1]
            during = (readings[:, 0] >= begin) & (readings[:, 0] <= end)
        chosen = readings[during] if during.any() else readings
        found[name] = float(chosen[:, 1].mean())
    return found


def _needs(values: FrictionParameters) -> Needs:
    return Needs(effort=True, temperature_topic=values.temperature_topic)


def _estimate(
    robot: Robot, recording: Recording, values: FrictionParameters, store: ResultStore
) -> CalibrationResult:
    settings = settings_of(values)
    settings.check(robot)
    payload = store.load('payload') if values.use_payload else None
    return estimate_friction(*loaded(robot, payload), recording, settings)


FRICTION = Capability(
    'friction', 'friction_identification', FrictionParameters, ('run', 'estimate'), _needs,
    _estimate, summary)
