# SPDX-License-Identifier: Apache-2.0
"""`robocal record`: which topics, with which quality, and how it ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import rclpy
from builtin_interfaces.msg import Time
from geometry_msgs.msg import PoseStamped, WrenchStamped
from rclpy.context import Context
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from support.fake_procedure import Running
from support.fixtures import Call

from robocal_ros.cli.record import RecorderProfile, read_profile
from robocal_ros.errors import ConfigurationError, FileFormatError
from robocal_ros.messages import qos
from robocal_ros.messages.bag import Bag
from robocal_ros.messages.bag_writer import BagWriter
from robocal_ros.messages.decode import JointDecoder, State
from robocal_ros.resources import share_directory

DOMAIN = int(os.environ['ROS_DOMAIN_ID'])
PROFILE = share_directory() / 'config' / 'recorder.yaml'


class Robot(Node):
    """Node that publishes as a robot does."""

    def __init__(self, context: Context) -> None:
        super().__init__('robot', context=context, enable_rosout=False)
        self._joints = self.create_publisher(JointState, 'joint_states', qos.LATCHED)
        self._wrench = self.create_publisher(WrenchStamped, 'any/wrench', qos.SENSOR)
        self.create_publisher(PoseStamped, 'tracker/pose', 10)
        self._observer = rclpy.create_node('wrench_observer', context=context)
        self._observer.create_publisher(WrenchStamped, 'wrench_observer/tool_wrench', 10)
        self.create_publisher(String, 'robot_description', qos.LATCHED).publish(
            String(data='<robot/>'))
        self.create_publisher(String, 'other', 10)
        self._count = 0
        self.create_timer(0.01, self._publish)

    def _publish(self) -> None:
        self._count += 1
        stamp = Time(sec=5, nanosec=10_000_000 * (self._count % 100) + self._count // 100)
        stamp.sec += self._count // 100
        joints = JointState(name=['a'], position=[1.0 * self._count])
        joints.header.stamp = stamp
        # Every seventh gets lost on the way.
        if self._count % 7:
            self._joints.publish(joints)
        wrench = WrenchStamped()
        wrench.header.stamp = stamp
        self._wrench.publish(wrench)


@pytest.fixture(scope='module')
def robot() -> Iterator[Running]:
    running = Running(DOMAIN, Robot)
    yield running
    running.close()


@pytest.mark.parametrize('storage', ['mcap', 'sqlite3'])
def test_the_profiles_topics_are_recorded(
    robot: Running, tmp_path: Path, call: Call, storage: str
) -> None:
    bag = tmp_path / 'bag'
    told = call('record', '-o', bag, '--duration', 2, '--storage', storage, '--timeout', 30)
    with Bag(bag) as opened:
        assert set(opened.topics) == {
            '/joint_states', '/any/wrench', '/robot_description', '/tracker/pose'}
        # Of 170 that are published while all is well; a late machine publishes fewer.
        assert opened.counts['/joint_states'] > 10
        assert opened.counts['/robot_description'] == 1
        raw = [data for _, data in opened.raw('/joint_states')]
        offered = {item.topic: item.ext.offered_qos_profiles[0]
                   for item in opened._readers[0].connections}
    if storage == 'mcap':
        assert b'zstd' in next(bag.glob('*.mcap')).read_bytes()
    assert (JointDecoder(('a',), np.ones(1))(raw).states == State.USABLE).all()
    # One in seven is missing, and told.
    lost = int(next(line for line in told.splitlines() if '/joint_states ' in line).split()[3])
    assert lost == pytest.approx(len(raw) / 6, abs=8)
    assert offered['/joint_states'].reliability.name == 'RELIABLE'
    assert offered['/joint_states'].durability.name == 'TRANSIENT_LOCAL'
    assert offered['/any/wrench'].reliability.name == 'BEST_EFFORT'
    assert 'No messages received on /tracker/pose' in told


def test_further_topics_may_be_named(robot: Running, tmp_path: Path, call: Call) -> None:
    call('record', 'other', '-o', tmp_path / 'bag', '--duration', 1, '--timeout', 30)
    with Bag(tmp_path / 'bag') as opened:
        assert '/other' in opened.topics


@pytest.mark.parametrize(('number', 'code'), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_while_a_message_is_written_leaves_it_whole(
    robot: Running, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals, code: int,
) -> None:
    write, stamps = BagWriter.write, []

    def interrupted(bag: BagWriter, topic: str, stamp: int, data: bytes) -> None:
        stamps.append(stamp)
        if len(stamps) == 20:
            signal.raise_signal(number)
        write(bag, topic, stamp, data)

    monkeypatch.setattr(BagWriter, 'write', interrupted)
    call('record', '-o', tmp_path / 'bag', '--timeout', 30, code=code)
    assert len(stamps) >= 20
    with Bag(tmp_path / 'bag') as opened:
        assert sum(opened.counts.values()) == len(stamps)


def test_nothing_to_record_is_told(robot: Running, tmp_path: Path, call: Call) -> None:
    told = call('record', '-o', tmp_path / 'bag', '--namespace', '/left', '--timeout', 3, code=2)
    assert 'No publisher of /left/joint_states' in told
    assert '/joint_states' in told
    assert not (tmp_path / 'bag').exists()


def test_an_existing_bag_stays(robot: Running, tmp_path: Path, call: Call) -> None:
    (tmp_path / 'mine').write_text('precious')
    assert 'does not exist yet' in call('record', '-o', tmp_path, '--timeout', 30, code=2)


GRAPH = {
    '/joint_states': ['sensor_msgs/msg/JointState'], '/clock': ['rosgraph_msgs/msg/Clock'],
    '/left/joint_states': ['sensor_msgs/msg/JointState'],
    '/left/ft/wrench': ['geometry_msgs/msg/WrenchStamped'],
    '/ft/wrench': ['geometry_msgs/msg/WrenchStamped'],
}


class TestProfile:
    """Which of a graph's topics a profile chooses."""

    def test_a_namespace_keeps_arms_apart(self) -> None:
        profile = read_profile(PROFILE)
        assert set(profile.chosen(GRAPH, '/left')) == {'/left/joint_states', '/left/ft/wrench'}
        assert set(profile.chosen(GRAPH, '')) == {'/joint_states', '/ft/wrench', '/left/ft/wrench'}

    def test_absolute_names_are_taken_as_they_are(self) -> None:
        profile = RecorderProfile(('/clock',), (), ('joint_states',))
        assert set(profile.chosen(GRAPH, 'left')) == {'/clock', '/left/joint_states'}
        assert profile.missing(GRAPH, 'right') == ['/right/joint_states']

    @pytest.mark.parametrize(('text', 'words'), [
        ('recorder: {topics: [a, a], types: [], needed: []}', 'names that all differ'),
        ('recorder: {topics: [a], types: []}', "'recorder.needed': expected a value"),
        ('[]', 'the whole file'), ('a: {', 'not valid YAML'),
    ])
    def test_files_that_are_none(self, tmp_path: Path, text: str, words: str) -> None:
        (tmp_path / 'x.yaml').write_text(text)
        with pytest.raises(FileFormatError, match=words):
            read_profile(tmp_path / 'x.yaml')
        with pytest.raises(ConfigurationError, match='cannot be read'):
            read_profile(tmp_path / 'none.yaml')
