# SPDX-License-Identifier: Apache-2.0
"""Campaign on the second world: what the product says of arms that it shares nothing with.

`python -m benchmarks.second_campaign --help` runs cells, repeats those with a wrong pass without
one effect after the other, and compares two versions of the product on the same seeds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp
from time import process_time
from typing import Any

import numpy as np
import scipy

from benchmarks import second_world
from benchmarks.benchmark import (
    Benchmark,
    Figure,
    Outcome,
    Request,
    Table,
    bootstrap,
    conditions,
    in_parallel,
)
from benchmarks.page import markdown
from benchmarks.peers.methods import (
    CUTOFFS,
    at_rest,
    coulomb_viscous,
    in_motion,
    lean,
    load_dependent,
    textbook,
)
from benchmarks.peers.process import run
from benchmarks.second_bound import bounds
from benchmarks.second_cell import COM, WEIGHING_STD, Cell, record_of
from benchmarks.second_world import EFFECTS
from robocal_ros.errors import ConfigurationError, RobocalError
from robocal_ros.friction import FrictionParameters, FrictionTracker
from robocal_ros.friction.estimator import merge, select_joints
from robocal_ros.messages import JointSamples, WrenchSamples
from robocal_ros.payload import PayloadParameters
from robocal_ros.results import CalibrationResult, State
from robocal_ros.robot import (
    GRAVITY,
    RigidBodyInertia,
    carried_load,
    friction_by_joint,
    identified_model,
)

OURS = 'robocal'
Z95, Z999 = 1.959964, 3.290527
_SPEEDS = np.array([0.03, 0.1, 0.2, 0.4])
# Largest errors within the purpose where no parameter states one: share of a drive gain, and of
# the scale of tracked friction.
_GAIN_LIMIT, _TRACKED_LIMIT = 0.04, 0.1
# Largest torque that an error of a payload may cause at rest: share of effort limits, and [N·m].
_TORQUE_SHARE, _TORQUE_FLOOR = 0.01, 0.1
# Share to which the friction of a joint is defined, as its mean over a motion.
_DEFINED = 0.005


@dataclass(frozen=True)
class Value:
    """One value that a result states, beside the truth.

    Attributes:
        name: Its name.
        truth: True value.
        error: Stated minus true value.
        std: Stated standard deviation.
        z: Normal deviate as probable as the error.
        limit: Largest error within the purpose's limits.
        bound: Cramér-Rao bound of the error, of cells without effects; 0 if it is not known.

    """

    name: str
    truth: float
    error: float
    std: float
    z: float
    limit: float = np.inf
    bound: float = 0.0


@dataclass(frozen=True)
class Case:
    """One result of a method on one cell.

    Attributes:
        seed: Seed of the cell.
        method: Method.
        arm: Arm.
        effects: Strengths of the effects.
        verdict: Verdict; `refused` for an error of the product, `crashed` for any other one,
            `blocked` if what the method needs did not pass.
        reason: Reasons of a verdict other than `pass`.
        values: What the result states.
        notes: Further figures; "<quantity>: <method>" is an error of a method on the same samples.
        seconds: Processor time [s].
        rate: Rate of the joint states [Hz].

    """

    seed: int
    method: str
    arm: str
    effects: dict[str, Any]
    verdict: str
    reason: str = ''
    values: tuple[Value, ...] = ()
    notes: dict[str, float] = field(default_factory=dict)
    seconds: float = np.nan
    rate: float = np.nan

    @property
    def passed(self) -> bool:
        """Whether the verdict is `pass`."""
        return self.verdict == 'pass'

    @property
    def worst(self) -> Value:
        """The value with the largest deviate, of zero without values."""
        return max(self.values, key=lambda item: abs(item.z),
                   default=Value('', 0.0, 0.0, 0.0, 0.0))

    @property
    def wrong(self) -> bool:
        """Whether it passed with a value outside its 99.9 % interval."""
        return self.passed and abs(self.worst.z) > Z999

    @property
    def usable(self) -> bool:
        """Whether all values are within the purpose's limits."""
        return bool(self.values) and all(abs(item.error) <= item.limit for item in self.values)


def value_of(name: str, truth: float, stated: float, std: float | None, limit: float = np.inf,
             freedom: float | None = None) -> Value:
    """Return a stated value beside the truth; arguments as the attributes of `Value`."""
    error = float(stated - truth)
    z = error / std if std else np.copysign(np.inf, error) if error else 0.0
    if freedom is not None and np.isfinite(z):
        z = -float(np.sign(z) * scipy.special.ndtri(scipy.special.stdtr(freedom, -abs(z))))
    return Value(name, float(truth), error, float(std or 0.0), float(z), float(limit))


def identified(result: CalibrationResult, truth: Mapping[str, float],
               limits: Mapping[str, float]) -> list[Value]:
    """Return the identified parameters of which the truth is known."""
    return [value_of(item.name, truth[item.name], item.value, item.std,
                     limits.get(item.name, np.inf), item.freedom)
            for item in result.parameters if item.name in truth
            and item.state is State.IDENTIFIED and item.value is not None]


# ------------------------------------------------------------------------------- methods

Found = tuple[CalibrationResult, Sequence[Value], dict[str, float]]
"""A result, its values beside the truth, and further figures."""


class _NotStoredError(Exception):
    """What a method needs did not pass."""


def _needed(result: CalibrationResult) -> None:
    if result.verdict.value != 'pass':
        raise _NotStoredError(f'{result.kind}: {" ".join(result.reasons)}')


def compared_payload(
    cell: Cell, result: CalibrationResult, *, by_sensor: bool = False, **notes: float
) -> Found:
    """Compare a payload; errors are within the limits if the torques that they cause are.

    Args:
        cell: The cell.
        result: The payload.
        by_sensor: Whether a wrist sensor has measured it, beside the links distal to it. Then
            torques of both count, since both are used together.
        notes: Further figures.

    """
    truth, robot = cell.load.truth, cell.robot
    if result.method == 'two_plane':
        del truth['mass']
    low, high = robot.sampling_limits()
    q = np.random.default_rng([cell.seed, 9]).uniform(low, high, (200, robot.n))
    place = np.linalg.inv(cell.world.arm.tool)
    carried = cell.load.matrix + by_sensor * place @ cell.world.excess @ place.T
    true, stated = (robot.with_payload(body).gravity_torques(q) for body in (
        RigidBodyInertia(carried[3, 3], carried[:3, 3] / carried[3, 3], np.zeros((3, 3))),
        carried_load(result)))
    share = float((np.abs(stated - true) / np.maximum(
        _TORQUE_SHARE * robot.effort_limit, _TORQUE_FLOOR)).max())
    return result, [replace(item, limit=abs(item.error) / share if share else np.inf)
                    for item in identified(result, truth, {})], notes


def _samples(cell: Cell) -> tuple[JointSamples, WrenchSamples]:
    """Return the last recording as other methods are given it."""
    found = cell.last
    if found is None:
        raise RobocalError('Defect: nothing was recorded.')
    record = record_of(cell.name, found)
    return replace(record.joints, effort=found.effort * cell.world.constant), record.wrench


def _beside(cell: Cell, result: CalibrationResult, others: Mapping[str, Any]) -> Found:
    """Return a payload beside what other methods find from the same samples."""
    found, notes = {OURS: result.values(('mass', *COM)), **others}, {}
    for name, value in found.items():
        error = value - [cell.load.mass, *cell.load.centre]
        notes[f'mass: {name}'] = abs(float(error[0]))
        notes[f'centre of mass: {name}'] = float(np.linalg.norm(error[1:]))
    return compared_payload(cell, result, by_sensor=True, **notes)


def _static_poses(cell: Cell) -> Iterator[Found]:
    bag = cell.record('static_poses', cell.load)
    result = cell.estimate('payload', bag, method='static_poses')
    yield _beside(cell, result, at_rest(cell.robot, *_samples(cell)))


def _wrist(cell: Cell) -> Iterator[Found]:
    bag = cell.record('wrist', cell.load)
    result = cell.estimate('payload', bag, method='excitation')
    yield _beside(cell, result, in_motion(cell.robot, *_samples(cell)))


def _two_plane(cell: Cell) -> Found:
    bag = cell.record('two_plane', cell.load)
    return compared_payload(cell, cell.estimate(
        'payload', bag, method='two_plane', known_mass=cell.load.mass + cell.weighing[1],
        known_mass_std=WEIGHING_STD))


def _arm_values(cell: Cell, result: CalibrationResult) -> list[Value]:
    """Compare rotors, gains, gravity, and the torques of the links under it in some postures."""
    world, robot, n = cell.world, cell.robot, cell.robot.n
    truth = {f'{name}.{what}': float(value) for what, values in (
        ('rotor_inertia', world.rotor), ('effort_scale', world.moving_gain))
        for name, value in zip(robot.joint_names, values, strict=True) if value}
    truth |= dict(zip(GRAVITY, world.gravity.tolist(), strict=True))
    low, high = robot.sampling_limits()
    q = np.random.default_rng(cell.seed).uniform(
        np.maximum(low, -2.0), np.minimum(high, 2.0), (4, n))
    still, model = np.zeros_like(q), identified_model(robot, result)
    true, stated = second_world.torques(
        world.arm, world.links, q, still, still, model.robot.gravity
    ), model.robot.gravity_torques(q)
    std = np.linalg.norm(model.without_gains().uncertain_torques(q, still, still, still), axis=2)
    limit = PayloadParameters().unexplained_torque(robot.effort_limit)
    return identified(result, truth, {}) + [
        value_of(f'torque {k} of {robot.joint_names[j]}', true[k, j], stated[k, j], std[k, j],
                 limit[j]) for k, j in np.argwhere(std > 1e-3 * limit).tolist()]


def _predictions(cell: Cell, result: CalibrationResult) -> dict[str, float]:
    """Return errors of weights that arms predict which several methods identified bare.

    Errors are RMS over joints and random postures, over the limit of unexplained torque, apart
    from constant offsets. Other methods have the cutoff with the best prediction.
    """
    robot, arm = cell.robot, cell.world.arm
    q = np.random.default_rng([cell.seed, 8]).uniform(
        np.maximum(arm.lower, -2.0), np.minimum(arm.upper, 2.0), (40, robot.n))
    still, (samples, _) = np.zeros_like(q), _samples(cell)
    true = second_world.torques(arm, cell.world.links, q, still, still, cell.world.gravity)
    limit = PayloadParameters().unexplained_torque(robot.effort_limit)

    def error(torque: Any) -> float:
        left = (torque - true) / limit
        return float(np.sqrt(np.mean((left - left.mean(axis=0))**2)))

    given: dict[str, Any] = {
        'urdf': lean(robot.urdf, robot.joint_names), 'joints': robot.joint_names,
        'time': samples.time, 'position': samples.position, 'effort': samples.effort, 'q': q,
        'v': still, 'a': still, 'tool': robot.tool_frame}
    notes = {f'weight of the links: {OURS}': error(
        identified_model(robot, result).robot.gravity_torques(q))}
    for cutoff in (item for item in CUTOFFS if item < 0.3 * cell.rate):
        done = run('benchmarks.peers.tools:figaroh', peer=True, repeats=0, cutoff=cutoff, **given)
        *_, answer = textbook(cutoff=cutoff, weighted=True, **given)
        tried = {'weighted least squares': answer['torque']}
        if done.answer is not None:
            tried['FIGAROH'] = done.answer['torque']
        for name, torque in tried.items():
            key = f'weight of the links: {name}'
            notes[key] = float(np.nanmin([notes.get(key, np.nan), error(torque)]))
    return notes


def _chain(cell: Cell) -> Iterator[Found]:
    """Identify the arm bare and with a weighed load; then payloads by torque."""
    for load, mass, std in ((None, 0.0, 0.0), (
            cell.weighed, cell.weighed.mass + cell.weighing[0], WEIGHING_STD)):
        bag = cell.record('arm', load, arm_load=round(mass, 1))
        result = cell.estimate('arm', bag, arm_load=mass, arm_load_std=std)
        yield result, _arm_values(cell, result), {} if load else _predictions(cell, result)
        _needed(result)
    bag = cell.record('torque', cell.load)
    yield compared_payload(cell, cell.estimate(
        'payload', bag, method='excitation', excitation_source='torque'))
    yield _two_plane(cell)


def _differential(cell: Cell) -> Iterator[Found]:
    values = {'method': 'excitation', 'excitation_source': 'torque'}
    _needed(cell.estimate('payload', cell.record('torque'), reference_run='record', **values))
    bag = cell.record('torque', cell.load)
    yield compared_payload(cell, cell.estimate('payload', bag, reference_run='subtract', **values))


def _gains(cell: Cell) -> Iterator[Found]:
    """Calibrate drive gains with a weighed load, then find a centre of mass with them."""
    bag = cell.record('torque', cell.weighed)
    scale = cell.world.moving_gain
    if 'current' in cell.world.effects and cell.seed % 16 < len(METHODS):
        cell.values['effort_source'], scale = 'unknown', scale / cell.world.constant
    result = cell.estimate(
        'drive_gains', bag, known_mass=cell.weighed.mass + cell.weighing[0],
        known_mass_std=WEIGHING_STD)
    truth = {f'{name}.effort_scale': float(value) for name, value in zip(
        cell.robot.joint_names, scale, strict=True)}
    yield result, identified(result, truth, {
        name: _GAIN_LIMIT * value for name, value in truth.items()}), {}
    _needed(result)
    yield _two_plane(cell)


def compared_friction(
    cell: Cell, result: CalibrationResult, row: int | None,
    others: Mapping[str, Callable[..., Any]] | None = None, *, reported: bool = True,
) -> Iterator[Found]:
    """Compare laws with friction, reported or by drive gains; joints are accepted one by one."""
    samples, _ = _samples(cell)
    laws = friction_by_joint(result)
    for name in dict.fromkeys(item.name.split('.')[0] for item in result.parameters):
        values, notes = [], {}
        if name in laws:
            law = laws[name]
            low, high = law.speeds
            speeds = _SPEEDS[(low <= _SPEEDS) & (high >= _SPEEDS)]
            speeds = np.concatenate((speeds, -speeds))
            truth = cell.world.friction(
                cell.robot.index(name), speeds, row, reported=reported)
            limit = FrictionParameters().max_friction_interval * float(np.sqrt(np.mean(truth**2)))
            std = np.hypot(law.deviation(speeds), _DEFINED * truth)
            values = [value_of(f'{name} at {speed:+g} rad/s', true, stated, own, limit)
                      for speed, true, stated, own in zip(
                          speeds, truth, law.torque(speeds), std, strict=True)]
            notes = {f'friction: {method}': float(np.linalg.norm(torque - truth) / np.linalg.norm(
                truth)) for method, torque in {OURS: law.torque(speeds), **{
                    method: fit(cell.robot, samples, cell.robot.index(name), speeds)
                    for method, fit in (others or {}).items()}}.items()}
        yield select_joints(result, (name,)), values, notes


def _friction(cell: Cell) -> Iterator[Found]:
    """Run the first joint and another one at constant speeds."""
    first, *others = cell.robot.joint_names
    joints = [first, others[int(np.random.default_rng([cell.seed, 6]).integers(len(others)))]]
    bag = cell.record('friction', None, 250.0, measure_joints=tuple(joints))
    result = cell.estimate('friction', bag, measure_joints=joints)
    yield from compared_friction(cell, result, -1, {
        'Coulomb and viscous': coulomb_viscous, 'load-dependent (BAM-style)': load_dependent})


def _friction_motion(cell: Cell) -> Iterator[Found]:
    result = cell.estimate('friction', cell.record('torque'), method='motion')
    yield from compared_friction(cell, result, None)


def _tracking(cell: Cell) -> Iterator[Found]:
    """Identify friction of all joints, and follow it through work, a pause, and work."""
    names, world = cell.robot.joint_names, cell.world
    bag = cell.record('friction', None, 125.0, speed_count=5, min_speed=0.02)
    result = cell.estimate('friction', bag)
    merged = merge(None, result)
    if merged is None:
        _needed(result)
        return
    laws, values = friction_by_joint(merged), FrictionParameters()
    tracker = FrictionTracker(cell.robot, laws, drift=values.track_drift,
                              model_std=values.arm_model_std, tilt_std=values.tilt_std,
                              since=merged.time)
    stated = []
    # Work, a pause of an hour where friction rises in it, and work again.
    for pause, shares in ((60.0, (1.0,)), (
            3600.0 if 'cold start' in world.effects else 60.0, (0.15, 1.0))):
        shutil.rmtree(cell.record('torque', None, 125.0, pause, excitation_repeats=8,
                                  excitation_acceleration=2.0))
        if (found := cell.last) is None:
            return
        place = (found.time - found.time[0]) / np.ptp(found.time)
        for begin, share in pairwise((-1.0, *shares)):
            rows = (place > begin) & (place <= share)
            for stamp, q, effort in zip(found.time[rows].tolist(), found.position[rows],
                                        found.effort[rows] * world.constant, strict=True):
                tracker.add(stamp, q, effort)
            at = round(share * (len(world.speed) - 1))
            stated += [value_of(
                f'{name} {speed:+g} rad/s, {pause:.0f} s, {100.0 * share:.0f} %',
                world.friction(names.index(name), np.array([speed]), at)[0] / float(
                    laws[name].torque(speed)), change.scale,
                float(np.hypot(change.std, _DEFINED)), _TRACKED_LIMIT)
                for name, sides in tracker.changes().items()
                for speed, change in zip((0.2, -0.2), sides, strict=True)]
    yield merged, stated, {'false load changes': float(tracker.load_changes)}


METHODS: dict[str, tuple[Callable[[Cell], Iterator[Found]], tuple[str, ...]]] = {
    'static_poses': (_static_poses, ('static_poses',)),
    'wrist': (_wrist, ('wrist',)),
    'chain': (_chain, ('arm, bare', 'arm, weighed', 'torque', 'two_plane')),
    'differential': (_differential, ('differential',)),
    'gains': (_gains, ('gains', 'two_plane, gains')),
    'friction': (_friction, ('friction, base joint', 'friction')),
    'friction, motion': (_friction_motion, ('friction, motion',)),
    'tracking': (_tracking, ('tracking',)),
}
"""What is carried out on a cell, and the methods whose results it yields, the last repeatedly."""


def run_cell(
    seed: int, *, group: str = '', off: Collection[str] = (),
    only: Mapping[str, float] | None = None,
) -> list[Case]:
    """Carry out some methods on a cell.

    Args:
        seed: Seed of the cell, and of the methods if none are given.
        group: Key of `METHODS`.
        off: Effects to switch off.
        only: Strengths of the effects, instead of drawn ones.

    """
    carry_out, names = METHODS[group or list(METHODS)[seed % len(METHODS)]]
    effects = {name: size for name, size in second_world.drawn_effects(seed).items()
               if name not in off} if only is None else dict(only)
    folder, began = Path(mkdtemp(prefix='second_world_')), process_time()
    found: list[Case] = []
    cell = Cell(seed, effects, folder)

    def add(verdict: str, reason: str, values: Sequence[Value] = (),
            notes: Mapping[str, float] | None = None) -> None:
        taken = process_time() - began - sum(case.seconds for case in found)
        name = names[min(len(found), len(names) - 1)]
        least = {} if effects or not values else bounds(cell, name, (*_SPEEDS, *-_SPEEDS))
        found.append(Case(
            seed, name, cell.name, effects, verdict, reason[:400], tuple(
                replace(item, bound=least.get(item.name, 0.0)) for item in values),
            dict(notes or {}), taken, cell.rate))

    try:
        for result, values, notes in carry_out(cell):
            verdict = result.verdict.value
            add(verdict, '' if verdict == 'pass' else ' '.join(result.reasons), values, notes)
    except _NotStoredError as error:
        add('blocked', str(error))
    except RobocalError as error:
        add('refused', f'{type(error).__name__}: {error}')
    except Exception as error:  # noqa: BLE001 - a crash is a finding of the campaign
        add('crashed', f'{type(error).__name__}: {error}')
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    while len(found) < len(names):
        add('blocked', found[-1].reason)
    return found


# ------------------------------------------------------------------------------- figures


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else np.nan


def summary(cases: Sequence[Case]) -> dict[str, float]:
    """Return the figures of the cases of one method."""
    passed = [case for case in cases if case.passed]
    usable = [case for case in cases if case.usable]
    z, every = (np.array([item.z for case in own for item in case.values])
                for own in (passed, cases))
    quiet, full = ([case for case in cases if bool(case.effects) is some] for some in (
        False, True))
    return {
        'cases': len(cases), 'pass': len(passed),
        **{name: sum(case.verdict == name for case in cases)
           for name in ('fail', 'not_evaluated', 'refused', 'blocked', 'crashed')},
        'wrong passes': sum(case.wrong for case in cases),
        'inside 99.9 %': 100.0 * _mean(np.abs(z) <= Z999),
        'inside 95 %': 100.0 * _mean(np.abs(z) <= Z95),
        'RMS z': _mean(z**2) ** 0.5, 'RMS z, all': _mean(every**2) ** 0.5,
        'within limits': len(usable),
        'pass of these': 100.0 * _mean([case.passed for case in usable]),
        'passes beyond': sum(not case.usable for case in passed),
        'error ÷ best peer, quiet': max(against_peers(quiet).values(), default=np.nan),
        'error ÷ best peer': max(against_peers(full).values(), default=np.nan),
        'RMSE ÷ bound': _mean([(item.error / item.bound)**2 for case in cases
                               for item in case.values if item.bound]) ** 0.5,
        'false load changes': 100.0 * _mean([
            case.notes['false load changes'] > 0.0 for case in cases
            if 'false load changes' in case.notes])}


def against_peers(cases: Sequence[Case]) -> dict[str, float]:
    """Return median errors over those of the best other method on the same samples, by quantity.

    Cells that a method does not solve count for none.
    """
    errors: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for case in cases:
        for note, error in case.notes.items():
            quantity, _, method = note.partition(': ')
            if method:
                errors[quantity][method].append(error)
    found = {}
    for quantity, methods in errors.items():
        own, *others = (float(np.nanmedian(methods[name])) for name in sorted(
            methods, key=lambda name: name != OURS))
        if others:
            found[quantity] = own / min(others)
    return found


def by_method(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """Return the cases of each method."""
    return {name: own for _, names in METHODS.values() for name in names
            if (own := [case for case in cases if case.method == name])}


def tables(cases: Sequence[Case]) -> list[Table]:
    """Return figures by method, wrong passes, refusals and crashes."""
    figures = {name: summary(own) for name, own in by_method(cases).items()}
    wrong = [(case.method, str(case.seed), case.arm, f'{case.rate:g} Hz', case.worst.name,
              f'{case.worst.truth:.4g} {case.worst.error:+.2g} ± {case.worst.std:.2g}',
              case.worst.z) for case in cases if case.wrong]
    others = [(case.method, case.verdict, str(case.seed), case.reason[:160]) for case in cases
              if case.verdict in ('refused', 'crashed')]
    return [Table('Methods', ('method', *next(iter(figures.values()))),
                  [(name, *map(float, own.values())) for name, own in figures.items()]),
            Table('Wrong passes', ('method', 'seed', 'arm', 'rate', 'value',
                                   'truth, error, σ', 'z'), wrong),
            Table('Refused and crashed', ('method', 'verdict', 'seed', 'reason'), others)]


def report(cases: Sequence[Case]) -> str:
    """Return the tables in Markdown."""
    return '\n'.join(markdown(item.columns, item.rows) for item in tables(cases) if item.rows)


def comparison(old: Sequence[Case], new: Sequence[Case], draws: int = 1000) -> str:
    """Return what differs between two versions on the same seeds, with bootstrap bands."""
    rows = []
    groups = by_method(old), by_method(new)
    for name in (name for name in groups[0] if name in groups[1]):
        versions: list[dict[int, list[Case]]] = [{}, {}]
        for version, own in zip(versions, groups, strict=True):
            for case in own[name]:
                version.setdefault(case.seed, []).append(case)
        seeds = sorted(set(versions[0]) & set(versions[1]))
        chosen = np.random.default_rng(0).choice(seeds, (draws, len(seeds))).tolist()
        found = [[summary([case for seed in drawn for case in version[seed]])
                  for version in versions] for drawn in (seeds, *chosen)]
        for what in ('pass', 'wrong passes', 'inside 95 %', 'inside 99.9 %', 'RMS z',
                     'pass of these', 'false load changes'):
            steps = np.array([after[what] - before[what] for before, after in found])
            if np.isfinite(steps[0]):
                low, high = np.nanquantile(steps[1:], (0.025, 0.975))
                rows.append((name, what, str(len(seeds)), float(found[0][0][what]),
                             float(found[0][1][what]), f'{low:+.3g} … {high:+.3g}',
                             '' if low <= 0.0 <= high else 'differs'))
    return markdown(('method', 'figure', 'seeds', 'old', 'new', 'change, 95 %', ''), rows)


def blame(number: int, cases: Sequence[Case]) -> dict[str, float]:
    """Return the largest deviate of a wrong pass without each of its effects, 0 without a pass."""
    case = cases[number]
    group = next(name for name, (_, own) in METHODS.items() if case.method in own)
    sensed = group in ('static_poses', 'wrist')
    mechanics = ('links off', 'links off together', 'tilt', 'large tilt', 'sag', 'bending',
                 'zeros', 'lag', 'encoder', 'jitter', 'gaps', 'approach')
    found = {}
    for effect in case.effects:
        if effect in mechanics or sensed == effect.startswith('F/T'):
            found[effect] = max((abs(item.worst.z) for item in run_cell(
                case.seed, group=group, only={
                    name: size for name, size in case.effects.items() if name != effect})
                if item.method == case.method and item.passed
                and case.worst.name in (value.name for value in item.values)), default=0.0)
    return dict(sorted(found.items(), key=lambda item: item[1]))


# ------------------------------------------------------------------------------- command


def read_cases(path: Path) -> list[Case]:
    """Return the cases of a file; none if there is no file."""
    lines = path.read_text(encoding='utf-8').splitlines() if path.exists() else []
    return [Case(**{**case, 'values': tuple(Value(**item) for item in case['values'])})
            for line in lines for case in json.loads(line).get('cases', ())]


def campaign(seeds: Sequence[int], jobs: int, path: Path, **options: Any) -> list[Case]:
    """Run the cells that a file does not hold yet, and add them to it as they end.

    Args:
        seeds: Seeds of the cells.
        jobs: Number of parallel processes.
        path: File of lines of JSON, which an interrupted campaign is resumed from.
        options: Arguments of `run_cell`.

    Raises:
        ConfigurationError: The file holds cells that were run with other options.

    """
    known = {case.seed for case in read_cases(path)}
    told = {'options': json.loads(json.dumps(options))}
    if known and json.loads(path.read_text(encoding='utf-8').partition('\n')[0])[
            'options'] != told['options']:
        raise ConfigurationError(f'{path} holds cells of other options. Expected {told}. '
                                 'Name another file.')
    with path.open('a', encoding='utf-8') as file:
        def keep(line: Mapping[str, Any]) -> None:
            file.write(json.dumps(line) + '\n')
            file.flush()

        if not known:
            keep({**told, 'conditions': conditions()})
        in_parallel(partial(run_cell, **options), [seed for seed in seeds if seed not in known],
                    jobs, 'second world', lambda _, cases: keep(
                        {'cases': [asdict(case) for case in cases]}))
    wanted = set(seeds)
    return sorted((case for case in read_cases(path) if case.seed in wanted),
                  key=lambda case: case.seed)


def _command(options: argparse.Namespace) -> str:
    only = None if options.only is None else {
        name: float(size) for name, size in (item.split('=') for item in options.only)}
    return report(campaign(
        range(options.seed, options.seed + options.cells), options.jobs, options.output,
        group=options.group, off=list(options.off), only=only))


def _blame(options: argparse.Namespace) -> str:
    wrong = [case for case in read_cases(options.file) if case.wrong]
    found = in_parallel(partial(blame, cases=wrong), range(len(wrong)), options.jobs, 'blame')
    return markdown(('method', 'seed', 'arm', 'value', 'z', 'z without one effect'), (
        (case.method, str(case.seed), case.arm, case.worst.name, abs(case.worst.z), ', '.join(
            f'{name} {case.effects[name]:.2g}: {size:.1f}' for name, size in list(
                without.items())[:4])) for case, without in zip(wrong, found, strict=True)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, blame, or compare."""
    parser = argparse.ArgumentParser(prog='python -m benchmarks.second_campaign')
    commands = parser.add_subparsers(required=True)
    start = commands.add_parser('run', help='run or resume; the product is the one on PYTHONPATH')
    start.add_argument('--cells', type=int, default=304)
    start.add_argument('--seed', type=int, default=0, help='seed of the first cell')
    start.add_argument('--group', choices=METHODS, default='', help='methods (default: in turn)')
    start.add_argument('--off', nargs='*', default=(), choices=EFFECTS,
                       help='without these effects')
    start.add_argument('--only', nargs='*', metavar='EFFECT=STRENGTH',
                       help='with these effects, or none, instead of drawn ones')
    start.add_argument('-o', '--output', type=Path, default=Path('second_world.jsonl'),
                       help='file that is written, or resumed (default: %(default)s)')
    again = commands.add_parser('blame', help='repeat wrong passes without each of their effects')
    again.add_argument('file', type=Path)
    compare = commands.add_parser('compare', help='compare two versions on the same seeds')
    compare.add_argument('old', type=Path)
    compare.add_argument('new', type=Path)
    for command, do in ((start, _command), (again, _blame), (compare, lambda options: comparison(
            read_cases(options.old), read_cases(options.new)))):
        command.add_argument('--jobs', type=int, default=2)
        command.set_defaults(do=do)
    options = parser.parse_args(arguments)
    sys.stdout.write(options.do(options))


# ---------------------------------------------------------------------------------- page

_PASSES = {'static_poses': 90.0, 'wrist': 90.0, 'torque': 75.0, 'two_plane': 75.0,
           'differential': 75.0, 'two_plane, gains': 75.0}
"""Least percent of the cells with values within the purpose's limits that pass, by method."""

_PRIORS = 'Prior widths of errors that are not there cost accuracy.'


def figures(cases: Sequence[Case]) -> list[Figure]:
    """Return the figures with limits, and bands over cells."""
    rows = []

    def add(series: str, what: str, unit: str, own: Sequence[Case], bar: float | None,
            value: Callable[[Sequence[Case]], float], *, at_least: bool = False,
            reason: str = '') -> None:
        found = value(own)
        if np.isfinite(found):
            rows.append(Figure.single(series, what, unit, found, bar, at_least=at_least,
                                      reason=reason, band=bootstrap(lambda numbers: value(
                                          [own[number] for number in numbers]), len(own), 200)))

    add('all methods', 'values of passes inside 99.9 %', '%', cases, 99.8,
        lambda own: summary(own)['inside 99.9 %'], at_least=True)
    add('all methods', 'values of passes inside 95 %, off 95 %', '%', cases, 2.0,
        lambda own: abs(summary(own)['inside 95 %'] - 95.0))
    for name, own in by_method(cases).items():
        quiet, full = ([case for case in own if bool(case.effects) is some]
                       for some in (False, True))
        add(name, 'values of passes with effects inside 99.9 %', '%', full, 99.8,
            lambda own: summary(own)['inside 99.9 %'], at_least=True)
        add(name, 'values of passes with effects inside 95 %, off 95 %', '%', full, 2.0,
            lambda own: abs(summary(own)['inside 95 %'] - 95.0))
        add(name, 'RMS z of passes with effects, off 1', '1', full, 0.2,
            lambda own: abs(summary(own)['RMS z'] - 1.0))
        add(name, 'passes of the cells within the limits', '%', full, _PASSES.get(name),
            lambda own: summary(own)['pass of these'], at_least=True)
        for words, some, bar in (('without effects', quiet, 1.05), ('with effects', full, 0.9)):
            for quantity in against_peers(some):
                def ratio(own: Sequence[Case], quantity: str = quantity) -> float:
                    return against_peers(own).get(quantity, np.nan)

                add(name, f'{quantity}, {words}: median error ÷ that of the best peer', '1', some,
                    bar, ratio, reason=_PRIORS if some is quiet else '')
        add(name, 'RMSE ÷ Cramér-Rao bound without effects', '1', quiet, 1.1,
            lambda own: summary(own)['RMSE ÷ bound'], reason=_PRIORS)
    return rows


def _run(request: Request) -> Outcome:
    """Run the cells with drawn effects, and as many without any."""
    cases = [case for name, only in (('', None), ('_quiet', {})) for case in campaign(
        request.seeds, request.jobs, request.output / f'campaign{name}.jsonl', only=only)]
    return Outcome(figures(cases), cases, tables=[item for item in tables(cases) if item.rows])


BENCHMARK = Benchmark('Campaign', (
    'Arms of a second simulation, which shares nothing with simulator and estimators, with drawn '
    'effects ([simulated arm](simulated-arm.md#campaign)), and as many cells without any; methods '
    'and arms take turns. Motions are those of the nodes, estimates those of `robocal estimate` '
    'with default parameters. A wrong pass has a value outside its 99.9 % interval; limits are '
    'those of the purpose. Errors of peers are those of the best other method on the same '
    'samples, the bound that of the noise alone, with biases, friction, rotors and, of identified '
    'arms, links unknown.'), _run, seeds=320)

if __name__ == '__main__':
    main()
