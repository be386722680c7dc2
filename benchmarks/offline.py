# SPDX-License-Identifier: Apache-2.0
"""Benchmark of estimation from bags: speed, and memory as the bag grows tenfold."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from benchmarks.benchmark import Benchmark, Outcome, Request
from benchmarks.figures import Figure
from benchmarks.offline_bag import KNOWN_MASS, Record, RecordedProcedures, write_long
from robocal_ros.cli.console import OUT
from robocal_ros.errors import ConfigurationError, RobocalError

SPEED_BAR, GROWTH_BAR = 100.0, 20.0
"""Limits of the speed [× real time] and of the growth of peak memory [%].

Samples are halved in number until they fit, so that a bag fills between half and all of the room.
"""

_QUICK, _SHORT, _LONG = 60.0, 600.0, 6000.0
_MEBIBYTE = 1024.0
_BAG_SIZE = 4e9


@dataclass(frozen=True)
class Task:
    """One estimation to measure.

    Attributes:
        name: Display name.
        procedure: Procedure to record.
        capability: Capability argument of `robocal estimate`.
        arguments: Further arguments.
        wrench: True to record the wrist sensor too.
        long: True to measure a bag ten times as long too.

    """

    name: str
    procedure: str
    capability: str
    arguments: tuple[str, ...]
    wrench: bool = False
    long: bool = False


TASKS = (
    Task('two plane', 'two_plane', 'payload', ('-p', f'known_mass:={KNOWN_MASS}'), long=True),
    Task('friction', 'friction', 'friction', (), long=True),
    Task('static poses', 'static_poses', 'payload', ('-p', 'method:=static_poses'), wrench=True),
    Task('excitation', 'excitation', 'payload', ('-p', 'method:=excitation'), wrench=True),
    Task('excitation by torque', 'excitation', 'payload',
         ('-p', 'method:=excitation', '-p', 'excitation_source:=torque')),
    Task('drive gains', 'excitation', 'drive_gains', ('-p', f'known_mass:={KNOWN_MASS}')),
)


@dataclass(frozen=True)
class Case:
    """One measured estimation.

    Attributes:
        task: Name of the task.
        storage: Format of the bag.
        duration: Length of the bag at 1 kHz [s].
        taken: Wall time of the command [s].
        processor: CPU time of the command [s].
        memory: Peak resident memory of the command [MiB].

    """

    task: str
    storage: str
    duration: float
    taken: float
    processor: float
    memory: float


class OfflineBenchmark(Benchmark):
    """Runs `robocal estimate` in separate processes on bags of the simulated arm."""

    title = 'Estimation from bags'
    about = (
        '`robocal estimate` in a process of its own, start of the command included, on bags at '
        '1 kHz of motions of the simulated default arm, which lie in the file cache.')
    seeds = 1

    def run(self, request: Request) -> Outcome:
        """Run the benchmark; see `Benchmark.run`."""
        if shutil.disk_usage(request.output).free < _BAG_SIZE:
            raise ConfigurationError(
                f'{request.output} has less than {_BAG_SIZE / 1e9:.0f} GB of free space, which a '
                'bag of 100 minutes needs. Choose another folder with --output.')
        procedures = RecordedProcedures(request.seeds[0])
        records: dict[str, Record] = {}
        cases = []
        for task in TASKS[:1] if request.quick else TASKS:
            if task.procedure not in records:
                records[task.procedure] = getattr(procedures, task.procedure)()
            record = records[task.procedure]
            for storage, duration in [('mcap', _QUICK)] if request.quick else _bags(task):
                with tempfile.TemporaryDirectory(dir=request.output) as folder:
                    bag = Path(folder) / 'bag'
                    write_long(record, bag, duration, storage, wrench=task.wrench)
                    case = measured(task, storage, duration, bag)
                OUT.print(f'{task.name}, {storage}, {duration / 60:.0f} min: '
                          f'{case.taken:.1f} s, {case.memory:.0f} MiB', soft_wrap=True)
                cases.append(case)
        return Outcome(figures(cases), cases, (
            'Times include the start of the command; bags are read from the page cache.',))


def _bags(task: Task) -> list[tuple[str, float]]:
    short = [(storage, _SHORT) for storage in ('mcap', 'sqlite3')]
    return [*short, ('mcap', _LONG)] if task.long else short


def measured(task: Task, storage: str, duration: float, bag: Path) -> Case:
    """Run a task's estimation of a bag in a process of its own.

    Raises:
        RobocalError: If it fails.

    """
    began = perf_counter()
    output = bag.parent / 'log.txt'
    command = [sys.executable, '-m', 'robocal_ros.cli.main', 'estimate', task.capability,
               str(bag), '-o', str(bag.parent / 'result.yaml'), '--results-dir',
               str(bag.parent / 'results'), *task.arguments]
    with output.open('wb') as log:
        child = os.posix_spawn(sys.executable, command, os.environ, file_actions=[
            (os.POSIX_SPAWN_DUP2, log.fileno(), 1), (os.POSIX_SPAWN_DUP2, log.fileno(), 2)])
        _, status, usage = os.wait4(child, 0)
    taken = perf_counter() - began
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise RobocalError(
            f'The estimation from {bag} failed: '
            f"{output.read_text(encoding='utf-8', errors='replace')[-500:]}")
    return Case(task.name, storage, duration, taken, usage.ru_utime + usage.ru_stime,
                usage.ru_maxrss / _MEBIBYTE)


def figures(cases: list[Case]) -> list[Figure]:
    """Return speeds and memory of each task."""
    rows = []
    for name in dict.fromkeys(case.task for case in cases):
        mine = [case for case in cases if case.task == name]
        series = f'{name}, 1 kHz'
        for case in mine:
            speed = case.duration / case.taken
            rows.append(Figure(
                series, f'speed, {case.storage}, {case.duration / 60:.0f} min', '× real time',
                speed, speed, SPEED_BAR, at_least=True))
        memory = {case.duration: case.memory for case in mine if case.storage == 'mcap'}
        shortest = memory[min(memory)]
        rows.append(Figure(series, f'peak memory, {min(memory) / 60:.0f} min', 'MiB', shortest,
                           shortest))
        if _LONG in memory:
            growth = 100.0 * (memory[_LONG] / memory[_SHORT] - 1.0)
            rows.append(Figure(series, 'growth of memory, 10 to 100 min', '%', growth, growth,
                               GROWTH_BAR))
    return rows


BENCHMARK = OfflineBenchmark()
