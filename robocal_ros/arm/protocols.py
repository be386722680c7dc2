# SPDX-License-Identifier: Apache-2.0
"""Protocols of arm, recorder and status as procedures use them, without ROS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

from robocal_ros.arrays import Array
from robocal_ros.errors import CancelledError, MotionError
from robocal_ros.messages import JointSamples, StationaryInterval
from robocal_ros.robot import CollisionChecker, EffortLimits, MotionLimits, Robot, Trajectory

T = TypeVar('T')
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


class Arm(Protocol):
    """The arm; every motion is checked before it is sent.

    Attributes:
        robot: The arm's model.
        checker: Its collision geometry.

    """

    robot: Robot
    checker: CollisionChecker

    @property
    def limits(self) -> MotionLimits:
        """Limits of every motion."""

    def posture(self) -> Array:
        """Return the posture, shape (n,) [rad]; raises DataError if it is unknown."""

    def check_stopped(self) -> None:
        """Raise CancelledError once a stop was requested; called between the steps."""

    async def compute(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a long computation, such as planning, in the worker thread."""

    async def move(
        self, trajectory: Trajectory, *, phase: str, message: str, share: tuple[float, float],
        watch: Watch | None = None, limits: MotionLimits | None = None,
    ) -> None:
        """Move and report progress.

        Args:
            trajectory: The motion, from the present posture.
            phase: Phase shown during it.
            message: Sentence shown during it.
            share: Progress of the procedure at its start and end [%].
            watch: Returns a sentence when data are lost.
            limits: Limits of this motion instead of the usual ones.

        Raises:
            MotionFailedError: If it was refused or did not end at its goal.
            CancelledError: If it was ended on request.

        """

    async def go_to(
        self, posture: Array, *, phase: str, message: str, share: tuple[float, float],
        watch: Watch | None = None, effort: EffortLimits | None = None,
    ) -> None:
        """Move to a posture on a collision-free path; arguments as for ``move``.

        With ``effort``, the path stays where the drives can hold the arm, and the motion is
        slowed where necessary.

        Raises:
            MotionError: As for ``move``, or if no such path is found.
            CancelledError: If it was ended on request.

        """

    async def dwell(self, duration: float, watch: Watch | None = None) -> None:
        """Rest for a time, by the stamps of the joint states [s].

        Raises:
            DataError: If joint states stop or ``watch`` returns a problem.
            CancelledError: If a stop was requested.

        """

    async def await_readings(self, watch: Watch) -> None:
        """Wait until a sensor that the motion needs delivers usable readings.

        Args:
            watch: Returns the problem of the sensor, empty for none.

        Raises:
            DataError: If it delivers none in time.
            CancelledError: If a stop was requested.

        """

    async def await_rest(self) -> None:
        """Wait for joint states of an arm at rest.

        Raises:
            DataError: If there are none, or the arm keeps moving.
            CancelledError: If a stop was requested.

        """

    def speed_limits(self) -> tuple[Array, Array]:
        """Return the speeds and accelerations of moves between postures, shape (n,) each."""

    def path_trajectory(self, postures: Array) -> Trajectory:
        """Return a motion through postures, shape (k, n) [rad], at rest in each."""


class Recorder(Protocol):
    """Recorder of joint states."""

    @property
    def on_sample(self) -> Callable[[float, Array, Array], None] | None:
        """Called with stamp [s], position [rad] and torque [N·m] of every recorded sample."""

    @on_sample.setter
    def on_sample(self, receive: Callable[[float, Array, Array], None] | None) -> None:
        """Set the callback; None for no callback."""

    @property
    def recorded(self) -> int:
        """Number of samples recorded."""

    @property
    def newest(self) -> float:
        """Newest stamp received, -inf before the first [s]."""

    def samples(self, after: float = ...) -> JointSamples:
        """Return the samples recorded after a stamp [s]; all of them by default."""

    def discard_after(self, stamp: float) -> None:
        """Discard the samples after a stamp [s], those of an interrupted motion."""

    def stamps(self) -> dict[str, float]:
        """Return the newest stamp of each stream [s]."""

    def rewind(self, begin: Mapping[str, float]) -> None:
        """Discard the samples of all streams after these stamps [s], and pause recording."""

    def resume(self, begin: Mapping[str, float]) -> None:
        """Record again after ``rewind``."""

    def mark_discarded(self, span: tuple[float, float]) -> None:
        """Mark that samples after one stamp, up to another [s], are not used."""

    def mark_stationary(self, interval: StationaryInterval) -> None:
        """Mark an interval in which the arm was measured at rest."""
