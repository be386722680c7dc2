# SPDX-License-Identifier: Apache-2.0
"""Outcome of motions, and recorder and status as procedures use them, without ROS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import CancelledError, MotionError
from robocal_ros.messages import JointSamples, StationaryInterval

if TYPE_CHECKING:
    from robocal_ros.messages import JointStateStream

Watch = Callable[[], str]
"""Returns a sentence when data are lost, which ends a motion; empty otherwise."""

Keep = Callable[[Any, str], Awaitable[None]]
"""Keeps the state of a procedure for a restart after a part, and what is measured in words."""


async def keep_nothing(state: object, parts: str) -> None:
    """Keep nothing: a dry run, or a procedure without a node."""


class MotionStatus(Enum):
    """Outcome of a motion."""

    DONE = 'done'
    REFUSED = 'refused'
    REJECTED = 'rejected'
    ABORTED = 'aborted'
    CANCELLED = 'cancelled'
    STATES_LOST = 'states lost'
    LATE = 'late'
    FOREIGN_MOTION = 'foreign motion'
    TAKEN_OVER = 'taken over'
    CONTROLLER_LOST = 'controller lost'
    OVERLOADED = 'overloaded'
    STOPPED = 'stopped'
    STALLED = 'stalled'
    NOT_AT_GOAL = 'not at goal'
    DATA_LOST = 'data lost'


@dataclass(frozen=True)
class MotionOutcome:
    """Outcome of a motion, and whether the arm is at rest after it.

    Attributes:
        status: How it ended.
        message: A sentence.
        held: Whether the arm was seen at rest afterwards.

    """

    status: MotionStatus
    message: str
    held: bool

    @property
    def transient(self) -> bool:
        """Whether the cause may have passed, and the motion can be repeated."""
        return self.held and self.status in (
            MotionStatus.STATES_LOST, MotionStatus.DATA_LOST, MotionStatus.LATE)

    def raise_unless_done(self) -> None:
        """Turn anything but DONE into an error.

        Raises:
            CancelledError: If the motion was ended on request.
            MotionFailedError: If it ended otherwise.

        """
        if self.status is MotionStatus.DONE:
            return
        where = (
            'Another client controls the arm: keep clear.'
            if self.status is MotionStatus.TAKEN_OVER else
            'The arm is held.' if self.held else
            'The arm was not seen to come to rest: keep clear and check the controller.')
        if self.status is MotionStatus.CANCELLED:
            raise CancelledError(f'{self.message} {where}')
        raise MotionFailedError(f'{self.message} {where}', self)


class MotionFailedError(MotionError):
    """A motion that was refused, or did not end at its goal.

    Attributes:
        outcome: How it ended.

    """

    def __init__(self, message: str, outcome: MotionOutcome) -> None:
        super().__init__(message)
        self.outcome = outcome


class Report(Protocol):
    """Status of a procedure."""

    def update(
        self, phase: str, message: str, *, progress: float | None = None, **values: Any
    ) -> None:
        """Show a phase, a sentence, the percentage done, and further values."""

    def note(self, **values: str) -> None:
        """Add values to what is shown."""


class Recorder:
    """Recorder of joint states, as procedures use it; derived ones rewind and publish marks."""

    def __init__(self, joints: JointStateStream) -> None:
        """Set the joint states."""
        self._joints = joints

    def listen(self, receive: Callable[[float, Array, Array], None] | None) -> None:
        """Call a function with every recorded sample from now on; None for none.

        Args:
            receive: Called with stamp [s], position [rad] and torque [N·m].

        """
        self._joints.on_sample = receive

    @property
    def newest(self) -> float:
        """Newest stamp of the joint states, -inf before the first [s]."""
        return self._joints.newest

    def samples(self, after: float = -np.inf) -> JointSamples:
        """Return the joint samples recorded after a stamp [s]; all of them by default."""
        return self._joints.samples(after)

    def stamps(self) -> dict[str, float]:
        """Return the newest stamp of each stream [s]."""
        return {}

    def discard_after(self, stamp: float) -> None:
        """Discard the samples after a stamp [s], those of an interrupted motion."""

    def rewind(self, begin: Mapping[str, float]) -> None:
        """Discard the samples of all streams after these stamps [s], and pause recording."""

    def resume(self, begin: Mapping[str, float]) -> None:
        """Record again after ``rewind``."""

    def mark_discarded(self, span: tuple[float, float]) -> None:
        """Mark that samples after one stamp, up to another [s], are not used."""

    def mark_stationary(self, interval: StationaryInterval) -> None:
        """Mark an interval in which the arm was measured at rest."""
