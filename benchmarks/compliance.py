# SPDX-License-Identifier: Apache-2.0
"""Benchmark of joint compliance calibration: accuracy, efficiency, choice of postures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.benchmark import Benchmark, Outcome, Request, in_parallel
from benchmarks.compliance_arm import WALL, ArmAtRest, Known, MovedArm, both_sets, drawn_truth
from benchmarks.figures import Deviation, Figure, deviations, shares
from benchmarks.repetitions import Repetitions
from demo import default_cell
from demo.compliance import compliance_truth
from robocal_ros.arrays import Array
from robocal_ros.compliance.estimator import estimate_sets
from robocal_ros.compliance.fit import fit_compliance
from robocal_ros.compliance.measurement import HELD_OUT_EVERY, displacements
from robocal_ros.compliance.model import Target, predicted, target_motion
from robocal_ros.compliance.plan import feasible_postures, information_block
from robocal_ros.compliance.registration import Registration
from robocal_ros.results import CalibrationResult
from robocal_ros.robot import CollisionChecker
from robocal_sim.sensors import rotation_from_rpy
from robocal_sim.truth import Cell, HiddenTruth, JointNoise

UPRIGHT, WALLED = 'compliance, 10 kg, upright', 'compliance, 10 kg, on a 30° wall'
DRAWN = 'compliance, 10 kg, upright, random joints'
MOVED = 'compliance, 10 kg, upright, simulated motion'
LIMIT, PLANNING = 'compliance, random noise alone', 'compliance, choice of postures'
WITHIN_BAR, SAG_BAR = 95.0, 95.0
"""Percent of cases, and of the sag."""
SMALL = 0.05
"""Relative standard deviation below which a joint counts for the first limit."""

_DRAWS = 50
# An RMSE over 200 repetitions has a standard deviation of 5 %, so five times as many are made.
_TIMES = 5


@dataclass(frozen=True)
class Case:
    """Outcome of one seed.

    Attributes:
        seed: The seed.
        deviations: Deviations of all identified joints.
        removed: Share of the sag that is removed on held-out postures [%].
        first_joint: True if the first joint was identified.

    """

    seed: int
    deviations: tuple[Deviation, ...]
    removed: float
    first_joint: bool


def _case(
    series: str, seed: int, truth: HiddenTruth, known: Known, arm: ArmAtRest | MovedArm
) -> Case:
    unloaded, loaded = both_sets(arm, known.postures(seed), known.values)
    result = estimate_sets(known.robot, unloaded, loaded, known.load, known.values)
    hidden = compliance_truth(truth, result)
    sag, = result.validation
    return Case(seed, tuple(deviations(series, seed, result, hidden, list(hidden))),
                100.0 * (1.0 - sag.after / sag.before), _has_first_joint(result))


def _has_first_joint(result: CalibrationResult) -> bool:
    return result.parameters[0].value is not None


def run_resting(seed: int) -> tuple[Case, ...]:
    """Calibrate without simulating motion: upright, on a wall, and with random joints.

    Args:
        seed: Seed of tool, load, postures, noise, and of the random joints.

    Raises:
        RobocalError: A calibration fails.

    """
    truth, other = drawn_truth(seed), drawn_truth(seed, joints=True)
    cell = default_cell.reference_cell()
    return tuple(
        _case(series, seed, hidden, known, ArmAtRest(known, hidden, cell, seed))
        for series, hidden, known in (
            (UPRIGHT, truth, Known.of(truth)), (WALLED, truth, Known.of(truth, WALL)),
            (DRAWN, other, Known.of(other))))


def run_moved(seed: int) -> Case:
    """Calibrate an arm whose motion is simulated; arguments as of `run_resting`."""
    truth = drawn_truth(seed)
    known = Known.of(truth)
    return _case(MOVED, seed, truth, known,
                 MovedArm(known, truth, default_cell.reference_cell(), seed))


def figures(cases: Sequence[Case]) -> list[Figure]:
    """Return the share of errors within 2 σ and the removed sag over the cases of one series."""
    found = [item for case in cases for item in case.deviations]
    series = found[0].series
    # Relative to the truth: relative to the estimate, large estimates would be preferred.
    sharp = [item for item in found if item.std and item.std < SMALL * item.truth]
    rows = []
    for joint in dict.fromkeys(item.parameter for item in sharp):
        own = [abs(item.error) <= 2.0 * (item.std or 0.0) for item in sharp
               if item.parameter == joint]
        share = 100.0 * float(np.mean(own))
        rows.append(Figure(series, f'{joint} within 2 σ, {len(own)} cases', '%', share, share))
    share = 100.0 * float(np.mean([abs(i.error) <= 2.0 * (i.std or 0.0) for i in sharp]))
    # No limit for simulated motion: a share of four arms is not significant.
    bar = WITHIN_BAR if series != MOVED else None
    rows.append(Figure(series, f'joints with std below 5 %: within 2 σ, {len(sharp)} cases', '%',
                       share, share, bar, at_least=True))
    removed = [case.removed for case in cases]
    rows.append(Figure(series, 'sag removed on held-out postures', '%',
                       float(np.median(removed)), min(removed),
                       # Stiff joints hardly sag: there the noise of the validation dominates.
                       None if series == DRAWN else SAG_BAR, at_least=True))
    return rows


def _with_tracker_noise_only(cell: Cell) -> Cell:
    """Return a cell with noise of the tracker only."""
    return replace(cell, joint_states=JointNoise())


def efficiency(repetitions: int) -> Repetitions:
    """Return repetitions with random noise alone.

    The default arm with 10 kg, encoders without quantization, known tracker pose.

    Args:
        repetitions: Number of repetitions; five times as many are made.

    """
    truth = drawn_truth(0)
    known = Known.of(truth)
    cell = default_cell.reference_cell()
    postures = known.postures()
    tracker = truth.tracker
    rotation = rotation_from_rpy(*tracker.rpy) if tracker else np.eye(3)
    origin = np.array(tracker.xyz if tracker else (0.0, 0.0, 0.0))
    registration = Registration(rotation, origin, np.zeros(3), 'least_squares')
    names = known.robot.joint_names
    vector = np.array([truth.joints[name].compliance for name in names])
    loaded, target = known.load.on(known.robot), Target.of(known.robot, known.values)
    readings = known.values.dwell * cell.tracker.rate
    bound = _bound(known, postures, vector, cell.tracker.position_sigma * np.sqrt(2.0 / readings))
    seen = np.isfinite(bound)
    errors, stated = [], []
    for repetition in range(_TIMES * repetitions):
        arm = ArmAtRest(known, truth, _with_tracker_noise_only(cell), 10_000 + repetition)
        data = displacements(*both_sets(arm, postures, known.values), registration, names,
                             known.values, target_motion(known.robot, target, rotation))
        fit = fit_compliance(known.robot, loaded, target, data.rows(~data.held_out))
        errors.append((fit.value - vector)[seen])
        stated.append(fit.std()[seen])
    joints = [name for name, there in zip(names, seen, strict=True) if there]
    return Repetitions(LIMIT, joints, np.array(errors), np.array(stated), bound[seen])


def _bound(known: Known, postures: Array, vector: Array, std: float) -> Array:
    """Return the bound's standard deviations by central differences, shape (n,).

    They are infinite for unobservable joints.
    """
    fitted = postures[np.arange(1, len(postures) + 1) % HELD_OUT_EVERY != 0]
    loaded, target = known.load.on(known.robot), Target.of(known.robot, known.values)

    def moved(compliance: Array) -> Array:
        return np.concatenate([
            predicted(known.robot, loaded, target, q, q, compliance)[0] for q in fitted])

    slopes = np.column_stack([
        (moved(vector + step) - moved(vector - step)) / (2.0 * step.sum())
        for step in np.diag(1e-2 * vector)])
    size = np.linalg.norm(slopes, axis=0)
    seen = size > 1e-6 * size.max()
    bound = np.full(len(vector), np.inf)
    scaled = slopes[:, seen] / size[seen]
    bound[seen] = std * np.sqrt(np.diag(np.linalg.inv(scaled.T @ scaled))) / size[seen]
    return bound


def relative_deviations(blocks: Array, compliance: Array, std: float) -> Array:
    """Predict the relative standard deviation of each compliance.

    Args:
        blocks: Information blocks of the measured postures, shape (k, 3, n) [N·m²].
        compliance: Assumed compliances, shape (n,) [rad/(N·m)].
        std: Standard deviation of each coordinate of a displacement [m].

    Returns:
        Relative standard deviations, shape (n,); infinite for unobservable joints.

    """
    columns = blocks.reshape(-1, blocks.shape[2])
    size = np.linalg.norm(columns, axis=0)
    seen = size > 1e-9 * max(float(size.max()), 1e-30)
    deviation = np.full(len(size), np.inf)
    scaled = columns[:, seen] / size[seen]
    variance = np.diag(np.linalg.pinv(scaled.T @ scaled)) / size[seen] ** 2
    deviation[seen] = std * np.sqrt(variance) / compliance[seen]
    return deviation


def planning() -> list[Figure]:
    """Return the advantage of planned postures over 50 draws of random feasible postures."""
    truth = drawn_truth(0)
    known = Known.of(truth)
    loaded, target = known.load.on(known.robot), Target.of(known.robot, known.values)
    vector = np.array([truth.joints[name].compliance for name in known.robot.joint_names])
    postures = known.postures()
    fitted = postures[np.arange(1, len(postures) + 1) % HELD_OUT_EVERY != 0]
    pool = feasible_postures(
        known.robot, loaded, CollisionChecker(known.robot.copy()), np.zeros(known.robot.n),
        known.values, 400, seed=1)

    def worst(chosen: Array) -> float:
        blocks = np.array([information_block(known.robot, loaded, q, target) for q in chosen])
        found = relative_deviations(blocks, vector, 1e-5)
        return float(found[np.isfinite(found)].max())

    generator = np.random.default_rng(0)
    ratios = [worst(pool[generator.choice(len(pool), len(fitted), replace=False)])
              / worst(fitted) for _ in range(_DRAWS)]
    return [Figure(
        PLANNING, f'worst relative standard deviation, random over planned, {_DRAWS} draws', '1',
        float(np.median(ratios)), min(ratios), 1.0, at_least=True)]


class ComplianceBenchmark(Benchmark):
    """Random arms with 10 kg: statics in the postures, a few of them with simulated motion."""

    title = 'Compliance'
    about = 'Random arms with 10 kg and a tracker: statics in the postures, or simulated motion.'
    seeds = 200
    moved = 2
    """Number of arms with simulated motion, which takes half a minute each."""

    def run(self, request: Request) -> Outcome:
        """Run the benchmark; see `Benchmark.run`."""
        resting = in_parallel(run_resting, request.seeds, request.jobs, 'compliance')
        upright, wall, drawn = (list(series) for series in zip(*resting, strict=True))
        moved = [] if request.quick else in_parallel(
            run_moved, request.seeds[:self.moved], request.jobs, 'compliance, moved')
        cases = [*upright, *wall, *drawn, *moved]
        found = [item for case in cases for item in case.deviations]
        first = [sum(case.first_joint for case in series) for series in (upright, wall)]
        return Outcome(
            [*(figure for series in (upright, wall, drawn, moved) if series
               for figure in figures(series)),
             *planning()], cases,
            [*shares(found),
             f'The first joint is identified in {first[0]} of {len(upright)} upright arms and in '
             f'{first[1]} of {len(wall)} on a wall.'])


BENCHMARK = ComplianceBenchmark()
