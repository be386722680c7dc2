# SPDX-License-Identifier: Apache-2.0
"""Client of the controller's action by its services alone.

rclpy's action client subscribes to feedback and status, too, which nothing here needs, and reads
each message in the executor: one of a megabyte takes a second, in which no motion is monitored.
"""

from __future__ import annotations

from typing import Any

from action_msgs.msg import GoalInfo
from action_msgs.srv import CancelGoal
from control_msgs.action import FollowJointTrajectory
from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from rclpy.task import Future
from unique_identifier_msgs.msg import UUID


class Goal:
    """A goal, known by its identity before the controller has answered."""

    def __init__(self, action: TrajectoryAction, identity: UUID) -> None:
        """Set the action that it is sent to, and its identity."""
        self._action = action
        self._identity = identity

    def cancel(self) -> Future[Any]:
        """Ask the controller to cancel it; return the future answer."""
        return self._action.cancelling.call_async(
            CancelGoal.Request(goal_info=GoalInfo(goal_id=self._identity)))

    def result(self) -> Future[Any]:
        """Return its future result and status."""
        kind = FollowJointTrajectory.Impl.GetResultService.Request
        return self._action.results.call_async(kind(goal_id=self._identity))


class TrajectoryAction:
    """Client of an action FollowJointTrajectory.

    Attributes:
        sending: Client of the service that accepts goals.
        cancelling: Client of the service that cancels them.
        results: Client of the service that answers with their results.

    """

    def __init__(self, node: Node, name: str, group: CallbackGroup) -> None:
        """Create the clients.

        Args:
            node: The node.
            name: Name of the action.
            group: The callback group.

        """
        self._node = node
        kind = FollowJointTrajectory.Impl
        self.sending: Any = node.create_client(
            kind.SendGoalService, f'{name}/_action/send_goal', callback_group=group)
        self.cancelling: Any = node.create_client(
            CancelGoal, f'{name}/_action/cancel_goal', callback_group=group)
        self.results: Any = node.create_client(
            kind.GetResultService, f'{name}/_action/get_result', callback_group=group)

    def destroy(self) -> None:
        """Remove the clients."""
        for client in (self.sending, self.cancelling, self.results):
            self._node.destroy_client(client)

    def is_ready(self) -> bool:
        """Return whether the controller offers all services."""
        return all(client.service_is_ready()
                   for client in (self.sending, self.cancelling, self.results))

    def send(self, goal: FollowJointTrajectory.Goal, identity: UUID) -> Future[Any]:
        """Send a goal; return the future answer, which says whether it was accepted.

        Args:
            goal: The goal.
            identity: Its identity.

        """
        kind = FollowJointTrajectory.Impl.SendGoalService.Request
        return self.sending.call_async(kind(goal_id=identity, goal=goal))
