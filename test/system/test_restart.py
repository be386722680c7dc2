# SPDX-License-Identifier: Apache-2.0
"""Nodes that are killed in mid-run, and started again: what was measured is gone on from."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from std_srvs.srv import Trigger
from support.friction_results import hidden_payload, identity
from support.live_cell import (
    COMPLIANCE,
    FRICTION,
    HIDDEN,
    PAYLOAD,
    compliance_node,
    curve_error,
    friction_node,
    hidden_friction,
)
from support.live_graph import TRUTH, Client, Process, payload_node, phase, sim_arm

from robocal_ros.messages import qos
from robocal_ros.results import CalibrationResult, ResultStore, Verdict, read_result
from robocal_ros.robot import compliance_by_joint, friction_by_joint

STATIC_POSES = {'method': 'static_poses', 'poses': 8, 'dwell': 0.7, 'max_velocity': 2.0,
                'max_acceleration': 6.0, 'state_timeout': 5.0}


@pytest.fixture
def ros() -> Iterator[None]:
    """A context for each test: what is killed may leave the transport of its partners locked."""
    rclpy.init()
    yield
    rclpy.try_shutdown()


@pytest.fixture
def client(ros: None) -> Iterator[Client]:
    client = Client()
    yield client
    client.close()


def run_killed_and_again(
    client: Client, name: str, start: Callable[[Path], Process], folder: Path, kill_at: str
) -> tuple[str, list[str]]:
    """Kill a node at a message, run it again; return the answer and the second run's messages."""
    statuses = client.statuses.setdefault(
        name, client.subscribe(DiagnosticStatus, f'/{name}/status', qos.LATCHED))
    with start(folder / 'first.log') as first:
        client.until(lambda: client.state(name) == 'active')
        # Simulated time waits for whoever subscribes, and so for the kill.
        with client.watching():
            client.begin('run', name)
            client.until(lambda: any(kill_at in status.message for status in statuses), 240.0,
                         kill_at)
            first.send(signal.SIGKILL)
            first.end()
    with start(folder / 'second.log') as second:
        client.until(lambda: 'Active.' in second.log.read_text())
        client.until(lambda: client.travel() < 1e-3, what='rest')
        answer = call_again(client, name)
        assert answer.success, answer.message
        assert 'Traceback' not in second.log.read_text()
    assert not list(folder.rglob('*.unfinished'))
    return str(answer.message), [str(status.message) for status in statuses
                                 if phase(status) != 'idle']


def call_again(client: Client, name: str) -> Trigger.Response:
    """Call run until it begins, and wait for it: a request may reach the killed node alone."""
    statuses, runs = client.statuses[name], list[Any]()
    statuses.clear()

    def accepted() -> list[Trigger.Response]:
        return [run.result() for run in runs
                if run.done() and 'is under way' not in run.result().message]

    while not accepted() and all(phase(status) == 'idle' for status in statuses):
        runs.append(client.begin('run', name))
        with suppress(TimeoutError):
            client.until(lambda: any(phase(status) != 'idle' for status in statuses), 5.0)
    client.until(accepted, 300.0, 'the answer')
    return accepted()[0]


def assert_resumed(answer: str, result: CalibrationResult, parts: str) -> None:
    assert re.search(rf'Resumed after a restart: {parts} were measured at \d\d:\d\d\.', answer)
    assert result.verdict is Verdict.PASS
    assert result.counts['resumed'] == 1


def test_friction_goes_on_with_the_second_joint(client: Client, tmp_path: Path) -> None:
    results = tmp_path / 'results'
    ResultStore(results, identity()).save(hidden_payload(TRUTH))
    marks = client.subscribe(DiagnosticArray, f'/{FRICTION}/marks', qos.MARKS)
    with sim_arm(tmp_path / 'sim_arm.log', seed=2):
        answer, said = run_killed_and_again(
            client, FRICTION, lambda log: friction_node(
                log, results, measure_joints=['joint_6', 'joint_5']),
            tmp_path, 'Running joint_5 at +0.1 rad/s')
    result = read_result(results / 'friction.yaml')
    assert_resumed(answer, result, '1 of 2 joints')
    assert not any('joint_6' in message for message in said)
    laws = friction_by_joint(result)
    for joint in ('joint_5', 'joint_6'):
        assert curve_error(laws[joint], hidden_friction(joint)) < 3.0
    # The stream of both starts.
    assert result.counts['received'] >= result.counts['samples']
    # A bag holds one run, without what the first start measured last.
    names = [mark.status[0].name for mark in marks]
    assert (names[0], names[-1], names.count('begin')) == ('begin', 'end', 1)
    assert 'discard' in names


def test_static_poses_go_on_after_a_look_at_the_last_posture(
    client: Client, tmp_path: Path
) -> None:
    results = tmp_path / 'results'
    with sim_arm(tmp_path / 'sim_arm.log'):
        answer, said = run_killed_and_again(
            client, PAYLOAD, lambda log: payload_node(log, results, **STATIC_POSES), tmp_path,
            'Moving to posture 5 of 8')
    result = read_result(results / 'payload.yaml')
    assert_resumed(answer, result, '4 of 8 postures')
    visited = [int(found) for message in said
               for found in re.findall(r'^Measuring in posture (\d) of 8', message)]
    assert list(dict.fromkeys(visited)) == [4, 5, 6, 7, 8]
    tool = HIDDEN['tool']
    low, high = result.parameter('mass').interval(0.999)
    assert low < tool['mass'] < high


def test_static_poses_begin_anew_with_another_load(client: Client, tmp_path: Path) -> None:
    """The load is mounted while no node runs: the sensor reads more than before."""
    results = tmp_path / 'results'
    with sim_arm(tmp_path / 'sim_arm.log'):
        def start(log: Path) -> Process:
            if log.name.startswith('second'):
                assert client.call('attach_load', 'sim_arm').success
            return payload_node(log, results, **STATIC_POSES)

        answer, said = run_killed_and_again(
            client, PAYLOAD, start, tmp_path, 'Moving to posture 4 of 8')
        assert client.call('detach_load', 'sim_arm').success
    assert 'Resumed' not in answer
    assert 'load or sensor has changed' in (tmp_path / 'second.log').read_text()
    assert any('posture 1 of 8' in message for message in said)
    result = read_result(results / 'payload.yaml')
    assert 'resumed' not in result.counts
    truth = HIDDEN
    low, high = result.parameter('mass').interval(0.999)
    assert low < truth['tool']['mass'] + truth['load']['mass'] < high


def test_compliance_goes_on_in_the_loaded_set(client: Client, tmp_path: Path) -> None:
    results = tmp_path / 'results'
    with sim_arm(tmp_path / 'sim_arm.log', seed=3):
        answer, said = run_killed_and_again(
            client, COMPLIANCE, lambda log: compliance_node(log, results),
            tmp_path, 'Moving to posture 4 of 10 (loaded)')
    result = read_result(results / 'compliance.yaml')
    assert_resumed(answer, result, '10 of 10 postures unloaded and 3 of 10 postures loaded')
    assert not any('(unloaded)' in message for message in said)
    visited = [int(found) for message in said
               for found in re.findall(r'^Averaging the tracker in posture (\d+) of', message)]
    # The reference is looked at first.
    assert visited[0] == 1
    assert not {2, 3} & set(visited)
    found, truth = compliance_by_joint(result), HIDDEN['joints']
    for name in ('joint_2', 'joint_3'):
        np.testing.assert_allclose(found[name], truth[name]['compliance'], rtol=0.2)


@pytest.fixture(autouse=True)
def _fresh(client: Client) -> None:
    client.statuses.clear()
