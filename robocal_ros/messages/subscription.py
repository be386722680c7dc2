# SPDX-License-Identifier: Apache-2.0
"""Subscriptions that no message can break, and those to fast topics, while their node is active.

Messages are taken as bytes and bounded before they are turned into Python objects, which may take
a second for a megabyte. A message that is too large or malformed, or that makes a callback raise,
is counted and named (``Faults``), and the node goes on.

A 1 kHz topic costs a quarter of a core even if its messages are discarded, so an inactive node
does not subscribe to it. In an active node one pass of the executor costs more than the
processing of a message, so the node polls such a topic by itself for a while.

It takes messages with ``handle.take_message`` and waits with a ``WaitSet`` of ``rclpy.impl``,
which are not part of rclpy's public interface; the package uses them only here. Measured with
joint states and four F/T topics at 1 kHz each, best effort, as bytes, one process on two busy
cores (rclpy 9.1): a plain subscription callback takes 116 to 133 µs of processor time per
message, two thirds of a core, and loses up to half of the messages when the machine is busy;
this takes 34 to 46 µs and loses none.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from copy import copy
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from rclpy.callback_groups import CallbackGroup
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.qos import QoSProfile
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.serialization import deserialize_message
from rclpy.subscription import Subscription
from std_msgs.msg import String

from robocal_ros.errors import DataError, RobocalError
from robocal_ros.messages import qos

if TYPE_CHECKING:
    from rclpy.node import Node


SPARSE = 0.003
"""Topics with a longer interval between messages are left to the executor [s]."""

LIMIT = 32_000
"""Largest message unless its subscription sets another limit [bytes]; read in 14 ms at most.

Joint states of fifty joints have some 3 kB.
"""

TEXT_LIMIT = 10**6
"""Largest text, such as a result [bytes]; the largest results have some 10⁵."""

# Messages of one topic that are taken at a time, so that no topic starves the others.
_AT_A_TIME = 500
# Most messages that are taken in one turn because they were not needed at once.
_MOST = 4000
# Most topics that a hint lists.
_SHOWN = 6
# Interval at which messages are taken that are not needed at once [s]; the queue holds a second of
# a 2 kHz topic, and the status of an idle node is renewed once a second.
_IDLE_PERIOD = 0.8


class Faults:
    """What a node left out because it could not be used, or because a callback raised.

    Attributes:
        counts: Number by what it was, such as ``message on /tf``.

    """

    def __init__(self, node: Node) -> None:
        """Start without any."""
        self._node = node
        self.counts: dict[str, int] = {}

    def note(self, what: str, error: Exception) -> None:
        """Count an exception, and log the first one of its kind."""
        self.counts[what] = self.counts.get(what, 0) + 1
        if self.counts[what] > 1:
            return
        sentence = str(error)
        if not isinstance(error, RobocalError):
            place = traceback.extract_tb(error.__traceback__)[-1]
            sentence = (f'{type(error).__name__}: {" ".join(sentence.split())} '
                        f'({place.filename}, line {place.lineno}).')
        self._node.get_logger().error(
            f'Left out a {what}: {sentence} Further ones are only counted, in ~/status.')


_FAULTS: WeakKeyDictionary[Node, Faults] = WeakKeyDictionary()


def faults_of(node: Node) -> Faults:
    """Return the record of a node's faults."""
    return _FAULTS.setdefault(node, Faults(node))


def guarded(node: Node, what: str, callback: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callback, a coroutine too, whose exceptions are noted instead of raised.

    They would end the node otherwise.

    Args:
        node: The node.
        what: What is left out if it raises, as in ``Faults``.
        callback: The callback.

    """
    def call(*arguments: Any) -> Any:
        try:
            return callback(*arguments)
        except Exception as error:  # noqa: BLE001
            faults_of(node).note(what, error)

    async def call_later(*arguments: Any) -> Any:
        try:
            return await callback(*arguments)
        except Exception as error:  # noqa: BLE001
            faults_of(node).note(what, error)

    return call_later if iscoroutinefunction(callback) else call


def receiver(
    node: Node, kind: Any, topic: str, callback: Callable[[Any], Any], *, raw: bool = False,
    limit: int = LIMIT,
) -> Callable[[bytes], Any]:
    """Return a callback of a subscription to raw messages that no message can break.

    Args:
        node: The node.
        kind: Type of the messages.
        topic: The topic.
        callback: Called with every message that is not too large.
        raw: Whether it is called with bytes.
        limit: Largest message [bytes].

    """
    def receive(message: bytes) -> None:
        if len(message) > limit:
            raise DataError(f'A message has {len(message) / 1e3:.0f} kB; expected at most '
                            f'{limit / 1e3:.0f} kB.')
        callback(message if raw else deserialize_message(message, kind))

    return guarded(node, f'message on {topic}', receive)


def subscribe_text(node: Node, topic: str, callback: Callable[[Any], Any]) -> Subscription[Any]:
    """Subscribe to a latched text, of at most ``TEXT_LIMIT``; arguments as for ``receiver``."""
    return node.create_subscription(
        String, topic, receiver(node, String, topic, callback, limit=TEXT_LIMIT), qos.LATCHED,
        raw=True)


class ConditionalGroup(CallbackGroup):
    """Callback group that the executor serves only while a condition is true."""

    def __init__(self, condition: Callable[[], bool]) -> None:
        """Set the condition."""
        super().__init__()
        self._condition = condition

    def can_execute(self, entity: Any) -> bool:
        """Return whether the executor may wait for an entity."""
        return self._condition()

    def beginning_execution(self, entity: Any) -> bool:
        """Return whether the executor may call it now."""
        return self._condition()

    def ending_execution(self, entity: Any) -> None:
        """Do nothing."""


class Subscriber:
    """Subscription to a fast topic between ``start`` and ``stop``.

    Attributes:
        topic: Full name of the topic.
        subscription: The subscription, None while stopped.

    """

    def __init__(
        self, node: Node, group: CallbackGroup, kind: Any, topic: str,
        receive: Callable[[Any], None], *, raw: bool = False, linger: float = 0.0,
        wake: Callable[[], None] | None = None, busy: Callable[[], bool] | None = None,
        profile: QoSProfile = qos.SENSOR, limit: int = LIMIT,
    ) -> None:
        """Prepare the subscription.

        Args:
            node: The node.
            group: The callback group.
            kind: Type of the messages.
            topic: The topic.
            receive: Called with every message that is not too large.
            raw: Whether it is called with bytes.
            linger: Time for which this topic alone is polled after a message, as long as more
                arrive [s]; the executor waits for that time.
            wake: Called after a message that woke the executor, instead of polling.
            busy: Returns whether messages are needed at once; otherwise the executor does not
                wait for them, and they are taken every 0.8 s. None to need them always.
            profile: Quality of service.
            limit: Largest message [bytes].

        """
        self._node = node
        self._group = group
        self._kind = kind
        self._name = topic
        self._linger = linger
        self._wake = wake
        self._busy = busy
        self._profile = profile
        self._messages_group = group if busy is None else ConditionalGroup(busy)
        self._timer: Any = None
        context: Any = node.context
        self._wait_set = rclpy_implementation.WaitSet(1, 0, 0, 0, 0, 0, context.handle)
        self.topic: str = node.resolve_topic_name(topic)
        self._limit = limit
        self._receive = receiver(node, kind, self.topic, receive, raw=raw, limit=limit)
        self.subscription: Subscription[Any] | None = None

    def start(self) -> None:
        """Subscribe, unless subscribed already."""
        if self.subscription is None:
            # rclpy writes what is overridden into the profile that it is given.
            self.subscription = self._node.create_subscription(
                self._kind, self._name, self._woken, copy(self._profile),
                callback_group=self._messages_group, raw=True,
                qos_overriding_options=QoSOverridingOptions.with_default_policies())
            if self._busy is not None:
                self._timer = self._node.create_timer(
                    _IDLE_PERIOD, self._poll_idle, self._group,
                    clock=Clock(clock_type=ClockType.STEADY_TIME))

    def stop(self) -> None:
        """Unsubscribe."""
        if self.subscription is not None:
            self._node.destroy_subscription(self.subscription)
            self.subscription = None
        if self._timer is not None:
            self._node.destroy_timer(self._timer)
            self._timer = None

    def destroy(self) -> None:
        """Unsubscribe."""
        self.stop()

    def drain(self) -> int:
        """Take all queued messages; return their number.

        This saves one pass of the executor per message when messages have queued up.
        """
        return self._take_queued(self._receive)

    def _take_queued(self, receive: Callable[[Any], None]) -> int:
        subscription = self.subscription
        if subscription is None:
            return 0
        handle: Any = subscription.handle
        with handle:
            for count in range(_AT_A_TIME):
                # The message just received may have stopped this subscriber.
                taken = (handle.take_message(self._kind, True)
                         if self.subscription is subscription else None)
                if taken is None:
                    return count
                receive(taken[0])
        return _AT_A_TIME

    def _poll_idle(self) -> None:
        if self._busy is None or not self._busy():
            self.catch_up()

    def catch_up(self) -> None:
        """Take all messages that have queued up because they were not needed at once."""
        queued: list[bytes] = []
        while self._take_queued(queued.append) == _AT_A_TIME and len(queued) < _MOST:
            pass
        if any(len(message) > self._limit for message in queued):
            Subscriber._receive_all(self, queued)
        elif queued:
            guarded(self._node, f'message on {self.topic}', self._receive_all)(queued)

    def _receive_all(self, messages: list[bytes]) -> None:
        """Receive messages that have queued up."""
        for message in messages:
            self._receive(message)

    def wait(self, timeout: float) -> bool:
        """Wait for a message, without the executor; return whether one arrived.

        Args:
            timeout: Longest wait [s].

        """
        if self.subscription is None:
            return False
        handle = self.subscription.handle
        with handle:  # destroyed no earlier than this wait ends
            self._wait_set.clear_entities()
            self._wait_set.add_subscription(handle)
            self._wait_set.wait(int(1e9 * timeout))
            return bool(self._wait_set.is_ready('subscription', 0))

    def _woken(self, message: bytes) -> None:
        self._receive(message)
        if self._wake is not None:
            self._wake()
            return
        self.drain()
        end = time.monotonic() + self._linger
        while (left := end - time.monotonic()) > 0.0 and self.wait(min(left, SPARSE)):
            self.drain()


def type_name(kind: Any) -> str:
    """Return a message type's name, such as ``sensor_msgs/msg/JointState``."""
    package, folder, *_ = str(kind.__module__).split('.')
    return f'{package}/{folder}/{kind.__name__}'


def overload_hint() -> str:
    """Return a sentence with a leading blank if this machine has too much to do, or ''.

    Then messages are late wherever they come from on this machine.
    """
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return '' if load <= cores else (
        f' This machine is overloaded, which makes messages late: {load:.1f} processes want its '
        f'{cores} processors. End what else runs, or run the node on another machine.')


def publisher_hint(node: Node, topic: str, kind: Any, *, stopped: bool = False) -> str:
    """Return where messages of a type are published, if a topic has none.

    Args:
        node: The subscribing node.
        topic: Its topic, relative names within its namespace.
        kind: The message type.
        stopped: Whether messages had arrived.

    Returns:
        Sentences that name the topic's publishers, or else published topics of the same name,
        or else of the same type.

    """
    wanted, name = node.resolve_topic_name(topic), type_name(kind)
    if node.count_publishers(wanted):
        if stopped:
            return f"'{wanted}' still has a publisher, which sends nothing."
        return f"'{wanted}' has a publisher, but no message of type {name} has arrived."
    own = f'{node.get_fully_qualified_name()}/'
    same_type = [
        other for other, kinds in node.get_topic_names_and_types()
        if name in kinds and not other.startswith(own) and node.count_publishers(other)]
    leaf = wanted.rpartition('/')[2]
    same_name = sorted(other for other in same_type if other.rpartition('/')[2] == leaf)
    shown = same_name or sorted(same_type)
    if not shown:
        return f"No publisher on '{wanted}', and none of {name} on any other topic."
    listed = ', '.join(shown[:_SHOWN]) + (', …' if len(shown) > _SHOWN else '')
    remedy = ('Start the node in that namespace, or remap the topic.' if same_name else
              'Set the parameter to this topic, or remap it.')
    return f"No publisher on '{wanted}'; {name} is published on {listed}. {remedy}"
