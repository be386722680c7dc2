# SPDX-License-Identifier: Apache-2.0
"""From a record to points: which parts are read, what they say, and which are thrown out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from support.friction_cell import (
    RANDOM_ALONE,
    TOOL,
    WRIST,
    Record,
    Truth,
    both_ways,
    loaded,
    record,
)

from robocal_ros.friction import fit
from robocal_ros.friction.parameters import FrictionParameters
from robocal_ros.friction.positions import PositionTorques
from robocal_ros.friction.runs import (
    SLOW,
    SpeedPoint,
    compare_gravity,
    find_runs,
    read_runs,
    ripple_of,
    with_delay_correction,
    without_build_up,
    without_ripple,
)
from robocal_ros.messages.samples import JointSamples
from robocal_ros.results import rms
from robocal_ros.robot import DIRECTIONS, urdf_model
from robocal_ros.robot.model import Robot

WRIST_JOINT, SHOULDER = 5, 1
HEAVY = Truth((8.0, 7.0), (13.0, 12.0), (0.06, 0.05), (11.0, 12.0))
SPEEDS = (0.005, 0.01, 0.03, 0.1, 0.4)


@pytest.fixture(scope='module')
def wrist() -> Record:
    return record({WRIST_JOINT: WRIST}, both_ways(WRIST_JOINT, SPEEDS))


def points(record_: Record, robot: Robot, joint: int = WRIST_JOINT, **changes) -> list[SpeedPoint]:
    samples = record_.samples(**changes)
    return read_runs(robot, samples, [joint], arm=urdf_model(robot, 0.05, np.zeros((6, 6))))


def test_every_run_is_found_once_and_only_its_cruise_is_read(wrist):
    samples = wrist.samples()
    found = find_runs(samples, [WRIST_JOINT])
    assert len(found) == len(wrist.runs)
    for number, (sweep, run) in enumerate(zip(found, wrist.runs, strict=True), 1):
        cruise = wrist.rows(number)
        assert cruise[0] < sweep.start < sweep.stop <= cruise[-1]
        assert sweep.speed == pytest.approx(run.speed, rel=2e-3)
        # Trimmed at both ends, but most of it is used.
        assert sweep.stop - sweep.start > 0.65 * len(cruise)


@pytest.mark.parametrize('speed', [0.95 * SLOW, SLOW, 1.001 * SLOW, 1.29 * SLOW, 1.31 * SLOW])
def test_runs_near_the_border_of_the_two_searches_are_found_whole_and_once(speed):
    made = record({WRIST_JOINT: WRIST}, both_ways(WRIST_JOINT, [speed]))
    found = find_runs(made.samples(), [WRIST_JOINT])
    assert [np.sign(sweep.speed) for sweep in found] == [1.0, -1.0]
    for number, sweep in enumerate(found, 1):
        assert sweep.stop - sweep.start > 0.6 * len(made.rows(number))


def test_moves_between_runs_and_other_joints_are_not_runs(wrist):
    assert find_runs(wrist.samples(), [0, 1, 2, 3, 4]) == []
    made = record({WRIST_JOINT: WRIST}, both_ways(WRIST_JOINT, [0.1]))
    position = made.position.copy()
    # A second joint creeps meanwhile: its friction would be read with it.
    position[:, 2] += 0.02 * made.time
    assert find_runs(made.samples(position=position), [WRIST_JOINT]) == []


def test_a_point_is_the_friction_at_its_speed(wrist, robocal):
    for seed in range(3):
        for point in points(wrist, robocal, seed=seed, noise=RANDOM_ALONE):
            truth = float(WRIST.torque(np.array([point.speed]))[0])
            assert abs(point.torque - truth) < 4.5 * point.std
            assert not point.rejected


def test_stamps_may_be_uneven(wrist, robocal):
    generator = np.random.default_rng(1)
    keep = generator.random(len(wrist.time)) > 0.2
    samples = wrist.samples()
    thinned = JointSamples(samples.joint_names, *(
        getattr(samples, name)[keep] for name in ('time', 'position', 'velocity', 'effort')))
    found = find_runs(thinned, [WRIST_JOINT])
    assert len(found) == len(wrist.runs)
    for sweep, run in zip(found, wrist.runs, strict=True):
        assert sweep.speed == pytest.approx(run.speed, rel=2e-3)
        assert not SpeedPoint(robocal, thinned, sweep).rejected


def pushed(effort: np.ndarray) -> np.ndarray:
    return effort - 3.0 * (np.abs(np.arange(len(effort)) - len(effort) // 2) < 13)


class TestRejected:
    """A run with other torques is rejected with the reason."""

    @pytest.mark.parametrize(('spoilt', 'why'), [
        (pushed, 'the torque jumped by'),
        (lambda effort: effort - 0.2 * (pushed(effort) - effort), 'the torque jumped by'),
        (lambda effort: 40.0 - 0.4 * (np.arange(len(effort)) % 3 == 0),
         'saturated at its limit of 40'),
        (lambda effort: np.full_like(effort, 0.7), 'stuck at 0.7 N·m'),
    ], ids=['push', 'small push', 'saturated', 'stuck'])
    def test_the_one_run_with_other_torques(self, wrist, robocal, spoilt, why):
        effort, rows = wrist.effort(), wrist.rows(7)
        effort[rows, WRIST_JOINT] = spoilt(effort[rows, WRIST_JOINT])
        found = points(wrist, robocal, effort=effort)
        assert [bool(point.rejected) for point in found].index(True) == 6
        assert sum(bool(point.rejected) for point in found) == 1
        assert why in found[6].rejected

    def test_a_joint_stop_ends_the_window_before_the_spike(self, wrist, robocal):
        rows = wrist.rows(7)
        middle = rows[len(rows) // 2]
        position, effort = wrist.position.copy(), wrist.effort()
        rest = slice(middle, rows[-1])
        position[rest, WRIST_JOINT] = position[middle, WRIST_JOINT]
        effort[rest, WRIST_JOINT] += 20.0
        found = points(wrist, robocal, position=position, effort=effort)
        seventh = next(p for p in found if p.speed == pytest.approx(0.1, rel=0.05))
        truth = float(WRIST.torque(np.array([seventh.speed]))[0])
        assert abs(seventh.torque - truth) < 0.05

    def test_noise_alone_rejects_nothing(self, wrist, robocal):
        for seed in range(8):
            assert not any(p.rejected for p in points(wrist, robocal, seed=seed))


@pytest.fixture(scope='module')
def shoulder() -> Record:
    return record({SHOULDER: HEAVY}, both_ways(SHOULDER, [0.03, 0.1, 0.3], span=0.3), tool=TOOL)


class TestGravity:
    """Two ways of removing gravity, and what their disagreement tells."""

    def test_the_right_model_agrees(self, shoulder, robocal):
        held = loaded(robocal, TOOL)
        flags = []
        for seed in range(10):
            comparison = compare_gravity(points(shoulder, held, SHOULDER, seed=seed))
            assert comparison is not None
            assert comparison.pairs == 3
            flags.append(comparison.significant)
        assert sum(flags) <= 1

    def test_a_missing_payload_shows_with_its_size(self, shoulder, robocal):
        comparison = compare_gravity(points(shoulder, robocal, SHOULDER))
        assert comparison is not None
        assert comparison.significant
        # 2 kg at about half a metre to a metre from the shoulder.
        assert 5.0 < comparison.error < 25.0

    def test_its_deviation_is_that_of_noise(self, robocal):
        """Fast and slow runs, whose noise differs, over wide and narrow ranges."""
        made = record({SHOULDER: HEAVY}, [
            *both_ways(SHOULDER, (0.03,), span=0.12), *both_ways(SHOULDER, (0.5,), span=1.2)])
        runs, generator = points(made, robocal, SHOULDER), np.random.default_rng(5)
        deviations = []
        for _ in range(400):
            comparison = compare_gravity([p.changed(
                total=p.gravity + p.std * generator.normal(size=len(p.gravity))) for p in runs])
            deviations += list(comparison.value / np.sqrt(np.diag(comparison.covariance)))
        assert 0.9 < rms(np.array(deviations)) < 1.1

    def test_runs_one_way_cannot_be_compared(self, wrist, robocal):
        forward = [p for p in points(wrist, robocal) if p.speed > 0.0]
        assert compare_gravity(forward) is None

class TestWanderingRuns:
    """A slow run whose speed wanders is used with its own speed, or named."""

    @staticmethod
    def wandering(robot: Robot, share: float) -> JointSamples:
        """Return a slow run of the wrist whose speed wanders by a relative amplitude."""
        rate, speed = 250.0, 0.012
        time = np.arange(int(14.0 * rate)) / rate
        ramp = np.clip(np.minimum(time - 1.0, 13.0 - time) / 0.2, 0.0, 1.0)
        v = speed * ramp * (1.0 + share * np.sin(2.0 * np.pi * time / 2.9))
        position = np.tile([0.2, 0.4, -0.6, 0.3, 0.5, 0.0], (len(time), 1))
        position[:, WRIST_JOINT] += np.cumsum(v) / rate
        velocity = np.zeros_like(position)
        velocity[:, WRIST_JOINT] = v
        effort = robot.gravity_torques(position)
        effort[:, WRIST_JOINT] += WRIST.torque(v)
        effort += 0.02 * np.random.default_rng(3).normal(size=effort.shape)
        return JointSamples(robot.joint_names, time, position, velocity, effort)

    @pytest.mark.parametrize('share', [0.15, 0.3, 0.55])
    def test_a_wandering_run_is_used_with_its_own_speed_or_named(self, share, robocal):
        samples = self.wandering(robocal, share)
        [point] = [SpeedPoint(robocal, samples, run) for run in find_runs(samples, [WRIST_JOINT])]
        if share > 0.5:
            assert 'its speed wandered by' in point.rejected
            assert '(limit 25 %)' in point.rejected
            return
        assert point.rejected == ''
        assert point.speed == pytest.approx(0.012, rel=0.03)
        assert point.torque == pytest.approx(float(WRIST.torque(np.array([0.012]))[0]), rel=0.02)


@pytest.mark.parametrize('delay', [0.0, 0.02])
def test_late_efforts_are_aligned_before_gravity_is_subtracted(robocal, delay):
    """A delay of 20 ms would add a tenth to the friction of the shoulder."""
    made = record({SHOULDER: HEAVY}, both_ways(SHOULDER, (0.05, 0.2, 0.4), span=1.0, start=0.2))
    effort, time = made.effort(), made.samples().time
    late = np.column_stack([np.interp(time - delay, time, column) for column in effort.T])
    found = points(made, robocal, SHOULDER, effort=late)
    aligned = with_delay_correction(found)
    speed = np.array([p.speed for p in found])
    viscous = rms(np.array([p.errors[-1] for p in aligned]) / speed)
    truth = HEAVY.torque(speed)

    def viscosity(runs) -> float:
        off = np.array([p.torque for p in runs]) - truth
        return float(off @ speed / (speed @ speed))

    assert abs(viscosity(aligned)) < 3.0 * viscous + 0.1 < 0.6
    assert abs(viscosity(found)) > 0.6 or not delay


def test_gravity_error_within_the_prior_enters_the_interval(robocal):
    """Pairs of runs narrow the uncertainty of gravity, one direction alone keeps the prior."""
    made = record({SHOULDER: HEAVY}, both_ways(SHOULDER, (0.05, 0.2, 0.4), span=0.5, start=-0.6))
    found = points(made, robocal, SHOULDER)
    comparison = compare_gravity(found)
    assert comparison is not None

    def uncertainty(runs, comparison) -> float:
        sides = {side: [p for p in runs if p.direction == side] for side in DIRECTIONS}
        sides = {side: of_side for side, of_side in sides.items() if of_side}
        speed = {side: np.array([abs(p.speed) for p in of_side])
                 for side, of_side in sides.items()}
        told = PositionTorques(sides, comparison, 0.0, 0.0).told(
            {side: np.array([np.sign(p.speed) * (p.torque - float(HEAVY.torque(p.speed)))
                             for p in of_side]) for side, of_side in sides.items()},
            {side: np.column_stack((np.ones(len(v)), v)) for side, v in speed.items()},
            {side: np.array([p.std for p in of_side]) for side, of_side in sides.items()})
        return rms(np.concatenate([np.linalg.norm(told.left[side], axis=1) for side in sides]))

    paired = uncertainty(found, comparison)
    alone = uncertainty([p for p in found if p.speed > 0.0], None)
    carried = np.mean([p.load for p in found])
    assert alone > 0.03 * carried
    assert paired < 0.7 * alone


# ------------------------------------------------------------------------- torque ripple


@pytest.fixture(scope='module')
def many() -> Record:
    """Runs at so many speeds that weak ripple shows."""
    return record({WRIST_JOINT: WRIST}, both_ways(WRIST_JOINT, np.geomspace(0.005, 0.6, 8)))


def errors(found: Sequence[SpeedPoint]) -> np.ndarray:
    return np.array([p.torque - float(WRIST.torque(np.array([p.speed]))[0]) for p in found])


@pytest.mark.parametrize(('cycles', 'amplitude', 'phase'), [
    (24.0, 0.02, 0.3), (24.0, 0.1, 2.0), (50.0, 0.03, -1.0), (101.3, 0.05, 0.9)])
def test_ripple_is_found_and_taken_out(many, robocal, cycles, amplitude, phase):
    effort = many.effort(3) + amplitude * np.sin(cycles * many.position + phase)
    before = points(many, robocal, effort=effort)
    ripple = ripple_of(before)[0]
    assert ripple.cycles == pytest.approx(cycles, rel=0.02)
    assert np.hypot(ripple.sine, ripple.cosine) == pytest.approx(amplitude, rel=0.1)
    angle = np.linspace(0.0, 1.0, 7)
    np.testing.assert_allclose(ripple.torque(angle), ripple.sine * np.sin(ripple.cycles * angle)
                               + ripple.cosine * np.cos(ripple.cycles * angle))
    after = without_ripple(before, [ripple])
    plain = errors(points(many, robocal, effort=many.effort(3)))
    np.testing.assert_allclose(errors(after), plain, atol=0.15 * amplitude)
    assert all(a.std >= b.std for a, b in zip(after, before, strict=True))


def test_two_components_of_ripple_are_found(many, robocal):
    effort = (many.effort(1) + 0.08 * np.sin(24.0 * many.position)
              + 0.04 * np.cos(60.0 * many.position))
    found = ripple_of(points(many, robocal, effort=effort))
    assert [ripple.cycles for ripple in found[:2]] == pytest.approx([24.0, 60.0], rel=0.05)


def test_ripple_that_is_not_proven_is_in_the_intervals_of_short_runs(robocal):
    """Their means contain a part of one period; without ripple the intervals stay."""
    speeds = (0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5)
    short = record({WRIST_JOINT: WRIST}, both_ways(
        WRIST_JOINT, speeds, shortest=1.2, longest=1.2), rate=125.0)
    for ripple, low, high in ((0.0, 1.0, 1.01), (0.02, 1.4, 2.5)):
        effort = short.effort(1) + ripple * np.sin(24.0 * short.position + 0.6)
        before = points(short, robocal, effort=effort)
        assert ripple_of(before) == ()
        after = without_ripple(before, ())
        wider = [a.std / b.std for a, b in zip(after, before, strict=True)]
        assert all(low <= ratio < high for ratio in wider[:6])
        # Fast runs average over periods.
        assert wider[-1] < 1.05
        assert max(abs(error) / p.std for error, p in zip(errors(after), after, strict=True)) < 2.6


def test_noise_is_no_ripple(many, robocal):
    for seed in range(6):
        assert ripple_of(points(many, robocal, effort=many.effort(seed))) == ()


# ------------------------------------------------------------- friction that builds up


def built_up(way: np.ndarray, angle: float) -> np.ndarray:
    """Share of friction that bristles have built up along a way, which yield over an angle."""
    shares, share = [], 0.0
    for step in np.diff(way, prepend=way[:1]):
        share = np.sign(step) + (share - np.sign(step)) * np.exp(-abs(step) / angle)
        shares.append(share)
    return np.array(shares)


@pytest.mark.parametrize('angle', [0.003, 0.008, 0.015])
def test_slow_runs_tell_the_friction_of_full_sliding(many, robocal, angle):
    effort, velocity = many.effort(5), many.velocity[:, WRIST_JOINT]
    friction = WRIST.torque(velocity)
    effort[:, WRIST_JOINT] += np.abs(friction) * built_up(
        many.position[:, WRIST_JOINT], angle) - friction
    before = points(many, robocal, effort=effort)
    after = without_build_up(before)
    slow = np.array([abs(p.speed) < 0.1 for p in before])
    assert rms(errors(after)[slow]) < 0.35 * rms(errors(before)[slow])
    stated = [np.hypot(p.std, p.torque * np.linalg.norm(p.built)) for p in after]
    assert np.max(np.abs(errors(after)) / stated) < 3.3


def test_a_joint_passes_whose_friction_builds_up_slowly(many, robocal, monkeypatch):
    effort, friction = many.effort(5), WRIST.torque(many.velocity[:, WRIST_JOINT])
    effort[:, WRIST_JOINT] += np.abs(friction) * built_up(
        many.position[:, WRIST_JOINT], 0.015) - friction
    runs = points(many, robocal, effort=effort)
    found = fit.FrictionFit('joint_6', runs, FrictionParameters())
    assert found.passed, found.objections
    assert WRIST.curve_error(found.law()) < 3.0
    monkeypatch.setattr(fit, 'without_build_up', list)
    assert not fit.FrictionFit('joint_6', runs, FrictionParameters()).passed


def test_friction_that_is_built_up_stays(many, robocal):
    for seed in range(4):
        before = points(many, robocal, effort=many.effort(seed))
        after = without_build_up(before)
        changed = errors(after) - errors(before)
        assert np.abs(changed).max() < 0.02 * WRIST.coulomb[0]
        assert max(float(np.linalg.norm(p.built)) for p in after) < 0.02


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize('speeds', [(0.3,), (0.3, 0.5)], ids=['one', 'two'])
def test_runs_that_tell_nothing_of_it_stay(robocal, speeds):
    """Fast runs begin after the build-up; what joints without friction show is none."""
    fast = record({WRIST_JOINT: WRIST}, both_ways(WRIST_JOINT, speeds, span=1.0))
    for torque in (1.0, 0.0):
        before = [p.changed(total=p.gravity + torque * (p.total - p.gravity),
                            torque=torque * p.torque) for p in points(fast, robocal)]
        for now, then in zip(without_build_up(before), before, strict=True):
            assert now.torque == pytest.approx(then.torque, abs=1e-4)
            assert np.linalg.norm(now.built) < 1e-3


def test_the_travel_of_a_run_begins_where_it_turned(many, robocal):
    for p in points(many, robocal):
        way = many.position[many.time < p.begin, WRIST_JOINT]
        turn = way.min() if p.speed > 0.0 else way.max()
        travelled = abs(float(p.angle[0]) - turn)
        assert p.travel[0] <= travelled + 1e-3
        np.testing.assert_allclose(np.diff(p.travel), np.abs(np.diff(p.angle)), atol=1e-9)
