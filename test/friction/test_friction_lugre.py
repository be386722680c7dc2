# SPDX-License-Identifier: Apache-2.0
"""Bristle stiffness and damping from small reversals, against a LuGre model integrated apart."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from support.arms import arm
from support.forward import Reference
from support.friction_cell import SPEEDS, WRIST, Truth, both_ways, record

from robocal_ros.errors import ConvergenceError
from robocal_ros.friction.estimator import assemble, estimate, fit_joints
from robocal_ros.friction.fit import Presliding, estimate_presliding, find_reversals
from robocal_ros.friction.parameters import DYNAMIC, FrictionParameters
from robocal_ros.friction.plan import plan_reversals
from robocal_ros.messages.samples import JointSamples, Recording
from robocal_ros.results.result import State, Verdict
from robocal_ros.results.store import from_yaml, to_yaml
from robocal_ros.robot.collision import CollisionChecker
from robocal_ros.robot.friction_law import SteadyFriction, friction_by_joint

JOINT, NAME = 5, 'joint_6'
RATE = 500.0
POSTURE = np.array([0.2, 0.4, -0.6, 0.3, 0.5, 0.1])
STIFFNESS, DAMPING = 3000.0, 15.0
WANTED = FrictionParameters(measure_joints=[NAME], model=DYNAMIC)


def law_of(truth: Truth) -> SteadyFriction:
    return SteadyFriction(np.array(truth.coulomb), np.array(truth.static),
                          np.array(truth.stribeck_velocity), np.array(truth.viscous))


@cache
def bristles(truth: Truth, count: int, size: float, frequency: float, stiffness: float,
             damping: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Integrate LuGre's equation along a sine; excursion, speed, acceleration and friction."""
    time = np.arange(count) / RATE
    pulsation = 2.0 * np.pi * frequency

    def level(v: float) -> float:
        side = 0 if v >= 0.0 else 1
        return truth.coulomb[side] + (truth.static[side] - truth.coulomb[side]) * np.exp(
            -(v / truth.stribeck_velocity[side]) ** 2)

    def speed(t: float) -> float:
        return size * pulsation * np.cos(pulsation * t)

    def rate(t: float, z: np.ndarray) -> np.ndarray:
        v = speed(t)
        return v - stiffness * abs(v) * z / level(v)

    bent = solve_ivp(rate, (0.0, time[-1]), [0.0], t_eval=time, max_step=2e-3, rtol=1e-8,
                     atol=1e-12).y[0]
    v = speed(time)
    change = np.array([rate(t, z) for t, z in zip(time, bent, strict=True)])
    viscous = np.where(v >= 0.0, truth.viscous[0], truth.viscous[1]) * v
    return (size * np.sin(pulsation * time), v, -size * pulsation**2 * np.sin(pulsation * time),
            stiffness * bent + damping * change + viscous)


def reversals(*, stiffness: float = STIFFNESS, damping: float = DAMPING, size: float = 4e-3,
              step: float = 2e-5, noise: float = 0.1, seed: int = 0, begin: float = 0.0,
              seconds: float = 8.0, offset: float = 0.0) -> JointSamples:
    time = np.arange(int(seconds * RATE)) / RATE
    x, v, a, friction = bristles(WRIST, len(time), size, 1.0, stiffness, damping)
    position = np.tile(POSTURE, (len(time), 1))
    velocity, acceleration = np.zeros_like(position), np.zeros_like(position)
    position[:, JOINT] += x
    velocity[:, JOINT], acceleration[:, JOINT] = v, a
    torque = Reference(arm('robocal').urdf, 'tool0', (0.0, 0.0, -9.81)).torque(
        position, velocity, acceleration)
    torque[:, JOINT] += friction + offset
    torque += noise * np.random.default_rng(seed).normal(size=torque.shape)
    if step:
        position = np.round(position / step) * step
    robot = arm('robocal').robot()
    return JointSamples(robot.joint_names, begin + time, position, velocity, torque)


@pytest.fixture(scope='module')
def usual() -> JointSamples:
    return reversals()


def found_in(samples: JointSamples, truth: Truth = WRIST) -> Presliding:
    found = estimate_presliding(arm('robocal').robot(), samples, JOINT, law_of(truth))
    assert found is not None
    return found


def test_the_simulated_state_is_that_of_the_differential_equation():
    x, v, _, friction = bristles(WRIST, 1000, 2e-3, 1.0, STIFFNESS, DAMPING)
    law = replace(law_of(WRIST), bristle_stiffness=STIFFNESS, bristle_damping=DAMPING)
    found = law.torque(v, sliding=law.sliding(x, v, np.zeros_like(v), 0.0)[0])
    assert np.abs(found - friction).max() < 0.01 * np.abs(friction).max()


def test_without_noise_the_bristles_come_out():
    found = found_in(reversals(step=0.0, noise=0.0))
    assert found.value[0] == pytest.approx(STIFFNESS, rel=0.01)
    assert found.value[1] == pytest.approx(DAMPING, rel=0.1)
    assert np.std(found.torque - found.fitted) < 0.01 * np.std(found.torque)
    # However little noise there is, 0.5 ms of uncertainty of the stamps remains.
    assert np.sqrt(found.covariance[1, 1]) > 0.99 * found.value[0] * 5e-4


@pytest.mark.parametrize('seed', range(2))
def test_in_the_reference_cell_they_lie_within_their_intervals(seed):
    found = found_in(reversals(seed=seed, offset=0.05))
    std = np.sqrt(np.diag(found.covariance))
    assert found.unidentified == ('', '')
    assert abs(found.value[0] - STIFFNESS) < 3.0 * std[0]
    assert abs(found.value[1] - DAMPING) < 3.0 * std[1]
    assert std[0] < 0.1 * STIFFNESS
    assert std[1] < 0.5 * DAMPING


def test_a_level_that_is_a_little_off_does_not_matter(usual):
    """The law at standstill is extrapolated from runs; its error is estimated along."""
    lower = replace(WRIST, static=tuple(0.93 * x for x in WRIST.static))
    assert found_in(usual, lower).value[0] == pytest.approx(STIFFNESS, rel=0.06)


def test_bristles_stiffer_than_the_encoder_tells_are_not_identified():
    stiffness, damping = found_in(reversals(stiffness=3e5)).unidentified
    assert 'less than 3 encoder steps of 20.0 µrad' in stiffness
    assert damping


def test_damping_that_noise_hides_is_not_identified():
    stiffness, damping = found_in(reversals(damping=0.3)).unidentified
    assert stiffness == ''
    assert 'its standard deviation is' in damping
    assert '(limit 50 %)' in damping


def test_a_torque_that_is_no_friction_is_not_explained(usual):
    effort = usual.effort.copy()
    effort[:, JOINT] += 1.5 * np.sin(usual.time * 17.0)
    assert all('of the torque at the reversals unexplained' in reason
               for reason in found_in(replace(usual, effort=effort)).unidentified)


# ------------------------------------------------------------------- finding reversals


def test_reversals_are_found_where_one_joint_turns_over_and_over(usual):
    start, stop = find_reversals(usual, JOINT)
    # From the first turn to the last: 8 periods hold 16.
    assert usual.time[start] == pytest.approx(0.25, abs=0.03)
    assert usual.time[stop - 1] == pytest.approx(7.75, abs=0.03)
    assert find_reversals(usual, 0) is None


@pytest.mark.parametrize('change', ['wide', 'slow', 'few', 'with another', 'hardly'])
def test_other_motions_are_no_reversals(usual, change):
    position = usual.position.copy()
    swing = position[:, JOINT] - POSTURE[JOINT]
    rows = (0, 1000 if change == 'few' else len(position))
    if change == 'wide':
        position[:, JOINT] += 9.0 * swing
    elif change == 'with another':
        position[:, 1] += swing
    elif change == 'hardly':
        position[:, JOINT] -= 0.98 * swing
    time = 30.0 * usual.time if change == 'slow' else usual.time
    changed = replace(usual, time=time, position=position)
    assert find_reversals(changed.rows(*rows), JOINT) is None


def test_constant_speeds_to_and_fro_are_no_reversals():
    made = record({JOINT: WRIST}, both_ways(JOINT, SPEEDS))
    assert find_reversals(made.samples(), JOINT) is None


# ------------------------------------------------------------------------- in the result


@pytest.fixture(scope='module')
def both(usual) -> JointSamples:
    """Runs at constant speeds, and reversals after them."""
    runs = record({JOINT: WRIST}, both_ways(JOINT, SPEEDS), posture=POSTURE).samples()
    turned = reversals(begin=runs.time[-1] + 2.0)
    return JointSamples(runs.joint_names, *(
        np.concatenate((getattr(runs, name), getattr(turned, name)))
        for name in ('time', 'position', 'velocity', 'effort')))


def test_the_result_holds_them_beside_the_steady_law(both):
    robot = arm('robocal').robot()
    recording = Recording(both)
    (item,) = fit_joints(robot, recording, WANTED)
    result = assemble(robot, recording, WANTED, [item])
    assert result.verdict is Verdict.PASS
    assert result.method == DYNAMIC
    stiffness = result.parameter(f'{NAME}.bristle_stiffness')
    assert stiffness.unit == 'N·m/rad'
    assert stiffness.value == pytest.approx(STIFFNESS, rel=0.1)
    assert result.parameter(f'{NAME}.bristle_damping').state is State.IDENTIFIED
    assert f'{NAME}.bristle_stiffness' in result.covariance_names
    assert result.series[-1].title == f'Reversals of {NAME}'
    assert item.law().torque(0.1) == pytest.approx(WRIST.torque(np.array([0.1]))[0], rel=0.03)
    # Whoever reads the steady law reads it as before.
    assert set(friction_by_joint(result)) == {NAME}
    assert from_yaml(to_yaml(result)).parameters == result.parameters


def test_without_reversals_they_are_not_identified_and_the_law_stands():
    robot = arm('robocal').robot()
    runs = record({JOINT: WRIST}, both_ways(JOINT, SPEEDS)).samples()
    result = estimate(robot, Recording(runs), WANTED)
    assert result.verdict is Verdict.PASS
    parameter = result.parameter(f'{NAME}.bristle_stiffness')
    assert (parameter.state, parameter.note) == (
        State.NOT_IDENTIFIED, 'no slow small reversals are recorded')


# ------------------------------------------------------------------------------ planning


def test_planned_reversals_begin_and_end_at_rest_and_turn_one_joint(robocal):
    motion = plan_reversals(robocal, CollisionChecker(robocal.copy()), POSTURE, JOINT, 4e-3)
    assert motion.duration == pytest.approx(8.0)
    time = motion.dense(0.002)
    position, velocity, acceleration = motion.sample(time)
    assert np.ptp(position[:, JOINT]) == pytest.approx(2 * 4e-3, rel=0.01)
    assert np.ptp(np.delete(position, JOINT, axis=1), axis=0).max() < 1e-12
    np.testing.assert_allclose(velocity[[0, -1]], 0.0, atol=1e-12)
    assert np.abs(acceleration).max() < 0.3
    made = JointSamples(robocal.joint_names, time, position, velocity, np.zeros_like(position))
    start, stop = find_reversals(made, JOINT)
    assert time[stop - 1] - time[start] > 6.0


def test_without_room_there_is_a_sentence(robocal):
    at_limit = POSTURE.copy()
    at_limit[JOINT] = robocal.upper[JOINT] - 0.05
    with pytest.raises(ConvergenceError, match="'joint_6' lacks a free range of"):
        plan_reversals(robocal, CollisionChecker(robocal.copy()), at_limit, JOINT, 4e-3)
