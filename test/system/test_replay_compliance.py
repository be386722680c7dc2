# SPDX-License-Identifier: Apache-2.0
"""Compliance live, replayed and offline: the same result on the same samples.

The measurement is cancelled and gone on with, so that the marks tell what the samples don't.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from diagnostic_msgs.msg import DiagnosticArray
from support.live_cell import HIDDEN, compliance_node
from support.live_graph import RELIABLE, Client, sim_arm
from support.replay_graph import DEEP, RecorderProcess, play
from support.same_result import assert_same_result

from robocal_ros.cli.main import main
from robocal_ros.messages import qos
from robocal_ros.messages.bag import Bag
from robocal_ros.results.result import CalibrationResult
from robocal_ros.results.store import read_result

NODE = 'compliance_calibration'
MARKS, TRACKER = f'/{NODE}/marks', '/tracker/point'
POSTURES = 5
PHASES = ('registration', 'unloaded', 'loaded')
PROFILE = {'recorder': {
    'topics': ['robot_description', TRACKER, MARKS], 'types': [], 'needed': ['joint_states']}}
MEASURED = {
    'posture_count': POSTURES, 'posture_range': 0.35, 'dwell': 0.5, 'settle': 0.1,
    'min_readings': 4, 'reference_every': 3, 'registration': 'three_point',
    'target_frame': 'flange', 'target_xyz': HIDDEN['tracker']['target_xyz'],
    'load_frame': 'flange', 'load_mass': float(HIDDEN['load']['mass']),
    'load_com': HIDDEN['load']['centre_of_mass']}
FAST = {'max_velocity': 3.0, 'max_acceleration': 12.0, **MEASURED, **RELIABLE, **DEEP,
        f'qos_overrides.{TRACKER}.subscription.reliability': 'reliable'}


def filed(folder: Path) -> CalibrationResult:
    good = folder / 'compliance.yaml'
    return read_result(good if good.exists() else folder / 'compliance.failed.yaml')


def rests(marks: Iterable[Any]) -> Iterator[str]:
    """Yield what each rest that marks tell of belongs to."""
    return (item.value for message in marks for status in message.status
            if status.name == 'rest' for item in status.values if item.value in PHASES)


@pytest.fixture(scope='module')
def recorded(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bag, and with the result that the node filed live."""
    folder = tmp_path_factory.mktemp('compliance')
    profile = folder / 'profile.yaml'
    profile.write_text(yaml.safe_dump(PROFILE))
    with (
        sim_arm(folder / 'sim_arm.log', seed=5, joint_states_rate=100.0),
        compliance_node(folder / 'live.log', folder / 'live', **FAST),
        RecorderProcess(folder / 'bag', folder / 'recorder.log', '--profile',
                        str(profile)) as recorder,
    ):
        marks = client.subscribe(DiagnosticArray, MARKS, qos.MARKS)
        client.until(lambda: client.state(NODE) == 'active')
        client.until(lambda: 'Recording into' in recorder.said)
        client.until(lambda: client.node.count_subscribers(TRACKER) >= 2)
        run = client.begin('run', NODE)
        client.until(lambda: 'loaded' in rests(marks))
        assert client.call('cancel', NODE).success
        assert not client.wait(run).success
        assert client.call('run', NODE).message
        assert recorder.end() == 0, recorder.said
    return folder


def test_the_bag_has_a_mark_for_every_stationary_interval(recorded: Path) -> None:
    with Bag(recorded / 'bag') as bag:
        count = Counter(rests(bag.messages(MARKS)))
    assert count['registration'] == 3
    # The first posture is visited again on the way, in the end, and after the break.
    assert count['unloaded'] == POSTURES + 2
    assert count['loaded'] >= POSTURES + 2
    live = filed(recorded / 'live')
    assert live.settings['registration'] == 'three_point'
    assert live.counts['loaded_visits'] == count['loaded']


def test_offline_equals_live(recorded: Path) -> None:
    output = recorded / 'offline.yaml'
    code = main(['estimate', 'compliance', str(recorded / 'bag'), '-o', str(output),
                 '--results-dir', str(recorded / 'none'),
                 *(word for name, told in MEASURED.items() for word in ('-p', f'{name}:={told}'))])
    live, offline = filed(recorded / 'live'), read_result(output)
    assert code == (0 if live.verdict.value == 'pass' else 1)
    assert_same(live, offline)
    assert offline.source == 'bag'


def test_replayed_equals_live(client: Client, recorded: Path) -> None:
    with compliance_node(recorded / 'replayed.log', recorded / 'replayed', **FAST):
        play(client, recorded / 'bag', (NODE,), ('/joint_states', '/robot_description', MARKS),
             (TRACKER,))
        assert client.call('estimate', NODE).message
    assert_same(filed(recorded / 'live'), filed(recorded / 'replayed'))


def assert_same(live: CalibrationResult, other: CalibrationResult) -> None:
    assert live.parameter('joint_2.compliance').value is not None
    assert_same_result(live, other)
    assert live.settings['tracker_rotation'] == pytest.approx(
        other.settings['tracker_rotation'], rel=1e-12)
