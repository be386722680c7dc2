# SPDX-License-Identifier: Apache-2.0
"""The IMU on the tool as leveling uses it: the mean of its accelerometer at rest."""

from __future__ import annotations

import numpy as np
from sensor_msgs.msg import Imu

from robocal_ros.core.arrays import Array
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.ros.arm_node import ArmNode


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
