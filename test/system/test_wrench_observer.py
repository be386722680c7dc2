# SPDX-License-Identifier: Apache-2.0
"""The observer on the simulated arm, each in a process of its own: pushes and bad sensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import PointStamped, WrenchStamped
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import Bool
from support.friction_results import identity, payload_result
from support.live_graph import Client, Process, seconds, sim_arm, value

from robocal_ros.results.store import ResultStore, read_result

NODE = 'wrench_observer'
LINKS = ('ft_link_2_proximal', 'ft_link_2_distal', 'ft_link_3_proximal', 'ft_link_3_distal',
         'ft_wrist')
QUEUE = QoSProfile(depth=2000)
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)


@dataclass
class Cell:
    """The graph, and what is heard of it."""

    client: Client
    results: Path
    wrenches: dict[str, list[WrenchStamped]] = field(default_factory=dict)
    contacts: list[PointStamped] = field(default_factory=list)
    flags: list[Bool] = field(default_factory=list)
    statuses: list[DiagnosticStatus] = field(default_factory=list)
    diagnostics: list[DiagnosticArray] = field(default_factory=list)
    push: Any = None

    def start(self) -> None:
        subscribe = self.client.subscribe
        for link in ('ft_link_2_proximal', 'ft_link_3_proximal', 'ft_wrist'):
            self.wrenches[link] = subscribe(WrenchStamped, f'/{NODE}/links/{link}/wrench', QUEUE)
        base = f'/{NODE}/links/ft_link_2_proximal'
        self.contacts = subscribe(PointStamped, f'{base}/contact', QUEUE)
        self.flags = subscribe(Bool, f'{base}/in_contact', QUEUE)
        self.statuses = subscribe(DiagnosticStatus, f'/{NODE}/status', LATCHED)
        self.diagnostics = subscribe(DiagnosticArray, '/diagnostics', QUEUE)
        self.push = self.client.node.create_publisher(WrenchStamped, '/sim_arm/push', 10)

    def until(self, condition: Callable[[], Any], what: str) -> None:
        self.client.until(condition, 60.0, what)

    def fresh(self, link: str, count: int = 50) -> list[WrenchStamped]:
        """Wait for new wrenches of a link."""
        self.wrenches[link].clear()
        self.until(lambda: len(self.wrenches[link]) >= count, f'wrenches of {link}')
        return self.wrenches[link]

    def await_state(self, link: str, words: str) -> None:
        """Wait for a status, newer than this call, that says something of a link."""
        self.statuses.clear()
        self.until(lambda: self.statuses and words in value(self.statuses[-1], f'link {link}'),
                   f'{words!r} of {link}')

    def state(self, link: str) -> str:
        return value(self.statuses[-1], f'link {link}')

    def tare(self) -> Any:
        return self.client.call('tare', NODE, 60.0)


@pytest.fixture(scope='module')
def cell(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    folder = tmp_path_factory.mktemp('wrench')
    results = folder / 'results'
    ResultStore(results, identity()).save(payload_result())
    made = Cell(client, results)
    made.start()
    node = Process(
        'robocal_ros.wrench.node', folder / 'node.log', name=NODE, use_sim_time=True,
        autostart=True, results_dir=results, tare_duration=0.5,
        sensor_force_ranges='[500.0]')
    with sim_arm(folder / 'sim.log', seed=3, joint_states_rate=250.0), node:
        made.until(lambda: made.statuses and 'before a tare' in made.statuses[-1].message,
                   'all sensors')
        yield made


@pytest.fixture
def faults(cell: Cell) -> Iterator[Callable[[str], None]]:
    """Switch faults on; they are off again afterwards, and all links have recovered."""
    yield lambda text: cell.client.set('sim_arm', fault=text)
    cell.client.set('sim_arm', fault='none')
    for link in LINKS:
        cell.await_state(link, 'free')


@pytest.fixture(scope='module')
def tared(cell: Cell) -> Cell:
    answer = cell.tare()
    assert answer.success, answer.message
    return cell


class TestBeforeTheTare:
    """Sensors that are mounted wrong are named before anything is told."""

    @pytest.mark.parametrize(('fault', 'words'), [
        ('ft_flipped:ft_link_2_proximal',
         "'ft_link_2_proximal' reads the opposite of the weight that it carries"),
        ('ft_swapped:ft_link_3_proximal/ft_link_3_distal',
         "'ft_link_3_proximal' and 'ft_link_3_distal' read each other's weight"),
    ])
    def test_wrong_signs_and_swapped_sensors(self, cell: Cell, fault: str, words: str) -> None:
        cell.client.set('sim_arm', fault=fault)
        answer = cell.tare()
        assert not answer.success
        assert words in answer.message
        cell.client.set('sim_arm', fault='none')
        assert not cell.wrenches['ft_wrist']


def test_tared_sensors_read_zero_and_the_tare_is_stored(tared: Cell) -> None:
    for link in tared.wrenches:
        forces = np.array([[m.wrench.force.x, m.wrench.force.y, m.wrench.force.z]
                           for m in tared.fresh(link)])
        assert np.abs(forces.mean(axis=0)).max() < 0.3
        assert forces.std() < 0.45
    stored = read_result(tared.results / 'tare.yaml')
    assert abs(stored.parameter('ft_wrist.force_x').value) < 10.5


def test_a_push_is_located(tared: Cell) -> None:
    tared.contacts.clear()
    tared.flags.clear()
    message = WrenchStamped()
    message.header.frame_id = 'ft_link_2_proximal'
    message.wrench.force.y, message.wrench.torque.x = 30.0, -30.0 * 0.18
    tared.push.publish(message)
    tared.until(lambda: len(tared.contacts) > 90, 'contacts')
    tared.until(lambda: not tared.flags[-1].data, 'the end of the contact')
    assert any(flag.data for flag in tared.flags)
    points = np.array([[c.point.x, c.point.y, c.point.z] for c in tared.contacts[20:90]])
    assert np.linalg.norm(points - [0.0, -0.055, 0.18], axis=1).max() < 5e-3
    assert tared.contacts[-1].header.frame_id == 'ft_link_2_proximal'


class TestBadSensors:
    """The link on either side is not known and says why; the others go on."""

    @pytest.mark.parametrize(('fault', 'words'), [
        ('ft_nan', 'values that are not finite numbers'),
        ('ft_saturated', 'is saturated'),
        ('ft_stuck', 'has sent the same values'),
        ('ft_late', 'ms late, more than max_delay'),
        ('ft_silent', 'has been silent for'),
        ('ft_misframed', "names frame 'elsewhere', but"),
    ])
    def test_one_sensor(
        self, tared: Cell, faults: Callable[[str], None], fault: str, words: str
    ) -> None:
        faults(f'{fault}:ft_link_3_proximal')
        tared.await_state('ft_link_3_proximal', words)
        assert words in tared.state('ft_link_2_distal')
        for link in ('ft_link_2_proximal', 'ft_link_3_distal', 'ft_wrist'):
            assert tared.state(link).startswith('free')

        def silent() -> bool:
            # What waits in the queue may be from before the fault.
            tared.wrenches['ft_link_3_proximal'].clear()
            tared.fresh('ft_wrist')
            return len(tared.wrenches['ft_link_3_proximal']) < 5

        tared.until(silent, 'the silence of the link')

    def test_joint_states_at_10_hz(self, tared: Cell, faults: Callable[[str], None]) -> None:
        faults('joint_states_slow')
        tared.await_state('ft_wrist', 'apart (10 Hz)')
        assert 'Raise their rate, or lengthen window' in tared.state('ft_wrist')

    def test_no_joint_states(self, tared: Cell, faults: Callable[[str], None]) -> None:
        faults('joint_states_silent')
        tared.await_state('ft_wrist', 'No joint states have been received')

    def test_a_clock_that_jumps_back(self, tared: Cell, faults: Callable[[str], None]) -> None:
        before = seconds(tared.fresh('ft_wrist')[-1].header.stamp)
        faults('clock_jump_back')
        tared.until(lambda: seconds(tared.wrenches['ft_wrist'][-1].header.stamp) < before,
                    'wrenches after the jump')

    def test_a_drifting_bias_requests_a_tare(
        self, tared: Cell, faults: Callable[[str], None]
    ) -> None:
        faults('ft_drift:ft_wrist')
        tared.until(lambda: 'has drifted' in tared.statuses[-1].message, 'the drift')
        assert 'Call ~/tare' in tared.statuses[-1].message

    def test_diagnostics_have_each_link(self, tared: Cell) -> None:
        tared.diagnostics.clear()
        tared.until(lambda: any(item.name == f'{NODE}: ft_wrist' for array in tared.diagnostics
                                for item in array.status), 'diagnostics')
