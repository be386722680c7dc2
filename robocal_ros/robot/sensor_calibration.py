# SPDX-License-Identifier: Apache-2.0
"""Calibration matrix of an F/T sensor: its names in results, and the reader of results."""

from __future__ import annotations

from robocal_ros.arrays import Array
from robocal_ros.results import CalibrationResult

SENSOR_CALIBRATION = 'sensor_calibration'
"""Kind of the result of a calibration of an F/T sensor."""

_CHANNELS = 'fx', 'fy', 'fz', 'tx', 'ty', 'tz'
CALIBRATION_NAMES = tuple(f'{row}_by_{column}' for row in _CHANNELS for column in _CHANNELS)
"""Elements of the matrix by rows: readings per force or torque."""


def calibration_matrix(result: CalibrationResult) -> tuple[str, Array]:
    """Return measurement frame and calibration matrix of a sensor, shape (6, 6).

    The sensor reads the matrix times the wrench, plus a bias.

    Raises:
        DataError: If the result is of another kind.

    """
    result.check_kind(SENSOR_CALIBRATION)
    return result.frame, result.values(CALIBRATION_NAMES).reshape(6, 6)
