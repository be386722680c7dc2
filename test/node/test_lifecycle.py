# SPDX-License-Identifier: Apache-2.0
"""Transitions of a real node: nothing leaks, refusals are sentences, defects are not swallowed."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rclpy
from rcl_interfaces.msg import Parameter as ParameterMessage, ParameterValue
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from rosgraph_msgs.msg import Clock
from std_srvs.srv import Trigger
from support.ros_rig import Log, Spinner, arm_urdf, await_service, overrides

from robocal_ros.errors import DataError
from robocal_ros.estimators import Estimator
from robocal_ros.node.calibration_node import ERROR, FAILURE, SUCCESS
from robocal_ros.payload.node import PayloadIdentification

pytestmark = pytest.mark.usefixtures('ros')

NAME = 'payload_identification'
Make = Callable[..., PayloadIdentification]


@pytest.fixture(scope='module')
def urdf() -> str:
    return arm_urdf()


@pytest.fixture
def make(urdf: str, tmp_path: Path) -> Iterator[Make]:
    """Make nodes that are destroyed at the end."""
    made: list[PayloadIdentification] = []

    def build(**values: Any) -> PayloadIdentification:
        defaults = {'robot_description': urdf, 'results_dir': str(tmp_path), 'known_mass': 2.0,
                    'connect_timeout': 0.2, 'description_timeout': 0.2}
        made.append(PayloadIdentification(
            NAME, parameter_overrides=overrides(**{**defaults, **values})))
        return made[-1]

    yield build
    for node in made:
        node.release()
        node.destroy_node()


def entities(node: PayloadIdentification) -> dict[str, int]:
    counts = {kind: len(list(getattr(node, kind))) for kind in (
        'publishers', 'subscriptions', 'services', 'clients', 'timers', 'waitables', 'guards')}
    return {**counts, 'log handlers': len(logging.getLogger('robocal_ros').handlers)}


def state(node: PayloadIdentification) -> str:
    return str(node._state_machine.current_state[1])


def set_values(node: PayloadIdentification, **values: Any) -> None:
    for result in node.set_parameters([Parameter(n, value=v) for n, v in values.items()]):
        assert result.successful


@pytest.mark.parametrize('method', ['two_plane', 'static_poses'])
def test_ten_rounds_leave_nothing_behind(make: Make, method: str) -> None:
    node = make(method=method)
    before = entities(node)
    for _ in range(10):
        assert node.trigger_configure() == SUCCESS
        assert entities(node) != before
        assert node.trigger_activate() == SUCCESS
        assert node.is_active
        assert node.trigger_deactivate() == SUCCESS
        assert node.trigger_cleanup() == SUCCESS
        assert entities(node) == before


def test_shutdown_leaves_nothing_behind(make: Make) -> None:
    node = make()
    before = entities(node)
    assert node.trigger_configure() == SUCCESS
    assert node.trigger_activate() == SUCCESS
    assert node.trigger_shutdown() == SUCCESS
    assert state(node) == 'finalized'
    assert entities(node) == before


def test_release_twice_is_harmless(make: Make) -> None:
    node = make()
    assert node.trigger_configure() == SUCCESS
    node.release()
    node.release()


@pytest.mark.parametrize(('values', 'words'), [
    ({'robot_description': ''}, "no message arrived on topic '/robot_description' within 0.2 s"),
    ({'robot_description': '<robot'}, 'not well-formed XML.*xacro'),
    ({'robot_description': '<sdf/>'}, "starts with <sdf>; expected a URDF's <robot>"),
    ({'tool_frame': 'tool9'}, "Frame 'tool9' is not in .*tool0"),
    ({'joints': ['joint_1', 'joint_9']}, "Joint 'joint_9' .*joint_6"),
    ({'second_joint': 'joint_9'}, "Joint 'joint_9' .*joint_5"),
    ({'known_mass': 0.0, 'second_joint': 'joint_9'}, "Joint 'joint_9' .*joint_5"),
    ({'method': 'static_poses', 'sensor_frame': 'wirst'}, "Frame 'wirst' .*ft_wrist"),
    ({'method': 'static_poses', 'sensor_sign': 0.5}, 'sensor_sign must be 1.0 or -1.0, got 0.5'),
    ({'effort_source': 'current', 'torque_constants': [1.0, 2.0]},
     "'torque_constants' has 2 values; expected 1 or 6"),
    ({'max_payload': 1.0}, r'2 kg.*1 kg|max_payload'),
    ({'gravity': [0.0, -9.81]}, 'gravity must be three'),
])
def test_refused_configure_says_why_and_releases_all(
    make: Make, urdf: str, values: dict[str, Any], words: str
) -> None:
    good = {'robot_description': urdf, 'tool_frame': 'tool0', 'joints': [''], 'second_joint': '',
            'known_mass': 2.0, 'method': 'two_plane', 'sensor_frame': 'ft_wrist',
            'sensor_sign': 1.0, 'effort_source': 'torque', 'torque_constants': [1.0],
            'max_payload': 0.0, 'gravity': [0.0, 0.0, -9.81]}
    node = make()
    before = entities(node)
    set_values(node, **values)
    log = Log(node)
    assert node.trigger_configure() == FAILURE
    assert state(node) == 'unconfigured'
    assert len(log['error']) == 1
    assert log['error'][0].startswith('Cannot configure: ')
    assert re.search(words, log['error'][0]), log['error'][0]
    assert log['fatal'] == []
    assert entities(node) == before
    set_values(node, **{name: good[name] for name in values})
    assert node.trigger_configure() == SUCCESS


def test_defect_in_configure_is_logged_with_its_traceback(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make()
    before = entities(node)
    log = Log(node)

    def broken() -> None:
        raise ZeroDivisionError('a defect')

    with monkeypatch.context() as patch:
        patch.setattr(node, 'build', broken)
        assert node.trigger_configure() == ERROR
    assert 'Traceback' in log['fatal'][0]
    assert 'ZeroDivisionError: a defect' in log['fatal'][0]
    assert state(node) == 'unconfigured'
    assert entities(node) == before
    assert node.trigger_configure() == SUCCESS


def test_defect_in_activate_releases_all(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    node = make()
    before = entities(node)
    log = Log(node)
    assert node.trigger_configure() == SUCCESS

    def broken() -> None:
        raise ZeroDivisionError('a defect')

    with monkeypatch.context() as patch:
        patch.setattr(node.recorder, 'start', broken)
        assert node.trigger_activate() == ERROR
    assert 'ZeroDivisionError' in log['fatal'][0]
    assert state(node) == 'unconfigured'
    assert entities(node) == before
    assert node.trigger_configure() == SUCCESS


class Caller:
    """Calls the services of a node in the same process."""

    def __init__(self, node: PayloadIdentification, spinner: Spinner, caller: Any) -> None:
        self._spinner, self._caller = spinner, caller
        self._clients = {verb: caller.create_client(Trigger, f'/{NAME}/{verb}')
                         for verb in ('run', 'estimate', 'clear', 'cancel')}

    def begin(self, verb: str) -> Any:
        client = self._clients[verb]
        await_service(self._spinner.until, self._caller, client)
        return client.call_async(Trigger.Request())

    def call(self, verb: str) -> Trigger.Response:
        return self._spinner.wait(self.begin(verb))


@pytest.fixture
def served(make: Make) -> Iterator[tuple[PayloadIdentification, Caller, Spinner]]:
    node, client = make(), rclpy.create_node('caller')
    assert node.trigger_configure() == SUCCESS
    spinner = Spinner(node, client)
    yield node, Caller(node, spinner, client), spinner
    spinner.executor.shutdown()
    client.destroy_node()


@pytest.mark.parametrize('verb', ['run', 'estimate', 'clear'])
def test_services_refuse_while_inactive(
    served: tuple[PayloadIdentification, Caller, Spinner], verb: str
) -> None:
    _, caller, _ = served
    answer = caller.call(verb)
    assert not answer.success
    assert answer.message == f'The node is not active; activate it before calling {verb}.'


def test_cancel_with_nothing_to_cancel(
    served: tuple[PayloadIdentification, Caller, Spinner]
) -> None:
    _, caller, _ = served
    answer = caller.call('cancel')
    assert answer.success
    assert 'Nothing is running' in answer.message


@pytest.mark.parametrize(('verb', 'message'), [
    ('run', 'No joint states received; expected sensor_msgs/JointState'),
    ('estimate', 'No joint states are recorded'),
])
def test_without_joint_states_the_answer_names_them(
    served: tuple[PayloadIdentification, Caller, Spinner], verb: str, message: str
) -> None:
    node, caller, _ = served
    assert node.trigger_activate() == SUCCESS
    answer = caller.call(verb)
    assert not answer.success
    assert 'Defect' not in answer.message
    assert message in answer.message


def test_second_run_is_refused_and_cancel_ends_the_first_while_it_waits(
    served: tuple[PayloadIdentification, Caller, Spinner]
) -> None:
    node, caller, spinner = served
    set_values(node, connect_timeout=30.0)
    assert node.trigger_cleanup() == SUCCESS
    assert node.trigger_configure() == SUCCESS
    assert node.trigger_activate() == SUCCESS
    run = caller.begin('run')
    spinner.until(lambda: node.busy)
    answer = caller.call('run')
    assert not answer.success
    assert answer.message == 'run is under way; call cancel first, or wait.'
    assert caller.call('cancel').success
    assert spinner.wait(run).message == 'Cancelled on request.'


def test_cleanup_and_configure_wait_for_a_run_that_ends(
    served: tuple[PayloadIdentification, Caller, Spinner]
) -> None:
    node, caller, spinner = served
    set_values(node, connect_timeout=30.0)
    assert node.trigger_cleanup() == SUCCESS
    assert node.trigger_configure() == SUCCESS
    assert node.trigger_activate() == SUCCESS
    run = caller.begin('run')
    spinner.until(lambda: node.busy)
    assert node.trigger_deactivate() == SUCCESS
    log = Log(node)
    assert node.trigger_cleanup() == FAILURE
    assert 'still ending' in log['error'][0]
    assert 'deactivated' in spinner.wait(run).message
    assert node.trigger_cleanup() == SUCCESS
    assert node.trigger_configure() == SUCCESS


def test_shutdown_lets_a_run_end_first(
    served: tuple[PayloadIdentification, Caller, Spinner]
) -> None:
    node, caller, spinner = served
    set_values(node, connect_timeout=30.0)
    assert node.trigger_cleanup() == SUCCESS
    before = entities(node)
    assert node.trigger_configure() == SUCCESS
    assert node.trigger_activate() == SUCCESS
    run = caller.begin('run')
    spinner.until(lambda: node.busy)
    assert node.trigger_shutdown() == SUCCESS
    assert not spinner.wait(run).success
    spinner.until(lambda: entities(node) == before)
    assert state(node) == 'finalized'


@pytest.mark.parametrize('kind', [11, 255])
def test_a_malformed_parameter_request_does_not_end_the_node(
    served: tuple[PayloadIdentification, Caller, Spinner], kind: int
) -> None:
    node, caller, spinner = served
    log = Log(node)
    asking = spinner.executor.get_nodes()[1]
    client = asking.create_client(SetParameters, f'/{NAME}/set_parameters')
    await_service(spinner.until, asking, client)
    answer = spinner.wait(client.call_async(SetParameters.Request(
        parameters=[ParameterMessage(name='known_mass', value=ParameterValue(type=kind))])))
    assert not answer.results
    assert re.search(r'Left out a request to .*/set_parameters: ', log['error'][0])
    assert caller.call('cancel').success


def test_defect_in_a_service_is_answered_and_the_node_stays_usable(
    served: tuple[PayloadIdentification, Caller, Spinner], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, caller, _ = served
    assert node.trigger_activate() == SUCCESS
    log = Log(node)

    def broken(*_: object) -> None:
        raise ZeroDivisionError('a defect')

    with monkeypatch.context() as patch:
        patch.setattr(node.recorder, 'recording', broken)
        answer = caller.call('estimate')
    assert not answer.success
    assert answer.message == 'Defect in estimate (ZeroDivisionError: a defect); see the log.'
    assert 'Traceback' in log['fatal'][0]
    assert caller.call('clear').success


def test_refusal_in_the_worker_thread_reaches_the_answer(
    served: tuple[PayloadIdentification, Caller, Spinner], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, caller, _ = served
    assert node.trigger_activate() == SUCCESS

    def refused(*_: object) -> None:
        raise DataError('Too few samples.')

    monkeypatch.setattr(Estimator, 'result', refused)
    answer = caller.call('estimate')
    assert not answer.success
    assert answer.message == 'Too few samples.'


def test_core_log_records_of_both_severities_reach_the_nodes_log(make: Make) -> None:
    """One place in the code forwards both; rclpy allows a place but one severity."""
    node = make()
    assert node.trigger_configure() == SUCCESS
    core = logging.getLogger('robocal_ros.estimation')
    core.info('all is well')
    core.warning('beware')
    core.info('all is well again')


def test_ticks_of_the_simulated_clock_wake_a_busy_node_only(make: Make) -> None:
    node, talker = make(use_sim_time=True), rclpy.create_node('talker')
    clock = talker.create_publisher(Clock, '/clock', 10)
    with Spinner(talker) as spinner:
        spinner.executor.add_node(node)
        spinner.until(clock.get_subscription_count)

        def seen(ticks: int) -> int:
            """Return how many times the node's clock advances during some ticks of 10 ms."""
            times = set()
            for _ in range(ticks):
                tick.clock.nanosec += 1
                clock.publish(tick)
                end = time.monotonic() + 0.01
                while time.monotonic() < end:
                    spinner.executor.spin_once(timeout_sec=0.001)
                times.add(node.get_clock().now().nanoseconds)
            return len(times) - 1

        tick = Clock()
        tick.clock.sec = 5
        began = time.monotonic()
        assert 1 <= seen(100) <= 2 + (time.monotonic() - began) / 0.2
        node.procedures.running = 'run'
        assert seen(100) > 50
        assert node.get_clock().now().nanoseconds > 5_000_000_150
        node.procedures.running = ''
