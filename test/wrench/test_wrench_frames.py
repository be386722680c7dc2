# SPDX-License-Identifier: Apache-2.0
"""Frames outside of the robot description: the way to it, and transforms that cannot be used."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest

from robocal_ros.errors import DataError
from robocal_ros.wrench.fusion import MOST_FRAMES, FrameTree

NOW = 7_000_000_000
DRAW = np.random.default_rng(4)


class Tree(FrameTree):
    """A robot with the frames base and flange, and the placements of others."""

    def __init__(self) -> None:
        super().__init__({'base', 'flange'}, 'base')

    def place(self, child: str, parent: str, stamp: int | None = None) -> pin.SE3:
        made = pin.SE3(pin.Quaternion(DRAW.normal(size=4)).normalized().matrix(),
                       DRAW.normal(size=3))
        self.add(parent, child, stamp, made.translation, pin.Quaternion(made.rotation).coeffs())
        return made


def test_a_frame_below_one_of_the_robot() -> None:
    tree = Tree()
    gripper, finger = tree.place('gripper', '/flange'), tree.place('/finger', 'gripper', NOW)
    anchor, found = tree.locate('finger', NOW + 400_000_000)
    assert anchor == 'flange'
    assert found.isApprox(gripper * finger)


def test_a_frame_above_the_robot_or_beside_it() -> None:
    tree = Tree()
    base, cart = tree.place('base', 'cart'), tree.place('cart', 'map', NOW)
    table = tree.place('table', 'map')
    for frame, expected in (('cart', base.inverse()), ('map', (cart * base).inverse()),
                            ('table', (cart * base).inverse() * table)):
        anchor, found = tree.locate(frame, NOW)
        assert anchor == 'base'
        assert found.isApprox(expected)


def test_the_newest_transform_counts() -> None:
    tree = Tree()
    tree.place('gripper', 'table')
    newest = tree.place('gripper', 'flange')
    assert tree.locate('gripper', NOW)[1].isApprox(newest)


def test_invented_frames_are_bounded_and_displace_neither_constant_nor_living_ones() -> None:
    tree = Tree()
    gripper, forgotten = tree.place('gripper', 'flange'), 0
    for number in range(3 * MOST_FRAMES):
        finger = tree.place('finger', 'gripper', NOW)
        forgotten += tree.add('flange', f'invented_{number}', NOW, np.zeros(3), [0, 0, 0, 1])
    assert len(tree._edges) == MOST_FRAMES
    assert forgotten == 2 * MOST_FRAMES + 2
    assert tree.locate('finger', NOW)[1].isApprox(gripper * finger)


def test_what_cannot_be_used_is_named() -> None:
    tree = Tree()
    with pytest.raises(DataError, match="neither /tf_static nor /tf has a transform of 'finger'"):
        tree.locate('finger', NOW)
    tree.place('finger', 'gripper')
    with pytest.raises(DataError, match="Frame 'finger' .* has a transform of 'gripper'"):
        tree.locate('finger', NOW)
    tree.place('gripper', 'finger')
    with pytest.raises(DataError, match='a loop: finger → gripper → finger'):
        tree.locate('finger', NOW)
    tree.place('gripper', 'flange', NOW)
    for stamp, words in ((NOW + 600_000_000, '0.6 s older'), (NOW - 700_000_000, '0.7 s newer')):
        with pytest.raises(DataError, match=f"from 'gripper' to 'flange' on /tf is {words}"):
            tree.locate('finger', stamp)
    for turn in ((0.0, 0.0, 0.0, 0.0), (np.nan, 0.0, 0.0, 1.0)):
        tree.add('flange', 'gripper', None, (0.0, 0.0, 0.1), turn)
        with pytest.raises(DataError, match="from 'gripper' to 'flange' is not finite"):
            tree.locate('finger', NOW)


def test_a_loop_above_the_robot_is_no_endless_search() -> None:
    tree = Tree()
    tree.place('base', 'map')
    tree.place('map', 'odom')
    tree.place('odom', 'map')
    with pytest.raises(DataError, match='a loop: map → odom → map'):
        tree.locate('camera', NOW)
