# SPDX-License-Identifier: Apache-2.0
"""Torque zeros: what joint torques read in excess of the true ones, whatever the motion."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.parameters import RobotParameters
from robocal_ros.results import CalibrationResult, Load
from robocal_ros.robot.model import Robot
from robocal_ros.robot.setup import ARM, EFFORT_UNITS, other_efforts

TORQUE_ZERO = 'torque_zero'
"""Kind of the result of zeros from rests in several postures."""


class TorqueZero(NamedTuple):
    """Zeros of all joints.

    Attributes:
        offset: Measured minus true torques, shape (n,) [N·m].
        covariance: Its covariance, shape (n, n) [N²·m²].

    """

    offset: Array
    covariance: Array


def zero_names(robot: Robot) -> tuple[str, ...]:
    """Return the names of the zeros in results."""
    return tuple(f'{joint}.torque_zero' for joint in robot.joint_names)


def torque_zero(robot: Robot, result: CalibrationResult) -> TorqueZero:
    """Return the zeros that rests have shown.

    Raises:
        DataError: If the result is of another kind.

    """
    result.check_kind(TORQUE_ZERO)
    names = zero_names(robot)
    return TorqueZero(result.values(names), result.covariance_of(names))


def arm_zero(robot: Robot, result: CalibrationResult | None) -> TorqueZero | None:
    """Return the offsets of an identified arm, None if the result has none.

    They contain the difference of friction between the directions. They are estimated jointly with
    the links, whose covariance with them is not stated.
    """
    if result is None or result.kind != ARM:
        return None
    known = {p.name: (p.value, p.std) for p in result.parameters
             if p.value is not None and p.std is not None}
    names = [f'{joint}.offset' for joint in robot.joint_names]
    if not known.keys() >= set(names):
        return None
    offset, std = np.array([known[name] for name in names]).T
    return TorqueZero(offset, np.diag(std**2))


def stored_zero(
    robot: Robot, values: RobotParameters, load: Load, gains: CalibrationResult | None
) -> CalibrationResult | None:
    """Return the result with zeros from rest that is to be used, None for none.

    One that was found with other drive gains or from other efforts is of another unit.

    Args:
        robot: The arm.
        values: The parameters.
        load: Returns the current results.
        gains: The result whose drive gains are used, None for none.

    """
    found = load(TORQUE_ZERO) if values.use_torque_zero else None
    if found is None or other_efforts(robot, values, found):
        return None
    units = {item.sha256 for item in found.inputs if item.kind in EFFORT_UNITS and item.sha256}
    return found if (gains.sha256 in units if gains is not None else not units) else None
