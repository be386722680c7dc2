# SPDX-License-Identifier: Apache-2.0
"""Recorded arms: the product, FIGAROH, MuJoCo's system identification, textbook methods.

All are given the same published joint states, and predict the efforts of a motion that they were
not given.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.benchmark import Benchmark, Figure, Outcome, Request, Table
from benchmarks.peers.methods import CUTOFFS, lean
from benchmarks.peers.process import Run, run
from benchmarks.second_world import urdf_of
from robocal_ros.arrays import Array
from robocal_ros.estimation import low_passed
from robocal_ros.messages import Bag, JointSamples
from robocal_ros.robot import Robot

FOLDER = 'ROBOCAL_DATA'
"""Environment variable with the folder of the recordings; by default ``../shared/data``."""

OURS, FIGAROH, MUJOCO = 'robocal', 'FIGAROH', 'MuJoCo sysid'
SPEED_BAR = 10.0
"""Times that the product is to be faster than FIGAROH."""

REASON = 'The parameters of other methods need not be physically consistent.'
SLOW = ('Several cutoffs, friction laws and prior widths are tried, and the spectrum of the '
        'residuals and a held-out part are evaluated.')

_HELD_OUT = 0.25
_VALIDATION_CUTOFF = 1.0


@dataclass(frozen=True)
class ArmCase:
    """Samples to identify an arm from, and a motion to predict.

    Attributes:
        name: Name of the case.
        urdf: URDF of the moving joints alone.
        tool: Tool frame.
        samples: The samples.
        q: Positions to predict the efforts at, shape (m, n) [rad].
        v: Velocities there [rad/s].
        a: Accelerations there [rad/s²].
        effort: Efforts there, shape (m, n) [N·m].

    """

    name: str
    urdf: str
    tool: str
    samples: JointSamples
    q: Array
    v: Array
    a: Array
    effort: Array

    def run(self, method: str, **options: Any) -> Run:
        """Run a method in a process of its own."""
        return run(f'benchmarks.peers.{method}', urdf=self.urdf, tool=self.tool,
                   joints=self.samples.joint_names, time=self.samples.time,
                   position=self.samples.position, effort=self.samples.effort, q=self.q, v=self.v,
                   a=self.a, **options)

    def errors(self, done: Run) -> Array:
        """Return RMS errors of the predicted efforts, shape (n,) [N·m]; NaN without a result."""
        if done.answer is None:
            return np.full(self.effort.shape[1], np.nan)
        return np.asarray(np.sqrt(np.mean((done.answer['torque'] - self.effort)**2, axis=0)))


def recording(name: str) -> Path | None:
    """Return the path of a recording, None if it is not there."""
    default = Path(__file__).resolve().parents[3] / 'shared' / 'data'
    path = Path(os.environ.get(FOLDER, default)) / name
    return path if path.exists() else None


def joint_states(path: Path, names: tuple[str, ...]) -> JointSamples:
    """Return the joint states of some joints in an order, by their own stamps."""
    with Bag(path) as bag:
        found = list(bag.messages('/joint_states'))
    order = [list(found[0].name).index(name) for name in names]
    time = np.array([item.header.stamp.sec + 1e-9 * item.header.stamp.nanosec for item in found])
    position, effort = (np.array([getattr(item, what) for item in found])[:, order]
                        for what in ('position', 'effort'))
    kept = np.concatenate(([True], np.diff(time) > 0.0))
    return JointSamples(names, time[kept] - time[0], position[kept],
                        np.zeros_like(position[kept]), effort[kept])


def trajectory(path: Path) -> tuple[Array, Array, Array, Array]:
    """Return positions, velocities, accelerations and efforts of a bag's one trajectory."""
    with Bag(path) as bag:
        points = [point for message in bag.messages('/joint_space_trajectory')
                  for point in message.points]
    q, v, a, effort = (np.array([getattr(point, name) for point in points]) for name in (
        'positions', 'velocities', 'accelerations', 'effort'))
    return q, v, a, effort


def ur10() -> ArmCase | None:
    """Return the UR10 of the recordings, with the validation trajectory of its publishers."""
    bag = recording('ur10_bags/ur10_exciting_trajectory.db3')
    if bag is None:
        return None
    text = urdf_of('UR10')
    robot = Robot(text, tool_frame='tool0')
    return ArmCase('UR10', lean(text, robot.joint_names), 'tool0',
                   joint_states(bag, robot.joint_names),
                   *trajectory(bag.with_name('validation_trajectory.db3')))


def panda() -> ArmCase | None:
    """Return the Panda of the recordings; the last quarter of its motion is held out."""
    bag = recording('panda_bag/panda_exciting_trajectory.db3')
    if bag is None:
        return None
    text = urdf_of('Panda').replace('panda_joint', 'fer_joint')
    robot = Robot(text, tool_frame='panda_link8')
    samples = joint_states(bag, robot.joint_names)
    period = float(np.median(np.diff(samples.time)))
    q = low_passed(samples.position, period, _VALIDATION_CUTOFF)
    v = np.gradient(q, period, axis=0)
    border, edge = int((1.0 - _HELD_OUT) * len(samples)), int(1.0 / period)
    rows, first = slice(border, -edge), slice(0, border)
    return ArmCase(
        'Panda', lean(robot.urdf, robot.joint_names), robot.tool_frame,
        replace(samples, time=samples.time[first], position=samples.position[first],
                velocity=samples.velocity[first], effort=samples.effort[first]),
        q[rows], v[rows], np.gradient(v, period, axis=0)[rows], samples.effort[rows])


def results(case: ArmCase) -> dict[str, tuple[Run, str]]:
    """Return run and remark of each method; others have the cutoff that predicts best."""
    rate = 1.0 / float(np.median(np.diff(case.samples.time)))
    cutoffs = [item for item in CUTOFFS if item < 0.3 * rate]
    found = {OURS: (case.run('methods:product'), '')}
    for name, method, options in (
        ('ordinary least squares', 'methods:textbook', {'weighted': False}),
        ('weighted least squares', 'methods:textbook', {'weighted': True}),
        (FIGAROH, 'tools:figaroh', {'peer': True}),
        (MUJOCO, 'tools:mujoco', {'peer': True}),
    ):
        tried = [(case.run(method, cutoff=cutoff, **options), f'cutoff {cutoff:g} Hz')
                 for cutoff in (cutoffs if name != MUJOCO else [min(5.0, cutoffs[-1])])]
        best = min(tried, key=lambda item: float(np.nan_to_num(
            np.log(case.errors(item[0])), nan=np.inf).sum()))
        found[name] = (best[0], best[0].reason or best[1])
    return found


def table(case: ArmCase, found: dict[str, tuple[Run, str]]) -> Table:
    """Return the comparison of a case."""
    return Table(case.name, (
        'method', *(f'J{number} [N·m]' for number in range(1, case.effort.shape[1] + 1)),
        'verdict', 'processor time [ms]', 'remark'), [
            (name, *case.errors(done).tolist(), (done.answer or {}).get('verdict', ''),
             1e3 * done.seconds, remark) for name, (done, remark) in found.items()])


def figures(case: ArmCase, found: dict[str, tuple[Run, str]]) -> Iterator[Figure]:
    """Yield accuracy against the best other method and processor time against FIGAROH."""
    errors = {name: case.errors(done) for name, (done, _) in found.items()}
    own = errors.pop(OURS)
    for joint in range(len(own) if np.isfinite(own).all() else 0):
        best = np.nanmin([item[joint] for item in errors.values()])
        yield Figure.single(case.name, f'J{joint + 1}, error ÷ that of the best other', '1',
                            float(own[joint] / best), 1.0, reason=REASON)
    ratio = found[FIGAROH][0].seconds / found[OURS][0].seconds
    if np.isfinite(ratio):
        yield Figure.single(case.name, f'processor time of {FIGAROH} ÷ own', '1', ratio, SPEED_BAR,
                            at_least=True, reason=SLOW)


def _run(request: Request) -> Outcome:
    cases = [case for case in (ur10(), panda()) if case is not None]
    rows: list[Figure] = []
    tables = []
    for case in cases[-1:] if request.quick else cases:
        found = results(case)
        rows += figures(case, found)
        tables.append(table(case, found))
    return Outcome(rows, tables=tables, remarks=[] if cases else [
        'The recordings of real arms are not there.'])


BENCHMARK = Benchmark('Recorded arms, by several tools', (
    'RMS error of the efforts that an identified arm predicts for a motion that it was not '
    'identified from. UR10: 27.5 s at 125 Hz and the validation trajectory of the publishers; '
    'Panda: three quarters of 24 s at 30 Hz, and the last quarter (recordings of '
    'doi 10.1109/TII.2025.3534415, in the folder that `ROBOCAL_DATA` names). Other methods are '
    'given the cutoff of their filter with the best prediction. Other methods for payloads and '
    'friction are part of the campaign.'), _run, seeds=0)
