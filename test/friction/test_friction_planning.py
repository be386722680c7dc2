# SPDX-License-Identifier: Apache-2.0
"""Planned runs keep to the limits and the rule of their segments; weak places are run again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from support.arms import CHAIN

from robocal_ros.errors import ConfigurationError, ConvergenceError, MotionError
from robocal_ros.friction.parameters import FrictionParameters
from robocal_ros.friction.plan import free_range, plan_runs, planned_speeds, weak_speeds
from robocal_ros.friction.runs import find_runs
from robocal_ros.messages.samples import JointSamples
from robocal_ros.robot.collision import CollisionChecker
from robocal_ros.robot.model import Robot
from robocal_ros.robot.trajectories import MotionLimits

VALUES = FrictionParameters()


def limits_of(robot: Robot) -> MotionLimits:
    return MotionLimits(robot.joint_names, robot.lower, robot.upper, robot.velocity_limit,
                        np.full(robot.n, VALUES.max_acceleration))


@pytest.fixture(scope='module')
def checker(robocal: Robot) -> CollisionChecker:
    return CollisionChecker(robocal.copy())


def home(robot: Robot) -> np.ndarray:
    return np.zeros(robot.n)


@pytest.mark.parametrize('joint', range(6))
def test_planned_runs_are_valid_segments_within_all_limits(robocal, checker, joint):
    runs = plan_runs(robocal, checker, home(robocal), joint, VALUES)
    assert len(runs) == 2 * VALUES.speed_count
    for run in runs:
        way = abs(run.goal - run.start)
        assert way / run.duration < run.speed <= 2.0 * way / run.duration
        # tb as the rule has it.
        assert run.blend == pytest.approx(run.duration - way / run.speed)
        motion = run.trajectory(home(robocal), joint)
        limits_of(robocal).check(motion)
        position, velocity, _ = motion.sample(motion.dense(0.05))
        still = np.delete(np.arange(robocal.n), joint)
        np.testing.assert_array_equal(position[:, still], 0.0)
        np.testing.assert_allclose(velocity[:, still], 0.0, atol=1e-15)
        assert checker.first_contact(position) is None
        assert motion.start[joint] == run.start


def test_forward_and_back_over_the_same_positions_elsewhere_for_each_speed(robocal, checker):
    runs = plan_runs(robocal, checker, home(robocal), 5, VALUES)
    for forward, back in zip(runs[::2], runs[1::2], strict=True):
        assert (forward.start, forward.goal) == (back.goal, back.start)
        assert forward.goal > forward.start
    starts = np.array([run.start for run in runs[::2]])
    assert np.ptp(starts) > 0.5
    shifted = plan_runs(robocal, checker, home(robocal), 5, VALUES, number=1)
    assert shifted[0].start != runs[0].start


@given(st.floats(0.4, 10.0), st.floats(0.001, 0.1), st.integers(3, 30))
def test_speeds_are_log_spaced_up_to_half_the_limit(limit, slowest, count):
    values = replace(VALUES, min_speed=slowest, speed_count=count)
    speeds = planned_speeds(values, limit)
    assert speeds[0] == pytest.approx(slowest)
    assert speeds[-1] == pytest.approx(min(0.6, 0.5 * limit))
    ratio = speeds[1:] / speeds[:-1]
    np.testing.assert_allclose(ratio, ratio[0])


@pytest.mark.parametrize(('scale', 'changes'), [
    (1.0, {}), (0.3, {}), (0.15, {}), (0.05, {}), (0.15, {'min_speed': 0.001}),
    (1.0, {'min_speed': 0.001, 'max_cruise': 5.0})])
def test_every_planned_run_is_found_in_its_recording(robocal, checker, scale, changes):
    """The speed scale lowers the highest speed; slower runs than asked for would be lost."""
    values = replace(VALUES, speed_scale=scale, speed_count=4, **changes)
    runs = plan_runs(robocal, checker, home(robocal), 5, values)
    assert min(run.speed for run in runs) == pytest.approx(values.min_speed)
    assert max(run.speed for run in runs) == pytest.approx(scale * values.max_speed)
    for run in runs:
        motion = run.trajectory(home(robocal), 5)
        limits_of(robocal).scaled(scale).check(motion)
        time = np.arange(-0.3, motion.duration + 0.3, 0.004)
        position, velocity, _ = motion.sample(time)
        samples = JointSamples(robocal.joint_names, time, position, velocity, 0.0 * position)
        (found,) = find_runs(samples, [5])
        signed = np.copysign(run.speed, run.goal - run.start)
        assert found.speed == pytest.approx(signed, rel=0.01)
        assert np.isfinite(found.wander)


@pytest.mark.parametrize(('changes', 'limit', 'sentence'), [
    ({'speed_scale': 0.01, 'min_speed': 0.006}, 2.0, r'At speed_scale 0\.01, the fastest run'),
    ({}, 0.008, 'lower min_speed')])
def test_no_room_above_the_lowest_speed_is_refused(changes, limit, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        planned_speeds(replace(VALUES, **changes), limit)


def test_near_a_limit_the_range_moves_to_the_other_side(robocal, checker):
    posture = home(robocal)
    posture[3] = robocal.upper[3] - 0.06
    low, high = free_range(robocal, checker, posture, 3, 1.0)
    assert high < robocal.upper[3] - 0.04
    assert high - low == pytest.approx(1.0, abs=0.05)


def test_runs_stop_short_of_a_contact(robocal, checker):
    generator, elbow, found = np.random.default_rng(0), 2, 0
    while found < 3:
        posture = generator.uniform(*robocal.sampling_limits())
        if not checker.is_free(posture):
            continue
        low, high = free_range(robocal, checker, posture, elbow, 1.6)
        assert low <= posture[elbow] <= high
        for angle in np.linspace(low, high, 40):
            assert checker.is_free(np.where(np.arange(6) == elbow, angle, posture))
        found += high - low < 1.4


def test_a_posture_in_contact_is_refused():
    robot = Robot(CHAIN, tool_frame='tip')
    checker = CollisionChecker(robot)
    touching = next(q for q in np.random.default_rng(0).uniform(-3.0, 3.0, (500, 3))
                    if not checker.is_free(q))
    with pytest.raises(MotionError, match='start from another posture'):
        free_range(robot, checker, touching, 1, 1.0)


def test_given_speeds_and_range(robocal, checker):
    runs = plan_runs(robocal, checker, home(robocal), 5, VALUES, [0.1, 0.2], within=(-0.1, 0.35))
    assert [run.speed for run in runs] == [0.1, 0.1, 0.2, 0.2]
    for run in runs:
        assert min(run.start, run.goal) >= -0.1
        assert max(run.start, run.goal) <= 0.35


def test_runs_stay_within_the_largest_range(robocal, checker):
    places = {limit: [place for run in plan_runs(
        robocal, checker, home(robocal), 5, replace(VALUES, max_range=limit), [0.1, 0.2])
        for place in (run.start, run.goal)] for limit in (0.6, 1.6)}
    assert max(places[1.6]) - min(places[1.6]) > 0.6
    assert max(places[0.6]) - min(places[0.6]) <= 0.6


def test_speeds_that_the_range_is_too_short_for_are_left_out(robocal, checker):
    runs = plan_runs(robocal, checker, home(robocal), 5, VALUES, within=(0.0, 0.2))
    assert 0 < len(runs) < 2 * VALUES.speed_count
    with pytest.raises(ConvergenceError, match="'joint_6' has only 0.0.. rad of free range"):
        plan_runs(robocal, checker, home(robocal), 5, VALUES, [0.5], within=(0.0, 0.05))


def test_longer_cruises_for_further_rounds(robocal, checker):
    first, second = (plan_runs(robocal, checker, home(robocal), 5, VALUES, (0.005, 0.05, 0.3),
                               number) for number in (0, 1))
    for run, longer in zip(first, second, strict=True):
        assert longer.speed == run.speed
        assert longer.duration > 1.2 * run.duration


class TestWeakSpeeds:
    """Further rounds add speeds below and between the slow ones, for Stribeck friction."""

    MEASURED = np.array([0.01, -0.0100003, 0.0200001, -0.02, 0.04, -0.04001, 0.3, -0.3, 0.5, -0.5])

    def test_new_speeds_lie_between_and_below_known_ones_once(self):
        found = weak_speeds(self.MEASURED, 0.03)
        np.testing.assert_allclose(
            found, [0.005, np.sqrt(2e-4), np.sqrt(8e-4), np.sqrt(0.15)], rtol=1e-3)

    def test_without_a_bend_it_is_looked_for_further_down(self):
        found = weak_speeds(np.array([0.08, -0.08, 0.2, -0.2, 0.5, -0.5]), None)
        np.testing.assert_allclose(found[:3], [0.01, 0.02, 0.04], rtol=1e-6)
