# SPDX-License-Identifier: Apache-2.0
"""Conditions on topics of the robot's driver, such as its safety mode, for any motion.

Drivers tell their state in message types of their own. The type is found in the graph, so that
nothing here depends on a driver.
"""

from __future__ import annotations

import importlib
import re
from functools import reduce
from typing import Any

import yaml
from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from rclpy.subscription import Subscription

from robocal_ros.errors import ConfigurationError
from robocal_ros.messages import qos

_FORM = re.compile(r'(?P<topic>\S+)\s+(?P<field>[\w.]+)\s*(?P<sign>==|!=)\s*(?P<value>.+)')


class DriveCondition:
    """One condition, judged by the topic's newest message."""

    def __init__(self, node: Node, group: CallbackGroup, text: str) -> None:
        """Read the condition.

        Args:
            node: The node.
            group: Callback group of the subscription.
            text: The condition, such as ``robot_mode mode == [1, 2]``.

        Raises:
            ConfigurationError: If it is none.

        """
        found = _FORM.fullmatch(text.strip())
        try:
            value = yaml.safe_load(found['value']) if found else None
        except yaml.YAMLError:
            value = None
        if found is None or value is None:
            raise ConfigurationError(
                'drive_conditions: expected topic, field, == or !=, and a value, such as '
                f"'robot_mode mode == [1, 2]'; got '{text}'.")
        self._text, self._field = text.strip(), found['field'].split('.')
        self._values = value if isinstance(value, list) else [value]
        self._equal = found['sign'] == '=='
        self._node, self._group = node, group
        self._topic: str = node.resolve_topic_name(found['topic'])
        self._subscription: Subscription[Any] | None = None
        self._newest: Any = None

    def start(self) -> None:
        """Subscribe, as soon as the topic has a publisher.

        Raises:
            ConfigurationError: If the message type is not installed, or lacks the field.

        """
        if self._subscription is not None:
            return
        publishers = self._node.get_publishers_info_by_topic(self._topic)
        if not publishers:
            return
        package, folder, name = publishers[0].topic_type.split('/')
        try:
            kind = getattr(importlib.import_module(f'{package}.{folder}'), name)
        except (ImportError, AttributeError):
            raise ConfigurationError(
                f"drive_conditions: '{self._topic}' is of type {package}/{folder}/{name}, which "
                f"this environment lacks. Install and source the package '{package}'.") from None
        self._value_in(kind())
        self._subscription = self._node.create_subscription(
            kind, self._topic, self._take,
            qos.offered_by_all([item.qos_profile for item in publishers], 1),
            callback_group=self._group)

    def stop(self) -> None:
        """Unsubscribe."""
        if self._subscription is not None:
            self._node.destroy_subscription(self._subscription)
        self._subscription = self._newest = None

    def _take(self, message: Any) -> None:
        self._newest = message

    def _value_in(self, message: Any) -> Any:
        try:
            return reduce(getattr, self._field, message)
        except AttributeError:
            fields = ', '.join(message.get_fields_and_field_types())
            raise ConfigurationError(
                f"drive_conditions: messages on '{self._topic}' have no field "
                f"'{'.'.join(self._field)}'; they have {fields}.") from None

    def problem(self) -> str:
        """Return why the arm must not move; empty if it may.

        Raises:
            ConfigurationError: As by ``start``.

        """
        self.start()
        published = self._node.count_publishers(self._topic) > 0
        if not published:
            # What a driver said that has ended is not known to be true any more.
            self._newest = None
        if self._newest is None:
            why = 'no message has arrived yet' if published else 'nobody publishes it'
            return (f"The condition '{self._text}' (drive_conditions) is unknown: {why} on "
                    f"'{self._topic}'. Start the driver, or correct the topic.")
        value = self._value_in(self._newest)
        if (value in self._values) == self._equal:
            return ''
        return (f"The robot's driver reports {'.'.join(self._field)} {value} on '{self._topic}' "
                f"(condition '{self._text}', drive_conditions). Release the stop, or start the "
                "robot's program.")
