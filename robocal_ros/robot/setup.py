# SPDX-License-Identifier: Apache-2.0
"""Setup that all capabilities share: robot model, units of efforts, and readers of results.

Results are read as what they say about the arm: drive gains, the payload as a body, torque zeros
(what joint torques read in excess of the true ones, whatever the motion), and the calibration
matrix of an F/T sensor.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from robocal_ros.arrays import Array, covariance_factor, frozen
from robocal_ros.errors import ConfigurationError
from robocal_ros.parameters import RobotParameters, named, one_for_each
from robocal_ros.results import (
    CalibrationResult,
    Efforts,
    Load,
    Parameter,
    ResultStore,
    State,
    default_directory,
    provenance,
)
from robocal_ros.robot.model import RigidBodyInertia, Robot

DRIVE_GAINS = provenance.DRIVE_GAINS
"""Kind of the result of a calibration of drive gains."""

ARM = 'arm'
"""Kind of the result of an arm identification."""

EFFORT_UNITS = (DRIVE_GAINS, ARM)
"""Kinds of results that change the units of efforts."""

TORQUE_ZERO = 'torque_zero'
"""Kind of the result of zeros from rests in several postures."""

SENSOR_CALIBRATION = 'sensor_calibration'
"""Kind of the result of a calibration of an F/T sensor."""

_CHANNELS = 'fx', 'fy', 'fz', 'tx', 'ty', 'tz'
CALIBRATION_NAMES = tuple(f'{row}_by_{column}' for row in _CHANNELS for column in _CHANNELS)
"""Elements of the calibration matrix by rows: readings per force or torque."""

# Parameters of a payload.
_WEIGHT = ('mass', 'com_x', 'com_y', 'com_z')
_INERTIA = tuple(f'inertia_{axes}' for axes in ('xx', 'xy', 'xz', 'yy', 'yz', 'zz'))
# Places of the elements of the inertia's matrix among these, which are of its upper triangle.
_PLACES = np.array([[4, 5, 6], [5, 7, 8], [6, 8, 9]])
# Relative difference of factors that counts as none: they are written by hand or computed.
_SAME_FACTOR = 1e-6
# Gravity on Earth, with room for rounded components [m/s²].
_GRAVITY = 9.7, 9.9


def per_joint(values: list[float], count: int, name: str) -> Array:
    """Return one value per joint, shape (count,), from one per joint or one for all.

    Raises:
        ConfigurationError: If there is any other number of values.

    """
    return np.array(one_for_each(values, count, name, 'one per joint'), dtype=float)


def make_robot(urdf: str, values: RobotParameters) -> Robot:
    """Return the model of the arm.

    Raises:
        ConfigurationError: As ``Robot``, or if gravity has a size that it has nowhere on Earth.

    """
    size = float(np.linalg.norm(values.gravity))
    if size and not _GRAVITY[0] <= size <= _GRAVITY[1]:
        raise ConfigurationError(
            f'Parameter gravity has {size:.4g} m/s²; on Earth it has 9.76 to 9.84. Every mass '
            'would be wrong by the ratio.')
    return Robot(urdf, tool_frame=values.tool_frame, joints=named(values.joints),
                 gravity=values.gravity, name=values.robot_name)


def make_store(robot: Robot, values: RobotParameters) -> ResultStore:
    """Return the store of the arm's results."""
    folder = (Path(values.results_dir).expanduser() if values.results_dir
              else default_directory(robot.name))
    return ResultStore(folder, robot.identity)


REVERSED = (
    "Correct it in the driver, or set effort_source to 'current' and torque_constants to -1 for "
    "such joints and 1 for others, or to the drives' own with this sign; with effort_source "
    "'unknown', which may stay, only the signs of torque_constants matter.")
"""What to do about efforts of the wrong sign."""


def effort_factor(robot: Robot, values: RobotParameters) -> Array:
    """Return the factors from the driver's efforts to torques, shape (n,).

    Raises:
        ConfigurationError: If efforts are currents and torque constants and gear ratios are not
            set.

    """
    if values.effort_source == 'torque':
        return np.ones(robot.n)
    constants = per_joint(values.torque_constants, robot.n, 'torque_constants')
    if values.effort_source == 'unknown':
        return np.where(constants < 0.0, -1.0, 1.0)
    factor = constants * per_joint(values.gear_ratios, robot.n, 'gear_ratios')
    if np.all(factor == 1.0):
        raise ConfigurationError(
            "effort_source is 'current', but torque_constants and gear_ratios are 1 N·m/A for "
            "every joint. Set torque_constants (and gear_ratios) to those of the drives.")
    return factor


def efforts_of(robot: Robot, values: RobotParameters) -> Efforts:
    """Return what turns efforts into torques; raises as ``effort_factor``."""
    return Efforts(values.effort_source, values.effort_contains,
                   tuple(effort_factor(robot, values).tolist()))


def other_efforts(robot: Robot, values: RobotParameters, result: CalibrationResult) -> str:
    """Return a sentence if the torques behind a result had another origin than now, else ''.

    A payload may be used nevertheless: it is stated in kg and m, whatever it was measured by.
    """
    before, now = result.efforts, efforts_of(robot, values)
    if before is None or result.kind == 'payload':
        return ''
    differing = [f"{name} was '{old}' and is '{new}'" for name, old, new in (
        ('effort_source', before.source, now.source),
        ('effort_contains', before.contents, now.contents)) if old != new]
    differing += [
        f"of joint '{joint}', torque_constants times gear_ratios was {old:.6g} and is {new:.6g}"
        for joint, old, new in zip(robot.joint_names, before.factor, now.factor, strict=True)
        if not np.isclose(old, new, rtol=_SAME_FACTOR, atol=0.0)]
    return '' if not differing else (
        f'The {result.kind.replace("_", " ")} result ({result.method}, {result.source}) was '
        f'estimated from other efforts: {"; ".join(differing)}. Restore the earlier parameters if '
        'they were right; else identify the arm, drive gains and what depends on them again, in '
        'this order, or leave it out (use_drive_gains, use_arm_model, use_friction, '
        'use_torque_zero).')


def check_efforts(robot: Robot, values: RobotParameters, result: CalibrationResult | None) -> None:
    """Raise a ConfigurationError with the sentence of ``other_efforts``."""
    if result is not None and (text := other_efforts(robot, values, result)):
        raise ConfigurationError(text)


def effort_scales(drive_gains: CalibrationResult) -> dict[str, float]:
    """Return the identified drive gains by joint name.

    Raises:
        DataError: If the result is of another kind.

    """
    drive_gains.check_kind(*EFFORT_UNITS)
    return {p.name.removesuffix('.effort_scale'): p.value for p in drive_gains.parameters
            if p.name.endswith('.effort_scale') and p.value is not None}


def effort_scale(robot: Robot, drive_gains: CalibrationResult | None) -> Array:
    """Return the identified drive gains, 1 for joints without one, shape (n,)."""
    known = {} if drive_gains is None else effort_scales(drive_gains)
    return np.array([known.get(name, 1.0) for name in robot.joint_names])


def effort_units(values: RobotParameters) -> tuple[str, ...]:
    """Return the kinds of results whose drive gains are used, if there are any.

    It is the later one of drive gains and identified arm: links and scales of an arm are
    identified together, so gains calibrated later invalidate both.
    """
    return EFFORT_UNITS if values.use_drive_gains else ()


def check_effort_unit(values: RobotParameters, gains: CalibrationResult | None) -> None:
    """Raise a ConfigurationError if the unit of the efforts is not known.

    Args:
        values: The parameters.
        gains: The result whose drive gains are used, None for none.

    """
    if values.effort_source == 'unknown' and gains is None:
        raise ConfigurationError(
            "effort_source is 'unknown', and there are no drive gains yet: mount a load of known "
            'mass, set known_mass, and call calibrate_gains of payload_identification first.')


def relative_covariance(robot: Robot, gains: CalibrationResult | None, std: float) -> Array:
    """Return the covariance of the relative errors of scaled efforts, shape (n, n).

    Args:
        robot: The arm.
        gains: The result whose drive gains are used, None for none.
        std: Standard deviation of the other joints' scales.

    """
    covariance = std**2 * np.eye(robot.n)
    if gains is None:
        return covariance
    names = [f'{joint}.effort_scale' for joint in robot.joint_names]
    known = np.isin(names, gains.covariance_names)
    scale = effort_scale(robot, gains)
    return np.where(np.outer(known, known),
                    gains.covariance_of(names) / np.outer(scale, scale), covariance)


def with_own_units(robot: Robot, result: CalibrationResult) -> CalibrationResult:
    """Return a result that states figures of prismatic joints in m and N.

    Estimators name the units of revolute joints; the numbers are the same.
    """
    own = robot.in_own_units

    def unit_of(parameter: Parameter) -> str:
        joint, _, name = parameter.name.rpartition('.')
        # A link's inertia is in kg·m² for both types of joints.
        moved = not name.startswith('inertia')
        return robot.unit(joint, parameter.unit) if moved else parameter.unit

    def beside(text: str, unit: str) -> str:
        """Return the unit of the figure that a text names."""
        return own(f'{text}\0{unit}').partition('\0')[2]

    return replace(
        result,
        parameters=tuple(replace(p, unit=unit_of(p), note=beside(p.name, p.note))
                         for p in result.parameters),
        fit=tuple(replace(f, unit=beside(f.what, f.unit)) for f in result.fit),
        validation=tuple(replace(f, unit=beside(f.what, f.unit)) for f in result.validation),
        checks=tuple(replace(c, reason=own(c.reason), unit=beside(c.name + c.reason, c.unit))
                     for c in result.checks),
        series=tuple(replace(s, x_label=beside(s.title, s.x_label),
                             y_label=beside(s.title, s.y_label)) for s in result.series))


def mesh_folders(given: Sequence[str]) -> list[str]:
    """Return the folders in which ``package://`` meshes are looked up."""
    prefixes = os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep)
    return [*given, *(str(Path(prefix) / 'share') for prefix in prefixes if prefix)]


def torque_factor(robot: Robot, values: RobotParameters, gains: CalibrationResult | None) -> Array:
    """Return the factors from efforts to torques with identified drive gains, shape (n,).

    Raises:
        ConfigurationError: As ``effort_factor``, and if the gains are those of other efforts.

    """
    check_efforts(robot, values, gains)
    return effort_factor(robot, values) / effort_scale(robot, gains)


def carried_load(result: CalibrationResult) -> RigidBodyInertia:
    """Return mass, centre of mass and inertia of a payload result, in its frame.

    An inertia that was not identified is zero about the centre of mass, as of a point mass.

    Raises:
        DataError: If the result is of another kind, or lacks mass or centre of mass.

    """
    result.check_kind('payload')
    inertia = result.values(_INERTIA) if _has_inertia(result) else np.zeros(len(_INERTIA))
    return body_of(np.concatenate((result.values(_WEIGHT), inertia)))


def alternative_loads(
    result: CalibrationResult, *, inertia: bool = False
) -> list[RigidBodyInertia]:
    """Return loads one standard deviation off, along the principal axes of the covariance.

    The variance of a quantity that depends on the load is, to first order, the sum of the squared
    changes caused by these loads.

    Args:
        result: A payload result.
        inertia: Whether an identified inertia varies too, not mass and centre of mass alone.

    Raises:
        DataError: As for ``carried_load``.

    """
    body = carried_load(result)
    estimate = np.array([body.mass, *body.com, *np.asarray(body.inertia)[np.triu_indices(3)]])
    names = _WEIGHT + (_INERTIA if inertia and _has_inertia(result) else ())
    covariance = result.covariance_of(names)
    for row, name in enumerate(names):
        if name not in result.covariance_names:
            covariance[row, row] = (result.parameter(name).std or 0.0)**2
    steps = np.pad(covariance_factor(covariance), ((0, len(estimate) - len(names)), (0, 0)))
    return [body_of(estimate + step) for step in steps.T]


def _has_inertia(result: CalibrationResult) -> bool:
    return all(p.state is State.IDENTIFIED and p.value is not None
               for p in map(result.parameter, _INERTIA))


def body_of(values: Array) -> RigidBodyInertia:
    """Return the body of mass, centre of mass and inertia about it.

    Args:
        values: Mass, centre of mass, and xx, xy, xz, yy, yz, zz of the inertia, shape (10,).

    """
    return RigidBodyInertia(float(values[0]), frozen(values[1:4]), frozen(values[_PLACES]))


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


def calibration_matrix(result: CalibrationResult) -> tuple[str, Array]:
    """Return measurement frame and calibration matrix of a sensor, shape (6, 6).

    The sensor reads the matrix times the wrench, plus a bias.

    Raises:
        DataError: If the result is of another kind.

    """
    result.check_kind(SENSOR_CALIBRATION)
    return result.frame, result.values(CALIBRATION_NAMES).reshape(6, 6)
