# SPDX-License-Identifier: Apache-2.0
"""Progress of the subscribers of a topic, from the parameter service of their nodes.

A node that drains a topic's queue in one callback, as those of robocal_ros do, does so before it
responds to a request. Its response to a request sent after a message therefore shows that the
message was taken, up to the latency of the middleware. The response of other nodes only shows
that they are alive. Nodes without parameter services, such as command-line tools, are ignored.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rcl_interfaces.srv import GetParameters
from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node

LOOK_EVERY = 0.2
"""Wall time between two queries of the subscribers [s]."""
ASK_AGAIN = 0.5
"""Wall time after which a request without response is repeated, for responses can be lost [s]."""


class _Consumer:
    """Client of a subscribing node, and its pending request."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.asked = -float('inf')
        self.asked_wall = -float('inf')
        self.answer: Any = None


class Consumers:
    """Nodes that subscribe to a topic.

    Args:
        node: Node that sends the requests.
        publisher: Its publisher of the topic.
        ask_every: Simulated time between two requests to a node [s].
        answered: Called with name, stamp [s] and wall time [s] when a node has taken everything
            up to a stamp.
        left: Called with the name of a node that has unsubscribed.
        group: Callback group of the responses.

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
        """Update the list of subscribers, if it may have changed.

        Args:
            wall: Wall time [s].

        """
        count = self._publisher.get_subscription_count()
        if count == self._count and wall - self._looked < LOOK_EVERY:
            return
        self._count, self._looked = count, wall
        present = {
            f'{item.node_namespace.rstrip("/")}/{item.node_name}'
            for item in self._node.get_subscriptions_info_by_topic(self._publisher.topic_name)
        }
        for name in present - self._consumers.keys():
            self._consumers[name] = _Consumer(self._node.create_client(
                GetParameters, f'{name}/get_parameters', callback_group=self._group))
        for name in self._consumers.keys() - present:
            self._node.destroy_client(self._consumers.pop(name).client)
            self._left(name)

    def ask(self, newest: float, wall: float) -> None:
        """Send a request to every node that is due, and again if a response does not come.

        Args:
            newest: Stamp of the newest message [s].
            wall: Wall time [s].

        """
        for name, consumer in self._consumers.items():
            if consumer.answer is not None and not consumer.answer.done():
                if wall - consumer.asked_wall < ASK_AGAIN:
                    continue
                consumer.client.remove_pending_request(consumer.answer)
            # After a jump back of the clock the stamps are smaller.
            elif 0.0 <= newest - consumer.asked < self._ask_every:
                continue
            if consumer.client.service_is_ready():
                consumer.asked, consumer.asked_wall = newest, wall
                consumer.answer = consumer.client.call_async(GetParameters.Request())
                consumer.answer.add_done_callback(
                    lambda _, name=name, stamp=newest: self._take_answer(name, stamp))

    def _take_answer(self, name: str, stamp: float) -> None:
        if name in self._consumers:
            self._answered(name, stamp, time.monotonic())
