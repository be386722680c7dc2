# SPDX-License-Identifier: Apache-2.0
"""When to level without being called: after a motion into a region, or during a task.

The IMU on the tool as leveling uses it: the mean of its accelerometer at rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import numpy as np
from action_msgs.msg import GoalStatus, GoalStatusArray
from rclpy.qos import (
    QoSDurabilityPolicy,
    QoSHistoryPolicy,
    QoSProfile,
    QoSReliabilityPolicy,
)
from sensor_msgs.msg import Imu
from std_msgs.msg import String

from robocal_ros.arrays import Array, frozen
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.leveling.model import Tool
from robocal_ros.messages import qos
from robocal_ros.node.arm_node import ArmNode

# An action's status is latched; a few deep, so that a short motion is seen too.
_STATUS = QoSProfile(
    history=QoSHistoryPolicy.KEEP_LAST, depth=10,
    reliability=QoSReliabilityPolicy.RELIABLE, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
# Longest wait for the arm to rest after its controller has ended a motion [s].
_REST = 10.0
_FRAME, _TASK = 'frame:', 'task:'


class _Region:
    """A box about a frame that stands still."""

    def __init__(self, node: ArmNode, frame: str, size: Sequence[float]) -> None:
        robot = node.robot
        if robot.model.frames[robot.frame_id(frame)].parentJoint != 0:
            raise ConfigurationError(
                f"auto_level_after names the frame '{frame}', which moves with the arm; name "
                'one that stands still.')
        placement = robot.transform_frame_to_root(np.zeros(robot.n), frame)
        self.frame = frame
        self._rotation, self._centre = frozen(placement.rotation), frozen(placement.translation)
        self._half = 0.5 * frozen(size)

    def holds(self, point: Array) -> bool:
        local = self._rotation.T @ (point - self._centre)
        return bool((np.abs(local) <= self._half).all())


class AutoLeveling:
    """Looks at the controller's motions and at the task, and says when leveling is due.

    Only a motion that succeeded counts: after one that was cancelled or aborted, and after
    moves by hand, somebody may stand beside the arm.
    """

    def __init__(
        self, node: ArmNode, tool: Tool, names: Sequence[str], size: Sequence[float],
        level: Callable[[str], Awaitable[None]],
    ) -> None:
        """Subscribe.

        Args:
            node: The node.
            tool: Forward kinematics.
            names: Frames and tasks, perhaps with ``frame:`` or ``task:`` before them.
            size: Size of the box about each frame, along its axes [m].
            level: Levels, and is told why.

        Raises:
            ConfigurationError: If a frame does not exist or moves.

        """
        if len(size) != 3:
            raise ConfigurationError(
                f'auto_level_box must be three lengths in m, got {list(size)}.')
        self._node = node
        self._tool = tool
        self._level = level
        self._tasks: set[str] = set()
        self._regions: list[_Region] = []
        for name in names:
            self._add(name, size)
        self._task = ''
        self._ended: set[bytes] | None = None
        self._pending = False
        node.part(node.subscription(String, '~/task', self._on_task, qos.RELIABLE))
        if names:
            controller = node.values.controller
            node.part(node.subscription(
                GoalStatusArray, f'{controller}/follow_joint_trajectory/_action/status',
                self._on_status, _STATUS))

    def _add(self, name: str, size: Sequence[float]) -> None:
        is_frame = name.startswith(_FRAME) or (
            not name.startswith(_TASK) and self._node.robot.model.existFrame(name))
        bare = name.removeprefix(_FRAME).removeprefix(_TASK)
        if is_frame:
            self._regions.append(_Region(self._node, bare, size))
        else:
            self._tasks.add(bare)
        self._node.get_logger().info(
            f"auto_level_after: '{bare}' is a {'frame' if is_frame else 'task'}.")

    # ------------------------------------------------------------------- listening

    def _on_task(self, message: String) -> None:
        self._task = message.data
        if self._task in self._tasks:
            self._expect()

    def _on_status(self, message: GoalStatusArray) -> None:
        ended, succeeded = set(), set()
        for item in message.status_list:
            identity = bytes(item.goal_info.goal_id.uuid)
            if item.status >= GoalStatus.STATUS_SUCCEEDED:
                ended.add(identity)
            if item.status == GoalStatus.STATUS_SUCCEEDED:
                succeeded.add(identity)
        # What ended before this node listened, or by its own doing, is no news.
        news = set() if self._ended is None else succeeded - self._ended
        self._ended = ended
        if news and not self._node.moving:
            self._expect()

    def _expect(self) -> None:
        """Level as soon as the arm rests, if there is still a reason then."""
        node = self._node
        if self._pending or not node.is_active or node.executor is None:
            return
        self._pending = True
        node.executor.create_task(self._when_resting)

    async def _when_resting(self) -> None:
        node = self._node
        try:
            rests = await node.pulse.until(
                lambda: node.arm.resting or not node.is_active, _REST)
        finally:
            self._pending = False
        reason = self.reason() if rests and node.is_active and not node.moving else ''
        if reason:
            await self._level(reason)

    def reason(self) -> str:
        """Return why the tool should be level now, or an empty string."""
        if self._task in self._tasks:
            return f"task '{self._task}'"
        point = self._tool.pose(self._node.joints.posture())[1]
        for region in self._regions:
            if region.holds(point):
                return f"the tool is in the region about '{region.frame}'"
        return ''


class ToolImu:
    """Heard while the node is active; averages while asked to.

    Attributes:
        rotation: Orientation of the IMU in the tool frame, shape (3, 3).

    """

    def __init__(self, node: ArmNode, topic: str, frame: str) -> None:
        """Subscribe.

        Args:
            node: The node.
            topic: Topic of sensor_msgs/Imu.
            frame: Frame that its messages must name; it must be fixed to the tool.

        Raises:
            ConfigurationError: If the frame does not exist or is not fixed to the tool.

        """
        self._node = node
        self._frame = frame
        self._topic = topic
        self.rotation = self._rotation_in_tool()
        self._sum = np.zeros(3)
        self._count = 0
        self._heard = -np.inf
        self._complaint = ''
        node.fast_topic(Imu, topic, self._receive)

    def _rotation_in_tool(self) -> Array:
        robot = self._node.robot
        frames = robot.model.frames
        own, tool = (frames[robot.frame_id(name)] for name in (self._frame, robot.tool_frame))
        if own.parentJoint != tool.parentJoint:
            raise ConfigurationError(
                f"imu_frame '{self._frame}' is not fixed to the tool frame "
                f"'{robot.tool_frame}': a joint lies between them. Name the frame of an IMU on "
                'the tool.')
        return np.array((tool.placement.inverse() * own.placement).rotation)

    def _receive(self, message: Imu) -> None:
        force = message.linear_acceleration
        values = np.array([force.x, force.y, force.z])
        if message.header.frame_id != self._frame:
            self._complaint = (f"IMU topic '{self._topic}' names frame "
                               f"'{message.header.frame_id}', but imu_frame is '{self._frame}'; "
                               'correct one of the two.')
        elif not np.isfinite(values).all():
            self._complaint = (f"IMU topic '{self._topic}' sends values that are not finite "
                               'numbers; check the sensor.')
        else:
            self._complaint = ''
            self._heard = self._node.pulse.now()
            self._sum += values
            self._count += 1

    def complaint(self) -> str:
        """Return what is wrong with the readings, or an empty string."""
        if self._complaint:
            return self._complaint
        age = self._node.pulse.now() - self._heard
        if age > self._node.values.state_timeout:
            since = f'for {age:.1f} s' if np.isfinite(age) else 'at all'
            return (f"No readings come on IMU topic '{self._topic}' {since}; check imu_topic and "
                    'the sensor.')
        return ''

    async def wait(self) -> None:
        """Wait for usable readings; raises as ``ArmNode.await_readings``."""
        await self._node.await_readings(self.complaint)

    def begin(self) -> None:
        """Begin a mean."""
        self._sum, self._count = np.zeros(3), 0

    def mean(self) -> Array:
        """Return the mean specific force since ``begin``, IMU frame, shape (3,) [m/s²].

        Raises:
            DataError: If no reading came.

        """
        if not self._count:
            raise DataError(f"No reading came on IMU topic '{self._topic}' while the arm rested; "
                            'check the sensor.')
        return self._sum / self._count
