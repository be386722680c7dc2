# SPDX-License-Identifier: Apache-2.0
"""Live, replayed and offline: the same result on the same samples.

A payload run and a friction run are recorded by `robocal record`, then replayed to fresh nodes,
then estimated from the bag by `robocal estimate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from diagnostic_msgs.msg import DiagnosticStatus
from support.friction_results import identity
from support.live_cell import FRICTION, friction_node
from support.live_graph import RELIABLE, Client, payload_node, sim_arm, value
from support.replay_graph import DEEP, RecorderProcess, play
from support.same_result import assert_same_result

from robocal_ros.cli.main import main
from robocal_ros.messages import qos
from robocal_ros.messages.bag import Bag
from robocal_ros.results.result import CalibrationResult, Verdict
from robocal_ros.results.store import ResultStore, read_result

PAYLOAD = 'payload_identification'
PLAYED = ('/joint_states', '/robot_description', f'/{PAYLOAD}/marks', f'/{FRICTION}/marks')
# Silences of a busy machine must not fail the run.
FAST = {'max_velocity': 3.0, 'max_acceleration': 12.0, 'state_timeout': 5.0, **RELIABLE, **DEEP}
PAYLOAD_VALUES = {'known_mass': 2.0, 'sweep_speed': 1.0, 'max_com_interval': 0.02}
JOINT = 'joint_5'
FRICTION_VALUES = {'speeds': [0.1, 0.2, 0.4, 0.6], 'measure_joints': [JOINT]}
# What the nodes read; the usual profile records a dozen topics more.
PROFILE = {'recorder': {
    'topics': ['robot_description', f'/{PAYLOAD}/marks', f'/{FRICTION}/marks'], 'types': [],
    'needed': ['joint_states']}}


@dataclass
class Recorded:
    """What was recorded, and where nodes filed results live and on replay."""

    client: Client
    folder: Path
    recorder: str

    @property
    def bag(self) -> Path:
        return self.folder / 'bag'

    def filed(self, way: str, kind: str) -> CalibrationResult:
        folder = self.folder / way / kind
        good = folder / f'{kind}.yaml'
        return read_result(good if good.exists() else folder / f'{kind}.failed.yaml')

    def offline(self, kind: str, *parameters: str) -> CalibrationResult:
        output = self.folder / f'offline_{kind}.yaml'
        code = main(['estimate', kind, str(self.bag), '-o', str(output), '--results-dir',
                     str(self.folder / 'offline' / kind),
                     *(word for text in parameters for word in ('-p', text))])
        result = read_result(output)
        assert code == (0 if result.verdict is Verdict.PASS else 1)
        return result


def nodes(folder: Path, way: str) -> tuple[object, object]:
    """Return the two nodes; that of friction uses the payload as the other identifies it."""
    return (
        payload_node(folder / f'{way}_payload.log', folder / way / 'payload',
                     use_friction=False, **PAYLOAD_VALUES, **FAST),
        friction_node(folder / f'{way}_friction.log', folder / way / 'friction',
                      **FRICTION_VALUES, **FAST))


@pytest.fixture(scope='module')
def recorded(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp('golden')
    profile = folder / 'profile.yaml'
    profile.write_text(yaml.safe_dump(PROFILE))
    payload, friction = nodes(folder, 'live')
    with (
        sim_arm(folder / 'sim_arm.log', seed=7, joint_states_rate=100.0),
        payload, friction,
        RecorderProcess(folder / 'bag', folder / 'recorder.log', '--profile',
                        str(profile)) as recorder,
    ):
        for node in (PAYLOAD, FRICTION):
            client.until(lambda node=node: client.state(node) == 'active')
        client.until(lambda: 'Recording into' in recorder.said)
        # The recorder has found the topics, and records some time before the run too.
        client.until(lambda: client.node.count_subscribers('/joint_states') >= 3)
        statuses = client.subscribe(DiagnosticStatus, f'/{FRICTION}/status', qos.LATCHED)
        assert client.call('run', PAYLOAD).message
        # A result that arrives while a procedure runs is used after it.
        client.until(lambda: any(value(status, 'stale') for status in statuses),
                     what='the payload at the node of friction')
        assert client.call('run', FRICTION).message
        assert recorder.end() == 0, recorder.said
        said = recorder.said
    return Recorded(client, folder, said)


@pytest.fixture(scope='module')
def replayed(recorded: Recorded) -> Recorded:
    client = recorded.client
    # Its replayed result may come after the request to estimate friction.
    ResultStore(recorded.folder / 'replayed' / 'friction', identity()).save(
        recorded.filed('live', 'payload'))
    payload, friction = nodes(recorded.folder, 'replayed')
    with payload, friction:
        # The description comes out of the bag; the nodes wait for it to be configured.
        play(client, recorded.bag, (PAYLOAD, FRICTION), PLAYED)
        for node in (PAYLOAD, FRICTION):
            assert client.call('estimate', node).message
    return recorded


def test_the_recorder_reports_its_topics(recorded: Recorded) -> None:
    assert '/joint_states' in recorded.recorder
    assert 'Bag:' in recorded.recorder
    with Bag(recorded.bag) as bag:
        assert bag.counts['/joint_states'] > 1000
        assert bag.counts['/robot_description'] == 1
        assert bag.counts[f'/{PAYLOAD}/marks'] >= 2


def test_payload_offline_equals_live(recorded: Recorded) -> None:
    assert_same_result(
        recorded.filed('live', 'payload'),
        recorded.offline('payload', 'known_mass:=2.0', 'use_friction:=false',
                         *(f'max_{name}:={FAST[f"max_{name}"]}'
                           for name in ('velocity', 'acceleration')),
                         'gain_std:=0.002', 'arm_model_std:=0.01',
                         f"max_com_interval:={PAYLOAD_VALUES['max_com_interval']}"))


def test_payload_replayed_equals_live(replayed: Recorded) -> None:
    assert_same_result(
        replayed.filed('live', 'payload'), replayed.filed('replayed', 'payload'))


def test_friction_offline_equals_live(recorded: Recorded) -> None:
    live = recorded.filed('live', 'friction')
    used = {item.kind: item.sha256 for item in live.inputs}
    assert used['payload'] == recorded.filed('live', 'payload').sha256
    assert live.parameter(f'{JOINT}.coulomb_forward').value, live.verdict.reasons
    ResultStore(recorded.folder / 'offline' / 'friction', identity()).save(
        recorded.filed('live', 'payload'))
    assert_same_result(recorded.filed('live', 'friction'), recorded.offline('friction'))


def test_friction_replayed_equals_live(replayed: Recorded) -> None:
    assert_same_result(
        replayed.filed('live', 'friction'), replayed.filed('replayed', 'friction'))
