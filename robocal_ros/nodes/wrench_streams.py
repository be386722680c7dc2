# SPDX-License-Identifier: Apache-2.0
"""Subscriptions that the executor need not wait for, read as bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rclpy.callback_groups import CallbackGroup

from robocal_ros.core.samples import StreamCounts
from robocal_ros.core.stamps import StampGuard
from robocal_ros.ros.listening import Listening

if TYPE_CHECKING:
    from robocal_ros.ros.lifecycle import RobocalNode



class Gate(CallbackGroup):
    """Lets the executor wait for an entity, or not.

    Attributes:
        is_open: Whether it may.

    """

    def __init__(self, is_open: bool) -> None:
        """Start open or closed."""
        super().__init__()
        self.is_open = is_open

    def can_execute(self, entity: Any) -> bool:
        """Tell whether the executor may wait for it."""
        return self.is_open

    def beginning_execution(self, entity: Any) -> bool:
        """Tell whether the executor may call it now."""
        return self.is_open

    def ending_execution(self, entity: Any) -> None:
        """Do nothing."""


class LeanGuard(StampGuard):
    """The rule for stamps, with counts that cost nothing until they are read."""

    def __init__(self) -> None:
        """Start with nothing heard."""
        self._tally = dict.fromkeys(vars(StreamCounts()), 0)
        super().__init__()

    @property
    def counts(self) -> StreamCounts:
        """What the stream went through."""
        return StreamCounts(**self._tally)

    @counts.setter
    def counts(self, counts: StreamCounts) -> None:
        self._tally.update(vars(counts))

    def count(self, **more: int) -> None:
        """Add to the counts by name."""
        for name, number in more.items():
            self._tally[name] += number

    @property
    def jumps(self) -> int:
        """How often the clock jumped back."""
        return self._tally['clock_jumps']


class Stream(Listening):
    """One topic, read as bytes, that wakes the executor or is emptied by others.

    Attributes:
        gate: Whether it wakes the executor.
        guard: Tells new stamps from others, and counts.

    """

    def __init__(
        self, node: RobocalNode, kind: Any, topic: str, receive: Callable[[bytes], None],
        wake: Callable[[], None],
    ) -> None:
        """Prepare to listen, without waking the executor.

        Args:
            node: The node.
            kind: Type of the messages.
            topic: The topic.
            receive: Takes every message, serialized.
            wake: Called after a message that woke the executor.

        """
        self.gate = Gate(False)
        self.guard = LeanGuard()
        self._wake = wake
        super().__init__(node, self.gate, kind, topic, receive, raw=True)

    def _woken(self, message: bytes) -> None:
        self._receive(message)
        self._wake()
