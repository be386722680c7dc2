# SPDX-License-Identifier: Apache-2.0
"""A payload result as the body whose weight friction identification takes off."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.forward import Tool

from robocal_ros.errors import DataError
from robocal_ros.results.result import CalibrationResult, Parameter, RobotIdentity, State
from robocal_ros.robot.setup import alternative_loads, carried_load

INERTIA = np.array([[5e-3, 1e-4, -2e-4], [1e-4, 6e-3, 3e-4], [-2e-4, 3e-4, 4e-3]])
TOOL = Tool(1.7, np.array([0.02, -0.03, 0.08]), INERTIA)
AXES = ('xx', 'xy', 'xz', 'yy', 'yz', 'zz')


def payload(inertia: bool = True) -> CalibrationResult:
    tensor = dict(zip(AXES, INERTIA[np.triu_indices(3)], strict=True))
    parameters = [Parameter('mass', 'kg', TOOL.mass, 0.01)]
    parameters += [Parameter(f'com_{axis}', 'm', float(value), 1e-4)
                   for axis, value in zip('xyz', TOOL.com, strict=True)]
    parameters += [
        Parameter(f'inertia_{axes}', 'kg·m²', float(value), 1e-4) if inertia else
        Parameter(f'inertia_{axes}', 'kg·m²', state=State.NOT_EVALUATED)
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
