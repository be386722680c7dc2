# SPDX-License-Identifier: Apache-2.0
"""Parameters of external-wrench observation, and the sensors that they describe."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from typing import Any

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError
from robocal_ros.messages import WRENCH, SensorDecoder, decode
from robocal_ros.parameters import RobotParameters, named, one_for_each, parameter

NODE = 'wrench_observer'
"""Name of the node, under which its parameter files list values."""

TARE = 'tare'
"""Name of the service that tares, and of its marks in a bag."""

ZERO = 'zero'
"""Name of the service that finds torque zeros."""

RELEASE = 0.6
"""Fraction of a threshold below which a contact ends: noise at the threshold ends none."""

CHANNELS = ('force_x', 'force_y', 'force_z', 'torque_x', 'torque_y', 'torque_z')
"""Components of a reading, in N and N·m."""

IMU = 'sensor_msgs/msg/Imu'

# Prefix of the names of links that an F/T sensor carries.
_PREFIX = 'ft_'
# Parameters with one value per sensor.
_EACH = ('sensor_links', 'sensor_signs', 'sensor_force_ranges', 'sensor_torque_ranges',
         'sensor_delays', 'sensor_message_frames', 'kinematics', 'imu_topics', 'imu_frames')


@dataclass(frozen=True)
class WrenchParameters(RobotParameters):
    """Parameters of external-wrench observation.

    Attributes:
        sensor_frames: Measurement frames of the F/T sensors, as named in the URDF, in any order;
            [''] selects all links whose name begins with ``ft_``.
        sensor_topics: Topics of the F/T sensors (geometry_msgs/WrenchStamped), one per frame; ['']
            selects <frame>/wrench.
        sensor_message_frames: frame_id of the sensors' messages where it is no frame of the URDF,
            one per sensor, empty for that of sensor_frames; [''] for none at all.
        sensor_links: First link distal to each sensor, or [''] where that is the link of its
            frame; it names the part of the arm between this sensor and the next ones.
        sensor_signs: Sign of the readings: 1 if a hanging tool reads a force along gravity, -1 if
            it reads the opposite; one per sensor or one for all.
        sensor_force_ranges: Measuring range of a force component, at which a reading is saturated;
            0 if unknown. One per sensor or one for all.
        sensor_torque_ranges: Measuring range of a torque component; 0 if unknown. One per sensor
            or one for all.
        sensor_delays: Time by which readings are older than their stamps, as by a filter in the
            sensor; one per sensor or one for all.
        kinematics: Source of the motion between each sensor and the next; imu requires one rigid
            link with an IMU on it. One per sensor or one for all.
        imu_topics: Topics of the IMUs (sensor_msgs/Imu), one per sensor, empty where there is
            none; [''] for none at all.
        imu_frames: Measurement frames of the IMUs, as named in the URDF, one per sensor.
        window: Window over which motion, readings and torques are smoothed; a longer one reduces
            noise and delays the output by half its length.
        window_samples: Smallest number of joint states in the window, which makes it longer than
            window where they are rare; a larger number reduces noise and adds delay.
        use_velocity: Use the velocities in joint_states; otherwise positions are differentiated.
        stamp_estimates: Stamp outputs with the instant that they describe, half a window ago,
            instead of with the stamp of the newest sample.
        max_delay: Longest time by which a sensor may lag behind joint_states, and longest gap of
            its readings that is interpolated; beyond it its links are invalid.
        stuck_time: Time after which a sensor with constant values is reported as stuck; 0 disables
            the check.
        silence: Time without joint_states after which this is reported.
        force_threshold: External force at which a contact begins; a higher value ignores harder
            pushes.
        require_tare: Publish no wrench before ~/tare was called; set to false for sensors without
            bias.
        keep_tare: Use the stored tare from the start.
        tare_duration: Time at rest over which ~/tare and ~/zero average.
        tare_force_limit: Largest bias of a force component that ~/tare accepts.
        tare_torque_limit: Largest bias of a torque component that ~/tare accepts.
        tare_force_std: Largest scatter of a force component during ~/tare.
        tare_torque_std: Largest scatter of a torque component during ~/tare.
        use_payload: Compensate weight and inertia of the identified payload, if there is a result.
        use_friction: Compensate identified friction in the joint torques, if there is a result.
        temperature_topic: Topic of the temperature (sensor_msgs/Temperature) for which friction is
            compensated; empty for that at which it was identified.
        observe_torque: Estimate external joint torques, if joint_states contains efforts.
        torque_thresholds: External joint torque at which a collision is reported, one per joint or
            one for all; near standstill the joint's breakaway friction is added.
        unidentified_friction: Largest friction torque of a joint without identified friction, by
            which its threshold is raised; one per joint or one for all.
        rotor_inertias: Inertia of the drive reflected to the joint, which adds to the inertia of
            the URDF; one per joint or one for all.
        friction_width: Speed over which the friction model rises from zero to the Coulomb level.
        tool_wrench_source: Source of ~/tool_wrench: F/T sensors, or joint torques; auto fuses all
            that see it, and is torque on an arm without a sensor proximal to the tool.
        tool_wrench_fallback: With tool_wrench_source auto, estimate ~/tool_wrench from joint
            torques alone while F/T sensors do not measure it; otherwise it is not published then.
        tool_wrench_frame: Frame in which ~/tool_wrench is expressed, about its origin: of the
            robot description, or on /tf_static and /tf; empty for tool_frame.
        sensor_force_std: Standard deviation of a force component of readings, noise, drift and
            calibration together; a larger one gives the sensor less weight. One per sensor or one
            for all.
        sensor_torque_std: Standard deviation of a torque component of readings; a larger one gives
            the sensor less weight. One per sensor or one for all.
        torque_std: Standard deviation of joint torques beyond friction and model, as of drive
            gains and ripple; a larger one gives them less weight. One per joint or one for all.
        torque_zero_std: Standard deviation of the zeros of joint torques while they are not known,
            as stated by the maker of the torque sensors (their accuracy without load) or seen
            from day to day; a larger one widens the covariances until ~/zero was called, and lets
            ~/zero find larger ones. One per joint or one for all.
        tilt_std: Prior standard deviation of the tilt of the base against gravity about each
            horizontal axis, which ~/zero estimates together with the zeros.
        delay_std: Prior standard deviation of the delay of joint torques against positions,
            filters of the driver included; a larger one gives torques that change less weight.
        gain_std: Standard deviation of drive gains that are not calibrated, as a share; a smaller
            one, as for joint torque sensors, gives joint torques more weight.
        arm_model_std: Prior standard deviation of the link masses in the URDF, as a share of them,
            of each by itself and of all together; centres and inertias follow; a larger one widens
            the covariances of an arm that has moved since the tare, and contacts there need more
            force.
        min_singular_value: Singular value of the scaled Jacobian below which a direction of
            ~/tool_wrench is unobservable.
        damping: Damping of the pseudo-inverse for ~/tool_wrench from joint torques; a larger one
            reduces noise and biases the wrench towards zero.
        hold_on_contact: Hold the arm when a contact begins, by cancelling all goals of the
            controller; not a safety function.
        hold_force: Force of a contact from which hold_on_contact holds the arm, besides contacts
            of joints by torque_thresholds; a higher value lets softer contacts pass.
        controller: Joint trajectory controller whose goals hold_on_contact cancels.
        drift_lag: Time constant with which biases of F/T sensors and torque zeros follow a drift
            while the arm moves without contact; a shorter one follows faster drifts, and sooner
            takes a steady push below half of force_threshold for one; 0 keeps them constant.
        tool_box: Size of a box around the mounted tool along x, y, z of tool_frame, on which
            contact points are located too; zeros for none.
        mesh_folders: Folders in which package:// meshes of the collision geometry are looked up,
            in addition to those of the ROS installation.

    """

    sensor_frames: list[str] = parameter([''])
    sensor_topics: list[str] = parameter([''])
    sensor_message_frames: list[str] = parameter([''])
    sensor_links: list[str] = parameter([''])
    sensor_signs: list[float] = parameter([1.0], minimum=-1.0, maximum=1.0)
    sensor_force_ranges: list[float] = parameter([0.0], unit='N', minimum=0.0, maximum=1e6)
    sensor_torque_ranges: list[float] = parameter([0.0], unit='N·m', minimum=0.0, maximum=1e6)
    sensor_delays: list[float] = parameter([0.0], unit='s', minimum=-0.1, maximum=0.1)
    kinematics: list[str] = parameter(['joint_states'], choices=('joint_states', 'imu'))
    imu_topics: list[str] = parameter([''])
    imu_frames: list[str] = parameter([''])
    window: float = parameter(0.02, unit='s', minimum=0.002, maximum=0.5)
    window_samples: int = parameter(5, minimum=5, maximum=500)
    use_velocity: bool = parameter(True)
    stamp_estimates: bool = parameter(False)
    max_delay: float = parameter(0.02, unit='s', minimum=0.001, maximum=1.0)
    stuck_time: float = parameter(0.1, unit='s', minimum=0.0, maximum=60.0)
    silence: float = parameter(0.5, unit='s', minimum=0.05, maximum=60.0, dynamic=True)
    force_threshold: float = parameter(5.0, unit='N', minimum=0.1, maximum=1e4)
    require_tare: bool = parameter(True)
    keep_tare: bool = parameter(False)
    tare_duration: float = parameter(1.0, unit='s', minimum=0.1, maximum=60.0, dynamic=True)
    tare_force_limit: float = parameter(15.0, unit='N', minimum=0.01, maximum=1e4, dynamic=True)
    tare_torque_limit: float = parameter(1.0, unit='N·m', minimum=0.001, maximum=1e3, dynamic=True)
    tare_force_std: float = parameter(2.0, unit='N', minimum=0.001, maximum=1e3, dynamic=True)
    tare_torque_std: float = parameter(0.2, unit='N·m', minimum=1e-4, maximum=1e2, dynamic=True)
    use_payload: bool = parameter(True)
    use_friction: bool = parameter(True)
    temperature_topic: str = parameter('')
    observe_torque: bool = parameter(True)
    torque_thresholds: list[float] = parameter([8.0], unit='N·m', minimum=0.01, maximum=1e4)
    unidentified_friction: list[float] = parameter([30.0], unit='N·m', minimum=0.0, maximum=1e4)
    rotor_inertias: list[float] = parameter([0.0], unit='kg·m²', minimum=0.0, maximum=100.0)
    friction_width: float = parameter(0.005, unit='rad/s', minimum=1e-5, maximum=1.0)
    tool_wrench_source: str = parameter('auto', choices=('auto', 'sensor', 'torque'))
    tool_wrench_fallback: bool = parameter(False)
    tool_wrench_frame: str = parameter('')
    sensor_force_std: list[float] = parameter([0.5], unit='N', minimum=1e-4, maximum=1e4)
    sensor_torque_std: list[float] = parameter([0.02], unit='N·m', minimum=1e-6, maximum=1e3)
    torque_std: list[float] = parameter([1.0], unit='N·m', minimum=1e-4, maximum=1e3)
    torque_zero_std: list[float] = parameter([0.5], unit='N·m', minimum=0.0, maximum=1e3)
    tilt_std: float = parameter(0.005, unit='rad', minimum=0.0, maximum=0.2)
    delay_std: float = parameter(5e-3, unit='s', minimum=0.0, maximum=0.1)
    gain_std: float = parameter(0.1, minimum=0.0, maximum=10.0)
    arm_model_std: float = parameter(0.05, minimum=0.0, maximum=1.0)
    min_singular_value: float = parameter(0.05, unit='m', minimum=1e-4, maximum=1.0)
    damping: float = parameter(0.02, unit='m', minimum=0.0, maximum=1.0)
    hold_on_contact: bool = parameter(False)
    hold_force: float = parameter(5.0, unit='N', minimum=0.1, maximum=1e4)
    controller: str = parameter('joint_trajectory_controller')
    drift_lag: float = parameter(0.0, unit='s', minimum=0.0, maximum=1e4)
    tool_box: list[float] = parameter([0.0, 0.0, 0.0], unit='m', minimum=0.0, maximum=5.0)
    mesh_folders: list[str] = parameter([''])


# ------------------------------------------------------------------------------- sensors


@dataclass(frozen=True)
class Source:
    """IMU that measures the motion of the link distal to a sensor, or a sensor.

    Attributes:
        frame: Its measurement frame.
        topic: Its topic.
        kind: Type of its messages.

    """

    frame: str
    topic: str
    kind = IMU

    def decoder(self) -> SensorDecoder:
        """Return the decoder of its messages."""
        return decode.imus(f"Sensor '{self.frame}'", self.frame)


@dataclass(frozen=True)
class SensorSource(Source):
    """F/T sensor as described by the parameters.

    Attributes:
        link: First link distal to it; empty for that of its frame.
        sign: +1, or -1 for a sensor that reports the opposite.
        ranges: Measuring range of each component, 0 if unknown [N, N·m].
        delay: Time by which readings are older than their stamps [s].
        imu: IMU that measures the motion distal to it; None if joint states do.
        message_frame: Frame that its messages must name; empty for ``frame``.

    """

    link: str
    sign: float
    ranges: tuple[float, ...]
    delay: float
    imu: Source | None
    message_frame: str = ''
    kind = WRENCH

    def decoder(self) -> SensorDecoder:
        """Return the decoder of its messages."""
        return decode.wrenches(
            f"Sensor '{self.frame}'", self.message_frame or self.frame, self.sign)


def sensors_of(values: WrenchParameters, urdf: str) -> tuple[SensorSource, ...]:
    """Return the sensors named by the parameters, or else those named by the URDF's links.

    Args:
        values: The parameters.
        urdf: URDF text.

    Raises:
        ConfigurationError: If the lists do not match in length or content.

    """
    frames = list(named(values.sensor_frames)) or [
        link.get('name', '') for link in ElementTree.fromstring(urdf).findall('link')
        if link.get('name', '').startswith(_PREFIX)]
    topics = (list(values.sensor_topics) if named(values.sensor_topics)
              else [f'{frame}/wrench' for frame in frames])
    _check_lists(values, frames, topics)

    return tuple(
        SensorSource(frame, topic, link, sign, (force,) * 3 + (torque,) * 3, delay,
                     _imu(frame, *imu), message)
        for frame, topic, link, sign, force, torque, delay, message, *imu in zip(
            frames, topics, *(_per_sensor(values, len(frames), name) for name in _EACH),
            strict=True))


def sensor_std(values: WrenchParameters, count: int) -> list[Array]:
    """Return the standard deviations of each sensor's readings, shape (6,) each [N, N·m]."""
    force, torque = (_per_sensor(values, count, name)
                     for name in ('sensor_force_std', 'sensor_torque_std'))
    return [np.repeat(pair, 3) for pair in zip(force, torque, strict=True)]


def _check_lists(values: WrenchParameters, frames: list[str], topics: list[str]) -> None:
    count = len(frames)
    for name, given in (('sensor_topics', topics), *(
            (name, getattr(values, name)) for name in (
                'sensor_links', 'sensor_message_frames', 'imu_topics', 'imu_frames'))):
        if len(given) != count and given != ['']:
            raise ConfigurationError(
                f"Parameter '{name}' has {len(given)} values; expected {count}, one for each "
                f'of the sensors {", ".join(frames)}.')
    if not all(topics):
        raise ConfigurationError(
            'sensor_topics has an empty entry; expected the topic of an F/T sensor.')
    if len(set(topics)) < count:
        raise ConfigurationError(
            'sensor_topics lists a topic twice; expected a different topic for each sensor.')
    for sign in values.sensor_signs:
        if abs(sign) != 1.0:
            raise ConfigurationError(
                f"Parameter 'sensor_signs' has the value {sign:g}; expected 1.0 or -1.0.")


def _per_sensor(values: WrenchParameters, count: int, name: str) -> list[Any]:
    return one_for_each(getattr(values, name), count, name, 'one for each of the sensors')


def _imu(sensor: str, kinematics: str, topic: str, frame: str) -> Source | None:
    if kinematics != 'imu':
        return None
    if not topic or not frame:
        raise ConfigurationError(
            f"kinematics of sensor '{sensor}' is imu, but imu_topics or imu_frames has no entry "
            'for it; set both.')
    return Source(frame, topic)
