# SPDX-License-Identifier: Apache-2.0
"""The two-plane method against torques worked out apart from it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.spatial.transform import Rotation
from scipy.stats import chi2
from support.arms import ARMS, MOUNTS, arm, middle, scara
from support.forward import (
    RATE,
    Motion,
    Noise,
    Reference,
    SweepPlan,
    Tool,
    coulomb,
    friction_of,
    horizontal_posture,
    measured,
    procedure,
    random_tool,
    run,
)

from robocal_ros.errors import ConfigurationError, DataError, ExcitationError
from robocal_ros.messages.samples import JointSamples
from robocal_ros.payload.model import Plane
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.result import COM, TORQUE_ERROR
from robocal_ros.payload.two_plane import PlaneEstimator, estimate
from robocal_ros.results.result import CalibrationResult, State, Verdict
from robocal_ros.robot.arm_model import ArmModel, link_parameters, urdf_model, with_links
from robocal_ros.robot.friction_law import SteadyFriction
from robocal_ros.robot.model import RigidBodyInertia, Robot

REFERENCE_CELL = Noise()
RANDOM_ALONE = Noise(quantisation=0.0)
TOOL = Tool(2.0, np.array([0.04, -0.06, 0.09]))


@dataclass(frozen=True)
class Experiment:
    """One run of the procedure: what was done, and what no sensor can see."""

    robot: Robot
    tool: Tool
    motion: Motion
    torque: np.ndarray
    forward: np.ndarray
    backward: np.ndarray

    def samples(self, noise: Noise = REFERENCE_CELL, seed: int = 0, **changes) -> JointSamples:
        arrays = dict(zip(('position', 'velocity', 'effort'), measured(
            self.motion, self.torque, noise, np.random.default_rng(seed)), strict=True))
        return JointSamples(self.robot.joint_names, self.motion.time, **{**arrays, **changes})

    def effort(self, seed: int = 0) -> np.ndarray:
        return self.samples(seed=seed).effort.copy()

    def found(
        self, samples: JointSamples | None = None,
        friction: dict[str, SteadyFriction] | None = None, *, effort: np.ndarray | None = None,
        stored: CalibrationResult | None = None, arm: ArmModel | None = None, **values: object,
    ) -> CalibrationResult:
        """Return the estimate, from samples with other efforts if they are given."""
        if samples is None:
            samples = self.samples(**({} if effort is None else {'effort': effort}))
        return estimate(self.robot, samples, values_for(self, **values), friction, stored, arm)

    def rows(self, joint: int, sign: float = 0.0) -> np.ndarray:
        """Return in which samples a joint alone turns at constant speed."""
        v = self.motion.velocity[:, joint]
        return (self.motion.window > 0) & (np.abs(v) > 1e-3) & (v * sign >= 0.0)


def experiment(
    name: str, mount: str, tool: Tool, seed: int, rate: float = RATE, *, speed: float = 0.35,
    half: dict[int, float] | None = None, **more,
) -> Experiment:
    """Run the procedure, with other half widths of the sweeps of some joints."""
    generator = np.random.default_rng(seed)
    robot = arm(name).robot(mount)
    reference = Reference(arm(name).urdf, arm(name).tool, MOUNTS[mount], tool)
    low, high = robot.sampling_limits()
    plan = [replace(sweep, half=(half or {}).get(sweep.joint, sweep.half)) for sweep in procedure(
        horizontal_posture(reference, low, high, seed), low, high, **more)]
    motion = run(middle(robot), plan, speed=speed, rate=rate)
    forward, backward = friction_of(robot.n, generator)
    torque = reference.torque(motion.position, motion.velocity, motion.acceleration)
    return Experiment(robot, tool, motion,
                      torque + coulomb(motion.velocity, forward, backward), forward, backward)


@pytest.fixture(scope='module')
def usual() -> Experiment:
    """A 2 kg tool on the project's arm, with everything that the reference cell has."""
    return experiment('robocal', 'upright', TOOL, 0, rate=250.0)


@pytest.fixture(scope='module')
def quick() -> Experiment:
    """The same procedure with few samples, for many repetitions."""
    return experiment('robocal', 'upright', TOOL, 0, rate=50.0)


def values_of_mass(mass: float, **more) -> PayloadParameters:
    # Efforts are true, the base is level, and friction is as it was identified.
    return PayloadParameters(**{
        'known_mass': mass, 'posture_std': 0.0, 'tilt_std': 0.0,
        'friction_change_std': 0.0, **more})


def values_for(case: Experiment, **more) -> PayloadParameters:
    return values_of_mass(case.tool.mass, **more)


def error_of(result: CalibrationResult, case: Experiment) -> np.ndarray:
    return result.values(COM) - case.tool.com


def error_in_std(result: CalibrationResult, case: Experiment) -> float:
    error = error_of(result, case)
    return float(error @ np.linalg.solve(result.covariance, error))


def covers(result: CalibrationResult, case: Experiment) -> bool:
    """Return whether the 99.9 % intervals contain the centre."""
    intervals = (result.parameter(name).interval(0.999) for name in COM)
    return all(low <= truth <= high for truth, (low, high) in zip(
        case.tool.com, intervals, strict=True))


def failed(result: CalibrationResult) -> list[str]:
    return [check.name for check in result.checks if not check.passed]


def test_a_tool_that_the_arm_was_identified_with_contradicts_its_stored_result(quick):
    stored = quick.found()
    assert stored.verdict is Verdict.PASS
    tool = RigidBodyInertia(quick.tool.mass, quick.tool.com, np.zeros((3, 3)))
    loaded = quick.robot.with_payload(tool)
    again = estimate(loaded, quick.samples(seed=1), values_for(quick), stored=stored)
    assert failed(again) == ['torque of the payload']
    assert 'identify the arm without a tool' in ' '.join(again.reasons)
    # Of another tool, nothing is known; a tool that was moved has torques.
    assert not failed(estimate(
        loaded, quick.samples(seed=1), values_for(quick, tool='other'), stored=stored))
    moved = replace(stored, parameters=tuple(
        replace(p, value=p.value + 0.02) if p.name in COM else p for p in stored.parameters))
    assert not failed(quick.found(stored=moved))


# --------------------------------------------------------------------- truth is recovered


# Each arm once, and each mount.
@pytest.mark.parametrize('number', [0, 6, 12, 8, 14])
def test_tools_are_identified_on_all_arms_and_mounts(number):
    generator = np.random.default_rng(100 + number)
    name = ARMS[number % 5]
    mount = ('upright', 'ceiling', 'wall_30')[number // 5 % 3]
    case = experiment(name, mount, random_tool(generator), number)
    result = case.found(case.samples(seed=number))
    # A millimetre at 2 kg; lighter tools show less, in proportion.
    assert np.abs(error_of(result, case)).max() < 1e-3 * max(1.0, 2.0 / case.tool.mass)
    assert covers(result, case)
    assert (result.verdict, failed(result)) == (Verdict.PASS, [])
    # It must not be vague either: what 0.1 N·m of noise leaves of 1 kg or more.
    assert max(result.parameter(p).std for p in COM) < 0.7e-3
    assert len(result.validation) == 2


def test_without_noise_the_result_is_exact(usual):
    result = usual.found(usual.samples(Noise(0.0, 1e-9, 0.0)))
    np.testing.assert_allclose(error_of(result, usual), 0.0, atol=1e-8)


def test_friction_that_cancels_is_reported_per_joint(usual):
    result = usual.found()
    for joint in (4, 5):
        name = usual.robot.joint_names[joint]
        half = 0.5 * (usual.forward[joint] + usual.backward[joint])
        offset = 0.5 * (usual.forward[joint] - usual.backward[joint])
        found = result.parameter(f'{name}.friction_cancelled')
        assert abs(found.value - half) < 4.0 * found.std < 0.1
        found = result.parameter(f'{name}.torque_offset')
        assert abs(found.value - offset) < 4.0 * found.std < 0.1


@pytest.mark.parametrize('joint', ['joint_6', 'joint_5'])
def test_distance_and_angle_of_the_centre_in_each_plane(usual, joint):
    result = usual.found()
    column = usual.robot.joint_names.index(joint)
    lever, angle = (result.parameter(f'{joint}.{name}') for name in ('lever', 'lever_angle'))
    turned = np.full(usual.robot.n, np.nan)
    turned[:] = usual.motion.position[usual.rows(column)][0]
    turned[column] = float(angle.note.split(' = ')[1].split()[0])
    reference = Reference(arm('robocal').urdf, arm('robocal').tool, MOUNTS['upright'], usual.tool)
    weight = reference.torque(turned[None], 0.0 * turned[None], 0.0 * turned[None])
    weight -= Reference(arm('robocal').urdf, arm('robocal').tool, MOUNTS['upright']).torque(
        turned[None], 0.0 * turned[None], 0.0 * turned[None])
    # At the stated angle of the joint the tool's torque is m g l sinγ.
    sine = weight[0, column] / (usual.tool.mass * 9.81 * lever.value)
    assert np.sin(angle.value) == pytest.approx(sine, abs=4.0 * angle.std + 1e-3)
    assert 0.0 < lever.std < 2e-3
    assert 0.0 < angle.std < 0.05


def test_a_centre_on_the_axis_has_no_angle(usual):
    result = experiment(
        'robocal', 'upright', Tool(2.0, np.array([0.0, 0.0, 0.09])), 0, rate=50.0).found()
    assert result.parameter('joint_6.lever_angle').state is State.NOT_IDENTIFIED
    assert result.parameter('joint_5.lever_angle').state is State.IDENTIFIED


def test_the_result_states_method_counts_and_settings(usual):
    result = usual.found(known_mass_std=0.0)
    assert (result.kind, result.method, result.frame) == ('payload', 'two_plane', 'tool0')
    assert result.covariance_names == COM
    np.testing.assert_allclose(np.sqrt(np.diag(result.covariance)),
                               [result.parameter(p).std for p in COM])
    assert result.parameter('mass').state is State.NOT_EVALUATED
    assert result.parameter('mass').value == usual.tool.mass
    assert result.parameter('inertia_xx').state is State.NOT_EVALUATED
    assert result.parameter('mass').note == 'given: known_mass'
    assert result.settings['second_joint'] == 'joint_5'
    assert (result.counts['sweeps'], result.counts['held_out_sweeps']) == (4, 4)
    for fit in result.fit:
        assert fit.after == pytest.approx(0.1, rel=0.05)
        assert fit.before > 5.0 * fit.after


# ------------------------------------------------------- efficiency, intervals, invariants


def test_another_tool_frame_turns_the_answer_and_its_covariance(quick):
    robot = Robot(arm('robocal').urdf, tool_frame='ft_wrist')
    q = np.zeros(6)
    placement = robot.transform_frame_to_root(q, 'ft_wrist').actInv(
        robot.transform_frame_to_root(q, 'tool0'))
    a = quick.found()
    b = estimate(robot, quick.samples(), values_for(quick))
    np.testing.assert_allclose(placement.act(a.values(COM)), b.values(COM), atol=1e-9)
    np.testing.assert_allclose(
        placement.rotation @ a.covariance @ placement.rotation.T, b.covariance, atol=1e-12)


def test_an_uncertain_mass_widens_the_intervals_as_the_levers_say(quick):
    sure = quick.found()
    result = quick.found(known_mass_std=0.1)
    np.testing.assert_array_equal(sure.values(COM), result.values(COM))
    heavy, light = (estimate(quick.robot, quick.samples(),
                             values_of_mass(2.0 + d)).values(COM)
                    for d in (0.01, -0.01))
    slope = (heavy - light) / 0.02
    np.testing.assert_allclose(result.covariance - sure.covariance,
                               0.01 * np.outer(slope, slope), rtol=0.02, atol=1e-9)
    assert result.parameter('mass').std == 0.1


def test_noise_with_a_memory_widens_the_intervals(quick):
    white = quick.found()
    ratios = []
    for seed in range(4):
        shocks = np.random.default_rng(seed).normal(size=quick.torque.shape)
        red = lfilter([np.sqrt(1.0 - 0.9**2)], [1.0, -0.9], shocks, axis=0)
        slow = quick.found(effort=quick.torque + 0.1 * red)
        # Of one plane alone, so that a quarrel of the planes has no part in it.
        ratios.append(slow.parameter('joint_6.friction_cancelled').std
                      / white.parameter('joint_6.friction_cancelled').std)
    # (1 + 0.9) / (1 - 0.9) = 19 times the variance; short sweeps show a little less.
    assert 0.75 * np.sqrt(19.0) < np.mean(ratios) < 1.1 * np.sqrt(19.0)


# ------------------------------------------------------------------------------ friction


def friction_models(case: Experiment, std: float = 0.02) -> dict[str, SteadyFriction]:
    return {name: SteadyFriction([f, b], [f, b], [1.0, 1.0], [0.0, 0.0], std)
            for name, f, b in zip(case.robot.joint_names, case.forward, case.backward,
                                  strict=True)}


def test_identified_friction_is_subtracted_and_narrows_the_answer(quick):
    unobservable = quick.found()
    told = quick.found(friction=friction_models(quick))
    assert error_in_std(told, quick) < chi2.ppf(0.999, 3)
    stds = [[r.parameter(p).std for p in COM] for r in (told, unobservable)]
    assert (np.array(stds[0]) <= np.array(stds[1]) * 1.01).all()
    assert abs(told.parameter('joint_6.friction_cancelled').value) < 0.05
    assert told.settings['friction_model'] == ['joint_6', 'joint_5']


def one_way(case: Experiment) -> Experiment:
    """Stop all that turns backwards from being a sweep: the record without those samples."""
    keep = ~((case.motion.window > 0) & (case.motion.velocity.min(axis=1) < -1e-3))
    m = case.motion
    return replace(case, torque=case.torque[keep], motion=Motion(
        m.time[keep], m.position[keep], m.velocity[keep], m.acceleration[keep], m.window[keep]))


def test_one_direction_alone_is_refused_without_a_friction_model(quick):
    case = one_way(quick)
    with pytest.raises(DataError, match=r"'joint_6' was swept in one direction only.*both"):
        case.found()
    result = case.found(friction=friction_models(case))
    assert error_in_std(result, case) < chi2.ppf(0.999, 3)


def test_friction_that_differs_between_postures_fails_the_held_out_check(usual):
    effort = usual.effort()
    later = usual.motion.time > usual.motion.time[usual.motion.window == 4].max()
    for joint, level in ((4, 0.5), (5, 0.4)):
        changed = effort.copy()
        changed[:, joint] += np.where(later, level * np.sign(usual.motion.velocity[:, joint]), 0.0)
        result = usual.found(effort=changed)
        assert result.verdict is Verdict.FAIL
        assert any(f'held-out torque of joint_{joint + 1}' in name for name in failed(result))


# ----------------------------------------------------------------------------- wrong things


@pytest.mark.parametrize('joints', [(0, 1, 2, 3, 4, 5), (5,), (4,)])
def test_effort_of_the_wrong_sign_shows(quick, joints):
    effort = quick.effort()
    effort[:, list(joints)] *= -1.0
    result = quick.found(effort=effort)
    assert result.verdict is Verdict.FAIL
    told = quick.found(effort=effort, friction=friction_models(quick))
    wrong = ', '.join(f'joint_{joint + 1}' for joint in sorted(joints, reverse=True) if joint > 3)
    for item in (result, told):
        (check,) = (check for check in item.checks if check.name == 'sign of efforts')
        assert f'Friction would drive {wrong} instead' in check.reason


@pytest.mark.parametrize('joint', [4, 5])
def test_effort_that_is_zero_or_stuck_is_refused(quick, joint):
    for value, says in ((0.0, 'is zero in all'), (0.37, r'is stuck at 0.37 N·m')):
        effort = quick.effort()
        effort[:, joint] = value
        with pytest.raises(DataError, match=f"'joint_{joint + 1}' {says}"):
            quick.found(effort=effort)


@pytest.mark.parametrize('window', [1, 4])
def test_effort_that_freezes_during_a_sweep_shows(quick, window):
    joint = 5 if window < 3 else 4
    rows = np.flatnonzero(quick.motion.window == window)
    effort = quick.effort()
    effort[rows, joint] = effort[rows[0], joint]
    with pytest.raises(DataError, match=f"'joint_{joint + 1}' is stuck at .*Check the driver"):
        quick.found(effort=effort)
    effort = quick.effort()
    half = rows[len(rows) // 2:]
    effort[half, joint] = effort[half[0], joint]
    assert quick.found(effort=effort).verdict is Verdict.FAIL


@pytest.mark.parametrize('joint', [4, 5])
@pytest.mark.parametrize(('push', 'where', 'length'), [(-3.0, 0.3, 0.4), (3.0, 0.8, 0.1)])
def test_a_bumped_block_of_samples_shows(quick, joint, push, where, length):
    rows = np.flatnonzero(quick.rows(joint, 1.0) & (quick.motion.window <= 4))
    begin, end = (int(len(rows) * share) for share in (where, min(1.0, where + 0.5 * length)))
    effort = quick.effort()
    effort[rows[begin:end], joint] += push
    assert quick.found(effort=effort).verdict is Verdict.FAIL


def test_a_bump_in_the_held_out_part_shows(quick):
    rows = np.flatnonzero(quick.rows(5, 1.0) & (quick.motion.window > 4))
    effort = quick.effort()
    effort[rows[len(rows) // 3:len(rows) // 2], 5] += 3.0
    result = quick.found(effort=effort)
    assert result.verdict is Verdict.FAIL
    assert any('held-out' in name for name in failed(result))


@pytest.mark.parametrize(('error', 'words', 'values'), [
    *((ConfigurationError, r"needs the payload's mass: set known_mass \(kg", {'known_mass': mass})
      for mass in (0.0, -1.0, np.nan)),
    (ConfigurationError, r'2.0 kg, but max_payload .* 1.5 kg.*lighter', {'max_payload': 1.5}),
    (ConfigurationError, "'joint_6' is the last joint", {'second_joint': 'joint_6'}),
    (DataError, "'joint_3' did not turn at constant speed", {'second_joint': 'joint_3'}),
])
def test_values_that_do_not_fit_are_refused(quick, error, words, values):
    with pytest.raises(error, match=words):
        quick.found(**values)


def short(joint: int, half: float) -> Experiment:
    """Sweep one joint over hardly any angle."""
    return experiment('robocal', 'upright', TOOL, 0, rate=50.0, speed=0.2, half={joint: half},
                      held_out=False)


@pytest.mark.parametrize('joint', [4, 5])
def test_a_sweep_below_twenty_degrees_is_refused(joint):
    case = short(joint, np.radians(12.0))
    with pytest.raises(DataError, match=rf"'joint_{joint + 1}' covers 1\d\.\d°; at least 20°"):
        case.found()
    case = short(joint, np.radians(3.0))
    with pytest.raises(DataError, match=f"'joint_{joint + 1}' did not turn"):
        case.found()


def test_without_held_out_sweeps_the_verdict_is_not_evaluated():
    case = short(5, 1.2)
    result = case.found()
    assert result.verdict is Verdict.NOT_EVALUATED
    assert result.validation == ()


def test_an_empty_record_is_refused(quick):
    nothing = quick.samples().rows(0, 0)
    with pytest.raises(DataError, match='No joint states are recorded'):
        quick.found(nothing)


def two_joint_case(second_axis: str) -> tuple[Robot, JointSamples]:
    robot = Robot(scara(second_axis), tool_frame='tip')
    reference = Reference(scara(second_axis), 'tip', robot.gravity, TOOL)
    posture = np.array([0.2, 0.3])
    motion = run(np.zeros(2), [SweepPlan(1, posture, 1.4), SweepPlan(0, posture, 1.3)], rate=100.0)
    torque = reference.torque(motion.position, motion.velocity, motion.acceleration)
    torque = torque + coulomb(motion.velocity, np.ones(2), np.ones(2))
    q, v, e = measured(motion, torque, Noise(), np.random.default_rng(0))
    return robot, JointSamples(robot.joint_names, motion.time, q, v, e)


def test_parallel_axes_leave_the_direction_along_them_unobservable():
    robot, samples = two_joint_case('0 0 1')
    with pytest.raises(
            ExcitationError, match=r'unobservable: com_z.*parallel.*second_joint') as caught:
        estimate(robot, samples, values_of_mass(2.0))
    assert caught.value.unobservable == ('com_z',)
    assert (caught.value.rank, caught.value.needed) == (2, 3)


def test_nearly_parallel_axes_fail_by_their_interval():
    robot, samples = two_joint_case('0 0.0001 1')
    result = estimate(robot, samples, values_of_mass(2.0, max_com_interval=0.005))
    assert result.parameter('com_z').std > 0.1
    assert '95 % interval of the centre' in failed(result)
    robot, samples = two_joint_case('0 1 1')
    assert failed(estimate(robot, samples, values_of_mass(2.0))) == []


def test_a_vertical_axis_is_refused_with_the_remedy(quick):
    upright = Robot(arm('robocal').urdf, gravity=(0.0, 0.0, -9.81))
    q = np.zeros(6)
    with pytest.raises(ExcitationError, match=r"axis of joint 'joint_1' .*0.00 of 9.81.*horizont"):
        Plane.at(upright, q, 0)
    with pytest.raises(ExcitationError, match="'joint_5'"):
        Plane.at(Robot(arm('robocal').urdf, gravity=(0.0, 0.0, 0.0)), q, 4)


# ---------------------------------------------------------------------------- the plane


def test_the_recursive_estimator_converges_to_the_plane():
    robot = Robot(scara(), tool_frame='tip')
    plane = Plane.at(robot, np.array([0.0, 0.4]), 1)
    tracker = PlaneEstimator(plane, 2.0, 0.1)
    generator = np.random.default_rng(0)
    angle = 0.4 + np.concatenate((np.linspace(-1.5, 1.5, 2000), np.linspace(1.5, -1.5, 2000)))
    direction = np.repeat([1, -1], 2000)
    torque = 2.0 * 9.81 * (0.1 * np.sin(angle - 0.4) - 0.05 * np.cos(angle - 0.4))
    torque += np.where(direction > 0, 0.8, -0.9) + 0.1 * generator.normal(size=4000)
    for row in zip(angle, torque, direction, strict=True):
        tracker.update(*row)
    value, std = tracker.estimate()
    assert (np.abs(value - np.array([0.1, -0.05, 0.8, -0.9])) < 4.0 * std).all()
    assert std[:2].max() < 1e-3


# ------------------------------------------------------------------ inputs that are uncertain


def urdf_of(case: Experiment, gain_std: float, model_std: float = 0.05) -> ArmModel:
    return urdf_model(case.robot, model_std, gain_std**2 * np.eye(case.robot.n))


@pytest.mark.parametrize('gains', [True, False])
def test_intervals_cover_errors_of_drive_gains_and_links(quick, gains):
    """Either shifts the centre by millimetres; without the prior, intervals miss that."""
    samples, links = quick.samples(RANDOM_ALONE, 1), link_parameters(quick.robot)
    robot, prior = quick.robot, urdf_of(quick, 0.02).gains_alone()
    if gains:
        samples = replace(samples, effort=samples.effort * (
            1.0 + 0.02 * np.random.default_rng(1).normal(size=robot.n)))
    else:
        prior = urdf_of(quick, 0.0, 0.15)
        robot = with_links(robot, links * (
            1.0 + 0.15 * np.random.default_rng(7).normal(size=(len(links), 1))),
            np.zeros(robot.n))
    stated, without = (error_in_std(estimate(
        robot, samples, values_for(quick), arm=known), quick) for known in (prior, None))
    assert stated < chi2.ppf(0.999, 3)
    assert without > 2.0 * chi2.ppf(0.999, 3)


def test_effort_scales_that_are_hardly_known_fail(quick):
    result = quick.found(arm=urdf_of(quick, 0.1))
    assert 'drive gain' in failed(result)
    assert {check.question for check in result.checks} == {
        'informative', 'adequate', 'trustworthy'}
    vague = quick.found(arm=urdf_of(quick, 0.3), torque_error_floor=0.0)
    (width,) = (check for check in vague.checks if check.name == TORQUE_ERROR)
    assert not width.passed
    assert 'drive gains: identify the arm' in width.reason
    assert 'drive gain' not in failed(quick.found(arm=urdf_of(quick, 0.01)))


def test_the_interval_alone_judges_effort_scales_of_an_identified_arm(quick):
    """A last joint that carries little shows little of its scale, and matters little."""
    stated = urdf_of(quick, 0.1)
    assumed = quick.found(arm=stated)
    identified = quick.found(arm=replace(stated, evidence=True))
    assert set(failed(assumed)) - set(failed(identified)) == {'drive gain'}
    assert identified.covariance.tolist() == assumed.covariance.tolist()


def test_intervals_of_one_direction_cover_friction_that_changed(quick):
    """A fifth more friction than was identified: 2 standard deviations of the prior."""
    case, changed = one_way(quick), 1.2
    models = {name: replace(model, coulomb=np.asarray(model.coulomb) / changed,
                            static=np.asarray(model.static) / changed)
              for name, model in friction_models(case).items()}
    samples = case.samples(RANDOM_ALONE, 1)
    stated = case.found(samples, models, friction_change_std=0.1)
    assert covers(stated, case)
    without = case.found(samples, models)
    assert error_in_std(without, case) > chi2.ppf(0.999, 3)


def test_intervals_of_one_direction_cover_friction_that_grows_with_the_load():
    """By 5 % of it; the law is that of an unloaded arm, and says what it does not know."""
    case = one_way(experiment('robocal', 'upright', Tool(3.0, TOOL.com), 3, rate=100.0))
    plain, unknown = friction_models(case), np.zeros((2, 6, 6))
    unknown[:, -1, -1] = 0.05**2
    models = {name: replace(model, covariance=unknown) for name, model in plain.items()}
    velocity = case.motion.velocity
    carried = case.torque - coulomb(velocity, case.forward, case.backward)
    samples = case.samples(Noise(effort=0.03), 3)
    samples = replace(samples, effort=samples.effort + 0.05 * np.abs(carried) * np.sign(
        velocity) * (np.abs(velocity) > 1e-3))
    assert covers(case.found(samples, models), case)
    assert not covers(case.found(samples, plain), case)


def test_intervals_cover_friction_that_falls_while_it_is_measured(usual):
    """A fifth of it over the fitted sweeps, on a stiff gear."""
    time, velocity = usual.motion.time, usual.motion.velocity
    fitted = np.flatnonzero(usual.motion.window > 0)
    share = (time - time[fitted[0]]) / np.ptp(time[fitted])
    falling = 3.0 * np.sign(velocity) * np.exp(-0.22 * np.clip(share, 0.0, 1.0))[:, None]
    effort = usual.effort() + np.where(np.abs(velocity) > 1e-3, falling, 0.0)
    samples = usual.samples(effort=effort)
    result = usual.found(samples, friction_change_std=0.1)
    assert covers(result, usual)
    # Sweeps in other postures show it as well; without them, only the prior covers it.
    alone = samples.rows(0, np.flatnonzero(usual.motion.window == 4)[-1] + 1)
    assert covers(usual.found(alone, friction_change_std=0.1), usual)
    steady = usual.found(alone)
    assert error_in_std(steady, usual) > chi2.ppf(0.999, 3)


@pytest.mark.parametrize('what', ['load', 'angle', 'delay'])
def test_what_is_opposite_in_the_two_directions_widens_nothing(usual, what):
    """Friction by load or angle, and delays, are not of the weight, however large they are."""
    position, velocity = usual.motion.position, usual.motion.velocity
    weight = usual.torque - np.where(
        velocity > 0.0, usual.forward, -usual.backward) * (np.abs(velocity) > 1e-3)
    effort = usual.effort() + {
        'load': np.sign(velocity) * 0.1 * np.abs(weight),
        'angle': np.sign(velocity) * np.sin(3.0 * position),
        'delay': -0.05 * np.gradient(weight, usual.motion.time, axis=0)}[what]
    plain, result = usual.found(), usual.found(effort=effort)
    assert covers(result, usual)
    np.testing.assert_allclose(result.values(COM), plain.values(COM), atol=2e-4)
    for name in COM:
        assert result.parameter(name).std < 1.5 * plain.parameter(name).std


def test_friction_that_hides_its_mean_beside_an_accurate_weight_is_no_lack_of_excitation(usual):
    """In half of the difference of both directions there is far more noise than in their mean."""
    position, velocity = usual.motion.position, usual.motion.velocity
    quiet = usual.samples(Noise(effort=1e-3, quantisation=0.0))
    result = usual.found(replace(quiet, effort=quiet.effort + 8.0 * np.sign(velocity) * np.sin(
        3.0 * position) * (np.abs(velocity) > 1e-3)))
    assert np.abs(error_of(result, usual)).max() < 1e-3


def test_fast_ripple_doubts_weight_by_the_slow_ripple_that_gears_have_with_it(usual):
    """Ripple of two periods per turn is hardly told from weight by sweeps of this width."""
    position, moving = usual.motion.position, np.abs(usual.motion.velocity) > 1e-3
    slow, fast = (0.15 * moving * np.sin(cycles * position + 0.7) for cycles in (2.0, 40.0))
    both, alone = (usual.found(effort=usual.effort() + item) for item in (slow + fast, slow))
    assert covers(both, usual)
    for result in (both, alone):
        # Nothing else in these sweeps tells weight from slow ripple.
        assert np.abs(error_of(result, usual)).max() > 0.5e-3
    std = {name: both.parameter(name).std / usual.found().parameter(name).std for name in COM}
    assert max(std.values()) > 2.0


def test_narrow_sweeps_doubt_weight_by_ripple_that_they_hardly_tell_from_it():
    """Sweeps of 60 degrees hold 1.3 to 1.7 periods of it."""
    case = experiment('robocal', 'upright', TOOL, 4, rate=100.0,
                      half=dict.fromkeys((4, 5), np.radians(30.0)))
    samples, moving = case.samples(Noise(effort=0.03)), np.abs(case.motion.velocity) > 1e-3
    for cycles in (8.0, 10.0):
        for phase in np.arange(0.0, 6.0):
            effort = samples.effort + 0.03 * moving * np.sin(
                cycles * case.motion.position + phase)
            assert covers(case.found(replace(samples, effort=effort)), case)


def test_intervals_contain_what_a_tilted_base_does_to_the_centre(usual):
    motion, level, tilt = usual.motion, np.array(usual.robot.gravity), 1e-3

    def torque(gravity: np.ndarray) -> np.ndarray:
        leaning = Reference(usual.robot.urdf, usual.robot.tool_frame, gravity, usual.tool)
        return leaning.torque(motion.position, motion.velocity, motion.acceleration)

    def centre(change: np.ndarray, **values: float) -> CalibrationResult:
        return usual.found(effort=usual.effort() + change, **values)

    flat = torque(level)
    shifts = [
        (centre(torque(Rotation.from_rotvec(tilt * axis).apply(level)) - flat).values(COM)
         - centre(0.0 * flat).values(COM)) / tilt for axis in np.eye(3)[:2]]
    stated = centre(0.0 * flat, tilt_std=0.005).covariance - centre(0.0 * flat).covariance
    wanted = 0.005**2 * sum(np.outer(shift, shift) for shift in shifts)
    assert np.sqrt(np.diag(wanted)).max() > 3e-4
    np.testing.assert_allclose(stated, wanted, atol=0.05 * np.abs(wanted).max())


@pytest.mark.parametrize('name', ARMS)
def test_the_planes_torque_is_what_the_body_adds_to_the_arm(name):
    for mount in MOUNTS:
        robot = arm(name).robot(mount)
        loaded = Reference(arm(name).urdf, arm(name).tool, MOUNTS[mount], TOOL)
        bare = Reference(arm(name).urdf, arm(name).tool, MOUNTS[mount])
        low, high = robot.sampling_limits()
        generator = np.random.default_rng(1)
        tried = 0
        while tried < 5:
            q = generator.uniform(low, high)
            joint = int(generator.integers(robot.n))
            try:
                plane = Plane.at(robot, q, joint)
            except ExcitationError:
                continue
            tried += 1
            turned = np.tile(q, (7, 1))
            turned[:, joint] += np.linspace(-1.5, 1.5, 7)
            still = np.zeros_like(turned)
            extra = (loaded.torque(turned, still, still)
                     - bare.torque(turned, still, still))[:, joint]
            torque = plane.regressor(turned[:, joint], TOOL.mass) @ plane.lever(TOOL.com)
            np.testing.assert_allclose(torque, extra, atol=1e-9)
