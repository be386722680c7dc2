# SPDX-License-Identifier: Apache-2.0
"""Messages of any content and size on each topic of each node: none ends or hinders it."""

from __future__ import annotations

import itertools
import random
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import rclpy
from action_msgs.msg import GoalStatus, GoalStatusArray
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import TransformStamped
from rclpy.qos import QoSProfile
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import Header, String
from support.friction_results import payload_result
from support.parameter_files import node_classes
from support.ros_rig import NodeRig
from support.security_policies import PARAMETERS
from tf2_msgs.msg import TFMessage
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from robocal_ros.messages import faults_of, qos
from robocal_ros.results.store import to_yaml

pytestmark = pytest.mark.usefixtures('ros')

CHANCE = random.Random(0)
# Besides these, a valid empty message of the type.
RAW = {
    'nothing': b'',
    'an encapsulation': b'\x00\x01\x00\x00',
    'a false length': b'\x00\x01\x00\x00\xff\xff\xff\xff' + b'x' * 20,
    'bytes': b'\x00\x01\x00\x00' + CHANCE.randbytes(300),
    'half a megabyte of brackets': b'\x00\x01\x00\x00' + (500_000).to_bytes(4, 'little')
                                   + b'[' * 499_999 + b'\0',
    'two megabytes': b'\x00\x01\x00\x00' + bytes(2 * 10**6),
}


@pytest.fixture(params=sorted(node_classes()))
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NodeRig]:
    values: dict[str, Any] = dict(PARAMETERS.get(request.param, {}))
    if request.param == 'leveling':
        values['auto_level_after'] = ['task:screw']
    # A node of its name that ended stays in the graph, and lends weight to a forged claim.
    name = f'{request.param}_of_{request.function.__name__}'
    made = NodeRig(node_classes()[request.param], tmp_path, name=name, **values)
    yield made.start()
    made.end()


def test_texts_beyond_a_megabyte_are_refused_unread(rig: NodeRig) -> None:
    """Those on the topics of results and of the description, which others are bounded below."""
    topics = {rig.node.resolve_topic_name(item.topic) for item in rig.node.subscriptions
              if item.msg_type is String}
    texts = [topic for topic in topics if topic.endswith(
        ('/result', '/arm', '/drive_gains', '/robot_description'))]
    assert texts or not topics
    for topic in texts:
        publisher = rig.publisher(String, topic, qos.LATCHED)
        publisher.publish(String(data='x' * 1_100_000))
        rig.spinner.until(lambda topic=topic: any(
            topic in what for what in faults_of(rig.node)), what=topic)
    assert not [line for line in rig.log['warning'] if 'not used' in line]


def test_no_message_ends_a_node(rig: NodeRig) -> None:
    statuses = rig.subscribe(DiagnosticStatus, 'status', qos.LATCHED)
    profile = QoSProfile(
        depth=10, reliability=qos.LATCHED.reliability, durability=qos.LATCHED.durability)
    talkers = []
    for subscription in list(rig.node.subscriptions):
        topic, kind = rig.node.resolve_topic_name(subscription.topic), subscription.msg_type
        publisher = rig.talker.create_publisher(kind, topic, profile)
        rig.spinner.until(publisher.get_subscription_count, what=topic)
        talkers.append((publisher, [*RAW.values(), *WELL_FORMED.get(kind, ()), kind()]))
    # One message on each topic at a time, which no queue is too short for.
    for turn in itertools.zip_longest(*(messages for _, messages in talkers)):
        for (publisher, _), message in zip(talkers, turn, strict=True):
            if message is not None:
                with suppress(rclpy.exceptions.InvalidHandle):
                    publisher.publish(message)
        end = time.monotonic() + 0.05
        rig.spinner.until(lambda end=end: time.monotonic() > end)
    moves = not rig.node.get_name().startswith('wrench_observer')
    other = '/robocal/owner' if moves else '/payload_identification/result'

    def left_out() -> bool:
        found = {item.key: int(item.value) for item in statuses[-1].values
                 if item.key.startswith('left out: ')} if statuses else {}
        return all(found.get(f'left out: message on {topic}', 0) >= 2
                   for topic in ('/joint_states', other))

    # What is not needed at once is taken after 0.8 s.
    rig.spinner.until(left_out)
    begin = time.monotonic()
    assert rig.call('cancel').success
    assert time.monotonic() - begin < 10.0
    assert rig.call('clear').success
    assert rig.node.is_active
    # The same fault is logged once.
    lines = [line.partition(': ')[0] for line in rig.log['error'] if line.startswith('Left out ')]
    assert len(set(lines)) == len(lines)
    assert not rig.log['fatal']
    for publisher, _ in talkers:
        rig.talker.destroy_publisher(publisher)


def text(raw: bytes) -> bytes:
    """Return a serialized text, which need not be one."""
    return b'\x00\x01\x00\x00' + (len(raw) + 1).to_bytes(4, 'little') + raw + b'\0'


def loop(*frames: str) -> TFMessage:
    """Return transforms from each frame to the next, and from the last to the first."""
    return TFMessage(transforms=[
        TransformStamped(header=Header(frame_id=parent), child_frame_id=child)
        for parent, child in zip(frames, frames[1:] + frames[:1], strict=True)])


MANY = [f'joint_{number}' for number in range(10_000)]
WELL_FORMED: dict[Any, list[Any]] = {
    String: [text(b'\xff\xfe'), text(b'a\0b'), text(b'claim /' + b'x' * 10**6),
             text(b'claim /\x00'), String(data='0' * 20 + ' ' + 'f' * 32)],
    JointState: [JointState(name=MANY, position=[0.0] * len(MANY)), JointState(name=MANY),
                 JointState(name=['x' * 10**6], position=[0.0]),
                 JointState(name=['joint_1'] * 6, position=[0.0] * 6, velocity=[0.0])],
    TFMessage: [loop('a'), loop('base_link', 'tool0'), loop(*'abcdef'),
                loop(*(f'f{number}' for number in range(100)))],
    JointTrajectory: [JointTrajectory(
        joint_names=[f'joint_{number}' for number in range(1, 7)],
        points=[JointTrajectoryPoint(positions=[0.0] * 6)] * count) for count in (1, 2, 100_000)],
    GoalStatusArray: [GoalStatusArray(status_list=[GoalStatus(status=2)] * 100_000),
                      GoalStatusArray(status_list=[GoalStatus(status=-7)])],
}


def test_a_clock_before_zero_is_left_out(tmp_path: Path) -> None:
    rig = NodeRig(node_classes()['leveling'], tmp_path, use_sim_time=True).start()
    publisher = rig.publisher(Clock, '/clock')

    def left_out() -> bool:
        # The queue of the clock holds one message.
        publisher.publish(Clock(clock=Time(sec=-1)))
        return any('message on /clock' in line for line in rig.log['error'])

    rig.spinner.until(left_out)
    assert rig.node.is_active
    rig.end()


class Broken:
    """Callback that raises, as one with a defect."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *_: object) -> None:
        self.calls += 1
        raise ZeroDivisionError('a defect')


def test_exceptions_in_callbacks_are_counted_and_named(tmp_path: Path) -> None:
    rig = NodeRig(node_classes()['leveling'], tmp_path).start()
    broken, late = Broken(), Broken()

    async def broken_later() -> None:
        late()

    timer = rig.node.create_timer(0.02, lambda: broken())
    rig.node.subscription(String, '/broken', broken, qos.RELIABLE)
    publisher = rig.publisher(String, '/broken')
    for _ in range(3):
        publisher.publish(String())
    rig.node.begin('task', broken_later)
    rig.spinner.until(lambda: broken.calls > 5 and late.calls)
    rig.node.destroy_timer(timer)
    statuses = rig.subscribe(DiagnosticStatus, 'status', qos.LATCHED)
    rig.spinner.until(lambda: statuses and any(
        item.key == 'left out: message on /broken' and item.value == '3'
        for item in statuses[-1].values))
    (line,) = (line for line in rig.log['error'] if '/broken' in line)
    assert re.fullmatch(
        r'Left out a message on /broken: ZeroDivisionError: a defect \(.*/test_hostile_messages'
        r'\.py, line \d+\)\. Further ones are only counted, in ~/status\.', line)
    assert rig.call('cancel').success
    rig.end()


@pytest.fixture
def friction(tmp_path: Path) -> Iterator[NodeRig]:
    """A friction node, which uses payload results."""
    made = NodeRig(node_classes()['friction_identification'], tmp_path)
    yield made.start()
    made.end()


def used(rig: NodeRig) -> float | None:
    found = rig.node.results.current('payload')
    return None if found is None else found.parameter('mass').value


def test_results_are_used_between_services(friction: NodeRig) -> None:
    node, spinner = friction.node, friction.spinner
    payloads = friction.publisher(String, '/payload_identification/result', qos.LATCHED)
    spinner.until(lambda: not node.waiter.loading, 60.0)

    async def procedure() -> str:
        # What was published before the call is in use, the rest is not even read.
        assert used(friction) == 2.0
        payloads.publish(String(data=to_yaml(payload_result(mass=3.0))))
        await node.waiter.until(lambda: False, 0.5)
        assert used(friction) == 2.0
        return 'Done.'

    payloads.publish(String(data=to_yaml(payload_result(mass=2.0))))
    time.sleep(0.2)
    assert spinner.run(lambda: node.answer('run', procedure)).message == 'Done.'
    spinner.until(lambda: used(friction) == 3.0)


@pytest.mark.realtime
def test_a_text_that_takes_long_to_read_delays_neither_executor_nor_cancel(
    friction: NodeRig
) -> None:
    node, spinner = friction.node, friction.spinner
    payloads = friction.publisher(String, '/payload_identification/result', qos.LATCHED)
    spinner.until(lambda: not node.waiter.loading, 60.0)
    slow = String(data='[' + '[],' * 99_000 + ' ' * 700_000 + ']')
    payloads.publish(slow)
    turns = []
    while not friction.log['warning']:
        # Processor time of both threads: the machine may be busy.
        begin = time.process_time()
        spinner.executor.spin_once(timeout_sec=0.0)
        turns.append(time.process_time() - begin)
    assert sum(turns) > 0.1
    assert max(turns) < 0.05
    assert 'Payload result not used' in friction.log['warning'][0]
    payloads.publish(slow)
    spinner.until(lambda: node.results.reading)
    run = friction.begin('run')
    spinner.until(lambda: node.running)
    begin = time.monotonic()
    assert friction.call('cancel').success
    assert time.monotonic() - begin < 0.2
    assert spinner.wait(run).message == 'Cancelled on request.'
