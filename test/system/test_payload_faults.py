# SPDX-License-Identifier: Apache-2.0
"""Whatever goes wrong in a payload run: a sentence, the arm at rest, the good result untouched.

One simulated arm and one node go through all of it, so each test also shows that the one
before left them usable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.msg import Transition
from std_srvs.srv import Trigger
from support.live_graph import Client, Process, payload_node, phase, sim_arm

from robocal_ros.messages import qos

NODE = 'payload_identification'
AT_REST = 1e-3


@dataclass
class Cell:
    """The arm, the node under test, and where its results are."""

    client: Client
    arm: Process
    node: Process
    results: Path

    def fault(self, text: str) -> None:
        self.client.set('sim_arm', fault=text)

    def configure(self, **values: object) -> None:
        """Give the node other parameters."""
        if self.client.state() == 'active':
            assert self.client.change(Transition.TRANSITION_DEACTIVATE)
        if self.client.state() == 'inactive':
            assert self.client.change(Transition.TRANSITION_CLEANUP)
        self.client.set(NODE, **values)
        assert self.client.change(Transition.TRANSITION_CONFIGURE)
        assert self.client.change(Transition.TRANSITION_ACTIVATE)

    def files(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.results.rglob('*')
                if path.is_file()}

    def ends(self, run: object, *words: str, timeout: float = 20.0) -> None:
        """The run ends with a sentence of these words, the arm resting."""
        answer: Trigger.Response = self.client.wait(run, timeout)
        assert not answer.success
        for word in words:
            assert re.search(word, answer.message), answer.message
        assert 'Defect' not in answer.message
        assert answer.message[-1] in '.?'
        # Statuses come on their own way; the last one closes the run.
        received = self.client.statuses[NODE]
        self.client.until(lambda: received and phase(received[-1]) == 'idle')
        assert self.client.travel() < AT_REST

    def runs_again(self) -> None:
        """A run gets under way at once."""
        run = self.client.begin('run')
        self.client.await_phase('moving')
        assert self.client.call('cancel').success
        self.ends(run, 'Cancelled on request', 'The arm is held')


@pytest.fixture(scope='module')
def shared(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    folder = tmp_path_factory.mktemp('faults')
    results = folder / 'results'
    with (
        sim_arm(folder / 'sim_arm.log') as arm,
        payload_node(folder / 'node.log', results, sweep_speed=0.8, max_velocity=2.0,
                     max_acceleration=4.0, connect_timeout=4.0, state_timeout=1.5) as node,
    ):
        client.statuses[NODE] = client.subscribe(DiagnosticStatus, f'/{NODE}/status', qos.LATCHED)
        cell = Cell(client, arm, node, results)
        answer = client.call('run')
        assert answer.success, answer.message
        assert cell.files()
        yield cell


@pytest.fixture
def cell(shared: Cell) -> Iterator[Cell]:
    """The cell without faults, with method two_plane; what is on file must not change."""
    before = shared.files()
    yield shared
    shared.fault('none')
    shared.client.set('sim_arm', controller_active=True)
    assert shared.files() == before
    assert shared.arm.running
    assert shared.node.running


def begin_sweep(cell: Cell) -> object:
    run = cell.client.begin('run')
    cell.client.await_progress('sweeping')
    return run


def test_cancel_in_mid_sweep(cell: Cell) -> None:
    run = begin_sweep(cell)
    answer = cell.client.call('cancel')
    assert answer.success
    assert answer.message == 'run was ended.'
    cell.ends(run, 'Cancelled on request', 'The arm is held')
    cell.runs_again()


@pytest.mark.parametrize(('fault', 'words'), [
    ('controller_abort', ('controller ended the motion', 'The arm is held')),
    ('effort_nan:joint_3', ("Effort of joint 'joint_3' is not a finite number", 'is held')),
    ('joint_missing:joint_2', ("Joint 'joint_2' is missing from joint_states", 'joint_1')),
    ('joint_states_silent', ('No joint states have come for', 'The motion was cancelled')),
])
def test_fault_in_mid_sweep(cell: Cell, fault: str, words: tuple[str, ...]) -> None:
    run = begin_sweep(cell)
    cell.fault(fault)
    answer = cell.client.wait(run, 20.0)
    # Without joint states nobody can see the arm rest.
    cell.fault('none')
    cell.ends(run, *words)
    assert answer is run.result()
    cell.runs_again()


@pytest.mark.parametrize(('fault', 'words'), [
    ('effort_zero', ("Effort of joint 'joint_6' is zero in all", 'hardware interface')),
    ('effort_stuck', ("Effort of joint 'joint_6' is stuck at", 'driver')),
    ('effort_nan', ("Effort of joint 'joint_1' is not a finite number",)),
    ('joint_missing:joint_4', ("Joint 'joint_4' is missing from joint_states",)),
])
def test_effort_that_says_nothing_is_refused_before_moving(
    cell: Cell, fault: str, words: tuple[str, ...]
) -> None:
    cell.fault(fault)
    received = cell.client.statuses[NODE]
    received.clear()
    cell.ends(cell.client.begin('run'), *words)
    assert not any('Moving' in status.message for status in received)
    cell.fault('none')
    cell.runs_again()


def test_zero_effort_in_mid_sweep_spoils_no_result(cell: Cell) -> None:
    run = begin_sweep(cell)
    cell.fault('effort_zero')
    answer = cell.client.wait(run, 90.0)
    assert not answer.success
    assert 'The last good result stays' in answer.message or 'Effort' in answer.message


def test_stamps_out_of_order_are_left_out_and_counted(cell: Cell) -> None:
    cell.fault('stamps_disordered')
    run = begin_sweep(cell)
    assert cell.client.call('cancel').success
    cell.ends(run, 'Cancelled on request')
    cell.fault('none')
    cell.runs_again()


def test_clock_that_jumps_back_ends_the_run(cell: Cell) -> None:
    run = begin_sweep(cell)
    cell.fault('clock_jump_back')
    cell.ends(run, 'clock of the joint states jumped back')
    cell.fault('none')
    cell.runs_again()


def test_controller_deactivated_in_mid_sweep(cell: Cell) -> None:
    run = begin_sweep(cell)
    cell.client.set('sim_arm', controller_active=False)
    cell.ends(run, 'The controller ended the motion', 'The arm is held')
    cell.ends(cell.client.begin('run'), 'rejected the motion', 'Is it active')
    cell.client.set('sim_arm', controller_active=True)
    cell.runs_again()


def test_deactivate_in_mid_sweep(cell: Cell) -> None:
    run = begin_sweep(cell)
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
    run = begin_sweep(cell)
    assert cell.client.change(Transition.TRANSITION_DEACTIVATE)
    cell.client.change(Transition.TRANSITION_CLEANUP)
    cell.ends(run, 'The node was deactivated', 'The arm is held')
    cell.configure()
    cell.runs_again()


def test_second_run_is_refused(cell: Cell) -> None:
    run = begin_sweep(cell)
    for verb in ('run', 'estimate', 'clear'):
        answer = cell.client.call(verb)
        assert not answer.success
        assert 'run is under way' in answer.message
    assert cell.client.call('cancel').success
    cell.ends(run, 'Cancelled on request')


@pytest.mark.parametrize(('values', 'words'), [
    ({'method': 'static_poses', 'sensor_frame': 'ft_wirst'}, ("Frame 'ft_wirst'", 'ft_wrist')),
    ({'tool_frame': 'tool_zero'}, ("Frame 'tool_zero'", 'tool0')),
    ({'joints': ['joint_9']}, ("Joint 'joint_9'", 'joint_6')),
    ({'second_joint': 'joint_9'}, ("Joint 'joint_9'", 'joint_6')),
    ({'robot_description': '<robot name="x"'}, ('not well-formed XML', 'xacro')),
])
def test_configure_refuses_wrong_names(
    cell: Cell, values: dict[str, object], words: tuple[str, ...]
) -> None:
    defaults = {'method': 'two_plane', 'sensor_frame': 'ft_wrist', 'tool_frame': 'tool0',
                'joints': [''], 'second_joint': '', 'robot_description': ''}
    client = cell.client
    assert client.change(Transition.TRANSITION_DEACTIVATE)
    assert client.change(Transition.TRANSITION_CLEANUP)
    client.set(NODE, **values)
    assert not client.change(Transition.TRANSITION_CONFIGURE)
    assert client.state() == 'unconfigured'
    sentence = cell.node.log.read_text().splitlines()[-1]
    assert 'Cannot configure' in sentence
    for word in words:
        assert word in sentence
    cell.configure(**{name: defaults[name] for name in values})


class TestWristSensor:
    """Method static_poses."""

    @pytest.fixture(scope='class', autouse=True)
    @classmethod
    def static_poses(cls, shared: Cell) -> Iterator[None]:
        shared.configure(method='static_poses', poses=6, dwell=0.7)
        yield
        shared.configure(method='two_plane')

    @pytest.mark.parametrize(('fault', 'words'), [
        ('ft_silent', ('No readings come on F/T topic', 'ft_wrist/wrench')),
        ('ft_nan', ('F/T topic .* sends values that are not finite', 'check the sensor')),
    ])
    def test_silent_and_nan(self, cell: Cell, fault: str, words: tuple[str, ...]) -> None:
        run = cell.client.begin('run')
        cell.client.await_phase('measuring')
        cell.fault(fault)
        cell.ends(run, *words, 'The arm is held')
        cell.ends(cell.client.begin('run'), *words, 'The arm was not moved')
        cell.fault('none')
        cell.runs_again()

    def test_wrong_frame(self, cell: Cell) -> None:
        cell.configure(sensor_frame='ft_link_3_distal')
        cell.ends(cell.client.begin('run'), "names frame 'ft_wrist'",
                  "'ft_link_3_distal' is expected", 'The arm was not moved')
        cell.configure(sensor_frame='ft_wrist')
        cell.runs_again()

    def test_wrong_sign(self, cell: Cell) -> None:
        cell.configure(sensor_sign=-1.0)
        cell.ends(cell.client.begin('run'), 'estimated mass is -2', 'sensor_sign', timeout=90.0)
        cell.configure(sensor_sign=1.0)
        cell.runs_again()


def test_a_run_succeeds_after_all_that(shared: Cell) -> None:
    before = shared.files()
    answer = shared.client.call('run')
    assert answer.success, answer.message
    assert shared.files() != before
