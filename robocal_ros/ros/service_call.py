# SPDX-License-Identifier: Apache-2.0
"""Calling somebody else's Trigger service from a coroutine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from std_srvs.srv import Trigger

from robocal_ros.errors import DataError
from robocal_ros.ros.waiting import Pulse

if TYPE_CHECKING:
    from rclpy.callback_groups import CallbackGroup
    from rclpy.node import Node

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
