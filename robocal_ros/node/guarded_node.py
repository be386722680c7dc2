# SPDX-License-Identifier: Apache-2.0
"""Lifecycle node that no message, request or timer can end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from inspect import isawaitable
from typing import Any, Protocol, TypeVar

from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.event_handler import PublisherEventCallbacks
from rclpy.lifecycle import LifecycleNode
from rclpy.publisher import Publisher
from rclpy.service import Service
from rclpy.subscription import Subscription
from rclpy.timer import Timer
from rosgraph_msgs.msg import Clock as Tick

from robocal_ros.arm import Waiter
from robocal_ros.messages import LIMIT, ConditionalGroup, guarded, qos, receiver
from robocal_ros.node.status import StatusReporter
from robocal_ros.results import ResultStore
from robocal_ros.robot import Robot


class Part(Protocol):
    """Resource that ``release`` removes."""

    def destroy(self) -> None:
        """Free the resource."""


class Resumable:
    """Journal of a procedure that begins anew after a restart: nothing is kept.

    Attributes:
        resumed: How often the present measurement was gone on with.
        sentence: What the running service went on from, empty for nothing.

    """

    resumed = 0
    sentence = ''

    def remove(self) -> None:
        """Remove what was kept."""


AnyPart = TypeVar('AnyPart', bound=Part)

# Age from which the simulated clock is renewed while the node is not busy [s].
_OLD_TICK = 0.2


class GuardedNode(LifecycleNode):
    """Lifecycle node whose callbacks note exceptions instead of raising them.

    That holds for rclpy's own services and subscriptions too, which it creates by these methods.

    Attributes:
        group: A reentrant callback group.
        parts: Resources to be released.
        values: Current parameters.
        waiter: Waits, worker thread and cancellation for coroutines.
        robot: Model of the arm.
        store: Its stored results.
        status: Publisher of the node's status.
        journal: Journal of the procedure; see ``robocal_ros.node.journal``.
        is_active: Whether the node is active.
        is_configured: Whether it is configured.
        why_inactive: Why it could not be configured or activated, empty for no reason.

    """

    values: Any = None
    waiter: Waiter
    robot: Robot
    store: ResultStore
    status: StatusReporter
    is_active = False
    is_configured = False
    why_inactive = ''

    def __init__(self, name: str, **kwargs: Any) -> None:
        """Create the node; arguments as for rclpy's."""
        self.group = ReentrantCallbackGroup()
        self.parts = ExitStack()
        self.journal = Resumable()
        self._ticked = -math.inf
        super().__init__(name, **kwargs)

    @property
    def busy(self) -> bool:
        """True while every tick of a simulated clock counts."""
        return False

    def create_publisher(self, *args: Any, **kwargs: Any) -> Publisher[Any]:
        """Create a publisher without rclpy's default event callbacks.

        These log subscriptions with an incompatible quality of service, which the subscriber logs
        too. Their two waitables per publisher take a third of each turn of the executor.
        """
        kwargs.setdefault('event_callbacks', PublisherEventCallbacks(use_default_callbacks=False))
        return super().create_publisher(*args, **kwargs)

    def create_service(
        self, srv_type: Any, srv_name: str, callback: Callable[..., Any], **kwargs: Any
    ) -> Service[Any, Any]:
        """Create a service; an exception in its callback is answered with a failure.

        rclpy's own parameter services raise for malformed requests.
        """
        own = guarded(self, f'request to {srv_name}', callback)

        async def answered(request: Any, response: Any) -> Any:
            answer = own(request, response)
            if isawaitable(answer):
                answer = await answer
            return response if answer is None else answer

        return super().create_service(srv_type, srv_name, answered, **kwargs)

    def create_timer(  # type: ignore[override]
        self, timer_period_sec: float, callback: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Timer:
        """Create a timer."""
        return super().create_timer(
            timer_period_sec, guarded(self, f'timer {callback.__qualname__}', callback), *args,
            **kwargs)

    def create_subscription(
        self, msg_type: Any, topic: str, callback: Callable[..., Any], qos_profile: Any, *,
        limit: int = LIMIT, raw: bool = False, **kwargs: Any,
    ) -> Subscription[Any]:
        """Create a subscription to messages of bounded size.

        rclpy's to the simulated clock wakes a busy node only. A turn of the executor for each
        tick would cost a tenth of a core. While the node is not busy, the clock is read when
        something else wakes it, once a second or more often.

        Args:
            msg_type: Type of the messages.
            topic: The topic.
            callback: Called with every message.
            qos_profile: Quality of service.
            limit: Largest message [bytes].
            raw: Whether messages are taken as bytes, of any size.
            **kwargs: Passed on to rclpy.

        """
        def tick(message: Tick) -> None:
            self._ticked = time.monotonic()
            callback(message)

        if msg_type is Tick:
            kwargs['callback_group'] = ConditionalGroup(
                lambda: self.busy or time.monotonic() - self._ticked > _OLD_TICK)
        receive = guarded(self, f'message on {topic}', callback) if raw else receiver(
            self, msg_type, topic, tick if msg_type is Tick else callback, limit=limit)
        return super().create_subscription(
            msg_type, topic, receive, qos_profile, raw=True, **kwargs)

    def part(self, part: AnyPart) -> AnyPart:
        """Register a part to be destroyed by ``release``; return it."""
        self.parts.callback(part.destroy)
        return part

    def publisher(self, kind: Any, topic: str, profile: Any = qos.LATCHED) -> Any:
        """Create a publisher."""
        publisher = self.create_publisher(kind, topic, profile)
        self.parts.callback(self.destroy_publisher, publisher)
        return publisher

    def begin(self, what: str, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the executor; an exception in it is noted as what was left out."""
        async def run() -> None:
            await coroutine

        if self.executor is None:
            coroutine.close()
        else:
            self.executor.create_task(guarded(self, what, run))
