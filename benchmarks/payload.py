# SPDX-License-Identifier: Apache-2.0
"""Benchmark of payload identification: random tools, joints, biases and noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter

import numpy as np
import yaml

from benchmarks import excitation, handover
from benchmarks.arm import InProcessArm
from benchmarks.benchmark import Benchmark, Outcome, Request, in_parallel
from benchmarks.figures import Deviation, Figure, Timing, deviations, error_figures, shares
from benchmarks.random_cell import random_truth, truth_document
from demo import default_cell
from demo.payload import PayloadTour
from demo.stage import open_stage
from robocal_ros.arrays import Array
from robocal_ros.cli.console import OUT
from robocal_ros.errors import RobocalError
from robocal_ros.payload import PayloadParameters, plan, static_poses, two_plane
from robocal_ros.payload.result import COM
from robocal_ros.results import CalibrationResult
from robocal_ros.robot import CollisionChecker, Lspb, Robot, Trajectory, connect, quintic_path
from robocal_sim.truth import HiddenTruth

STATIC, TWO_PLANE = 'static poses, 1–3 kg', 'two planes, 1–3 kg'
TWO_PLANE_2KG = 'two planes, 2 kg, weighed'

BARS = {
    STATIC: {'mass': 0.5, 'com_x': 0.5, 'com_y': 0.5, 'com_z': 0.5},
    TWO_PLANE: {},
    TWO_PLANE_2KG: {'com_x': 1.0, 'com_y': 1.0, 'com_z': 1.0},
}
"""Limits by series and parameter: mass [%], centre of mass [mm]."""

# Series and parameters of each method.
_SERIES = {
    'static_poses': (STATIC, ('mass', 'com_x', 'com_y', 'com_z')),
    'two_plane': (TWO_PLANE, ('com_x', 'com_y', 'com_z')),
}

# Defaults of the node.
_POSES, _DWELL = 14, 1.0
_SWEEP_SPEED, _VELOCITY, _ACCELERATION = 0.25, 1.0, 2.0


@dataclass(frozen=True)
class Case:
    """Outcome of one seed."""

    seed: int
    deviations: tuple[Deviation, ...]
    timings: tuple[Timing, ...]
    excitation: excitation.Case | None = None
    handover: handover.Handover | None = None


class _Procedure:
    """The node's procedures on the arm in this process."""

    def __init__(self, truth: HiddenTruth, seed: int) -> None:
        urdf = default_cell.urdf()
        self.robot = Robot(urdf)
        self.truth = truth
        self.timings: list[Timing] = []
        self._checker = CollisionChecker(self.robot)
        self._arm = InProcessArm(urdf, truth, default_cell.reference_cell(), seed)
        self._velocity = np.minimum(self.robot.velocity_limit, _VELOCITY)

    @cached_property
    def expected(self) -> dict[str, float]:
        """Hidden payload in the tool frame, by parameter name."""
        if self.truth.tool is None:
            return {}
        return default_cell.payload_truth(self.truth.tool, self.robot, self.robot.tool_frame)

    def static_poses(self, count: int = _POSES) -> CalibrationResult:
        """Visit some postures and estimate."""
        sensor = self.truth.force_torque_sensors[0].frame
        postures = plan.plan_static_poses(
            self.robot, self._checker, self._arm.posture, sensor_frame=sensor, count=count)
        for posture in postures:
            self._go(posture)
            self._arm.dwell(_DWELL)
        joints, readings = self._arm.take_samples()
        began = perf_counter()
        result = static_poses.estimate(
            self.robot, joints, readings,
            # The simulated arm is that of its URDF, upright, with a calibrated sensor.
            PayloadParameters(method='static_poses', sensor_gain_std=0.0, tilt_std=0.0,
                              arm_model_std=0.0))
        self._note('static poses, estimate', len(joints), float(np.ptp(joints.time)), began)
        return result

    def two_plane(self, mass: float, std: float) -> CalibrationResult:
        """Run the sweeps and estimate."""
        motion = plan.plan_two_plane(
            self.robot, self._checker, self._arm.posture, mass=mass)
        self._arm.move(self._through(motion.approach))
        for sweep in motion.sweeps:
            self._go(sweep.end(high=False))
            for start, goal in ((sweep.low, sweep.high), (sweep.high, sweep.low)):
                segment = Lspb.with_acceleration(start, goal, _SWEEP_SPEED, _ACCELERATION)
                self._arm.move(segment.trajectory(sweep.posture, sweep.joint))
        joints, _ = self._arm.take_samples()
        # Links, efforts, sensor and base of the reference cell are exact.
        values = PayloadParameters(known_mass=mass, known_mass_std=std)
        began = perf_counter()
        result = two_plane.estimate(self.robot, joints, values)
        self._note('two planes, estimate', len(joints), float(np.ptp(joints.time)), began)
        return result

    def _note(self, method: str, samples: int, recorded: float, began: float) -> None:
        self.timings.append(Timing(method, recorded, samples, perf_counter() - began))

    def _through(self, path: Array) -> Trajectory:
        return quintic_path(path, self._velocity, np.full(self.robot.n, _ACCELERATION))

    def _go(self, posture: Array) -> None:
        here = self._arm.posture
        if np.abs(posture - here).max() > 1e-3:
            self._arm.move(self._through(connect(self.robot, self._checker, here, posture)))


def run_case(seed: int) -> Case:
    """Identify random tools by every method.

    Args:
        seed: Seed of tool, joints, biases and noise.

    Raises:
        RobocalError: A procedure fails.

    """
    base = default_cell.hidden_truth()
    sensor = default_cell.WRIST_SENSOR
    drawn = _Procedure(random_truth(base, seed, sensor=sensor), seed)
    static = drawn.static_poses()
    found = deviations(STATIC, seed, static, drawn.expected, static_poses.PARAMETERS[:4])
    mass = static.parameter('mass')
    planes = drawn.two_plane(mass.value or 0.0, mass.std or 0.0)
    found += deviations(TWO_PLANE, seed, planes, drawn.expected, COM)
    weighed = _Procedure(random_truth(base, seed, 2.0, sensor=sensor), seed)
    found += deviations(
        TWO_PLANE_2KG, seed, weighed.two_plane(2.0, 0.0), weighed.expected, COM)
    excited = excitation.run_case(seed)
    return Case(seed, (*found, *excited.deviations), (*drawn.timings, *weighed.timings), excited,
                handover.run_case(seed))


def _quick_case(seed: int) -> Case:
    """Identify a random tool in a few static poses."""
    drawn = _Procedure(
        random_truth(default_cell.hidden_truth(), seed, sensor=default_cell.WRIST_SENSOR), seed)
    found = drawn.static_poses(count=6)
    return Case(seed, tuple(deviations(STATIC, seed, found, drawn.expected,
                                       static_poses.PARAMETERS[:4])), tuple(drawn.timings))


def _run_live(seeds: Sequence[int], output: Path) -> list[Case]:
    """Run the procedures of the real nodes over DDS on random cells, one after the other."""
    return [_live_case(seed, output / f'seed_{seed}') for seed in seeds]


def _live_case(seed: int, output: Path) -> Case:
    truth = random_truth(
        default_cell.hidden_truth(), seed, sensor=default_cell.WRIST_SENSOR)
    output.mkdir(parents=True, exist_ok=True)
    truth_file = output / 'truth.yaml'
    truth_file.write_text(yaml.safe_dump(truth_document(truth)), encoding='utf-8')
    OUT.print(f'Seed {seed}:')
    with open_stage(output, seed, full=True, truth_file=truth_file) as stage:
        outcomes = PayloadTour().run(stage)
    found = []
    for outcome in outcomes:
        if outcome.result is None:
            raise RobocalError(f'Seed {seed}, {outcome.title}: {outcome.message}')
        series, names = _SERIES[outcome.result.method]
        found += deviations(series, seed, outcome.result, outcome.truth, names)
    return Case(seed, tuple(found), ())


def figures(cases: Sequence[Case]) -> list[Figure]:
    """Return errors and computation times over all cases."""
    found = [item for case in cases for item in case.deviations]
    rows = [row for series, bars in BARS.items() for row in error_figures(found, series, bars)]
    timings = [item for case in cases for item in case.timings]
    for method in dict.fromkeys(item.method for item in timings):
        taken = [1e3 * item.taken for item in timings if item.method == method]
        speed = [item.recorded / item.taken for item in timings if item.method == method]
        rows.append(Figure(method, 'time', 'ms', float(np.median(taken)),
                           max(taken)))
        rows.append(Figure(method, 'speed', '× real time',
                           float(np.median(speed)), min(speed)))
    excited = [case.excitation for case in cases if case.excitation is not None]
    handed = [case.handover for case in cases if case.handover is not None]
    return [*rows, *(excitation.figures(excited) if excited else ()),
            *(handover.figures(handed) if handed else ())]


class PayloadBenchmark(Benchmark):
    """Every method on random cells, drive gains, and the efficiency of excitation."""

    title = 'Payload'
    about = (
        'Random tools, joints, biases and noise of the default arm, simulated with drives and '
        'controller; static poses, two planes, excitation, drive gains, identified friction.')
    seeds, live_seeds = 3, 3

    def run(self, request: Request) -> Outcome:
        """Run the benchmark; see `Benchmark.run`."""
        if request.live:
            cases = _run_live(request.seeds, request.output)
        elif request.quick:
            cases = [_quick_case(seed) for seed in request.seeds]
        else:
            cases = in_parallel(run_case, request.seeds, request.jobs, 'payload')
        found = [item for case in cases for item in case.deviations]
        return Outcome(figures(cases), cases, shares(found))


BENCHMARK = PayloadBenchmark()
