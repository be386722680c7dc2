# SPDX-License-Identifier: Apache-2.0
"""Options of the truth file that violate the estimators' assumptions, each against its law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import mujoco
import numpy as np
import pinocchio as pin
import pytest
from support.arms import arm as published

from robocal_sim.controller import ControllerSettings, TrajectoryController
from robocal_sim.friction import LuGreFriction
from robocal_sim.model import Description, build_model, read_description
from robocal_sim.prescribed import Measurement, Motion, measure
from robocal_sim.sensors import ForceTorqueSensor, LowPass
from robocal_sim.simulator import OUTLIER, ArmSimulator
from robocal_sim.trajectory import Trajectory, TrajectoryPoint
from robocal_sim.truth import (
    Cell,
    ForceTorqueNoise,
    ForceTorqueTruth,
    FrictionTruth,
    HiddenTruth,
    JointNoise,
    JointTruth,
    LinkTruth,
    ToolTruth,
)

PERIOD = 1e-3
TIME = PERIOD * np.arange(3000)
MIDDLE = np.array([0.3, -0.4, 0.6, 0.2, 0.9, -0.5])
RATE = 2.0 * np.pi * np.array([0.5, 0.4, 0.6, 0.7, 0.5, 0.8])
MOTION = Motion(PERIOD, MIDDLE + 0.3 * np.sin(np.outer(TIME, RATE)),
                0.3 * RATE * np.cos(np.outer(TIME, RATE)),
                -0.3 * RATE**2 * np.sin(np.outer(TIME, RATE)))
STILL = Motion(PERIOD, np.tile(MIDDLE, (200, 1)), np.zeros((200, 6)), np.zeros((200, 6)))
TOOL = ToolTruth(2.0, (0.02, -0.01, 0.1), (7e-3, 8e-3, 4e-3, 0.0, 0.0, 0.0), 'flange')
WRIST = ForceTorqueTruth('ft_wrist')
IDEAL = HiddenTruth(tool=TOOL, force_torque_sensors=(WRIST,))
LAW = FrictionTruth((4.0, 5.0), (7.0, 8.0), (0.05, 0.04), (6.0, 5.0), 2.0e4, 70.0)

Run = Callable[..., Measurement]


@pytest.fixture
def run(arm: Description) -> Run:
    def carry_out(truth: HiddenTruth, motion: Motion = MOTION, rate: float = 1000.0,
                  noise: Cell | None = None) -> Measurement:
        return measure(arm, truth, noise or Cell(), motion, rate=rate)

    return carry_out


def joints(**values: object) -> dict[str, JointTruth]:
    return {f'joint_{number}': JointTruth(**values) for number in range(1, 7)}


def test_prescribed_motion_agrees_with_pinocchio(arm_urdf: str, run: Run) -> None:
    model = pin.buildModelFromXML(arm_urdf)
    found = run(HiddenTruth(), rate=250.0)
    rows = zip(MOTION.position[::4], MOTION.velocity[::4], MOTION.acceleration[::4], strict=True)
    expected = np.array([pin.rnea(model, model.createData(), *row) for row in rows])
    np.testing.assert_allclose(found.effort, expected, atol=1e-8)
    np.testing.assert_array_equal(found.position, MOTION.position[::4])


def test_prescribed_statics_agree_with_the_simulator(arm: Description, run: Run) -> None:
    truth = replace(IDEAL, joints=joints(compliance=1e-5))
    simulator = ArmSimulator(arm, truth, start=MIDDLE)
    readings = [item for _ in range(1500) for item in simulator.step().wrenches]
    wrench = run(truth, STILL).wrenches['ft_wrist'][1][-1]
    np.testing.assert_allclose(readings[-1].values, wrench, atol=0.02)


@pytest.mark.parametrize('name', ['robocal', 'kinova', 'xarm7'])
def test_every_link_of_an_arm_is_scattered_by_its_sigmas(name: str) -> None:
    case = published(name)
    description = read_description(case.urdf, case.robot().joint_names)
    links = LinkTruth(mass=0.05, centre_of_mass=0.005, inertia=0.1, seed=1)
    nominal, scattered = (build_model(description, HiddenTruth(links=item), loaded=True,
                                      timestep=PERIOD) for item in (LinkTruth(), links))
    heavy = nominal.body_mass > 0.0
    mass = scattered.body_mass[heavy] / nominal.body_mass[heavy] - 1.0
    shift = (scattered.body_ipos - nominal.body_ipos)[heavy]
    inertia = scattered.body_inertia[heavy] / nominal.body_inertia[heavy] - 1.0
    for found, sigma in ((mass, 0.05), (shift, 0.005), (inertia, 0.1)):
        assert np.abs(found).min() > 0.0
        assert 0.4 * sigma < np.std(found) < 1.8 * sigma
    np.testing.assert_allclose(inertia, inertia[:, :1] * np.ones(3), rtol=1e-9)
    mujoco.mj_forward(scattered, mujoco.MjData(scattered))


def test_base_tilt_turns_gravity(run: Run) -> None:
    level, tilted = (run(replace(IDEAL, base_tilt=tilt), STILL).wrenches['ft_wrist'][1][-1, :3]
                     for tilt in ((0.0, 0.0), (0.03, 0.04)))
    cosine = level @ tilted / np.linalg.norm(level) / np.linalg.norm(tilted)
    assert np.arccos(cosine) == pytest.approx(0.05, rel=1e-3)
    assert np.linalg.norm(level) == pytest.approx(np.linalg.norm(tilted))


def test_rotor_torque_in_the_effort_is_inertia_times_acceleration(run: Run) -> None:
    with_rotor, without = (run(replace(IDEAL, joints=joints(
        rotor_inertia=0.5, rotor_in_effort=share))) for share in (0.4, 0.0))
    np.testing.assert_allclose(
        with_rotor.effort - without.effort, 0.2 * MOTION.acceleration, atol=1e-9)


def test_external_effort_lacks_the_arm_and_keeps_the_tool(run: Run) -> None:
    bare = run(replace(IDEAL, tool=None, effort_contains='external'))
    np.testing.assert_allclose(bare.effort, 0.0, atol=1e-8)
    loaded = run(replace(IDEAL, effort_contains='external'))
    difference = run(IDEAL).effort - run(replace(IDEAL, tool=None)).effort
    np.testing.assert_allclose(loaded.effort, difference, atol=1e-8)


def test_wrapped_positions_are_within_a_turn(run: Run) -> None:
    beyond = Motion(PERIOD, MOTION.position + [3.0, 0, 0, 3.0, 0, 0], MOTION.velocity,
                    MOTION.acceleration)
    truth = {'joint_1': JointTruth(wrapped=True)}
    found = run(replace(IDEAL, joints=truth), beyond).position
    assert np.abs(found[:, 0]).max() <= np.pi
    assert found[:, 3].max() > np.pi
    np.testing.assert_allclose(np.cos(found), np.cos(beyond.position), atol=1e-12)


def test_simulator_delays_effort_and_wrench(arm: Description) -> None:
    late = replace(WRIST, delay=0.02)
    prompt, delayed = (ArmSimulator(arm, truth, rate=1000.0, start=MIDDLE) for truth in (
        IDEAL, replace(IDEAL, effort_delay=0.02, force_torque_sensors=(late,))))
    move = Trajectory(arm.joints, (TrajectoryPoint(0.3, (MIDDLE + 0.2).tolist(), [0.0] * 6),))
    found = []
    for simulator in (prompt, delayed):
        simulator.controller.accept_goal(move, simulator.now)
        steps = [simulator.step() for _ in range(400)]
        found.append((np.array([item.joints[0].effort for item in steps]),
                      np.array([item.wrenches[0].values for item in steps])))
    for early, then in zip(*found, strict=True):
        assert np.ptp(early, axis=0).max() > 1.0
        np.testing.assert_array_equal(then[20:], early[:-20])


# -------------------------------------------------------------------------- friction


def steady(law: FrictionTruth, velocity: float, load: float = 0.0) -> float:
    return float(LuGreFriction([law]).steady(np.array([velocity]), np.array([load]))[0])


def stepped(law: FrictionTruth, velocity: float, duration: float, load: float = 0.0) -> float:
    friction = LuGreFriction([law])
    for _ in range(round(duration / 0.01)):
        torque = friction.step(np.array([velocity]), 0.01, np.array([load]))
    return float(torque[0])


def test_coulomb_friction_grows_with_the_load() -> None:
    law = replace(LAW, load_dependence=0.05)
    for load in (40.0, -40.0):
        assert steady(law, 0.5, load) - steady(LAW, 0.5) == pytest.approx(2.0)
        assert stepped(law, 0.5, 2.0, load) == pytest.approx(steady(law, 0.5, load))


def test_viscous_friction_can_be_sublinear() -> None:
    law = replace(LAW, viscous_exponent=0.6)
    for side, sign in enumerate((1.0, -1.0)):
        difference = steady(law, 0.5 * sign) - steady(replace(law, viscous=(0.0, 0.0)), 0.5 * sign)
        assert difference == pytest.approx(sign * LAW.viscous[side] * 0.5**0.6)


def test_friction_falls_as_the_joint_warms_up() -> None:
    law = replace(LAW, warm_up=-0.2, warm_up_time=10.0)
    assert stepped(law, 0.5, 10.0) / steady(LAW, 0.5) == pytest.approx(
        1.0 - 0.2 * (1.0 - np.exp(-1.0)), rel=1e-3)


def test_friction_is_higher_after_a_pause_and_runs_in() -> None:
    friction = LuGreFriction([replace(LAW, pause_rise=0.2, pause_time=5.0, run_in_time=2.0)])
    for _ in range(500):
        friction.step(np.zeros(1), 0.01)
    assert friction.factor == pytest.approx(1.0 + 0.2 * (1.0 - np.exp(-1.0)))
    for _ in range(200):
        friction.step(np.full(1, 0.5), 0.01)
    assert friction.factor == pytest.approx(1.0 + 0.2 * (1.0 - np.exp(-1.0)) * np.exp(-1.0))


def test_hysteresis_reverses_over_its_angle() -> None:
    law = replace(LAW, hysteresis=1.0, hysteresis_angle=0.05)
    plain, friction = LuGreFriction([LAW]), LuGreFriction([law])
    for velocity, travel, expected in ((0.5, 1.0, 1.0), (-0.5, 0.05, -1.0 + 2.0 * np.exp(-1.0))):
        for _ in range(round(travel / 0.5 / 1e-3)):
            torques = [item.step(np.array([velocity]), 1e-3) for item in (friction, plain)]
        assert torques[0] - torques[1] == pytest.approx(expected, abs=1e-3)


# ------------------------------------------------------------------- force and torque


@pytest.mark.parametrize('order', [1, 2])
def test_low_pass_has_the_gain_of_its_order(order: int) -> None:
    low_pass = LowPass(10.0, order, PERIOD)
    wave = np.sin(2.0 * np.pi * 10.0 * TIME)[:, None]
    out = low_pass.filtered(wave)
    assert np.abs(out[1000:]).max() == pytest.approx(0.5 ** (order / 2.0), rel=0.02)
    one_by_one = np.array([low_pass.step(value) for value in wave])
    np.testing.assert_allclose(one_by_one, out, atol=1e-12)


def test_sensor_has_its_own_rate_and_phase(arm: Description, run: Run) -> None:
    sensor = replace(WRIST, rate=100.0, phase=0.003)
    truth = replace(IDEAL, force_torque_sensors=(sensor,))
    stamps = run(truth, rate=125.0).wrenches['ft_wrist'][0]
    np.testing.assert_allclose(stamps[:3], [0.003, 0.013, 0.023])
    simulator = ArmSimulator(arm, truth, rate=125.0)
    begin = simulator.now
    times = [item.time - begin for _ in range(30) for item in simulator.step().wrenches]
    np.testing.assert_allclose(times, [0.003, 0.013, 0.023], atol=1e-9)


def test_cable_torque_grows_with_the_last_joint() -> None:
    sensor = ForceTorqueSensor(
        ForceTorqueNoise(), ForceTorqueTruth('f', cable_stiffness=0.05), np.random.default_rng(1))
    readings = sensor.measure(np.zeros((2, 6)), np.zeros(2), np.array([0.0, 2.0]))
    assert not readings[0].any()
    assert np.linalg.norm(readings[1, 3:]) == pytest.approx(0.1)
    assert not readings[1, :3].any()


# ------------------------------------------------------------- controller and messages


def test_cubic_segments_have_jumps_of_acceleration(arm: Description) -> None:
    jumps = []
    for cubic in (False, True):
        controller = TrajectoryController(
            arm.joints, arm.limits, ControllerSettings(cubic_segments=cubic), np.zeros(6))
        controller.update(np.zeros(6), np.zeros(6), PERIOD)
        points = tuple(TrajectoryPoint(
            time, [0.2 * (1.0 - np.cos(3.0 * time))] * 6, [0.6 * np.sin(3.0 * time)] * 6,
            [1.8 * np.cos(3.0 * time)] * 6) for time in np.arange(0.0, 2.01, 0.5))
        points = (*points, TrajectoryPoint(4.0, [0.0] * 6, [0.0] * 6, [0.0] * 6))
        controller.accept_goal(Trajectory(arm.joints, points), 0.0)
        accelerations = []
        for _ in range(1900):
            controller.update(controller.desired.position, np.zeros(6), PERIOD)
            accelerations.append(controller.desired.acceleration[0])
        jumps.append(np.abs(np.diff(accelerations[10:])).max())
    assert jumps[0] < 0.02
    assert jumps[1] > 0.2


@pytest.mark.parametrize(('field', 'corrupt'), [
    ('zero_stamps', lambda readings: [item.time == 0.0 for item in readings]),
    ('wall_stamps', lambda readings: [item.time > 1e9 for item in readings]),
    ('repeated_stamps', lambda readings: [
        one.time == other.time for one, other in zip(readings[1:], readings, strict=False)]),
    ('outliers', lambda readings: [(item.position == OUTLIER).all() for item in readings]),
    ('zero_rows', lambda readings: [not item.effort.any() for item in readings]),
])
def test_joint_states_are_corrupt_at_the_given_rate(
    arm: Description, field: str, corrupt: Callable[..., list[bool]]
) -> None:
    noise = Cell(joint_states=JointNoise(effort_sigma=0.1, **{field: 0.2}))
    for cell, share in ((noise, 0.2), (Cell(JointNoise(effort_sigma=0.1)), 0.0)):
        simulator = ArmSimulator(arm, HiddenTruth(), cell, rate=1000.0)
        readings = [item for _ in range(600) for item in simulator.step().joints]
        assert np.mean(corrupt(readings)) == pytest.approx(share, abs=0.05 * bool(share))
