# SPDX-License-Identifier: Apache-2.0
"""The causal window: what it averages, what it differentiates, when it has nothing to say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robocal_ros.wrench.smoothing import Window, leaps, matched_weights, slopes_without


def uneven(seed: int, count: int) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).uniform(0.5e-3, 2e-3, count))


@given(seed=st.integers(0, 10**6), count=st.integers(5, 40))
@settings(max_examples=50, deadline=None)
def test_weights_are_exact_for_straight_lines_whatever_the_stamps(seed: int, count: int) -> None:
    time = uneven(seed, count)
    mean, slope = matched_weights(time)
    assert mean.sum() == pytest.approx(1.0)
    assert (mean > -1e-12).all()
    assert slope @ (3.0 + 7.0 * time) == pytest.approx(7.0, rel=1e-9)
    assert slope @ np.ones(count) == pytest.approx(0.0, abs=1e-9)


def test_slope_of_velocity_and_mean_of_acceleration_agree() -> None:
    """What makes inertia cancel against the readings, however fast it changes."""
    time = np.arange(21) * 1e-3
    mean, slope = matched_weights(time)
    for frequency in (2.0, 10.0, 40.0):
        rate = 2.0 * np.pi * frequency
        velocity, acceleration = np.sin(rate * time), rate * np.cos(rate * time)
        assert slope @ velocity == pytest.approx(mean @ acceleration, abs=2e-3 * rate)


def test_the_delay_is_half_the_window() -> None:
    window = Window(0.02, 1)
    for number in range(40):
        window.add(0.002 * number, np.array([1.0]))
    _, _, delay = window.weights()
    assert delay == pytest.approx(0.01)
    assert len(window) == 11


def test_stamps_may_be_those_of_a_wall_clock() -> None:
    window = Window(0.02, 1)
    begin = 1.7e9
    for number in range(3000):
        window.add(begin + 0.001 * number, np.array([0.001 * number]))
    _, slope, delay = window.weights()
    assert slope @ window.rows[:, 0] == pytest.approx(1.0, rel=1e-3)
    assert delay == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize('stamps', [
    [0.0, 0.002, 0.004],
    list(np.arange(8) * 0.001),
    [*np.arange(4) * 0.002, *(0.002 * np.arange(2) + 0.020)],
])
def test_too_few_too_short_or_torn_is_no_window(stamps: list[float]) -> None:
    window = Window(0.02, 1)
    for stamp in stamps:
        window.add(stamp, np.zeros(1))
    assert window.weights() is None


def test_a_gap_is_forgotten_once_it_has_left_the_window() -> None:
    window = Window(0.02, 1)
    for stamp in (*np.arange(11) * 0.002, *(0.05 + np.arange(11) * 0.002)):
        window.add(float(stamp), np.zeros(1))
    assert window.weights() is not None
    window.clear()
    assert window.weights() is None
    assert np.isinf(window.step)


def test_one_lost_sample_does_not_bias_the_slope() -> None:
    window = Window(0.02, 1)
    for number in range(11):
        if number != 4:
            window.add(0.002 * number, np.array([5.0 * 0.002 * number]))
    mean, slope, _ = window.weights()
    assert slope @ window.rows[:, 0] == pytest.approx(5.0)
    assert mean.sum() == pytest.approx(1.0)


@pytest.mark.parametrize('place', range(11))
def test_a_leap_is_seen_and_taken_out_wherever_it_is(place: int) -> None:
    generator = np.random.default_rng(place)
    time = 0.002 * np.arange(11)
    velocity = np.column_stack((0.3 + 2.0 * time, 0.1 - 1.0 * time))
    position = np.column_stack((0.3 * time + time**2, 0.1 * time - 0.5 * time**2))
    velocity += 1e-3 * generator.normal(size=velocity.shape)
    position = 2e-5 * np.round(position / 2e-5)
    assert not leaps(time, position, velocity).any()
    velocity[place, 0] += 0.05
    position[place:, 0] += 1e-4
    assert leaps(time, position, velocity).tolist() == [True, False]
    slopes = slopes_without(time, velocity, np.array([True, False]))
    np.testing.assert_allclose(slopes, [2.0, -1.0], atol=0.25)
