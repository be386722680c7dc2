# SPDX-License-Identifier: Apache-2.0
"""Accuracy on the reference cell: random tools, joints, biases and noise of the default arm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.benchmark import Benchmark, Figure, Outcome, Request, in_parallel
from benchmarks.offline_bag import WRENCH, Record, write_record
from benchmarks.second_cell import COM, INERTIA, OWN, STEP, Load, estimated, record_of, script
from benchmarks.second_world import Recorded
from demo import default_cell
from robocal_ros.results import CalibrationResult
from robocal_ros.robot import friction_by_joint
from robocal_sim.friction import LuGreFriction
from robocal_sim.model import read_description
from robocal_sim.prescribed import Motion, measure
from robocal_sim.truth import FrictionTruth, HiddenTruth, JointTruth, ToolTruth

MASS, DISTANCE = (1.0, 3.0), (0.03, 0.15)
"""Ranges of the mass of tools [kg], and of the distance of their centre from the flange [m]."""

_SPEEDS = np.concatenate((np.linspace(-0.4, -0.005, 80), np.linspace(0.005, 0.4, 80)))
_SERIES = {'static_poses': 'static poses', 'wrist': 'excitation by wrist sensor',
           'two_plane': 'two planes, 2 kg, weighed', 'friction': 'friction, all joints'}


def drawn_load(generator: np.random.Generator, low: float, high: float) -> Load:
    """Draw a brick away from the arm, with its mass in a range [kg]."""
    mass = float(generator.uniform(low, high))
    direction = generator.normal(size=3)
    direction[2] = abs(direction[2])
    a, b, c = generator.uniform(0.06, 0.14, 3) ** 2
    return Load(mass, direction / np.linalg.norm(direction) * generator.uniform(*DISTANCE),
                np.diag([b + c, a + c, a + b]) * mass / 12.0)


def drawn_joint(joint: JointTruth, generator: np.random.Generator) -> JointTruth:
    """Draw friction and compliance of a joint within the ranges of the reference cell."""
    level, viscous = (float(np.mean(values)) * generator.uniform(0.7, 1.3) for values in (
        joint.friction.coulomb, joint.friction.viscous))
    breakaway = level * generator.uniform(1.5, 2.0)
    speed = float(np.mean(joint.friction.stribeck_velocity)) * generator.uniform(0.8, 1.2)
    tilt = 0.05 * float(generator.choice((-1.0, 1.0)))

    def pair(value: float) -> tuple[float, float]:
        return value * (1.0 + tilt), value * (1.0 - tilt)

    return replace(joint, friction=FrictionTruth(
        pair(level), pair(breakaway), pair(speed), pair(viscous),
        joint.friction.bristle_stiffness, joint.friction.bristle_damping),
        compliance=joint.compliance * float(10.0 ** generator.uniform(-0.3, 0.3)))


def recorded(
    what: str, *, truth: HiddenTruth | None = None, load: Load | None = None, seed: int = 1,
    **detail: Any,
) -> Record:
    """Record a procedure of the default arm, which follows its motion exactly.

    Args:
        what: The procedure; see `second_cell.script`.
        truth: Hidden truth; that of the default arm if None.
        load: What the arm carries.
        seed: Seed of noise and biases.
        detail: Parameters of the procedure that are not the default ones.

    """
    tool = None
    if load is not None:
        x, y, z = load.centre.tolist()
        xx, xy, xz, yy, yz, zz = load.inertia[np.triu_indices(3)].tolist()
        tool = ToolTruth(load.mass, (x, y, z), (xx, yy, zz, xy, xz, yz), 'tool0')
    truth = truth or default_cell.hidden_truth()
    wrist = [item for item in truth.force_torque_sensors
             if item.frame == default_cell.WRIST_SENSOR]
    position = script(OWN, 0, what, tuple(sorted(detail.items())))
    speed = np.gradient(position, STEP, axis=0)
    found = measure(
        read_description(default_cell.urdf()),
        replace(truth, tool=tool, load=None, imus=(), tracker=None,
                force_torque_sensors=tuple(wrist)), default_cell.reference_cell(),
        Motion(STEP, position, speed, np.gradient(speed, STEP, axis=0)), seed=seed, rate=500.0)
    stamps, readings = found.wrenches[default_cell.WRIST_SENSOR]
    return record_of(OWN, Recorded(100.0 + found.time, found.position, found.velocity,
                                   found.effort, 100.0 + stamps, readings))


@dataclass(frozen=True)
class Case:
    """Outcome of one method on one arm.

    Attributes:
        method: Method.
        errors: Errors by quantity with unit.
        passed: Whether the verdict is `pass`.

    """

    method: str
    errors: dict[tuple[str, str], tuple[float, ...]]
    passed: bool


def run_case(seed: int, methods: Sequence[str] = tuple(_SERIES)) -> list[Case]:
    """Carry out all methods on random arms.

    Args:
        seed: Seed of tools, joints and noise.
        methods: Methods.

    Raises:
        RobocalError: A procedure fails.

    """
    generator = np.random.default_rng([seed, 0])
    base = default_cell.hidden_truth()
    truth = replace(base, joints={
        name: drawn_joint(joint, generator) for name, joint in base.joints.items()})
    found = []
    for method in methods:
        load = drawn_load(generator, *{'wrist': (2.0, MASS[1]), 'two_plane': (2.0, 2.0)}.get(
            method, MASS))
        runs = method == 'friction'
        detail = {'method': 'excitation', 'excitation_repeats': 3} if method == 'wrist' else {}
        with TemporaryDirectory(prefix='reference_') as folder:
            bag = write_record(recorded(method, truth=truth, load=None if runs else load,
                                        seed=seed, **detail), Path(folder) / 'bag')
            result = estimated('friction' if runs else 'payload', bag, default_cell.urdf(), {
                'sensor_frame': default_cell.WRIST_SENSOR, 'sensor_topic': WRENCH,
                'gain_std': 0.002, 'results_dir': folder, 'known_mass': load.mass,
                'method': {'wrist': 'excitation', 'friction': 'runs'}.get(method, method)})
        errors = _friction(result, truth) if runs else _payload(result, load)
        found.append(Case(method, errors, result.verdict.value == 'pass'))
    return found


Errors = dict[tuple[str, str], tuple[float, ...]]
"""Errors by quantity and unit."""


def _payload(result: CalibrationResult, load: Load) -> Errors:
    truth = load.truth
    if result.method == 'two_plane':
        del truth['mass']
    known = [name for name in truth if result.parameter(name).value is not None]
    error = dict(zip(known, result.values(known) - [truth[name] for name in known], strict=True))
    found: Errors = {(f'error of {name}', 'mm'): (1e3 * abs(error[name]),) for name in COM}
    if 'mass' in error:
        found['error of mass', '%'] = 100.0 * abs(error['mass']) / load.mass,
    if INERTIA[0] in error:
        matrices = np.zeros((2, 3, 3))
        matrices[(slice(None), *np.triu_indices(3))] = [
            result.values(INERTIA).tolist(), [truth[name] for name in INERTIA]]
        stated, true = np.linalg.eigvalsh(matrices, UPLO='U')
        found['error of a principal moment', '%'] = tuple(
            (100.0 * np.abs(stated / true - 1.0)).tolist())
    return found


def _friction(result: CalibrationResult, truth: HiddenTruth) -> Errors:
    """Compare laws with the hidden steady friction over the range of speeds."""
    found: Errors = {}
    for joint, law in friction_by_joint(result).items():
        steady = LuGreFriction([truth.joints[joint].friction])
        true = np.array([steady.steady(np.array([v]), np.zeros(1))[0] for v in _SPEEDS])
        error = law.torque(_SPEEDS) - true
        found[f'curve of {joint} against the truth', '% of its RMS'] = (
            100.0 * float(np.linalg.norm(error) / np.linalg.norm(true)),)
    return found


BARS = {('static_poses', 'error of mass'): 0.5, ('wrist', 'error of a principal moment'): 5.0,
        **{('static_poses', f'error of {name}'): 0.5 for name in COM},
        **{('two_plane', f'error of {name}'): 1.0 for name in COM},
        **{('friction', f'curve of joint_{number} against the truth'): 3.0
           for number in range(1, 7)}}
"""Limits by method and quantity."""


def figures(cases: Sequence[Case]) -> list[Figure]:
    """Return the errors over all cases."""
    rows = []
    for method, series in _SERIES.items():
        own = [case for case in cases if case.method == method]
        for what, unit in dict.fromkeys(key for case in own for key in case.errors):
            rows.append(Figure.over(
                series, what, unit, [error for case in own for error in case.errors.get(
                    (what, unit), ())], BARS.get((method, what))))
    return rows


def _run(request: Request) -> Outcome:
    found = ([run_case(seed, ('static_poses',)) for seed in request.seeds] if request.quick else
             in_parallel(run_case, request.seeds, request.jobs, 'reference'))
    cases = [case for own in found for case in own]
    remarks = [f'{series}: verdict pass in {sum(passed)} of {len(passed)}.'
               for method, series in _SERIES.items()
               if (passed := [case.passed for case in cases if case.method == method])]
    return Outcome(figures(cases), [{**vars(case), 'errors': list(case.errors.items())}
                                    for case in cases], remarks)


BENCHMARK = Benchmark('Reference cell', (
    'Random tools of 1 to 3 kg, joints, biases and noise of the default arm, which follows the '
    "nodes' motions exactly; estimated from bags with default parameters."), _run, seeds=3)
