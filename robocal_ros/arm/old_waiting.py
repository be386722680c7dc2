# SPDX-License-Identifier: Apache-2.0
"""Waiting inside coroutines of a single-threaded executor, without blocking it.

Calling somebody else's Trigger service from a coroutine.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.task import Future

if TYPE_CHECKING:
    from rclpy.callback_groups import CallbackGroup
    from rclpy.node import Node
from typing import TYPE_CHECKING

from std_srvs.srv import Trigger

from robocal_ros.errors import DataError

T = TypeVar('T')


class Pulse:
    """A steady heartbeat that coroutines wait for; it rests while nobody waits.

    The beat follows the steady clock, so that a watchdog also works when the simulation, and
    with it the ROS clock, stands still.
    """

    def __init__(self, node: Node, group: CallbackGroup, period: float = 0.01) -> None:
        """Create the timer, stopped.

        Args:
            node: Whose executor wakes the coroutines.
            group: A reentrant callback group.
            period: Time between beats [s].

        """
        self._node = node
        self._clock = Clock(clock_type=ClockType.STEADY_TIME)
        self._waiting: list[Future[None]] = []
        self._timer = node.create_timer(period, self._beat, group, clock=self._clock)
        self._timer.cancel()

    def now(self) -> float:
        """Return the steady clock's time [s]."""
        return self._clock.now().nanoseconds * 1e-9

    def _beat(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._timer.cancel()
        for future in waiting:
            future.set_result(None)

    async def beat(self) -> None:
        """Wait for the next beat."""
        future: Future[None] = Future()
        self._waiting.append(future)
        if self._timer.is_canceled():
            self._timer.reset()
        await future

    async def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds; return whether it came to hold in time.

        Args:
            condition: Looked at on every beat.
            timeout: Longest wait, by the steady clock [s].

        """
        end = self.now() + timeout
        while not condition():
            if self.now() > end:
                return False
            await self.beat()
        return True

    def destroy(self) -> None:
        """Wake everybody once more and remove the timer."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.set_result(None)
        self._node.destroy_timer(self._timer)


class Worker:
    """One thread for heavy computation, awaited by coroutines."""

    def __init__(self) -> None:
        """Start with no thread; the first call makes it."""
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix='robocal')
        self._loading: ThreadFuture[Any] | None = None

    def load(self, modules: Sequence[str]) -> None:
        """Import modules in the thread, before anything else runs there.

        Importing them when they are first needed would hold up the executor for a second.
        """
        self._loading = self._threads.submit(
            lambda: [importlib.import_module(name) for name in modules])

    @property
    def loading(self) -> bool:
        """Whether modules are still being imported."""
        return self._loading is not None and not self._loading.done()

    async def run(self, pulse: Pulse, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a function in the thread and wait for what it returns or raises."""
        future = self._threads.submit(function, *args, **kwargs)
        while not future.done():
            await pulse.beat()
        return future.result()

    def shutdown(self) -> None:
        """Let the thread end."""
        self._threads.shutdown(wait=False, cancel_futures=True)


_THERE, _ANSWER = 5.0, 60.0


class ServiceCall:
    """One std_srvs/Trigger service."""

    def __init__(self, node: Node, group: CallbackGroup, pulse: Pulse, name: str) -> None:
        """Create the client.

        Args:
            node: The node.
            group: A reentrant callback group.
            pulse: Heartbeat to wait by.
            name: Name of the service, absolute or relative to the node's namespace.

        """
        self._node = node
        self._pulse = pulse
        self._name = name
        self._client: Any = node.create_client(Trigger, name, callback_group=group)

    def destroy(self) -> None:
        """Remove the client."""
        self._node.destroy_client(self._client)

    async def call(self) -> str:
        """Call and return the answer's message.

        Raises:
            DataError: If the service is not there, does not answer, or refuses.

        """
        if not await self._pulse.until(self._client.service_is_ready, _THERE):
            raise DataError(f"Service '{self._name}' is not there; start its node or correct "
                            'the parameter that names it.')
        future = self._client.call_async(Trigger.Request())
        if not await self._pulse.until(future.done, _ANSWER):
            self._client.remove_pending_request(future)
            raise DataError(f"Service '{self._name}' has not answered within {_ANSWER:.0f} s.")
        answer = future.result()
        if not answer.success:
            raise DataError(f"Service '{self._name}' refused: {answer.message}")
        return str(answer.message)
