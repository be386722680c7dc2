# SPDX-License-Identifier: Apache-2.0
"""The arm's model: joints, frames, limits, gravity, bodies."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
import xacro
from support.arms import ARMS, MOUNTS, PROJECT_ARM, arm, middle, scara
from support.forward import Reference, Tool

from robocal_ros.errors import ConfigurationError, ModelError
from robocal_ros.payload import PayloadParameters
from robocal_ros.robot import NewtonEuler, RigidBodyInertia, Robot, identity_of, make_robot

PENDULUM = """<robot name="pendulum"><link name="base"/>
<joint name="swing" type="{kind}"><parent link="base"/><child link="rod"/>
<origin xyz="0 0 1"/><axis xyz="0 1 0"/>{limit}</joint>
<link name="rod"><inertial><origin xyz="0 0 -0.5" rpy="0.3 0.2 0.1"/><mass value="2"/>
<inertia ixx="0.1" ixy="0.01" ixz="0.02" iyy="0.2" iyz="0.03" izz="0.15"/></inertial></link>
<joint name="weld" type="fixed"><parent link="rod"/><child link="tip"/>
<origin xyz="0 0 -1" rpy="0 0 1.5707963267948966"/></joint>
<link name="tip"><inertial><mass value="1"/>
<inertia ixx="0.01" ixy="0" ixz="0" iyy="0.02" iyz="0" izz="0.03"/></inertial></link></robot>"""
LIMIT = '<limit lower="-1" upper="2" effort="{effort}" velocity="{velocity}"/>'


def pendulum(kind: str = 'revolute', effort: float = 5.0, velocity: float = 3.0, **more) -> Robot:
    limit = LIMIT.format(effort=effort, velocity=velocity) if kind == 'revolute' else ''
    return Robot(PENDULUM.format(kind=kind, limit=limit), tool_frame='tip', **more)


@pytest.mark.parametrize('name', ARMS)
def test_every_joint_has_one_angle(name):
    robot = arm(name).robot()
    assert robot.model.nq == robot.model.nv == robot.n == len(robot.joint_names)
    assert robot.n == {'panda': 7, 'xarm7': 7}.get(name, 6)
    assert tuple(robot.model.names)[1:] == robot.joint_names


def test_continuous_joints_have_no_position_limit(kinova):
    endless = [i for i in range(6) if np.isinf(kinova.lower[i]) and np.isinf(kinova.upper[i])]
    assert endless == [0, 3, 5]
    low, high = kinova.sampling_limits()
    assert np.isfinite(low).all()
    assert np.isfinite(high).all()
    np.testing.assert_allclose(high[endless] - low[endless], 2.0 * np.pi)


@pytest.mark.parametrize('name', ARMS)
@pytest.mark.parametrize('mount', MOUNTS)
def test_gravity_and_dynamics_agree_with_the_untouched_model(name, mount):
    robot = arm(name).robot(mount)
    reference = Reference(arm(name).urdf, arm(name).tool, MOUNTS[mount])
    generator = np.random.default_rng(3)
    q, v, a = (generator.uniform(0.0, 1.0, (5, robot.n)) for _ in range(3))
    fingers = [name for name in arm(name).urdf.split('"') if 'panda_finger_joint' in name]
    assert bool(fingers) == (name == 'panda')
    still = np.zeros_like(q)
    np.testing.assert_allclose(
        robot.gravity_torques(q), reference.torque(q, still, still), atol=1e-9)
    np.testing.assert_allclose(robot.gravity_torque(q[0]), robot.gravity_torques(q)[0])
    np.testing.assert_allclose(
        [robot.inverse_dynamics(*row) for row in zip(q, v, a, strict=True)],
        reference.torque(q, v, a), atol=1e-9)


@pytest.mark.parametrize(('gravity', 'down'), [
    ((0.0, 0.0, -9.81), 0.0), ((0.0, 0.0, -1.62), 0.0), ((9.81, 0.0, 0.0), -0.5 * np.pi)])
def test_pendulum_holds_m_g_l_sine(gravity, down):
    # A rod of 2 kg with its centre 0.5 m, and a tip of 1 kg 1 m, below a horizontal axis.
    robot = pendulum(gravity=gravity)
    for angle in (-1.0, 0.0, 0.4, 1.9):
        expected = (2.0 * 0.5 + 1.0 * 1.0) * np.linalg.norm(gravity) * np.sin(angle - down)
        assert robot.gravity_torque(np.array([angle]))[0] == pytest.approx(expected, abs=1e-12)


def test_limits_are_those_of_the_urdf_and_zero_means_none():
    robot = pendulum()
    assert (robot.lower[0], robot.upper[0]) == (-1.0, 2.0)
    assert (robot.velocity_limit[0], robot.effort_limit[0]) == (3.0, 5.0)
    free = pendulum(effort=0.0, velocity=0.0)
    assert np.isinf([free.velocity_limit[0], free.effort_limit[0]]).all()
    endless = pendulum('continuous')
    assert np.isinf([endless.lower[0], endless.upper[0], endless.velocity_limit[0]]).all()


def test_limits_cannot_be_changed_by_accident(robocal):
    for values in (robocal.lower, robocal.upper, robocal.gravity, robocal.effort_limit):
        with pytest.raises(ValueError, match='read-only'):
            values[0] = 1.0


class TestIdentity:
    """Which robot descriptions results take for that of the same arm."""

    @pytest.mark.parametrize('change', [
        ('</robot>', '<!-- driver --><ros2_control name="x" type="system"/></robot>'),
        ('</robot>', '<gazebo reference="link_1"><sensor name="s"/></gazebo></robot>'),
        ('<visual>', '<visual name="other">'),
        (' xyz="0 0 0"', ' xyz="0.0  0.00 0e3"'),
    ])
    def test_of_texts_with_the_same_mechanics(self, change: tuple[str, str]) -> None:
        text = arm('robocal').urdf
        assert change[0] in text
        other = identity_of(text.replace(*change))
        assert other.urdf_sha256 != identity_of(text).urdf_sha256
        assert other.is_described_as(identity_of(text))

    @pytest.mark.parametrize('pattern', [
        r'<mass value="(.+?)"', r'<inertia .*?iyy="(.+?)"', r'<limit .*?effort="(.+?)"',
        r'<joint .*?<origin .*?xyz="(.+?) ', r'<axis xyz="(.+?) '])
    def test_of_other_mechanics(self, pattern: str) -> None:
        text = arm('robocal').urdf
        found = re.search(pattern, text, re.DOTALL)
        assert found is not None
        begin, end = found.span(1)
        changed = f'{text[:begin]}{float(found[1]) + 0.25}{text[end:]}'
        assert not identity_of(changed).is_described_as(identity_of(text))

    def test_of_every_hardware_of_the_launch_file(self) -> None:
        texts = [xacro.process_file(str(PROJECT_ARM), mappings={'hardware': item}).toxml()
                 for item in ('sim', 'mock', 'gazebo')]
        assert len(set(texts)) == len(texts)
        for text in texts:
            assert identity_of(text).is_described_as(identity_of(texts[0]))

    def test_of_a_result_that_does_not_state_its_mechanics(self) -> None:
        text = arm('robocal').urdf
        earlier = replace(identity_of(text), mechanics_sha256='')
        assert earlier.is_described_as(identity_of(text))
        assert not earlier.is_described_as(identity_of(text + ' '))


def test_a_locked_finger_weighs_at_its_limit_that_is_nearest_to_zero():
    tree = ElementTree.fromstring(arm('panda').urdf)
    for joint in tree.iter('joint'):
        if joint.get('name') == 'panda_finger_joint1':
            joint.find('limit').set('lower', '0.04')
        elif (mimic := joint.find('mimic')) is not None:
            joint.remove(mimic)
    there = Robot(ElementTree.tostring(tree, 'unicode'), tool_frame='panda_hand')
    shut = arm('panda').robot()
    assert there.n == 7
    offset = there.distal_inertia('panda_hand').com - shut.distal_inertia('panda_hand').com
    full = pin.buildModelFromXML(arm('panda').urdf)
    finger = full.inertias[full.getJointId('panda_finger_joint1')].mass
    total = there.distal_inertia('panda_hand').mass
    # One finger 40 mm further along the hand's y axis.
    np.testing.assert_allclose(offset, [0.0, 0.04 * finger / total, 0.0], atol=1e-12)


@pytest.mark.parametrize('name', ARMS)
def test_distal_inertia_is_pinocchios_sum_over_the_subtree(name):
    robot = arm(name).robot()
    full = pin.buildModelFromXML(arm(name).urdf)
    data = full.createData()
    pin.crba(full, data, pin.neutral(full), pin.Convention.LOCAL)
    q = np.zeros(robot.n)
    for joint in robot.joint_names:
        index = full.getJointId(joint)
        body = next(f for f in full.frames if f.parentJoint == index
                    and f.type == pin.FrameType.BODY and f.placement.isIdentity(1e-9))
        composite = data.Ycrb[index]
        found = robot.distal_inertia(body.name, q)
        assert found.mass == pytest.approx(composite.mass, rel=1e-9)
        np.testing.assert_allclose(found.com, composite.lever, atol=1e-9)
        np.testing.assert_allclose(found.inertia, composite.inertia, atol=1e-9)


def test_distal_inertia_of_two_welded_bodies_by_hand():
    found = pendulum().distal_inertia('rod')
    assert found.mass == pytest.approx(3.0)
    np.testing.assert_allclose(found.com, [0.0, 0.0, -2.0 / 3.0], atol=1e-12)
    # Steiner: 2 kg and 1 kg, 0.5 m apart, have a reduced mass of 2/3 kg.
    rotation = pin.rpy.rpyToMatrix(0.3, 0.2, 0.1)
    rod = rotation @ np.array(
        [[0.1, 0.01, 0.02], [0.01, 0.2, 0.03], [0.02, 0.03, 0.15]]) @ rotation.T
    tip = np.diag([0.02, 0.01, 0.03])
    steiner = 2.0 / 3.0 * 0.25 * np.diag([1.0, 1.0, 0.0])
    np.testing.assert_allclose(found.inertia, rod + tip + steiner, atol=1e-9)
    alone = pendulum().distal_inertia('tip')
    assert alone.mass == pytest.approx(1.0)
    np.testing.assert_allclose(alone.inertia, np.diag([0.01, 0.02, 0.03]), atol=1e-12)


@pytest.mark.parametrize('name', ARMS)
@pytest.mark.parametrize('mount', MOUNTS)
def test_a_payload_is_the_same_body_as_in_the_independent_model(name, mount):
    tool = Tool(1.7, np.array([0.03, -0.05, 0.11]))
    loaded = arm(name).robot(mount).with_payload(
        RigidBodyInertia(tool.mass, tool.com, tool.inertia))
    reference = Reference(arm(name).urdf, arm(name).tool, MOUNTS[mount], tool)
    q, v, a = np.random.default_rng(0).normal(size=(3, 10, loaded.n))
    for motion in ((q, v, a), (q, 0.0 * v, 0.0 * a)):
        np.testing.assert_allclose(
            [loaded.inverse_dynamics(*row) for row in zip(*motion, strict=True)],
            reference.torque(*motion), atol=1e-9)


def test_a_payload_leaves_the_bare_arm_alone(robocal):
    q = np.full(6, 0.3)
    before = robocal.gravity_torque(q)
    robocal.with_payload(RigidBodyInertia(5.0, np.zeros(3), np.zeros((3, 3))))
    np.testing.assert_array_equal(robocal.gravity_torque(q), before)


def test_a_payload_can_hang_on_any_frame(robocal):
    q = np.full(6, 0.3)
    body = RigidBodyInertia(2.0, np.zeros(3), np.zeros((3, 3)))
    flange = robocal.with_payload(body, 'link_3').gravity_torque(q) - robocal.gravity_torque(q)
    np.testing.assert_allclose(flange[3:], 0.0, atol=1e-12)
    assert abs(flange[1]) > 0.1


@pytest.mark.parametrize('name', ['robocal', 'kinova'])
def test_jacobian_and_axes_are_derivatives_of_the_kinematics(name):
    robot = arm(name).robot()
    q, step = middle(robot) + 0.2, 1e-6
    jacobian = robot.tool_jacobian(q)
    here = robot.transform_frame_to_root(q, robot.tool_frame)
    for joint in range(robot.n):
        moved = q.copy()
        moved[joint] += step
        there = robot.transform_frame_to_root(moved, robot.tool_frame)
        linear = (there.translation - here.translation) / step
        angular = pin.log3(there.rotation @ here.rotation.T) / step
        np.testing.assert_allclose(jacobian[:, joint], [*linear, *angular], atol=1e-5)
        axis, origin, _ = robot.joint_axis(q, joint)
        np.testing.assert_allclose(axis, angular, atol=1e-5)
        for other in range(robot.n):
            before, _, slopes = robot.joint_axis(q, other)
            after, *_ = robot.joint_axis(moved, other)
            np.testing.assert_allclose(slopes[:, joint], (after - before) / step, atol=1e-5)
        np.testing.assert_allclose(np.cross(axis, here.translation - origin), linear, atol=1e-5)


def test_joints_that_are_not_named_are_locked():
    robot = Robot(arm('ur5').urdf, joints=('wrist_2_joint', 'elbow_joint'))
    assert robot.joint_names == ('elbow_joint', 'wrist_2_joint')
    assert robot.n == robot.model.nq == 2


def test_refusals_list_what_there_is(robocal):
    urdf = robocal.urdf
    with pytest.raises(ConfigurationError, match=r"Frame 'gripper' is not.*it has .*tool0"):
        Robot(urdf, tool_frame='gripper')
    with pytest.raises(ConfigurationError, match=r"'joint_9' is not in .*joint_1, joint_2"):
        Robot(urdf, joints=['joint_9'])
    with pytest.raises(ConfigurationError, match=r"'nose' .*joint_1, .*joint_6"):
        robocal.index('nose')
    with pytest.raises(ConfigurationError, match=r"Frame 'nose'.*flange"):
        robocal.frame_id('nose')
    with pytest.raises(ConfigurationError, match=r"'base_joint' .*joint_1, joint_2"):
        Robot(urdf, joints=['base_joint'])
    with pytest.raises(ConfigurationError, match=r'No movable joint .*tool_frame'):
        Robot(urdf, tool_frame='base_link')


@pytest.mark.parametrize('gravity', [(0.0, 0.0), (0.0, np.nan, -9.81), (0.0, 0.0, np.inf)])
def test_gravity_must_be_three_finite_numbers(gravity):
    with pytest.raises(ConfigurationError, match=r'gravity must be three finite .* got'):
        pendulum(gravity=gravity)


@pytest.mark.parametrize(
    ('text', 'says'),
    [('', 'not well-formed XML.*xacro'), ('<robot', 'not well-formed XML.*xacro'),
     ('<sdf></sdf>', "<sdf>; expected a URDF's <robot>"),
     ('<robot name="x"/>', 'Pinocchio cannot build')])
def test_what_is_no_urdf_is_refused(text, says):
    with pytest.raises(ModelError, match=says):
        Robot(text)


def test_a_prismatic_joint_has_no_axis_of_rotation():
    text = PENDULUM.format(kind='prismatic', limit=LIMIT.format(effort=1, velocity=1))
    with pytest.raises(ModelError, match="'swing' is prismatic"):
        Robot(text, tool_frame='tip').joint_axis(np.zeros(1), 0)


def test_the_scara_has_parallel_axes():
    robot = Robot(scara(), tool_frame='tip')
    q = np.array([0.3, 0.4])
    np.testing.assert_allclose(robot.joint_axis(q, 0)[0], robot.joint_axis(q, 1)[0], atol=1e-12)
    assert abs(robot.joint_axis(q, 1)[0][2]) < 1e-12


class TestMimic:
    """A linkage: the elbow follows the shoulder, with a finger that follows another one."""

    LINK = ('<link name="{0}"><inertial><origin xyz="0.1 0.02 0"/><mass value="{1}"/><inertia '
            'ixx="0.01" iyy="0.02" izz="0.02" ixy="0" ixz="0" iyz="0"/></inertial></link>')
    JOINT = ('<joint name="{0}" type="revolute"><parent link="{1}"/><child link="{2}"/>'
             '<origin xyz="0.3 0 0"/><axis xyz="{3}"/>'
             '<limit lower="{4}" upper="3" effort="100" velocity="2"/>{5}</joint>')
    TIED = '<mimic joint="{0}" multiplier="{1}" offset="{2}"/>'

    def urdf(self, elbow: str = TIED.format('shoulder', -0.8, 0.2)) -> str:
        links = [('base', 1), ('upper', 4), ('lower', 2), ('hand', 1), ('left', 0.2),
                 ('right', 0.2)]
        joints = [('shoulder', 'base', 'upper', '0 1 0', -3, ''),
                  ('elbow', 'upper', 'lower', '0 1 0', -3, elbow),
                  ('wrist', 'lower', 'hand', '0 0 1', -3, ''),
                  ('finger', 'hand', 'left', '0 0 1', 0.1, ''),
                  ('other_finger', 'hand', 'right', '0 0 1', -3,
                   self.TIED.format('finger', -1.0, 0.0))]
        return ('<robot name="linkage">' + ''.join(self.LINK.format(*link) for link in links)
                + ''.join(self.JOINT.format(*joint) for joint in joints) + '</robot>')

    Q, V, A = np.array([[0.3, -0.5], [0.7, 0.4], [-1.0, 2.0]])

    def free(self, rows: np.ndarray, offset: float = 0.0) -> np.ndarray:
        """Return the same motion of an arm whose elbow is free."""
        return np.array([rows[0], -0.8 * rows[0] + offset, rows[1]])

    def test_they_are_no_joints_of_the_arm_and_move_with_the_one_they_follow(self):
        tied, free = (Robot(text, tool_frame='hand') for text in (self.urdf(), self.urdf('')))
        assert tied.joint_names == ('shoulder', 'wrist')
        assert tied.mimicking == {'elbow': 'shoulder'}
        q, v, a = self.free(self.Q, 0.2), self.free(self.V), self.free(self.A)
        slope = np.array([[1.0, 0.0], [-0.8, 0.0], [0.0, 1.0]])
        for one, other in ((tied, free), tuple(robot.with_payload(RigidBodyInertia(
                1.5, np.array([0.1, 0.0, 0.2]), np.zeros((3, 3)))) for robot in (tied, free))):
            np.testing.assert_allclose(one.inverse_dynamics(self.Q, self.V, self.A),
                                       slope.T @ other.inverse_dynamics(q, v, a), rtol=1e-12)
            np.testing.assert_allclose(one.gravity_torque(self.Q),
                                       slope.T @ other.gravity_torque(q), rtol=1e-12)
        np.testing.assert_allclose(tied.transform_frame_to_root(self.Q, 'hand').homogeneous,
                                   free.transform_frame_to_root(q, 'hand').homogeneous)
        np.testing.assert_allclose(
            tied.tool_jacobian(self.Q), free.tool_jacobian(q) @ slope, atol=1e-12)
        for joint, column in ((0, 0), (1, 2)):
            *one, own = tied.joint_axis(self.Q, joint)
            *other, slopes = free.joint_axis(q, column)
            np.testing.assert_allclose(one, other, atol=1e-12)
            np.testing.assert_allclose(own, slopes @ slope, atol=1e-12)

    def test_a_locked_one_stands_where_the_joint_it_follows_is_locked(self):
        head, _, tail = self.urdf().rpartition('lower="-3" upper="3"')
        free = tail.replace(self.TIED.format('finger', -1.0, 0.0), '')
        texts = (self.urdf(), *(f'{head}lower="{low}" upper="{high}"{free}'
                                for low, high in ((0.1, 3), (-3, -0.1))))
        at = [Robot(text, tool_frame='hand').distal_inertia('hand').com for text in texts]
        np.testing.assert_allclose(at[0], at[2])
        assert np.abs(at[0] - at[1]).max() > 1e-4

    def test_the_joint_that_drives_the_arm_may_be_off_the_chain(self):
        text = self.urdf(self.TIED.format('crank', 0.5, 0.0)).replace('</robot>', (
            self.LINK.format('rod', 0.1)
            + self.JOINT.format('crank', 'base', 'rod', '0 1 0', -3, '') + '</robot>'))
        robot = Robot(text, tool_frame='hand')
        assert set(robot.joint_names) == {'shoulder', 'crank', 'wrist'}
        assert robot.mimicking == {'elbow': 'crank'}
        moved = np.abs(robot.tool_jacobian(np.zeros(3))[4])
        np.testing.assert_allclose(moved[robot.index('crank')], 0.5)

    def test_what_cannot_be_done_is_refused(self):
        with pytest.raises(ConfigurationError, match=r"'elbow' follows 'shoulder'.*instead"):
            Robot(self.urdf(), tool_frame='hand', joints=['elbow'])
        with pytest.raises(ConfigurationError, match="links needs a drive .* 'elbow' follows"):
            NewtonEuler(Robot(self.urdf(), tool_frame='hand'), 'hand')
        circle = self.urdf().replace('<axis xyz="0 1 0"/>', (
            '<axis xyz="0 1 0"/><mimic joint="elbow"/>'), 1)
        with pytest.raises(ModelError, match='mimic joints .* follow each other in a cycle'):
            Robot(circle, tool_frame='hand')


def test_figures_of_a_sliding_joint_are_in_metres_and_newtons():
    text = PENDULUM.format(kind='prismatic', limit=LIMIT.format(effort=1, velocity=1))
    robot = Robot(text, tool_frame='tip')
    units = ('rad', 'N·m', 'N·m·s/rad', 'N·m·(s/rad)^exponent', 'N·m/rad', 'kg·m²', '1')
    assert [robot.unit(robot.joint_names[0], unit) for unit in units] == [
        'm', 'N', 'N·s/m', 'N·(s/m)^exponent', 'N/m', 'kg', '1']
    assert [robot.unit('another', unit) for unit in units] == list(units)


@pytest.mark.parametrize(('gravity', 'good'), [
    ([0.0, 0.0, -9.81], True), ([0.0, 6.93, -6.93], True), ([0.0, 0.0, 0.0], True),
    ([0.0, 0.0, -1.0], False), ([0.0, 0.0, -10.0], False)])
def test_gravity_has_its_size_on_earth(gravity: list[float], good: bool) -> None:
    values = PayloadParameters(tool_frame='tool0', gravity=gravity)
    if good:
        make_robot(arm('robocal').urdf, values)
        return
    with pytest.raises(ConfigurationError, match=r'on Earth it has 9\.76 to 9\.84'):
        make_robot(arm('robocal').urdf, values)
