# SPDX-License-Identifier: Apache-2.0
"""`scripts/faults --soak`: memory, threads and handles of nodes that work for long."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import TransformStamped, WrenchStamped
from sensor_msgs.msg import JointState
from std_msgs.msg import Header, String
from tf2_msgs.msg import TFMessage

from benchmarks.fault_cell import CAPABILITIES, open_cells
from benchmarks.page import markdown
from demo.domains import own_domain
from demo.processes import Child
from robocal_ros.arrays import Array
from robocal_ros.cli.console import OUT, print_line
from robocal_ros.cli.node_client import RosSession
from robocal_ros.messages import qos

_RATE, _PERIOD, _FLOOD_PERIOD = 1000.0, 5.0, 0.05
# Part of the time in which memory is not judged: libraries load and buffers fill.
_WARM_UP = 0.25
_LONGEST_RUN = 300.0

MEMORY_BAR = 10.0
"""Largest slope of memory that counts as flat, which the interval must not exclude [MB/h]."""

FLOOD: tuple[tuple[Any, str, Callable[[int], Any]], ...] = (
    (String, 'robocal/owner', lambda n: String(data=f'claim /node_{n}')),
    (TFMessage, '/tf', lambda n: TFMessage(transforms=[TransformStamped(
        header=Header(frame_id=f'frame_{n}_{i}'), child_frame_id=f'frame_{n}_{i + 1}')
        for i in range(20)])),
    (DiagnosticArray, 'payload_identification/marks', lambda n: DiagnosticArray(
        status=[DiagnosticStatus(name='begin', message=f'run {n}')])),
    (JointState, 'joint_states', lambda n: JointState(
        name=[f'joint_{n}_{i}' for i in range(20)], position=[0.0] * 20)),
    (String, 'friction_identification/result', lambda n: String(data=f'[{n}' + ', x' * 1000)))
"""Messages that a node must not collect: new names on each of its topics."""


class Usages:
    """Usage of several processes, sampled every 5 s.

    Attributes:
        children: The processes.
        rows: For each, rows of time [s], resident memory [MB], threads, and open files and
            sockets.

    """

    def __init__(self, children: Sequence[Child]) -> None:
        """Begin without samples."""
        self.children = children
        self.rows: list[list[tuple[float, ...]]] = [[] for _ in children]
        self._looked = 0.0

    def look(self) -> None:
        """Sample those that run, if it is time to."""
        if time.monotonic() - self._looked < _PERIOD:
            return
        self._looked = time.monotonic()
        for child, rows in zip(self.children, self.rows, strict=True):
            if child.process.poll() is None:
                folder = Path(f'/proc/{child.process.pid}')
                status = (folder / 'status').read_text(encoding='ascii', errors='replace')
                found = dict(re.findall(r'^(VmRSS|Threads):\s+(\d+)', status, re.MULTILINE))
                rows.append((self._looked, int(found['VmRSS']) / 1024.0, int(found['Threads']),
                             len(list((folder / 'fd').iterdir()))))

    def _slopes(self) -> Iterator[tuple[str, Array, float, float]]:
        """Yield name, rows to be judged, and the slope of memory [MB/h] with its 95 % half width.

        Student's interval of ordinary least squares: correlated samples make it too narrow.
        """
        for child, rows in zip(self.children, self.rows, strict=True):
            used = np.array(rows[int(_WARM_UP * len(rows)):])
            found = scipy.stats.linregress(used[:, 0] / 3600.0, used[:, 1])
            half = scipy.stats.t.ppf(0.975, len(used) - 2) * found.stderr
            yield child.name, used, float(found.slope), float(half)

    def growing(self) -> list[str]:
        """Return a sentence for each process whose memory grows by more than the bar."""
        return [f'Memory of {name} grows by {rate:.0f} ± {half:.0f} MB/h (bar {MEMORY_BAR:.0f}).'
                for name, _, rate, half in self._slopes() if rate - half > MEMORY_BAR]

    def table(self) -> str:
        """Return the Markdown table."""
        return markdown(
            ('process', 'memory [MB]', 'slope [MB/h], 95 %', 'threads', 'open handles'),
            [(f'`{name}`', f'{rows[0, 1]:.1f} to {rows[-1, 1]:.1f}', f'{rate:+.1f} ± {half:.1f}',
              *(f'{low:.0f} to {high:.0f}' if low < high else f'{low:.0f}'
                for low, high in zip(rows.min(axis=0)[2:], rows.max(axis=0)[2:], strict=True)))
             for name, rows, rate, half in self._slopes()])


def soak(duration: float, output: Path) -> int:
    """Run the observer at 1 kHz and procedures in a flood of messages; print what they use.

    Args:
        duration: Duration [s].
        output: Folder for logs and results.

    Returns:
        0 if every procedure succeeded and no memory grew, else 1.

    """
    received, sent, flooded = 0, 0, 0.0
    runs: list[bool] = []
    with (
        RosSession('robocal_soak', own_domain()) as session,
        open_cells(session, (CAPABILITIES[0], CAPABILITIES[-1]), output, output / 'soak',
                   _RATE) as cells,
    ):
        # The observer must know the tool before it can be tared.
        for cell in cells:
            answer = cell.answer('run', _LONGEST_RUN)
            print_line(f'{cell.capability.name}: {answer.message}')
            if not answer.success:
                return 1

        def count(_: bytes) -> None:
            nonlocal received
            received += 1

        session.node.create_subscription(
            WrenchStamped, 'wrench_observer/links/ft_wrist/wrench', count, qos.SENSOR, raw=True)
        usages = Usages([*cells[0].children('both'), *cells[1].children('node')])
        flood = [(session.node.create_publisher(kind, topic, qos.MARKS), make)
                 for kind, topic, make in FLOOD]

        def look() -> None:
            nonlocal sent, flooded
            usages.look()
            if time.monotonic() - flooded > _FLOOD_PERIOD:
                flooded = time.monotonic()
                for publisher, make in flood:
                    publisher.publish(make(sent))
                    sent += 1

        session.watch = look
        began = time.monotonic()
        while time.monotonic() - began < duration:
            answer = cells[0].answer('run', _LONGEST_RUN)
            runs.append(answer.success)
            # Recordings of the campaign, which are not needed here.
            cells[0].mark()
            cells[1].mark()
            if not answer.success:
                print_line(f'run {len(runs)}: {answer.message}')
        elapsed = time.monotonic() - began
    text = (f'{elapsed / 60.0:.1f} min, {sum(runs)} of {len(runs)} procedures succeeded, '
            f'{received / elapsed:.0f} wrenches per second received, {sent} messages of '
            f'new names sent.\n\n{usages.table()}')
    (output / 'soak.md').write_text(text, encoding='utf-8')
    OUT.print(text, markup=False, soft_wrap=True)
    growing = usages.growing()
    print_line(' '.join(growing), 'red')
    return 1 if growing or not all(runs) else 0
