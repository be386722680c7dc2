# SPDX-License-Identifier: Apache-2.0
"""Expected results of previews against the results of the runs, on arms of the second world.

`python -m benchmarks.prediction --cells 6 --file prediction.jsonl` carries out every method on so
many cells, with tools that were weighed. Each line of the file has the expected and the stated
standard deviations and verdicts of one estimate; the table has the shares of masses, centres of
mass and effort scales within a factor of 1.5, and of equal verdicts.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

from benchmarks import second_world
from benchmarks.offline_bag import WRENCH
from benchmarks.second_campaign import METHODS
from benchmarks.second_cell import COM, GROUPS, STEP, Cell, data_of, script, urdf_of
from robocal_ros.errors import RobocalError
from robocal_ros.estimators import estimator
from robocal_ros.messages import JointSamples, Recording, WrenchSamples
from robocal_ros.parameters import declarations
from robocal_ros.payload import expected_result
from robocal_ros.results import CalibrationResult, State
from robocal_ros.robot import Trajectory, make_robot, make_store

_FACTOR = 1.5
# Values besides effort scales that are judged; biases and friction are by-products.
_JUDGED = ('mass', *COM)
_METHODS = ('static_poses', 'wrist', 'chain', 'gains')
# Rest of which the scatter is used, before the first motion [s].
_REST = 0.3


class PredictedCell(Cell):
    """A cell of which every estimate is predicted before it is made.

    Attributes:
        found: Expected and stated figures.

    """

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed, second_world.drawn_effects(seed), folder)
        self.found: list[dict[str, Any]] = []

    def record(
        self, what: str, load: Any = None, rate: float = np.inf, pause: float = 60.0,
        **detail: Any,
    ) -> Path:
        """Record, and keep the planned motion, which has no approach before it."""
        bag = super().record(what, load, rate, pause, **detail)
        if what in ('wrist', 'torque', 'arm'):
            detail = {'method': 'excitation', 'excitation_repeats': self._repeats, **detail}
        every = round(1.0 / (STEP * min(self.rate, rate)))
        position = script(self.name, self._place, what, tuple(sorted(detail.items())))
        velocity = np.gradient(position, STEP, axis=0)
        rows = [np.array(part[::every], dtype=np.float64) for part in (
            position, velocity, np.gradient(velocity, STEP, axis=0))]
        time = STEP * every * np.arange(len(rows[0]), dtype=np.float64)
        self._motion = Trajectory(time, *rows)
        return bag

    def estimate(self, what: str, bag: Path, **changes: Any) -> CalibrationResult:
        """Predict a result, then estimate it."""
        figures: dict[str, Any] = {
            'seed': self.seed, 'arm': self.name, 'method': f'{what} {changes.get("method", "")}'}
        try:
            figures['expected'] = _figures(self._expected(what, changes))
        except RobocalError as error:
            figures['expected'] = {'verdict': 'refused', 'reason': str(error)}
        self.found.append(figures)
        try:
            result = super().estimate(what, bag, **changes)
        except RobocalError as error:
            figures['stated'] = {'verdict': 'refused', 'reason': str(error)}
            raise
        figures['stated'] = _figures(result)
        return result

    def _expected(self, what: str, changes: dict[str, Any]) -> CalibrationResult:
        by: Any = estimator(what)
        known = {item.name for item in declarations(by.table)}
        values = by.table(**{name: value for name, value in {**self.values, **changes}.items()
                             if name in known})
        robot = make_robot(urdf_of(self.name), values)
        if (last := self.last) is None:
            raise RobocalError('Defect: nothing was recorded.')
        still, readings = (time - time[0] < _REST for time in (last.time, last.wrench_time))
        rest = Recording(
            JointSamples(robot.joint_names, last.time[still], last.position[still],
                         last.velocity[still], (last.effort * self.world.constant)[still]),
            {WRENCH: WrenchSamples(data_of(self.name).sensor, last.wrench_time[readings],
                                   last.wrench[readings])})
        mass = values.arm_load if what == 'arm' else values.known_mass or self.load.mass
        inputs = by.inputs(robot, values, make_store(robot, values).load)
        return expected_result(by, robot, values, inputs, self._motion, rest, mass)


def _figures(result: CalibrationResult) -> dict[str, Any]:
    return {'verdict': result.verdict.value, 'reason': ' '.join(result.reasons)[:300],
            'std': {item.name: item.std for item in result.parameters
                    if item.state is State.IDENTIFIED and item.std}}


def predicted(seeds: range) -> Iterator[dict[str, Any]]:
    """Yield the figures of every estimate on cells."""
    for method in _METHODS:
        for seed in seeds:
            folder = Path(mkdtemp(prefix='prediction_'))
            # Neighbouring seeds share an arm.
            cell = PredictedCell(GROUPS * seed, folder)
            try:
                for _ in METHODS[method][0](cell):
                    pass
            except Exception as error:  # noqa: BLE001 - what a method needs did not pass
                sys.stderr.write(f'{method}, cell {seed}: {type(error).__name__} {error}'[:150])
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            yield from cell.found


def table(figures: list[dict[str, Any]]) -> str:
    """Return a line for each method: shares within the factor and of equal verdicts."""
    ratios, equal = defaultdict(list), defaultdict(Counter)  # type: ignore[var-annotated]
    for item in figures:
        expected, stated, method = item['expected'], item.get('stated', {}), item['method']
        equal[method][expected['verdict'], stated.get('verdict')] += 1
        ratios[method] += [expected['std'][name] / std for name, std in
                           stated.get('std', {}).items() if name in expected.get('std', {})
                           and (name in _JUDGED or name.endswith('.effort_scale'))]
    lines = []
    for method, counts in equal.items():
        ratio = np.array(ratios[method])
        within = np.mean((ratio < _FACTOR) & (ratio > 1.0 / _FACTOR)) if len(ratio) else np.nan
        same = sum(count for (a, b), count in counts.items() if a == b)
        lines.append(f'{method}: {100.0 * within:.0f} % of {len(ratio)} values within '
                     f'{_FACTOR}, median {np.median(ratio) if len(ratio) else np.nan:.2f}; '
                     f'{same} of {counts.total()} verdicts: {dict(counts)}')
    return '\n'.join(lines)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0] if __doc__ else '')
    parser.add_argument('--cells', type=int, default=6)
    parser.add_argument('--first', type=int, default=900)
    parser.add_argument('--file', type=Path, default=Path('prediction.jsonl'))
    options = parser.parse_args()
    figures = []
    with options.file.open('w', encoding='utf-8') as file:
        for item in predicted(range(options.first, options.first + options.cells)):
            figures.append(item)
            file.write(json.dumps(item, default=float) + '\n')
            file.flush()
    sys.stdout.write(table(figures) + '\n')


if __name__ == '__main__':
    main()
