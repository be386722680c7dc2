# SPDX-License-Identifier: Apache-2.0
"""What touches what."""

from __future__ import annotations

import numpy as np
import pytest
from support.arms import ARMS, CHAIN, arm, middle
from support.contacts import Contacts

from robocal_ros.errors import ConfigurationError, ModelError
from robocal_ros.robot.collision import CollisionChecker
from robocal_ros.robot.model import Robot

BOX = (0.1, 0.1, 0.15)

# Three links of 1 m in a row, turning about z; a ball of 0.1 m at the root and at the tip.


def chain(text: str = CHAIN, **more) -> CollisionChecker:
    return CollisionChecker(Robot(text, tool_frame='tip'), **more)


def test_two_balls_touch_when_their_centres_are_closer_than_their_radii():
    checker = chain()
    # The tip's centre is 2 cos(q / 2) from the root when the second joint turns by q.
    for distance, touches in ((0.21, False), (0.19, True)):
        q = np.array([0.4, 2.0 * np.arccos(distance / 2.0), 0.3])
        assert (checker.touching(q) is not None) == touches
        assert checker.is_free(q) != touches
    assert {name.rsplit('_', 1)[0] for name in checker.touching(q)} == {'root', 'tip'}


def test_the_tool_box_counts():
    q = np.array([0.0, 2.0 * np.arccos(0.25 / 2.0), 0.0])
    assert chain().is_free(q)
    assert 'tool_box' in chain(tool_box=(0.3, 0.3, 0.1)).touching(q)


@pytest.mark.parametrize('gravity', [(0, 0, -9.81), (0, 9.81, 0)])
def test_the_floor_lies_against_gravity(gravity):
    robot = Robot(CHAIN, tool_frame='tip', gravity=gravity)
    q = np.array([np.pi / 2, 0.0, 0.0])
    tip = robot.transform_frame_to_root(q, 'tip').translation
    height = -(np.array(gravity) @ tip) / 9.81
    assert CollisionChecker(robot, floor=height - 0.11).is_free(q)
    assert 'floor' in CollisionChecker(robot, floor=height - 0.09).touching(q)


def test_boxes_are_kept_out_of():
    robot = Robot(CHAIN, tool_frame='tip')
    q = np.array([0.3, 0.2, 0.0])
    x, y, z = robot.transform_frame_to_root(q, 'tip').translation
    # The ball at the tip has a radius of 0.1 m, the first box is out of reach.
    far, size = (9.0, 9.0, 9.0, 1.0, 1.0, 1.0), (0.2, 0.2, 0.2)
    assert CollisionChecker(robot, keep_out=(*far, x, y, z + 0.21, *size)).is_free(q)
    touching = CollisionChecker(robot, keep_out=(*far, x, y, z + 0.19, *size)).touching(q)
    assert touching is not None
    assert 'keep_out_box_2' in touching
    assert CollisionChecker(robot, keep_out=[0.0] * 6).is_free(q)


@pytest.mark.parametrize('values', [
    (1.0,), (0, 0, 0, 1, 1, 0), (0, 0, 0, 1, 1, -1), (0, 0, 0, 1, 1, 1, 2),
    (0, 0, np.nan, 1, 1, 1)])
def test_a_box_is_six_numbers(values):
    with pytest.raises(ConfigurationError, match='keep_out_boxes must be six numbers for each'):
        CollisionChecker(Robot(CHAIN, tool_frame='tip'), keep_out=values)


def test_a_floor_needs_gravity():
    robot = Robot(CHAIN, tool_frame='tip', gravity=(0.0, 0.0, 0.0))
    with pytest.raises(ConfigurationError, match='floor needs a direction'):
        CollisionChecker(robot, floor=0.0)


def test_the_way_is_looked_at_between_its_ends():
    checker = chain()
    q = np.zeros((601, 3))
    q[:, 1] = np.linspace(-3.1, 3.1, 601)
    q[:, 1] = np.where(q[:, 1] < 0.0, 0.5, q[:, 1])
    said = checker.first_contact(q)
    assert 'root' in said
    assert 'tip' in said
    assert '% of the path' in said
    share = float(said.split('after ')[1].split(' %')[0])
    touching = 2.0 * np.arccos(0.1)
    travelled = np.cumsum(np.abs(np.diff(q[:, 1], prepend=q[0, 1])))
    expected = 100.0 * travelled[np.argmax(q[:, 1] > touching)] / travelled[-1]
    assert share == pytest.approx(expected, abs=1.5)
    assert checker.first_contact(q[:400]) is None


def test_a_way_of_no_length_is_looked_at_too():
    q = np.array([0.0, 3.1, 0.0])
    assert chain().first_contact(np.stack((q, q))) is not None
    assert chain().first_contact(np.zeros((2, 3))) is None


@pytest.mark.parametrize('name', ARMS)
def test_it_agrees_with_contacts_of_the_untouched_model(name):
    robot = arm(name).robot()
    checker = CollisionChecker(robot, package_dirs=arm(name).package_dirs, tool_box=BOX)
    assert checker.missing_meshes == []
    contacts = Contacts(arm(name).urdf, arm(name).tool, arm(name).package_dirs, BOX,
                        *robot.sampling_limits())
    generator = np.random.default_rng(5)
    postures = generator.uniform(*robot.sampling_limits(), (150, robot.n))
    found = np.array([not checker.is_free(q) for q in postures])
    truth = np.array([contacts.touch(q) for q in postures])
    np.testing.assert_array_equal(found, truth)
    # Both kinds must be there, or agreement says nothing.
    assert 3 < truth.sum() < 147


@pytest.mark.parametrize('name', ARMS)
def test_the_middle_of_the_limits_is_free(name):
    robot = arm(name).robot()
    checker = CollisionChecker(robot, package_dirs=arm(name).package_dirs)
    assert checker.touching(middle(robot)) is None


def test_missing_meshes_are_said_to_leave_links_unprotected():
    robot = arm('ur5').robot()
    unobservable = CollisionChecker(robot).missing_meshes
    assert {'forearm_link', 'wrist_3_link'} <= set(unobservable)


@pytest.mark.parametrize('box', [(0.1, 0.1), (0.1, 0.1, 0.0), (0.1, np.nan, 0.1),
                                 (0.1, 0.1, -1.0)])
def test_a_tool_box_must_have_three_positive_lengths(box):
    with pytest.raises(ConfigurationError, match='tool_box must be three positive .* got'):
        chain(tool_box=box)


def test_geometry_that_cannot_be_read_is_refused(tmp_path):
    mesh = tmp_path / 'broken.stl'
    mesh.write_text('not a mesh')
    text = CHAIN.replace('<sphere radius="0.1"/>', f'<mesh filename="file://{mesh}"/>', 1)
    with pytest.raises(ModelError, match='collision geometry .* not usable'):
        chain(text)
