# SPDX-License-Identifier: Apache-2.0
"""Benchmark of leveling from random tilted postures; refusals are verified by a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from time import perf_counter

import numpy as np

from benchmarks import foreign_arms
from benchmarks.arm import InProcessArm
from benchmarks.benchmark import Benchmark, Outcome, Request, in_parallel
from benchmarks.figures import Figure
from benchmarks.leveling_search import Chain, SecondOpinion, Turn
from demo import default_cell
from robocal_ros.arrays import Array
from robocal_ros.errors import RobocalError
from robocal_ros.leveling import LevelingParameters, LevelingPlanner, LevelPlan, Tool, tilt
from robocal_ros.leveling.estimator import check_level
from robocal_ros.leveling.model import level_targets
from robocal_ros.leveling.plan import LevelingRefusal
from robocal_ros.robot import (
    MotionLimits,
    RigidBodyInertia,
    Robot,
    SagCorrection,
    connect,
    quintic_path,
)

TILT_BAR, DRIFT_BAR, TIME_BAR, TRUE_BAR = 0.05, 0.5, 50.0, 95.0
"""Limits of tilt [°], drift [mm], planning time [ms] and confirmed refusals [%]."""

# Defaults of the node.
_SETTINGS = LevelingParameters()
_VELOCITY, _ACCELERATION = 1.0, 2.0
_UP = np.array([0.0, 0.0, 1.0])
_LEAST_TILT = np.radians(1.0)
_SIMULATED, _VERIFIED = 5, 12
_CONFIRMED = 0.25
_REST = 0.3
_COMPLIANCE_ERROR, _MASS_ERROR = 0.05, 0.01


@dataclass(frozen=True)
class Attempt:
    """Outcome of planning from one posture of one arm.

    Attributes:
        arm: Name of the arm.
        start_tilt: Tilt at the start [rad].
        solved: True if a motion was found.
        planning: Planning time [s].
        tilt: Tilt at the end of the motion [rad].
        drift: Largest drift of the tool point, also between trajectory points, both on the
            controller's splines and on straight lines in joint space [m].
        step: Largest joint step between two points [rad].
        share: Reached share of the path.
        obstacle: Obstacle of a refused attempt; else empty.
        reason: Message of the refusal.

    """

    arm: str
    start_tilt: float
    solved: bool
    planning: float
    tilt: float = 0.0
    drift: float = 0.0
    step: float = 0.0
    share: float = 1.0
    obstacle: str = ''
    reason: str = ''


@dataclass(frozen=True)
class Opinion:
    """Verification of an attempt by search.

    Attributes:
        arm: Name of the arm.
        solved: True if the planner found a motion.
        share: Largest share of the path that any chain of solutions reaches.

    """

    arm: str
    solved: bool
    share: float


@dataclass(frozen=True)
class Case:
    """Outcome of one seed."""

    seed: int
    attempts: tuple[Attempt, ...]


@cache
def planner_of(name: str) -> LevelingPlanner:
    """Return the planner of an arm; each process makes it once."""
    item = foreign_arms.arm(name)
    robot = item.robot
    limits = MotionLimits(
        robot.joint_names, robot.lower, robot.upper,
        np.minimum(robot.velocity_limit, _VELOCITY), np.full(robot.n, _ACCELERATION))
    return LevelingPlanner(Tool(robot), _UP, limits, _SETTINGS, item.checker)


def tilted_posture(name: str, seed: int) -> Array:
    """Draw a posture with a tilted tool, free of collision and singularity, shape (n,) [rad].

    Args:
        name: Name of the arm.
        seed: Seed of the draw.

    """
    item, planner = foreign_arms.arm(name), planner_of(name)
    generator = np.random.default_rng([seed, item.robot.n])
    lower, upper = item.robot.sampling_limits()
    while True:
        q = generator.uniform(lower, upper)
        rotation, _, jacobian = planner.tool.pose_and_jacobian(q)
        if (tilt(rotation, _UP, 'nearest') > _LEAST_TILT and item.checker.is_free(q)
                and planner.tool.least_singular_value(jacobian) > _SETTINGS.singularity_margin):
            return q


def attempt(name: str, seed: int) -> Attempt:
    """Plan from one random posture."""
    planner = planner_of(name)
    start = tilted_posture(name, seed)
    before = tilt(planner.tool.pose(start)[0], _UP, 'nearest')
    began = perf_counter()
    try:
        plan = planner.plan(start)
    except LevelingRefusal as refusal:
        found = refusal.refusal
        return Attempt(name, before, False, perf_counter() - began, share=found.share,
                       obstacle=found.obstacle.value, reason=found.sentence)
    taken = perf_counter() - began
    return replace(_judged(name, plan), start_tilt=before, planning=taken)


def _judged(name: str, plan: LevelPlan) -> Attempt:
    """Evaluate a plan with forward kinematics independent of the planner."""
    robot = foreign_arms.arm(name).robot
    trajectory, task = plan.trajectory, plan.task
    if trajectory is None or task is None:
        raise RobocalError(f'Defect: the planner considers a tilted {name} level.')
    knots = trajectory.position
    on_splines = trajectory.sample(trajectory.dense())[0]
    on_lines = np.concatenate([knots[:-1] + part * np.diff(knots, axis=0)
                               for part in (0.25, 0.5, 0.75)])
    chain = Chain(robot.urdf, robot.tool_frame)
    held = chain.poses(trajectory.start[None])[1][0]
    points = chain.poses(np.concatenate((on_splines, on_lines)))[1]
    rotation = chain.poses(trajectory.goal[None])[0][0]
    return Attempt(
        name, plan.tilt, True, 0.0, tilt(rotation, _UP, 'nearest'),
        float(np.linalg.norm(points - held, axis=1).max()),
        float(np.abs(np.diff(knots, axis=0)).max()))


def run_case(seed: int) -> Case:
    """Plan from one random posture of every arm."""
    return Case(seed, tuple(attempt(name, seed) for name in foreign_arms.names()))


@dataclass(frozen=True)
class Judge:
    """Verifies selected attempts by search.

    Attributes:
        wanted: By seed, pairs of arm name and whether the planner found a motion.

    """

    wanted: dict[int, tuple[tuple[str, bool], ...]]

    def __call__(self, seed: int) -> tuple[Opinion, ...]:
        """Verify the selected attempts of a seed."""
        return tuple(Opinion(name, solved, self._share(name, seed))
                     for name, solved in self.wanted[seed])

    @staticmethod
    def _share(name: str, seed: int) -> float:
        planner = planner_of(name)
        start = tilted_posture(name, seed)
        rotation, point = planner.tool.pose(start)
        turn = level_targets(rotation, _UP)[0].turn
        angle = float(np.linalg.norm(turn))
        opinion = SecondOpinion(foreign_arms.arm(name), _SETTINGS.singularity_margin,
                                planner.tool.length, seed)
        return opinion.reached(start, Turn(rotation, point, turn / angle, angle))


def wanted_opinions(
    cases: Sequence[Case], most: int
) -> dict[int, tuple[tuple[str, bool], ...]]:
    """Select attempts to verify: refused ones, and some solved ones.

    Args:
        cases: All cases.
        most: Maximum of refused attempts per arm; of solved ones, a quarter as many.

    """
    counts: dict[tuple[str, bool], int] = {}
    wanted: dict[int, tuple[tuple[str, bool], ...]] = {}
    for case in cases:
        chosen = []
        for item in case.attempts:
            key = (item.arm, item.solved)
            if counts.get(key, 0) < (_CONFIRMED * most if item.solved else most):
                counts[key] = counts.get(key, 0) + 1
                chosen.append(key)
        if chosen:
            wanted[case.seed] = tuple(chosen)
    return wanted


class _WatchedArm(InProcessArm):
    """The simulated arm with the true pose of its flange at every control step."""

    def __init__(self, seed: int) -> None:
        truth = replace(default_cell.hidden_truth(), imus=(), tracker=None)
        truth = replace(truth, force_torque_sensors=truth.force_torque_sensors[:1])
        self.frames: list[tuple[Array, Array]] = []
        super().__init__(default_cell.urdf(), truth, default_cell.reference_cell(), seed)

    def _step(self) -> None:
        super()._step()
        self.frames.append(self._simulator.physics.link_pose('flange'))


@dataclass(frozen=True)
class Motion:
    """True and measured outcome of one simulated leveling motion.

    Attributes:
        seed: Seed of the posture.
        tilt: True final tilt of the flange [rad].
        drift: True final drift of its origin [m].
        drift_in_motion: Largest true drift during the motion [m].
        measured: Verification from the joint states: tilt [rad], final drift and largest drift
            during the motion [m].

    """

    seed: int
    tilt: float
    drift: float
    drift_in_motion: float
    measured: tuple[float, float, float]


def identified_sag(robot: Robot, seed: int) -> SagCorrection:
    """Return the sag by compliances and a payload that are known like identified ones.

    Compliances have errors of 5 % and the mass one of 1 % (standard deviations); joints that are
    rigid in the truth are known to be.
    """
    truth, generator = default_cell.hidden_truth(), np.random.default_rng(seed)
    tool = truth.tool
    if tool is None:
        raise RobocalError('Defect: the default cell has no tool.')
    body = default_cell.rigid_body(tool)
    mass = body.mass * (1.0 + _MASS_ERROR * generator.standard_normal())
    return SagCorrection(
        robot, robot.with_payload(RigidBodyInertia(mass, body.com, body.inertia),
                                  tool.parent or robot.tool_frame),
        {name: item.compliance * (1.0 + _COMPLIANCE_ERROR * generator.standard_normal())
         for name, item in truth.joints.items()})


def simulated(seeds: Sequence[int], most: int) -> list[Motion]:
    """Level the simulated arm, with friction, sag and noise, from random postures.

    The links are leveled, by identified compliances and payload.

    Args:
        seeds: Seeds of the postures; those without a plan or a path to them are skipped.
        most: Maximum number of motions.

    """
    planner, item = planner_of(foreign_arms.OWN), foreign_arms.arm(foreign_arms.OWN)
    arm, sag = _WatchedArm(1), identified_sag(item.robot, 1)
    found: list[Motion] = []
    for seed in seeds:
        goal = tilted_posture(foreign_arms.OWN, seed)
        try:
            planner.plan(goal)
            path = connect(item.robot, item.checker, arm.posture, goal)
        except RobocalError:
            continue
        arm.move(quintic_path(path, planner.limits.velocity, planner.limits.acceleration))
        arm.dwell(_REST)
        found.append(_leveled(arm, planner, sag, seed))
        if len(found) == most:
            break
    return found


def _leveled(
    arm: _WatchedArm, planner: LevelingPlanner, sag: SagCorrection, seed: int
) -> Motion:
    plan = planner.plan(sag.link_angles(arm.posture))
    if plan.trajectory is None or plan.task is None:
        raise RobocalError('Defect: the planner considers a tilted arm level.')
    arm.take_samples()
    begin = arm.frames[-1][1]
    arm.frames.clear()
    arm.move(sag.corrected(plan.trajectory))
    way = np.array([sag.link_angles(q) for q in arm.take_samples()[0].position])
    arm.dwell(_REST)
    rest = arm.take_samples()[0].position.mean(axis=0)
    check = check_level(plan.task, _UP, way, sag.link_angles(rest)[None])
    drifts = np.linalg.norm(np.array([point for _, point in arm.frames]) - begin, axis=1)
    return Motion(seed, tilt(arm.frames[-1][0], _UP, 'nearest'), float(drifts[-1]),
                  float(drifts.max()), (check.tilt, check.drift, check.drift_in_motion))


def figures(cases: Sequence[Case], opinions: Sequence[Opinion]) -> list[Figure]:
    """Return all figures with their limits."""
    found = []
    for name in dict.fromkeys(item.arm for case in cases for item in case.attempts):
        own = [item for case in cases for item in case.attempts if item.arm == name]
        found += _arm_figures(name, own, [item for item in opinions if item.arm == name])
    return found


def _arm_figures(
    name: str, attempts: Sequence[Attempt], opinions: Sequence[Opinion]
) -> list[Figure]:
    def figure(what: str, unit: str, values: Sequence[float], bar: float | None) -> Figure:
        return Figure(name, what, unit, float(np.median(values)), float(np.max(values)), bar)

    solved = [item for item in attempts if item.solved]
    found = []
    if solved:
        found += [
            figure('residual tilt', '°', [np.degrees(item.tilt) for item in solved], TILT_BAR),
            figure('drift, all along the way', 'mm', [1e3 * item.drift for item in solved],
                   DRIFT_BAR),
            figure('joint step between points', 'rad', [item.step for item in solved],
                   _SETTINGS.max_step),
        ]
    times = [1e3 * item.planning for item in attempts]
    middle = float(np.median(times))
    found += [
        Figure(name, 'planning, median of all', 'ms', middle, middle, TIME_BAR),
        figure('planning', 'ms', times, None),
        _share(name, 'solved', [item.solved for item in attempts], None),
    ]
    refused = [item.share < 1.0 for item in opinions if not item.solved]
    confirmed = [item.share == 1.0 for item in opinions if item.solved]
    if refused:
        found.append(_share(name, 'confirmed refusals', refused, TRUE_BAR))
    if confirmed:
        found.append(_share(name, 'solved, confirmed by the search', confirmed, None))
    return found


def _share(name: str, what: str, values: Sequence[bool], bar: float | None) -> Figure:
    share = 100.0 * float(np.mean(values))
    return Figure(name, f'{what}, of {len(values)}', '%', share, share, bar, at_least=True)


def _simulated_figures(motions: Sequence[Motion]) -> list[Figure]:
    if not motions:
        return []
    measured = f'{foreign_arms.OWN}, simulated, {len(motions)} motions, by the joint states'
    series = f'{foreign_arms.OWN}, simulated, {len(motions)} motions'
    seen = np.array([motion.measured for motion in motions])
    return [
        Figure(measured, 'residual tilt', '°', *_both(np.degrees(seen[:, 0])), TILT_BAR),
        Figure(measured, 'drift at the end', 'mm', *_both(1e3 * seen[:, 1]), DRIFT_BAR),
        Figure(measured, 'drift, all along the way', 'mm', *_both(1e3 * seen[:, 2]), DRIFT_BAR),
        Figure(series, 'true tilt, with the sag of the joints', '°',
               *_both(np.degrees([motion.tilt for motion in motions])), TILT_BAR),
        Figure(series, 'true drift at the end', 'mm',
               *_both(1e3 * np.array([motion.drift for motion in motions])), DRIFT_BAR),
        Figure(series, 'true drift, all along the way', 'mm',
               *_both(1e3 * np.array([motion.drift_in_motion for motion in motions])), DRIFT_BAR),
    ]


def _both(values: Array) -> tuple[float, float]:
    return float(np.median(values)), float(values.max())


def _remarks(cases: Sequence[Case]) -> list[str]:
    """Return a sentence per arm with the number and reasons of the refusals."""
    sentences = []
    for name in dict.fromkeys(item.arm for case in cases for item in case.attempts):
        own = [item for case in cases for item in case.attempts
               if item.arm == name and not item.solved]
        kinds = {kind: sum(item.obstacle == kind for item in own)
                 for kind in dict.fromkeys(item.obstacle for item in own)}
        counted = ', '.join(f'{count} for {kind}' for kind, count in kinds.items())
        sentences.append(f'{name}: refused {len(own)} of {len(cases)} ({counted or "none"}).')
    return sentences


class LevelingBenchmark(Benchmark):
    """Random tilted postures of every available arm, and some motions of the simulated arm."""

    title = 'Leveling'
    about = (
        'Plans from random tilted postures of each arm, refusals verified by a search, and '
        'motions of the simulated default arm with friction, sag and noise.')
    seeds = 250
    quick_seeds = 2

    def run(self, request: Request) -> Outcome:
        """Run the benchmark; see `Benchmark.run`."""
        cases = in_parallel(run_case, request.seeds, request.jobs, 'leveling')
        if request.quick:
            return Outcome(figures(cases, ()), cases, _remarks(cases))
        wanted = wanted_opinions(cases, _VERIFIED)
        judged = in_parallel(Judge(wanted), tuple(wanted), request.jobs, 'verification')
        opinions = [item for found in judged for item in found]
        motions = simulated(request.seeds, _SIMULATED)
        return Outcome([*figures(cases, opinions), *_simulated_figures(motions)],
                       [*cases, *opinions, *motions], _remarks(cases))


BENCHMARK = LevelingBenchmark()
