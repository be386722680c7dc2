# SPDX-License-Identifier: Apache-2.0
"""The robot as every capability needs it: model, scale of its efforts, results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.parameters import RobotParameters, named
from robocal_ros.results.result import CalibrationResult, RobotIdentity
from robocal_ros.results.store import ResultStore, default_directory
from robocal_ros.robot.model import Robot

DRIVE_GAINS = 'drive_gains'
"""Kind of the result of a calibration of drive gains."""


def per_joint(values: list[float], count: int, name: str) -> Array:
    """Return one value per joint from one per joint or one for all.

    Raises:
        ConfigurationError: If the length fits neither.

    """
    if len(values) not in (1, count):
        raise ConfigurationError(
            f"Parameter '{name}' has {len(values)} values; expected 1 or {count}, one per joint.")
    return np.broadcast_to(np.array(values, dtype=float), (count,))


def make_robot(urdf: str, values: RobotParameters) -> Robot:
    """Return the model of the arm; errors as of ``Robot``."""
    return Robot(urdf, tool_frame=values.tool_frame, joints=named(values.joints),
                 gravity=values.gravity, name=values.robot_name)


def make_store(robot: Robot, values: RobotParameters) -> ResultStore:
    """Return where the results of the arm are kept."""
    folder = (Path(values.results_dir).expanduser() if values.results_dir
              else default_directory(robot.name))
    return ResultStore(
        folder, RobotIdentity(robot.name, robot.urdf_hash, robot.joint_names))


def effort_factor(robot: Robot, values: RobotParameters) -> Array:
    """Return what turns the driver's efforts into torques, shape (n,).

    Raises:
        ConfigurationError: If efforts are currents and no constants are given.

    """
    if values.effort_source == 'torque':
        return np.ones(robot.n)
    factor = (per_joint(values.torque_constants, robot.n, 'torque_constants')
              * per_joint(values.gear_ratios, robot.n, 'gear_ratios'))
    if np.all(factor == 1.0):
        raise ConfigurationError(
            "effort_source is 'current', but torque_constants and gear_ratios still make "
            '1 N·m of 1 A for every joint; torques in N·m need the real constants. Set '
            'torque_constants (and gear_ratios).')
    return factor


def effort_scales(drive_gains: CalibrationResult) -> dict[str, float]:
    """Return the identified effort scales of drive gains by joint name.

    Raises:
        DataError: If the result is of another kind.

    """
    if drive_gains.kind != DRIVE_GAINS:
        raise DataError(
            f"Expected a result of kind '{DRIVE_GAINS}', got '{drive_gains.kind}'.")
    return {p.name.removesuffix('.effort_scale'): p.value for p in drive_gains.parameters
            if p.name.endswith('.effort_scale') and p.value is not None}


def effort_scale(robot: Robot, drive_gains: CalibrationResult | None) -> Array:
    """Return by how much each effort is too large, as far as it is known, shape (n,)."""
    known = {} if drive_gains is None else effort_scales(drive_gains)
    return np.array([known.get(name, 1.0) for name in robot.joint_names])


def mesh_folders(given: Sequence[str]) -> list[str]:
    """Return the folders in which ``package://`` meshes are looked up."""
    prefixes = os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep)
    return [*given, *(str(Path(prefix) / 'share') for prefix in prefixes if prefix)]


def torque_factor(robot: Robot, values: RobotParameters, store: ResultStore) -> Array:
    """Return what turns the driver's efforts into torques, known drive gains among it, (n,)."""
    used = store.load(DRIVE_GAINS) if values.use_drive_gains else None
    return effort_factor(robot, values) / effort_scale(robot, used)
