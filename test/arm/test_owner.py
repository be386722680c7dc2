# SPDX-License-Identifier: Apache-2.0
"""One node of a namespace moves the arm at a time."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import rclpy
from rclpy.callback_groups import ReentrantCallbackGroup
from std_msgs.msg import String
from support.ros_rig import Log, Spinner

from robocal_ros.arm.owner import ArmOwner
from robocal_ros.arm.waiting import Waiter
from robocal_ros.errors import MotionError
from robocal_ros.messages import qos

pytestmark = pytest.mark.usefixtures('ros')


class Mover:
    """A node that claims the arm."""

    def __init__(self, name: str, namespace: str = '/cell') -> None:
        self.node = rclpy.create_node(name, namespace=namespace)
        self.waiter = Waiter(self.node, ReentrantCallbackGroup())
        self.owner = ArmOwner(self.waiter)

    def destroy(self) -> None:
        self.owner.destroy()
        self.waiter.destroy()


class Pair:
    def __init__(self) -> None:
        self.first, self.second = Mover('friction'), Mover('payload')
        self.elsewhere = Mover('payload', '/other_cell')
        self.spinner = Spinner(self.first.node, self.second.node, self.elsewhere.node)
        self.spinner.until(lambda: all(
            mover.owner._publisher.get_subscription_count() > 1
            for mover in (self.first, self.second)))


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    with made.spinner:
        yield made
        for mover in (made.first, made.second, made.elsewhere):
            mover.destroy()


def test_another_node_is_refused_until_the_owner_has_ended(pair: Pair) -> None:
    first, second = pair.first.owner, pair.second.owner
    first.claim()
    pair.spinner.until(lambda: bool(second.other))
    with pytest.raises(MotionError, match='Node /cell/friction moves the arm; nothing was sent'):
        second.claim()
    assert first.other == ''
    # The owner goes on, and so does the arm of another namespace.
    first.check()
    pair.elsewhere.owner.claim()
    pair.first.waiter.on_end()
    pair.spinner.until(lambda: not second.other)
    second.claim()
    pair.spinner.until(lambda: first.other == '/cell/payload')


def test_of_two_claims_at_once_one_holds(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = pair.first.owner, pair.second.owner
    first.claim()
    with monkeypatch.context() as patch:
        # The claim of the first has not arrived yet.
        patch.setattr(second, 'check', lambda: None)
        second.claim()
    pair.spinner.until(lambda: bool(first.other and second.other))
    first.check()
    with pytest.raises(MotionError):
        second.check()


OWNER = """
import rclpy
from rclpy.callback_groups import ReentrantCallbackGroup
from robocal_ros.arm.owner import ArmOwner
from robocal_ros.arm.waiting import Waiter

rclpy.init()
node = rclpy.create_node('arm_owner', namespace='/cell')
owner = ArmOwner(Waiter(node, ReentrantCallbackGroup()))
owner.claim()
print('claimed', flush=True)
input()
print('refused' if owner.other else 'free', flush=True)
owner.check()
print('owns it', flush=True)
input()
"""
Process = subprocess.Popen[str]


@pytest.fixture
def process(pair: Pair) -> Iterator[Process]:
    """A process that has claimed the arm, and whose executor does not spin."""
    with subprocess.Popen([sys.executable, '-c', OWNER], text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as made:
        assert said(made) == 'claimed'
        pair.spinner.until(lambda: pair.second.owner.other == '/cell/arm_owner')
        yield made
        made.kill()


def said(process: Process) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def ask(process: Process) -> None:
    assert process.stdin is not None
    process.stdin.write('\n')
    process.stdin.flush()


def spin(pair: Pair, duration: float) -> None:
    end = time.monotonic() + duration
    pair.spinner.until(lambda: time.monotonic() > end, duration + 1.0)


@pytest.mark.realtime
def test_the_claim_of_a_killed_node_ends_within_two_seconds(pair: Pair, process: Process) -> None:
    process.kill()
    begin = time.monotonic()
    spin(pair, 1.4)
    with pytest.raises(MotionError, match=r'arm_owner has claimed the arm, and has been silent '
                                          r'for 1\.\d s; nothing was sent. It may have ended'):
        pair.second.owner.claim()
    pair.spinner.until(lambda: not pair.second.owner.other)
    assert time.monotonic() - begin < 2.5
    pair.second.owner.claim()


@pytest.mark.realtime
def test_a_node_that_is_late_keeps_its_claim(pair: Pair, process: Process) -> None:
    # Its executor does not run at all; nor does the whole process for a second.
    spin(pair, 3.0)
    process.send_signal(signal.SIGSTOP)
    spin(pair, 1.0)
    process.send_signal(signal.SIGCONT)
    spin(pair, 0.6)
    with pytest.raises(MotionError, match='Node /cell/arm_owner moves the arm'):
        pair.second.owner.claim()
    ask(process)
    assert [said(process), said(process)] == ['free', 'owns it']


@pytest.mark.realtime
@pytest.mark.parametrize('taken', [True, False])
def test_a_node_that_was_stopped_for_long_claims_anew_unless_another_has(
    pair: Pair, process: Process, taken: bool
) -> None:
    process.send_signal(signal.SIGSTOP)
    pair.spinner.until(lambda: not pair.second.owner.other)
    if taken:
        pair.second.owner.claim()
    process.send_signal(signal.SIGCONT)
    time.sleep(0.7)
    ask(process)
    # Its name is the first one of the two, which decides between claims at the same time only.
    assert said(process) == ('refused' if taken else 'free')
    assert said(process) == ('' if taken else 'owns it')
    if not taken:
        pair.spinner.until(lambda: pair.second.owner.other == '/cell/arm_owner')


def test_invented_claims_are_bounded_and_hold_nothing(pair: Pair) -> None:
    stranger = pair.elsewhere.node.create_publisher(String, '/cell/robocal/owner', qos.MARKS)
    pair.spinner.until(lambda: stranger.get_subscription_count() > 1)
    owner, log = pair.second.owner, Log(pair.second.node)
    for number in range(1000):
        stranger.publish(String(data=f'claim /nobody_{number}'))
        pair.spinner.executor.spin_once(timeout_sec=0.0)
        assert len(owner._claims) <= 101
    stranger.publish(String(data='claim /' + 'x' * 2000))
    pair.first.owner.claim()
    pair.spinner.until(lambda: owner.other == '/cell/friction')
    spin(pair, 0.5)
    assert re.search('More than 100 nodes claim the arm', ' '.join(log['error']))
    assert re.search('message on /cell/robocal/owner: A message has 2 kB', ' '.join(log['error']))
    assert list(owner._claims) == ['/cell/friction']
