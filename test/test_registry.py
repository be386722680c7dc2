# SPDX-License-Identifier: Apache-2.0
"""A capability is declared once: a further one, in a folder of the tests, is everywhere."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from std_msgs.msg import String
from support import ROOT
from support.parameter_files import documents, tables
from support.ros_rig import NodeRig, joint_state
from support.security_policies import used
from support.toy import TOY

from robocal_ros import launching, registry
from robocal_ros.cli.main import main
from robocal_ros.cli.record import own_topics
from robocal_ros.estimators import estimator
from robocal_ros.messages import qos
from robocal_ros.node import executables


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, '_CAPABILITIES', (*registry.capabilities(), TOY))


def test_names_are_used_once() -> None:
    capabilities = registry.capabilities()
    assert len(registry.nodes()) == len(capabilities)
    assert len(registry.procedures()) == sum(len(item.procedures) for item in capabilities)


def test_every_capability_has_its_page() -> None:
    listed = (ROOT / 'docs' / 'README.md').read_text(encoding='utf-8')
    for capability in registry.capabilities():
        page = f'{capability.package.rpartition(".")[2]}.md'
        assert f'({page})' in listed
        assert capability.node in (ROOT / 'docs' / page).read_text(encoding='utf-8')


@pytest.mark.parametrize('file', ['robocal.rviz', 'robocal.foxglove.json'])
def test_displays_show_the_markers_of_every_node(file: str) -> None:
    text = (ROOT / 'config' / file).read_text(encoding='utf-8')
    topics = set(re.findall(r'/?(\w+)/markers', text))
    assert topics == set(registry.nodes())
    if file.endswith('json'):
        json.loads(text)


@pytest.mark.parametrize('name', registry.nodes())
def test_every_capability_is_demonstrated_and_configured(name: str) -> None:
    package = registry.of_node(name).package.rpartition('.')[2]
    assert importlib.import_module(f'demo.{package}')
    assert yaml.safe_load((ROOT / 'config' / f'{name}.yaml').read_text(encoding='utf-8'))


@pytest.mark.usefixtures('toy', 'ros')
def test_a_further_capability_runs_and_is_recorded_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv('ROS_HOME', str(tmp_path))
    module = importlib.import_module(registry.nodes()['posture_average'])
    rig = NodeRig(module.PostureAverage, tmp_path / 'robocal' / 'arm', name='posture_average')
    try:
        rig.start()
        states = rig.publisher(type(joint_state(0.0, [], [])), 'joint_states')
        results = rig.subscribe(String, 'result', qos.LATCHED)
        names = rig.node.robot.joint_names
        for index in range(20):
            states.publish(joint_state(10.0 + 0.01 * index, names, np.full(len(names), 0.1)))
        rig.spinner.until(lambda: rig.node.joints.recorded == 20)
        answer = rig.call('run')
        assert answer.success, answer.message
        rig.spinner.until(lambda: results)
        policies = used(rig.talker, 'posture_average')
    finally:
        rig.end()
    assert '~/result' in policies['topics', 'publish']
    assert {'posture_average/marks', 'posture_average/result'} <= set(own_topics())
    assert main(['show', 'posture']) == 0
    assert 'posture' in capsys.readouterr().out


@pytest.mark.usefixtures('toy')
def test_a_further_capability_is_on_the_command_line_and_in_generated_pages(
    capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ('run', 'estimate'):
        with pytest.raises(SystemExit):
            main([command, '--help'])
        assert 'posture' in capsys.readouterr().out
    assert callable(executables.posture_average)
    assert 'posture_average' in tables()
    assert 'posture_average' in documents()[ROOT / 'docs' / 'parameters.md']
    full = launching.checked({'nodes': 'all', 'namespace': '', 'robot_args': '', 'rviz': 'false'})
    assert 'posture_average' in full['nodes'].split(',')
    assert estimator('posture').node == 'posture_average'
