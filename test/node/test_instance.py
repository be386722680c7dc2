# SPDX-License-Identifier: Apache-2.0
"""One node of a name is active at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import rclpy
from rclpy.callback_groups import ReentrantCallbackGroup
from std_msgs.msg import String
from support.parameter_files import node_classes
from support.ros_rig import NodeRig, Spinner

from robocal_ros.arm import Waiter
from robocal_ros.errors import ConfigurationError
from robocal_ros.messages import qos
from robocal_ros.node import instance
from robocal_ros.node.calibration_node import SUCCESS
from robocal_ros.node.instance import ActiveInstance

pytestmark = pytest.mark.usefixtures('ros')


class Twin:
    def __init__(self) -> None:
        self.node = rclpy.create_node('twin', enable_rosout=False)
        self.gave_way: list[str] = []
        self.yields = False
        self.instance = ActiveInstance(
            Waiter(self.node, ReentrantCallbackGroup()), self.gave_way.append, self._note)

    def _note(self, other: bool) -> None:
        self.yields = other


class Twins:
    def __init__(self) -> None:
        self.first, self.second = Twin(), Twin()
        self.spinner = Spinner(self.first.node, self.second.node)
        self.spinner.until(
            lambda: self.first.instance._publisher.get_subscription_count() == 2
            and self.second.instance._publisher.get_subscription_count() == 2)


@pytest.fixture
def twins() -> Iterator[Twins]:
    made = Twins()
    with made.spinner:
        yield made
        made.first.instance.destroy()
        made.second.instance.destroy()


def test_the_second_is_refused_until_the_first_is_inactive(twins: Twins) -> None:
    first, second = twins.first.instance, twins.second.instance
    first.start()
    twins.spinner.until(lambda: second._other)
    with pytest.raises(ConfigurationError, match=r"'/twin' is active. End one .*__node:=…"):
        second.start()
    first.stop()
    twins.spinner.until(lambda: not second._other)
    second.start()
    assert not twins.first.gave_way + twins.second.gave_way
    twins.spinner.until(lambda: twins.first.yields)
    assert not twins.second.yields


def test_of_two_that_activate_at_once_the_later_one_gives_way(twins: Twins) -> None:
    twins.first.instance.start()
    twins.second.instance.start()
    twins.spinner.until(lambda: twins.second.gave_way)
    assert "Another node named '/twin'" in twins.second.gave_way[0]
    twins.second.instance.stop()
    twins.spinner.until(lambda: not twins.first.instance._other)
    assert not twins.first.gave_way


def test_a_node_that_is_silent_blocks_none(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, '_SILENCE', 0.3)
    first, second = twins.first.instance, twins.second.instance
    first.start()
    twins.spinner.until(lambda: twins.second.yields)
    # As if it were killed: nothing is released.
    first._timer.cancel()
    with pytest.raises(ConfigurationError):
        second.start()
    twins.spinner.until(lambda: not twins.second.yields)
    second.start()


def test_a_node_answers_nothing_while_another_of_its_name_is_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = NodeRig(node_classes()['leveling'], tmp_path, name='twin')
    twin = Twin()
    rig.spinner.executor.add_node(twin.node)

    def offered() -> bool:
        return any(service.service_name == '/twin/run' for service in rig.node.services)

    assert rig.configure() == SUCCESS
    # An answer that is still to be given is given first.
    monkeypatch.setattr(rig.node, 'running', 'estimate')
    twin.instance.start()
    rig.spinner.until(lambda: any(part._other for part in rig.node._streams
                                  if isinstance(part, ActiveInstance)))
    assert offered()
    monkeypatch.setattr(rig.node, 'running', '')
    rig.spinner.until(lambda: not offered())
    twin.instance.stop()
    rig.spinner.until(offered)
    assert rig.node.trigger_cleanup() == SUCCESS
    assert not offered()
    twin.instance.destroy()
    twin.node.destroy_node()
    rig.end()


def test_a_bag_of_an_earlier_start_and_garbage_change_nothing(twins: Twins) -> None:
    """Only a node of the same name counts."""
    name = twins.second.node.get_fully_qualified_name()
    alone = rclpy.create_node('alone', enable_rosout=False)
    gave_way: list[str] = []
    claimed = ActiveInstance(
        Waiter(alone, ReentrantCallbackGroup()), gave_way.append, lambda other: None)
    twins.spinner.executor.add_node(alone)
    player = twins.first.node.create_publisher(String, '/alone/active', qos.LATCHED)
    twins.spinner.until(player.get_subscription_count)
    claimed.start()
    for text in (f'{1:020d} {"0" * 32}', '0 x', '', 'x' * 10_000, name):
        player.publish(String(data=text))
        end = time.monotonic() + 0.2
        twins.spinner.until(lambda end=end: time.monotonic() > end)
    assert not gave_way
    claimed.stop()
    claimed.start()
    claimed.destroy()
    alone.destroy_node()
