# SPDX-License-Identifier: Apache-2.0
"""Hidden law, figures and a short case of the friction benchmark."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import friction
from benchmarks.friction import Case, Curve, Timing
from demo import default_cell
from demo.friction import friction_truth
from robocal_sim.friction import LuGreFriction

BASE = default_cell.hidden_truth()
JOINTS = tuple(BASE.joints)


def test_the_truth_has_the_parameter_names_of_results() -> None:
    truth = friction_truth(BASE, ['joint_6'])
    assert len(truth) == 8
    assert truth['joint_6.coulomb_forward'] == BASE.joints['joint_6'].friction.coulomb[0]
    assert truth['joint_6.static_backward'] == BASE.joints['joint_6'].friction.breakaway[1]


@pytest.mark.parametrize('speed', [0.005, 0.05, 0.4, -0.005, -0.05, -0.4])
def test_the_hidden_law_equals_the_simulated_one(speed: float) -> None:
    simulated = LuGreFriction([BASE.joints[name].friction for name in JOINTS])
    expected = simulated.steady(np.full(len(JOINTS), speed))
    truth = friction_truth(BASE, JOINTS)
    for joint, torque in zip(JOINTS, expected, strict=True):
        assert float(friction.hidden_law(truth, joint).torque(speed)) == pytest.approx(torque)


def test_figures_are_judged_by_their_limits() -> None:
    case = Case(1, (), (Curve('joint_6', 0.3, 2.0, 0.0), Curve('joint_5', 4.0, 12.0, 0.1)),
                (Timing('friction', 100.0, 50000, 0.5),))
    met = {figure.what: figure.met for figure in friction.figures([case])}
    assert met['curve of joint_6 against the truth'] is True
    assert met['curve of joint_5 against the truth'] is False
    assert met['residual of the compensation at constant speed'] is False
    assert met['compensation at standstill, peak to peak'] is False


def test_a_short_case_meets_the_limits() -> None:
    """One random arm, its last joint, few and short runs."""
    case = friction.run_case(7, ['joint_6'], friction.QUICK)
    assert [curve.joint for curve in case.curves] == ['joint_6']
    for figure in friction.figures([case]):
        assert figure.met is not False, figure
    for deviation in case.deviations:
        assert deviation.std is not None
        assert abs(deviation.error) < 4.5 * deviation.std, deviation
