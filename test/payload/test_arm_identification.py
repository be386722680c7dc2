# SPDX-License-Identifier: Apache-2.0
"""Identification of the arm itself, on arms that differ from their URDF."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
from support.arms import arm
from support.excitation_cell import MIDDLE, exciting

from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.estimation import Blocks
from robocal_ros.estimators import Estimator
from robocal_ros.messages.samples import JointSamples, Recording
from robocal_ros.payload.arm_identification import estimate
from robocal_ros.payload.arm_regression import ArmMotion, KnownFriction, Law, Prior, Unknowns
from robocal_ros.payload.estimator import (
    ARM_IDENTIFICATION,
    GAINS as GAINS_CALIBRATION,
    PAYLOAD,
    arm_summary,
    expected_result,
)
from robocal_ros.payload.excitation import estimate as estimate_payload
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.regression import BAND, MIN_MOTION
from robocal_ros.results.provenance import Inputs, choose, stale_inputs
from robocal_ros.results.result import CalibrationResult, Input, State, Verdict
from robocal_ros.results.store import ResultStore, from_yaml, to_yaml
from robocal_ros.robot.arm_model import (
    GRAVITY,
    NewtonEuler,
    expected_rotors,
    gravity_changes,
    identified_arm,
    identified_model,
    link_covariance,
    link_parameters,
    on_leaning_base,
    pseudo_inertia,
    with_links,
)
from robocal_ros.robot.friction_law import SteadyFriction
from robocal_ros.robot.model import RigidBodyInertia, Robot
from robocal_ros.robot.setup import REVERSED, effort_units, torque_factor
from robocal_ros.robot.trajectories import Trajectory
from robocal_ros.robot.urdf import with_links as urdf_with_links

RATE = 125.0
LOAD = RigidBodyInertia(2.3, np.array([0.01, -0.02, 0.08]), 0.005 * np.eye(3))
GAINS = np.array([1.04, 0.93, 1.08, 0.97, 1.02, 0.95])
VALUES = PayloadParameters()
ROBOT = arm('robocal').robot()
ONES = np.ones(ROBOT.n)
UNKNOWN = {'scale': ONES, 'scale_covariance': 0.01 * np.eye(ROBOT.n)}


def real_arm(robot: Robot) -> Robot:
    """Return an arm whose masses are 3 % off the URDF and whose rotors count."""
    generator = np.random.default_rng(3)
    links = link_parameters(robot) * (1.0 + 0.03 * generator.normal(size=(robot.n, 1)))
    rotors = 0.1 * np.diag(pin.crba(robot.model, robot.data, np.zeros(robot.n)))
    return with_links(robot, links, rotors)


def record(robot: Robot, seed: int, gains: np.ndarray, load: float = 0.04, sag: float = 0.0,
           noise: float = 0.1, **motion_of: float) -> JointSamples:
    """Return joint states of an exciting motion, three periods of it, at encoder steps.

    The links deflect by ``sag`` at the effort limits [rad].
    """
    motion = exciting('robocal', seed=seed, **motion_of)
    time = np.arange(0.0, 24.0, 1.0 / RATE)
    q, v, a = motion.at(time)
    torque = np.array([robot.inverse_dynamics(*item) for item in zip(q, v, a, strict=True)])
    direction = np.tanh(v / 0.02)
    friction = 1.0 + 3.0 * direction + 2.0 * v + load * np.abs(torque) * direction
    effort = gains * (torque + friction) + np.random.default_rng(seed).normal(
        scale=noise, size=torque.shape)
    bent = sag / robot.effort_limit * torque
    return JointSamples(robot.joint_names, time, np.round((q + bent) / 1e-4) * 1e-4,
                        v + np.gradient(bent, 1.0 / RATE, axis=0), effort)


@cache
def run(seed: int = 0, *, loaded: bool = False, scaled: bool = False,
        load_std: float = 0.0) -> CalibrationResult:
    """Return an identified arm, without load, or with one after that."""
    gains = GAINS if scaled else ONES
    true = real_arm(ROBOT)
    if not loaded:
        return estimate(ROBOT, record(true, seed, gains), VALUES, **UNKNOWN)
    values = replace(VALUES, arm_load=LOAD.mass, arm_load_std=load_std)
    return estimate(ROBOT, record(true.with_payload(LOAD), seed + 1, gains), values,
                    before=run(seed, scaled=scaled), **UNKNOWN)


def test_a_base_far_out_of_level_belongs_to_the_identified_arm() -> None:
    """Four degrees, where 0.3 are expected: two planes take them for a turned centre of mass."""
    true = on_leaning_base(real_arm(ROBOT), np.radians([4.0, -1.0]))
    result = from_yaml(to_yaml(estimate(ROBOT, record(true, 1, ONES), VALUES, **UNKNOWN)))
    for name, value in zip(GRAVITY, true.gravity, strict=True):
        found = result.parameter(name)
        assert abs(found.value - value) < 3.3 * found.std < 0.1
    known = identified_model(ROBOT, result).robot
    assert np.linalg.norm(known.gravity - true.gravity) < 0.05
    assert np.linalg.norm(known.gravity) == pytest.approx(np.linalg.norm(ROBOT.gravity))
    assert 'The base leans by 4.1°' in arm_summary(result)
    # With another stated gravity, the base is another one.
    upright = on_leaning_base(ROBOT, np.radians([4.1, 0.0]))
    np.testing.assert_array_equal(identified_model(upright, result).robot.gravity, upright.gravity)
    # A level one is left as it is stated.
    level = identified_model(ROBOT, run())
    np.testing.assert_array_equal(level.robot.gravity, ROBOT.gravity)
    assert not {*GRAVITY} & {parameter.name for parameter in run().parameters}


def test_an_effort_of_the_wrong_sign_is_named_where_weight_does_not_tell() -> None:
    last = ROBOT.joint_names[-1]
    result = estimate(ROBOT, record(real_arm(ROBOT), 0, np.append(ONES[1:], -1.0)), VALUES,
                      **UNKNOWN)
    assert result.verdict is Verdict.FAIL
    assert result.reasons == (f'Friction would drive {last} instead of braking: the sign of the '
                              f'effort is wrong. {REVERSED}',)
    assert next(check for check in run().checks if check.name == 'sign of efforts').passed


@pytest.mark.parametrize(('shift', 'inertia', 'seed'), [(0.08, 0.01, 1), (0.0, 0.02, 0)])
def test_a_last_link_that_differs_is_no_tool_that_was_left_on(
    shift: float, inertia: float, seed: int
) -> None:
    links = link_parameters(ROBOT).copy()
    links[-1, 1] += shift * links[-1, 0]
    links[-1, [4, 6, 9]] += inertia
    true = with_links(ROBOT, links, real_arm(ROBOT).model.armature)
    result = estimate(ROBOT, record(true, seed, ONES), VALUES, **UNKNOWN)
    (check,) = (check for check in result.checks if check.name == 'no load')
    assert check.passed, check.reason


@pytest.mark.parametrize('size', [0.5, 0.06])
def test_a_motion_is_judged_by_what_it_tells_not_by_the_urdf(size):
    """The URDF is exact, so no motion improves it; only a small one is to blame."""
    found = estimate(ROBOT, record(ROBOT, 3, ONES, size=size, noise=8.0), VALUES, **UNKNOWN)
    (told,) = (check for check in found.checks if check.name == 'informative motion')
    assert told.passed == (size == 0.5)
    assert 'A longer, faster motion' in told.reason


def test_a_motion_too_slow_for_friction_is_refused():
    slow = record(ROBOT, 0, ONES, size=0.13, base=2.0 * np.pi / 24.0)
    with pytest.raises(DataError, match='joint_1.* never turned faster than 0.12 rad/s'):
        estimate(ROBOT, slow, VALUES, **UNKNOWN)


def law(dry: float = 1.0, viscous: float = 1.0) -> SteadyFriction:
    """Return the friction of ``record`` without load, known to 2 % of each part, and scaled."""
    covariance = np.zeros((2, 6, 6))
    covariance[:, 0, 0], covariance[:, 3, 3] = (0.02 * 3.0)**2, (0.02 * 2.0)**2
    level, slope = np.full(2, 3.0 * dry), np.full(2, 2.0 * viscous)
    return SteadyFriction(level, level, np.ones(2), slope, covariance=covariance,
                          speeds=np.array([0.01, 1.5]))


def with_friction(known: SteadyFriction | None, **motion_of: float) -> CalibrationResult:
    """Identify the arm from a motion without load friction, with friction known or not."""
    return estimate(ROBOT, record(real_arm(ROBOT), 5, ONES, load=0.0, **motion_of), VALUES,
                    friction=None if known is None else dict.fromkeys(ROBOT.joint_names, known),
                    **UNKNOWN)


@pytest.mark.parametrize('factors', [(1.0, 1.0), (1.3, 1.1)])
def test_changes_of_known_friction_are_found_and_stated(factors: tuple[float, float]) -> None:
    result, known = with_friction(law(*factors), size=0.5), law(*factors)
    speed = np.geomspace(0.12, 1.5, 6)
    change = law().torque(speed).mean() / known.torque(speed).mean() - 1.0
    for joint in ROBOT.joint_names:
        found = result.parameter(f'{joint}.friction_change')
        assert found.state is State.IDENTIFIED
        assert abs(found.value - change) < 3.0 * found.std < 0.06
    assert ('Friction has changed' in arm_summary(result)) == (factors != (1.0, 1.0))


def test_known_friction_sharpens_a_motion_that_tells_little_of_it() -> None:
    alone, known = (with_friction(friction, size=0.1, noise=2.0) for friction in (None, law()))
    for joint in ('joint_1', 'joint_2'):
        for name, share in (('viscous', 0.5), ('rotor_inertia', 0.95)):
            before, after = (item.parameter(f'{joint}.{name}') for item in (alone, known))
            assert after.std < share * before.std
        assert abs(after.value - before.value) < 3.0 * before.std
        assert abs(known.parameter(f'{joint}.viscous').value - 2.0) < 3.0 * (
            known.parameter(f'{joint}.viscous').std)


def test_a_law_without_a_range_of_speeds_is_no_prior() -> None:
    unknown = replace(law(), speeds=np.array([0.0, np.inf]))
    slow = replace(law(), speeds=np.array([0.01, 0.1]))
    assert KnownFriction.of(unknown) is None
    assert KnownFriction.of(slow) is None


def scales(result: CalibrationResult) -> np.ndarray:
    """Return the identified drive gains, shape (n,)."""
    return result.values([f'{joint}.effort_scale' for joint in result.robot.joint_names])


def test_held_out_torque_is_explained() -> None:
    result = run()
    assert result.verdict is Verdict.PASS, result.reasons
    # Block means of white noise of 0.1 N·m, and what the transition of friction, which is chosen
    # from a few, leaves of 3 N·m.
    assert max(fit.after for fit in result.validation) < 0.3


def test_a_pause_after_the_motion_is_not_held_against_the_arm() -> None:
    """Friction holds some of the weight at rest, and the model of a moving arm says nothing."""
    arm_ = real_arm(ROBOT)
    # One period of 24 s: a motion that repeats would be found and the pause cut off.
    moving = record(arm_, 0, ONES, base=2.0 * np.pi / 24.0, size=1.0)
    last, held = moving.position[-1], np.linspace(-3.0, 3.0, ROBOT.n)
    count = len(moving.time) // 2
    pause = JointSamples(
        ROBOT.joint_names, moving.time[-1] + np.arange(1, count + 1) / RATE, np.tile(last, (
            count, 1)), np.zeros((count, ROBOT.n)), arm_.gravity_torque(last) + 1.0 + held
        + np.random.default_rng(0).normal(scale=0.1, size=(count, ROBOT.n)))
    result = estimate(ROBOT, JointSamples(ROBOT.joint_names, *(np.concatenate(
        (getattr(moving, name), getattr(pause, name)))
        for name in ('time', 'position', 'velocity', 'effort'))), VALUES, **UNKNOWN)
    assert result.verdict is Verdict.PASS, result.reasons


def test_links_are_physically_consistent_and_base_parameters_within_their_intervals() -> None:
    true = real_arm(ROBOT)
    result = run()
    model = identified_model(ROBOT, result)
    links = link_parameters(model.robot)
    assert all(np.linalg.eigvalsh(matrix)[0] > 0.0 for matrix in pseudo_inertia(links))
    generator = np.random.default_rng(1)
    motion = list(zip(*generator.uniform(-1.0, 1.0, (3, 40, ROBOT.n)), strict=True))
    modelled, expected = (
        np.array([item.inverse_dynamics(*instant) for instant in motion])
        for item in (model.robot, true))
    # Efforts of the true arm are divided by the identified scales before they are used.
    off = modelled - expected / scales(result)
    q, v, a = (np.array(item) for item in zip(*motion, strict=True))
    std = np.sqrt((model.uncertain_torques(q, v, a, modelled)**2).sum(axis=2))
    assert np.sqrt(np.mean((off / std)**2)) < 1.6
    assert np.mean(np.abs(off) < 3.3 * std) > 0.98


def test_changes_with_the_gains_and_others_make_up_the_covariance() -> None:
    arm = identified_model(ROBOT, run(loaded=True))
    along, others = arm.factor()
    known = np.diag(arm.covariance) > 0.0
    assert known.sum() == 12 * ROBOT.n
    both = np.hstack((along, others))[known] / np.sqrt(np.diag(arm.covariance))[known, None]
    assert np.diag(both @ both.T) == pytest.approx(1.0, abs=1e-6)
    gains = slice(11 * ROBOT.n, 12 * ROBOT.n)
    assert not others[gains].any()
    assert along[gains].any(axis=1).all()


@pytest.mark.parametrize('calibrated', [False, True])
def test_what_driven_gears_lose_less_is_doubt_of_gains_unless_they_are_calibrated(
    calibrated: bool,
) -> None:
    """Their friction differs by 60 % of the part with the load, 0.08: 4.8 % of the torque."""
    effective = 1.0 + 0.6 * 0.08
    result = estimate(
        ROBOT, record(real_arm(ROBOT), 0, effective * ONES, load=0.08), VALUES, scale=ONES,
        scale_covariance=0.002**2 * np.eye(ROBOT.n), calibrated=calibrated)
    for joint in ROBOT.joint_names[1:3]:
        scale = result.parameter(f'{joint}.effort_scale')
        assert (abs(scale.value - effective) < 3.3 * scale.std) != calibrated


def test_a_weighed_load_identifies_the_drive_gains() -> None:
    result = run(loaded=True, scaled=True)
    for joint, gain in zip(result.robot.joint_names[1:4], GAINS[1:4], strict=True):
        scale = result.parameter(f'{joint}.effort_scale')
        assert scale.std is not None
        assert scale.std < 0.03
        assert scale.value == pytest.approx(gain, abs=3.3 * scale.std)


def test_a_second_motion_does_not_average_errors_that_both_have() -> None:
    """Efforts identify products of rotors and gains, here no better than without the load."""
    def spread(result: CalibrationResult, joint: str) -> float:
        names = [f'{joint}.rotor_inertia', f'{joint}.effort_scale']
        slopes = result.values(names)[::-1]
        return float(np.sqrt(slopes @ result.covariance_of(names) @ slopes))

    for joint in ROBOT.joint_names:
        assert spread(run(loaded=True, scaled=True), joint) > 0.95 * spread(
            run(scaled=True), joint)


def test_saturation_of_motors_is_doubt_of_gains() -> None:
    true = real_arm(ROBOT)
    loaded = record(true.with_payload(LOAD), 1, GAINS)
    exact, doubted = (estimate(
        ROBOT, loaded, replace(VALUES, arm_load=LOAD.mass, saturation_std=std),
        before=run(scaled=True), **UNKNOWN) for std in (0.0, 0.2))
    for joint in ROBOT.joint_names[:3]:
        known, found = (result.parameter(f'{joint}.effort_scale') for result in (exact, doubted))
        assert found.value == known.value
        assert found.std > 1.2 * known.std


@pytest.mark.parametrize('factor', [0.8, 1.25])
def test_a_load_corrects_gains_that_are_all_far_off(factor: float) -> None:
    """A motion without load tells products of gains and links, and the first guess of either."""
    true, recorded = real_arm(ROBOT), partial(record, gains=factor * ONES, load=0.0)
    before = estimate(ROBOT, recorded(true, 0), VALUES, **UNKNOWN)
    result = estimate(ROBOT, recorded(true.with_payload(LOAD), 1),
                      replace(VALUES, arm_load=LOAD.mass), before=before, **UNKNOWN)
    for found in (result.parameter(f'{joint}.effort_scale') for joint in ROBOT.joint_names[:3]):
        assert abs(found.value / factor - 1.0) < 0.01
        assert abs(found.value - factor) < 3.3 * found.std


def test_a_load_that_is_hardly_weighed_leaves_the_drive_gains_uncertain() -> None:
    exact = run(loaded=True, scaled=True)
    rough = run(loaded=True, scaled=True, load_std=0.1 * LOAD.mass)
    for joint in exact.robot.joint_names[1:4]:
        stds = [result.parameter(f'{joint}.effort_scale').std for result in (exact, rough)]
        assert stds[0] is not None
        assert stds[1] is not None
        assert stds[1] > 1.5 * stds[0]


def test_a_load_far_from_the_flange_deflects_the_joints_by_its_own_torque() -> None:
    # Of the gains, little is unknown; the deflection moves the load by several millimetres.
    known = {'scale': ONES, 'scale_covariance': 0.002**2 * np.eye(ROBOT.n)}
    load = RigidBodyInertia(3.0, np.array([0.0, 0.05, 0.25]), 0.005 * np.eye(3))
    recorded = partial(record, gains=ONES, load=0.0, sag=0.006)
    before = estimate(ROBOT, recorded(ROBOT, 0), VALUES, **known)
    result = estimate(ROBOT, recorded(ROBOT.with_payload(load), 1),
                      replace(VALUES, arm_load=load.mass), before=before, **known)
    ratios = [(scale.value - 1.0) / scale.std for scale in (
        result.parameter(f'{joint}.effort_scale') for joint in ROBOT.joint_names)]
    assert np.abs(ratios).max() < 3.3


def test_an_arm_of_before_the_gains_is_used_once_it_is_identified_again(tmp_path: Path) -> None:
    """Its bag suffices, although its samples are older than those of the gains."""
    true = real_arm(ROBOT)
    bare = record(true, 0, GAINS)
    later = record(true.with_payload(LOAD), 1, GAINS)
    later = replace(later, time=later.time + 100.0)
    values = replace(VALUES, known_mass=LOAD.mass)
    store = ResultStore(tmp_path, ROBOT.identity)

    def stored(capability: Estimator, samples: JointSamples) -> CalibrationResult:
        inputs = capability.inputs(ROBOT, values, store.load)
        scaled = replace(
            samples, effort=samples.effort * torque_factor(ROBOT, values, inputs.gains))
        result = capability.result(ROBOT, Recording(scaled), values, inputs)
        assert result.verdict is Verdict.PASS, result.reasons
        store.save(result)
        return result

    def used() -> CalibrationResult:
        gains = choose(store.load, (), effort_units(values)).gains
        assert gains is not None
        return gains

    first = stored(ARM_IDENTIFICATION, bare)
    gains = stored(GAINS_CALIBRATION, later)
    assert stale_inputs(first, store.load)
    assert used().sha256 == gains.sha256
    assert identified_arm(ROBOT, values, used()) is None
    second = stored(ARM_IDENTIFICATION, bare)
    assert used().sha256 == second.sha256
    assert identified_arm(ROBOT, values, used()) is not None
    assert stale_inputs(second, store.load) == stale_inputs(gains, store.load) == ()


@pytest.mark.parametrize('mass', [0.0, 2.3])
def test_a_stored_payload_counts_as_an_input_of_two_planes_for_its_mass_alone(mass: float) -> None:
    """With a weighed mass it is compared only, and need not be current to be measured again."""
    stored = replace(run(loaded=True), kind='payload', inputs=(Input('arm', 'none', ''),))
    known = {'payload': stored, 'arm': run()}
    inputs = PAYLOAD.inputs(ROBOT, replace(VALUES, method='two_plane', known_mass=mass), known.get)
    assert bool(inputs.stale) == (mass == 0.0)
    assert inputs.beside['payload'] is stored


def test_an_arm_is_used_with_the_constants_that_it_was_identified_with_alone(
    tmp_path: Path
) -> None:
    samples = record(real_arm(ROBOT), 0, ONES)
    currents = replace(samples, effort=samples.effort / 7.0)
    values = replace(VALUES, method='excitation', excitation_source='torque',
                     effort_source='current', torque_constants=[0.07], gear_ratios=[100.0])
    store = ResultStore(tmp_path, ROBOT.identity)
    inputs = ARM_IDENTIFICATION.inputs(ROBOT, values, store.load)
    scaled = replace(currents, effort=currents.effort * torque_factor(ROBOT, values, inputs.gains))
    found = ARM_IDENTIFICATION.result(ROBOT, Recording(scaled), values, inputs)
    store.save(found)
    assert PAYLOAD.inputs(ROBOT, values, store.load).gains is not None
    same = replace(values, torque_constants=[7.0], gear_ratios=[1.0])
    assert PAYLOAD.inputs(ROBOT, same, store.load).gains is not None
    raised = replace(values, torque_constants=[0.07, 0.07, 0.0805, 0.07, 0.07, 0.07])
    for other, told in (
            (raised, "of joint 'joint_3', torque_constants times gear_ratios was 7 and is 8.05"),
            (replace(values, effort_source='torque'),
             "effort_source was 'current' and is 'torque'; of joint 'joint_1'"),
            (replace(values, effort_contains='external'),
             "effort_contains was 'all' and is 'external'.")):
        with pytest.raises(ConfigurationError, match='arm result .unloaded, ') as caught:
            PAYLOAD.inputs(ROBOT, other, store.load)
        assert told in str(caught.value)
        with pytest.raises(ConfigurationError, match='arm result .unloaded, '):
            torque_factor(ROBOT, other, store.load('arm'))
    # Identified anew, it replaces the other; with a load, it would be built on it.
    anew = ARM_IDENTIFICATION.inputs(ROBOT, raised, store.load)
    assert anew.gains is None
    assert found.sha256 in {item.sha256 for item in anew.listed}
    with pytest.raises(ConfigurationError, match='arm result .unloaded, '):
        ARM_IDENTIFICATION.inputs(ROBOT, replace(raised, arm_load=2.0), store.load)


@pytest.mark.parametrize(('mass', 'seed'), [(2.3, 0), (0.5, 1)])
def test_an_arm_with_its_tool_on_does_not_pass_as_unloaded(mass: float, seed: int) -> None:
    tool = RigidBodyInertia(mass, LOAD.com, mass / LOAD.mass * LOAD.inertia)
    samples = record(real_arm(ROBOT).with_payload(tool), seed, ONES)
    result = estimate(ROBOT, samples, VALUES, **UNKNOWN)
    (check,) = (check for check in result.checks if check.name == 'no load')
    assert not check.passed
    # A small tool is hardly less evident than a heavy one: its order follows from the data.
    assert check.value > 20.0
    found = float(check.reason.split('a load of ')[1].split(' ±')[0])
    assert found == pytest.approx(mass, rel=0.2)
    assert 'Take off the tool' in check.reason
    # Nor is a mass identified that may be zero.
    masses = [result.parameter(f'{joint}.mass') for joint in ROBOT.joint_names]
    for joint, p in zip(ROBOT.joint_names, masses, strict=True):
        assert p.interval()[0] > 0.0 or p.state is State.NOT_IDENTIFIED
        # Nor one of which the URDF states more than the data tell.
        stated = VALUES.arm_model_std * link_parameters(ROBOT)[ROBOT.index(joint), 0]
        assert p.std < 2.0 * stated or p.state is State.NOT_IDENTIFIED
    assert (mass == 2.3) or State.NOT_IDENTIFIED in {p.state for p in masses}
    assert identified_model(ROBOT, from_yaml(to_yaml(result))).robot.n == ROBOT.n


def test_a_stored_payload_that_is_mounted_fails_and_one_that_is_not_does_not() -> None:
    # Links that leave the URDF hide the load from the check that knows of none.
    links = link_parameters(ROBOT) * (1.0 + 0.1 * np.random.default_rng(2).normal(size=(6, 1)))
    true = with_links(ROBOT, links, real_arm(ROBOT).model.armature)
    load = estimate_payload(ROBOT, record(ROBOT.with_payload(LOAD), 4, ONES), VALUES)
    assert load.parameter('mass').value == pytest.approx(LOAD.mass, rel=0.1)
    for mounted in (true, true.with_payload(LOAD)):
        result = estimate(ROBOT, record(mounted, 0, ONES), VALUES, stored=load, **UNKNOWN)
        (check,) = (item for item in result.checks if item.name == 'stored payload not mounted')
        assert check.passed == (mounted is true), check.reason
    other = estimate(ROBOT, record(true, 0, ONES), replace(VALUES, tool='other'),
                     stored=load, **UNKNOWN)
    assert not [item for item in other.checks if item.name == 'stored payload not mounted']


def test_a_payload_without_torque_contradicts_a_stored_one_of_the_same_tool(tmp_path) -> None:
    stored = estimate_payload(ROBOT, record(ROBOT.with_payload(LOAD), 4, ONES), VALUES)
    samples = record(ROBOT, 5, ONES)
    values = replace(VALUES, method='excitation', excitation_source='torque')
    for tool, expected in (('', [False]), ('other', [])):
        result = PAYLOAD.estimate(ROBOT, Recording(samples), replace(values, tool=tool),
                                  Inputs(beside={'payload': stored}))
        found = [item for item in result.checks if item.name == 'torque of the payload']
        assert [item.passed for item in found] == expected
        assert all('the arm was identified with it' in item.reason for item in found)
    passed = ResultStore(tmp_path, stored.robot)
    passed.save(replace(stored, checks=(), validation=stored.fit))
    for estimator in (PAYLOAD, ARM_IDENTIFICATION):
        inputs = estimator.inputs(ROBOT, values, passed.load)
        assert 'payload' in inputs.beside
        assert 'payload' not in {item.kind for item in inputs.listed}


def test_a_last_link_that_differs_with_all_others_is_no_load() -> None:
    true = real_arm(ROBOT)
    links = link_parameters(ROBOT) * (1.0 + 0.3 * np.random.default_rng(2).normal(size=(6, 1)))
    result = estimate(
        ROBOT, record(with_links(ROBOT, links, true.model.armature), 0, ONES), VALUES,
        **UNKNOWN)
    assert result.settings['model_std'] > VALUES.arm_model_std
    assert {check.name: check.passed for check in result.checks}['no load']


def test_a_load_needs_an_arm_identified_without() -> None:
    inputs = Inputs(absent={'arm': ' The last one (unloaded, a.mcap) did not pass: too slow.'})
    with pytest.raises(ConfigurationError, match=r'The last one .*: too slow\. Remove'):
        ARM_IDENTIFICATION.estimate(
            ROBOT, Recording(record(ROBOT, 0, ONES)), replace(VALUES, arm_load=2.0),
            inputs)
    with pytest.raises(ConfigurationError, match='identify the arm; then repeat'):
        estimate(ROBOT, record(ROBOT, 0, ONES), replace(VALUES, arm_load=2.0), **UNKNOWN)


def test_payload_by_torque_is_not_evaluated_without_evidence_and_right_with_the_arm() -> None:
    identified = run(loaded=True)
    samples = record(real_arm(ROBOT).with_payload(LOAD), 4, ONES)
    blind = estimate_payload(ROBOT, samples, VALUES)
    assert blind.verdict is not Verdict.PASS
    assert any('Nothing shows' in check.reason for check in blind.checks)
    model = identified_model(ROBOT, identified)
    scaled = replace(samples, effort=samples.effort / scales(identified))
    found = estimate_payload(model.robot, scaled, VALUES, arm=model)
    mass = found.parameter('mass')
    assert mass.std is not None
    assert mass.value == pytest.approx(LOAD.mass, abs=3.3 * mass.std)
    assert mass.std < 0.03 * LOAD.mass


def test_a_preview_expects_what_the_identified_arm_gives() -> None:
    """Of a tool whose centre is where a preview expects it: gains err in proportion to it."""
    load = RigidBodyInertia(LOAD.mass, np.array([0.03, 0.03, 0.1]), LOAD.inertia)
    identified = run(loaded=True)
    values = replace(VALUES, method='excitation', excitation_source='torque')
    inputs = choose({'arm': identified}.get, (), ('arm',))
    samples = record(real_arm(ROBOT).with_payload(load), 4, ONES)
    stated = PAYLOAD.result(ROBOT, Recording(replace(
        samples, effort=samples.effort / scales(identified))), values, inputs)
    planned = Trajectory(samples.time, *exciting('robocal', seed=4).at(samples.time))
    still = np.zeros((125, ROBOT.n))
    rest = Recording(JointSamples(ROBOT.joint_names, samples.time[:125], still, still,
                                  np.random.default_rng(1).normal(scale=0.1, size=still.shape)))
    expected = expected_result(PAYLOAD, ROBOT, values, inputs, planned, rest, load.mass)
    for name in ('mass', 'com_x', 'com_y', 'com_z'):
        ratio = expected.parameter(name).std / stated.parameter(name).std
        assert 1.0 / 1.5 < ratio < 1.5, (name, ratio)
    # By the links of the URDF, from which the identified ones differ, several times as much is
    # left.
    for foreseen, found in zip(expected.fit, stated.fit, strict=True):
        assert foreseen.after < 1.5 * found.after, foreseen.what
    # Blocks at reversals, where friction is not a function of speed, do not count.
    for joint, fit in zip(ROBOT.joint_names, identified.fit, strict=True):
        assert 0.03 < identified.settings['unexplained'][joint] < fit.after
        # The noise of this arm is white: it lasts for about one block.
        assert 0.01 < identified.settings['unexplained_travel'][joint] < 0.15


def test_a_result_survives_its_file_and_corrects_the_urdf() -> None:
    description = arm('robocal')
    robot = description.robot()
    result = run()
    again = from_yaml(to_yaml(result), result.robot, 'test')
    model = identified_model(robot, again).robot
    bodies = {
        joint: RigidBodyInertia(body.mass, np.array(body.lever), np.array(body.inertia))
        for joint, body in zip(robot.joint_names, list(model.model.inertias)[1:], strict=True)}
    corrected = Robot(urdf_with_links(description.urdf, bodies), tool_frame=description.tool)
    q, v = np.array(MIDDLE['robocal']), np.full(robot.n, 0.4)
    rotors = model.model.armature * v
    assert corrected.inverse_dynamics(q, v, v) + rotors == pytest.approx(
        model.inverse_dynamics(q, v, v), abs=1e-9)


def prior_of(links: np.ndarray) -> tuple[Prior, Unknowns]:
    """Return a prior of links by the URDF alone, and the places of its unknowns."""
    n = len(links)
    nothing = np.zeros((12 * n, 12 * n))
    return (Prior(0.05, np.concatenate((links.ravel(), np.ones(2 * n))), nothing,
                  np.array([[0.0], [0.05]]), np.tile([[0.0], [0.05]], n), np.zeros((n, n)),
                  np.zeros((11 * n, n)), np.zeros(n)),
            Unknowns.of(n, 1, (Law(0.03, ()),) * n))


def test_the_centre_of_a_thin_link_is_known_alike_along_and_across() -> None:
    """A rod of 0.4 m and 3 cm."""
    def rod(centre: list[float]) -> np.ndarray:
        return pin.Inertia(
            3.0, np.array(centre), np.diag([4e-4, 0.04, 0.04])).toDynamicParameters()[None]

    prior, places = prior_of(rod([0.2, 0.0, 0.0]))

    def cost(centre: list[float]) -> float:
        x = np.concatenate((rod(centre).ravel(), np.ones(2), np.zeros(places.size - 12)))
        return prior.cost(x, places)[0]

    assert cost([0.2, 0.0, 0.0]) == pytest.approx(0.0, abs=1e-9)
    # A twentieth of the distance from the joint.
    assert 0.5 < cost([0.2, 0.01, 0.0]) / cost([0.21, 0.0, 0.0]) < 2.0
    assert 0.1 < cost([0.2, 0.01, 0.0]) < 2.0


@pytest.mark.parametrize('name', ['robocal', 'panda', 'ur5', 'xarm7', 'kinova'])
def test_rotors_are_expected_for_the_inertia_of_any_posture(name: str) -> None:
    robot = arm(name).robot()
    low, high = robot.sampling_limits()
    moved = np.max([np.diag(pin.crba(robot.model, robot.data, q)) for q in np.random.default_rng(
        2).uniform(low, high, (200, robot.n))], axis=0)
    # Motors are comparable to what they move; at zero, many arms are folded or upright.
    assert (expected_rotors(robot) > 0.2 * moved).all()
    assert (expected_rotors(robot)[:2] < 0.4 * moved.max()).all()


def test_the_derivatives_of_the_prior_are_those_of_its_cost() -> None:
    links = link_parameters(ROBOT)
    prior, places = prior_of(links)
    generator, n = np.random.default_rng(0), len(links)
    x = np.zeros(places.size)
    x[:places.gains.stop] = prior.mean
    x[places.links] *= 1.0 + 0.02 * generator.normal(size=links.size)
    x[places.gains] *= 1.0 + 0.02 * generator.normal(size=n)
    x[places.common] = 0.03
    prior = replace(prior, information=np.diag(1e-3 * np.arange(12 * n)),
                    exponents=generator.normal(size=(11 * n, n)), gain_power=np.arange(n))
    gradient = prior.cost(x, places)[1]
    for place in range(places.common + 1):
        step = np.zeros(places.size)
        step[place] = 1e-6 * max(abs(x[place]), 1e-3)
        up, down = (prior.cost(x + sign * step, places)[0] for sign in (1.0, -1.0))
        assert (up - down) / (2.0 * step[place]) == pytest.approx(
            gradient[place], abs=1e-6 * np.abs(gradient).max())


def test_the_curvature_of_the_prior_of_links_is_exact() -> None:
    links = link_parameters(ROBOT)
    prior, places = prior_of(links)
    x = np.zeros(places.size)
    x[:places.gains.stop] = prior.mean
    x[places.links] *= 1.0 + 0.02 * np.random.default_rng(0).normal(size=links.size)
    x[places.common] = 0.03
    hessian = prior.cost(x, places)[2]
    for place in range(links.size):
        step = np.zeros(places.size)
        step[place] = 1e-6 * max(abs(x[place]), 1e-3)
        up, down = (prior.cost(x + sign * step, places)[1] for sign in (1.0, -1.0))
        np.testing.assert_allclose(
            (up - down)[places.links] / (2.0 * step[place]),
            hessian[place, places.links], atol=1e-6 * np.abs(hessian[place]).max())


def test_the_centre_of_a_small_link_is_known_no_better_than_what_is_mounted_on_it():
    compact = np.array([2.0, 0.0, 0.0, 0.0, *(8e-4 * np.array([1.0, 0.0, 1.0, 0.0, 0.0, 1.0]))])
    std = np.sqrt(np.diag(link_covariance(compact, 0.05)))
    assert std[0] == pytest.approx(0.1)
    # A twentieth of the mass, 8 cm from the centre.
    assert (std[1:4] > 0.05 * 2.0 * 0.08).all()
    assert (std[1:4] < 1.05 * 0.05 * 2.0 * 0.08).all()


def with_build_up(samples: JointSamples) -> JointSamples:
    """Return joint states with friction that builds up over 10 mrad after a reversal."""
    direction = np.sign(samples.velocity)
    turned = np.diff(direction, axis=0, prepend=direction[:1]) != 0.0
    row = np.arange(len(direction))[:, None]
    last = np.maximum.accumulate(np.where(turned, row, 0), axis=0)
    since = np.abs(samples.position - np.take_along_axis(samples.position, last, axis=0))
    return replace(samples, effort=samples.effort - 4.0 * direction * np.exp(-since / 0.01))


def rotor_errors(robot: Robot, result: CalibrationResult) -> np.ndarray:
    """Return the errors of rotor inertias in standard deviations, shape (n,)."""
    true = 0.1 * np.diag(pin.crba(robot.model, robot.data, np.zeros(robot.n)))
    found = [result.parameter(f'{joint}.rotor_inertia') for joint in robot.joint_names]
    return np.array([((item.value or 0.0) - size) / (item.std or 1.0)
                     for item, size in zip(found, true, strict=True)])


def test_friction_that_builds_up_after_reversals_is_no_rotor() -> None:
    unknown = {'scale': ONES, 'scale_covariance': 0.005**2 * np.eye(ROBOT.n)}
    errors = np.concatenate([rotor_errors(ROBOT, estimate(ROBOT, with_build_up(
        record(real_arm(ROBOT), seed, ONES)), VALUES, **unknown))
        for seed in range(3)])
    assert np.abs(errors).max() < 3.3
    assert np.sqrt(np.mean(errors**2)) < 1.5


def test_hoses_are_found_and_belong_to_the_identified_arm() -> None:
    true, stiffness = real_arm(ROBOT), np.array([0.0, 0.0, 0.0, 2.0, 1.5, 0.4])
    samples = record(true, 0, ONES)
    result = from_yaml(to_yaml(estimate(
        ROBOT, replace(samples, effort=samples.effort + stiffness * samples.position), VALUES,
        **UNKNOWN)))
    assert result.verdict is Verdict.PASS, result.reasons
    springs = {p.name: p for p in result.parameters if p.name.endswith('.spring')}
    assert [*springs] == ['joint_4.spring', 'joint_5.spring', 'joint_6.spring']
    for found, size in zip(springs.values(), stiffness[3:], strict=True):
        assert abs(found.value - size) < min(3.3 * found.std, 0.15)
    assert 'Hoses or springs hold joints back, in N·m/rad: joint_4 2.' in arm_summary(result)
    assert 'Hoses' not in arm_summary(run())
    # Beside the offset that efforts have anyway, the torques of links and hoses.
    model = identified_model(ROBOT, result).without_gains()
    q = np.random.default_rng(1).uniform(-1.0, 1.0, (20, ROBOT.n))
    still, middle = np.zeros_like(q), samples.position.mean(axis=0)
    off = model.robot.gravity_torques(q) - true.gravity_torques(q) - stiffness * (q - middle)
    std = np.linalg.norm(model.uncertain_torques(q, still, still, still), axis=2)
    assert (np.abs(off) < 3.3 * std + 1e-9).all()
    motion = NewtonEuler(model.robot, ROBOT.tool_frame).torque(q, still, still)
    np.testing.assert_allclose(motion, model.robot.gravity_torques(q), atol=1e-9)
    np.testing.assert_allclose(
        motion[0], model.robot.inverse_dynamics(q[0], still[0], still[0]), atol=1e-9)
    # The tilt of the base changes their torques in no way.
    for changed, bare in zip(gravity_changes(model.robot), gravity_changes(with_links(
            ROBOT, link_parameters(model.robot), model.robot.model.armature)), strict=True):
        np.testing.assert_allclose(changed.gravity_torques(q), bare.gravity_torques(q), atol=1e-9)


def test_viscous_friction_that_differs_between_directions_is_no_link() -> None:
    samples = record(real_arm(ROBOT), 0, ONES, load=0.0)
    samples = replace(samples, effort=samples.effort + 0.4 * np.abs(samples.velocity))
    result = estimate(ROBOT, samples, VALUES, scale=ONES,
                      scale_covariance=0.005**2 * np.eye(ROBOT.n))
    assert result.settings['model_std'] == VALUES.arm_model_std
    assert np.abs(rotor_errors(ROBOT, result)).max() < 3.3


def test_a_delay_shifts_friction_and_rotors_with_the_torques_of_the_links() -> None:
    """Of viscous friction, a delay resembles inertia."""
    samples = record(real_arm(ROBOT), 0, ONES, noise=0.0)
    motion = ArmMotion.of(ROBOT, samples, VALUES, np.zeros(10))
    column = motion.regressor[..., 11 * ROBOT.n + motion.nuisances.index('delay')]
    rate = np.gradient(motion.effort, Blocks.of(samples, BAND, MIN_MOTION).period, axis=0)
    trusted = motion.trust == 1.0
    used = trusted & np.roll(trusted, 1, axis=0) & np.roll(trusted, -1, axis=0)
    for joint, rows in enumerate(used.T):
        left = (column + rate)[rows, joint]
        assert rows.sum() > 100
        assert np.sqrt(np.mean(left**2)) < 0.15 * np.sqrt(np.mean(rate[rows, joint]**2)), joint


def test_gains_without_a_load_are_known_no_better_than_the_widths_of_the_priors_tell() -> None:
    result = estimate(ROBOT, record(real_arm(ROBOT), 0, np.full(ROBOT.n, 1.12)), VALUES, **UNKNOWN)
    places = [result.covariance_names.index(f'{joint}.effort_scale')
              for joint in ROBOT.joint_names]
    std = np.sqrt(np.array(result.covariance)[np.ix_(places, places)].mean())
    # Priors of gains and of the links' scale are these; what the gains multiply adds a doubt.
    assert std > 1.2 / np.sqrt(ROBOT.n / 0.01 + 1.0 / VALUES.arm_model_std**2)
    errors = [((item.value or 0.0) - 1.12) / (item.std or 1.0) for item in (
        result.parameter(f'{joint}.effort_scale') for joint in ROBOT.joint_names)]
    assert np.abs(errors).max() < 3.3
