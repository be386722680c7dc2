# SPDX-License-Identifier: Apache-2.0
"""The robot description: from the parameter or the latched topic, awaited at an autostart."""

from __future__ import annotations

import time
from collections.abc import Callable

from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from std_msgs.msg import String

from robocal_ros.errors import ConfigurationError
from robocal_ros.messages import TEXT_LIMIT, Subscriber, publisher_hint, qos
from robocal_ros.node import status
from robocal_ros.node.guarded_node import GuardedNode

_TOPIC = 'robot_description'


def read_description(node: GuardedNode) -> str:
    """Return the URDF text of the parameter, else of the latched topic.

    Raises:
        ConfigurationError: If neither has one.

    """
    if text := node.values.robot_description.strip():
        return str(text)
    texts: list[str] = []
    subscriber = Subscriber(
        node, node.group, String, _TOPIC,
        lambda message: texts.append(message.data) if message.data.strip() else None,
        profile=qos.LATCHED, limit=TEXT_LIMIT)
    subscriber.start()
    timeout = node.values.description_timeout
    end = time.monotonic() + timeout
    while not texts and (left := end - time.monotonic()) > 0.0:
        if subscriber.wait(left):
            subscriber.drain()
    subscriber.stop()
    if not texts:
        raise ConfigurationError(
            "No robot description: parameter 'robot_description' is empty and no message "
            f"arrived on topic '{node.resolve_topic_name(_TOPIC)}' within {timeout} s. "
            f'{publisher_hint(node, _TOPIC, String)} Or start robot_state_publisher (or sim_arm) '
            'in this namespace, or give the parameter.')
    return texts[-1]


class AwaitedDescription:
    """Starts a node with the first usable description, and reports what it waits for until then.

    Attributes:
        text: The received description.

    """

    def __init__(self, node: GuardedNode, start: Callable[[], None]) -> None:
        """Wait for the topic.

        Args:
            node: The node.
            start: Configures and activates it.

        """
        self._node = node
        self._start = start
        self.text = ''
        self._topic = node.create_subscription(
            String, _TOPIC, self._take, qos.LATCHED, callback_group=node.group, limit=TEXT_LIMIT)
        self._reminder = node.create_timer(
            node.get_parameter('description_timeout').value, self._remind, node.group,
            clock=Clock(clock_type=ClockType.STEADY_TIME))
        self._tell('', status.OK)

    def _tell(self, hint: str, level: bytes) -> None:
        node = self._node
        node.why_inactive = (
            'Waiting for the robot description on topic '
            f"'{node.resolve_topic_name(_TOPIC)}'; start the driver, robot_state_publisher or "
            'sim_arm in this namespace and ROS domain, or give the parameter robot_description. '
            f'{hint}').rstrip()
        node.status.update('waiting', node.why_inactive, level=level)

    def _remind(self) -> None:
        self._tell(publisher_hint(self._node, _TOPIC, String), status.WARN)
        self._node.get_logger().warning(self._node.why_inactive, once=True)

    def _take(self, message: String) -> None:
        if not message.data.strip():
            return
        self._reminder.cancel()
        if not self._node.is_configured:
            self.text = message.data
            self._start()
            self.text = ''
        # After an unusable description there may be another one.
        if self._node.is_configured:
            self._node.destroy_subscription(self._topic)
            self._node.destroy_timer(self._reminder)
