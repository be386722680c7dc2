# SPDX-License-Identifier: Apache-2.0
"""One node of a namespace moves the arm at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import rclpy
from rclpy.callback_groups import ReentrantCallbackGroup
from support.ros_rig import Spinner

from robocal_ros.arm.owner import ArmOwner
from robocal_ros.arm.waiting import Waiter
from robocal_ros.errors import MotionError

pytestmark = pytest.mark.usefixtures('ros')


class Mover:
    """A node that claims the arm."""

    def __init__(self, name: str, namespace: str = '/cell') -> None:
        self.node = rclpy.create_node(name, namespace=namespace)
        self.waiter = Waiter(self.node, ReentrantCallbackGroup())
        self.owner = ArmOwner(self.waiter)

    def destroy(self) -> None:
        self.owner.destroy()
        self.waiter.destroy()


class Pair:
    def __init__(self) -> None:
        self.first, self.second = Mover('friction'), Mover('payload')
        self.elsewhere = Mover('payload', '/other_cell')
        self.spinner = Spinner(self.first.node, self.second.node, self.elsewhere.node)
        self.spinner.until(lambda: all(
            mover.owner._publisher.get_subscription_count() > 1
            for mover in (self.first, self.second)))


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    with made.spinner:
        yield made
        for mover in (made.first, made.second, made.elsewhere):
            mover.destroy()


def test_another_node_is_refused_until_the_owner_has_ended(pair: Pair) -> None:
    first, second = pair.first.owner, pair.second.owner
    first.claim()
    pair.spinner.until(lambda: bool(second.other))
    with pytest.raises(MotionError, match='Node /cell/friction moves the arm; nothing was sent'):
        second.claim()
    assert first.other == ''
    # The owner goes on, and so does the arm of another namespace.
    first.check()
    pair.elsewhere.owner.claim()
    pair.first.waiter.end()
    pair.spinner.until(lambda: not second.other)
    second.claim()
    pair.spinner.until(lambda: first.other == '/cell/payload')


def test_of_two_claims_at_once_one_holds(pair: Pair) -> None:
    first, second = pair.first.owner, pair.second.owner
    first.claim()
    second.claim()
    pair.spinner.until(lambda: bool(first.other and second.other))
    first.check()
    with pytest.raises(MotionError):
        second.check()


def test_a_node_that_is_gone_owns_nothing(pair: Pair) -> None:
    pair.first.owner.claim()
    pair.spinner.until(lambda: pair.second.owner.other == '/cell/friction')
    # As if it were killed: no release is sent.
    pair.first.owner._own = False
    pair.spinner.executor.remove_node(pair.first.node)
    pair.first.node.destroy_node()
    pair.spinner.until(lambda: not pair.second.owner.other, 30.0)
    pair.second.owner.claim()
