# SPDX-License-Identifier: Apache-2.0
"""Process of `robocal record`, and a bag player with a clock, like that of rosbag2."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rclpy.qos import QoSProfile
from rosgraph_msgs.msg import Clock

from robocal_ros.cli.record import message_class
from robocal_ros.messages import qos
from robocal_ros.messages.bag import Bag
from robocal_sim.consumers import Consumers
from support.bag_examples import recorded
from support.live_graph import Child, Client
from support.ros_rig import PATIENCE

_AHEAD = 0.3
_DEPTH = 20000
# An idle node takes its messages four times a second, and a replay can be faster than the usual
# depth.
DEEP = {'qos_overrides./joint_states.subscription.depth': _DEPTH}


class RecorderProcess(Child):
    """`robocal record` in a child process."""

    def __init__(self, folder: Path, log: Path, *arguments: str) -> None:
        super().__init__([sys.executable, '-m', 'robocal_ros.cli.main', 'record', '-o',
                          str(folder), '--timeout', str(PATIENCE), *arguments], log)

    @property
    def said(self) -> str:
        return self.log.read_text()

    def end(self, timeout: float = PATIENCE) -> int:
        """Send SIGINT and return the exit code."""
        self.send(signal.SIGINT)
        return super().end(timeout)


def play(
    client: Client, bag: Path, readers: Sequence[str], topics: Sequence[str],
    others: Sequence[str] = (), *, settle: float = 0.0,
) -> None:
    """Publish a bag with a clock, no faster than all readers process it.

    Readers are nodes under simulated time. Topics besides the joint states are latched,
    ``others`` are streams. Nodes that check for subscribers periodically need time to settle [s].
    """
    node = client.node
    streams = ('/joint_states', *others)
    received = {f'/{name}': -np.inf for name in readers}

    def note(name: str, stamp: float, _wall: float) -> None:
        if name in received:
            received[name] = stamp

    clock = node.create_publisher(Clock, '/clock', 10)
    with Bag(bag) as opened:
        publishers = {
            topic: node.create_publisher(
                message_class(opened.topics[topic]), topic,
                QoSProfile(depth=_DEPTH) if topic in streams else qos.MARKS)
            for topic in (*topics, *others)}
        # Marks and latched topics first: the order in which topics are replayed is undefined.
        for topic in topics:
            if topic not in streams:
                for _, raw in opened.raw(topic):
                    publishers[topic].publish(raw)
        for topic in streams:
            client.until(lambda topic=topic: publishers[topic].get_subscription_count() >= (
                len(readers) if topic == '/joint_states' else 1))
        consumers = Consumers(
            node, publishers['/joint_states'], 0.0, note, lambda _: None)
        begin = time.monotonic() + settle
        client.until(lambda: time.monotonic() >= begin)
        newest, count = 0.0, 0

        def follow(stamp: float) -> None:
            """Wait until all readers have received everything up to a stamp [s]."""
            def followed() -> bool:
                consumers.look(time.monotonic())
                consumers.ask(newest, time.monotonic())
                return bool(min(received.values()) >= stamp)

            client.until(followed, what='the readers')

        for topic, raw in recorded(opened, streams):
            if topic != '/joint_states':
                publishers[topic].publish(bytes(raw))
                continue
            sec, nanosec = np.frombuffer(raw, '<i4', 2, 4)
            stamp = float(sec) + 1e-9 * float(nanosec)
            message = Clock()
            message.clock.sec, message.clock.nanosec = int(sec), int(nanosec)
            clock.publish(message)
            publishers[topic].publish(bytes(raw))
            newest, count = max(newest, stamp), count + 1
            if count % 50 == 0:
                follow(newest - _AHEAD)
        follow(newest)
