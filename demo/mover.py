# SPDX-License-Identifier: Apache-2.0
"""Another client of the controller, which moves the arm and records its joint states."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from control_msgs.action import FollowJointTrajectory
from rclpy.action import ActionClient
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import JointState

from demo.stage import CONTROLLER, Stage
from robocal_ros.arrays import Array
from robocal_ros.errors import MotionError
from robocal_ros.messages import conversions
from robocal_ros.robot import CollisionChecker, connect, quintic_path

_ANSWER, _MOTION = 20.0, 120.0
# The arm is at rest if it travels less than this [rad] within this time [s].
_REST, _STILL = 0.2, 1e-4


class ArmMover(AbstractContextManager['ArmMover']):
    """Client of the controller; a context manager that removes it."""

    def __init__(self, stage: Stage) -> None:
        """Subscribe to the joint states."""
        self._stage = stage
        self._names = stage.robot.joint_names
        self._checker = CollisionChecker(stage.robot.copy())
        self._times: list[float] = []
        self._positions: list[Array] = []
        node = stage.session.node
        # A short queue: states that waited in a long one would be outdated.
        self._subscription = node.create_subscription(
            JointState, 'joint_states', self._take, qos_profile_sensor_data)
        self._client: Any = ActionClient(
            node, FollowJointTrajectory, f'{CONTROLLER}/follow_joint_trajectory')

    def __exit__(self, *_: object) -> None:
        """Destroy the action client and the subscription."""
        self._client.destroy()
        self._stage.session.node.destroy_subscription(self._subscription)

    def _take(self, message: JointState) -> None:
        if set(self._names) <= set(message.name):
            angles = dict(zip(message.name, message.position, strict=True))
            self._times.append(conversions.seconds(message.header.stamp))
            self._positions.append(np.array([angles[name] for name in self._names]))

    def _clear(self) -> None:
        self._times, self._positions = [], []

    def start_record_at_rest(self) -> None:
        """Start a new record once the arm is at rest.

        Raises:
            MotionError: The arm does not come to rest.

        """
        self._clear()

        def resting() -> bool:
            if not self._times or self._times[-1] - self._times[0] < _REST:
                return False
            if np.ptp(self._positions, axis=0).max() < _STILL:
                return True
            self._clear()
            return False

        if not self._stage.session.spin_until(resting, _ANSWER):
            raise MotionError(
                f'The simulated arm did not come to rest within {_ANSWER:.0f} s; see its log.')
        self._times, self._positions = self._times[-1:], self._positions[-1:]

    def record(self) -> tuple[Array, Array]:
        """Return times from the start, shape (k,) [s], and postures, shape (k, n) [rad]."""
        time = np.array(self._times)
        return time - time[0], np.array(self._positions)

    def move(self, postures: Sequence[Sequence[float]], speed: float, acceleration: float) -> None:
        """Move the arm through postures along a collision-free path.

        Args:
            postures: Joint positions, the last ones those of the goal [rad].
            speed: Largest speed of the joints [rad/s].
            acceleration: Largest acceleration of the joints [rad/s²].

        Raises:
            MotionError: The controller does not accept or finish the motion.

        """
        session, robot = self._stage.session, self._stage.robot
        self._clear()
        if not session.spin_until(
                lambda: bool(self._positions) and self._client.server_is_ready(), _ANSWER):
            raise MotionError('No joint states or no controller of the simulated arm within '
                              f'{_ANSWER:.0f} s; see its log.')
        path = [self._positions[-1]]
        for posture in postures:
            path += list(connect(robot, self._checker, path[-1], np.array(posture)))[1:]
        motion = quintic_path(
            np.array(path), np.full(robot.n, speed), np.full(robot.n, acceleration))
        sending = self._client.send_goal_async(conversions.to_goal(
            motion, self._names, 0.2, 0.01, 2.0))
        session.spin_until(sending.done, _ANSWER)
        handle = sending.result() if sending.done() else None
        if handle is None or not handle.accepted:
            raise MotionError('The simulated arm rejected a motion; see its log.')
        if not session.spin_until(handle.get_result_async().done, _MOTION):
            raise MotionError('The simulated arm did not finish a motion within '
                              f'{_MOTION:.0f} s; see its log.')
