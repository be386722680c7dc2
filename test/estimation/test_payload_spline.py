# SPDX-License-Identifier: Apache-2.0
"""Splines by a filter against those of SciPy, ends included."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import make_interp_spline

from robocal_ros.estimation.blocks import UniformSpline

PERIOD, START = 0.04, 3.0


def values_at(time: np.ndarray) -> np.ndarray:
    rough = 0.1 * np.random.default_rng(0).normal(size=len(time))
    return np.column_stack((np.sin(3.0 * time), time**2 + np.cos(17.0 * time), rough))


@pytest.mark.parametrize('count', [40, 41, 1000])
def test_values_and_derivatives_are_those_of_scipy_s_spline(count):
    time = START + PERIOD * np.arange(count)
    values = values_at(time)
    known, found = make_interp_spline(time, values, k=5), UniformSpline(START, PERIOD, values)
    places = np.concatenate((
        time, np.random.default_rng(1).uniform(time[0], time[-1], 300), time[-3:] - 1e-9))
    for order, derivative in enumerate(found.at(places)):
        expected = known(places, nu=order)
        np.testing.assert_allclose(
            derivative / np.abs(expected).max(axis=0), expected / np.abs(expected).max(axis=0),
            atol=1e-9)


def test_a_quintic_comes_back_as_it_is():
    time = START + PERIOD * np.arange(60)
    quintic = np.polynomial.Polynomial([0.3, -1.0, 2.0, 0.5, -0.7, 0.2])
    spline = UniformSpline(START, PERIOD, quintic(time - 4.0)[:, None])
    places = np.linspace(time[0], time[-1], 500)
    for order, derivative in enumerate(spline.at(places)):
        np.testing.assert_allclose(
            derivative[:, 0], quintic.deriv(order)(places - 4.0) if order else quintic(
                places - 4.0), atol=1e-9)
