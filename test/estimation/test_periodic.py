# SPDX-License-Identifier: Apache-2.0
"""Fourier series of repeated motions, from positions as encoders report them."""

from __future__ import annotations

import numpy as np
import pytest

from robocal_ros.estimation.block_averages import Blocks, periodic_motion
from robocal_ros.estimation.least_squares import Delay, find_delay
from robocal_ros.messages.samples import JointSamples

PERIOD = 6.37


def motion(time: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return position, velocity and acceleration of three joints, (k, 3) each."""
    generator = np.random.default_rng(5)
    order = 2.0 * np.pi / PERIOD * np.arange(1, 5)
    sine, cosine = generator.normal(scale=0.25, size=(2, 3, 4)) / np.arange(1, 5)
    s, c = np.sin(np.outer(time, order)), np.cos(np.outer(time, order))
    return (s @ sine.T + c @ cosine.T, (c * order) @ sine.T - (s * order) @ cosine.T,
            -(s * order**2) @ sine.T - (c * order**2) @ cosine.T)


@pytest.mark.parametrize('rate', [50.0, 100.0, 125.0, 500.0, 1000.0])
@pytest.mark.parametrize('step', [1e-5, 1.5e-3])
def test_accelerations_of_stepped_positions_are_within_half_a_percent(
    rate: float, step: float
) -> None:
    time = np.arange(0.0, 3.2 * PERIOD, 1.0 / rate)
    found = periodic_motion(time, np.round(motion(time)[0] / step) * step, 30.0)
    assert found is not None
    assert found.repeats == 3
    assert found.period == pytest.approx(PERIOD, rel=1e-4)
    inside = time[(time > found.start) & (time < found.start + 3 * found.period)]
    for fitted, true in zip(found.at(inside), motion(inside), strict=True):
        assert np.std(fitted - true) < 5e-3 * np.std(true)


@pytest.mark.parametrize('step', [2e-5, 1.5e-3])
@pytest.mark.parametrize('phase', [0.0, 0.5])
def test_errors_that_all_repeats_share_are_no_harmonics(phase: float, step: float) -> None:
    # A period of 400 samples: encoders stand, and err, alike in each repeat.
    time = PERIOD / 400.0 * np.arange(1400)
    moving = np.clip(time - PERIOD / 400.0 * (60.0 + phase), 0.0, 3.0 * PERIOD)
    found = periodic_motion(time, np.round(motion(moving)[0] / step) * step, 30.0)
    assert found is not None
    assert found.repeats == 3
    assert found.harmonics == 4


def test_a_few_corrupt_positions_do_not_move_the_series() -> None:
    time = np.arange(0.0, 3.2 * PERIOD, 0.01)
    position = motion(time)[0]
    corrupt = position.copy()
    corrupt[[200, 900, 1400]] += 0.3
    clean, found = (periodic_motion(time, item, 30.0) for item in (position, corrupt))
    assert clean is not None
    assert found is not None
    assert np.abs(found.at(time)[2] - clean.at(time)[2]).max() < 1e-2


def test_the_window_that_repeats_is_found_beside_approach_pause_and_return() -> None:
    time = np.arange(0.0, 5.0 * PERIOD, 0.01)
    begin = 9.0
    moving = np.clip(time - begin, 0.0, 3.0 * PERIOD)
    away = 0.4 * np.exp(-((time - 4.0) / 0.8)**2) + 0.4 * np.clip((time - 29.5) / 1.5, 0.0, 1.0)
    found = periodic_motion(time, motion(moving)[0] + away[:, None], 30.0)
    assert found is not None
    assert found.repeats == 3
    assert found.start == pytest.approx(begin, abs=0.02 * PERIOD)
    assert found.period == pytest.approx(PERIOD, rel=1e-4)


def test_a_motion_that_does_not_repeat_is_not_periodic() -> None:
    time = np.arange(0.0, 20.0, 0.01)
    chirp = np.sin(0.4 * time + 0.03 * time**2)[:, None]
    assert periodic_motion(time, chirp, 30.0) is None


def delay_of(measured: np.ndarray, time: np.ndarray, step: float) -> Delay:
    """Return the delay of measured values against stepped positions."""
    position = np.round(motion(time)[0] / step) * step
    samples = JointSamples(('a', 'b', 'c'), time, position, position, measured)
    blocks = Blocks.of(samples, 5.0, 0.1)
    v, a = blocks.centre.velocity, blocks.centre.acceleration
    columns = [np.column_stack((a[:, j], np.tanh(v[:, j] / 0.03), v[:, j])) for j in range(3)]
    return find_delay(lambda shift: blocks.sample_means(time - shift, measured), columns,
                      np.zeros_like(v), blocks.period)


@pytest.mark.parametrize('delay', [0.0, 0.02, 0.05])
@pytest.mark.parametrize('step', [1e-5, 1.5e-3])
def test_a_delay_is_found_on_stepped_positions(delay: float, step: float) -> None:
    time = np.arange(0.0, 3.2 * PERIOD, 0.008)
    noise = np.random.default_rng(1).normal(scale=0.2, size=(len(time), 3))
    _, v, a = motion(time - delay)
    found = delay_of(3.0 * a + 2.0 * np.tanh(v / 0.03) + v + noise, time, step)
    assert found.identified
    assert found.value == pytest.approx(delay, abs=1e-3)


def test_a_delay_that_does_not_settle_is_as_uncertain_as_its_steps() -> None:
    generator = np.random.default_rng(1)
    time = np.arange(0.0, 3.2 * PERIOD, 0.05)
    _, _, a = motion(time)
    jerk = np.gradient(a, 0.05, axis=0)
    tried = []

    def shifted(delay: float) -> np.ndarray:
        tried.append(delay)
        return a + delay * jerk + generator.normal(scale=0.03, size=a.shape)

    found = find_delay(shifted, list(a.T[..., None]), np.zeros_like(a), 0.05)
    assert found.identified
    assert found.std > abs(found.value - tried[-1]) > 0.0


def test_a_delay_is_unknown_where_values_do_not_depend_on_the_motion() -> None:
    time = np.arange(0.0, 3.2 * PERIOD, 0.008)
    noise = np.random.default_rng(1).normal(size=(len(time), 3))
    found = delay_of(noise, time, 1e-5)
    assert not found.identified
    assert found.value == 0.0
