# SPDX-License-Identifier: Apache-2.0
"""Compliance end to end: step by step, interrupted twice, gone on with; then at work.

The truth is read here alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import TransformStamped, Vector3Stamped
from std_msgs.msg import String
from std_srvs.srv import Trigger
from support.compliance_graph import HIDDEN, NODE, POSTURES, compliance_node
from support.live_graph import TRUTH, Client, Process, phase, sim_arm, value
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint
from visualization_msgs.msg import MarkerArray

from robocal_ros.messages import qos
from robocal_ros.results.result import CalibrationResult, Verdict
from robocal_ros.results.store import from_yaml, read_result
from robocal_ros.robot.sag import compliance_by_joint


@dataclass
class Cell:
    """The graph, and what was heard."""

    client: Client
    node: Process
    results: Path
    received: dict[str, list]

    def call(self, verb: str, timeout: float = 240.0) -> Trigger.Response:
        return self.client.call(verb, NODE, timeout)

    def await_counts(self, which: str, count: int) -> None:
        """Wait until so many postures of a set are measured."""
        statuses = self.client.statuses[NODE]
        self.client.until(
            lambda: bool(statuses) and value(statuses[-1], which).startswith(f'{count} of'),
            150.0, f'{count} {which} postures')


@pytest.fixture(scope='module')
def cell(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    folder = tmp_path_factory.mktemp('compliance')
    with (
        sim_arm(folder / 'sim_arm.log', seed=3),
        compliance_node(folder / 'node.log', folder / 'results',
                        folder / 'opened.txt') as node,
    ):
        client.statuses[NODE] = client.subscribe(DiagnosticStatus, f'/{NODE}/status', qos.LATCHED)
        client.until(lambda: client.state(NODE) == 'active', 60.0)
        received = {topic: client.subscribe(kind, f'/{NODE}/{topic}', profile)
                    for topic, kind, profile in (
                        ('result', String, qos.LATCHED), ('markers', MarkerArray, qos.LATCHED),
                        ('tracker_transform', TransformStamped, qos.LATCHED),
                        ('deflection', Vector3Stamped, qos.RELIABLE),
                        ('trajectory_out', JointTrajectory, qos.RELIABLE))}
        yield Cell(client, node, folder / 'results', received)


@pytest.fixture(scope='module')
def registered(cell: Cell) -> str:
    answer = cell.call('register_tracker')
    assert answer.success, answer.message
    return str(answer.message)


@pytest.fixture(scope='module')
def silenced(cell: Cell, registered: str) -> str:
    """Measuring without the load, while the tracker falls silent after two postures."""
    run = cell.client.begin('measure_unloaded', NODE)
    cell.await_counts('unloaded', 2)
    cell.client.set('sim_arm', fault='tracker_silent')
    answer = cell.client.wait(run, 240.0)
    cell.client.set('sim_arm', fault='none')
    assert not answer.success
    return str(answer.message)


@pytest.fixture(scope='module')
def unloaded(cell: Cell, silenced: str) -> tuple[str, list[str], DiagnosticStatus]:
    """Going on; the answer, what was said meanwhile, and the status in the end."""
    statuses = cell.client.statuses[NODE]
    statuses.clear()
    answer = cell.call('measure_unloaded')
    assert answer.success, answer.message
    cell.client.until(lambda: phase(statuses[-1]) == 'waiting for the load')
    return str(answer.message), [str(s.message) for s in statuses], statuses[-1]


@pytest.fixture(scope='module')
def cancelled(cell: Cell, unloaded: object) -> str:
    """A run that mounts the load, cancelled among the loaded postures."""
    run = cell.client.begin('run', NODE)
    cell.await_counts('loaded', 2)
    assert cell.client.call('cancel', NODE).success
    answer = cell.client.wait(run, 60.0)
    assert not answer.success
    return str(answer.message)


@pytest.fixture(scope='module')
def finished(cell: Cell, cancelled: str) -> tuple[str, list[str]]:
    statuses = cell.client.statuses[NODE]
    statuses.clear()
    answer = cell.call('run')
    assert answer.success, answer.message
    shown = [value(s, 'joint_2.compliance [µrad/(N·m)]') for s in statuses]
    assert any('±' in text for text in shown), 'no estimate on the way'
    return str(answer.message), [str(s.message) for s in statuses]


@pytest.fixture(scope='module')
def result(cell: Cell, finished: tuple[str, list[str]]) -> CalibrationResult:
    return read_result(cell.results / 'compliance.yaml')


def test_the_tracker_is_registered(cell: Cell, registered: str) -> None:
    assert '3 points fit within' in registered
    cell.client.until(lambda: cell.received['tracker_transform'])
    message = cell.received['tracker_transform'][0]
    place = message.transform.translation
    # The unloaded arm sags, too: some tenths of a millimetre.
    np.testing.assert_allclose([place.x, place.y, place.z], HIDDEN['tracker']['xyz'], atol=5e-3)
    assert (message.header.frame_id, message.child_frame_id) == ('world', 'tracker')


def test_a_silent_tracker_ends_the_set_and_keeps_measured_postures(silenced: str) -> None:
    assert 'did not see the target long enough in 3 postures in a row' in silenced
    assert 'postures are measured and kept' in silenced
    assert 'Call measure_unloaded again to continue' in silenced


def test_the_unloaded_set_continues_and_asks_for_the_load(
    unloaded: tuple[str, list[str], DiagnosticStatus]
) -> None:
    answer, said, status = unloaded
    assert not any('Moving to posture 2 of' in message for message in said)
    assert 'Mount the load of 8 kg on flange now, then call measure_loaded' in answer
    assert status.message == answer


def test_cancel_holds_the_arm(cancelled: str) -> None:
    assert 'Cancelled on request' in cancelled


def test_the_loaded_set_continues_too(finished: tuple[str, list[str]]) -> None:
    answer, said = finished
    # The answer names postures of both sets that could not be used.
    assert not [message for message in said if '(unloaded)' in message and message != answer]
    assert not any('Moving to posture 2 of' in message for message in said)
    assert any('Mounting the load' in message for message in said)


def test_intervals_contain_the_truth(result: CalibrationResult) -> None:
    assert result.verdict is Verdict.PASS
    found = {p.name.split('.')[0]: p for p in result.parameters}
    # The first axis is vertical, and the load is centred on the last one.
    assert [name for name, p in found.items() if p.value is None] == ['joint_1', 'joint_6']
    for name in ('joint_2', 'joint_3', 'joint_4', 'joint_5'):
        low, high = found[name].interval(0.9999)
        assert low < HIDDEN['joints'][name]['compliance'] < high


def test_the_sag_of_held_out_postures_is_removed(result: CalibrationResult) -> None:
    sag, = result.validation
    assert sag.count == POSTURES // 5
    assert sag.after < 0.1 * sag.before


def test_the_answer_has_values_units_and_intervals(
    finished: tuple[str, list[str]], result: CalibrationResult
) -> None:
    message, _ = finished
    assert f'joint_2 {1e6 * result.parameter("joint_2.compliance").value:.2f} ± ' in message
    assert 'µrad/(N·m) (95 %)' in message
    assert 'Unobservable: joint_1, joint_6' in message


def test_topics_agree_with_the_file(cell: Cell, result: CalibrationResult) -> None:
    cell.client.until(lambda: cell.received['result'] and cell.received['markers'])
    assert from_yaml(cell.received['result'][-1].data).parameters == result.parameters
    sag = next(m for m in cell.received['markers'][-1].markers if m.ns == 'sag')
    assert len(sag.points) == 2 * POSTURES


def test_estimating_again_gives_the_same_numbers(cell: Cell, result: CalibrationResult) -> None:
    answer = cell.call('estimate')
    assert answer.success, answer.message
    again = read_result(cell.results / 'compliance.yaml')
    for one, other in zip(result.parameters, again.parameters, strict=True):
        assert one.value == other.value
        assert one.std == other.std


def test_the_sag_is_predicted_and_corrected(cell: Cell, result: CalibrationResult) -> None:
    client, received = cell.client, cell.received
    client.until(lambda: received['deflection'])
    sag = received['deflection'][-1].vector
    assert -5e-3 < sag.z < -1e-4
    compliance = compliance_by_joint(result)
    message = JointTrajectory(joint_names=[f'joint_{i}' for i in range(1, 7)])
    for seconds, angle in ((0, 0.0), (4, 0.5)):
        point = JointTrajectoryPoint(positions=[0.0, angle, 0.0, 0.0, 0.0, 0.0])
        point.time_from_start.sec = seconds
        message.points.append(point)
    publisher = client.node.create_publisher(JointTrajectory, f'/{NODE}/trajectory_in', 10)
    client.until(publisher.get_subscription_count)
    publisher.publish(message)
    client.until(lambda: received['trajectory_out'])
    change = np.array(received['trajectory_out'][-1].points[1].positions) - [0, 0.5, 0, 0, 0, 0]
    assert change[0] == 0.0
    # Leaning forward with the load, the second joint has to lean back.
    assert -200.0 * compliance['joint_2'] < change[1] < -50.0 * compliance['joint_2']


def test_the_node_never_opens_the_truth(cell: Cell, result: CalibrationResult) -> None:
    opened = (cell.results.parent / 'opened.txt').read_text().splitlines()
    assert any('compliance.yaml' in name or 'results' in name for name in opened)
    assert not [name for name in opened if TRUTH.name in name or 'robocal_sim/' in name]
