# SPDX-License-Identifier: Apache-2.0
"""What the simulated arm hides from those who identify it, and the noise of its sensors.

Two YAML files: the hidden truth of one robot (tool, joints, sensors) and the cell (noise of
every sensor stream). Both are read strictly: an unknown key, a wrong length or a value out of
range is refused with the place in the file, so that a typing error cannot pass as a default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml

from robocal_ros.errors import ConfigurationError

Vector3 = tuple[float, float, float]
Vector6 = tuple[float, float, float, float, float, float]
T = TypeVar('T')


@dataclass(frozen=True)
class ToolTruth:
    """A rigid tool, or load, fixed to a link.

    Attributes:
        parent: Link that carries it; empty for the robot's tip.
        mass: Mass [kg].
        centre_of_mass: Centre of mass in the parent's frame [m].
        inertia: ixx, iyy, izz, ixy, ixz, iyz about the centre of mass, axes of the parent's
            frame [kg·m²].

    """

    mass: float
    centre_of_mass: Vector3
    inertia: Vector6
    parent: str = ''


@dataclass(frozen=True)
class FrictionTruth:
    """Asymmetric Stribeck friction of one joint, with the LuGre bristle.

    Pairs hold the value for positive and for negative velocity; all are positive numbers.

    Attributes:
        coulomb: Fc [N·m].
        breakaway: Fs [N·m].
        stribeck_velocity: vs [rad/s].
        viscous: B [N·m·s/rad].
        bristle_stiffness: σ0 [N·m/rad].
        bristle_damping: σ1 [N·m·s/rad].

    """

    coulomb: tuple[float, float] = (0.0, 0.0)
    breakaway: tuple[float, float] = (0.0, 0.0)
    stribeck_velocity: tuple[float, float] = (0.05, 0.05)
    viscous: tuple[float, float] = (0.0, 0.0)
    bristle_stiffness: float = 1.0e4
    bristle_damping: float = 10.0


@dataclass(frozen=True)
class JointTruth:
    """What is hidden in one joint.

    Attributes:
        friction: Its friction.
        compliance: Link angle lost per torque that the joint transmits [rad/(N·m)].
        effort_scale: Reported effort over true effort.
        effort_offset: Added to the reported effort [N·m].
        rotor_inertia: Inertia of the drive seen at the joint [kg·m²].

    """

    friction: FrictionTruth = field(default_factory=FrictionTruth)
    compliance: float = 0.0
    effort_scale: float = 1.0
    effort_offset: float = 0.0
    rotor_inertia: float = 0.1


@dataclass(frozen=True)
class ForceTorqueTruth:
    """A force/torque sensor at a link of the URDF.

    Attributes:
        frame: Link whose frame is the sensor frame.
        topic: Topic; empty for '<frame>/wrench'.
        bias: Force [N] then torque [N·m]; None draws it from the seed within the cell's bounds.

    """

    frame: str
    topic: str = ''
    bias: Vector6 | None = None


@dataclass(frozen=True)
class ImuTruth:
    """An inertial measurement unit at a link of the URDF; topic as for the force sensors."""

    frame: str
    topic: str = ''


@dataclass(frozen=True)
class TrackerTruth:
    """A laser tracker beside the arm.

    Attributes:
        frame: Name of the tracker's own frame, the frame_id of its messages.
        xyz: Origin of the tracker in the robot's root frame [m].
        rpy: Roll, pitch, yaw of the tracker in the robot's root frame [rad].
        target_link: Link that carries the reflector.
        target_xyz: Reflector in the target link's frame [m].
        target_axis: Direction in which the reflector looks, in the target link's frame.
        visibility_angle: Half angle of the cone around target_axis within which the tracker
            sees the reflector [rad].
        orientation: Whether the tracker measures the target link's orientation too.

    """

    frame: str = 'tracker'
    xyz: Vector3 = (2.5, 0.0, 0.5)
    rpy: Vector3 = (0.0, 0.0, math.pi)
    target_link: str = ''
    target_xyz: Vector3 = (0.0, 0.0, 0.0)
    target_axis: Vector3 = (0.0, 0.0, 1.0)
    visibility_angle: float = math.pi
    orientation: bool = False


@dataclass(frozen=True)
class HiddenTruth:
    """Everything about one robot that its URDF does not say.

    Attributes:
        gravity: Gravity in the robot's root frame [m/s²].
        tool: The tool at the tip, mounted from the start.
        load: A second body that can be attached and detached while the arm runs.
        joints: By joint name; joints left out are ideal.
        force_torque_sensors: Sensors, in the order of publication.
        imus: Inertial sensors, in the order of publication.
        tracker: The laser tracker.

    """

    gravity: Vector3 = (0.0, 0.0, -9.81)
    tool: ToolTruth | None = None
    load: ToolTruth | None = None
    joints: Mapping[str, JointTruth] = field(default_factory=dict)
    force_torque_sensors: tuple[ForceTorqueTruth, ...] = ()
    imus: tuple[ImuTruth, ...] = ()
    tracker: TrackerTruth | None = None

    def prefixed(self, prefix: str) -> HiddenTruth:
        """Return the same for a robot with a prefix to the names of its links and joints."""
        def link(name: str) -> str:
            return prefix + name if name else ''

        def body(tool: ToolTruth | None) -> ToolTruth | None:
            return tool and replace(tool, parent=link(tool.parent))

        return replace(
            self, tool=body(self.tool), load=body(self.load),
            joints={prefix + name: joint for name, joint in self.joints.items()},
            force_torque_sensors=tuple(
                replace(item, frame=link(item.frame)) for item in self.force_torque_sensors),
            imus=tuple(replace(item, frame=link(item.frame)) for item in self.imus),
            tracker=self.tracker and replace(
                self.tracker, target_link=link(self.tracker.target_link)))


@dataclass(frozen=True)
class StreamNoise:
    """What every sensor stream can suffer on its way.

    Attributes:
        latency: Delay from the stamp to the publication [s].
        dropout: Probability that a message is lost.

    """

    latency: float = 0.0
    dropout: float = 0.0


@dataclass(frozen=True)
class JointNoise(StreamNoise):
    """Noise of the joint states; sigmas are standard deviations, zero switches a term off.

    Attributes:
        position_quantisation: Step of the encoders [rad].
        velocity_sigma: White noise of the velocity [rad/s].
        effort_sigma: White noise of the effort [N·m].
        effort_ripple: Amplitude of the effort's ripple over the joint angle [N·m].
        effort_ripple_cycles: Periods of the ripple per turn of the joint.

    """

    position_quantisation: float = 0.0
    velocity_sigma: float = 0.0
    effort_sigma: float = 0.0
    effort_ripple: float = 0.0
    effort_ripple_cycles: float = 24.0


@dataclass(frozen=True)
class ForceTorqueNoise(StreamNoise):
    """Noise of the force/torque sensors.

    Attributes:
        force_sigma: White noise of each force component [N].
        torque_sigma: White noise of each torque component [N·m].
        force_bias: Bound of the drawn bias per force component [N].
        torque_bias: Bound of the drawn bias per torque component [N·m].
        force_quantisation: Step of the converter [N].
        torque_quantisation: Step of the converter [N·m].
        force_range: Saturation [N]; 0 is none.
        torque_range: Saturation [N·m]; 0 is none.
        force_drift: Bound of the bias's drawn drift per force component [N/s].
        torque_drift: Bound of the bias's drawn drift per torque component [N·m/s].

    """

    force_sigma: float = 0.0
    torque_sigma: float = 0.0
    force_bias: float = 0.0
    torque_bias: float = 0.0
    force_quantisation: float = 0.0
    torque_quantisation: float = 0.0
    force_range: float = 0.0
    torque_range: float = 0.0
    force_drift: float = 0.0
    torque_drift: float = 0.0


@dataclass(frozen=True)
class ImuNoise(StreamNoise):
    """Noise of the inertial sensors.

    Attributes:
        gyro_sigma: White noise of each rate [rad/s].
        accelerometer_sigma: White noise of each specific force [m/s²].

    """

    gyro_sigma: float = 0.0
    accelerometer_sigma: float = 0.0


@dataclass(frozen=True)
class TrackerNoise(StreamNoise):
    """Noise of the laser tracker.

    Attributes:
        position_sigma: White noise of each coordinate [m].
        orientation_sigma: White noise of the orientation about each axis [rad].
        drift_rate: Speed at which the tracker's frame creeps, in a direction that the seed
            draws [m/s].
        rate: Measurements per second [Hz].

    """

    position_sigma: float = 0.0
    orientation_sigma: float = 0.0
    drift_rate: float = 0.0
    rate: float = 10.0


@dataclass(frozen=True)
class Cell:
    """The noise of one cell; the default is a cell without any."""

    joint_states: JointNoise = field(default_factory=JointNoise)
    force_torque: ForceTorqueNoise = field(default_factory=ForceTorqueNoise)
    imu: ImuNoise = field(default_factory=ImuNoise)
    tracker: TrackerNoise = field(default_factory=TrackerNoise)


def load_truth(path: Path | str) -> HiddenTruth:
    """Read a hidden truth file.

    Raises:
        ConfigurationError: The file cannot be read or a value does not fit; the text names
            the place.

    """
    return parse_truth(_read(path), str(path))


def load_cell(path: Path | str) -> Cell:
    """Read a cell file.

    Raises:
        ConfigurationError: The file cannot be read or a value does not fit; the text names
            the place.

    """
    return parse_cell(_read(path), str(path))


def parse_truth(content: object, source: str = 'hidden truth') -> HiddenTruth:
    """Turn the mapping of a hidden truth file into its dataclass.

    Args:
        content: What YAML gave.
        source: Name of the file, for the text of errors.

    Raises:
        ConfigurationError: A key or value does not fit.

    """
    table = _table(content, source, HiddenTruth)
    joints = table.pop('joints', None) or {}
    if not isinstance(joints, Mapping):
        raise _refusal(f'{source}: joints', 'a mapping from joint name to its truth', joints)
    return _build(
        HiddenTruth,
        table,
        source,
        gravity=_vector3,
        tool=_tool,
        load=_tool,
        force_torque_sensors=_list_of(_force_torque),
        imus=_list_of(_imu),
        tracker=_tracker,
        joints={
            str(name): _joint(entry, f'{source}: joints: {name}')
            for name, entry in joints.items()
        },
    )


def parse_cell(content: object, source: str = 'cell') -> Cell:
    """Turn the mapping of a cell file into its dataclass.

    Args:
        content: What YAML gave.
        source: Name of the file, for the text of errors.

    Raises:
        ConfigurationError: A key or value does not fit.

    """
    table = _table(content, source, Cell)
    return _build(
        Cell,
        table,
        source,
        joint_states=_noise(JointNoise),
        force_torque=_noise(ForceTorqueNoise),
        imu=_noise(ImuNoise),
        tracker=_noise(TrackerNoise),
    )


def _read(path: Path | str) -> object:
    try:
        return yaml.safe_load(Path(path).read_text(encoding='utf-8'))
    except OSError as error:
        raise ConfigurationError(
            f'The file {path} cannot be read ({error.strerror}); expected a YAML file there. '
            'Correct the path, or leave the parameter empty.'
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f'The file {path} is not valid YAML ({error}). Correct it; the files in config/sim '
            'show the form.'
        ) from error


def _refusal(place: str, expected: str, got: object) -> ConfigurationError:
    return ConfigurationError(f'{place}: expected {expected}, got {got!r}. Correct the value.')


def _table(content: object, place: str, kind: type) -> dict[str, Any]:
    """Return the mapping whose keys are fields of `kind`, or refuse."""
    if content is None:
        return {}
    known = [entry.name for entry in fields(kind)]
    if not isinstance(content, Mapping):
        raise _refusal(place, f'a mapping with the keys {", ".join(known)}', content)
    unknown = [str(key) for key in content if key not in known]
    if unknown:
        raise ConfigurationError(
            f'{place}: unknown key {", ".join(unknown)}; expected some of '
            f'{", ".join(known)}. Correct the spelling, or remove it.'
        )
    return dict(content)


def _build(kind: type[T], table: Mapping[str, Any], place: str, **rules: Any) -> T:
    """Convert every entry by its rule (a ready value passes as it is) and build `kind`."""
    values = {name: rule for name, rule in rules.items() if not callable(rule)}
    for key, value in table.items():
        values[key] = rules[key](value, f'{place}: {key}')
    try:
        return kind(**values)
    except TypeError as error:
        needed = [name for name in ('mass', 'centre_of_mass', 'inertia', 'frame')
                  if name in rules and name not in values]
        raise ConfigurationError(
            f'{place}: {", ".join(needed) or error} is missing. Add it.'
        ) from error


def _number(value: object, place: str) -> float:
    # bool is an int in Python, but "mass: yes" is a typing error.
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _refusal(place, 'a finite number', value)
    return float(value)


def _not_negative(value: object, place: str) -> float:
    number = _number(value, place)
    if number < 0.0:
        raise _refusal(place, 'a number that is not negative', value)
    return number


def _positive(value: object, place: str) -> float:
    number = _number(value, place)
    if number <= 0.0:
        raise _refusal(place, 'a positive number', value)
    return number


def _flag(value: object, place: str) -> bool:
    if not isinstance(value, bool):
        raise _refusal(place, 'true or false', value)
    return value


def _text(value: object, place: str) -> str:
    if not isinstance(value, str):
        raise _refusal(place, 'a text', value)
    return value


def _numbers(value: object, place: str, count: int) -> tuple[float, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != count:
        raise _refusal(place, f'a list of {count} numbers', value)
    return tuple(_number(item, place) for item in value)


def _vector3(value: object, place: str) -> Vector3:
    x, y, z = _numbers(value, place, 3)
    return x, y, z


def _vector6(value: object, place: str) -> Vector6:
    a, b, c, d, e, f = _numbers(value, place, 6)
    return a, b, c, d, e, f


def _pair(rule: Callable[[object, str], float]) -> Callable[[object, str], tuple[float, float]]:
    """Two numbers, for positive and negative velocity; one number serves both."""

    def convert(value: object, place: str) -> tuple[float, float]:
        if isinstance(value, int | float):
            return rule(value, place), rule(value, place)
        plus, minus = _numbers(value, place, 2)
        return rule(plus, place), rule(minus, place)

    return convert


def _list_of(rule: Callable[[object, str], T]) -> Callable[[object, str], tuple[T, ...]]:
    def convert(value: object, place: str) -> tuple[T, ...]:
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise _refusal(place, 'a list', value)
        return tuple(rule(item, f'{place}[{index}]') for index, item in enumerate(value))

    return convert


def _tool(value: object, place: str) -> ToolTruth | None:
    if value is None:
        return None
    tool = _build(ToolTruth, _table(value, place, ToolTruth), place, parent=_text,
                  mass=_positive, centre_of_mass=_vector3, inertia=_vector6)
    _check_inertia(tool.inertia, place)
    return tool


def _check_inertia(inertia: Vector6, place: str) -> None:
    """Refuse an inertia that no body can have (principal moments and triangle inequality)."""
    ixx, iyy, izz, ixy, ixz, iyz = inertia
    moments = np.linalg.eigvalsh([[ixx, ixy, ixz], [ixy, iyy, iyz], [ixz, iyz, izz]])
    if moments[0] <= 0.0 or moments[0] + moments[1] < moments[2]:
        raise ConfigurationError(
            f'{place}: inertia: expected principal moments that are positive and of which no '
            f'one exceeds the sum of the others, got {moments.tolist()}. Correct the inertia '
            '(ixx, iyy, izz, ixy, ixz, iyz about the centre of mass).'
        )


def _friction(value: object, place: str) -> FrictionTruth:
    friction = _build(
        FrictionTruth, _table(value, place, FrictionTruth), place,
        coulomb=_pair(_not_negative), breakaway=_pair(_not_negative),
        stribeck_velocity=_pair(_positive), viscous=_pair(_not_negative),
        bristle_stiffness=_positive, bristle_damping=_not_negative,
    )
    if any(fs < fc for fs, fc in zip(friction.breakaway, friction.coulomb, strict=True)):
        raise ConfigurationError(
            f'{place}: breakaway: expected at least the Coulomb friction {friction.coulomb}, '
            f'got {friction.breakaway}. Raise breakaway, or lower coulomb.'
        )
    return friction


def _joint(value: object, place: str) -> JointTruth:
    return _build(JointTruth, _table(value, place, JointTruth), place, friction=_friction,
                  compliance=_not_negative, effort_scale=_positive, effort_offset=_number,
                  rotor_inertia=_not_negative)


def _force_torque(value: object, place: str) -> ForceTorqueTruth:
    return _build(ForceTorqueTruth, _table(value, place, ForceTorqueTruth), place, frame=_text,
                  topic=_text, bias=_vector6)


def _imu(value: object, place: str) -> ImuTruth:
    return _build(ImuTruth, _table(value, place, ImuTruth), place, frame=_text, topic=_text)


def _tracker(value: object, place: str) -> TrackerTruth | None:
    if value is None:
        return None
    return _build(TrackerTruth, _table(value, place, TrackerTruth), place, frame=_text,
                  xyz=_vector3, rpy=_vector3, target_link=_text, target_xyz=_vector3,
                  target_axis=_vector3, visibility_angle=_positive, orientation=_flag)


def _noise(kind: type[T]) -> Callable[[object, str], T]:
    def convert(value: object, place: str) -> T:
        table = _table(value, place, kind)
        rules = dict.fromkeys(table, _not_negative)
        if 'rate' in table:
            rules['rate'] = _positive
        if _not_negative(table.get('dropout', 0.0), f'{place}: dropout') > 1.0:
            raise _refusal(f'{place}: dropout', 'a probability of at most 1', table['dropout'])
        return _build(kind, table, place, **rules)

    return convert
