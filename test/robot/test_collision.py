# SPDX-License-Identifier: Apache-2.0
"""What touches what."""

from __future__ import annotations

import re

import numpy as np
import pytest
from support.arms import ARMS, BALL, CHAIN, arm, middle
from support.contacts import Contacts

from robocal_ros.errors import ConfigurationError, ModelError
from robocal_ros.robot import CollisionChecker, Robot

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
    assert checker.touching(q) == "'root_0' touches 'tip_0'"


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


@pytest.mark.parametrize(('kind', 'values', 'words'), [
    *(('keep_out', values, 'keep_out_boxes must be six numbers for each') for values in (
        (1.0,), (0, 0, 0, 1, 1, 0), (0, 0, 0, 1, 1, -1), (0, 0, 0, 1, 1, 1, 2),
        (0, 0, np.nan, 1, 1, 1))),
    *(('tool_box', values, 'tool_box must be three positive .* got') for values in (
        (0.1, 0.1), (0.1, 0.1, 0.0), (0.1, np.nan, 0.1), (0.1, 0.1, -1.0))),
    ('floor', 0.0, 'floor needs a direction'),
])
def test_shapes_that_are_none_are_refused(kind, values, words):
    robot = Robot(CHAIN, tool_frame='tip', gravity=(0.0, 0.0, 0.0))
    with pytest.raises(ConfigurationError, match=words):
        CollisionChecker(robot, **{kind: values})


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


@pytest.mark.parametrize('name', ARMS)
def test_it_agrees_with_contacts_of_the_untouched_model(name):
    robot = arm(name).robot()
    checker = CollisionChecker(robot, package_dirs=arm(name).package_dirs, tool_box=BOX)
    assert checker.missing_meshes == []
    contacts = Contacts(arm(name).urdf, arm(name).tool, arm(name).package_dirs, BOX,
                        *robot.sampling_limits())
    generator = np.random.default_rng(5)
    postures = generator.uniform(*robot.sampling_limits(), (100, robot.n))
    found = np.array([not checker.is_free(q) for q in postures])
    truth = np.array([contacts.touch(q) for q in postures])
    np.testing.assert_array_equal(found, truth)
    # Both kinds must be there, or agreement says nothing.
    assert 3 < truth.sum() < 97


def test_missing_meshes_are_said_to_leave_links_unprotected():
    robot = arm('ur5').robot()
    unobservable = CollisionChecker(robot).missing_meshes
    assert {'forearm_link', 'wrist_3_link'} <= set(unobservable)


def fixed(name: str, parent: str, xyz: str, size: str) -> str:
    """Return a link that is a box fixed to another one."""
    return (f'<link name="{name}"><collision><geometry><box size="{size}"/></geometry>'
            f'</collision></link><joint name="to_{name}" type="fixed"><parent link="{parent}"/>'
            f'<child link="{name}"/><origin xyz="{xyz}"/></joint></robot>')


def with_bar(link: str, size: str) -> str:
    """Return the chain with a box along one of its links."""
    return CHAIN.replace(f'<link name="{link}"/>', (
        f'<link name="{link}"><collision><origin xyz="0.5 0 0"/><geometry><box size="{size}"/>'
        '</geometry></collision></link>'))


class TestWhatIsChecked:
    """Which bodies count, by the links that joints connect."""

    def test_a_table_fixed_to_the_base_counts_for_the_first_moving_link(self):
        checker = chain(with_bar('a', '0.8 0.1 0.1').replace('</robot>', fixed(
            'table', 'root', '0 0.6 0', '0.2 0.2 0.2')))
        assert checker.touching(np.zeros(3)) is None
        assert checker.touching(np.array([np.pi / 2, 0.0, 0.0])) == "'a_0' touches 'table_0'"
        assert checker.by_design == []

    def test_a_housing_that_is_always_in_contact_is_left_out_by_name(self):
        shoulder = CHAIN.replace('<link name="a"/>', f'<link name="a">{BALL}</link>')
        checker = chain(shoulder.replace('</robot>', fixed('foot', 'root', '0 0 0', '1 1 0.1')))
        assert checker.by_design == ["'a_0' and 'foot_0'"]
        assert checker.is_free(np.zeros(3))

    def test_an_obstacle_that_is_always_in_contact_with_the_tip_is_wrong(self):
        checker = chain(CHAIN.replace('</robot>', fixed('hall', 'root', '0 0 0', '9 9 9')))
        assert checker.touching(np.zeros(3)) == "'tip_0' touches 'hall_0'"

    def test_the_tool_box_counts_for_the_link_before_the_last_joint(self):
        """A folded arm with parallel axes, whose tool reaches back along its last link."""
        checker = chain(with_bar('b', '0.6 0.1 0.3'), tool_box=(1.5, 0.05, 0.2))
        assert checker.touching(np.array([0.0, 0.0, np.pi / 2])) is None
        assert checker.touching(np.zeros(3)) == "'b_0' touches 'tool_box'"

    def test_the_box_of_the_load_counts_while_it_is_mounted(self):
        q = np.array([0.0, 2.0 * np.arccos(0.25 / 2.0), 0.0])
        checker = chain(tool_box=(0.05, 0.05, 0.05), load_box=(0.3, 0.3, 0.1))
        assert 'load_box' in checker.touching(q)
        checker.loaded = False
        assert checker.touching(q) is None
        assert checker.first_contact(np.stack((q, q))) is None
        checker.loaded = True
        assert not checker.is_free(q)


class TestClearance:
    """Distance that pairs keep."""

    BENT = np.array([0.4, 2.0 * np.arccos(0.3 / 2.0), 0.3])
    """The balls are 0.1 m apart."""

    def test_a_given_one_is_named_with_the_distance_found(self):
        checker = chain()
        checker.keep_clear(np.zeros(3), 0.09, 0.15)
        assert checker.is_free(self.BENT)
        checker.keep_clear(np.zeros(3), 0.11, 0.15)
        assert checker.touching(self.BENT) == (
            "'root_0' is 100 mm from 'tip_0', nearer than the clearance of 110 mm")
        said = checker.first_contact(np.linspace(np.zeros(3), self.BENT, 300))
        assert re.search(r'after (99|100) % of the path, at \[0\.399, 2\.8\d+, 0\.299\] rad', said)
        checker.keep_clear(np.zeros(3), 0.0, 0.15)
        assert checker.is_free(self.BENT)

    def test_the_default_is_what_the_deviation_sweeps(self):
        checker = chain()
        # By 2 cos(q / 2), the elbow's deviation of 0.15 rad closes up to 0.15 m.
        for apart, free in ((0.10, False), (0.17, True)):
            q = np.array([0.0, 2.0 * np.arccos((0.2 + apart) / 2.0), 0.0])
            assert checker.is_free(q)
            checker.keep_clear(np.zeros(3), -1.0, 0.15)
            assert checker.is_free(q) == free
            checker.keep_clear(np.zeros(3), -1.0, 0.01)
            assert checker.is_free(q)
            checker.keep_clear(np.zeros(3), 0.0, 0.0)

    def test_an_arm_that_rests_nearer_may_come_half_as_near(self):
        checker = chain()
        (said,) = checker.keep_clear(self.BENT, -1.0, 0.15)
        assert re.fullmatch(
            r"'root_0' rests 100 mm from 'tip_0', where 1[345]\d mm are to be kept", said)
        assert checker.is_free(self.BENT)
        for apart, free in ((0.055, True), (0.045, False)):
            q = np.array([0.0, 2.0 * np.arccos((0.2 + apart) / 2.0), 0.0])
            assert checker.is_free(q) == free

    @pytest.mark.parametrize('name', ARMS)
    def test_deviations_of_all_joints_rarely_touch_from_postures_that_keep_it(self, name):
        made = arm(name)
        plain, clear = (CollisionChecker(made.robot(), package_dirs=made.package_dirs,
                                         tool_box=BOX) for _ in range(2))
        clear.keep_clear(middle(made.robot()), -1.0, 0.15)
        generator = np.random.default_rng(8)
        free = kept = near = left = 0
        for q in generator.uniform(*plain.robot.sampling_limits(), (150, plain.robot.n)):
            if plain.is_free(q):
                off = 0.15 * generator.choice([-1.0, 1.0], (4, plain.robot.n))
                touches = not all(plain.is_free(q + step) for step in off)
                keeps = clear.is_free(q)
                free, near = free + 1, near + touches
                kept, left = kept + keeps, left + (keeps and touches)
        assert near >= 4
        assert left <= 0.5 * near
        assert kept > 0.5 * free


def test_geometry_that_cannot_be_read_is_refused(tmp_path):
    mesh = tmp_path / 'broken.stl'
    mesh.write_text('not a mesh')
    text = CHAIN.replace('<sphere radius="0.1"/>', f'<mesh filename="file://{mesh}"/>', 1)
    with pytest.raises(ModelError, match='collision geometry .* not usable'):
        chain(text)
