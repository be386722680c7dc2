# SPDX-License-Identifier: Apache-2.0
"""`robocal run`: a node's procedure from the command line."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from lifecycle_msgs.srv import ChangeState
from rclpy.client import Client
from rclpy.task import Future
from std_srvs.srv import Trigger
from support.fake_procedure import Running
from support.fixtures import Call

from demo.tour import new_result
from robocal_ros.cli import node_client
from robocal_ros.cli.node_client import NodeClient, RosSession
from robocal_ros.errors import ConfigurationError, RobocalError

DOMAIN = int(os.environ['ROS_DOMAIN_ID'])
RUN = ('run', 'payload', '--node', 'fake_procedure', '--timeout', '30')


@pytest.fixture
def fake() -> Iterator[Running]:
    running = Running(DOMAIN)
    yield running
    running.close()


def test_an_unconfigured_node_is_not_run_unless_asked(fake: Running, call: Call) -> None:
    told = call(*RUN, code=2)
    assert "'/fake_procedure' is unconfigured, not active" in told
    assert '--configure' in told


def test_configured_with_parameters_it_runs(fake: Running, call: Call) -> None:
    # Once it is active, other parameters make it configure anew.
    for method in ('two_plane', 'static_poses'):
        told = call(*RUN, '--configure', '-p', f'method:={method}')
        assert f'{method} done.' in told
    call(*RUN)


def test_traces_of_an_ended_server_do_not_hide_its_successor(
    fake: Running, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What rclpy says for as long as half of an ended server is in the graph.
    monkeypatch.setattr(Client, 'service_is_ready', lambda _: False)
    monkeypatch.setattr(node_client, '_DISCOVERY', 0.3)
    assert 'static_poses done.' in call(*RUN, '--configure')


def test_refusals_of_the_node(fake: Running, call: Call) -> None:
    for assignment, words in (
            ('metod:=bad', "no parameter 'metod'; 'method' is the nearest name"),
            ('method:=unknown', 'No such method.'),
            ('known_mass:=heavy', "'heavy' for parameter 'known_mass': expected a value such as "),
            ('method:=bad', 'refused to configure; it is unconfigured. Cannot configure: no such '
             'frame.')):
        told = call(*RUN, '--configure', '-p', assignment, code=2)
        assert words in told
        assert 'See its log' not in told


@pytest.mark.parametrize(('mass', 'value'), [
    # An integer stands for a number with a point; YAML 1.1 reads 5e-4 as a text.
    ('2', 2.0), ('5e-4', 5e-4)])
def test_numbers_are_those_of_ros(fake: Running, call: Call, mass: str, value: float) -> None:
    call(*RUN, '--configure', '-p', f'known_mass:={mass}', '-p', 'tool_box:=[0, 0.1, 1]')
    assert fake.node.get_parameter('known_mass').value == value
    assert list(fake.node.get_parameter('tool_box').value) == [0.0, 0.1, 1.0]


def test_a_running_procedure_is_not_ended_by_another_configuration(
    fake: Running, call: Call
) -> None:
    call(*RUN, '--configure')
    fake.node._publish_status('moving', 30.0)
    told = call(*RUN, '--configure', '-p', 'method:=two_plane', code=2)
    assert 'is under way (moving.)' in told


def test_ctrl_c_cancels(fake: Running, call: Call) -> None:
    said = fake.node._publish_status

    def interrupting(phase: str, progress: float) -> None:
        said(phase, progress)
        if progress == 30.0:
            os.kill(os.getpid(), signal.SIGINT)

    fake.node._publish_status = interrupting
    assert 'Cancelled.' in call(*RUN, '--configure', code=130)
    assert fake.node.cancelled


@pytest.mark.parametrize(('arguments', 'words'), [
    (['-p', 'method:=bad'], '--configure'),
    (['--configure', '-p', 'method:=[1'], 'expected a YAML value'),
    (['--timeout', '0.2', '--namespace', '/nowhere'], "'/nowhere/payload_identification'"),
])
def test_what_cannot_be_run(call: Call, arguments: list[str], words: str) -> None:
    assert words in call('run', 'payload', *arguments, code=2)


@pytest.fixture
def session(fake: Running) -> Iterator[RosSession]:
    with RosSession('robocal_test', DOMAIN) as opened:
        yield opened


@pytest.fixture
def client(session: RosSession) -> Iterator[NodeClient]:
    made = NodeClient(session, 'fake_procedure')
    made.wait_until_there(20.0)
    made.set_parameters({'method': 'static_poses'})
    yield made
    for transition in ('deactivate', 'cleanup'):
        if made.state() == {'deactivate': 'active', 'cleanup': 'inactive'}[transition]:
            made.change_state(transition)


def test_result_of_another_method_is_not_taken(client: NodeClient) -> None:
    client.change_state('configure')
    client.change_state('activate')
    client.call('run')
    with pytest.raises(RobocalError, match="no result of method 'two_plane'"):
        new_result(client._session, client, 'two_plane', 0.3)


def test_a_signal_to_end_cancels_the_procedure_first(fake: Running, client: NodeClient) -> None:
    client.change_state('configure')

    def stop_at_half(progress: float, message: str) -> None:
        if progress >= 50.0:
            raise SystemExit

    with pytest.raises(SystemExit):
        client.call('run', stop_at_half)
    assert fake.node.cancelled


def test_a_node_that_ends_in_mid_run_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_client, '_ENDED', 0.3)
    running = Running(DOMAIN)
    with RosSession('robocal_test', DOMAIN) as session:
        client = NodeClient(session, 'fake_procedure', 'run')
        client.wait_until_there(20.0)

        def end_at_half(progress: float, message: str) -> None:
            if progress >= 50.0 and not client.ended and running._open:
                running.close()

        with pytest.raises(RobocalError, match='has ended before it answered.*stop it by other'):
            client.call('run', end_at_half)


def test_a_cancel_without_answer_is_repeated_and_told(
    client: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.change_state('configure')
    cancel = client.service(Trigger, 'cancel')
    sent: list[Future] = []
    monkeypatch.setattr(cancel, 'call_async', lambda _: sent.append(Future()) or sent[-1])
    monkeypatch.setattr(node_client, '_CANCEL_PERIOD', 0.1)
    monkeypatch.setattr(node_client, '_CANCEL_TIMEOUT', 0.3)

    def stop(progress: float, message: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(RobocalError, match='the arm may move on. Stop it by other means'):
        client.call('run', stop)
    assert len(sent) == 3


def test_a_transition_whose_answer_is_lost_counts_once_the_node_is_there(
    client: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is not repeated, since it could be carried out twice."""
    service, sent = client.service(ChangeState, 'change_state'), []

    def unheard(request: ChangeState.Request) -> Future:
        sent.append(ask(request))
        return Future()

    ask = service.call_async
    monkeypatch.setattr(service, 'call_async', unheard)
    monkeypatch.setattr(node_client, '_RETRY_PERIOD', 0.3)
    client.change_state('configure')
    assert client.state() == 'inactive'
    client.change_state('activate')
    assert client.state() == 'active'
    assert len(sent) == 2


def test_a_missing_node_is_reported_with_the_existing_ones(
    session: RosSession, client: NodeClient
) -> None:
    with pytest.raises(ConfigurationError, match=r"'/nobody' was not found.*/fake_procedure"):
        NodeClient(session, 'nobody').wait_until_there(0.2)


def test_what_watches_ends_a_wait(fake: Running) -> None:
    def dead() -> None:
        raise RobocalError('A process ended.')

    with (
        RosSession('robocal_watching', DOMAIN, watch=dead) as session,
        pytest.raises(RobocalError, match='A process ended'),
    ):
        NodeClient(session, 'nobody').wait_until_there(5.0)
