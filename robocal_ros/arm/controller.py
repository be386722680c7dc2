# SPDX-License-Identifier: Apache-2.0
"""The joint trajectory controller: its state, a second way to see the arm, and its goals.

rclpy's action client subscribes to feedback, which nothing here needs, and reads each message in
the executor: one of a megabyte takes a second, in which no motion is monitored. So own goals are
sent by the action's services, and those of others are seen on its status topic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np
from action_msgs.msg import GoalInfo, GoalStatus, GoalStatusArray
from action_msgs.srv import CancelGoal
from control_msgs.action import FollowJointTrajectory
from control_msgs.msg import JointTrajectoryControllerState
from rclpy.serialization import deserialize_message
from rclpy.task import Future
from trajectory_msgs.msg import JointTrajectoryPoint
from unique_identifier_msgs.msg import UUID

from robocal_ros.arm.waiting import Waiter
from robocal_ros.arrays import Array
from robocal_ros.errors import MotionError
from robocal_ros.messages import ConditionalGroup, RecentPostures, Subscriber, conversions, qos

PAUSED = ('The speed scaling of the controller is zero: the robot is paused, or in a protective '
          'or emergency stop.')
"""Sentence for the user while ``ControllerState.paused``."""

# Most states that are considered: half a second at 1 kHz.
_MOST = 500


class ControllerState:
    """Newest state that the controller has published, if it publishes any.

    Its messages are queued, and only the newest is decoded, by ``look``: a controller may publish
    at 1 kHz.

    Attributes:
        joints: Joints that the controller moves; empty until it has published them.
        stamp: Stamp of the newest state, -inf before the first [s].
        paused: Whether its speed scaling has fallen to zero.
        commanded_velocity: Commanded velocities of the newest state, NaN where it has none,
            shape (n,) [rad/s].
        commands_effort: Whether it commands efforts; None before its first state.
        commanded_acceleration: Commanded accelerations, likewise [rad/s²].

    """

    def __init__(self, waiter: Waiter, topic: str, joint_names: Sequence[str]) -> None:
        """Prepare the subscription.

        Args:
            waiter: Its node subscribes.
            topic: The topic.
            joint_names: Names of the arm's joints.

        """
        self.joints: tuple[str, ...] = ()
        self._joint_names = tuple(joint_names)
        self._now = waiter.now
        self._publishers = partial(waiter.node.count_publishers, topic)
        self._queued: deque[bytes] = deque(maxlen=_MOST)
        self._received = -np.inf
        self._recent = RecentPostures()
        self._commanded = RecentPostures()
        self.stamp = -np.inf
        self.paused = self._scales = False
        self.commands_effort: bool | None = None
        self.commanded_velocity = np.full(len(self._joint_names), np.nan)
        self.commanded_acceleration = self.commanded_velocity
        self._subscriber = Subscriber(
            waiter.node, ConditionalGroup(lambda: False), JointTrajectoryControllerState, topic,
            self._queued.append, raw=True)
        self.start, self.destroy = self._subscriber.start, self._subscriber.destroy

    def stop(self) -> None:
        """Unsubscribe, and forget: a state of before does not show where the arm goes now."""
        self._subscriber.stop()
        self._queued.clear()
        self._recent.clear()
        self._commanded.clear()
        self.joints, self.stamp, self.paused = (), -np.inf, False

    def look(self, *, every: bool = False) -> None:
        """Take what has been received: the newest state, or every one of them."""
        self._subscriber.catch_up()
        queued = list(self._queued) if every else list(self._queued)[-1:]
        self._queued.clear()
        for raw in queued:
            self._take(deserialize_message(raw, JointTrajectoryControllerState))

    def has_reached(self, stamp: float) -> bool:
        """Return whether its newest state is as new as a stamp [s]; True if it publishes none."""
        self.look(every=True)
        return not self.joints or self.stamp >= stamp

    def _take(self, message: JointTrajectoryControllerState) -> None:
        self.joints = tuple(message.joint_names)
        self.stamp = conversions.seconds(message.header.stamp)
        self._received = self._now()
        # A controller that does not know the field leaves it at zero.
        self._scales |= message.speed_scaling_factor > 0.0
        self.paused = self._scales and message.speed_scaling_factor <= 0.0
        self.commands_effort = len(message.output.effort) > 0
        self._note(message.feedback, self._recent)
        self._note(message.reference, self._commanded)
        self.commanded_velocity = self._of_arm(message.reference.velocities)
        self.commanded_acceleration = self._of_arm(message.reference.accelerations)

    def _of_arm(self, values: Sequence[float]) -> Array:
        """Return what the controller states for its joints, NaN for missing ones, shape (n,)."""
        known = dict(zip(self.joints, values, strict=False))
        return np.array([known.get(name, np.nan) for name in self._joint_names])

    def _note(self, point: JointTrajectoryPoint, recent: RecentPostures) -> None:
        posture = self._of_arm(point.positions)
        if not np.isfinite(posture).all():
            return
        if recent and self.stamp < recent[-1][0]:
            recent.clear()
        recent.note(self.stamp, posture)

    @property
    def shared(self) -> bool:
        """True if several nodes publish the state: it may be that of another arm."""
        return self._publishers() > 1

    def posture(self, since: float, *, commanded: bool = False) -> Array | None:
        """Return the newest measured or commanded posture, shape (n,) [rad].

        None without a state that was received after ``since``, by the steady clock [s].
        """
        recent = self._commanded if commanded else self._recent
        return recent[-1][1] if recent and self._received > since else None

    def travel(self, window: float, since: float, *, commanded: bool = False) -> float:
        """Return the largest joint travel within the newest ``window`` seconds [rad].

        Infinite without a state that was received after ``since``, by the steady clock [s].

        Args:
            window: Time by the stamps [s].
            since: See above.
            commanded: Return that of the commanded posture, not of the measured one.

        """
        self.look(every=True)
        recent = self._commanded if commanded else self._recent
        return recent.travel(window) if self._received > since else np.inf


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
