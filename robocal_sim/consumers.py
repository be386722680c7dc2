# SPDX-License-Identifier: Apache-2.0
"""How far the subscribers of a topic are, asked with a service that every node has.

Nodes that take all that waits on a topic when one message wakes them, as those of robocal_ros do,
take it before they answer a request. So their answer to a request that was sent after a
message tells that the message was taken, within the time that one takes through the
middleware. Other nodes only show that they are alive. Nodes without parameter services, such as
those of command line tools, are not asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rcl_interfaces.srv import GetParameters
from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node

LOOK_EVERY = 0.2
"""Wall time between two looks at who subscribes [s]."""


class _Consumer:
    """A subscribing node, and the request that it has not answered yet."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.asked = -float('inf')
        self.answer: Any = None


class Consumers:
    """The nodes that subscribe to a topic.

    Args:
        node: The node that asks.
        publisher: Its publisher of the topic.
        ask_every: Steps of the messages' stamps between two requests to a node [s].
        answered: Called with name, stamp [s] and wall time [s] when a node has taken everything
            up to a stamp.
        left: Called with its name when a node subscribes no more.
        group: Callback group of the answers.

    """

    def __init__(
        self,
        node: Node,
        publisher: Any,
        ask_every: float,
        answered: Callable[[str, float, float], None],
        left: Callable[[str], None],
        group: CallbackGroup | None = None,
    ) -> None:
        self._node = node
        self._publisher = publisher
        self._ask_every = ask_every
        self._answered = answered
        self._left = left
        self._group = group
        self._consumers: dict[str, _Consumer] = {}
        self._count = 0
        self._looked = -float('inf')

    def look(self, wall: float) -> None:
        """Find out who subscribes, if that may have changed.

        Args:
            wall: Wall time [s].

        """
        count = self._publisher.get_subscription_count()
        if count == self._count and wall - self._looked < LOOK_EVERY:
            return
        self._count, self._looked = count, wall
        there = {
            f'{item.node_namespace.rstrip("/")}/{item.node_name}'
            for item in self._node.get_subscriptions_info_by_topic(self._publisher.topic_name)
        }
        for name in there - self._consumers.keys():
            self._consumers[name] = _Consumer(self._node.create_client(
                GetParameters, f'{name}/get_parameters', callback_group=self._group))
        for name in self._consumers.keys() - there:
            self._node.destroy_client(self._consumers.pop(name).client)
            self._left(name)

    def ask(self, newest: float) -> None:
        """Ask every node that has answered and is due.

        Args:
            newest: Stamp of the newest message [s].

        """
        for name, consumer in self._consumers.items():
            # After a jump back of the clock the stamps are smaller.
            if 0.0 <= newest - consumer.asked < self._ask_every:
                continue
            if consumer.answer is not None and not consumer.answer.done():
                continue
            if consumer.client.service_is_ready():
                consumer.asked = newest
                consumer.answer = consumer.client.call_async(GetParameters.Request())
                consumer.answer.add_done_callback(
                    lambda _, name=name, stamp=newest: self._take_answer(name, stamp))

    def _take_answer(self, name: str, stamp: float) -> None:
        if name in self._consumers:
            self._answered(name, stamp, time.monotonic())
