# SPDX-License-Identifier: Apache-2.0
"""The payload node in process: checks before the arm moves, and what it publishes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.excitation_cell import Record, exciting
from support.result_examples import example
from support.ros_rig import NodeRig, arm_urdf, made_rigs

from robocal_ros.messages.samples import Recording
from robocal_ros.node.calibration_node import SUCCESS
from robocal_ros.payload import excitation
from robocal_ros.payload.model import BODY
from robocal_ros.payload.node import PayloadIdentification
from robocal_ros.results.result import Efforts
from robocal_ros.results.store import read_result, to_yaml
from robocal_ros.robot.model import Robot

pytestmark = pytest.mark.usefixtures('ros')

Make = Callable[..., NodeRig]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    yield from made_rigs(partial(NodeRig, PayloadIdentification, tmp_path, known_mass=2.0,
                                 name='payload_identification'))


@pytest.mark.parametrize('text', ['kind: [', 'schema_version: 1\nkind: friction\n'])
def test_an_unreadable_friction_file_is_left_out_with_a_warning(
    make: Make, tmp_path: Path, text: str
) -> None:
    (tmp_path / 'friction.yaml').write_text(text)
    rig = make()
    assert rig.configure() == SUCCESS
    told = [line for line in rig.log['warning'] if line.startswith('Stored friction not used')]
    assert len(told) == 1
    assert 'friction.yaml' in told[0]
    assert 'Identify friction anew, or set use_friction to false.' in told[0]


def test_a_reference_run_is_saved_and_answered_without_a_payload_being_published(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make(method='excitation', excitation_source='torque', reference_run='record').start()
    node = rig.node
    record = Record('robocal', None, exciting(), duration=10.0)
    reference = excitation.estimate(node.robot, record.joints(1), node.values)
    monkeypatch.setattr(node.recorder, 'recording', lambda _, words: Recording(record.joints(1)))
    inertia: list[Any] = []
    monkeypatch.setattr(node._inertia_topic, 'publish', inertia.append)
    answer = rig.call('estimate')
    assert answer.success, answer.message
    assert answer.message.startswith('Reference recorded')
    assert not inertia
    stored = read_result(tmp_path / f'{excitation.REFERENCE}.yaml')
    assert stored.values(BODY) == pytest.approx(reference.values(BODY))


@pytest.mark.parametrize(('service', 'values'), [
    ('run', {'method': 'two_plane'}),
    ('run', {'method': 'excitation', 'excitation_source': 'torque'}),
    ('identify_arm', {}),
])
def test_efforts_of_unknown_unit_are_refused_before_the_arm_moves(
    make: Make, service: str, values: dict[str, Any]
) -> None:
    answer = make(effort_source='unknown', **values).start().call(service)
    assert not answer.success
    assert 'call calibrate_gains of payload_identification first' in answer.message


OTHER_EFFORTS = {'effort_source': 'current', 'torque_constants': [0.08], 'gear_ratios': [100.0]}
TOLD = "of joint 'joint_1', torque_constants times gear_ratios was 7 and is 8;"


def store_of_other_efforts(kind: str, folder: Path) -> None:
    """Store a result of motor constants of 7 N·m/A."""
    robot = Robot(arm_urdf())
    (folder / f'{kind}.yaml').write_text(to_yaml(replace(
        example(), kind=kind, robot=robot.identity,
        efforts=Efforts('current', 'all', (7.0,) * robot.n))))


@pytest.mark.parametrize(('kind', 'service', 'values'), [
    ('drive_gains', 'run', {'method': 'two_plane'}),
    ('arm', 'calibrate_gains', {}),
    ('arm', 'identify_arm', {'arm_load': 2.0}),
])
def test_results_of_other_motor_constants_are_refused_before_the_arm_moves(
    make: Make, tmp_path: Path, kind: str, service: str, values: dict[str, Any]
) -> None:
    rig = make(**OTHER_EFFORTS, **values)
    store_of_other_efforts(kind, tmp_path)
    rig.start()
    assert any(TOLD in line for line in rig.log['warning'])
    answer = rig.call(service)
    assert not answer.success
    assert TOLD in answer.message


def test_friction_of_other_motor_constants_is_left_out_with_a_warning(
    make: Make, tmp_path: Path
) -> None:
    rig = make(**OTHER_EFFORTS)
    store_of_other_efforts('friction', tmp_path)
    assert rig.configure() == SUCCESS
    assert any(line.startswith('Stored friction not used') and TOLD in line
               for line in rig.log['warning'])
    assert rig.node.results.current('friction') is None
