# SPDX-License-Identifier: Apache-2.0
"""Mixed models: sizes of random effects, their covariance, and degrees of freedom."""

from __future__ import annotations

import numpy as np
import pytest

from robocal_ros.estimation.random_effects import Effect, fit_mixed

GROUPS, EACH = 12, 4


def groups() -> np.ndarray:
    return np.kron(np.eye(GROUPS), np.ones((EACH, 1)))


def drawn(seed: int, size: float, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Return a line through measurements whose groups are shifted, the truth being (1, 2)."""
    generator = np.random.default_rng(seed)
    count = GROUPS * EACH
    regressor = np.column_stack((np.ones(count), np.repeat(np.linspace(-1.0, 1.0, GROUPS), EACH)))
    measured = (regressor @ [1.0, 2.0] + groups() @ (size * generator.normal(size=GROUPS))
                + noise * generator.normal(size=count))
    return regressor, measured


def test_the_size_is_that_of_the_analysis_of_variance():
    """In a balanced design, the mean square between groups gives the same estimate."""
    regressor, measured = drawn(1, 0.5, 0.1)
    fit = fit_mixed(regressor, measured, np.full(len(measured), 0.1), [Effect('group', groups())])
    means = measured.reshape(GROUPS, EACH).mean(axis=1)
    line = regressor[::EACH]
    left = means - line @ np.linalg.lstsq(line, means, rcond=None)[0]
    variance = left @ left / (GROUPS - 2) - 0.1**2 / EACH
    assert fit.std['group'] == pytest.approx(np.sqrt(variance), rel=1e-3)
    # Balanced: the fixed part is that of plain least squares of the means.
    np.testing.assert_allclose(fit.value, np.linalg.lstsq(line, means, rcond=None)[0], rtol=1e-6)
    expected = (variance + 0.1**2 / EACH) * np.linalg.inv(line.T @ line)
    np.testing.assert_allclose(fit.covariance, expected, rtol=2e-3, atol=1e-12)
    assert fit.freedom(np.array([0.0, 1.0])) == pytest.approx(GROUPS - 2, rel=0.05)


def test_scatter_of_rows_is_an_effect_without_columns():
    regressor, measured = drawn(2, 0.0, 0.3)
    rows = np.ones(len(measured), dtype=bool)
    fit = fit_mixed(regressor, measured, np.zeros(len(measured)),
                    [Effect('rows', np.empty((len(measured), 0)), rows)])
    left = measured - regressor @ np.linalg.lstsq(regressor, measured, rcond=None)[0]
    assert fit.std['rows'] == pytest.approx(np.sqrt(left @ left / (len(left) - 2)), rel=1e-3)


def test_a_certain_effect_has_the_size_at_the_peak_of_the_likelihood_times_it():
    regressor, measured = drawn(2, 0.0, 0.3)
    fit = fit_mixed(regressor, measured, np.zeros(len(measured)), [Effect(
        'rows', np.empty((len(measured), 0)), np.ones(len(measured), dtype=bool), certain=True)])
    left = measured - regressor @ np.linalg.lstsq(regressor, measured, rcond=None)[0]
    assert fit.std['rows'] == pytest.approx(np.sqrt(left @ left / (len(left) - 3)), rel=1e-3)


def test_without_an_effect_the_covariance_is_that_of_the_noise():
    regressor, measured = drawn(3, 0.0, 0.1)
    fit = fit_mixed(regressor, measured, np.full(len(measured), 0.1), [])
    np.testing.assert_allclose(fit.covariance, 0.01 * np.linalg.inv(regressor.T @ regressor),
                               atol=1e-15)
    assert fit.freedom(np.array([1.0, 0.0])) is None


def test_a_stated_size_is_propagated_where_the_data_cannot_tell():
    """A gain error that all measurements share looks like the slope itself."""
    regressor, measured = drawn(4, 0.0, 0.01)
    fit = fit_mixed(regressor, measured, np.full(len(measured), 0.01), [
        Effect('gain', 2.0 * regressor[:, 1:], prior_std=0.05, estimated=False)])
    assert np.sqrt(fit.covariance[1, 1]) == pytest.approx(0.1, rel=0.01)


def test_rows_left_out_count_for_nothing():
    regressor, measured = drawn(5, 0.3, 0.1)
    effects = [Effect('group', groups())]
    fit = fit_mixed(regressor, measured, np.full(len(measured), 0.1), effects)
    spoilt = measured.copy()
    spoilt[:EACH] += 100.0
    shift = fit.left_out(slice(0, EACH))[0][:2]
    known = [Effect('group', groups(), prior_std=fit.std['group'], estimated=False)]
    rest = slice(EACH, None)
    again = fit_mixed(regressor[rest], spoilt[rest], np.full(len(measured) - EACH, 0.1),
                      [Effect('group', groups()[rest, 1:], prior_std=known[0].prior_std,
                              estimated=False)])
    np.testing.assert_allclose(shift, again.value, rtol=1e-9)


@pytest.mark.parametrize('seed', range(8))
def test_small_noise_and_large_unknowns_do_not_hide_the_sizes(seed: int) -> None:
    """Unknowns that effects may replace, a million times the noise."""
    g, count = np.random.default_rng(seed), 480
    columns = g.normal(size=(count, 30))
    unknown = 10.0 * columns[:, :8] @ g.normal(size=(8, 8))
    measured = columns @ (2e-3 * g.normal(size=30)) + 1e-5 * g.normal(size=count)
    rows = np.ones(count, dtype=bool)
    fit = fit_mixed(np.zeros((count, 0)), measured, np.zeros(count), [
        Effect('noise', np.zeros((count, 0)), rows), Effect('effect', columns, prior_std=1e-4),
        Effect('unknown', unknown, prior_std=1.0, estimated=False)])
    assert fit.std['noise'] == pytest.approx(1e-5, rel=0.15)
    assert fit.std['effect'] == pytest.approx(2e-3, rel=0.6)
    left = measured - columns @ fit.coefficients['effect'] - unknown @ fit.coefficients['unknown']
    assert np.sqrt(np.mean(left**2)) < 1.05e-5
