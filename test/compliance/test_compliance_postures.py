# SPDX-License-Identifier: Apache-2.0
"""Postures that are chosen: feasible, seen, and better than chance."""

from __future__ import annotations

import numpy as np
import pytest
from support.arms import arm
from support.compliance_cell import COMPLIANCE, TARGET

from robocal_ros.compliance.model import Target, given_load, target_pose
from robocal_ros.compliance.plan import (
    Visibility,
    feasible_postures,
    information_block,
    least_count,
    plan_postures,
    plan_registration,
    relative_deviations,
)
from robocal_ros.compliance.posture_set import load_postures
from robocal_ros.compliance.registration import least_squares_transform
from robocal_ros.errors import ConfigurationError, ConvergenceError, RobocalError
from robocal_ros.robot.collision import CollisionChecker
from robocal_ros.robot.model import Robot

POINT = Target('tool0', TARGET)
CONE = Visibility(np.array([2.6, -0.9, 0.35]), np.array([0.0, 0.0, 1.0]), 1.3)
HOME = np.zeros(6)
FITTED = np.arange(1, 31) % 5 != 0


@pytest.fixture(scope='module')
def robot() -> Robot:
    return arm('robocal').robot()


@pytest.fixture(scope='module')
def loaded(robot: Robot) -> Robot:
    return given_load(10.0, [0.06, 0.03, 0.12], 'tool0').on(robot)


@pytest.fixture(scope='module')
def checker(robot: Robot) -> CollisionChecker:
    return CollisionChecker(robot.copy())


@pytest.fixture(scope='module')
def planned(robot: Robot, loaded: Robot, checker: CollisionChecker) -> np.ndarray:
    return plan_postures(robot, loaded, checker, HOME, POINT, CONE, count=30)


def worst(robot: Robot, loaded: Robot, postures: np.ndarray) -> float:
    blocks = np.array([information_block(robot, loaded, q, POINT) for q in postures])
    deviations = relative_deviations(blocks, COMPLIANCE, 5e-6)
    return float(deviations[np.isfinite(deviations)].max())


def test_every_posture_is_within_limits_free_held_and_seen(
    robot: Robot, loaded: Robot, checker: CollisionChecker, planned: np.ndarray
) -> None:
    assert planned.shape == (30, 6)
    for q in planned:
        assert (q > robot.lower).all()
        assert (q < robot.upper).all()
        assert checker.is_free(q)
        assert (np.abs(loaded.gravity_torque(q)) < robot.effort_limit).all()
        rotation, point = target_pose(robot, q, POINT)
        sight = (CONE.tracker - point) / np.linalg.norm(CONE.tracker - point)
        assert np.arccos(rotation[:, 2] @ sight) <= 1.3 + 1e-9


def test_they_beat_postures_by_chance(
    robot: Robot, loaded: Robot, checker: CollisionChecker, planned: np.ndarray
) -> None:
    """The worst relative standard deviation, against 50 draws of as many feasible postures."""
    pool = feasible_postures(robot, loaded, checker, HOME, POINT, CONE, 400, seed=9)
    own = worst(robot, loaded, planned[FITTED])
    generator = np.random.default_rng(0)
    ratios = [worst(robot, loaded, pool[generator.choice(len(pool), 24, replace=False)]) / own
              for _ in range(50)]
    assert min(ratios) > 1.0
    assert np.median(ratios) > 1.2


def test_the_same_seed_gives_the_same_postures(
    robot: Robot, loaded: Robot, checker: CollisionChecker, planned: np.ndarray
) -> None:
    again = plan_postures(robot, loaded, checker, HOME, POINT, CONE, count=30)
    np.testing.assert_array_equal(planned, again)


def test_predicted_deviations_are_those_of_the_normal_equations() -> None:
    blocks = np.random.default_rng(0).standard_normal((10, 3, 4))
    blocks[:, :, 1] = 0.0
    compliance = np.array([1.0, 1.0, 2.0, 4.0])
    found = relative_deviations(blocks, compliance, 0.1)
    columns = np.delete(blocks.reshape(-1, 4), 1, axis=1)
    expected = 0.1 * np.sqrt(np.diag(np.linalg.inv(columns.T @ columns))) / [1.0, 2.0, 4.0]
    np.testing.assert_allclose(np.delete(found, 1), expected, rtol=1e-9)
    assert np.isinf(found[1])


def test_registration_postures_spread_the_target(
    robot: Robot, checker: CollisionChecker
) -> None:
    for count in (3, 8):
        postures = plan_registration(robot, checker, HOME, POINT, CONE, count=count)
        points = np.array([target_pose(robot, q, POINT)[1] for q in postures])
        extent = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
        assert extent[1] > 0.2 * extent[0] > 0.1
        assert least_squares_transform(points, points).rms < 1e-12


class TestRefused:
    """What cannot be planned says why."""

    def test_a_tracker_that_sees_nothing(self, robot, loaded, checker):
        blind = Visibility(CONE.tracker, CONE.axis, 1e-3)
        with pytest.raises(ConvergenceError, match=r'looks away from the tracker \(\d+ times\)'):
            plan_postures(robot, loaded, checker, HOME, POINT, blind, count=5, candidates=10)

    def test_a_load_that_the_arm_cannot_hold(self, robot, checker):
        heavy = given_load(500.0, [0.0, 0.0, 0.1], 'tool0').on(robot)
        with pytest.raises(ConvergenceError, match='torque limit is exceeded'):
            plan_postures(robot, heavy, checker, HOME, POINT, None, count=5, candidates=10)

    def test_too_few_postures(self, robot, loaded, checker):
        least = least_count(6)
        with pytest.raises(ConfigurationError, match=f'posture_count must be at least {least}'):
            plan_postures(robot, loaded, checker, HOME, POINT, None, count=least - 1)
        assert plan_postures(robot, loaded, checker, HOME, POINT, None, count=least).shape == (
            least, 6)

    def test_no_gravity(self, loaded, checker):
        weightless = Robot(arm('robocal').urdf, gravity=(0.0, 0.0, 0.0))
        with pytest.raises(ConfigurationError, match='gravity is zero'):
            plan_postures(weightless, weightless, checker, HOME, POINT, None, count=30)

    def test_an_axis_of_no_length(self, robot, loaded, checker):
        with pytest.raises(ConfigurationError, match='target_axis is zero'):
            plan_postures(robot, loaded, checker, HOME, POINT,
                          Visibility(CONE.tracker, np.zeros(3), 1.0), count=30)


class TestOwnPostures:
    """Postures of the user's own, from a file."""

    def load(self, tmp_path, text: str, robot: Robot) -> np.ndarray:
        path = tmp_path / 'postures.yaml'
        path.write_text(text)
        return load_postures(str(path), robot)

    def test_are_read(self, tmp_path, robot):
        found = self.load(tmp_path, '- [0, 0.4, -0.6, 0.3, 0.5, 0.0]\n- [0, 0, 0, 0, 0, 1]\n',
                          robot)
        np.testing.assert_array_equal(found[0], [0.0, 0.4, -0.6, 0.3, 0.5, 0.0])

    @pytest.mark.parametrize(('text', 'words'), [
        ('[]', 'a list of postures'),
        ('{a: 1}', 'a list of postures'),
        ('- [0, 0, 0]', "'posture 1': expected 6 angles"),
        ('- [0, 0, 0, 0, 0, yes]', r"'posture 1\[5\]': expected a number, got True"),
        ('- [0, 9, 0, 0, 0, 0]', "posture 1: joint 'joint_2' is at 9 rad"),
        ('- [0, .nan, 0, 0, 0, 0]', "'joint_2' is at nan rad"),
    ])
    def test_that_are_none_are_refused(self, tmp_path, robot, text, words):
        with pytest.raises(RobocalError, match=words):
            self.load(tmp_path, text, robot)

    def test_a_file_that_is_not_there(self, robot):
        with pytest.raises(ConfigurationError, match=r'nowhere.yaml cannot be read'):
            load_postures('nowhere.yaml', robot)
