# SPDX-License-Identifier: Apache-2.0
"""Nodes that work for long, and among random messages on every topic while the arm moves.

`scripts/faults --soak` and `--fuzz`: memory, threads and handles, and what a cancel takes.
"""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import TransformStamped, WrenchStamped
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import JointState
from std_msgs.msg import Header, String
from tf2_msgs.msg import TFMessage

from benchmarks.fault_cell import CAPABILITIES, HANG, HOLD_BAR, FaultCell, mark, open_cells
from benchmarks.page import markdown
from demo.domains import own_domain
from demo.processes import Child
from robocal_ros.arrays import Array
from robocal_ros.cli.console import OUT, print_line
from robocal_ros.cli.node_client import RosSession
from robocal_ros.cli.record import message_class
from robocal_ros.errors import RobocalError
from robocal_ros.messages import conversions, qos

_RATE, _PERIOD, _FLOOD_PERIOD = 1000.0, 5.0, 0.05
# Part of the time in which memory is not judged: libraries load and buffers fill.
_WARM_UP = 0.25
_LONGEST_RUN = 300.0
# Messages between two cancels.
_BURST = (50, 200)
# Longest text, characters of long texts in all, and longest text that does not count.
_LONGEST, _BUDGET, _SHORT = 50 * 10**6, 10**9, 5000
_NUMBERS = (0.0, -1.0, 1.0, math.nan, math.inf, -math.inf, 1e300, -1e300, 1e50, 5e-324, 1e-3)
_OFFSETS = (0.0, 0.0, 0.2, -0.2, 1.0, -1.0, 3600.0, 2e9)
_WORDS = ('', 'joint_1', 'joint_6', 'elbow', 'tool0', 'base_link', 'ft_wrist', 'begin', 'end',
          'claim /payload_identification', 'release /leveling', '0', 'none x', '\x00', 'é' * 100,
          '<robot/>', 'kind: payload\n...', '[' * 2000, '&a [*a]\n...', '{', '- 0\n', '../' * 50)

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
    return _finished(text, output / 'soak.md', usages.growing()) or int(not all(runs))


def _finished(text: str, path: Path, missed: Sequence[str]) -> int:
    """Write and print a text, and the bars that are missed; return 1 if there are any, else 0."""
    path.write_text(text, encoding='utf-8')
    OUT.print(text, markup=False, soft_wrap=True)
    print_line(' '.join(missed), 'red')
    return int(bool(missed))


# ----------------------------------------------------------------------- random messages


class Messages:
    """Random messages.

    Attributes:
        bytes: Sum of the lengths of long texts.
        allowed: Largest sum.

    """

    def __init__(self, seed: int) -> None:
        """Seed the generator."""
        self.chance = random.Random(seed)
        self.bytes = 0
        self.allowed = 0.0

    def changed(self, message: Any, now: float) -> Any:
        """Return a message with random values in some fields, and often a stamp near now [s]."""
        message = deepcopy(message)
        self._change(message)
        if hasattr(message, 'header'):
            if self.chance.random() < 0.7:
                stamp = max(0.0, now + self.chance.choice(_OFFSETS))
                message.header.stamp = conversions.to_stamp(min(stamp, 2.0**31 - 1.0))
            mark(message)
        return message

    def _change(self, message: Any, *, within: bool = False) -> None:
        kinds = message.get_fields_and_field_types()
        for name in [name for name in kinds if self.chance.random() < 0.4] or [
                self.chance.choice(list(kinds))]:
            setattr(message, name, self._value(kinds[name], getattr(message, name), within))

    def _value(self, kind: str, now: Any, within: bool) -> Any:
        chance = self.chance
        if sequence := re.fullmatch(r'sequence<(.*?)(?:, \d+)?>|(.*)\[(\d+)\]', kind):
            element = sequence[1] or sequence[2]
            present = [] if now is None else list(now)
            count = int(sequence[3]) if sequence[3] else chance.choice(
                (0, 1, len(present), len(present), 7,
                 chance.randrange(8 if within else 30 if '/' in element else 3000)))
            return [self._value(element, deepcopy(present[index]) if index < len(present) else
                                None, True) for index in range(count)]
        if '/' in kind:
            made = message_class(kind.replace('/', '/msg/'))() if now is None else now
            self._change(made, within=within)
            return made
        if kind == 'string':
            return self._text(_SHORT if within else _LONGEST)
        if kind in ('double', 'float'):
            value = 0.0 if now is None else float(now)
            # Plausible values, too.
            return chance.choice((*_NUMBERS, value, value + chance.gauss(0.0, 0.1)))
        if kind == 'boolean':
            return chance.random() < 0.5
        if kind == 'octet':
            return bytes([chance.randrange(256)])
        bits = int(re.sub(r'\D', '', kind))
        low, high = (0, 2**bits - 1) if kind.startswith('u') else (-2**(bits - 1),
                                                                   2**(bits - 1) - 1)
        return chance.choice((low, high, 0, 1, chance.randint(low, high)))

    def _text(self, longest: int) -> str:
        """Return a text, seldom a long one."""
        word = self.chance.choice(_WORDS)
        size = 10.0**(self.chance.random()**3 * math.log10(longest))
        if size > _SHORT:
            if self.bytes >= self.allowed:
                return word
            self.bytes += int(size)
        return word * (1 + int(size / max(1, len(word))))


def fuzz(messages: int, duration: float, output: Path, seed: int) -> int:
    """Send random messages to all nodes while they move the arm in turn; print how it went.

    Args:
        messages: Number of messages.
        duration: Shortest duration [s].
        output: Folder for logs and results.
        seed: Seed of the messages.

    Returns:
        0 if no node ended, and after every cancel a moving arm was held, and one at rest answered
        for, within the bar; with a duration, also if no memory grew; else 1.

    """
    chosen = {item.node: item for item in reversed(CAPABILITIES)}
    hostile, sent, refused, ended, unheld = Messages(seed), 0, 0, 0, 0
    # After each cancel: time to the hold, None of an arm at rest, and to the answer [s].
    times: list[tuple[float | None, float]] = []
    with (
        RosSession('fuzz', own_domain()) as session,
        open_cells(session, chosen.values(), output, output / 'fuzz') as cells,
    ):
        usages = Usages([*cells[0].children('arm'), *(
            node for cell in cells for node in cell.children('node'))])
        session.watch = usages.look
        targets = _targets(cells)
        began = time.monotonic()
        while sent < messages or time.monotonic() - began < duration:
            # As many in the last as in the first minute.
            share = (time.monotonic() - began) / duration if duration else 1.0
            burst = min(hostile.chance.randint(*_BURST), max(0, round(messages * share) - sent)
                        if duration else messages - sent)
            hostile.allowed = _BUDGET * sent / messages
            cell = cells[hostile.chance.randrange(len(cells))]
            generation = cell.generation
            try:
                cell.start()
                future = cell.to_phase(
                    'moving' if 'moving' in cell.capability.phases else 'taring')
            except RobocalError:
                refused, future = refused + 1, None
            ended += cell.generation != generation
            # Few topics at a time, for strange joint states alone end a motion.
            few = hostile.chance.sample(targets, hostile.chance.randint(1, len(targets)))
            for _ in range(burst):
                publisher, example = hostile.chance.choice(few)
                publisher.publish(hostile.changed(example, cell.motion[-1][0]))
                session.take(3)
            sent += burst
            if future is None or future.done():
                continue
            cell.in_motion()
            cell.cancelled = 0.0
            cancel = cell.begin('cancel')
            answered = cell.wait(cancel.done, HANG)
            answer = time.monotonic() - cell.cancelled
            if not (answered and cell.at_rest()):
                unheld += 1
                print_line(f'{sent} messages: {cell.capability.node} '
                           + ('answered; the arm moves.' if answered else 'did not answer.'))
                continue
            times.append((cell.held_after(cell.cancelled), answer))
            if len(times) % 20 == 0:
                print_line(f'{sent} messages, {time.monotonic() - began:.0f} s, '
                           f'{len(times)} cancels.')
        elapsed = time.monotonic() - began
        ended += sum(not cell.alive('node') for cell in cells)
    holds = [hold for hold, _ in times if hold is not None]
    # A cancel in motion is answered when the arm is seen at rest.
    rests, answers = ([answer for hold, answer in times if (hold is None) is resting]
                      for resting in (False, True))
    text = (f'{sent} messages on {len(targets)} topics with {hostile.bytes / 1e6:.0f} MB of long '
            f'texts in {elapsed / 60.0:.1f} min, seed {seed}: {ended} nodes ended, '
            f'{unheld} times the arm was not held or a cancel not answered within {HANG:.0f} s, '
            f'{refused} procedures refused. {len(holds)} cancels of moving arms: commanded to '
            f'hold after {_spread(holds)}, answered at rest after {_spread(rests)}; '
            f'{len(answers)} of arms at rest: answered after {_spread(answers)}.\n\n'
            f'{usages.table()}')
    missed = bars_missed(holds, answers) + (usages.growing() if duration else [])
    return _finished(text, output / 'fuzz.md', missed) or int(bool(ended or unheld))


def bars_missed(holds: Sequence[float], answers: Sequence[float]) -> list[str]:
    """Return a sentence for each bar that the times after a cancel [s] exceed."""
    return [f'{sum(time > HOLD_BAR for time in times)} of {len(times)} arms were {what} later '
            f'than {1e3 * HOLD_BAR:.0f} ms after a cancel.'
            for what, times in (('held', holds), ('at rest and answered for', answers))
            if max(times, default=0.0) > HOLD_BAR]


def _targets(cells: Sequence[FaultCell]) -> list[tuple[Any, Any]]:
    """Return a publisher and an example of each topic to which the nodes subscribe."""
    node = cells[0].session.node
    kinds = {topic: types[0] for cell in cells for topic, types in
             node.get_subscriber_names_and_types_by_node(cell.capability.node, '/')
             if '/msg/' in types[0]}
    examples: dict[str, Any] = {}
    subscriptions, targets = [], []
    for topic, name in sorted(kinds.items()):
        made = message_class(name)
        examples[topic] = made()
        subscriptions.append(node.create_subscription(
            made, topic, partial(examples.__setitem__, topic), qos_profile_sensor_data))
        targets.append((node.create_publisher(made, topic, qos.MARKS), topic))
    cells[0].wait(lambda: False, 3.0)
    for subscription in subscriptions:
        node.destroy_subscription(subscription)
    return [(publisher, examples[topic]) for publisher, topic in targets]


def _spread(times: Sequence[float]) -> str:
    if not times:
        return 'no time known'
    shown = np.percentile(times, (50, 99, 100)) * 1e3
    return '{:.0f} ms (p50), {:.0f} ms (p99), {:.0f} ms (longest)'.format(*shown)
