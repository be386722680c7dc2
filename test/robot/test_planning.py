# SPDX-License-Identifier: Apache-2.0
"""Ways that touch nothing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arms import CHAIN, arm

from robocal_ros.errors import MotionError
from robocal_ros.robot.collision import CollisionChecker
from robocal_ros.robot.model import Robot
from robocal_ros.robot.planning import connect, straight

VECTORS = st.lists(st.floats(-3.0, 3.0), min_size=3, max_size=3).map(np.array)


@given(VECTORS, VECTORS, st.floats(0.01, 0.5))
def test_a_straight_way_has_even_steps_no_longer_than_asked(start, goal, step):
    way = straight(start, goal, step)
    np.testing.assert_allclose(way[[0, -1]], [start, goal])
    steps = np.diff(way, axis=0)
    assert np.abs(steps).max(initial=0.0) <= step + 1e-9
    np.testing.assert_allclose(steps, np.broadcast_to(steps[0], steps.shape), atol=1e-12)


def chain() -> tuple[Robot, CollisionChecker]:
    robot = Robot(CHAIN, tool_frame='tip')
    return robot, CollisionChecker(robot)


def test_a_free_straight_way_stays_straight():
    robot, checker = chain()
    start, goal = np.array([0.0, -1.0, 0.0]), np.array([1.0, 1.0, 0.5])
    np.testing.assert_array_equal(connect(robot, checker, start, goal), [start, goal])


@pytest.mark.parametrize('name', ['panda', 'xarm7'])
def test_a_blocked_straight_way_is_gone_around(name):
    robot = arm(name).robot()
    checker = CollisionChecker(robot, package_dirs=arm(name).package_dirs,
                               tool_box=(0.1, 0.1, 0.15))
    generator = np.random.default_rng(3)
    found = 0
    while found < 2:
        start, goal = generator.uniform(*robot.sampling_limits(), (2, robot.n))
        ends_free = checker.is_free(start) and checker.is_free(goal)
        if not (ends_free and checker.first_contact(straight(start, goal))):
            continue
        found += 1
        way = connect(robot, checker, start, goal)
        assert len(way) > 2
        np.testing.assert_allclose(way[[0, -1]], [start, goal])
        assert (way >= robot.lower - 1e-9).all()
        assert (way <= robot.upper + 1e-9).all()
        for a, b in pairwise(way):
            assert checker.first_contact(straight(a, b, 0.015), 0.015) is None


def test_start_and_goal_must_be_free():
    robot, checker = chain()
    free, touching = np.zeros(3), np.array([0.0, 3.1, 0.0])
    with pytest.raises(MotionError, match=r"In the start posture .*'root.* touches .*by hand"):
        connect(robot, checker, touching, free)
    with pytest.raises(MotionError, match='In the goal posture'):
        connect(robot, checker, free, touching)


def test_a_way_that_does_not_exist_is_refused_in_time():
    # On its way the second joint would have to fold the tip's ball through the root's.
    robot = Robot(
        CHAIN.replace('lower="-3.1" upper="3.1"', 'lower="2.5" upper="3.8"'), tool_frame='tip')
    checker = CollisionChecker(robot)
    one, other = np.array([3.0, 2.8, 3.0]), np.array([3.0, 3.5, 3.0])
    assert checker.is_free(one)
    assert checker.is_free(other)
    with pytest.raises(MotionError, match=r'No way .* was found in 0 s.*more room'):
        connect(robot, checker, one, other, timeout=0.3)
