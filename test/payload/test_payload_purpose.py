# SPDX-License-Identifier: Apache-2.0
"""What a payload is fit for, against torques computed from loads drawn by its covariance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from support.arms import arm

from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.result import TORQUE_ERROR, accuracy_checks, rated_efforts
from robocal_ros.results.result import Check, Parameter

VALUES = PayloadParameters()
COM = np.array([0.02, -0.01, 0.08])
UNITS = ('kg', *['m'] * 3, *['kg·m²'] * 6)


def checks_of(mass: float, std: np.ndarray, name: str = 'robocal', **values: float) -> list[Check]:
    """Return the checks of a load by its mass and the standard deviations of its parameters."""
    value = np.array([mass, *COM, *(1e-3 * mass * np.array([1.0, 0.0, 0.0, 1.0, 0.0, 1.0]))])
    parameters = [Parameter(str(i), unit, float(x), float(s)) for i, (x, s, unit) in enumerate(
        zip(value, std, UNITS, strict=False))]
    return accuracy_checks(arm(name).robot(), parameters, np.diag(np.square(std)),
                           replace(VALUES, **values), ' By the mass.', ' By the centre.')


def torque_check(*args: object, **values: object) -> Check:
    (check,) = (item for item in checks_of(*args, **values) if item.name == TORQUE_ERROR)
    return check


def test_a_light_tool_known_to_millimetres_is_fit_and_a_heavy_one_is_not() -> None:
    std = np.array([0.005, *[0.004] * 3])
    light, heavy = torque_check(0.5, std), torque_check(10.0, std)
    assert light.passed
    assert light.reason.startswith('Fit for gravity compensation')
    assert 'Fit for motions up to 1 rad/s and 2 rad/s²' in light.reason
    assert light.reason.endswith('The inertia is not identified and counts as that of a point.')
    assert not heavy.passed
    assert heavy.reason.startswith('Not fit for gravity compensation')
    assert heavy.reason.endswith('By the centre.')
    assert torque_check(10.0, np.array([1.0, *[1e-5] * 3])).reason.endswith('By the mass.')
    assert torque_check(10.0, std, max_torque_error=0.1).passed


def test_a_fast_motion_asks_for_the_inertia() -> None:
    std = np.array([1e-4, *[1e-5] * 3, *[0.02] * 6])
    check = torque_check(2.0, std, max_acceleration=50.0)
    assert not check.passed
    assert check.reason.startswith('Fit for gravity compensation')
    assert 'Not fit for motions' in check.reason
    assert check.reason.endswith('due to the inertia: use a faster motion.')
    assert torque_check(2.0, std, max_velocity=0.1, max_acceleration=0.5).passed


def test_the_stated_torque_is_that_of_loads_drawn_from_the_covariance() -> None:
    generator = np.random.default_rng(1)
    std = np.array([0.02, 0.003, 0.002, 0.004, *[2e-4] * 6])
    check = torque_check(2.0, std, 'panda')
    robot = arm('panda').robot()
    low, high = robot.sampling_limits()
    value = np.array([2.0, *COM, 2e-3, 0.0, 0.0, 2e-3, 0.0, 2e-3])

    def torque(parameters: np.ndarray, q: np.ndarray, v: np.ndarray, a: np.ndarray) -> np.ndarray:
        tensor = np.zeros((3, 3))
        tensor[np.triu_indices(3)] = parameters[4:]
        model = robot.model.copy()
        frame = model.frames[model.getFrameId(robot.tool_frame)]
        model.appendBodyToJoint(frame.parentJoint, pin.Inertia(
            parameters[0], parameters[1:4], tensor + np.triu(tensor, 1).T), frame.placement)
        return pin.rnea(model, model.createData(), q, v, a)

    largest, limit = 0.0, np.maximum(0.01 * robot.effort_limit, VALUES.torque_error_floor)
    for _ in range(60):
        q = generator.uniform(low, high)
        v, a = (size * generator.choice((-1.0, 1.0), robot.n) for size in (1.0, 2.0))
        usual = torque(value, q, v, a)
        drawn = np.array([torque(value + std * generator.normal(size=10), q, v, a) - usual
                          for _ in range(100)])
        largest = max(largest, float((1.96 * drawn.std(axis=0) / limit).max()))
    assert check.value / check.limit == pytest.approx(largest, rel=0.2)


def test_limits_of_mass_and_centre_hold_where_they_are_set() -> None:
    std = np.array([0.05, *[0.004] * 3])
    names = ('95 % interval of the mass', '95 % interval of the centre')
    assert not [item for item in checks_of(0.5, std) if item.name in names]
    limited = checks_of(0.5, std, max_mass_interval=0.03, max_com_interval=0.005)
    assert [item.name for item in limited if not item.passed] == list(names)


def test_without_a_limit_in_the_urdf_the_largest_torque_stands_for_it() -> None:
    robot = arm('robocal').robot()
    limits = robot.effort_limit.copy()
    robot.effort_limit = limits.copy()
    robot.effort_limit[1] = np.inf
    torque = np.array([[1.0, -7.0, 0.0, 0.0, 0.0, 0.0], [2.0, 3.0, 0.0, 0.0, 0.0, 0.0]])
    assert rated_efforts(robot, torque).tolist() == [limits[0], 7.0, *limits[2:]]
