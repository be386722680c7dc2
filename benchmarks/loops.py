# SPDX-License-Identifier: Apache-2.0
"""Benchmark of what the observer follows: zeros of joint torques, and biases that drift."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from benchmarks.benchmark import Benchmark, Figure, Outcome, Request, in_parallel
from benchmarks.wrench_coverage import ARMS, GAIN, MODEL, ZERO, Cell
from demo import default_cell
from robocal_ros.arrays import Array
from robocal_ros.results import Verdict
from robocal_ros.robot import Robot, torque_zero
from robocal_ros.wrench import (
    Instant,
    SensedArm,
    SensorMount,
    TareRecord,
    TareReference,
    WrenchObserver,
    WrenchParameters,
    Zeroing,
    tool_wrench,
)

FORCE_BAR = 0.5
"""Limit of the phantom force at the tool, and of a bias that drifts [N]."""
CELLS = 30
"""Number of cells."""

# Standard deviations of what differs from posture to posture at rest [N·m], and of readings of
# torque [N·m] and force [N].
_POSTURE_NOISE, _TORQUE_NOISE, _FORCE_NOISE = 0.05, 0.01, 0.3
# Rests whose torques tell the zeros, samples of each, and postures in which the phantom force is
# evaluated.
_RESTS, _REST_SAMPLES, _POSTURES = 8, 40, 25
# Drift over the duration [N], [s], and the lag with which it is followed [s].
_DRIFT, _DURATION, _LAG, _RATE = 4.0, 300.0, 5.0, 100.0
# Pushes: force [N], duration and time from one to the next [s].
_PUSH, _PUSHED, _EVERY = 10.0, 2.0, 20.0


@dataclass(frozen=True)
class Case:
    """One arm.

    Attributes:
        phantom: Forces at the tool by zeros that are not known, and by errors of those found,
            shape (2, k) [N].
        deviates: Errors of the zeros over their deviations, shape (n,).
        passed: Whether the result of the zeros passed.
        bias: Largest errors of the sensor's bias with a constant one and a followed one, (2,) [N].

    """

    phantom: Array
    deviates: Array
    passed: bool
    bias: Array


def zeros(seed: int) -> tuple[Array, Array, bool]:
    """Find the zeros of an arm that differs from its description; parts of a `Case`."""
    cell = Cell(ARMS[seed % len(ARMS)], 'torque', seed)
    cell.tare()
    robot, observer, draw, still = cell.robot, cell.observer, cell.draw, np.zeros(cell.robot.n)
    gains, none, zeroing = 1.0 + GAIN * draw.normal(size=robot.n), np.zeros((0, 6)), Zeroing(
        observer)
    for _ in range(_RESTS):
        record, posture = TareRecord(), cell.posture()
        cell.truth.held(posture, still, still)
        torque = gains * cell.truth.torque + cell.zero + _POSTURE_NOISE * draw.normal(size=robot.n)
        for number in range(_REST_SAMPLES):
            record.add(Instant(10**9 + 10**6 * number, posture, none, none, [],
                               torque + _TORQUE_NOISE * draw.normal(size=robot.n)))
        zeroing.add(record.stacked(), observer.values)
    result = zeroing.result(observer.values)
    found = torque_zero(robot, result)
    error, forces = found.offset - cell.zero, []
    for _ in range(_POSTURES):
        jacobian = np.array(pin.computeFrameJacobian(
            robot.model, robot.data, cell.posture(), robot.frame_id(robot.tool_frame), pin.LOCAL))
        forces.append([float(np.linalg.norm(np.nan_to_num(tool_wrench(
            torque, jacobian, observer.values, np.eye(robot.n)).wrench[:3])))
            for torque in (cell.zero, error)])
    return (np.array(forces).T, error / np.sqrt(np.diag(found.covariance)),
            result.verdict is Verdict.PASS)


def drift(seed: int, lag: float) -> float:
    """Return the largest error of a bias that drifts while the arm moves and is pushed [N].

    Args:
        seed: Seed of the arm.
        lag: Parameter drift_lag [s].

    """
    draw, robot = np.random.default_rng([seed, 2]), Robot(default_cell.urdf(), tool_frame='tool0')
    observer = WrenchObserver(robot, WrenchParameters(
        unidentified_friction=[0.0], gain_std=0.0, sensor_frames=['ft_wrist'], drift_lag=lag))
    truth = SensedArm(robot, [SensorMount('ft_wrist')])
    centre, size, phase = draw.uniform([[-0.8], [0.1], [0.0]], [[0.8], [0.5], [6.0]], (3, robot.n))
    turn = draw.uniform(0.3, 1.2, robot.n)
    to = draw.normal(size=3)
    observer.use_bias(np.zeros((1, 6)), TareReference(centre, truth.expected(centre)))
    worst = 0.0
    for number, time in enumerate(np.arange(0.0, _DURATION, 1.0 / _RATE).tolist()):
        angle = turn * time + phase
        q, v, a = (centre + size * np.sin(angle), size * turn * np.cos(angle),
                   -size * turn**2 * np.sin(angle))
        bias = _DRIFT * time / _DURATION * to / np.linalg.norm(to)
        reading = -truth.held(q, v, a)[0]
        reading[:3] += bias + _FORCE_NOISE * draw.normal(size=3)
        reading[0] += _PUSH * (time % _EVERY > _EVERY - _PUSHED)
        stamp = 10**9 + round(1e9 * number / _RATE)
        observer.feeds[0].add(stamp, tuple(reading.tolist()))
        observer.joint_chains.add(stamp, np.concatenate((q, v, truth.torque)))
        while observer.take() is not None:
            pass
        worst = max(worst, float(np.linalg.norm(observer.bias[0, :3] - bias)))
    return worst


def run_case(seed: int) -> Case:
    """Find zeros, and follow a drift."""
    return Case(*zeros(seed), np.array([drift(seed, lag) for lag in (0.0, _LAG)]))


def _run(request: Request) -> Outcome:
    cases = in_parallel(run_case, request.seeds, request.jobs, 'loops')
    unknown, found = np.concatenate([case.phantom for case in cases], axis=1)
    z = np.concatenate([case.deviates for case in cases])
    figures = [
        Figure.over('torque zeros', 'phantom force at the tool, zeros not known', 'N', unknown),
        Figure.over('torque zeros', 'the same at 95 %, zeros not known', 'N',
                    [float(np.quantile(unknown, 0.95))]),
        Figure.over('torque zeros', 'the same at 95 %, zeros by rests', 'N',
                    [float(np.quantile(found, 0.95))], FORCE_BAR),
        Figure.over('torque zeros', 'RMS of errors over their deviations', '1',
                    [float(np.sqrt(np.mean(z**2)))]),
        Figure.share('torque zeros', 'results that pass', sum(case.passed for case in cases),
                     len(cases)),
        *(Figure.over('F/T bias', f'largest error of the bias, {how}', 'N',
                      [float(case.bias[place]) for case in cases], bar)
          for place, (how, bar) in enumerate((
              ('constant', None), (f'drift_lag {_LAG:g} s', FORCE_BAR))))]
    return Outcome(figures, cases)


BENCHMARK = Benchmark(
    'Zeros and drift',
    f'Zeros of joint torques of {ZERO} N·m (1 σ), on {len(ARMS)} arms in turn whose links and '
    f'gains are {100.0 * MODEL:.0f} and {100.0 * GAIN:.0f} % off (1 σ), are found from {_RESTS} '
    'rests in random postures (`~/zero`); the phantom force is what zeros, or their errors, are '
    f'at the tool in {_POSTURES} others. The wrist sensor of the default arm drifts by '
    f'{_DRIFT:g} N in {_DURATION / 60.0:g} min while the arm moves and is pushed with '
    f'{_PUSH:g} N for {_PUSHED:g} s every {_EVERY:g} s.',
    _run, CELLS)
