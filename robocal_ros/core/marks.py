# SPDX-License-Identifier: Apache-2.0
"""Marks that a procedure makes: which samples of which stream belong to a run.

A node publishes them on ``~/marks`` as diagnostic_msgs/DiagnosticArray. Each is one status:

======== =================================================================================
name     meaning
======== =================================================================================
begin    recorded samples were forgotten; what comes after the stamps told belongs to the run
discard  samples after the first and up to the second stamp told do not count
end      an estimation began; samples up to the stamps told belong to it
======== =================================================================================

``message`` is the service that is under way, ``hardware_id`` tells one start of the node from
another, and the values are stamps [s] by stream (two, with a space between them, for a discard)
and further words by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from robocal_ros.core.arrays import Array
from robocal_ros.errors import DataError

TOPIC = 'marks'
BEGIN, DISCARD, END = 'begin', 'discard', 'end'
JOINTS = 'joint_states'
"""Name under which marks tell the stamps of the joint states."""

WANTED = 'measure_joints'
"""Name under which an end mark tells the joints that were to be measured."""


@dataclass(frozen=True)
class Mark:
    """One mark.

    Attributes:
        name: ``begin``, ``discard`` or ``end``.
        verb: The service that was under way.
        values: What it tells, by name.

    """

    name: str
    verb: str
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
class Spans:
    """The spans of all streams of one run.

    Attributes:
        by_stream: Spans by the stream's name.
        joints_wanted: Joints that were to be measured, empty if nobody said.

    """

    by_stream: Mapping[str, Span] = field(default_factory=dict)
    joints_wanted: tuple[str, ...] = ()

    def of(self, stream: str) -> Span:
        """Return a stream's span; everything counts where nothing is said."""
        return self.by_stream.get(stream, Span())


def last_run(marks: Iterable[Mark], verbs: Sequence[str]) -> Spans | None:
    """Return the spans of the last run that was estimated from, else of the last one begun.

    Args:
        marks: Marks in the order of time.
        verbs: Services whose runs count.

    Returns:
        None if there is no such run.

    Raises:
        DataError: If a mark does not tell stamps where it should.

    """
    found, open_run = None, None
    begun: Mark | None = None
    discards: list[Mark] = []
    for mark in marks:
        if mark.name == BEGIN:
            begun, discards = mark, []
        elif mark.name == DISCARD:
            discards.append(mark)
        if mark.verb not in verbs:
            continue
        if mark.name == END:
            found = _spans(begun, discards, mark)
        elif mark.name == BEGIN:
            open_run = mark
    if found is None and open_run is not None and begun is open_run:
        return _spans(begun, discards, None)
    return found


def _spans(begin: Mark | None, discards: Sequence[Mark], end: Mark | None) -> Spans:
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
    return Spans(by_stream, tuple(filter(None, wanted.split(','))))


def _stamps(mark: Mark, name: str, count: int) -> tuple[float, ...]:
    try:
        stamps = tuple(float(word) for word in mark.values[name].split())
    except ValueError:
        stamps = ()
    if len(stamps) != count or np.isnan(stamps).any():
        raise DataError(
            f"A mark '{mark.name}' tells '{mark.values[name]}' for {name}; expected {count} "
            'stamp(s) in seconds. Estimate from the whole bag with --whole.')
    return stamps
