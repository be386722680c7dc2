# SPDX-License-Identifier: Apache-2.0
"""Publisher and subscriber of marks on ``~/marks``, for bags and replays."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from robocal_ros.messages import qos
from robocal_ros.messages.marks import TOPIC, Mark, Spans, last_run

if TYPE_CHECKING:
    from rclpy.callback_groups import CallbackGroup
    from rclpy.node import Node


class Marks:
    """Publisher of a node's marks that also collects those of a replayed bag."""

    def __init__(self, node: Node, group: CallbackGroup) -> None:
        """Create publisher and subscription.

        Args:
            node: The node.
            group: A reentrant callback group.

        """
        self._node = node
        # Distinguishes this start of the node from the recorded one.
        self._own = uuid.uuid4().hex
        self._received: list[Mark] = []
        self._publisher = node.create_publisher(DiagnosticArray, f'~/{TOPIC}', qos.MARKS)
        self._subscription = node.create_subscription(
            DiagnosticArray, f'~/{TOPIC}', self._take, qos.MARKS, callback_group=group)

    def destroy(self) -> None:
        """Remove publisher and subscription."""
        self._node.destroy_publisher(self._publisher)
        self._node.destroy_subscription(self._subscription)

    def publish(self, name: str, service: str, values: Mapping[str, str]) -> None:
        """Publish a mark; arguments as for ``Mark``."""
        status = DiagnosticStatus(
            level=DiagnosticStatus.OK, name=name, message=service, hardware_id=self._own,
            values=[KeyValue(key=key, value=value) for key, value in values.items()])
        array = DiagnosticArray(status=[status])
        array.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(array)

    def replayed(self, services: Sequence[str]) -> Spans:
        """Return the spans of the last replayed run; without marks, everything is used."""
        return last_run(self._received, services) or Spans()

    def forget(self) -> None:
        """Discard replayed marks."""
        self._received.clear()

    def _take(self, message: DiagnosticArray) -> None:
        self._received += [
            Mark(status.name, status.message, {item.key: item.value for item in status.values})
            for status in message.status if status.hardware_id != self._own]
