# SPDX-License-Identifier: Apache-2.0
"""Torque that repeats over the angle is found in wide sweeps too; noise is none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from robocal_ros.estimation.ripple import RippleRun, find_ripple, ripple_columns

NOISE = 0.1


def sweeps(seed: int, cycles: float = 24.0, amplitude: float = 0.0, colour: float = 0.0,
           width: float = 2.6, count: int = 5000) -> list[RippleRun]:
    """A sweep forth and one back, each with a mean of its own."""
    generator = np.random.default_rng(seed)
    runs = []
    for angle in (np.linspace(-0.5 * width, 0.5 * width, count),
                  np.linspace(0.5 * width, -0.5 * width, count)):
        noise = lfilter([1.0], [1.0, -colour], NOISE * generator.normal(size=count))
        runs.append(RippleRun.of_samples(
            angle, noise + generator.normal() + amplitude * np.sin(cycles * angle + 0.4)))
    return runs


@pytest.mark.parametrize(('cycles', 'amplitude'), [(6.5, 0.05), (24.0, 0.02), (180.0, 0.05)])
def test_ripple_of_wide_sweeps_is_found(cycles, amplitude):
    ripple, = find_ripple(sweeps(1, cycles, amplitude), 6.0)
    assert ripple.cycles == pytest.approx(cycles, abs=0.3)
    assert np.hypot(ripple.sine, ripple.cosine) == pytest.approx(amplitude, rel=0.35)
    columns = ripple_columns(np.array([0.1, 0.2]), [ripple])
    np.testing.assert_allclose(columns @ [ripple.sine, ripple.cosine],
                               ripple.torque(np.array([0.1, 0.2])))


def test_what_looks_like_weight_is_left_alone():
    assert find_ripple(sweeps(2, 3.0, 0.05), 6.0) == ()


def test_white_noise_is_no_ripple():
    assert all(find_ripple(sweeps(seed), 6.0) == () for seed in range(15))


def test_coloured_noise_is_hardly_ever_ripple():
    found = sum(len(find_ripple(sweeps(seed, colour=0.9), 6.0)) for seed in range(10))
    assert found <= 1


@pytest.mark.parametrize('runs', [
    [], [RippleRun(np.zeros(100), np.ones(100))],
    [RippleRun.of_samples(np.array([0.1, 0.2]), np.array([1.0, 1.0]))]])
def test_where_nothing_turns_there_is_nothing_to_find(runs):
    assert find_ripple(runs) == ()
