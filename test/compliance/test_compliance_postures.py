# SPDX-License-Identifier: Apache-2.0
"""Postures that are chosen: feasible, seen, and better than chance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.arms import arm
from support.compliance_cell import COMPLIANCE, TARGET

from robocal_ros.compliance.geometry import ArmGeometry, Observations, tracked_set
from robocal_ros.compliance.measurement import (
    EndPosition,
    Registration,
    Target,
    least_squares_transform,
    target_pose,
)
from robocal_ros.compliance.model import Mounted, given_load, predicted
from robocal_ros.compliance.parameters import ComplianceParameters
from robocal_ros.compliance.plan import (
    feasible_postures,
    least_count,
    load_postures,
    plan_geometry,
    plan_postures,
    plan_registration,
    tracker_seen,
)
from robocal_ros.errors import ConfigurationError, ConvergenceError, RobocalError
from robocal_ros.robot import CollisionChecker, EffortLimits, Robot

POINT = Target('tool0', TARGET)
TRACKER = np.array([2.6, -0.9, 0.35])
EVERYWHERE = ComplianceParameters(target_frame='tool0', target_xyz=TARGET.tolist())
VALUES = replace(EVERYWHERE, tracker_position=TRACKER.tolist(), visibility_angle=1.3)
HOME = np.zeros(6)
FITTED = np.arange(1, 31) % 5 != 0


@pytest.fixture(scope='module')
def loaded(robocal: Robot) -> Robot:
    return given_load(10.0, [0.06, 0.03, 0.12], 'tool0').on(robocal)


@pytest.fixture(scope='module')
def checker(robocal: Robot) -> CollisionChecker:
    return CollisionChecker(robocal.copy())


@pytest.fixture(scope='module')
def planned(robocal: Robot, loaded: Robot, checker: CollisionChecker) -> np.ndarray:
    return plan_postures(limits(robocal, loaded), checker, HOME, VALUES)


def limits(*arms: Robot) -> list[EffortLimits]:
    return [EffortLimits(arm, {}, VALUES.effort_share) for arm in arms]


def worst(robot: Robot, loaded: Robot, postures: np.ndarray) -> float:
    blocks = np.array([predicted(robot, loaded, POINT, q, q, np.zeros(6))[1] for q in postures])
    # The first joint turns about gravity and has no information.
    columns = blocks.reshape(-1, robot.n)[:, 1:] * COMPLIANCE[1:]
    return float(np.sqrt(np.diag(np.linalg.inv(columns.T @ columns))).max())


def test_every_posture_is_within_limits_free_held_and_seen(
    robocal: Robot, loaded: Robot, checker: CollisionChecker, planned: np.ndarray
) -> None:
    assert planned.shape == (30, 6)
    for q in planned:
        assert (q > robocal.lower).all()
        assert (q < robocal.upper).all()
        assert checker.is_free(q)
        assert (np.abs(loaded.gravity_torque(q)) < robocal.effort_limit).all()
        rotation, point = target_pose(robocal, q, POINT)
        sight = (TRACKER - point) / np.linalg.norm(TRACKER - point)
        assert np.arccos(rotation[:, 2] @ sight) <= 1.3 + 1e-9


def test_they_beat_postures_by_chance(
    robocal: Robot, loaded: Robot, checker: CollisionChecker, planned: np.ndarray
) -> None:
    """The worst relative standard deviation, against 50 draws of as many feasible postures."""
    pool = feasible_postures(limits(robocal, loaded), checker, HOME, VALUES, 400, seed=9)
    own = worst(robocal, loaded, planned[FITTED])
    generator = np.random.default_rng(0)
    ratios = [worst(robocal, loaded, pool[generator.choice(len(pool), 24, replace=False)]) / own
              for _ in range(50)]
    assert min(ratios) > 1.0
    assert np.median(ratios) > 1.2


def test_postures_for_the_geometry_beat_those_by_chance(
    robocal: Robot, checker: CollisionChecker
) -> None:
    """The determinant of the information, with what is known before, against 50 draws."""
    values = replace(VALUES, method='geometry', posture_count=24)
    planned = plan_geometry(limits(robocal), checker, HOME, values)
    pool = feasible_postures(limits(robocal), checker, HOME, values, 400, seed=9)

    def information(postures: np.ndarray) -> float:
        nothing = np.zeros((0, 0))
        geometry = ArmGeometry(robocal, Mounted(None), POINT, Observations((tracked_set([
            EndPosition(q, target_pose(robocal, q, POINT)[1], None, nothing, nothing, 1, 0, 0.0)
            for q in postures]),)), values)
        free = np.r_[geometry.encoders, geometry.drift]
        rows = np.delete(geometry.linearised().jacobian, free, axis=1) / 1e-4
        known = np.repeat([2e-3, 1e-2, 1e-4, 0.05, 2e-4, 1.0], [18, 18, 6, 6, 1, 9])
        return float(np.linalg.slogdet(np.eye(58) + (rows * known).T @ (rows * known))[1])

    generator = np.random.default_rng(0)
    chance = [information(pool[generator.choice(len(pool), 24, replace=False)])
              for _ in range(50)]
    assert planned.shape == (24, 6)
    assert all(checker.is_free(q) for q in planned)
    assert information(planned) > max(chance) + 5.0
    with pytest.raises(ConfigurationError, match='posture_count must be at least 11'):
        plan_geometry(limits(robocal), checker, HOME, replace(values, posture_count=10))


def test_the_same_seed_gives_the_same_postures(
    robocal: Robot, loaded: Robot, checker: CollisionChecker, planned: np.ndarray
) -> None:
    again = plan_postures(limits(robocal, loaded), checker, HOME, VALUES)
    np.testing.assert_array_equal(planned, again)


def test_where_the_tracker_was_registered_counts_more_than_where_it_is_said_to_be() -> None:
    placed = Registration(np.eye(3), np.array([1.0, 2.0, 3.0]), np.zeros(3), 'three_point')
    np.testing.assert_array_equal(tracker_seen(VALUES, placed), [1.0, 2.0, 3.0])
    assert tracker_seen(EVERYWHERE, placed) is None
    assert tracker_seen(replace(VALUES, tracker_position=[0.0, 0.0, 0.0])) is None


def test_registration_postures_spread_the_target(robocal, checker):
    for count in (3, 8):
        postures = plan_registration(*limits(robocal), checker, HOME, VALUES, count)
        points = np.array([target_pose(robocal, q, POINT)[1] for q in postures])
        extent = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
        assert extent[1] > 0.2 * extent[0] > 0.1
        assert least_squares_transform(points, points).rms < 1e-12


class TestRefused:
    """What cannot be planned says why."""

    def test_a_tracker_that_sees_nothing(self, robocal, loaded, checker):
        unobservable = replace(VALUES, visibility_angle=1e-2)
        with pytest.raises(ConvergenceError, match=r'looks away from the tracker \(\d+ times\)'):
            plan_postures(limits(robocal, loaded), checker, HOME, unobservable)

    def test_a_load_that_the_arm_cannot_hold(self, robocal, checker):
        heavy = given_load(5000.0, [0.0, 0.0, 0.1], 'tool0').on(robocal)
        with pytest.raises(ConvergenceError, match=r"joint 'joint_2' exceeds its effort limit \("):
            plan_postures(limits(robocal, heavy), checker, HOME, EVERYWHERE)

    def test_too_few_postures(self, robocal, loaded, checker):
        least = least_count(6)
        with pytest.raises(ConfigurationError, match=f'posture_count must be at least {least}'):
            plan_postures(limits(robocal, loaded), checker, HOME,
                          replace(EVERYWHERE, posture_count=least - 1))
        assert plan_postures(limits(robocal, loaded), checker, HOME,
                             replace(EVERYWHERE, posture_count=least)).shape == (least, 6)

    def test_no_gravity(self, loaded, checker):
        weightless = Robot(arm('robocal').urdf, gravity=(0.0, 0.0, 0.0))
        with pytest.raises(ConfigurationError, match='gravity is zero'):
            plan_postures(limits(weightless, weightless), checker, HOME, EVERYWHERE)


class TestOwnPostures:
    """Postures of the user's own, from a file."""

    def load(self, tmp_path, text: str, robot: Robot) -> np.ndarray:
        path = tmp_path / 'postures.yaml'
        path.write_text(text)
        return load_postures(str(path), robot)

    def test_are_read(self, tmp_path, robocal):
        found = self.load(tmp_path, '- [0, 0.4, -0.6, 0.3, 0.5, 0.0]\n- [0, 0, 0, 0, 0, 1]\n',
                          robocal)
        np.testing.assert_array_equal(found[0], [0.0, 0.4, -0.6, 0.3, 0.5, 0.0])

    @pytest.mark.parametrize(('text', 'words'), [
        ('[]', 'a list of postures'),
        ('{a: 1}', 'a list of postures'),
        ('- [0, 0, 0]', "'posture 1': expected 6 angles"),
        ('- [0, 0, 0, 0, 0, yes]', r"'posture 1\[5\]': expected a number, got True"),
        ('- [0, 9, 0, 0, 0, 0]', "posture 1: joint 'joint_2' is at 9 rad"),
        ('- [0, .nan, 0, 0, 0, 0]', "'joint_2' is at nan rad"),
    ])
    def test_that_are_none_are_refused(self, tmp_path, robocal, text, words):
        with pytest.raises(RobocalError, match=words):
            self.load(tmp_path, text, robocal)
