# SPDX-License-Identifier: Apache-2.0
"""Figures and short cases of the compliance benchmark, and what its tour reveals."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import compliance, compliance_arm
from benchmarks.compliance import UPRIGHT, WALLED, Case
from benchmarks.compliance_arm import ArmAtRest, Known, MovedArm, drawn_truth
from benchmarks.figures import Deviation
from demo import default_cell
from demo.compliance import known_load
from robocal_ros.compliance.parameters import ComplianceParameters
from robocal_sim.truth import Cell

TRUTH = default_cell.hidden_truth()


def deviation(error: float, std: float = 1e-7, truth: float = 1e-5) -> Deviation:
    return Deviation(UPRIGHT, 1, 'joint_2.compliance', 'rad/(N·m)', truth, error, std, 'pass')


def test_figures_are_judged_by_their_limits() -> None:
    good = [Case(seed, (deviation(1e-7),), 97.0, False) for seed in range(20)]
    assert all(figure.met is not False for figure in compliance.figures(good))
    bad = [*good[:18], Case(18, (deviation(3e-7),), 94.0, False),
           Case(19, (deviation(-3e-7),), 94.0, False)]
    met = {figure.what: figure.met for figure in compliance.figures(bad)}
    assert met['joints with std below 5 %: within 2 σ, 20 cases'] is False
    assert met['sag removed on held-out postures'] is False


def test_joints_with_large_deviations_do_not_count() -> None:
    weak = deviation(9e-7, std=6e-7)
    figures = compliance.figures([Case(1, (deviation(0.0), weak), 97.0, False)])
    assert 'within 2 σ, 1 cases' in figures[0].what


def test_the_first_joint_is_identified_only_on_a_wall() -> None:
    for case in compliance.run_resting(3):
        assert case.first_joint == (case.deviations[0].series == WALLED)
        assert case.removed > 94.0
        for item in case.deviations:
            assert abs(item.error) < 5.0 * item.std, item


def test_planned_postures_beat_random_ones() -> None:
    for figure in compliance.planning():
        assert figure.met, figure
    found = compliance.efficiency(3)
    assert found.errors.shape == (15, 5)
    # Few repetitions: the ratio scatters by a fifth.
    assert (np.sqrt(np.mean(found.errors**2, axis=0)) < 1.8 * found.bound).all()


def test_predicted_deviations_are_those_of_the_normal_equations() -> None:
    blocks = np.random.default_rng(0).standard_normal((10, 3, 4))
    blocks[:, :, 1] = 0.0
    softness = np.array([1.0, 1.0, 2.0, 4.0])
    found = compliance.relative_deviations(blocks, softness, 0.1)
    columns = np.delete(blocks.reshape(-1, 4), 1, axis=1)
    expected = 0.1 * np.sqrt(np.diag(np.linalg.inv(columns.T @ columns))) / [1.0, 2.0, 4.0]
    np.testing.assert_allclose(np.delete(found, 1), expected, rtol=1e-9)
    assert np.isinf(found[1])


def test_statics_and_simulated_motion_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compliance_arm, '_VELOCITY', 2.0)
    monkeypatch.setattr(compliance_arm, '_ACCELERATION', 6.0)
    truth = drawn_truth(1)
    known = Known.of(truth)
    values = ComplianceParameters(settle=0.3, dwell=0.6)
    posture = np.array([0.4, 0.3, -0.4, 0.2, 0.3, 0.1])
    seen = []
    for kind in (ArmAtRest, MovedArm):
        arm = kind(known, truth, Cell(), 1)
        before = arm.visit(posture, values)
        arm.load()
        seen.append((before.point, arm.visit(posture, values).point))
    for rest, moved in zip(*seen, strict=True):
        # Within the deadband of the drives.
        assert np.linalg.norm(rest - moved) < 3e-5
    assert np.linalg.norm(seen[0][1] - seen[0][0]) > 2e-4


def test_the_parameters_of_the_tour_hold_no_compliance_and_no_orientation() -> None:
    known = known_load(TRUTH)
    assert known['load_mass'] == TRUTH.load.mass
    assert not any('compliance' in name or 'rpy' in name for name in known)
    assert np.abs(np.array(known['tracker_position']) - TRUTH.tracker.xyz).max() <= 0.05
