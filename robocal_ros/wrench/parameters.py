# SPDX-License-Identifier: Apache-2.0
"""Parameters of external-wrench observation, and the sensors that they describe."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from typing import Any

from robocal_ros.errors import ConfigurationError
from robocal_ros.messages import decode
from robocal_ros.messages.decode import SensorDecoder
from robocal_ros.parameters import RobotParameters, named, parameter

NODE = 'wrench_observer'
"""The node whose parameter files hold."""

TARE = 'tare'
"""The service by which the node tares; its marks bear that name."""

# How the names of links begin that an F/T sensor carries.
_PREFIX = 'ft_'


@dataclass(frozen=True)
class WrenchParameters(RobotParameters):
    """Parameters of external-wrench observation."""

    sensor_frames: list[str] = parameter(
        [''], "Frames that the F/T sensors measure in, frames of the URDF, in any order; [''] for "
        'all links whose name begins with ft_.')
    sensor_topics: list[str] = parameter(
        [''], "Their topics (geometry_msgs/WrenchStamped), one for each frame; [''] for "
        '<frame>/wrench.')
    sensor_links: list[str] = parameter(
        [''], "First link beyond each sensor, or [''] where that is the link of its frame. What "
        'lies from there to the next sensors bears the name of this link.')
    sensor_signs: list[float] = parameter(
        [1.0], '1 for a sensor on which a hanging tool reads a force along gravity, -1 for one '
        'that reports the opposite; one for each or one for all.', minimum=-1.0, maximum=1.0)
    sensor_force_ranges: list[float] = parameter(
        [0.0], 'Largest force that a component can show, to tell saturation; 0 for not known. '
        'One for each sensor or one for all.', unit='N', minimum=0.0, maximum=1e6)
    sensor_torque_ranges: list[float] = parameter(
        [0.0], 'Largest torque that a component can show; 0 for not known. One for each sensor '
        'or one for all.', unit='N·m', minimum=0.0, maximum=1e6)
    kinematics: list[str] = parameter(
        ['joint_states'], 'Where the motion between each sensor and the next comes from; imu '
        'needs one rigid link and an IMU on it. One for each sensor or one for all.',
        choices=('joint_states', 'imu'))
    imu_topics: list[str] = parameter(
        [''], 'Topics of the IMUs (sensor_msgs/Imu), one for each sensor, empty where there is '
        "none; [''] for none at all.")
    imu_frames: list[str] = parameter(
        [''], 'Frames that they measure in, one for each sensor; frames of the URDF.')
    window: float = parameter(
        0.02, 'Window over which motion, readings and torques are smoothed. What is published '
        'lags by half of it.', unit='s', minimum=0.002, maximum=0.5)
    use_velocity: bool = parameter(
        True, 'Use the velocities of the joint states; otherwise positions are differentiated.')
    stamp_estimates: bool = parameter(
        False, 'Stamp what is published with the instant that it describes, half a window ago, '
        'instead of with the newest sample.')
    max_delay: float = parameter(
        0.02, 'A sensor further behind the joint states than this is not waited for, and its '
        'links are marked as not known.', unit='s', minimum=0.001, maximum=1.0)
    stuck_time: float = parameter(
        0.1, 'A sensor whose values stay exactly the same for so long is stuck; 0 for no such '
        'check.', unit='s', minimum=0.0, maximum=60.0)
    silence: float = parameter(
        0.5, 'Longest silence of joint states before it is reported.', unit='s', minimum=0.05,
        maximum=60.0, dynamic=True)
    force_threshold: float = parameter(
        5.0, 'External forces from here on are contacts.', unit='N', minimum=0.1, maximum=1e4)
    release_ratio: float = parameter(
        0.6, 'Share of the threshold below which a contact has ended.', minimum=0.1, maximum=1.0)
    crosstalk: float = parameter(
        0.15, 'Share of the largest external force that another link must exceed for a contact '
        'of its own: a sudden push shakes the whole arm.', minimum=0.0, maximum=1.0)
    steadiness: float = parameter(
        1.0, "Share of the readings' own scatter within the window that a force must exceed to "
        'begin a contact: a jolt of the drives shakes more than it pushes. 0 for no such check.',
        minimum=0.0, maximum=10.0)
    moment_threshold: float = parameter(
        0.05, 'Moments about the reference point below this mean that the force acts there.',
        unit='N·m', minimum=0.0, maximum=100.0)
    max_pitch: float = parameter(
        0.02, 'Largest moment along the force, by its size, that one push may seem to have; '
        'beyond it no contact point is told.', unit='m', minimum=1e-4, maximum=10.0)
    contact_averaging: float = parameter(
        0.05, 'Time over which the line of action of a lasting contact is averaged.', unit='s',
        minimum=0.001, maximum=10.0)
    require_tare: bool = parameter(
        True, 'Tell no wrench before ~/tare was called; set to false for sensors without bias.')
    keep_tare: bool = parameter(
        False, 'Use the tare that was filed last from the start.')
    tare_duration: float = parameter(
        1.0, 'Time of rest that ~/tare averages.', unit='s', minimum=0.1, maximum=60.0,
        dynamic=True)
    tare_force_limit: float = parameter(
        15.0, 'Largest bias of a force component that ~/tare accepts.', unit='N', minimum=0.01,
        maximum=1e4, dynamic=True)
    tare_torque_limit: float = parameter(
        1.0, 'Largest bias of a torque component that ~/tare accepts.', unit='N·m',
        minimum=0.001, maximum=1e3, dynamic=True)
    tare_force_std: float = parameter(
        2.0, 'Largest scatter of a force component during ~/tare.', unit='N', minimum=0.001,
        maximum=1e3, dynamic=True)
    tare_torque_std: float = parameter(
        0.2, 'Largest scatter of a torque component during ~/tare.', unit='N·m', minimum=1e-4,
        maximum=1e2, dynamic=True)
    use_payload: bool = parameter(
        True, 'Count weight and inertia of the identified payload, when there is a result.')
    use_friction: bool = parameter(
        True, 'Take identified friction off the joint torques, when there is a result.')
    observe_torque: bool = parameter(
        True, 'Follow external joint torques, where joint states hold efforts.')
    observer_gain: float = parameter(
        50.0, 'Bandwidth of the observer of external joint torques.', unit='1/s', minimum=0.1,
        maximum=1000.0)
    torque_thresholds: list[float] = parameter(
        [8.0], 'External joint torques from here on are collisions, one for each joint or one '
        "for all. Near standstill the joint's own breakaway friction comes on top.", unit='N·m',
        minimum=0.01, maximum=1e4)
    friction_width: float = parameter(
        0.005, 'Speed over which friction rises from zero.', unit='rad/s', minimum=1e-5,
        maximum=1.0)
    tool_wrench_source: str = parameter(
        'auto', 'Where ~/tool_wrench comes from: the sensor that carries tool_frame, or joint '
        'torques; auto takes the sensor if there is one.', choices=('auto', 'sensor', 'torque'))
    characteristic_length: float = parameter(
        0.3, 'Length that makes moments comparable with forces, for ~/tool_wrench from joint '
        'torques.', unit='m', minimum=0.001, maximum=10.0)
    min_singular_value: float = parameter(
        0.05, 'Directions that the joints feel with less leverage than this are blind.',
        unit='m', minimum=1e-4, maximum=1.0)
    damping: float = parameter(
        0.02, 'Damping of ~/tool_wrench from joint torques.', unit='m', minimum=0.0, maximum=1.0)
    tool_box: list[float] = parameter(
        [0.0, 0.0, 0.0], 'Size of a box around the mounted tool, x, y, z of tool_frame, on which '
        'contacts are placed too; zeros for none.', unit='m', minimum=0.0, maximum=5.0)
    mesh_folders: list[str] = parameter(
        [''], 'Further folders in which package:// meshes of the collision geometry are looked '
        'up, besides those of the ROS installation.')


# ------------------------------------------------------------------------------- sensors


@dataclass(frozen=True)
class ImuSource:
    """An IMU that tells the motion beyond a sensor.

    Attributes:
        topic: Its topic.
        frame: The frame that it measures in.

    """

    topic: str
    frame: str

    def decoder(self) -> SensorDecoder:
        """Return what decodes its messages."""
        return decode.imus(f"Sensor '{self.frame}'", self.frame)


@dataclass(frozen=True)
class SensorSource:
    """An F/T sensor, as parameters describe it.

    Attributes:
        frame: The frame that it measures in.
        topic: Its topic.
        link: First link beyond it; empty for that of its frame.
        sign: +1, or -1 for a sensor that reports the opposite.
        ranges: Largest magnitude of each component, 0 for not known [N, N·m].
        imu: What tells the motion beyond it; None where joint states do.

    """

    frame: str
    topic: str
    link: str
    sign: float
    ranges: tuple[float, ...]
    imu: ImuSource | None

    def decoder(self) -> SensorDecoder:
        """Return what decodes its messages."""
        return decode.wrenches(f"Sensor '{self.frame}'", self.frame, self.sign)


def sensors_of(values: WrenchParameters, urdf: str) -> tuple[SensorSource, ...]:
    """Return the sensors that parameters name, or else those that the links' names tell of.

    Args:
        values: The parameters.
        urdf: URDF text.

    Raises:
        ConfigurationError: If the lists do not fit each other.

    """
    frames = list(named(values.sensor_frames)) or _named_links(urdf)
    topics = (list(values.sensor_topics) if named(values.sensor_topics)
              else [f'{frame}/wrench' for frame in frames])
    _check_lists(values, frames, topics)

    def each(name: str) -> list[Any]:
        return _per_sensor(getattr(values, name), len(frames), name)

    imus = [_imu(frame, *words) for frame, *words in zip(
        frames, each('kinematics'), each('imu_topics'), each('imu_frames'), strict=True)]
    return tuple(
        SensorSource(frame, topic, link, sign, (force,) * 3 + (torque,) * 3, imu)
        for frame, topic, link, sign, force, torque, imu in zip(
            frames, topics, each('sensor_links'), each('sensor_signs'),
            each('sensor_force_ranges'), each('sensor_torque_ranges'), imus, strict=True))


def _named_links(urdf: str) -> list[str]:
    """Return the links whose name says that a sensor carries them; checked where they are used."""
    return [name for link in ElementTree.fromstring(urdf).findall('link')
            for name in [link.get('name', '')] if name.startswith(_PREFIX)]


def _check_lists(values: WrenchParameters, frames: list[str], topics: list[str]) -> None:
    count = len(frames)
    for name, given in (('sensor_topics', topics), *(
            (name, getattr(values, name)) for name in (
                'sensor_links', 'imu_topics', 'imu_frames'))):
        if len(given) != count and given != ['']:
            raise ConfigurationError(
                f"Parameter '{name}' has {len(given)} values; expected {count}, one for each "
                f'of the sensors {", ".join(frames)}.')
    if not all(topics):
        raise ConfigurationError(
            'A topic in sensor_topics is empty; expected the topic of an F/T sensor.')
    if len(set(topics)) < count:
        raise ConfigurationError(
            'A topic stands twice in sensor_topics; expected one topic for each sensor.')
    for sign in values.sensor_signs:
        if abs(sign) != 1.0:
            raise ConfigurationError(
                f"Parameter 'sensor_signs' holds {sign:g}; expected 1.0 or -1.0.")


def _per_sensor(values: list[Any], count: int, name: str) -> list[Any]:
    """Return one value for each sensor from one for each or one for all."""
    if len(values) not in (1, count):
        raise ConfigurationError(
            f"Parameter '{name}' has {len(values)} values; expected 1 or {count}, one for each "
            'of the sensors.')
    return list(values) if len(values) == count else list(values) * count


def _imu(sensor: str, kinematics: str, topic: str, frame: str) -> ImuSource | None:
    if kinematics != 'imu':
        return None
    if not topic or not frame:
        raise ConfigurationError(
            f"Kinematics of sensor '{sensor}' is imu, but imu_topics or imu_frames names none "
            'for it; expected both.')
    return ImuSource(topic, frame)
