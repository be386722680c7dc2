# SPDX-License-Identifier: Apache-2.0
"""The payload by sweeps and by rests on one live cell, then faults, which must spoil nothing.

The truth is read here alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import yaml
from geometry_msgs.msg import InertiaStamped
from lifecycle_msgs.msg import Transition
from std_msgs.msg import String
from support.live_cell import HIDDEN, PAYLOAD, Cell, live_cell
from support.live_graph import CELL, RELIABLE, Client, payload_node
from visualization_msgs.msg import MarkerArray

from robocal_ros.results import CalibrationResult, State, Verdict, from_yaml, read_result
from robocal_ros.robot import calibration_matrix

COM = ('com_x', 'com_y', 'com_z')
TWO_PLANE = {'method': 'two_plane', 'sensor_frame': 'ft_wrist'}
STATIC_POSES = {**TWO_PLANE, 'method': 'static_poses', 'poses': 6, 'dwell': 0.7}


@pytest.fixture(scope='module')
def shared(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    folder = tmp_path_factory.mktemp('payload')
    # Whether the reference cell's ripple is found in so few samples is left to chance, and with
    # it the doubt of slow ripple, with which quick sweeps are not good enough for such a purpose.
    cell = yaml.safe_load(CELL.read_text())
    cell['joint_states']['effort_ripple'] = 0.0
    (folder / 'cell.yaml').write_text(yaml.safe_dump(cell))
    with live_cell(
        client, folder, payload_node, PAYLOAD, arm={'cell_file': folder / 'cell.yaml'}, topics={
            'result': String, 'inertia': InertiaStamped, 'markers': MarkerArray},
        sweep_speed=0.5, max_velocity=3.0, max_acceleration=12.0, connect_timeout=4.0,
        state_timeout=5.0, **RELIABLE,
    ) as made:
        yield made


@pytest.fixture(scope='module')
def two_plane(shared: Cell) -> CalibrationResult:
    shared.done()
    return shared.stored('payload')


@pytest.fixture(scope='module')
def static_poses(shared: Cell, two_plane: CalibrationResult) -> CalibrationResult:
    assert shared.configure(method='static_poses', poses=8, dwell=0.7)
    shared.done()
    return shared.stored('payload')


def assert_near_truth(result: CalibrationResult, names: tuple[str, ...]) -> None:
    tool = HIDDEN['tool']
    truth = dict(zip(('mass', *COM), (tool['mass'], *tool['centre_of_mass']), strict=True))
    assert result.verdict is Verdict.PASS
    for name in names:
        parameter = result.parameter(name)
        assert parameter.state is State.IDENTIFIED
        low, high = parameter.interval(0.999)
        assert low < truth[name] < high, f'{name}: {low} … {high}, truth {truth[name]}'


def test_two_plane_identifies_the_centre_of_mass(two_plane: CalibrationResult) -> None:
    assert_near_truth(two_plane, COM)
    assert two_plane.method == 'two_plane'


def test_static_poses_identifies_mass_and_centre(static_poses: CalibrationResult) -> None:
    assert_near_truth(static_poses, ('mass', *COM))
    assert static_poses.method == 'static_poses'


def test_file_and_topics_agree(shared: Cell, static_poses: CalibrationResult) -> None:
    text = (shared.results / 'payload.yaml').read_text()
    received, inertias = shared.received['result'], shared.received['inertia']
    shared.client.until(lambda: received and received[-1].data == text)
    result = from_yaml(text)
    shared.client.until(lambda: inertias[-1].inertia.m == result.parameter('mass').value)
    inertia = inertias[-1]
    assert inertia.header.frame_id == result.frame == 'tool0'
    com = inertia.inertia.com
    assert (com.x, com.y, com.z) == tuple(result.values(COM))
    # Neither method sees the inertia.
    assert np.isnan(inertia.inertia.ixx)
    markers = {marker.ns: marker for marker in shared.received['markers'][-1].markers}
    assert set(markers) == {'centre_of_mass', 'interval_95'}
    for marker in markers.values():
        place = marker.pose.position
        assert marker.header.frame_id == 'tool0'
        assert (place.x, place.y, place.z) == tuple(result.values(COM))


def test_the_sensor_is_calibrated_by_the_weighed_tool(
    shared: Cell, static_poses: CalibrationResult
) -> None:
    """Its readings are exact but for bias and noise."""
    assert shared.configure(method='static_poses', poses=10, dwell=0.7, arm_model_std=0.01,
                            known_mass=HIDDEN['tool']['mass'], known_mass_std=0.002)
    assert 'held out, RMS: force' in shared.done('calibrate_sensor')
    result = shared.stored('sensor_calibration')
    assert result.verdict is Verdict.PASS
    frame, matrix = calibration_matrix(result)
    assert frame == 'ft_wrist'
    deviates = (matrix - np.eye(6)).ravel() / [p.std for p in result.parameters]
    assert np.abs(deviates).max() < 3.5


def test_older_results_are_kept(shared: Cell, static_poses: CalibrationResult) -> None:
    assert len(list(shared.results.rglob('payload*.yaml'))) >= 2


def test_the_node_never_opens_the_truth(shared: Cell, static_poses: CalibrationResult) -> None:
    shared.assert_truth_unread()


# ------------------------------------------------------------------ faults


@contextmanager
def lent(cell: Cell, values: dict[str, object]) -> Iterator[Cell]:
    """Lend the cell to a test, which must leave the stored result and the processes alone."""
    def files() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in cell.results.rglob('*') if path.is_file()}

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
    answer = cell.wait(run)
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
def test_a_wrist_sensor_that_fails(wrist_cell: Cell, fault: str, words: tuple[str, ...]) -> None:
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
