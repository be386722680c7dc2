# SPDX-License-Identifier: Apache-2.0
"""Short cases and figures of compliance and leveling benchmarks, and the panel of leveling."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import compliance, leveling
from benchmarks.leveling import ARMS, Attempt
from benchmarks.second_campaign import Case, Value
from benchmarks.second_cell import OWN
from benchmarks.second_world import read_arm
from demo import default_cell
from demo.compliance import known_load
from demo.leveling import leveling_panel
from robocal_ros.leveling import Tool
from robocal_ros.robot import Robot

TRUTH = default_cell.hidden_truth()


def test_arms_at_rest_meet_the_limits_and_the_bound() -> None:
    upright, walled, drawn = compliance.run_case(3)
    first = read_arm(upright.arm).joints[0]
    assert first not in {joint.name for joint in upright.values}
    assert first in {joint.name for joint in walled.values}
    for case in (upright, walled):
        assert case.notes['sag removed'] > 95.0
        assert all(abs(joint.z) < 3.3 for joint in case.values)
        # One draw of some errors; the bound is that of a known tracker.
        ratios = [joint.error / joint.bound for joint in case.values]
        assert 0.2 < np.sqrt(np.mean(np.square(ratios))) < 2.5
    assert not drawn.wrong
    assert not any(joint.bound for joint in drawn.values)


def test_figures_of_compliance_are_judged_by_their_limits() -> None:
    sharp = Value('j', 1.0, 0.01, 0.01, 1.0, bound=0.01)
    weak = Value('weak', 1.0, 0.9, 0.6, 1.5, bound=0.9)
    good = Case(0, '', 'UR10', {}, 'pass', '', (sharp, weak), {'sag removed': 97.0})
    within, removed, bound = compliance.figures('quiet', [good] * 20)
    assert (within.met, removed.met, bound.met) == (True, True, True)
    assert bound.worst == pytest.approx(1.0)
    # A joint with a large deviation does not count.
    assert within.what.endswith('of 20')
    bad = replace(good, values=(replace(sharp, error=0.03), weak), notes={'sag removed': 94.0})
    assert [figure.met for figure in compliance.figures('quiet', [good] * 18 + [bad] * 2)] == [
        False, False, False]


def test_wrong_passes_of_compliance_are_counted() -> None:
    outside = Value('j', 1.0, 0.05, 0.01, 5.0)
    wrong = Case(0, '', 'UR10', {}, 'pass', '', (outside,), {'sag removed': 97.0})
    found = {figure.what.partition(',')[0]: figure for figure in compliance.figures(
        'drawn', [wrong, replace(wrong, verdict='fail')])}
    assert found['wrong passes'].worst == 1.0
    assert found['wrong passes'].met is False
    assert found['values of passes inside 99.9 %'].met is False


def test_the_parameters_of_the_tour_hold_no_compliance_and_no_orientation() -> None:
    known = known_load(TRUTH)
    assert known['load_mass'] == TRUTH.load.mass
    assert not any('compliance' in name or 'rpy' in name for name in known)
    assert np.abs(np.array(known['tracker_position']) - TRUTH.tracker.xyz).max() <= 0.05


def test_plans_of_all_arms_meet_the_limits() -> None:
    attempts = leveling.run_case(2)
    assert [item.arm for item in attempts] == list(ARMS)
    assert [np.isfinite(item.true_tilt) for item in attempts] == [True, False, False, False]
    for figure in leveling.figures(attempts):
        assert figure.met is not False or figure.what.startswith('planning'), figure


def test_figures_of_leveling_are_judged_by_their_limits() -> None:
    good = Attempt(OWN, 10.0, 1e-6, 0.1, 0.001)
    bad = replace(good, tilt=0.06, drift=0.6, true_tilt=0.06)
    refused = Attempt(OWN, 60.0, obstacle='position limit')

    def met(*attempts: Attempt) -> dict[str, bool | None]:
        return {figure.what.partition(',')[0]: figure.met for figure in leveling.figures(attempts)}

    assert False not in met(good).values()
    missed = met(bad, refused)
    for what in ('residual tilt', 'drift', 'true tilt of a loaded arm that sags'):
        assert missed[what] is False, what


def test_the_panel_shows_the_arm_before_during_and_after() -> None:
    robot = Robot(default_cell.urdf())
    tool = Tool(robot)
    start = np.array([0.3, 0.4, 0.3, 0.6, 0.9, 0.2])
    way = np.linspace(start, start + 0.001, 50)
    panel = leveling_panel(tool, np.linspace(0.0, 1.0, 50), way,
                           'The IMU measures a tilt of 0.031°.', success=True, title='leveling')
    assert [title for title, _ in panel.drawings] == [
        'before', 'on the way', 'after', 'tilt and drift over time']
    assert panel.rows[2][2] == '0.031'
    # A tilted tool is no success, whatever the node says.
    assert not panel.passed
