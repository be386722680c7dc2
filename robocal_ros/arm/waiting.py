# SPDX-License-Identifier: Apache-2.0
"""Waiting inside coroutines of a single-threaded executor, without blocking it."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future as ThreadFuture, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from rclpy.callback_groups import CallbackGroup
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.task import Future
from rclpy.timer import Timer
from std_srvs.srv import Trigger

from robocal_ros.errors import CancelledError, DataError

T = TypeVar('T')
# Interval at which conditions are checked [s].
_PERIOD = 0.01
# Lateness below this is usual on a machine that is not real-time [s].
_USUAL = 0.05
# Time after a late wake-up within which queued messages are processed [s].
_CATCH_UP = 0.1


class TimedExecutor(SingleThreadedExecutor):
    """Executor that measures its turns: each is one callback, or one step of a coroutine.

    Attributes:
        longest_turn: Longest turn since it was last set to zero, without the waiting [s].

    """

    longest_turn = 0.0
    _began: float | None = None

    def wait_for_ready_callbacks(self, *args: Any, **kwargs: Any) -> Any:
        """Return the next callback."""
        found = super().wait_for_ready_callbacks(*args, **kwargs)
        self._began = time.monotonic()
        return found

    def spin_once(self, timeout_sec: float | None = None) -> None:
        """Wait for a callback, and call it."""
        self._began = None
        super().spin_once(timeout_sec)
        if self._began is not None:
            self.longest_turn = max(self.longest_turn, time.monotonic() - self._began)


class Waiter:
    """Waits of a node's coroutines for time, conditions and computations, and their stop.

    A timer on the steady clock resumes the coroutines, so timeouts also work while a simulation,
    and with it the ROS clock, is paused. The timer is cancelled while no coroutine waits.

    Attributes:
        node: The node whose executor runs the coroutines.
        group: A reentrant callback group.
        stop_reason: Reason of a requested stop; emptied before the next procedure begins.
        on_stop: Called at a stop request.
        on_end: Called at the end of a procedure.
        whereabouts: Returns a sentence on the arm for a stop request; empty if it was not claimed.

    """

    def __init__(self, node: Node, group: CallbackGroup) -> None:
        """Create the timer, stopped.

        Args:
            node: The node.
            group: A reentrant callback group.

        """
        self.node = node
        self.group = group
        self.stop_reason = ''
        self.on_stop: Callable[[], None] = lambda: None
        self.on_end: Callable[[], None] = lambda: None
        self.whereabouts: Callable[[], str] = str
        self._clock = Clock(clock_type=ClockType.STEADY_TIME)
        self._waiting: list[Future[None]] = []
        self._due = self._late_since = -np.inf
        self._delay = 0.0
        self._timer = self.timer(_PERIOD, self._wake)
        self._timer.cancel()
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix='robocal')
        self._loading: list[ThreadFuture[Any]] = []
        self._destroyed = False

    def destroy(self) -> None:
        """Resume all coroutines a last time, remove the timer and end the thread."""
        self._destroyed = True
        self._wake_all()
        self.node.destroy_timer(self._timer)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def timer(self, period: float, callback: Callable[[], None]) -> Timer:
        """Return a timer of the node on the steady clock, in its reentrant group.

        Args:
            period: Interval [s].
            callback: Called at each interval.

        """
        return self.node.create_timer(period, callback, self.group, clock=self._clock)

    # --------------------------------------------------------------------- waiting

    def now(self) -> float:
        """Return the steady clock's time [s]."""
        return self._clock.now().nanoseconds * 1e-9

    @property
    def delay(self) -> float:
        """By how much the node was late just now, 0 if it was on time [s].

        Messages that arrived meanwhile may still be queued.
        """
        return self._delay if self.now() - self._late_since < _CATCH_UP else 0.0

    def take_longest_turn(self) -> float:
        """Return the longest turn of the executor since the last call, 0 if unknown [s]."""
        executor = self.node.executor
        if not isinstance(executor, TimedExecutor):
            return 0.0
        longest, executor.longest_turn = executor.longest_turn, 0.0
        return longest

    def _wake(self) -> None:
        now = self.now()
        if now - self._due > _USUAL:
            self._delay, self._late_since = now - self._due, now
        self._timer.cancel()
        self._wake_all()

    def _wake_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.set_result(None)

    async def tick(self) -> None:
        """Wait for the next tick of the timer."""
        future: Future[None] = Future()
        self._waiting.append(future)
        if self._timer.is_canceled():
            self._due = self.now() + _PERIOD
            self._timer.reset()
        await future

    async def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition is true, also after a stop request; return whether it is.

        Args:
            condition: Checked on every tick.
            timeout: Longest wait, by the steady clock without the node's own lateness [s].

        """
        end = self.now() + timeout
        while not condition():
            if self.now() > end + self.delay:
                return False
            await self.tick()
        return True

    async def until_stopped(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait like ``until``, but end at a stop request.

        Raises:
            CancelledError: If a stop was requested.

        """
        held = await self.until(lambda: bool(self.stop_reason) or condition(), timeout)
        self.check_stopped()
        return held

    # -------------------------------------------------------------------- stopping

    def stop(self, reason: str) -> None:
        """Request that the running procedure ends; return at once."""
        self.stop_reason = reason
        self.on_stop()

    def check_stopped(self) -> None:
        """Raise CancelledError once a stop was requested; called between the steps."""
        if self.stop_reason:
            raise CancelledError(f'{self.stop_reason} {self.whereabouts()}'.rstrip())

    # ------------------------------------------------------------------- computing

    def load(self, modules: Sequence[str]) -> None:
        """Import modules in the thread, before anything else runs there.

        Importing them on first use would block the executor for a second. Each is a task of its
        own, so that ``destroy`` cancels those not begun: Python joins the thread at exit, and
        all of them take many seconds on a busy machine.
        """
        self._loading = [self._threads.submit(importlib.import_module, name) for name in modules]

    @property
    def loading(self) -> bool:
        """True while modules are being imported."""
        return not all(future.done() for future in self._loading)

    async def compute(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a function in the thread; return its result or raise its exception.

        Raises:
            CancelledError: If the waits end first.

        """
        future = self._threads.submit(function, *args, **kwargs)
        while not future.done() or future.cancelled():
            if self._destroyed:
                raise CancelledError('The node was released.')
            await self.tick()
        return future.result()


# Longest waits for a service and for its answer [s].
_SERVICE_TIMEOUT, _ANSWER_TIMEOUT = 5.0, 60.0


class ServiceCall:
    """Client of another node's std_srvs/Trigger service."""

    def __init__(self, waiter: Waiter, name: str) -> None:
        """Create the client.

        Args:
            waiter: Waits in the node's coroutines.
            name: Name of the service, absolute or relative to the node's namespace.

        """
        self._waiter = waiter
        self._name = name
        self._client: Any = waiter.node.create_client(Trigger, name, callback_group=waiter.group)

    def destroy(self) -> None:
        """Remove the client."""
        self._waiter.node.destroy_client(self._client)

    async def call(self) -> None:
        """Call and wait for the answer.

        Raises:
            DataError: If the service is unavailable, does not answer, or refuses.

        """
        if not await self._waiter.until(self._client.service_is_ready, _SERVICE_TIMEOUT):
            raise DataError(f"Service '{self._name}' is not available; start its node or correct "
                            'the parameter that names it.')
        future = self._client.call_async(Trigger.Request())
        if not await self._waiter.until(future.done, _ANSWER_TIMEOUT):
            self._client.remove_pending_request(future)
            raise DataError(f"Service '{self._name}' has not answered within "
                            f'{_ANSWER_TIMEOUT:.0f} s; see the log of its node.')
        answer = future.result()
        if not answer.success:
            raise DataError(f"Service '{self._name}' refused: {answer.message}")
