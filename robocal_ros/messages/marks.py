# SPDX-License-Identifier: Apache-2.0
"""Marks of a procedure: the samples of each stream that belong to a run.

A node publishes them on ``~/marks`` as diagnostic_msgs/DiagnosticArray. Each is one status:

======== =================================================================================
name     meaning
======== =================================================================================
begin    recorded samples were discarded; samples after the given stamps belong to the run
discard  samples after the first and up to the second stamp are not used
rest     the arm was measured at rest from the first to before the second stamp
end      an estimation began; samples up to the given stamps belong to it
tared    sensors were tared with the instants from the first to the second stamp
======== =================================================================================

``message`` is the running service, ``hardware_id`` identifies one start of the node, and the
values are stamps [s] by stream (two, separated by a space, for discard, rest and tared)
and further values by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robocal_ros.arrays import Array, Flags
from robocal_ros.errors import DataError

TOPIC = 'marks'
BEGIN, DISCARD, REST, END = 'begin', 'discard', 'rest', 'end'
JOINTS = 'joint_states'
"""Key of the stamps of the joint states in a mark."""

TARED = 'tared'
"""Name of the mark of a tare."""

WANTED = 'measure_joints'
"""Key of the joints to be measured in an end mark."""

METHOD = 'method'
"""Key of the procedure's method in an end mark, where there are several."""

PURPOSE, POSTURE = 'set', 'posture'
"""Keys of purpose and posture number in the mark of a stationary interval."""

_CURE = 'Estimate from the whole bag with --whole.'


@dataclass(frozen=True)
class Mark:
    """One mark.

    Attributes:
        name: ``begin``, ``discard``, ``rest``, ``end`` or ``tared``.
        service: The running service.
        values: Its values, by name.

    """

    name: str
    service: str
    values: Mapping[str, str]

    @classmethod
    def of(cls, status: Any) -> Mark:
        """Return the mark of a diagnostic_msgs/DiagnosticStatus."""
        return cls(status.name, status.message, {item.key: item.value for item in status.values})


# In place of a mark that is missing.
_NONE = Mark('', '', {})


@dataclass(frozen=True)
class Span:
    """Samples of one stream that belong to a run: stamps after ``begin``, up to ``end``.

    Attributes:
        begin: Stamp after which samples are used [s].
        end: Stamp up to which they are used [s].
        discarded: Intervals that are not used, after the first and up to the second stamp [s].

    """

    begin: float = -np.inf
    end: float = np.inf
    discarded: tuple[tuple[float, float], ...] = ()

    def holds(self, time: Array) -> Flags:
        """Return the mask of the stamps inside, shape (k,)."""
        inside: Flags = (time > self.begin) & (time <= self.end)
        for first, last in self.discarded:
            inside &= ~((time > first) & (time <= last))
        return inside


@dataclass(frozen=True)
class StationaryInterval:
    """Interval in which the arm was measured at rest.

    Attributes:
        begin: First stamp [s].
        end: Stamp before which it ends [s].
        purpose: Purpose of the measurement, such as ``loaded``.
        posture: Number of the posture.

    """

    begin: float
    end: float
    purpose: str
    posture: int

    def holds(self, time: Array) -> Flags:
        """Return the mask of the stamps inside, shape (k,)."""
        return (time >= self.begin) & (time < self.end)


@dataclass(frozen=True)
class Spans:
    """The spans of all streams of one run.

    Attributes:
        by_stream: Spans by the stream's name.
        joints_wanted: Joints that were to be measured, empty if unknown.
        method: Method of the procedure, empty if there is one only or it is unknown.
        stationary: Valid stationary intervals, in the order in which they were marked.

    """

    by_stream: Mapping[str, Span] = field(default_factory=dict)
    joints_wanted: tuple[str, ...] = ()
    method: str = ''
    stationary: tuple[StationaryInterval, ...] = ()

    def of(self, stream: str) -> Span:
        """Return a stream's span; all stamps for an unmarked stream."""
        return self.by_stream.get(stream, Span())


def last_run(marks: Iterable[Mark], services: Sequence[str]) -> Spans | None:
    """Return the spans of the last run with an estimation, else of the last run.

    Args:
        marks: Marks in the order of time.
        services: Services whose runs are considered.

    Returns:
        None if there is no such run.

    Raises:
        DataError: If a mark lacks its stamps.

    """
    found: Spans | None = None
    begun = _NONE
    between: list[Mark] = []
    for mark in marks:
        if mark.name == BEGIN:
            begun, between = mark, []
        elif mark.name in (DISCARD, REST):
            between.append(mark)
        elif mark.name == END and mark.service in services:
            found = _spans(begun, between, mark)
    if found is None and begun.service in services:
        return _spans(begun, between, _NONE)
    return found


def tares(marks: Iterable[Mark]) -> tuple[tuple[float, float], ...]:
    """Return the first and the last instant of each tare, in the order of time [s].

    Raises:
        DataError: If a mark lacks its stamps.

    """
    return tuple(sorted(set(_pairs(marks, TARED, JOINTS)), key=lambda span: span[1]))


def _spans(begin: Mark, between: Sequence[Mark], end: Mark) -> Spans:
    names = [name for name in (*begin.values, *end.values) if name not in (WANTED, METHOD)]
    by_stream = {name: Span(
        _stamps(begin, name, 1)[0] if name in begin.values else -np.inf,
        _stamps(end, name, 1)[0] if name in end.values else np.inf,
        _pairs(between, DISCARD, name)) for name in dict.fromkeys(names)}
    wanted, method = (end.values.get(name, '') for name in (WANTED, METHOD))
    return Spans(by_stream, tuple(filter(None, wanted.split(','))), method, _intervals(between))


def _intervals(between: Sequence[Mark]) -> tuple[StationaryInterval, ...]:
    """Return the stationary intervals whose end is not within a discarded one."""
    cut = _pairs(between, DISCARD, JOINTS)
    intervals = [_interval(mark) for mark in between if mark.name == REST]
    return tuple(interval for interval in intervals
                 if not any(first < interval.end <= last for first, last in cut))


def _pairs(marks: Iterable[Mark], name: str, stream: str) -> tuple[tuple[float, float], ...]:
    """Return the first and the last stamp of a stream in each mark of a name."""
    return tuple((first, last) for mark in marks if mark.name == name and stream in mark.values
                 for first, last in [_stamps(mark, stream, 2)])


def _interval(mark: Mark) -> StationaryInterval:
    begin, end = _stamps(mark, JOINTS, 2)
    number = mark.values.get(POSTURE, '')
    if not number.isdecimal():
        raise DataError(f"A mark '{mark.name}' has '{number}' for {POSTURE}; expected a number. "
                        f'{_CURE}')
    return StationaryInterval(begin, end, mark.values.get(PURPOSE, ''), int(number))


def _stamps(mark: Mark, name: str, count: int) -> tuple[float, ...]:
    text = mark.values.get(name, '')
    try:
        stamps = tuple(float(word) for word in text.split())
    except ValueError:
        stamps = ()
    if len(stamps) != count or np.isnan(stamps).any():
        raise DataError(
            f"A mark '{mark.name}' has '{text}' for {name}; expected {count} stamp(s) in "
            f'seconds. {_CURE}')
    return stamps
