# SPDX-License-Identifier: Apache-2.0
"""Friction of two joints end to end, cancelled between them and gone on with.

The truth is read here alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import yaml
from diagnostic_msgs.msg import DiagnosticStatus
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from support.friction_graph import (
    NODE,
    SPEEDS,
    Cell,
    curve_error,
    file_payload,
    friction_node,
    hidden,
)
from support.friction_results import hidden_payload
from support.live_graph import RELIABLE, TRUTH, Client, progress, sim_arm
from visualization_msgs.msg import MarkerArray

from robocal_ros.messages import qos
from robocal_ros.results.result import CalibrationResult, State, Verdict
from robocal_ros.results.store import from_yaml
from robocal_ros.robot.friction_law import friction_by_joint

FIRST, SECOND = 'joint_6', 'joint_5'


@pytest.fixture(scope='module')
def cell(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    folder = tmp_path_factory.mktemp('friction')
    file_payload(folder / 'results', hidden_payload(TRUTH))
    with (
        sim_arm(folder / 'sim_arm.log', seed=4),
        friction_node(folder / 'node.log', folder / 'results', opened=folder / 'opened.txt',
                      measure_joints=[FIRST, SECOND], model='lugre_dynamic', max_cruise=2.0,
                      **RELIABLE) as node,
    ):
        client.statuses[NODE] = client.subscribe(DiagnosticStatus, f'/{NODE}/status', qos.LATCHED)
        client.until(lambda: client.state(NODE) == 'active', 120.0)
        yield Cell(client, node, folder / 'results')


@pytest.fixture(scope='module')
def received(cell: Cell) -> dict[str, list]:
    return {topic: cell.client.subscribe(kind, f'/{NODE}/{topic}', qos.LATCHED)
            for topic, kind in (('result', String), ('points', JointState),
                                ('curve', JointState), ('markers', MarkerArray))}


@pytest.fixture(scope='module')
def interrupted(cell: Cell, received: dict[str, list]) -> dict[str, object]:
    """A run that is cancelled after the first joint."""
    with cell.client.watching() as states:
        run = cell.begin()
        cell.await_message(f'Running {SECOND}')
    positions = np.array([state.position for _, state in states])
    remaining, share = cell.values('remaining [s]'), [
        progress(status) for status in cell.client.statuses[NODE]]
    assert cell.client.call('cancel', NODE).success
    answer = cell.wait(run)
    return {'answer': answer, 'positions': positions, 'remaining': remaining, 'share': share,
            'points': list(received['points'])}


@pytest.fixture(scope='module')
def finished(cell: Cell, interrupted: dict[str, object]) -> tuple[str, list[str]]:
    """The run that goes on; its answer, and what was said meanwhile."""
    cell.client.statuses[NODE].clear()
    answer = cell.wait(cell.begin())
    assert answer.success, answer.message
    return str(answer.message), cell.messages()


@pytest.fixture(scope='module')
def result(cell: Cell, finished: tuple[str, list[str]]) -> CalibrationResult:
    return cell.stored()


def test_a_cancelled_run_stores_nothing(interrupted: dict[str, object]) -> None:
    answer = interrupted['answer']
    assert not answer.success
    assert 'Cancelled on request' in answer.message
    assert 'The arm is held' in answer.message


def test_other_joints_stay_still(interrupted: dict[str, object]) -> None:
    travel = np.ptp(interrupted['positions'], axis=0)
    assert (travel[:4] < 2e-3).all()
    assert travel[5] > 0.5


def test_progress_and_remaining_time_are_reported(interrupted: dict[str, object]) -> None:
    assert min(interrupted['share']) < 50.0
    assert interrupted['share'] == sorted(interrupted['share'])
    assert 10.0 < interrupted['remaining'][-1] < 120.0


def test_a_plot_of_each_joint_is_published(interrupted: dict[str, object]) -> None:
    points = interrupted['points'][-1]
    assert set(points.name) == {FIRST}
    assert len(points.velocity) == 2 * len(SPEEDS)
    truth = hidden(FIRST).torque(np.array(points.velocity))
    np.testing.assert_allclose(points.effort, truth, atol=0.05)


def test_finished_joints_are_not_run_again(finished: tuple[str, list[str]]) -> None:
    _, messages = finished
    assert any(f'Running {SECOND}' in message for message in messages)
    assert not any(f'Running {FIRST}' in message for message in messages)


@pytest.mark.parametrize('joint', [FIRST, SECOND])
def test_curves_lie_within_three_percent_of_the_truth(
    result: CalibrationResult, joint: str
) -> None:
    assert result.verdict is Verdict.PASS
    assert curve_error(friction_by_joint(result)[joint], hidden(joint)) < 3.0


@pytest.mark.parametrize('joint', [FIRST, SECOND])
def test_intervals_contain_the_truth(result: CalibrationResult, joint: str) -> None:
    truth = hidden(joint)
    for name in ('coulomb', 'static', 'stribeck_velocity', 'viscous'):
        for side, direction in enumerate(('forward', 'backward')):
            parameter = result.parameter(f'{joint}.{name}_{direction}')
            assert parameter.state is State.IDENTIFIED
            low, high = parameter.interval(0.9999)
            assert low < getattr(truth, name)[side] < high, parameter


@pytest.mark.parametrize('joint', [FIRST, SECOND])
def test_bristle_intervals_contain_the_truth(result: CalibrationResult, joint: str) -> None:
    truth = yaml.safe_load(TRUTH.read_text())['joints'][joint]['friction']
    for name in ('bristle_stiffness', 'bristle_damping'):
        parameter = result.parameter(f'{joint}.{name}')
        if parameter.state is not State.IDENTIFIED:
            # Damping has little effect, and may be not identified.
            assert name == 'bristle_damping'
            assert 'standard deviation is' in parameter.note
            continue
        low, high = parameter.interval(0.9999)
        assert low < truth[name] < high, parameter
    assert result.parameter(f'{joint}.bristle_stiffness').value == pytest.approx(
        truth['bristle_stiffness'], rel=0.1)


def test_the_answer_has_values_units_and_intervals(
    finished: tuple[str, list[str]], result: CalibrationResult
) -> None:
    message, _ = finished
    coulomb = result.parameter(f'{FIRST}.coulomb_forward').value
    assert f'{FIRST} {coulomb:.3f} ± ' in message
    assert 'N·m (95 %)' in message
    assert 'Fit degree at most' in message


def test_both_ways_of_removing_gravity_are_compared(result: CalibrationResult) -> None:
    reasons = [check.reason for check in result.checks if check.name.endswith(': gravity')]
    assert len(reasons) == 2
    assert all('differ by' in reason for reason in reasons)


def test_topic_and_drawing_agree_with_the_file(
    cell: Cell, received: dict[str, list], result: CalibrationResult
) -> None:
    cell.client.until(lambda: received['result'])
    published = from_yaml(received['result'][-1].data)
    assert published.parameters == result.parameters
    assert {marker.ns for marker in received['markers'][-1].markers} >= {
        'friction_points', 'friction_curve'}
    curve = received['curve'][-1]
    law = friction_by_joint(result)[SECOND]
    np.testing.assert_allclose(curve.effort, law.torque(np.array(curve.velocity)), atol=0.02)


def test_estimating_the_record_again_gives_the_same_numbers(
    cell: Cell, result: CalibrationResult
) -> None:
    answer = cell.client.call('estimate', NODE)
    assert answer.success, answer.message
    again = cell.stored()
    for one, other in zip(result.parameters, again.parameters, strict=True):
        assert one.state is other.state
        if one.value is not None:
            assert one.value == pytest.approx(other.value, rel=1e-12)
            assert one.std == pytest.approx(other.std, rel=1e-12)


def test_compensation_follows_the_arm(cell: Cell, result: CalibrationResult) -> None:
    """While the arm is moved again, the torque to add is the friction of the moment."""
    client = cell.client
    received = client.subscribe(JointState, f'/{NODE}/compensation', qos.RELIABLE)
    client.until(lambda: len(received) > 100)
    # At rest the controller's reference is still: no torque, and none that chatters.
    assert {tuple(message.effort) for message in received} == {(0.0,) * 6}
    run = cell.begin()
    cell.await_message(f'Running {FIRST} at +0.02')
    received.clear()
    client.until(lambda: any(abs(m.velocity[5] - 0.02) < 1e-6 for m in received))
    message = next(m for m in received if abs(m.velocity[5] - 0.02) < 1e-6)
    truth = float(hidden(FIRST).torque(0.02))
    assert abs(message.effort[5] - truth) < 0.1 * truth
    assert client.call('cancel', NODE).success
    assert not cell.wait(run).success


def test_the_node_never_opens_the_truth(cell: Cell, result: CalibrationResult) -> None:
    opened = (cell.results.parent / 'opened.txt').read_text().splitlines()
    assert any('payload.yaml' in name for name in opened)
    assert not [name for name in opened if TRUTH.name in name or 'robocal_sim/' in name]
