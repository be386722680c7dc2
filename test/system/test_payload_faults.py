# SPDX-License-Identifier: Apache-2.0
"""A payload run with a fault ends with a reason, the arm at rest, the stored result unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from lifecycle_msgs.msg import Transition
from support.friction_results import identity, payload_result
from support.live_cell import PAYLOAD, Cell, live_cell
from support.live_graph import RELIABLE, Client, payload_node

from robocal_ros.results.store import ResultStore, read_result

TWO_PLANE = {'method': 'two_plane', 'sensor_frame': 'ft_wrist'}
STATIC_POSES = {**TWO_PLANE, 'method': 'static_poses', 'poses': 6, 'dwell': 0.7}


@pytest.fixture(scope='module')
def shared(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    folder = tmp_path_factory.mktemp('faults')
    ResultStore(folder / 'results', identity()).save(payload_result())
    with live_cell(
        client, folder, payload_node, PAYLOAD, sweep_speed=1.0, max_velocity=3.0,
        max_acceleration=12.0, connect_timeout=4.0, state_timeout=5.0, **RELIABLE,
    ) as made:
        yield made


@contextmanager
def lent(cell: Cell, values: dict[str, object]) -> Iterator[Cell]:
    """Lend the cell to a test, which must leave the stored result and the processes alone."""
    def files() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in cell.results.rglob('*')
                if path.is_file()}

    # What a test that failed may have left behind.
    cell.call('cancel')
    cell.use(**values)
    before = files()
    try:
        yield cell
    finally:
        cell.fault('none')
        cell.client.set('sim_arm', controller_active=True)
    assert files() == before
    assert cell.arm.running
    assert cell.node.running


@pytest.fixture
def cell(shared: Cell) -> Iterator[Cell]:
    """The cell with method two_plane."""
    with lent(shared, TWO_PLANE) as made:
        yield made


@pytest.fixture
def wrist_cell(shared: Cell) -> Iterator[Cell]:
    """The cell with method static_poses."""
    with lent(shared, STATIC_POSES) as made:
        yield made


def begin_sweep(cell: Cell) -> object:
    """Begin a run and wait until the arm sweeps a joint."""
    run = cell.begin()
    cell.client.await_progress('sweeping')
    return run


def runs_again(cell: Cell) -> None:
    """The next run moves the arm."""
    run = cell.begin()
    cell.client.await_phase('moving')
    cell.cancelled(run)


def test_cancel_in_mid_sweep_and_other_services(cell: Cell) -> None:
    run = begin_sweep(cell)
    assert cell.call('estimate').message == 'run is under way; call cancel first, or wait.'
    answer = cell.call('cancel')
    assert answer.success
    assert answer.message == 'run was ended.'
    cell.ends(run, 'Cancelled on request', 'The arm is held')
    runs_again(cell)


@pytest.mark.parametrize(('fault', 'words'), [
    ('effort_nan:joint_3', ("Effort of joint 'joint_3' is not a finite number", 'is held')),
    ('joint_missing:joint_2', ("Joint 'joint_2' is missing from joint_states", 'joint_1')),
    ('joint_states_silent', ('No joint states received for', 'The motion was cancelled')),
])
def test_fault_in_mid_sweep(cell: Cell, fault: str, words: tuple[str, ...]) -> None:
    run = begin_sweep(cell)
    cell.fault(fault)
    answer = cell.wait(run)
    # Without joint states nobody can see the arm rest.
    cell.fault('none')
    cell.ends(run, *words)
    assert answer is run.result()
    runs_again(cell)


def test_useless_effort_is_refused_before_moving(cell: Cell) -> None:
    for fault, words in (
        ('effort_zero', ('efforts of all joints on .* are the same', 'hardware interface')),
        ('effort_stuck', ('efforts of all joints on .* are the same', 'Check the driver')),
        ('effort_nan', ("Effort of joint 'joint_1' is not a finite number",)),
        ('joint_missing:joint_4', ("Joint 'joint_4' is missing from joint_states",)),
    ):
        cell.fault(fault)
        cell.statuses.clear()
        cell.ends(cell.begin(), *words)
        assert not any('Moving' in message for message in cell.messages)
        cell.fault('none')
    runs_again(cell)


def test_zero_effort_in_mid_sweep_spoils_no_result(cell: Cell) -> None:
    run = begin_sweep(cell)
    cell.fault('effort_zero')
    answer = cell.client.wait(run, 90.0)
    assert not answer.success
    assert 'Effort' in answer.message


def test_deactivate_in_mid_sweep(cell: Cell) -> None:
    run = begin_sweep(cell)
    assert cell.client.change(Transition.TRANSITION_DEACTIVATE)
    cell.ends(run, 'The node was deactivated', 'The arm is held')
    refused = cell.call('run')
    assert not refused.success
    assert 'not active' in refused.message
    assert cell.client.change(Transition.TRANSITION_ACTIVATE)
    runs_again(cell)


def test_deactivate_and_activate_at_once_does_not_revive_the_run(cell: Cell) -> None:
    run = cell.begin()
    cell.client.await_phase('planning')
    assert cell.client.change(Transition.TRANSITION_DEACTIVATE)
    assert cell.client.change(Transition.TRANSITION_ACTIVATE)
    cell.ends(run, 'The node was deactivated')
    runs_again(cell)


@pytest.mark.parametrize(('fault', 'words'), [
    ('ft_silent', ('No readings received on F/T topic', 'ft_wrist/wrench')),
    ('ft_nan', ('F/T topic .* sends values that are not finite', 'check the sensor')),
])
def test_a_wrist_sensor_that_fails(
    wrist_cell: Cell, fault: str, words: tuple[str, ...]
) -> None:
    run = wrist_cell.begin()
    wrist_cell.client.await_phase('measuring')
    wrist_cell.fault(fault)
    wrist_cell.ends(run, *words, 'The arm is held')
    wrist_cell.ends(wrist_cell.begin(), *words, 'The arm was not moved')
    wrist_cell.fault('none')
    runs_again(wrist_cell)


def test_a_wrist_sensor_with_another_frame(wrist_cell: Cell) -> None:
    assert wrist_cell.configure(sensor_frame='ft_link_3_distal')
    wrist_cell.ends(wrist_cell.begin(), "names frame 'ft_wrist'",
                    "'ft_link_3_distal' is expected", 'The arm was not moved')


@pytest.mark.realtime
def test_stamps_out_of_order_are_left_out_and_counted(shared: Cell) -> None:
    """A run succeeds without them; a late machine would interrupt its sweeps."""
    cell = shared
    # A fifth of the samples lacks, and these sweeps are short.
    assert cell.configure(**TWO_PLANE, max_com_interval=0.02, max_torque_error=0.02)
    cell.fault('stamps_disordered')
    try:
        answer = cell.call('run')
    finally:
        cell.fault('none')
    assert answer.success, (
        answer.message, [read_result(file).counts for file in cell.results.glob('*.failed.yaml')])
    counts = cell.stored('payload').counts
    # Every fifth joint state is older than the one before it.
    assert counts['out_of_order'] == pytest.approx(counts['received'] / 5, abs=2)
    assert counts['samples'] == counts['received'] - counts['out_of_order']
    assert counts['clock_jumps'] == 0
