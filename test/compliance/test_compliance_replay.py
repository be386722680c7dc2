# SPDX-License-Identifier: Apache-2.0
"""Compliance from bags: a node that is handed the messages, and the bag itself, give one result;
and what the node marks while it measures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.serialization import deserialize_message, serialize_message
from support import same_result
from support.compliance_cell import (
    COMPLIANCE,
    SEEN,
    TARGET,
    TEN_KILOGRAMS,
    assert_true,
    write_visits,
)
from support.ros_rig import arm_urdf, joint_state, overrides
from support.same_result import result_of

from robocal_ros.cli import console
from robocal_ros.cli.main import main
from robocal_ros.compliance.measurement import (
    LOADED,
    REGISTRATION,
    UNLOADED,
    EndPosition,
    Registration,
)
from robocal_ros.compliance.node import ComplianceCalibration
from robocal_ros.compliance.procedure import MeasuredSet
from robocal_ros.errors import DataError
from robocal_ros.messages import Bag, BagWriter, Mark, Selection, StationaryInterval, last_run
from robocal_ros.node.calibration_node import SUCCESS
from robocal_ros.results import CalibrationResult

pytestmark = pytest.mark.usefixtures('ros')

NAMES = tuple(f'joint_{number}' for number in range(1, 7))
VALUES = {'target_frame': 'tool0', 'target_xyz': TARGET.tolist(),
          'load_mass': TEN_KILOGRAMS.mass, 'load_com': TEN_KILOGRAMS.com.tolist(),
          'load_frame': 'tool0', 'registration': 'three_point'}
JOINTS, TRACKER = '/joint_states', '/tracker/point'
MARKS = '/compliance_calibration/marks'
POSTURES = np.random.default_rng(5).uniform(-0.9, 0.9, (10, 6))
WRONG = POSTURES[2] + 0.4


@dataclass
class Recorded:
    """A recorded measurement.

    Attributes:
        bag: The bag.
        rests: Its rests that count; one between the sets does not.
    """

    bag: Path
    rests: list[StationaryInterval]


@pytest.fixture(scope='module')
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Three postures that place the tracker, both sets, and one visit that was no measurement."""
    folder = tmp_path_factory.mktemp('measured')
    order = [*range(10), 0]
    visits = [*((REGISTRATION, n) for n in (1, 4, 7)), *((UNLOADED, n) for n in order),
              ('', -1), *((LOADED, n) for n in order)]
    with BagWriter(folder / 'bag', 'mcap') as bag:
        begins = write_visits(bag, [(POSTURES[number] if purpose else WRONG, purpose == LOADED)
                                    for purpose, number in visits], 100.0)
    rests = [StationaryInterval(begin + 0.5, begin + 2.5, purpose, number)
             for begin, (purpose, number) in zip(begins, visits, strict=True) if purpose]
    return Recorded(folder / 'bag', rests)


def marks_of(rests: Sequence[StationaryInterval]) -> DiagnosticArray:
    """Return marks of a run as another start of the node sent them."""
    def mark(name: str, **values: str) -> DiagnosticStatus:
        return DiagnosticStatus(
            name=name, message='run', hardware_id='another',
            values=[KeyValue(key=key, value=value) for key, value in values.items()])

    return DiagnosticArray(status=[
        mark('begin', joint_states='50.0', **{'tracker/point': '50.0'}),
        *(mark('rest', joint_states=f'{rest.begin!r} {rest.end!r}', set=rest.purpose,
               posture=str(rest.posture)) for rest in rests),
        mark('end', joint_states='1e6', **{'tracker/point': '1e6'})])


@pytest.fixture
def marked(recorded: Recorded, tmp_path: Path) -> Path:
    """The bag with marks."""
    with Bag(recorded.bag) as bag, BagWriter(tmp_path / 'marked', 'mcap') as copy:
        for topic in (JOINTS, TRACKER):
            copy.add(topic, bag.topics[topic])
            for when, raw in bag.raw(topic):
                copy.write(topic, when, raw)
        copy.add(MARKS, 'diagnostic_msgs/msg/DiagnosticArray')
        copy.write(MARKS, 0, serialize_message(marks_of(recorded.rests)))
    return tmp_path / 'marked'


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ComplianceCalibration]:
    made = ComplianceCalibration('replayed', parameter_overrides=overrides(
        robot_description=arm_urdf(), results_dir=str(tmp_path), **VALUES))
    assert made.trigger_configure() == SUCCESS
    assert made.trigger_activate() == SUCCESS
    yield made
    made.release()
    made.destroy_node()


def replay(node: ComplianceCalibration, path: Path) -> None:
    with Bag(path) as bag:
        for _, raw in bag.raw(JOINTS):
            node.joints._take(raw)
        for _, raw in bag.raw(TRACKER):
            node._tracker._take(raw)
        for _, raw in bag.raw(MARKS) if MARKS in bag.topics else ():
            node.recorder._marks._take(deserialize_message(raw, DiagnosticArray))


def offline(path: Path, results: Path, selection: Selection | None = None) -> CalibrationResult:
    return same_result.offline('compliance', arm_urdf(), path, results, selection, **VALUES)


def assert_same(one: CalibrationResult, other: CalibrationResult) -> None:
    same_result.assert_same_result(one, other)
    assert one.counts == other.counts
    assert one.settings == other.settings


def test_with_marks_node_and_bag_give_one_result(marked, node, tmp_path) -> None:
    replay(node, marked)
    replayed = result_of(node.estimate)
    assert_same(replayed, offline(marked, tmp_path))
    assert replayed.settings['registration'] == 'three_point'
    assert replayed.counts['unloaded_visits'] == 11
    assert_true(replayed, SEEN)


def test_without_marks_node_and_bag_give_one_result(recorded, node, tmp_path) -> None:
    replay(node, recorded.bag)
    replayed = result_of(node.estimate)
    assert_same(replayed, offline(recorded.bag, tmp_path))
    # Postures that placed the tracker are visits of the unloaded set, too.
    assert replayed.counts['unloaded_visits'] == 14
    assert_true(replayed, SEEN)


def test_the_geometry_is_estimated_from_both_sets(marked, recorded, tmp_path) -> None:
    """With the marks of both, and without marks from all rests, which then have no load."""
    found = same_result.offline(
        'compliance', arm_urdf(), marked, tmp_path, None, **VALUES, method='geometry')
    assert (found.kind, found.counts['sets'], found.counts['observations']) == ('geometry', 2, 22)
    for name, truth in zip(NAMES[1:], COMPLIANCE[1:], strict=True):
        item = found.parameter(f'{name}.compliance')
        assert abs(item.value - truth) < 4.0 * item.std
    free = same_result.offline(
        'compliance', arm_urdf(), recorded.bag, tmp_path, None, **VALUES, method='geometry')
    assert free.counts['observations'] > 22


def test_marks_are_left_aside_on_request(recorded, marked, tmp_path) -> None:
    assert_same(offline(recorded.bag, tmp_path), offline(marked, tmp_path, Selection(whole=True)))


def test_a_part_of_the_bag_holds_the_rests_within_it(recorded, marked, tmp_path) -> None:
    last = max(rest.end for rest in recorded.rests)
    assert offline(marked, tmp_path, Selection(end=last - 1.0)).counts['loaded_visits'] == 10
    with pytest.raises(DataError, match='No posture of the loaded set is measured'):
        offline(marked, tmp_path, Selection(end=160.0))


def test_on_the_command_line(marked, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(console.OUT, '_width', 400)
    urdf = tmp_path / 'arm.urdf'
    urdf.write_text(arm_urdf())
    code = main(['estimate', 'compliance', str(marked), '--urdf', str(urdf), '--results-dir',
                 str(tmp_path / 'none'), '-o', str(tmp_path / 'found.yaml'),
                 *(word for name, value in VALUES.items() for word in ('-p', f'{name}:={value}'))])
    told = capsys.readouterr().out
    assert code == 0, told
    assert 'joint_2.compliance' in told
    assert 'The last run marked in the bag is used' in told


@pytest.mark.parametrize(('changes', 'words'), [
    ({'load_mass': 0.0}, 'mass of the load is unknown'),
    ({'tracker_message': 'pose'}, "no topic '/tracker/pose' of type geometry_msgs/msg/PoseSt"),
    ({'tracker_topic': 'laser'}, "no topic '/laser'"),
])
def test_what_does_not_fit_is_refused(marked, tmp_path, capsys, changes, words) -> None:
    urdf = tmp_path / 'arm.urdf'
    urdf.write_text(arm_urdf())
    assert main(['estimate', 'compliance', str(marked), '--urdf', str(urdf), '--results-dir',
                 str(tmp_path / 'none'), *(
                     word for name, value in {**VALUES, **changes}.items()
                     for word in ('-p', f'{name}:={value}'))]) == 2
    assert words in ' '.join(capsys.readouterr().err.split())


class TestMarking:
    """What the node says of its rests while it measures."""

    @pytest.fixture
    def said(self, node, monkeypatch) -> list[Mark]:
        said: list[Mark] = []
        monkeypatch.setattr(node.recorder._marks, 'publish', lambda name, service, values: (
            said.append(Mark(name, 'run', dict(values)))))
        node._discard()
        return said

    PLACE = Registration(np.eye(3), np.zeros(3), np.zeros(3), 'three_point')

    def seen(self, *begins: float) -> list[EndPosition]:
        return [EndPosition(np.zeros(6), np.zeros(3), None, 1e-12 * np.eye(3), np.zeros(1), 20, 0,
                            begin + 0.5, begin, begin + 1.0) for begin in begins]

    def begins(self, said: list[Mark]) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for rest in last_run(said, ('run',)).stationary:
            found.setdefault(rest.purpose, []).append(rest.begin)
        return found

    def test_placing_the_tracker_anew_replaces_what_placed_it_before(self, node, said) -> None:
        node._method.register(self.PLACE, self.seen(1.0, 3.0, 5.0))
        assert self.begins(said) == {'registration': [1.0, 3.0, 5.0]}
        node._method.register(self.PLACE, self.seen(7.0, 9.0, 11.0))
        assert self.begins(said) == {'registration': [7.0, 9.0, 11.0]}

    def test_what_a_drifting_tracker_costs_is_discarded(self, node, said, monkeypatch) -> None:
        method = node._method
        method.state.postures = np.zeros((4, 6))
        done: MeasuredSet = method.state.sets[UNLOADED]

        async def written(*_arguments: Any) -> None:
            pass

        monkeypatch.setattr(method, '_keep_state', written)
        for number, begin in ((0, 1.0), (1, 3.0), (0, 5.0), (2, 7.0), (3, 9.0)):
            with pytest.raises(StopIteration):
                method._keep(done, number, replace(
                    self.seen(begin)[0], posture=np.full(6, number))).send(None)
        assert self.begins(said) == {'unloaded': [1.0, 3.0, 5.0, 7.0, 9.0]}
        visits = iter((replace(self.seen(11.0)[0], point=np.array([1e-3, 0.0, 0.0])),
                       self.seen(15.0)[0]))

        async def visit(*_arguments: Any) -> EndPosition:
            return next(visits)

        monkeypatch.setattr(method, '_visit', visit)
        node.joints._take(serialize_message(
            joint_state(13.0, NAMES, np.zeros(6), [0.0] * 6, [0.0] * 6)))
        with pytest.raises(DataError, match='2 postures since .* are discarded'):
            method._check_reference(done).send(None)
        assert [item.begin for _, item in done.visits] == [1.0, 3.0, 5.0]
        assert self.begins(said) == {'unloaded': [1.0, 3.0, 5.0]}
        with pytest.raises(StopIteration):
            method._check_reference(done).send(None)
        assert self.begins(said) == {'unloaded': [1.0, 3.0, 5.0, 15.0]}

    def test_what_placed_the_tracker_stays_when_measuring_begins(
        self, node, said, monkeypatch
    ) -> None:
        async def there() -> None:
            """Take the controller for there."""

        monkeypatch.setattr(node.arm, 'connect', there)
        asyncio.run(node._begin())
        node._method.register(self.PLACE, self.seen(1.0, 3.0, 5.0))
        count = len(said)
        asyncio.run(node._begin())
        assert len(said) == count
        assert self.begins(said) == {'registration': [1.0, 3.0, 5.0]}
        node._discard()
        assert said[-1].name == 'begin'
        assert self.begins(said) == {}
