# SPDX-License-Identifier: Apache-2.0
"""Recovery of known friction, unidentified parameters, and isolation of joints with bad runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.arms import arm
from support.friction_cell import (
    NAMES,
    RANDOM_ALONE,
    SPEEDS,
    TOOL,
    WRIST,
    Record,
    Tool,
    Truth,
    both_ways,
    loaded,
    record,
)
from support.friction_results import payload_result

from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.friction.estimator import (
    FRICTION,
    assemble,
    estimate,
    fit_joints,
    friction_temperature,
    merge,
    select_joints,
    summary,
)
from robocal_ros.friction.fit import FrictionFit
from robocal_ros.friction.parameters import FrictionParameters
from robocal_ros.friction.runs import find_runs
from robocal_ros.messages.samples import JointSamples, Recording
from robocal_ros.results.provenance import Inputs
from robocal_ros.results.result import CalibrationResult, Efforts, Parameter, State, Verdict, rms
from robocal_ros.robot.arm_model import (
    ArmModel,
    link_parameters,
    parameter_names,
    urdf_model,
    with_links,
)
from robocal_ros.robot.friction_law import (
    TEMPERATURE_STD,
    SteadyFriction,
    friction_by_joint,
)
from robocal_ros.robot.model import Robot
from robocal_ros.robot.setup import ARM, DRIVE_GAINS, TORQUE_ZERO, with_own_units, zero_names

WRIST_JOINT, ELBOW, SHOULDER = 5, 2, 1
WRIST_NAME, ELBOW_NAME = 'joint_6', 'joint_3'
HEAVY = Truth((4.3, 4.8), (7.9, 8.6), (0.05, 0.046), (6.2, 5.6))
DEFAULTS = FrictionParameters()
ALL_NAMES = tuple(f'{WRIST_NAME}.{name}_{direction}'
                  for direction in ('forward', 'backward') for name in NAMES)


@pytest.fixture(scope='module')
def wrist() -> Record:
    return record({WRIST_JOINT: WRIST}, both_ways(WRIST_JOINT, SPEEDS))


@pytest.fixture(scope='module')
def two_joints() -> Record:
    return record({WRIST_JOINT: WRIST, ELBOW: HEAVY},
                  [*both_ways(WRIST_JOINT, SPEEDS), *both_ways(ELBOW, SPEEDS)], tool=TOOL)


def law_and_errors(
    result: CalibrationResult, joint: str, truth: Truth, most: float
) -> tuple[SteadyFriction, np.ndarray]:
    """Return a law, and its errors, which are at most some deviations at each speed."""
    law, speed = friction_by_joint(result)[joint], np.geomspace(0.006, 0.5, 6)
    speed = np.append(speed, -speed)
    off = law.torque(speed) - truth.torque(speed)
    assert (np.abs(off) < most * law.deviation(speed)).all()
    return law, off


def found_by(made: Record, robot: Robot, values: FrictionParameters = DEFAULTS, **changes
             ) -> tuple[CalibrationResult, list[FrictionFit]]:
    recording = Recording(made.samples(**changes))
    found = fit_joints(robot, recording, values)
    return assemble(robot, recording, values, found), found


def numbers(result: CalibrationResult, joint: str = WRIST_NAME) -> set[str]:
    return {p.name.removeprefix(f'{joint}.').rsplit('_', 1)[0] for p in result.parameters
            if p.name.startswith(joint) and p.state is State.IDENTIFIED}


def test_torque_zeros_are_no_difference_between_the_directions(wrist, robocal):
    zero = np.linspace(-0.5, 0.4, 6)
    names = zero_names(robocal)
    found = replace(
        payload_result(), kind=TORQUE_ZERO, parameters=tuple(
            Parameter(name, 'N·m', float(value), 0.1)
            for name, value in zip(names, zero, strict=True)),
        covariance_names=names, covariance=0.01 * np.eye(6), inputs=())
    samples = wrist.samples()
    inputs = Inputs(used={TORQUE_ZERO: found})

    def estimated(joints: JointSamples, inputs: Inputs) -> CalibrationResult:
        return FRICTION.result(robocal, Recording(joints), DEFAULTS, inputs)

    plain = estimated(samples, Inputs())
    zeroed = estimated(replace(samples, effort=samples.effort + zero), inputs)
    level = f'{WRIST_NAME}.coulomb_forward'
    assert zeroed.parameter(level).value == pytest.approx(plain.parameter(level).value, abs=1e-9)
    # Their covariance is that of the levels, too, with opposite signs.
    assert zeroed.parameter(level).std == pytest.approx(
        np.hypot(plain.parameter(level).std, 0.1), rel=1e-6)
    assert friction_by_joint(plain)[WRIST_NAME].holds_zero
    assert not friction_by_joint(zeroed)[WRIST_NAME].holds_zero
    assert FRICTION.kinds(DEFAULTS) == ('payload', TORQUE_ZERO)


@pytest.mark.parametrize('kind', [ARM, DRIVE_GAINS])
def test_drive_gains_and_the_links_that_change_with_them_count_once(two_joints, robocal, kind):
    """If all scales are larger, friction is smaller, and all links of an arm are lighter."""
    truth, share = loaded(robocal, TOOL), 0.03
    names, links = parameter_names(truth.joint_names), link_parameters(truth)
    # Links are 10 % off in the description, or the description is right.
    described = with_links(truth, links / (1.1 if kind == ARM else 1.0), np.zeros(6))
    values = np.concatenate((links.ravel(), np.zeros(6), np.ones(6)))
    together = share * np.concatenate((-links.ravel(), np.zeros(6), np.ones(6)))
    identified = replace(
        payload_result(), kind=kind, inputs=(), covariance_names=names,
        covariance=np.outer(together, together), parameters=tuple(
            Parameter(name, '1', float(value), abs(float(std)))
            for name, value, std in zip(names, values, together, strict=True)))

    def found_with(robot: Robot, *used: CalibrationResult) -> CalibrationResult:
        return FRICTION.result(
            robot, Recording(two_joints.samples()), replace(DEFAULTS, arm_model_std=0.0),
            Inputs({item.kind: item for item in used}, gains=used[0] if used else None))

    plain = found_with(truth)
    result = found_with(described, identified)
    assert result.verdict is Verdict.PASS, result.reasons
    for name in (f'{ELBOW_NAME}.coulomb_forward', f'{WRIST_NAME}.viscous_backward'):
        expected, got = plain.parameter(name), result.parameter(name)
        scaled = np.hypot(expected.std, share * expected.value)
        if kind == ARM:
            assert got.value == pytest.approx(expected.value, rel=1e-9)
            assert got.std == pytest.approx(scaled, rel=0.02)
        else:
            # Gravity by the description does not change with the scales: its error is friction.
            assert abs(got.value - expected.value) < got.std
            assert got.std > 0.99 * scaled


class TestRecovery:
    """Truth in, truth out."""

    def test_several_joints_in_one_record_under_load(self, two_joints, robocal):
        result, found = found_by(two_joints, loaded(robocal, TOOL))
        assert result.verdict is Verdict.PASS
        assert [item.joint for item in found] == [ELBOW_NAME, WRIST_NAME]
        laws = friction_by_joint(result)
        assert HEAVY.curve_error(laws[ELBOW_NAME]) < 3.0
        assert WRIST.curve_error(laws[WRIST_NAME]) < 3.0
        names = result.covariance_names
        assert len(set(names)) == len(names) == 16
        # The tilt of the base alone links the joints; an error of gravity adds to one direction,
        # not the other.
        level, _ = found_by(two_joints, loaded(robocal, TOOL), replace(DEFAULTS, tilt_std=0.0))
        apart = np.array([[one[:7] != other[:7] for other in names] for one in names])
        assert not level.covariance[apart].any()
        assert result.covariance[apart].any()
        i, j = (names.index(f'{ELBOW_NAME}.coulomb_{side}') for side in ('forward', 'backward'))
        assert result.covariance[i, j] < 0.0
        for name in names:
            assert result.parameter(name).std == pytest.approx(
                np.sqrt(result.covariance[names.index(name), names.index(name)]))
        assert np.linalg.eigvalsh(result.covariance).min() > 0.0

    def test_a_column_that_slides_has_newtons_and_metres(self):
        truth = Truth((60.0, 55.0), (90.0, 80.0), (0.04, 0.036), (60.0, 65.0))
        column = arm('column').robot()
        made = record({0: truth}, both_ways(0, SPEEDS), name='column')
        effort = made.effort()
        # One of the runs is pushed for 0.4 s.
        effort[made.rows(5)[900:1000], 0] += 200.0
        recording = Recording(made.samples(effort=effort))
        result = with_own_units(column, assemble(
            column, recording, DEFAULTS, fit_joints(column, recording, DEFAULTS)))
        assert result.verdict is Verdict.PASS
        units = {p.name.partition('.')[2]: p.unit for p in result.parameters}
        assert [units[f'{name}_forward'] for name in NAMES] == ['N', 'N', 'm/s', 'N·s/m']
        for name, value in zip(NAMES, truth.vector()[:4], strict=True):
            low, high = result.parameter(f'joint_1.{name}_forward').interval(0.9999)
            assert low < value < high
        shown = ' '.join([
            summary(result), *(p.note for p in result.parameters),
            *(f'{fit.what} {fit.unit}' for fit in (*result.fit, *result.validation)),
            *(f'{check.unit} {check.reason}' for check in result.checks),
            *(f'{series.x_label} {series.y_label}' for series in result.series)])
        assert 'rad' not in shown.split()
        assert 'N·m' not in shown
        assert 'the torque jumped by' in shown
        assert 'm/s' in shown

    def test_estimates_without_noise_are_the_truth(self, wrist, robocal):
        result, _ = found_by(wrist, robocal, noise=replace(RANDOM_ALONE, effort=0.0, velocity=0.0))
        np.testing.assert_allclose(result.values(ALL_NAMES), WRIST.vector(), rtol=2e-3)

    def test_curve_within_three_percent_of_the_truth(self, wrist, robocal):
        for seed in range(2):
            result, _ = found_by(wrist, robocal, seed=seed)
            assert result.verdict is Verdict.PASS
            assert WRIST.curve_error(friction_by_joint(result)[WRIST_NAME]) < 3.0

@pytest.mark.parametrize('rate', [0.0, 4.0])
def test_friction_that_falls_during_the_runs_is_that_of_their_end(robocal, rate):
    """Gears warm up while they are measured, steadily or at first."""
    speeds = np.geomspace(SPEEDS[0], SPEEDS[-1], 24)
    speeds = [*speeds[::2], *speeds[1::2][::-1]]
    made = record({WRIST_JOINT: WRIST}, both_ways(WRIST_JOINT, speeds), rate=125.0)
    runs = find_runs(made.samples(), [WRIST_JOINT])
    begin, end = made.time[runs[0].start], made.time[runs[-1].stop - 1]
    left = np.clip((end - made.time) / (end - begin), 0.0, 1.0)
    factor = 1.0 + 0.2 * (np.expm1(rate * left) / np.expm1(rate) if rate else left)
    effort = made.samples(RANDOM_ALONE).effort.copy()
    effort[:, WRIST_JOINT] += (factor - 1.0) * WRIST.torque(made.velocity[:, WRIST_JOINT])
    result = estimate(robocal, Recording(made.samples(RANDOM_ALONE, effort=effort)), DEFAULTS)
    error = result.values(ALL_NAMES) - WRIST.vector()
    std = np.sqrt(np.diag(result.covariance))
    assert (np.abs(error) < 3.5 * std).all()
    assert (np.abs(error) < 0.05 * WRIST.vector()).all()
    torques = [name != 'stribeck_velocity' for name in NAMES] * 2
    assert np.median((error / WRIST.vector())[torques]) == pytest.approx(0.0, abs=0.012)
    assert result.settings['laws'][WRIST_NAME]['drift'] == pytest.approx(0.2, abs=0.03)
    assert 'Friction fell by' in ' '.join(result.reasons)


@pytest.mark.parametrize(('count', 'scatter'), [(5, 0.01), (7, 0.03)])
def test_a_rise_towards_standstill_is_no_drift_where_speeds_only_grow(robocal, count, scatter):
    """Slow runs came first, so that friction seems to fall with time."""
    truth = Truth((1.31, 1.25), (1.56, 1.5), (0.08, 0.09), (0.76, 0.7))
    speeds = np.geomspace(0.04, 0.6, count)
    made = record({WRIST_JOINT: truth}, both_ways(WRIST_JOINT, speeds, span=0.2, longest=4.0),
                  rate=125.0)
    slowest = np.array([0.04, -0.04])
    off = []
    for seed in range(8):
        generator = np.random.default_rng(seed)
        factor = np.append(0.0, scatter * generator.normal(size=len(made.runs)))
        effort = made.torque + 0.1 * generator.normal(size=made.torque.shape)
        effort[:, WRIST_JOINT] += factor[made.run] * truth.torque(made.velocity[:, WRIST_JOINT])
        result, _ = found_by(made, robocal, seed=seed, effort=effort)
        if WRIST_NAME in (laws := friction_by_joint(result)):
            law = laws[WRIST_NAME]
            off.append((law.torque(slowest) - truth.torque(slowest)) / law.deviation(slowest))
    assert len(off) >= 4
    assert np.abs(off).max() < 3.29
    assert rms(np.concatenate(off)) < 1.4


@pytest.mark.parametrize('size', [0.0, 1.0, 3.0])
def test_runs_scatter_by_what_is_stated_of_them(robocal, size):
    """Whatever they scatter by beside their noise; there is no size up to which that is chance."""
    made = record({WRIST_JOINT: WRIST}, both_ways(WRIST_JOINT, SPEEDS))
    _, (quiet,) = found_by(made, robocal)
    noise = np.median([p.std for p in quiet.usable])
    scatter = size * noise * np.random.default_rng(3).normal(size=1 + len(made.runs))
    effort = made.effort()
    effort[:, WRIST_JOINT] += np.where(made.run > 0, scatter[made.run], 0.0)
    _, (item,) = found_by(made, robocal, effort=effort)
    fits = item.choice.fits.values()
    chi_square = sum(float(np.square(fit.residual / fit.side.std).sum()) for fit in fits)
    freedom = sum(len(fit.residual) - len(fit.value) for fit in fits)
    assert 0.6 < chi_square / freedom < 1.0


class TestGravityIsUncertainToo:
    """Where the links really are, and what they carry, is known within limits only."""

    def test_sagging_joints_stay_within_the_intervals(self, robocal):
        """Encoders do not see the sag; gravity acts where the links are."""
        inside = total = 0
        for seed in range(6):
            sag = np.random.default_rng(seed).normal(0.0, 4e-4, 6)
            made = record({ELBOW: HEAVY}, both_ways(ELBOW, SPEEDS), tool=TOOL)
            samples = made.samples(seed=seed, position=made.position + sag)
            result = estimate(loaded(robocal, TOOL), Recording(samples), DEFAULTS)
            for side, direction in enumerate(('forward', 'backward')):
                for name in ('coulomb', 'static'):
                    p = result.parameter(f'{ELBOW_NAME}.{name}_{direction}')
                    inside += abs(p.value - getattr(HEAVY, name)[side]) < 2.58 * p.std
                    total += 1
        assert inside >= total - 3

    @pytest.mark.parametrize('tilt', [(0.0, -0.2), (0.2, 0.2)])
    def test_a_base_out_of_level_stays_within_the_intervals(self, robocal, tilt):
        """The axis of the first joint is vertical by the URDF, so that only tilt loads it."""
        along, across = np.radians(tilt)
        gravity = 9.81 * np.array([np.sin(along), np.sin(across), -1.0])
        made = record({0: WRIST}, both_ways(0, SPEEDS), gravity=gravity)
        result, _ = found_by(made, robocal)
        assert result.verdict is Verdict.PASS
        error = result.values([f'joint_1.coulomb_{side}' for side in ('forward', 'backward')]
                              ) - np.array(WRIST.coulomb)
        std = result.parameter('joint_1.coulomb_forward').std
        assert (np.abs(error) < 3.29 * std).all()

    @pytest.mark.parametrize('off', [Tool(0.1, np.array([0.0, -0.08, 0.0])),
                                     Tool(0.15, np.array([0.0, 0.08, 0.0]))])
    def test_links_that_balance_have_the_gravity_of_their_errors(self, robocal, off):
        """A wrist's gravity by the URDF is small, but not that of what its links have too much."""
        made = record({3: WRIST}, both_ways(3, SPEEDS), tool=off)

        def errors(arm: ArmModel | None) -> tuple[np.ndarray, float]:
            result = estimate(robocal, Recording(made.samples()), DEFAULTS, arm=arm)
            names = [f'joint_4.coulomb_{side}' for side in ('forward', 'backward')]
            return result.values(names) - WRIST.coulomb, result.parameter(names[0]).std

        error, std = errors(None)
        assert (np.abs(error) < 1.96 * std).all()
        exact, _ = errors(urdf_model(robocal, 0.0, np.zeros((6, 6))))
        assert np.abs(error).max() < 0.3 * np.abs(exact).max()

    def test_torques_of_the_positions_are_no_friction(self, robocal):
        """Slow runs cover few degrees, over which ripple is one torque, alike in both ways."""
        made = record({WRIST_JOINT: WRIST}, both_ways(WRIST_JOINT, np.geomspace(0.005, 0.6, 10)))
        off = []
        for seed in range(6):
            generator = np.random.default_rng(seed)
            # Of each pair of runs; none at rest.
            torque = np.append(0.0, np.repeat(0.12 * generator.normal(size=10), 2))
            effort = made.effort(seed)
            effort[:, WRIST_JOINT] += torque[made.run]
            result, (item,) = found_by(made, robocal, seed=seed, effort=effort)
            assert item.passed, item.objections
            law = friction_by_joint(result)[WRIST_NAME]
            speed = np.geomspace(0.006, 0.5, 6)
            off.append((law.torque(speed) - WRIST.torque(speed)) / law.deviation(speed))
            both = 0.5 * (law.torque(speed) - law.torque(-speed))
            truth = 0.5 * (WRIST.torque(speed) - WRIST.torque(-speed))
            assert rms(both / truth - 1.0) < 0.06
        assert np.abs(off).max() < 3.29

    @pytest.mark.parametrize(('cycles', 'phase'), [(1, 0.4), (2, 1.9), (2, -0.5), (3, 2.6)])
    def test_ripple_of_few_periods_per_turn_is_neither_gravity_nor_friction(
            self, robocal, cycles, phase):
        made = record({WRIST_JOINT: WRIST}, [
            run for speed, start in zip(SPEEDS, np.linspace(-0.6, 0.6, len(SPEEDS)), strict=True)
            for run in both_ways(WRIST_JOINT, [speed], start=start)])
        effort = made.effort()
        effort[:, WRIST_JOINT] += 0.05 * np.sin(
            cycles * made.position[:, WRIST_JOINT] + phase)
        result, (item,) = found_by(made, robocal, effort=effort)
        assert item.passed, item.objections
        _, off = law_and_errors(result, WRIST_NAME, WRIST, 3.29)
        assert rms(off) < 0.05

    @pytest.mark.parametrize('degrees', [2.0, -6.0])
    def test_a_base_that_leans_beyond_the_prior_is_recognised(self, robocal, degrees):
        """By how the torque changes over the positions of the runs."""
        gravity = 9.81 * np.array([np.sin(np.radians(degrees)), 0.0, -np.cos(np.radians(degrees))])
        made = record({0: HEAVY}, [
            run for speed, start in zip(SPEEDS, np.linspace(-0.6, 0.6, len(SPEEDS)), strict=True)
            for run in both_ways(0, [speed], start=start)], gravity=gravity)
        result, (item,) = found_by(made, robocal)
        if item.passed:
            law = friction_by_joint(result)['joint_1']
            speed = np.array([0.01, 0.1, 0.5, -0.01, -0.1, -0.5])
            off = law.torque(speed) - HEAVY.torque(speed)
            assert (np.abs(off) < 3.29 * law.deviation(speed)).all()
        else:
            assert item.wrong_gravity

    @pytest.mark.parametrize('mass', [0.2, 0.3, 0.5])
    def test_a_load_that_weighs_no_more_than_links_may_be_off(self, robocal, mass):
        """What it bends the runs by is no ripple, which took 4 N·m of friction with it."""
        made = record({ELBOW: HEAVY}, both_ways(ELBOW, SPEEDS, span=0.4),
                      tool=replace(TOOL, mass=mass))
        result, (item,) = found_by(made, robocal)
        assert item.passed, item.objections
        law, _ = law_and_errors(result, ELBOW_NAME, HEAVY, 3.29)
        assert HEAVY.curve_error(law) < 3.0
        # An arm whose links are known leaves no room for it.
        _, (certain,) = found_by(made, robocal, replace(DEFAULTS, arm_model_std=0.001))
        assert certain.wrong_gravity == (mass > 0.2)

    def test_a_load_that_bends_all_runs_alike_is_no_build_up(self, robocal):
        """Over one short range, it is larger at the end of each run, in both directions."""
        made = record({SHOULDER: HEAVY}, both_ways(SHOULDER, SPEEDS, span=0.04, shortest=0.3),
                      tool=replace(TOOL, mass=0.3))
        for seed in range(2):
            result, (item,) = found_by(made, robocal, seed=seed)
            assert item.passed, item.objections
            law_and_errors(result, 'joint_2', HEAVY, 3.29)

    @pytest.mark.parametrize('phase', [0.5, 3.5])
    def test_slow_ripple_over_a_part_of_its_period_is_no_gravity(self, robocal, phase):
        made = record({ELBOW: HEAVY}, both_ways(ELBOW, SPEEDS))
        effort = made.effort()
        effort[:, ELBOW] += 0.5 * np.sin(8.5 * made.position[:, ELBOW] + phase)
        result, (item,) = found_by(made, robocal, effort=effort)
        assert item.passed, item.objections
        law, _ = law_and_errors(result, ELBOW_NAME, HEAVY, 2.0)
        assert HEAVY.curve_error(law) < 3.0

    def test_what_is_known_of_the_links_narrows_the_intervals(self, two_joints, robocal):
        held, recording = loaded(robocal, TOOL), Recording(two_joints.samples())
        name = f'{ELBOW_NAME}.coulomb_forward'
        values = replace(DEFAULTS, tilt_std=0.0)
        by_urdf, known = (estimate(held, recording, values, arm=arm).parameter(name).std
                          for arm in (None, urdf_model(robocal, 0.002, np.zeros((6, 6)))))
        assert known < 0.85 * by_urdf

    def test_a_load_known_within_limits_widens_the_intervals(self, two_joints, robocal):
        recording = Recording(two_joints.samples())
        arms = [loaded(robocal, replace(TOOL, mass=mass)) for mass in (2.0, 2.02)]
        certain = estimate(arms[0], recording, DEFAULTS)
        uncertain = estimate(arms[0], recording, DEFAULTS, arms[1:])
        name = f'{ELBOW_NAME}.coulomb_forward'
        # The runs tell next to nothing of the load beside friction.
        assert uncertain.parameter(name).value == pytest.approx(
            certain.parameter(name).value, abs=0.1 * certain.parameter(name).std)
        posture = two_joints.position[len(two_joints.time) // 2]
        change = np.ptp([arm_.gravity_torque(posture)[ELBOW] for arm_ in arms])
        added = uncertain.parameter(name).std**2 - certain.parameter(name).std**2
        assert np.sqrt(added) == pytest.approx(change, rel=0.5)

    @pytest.mark.parametrize('span', [0.13, 0.4])
    def test_a_load_within_its_limits_bends_the_law_within_its_intervals(self, robocal, span):
        """Fast runs are longer than slow ones, and the load weighs otherwise there."""
        made = record({ELBOW: HEAVY}, both_ways(ELBOW, SPEEDS, span=span), tool=TOOL)
        off = []
        for seed in range(4):
            masses = TOOL.mass + 0.02 * (np.random.default_rng(seed).normal() + np.arange(2.0))
            assumed, other = (loaded(robocal, replace(TOOL, mass=mass)) for mass in masses)
            result = estimate(assumed, Recording(made.samples(seed=seed)), DEFAULTS, [other])
            off += [(p.value - getattr(HEAVY, name)[side]) / p.std
                    for side, direction in enumerate(('forward', 'backward')) for name in NAMES
                    for p in [result.parameter(f'{ELBOW_NAME}.{name}_{direction}')]
                    if p.value is not None]
        assert len(off) > 20
        assert np.abs(off).max() < 3.29
        assert rms(np.array(off)) < 1.2


class TestHonesty:
    """Parameters that the data cannot determine are not identified."""

    def test_no_low_speeds_no_stribeck_numbers(self, robocal):
        made = record({WRIST_JOINT: WRIST}, both_ways(WRIST_JOINT, np.geomspace(0.15, 0.6, 6)))
        for seed in range(2):
            result, (item,) = found_by(made, robocal, seed=seed)
            assert numbers(result) == {'coulomb', 'viscous'}
            assert result.verdict is Verdict.PASS
            static = result.parameter(f'{WRIST_NAME}.static_forward')
            assert static.value is None
            assert static.state is State.NOT_IDENTIFIED
            assert 'low' in static.note
            # Where it was measured, the simpler model is right.
            assert WRIST.curve_error(item.law(), 0.15, 0.6) < 3.0

    def test_forcing_the_full_model_makes_no_numbers_up(self, robocal):
        made = record({WRIST_JOINT: WRIST}, both_ways(WRIST_JOINT, np.geomspace(0.15, 0.6, 6)))
        result, (item,) = found_by(made, robocal, FrictionParameters(model='stribeck'))
        assert item.stribeck_unidentified
        assert numbers(result) <= {'coulomb', 'viscous'}

    @pytest.mark.parametrize(('model', 'expected'), [
        ('coulomb', {'coulomb'}),
        ('coulomb_viscous', {'coulomb', 'viscous'}),
        ('stribeck', set(NAMES)),
    ])
    def test_a_forced_model(self, wrist, robocal, model, expected):
        result, (item,) = found_by(wrist, robocal, FrictionParameters(
            model=model, fit_threshold=100.0))
        assert numbers(result) == expected
        assert result.method == model
        assert item.choice
        assert {fit.model for fit in item.choice.fits.values()} == {model}
        law = item.law()
        assert (law.reference_load, law.std) == (item.reference_load, item.std)
        if model == 'coulomb':
            np.testing.assert_allclose(law.torque(np.array([-0.7, 0.01])), (
                -law.coulomb[1], law.coulomb[0]))

    def test_a_fit_that_misses_the_points_fails_with_both_degrees(self, wrist, robocal):
        result, (item,) = found_by(wrist, robocal, FrictionParameters(model='coulomb'))
        assert result.verdict is Verdict.FAIL
        assert item.fit_degree > 5.0
        assert item.held_out_degree is not None
        assert item.held_out_degree > 5.0
        assert 'fit degree' in result.reasons[0]
        assert '(limit 5.0 %)' in result.reasons[0]
        assert numbers(result) == set()

    def test_degrees_are_those_of_the_definition(self, wrist, robocal):
        _, (item,) = found_by(wrist, robocal)
        torque = np.array([p.torque for p in item.usable])
        fitted = item.law().torque(np.array([p.speed for p in item.usable]))
        expected = 100.0 * np.sqrt(((torque - fitted)**2).sum() / (torque**2).sum())
        assert item.fit_degree == pytest.approx(expected, rel=1e-6)

    def test_too_few_speeds_for_held_out_ones_are_not_vouched_for(self, robocal):
        made = record({WRIST_JOINT: WRIST}, both_ways(WRIST_JOINT, [0.1, 0.3, 0.5]))
        result, _ = found_by(made, robocal)
        assert result.validation == ()
        assert result.verdict is Verdict.NOT_EVALUATED

    def test_a_wrong_payload_is_distinguished_from_friction(self, robocal):
        made = record({ELBOW: HEAVY}, both_ways(ELBOW, SPEEDS, span=0.4), tool=TOOL)
        result, (item,) = found_by(made, robocal)
        assert result.verdict is Verdict.FAIL
        assert ('its payload, link masses, drive gains or gravity direction are wrong'
                in ' '.join(item.objections))
        assert item.wrong_gravity
        assert any(check.name == f'{ELBOW_NAME}: gravity' and not check.passed
                   for check in result.checks)
        right, _ = found_by(made, loaded(robocal, TOOL))
        assert right.verdict is Verdict.PASS
        gravity = next(c for c in right.checks if c.name == f'{ELBOW_NAME}: gravity')
        assert 'differ by' in gravity.reason
        assert gravity.passed


class TestBadRuns:
    """A bad run is left out by name; a joint with too few left fails alone."""

    def spoilt(self, made: Record, which: range, joint: int = WRIST_JOINT) -> np.ndarray:
        effort = made.effort()
        for number in which:
            rows = made.rows(number)
            effort[rows[len(rows) // 2:][:25], joint] += 4.0
        return effort

    def test_a_few_are_left_out(self, wrist, robocal):
        result, (item,) = found_by(wrist, robocal, effort=self.spoilt(wrist, range(5, 7)))
        assert result.verdict is Verdict.PASS
        assert result.counts['rejected_runs'] == 2
        assert result.counts['runs'] == len(wrist.runs)
        assert '2 rejected' in result.reasons[0]
        assert WRIST.curve_error(item.law()) < 3.0

    def test_runs_too_short_to_be_read_are_counted(self, robocal):
        short = replace(both_ways(WRIST_JOINT, [0.5])[0], cruise=0.35)
        way = 0.5 * 0.35 + 0.125
        made = record({WRIST_JOINT: WRIST}, [
            *both_ways(WRIST_JOINT, SPEEDS), short,
            replace(short, start=short.start + way, speed=-0.5)])
        result, _ = found_by(made, robocal)
        assert result.counts['runs'] == 2 * len(SPEEDS) + 2
        assert result.counts['rejected_runs'] == 2
        assert '16 runs used, 2 rejected: +0.5' in result.reasons[0]
        assert 'constant for too short a time' in result.reasons[0]

    def test_many_fail_the_joint_and_no_other(self, two_joints, robocal):
        effort = self.spoilt(two_joints, range(1, 14))
        result, found = found_by(two_joints, loaded(robocal, TOOL), effort=effort)
        assert result.verdict is Verdict.FAIL
        assert [item.passed for item in found] == [True, False]
        reason = result.reasons[0]
        assert f"Joint '{WRIST_NAME}'" in reason
        assert 'usable runs' in reason
        assert 'runs were rejected, first at +0.005 rad/s: the torque jumped by' in reason
        assert set(friction_by_joint(result)) == {ELBOW_NAME}
        with pytest.raises(DataError, match='was not fitted'):
            found[1].law()

    def test_a_joint_that_was_asked_for_and_never_ran_fails_alone(self, wrist, robocal):
        result, found = found_by(
            wrist, robocal, FrictionParameters(measure_joints=[ELBOW_NAME, WRIST_NAME]))
        assert [item.passed for item in found] == [False, True]
        assert result.verdict is Verdict.FAIL
        assert f"'{ELBOW_NAME}': 0 usable runs forward" in result.reasons[0]

    def test_joints_that_nobody_asked_for_are_left_out(self, two_joints, robocal):
        result, found = found_by(two_joints, loaded(robocal, TOOL),
                                 FrictionParameters(measure_joints=[ELBOW_NAME]))
        assert [item.joint for item in found] == [ELBOW_NAME]
        assert result.verdict is Verdict.PASS

    def test_no_run_at_all(self, robocal):
        made = record({}, [])
        with pytest.raises(DataError, match='run of joint joint_1, .*joint_6.* method .motion'):
            found_by(made, robocal)

    def test_nothing_recorded(self, wrist, robocal):
        with pytest.raises(DataError, match='No joint states are recorded'):
            estimate(robocal, Recording(wrist.samples().rows(0, 0)), DEFAULTS)

    def test_efforts_without_friction(self, wrist, robocal):
        with pytest.raises(ConfigurationError, match='such efforts hold no friction'):
            estimate(robocal, Recording(wrist.samples()),
                     replace(DEFAULTS, effort_contains='external'))

    @pytest.mark.parametrize(('value', 'word'), [(0.0, 'zero'), (1.2, 'stuck at 1.2')])
    def test_dead_effort(self, wrist, robocal, value, word):
        effort = wrist.effort()
        effort[:, WRIST_JOINT] = value
        with pytest.raises(DataError, match=f"'{WRIST_NAME}' is {word}"):
            found_by(wrist, robocal, effort=effort)

def with_temperatures(result: CalibrationResult, found: dict[str, float]) -> CalibrationResult:
    return replace(result, settings={**result.settings, 'temperatures': found})


class TestMerging:
    """Joints that passed count, and keep what others had."""

    @pytest.fixture(scope='class', name='both')
    @classmethod
    def _both(cls, two_joints, robocal) -> CalibrationResult:
        return estimate(loaded(robocal, TOOL), Recording(two_joints.samples()), DEFAULTS)

    def test_parts_make_the_whole_again(self, both):
        elbow, wrist = (select_joints(both, [name]) for name in (ELBOW_NAME, WRIST_NAME))
        assert {p.name.split('.')[0] for p in elbow.parameters} == {ELBOW_NAME}
        assert len(elbow.checks) == 3
        assert len(elbow.series) == 2
        merged = merge(elbow, wrist)
        assert merged is not None
        assert [p.name for p in merged.parameters] == [p.name for p in both.parameters]
        for joint in (ELBOW_NAME, WRIST_NAME):
            np.testing.assert_array_equal(
                select_joints(merged, [joint]).covariance, select_joints(both, [joint]).covariance)
        assert merged.verdict is Verdict.PASS

    def test_a_joint_measured_anew_replaces_the_old_one(self, both):
        newer = replace(both, parameters=tuple(
            replace(p, value=9.0) if p.name == f'{WRIST_NAME}.coulomb_forward' else p
            for p in both.parameters))
        merged = merge(both, select_joints(newer, [WRIST_NAME]))
        assert merged is not None
        assert merged.parameter(f'{WRIST_NAME}.coulomb_forward').value == 9.0
        assert len(merged.parameters) == len(both.parameters)

    @pytest.mark.parametrize('what', ['fit', 'gravity'])
    def test_a_joint_that_failed_keeps_its_old_numbers(self, both, what):
        failing = replace(both, checks=tuple(
            replace(check, passed=False) if check.name == f'{WRIST_NAME}: {what}' else check
            for check in both.checks))
        assert failing.verdict is Verdict.FAIL
        merged = merge(both, failing)
        assert merged is not None
        assert merged.verdict is Verdict.PASS
        assert len(merged.parameters) == len(both.parameters)
        alone = merge(None, failing)
        assert alone is not None
        assert set(friction_by_joint(alone)) == {ELBOW_NAME}

    def test_a_joint_that_was_not_held_against_left_out_speeds_is_not_filed(self, both):
        unseen = replace(both, validation=both.validation[:1])
        merged = merge(None, unseen)
        assert merged is not None
        assert set(friction_by_joint(merged)) == {both.validation[0].what}

    def test_nothing_passed_and_nothing_old(self, both):
        failing = replace(both, checks=tuple(replace(c, passed=False) for c in both.checks))
        assert merge(None, failing) is None

    def test_torques_of_other_motor_constants_are_not_combined(self, both):
        def of_constant(result, factor):
            return replace(result, efforts=Efforts('current', 'all', (factor,)))

        wrist = of_constant(select_joints(both, [WRIST_NAME]), 7.0)
        for factor, joints in ((7.0, {ELBOW_NAME, WRIST_NAME}), (8.0, {WRIST_NAME})):
            merged = merge(of_constant(both, factor), wrist)
            assert merged is not None
            assert {p.name.split('.')[0] for p in merged.parameters} == joints

    def test_temperatures_stay_with_their_joints(self, both):
        assert np.isnan(friction_temperature(both))
        old = with_temperatures(both, {ELBOW_NAME: 20.0, WRIST_NAME: 30.0})
        assert friction_temperature(old) == 25.0
        new = with_temperatures(select_joints(both, [WRIST_NAME]), {WRIST_NAME: 40.0})
        merged = merge(old, new)
        assert merged is not None
        assert merged.settings['temperatures'] == {ELBOW_NAME: 20.0, WRIST_NAME: 40.0}

    def test_results_of_several_temperatures_tell_the_change_per_kelvin(self, both):
        def measured(scale, temperature):
            scaled = ('coulomb', 'static', 'viscous')
            wrist = select_joints(both, [WRIST_NAME])
            return with_temperatures(replace(wrist, parameters=tuple(
                replace(p, value=scale * p.value)
                if p.value is not None and p.name.split('.')[1].startswith(scaled) else p
                for p in wrist.parameters)), {WRIST_NAME: temperature})

        name, merged = f'{WRIST_NAME}.temperature_factor', None
        stds = [TEMPERATURE_STD]
        for scale, temperature, state in ((1.0, 20.0, None), (0.96, 24.0, State.NOT_IDENTIFIED),
                                          (0.75, 45.0, State.IDENTIFIED),
                                          (1.0, 20.0, State.IDENTIFIED)):
            merged = merge(merged, measured(scale, temperature))
            assert merged is not None
            found = {p.name: p for p in merged.parameters}.get(name)
            if found is None:
                assert state is None
                continue
            assert found.state is state
            stds.append(found.std)
        assert (np.diff(stds) < 0.0).all()
        # By a tenth, friction may have changed between two results for other reasons.
        assert stds[-1] > 0.1 / 25.0 / np.sqrt(2.0) * 0.9
        assert abs(found.value + 0.01) < 2.0 * found.std
        law = friction_by_joint(merged, 30.0)[WRIST_NAME]
        cold = friction_by_joint(merged)[WRIST_NAME]
        assert law.torque(0.2) == pytest.approx((1.0 + 10.0 * found.value) * cold.torque(0.2))
        assert law.deviation(0.2) > cold.deviation(0.2)


def test_one_direction_alone_is_identified_and_the_other_one_named(robocal):
    made = record({WRIST_JOINT: WRIST}, [
        run for run in both_ways(WRIST_JOINT, SPEEDS) if run.speed > 0.0])
    forward = estimate(robocal, Recording(made.samples()), DEFAULTS)
    assert forward.verdict is Verdict.PASS
    for name in ('coulomb', 'viscous'):
        parameter = forward.parameter(f'{WRIST_NAME}.{name}_forward')
        assert abs(parameter.value - getattr(WRIST, name)[0]) < 3.3 * parameter.std
    parameter = forward.parameter(f'{WRIST_NAME}.coulomb_backward')
    assert parameter.state is State.NOT_IDENTIFIED
    assert '0 usable runs backward' in parameter.note
    assert friction_by_joint(forward) == {}
    # Its width is checked all the same.
    (width,) = [check for check in forward.checks if check.name.endswith(': width')]
    parameter = forward.parameter(f'{WRIST_NAME}.coulomb_forward')
    assert 0.3 < width.value / (100.0 * 1.96 * parameter.std / parameter.value) < 3.0
    narrow = replace(DEFAULTS, max_friction_interval=0.9 * width.value / 100.0)
    refused = estimate(robocal, Recording(made.samples()), narrow)
    assert [check.name for check in refused.checks if not check.passed] == [width.name]
    assert 'the 95 % interval of the friction torque' in ' '.join(refused.reasons)
