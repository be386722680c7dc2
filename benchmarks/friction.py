# SPDX-License-Identifier: Apache-2.0
"""Benchmark of friction identification: random friction, tools and noise, and efficiency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np

from benchmarks.arm import InProcessArm
from benchmarks.benchmark import Benchmark, Outcome, Request, in_parallel
from benchmarks.figures import Deviation, Figure, Timing, deviations, shares
from benchmarks.random_cell import random_truth
from benchmarks.repetitions import Repetitions
from demo import default_cell
from demo.friction import friction_truth
from robocal_ros.arrays import Array
from robocal_ros.friction import Compensator, FrictionParameters, estimate
from robocal_ros.friction.estimator import NAMES
from robocal_ros.friction.fit import fit_joint
from robocal_ros.friction.plan import plan_runs
from robocal_ros.friction.runs import find_runs, read_run
from robocal_ros.messages import JointSamples, Recording
from robocal_ros.results import CalibrationResult, State
from robocal_ros.robot import (
    DIRECTIONS,
    CollisionChecker,
    Robot,
    SteadyFriction,
    friction_by_joint,
)
from robocal_ros.robot.trajectories import quintic_move
from robocal_sim.truth import Cell, HiddenTruth

SERIES = 'friction, constant speeds'
LIMIT = 'friction, random noise alone'
CURVE_BAR, COMPENSATION_BAR = 3.0, 10.0
"""Percent of the truth's RMS, and of the friction."""

_VALUES = FrictionParameters()
QUICK = FrictionParameters(
    min_speed=0.01, speed_count=5, max_cruise=1.5, max_velocity=3.0, max_acceleration=12.0)
"""Parameters of the node for few and short runs."""

_REST = 0.3
_GRID = 600
_LIMIT_JOINT = 'joint_6'


@dataclass(frozen=True)
class Curve:
    """Error of one joint's friction law.

    Attributes:
        joint: Name of the joint.
        error: RMS error over the range of speeds, relative to the truth's RMS [%].
        residual: Largest torque left by the compensation at a constant speed, relative to the
            friction there [%].
        chatter: Peak-to-peak compensation at standstill, with measured speeds [N·m].

    """

    joint: str
    error: float
    residual: float
    chatter: float


@dataclass(frozen=True)
class Case:
    """Outcome of one seed."""

    seed: int
    deviations: tuple[Deviation, ...]
    curves: tuple[Curve, ...]
    timings: tuple[Timing, ...]


def _record(
    truth: HiddenTruth, cell: Cell, seed: int, robot: Robot, joints: Sequence[str],
    values: FrictionParameters = _VALUES,
) -> JointSamples:
    """Run the planned runs of some joints on the arm in this process."""
    arm = InProcessArm(default_cell.urdf(), truth, cell, seed)
    checker = CollisionChecker(robot.copy())
    home = arm.posture
    speed = np.minimum(robot.velocity_limit, values.max_velocity)
    limit = np.full(robot.n, values.max_acceleration)
    for name in joints:
        for run in plan_runs(robot, checker, home, robot.index(name), values):
            arm.move(quintic_move(arm.posture, run.start_posture(), speed, limit))
            arm.dwell(_REST)
            arm.move(run.trajectory())
            arm.dwell(_REST)
        arm.move(quintic_move(arm.posture, home, speed, limit))
    return arm.take_samples()[0]


def run_case(
    seed: int, joints: Sequence[str] = (), values: FrictionParameters = _VALUES
) -> Case:
    """Identify the joints of one random arm with a known payload.

    Args:
        seed: Seed of tool, joints and noise.
        joints: Names of the joints; empty for all.
        values: Parameters of the node.

    Raises:
        RobocalError: A run fails.

    """
    truth = random_truth(default_cell.hidden_truth(), seed, sensor=default_cell.WRIST_SENSOR)
    robot = Robot(default_cell.urdf())
    if truth.tool is not None:
        robot = robot.with_payload(
            default_cell.rigid_body(truth.tool), truth.tool.parent or None)
    joints = joints or robot.joint_names
    samples = _record(truth, default_cell.reference_cell(), seed, robot, joints, values)
    began = perf_counter()
    result = estimate(
        robot, Recording(samples), replace(values, measure_joints=list(joints)))
    taken = perf_counter() - began
    hidden = friction_truth(truth, joints)
    known = [p.name for p in result.parameters if p.state is State.IDENTIFIED]
    return Case(
        seed, tuple(deviations(SERIES, seed, result, hidden, known)),
        tuple(_curves(result, hidden, seed, values)),
        (Timing('friction, estimate of all joints', float(np.ptp(samples.time)), len(samples),
                taken),))


def hidden_law(hidden: dict[str, float], joint: str) -> SteadyFriction:
    """Return the hidden steady friction of a joint.

    Args:
        hidden: Hidden parameters by name, as returned by ``friction_truth``.
        joint: Name of the joint.

    """
    return _law(np.array([hidden[f'{joint}.{name}_{direction}']
                          for direction in DIRECTIONS for name in NAMES]))


def _law(vector: Array) -> SteadyFriction:
    """Return the law with eight parameters: forward, then backward, in the order of ``NAMES``."""
    coulomb, static, stribeck_velocity, viscous = vector.reshape(2, 4).T
    return SteadyFriction(coulomb, static, stribeck_velocity, viscous)


def _curves(
    result: CalibrationResult, hidden: dict[str, float], seed: int, values: FrictionParameters
) -> list[Curve]:
    laws = friction_by_joint(result)
    fast = np.linspace(values.min_speed, values.max_speed, _GRID)
    speed = np.concatenate((fast, -fast))
    sigma = default_cell.reference_cell().joint_states.velocity_sigma
    still = sigma * np.random.default_rng([seed, 1]).standard_normal(5000)
    found = []
    for joint, law in laws.items():
        truth = hidden_law(hidden, joint).torque(speed)
        error = law.torque(speed) - truth
        compensator = Compensator({joint: law}, (joint,), width=values.compensation_width,
                                  dead_band=values.compensation_dead_band)
        added = np.array([compensator.torque(np.array([v]), measured=False)[0] for v in speed])
        chatter = [compensator.torque(np.array([v]), measured=True)[0] for v in still]
        found.append(Curve(
            joint, 100.0 * float(np.linalg.norm(error) / np.linalg.norm(truth)),
            100.0 * float(np.max(np.abs(added - truth) / np.abs(truth))),
            float(np.ptp(chatter))))
    return found


def figures(cases: Sequence[Case]) -> list[Figure]:
    """Return errors of curves and compensation, and computation times, over all cases."""
    curves = [item for case in cases for item in case.curves]
    rows = []
    for joint in dict.fromkeys(item.joint for item in curves):
        errors = [item.error for item in curves if item.joint == joint]
        rows.append(Figure(SERIES, f'curve of {joint} against the truth', '% of its RMS',
                           float(np.median(errors)), max(errors), CURVE_BAR))
    residual = [item.residual for item in curves]
    rows.append(Figure(SERIES, 'residual of the compensation at constant speed', '% of friction',
                       float(np.median(residual)), max(residual), COMPENSATION_BAR))
    chatter = [item.chatter for item in curves]
    rows.append(Figure(SERIES, 'compensation at standstill, peak to peak', 'N·m',
                       float(np.median(chatter)), max(chatter), 0.0))
    timings = [item for case in cases for item in case.timings]
    rows.append(Figure(SERIES, 'time of the estimate', 'ms',
                       float(np.median([1e3 * item.taken for item in timings])),
                       max(1e3 * item.taken for item in timings)))
    speed = [item.recorded / item.taken for item in timings]
    rows.append(Figure(SERIES, 'speed of the estimate', '× real time', float(np.median(speed)),
                       min(speed)))
    return rows


def efficiency(repetitions: int) -> Repetitions:
    """Return repetitions with random noise alone.

    The runs of one joint are simulated once, without sag, tool, quantization and ripple; each
    repetition adds white noise of the reference cell to every effort sample.

    Args:
        repetitions: Number of repetitions; at least 200 for a significant figure.

    """
    base = default_cell.hidden_truth()
    truth = replace(
        base, tool=None, load=None, imus=(), tracker=None,
        force_torque_sensors=base.force_torque_sensors[:1],
        joints={name: replace(joint, compliance=0.0) for name, joint in base.joints.items()})
    robot = Robot(default_cell.urdf())
    clean = _record(truth, Cell(), 0, robot, [_LIMIT_JOINT])
    column = robot.index(_LIMIT_JOINT)
    runs = find_runs(clean, [column])
    hidden = friction_truth(truth, [_LIMIT_JOINT])
    names = [f'{_LIMIT_JOINT}.{name}_{direction}' for direction in DIRECTIONS for name in NAMES]
    vector = np.array([hidden[name] for name in names])
    sigma = default_cell.reference_cell().joint_states.effort_sigma
    speeds = np.concatenate([np.full(run.stop - run.start, run.speed) for run in runs])
    bound = _bound(vector, speeds, sigma)
    errors, stated = [], []
    for repetition in range(repetitions):
        noise = np.random.default_rng([repetition, 2]).standard_normal(len(clean))
        effort = clean.effort.copy()
        effort[:, column] += sigma * noise
        noisy = replace(clean, effort=effort)
        item = fit_joint(_LIMIT_JOINT, [read_run(robot, noisy, run) for run in runs], _VALUES)
        if item.choice is None or item.missing or item.choice.model != 'stribeck':
            continue
        fits = item.choice.fits.values()
        errors.append(np.concatenate([fit.value for fit in fits]) - vector)
        stated.append(np.sqrt(np.concatenate([np.diag(fit.covariance) for fit in fits])))
    return Repetitions(LIMIT, [name.rpartition('.')[2] for name in names], np.array(errors),
                       np.array(stated), bound)


def _bound(vector: Array, speeds: Array, sigma: float) -> Array:
    """Return the bound's standard deviations, with central differences of the law, shape (8,)."""
    def torque(values: Array) -> Array:
        return _law(values).torque(speeds)

    slopes = np.column_stack([
        (torque(vector + step) - torque(vector - step)) / (2.0 * step.sum())
        for step in np.diag(1e-5 * vector)])
    return np.asarray(np.sqrt(np.diag(np.linalg.inv(slopes.T @ slopes))) * sigma)


class FrictionBenchmark(Benchmark):
    """All joints of random arms, and the efficiency of the estimator on one joint."""

    title = 'Friction'
    about = ('Runs at constant speeds of every joint of random arms with known tools, simulated '
             'with drives and controller.')
    seeds = 2

    def run(self, request: Request) -> Outcome:
        """Run the benchmark; see `Benchmark.run`."""
        case = partial(run_case, joints=(_LIMIT_JOINT,), values=QUICK) if request.quick else (
            run_case)
        cases = in_parallel(case, request.seeds, request.jobs, 'friction')
        found = [item for case in cases for item in case.deviations]
        return Outcome(figures(cases), cases, shares(found))


BENCHMARK = FrictionBenchmark()
