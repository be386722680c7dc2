# SPDX-License-Identifier: Apache-2.0
"""From two sets of end positions to a result with a verdict, and everything that spoils it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm
from support.compliance_cell import (
    COMPLIANCE,
    SEEN,
    TARGET,
    TEN_KILOGRAMS,
    Cell,
    Tool,
    assert_true,
    play,
    postures,
)
from support.friction_results import friction_result, payload_result

from benchmarks.compliance import Effects, run_cell
from robocal_ros.compliance.estimator import estimate, estimate_sets, summary
from robocal_ros.compliance.measurement import (
    LOADED,
    REGISTRATION,
    UNLOADED,
    EndPosition,
    Registration,
    find_end_positions,
    register,
    rest_of,
)
from robocal_ros.compliance.model import (
    Load,
    Mounted,
    carried_on,
    given_load,
    identified_load,
    mounted_of,
)
from robocal_ros.compliance.parameters import ComplianceParameters
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.messages import JointSamples, Recording, StationaryInterval, TrackerSamples
from robocal_ros.parameters import checked
from robocal_ros.results import CalibrationResult, State, Verdict, from_yaml, report_html, to_yaml
from robocal_ros.robot import compliance_by_joint

WHERE = postures(30, seed=3)
# The encoders of the cell are ideal.
VALUES = ComplianceParameters(target_frame='tool0', target_xyz=TARGET.tolist(), encoder_std=0.0)


def found(
    cell: Cell | None = None, seed: int = 0, load: Load | None = None,
    values: ComplianceParameters = VALUES, registration: Registration | None = None,
) -> CalibrationResult:
    cell = cell or Cell()
    return estimate_sets(cell.robot(), *cell.sets(WHERE, seed),
                         Mounted(load or cell.known_load()), values, registration)


@pytest.fixture(scope='module')
def result() -> CalibrationResult:
    return found(Cell(encoder_step=2e-5))


def test_a_tracker_whose_stand_was_kicked_between_the_sets_spoils_nothing() -> None:
    """It turned by 0.2 mrad: what that displaces is neither scatter of the angles nor sag."""
    cell, axis = Cell(encoder_step=2e-5), np.array([0.6, 0.48, 0.64])
    unloaded, loaded = cell.sets(WHERE, 0)
    result = estimate_sets(cell.robot(), unloaded, [
        replace(item, point=item.point + 2e-4 * np.cross(axis, item.point)) for item in loaded],
        Mounted(cell.known_load()), VALUES)
    assert result.verdict is Verdict.PASS, result.reasons
    assert_true(result, SEEN)
    assert result.parameters[1].std < 0.06 * COMPLIANCE[1]
    sag, = result.validation
    assert sag.after < 0.05 * sag.before


class TestResult:
    """Thirty postures, ten kilograms, the reference cell's tracker and encoders."""

    def test_numbers_lie_in_their_intervals(self, result):
        assert result.verdict is Verdict.PASS, result.reasons
        assert_true(result, SEEN)

    def test_the_sag_of_held_out_postures_is_removed(self, result):
        sag, = result.validation
        assert sag.count == 6
        assert 2e-4 < sag.before < 2e-3
        assert sag.after < 0.05 * sag.before

    def test_the_first_joint_has_no_number(self, result):
        parameter = result.parameter('joint_1.compliance')
        assert parameter.state is State.NOT_IDENTIFIED
        assert parameter.value is None
        assert parameter.std is None
        assert 'unobservable' in parameter.note
        assert 'joint_1.compliance' not in result.covariance_names
        assert 'Unobservable: joint_1.' in summary(result)

    def test_relative_deviations_and_weak_joints_are_told(self, result):
        notes = {p.name: p.note for p in result.parameters}
        assert 'relative standard deviation' in notes['joint_2.compliance']
        assert 'weak' in notes['joint_6.compliance']
        assert 'weak' not in notes['joint_2.compliance']

    def test_the_file_gives_back_the_same_numbers(self, result):
        again = from_yaml(to_yaml(result))
        assert again.parameters == result.parameters
        assert again.validation == result.validation
        assert compliance_by_joint(again) == compliance_by_joint(result)

    def test_the_report_draws_the_sag_before_and_after(self, result):
        page = report_html([result])
        assert 'Sag before and after correction, held-out postures' in page
        assert 'measured before correction' in page
        assert 'not identified: joint_1.compliance' in page.lower()

    def test_drops_and_counts_are_filed(self, result):
        assert result.counts['unloaded_postures'] == 30
        assert result.counts['readings'] == 2 * 30 * 20
        assert result.settings['load_mass'] == 10.0
        assert result.settings['registration'] == 'least_squares'


class TestPulled:
    """A rope over a pulley beside the arm, tight by a weight of 8 kg."""

    TENSION = 80.0
    PULLEY = np.array([0.4, 2.5, 0.6])
    POINT = np.array([0.0, 0.05, 0.1])
    PULLED = replace(VALUES, pull_force=TENSION, pull_force_std=0.5, pull_point=POINT.tolist(),
                     pull_towards=PULLEY.tolist(), load_mass=10.0,
                     load_com=TEN_KILOGRAMS.com.tolist())

    def estimated(self, values: ComplianceParameters = PULLED, tension: float = TENSION):
        cell = Cell(encoder_step=2e-5, rope=(tension, self.POINT, self.PULLEY))
        return estimate_sets(cell.robot(), *cell.sets(WHERE),
                             mounted_of(cell.robot(), values, None), values, cell.registration())

    def test_the_first_joint_of_an_upright_arm_is_found(self):
        result = self.estimated()
        assert result.verdict is Verdict.PASS, result.reasons
        assert_true(result, COMPLIANCE)
        assert result.parameter('joint_1.compliance').std < 0.1 * COMPLIANCE[0]
        assert 'pulled by 80 N towards' in result.settings['mounted_loaded']

    def test_doubt_of_the_tension_widens_the_intervals(self):
        sure, doubted = (
            self.estimated(replace(self.PULLED, pull_force_std=std)).parameter(
                'joint_1.compliance') for std in (0.0, 8.0))
        # A tenth of the tension is a tenth of the compliance of the joint that it alone loads.
        assert doubted.std == pytest.approx(np.hypot(sure.std, 0.1 * COMPLIANCE[0]), rel=0.2)

    def test_a_rope_that_is_not_stated_shows(self):
        result = self.estimated(replace(self.PULLED, pull_force=0.0))
        assert result.verdict is not Verdict.PASS

    def test_it_is_no_part_of_what_is_carried_later(self):
        robot = Cell().robot()
        arm, said = carried_on(robot, replace(self.PULLED, carried='load'), None)
        bare, _ = carried_on(robot, replace(self.PULLED, carried='load', pull_force=0.0), None)
        np.testing.assert_array_equal(arm.gravity_torque(WHERE[0]), bare.gravity_torque(WHERE[0]))
        assert 'pulled' not in said

    def test_motions_are_slowed_for_the_drives_against_it(self):
        robot = Cell().robot()
        pulled = mounted_of(robot, self.PULLED, None).on(robot, loaded=True)
        free = mounted_of(robot, replace(self.PULLED, pull_force=0.0), None).on(robot, loaded=True)
        still = np.zeros(6)
        torque = pulled.inverse_dynamics(WHERE[0], still, still) - free.inverse_dynamics(
            WHERE[0], still, still)
        np.testing.assert_allclose(torque, Cell(
            rope=(self.TENSION, self.POINT, self.PULLEY))._against_rope(WHERE[0]), atol=1e-4)
        assert np.abs(torque).max() > 10.0

    def test_a_rope_without_pulley_is_refused(self):
        with pytest.raises(ConfigurationError, match='pull_towards is zero; expected the place'):
            replace(self.PULLED, pull_towards=[0.0, 0.0, 0.0]).check()


def test_what_cannot_be_told_from_bending_is_named() -> None:
    """All postures near each other: bending of the stand looks like that of the shoulder."""
    where = WHERE[0] + 0.03 * (WHERE - WHERE[0])
    cell = Cell()
    result = estimate_sets(cell.robot(), *cell.sets(where), cell.mounted(), VALUES,
                           cell.registration())
    assert 'weak: hardly told from bending' in result.parameter('joint_2.compliance').note
    low, high = result.parameter('joint_2.compliance').interval(0.999)
    assert low < COMPLIANCE[1] < high


def test_the_registration_may_be_given_or_found_from_the_set() -> None:
    given = found(registration=Cell().registration())
    assert given.settings['registration_rms'] == 0.0
    own = found()
    assert 1e-5 < own.settings['registration_rms'] < 1e-3
    for one, other in zip(given.parameters[1:], own.parameters[1:], strict=True):
        assert one.value == pytest.approx(other.value, rel=3e-3)


@pytest.mark.parametrize('name', ['panda', 'ur5', 'xarm7'])
def test_other_arms(name: str) -> None:
    joints = Cell(name, compliance=np.zeros(1)).robot().n
    compliance = np.geomspace(3e-6, 8e-5, joints)
    cell = Cell(name, compliance=compliance,
                load=Tool(3.0, np.array([0.08, 0.04, 0.1]), np.zeros((3, 3))))
    where = postures(30, seed=5, name=name)
    values = replace(VALUES, target_frame=cell.tool)
    result = estimate_sets(cell.robot(), *cell.sets(where), cell.mounted(), values)
    assert result.verdict is Verdict.PASS, result.reasons
    known = [parameter.value is not None for parameter in result.parameters]
    assert_true(result, np.where(known, compliance, np.nan), 0.99999)
    assert not known[0]


class TestLoad:
    """What is known of the load, and how well."""

    def test_a_tool_that_stays_mounted_bends_the_arm_in_both_sets(self):
        """Twelve kilograms turn the levers of the load by a milliradian."""
        cell = Cell(sigma=1e-9, staying=Tool(12.0, np.array([0.1, 0.0, 0.2]), np.zeros((3, 3))),
                    compliance=10.0 * COMPLIANCE)
        sets = cell.sets(WHERE)
        values = replace(VALUES, max_registration_residual=0.1)
        with_tool, without = (
            estimate_sets(cell.robot(), *sets, mounted, values, cell.registration())
            for mounted in (cell.mounted(), Mounted(cell.known_load())))
        for parameter, truth in zip(with_tool.parameters[1:], 10.0 * COMPLIANCE[1:], strict=True):
            assert parameter.value == pytest.approx(truth, rel=1e-4)
        wrong = np.array([p.value for p in without.parameters[1:]]) / (10.0 * COMPLIANCE[1:])
        assert np.abs(wrong - 1.0).max() > 1e-3
        assert with_tool.settings['mounted_unloaded'] == 'a tool of 12 kg on tool0 (load_mass)'
        assert with_tool.settings['mounted_loaded'].endswith(' and a load of 10 kg on tool0 '
                                                             '(load_mass)')
        assert without.settings['mounted_unloaded'] == 'nothing'
        assert f'unloaded set: {with_tool.settings["mounted_unloaded"]}' in summary(with_tool)

    def test_its_uncertainty_widens_every_interval(self):
        sharp, vague = (found(load=given_load(10.0, Cell().load.com, 'tool0', mass_std=std))
                        for std in (0.0, 0.2))
        for one, other in zip(sharp.parameters[1:], vague.parameters[1:], strict=True):
            assert other.value == pytest.approx(one.value, rel=1e-6)
            # Two per cent of mass are two per cent of compliance.
            expected = np.hypot(one.std, 0.02 * one.value)
            assert other.std == pytest.approx(expected, rel=0.03)
        rows = vague.covariance_names.index('joint_2.compliance'), \
            vague.covariance_names.index('joint_5.compliance')
        assert vague.covariance[rows] > 0.5 * np.prod(
            [vague.parameter(vague.covariance_names[i]).std for i in rows])

    def test_parameters_state_it(self):
        values = replace(VALUES, load_mass=10.0, load_com=[0.06, 0.03, 0.12])
        known = mounted_of(Cell().robot(), values, None).known_load()
        unsure = mounted_of(Cell().robot(), replace(
            values, load_mass_std=0.2, load_com_std=0.005), None).known_load()
        assert known.alternatives == ()
        assert not known.centred
        assert unsure.centred
        assert [body.mass for body in unsure.alternatives] == [10.2, 10.0, 10.0, 10.0]
        np.testing.assert_allclose(
            [body.com - known.body.com for body in unsure.alternatives[1:]], 0.005 * np.eye(3))

    def test_an_uncertain_centre_counts_too(self):
        sharp, vague = (found(load=given_load(10.0, Cell().load.com, 'tool0', com_std=std))
                        for std in (0.0, 0.01))
        assert vague.parameter('joint_5.compliance').std > 3.0 * sharp.parameter(
            'joint_5.compliance').std

    def test_a_centre_that_is_far_off_is_found(self):
        """Beside the last axis by another 50 mm, by which its torque is a third too large."""
        stated = Cell().load.com + [0.04, 0.03, 0.0]
        result = found(load=given_load(10.0, stated.tolist(), 'tool0', com_std=None))
        assert result.verdict is Verdict.PASS, result.reasons
        assert_true(result, SEEN, 0.999)
        centre = np.array(result.settings['load_com_found'])
        assert np.abs(centre - Cell().load.com).max() < 0.2 * 0.05
        assert float(result.validation[0].after) < 2.0 * found().validation[0].after

    def test_a_payload_result_serves(self):
        load = identified_load(payload_result(1.5))
        assert load.body.mass == 1.5
        assert load.source == 'payload result'

    def test_another_result_does_not(self):
        with pytest.raises(DataError, match="'payload', got 'friction'"):
            identified_load(friction_result())

    def test_none_is_refused(self):
        load = Cell().known_load()
        with pytest.raises(DataError, match='mass of the load .* expected more than 0'):
            replace(load, body=replace(load.body, mass=0.0))


class TestVerdict:
    """Results that must not be used."""

    def test_links_that_bend_across_the_joints_are_named(self):
        result = run_cell(0, Effects(bending=0.45, scale='arm'))
        self.failed(SimpleNamespace(verdict=Verdict(result.verdict), reasons=[result.reason]),
                    'The arm bends across', 'which joint angles cannot correct')
        assert all(abs(joint.z) < norm.ppf(0.9995) for joint in result.values)

    def failed(self, result: CalibrationResult, *words: str) -> None:
        assert result.verdict is Verdict.FAIL
        for word in words:
            assert word in ' '.join(result.reasons)

    def test_the_share_of_sag_that_must_be_removed_is_a_parameter(self, result):
        (fit,) = result.validation
        removed = 1.0 - fit.after / fit.before
        cell = Cell(encoder_step=2e-5)
        strict = found(cell, values=replace(VALUES, min_sag_removed=0.5 * (1.0 + removed)))
        self.failed(strict, 'held-out postures the model removes')

    def sets_fail(
        self, unloaded: Sequence[EndPosition], loaded: Sequence[EndPosition], *words: str
    ) -> None:
        cell = Cell()
        self.failed(estimate_sets(cell.robot(), unloaded, loaded, cell.mounted(), VALUES), *words)

    def test_no_load_was_mounted(self):
        unloaded, _ = Cell().sets(WHERE, 0)
        _, loaded = Cell(load=Tool(1e-9, np.zeros(3), np.zeros((3, 3)))).sets(WHERE, 1)
        self.sets_fail(unloaded, loaded, 'that it was mounted between the sets')

    def test_the_sets_are_swapped(self):
        unloaded, loaded = Cell().sets(WHERE, 0)
        self.sets_fail(loaded, unloaded, 'below zero')

    def test_the_centre_is_on_the_wrong_side(self):
        load = given_load(10.0, [-0.5, 0.4, -0.3], 'tool0')
        self.failed(found(load=load))

    def test_without_held_out_postures_nothing_is_vouched_for(self):
        cell = Cell()
        unloaded, loaded = cell.sets(WHERE[:4], 0)
        result = estimate_sets(cell.robot(), unloaded, loaded, cell.mounted(), VALUES,
                               cell.registration())
        assert result.verdict is Verdict.NOT_EVALUATED

    def test_many_wild_points(self):
        unloaded, loaded = Cell().sets(WHERE, 0)
        generator = np.random.default_rng(0)
        for number in range(0, 30, 3):
            loaded[number] = replace(
                loaded[number], point=loaded[number].point + generator.normal(0.0, 0.005, 3))
        self.sets_fail(unloaded, loaded, 'do not fit the others')


@pytest.mark.parametrize('seed', [2, 5, 8])
def test_bending_beyond_the_trackers_scatter_is_within_the_intervals(seed: int) -> None:
    """Residuals many times the tracker's scatter; taken for noise, all three would be wrong."""
    found = run_cell(seed, Effects(bending=0.15, scale='arm' if seed % 2 else 'joint', white=5e-5))
    assert found.verdict == 'pass'
    assert found.notes['reduced chi-square'] > 14.0
    assert not found.wrong


@pytest.mark.parametrize('seed', [2015, 2030, 2032])
def test_links_that_bend_are_within_the_intervals(seed: int) -> None:
    """Beams between the joints; with bearings alone, all three were passed with wrong values."""
    found = run_cell(seed)
    assert found.effects['links'] > 0.1
    assert found.verdict == 'pass'
    assert not found.wrong


def test_backlash_is_within_the_intervals() -> None:
    """Of a wrist whose torque has the other sign with the load in some postures."""
    found = run_cell(6010, Effects(backlash=1e-4))
    assert found.passed, found.reason
    assert not found.wrong, found.values


def test_a_target_that_is_off_is_within_the_intervals() -> None:
    """Two millimetres of the levers of a small wrist, which show in the unloaded set."""
    found = run_cell(71009, Effects(target=2e-3))
    assert found.verdict == 'pass'
    assert not found.wrong


class TestRefused:
    """Input that is bad is refused with what and where."""

    @pytest.mark.parametrize(('changes', 'error', 'words'), [
        ({'registration': replace(Cell().registration(), translation=np.array([2.6, -0.9, 0.36]))},
         DataError, r'does not fit the arm: in posture 1 .* 9\.90 mm .* Call register_tracker'),
        ({'values': replace(VALUES, target_xyz=[0.2, 0.2, 0.0])}, DataError, 'target_xyz'),
        ({'values': replace(VALUES, target_frame='spindle')}, ConfigurationError,
         "Frame 'spindle' is not in"),
    ])
    def test_a_tracker_or_a_target_that_is_elsewhere(self, changes, error, words):
        with pytest.raises(error, match=words):
            found(**changes)

    def test_a_target_that_is_not_finite(self):
        with pytest.raises(ConfigurationError, match="'target_xyz' is nan m"):
            checked(ComplianceParameters, {'target_xyz': [np.nan, 0.0, 0.0]})

    def test_points_that_are_not_finite(self):
        cell = Cell()
        unloaded, _ = cell.sets(WHERE[:6])
        unloaded[2] = replace(unloaded[2], point=np.array([np.nan, 0.0, 0.0]))
        with pytest.raises(DataError, match='Point 3 of the registration is not finite'):
            register(cell.robot(), unloaded, VALUES)

    def test_too_few_rests(self):
        cell = Cell()
        unloaded, _ = cell.sets(WHERE[:2])
        with pytest.raises(DataError, match=r'^2 postures at rest .*A rest lasts 2\.5 s or more'):
            register(cell.robot(), unloaded, VALUES)


@pytest.fixture(scope='module')
def played() -> tuple[JointSamples, TrackerSamples]:
    """Both sets, with the first posture again after each."""
    where = postures(10, seed=6)
    joints, readings, _ = play([(posture, loaded) for loaded in (False, True)
                                for posture in (*where, where[0])], 0.0)
    return joints, readings


@pytest.fixture(scope='module')
def marked(played: tuple[JointSamples, TrackerSamples]) -> tuple[StationaryInterval, ...]:
    """Return the rests of the record.

    Between the sets the arm does not move, so that the loaded one lacks its first visit.
    """
    found = find_end_positions(*played, VALUES)
    count = len(found) // 2
    return tuple(rest_of(item, LOADED if place > count else UNLOADED, place % count)
                 for place, item in enumerate(found))


class TestRecord:
    """The same from a record of joint states and tracker readings."""

    def estimated(
        self, joints: JointSamples, readings: TrackerSamples | None,
        rests: Sequence[StationaryInterval] = (), values: ComplianceParameters = VALUES,
    ) -> CalibrationResult:
        return estimate(Cell().robot(), Recording(joints, tracker=readings,
                                                  stationary=tuple(rests)),
                        values, Cell().mounted())

    def test_rests_and_the_moment_of_mounting_are_found(self, played):
        result = self.estimated(*played)
        assert result.source == 'bag'
        assert result.verdict is Verdict.PASS, result.reasons
        assert result.counts['unloaded_postures'] == 10
        assert result.counts['unloaded_visits'] == 11
        assert_true(result, SEEN)

    def test_marked_rests_give_what_is_found_where_all_is_in_order(self, played, marked):
        found, told = self.estimated(*played), self.estimated(*played, marked)
        assert [p.value for p in told.parameters] == [p.value for p in found.parameters]
        assert told.counts == found.counts
        assert told.time == found.time

    def test_samples_of_the_rests_do_as_well_as_all(self, played, marked):
        joints, readings = played
        few = joints.chosen(np.any([rest.holds(joints.time) for rest in marked], axis=0))
        assert len(few) < len(joints)
        one, other = (self.estimated(part, readings, marked) for part in (joints, few))
        assert one.parameters == other.parameters

    @pytest.mark.parametrize('changes', [
        {'registration': 'three_point'}, {'find_target': True, 'target_xyz': [0.0, 0.0, 0.0]}])
    def test_rests_that_were_to_place_the_tracker_do(self, played, marked, changes):
        count = 3 if 'registration' in changes else 8
        placing = [replace(rest, purpose=REGISTRATION) for rest in marked[:count]]
        result = self.estimated(*played, (*placing, *marked), replace(VALUES, **changes))
        if 'registration' in changes:
            assert result.settings['registration'] == 'three_point'
        else:
            np.testing.assert_allclose(result.settings['target_xyz'], TARGET, atol=1e-3)
        assert_true(result, np.where(np.arange(6) == 2, COMPLIANCE, np.nan))

    def test_a_marked_rest_that_is_not_in_the_record_is_named(self, played, marked):
        joints, readings = played
        with pytest.raises(DataError, match=r'rest in posture 1 \(unloaded\).*No joint state'):
            self.estimated(joints.rows(500, len(joints)), readings, marked)
        with pytest.raises(DataError, match=r'posture 10 \(loaded\).*tracker readings.*--whole'):
            self.estimated(joints, readings.between(0.0, 80.5), marked)

    def test_a_record_without_rests_or_readings_is_refused(self, played):
        joints, readings = played
        with pytest.raises(DataError, match='has no rest'):
            self.estimated(joints, readings.between(1e6, 2e6))
        with pytest.raises(DataError, match='is ambiguous|visited twice|load only'):
            self.estimated(joints.rows(0, 1300), readings)
        with pytest.raises(DataError, match='has no tracker readings'):
            self.estimated(joints, None)
