# SPDX-License-Identifier: Apache-2.0
"""The observer's node at 1 kHz, live over DDS: lost samples, latency, processor time."""

from __future__ import annotations

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
from rclpy.callback_groups import CallbackGroup
from rclpy.qos import QoSProfile

from benchmarks import seven_joints
from demo.domains import own_domain
from demo.processes import Child, Children, processor_time
from robocal_ros.arrays import Array
from robocal_ros.errors import RobocalError

_NODE = 'wrench_observer'
_START_TIMEOUT = 60.0
_QUEUE = QoSProfile(depth=20000)
_POLL = 1e-4
# A source that pauses for longer leaves a gap that no window bridges; it fills again in time.
_PAUSE, _WINDOW = 11_000_000, 21_000_000
_STAMP = struct.Struct('<iI')


class _Polled(CallbackGroup):
    """Entities that no executor waits for: they are emptied by hand."""

    def can_execute(self, entity: Any) -> bool:
        return False

    def beginning_execution(self, entity: Any) -> bool:
        return False

    def ending_execution(self, entity: Any) -> None:
        pass


@dataclass(frozen=True)
class LiveFigures:
    """What a live run gave.

    Attributes:
        sent: Samples that were sent after the window was full for the first time.
        lost: How many of them did not come back, on the link where most did not.
        paused: How many samples do not count, because the source had just paused for so long
            that no window is full: the machine was busy with other things.
        latency: From stamp to receipt by another process, all links, shape (m,) [s].
        processor: Processor time of the node over wall time.

    """

    sent: int
    lost: int
    paused: int
    latency: Array
    processor: float


def run_live(duration: float, output: Path) -> LiveFigures:
    """Run source and node as processes of their own, and listen to all links.

    Args:
        duration: For how long [s].
        output: Folder for logs.

    Raises:
        RobocalError: If a process ends by itself or nothing comes.

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
            return _listen(node, children, child, duration, output)
        finally:
            node.destroy_node()
            context.try_shutdown()


def _listen(
    node: Any, children: Children, child: Child, duration: float, output: Path
) -> LiveFigures:
    group = _Polled()
    subscriptions = {
        link: node.create_subscription(
            WrenchStamped, f'{_NODE}/links/{link}/wrench', _ignore, _QUEUE, callback_group=group,
            raw=True)
        for link in seven_joints.SENSORS
    }
    deadline = time.monotonic() + _START_TIMEOUT
    while not all(node.count_publishers(s.topic_name) for s in subscriptions.values()):
        if time.monotonic() > deadline:
            raise RobocalError(f'The node does not come up. The end of its log:\n{child.tail()}')
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
    while source.process.poll() is None:
        _empty(subscriptions, received)
        if received[seven_joints.SENSORS[0]]:
            span.append((time.monotonic(), processor_time(child)))
            span = [span[0], span[-1]]
        time.sleep(_POLL)
    time.sleep(0.5)
    _empty(subscriptions, received)
    if not all(received.values()) or not file.exists():
        raise RobocalError(f'Nothing came back. The end of the log:\n{child.tail()}\n'
                           f'{source.tail()}')
    return _figures(np.load(file), received, span)


def _ignore(raw: bytes) -> None:
    """Stand in for a callback: what is polled calls none."""


def _empty(subscriptions: dict[str, Any], received: dict[str, list[tuple[int, int]]]) -> None:
    """Note stamp and arrival of all that waits [ns]."""
    for link, subscription in subscriptions.items():
        handle = subscription.handle
        with handle:
            while (taken := handle.take_message(WrenchStamped, True)) is not None:
                seconds, nanoseconds = _STAMP.unpack_from(taken[0], 4)
                received[link].append((seconds * 1_000_000_000 + nanoseconds, time.time_ns()))


def _matched(due: npt.NDArray[np.int64], received: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Tell which stamps were heard, to within a microsecond."""
    ordered = np.sort(received)
    place = np.searchsorted(ordered, due - 1000)
    return np.asarray((place < len(ordered))
                      & (ordered[np.minimum(place, len(ordered) - 1)] <= due + 1000))


def _figures(
    sent: npt.NDArray[np.int64], received: dict[str, list[tuple[int, int]]],
    span: list[tuple[float, float]],
) -> LiveFigures:
    rows = [np.array(found) for found in received.values()]
    # Stamps go through floating point in the node, which costs a fraction of a microsecond.
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
