# SPDX-License-Identifier: Apache-2.0
"""What bringup.launch.py starts for each hardware, and what it refuses."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from support.launch_stand_in import Context, LifecycleNode

from robocal_ros import registry
from robocal_ros.errors import ConfigurationError, RobocalError
from robocal_ros.payload import PAYLOAD, PayloadParameters

ROOT = Path(__file__).resolve().parents[2]
CONFIG, TWO_JOINTS = ROOT / 'config', ROOT / 'test' / 'data' / 'two_joint.urdf'
Launch = Callable[..., Context]

NODES = tuple(registry.nodes())


def control(urdf: str) -> ElementTree.Element | None:
    return ElementTree.fromstring(urdf).find('ros2_control')


@pytest.mark.parametrize('hardware', ['sim', 'mock', 'gazebo', 'real'])
def test_the_nodes_are_lifecycle_nodes_in_the_namespace(
    bringup: Launch, hardware: str, tmp_path: Path
) -> None:
    file = tmp_path / 'mine.yaml'
    file.write_text('/**/leveling: {ros__parameters: {speed_scale: 0.3}}')
    done = bringup(hardware=hardware, namespace='left', params_file=str(file))
    for name in NODES:
        node = done.process(name)
        assert isinstance(node.action, LifecycleNode)
        assert (node.package, node.name) == ('robocal_ros', name)
        assert node.files == [str(file)]
        assert node.arguments == ['--enclave', f'/{name}']
        assert node.values['autostart'] is True
        assert node.values['use_sim_time'] is (hardware in ('sim', 'gazebo'))
    assert {item.namespace for item in done.started} == {'/left'}


@pytest.mark.parametrize(('text', 'expected'), [
    ('leveling', ['leveling']), ('leveling, wrench_observer leveling',
                                 ['wrench_observer', 'leveling']),
    ('all', list(NODES)), ('none', [])])
def test_only_the_named_nodes(bringup: Launch, text: str, expected: list[str]) -> None:
    done = bringup(hardware='real', nodes=text)
    assert [item.name for item in done.started] == expected


@pytest.mark.parametrize(('text', 'expected'), [
    ('arm_1', '/arm_1'), ('/arm_1/', '/arm_1'), ('', ''), ('/', '')])
def test_a_namespace_is_absolute(bringup: Launch, text: str, expected: str) -> None:
    done = bringup(hardware='real', nodes='leveling', namespace=text)
    assert done.process('leveling').namespace == expected


def test_without_a_parameter_file_the_defaults_hold(bringup: Launch) -> None:
    real, done = bringup(hardware='real'), bringup()
    for name in NODES:
        assert real.process(name).files == [str(CONFIG / f'{name}.yaml')]
        assert done.process(name).files == [str(CONFIG / 'sim' / 'nodes.yaml')]
    assert done.process('sim_arm').files == [str(CONFIG / 'sim' / 'sim_arm.yaml')]


def test_what_the_arguments_say_reaches_the_nodes(bringup: Launch) -> None:
    told = bringup(hardware='real', use_sim_time='True', autostart='false').process('leveling')
    assert told.values == {'robot_description': '', 'use_sim_time': True, 'autostart': False}
    told = bringup(hardware='sim', use_sim_time='false').process('leveling')
    assert told.values['use_sim_time'] is False


def test_the_simulated_arm(bringup: Launch) -> None:
    done = bringup(hardware='sim', real_time_factor='0')
    arm = done.process('sim_arm')
    assert arm.values['real_time_factor'] == 0.0
    assert isinstance(arm.values['real_time_factor'], float)
    assert arm.values['truth_file'] == ''
    assert arm.values['cell_file'] == str(CONFIG / 'sim' / 'reference_cell.yaml')
    assert arm.values['robot_description'] == done.process(NODES[0]).values['robot_description']
    assert control(arm.values['robot_description']) is None
    assert done.process('robot_state_publisher').name == 'robot_state_publisher'


def test_truth_and_noise_are_chosen(bringup: Launch, tmp_path: Path) -> None:
    file = tmp_path / 'mine.yaml'
    file.touch()
    arm = bringup(truth_file='none', cell_file='none').process('sim_arm')
    assert (arm.values['truth_file'], arm.values['cell_file']) == ('none', '')
    arm = bringup(truth_file=str(file), cell_file=str(file)).process('sim_arm')
    assert (arm.values['truth_file'], arm.values['cell_file']) == (str(file), str(file))


@pytest.mark.parametrize(('hardware', 'executable'), [
    ('sim', 'sim_arm'), ('mock', 'ros2_control_node'), ('gazebo', 'parameter_bridge')])
def test_without_the_arm_all_ends(bringup: Launch, hardware: str, executable: str) -> None:
    done = bringup(hardware=hardware)
    ending = done.process(executable).action.options['on_exit']
    done.visit([ending])
    assert done.events == [ending]
    assert executable in ending.options['reason'] or executable == 'parameter_bridge'
    # Nobody needs a second shutdown.
    assert not ending.options['condition'](SimpleNamespace(is_shutdown=True))


@pytest.mark.parametrize('hardware', ['mock', 'gazebo'])
def test_controllers_that_cannot_be_loaded_end_the_launch(bringup: Launch, hardware: str) -> None:
    done = bringup(hardware=hardware)
    ended = done.process('spawner').action.options['on_exit']
    failure = ended(SimpleNamespace(returncode=1), done)
    assert 'spawner of the controllers failed (exit code 1)' in failure.options['reason']
    assert ended(SimpleNamespace(returncode=0), done) is None
    # An interrupted spawner, on Ctrl-C, is no failure of its own.
    assert ended(SimpleNamespace(returncode=-2), SimpleNamespace(is_shutdown=True)) is None


def test_the_simulated_arm_needs_no_other_package(bringup: Launch) -> None:
    done = bringup(installed=False, hardware='sim')
    assert {item.package for item in done.started} == {'robocal_ros'}
    (said,) = done.said
    assert 'robot_state_publisher is not installed' in said


def test_two_simulated_arms_have_two_clocks(bringup: Launch) -> None:
    for item in bringup(hardware='sim', namespace='left', rviz='true').started:
        assert item.remappings['/clock'] == 'clock', item.executable


@pytest.mark.parametrize('hardware', ['mock', 'gazebo', 'real'])
def test_one_clock_for_everything_else(bringup: Launch, hardware: str) -> None:
    for item in bringup(hardware=hardware, rviz='true').started:
        assert item.remappings.get('/clock', '/clock') == '/clock'


def test_frames_stay_in_the_namespace(bringup: Launch) -> None:
    done = bringup(hardware='mock', namespace='left', rviz='true')
    for executable in ('robot_state_publisher', 'rviz2'):
        remappings = done.process(executable).remappings
        assert (remappings['/tf'], remappings['/tf_static']) == ('tf', 'tf_static')


def test_the_mock(bringup: Launch) -> None:
    done = bringup(hardware='mock', namespace='left')
    manager = done.process('ros2_control_node')
    assert manager.package == 'controller_manager'
    assert manager.files == [str(CONFIG / 'controllers.yaml')]
    assert manager.values == {'use_sim_time': False}
    # Controllers inherit the manager's remappings, and it warns of them.
    assert manager.remappings == {}
    spawner = done.process('spawner').arguments
    assert spawner[:2] == ['joint_state_broadcaster', 'joint_trajectory_controller']
    assert {'ft_wrist_broadcaster', 'imu_flange_broadcaster'} <= set(spawner)
    assert spawner[-2:] == ['--controller-manager', 'controller_manager']
    block = control(done.process('robot_state_publisher').values['robot_description'])
    assert block is not None
    assert block.findtext('hardware/plugin') == 'mock_components/GenericSystem'


def test_the_simulated_arm_under_the_real_controller(bringup: Launch, tmp_path: Path) -> None:
    done = bringup(controller='real', namespace='left')
    manager, arm = done.process('ros2_control_node'), done.process('sim_arm')
    # The arm's clock wakes it in every cycle.
    assert manager.values == {'use_sim_time': True}
    assert manager.remappings == {'/clock': 'clock'}
    assert arm.values['command_rate'] == 500.0
    # The arm publishes all states itself.
    assert done.process('spawner').arguments == [
        'joint_trajectory_controller', '--controller-manager', 'controller_manager']
    block = control(arm.values['robot_description'])
    assert block is not None
    assert block.findtext("hardware/param[@name='joint_commands_topic']") == '/left/joint_commands'
    assert block.findtext("hardware/param[@name='joint_states_topic']") == '/left/joint_states'
    assert bringup().process('sim_arm').values['command_rate'] == 0.0

    file = tmp_path / 'controllers.yaml'
    text = (CONFIG / 'controllers.yaml').read_text()
    file.write_text(text.replace('update_rate: 500', 'update_rate: 250'))
    done = bringup(controller='real', controllers_file=str(file))
    assert done.process('sim_arm').values['command_rate'] == 250.0
    file.write_text(text.replace('update_rate: 500', ''))
    with pytest.raises(ConfigurationError, match='names no rate: expected controller_manager'):
        bringup(controller='real', controllers_file=str(file))


def test_gazebo(bringup: Launch) -> None:
    done = bringup(hardware='gazebo', namespace='left')
    ((world, arguments),) = done.included
    assert world == '/share/ros_gz_sim/launch/gz_sim.launch.py'
    path = Path(arguments['gz_args'].removeprefix('-r '))
    systems = {item.get('name') for item in ElementTree.parse(path).iter('plugin')}
    assert {'gz::sim::systems::Physics', 'gz::sim::systems::ForceTorque',
            'gz::sim::systems::Imu', 'gz::sim::systems::UserCommands'} <= systems
    assert done.process('create').arguments == [
        '-topic', '/left/robot_description', '-name', 'arm', '-allow_renaming', 'true']
    bridged = done.process('parameter_bridge').arguments
    assert '/clock@rosgraph_msgs/msg/Clock[gz.msgs.Clock' in bridged
    assert '/left/ft_wrist/wrench@geometry_msgs/msg/WrenchStamped[gz.msgs.Wrench' in bridged
    assert '/left/imu_flange/imu@sensor_msgs/msg/Imu[gz.msgs.IMU' in bridged
    assert done.process('spawner').arguments[:3] == [
        'joint_state_broadcaster', 'joint_trajectory_controller', '--controller-manager']
    urdf = done.process('robot_state_publisher').values['robot_description']
    plugin = ElementTree.fromstring(urdf).find('gazebo/plugin')
    assert plugin is not None
    assert plugin.findtext('parameters') == str(CONFIG / 'controllers.yaml')
    assert plugin.findtext('ros/namespace') == '/left'


def test_a_real_arm_has_its_own_driver(bringup: Launch) -> None:
    done = bringup(installed=False, hardware='real')
    assert {item.executable for item in done.started} == set(NODES)
    # Empty is the topic.
    assert {item.values['robot_description'] for item in done.started} == {''}
    assert done.said == []


def test_a_real_arm_may_be_told_its_description(bringup: Launch) -> None:
    done = bringup(hardware='real', robot=str(TWO_JOINTS))
    assert '<robot' in done.process(NODES[0]).values['robot_description']


def test_arguments_reach_the_xacro_file(bringup: Launch) -> None:
    done = bringup(robot_args='prefix:=left_ mount_rpy:="0 0.5 0"')
    joint = ElementTree.fromstring(done.process('leveling').values['robot_description']).find(
        "joint[@name='left_base_joint']/origin")
    assert joint is not None
    assert joint.get('rpy') == '0 0.5 0'


@pytest.mark.parametrize(('hardware', 'missing'), [
    ('mock', ('controller_manager', 'robot_state_publisher', 'imu_sensor_broadcaster',
              'joint_trajectory_controller', 'force_torque_sensor_broadcaster')),
    ('gazebo', ('ros_gz_sim', 'ros_gz_bridge', 'gz_ros2_control', 'robot_state_publisher')),
])
def test_missing_packages_are_named_all_at_once(
    bringup: Launch, hardware: str, missing: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigurationError, match='apt install') as refused:
        bringup(installed=False, hardware=hardware)
    for name in missing:
        assert name in str(refused.value)
        assert f'ros-$ROS_DISTRO-{name.replace("_", "-")}' in str(refused.value)


def test_rviz_opens_the_displays(bringup: Launch) -> None:
    arguments = bringup(hardware='real', rviz='true').process('rviz2').arguments
    assert arguments == ['-d', str(CONFIG / 'robocal.rviz')]
    assert Path(arguments[1]).is_file()


@pytest.mark.parametrize('name', ['params_file', 'controllers_file'])
def test_a_file_without_end_is_refused_unread(bringup: Launch, tmp_path: Path, name: str) -> None:
    file = tmp_path / 'endless.yaml'
    with file.open('wb') as opened:
        opened.truncate(10**9)
    with pytest.raises(RobocalError, match='has 1000 MB; expected at most 16 MB'):
        bringup(hardware='mock', **{name: str(file)})


@pytest.mark.parametrize(('arguments', 'said'), [
    ({'nodes': 'leveling,payload'}, 'payload_identification, friction_identification'),
    ({'nodes': ''}, '; all; or none'),
    ({'namespace': 'arm 1'}, 'such as arm_1 or cell/left'),
    ({'namespace': '1st'}, 'beginning with a letter'),
    ({'params_file': 'nowhere.yaml'}, 'an existing file; /'),
    ({'robot': '/nowhere.urdf'}, 'expected an existing file; /nowhere.urdf does not exist'),
    ({'controllers_file': 'nowhere.yaml'}, 'an existing file; '),
    ({'truth_file': 'nowhere.yaml'}, 'an existing file; '),
    ({'cell_file': 'nowhere.yaml'}, 'an existing file; '),
    ({'robot_args': 'ur_type=ur10e'}, 'name:=value'),
    ({'robot_args': 'a:="1 2" b'}, 'name:=value'),
    ({'real_time_factor': '-1'}, 'a number that is not negative'),
    ({'real_time_factor': 'fast'}, 'a number that is not negative'),
    # Other arms have their own controller.
    *(({'controller': 'real', 'hardware': hardware}, "Launch argument controller is 'real'")
      for hardware in ('mock', 'gazebo', 'real')),
    ({'controller': 'real', 'installed': False}, 'controller:=real needs .*joint_state_topic_'),
    ({'rviz': 'true', 'hardware': 'real', 'installed': False}, 'rviz:=true needs rviz2'),
    ({'hardware': 'mock', 'robot': str(TWO_JOINTS)}, 'no <ros2_control> block for hardware:=mock'),
])
def test_what_makes_no_sense_is_refused(
    bringup: Launch, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said) as refused:
        bringup(**arguments)
    assert next(iter(arguments)) in str(refused.value)


@pytest.mark.parametrize(('name', 'text', 'said'), [
    *(('controllers_file', text, 'controllers_file') for text in (
        'controllers', '/**: {ros__parameters: {a: 1}}', 'a: [', '')),
    *(('params_file', text, 'is not a parameter file: ') for text in (
        'a: [', 'payload_identification: {known_mass: 2.0}', '/**: {ros__parameters: }',
        '/**: {ros__parameters: {sensor_signs: [1, 1.0]}}')),
    ('params_file', '/**/payload_identificaton: {ros__parameters: {speed_scale: 0.3}}',
     "'payload_identification' is the nearest name"),
])
def test_a_file_that_cannot_be_used_is_named(
    bringup: Launch, tmp_path: Path, name: str, text: str, said: str
) -> None:
    file = tmp_path / 'mine.yaml'
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=said) as refused:
        bringup(hardware='mock', **{name: str(file)})
    told = str(refused.value)
    assert told.startswith((f'controllers_file {file} ', f'Launch argument params_file: {file} '))
    assert '.c:' not in told


@pytest.mark.parametrize(('name', 'text'), [
    ('hardware', 'simulation'), ('use_sim_time', 'yes'), ('autostart', '1'), ('rviz', '')])
def test_what_is_no_choice_is_refused(bringup: Launch, name: str, text: str) -> None:
    with pytest.raises(RuntimeError, match=f'"{name}" provided value "{text}"'):
        bringup(**{name: text})


def test_the_joint_states_may_be_on_another_topic(bringup: Launch) -> None:
    done = bringup(hardware='real', joint_states='franka/joint_states')
    assert {done.process(name).remappings['joint_states'] for name in NODES} == {
        'franka/joint_states'}


def test_the_first_payload_of_the_default_launch_needs_no_mass(bringup: Launch) -> None:
    (file,) = bringup().process('payload_identification').files
    values = yaml.safe_load(Path(file).read_text())['/**/payload_identification']
    assert PAYLOAD.needs(PayloadParameters(**values['ros__parameters'])).wrenches
