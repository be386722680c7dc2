# SPDX-License-Identifier: Apache-2.0
"""Which orientation is level: closed forms, invariants, and where a choice is undefined."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given, settings, strategies as st
from support.arms import arm

from robocal_ros.errors import ConfigurationError
from robocal_ros.leveling.model import (
    TIE,
    angle_between,
    base_frame,
    level_targets,
    reference_axis,
    tilt,
)
from robocal_ros.robot.model import Robot

UP = np.array([0.0, 0.0, 1.0])
ANGLES = st.floats(-3.0, 3.0)


def rotation(roll: float, pitch: float, yaw: float) -> np.ndarray:
    return np.array(pin.rpy.rpyToMatrix(roll, pitch, yaw))


def is_rotation(matrix: np.ndarray) -> bool:
    return bool(np.allclose(matrix @ matrix.T, np.eye(3), atol=1e-12)
                and np.linalg.det(matrix) > 0.0)


@settings(deadline=None, max_examples=60)
@given(ANGLES, ANGLES, ANGLES)
def test_nearest_heading_is_the_closed_form(roll: float, pitch: float, yaw: float) -> None:
    current = rotation(roll, pitch, yaw)
    if angle_between(current[:, 2], UP) > 3.0:
        return
    [target] = level_targets(current, UP, direction='up')
    by_formula = np.arctan2(current[1, 0] - current[0, 1], current[0, 0] + current[1, 1])
    np.testing.assert_allclose(target.rotation, rotation(0.0, 0.0, by_formula), atol=1e-9)
    np.testing.assert_allclose(pin.exp3(target.turn) @ current, target.rotation, atol=1e-9)


@settings(deadline=None, max_examples=60)
@given(ANGLES, ANGLES, ANGLES, st.sampled_from(['up', 'down', 'nearest']),
       st.sampled_from(['nearest', 'x', 'y']))
def test_every_target_is_level_and_reached_by_its_turn(
    roll: float, pitch: float, yaw: float, direction: str, heading: str
) -> None:
    current = rotation(roll, pitch, yaw)
    axis = rotation(0.3, -0.5, 0.0)[:, 2]
    for target in level_targets(current, axis, heading=heading, direction=direction):
        assert is_rotation(target.rotation)
        assert tilt(target.rotation, axis, direction) < 1e-7
        np.testing.assert_allclose(pin.exp3(target.turn) @ current, target.rotation, atol=1e-7)
        assert target.angle <= np.pi + 2.0 * TIE


@pytest.mark.parametrize(('heading', 'column'), [('x', 0), ('y', 1)])
@pytest.mark.parametrize('direction', ['up', 'down'])
def test_x_and_y_keep_the_direction_of_their_projection(
    heading: str, column: int, direction: str
) -> None:
    current = rotation(0.5, -0.4, 0.8)
    [target] = level_targets(current, UP, heading=heading, direction=direction)
    kept, before = target.rotation[:2, column], current[:2, column]
    np.testing.assert_allclose(kept, before / np.linalg.norm(before), atol=1e-12)
    assert target.rotation[2, 2] == pytest.approx(1.0 if direction == 'up' else -1.0)
    assert target.up == (direction == 'up')
    assert not target.note


@pytest.mark.parametrize(('heading', 'matrix', 'other'), [
    # x, then y, looks straight up.
    ('x', [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], 'y'),
    ('y', [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], 'x'),
])
def test_a_vertical_axis_defines_no_heading(
    heading: str, matrix: list[list[float]], other: str
) -> None:
    current = np.array(matrix)
    [target] = level_targets(current, UP, heading=heading, direction='up')
    assert f"The tool's {heading} axis is vertical" in target.note
    assert f'that of {other} was kept' in target.note
    [expected] = level_targets(current, UP, heading=other, direction='up')
    np.testing.assert_allclose(target.rotation, expected.rotation, atol=1e-12)


@pytest.mark.parametrize('off', [0.0, 1e-9, 5e-4])
def test_half_a_turn_is_a_tie_of_axes_all_round(off: float) -> None:
    current = rotation(np.pi - off, 0.0, 0.3)
    targets = level_targets(current, UP, direction='up')
    assert len(targets) == 24
    axes = np.array([target.turn / target.angle for target in targets])
    assert np.abs(axes[:, 2]).max() < 1e-3
    gaps = np.diff(np.sort(np.arctan2(axes[:, 1], axes[:, 0])))
    np.testing.assert_allclose(gaps, 2.0 * np.pi / 24, atol=2e-3)
    for target in targets:
        assert target.angle == pytest.approx(np.pi, abs=TIE)
        np.testing.assert_allclose(pin.exp3(target.turn) @ current, target.rotation, atol=1e-9)
        assert tilt(target.rotation, UP, 'up') < 1e-9
        assert 'upside down' in target.note


@pytest.mark.parametrize('current', [np.diag([1.0, -1.0, -1.0]), np.diag([-1.0, 1.0, -1.0])])
def test_a_tool_exactly_upside_down_is_turned(current: np.ndarray) -> None:
    targets = level_targets(current, UP, direction='up')
    assert len(targets) > 1
    for target in targets:
        assert target.angle == pytest.approx(np.pi)
        np.testing.assert_allclose(target.rotation[:, 2], UP, atol=1e-12)


def test_half_a_turn_with_a_kept_axis_can_go_both_ways() -> None:
    current = rotation(np.pi, 0.0, 0.3)
    first, second = level_targets(current, UP, heading='x', direction='up')
    np.testing.assert_allclose(first.rotation, second.rotation, atol=1e-12)
    np.testing.assert_allclose(first.turn, -second.turn, atol=1e-6)


def test_a_lying_tool_can_go_up_or_down() -> None:
    targets = level_targets(rotation(0.5 * np.pi, 0.0, 0.3), UP)
    assert sorted(target.up for target in targets) == [False, True]
    assert len(level_targets(rotation(0.5 * np.pi - 0.01, 0.0, 0.3), UP)) == 1


@pytest.mark.parametrize('direction', ['up', 'down'])
def test_a_level_tool_needs_no_turn(direction: str) -> None:
    current = rotation(0.0 if direction == 'up' else np.pi, 0.0, 1.0)
    for heading in ('nearest', 'x', 'y', 'free'):
        [target] = level_targets(current, UP, heading=heading, direction=direction)
        assert target.angle < 1e-9


@pytest.mark.parametrize('values', [{'heading': 'z'}, {'direction': 'left'}])
def test_unknown_choices_are_refused(values: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match='expected one of'):
        level_targets(np.eye(3), UP, **values)


class TestReference:
    def test_base_is_the_link_that_carries_the_first_joint(self) -> None:
        mounted = arm('robocal').urdf.replace(
            '<origin rpy="0 0 0" xyz="0 0 0"/>', '<origin rpy="0.3 0 0" xyz="0 0 0"/>', 1)
        robot = Robot(mounted, tool_frame='tool0')
        assert base_frame(robot) == 'base_link'
        np.testing.assert_allclose(reference_axis(robot, 'base'),
                                   robot.transform_frame_to_root(
                                       np.zeros(6), 'base_link').rotation[:, 2])

    @pytest.mark.parametrize('mount', ['upright', 'ceiling', 'wall_30', 'wall_90'])
    def test_gravity_is_straight_up_however_the_base_is_mounted(self, mount: str) -> None:
        robot = arm('robocal').robot(mount)
        expected = -robot.gravity / np.linalg.norm(robot.gravity)
        np.testing.assert_allclose(reference_axis(robot, 'gravity'), expected)

    def test_a_frame_that_stands_still(self) -> None:
        robot = arm('robocal').robot()
        np.testing.assert_allclose(reference_axis(robot, 'world'), UP)
