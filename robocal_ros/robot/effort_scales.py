# SPDX-License-Identifier: Apache-2.0
"""Identified drive gains as others use them: one effort scale per joint."""

from __future__ import annotations

from robocal_ros.errors import DataError
from robocal_ros.results.result import CalibrationResult

KIND = 'drive_gains'
"""Kind of the result of a calibration of drive gains."""


def effort_scales(result: CalibrationResult) -> dict[str, float]:
    """Return the identified scales of a drive-gain result by joint name.

    Raises:
        DataError: If the result is of another kind.

    """
    if result.kind != KIND:
        raise DataError(f"Expected a result of kind '{KIND}', got '{result.kind}'.")
    return {p.name.removesuffix('.effort_scale'): p.value for p in result.parameters
            if p.name.endswith('.effort_scale') and p.value is not None}
