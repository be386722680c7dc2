# SPDX-License-Identifier: Apache-2.0
"""Rotations between the core's matrices and the quaternions of ROS messages.

ROS has (x, y, z, w). ``tf_transformations`` comes with ROS distributions and is a layer over
``transforms3d``; where it is not installed, ``transforms3d`` serves in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from robocal_ros.core.arrays import Array
from robocal_ros.errors import DataError

if TYPE_CHECKING:
    from geometry_msgs.msg import Quaternion

try:
    from tf_transformations import quaternion_from_matrix, quaternion_matrix
except ImportError:
    from transforms3d.quaternions import mat2quat, quat2mat

    def quaternion_from_matrix(matrix: Array) -> Array:
        """Return the quaternion (x, y, z, w) of a homogeneous transform's rotation."""
        return np.roll(mat2quat(matrix[:3, :3]), -1)

    def quaternion_matrix(quaternion: Array) -> Array:
        """Return the homogeneous transform, shape (4, 4), of a quaternion (x, y, z, w)."""
        matrix = np.eye(4)
        matrix[:3, :3] = quat2mat(np.roll(quaternion, 1))
        return matrix


# Largest deviation of a message's quaternion from unit length: what drivers round to.
_UNIT = 1e-2


def quaternion(rotation: Array) -> Array:
    """Return a rotation matrix as a unit quaternion (x, y, z, w), w not negative, shape (4,)."""
    transform = np.eye(4)
    transform[:3, :3] = rotation
    found = np.asarray(quaternion_from_matrix(transform), dtype=float)
    return found if found[3] >= 0.0 else -found


def rotation_matrix(quaternion: Array) -> Array:
    """Return the rotation matrix, shape (3, 3), of a quaternion (x, y, z, w).

    Raises:
        DataError: If it is not of unit length; a message never filled in holds zeros.

    """
    given = np.asarray(quaternion, dtype=float)
    length = float(np.linalg.norm(given))
    if not abs(length - 1.0) <= _UNIT:
        raise DataError(
            f'The quaternion ({", ".join(f"{value:g}" for value in given)}) has length '
            f'{length:g}; expected 1, in the order x, y, z, w. Does its sender fill it in?')
    return np.asarray(quaternion_matrix(given / length), dtype=float)[:3, :3]


def from_message(message: Quaternion) -> Array:
    """Return the rotation matrix, shape (3, 3), of a message.

    Raises:
        DataError: If its quaternion is not of unit length.

    """
    return rotation_matrix(np.array([message.x, message.y, message.z, message.w]))


def fill_message(message: Quaternion, rotation: Array) -> None:
    """Write a rotation matrix into a message."""
    message.x, message.y, message.z, message.w = (float(value) for value in quaternion(rotation))
