# SPDX-License-Identifier: Apache-2.0
"""Friction of two joints end to end, cancelled between them and gone on with.

The truth is read here alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from support.friction_results import hidden_payload, identity
from support.live_cell import (
    FRICTION,
    HIDDEN,
    SPEEDS,
    Cell,
    curve_error,
    friction_node,
    hidden_friction,
    live_cell,
)
from support.live_graph import RELIABLE, TRUTH, Client, progress
from visualization_msgs.msg import MarkerArray

from robocal_ros.messages import qos
from robocal_ros.results import CalibrationResult, ResultStore, State, Verdict, from_yaml
from robocal_ros.robot import friction_by_joint

FIRST, SECOND = 'joint_6', 'joint_5'


@pytest.fixture(scope='module')
def cell(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    folder = tmp_path_factory.mktemp('friction')
    ResultStore(folder / 'results', identity()).save(hidden_payload(TRUTH))
    with live_cell(
        client, folder, friction_node, FRICTION, arm={'seed': 4}, topics={
            'result': String, 'points': JointState, 'curve': JointState, 'markers': MarkerArray},
        measure_joints=[FIRST, SECOND], model='lugre_dynamic', max_cruise=2.0, **RELIABLE,
    ) as made:
        yield made


@pytest.fixture(scope='module')
def interrupted(cell: Cell) -> dict[str, object]:
    """A run that is cancelled after the first joint."""
    with cell.client.watching() as states:
        run = cell.begin()
        cell.await_message(f'Running {SECOND}')
    share = [progress(status) for status in cell.statuses]
    remaining = float(cell.shown('remaining [s]')[-1])
    cell.cancelled(run)
    return {'positions': np.array([state.position for _, state in states]), 'share': share,
            'remaining': remaining, 'points': list(cell.received['points'])}


@pytest.fixture(scope='module')
def finished(cell: Cell, interrupted: dict[str, object]) -> tuple[str, list[str]]:
    """The run that goes on; its answer, and what was said meanwhile."""
    assert not list(cell.results.glob('friction*'))
    cell.statuses.clear()
    return cell.done(), cell.messages


@pytest.fixture(scope='module')
def result(cell: Cell, finished: tuple[str, list[str]]) -> CalibrationResult:
    return cell.stored('friction')


def test_other_joints_stay_still(interrupted: dict[str, object]) -> None:
    travel = np.ptp(interrupted['positions'], axis=0)
    assert (travel[:4] < 2e-3).all()
    assert travel[5] > 0.5


def test_progress_and_remaining_time_are_reported(interrupted: dict[str, object]) -> None:
    assert min(interrupted['share']) < 50.0
    assert interrupted['share'] == sorted(interrupted['share'])
    assert 10.0 < interrupted['remaining'] < 120.0


def test_a_plot_of_each_joint_is_published(interrupted: dict[str, object]) -> None:
    points = interrupted['points'][-1]
    assert set(points.name) == {FIRST}
    assert len(points.velocity) == 2 * len(SPEEDS)
    truth = hidden_friction(FIRST).torque(np.array(points.velocity))
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
    assert curve_error(friction_by_joint(result)[joint], hidden_friction(joint)) < 3.0


@pytest.mark.parametrize('joint', [FIRST, SECOND])
def test_intervals_contain_the_truth(result: CalibrationResult, joint: str) -> None:
    truth = hidden_friction(joint)
    for name in ('coulomb', 'static', 'stribeck_velocity', 'viscous'):
        for side, direction in enumerate(('forward', 'backward')):
            parameter = result.parameter(f'{joint}.{name}_{direction}')
            assert parameter.state is State.IDENTIFIED
            low, high = parameter.interval(0.9999)
            assert low < getattr(truth, name)[side] < high, parameter


@pytest.mark.parametrize('joint', [FIRST, SECOND])
def test_bristle_intervals_contain_the_truth(result: CalibrationResult, joint: str) -> None:
    truth = HIDDEN['joints'][joint]['friction']
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
    assert '(95 %): ' in message
    assert ' N·m' in message
    assert 'Fit degree at most' in message


def test_both_ways_of_removing_gravity_are_compared(result: CalibrationResult) -> None:
    reasons = [check.reason for check in result.checks if check.name.endswith(': gravity')]
    assert len(reasons) == 2
    assert all('differ by' in reason for reason in reasons)


def test_topic_and_drawing_agree_with_the_file(cell: Cell, result: CalibrationResult) -> None:
    received = cell.received
    cell.client.until(lambda: received['result'])
    published = from_yaml(received['result'][-1].data)
    assert published.parameters == result.parameters
    assert {marker.ns for marker in received['markers'][-1].markers} >= {
        'friction_points', 'friction_curve'}
    curve = received['curve'][-1]
    law = friction_by_joint(result)[SECOND]
    np.testing.assert_allclose(curve.effort, law.torque(np.array(curve.velocity)), atol=0.02)


def test_compensation_follows_the_arm(cell: Cell, result: CalibrationResult) -> None:
    """While the arm is moved again, the torque to add is the friction of the moment.

    It rises with the bristles, whose stiffness is identified, and reaches the steady law in a run.
    """
    client = cell.client
    received = client.subscribe(JointState, f'/{FRICTION}/compensation', qos.RELIABLE)
    client.until(lambda: len(received) > 100)
    # At rest the controller's reference is still: no torque, and none that chatters.
    assert {tuple(message.effort) for message in received} == {(0.0,) * 6}
    run = cell.begin()
    cell.await_message(f'Running {FIRST} at +0.02')
    received.clear()
    client.until(lambda: any(abs(m.velocity[5] - 0.02) < 1e-6 for m in received)
                 and abs(received[-1].velocity[5] - 0.02) > 1e-3)
    message = [m for m in received if abs(m.velocity[5] - 0.02) < 1e-6][-1]
    truth = float(hidden_friction(FIRST).torque(0.02))
    assert abs(message.effort[5] - truth) < 0.1 * truth
    cell.cancelled(run)


def test_the_node_never_opens_the_truth(cell: Cell, result: CalibrationResult) -> None:
    cell.assert_truth_unread()
