# SPDX-License-Identifier: Apache-2.0
"""Benchmark of payload and drive gains from exciting motions: accuracy and efficiency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from benchmarks.arm import InProcessArm
from benchmarks.figures import Deviation, Figure, deviations
from benchmarks.random_cell import random_tool, random_truth
from benchmarks.repetitions import Repetitions
from demo import default_cell
from robocal_ros.arrays import Array
from robocal_ros.estimation import Blocks
from robocal_ros.messages import JointSamples, WrenchSamples
from robocal_ros.payload import PayloadParameters, drive_gain_regression, excitation
from robocal_ros.payload.model import (
    PARAMETERS,
    body_regressor,
    centred,
    centred_covariance,
    moving,
    torque_regressor,
)
from robocal_ros.payload.plan import Regressor, plan_excitation
from robocal_ros.payload.regression import (
    BAND,
    MIN_MOTION,
    SLOWEST,
    Rows,
    loss_columns,
    torque_rows,
    wrench_rows,
)
from robocal_ros.results import CalibrationResult
from robocal_ros.robot import (
    CollisionChecker,
    MotionLimits,
    RigidBodyInertia,
    Robot,
    Trajectory,
    effort_scales,
)
from robocal_sim.truth import HiddenTruth, JointTruth, ToolTruth

SERIES, GAINS = 'excitation by wrist sensor, 2–3 kg', 'excitation by torques, effort scales ±15 %'
LIMIT = 'excitation by {}, random noise alone'
MOMENT_BAR, MASS_BAR = 5.0, 1.0
"""Percent of the moment, and of the mass."""

# The simulated arm is that of its URDF.
_EXACT = 0.001
_VALUES = PayloadParameters(method='excitation', sensor_gain_std=0.0, arm_model_std=_EXACT)
_ACCELERATION, _REST = 6.0, 0.5
_GUESS = 2.0
_MASSES, _SCALE = (2.0, 3.0), 0.15
_RATE = 500.0


@dataclass(frozen=True)
class Case:
    """Outcome of one seed.

    Attributes:
        deviations: Deviations of all ten parameters, by the wrist sensor.
        moments: Errors of the principal moments [%].
        scale_errors: Errors of the effort scales [%].
        before: Error of another tool's mass by torques, uncalibrated efforts [%].
        after: The same with calibrated efforts [%].
        speed: Duration of the recording over computation time of the estimate.

    """

    deviations: tuple[Deviation, ...]
    moments: tuple[float, ...]
    scale_errors: tuple[float, ...]
    before: float
    after: float
    speed: float


def _wrench_regressor(robot: Robot, q: Array, v: Array, a: Array) -> Array:
    return body_regressor(robot, default_cell.WRIST_SENSOR, q, v, a)


def _motion(robot: Robot, regressor: Regressor) -> Trajectory:
    """Plan an exciting motion as the node does."""
    limits = MotionLimits(robot.joint_names, robot.lower, robot.upper, robot.velocity_limit,
                          np.full(robot.n, _ACCELERATION))
    guess = RigidBodyInertia(_GUESS, np.zeros(3), np.zeros((3, 3)))
    return plan_excitation(robot.with_payload(guess), CollisionChecker(robot.copy()), limits,
                           np.zeros(robot.n), regressor, _VALUES)


def _record(
    truth: HiddenTruth, seed: int, motion: Trajectory
) -> tuple[JointSamples, WrenchSamples]:
    arm = InProcessArm(default_cell.urdf(), truth, default_cell.reference_cell(), seed)
    arm.dwell(_REST)
    arm.move(motion)
    arm.dwell(_REST)
    return arm.take_samples()


def tensor(values: Sequence[float]) -> Array:
    """Return a symmetric matrix from xx, xy, xz, yy, yz, zz."""
    found = np.zeros((3, 3))
    found[np.triu_indices(3)] = values
    return np.asarray(found + np.triu(found, 1).T)


def expected(tool: ToolTruth, robot: Robot) -> dict[str, float]:
    """Return the ten hidden parameters in the tool frame, by name."""
    posture = np.zeros(robot.n)
    rotation = robot.transform_frame_to_root(posture, robot.tool_frame).actInv(
        robot.transform_frame_to_root(posture, tool.parent or robot.tool_frame)).rotation
    xx, yy, zz, xy, xz, yz = tool.inertia
    inertia = rotation @ tensor((xx, xy, xz, yy, yz, zz)) @ rotation.T
    return {**default_cell.payload_truth(tool, robot, robot.tool_frame),
            **dict(zip(PARAMETERS[4:], inertia[np.triu_indices(3)].tolist(), strict=True))}


def run_case(seed: int) -> Case:
    """Identify one random tool by the wrist sensor, and another one by calibrated torques.

    Args:
        seed: Seed of tools, joints, effort scales, biases and noise.

    Raises:
        RobocalError: A procedure fails.

    """
    generator = np.random.default_rng([seed, 4])
    robot = Robot(default_cell.urdf())
    truth = random_truth(default_cell.hidden_truth(), seed, sensor=default_cell.WRIST_SENSOR)
    tool = random_tool(generator, float(generator.uniform(*_MASSES)))
    joints, readings = _record(
        replace(truth, tool=tool), seed, _motion(robot, _wrench_regressor))
    began = perf_counter()
    result = excitation.estimate(robot, joints, _VALUES, sensor=readings)
    taken = perf_counter() - began
    found = deviations(SERIES, seed, result, expected(tool, robot), PARAMETERS)
    return Case(
        tuple(found), _moment_errors(result, expected(tool, robot)),
        *_by_torques(robot, truth, generator, seed), float(np.ptp(joints.time)) / taken)


def _moment_errors(result: CalibrationResult, truth: dict[str, float]) -> tuple[float, ...]:
    found = np.linalg.eigvalsh(tensor(result.values(PARAMETERS[4:]).tolist()))
    hidden = np.linalg.eigvalsh(tensor([truth[name] for name in PARAMETERS[4:]]))
    return tuple((100.0 * np.abs(found / hidden - 1.0)).tolist())


def _by_torques(
    robot: Robot, truth: HiddenTruth, generator: np.random.Generator, seed: int
) -> tuple[tuple[float, ...], float, float]:
    """Calibrate efforts with one tool; return errors of the scales, and of another mass."""
    scale = 1.0 + _SCALE * generator.uniform(-1.0, 1.0, robot.n)
    spoilt: dict[str, JointTruth] = {
        name: replace(truth.joints[name], effort_scale=float(factor))
        for name, factor in zip(robot.joint_names, scale, strict=True)}
    motion = _motion(robot, torque_regressor)
    known, other = random_tool(generator, _GUESS), random_tool(generator)
    joints, _ = _record(replace(truth, joints=spoilt, tool=known), seed, motion)
    calibrated = drive_gain_regression.estimate(
        robot, joints, replace(_VALUES, known_mass=known.mass, arm_model_std=_EXACT))
    scales = effort_scales(calibrated)
    factor = np.array([scales.get(name, 1.0) for name in robot.joint_names])
    weighed, _ = _record(replace(truth, joints=spoilt, tool=other), seed + 1000, motion)

    def error(samples: JointSamples) -> float:
        rows = torque_rows(robot, samples, _VALUES)
        mass = excitation.fit_rows(rows).value[0]
        return 100.0 * abs(float(mass) / other.mass - 1.0)

    return (tuple((100.0 * np.abs(factor / scale - 1.0)).tolist()), error(weighed),
            error(replace(weighed, effort=weighed.effort / factor)))


def figures(cases: Sequence[Case]) -> list[Figure]:
    """Return errors and times over all cases."""
    found = [item for case in cases for item in case.deviations]
    rows = []
    for name in PARAMETERS[:4]:
        items = [item for item in found if item.parameter == name]
        unit, size = ('%', [item.truth / 100.0 for item in items]) if name == 'mass' else (
            'mm', [1e-3] * len(items))
        errors = [abs(item.error) / part for item, part in zip(items, size, strict=True)]
        rows.append(Figure(SERIES, f'error of {name}', unit, float(np.median(errors)),
                           max(errors)))
    moments = [error for case in cases for error in case.moments]
    rows.append(Figure(SERIES, 'error of a principal moment', '%', float(np.median(moments)),
                       max(moments), MOMENT_BAR))
    speeds = [case.speed for case in cases]
    rows.append(Figure(SERIES, 'speed of the estimate', '× real time', float(np.median(speeds)),
                       min(speeds)))
    for what, group, limit in (
        ('error of an effort scale', [e for case in cases for e in case.scale_errors], None),
        ("error of another tool's mass before", [case.before for case in cases], None),
        ("error of another tool's mass after", [case.after for case in cases], MASS_BAR),
    ):
        rows.append(Figure(GAINS, what, '%', float(np.median(group)), max(group), limit))
    return rows


# ----------------------------------------------------------- limits with random noise alone


def efficiency(repetitions: int) -> list[Repetitions]:
    """Return repetitions with random noise alone, by wrist sensor and by torques.

    The planned motion is sampled without sag and tracking error; each repetition adds white noise
    of the reference cell to every sample.

    Args:
        repetitions: Number of repetitions; at least 200 for a significant figure.

    """
    return [_efficiency(source, repetitions) for source in ('wrist sensor', 'torques')]


def _efficiency(source: str, repetitions: int) -> Repetitions:
    robot = Robot(default_cell.urdf())
    cell = default_cell.reference_cell()
    tool = default_cell.hidden_truth().tool or random_tool(np.random.default_rng(0), _GUESS)
    truth = np.array([expected(tool, robot)[name] for name in PARAMETERS])
    loaded = robot.with_payload(
        RigidBodyInertia(truth[0], truth[1:4], tensor(truth[4:].tolist())))
    by_wrench = source == 'wrist sensor'
    motion = _motion(robot, _wrench_regressor if by_wrench else torque_regressor)
    time = np.arange(0.0, motion.duration, 1.0 / _RATE)
    kinematics = motion.sample(time)
    torque = np.array([loaded.inverse_dynamics(*row) for row in zip(*kinematics, strict=True)])
    samples = JointSamples(robot.joint_names, time, kinematics[0], kinematics[1], torque)
    values = replace(_VALUES, posture_std=0.0, sag_std=0.0, delay_std=0.0, load_friction_std=0.0,
                     friction_change_std=0.0, cable_stiffness_std=0.0)
    if by_wrench:
        noise = np.repeat([cell.force_torque.force_sigma, cell.force_torque.torque_sigma], 3)
        frame = default_cell.WRIST_SENSOR
        total = loaded.distal_inertia(frame).to_pinocchio().toDynamicParameters() + (
            np.linalg.solve(moving(robot, frame), _dynamic(truth)))
        columns = np.array([-body_regressor(robot, frame, *row)
                            for row in zip(*kinematics, strict=True)])
        rows = wrench_rows(robot, samples, WrenchSamples(frame, time, columns @ total), values)
        nuisances = np.ones((*columns.shape[:2], 1))
        counted = np.ones(columns.shape[:2], dtype=bool)
    else:
        noise = np.full(robot.n, cell.joint_states.effort_sigma)
        frame = robot.tool_frame
        columns = np.array([torque_regressor(robot, *row)
                            for row in zip(*kinematics, strict=True)])
        rows = torque_rows(robot, samples, values)
        nuisances = loss_columns(kinematics[1])
        counted = np.abs(kinematics[1]) >= SLOWEST
    move = moving(robot, frame)
    bound = np.sqrt(np.diag(centred_covariance(
        _dynamic(truth), move @ _bound(columns, nuisances, counted, noise) @ move.T)))
    return _repeated(LIMIT.format(source), rows, move, truth, bound, noise, repetitions,
                   Blocks.of(samples, BAND, MIN_MOTION), time)


def _dynamic(values: Array) -> Array:
    """Return dynamic parameters of ten centred ones, shape (10,)."""
    body = RigidBodyInertia(float(values[0]), values[1:4], tensor(values[4:].tolist()))
    return np.asarray(body.to_pinocchio().toDynamicParameters())


def _bound(columns: Array, nuisances: Array, counted: Array, noise: Array) -> Array:
    """Return the lower bound of the body's covariance from all samples, shape (10, 10)."""
    channels, extra = columns.shape[1], nuisances.shape[2]
    size = 10 + channels * extra
    information = np.zeros((size, size))
    for channel in range(channels):
        rows = np.zeros((int(counted[:, channel].sum()), size))
        rows[:, :10] = columns[counted[:, channel], channel]
        at = 10 + channel * extra
        rows[:, at:at + extra] = nuisances[counted[:, channel], channel]
        information += rows.T @ rows / noise[channel] ** 2
    return np.asarray(np.linalg.inv(information)[:10, :10])


def _repeated(
    series: str, rows: Rows, move: Array, truth: Array, bound: Array, noise: Array,
    repetitions: int, blocks: Blocks, time: Array,
) -> Repetitions:
    errors, stated = [], []
    for repetition in range(repetitions):
        generator = np.random.default_rng([repetition, 6])
        white = noise * generator.standard_normal((len(time), len(noise)))
        # Noise enters only the means over blocks.
        fit = excitation.fit_rows(replace(
            rows, measured=rows.measured + blocks.sample_means(time, white).T))
        body = move @ fit.value[:10]
        stated.append(np.sqrt(np.diag(centred_covariance(
            body, move @ fit.covariance[:10, :10] @ move.T))))
        errors.append(centred(body) - truth)
    return Repetitions(series, PARAMETERS, np.array(errors), np.array(stated), bound)
