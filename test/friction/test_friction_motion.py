# SPDX-License-Identifier: Apache-2.0
"""Friction from any motion: signs and widths of what is identified."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from support.arms import arm
from support.forward import Reference

from robocal_ros.errors import ConvergenceError
from robocal_ros.friction.estimator import estimate
from robocal_ros.friction.parameters import FrictionParameters
from robocal_ros.messages.samples import JointSamples, Recording
from robocal_ros.results.result import CalibrationResult, State, Verdict
from robocal_ros.robot.friction_law import friction_by_joint

VALUES = FrictionParameters(method='motion', model='coulomb_viscous')
COULOMB = 1.5
LAST = 'joint_6'


def found(
    viscous: float, noise: float = 0.05, seed: int = 0, tilt: float = 0.0,
    tilt_std: float = 0.005, delay: float = 0.0, gain: float = 1.0,
) -> CalibrationResult:
    """Estimate friction of an arm whose last joint has this viscous friction, others 1."""
    robot = arm('robocal').robot()
    reference = Reference(arm('robocal').urdf, arm('robocal').tool, (
        9.81 * np.sin(tilt), 0.0, -9.81 * np.cos(tilt)))
    time = np.arange(0.0, 24.0, 0.01)
    generator = np.random.default_rng(5)
    position, velocity, acceleration = np.zeros((3, len(time), robot.n))
    for joint in range(robot.n):
        for cycles in (1, 2, 3, 5, 7):
            pulsation = 2.0 * np.pi * cycles / 8.0
            phase = pulsation * time + generator.uniform(0.0, 2.0 * np.pi)
            size = 0.9 * generator.uniform(0.3, 1.0) / pulsation
            position[:, joint] += size * np.sin(phase)
            velocity[:, joint] += size * pulsation * np.cos(phase)
            acceleration[:, joint] -= size * pulsation**2 * np.sin(phase)
    drag = np.append(np.ones(robot.n - 1), viscous)
    effort = (reference.torque(position, velocity, acceleration)
              + COULOMB * np.tanh(velocity / 0.02) + drag * velocity
              + noise * np.random.default_rng(seed).normal(size=position.shape))
    late = int(delay / 0.01)
    effort = gain * np.vstack((effort[:1].repeat(late, axis=0), effort[:len(effort) - late]))
    return estimate(robot, Recording(JointSamples(
        robot.joint_names, time, position, velocity, effort)),
        replace(VALUES, tilt_std=tilt_std))


def test_friction_that_pushes_fails_by_name():
    result = found(-0.8)
    assert result.verdict is Verdict.FAIL
    [check] = [check for check in result.checks if not check.passed]
    assert check.name == f'{LAST}: fit'
    assert 'viscous friction forward is negative (-0.8' in check.reason
    assert LAST not in friction_by_joint(result)
    assert friction_by_joint(result)['joint_5'].viscous == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize('seed', range(2))
def test_none_is_not_identified_as_a_negative_one(seed):
    result = found(0.0, noise=0.5, seed=seed)
    assert result.verdict is Verdict.PASS
    assert friction_by_joint(result)[LAST].coulomb == pytest.approx(COULOMB, abs=0.1)
    for direction in ('forward', 'backward'):
        p = result.parameter(f'{LAST}.viscous_{direction}')
        assert p.state is State.NOT_IDENTIFIED or p.value > 0.0


def test_an_interval_as_wide_as_friction_fails():
    result = found(1.0, noise=30.0)
    wide = [check for check in result.checks if check.name.endswith(': width')]
    assert wide
    assert not all(check.passed for check in wide)
    assert 'max_friction_interval' in wide[0].reason
    assert re.search(r'Coulomb friction by itself is not known \((forward|backward) \S+ ± '
                     r'\S+ N·m.*\): use the whole law', ' '.join(c.reason for c in wide))
    (narrow,) = [check for check in found(1.0).checks if check.name == f'{LAST}: width']
    assert 'by itself' not in narrow.reason


def test_the_tilt_of_the_base_is_not_friction():
    """Tilted by 1°, which no links explain at a vertical axis, and no friction."""
    with pytest.raises(ConvergenceError, match='No physically consistent arm'):
        found(1.0, tilt=0.0175, tilt_std=0.0)
    levels = [p.value for p in found(1.0, tilt=0.0175).parameters
              if p.name.startswith('joint_1.coulomb')]
    assert levels == pytest.approx([COULOMB] * 2, abs=0.05)


def test_an_arm_that_is_refused_for_its_gains_is_told_them():
    """Tilted by 0.6°, which the gain of a joint would explain if the base were level."""
    with pytest.raises(ConvergenceError, match=r'No physically consistent arm .*: the drive gains '
                       r'would be 0\.\d+ to 1 \(plausible'):
        found(1.0, tilt=0.01, tilt_std=0.0)


def test_late_efforts_of_weak_drives_are_not_friction():
    """Late by 20 ms, inertia looks like viscous friction, and 8 % weak, friction is less."""
    result = found(1.0, delay=0.02, gain=0.92)
    assert result.verdict is Verdict.PASS
    for joint, law in friction_by_joint(result).items():
        v = np.linspace(*law.speeds, 20)
        v = np.concatenate((v, -v))
        left = law.torque(v) - 0.92 * (COULOMB * np.sign(v) + v)
        assert np.abs(left).max() < 0.05, joint
        assert (np.abs(left) < 3.3 * law.deviation(v)).all(), joint
