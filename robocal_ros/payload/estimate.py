# SPDX-License-Identifier: Apache-2.0
"""Payload identification without ROS: parameters, and how recordings become results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from robocal_ros.capability.capability import Capability, Needs, WrenchNeed
from robocal_ros.errors import ConfigurationError
from robocal_ros.messages.recording import Recording
from robocal_ros.parameters import ArmParameters, parameter
from robocal_ros.payload import static_poses, two_plane
from robocal_ros.results.result import CalibrationResult
from robocal_ros.results.store import ResultStore
from robocal_ros.robot import effort_scales
from robocal_ros.robot.friction_law import SteadyFriction, friction_by_joint
from robocal_ros.robot.model import Robot
from robocal_ros.robot.setup import effort_scale

if TYPE_CHECKING:
    from robocal_ros.payload.drive_gains import GainSettings
    from robocal_ros.payload.regression import DynamicSettings


REFERENCE = 'payload_reference'
"""Kind of the result of a reference run."""

# An exciting motion is filtered to a few hertz; more samples than these tell nothing more.
_EXCITATION_BUDGET = 2**15


@dataclass(frozen=True)
class PayloadParameters(ArmParameters):
    """Parameters of payload identification."""

    method: str = parameter(
        'two_plane', 'two_plane: centre of mass from joint torques, the mass being known; '
        'static_poses: mass and centre of mass from a wrist F/T sensor; excitation: all ten '
        'parameters from a fast motion.', choices=('two_plane', 'static_poses', 'excitation'))
    known_mass: float = parameter(
        0.0, 'Mass of the payload for method two_plane, from a scale; 0 takes it from the stored '
        'result, whose method is then told.', unit='kg', minimum=0.0, maximum=1000.0)
    known_mass_std: float = parameter(
        0.0, 'Standard deviation of known_mass.', unit='kg', minimum=0.0, maximum=100.0)
    max_payload: float = parameter(
        0.0, 'Heaviest payload the arm may carry; heavier ones are refused. 0 for no limit.',
        unit='kg', minimum=0.0, maximum=1000.0)
    second_joint: str = parameter(
        '', 'Joint of the second plane; empty for the joint before the last, or the next one '
        'before it for which a posture exists.')
    sweep_speed: float = parameter(
        0.25, 'Speed of the sweeps.', unit='rad/s', minimum=0.03, maximum=1.0)
    use_friction: bool = parameter(
        True, 'Subtract identified friction, when there is a result for this arm.')
    sensor_topic: str = parameter('ft_wrist/wrench', 'Topic of the wrist F/T sensor.')
    sensor_frame: str = parameter(
        'ft_wrist', 'Frame of the wrist F/T sensor, a frame of the URDF.')
    sensor_sign: float = parameter(
        1.0, '1 if a hanging tool reads a force along gravity; -1 for sensors that report the '
        'opposite.', minimum=-1.0, maximum=1.0)
    poses: int = parameter(
        14, 'Number of postures of method static_poses.', minimum=6, maximum=100)
    dwell: float = parameter(
        1.0, 'Rest in each posture of method static_poses.', unit='s', minimum=0.7, maximum=60.0)
    posture_std: float = parameter(
        5e-4, 'Standard deviation of the angle between gravity and what URDF and encoders say of '
        'it: sag of the joints, encoder offsets, a base out of level.', unit='rad', minimum=0.0,
        maximum=0.1)
    sag_std: float = parameter(
        3e-3, "Method excitation and drive gains: standard deviation of a joint's sag under its "
        'largest torque, which is estimated along.', unit='rad', minimum=0.0, maximum=0.1)
    delay_std: float = parameter(
        5e-3, 'Method excitation and drive gains: standard deviation of the delay of wrenches, '
        'efforts and speeds against positions, which is estimated along.', unit='s', minimum=0.0,
        maximum=0.1)
    excitation_source: str = parameter(
        'wrench', 'What method excitation reads: the wrist F/T sensor (wrench), which also shows '
        'inertia, or joint torques (torque).', choices=('wrench', 'torque'))
    excitation_period: float = parameter(
        8.0, 'Period of the exciting motion.', unit='s', minimum=2.0, maximum=60.0)
    excitation_repeats: int = parameter(
        3, 'Periods that are run.', minimum=1, maximum=50)
    excitation_range: float = parameter(
        1.2, 'Farthest excursion of a joint in the exciting motion.', unit='rad', minimum=0.1,
        maximum=3.0)
    excitation_acceleration: float = parameter(
        6.0, 'Largest joint acceleration of the exciting motion; inertia shows in it.',
        unit='rad/s²', minimum=0.1, maximum=100.0)
    reference_run: str = parameter(
        'off', "Method excitation, differentially: 'record' without the tool, then 'subtract' "
        "with it, so that errors of the arm's own model drop out.",
        choices=('off', 'record', 'subtract'))
    max_com_distance: float = parameter(
        1.0, 'Farthest plausible centre of mass from tool_frame.', unit='m', minimum=0.01,
        maximum=10.0)
    max_com_interval: float = parameter(
        0.005, 'Widest half-width of a 95 % interval of the centre of mass that still passes.',
        unit='m', minimum=1e-5, maximum=1.0)


@dataclass(frozen=True)
class Knowledge:
    """What is known of the arm from elsewhere.

    Attributes:
        payload: Last good payload result.
        reference: Result of a reference run.
        friction: Identified friction by joint name.

    """

    payload: CalibrationResult | None = None
    reference: CalibrationResult | None = None
    friction: Mapping[str, SteadyFriction] = field(default_factory=dict)


def reads_wrench(values: PayloadParameters) -> bool:
    """Return whether the method reads the wrist sensor; it reads efforts otherwise."""
    return values.method == 'static_poses' or (
        values.method == 'excitation' and values.excitation_source == 'wrench')


def check_reference(values: PayloadParameters, reference: CalibrationResult | None) -> None:
    """Refuse to subtract a reference that is not there; raises ConfigurationError."""
    if values.method == 'excitation' and values.reference_run == 'subtract' and reference is None:
        raise ConfigurationError(
            "reference_run is 'subtract', but no reference is stored: take the tool off and "
            "run once with reference_run 'record'.")


def two_plane_settings(
    robot: Robot, values: PayloadParameters, stored: CalibrationResult | None
) -> two_plane.TwoPlaneSettings:
    """Return the settings; the mass is the parameter's, else that of the stored result.

    Raises:
        ConfigurationError: If there is neither, or the mass is over the limit.

    """
    mass, std, source = values.known_mass, values.known_mass_std, 'known_mass'
    if mass <= 0.0:
        known = None if stored is None else stored.parameter('mass')
        if stored is None or known is None or known.value is None:
            raise ConfigurationError(
                "Method 'two_plane' needs the payload's mass: set known_mass (kg, from a "
                "scale), or run method 'static_poses' first; its result is then used."
            )
        mass, std = known.value, known.std or 0.0
        source = f'the stored result of {stored.method}'
    settings = two_plane.TwoPlaneSettings(
        known_mass=mass, known_mass_std=std, mass_source=source, second_joint=values.second_joint,
        max_payload=values.max_payload, max_com_distance=values.max_com_distance,
        max_com_interval=values.max_com_interval, posture_std=values.posture_std,
    )
    settings.check(robot)
    return settings


def estimate_payload(
    robot: Robot, recording: Recording, values: PayloadParameters, known: Knowledge
) -> CalibrationResult:
    """Estimate from a recording by the method that the parameters name.

    Args:
        robot: The arm without the payload.
        recording: What was recorded.
        values: The parameters.
        known: What is known from elsewhere.

    Raises:
        RobocalError: If parameters or data do not allow it.

    """
    return _METHODS[values.method](robot, recording, values, known)


def _two_plane(
    robot: Robot, recording: Recording, values: PayloadParameters, known: Knowledge
) -> CalibrationResult:
    settings = two_plane_settings(robot, values, known.payload)
    return two_plane.estimate(robot, recording.joints, settings, known.friction)


def _static_poses(
    robot: Robot, recording: Recording, values: PayloadParameters, known: Knowledge
) -> CalibrationResult:
    settings = static_poses.StaticPosesSettings(
        max_payload=values.max_payload, max_com_distance=values.max_com_distance,
        max_com_interval=values.max_com_interval)
    return static_poses.estimate(
        robot, recording.joints, recording.wrench(values.sensor_topic), settings)


def dynamic_settings(values: PayloadParameters) -> DynamicSettings:
    """Return the settings of what is estimated from an exciting motion."""
    # SciPy's filters take long to import, and the other methods do without.
    from robocal_ros.payload.regression import DynamicSettings

    return DynamicSettings(
        posture_std=values.posture_std, sag_std=values.sag_std, delay_std=values.delay_std,
        max_payload=values.max_payload, max_com_distance=values.max_com_distance,
        max_com_interval=values.max_com_interval)


def _excitation(
    robot: Robot, recording: Recording, values: PayloadParameters, known: Knowledge
) -> CalibrationResult:
    from robocal_ros.payload import excitation, regression

    check_reference(values, known.reference)
    settings = dynamic_settings(values)
    if reads_wrench(values):
        sensor = recording.wrench(values.sensor_topic)
        rows = regression.wrench_rows(robot, recording.joints, sensor, settings)
        frame = sensor.frame
    else:
        rows = regression.torque_rows(robot, recording.joints, settings, known.friction)
        frame = robot.tool_frame
    if values.reference_run == 'record':
        return replace(excitation.estimate_reference(
            robot, rows, frame, settings, samples=recording.joints), kind=REFERENCE)
    return excitation.estimate(
        robot, rows, frame, settings, samples=recording.joints,
        reference=known.reference if values.reference_run == 'subtract' else None)


_METHODS = {'two_plane': _two_plane, 'static_poses': _static_poses, 'excitation': _excitation}


def gain_settings(values: PayloadParameters) -> GainSettings:
    """Return the settings of the drive gains; raises ConfigurationError without a mass."""
    from robocal_ros.payload.drive_gains import GainSettings

    settings = GainSettings(
        values.known_mass, values.known_mass_std, dynamic=dynamic_settings(values))
    settings.check()
    return settings


def estimate_gains(
    robot: Robot, recording: Recording, values: PayloadParameters, scale: Any
) -> CalibrationResult:
    """Estimate effort scales from an exciting motion with a tool of known mass.

    Args:
        robot: The arm without the payload.
        recording: What was recorded, efforts divided by ``scale``.
        values: The parameters.
        scale: Scales in use, shape (n,); they are taken back, what is estimated replaces them.

    """
    from robocal_ros.payload import drive_gains

    joints = recording.joints
    return drive_gains.estimate(
        robot, replace(joints, effort=joints.effort * scale), gain_settings(values))


# ------------------------------------------------------------------------------ offline


def knowledge(values: PayloadParameters, store: ResultStore) -> Knowledge:
    """Return what the stored results tell."""
    friction = store.load('friction') if values.use_friction else None
    return Knowledge(
        store.load('payload'), store.load(REFERENCE),
        {} if friction is None else friction_by_joint(friction))


def needs(values: PayloadParameters) -> Needs:
    """Return what the method reads."""
    sensor = WrenchNeed(values.sensor_topic, values.sensor_frame, values.sensor_sign)
    by_wrench = reads_wrench(values)
    budget = {'excitation': _EXCITATION_BUDGET}.get(values.method, Needs.budget)
    return Needs(effort=not by_wrench, wrenches=(sensor,) if by_wrench else (), budget=budget)


def _estimate(
    robot: Robot, recording: Recording, values: PayloadParameters, store: ResultStore
) -> CalibrationResult:
    return estimate_payload(robot, recording, values, knowledge(values, store))


def gain_needs(values: PayloadParameters) -> Needs:
    """Return what the calibration of drive gains reads."""
    return Needs(effort=True, budget=_EXCITATION_BUDGET)


def _estimate_gains(
    robot: Robot, recording: Recording, values: PayloadParameters, store: ResultStore
) -> CalibrationResult:
    used = store.load(effort_scales.KIND) if values.use_drive_gains else None
    return estimate_gains(robot, recording, values, effort_scale(robot, used))


def centre_text(result: CalibrationResult) -> str:
    """Return the centre of mass with 95 % intervals in words."""
    parts = []
    for name in two_plane.COM:
        found = result.parameter(name)
        value, std = found.value or 0.0, found.std or 0.0
        parts.append(f'{name[-1]} {1e3 * value:.2f} ± {1.96e3 * std:.2f} mm')
    return f'{", ".join(parts)} in {result.frame} (95 %)'


def mass_text(result: CalibrationResult) -> str:
    """Return the mass in words."""
    found = result.parameter('mass')
    value: Any = found.value if found.value is not None else np.nan
    interval = f' ± {1.96 * found.std:.4f}' if found.std else ''
    return f'{value:.4f}{interval} kg'


def summary(result: CalibrationResult) -> str:
    """Return a payload result, of whatever method, in a sentence."""
    if result.kind == REFERENCE:
        return ("Reference recorded: what the arm's own model lacks will be subtracted from "
                "runs with reference_run 'subtract'.")
    if result.method == 'two_plane':
        return f'Centre of mass {centre_text(result)} for a mass of {mass_text(result)}.'
    told = f'Mass {mass_text(result)}, centre of mass {centre_text(result)}'
    if result.method == 'static_poses':
        return f'{told}.'
    moments = [result.parameter(f'inertia_{axis}') for axis in ('xx', 'yy', 'zz')]
    inertia = ('not identified' if any(p.value is None for p in moments) else ', '.join(
        f'{p.name[-2:]} {p.value:.5f} ± {1.96 * (p.std or 0.0):.5f}' for p in moments)
        + ' kg·m²')
    return f'{told}, inertia about it {inertia}.'


def gains_summary(result: CalibrationResult) -> str:
    """Return the scales in a sentence."""
    told = ', '.join(
        f'{p.name.split(".")[0]} {p.value:.4f} ± {1.96 * (p.std or 0.0):.4f}'
        if p.value is not None else f'{p.name.split(".")[0]} not identified'
        for p in result.parameters)
    return f'Effort scales (measured over delivered torque): {told}.'


PAYLOAD = Capability(
    'payload', 'payload_identification', PayloadParameters, ('run', 'estimate'), needs,
    _estimate, summary)
DRIVE_GAINS = Capability(
    'drive_gains', 'payload_identification', PayloadParameters, ('calibrate_gains',), gain_needs,
    _estimate_gains, gains_summary)
