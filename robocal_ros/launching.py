# SPDX-License-Identifier: Apache-2.0
"""Checks of launch arguments before anything is started."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml
from ament_index_python import has_resource
from rclpy.context import Context

from robocal_ros import registry
from robocal_ros.errors import ConfigurationError, FileFormatError, nearest_name
from robocal_ros.files import read_text
from robocal_ros.messages import JOINT_STATE, STRING, Bag

# What ros2_control needs on any hardware, and what it needs besides.
_PACKAGES = ('robot_state_publisher', 'controller_manager')
_OWN_PACKAGES = {
    'mock': (), 'topic': ('joint_state_topic_hardware_interface',),
    'gazebo': ('ros_gz_sim', 'ros_gz_bridge', 'gz_ros2_control')}
# In Gazebo, a bridge with these rules publishes the sensors, not broadcasters.
_BRIDGES = {
    'force_torque': 'geometry_msgs/msg/WrenchStamped[gz.msgs.Wrench',
    'imu': 'sensor_msgs/msg/Imu[gz.msgs.IMU',
}
# Broadcasters of what others publish: Gazebo's bridge, and the simulated arm.
_SENSORS = ('force_torque_sensor_broadcaster', 'imu_sensor_broadcaster')
_WITHOUT = {'gazebo': _SENSORS, 'topic': ('joint_state_broadcaster', *_SENSORS)}


def checked(texts: Mapping[str, str]) -> dict[str, str]:
    """Return complete launch arguments: nodes by name, absolute namespace and file paths.

    Args:
        texts: Values by argument; unknown arguments are left out.

    Raises:
        ConfigurationError: If a value is invalid.

    """
    def refuse(name: str, expected: str) -> ConfigurationError:
        return ConfigurationError(
            f"Launch argument {name} is '{texts[name]}'; expected {expected}.")

    known = registry.nodes()
    nodes = texts['nodes'].replace(',', ' ').split()
    if nodes in (['all'], ['none']):
        nodes = list(known) if nodes == ['all'] else []
    elif not nodes or not set(nodes) <= set(known):
        raise refuse('nodes', f'some of {", ".join(known)}, separated by commas; all; or none')

    namespace = '/' + texts['namespace'].strip('/') if texts['namespace'].strip('/') else ''
    if not re.fullmatch(r'(/[A-Za-z][A-Za-z0-9_]*)*', namespace):
        raise refuse('namespace', 'letters, digits and underscores, beginning with a letter, such '
                                  'as arm_1 or cell/left')

    full = {'nodes': ','.join(nodes), 'namespace': namespace}
    # The command line takes no empty argument.
    if texts.get('cell_file') == 'none':
        full['cell_file'] = ''
    if 'bag' in texts:
        bag = Path(texts['bag']).expanduser().absolute()
        if not texts['bag'] or not bag.exists():
            raise refuse('bag', 'an existing rosbag2 folder or file, as in bag:=my_bag')
        full['bag'] = str(bag)
    for name in ('robot', 'params_file', 'controllers_file', 'truth_file', 'cell_file'):
        text = texts.get(name, '')
        if text and (name, text) not in (
                ('truth_file', 'none'), ('cell_file', 'none'), ('cell_file', 'reference')):
            path = Path(text).expanduser().absolute()
            if not path.is_file():
                raise refuse(name, f'an existing file; {path} does not exist')
            full[name] = str(path)
    if 'params_file' in full:
        _check_parameter_file(full['params_file'])

    words = re.sub(r'"[^"]*"|\'[^\']*\'', '', texts['robot_args']).split()
    if not all(re.match(r'\w+:=', word) for word in words):
        raise refuse('robot_args', 'name:=value pairs separated by spaces, values with spaces in '
                                   'quotes')
    for name in ('real_time_factor', 'rate'):
        if not re.fullmatch(r'\d+\.?\d*|\.\d+', texts.get(name, '1')):
            raise refuse(name, 'a number that is not negative')
    if texts.get('controller') == 'real' and texts['hardware'] != 'sim':
        raise refuse('controller', 'simulated with any hardware but sim: mock, gazebo and real '
                                   'arms have their own controllers')
    if texts['rviz'].lower() == 'true':
        require(('rviz2',), 'rviz:=true')
    return full


def _check_parameter_file(file: str) -> None:
    """Raise a ConfigurationError if ROS does not accept the file."""
    # First of all: ROS would wait for a named pipe.
    text = read_text(Path(file), 'parameter file')
    context = Context()
    try:
        context.init(args=['--ros-args', '--params-file', file], initialize_logging=False)
    except RuntimeError as error:
        reason = re.sub(r', at \S+:\d+', '', str(error).rpartition('Error: ')[2])
        raise ConfigurationError(
            f'Launch argument params_file: {file} is not a parameter file: '
            f"{' '.join(reason.split())}. Expected '<node>:' and 'ros__parameters:' below it, "
            'as in config/<node>.yaml.') from error
    context.shutdown()
    sections = [str(key).rpartition('/')[2] for key in yaml.safe_load(text) or ()]
    # The simulated arm has a section in parameter files, too.
    known = (*registry.nodes(), 'sim_arm')
    for name in sections:
        near = nearest_name(name, known, 0.75)
        if near and name not in known:
            raise ConfigurationError(
                f"Launch argument params_file: {file} has a section for '{name}', but no node of "
                f'this name is started{near}. Correct the section.')


def is_installed(package: str) -> bool:
    """Return whether a sourced workspace has a ROS package."""
    try:
        return bool(has_resource('packages', package))
    # The index raises OSError if no AMENT_PREFIX_PATH is set.
    except OSError:
        return False


def require(packages: Iterable[str], purpose: str) -> None:
    """Raise a ConfigurationError that names all packages that are not installed."""
    missing = [name for name in dict.fromkeys(packages) if not is_installed(name)]
    if missing:
        debian = ' '.join(f'ros-$ROS_DISTRO-{name.replace("_", "-")}' for name in missing)
        raise ConfigurationError(
            f'{purpose} needs {", ".join(missing)}, which no sourced workspace has. Install '
            f'them (sudo apt install {debian}) or source the workspace that has them.')


def controllers(control: str, file: str, urdf: str) -> list[str]:
    """Return the names of the controllers to spawn.

    Args:
        control: Hardware of the ``<ros2_control>`` block: ``mock``, ``gazebo`` or ``topic``.
        file: A ROS parameter file; the controller manager's key may have any namespace.
        urdf: URDF text of the arm.

    Raises:
        ConfigurationError: If the file names no controller, the arm has no ``<ros2_control>``
            block, or a package is missing.

    """
    packages = {
        name: values['type'].partition('/')[0] for name, values in _manager_parameters(file)
        if isinstance(values, dict) and isinstance(values.get('type'), str)}
    if not packages:
        raise ConfigurationError(
            f'controllers_file {file} names no controller: expected controller_manager → '
            'ros__parameters → '
            '<controller> → type, as in config/controllers.yaml.')
    packages = {name: package for name, package in packages.items()
                if package not in _WITHOUT.get(control, ())}
    purpose = 'controller:=real' if control == 'topic' else f'hardware:={control}'
    require((*_PACKAGES, *_OWN_PACKAGES[control], *packages.values()), purpose)
    if ElementTree.fromstring(urdf).find('ros2_control') is None:
        raise ConfigurationError(
            f'The URDF has no <ros2_control> block for {purpose}. Add one, as in '
            'urdf/robocal_arm.urdf.xacro, or enable it by an argument of the xacro file in '
            'robot_args.')
    return list(packages)


def update_rate(file: str) -> float:
    """Return the rate of the controller manager in a ROS parameter file [Hz].

    Raises:
        ConfigurationError: If the file is no parameter file, or names no rate.

    """
    for name, value in _manager_parameters(file):
        if name == 'update_rate' and isinstance(value, (int, float)):
            return float(value)
    raise ConfigurationError(
        f'controllers_file {file} names no rate: expected controller_manager → ros__parameters → '
        'update_rate, as in config/controllers.yaml.')


def _manager_parameters(file: str) -> list[tuple[str, object]]:
    """Return names and values of the controller manager's parameters in a file."""
    try:
        content = yaml.safe_load(read_text(Path(file), 'parameter file of controllers'))
    except (FileFormatError, yaml.YAMLError) as error:
        raise ConfigurationError(
            f'controllers_file {file} is not a parameter file: {error}') from error
    sections = content.items() if isinstance(content, dict) else ()
    return [
        (str(name), value) for key, section in sections
        if str(key).rpartition('/')[2] == 'controller_manager' and isinstance(section, dict)
        for name, value in (section.get('ros__parameters') or {}).items()]


def gazebo_bridges(urdf: str) -> list[str]:
    """Return the rules of ros_gz_bridge for the F/T sensors and IMUs in a URDF text."""
    return [f"{sensor.findtext('topic')}@{_BRIDGES[sensor.get('type', '')]}"
            for sensor in ElementTree.fromstring(urdf).iterfind('gazebo/sensor')
            if sensor.findtext('topic') and sensor.get('type') in _BRIDGES]


def description_in(bag: str, namespace: str, *, needed: bool) -> str:
    """Return the URDF text in a bag, empty if it has none and none is needed.

    Args:
        bag: A rosbag2 folder or file.
        namespace: Absolute namespace of the arm, empty for the root.
        needed: Whether no other URDF is given.

    Raises:
        ConfigurationError: If the namespace has no joint states, or lacks a needed URDF.
        FileFormatError: If the bag cannot be read.

    """
    with Bag(Path(bag)) as opened:
        for name, kind, wanted, remedy in (
                ('joint_states', JOINT_STATE, True, 'Set the argument namespace to that of the '
                 'arm, or record joint_states too.'),
                ('robot_description', STRING, needed,
                 'Give the arm with robot:=, a URDF or xacro file.')):
            topic = f'{namespace}/{name}'
            there = opened.topics.get(topic) == kind and opened.counts[topic]
            if wanted and not there:
                raise ConfigurationError(
                    f"Bag '{opened.name}' has no {kind} on {topic}. It has "
                    f'{", ".join(sorted(opened.topics)) or "no topics"}. {remedy}')
        return str(next(opened.messages(topic)).data) if there else ''
