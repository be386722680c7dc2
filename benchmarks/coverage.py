# SPDX-License-Identifier: Apache-2.0
"""Efficiency and coverage of every method with random noise alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

import numpy as np

from benchmarks import compliance, excitation, friction
from benchmarks.adversarial_cell import AdversarialCell, draw
from benchmarks.benchmark import Benchmark, Outcome, Request
from benchmarks.campaign import place, static_postures, two_plane_motions
from benchmarks.figures import Figure
from benchmarks.foreign_arms import OWN
from benchmarks.repetitions import Repetitions
from demo import default_cell
from robocal_ros.arrays import Array
from robocal_ros.estimation import dwells, steady_sweeps
from robocal_ros.payload import PayloadParameters, static_poses, two_plane
from robocal_ros.payload.model import static_wrench_regressor, torque_regressor
from robocal_ros.payload.result import COM
from robocal_ros.results import CalibrationResult
from robocal_ros.robot import Trajectory
from robocal_sim.truth import Cell

_UNKNOWN = 'The cause is not known.'
REASONS = {
    'static poses, random noise alone': (_UNKNOWN, 'Intervals are wider than noise alone needs.'),
    'two planes, random noise alone': (_UNKNOWN, _UNKNOWN),
    'friction, random noise alone': (_UNKNOWN, _UNKNOWN),
}
"""Why the limits of efficiency and coverage are missed, by method."""

_PARAMETERS = ('mass', *COM)
# Nothing but noise: the arm is that of its URDF, upright, rigid, with a calibrated sensor.
_EXACT = PayloadParameters(
    sensor_gain_std=0.0, tilt_std=0.0, arm_model_std=0.0, posture_std=0.0, sag_std=0.0,
    delay_std=0.0, load_friction_std=0.0, friction_change_std=0.0, cable_stiffness_std=0.0)


def _quiet_cell(reads: str) -> AdversarialCell:
    cell = draw(1, reads, effects=[], arm_name=OWN)
    rigid = {name: replace(joint, compliance=0.0) for name, joint in cell.truth.joints.items()}
    return replace(cell, rate=500.0, noise=Cell(), truth=replace(cell.truth, joints=rigid))


def _repeated(
    series: str, cell: AdversarialCell, names: tuple[str, ...], bound: Array, repetitions: int,
    estimate: Callable[[np.random.Generator], CalibrationResult],
) -> Repetitions:
    robot = cell.arm.robot
    truth = excitation.expected(cell.tool, robot)
    errors, stated = [], []
    for repetition in range(repetitions):
        result = estimate(np.random.default_rng([repetition, 12]))
        errors.append(result.values(names) - [truth[name] for name in names])
        stated.append([result.parameter(name).std or np.nan for name in names])
    return Repetitions(series, names, np.array(errors), np.array(stated), bound)


def by_static_poses(repetitions: int) -> Repetitions:
    """Return repetitions of a payload from static postures; noise of the F/T sensor."""
    cell = _quiet_cell('wrench')
    robot, sensor = cell.arm.robot, cell.arm.sensor
    joints, readings = cell.record([
        Trajectory(np.array([0.0, 1.0]), np.stack((q, q)), np.zeros((2, len(q))))
        for q in static_postures(*place(cell))])
    noise = default_cell.reference_cell().force_torque
    sigma = np.repeat([noise.force_sigma, noise.torque_sigma], 3)
    information = np.zeros((10, 10))
    for dwell in dwells(joints):
        begin, end = joints.time[[dwell.start, dwell.stop - 1]]
        count = np.count_nonzero((readings.time >= begin) & (readings.time <= end))
        rotation = robot.transform_frame_to_root(dwell.posture, sensor).rotation
        rows = static_wrench_regressor(rotation.T @ robot.gravity) / sigma[:, None]
        information += count * rows.T @ rows
    # Mass and first moments in the sensor's frame, to mass and centre in the tool frame.
    posture = np.zeros(robot.n)
    to_tool = robot.transform_frame_to_root(posture, robot.tool_frame).actInv(
        robot.transform_frame_to_root(posture, sensor))
    centre = excitation.expected(cell.tool, robot)
    there = to_tool.actInv(np.array([centre[name] for name in COM]))
    slopes = np.eye(4)
    slopes[1:, 0] = -to_tool.rotation @ there / cell.tool.mass
    slopes[1:, 1:] = to_tool.rotation / cell.tool.mass
    bound = np.sqrt(np.diag(slopes @ np.linalg.inv(information)[:4, :4] @ slopes.T))
    values = replace(_EXACT, method='static_poses', sensor_frame=sensor)
    return _repeated(
        'static poses, random noise alone', cell, _PARAMETERS, bound, repetitions,
        lambda generator: static_poses.estimate(robot, joints, replace(
            readings, wrench=readings.wrench + sigma * generator.standard_normal(
                readings.wrench.shape)), values))


def by_two_planes(repetitions: int) -> Repetitions:
    """Return repetitions of a centre of mass from sweeps; noise of the efforts.

    The bound is that of all samples of the sweeps, with one friction torque per joint and
    direction as nuisance parameters.
    """
    cell = _quiet_cell('effort')
    robot, mass = cell.arm.robot, cell.tool.mass
    joints, _ = cell.record(two_plane_motions(cell), rest=0.3)
    sigma = default_cell.reference_cell().joint_states.effort_sigma
    sweeps = steady_sweeps(joints)
    kinds = sorted({(sweep.joint, sweep.speed > 0.0) for sweep in sweeps})
    still, columns = np.zeros(robot.n), 3 + len(kinds)
    information = np.zeros((columns, columns))
    for sweep in sweeps:
        kind = 3 + kinds.index((sweep.joint, sweep.speed > 0.0))
        rows = np.zeros((sweep.stop - sweep.start, columns))
        rows[:, kind] = 1.0
        rows[:, :3] = [mass * torque_regressor(robot, q, still, still)[sweep.joint, 1:4]
                       for q in joints.position[sweep.start:sweep.stop]]
        information += rows.T @ rows / sigma**2
    bound = np.sqrt(np.diag(np.linalg.inv(information)[:3, :3]))
    values = replace(_EXACT, known_mass=mass)
    return _repeated(
        'two planes, random noise alone', cell, COM, bound, repetitions,
        lambda generator: two_plane.estimate(robot, replace(
            joints, effort=joints.effort + sigma * generator.standard_normal(
                joints.effort.shape)), values))


class CoverageBenchmark(Benchmark):
    """Repetitions of every method on data that differ by random noise alone."""

    title = 'Efficiency and coverage'
    about = (
        'Repeated estimates from one motion of the default arm with fresh white noise of the '
        'reference cell and nothing else: root mean square errors over the Cramér-Rao bound, '
        'and the share of 95 % intervals that contain the truth. Drive gains and differential '
        'runs are not part of it.')
    seeds = 1

    def run(self, request: Request) -> Outcome:
        """Run the benchmark; see `Benchmark.run`."""
        figures: list[Figure] = []
        taken = []
        methods: dict[str, Callable[[int], list[Repetitions]]] = {
            'static poses': lambda count: [by_static_poses(count)],
            'two planes': lambda count: [by_two_planes(count)],
            'excitation': excitation.efficiency,
            'friction': lambda count: [friction.efficiency(count)],
            'compliance': lambda count: [compliance.efficiency(count)],
        }
        for name in ('compliance',) if request.quick else methods:
            began = perf_counter()
            for found in methods[name](request.repetitions):
                figures += found.figures(*REASONS.get(found.series, ('', '')))
            taken.append(f'{name} {perf_counter() - began:.0f} s')
        return Outcome(figures, remarks=[f'Taken: {", ".join(taken)}.'])


BENCHMARK = CoverageBenchmark()
