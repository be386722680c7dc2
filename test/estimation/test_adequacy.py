# SPDX-License-Identifier: Apache-2.0
"""Lack of fit against pure error, the covariance with it, and its cause."""

from __future__ import annotations

import numpy as np
import pytest

from robocal_ros.estimation.adequacy import (
    combined_freedom,
    lack_of_fit,
    likely_cause,
    structured_covariance,
)

REPEATS, PLACES = 3, 200
PHASE = 2.0 * np.pi * np.arange(PLACES) / PLACES


def repeated(values: np.ndarray) -> np.ndarray:
    return np.tile(values, REPEATS)


def test_what_repeats_have_in_common_is_told_from_noise() -> None:
    generator = np.random.default_rng(0)
    common = repeated(0.3 * np.sin(5.0 * PHASE))
    noise = generator.normal(scale=0.5, size=common.size)
    found = lack_of_fit(common + noise, np.ones(common.size, dtype=bool), REPEATS, 0)
    assert found.pure_error == pytest.approx(0.5, rel=0.1)
    assert found.unexplained == pytest.approx(0.3 / np.sqrt(2.0), rel=0.25)


def test_noise_alone_is_no_lack_of_fit() -> None:
    noise = np.random.default_rng(1).normal(size=REPEATS * PLACES)
    found = lack_of_fit(noise, np.ones(noise.size, dtype=bool), REPEATS, 0)
    assert found.unexplained < 0.2


def test_without_repeats_the_pure_error_is_unknown() -> None:
    noise = np.random.default_rng(2).normal(size=600)
    found = lack_of_fit(noise, np.ones(noise.size, dtype=bool), 1, 4)
    assert found.pure_error is None
    assert found.unexplained == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize('structured', [0.0, 1.0])
def test_the_covariance_is_that_of_the_errors(structured: float) -> None:
    """Over 400 draws of noise and of an error that all repeats share."""
    generator = np.random.default_rng(3)
    columns = np.column_stack((repeated(np.sin(2.0 * PHASE)), repeated(np.cos(3.0 * PHASE))))
    orders = np.arange(1, 9)
    inverse = np.linalg.inv(columns.T @ columns)
    errors, stated = [], []
    for _ in range(400):
        weights = generator.normal(size=(2, 8))
        common = sum(a * np.sin(k * PHASE) + b * np.cos(k * PHASE)
                     for k, a, b in zip(orders, *weights, strict=True))
        measured = structured * 0.3 * repeated(common) + generator.normal(size=len(columns))
        value = inverse @ columns.T @ measured
        left = measured - columns @ value
        found = structured_covariance(
            columns[None], left[None], np.ones((1, len(left))), inverse, np.zeros((2, 2)),
            np.zeros(2), REPEATS)
        errors.append(value)
        stated.append(np.diag(found.matrix))
    ratio = np.mean(np.square(errors), axis=0) / np.mean(stated, axis=0)
    assert np.all((ratio > 0.75) & (ratio < 1.35)), ratio


def test_white_noise_leaves_the_covariance_as_it_is() -> None:
    generator = np.random.default_rng(4)
    columns = generator.normal(size=(1, 600, 3))
    inverse = np.linalg.inv(columns[0].T @ columns[0])
    found = structured_covariance(
        columns, generator.normal(size=(1, 600)), np.ones((1, 600)), inverse, np.zeros((3, 3)),
        np.zeros(3), 1)
    assert np.diag(found.matrix) == pytest.approx(np.diag(inverse), rel=0.3)
    assert all((found.freedom(direction) or np.inf) > 100.0 for direction in np.eye(3))


def test_a_prior_of_guessed_width_has_one_degree_of_freedom() -> None:
    columns = np.random.default_rng(6).normal(size=(1, 600, 2))
    prior = np.array([0.0, 1e6])
    inverse = np.linalg.inv(columns[0].T @ columns[0] + np.diag(prior))
    residual = np.random.default_rng(7).normal(size=(1, 600))
    known, guessed = (structured_covariance(
        columns, residual, np.ones((1, 600)), inverse, np.diag(prior), part, 1)
        for part in (np.zeros(2), prior))
    assert (known.freedom(np.eye(2)[1]) or np.inf) > 1e3
    assert guessed.freedom(np.eye(2)[1]) == pytest.approx(1.0, rel=1e-2)
    assert (guessed.freedom(np.eye(2)[0]) or np.inf) > 100.0


def test_a_sum_of_variances_has_the_freedom_of_its_estimated_parts() -> None:
    assert combined_freedom(3.0, [(1.0, None)]) is None
    assert combined_freedom(1.0, [(1.0, 7.0)]) == pytest.approx(7.0)
    assert combined_freedom(2.0, [(1.0, 5.0), (1.0, 5.0)]) == pytest.approx(10.0)


def test_the_cause_is_named_by_the_residuals() -> None:
    generator = np.random.default_rng(5)
    time = np.linspace(0.0, 1.0, 300)
    fitted = np.column_stack((np.ones(300), time))
    causes = {'a sine': np.sin(20.0 * time)[:, None], 'a square': np.sign(
        np.sin(33.0 * time))[:, None]}
    residual = 0.5 * np.sin(20.0 * time) + generator.normal(scale=0.1, size=300)
    name, share = likely_cause(residual, fitted, causes) or ('', 0.0)
    assert name == 'a sine'
    assert 0.8 < share < 1.0
    assert likely_cause(generator.normal(size=300), fitted, causes) is None
