# SPDX-License-Identifier: Apache-2.0
"""`robocal run`: a node's procedure from the command line."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from rclpy.client import Client
from rclpy.task import Future
from std_srvs.srv import Trigger
from support.fake_procedure import Running

from demo.tour import new_result
from robocal_ros.cli import node_client
from robocal_ros.cli.main import main
from robocal_ros.cli.node_client import NodeClient, RosSession
from robocal_ros.errors import ConfigurationError, RobocalError

DOMAIN = int(os.environ['ROS_DOMAIN_ID'])
NODE = ('--node', 'fake_procedure', '--timeout', '30')


@pytest.fixture
def fake() -> Iterator[Running]:
    running = Running(DOMAIN)
    yield running
    running.close()


def test_an_unconfigured_node_is_not_run_unless_asked(fake: Running, capsys) -> None:
    assert main(['run', 'payload', *NODE]) == 2
    told = capsys.readouterr().err
    assert "'/fake_procedure' is unconfigured, not active" in told
    assert '--configure' in told


def test_configured_with_parameters_it_runs(fake: Running, capsys) -> None:
    arguments = ['run', 'payload', *NODE, '--configure']
    assert main([*arguments, '-p', 'method:=two_plane']) == 0
    assert 'two_plane done.' in capsys.readouterr().out
    # It is active now; other parameters make it configure anew.
    assert main([*arguments, '-p', 'method:=static_poses']) == 0
    assert 'static_poses done.' in capsys.readouterr().out
    assert main(['run', 'payload', *NODE]) == 0


def test_traces_of_an_ended_server_do_not_hide_its_successor(
    fake: Running, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What rclpy says for as long as half of an ended server is in the graph.
    monkeypatch.setattr(Client, 'service_is_ready', lambda _: False)
    monkeypatch.setattr(node_client, '_DISCOVERY', 0.3)
    assert main(['run', 'payload', *NODE, '--configure']) == 0
    assert 'static_poses done.' in capsys.readouterr().out


def test_refusals_of_the_node(fake: Running, capsys) -> None:
    arguments = ['run', 'payload', *NODE, '--configure']
    assert main([*arguments, '-p', 'metod:=bad']) == 2
    assert "no parameter 'metod'; 'method' is the nearest name" in capsys.readouterr().err
    assert main([*arguments, '-p', 'method:=unknown']) == 2
    assert 'No such method.' in capsys.readouterr().err
    assert main([*arguments, '-p', 'method:=bad']) == 2
    told = capsys.readouterr().err
    assert 'refused to configure; it is unconfigured. Cannot configure: no such frame.' in told
    assert 'See its log' not in told


def test_integers_stand_for_numbers_with_a_point(fake: Running) -> None:
    assert main(['run', 'payload', *NODE, '--configure', '-p', 'known_mass:=2',
                 '-p', 'tool_box:=[0, 0.1, 1]']) == 0
    assert fake.node.get_parameter('known_mass').value == 2.0
    assert list(fake.node.get_parameter('tool_box').value) == [0.0, 0.1, 1.0]


def test_numbers_are_those_of_ros(fake: Running) -> None:
    """YAML 1.1 reads 5e-4 as a text."""
    assert main(['run', 'payload', *NODE, '--configure', '-p', 'known_mass:=5e-4']) == 0
    assert fake.node.get_parameter('known_mass').value == 5e-4


def test_a_running_procedure_is_not_ended_by_another_configuration(
    fake: Running, capsys
) -> None:
    assert main(['run', 'payload', *NODE, '--configure']) == 0
    fake.node._publish_status('moving', 30.0)
    capsys.readouterr()
    assert main(['run', 'payload', *NODE, '--configure', '-p', 'method:=two_plane']) == 2
    assert 'is under way (moving.)' in capsys.readouterr().err


def test_ctrl_c_cancels(fake: Running, capsys) -> None:
    said = fake.node._publish_status

    def interrupting(phase: str, progress: float) -> None:
        said(phase, progress)
        if progress == 30.0:
            os.kill(os.getpid(), signal.SIGINT)

    fake.node._publish_status = interrupting
    assert main(['run', 'payload', *NODE, '--configure']) == 130
    assert fake.node.cancelled
    assert 'Cancelled.' in capsys.readouterr().err


@pytest.mark.parametrize(('arguments', 'words'), [
    (['-p', 'method:=bad'], '--configure'),
    (['--configure', '-p', 'method:=[1'], 'expected a YAML value'),
    (['--timeout', '0.2', '--namespace', '/nowhere'], "'/nowhere/payload_identification'"),
])
def test_what_cannot_be_run(capsys, arguments: list[str], words: str) -> None:
    assert main(['run', 'payload', *arguments]) == 2
    assert words in capsys.readouterr().err


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
