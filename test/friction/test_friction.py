# SPDX-License-Identifier: Apache-2.0
"""The friction law and how it is read from a result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from robocal_ros.errors import DataError
from robocal_ros.results.result import CalibrationResult, Fit, Parameter, RobotIdentity, State
from robocal_ros.robot.friction_law import SteadyFriction, friction_by_joint

POSITIVE = st.floats(0.01, 10.0)


@st.composite
def laws(draw):
    coulomb = np.array([draw(POSITIVE), draw(POSITIVE)])
    return SteadyFriction(coulomb, coulomb * (1.0 + draw(POSITIVE)),
                          np.array([draw(POSITIVE), draw(POSITIVE)]),
                          np.array([draw(POSITIVE), draw(POSITIVE)]))


@given(laws(), st.floats(-5.0, 5.0))
def test_the_law_by_its_formula_in_both_directions(law, v):
    s = int(v < 0.0)
    expected = (law.coulomb[s] + (law.static[s] - law.coulomb[s])
                * np.exp(-(v / law.stribeck_velocity[s])**2)) * np.sign(v) + law.viscous[s] * v
    assert float(law.torque(v)) == pytest.approx(expected, abs=1e-12)


def friction_result(parameters, kind='friction') -> CalibrationResult:
    return CalibrationResult(
        kind, 'lspb', RobotIdentity('arm', '', ('j1', 'j2', 'j3')), '', tuple(parameters), (),
        np.zeros((0, 0)), (Fit('j1', 'N·m', 1.0, 0.07, 9),), (), (), {}, {}, 'live', 0.0, '0')


def eight(joint: str, without: str = '') -> list[Parameter]:
    found = []
    for number, name in enumerate(('coulomb', 'static', 'stribeck_velocity', 'viscous'), 1):
        for side, direction in enumerate(('forward', 'backward')):
            full = f'{joint}.{name}_{direction}'
            found.append(
                Parameter(full, '1', state=State.NOT_IDENTIFIED) if name == without
                else Parameter(full, '1', number + 0.1 * side, 0.01))
    return found


def test_a_result_is_read_joint_by_joint():
    models = friction_by_joint(friction_result([*eight('j1'), *eight('j3', 'static')]))
    assert set(models) == {'j1', 'j3'}
    np.testing.assert_allclose(models['j1'].coulomb, [1.0, 1.1])
    np.testing.assert_allclose(models['j1'].static, [2.0, 2.1])
    np.testing.assert_allclose(models['j1'].stribeck_velocity, [3.0, 3.1])
    np.testing.assert_allclose(models['j1'].viscous, [4.0, 4.1])
    assert (models['j1'].std, models['j3'].std) == (0.07, 0.0)


def test_what_was_not_identified_is_left_out_of_the_law():
    models = friction_by_joint(friction_result([*eight('j1', 'static'), *eight('j2', 'coulomb'),
                                                *eight('j3', 'viscous')]))
    assert set(models) == {'j1', 'j3'}
    np.testing.assert_array_equal(models['j1'].static, models['j1'].coulomb)
    np.testing.assert_array_equal(models['j3'].viscous, 0.0)


def test_a_result_of_another_kind_is_refused():
    with pytest.raises(DataError, match="kind 'friction', got 'payload'"):
        friction_by_joint(friction_result([], 'payload'))


LOADED = SteadyFriction(
    np.array([2.0, 1.8]), np.array([3.0, 2.5]), np.array([0.05, 0.04]), np.array([4.0, 5.0]),
    std=0.1, exponent=np.array([0.7, 0.8]), load_factor=np.array([0.08, 0.05]),
    reference_load=10.0)


@pytest.mark.parametrize('load', [-40.0, -1.0, 0.0, 3.0, 60.0])
@pytest.mark.parametrize('velocity', [-0.5, -0.1, 0.2, 0.8])
def test_friction_from_the_drive_torque_is_that_from_the_load(velocity, load):
    friction = LOADED.torque(velocity, load)
    assert LOADED.torque_of_drive(velocity, load + friction) == pytest.approx(float(friction))


def test_friction_grows_with_load_and_is_the_reference_without():
    assert LOADED.torque(0.3, 30.0) - LOADED.torque(0.3) == pytest.approx(0.08 * 20.0)
    assert LOADED.torque(-0.3) - LOADED.torque(-0.3, 30.0) == pytest.approx(0.05 * 20.0)


def test_the_deviation_is_that_of_the_parameters_and_the_misfit():
    """Against the scatter of laws whose parameters are drawn from the covariance."""
    law = replace(LOADED, covariance=np.broadcast_to(np.diag(
        [0.05, 0.08, 0.004, 0.2, 0.03, 0.01]) ** 2, (2, 6, 6)).copy())
    generator = np.random.default_rng(2)
    names = ('coulomb', 'static', 'stribeck_velocity', 'viscous', 'exponent', 'load_factor')
    drawn = [replace(law, **{
        name: getattr(law, name) + generator.normal(size=2) * std for name, std in zip(
            names, np.sqrt(np.diag(law.covariance[0])), strict=True)}) for _ in range(4000)]
    for velocity, load in ((0.02, 5.0), (-0.3, 30.0), (0.6, 10.0)):
        scatter = np.std([one.torque(velocity, load) for one in drawn])
        assert float(law.deviation(velocity, load)) == pytest.approx(
            np.hypot(scatter, law.std), rel=0.06)


def test_the_best_line_replaces_a_sublinear_law_in_a_urdf():
    law = replace(LOADED, speeds=np.array([0.1, 1.0]))
    friction, damping = law.linear()
    speed = np.linspace(0.1, 1.0, 20)
    line = friction + damping * speed
    mean = 0.5 * (law.torque(speed) - law.torque(-speed))
    assert np.abs(line - mean).max() < 0.06 * mean.max()
