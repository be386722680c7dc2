# SPDX-License-Identifier: Apache-2.0
"""Goals of other clients are known before a motion, also right after the controller was found."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from action_msgs.msg import GoalStatus, GoalStatusArray
from rclpy.callback_groups import ReentrantCallbackGroup
from support.ros_rig import Spinner, pair

from robocal_ros.arm.controller import ControllerGoals
from robocal_ros.arm.gate import Arm
from robocal_ros.arm.waiting import Waiter
from robocal_ros.errors import MotionError
from robocal_ros.messages import qos
from robocal_ros.parameters import ArmParameters

pytestmark = pytest.mark.usefixtures('ros')


class Rig:
    """The goals of a controller that another client uses, and an arm that goes by them."""

    def __init__(self) -> None:
        self.node, self.talker = pair()
        self.spinner = Spinner(self.node, self.talker)
        waiter = Waiter(self.node, ReentrantCallbackGroup())
        self.goals = ControllerGoals(waiter, 'controller/follow_joint_trajectory')
        self.goals.start()
        self.claims: list[str] = []
        self.arm: Any = SimpleNamespace(
            client=SimpleNamespace(goals=self.goals, connect=self._connect), _waiter=waiter,
            owner=SimpleNamespace(check=bool, claim=lambda: self.claims.append('claim')),
            _joints=SimpleNamespace(need_effort=False), keep_clear=self._keep_clear,
            _parameters=ArmParameters)

    async def _connect(self, timeout: float) -> None:
        """There are joint states, and services of the controller."""

    async def _keep_clear(self) -> None:
        """Nothing is near."""

    def status(self) -> Any:
        return self.talker.create_publisher(
            GoalStatusArray, 'controller/follow_joint_trajectory/_action/status',
            qos.ACTION_STATUS)

    def connect(self) -> Any:
        return self.spinner.begin(lambda: Arm.connect(self.arm))


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.spinner.__exit__(None, None, None)


def test_a_goal_whose_status_comes_later_is_not_preempted(rig: Rig) -> None:
    publisher = rig.status()
    rig.spinner.until(lambda: rig.node.count_publishers(rig.goals._topic))
    connecting = rig.connect()
    later = rig.goals._now() + 0.3
    rig.spinner.until(lambda: rig.goals._now() > later)
    assert not rig.goals.is_known()
    status = GoalStatus(status=GoalStatus.STATUS_EXECUTING)
    status.goal_info.goal_id.uuid = [7] * 16
    publisher.publish(GoalStatusArray(status_list=[status]))
    # The executor raises what the task does.
    with pytest.raises(MotionError, match='executes a goal of another client'):
        rig.spinner.wait(connecting)
    assert not rig.claims


def test_a_controller_without_goals_is_not_waited_for_longer(rig: Rig) -> None:
    assert rig.goals.is_known()
    rig.status()
    rig.spinner.until(lambda: not rig.goals.is_known())
    connecting = rig.connect()
    rig.spinner.until(connecting.done)
    assert rig.claims == ['claim']
    assert rig.goals.is_known()
