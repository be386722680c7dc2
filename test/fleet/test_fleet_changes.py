# SPDX-License-Identifier: Apache-2.0
"""Changes in series of estimates, and robots that differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats

from benchmarks import fleet_changes
from robocal_ros.errors import DataError
from robocal_ros.fleet.changes import History, courses
from robocal_ros.fleet.statistics import Problem, compare, fit, population, rejected

DAY = 86400.0
COUNT = 40
STEP_AT = 25


def history(
    seed: int = 0, shape: np.ndarray | float = 1.0, *, warmth: float = -0.01, known: bool = True
) -> History:
    """Weekly estimates of about 5 N·m: stated 1.5 %, scatter 1 %, ±5 K."""
    draw = np.random.default_rng(seed)
    warm = 5.0 * draw.standard_normal(COUNT)
    value = 5.0 * (shape * (1.0 + warmth * warm) + 0.018 * draw.standard_normal(COUNT))
    return History(7.0 * DAY * np.arange(float(COUNT)), np.asarray(value), np.full(COUNT, 0.075),
                   np.full(COUNT, 20.0), 24.0 + warm if known else np.full(COUNT, np.nan), 0.1)


def after(size: float) -> np.ndarray:
    return np.where(np.arange(COUNT) >= STEP_AT, 1.0 + size, 1.0)


def first(series: History, count: int) -> History:
    return replace(series, **{name: getattr(series, name)[:count] for name in (
        'time', 'value', 'std', 'freedom', 'temperature')})


def test_steps_are_found_with_size_and_time() -> None:
    seen = courses([history(seed, after(0.15)) for seed in range(12)])
    inside = 0
    for course in seen:
        change, = course.changes
        assert change.kind == 'step'
        assert STEP_AT + 1 <= change.alarm <= STEP_AT + 3
        assert change.first <= STEP_AT <= change.last
        inside += change.interval[0] <= 0.75 <= change.interval[1]
        before, now = course.segments
        assert before.level == pytest.approx(5.0, rel=0.04)
        assert now.level == pytest.approx(5.75, rel=0.04)
        assert before.coefficient == pytest.approx(-0.05, abs=0.015)
    assert inside >= 10


def in_sessions(seed: int, shape: np.ndarray | float = 1.0) -> History:
    """Four recordings an hour apart in each of the weekly sessions, which differ by 2 %."""
    draw = np.random.default_rng(seed)
    sessions = np.repeat(np.arange(COUNT), 4)
    time = 7.0 * DAY * sessions + 3600.0 * np.tile(np.arange(4.0), COUNT)
    level = 5.0 * shape * (1.0 + 0.02 * draw.standard_normal(COUNT))
    value = level[sessions] + 0.05 * draw.standard_normal(len(time))
    return History(time, value, np.full(len(time), 0.05), np.full(len(time), 20.0),
                   np.full(len(time), 24.0), 0.1)


def test_recordings_of_one_session_count_as_one() -> None:
    quiet = courses([in_sessions(seed) for seed in range(40)])
    assert not any(course.changes or course.outliers for course in quiet)
    for course in courses([in_sessions(seed, after(0.2)) for seed in range(4)]):
        change, = course.changes
        assert change.first <= 4 * STEP_AT <= change.last
        assert change.index % 4 == 0
        assert change.alarm % 4 == 3
        assert course.segments[-1].stop == len(course.corrected) == 4 * COUNT


def test_a_change_is_found_by_the_recordings_up_to_its_alarm_alone() -> None:
    whole = history(1, after(0.15))
    alarm = courses([whole])[0].changes[0].alarm
    early, late = courses([first(whole, alarm), first(whole, alarm + 1)])
    assert not early.changes
    assert late.changes[0].alarm == alarm


def test_trends_are_found_with_their_rate() -> None:
    years = np.maximum(np.arange(COUNT) - 10, 0) * 7.0 / 365.25
    course, = courses([history(2, 1.0 + 0.4 * years)])
    change = course.changes[-1]
    assert change.kind == 'trend'
    assert change.index < 20
    last = course.segments[-1]
    assert abs(last.rate - 2.0) < 3.0 * last.rate_std
    assert last.rate_std < 0.4


def test_one_recording_is_an_outlier_and_three_are_a_step() -> None:
    single, thrice = np.ones(COUNT), np.ones(COUNT)
    single[STEP_AT] = 3.0
    thrice[STEP_AT:] = 3.0
    one, three = courses([history(3, single), history(3, thrice)])
    assert not one.changes
    assert [item.index for item in one.outliers] == [STEP_AT]
    assert one.outliers[0].deviation == pytest.approx(10.0, rel=0.05)
    change, = three.changes
    assert (change.kind, change.index, change.alarm) == ('step', STEP_AT, STEP_AT + 2)
    assert not three.outliers


def test_temperature_is_no_change() -> None:
    """A hall that is 10 K colder from one week on raises friction by 15 %."""
    draw = np.random.default_rng(4)
    warm = draw.standard_normal(COUNT) * 4.0 - 10.0 * (np.arange(COUNT) >= STEP_AT)
    value = 5.0 * (1.0 - 0.015 * warm + 0.018 * draw.standard_normal(COUNT))
    known = replace(history(), value=value, temperature=24.0 + warm)
    unknown = replace(known, temperature=np.full(COUNT, np.nan))
    with_it, without = courses([known, unknown])
    assert not with_it.changes
    assert without.changes
    assert np.isnan(without.reference)


def test_findings_do_not_depend_on_unit_and_zero_of_time() -> None:
    series = history(5, after(0.12))
    scaled = replace(series, time=series.time + 1.7e9, value=1e3 * series.value,
                     std=1e3 * series.std, sensitivity=1e3 * series.sensitivity)
    one, other = courses([series, scaled])
    assert one.changes[0].size == pytest.approx(1e-3 * other.changes[0].size)
    assert replace(one.changes[0], size=0.0, std=0.0, log_evidence=0.0) == replace(
        other.changes[0], size=0.0, std=0.0, log_evidence=0.0)


def test_siblings_reveal_a_change_after_few_recordings() -> None:
    """After six recordings, one series says little of its scatter; twenty say enough."""
    def short(seed: int, size: float) -> History:
        return first(history(seed, np.where(np.arange(COUNT) >= 6, 1.0 + size, 1.0)), 9)

    series = [*(history(seed) for seed in range(100, 120)),
              *(short(seed, 0.15) for seed in range(20))]
    alone = sum(bool(course.changes) for course in courses(series)[20:])
    together = sum(bool(course.changes) for course in courses(series, ['joint'] * 40)[20:])
    assert together >= alone + 5


def test_series_without_change_are_quiet_and_steps_are_found() -> None:
    """Short form of the benchmark: of 60 series, more than one alarm has a chance below 0.2 %."""
    quiet = fleet_changes.scan(fleet_changes.QUIET[0], 60, 1)
    assert sum(bool(item.course.changes or item.course.outliers) for item in quiet) <= 1
    steps = fleet_changes.scan(replace(fleet_changes.STEPS[1], changed=0.5), 60, 2)
    delays = np.array([item.delay for item in steps if item.onset >= 0])
    assert len(delays) > 20
    assert (delays <= 3).mean() > 0.8
    assert np.isfinite(delays).all()


def test_few_recordings_have_a_course_without_changes() -> None:
    series = history(6)
    for count in (1, 2, 5):
        course, = courses([first(series, count)])
        assert not course.changes
        assert course.segments[0].count == count
        assert course.segments[0].level == pytest.approx(5.0, rel=0.15)


@pytest.mark.parametrize(('changes', 'message'), [
    ({'std': np.zeros(COUNT)}, 'not finite or not positive'),
    ({'value': np.full(COUNT, np.nan)}, 'not finite or not positive'),
    ({'time': np.zeros(COUNT)}, 'do not increase'),
    ({'std': np.ones(3)}, 'shapes'),
])
def test_unsuitable_series_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        replace(history(), **changes)


# ---------------------------------------------------------------------------- regression


def problem(freedom: float, seed: int = 0) -> Problem:
    draw = np.random.default_rng(seed)
    columns = np.column_stack((np.ones(12), np.arange(12.0)))[None]
    value = 1.0 + 0.3 * np.arange(12.0) + draw.standard_normal(12)
    return Problem(columns, value[None], np.ones((1, 12)), np.full((1, 12), freedom),
                   np.ones((1, 12)), np.array([[0.5, 2.0]]))


def test_regression_without_tails_is_least_squares() -> None:
    given = problem(1e9)
    got = fit(given, np.zeros((1, 12)))
    columns = given.columns[0]
    information = columns.T @ columns + np.diag(given.precision[0])
    np.testing.assert_allclose(
        got.parameters[0], np.linalg.solve(information, columns.T @ given.value[0]), rtol=1e-6)
    np.testing.assert_allclose(got.information[0], information, rtol=1e-6)


@pytest.mark.parametrize(('freedom', 'tolerance'), [(1e6, 1e-4), (20.0, 0.05)])
def test_evidence_is_the_integral_of_likelihood_and_prior(
    freedom: float, tolerance: float
) -> None:
    """Against a sum over a grid, for the difference of two sets of measurements."""
    logarithms = []
    a, b = np.meshgrid(np.linspace(-4.0, 6.0, 200), np.linspace(-1.5, 2.0, 200))
    for seed in (0, 1):
        given = problem(freedom, seed)
        rest = given.value[0] - a[..., None] - b[..., None] * given.columns[0, :, 1]
        density = scipy.stats.t.logpdf(rest, freedom).sum(axis=-1) - 0.25 * a**2 - b**2
        logarithms.append(scipy.special.logsumexp(density)
                          - fit(given, np.zeros((1, 12))).evidence[0])
    assert logarithms[0] == pytest.approx(logarithms[1], abs=tolerance)


def test_an_outlier_bends_the_regression_little() -> None:
    given = problem(3.0)
    bent = given._replace(value=given.value + np.where(np.arange(12) == 6, 50.0, 0.0))
    for freedom, largest in ((3.0, 0.5), (1e9, np.inf)):
        moved = [fit(item._replace(freedom=np.full((1, 12), freedom)), np.zeros((1, 12)))
                 .parameters[0, 0] for item in (given, bent)]
        assert abs(moved[1] - moved[0]) < largest
    assert abs(moved[1] - moved[0]) > 0.5


# ------------------------------------------------------------------------------ siblings


def test_spread_between_robots_is_recovered_beside_single_strangers() -> None:
    draw = np.random.default_rng(0)
    std = np.full(200, 0.05)
    value = 2.0 + 0.1 * draw.standard_normal(200) + std * draw.standard_normal(200)
    clean = population(value, std)
    assert clean.between == pytest.approx(0.1, rel=0.15)
    assert abs(clean.mean - 2.0) < 4.0 * clean.std
    value[:4] += 5.0
    assert population(value, std).between == pytest.approx(clean.between, rel=0.15)
    assert population(2.0 + std * draw.standard_normal(200), std).between < 0.02


def test_robots_are_compared_with_the_others() -> None:
    draw = np.random.default_rng(1)
    value = 1.0 + 0.1 * draw.standard_normal(20)
    value[[3, 7]] = 2.0
    seen = compare(value, np.full(20, 0.01))
    assert set(np.flatnonzero(rejected(seen.probability, 0.01)).tolist()) == {3, 7}
    with pytest.raises(DataError, match='4 robots to compare; expected at least 5'):
        compare(value[:4], np.full(4, 0.01))


def test_holm_rejects_by_falling_levels() -> None:
    """0.005 ≤ 0.05/4 and 0.01 ≤ 0.05/3 are rejected; 0.03 > 0.05/2 ends it."""
    assert rejected(np.array([0.01, 0.04, 0.03, 0.005]), 0.05).tolist() == [
        True, False, False, True]
    assert rejected(np.array([0.001, 0.002]), 0.05).all()
    assert not rejected(np.array([0.9, 0.5]), 0.05).any()
