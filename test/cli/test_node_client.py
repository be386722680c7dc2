# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from rclpy.task import Future
from std_srvs.srv import Trigger
from support.fake_procedure import Running

from demo.tour import new_result
from robocal_ros.cli import node_client
from robocal_ros.cli.node_client import NodeClient, RosSession
from robocal_ros.errors import ConfigurationError, RobocalError

DOMAIN = int(os.environ['ROS_DOMAIN_ID'])


@pytest.fixture(scope='module')
def fake() -> Iterator[Running]:
    running = Running(DOMAIN)
    yield running
    running.close()


@pytest.fixture(scope='module')
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
