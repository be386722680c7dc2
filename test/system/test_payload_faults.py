# SPDX-License-Identifier: Apache-2.0
"""A payload run with a fault ends with a reason, the arm at rest, the stored result unchanged.

The tests share a simulated arm and a node. A test that fails discards both, and the next test
starts new ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.msg import Transition
from std_srvs.srv import Trigger
from support.fixtures import has_failed
from support.friction_results import identity, payload_result
from support.live_graph import RELIABLE, Client, Process, payload_node, phase, sim_arm

from robocal_ros.messages import qos
from robocal_ros.results.store import ResultStore, read_result

NODE = 'payload_identification'
AT_REST = 1e-3
TWO_PLANE = {'method': 'two_plane', 'sensor_frame': 'ft_wrist'}
STATIC_POSES = {**TWO_PLANE, 'method': 'static_poses', 'poses': 6, 'dwell': 0.7}


@dataclass
class Cell:
    """The arm, the node under test, and the folder of its results."""

    client: Client
    arm: Process
    node: Process
    results: Path
    values: dict[str, object] = field(default_factory=dict)

    def fault(self, text: str) -> None:
        self.client.set('sim_arm', fault=text)

    def use(self, values: dict[str, object]) -> None:
        """Configure and activate the node with these parameters, unless it has them."""
        if values == self.values:
            return
        if self.client.state() == 'active':
            assert self.client.change(Transition.TRANSITION_DEACTIVATE)
        if self.client.state() == 'inactive':
            assert self.client.change(Transition.TRANSITION_CLEANUP)
        self.client.set(NODE, **values)
        assert self.client.change(Transition.TRANSITION_CONFIGURE)
        assert self.client.change(Transition.TRANSITION_ACTIVATE)
        self.values = dict(values)

    def files(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.results.rglob('*')
                if path.is_file()}

    def begin_sweep(self) -> object:
        """Begin a run and wait until the arm sweeps a joint."""
        run = self.client.begin('run')
        self.client.await_progress('sweeping')
        return run

    def ends(self, run: object, *words: str, timeout: float = 20.0) -> None:
        """The run fails with these words in its answer, and the arm is at rest."""
        answer: Trigger.Response = self.client.wait(run, timeout)
        assert not answer.success
        for word in words:
            assert re.search(word, answer.message), answer.message
        assert 'Defect' not in answer.message
        assert answer.message[-1] in '.?'
        # Status messages arrive independently of the answer; the last one closes the run.
        received = self.client.statuses[NODE]
        self.client.until(lambda: received and phase(received[-1]) == 'idle')
        assert self.client.travel() < AT_REST

    def runs_again(self) -> None:
        """The next run moves the arm."""
        run = self.client.begin('run')
        self.client.await_phase('moving')
        assert self.client.call('cancel').success
        self.ends(run, 'Cancelled on request', 'The arm is held')


class Cells:
    """Keeps one cell for all tests, until one of them fails."""

    def __init__(self, client: Client, folder: Path) -> None:
        self._client = client
        self._folder = folder
        self._cell: Cell | None = None
        self._processes = ExitStack()
        self._started = 0

    def get(self) -> Cell:
        """Return the cell, a new one after a failure."""
        if self._cell is None:
            self._started += 1
            folder = self._folder / str(self._started)
            results = folder / 'results'
            ResultStore(results, identity()).save(payload_result())
            arm = self._processes.enter_context(sim_arm(folder / 'sim_arm.log'))
            node = self._processes.enter_context(payload_node(
                folder / 'node.log', results, sweep_speed=1.0, max_velocity=3.0,
                max_acceleration=12.0, connect_timeout=4.0, state_timeout=1.5, **RELIABLE))
            self._client.until(lambda: self._client.state() == 'active', 60.0)
            self._cell = Cell(self._client, arm, node, results)
        return self._cell

    def discard(self, error: AssertionError | None = None) -> None:
        """End the processes, after an error with their logs in the report."""
        self._processes.__exit__(type(error) if error else None, error, None)
        self._cell = None


@pytest.fixture(scope='module')
def cells(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cells]:
    client.statuses[NODE] = client.subscribe(DiagnosticStatus, f'/{NODE}/status', qos.LATCHED)
    made = Cells(client, tmp_path_factory.mktemp('faults'))
    yield made
    made.discard()


@contextmanager
def lent(cells: Cells, item: pytest.Item, values: dict[str, object]) -> Iterator[Cell]:
    """Lend the cell to a test, which must leave the stored result and the processes alone."""
    try:
        cell = cells.get()
        cell.use(values)
        before = cell.files()
        yield cell
        assert not has_failed(item)
        cell.fault('none')
        cell.client.set('sim_arm', controller_active=True)
        assert cell.files() == before
        assert cell.arm.running
        assert cell.node.running
    except BaseException as error:
        cells.discard(AssertionError(str(error)))
        if not has_failed(item):
            raise


@pytest.fixture
def cell(cells: Cells, request: pytest.FixtureRequest) -> Iterator[Cell]:
    """The cell with method two_plane."""
    with lent(cells, request.node, TWO_PLANE) as made:
        yield made


@pytest.fixture
def wrist_cell(cells: Cells, request: pytest.FixtureRequest) -> Iterator[Cell]:
    """The cell with method static_poses."""
    with lent(cells, request.node, STATIC_POSES) as made:
        yield made


def test_cancel_in_mid_sweep(cell: Cell) -> None:
    run = cell.begin_sweep()
    answer = cell.client.call('cancel')
    assert answer.success
    assert answer.message == 'run was ended.'
    cell.ends(run, 'Cancelled on request', 'The arm is held')
    cell.runs_again()


def test_other_services_are_refused_in_mid_sweep(cell: Cell) -> None:
    run = cell.begin_sweep()
    for name in ('run', 'estimate', 'clear', 'calibrate_gains'):
        refused = cell.client.call(name)
        assert not refused.success
        assert refused.message == 'run is under way; call cancel first, or wait.'
    assert cell.client.call('cancel').success
    cell.ends(run, 'Cancelled on request', 'The arm is held')


@pytest.mark.parametrize(('fault', 'words'), [
    ('controller_abort', ('controller ended the motion', 'The arm is held')),
    ('effort_nan:joint_3', ("Effort of joint 'joint_3' is not a finite number", 'is held')),
    ('joint_missing:joint_2', ("Joint 'joint_2' is missing from joint_states", 'joint_1')),
    ('joint_states_silent', ('No joint states received for', 'The motion was cancelled')),
    ('clock_jump_back', ('clock of the joint states jumped back',)),
])
def test_fault_in_mid_sweep(cell: Cell, fault: str, words: tuple[str, ...]) -> None:
    run = cell.begin_sweep()
    cell.fault(fault)
    answer = cell.client.wait(run, 20.0)
    # Without joint states nobody can see the arm rest.
    cell.fault('none')
    cell.ends(run, *words)
    assert answer is run.result()
    cell.runs_again()


def test_useless_effort_is_refused_before_moving(cell: Cell) -> None:
    for fault, words in (
        ('effort_zero', ('efforts of all joints on .* are the same', 'hardware interface')),
        ('effort_stuck', ('efforts of all joints on .* are the same', 'Check the driver')),
        ('effort_nan', ("Effort of joint 'joint_1' is not a finite number",)),
        ('joint_missing:joint_4', ("Joint 'joint_4' is missing from joint_states",)),
    ):
        cell.fault(fault)
        received = cell.client.statuses[NODE]
        received.clear()
        cell.ends(cell.client.begin('run'), *words)
        assert not any('Moving' in status.message for status in received)
        cell.fault('none')
    cell.runs_again()


def test_zero_effort_in_mid_sweep_spoils_no_result(cell: Cell) -> None:
    run = cell.begin_sweep()
    cell.fault('effort_zero')
    answer = cell.client.wait(run, 90.0)
    assert not answer.success
    assert 'Effort' in answer.message


def test_controller_deactivated_in_mid_sweep(cell: Cell) -> None:
    run = cell.begin_sweep()
    cell.client.set('sim_arm', controller_active=False)
    cell.ends(run, 'The controller ended the motion', 'The arm is held')
    cell.ends(cell.client.begin('run'), 'rejected the motion', 'check that it is active')
    cell.client.set('sim_arm', controller_active=True)
    cell.runs_again()


def test_deactivate_in_mid_sweep(cell: Cell) -> None:
    run = cell.begin_sweep()
    assert cell.client.change(Transition.TRANSITION_DEACTIVATE)
    cell.ends(run, 'The node was deactivated', 'The arm is held')
    refused = cell.client.call('run')
    assert not refused.success
    assert 'not active' in refused.message
    assert cell.client.change(Transition.TRANSITION_ACTIVATE)
    cell.runs_again()


def test_deactivate_and_activate_at_once_does_not_revive_the_run(cell: Cell) -> None:
    run = cell.client.begin('run')
    cell.client.await_phase('planning')
    assert cell.client.change(Transition.TRANSITION_DEACTIVATE)
    assert cell.client.change(Transition.TRANSITION_ACTIVATE)
    cell.ends(run, 'The node was deactivated')
    cell.runs_again()


def test_cleanup_waits_for_the_arm(cell: Cell) -> None:
    run = cell.begin_sweep()
    assert cell.client.change(Transition.TRANSITION_DEACTIVATE)
    cell.client.change(Transition.TRANSITION_CLEANUP)
    cell.ends(run, 'The node was deactivated', 'The arm is held')
    values, cell.values = cell.values, {}
    cell.use(values)
    cell.runs_again()


@pytest.mark.parametrize(('fault', 'words'), [
    ('ft_silent', ('No readings received on F/T topic', 'ft_wrist/wrench')),
    ('ft_stuck', ('F/T topic .* has sent the same values for', 'a live sensor scatters')),
    ('ft_nan', ('F/T topic .* sends values that are not finite', 'check the sensor')),
])
def test_a_wrist_sensor_that_fails(
    wrist_cell: Cell, fault: str, words: tuple[str, ...]
) -> None:
    run = wrist_cell.client.begin('run')
    wrist_cell.client.await_phase('measuring')
    wrist_cell.fault(fault)
    wrist_cell.ends(run, *words, 'The arm is held')
    wrist_cell.ends(wrist_cell.client.begin('run'), *words, 'The arm was not moved')
    wrist_cell.fault('none')
    wrist_cell.runs_again()


def test_a_wrist_sensor_with_another_frame(wrist_cell: Cell) -> None:
    wrist_cell.use({**STATIC_POSES, 'sensor_frame': 'ft_link_3_distal'})
    wrist_cell.ends(wrist_cell.client.begin('run'), "names frame 'ft_wrist'",
                    "'ft_link_3_distal' is expected", 'The arm was not moved')


def test_stamps_out_of_order_are_left_out_and_counted(cells: Cells) -> None:
    """A run succeeds without them, also on processes that went through all of the above."""
    cell = cells.get()
    # A fifth of the samples lacks, and these sweeps are short.
    cell.use({**TWO_PLANE, 'max_com_interval': 0.02})
    cell.fault('stamps_disordered')
    try:
        answer = cell.client.call('run')
    finally:
        cell.fault('none')
    assert answer.success, answer.message
    counts = read_result(cell.results / 'payload.yaml').counts
    # Every fifth joint state is older than the one before it.
    assert counts['out_of_order'] == pytest.approx(counts['received'] / 5, abs=2)
    assert counts['samples'] == counts['received'] - counts['out_of_order']
    assert counts['clock_jumps'] == 0
