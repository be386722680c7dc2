# SPDX-License-Identifier: Apache-2.0
"""Nodes and simulations that end, are killed, or come up in the wrong order."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.msg import Transition
from support.live_graph import Client, last_motion, payload_node, sim_arm, value

from robocal_ros.messages import qos

NODE = 'payload_identification'
AT_REST = 1e-3
FAST = {'sweep_speed': 0.8, 'max_velocity': 2.0, 'max_acceleration': 4.0}


@pytest.fixture(scope='module', autouse=True)
def statuses(client: Client) -> None:
    client.statuses[NODE] = client.subscribe(DiagnosticStatus, f'/{NODE}/status', qos.LATCHED)


def begin_moving(client: Client) -> object:
    client.until(lambda: client.state() == 'active')
    run = client.begin('run')
    client.await_phase('moving')
    client.until(lambda: client.travel(0.05) > 0.01, what='motion')
    return run


@pytest.mark.realtime
class TestNodeEnds:
    """The node is asked to end while the arm's process goes on."""

    @pytest.fixture(scope='class', autouse=True)
    @classmethod
    def arm(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        # In real time, so that a second of stopping is a second of the wall clock.
        log = tmp_path_factory.mktemp('arm') / 'sim_arm.log'
        with sim_arm(log, real_time_factor=1.0):
            yield

    def test_a_signal_in_mid_motion_stops_the_arm(self, client: Client, tmp_path: Path) -> None:
        with (
            client.watching() as received,
            payload_node(tmp_path / 'node.log', tmp_path / 'results', **FAST) as node,
        ):
            run = begin_moving(client)
            node.send(signal.SIGTERM)
            asked = time.monotonic()
            answer = client.wait(run)
            assert not answer.success
            assert 'asked to shut down. The arm is held.' in answer.message
            assert node.end() == 0
            log = node.log.read_text()
            assert 'Defect' not in log
            assert 'Traceback' not in log
            assert client.travel() < AT_REST
        stopped = last_motion(received)
        # The last step may be over before the line after the signal.
        assert -0.2 < stopped - asked < 2.5
        assert not list(tmp_path.rglob('payload*.yaml'))

    def test_shutdown_transition_in_mid_motion(self, client: Client, tmp_path: Path) -> None:
        with payload_node(tmp_path / 'node.log', tmp_path / 'results', **FAST) as node:
            run = begin_moving(client)
            assert client.change(Transition.TRANSITION_ACTIVE_SHUTDOWN)
            answer = client.wait(run)
            assert not answer.success
            assert 'The arm is held.' in answer.message
            assert client.travel() < AT_REST
            assert client.state() == 'finalized'
            node.send(signal.SIGTERM)
            assert node.end() == 0
            log = node.log.read_text()
            assert 'Defect' not in log
            assert 'Traceback' not in log


def test_simulation_killed_in_mid_motion_and_started_again(client: Client, tmp_path: Path) -> None:
    with payload_node(tmp_path / 'node.log', tmp_path / 'results', state_timeout=5.0,
                      connect_timeout=2.0, **FAST) as node:
        with sim_arm(tmp_path / 'first.log') as first:
            run = begin_moving(client)
            first.send(signal.SIGKILL)
            answer = client.wait(run)
        assert not answer.success
        assert 'No joint states received for' in answer.message
        assert 'The arm was not seen to come to rest' in answer.message
        refused = client.call('run')
        assert not refused.success
        assert 'No joint states received' in refused.message
        with sim_arm(tmp_path / 'second.log'):
            client.until(lambda: client.travel(0.1) < AT_REST, what='the new arm')
            run = begin_moving(client)
            assert client.call('cancel').success
            assert 'Cancelled on request' in client.wait(run).message
        assert node.running


@pytest.mark.realtime
def test_a_signal_to_all_processes_holds_the_arm_and_is_answered(
    client: Client, tmp_path: Path
) -> None:
    """As by Ctrl-C of a launch file; the arm's process is reached first."""
    with (
        sim_arm(tmp_path / 'sim_arm.log', real_time_factor=1.0) as arm,
        payload_node(tmp_path / 'node.log', tmp_path / 'results', **FAST) as node,
        client.watching() as received,
    ):
        run = begin_moving(client)
        arm.send(signal.SIGINT)
        node.send(signal.SIGINT)
        asked = time.monotonic()
        answer = client.wait(run)
        answered = time.monotonic()
        assert not answer.success
        assert 'asked to shut down. The arm is held.' in answer.message
        assert node.end() == 0
        assert arm.end() == 0
        assert -0.2 < last_motion(received) - asked < 1.0
        assert answered - asked < 3.0
        assert time.monotonic() - asked < 8.0


def test_a_node_that_comes_first_waits_and_starts_itself(client: Client, tmp_path: Path) -> None:
    with payload_node(tmp_path / 'node.log', tmp_path / 'results', description_timeout=1.0,
                      **FAST) as node:
        wanted = "Waiting for the robot description on topic '/robot_description'; start"
        for verb in ('run', 'estimate', 'identify_arm'):
            answer = client.ask(verb)
            assert not answer.success
            assert wanted in answer.message
        assert client.state() == 'unconfigured'
        received = client.statuses[NODE]
        client.until(lambda: any(
            wanted in item.message and item.level == DiagnosticStatus.WARN for item in received))
        with sim_arm(tmp_path / 'sim_arm.log') as arm:
            client.until(lambda: client.state() == 'active', what='the active node')
            assert 'fault' not in arm.log.read_text()
            begin_moving(client)
            assert client.call('cancel').success
            # Not killed, since discovery would keep its controller for 20 s.
            arm.send(signal.SIGTERM)
            arm.end()
            client.until(lambda: value(received[-1], 'waiting for') == (
                "joint states on '/joint_states' and controller "
                "'joint_trajectory_controller/follow_joint_trajectory'"), what='the loss')
        node.send(signal.SIGTERM)
        assert node.end() == 0
        assert 'Traceback' not in node.log.read_text()


@pytest.mark.realtime
def test_a_second_node_of_the_name_is_refused_until_the_first_has_ended(
    client: Client, tmp_path: Path
) -> None:
    results = tmp_path / 'results'
    refusal = f"Another node named '/{NODE}' is active. End one"
    with sim_arm(tmp_path / 'sim_arm.log'):
        with payload_node(tmp_path / 'first.log', results, **FAST) as first:
            client.until(lambda: 'Active.' in first.log.read_text())
            with payload_node(tmp_path / 'second.log', results, **FAST) as second:
                client.until(lambda: refusal in second.log.read_text(), what='the refusal')
            assert second.end() == 0
            assert client.state() == 'active'
            assert client.call('clear').success
            first.send(signal.SIGKILL)
            first.end()
        # The graph still contains the killed node.
        began = time.monotonic()
        with payload_node(tmp_path / 'third.log', results, **FAST) as third:
            client.until(lambda: 'Active.' in third.log.read_text())
            took = time.monotonic() - began
            end = time.monotonic() + 4.0
            client.until(lambda: time.monotonic() > end)
            assert 'Another node' not in third.log.read_text()
            client.until(lambda: client.call('clear').success)
    # Discovery keeps a killed node for 20 s.
    assert took < 10.0, took


def test_a_refused_configuration_is_the_answer(client: Client, tmp_path: Path) -> None:
    with (
        sim_arm(tmp_path / 'sim_arm.log'),
        payload_node(tmp_path / 'node.log', tmp_path / 'results', tool_frame='tool9') as node,
    ):
        client.until(lambda: 'autostart failed' in node.log.read_text())
        answer = client.ask('run')
        assert "Cannot configure: Frame 'tool9' is not in" in answer.message
        client.set(NODE, tool_frame='tool0')
        assert client.change(Transition.TRANSITION_CONFIGURE)
        assert client.change(Transition.TRANSITION_ACTIVATE)
        assert client.call('clear').success
