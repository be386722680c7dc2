# SPDX-License-Identifier: Apache-2.0
"""What became of it: residual tilt and drift from joint states, and tilt from an IMU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pinocchio as pin
import scipy

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.leveling.model import LevelingTask, angle_between, tilt

# Where torque sets in with a jerk, a motor's encoder sees its drive wind up for a sample or two.
_MEDIAN = 5
# An accelerometer at rest reads gravity's norm, give or take its scale error.
_REST_TOLERANCE = 0.05


@dataclass(frozen=True)
class LevelCheck:
    """The tool after leveling, by the joint states.

    Attributes:
        tilt: Angle between the tool's z axis and where it should point [rad].
        drift: Distance of the tool point from where it was held [m].
        drift_on_way: Largest such distance on the way [m].

    """

    tilt: float
    drift: float
    drift_on_way: float


def check_level(task: LevelingTask, axis: Array, way: Array, rest: Array) -> LevelCheck:
    """Judge a leveling motion by measured joint angles.

    Args:
        task: What was to be done.
        axis: The reference's z axis in the root frame, shape (3,).
        way: Postures during the motion, shape (k, n) [rad]; a running median of 5 of them is
            judged.
        rest: Postures at rest after it, shape (m, n) [rad]; their mean is judged.

    """
    rotation, point = task.tool.pose(rest.mean(axis=0))
    # Before the motion the arm rested at its start.
    padded = np.concatenate((np.tile(task.start, (_MEDIAN, 1)), way))
    smooth = scipy.ndimage.median_filter(padded, size=(_MEDIAN, 1), mode='nearest')
    points = task.tool.poses(np.concatenate((smooth, rest)))[1]
    return LevelCheck(
        tilt(rotation, axis, 'up' if task.target.up else 'down'),
        float(np.linalg.norm(point - task.point)),
        float(np.linalg.norm(points - task.point, axis=1).max()),
    )


def tilt_by_imu(
    specific_force: Array, transform_imu_to_tool: Array, orientation: Array, gravity: Array,
    target_axis: Array,
) -> float:
    """Return the tool's tilt as its IMU sees it [rad].

    The accelerometer at rest points against gravity. Where it disagrees with what the joint
    states say, the tool's orientation is corrected by the least turn that makes them agree;
    for a reference along gravity that leaves exactly the angle between the tool's z axis and
    what the accelerometer reads.

    Args:
        specific_force: Mean accelerometer reading at rest, IMU frame, shape (3,) [m/s²].
        transform_imu_to_tool: Rotation of the IMU in the tool frame, shape (3, 3).
        orientation: Orientation of the tool by the joint states, shape (3, 3).
        gravity: Gravity in the root frame, shape (3,) [m/s²].
        target_axis: Where the tool's z axis should point, root frame, shape (3,).

    Raises:
        DataError: If the reading is not that of an accelerometer at rest.

    """
    strength, expected = float(np.linalg.norm(specific_force)), float(np.linalg.norm(gravity))
    if abs(strength - expected) > _REST_TOLERANCE * expected:
        raise DataError(
            f'The IMU reads {strength:.2f} m/s² at rest; expected {expected:.2f} m/s². Check its '
            'units and scale, that the arm stands still, and the parameter gravity.')
    seen = transform_imu_to_tool @ specific_force / strength
    said = orientation.T @ (-gravity / expected)
    correction = _least_turn(said, seen)
    return angle_between(np.array([0.0, 0.0, 1.0]), correction @ orientation.T @ target_axis)


def _least_turn(first: Array, second: Array) -> Array:
    """Return the rotation by the least angle that takes one unit vector to another, (3, 3)."""
    normal = np.cross(first, second)
    length = float(np.linalg.norm(normal))
    angle = angle_between(first, second)
    if length < 1e-12:
        return np.eye(3) if angle < 1.0 else -np.eye(3) + 2.0 * np.outer(*[_across(first)] * 2)
    return pin.exp3(normal * (angle / length))


def _across(vector: Array) -> Array:
    normal = np.cross(vector, np.eye(3)[int(np.argmin(np.abs(vector)))])
    return normal / np.linalg.norm(normal)
