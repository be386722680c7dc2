# SPDX-License-Identifier: Apache-2.0
"""A robot's URDF text out of a URDF or xacro file, and what it says of ros2_control."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from xml.parsers.expat import ExpatError

import xacro

from robocal_ros.errors import ConfigurationError
from robocal_ros.resources import share_directory


def default_file() -> str:
    """Return the xacro file of the package's own arm."""
    return str(share_directory() / 'urdf' / 'robocal_arm.urdf.xacro')


def urdf_text(file: str, arguments: Mapping[str, str]) -> str:
    """Return the URDF text of a URDF or xacro file.

    Args:
        file: The file.
        arguments: Arguments of the xacro file; those that it does not know are ignored.

    Raises:
        ConfigurationError: If the file does not give a robot.

    """
    try:
        text = str(xacro.process_file(file, mappings=dict(arguments)).toxml())
        root = ElementTree.fromstring(text)
    except (xacro.XacroException, ExpatError, ElementTree.ParseError, OSError) as error:
        raise ConfigurationError(
            f'{file} gives no robot: {error}. Check the file and robot_args.') from error
    if root.tag != 'robot':
        raise ConfigurationError(
            f'{file} holds <{root.tag}>; expected a URDF or xacro file, which holds <robot>.')
    return text


def has_control_block(urdf: str) -> bool:
    """Return whether a URDF text tells ros2_control about its hardware."""
    return ElementTree.fromstring(urdf).find('ros2_control') is not None


@dataclass(frozen=True)
class GazeboSensor:
    """A sensor that Gazebo simulates and a bridge takes to ROS.

    Attributes:
        topic: Its topic, the same in Gazebo and ROS.
        kind: ``force_torque`` or ``imu``.

    """

    topic: str
    kind: str


def gazebo_sensors(urdf: str) -> list[GazeboSensor]:
    """Return the force/torque sensors and IMUs in the Gazebo parts of a URDF text."""
    found = []
    for sensor in ElementTree.fromstring(urdf).iterfind('gazebo/sensor'):
        topic, kind = sensor.findtext('topic', ''), sensor.get('type', '')
        if topic and kind in ('force_torque', 'imu'):
            found.append(GazeboSensor(topic, kind))
    return found
