# SPDX-License-Identifier: Apache-2.0
"""The arm cut at its sensors: sub-chains with any load, and links whose motion an IMU measures."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given, settings, strategies as st
from support.arms import arm
from support.wrench_arm import FRAMES

from robocal_ros.errors import ConfigurationError
from robocal_ros.robot.arm_model import link_parameters, with_links
from robocal_ros.robot.model import RigidBodyInertia, Robot
from robocal_ros.wrench.model import ImuLink, SensedArm, SensorMount

LOAD = RigidBodyInertia(2.0, np.array([0.02, -0.01, 0.1]), np.diag([7e-3, 8e-3, 4e-3]))


def sensed(*frames: str) -> SensedArm:
    return SensedArm(arm('robocal').robot(), [SensorMount(frame) for frame in frames])


@pytest.fixture(scope='module')
def full() -> SensedArm:
    return sensed(*FRAMES)


def motion(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return tuple(generator.uniform(-scale, scale, 6) for scale in (1.5, 1.0, 4.0))


def test_sub_chains_follow_the_tree_whatever_the_order_of_sensors() -> None:
    cut = sensed('ft_wrist', 'ft_link_3_proximal', 'ft_link_2_distal')
    assert [chain.distal for chain in cut.chains] == [(), (0,), (1,)]
    assert [chain.rigid for chain in cut.chains] == [True, False, False]


def test_a_rigid_link_knows_its_inertia(full: SensedArm) -> None:
    tube = full.chains[0]
    assert tube.rigid
    (body,) = tube.bodies
    assert full.model.inertias[body].mass == pytest.approx(5.6)
    np.testing.assert_allclose(tube.reference, [0.003, 0.002, 0.15])


def test_at_rest_a_sensor_holds_the_weight_beyond_it(full: SensedArm) -> None:
    robot = full.robot
    q = motion(3)[0]
    held = full.held(q, np.zeros(6), np.zeros(6))
    for index, frame in enumerate(FRAMES):
        beyond = robot.distal_inertia(frame, q)
        turn = robot.transform_frame_to_root(q, frame).rotation
        weight = turn.T @ (beyond.mass * np.array(robot.gravity))
        np.testing.assert_allclose(held[index, :3], -weight, atol=1e-9)
        np.testing.assert_allclose(held[index, 3:], -np.cross(beyond.com, weight), atol=1e-9)


def test_a_calibrated_sensor_reads_its_matrix_times_the_wrench() -> None:
    generator = np.random.default_rng(0)
    matrix = np.eye(6) + 0.02 * generator.normal(size=(6, 6))
    plain, calibrated = sensed('ft_wrist', 'ft_link_2_distal'), sensed('ft_wrist',
                                                                      'ft_link_2_distal')
    assert calibrated.calibrate('ft_wrist', matrix)
    assert not calibrated.calibrate('elsewhere', matrix)
    ideal = generator.normal(size=(5, 2, 6))
    read = ideal.copy()
    read[:, 0] = ideal[:, 0] @ matrix.T
    np.testing.assert_allclose(calibrated.in_links(read), plain.in_links(ideal), atol=1e-12)
    np.testing.assert_allclose(
        calibrated.in_measurement(plain.in_links(ideal[0])), read[0], atol=1e-12)
    q = motion(1)[0]
    expected = plain.expected(q)
    np.testing.assert_allclose(calibrated.expected(q)[0], matrix @ expected[0], atol=1e-9)
    # Another matrix replaces the first one.
    calibrated.calibrate('ft_wrist', np.eye(6))
    np.testing.assert_allclose(calibrated.in_links(ideal), plain.in_links(ideal), atol=1e-12)


def test_forces_on_a_rigid_link_need_no_posture() -> None:
    tree = ElementTree.fromstring(arm('robocal').urdf)
    for joint in tree.findall('joint'):
        if joint.find('child').get('link') == 'ft_link_2_distal':
            joint.find('origin').set('rpy', '0.5 -0.3 0.2')
    cut = SensedArm(Robot(ElementTree.tostring(tree, encoding='unicode')), [
        SensorMount('ft_link_2_proximal'), SensorMount('ft_link_2_distal')])
    readings = np.random.default_rng(0).normal(size=(4, 2, 6))
    turn = pin.rpy.rpyToMatrix(0.5, -0.3, 0.2)
    np.testing.assert_allclose(
        cut.force_series(0, readings), readings[:, 0, :3] - readings[:, 1, :3] @ turn.T,
        atol=1e-12)


def test_joints_outside_of_the_arm_are_locked_as_in_its_model() -> None:
    """A finger that mimics another one is where that one is locked, at its lower limit."""
    tree = ElementTree.fromstring(arm('robocal').urdf)
    for name, limits, mimic in (
            ('left', ('0.05', '0.1'), None),
            ('right', ('-1', '1'), {'joint': 'left', 'multiplier': '-2'})):
        inertial = ElementTree.SubElement(
            ElementTree.SubElement(tree, 'link', name=f'{name}_finger'), 'inertial')
        ElementTree.SubElement(inertial, 'mass', value='1.0')
        ElementTree.SubElement(inertial, 'inertia', {
            f'i{axes}': '1e-3' if axes[0] == axes[1] else '0'
            for axes in ('xx', 'xy', 'xz', 'yy', 'yz', 'zz')})
        joint = ElementTree.SubElement(tree, 'joint', name=name, type='prismatic')
        ElementTree.SubElement(joint, 'parent', link='flange')
        ElementTree.SubElement(joint, 'child', link=f'{name}_finger')
        ElementTree.SubElement(joint, 'axis', xyz='1 0 0')
        ElementTree.SubElement(joint, 'limit', lower=limits[0], upper=limits[1], effort='1',
                               velocity='1')
        if mimic is not None:
            ElementTree.SubElement(joint, 'mimic', mimic)
    robot, q = Robot(ElementTree.tostring(tree, encoding='unicode')), motion(0)[0]
    cut = SensedArm(robot, [SensorMount('ft_wrist')])
    cut.held(q, np.zeros(6), np.zeros(6))
    np.testing.assert_allclose(cut.torque, robot.gravity_torque(q), atol=1e-9)


@pytest.mark.parametrize('count', [0, 1, 3])
@pytest.mark.parametrize('frames', [(), ('ft_wrist',), ('ft_link_2_proximal', 'ft_wrist'), FRAMES])
def test_many_instants_are_as_one_by_one(frames: tuple[str, ...], count: int) -> None:
    cut = sensed(*frames)
    cut.carry(LOAD, 'flange')
    motions = np.array([motion(seed) for seed in range(count)]).reshape(count, 3, 6)
    readings = np.random.default_rng(0).normal(size=(count, len(frames), 6))
    held, torque = cut.held_many(*motions.transpose(1, 0, 2))
    net = cut.between_many(motions[:, 0], readings + held)
    assert held.shape == net.shape == (count, len(frames), 6)
    assert torque.shape == (count, 6)
    for row in range(count):
        one = cut.held(*motions[row])
        np.testing.assert_allclose(held[row], one, atol=1e-12)
        np.testing.assert_allclose(torque[row], cut.torque, atol=1e-12)
        np.testing.assert_allclose(net[row], cut.between(readings[row] + one), atol=1e-11)


@pytest.mark.parametrize('frames', [
    FRAMES, ('ft_wrist',), ('ft_link_2_proximal', 'ft_wrist'), ('ft_link_3_distal',)])
@given(seed=st.integers(0, 10**6), pushed=st.integers(0, 20))
@settings(max_examples=15, deadline=None)
def test_a_push_comes_out_on_its_sub_chain_alone(
    frames: tuple[str, ...], seed: int, pushed: int
) -> None:
    cut = sensed(*frames)
    cut.carry(LOAD, 'flange')
    q, v, a = motion(seed)
    held = cut.held(q, v, a)
    body = 1 + pushed % (cut.model.njoints - 1)
    push = pin.Force(np.random.default_rng(seed + 1).normal(size=6) * [30, 30, 30, 3, 3, 3])
    net = cut.between(pushed_readings(cut, body, push) + held)
    pushed_chain = next((chain for chain in cut.chains if body in chain.bodies), None)
    for chain in cut.chains:
        expected = np.zeros(6)
        if chain is pushed_chain:
            expected = cut.placement(chain, body).act(push).vector
        np.testing.assert_allclose(net[chain.proximal], expected, atol=1e-8)


def pushed_readings(cut: SensedArm, body: int, push: pin.Force) -> np.ndarray:
    """Return what the sensors read in the motion last given while a body is pushed."""
    model, data = cut.model, cut.model.createData()
    forces = pin.StdVec_Force()
    for joint in range(model.njoints):
        forces.append(push if joint == body else pin.Force.Zero())
    efforts = pin.rnea(model, data, cut._q, cut._v, cut._a, forces)
    return -np.asarray(efforts[cut._held])


def test_a_sensor_that_measures_in_another_frame_than_its_link() -> None:
    robot = arm('robocal').robot()
    plain = SensedArm(robot, [SensorMount('ft_wrist')])
    offset = SensedArm(robot, [SensorMount('flange', 'ft_wrist')])
    reading = np.array([[1.0, 2.0, 3.0, 0.1, 0.2, 0.3]])
    shift = robot.transform_frame_to_root(np.zeros(6), 'ft_wrist').actInv(
        robot.transform_frame_to_root(np.zeros(6), 'flange'))
    expected = shift.act(pin.Force(reading[0])).vector
    np.testing.assert_allclose(offset.in_links(reading)[0], expected)
    np.testing.assert_allclose(offset.in_measurement(offset.in_links(reading)), reading)
    assert plain.in_links(reading) is reading


def test_a_payload_replaces_the_one_before(full: SensedArm) -> None:
    cut = sensed(*FRAMES)
    q, rest = motion(1)[0], np.zeros(6)
    bare = cut.held(q, rest, rest)
    cut.carry(LOAD, 'flange')
    cut.carry(LOAD, 'flange')
    more = np.linalg.norm(cut.held(q, rest, rest)[:, :3], axis=1)
    np.testing.assert_allclose(more - np.linalg.norm(bare[:, :3], axis=1), 2.0 * 9.81, rtol=1e-9)
    cut.carry(None)
    np.testing.assert_allclose(cut.held(q, rest, rest), bare)


def test_links_of_an_identified_arm_take_the_place_of_the_urdf_s() -> None:
    cut = sensed(*FRAMES)
    q, v, a = motion(5)
    before = cut.held(q, v, a)
    links = link_parameters(cut.robot) * np.linspace(0.9, 1.1, 6)[:, None]
    known = with_links(cut.robot, links, np.zeros(6))
    cut.use_links(known)
    cut.carry(LOAD)
    after = cut.held(q, v, a)
    np.testing.assert_allclose(
        cut.torque, known.with_payload(LOAD).inverse_dynamics(q, v, a), rtol=1e-9)
    cut.carry(None)
    after = cut.held(q, v, a)
    # Nothing beyond the wrist sensor is known better, but all before it.
    np.testing.assert_allclose(after[-1], before[-1], rtol=1e-9)
    assert (np.abs(after[:-1] - before[:-1]).max(axis=1) > 0.1).all()
    cut.use_links(cut.robot)
    cut.carry(None)
    np.testing.assert_allclose(cut.held(q, v, a), before, rtol=1e-9)


def test_fingers_stay_where_they_are_locked() -> None:
    panda = arm('panda')
    cut = SensedArm(panda.robot(), [SensorMount('panda_link5'), SensorMount('panda_hand')])
    assert [chain.distal for chain in cut.chains] == [(1,), ()]
    rest = np.zeros(7)
    held = cut.held(rest, rest, rest)
    total = panda.robot().distal_inertia('panda_hand').mass
    assert np.linalg.norm(held[1, :3]) == pytest.approx(9.81 * total, rel=1e-6)


@pytest.mark.parametrize(('mounts', 'sentence'), [
    ([SensorMount('elsewhere')], "'elsewhere' is not in the robot description"),
    ([SensorMount('world')], "'world' is not a link that a joint"),
    ([SensorMount('ft_wrist'), SensorMount('flange', 'ft_wrist')], 'Two F/T sensors carry'),
    ([SensorMount('imu_link_2')], 'neither a link with mass nor the tool'),
    ([SensorMount('ft_wrist', 'ft_link_3_proximal')], r"separated by the moving joint 'joint_\d'"),
])
def test_refusals_name_what_is_wrong(mounts: list[SensorMount], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        SensedArm(arm('robocal').robot(), mounts)


@pytest.fixture
def cut() -> SensedArm:
    return sensed(*FRAMES)


def imu_reading(
    cut: SensedArm, frame: str, q: np.ndarray, v: np.ndarray, a: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return specific force, rate and angular acceleration at a frame, by Pinocchio."""
    robot = cut.robot
    model, data = robot.model, robot.data
    pin.forwardKinematics(model, data, q, v, a)
    index = robot.frame_id(frame)
    pin.updateFramePlacement(model, data, index)
    local = pin.ReferenceFrame.LOCAL
    classical = pin.getFrameClassicalAcceleration(model, data, index, local)
    gravity = data.oMf[index].rotation.T @ np.array(robot.gravity)
    return (classical.linear - gravity, pin.getFrameVelocity(model, data, index, local).angular,
            classical.angular)


@pytest.mark.parametrize(('index', 'frame'), [
    (0, 'imu_link_2'), (2, 'imu_link_3'), (4, 'imu_flange')])
def test_a_link_by_its_imu_agrees_with_the_joints(cut: SensedArm, index: int, frame: str) -> None:
    link, generator = ImuLink(cut, cut.chains[index], frame), np.random.default_rng(index)
    # A load that comes later counts, too.
    cut.carry(RigidBodyInertia(1.5, np.array([0.02, 0.01, 0.08]), 4e-3 * np.eye(3)), 'flange')
    for _ in range(20):
        q, v, a = (generator.uniform(-s, s, 6) for s in (1.5, 1.5, 6.0))
        inertial = link.inertial(link.regressor(*imu_reading(cut, frame, q, v, a)))
        held = cut.held(q, v, a)
        expected = cut.between(held)[index]
        np.testing.assert_allclose(inertial, expected, atol=1e-9)


def test_imus_on_jointed_links_and_strange_frames_are_refused(cut: SensedArm) -> None:
    with pytest.raises(ConfigurationError, match='requires one rigid link'):
        ImuLink(cut, cut.chains[1], 'imu_link_2')
    with pytest.raises(ConfigurationError, match='is not on'):
        ImuLink(cut, cut.chains[0], 'imu_link_3')
    with pytest.raises(ConfigurationError, match='not in the robot description'):
        ImuLink(cut, cut.chains[0], 'imu_moon')


def test_the_effective_mass_is_force_over_acceleration(full: SensedArm) -> None:
    robot = full.robot
    full.carry(LOAD, 'flange')
    loaded = robot.with_payload(LOAD, 'flange')
    point, rotors = np.array([0.03, -0.02, 0.05]), np.linspace(0.1, 0.6, 6)
    direction = np.array([0.6, 0.0, 0.8])
    model, data = loaded.model, loaded.model.createData()
    model.armature = rotors
    for seed in range(3):
        q = motion(seed)[0]
        for index, frame in ((1, FRAMES[1]), (4, 'ft_wrist')):
            jacobian = pin.computeFrameJacobian(
                model, data, q, model.getFrameId(frame), pin.ReferenceFrame.LOCAL)
            at_point = jacobian[:3] - pin.skew(point) @ jacobian[3:]
            change = pin.aba(model, data, q, np.zeros(6), at_point.T @ direction) - pin.aba(
                model, data, q, np.zeros(6), np.zeros(6))
            assert full.effective_mass(index, q, rotors, point, direction) == pytest.approx(
                1.0 / float(direction @ at_point @ change), rel=1e-9)
    full.carry(None)
