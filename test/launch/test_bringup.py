# SPDX-License-Identifier: Apache-2.0
"""What is started for each hardware: packages, names, parameters, remappings, arguments."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robocal_ros.errors import ConfigurationError
from robocal_ros.launching.arguments import BringupArguments
from robocal_ros.launching.bringup import bringup
from robocal_ros.launching.processes import NODES, Inclusion, Item, Process, Remark

ROOT = Path(__file__).resolve().parents[2]
Make = Callable[..., BringupArguments]


def everything(_: str) -> bool:
    return True


def nothing(_: str) -> bool:
    return False


def process(items: list[Item], executable: str) -> Process:
    (found,) = [item for item in items
                if isinstance(item, Process) and item.executable == executable]
    return found


def values(item: Process) -> dict[str, Any]:
    """Return the parameter values that win over the files'."""
    last = item.parameters[-1]
    assert not isinstance(last, str)
    return dict(last)


def control(urdf: str) -> ElementTree.Element | None:
    return ElementTree.fromstring(urdf).find('ros2_control')


@pytest.mark.parametrize('hardware', ['sim', 'mock', 'gazebo', 'real'])
def test_the_nodes_are_lifecycle_nodes_in_the_namespace(
    bringup_arguments: Make, hardware: str, tmp_path: Path
) -> None:
    file = tmp_path / 'mine.yaml'
    file.touch()
    items = bringup(bringup_arguments(
        hardware=hardware, namespace='left', params_file=str(file)), everything)
    for name in NODES:
        node = process(items, name)
        assert (node.package, node.name) == ('robocal_ros', name)
        assert node.namespace == '/left'
        assert node.lifecycle
        assert node.parameters[0] == str(file)
        assert values(node)['autostart'] is True
        assert values(node)['use_sim_time'] is (hardware in ('sim', 'gazebo'))
    assert all(item.namespace == '/left' for item in items if isinstance(item, Process))


def test_only_the_named_nodes(bringup_arguments: Make) -> None:
    items = bringup(bringup_arguments(hardware='real', nodes='leveling'), nothing)
    assert [item.name for item in items if isinstance(item, Process)] == ['leveling']


def test_without_a_parameter_file_there_is_none(bringup_arguments: Make) -> None:
    items = bringup(bringup_arguments(hardware='real', nodes='leveling'), nothing)
    assert len(process(items, 'leveling').parameters) == 1


def test_the_simulated_arm(bringup_arguments: Make) -> None:
    items = bringup(bringup_arguments(hardware='sim', real_time_factor='0.0'), everything)
    arm = process(items, 'sim_arm')
    told = values(arm)
    assert arm.required
    assert told['real_time_factor'] == 0.0
    assert told['cell_file'].endswith('config/sim/reference_cell.yaml')
    assert told['robot_description'] == values(process(items, NODES[0]))['robot_description']
    assert control(told['robot_description']) is None
    assert process(items, 'robot_state_publisher').name == 'robot_state_publisher'


def test_the_simulated_arm_needs_no_other_package(bringup_arguments: Make) -> None:
    items = bringup(bringup_arguments(hardware='sim'), nothing)
    assert {item.package for item in items if isinstance(item, Process)} == {'robocal_ros'}
    (remark,) = [item for item in items if isinstance(item, Remark)]
    assert 'robot_state_publisher is not installed' in remark.text


def test_two_simulated_arms_have_two_clocks(bringup_arguments: Make) -> None:
    items = bringup(bringup_arguments(hardware='sim', namespace='left', rviz='true'), everything)
    for item in items:
        assert isinstance(item, Process)
        assert ('/clock', 'clock') in item.remappings, item.executable


def test_one_clock_for_everything_else(bringup_arguments: Make) -> None:
    for hardware in ('mock', 'gazebo', 'real'):
        for item in bringup(bringup_arguments(hardware=hardware, rviz='true'), everything):
            if isinstance(item, Process):
                assert '/clock' not in dict(item.remappings)


def test_frames_stay_in_the_namespace(bringup_arguments: Make) -> None:
    items = bringup(bringup_arguments(hardware='mock', namespace='left', rviz='true'), everything)
    for executable in ('robot_state_publisher', 'rviz2'):
        remappings = dict(process(items, executable).remappings)
        assert remappings == {'/tf': 'tf', '/tf_static': 'tf_static'}


def test_the_mock(bringup_arguments: Make) -> None:
    items = bringup(bringup_arguments(hardware='mock', namespace='left'), everything)
    manager = process(items, 'ros2_control_node')
    assert manager.package == 'controller_manager'
    assert manager.required
    assert manager.parameters[0] == str(ROOT / 'config' / 'controllers.yaml')
    # Controllers inherit the manager's remappings, and it warns of them.
    assert manager.remappings == ()
    spawner = process(items, 'spawner')
    assert spawner.arguments[:2] == ('joint_state_broadcaster', 'joint_trajectory_controller')
    assert 'ft_wrist_broadcaster' in spawner.arguments
    assert 'imu_flange_broadcaster' in spawner.arguments
    assert spawner.arguments[-2:] == ('--controller-manager', 'controller_manager')
    block = control(values(process(items, 'robot_state_publisher'))['robot_description'])
    assert block is not None
    assert block.findtext('hardware/plugin') == 'mock_components/GenericSystem'


def test_gazebo(bringup_arguments: Make) -> None:
    items = bringup(bringup_arguments(hardware='gazebo', namespace='left'), everything)
    (world,) = [item for item in items if isinstance(item, Inclusion)]
    assert world.package == 'ros_gz_sim'
    path = Path(world.arguments['gz_args'].removeprefix('-r '))
    systems = {item.get('name') for item in ElementTree.parse(path).iter('plugin')}
    assert {'gz::sim::systems::Physics', 'gz::sim::systems::ForceTorque',
            'gz::sim::systems::Imu', 'gz::sim::systems::UserCommands'} <= systems
    assert process(items, 'create').arguments[:2] == ('-topic', '/left/robot_description')
    bridged = process(items, 'parameter_bridge').arguments
    assert '/clock@rosgraph_msgs/msg/Clock[gz.msgs.Clock' in bridged
    assert '/left/ft_wrist/wrench@geometry_msgs/msg/WrenchStamped[gz.msgs.Wrench' in bridged
    assert '/left/imu_flange/imu@sensor_msgs/msg/Imu[gz.msgs.IMU' in bridged
    assert process(items, 'spawner').arguments[:3] == (
        'joint_state_broadcaster', 'joint_trajectory_controller', '--controller-manager')
    urdf = values(process(items, 'robot_state_publisher'))['robot_description']
    plugin = ElementTree.fromstring(urdf).find('gazebo/plugin')
    assert plugin is not None
    assert plugin.findtext('parameters') == str(ROOT / 'config' / 'controllers.yaml')
    assert plugin.findtext('ros/namespace') == '/left'


def test_a_real_arm_has_its_own_driver(bringup_arguments: Make) -> None:
    items = bringup(bringup_arguments(hardware='real'), nothing)
    assert {item.executable for item in items if isinstance(item, Process)} == set(NODES)
    for name in NODES:
        assert 'robot_description' not in values(process(items, name))


def test_a_real_arm_may_be_told_its_description(bringup_arguments: Make) -> None:
    file = ROOT / 'test' / 'data' / 'two_joint.urdf'
    items = bringup(bringup_arguments(hardware='real', robot=str(file)), nothing)
    assert '<robot' in values(process(items, NODES[0]))['robot_description']


@pytest.mark.parametrize(('hardware', 'missing'), [
    ('mock', ('controller_manager', 'robot_state_publisher', 'imu_sensor_broadcaster',
              'joint_trajectory_controller', 'force_torque_sensor_broadcaster')),
    ('gazebo', ('ros_gz_sim', 'ros_gz_bridge', 'gz_ros2_control', 'robot_state_publisher')),
])
def test_missing_packages_are_named_all_at_once(
    bringup_arguments: Make, hardware: str, missing: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigurationError, match='apt install') as refused:
        bringup(bringup_arguments(hardware=hardware), nothing)
    for name in missing:
        assert name in str(refused.value)
        assert f'ros-$ROS_DISTRO-{name.replace("_", "-")}' in str(refused.value)


def test_rviz_opens_the_displays(bringup_arguments: Make) -> None:
    items = bringup(bringup_arguments(hardware='real', rviz='true', namespace='left'), everything)
    rviz = process(items, 'rviz2')
    assert rviz.arguments == ('-d', str(ROOT / 'config' / 'robocal.rviz'))
    assert Path(rviz.arguments[1]).is_file()
    with pytest.raises(ConfigurationError, match='rviz:=true needs rviz2'):
        bringup(bringup_arguments(hardware='real', rviz='true'), nothing)


def test_a_robot_without_control_block_cannot_be_mocked(bringup_arguments: Make) -> None:
    file = ROOT / 'test' / 'data' / 'two_joint.urdf'
    with pytest.raises(ConfigurationError, match='no <ros2_control> block for hardware:=mock'):
        bringup(bringup_arguments(hardware='mock', robot=str(file)), everything)


@pytest.mark.parametrize('text', ['<robot', '<model/>', '<robot><xacro:nothing/></robot>', ''])
def test_a_file_that_is_no_robot_is_refused(
    bringup_arguments: Make, tmp_path: Path, text: str
) -> None:
    file = tmp_path / 'arm.urdf.xacro'
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=re.escape(str(file))):
        bringup(bringup_arguments(robot=str(file)), everything)


@pytest.mark.parametrize('text', ['controllers', '/**: {ros__parameters: {a: 1}}', 'a: [', ''])
def test_a_file_that_names_no_controllers_is_refused(
    bringup_arguments: Make, tmp_path: Path, text: str
) -> None:
    file = tmp_path / 'controllers.yaml'
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=re.escape(str(file))):
        bringup(bringup_arguments(hardware='mock', controllers_file=str(file)), everything)
