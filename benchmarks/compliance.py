# SPDX-License-Identifier: Apache-2.0
"""Benchmark of joint compliance calibration on the default arm: statics in the postures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import xacro

from benchmarks.benchmark import Benchmark, Outcome, Request, in_parallel
from benchmarks.figures import Figure, bootstrap
from benchmarks.reference import drawn_load
from demo import default_cell
from demo.compliance import compliance_truth
from robocal_ros.arrays import Array
from robocal_ros.compliance import ComplianceParameters
from robocal_ros.compliance.estimator import estimate_sets
from robocal_ros.compliance.measurement import HELD_OUT_EVERY, EndPosition, average
from robocal_ros.compliance.model import Load, Target, given_load, predicted
from robocal_ros.compliance.plan import plan_postures
from robocal_ros.errors import DataError
from robocal_ros.messages import TrackerSamples
from robocal_ros.resources import share_directory
from robocal_ros.robot import CollisionChecker, Robot
from robocal_sim.drive import DEADBAND
from robocal_sim.model import read_description
from robocal_sim.physics import ArmPhysics
from robocal_sim.sensors import TrackerSensor
from robocal_sim.truth import Cell, HiddenTruth, JointNoise, ToolTruth, TrackerTruth

UPRIGHT, WALLED = 'upright', 'on a 30° wall'
MOUNTS = {UPRIGHT: '0 0 0', WALLED: '0 0.5235987755982988 0'}
"""Roll, pitch, yaw of the base [rad]."""
NOISE = 'upright, noise of the tracker alone'
WITHIN_BAR, SAG_BAR = 95.0, 95.0
"""Percent of cases, and of the sag."""

_MASS, _SMALL = 10.0, 0.05


def tracker_of(truth: HiddenTruth) -> TrackerTruth:
    """Return the tracker of a truth.

    Raises:
        DataError: The truth has no tracker.

    """
    if truth.tracker is None:
        raise DataError('The hidden truth has no tracker. Add one to the truth file.')
    return truth.tracker


def drawn_truth(seed: int) -> HiddenTruth:
    """Draw a tool, and the centre of mass of a load of 10 kg, for the default arm."""
    generator, base = np.random.default_rng([seed, 5]), default_cell.hidden_truth()
    tool = drawn_load(generator, 1.0, 3.0)
    angle = generator.uniform(-np.pi, np.pi)
    x, y = 0.08 * generator.uniform(0.5, 1.0) * np.array([np.cos(angle), np.sin(angle)])
    z = float(generator.uniform(0.06, 0.15))
    a, b, c = np.diag(tool.inertia).tolist()
    return replace(base, force_torque_sensors=(), imus=(), tool=ToolTruth(
        tool.mass, tuple(tool.centre.tolist()), (a, b, c, 0.0, 0.0, 0.0), 'flange'),
        load=ToolTruth(_MASS, (float(x), float(y), z), (0.03, 0.03, 0.02, 0.0, 0.0, 0.0),
                       'flange'))


@dataclass(frozen=True)
class Known:
    """Knowledge of a user: rigid arm, load, target and tracker position."""

    urdf: str
    robot: Robot
    load: Load
    values: ComplianceParameters

    @classmethod
    def of(cls, truth: HiddenTruth, mount: str = UPRIGHT) -> Known:
        """Return the knowledge of a cell with the base mounted as named in ``MOUNTS``."""
        path = share_directory() / 'urdf' / 'robocal_arm.urdf.xacro'
        urdf: str = xacro.process_file(
            str(path), mappings={'mount_rpy': MOUNTS[mount]}).toxml()
        tracker, load = tracker_of(truth), truth.load
        if load is None:
            raise DataError('The hidden truth has no load. Add one to the truth file.')
        return cls(urdf, Robot(urdf), given_load(load.mass, load.centre_of_mass, 'flange'),
                   ComplianceParameters(
                       target_frame=tracker.target_link, target_xyz=list(tracker.target_xyz),
                       target_axis=list(tracker.target_axis), tracker_position=list(tracker.xyz),
                       visibility_angle=tracker.visibility_angle))

    def postures(self, seed: int = 0) -> Array:
        """Plan the postures from the zero posture, shape (30, n) [rad]."""
        return plan_postures(
            self.robot, self.load.on(self.robot), CollisionChecker(self.robot.copy()),
            np.zeros(self.robot.n), self.values, seed=seed)


class ArmAtRest:
    """An arm that takes a posture immediately: statics, encoders and tracker without motion."""

    def __init__(self, known: Known, truth: HiddenTruth, cell: Cell, seed: int) -> None:
        """Create the arm.

        Args:
            known: Knowledge of the user.
            truth: Hidden truth.
            cell: Noise of encoders and tracker.
            seed: Seed of the noise.

        """
        self._generator = np.random.default_rng([seed, 11])
        self.physics = ArmPhysics(read_description(known.urdf), truth)
        self._tracker = TrackerSensor(cell.tracker, tracker_of(truth),
                                      np.random.default_rng([seed, 12]))
        self._link, self._values = tracker_of(truth).target_link, known.values
        self._step = cell.joint_states.position_quantisation
        self._period, self._time = 1.0 / cell.tracker.rate, 0.0

    def visit(self, posture: Array) -> EndPosition:
        """Return the measurement in a posture, shape (n,) [rad]."""
        reached = posture.copy()
        if self._step:
            # Drives do not correct errors within their deadband.
            reached = posture + self._generator.uniform(-DEADBAND, DEADBAND, len(posture))
        self.physics.rest_in(reached)
        shown = np.round(reached / self._step) * self._step if self._step else reached
        pose = self.physics.link_pose(self._link)
        stamps: Array = self._time + self._period * np.arange(
            round(self._values.dwell / self._period), dtype=np.float64)
        points = [p for p in (self._tracker.measure(*pose) for _ in stamps) if p is not None]
        self._time += self._values.settle + self._values.dwell
        return average(shown, TrackerSamples(
            'tracker', stamps[:len(points)], np.array(points).reshape(-1, 3)))

    def both_sets(self, postures: Array) -> tuple[list[EndPosition], list[EndPosition]]:
        """Return the measurements in all postures without the load, then with it."""
        unloaded = [self.visit(q) for q in postures]
        self.physics.attach_load()
        return unloaded, [self.visit(q) for q in postures]


@dataclass(frozen=True)
class Case:
    """Outcome of one calibration.

    Attributes:
        series: How the arm is mounted.
        errors: Errors of the identified compliances over the truth, by joint.
        std: Their standard deviations over the truth.
        bound: Cramér-Rao bounds over the truth; empty if they are not known.
        removed: Share of the sag that is removed on held-out postures [%].
        passed: Whether the verdict is `pass`.

    """

    series: str
    errors: dict[str, float]
    std: dict[str, float]
    bound: dict[str, float]
    removed: float
    passed: bool


def run_case(seed: int, series: Sequence[str]) -> list[Case]:
    """Calibrate one arm for each series; errors as of `RobocalError`.

    Args:
        seed: Seed of tool, load, postures and noise.
        series: Some of ``MOUNTS`` and ``NOISE``.

    """
    truth, found = drawn_truth(seed), []
    for name in series:
        known, cell = Known.of(truth, UPRIGHT if name == NOISE else name), (
            default_cell.reference_cell())
        if name == NOISE:
            cell = replace(cell, joint_states=JointNoise())
        postures = known.postures(seed)
        result = estimate_sets(known.robot, *ArmAtRest(known, truth, cell, seed).both_sets(
            postures), known.load, known.values)
        hidden, (sag,) = compliance_truth(truth, result), result.validation
        bound = _bound(known, truth, postures, cell) if name == NOISE else {}
        found.append(Case(
            name, {item: result.values([item])[0] / value - 1.0 for item, value in hidden.items()},
            {item: (result.parameter(item).std or np.nan) / value
             for item, value in hidden.items()}, bound,
            100.0 * (1.0 - sag.after / sag.before), result.verdict.value == 'pass'))
    return found


def _bound(known: Known, truth: HiddenTruth, postures: Array, cell: Cell) -> dict[str, float]:
    """Return the bounds over the compliances; the pose of the tracker counts as known."""
    fitted = postures[np.arange(1, len(postures) + 1) % HELD_OUT_EVERY != 0]
    loaded, target = known.load.on(known.robot), Target.of(known.robot, known.values)
    names = known.robot.joint_names
    vector = np.array([truth.joints[name].compliance for name in names])
    slopes = np.column_stack([np.concatenate([
        (predicted(known.robot, loaded, target, q, q, vector + step)[0]
         - predicted(known.robot, loaded, target, q, q, vector - step)[0]) / 0.02
        for q in fitted]) for step in np.diag(1e-2 * vector)])
    size = np.linalg.norm(slopes, axis=0)
    seen = size > 1e-6 * size.max()
    readings = known.values.dwell * cell.tracker.rate
    noise = cell.tracker.position_sigma * np.sqrt(2.0 / readings)
    std = noise * np.sqrt(np.diag(np.linalg.inv(slopes[:, seen].T @ slopes[:, seen])))
    return dict(zip((f'{name}.compliance' for name, there in zip(names, seen, strict=True)
                     if there), std.tolist(), strict=True))


def figures(cases: Sequence[Case]) -> Iterator[Figure]:
    """Yield the figures of the cases of one series."""
    series = cases[0].series
    sharp = [abs(error) <= 2.0 * case.std[name] for case in cases
             for name, error in case.errors.items() if case.std[name] < _SMALL]
    yield Figure.share(series, 'joints with std below 5 %: within 2 σ', sum(sharp), len(sharp),
                       WITHIN_BAR)
    yield Figure.over(series, 'sag removed on held-out postures', '%',
                      [case.removed for case in cases], SAG_BAR, at_least=True)
    for name in cases[0].bound:
        def ratio(numbers: Sequence[int], name: str = name) -> float:
            return float(np.sqrt(np.mean([
                (cases[number].errors.get(name, 0.0) / cases[number].bound[name])**2
                for number in numbers])))

        yield Figure.single(series, f'RMSE of {name} ÷ Cramér-Rao bound', '1',
                            ratio(range(len(cases))), 1.1, band=bootstrap(ratio, len(cases)))


def _run(request: Request) -> Outcome:
    every = in_parallel(partial(run_case, series=(*MOUNTS, NOISE)), request.seeds, request.jobs,
                        'compliance')
    rows: list[Figure] = []
    remarks = []
    for number, name in enumerate((*MOUNTS, NOISE)):
        cases = [own[number] for own in every]
        rows += figures(cases)
        remarks.append(f'{name}: verdict pass in {sum(case.passed for case in cases)} of '
                       f'{len(cases)}; the first joint is identified in '
                       f'{sum("joint_1.compliance" in case.errors for case in cases)}.')
    return Outcome(rows, [case for own in every for case in own], remarks)


BENCHMARK = Benchmark('Compliance', (
    'Default arms with random tools, 10 kg and a tracker: statics in 30 postures. Without other '
    'noise than that of the tracker, errors are compared with the bound.'), _run, seeds=200)
