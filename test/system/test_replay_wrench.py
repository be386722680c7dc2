# SPDX-License-Identifier: Apache-2.0
"""Wrenches live, replayed and offline: the same numbers at the same stamps.

A tare, a motion and a push are recorded with all that the node says; the bag is replayed to a
fresh node with the live tare, and followed by `robocal estimate wrench`, which tares anew from
the samples that the marks name.
"""

from __future__ import annotations

import csv
import struct
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import WrenchStamped
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message
from support import ROOT
from support.friction_results import identity, payload_result
from support.live_graph import (
    CONTROLLER,
    Client,
    Process,
    seconds,
    sim_arm,
    start_node,
    trajectory,
)
from support.replay_graph import play, recorded_by
from support.same_result import assert_same_result
from trajectory_msgs.msg import JointTrajectory

from robocal_ros.cli.main import main
from robocal_ros.messages import Bag, qos
from robocal_ros.results import CalibrationResult, ResultStore, read_result

# The simulated arm keeps real time here, because it does not wait for the recorder.
pytestmark = pytest.mark.realtime

NODE = 'wrench_observer'
LINKS = ('ft_link_2_proximal', 'ft_link_2_distal', 'ft_link_3_proximal', 'ft_link_3_distal',
         'ft_wrist')
SENSORS = tuple(f'/{link}/wrench' for link in LINKS)
RANGE = 500.0
# On a busy machine a sensor may come later than joint states by more than the usual time, and
# the recorder, whom the simulated arm does not wait for, takes a slow driver's dozen topics.
VALUES = {'tare_duration': 0.5, 'max_delay': 0.5, 'window': 0.05,
          'sensor_force_ranges': f'[{RANGE}]'}
PACE = {'joint_states_rate': 100.0, 'real_time_factor': 1.0}
# A stream's reader waits for nothing; here no sample may be lost.
RELIABLE = {f'qos_overrides.{topic}.subscription.reliability': 'reliable'
            for topic in ('/joint_states', *SENSORS)}
QUEUE = QoSProfile(depth=5000)
PUSH = 30.0
MOTION = trajectory((1.0, (0.4, -0.2, 0.3, 0.3, 0.4, 0.2)), (2.0, (0.2, 0.2, -0.1, 0.1, 0.5, 0.0)),
                    velocities=[0.0] * 6)

Rows = dict[int, tuple[float, ...]]
"""Wrenches by stamp [ns]."""


def output(link: str) -> str:
    return f'/{NODE}/links/{link}/wrench'


def rows_of(messages: list[WrenchStamped]) -> Rows:
    return {
        m.header.stamp.sec * 10**9 + m.header.stamp.nanosec: (
            m.wrench.force.x, m.wrench.force.y, m.wrench.force.z,
            m.wrench.torque.x, m.wrench.torque.y, m.wrench.torque.z)
        for m in messages}


def observer(folder: Path, way: str, **values: object) -> Process:
    """Return a node that knows the payload, and nothing else that it did not file itself."""
    results = folder / way
    ResultStore(results, identity()).save(payload_result())
    return start_node(NODE, folder / f'{way}.log', results, **VALUES, **RELIABLE, **values)


@dataclass
class Recorded:
    """What was recorded."""

    client: Client
    folder: Path

    @property
    def bag(self) -> Path:
        return self.folder / 'bag'

    def live(self, link: str) -> Rows:
        with Bag(self.bag) as bag:
            return rows_of([deserialize_message(raw, WrenchStamped)
                            for _, raw in bag.raw(output(link))])

    def end(self) -> int:
        """Return up to which stamp all streams were recorded [ns]."""
        with Bag(self.bag) as bag:
            last = [deque(bag.raw(topic), 1)[0][1] for topic in ('/joint_states', *SENSORS)]
        return min(sec * 10**9 + nanosec for sec, nanosec in (
            struct.unpack_from('<iI', raw, 4) for raw in last))

    def tare(self) -> CalibrationResult:
        return read_result(self.folder / 'live' / 'tare.yaml')


def assert_same_wrenches(one: Rows, other: Rows) -> None:
    """Both have the same stamps but for first and last instants, and the same wrenches."""
    begin, end = max(min(one), min(other)), min(max(one), max(other))
    mine, theirs = ({stamp: row for stamp, row in rows.items() if begin <= stamp <= end}
                    for rows in (one, other))
    assert list(mine) == list(theirs)
    assert end - begin > 2.5e9, [(min(rows), max(rows)) for rows in (one, other)]
    difference = np.array(list(mine.values())) - np.array(list(theirs.values()))
    assert np.abs(difference).max() <= 1e-12 * RANGE
    assert max(abs(row[1]) for row in mine.values()) < 2.0 * PUSH


@pytest.fixture(scope='module')
def recorded(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp('golden')
    made = Recorded(client, folder)
    move = client.node.create_publisher(JointTrajectory, f'/{CONTROLLER}/joint_trajectory', 10)
    push = client.node.create_publisher(WrenchStamped, '/sim_arm/push', 10)
    received = client.subscribe(WrenchStamped, output(LINKS[0]), QUEUE)
    statuses = client.subscribe(DiagnosticStatus, f'/{NODE}/status', qos.LATCHED)
    with (
        sim_arm(folder / 'sim_arm.log', seed=7, **PACE),
        observer(folder, 'live'),
        recorded_by(client, folder, (NODE,), with_outputs()),
    ):
        # The recorder beside the observer, or beside this client.
        for topic, count in {**dict.fromkeys(('/joint_states', *SENSORS, output(LINKS[0])), 2),
                             output(LINKS[-1]): 1}.items():
            client.until(lambda topic=topic, count=count:
                         client.node.count_subscribers(topic) >= count, 60.0)
        for publisher in (move, push):
            client.until(publisher.get_subscription_count, 60.0)
        # All sensors are heard.
        client.until(lambda: statuses and 'before a tare' in statuses[-1].message, 60.0)
        answer = client.call('tare', NODE, 60.0)
        assert answer.success, answer.message
        move.publish(MOTION)
        first = client_stamp(client, received)
        client.until(lambda: client_stamp(client, received) > first + 2.5, 60.0, 'the motion')
        message = WrenchStamped()
        message.header.frame_id = LINKS[0]
        message.wrench.force.y, message.wrench.torque.x = PUSH, -PUSH * 0.18
        push.publish(message)
        first = client_stamp(client, received)
        client.until(lambda: client_stamp(client, received) > first + 1.5, 60.0, 'the push')
    return made


def with_outputs() -> dict[str, Any]:
    """Return the usual profile with the outputs of the observer, which bags need not hold."""
    profile = yaml.safe_load((ROOT / 'config' / 'recorder.yaml').read_text())['recorder']
    return {**profile, 'topics': [*profile['topics'], *map(output, LINKS)]}


def client_stamp(client: Client, received: list[WrenchStamped]) -> float:
    """Return the newest stamp that was heard [s]."""
    client.until(lambda: received, 60.0, 'wrenches')
    return seconds(received[-1].header.stamp)


@pytest.fixture(scope='module')
def offline(recorded: Recorded) -> dict[str, Rows]:
    folder = recorded.folder
    ResultStore(folder / 'offline', identity()).save(payload_result())
    given = [word for name, value in VALUES.items() for word in ('-p', f'{name}:={value}')]
    assert main(['estimate', 'wrench', str(recorded.bag), '-o', str(folder / 'tare.yaml'),
                 '--series', str(folder / 'tare.csv'),
                 '--results-dir', str(folder / 'offline'), *given]) == 0
    found: dict[str, Rows] = {link: {} for link in LINKS}
    with (folder / 'tare.csv').open() as file:
        for row in csv.DictReader(file):
            if row['valid'] == '1':
                stamp = round(1e9 * float(row['stamp']))
                found[row['link']][stamp] = tuple(
                    float(row[f'{what}_{axis}']) for what in ('force', 'torque') for axis in 'xyz')
    return found


@pytest.fixture(scope='module')
def replayed(recorded: Recorded) -> dict[str, Rows]:
    client, folder = recorded.client, recorded.folder
    received = {link: client.subscribe(WrenchStamped, output(link), QUEUE) for link in LINKS}
    ResultStore(folder / 'replayed', identity()).save(recorded.tare())
    with observer(folder, 'replayed', keep_tare=True):
        play(client, recorded.bag, (NODE,), ('/joint_states', '/robot_description'), SENSORS,
             settle=0.5)
        end = recorded.end() - 50_000_000
        client.until(lambda: all(messages and max(rows_of(messages[-1:])) >= end
                                 for messages in received.values()), 60.0, 'the last wrenches')
    return {link: rows_of(messages) for link, messages in received.items()}


def test_the_tare_offline_equals_live(recorded: Recorded, offline: dict[str, Rows]) -> None:
    assert_same_result(recorded.tare(), read_result(recorded.folder / 'tare.yaml'))


@pytest.mark.parametrize('link', LINKS)
def test_offline_equals_live(recorded: Recorded, offline: dict[str, Rows], link: str) -> None:
    live = recorded.live(link)
    assert_same_wrenches(live, offline[link])
    # Offline what came before the tare is told too.
    assert min(offline[link]) < min(live)


@pytest.mark.parametrize('link', LINKS)
def test_replayed_equals_live(recorded: Recorded, replayed: dict[str, Rows], link: str) -> None:
    assert_same_wrenches(recorded.live(link), replayed[link])
