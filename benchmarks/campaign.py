# SPDX-License-Identifier: Apache-2.0
"""Campaign over random adversarial cells: coverage of results that pass, and reasons of fails.

Cells alternate between one effect, which shows its own consequence, and several. A parameter of
friction is the law's torque at a speed, because hidden laws need not have the identified form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import scipy

from benchmarks.adversarial_cell import EFFECTS, AdversarialCell, arm, draw
from benchmarks.benchmark import Benchmark, Outcome, Request, in_parallel
from benchmarks.excitation import expected
from benchmarks.figures import Figure
from robocal_ros.arrays import Array
from robocal_ros.errors import RobocalError
from robocal_ros.estimation import check_contents
from robocal_ros.friction import FrictionParameters, estimate as estimate_friction
from robocal_ros.friction.plan import plan_runs
from robocal_ros.messages import Recording
from robocal_ros.payload import (
    PayloadParameters,
    arm_identification,
    drive_gain_regression,
    excitation,
    plan,
    static_poses,
    two_plane,
)
from robocal_ros.payload.model import PARAMETERS, body_regressor, torque_regressor
from robocal_ros.payload.result import COM
from robocal_ros.results import CalibrationResult, State, Verdict
from robocal_ros.robot import (
    ArmModel,
    Lspb,
    MotionLimits,
    RigidBodyInertia,
    Robot,
    Trajectory,
    effort_scale,
    friction_by_joint,
    identified_model,
    relative_covariance,
    urdf_model,
)

COVERAGE_BAR, OFF_95_BAR, PASS_BAR = 99.8, 2.0, 80.0
"""Percent of parameters within 99.9 % intervals, percent off 95 %, percent of cells that pass."""

OUT_OF_SCOPE: dict[str, frozenset[str]] = {
    'static_poses': frozenset(),
    'two_plane': frozenset({'efforts without gravity'}),
    'excitation by wrist': frozenset(),
    'excitation by torque': frozenset({'efforts without gravity'}),
    # Scales have to be calibrated before.
    'excitation by torque, differential': frozenset({'efforts without gravity', 'effort scales'}),
    'gains': frozenset({'efforts without gravity'}),
    'friction': frozenset({'efforts without gravity'}),
}
"""Effects that a method does not claim to handle with the settings used here."""

_Z95, Z999 = 1.959964, 3.290527
_VALUES = PayloadParameters(method='excitation')
_FRICTION = FrictionParameters(min_speed=0.01, max_cruise=3.0)
_GUESS, _SWEEP_SPEED, _ACCELERATION = 2.0, 0.25, 2.0
# Load with which the arm is identified [kg].
_WEIGHED = 2.5
_SPEEDS = np.array([0.05, 0.2, 0.4])
_SENSOR_SCALE_STD = 0.002


@dataclass(frozen=True)
class Error:
    """Error of one parameter.

    Attributes:
        parameter: Name.
        truth: True value.
        error: Identified minus true value.
        std: Standard deviation.
        freedom: Its degrees of freedom; None if it is known.

    """

    parameter: str
    truth: float
    error: float
    std: float | None
    freedom: float | None = None

    @property
    def ratio(self) -> float:
        """Normal deviate as probable as the error; infinite without a standard deviation."""
        if not self.std:
            return np.inf
        ratio = abs(self.error) / self.std
        if self.freedom is None:
            return ratio
        return -float(scipy.special.ndtri(scipy.special.stdtr(self.freedom, -ratio)))


@dataclass(frozen=True)
class Case:
    """Result of one method on one cell.

    Attributes:
        seed: Seed of the cell.
        method: Method.
        arm: Name of the arm.
        rate: Rate of the joint states [Hz].
        effects: Magnitudes of the effects.
        single: Whether the cell was drawn with one effect.
        verdict: Verdict, or `refused` if the estimator raised an error.
        reasons: Reasons of a verdict other than `pass`.
        errors: Errors of the parameters.
        seconds: Processor time of cell and estimate [s].

    """

    seed: int
    method: str
    arm: str
    rate: float
    effects: dict[str, float]
    single: bool
    verdict: str
    reasons: tuple[str, ...]
    errors: tuple[Error, ...]
    seconds: float

    @property
    def in_scope(self) -> bool:
        """True if the method claims to handle all effects of the cell."""
        return not OUT_OF_SCOPE[self.method] & set(self.effects)

    @property
    def wrong_pass(self) -> bool:
        """True if it passed with a parameter outside its 99.9 % interval."""
        return self.verdict == 'pass' and any(item.ratio > Z999 for item in self.errors)


# ---------------------------------------------------------------------------- methods


class _NotStoredError(Exception):
    """The arm that a method needs did not pass, so that nodes would not store it."""

    def __init__(self, result: CalibrationResult) -> None:
        super().__init__(result.verdict.value)
        self.result = result


Found = tuple[CalibrationResult, Sequence[Error]]


@cache
def static_postures(name: str, home: tuple[float, ...], count: int = 14) -> Array:
    """Return the postures of an arm for the wrist sensor, shape (count, n) [rad]."""
    chosen = arm(name)
    return plan.plan_static_poses(chosen.robot, chosen.checker, np.array(home),
                                  sensor_frame=chosen.sensor, count=count)


@cache
def _two_plane_plan(name: str, home: tuple[float, ...]) -> plan.TwoPlanePlan:
    chosen = arm(name)
    return plan.plan_two_plane(chosen.robot, chosen.checker, np.array(home), mass=_GUESS)


@cache
def exciting_motion(name: str, home: tuple[float, ...], by_wrench: bool) -> Trajectory:
    """Return an exciting motion of an arm, for the wrist sensor or for joint torques."""
    chosen = arm(name)
    robot = chosen.robot

    def rows(robot: Robot, q: Array, v: Array, a: Array) -> Array:
        return body_regressor(robot, chosen.sensor, q, v, a)

    limits = MotionLimits(robot.joint_names, robot.lower, robot.upper, robot.velocity_limit,
                          np.full(robot.n, _VALUES.excitation_acceleration))
    guess = RigidBodyInertia(_GUESS, np.zeros(3), np.zeros((3, 3)))
    return plan.plan_excitation(robot.with_payload(guess), chosen.checker, limits,
                                np.array(home), rows if by_wrench else torque_regressor, _VALUES)


def place(cell: AdversarialCell) -> tuple[str, tuple[float, ...]]:
    """Return the name of the arm, and the posture about which its motions are planned."""
    return cell.arm.name, tuple(cell.home.tolist())


def _errors(
    result: CalibrationResult, truth: dict[str, float], names: Iterable[str]
) -> list[Error]:
    """Compare the identified ones of some parameters with the truth."""
    found = []
    for name in names:
        item = result.parameter(name)
        if item.state is State.IDENTIFIED and item.value is not None:
            found.append(Error(name, truth[name], item.value - truth[name], item.std,
                               item.freedom))
    return found


def _payload_errors(cell: AdversarialCell, result: CalibrationResult, count: int) -> list[Error]:
    return _errors(result, expected(cell.tool, cell.arm.robot), PARAMETERS[:count])


def _static_poses(cell: AdversarialCell) -> Found:
    postures = static_postures(*place(cell), cell.poses)
    stops = [Trajectory(np.array([0.0, 0.5]), np.stack((q, q)), np.zeros((2, len(q))))
             for q in postures]
    joints, sensor = cell.record(stops)
    result = static_poses.estimate(
        cell.arm.robot, joints, sensor,
        PayloadParameters(method='static_poses', sensor_frame=cell.arm.sensor))
    return result, _payload_errors(cell, result, 4)


def two_plane_motions(cell: AdversarialCell) -> list[Trajectory]:
    """Return the planned sweeps of a cell's arm."""
    motions = []
    for sweep in _two_plane_plan(*place(cell)).sweeps:
        speed = min(_SWEEP_SPEED, 0.9 * float(cell.arm.robot.velocity_limit[sweep.joint]))
        middle = 0.5 * (sweep.low + sweep.high)
        half = 0.5 * cell.sweep_share * (sweep.high - sweep.low)
        for start, goal in ((middle - half, middle + half), (middle + half, middle - half)):
            segment = Lspb.with_acceleration(start, goal, speed, _ACCELERATION)
            motions.append(segment.trajectory(sweep.posture, sweep.joint))
    return motions


def _two_plane(cell: AdversarialCell) -> Found:
    model, scale = _identified_arm(cell)
    joints, _ = cell.record(two_plane_motions(cell), rest=0.3)
    joints = replace(joints, effort=joints.effort / scale)
    values = PayloadParameters(known_mass=cell.tool.mass)
    check_contents(joints, cell.arm.robot, values.effort_contains, values.min_weight_share,
                   values.known_mass)
    result = two_plane.estimate(model.robot, joints, values, arm=model)
    return result, _errors(result, expected(cell.tool, cell.arm.robot), COM)


def _excitation(cell: AdversarialCell, values: PayloadParameters, *,
                by_wrench: bool = False, differential: bool = False) -> Found:
    robot, motion = cell.arm.robot, exciting_motion(*place(cell), by_wrench)
    values = replace(values, sensor_frame=cell.arm.sensor)
    reference = None
    if differential:
        joints, _ = cell.record([motion], tool=False)
        check_contents(joints, robot, values.effort_contains, values.min_weight_share)
        reference = excitation.estimate(
            robot, joints, replace(values, reference_run='record'))
        values = replace(values, reference_run='subtract')
    joints, sensor = cell.record([motion])
    result = excitation.estimate(
        robot, joints, values, sensor=sensor if by_wrench else None,
        reference=reference, arm=urdf_model(robot, values.arm_model_std, relative_covariance(
            robot, None, values.gain_std)))
    return result, _payload_errors(cell, result, 10)


def _gain_std(cell: AdversarialCell) -> float:
    """Return what an owner states, who knows whether the arm has joint torque sensors."""
    return _VALUES.gain_std if 'effort scales' in cell.effects else _SENSOR_SCALE_STD


def _identified_arm(cell: AdversarialCell) -> tuple[ArmModel, Array]:
    """Identify the arm without load and with a weighed one; return it with its effort scales."""
    robot, motion = cell.arm.robot, exciting_motion(*place(cell), False)

    def identified(before: CalibrationResult | None) -> CalibrationResult:
        loaded = before is not None
        joints, _ = replace(cell, tool=replace(cell.tool, mass=_WEIGHED)).record(
            [motion], tool=loaded)
        check_contents(joints, robot, _VALUES.effort_contains, _VALUES.min_weight_share)
        scale = effort_scale(robot, before)
        result = arm_identification.estimate(
            robot, replace(joints, effort=joints.effort / scale),
            replace(_VALUES, arm_load=_WEIGHED if loaded else 0.0), scale=scale,
            scale_covariance=relative_covariance(robot, before, _gain_std(cell)), before=before)
        if result.verdict is not Verdict.PASS:
            raise _NotStoredError(result)
        return result

    found = identified(identified(None))
    return identified_model(robot, found), effort_scale(robot, found)


def _by_torque(cell: AdversarialCell) -> Found:
    model, scale = _identified_arm(cell)
    joints, _ = cell.record([exciting_motion(*place(cell), False)])
    result = excitation.estimate(
        model.robot, replace(joints, effort=joints.effort / scale),
        replace(_VALUES, excitation_source='torque'), arm=model)
    return result, _payload_errors(cell, result, 10)


def _differential(cell: AdversarialCell) -> Found:
    values = replace(_VALUES, excitation_source='torque', gain_std=_gain_std(cell))
    return _excitation(cell, values, differential=True)


def _by_wrist(cell: AdversarialCell) -> Found:
    return _excitation(cell, _VALUES, by_wrench=True)


def _gains(cell: AdversarialCell) -> Found:
    joints, _ = cell.record([exciting_motion(*place(cell), False)])
    check_contents(joints, cell.arm.robot, _VALUES.effort_contains, _VALUES.min_weight_share,
                   cell.tool.mass)
    result = drive_gain_regression.estimate(
        cell.arm.robot, joints, replace(_VALUES, known_mass=cell.tool.mass))
    truth = {f'{name}.effort_scale': joint.effort_scale
             for name, joint in cell.truth.joints.items()}
    return result, _errors(result, truth, truth)


def _friction(cell: AdversarialCell) -> Found:
    chosen = cell.arm
    xx, yy, zz, xy, xz, yz = cell.tool.inertia
    robot = chosen.robot.with_payload(RigidBodyInertia(
        cell.tool.mass, np.array(cell.tool.centre_of_mass),
        np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])))
    joint = int(np.random.default_rng([cell.seed, 8]).integers(robot.n))
    runs = plan_runs(chosen.robot, chosen.checker, cell.home, joint, _FRICTION)
    joints, _ = cell.record([run.trajectory() for run in runs], rest=0.3)
    name = robot.joint_names[joint]
    result = estimate_friction(robot, Recording(joints), replace(
        _FRICTION, measure_joints=[name]))
    return result, _friction_errors(cell, result, joint)


def _friction_errors(
    cell: AdversarialCell, result: CalibrationResult, joint: int
) -> list[Error]:
    """Compare the identified law with the hidden one at some speeds, in the effort's units."""
    name = cell.arm.robot.joint_names[joint]
    law = friction_by_joint(result).get(name)
    if law is None:
        return []
    highest = min(_FRICTION.max_speed, 0.5 * float(cell.arm.robot.velocity_limit[joint]))
    speeds = np.concatenate((_SPEEDS, -_SPEEDS)) * highest / _FRICTION.max_speed
    scale = cell.truth.joints[name].effort_scale
    truth = scale * cell.friction_torque(joint, speeds, law.reference_load / scale)
    return [Error(f'torque at {speed:+.2f} rad/s', float(t), float(value - t), float(std))
            for speed, t, value, std in zip(
                speeds, truth, law.torque(speeds), law.deviation(speeds), strict=True)]


METHODS: dict[str, tuple[str, Callable[[AdversarialCell], Found]]] = {
    'static_poses': ('wrench', _static_poses),
    'two_plane': ('effort', _two_plane),
    'excitation by wrist': ('wrench', _by_wrist),
    'excitation by torque': ('effort', _by_torque),
    'excitation by torque, differential': ('effort', _differential),
    'gains': ('effort', _gains),
    'friction': ('effort', _friction),
}
"""What each method reads, and how it is carried out."""


def run_case(seed: int) -> Case:
    """Carry out one method on one cell; both follow from the seed."""
    method = list(METHODS)[seed % len(METHODS)]
    single = seed // len(METHODS) % 2 == 0
    return carried_out(method, draw(seed, METHODS[method][0], single=single), single=single)


def carried_out(method: str, cell: AdversarialCell, *, single: bool = False) -> Case:
    """Carry out a method on a cell."""
    began = process_time()
    errors: Sequence[Error] = ()
    try:
        result, errors = METHODS[method][1](cell)
        verdict = result.verdict.value
        reasons = () if verdict == 'pass' else result.reasons
    except _NotStoredError as error:
        verdict = error.result.verdict.value
        reasons = tuple(f'Arm: {reason}' for reason in error.result.reasons)
    except RobocalError as error:
        verdict, reasons = 'refused', (f'{type(error).__name__}: {error}',)
    except Exception as error:  # noqa: BLE001 - a crash is a finding of the campaign
        verdict, reasons = 'crashed', (f'{type(error).__name__}: {error}',)
    return Case(cell.seed, method, cell.arm.name, cell.rate, cell.effects, single, verdict,
                tuple(reasons), tuple(errors), process_time() - began)


# ----------------------------------------------------------------------------- report


def inside(cases: Iterable[Case], limit: float) -> tuple[int, int]:
    """Return how many parameters of passed cases are within their interval, and how many are."""
    ratios = [item.ratio for case in cases if case.verdict == 'pass' for item in case.errors]
    return sum(ratio <= limit for ratio in ratios), len(ratios)


def _percent(part: int, whole: int) -> str:
    return f'{100.0 * part / whole:.1f} %' if whole else '–'


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    return [f'| {" | ".join(head)} |', f'|{"---|" * len(head)}',
            *(f'| {" | ".join(str(item) for item in row)} |' for row in rows), '']


def _method_rows(cases: Sequence[Case]) -> Iterable[Sequence[object]]:
    for method in METHODS:
        own = [case for case in cases if case.method == method]
        scope = [case for case in own if case.in_scope]
        verdicts = [sum(case.verdict == word for case in own)
                    for word in ('pass', 'fail', 'not_evaluated', 'refused', 'crashed')]
        yield (method, len(own), *verdicts,
               _percent(sum(case.verdict == 'pass' for case in scope), len(scope)),
               sum(case.wrong_pass for case in own),
               _percent(*inside(own, _Z95)), _percent(*inside(own, Z999)))


def _effect_rows(cases: Sequence[Case]) -> Iterable[Sequence[object]]:
    """Yield, for cells of one effect, passes / wrong passes / cells of each method."""
    for effect in ('none', *EFFECTS):
        row: list[object] = [effect]
        for method in METHODS:
            own = [case for case in cases if case.method == method and (
                list(case.effects) == [effect] if effect != 'none' else not case.effects)]
            row.append(f'{sum(case.verdict == "pass" for case in own)} / '
                       f'{sum(case.wrong_pass for case in own)} / {len(own)}' if own else '')
        if any(row[1:]):
            yield row


def _shared_effect_rows(cases: Sequence[Case]) -> Iterable[Sequence[object]]:
    """Yield, over all cells, how often passes with an effect are wrong, and without it."""
    passed = [case for case in cases if case.verdict == 'pass']
    for effect in EFFECTS:
        groups = [[case for case in passed if (effect in case.effects) is there]
                  for there in (True, False)]
        if groups[0]:
            yield (effect, len(groups[0]), *(_percent(
                sum(case.wrong_pass for case in group), len(group)) for group in groups))


def _kind(reason: str) -> str:
    """Return a reason without its figures and names."""
    text = re.sub(r"'[^']*'", '…', reason)
    text = re.sub(r'[-+]?\d+(\.\d+)?(e[-+]?\d+)?', '#', text)
    return text[:110]


def _reason_rows(cases: Sequence[Case]) -> Iterable[Sequence[object]]:
    kinds: dict[tuple[str, str, str], list[tuple[Case, str]]] = {}
    for case in cases:
        if case.verdict != 'pass' and case.reasons:
            reason = case.reasons[0].replace('|', '/')
            kinds.setdefault((case.method, case.verdict, _kind(reason)), []).append(
                (case, reason))
    for (method, verdict, _), found in sorted(kinds.items(), key=lambda item: -len(item[1])):
        case, reason = found[0]
        yield method, verdict, len(found), _effects(case), case.seed, reason[:220]


def _effects(case: Case) -> str:
    return ', '.join(f'{name} {size:.3g} {EFFECTS[name].unit}'.strip()
                     for name, size in case.effects.items()) or 'none'


def _wrong_rows(cases: Sequence[Case]) -> Iterable[Sequence[object]]:
    for case in cases:
        if case.wrong_pass:
            worst = max(case.errors, key=lambda item: item.ratio)
            yield (case.method, case.seed, case.arm, f'{case.rate:g} Hz', _effects(case),
                   f'{worst.parameter}: {worst.truth:.4g} off by {worst.error:+.2g} at σ '
                   f'{worst.std or 0.0:.2g} ({worst.ratio:.1f} σ)')


def report(cases: Sequence[Case]) -> str:
    """Return all tables as Markdown."""
    lines = [
        f'# Campaign: {len(cases)} cells, seeds {cases[0].seed} to {cases[-1].seed}', '',
        f'Processor time per cell: median {np.median([c.seconds for c in cases]):.1f} s, '
        f'largest {max(c.seconds for c in cases):.1f} s.', '',
        '## Methods', '',
        'A wrong pass has a parameter outside its 99.9 % interval. Shares inside intervals are '
        'of all parameters of cells that pass.', '',
        *_table(('method', 'cells', 'pass', 'fail', 'not evaluated', 'refused', 'crashed',
                 'pass in scope', 'wrong passes', 'inside 95 %', 'inside 99.9 %'),
                _method_rows(cases)),
        '## Cells with one effect: passes / wrong passes / cells', '',
        *_table(('effect', *METHODS), _effect_rows(cases)),
        '## All cells that pass: share of wrong ones', '',
        *_table(('effect', 'passes with it', 'wrong with it', 'wrong without it'),
                _shared_effect_rows(cases)),
        '## Reasons of other verdicts, with one example each', '',
        *_table(('method', 'verdict', 'cells', 'effects of the example', 'seed', 'first reason'),
                _reason_rows(cases)),
        '## Wrong passes', '',
        *_table(('method', 'seed', 'arm', 'rate', 'effects', 'worst parameter'),
                _wrong_rows(cases)),
    ]
    return '\n'.join(lines)


def figures(cases: Sequence[Case]) -> list[Figure]:
    """Return the three figures that have bars."""
    rows = []
    wide, count = inside(cases, Z999)
    narrow, _ = inside(cases, _Z95)
    scope = [case for case in cases if case.in_scope]
    passed = sum(case.verdict == 'pass' for case in scope)
    for what, value, bar, at_least in (
        ('parameters that pass inside their 99.9 % interval', 100.0 * wide / max(count, 1),
         COVERAGE_BAR, True),
        ('the same inside the 95 % interval, off 95 %',
         abs(100.0 * narrow / max(count, 1) - 95.0), OFF_95_BAR, False),
        ('cells in scope that pass', 100.0 * passed / max(len(scope), 1), PASS_BAR, True),
    ):
        rows.append(Figure('adversarial cells', what, '%', value, value, bar, at_least))
    return rows


class CampaignBenchmark(Benchmark):
    """Every method on adversarial cells; writes the tables to `campaign.md`."""

    title = 'Campaign'
    about = 'Every method on random cells; see [simulated-arm.md](simulated-arm.md#campaign).'
    seeds = 504

    def run(self, request: Request) -> Outcome:
        """Measure; see the base class."""
        cases: list[Any] = in_parallel(run_case, request.seeds, request.jobs, 'campaign')
        path = Path(request.output) / 'campaign.md'
        path.write_text(report(cases), encoding='utf-8')
        return Outcome(figures(cases), cases, (f'Tables: {path}',))


BENCHMARK = CampaignBenchmark()
