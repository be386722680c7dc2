# SPDX-License-Identifier: Apache-2.0
"""Marks that a procedure makes: which samples of which stream belong to a run.

A node publishes them on ``~/marks`` as diagnostic_msgs/DiagnosticArray. Each is one status:

======== =================================================================================
name     meaning
======== =================================================================================
begin    recorded samples were forgotten; what comes after the stamps told belongs to the run
discard  samples after the first and up to the second stamp told do not count
rest     the arm rested, and was measured, from the first to before the second stamp told
end      an estimation began; samples up to the stamps told belong to it
tared    sensors were tared with the instants from the first to the second stamp told
======== =================================================================================

``message`` is the service that is under way, ``hardware_id`` tells one start of the node from
another, and the values are stamps [s] by stream (two, with a space between them, for a discard
and a rest) and further words by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError

TOPIC = 'marks'
BEGIN, DISCARD, REST, END = 'begin', 'discard', 'rest', 'end'
JOINTS = 'joint_states'
"""Name under which marks tell the stamps of the joint states."""

TARED = 'tared'
"""Name of the mark of a tare."""

WANTED = 'measure_joints'
"""Name under which an end mark tells the joints that were to be measured."""

PURPOSE, POSTURE = 'set', 'posture'
"""Names under which a mark of a rest tells what it was for, and the number of the posture."""

_CURE = 'Estimate from the whole bag with --whole.'


@dataclass(frozen=True)
class Mark:
    """One mark.

    Attributes:
        name: ``begin``, ``discard``, ``rest``, ``end`` or ``tared``.
        service: The service that was under way.
        values: What it tells, by name.

    """

    name: str
    service: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class Span:
    """Which samples of one stream count: stamps after ``begin``, up to ``end``.

    Attributes:
        begin: Stamp after which samples count [s].
        end: Stamp up to which they count [s].
        discarded: Stretches that do not count, after the first and up to the second stamp [s].

    """

    begin: float = -np.inf
    end: float = np.inf
    discarded: tuple[tuple[float, float], ...] = ()

    def holds(self, time: Array) -> npt.NDArray[np.bool_]:
        """Return which stamps count, shape (k,)."""
        inside: npt.NDArray[np.bool_] = (time > self.begin) & (time <= self.end)
        for first, last in self.discarded:
            inside &= ~((time > first) & (time <= last))
        return inside


@dataclass(frozen=True)
class StationaryInterval:
    """A rest of the arm in which something was measured.

    Attributes:
        begin: Stamp from which samples count [s].
        end: Stamp before which they count [s].
        purpose: What it was for, such as ``loaded``.
        posture: Number of the posture.

    """

    begin: float
    end: float
    purpose: str
    posture: int

    def holds(self, time: Array) -> npt.NDArray[np.bool_]:
        """Return which stamps count, shape (k,)."""
        inside: npt.NDArray[np.bool_] = (time >= self.begin) & (time < self.end)
        return inside


@dataclass(frozen=True)
class Spans:
    """The spans of all streams of one run.

    Attributes:
        by_stream: Spans by the stream's name.
        joints_wanted: Joints that were to be measured, empty if nobody said.
        stationary: Rests that count, in the order in which they were marked.

    """

    by_stream: Mapping[str, Span] = field(default_factory=dict)
    joints_wanted: tuple[str, ...] = ()
    stationary: tuple[StationaryInterval, ...] = ()

    def of(self, stream: str) -> Span:
        """Return a stream's span; everything counts where nothing is said."""
        return self.by_stream.get(stream, Span())


def last_run(marks: Iterable[Mark], services: Sequence[str]) -> Spans | None:
    """Return the spans of the last run that was estimated from, else of the last one begun.

    Args:
        marks: Marks in the order of time.
        services: Services whose runs count.

    Returns:
        None if there is no such run.

    Raises:
        DataError: If a mark does not tell stamps where it should.

    """
    found, open_run = None, None
    begun: Mark | None = None
    between: list[Mark] = []
    for mark in marks:
        if mark.name == BEGIN:
            begun, between = mark, []
        elif mark.name in (DISCARD, REST):
            between.append(mark)
        if mark.service not in services:
            continue
        if mark.name == END:
            found = _spans(begun, between, mark)
        elif mark.name == BEGIN:
            open_run = mark
    if found is None and open_run is not None and begun is open_run:
        return _spans(begun, between, None)
    return found


def tares(marks: Iterable[Mark]) -> tuple[tuple[float, float], ...]:
    """Return the first and the last instant of each tare, in the order of time [s].

    Raises:
        DataError: If a mark does not tell stamps where it should.

    """
    found = {(first, last) for mark in marks if mark.name == TARED and JOINTS in mark.values
             for first, last in [_stamps(mark, JOINTS, 2)]}
    return tuple(sorted(found, key=lambda span: span[1]))


def _spans(begin: Mark | None, between: Sequence[Mark], end: Mark | None) -> Spans:
    discards = [mark for mark in between if mark.name == DISCARD]
    names = [name for mark in (begin, end) if mark is not None for name in mark.values
             if name != WANTED]
    by_stream = {}
    for name in dict.fromkeys(names):
        cut = tuple(_stamps(mark, name, 2) for mark in discards if name in mark.values)
        by_stream[name] = Span(
            _stamps(begin, name, 1)[0] if begin and name in begin.values else -np.inf,
            _stamps(end, name, 1)[0] if end and name in end.values else np.inf,
            tuple((first, last) for first, last in cut))
    wanted = end.values.get(WANTED, '') if end is not None else ''
    return Spans(by_stream, tuple(filter(None, wanted.split(','))), _intervals(between))


def _intervals(between: Sequence[Mark]) -> tuple[StationaryInterval, ...]:
    """Return the rests that no stretch of discarded samples reaches the end of."""
    cut = [_stamps(mark, JOINTS, 2) for mark in between
           if mark.name == DISCARD and JOINTS in mark.values]
    intervals = [_interval(mark) for mark in between if mark.name == REST]
    return tuple(interval for interval in intervals
                 if not any(first < interval.end <= last for first, last in cut))


def _interval(mark: Mark) -> StationaryInterval:
    begin, end = _stamps(mark, JOINTS, 2)
    told = mark.values.get(POSTURE, '')
    if not told.isdecimal():
        raise DataError(f"A mark '{mark.name}' tells '{told}' for {POSTURE}; expected a number. "
                        f'{_CURE}')
    return StationaryInterval(begin, end, mark.values.get(PURPOSE, ''), int(told))


def _stamps(mark: Mark, name: str, count: int) -> tuple[float, ...]:
    told = mark.values.get(name, '')
    try:
        stamps = tuple(float(word) for word in told.split())
    except ValueError:
        stamps = ()
    if len(stamps) != count or np.isnan(stamps).any():
        raise DataError(
            f"A mark '{mark.name}' tells '{told}' for {name}; expected {count} stamp(s) in "
            f'seconds. {_CURE}')
    return stamps
