# SPDX-License-Identifier: Apache-2.0
"""Short cases and figures of compliance and leveling benchmarks, and the panel of leveling."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import compliance, leveling
from benchmarks.compliance import MOUNTS, NOISE, UPRIGHT, WALLED
from benchmarks.leveling import ARMS, Attempt
from benchmarks.second_cell import OWN
from demo import default_cell
from demo.compliance import known_load
from demo.leveling import leveling_panel
from robocal_ros.leveling import Tool
from robocal_ros.robot import Robot

TRUTH = default_cell.hidden_truth()


def test_arms_at_rest_meet_the_limits_and_the_bound() -> None:
    cases = compliance.run_case(3, (*MOUNTS, NOISE))
    for case in cases:
        assert ('joint_1.compliance' in case.errors) == (case.series == WALLED)
        assert case.removed > 94.0
        for name, error in case.errors.items():
            assert abs(error) < 5.0 * case.std[name], name
    assert set(cases[2].bound) == {f'joint_{number}.compliance' for number in range(2, 7)}
    # One draw of five errors; the bound is that of a known tracker.
    ratios = [cases[2].errors[name] / bound for name, bound in cases[2].bound.items()]
    assert 0.2 < np.sqrt(np.mean(np.square(ratios))) < 2.5


def test_figures_of_compliance_are_judged_by_their_limits() -> None:
    good = compliance.Case(UPRIGHT, {'j': 0.01, 'weak': 0.9}, {'j': 0.01, 'weak': 0.6}, {}, 97.0,
                           True)
    within, removed = compliance.figures([good] * 20)
    assert (within.met, removed.met) == (True, True)
    # A joint with a large deviation does not count.
    assert within.what.endswith('of 20')
    bad = replace(good, errors={'j': 0.03}, removed=94.0)
    assert [figure.met for figure in compliance.figures([good] * 18 + [bad] * 2)] == [False, False]
    bound = replace(good, bound={'j': 0.01})
    assert list(compliance.figures([bound] * 8))[2].worst == pytest.approx(1.0)


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
