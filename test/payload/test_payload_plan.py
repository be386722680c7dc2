# SPDX-License-Identifier: Apache-2.0
"""Plans of postures and sweeps, checked on dense paths independently of the planner."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
from support.arms import ARMS, MOUNTS, Arm, arm, middle, scara
from support.contacts import Contacts
from support.forward import Noise, Reference, SweepPlan, Tool, measured, run

from robocal_ros.errors import ConfigurationError, ConvergenceError, MotionError
from robocal_ros.messages.samples import JointSamples
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.plan import SweepRange, TwoPlanePlan, plan_static_poses, plan_two_plane
from robocal_ros.payload.result import COM
from robocal_ros.payload.two_plane import estimate
from robocal_ros.results.result import Verdict
from robocal_ros.robot.collision import CollisionChecker
from robocal_ros.robot.model import Robot

BOX = (0.1, 0.1, 0.15)
MASS = 2.0
# Each arm once, and each mount.
CASES = [*((name, 'upright') for name in ARMS),
         *(('robocal', mount) for mount in MOUNTS if mount != 'upright')]


@cache
def checker_of(of: Arm) -> CollisionChecker:
    """Contacts do not depend on the mount."""
    return CollisionChecker(of.robot(), package_dirs=of.package_dirs, tool_box=BOX)


@cache
def contacts_of(name: str) -> Contacts:
    robot = arm(name).robot()
    return Contacts(arm(name).urdf, arm(name).tool, arm(name).package_dirs, BOX,
                    *robot.sampling_limits())


@cache
def plan_of(name: str, mount: str) -> tuple[Robot, TwoPlanePlan, np.ndarray]:
    robot = arm(name).robot(mount)
    current = middle(robot)
    return robot, plan_two_plane(robot, checker_of(arm(name)), current, mass=MASS), current


def dense(start: np.ndarray, goal: np.ndarray, step: float = 0.02) -> np.ndarray:
    count = int(np.abs(goal - start).max() / step) + 2
    return start + np.linspace(0.0, 1.0, count)[:, None] * (goal - start)


def along(sweep: SweepRange, step: float = 0.01) -> np.ndarray:
    angles = np.arange(sweep.low, sweep.high, step)
    path = np.tile(sweep.posture, (len(angles), 1))
    path[:, sweep.joint] = angles
    return path


@pytest.mark.parametrize(('name', 'mount'), CASES)
def test_plans_have_horizontal_axes_and_wide_sweeps_within_all_limits(name, mount):
    robot, plan, current = plan_of(name, mount)
    reference = Reference(arm(name).urdf, arm(name).tool, MOUNTS[mount])
    up = -np.array(MOUNTS[mount]) / 9.81
    for joint in (robot.n - 1, plan.second_joint):
        tilt = np.degrees(np.arcsin(abs(reference.axis(plan.posture, joint) @ up)))
        assert tilt < 3.0
    assert plan.second_joint == robot.n - 2
    last, second, *held_out = plan.sweeps
    assert (last.joint, second.joint) == (robot.n - 1, plan.second_joint)
    assert [s.held_out for s in plan.sweeps] == [False, False, True, True]
    assert [s.joint for s in held_out] == [last.joint, second.joint]
    # Held-out ones are about other postures.
    for fitted, other in zip(plan.sweeps[:2], held_out, strict=True):
        away = np.delete(np.abs(other.posture - fitted.posture), fitted.joint)
        assert away.max() > 0.3
    loaded = Reference(arm(name).urdf, arm(name).tool, MOUNTS[mount],
                       Tool(MASS, np.zeros(3), np.zeros((3, 3))))
    contacts = contacts_of(name)
    for sweep in plan.sweeps:
        span = np.degrees(sweep.high - sweep.low)
        assert span >= (50.0 if sweep.held_out else 80.0)
        assert span <= 180.1
        path = along(sweep)
        assert (path >= robot.lower).all()
        assert (path <= robot.upper).all()
        torque = loaded.torque(path, 0.0 * path, 0.0 * path)
        assert (np.abs(torque) <= 0.95 * robot.effort_limit).all()
        assert not any(contacts.touch(q) for q in path)
        np.testing.assert_allclose(sweep.end(True)[sweep.joint], sweep.high)
    np.testing.assert_allclose(plan.approach[0], current)
    np.testing.assert_allclose(plan.approach[-1], plan.posture)
    for a, b in zip(plan.approach[:-1], plan.approach[1:], strict=True):
        assert not any(contacts.touch(q) for q in dense(a, b))


def test_a_named_second_joint_is_used():
    robot, _, current = plan_of('ur5', 'upright')
    plan = plan_two_plane(robot, checker_of(arm('ur5')), current, mass=MASS,
                          second_joint='wrist_1_joint')
    assert robot.joint_names[plan.second_joint] == 'wrist_1_joint'
    reference = Reference(arm('ur5').urdf, 'tool0', MOUNTS['upright'])
    assert abs(reference.axis(plan.posture, 3)[2]) < np.sin(np.radians(3.0))


# ------------------------------------------------------------------------ the impossible


def narrowed(**limits: tuple[float, float]) -> Arm:
    """The project's arm with other limits of joints, in degrees."""
    text = arm('robocal').urdf
    for joint, ends in limits.items():
        start = text.index('<limit', text.index(f'<joint name="{joint}" type='))
        end = text.index('/>', start)
        limit = text[start:end]
        for name, angle in zip(('lower', 'upper'), np.radians(ends), strict=True):
            limit = re.sub(f'{name}="[^"]*"', f'{name}="{angle}"', limit)
        text = text[:start] + limit + text[end:]
    return Arm('narrowed', text, 'tool0')


def test_an_earlier_joint_is_used_if_the_joint_before_the_last_is_unsuitable():
    of = narrowed(joint_5=(60.0, 90.0))
    robot = of.robot()
    plan = plan_two_plane(robot, checker_of(of), middle(robot), mass=MASS)
    assert plan.second_joint < 4


def test_planes_that_no_posture_has_both_are_measured_in_one_each():
    # The forearm stays within 10° of level, so that the last axis, at 40° to it or more, is level
    # with the wrist turned aside only, where joint_5 is upright.
    of = narrowed(joint_2=(-5.0, 5.0), joint_3=(-5.0, 5.0), joint_5=(40.0, 140.0))
    robot = of.robot()
    plan = plan_two_plane(robot, checker_of(of), middle(robot), mass=2.0, second_joint='joint_5')
    last, second = plan.sweeps[:2]
    reference, tool = Reference(of.urdf, 'tool0', MOUNTS['upright']), Tool(
        2.0, np.array([0.04, -0.06, 0.09]))
    for sweep in plan.sweeps:
        assert abs(reference.axis(sweep.posture, sweep.joint)[2]) < 0.5
    for sweep in (last, second):
        assert abs(reference.axis(sweep.posture, sweep.joint)[2]) < np.sin(np.radians(3.0))
    assert np.abs(last.posture - second.posture).max() > 0.5

    motion = run(middle(robot), [
        SweepPlan(sweep.joint, 0.5 * (sweep.end(False) + sweep.end(True)),
                  0.5 * (sweep.high - sweep.low)) for sweep in plan.sweeps], rate=50.0)
    torque = Reference(of.urdf, 'tool0', MOUNTS['upright'], tool).torque(
        motion.position, motion.velocity, motion.acceleration)
    states = measured(motion, torque, Noise(), np.random.default_rng(0))
    result = estimate(
        robot, JointSamples(robot.joint_names, motion.time, *states),
        PayloadParameters(known_mass=2.0, posture_std=0.0, tilt_std=0.0, friction_change_std=0.0))
    np.testing.assert_allclose(result.values(COM), tool.com, atol=0.002)
    assert result.verdict is Verdict.PASS, result.verdict.reasons


SINGLE = Robot(arm('robocal').urdf, joints=['joint_5'])
WEIGHTLESS = Robot(arm('robocal').urdf, gravity=(0.0, 0.0, 0.0))
FLAT = Robot(scara(), tool_frame='tip')
UPRIGHT = Robot(scara(), tool_frame='tip', gravity=(0.0, 9.81, 0.0))


def test_a_floor_above_the_base_is_named():
    robot = arm('robocal').robot()
    with pytest.raises(ConvergenceError, match=r"^0 of .* touches 'floor'\. .* or correct floor"):
        plan_static_poses(robot, CollisionChecker(robot.copy(), floor=0.9), middle(robot),
                          sensor_frame='ft_wrist', count=8)


@pytest.mark.parametrize(('robot', 'values', 'error', 'words'), [
    (narrowed(joint_6=(-30.0, 30.0)).robot(), {}, ConvergenceError,
     r"'joint_6' and a second .* limits or collisions leave too short a sweep \(\d+ times\)"
     r".*second_joint.*'static_poses'"),
    (arm('robocal').robot(), {'mass': 500.0, 'second_joint': 'joint_5'}, ConvergenceError,
     r'exceed a torque limit \(\d+ times\)'),
    (FLAT, {}, ConvergenceError, 'the two axes are parallel'),
    (UPRIGHT, {}, ConvergenceError, 'an axis cannot be made horizontal'),
    (arm('robocal').robot(), {'second_joint': 'joint_6'}, ConfigurationError,
     "'joint_6' is the last joint; name one before"),
    (SINGLE, {}, ConfigurationError, 'needs two joints; this arm has 1'),
    (WEIGHTLESS, {}, ConfigurationError, 'gravity is zero'),
], ids=['range', 'overload', 'parallel', 'vertical', 'last', 'single', 'gravity'])
def test_what_cannot_be_swept_is_refused_with_the_reason(robot, values, error, words):
    with pytest.raises(error, match=words):
        plan_two_plane(robot, CollisionChecker(robot.copy(), tool_box=BOX), middle(robot),
                       **{'mass': MASS, **values})


def test_an_arm_in_collision_is_refused_with_the_remedy():
    robot = arm('robocal').robot()
    # The forearm laid along the upper arm brings the wrist to the shoulder.
    folded = np.array([0.0, 0.0, 1.6, 0.0, 0.0, 0.0])
    checker = checker_of(arm('robocal'))
    assert checker.touching(folded) is not None
    with pytest.raises(MotionError, match='In the start posture .* touches .*by hand'):
        plan_two_plane(robot, checker, folded, mass=MASS)


# -------------------------------------------------------------------------- static poses


@pytest.mark.parametrize(('name', 'frame', 'mount'), [
    ('robocal', 'ft_wrist', 'wall_30'), ('robocal', 'ft_wrist', 'upright'),
    ('panda', 'panda_link8', 'ceiling'), ('panda', 'panda_link8', 'wall_90')])
def test_static_postures_turn_the_sensor_to_all_sides(name, mount, frame):
    robot = arm(name).robot(mount)
    current = middle(robot)
    postures = plan_static_poses(robot, checker_of(arm(name)), current,
                                 sensor_frame=frame, count=10)
    assert postures.shape == (10, robot.n)
    assert (postures >= robot.lower).all()
    assert (postures <= robot.upper).all()
    contacts = contacts_of(name)
    assert not any(contacts.touch(q) for q in postures)
    reference = Reference(arm(name).urdf, arm(name).tool, MOUNTS[mount])
    down = np.array([reference.placement(q, frame).rotation.T @ MOUNTS[mount]
                     for q in postures]) / 9.81
    # A sphere's worth of directions: nothing is told less than half as well as by chance.
    assert np.linalg.eigvalsh(np.cov(down.T, ddof=0))[0] > 0.15
    torque = reference.torque(postures, 0 * postures, 0 * postures)
    assert (np.abs(torque) <= robot.effort_limit).all()
    # Different ones, so that each counts.
    gaps = [np.abs(a - b).max() for i, a in enumerate(postures) for b in postures[:i]]
    assert min(gaps) > 0.05


def test_static_postures_stay_near_with_the_first_joints():
    robot = arm('robocal').robot()
    current = np.array([0.3, -0.2, 0.4, 0.0, 0.5, 0.0])
    postures = plan_static_poses(robot, checker_of(arm('robocal')), current,
                                 sensor_frame='ft_wrist', count=8)
    assert np.abs(postures[:, :3] - current[:3]).max() < 0.4


@pytest.mark.parametrize(('robot', 'values', 'error', 'words'), [
    (UPRIGHT, {'sensor_frame': 'tip'}, ConvergenceError,
     r'far enough against gravity.*more free space'),
    (arm('robocal').robot(), {'candidates': 5}, ConvergenceError,
     'of 5 random postures are free'),
    (WEIGHTLESS, {}, ConfigurationError, 'gravity is zero'),
], ids=['tilt', 'few', 'gravity'])
def test_postures_that_cannot_be_chosen_are_refused_with_the_reason(robot, values, error, words):
    with pytest.raises(error, match=words):
        plan_static_poses(robot, CollisionChecker(robot.copy(), tool_box=BOX), middle(robot),
                          **{'sensor_frame': 'ft_wrist', 'count': 8, **values})
