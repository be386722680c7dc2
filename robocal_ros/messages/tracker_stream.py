# SPDX-License-Identifier: Apache-2.0
"""A tracker's topic into readings: points, or poses where orientation is measured too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from geometry_msgs.msg import PointStamped, PoseStamped

from robocal_ros.messages import conversions
from robocal_ros.messages.samples import StreamCounts
from robocal_ros.messages.subscription import Listening
from robocal_ros.messages.tracker import TrackerRecord, TrackerSamples

if TYPE_CHECKING:
    from rclpy.callback_groups import CallbackGroup
    from rclpy.node import Node


MESSAGES = ('point', 'pose')
_BAD_IN_A_ROW = 3


class TrackerStream:
    """One tracker that follows one target.

    Attributes:
        record: The readings.

    """

    def __init__(
        self, node: Node, group: CallbackGroup, message: str, topic: str,
        *, now: Callable[[], float],
    ) -> None:
        """Prepare to listen.

        Args:
            node: The node.
            group: A reentrant callback group.
            message: One of ``MESSAGES``: PointStamped or PoseStamped.
            topic: The topic; empty for ``tracker/point`` or ``tracker/pose``.
            now: Steady clock [s], for noticing silence.

        """
        self._node = node
        self._now = now
        self._heard = float('-inf')
        self._bad_in_a_row = 0
        self.record = TrackerRecord(message == 'pose')
        kind, receive = ((PoseStamped, self._take_pose) if message == 'pose'
                         else (PointStamped, self._take_point))
        self._listening = Listening(
            node, group, kind, topic or f'tracker/{message}', receive)

    def listen(self) -> None:
        """Subscribe."""
        self._listening.listen()

    def rest(self) -> None:
        """Unsubscribe; readings kept stay."""
        self._listening.rest()
        self._heard = float('-inf')

    destroy = rest

    def _take_point(self, message: PointStamped) -> None:
        point = message.point
        self._take(message, (point.x, point.y, point.z))

    def _take_pose(self, message: PoseStamped) -> None:
        point, turn = message.pose.position, message.pose.orientation
        self._take(message, (point.x, point.y, point.z, turn.x, turn.y, turn.z, turn.w))

    def _take(self, message: PointStamped | PoseStamped, values: tuple[float, ...]) -> None:
        header = message.header
        if self.record.add(conversions.seconds(header.stamp), header.frame_id, values):
            self._heard, self._bad_in_a_row = self._now(), 0
        elif self.record.complaint:
            self._bad_in_a_row += 1

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._listening.topic

    @property
    def newest(self) -> float:
        """Stamp of the newest reading, -inf before the first [s]."""
        return self.record.newest

    @property
    def counts(self) -> StreamCounts:
        """What the stream went through since the last clear."""
        return self.record.counts

    def age(self) -> float:
        """Return how long no reading has come, by the steady clock [s]."""
        return float(self._now() - self._heard)

    def complaint(self) -> str:
        """Return what is wrong with the messages that come, or an empty string."""
        if self._bad_in_a_row < _BAD_IN_A_ROW:
            return ''
        return f"Tracker topic '{self.topic}' {self.record.complaint}."

    def samples(self, begin: float = float('-inf')) -> TrackerSamples:
        """Return the readings kept, from a stamp on [s]."""
        return self.record.samples(begin)

    def clear(self) -> None:
        """Forget the readings kept."""
        self.record.clear()
