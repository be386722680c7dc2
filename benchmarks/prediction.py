# SPDX-License-Identifier: Apache-2.0
"""Expected results of previews against the results of the runs, on arms of the second world.

Of a slow exciting motion, its preview must say which moments of inertia it does not tell.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.benchmark import Benchmark, Figure, Outcome, Request, in_parallel
from benchmarks.offline_bag import WRENCH
from benchmarks.second_campaign import METHODS
from benchmarks.second_cell import COM, DATA, GROUPS, STEP, Cell, parameters, urdf_of
from benchmarks.second_world import drawn_effects
from robocal_ros.errors import RobocalError
from robocal_ros.estimators import estimator
from robocal_ros.messages import JointSamples, Recording, WrenchSamples
from robocal_ros.payload import expected_result
from robocal_ros.results import Z95, CalibrationResult, State
from robocal_ros.robot import Trajectory, make_robot, make_store

_FACTOR, _BAR = 1.5, 90.0
# Values besides effort scales that are judged; biases and friction are by-products.
_JUDGED = ('mass', *COM)
_METHODS = ('static_poses', 'wrist', 'chain', 'gains')
# Scale of slow motions, and error that a good moment of inertia may have [%].
_SLOW, _WITHIN = 0.3, 5.0
_MOMENTS = ('inertia_xx', 'inertia_yy', 'inertia_zz')
# Rest of which the scatter is used, before the first motion [s].
_REST = 0.3


class ForeseenCell(Cell):
    """A cell of which results can be foreseen."""

    def expected(
        self, what: str, changes: Mapping[str, Any], mass: float,
        gains: CalibrationResult | None = None,
    ) -> CalibrationResult:
        """Return the expected result of the planned motion, from a rest that was recorded.

        Args:
            what: Name of the estimator.
            changes: Parameters that are not those of the cell.
            mass: Mass of the load, if no parameter tells it [kg].
            gains: Drive gains that will be in use; by default those that are.

        Raises:
            RobocalError: If it is expected to be refused.

        """
        by: Any = estimator(what)
        values = parameters(by.table, {**self.values, **changes})
        robot = make_robot(urdf_of(self.name), values)
        if (last := self.last) is None:
            raise RobocalError('Defect: nothing was recorded.')
        still, readings = (time - time[0] < _REST for time in (last.time, last.wrench_time))
        rest = Recording(
            JointSamples(robot.joint_names, last.time[still], last.position[still],
                         last.velocity[still], (last.effort * self.world.constant)[still]),
            {WRENCH: WrenchSamples(DATA[self.name].sensor, last.wrench_time[readings],
                                   last.wrench[readings])})
        mass = values.arm_load if what == 'arm' else values.known_mass or mass
        inputs = by.inputs(robot, values, make_store(robot, values).load)
        if gains is not None:
            inputs = inputs.with_gains(gains)
        return expected_result(by, robot, values, inputs, self._motion(), rest, mass)

    def _motion(self) -> Trajectory:
        """Return the last motion as it was planned, without an approach, at the states' rate."""
        position, rate = self.planned
        every = round(1.0 / (STEP * rate))
        velocity = np.gradient(position, STEP, axis=0)
        rows = [part[::every].copy() for part in (
            position, velocity, np.gradient(velocity, STEP, axis=0))]
        return Trajectory(STEP * every * np.arange(float(len(rows[0]))), *rows)


class PredictedCell(ForeseenCell):
    """A cell of which every estimate is predicted before it is made.

    Attributes:
        found: Expected and stated figures.

    """

    def __init__(
        self, seed: int, folder: Path, effects: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(seed, drawn_effects(seed) if effects is None else effects, folder)
        self.found: list[dict[str, Any]] = []

    def estimate(self, what: str, bag: Path, **changes: Any) -> CalibrationResult:
        """Predict a result, then estimate it."""
        figures: dict[str, Any] = {
            'seed': self.seed, 'arm': self.name,
            'method': f'{what} {changes.get("method", "")}'.rstrip()}
        self.found.append(figures)
        try:
            figures['expected'] = _figures(
                self.expected(what, changes, self.load.mass))
        except RobocalError as error:
            figures['expected'] = {'verdict': 'refused', 'reason': str(error), 'std': {}}
        try:
            result = super().estimate(what, bag, **changes)
        except RobocalError as error:
            figures['stated'] = {'verdict': 'refused', 'reason': str(error), 'std': {}}
            raise
        figures['stated'] = _figures(result)
        return result


def _figures(result: CalibrationResult) -> dict[str, Any]:
    return {'verdict': result.verdict.value, 'reason': ' '.join(result.reasons)[:300],
            'std': {item.name: item.std for item in result.parameters
                    if item.state is State.IDENTIFIED and item.std}}


def run_case(seed: int) -> list[dict[str, Any]]:
    """Return the figures of every estimate of all methods on a cell."""
    found = []
    for method in _METHODS:
        with TemporaryDirectory(prefix='prediction_') as folder:
            # Neighbouring seeds share an arm.
            cell = PredictedCell(GROUPS * seed, Path(folder))
            try:
                for _ in METHODS[method][0](cell):
                    pass
            except Exception as error:  # noqa: BLE001 - what a method needs did not pass
                sys.stderr.write(f'{method}, cell {seed}: {type(error).__name__} {error}'[:150])
            found += cell.found
    return found


def _run(request: Request) -> Outcome:
    cases = [case for own in in_parallel(run_case, request.seeds, request.jobs, 'prediction')
             for case in own if 'stated' in case]
    figures, remarks = [], []
    for method in dict.fromkeys(case['method'] for case in cases):
        own = [(case['expected'], case['stated']) for case in cases if case['method'] == method]
        ratio = np.array([expected['std'][name] / std for expected, stated in own
                          for name, std in stated['std'].items() if name in expected['std']
                          and (name in _JUDGED or name.endswith('.effort_scale'))])
        if len(ratio):
            within = (ratio < _FACTOR) & (ratio > 1.0 / _FACTOR)
            figures += [Figure.share(method, f'deviations expected within a factor of {_FACTOR}',
                                     int(within.sum()), len(ratio), _BAR),
                        Figure.single(method, 'expected ÷ stated deviation, median', '1',
                                      float(np.median(ratio)))]
        verdicts = Counter((expected['verdict'], stated['verdict']) for expected, stated in own)
        figures.append(Figure.share(method, 'equal verdicts', sum(
            count for (early, late), count in verdicts.items() if early == late), len(own)))
        remarks.append(f'{method}, expected and stated verdicts: ' + ', '.join(
            f'{early} and {late} {count}' for (early, late), count in verdicts.items()))
    return Outcome(figures, cases, remarks)


BENCHMARK = Benchmark('Previews', (
    'Expected results of previews against those of the runs, on arms of the campaign with drawn '
    'effects and weighed tools: masses, centres of mass and effort scales.'), _run, seeds=30)


# ------------------------------------------------------------------------ slow motions


@dataclass(frozen=True)
class SlowMotion:
    """A tool on one arm.

    Attributes:
        arm: Name of the arm.
        passed: Whether the run passed.
        error: Largest error of a moment of inertia, not finite if one is not identified [%].
        foreseen: Largest half-width of a moment's 95 % interval that the preview states, not
            finite if it foresees no pass or a moment that is not identified [%].

    """

    arm: str
    passed: bool
    error: float
    foreseen: float

    @property
    def good(self) -> bool:
        """Whether the moments are good, or the preview has said that they will not be."""
        return (self.passed and self.error <= _WITHIN) or not self.foreseen <= _WITHIN


def run_slowly(seed: int) -> SlowMotion:
    """Identify a tool by its wrist sensor with a slow motion, and preview it."""
    with TemporaryDirectory(prefix='slow_') as folder:
        # Neighbouring seeds of cells share an arm.
        cell = PredictedCell(GROUPS * seed, Path(folder), {})
        bag = cell.record('wrist', cell.load, speed_scale=_SLOW)
        result = cell.estimate('payload', bag, method='excitation', speed_scale=_SLOW)
    truth, expected = cell.load.truth, cell.found[-1]['expected']
    stated = {item.name: item.value for item in result.parameters if item.value is not None}
    error, foreseen = (max(
        100.0 * abs(found.get(name, np.inf) - offset * truth[name]) / truth[name]
        for name in _MOMENTS) for found, offset in (
            (stated, 1.0),
            ({name: Z95 * std for name, std in expected['std'].items()}, 0.0)))
    return SlowMotion(cell.name, result.verdict.value == 'pass', error,
                      foreseen if expected['verdict'] == 'pass' else np.inf)


def _run_slow(request: Request) -> Outcome:
    cases = in_parallel(run_slowly, request.seeds, request.jobs, 'slow')
    known = [case for case in cases if np.isfinite(case.error)]
    figures = [Figure.over(arm, 'largest error of a moment of inertia, where all are identified',
                           '%', [case.error for case in known if case.arm == arm])
               for arm in dict.fromkeys(case.arm for case in known)]
    return Outcome([*figures, Figure.share(
        'all arms', 'runs with all moments identified', len(known), len(cases)), Figure.share(
        'all arms', f'runs that pass with moments within {_WITHIN:g} %',
        sum(case.passed and case.error <= _WITHIN for case in cases), len(cases)), Figure.share(
            'all arms', 'the same, or said beforehand', sum(case.good for case in cases),
            len(cases), 100.0)], cases)


SLOW = Benchmark(
    'Slow motions',
    'Tools on arms of the campaign with the noise of their sensors alone, identified by the '
    f'wrist sensor with an exciting motion at `speed_scale: {_SLOW}`. The preview says '
    f'beforehand what will not be known to {_WITHIN:g} % if it foresees no pass or a wider 95 % '
    'interval of a moment of inertia.',
    _run_slow, 30)
