# SPDX-License-Identifier: Apache-2.0
"""Adversarial cells are repeatable and complete, and a campaign counts what it should."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.adversarial_cell import EFFECTS, arm_names, draw
from benchmarks.campaign import METHODS, Case, Error, figures, inside, report, run_case
from robocal_ros.robot.trajectories import quintic_move


def case(verdict: str, *ratios: float, method: str = 'gains', **effects: float) -> Case:
    errors = tuple(Error(f'p{i}', 1.0, ratio, 1.0) for i, ratio in enumerate(ratios))
    reasons = () if verdict == 'pass' else ("joint 'a' is off by 3.5 N·m",)
    return Case(1, method, 'arm', 500.0, effects, len(effects) == 1, verdict, reasons, errors, 1.0)


def test_cell_is_repeated_by_its_seed() -> None:
    first, again, other = (draw(seed, 'effort') for seed in (5, 5, 6))
    assert first.truth == again.truth
    assert first.effects == again.effects
    assert other.truth != first.truth


@pytest.mark.parametrize('effect', [name for name in EFFECTS if name != 'wrapped joints'])
def test_every_effect_can_be_drawn_alone(effect: str) -> None:
    cell, quiet = (draw(3, 'wrench', effects=names) for names in ([effect], []))
    assert list(cell.effects) == [effect]
    assert cell.effects[effect]
    assert not quiet.effects


def test_continuous_joints_are_wrapped_and_moved_beyond_a_half_turn() -> None:
    if 'Kinova j2' not in arm_names():
        pytest.skip('The description of the Kinova arm comes with the PyPI package '
                    'example-robot-data, which is not installed.')
    cells = (draw(seed, 'effort', effects=['wrapped joints']) for seed in range(100))
    cell = next(item for item in cells if item.arm.name == 'Kinova j2')
    assert cell.effects['wrapped joints'] == 3.0
    assert [joint.wrapped for joint in cell.truth.joints.values()] == [
        True, False, False, True, False, True]
    assert (cell.home[[0, 3, 5]] > 2.9).all()


def test_single_cells_have_one_effect_of_what_the_method_reads() -> None:
    for seed in range(40):
        (effect,) = draw(seed, 'effort', single=True).effects
        assert EFFECTS[effect].concerns in ('all', 'effort')


def test_recording_of_a_quiet_cell_follows_the_motion() -> None:
    cell = draw(2, 'effort', effects=[])
    goal = cell.home + 0.1
    motion = quintic_move(cell.home, goal, np.ones(len(goal)), np.ones(len(goal)))
    joints, sensor = cell.record([motion])
    assert cell.arm.name in arm_names()
    np.testing.assert_allclose(joints.position[-1], goal, atol=5e-3)
    assert np.diff(joints.time) == pytest.approx(1.0 / cell.rate)
    assert len(sensor) == pytest.approx(len(joints), abs=1)


def test_case_of_a_seed_has_errors_or_a_reason() -> None:
    found = run_case(0)
    assert found.method == next(iter(METHODS))
    assert found.errors or found.reasons


def test_coverage_counts_passed_parameters_only() -> None:
    cases = [case('pass', 0.5, 2.5), case('fail', 9.0), case('pass', 4.0)]
    assert inside(cases, 1.959964) == (1, 3)
    assert inside(cases, 3.290527) == (2, 3)
    assert [item.wrong_pass for item in cases] == [False, False, True]


def test_figures_and_report_state_scope_and_wrong_passes() -> None:
    outside = {'efforts without gravity': 1.0}
    cases = [case('pass', 0.5), case('pass', 5.0, **{'base tilt': 0.1}), case('fail', **outside)]
    found = figures(cases)
    assert [round(item.worst, 1) for item in found] == [50.0, 45.0, 100.0]
    text = report(cases)
    assert '| base tilt 0.1 rad | p0: 1 off by +5 at σ 1 (5.0 σ) |' in text
    assert "joint 'a' is off by 3.5 N·m" in text
