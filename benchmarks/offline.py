# SPDX-License-Identifier: Apache-2.0
"""Benchmark of estimation from bags: speed, and memory as the bag grows tenfold."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import cache
from heapq import merge
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import seven_joints
from benchmarks.benchmark import Benchmark, Figure, Outcome, Request
from benchmarks.offline_bag import Record, announce, joint_states, wrenches, write_long
from benchmarks.reference import drawn_load, recorded
from benchmarks.wrench_samples import SampledArm
from robocal_ros.cli.console import OUT
from robocal_ros.errors import RobocalError
from robocal_ros.messages import BagWriter, JointSamples, WrenchSamples

SPEED_BAR, GROWTH_BAR = 100.0, 20.0
"""Limits of the speed [× real time] and of the growth of peak memory [%].

Samples are halved in number until they fit, so that a bag fills between half and all of the room.
"""

_QUICK, _SHORT, _LONG = 60.0, 600.0, 6000.0
# Samples that are written at a time, and how long the arm rests first [s].
_PART, _REST = 20.0, 2.0
_MASS = '-p known_mass:=2.0'
TASKS: dict[str, tuple[str, str, dict[str, Any], bool]] = {
    'two planes': ('payload', _MASS, {'what': 'two_plane'}, False),
    'friction': ('friction', '', {'what': 'friction', 'measure_joints': ('joint_6',),
                                  'speed_count': 5, 'min_speed': 0.03}, False),
    'static poses': ('payload', '-p method:=static_poses', {'what': 'static_poses'}, True),
    'excitation': ('payload', '-p method:=excitation', {'what': 'wrist'}, True),
    'excitation by torque': ('payload', '-p method:=excitation -p excitation_source:=torque',
                             {'what': 'torque'}, False),
    'drive gains': ('drive_gains', _MASS, {'what': 'torque'}, False),
    'wrench': ('wrench', '-p require_tare:=false', {}, False),
}
"""Capability and arguments of `robocal estimate`, procedure, whether the sensor is recorded."""


@cache
def _recorded(task: str) -> Record:
    detail = TASKS[task][2]
    what = detail['what']
    if what in ('wrist', 'torque'):
        detail = {**detail, 'method': 'excitation'}
    load = drawn_load(np.random.default_rng(1), 2.0, 2.0)
    return recorded(load=None if what == 'friction' else load, **detail)


def write_wrench_bag(path: Path, duration: float) -> None:
    """Write a bag of an arm with seven joints and four sensors in motion for some time [s]."""
    arm = SampledArm(seven_joints.urdf(), seven_joints.SENSORS, seed=1)
    topics = [f'/{frame}/wrench' for frame in seven_joints.SENSORS]
    with BagWriter(path, 'mcap') as bag:
        announce(bag, arm.urdf, *topics)
        while arm.now < duration:
            resting = arm.now == 0.0
            joints, sensors = arm.samples(_REST if resting else _PART, moving=not resting)
            q, v, effort = np.hsplit(joints.values, 3)
            states = JointSamples(seven_joints.JOINTS, joints.stamps / 1e9, q, v, effort)
            for stamp, topic, raw in merge(joint_states(states), *(
                    wrenches(WrenchSamples(frame, stream.stamps / 1e9, stream.values), topic)
                    for frame, topic, stream in zip(
                        seven_joints.SENSORS, topics, sensors, strict=True))):
                bag.write(topic, stamp, raw)


def measured(task: str, storage: str, duration: float, output: Path) -> tuple[float, float]:
    """Write a bag at 1 kHz below a folder, and run a task's estimation in a process of its own.

    Args:
        task: Name of the task.
        storage: Format of the bag.
        duration: Length of the bag [s].
        output: The folder.

    Returns:
        Speed of the command, times real time, and its peak resident memory [MiB].

    Raises:
        RobocalError: If it fails.

    """
    capability, arguments, _, sensor = TASKS[task]
    with tempfile.TemporaryDirectory(dir=output) as name:
        folder = Path(name)
        if capability == 'wrench':
            write_wrench_bag(folder / 'bag', duration)
        else:
            write_long(_recorded(task), folder / 'bag', duration, storage, wrench=sensor)
        log = folder / 'log.txt'
        command = [sys.executable, '-m', 'robocal_ros.cli.main', 'estimate', capability,
                   str(folder / 'bag'), '-o', str(folder / 'result'), '--results-dir',
                   str(folder / 'results'), *arguments.split()]
        began = perf_counter()
        with log.open('wb') as file:
            child = os.posix_spawn(sys.executable, command, os.environ, file_actions=[
                (os.POSIX_SPAWN_DUP2, file.fileno(), 1), (os.POSIX_SPAWN_DUP2, file.fileno(), 2)])
            _, status, usage = os.wait4(child, 0)
        taken = perf_counter() - began
        if os.waitstatus_to_exitcode(status) not in (0, 1):
            raise RobocalError(f'The estimation of {task} failed: '
                               f"{log.read_text(encoding='utf-8', errors='replace')[-500:]}")
    memory = usage.ru_maxrss / 1024.0
    OUT.print(f'{task}, {storage}, {duration / 60:.0f} min: {taken:.1f} s, {memory:.0f} MiB',
              soft_wrap=True)
    return duration / taken, memory


def _run(request: Request) -> Outcome:
    rows = []
    for task in list(TASKS)[:1] if request.quick else TASKS:
        sizes = [('mcap', _QUICK)] if request.quick else [('mcap', _SHORT)]
        if not request.quick and task != 'wrench':
            sizes.append(('sqlite3', _SHORT))
        if not request.quick and task in ('two planes', 'friction'):
            sizes.append(('mcap', _LONG))
        memory, series = [], f'{task}, 1 kHz'
        for storage, duration in sizes:
            speed, peak = measured(task, storage, duration, request.output)
            memory.append(peak)
            rows.append(Figure.single(series, f'speed, {storage}, {duration / 60:.0f} min',
                                      '× real time', speed, SPEED_BAR, at_least=True))
        rows.append(Figure.single(
            series, f'peak memory, {sizes[0][1] / 60:.0f} min', 'MiB', memory[0]))
        if sizes[-1][1] == _LONG:
            rows.append(Figure.single(series, 'growth of memory, 10 to 100 min', '%', 100.0 * (
                memory[-1] / memory[0] - 1.0), GROWTH_BAR))
    return Outcome(rows)


BENCHMARK = Benchmark('Estimation from bags', (
    '`robocal estimate` in a process of its own, start of the command included, on bags at 1 kHz '
    'of motions of the simulated default arm, which lie in the file cache; that of wrenches on an '
    'arm with seven joints and four sensors.'), _run)
