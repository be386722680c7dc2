# SPDX-License-Identifier: Apache-2.0
"""Exciting records in blocks: splines and series, both sides averaged alike, delays."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from support.excitation_cell import RATE, TOOL, Record, exciting

from robocal_ros.errors import DataError
from robocal_ros.estimation.block_averages import Blocks, derivatives, periodic_motion
from robocal_ros.estimation.least_squares import Delay, find_delay
from robocal_ros.messages.samples import JointSamples

PERIOD = 0.04
# Period of the motions that repeat [s].
CYCLE = 6.37


@pytest.fixture(scope='module')
def record() -> Record:
    return Record('robocal', TOOL, exciting())


@pytest.fixture(scope='module')
def blocks(record) -> Blocks:
    return Blocks.of(record.joints(), 5.0, 0.2)


def test_derivatives_are_those_of_the_motion(record, blocks):
    middle = 0.5 * (blocks.edges[1:] + blocks.edges[:-1])
    for found, true, within in zip(
        (blocks.centre.position, blocks.centre.velocity, blocks.centre.acceleration),
        record.motion.at(middle), (1e-6, 1e-5, 1e-3), strict=True
    ):
        np.testing.assert_allclose(found, true, atol=within)


def test_both_sides_are_averaged_alike(record, blocks):
    """What is measured and what follows from the motion agree, curvature and all."""
    def function(q: np.ndarray, v: np.ndarray, a: np.ndarray) -> np.ndarray:
        return np.sin(3.0 * q) + v * np.abs(v) + 0.3 * a * q

    q, v, a = record.motion.at(record.time)
    measured = blocks.sample_means(record.time, function(q, v, a))
    followed = blocks.means(function)
    assert np.abs(measured - followed).max() < 2e-4 * np.abs(followed).max()


def test_a_loss_of_samples_moves_no_mean(record, blocks):
    values = np.column_stack((np.sin(3.0 * record.time), 5.0 * record.time))
    whole = blocks.sample_means(record.time, values)
    keep = np.random.default_rng(1).random(len(record.time)) > 0.1
    keep[1000:1018] = False
    some = blocks.sample_means(record.time[keep], values[keep])
    np.testing.assert_allclose(some, whole, atol=5e-3)
    assert np.median(np.abs(some - whole)) < 1e-4


def test_stamps_beside_those_of_the_positions_move_no_mean(record, blocks):
    values = np.sin(3.0 * record.time)[:, None]
    late = record.time + 0.4 / RATE
    shifted = blocks.sample_means(late, np.sin(3.0 * late)[:, None])
    np.testing.assert_allclose(shifted, blocks.sample_means(record.time, values), atol=5e-5)


def test_white_noise_stays_white(record, blocks):
    noise = np.random.default_rng(2).normal(size=(len(record.time), 20))
    means = blocks.sample_means(record.time, noise)
    each = round(blocks.period * RATE)
    assert means.std() * np.sqrt(each) == pytest.approx(1.0, abs=0.02)
    neighbours = np.mean(means[1:] * means[:-1]) / np.mean(means**2)
    assert abs(neighbours) < 4.0 / np.sqrt(means.size)


def test_the_slowest_speed_of_a_block_is_zero_where_a_joint_turns_round(record, blocks):
    fine = np.arange(blocks.edges[0], blocks.edges[-1], 1e-3)
    velocity = record.motion.at(fine)[1]
    place = np.clip(np.searchsorted(blocks.edges, fine, 'right') - 1, 0, len(blocks.slowest) - 1)
    for joint in range(velocity.shape[1]):
        turns = np.flatnonzero(np.diff(np.sign(velocity[:, joint])) != 0)
        inside = [turn for turn in turns
                  if 0.1 < (fine[turn] - blocks.edges[place[turn]]) / blocks.period < 0.9]
        assert inside
        assert (blocks.slowest[place[inside], joint] == 0.0).all()
    fastest = np.abs(blocks.centre.velocity)
    assert (blocks.slowest <= fastest + 1e-9).all()


def but(samples: JointSamples, rows: slice = slice(None), **changes) -> JointSamples:
    return replace(samples, **{
        name: changes.get(name, getattr(samples, name)[rows])
        for name in ('time', 'position', 'velocity', 'effort')})


@pytest.mark.parametrize(('rows', 'sentence'), [
    (slice(None, None, 20),
     'Joint states have new values at 12 Hz; a band of 5.0 Hz needs at least 20 Hz'),
    (slice(0, 300), r'The record lasts 1\.\d+ s, too short to excite anything'),
    (slice(0, 1), 'No joint states are recorded'),
])
def test_records_that_cannot_do(record, rows, sentence):
    with pytest.raises(DataError, match=sentence):
        Blocks.of(but(record.joints(), rows), 5.0, 0.2)


def test_an_arm_that_rests_excites_nothing(record):
    still = but(record.joints(), position=np.zeros((len(record.time), 6)))
    with pytest.raises(DataError, match=r'No joint moved by more than 0\.2 rad .* Call run'):
        Blocks.of(still, 5.0, 0.2)


def test_readings_too_sparse_to_average(record, blocks):
    few = record.time[::40]
    with pytest.raises(DataError, match=r'Only \d+ of \d+ stretches of 40 ms hold a measured'):
        blocks.sample_means(few, np.ones((len(few), 6)))


# ------------------------------------------------------------------------------- splines


def test_a_quintic_comes_back_as_it_is():
    time = PERIOD * np.arange(60)
    quintic = np.polynomial.Polynomial([0.3, -1.0, 2.0, 0.5, -0.7, 0.2])
    found = derivatives(SimpleNamespace(period=PERIOD), quintic(time - 1.0)[:, None])
    for order, derivative in enumerate(found):
        np.testing.assert_allclose(
            derivative[:, 0], quintic.deriv(order)(time - 1.0) if order else quintic(
                time - 1.0), atol=1e-9)


# ------------------------------------------------- series of repeated motions, and delays


def motion(time: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return position, velocity and acceleration of three joints, (k, 3) each."""
    generator = np.random.default_rng(5)
    order = 2.0 * np.pi / CYCLE * np.arange(1, 5)
    sine, cosine = generator.normal(scale=0.25, size=(2, 3, 4)) / np.arange(1, 5)
    s, c = np.sin(np.outer(time, order)), np.cos(np.outer(time, order))
    return (s @ sine.T + c @ cosine.T, (c * order) @ sine.T - (s * order) @ cosine.T,
            -(s * order**2) @ sine.T - (c * order**2) @ cosine.T)


@pytest.mark.parametrize('rate', [50.0, 100.0, 125.0, 500.0, 1000.0])
@pytest.mark.parametrize('step', [1e-5, 1.5e-3])
def test_accelerations_of_stepped_positions_are_within_half_a_percent(
    rate: float, step: float
) -> None:
    time = np.arange(0.0, 3.2 * CYCLE, 1.0 / rate)
    found = periodic_motion(time, np.round(motion(time)[0] / step) * step, 30.0)
    assert found is not None
    assert found.repeats == 3
    assert found.period == pytest.approx(CYCLE, rel=1e-4)
    inside = time[(time > found.start) & (time < found.start + 3 * found.period)]
    for fitted, true in zip(found.at(inside), motion(inside), strict=True):
        assert np.std(fitted - true) < 5e-3 * np.std(true)


@pytest.mark.parametrize('step', [2e-5, 1.5e-3])
@pytest.mark.parametrize('phase', [0.0, 0.5])
def test_errors_that_all_repeats_share_are_no_harmonics(phase: float, step: float) -> None:
    # A period of 400 samples: encoders stand, and err, alike in each repeat.
    time = CYCLE / 400.0 * np.arange(1400)
    moving = np.clip(time - CYCLE / 400.0 * (60.0 + phase), 0.0, 3.0 * CYCLE)
    found = periodic_motion(time, np.round(motion(moving)[0] / step) * step, 30.0)
    assert found is not None
    assert found.repeats == 3
    assert found.harmonics == 4


def test_a_few_corrupt_positions_do_not_move_the_series() -> None:
    time = np.arange(0.0, 3.2 * CYCLE, 0.01)
    position = motion(time)[0]
    corrupt = position.copy()
    corrupt[[200, 900, 1400]] += 0.3
    clean, found = (periodic_motion(time, item, 30.0) for item in (position, corrupt))
    assert clean is not None
    assert found is not None
    assert np.abs(found.at(time)[2] - clean.at(time)[2]).max() < 1e-2


@pytest.mark.filterwarnings('error')
def test_a_gap_longer_than_both_parts_beside_it_is_no_warning() -> None:
    time = np.concatenate((np.arange(0.0, 3.0, 0.002), np.arange(13.0, 16.0, 0.002)))
    position = np.column_stack((np.sin(np.pi * time), 0.5 * np.cos(1.3 * np.pi * time)))
    assert periodic_motion(time, position, 5.0) is None


def test_the_window_that_repeats_is_found_beside_approach_pause_and_return() -> None:
    time = np.arange(0.0, 5.0 * CYCLE, 0.01)
    begin = 9.0
    moving = np.clip(time - begin, 0.0, 3.0 * CYCLE)
    away = 0.4 * np.exp(-((time - 4.0) / 0.8)**2) + 0.4 * np.clip((time - 29.5) / 1.5, 0.0, 1.0)
    found = periodic_motion(time, motion(moving)[0] + away[:, None], 30.0)
    assert found is not None
    assert found.repeats == 3
    assert found.start == pytest.approx(begin, abs=0.02 * CYCLE)
    assert found.period == pytest.approx(CYCLE, rel=1e-4)


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
    time = np.arange(0.0, 3.2 * CYCLE, 0.008)
    noise = np.random.default_rng(1).normal(scale=0.2, size=(len(time), 3))
    _, v, a = motion(time - delay)
    found = delay_of(3.0 * a + 2.0 * np.tanh(v / 0.03) + v + noise, time, step)
    assert found.identified
    assert found.value == pytest.approx(delay, abs=1e-3)


def test_a_delay_that_does_not_settle_is_as_uncertain_as_its_steps() -> None:
    generator = np.random.default_rng(1)
    time = np.arange(0.0, 3.2 * CYCLE, 0.05)
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
    time = np.arange(0.0, 3.2 * CYCLE, 0.008)
    noise = np.random.default_rng(1).normal(size=(len(time), 3))
    found = delay_of(noise, time, 1e-5)
    assert not found.identified
    assert found.value == 0.0
