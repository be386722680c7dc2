# SPDX-License-Identifier: Apache-2.0
"""From points of torque against speed to a law: nested models, honest choice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import chi2

from robocal_ros.errors import DataError
from robocal_ros.friction.fit import Choice, DirectionFit, Side, distinct, unidentified
from robocal_ros.friction.model import MODELS, evaluate, jacobian, parameter_names
from robocal_ros.results import rms

SPEED = np.geomspace(0.004, 0.7, 12)
STD = np.full(12, 1e-3)

# Transmitted load minus its mean, not confounded with the speed.
LOAD = np.array([3.0, -4.0, 1.0, 5.0, -2.0, -5.0, 4.0, 0.0, -3.0, 2.0, -1.0, 0.0])
VALUES = {
    'coulomb': np.array([0.7]),
    'coulomb_viscous': np.array([0.7, 0.6]),
    'coulomb_power': np.array([0.7, 0.6, 0.5]),
    'stribeck': np.array([0.7, 1.2, 0.04, 0.6]),
    'stribeck_power': np.array([0.7, 1.2, 0.04, 0.6, 0.5]),
}
VALUES |= {f'{model}_load': np.append(value, 0.05) for model, value in VALUES.items()}


def side(speed: np.ndarray, torque: np.ndarray, std: np.ndarray, load: object = 0.0) -> Side:
    return Side(speed, torque, std, np.broadcast_to(load, speed.shape), np.zeros_like(speed))


def fitted(speed: np.ndarray, torque: np.ndarray, std: np.ndarray, model: str) -> DirectionFit:
    return DirectionFit(side(speed, torque, std), model)


def stribeck_unidentified(fit: DirectionFit) -> str:
    return unidentified(fit).get('stribeck_velocity', '')


def plain(model: str, value: np.ndarray, speed: np.ndarray) -> np.ndarray:
    """The law by its formula, at the loads of ``LOAD`` where there are as many speeds."""
    named = {'static': value[0], 'stribeck_velocity': 1.0, 'viscous': 0.0, 'exponent': 1.0,
             'load_factor': 0.0, **dict(zip(parameter_names(model), value, strict=True))}
    return (named['coulomb'] + (named['static'] - named['coulomb'])
            * np.exp(-(speed / named['stribeck_velocity'])**2)
            + named['viscous'] * speed**named['exponent']
            + (named['load_factor'] * LOAD if named['load_factor'] else 0.0))


@st.composite
def stribeck(draw: st.DrawFn) -> np.ndarray:
    coulomb = draw(st.floats(0.1, 10.0))
    return np.array([coulomb, coulomb * (1.0 + draw(st.floats(0.3, 1.5))),
                     draw(st.floats(0.015, 0.15)), coulomb * draw(st.floats(0.2, 2.0))])


@pytest.mark.parametrize('model', MODELS)
def test_a_law_is_its_formula(model):
    np.testing.assert_allclose(evaluate(model, VALUES[model], SPEED, LOAD),
                               plain(model, VALUES[model], SPEED), rtol=1e-12)


@pytest.mark.parametrize('model', MODELS)
def test_derivatives_by_finite_differences(model):
    value = VALUES[model]
    for column, step in enumerate(np.diag(1e-6 * value)):
        slope = (evaluate(model, value + step, SPEED, LOAD)
                 - evaluate(model, value - step, SPEED, LOAD)) / (2e-6 * value[column])
        np.testing.assert_allclose(jacobian(model, value, SPEED, LOAD)[:, column], slope,
                                   rtol=1e-6, atol=1e-9)


@given(stribeck())
def test_clean_points_give_the_law_back(value):
    fit = fitted(SPEED, plain('stribeck', value, SPEED), STD, 'stribeck')
    np.testing.assert_allclose(fit.value, value, rtol=1e-5)
    assert np.abs(fit.residual).max() < 1e-5 * value[1]
    assert stribeck_unidentified(fit) == ''


@given(stribeck(), st.floats(0.35, 0.8))
def test_clean_points_of_sublinear_friction_with_a_rise_give_the_torque_back(value, exponent):
    torque = plain('stribeck_power', np.append(value, exponent), SPEED)
    fit = fitted(SPEED, torque, STD, 'stribeck_power')
    assert np.abs(fit.residual).max() < 1e-5 * value[1]


@pytest.mark.parametrize('seed', range(5))
def test_physics_bounds_hold_whatever_the_points_say(seed):
    generator = np.random.default_rng(seed)
    # Friction that falls with speed and rises at none: negative everything, unbounded.
    torque = 0.3 - 0.4 * SPEED + 0.2 * generator.normal(size=12) * (1.0 + seed % 3)
    coulomb, static, velocity, viscous = fitted(SPEED, torque, STD, 'stribeck').value
    assert static >= coulomb >= 0.0
    assert velocity > 0.0
    assert viscous >= 0.0


@pytest.mark.parametrize('model', MODELS)
def test_too_few_points_are_refused_by_number(model):
    count = len(parameter_names(model))
    with pytest.raises(DataError, match=f'has {count} parameters .* got {count}\\.'):
        fitted(SPEED[:count], np.ones(count), np.ones(count), model)


def test_an_exponent_without_viscous_friction_is_not_blamed_on_its_own_deviation() -> None:
    fit = fitted(SPEED, 1.0 - 0.01 * SPEED, STD, 'coulomb_power')
    assert fit.named(fit.std)['exponent'] < 0.15
    assert unidentified(fit)['exponent'] == 'the viscous part is within two deviations of zero'


class TestChoice:
    """Models are judged against each other by the data alone."""

    @pytest.mark.parametrize('true_model', MODELS)
    def test_the_model_that_made_the_points_is_chosen(self, true_model):
        std = np.full(12, 0.004)
        noise = np.random.default_rng(1).normal(size=(2, 12)) * std
        torque = plain(true_model, VALUES[true_model], SPEED) + noise
        chosen = Choice({name: side(SPEED, row, std, LOAD) for name, row in zip(
            ('forward', 'backward'), torque, strict=True)}, 'auto')
        assert chosen.model == true_model
        assert chosen.held_out
        assert true_model in chosen.evidence()

    def test_parameters_that_the_data_cannot_determine_are_named(self):
        torque = plain('coulomb_viscous', VALUES['coulomb_viscous'], SPEED)
        noisy = side(SPEED, torque + 0.004 * np.random.default_rng(1).normal(size=12),
                     np.full(12, 0.004), LOAD)
        found = Choice({'forward': noisy}, 'auto')
        assert found.model == 'coulomb_viscous'
        assert {'stribeck_velocity', 'exponent', 'load_factor'} == set(found.unidentified)
        assert all(found.unidentified.values())

    def test_without_a_change_of_load_there_is_no_load_factor(self):
        torque = plain('coulomb_viscous', VALUES['coulomb_viscous'], SPEED)
        found = Choice({'forward': side(SPEED, torque, STD)}, 'coulomb_viscous_load')
        assert 'load varies by ±0.00 N·m' in found.unidentified['load_factor']

    def test_one_speed_below_the_bend_repeated_is_still_one(self):
        speed = np.concatenate(([0.01, 0.010001, 0.0100002], np.geomspace(0.06, 0.7, 9)))
        torque = plain('stribeck', np.array([0.7, 1.2, 0.03, 0.6]), speed)
        fit = fitted(speed, torque, STD, 'stribeck')
        assert 'add lower speeds' in stribeck_unidentified(fit)

    def test_flat_friction_shows_no_rise(self):
        noise = np.random.default_rng(5).normal(size=12) * 0.01
        torque = plain('coulomb_viscous', VALUES['coulomb_viscous'], SPEED) + noise
        fit = fitted(SPEED, torque, np.full(12, 0.01), 'stribeck')
        assert stribeck_unidentified(fit)

    @pytest.mark.parametrize('seed', range(4))
    def test_a_rise_up_to_fast_runs_is_found_though_its_parts_are_uncertain(self, seed):
        """Beyond the last speed the rise goes on, so that Coulomb friction is an extrapolation."""
        speed, std = np.geomspace(0.005, 0.6, 10), np.full(10, 0.006)
        torque = plain('stribeck', np.array([0.10, 0.20, 0.3, 0.05]), speed)
        noise = np.random.default_rng(seed).normal(size=(2, 10)) * std
        chosen = Choice({name: side(speed, row, std) for name, row in zip(
            ('forward', 'backward'), torque + noise, strict=True)}, 'auto')
        assert chosen.model == 'stribeck'
        for fit in chosen.fits.values():
            assert rms(fit.at(speed, 0.0) - torque) < 1.5 * std[0]


@pytest.mark.parametrize('model', MODELS)
def test_stated_scatter_is_the_scatter(model):
    """χ² of an estimate against its covariance."""
    value, std = VALUES[model], np.full(12, 0.004)
    torque = plain(model, value, SPEED) + std * np.random.default_rng(3).normal(size=12)
    fit = DirectionFit(side(SPEED, torque, std, LOAD), model)
    error = fit.value - value
    distance = float(error @ np.linalg.solve(fit.covariance, error))
    assert chi2.ppf(0.005, len(value)) < distance < chi2.ppf(0.995, len(value))


def test_repeated_speeds_count_once():
    speed = np.array([0.1, 0.0100001, 0.2, 0.01, 0.0101, 0.1999])
    assert len(distinct(speed)) == 3
    assert len(distinct(np.zeros(0))) == 0
