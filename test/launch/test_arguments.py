# SPDX-License-Identifier: Apache-2.0
"""Launch arguments: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from robocal_ros.errors import ConfigurationError
from robocal_ros.launching.arguments import (
    BRINGUP,
    REPLAY,
    BringupArguments,
    ReplayArguments,
    namespace_of,
)
from robocal_ros.launching.processes import NODES

ROOT = Path(__file__).resolve().parents[2]
Make = Callable[..., BringupArguments]


def test_the_names_are_those_of_the_specification() -> None:
    assert {'robot', 'hardware', 'namespace', 'params_file', 'use_sim_time', 'autostart', 'rviz',
            'nodes'} <= {item.name for item in BRINGUP}
    assert {'bag', 'nodes', 'namespace', 'params_file'} <= {item.name for item in REPLAY}


def test_every_argument_is_described() -> None:
    for item in (*BRINGUP, *REPLAY):
        assert re.fullmatch(r'(?s)\S.{20,}\.', item.description), item.name


def test_the_capability_nodes_are_those_that_the_package_has() -> None:
    """Each has an executable in setup.py, so that launching it finds one."""
    setup = (ROOT / 'setup.py').read_text(encoding='utf-8')
    scripts = set(re.findall(r"'(\w+) = robocal_ros\.node\.", setup))
    assert scripts - {'sim_arm'} == set(NODES)


def test_defaults(bringup_arguments: Make) -> None:
    found = bringup_arguments()
    assert found.nodes == NODES
    assert found.use_sim_time
    assert found.autostart
    assert not found.rviz
    assert found.robot.namespace == ''
    assert found.params_file == ''
    assert Path(found.cell_file).is_file()


@pytest.mark.parametrize(('hardware', 'simulated'), [
    ('sim', True), ('gazebo', True), ('mock', False), ('real', False)])
def test_simulated_time_follows_the_hardware(
    bringup_arguments: Make, hardware: str, simulated: bool
) -> None:
    assert bringup_arguments(hardware=hardware).use_sim_time is simulated
    assert bringup_arguments(hardware=hardware, use_sim_time='True').use_sim_time
    assert not bringup_arguments(hardware=hardware, use_sim_time='false').use_sim_time


@pytest.mark.parametrize('text', ['arm_1', '/arm_1', '/arm_1/'])
def test_a_namespace_is_absolute(text: str) -> None:
    assert namespace_of(text) == '/arm_1'


def test_the_root_is_no_namespace() -> None:
    assert namespace_of('') == namespace_of('/') == ''
    assert namespace_of('cell/left') == '/cell/left'


def test_some_nodes(bringup_arguments: Make) -> None:
    assert bringup_arguments(nodes='leveling').nodes == ('leveling',)
    assert bringup_arguments(nodes='leveling, wrench_observer leveling').nodes == (
        'leveling', 'wrench_observer')
    assert bringup_arguments(nodes='none').nodes == ()


def test_arguments_of_the_xacro_file(bringup_arguments: Make) -> None:
    found = bringup_arguments(robot_args='ur_type:=ur10e mount_rpy:="0 0.5 0"')
    assert found.robot.arguments == {'ur_type': 'ur10e', 'mount_rpy': '0 0.5 0'}


@pytest.mark.parametrize(('name', 'text', 'said'), [
    ('hardware', 'simulation', 'sim, mock, gazebo, real'),
    ('nodes', 'leveling,payload', 'payload_identification, friction_identification'),
    ('nodes', '', 'or all, or none'),
    ('namespace', 'arm 1', 'such as arm_1 or cell/left'),
    ('namespace', '1st', 'beginning with a letter'),
    ('params_file', 'nowhere.yaml', 'there is no file /'),
    ('robot', '/nowhere.urdf', 'there is no file /nowhere.urdf'),
    ('controllers_file', 'nowhere.yaml', 'there is no file'),
    ('truth_file', 'nowhere.yaml', 'there is no file'),
    ('cell_file', 'nowhere.yaml', 'there is no file'),
    ('robot_args', 'ur_type=ur10e', 'name:=value'),
    ('robot_args', 'a:="1', 'name:=value'),
    ('use_sim_time', 'yes', 'expected true or false'),
    ('autostart', '1', 'expected true or false'),
    ('rviz', '', 'expected true or false'),
    ('real_time_factor', '-1', 'a number of at least 0'),
    ('real_time_factor', 'fast', 'a number of at least 0'),
])
def test_what_makes_no_sense_is_refused(
    bringup_arguments: Make, name: str, text: str, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)) as refused:
        bringup_arguments(**{name: text})
    assert name in str(refused.value)


@pytest.mark.parametrize('text', [
    'a: [', 'payload_identification: {known_mass: 2.0}', '/**: {ros__parameters: }',
    '/**: {ros__parameters: {sensor_signs: [1, 1.0]}}'])
def test_what_no_node_could_read_is_refused(
    bringup_arguments: Make, replay_arguments: Callable[..., ReplayArguments], tmp_path: Path,
    text: str,
) -> None:
    file = tmp_path / 'mine.yaml'
    file.write_text(text)
    for make in (bringup_arguments, partial(replay_arguments, bag=str(tmp_path))):
        with pytest.raises(ConfigurationError, match='is no parameter file: ') as refused:
            make(params_file=str(file))
        assert f'Launch argument params_file: {file} ' in str(refused.value)
        assert '.c:' not in str(refused.value)
    file.write_text('/**/leveling: {ros__parameters: {speed_scale: 0.3}}')
    assert bringup_arguments(params_file=str(file)).params_file == str(file)


@pytest.mark.parametrize(('name', 'text', 'said'), [
    ('bag', '', 'bag:=my_bag'), ('bag', '/nowhere', 'there is no /nowhere'),
    ('rate', '0', 'a number of at least 0.01'),
])
def test_a_replay_that_makes_no_sense_is_refused(
    replay_arguments: Callable[..., ReplayArguments], tmp_path: Path, name: str, text: str,
    said: str,
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        replay_arguments(**{'bag': str(tmp_path), name: text})


@pytest.mark.parametrize('path', sorted((ROOT / 'launch').glob('*.py')), ids=lambda p: p.name)
def test_a_launch_file_decides_nothing(path: Path) -> None:
    """Its decisions are in the package, where they are tested without `launch`."""
    tree = ast.parse(path.read_text(encoding='utf-8'))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.If | ast.For | ast.IfExp)]
    assert 'generate_launch_description' in {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
