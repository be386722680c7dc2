# SPDX-License-Identifier: Apache-2.0
"""The one node of a namespace that moves the arm.

Every node announces on ``robocal/owner`` that it is about to move the arm, and when it has ended.
While one does, the others refuse. A node that is no longer in the graph owns nothing.
"""

from __future__ import annotations

from rclpy.node import Node
from std_msgs.msg import String

from robocal_ros.arm.waiting import Waiter
from robocal_ros.errors import MotionError
from robocal_ros.messages import qos

TOPIC = 'robocal/owner'


class ArmOwner:
    """Claims the arm for a node, and knows the claims of others."""

    def __init__(self, waiter: Waiter) -> None:
        """Create the topic.

        Args:
            waiter: Tells when a procedure of the node has ended.

        """
        self._node: Node = waiter.node
        self._name = self._node.get_fully_qualified_name()
        self._claims: set[str] = set()
        self._own = False
        self._publisher = self._node.create_publisher(String, TOPIC, qos.LATCHED)
        self._subscription = self._node.create_subscription(
            String, TOPIC, self._take, qos.MARKS, callback_group=waiter.group)
        waiter.when_ended(self.release)

    def destroy(self) -> None:
        """Release the arm, and remove the topic."""
        self.release()
        self._node.destroy_subscription(self._subscription)
        self._node.destroy_publisher(self._publisher)

    def _take(self, message: String) -> None:
        verb, _, name = message.data.partition(' ')
        if name != self._name:
            (self._claims.add if verb == 'claim' else self._claims.discard)(name)

    def _publish(self, verb: str) -> None:
        self._publisher.publish(String(data=f'{verb} {self._name}'))

    @property
    def other(self) -> str:
        """Full name of another node that moves the arm, empty if none does."""
        if not self._claims:
            return ''
        alive = {f'{space.rstrip("/")}/{name}'
                 for name, space in self._node.get_node_names_and_namespaces()}
        self._claims &= alive
        return min(self._claims, default='')

    def claim(self) -> None:
        """Claim the arm until ``release``; raise a MotionError if another node moves it."""
        self.check()
        self._own = True
        self._publish('claim')

    def check(self) -> None:
        """Raise a MotionError if another node moves the arm.

        Of two claims at the same time, that of the first name holds.
        """
        other = self.other
        if other and not (self._own and self._name < other):
            raise MotionError(
                f'Node {other} moves the arm; nothing was sent. Call again when it has ended, or '
                'call its cancel service.')

    def release(self) -> None:
        """Let other nodes move the arm."""
        if self._own:
            self._own = False
            self._publish('release')
