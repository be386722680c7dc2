# SPDX-License-Identifier: Apache-2.0
"""Compliance calibration without ROS: parameters, load, settings, and estimation of a record."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robocal_ros.capability.capability import Capability, Needs, TrackerNeed
from robocal_ros.compliance.estimate import (
    ComplianceSettings,
    estimate_marked,
    estimate_record,
    summary,
)
from robocal_ros.compliance.measurement import DwellSettings
from robocal_ros.compliance.model import Load, given_load, identified_load
from robocal_ros.compliance.plan import Visibility
from robocal_ros.compliance.registration import METHODS, Registration
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.messages.recording import Recording
from robocal_ros.parameters import ArmParameters, parameter
from robocal_ros.results.result import CalibrationResult
from robocal_ros.results.store import ResultStore
from robocal_ros.robot.model import Robot

CARRIED = ('auto', 'payload', 'load', 'none')


@dataclass(frozen=True)
class ComplianceParameters(ArmParameters):
    """Parameters of compliance calibration."""

    tracker_message: str = parameter(
        'point', 'What the tracker sends: geometry_msgs/PointStamped, or PoseStamped where it '
        'measures orientation too.', choices=('point', 'pose'))
    tracker_topic: str = parameter(
        '', "The tracker's topic; tracker/point or tracker/pose when empty.")
    tracker_timeout: float = parameter(
        5.0, 'Longest silence of the tracker, by the steady clock, before it counts as lost.',
        unit='s', minimum=0.1, maximum=600.0)
    target_frame: str = parameter(
        '', "Frame of the URDF that the tracker's target is fixed to; tool_frame when empty.")
    target_xyz: list[float] = parameter(
        [0.0, 0.0, 0.0], 'The target in that frame.', unit='m', minimum=-10.0, maximum=10.0)
    find_target: bool = parameter(
        False, 'Let register_tracker find the target in its frame too, instead of target_xyz.')
    target_axis: list[float] = parameter(
        [0.0, 0.0, 1.0], 'Direction in which the target looks, in its frame.', minimum=-1e3,
        maximum=1e3)
    visibility_angle: float = parameter(
        3.2, 'Half angle of the cone about target_axis in which the tracker sees the target; '
        'beyond π: from everywhere.', unit='rad', minimum=0.01, maximum=3.2)
    tracker_position: list[float] = parameter(
        [0.0, 0.0, 0.0], 'Where the tracker stands in the root frame, roughly, for choosing '
        'postures in which it sees the target; zeros: use what register_tracker finds, and take '
        'it for seen from everywhere before.', unit='m', minimum=-100.0, maximum=100.0)
    registration: str = parameter(
        'least_squares', 'How the tracker is placed: least squares over all points, or three '
        'points that define one frame.', choices=METHODS)
    registration_postures: int = parameter(
        8, 'Postures that register_tracker visits; the three-point way takes three.', minimum=3,
        maximum=100)
    max_registration_residual: float = parameter(
        0.003, 'Largest distance of the target from where the arm says it is.', unit='m',
        minimum=1e-6, maximum=0.1)
    posture_count: int = parameter(
        30, 'Postures to plan; every fifth is held out of the fit for validation.', minimum=5,
        maximum=500)
    posture_range: float = parameter(
        1.6, 'How far a joint goes from where the arm is, if that gives enough postures.',
        unit='rad', minimum=0.1, maximum=6.3)
    posture_file: str = parameter(
        '', 'YAML file with postures of your own, a list of lists of joint angles [rad]; empty '
        'plans them.')
    dwell: float = parameter(
        2.0, 'Time over which the tracker is averaged in a posture.', unit='s', minimum=0.1,
        maximum=600.0)
    settle: float = parameter(
        0.5, 'Time left out after the arm came to rest.', unit='s', minimum=0.0, maximum=60.0)
    min_readings: int = parameter(
        5, 'Fewest tracker readings that make a position.', minimum=2, maximum=10000)
    reference_every: int = parameter(
        10, 'After so many postures the first one is measured again, to see the tracker drift.',
        minimum=1, maximum=1000)
    max_drift: float = parameter(
        5e-5, 'Largest change of that posture within a set.', unit='m', minimum=1e-7,
        maximum=0.01)
    match_tolerance: float = parameter(
        1e-4, 'Largest difference of joint angles between the two sets.', unit='rad',
        minimum=1e-6, maximum=0.01)
    load_mass: float = parameter(
        0.0, 'Mass of the load that is mounted between the two sets; 0 takes the payload '
        'result, which then must be of that load alone.', unit='kg', minimum=0.0, maximum=1e4)
    load_mass_std: float = parameter(
        0.0, 'Standard deviation of load_mass.', unit='kg', minimum=0.0, maximum=1e3)
    load_com: list[float] = parameter(
        [0.0, 0.0, 0.0], 'Centre of mass of the load in load_frame.', unit='m', minimum=-10.0,
        maximum=10.0)
    load_com_std: float = parameter(
        0.0, 'Standard deviation of each coordinate of load_com.', unit='m', minimum=0.0,
        maximum=1.0)
    load_frame: str = parameter(
        '', 'Frame that the load is fixed to; tool_frame when empty.')
    attach_service: str = parameter(
        '', 'std_srvs/Trigger that mounts the load, so that run can do everything; empty: a '
        'person mounts it between measure_unloaded and measure_loaded.')
    detach_service: str = parameter(
        '', 'std_srvs/Trigger that takes the load off.')
    min_sag_removed: float = parameter(
        0.8, 'Least share of the sag on held-out postures that the model must remove.',
        minimum=0.0, maximum=1.0)
    carried: str = parameter(
        'auto', 'What deflection and trajectory correction take the arm to carry: the payload '
        'result, the load of this procedure, nothing, or the first of these that is known.',
        choices=CARRIED)
    correct_own_weight: bool = parameter(
        True, "Count the sag under the arm's own weight too in deflection and correction; false "
        'where the rigid model was calibrated on the unloaded, sagging arm.')


def settings_of(robot: Robot, values: ComplianceParameters) -> ComplianceSettings:
    """Return the settings of the estimation.

    Raises:
        ConfigurationError: If they don't fit the arm.

    """
    for name in ('target_xyz', 'target_axis', 'tracker_position', 'load_com'):
        if len(getattr(values, name)) != 3:
            raise ConfigurationError(f"Parameter '{name}' has {len(getattr(values, name))} "
                                     'values; expected three.')
    x, y, z = values.target_xyz
    settings = ComplianceSettings(
        target_frame=values.target_frame or robot.tool_frame, target_xyz=(x, y, z),
        match_tolerance=values.match_tolerance, max_drift=values.max_drift,
        max_registration_residual=values.max_registration_residual,
        min_sag_removed=values.min_sag_removed,
        dwell=DwellSettings(values.settle, values.dwell, values.min_readings),
        registration=values.registration, find_target=values.find_target)
    settings.check(robot)
    robot.frame_id(values.load_frame or robot.tool_frame)
    return settings


def visibility_of(values: ComplianceParameters) -> Visibility | None:
    """Return from where the target is seen as far as parameters say; None: from everywhere."""
    if values.visibility_angle >= np.pi or not any(values.tracker_position):
        return None
    found = Visibility(np.array(values.tracker_position), np.array(values.target_axis),
                       values.visibility_angle)
    found.check()
    return found


def load_of(
    robot: Robot, values: ComplianceParameters, payload: CalibrationResult | None
) -> Load:
    """Return the load that is mounted between the two sets.

    Raises:
        DataError: If neither parameter nor payload result tells it.

    """
    if values.load_mass > 0.0:
        return given_load(
            values.load_mass, values.load_com, values.load_frame or robot.tool_frame,
            mass_std=values.load_mass_std, com_std=values.load_com_std)
    if payload is None:
        raise DataError(
            'The mass of the load is missing: load_mass is 0 and there is no payload result. Set '
            'load_mass and load_com, or identify the load with payload_identification.')
    return identified_load(payload)


def carried_on(
    robot: Robot, values: ComplianceParameters, payload: CalibrationResult | None
) -> Robot:
    """Return the arm with what it is taken to carry at work."""
    if values.carried in ('auto', 'payload') and payload is not None:
        return identified_load(payload).on(robot)
    if values.carried in ('auto', 'load') and values.load_mass > 0.0:
        return load_of(robot, values, None).on(robot)
    return robot


def tracker_of(values: ComplianceParameters) -> TrackerNeed:
    """Return the tracker that is read."""
    return TrackerNeed(values.tracker_topic or f'tracker/{values.tracker_message}',
                       values.tracker_message == 'pose')


def needs(values: ComplianceParameters) -> Needs:
    """Return what an estimation reads."""
    return Needs(effort=False, tracker=tracker_of(values))


def estimate_compliance(
    robot: Robot, recording: Recording, load: Load, settings: ComplianceSettings,
    registration: Registration | None = None,
) -> CalibrationResult:
    """Estimate from a record of both measurements.

    Args:
        robot: The arm without the load.
        recording: What was recorded; without marked rests these are looked for.
        load: What was mounted between the two sets.
        settings: Settings.
        registration: Where the tracker stands, for a record without marked rests; None to find
            it from the unloaded set.

    Raises:
        RobocalError: As of ``estimate_marked`` and ``estimate_record``.

    """
    if recording.tracker is None:
        raise DataError('No tracker readings were recorded; record the tracker too.')
    if recording.rests:
        return estimate_marked(robot, recording.joints, recording.tracker, recording.rests, load,
                               settings)
    return estimate_record(
        robot, recording.joints, recording.tracker, load, settings, registration)


def _estimate(
    robot: Robot, recording: Recording, values: ComplianceParameters, store: ResultStore
) -> CalibrationResult:
    return estimate_compliance(robot, recording, load_of(robot, values, store.load('payload')),
                               settings_of(robot, values))


VERBS = ('run', 'estimate', 'register_tracker', 'measure_unloaded', 'measure_loaded')
"""Services whose recordings can be estimated from."""

COMPLIANCE = Capability(
    'compliance', 'compliance_calibration', ComplianceParameters, VERBS, needs, _estimate,
    summary)
