# SPDX-License-Identifier: Apache-2.0
"""The one node of a namespace that moves the arm.

A node that is about to move the arm claims it on ``robocal/owner``, repeats the claim twice a
second, and releases it at the end. While one does, the others refuse. A claim that is no longer
repeated ends: a killed node stays in the graph for 20 s. It is repeated by a thread, so that a
node whose executor is late keeps it.
"""

from __future__ import annotations

import time
from threading import Event, Thread

from rclpy.node import Node
from std_msgs.msg import String

from robocal_ros.arm.waiting import Waiter
from robocal_ros.errors import DataError, MotionError
from robocal_ros.messages import Subscriber, note_fault, qos

TOPIC = 'robocal/owner'

# Interval of claims, and silence after which a claim ends [s].
_PERIOD, _LEASE = 0.5, 2.0
# Most claims that are kept, and largest message [bytes]: anybody may send any name.
_MOST, _LIMIT = 100, 1000


class ArmOwner:
    """Claims the arm for a node, and knows the claims of others."""

    def __init__(self, waiter: Waiter) -> None:
        """Create the topic.

        Args:
            waiter: Tells when a procedure of the node has ended.

        """
        self._node: Node = waiter.node
        self._name = self._node.get_fully_qualified_name()
        self._claims: dict[str, float] = {}
        self._sent = 0.0
        self._ended = Event()
        self._thread: Thread | None = None
        self._publisher = self._node.create_publisher(String, TOPIC, qos.LATCHED)
        self._subscriber = Subscriber(
            self._node, waiter.group, String, TOPIC, self._take, profile=qos.MARKS, limit=_LIMIT)
        self._subscriber.start()
        waiter.on_end = self.release

    def destroy(self) -> None:
        """Release the arm, and remove the topic."""
        self.release()
        self._subscriber.destroy()
        self._node.destroy_publisher(self._publisher)

    def _take(self, message: String) -> None:
        verb, _, name = message.data.partition(' ')
        if verb != 'claim' or name == self._name:
            self._claims.pop(name, None)
            return
        if name not in self._claims and len(self._claims) >= _MOST:
            self._forget_ended()
            note_fault(self._node, f'claim on {TOPIC}', DataError(
                f'More than {_MOST} nodes claim the arm; only nodes of the graph count.'))
        self._claims[name] = time.monotonic()

    def _publish(self, verb: str) -> None:
        self._sent = time.monotonic()
        self._publisher.publish(String(data=f'{verb} {self._name}'))

    def _repeat(self) -> None:
        """Repeat the claim until it ends."""
        while not self._ended.wait(_PERIOD) and not self._lapsed:
            self._publish('claim')

    @property
    def claims(self) -> bool:
        """True from ``claim`` to ``release``."""
        return self._thread is not None

    @property
    def _lapsed(self) -> bool:
        """True if the own claim was not repeated in time, so that it has ended for others."""
        return self._thread is not None and time.monotonic() - self._sent > _LEASE

    def _forget_ended(self) -> None:
        """Forget the claims of nodes that are silent, or not in the graph."""
        alive = {f'{space.rstrip("/")}/{name}'
                 for name, space in self._node.get_node_names_and_namespaces()}
        now = time.monotonic()
        self._claims = {name: heard for name, heard in self._claims.items()
                        if name in alive and now - heard <= _LEASE}

    @property
    def other(self) -> str:
        """Full name of another node that moves the arm, empty if none does."""
        self._subscriber.catch_up()
        if self._claims:
            self._forget_ended()
        return min(self._claims, default='')

    def claim(self) -> None:
        """Claim the arm until ``release``; raise a MotionError if another node moves it."""
        self.release()
        self.check()
        self._publish('claim')
        self._ended.clear()
        self._thread = Thread(target=self._repeat, name='owner', daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise a MotionError if another node moves the arm.

        Of two claims at the same time, that of the first name holds. An own claim that has ended
        because the process was stopped for a while is made again.
        """
        other, lapsed = self.other, self._lapsed
        if other and not (self._thread is not None and not lapsed and self._name < other):
            silent = time.monotonic() - self._claims[other]
            if silent > 2.0 * _PERIOD:
                raise MotionError(
                    f'Node {other} has claimed the arm, and has been silent for {silent:.1f} s; '
                    f'nothing was sent. It may have ended: its claim ends after {_LEASE:.0f} s. '
                    'Call again in a moment.')
            raise MotionError(
                f'Node {other} moves the arm; nothing was sent. Call again when it has ended, or '
                'call its cancel service.')
        if lapsed:
            self.claim()

    def release(self) -> None:
        """Let other nodes move the arm."""
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._thread = None
            self._publish('release')
