# SPDX-License-Identifier: Apache-2.0
"""`robocal estimate wrench`: tare, series, tables, and what is said where something is missing."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.bag_examples import (
    IMU,
    JOINT_STATE,
    MARKS,
    STRING,
    TEMPERATURE,
    WRENCH,
    imu,
    joint_state,
    marks as mark,
    temperature,
    text,
    wrench,
)
from support.fixtures import Call
from support.friction_results import calibration_result, friction_result, payload_result, store
from support.wrench_arm import ObservedArm

from demo import default_cell
from robocal_ros.messages.bag import Bag, Selection
from robocal_ros.messages.bag_writer import BagWriter
from robocal_ros.messages.checks import to_seconds
from robocal_ros.messages.decode import wrenches
from robocal_ros.results.result import Parameter
from robocal_ros.results.store import read_result, to_yaml
from robocal_ros.robot.model import Robot
from robocal_ros.wrench.bag import WrenchFollowing
from robocal_ros.wrench.model import SensedArm, SensorMount, tare_of
from robocal_ros.wrench.observer import Observation
from robocal_ros.wrench.parameters import WrenchParameters

LINK = 'ft_link_2_proximal'
POINT, FORCE = np.array([0.0, -0.055, 0.18]), np.array([0.0, 30.0, 0.0])
Message = tuple[float, str, bytes]


@dataclass
class Recorded:
    """What an arm sent while it was tared, moved and was pushed, and what was observed live."""

    messages: list[Message] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    tare: Any = None
    span: tuple[float, float] = (0.0, 0.0)


class _Recording(ObservedArm):
    """An arm whose messages are kept."""

    def __init__(self, **options: Any) -> None:
        super().__init__(3, rate=250.0, **options)
        self.kept: list[Message] = []

    def _hand_over(self, readings: Any, observations: list[Observation]) -> None:
        for item in readings.wrenches:
            frame = self.frames[item.index]
            self.kept.append((item.time, f'/{frame}/wrench',
                              wrench(item.time, frame, item.values)))
        for item in readings.imus:
            frame = self.truth.imus[item.index].frame
            self.kept.append((item.time, f'/{frame}/imu',
                              imu(item.time, frame, item.values[:3], item.values[3:])))
        for item in readings.joints:
            self.kept.append((item.time, '/joint_states', joint_state(
                item.time, self.robot.joint_names, item.position, item.velocity, item.effort)))
        super()._hand_over(readings, observations)


@pytest.fixture(scope='module')
def recorded() -> Recorded:
    arm = _Recording()
    arm.carry_tool()
    arm.observer.carry(arm_load(), 'flange')
    made = Recorded(messages=arm.kept)
    arm.run(0.5)
    record, made.tare = arm.tare()
    made.span = to_seconds(record.rows[0].stamp), to_seconds(record.rows[-1].stamp)
    path = arm.random_path(np.random.default_rng(1), 1, measured=True)
    made.observations += arm.run(arm.begin_motion(path, 1.5) + 0.3)
    arm.push(0, POINT, FORCE, 0.4)
    made.observations += arm.run(0.8)
    return made


def arm_load() -> Any:
    from robocal_ros.robot.setup import carried_load

    return carried_load(payload_result())


def write(path: Path, messages: Sequence[Message]) -> Path:
    kinds = {'/joint_states': JOINT_STATE, '/robot_description': STRING,
             '/drive_temperature': TEMPERATURE, '/wrench_observer/marks': MARKS,
             '/wrench_observer/result': STRING}
    with BagWriter(path) as bag:
        for topic in {topic: None for _, topic, _ in messages} | {'/robot_description': None}:
            bag.add(topic, kinds.get(topic, IMU if topic.endswith('/imu') else WRENCH))
        bag.write('/robot_description', 0, text(default_cell.urdf()))
        for count, (_, topic, raw) in enumerate(messages):
            bag.write(topic, 10**5 * count, raw)
    return path


Run = Callable[..., tuple[str, dict[str, list[dict[str, str]]]]]


@pytest.fixture
def run(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what writes a bag, estimates, and returns words and the series."""
    monkeypatch.chdir(tmp_path)
    store(tmp_path / 'results', payload_result())

    def estimated(messages: Sequence[Message], *arguments: str, code: int = 0) -> Any:
        if not (tmp_path / 'bag').exists():
            write(tmp_path / 'bag', messages)
        told = call('estimate', 'wrench', 'bag', '--results-dir', 'results', '--series',
                    'bag.wrench.csv', *arguments, code=code)
        rows: dict[str, list[dict[str, str]]] = {}
        series = tmp_path / 'bag.wrench.csv'
        if series.exists():
            with series.open() as file:
                for row in csv.DictReader(file):
                    rows.setdefault(row['link'], []).append(row)
        return told, rows

    return estimated


def numbers(row: dict[str, str]) -> list[float]:
    return [float(row[f'{what}_{axis}']) for what in ('force', 'torque') for axis in 'xyz']


def test_a_push_is_found_where_it_is(recorded: Recorded, run: Run, tmp_path: Path) -> None:
    told, rows = run(recorded.messages)
    assert 'Tared over the first rest of 1 s' in told
    assert '2.000 kg is compensated' in told
    (line,) = [line for line in told.splitlines() if 'on the surface' in line]
    assert LINK in line
    assert '0 -55 180' in line or '-0 -55 180' in line
    touched = [row for row in rows[LINK] if row['contact'] == '1']
    assert len(touched) == pytest.approx(0.4 * 250, abs=10)
    force = np.mean([numbers(row)[:3] for row in touched[10:-10]], axis=0)
    np.testing.assert_allclose(force, FORCE, atol=0.5)
    assert not [row for link in rows if link != LINK for row in rows[link]
                if row['contact'] == '1']
    filed = read_result(tmp_path / 'bag.wrench.yaml')
    assert (filed.kind, filed.source) == ('tare', 'bag')
    live = recorded.tare.values(filed.covariance_names)
    np.testing.assert_allclose(filed.values(filed.covariance_names), live, atol=0.15)


def assert_as_live(recorded: Recorded, rows: dict[str, list[dict[str, str]]]) -> None:
    by_stamp = {link: {round(1e9 * float(row['stamp'])): row for row in rows[link]}
                for link in rows}
    assert len(recorded.observations) > 500
    for observation in recorded.observations:
        for index, link in enumerate(rows):
            row = by_stamp[link][round(1e9 * observation.stamp)]
            np.testing.assert_allclose(numbers(row), observation.wrench[index], rtol=0, atol=5e-10)
            assert row['contact'] == str(int(index in observation.contacts))


def marked(recorded: Recorded) -> list[Message]:
    stamps = f'{recorded.span[0]!r} {recorded.span[1]!r}'
    return [(0.0, '/wrench_observer/marks', mark('tared', 'tare', joint_states=stamps))]


def test_the_marked_tare_gives_what_was_observed(
    recorded: Recorded, run: Run, tmp_path: Path
) -> None:
    told, rows = run([*recorded.messages, *marked(recorded)])
    assert "The node's tare is marked in the bag" in told
    assert_as_live(recorded, rows)
    filed = read_result(tmp_path / 'bag.wrench.yaml')
    assert filed.time == recorded.span[1]
    assert filed.counts == recorded.tare.counts


def test_the_series_is_a_bag_of_the_topics_of_the_node(
    recorded: Recorded, run: Run, tmp_path: Path
) -> None:
    _, rows = run([*recorded.messages, *marked(recorded)])
    told, _ = run([*recorded.messages, *marked(recorded)], '--series', 'bag.wrench.mcap')
    assert 'bag.wrench.mcap' in told
    with Bag(tmp_path / 'bag.wrench.mcap') as bag:
        base = f'/wrench_observer/links/{LINK}'
        messages = list(bag.messages(f'{base}/wrench'))
        valid = [row for row in rows[LINK] if row['valid'] == '1']
        assert len(messages) == len(valid)
        for message, row in zip(messages[::50], valid[::50], strict=True):
            force, stamp = message.wrench.force, message.header.stamp
            assert [force.x, force.y, force.z] == numbers(row)[:3]
            assert stamp.sec + 1e-9 * stamp.nanosec == pytest.approx(float(row['stamp']), abs=1e-9)
            assert message.header.frame_id == LINK
        points = [row for row in rows[LINK] if row['contact_x']]
        assert bag.counts[f'{base}/contact'] == len(points)
        flags = [message.data for message in bag.messages(f'{base}/in_contact')]
        assert flags[:3] == [False, True, False]
        reasons = [message.data for message in bag.messages(f'{base}/reason')]
        assert reasons[0].startswith('Filling the window')
        assert reasons[-1] == ''


def test_the_tool_wrench_and_covariances_are_written_if_asked_for(
    recorded: Recorded, run: Run, tmp_path: Path
) -> None:
    given = [*recorded.messages, *marked(recorded)]
    run(given, '--series', 'bag.wrench.mcap', '--covariances',
        '-p', 'tool_wrench_frame:=base_link')
    with Bag(tmp_path / 'bag.wrench.mcap') as bag:
        wrenches = list(bag.messages('/wrench_observer/tool_wrench'))
        links = bag.counts[f'/wrench_observer/links/{LINK}/wrench']
        assert {message.header.frame_id for message in wrenches} == {'base_link'}
        assert len(wrenches) >= links
        assert bag.counts[f'/wrench_observer/links/{LINK}/wrench_covariance'] == links
        covariances = list(bag.messages('/wrench_observer/tool_wrench_covariance'))
        assert len(covariances) == len(wrenches)
        last = covariances[-1]
        assert [(item.label, item.size, item.stride) for item in last.layout.dim] == [
            ('row', 6, 36), ('column', 6, 6)]
        assert np.linalg.eigvalsh(last.data.reshape(6, 6)).min() > 0.0
        sources = list(bag.messages('/wrench_observer/tool_wrench/source'))
        assert {source.level for source in sources} >= {0, 2}
        assert sources[0].message.startswith('Filling')
        assert any(source.values[0].value.startswith('F/T sensors') for source in sources)
    told, _ = run(given, '--covariances', code=2)
    assert 'cannot hold covariances' in told


def test_sensors_that_were_recorded_late_change_nothing(recorded: Recorded, run: Run) -> None:
    def recorded_at(message: Message) -> float:
        return message[0] + (0.4 if message[1] == '/ft_wrist/wrench' else 0.0)

    _, rows = run([*sorted(recorded.messages, key=recorded_at), *marked(recorded)])
    assert_as_live(recorded, rows)


@pytest.mark.parametrize('way', ['published', 'stored'])
def test_a_tare_from_elsewhere(recorded: Recorded, run: Run, tmp_path: Path, way: str) -> None:
    # The samples of the tare are not in the bag.
    later = [item for item in recorded.messages if item[0] > recorded.span[1]]
    if way == 'stored':
        store(tmp_path / 'results', recorded.tare)
        told, rows = run(later, '-p', 'keep_tare:=true')
        assert 'The tare that is stored is used' in told
    else:
        told, rows = run([
            *later, *marked(recorded), (0.0, '/wrench_observer/result',
                                        text(to_yaml(recorded.tare)))])
        assert 'The tare that the node published' in told
    first = recorded.observations[0].stamp + 0.02
    recorded_later = Recorded(observations=[
        item for item in recorded.observations if item.stamp > first])
    assert_as_live(recorded_later, rows)


def test_a_stored_tare_from_before_the_payload_was_identified(
    recorded: Recorded, run: Run, tmp_path: Path
) -> None:
    frames = [name.partition('.')[0] for name in recorded.tare.covariance_names[::6]]
    _, reference = tare_of(recorded.tare, frames)
    alone = SensedArm(Robot(default_cell.urdf()), [SensorMount(frame) for frame in frames])
    bias = (reference.readings - alone.expected(reference.posture)).ravel().tolist()
    store(tmp_path / 'results', replace(recorded.tare, parameters=tuple(
        replace(item, value=value)
        for item, value in zip(recorded.tare.parameters, bias, strict=True))))
    _, rows = run([item for item in recorded.messages if item[0] > recorded.span[1]],
                  '-p', 'keep_tare:=true')
    last = recorded.observations[-1]
    for live, found in zip(last.wrench, rows.values(), strict=True):
        np.testing.assert_allclose(numbers(found[-1]), live, atol=5e-3)


def test_readings_are_corrected_by_the_stored_calibration_of_the_sensor(
    recorded: Recorded, run: Run, tmp_path: Path
) -> None:
    matrix = np.eye(6) + 0.02 * np.random.default_rng(0).normal(size=(6, 6))
    store(tmp_path / 'results', calibration_result(matrix))
    decoder = wrenches('ft_wrist', 'ft_wrist', 1.0)
    messages = [
        (stamp, topic, wrench(stamp, 'ft_wrist', matrix @ decoder([raw]).values[0]))
        if topic == '/ft_wrist/wrench' else (stamp, topic, raw)
        for stamp, topic, raw in recorded.messages]
    _, rows = run([*messages, *marked(recorded)])
    assert_as_live(recorded, rows)
    tare = read_result(tmp_path / 'bag.wrench.yaml')
    assert 'sensor_calibration' in {item.kind for item in tare.inputs if item.sha256}


def test_friction_is_that_of_the_temperature_in_the_bag(
    recorded: Recorded, tmp_path: Path
) -> None:
    result = friction_result(temperatures={'joint_6': 22.0})
    store(tmp_path / 'results', replace(result, parameters=(
        *result.parameters, Parameter('joint_6.temperature_factor', '1/K', -0.01, 0.002))))
    write(tmp_path / 'bag', [*recorded.messages[:100], *(
        (0.0, '/drive_temperature', temperature(value)) for value in (31.0, 33.0))])
    for topic, coulomb in (('', 0.7), ('/drive_temperature', 0.63)):
        values = WrenchParameters(results_dir=str(tmp_path / 'results'), temperature_topic=topic)
        with Bag(tmp_path / 'bag') as bag:
            following = WrenchFollowing(bag, values, default_cell.urdf(), Selection())
        law = following._observer.torques.friction._friction.laws[5]
        assert law.coulomb[0] == pytest.approx(coulomb)


def test_a_part_of_the_bag_uses_the_tare_before_it(recorded: Recorded, run: Run) -> None:
    told, rows = run([*recorded.messages, *marked(recorded)], '--from', '2.0', '--to', '2.5')
    assert "The node's tare is marked in the bag" in told
    assert len(rows[LINK]) == pytest.approx(125, abs=2)


def test_without_a_rest_there_is_no_tare(recorded: Recorded, run: Run, tmp_path: Path) -> None:
    told, _ = run(recorded.messages, '--from', '1.7', '--to', '3.0', code=2)
    assert 'holds no rest of 1 s to tare with' in told
    assert 'keep_tare' in told
    assert not list(tmp_path.glob('*.csv*'))


def test_sensors_without_bias_need_none(recorded: Recorded, run: Run, tmp_path: Path) -> None:
    told, rows = run(recorded.messages, '-p', 'require_tare:=false')
    assert 'taken to be without bias' in told
    assert not (tmp_path / 'bag.wrench.yaml').exists()
    assert len(rows[LINK]) > 900


def test_torques_alone_do_not_show_that_nothing_was_touched(
    recorded: Recorded, run: Run, tmp_path: Path
) -> None:
    efforts = [message for message in recorded.messages if message[1] == '/joint_states']
    urdf = tmp_path / 'bare.urdf'
    urdf.write_text(default_cell.urdf().replace('"ft_', '"plain_'))
    told, _ = run(efforts, '--urdf', urdf)
    assert 'No contacts.' not in told
    assert 'Contacts on links are not observed: no F/T sensor is in use.' in told
    assert re.search(r'No collision by joint torques: external torques of up to \S+ N·m are '
                     r'within torque_thresholds .*A push of that size would not be found', told)


def test_a_bad_sensor_costs_its_links_and_is_named(recorded: Recorded, run: Run) -> None:
    bad = [(stamp, topic, wrench(stamp, 'elsewhere', np.zeros(6)))
           if topic == '/ft_wrist/wrench' and stamp > recorded.span[1] + 1.0
           else (stamp, topic, raw) for stamp, topic, raw in recorded.messages]
    told, rows = run(bad)
    assert 'ft_wrist: unknown at' in told
    assert "names frame 'elsewhere', but 'ft_wrist' is expected" in told
    assert [row['force_x'] for row in rows['ft_wrist'] if row['valid'] == '0'][-1] == ''
    assert rows['ft_wrist'][-1]['valid'] == '0'
    assert rows[LINK][-1]['valid'] == '1'


def test_a_bag_that_was_recorded_of_a_loop(recorded: Recorded, run: Run) -> None:
    short = [item for item in recorded.messages if item[0] < recorded.span[1] + 0.3]
    told, rows = run([*short, *short])
    assert '1 with which the clock jumped back' in told
    stamps = [float(row['stamp']) for row in rows[LINK]]
    assert (np.diff(stamps) < 0.0).sum() == 1


def test_links_with_imus_need_no_joint_states(
    recorded: Recorded, run: Run, tmp_path: Path
) -> None:
    told, rows = run(
        [item for item in recorded.messages if item[1] in ('/ft_wrist/wrench', '/imu_flange/imu')],
        '-p', 'sensor_frames:=[ft_wrist]', '-p', 'kinematics:=[imu]', '-p',
        'imu_topics:=[imu_flange/imu]', '-p', 'imu_frames:=[imu_flange]')
    assert 'links with IMUs were tared as a whole over the first rest' in told
    assert not (tmp_path / 'bag.wrench.yaml').exists()
    known = [numbers(row) for row in rows['ft_wrist'] if row['valid'] == '1']
    assert len(known) > 900
    # Still at the beginning, moving later; as little as the sensor scatters.
    assert np.sqrt(np.mean(np.square(known)[:200, :3])) < 0.5


def test_a_series_is_for_what_has_one(tmp_path: Path, call: Call) -> None:
    assert 'friction has no series' in call(
        'estimate', 'friction', 'bag', '--series', tmp_path / 'x.csv', code=2)
