# SPDX-License-Identifier: Apache-2.0
"""`robocal calibrate` on arms of the second world: does its plan reach what was asked for?

Planner, previews and estimators are the product's. Hands and motions are simulated, and nodes are
called without ROS.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.benchmark import Benchmark, Figure, Outcome, Request, in_parallel
from benchmarks.prediction import ForeseenCell
from benchmarks.second_campaign import (
    Case,
    compared_friction,
    compared_payload,
    identified,
)
from benchmarks.second_cell import STEP, WEIGHING_STD, parameters, script, urdf_of
from benchmarks.second_world import drawn_effects
from robocal_ros import registry
from robocal_ros.cli import calibrate
from robocal_ros.cli.console import OUT
from robocal_ros.errors import RobocalError
from robocal_ros.friction import FrictionParameters
from robocal_ros.friction.estimator import merge
from robocal_ros.payload import PayloadParameters
from robocal_ros.payload.estimator import expected_text, refused_text
from robocal_ros.results import CalibrationResult
from robocal_ros.robot import make_store

ROBOTS = ('UR5', 'UR3', 'Z1')
"""Arms; the first two are in no other benchmark."""

PURPOSES = ('gravity', 'gravity,contact')
"""What the calibrations are for."""

_BAR = 80.0
_TABLES = {'payload_identification': PayloadParameters,
           'friction_identification': FrictionParameters}
# Rate to which joint states are thinned for runs at constant speeds [Hz].
_SLOW_RATE = 250.0


class _Node:
    """A node by the side of the guide: parameters, previews and runs."""

    def __init__(self, cell: ForeseenCell, name: str, mounted: Callable[[], bool],
                 cases: list[Case]) -> None:
        self._cell, self._mounted, self._cases = cell, mounted, cases
        self._values = asdict(parameters(_TABLES[name], cell.values))
        self._by_verb = {item.verb: item.kind for item in registry.procedures().values()
                         if item.node == name and item.verb}

    def parameters(self, names: Iterable[str]) -> dict[str, Any]:
        return {name: self._values[name] for name in names if name in self._values}

    def set_parameters(self, values: Mapping[str, Any]) -> None:
        self._values |= values

    def make_active(self, values: Mapping[str, Any], _: float) -> None:
        self.set_parameters(values)

    def call(self, verb: str, _: object) -> Any:
        """Answer as the node's service does."""
        is_preview, own = verb.startswith('preview'), verb.removeprefix('preview').strip('_')
        after_gains = own == 'after_gains'
        kind = self._by_verb['run' if after_gains or not own else own]
        try:
            passed, text = self._previewed(
                kind, after_gains=after_gains) if is_preview else self._ran(kind)
        except RobocalError as error:
            passed, text = False, str(error)
        return SimpleNamespace(success=passed, message=text)

    def _motion(self, kind: str) -> tuple[str, dict[str, Any]]:
        """Return the motion of a run, and the parameters that it depends on."""
        if kind == 'friction':
            return kind, {}
        if kind == 'arm':
            return kind, {'arm_load': round(self._values['arm_load'], 1)}
        return ('two_plane' if kind == 'payload' and self._values['method'] == 'two_plane'
                else 'torque'), {}

    def _previewed(self, kind: str, *, after_gains: bool) -> tuple[bool, str]:
        cell, (what, detail), gains, text = self._cell, self._motion(kind), None, ''
        try:
            if after_gains:
                cell.plan('torque')
                gains = cell.expected('drive_gains', self._values, cell.load.mass)
                if gains.verdict.value != 'pass':
                    return True, expected_text(gains)
            text = f'{len(cell.plan(what, **detail)[0]) * STEP:.0f} s with rests. '
            return True, text if kind == 'friction' else text + expected_text(
                cell.expected(kind, self._values, cell.load.mass, gains))
        except RobocalError as error:
            return True, text + refused_text(error)

    def _ran(self, kind: str) -> tuple[bool, str]:
        cell, (what, detail) = self._cell, self._motion(kind)
        rate = _SLOW_RATE if kind == 'friction' else np.inf
        bag = cell.record(what, cell.load if self._mounted() else None, rate, **detail)
        result = cell.estimate(kind, bag, **self._values)
        self._cases += list(self._judged(kind, result))
        if kind == 'friction':
            store = make_store(cell.robot, parameters(FrictionParameters, cell.values))
            if (merged := merge(store.load(kind), result)) is not None:
                store.save(merged)
        verdict = result.verdict.value
        return verdict == 'pass', f'Verdict {verdict}: {" ".join(result.reasons)}'

    def _judged(self, kind: str, result: CalibrationResult) -> Iterator[Case]:
        cell = self._cell
        if kind == 'friction':
            found = list(compared_friction(cell, result, -1, reported=False))
        elif kind == 'payload' and self._values['reference_run'] != 'record':
            found = [compared_payload(cell, result)]
        else:
            names = cell.robot.joint_names
            found = [(result, identified(result, {
                f'{name}.{what}': float(value) for what, values in (
                    ('rotor_inertia', cell.world.rotor), ('effort_scale', cell.world.moving_gain))
                for name, value in zip(names, values, strict=True)}, {}), {})]
        for own, values, _ in found:
            yield Case(cell.seed, own.kind, cell.name, dict(cell.world.effects), own.verdict.value,
                       ' '.join(own.reasons)[:400], tuple(values), rate=cell.rate)


class _RehearsedGuide(calibrate.Guide):
    """The guide, with simulated nodes."""

    def _client(self, node: str) -> Any:
        return self._session.nodes[node]  # type: ignore[attr-defined]

    def _end(self, found: object, stopped: str = '') -> int:
        self.last_words = stopped or '; '.join(
            f'{step.title}: {why}' for step, why in self._ruled.items())
        return 0 if found is not None else 1


def calibrated(number: int, purposes: str) -> list[Case]:
    """Calibrate one arm with a weighed tool and without F/T sensor, all effects drawn.

    Args:
        number: The seed of the cell is ``number // 3``; neighbours have different arms.
        purposes: What the calibration is for, with commas.

    Returns:
        The results on the way, and one by the name of the purposes: `pass` if the guide said so,
        with the values of payload and friction that the last passed results hold.

    """
    seed, name = number // len(ROBOTS), ROBOTS[number % len(ROBOTS)]
    cases: list[Case] = []
    words = ''
    with (TemporaryDirectory(prefix='guided_') as folder, patch.object(OUT, 'quiet', new=True),
          patch.object(calibrate, 'confirmed', return_value=True)):
        cell = ForeseenCell(seed, drawn_effects(seed), Path(folder), name)
        # The scatter of the resting arm is what a preview knows.
        cell.last = cell.world.run(np.tile(script(name, 0, 'torque')[0], (1000, 1)), STEP,
                                   cell.rate, cell.load.matrix, 60.0)
        guide: Any = None
        nodes = {own: _Node(cell, own, lambda: guide.answers.mounted, cases) for own in _TABLES}
        session = SimpleNamespace(nodes=nodes, other_nodes=lambda _: list(nodes))
        graph = SimpleNamespace(description=urdf_of(name), wrenches={}, name=str)
        try:
            guide = _RehearsedGuide(
                session, graph, Namespace(again=[], timeout=1.0, namespace='', yes=None,  # type: ignore[arg-type]
                                          answers=None, dry_run=False), efforts=True)
            guide.answers = calibrate.Answers(
                tool='tool', mass=cell.load.mass + cell.weighing[1], mass_std=WEIGHING_STD,
                purposes=purposes.split(','))
            reached = guide.carry_out() == 0
            words = guide.last_words
        except Exception as error:  # noqa: BLE001 - a crash is a finding of the benchmark
            reached, words = False, f'{type(error).__name__}: {error}'
    # Of each joint, and of the payload, the last result that passed is in use.
    last = {(case.method, value.name): value for case in cases if case.passed
            and case.method in ('payload', 'friction') for value in case.values}
    return [*cases, Case(seed, purposes, name, dict(cell.world.effects),
                         'pass' if reached else 'fail', words[:400], tuple(last.values()))]


def _run(request: Request) -> Outcome:
    every: list[Case] = []
    figures = []
    for purposes in PURPOSES:
        found = in_parallel(
            partial(calibrated, purposes=purposes),
            [seed * len(ROBOTS) + place for seed in request.seeds for place in range(len(ROBOTS))],
            request.jobs, purposes)
        cases = [case for own in found for case in own]
        ends = [case for case in cases if case.method == purposes]
        for name in ROBOTS:
            own = [case for case in ends if case.arm == name]
            figures.append(Figure.share(f'{purposes}, {name}', 'calibrations that reach it',
                                        sum(case.passed for case in own), len(own), _BAR))
        figures += [Figure.single(purposes, what, '1', sum(case.wrong for case in some), 0.0)
                    for what, some in (
                        ('reached with a value outside 99.9 %', ends),
                        ('results on the way that pass with one', [
                            case for case in cases if case.method != purposes]))]
        every += cases
    return Outcome(figures, every)


BENCHMARK = Benchmark('Guided calibration', (
    f'`robocal calibrate` with a weighed tool, without F/T sensor, on {", ".join(ROBOTS)} as arms '
    'of the second simulation with drawn effects ([simulated arm](simulated-arm.md#campaign)). '
    "Planner, previews and estimators are the product's; motions are simulated, nodes are called "
    'without ROS, and every step by hand is done.'), _run, seeds=10)
