# SPDX-License-Identifier: Apache-2.0
"""Exciting records in blocks: splines, both sides averaged alike, noise that stays white."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from support.excitation_cell import RATE, TOOL, Record, exciting

from robocal_ros.errors import DataError
from robocal_ros.estimation.block_averages import Blocks, derivatives
from robocal_ros.messages.samples import JointSamples

PERIOD, START = 0.04, 3.0


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
    (slice(None, None, 20), 'Joint states arrive at 12 Hz; a band of 5.0 Hz needs at least 20 Hz'),
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
