# SPDX-License-Identifier: Apache-2.0
"""`robocal apply --send`: a driver's service is called, its answer told, and what undoes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from geometry_msgs.msg import InertiaStamped
from rclpy.context import Context
from rclpy.node import Node
from std_srvs.srv import SetBool
from support.fake_procedure import Running

from robocal_ros.cli import driver_call
from robocal_ros.cli.driver_call import filled, send
from robocal_ros.cli.drivers import DRIVERS, payload_calls
from robocal_ros.errors import ConfigurationError, RobocalError
from robocal_ros.robot import RigidBodyInertia

TOOL = RigidBodyInertia(2.0, np.array([0.0, 0.0, 0.1]), 0.01 * np.eye(3))
DOMAIN = int(os.environ['ROS_DOMAIN_ID'])
# The type has the answer of the drivers of Universal Robots and Franka.
ON, OFF = (f'ros2 service call /driver/set std_srvs/srv/SetBool "{{data: {data}}}"'
           for data in ('true', 'false'))


class Driver(Node):
    """A driver in a namespace that takes true and false, once each."""

    def __init__(self, context: Context) -> None:
        super().__init__('driver', namespace='left', context=context, enable_rosout=False)
        self.taken: list[bool] = []
        self.create_service(SetBool, 'driver/set', self._set)

    def _set(self, request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
        response.success = request.data not in self.taken
        response.message = 'as told' if response.success else 'twice'
        self.taken.append(request.data)
        return response


@pytest.fixture
def driver() -> Iterator[Driver]:
    running = Running(DOMAIN, Driver)
    yield running.node
    running.close()


def test_the_answer_is_told_with_the_call_that_undoes_it(
    driver: Driver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = tmp_path / 'payload.sent'
    # Of several forms that one which the installed type has.
    other = ON.replace('data', 'payload')
    send([f'Values: {other}', other, ON], sent)
    told = capsys.readouterr().out
    assert "'/left/driver/set' has taken the payload: as told." in told
    assert 'What the driver had before is not known' in told
    send([OFF], sent)
    assert driver.taken == [True, False]
    assert f'To undo it, send the one of before:\n  {ON}' in capsys.readouterr().out
    assert sent.read_text(encoding='utf-8').splitlines() == [ON, OFF]
    with pytest.raises(RobocalError, match='has refused the payload: twice'):
        send([OFF], sent)
    assert sent.read_text(encoding='utf-8').splitlines() == [ON, OFF]


def test_what_was_not_answered_is_not_undone_as_if_it_had_not_been_sent(
    driver: Driver, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = tmp_path / 'payload.sent'
    send([ON], sent)
    monkeypatch.setattr(driver_call, '_ANSWERED', 0.0)
    with pytest.raises(RobocalError, match='whether it has taken the payload is not known'):
        send([ON], sent)
    monkeypatch.undo()
    capsys.readouterr()
    send([OFF], sent)
    told = capsys.readouterr().out
    assert 'which one is not known' in told
    assert f':\n  {ON}\n  {ON}  # not answered\n' in told
    driver.taken.clear()
    send([ON], sent)
    assert f'To undo it, send the one of before:\n  {OFF}\n' in capsys.readouterr().out


def test_the_driver_of_another_arm_that_is_discovered_later_counts(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = ('/left/driver/set', []), ('/right/driver/set', [])
    found = [[left], [left], [left], [left, right]]
    monkeypatch.setattr(Node, 'get_service_names_and_types',
                        lambda _: found.pop(0) if len(found) > 1 else found[0])
    with pytest.raises(ConfigurationError, match='got 2: /left/driver/set, /right/driver/set'):
        send([ON], tmp_path / 'payload.sent')
    assert not driver.taken


@pytest.mark.parametrize(('call', 'words'), [
    (ON.replace('/driver/set', '/none'), "one service '/none' in this ROS domain, got 0"),
    (ON.replace('std_srvs', 'robot_msgs'), 'robot_msgs is not installed here'),
    (ON.replace('data', 'payload'), 'std_srvs/srv/SetBool has other fields'),
    ('tool_mass: 2.0', 'Enter the values above by hand'),
])
@pytest.mark.usefixtures('driver')
def test_a_call_that_cannot_be_sent(tmp_path: Path, call: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        send([call], tmp_path / 'payload.sent')
    assert not (tmp_path / 'payload.sent').exists()


def test_fields_within_fields_are_filled() -> None:
    message = InertiaStamped()
    values = {'header': {'frame_id': 'tool0'}, 'inertia': {'m': 2, 'com': {'z': 0.1}, 'ixx': 0.5}}
    assert filled(message, values)
    assert (message.header.frame_id, message.inertia.m, message.inertia.com.z,
            message.inertia.ixx) == ('tool0', 2.0, 0.1, 0.5)
    assert not filled(message, {'inertia': {'mass': 2.0}})
    assert np.isclose(message.inertia.m, 2.0)


@pytest.mark.parametrize(('name', 'service'), [
    ('Universal Robots', '/io_and_status_controller/set_payload'),
    ('Franka', '/service_server/set_load'), ('UFACTORY', '/xarm/set_tcp_load')])
def test_known_drivers_have_one_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, service: str
) -> None:
    monkeypatch.setattr(driver_call, '_FOUND', 0.2)
    known = next(item for item in DRIVERS if item.name.startswith(name))
    calls = [call for _, call in payload_calls(TOOL, known)]
    with pytest.raises(ConfigurationError, match=f"one service '{service}'"):
        send(calls, tmp_path / 'payload.sent')
