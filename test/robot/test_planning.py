# SPDX-License-Identifier: Apache-2.0
"""Ways that touch nothing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from support.arms import CHAIN, arm, scara

from robocal_ros.errors import MotionError
from robocal_ros.robot import (
    CollisionChecker,
    EffortLimits,
    RigidBodyInertia,
    Robot,
    SteadyFriction,
    connect,
    quintic_path,
)
from robocal_ros.robot.collision import straight

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
    with pytest.raises(MotionError, match=r'No collision-free path .*in 0 s.*clearance'):
        connect(robot, checker, one, other, timeout=0.3)


class TestEffortLimits:
    """A seven-joint arm whose wrist joints have 12 N·m, with 2.6 kg."""

    LOAD = RigidBodyInertia(2.6, np.array([0.05, 0.0, 0.25]), 5e-3 * np.eye(3))
    START = np.array([0.0, -0.3, 0.0, -2.0, 0.0, 1.7, 0.8])
    GOAL = np.array([0.8, 0.5, 0.6, -1.6, -0.8, 2.3, 0.3])

    def limits(self, panda: Robot, coulomb: float = 0.0, share: float = 1.0) -> EffortLimits:
        pair = np.full(2, coulomb)
        law = SteadyFriction(pair, 1.5 * pair, np.full(2, 0.05), np.zeros(2))
        return EffortLimits(panda.with_payload(self.LOAD), {'panda_joint6': law}, share)

    def test_a_motion_is_slowed_until_its_torques_fit(self, panda):
        limits = self.limits(panda, share=0.75)
        fast = quintic_path(np.stack((self.START, self.GOAL)), np.full(7, 4.0), np.full(7, 80.0))

        def load(motion):
            robot = limits.robot
            torque = np.array([robot.inverse_dynamics(q, v, a) for q, v, a in zip(
                *motion.sample(motion.dense(0.003)), strict=True)])
            return np.max(np.abs(torque) / limits.limit)

        assert not limits.exceeded(straight(self.START, self.GOAL))
        assert load(fast) > 1.2
        slow = limits.slowed(fast)
        assert load(slow) < 1.005
        # Not slower than necessary, by the steps of the search.
        assert load(fast.slowed(1.3 * fast.duration / slow.duration)) > 1.0
        assert limits.slowed(slow) is slow

    def test_friction_counts_in_the_direction_of_the_motion(self, panda):
        bare, rough = self.limits(panda), self.limits(panda, coulomb=2.0)
        torque = bare.holding(self.START[None])[0]
        np.testing.assert_allclose(torque, bare.robot.gravity_torque(self.START))
        rubbed = rough.holding(self.START[None])[0]
        # Breakaway, and only of the joint with a law.
        np.testing.assert_allclose(
            np.abs(rubbed) - np.abs(torque), [0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0], atol=1e-6)

    def test_a_posture_that_cannot_be_held_is_named_and_not_gone_to(self, panda):
        weak = self.limits(panda, share=0.3)
        problem = weak.exceeded(self.START[None])
        assert problem.startswith("joint 'panda_joint6' needs")
        assert problem.endswith('more than 30 % of its effort limit of 12 N·m')
        checker = CollisionChecker(panda, package_dirs=arm('panda').package_dirs)
        with pytest.raises(MotionError, match="In the start posture .* 'panda_joint6' needs"):
            connect(panda, checker, self.START, self.GOAL, effort=weak)
        with pytest.raises(MotionError, match="'panda_joint2' needs .*at any speed"):
            weak.slowed(quintic_path(np.stack((self.START, self.GOAL)), np.ones(7), np.ones(7)))

    def test_a_way_leads_around_what_cannot_be_held(self):
        # Stretched out the shoulder needs 9.8 N·m, with a folded elbow 5.9 N·m.
        limits = EffortLimits(Robot(scara(), tool_frame='tip'), {}, share=0.075)
        down, up = np.array([-np.pi / 2, 0.0]), np.array([np.pi / 2, 0.0])
        assert "'shoulder' needs 9.8" in limits.exceeded(straight(down, up))
        way = connect(limits.robot, CollisionChecker(limits.robot), down, up, effort=limits)
        assert len(way) > 2
        for a, b in pairwise(way):
            assert not limits.exceeded(straight(a, b))
