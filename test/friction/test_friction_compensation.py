# SPDX-License-Identifier: Apache-2.0
"""Compensation takes friction away while moving and keeps still at standstill."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.arms import arm
from support.forward import Reference
from support.friction_cell import TOOL, WRIST, loaded

from benchmarks.compensation import Tracking, follow, sticky, to_and_fro
from demo import default_cell
from robocal_ros.friction.model import Compensator, feed_forward
from robocal_ros.robot.friction_law import ArmFriction, SteadyFriction
from robocal_ros.robot.trajectories import Lspb, Trajectory, quintic_path

NAMES = ('a', 'b')
LAW = SteadyFriction(*(getattr(WRIST, name) for name in (
    'coulomb', 'static', 'stribeck_velocity', 'viscous')))
WIDTH, DEAD_BAND, NOISE = 0.002, 0.01, 1e-3


def compensator() -> Compensator:
    return Compensator(ArmFriction({'b': LAW}, NAMES), width=WIDTH, dead_band=DEAD_BAND)


def series(velocity: np.ndarray, *, measured: bool) -> np.ndarray:
    made = compensator()
    return np.array([made.torque(0.002 * at, np.array([v, v]), np.zeros(2), measured=measured)
                     for at, v in enumerate(velocity)])


@pytest.mark.parametrize('speed', [0.006, 0.02, 0.1, 0.5, -0.006, -0.02, -0.1, -0.5])
def test_commanded_speeds_get_the_friction(speed):
    torque = series(np.array([speed]), measured=False)[0]
    truth = float(WRIST.torque(np.array([speed]))[0])
    assert abs(torque[1] - truth) < 0.01 * abs(truth)
    assert torque[0] == 0.0


@pytest.mark.parametrize('speed', [0.015, 0.05, 0.3, -0.015, -0.05, -0.3])
def test_residual_at_constant_measured_speed_is_below_a_tenth_of_friction(speed):
    noise = NOISE * np.random.default_rng(1).normal(size=2000)
    torque = series(speed + noise, measured=True)[:, 1]
    truth = float(WRIST.torque(np.array([speed]))[0])
    assert np.sqrt(np.mean((torque - truth)**2)) < 0.1 * abs(truth)


def test_no_chatter_while_starting_slowly_and_stopping():
    """The torque comes on once and goes off once, however much the speed scatters."""
    ramp = np.concatenate((np.zeros(200), np.linspace(0.0, 0.04, 2000), np.full(200, 0.04),
                           np.linspace(0.04, 0.0, 2000), np.zeros(200)))
    noise = NOISE * np.random.default_rng(3).normal(size=len(ramp))
    on = series(ramp + noise, measured=True)[:, 1] != 0.0
    assert np.abs(np.diff(on.astype(int))).sum() == 2


def test_bristles_make_a_reversal_lag_and_hold_nothing_at_rest():
    law = replace(LAW, bristle_stiffness=3000.0, bristle_damping=15.0)
    made = Compensator(ArmFriction({'b': law}, NAMES), width=WIDTH, dead_band=DEAD_BAND)
    time = np.arange(0.0, 2.0, 0.002)
    angle, speed = 4e-3 * np.sin(2.0 * np.pi * time), 4e-3 * 2.0 * np.pi * np.cos(
        2.0 * np.pi * time)
    speed[time > 1.75] = 0.0
    torque = np.array([made.torque(at, np.array([v, v]), np.zeros(2), measured=False)[1]
                       for at, v in zip(time, speed, strict=True)])
    moving = (time > 0.0) & (time < 1.74)
    expected = law.torque(speed, sliding=law.sliding(angle, speed, np.zeros_like(angle), 0.0)[0])
    assert np.abs(torque - expected)[moving].max() < 0.03 * np.abs(expected).max()
    # Shortly after the turn at 0.25 s, friction still has the sign of before.
    assert torque[np.searchsorted(time, 0.265)] > 0.2
    assert not torque[time > 1.86].any()


def test_compensation_pays_at_reversals_and_keeps_still_at_rest():
    """A sticky wrist joint of the simulated arm, with the law and the bristles that it has."""
    joint, name = 5, 'joint_6'
    base = default_cell.hidden_truth()
    truth = replace(base, tool=None, load=None, force_torque_sensors=(), imus=(), tracker=None,
                    joints={key: sticky(value, np.random.default_rng(3))
                            for key, value in base.joints.items()})
    hidden, robot = truth.joints[name].friction, arm('robocal').robot()
    law = SteadyFriction(
        np.array(hidden.coulomb), np.array(hidden.breakaway), np.array(hidden.stribeck_velocity),
        np.array(hidden.viscous), bristle_stiffness=hidden.bristle_stiffness,
        bristle_damping=hidden.bristle_damping)
    motion, reversals = to_and_fro(np.array([0.2, 0.4, -0.6, 0.3, 0.5, 0.1]), joint, 0.05, 0.4)

    def tracked(scale: float, used: SteadyFriction = law) -> Tracking:
        effort = scale * feed_forward(
            robot, ArmFriction({name: used}, robot.joint_names), motion, rigid=False)
        return follow(robot, truth, motion, reversals, effort, joint)

    without, compensated, too_much = (tracked(scale) for scale in (0.0, 1.0, 1.3))
    assert compensated.error < 0.1 * without.error
    assert too_much.error < without.error
    assert {item.chatter for item in (compensated, too_much)} == {0.0}
    assert max(item.wander for item in (compensated, too_much)) < 2e-5
    # The steady law alone is early: after a reversal, friction builds up over the bristles.
    steady = replace(law, bristle_stiffness=np.inf, bristle_damping=0.0)
    assert tracked(1.0, steady).error > 3.0 * compensated.error


def test_commanded_reversal_is_smooth():
    velocity = np.linspace(-0.02, 0.02, 4001)
    torque = series(velocity, measured=False)[:, 1]
    assert np.abs(np.diff(torque)).max() < 0.01
    assert torque[2000] == pytest.approx(0.0, abs=1e-9)


def test_no_chatter_at_standstill():
    noise = NOISE * np.random.default_rng(2).normal(size=20000)
    torque = series(noise, measured=True)
    assert np.ptp(torque) == 0.0


class TestFeedForward:
    """Gravity, inertia and friction of a motion at its knots."""

    @pytest.mark.parametrize('kind', ['quintic', 'segment'])
    def test_torque_is_that_of_the_reference_arm(self, kind):
        reference = Reference(arm('robocal').urdf, 'tool0', (0.0, 0.0, -9.81), TOOL)
        robot = loaded(arm('robocal').robot(), TOOL)
        start = np.array([0.1, 0.3, -0.5, 0.2, 0.4, -0.3])
        if kind == 'quintic':
            coarse = quintic_path(np.stack((start, start + 0.5)), np.ones(6), np.full(6, 2.0))
            time = np.linspace(0.0, coarse.duration, 20)
            motion = Trajectory(time, *coarse.sample(time))
        else:
            motion = Lspb.with_acceleration(-0.3, 0.4, 0.2, 2.0).trajectory(start, 5)
        torque = feed_forward(robot, ArmFriction({'joint_6': LAW}, robot.joint_names), motion)
        position, velocity, acceleration = motion.sample(motion.time)
        expected = reference.torque(position, velocity, acceleration)
        expected[:, 5] += WRIST.torque(velocity[:, 5])
        np.testing.assert_allclose(torque, expected, atol=1e-6)
