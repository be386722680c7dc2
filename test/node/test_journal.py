# SPDX-License-Identifier: Apache-2.0
"""The journal of an unfinished measurement: what is gone on from, and what is not."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from support.fake_arm import FakeReport
from support.ros_rig import Log

from robocal_ros import files
from robocal_ros.errors import CancelledError, DataError
from robocal_ros.friction.parameters import FrictionParameters
from robocal_ros.messages.intake import Recorded
from robocal_ros.messages.samples import StreamCounts
from robocal_ros.node import journal as module
from robocal_ros.node.journal import Journal
from robocal_ros.results.result import RobotIdentity
from robocal_ros.results.store import ResultStore

TOPIC = '/joint_states'


@dataclass(frozen=True)
class State:
    """State of a procedure with everything that states contain."""

    home: module.Array
    postures: module.Array | None
    visits: dict[str, list[tuple[int, Recorded]]]
    measured: tuple[str, ...]


def recorded(newest: float = 100.0, **counts: int) -> Recorded:
    return Recorded(np.array([[newest - 1.0, 0.5], [newest, -0.5]]), 1, 0, newest,
                    StreamCounts(received=2, **counts))


STATE = State(np.arange(6.0), None, {'loaded': [(3, recorded())]}, ('joint_6',))


@dataclass
class FakeRecorder:
    """One stream."""

    stream: Recorded = field(default_factory=recorded)
    restored: dict[str, Recorded] = field(default_factory=dict)
    foreign: bool = False

    @property
    def newest_by_topic(self) -> dict[str, float]:
        return {TOPIC: self.stream.newest}

    def saved(self) -> dict[str, Recorded]:
        return {TOPIC: self.stream}

    def restore(self, saved: dict[str, Recorded]) -> None:
        if self.foreign:
            raise DataError('It lacks the samples of a stream.')
        self.restored = saved


class Start:
    """One start of a node, with its journal."""

    def __init__(self, folder: Path, **parameters: Any) -> None:
        self.values = FrictionParameters(**parameters)
        self.parameter_table = FrictionParameters
        self.store = ResultStore(folder, RobotIdentity('arm', 'f', ('joint_1',)))
        self.robot = SimpleNamespace(identity=RobotIdentity('', '', (), 'of the arm'))
        self.status = FakeReport()
        self.waiter: Any = SimpleNamespace(
            compute=self._compute, until_stopped=self._until, stop_reason='')
        self.hashes = {'payload': 'abc'}
        self.results = SimpleNamespace(hashes=lambda: self.hashes)
        self.sender = [1, 2, 3]
        self.recorder = FakeRecorder()
        logger = SimpleNamespace()
        self.get_logger = lambda: logger
        self.log = Log(self)  # type: ignore[arg-type]
        self.journal: Journal[State] = Journal(
            self, self.recorder, 'friction', State)  # type: ignore[arg-type]

    @staticmethod
    async def _compute(function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    @staticmethod
    async def _until(condition: Callable[[], bool], timeout: float) -> bool:
        return condition()

    def get_publishers_info_by_topic(self, topic: str) -> list[Any]:
        assert topic == TOPIC
        return [SimpleNamespace(endpoint_gid=self.sender)]

    def keep(self) -> None:
        asyncio.run(self.journal.keep(STATE, '1 of 2 joints'))

    def resume(self) -> State | None:
        return asyncio.run(self.journal.resume())

    def warning(self) -> str:
        return ' '.join(self.log['warning'])


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """A node that starts after another one has measured a joint."""
    Start(tmp_path).keep()
    started = Start(tmp_path)
    started.recorder.stream = recorded(130.0)
    return started


def file_of(start: Start) -> Path:
    return start.store.directory / 'friction.unfinished'


def test_the_state_and_the_recording_come_back(start: Start) -> None:
    found = start.resume()
    assert found is not None
    np.testing.assert_array_equal(found.home, STATE.home)
    assert found.postures is None
    assert found.measured == STATE.measured
    (number, one), = found.visits['loaded']
    assert number == 3
    stream = start.recorder.restored[TOPIC]
    for item in (one, stream):
        np.testing.assert_array_equal(item.rows, recorded().rows)
        assert replace(item, rows=recorded().rows).counts == StreamCounts(received=2)
    assert re.fullmatch(r'Resumed after a restart: 1 of 2 joints were measured at \d\d:\d\d\.',
                        start.journal.sentence)
    assert start.status.notes['resumed'] == start.journal.sentence
    assert start.journal.resumed == 1


def test_each_restart_counts_and_a_run_of_the_same_start_is_no_restart(
    start: Start, tmp_path: Path
) -> None:
    start.resume()
    start.keep()
    assert start.resume() is not None
    assert start.journal.sentence.startswith('Resumed: 1 of 2')
    assert start.journal.resumed == 2
    start.keep()
    third = Start(tmp_path)
    third.recorder.stream = recorded(150.0)
    third.resume()
    assert third.journal.resumed == 3


def test_nothing_is_found_at_first_and_after_the_end(start: Start, tmp_path: Path) -> None:
    start.journal.forget()
    assert start.resume() is None
    assert start.log['warning'] == []
    assert list(tmp_path.iterdir()) == []


def with_body(start: Start, body: bytes) -> None:
    """Replace the content by another one with a valid hash."""
    file_of(start).write_bytes(b'robocal journal 1\n' + sha256(body).digest() + body)


def an_impossible_shape(start: Start) -> None:
    body = msgspec.msgpack.decode(file_of(start).read_bytes()[len(b'robocal journal 1\n') + 32:])
    body['state']['home']['shape'] = [2**62, 2**62]
    with_body(start, msgspec.msgpack.encode(body))


def deep_nesting(start: Start) -> None:
    with_body(start, b'\x91' * 100_000)


def a_folder(start: Start) -> None:
    file_of(start).unlink()
    file_of(start).mkdir()


def a_named_pipe(start: Start) -> None:
    file_of(start).unlink()
    os.mkfifo(file_of(start))


def refused(start: Start, reason: str) -> None:
    """Assert that nothing is gone on from, and that the log says why."""
    assert start.resume() is None
    assert re.search(reason, start.warning())
    assert 'Measuring begins anew.' in start.warning()
    assert start.journal.resumed == 0
    assert start.journal.sentence == ''
    assert start.recorder.restored == {}


@pytest.mark.parametrize(('place', 'value', 'reason'), [
    ('values', FrictionParameters(speed_scale=0.5), r'parameter speed_scale differs now\.'),
    ('robot.identity', RobotIdentity('', '', (), 'of another'), r'robot description differs now'),
    ('hashes', {'payload': 'abd'}, r'payload result differs now\.'),
    ('hashes', {'payload': 'abc', 'drive_gains': 'e'}, r'drive_gains result differs now\.'),
    ('sender', [1, 2, 4], r"the sender on '/joint_states' differs now\."),
    ('sender', [], r"the sender on '/joint_states' differs now\."),
    ('recorder.stream', recorded(701.0),
     r"By the stamps on '/joint_states' it is 601 s old \(limit 600 s"),
    ('recorder.stream', recorded(5.0),
     r"By the stamps on '/joint_states' it is not known how old it is"),
    ('recorder.stream', recorded(-np.inf), 'it is not known how old it is'),
    ('recorder.foreign', True, 'It lacks the samples of a stream'),
    ('journal._type', module.Entry[dict[str, int]], 'is of another version'),
])
def test_what_may_not_fit_is_refused_with_the_reason(
    start: Start, place: str, value: object, reason: str
) -> None:
    *owner, name = place.split('.')
    setattr(reduce(getattr, owner, start), name, value)
    refused(start, reason)


@pytest.mark.parametrize(('spoil', 'reason'), [
    (lambda content: content.replace(b'journal 1', b'journal 2'),
     'is damaged, or of another version'),
    (lambda content: content[:-1], 'is damaged'),
    (lambda content: b'robocal journal 1\n', 'is damaged'),
    (lambda content: content[:200] + bytes([content[200] ^ 4]) + content[201:], 'is damaged'),
])
def test_a_damaged_file_is_refused(
    start: Start, spoil: Callable[[bytes], bytes], reason: str
) -> None:
    file_of(start).write_bytes(spoil(file_of(start).read_bytes()))
    refused(start, reason)


@pytest.mark.parametrize(('replaced', 'reason'), [
    (a_folder, 'cannot be read'),
    (a_named_pipe, 'cannot be read: it is a folder, a named pipe or a device'),
    (an_impossible_shape, 'is of another version'),
    (deep_nesting, 'is of another version'),
])
def test_a_file_of_something_else_is_refused(
    start: Start, replaced: Callable[[Start], None], reason: str
) -> None:
    replaced(start)
    refused(start, reason)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 255)), min_size=1, max_size=5))
def test_a_forged_content_is_no_defect(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    Start(tmp_path).keep()
    started = Start(tmp_path)
    started.recorder.stream = recorded(130.0)
    body = bytearray(file_of(started).read_bytes()[len(b'robocal journal 1\n') + 32:])
    for place, value in changes:
        body[place % len(body)] = value
    with_body(started, bytes(body))
    if started.resume() is None:
        assert 'Measuring begins anew.' in started.warning()


@pytest.mark.parametrize(('later', 'reason'), [
    (601.0, 'By the clock of this machine it is 601 s old'),
    (-5.0, 'By the clock of this machine it is not known how old it is')])
def test_its_age_counts_by_the_wall_clock_too(
    start: Start, monkeypatch: pytest.MonkeyPatch, later: float, reason: str
) -> None:
    now = module.time.time() + later
    monkeypatch.setattr(module.time, 'time', lambda: now)
    assert start.resume() is None
    assert reason in start.warning()


def test_a_jump_of_the_clock_is_not_kept(tmp_path: Path) -> None:
    first = Start(tmp_path)
    first.recorder.stream = recorded(clock_jumps=1)
    first.keep()
    assert not file_of(first).exists()


def test_on_request_nothing_is_kept_nor_used(start: Start) -> None:
    start.values = replace(start.values, resume_within=0.0)
    assert start.resume() is None
    start.journal.forget()
    start.keep()
    assert not file_of(start).exists()


def test_a_full_disk_costs_the_journal_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Start(tmp_path)
    first.keep()
    before = file_of(first).read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(files.os, 'fsync', full)
    first.keep()
    assert 'could not be written' in first.warning()
    assert 'No space left on device' in first.warning()
    assert file_of(first).read_bytes() == before
    assert list(tmp_path.iterdir()) == [file_of(first)]


@pytest.mark.parametrize('stopped', [False, True])
def test_it_ends_with_the_estimate_unless_the_node_is_stopped(start: Start, stopped: bool) -> None:
    async def estimate() -> str:
        if stopped:
            start.waiter.stop_reason = 'The node was asked to shut down.'
            raise CancelledError(start.waiter.stop_reason)
        raise DataError('No runs.')

    with pytest.raises((CancelledError, DataError)):
        asyncio.run(start.journal.ended_by(estimate))
    assert file_of(start).exists() is stopped
