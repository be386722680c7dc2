# SPDX-License-Identifier: Apache-2.0
"""Messages into samples, over DDS: order, gaps, stamps, silence, and what cannot be used."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import rclpy
from geometry_msgs.msg import WrenchStamped
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node
from rclpy.serialization import serialize_message
from sensor_msgs.msg import JointState
from support.joints import plain
from support.ros_rig import Log, Spinner, joint_state, pair, stamp

from robocal_ros.messages import qos
from robocal_ros.messages.intake import WrenchIntake
from robocal_ros.messages.stream import JointStateStream, Subscriber, WrenchStream, publisher_hint

pytestmark = pytest.mark.usefixtures('ros')

NAMES = ('a', 'b')
PERIOD = 0.01


class Clock:
    """A steady clock that tests turn by hand."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


class Rig:
    """A stream, and a publisher that feeds it."""

    def __init__(self, *, factor: Sequence[float] = (1.0, 1.0), **values: Any) -> None:
        self.node, self.talker = pair(**values)
        self.log = Log(self.node)
        self.clock = Clock()
        self.seen: list[tuple[float, tuple[float, ...], tuple[float, ...]]] = []
        self.stream = JointStateStream(
            self.node, ReentrantCallbackGroup(), plain(NAMES), now=self.clock,
            factor=np.array(factor))
        self.stream.on_sample = lambda t, q, tau: self.seen.append((t, tuple(q), tuple(tau)))
        self.stream.recording = True
        self.stream.start()
        self.publisher = self.talker.create_publisher(JointState, 'joint_states', qos.RELIABLE)
        self.spinner = Spinner(self.node, self.talker)
        self.spinner.until(lambda: self.publisher.get_subscription_count() > 0)
        self.sent = 0

    def send(self, *messages: JointState) -> None:
        """Publish, and wait until all has been taken."""
        for message in messages:
            self.publisher.publish(message)
            self.sent += 1
            self.spinner.until(lambda: self.stream.counts.received >= self.sent)

    def send_good(self, first: int, last: int) -> None:
        """Publish states number ``first`` to ``last``, excluded, one period apart."""
        self.send(*(joint_state(1.0 + PERIOD * i, NAMES, (0.1 * i, -0.1 * i), (1.0, -1.0),
                                (2.0 * i, 3.0)) for i in range(first, last)))


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.spinner.__exit__(None, None, None)


def fed(rig: Rig, positions: np.ndarray) -> float:
    """Return the travel that a stream sees after positions of both joints."""
    for row in positions:
        rig.send(joint_state(1.0 + PERIOD * rig.sent, NAMES, tuple(row)))
    return rig.stream.travel(0.15)


def test_an_encoder_that_flickers_rests_and_one_that_creeps_does_not(rig: Rig) -> None:
    count = 2.0 * np.pi / 4096
    rng = np.random.default_rng(2)
    resting = np.column_stack((count * rng.integers(70, 72, 40), np.full(40, 0.3)))
    assert fed(rig, resting) == 0.0
    # 0.02 rad/s: four counts within 0.3 s.
    time = PERIOD * np.arange(40)
    creeping = np.column_stack((count * np.floor(0.02 * time / count), np.full(40, 0.3)))
    assert fed(rig, creeping) >= 1e-3
    # A fine encoder has many values; a leap is none of one encoder count.
    assert fed(rig, resting + rng.normal(0.0, 1e-6, (40, 2))) > 1e-3
    leaping = np.column_stack((np.repeat([0.0, 0.1], 20), np.full(40, 0.3)))
    assert fed(rig, leaping[10:30]) == pytest.approx(0.1)


@pytest.mark.parametrize('back', [0.3, 100.0])
def test_clock_that_jumps_back_clears_with_a_warning(rig: Rig, back: float) -> None:
    for i in range(40):
        rig.send(joint_state(200.0 + PERIOD * i, NAMES, (5.0, 5.0)))
    for i in range(20):
        rig.send(joint_state(200.4 - back + PERIOD * i, NAMES, (1.0, 1.0)))
    assert rig.stream.counts.clock_jumps == 1
    assert 'The clock jumped back' in rig.log['warning'][0]
    assert '40 joint samples' in rig.log['warning'][0]
    samples = rig.stream.samples()
    assert len(samples) > 5
    assert (samples.position == 1.0).all()
    assert rig.stream.travel(0.05) == 0.0


def test_a_corrupt_stamp_does_not_move_the_arm_into_the_future(rig: Rig) -> None:
    """Nothing that monitors the arm sees it, although a stream with gaps may go on there."""
    stamps = 1.0 + PERIOD * np.cumsum(np.where(np.arange(60) % 7 == 6, 5, 1))
    for number, time in enumerate(stamps):
        if number == 50:
            rig.send(joint_state(time + 0.5, NAMES, (0.0, 0.0)))
            assert rig.stream.latest is not None
            assert rig.stream.latest[0] < time
        rig.send(joint_state(time, NAMES, (0.0, 0.0)))
    assert len(rig.stream.samples()) == 60
    assert rig.stream.counts.clock_jumps == 0
    assert rig.stream.travel(0.1) == 0.0


def test_two_publishers_with_clocks_of_their_own_are_told(rig: Rig) -> None:
    other = rig.talker.create_publisher(JointState, 'joint_states', qos.RELIABLE)
    rig.spinner.until(lambda: rig.node.count_publishers('/joint_states') == 2)
    rig.send(*(joint_state(200.0 + PERIOD * i, NAMES, (5.0, 5.0)) for i in range(2)))
    for i in range(3):
        rig.send(joint_state(100.0 + PERIOD * i, NAMES, (1.0, 1.0)))
    assert "2 nodes publish on '/joint_states'" in rig.log['warning'][0]
    assert 'give each arm a namespace' in rig.log['warning'][0]
    rig.talker.destroy_publisher(other)


@pytest.mark.parametrize(('message', 'words'), [
    ({'names': ('a', 'c'), 'position': (0, 0)}, "Joint 'b' is missing .* holds a, c"),
    ({'names': NAMES, 'position': (0, 0), 'effort': (math.inf, 1)}, "Effort of joint 'a'"),
])
def test_messages_of_no_use_are_left_out_with_a_sentence(
    rig: Rig, message: dict[str, Any], words: str
) -> None:
    rig.stream.need_effort = True
    rig.send_good(0, 3)
    for i in range(9):
        rig.send(joint_state(2.0 + PERIOD * i, **message))
    assert rig.stream.problem() == ''
    rig.send(joint_state(2.5, **message))
    assert re.search(words, rig.stream.problem())
    counts = rig.stream.counts
    assert counts.incomplete + counts.not_finite == 10
    assert rig.stream.recorded == 3
    # Forgetting what was recorded does not make the messages any better.
    rig.stream.clear()
    rig.sent = 0
    assert rig.stream.problem()
    rig.send(joint_state(3.0, NAMES, (0, 0), (), (1, 1)))
    assert rig.stream.problem() == ''


def test_posture_is_known_without_effort(rig: Rig) -> None:
    """An arm whose efforts fail can still be seen to rest."""
    rig.stream.need_effort = True
    for i in range(30):
        rig.clock.time += PERIOD
        rig.send(joint_state(1.0 + PERIOD * i, NAMES, (0.5, 0.25), (), (math.nan, 1.0)))
    assert rig.stream.recorded == 0
    assert rig.stream.age() == 0.0
    assert rig.stream.posture().tolist() == [0.5, 0.25]
    assert rig.stream.travel(0.2) == 0.0
    assert "Effort of joint 'a'" in rig.stream.problem()


def test_what_queued_up_is_passed_on_if_it_is_wanted(rig: Rig) -> None:
    heard: list[float] = []
    wanted = False
    rig.stream.recording = False
    rig.stream.listen(lambda stamp, q, v, tau: heard.append(stamp), lambda: wanted)
    rig.send_good(0, 2)
    assert heard == [1.0, 1.01]

    def queue(first: int, last: int) -> None:
        rig.stream._receive_all([bytes(serialize_message(joint_state(
            1.0 + PERIOD * i, NAMES, (0.1 * i, -0.1 * i), (1.0, -1.0), (2.0 * i, 3.0))))
            for i in range(first, last)])

    queue(2, 5)
    assert (rig.stream.newest, len(heard)) == (1.04, 2)
    wanted = True
    queue(5, 8)
    assert heard[2:] == [1.05, 1.06, 1.07]


def test_silence_shows_as_age(rig: Rig) -> None:
    assert rig.stream.age() == math.inf
    rig.send_good(0, 1)
    rig.clock.time += 3.0
    assert rig.stream.age() == 3.0


def reliability(node: Node, spinner: Spinner, topic: str) -> str:
    """Return how the only subscription to a topic hears it."""
    spinner.until(lambda: node.count_subscribers(topic) == 1)
    (information,) = node.get_subscriptions_info_by_topic(topic)
    return str(information.qos_profile.reliability.name)


def test_reliability_of_one_topic_can_be_overridden_by_parameter() -> None:
    name = 'qos_overrides./joint_states.subscription.reliability'
    rig = Rig(**{name: 'reliable'})
    with rig.spinner:
        other = Subscriber(rig.node, ReentrantCallbackGroup(), WrenchStamped, 'other', print)
        other.start()
        assert [reliability(rig.talker, rig.spinner, topic)
                for topic in ('/joint_states', '/other')] == ['RELIABLE', 'BEST_EFFORT']
        other.destroy()


def test_a_stream_that_rests_hears_nothing_and_keeps_what_was_recorded(rig: Rig) -> None:
    rig.send_good(0, 3)
    rig.stream.stop()
    rig.spinner.until(lambda: rig.publisher.get_subscription_count() == 0)
    assert rig.stream.recorded == 3
    # Where the arm is now, nobody knows.
    assert rig.stream.latest is None
    assert rig.stream.age() == np.inf
    rig.stream.start()
    rig.spinner.until(lambda: rig.publisher.get_subscription_count() > 0)
    rig.send_good(3, 5)
    assert rig.stream.recorded == 5


class WrenchRig:
    """An F/T stream, and a publisher that feeds it."""

    def __init__(self, sign: float = 1.0) -> None:
        self.node, self.talker = pair()
        self.clock = Clock()
        self.stream = WrenchStream(
            self.node, ReentrantCallbackGroup(), WrenchStamped, 'ft/wrench',
            WrenchIntake('/ft/wrench', 'ft', sign), now=self.clock, remedy='Check it.')
        self.stream.recording = True
        self.stream.start()
        self.publisher = self.talker.create_publisher(WrenchStamped, 'ft/wrench', qos.RELIABLE)
        self.spinner = Spinner(self.node, self.talker)
        self.spinner.until(lambda: self.publisher.get_subscription_count() > 0)

    def send(
        self, time: float, values: Sequence[float] = (1, 2, 3, 4, 5, 6), frame: str = 'ft'
    ) -> None:
        message = WrenchStamped()
        message.header.stamp = stamp(time)
        message.header.frame_id = frame
        force, torque = message.wrench.force, message.wrench.torque
        force.x, force.y, force.z, torque.x, torque.y, torque.z = map(float, values)
        received = self.stream.counts.received
        self.publisher.publish(message)
        self.spinner.until(lambda: self.stream.counts.received > received)


def test_wrench_silence_is_a_complaint() -> None:
    rig = WrenchRig()
    with rig.spinner:
        assert re.search("'/ft/wrench' at all.*no message of type", rig.stream.problem(0.5))
        rig.send(1.0)
        assert rig.stream.problem(0.5) == ''
        rig.send(1.1)
        # Publishers are looked for at most once a second, but here something has changed.
        rig.clock.time += 0.7
        told = rig.stream.problem(0.5)
        assert "'/ft/wrench' for 0.7 s, after 2. '/ft/wrench' still has a publisher, which" in told
        assert 'has arrived' not in told


def test_an_overloaded_machine_is_named_as_a_cause_of_silence(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = WrenchRig()
    with rig.spinner:
        rig.send(1.0)
        rig.clock.time += 2.0
        cores = os.cpu_count() or 1
        monkeypatch.setattr(os, 'getloadavg', lambda: (cores, 0.0, 0.0))
        assert 'overloaded' not in rig.stream.problem(0.5)
        monkeypatch.setattr(os, 'getloadavg', lambda: (10.0 * cores, 0.0, 0.0))
        assert f'overloaded, which makes messages late: {10 * cores}.0 ' in rig.stream.problem(0.5)


def test_a_frozen_wrench_is_a_complaint_after_the_patience() -> None:
    rig = WrenchRig()
    with rig.spinner:
        for i in range(30):
            rig.send(1.0 + 0.04 * i, values=(1, 2, 3, 4, 5, i % 2))
        assert rig.stream.problem(0.5) == ''
        last = 1.0 + 0.04 * 29
        for i in range(1, 13):
            rig.send(last + 0.04 * i, values=(1, 2, 3, 4, 5, 1))
        assert rig.stream.problem(0.5) == ''
        rig.send(last + 0.54, values=(1, 2, 3, 4, 5, 1))
        assert "F/T topic '/ft/wrench' has sent the same values for 0.5 s" in (
            rig.stream.problem(0.5))
        rig.send(last + 0.56, values=(1, 2, 3, 4, 5, 2))
        assert rig.stream.problem(0.5) == ''


def test_another_namespace_and_another_name_are_found() -> None:
    listener = rclpy.create_node('listener', namespace='right')
    talker = rclpy.create_node('talker', namespace='left')
    talker.create_publisher(JointState, 'joint_states', 10)
    talker.create_publisher(WrenchStamped, 'gripper_sensor/data', 10)
    # What the node itself sends is no candidate.
    listener.create_publisher(WrenchStamped, '~/tool_wrench', 10)
    with Spinner(listener, talker) as spinner:
        spinner.until(
            lambda: 'gripper_sensor' in publisher_hint(listener, 'ft/wrench', WrenchStamped))
        told = publisher_hint(listener, 'joint_states', JointState)
        assert "No publisher on '/right/joint_states'" in told
        assert 'sensor_msgs/msg/JointState is published on /left/joint_states.' in told
        assert 'namespace' in told
        told = publisher_hint(listener, 'ft/wrench', WrenchStamped)
        assert 'published on /left/gripper_sensor/data. Set the parameter' in told
        assert 'tool_wrench' not in told


def test_nothing_and_a_silent_publisher_are_told_apart() -> None:
    node = rclpy.create_node('alone')
    with Spinner(node) as spinner:
        assert 'none of sensor_msgs/msg/JointState on any' in publisher_hint(
            node, 'joint_states', JointState)
        node.create_publisher(JointState, 'joint_states', 10)
        spinner.until(
            lambda: 'has a publisher' in publisher_hint(node, 'joint_states', JointState))
