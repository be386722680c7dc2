# SPDX-License-Identifier: Apache-2.0
"""Benchmark of the nodes: time until active, CPU load while inactive, the observer at 1 kHz."""

from __future__ import annotations

import gc
import multiprocessing
import struct
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import rclpy
from geometry_msgs.msg import WrenchStamped
from rclpy.qos import QoSProfile
from sensor_msgs.msg import JointState

from benchmarks import seven_joints
from benchmarks.benchmark import Benchmark, Figure, Outcome, Request
from demo import default_cell
from demo.domains import own_domain
from demo.processes import Children, processor_time
from robocal_ros import registry
from robocal_ros.cli.node_client import NodeClient, RosSession
from robocal_ros.errors import RobocalError
from robocal_ros.messages import ConditionalGroup, qos
from robocal_ros.robot import Robot

START_BAR, IDLE_BAR = 1.5, 1.0
"""Limits of the time until active [s] and of the share of a core while inactive [%]."""

_TIMEOUT, _SETTLING, _IDLE, _QUICK_IDLE, _LIVE = 60.0, 3.0, 10.0, 0.5, 60.0
_PERIOD = 1e-3
_ACTIVE, _LOOK, _POLL = 'Active.', 0.005, 1e-4
_QUEUE = QoSProfile(depth=20000)
# After a pause of the source longer than _PAUSE [ns], the window is invalid for _WINDOW [ns].
_PAUSE, _WINDOW = 11_000_000, 21_000_000
_STAMP = struct.Struct('<iI')
_BUSY = 'Wall time on a machine that did other work, too; see the CPU time.'
_FIGURES = (('start to active', 's', START_BAR), ('CPU time until then', 's', None),
            ('inactive, joint states at 1 kHz: share of a core', '%', IDLE_BAR))
Stamps = npt.NDArray[np.int64]


@contextmanager
def _started(name: str, output: Path, values: Mapping[str, Any]) -> Any:
    """Start a node; yields session, its process, and the time until it is active [s].

    The time is read from its log: over DDS, discovery would be measured too.
    """
    domain = own_domain()
    with (
        Children(output / 'logs', {'OPENBLAS_NUM_THREADS': '1'}) as children,
        RosSession('robocal_bench', domain, watch=children.check) as session,
    ):
        began = time.monotonic()
        child = children.start_node(registry.nodes()[name], name, {
            'autostart': True, 'require_tare': False,
            'results_dir': str((output / 'store').resolve()), **values})
        while _ACTIVE not in child.log.read_text(encoding='utf-8'):
            children.check()
            if time.monotonic() - began > _TIMEOUT:
                raise RobocalError(f"'{name}' is not active after {_TIMEOUT:.0f} s. The end of "
                                   f'its log:\n{child.tail()}')
            time.sleep(_LOOK)
        yield session, child, time.monotonic() - began


def run_case(name: str, output: Path, idle: float) -> tuple[float, float, float]:
    """Start a node, deactivate it, and publish joint states at 1 kHz.

    Args:
        name: Name of the node.
        output: Folder for logs.
        idle: How long joint states are published [s].

    Returns:
        Time from the start of the process until its log says that it is active [s], CPU time used
        until then [s], and share of a core while inactive [%].

    """
    with _started(name, output, {'robot_description': default_cell.urdf()}) as (
            session, child, start):
        taken = processor_time(child)
        NodeClient(session, name).change_state('deactivate')
        session.spin_until(lambda: False, min(_SETTLING, idle))
        publisher = session.node.create_publisher(JointState, '/joint_states', qos.RELIABLE)
        names = Robot(default_cell.urdf()).joint_names
        zeros = [0.0] * len(names)
        state = JointState(name=list(names), position=zeros, velocity=zeros, effort=zeros)
        before, began, count = processor_time(child), time.monotonic(), 0
        while (now := time.monotonic() - began) < idle:
            state.header.stamp = session.node.get_clock().now().to_msg()
            publisher.publish(state)
            count += 1
            time.sleep(max(0.0, count * _PERIOD - now))
        return start, taken, 100.0 * (processor_time(child) - before) / now


# ---------------------------------------------------------------------------------- live


def publish(duration: float) -> Stamps:
    """Publish joint states and readings at 1 kHz for some time [s]; return their stamps [ns]."""
    rclpy.init()
    node = rclpy.create_node('wrench_source')
    joints = node.create_publisher(JointState, 'joint_states', _QUEUE)
    sensors = [node.create_publisher(WrenchStamped, f'{frame}/wrench', _QUEUE)
               for frame in seven_joints.SENSORS]
    count = len(seven_joints.JOINTS)
    state = JointState(name=list(seven_joints.JOINTS), effort=[0.0] * count)
    readings = [WrenchStamped() for _ in sensors]
    for reading, frame in zip(readings, seven_joints.SENSORS, strict=True):
        reading.header.frame_id = frame
    while not all(p.get_subscription_count() for p in (joints, *sensors)):
        time.sleep(0.05)
    noise = np.random.default_rng(1).normal(size=(4096, count + 6 * len(sensors)))
    begin, stamps = time.monotonic() + 0.5, np.zeros(round(duration / _PERIOD), dtype=np.int64)
    for number in range(len(stamps)):
        time.sleep(max(0.0, begin + number * _PERIOD - time.monotonic()))
        angle, chance = 0.6 * number * _PERIOD + np.arange(count), noise[number % len(noise)]
        now = stamps[number] = time.time_ns()
        for header in (state.header, *(reading.header for reading in readings)):
            header.stamp.sec, header.stamp.nanosec = divmod(int(now), 1_000_000_000)
        values = (0.3 * chance[count:]).reshape(-1, 6).tolist()
        for six, reading, publisher in zip(values, readings, sensors, strict=True):
            force, torque = reading.wrench.force, reading.wrench.torque
            force.x, force.y, force.z, torque.x, torque.y, torque.z = six
            publisher.publish(reading)
        state.position = np.sin(angle).tolist()
        state.velocity = (0.6 * np.cos(angle) + 1e-3 * chance[:count]).tolist()
        joints.publish(state)
    time.sleep(0.5)
    rclpy.try_shutdown()
    return stamps


def live(duration: float, output: Path) -> list[Figure]:
    """Return lost samples, latency and CPU time of the observer at 1 kHz for some time [s].

    Raises:
        RobocalError: A process exits, or the node publishes nothing.

    """
    with _started('wrench_observer', output, {
        'robot_description': seven_joints.urdf(), 'force_threshold': 1000.0,
        'sensor_frames': list(seven_joints.SENSORS),
        'sensor_topics': [f'{frame}/wrench' for frame in seven_joints.SENSORS],
    }) as (session, child, _):
        # The subscriptions are polled, not served by the executor.
        group = ConditionalGroup(lambda: False)
        subscriptions = [session.node.create_subscription(
            WrenchStamped, f'wrench_observer/links/{link}/wrench', lambda _: None, _QUEUE,
            callback_group=group, raw=True) for link in seven_joints.SENSORS]
        received: list[list[tuple[int, int]]] = [[] for _ in subscriptions]
        session.spin_until(lambda: all(
            session.node.count_publishers(item.topic_name) for item in subscriptions), _TIMEOUT)
        span: list[tuple[float, float]] = []
        # A search for garbage takes 15 ms, which would count as latency of the node.
        gc.disable()
        try:
            with ProcessPoolExecutor(1, multiprocessing.get_context('spawn')) as pool:
                source = pool.submit(publish, duration)
                while not source.done():
                    _empty(subscriptions, received)
                    if received[0]:
                        span[1:] = [(time.monotonic(), processor_time(child))]
                    time.sleep(_POLL)
        finally:
            gc.enable()
        time.sleep(0.5)
        _empty(subscriptions, received)
        if not all(received):
            raise RobocalError(f'The node published nothing. The end of its log:\n{child.tail()}')
        return _live_figures(source.result(), [np.array(rows) for rows in received], span)


def _empty(subscriptions: Sequence[Any], received: list[list[tuple[int, int]]]) -> None:
    """Take all waiting messages and note their stamps and arrival times [ns]."""
    for subscription, rows in zip(subscriptions, received, strict=True):
        handle = subscription.handle
        with handle:
            while (taken := handle.take_message(WrenchStamped, True)) is not None:
                seconds, nanoseconds = _STAMP.unpack_from(taken[0], 4)
                rows.append((seconds * 1_000_000_000 + nanoseconds, time.time_ns()))


def _live_figures(
    sent: Stamps, received: Sequence[Stamps], span: Sequence[tuple[float, float]]
) -> list[Figure]:
    # Stamps pass through floating point in the node, with an error below a microsecond.
    sent = sent[sent >= max(int(found[0, 0]) for found in received) - 1000]
    pauses = np.concatenate(([-_WINDOW], sent[1:][np.diff(sent) > _PAUSE]))
    due = sent[sent - pauses[np.searchsorted(pauses, sent, side='right') - 1] > _WINDOW]
    lost = 0
    for found in received:
        stamps = np.sort(found[:, 0])
        place = np.minimum(np.searchsorted(stamps, due - 1000), len(stamps) - 1)
        lost = max(lost, int((np.abs(stamps[place] - due) > 1000).sum()))
    late = np.concatenate([1e-6 * (found[:, 1] - found[:, 0]) for found in received])
    (begin, spent), (end, total) = span[0], span[-1]
    series = 'wrench_observer at 1 kHz, 7 joints, 4 sensors, all links subscribed'
    return [
        Figure.single(series, f'lost of {len(due)} samples on the worst link, without '
                      f'{len(sent) - len(due)} right after pauses of the source', '1', lost, 0.0),
        Figure(series, 'stamp to receipt by another process, p99', 'ms', float(np.median(late)),
               float(np.percentile(late, 99.0)), 2.0),
        Figure.single(series, 'share of a core', '%', 100.0 * (total - spent) / (end - begin),
                      50.0)]


def _run(request: Request) -> Outcome:
    """Start each node once for each seed; then run the observer."""
    rows = []
    for node in ('leveling',) if request.quick else registry.nodes():
        found = [run_case(node, request.output, _QUICK_IDLE if request.quick else _IDLE)
                 for _ in request.seeds]
        rows += [Figure.over(node, what, unit, values, bar, reason=_BUSY) for (
            what, unit, bar), values in zip(_FIGURES, zip(*found, strict=True), strict=True)]
    return Outcome([*rows, *live(2.0 if request.quick else _LIVE, request.output)])


BENCHMARK = Benchmark('Nodes', (
    'Processes of the nodes on the default arm; byte code is cached. The observer publishes every '
    'link of an arm with seven joints for a minute.'), _run, seeds=3)
