# SPDX-License-Identifier: Apache-2.0
"""Derivatives, and the steady and still parts of a record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from support.forward import SweepPlan, run

from robocal_ros.estimation.signals import central_velocity, dwells, encoder_steps, steady_sweeps
from robocal_ros.messages.samples import JointSamples


def record(motion, noise: float = 0.0, seed: int = 0) -> JointSamples:
    k, n = motion.position.shape
    position = motion.position + noise * np.random.default_rng(seed).normal(size=(k, n))
    # Velocity and effort must not matter: give them nonsense.
    return JointSamples(tuple('abcdef')[:n], motion.time, position, np.full((k, n), 7.0),
                        np.full((k, n), -3.0))


def two_sweeps(**more):
    posture = np.array([0.2, -0.1, 0.4])
    return run(np.zeros(3), [SweepPlan(2, posture, 1.0), SweepPlan(1, posture, 0.8)], **more)


# ------------------------------------------------------------------------- derivative


@given(slope=st.floats(-3.0, 3.0), offset=st.floats(-10.0, 10.0),
       steps=st.lists(st.floats(1e-3, 0.02), min_size=3, max_size=60))
def test_a_straight_line_has_its_slope_at_uneven_stamps_up_to_the_ends(slope, offset, steps):
    time = np.cumsum(steps)
    found = central_velocity(time, (offset + slope * time)[:, None])
    np.testing.assert_allclose(found[:, 0], slope, atol=1e-8)


def test_the_derivative_has_no_phase_error():
    time = np.arange(0.0, 10.0, 0.002)
    rate = 2.0
    found = central_velocity(time, np.sin(rate * time)[:, None], 0.05)[:, 0]
    inside = (time > 0.1) & (time < 9.9)
    # The chord's slope is exactly the derivative times sinc: smaller, never later.
    gain = np.sin(rate * 0.05) / (rate * 0.05)
    np.testing.assert_allclose(found[inside], gain * rate * np.cos(rate * time)[inside], atol=1e-5)


# ----------------------------------------------------------------------------- sweeps


@pytest.mark.parametrize('rate', [100.0, 500.0])
@pytest.mark.parametrize('noise', [0.0, 2e-5])
def test_sweeps_lie_inside_the_constant_speed_and_nothing_else_is_one(rate, noise):
    motion = two_sweeps(rate=rate)
    found = steady_sweeps(record(motion, noise))
    assert [(s.joint, s.direction) for s in found] == [(2, 1), (2, -1), (1, 1), (1, -1)]
    for number, sweep in enumerate(found, start=1):
        rows = np.arange(sweep.start, sweep.stop)
        assert (motion.window[rows] == number).all()
        # Not much of the constant speed is given away: 0.3 s to settle at each end.
        whole = np.flatnonzero(motion.window == number)
        assert len(rows) / rate > len(whole) / rate - 0.8
        assert sweep.speed == pytest.approx(0.35 * sweep.direction, rel=1e-3)
        assert sweep.span == pytest.approx(np.ptp(motion.position[rows, sweep.joint]), abs=1e-3)
        np.testing.assert_allclose(sweep.posture, motion.position[rows].mean(axis=0), atol=1e-4)


def test_two_joints_turning_together_are_no_sweep():
    motion = two_sweeps(rate=100.0)
    position = motion.position + 0.05 * motion.time[:, None] * [1.0, 0.0, 0.0]
    assert steady_sweeps(replace(record(motion), position=position)) == []


def test_a_gap_in_the_stamps_ends_a_sweep():
    motion = two_sweeps(rate=100.0)
    samples = record(motion)
    middle = int(np.median(np.flatnonzero(motion.window == 1)))
    time = samples.time.copy()
    time[middle:] += 0.5
    found = steady_sweeps(replace(samples, time=time), settle=0.1)
    assert not any(s.start < middle < s.stop for s in found)
    assert sum(s.joint == 2 and s.direction == 1 for s in found) == 2


def test_a_slowly_changing_speed_is_cut_to_the_steady_part():
    time = np.arange(0.0, 10.0, 0.01)
    speed = np.where(time < 5.0, 0.3, 0.3 + 0.2 * (time - 5.0))
    angle = np.cumsum(speed) * 0.01
    position = np.column_stack((angle, np.zeros(len(time))))
    samples = JointSamples(('a', 'b'), time, position, position, position)
    for sweep in steady_sweeps(samples):
        inside = speed[sweep.start:sweep.stop]
        assert np.ptp(inside) <= 0.11 * inside.mean()


# ----------------------------------------------------------------------------- dwells


def resting(rest: float, rate: float = 200.0, noise: float = 0.0) -> JointSamples:
    postures = [np.array([0.3, 0.0, 0.0]), np.array([0.3, 0.5, -0.4])]
    motion = run(np.zeros(3), [SweepPlan(1, p, 0.3, both=False) for p in postures],
                 rate=rate, rest=rest)
    return record(motion, noise)


@pytest.mark.parametrize('noise', [0.0, 2e-5])
def test_dwells_are_where_everything_rests(noise):
    samples = resting(1.0, noise=noise)
    found = dwells(samples)
    assert len(found) == 4
    for dwell in found:
        assert np.ptp(samples.position[dwell.start:dwell.stop], axis=0).max() < 2e-4
        np.testing.assert_allclose(dwell.posture, samples.position[dwell.start], atol=2e-4)
        assert 0.5 <= samples.time[dwell.stop - 1] - samples.time[dwell.start] <= 1.0


def test_a_dwell_shorter_than_asked_for_does_not_count():
    assert len(dwells(resting(0.9))) == 4
    assert dwells(resting(0.5)) == []
    assert len(dwells(resting(0.5), min_duration=0.05)) == 4


def test_a_creeping_joint_does_not_rest():
    samples = resting(1.0)
    position = samples.position.copy()
    position[:, 0] += 0.004 * samples.time
    assert dwells(replace(samples, position=position)) == []


def test_a_gap_in_the_stamps_ends_a_dwell():
    samples = resting(2.0)
    time = samples.time.copy()
    time[200:] += 0.3
    cut = replace(samples, time=time)
    assert not any(d.start < 200 < d.stop for d in dwells(cut))
    assert len(dwells(cut)) == 5


# ------------------------------------------------------------------------ coarse encoders


def coarse(samples: JointSamples, step: float = 1.5e-3, noise: float = 3e-4) -> JointSamples:
    """Return a record by encoders whose last digit flickers, one of them between two steps."""
    generator = np.random.default_rng(0)
    position = samples.position + 0.5 * step + noise * generator.normal(
        size=samples.position.shape)
    return replace(samples, position=np.round(position / step) * step)


def test_the_step_of_encoders_is_found():
    still = np.random.default_rng(1).normal(size=(500, 1))
    position = np.hstack((np.round(still / 1.5e-3) * 1.5e-3, still, np.full((500, 1), 0.3)))
    assert encoder_steps(position) == pytest.approx([1.5e-3, 0.0, 0.0])


@pytest.mark.parametrize('rate', [100.0, 1000.0])
def test_sweeps_and_dwells_are_found_with_coarse_encoders(rate):
    posture = np.array([0.2, -0.1, 0.4])
    motion = run(np.zeros(3), [SweepPlan(2, posture, 1.0), SweepPlan(1, posture, 0.8)], 0.25,
                 rate=rate)
    fine, rough = (steady_sweeps(item) for item in (record(motion), coarse(record(motion))))
    assert [(item.joint, item.direction) for item in rough] == [
        (item.joint, item.direction) for item in fine]
    assert [item.span for item in rough] == pytest.approx([item.span for item in fine], abs=0.08)
    found = dwells(coarse(resting(1.0, rate)), settle=0.15)
    assert len(found) == len(dwells(resting(1.0, rate), settle=0.15))


def test_a_joint_that_creeps_by_coarse_steps_does_not_rest():
    samples = resting(2.0)
    creep = samples.position + 0.01 * samples.time[:, None]
    assert dwells(coarse(replace(samples, position=creep))) == []
