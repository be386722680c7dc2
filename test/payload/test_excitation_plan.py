# SPDX-License-Identifier: Apache-2.0
"""Exciting motions: at rest at the ends, within every limit, informative."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from support.arms import arm

from robocal_ros.errors import ConvergenceError
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.plan import FourierBasis, plan_excitation
from robocal_ros.robot.arm_model import NewtonEuler
from robocal_ros.robot.collision import CollisionChecker
from robocal_ros.robot.model import RigidBodyInertia, Robot
from robocal_ros.robot.trajectories import MotionLimits

PERIOD, REPEATS, HARMONICS = 6.0, 2, 5
VALUES = PayloadParameters(excitation_period=PERIOD, excitation_repeats=REPEATS)
HEAVY = RigidBodyInertia(2.0, np.array([0.0, 0.0, 0.1]), 0.01 * np.eye(3))


def wrench_rows(robot: Robot, q: np.ndarray, v: np.ndarray, a: np.ndarray) -> np.ndarray:
    return NewtonEuler(robot, robot.tool_frame).wrench_regressor(q, v, a)


def limits_of(robot: Robot, acceleration: float = 6.0) -> MotionLimits:
    return MotionLimits(robot.joint_names, robot.lower, robot.upper, robot.velocity_limit,
                        np.full(robot.n, acceleration))


def planned(robot: Robot, middle: np.ndarray | None = None, limits: MotionLimits | None = None,
            candidates: int = 60, seed: int = 0, values: PayloadParameters = VALUES):
    return plan_excitation(
        robot.with_payload(HEAVY), CollisionChecker(robot.copy()), limits or limits_of(robot),
        np.zeros(robot.n) if middle is None else middle, partial(wrench_rows, robot), values,
        harmonics=HARMONICS, candidates=candidates, seed=seed)


@pytest.fixture(scope='module')
def motion(robocal):
    return planned(robocal)


@pytest.mark.parametrize('widest', [0.2, 0.6])
def test_no_joint_moves_farther_than_the_range(robocal, widest):
    motion = planned(robocal, candidates=10, values=replace(VALUES, excitation_range=widest))
    assert np.abs(motion.position).max() == pytest.approx(widest, rel=0.31)
    assert np.abs(motion.position).max() <= widest * (1.0 + 1e-6)


def test_a_speed_scale_is_planned_for_with_more_repeats(robocal):
    limits = limits_of(robocal).scaled(0.3)
    slow, fast = (planned(robocal, limits=one, candidates=10)
                  for one in (limits, limits_of(robocal)))
    limits.check(slow)
    # As long as the fast motion at that scale.
    assert slow.duration == pytest.approx(fast.duration / 0.3, rel=0.2)
    accelerations = [np.abs(one.acceleration).max() for one in (slow, fast)]
    assert accelerations[0] > 0.25 * accelerations[1]


def test_a_speed_scale_with_too_little_motion_is_refused(robocal):
    with pytest.raises(ConvergenceError, match=r'moves too little .*10.*raise speed_scale'):
        planned(robocal, limits=limits_of(robocal).scaled(0.02), candidates=5,
                values=replace(VALUES, excitation_range=0.09))


@pytest.mark.parametrize('harmonics', [3, 5, 8])
def test_every_series_of_the_basis_begins_and_ends_at_rest(harmonics):
    basis = FourierBasis(PERIOD, harmonics)
    assert basis.size == 2 * harmonics - 3
    ends = np.array([0.0, PERIOD])
    for series in basis.series(np.random.default_rng(1).normal(size=(4, basis.size)), ends):
        np.testing.assert_allclose(series, 0.0, atol=1e-9)


def test_speed_and_acceleration_are_the_derivatives():
    basis = FourierBasis(PERIOD, HARMONICS)
    coefficients = np.random.default_rng(2).normal(size=(3, basis.size))
    time, step = np.linspace(0.3, 5.0, 40), 1e-5
    here = basis.series(coefficients, time)
    before, after = (basis.series(coefficients, time + sign * step) for sign in (-1.0, 1.0))
    for order in (0, 1):
        slope = (after[order] - before[order]) / (2.0 * step)
        np.testing.assert_allclose(here[order + 1], slope, atol=1e-6)


def test_the_band_ends_at_the_last_harmonic(motion):
    """Nothing beyond it, so that a filter at the band's end takes nothing away."""
    time = np.arange(0.0, 2 * PERIOD, 0.01)
    position, _, _ = motion.sample(time)
    spectrum = np.abs(np.fft.rfft(position[:-1] - position.mean(axis=0), axis=0))
    frequency = np.fft.rfftfreq(len(time) - 1, 0.01)
    beyond = frequency > 2.0 * HARMONICS / PERIOD
    assert spectrum[beyond].max() < 0.01 * spectrum.max()


def test_no_limit_is_exceeded_between_the_knots_either(robocal, motion):
    limits_of(robocal).check(motion)
    assert motion.duration == pytest.approx(REPEATS * PERIOD)
    np.testing.assert_allclose(motion.start, motion.goal, atol=1e-12)
    # What is allowed is used: the fastest joint comes close to a limit.
    _, velocity, acceleration = motion.sample(motion.dense())
    used = np.maximum(np.abs(velocity).max(axis=0) / (0.8 * robocal.velocity_limit),
                      np.abs(acceleration).max(axis=0) / (0.95 * 6.0))
    assert used.max() > 0.69


def test_four_fifths_of_the_speed_limits_are_used_at_most(robocal):
    slow = replace(limits_of(robocal), velocity=np.full(6, 0.5))
    motion = planned(robocal, limits=slow, candidates=5)
    speed = np.abs(motion.sample(motion.dense())[1]).max(axis=0)
    assert (speed < 0.41).all()
    assert speed.max() > 0.27


def test_the_motion_has_no_collision_and_no_overload(robocal, motion):
    checker, loaded = CollisionChecker(robocal.copy()), robocal.with_payload(HEAVY)
    position, velocity, acceleration = motion.sample(np.arange(0.0, PERIOD, 0.037))
    assert not checker.first_contact(position)
    for q, v, a in zip(position, velocity, acceleration, strict=True):
        assert (np.abs(loaded.inverse_dynamics(q, v, a)) < 0.82 * robocal.effort_limit).all()


def information(robot: Robot, motion) -> float:
    rows = np.vstack(wrench_rows(robot, *motion.sample(np.arange(0.0, PERIOD, 0.1))))
    return float(np.linalg.slogdet(rows.T @ rows)[1])


def test_the_chosen_motion_has_more_information_than_random_ones(robocal, motion):
    by_chance = [information(robocal, planned(robocal, candidates=1, seed=seed))
                 for seed in range(5)]
    assert information(robocal, motion) > max(by_chance)


def test_the_same_seed_chooses_the_same_motion(robocal, motion):
    again = planned(robocal)
    np.testing.assert_array_equal(again.position, motion.position)
    other = planned(robocal, seed=1)
    assert np.abs(other.position - motion.position).max() > 0.1


def test_torques_of_a_seven_joint_arm_separate_all_ten_parameters(panda):
    middle = np.array([0.0, 0.0, 0.0, -1.6, 0.0, 1.6, 0.0])
    torque_regressor = NewtonEuler(panda, panda.tool_frame).torque_regressor
    motion = plan_excitation(
        panda, CollisionChecker(panda.copy(), package_dirs=arm('panda').package_dirs),
        limits_of(panda), middle, torque_regressor, VALUES,
        harmonics=HARMONICS, candidates=20)
    rows = np.vstack(torque_regressor(*motion.sample(np.arange(0.0, PERIOD, 0.1))))
    lengths = np.linalg.norm(rows, axis=0)
    assert np.linalg.cond(rows / lengths) < 100.0


def test_without_free_space_the_refusal_states_the_reason(robocal):
    narrow = replace(limits_of(robocal), lower=np.full(6, -2.0), upper=np.full(6, 2.0))
    folded = np.array([0.0, 0.0, -2.6, 0.0, 0.0, 0.0])
    with pytest.raises(
        ConvergenceError, match=r'None of 5 exciting motions .*: the arm .*\(\d+ times'
    ):
        planned(robocal.with_payload(RigidBodyInertia(400.0, np.zeros(3), np.eye(3))),
                0.3 * folded, narrow, candidates=5)
