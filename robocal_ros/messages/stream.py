# SPDX-License-Identifier: Apache-2.0
"""Streams of samples from live topics.

A stream is subscribed while its node is active, so that the arm can be monitored; it records only
while ``recording`` is true.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from sensor_msgs.msg import JointState, Temperature

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.messages.decode import Decoded, Message, Rows, State
from robocal_ros.messages.intake import (
    Intake,
    JointIntake,
    TrackerIntake,
    WrenchIntake,
    temperature_intake,
)
from robocal_ros.messages.samples import StreamCounts
from robocal_ros.messages.stamps import to_seconds
from robocal_ros.messages.subscription import Subscriber, overload_hint, publisher_hint

if TYPE_CHECKING:
    from rclpy.callback_groups import CallbackGroup
    from rclpy.node import Node

    from robocal_ros.robot import Robot

I = TypeVar('I', bound=Intake)  # noqa: E741

_RECENT = 0.3
# Largest step of an encoder, of about 1300 counts per turn [rad].
_COARSEST = 5e-3
# Fewest messages in which a flicker differs from steps of a slow motion.
_FEWEST = 8
# Shortest interval between two searches for the publishers of a silent topic [s].
_LOOK_EVERY = 1.0
# Fewest messages with the same values that a live sensor does not send.
_SAME = 10
# Time for which joint states are polled, and other callbacks wait, while the arm is monitored [s].
_LINGER = 0.01


class Stream(Subscriber, Generic[I]):
    """One topic, received between ``start`` and ``stop``.

    Attributes:
        intake: Turns its messages into samples.
        samples: Returns the samples recorded, on request after a stamp [s].
        clear: Discards the recording and resets the counts.
        forget_after: Discards the samples after a stamp [s]; see ``Intake.forget_after``.

    """

    def __init__(
        self, node: Node, group: CallbackGroup, kind: Any, topic: str, intake: I, *,
        now: Callable[[], float] = time.monotonic, remedy: str = '', tolerated: int = 9,
        on_message: Callable[[Message], None] | None = None, **others: Any,
    ) -> None:
        """Prepare the subscription.

        Args:
            node: The node.
            group: A reentrant callback group.
            kind: Type of the messages.
            topic: The topic.
            intake: Turns its messages into samples.
            now: Steady clock [s], for detecting silence.
            remedy: Instruction for the user when no message arrives, as a sentence.
            tolerated: Number of consecutive unusable messages that are not yet a problem.
            on_message: Called with every message whose stamp is accepted, and with foreign ones,
                but not with the first one after a gap.
            others: As for ``Subscriber``.

        """
        super().__init__(node, group, kind, topic, self._take, raw=True, **others)
        self.intake = intake
        self.clear, self.forget_after = intake.clear, intake.forget_after
        self.samples = intake.samples
        intake.recording = False
        self._now = now
        self._remedy = remedy
        self._tolerated = tolerated
        self._on_message = on_message
        self._last_received = -np.inf
        self._usable = 0
        self._bad_in_a_row = 0
        self._values: Any = None
        self._same_since, self._same = 0.0, 0
        self._looked = -np.inf
        self._looked_stopped = False
        self._hint = ''

    def stop(self) -> None:
        """Unsubscribe; recorded samples are kept."""
        super().stop()
        self._last_received, self._usable = -np.inf, 0

    def _take(self, raw: bytes) -> None:
        message = self.intake.take_one(raw)
        if message is not None:
            self._look_at(message)

    def _receive_all(self, messages: list[bytes]) -> None:
        taken = self.intake.take_regular(messages)
        if taken is None:
            super()._receive_all(messages)
            return
        decoded, rows = taken
        if (decoded.states[rows] != State.USABLE).any() or not self._look_at_all(decoded, rows):
            for row in rows.tolist():
                self._look_at(decoded.message(row))

    def _look_at_all(self, decoded: Decoded, rows: Rows) -> bool:
        """Process usable messages together; return False to process them one by one."""
        return False

    def _look_at(self, message: Message) -> None:
        if message.state is State.USABLE:
            self._bad_in_a_row = 0
            self._usable += 1
            self._last_received = self._now()
            self._note_values(message)
        else:
            self._bad_in_a_row += 1
        # A message after a gap is recorded; the next one shows whether its stamp is corrupt.
        if self._on_message is not None and not self.intake.guard.is_doubted:
            self._on_message(message)

    def _note_values(self, message: Message) -> None:
        """Count messages with the same values: the noise of a live sensor changes them."""
        before, values = self._values, message.values
        # Most differ in the first value already, which is compared in a tenth of the time.
        if before is not None and values[0] == before[0] and np.array_equal(values, before):
            self._same += 1
        else:
            self._values, self._same = values, 0
            self._same_since = to_seconds(message.stamp)

    def age(self) -> float:
        """Return the time since the last usable message, by the steady clock [s]."""
        return float(self._now() - self._last_received)

    @property
    def unusable(self) -> str:
        """What is wrong with the newest message, empty if it is usable."""
        return self.intake.problem if self._bad_in_a_row else ''

    def problem(self, patience: float = np.inf) -> str:
        """Return the problem of the messages, or an empty string.

        Args:
            patience: Longest acceptable silence, by the steady clock, and longest time in which
                all values stay the same, by the stamps [s].

        """
        if self._bad_in_a_row > self._tolerated:
            return self.intake.problem
        if self.age() > patience:
            stopped = bool(np.isfinite(self._last_received))
            now = self._now()
            if now - self._looked > _LOOK_EVERY or stopped != self._looked_stopped:
                self._looked, self._looked_stopped = now, stopped
                self._hint = publisher_hint(self._node, self.topic, self._kind, stopped=stopped)
            since = f'for {self.age():.1f} s, after {self._usable}' if stopped else 'at all'
            return (f'No readings received on {self.intake.decoder.source} {since}. '
                    f'{self._hint}{overload_hint()} {self._remedy}')
        same = self.newest - self._same_since
        if self._same >= _SAME and same > patience:
            return (f'{self.intake.decoder.source} has sent the same values for {same:.1f} s; a '
                    f'live sensor scatters. {self._remedy}')
        return ''

    # ------------------------------------------------------------------- recording

    @property
    def recording(self) -> bool:
        """True while samples are recorded."""
        return self.intake.recording

    @recording.setter
    def recording(self, on: bool) -> None:
        self.intake.recording = on

    @property
    def counts(self) -> StreamCounts:
        """Counts of messages since the last clear."""
        return self.intake.counts

    @property
    def newest(self) -> float:
        """Newest stamp received, -inf before the first [s]."""
        return self.intake.newest

    @property
    def usual_interval(self) -> float:
        """Usual interval between messages by their stamps, 0 until it is known [s]."""
        return self.intake.guard.period

    @property
    def recorded(self) -> int:
        """Number of messages recorded."""
        return self.intake.recorded


class RecentPostures(deque[tuple[float, Array]]):
    """Stamps [s] and postures, shape (n,) [rad], of the last 0.3 s."""

    def note(self, stamp: float, posture: Array) -> None:
        """Append a posture; drop old ones, and those of corrupt stamps, which are newer."""
        while self and self[-1][0] >= stamp:
            self.pop()
        self.append((stamp, posture))
        while stamp - self[0][0] > _RECENT:
            self.popleft()

    def travel(self, window: float) -> float:
        """Return the largest joint travel within the newest ``window`` seconds [rad].

        Infinite until postures span that time. An encoder that flickered between two neighbouring
        values throughout the last 0.3 s did not travel.
        """
        if not self:
            return float('inf')
        (oldest, _), (newest, last) = self[0], self[-1]
        stamps, rows = (np.array(part) for part in zip(*self, strict=True))
        within = rows[stamps >= newest - window - 1e-9]
        if newest - oldest < 0.8 * window or len(within) < 2:
            return float('inf')
        travel = np.ptp(within, axis=0)
        if newest - oldest > 0.8 * _RECENT and len(rows) >= _FEWEST:
            count = np.abs(rows - last).max(axis=0)
            flickers = ((rows == last) | (np.abs(rows - last) == count)).all(axis=0)
            # On one side: two values, not three.
            flickers &= (np.ptp(rows, axis=0) == count) & (count < _COARSEST)
            travel = np.where(flickers, 0.0, travel)
        return float(travel.max())


Listener = Callable[[float, Array, Array, Array], None]


class JointStateStream(Stream[JointIntake]):
    """The arm's joint states, in the order of its joints.

    Attributes:
        on_sample: Called while recording with stamp, position and torque; None for no callback.
        set_factor: Sets the factors from the driver's efforts to torques, shape (n,), and discards
            recorded samples.

    """

    def __init__(
        self, node: Node, group: CallbackGroup, joints: Robot, *, now: Callable[[], float],
        factor: Array, busy: Callable[[], bool] | None = None,
    ) -> None:
        """Prepare the subscription.

        Args:
            node: The node.
            group: A reentrant callback group.
            joints: The n joints of the arm.
            now: Steady clock [s], for detecting silence.
            factor: Factors from the driver's efforts to torques, shape (n,).
            busy: As for ``Subscriber``.

        """
        super().__init__(
            node, group, JointState, 'joint_states', JointIntake(joints, factor), now=now,
            on_message=self._note, linger=_LINGER, busy=busy)
        self.intake.on_jump = self._forget_before_jump
        self.set_factor = self.intake.set_factor
        self._n = len(joints.joint_names)
        self.on_sample: Callable[[float, Array, Array], None] | None = None
        self._recent = RecentPostures()
        self._newest_values: Array | None = None
        self._listeners: list[tuple[Listener, Callable[[], bool]]] = []

    def stop(self) -> None:
        """Unsubscribe; recorded samples are kept, the posture is discarded."""
        super().stop()
        self._recent.clear()

    def listen(self, listener: Listener, wanted: Callable[[], bool]) -> None:
        """Call a function with usable messages.

        Args:
            listener: Called with stamp [s], position, velocity and torque.
            wanted: Returns whether it needs every message; otherwise it is not called with those
                that have queued up.

        """
        self._listeners.append((listener, wanted))

    def _note(self, message: Message) -> None:
        if message.state is State.UNREADABLE:
            return
        stamp, n = to_seconds(message.stamp), self._n
        posture = message.values[:n]
        if message.state is not State.USABLE:
            # An arm without usable efforts is still monitored.
            if message.state is not State.IMPLAUSIBLE and np.isfinite(posture).all():
                self._note_posture(stamp, posture)
            return
        self._note_posture(stamp, posture)
        self._newest_values = message.values
        if self._listeners or self.recording:
            row = self.intake.decoder.recordable(message.values)
            for listener, _ in self._listeners:
                listener(stamp, row[:n], row[n:2 * n], row[2 * n:])
            if self.recording and self.on_sample is not None:
                self.on_sample(stamp, row[:n], row[2 * n:])

    def _look_at_all(self, decoded: Decoded, rows: Rows) -> bool:
        if not len(rows) or (self.recording and self.on_sample is not None) or any(
                wanted() for _, wanted in self._listeners):
            return False
        self._bad_in_a_row = 0
        self._usable += len(rows)
        self._last_received = self._now()
        self._newest_values = decoded.values[rows[-1]]
        times = to_seconds(decoded.stamps[rows])
        recent = np.flatnonzero(times >= times[-1] - _RECENT)
        for stamp, row in zip(times[recent].tolist(), rows[recent].tolist(), strict=True):
            self._recent.note(stamp, decoded.values[row, :self._n])
        return True

    def _note_posture(self, stamp: float, posture: Array) -> None:
        self._last_received = self._now()
        self._recent.note(stamp, posture)

    def _forget_before_jump(self, stamp: float) -> None:
        back = bool(self._recent) and stamp < self._recent[-1][0]
        self._node.get_logger().warning(
            f'The clock jumped {"back" if back else "ahead"} to {stamp:.3f} s; the '
            f'{self.recorded} joint samples recorded before are discarded.{self.several}',
            throttle_duration_sec=1.0)
        self._recent.clear()

    def _note_values(self, message: Message) -> None:
        """Do nothing: encoders of a resting arm may send the same values."""

    # -------------------------------------------------------------------- watching

    @property
    def several(self) -> str:
        """Sentence about further publishers of the topic, after a space; empty without them."""
        publishers = self._node.count_publishers(self.topic)
        return '' if publishers < 2 else (
            f" {publishers} nodes publish on '{self.topic}': if more than one has this arm's "
            'joints, end one of them or give each arm a namespace.')

    @property
    def need_effort(self) -> bool:
        """True if a message without effort is unusable."""
        return self.intake.decoder.need_effort

    @need_effort.setter
    def need_effort(self, needed: bool) -> None:
        self.intake.decoder.need_effort = needed

    @property
    def latest(self) -> tuple[float, Array] | None:
        """Newest stamp and posture, or None."""
        return self._recent[-1] if self._recent else None

    def posture(self) -> Array:
        """Return the newest posture, shape (n,) [rad].

        Raises:
            DataError: If none was received.

        """
        if not self._recent:
            raise DataError(
                f'{self.intake.problem or "No joint states received."} Expected '
                f"sensor_msgs/JointState on '{self.topic}'.")
        return self._recent[-1][1]

    def torque(self) -> Array:
        """Return the newest torques, shape (n,) [N·m]; NaN where they are unknown."""
        if self._newest_values is None:
            return np.full(self._n, np.nan)
        return np.asarray(self._newest_values[2 * self._n:])

    def travel(self, window: float) -> float:
        """Return the largest joint travel within the newest ``window`` seconds [rad].

        Infinite until messages span that time.
        """
        return self._recent.travel(window)

    @property
    def period(self) -> float:
        """Mean interval between the newest messages, 0 if there are too few [s]."""
        recent = self._recent
        return (recent[-1][0] - recent[0][0]) / (len(recent) - 1) if len(recent) > 1 else 0.0


WrenchStream = Stream[WrenchIntake]
TrackerStream = Stream[TrackerIntake]


WARMER = 0.5
"""Change of a temperature that is passed on [K]: friction is computed anew for it."""


def temperature_stream(
    node: Node, group: CallbackGroup, topic: str, use: Callable[[float], None] = lambda _: None
) -> Stream[Intake]:
    """Return a stream of temperatures; arguments as for ``Stream``.

    Args:
        node: The node.
        group: A reentrant callback group.
        topic: The topic, of sensor_msgs/Temperature.
        use: Called with a temperature [°C] that differs from that of the last call by
            ``WARMER`` or more.

    """
    used = np.nan

    def take(message: Message) -> None:
        nonlocal used
        if message.state is State.USABLE and not abs(message.values[0] - used) < WARMER:
            (used,) = message.values
            use(used)

    return Stream(node, group, Temperature, topic, temperature_intake(topic), on_message=take)
