# SPDX-License-Identifier: Apache-2.0
"""Hidden truth of the simulated arm and noise of its sensors.

Two YAML files: the hidden truth of one robot (tool, joints, sensors) and the cell (noise of
every sensor stream). Both are read strictly against the dataclasses below: an unknown key, a
wrong length or a value out of range is refused with its place in the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import yaml

from robocal_ros.errors import ConfigurationError

T = TypeVar('T')

NotNegative = Annotated[float, 'a number that is not negative', lambda value: value >= 0.0]
Positive = Annotated[float, 'a positive number', lambda value: value > 0.0]
AboveMinusOne = Annotated[float, 'a number above -1', lambda value: value > -1.0]
Count = Annotated[float, 'a whole number of at least 1',
                  lambda value: value >= 1.0 and value % 1.0 == 0.0]
Probability = Annotated[float, 'a probability of at most 1', lambda value: 0.0 <= value <= 1.0]
EffortContent = Literal['all', 'external']
Vector3 = tuple[float, float, float]
Vector5 = tuple[float, float, float, float, float]
Vector6 = tuple[float, float, float, float, float, float]
Pair = tuple[NotNegative, NotNegative]
"""Values for positive and for negative velocity; in a file, one number serves both."""
PositivePair = tuple[Positive, Positive]


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

    mass: Positive
    centre_of_mass: Vector3
    inertia: Vector6
    parent: str = ''

    def __post_init__(self) -> None:
        """Refuse an inertia that no body can have.

        Raises:
            ConfigurationError: A principal moment is not positive or exceeds the sum of the
                others.

        """
        ixx, iyy, izz, ixy, ixz, iyz = self.inertia
        moments = np.linalg.eigvalsh([[ixx, ixy, ixz], [ixy, iyy, iyz], [ixz, iyz, izz]])
        if moments[0] <= 0.0 or moments[0] + moments[1] < moments[2]:
            raise ConfigurationError(
                'inertia: expected principal moments that are positive and of which no one '
                f'exceeds the sum of the others, got {moments.tolist()}. Correct the inertia '
                '(ixx, iyy, izz, ixy, ixz, iyz about the centre of mass).'
            )


@dataclass(frozen=True)
class RopeTruth:
    """A rope from the load to a pulley, tight while the load is attached.

    Attributes:
        tension: Its tension [N].
        end: Its end on the load, in the frame of the load's parent [m].
        pulley: Place of the pulley in the root frame [m].

    """

    tension: Positive
    end: Vector3
    pulley: Vector3


@dataclass(frozen=True)
class SocketTruth:
    """A ball on the tool, and sockets in the cell in which a hand can rest it.

    Attributes:
        parent: Link that carries the ball; empty for the tip.
        ball: Its centre in the frame of the parent [m].
        places: Centres of the sockets in the root frame [m], by name.
        play: Standard deviation of the ball in a socket, per axis [m].

    """

    ball: Vector3
    places: Mapping[str, Vector3]
    parent: str = ''
    play: NotNegative = 0.0


@dataclass(frozen=True)
class FrictionTruth:
    """Asymmetric Stribeck friction of one joint, with the LuGre bristle.

    The attributes from `load_dependence` on are deviations from that law; their defaults
    disable them.

    Attributes:
        coulomb: Fc [N·m].
        breakaway: Fs [N·m].
        stribeck_velocity: vs [rad/s].
        viscous: B [N·m·s/rad], torque per speed to the power of `viscous_exponent`.
        bristle_stiffness: σ0 [N·m/rad].
        bristle_damping: σ1 [N·m·s/rad].
        load_dependence: Increase of Fc and Fs per transmitted torque [N·m/(N·m)].
        viscous_exponent: Exponent a of the viscous torque B |v|^a; below 1 it is sublinear.
        warm_up: Relative change of all friction from cold to warm.
        warm_up_time: Time constant of the warm-up [s].
        pause_rise: Relative rise of all friction after a long pause.
        pause_time: Time constant of that rise at rest [s].
        run_in_time: Time constant of its decay in motion [s].
        hysteresis: Torque that reverses over `hysteresis_angle`, in addition to Fc [N·m].
        hysteresis_angle: Angle constant of the reversal [rad].

    """

    coulomb: Pair = (0.0, 0.0)
    breakaway: Pair = (0.0, 0.0)
    stribeck_velocity: PositivePair = (0.05, 0.05)
    viscous: Pair = (0.0, 0.0)
    bristle_stiffness: Positive = 1.0e4
    bristle_damping: NotNegative = 10.0
    load_dependence: NotNegative = 0.0
    viscous_exponent: Positive = 1.0
    warm_up: AboveMinusOne = 0.0
    warm_up_time: Positive = 600.0
    pause_rise: NotNegative = 0.0
    pause_time: Positive = 60.0
    run_in_time: Positive = 10.0
    hysteresis: NotNegative = 0.0
    hysteresis_angle: Positive = 0.02

    def __post_init__(self) -> None:
        """Refuse a breakaway torque below the Coulomb friction.

        Raises:
            ConfigurationError: It is below in one of the directions.

        """
        if any(fs < fc for fs, fc in zip(self.breakaway, self.coulomb, strict=True)):
            raise ConfigurationError(
                f'breakaway: expected at least the Coulomb friction {self.coulomb}, got '
                f'{self.breakaway}. Raise breakaway, or lower coulomb.'
            )


@dataclass(frozen=True)
class JointTruth:
    """Hidden properties of one joint.

    Attributes:
        friction: Its friction.
        compliance: Sag of the link per torque transmitted by the joint [rad/(N·m)].
        effort_scale: Reported over true effort.
        effort_offset: Offset of the reported effort [N·m].
        rotor_inertia: Reflected inertia of the drive [kg·m²].
        rotor_in_effort: Share of the torque that accelerates the rotor in the reported effort;
            1 for efforts from motor current.
        wrapped: Whether the reported position is wrapped to ±π.
        frame: Displacement of the joint's frame, in that frame: shift [m], rotation vector [rad].

    """

    friction: FrictionTruth = field(default_factory=FrictionTruth)
    compliance: NotNegative = 0.0
    effort_scale: Positive = 1.0
    effort_offset: float = 0.0
    rotor_inertia: NotNegative = 0.1
    rotor_in_effort: NotNegative = 0.0
    wrapped: bool = False
    frame: Vector6 = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class ForceTorqueTruth:
    """A force/torque sensor at a link of the URDF.

    Attributes:
        frame: Link whose frame is the sensor frame.
        topic: Topic; empty for '<frame>/wrench'.
        message_frame: frame_id of its messages; empty for `frame`.
        bias: Force [N], then torque [N·m]; drawn within the cell's bounds if None.
        rate: Rate [Hz]; 0 for that of the joint states.
        phase: Delay of the first reading after the first joint state [s].
        delay: Age of a reading at its stamp [s].
        filter_frequency: Corner frequency of the sensor's low-pass filter [Hz]; 0 for none.
        filter_order: Number of first-order sections of the filter.
        calibration_error: Standard deviation of the calibration matrix's relative errors. The
            6x6 error is drawn from the seed; cross terms are scaled by the load range.
        cable_stiffness: Torque of a cable per angle of the last joint [N·m/rad], about an axis
            drawn from the seed.

    """

    frame: str
    topic: str = ''
    message_frame: str = ''
    bias: Vector6 | None = None
    rate: NotNegative = 0.0
    phase: NotNegative = 0.0
    delay: NotNegative = 0.0
    filter_frequency: NotNegative = 0.0
    filter_order: Positive = 1.0
    calibration_error: NotNegative = 0.0
    cable_stiffness: NotNegative = 0.0


@dataclass(frozen=True)
class ImuTruth:
    """An inertial measurement unit at a link of the URDF; empty topic for '<frame>/imu'."""

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
        target_axis: Axis of the reflector's visibility cone, in the target link's frame.
        visibility_angle: Half angle of that cone [rad].
        orientation: Whether the tracker also measures the target link's orientation.

    """

    frame: str = 'tracker'
    xyz: Vector3 = (2.5, 0.0, 0.5)
    rpy: Vector3 = (0.0, 0.0, math.pi)
    target_link: str = ''
    target_xyz: Vector3 = (0.0, 0.0, 0.0)
    target_axis: Vector3 = (0.0, 0.0, 1.0)
    visibility_angle: Positive = math.pi
    orientation: bool = False


@dataclass(frozen=True)
class BoardTruth:
    """A chessboard, or another grid of corners that are told apart.

    Its frame has the first corner at the origin, columns along x, rows along y, and z out of the
    printed side.

    Attributes:
        rows: Number of corners along y.
        columns: Number of corners along x.
        square: Distance between neighbouring corners [m].
        link: Link that carries the board; empty for the root frame.
        xyz: Origin of the board in the frame of the link [m].
        rpy: Roll, pitch, yaw of the board in the frame of the link [rad].
        visibility_angle: Largest angle between the board's z and the line of sight at which a
            corner is found [rad].

    """

    rows: Count
    columns: Count
    square: Positive
    link: str = ''
    xyz: Vector3 = (0.0, 0.0, 0.0)
    rpy: Vector3 = (0.0, 0.0, 0.0)
    visibility_angle: Positive = 1.2


@dataclass(frozen=True)
class CameraTruth:
    """A camera that sees a board; its frame is optical: x right, y down, z forward.

    Attributes:
        fx: Focal length along the image's width [px].
        fy: Focal length along the image's height [px].
        cx: Principal point from the image's left [px].
        cy: Principal point from the image's top [px].
        width: Width of the image [px].
        height: Height of the image [px].
        board: The board.
        distortion: k1, k2, p1, p2, k3 of the model `plumb_bob`.
        corner_sigma: White noise of each coordinate of a corner [px].
        link: Link that carries the camera; empty for the root frame.
        xyz: Origin of the camera in the frame of the link [m].
        rpy: Roll, pitch, yaw of the camera in the frame of the link [rad].

    """

    fx: Positive
    fy: Positive
    cx: float
    cy: float
    width: Count
    height: Count
    board: BoardTruth
    distortion: Vector5 = (0.0, 0.0, 0.0, 0.0, 0.0)
    corner_sigma: NotNegative = 0.0
    link: str = ''
    xyz: Vector3 = (0.0, 0.0, 0.0)
    rpy: Vector3 = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class GripperTruth:
    """A second publisher on `joint_states`, such as the driver of a gripper.

    Attributes:
        joints: Names of its joints; all positions are zero.
        rate: Rate of its messages [Hz].

    """

    joints: tuple[str, ...]
    rate: Positive = 50.0


@dataclass(frozen=True)
class LinkTruth:
    """Random deviation of the arm's link inertias from its URDF.

    Attributes:
        mass: Standard deviation of the relative error of each mass.
        centre_of_mass: Standard deviation of the error of each coordinate [m].
        inertia: Standard deviation of the relative error of each inertia tensor.
        seed: Seed of the draw.

    """

    mass: NotNegative = 0.0
    centre_of_mass: NotNegative = 0.0
    inertia: NotNegative = 0.0
    seed: NotNegative = 0.0


@dataclass(frozen=True)
class FrameTruth:
    """Random displacement of all joint frames from the URDF, in addition to that of each joint.

    Attributes:
        shift: Standard deviation of each coordinate [m].
        turn: Standard deviation of each component of the rotation vector [rad].
        seed: Seed of the draw.

    """

    shift: NotNegative = 0.0
    turn: NotNegative = 0.0
    seed: NotNegative = 0.0


@dataclass(frozen=True)
class HiddenTruth:
    """Properties of one robot that its URDF does not contain.

    Attributes:
        gravity: Gravity in the robot's root frame [m/s²].
        base_tilt: Tilt of the base about the root frame's x and y axes [rad], in addition to
            `gravity`.
        links: Deviation of the links from the URDF.
        frames: Deviation of the joint frames from the URDF.
        effort_delay: Age of the reported effort at its stamp [s].
        effort_contains: `all`, or `external` for efforts without the torque of the URDF's arm.
        cubic_segments: Whether the controller ignores accelerations, so that they are not
            continuous.
        extra_joints: Joints that precede the arm's in its joint states; all values are zero.
        gripper: Second publisher of joint states.
        tool: Tool, mounted from the start.
        load: Second body, attached and detached at run time.
        rope: Rope that pulls on the load.
        sockets: Ball and sockets.
        joints: Truth by joint name; joints left out are ideal.
        force_torque_sensors: Force/torque sensors, in the order of publication.
        imus: IMUs, in the order of publication.
        tracker: The laser tracker.
        camera: The camera and its board.

    """

    gravity: Vector3 = (0.0, 0.0, -9.81)
    base_tilt: tuple[float, float] = (0.0, 0.0)
    links: LinkTruth = field(default_factory=LinkTruth)
    frames: FrameTruth = field(default_factory=FrameTruth)
    effort_delay: NotNegative = 0.0
    effort_contains: EffortContent = 'all'
    cubic_segments: bool = False
    extra_joints: tuple[str, ...] = ()
    gripper: GripperTruth | None = None
    tool: ToolTruth | None = None
    load: ToolTruth | None = None
    rope: RopeTruth | None = None
    sockets: SocketTruth | None = None
    joints: Mapping[str, JointTruth] = field(default_factory=dict)
    force_torque_sensors: tuple[ForceTorqueTruth, ...] = ()
    imus: tuple[ImuTruth, ...] = ()
    tracker: TrackerTruth | None = None
    camera: CameraTruth | None = None

    def prefixed(self, prefix: str) -> HiddenTruth:
        """Return the truth of a robot whose link and joint names carry a prefix."""
        def link(name: str) -> str:
            return prefix + name if name else ''

        def body(tool: ToolTruth | None) -> ToolTruth | None:
            return tool and replace(tool, parent=link(tool.parent))

        return replace(
            self, tool=body(self.tool), load=body(self.load),
            sockets=self.sockets and replace(self.sockets, parent=link(self.sockets.parent)),
            joints={prefix + name: joint for name, joint in self.joints.items()},
            force_torque_sensors=tuple(
                replace(item, frame=link(item.frame)) for item in self.force_torque_sensors),
            imus=tuple(replace(item, frame=link(item.frame)) for item in self.imus),
            tracker=self.tracker and replace(
                self.tracker, target_link=link(self.tracker.target_link)),
            camera=self.camera and replace(
                self.camera, link=link(self.camera.link),
                board=replace(self.camera.board, link=link(self.camera.board.link))))


@dataclass(frozen=True)
class StreamNoise:
    """Transport of a sensor stream.

    Attributes:
        latency: Delay from stamp to publication [s].
        dropout: Probability that a message is lost.

    """

    latency: NotNegative = 0.0
    dropout: Probability = 0.0


@dataclass(frozen=True)
class JointNoise(StreamNoise):
    """Noise of the joint states; sigmas are standard deviations, zero disables a term.

    Attributes:
        position_quantisation: Step of the encoders [rad].
        velocity_sigma: White noise of the velocity [rad/s].
        effort_sigma: White noise of the effort [N·m].
        effort_ripple: Amplitude of the effort's ripple over the joint angle [N·m].
        effort_ripple_cycles: Periods of the ripple per turn of the joint.
        zero_stamps: Probability of a message with stamp zero.
        repeated_stamps: Probability of a message with its predecessor's stamp.
        wall_stamps: Probability of a message stamped with the time since 1970.
        outliers: Probability of a message with positions of 253 rad.
        zero_rows: Probability of a message whose values are all zero.

    """

    position_quantisation: NotNegative = 0.0
    velocity_sigma: NotNegative = 0.0
    effort_sigma: NotNegative = 0.0
    effort_ripple: NotNegative = 0.0
    effort_ripple_cycles: NotNegative = 24.0
    zero_stamps: Probability = 0.0
    repeated_stamps: Probability = 0.0
    wall_stamps: Probability = 0.0
    outliers: Probability = 0.0
    zero_rows: Probability = 0.0


@dataclass(frozen=True)
class ForceTorqueNoise(StreamNoise):
    """Noise of the force/torque sensors.

    Attributes:
        force_sigma: White noise of each force component [N].
        torque_sigma: White noise of each torque component [N·m].
        force_bias: Bound of the drawn bias of each force component [N].
        torque_bias: Bound of the drawn bias of each torque component [N·m].
        force_quantisation: Resolution [N].
        torque_quantisation: Resolution [N·m].
        force_range: Saturation [N]; 0 for none.
        torque_range: Saturation [N·m]; 0 for none.
        force_drift: Bound of the drawn drift rate of each force component [N/s].
        torque_drift: Bound of the drawn drift rate of each torque component [N·m/s].

    """

    force_sigma: NotNegative = 0.0
    torque_sigma: NotNegative = 0.0
    force_bias: NotNegative = 0.0
    torque_bias: NotNegative = 0.0
    force_quantisation: NotNegative = 0.0
    torque_quantisation: NotNegative = 0.0
    force_range: NotNegative = 0.0
    torque_range: NotNegative = 0.0
    force_drift: NotNegative = 0.0
    torque_drift: NotNegative = 0.0


@dataclass(frozen=True)
class ImuNoise(StreamNoise):
    """Noise of the IMUs.

    Attributes:
        gyro_sigma: White noise of each rate [rad/s].
        accelerometer_sigma: White noise of each specific force [m/s²].

    """

    gyro_sigma: NotNegative = 0.0
    accelerometer_sigma: NotNegative = 0.0


@dataclass(frozen=True)
class TrackerNoise(StreamNoise):
    """Noise of the laser tracker.

    Attributes:
        position_sigma: White noise of each coordinate [m].
        orientation_sigma: White noise of the orientation about each axis [rad].
        drift_rate: Drift of the tracker's frame, in a direction drawn from the seed [m/s].
        rate: Measurement rate [Hz].

    """

    position_sigma: NotNegative = 0.0
    orientation_sigma: NotNegative = 0.0
    drift_rate: NotNegative = 0.0
    rate: Positive = 10.0


@dataclass(frozen=True)
class Cell:
    """Sensor noise of one cell; none by default."""

    joint_states: JointNoise = field(default_factory=JointNoise)
    force_torque: ForceTorqueNoise = field(default_factory=ForceTorqueNoise)
    imu: ImuNoise = field(default_factory=ImuNoise)
    tracker: TrackerNoise = field(default_factory=TrackerNoise)


def load_truth(path: Path | str) -> HiddenTruth:
    """Read a hidden truth file.

    Raises:
        ConfigurationError: The file cannot be read, or a value is not valid.

    """
    return parse_truth(_read(path), str(path))


def load_cell(path: Path | str) -> Cell:
    """Read a cell file.

    Raises:
        ConfigurationError: The file cannot be read, or a value is not valid.

    """
    return parse_cell(_read(path), str(path))


def parse_truth(content: object, source: str = 'hidden truth') -> HiddenTruth:
    """Convert the mapping of a hidden truth file.

    Args:
        content: Parsed YAML.
        source: Name of the file, for error messages.

    Raises:
        ConfigurationError: A key or value is not valid.

    """
    return _section(content, HiddenTruth, source)


def parse_cell(content: object, source: str = 'cell') -> Cell:
    """Convert the mapping of a cell file.

    Args:
        content: Parsed YAML.
        source: Name of the file, for error messages.

    Raises:
        ConfigurationError: A key or value is not valid.

    """
    return _section(content, Cell, source)


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
            'show the format.'
        ) from error


def _refusal(place: str, expected: str, got: object) -> ConfigurationError:
    return ConfigurationError(f'{place}: expected {expected}, got {got!r}. Correct the value.')


def _section(content: object, kind: type[T], place: str) -> T:
    """Convert a mapping to a dataclass; an empty one to its defaults."""
    known = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    table = {} if content is None else content
    if not isinstance(table, Mapping):
        raise _refusal(place, f'a mapping with the keys {", ".join(known)}', content)
    unknown = [str(key) for key in table if key not in known]
    if unknown:
        raise ConfigurationError(
            f'{place}: unknown key {", ".join(unknown)}; expected some of '
            f'{", ".join(known)}. Correct the spelling, or remove it.'
        )
    missing = [name for name, item in known.items()
               if item.default is item.default_factory is MISSING and name not in table]
    if missing:
        raise ConfigurationError(f'{place}: {", ".join(missing)} is missing. Add it.')
    hints = get_type_hints(kind, include_extras=True)
    values = {key: _value(value, hints[key], f'{place}: {key}') for key, value in table.items()}
    try:
        return kind(**values)
    except ConfigurationError as error:
        raise ConfigurationError(f'{place}: {error}') from error


def _value(value: object, hint: Any, place: str) -> Any:
    """Convert a value of YAML to the type of a field."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        _, expected, valid = arguments
        number = _number(value, place)
        if not valid(number):
            raise _refusal(place, expected, value)
        return number
    if is_dataclass(hint):
        return _section(value, hint, place)  # type: ignore[arg-type]
    if hint is float:
        return _number(value, place)
    if hint in (bool, str):
        if not isinstance(value, hint):
            raise _refusal(place, 'true or false' if hint is bool else 'a text', value)
        return value
    if origin is Literal:
        if value not in arguments:
            raise _refusal(place, f'one of {", ".join(arguments)}', value)
        return value
    if origin is Mapping:
        if not isinstance(value, Mapping | None):
            raise _refusal(place, 'a mapping from joint name to its truth', value)
        return {str(name): _value(entry, arguments[1], f'{place}: {name}')
                for name, entry in (value or {}).items()}
    if origin is tuple:
        return _sequence(value, arguments, place)
    # An optional value.
    return None if value is None else _value(value, arguments[0], place)


def _sequence(value: object, hints: Sequence[Any], place: str) -> tuple[Any, ...]:
    """Convert a list to a tuple of fixed length, or of any where the hints end with `...`."""
    if hints in (get_args(Pair), get_args(PositivePair)) and isinstance(value, int | float):
        value = [value, value]
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else None
    if hints[-1] is ...:
        if items is None:
            raise _refusal(place, 'a list', value)
        return tuple(_value(item, hints[0], f'{place}[{index}]')
                     for index, item in enumerate(items))
    if items is None or len(items) != len(hints):
        raise _refusal(place, f'a list of {len(hints)} numbers', value)
    return tuple(_value(item, hint, place) for item, hint in zip(items, hints, strict=True))


def _number(value: object, place: str) -> float:
    # bool is an int in Python, but "mass: yes" is a typing error.
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _refusal(place, 'a finite number', value)
    return float(value)
