# SPDX-License-Identifier: Apache-2.0
"""Rules that trigger leveling: after a motion into a region, or during a task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np
import pinocchio as pin
from std_msgs.msg import String

from robocal_ros.arrays import Array, frozen
from robocal_ros.leveling.model import fixed_placement
from robocal_ros.messages import qos
from robocal_ros.node import ArmNode
from robocal_ros.parameters import named

# Longest wait for the arm to rest after a motion [s].
_REST = 10.0
_FRAME, _TASK = 'frame:', 'task:'


class AutoLeveling:
    """Triggers leveling after motions of the controller and on tasks.

    Only a successful motion triggers it: after one that was cancelled or aborted, and after
    motions by hand, a person may be next to the arm.
    """

    def __init__(
        self, node: ArmNode, tool_point: Callable[[], Array],
        level: Callable[[str], Awaitable[None]],
    ) -> None:
        """Subscribe to the topics that the rules need.

        Args:
            node: The node.
            tool_point: Returns the position of the tool point, shape (3,) [m].
            level: Levels the tool; its argument is the reason.

        Raises:
            ConfigurationError: If a frame does not exist or moves.

        """
        names, robot = named(node.values.auto_level_after), node.robot
        self._node = node
        self._tool_point = tool_point
        self._level = level
        self._tasks: set[str] = set()
        self._regions: dict[str, pin.SE3] = {}
        self._half = 0.5 * frozen(node.values.auto_level_box)
        for name in names:
            is_frame = name.startswith(_FRAME) or (
                not name.startswith(_TASK) and robot.model.existFrame(name))
            bare = name.removeprefix(_FRAME).removeprefix(_TASK)
            if is_frame:
                self._regions[bare] = fixed_placement(robot, bare, 'auto_level_after')
            else:
                self._tasks.add(bare)
            node.get_logger().info(
                f"auto_level_after: '{bare}' is a {'frame' if is_frame else 'task'}.")
        self._task = ''
        self._pending = False
        if self._tasks:
            node.subscription(String, '~/task', self._on_task, qos.RELIABLE)
        if names:
            node.arm.client.goals.on_success = self._on_success

    def _on_task(self, message: String) -> None:
        self._task = message.data
        if self._task in self._tasks:
            self._expect()

    def _on_success(self) -> None:
        if not self._node.busy:
            self._expect()

    def _expect(self) -> None:
        """Level as soon as the arm rests, if a rule still applies then."""
        node = self._node
        if self._pending or not node.is_active:
            return
        if node.arm.client.goals.foreign:
            node.get_logger().info('Leveling by rule waits until the goal that another client has '
                                   'sent the controller has succeeded.')
            return
        self._pending = True
        node.begin('motion that may trigger leveling', self._when_resting())

    async def _when_resting(self) -> None:
        node = self._node
        try:
            rests = await node.waiter.until(
                lambda: node.arm.resting or not node.is_active, _REST)
        finally:
            self._pending = False
        reason = self.reason() if rests and node.is_active and not node.busy else ''
        if reason:
            await self._level(reason)

    def reason(self) -> str:
        """Return the rule that applies, or an empty string; none while others move the arm."""
        arm = self._node.arm
        if arm.owner.other or arm.client.goals.foreign:
            return ''
        if self._task in self._tasks:
            return f"task '{self._task}'"
        point = self._tool_point()
        for frame, placement in self._regions.items():
            if (np.abs(placement.actInv(point)) <= self._half).all():
                return f"the tool is in the region about '{frame}'"
        return ''
