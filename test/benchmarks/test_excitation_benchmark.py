# SPDX-License-Identifier: Apache-2.0
"""Figures of excitation, drive gains and identified friction, from constructed cases."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import excitation, handover
from benchmarks.excitation import GAINS, SERIES, Case
from benchmarks.figures import Deviation
from benchmarks.handover import Handover, one_way
from robocal_ros.estimation.signals import steady_sweeps
from robocal_ros.messages.samples import JointSamples
from robocal_ros.payload.model import PARAMETERS


def case(error: float, moment: float, after: float) -> Case:
    found = tuple(Deviation(SERIES, 1, name, '', 2.0, error, 1e-3, 'pass') for name in PARAMETERS)
    return Case(found, (0.1, moment), (0.2, -0.1), 20.0, after, 50.0)


def test_excitation_is_judged_by_the_worst_principal_moment_and_mass() -> None:
    figures = {(f.series, f.what): f for f in excitation.figures(
        [case(1e-4, 1.0, 0.1), case(-3e-4, 6.0, 0.5)])}
    assert figures[SERIES, 'error of a principal moment'].met is False
    assert figures[GAINS, "error of another tool's mass after"].met is True
    assert figures[SERIES, 'error of mass'].worst == pytest.approx(0.015)
    assert figures[SERIES, 'error of com_x'].worst == pytest.approx(0.3)


def test_efficiency_is_reported_for_both_sources() -> None:
    for found in excitation.efficiency(2):
        # With two repetitions chance alone decides, but not by orders of magnitude.
        ratio = np.sqrt(np.mean(found.errors**2, axis=0)) / found.bound
        assert ((ratio > 0.01) & (ratio < 4.0)).all()
        stated = found.std.mean(axis=0) / found.bound
        assert ((stated > 0.5) & (stated < 2.0)).all()


def test_identified_friction_is_judged_by_its_limits() -> None:
    rows = handover.figures([Handover(3e-4, 1e-4, 2.5e-3, 3), Handover(4e-4, 2e-4, 1e-4, 3)])
    assert [row.met for row in rows] == [True, True, False]
    assert [row.worst for row in rows] == pytest.approx([0.4, 0.2, 2.5])


def test_one_way_removes_the_sweeps_of_the_other_direction() -> None:
    time = np.arange(0.0, 20.0, 0.002)
    angle = np.interp(time, [0, 2, 8, 10, 16, 20], [0, 0, 1.5, 1.5, 0, 0])
    position = np.column_stack((np.zeros_like(angle), angle))
    samples = JointSamples(('a', 'b'), time, position, 0 * position, 0 * position)
    assert {sweep.direction for sweep in steady_sweeps(samples)} == {1, -1}
    assert {sweep.direction for sweep in steady_sweeps(one_way(samples))} == {1}
