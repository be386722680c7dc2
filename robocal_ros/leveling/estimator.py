# SPDX-License-Identifier: Apache-2.0
"""Verification: residual tilt and drift from joint states, and tilt from an IMU."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import scipy

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.leveling.model import LevelingTask, angle_between, tilt

# Length of the running median, which removes encoder jumps of one or two samples that drive
# wind-up causes when the torque changes abruptly.
_MEDIAN = 5
# Largest relative difference between the reading at rest and gravity (scale error).
_REST_TOLERANCE = 0.05


class LevelCheck:
    """Tilt and drift of the tool by the joint states.

    Attributes:
        tilt: Angle between the tool's z axis and its target [rad].
        drift: Distance of the tool point from its initial position [m].
        drift_in_motion: Largest such distance during the motion [m].

    """

    def __init__(self, task: LevelingTask, axis: Array, motion: Array, rest: Array) -> None:
        """Check a leveling motion by measured joint angles.

        Args:
            task: The task.
            axis: The reference's z axis in the root frame, shape (3,).
            motion: Postures during the motion, shape (k, n) [rad]; their running median is used.
            rest: Postures at rest after it, shape (m, n) [rad]; their mean is used.

        """
        rotation, point = task.tool.pose(rest.mean(axis=0))
        padded = np.concatenate((np.tile(task.start, (_MEDIAN, 1)), motion))
        smooth = scipy.ndimage.median_filter(padded, size=(_MEDIAN, 1), mode='nearest')
        points = task.tool.poses(np.concatenate((smooth, rest)))[1]
        self.tilt = tilt(rotation, axis, 'up' if task.target.up else 'down')
        self.drift = float(np.linalg.norm(point - task.point))
        self.drift_in_motion = float(np.linalg.norm(points - task.point, axis=1).max())


def tilt_by_imu(
    specific_force: Array, transform_imu_to_tool: Array, orientation: Array, gravity: Array,
    target_axis: Array,
) -> float:
    """Return the tilt of the tool measured by its IMU [rad].

    An accelerometer at rest reads the vector against gravity. The tool's orientation from the
    joint states is corrected by the smallest rotation that makes both agree. For a reference
    along gravity, the result is the angle between the tool's z axis and the reading.

    Args:
        specific_force: Mean accelerometer reading at rest, IMU frame, shape (3,) [m/s²].
        transform_imu_to_tool: Rotation of the IMU in the tool frame, shape (3, 3).
        orientation: Orientation of the tool by the joint states, shape (3, 3).
        gravity: Gravity in the root frame, shape (3,) [m/s²].
        target_axis: Target of the tool's z axis, root frame, shape (3,).

    Raises:
        DataError: If the norm of the reading is not that of gravity.

    """
    strength, expected = float(np.linalg.norm(specific_force)), float(np.linalg.norm(gravity))
    if abs(strength - expected) > _REST_TOLERANCE * expected:
        raise DataError(
            f'The IMU reads {strength:.2f} m/s² at rest; expected {expected:.2f} m/s². Check its '
            'units and scale, that the arm is at rest, and the parameter gravity.')
    seen = transform_imu_to_tool @ specific_force / strength
    expected_axis = orientation.T @ (-gravity / expected)
    correction = pin.Quaternion.FromTwoVectors(expected_axis, seen).matrix()
    return angle_between(np.array([0.0, 0.0, 1.0]), correction @ orientation.T @ target_axis)
