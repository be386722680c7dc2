# SPDX-License-Identifier: Apache-2.0
"""Placing the tracker: exact where it can be, and a refusal where it cannot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.spatial.transform import Rotation

from robocal_ros.compliance.measurement import (
    least_squares_transform,
    register_with_target,
    three_point,
)
from robocal_ros.errors import DataError, ExcitationError

TRIANGLE = np.array([[0.4, 0.1, 0.3], [0.9, 0.0, 0.4], [0.5, 0.6, 0.2]])


def pose(seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return Rotation.random(random_state=seed).as_matrix(), generator.uniform(-3.0, 3.0, 3)


def seen(base: np.ndarray, rotation: np.ndarray, translation: np.ndarray) -> np.ndarray:
    """Return points of the base frame as the tracker reads them."""
    return (base - translation) @ rotation


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(3, 12))
def test_both_ways_find_any_pose(seed: int, count: int) -> None:
    rotation, translation = pose(seed)
    base = np.random.default_rng(seed).uniform(-1.0, 1.0, (count, 3))
    extent = np.linalg.svd(base - base.mean(axis=0), compute_uv=False)
    if extent[1] < 0.1 * extent[0]:
        return
    found = [least_squares_transform(seen(base, rotation, translation), base)]
    if count == 3:
        found.append(three_point(seen(base, rotation, translation), base))
    for item in found:
        np.testing.assert_allclose(item.rotation, rotation, atol=1e-9)
        np.testing.assert_allclose(item.translation, translation, atol=1e-9)
        assert np.linalg.det(item.rotation) == pytest.approx(1.0)
        assert item.rms < 1e-9


def test_the_three_points_define_origin_axis_and_plane() -> None:
    """The first point is met exactly, the second in direction, the third in its half-plane."""
    rotation, translation = pose(3)
    spoilt = TRIANGLE.copy()
    spoilt[1] += 1e-3 * (TRIANGLE[1] - TRIANGLE[0])
    found = three_point(seen(spoilt, rotation, translation), TRIANGLE)
    np.testing.assert_allclose(found.rotation, rotation, atol=1e-12)
    assert found.residual[0] < 1e-12
    assert found.residual[1] == pytest.approx(1e-3 * np.linalg.norm(TRIANGLE[1] - TRIANGLE[0]))


def test_a_mirrored_frame_is_not_taken_for_a_turned_one() -> None:
    base = np.random.default_rng(1).uniform(-1.0, 1.0, (8, 3))
    with pytest.raises(DataError, match='does not fit the arm'):
        least_squares_transform(base * [1.0, 1.0, -1.0], base, limit=0.01)


@pytest.mark.parametrize('register', [three_point, least_squares_transform])
class TestRefused:
    """Points that cannot place a tracker."""

    def test_too_few(self, register):
        with pytest.raises(DataError, match='2 points cannot register the tracker'):
            register(TRIANGLE[:2], TRIANGLE[:2])

    @pytest.mark.parametrize('off', [0.0, 1e-4, 3e-3])
    def test_on_a_line_or_nearly(self, register, off):
        line = np.array([[0.0, 0.0, 0.0], [0.3, 0.1, 0.2], [0.9, 0.3, 0.6]])
        line[1, 2] += off
        with pytest.raises(DataError, match='are collinear .* Add a point off the line'):
            register(line, line)

    def test_all_in_one_place(self, register):
        with pytest.raises(DataError, match='Spread them'):
            register(1e-3 * TRIANGLE, 1e-3 * TRIANGLE)

    def test_not_finite(self, register):
        spoilt = TRIANGLE.copy()
        spoilt[1, 0] = np.nan
        with pytest.raises(DataError, match='Point 2 of the registration is not finite'):
            register(spoilt, TRIANGLE)

    def test_residuals_above_the_limit(self, register):
        spoilt = TRIANGLE.copy()
        spoilt[2] += [0.0, 0.05, 0.0]
        with pytest.raises(DataError, match=r'point [123] is .* mm from its position by forward'):
            register(spoilt, TRIANGLE, limit=1e-3)


def test_three_points_are_three() -> None:
    four = np.vstack((TRIANGLE, [[0.0, 0.0, 1.0]]))
    with pytest.raises(DataError, match='takes 3 points, got 4'):
        three_point(four, four)


class TestWithTarget:
    """Tracker and target at once."""

    def data(self, spread: float) -> tuple[np.ndarray, ...]:
        rotation, translation = pose(11)
        target = np.array([0.05, -0.02, 0.08])
        generator = np.random.default_rng(12)
        turns = Rotation.from_rotvec(spread * generator.standard_normal((10, 3))).as_matrix()
        origins = generator.uniform(-0.8, 0.8, (10, 3))
        return seen(origins + turns @ target, rotation, translation), turns, origins, \
            rotation, translation, target

    def test_all_three_are_found(self):
        points, turns, origins, rotation, translation, target = self.data(1.0)
        found = register_with_target(points, turns, origins)
        np.testing.assert_allclose(found.rotation, rotation, atol=1e-7)
        np.testing.assert_allclose(found.translation, translation, atol=1e-7)
        np.testing.assert_allclose(found.target, target, atol=1e-7)

    def test_a_link_that_is_not_turned_tells_nothing_of_the_target(self):
        points, turns, origins, *_ = self.data(1e-5)
        with pytest.raises(ExcitationError, match='turn the target too little'):
            register_with_target(points, turns, origins)

    def test_too_few(self):
        points, turns, origins, *_ = self.data(1.0)
        with pytest.raises(DataError, match='at least 4'):
            register_with_target(points[:3], turns[:3], origins[:3])
