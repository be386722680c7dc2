# SPDX-License-Identifier: Apache-2.0
"""One run, three ways: live, replayed to a fresh node, and offline give the same result.

Runs are recorded by `robocal record`, then replayed to fresh nodes, then estimated from the bag by
`robocal estimate`. That of compliance is cancelled and gone on with, so that the marks tell what
the samples don't.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from support.friction_results import identity
from support.live_cell import (
    COMPLIANCE,
    FRICTION,
    HIDDEN,
    PAYLOAD,
    compliance_node,
    friction_node,
)
from support.live_graph import RELIABLE, Client, Process, payload_node, sim_arm, value
from support.replay_graph import DEEP, estimated, filed, play, recorded_by, streams_of
from support.same_result import assert_same_result

from robocal_ros.messages import Bag, qos
from robocal_ros.results import CalibrationResult, ResultStore

# What the nodes and `robocal estimate` are told, beside the speeds of quick motions.
FAST = {'max_velocity': 3.0, 'max_acceleration': 12.0}
# What is compared is every number of the results. How wide the intervals of so fast sweeps are, on
# an arm that a busy machine moves late, is not: it doubles there.
VALUES = {
    'payload': {'known_mass': 2.0, 'use_friction': False, 'gain_std': 0.002,
                'arm_model_std': 0.01, 'max_com_interval': 0.02, 'max_torque_error': 0.05, **FAST},
    'friction': {'speeds': [0.1, 0.2, 0.4, 0.6], 'measure_joints': ['joint_5'],
                 'arm_model_std': 0.01},
    'compliance': {
        'posture_count': 5, 'posture_range': 0.35, 'dwell': 0.5, 'settle': 0.1, 'min_readings': 4,
        'reference_every': 3, 'registration': 'three_point', 'target_frame': 'flange',
        'target_xyz': HIDDEN['tracker']['target_xyz'], 'load_frame': 'flange',
        'load_mass': float(HIDDEN['load']['mass']), 'load_com': HIDDEN['load']['centre_of_mass']}}
MARKS = {name: f'/{name}/marks' for name in (PAYLOAD, FRICTION, COMPLIANCE)}
TRACKER = '/tracker/point'
# No sample may be lost, and silences of a busy machine must not fail the run.
LIVE = {'state_timeout': 5.0, **FAST, **RELIABLE, **DEEP,
        f'qos_overrides.{TRACKER}.subscription.reliability': 'reliable'}
PHASES = ('registration', 'unloaded', 'loaded')


def node(kind: str, folder: Path, way: str) -> Process:
    """Return a node that files its results in ``folder/way/kind``."""
    start, further = {'payload': (payload_node, {'sweep_speed': 1.0}),
                      'friction': (friction_node, {}),
                      'compliance': (compliance_node, {})}[kind]
    return start(folder / f'{way}_{kind}.log', folder / way / kind,
                 **{**LIVE, **VALUES[kind], **further})


def assert_same_as_live(folder: Path, kind: str, other: CalibrationResult) -> None:
    live, where = filed(folder / 'live' / kind, kind), 'tracker_rotation'
    assert_same_result(live, other)
    assert live.settings.get(where, []) == pytest.approx(other.settings.get(where, []), rel=1e-12)


def assert_offline_equals_live(folder: Path, kind: str) -> None:
    offline = estimated(folder, kind, **VALUES[kind])
    assert offline.source == 'bag'
    assert_same_as_live(folder, kind, offline)


def assert_replayed_equals_live(folder: Path, kind: str) -> None:
    assert_same_as_live(folder, kind, filed(folder / 'replayed' / kind, kind))


def keep_payload(folder: Path, way: str) -> None:
    """Give the live payload to friction of another way."""
    ResultStore(folder / way / 'friction', identity()).save(
        filed(folder / 'live' / 'payload', 'payload'))


class TestPayloadAndFriction:
    """Friction is estimated with the payload that the other node identified before."""

    @pytest.fixture(scope='class')
    @classmethod
    def recorded(cls, client: Client, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A folder with a bag, and with the results that the nodes filed live."""
        folder = tmp_path_factory.mktemp('golden')
        with (
            sim_arm(folder / 'sim_arm.log', seed=7, joint_states_rate=100.0),
            node('payload', folder, 'live'), node('friction', folder, 'live'),
            recorded_by(client, folder, (PAYLOAD, FRICTION),
                        streams_of(MARKS[PAYLOAD], MARKS[FRICTION])),
        ):
            # The recorder has found the topics, and records some time before the run too.
            client.until(lambda: client.node.count_subscribers('/joint_states') >= 3)
            statuses = client.subscribe(DiagnosticStatus, f'/{FRICTION}/status', qos.LATCHED)
            assert client.call('run', PAYLOAD).message
            # A result that arrives while a procedure runs is used after it.
            client.until(lambda: any(value(status, 'stale') for status in statuses),
                         what='the payload at the node of friction')
            assert client.call('run', FRICTION).message
        return folder

    @pytest.fixture(scope='class')
    @classmethod
    def replayed(cls, client: Client, recorded: Path) -> Path:
        # Its replayed result may come after the request to estimate friction.
        keep_payload(recorded, 'replayed')
        with node('payload', recorded, 'replayed'), node('friction', recorded, 'replayed'):
            # The description comes out of the bag; the nodes wait for it to be configured.
            play(client, recorded / 'bag', (PAYLOAD, FRICTION), (
                '/joint_states', '/robot_description', MARKS[PAYLOAD], MARKS[FRICTION]))
            for name in (PAYLOAD, FRICTION):
                assert client.call('estimate', name).message
        return recorded

    def test_the_recorder_reports_its_topics(self, recorded: Path) -> None:
        said = (recorded / 'recorder.log').read_text()
        assert '/joint_states' in said
        assert 'Bag:' in said
        with Bag(recorded / 'bag') as bag:
            assert bag.counts['/joint_states'] > 1000
            assert bag.counts['/robot_description'] == 1
            assert bag.counts[MARKS[PAYLOAD]] >= 2

    def test_payload_offline_equals_live(self, recorded: Path) -> None:
        assert_offline_equals_live(recorded, 'payload')

    def test_friction_offline_equals_live(self, recorded: Path) -> None:
        live = filed(recorded / 'live' / 'friction', 'friction')
        used = {item.kind: item.sha256 for item in live.inputs}
        assert used['payload'] == filed(recorded / 'live' / 'payload', 'payload').sha256
        assert live.parameter('joint_5.coulomb_forward').value, live.verdict.reasons
        keep_payload(recorded, 'offline')
        assert_offline_equals_live(recorded, 'friction')

    @pytest.mark.parametrize('kind', ['payload', 'friction'])
    def test_replayed_equals_live(self, replayed: Path, kind: str) -> None:
        assert_replayed_equals_live(replayed, kind)


def rests(marks: Iterable[Any]) -> Iterator[str]:
    """Yield what each rest that marks tell of belongs to."""
    return (item.value for message in marks for status in message.status
            if status.name == 'rest' for item in status.values if item.value in PHASES)


class TestCompliance:
    @pytest.fixture(scope='class')
    @classmethod
    def recorded(cls, client: Client, tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = tmp_path_factory.mktemp('compliance')
        with (
            sim_arm(folder / 'sim_arm.log', seed=5, joint_states_rate=100.0),
            node('compliance', folder, 'live'),
            recorded_by(client, folder, (COMPLIANCE,), streams_of(TRACKER, MARKS[COMPLIANCE])),
        ):
            marks = client.subscribe(DiagnosticArray, MARKS[COMPLIANCE], qos.MARKS)
            client.until(lambda: client.node.count_subscribers(TRACKER) >= 2)
            run = client.begin('run', COMPLIANCE)
            client.until(lambda: 'loaded' in rests(marks))
            assert client.call('cancel', COMPLIANCE).success
            assert not client.wait(run).success
            assert client.call('run', COMPLIANCE).message
        return folder

    @pytest.fixture(scope='class')
    @classmethod
    def live(cls, recorded: Path) -> CalibrationResult:
        return filed(recorded / 'live' / 'compliance', 'compliance')

    def test_the_bag_has_a_mark_for_every_stationary_interval(
        self, recorded: Path, live: CalibrationResult
    ) -> None:
        with Bag(recorded / 'bag') as bag:
            count = Counter(rests(bag.messages(MARKS[COMPLIANCE])))
        assert count['registration'] == 3
        # The first posture is visited again on the way, in the end, and after the break.
        assert count['unloaded'] == VALUES['compliance']['posture_count'] + 2
        assert count['loaded'] >= VALUES['compliance']['posture_count'] + 2
        assert live.settings['registration'] == 'three_point'
        assert live.counts['loaded_visits'] == count['loaded']

    def test_offline_and_replayed_equal_live(
        self, client: Client, recorded: Path, live: CalibrationResult
    ) -> None:
        assert live.parameter('joint_2.compliance').value is not None
        assert_offline_equals_live(recorded, 'compliance')
        with node('compliance', recorded, 'replayed'):
            play(client, recorded / 'bag', (COMPLIANCE,), (
                '/joint_states', '/robot_description', MARKS[COMPLIANCE]), (TRACKER,))
            assert client.call('estimate', COMPLIANCE).message
        assert_replayed_equals_live(recorded, 'compliance')
