# SPDX-License-Identifier: Apache-2.0
"""Results of the default arm, fictitious or from the hidden truth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from robocal_ros.results.result import (
    CalibrationResult,
    Check,
    Fit,
    Parameter,
    RobotIdentity,
    State,
)
from robocal_ros.results.store import ResultStore
from robocal_ros.robot.arm_model import link_parameters, parameter_names
from robocal_ros.robot.model import Robot
from robocal_ros.robot.setup import CALIBRATION_NAMES, SENSOR_CALIBRATION
from support.arms import arm_urdf

NAMES = ('coulomb', 'static', 'stribeck_velocity', 'viscous')
UNITS = ('N·m', 'N·m', 'rad/s', 'N·m·s/rad')


def project_arm() -> Robot:
    return Robot(arm_urdf(), tool_frame='tool0')


def identity() -> RobotIdentity:
    robot = project_arm()
    return robot.identity


def store(folder: Path, *results: CalibrationResult) -> None:
    for result in results:
        ResultStore(folder, identity()).save(result)


def _result(kind: str, method: str, frame: str, parameters: list[Parameter], what: str,
            settings: dict[str, object]) -> CalibrationResult:
    names = tuple(p.name for p in parameters if p.std is not None)
    covariance = np.diag([p.std**2 for p in parameters if p.std is not None])
    fit = Fit(what, 'N·m', 1.0, 0.01, 20)
    return CalibrationResult(
        kind, method, identity(), frame, tuple(parameters), names, covariance, (fit,), (fit,),
        (Check(f'{what}: fit', True, 1.0, 5.0, '%', 'It fits.'),), {'samples': 100}, settings,
        'live', 100.0, '0.1.0')


def friction_result(
    joint: str = 'joint_6', values: tuple[float, ...] = (0.7, 1.2, 0.04, 0.6), **settings: object
) -> CalibrationResult:
    """Return a passed friction result with a symmetric law of one joint."""
    return _result('friction', 'auto', '', [
        Parameter(f'{joint}.{name}_{direction}', unit, value, 0.001)
        for direction in ('forward', 'backward')
        for name, unit, value in zip(NAMES, UNITS, values, strict=True)], joint, dict(settings))


def payload_result(
    mass: float = 2.0, com: tuple[float, float, float] = (0.018, -0.011, 0.102)
) -> CalibrationResult:
    """Return a passed payload result in the flange frame."""
    parameters = [Parameter('mass', 'kg', mass, 0.002)]
    parameters += [Parameter(f'com_{axis}', 'm', value, 1e-4)
                   for axis, value in zip('xyz', com, strict=True)]
    parameters += [Parameter(f'inertia_{axes}', 'kg·m²', state=State.NOT_EVALUATED, note='rest')
                   for axes in ('xx', 'xy', 'xz', 'yy', 'yz', 'zz')]
    return _result('payload', 'static_poses', 'flange', parameters, 'force', {})


def calibration_result(matrix: np.ndarray, frame: str = 'ft_wrist') -> CalibrationResult:
    """Return a passed calibration of an F/T sensor."""
    return _result(SENSOR_CALIBRATION, 'weighed_tool', frame, [
        Parameter(name, '1', value, 1e-3)
        for name, value in zip(CALIBRATION_NAMES, matrix.ravel().tolist(), strict=True)],
        'force', {})


def identified_arm(kind: str, scale: float = 1.1, time: float = 100.0) -> CalibrationResult:
    """Return an identified arm or drive gains, whose links are heavier by a factor."""
    robot = project_arm()
    names = parameter_names(robot.joint_names)
    values = np.concatenate((scale * link_parameters(robot).ravel(), np.ones(2 * robot.n)))
    made = _result(kind, 'loaded', '', [
        Parameter(name, '1', float(value), 0.0) for name, value in zip(
            names, values, strict=True)], 'torque', {})
    return replace(made, time=time)


def hidden_payload(truth: Path) -> CalibrationResult:
    """Return a passed payload result with the tool of a truth file."""
    tool = yaml.safe_load(truth.read_text())['tool']
    return payload_result(tool['mass'], tuple(tool['centre_of_mass']))
