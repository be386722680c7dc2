# SPDX-License-Identifier: Apache-2.0
"""Least squares: truth, covariance, blindness, recursion, correlated residuals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.signal import lfilter

from robocal_ros.errors import DataError, ExcitationError
from robocal_ros.estimation.least_squares import autocorrelation_time, orthonormal, solve

NAMES = ('a', 'b', 'c')
TRUTH = np.array([2.0, -30.0, 0.01])


def problem(rows: int = 60, seed: int = 0, noise: float = 1.0):
    """A problem whose rows have different standard deviations."""
    generator = np.random.default_rng(seed)
    regressor = generator.normal(size=(rows, 3)) * np.array([1.0, 0.1, 40.0])
    std = generator.uniform(0.05, 0.5, rows)
    return regressor, regressor @ TRUTH + noise * std * generator.normal(size=rows), std


def test_a_line_through_three_points_by_hand():
    # y = a + b t through (0, 1), (1, 3), (2, 4): normal equations 3 a + 3 b = 8, 3 a + 5 b = 11.
    regressor = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    fit = solve(regressor, np.array([1.0, 3.0, 4.0]), 2.0, ('a', 'b'))
    np.testing.assert_allclose(fit.value, [7.0 / 6.0, 1.5])
    np.testing.assert_allclose(fit.residual, [-1 / 6, 1 / 3, -1 / 6])
    np.testing.assert_allclose(fit.covariance, 4.0 * np.array([[5, -3], [-3, 3]]) / 6.0)
    assert fit.reduced_chi_square == pytest.approx((1 / 36 + 1 / 9 + 1 / 36) / 4.0)


def test_longley_data_of_nist_to_nine_digits():
    # NIST Statistical Reference Datasets, linear regression, Longley (1967), higher difficulty.
    data = np.array([
        [83.0, 234289, 2356, 1590, 107608, 1947, 60323],
        [88.5, 259426, 2325, 1456, 108632, 1948, 61122],
        [88.2, 258054, 3682, 1616, 109773, 1949, 60171],
        [89.5, 284599, 3351, 1650, 110929, 1950, 61187],
        [96.2, 328975, 2099, 3099, 112075, 1951, 63221],
        [98.1, 346999, 1932, 3594, 113270, 1952, 63639],
        [99.0, 365385, 1870, 3547, 115094, 1953, 64989],
        [100.0, 363112, 3578, 3350, 116219, 1954, 63761],
        [101.2, 397469, 2904, 3048, 117388, 1955, 66019],
        [104.6, 419180, 2822, 2857, 118734, 1956, 67857],
        [108.4, 442769, 2936, 2798, 120445, 1957, 68169],
        [110.8, 444546, 4681, 2637, 121950, 1958, 66513],
        [112.6, 482704, 3813, 2552, 123366, 1959, 68655],
        [114.2, 502601, 3931, 2514, 125368, 1960, 69564],
        [115.7, 518173, 4806, 2572, 127852, 1961, 69331],
        [116.9, 554894, 4007, 2827, 130081, 1962, 70551]])
    regressor = np.column_stack((np.ones(16), data[:, :6]))
    fit = solve(regressor, data[:, 6], 1.0, list('0123456'), max_condition=1e9)
    certified = [-3482258.63459582, 15.0618722713733, -0.358191792925910e-1, -2.02022980381683,
                 -1.03322686717359, -0.511041056535807e-1, 1829.15146461355]
    np.testing.assert_allclose(fit.value, certified, rtol=1e-7)
    std = [890420.383607373, 84.9149257747669, 0.334910077722432e-1, 0.488399681651699,
           0.214274163161675, 0.226073200069370, 455.478499142212]
    np.testing.assert_allclose(fit.std() * np.sqrt(fit.reduced_chi_square), std, rtol=1e-7)


@given(st.lists(st.floats(1e-4, 1e4), min_size=3, max_size=3), st.floats(1e-3, 1e3))
def test_units_of_parameters_and_measurements_do_not_matter(columns, measure):
    regressor, measured, std = problem()
    a = solve(regressor, measured, std, NAMES)
    b = solve(measure * regressor * columns, measure * measured, measure * std, NAMES)
    np.testing.assert_allclose(b.value * columns, a.value, rtol=1e-7)
    np.testing.assert_allclose(b.std() * columns, a.std(), rtol=1e-7)
    assert b.condition == pytest.approx(a.condition, rel=1e-6)
    assert b.reduced_chi_square == pytest.approx(a.reduced_chi_square, rel=1e-6)


# --------------------------------------------------------------------------- blindness


def test_a_column_of_zeros_is_named_with_the_remedy():
    regressor, measured, std = problem()
    regressor[:, 1] = 0.0
    with pytest.raises(ExcitationError,
                       match=r'2 of 3 .*unobservable: b \(.*Turn the wrist') as caught:
        solve(regressor, measured, std, NAMES, hint='Turn the wrist.')
    assert (caught.value.rank, caught.value.needed, caught.value.unobservable) == (2, 3, ('b',))
    assert caught.value.condition > 1e6


@given(st.floats(1e-5, 1e-1))
def test_the_limit_of_the_condition_number_decides(share):
    regressor, measured, std = problem(200)
    regressor = np.linalg.qr(regressor / std[:, None])[0] * std[:, None]
    # Two columns of length one at a small angle: condition number about 2 / angle.
    regressor[:, 2] = (regressor[:, 0] + share * regressor[:, 2]) / np.hypot(1.0, share)
    cosine = 1.0 / np.hypot(1.0, share)
    condition = np.sqrt((1.0 + cosine) / (1.0 - cosine))
    fit = solve(regressor, measured, std, NAMES, max_condition=1.01 * condition)
    assert fit.condition == pytest.approx(condition, rel=1e-3)
    with pytest.raises(ExcitationError, match='unobservable: a, c'):
        solve(regressor, measured, std, NAMES, max_condition=0.99 * condition)


def test_as_many_measurements_as_parameters_leave_no_residual():
    with pytest.raises(DataError, match='3 measurements are too few for 3 .*expected at least 4'):
        solve(np.eye(3), np.ones(3), 1.0, NAMES)


@pytest.mark.parametrize('where', ['regressor', 'measured', 'std'])
@pytest.mark.parametrize('bad', [np.nan, np.inf])
def test_numbers_must_be_finite(where, bad):
    arrays = dict(zip(('regressor', 'measured', 'std'), problem(), strict=True))
    arrays[where].flat[4] = bad
    with pytest.raises(DataError, match='not finite; leave it out'):
        solve(**arrays, names=NAMES)


@pytest.mark.parametrize('bad', [0.0, -1.0])
def test_a_standard_deviation_must_be_positive(bad):
    regressor, measured, std = problem()
    std[3] = bad
    with pytest.raises(DataError, match='standard deviation .*expected a positive number'):
        solve(regressor, measured, std, NAMES)


# --------------------------------------------------------------------- autocorrelation


def ar1(phi: float, k: int, seed: int) -> np.ndarray:
    shocks = np.random.default_rng(seed).normal(size=k + 2000)
    return lfilter([1.0], [1.0, -phi], shocks)[2000:]


@pytest.mark.parametrize('phi', [0.0, 0.3, 0.6, 0.9, 0.97])
def test_a_first_order_process_has_its_textbook_time(phi):
    # Sum of phi^|lag| over all lags: (1 + phi) / (1 - phi).
    times = [autocorrelation_time(ar1(phi, 20_000, seed)) for seed in range(20)]
    assert np.mean(times) == pytest.approx((1.0 + phi) / (1.0 - phi), rel=0.15)


@pytest.mark.parametrize('record', [np.zeros(100), np.full(100, 3.3), np.arange(5.0)])
def test_records_that_tell_nothing_count_once(record):
    assert autocorrelation_time(record) == 1.0


def test_two_equal_columns_are_both_named():
    regressor, measured, std = problem()
    regressor[:, 2] = -3.0 * regressor[:, 0]
    with pytest.raises(ExcitationError, match='unobservable: a, c') as caught:
        solve(regressor, measured, std, NAMES)
    assert caught.value.unobservable == ('a', 'c')


def test_a_column_of_rounding_has_no_direction():
    """A difference that is zero for any posture leaves some 1e-10; scaled up, it is noise."""
    columns = problem()[0]
    rounding = 1e-12 * np.random.default_rng(1).normal(size=(len(columns), 2))
    basis = orthonormal(np.column_stack((columns, rounding)))
    assert basis.shape == (len(columns), 3)
    np.testing.assert_allclose(basis @ (basis.T @ columns), columns, atol=1e-12)
    # Units differ by far less.
    assert orthonormal(columns * [1.0, 1e-6, 1.0]).shape[1] == 3
