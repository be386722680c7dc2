# SPDX-License-Identifier: Apache-2.0
"""The observer's node at 1 kHz over DDS: lost samples, latency, CPU time."""

from __future__ import annotations

import gc
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import rclpy
from geometry_msgs.msg import WrenchStamped
from rclpy.qos import QoSProfile

from benchmarks import seven_joints
from demo.domains import own_domain
from demo.processes import Child, Children, processor_time
from robocal_ros.arrays import Array, Flags
from robocal_ros.errors import RobocalError
from robocal_ros.messages import ConditionalGroup

_NODE = 'wrench_observer'
_START_TIMEOUT = 60.0
_QUEUE = QoSProfile(depth=20000)
_POLL = 1e-4
# After a pause of the source longer than _PAUSE [ns], the window is invalid for _WINDOW [ns].
_PAUSE, _WINDOW = 11_000_000, 21_000_000
_STAMP = struct.Struct('<iI')


@dataclass(frozen=True)
class LiveFigures:
    """Outcome of a live run.

    Attributes:
        sent: Number of samples sent after the window was full for the first time.
        lost: Number of them without a wrench, on the worst link.
        paused: Number of samples not counted, because the source had just paused and the window
            was not full: the machine was busy.
        latency: Time from stamp to receipt by another process, all links, shape (m,) [s].
        processor: CPU time of the node over wall time.

    """

    sent: int
    lost: int
    paused: int
    latency: Array
    processor: float


def run_live(duration: float, output: Path) -> LiveFigures:
    """Run source and node as separate processes and record all links.

    Args:
        duration: Duration [s].
        output: Folder for logs.

    Raises:
        RobocalError: A process exits, or the node publishes nothing.

    """
    domain = own_domain()
    environment = {'ROS_DOMAIN_ID': str(domain), 'OPENBLAS_NUM_THREADS': '1',
                   'ROS_LOG_DIR': str((output / 'logs' / 'ros').resolve())}
    with Children(output / 'logs', environment) as children:
        child = children.start_node('robocal_ros.wrench.node', _NODE, {
            'autostart': True, 'require_tare': False, 'robot_description': seven_joints.urdf(),
            'sensor_frames': list(seven_joints.SENSORS), 'force_threshold': 1000.0,
            'sensor_topics': [f'{frame}/wrench' for frame in seven_joints.SENSORS],
            'results_dir': str((output / 'store').resolve())})
        context = rclpy.Context()
        rclpy.init(context=context, domain_id=domain)
        node = rclpy.create_node('robocal_client', context=context)
        try:
            return _record(node, children, child, duration, output)
        finally:
            node.destroy_node()
            context.try_shutdown()


def _record(
    node: Any, children: Children, child: Child, duration: float, output: Path
) -> LiveFigures:
    # The subscriptions are polled, not served by the executor.
    group = ConditionalGroup(lambda: False)
    subscriptions = {
        link: node.create_subscription(
            WrenchStamped, f'{_NODE}/links/{link}/wrench', _ignore, _QUEUE, callback_group=group,
            raw=True)
        for link in seven_joints.SENSORS
    }
    deadline = time.monotonic() + _START_TIMEOUT
    while not all(node.count_publishers(s.topic_name) for s in subscriptions.values()):
        if time.monotonic() > deadline:
            raise RobocalError(f'The node does not come up within {_START_TIMEOUT:.0f} s. '
                               f'The end of its log:\n{child.tail()}')
        children.check()
        time.sleep(0.1)
    time.sleep(1.0)
    file = (output / 'stamps.npy').resolve()
    file.unlink(missing_ok=True)
    source = children.start('wrench_source', [
        sys.executable, '-m', 'benchmarks.wrench_source', str(duration),
        str(file)])
    received: dict[str, list[tuple[int, int]]] = {link: [] for link in subscriptions}
    span: list[tuple[float, float]] = []
    # A search for garbage takes 15 ms, which would count as latency of the node.
    gc.disable()
    try:
        while source.process.poll() is None:
            _empty(subscriptions, received)
            if received[seven_joints.SENSORS[0]]:
                span.append((time.monotonic(), processor_time(child)))
                span = [span[0], span[-1]]
            time.sleep(_POLL)
    finally:
        gc.enable()
    time.sleep(0.5)
    _empty(subscriptions, received)
    if not all(received.values()) or not file.exists():
        raise RobocalError(f'The node published nothing. The end of the logs:\n{child.tail()}\n'
                           f'{source.tail()}')
    return _figures(np.load(file), received, span)


def _ignore(raw: bytes) -> None:
    """Unused callback of a polled subscription."""


def _empty(subscriptions: dict[str, Any], received: dict[str, list[tuple[int, int]]]) -> None:
    """Take all waiting messages and note their stamps and arrival times [ns]."""
    for link, subscription in subscriptions.items():
        handle = subscription.handle
        with handle:
            while (taken := handle.take_message(WrenchStamped, True)) is not None:
                seconds, nanoseconds = _STAMP.unpack_from(taken[0], 4)
                received[link].append((seconds * 1_000_000_000 + nanoseconds, time.time_ns()))


def _matched(due: npt.NDArray[np.int64], received: npt.NDArray[np.int64]) -> Flags:
    """Return which due stamps were received, to within a microsecond."""
    ordered = np.sort(received)
    place = np.searchsorted(ordered, due - 1000)
    return np.asarray((place < len(ordered))
                      & (ordered[np.minimum(place, len(ordered) - 1)] <= due + 1000))


def _figures(
    sent: npt.NDArray[np.int64], received: dict[str, list[tuple[int, int]]],
    span: list[tuple[float, float]],
) -> LiveFigures:
    rows = [np.array(found) for found in received.values()]
    # Stamps pass through floating point in the node, with an error below a microsecond.
    first = max(int(found[0, 0]) for found in rows) - 1000
    sent = sent[sent >= first]
    pauses = sent[1:][np.diff(sent) > _PAUSE]
    begun = np.searchsorted(pauses, sent, side='right') - 1
    since = np.where(begun >= 0, sent - pauses[begun], np.iinfo(np.int64).max) if len(
        pauses) else np.full(len(sent), np.iinfo(np.int64).max)
    due = sent[since > _WINDOW]
    lost = max(int((~_matched(due, found[:, 0])).sum()) for found in rows)
    latency = np.concatenate([1e-9 * (found[:, 1] - found[:, 0]) for found in rows])
    (begin, spent), (end, total) = span[0], span[-1]
    return LiveFigures(len(due), lost, len(sent) - len(due), latency,
                       (total - spent) / (end - begin))
