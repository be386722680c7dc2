# SPDX-License-Identifier: Apache-2.0
"""Method excitation against independently computed torques and wrenches."""

from __future__ import annotations

import re
import warnings
from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest
from scipy.stats import chi2
from support.arms import arm
from support.excitation_cell import (
    BIAS,
    FRICTION,
    SENSORS,
    TOOL,
    WRENCH_NOISE,
    Motion,
    Record,
    exciting,
    random_tool,
    tensor_of,
    wrench_of,
)
from support.forward import Reference, Tool

from robocal_ros.errors import ConfigurationError, DataError, ExcitationError, RobocalError
from robocal_ros.estimation.block_averages import Blocks
from robocal_ros.messages.samples import JointSamples, Recording, StreamCounts
from robocal_ros.payload import excitation
from robocal_ros.payload.estimator import PAYLOAD
from robocal_ros.payload.model import BODY, PARAMETERS
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.regression import (
    Rows,
    joint_terms,
    likely_sizes,
    torque_rows,
    validated,
    widened_std,
    wrench_rows,
)
from robocal_ros.results.provenance import Inputs
from robocal_ros.results.result import CalibrationResult, State, Verdict
from robocal_ros.results.store import from_yaml, to_yaml
from robocal_ros.robot.arm_model import (
    ArmModel,
    link_parameters,
    on_leaning_base,
    urdf_model,
    with_links,
)
from robocal_ros.robot.friction_law import SteadyFriction
from robocal_ros.robot.model import Robot

SOURCES = ('wrench', 'torque')
WITHOUT_PRIORS = PayloadParameters(
    method='excitation', posture_std=0.0, sag_std=0.0, delay_std=0.0, sensor_gain_std=0.0,
    load_friction_std=0.0, friction_change_std=0.0, saturation_std=0.0, cable_stiffness_std=0.0,
    arm_model_std=0.001)
# Sensors are calibrated in these records.
WITH_PRIORS = PayloadParameters(method='excitation', sensor_gain_std=0.0)
MOMENTS = ('inertia_xx', 'inertia_yy', 'inertia_zz')


def rows_of(record: Record, source: str, values: PayloadParameters = WITHOUT_PRIORS,
            seed: int | None = None) -> Rows:
    if source == 'wrench':
        return wrench_rows(record.robot, record.joints(seed), record.readings(seed), values)
    return torque_rows(record.robot, record.joints(seed), values)


def estimated(record: Record, source: str, values: PayloadParameters = WITHOUT_PRIORS,
              seed: int | None = None, **more) -> CalibrationResult:
    if source == 'wrench':
        more = {'sensor': record.readings(seed), **more}
    return excitation.estimate(record.robot, record.joints(seed), values, **more)


def error_of(result: CalibrationResult, record: Record) -> np.ndarray:
    values = [p.value if p.value is not None else np.nan for p in result.parameters[:10]]
    return np.array(values) - tensor_of(record.tool)


@pytest.fixture(scope='module')
def usual() -> Record:
    return Record('robocal', TOOL, exciting())


# ------------------------------------------------------------------------------ recovery


@pytest.mark.parametrize('name', SENSORS)
@pytest.mark.parametrize('source', SOURCES)
def test_without_noise_the_truth_comes_out(name, source):
    record = Record(name, TOOL, exciting(name), duration=8.0)
    result = estimated(record, source)
    np.testing.assert_allclose(error_of(result, record), 0.0, atol=1e-6)
    assert result.frame == record.robot.tool_frame
    assert result.covariance_names == PARAMETERS


@pytest.mark.parametrize('seed', range(2))
def test_principal_moments_of_random_tools_are_within_five_percent(seed):
    generator = np.random.default_rng(30 + seed)
    record = Record('robocal', random_tool(generator), exciting(seed=seed))
    result = estimated(record, 'wrench', WITH_PRIORS, seed)
    assert result.verdict is Verdict.PASS
    found = np.array(result.values(PARAMETERS[4:]))
    tensor = np.zeros((3, 3))
    tensor[np.triu_indices(3)] = found
    tensor += np.triu(tensor, 1).T
    np.testing.assert_allclose(np.linalg.eigvalsh(tensor),
                               np.linalg.eigvalsh(record.tool.inertia), rtol=0.05)
    assert abs(error_of(result, record)[0]) < 0.003 * record.tool.mass


def test_what_the_result_says_of_itself(usual):
    result = estimated(usual, 'wrench', WITH_PRIORS, 1)
    assert (result.kind, result.method) == ('payload', 'excitation')
    std = [result.parameter(name).std for name in PARAMETERS]
    np.testing.assert_allclose(np.sqrt(np.diag(result.covariance)), std)
    assert result.settings['channels'][:2] == ['force x', 'force y']
    # A mean over ten readings scatters by the noise over the root of ten.
    for fit, noise in zip(result.fit, WRENCH_NOISE, strict=True):
        assert fit.after == pytest.approx(noise / np.sqrt(10.0), rel=0.2)
        assert fit.after < 0.3 * fit.before
    assert len(result.validation) == 6
    assert [series.x_label for series in result.series] == ['block'] * 6


@pytest.mark.parametrize('source', SOURCES)
def test_what_was_lost_of_a_sensor_that_was_used_is_told(usual, source):
    readings = replace(usual.readings(1), counts=StreamCounts(received=9, dropped=4))
    result = estimated(usual, source, seed=1, **(
        {'sensor': readings} if source == 'wrench' else {}))
    assert result.counts.get('readings') == (len(readings) if source == 'wrench' else None)
    assert result.counts.get('sensor_dropped') == (4 if source == 'wrench' else None)


def test_the_torque_that_may_be_unexplained_can_be_set_for_each_joint(usual):
    limits = [1e3] * 6
    for joint in (2, 4):
        limits[joint] = 1e-6
        (check,) = (check for check in estimated(usual, 'torque', replace(
            WITHOUT_PRIORS, max_unexplained_torque=limits), 1).checks
            if check.name == 'unexplained torque')
        assert not check.passed
        assert f'torque of {usual.robot.joint_names[joint]} ' in check.reason
        limits[joint] = 1e3


def test_torques_alone_hardly_show_inertia_and_the_result_says_so(usual):
    light = usual.but(tool=replace(TOOL, inertia=0.1 * TOOL.inertia))
    result = estimated(light, 'torque', seed=3)
    assert result.parameter('mass').state is State.IDENTIFIED
    for name in MOMENTS:
        assert result.parameter(name).state is State.NOT_IDENTIFIED
        assert 'of the mean moment (limit 10 %)' in result.parameter(name).note
    assert result.covariance_names == PARAMETERS[:4]
    assert from_yaml(to_yaml(result)).parameters == result.parameters


# --------------------------------------------------------------- what else is in the record

COMPLIANCE = np.array([3e-6, 4.5e-6, 9e-6, 3.5e-5, 5.5e-5, 9e-5])
OFFSET = 5e-4 * np.array([1.0, -1.0, 0.7, -0.5, 1.2, -0.8])
HIDDEN = {
    'compliance': {'compliance': COMPLIANCE},
    'offset': {'offset': OFFSET},
    'delay': {'delay': 3e-3},
}


@pytest.mark.parametrize('what', HIDDEN)
@pytest.mark.parametrize('source', SOURCES)
def test_nuisance_parameters_are_estimated_and_leave_the_payload_unbiased(
    usual, source, what, monkeypatch
):
    monkeypatch.setattr(excitation, 'MAX_INERTIA_STD', 9.0)
    spoilt = usual.but(duration=8.0, **HIDDEN[what])
    trusting, doubting = (
        np.abs(error_of(estimated(spoilt, source, values), spoilt))
        for values in (WITHOUT_PRIORS, WITH_PRIORS))
    assert trusting[1:4].max() > 1e-5
    assert doubting[1:4].max() < 0.25 * trusting[1:4].max()
    assert doubting[4:].max() < 0.25 * trusting[4:].max()


def test_columns_of_compliance_equal_the_effect_of_deflection(usual):
    """Against the wrench at places where a joint really sagged."""
    compliance, joint, step = 1e-6, 4, 2e-3
    reference = Reference(arm('robocal').urdf, 'tool0', (0.0, 0.0, -9.81), TOOL)
    blocks = Blocks.of(usual.joints(), 5.0, 0.2)
    name, std, column = list(joint_terms(
        usual.robot, blocks, blocks.centre.values_of(reference.torque),
        partial(wrench_of, 'robocal', TOOL), replace(WITHOUT_PRIORS, sag_std=1e-3)))[joint]
    assert name == 'compliance of joint_5'
    assert std == pytest.approx(1e-3 / usual.robot.effort_limit[joint])
    middle = 0.5 * (blocks.edges[1:] + blocks.edges[:-1])
    early, now, late = (reference.torque(*usual.motion.at(middle + shift))[:, joint]
                        for shift in (-step, 0.0, step))
    link = [item.copy() for item in usual.motion.at(middle)]
    for values, sag in zip(link, (now, (late - early) / (2 * step),
                                  (late - 2 * now + early) / step**2), strict=True):
        values[:, joint] -= compliance * sag
    expected = (wrench_of('robocal', TOOL, *link)
                - wrench_of('robocal', TOOL, *usual.motion.at(middle))) / compliance
    scale, inner = np.abs(expected).max(axis=0), slice(3, -3)
    np.testing.assert_allclose(column[inner] / scale, expected[inner] / scale, atol=0.01)


# -------------------------------------------------------- efficiency with random noise alone


@pytest.mark.parametrize('source', SOURCES)
def test_the_fit_is_that_of_all_rows(usual, source):
    """Against one system of every row that counts and of what is known beforehand."""
    rows = rows_of(usual, source, WITH_PRIORS, 7)
    fit = excitation.fit_rows(rows)
    own, system, priors = rows.width, fit.rows.columns, fit.rows.std[rows.width:]
    np.testing.assert_array_equal(system[:, :, :own], rows.columns)
    # The own columns of a channel are zero in all others.
    each = system[:, :, 10:own].reshape(*rows.measured.shape, len(rows.channels), -1)
    assert not each[~np.eye(len(rows.channels), dtype=bool)[:, None].repeat(
        each.shape[1], axis=1)].any()
    np.testing.assert_allclose(fit.residual, rows.measured - system @ fit.value, atol=1e-9)
    weight = 1.0 / np.concatenate((fit.noise[fit.used], priors))
    prior = np.eye(len(priors), system.shape[2], own)
    regressor = np.vstack((system[fit.used], prior)) * weight[:, None]
    measured = weight * np.concatenate((rows.measured[fit.used], np.zeros(len(priors))))
    freedom = fit.used.sum() / (fit.used.sum() - own)
    covariance = np.linalg.inv(regressor.T @ regressor) * freedom
    std = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(np.sqrt(np.diag(fit.covariance)), std, rtol=1e-6)
    expected = np.linalg.lstsq(regressor, measured)[0]
    np.testing.assert_allclose((fit.value - expected) / std, 0.0, atol=1e-6)


@pytest.mark.parametrize('source', SOURCES)
def test_a_base_far_out_of_level_is_found(usual, source):
    """Seven degrees, fourteen standard deviations: the second order is 0.8 % of gravity."""
    robot = on_leaning_base(usual.robot, np.radians([6.0, -4.0]))
    more = {'sensor': usual.readings(3)} if source == 'wrench' else {}
    values = replace(WITHOUT_PRIORS, tilt_std=0.005)
    result = excitation.estimate(robot, usual.joints(3), values, **more)
    level = estimated(usual, source, values, 3)
    names = result.covariance_names
    error = result.values(names) - tensor_of(TOOL)[[PARAMETERS.index(name) for name in names]]
    assert error @ np.linalg.solve(result.covariance, error) < chi2.ppf(0.999, len(names))
    assert result.covariance[0, 0] < 2.0 * level.covariance[0, 0]


def test_one_element_of_a_calibration_matrix_does_not_speak_for_the_others():
    names = [f'calibration of {i} by {j}' for i in 'xyz' for j in 'xyz'] + ['delay']
    std, variance = np.full(10, 0.005), np.full(10, 1e-7)
    value = 0.016 * np.random.default_rng(0).normal(size=10)
    value[-1] = 0.0
    # All are too large, together.
    wider = widened_std(names, std, value, variance)
    assert wider[:9] == pytest.approx(np.sqrt(np.mean(value[:9]**2)), rel=0.05)
    assert wider[9] == std[9]
    # One is far off, the others are not.
    value = np.array([0.03, *[0.001] * 8, 0.0])
    wider = widened_std(names, std, value, variance)
    assert wider[0] == pytest.approx(0.03, rel=0.05)
    assert (wider[1:] == std[1:]).all()
    # Each by itself is within its prior.
    assert (widened_std(names, std, np.full(10, 0.004), variance) == std).all()


@pytest.mark.parametrize(('deviations', 'widens'), [(2.5, False), (3.5, True)])
@pytest.mark.parametrize('told', [0.2, 0.9])
def test_a_prior_is_contradicted_by_three_deviations_however_little_is_told(
    told, deviations, widens
):
    """An estimate has the variance `told` times that of the prior, about zero."""
    std = np.array([0.005])
    wider = widened_std(['tilt'], std, deviations * np.sqrt(told) * std, (1.0 - told) * std**2)
    assert (wider[0] > std[0]) is np.bool_(widens)


@pytest.mark.parametrize('sizes', [(0.03, 1.5), (2.0, 0.1)])
def test_errors_of_one_kind_are_as_large_as_the_data_show(sizes):
    """Two kinds of errors that are seen together, through noise."""
    names = [f'cable, {i}' for i in range(6)] + [f'calibration, {i}' for i in range(36)]
    kinds, std = np.repeat(range(2), [6, 36]), np.full(42, 0.02)
    found = []
    for seed in range(20):
        generator = np.random.default_rng(seed)
        seen = 1000.0 * generator.normal(size=(60, 42))
        errors = std * np.array(sizes)[kinds] * generator.normal(size=42)
        covariance = np.linalg.inv(seen.T @ seen + np.diag(std**-2.0))
        value = covariance @ seen.T @ (seen @ errors + generator.normal(size=60))
        found.append(likely_sizes(names, std, value, covariance)[[0, -1]])
    np.testing.assert_allclose(np.median(found, axis=0), sizes, rtol=0.35)


@pytest.mark.parametrize('source', SOURCES)
def test_every_error_has_a_source_that_results_name(source, usual):
    rows = rows_of(usual, source, replace(WITH_PRIORS, sensor_gain_std=0.005))
    every = rows.with_nuisance(*rows.split(np.ones(rows.width))).names[rows.width:]
    known = tuple(start for starts in excitation._SOURCES.values() for start in starts)
    assert every
    assert [name for name in every if not name.startswith(known)] == []


def test_errors_that_the_data_do_not_show_keep_their_stated_size():
    std = np.array([0.02, 0.02, 0.1, 3.0])
    names = ['cable, force x', 'cable, force y', 'tilt of the base 1', 'arm 0']
    np.testing.assert_allclose(likely_sizes(names, std, np.zeros(4), np.diag(std**2)), 1.0)


def test_an_exact_sensor_locates_its_load_as_one_of_known_calibration():
    record = Record('robocal', replace(TOOL, mass=8.0), exciting())
    stated = np.array([
        [estimated(record, 'wrench', replace(WITH_PRIORS, sensor_gain_std=std), 1).parameter(
            name).std for name in ('com_x', 'com_y', 'com_z')] for std in (0.0, 0.01)])
    np.testing.assert_array_less(stated[1], 1.03 * stated[0])


def test_an_exact_sensor_does_not_weigh_by_its_ratio_of_gains():
    """Only forces weigh; what torques tell of gains is mostly noise."""
    record = Record('robocal', replace(TOOL, mass=3.0), exciting())
    errors = np.array([[
        estimated(record, 'wrench', replace(WITH_PRIORS, sensor_gain_std=std), seed).parameter(
            'mass').value - 3.0 for std in (0.0, 0.005)] for seed in range(4)])
    known, stated = np.sqrt(np.mean(errors**2, axis=0))
    assert stated < 4.0 * known


def test_hysteresis_of_a_sensor_is_not_taken_for_mass(usual):
    """Gauges that lag behind by 0.3 % of the load, over a fifth of its range."""
    readings = usual.readings(2)
    load = readings.wrench - readings.wrench.mean(axis=0)
    lag = np.zeros_like(load)
    for row, change in enumerate(np.diff(load, axis=0) / (0.2 * np.ptp(load, axis=0)), start=1):
        lag[row] = lag[row - 1] + np.abs(change) * (np.sign(change) - lag[row - 1])
    readings = replace(
        readings, wrench=readings.wrench - 0.003 * np.abs(load).max(axis=0) * lag)
    result = estimated(usual, 'wrench', replace(WITH_PRIORS, sensor_gain_std=0.005),
                       sensor=readings)
    assert deviates(result).max() < 4.0
    mass, *_, xx, _, _, yy, _, zz = np.abs(error_of(result, usual))
    assert mass < 1e-3
    assert max(xx, yy, zz) < 8e-5


def test_one_drive_that_saturates_leaves_the_payload_sharp(usual):
    samples = usual.joints(1)
    share = np.zeros(6)
    share[1] = 0.05
    effort = samples.effort * (1.0 + share * (samples.effort / usual.robot.effort_limit)**2)
    result = excitation.estimate(usual.robot, replace(samples, effort=effort),
                                 replace(WITH_PRIORS, excitation_source='torque'))
    assert result.parameter('mass').std < 0.003
    assert deviates(result).max() < 4.0


def test_offsets_of_efforts_that_drift_leave_the_payload_sharp(usual):
    samples = usual.joints(1)
    drift = np.outer(np.linspace(-0.1, 0.1, len(samples)), [1.0, 1.0, 0.7, 0.3, 0.3, 0.1])
    result = excitation.estimate(
        usual.robot, replace(samples, effort=samples.effort + drift),
        replace(WITH_PRIORS, excitation_source='torque'))
    assert result.parameter('mass').std < 0.003
    assert deviates(result).max() < 4.0


# ----------------------------------------------------------------------- reference run


def differential(
    robot: Robot, bare: JointSamples, loaded: JointSamples, known: ArmModel | None = None
) -> tuple[CalibrationResult, CalibrationResult]:
    """Return the result of a reference run by joint torques, and that of the run with tool."""
    reference = excitation.estimate(robot, bare, replace(WITHOUT_PRIORS, reference_run='record'))
    return reference, excitation.estimate(
        robot, loaded, replace(WITHOUT_PRIORS, reference_run='subtract'), reference=reference,
        arm=known)


def deviates(result: CalibrationResult) -> np.ndarray:
    """Return the errors of mass and centre, in standard deviations."""
    error = result.values(PARAMETERS[:4]) - tensor_of(TOOL)[:4]
    return np.abs(error) / np.sqrt(np.diag(result.covariance))[:4]


@pytest.mark.parametrize('source', SOURCES)
def test_a_reference_run_cancels_an_error_of_the_arm_s_model(usual, source):
    """The arm carries a body that its model lacks, in both runs."""
    hidden = replace(TOOL, mass=0.4, com=np.array([0.0, 0.02, 0.05]))
    reference = estimated(
        usual.but(tool=hidden), source, replace(WITHOUT_PRIORS, reference_run='record'), 1)
    assert reference.covariance_names == BODY
    assert reference.parameter('mass').value == pytest.approx(0.4, abs=5e-3)
    total = TOOL.mass + hidden.mass
    centre = (TOOL.mass * TOOL.com + hidden.mass * hidden.com) / total

    def about(tool, point) -> np.ndarray:
        arm = tool.com - point
        return tool.inertia + tool.mass * (arm @ arm * np.eye(3) - np.outer(arm, arm))

    both = replace(TOOL, mass=total, com=centre, inertia=about(TOOL, centre)
                   + about(hidden, centre))
    spoilt = usual.but(tool=both)
    alone = estimated(spoilt, source, seed=2)
    assert alone.parameter('mass').value == pytest.approx(total, abs=5e-3)
    result = estimated(spoilt, source, replace(WITHOUT_PRIORS, reference_run='subtract'), 2,
                       reference=reference)
    assert deviates(result).max() < 4.0
    assert result.covariance[0, 0] > alone.covariance[0, 0]
    assert result.settings['reference_run'] is True


def test_errors_of_links_cancel_between_runs_of_other_noise():
    """Weighted by its own noise, the run with load would contain them otherwise."""
    usual = Record('robocal', TOOL, exciting(), duration=16.0)
    bare = usual.but(tool=replace(TOOL, mass=1e-9))
    spread = np.linalg.cholesky(urdf_model(
        usual.robot, 0.05, np.zeros((6, 6))).covariance[:60, :60])
    change = spread @ np.random.default_rng(1).normal(size=60)
    wrong = with_links(
        usual.robot, link_parameters(usual.robot) + change.reshape(6, 10), np.zeros(6))
    joints = usual.joints(2)
    effort = joints.effort.copy()
    effort[:, 1] += 10.0 * np.random.default_rng(2).normal(size=len(effort))
    _, result = differential(wrong, bare.joints(1), replace(joints, effort=effort))
    assert deviates(result).max() < 3.3


def test_what_both_runs_leave_unexplained_is_in_no_interval_of_their_difference():
    """Ripple of the joints is in no model; the second motion begins later in its recording."""
    usual = Record('robocal', TOOL, exciting(), duration=26.0)
    bare = usual.but(tool=replace(TOOL, mass=1e-9))

    def rippled(joints: JointSamples) -> JointSamples:
        return replace(joints, effort=joints.effort + 0.5 * np.sin(24.0 * joints.position))

    joints = rippled(usual.joints(2))
    kept = joints.time >= joints.time[0] + 1.37
    joints = replace(joints, **{name: getattr(joints, name)[kept] for name in (
        'time', 'position', 'velocity', 'effort')})
    reference, result = differential(usual.robot, rippled(bare.joints(1)), joints)
    assert deviates(result).max() < 3.3
    assert np.sqrt(result.covariance[0, 0]) < 0.4 * reference.parameter('mass').std


def test_gains_off_by_what_is_stated_stay_in_the_intervals_of_a_differential_run():
    """The reference run has the same gains, which act on the payload in the other run."""
    usual = Record('robocal', TOOL, exciting(), duration=16.0)
    bare = usual.but(tool=replace(TOOL, mass=1e-9))
    known = urdf_model(usual.robot, 0.05, 0.02**2 * np.eye(usual.robot.n))
    ratios = []
    for seed in (1, 3):
        gains = 1.0 + 0.02 * np.random.default_rng(seed).normal(size=usual.robot.n)

        def amplified(record: Record, number: int, gains: np.ndarray = gains) -> JointSamples:
            joints = record.joints(number)
            return replace(joints, effort=joints.effort * gains)

        runs = amplified(bare, 2 * seed), amplified(usual, 2 * seed + 1)
        ratios.append([deviates(differential(usual.robot, *runs, model)[1])[0]
                       for model in (None, known)])
    without, with_gains = np.array(ratios).T
    assert without.max() > 4.0
    assert with_gains.max() < 3.3


def test_an_effort_of_the_wrong_sign_is_named_by_the_friction_that_drives_its_joint(usual):
    """Both runs have it; the last joint's hides in the accuracy of a centre without it."""
    robot = usual.robot
    bare = replace(usual, tool=Tool(1e-9, np.zeros(3), 1e-12 * np.eye(3)))

    def reversed_(joints: JointSamples) -> JointSamples:
        return replace(joints, effort=joints.effort * [1.0, 1.0, 1.0, 1.0, 1.0, -1.0])

    for results, right in ((differential(robot, bare.joints(5), usual.joints(6)), True),
                           (differential(robot, reversed_(bare.joints(5)),
                                         reversed_(usual.joints(6))), False)):
        for result in results:
            (check,) = (item for item in result.checks if item.name == 'sign of efforts')
            assert check.passed is right
            assert right or 'Friction would drive joint_6 instead' in check.reason


def test_a_reference_of_another_kind_is_refused(usual):
    other = estimated(usual, 'wrench', seed=1)
    with pytest.raises(ConfigurationError, match='Record it anew'):
        estimated(usual, 'wrench', replace(WITHOUT_PRIORS, reference_run='subtract'),
                  reference=other)


# ----------------------------------------------------------------------------- bad input


def identified_friction() -> SteadyFriction:
    offset, coulomb, viscous, asymmetry = FRICTION
    level = np.array([coulomb + offset, coulomb - offset])
    return SteadyFriction(level, level, np.ones(2),
                          np.array([viscous + asymmetry, viscous - asymmetry]))


def test_friction_that_was_identified_is_subtracted(usual):
    laws = dict.fromkeys(usual.robot.joint_names, identified_friction())
    fit = excitation.fit_rows(torque_rows(usual.robot, usual.joints(), WITHOUT_PRIORS, laws))
    # Nothing is left for the columns of friction.
    assert np.abs(fit.value[10:]).max() < 2e-3


def test_friction_that_grows_with_load_is_subtracted(usual):
    law, samples = identified_friction(), usual.joints()
    loaded = replace(law, load_factor=np.array([0.08, 0.05]), reference_load=3.0)
    load = samples.effort - law.torque(samples.velocity)
    heavy = replace(samples, effort=load + loaded.torque(samples.velocity, load))
    plain, found, added = (
        torque_rows(usual.robot, states, WITHOUT_PRIORS,
                    dict.fromkeys(usual.robot.joint_names, known))
        for states, known in ((samples, law), (heavy, loaded), (heavy, law)))
    clear = plain.valid & found.valid
    left, without = (np.sqrt(np.mean((rows.measured - plain.measured)[clear]**2))
                     for rows in (found, added))
    assert left < 0.03 * without


def test_a_motion_of_the_last_joint_alone_leaves_directions_unobservable(usual):
    sine, cosine = np.zeros((2, *usual.motion.sine.shape))
    sine[5] = 3.0 * usual.motion.sine[5]
    one = usual.but(motion=replace(usual.motion, sine=sine, cosine=cosine))
    with pytest.raises(ExcitationError, match='Use a motion that is faster') as refused:
        estimated(one, 'torque')
    assert refused.value.unobservable


def test_a_payload_over_the_limit_is_refused(usual):
    with pytest.raises(DataError, match=r'weighs 2\.00 kg, more than max_payload .*1\.5 kg'):
        estimated(usual, 'wrench', replace(WITHOUT_PRIORS, max_payload=1.5))


@pytest.mark.parametrize('value', [0.0, 3.0])
def test_dead_effort_is_refused(usual, value):
    samples = usual.joints()
    effort = samples.effort.copy()
    effort[:, 2] = value
    with pytest.raises(DataError, match="Effort of joint 'joint_3' is"):
        torque_rows(usual.robot, replace(samples, effort=effort), WITHOUT_PRIORS)


def test_a_measurement_that_saturates_is_refused_by_name(usual):
    samples, readings = usual.joints(1), usual.readings(1)
    effort = np.minimum(samples.effort, 0.8 * samples.effort.max(axis=0))
    with pytest.raises(DataError, match="effort of joint 'joint_1' stays at .* N·m .* saturates"):
        torque_rows(usual.robot, replace(samples, effort=effort), WITHOUT_PRIORS)
    wrench = readings.wrench.copy()
    wrench[:, 2] = np.maximum(wrench[:, 2], 0.8 * wrench[:, 2].min())
    with pytest.raises(DataError, match="force z of F/T sensor 'ft_wrist' stays at -.* N .* and"):
        wrench_rows(usual.robot, samples, replace(readings, wrench=wrench), WITHOUT_PRIORS)


def test_what_drivers_repeat_reaches_no_estimate(usual):
    """Both publish four times as often as they measure."""
    samples, readings = usual.joints(1), usual.readings(1)

    def repeated(item):
        step = 0.25 * np.median(np.diff(item.time))
        return replace(item, time=(item.time[:, None] + step * np.arange(4)).ravel(), **{
            name: np.repeat(getattr(item, name), 4, axis=0) for name in item.columns})

    def seen(robot, recording, values, inputs):
        np.testing.assert_array_equal(recording.joints.time, samples.time)
        np.testing.assert_array_equal(recording.wrenches['ft'].wrench, readings.wrench)
        raise DataError('Both have been seen.')

    with pytest.raises(DataError, match='seen'):
        replace(PAYLOAD, estimate=seen).result(usual.robot, Recording(
            repeated(samples), {'ft': repeated(readings)}), WITH_PRIORS, Inputs())


def test_a_sensor_that_fell_silent_is_refused(usual):
    readings = usual.readings()
    half = replace(readings, time=readings.time[:2000], wrench=readings.wrench[:2000])
    with pytest.raises(DataError, match="F/T sensor 'ft_wrist' do not span the motion"):
        wrench_rows(usual.robot, usual.joints(), half, WITHOUT_PRIORS)


@pytest.mark.parametrize(('ratio', 'passes'), [(1.5, False), (50.0, True)])
def test_a_push_in_the_last_part_fails_the_held_out_check_beyond_its_limit(usual, ratio, passes):
    readings = usual.readings(4)
    wrench = readings.wrench.copy()
    wrench[3200:3500, 1] += 6.0
    result = estimated(usual, 'wrench', replace(WITHOUT_PRIORS, max_held_out_ratio=ratio), seed=4,
                       sensor=replace(readings, wrench=wrench))
    (check,) = (item for item in result.checks if item.name == 'held-out part of the motion')
    assert (check.passed, check.limit) == (passes, ratio)
    if not passes:
        assert 'in force y (limit 1.5, max_held_out_ratio)' in ' '.join(result.reasons)


@pytest.mark.parametrize(('shift', 'passes'), [(0.4, True), (0.7, False)])
def test_a_sensor_that_drifts_in_the_last_part_widens_its_intervals(usual, shift, passes):
    """Up to max_force_residual; no sensor drifts by more within seconds."""
    readings, values = usual.readings(4), replace(WITHOUT_PRIORS, max_force_residual=0.5)
    late = readings.time > np.quantile(readings.time, 0.8)
    wrench = readings.wrench.copy()
    wrench[late, 1] += 1.25 * shift
    plain, found = (
        estimated(usual, 'wrench', values, seed=4, sensor=replace(readings, wrench=item))
        for item in (readings.wrench, wrench))
    (check,) = (item for item in found.checks if item.name == 'held-out part of the motion')
    assert check.passed is passes
    assert 'in force y' in check.reason
    assert ('the sensor may have drifted' in check.reason) is passes
    assert found.parameter('com_y').std > plain.parameter('com_y').std
    if passes:
        for name in PARAMETERS[:4]:
            low, high = found.parameter(name).interval(0.999)
            assert low < dict(zip(PARAMETERS, tensor_of(TOOL), strict=True))[name] < high


def test_a_pause_after_the_motion_leaves_torques_to_be_held_out() -> None:
    moving = Record('robocal', TOOL, exciting(), duration=7.5).joints(0)
    count = len(moving.time) // 2
    held = np.random.default_rng(0).normal(scale=0.1, size=(count, moving.effort.shape[1]))
    samples = replace(
        moving, time=np.arange(len(moving.time) + count) * np.diff(moving.time).mean(),
        position=np.pad(moving.position, ((0, count), (0, 0)), 'edge'),
        velocity=np.pad(moving.velocity, ((0, count), (0, 0))),
        effort=np.concatenate((moving.effort, moving.effort[-1] + held)))
    found = excitation.estimate(arm('robocal').robot(), samples, WITH_PRIORS)
    assert len(found.validation) == len(found.fit)
    assert all(fit.count > 5 for fit in found.validation)


@pytest.mark.parametrize(('rise', 'widened'), [(0.0, False), (1.5, True)])
def test_friction_that_rises_in_the_last_part_widens_intervals_by_torque(usual, rise, widened):
    samples = usual.joints(4)
    late = samples.time > np.quantile(samples.time, 0.8)
    effort = samples.effort.copy()
    effort[late, 4] += rise * np.sign(samples.velocity[late, 4])
    plain, found = (
        excitation.estimate(usual.robot, states, WITH_PRIORS)
        for states in (samples, replace(samples, effort=effort)))
    (check,) = (item for item in found.checks if item.name == 'held-out part of the motion')
    assert check.passed
    assert ('in torque of joint_5 (friction may have changed' in check.reason) is widened
    if widened:
        ratio = float(re.findall(r'up to (\d+\.\d+) times', check.reason)[0])
        assert ratio > 1.5
        for one, other in zip(found.parameters[:4], plain.parameters[:4], strict=True):
            assert one.std > other.std, one.name
        mass = found.parameter('mass')
        assert abs(mass.value - TOOL.mass) < 3.3 * mass.std


@pytest.mark.parametrize('begin', [0.5, 0.8])
def test_a_push_that_joint_torques_feel_leaves_the_truth_in_the_intervals(usual, begin):
    samples = usual.joints(4)
    pushed = (samples.time > np.quantile(samples.time, begin)) & (
        samples.time < np.quantile(samples.time, begin + 0.2))
    effort = samples.effort.copy()
    effort[np.ix_(pushed, [1, 2])] += 10.0
    found = excitation.estimate(
        usual.robot, replace(samples, effort=effort), WITH_PRIORS,
        arm=urdf_model(usual.robot, 0.005, 0.005**2 * np.eye(usual.robot.n), calibrated=True))
    assert deviates(found).max() < 3.3


def test_ripple_of_few_periods_per_turn_is_not_taken_for_the_payload(usual):
    """It looks like weight; of a joint whose friction is 2 N·m, it is 5 % in size here."""
    worst = []
    for seed in range(4):
        samples, random = usual.joints(seed), np.random.default_rng(seed)
        phase = random.uniform(0.0, 2.0 * np.pi, 6) + random.integers(1, 4, 6) * samples.position
        size = 0.05 * np.median(np.abs(usual.effort - usual.carried), axis=0)
        rippled = replace(samples, effort=samples.effort + size * np.sin(phase))
        worst.append(deviates(excitation.estimate(usual.robot, rippled, WITH_PRIORS)).max())
    assert max(worst) < 3.3


@pytest.mark.parametrize('share', [-0.06, 0.06])
def test_motors_that_saturate_leave_the_payload_in_its_intervals(usual, share):
    samples = usual.joints(3)
    size = usual.robot.effort_limit
    samples = replace(samples, effort=samples.effort + share * usual.effort**3 / size**2)
    result = excitation.estimate(usual.robot, samples, WITH_PRIORS)
    assert deviates(result).max() < 3.3


def test_a_negative_mass_is_refused_with_the_remedy(usual):
    readings = usual.readings(5)
    with pytest.raises(DataError, match=r'mass is -\d.*the opposite .*: set sensor_sign to -1\.'):
        estimated(usual, 'wrench', seed=5,
                  sensor=replace(readings, wrench=2.0 * BIAS - readings.wrench))
    # Links of the URDF that are not mounted are no matter of the sign.
    with pytest.raises(DataError, match=r'mass is -0\.2.*weigh 0\.3.* kg by the URDF, and'):
        estimated(usual.but(tool=Tool(-0.2, np.zeros(3))), 'wrench', seed=5)


def test_a_mass_that_may_be_zero_fails_as_such_without_a_share_of_it(usual):
    light = usual.but(tool=Tool(1e-4, np.zeros(3)))
    result = estimated(light, 'torque', WITH_PRIORS, seed=1)
    (check,) = (item for item in result.checks if item.name == 'payload seen')
    assert not check.passed
    assert 'kg (95 %), which does not differ from none' in check.reason
    assert '±' in check.reason
    assert not [item for item in result.checks if item.name == '95 % interval of the mass']


def test_the_last_part_is_predicted_from_the_rows_that_the_fit_uses(usual):
    every = rows_of(usual, 'torque', seed=1)
    measured, first = every.measured.copy(), slice(0, every.measured.shape[1] // 2)
    measured[2, first] += every.near_reversal[2, first]
    rows = replace(every, measured=measured)
    fit = excitation.solved(replace(rows, near_reversal=np.zeros_like(rows.valid)))
    assert fit.used[rows.near_reversal].all()
    # The part alone would leave out the rows beside reversals.
    assert not excitation.solved(rows.part(first)).used[rows.near_reversal[:, first]].any()
    parts = []

    def again(part: Rows):
        parts.append(excitation.solved(part))
        return parts[-1]

    validated(replace(fit, rows=rows), again, lambda part, _: part.columns, measured, 1.5)
    (part,) = parts
    np.testing.assert_array_equal(part.used, fit.used[:, :part.used.shape[1]])


@pytest.mark.parametrize('source', [excitation.estimate, excitation.estimate_gains])
def test_joints_at_rest_cause_no_warning(usual, source):
    sine, cosine = np.zeros((2, *usual.motion.sine.shape))
    sine[0] = usual.motion.sine[0]
    one = usual.but(motion=replace(usual.motion, sine=sine, cosine=cosine))
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        with pytest.raises(RobocalError):
            source(one.robot, one.joints(0), replace(WITH_PRIORS, known_mass=TOOL.mass))


@pytest.mark.parametrize(('mass', 'shift', 'share', 'passes'), [
    (0.97, 0.0, 0.37, True), (1.0, 4e-3, 0.37, True), (1.0, 4e-3, 0.8, True),
    (0.8, 0.0, 0.37, False)])
def test_a_load_that_changes_once_leaves_both_in_the_intervals(usual, mass, shift, share, passes):
    """As by a part that falls off, or a jaw that slides."""
    tool = replace(TOOL, mass=mass * TOOL.mass, com=TOOL.com + [shift, 0.0, -shift],
                   inertia=mass * TOOL.inertia)
    first, second = usual.readings(5), Record('robocal', tool, exciting()).readings(5)
    late = first.time > np.quantile(first.time, share)
    values = PayloadParameters(method='excitation')
    result = estimated(usual, 'wrench', values, seed=5, sensor=replace(
        first, wrench=np.where(late[:, None], second.wrench, first.wrench)))
    assert (result.verdict is Verdict.PASS) is passes
    assert 'constant load' in [check.name for check in result.checks]
    for each in (TOOL, tool):
        for name, truth in zip(PARAMETERS[:4], tensor_of(each)[:4], strict=True):
            low, high = result.parameter(name).interval(0.999)
            assert low < truth < high, name
    if not passes:
        said = re.search(r'change of the load after (\d+) % of the motion by -0\.(\d+) kg: fasten',
                         ' '.join(result.reasons))
        assert abs(int(said[1]) - 37) <= 2
        assert abs(int(said[2]) - 40) <= 2


def test_a_load_that_stays_is_not_taken_for_one_that_changes(usual):
    result = estimated(usual, 'wrench', PayloadParameters(method='excitation'), seed=5)
    assert 'constant load' not in [check.name for check in result.checks]


def test_the_stated_gain_of_the_sensor_covers_its_error(usual):
    readings = usual.readings(3)
    off = replace(readings, wrench=1.02 * readings.wrench)
    values = replace(WITHOUT_PRIORS, sensor_gain_std=0.01, max_mass_interval=0.1)
    result = excitation.estimate(usual.robot, usual.joints(3), values, sensor=off)
    mass = result.parameter('mass')
    # The gain multiplies all that the sensor carries, also links of the URDF.
    links = usual.robot.distal_inertia('ft_wrist').mass
    carried = TOOL.mass + links
    assert mass.value == pytest.approx(1.02 * carried - links, rel=2e-3)
    # First moments show in forces and torques: their gains, each stated, are nearly the same.
    low, high = 0.01 / np.sqrt(2.0), np.hypot(0.01, 0.01 / np.sqrt(3.0))
    assert low * carried < mass.std < 1.05 * high * carried
    assert mass.interval(0.999)[0] < TOOL.mass


def test_residuals_of_newtons_fail_though_they_are_the_same_throughout(usual):
    """A load that swings adds as much to the held-out part as to the rest."""
    readings = usual.readings(2)
    swing = np.outer(np.sin(2.0 * np.pi * 2.3 * readings.time), [2.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    result = excitation.estimate(
        usual.robot, usual.joints(2), WITHOUT_PRIORS,
        sensor=replace(readings, wrench=readings.wrench + swing))
    assert result.verdict is Verdict.FAIL
    assert 'Force x differs by 1.' in ' '.join(result.reasons)


class Sticking(Motion):
    """Drives that stick and jerk when they reverse, below the resolution of most encoders."""

    def at(self, time: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        q, v, a = super().at(time)
        order = self.base * np.arange(1, self.sine.shape[1] + 1)
        phase = np.outer(time, order)
        jerk = (np.sin(phase) * order**3) @ self.cosine.T - (
            np.cos(phase) * order**3) @ self.sine.T
        size, speed = 2e-4, 0.02
        turn = np.tanh(v / speed)
        steep = 1.0 - turn**2
        return (q - size * turn, v - size * steep * a / speed,
                a - size * steep * (jerk / speed - 2.0 * turn * (a / speed)**2))


def test_jerks_of_the_drives_at_reversals_do_not_move_the_centre(usual):
    """Blocks and harmonics of the motion follow them in part only."""
    errors = []
    for seed in range(8):
        smooth = exciting(seed=seed, harmonics=4)
        record = usual.but(duration=24.0, motion=Sticking(*(
            getattr(smooth, item.name) for item in fields(Motion))))
        result = estimated(record, 'wrist', PayloadParameters())
        errors.append(error_of(result, record)[1:4] / [p.std for p in result.parameters[1:4]])
    # What was left in the columns of compliance moved it by up to 7 standard deviations.
    assert np.sqrt(np.mean(np.square(errors))) < 1.5


@pytest.mark.parametrize('lever', [0.0, 0.3])
def test_cross_talk_is_the_sensor_s_whatever_the_lever_of_its_tool(usual, lever):
    """Ranges of torque and force of wrist sensors are up to 0.1 m apart."""
    record = usual.but(tool=Tool(2.0, np.array([0.004, -0.003, lever]), TOOL.inertia))
    values = PayloadParameters(method='excitation')
    rows = rows_of(record, 'wrench', values)
    rows = rows.with_nuisance(
        excitation.fit_rows(rows_of(record, 'wrench')).value[:10], np.zeros((6, 1)))
    place = rows.names.index('calibration of torque x by force y')
    force = rows.measured[1] + rows.known[1] - BIAS[1]
    told = rows.std[place] * np.std(rows.columns[3, :, place]) / np.std(force)
    assert told >= values.sensor_gain_std * 0.08
