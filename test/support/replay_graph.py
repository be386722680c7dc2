# SPDX-License-Identifier: Apache-2.0
"""Process of `robocal record`, and a bag player with a clock, like that of rosbag2."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from rclpy.qos import QoSProfile
from rosgraph_msgs.msg import Clock

from robocal_ros.cli.main import main
from robocal_ros.cli.record import message_class
from robocal_ros.messages import Bag, qos
from robocal_ros.results import CalibrationResult, Verdict, read_result
from robocal_sim.consumers import Consumers
from support.bag_examples import recorded
from support.live_graph import Child, Client
from support.ros_rig import PATIENCE

_AHEAD = 0.3
_DEPTH = 20000
# An idle node takes its messages four times a second, and a replay can be faster than the usual
# depth.
DEEP = {'qos_overrides./joint_states.subscription.depth': _DEPTH}


@contextmanager
def recorded_by(
    client: Client, folder: Path, nodes: Sequence[str], profile: Mapping[str, Any]
) -> Iterator[Path]:
    """Record active nodes into ``bag`` of a folder by `robocal record`; yield its log."""
    file, log = folder / 'profile.yaml', folder / 'recorder.log'
    file.write_text(yaml.safe_dump({'recorder': {**profile}}))
    with Child([
        sys.executable, '-m', 'robocal_ros.cli.main', 'record', '-o', str(folder / 'bag'),
        '--timeout', str(PATIENCE), '--profile', str(file)], log,
    ) as recorder:
        for node in nodes:
            client.until(lambda node=node: client.state(node) == 'active')
        client.until(lambda: 'Recording into' in log.read_text())
        yield log
        recorder.send(signal.SIGINT)
        assert recorder.end() == 0, log.read_text()


def streams_of(*topics: str) -> dict[str, Any]:
    """Return a profile with what nodes read; the usual one records a dozen topics more."""
    return {'topics': ['robot_description', *topics], 'types': [], 'needed': ['joint_states']}


def filed(folder: Path, kind: str) -> CalibrationResult:
    """Return the result that a node filed, passed or not."""
    good = folder / f'{kind}.yaml'
    return read_result(good if good.exists() else folder / f'{kind}.failed.yaml')


def estimated(folder: Path, kind: str, **parameters: Any) -> CalibrationResult:
    """Return what `robocal estimate` makes of the bag in a folder, with results in ``offline``."""
    output = folder / f'offline_{kind}.yaml'
    code = main(['estimate', kind, str(folder / 'bag'), '-o', str(output),
                 '--results-dir', str(folder / 'offline' / kind),
                 *(word for name, told in parameters.items() for word in (
                     '-p', f'{name}:={str(told).lower() if isinstance(told, bool) else told}'))])
    result = read_result(output)
    assert code == (0 if result.verdict is Verdict.PASS else 1)
    return result


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
        consumers = Consumers(node, publishers['/joint_states'], 0.0, note, lambda _: None)
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
