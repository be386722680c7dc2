# SPDX-License-Identifier: Apache-2.0
"""Parameters of the node ``wrench_observer``."""

from __future__ import annotations

from dataclasses import dataclass

from robocal_ros.core.wrench.contact import Gates
from robocal_ros.core.wrench.observation import ObserverSettings
from robocal_ros.core.wrench.tare import TareSettings
from robocal_ros.ros.parameters import parameter
from robocal_ros.ros.robot_node import RobotParameters


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
        maximum=60.0)
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
        1.0, 'Time of rest that ~/tare averages.', unit='s', minimum=0.1, maximum=60.0)
    tare_force_limit: float = parameter(
        15.0, 'Largest bias of a force component that ~/tare accepts.', unit='N', minimum=0.01,
        maximum=1e4)
    tare_torque_limit: float = parameter(
        1.0, 'Largest bias of a torque component that ~/tare accepts.', unit='N·m',
        minimum=0.001, maximum=1e3)
    tare_force_std: float = parameter(
        2.0, 'Largest scatter of a force component during ~/tare.', unit='N', minimum=0.001,
        maximum=1e3)
    tare_torque_std: float = parameter(
        0.2, 'Largest scatter of a torque component during ~/tare.', unit='N·m', minimum=1e-4,
        maximum=1e2)
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


def observer_settings(values: WrenchParameters) -> ObserverSettings:
    """Return how samples become wrenches."""
    return ObserverSettings(
        window=values.window, max_delay=values.max_delay, use_velocity=values.use_velocity,
        gates=Gates(
            force=values.force_threshold, release=values.release_ratio,
            crosstalk=values.crosstalk, steadiness=values.steadiness,
            moment=values.moment_threshold, pitch=values.max_pitch,
            averaging=values.contact_averaging))


def tare_settings(values: WrenchParameters) -> TareSettings:
    """Return what a tare accepts."""
    return TareSettings(
        duration=values.tare_duration, max_force_bias=values.tare_force_limit,
        max_torque_bias=values.tare_torque_limit, max_force_std=values.tare_force_std,
        max_torque_std=values.tare_torque_std)
