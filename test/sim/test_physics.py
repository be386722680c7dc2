# SPDX-License-Identifier: Apache-2.0
"""MuJoCo against Pinocchio; drives, friction and compliance against their laws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pinocchio as pin
import pytest
from support.arms import arm as published, foreign_urdf
from support.forward import Reference, Tool, sensed_wrench

from robocal_ros.errors import ConfigurationError, ModelError
from robocal_sim.drive import CommandLimiter
from robocal_sim.friction import LuGreFriction
from robocal_sim.model import Description, read_description
from robocal_sim.physics import CONTROL_STEP, ArmPhysics
from robocal_sim.simulator import rest_posture
from robocal_sim.truth import (
    ForceTorqueTruth,
    FrictionTruth,
    HiddenTruth,
    ImuTruth,
    JointTruth,
    RopeTruth,
    ToolTruth,
)

FloatArray = npt.NDArray[np.float64]
START = np.array([0.3, -0.4, 0.6, 0.2, 0.9, -0.5])
AMPLITUDE = np.array([0.4, 0.35, 0.5, 0.6, 0.5, 0.8])
TOOL = ToolTruth(2.3, (0.03, -0.02, 0.11), (0.011, 0.013, 0.006, 4e-4, -3e-4, 6e-4), 'tool0')
BODY = Tool(TOOL.mass, np.array(TOOL.centre_of_mass), np.array([
    [0.011, 4e-4, -3e-4], [4e-4, 0.013, 6e-4], [-3e-4, 6e-4, 0.006]]))


def ideal(truth: HiddenTruth, tool: ToolTruth | None = TOOL) -> HiddenTruth:
    """Return the truth with ideal joints and the given tool."""
    joints = dict.fromkeys(truth.joints, JointTruth(rotor_inertia=0.2))
    return replace(truth, joints=joints, tool=tool)


def swing(physics: ArmPhysics, steps: int, every: int) -> Iterator[int]:
    """Move all joints along sines; yield every `every` steps."""
    for index in range(steps):
        time = index * CONTROL_STEP
        ramp = min(1.0, time) ** 2
        physics.step(START + AMPLITUDE * ramp * np.sin(np.arange(1.0, 7.0) * 0.6 * time))
        if index % every == every - 1:
            yield index


def test_drive_torques_and_wrenches_agree_with_pinocchio(
    arm: Description, arm_urdf: str, truth: HiddenTruth
) -> None:
    physics = ArmPhysics(arm, ideal(truth), START)
    reference = Reference(arm_urdf, TOOL.parent, (0.0, 0.0, -9.81), BODY)
    moved = 0.0
    for _ in swing(physics, 3000, 300):
        state = tuple(part[None] for part in (
            physics.position, physics.velocity, physics.acceleration))
        assert physics.effort == pytest.approx(reference.torque(*state)[0], abs=1e-8)
        for sensor in truth.force_torque_sensors:
            (expected,) = sensed_wrench(
                arm_urdf, sensor.frame, f'{sensor.frame}_joint', state, (0.0, 0.0, -9.81),
                (TOOL.parent, BODY), end=TOOL.parent)
            assert physics.wrench(sensor.frame) == pytest.approx(expected, abs=1e-8)
        moved = max(moved, np.abs(physics.velocity).max())
    assert moved > 1.0


def test_imu_agrees_with_pinocchio(arm: Description, arm_urdf: str, truth: HiddenTruth) -> None:
    physics = ArmPhysics(arm, ideal(truth), START)
    model = pin.buildModelFromXML(arm_urdf)
    data = model.createData()
    for _ in swing(physics, 1500, 300):
        pin.forwardKinematics(
            model, data, physics.position, physics.velocity, physics.acceleration
        )
        pin.updateFramePlacements(model, data)
        for imu in truth.imus:
            frame = model.getFrameId(imu.frame)
            acceleration = pin.getFrameClassicalAcceleration(model, data, frame, pin.LOCAL).linear
            gravity = data.oMf[frame].rotation.T @ np.array([0.0, 0.0, -9.81])
            rate = pin.getFrameVelocity(model, data, frame, pin.LOCAL).angular
            expected = np.concatenate((acceleration - gravity, rate))
            assert physics.inertial(imu.frame) == pytest.approx(expected, abs=1e-8)


def test_a_rope_pulls_on_the_attached_load(arm: Description, truth: HiddenTruth) -> None:
    rope = RopeTruth(80.0, (0.0, 0.05, 0.1), (0.4, 2.5, 0.6))
    free, physics = (ArmPhysics(arm, replace(ideal(truth), rope=item), START)
                     for item in (None, rope))

    def settle(one: ArmPhysics) -> None:
        for _ in range(1500):
            one.step(START)

    for one in (free, physics):
        one.attach_load()
        settle(one)
    rotation, origin = physics.link_pose('flange')
    end = origin + rotation @ rope.end
    force = rope.tension * (rope.pulley - end) / np.linalg.norm(rope.pulley - end)
    # About the vertical axis of joint 1, through the root's origin.
    assert physics.effort[0] - free.effort[0] == pytest.approx(-np.cross(end, force)[2], abs=0.3)
    sensor, _ = physics.link_pose('ft_wrist')
    change = physics.wrench('ft_wrist') - free.wrench('ft_wrist')
    assert change[:3] == pytest.approx(sensor.T @ force, abs=0.3)
    physics.detach_load()
    settle(physics)
    assert physics.effort[0] == pytest.approx(free.effort[0], abs=0.3)


def test_push_is_measured_by_the_sensors_proximal_to_it(
    arm: Description, truth: HiddenTruth
) -> None:
    physics = ArmPhysics(arm, ideal(truth), START)
    for _ in range(1000):
        physics.step(START)
    before = {name: physics.wrench(name) for name in ('ft_link_2_proximal', 'ft_link_2_distal')}
    force, point = np.array([12.0, 20.0, -5.0]), np.array([0.05, 0.0, 0.12])
    physics.push('ft_link_2_proximal', force, np.cross(point, force), 2.0)
    for _ in range(1500):
        physics.step(START)
    change = physics.wrench('ft_link_2_proximal') - before['ft_link_2_proximal']
    assert change[:3] == pytest.approx(force, abs=0.05)
    assert change[3:] == pytest.approx(np.cross(point, force), abs=0.05)
    assert physics.wrench('ft_link_2_distal') == pytest.approx(before['ft_link_2_distal'],
                                                               abs=0.05)
    for _ in range(1500):
        physics.step(START)
    assert physics.wrench('ft_link_2_proximal') == pytest.approx(
        before['ft_link_2_proximal'], abs=0.05
    )


def test_load_can_be_attached_and_detached(arm: Description, truth: HiddenTruth) -> None:
    physics = ArmPhysics(arm, ideal(truth, None), START)
    weights = []
    for change in (lambda: True, physics.attach_load, physics.detach_load):
        assert change()
        for _ in range(2000):
            physics.step(START)
        weights.append(np.linalg.norm(physics.wrench('ft_wrist')[:3]))
    assert weights[1] - weights[0] == pytest.approx(truth.load.mass * 9.81, abs=1e-2)
    assert weights[2] == pytest.approx(weights[0], abs=1e-2)


def test_sag_is_compliance_times_transmitted_torque(arm: Description, truth: HiddenTruth) -> None:
    physics = ArmPhysics(arm, replace(truth, tool=TOOL), START)
    for _ in range(3000):
        physics.step(START)
    compliance = np.array([truth.joints[name].compliance for name in arm.joints])
    transmitted = physics.effort - physics.friction.torque
    assert physics.encoder - physics.position == pytest.approx(compliance * transmitted, abs=1e-9)
    assert np.abs(physics.encoder - physics.position).max() > 1e-4


def test_drives_have_no_static_error_under_friction_and_unknown_load(
    arm: Description, truth: HiddenTruth
) -> None:
    physics = ArmPhysics(arm, truth, START)
    goal = START + 0.2
    for index in range(4000):
        physics.step(START + 0.2 * min(1.0, index / 1000))
    assert physics.encoder == pytest.approx(goal, abs=2e-5)
    assert np.abs(physics.velocity).max() < 1e-6


def test_arm_placed_at_rest_is_in_equilibrium(arm: Description, truth: HiddenTruth) -> None:
    encoders = np.array([0.3, 0.6, -0.7, 0.2, 0.5, 0.1])
    truth = replace(truth, force_torque_sensors=(), imus=())
    placed = ArmPhysics(arm, truth)
    placed.attach_load()
    placed.rest_in(encoders)
    moved = ArmPhysics(arm, truth, start=encoders)
    moved.attach_load()
    for _ in range(3000):
        moved.step(encoders)
    rest, origin = placed.link_pose('flange'), moved.link_pose('flange')
    # The deadband of the drives is 1e-5 rad, the lever arm about a metre.
    np.testing.assert_allclose(rest[1], origin[1], atol=4e-5)
    placed.rest_in(np.zeros(6))
    placed.rest_in(encoders)
    np.testing.assert_allclose(placed.link_pose('flange')[1], rest[1], atol=1e-12)


def test_commands_that_are_not_finite_are_ignored(arm: Description, truth: HiddenTruth) -> None:
    physics = ArmPhysics(arm, truth, START)
    for value in (np.nan, np.inf, -np.inf):
        for _ in range(100):
            physics.step(np.full(6, value))
    assert physics.encoder == pytest.approx(START, abs=1e-4)


def test_commands_are_clamped_to_the_position_limits(arm: Description, truth: HiddenTruth) -> None:
    physics = ArmPhysics(arm, truth, START)
    for _ in range(4000):
        physics.step(np.full(6, 50.0))
    assert physics.encoder == pytest.approx(arm.limits.upper, abs=1e-3)


@pytest.mark.parametrize('target', [-3.0, 0.4, 0.001])
def test_limiter_brakes_without_overshoot(target: float) -> None:
    limiter = CommandLimiter(-5.0, 5.0, 2.0, 20.0, 0.0, 1e-3)
    beyond = 0.0
    for _ in range(3000):
        limiter.update(target)
        beyond = max(beyond, (limiter.position - target) * np.sign(target))
        assert abs(limiter.velocity) <= 2.0 + 1e-9
        assert abs(limiter.acceleration) <= 20.0 + 1e-6
    assert beyond < 1e-4
    assert limiter.position == pytest.approx(target, abs=1e-6)


FRICTION = FrictionTruth((4.0, 5.0), (7.0, 8.0), (0.05, 0.04), (6.0, 5.0), 2.0e4, 70.0)


@pytest.mark.parametrize('velocity', [-1.0, -0.1, -0.02, -0.005, 0.003, 0.04, 0.5, 2.0])
def test_friction_settles_on_its_stribeck_curve(velocity: float) -> None:
    friction = LuGreFriction([FRICTION])
    for _ in range(5000):
        torque = friction.step(np.array([velocity]), 1e-3)
    side = 0 if velocity > 0.0 else 1
    fc, fs = FRICTION.coulomb[side], FRICTION.breakaway[side]
    law = fc + (fs - fc) * np.exp(-(velocity / FRICTION.stribeck_velocity[side]) ** 2)
    expected = np.sign(velocity) * law + FRICTION.viscous[side] * velocity
    assert torque == pytest.approx(expected, rel=1e-6)
    assert friction.steady(np.array([velocity])) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize('share', [0.9, 1.1])
def test_joint_breaks_away_at_breakaway_torque(share: float) -> None:
    friction = LuGreFriction([FRICTION])
    velocity, travel = np.zeros(1), 0.0
    # Slowly rising torque on an inertia of 1 kg·m².
    for index in range(20000):
        applied = share * FRICTION.breakaway[0] * min(1.0, index / 10000)
        velocity = velocity + (applied - friction.step(velocity, 1e-3)) * 1e-3
        travel += velocity[0] * 1e-3
    assert (travel > 0.1) == (share > 1.0)


def test_small_urdf_with_meshes_gripper_and_continuous_joint(two_joint_urdf: str) -> None:
    description = read_description(two_joint_urdf, ['shoulder', 'elbow'])
    assert np.isinf(description.limits.upper[1])
    truth = HiddenTruth(
        force_torque_sensors=(ForceTorqueTruth('sensor'),), imus=(ImuTruth('lower'),)
    )
    physics = ArmPhysics(description, truth, np.array([0.3, -0.7]))
    for index in range(800):
        physics.step(np.array([0.3, -0.7]) + 0.3 * np.sin(2e-3 * index) * np.array([1.0, -2.0]))
    model = pin.buildModelFromXML(two_joint_urdf)
    fingers = [model.getJointId(name) for name in ('finger_left', 'finger_right')]
    neutral = pin.neutral(model)
    reduced = pin.buildReducedModel(model, [i for i in fingers if i < model.njoints], neutral)
    elbow = physics.position[1]
    q = np.array([physics.position[0], np.cos(elbow), np.sin(elbow)])
    expected = pin.rnea(reduced, reduced.createData(), q, physics.velocity, physics.acceleration)
    assert physics.effort == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize('name', ['panda', 'ur5', 'xarm7', 'kinova', 'z1'])
def test_published_robots_load_and_hold(name: str) -> None:
    urdf = foreign_urdf('z1.urdf') if name == 'z1' else published(name).urdf
    description = read_description(urdf)
    start = rest_posture(description.limits)
    physics = ArmPhysics(description, HiddenTruth(), start)
    for _ in range(300):
        physics.step(start)
    assert physics.encoder == pytest.approx(start, abs=1e-3)


@pytest.mark.parametrize(('text', 'words'), [
    ('no xml', 'not valid XML'),
    ('<sdf/>', 'begins with <sdf>'),
    ('<robot name="r"><link name="a"/></robot>', 'no movable joint'),
])
def test_text_that_is_not_a_robot_is_refused(text: str, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        read_description(text)


def test_unknown_names_are_refused_with_a_list_of_valid_ones(
    arm: Description, arm_urdf: str
) -> None:
    with pytest.raises(ConfigurationError, match=r'joint_9.*joint_1'):
        read_description(arm_urdf, ['joint_9'])
    with pytest.raises(ConfigurationError, match=r'nowhere.*ft_wrist'):
        ArmPhysics(arm, HiddenTruth(force_torque_sensors=(ForceTorqueTruth('nowhere'),)))
    with pytest.raises(ConfigurationError, match=r'joint_9.*joint_1'):
        ArmPhysics(arm, HiddenTruth(joints={'joint_9': JointTruth()}))
