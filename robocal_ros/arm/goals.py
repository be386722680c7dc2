# SPDX-License-Identifier: Apache-2.0
"""Goals of the controller's action: own ones, and those of other clients, which move the arm.

rclpy's action client subscribes to feedback, which nothing here needs, and reads each message in
the executor: one of a megabyte takes a second, in which no motion is monitored. So own goals are
sent by the action's services, and those of others are seen on its status topic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from action_msgs.msg import GoalInfo, GoalStatus, GoalStatusArray
from action_msgs.srv import CancelGoal
from control_msgs.action import FollowJointTrajectory
from rclpy.task import Future
from unique_identifier_msgs.msg import UUID

from robocal_ros.arm.waiting import Waiter
from robocal_ros.errors import MotionError
from robocal_ros.messages import Subscriber, qos

_UNDER_WAY = (GoalStatus.STATUS_ACCEPTED, GoalStatus.STATUS_EXECUTING, GoalStatus.STATUS_CANCELING)
# Time in which the status of earlier goals arrives from a controller that was discovered [s].
_DISCOVERED = 1.0
# Own goals that are remembered; one at a time is under way, and one that stops the arm.
_OWN = 10


class ControllerGoals:
    """Goals of the controller; those of other clients are known while subscribed.

    Attributes:
        sending: Client of the service that accepts goals.
        cancelling: Client of the service that cancels them.
        results: Client of the service that answers with their results.
        on_success: Called when goals of other clients succeed while subscribed.
        begun: Number of goals of other clients that were accepted.

    """

    def __init__(self, waiter: Waiter, action: str) -> None:
        """Create the clients, and prepare the subscription.

        Args:
            waiter: Its node subscribes.
            action: Name of the controller's action, FollowJointTrajectory.

        """
        kind = FollowJointTrajectory.Impl
        self._clients: tuple[Any, ...] = tuple(
            waiter.node.create_client(service, f'{action}/_action/{name}',
                                      callback_group=waiter.group)
            for service, name in ((kind.SendGoalService, 'send_goal'),
                                  (CancelGoal, 'cancel_goal'),
                                  (kind.GetResultService, 'get_result')))
        self.sending, self.cancelling, self.results = self._clients
        self._node = waiter.node
        self._subscriber = Subscriber(
            waiter.node, waiter.group, GoalStatusArray, f'{action}/_action/status', self._take,
            profile=qos.ACTION_STATUS)
        self._topic, self.start = self._subscriber.topic, self._subscriber.start
        self._action = action
        self._own: deque[bytes] = deque(maxlen=_OWN)
        self.on_success: Callable[[], None] = lambda: None
        self._statuses: dict[bytes, int] | None = None
        self._servers: set[bytes] = set()
        self._over: set[bytes] = set()
        self._now = waiter.now
        self._since: float | None = None
        self.begun = 0

    def stop(self) -> None:
        """Unsubscribe."""
        self._subscriber.stop()
        self._statuses = self._since = None

    def destroy(self) -> None:
        """Unsubscribe, and remove the clients."""
        self.stop()
        for client in self._clients:
            self._node.destroy_client(client)

    def is_ready(self) -> bool:
        """Return whether the controller offers all services."""
        return all(client.service_is_ready() for client in self._clients)

    def send(self, goal: FollowJointTrajectory.Goal, identity: UUID) -> Future[Any]:
        """Send a goal; return the future answer, which says whether it was accepted."""
        kind = FollowJointTrajectory.Impl.SendGoalService.Request
        return self.sending.call_async(kind(goal_id=identity, goal=goal))

    def cancel(self, identity: UUID) -> Future[Any]:
        """Ask the controller to cancel a goal; return the future answer."""
        return self.cancelling.call_async(CancelGoal.Request(goal_info=GoalInfo(goal_id=identity)))

    def cancel_all(self) -> Future[Any]:
        """Ask the controller to cancel every goal, of any client; return the future answer.

        That is the meaning of an empty identity and stamp in action_msgs/CancelGoal.
        """
        return self.cancelling.call_async(CancelGoal.Request())

    def result(self, identity: UUID) -> Future[Any]:
        """Return the future result and status of a goal."""
        kind = FollowJointTrajectory.Impl.GetResultService.Request
        return self.results.call_async(kind(goal_id=identity))

    def new_id(self) -> UUID:
        """Return the identity of a goal of this node."""
        identity = UUID(uuid=list(uuid4().bytes))
        self._own.append(bytes(identity.uuid))
        return identity

    def _take(self, message: GoalStatusArray) -> None:
        self._look()
        before, self._statuses = self._statuses, {
            bytes(item.goal_info.goal_id.uuid): int(item.status) for item in message.status_list}
        # What ended before the subscription is no news.
        news = {} if before is None else {
            goal: before.get(goal, 0) for goal in self._statuses if goal not in self._own}
        self.begun += sum(not status for status in news.values())
        if any(status < GoalStatus.STATUS_SUCCEEDED == self._statuses[goal]
               for goal, status in news.items()):
            self.on_success()

    def is_known(self) -> bool:
        """Return whether goals of other clients are known, if there are any.

        The status is latched, and arrives some time after the controller was discovered; one that
        has not had a goal sends none.
        """
        if not self._node.count_publishers(self._topic):
            self._since = None
        elif self._since is None:
            self._since = self._now()
        return (self._statuses is not None or self._since is None
                or self._now() - self._since > _DISCOVERED)

    @property
    def foreign(self) -> bool:
        """Whether a goal of another client is under way.

        A controller that was unloaded, or whose process has died, has no goals any more, although
        its last status names them: it counts only while its publisher is in the graph.
        """
        self._look()
        return any(status in _UNDER_WAY and goal not in self._own and goal not in self._over
                   for goal, status in (self._statuses or {}).items())

    def _look(self) -> None:
        """Note the controller's publisher; if it has left or was replaced, its goals are over.

        A message of it may still arrive after that.
        """
        there = {bytes(item.endpoint_gid)
                 for item in self._node.get_publishers_info_by_topic(self._topic)}
        if self._servers and not self._servers & there:
            self._over, self._servers = set(self._statuses or ()), set()
        self._servers = self._servers or there

    def check(self) -> None:
        """Raise a MotionError while a goal of another client is under way."""
        if self.foreign:
            name = self._topic.removesuffix('/_action/status')
            raise MotionError(
                f"Controller '{self._action}' executes a goal of another client; nothing was "
                'sent. Wait until that goal has ended, or cancel it (ros2 service call '
                f'{name}/_action/cancel_goal action_msgs/srv/CancelGoal), and call again.')
