# SPDX-License-Identifier: Apache-2.0
"""Friction of a joint: the product, Coulomb and viscous friction, a load-dependent fit.

All are given the same constant-speed runs of a random joint, and are compared with its hidden
friction torque at six speeds, at the load that the joint had. The load-dependent fit is that of
Duclusaud et al. (Extended Friction Models for the Physics Simulation of Servo Actuators, 2025,
arXiv 2410.08650): Coulomb and Stribeck friction each with a part that grows with the load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy

from benchmarks.adversarial_cell import AdversarialCell, arm
from benchmarks.benchmark import Benchmark, Outcome, Request, in_parallel
from benchmarks.peers.arm import independent
from benchmarks.peers.comparison import COLUMNS, NO_VERDICT, Row, judged, limits, tables
from benchmarks.peers.payload import CASES, drawn
from benchmarks.peers.process import Run, run
from benchmarks.peers.recordings import recording
from robocal_ros.arrays import Array
from robocal_ros.estimation import low_passed
from robocal_ros.friction import FrictionParameters, estimate
from robocal_ros.friction.plan import plan_runs
from robocal_ros.friction.runs import SpeedPoint, read_runs
from robocal_ros.messages import JointSamples, Recording
from robocal_ros.results import rms
from robocal_ros.robot import RigidBodyInertia, Robot, arm_regressor, friction_by_joint

OURS, TEXTBOOK, LOADED = 'robocal', 'Coulomb and viscous', 'load-dependent (BAM-style)'
TOLERANCE = 0.1
"""Error that matters, as a share of the friction at its speed."""

TX40, WEIGHTED = 'TX40, recorded', 'weighted least squares'

# Gear ratios and zero angles of the TX40, and its published friction [N·m, N·m·s/rad].
_TX40_GEARS = np.array([32.0, 32.0, 45.0, -48.0, 45.0, 32.0])
_TX40_ZERO = np.array([0.0, -0.5 * np.pi, 0.5 * np.pi, 0.0, 0.0, 0.0])
_TX40_COULOMB, _TX40_VISCOUS = (7.14, 8.26, 6.34, 2.48), (8.05, 5.53, 1.97, 1.11)
_TX40_JOINTS, _TX40_MEAN, _TX40_CUTOFF, _TX40_TRANSITION = 4, 5, 30.0, 0.02
_VALUES = FrictionParameters(min_speed=0.01, max_cruise=3.0)
_SPEEDS = np.array([0.05, 0.2, 0.4])
_CUTOFF = 10.0
_LEAST_SPEED = 0.005


def _robot(name: str, body: Array) -> Robot:
    return arm(name).robot.with_payload(
        RigidBodyInertia(float(body[0]), body[1:4], body[4:].reshape(3, 3)))


def product(
    *, name: str, body: Array, samples: JointSamples, joint: int, speeds: Array, load: float
) -> Callable[[], Callable[[], dict[str, Any]]]:
    """Return the product's estimation, which returns the friction at some speeds.

    Args:
        name: Name of the arm.
        body: Mass, centre of mass and inertia of its tool, shape (13,).
        samples: Joint states of the runs.
        joint: Column of the joint.
        speeds: Signed speeds, shape (k,) [rad/s].
        load: Torque that the joint transmits [N·m].

    """
    robot = _robot(name, body)
    values = replace(_VALUES, measure_joints=[robot.joint_names[joint]])

    def solve() -> Callable[[], dict[str, Any]]:
        result = estimate(robot, Recording(samples), values)

        def answer() -> dict[str, Any]:
            law = friction_by_joint(result).get(robot.joint_names[joint])
            words = result.verdict.value
            if law is None:
                return {'torque': np.full(len(speeds), np.nan), 'std': None, 'words': words}
            return {'torque': law.torque(speeds, np.full(len(speeds), load)),
                    'std': law.deviation(speeds), 'words': words}

        return answer

    return solve


def textbook(
    *, name: str, body: Array, samples: JointSamples, joint: int, speeds: Array, load: float
) -> Callable[[], Callable[[], dict[str, Any]]]:
    """Return least squares of Coulomb and viscous friction and an offset over the runs."""
    robot = _robot(name, body)

    def solve() -> Callable[[], dict[str, Any]]:
        points = read_runs(robot, samples, [joint])

        def columns(speed: Array) -> Array:
            return np.column_stack((np.ones_like(speed), np.sign(speed), speed))

        matrix = columns(np.array([point.speed for point in points]))
        torque = np.array([point.torque for point in points])
        value = np.linalg.lstsq(matrix, torque, rcond=None)[0]
        variance = float(np.sum((torque - matrix @ value)**2)) / (len(torque) - 3)
        covariance = variance * np.linalg.inv(matrix.T @ matrix)

        def answer() -> dict[str, Any]:
            at = columns(speeds)
            return {'torque': at @ value, 'words': 'no verdict',
                    'std': np.sqrt(np.einsum('ij,jk,ik->i', at, covariance, at))}

        return answer

    return solve


def load_dependent(
    *, name: str, body: Array, samples: JointSamples, joint: int, speeds: Array, load: float
) -> Callable[[], Callable[[], dict[str, Any]]]:
    """Return the fit of the load-dependent law to all samples in motion."""
    robot = _robot(name, body)

    def friction(x: Array, speed: Array, torque: Array) -> Array:
        coulomb, by_load, extra, extra_by_load, stribeck, shape, viscous = x
        slow = np.exp(-(np.abs(speed) / stribeck) ** shape)
        level = coulomb + by_load * np.abs(torque) + slow * (
            extra + extra_by_load * np.abs(torque))
        return np.asarray(np.sign(speed) * level + viscous * speed)

    def solve() -> Callable[[], dict[str, Any]]:
        period = float(np.median(np.diff(samples.time)))
        cutoff = min(_CUTOFF, 0.2 / period)
        q = low_passed(samples.position, period, cutoff)
        v = np.gradient(q, period, axis=0)
        a = np.gradient(v, period, axis=0)
        effort = low_passed(samples.effort[:, [joint]], period, cutoff)[:, 0]
        rows = np.flatnonzero(np.abs(v[:, joint]) > _LEAST_SPEED)
        rows = rows[::max(1, len(rows) // 4000)]
        carried = np.array([robot.inverse_dynamics(*row)[joint]
                            for row in zip(q[rows], v[rows], a[rows], strict=True)])
        speed, left = v[rows, joint], effort[rows] - carried
        typical = rms(left)

        def residual(x: Array) -> Array:
            return friction(x, speed, carried) - left

        found = scipy.optimize.least_squares(
            residual, [typical, 0.0, typical, 0.0, 0.05, 1.0, 0.0],
            bounds=([0.0, 0.0, 0.0, 0.0, 1e-3, 0.2, 0.0],
                    [np.inf, 1.0, np.inf, 1.0, 1.0, 3.0, np.inf]),
            x_scale=[typical, 0.1, typical, 0.1, 0.05, 1.0, typical], max_nfev=500)

        def answer() -> dict[str, Any]:
            return {'torque': friction(found.x, speeds, np.full(len(speeds), load)),
                    'std': None, 'words': 'no verdict'}

        return answer

    return solve


def run_case(seed: int, cases: Sequence[str]) -> list[Row]:
    """Return the rows of all methods on a joint: quiet, one error, everything on."""
    return [row for case in cases for row in _rows(case, drawn(seed, 'effort', case))]


def _rows(case: str, cell: AdversarialCell) -> Iterator[Row]:
    chosen = cell.arm
    xx, yy, zz, xy, xz, yz = cell.tool.inertia
    body = np.array([cell.tool.mass, *cell.tool.centre_of_mass,
                     xx, xy, xz, xy, yy, yz, xz, yz, zz])
    joint = int(np.random.default_rng([cell.seed, 8]).integers(chosen.robot.n))
    name = chosen.robot.joint_names[joint]
    runs = plan_runs(chosen.robot, chosen.checker, cell.home, joint, _VALUES)
    samples, _ = cell.record([item.trajectory() for item in runs], rest=0.3)
    scale = cell.truth.joints[name].effort_scale
    points: list[SpeedPoint] = read_runs(_robot(chosen.name, body), samples, [joint])
    load = float(np.mean([point.load for point in points])) if points else 0.0
    highest = min(_VALUES.max_speed, 0.5 * float(chosen.robot.velocity_limit[joint]))
    speeds = np.concatenate((_SPEEDS, -_SPEEDS)) * highest / _VALUES.max_speed
    truth = scale * cell.friction_torque(joint, speeds, load / scale)
    arguments: dict[str, Any] = {
        'name': chosen.name, 'body': body, 'samples': samples, 'joint': joint, 'speeds': speeds,
        'load': load}
    for method, function in ((OURS, 'product'), (TEXTBOOK, 'textbook'),
                             (LOADED, 'load_dependent')):
        done = run(f'benchmarks.peers.friction:{function}', **arguments)
        yield _row(case, method, cell.seed, truth, done)


def _row(case: str, method: str, seed: int, truth: Array, done: Run) -> Row:
    words = done.answer['words'] if done.answer is not None else 'refused'
    if done.answer is None or not np.isfinite(done.answer['torque']).all():
        return Row(case, method, seed, verdict=words, reason=done.reason)
    error = done.answer['torque'] - truth
    row = Row(case, method, seed, {'friction torque [%]': 100.0 * rms(error) / rms(truth)},
              verdict=words)
    return judged(row, done, error, done.answer['std'], None, TOLERANCE * np.abs(truth))


# ------------------------------------------------------------------------------- TX40


def tx40_samples() -> tuple[str, JointSamples] | None:
    """Return URDF and joint states of the TX40 of the recordings at 1 kHz, None without them.

    The motors' angles and torques are those of the joints through the gears; the two last joints
    share a motor.
    """
    folder = recording('staubli_tx40')
    if folder is None:
        return None
    with np.load(folder / 'tx40.npz') as data:
        motor, torque = (data[name].reshape(-1, _TX40_MEAN, 6).mean(axis=1)
                         for name in ('motor_pos', 'motor_torque'))
    gears, torques = np.diag(_TX40_GEARS), np.diag(_TX40_GEARS)
    gears[5, 4] = torques[4, 5] = _TX40_GEARS[5]
    position = np.linalg.solve(gears, motor.T).T + _TX40_ZERO
    time: Array = 1e-3 * np.arange(1, len(position) + 1, dtype=np.float64)
    return (folder / 'tx40_mdh_modified.urdf').read_text(encoding='utf-8'), JointSamples(
        tuple(f'joint_{number}' for number in range(1, 7)), time, position,
        np.gradient(position, 1e-3, axis=0), (torques @ torque.T).T)


def tx40_product(
    *, urdf: str, samples: JointSamples
) -> Callable[[], Callable[[], dict[str, Any]]]:
    """Return the product's estimation, which returns Coulomb and viscous friction."""
    robot = Robot(urdf, tool_frame='link_6')
    values = replace(FrictionParameters(), method='motion', model='coulomb_viscous',
                     coupled_joints=['joint_5+joint_6'])

    def solve() -> Callable[[], dict[str, Any]]:
        result = estimate(robot, Recording(samples), values)

        def answer() -> dict[str, Any]:
            sides = [[result.parameter(f'{joint}.{name}_{side}') for side in (
                'forward', 'backward')] for name in ('coulomb', 'viscous')
                for joint in robot.joint_names[:_TX40_JOINTS]]
            return {'value': np.array([np.mean([item.value or np.nan for item in pair])
                                       for pair in sides]),
                    'words': result.verdict.value}

        return answer

    return solve


def tx40_textbook(
    *, urdf: str, samples: JointSamples
) -> Callable[[], Callable[[], dict[str, Any]]]:
    """Return weighted least squares of base parameters and friction, as for ``tx40_product``."""
    robot = Robot(urdf, tool_frame='link_6')
    n = robot.n

    def solve() -> Callable[[], dict[str, Any]]:
        q = low_passed(samples.position, 1e-3, _TX40_CUTOFF)
        v = np.gradient(q, 1e-3, axis=0)
        used = slice(500, -500, 5)
        a = np.gradient(v, 1e-3, axis=0)[used]
        q, v = q[used], v[used]
        every = [arm_regressor(robot, q, v, a).transpose(1, 0, 2)]
        for values in (a, np.ones_like(v), np.tanh(v / _TX40_TRANSITION), v):
            every.append(values.T[:, :, None] * np.eye(n)[:, None, :])
        columns = np.concatenate(every, axis=2)
        chosen = independent(columns.reshape(-1, columns.shape[2]))
        matrix = columns[:, :, chosen]
        wanted = low_passed(samples.effort, 1e-3, _TX40_CUTOFF)[used].T
        noise = np.ones(n)
        for _ in range(2):
            value = np.linalg.lstsq((matrix / noise[:, None, None]).reshape(-1, len(chosen)),
                                    (wanted / noise[:, None]).ravel(), rcond=None)[0]
            noise = (wanted - matrix @ value).std(axis=1)

        def answer() -> dict[str, Any]:
            full = np.zeros(columns.shape[2])
            full[chosen] = value
            return {'value': np.concatenate((full[12 * n:12 * n + _TX40_JOINTS],
                                             full[13 * n:13 * n + _TX40_JOINTS])),
                    'words': NO_VERDICT}

        return answer

    return solve


def tx40() -> list[Row]:
    """Return the rows of the TX40, against the friction that its publishers found."""
    known = tx40_samples()
    if known is None:
        return []
    published = np.array([*_TX40_COULOMB, *_TX40_VISCOUS])
    rows = []
    for method, function in ((OURS, 'tx40_product'), (WEIGHTED, 'tx40_textbook')):
        done = run(f'benchmarks.peers.friction:{function}', urdf=known[0], samples=known[1])
        if done.answer is None:
            rows.append(Row(TX40, method, reason=done.reason))
            continue
        error = 100.0 * np.abs(done.answer['value'] / published - 1.0)
        rows.append(Row(
            TX40, method, errors={'Coulomb, worst of J1 to J4 [%]': float(error[:4].max()),
                                  'viscous, worst of J1 to J4 [%]': float(error[4:].max())},
            verdict=done.answer['words'], seconds=done.seconds, memory=done.memory))
    return rows


class FrictionPeersBenchmark(Benchmark):
    """Random joints of random arms, every method on the same runs."""

    title = 'Friction, by several methods'
    about = ('Constant-speed runs of one joint of random arms with a known payload, quiet, with '
             'one error of the model, and with all of them; compared with the hidden friction at '
             'six speeds. Errors that matter: a tenth of the friction at a speed. The TX40 is a '
             'recording of 9 s of motion with published friction. In the tables, '
             f'{COLUMNS}')
    seeds = 3

    def run(self, request: Request) -> Outcome:
        """Run the benchmark; see `Benchmark.run`."""
        case = partial(run_case, cases=CASES[:1] if request.quick else CASES)
        rows = [row for found in in_parallel(case, request.seeds, request.jobs, self.title)
                for row in found] + tx40()
        return Outcome(list(limits(rows, {OURS: (TEXTBOOK, LOADED, WEIGHTED)}, '')), rows,
                       tables=list(tables(rows)))


BENCHMARK = FrictionPeersBenchmark()
