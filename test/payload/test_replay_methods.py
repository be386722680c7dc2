# SPDX-License-Identifier: Apache-2.0
"""Every method: a node that is handed a bag's messages, and the bag itself, give one result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from support import excitation_cell, friction_cell, same_result
from support.arms import arm
from support.excitation_cell import TOOL, exciting
from support.ros_rig import overrides
from support.same_result import result_of
from test_static_poses import record as static_record

from benchmarks.offline_bag import JOINT_STATES, WRENCH, Record, write_record
from robocal_ros.cli.main import main
from robocal_ros.errors import RobocalError
from robocal_ros.friction.node import FrictionIdentification
from robocal_ros.messages.bag import Bag, Selection
from robocal_ros.messages.samples import JointSamples, WrenchSamples
from robocal_ros.node.calibration_node import SUCCESS
from robocal_ros.payload import estimator as estimate, static_poses, two_plane
from robocal_ros.payload.node import PayloadIdentification
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.results.result import CalibrationResult
from robocal_ros.robot.setup import make_robot

pytestmark = pytest.mark.usefixtures('ros')


def recorded(joints: JointSamples, readings: np.ndarray) -> Record:
    """Return a record that begins at a stamp other than zero."""
    time = 10.0 + joints.time
    return Record(arm('robocal').urdf, replace(joints, time=time),
                  WrenchSamples('ft_wrist', time, readings))


@pytest.fixture(scope='module')
def records() -> dict[str, Record]:
    rests = static_record('robocal', 'upright', TOOL, 0, count=8)
    excited = excitation_cell.Record('robocal', TOOL, exciting(), 16.0)
    runs = friction_cell.record(
        {2: friction_cell.WRIST}, friction_cell.both_ways(2, np.geomspace(0.03, 0.6, 5)),
        rate=125.0, tool=TOOL).samples()
    return {'static_poses': recorded(rests.joints(), rests.readings()),
            'excitation': recorded(excited.joints(1), excited.readings(1).wrench),
            'friction': recorded(runs, np.zeros((len(runs), 6)))}


@pytest.fixture(scope='module')
def bags(records: dict[str, Record], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp('bags')
    for name, record in records.items():
        write_record(record, folder / name)
    return {name: folder / name for name in records}


class Replayed:
    """A node into whose streams a bag's messages go, as the executor would hand them over."""

    def __init__(self, kind: type[Any], record: Record, bag: Path, results: Path, **values: Any
                 ) -> None:
        self.node = kind('replayed', parameter_overrides=overrides(
            robot_description=record.urdf, results_dir=str(results), **values))
        assert self.node.trigger_configure() == SUCCESS
        assert self.node.trigger_activate() == SUCCESS
        with Bag(bag) as opened:
            for _, raw in opened.raw(JOINT_STATES):
                self.node.joints._take(raw)
            sensor = getattr(self.node, '_sensor', None)
            if sensor is not None:
                for _, raw in opened.raw(WRENCH):
                    sensor._take(raw)


@pytest.fixture
def replay() -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def make(*arguments: Any, **values: Any) -> Any:
        made.append(Replayed(*arguments, **values).node)
        return made[-1]

    yield make
    for node in made:
        node.release()
        node.destroy_node()


def offline(
    name: str, record: Record, bag: Path, results: Path, selection: Selection | None = None,
    **values: Any,
) -> CalibrationResult:
    return same_result.offline(name, record.urdf, bag, results, selection, **values)


def assert_same(one: CalibrationResult, other: CalibrationResult) -> None:
    same_result.assert_same_result(one, other)
    assert one.counts == other.counts


@pytest.mark.parametrize(('name', 'values'), [
    ('static_poses', {'method': 'static_poses'}),
    ('excitation', {'method': 'excitation'}),
    ('excitation', {'method': 'excitation', 'excitation_source': 'torque'}),
    ('excitation', {'method': 'excitation', 'reference_run': 'record'}),
])
def test_payload(records, bags, replay, tmp_path: Path, name: str, values: dict[str, Any]) -> None:
    node = replay(PayloadIdentification, records[name], bags[name], tmp_path, **values)
    assert_same(result_of(node.estimate),
                offline('payload', records[name], bags[name], tmp_path, **values))


def test_the_result_names_a_stored_mass_as_the_source(records) -> None:
    values = PayloadParameters()
    robot = make_robot(records['static_poses'].urdf, values)
    stored = static_poses.estimate(
        robot, records['static_poses'].joints, records['static_poses'].wrench,
        values)
    mass = stored.parameter('mass')
    assert two_plane.known_mass(values, stored) == two_plane.KnownMass(
        mass.value, mass.std, 'the stored result of static_poses')
    assert two_plane.known_mass(PayloadParameters(known_mass=1.5), stored) == (
        two_plane.KnownMass(1.5, 0.0, 'known_mass'))


def test_drive_gains(records, bags, replay, tmp_path: Path) -> None:
    values = {'known_mass': TOOL.mass}
    node = replay(PayloadIdentification, records['excitation'], bags['excitation'], tmp_path,
                  **values)
    recording = node.recorder.recording(estimate.gain_needs(node.values))
    assert_same(
        estimate.estimate_gains(
            node.robot, recording, node.values,
            estimate.GAINS.inputs(node.robot, node.values, node.store.load)),
        offline('drive_gains', records['excitation'], bags['excitation'], tmp_path, **values))


def test_friction_with_the_stored_payload(records, bags, replay, tmp_path: Path) -> None:
    static = offline('payload', records['static_poses'], bags['static_poses'], tmp_path,
                     method='static_poses')
    node = replay(FrictionIdentification, records['friction'], bags['friction'], tmp_path)
    alone = result_of(node.estimate)
    assert_same(alone, offline('friction', records['friction'], bags['friction'], tmp_path))
    node.store.save(static)
    node.payload = static
    node._use_arm(node.known_robot, static)
    loaded = result_of(node.estimate)
    assert_same(loaded, offline('friction', records['friction'], bags['friction'], tmp_path))
    assert loaded.checks[0].value < alone.checks[0].value


def test_replayed_marks_choose_the_run(records, bags, replay, tmp_path: Path) -> None:
    record, values = records['static_poses'], {'method': 'static_poses'}
    node = replay(PayloadIdentification, record, bags['static_poses'], tmp_path, **values)
    begin, end = float(record.joints.time[200]), float(record.joints.time[-100])
    for name, stamp in (('begin', begin), ('end', end)):
        status = DiagnosticStatus(name=name, message='run', hardware_id='another', values=[
            KeyValue(key=key, value=repr(stamp)) for key in ('joint_states', 'ft_wrist/wrench')])
        node.recorder._marks._take(DiagnosticArray(status=[status]))
    found = result_of(node.estimate)
    chosen = offline('payload', record, bags['static_poses'], tmp_path,
                     Selection(begin=begin, end=end), **values)
    assert found.counts['samples'] == chosen.counts['samples']
    assert [p.value for p in found.parameters] == [p.value for p in chosen.parameters]
    assert found.time <= end
    node.recorder.clear()
    node.recorder._marks._take(DiagnosticArray(status=[DiagnosticStatus(
        name='end', message='run', hardware_id=node.recorder._marks._own)]))
    assert node.recorder._marks.replayed(('run',)).by_stream == {}


def test_without_a_given_description_that_of_the_bag_is_used(bags, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(['estimate', 'payload', str(bags['static_poses']), '-p', 'method:=static_poses',
                 '--results-dir', str(tmp_path)]) == 0
    assert (tmp_path / 'static_poses.payload.yaml').exists()


@pytest.mark.parametrize(('name', 'values', 'words'), [
    ('payload', {'method': 'static_poses', 'sensor_frame': 'nowhere'}, "'nowhere' is not in"),
    ('payload', {'method': 'static_poses', 'sensor_frame': 'tool0'}, "names frame 'ft_wrist'"),
    ('payload', {'method': 'static_poses', 'sensor_topic': 'other'}, "no topic '/other'"),
    ('payload', {'method': 'two_plane'}, 'needs the payload'),
    ('payload', {'tool_frame': 'hand'}, "'hand' is not in the robot description"),
    ('payload', {'method': 'excitation', 'reference_run': 'subtract'}, 'no reference is stored'),
    ('friction', {'temperature_topic': 'heat'}, "no topic '/heat'"),
    ('friction', {'effort_source': 'current'}, 'those of the drives'),
])
def test_bags_that_do_not_fit_are_refused(
    records, bags, tmp_path, name: str, values: dict[str, Any], words: str
) -> None:
    with pytest.raises(RobocalError, match=words):
        offline(name, records['static_poses'], bags['static_poses'], tmp_path, **values)


def test_the_frame_that_messages_name_may_be_none_of_the_urdf() -> None:
    values = PayloadParameters(method='static_poses', sensor_message_frame='tool0_controller')
    (sensor,) = estimate.PAYLOAD.needs(values).wrenches
    assert (sensor.frame, sensor.message_frame) == ('ft_wrist', 'tool0_controller')
