# SPDX-License-Identifier: Apache-2.0
"""Changes in a fleet's estimates: false alarms, detection, magnitudes, robots that differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.benchmark import (
    Benchmark,
    Figure,
    Outcome,
    Request,
    Table,
    in_parallel,
    median_band,
    share_band,
)
from benchmarks.fleet_data import Event, catalogue_of, fleet
from robocal_ros.arrays import Array
from robocal_ros.fleet import History, courses
from robocal_ros.fleet.changes import CONFIRMATION, FALSE_ALARMS, HORIZON, Change, Course
from robocal_ros.fleet.review import Finding, Subject, review
from robocal_ros.fleet.statistics import compare, rejected

_WEEK = 7.0 * 86400.0
_LEVEL = 5.0
# Series of a group, those computed in one go, and series of the scenarios: the first one without
# change, the others without change, those with changes; and of all of them if quick.
_SIBLINGS, _CHUNK = 100, 500
_SERIES, _FURTHER, _CHANGED, _QUICK = 20_000, 6_000, 1_500, 60
_ARMS = 30


@dataclass(frozen=True)
class Scenario:
    """Series of weekly recordings of one friction parameter.

    Attributes:
        name: Name.
        stated: Range of the stated standard deviations over the level.
        freedom: Degrees of freedom of the stated deviations.
        scatter: Standard deviation between recordings over the level.
        tail: Degrees of freedom of the scatter; 0 for a normal one.
        seasonal: Whether temperature follows the seasons instead of chance.
        recorded: Whether the temperature is recorded.
        pooled: Whether siblings are known.
        step: Relative step.
        trend: Relative trend per year.
        changed: Share of the siblings that change.
        begin: First and last possible recording of the change.

    """

    name: str
    stated: tuple[float, float] = (0.01, 0.02)
    freedom: float = 20.0
    scatter: float = 0.01
    tail: float = 0.0
    seasonal: bool = False
    recorded: bool = True
    pooled: bool = True
    step: float = 0.0
    trend: float = 0.0
    changed: float = 0.0
    begin: tuple[int, int] = (12, 48)


QUIET = (
    Scenario('normal scatter, siblings known'),
    Scenario('normal scatter, each series by itself', pooled=False),
    Scenario("scatter of Student's distribution, 5 degrees", tail=5.0),
    Scenario('stated deviations of 5 degrees of freedom', freedom=5.0),
    Scenario('scatter five times the stated deviation', stated=(0.004, 0.008), scatter=0.03),
    Scenario('temperature by the seasons', seasonal=True),
    Scenario('temperature by chance, not recorded', recorded=False),
)
"""Scenarios without change, with the limit of false alarms."""
UNDECIDABLE = Scenario('temperature by the seasons, not recorded', seasonal=True, recorded=False)
"""Without change; temperature alone looks like one."""
_STEP = Scenario('step of 10 %', step=0.1, changed=1.0 / 3.0)
STEPS = (
    replace(_STEP, name='step of 5 %', step=0.05), _STEP,
    replace(_STEP, name='step of 20 %', step=0.2),
    replace(_STEP, name='step of 10 %, stated 1 %', stated=(0.01, 0.01)),
    replace(_STEP, name='step of 10 %, stated 2 %', stated=(0.02, 0.02)),
    replace(_STEP, name='step of 10 %, after 8 recordings', begin=(8, 8)),
    replace(_STEP, name='step of 10 %, each series by itself', pooled=False),
    replace(_STEP, name="step of 10 %, scatter of Student's distribution", tail=5.0),
    replace(_STEP, name='step of 10 %, temperature by the seasons', seasonal=True),
    replace(_STEP, name='step of 10 %, temperature not recorded', recorded=False),
)
"""Scenarios with a step; the second has the limit of detection."""
TREND = Scenario('trend of 20 %/year', trend=0.2, changed=1.0 / 3.0, begin=(12, 12))


def draw(scenario: Scenario, count: int, seed: int) -> tuple[list[History], Array, Array]:
    """Draw series.

    Returns:
        The series, the first changed recording of each, −1 without change, and the levels before
        it at the mean temperature, shape (count,).

    """
    generator = np.random.default_rng([seed, 31])
    time = _WEEK * np.arange(float(HORIZON))
    found, onsets, levels = [], np.full(count, -1), np.empty(count)
    for i in range(count):
        level = _LEVEL * generator.uniform(0.8, 1.25)
        std = level * generator.uniform(*scenario.stated) * generator.uniform(0.8, 1.25, HORIZON)
        warm = (7.0 * np.sin(2.0 * np.pi * (time / _WEEK / 52.0 + generator.uniform()))
                + generator.standard_normal(HORIZON)
                if scenario.seasonal else 5.0 * generator.standard_normal(HORIZON))
        scatter = (generator.standard_t(scenario.tail, HORIZON) if scenario.tail
                   else generator.standard_normal(HORIZON))
        warmth = generator.uniform(-0.015, -0.003)
        course = level * np.exp(warmth * warm)
        levels[i] = level * np.exp(warmth * warm.mean())
        if generator.uniform() < scenario.changed:
            onsets[i] = generator.integers(scenario.begin[0], scenario.begin[1] + 1)
            after = np.arange(HORIZON) - onsets[i]
            course *= 1.0 + scenario.step * (after >= 0) + (
                scenario.trend * np.maximum(after, 0) / 52.0)
        value = (course + std * generator.standard_t(scenario.freedom, HORIZON)
                 + scenario.scatter * level * scatter)
        temperature = 24.0 + warm if scenario.recorded else np.full(HORIZON, np.nan)
        found.append(History(time, value, std, np.full(HORIZON, scenario.freedom), temperature,
                             0.02 * level))
    return found, onsets, levels


@dataclass(frozen=True)
class Seen:
    """What is found of one series.

    Attributes:
        onset: First changed recording; −1 without change.
        size: Size of the change, or its rate per year.
        course: What is found.

    """

    onset: int
    size: float
    course: Course

    @property
    def change(self) -> Change | None:
        """The first change that is found after the true one; None if there is none."""
        return next((item for item in self.course.changes if item.alarm >= self.onset), None)

    @property
    def delay(self) -> float:
        """Recordings from the change to its alarm, the changed one included; ∞ for none."""
        return np.inf if self.change is None else self.change.alarm - self.onset + 1.0


def scan(scenario: Scenario, count: int, seed: int) -> list[Seen]:
    """Return what is found in drawn series."""
    histories, onsets, levels = draw(scenario, count, seed)
    groups = [i // _SIBLINGS for i in range(count)] if scenario.pooled else None
    size = scenario.step or scenario.trend
    return [Seen(onset, size * level, course) for onset, level, course in zip(
        onsets.tolist(), levels.tolist(), courses(histories, groups), strict=True)]


def _scanned(scenario: Scenario, size: int, request: Request) -> list[Seen]:
    each = min(_CHUNK, size)
    return [item for own in in_parallel(
        partial(scan, scenario, each), range(size // each), request.jobs, scenario.name)
        for item in own]


def false_alarms(scenario: Scenario, found: Sequence[Seen], bar: float | None) -> list[Figure]:
    """Return the figures of series without change, per 1000 of them."""
    rows, total = [], len(found)
    for what, count, limit in (
        ('steps, trends and outliers', sum(bool(item.course.changes or item.course.outliers)
                                           for item in found), bar),
        ('steps and trends', sum(bool(item.course.changes) for item in found), None),
    ):
        low, high = share_band(count, total)
        rows.append(Figure.single(
            scenario.name, f'{what}, per 1000 series of {HORIZON} recordings, of {total}', '1',
            1000.0 * count / total, limit, band=(1000.0 * low, 1000.0 * high)))
    return rows


def detection(scenario: Scenario, found: Sequence[Seen], bar: float | None) -> list[Figure]:
    """Return the figures of series of which some have a step."""
    delays = np.array([item.delay for item in found if item.onset >= 0])
    figures = [Figure.share(scenario.name, f'found within {recordings} recordings',
                            int((delays <= recordings).sum()), len(delays), limit)
               for recordings, limit in ((CONFIRMATION, bar), (6, None))]
    pairs = [(item, item.change) for item in found if item.onset >= 0 and item.change]
    steps = [(item, change) for item, change in pairs if change.kind == 'step']
    if pairs:
        figures += [
            Figure.share(scenario.name, 'found as a step', len(steps), len(pairs)),
            Figure.share(scenario.name, '95 % interval of steps holds the size', sum(
                change.interval[0] <= item.size <= change.interval[1]
                for item, change in steps), max(len(steps), 1)),
            Figure.share(scenario.name, '95 % interval of steps holds the time', sum(
                change.first <= item.onset <= change.last
                for item, change in steps), max(len(steps), 1))]
    return figures


def trend_figures(scenario: Scenario, found: Sequence[Seen]) -> list[Figure]:
    """Return the figures of series of which some have a trend."""
    delays = np.array([item.delay for item in found if item.onset >= 0])
    kinds = [item.change.kind for item in found if item.onset >= 0 and item.change]
    return [Figure(scenario.name, 'weeks to the alarm', '1', float(np.median(delays)),
                   float(np.quantile(delays, 0.95)), band=median_band(delays)),
            Figure.share(scenario.name, 'found before the end', len(kinds), len(delays)),
            Figure.share(scenario.name, 'found as a trend', kinds.count('trend'),
                         max(len(kinds), 1))]


def siblings(repetitions: int) -> list[Figure]:
    """Return the figures of robots that are compared: 20 robots with 10 parameters each."""
    generator = np.random.default_rng(7)
    wrong = found = others = 0
    for _ in range(repetitions):
        value = 1.0 + 0.1 * generator.standard_normal((10, 20))
        std = np.full(value.shape, 0.01)
        value += std * generator.standard_normal(value.shape)
        quiet = [compare(row, own).probability for row, own in zip(value, std, strict=True)]
        wrong += bool(rejected(np.concatenate(quiet), 0.01).any())
        value[0, :2] += 1.0
        flags = rejected(np.concatenate([
            compare(row, own).probability for row, own in zip(value, std, strict=True)]), 0.01)
        found += int(flags[:2].sum())
        others += bool(flags[2:].any())
    name = 'robots that differ: 20 robots, 10 parameters, 10 % between robots'
    return [
        Figure.share(name, 'fleets in which a robot is wrongly said to differ', wrong,
                     repetitions, 2.0, at_least=False),
        Figure.share(name, 'the same, with two robots that differ', others, repetitions),
        Figure.share(name, 'two robots of twice the value found', found, 2 * repetitions)]


def whole_fleet(arms: int, weeks: int = 52) -> tuple[list[Figure], Table]:
    """Return what is found of a simulated fleet, from its catalogue."""
    made = fleet(arms, weeks, 11)
    with TemporaryDirectory() as folder:
        found = review(catalogue_of(made, Path(folder))[0].query)
    explained: set[int] = set()
    rows: dict[str, list[int]] = {}
    for arm in made:
        for event in arm.events:
            if event.week in arm.lost and event.kind == 'wrong_tool':
                continue
            matching = [item for item in found.findings
                        if item.robot == arm.name and _explains(event, item)]
            explained |= {id(item) for item in matching}
            # Late events may not be found yet.
            if event.week <= weeks - 4:
                seen = rows.setdefault(event.kind, [0, 0])
                seen[0] += bool(matching)
                seen[1] += 1
    wrong = sum(id(item) not in explained for item in found.findings)
    name = f'simulated fleet, {arms} arms, {len(found.tracks)} series of {weeks} recordings'
    return ([Figure(name, 'findings without a cause', '1', wrong, wrong, 2.0 * FALSE_ALARMS
                    * len(found.tracks)),
             Figure.share(name, 'events found', sum(seen for seen, _ in rows.values()),
                          max(sum(total for _, total in rows.values()), 1))],
            Table(f'Events found in a fleet of {arms} arms', ('event', 'found', 'of'),
                  [(kind.replace('_', ' '), *map(float, seen)) for kind, seen in rows.items()]))


def _explains(event: Event, item: Finding) -> bool:
    if event.kind in ('tool', 'wrong_tool'):
        return item.subject is Subject.TOOL
    # Robots that wear differ from their siblings in the end, too.
    return item.part == event.part


def _run(request: Request) -> Outcome:
    first, further, changed = ((_QUICK,) * 3 if request.quick else (_SERIES, _FURTHER, _CHANGED))
    figures: list[Figure] = []
    for scenario in QUIET:
        found = _scanned(scenario, first if scenario is QUIET[0] else further, request)
        figures += false_alarms(scenario, found, 1000.0 * FALSE_ALARMS)
    figures += false_alarms(UNDECIDABLE, _scanned(UNDECIDABLE, changed, request), None)
    for scenario in STEPS:
        bar = 95.0 if scenario is _STEP else None
        figures += detection(scenario, _scanned(scenario, changed, request), bar)
    figures += trend_figures(TREND, _scanned(TREND, changed, request))
    figures += siblings(3 if request.quick else 100)
    rows, table = whole_fleet(6 if request.quick else _ARMS)
    return Outcome([*figures, *rows], tables=[table])


BENCHMARK = Benchmark('Changes in a fleet', (
    f'Series of {HORIZON} weekly estimates of a friction parameter: stated standard deviations of '
    '1 to 2 % (Student, 20 degrees of freedom), a scatter of 1 % between recordings, temperatures '
    'of ±5 K (standard deviation) with −0.3 to −1.5 %/K, unless the name says otherwise. A series '
    'is scanned recording by recording; an alarm counts for the whole series. Steps come after 12 '
    'to 48 recordings; one series in three changes, and a hundred are siblings.'), _run)
