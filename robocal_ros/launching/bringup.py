# SPDX-License-Identifier: Apache-2.0
"""What ``bringup.launch.py`` starts: the arm, simulated, mocked or real, and the nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from robocal_ros.errors import ConfigurationError
from robocal_ros.launching import robot_file
from robocal_ros.launching.arguments import BringupArguments
from robocal_ros.launching.controllers import Controller, controllers_in
from robocal_ros.launching.processes import (
    CLOCK_IN_NAMESPACE,
    PACKAGE,
    TF_IN_NAMESPACE,
    Inclusion,
    Item,
    Process,
    Remapping,
    Remark,
    capability_nodes,
    is_installed,
    require,
)
from robocal_ros.resources import share_directory

_PUBLISHER = 'robot_state_publisher'
# In Gazebo these sensors come over a bridge, which needs nothing of gz_ros2_control.
_BRIDGED = ('force_torque_sensor_broadcaster', 'imu_sensor_broadcaster')
_MESSAGES = {
    'force_torque': 'geometry_msgs/msg/WrenchStamped[gz.msgs.Wrench',
    'imu': 'sensor_msgs/msg/Imu[gz.msgs.IMU',
}


def bringup(
    arguments: BringupArguments, installed: Callable[[str], bool] = is_installed
) -> list[Item]:
    """Return what to start.

    Args:
        arguments: What is asked for.
        installed: Tells whether a ROS package is there.

    Raises:
        ConfigurationError: If it can't be started, with what is missing.

    """
    urdf = description(arguments)
    items = _HARDWARE[arguments.hardware](arguments, urdf, installed)
    overrides: dict[str, Any] = {
        'use_sim_time': arguments.use_sim_time, 'autostart': arguments.autostart}
    if urdf:
        overrides['robot_description'] = urdf
    items += capability_nodes(
        arguments.nodes, arguments.robot.namespace, arguments.params_file, overrides,
        _clock(arguments))
    if arguments.rviz:
        items.append(rviz(arguments.robot.namespace, arguments.use_sim_time, installed,
                          _clock(arguments)))
    return items


def _clock(arguments: BringupArguments) -> tuple[Remapping, ...]:
    """Return where the clock is: every simulated arm has one of its own."""
    return CLOCK_IN_NAMESPACE if arguments.hardware == 'sim' else ()


def description(arguments: BringupArguments) -> str:
    """Return the URDF text, empty where the driver's is to be taken from its topic.

    Raises:
        ConfigurationError: If the file gives no robot, or not one that the hardware needs.

    """
    hardware, robot = arguments.hardware, arguments.robot
    if hardware == 'real' and not robot.file:
        return ''
    file = robot.file or robot_file.default_file()
    urdf = robot_file.urdf_text(file, {
        'hardware': hardware, 'controllers_file': arguments.controllers_file,
        'namespace': robot.namespace, **robot.arguments})
    if hardware in ('mock', 'gazebo') and not robot_file.has_control_block(urdf):
        raise ConfigurationError(
            f'{file} has no <ros2_control> block for hardware:={hardware}. Add one, or set the '
            "xacro argument that turns it on with robot_args; the package's own "
            'urdf/robocal_arm.urdf.xacro shows how.')
    return urdf


def rviz(
    namespace: str,
    use_sim_time: bool,
    installed: Callable[[str], bool],
    clock: tuple[Remapping, ...] = (),
) -> Process:
    """Return RViz on the package's displays.

    Args:
        namespace: Absolute namespace, empty for the root.
        use_sim_time: Whether it follows /clock.
        installed: Tells whether a ROS package is there.
        clock: Remapping of the clock.

    Raises:
        ConfigurationError: If RViz is not installed.

    """
    require(('rviz2',), 'rviz:=true', installed)
    return Process(
        'rviz2', 'rviz2', name='rviz', namespace=namespace,
        remappings=(*TF_IN_NAMESPACE, *clock),
        arguments=('-d', str(share_directory() / 'config' / 'robocal.rviz')),
        parameters=({'use_sim_time': use_sim_time},))


def _state_publisher(arguments: BringupArguments, urdf: str) -> Process:
    return Process(
        _PUBLISHER, _PUBLISHER, name=_PUBLISHER, namespace=arguments.robot.namespace,
        remappings=(*TF_IN_NAMESPACE, *_clock(arguments)),
        parameters=({'robot_description': urdf, 'use_sim_time': arguments.use_sim_time},))


def _spawner(arguments: BringupArguments, controllers: list[Controller]) -> Process:
    # The manager's name is relative: the spawner looks for it in its own namespace.
    return Process(
        'controller_manager', 'spawner', namespace=arguments.robot.namespace,
        arguments=(*(item.name for item in controllers),
                   '--controller-manager', 'controller_manager'))


def _sim(
    arguments: BringupArguments, urdf: str, installed: Callable[[str], bool]
) -> list[Item]:
    values: dict[str, Any] = {
        'robot_description': urdf, 'real_time_factor': arguments.real_time_factor,
        'cell_file': arguments.cell_file, 'truth_file': arguments.truth_file}
    files = (arguments.params_file,) if arguments.params_file else ()
    arm = Process(PACKAGE, 'sim_arm', name='sim_arm', namespace=arguments.robot.namespace,
                  parameters=(*files, values), remappings=_clock(arguments), required=True)
    if installed(_PUBLISHER):
        return [arm, _state_publisher(arguments, urdf)]
    return [arm, Remark(f'{_PUBLISHER} is not installed: nobody publishes /tf, which RViz needs. '
                        'The nodes do not.')]


def _mock(
    arguments: BringupArguments, urdf: str, installed: Callable[[str], bool]
) -> list[Item]:
    controllers = controllers_in(arguments.controllers_file)
    require((_PUBLISHER, 'controller_manager', *(item.package for item in controllers)),
            'hardware:=mock', installed)
    # The manager hears the robot's description on its topic, in its own namespace.
    manager = Process(
        'controller_manager', 'ros2_control_node', namespace=arguments.robot.namespace,
        parameters=(arguments.controllers_file, {'use_sim_time': arguments.use_sim_time}),
        required=True)
    return [_state_publisher(arguments, urdf), manager, _spawner(arguments, controllers)]


def _gazebo(
    arguments: BringupArguments, urdf: str, installed: Callable[[str], bool]
) -> list[Item]:
    controllers = [item for item in controllers_in(arguments.controllers_file)
                   if item.package not in _BRIDGED]
    require((_PUBLISHER, 'ros_gz_sim', 'ros_gz_bridge', 'gz_ros2_control', 'controller_manager',
             *(item.package for item in controllers)), 'hardware:=gazebo', installed)
    namespace = arguments.robot.namespace
    world = share_directory() / 'config' / 'gazebo' / 'world.sdf'
    bridged = ['/clock@rosgraph_msgs/msg/Clock[gz.msgs.Clock']
    bridged += [f'{sensor.topic}@{_MESSAGES[sensor.kind]}'
                for sensor in robot_file.gazebo_sensors(urdf)]
    return [
        Inclusion('ros_gz_sim', 'launch/gz_sim.launch.py', {'gz_args': f'-r {world}'}),
        _state_publisher(arguments, urdf),
        Process('ros_gz_sim', 'create', namespace=namespace,
                arguments=('-topic', f'{namespace}/robot_description', '-name', 'arm',
                           '-allow_renaming', 'true')),
        Process('ros_gz_bridge', 'parameter_bridge', name='gazebo_bridge', namespace=namespace,
                arguments=tuple(bridged), parameters=({'use_sim_time': True},), required=True),
        _spawner(arguments, controllers),
    ]


def _real(
    arguments: BringupArguments, urdf: str, installed: Callable[[str], bool]
) -> list[Item]:
    return []


_HARDWARE = {'sim': _sim, 'mock': _mock, 'gazebo': _gazebo, 'real': _real}
