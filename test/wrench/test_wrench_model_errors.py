# SPDX-License-Identifier: Apache-2.0
"""Errors of the arm's model in wrenches and torques, and contacts in spite of them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pinocchio as pin
import pytest
from support.arms import arm
from support.friction_results import payload_result
from support.wrench_arm import FRAMES, in_blocks

from benchmarks.wrench_coverage import ARMS, LAYOUTS, draws
from benchmarks.wrench_samples import Impact, SampledArm, Stream, follow
from robocal_ros.robot.arm_model import ArmModel, link_parameters, urdf_model
from robocal_ros.robot.model import RigidBodyInertia, Robot
from robocal_ros.wrench.fusion import Fusion
from robocal_ros.wrench.model import ImuLink, ModelErrors, Motion, SensedArm, TareReference
from robocal_ros.wrench.observer import Observation, WrenchObserver
from robocal_ros.wrench.parameters import WrenchParameters

TARED = np.array([0.1, 0.3, 0.4, 0.0, 0.6, 0.2])
REST = np.zeros(6)
# Squared distance that 99.9 % of normally distributed wrenches stay below.
LIMIT = 22.46


def heavier(urdf: str, share: float) -> str:
    """Return a robot description with heavier links."""
    return re.sub(r'<mass value="([^"]*)"',
                  lambda found: f'<mass value="{(1.0 + share) * float(found[1])}"', urdf)


def observer(**values: Any) -> WrenchObserver:
    return WrenchObserver(arm('robocal').robot(), WrenchParameters(**{
        'sensor_frames': FRAMES, 'unidentified_friction': [0.0], **values}))


def tared(made: WrenchObserver, truth: SensedArm) -> WrenchObserver:
    readings = truth.expected(TARED)
    made.use_bias(readings - made.arm.expected(TARED), TareReference(TARED, readings))
    return made


def streams(
    truth: SensedArm, posture: np.ndarray, count: int = 60, push: np.ndarray | None = None
) -> tuple[Stream, list[Stream]]:
    """Return what an arm at rest sends, with forces on its third sub-chain, shape (count, 3)."""
    draw = np.random.default_rng(0)
    stamps = 10**9 + 10**6 * np.arange(count)
    expected = truth.expected(posture)
    torque = truth.torque.copy()
    sensors = [Stream(stamps, expected[index] + 0.05 * draw.normal(size=(count, 6)))
               for index in range(len(FRAMES))]
    if push is not None:
        moved = *(truth.transform(inner, 2, aside=True) for inner in (0, 1)), np.eye(6)
        for index, lever in enumerate(moved):
            sensors[index].values += np.hstack((push, np.zeros((count, 3)))) @ lever.T
    return Stream(stamps, np.tile(np.concatenate((posture, REST, torque)), (count, 1))), sensors


def motions() -> list[Motion]:
    draw = np.random.default_rng(4)
    return [(*(size * draw.normal(size=6) for size in (1.0, 1.5, 5.0)),) for _ in range(3)]


def test_they_are_what_other_parameters_change() -> None:
    made = observer()
    load = RigidBodyInertia(1.5, np.array([0.01, 0.02, 0.08]), 1e-3 * np.eye(3))
    made.carry(load, 'flange', 1e-3 * np.random.default_rng(1).normal(size=(10, 3)))
    made.errors.tare(TareReference(TARED, np.zeros((5, 6))), {})
    errors, other = made.errors, SensedArm(arm('robocal').robot(), made.arm.mounts)
    draw = np.random.default_rng(2)
    off = 0.1 * draw.normal(size=errors.parameters.shape[1])

    def outputs(unknowns: np.ndarray, motion: Motion) -> tuple[np.ndarray, ...]:
        other.carry(load, 'flange')
        for joint, change in enumerate((errors.parameters @ unknowns).reshape(-1, 10), 1):
            inertia = other.model.inertias[joint].toDynamicParameters() + change
            if inertia[0]:
                other.model.inertias[joint] = pin.Inertia.FromDynamicParameters(inertia)
        frozen = other.held(TARED, REST, REST)
        distal = other.held(*motion) - frozen
        return distal, other.torque.copy(), other.between(distal)

    for motion in motions():
        held, torques = errors.outputs(motion)
        changed = [much - none for much, none in zip(
            outputs(off, motion), outputs(0.0 * off, motion), strict=True)]
        np.testing.assert_allclose(held @ off, changed[0], atol=1e-9)
        np.testing.assert_allclose(torques @ off, changed[1], atol=1e-9)
        for index in range(5):
            np.testing.assert_allclose(
                errors.link(index, motion) @ off, changed[2][index], atol=1e-9)


@pytest.mark.parametrize('share', [0.06, -0.06])
def test_heavier_links_are_no_contact_where_a_joint_has_turned_since_the_tare(
    share: float
) -> None:
    truth = SensedArm(Robot(heavier(arm('robocal').urdf, share)), observer().arm.mounts)
    posture = TARED + np.radians(86.0) * np.eye(6)[2]
    found = {}
    for std in (0.05, 0.0):
        made = tared(observer(arm_model_std=std, observe_torque=False), truth)
        seen = follow(made, *streams(truth, posture))[-1]
        wrench = seen.wrench[1]
        found[std] = 1 in seen.contacts, float(wrench @ np.linalg.solve(
            Fusion(made).link_covariance(seen, 1), wrench))
        assert np.linalg.norm(wrench[:3]) > 7.0
    touched, size = found[0.05]
    assert not touched
    assert size < LIMIT
    # Without a model error there would have to be a contact.
    touched, size = found[0.0]
    assert touched
    assert size > 4.0 * LIMIT


@pytest.mark.parametrize('layout', LAYOUTS)
def test_covariances_hold_what_they_state(layout: str) -> None:
    found = [item for name in ARMS[:2] for item in draws(name, layout, 3, 30)]
    tools = np.array([item.tool for item in found if item.tool is not None])
    assert np.mean(tools < 0.05) < 0.15
    assert tools.min() > 1e-4
    assert not any(item.touched for item in found)
    if layout != 'torque':
        link = np.array([item.links for item in found])
        # Six degrees of freedom: standard deviation of the mean of 60 is 0.45.
        assert np.mean(link) == pytest.approx(6.0, abs=1.4)


class TestPushes:
    """Contacts on a link that reads 7.6 N for its model alone."""

    posture = TARED + np.radians(86.0) * np.eye(6)[2]

    def seen(self, push: np.ndarray) -> list[Observation]:
        truth = SensedArm(Robot(heavier(arm('robocal').urdf, 0.12)), observer().arm.mounts)
        truth.regressors(self.posture, REST, REST)
        made = tared(observer(observe_torque=False), truth)
        joints, sensors = streams(truth, self.posture, len(push), push)
        found = follow(made, joints, sensors)
        _, blocks = in_blocks(tared(observer(observe_torque=False), truth), joints, sensors, 170)
        assert {int(block.stamps[row]): set(links) for block in blocks
                for row, links in block.contacts.items()} == {
            item.nanoseconds: set(item.contacts) for item in found if item.contacts}
        return found

    def pushed(self, count: int, begin: int, end: int, size: float) -> np.ndarray:
        push = np.zeros((count, 3))
        push[begin:end, 0] = size
        return push

    def test_a_sudden_push_is_one_as_long_as_it_lasts(self) -> None:
        found = self.seen(self.pushed(1200, 500, 1000, 9.0))
        touched = [number for number, item in enumerate(found) if 2 in item.contacts]
        assert touched
        assert 500 <= touched[0] < 520
        assert touched == list(range(touched[0], touched[-1] + 1))
        assert 1000 <= touched[-1] < 1025

    def test_a_short_impact_is_one(self) -> None:
        found = self.seen(self.pushed(600, 500, 505, 60.0))
        assert any(2 in item.contacts for item in found)
        assert not found[-1].contacts


def test_a_load_mounted_after_the_tare_is_not_in_it() -> None:
    made = observer(arm_model_std=0.0)
    truth = SensedArm(arm('robocal').robot(), made.arm.mounts)
    tared(made, truth)
    assert 'is compensated' in made.use_payload(payload_result(1.5))
    seen = follow(made, *streams(truth, TARED))[-1]
    assert not np.any(made.errors.link(4, (TARED, REST, REST)))
    # Readings without the load show that it was mounted later.
    truth.carry(made.arm.robot.distal_inertia('flange'), 'flange')
    assert seen.motion is not None
    other = tared(observer(arm_model_std=0.0), truth)
    loaded = SensedArm(arm('robocal').robot(), made.arm.mounts)
    loaded.carry(RigidBodyInertia(1.5, np.array([0.018, -0.011, 0.102]), np.zeros((3, 3))),
                 'flange')
    follow(other, *streams(loaded, TARED))
    assert 'computed anew' not in other.use_payload(payload_result(1.5))
    assert np.abs(other.errors.link(4, (TARED, REST, REST))).max() > 1e-3


def test_an_identified_arm_is_as_certain_as_its_result() -> None:
    made, robot = observer(), arm('robocal').robot()
    motion = motions()[0]
    by_description = np.linalg.norm(made.errors.outputs(motion)[1], axis=1)
    covariance = urdf_model(robot, 0.001, np.zeros((6, 6))).covariance
    # Rotors are identified, too.
    covariance[60:] = covariance[:, 60:] = 0.0
    made.use_arm(ArmModel(robot, covariance, 'test', True))
    held, torques = made.errors.outputs(motion)
    # What is proximal to the first joint that a sensor follows is known as a whole.
    assert np.linalg.norm(torques, axis=1)[0] < 0.1 * by_description[0]
    # The wrist sensor sees a part of its link, of which the description alone is known.
    alone = ModelErrors(made.arm, 0.05).outputs(motion)[0]
    assert np.linalg.norm(held[4]) > 0.5 * np.linalg.norm(alone[4])
    made.use_arm(None)
    np.testing.assert_allclose(
        np.linalg.norm(made.errors.outputs(motion)[1], axis=1), by_description)


def test_drive_gains_and_the_links_that_go_with_them_leave_torques_known() -> None:
    """If all links are lighter by what all scales are larger, torques are as they were."""
    made, robot, n = observer(), arm('robocal').robot(), 6
    links, known = link_parameters(robot).ravel(), []
    for gain in (0.03, 0.0):
        change = np.concatenate((-0.03 * links, np.zeros(n), np.full(n, gain), np.zeros(n)))
        made.use_arm(ArmModel(robot, np.outer(change, change), 'test', True))
        held, torques = made.errors.outputs(motions()[0])
        assert np.abs(held[4]).max() > 0.1
        known.append(np.linalg.norm(torques, axis=1))
        np.testing.assert_allclose(made.errors.torque_std(0, motions()[0]), known[-1])
    assert (known[0] < 1e-6 * known[1]).all()


def test_rotors_and_springs_of_an_identified_arm_are_errors_of_its_torques() -> None:
    made, robot, (q, v, a) = observer(), arm('robocal').robot(), motions()[0]
    robot.springs = np.stack((np.full(6, 2.0), np.full(6, 0.4)))
    covariance = np.zeros((78, 78))
    covariance[61, 61], covariance[74, 74] = 0.02**2, 0.3**2
    made.use_arm(ArmModel(robot, covariance, 'test', True))
    np.testing.assert_allclose(
        np.linalg.norm(made.errors.outputs((q, v, a))[1], axis=1),
        [0.0, 0.02 * abs(a[1]), 0.3 * abs(q[2] - 0.4), 0.0, 0.0, 0.0], atol=1e-12)


def test_a_link_with_an_imu_has_the_errors_of_its_body() -> None:
    made = observer()
    made.errors.tare(TareReference(TARED, np.zeros((5, 6))), {})
    link = ImuLink(made.arm, made.arm.chains[0], 'ft_link_2_proximal')
    for q, v, a in motions():
        placement = made.arm.robot.transform_frame_to_root(q, 'ft_link_2_proximal')
        model, data = made.arm.robot.model, made.arm.robot.data
        pin.forwardKinematics(model, data, q, v, a)
        frame = made.arm.robot.frame_id('ft_link_2_proximal')
        twist = pin.getFrameVelocity(model, data, frame)
        motion = pin.getFrameClassicalAcceleration(model, data, frame)
        specific = motion.linear - placement.rotation.T @ np.array([0.0, 0.0, -9.81])
        regressor = link.regressor(specific, twist.angular, motion.angular)
        np.testing.assert_allclose(made.errors.rigid(0, regressor),
                                   made.errors.link(0, (q, v, a)), atol=1e-9)


def test_heavier_links_do_not_collide_by_their_torques() -> None:
    truth = SensedArm(Robot(heavier(arm('robocal').urdf, 0.12)), observer().arm.mounts)
    posture = np.array([0.0, 1.4, 0.2, 0.0, 0.4, 0.0])
    touched = {}
    for std in (0.05, 0.0):
        made = tared(observer(arm_model_std=std), truth)
        seen = follow(made, *streams(truth, posture))[-1]
        assert np.abs(seen.external).max() > 9.0
        touched[std] = bool(seen.colliding.any())
    assert touched == {0.05: False, 0.0: True}


def test_impacts_on_an_arm_that_is_not_what_the_description_says() -> None:
    """The arm moves, is 13 % heavier, and was never tared."""
    from benchmarks import seven_joints

    made = SampledArm(heavier(seven_joints.urdf(), 0.13), seven_joints.SENSORS, seed=5)
    watch = WrenchObserver(Robot(seven_joints.urdf()), WrenchParameters(
        sensor_frames=list(seven_joints.SENSORS), require_tare=False))
    begins = 1.0 + 0.4 * np.arange(10)
    found = follow(watch, *made.samples(5.2, [
        Impact(0, np.array([-40.0, 0.0, 20.0]), np.array([0.03, 0.0, 0.02]), begin, 0.006)
        for begin in begins.tolist()]))
    time = (np.array([item.nanoseconds for item in found]) - found[0].nanoseconds) / 1e9
    touched = time[[bool(item.contacts) for item in found]]
    for begin in begins.tolist():
        assert ((touched > begin) & (touched < begin + 0.05)).any()
    free = [item for instant, item in zip(time.tolist(), found, strict=True) if instant < 0.98]
    assert max(np.linalg.norm(item.wrench[:, :3], axis=1).max() for item in free) > 5.0
    assert not any(item.contacts for item in free)
