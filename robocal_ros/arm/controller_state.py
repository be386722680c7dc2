# SPDX-License-Identifier: Apache-2.0
"""State of the joint trajectory controller: a second way to see the arm."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial

import numpy as np
from control_msgs.msg import JointTrajectoryControllerState
from rclpy.serialization import deserialize_message
from trajectory_msgs.msg import JointTrajectoryPoint

from robocal_ros.arm.waiting import Waiter
from robocal_ros.arrays import Array
from robocal_ros.messages import ConditionalGroup, RecentPostures, Subscriber, conversions

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
