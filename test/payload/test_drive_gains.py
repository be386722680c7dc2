# SPDX-License-Identifier: Apache-2.0
"""Drive gains from a payload of known mass, against independently computed torques."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from scipy.stats import chi2
from support.excitation_cell import TOOL, Record, exciting, random_tool

from robocal_ros.errors import DataError
from robocal_ros.messages.samples import JointSamples, Recording
from robocal_ros.payload import excitation
from robocal_ros.payload.estimator import GAINS, PAYLOAD, expected_result
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.results.provenance import Inputs
from robocal_ros.results.result import Input, State, Verdict
from robocal_ros.results.store import from_yaml, to_yaml
from robocal_ros.robot.arm_model import (
    ArmModel,
    expected_rotors,
    known_with_gains,
    link_parameters,
    urdf_model,
    with_links,
)
from robocal_ros.robot.setup import (
    ARM,
    DRIVE_GAINS,
    effort_factor,
    effort_scales,
    relative_covariance,
)
from robocal_ros.robot.trajectories import Trajectory

SCALE = np.array([0.87, 1.14, 0.95, 1.08, 0.86, 1.12])
# The arm of these records is that of the URDF.
EXACT = 0.001
WITHOUT_PRIORS = PayloadParameters(
    known_mass=TOOL.mass, posture_std=0.0, sag_std=0.0, delay_std=0.0, tilt_std=0.0,
    load_friction_std=0.0, friction_change_std=0.0, arm_model_std=EXACT)
WITH_PRIORS = PayloadParameters(
    known_mass=TOOL.mass, method='excitation', excitation_source='torque',
    arm_model_std=EXACT)
COMPLIANCE = np.array([3e-6, 4.5e-6, 9e-6, 3.5e-5, 5.5e-5, 9e-5])


@pytest.fixture(scope='module')
def usual() -> Record:
    return Record('robocal', TOOL, exciting(), duration=10.0)


def found_by(record: Record, seed: int | None = None, scale: np.ndarray = SCALE,
             values: PayloadParameters = WITHOUT_PRIORS, **more):
    return excitation.estimate_gains(
        record.robot, record.joints(seed, scale), replace(values, **more))


def scales(result):
    """The parameters that are drive gains."""
    return [p for p in result.parameters if p.name.endswith('.effort_scale')]


def scale_covariance(result):
    return result.covariance_of([p.name for p in scales(result)])


def weighing(robot, factor):
    """The arm by a URDF whose links weigh a share of the true ones."""
    return with_links(robot, factor * link_parameters(robot), np.zeros(robot.n))


def test_without_noise_the_scales_are_exact(usual):
    exact = ArmModel(usual.robot, np.zeros((13 * usual.robot.n,) * 2), 'exact', evidence=True)
    result = excitation.estimate_gains(
        usual.robot, usual.joints(None, SCALE), WITHOUT_PRIORS, exact)
    assert effort_scales(result) == pytest.approx(
        dict(zip(usual.robot.joint_names, SCALE, strict=True)), abs=1e-6)
    assert result.kind == 'drive_gains'


def test_efforts_in_an_unknown_unit_get_their_constants(usual):
    """The unit of each joint is another one, and nobody has a guess."""
    constants = np.array([0.07, 0.07, 0.09, 14.0, 350.0, 0.002])
    known = found_by(usual, 3)
    samples = usual.joints(3, SCALE)
    unknown = replace(WITHOUT_PRIORS, effort_source='unknown')
    found = excitation.estimate_gains(
        usual.robot, replace(samples, effort=constants * samples.effort), unknown)
    assert {p.unit for p in scales(found)} == {'1/(N·m)'}
    ratio = np.array([f.value / k.value for f, k in zip(
        scales(found), scales(known), strict=True)])
    np.testing.assert_allclose(ratio, constants, rtol=1e-4)
    assert [check.passed for check in found.checks] == [check.passed for check in known.checks]
    with pytest.raises(DataError, match="joint 'joint_2' falls where its torque rises"):
        excitation.estimate_gains(usual.robot, replace(
            samples, effort=samples.effort * [1, -1, 1, 1, 1, 1]), unknown)


def test_no_constant_of_an_unknown_unit_is_implausible():
    """A heavy tool near the last axis loads it by a fraction of what is expected of its mass."""
    near = replace(TOOL, mass=10.0, com=np.array([0.02, 0.0, 0.1]))
    record = Record('robocal', near, exciting(), duration=10.0)
    known, unknown = (found_by(record, 3, known_mass=near.mass, effort_source=source)
                      for source in ('current', 'unknown'))
    assert unknown.verdict is known.verdict is Verdict.PASS
    values = [[p.value for p in scales(result)] for result in (known, unknown)]
    np.testing.assert_allclose(*values, rtol=1e-4)


@pytest.mark.parametrize(('source', 'constants'), [('current', [1.0, -1.0, 1.0, 1.0, 1.0, 1.0]),
                                                   ('unknown', [1.0, -3.0, 1.0, 1.0, 1.0, 1.0])])
def test_the_advice_on_a_reversed_sign_helps(usual, source, constants):
    robot, samples = usual.robot, usual.joints(3, SCALE)
    reversed_one = replace(samples, effort=samples.effort * [1, -1, 1, 1, 1, 1])
    values = replace(WITH_PRIORS, effort_source=source, torque_constants=constants)
    found = GAINS.result(robot, Recording(replace(
        reversed_one, effort=reversed_one.effort * effort_factor(robot, values))), values,
        Inputs())
    assert found.parameter('joint_2.effort_scale').value == pytest.approx(SCALE[1], rel=0.05)


def test_joints_far_softer_than_stated_widen_their_prior(usual):
    """Ten prior standard deviations of compliance at the joint that no weight loads."""
    soft = np.zeros(6)
    soft[0] = 10.0 * WITH_PRIORS.sag_std / usual.robot.effort_limit[0]
    record = usual.but(duration=24.0, compliance=soft)
    result = excitation.estimate_gains(
        record.robot, record.joints(3, SCALE), replace(WITH_PRIORS, posture_std=0.0))
    assert result.settings['widened_priors'] == ['compliance of joint_1']
    error = np.array([p.value for p in scales(result)]) - SCALE
    assert error @ np.linalg.solve(scale_covariance(result), error) < chi2.ppf(0.999, 6)
    stiff = excitation.estimate_gains(
        usual.robot, usual.joints(3, SCALE), replace(WITH_PRIORS, posture_std=0.0))
    assert stiff.settings['widened_priors'] == []


def test_links_and_rotors_are_known_from_a_fast_motion_without_repeats():
    """What smooths or samples their torques otherwise than the efforts, tells them from gains."""
    motion = exciting(base=2.0 * np.pi / 3.0, size=0.2)
    record = Record('robocal', TOOL, motion, duration=5.9)
    samples, robot = record.joints(0, SCALE), record.robot
    rotors = SCALE * expected_rotors(robot) * motion.at(record.time)[2]
    result = excitation.estimate_gains(robot, replace(samples, effort=samples.effort + rotors),
                                       replace(WITHOUT_PRIORS, arm_model_std=0.05))
    for found, true in zip(scales(result)[:5], SCALE[:5], strict=True):
        assert found.std is not None
        assert found.value is not None
        # Links that are 5 % off altogether and gains are told apart by the tool alone.
        assert 0.02 < found.std / true < 0.05
        assert abs(found.value - true) < min(0.02 * true, 2.0 * found.std)


def test_the_scales_correct_the_mass_of_another_tool(usual):
    """From more than a tenth off to less than a hundredth, scales being fifteen percent off."""
    before, after = [], []
    for seed in range(2):
        generator = np.random.default_rng(40 + seed)
        scale = generator.choice([0.85, 1.15], 6) * generator.uniform(0.98, 1.02, 6)
        calibrated = found_by(usual.but(compliance=COMPLIANCE), seed, scale, WITH_PRIORS)
        factor = np.array([p.value for p in scales(calibrated)])
        other = Record('robocal', random_tool(generator, 2.5), exciting(seed=7 + seed),
                       duration=10.0, compliance=COMPLIANCE)
        for errors, divisor in ((before, np.ones(6)), (after, factor)):
            samples = other.joints(seed, scale / divisor)
            mass = excitation.estimate(other.robot, samples, WITH_PRIORS).parameter('mass').value
            errors.append(abs(mass / 2.5 - 1.0))
    assert np.mean(before) > 0.1
    assert max(after) < 0.01


def test_an_uncertain_mass_widens_the_intervals(usual):
    sure, doubtful = (found_by(usual, 1, known_mass_std=std) for std in (0.0, 0.2))
    wider = [b.std / a.std for a, b in zip(scales(sure), scales(doubtful), strict=True)
             if a.std is not None and b.std is not None]
    assert min(wider) > 1.0 - 1e-9
    assert max(wider) > 2.0
    # And a wrong mass moves the scales by about what the width says.
    wrong = found_by(usual, 1, known_mass=TOOL.mass + 0.2)
    moved = [abs(b.value - a.value) for a, b in zip(
        scales(sure), scales(wrong), strict=True) if None not in (a.value, b.value)]
    stated = [p.std for p in scales(doubtful) if p.std is not None]
    assert max(moved) < 3.0 * max(stated)


def test_friction_that_changes_in_the_last_part_is_in_the_intervals(usual):
    """Without a prior of such a change; beyond what is certain, no gain is identified."""
    samples, late = usual.joints(1, SCALE), np.arange(1, 3)
    last = samples.time > np.quantile(samples.time, 0.8)
    plain = found_by(usual, 1)
    for change, kept in ((1.2, True), (12.0, False)):
        effort = samples.effort.copy()
        effort[np.ix_(last, late)] += change * np.sign(samples.velocity[np.ix_(last, late)])
        found = excitation.estimate_gains(
            usual.robot, replace(samples, effort=effort), WITHOUT_PRIORS)
        (check,) = (item for item in found.checks if item.name == 'held-out part of the motion')
        assert check.passed
        assert 'friction may have changed' in check.reason
        for joint in late:
            before, after = scales(plain)[joint], scales(found)[joint]
            assert (after.state is State.IDENTIFIED) == kept
            if kept:
                assert after.std > 1.5 * before.std
                assert abs(after.value - SCALE[joint]) < 3.0 * after.std


def test_scales_that_the_motion_does_not_excite_are_not_identified(usual, monkeypatch):
    monkeypatch.setattr(excitation, 'MAX_GAIN_STD', 1e-4)
    result = found_by(usual, 1)
    states = {p.state for p in scales(result)}
    assert State.NOT_IDENTIFIED in states
    hidden = next(p for p in scales(result) if p.state is State.NOT_IDENTIFIED)
    assert hidden.value is None
    assert '(limit 0.0 %)' in hidden.note
    assert len(result.covariance) == 66 + len(effort_scales(result))
    assert from_yaml(to_yaml(result)).parameters == result.parameters


@pytest.mark.parametrize(('joint', 'scale', 'words'), [(4, 4.0, "'joint_5', 4.0"), (1, -1.0, '')])
def test_an_implausible_scale_fails(usual, joint, scale, words):
    result = found_by(usual, 1, np.where(np.arange(6) == joint, scale, 1.0))
    assert result.verdict is Verdict.FAIL
    assert words in ' '.join(result.reasons)


def test_an_arm_that_is_heavier_than_its_urdf_as_a_whole_is_within_the_intervals(usual):
    result = excitation.estimate_gains(
        weighing(usual.robot, 1.0 / 1.07), usual.but(duration=24.0).joints(3, SCALE),
        replace(WITH_PRIORS, arm_model_std=0.05))
    assert result.verdict is Verdict.PASS, result.reasons
    for parameter, scale in zip(scales(result), SCALE, strict=True):
        low, high = parameter.interval(0.95)
        assert low < scale < high


def test_links_are_known_better_with_the_gains(usual):
    """For payloads by torque, with the gains of the same motion."""
    robot, record = usual.robot, usual.but(duration=24.0)
    described = weighing(robot, 1.0 / 1.04)
    result = excitation.estimate_gains(
        described, record.joints(3, SCALE), replace(WITH_PRIORS, arm_model_std=0.05))
    before = urdf_model(described, 0.05, relative_covariance(described, result, 0.1),
                        calibrated=True)
    after = known_with_gains(described, WITH_PRIORS, result, 0.1)
    assert after is not None
    low, high = robot.sampling_limits()
    q = np.random.default_rng(2).uniform(np.maximum(low, -2.0), np.minimum(high, 2.0), (20, 6))
    still, true = np.zeros_like(q), robot.gravity_torques(q)
    widths = []
    for arm in (before, after):
        # With the gains: efforts divided by them are those of the links.
        std = np.linalg.norm(arm.uncertain_torques(q, still, still, true), axis=2)
        error = arm.robot.gravity_torques(q) + (
            np.array([p.value for p in scales(result)]) / SCALE - 1.0) * true - true
        assert (np.abs(error) <= 3.3 * std)[:, 1:].all()
        widths.append(std[:, 1:].mean())
    assert widths[1] < 0.5 * widths[0]
    # Without links in the result, as of earlier versions, the arm stays that of the URDF.
    names = [p.name for p in scales(result)]
    alone = replace(result, parameters=tuple(scales(result)), covariance_names=tuple(names),
                    covariance=scale_covariance(result))
    assert known_with_gains(described, WITH_PRIORS, alone, 0.1) is None


def test_payloads_by_torque_use_the_links_that_were_found_with_the_gains(usual):
    """Of links that are all 4 % off, a payload is known several times better, and is right."""
    described = weighing(usual.robot, 1.0 / 1.04)
    gains = excitation.estimate_gains(
        described, usual.but(duration=24.0).joints(3, SCALE),
        replace(WITH_PRIORS, arm_model_std=0.05))
    other = Record('robocal', random_tool(np.random.default_rng(7), 2.5), exciting(seed=8),
                   duration=24.0)
    samples = other.joints(5, SCALE / np.array([p.value for p in scales(gains)]))
    with_them, without = (PAYLOAD.result(
        described, Recording(samples),
        replace(WITH_PRIORS, arm_model_std=0.05, known_mass=0.0, use_arm_model=used),
        Inputs(gains=gains)).parameter('mass') for used in (True, False))
    assert with_them.std < 0.5 * without.std
    for mass in (with_them, without):
        assert abs(mass.value - 2.5) < 3.3 * mass.std


def test_a_preview_expects_the_links_that_were_found_with_the_gains(usual):
    """Other links with these gains would contradict what both are known to be together."""
    described = weighing(usual.robot, 1.0 + 0.07 * np.random.default_rng(2).normal(size=(6, 1)))
    values = replace(WITH_PRIORS, arm_model_std=0.05, known_mass=0.0)
    gains = excitation.estimate_gains(described, usual.but(duration=24.0).joints(3, SCALE),
                                      replace(values, known_mass=TOOL.mass))
    other = Record('robocal', random_tool(np.random.default_rng(7), 2.5), exciting(seed=8),
                   duration=24.0)
    time, still = np.arange(125) / 125.0, np.zeros((125, 6))
    noise = 0.1 * np.random.default_rng(1).normal(size=still.shape)
    rest = Recording(JointSamples(described.joint_names, time, still, still, noise))
    expected = expected_result(
        PAYLOAD, described, values, Inputs(gains=gains),
        Trajectory(other.time, *other.motion.at(other.time)), rest, 2.5)
    mass = expected.parameter('mass')
    assert abs(mass.value - 2.5) < 2.0 * mass.std < 0.1
    assert not expected.settings['widened_priors']


def test_inputs_that_drive_gains_make_stale_are_not_used_with_them(usual):
    gains = excitation.estimate_gains(usual.robot, usual.joints(3, SCALE), WITH_PRIORS)
    arm = replace(gains, kind=ARM)
    friction, reference = (replace(gains, kind=kind, inputs=(Input(DRIVE_GAINS, 'none', ''),))
                           for kind in ('friction', 'payload_reference'))
    payload = replace(gains, kind='payload', inputs=())
    before = Inputs(
        {item.kind: item for item in (arm, friction, reference, payload)}, gains=arm,
        listed=(Input(DRIVE_GAINS, 'none', ''),), stale=('The friction result is stale.',))
    after = before.with_gains(gains)
    assert set(after.used) == {'payload', DRIVE_GAINS}
    assert after.gains is after.get(DRIVE_GAINS) is gains
    assert not after.stale
    assert [item.sha256 for item in after.listed] == [gains.sha256]


def test_a_link_without_mass_is_no_obstacle(usual):
    """URDFs have such links; what the motion makes of them need not be a body."""
    described = usual.robot.copy()
    described.model.inertias[4] = pin.Inertia.Zero()
    values = replace(WITH_PRIORS, arm_model_std=0.05)
    gains = excitation.estimate_gains(described, usual.joints(3, SCALE), values)
    other = Record('robocal', random_tool(np.random.default_rng(7), 2.5), exciting(seed=8),
                   duration=10.0)
    mass = PAYLOAD.result(
        described, Recording(other.joints(5)), replace(values, known_mass=0.0),
        Inputs(gains=gains)).parameter('mass')
    assert np.isfinite((mass.value, mass.std)).all()


def test_the_prior_of_the_urdf_holds_an_error_of_all_links_together(usual):
    covariance = urdf_model(usual.robot, 0.05, np.zeros((6, 6))).covariance
    masses = link_parameters(usual.robot)[:, 0]
    whole = np.zeros(len(covariance))
    whole[:60:10] = 1.0
    assert whole @ covariance @ whole == pytest.approx(
        0.05**2 * (np.sum(masses**2) + masses.sum()**2))


def test_links_that_weigh_what_their_model_excludes_contradict_it(usual):
    light = weighing(usual.robot, 0.7)
    result = excitation.estimate_gains(
        light, usual.but(duration=24.0).joints(3, SCALE), replace(WITH_PRIORS, arm_model_std=0.03))
    (check,) = [item for item in result.checks if item.name == 'weight of the links']
    mass = link_parameters(light)[:, 0].sum()
    assert not check.passed
    # Links that no joint moves, or only about a vertical axis, stay as light as they were.
    assert 0.5 < check.value / (mass * (1.0 / 0.7 - 1.0)) < 1.0
    assert 'kg more altogether than by the URDF' in check.reason
    assert 'arm_model_std' in check.reason
    # Whoever says that little is known of the links gets wide intervals.
    said = excitation.estimate_gains(
        light, usual.but(duration=24.0).joints(3, SCALE), replace(WITH_PRIORS, arm_model_std=0.3))
    assert next(item for item in said.checks if item.name == 'weight of the links').passed


def test_motors_that_saturate_are_estimated(usual):
    record = usual.but(duration=24.0)
    samples, limit = record.joints(3, SCALE), record.robot.effort_limit
    bent = replace(samples, effort=samples.effort * (
        1.0 + 0.06 * (samples.effort / SCALE / limit)**2))
    errors = []
    for std in (0.0, 0.03):
        result = excitation.estimate_gains(
            record.robot, bent, replace(WITH_PRIORS, saturation_std=std))
        known = [p for p in scales(result) if p.value is not None]
        scale = [SCALE[record.robot.joint_names.index(p.name.split('.')[0])] for p in known]
        errors.append([(p.value - true) / p.std for p, true in zip(known, scale, strict=True)])
    assert np.abs(errors[0]).max() > 4.0
    assert np.abs(errors[1]).max() < 3.3


def test_errors_that_the_estimate_finds_do_not_make_the_gains_larger(usual):
    """Errors of the links of either sign: the gains follow them, and are right in the mean."""
    record, shifts = usual.but(duration=24.0), []
    generator = np.random.default_rng(5)
    links = link_parameters(record.robot)
    for change in 0.1 * generator.normal(size=(4, len(links), 1)):
        for sign in (-1.0, 1.0):
            other = with_links(record.robot, links * (1.0 + sign * change),
                               np.zeros(record.robot.n))
            samples = record.joints(3, SCALE)
            motion = record.motion.at(samples.time)
            apart = np.array([other.inverse_dynamics(*item) - record.robot.inverse_dynamics(*item)
                              for item in zip(*motion, strict=True)])
            result = excitation.estimate_gains(
                record.robot, replace(samples, effort=samples.effort + SCALE * apart),
                replace(WITH_PRIORS, arm_model_std=0.05))
            shifts.append(np.mean([
                (p.value - SCALE[record.robot.joint_names.index(p.name.split('.')[0])]) / p.std
                for p in scales(result) if p.value is not None]))
    assert abs(np.mean(shifts)) < 0.2, shifts
