# SPDX-License-Identifier: Apache-2.0
"""Compliance end to end: step by step, interrupted twice, gone on with; then at work.

The truth is read here alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import TransformStamped, Vector3Stamped
from std_msgs.msg import String
from support.live_cell import COMPLIANCE, HIDDEN, POSTURES, Cell, compliance_node, live_cell
from support.live_graph import Client, value
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint
from visualization_msgs.msg import MarkerArray

from robocal_ros.messages import qos
from robocal_ros.results import CalibrationResult, Verdict, from_yaml
from robocal_ros.robot import compliance_by_joint


@pytest.fixture(scope='module')
def cell(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    with live_cell(
        client, tmp_path_factory.mktemp('compliance'), compliance_node, COMPLIANCE,
        arm={'seed': 3}, topics={
            'result': String, 'markers': MarkerArray, 'tracker_transform': TransformStamped,
            'deflection': (Vector3Stamped, qos.RELIABLE),
            'trajectory_out': (JointTrajectory, qos.RELIABLE)},
    ) as made:
        yield made


def await_counts(cell: Cell, which: str, count: int) -> None:
    """Wait until so many postures of a set are measured."""
    cell.client.until(
        lambda: cell.statuses and value(cell.statuses[-1], which).startswith(f'{count} of'),
        240.0, f'{count} {which} postures')


@pytest.fixture(scope='module')
def registered(cell: Cell) -> str:
    return cell.done('register_tracker')


@pytest.fixture(scope='module')
def silenced(cell: Cell, registered: str) -> str:
    """Measuring without the load, while the tracker falls silent after two postures."""
    run = cell.begin('measure_unloaded')
    await_counts(cell, 'unloaded', 2)
    cell.fault('tracker_silent')
    answer = cell.wait(run)
    cell.fault('none')
    assert not answer.success
    return str(answer.message)


@pytest.fixture(scope='module')
def unloaded(cell: Cell, silenced: str) -> tuple[str, list[str], DiagnosticStatus]:
    """Going on; the answer, what was said meanwhile, and the status in the end."""
    cell.statuses.clear()
    said = cell.done('measure_unloaded')
    cell.await_phase('waiting for the load')
    return said, cell.messages, cell.statuses[-1]


@pytest.fixture(scope='module')
def finished(
    cell: Cell, unloaded: tuple[str, list[str], DiagnosticStatus]
) -> tuple[str, list[str]]:
    """A run that mounts the load, cancelled among the loaded postures, and another one."""
    run = cell.begin()
    await_counts(cell, 'loaded', 2)
    cell.cancelled(run)
    cell.statuses.clear()
    said = cell.done()
    shown = cell.shown('joint_2.compliance [µrad/(N·m)]')
    assert any('±' in text for text in shown), 'no estimate on the way'
    return said, cell.messages


@pytest.fixture(scope='module')
def result(cell: Cell, finished: tuple[str, list[str]]) -> CalibrationResult:
    return cell.stored('compliance')


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
    publisher = client.node.create_publisher(JointTrajectory, f'/{COMPLIANCE}/trajectory_in', 10)
    client.until(publisher.get_subscription_count)
    publisher.publish(message)
    client.until(lambda: received['trajectory_out'])
    change = np.array(received['trajectory_out'][-1].points[1].positions) - [0, 0.5, 0, 0, 0, 0]
    assert change[0] == 0.0
    # Leaning forward with the load, the second joint has to lean back.
    assert -200.0 * compliance['joint_2'] < change[1] < -50.0 * compliance['joint_2']


def test_the_node_never_opens_the_truth(cell: Cell, result: CalibrationResult) -> None:
    cell.assert_truth_unread()
