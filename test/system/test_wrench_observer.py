# SPDX-License-Identifier: Apache-2.0
"""The observer on the simulated arm, each in a process of its own: pushes and bad sensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PointStamped, WrenchStamped
from rclpy.qos import QoSProfile
from std_msgs.msg import Bool
from support.friction_results import identity, payload_result
from support.live_cell import WRENCH, Cell, live_cell
from support.live_graph import Client, start_node, value

from robocal_ros.results import ResultStore

LINKS = ('ft_link_2_proximal', 'ft_link_2_distal', 'ft_link_3_proximal', 'ft_link_3_distal',
         'ft_wrist')
QUEUE = QoSProfile(depth=2000)


class Heard:
    """The graph, and what is heard of it."""

    def __init__(self, cell: Cell) -> None:
        self.cell, subscribe = cell, cell.client.subscribe
        base = f'/{WRENCH}/links'
        self.wrenches = {
            link: subscribe(WrenchStamped, f'{base}/{link}/wrench', QUEUE)
            for link in ('ft_link_2_proximal', 'ft_link_3_proximal', 'ft_wrist')}
        self.contacts = subscribe(PointStamped, f'{base}/ft_link_2_proximal/contact', QUEUE)
        self.flags = subscribe(Bool, f'{base}/ft_link_2_proximal/in_contact', QUEUE)
        self.diagnostics = subscribe(DiagnosticArray, '/diagnostics', QUEUE)
        self.push = cell.client.node.create_publisher(WrenchStamped, '/sim_arm/push', 10)

    def until(self, condition: Callable[[], Any], what: str) -> None:
        self.cell.client.until(condition, what=what)

    def fresh(self, link: str, count: int = 50) -> list[WrenchStamped]:
        """Wait for new wrenches of a link."""
        self.wrenches[link].clear()
        self.until(lambda: len(self.wrenches[link]) >= count, f'wrenches of {link}')
        return self.wrenches[link]

    def await_state(self, link: str, words: str) -> None:
        """Wait for a status, newer than this call, that says something of a link."""
        self.cell.statuses.clear()
        self.until(lambda: self.cell.statuses and words in self.state(link),
                   f'{words!r} of {link}')

    def state(self, link: str) -> str:
        return value(self.cell.statuses[-1], f'link {link}')


@pytest.fixture(scope='module')
def heard(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Heard]:
    folder = tmp_path_factory.mktemp('wrench')
    ResultStore(folder / 'results', identity()).save(payload_result())
    with live_cell(
        client, folder, partial(start_node, WRENCH), WRENCH,
        arm={'seed': 3, 'joint_states_rate': 250.0}, tare_duration=0.5,
        sensor_force_ranges='[500.0]',
    ) as cell:
        client.until(lambda: any('before a tare' in message for message in cell.messages))
        yield Heard(cell)


@pytest.fixture
def faults(heard: Heard) -> Iterator[Callable[[str], None]]:
    """Switch faults on; they are off again afterwards, and all links have recovered."""
    yield heard.cell.fault
    heard.cell.fault('none')
    for link in LINKS:
        heard.await_state(link, 'free')


@pytest.mark.parametrize(('fault', 'words'), [
    ('ft_flipped:ft_link_2_proximal',
     "'ft_link_2_proximal' reads the opposite of the weight that it carries"),
    ('ft_swapped:ft_link_3_proximal/ft_link_3_distal',
     "'ft_link_3_proximal' and 'ft_link_3_distal' read each other's weight"),
])
def test_wrong_signs_and_swapped_sensors(heard: Heard, fault: str, words: str) -> None:
    heard.cell.fault(fault)
    assert words in heard.cell.refused(heard.cell.begin('tare'))
    heard.cell.fault('none')
    assert not heard.wrenches['ft_wrist']


@pytest.fixture(scope='module')
def tared(heard: Heard) -> Heard:
    heard.cell.done('tare')
    return heard


def test_tared_sensors_read_zero_and_the_tare_is_stored(tared: Heard) -> None:
    for link in tared.wrenches:
        forces = np.array([[m.wrench.force.x, m.wrench.force.y, m.wrench.force.z]
                           for m in tared.fresh(link)])
        assert np.abs(forces.mean(axis=0)).max() < 0.3
        assert forces.std() < 0.45
    stored = tared.cell.stored('tare')
    assert abs(stored.parameter('ft_wrist.force_x').value) < 10.5


def test_a_push_is_located(tared: Heard) -> None:
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
        ('ft_saturated', 'is saturated'),
        ('ft_silent', 'has been silent for'),
        ('ft_misframed', "names frame 'elsewhere', but"),
    ])
    def test_one_sensor(
        self, tared: Heard, faults: Callable[[str], None], fault: str, words: str
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

    def test_a_drifting_bias_requests_a_tare(
        self, tared: Heard, faults: Callable[[str], None]
    ) -> None:
        faults('ft_drift:ft_wrist')
        tared.until(lambda: 'has drifted' in tared.cell.messages[-1], 'the drift')
        assert 'Call ~/tare' in tared.cell.messages[-1]

    def test_diagnostics_have_each_link(self, tared: Heard) -> None:
        tared.diagnostics.clear()
        tared.until(lambda: any(item.name == f'{WRENCH}: ft_wrist' for array in tared.diagnostics
                                for item in array.status), 'diagnostics')
