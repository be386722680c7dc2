# SPDX-License-Identifier: Apache-2.0
"""The causal window: what it averages, what it differentiates, when it has nothing to say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from robocal_ros.messages.checks import from_seconds as ns
from robocal_ros.wrench.alignment import (
    Weights,
    Window,
    even_weights,
    leaps,
    matched_weights,
    slopes_without,
)
from robocal_ros.wrench.parameters import WrenchParameters


def split(weights: Weights) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of means, and those of slopes [1/s]."""
    mean, slope = weights.both
    return mean, weights.rate * slope


def uneven(seed: int, count: int) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).uniform(0.5e-3, 2e-3, count))


@given(seed=st.integers(0, 10**6), count=st.integers(5, 40))
@settings(max_examples=50, deadline=None)
def test_weights_are_exact_for_straight_lines_whatever_the_stamps(seed: int, count: int) -> None:
    time = uneven(seed, count)
    weights = matched_weights(time)
    mean, slope = split(weights)
    assert mean.sum() == pytest.approx(1.0)
    assert (mean > -1e-12).all()
    assert slope @ (3.0 + 7.0 * time) == pytest.approx(7.0, rel=1e-9)
    assert slope @ np.ones(count) == pytest.approx(0.0, abs=1e-9)


def test_slope_of_velocity_and_mean_of_acceleration_agree() -> None:
    """What makes inertia cancel against the readings, however fast it changes."""
    time = np.arange(21) * 1e-3
    weights = matched_weights(time)
    mean, slope = split(weights)
    for frequency in (2.0, 10.0, 40.0):
        rate = 2.0 * np.pi * frequency
        velocity, acceleration = np.sin(rate * time), rate * np.cos(rate * time)
        assert slope @ velocity == pytest.approx(mean @ acceleration, abs=2e-3 * rate)


def test_the_delay_is_half_the_window() -> None:
    window = Window(0.02, 1)
    for number in range(40):
        window.add(ns(0.002 * number), np.array([1.0]))
    delay = window.weights().delay
    assert delay == pytest.approx(0.01)
    assert len(window) == 11


def test_stamps_may_be_those_of_a_wall_clock() -> None:
    window = Window(0.02, 1)
    begin = 1_700_000_000 * 10**9
    for number in range(3000):
        window.add(begin + 10**6 * number, np.array([0.001 * number]))
    weights = window.weights()
    slope, delay = split(weights)[1], weights.delay
    assert slope @ window.rows[:, 0] == pytest.approx(1.0, rel=1e-9)
    assert delay == pytest.approx(0.01, rel=1e-9)


@pytest.mark.parametrize('stamps', [
    [0.0, 0.002, 0.004],
    list(np.arange(8) * 0.001),
    [*np.arange(4) * 0.002, *(0.002 * np.arange(2) + 0.020)],
])
def test_too_few_too_short_or_torn_is_no_window(stamps: list[float]) -> None:
    window = Window(0.02, 1)
    for stamp in stamps:
        window.add(ns(stamp), np.zeros(1))
    assert window.weights() is None


def test_a_gap_is_forgotten_once_it_has_left_the_window() -> None:
    window = Window(0.02, 1)
    for stamp in (*np.arange(11) * 0.002, *(0.05 + np.arange(11) * 0.002)):
        window.add(ns(float(stamp)), np.zeros(1))
    assert window.weights() is not None
    window.clear()
    assert window.weights() is None
    assert window.step == 0


def test_one_lost_sample_does_not_bias_the_slope() -> None:
    window = Window(0.02, 1)
    for number in range(11):
        if number != 4:
            window.add(ns(0.002 * number), np.array([5.0 * 0.002 * number]))
    weights = window.weights()
    mean, slope = split(weights)
    assert slope @ window.rows[:, 0] == pytest.approx(5.0)
    assert mean.sum() == pytest.approx(1.0)


@pytest.mark.parametrize('rate', [100, 125, 250, 500, 1000, 2000])
def test_the_default_window_works_at_any_rate(rate: int) -> None:
    values = WrenchParameters()
    window = Window(values.window, 1, values.window_samples)
    for number in range(200):
        window.add(ns(number / rate), np.array([3.0 * number / rate]))
    weights = window.weights()
    slope, delay = split(weights)[1], weights.delay
    assert slope @ window.rows[:, 0] == pytest.approx(3.0)
    assert delay == pytest.approx(max(0.5 * values.window, 2.0 / rate), rel=0.2)


def test_jitter_of_stamps_shares_the_weights_of_even_ones() -> None:
    generator = np.random.default_rng(0)
    window, errors, even = Window(0.02, 1), [], []
    for number in range(400):
        stamp = 10**6 * number + int(generator.normal(0.0, 5e4))
        window.add(stamp, np.array([2.0e-9 * stamp]))
        weights = window.weights()
        if weights is not None:
            even.append(weights.both is even_weights(len(window)).both)
            errors.append(split(weights)[1] @ window.rows[:, 0] - 2.0)
    # 0.05 ms of jitter in 1 ms.
    assert np.mean(even) > 0.9
    assert np.std(errors) < 0.005 * 2.0
    window.add(stamp + 3 * 10**6, np.array([2.0e-9 * (stamp + 3 * 10**6)]))
    assert split(window.weights())[1] @ window.rows[:, 0] == pytest.approx(2.0, rel=1e-9)


@pytest.mark.parametrize('place', range(11))
def test_a_leap_is_seen_and_taken_out_wherever_it_is(place: int) -> None:
    generator = np.random.default_rng(place)
    time = 0.002 * np.arange(11)
    velocity = np.column_stack((0.3 + 2.0 * time, 0.1 - 1.0 * time))
    position = np.column_stack((0.3 * time + time**2, 0.1 * time - 0.5 * time**2))
    velocity += 1e-3 * generator.normal(size=velocity.shape)
    stamps = np.rint(1e9 * time).astype(np.int64)
    position = 2e-5 * np.round(position / 2e-5)
    assert not leaps(stamps, position, velocity).any()
    velocity[place, 0] += 0.05
    position[place:, 0] += 1e-4
    assert leaps(stamps, position, velocity).tolist() == [True, False]
    slopes = slopes_without(stamps, velocity, np.array([True, False]))
    np.testing.assert_allclose(slopes, [2.0, -1.0], atol=0.25)
