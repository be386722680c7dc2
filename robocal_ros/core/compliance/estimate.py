# SPDX-License-Identifier: Apache-2.0
"""Joint compliance from two sets of end positions: displacements → fit → validation → result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import numpy as np

from robocal_ros.core.arrays import Array
from robocal_ros.core.compliance.fit import ComplianceFit, fit_compliance
from robocal_ros.core.compliance.load import Load
from robocal_ros.core.compliance.model import Target, target_pose
from robocal_ros.core.compliance.outcome import METHOD, assemble, summary
from robocal_ros.core.compliance.positions import EndPosition, find_end_positions, visits
from robocal_ros.core.compliance.registration import (
    Registration,
    least_squares_transform,
    register_with_target,
    three_point,
)
from robocal_ros.core.compliance.rests import LOADED, REGISTRATION, UNLOADED, measured
from robocal_ros.core.compliance.sets import Displacements, displacements, split_by_load
from robocal_ros.core.compliance.settings import ComplianceSettings
from robocal_ros.core.compliance.tracker import TrackerSamples
from robocal_ros.core.marks import Rest
from robocal_ros.core.result import CalibrationResult
from robocal_ros.core.robot import Robot
from robocal_ros.core.samples import JointSamples, StreamCounts
from robocal_ros.errors import DataError

__all__ = ['METHOD', 'ComplianceSettings', 'check_registration', 'estimate', 'estimate_marked',
           'estimate_record', 'place_tracker', 'register', 'stream_counts', 'summary']


def register(
    robot: Robot, positions: Sequence[EndPosition], settings: ComplianceSettings
) -> Registration:
    """Place the tracker by end positions without the load, by least squares.

    Raises:
        DataError: If they are too few, lie on a line, or don't fit the arm.

    """
    points = np.array([item.point for item in positions]).reshape(-1, 3)
    base = _seen_by_the_arm(robot, positions, settings)
    return least_squares_transform(points, base, settings.max_registration_residual)


def place_tracker(
    robot: Robot, positions: Sequence[EndPosition], settings: ComplianceSettings
) -> Registration:
    """Place the tracker by end positions without the load that were measured for that.

    Raises:
        DataError: If they are too few, lie on a line, or don't fit the arm.
        ExcitationError: If the target is to be found along, and they don't tell where it is.

    """
    points = np.array([item.point for item in positions]).reshape(-1, 3)
    limit = settings.max_registration_residual
    if settings.find_target:
        placements = [robot.transform_frame_to_root(item.posture, settings.target_frame)
                      for item in positions]
        return register_with_target(
            points, np.array([p.rotation for p in placements]),
            np.array([p.translation for p in placements]), limit)
    if settings.registration == 'three_point':
        return three_point(points, _seen_by_the_arm(robot, positions, settings), limit)
    return register(robot, positions, settings)


def _seen_by_the_arm(
    robot: Robot, positions: Sequence[EndPosition], settings: ComplianceSettings
) -> Array:
    """Return where the arm says that the target is, shape (k, 3) [m]."""
    return np.array([target_pose(robot, item.posture, settings.target)[1]
                     for item in positions]).reshape(-1, 3)


def check_registration(
    robot: Robot, positions: Sequence[EndPosition], registration: Registration,
    settings: ComplianceSettings,
) -> float:
    """Refuse end positions that a registered tracker sees elsewhere than the arm says.

    Returns:
        The largest distance [m].

    Raises:
        DataError: If a distance exceeds the limit.

    """
    largest = 0.0
    for number, item in enumerate(positions, 1):
        expected = target_pose(robot, item.posture, settings.target)[1]
        distance = float(np.linalg.norm(registration.to_base(item.point) - expected))
        largest = max(largest, distance)
        if distance > settings.max_registration_residual:
            raise DataError(
                f'The tracker frame does not fit the arm: in posture {number} the target is '
                f'seen {1e3 * distance:.2f} mm from where the arm says it is (limit '
                f'{1e3 * settings.max_registration_residual:.2f} mm). Was the tracker or the '
                'target moved? Call register_tracker.')
    return largest


def estimate(
    robot: Robot,
    unloaded: Sequence[EndPosition],
    loaded: Sequence[EndPosition],
    load: Load,
    settings: ComplianceSettings,
    registration: Registration | None = None,
    *,
    counts: Mapping[str, int] | None = None,
    source: str = 'live',
) -> CalibrationResult:
    """Estimate the compliance of every joint.

    Args:
        robot: The arm without the load.
        unloaded: End positions without the load, in the order of time.
        loaded: End positions with the load, in the order of time.
        load: What was mounted between the two.
        settings: Settings.
        registration: Where the tracker stands; None to find it from the unloaded set.
        counts: Sample counts and drops to file along.
        source: ``live``, or the name of the bag.

    Raises:
        ConfigurationError: If the settings don't fit the arm.
        DataError: If the load is none, the sets don't match, the tracker drifted or does not
            fit the arm.
        ExcitationError: If no joint's compliance can be told.

    """
    settings.check(robot)
    load.check()
    if registration is None:
        registration = register(robot, unloaded, settings)
    if registration.target is not None:
        x, y, z = (float(value) for value in registration.target)
        settings = replace(settings, target_xyz=(x, y, z))
    furthest = check_registration(robot, unloaded, registration, settings)
    data = displacements(unloaded, loaded, registration, robot.joint_names,
                         tolerance=settings.match_tolerance, max_drift=settings.max_drift)
    arm = load.on(robot)
    fitted = data.rows(~data.held_out)
    fit = fit_compliance(robot, arm, settings.target, fitted)
    covariance = fit.covariance + _load_covariance(robot, load, settings.target, fitted, fit)
    fit = replace(fit, covariance=covariance)
    everything = [*unloaded, *loaded]
    return assemble(
        robot, arm, load, settings, registration, data, fit, furthest,
        {'unloaded_visits': len(unloaded), 'loaded_visits': len(loaded),
         'unloaded_postures': len(visits(unloaded, settings.match_tolerance)),
         'readings': sum(item.count for item in everything),
         'rejected_readings': sum(item.rejected for item in everything),
         'rejected_displacements': int((~fit.kept).sum()), **(counts or {})},
        source, max(item.time for item in everything))


def estimate_record(
    robot: Robot, joints: JointSamples, readings: TrackerSamples, load: Load,
    settings: ComplianceSettings, registration: Registration | None = None,
) -> CalibrationResult:
    """Estimate from a record of both measurements, as of a bag.

    Rests are found from the joint states, the moment at which the load was mounted from the
    postures that were visited twice; postures that were visited once do not count.

    Args:
        robot: The arm without the load.
        joints: Joint states.
        readings: Readings of the tracker.
        load: What was mounted.
        settings: Settings.
        registration: As of ``estimate``.

    Raises:
        RobocalError: As of ``estimate``; also if the record holds no rests with readings.

    """
    settings.check(robot)
    load.check()
    found = find_end_positions(joints, readings, settings.dwell)
    if not found:
        raise DataError(
            f'The record of {len(joints)} joint states and {len(readings)} tracker readings '
            f'holds no rest of {settings.dwell.settle + settings.dwell.dwell:.1f} s in which '
            'the target was seen; expected both sets of postures. Call measure_unloaded and '
            'measure_loaded, or play a bag of them.')
    unloaded, loaded = split_by_load(found, settings.match_tolerance)
    both = [group[0] for group in visits(found, settings.match_tolerance)
            if any(a in unloaded for a in group) and any(b in loaded for b in group)]

    def kept(positions: Sequence[EndPosition]) -> list[EndPosition]:
        return [item for item in positions if any(
            np.abs(item.posture - first.posture).max() <= settings.match_tolerance
            for first in both)]

    return estimate(robot, kept(unloaded), kept(loaded), load, settings, registration,
                    counts=stream_counts(joints.counts, readings.counts), source=joints.source)


def estimate_marked(
    robot: Robot, joints: JointSamples, readings: TrackerSamples, rests: Sequence[Rest],
    load: Load, settings: ComplianceSettings,
) -> CalibrationResult:
    """Estimate from a record of which it is known when the arm was measured, and what for.

    Args:
        robot: The arm without the load.
        joints: Joint states, or their averages over each rest.
        readings: Readings of the tracker.
        rests: When the arm was measured, in the order of measuring.
        load: What was mounted.
        settings: Settings.

    Raises:
        RobocalError: As of ``estimate``; also if the record lacks one of the rests.

    """
    settings.check(robot)
    load.check()
    found = measured(joints, readings, rests)
    registration = (place_tracker(robot, found[REGISTRATION], settings)
                    if found[REGISTRATION] else None)
    return estimate(robot, found[UNLOADED], found[LOADED], load, settings, registration,
                    counts=stream_counts(joints.counts, readings.counts), source=joints.source)


def stream_counts(joints: StreamCounts, readings: StreamCounts) -> dict[str, int]:
    """Return what is filed of what the streams went through."""
    return {**asdict(joints), 'tracker_received': readings.received,
            'tracker_dropped': readings.dropped}


def _load_covariance(
    robot: Robot, load: Load, target: Target, data: Displacements, fit: ComplianceFit
) -> Array:
    """Return what the load's uncertainty adds to the covariance, to first order."""
    extra = np.zeros_like(fit.covariance)
    for other in load.others_on(robot):
        change = fit_compliance(robot, other, target, data).value - fit.value
        change[[i for i in range(robot.n) if i not in fit.seen]] = 0.0
        extra += np.outer(change, change)
    return extra
