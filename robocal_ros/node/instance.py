# SPDX-License-Identifier: Apache-2.0
"""The one active node of a name.

ROS allows several nodes of one name: both would answer a service, and move the arm. An active node
says so on ``~/active``, at once to nodes that come later and then every 0.8 s. A killed node says
nothing any more, although it stays in the graph for many seconds. An inactive node
takes its procedures' services down meanwhile, so that it does not answer in place of the other.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable

from std_msgs.msg import String

from robocal_ros.arm import Waiter
from robocal_ros.errors import ConfigurationError
from robocal_ros.messages import qos

# That of idle subscriptions, so that both take one turn of the executor [s].
_PERIOD = 0.8
# Silence after which another node counts as dead: four messages [s].
_SILENCE = 3.5
_FORM = re.compile(r'(?P<since>\d{20}|none) (?P<name>[0-9a-f]{32})')


class ActiveInstance:
    """Refuses to activate a second node of the same name."""

    def __init__(
        self, waiter: Waiter, give_way: Callable[[str], None],
        yield_services: Callable[[bool], None],
    ) -> None:
        """Create the topic.

        Args:
            waiter: That of the node.
            give_way: Called with a sentence if, while this node is active, a node of its name
                turns out to have been active before.
            yield_services: Called with whether another node of its name is active, at each
                change and then every 0.8 s.

        """
        node = self._node = waiter.node
        self._give_way = give_way
        self._yield_services = yield_services
        self._own = uuid.uuid4().hex
        self._since = ''
        self._other = ''
        self._heard = -float('inf')
        self._publisher = node.create_publisher(String, '~/active', qos.LATCHED)
        self._subscription = node.create_subscription(
            String, '~/active', self._take, qos.MARKS, callback_group=waiter.group)
        self._timer = waiter.timer(_PERIOD, self._turn)
        self._timer.cancel()

    def start(self) -> None:
        """Claim the name; raise a ConfigurationError if another active node has it."""
        if self._other_is_active:
            raise ConfigurationError(self._sentence)
        # Nodes are compared as text: the one that was active first goes on.
        self._since = f'{time.time_ns():020d} {self._own}'
        self._turn()
        self._timer.reset()

    def stop(self) -> None:
        """Release the name."""
        if self._since:
            self._since = ''
            self._publish()
        self._turn()

    def destroy(self) -> None:
        """Remove the topic; its silence releases the name."""
        self._node.destroy_timer(self._timer)
        self._node.destroy_subscription(self._subscription)
        self._node.destroy_publisher(self._publisher)

    @property
    def _other_is_active(self) -> bool:
        return bool(self._other) and time.monotonic() - self._heard < _SILENCE

    @property
    def _sentence(self) -> str:
        return (f"Another node named '{self._node.get_fully_qualified_name()}' is active. End one "
                'of them, or give this one another name (-r __node:=…) or namespace (-r __ns:=…).')

    @property
    def _has_namesake(self) -> bool:
        """True if the graph has two nodes of this name; otherwise a bag is played."""
        own = self._node.get_name(), self._node.get_namespace()
        return self._node.get_node_names_and_namespaces().count(own) > 1

    def _turn(self) -> None:
        """Say that this node is active, or listen whether another one still is."""
        if self._since:
            self._publish()
        elif not self._other_is_active:
            self._timer.cancel()
        elif self._timer.is_canceled():
            self._timer.reset()
        self._yield_services(not self._since and self._other_is_active)

    def _publish(self) -> None:
        self._publisher.publish(String(data=self._since or f'none {self._own}'))

    def _take(self, message: String) -> None:
        found = _FORM.fullmatch(message.data)
        if found is None or found['name'] == self._own or not self._has_namesake:
            return
        self._other = '' if found['since'] == 'none' else message.data
        self._heard = time.monotonic()
        if self._since and self._other and self._other < self._since:
            self._give_way(self._sentence)
        elif not self._since:
            self._turn()
