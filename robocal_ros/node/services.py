# SPDX-License-Identifier: Apache-2.0
"""Services of a node: one at a time, cancelled on request, every defect answered."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from rclpy.service import Service
from std_srvs.srv import Trigger

from robocal_ros.errors import CancelledError, ConfigurationError, RobocalError
from robocal_ros.node import status
from robocal_ros.node.guarded_node import GuardedNode

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


class ProcedureNode(GuardedNode):
    """Node with Trigger services that carry out procedures, one at a time.

    Attributes:
        running: Name of the running service, empty for none.
        capability: Name by which the capability is registered: that of its node, if it has no
            other.

    """

    capability: str
    running = ''
    _ending = 0

    @property
    def busy(self) -> bool:
        """True while a procedure runs or a transition waits for its end."""
        return bool(self.running) or self._ending > 0

    def catch_up(self) -> None:
        """Receive what was sent last, before a service begins."""

    def offer(self, actions: Mapping[str, Action]) -> list[Service[Any, Any]]:
        """Create the services; while one of them runs, the others but cancel are refused.

        Args:
            actions: What they carry out, by name.

        """
        async def serve(
            name: str, action: Action, request: Trigger.Request, response: Trigger.Response
        ) -> Any:
            response.success, response.message = await self.answer(name, action)
            return response

        callbacks: dict[str, Callable[..., Any]] = {'cancel': self._cancel} | {
            name: partial(serve, name, action) for name, action in actions.items()}
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
        self.waiter.allow()
        self.journal.sentence = ''
        level = status.ERROR
        try:
            await self.waiter.until(lambda: not self.waiter.loading, _IMPORT_TIMEOUT)
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
            self.waiter.end()
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
            self._ending += 1
            try:
                await self.waiter.until(lambda: False, delay)
            finally:
                self._ending -= 1
            callback()

        self.executor.create_task(wait)

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
        self._ending += 1
        try:
            response.success = await self.waiter.until(
                lambda: not self.running, _END_TIMEOUT)
        finally:
            self._ending -= 1
        journal.remove()
        response.message = (
            f'{running} was ended.' if response.success else
            f'{running} was cancelled, but has not ended within {_END_TIMEOUT:.0f} s.')
        return response
