# SPDX-License-Identifier: Apache-2.0
"""Exciting motions as they are recorded: approach, return, late stamps, gaps, rising friction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.interpolate import BPoly
from support.arms import arm
from support.excitation_cell import EFFORT_NOISE, RATE, TOOL, Motion, exciting, friction_of
from support.forward import Reference

from robocal_ros.messages.samples import JointSamples
from robocal_ros.payload import excitation
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.results.result import CalibrationResult, Verdict
from robocal_ros.robot.arm_model import urdf_model
from robocal_ros.robot.setup import effort_scales

SCALE = np.array([0.87, 1.14, 0.95, 1.08, 0.86, 1.12])
VALUES = PayloadParameters(
    known_mass=TOOL.mass, method='excitation', excitation_source='torque', arm_model_std=0.001)
PERIOD, APPROACH = 8.0, 2.5
# Half-width of a 99.9 % interval in standard deviations.
WIDE = 3.29


def with_approach(motion: Motion, time: np.ndarray, duration: float) -> tuple[np.ndarray, ...]:
    """Return positions, velocities and accelerations of approach, motion and return."""
    parts = [np.array(part) for part in motion.at(np.clip(time, 0.0, duration))]
    ends = [np.array([part[0] for part in motion.at(np.array([at]))]) for at in (0.0, duration)]
    away = np.zeros_like(ends[0])
    away[0] = ends[0][0] + 0.3
    for begin, border in ((-APPROACH, (away, ends[0])), (duration, (ends[1], away))):
        curve = BPoly.from_derivatives([begin, begin + APPROACH], np.array(border))
        inside = (time >= begin) & (time <= begin + APPROACH)
        for order, part in enumerate(parts):
            part[inside] = curve(time[inside], nu=order)
            outside = (time < -APPROACH) | (time > duration + APPROACH)
            part[outside] = away[0] if order == 0 else 0.0
    return tuple(parts)


def recorded(
    *, seed: int = 0, repeats: int = 3, jitter: float = 0.0, gaps: int = 0, rise: float = 0.0,
    scale: np.ndarray | float = 1.0,
) -> JointSamples:
    """Return joint states of an approach, a motion, and a return, with encoders of 20 µrad.

    Args:
        seed: Seed.
        repeats: Number of periods of the motion.
        jitter: By how much stamps are late at random [s].
        gaps: Number of gaps of 0.3 s.
        rise: Friction that the joints have at standstill beyond that of the model [N·m].
        scale: Drive gains.

    """
    generator, case, duration = np.random.default_rng(seed), arm('robocal'), repeats * PERIOD
    time = np.arange(-APPROACH - 1.0, duration + APPROACH + 1.0, 1.0 / RATE)
    q, v, a = with_approach(exciting(), time, duration)
    torque = Reference(case.urdf, case.tool, (0.0, 0.0, -9.81), TOOL).torque(q, v, a)
    torque += friction_of(v) + rise * np.sign(v) * np.exp(-np.abs(v) / 0.08)
    effort = scale * torque + EFFORT_NOISE * generator.normal(size=q.shape)
    kept = np.ones(len(time), dtype=bool)
    for begin in duration * (0.13 + np.arange(gaps) / max(gaps, 1)):
        kept &= (time < begin) | (time > begin + 0.3)
    stamps = np.maximum.accumulate(time + jitter * np.abs(generator.normal(size=len(time))))
    stamps += 10.0 + 1e-8 * np.arange(len(time))
    return JointSamples(case.robot().joint_names, stamps[kept],
                        (2e-5 * np.round(q / 2e-5))[kept], v[kept], effort[kept])


def gains(samples: JointSamples) -> CalibrationResult:
    return excitation.estimate_gains(arm('robocal').robot(), samples, VALUES)


def std_of(result: CalibrationResult, name: str) -> float:
    return result.parameter(name).std or 0.0


def check_gains(result: CalibrationResult) -> None:
    found = effort_scales(result)
    assert found
    for name, value in found.items():
        true = SCALE[result.robot.joint_names.index(name)]
        assert abs(value - true) < WIDE * std_of(result, f'{name}.effort_scale'), name


@pytest.mark.parametrize('jitter', [1e-4, 2e-3])
def test_an_approach_and_a_return_are_left_out(jitter: float) -> None:
    result = gains(recorded(jitter=jitter, scale=SCALE))
    check_gains(result)
    sentence = next(c.reason for c in result.checks if c.name == 'recording of the motion')
    assert 'repeats 3 times every 8.00 s' in sentence
    assert 's before and' in sentence
    assert max(std_of(result, f'{name}.effort_scale') for name in effort_scales(result)) < 0.05


@pytest.mark.parametrize('jitter', [1e-4, 2e-3])
def test_late_stamps_of_a_motion_without_repeats_bias_nothing(jitter: float) -> None:
    check_gains(gains(recorded(repeats=1, jitter=jitter, scale=SCALE)))


def noisy(std: float) -> JointSamples:
    samples = recorded(repeats=1, scale=SCALE)
    noise = std * np.random.default_rng(3).normal(size=samples.position.shape)
    return replace(samples, position=samples.position + noise)


def test_noise_of_accelerations_is_in_the_intervals() -> None:
    check_gains(gains(noisy(0.02)))


def test_accelerations_that_are_noise_are_not_evaluated() -> None:
    result = gains(noisy(0.1))
    assert result.verdict is not Verdict.PASS
    check = next(c for c in result.checks if c.name == 'recording of the motion')
    assert not check.evaluated
    assert 'repeat the motion (excitation_repeats)' in check.reason


@pytest.mark.parametrize('repeats', [1, 3])
def test_gaps_are_named_and_cut_out(repeats: int) -> None:
    robot = arm('robocal').robot()
    exact = urdf_model(robot, 0.001, np.full((robot.n, robot.n), 1e-8))
    result = excitation.estimate(robot, recorded(repeats=repeats, gaps=5), VALUES, arm=exact)
    (error,) = result.values(('mass',)) - TOOL.mass
    assert abs(error) < WIDE * std_of(result, 'mass')
    assert std_of(result, 'mass') < 0.02 * TOOL.mass
    assert any('5 gaps of the joint states' in check.reason for check in result.checks)


def test_friction_that_rises_below_other_speeds_is_in_the_intervals() -> None:
    for seed in range(3):
        check_gains(gains(recorded(seed=seed, rise=0.7, scale=SCALE)))
