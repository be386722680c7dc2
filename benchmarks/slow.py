# SPDX-License-Identifier: Apache-2.0
"""Benchmark of a slow exciting motion: moments of inertia, and what its preview says of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.benchmark import Benchmark, Figure, Outcome, Request, in_parallel
from benchmarks.prediction import PredictedCell
from benchmarks.second_cell import GROUPS
from robocal_ros.results import Z95

_SCALE, _WITHIN = 0.3, 5.0
_MOMENTS = ('inertia_xx', 'inertia_yy', 'inertia_zz')


@dataclass(frozen=True)
class Case:
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


def run_case(seed: int) -> Case:
    """Identify a tool by its wrist sensor with a slow motion, and preview it."""
    with TemporaryDirectory(prefix='slow_') as folder:
        # Neighbouring seeds of cells share an arm.
        cell = PredictedCell(GROUPS * seed, Path(folder), {})
        bag = cell.record('wrist', cell.load, speed_scale=_SCALE)
        result = cell.estimate('payload', bag, method='excitation', speed_scale=_SCALE)
    truth, expected = cell.load.truth, cell.found[-1]['expected']
    stated = {item.name: item.value for item in result.parameters if item.value is not None}
    error, foreseen = (max(
        100.0 * abs(found.get(name, np.inf) - offset * truth[name]) / truth[name]
        for name in _MOMENTS) for found, offset in (
            (stated, 1.0),
            ({name: Z95 * std for name, std in expected['std'].items()}, 0.0)))
    return Case(cell.name, result.verdict.value == 'pass', error,
                foreseen if expected['verdict'] == 'pass' else np.inf)


def _run(request: Request) -> Outcome:
    cases = in_parallel(run_case, request.seeds, request.jobs, 'slow')
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


BENCHMARK = Benchmark(
    'Slow motions',
    'Tools on arms of the campaign with the noise of their sensors alone, identified by the '
    f'wrist sensor with an exciting motion at `speed_scale: {_SCALE}`. The preview says '
    f'beforehand what will not be known to {_WITHIN:g} % if it foresees no pass or a wider 95 % '
    'interval of a moment of inertia.',
    _run, 30)
