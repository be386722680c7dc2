# SPDX-License-Identifier: Apache-2.0
"""Findings of a fleet: what changed, on which robot and joint, since when, and by how much.

The series of the catalogue are scanned for changes, changes of one joint, tool or sensor at the
same time are one finding, and robots are compared with their siblings. Results that failed
their checks are not used.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.fleet.catalogue import Query, utc
from robocal_ros.fleet.changes import CONFIDENCE, Change, Course, History, Outlier, courses
from robocal_ros.fleet.statistics import LEAST, compare, rejected
from robocal_ros.results import Z95, grouped, wording

STRANGERS = 0.01
"""Largest probability that any robot is said to differ from its siblings though none does."""

# Recordings that a level needs before it is compared with those of other robots.
_COMPARED = 4
# Levels within this many standard deviations of zero have no changes in percent.
_FAR = 10.0
_FRICTION = ('coulomb', 'static', 'viscous', 'stribeck', 'exponent', 'load_factor', 'friction',
             'torque_offset')
# Prior standard deviation of temperature coefficients: of friction over its level [1/K] (for its
# temperature dependence see Carvalho Bittencourt, Gunnarsson, Static Friction in a Robot Joint, J.
# Dyn. Sys. Meas. Control 134 (2012) 051013, doi 10.1115/1.4006589), of all else over its level
# [1/K], and of force/torque sensors' biases [N/K, N·m/K]. They are chosen wide.
_FRICTION_SENSITIVITY, _OTHER_SENSITIVITY = 0.02, 0.001
_BIAS_SENSITIVITY = {'N': 0.3, 'N·m': 0.02}
# Largest difference of temperature that may explain a change [K].
_MOST_KELVIN = 60.0


class Subject(str, Enum):
    """What a finding is about, and its heading."""

    JOINT = 'Joints'
    TOOL = 'Tool'
    SENSOR = 'Sensors'
    DRIVE = 'Drives'
    ARM = 'Arm'


@dataclass(frozen=True, eq=False)
class Track:
    """One series of the catalogue with its course.

    Attributes:
        robot: Robot.
        kind: Kind of the results.
        method: Method.
        parameter: Full name of the parameter.
        joint: Joint or sensor; empty for none.
        quantity: Quantity.
        unit: SI unit.
        model: Group of robots that are compared.
        history: Estimates.
        origin: Settings, URDF and software of each recording, as one text each.
        course: Changes.

    """

    robot: str
    kind: str
    method: str
    parameter: str
    joint: str
    quantity: str
    unit: str
    model: str
    history: History
    origin: tuple[str, ...]
    course: Course

    @property
    def subject(self) -> Subject:
        """What it describes."""
        if _is_bias(self.kind, self.parameter):
            return Subject.SENSOR
        if self.kind == 'drive_gains':
            return Subject.DRIVE
        if any(word in self.quantity for word in _FRICTION) or self.kind == 'compliance':
            return Subject.JOINT
        return Subject.ARM if self.kind == 'arm' else Subject.TOOL

    @property
    def part(self) -> str:
        """Joint, tool or sensor in words."""
        if self.joint or self.kind == 'tare':
            return self.joint or self.parameter.rpartition('.')[0]
        return {Subject.TOOL: 'tool', Subject.SENSOR: 'wrist'}.get(self.subject, 'arm')

    @property
    def name(self) -> str:
        """Quantity in words, without the part."""
        return wording.described(self.quantity.removeprefix(f'{self.part}.'))

    @property
    def place(self) -> tuple[str, Subject, str]:
        """Robot, subject and part."""
        return self.robot, self.subject, self.part


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        urgent: Whether it asks for attention.
        robot: Robot.
        subject: What it is about.
        part: Joint, tool or sensor in words.
        sentence: The finding with numbers and 95 % intervals.
        notes: Sentences on what else may explain it, and on other parameters.
        time: When it was found [s].
        tracks: Series that show it, the clearest first.
        kind: ``step``, ``trend``, ``outlier`` or ``sibling``.

    """

    urgent: bool
    robot: str
    subject: Subject
    part: str
    sentence: str
    notes: tuple[str, ...]
    time: float
    tracks: tuple[Track, ...]
    kind: str


@dataclass(frozen=True)
class Review:
    """Findings of a fleet: the urgent ones first, the newest before others.

    Attributes:
        findings: The findings.
        tracks: All series.
        left_out: Number of estimates that were not used, by reason.

    """

    findings: tuple[Finding, ...]
    tracks: tuple[Track, ...]
    left_out: Mapping[str, int]

    @property
    def confidence(self) -> str:
        """Sentence on the rate of false alarms."""
        return (f'{CONFIDENCE}; robots are compared with a probability of '
                f'{100 * STRANGERS:.0f} % that any is wrongly said to differ.')


def review(query: Query, robot: str = '*') -> Review:
    """Find what changed, in the catalogue's view ``results``.

    Args:
        query: Query of a catalogue.
        robot: Pattern of names of the robots to scan, and to compare with each other.

    """
    tracks = _tracks(query, robot)
    found = [*_events(tracks), *_strangers(tracks)]
    found.sort(key=lambda item: (not item.urgent, item.kind == 'sibling', -item.time, item.robot))
    [left_out] = query(_LEFT_OUT, [robot])
    return Review(tuple(found), tuple(tracks), left_out)


# ------------------------------------------------------------------------------ series


_SERIES = """
WITH single AS (
    SELECT * FROM results
    WHERE state = 'identified' AND verdict <> 'fail' AND robot GLOB ? AND isfinite(value)
        AND std > 0 AND isfinite(std) AND time IS NOT NULL
    QUALIFY row_number() OVER (
        PARTITION BY robot, kind, method, parameter, time ORDER BY std, result) = 1)
SELECT robot, kind, method, parameter, coalesce(any_value(joint), '') AS joint,
    coalesce(any_value(quantity), parameter) AS quantity, any_value(unit) AS unit,
    coalesce(max_by(urdf_sha256, time), '') AS urdf,
    list(1e-6 * epoch_us(time) ORDER BY time) AS time, list(value ORDER BY time) AS value,
    list(std ORDER BY time) AS std, list(coalesce(freedom, 'inf') ORDER BY time) AS freedom,
    list(coalesce(temperature, 'nan') ORDER BY time) AS temperature,
    list(concat_ws(' ', settings_sha256, urdf_sha256, version) ORDER BY time) AS origin
FROM single GROUP BY robot, kind, method, parameter ORDER BY robot, kind, method, parameter
"""


_NAMES = ('robot', 'kind', 'method', 'parameter', 'joint', 'quantity', 'unit')
_LEFT_OUT = """
SELECT count_if(verdict = 'fail') AS "of results that failed their checks",
    count_if(verdict <> 'fail' AND NOT coalesce(std > 0 AND isfinite(value), false))
        AS "without standard deviation",
    count_if(verdict <> 'fail' AND std > 0 AND isfinite(value) AND time IS NULL)
        AS "without a date"
FROM results WHERE state = 'identified' AND robot GLOB ?
"""


def _tracks(query: Query, robot: str) -> list[Track]:
    rows = query(_SERIES, [robot])
    urdfs = {row['robot']: row['urdf'] for row in rows}
    count = Counter(urdfs.values())
    # Robots are compared by a URDF that others share, else by their names without numbers.
    models = {name: urdf if urdf and count[urdf] > 1 else re.sub(r'[\W_]*\d+$', '', name)
              for name, urdf in urdfs.items()}
    histories = [_history(row) for row in rows]
    # Tools and sensors differ from robot to robot; the scatter of their estimates does not.
    groups = [(models[row['robot']], row['kind'], row['method'], row['parameter']) for row in rows]
    return [
        Track(**{name: row[name] for name in _NAMES}, model=models[row['robot']],
              history=history, origin=tuple(row['origin']), course=course)
        for row, history, course in zip(
            rows, histories, courses(histories, groups), strict=True)]


def _history(row: Mapping[str, Any]) -> History:
    level = abs(float(np.median(row['value'])))
    if any(word in row['parameter'] for word in _FRICTION):
        sensitivity = _FRICTION_SENSITIVITY * level
    elif _is_bias(row['kind'], row['parameter']):
        sensitivity = _BIAS_SENSITIVITY.get(row['unit'], 0.0)
    else:
        sensitivity = _OTHER_SENSITIVITY * level
    time, value, std, freedom, temperature = (np.array(row[name], dtype=float) for name in (
        'time', 'value', 'std', 'freedom', 'temperature'))
    return History(time, value, std, freedom, temperature, sensitivity)


# ------------------------------------------------------------------------------ events


def _is_bias(kind: str, parameter: str) -> bool:
    """Return whether a parameter is a sensor's bias, of a tare or estimated with a payload."""
    return kind == 'tare' or parameter.startswith('bias_')


def _events(tracks: Iterable[Track]) -> Iterator[Finding]:
    """Yield the changes and outliers; those of one part at the same time are one finding."""
    for members in grouped(tracks, lambda track: track.place).values():
        changes = [(change, track) for track in members for change in track.course.changes
                   if not _begins_trend(change, track)]
        for together in _simultaneous(changes):
            yield _changed(together)
        singles = grouped(
            [(outlier, track) for track in members for outlier in track.course.outliers],
            lambda item: float(item[1].history.time[item[0].index]))
        for time, group in sorted(singles.items()):
            yield _outlying(time, group)


def _begins_trend(change: Change, track: Track) -> bool:
    """Return whether a step was the first sign of a trend that was found next."""
    later = track.course.changes[track.course.changes.index(change) + 1:][:1]
    return change.kind == 'step' and any(
        item.kind == 'trend' and item.first <= change.alarm for item in later)


def _span(change: Change, track: Track) -> tuple[float, float]:
    """Return the times between which a change happened [s]."""
    time = track.history.time
    return float(time[max(change.first - 1, 0)]), float(time[min(change.last, len(time) - 1)])


def _simultaneous(changes: Sequence[tuple[Change, Track]]) -> Iterator[list[tuple[Change, Track]]]:
    """Yield groups of changes whose times overlap, the clearest first.

    A trend that was found while a step of another parameter was, is the same event: few
    recordings do not tell them apart.
    """
    rest = sorted(changes, key=lambda item: (item[0].kind != 'step', -item[0].log_evidence))
    while rest:
        lead, group = rest[0], rest[:1]
        begin, end = _span(*lead)
        for change, track in rest[1:]:
            first, last = _span(change, track)
            if change.kind != lead[0].kind:
                last = max(last, float(track.history.time[change.alarm]))
            if track is not lead[1] and first <= end and last >= begin:
                group.append((change, track))
        yield group
        rest = [item for item in rest if item not in group]


def _changed(group: Sequence[tuple[Change, Track]]) -> Finding:
    change, track = group[0]
    begin, end = _span(change, track)
    when = (f'since about {day(0.5 * (begin + end))}' if change.kind == 'trend'
            else f'on {day(end)}' if day(begin) == day(end)
            else f'between {day(begin)} and {day(end)}')
    return Finding(
        track.subject is not Subject.TOOL or change.kind != 'step', *track.place,
        f'{_headline(change, track)}: {_phrase(change, track)}, {when}.',
        (*(f'{_phrase(other, its)}.' for other, its in group[1:]), *_explanations(change, track)),
        float(track.history.time[change.alarm]),
        tuple(dict.fromkeys(its for _, its in group)), change.kind)


def _headline(change: Change, track: Track) -> str:
    """Return what happened, in words."""
    part, rises = track.part, change.size * _level(change, track) > 0.0
    stepped, drifts = {
        Subject.TOOL: ('The tool or load was changed', 'The estimated tool or load drifts'),
        Subject.SENSOR: (f'Sensor {part} shifted', f'Sensor {part} drifts'),
        Subject.DRIVE: (f'The drive gain of {part} changed', f'The drive gain of {part} drifts'),
        Subject.ARM: (f'The model of {part} changed', f'The model of {part} drifts'),
        Subject.JOINT: (f'Compliance of {part} changed', f'Compliance of {part} drifts')
        if track.kind == 'compliance' else (
            f'Friction of {part} {"rose" if rises else "fell"}',
            f'{part} wears' if rises else f'Friction of {part} falls')}[track.subject]
    return stepped if change.kind == 'step' else drifts


def _level(change: Change, track: Track) -> float:
    """Return the level before a change."""
    return track.course.segments[track.course.changes.index(change)].level


def _phrase(change: Change, track: Track) -> str:
    """Return parameter and size with interval, in percent where that has a meaning."""
    level, name = _level(change, track), track.name
    rate = '/year' if change.kind == 'trend' else ''
    if track.subject is Subject.SENSOR or abs(level) <= _FAR * float(np.median(track.history.std)):
        return f'{name} {_interval(change.size, change.std, track.unit)}{rate}'
    share, width = (100.0 * value / abs(level) for value in (change.size, Z95 * change.std))
    signed, interval = _range(share, width)
    text = f'{name} {signed} % {interval}{rate}'
    if change.kind == 'trend':
        return text
    unit, factor = wording.handy(track.unit)
    before, after = (wording.rounded(factor * value, factor * Z95 * change.std)
                     for value in (level, level + change.size))
    return f'{text} ({before} → {after} {unit}'.rstrip() + ')'


def _range(value: float, half: float) -> tuple[str, str]:
    """Return a value with its sign, and its interval."""
    sign = '+' if value > 0.0 else ''
    return (sign + wording.rounded(value, half),
            f'[{wording.rounded(value - half, half)} to {wording.rounded(value + half, half)}]')


def _interval(value: float, std: float, unit: str) -> str:
    """Return a value with its 95 % interval, given in SI units."""
    unit, factor = wording.handy(unit)
    return ' '.join((*_range(factor * value, factor * Z95 * std), unit)).rstrip()


def _explanations(change: Change, track: Track) -> Iterator[str]:
    """Yield what else may explain a change, and what preceded it."""
    place = track.course.changes.index(change)
    if place and _begins_trend(before := track.course.changes[place - 1], track):
        yield (f'It began with a step of {_phrase(before, track)}, found on '
               f'{day(float(track.history.time[before.alarm]))}.')
    index = min(change.index, len(track.origin) - 1)
    old = set(track.origin[max(change.first - 1, 0):max(index, 1)])
    new = set(track.origin[index:change.last + 1])
    if change.kind == 'step' and old and new and not old & new:
        yield ('Settings, URDF or software of the estimates changed at the same time, which may '
               'be the cause.')
    if track.history.sensitivity > 0.0 and not np.isfinite(track.history.temperature).any():
        kelvin = abs(change.size) / track.history.sensitivity
        if kelvin > _MOST_KELVIN:
            return
        yield ('No temperature was recorded: a difference of '
               f'{wording.rounded(float(f"{kelvin:.1g}"))} K may explain '
               f'{"each year of " if change.kind == "trend" else ""}it.')


def _outlying(time: float, group: Sequence[tuple[Outlier, Track]]) -> Finding:
    outlier, track = min(group, key=lambda item: item[0].probability)
    last = outlier.index == len(track.history.time) - 1
    what = ('Another tool or load was mounted in one recording' if track.subject is Subject.TOOL
            else f'One recording of {track.part} deviates')
    advice = ('It is the newest: record again before acting on it.' if last
              else 'Recordings after it agree with those before.')
    return Finding(
        last, *track.place, f'{what}: {track.name} '
        f'{_interval(outlier.deviation, outlier.std, track.unit)} from its course, on '
        f'{day(time)}.',
        (advice, *(f'{its.name} deviates, too.' for _, its in group if its is not track)), time,
        tuple(its for _, its in group), 'outlier')


def day(seconds: float) -> str:
    """Return the date of seconds since 1970, in UTC."""
    moment = utc(seconds)
    return f'{moment.day} {moment:%b %Y}'


# ------------------------------------------------------------------------------ siblings


def levels_of(tracks: Sequence[Track]) -> tuple[Array, Array]:
    """Return the newest levels and their standard deviations, each of shape (r,).

    Args:
        tracks: Series of one parameter, one for each robot; the levels are at the median of their
            temperatures.

    """
    reference, level, std, coefficient, coefficient_std, sensitivity = np.array([(
        track.course.reference, last.level, last.std, last.coefficient, last.coefficient_std,
        track.history.sensitivity) for track in tracks for last in track.course.segments[-1:]]).T
    known = np.isfinite(reference)
    usual = reference[known] if known.any() else np.zeros(1)
    away = np.where(known, np.median(usual) - reference, 0.0)
    # Without temperature the robot may be as warm as any.
    unknown = np.where(known, 0.0, np.std(usual) * sensitivity)
    return (level + coefficient * away, np.sqrt(std**2 + (coefficient_std * away)**2 + unknown**2))


def families(tracks: Iterable[Track]) -> dict[tuple[str, str, str, str], list[Track]]:
    """Return the series that are compared, by model, kind, method and parameter; tools differ."""
    found = grouped(
        (track for track in tracks if track.subject is not Subject.TOOL
         and track.course.segments[-1].count >= _COMPARED),
        lambda track: (track.model, track.kind, track.method, track.parameter))
    return {key: members for key, members in found.items() if len(members) >= LEAST}


def _strangers(tracks: Sequence[Track]) -> Iterator[Finding]:
    """Yield the robots that differ from their siblings."""
    compared: list[tuple[Track, float, float, float, float, int]] = []
    for members in families(tracks).values():
        levels, deviations = levels_of(members)
        compared += zip(members, *compare(levels, deviations), levels,
                        [len(members)] * len(members), strict=True)
    differs = rejected(np.array([item[3] for item in compared]), STRANGERS)
    flagged = [item for item, flag in zip(compared, differs, strict=True) if flag]
    for group in grouped(flagged, lambda item: item[0].place).values():
        group.sort(key=lambda item: item[3])
        track, deviation, std, _, value, count = group[0]
        unit, factor = wording.handy(track.unit)
        # A unit may be empty.
        own, usual = (f'{wording.rounded(factor * level, factor * Z95 * std)} {unit}'.rstrip()
                      for level in (value, value - deviation))
        text = (f'{track.name} {own}, others {usual}; difference '
                f'{_interval(deviation, std, track.unit)}')
        yield Finding(
            True, *track.place, f'{track.part} differs from that of {count - 1} siblings: {text}.',
            tuple(f'{item[0].name} differs, too.' for item in group[1:]),
            float(track.history.time[-1]), tuple(item[0] for item in group), 'sibling')
