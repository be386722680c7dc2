# SPDX-License-Identifier: Apache-2.0
"""Bounds of the repeated estimates, and the curves of violated assumptions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks import coverage
from benchmarks.campaign import Case, Error
from benchmarks.repetitions import Repetitions
from benchmarks.robustness import VARIABLES, Curve, Point, centre_error, in_intervals


@pytest.mark.parametrize('method', [coverage.by_static_poses, coverage.by_two_planes])
def test_stated_deviations_are_those_of_the_bound(
    method: Callable[[int], Repetitions]
) -> None:
    found = method(2)
    stated = found.std.mean(axis=0) / found.bound
    # An interval estimates the noise from its own residuals.
    assert ((stated > 0.7) & (stated < 1.5)).all()
    assert (np.abs(found.errors) < 5.0 * found.bound).all()


def test_repetitions_are_judged_by_efficiency_and_coverage() -> None:
    draw = np.random.default_rng(0).standard_normal((4000, 2))
    good = Repetitions('any', ('a', 'b'), draw, np.ones_like(draw), np.ones(2)).figures()
    assert [figure.met for figure in good] == [True, True, None, True]
    bad = Repetitions('any', ('a', 'b'), 1.3 * draw, np.ones_like(draw), np.ones(2)).figures()
    assert [figure.met for figure in bad] == [False, False, None, False]
    for figure in bad[:3]:
        assert figure.band is not None
        assert figure.band[0] < figure.median < figure.band[1]


def case(verdict: str, ratio: float) -> Case:
    errors = tuple(Error(name, 1.0, 1e-3 * ratio, 1e-3) for name in ('com_x', 'com_y', 'com_z'))
    return Case(1, 'two_plane', 'arm', 250.0, {}, False, verdict, (), errors, 1.0)


def test_curves_show_where_the_verdict_turns_and_where_the_truth_is_lost() -> None:
    cases = [[case('pass', 1.0), case('pass', 2.0)], [case('pass', 1.0), case('pass', 4.0)],
             [case('fail', 9.0), case('refused', 9.0)], [case('pass', 1.0), case('fail', 1.0)]]
    curve = Curve(VARIABLES[0], 'two_plane', (1.0, 2.0, 3.0, 4.0), cases)
    # A tie is no pass.
    assert curve.verdicts() == ['pass', 'pass', 'fail', 'fail']
    assert curve.inside() == [True, False, False, True]
    assert sum(item.wrong_pass for item in curve.all_cases) == 1
    line = curve.line(in_intervals)
    assert line.y == pytest.approx([1.5 / 3.290527, 2.5 / 3.290527, 9.0 / 3.290527, 1 / 3.290527])
    assert line.high[1] == pytest.approx(4.0 / 3.290527)
    assert centre_error(cases[0][0]) == pytest.approx(np.sqrt(3.0))


def test_nominal_cells_are_shared_by_all_variables() -> None:
    shared = {Point.of(number, 'two_plane', variable.nominal, 1)
              for number, variable in enumerate(VARIABLES)}
    assert len(shared) == 1
    for number, variable in enumerate(VARIABLES):
        assert variable.nominal in variable.values
        assert Point.of(number, 'two_plane', variable.values[-1], 1).variable == number
