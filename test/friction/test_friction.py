# SPDX-License-Identifier: Apache-2.0
"""The friction law and the payload, and how both are read from results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from support.forward import Tool

from robocal_ros.errors import DataError
from robocal_ros.results.result import CalibrationResult, Fit, Parameter, RobotIdentity, State
from robocal_ros.robot.friction_law import SteadyFriction, friction_by_joint
from robocal_ros.robot.setup import alternative_loads, carried_load


def friction_result(parameters, kind='friction') -> CalibrationResult:
    return CalibrationResult(
        kind, 'lspb', RobotIdentity('arm', '', ('j1', 'j2', 'j3', 'j4')), '', tuple(parameters),
        (), np.zeros((0, 0)), (Fit('j1', 'N·m', 1.0, 0.07, 9),), (), (), {}, {}, 'live', 0.0, '0')


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
    models = friction_by_joint(friction_result([
        *eight('j1'), *eight('j2', 'coulomb'), *eight('j3', 'static'), *eight('j4', 'viscous')]))
    assert set(models) == {'j1', 'j3', 'j4'}
    np.testing.assert_allclose(models['j1'].coulomb, [1.0, 1.1])
    np.testing.assert_allclose(models['j1'].static, [2.0, 2.1])
    np.testing.assert_allclose(models['j1'].stribeck_velocity, [3.0, 3.1])
    np.testing.assert_allclose(models['j1'].viscous, [4.0, 4.1])
    assert (models['j1'].std, models['j3'].std) == (0.07, 0.0)
    # What was not identified is left out of the law.
    np.testing.assert_array_equal(models['j3'].static, models['j3'].coulomb)
    np.testing.assert_array_equal(models['j4'].viscous, 0.0)


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


# ------------------------------------------------- the payload whose weight is subtracted

INERTIA = np.array([[5e-3, 1e-4, -2e-4], [1e-4, 6e-3, 3e-4], [-2e-4, 3e-4, 4e-3]])
TOOL = Tool(1.7, np.array([0.02, -0.03, 0.08]), INERTIA)
AXES = ('xx', 'xy', 'xz', 'yy', 'yz', 'zz')


def payload() -> CalibrationResult:
    tensor = dict(zip(AXES, INERTIA[np.triu_indices(3)], strict=True))
    parameters = [Parameter('mass', 'kg', TOOL.mass, 0.01)]
    parameters += [Parameter(f'com_{axis}', 'm', float(value), 1e-4)
                   for axis, value in zip('xyz', TOOL.com, strict=True)]
    parameters += [
        Parameter(f'inertia_{axes}', 'kg·m²', float(value), 1e-4)
        for axes, value in tensor.items()]
    return CalibrationResult(
        'payload', 'static_poses', RobotIdentity('arm', '', ('a',)), 'tool0', tuple(parameters),
        (), np.zeros((0, 0)), (), (), (), {}, {}, 'live', 0.0, '0')


def test_the_body_is_that_of_the_result():
    body = carried_load(payload())
    assert body.mass == TOOL.mass
    np.testing.assert_array_equal(body.com, TOOL.com)
    np.testing.assert_allclose(body.inertia, INERTIA)


def test_inertia_counts_all_or_nothing():
    result = payload()
    holed = replace(result, parameters=tuple(
        replace(p, value=None, state=State.NOT_IDENTIFIED) if p.name == 'inertia_yy' else p
        for p in result.parameters))
    np.testing.assert_array_equal(carried_load(holed).inertia, 0.0)


def test_results_without_mass_or_of_another_kind_are_refused():
    with pytest.raises(DataError, match="kind 'payload', got 'friction'"):
        carried_load(replace(payload(), kind='friction'))
    lacking = replace(payload(), parameters=tuple(
        replace(p, value=None, state=State.NOT_IDENTIFIED, note='no motion')
        if p.name == 'mass' else p for p in payload().parameters))
    with pytest.raises(DataError, match="'mass' .* not_identified: no motion"):
        carried_load(lacking)


def test_alternatives_span_the_uncertainty():
    factor = np.random.default_rng(2).normal(size=(4, 4)) * [[1e-2], [1e-3], [1e-3], [1e-3]]
    covariance = factor @ factor.T
    names = ('mass', 'com_x', 'com_y', 'com_z')
    result = replace(payload(), covariance_names=names, covariance=covariance)
    off = np.array([[load.mass - TOOL.mass, *(load.com - TOOL.com)]
                    for load in alternative_loads(result)])
    np.testing.assert_allclose(off.T @ off, covariance, atol=1e-12)


def test_a_mass_from_a_scale_counts_with_its_own_deviation():
    result = replace(payload(), covariance_names=('com_x',), covariance=np.array([[4e-8]]))
    off = np.array([[load.mass - TOOL.mass, *(load.com - TOOL.com)]
                    for load in alternative_loads(result)])
    np.testing.assert_allclose(off.T @ off, np.diag([1e-4, 4e-8, 1e-8, 1e-8]), atol=1e-12)


POSITIVE = st.floats(0.01, 10.0)


@st.composite
def laws(draw):
    coulomb, beyond, speed, viscous = (np.array([draw(POSITIVE), draw(POSITIVE)]) for _ in 'csvb')
    return SteadyFriction(coulomb, coulomb * (1.0 + beyond), speed, viscous)


@given(laws(), st.floats(-5.0, 5.0))
def test_the_law_by_its_formula_in_both_directions(law, v):
    s = int(v < 0.0)
    expected = (law.coulomb[s] + (law.static[s] - law.coulomb[s])
                * np.exp(-(v / law.stribeck_velocity[s])**2)) * np.sign(v) + law.viscous[s] * v
    assert float(law.torque(v)) == pytest.approx(expected, abs=1e-12)
