# SPDX-License-Identifier: Apache-2.0
"""`scripts/faults --soak`: memory, threads and handles of nodes that work for long."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import TransformStamped, WrenchStamped
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Header, String
from tf2_msgs.msg import TFMessage

from benchmarks.page import markdown
from demo import default_cell
from demo.domains import own_domain
from demo.processes import Child, Children
from robocal_ros.cli.console import OUT, print_line
from robocal_ros.cli.node_client import NodeClient, RosSession
from robocal_ros.messages import qos

_RATE, _PERIOD, _FLOOD_PERIOD = 1000.0, 5.0, 0.05
# Part of the time in which memory is not judged: libraries load and buffers fill.
_WARM_UP = 0.25
_START = 60.0

MEMORY_BAR = 10.0
"""Largest slope of memory that counts as flat, which the interval must not exclude [MB/h]."""


@dataclass
class Usage:
    """Usage of one process over time.

    Attributes:
        times: Instants [s].
        memory: Resident memory [MB].
        threads: Number of threads.
        handles: Number of open files and sockets.

    """

    times: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)
    handles: list[int] = field(default_factory=list)

    def sample(self, child: Child) -> None:
        """Add the present usage."""
        folder = Path(f'/proc/{child.process.pid}')
        status = (folder / 'status').read_text(encoding='ascii', errors='replace')
        found = {key: int(value) for key, value in re.findall(
            r'^(VmRSS|Threads):\s+(\d+)', status, re.MULTILINE)}
        self.times.append(time.monotonic())
        self.memory.append(found['VmRSS'] / 1024.0)
        self.threads.append(found['Threads'])
        self.handles.append(len(list((folder / 'fd').iterdir())))


class Flood:
    """Messages that a node must not collect: new names on each of its topics.

    Attributes:
        sent: Number of messages sent.

    """

    def __init__(self, node: Node) -> None:
        """Create the publishers."""
        self.sent, self._sent_at = 0, 0.0
        table: tuple[tuple[Any, str, Callable[[int], Any]], ...] = (
            (String, 'robocal/owner', lambda n: String(data=f'claim /node_{n}')),
            (TFMessage, '/tf', lambda n: TFMessage(transforms=[TransformStamped(
                header=Header(frame_id=f'frame_{n}_{i}'), child_frame_id=f'frame_{n}_{i + 1}')
                for i in range(20)])),
            (DiagnosticArray, 'payload_identification/marks', lambda n: DiagnosticArray(
                status=[DiagnosticStatus(name='begin', message=f'run {n}')])),
            (JointState, 'joint_states', lambda n: JointState(
                name=[f'joint_{n}_{i}' for i in range(20)], position=[0.0] * 20)),
            (String, 'friction_identification/result', lambda n: String(
                data=f'[{n}' + ', x' * 1000)))
        self._publishers = [
            (node.create_publisher(kind, topic, qos.MARKS), make) for kind, topic, make in table]

    def send(self) -> None:
        """Send one message on each topic, twenty times a second."""
        if time.monotonic() - self._sent_at < _FLOOD_PERIOD:
            return
        self._sent_at = time.monotonic()
        for publisher, make in self._publishers:
            publisher.publish(make(self.sent))
            self.sent += 1


class Usages:
    """Usage of several processes, sampled every 5 s.

    Attributes:
        children: The processes.

    """

    def __init__(self, children: Sequence[Child]) -> None:
        """Begin without samples."""
        self.children = children
        self._usages = [Usage() for _ in children]
        self._looked = 0.0

    def look(self) -> None:
        """Sample those that run, if it is time to."""
        if time.monotonic() - self._looked < _PERIOD:
            return
        self._looked = time.monotonic()
        for child, usage in zip(self.children, self._usages, strict=True):
            if child.process.poll() is None:
                usage.sample(child)

    def growing(self) -> list[str]:
        """Return a sentence for each process whose memory grows by more than the bar."""
        found = []
        for child, usage in zip(self.children, self._usages, strict=True):
            first = int(_WARM_UP * len(usage.times))
            rate, half = slope(usage.times[first:], usage.memory[first:])
            if rate - half > MEMORY_BAR:
                found.append(f'Memory of {child.name} grows by {rate:.0f} ± {half:.0f} MB/h (bar '
                             f'{MEMORY_BAR:.0f}).')
        return found

    def table(self) -> str:
        """Return the Markdown table."""
        rows = []
        for child, usage in zip(self.children, self._usages, strict=True):
            first = int(_WARM_UP * len(usage.times))
            rate, half = slope(usage.times[first:], usage.memory[first:])
            rows.append((
                f'`{child.name}`', f'{usage.memory[first]:.1f} to {usage.memory[-1]:.1f}',
                f'{rate:+.1f} ± {half:.1f}', _range(usage.threads[first:]),
                _range(usage.handles[first:])))
        return markdown(('process', 'memory [MB]', 'slope [MB/h], 95 %', 'threads',
                         'open handles'), rows)


def slope(times: list[float], values: list[float]) -> tuple[float, float]:
    """Return the slope of a line [1/h] and the half width of its 95 % interval.

    Student's interval of ordinary least squares: correlated samples make it too narrow.
    """
    found = scipy.stats.linregress(np.array(times) / 3600.0, values)
    half = scipy.stats.t.ppf(0.975, len(times) - 2) * found.stderr
    return float(found.slope), float(half)


def soak(duration: float, output: Path) -> int:
    """Run the observer at 1 kHz and procedures in a flood of messages; print what they use.

    Args:
        duration: Duration [s].
        output: Folder for logs and results.

    Returns:
        0 if every procedure succeeded and no memory grew, else 1.

    """
    domain = own_domain()
    common = {'use_sim_time': True, 'results_dir': str((output / 'soak').resolve()),
              'autostart': True}
    with (
        Children(output / 'logs', {'OPENBLAS_NUM_THREADS': '1'}) as children,
        RosSession('robocal_soak', domain, watch=children.check) as session,
    ):
        arm = children.start_node('robocal_sim.node', 'sim_arm', {
            'real_time_factor': 1.0, 'joint_states_rate': _RATE,
            'truth_file': str(default_cell.TRUTH_FILE.resolve()),
            'cell_file': str(default_cell.CELL_FILE.resolve())})
        observer = children.start_node(
            'robocal_ros.wrench.node', 'wrench_observer', {**common, 'tare_duration': 1.0,
                                                 'tool_wrench_frame': 'gripper'})
        payload = children.start_node(
            'robocal_ros.payload.node', 'payload_identification', {
                **common, 'method': 'static_poses', 'sensor_frame': 'ft_wrist', 'poses': 6,
                'dwell': 0.7, 'state_timeout': 2.0, 'max_velocity': 2.0, 'max_acceleration': 6.0})
        clients = {child.name: NodeClient(session, child.name) for child in (observer, payload)}
        for client in clients.values():
            client.wait_until_there(_START)
            end = time.monotonic() + _START
            while client.state() != 'active' and time.monotonic() < end:
                session.spin_until(lambda: False, 0.5)
        # The observer must know the tool before it can be tared.
        for name, verb in (('payload_identification', 'run'), ('wrench_observer', 'tare')):
            answer = clients[name].call(verb)
            print_line(f'{name}: {answer.message}')
            if not answer.success:
                return 1
        received = [0]

        def count(_: bytes) -> None:
            received[0] += 1

        session.node.create_subscription(
            WrenchStamped, 'wrench_observer/links/ft_wrist/wrench', count, qos.SENSOR, raw=True)
        usages, flood = Usages((arm, observer, payload)), Flood(session.node)
        runs: list[bool] = []

        def look() -> None:
            children.check()
            usages.look()
            flood.send()

        session.watch = look
        began = time.monotonic()
        while time.monotonic() - began < duration:
            answer = clients['payload_identification'].call('run')
            runs.append(answer.success)
            if not answer.success:
                print_line(f'run {len(runs)}: {answer.message}')
        elapsed = time.monotonic() - began
    text = (f'{elapsed / 60.0:.1f} min, {sum(runs)} of {len(runs)} procedures succeeded, '
            f'{received[0] / elapsed:.0f} wrenches per second received, {flood.sent} messages of '
            f'new names sent.\n\n{usages.table()}')
    (output / 'soak.md').write_text(text, encoding='utf-8')
    OUT.print(text, markup=False, soft_wrap=True)
    growing = usages.growing()
    print_line(' '.join(growing), 'red')
    return 1 if growing or not all(runs) else 0


def _range(values: list[int]) -> str:
    return f'{min(values)} to {max(values)}' if min(values) < max(values) else str(values[0])
