# SPDX-License-Identifier: Apache-2.0
"""Payloads from a wrist sensor: the product's two methods, and those that are published.

Weighted and total least squares of a rigid body in motion, the same under the constraint of a
positive semidefinite pseudo-inertia, and calibration at rest. All are given the same samples of
random arms and tools, quiet and with everything on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.adversarial_cell import EFFECTS, AdversarialCell, arm, draw
from benchmarks.benchmark import Benchmark, Outcome, Request, in_parallel
from benchmarks.campaign import exciting_motion, static_postures
from benchmarks.excitation import expected
from benchmarks.peers.comparison import COLUMNS, Row, judged, limits, tables
from benchmarks.peers.process import Run, run
from robocal_ros.arrays import Array
from robocal_ros.estimation import low_passed
from robocal_ros.messages import JointSamples, WrenchSamples
from robocal_ros.payload import PayloadParameters, excitation, static_poses
from robocal_ros.payload.model import (
    body_regressor,
    centred,
    centred_covariance,
    moving,
    static_wrench_regressor,
)
from robocal_ros.results import CalibrationResult, State
from robocal_ros.robot import PSEUDO_INERTIA, Robot, Trajectory

OURS_MOVING, OURS_RESTING = 'robocal, excitation', 'robocal, static poses'
WEIGHTED, TOTAL, SEMIDEFINITE = ('weighted least squares', 'total least squares',
                                 'pseudo-inertia SDP')
STATIC = 'static calibration, least squares'
CASES = QUIET, SINGLE, FULL = 'quiet', 'one error', 'everything on'
AGAINST = {OURS_MOVING: (WEIGHTED, TOTAL, SEMIDEFINITE), OURS_RESTING: (STATIC,)}
REASON = ('With few errors of the model, nuisance parameters and their priors cost accuracy '
          'that plain least squares does not spend; the intervals contain it.')
NAMES = ('mass', 'com_x', 'com_y', 'com_z')
TOLERANCE = (0.02, 3e-3, 3e-3, 3e-3)
"""Errors that matter: share of the mass, and metres; smaller ones do not count as wrong."""

# Errors that are corrected or refused before an estimator reads the samples.
_REFUSED = ('efforts without gravity', 'wrapped joints', 'frame of 253 rad')
_CUTOFF = 5.0
_BIASES = 6
_DWELL = 0.5


def product(
    *, name: str, joints: JointSamples, sensor: WrenchSamples, moves: bool
) -> Callable[[], Callable[[], dict[str, Any]]]:
    """Return the product's estimation, which returns the parameters."""
    robot = arm(name).robot
    values = PayloadParameters(
        method='excitation' if moves else 'static_poses', sensor_frame=sensor.frame)

    def solve() -> Callable[[], dict[str, Any]]:
        result: CalibrationResult = (
            excitation.estimate(robot, joints, values, sensor=sensor) if moves
            else static_poses.estimate(robot, joints, sensor, values))

        def answer() -> dict[str, Any]:
            items = [result.parameter(name) for name in NAMES]
            known = [item.state is State.IDENTIFIED for item in items]
            intervals = [item.interval(0.999) for item in items]
            return {
                'value': np.array([item.value if is_known else np.nan
                                   for item, is_known in zip(items, known, strict=True)]),
                'std': np.array([item.std or np.nan for item in items]),
                'half': np.array([np.nan if part is None else 0.5 * (part[1] - part[0])
                                  for part in intervals]),
                'words': result.verdict.value}

        return answer

    return solve


def rows_in_motion(
    robot: Robot, joints: JointSamples, sensor: WrenchSamples
) -> tuple[Array, Array, Array]:
    """Return columns of body and biases, readings, and noise, of filtered samples.

    Returns:
        Shapes (6, k, 16), (6, k) and (6,); the noise is that of an ordinary fit.

    """
    period = float(np.median(np.diff(joints.time)))
    time = joints.time[0] + period * np.arange(int(np.ptp(joints.time) / period))
    even = np.column_stack([np.interp(time, joints.time, column) for column in joints.position.T])
    q = low_passed(even, period, _CUTOFF)
    v = np.gradient(q, period, axis=0)
    a = np.gradient(v, period, axis=0)
    rate = float(np.median(np.diff(sensor.time)))
    smooth = (low_passed(sensor.wrench, rate, _CUTOFF) if _CUTOFF * rate < 0.4
              else sensor.wrench)
    step = max(1, int(0.2 / (_CUTOFF * period)))
    used = slice(int(1.0 / period), -int(1.0 / period), step)
    measured = np.column_stack([np.interp(time[used], sensor.time, column)
                                for column in smooth.T])
    bodies = np.array([-body_regressor(robot, sensor.frame, *row)
                       for row in zip(q[used], v[used], a[used], strict=True)])
    own = robot.distal_inertia(sensor.frame).to_pinocchio().toDynamicParameters()
    measured = (measured - bodies @ own).T
    biases = np.broadcast_to(np.eye(_BIASES), (len(bodies), _BIASES, _BIASES))
    columns = np.concatenate((bodies, biases), axis=2).transpose(1, 0, 2)
    value = np.linalg.lstsq(columns.reshape(-1, 16), measured.ravel(), rcond=None)[0]
    return columns, measured, (measured - columns @ value).std(axis=1)


def in_motion(
    *, name: str, joints: JointSamples, sensor: WrenchSamples, total: bool
) -> Callable[[], Callable[[], dict[str, Any]]]:
    """Return weighted or total least squares of a body in motion.

    Total least squares also has errors of the columns (Kubus, Kröger, Wahl, IROS 2008, 1845, doi
    10.1109/IROS.2008.4650661).
    """
    robot = arm(name).robot

    def solve() -> Callable[[], dict[str, Any]]:
        columns, measured, noise = rows_in_motion(robot, joints, sensor)
        matrix = (columns / noise[:, None, None]).reshape(-1, 16)
        wanted = (measured / noise[:, None]).ravel()
        if total:
            size = np.linalg.norm(matrix, axis=0)
            every = np.column_stack((matrix / size, wanted / np.linalg.norm(wanted)))
            last = np.linalg.svd(every, full_matrices=False)[2][-1]
            value = -last[:-1] / last[-1] * np.linalg.norm(wanted) / size
        else:
            value = np.linalg.lstsq(matrix, wanted, rcond=None)[0]
        left = wanted - matrix @ value
        covariance = np.linalg.inv(matrix.T @ matrix) * float(left @ left) / (
            len(left) - len(value))

        def answer() -> dict[str, Any]:
            return in_tool_frame(robot, sensor.frame, value[:10],
                                 None if total else covariance[:10, :10])

        return answer

    return solve


def in_tool_frame(
    robot: Robot, frame: str, body: Array, covariance: Array | None
) -> dict[str, Any]:
    """Return mass and centre of mass in the tool frame, with standard deviations if known."""
    move = moving(robot, frame)
    moved = move @ body
    std = None if covariance is None else np.sqrt(np.diag(
        centred_covariance(moved, move @ covariance @ move.T)))[:4]
    return {'value': centred(moved)[:4], 'std': std, 'words': 'no verdict'}


def at_rest(
    *, name: str, joints: JointSamples, sensor: WrenchSamples
) -> Callable[[], Callable[[], dict[str, Any]]]:
    """Return least squares of mass, first moments and biases at rest."""
    robot = arm(name).robot

    def solve() -> Callable[[], dict[str, Any]]:
        matrix, wanted = [], []
        for item in static_poses.measure(robot, joints, sensor):
            gravity = item.rotation.T @ np.asarray(robot.gravity)
            rows = static_wrench_regressor(gravity)
            matrix.append(rows)
            own = np.concatenate(([item.distal.mass], item.distal.mass * item.distal.com))
            wanted.append(item.wrench - rows[:, :4] @ own)
        stacked, target = np.concatenate(matrix), np.concatenate(wanted)
        value = np.linalg.lstsq(stacked, target, rcond=None)[0]
        left = target - stacked @ value
        covariance = np.zeros((10, 10))
        covariance[:4, :4] = np.linalg.inv(stacked.T @ stacked)[:4, :4] * float(left @ left) / (
            len(left) - len(value))

        def answer() -> dict[str, Any]:
            body = np.concatenate((value[:4], 1e-3 * np.eye(3)[np.triu_indices(3)]))
            return in_tool_frame(robot, sensor.frame, body, covariance)

        return answer

    return solve


# ------------------------------------------------------------------------------- cases


def run_case(seed: int, cases: Sequence[str]) -> list[Row]:
    """Return the rows of all methods on a cell: quiet, with one error, with everything on."""
    return [row for case in cases for row in _rows(case, drawn(seed, 'wrench', case))]


def drawn(seed: int, reads: str, case: str) -> AdversarialCell:
    """Draw a cell of a case for methods that read efforts or wrenches."""
    if case == SINGLE:
        return draw(seed, reads, single=True)
    everything = [name for name, effect in EFFECTS.items()
                  if effect.concerns in ('all', reads) and name not in _REFUSED]
    return draw(seed, reads, effects=everything if case == FULL else ())


def _rows(case: str, cell: AdversarialCell) -> Iterator[Row]:
    place = cell.arm.name, tuple(cell.home.tolist())
    name = cell.arm.name
    stops = [Trajectory(np.array([0.0, _DWELL]), np.stack((q, q)), np.zeros((2, len(q))))
             for q in static_postures(*place)]
    resting: dict[str, Any] = dict(zip(('joints', 'sensor'), cell.record(stops), strict=True))
    motion: dict[str, Any] = dict(zip(
        ('joints', 'sensor'), cell.record([exciting_motion(*place, True)]), strict=True))
    here = 'benchmarks.peers.payload:'
    for method, done in (
        (OURS_MOVING, run(f'{here}product', name=name, moves=True, **motion)),
        (WEIGHTED, run(f'{here}in_motion', name=name, total=False, **motion)),
        (TOTAL, run(f'{here}in_motion', name=name, total=True, **motion)),
        (SEMIDEFINITE, _semidefinite(cell.arm.robot, **motion)),
        (OURS_RESTING, run(f'{here}product', name=name, moves=False, **resting)),
        (STATIC, run(f'{here}at_rest', name=name, **resting)),
    ):
        yield _row(case, method, cell, done)


def _semidefinite(robot: Robot, joints: JointSamples, sensor: WrenchSamples) -> Run:
    columns, measured, noise = rows_in_motion(robot, joints, sensor)
    done = run('benchmarks.peers.pseudo_inertia:identify', peer=True, units=PSEUDO_INERTIA,
               matrix=(columns / noise[:, None, None]).reshape(-1, 16),
               wanted=(measured / noise[:, None]).ravel())
    if done.answer is None:
        return done
    answer = in_tool_frame(robot, sensor.frame, done.answer['value'][:10], None)
    return Run(answer, done.seconds, done.memory)


def _row(case: str, method: str, cell: AdversarialCell, done: Run) -> Row:
    if done.answer is None:
        return Row(case, method, cell.seed, reason=done.reason,
                   verdict='refused' if method.startswith('robocal') else '')
    truth = expected(cell.tool, cell.arm.robot)
    error = done.answer['value'] - np.array([truth[name] for name in NAMES])
    row = Row(case, method, cell.seed, {
        'mass [%]': 100.0 * abs(float(error[0])) / truth['mass'],
        'centre of mass [mm]': 1e3 * float(np.linalg.norm(error[1:]))},
        verdict=done.answer['words'])
    return judged(row, done, error, done.answer['std'], done.answer.get('half'),
                  np.array(TOLERANCE) * (truth['mass'], 1.0, 1.0, 1.0))


class PayloadPeersBenchmark(Benchmark):
    """Random arms and tools, every method on the same samples."""

    title = 'Payload from a wrist sensor, by several methods'
    about = ('Random arms and tools of 1 to 3 kg, exciting motions of three periods and 14 '
             'resting postures, quiet, with one error of the model, and with all of them. Errors '
             f'that matter: 2 % of the mass, 3 mm. In the tables, {COLUMNS}')
    seeds = 3

    def run(self, request: Request) -> Outcome:
        """Run the benchmark; see `Benchmark.run`."""
        case = partial(run_case, cases=CASES[:1] if request.quick else CASES)
        rows = [row for found in in_parallel(case, request.seeds, request.jobs, self.title)
                for row in found]
        return Outcome(list(limits(rows, AGAINST, REASON)), rows, tables=list(tables(rows)))


BENCHMARK = PayloadPeersBenchmark()
