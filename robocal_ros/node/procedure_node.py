# SPDX-License-Identifier: Apache-2.0
"""Lifecycle node that no message, request or timer can end, with services for procedures."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import ExitStack
from functools import partial
from inspect import isawaitable
from typing import Any, NamedTuple, Protocol, TypeVar

from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.event_handler import PublisherEventCallbacks
from rclpy.lifecycle import LifecycleNode
from rclpy.publisher import Publisher
from rclpy.service import Service
from rclpy.subscription import Subscription
from rclpy.timer import Timer
from rosgraph_msgs.msg import Clock as Tick
from std_srvs.srv import Trigger

from robocal_ros.arm import Waiter
from robocal_ros.errors import CancelledError, ConfigurationError, RobocalError
from robocal_ros.messages import LIMIT, ConditionalGroup, guarded, qos, receiver
from robocal_ros.node import status
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
# Longest wait for a cancelled procedure to end [s].
_END_TIMEOUT = 15.0
# Longest wait for late imports before a procedure begins without them [s].
_IMPORT_TIMEOUT = 30.0


class Answer(NamedTuple):
    """Answer of a service.

    Attributes:
        success: Whether the request was carried out.
        message: A sentence or two with numbers and units, or the reason for the failure.

    """

    success: bool
    message: str


Action = Callable[[], Awaitable[Answer | str]]


class ProcedureNode(LifecycleNode):
    """Lifecycle node with Trigger services that carry out procedures, one at a time.

    Its callbacks note exceptions instead of raising them. That holds for rclpy's own services and
    subscriptions too, which it creates by these methods.

    Attributes:
        running: Name of the running service, empty for none.
        capability: Name by which the capability is registered: that of its node, if it has no
            other.
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

    capability: str
    running = ''
    _ending = 0
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
        """True while a procedure runs or a transition waits for its end."""
        return bool(self.running) or self._ending > 0

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

    def begin(self, what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine in the executor; an exception in it is noted as what was left out."""
        if self.executor is not None:
            self.executor.create_task(guarded(self, what, work))

    # ------------------------------------------------------------------ services

    def catch_up(self) -> None:
        """Receive what was sent last, before a service begins."""

    async def prepare(self, name: str) -> None:
        """Prepare a service before its action begins; raises RobocalError to refuse it."""

    def offer(self, names: Sequence[str]) -> list[Service[Any, Any]]:
        """Create the services; while one of them runs, the others but cancel are refused.

        Args:
            names: Their names, which are those of the methods that carry them out.

        """
        async def serve(name: str, request: Trigger.Request, response: Trigger.Response) -> Any:
            response.success, response.message = await self.answer(name, getattr(self, name))
            return response

        callbacks: dict[str, Callable[..., Any]] = {'cancel': self._cancel} | {
            name: partial(serve, name) for name in names}
        return [self.create_service(Trigger, f'~/{name}', callback, callback_group=self.group)
                for name, callback in callbacks.items()]

    async def answer(self, name: str, action: Action) -> Answer:
        """Run the action of a service; return its answer, also for an exception."""
        if not self.is_active:
            why = f'. {self.why_inactive}' if self.why_inactive else (
                f'; activate it before calling {name}.')
            return Answer(False, f'The node is not active{why}')
        if self.running:
            return Answer(False, f'{self.running} is under way; call cancel first, or wait.')
        self.catch_up()
        self.running = name
        self.waiter.stop_reason = ''
        self.journal.sentence = ''
        level = status.ERROR
        try:
            await self.waiter.until(lambda: not self.waiter.loading, _IMPORT_TIMEOUT)
            await self.prepare(name)
            outcome = await action()
            answer = outcome if isinstance(outcome, Answer) else Answer(True, outcome)
            level = status.OK if answer.success else status.WARN
        except CancelledError as error:
            answer, level = Answer(False, str(error)), status.WARN
        except RobocalError as error:
            answer = Answer(False, str(error))
        except Exception as error:  # noqa: BLE001
            # The node stays usable after a defect.
            self.get_logger().fatal(f'Defect in {name}:\n{traceback.format_exc()}')
            answer = Answer(
                False, f'Defect in {name} ({type(error).__name__}: {error}); see the log.')
        finally:
            self.running = ''
            self.waiter.on_end()
        resumed = f' {self.journal.sentence}'.rstrip()
        answer = answer._replace(message=self.robot.in_own_units(answer.message) + resumed)
        # Two calls on two lines: rclpy allows one severity for each place that logs.
        if answer.success:
            self.get_logger().info(f'{name}: {answer.message}')
        else:
            self.get_logger().error(f'{name}: {answer.message}')
        self.status.update('idle', answer.message, progress=100.0 if answer.success else None,
                           level=level)
        return answer

    def stop_procedure(self, reason: str) -> None:
        """Request that the running procedure ends and the arm is held; return at once."""
        if self.running:
            self.waiter.stop(reason)

    def when_ended(self, callback: Callable[[], None], delay: float = 0.0) -> None:
        """Call a function now, or after the end of the procedure that is being stopped."""
        if not self.busy or self.executor is None:
            callback()
            return

        async def wait() -> None:
            await self.waiter.until(lambda: not self.busy, _END_TIMEOUT)
            await self._ends(lambda: False, delay)
            callback()

        self.executor.create_task(wait)

    async def _ends(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait like ``Waiter.until``; the node is busy meanwhile."""
        self._ending += 1
        try:
            return await self.waiter.until(condition, timeout)
        finally:
            self._ending -= 1

    def refuse_while_ending(self) -> None:
        """Raise a ConfigurationError while a procedure ends."""
        if self.busy:
            raise ConfigurationError(
                f'{self.running or "cancel"} is still ending; call again in a moment.')

    async def _cancel(self, request: Trigger.Request, response: Trigger.Response) -> Any:
        running, journal = self.running, self.journal
        if not running:
            response.success, response.message = True, 'Nothing is running; the arm was not moved.'
            return response
        self.stop_procedure('Cancelled on request.')
        response.success = await self._ends(lambda: not self.running, _END_TIMEOUT)
        journal.remove()
        response.message = (
            f'{running} was ended.' if response.success else
            f'{running} was cancelled, but has not ended within {_END_TIMEOUT:.0f} s.')
        return response
