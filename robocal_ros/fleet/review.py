# SPDX-License-Identifier: Apache-2.0
"""Findings of a fleet: what changed, on which robot and joint, since when, and by how much.

The series of the catalogue are scanned for changes, changes of one joint, tool or sensor at the
same time are one finding, and robots are compared with their siblings. Results that failed
their checks are not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.fleet.changes import courses
from robocal_ros.fleet.histories import Change, Course, History, Outlier
from robocal_ros.fleet.scan import FALSE_ALARMS, HORIZON
from robocal_ros.fleet.statistics import LEAST, compare, rejected
from robocal_ros.results import Z95, wording

if TYPE_CHECKING:
    import duckdb

STRANGERS = 0.01
"""Largest probability that any robot is said to differ from its siblings though none does."""

_YEAR = 365.25 * 86400.0
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
    """What a finding is about."""

    JOINT = 'joint'
    TOOL = 'tool'
    SENSOR = 'sensor'
    DRIVE = 'drive'
    ARM = 'arm'


class Urgency(str, Enum):
    """What a finding asks for."""

    ATTENTION = 'attention'
    INFORMATION = 'information'


@dataclass(frozen=True)
class Key:
    """Identity of a series."""

    robot: str
    kind: str
    method: str
    parameter: str


@dataclass(frozen=True)
class Track:
    """One series of the catalogue with its course.

    Attributes:
        key: Identity.
        joint: Joint or sensor; empty for none.
        quantity: Quantity.
        unit: SI unit.
        model: Group of robots that are compared.
        history: Estimates.
        origin: Settings, URDF and software of each recording, as one text each.
        course: Changes.

    """

    key: Key
    joint: str
    quantity: str
    unit: str
    model: str
    history: History
    origin: tuple[str, ...]
    course: Course


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        urgency: Whether somebody must look.
        subject: What it is about.
        robot: Robot.
        part: Joint, tool or sensor in words.
        sentence: The finding with numbers and 95 % intervals.
        notes: Sentences on what else may explain it, and on other parameters.
        time: When it was found [s].
        keys: Series that show it, the clearest first.
        kind: ``step``, ``trend``, ``outlier`` or ``sibling``.

    """

    urgency: Urgency
    subject: Subject
    robot: str
    part: str
    sentence: str
    notes: tuple[str, ...]
    time: float
    keys: tuple[Key, ...]
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
    tracks: Mapping[Key, Track]
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def confidence(self) -> str:
        """Sentence on the rate of false alarms."""
        return (f'At most {1000 * FALSE_ALARMS:.0f} of 1000 series of {HORIZON} recordings '
                'without change has any finding, if days of recordings are independent and '
                'temperatures are recorded or do not follow the seasons; robots are compared with '
                f'a probability of {100 * STRANGERS:.0f} % that any is wrongly said to differ.')


def review(connection: duckdb.DuckDBPyConnection, robot: str = '*') -> Review:
    """Find what changed, in the catalogue's view ``results``.

    Args:
        connection: Connection to a catalogue.
        robot: Pattern of names of the robots to scan, and to compare with each other.

    """
    tracks = {track.key: track for track in _tracks(connection, robot)}
    found = [*_events(tracks.values()), *_strangers(list(tracks.values()))]
    found.sort(key=lambda item: (item.urgency is not Urgency.ATTENTION, item.kind == 'sibling',
                                 -item.time, item.robot))
    [(failed, unknown)] = connection.execute(
        "SELECT count_if(verdict = 'fail'), count_if(verdict <> 'fail' AND NOT coalesce(std > 0 "
        "AND isfinite(value), false)) FROM results WHERE state = 'identified' AND robot GLOB ?",
        [robot]).fetchall()
    return Review(tuple(found), tracks, {
        'of results that failed their checks': failed, 'without standard deviation': unknown})


def sentences(found: Review) -> list[str]:
    """Return the findings as lines for a terminal, the most urgent first."""
    return [f'{item.robot}: {" ".join((item.sentence, *item.notes))}' for item in found.findings]


# ------------------------------------------------------------------------------ series


_SERIES = """
WITH single AS (
    SELECT * FROM results
    WHERE state = 'identified' AND verdict <> 'fail' AND robot GLOB ? AND isfinite(value)
        AND std > 0 AND isfinite(std) AND time IS NOT NULL
    QUALIFY row_number() OVER (
        PARTITION BY robot, kind, method, parameter, time ORDER BY std, result) = 1)
SELECT robot, kind, method, parameter, any_value(joint) AS joint,
    any_value(quantity) AS quantity, any_value(unit) AS unit, max_by(urdf_sha256, time) AS urdf,
    list(epoch_us(time) ORDER BY time) AS time, list(value ORDER BY time) AS value,
    list(std ORDER BY time) AS std, list(coalesce(freedom, 'inf') ORDER BY time) AS freedom,
    list(coalesce(temperature, 'nan') ORDER BY time) AS temperature,
    list(concat_ws(' ', settings_sha256, urdf_sha256, version) ORDER BY time) AS origin
FROM single GROUP BY robot, kind, method, parameter ORDER BY robot, kind, method, parameter
"""


def _tracks(connection: duckdb.DuckDBPyConnection, robot: str) -> list[Track]:
    rows: list[dict[str, Any]] = connection.sql(
        _SERIES, params=[robot]).to_arrow_table().to_pylist()
    models = _models({row['robot']: row['urdf'] or '' for row in rows})
    histories = [_history(row) for row in rows]
    # Tools and sensors differ from robot to robot; the scatter of their estimates does not.
    groups = [(models[row['robot']], row['kind'], row['method'], row['parameter'])
              for row in rows]
    return [
        Track(Key(row['robot'], row['kind'], row['method'], row['parameter']), row['joint'] or '',
              row['quantity'] or row['parameter'], row['unit'], models[row['robot']], history,
              tuple(row['origin']), course)
        for row, history, course in zip(
            rows, histories, courses(histories, groups), strict=True)]


def _history(row: Mapping[str, Any]) -> History:
    value = np.array(row['value'], dtype=float)
    level = abs(float(np.median(value)))
    if any(word in row['parameter'] for word in _FRICTION):
        sensitivity = _FRICTION_SENSITIVITY * level
    elif _is_bias(row['kind'], row['parameter']):
        sensitivity = _BIAS_SENSITIVITY.get(row['unit'], 0.0)
    else:
        sensitivity = _OTHER_SENSITIVITY * level
    return History(np.array(row['time'], dtype=float) * 1e-6, value, np.array(row['std'], float),
                   np.array(row['freedom'], float), np.array(row['temperature'], float),
                   sensitivity)


def _models(urdfs: Mapping[str, str]) -> dict[str, str]:
    """Return the group of each robot: a URDF that others share, else its name without number."""
    count: dict[str, int] = {}
    for urdf in urdfs.values():
        count[urdf] = count.get(urdf, 0) + 1
    return {robot: urdf if urdf and count[urdf] > 1 else re.sub(r'[\W_]*\d+$', '', robot)
            for robot, urdf in urdfs.items()}


# ------------------------------------------------------------------------------ events


def _is_bias(kind: str, parameter: str) -> bool:
    """Return whether a parameter is a sensor's bias, of a tare or estimated with a payload."""
    return kind == 'tare' or parameter.startswith('bias_')


def subject_of(track: Track) -> Subject:
    """Return what a series describes."""
    if _is_bias(track.key.kind, track.key.parameter):
        return Subject.SENSOR
    if track.key.kind == 'drive_gains':
        return Subject.DRIVE
    if any(word in track.quantity for word in _FRICTION) or track.key.kind == 'compliance':
        return Subject.JOINT
    if track.key.kind == 'arm':
        return Subject.ARM
    return Subject.TOOL


def _part(track: Track) -> str:
    if track.joint:
        return track.joint
    if track.key.kind == 'tare':
        return track.key.parameter.rpartition('.')[0]
    return {Subject.TOOL: 'tool', Subject.SENSOR: 'wrist'}.get(subject_of(track), 'arm')


def name_of(track: Track) -> str:
    """Return the quantity of a series in words, without its part."""
    return wording.described(track.quantity.removeprefix(f'{_part(track)}.'))


def _events(tracks: Iterable[Track]) -> Iterator[Finding]:
    """Yield the changes and outliers; those of one part at the same time are one finding."""
    parts: dict[tuple[str, str, str], list[Track]] = {}
    for track in tracks:
        part = track.key.robot, subject_of(track).value, _part(track)
        parts.setdefault(part, []).append(track)
    for members in parts.values():
        changes = [(change, track) for track in members for change in track.course.changes
                   if not _begins_trend(change, track)]
        for together in _simultaneous(changes):
            yield _changed(together)
        singles: dict[float, list[tuple[Outlier, Track]]] = {}
        for track in members:
            for outlier in track.course.outliers:
                singles.setdefault(float(track.history.time[outlier.index]), []).append(
                    (outlier, track))
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


def _simultaneous(
    changes: Sequence[tuple[Change, Track]]
) -> Iterator[list[tuple[Change, Track]]]:
    """Yield groups of changes whose times overlap, the clearest first.

    A trend that was found while a step of another parameter was, is the same event: few
    recordings do not tell them apart.
    """
    rest = sorted(changes, key=lambda item: (item[0].kind != 'step', -item[0].log_evidence))
    while rest:
        lead = rest[0]
        group = [item for item in rest if item is lead or _is_one_event(lead, item)]
        yield group
        rest = [item for item in rest if item not in group]


def _is_one_event(lead: tuple[Change, Track], other: tuple[Change, Track]) -> bool:
    begin, end = _span(*lead)
    first, last = _span(*other)
    if other[0].kind != lead[0].kind:
        last = max(last, float(other[1].history.time[other[0].alarm]))
    return other[1] is not lead[1] and first <= end and last >= begin


def _changed(group: Sequence[tuple[Change, Track]]) -> Finding:
    change, track = group[0]
    subject, part = subject_of(track), _part(track)
    begin, end = _span(change, track)
    notes = [f'{_phrase(other, its)}.' for other, its in group[1:]]
    notes += _explanations(change, track)
    urgency = (Urgency.INFORMATION if subject is Subject.TOOL and change.kind == 'step'
               else Urgency.ATTENTION)
    when = (f'since about {day(0.5 * (begin + end))}' if change.kind == 'trend'
            else f'on {day(end)}' if day(begin) == day(end)
            else f'between {day(begin)} and {day(end)}')
    return Finding(
        urgency, subject, track.key.robot, part,
        f'{_headline(change, track)}: {_phrase(change, track)}, {when}.', tuple(notes),
        float(track.history.time[change.alarm]),
        tuple(dict.fromkeys(its.key for _, its in group)), change.kind)


def _headline(change: Change, track: Track) -> str:
    """Return what happened, in words."""
    part, rises = _part(track), change.size * _level(change, track) > 0.0
    subject = subject_of(track)
    if subject is Subject.TOOL:
        return ('The tool or load was changed' if change.kind == 'step'
                else 'The estimated tool or load drifts')
    if subject is Subject.SENSOR:
        return f'Sensor {part} ' + ('shifted' if change.kind == 'step' else 'drifts')
    if subject is Subject.JOINT and track.key.kind != 'compliance':
        if change.kind == 'step':
            return f'Friction of {part} ' + ('rose' if rises else 'fell')
        return f'{part} wears' if rises else f'Friction of {part} falls'
    what = {Subject.DRIVE: f'The drive gain of {part}', Subject.JOINT: f'Compliance of {part}',
            Subject.ARM: f'The model of {part}'}[subject]
    return what + (' changed' if change.kind == 'step' else ' drifts')


def _level(change: Change, track: Track) -> float:
    """Return the level before a change."""
    position = track.course.changes.index(change)
    return track.course.segments[position].level


def _phrase(change: Change, track: Track) -> str:
    """Return parameter and size with interval, in percent where that has a meaning."""
    level = _level(change, track)
    half = Z95 * change.std
    rate = '/year' if change.kind == 'trend' else ''
    name = name_of(track)
    if subject_of(track) is not Subject.SENSOR and abs(level) > _FAR * float(
            np.median(track.history.std)):
        share, width = 100.0 * change.size / abs(level), 100.0 * half / abs(level)
        text = f'{name} {_signed(share, width)} % [{_range(share, width)}]{rate}'
        unit, factor = wording.handy(track.unit)
        after = level + change.size
        if change.kind == 'step':
            text += (f' ({wording.rounded(factor * level, factor * half)} → '
                     f'{wording.rounded(factor * after, factor * half)} {unit}').rstrip() + ')'
        return text
    unit, factor = wording.handy(track.unit)
    return f'{name} {_interval(factor * change.size, factor * half, unit)}{rate}'


def _signed(value: float, half: float) -> str:
    return ('+' if value > 0.0 else '') + wording.rounded(value, half)


def _range(value: float, half: float) -> str:
    return (f'{wording.rounded(value - half, half)} to {wording.rounded(value + half, half)}')


def _interval(value: float, half: float, unit: str) -> str:
    return f'{_signed(value, half)} [{_range(value, half)}] {unit}'.rstrip()


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
    subject, part = subject_of(track), _part(track)
    last = outlier.index == len(track.history.time) - 1
    unit, factor = wording.handy(track.unit)
    size, half = factor * outlier.deviation, factor * Z95 * outlier.std
    what = {Subject.TOOL: 'Another tool or load was mounted in one recording'}.get(
        subject, f'One recording of {part} deviates')
    others = tuple(f'{name_of(its)} deviates, too.'
                   for _, its in group if its is not track)
    advice = ('It is the newest: record again before acting on it.' if last
              else 'Recordings after it agree with those before.')
    return Finding(
        Urgency.ATTENTION if last else Urgency.INFORMATION, subject, track.key.robot, part,
        f'{what}: {name_of(track)} {_interval(size, half, unit)} from its course, on {day(time)}.',
        (advice, *others), time, tuple(its.key for _, its in group), 'outlier')


def day(seconds: float) -> str:
    """Return the date of seconds since 1970, in UTC."""
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return f'{moment.day} {moment:%b %Y}'


# ------------------------------------------------------------------------------ siblings


def levels_of(tracks: Sequence[Track]) -> tuple[Array, Array]:
    """Return the newest levels and their standard deviations, each of shape (r,).

    Args:
        tracks: Series of one parameter, one for each robot; the levels are at the median of their
            temperatures.

    """
    references = np.array([track.course.reference for track in tracks])
    common = float(np.nanmedian(references)) if np.isfinite(references).any() else np.nan
    value, std = np.empty(len(tracks)), np.empty(len(tracks))
    for i, track in enumerate(tracks):
        last = track.course.segments[-1]
        away = common - references[i] if np.isfinite(references[i]) else 0.0
        # Without temperature the robot may be as warm as any.
        unknown = (float(np.nanstd(references)) if np.isfinite(references).any() else 0.0) * (
            track.history.sensitivity) * float(not np.isfinite(references[i]))
        value[i] = last.level + last.coefficient * away
        std[i] = np.sqrt(last.std**2 + (last.coefficient_std * away)**2 + unknown**2)
    return value, std


def families(tracks: Iterable[Track]) -> dict[tuple[str, str, str, str], list[Track]]:
    """Return the series that are compared, by model, kind, method and parameter; tools differ."""
    found: dict[tuple[str, str, str, str], list[Track]] = {}
    for track in tracks:
        if (subject_of(track) is not Subject.TOOL
                and track.course.segments[-1].count >= _COMPARED):
            found.setdefault((track.model, track.key.kind, track.key.method,
                              track.key.parameter), []).append(track)
    return {key: members for key, members in found.items() if len(members) >= LEAST}


def _strangers(tracks: Sequence[Track]) -> Iterator[Finding]:
    """Yield the robots that differ from their siblings."""
    compared: list[tuple[Any, ...]] = []
    for members in families(tracks).values():
        value, std = levels_of(members)
        found = compare(value, std)
        compared += zip(members, found.deviation, found.std, found.probability, value,
                        [len(members)] * len(members), strict=True)
    if not compared:
        return
    differs = rejected(np.array([item[3] for item in compared]), STRANGERS)
    parts: dict[tuple[str, str, str], list[tuple[Any, ...]]] = {}
    for item, flag in zip(compared, differs, strict=True):
        if flag:
            track = item[0]
            parts.setdefault((track.key.robot, subject_of(track).value, _part(track)),
                             []).append(item)
    for group in parts.values():
        group.sort(key=lambda item: item[3])
        track, deviation, std, _, value, count = group[0]
        unit, factor = wording.handy(track.unit)
        half = factor * Z95 * std
        # A unit may be empty.
        own, usual = (f'{wording.rounded(factor * level, half)} {unit}'.rstrip()
                      for level in (value, value - deviation))
        text = (f'{name_of(track)} {own}, others {usual}; difference '
                f'{_interval(factor * deviation, half, unit)}')
        yield Finding(
            Urgency.ATTENTION, subject_of(track), track.key.robot, _part(track),
            f'{_part(track)} differs from that of {count - 1} siblings: {text}.',
            tuple(f'{name_of(item[0])} differs, too.'
                  for item in group[1:]),
            float(track.history.time[-1]), tuple(item[0].key for item in group), 'sibling')
