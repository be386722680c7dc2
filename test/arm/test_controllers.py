# SPDX-License-Identifier: Apache-2.0
"""The ros2_control files: names that the controllers know, that fit the URDF, and each other.

What a controller accepts was read from ros2_control 5.16 and ros2_controllers 5.17 (Kilted), and
is the same in 4.46 and 4.42 (Jazzy).
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import xacro
import yaml
from rclpy.node import Node
from support.ros_rig import ROOT

pytestmark = pytest.mark.usefixtures('ros')

FILE = ROOT / 'config' / 'controllers.yaml'
SENSORS = {
    'force_torque_sensor_broadcaster/ForceTorqueSensorBroadcaster': ('~/wrench', [
        'force.x', 'force.y', 'force.z', 'torque.x', 'torque.y', 'torque.z']),
    'imu_sensor_broadcaster/IMUSensorBroadcaster': ('~/imu', [
        *(f'orientation.{axis}' for axis in 'xyzw'),
        *(f'angular_velocity.{axis}' for axis in 'xyz'),
        *(f'linear_acceleration.{axis}' for axis in 'xyz')]),
}
OTHERS = {
    'joint_state_broadcaster/JointStateBroadcaster',
    'joint_trajectory_controller/JointTrajectoryController',
}
# Names and types of the parameters that are used, as the packages declare them.
DECLARED: dict[str, dict[str, type]] = {
    'controller_manager': {'update_rate': int},
    'joint_trajectory_controller': {
        'joints': list, 'command_interfaces': list, 'state_interfaces': list,
        'constraints.goal_time': float, 'constraints.stopped_velocity_tolerance': float,
        **{f'constraints.joint_{n}.{kind}': float for n in range(1, 7)
           for kind in ('trajectory', 'goal')}},
    'broadcaster': {'sensor_name': str, 'frame_id': str},
}
# What every node has.
OWN = {'use_sim_time', 'start_type_description_service'}


class Controller(NamedTuple):
    """A controller that the manager is told of: its name, and its plugin, package/Class."""

    name: str
    type: str


CONTROLLERS = [
    Controller(name, values['type'])
    for name, values in yaml.safe_load(FILE.read_text(encoding='utf-8'))[
        '/**/controller_manager']['ros__parameters'].items()
    if isinstance(values, dict)]
BROADCASTERS = [item for item in CONTROLLERS if item.type in SENSORS]


def node_with_file(name: str, *arguments: str) -> Node:
    """A node of a controller's name, in an arm's namespace, that takes what the file gives it."""
    return Node(name, namespace='left', use_global_arguments=False,
                automatically_declare_parameters_from_overrides=True,
                cli_args=['--ros-args', '--params-file', str(FILE), *arguments])


def parameters(name: str) -> dict[str, Any]:
    node = node_with_file(name)
    try:
        return {key: value.value for key, value in node.get_parameters_by_prefix('').items()
                if key not in OWN}
    finally:
        node.destroy_node()


@pytest.fixture(scope='module')
def mock() -> ElementTree.Element:
    """The URDF that hardware:=mock gives to the controller manager."""
    path = str(ROOT / 'urdf' / 'robocal_arm.urdf.xacro')
    return ElementTree.fromstring(xacro.process_file(path, mappings={'hardware': 'mock'}).toxml())


def interfaces(element: ElementTree.Element, kind: str) -> list[str]:
    return [str(item.get('name')) for item in element.findall(f'{kind}_interface')]


def blocks(mock: ElementTree.Element, kind: str) -> Iterator[ElementTree.Element]:
    yield from mock.iterfind(f'ros2_control/{kind}')


def test_the_manager_knows_every_controller_in_every_namespace() -> None:
    found = parameters('controller_manager')
    types = {key.removesuffix('.type'): value for key, value in found.items()
             if key.endswith('.type')}
    assert types == {item.name: item.type for item in CONTROLLERS}
    assert set(types.values()) == set(SENSORS) | OTHERS
    plain = {key: value for key, value in found.items() if '.' not in key}
    assert {key: type(value) for key, value in plain.items()} == DECLARED['controller_manager']


@pytest.mark.parametrize('controller', CONTROLLERS, ids=lambda item: item.name)
def test_a_controller_gets_parameters_that_it_declares(controller: Controller) -> None:
    declared = DECLARED.get(
        controller.name, DECLARED['broadcaster'] if controller.type in SENSORS else {})
    found = parameters(controller.name)
    assert {key: type(value) for key, value in found.items()} == declared


def test_the_trajectory_controller_fits_the_hardware(mock: ElementTree.Element) -> None:
    found = parameters('joint_trajectory_controller')
    assert found['joints'] == [joint.get('name') for joint in blocks(mock, 'joint')]
    for joint in blocks(mock, 'joint'):
        assert set(found['command_interfaces']) <= set(interfaces(joint, 'command'))
        assert set(found['state_interfaces']) <= set(interfaces(joint, 'state'))


@pytest.mark.parametrize('controller', BROADCASTERS, ids=lambda item: item.name)
def test_a_broadcaster_fits_its_sensor(mock: ElementTree.Element, controller: Controller) -> None:
    found = parameters(controller.name)
    sensors = {sensor.get('name'): sensor for sensor in blocks(mock, 'sensor')}
    assert interfaces(sensors[found['sensor_name']], 'state') == SENSORS[controller.type][1]
    assert found['frame_id'] in {link.get('name') for link in mock.iter('link')}


def test_every_sensor_has_a_broadcaster(mock: ElementTree.Element) -> None:
    served = {parameters(item.name)['sensor_name'] for item in BROADCASTERS}
    assert served == {sensor.get('name') for sensor in blocks(mock, 'sensor')}


@pytest.mark.parametrize('controller', BROADCASTERS, ids=lambda item: item.name)
def test_a_broadcaster_publishes_where_the_nodes_listen(controller: Controller) -> None:
    """The same names as the simulated arm's: frame and /wrench or /imu."""
    manager = parameters('controller_manager')
    node = node_with_file(controller.name, *manager[f'{controller.name}.node_options_args'])
    topic, _ = SENSORS[controller.type]
    sensor = node.get_parameter('sensor_name').value
    assert node.resolve_topic_name(topic) == f'/left/{sensor}/{topic.removeprefix("~/")}'
    node.destroy_node()


def test_no_controller_has_a_sensors_name(mock: ElementTree.Element) -> None:
    """The manager takes an interface for a controller's when its prefix is a controller's name."""
    prefixes = {item.get('name') for kind in ('joint', 'sensor') for item in blocks(mock, kind)}
    assert not prefixes & {item.name for item in CONTROLLERS}


def test_the_mock_moves_and_its_sensors_read_numbers(mock: ElementTree.Element) -> None:
    values = {item.get('name'): item.text for item in mock.iterfind('ros2_control/hardware/param')}
    assert values == {'calculate_dynamics': 'true', 'mock_sensor_commands': 'true'}
    for sensor in blocks(mock, 'sensor'):
        for state in sensor.findall('state_interface'):
            assert float(state.findtext("param[@name='initial_value']", 'nan')) in (0.0, 1.0)


def test_effort_of_the_mock_is_asked_for() -> None:
    path = str(ROOT / 'urdf' / 'robocal_arm.urdf.xacro')
    for given, states in (('false', ['position', 'velocity']),
                          ('true', ['position', 'velocity', 'effort'])):
        root = ElementTree.fromstring(xacro.process_file(
            path, mappings={'hardware': 'mock', 'mock_effort': given}).toxml())
        for joint in blocks(root, 'joint'):
            assert interfaces(joint, 'state') == states
