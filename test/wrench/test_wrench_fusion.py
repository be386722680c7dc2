# SPDX-License-Identifier: Apache-2.0
"""One wrench that several sources see, with a covariance that holds, in any frame."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pinocchio as pin
import pytest
from support.arms import arm
from support.wrench_arm import FRAMES, ObservedArm, of_chain

from benchmarks.wrench_samples import exerted
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.results.result import CalibrationResult, Parameter, RobotIdentity
from robocal_ros.robot.model import RigidBodyInertia, Robot
from robocal_ros.wrench.fusion import MOST_FRAMES, FrameTree, Fusion
from robocal_ros.wrench.model import SensedArm, TareReference
from robocal_ros.wrench.observer import Observation, WrenchObserver
from robocal_ros.wrench.parameters import WrenchParameters

POSTURE = np.array([0.2, 0.4, 0.6, 0.3, 0.9, 0.1])
WRENCH = np.array([20.0, -10.0, 5.0, 1.0, -2.0, 0.5])
STD = np.repeat([0.5, 0.02], 3)
# Mass, centre of mass and inertia of a load.
LOAD = np.array([1.7, 0.02, -0.03, 0.08, 5e-3, 1e-4, -2e-4, 6e-3, 3e-4, 4e-3])


def fusion(frames: list[str] = FRAMES, **values: Any) -> Fusion:
    return Fusion(WrenchObserver(arm('robocal').robot(), WrenchParameters(**{
        'sensor_frames': frames, 'unidentified_friction': [0.0], 'arm_model_std': 0.0,
        'gain_std': 0.0,
        'require_tare': False, **values})))


class Cell:
    """Wrenches on links, and what sensors and joints read of them."""

    def __init__(self, frames: list[str], **wrenches: np.ndarray) -> None:
        self.robot = arm('robocal').robot()
        self.distal, self.torque = np.zeros((len(frames), 6)), np.zeros(6)
        for name, wrench in wrenches.items():
            links, torque = exerted(self.robot, POSTURE, name, wrench, frames)
            self.torque += torque
            for row, frame in enumerate(frames):
                # Sensors distal to the wrench do not carry it.
                if name not in FRAMES or FRAMES.index(frame) <= FRAMES.index(name):
                    self.distal[row] += links[row]
        self.own = self.distal.copy()
        for row in range(len(frames) - 1):
            self.own[row] -= self.moved(frames[row + 1], frames[row]) @ self.distal[row + 1]

    def moved(self, source: str, to: str) -> np.ndarray:
        place = partial(self.robot.transform_frame_to_root, POSTURE)
        return place(to).actInv(place(source)).toDualActionMatrix()

    def seen(self, noise: np.ndarray | float = 0.0, torque_noise: np.ndarray | float = 0.0,
             **given: Any) -> Observation:
        """Return what is observed with noise in the sensors, shape (k, 6), and in the joints."""
        count = len(self.distal)
        distal = self.distal + noise
        own = self.own + noise
        for row in range(count - 1):
            own[row] -= self.moved(FRAMES[row + 1], FRAMES[row]) @ np.broadcast_to(
                noise, (count, 6))[row + 1]
        return Observation(
            1, 0.01, tuple(range(count)), own, [''] * count, distal=distal,
            held=np.zeros((count, 6)), needed=np.zeros(6),
            **{'external': self.torque + torque_noise,
               'motion': (POSTURE, np.full(6, 1.0), np.zeros(6)), **given})


def test_the_covariance_is_that_of_the_error() -> None:
    made, cell, draw = fusion(), Cell(FRAMES, tool0=WRENCH), np.random.default_rng(0)
    squares = []
    for _ in range(300):
        told = made.tool(cell.seen(STD * draw.normal(size=(5, 6)), draw.normal(size=6)))
        error = told.wrench - WRENCH
        squares.append(error @ np.linalg.solve(told.covariance, error))
    # Six degrees of freedom: standard deviation of the mean of 300 is 0.2.
    assert np.mean(squares) == pytest.approx(6.0, abs=0.8)


def test_each_source_adds_what_it_knows() -> None:
    cell = Cell(FRAMES, tool0=WRENCH)
    wrist = fusion(['ft_wrist'], tool_wrench_source='sensor').tool(
        Cell(['ft_wrist'], tool0=WRENCH).seen())
    sensors = fusion(tool_wrench_source='sensor').tool(cell.seen())
    everything = fusion(torque_std=[0.05]).tool(cell.seen())
    # Five forces with the same noise see it, and moments add to that.
    assert (np.diag(sensors.covariance)[:3] <= 0.25 / 5.0 + 1e-12).all()
    assert np.diag(wrist.covariance)[:3] == pytest.approx(0.25)
    for more, less in ((everything, sensors), (sensors, wrist)):
        assert np.linalg.eigvalsh(less.covariance - more.covariance).min() > -1e-12
        np.testing.assert_allclose(more.wrench, WRENCH, atol=1e-9)


def test_contacts_on_two_links_are_told_apart() -> None:
    both = {'ft_link_2_proximal': np.array([-30.0, 8.0, 0.0, 0.0, -2.0, 1.0]), 'tool0': WRENCH}
    told = fusion().tool(Cell(FRAMES, **both).seen())
    np.testing.assert_allclose(told.wrench, WRENCH, atol=1e-6)
    # Estimated jointly, the base sensor and the joints know less about the tool.
    alone = fusion().tool(Cell(FRAMES, tool0=WRENCH).seen())
    assert np.trace(told.covariance) > np.trace(alone.covariance)


def test_torques_that_contradict_the_sensors_are_left_out() -> None:
    cell, made = Cell(FRAMES, tool0=WRENCH), fusion()
    pushed = np.array([20.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    told = made.tool(cell.seen(torque_noise=pushed))
    sensors = fusion(tool_wrench_source='sensor').tool(cell.seen())
    np.testing.assert_allclose(told.covariance, sensors.covariance)
    np.testing.assert_allclose(told.wrench, WRENCH, atol=1e-9)
    assert told.source == 'F/T sensors'
    assert told.remark == 'Joint torques contradict the F/T sensors.'
    both = made.tool(cell.seen())
    assert (both.source, both.remark) == ('F/T sensors and joint torques', '')


def test_without_the_wrist_sensor_the_others_tell_it() -> None:
    told = fusion(tool_wrench_source='sensor').tool(
        Cell(FRAMES, tool0=WRENCH).seen(missing=[''] * 4 + ['saturated']))
    np.testing.assert_allclose(told.wrench, WRENCH, atol=1e-9)
    assert np.isfinite(told.covariance).all()
    assert told.sensors == tuple(FRAMES[:4])
    assert told.remark == 'saturated'


def test_without_sensors_joint_torques_tell_it_if_they_may() -> None:
    cell = Cell(FRAMES, tool0=WRENCH)
    seen = cell.seen(missing=['Sensor lost.'] * 5)
    seen.reasons = ['Sensor lost.'] * 5
    with pytest.raises(DataError, match=r'Sensor lost\. Joint .* with tool_wrench_fallback'):
        fusion().tool(seen)
    with pytest.raises(DataError, match=r'^Sensor lost\.$'):
        fusion(tool_wrench_source='sensor', tool_wrench_fallback=True).tool(seen)
    made = fusion(min_singular_value=0.02, damping=1e-6, tool_wrench_fallback=True)
    by_torque = made.tool(seen)
    np.testing.assert_allclose(by_torque.wrench, WRENCH, rtol=1e-3)
    assert (by_torque.source, by_torque.remark) == ('joint torques', 'Sensor lost.')
    # As far as the posture shows it, and with drive gains in doubt.
    assert np.trace(by_torque.covariance) > np.trace(made.tool(cell.seen()).covariance)
    doubtful = fusion(min_singular_value=0.02, damping=1e-6, tool_wrench_fallback=True,
                      gain_std=0.1).tool(seen)
    seen.external = seen.external + 0.1 * np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0]) * (
        seen.needed - seen.external)
    error = made.tool(seen).wrench - WRENCH
    assert error @ np.linalg.solve(doubtful.covariance, error) < 12.0


def test_no_wrench_before_joint_states_fill_a_window() -> None:
    seen = Observation(1, 0.01, tuple(range(5)), np.zeros((5, 6)), ['Filling.'] * 5,
                       problem='Filling.')
    with pytest.raises(DataError, match='Filling'):
        fusion().tool(seen)


@pytest.mark.parametrize('source', ['auto', 'torque'])
def test_in_any_frame_about_its_origin(source: str) -> None:
    cell = Cell(FRAMES, tool0=WRENCH)
    made = fusion(tool_wrench_frame='link_1', tool_wrench_source=source,
                  min_singular_value=0.01, damping=1e-6)
    told = made.tool(cell.seen())
    turn = cell.moved('tool0', 'link_1')
    np.testing.assert_allclose(told.wrench, turn @ WRENCH, rtol=1e-4, atol=1e-3)
    if source == 'auto':
        straight = fusion().tool(cell.seen()).covariance
        np.testing.assert_allclose(told.covariance, turn @ straight @ turn.T, rtol=1e-9)
    assert made.frame == 'link_1'


def test_links_sum_the_covariances_of_their_sensors() -> None:
    cell, made = Cell(FRAMES), fusion()
    found = made.link_covariance(cell.seen(), 4)
    np.testing.assert_allclose(found, np.diag(STD**2))
    between = made.link_covariance(cell.seen(), 0)
    turn = cell.moved(FRAMES[1], FRAMES[0])
    np.testing.assert_allclose(between, np.diag(STD**2) + turn @ np.diag(STD**2) @ turn.T)
    # With zeros of the torques that are known, and that are not.
    for std in (0.0, 0.5):
        np.testing.assert_allclose(
            fusion(torque_zero_std=[std]).torque_covariance(cell.seen()),
            (1.0 + std**2) * np.eye(6), atol=1e-9)


def test_a_model_error_counts_as_far_as_the_load_changed() -> None:
    observer = WrenchObserver(arm('robocal').robot(), WrenchParameters(
        sensor_frames=['ft_wrist'], arm_model_std=0.1, require_tare=False))
    made, rest = Fusion(observer), np.zeros(6)
    seen = Cell(['ft_wrist']).seen(motion=(POSTURE, rest, rest))
    extra = made.link_covariance(seen, 0) - np.diag(STD**2)
    # The link by itself, and as one of links that are all too light or too heavy.
    assert np.trace(extra[:3, :3]) == pytest.approx(2.0 * (0.1 * 0.35 * 9.81)**2)
    observer.use_bias(np.zeros((1, 6)), TareReference(POSTURE, np.zeros((1, 6))))
    seen = Cell(['ft_wrist']).seen(motion=(POSTURE, rest, rest))
    np.testing.assert_allclose(made.link_covariance(seen, 0), np.diag(STD**2), atol=1e-12)


def payload(covariance: np.ndarray) -> CalibrationResult:
    names = ('mass', 'com_x', 'com_y', 'com_z', *(f'inertia_{axes}' for axes in (
        'xx', 'xy', 'xz', 'yy', 'yz', 'zz')))
    return CalibrationResult(
        'payload', 'excitation', RobotIdentity('arm', '', ('a',)), 'tool0', tuple(
            Parameter(name, '', float(value), float(np.sqrt(variance)))
            for name, value, variance in zip(names, LOAD, np.diag(covariance), strict=True)),
        names, covariance, (), (), (), {}, {}, 'live', 0.0, '0')


def load_of(values: np.ndarray) -> RigidBodyInertia:
    tensor = np.zeros((3, 3))
    tensor[np.triu_indices(3)] = values[4:]
    return RigidBodyInertia(values[0], values[1:4], tensor + np.triu(tensor, 1).T)


def test_the_covariance_of_the_payload_is_that_of_the_scatter() -> None:
    draw = np.random.default_rng(3)
    factor = draw.normal(size=(10, 10)) * np.array([
        0.02, *[2e-3] * 3, *[1e-3] * 6])[:, None] / np.sqrt(10.0)
    observer = WrenchObserver(arm('robocal').robot(), WrenchParameters(
        sensor_frames=FRAMES, arm_model_std=0.0, require_tare=False, tool_wrench_source='sensor',
        sensor_force_std=[0.01], sensor_torque_std=[1e-3], torque_std=[1e-3], gain_std=0.0,
        unidentified_friction=[0.0], torque_zero_std=[0.0]))
    truth = SensedArm(arm('robocal').robot(), observer.arm.mounts)
    observer.use_payload(payload(factor @ factor.T))
    rest, posture = np.zeros(6), np.array([0.2, -0.5, 0.4, 1.0, -0.3, 0.8])
    observer.use_bias(np.zeros((5, 6)), TareReference(posture, np.zeros((5, 6))))
    made, motion = Fusion(observer), (POSTURE, *draw.normal(size=(2, 6)) * [[1.0], [4.0]])
    tared = observer.arm.held(posture, rest, rest)
    held, needed = observer.arm.held(*motion), observer.arm.torque.copy()

    def seen(off: np.ndarray, noise: np.ndarray) -> Observation:
        """Return what is observed with a load that is off, tared in another posture."""
        truth.carry(load_of(LOAD + off), 'tool0')
        distal = held - tared + truth.held(posture, rest, rest) - truth.held(*motion) + noise
        own = observer.arm.between_many(POSTURE[None], distal[None])[0]
        return Observation(
            1, 0.01, tuple(range(5)), own, [''] * 5, motion=motion, distal=distal, held=held,
            needed=needed, external=needed - truth.torque)

    told = [seen(factor @ draw.normal(size=10), 0.0 * STD) for _ in range(1500)]
    for index in (1, 4):
        scatter = np.cov([item.wrench[index] for item in told], rowvar=False)
        stated = made.link_covariance(told[0], index) - _noise(observer, index)
        np.testing.assert_allclose(np.diag(scatter), np.diag(stated), rtol=0.15)
        assert np.trace(stated) > 5.0 * np.trace(_noise(observer, index))
    scatter = np.cov([item.external for item in told], rowvar=False)
    np.testing.assert_allclose(
        np.diag(scatter), np.diag(made.torque_covariance(told[0])), rtol=0.15, atol=2e-6)
    squares = []
    for _ in range(400):
        noise = np.repeat([0.01, 1e-3], 3) * draw.normal(size=(5, 6))
        tool = made.tool(seen(factor @ draw.normal(size=10), noise))
        squares.append(tool.wrench @ np.linalg.solve(tool.covariance, tool.wrench))
    # Six degrees of freedom: standard deviation of the mean of 400 is 0.17.
    assert np.mean(squares) == pytest.approx(6.0, abs=0.7)


def _noise(observer: WrenchObserver, index: int) -> np.ndarray:
    """Return the part of the sensors in the covariance of a link."""
    bare = Fusion(WrenchObserver(arm('robocal').robot(), observer.values))
    return bare.link_covariance(Cell(FRAMES).seen(), index)


def test_a_sensor_that_is_asked_for_must_be_there() -> None:
    with pytest.raises(ConfigurationError, match="no F/T sensor carries 'link_1'"):
        Fusion(WrenchObserver(Robot(arm('robocal').urdf, tool_frame='link_1'), WrenchParameters(
            sensor_frames=['ft_wrist'], tool_wrench_source='sensor')))
    with pytest.raises(ConfigurationError, match="'moon'"):
        fusion(tool_wrench_frame='moon')


def test_two_pushes_on_the_simulated_arm() -> None:
    made = ObservedArm(1, observe_torque=True)
    made.carry_tool()
    made.run(0.2)
    made.tare()
    force = np.array([12.0, -9.0, 6.0])
    made.push(4, np.array([0.0, 0.0, 0.02]), force, 0.4)
    made.push(0, np.array([0.055, 0.0, 0.15]), np.array([-25.0, 0.0, 0.0]), 0.4)
    told = made.run(0.4)[-60:]
    fused = Fusion(made.observer)
    found = np.array([fused.tool(item).wrench[:3] for item in told])
    turn = made.observer.arm.frame_in_chain(made.observer.arm.chains[4], 'tool0').rotation.T
    np.testing.assert_allclose(found.mean(axis=0), turn @ force, atol=0.5)
    tube = np.mean([item.wrench[0, :3] for item in of_chain(told, 0)], axis=0)
    np.testing.assert_allclose(tube, [-25.0, 0.0, 0.0], atol=0.6)
    assert all({0, 4} <= item.contacts.keys() for item in told)


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
