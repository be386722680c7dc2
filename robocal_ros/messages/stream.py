# SPDX-License-Identifier: Apache-2.0
"""Topics into samples: joint order by name, stamps in order, gaps and drops counted.

A stream hears while its node is active, so that the arm can be watched then; it records only
while asked to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from geometry_msgs.msg import WrenchStamped
from sensor_msgs.msg import JointState

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.messages import conversions
from robocal_ros.messages.decode import JointRows, WrenchRows
from robocal_ros.messages.discovery import elsewhere
from robocal_ros.messages.samples import JointSamples, StreamCounts, WrenchSamples
from robocal_ros.messages.stamps import StampGuard
from robocal_ros.messages.subscription import Listening

if TYPE_CHECKING:
    from rclpy.callback_groups import CallbackGroup
    from rclpy.node import Node


_RECENT = 0.3
_BAD_IN_A_ROW = 10
# How long everything else may wait for joint states that are being watched [s].
_LINGER = 0.01
_MAX_ROWS = 3_000_000


class _Rows:
    """A growing block of rows: stamp first."""

    def __init__(self, columns: int) -> None:
        self._block = np.empty((4096, columns))
        self.count = 0

    def append(self, row: Sequence[float] | Array) -> None:
        if self.count == len(self._block):
            self._block = np.concatenate((self._block, np.empty_like(self._block)))
        self._block[self.count] = row
        self.count += 1

    def clear(self) -> None:
        self.count = 0

    @property
    def newest(self) -> float:
        return float(self._block[self.count - 1, 0]) if self.count else -np.inf

    def values(self) -> Array:
        return self._block[: self.count].copy()


class JointStateStream:
    """The arm's joint states, in the order of its joints.

    Attributes:
        recording: Whether samples are kept.
        on_sample: Called while recording with stamp, position and torque; None for nobody.
        listeners: Called with stamp and velocity of every usable message.
        source: ``live``, or the name of a bag.

    """

    def __init__(
        self,
        node: Node,
        group: CallbackGroup,
        joint_names: Sequence[str],
        *,
        now: Callable[[], float],
        factor: Array,
        on_sample: Callable[[float, Array, Array], None] | None = None,
    ) -> None:
        """Prepare to listen.

        Args:
            node: The node.
            group: A reentrant callback group.
            joint_names: Names of the n joints wanted.
            now: Steady clock [s], for noticing silence.
            factor: From the driver's effort to torque, joint by joint, shape (n,).
            on_sample: Called while recording with stamp, position and torque.

        """
        self._node = node
        self._names = tuple(joint_names)
        self._now = now
        self._reader = JointRows(self._names, factor)
        self.on_sample = on_sample
        self._guard = StampGuard()
        self._rows = _Rows(1 + 3 * len(self._names))
        self._recent: deque[tuple[float, Array]] = deque()
        self._heard = -np.inf
        self._bad_in_a_row = 0
        self._complaint = ''
        self.listeners: list[Callable[[float, Array], None]] = []
        self.recording = False
        self.source = 'live'
        self._listening = Listening(
            node, group, JointState, 'joint_states', self._receive, linger=_LINGER)

    def listen(self) -> None:
        """Subscribe."""
        self._listening.listen()

    def rest(self) -> None:
        """Unsubscribe; what was recorded stays, where the arm is gets forgotten."""
        self._listening.rest()
        self._recent.clear()
        self._heard = -np.inf

    destroy = rest

    # ------------------------------------------------------------------ receiving

    def _receive(self, message: JointState) -> None:
        stamp = conversions.seconds(message.header.stamp)
        jumps = self._guard.counts.clock_jumps
        if not self._guard.admit(stamp):
            return
        if self._guard.counts.clock_jumps > jumps:
            self._forget_before_jump(stamp)
        row = self._row(message, stamp)
        if row is None:
            self._bad_in_a_row += 1
            return
        self._bad_in_a_row = 0
        n = len(self._names)
        for listener in self.listeners:
            listener(stamp, row[n:2 * n])
        if self.recording and self._rows.count < _MAX_ROWS:
            self._rows.append(np.concatenate(([stamp], row)))
            if self.on_sample is not None:
                self.on_sample(stamp, row[:n], row[2 * n:])

    def _note_posture(self, stamp: float, posture: Array) -> None:
        """Know where the arm is, even while the rest of its state is of no use."""
        self._heard = self._now()
        self._recent.append((stamp, posture))
        while stamp - self._recent[0][0] > _RECENT:
            self._recent.popleft()

    def _forget_before_jump(self, stamp: float) -> None:
        publishers = self._node.count_publishers(self._listening.topic)
        several = '' if publishers < 2 else (
            f" {publishers} nodes publish on '{self._listening.topic}': if they do not tell the "
            'same time, end one of them or give each arm a namespace.')
        self._node.get_logger().warning(
            f'The clock jumped back to {stamp:.3f} s; the {self._rows.count} joint samples '
            f'recorded before are forgotten.{several}', throttle_duration_sec=1.0)
        self._rows.clear()
        self._recent.clear()

    def _row(self, message: JointState, stamp: float) -> Array | None:
        """Return position, velocity, torque, or None with a complaint and a count."""
        read = self._reader.read(
            tuple(message.name), np.asarray(message.position)[None],
            np.asarray(message.velocity)[None], np.asarray(message.effort)[None])
        row: Array = read.values[0]
        posture = row[:len(self._names)]
        if np.isfinite(posture).all():
            self._note_posture(stamp, posture)
        if read.usable[0]:
            return row
        self._complaint = read.complaint
        self._guard.count(incomplete=read.incomplete, not_finite=read.not_finite)
        return None

    # -------------------------------------------------------------------- watching

    @property
    def need_effort(self) -> bool:
        """Whether a message without effort is unusable."""
        return self._reader.need_effort

    @need_effort.setter
    def need_effort(self, needed: bool) -> None:
        self._reader.need_effort = needed

    def age(self) -> float:
        """Return how long no posture of the arm has come, by the steady clock [s]."""
        return float(self._now() - self._heard)

    def complaint(self) -> str:
        """Return what is wrong with the messages that come, or an empty string."""
        return self._complaint if self._bad_in_a_row >= _BAD_IN_A_ROW else ''

    @property
    def latest(self) -> tuple[float, Array] | None:
        """Newest stamp and posture, or None."""
        return self._recent[-1] if self._recent else None

    def posture(self) -> Array:
        """Return the newest posture, shape (n,) [rad].

        Raises:
            DataError: If none has come.

        """
        if not self._recent:
            raise DataError(
                f'{self._complaint or "No joint states have come."} Expected '
                f"sensor_msgs/JointState on '{self._listening.topic}'."
            )
        return self._recent[-1][1]

    def travel(self, window: float) -> float:
        """Return the largest joint travel within the newest ``window`` seconds [rad].

        Infinite while less than that has been heard.
        """
        if not self._recent:
            return float('inf')
        newest = self._recent[-1][0]
        rows = [row for stamp, row in self._recent if newest - stamp <= window + 1e-9]
        if newest - self._recent[0][0] < 0.8 * window or len(rows) < 2:
            return float('inf')
        return float(np.ptp(np.array(rows), axis=0).max())

    # ------------------------------------------------------------------- recording

    def clear(self) -> None:
        """Forget what was recorded and start counting anew."""
        self._rows.clear()
        self._guard.reset_counts()

    def set_factor(self, factor: Array) -> None:
        """Change what turns the driver's effort into torque; what was recorded is forgotten."""
        self._reader.factor = factor
        self._rows.clear()

    def forget_from(self, row: int) -> tuple[float, float]:
        """Forget the samples from a row on: a motion that was cut short is no measurement.

        Returns:
            The stamp after which, and that up to which samples are forgotten [s].

        """
        self._rows.count = min(self._rows.count, row)
        return self._rows.newest, self.newest

    @property
    def newest(self) -> float:
        """Newest stamp that has come, -inf before the first [s]."""
        return self._guard.newest

    @property
    def counts(self) -> StreamCounts:
        """What the stream went through since the last clear."""
        return self._guard.counts

    @property
    def recorded(self) -> int:
        """Number of samples recorded."""
        return self._rows.count

    def samples(self) -> JointSamples:
        """Return what was recorded."""
        rows, n = self._rows.values(), len(self._names)
        return JointSamples(
            self._names, rows[:, 0], rows[:, 1:1 + n], rows[:, 1 + n:1 + 2 * n],
            rows[:, 1 + 2 * n:], self._guard.counts, self.source,
        )


class WrenchStream:
    """One F/T sensor's readings."""

    def __init__(
        self, node: Node, group: CallbackGroup, topic: str, frame: str, sign: float,
        *, now: Callable[[], float],
    ) -> None:
        """Prepare to listen.

        Args:
            node: The node.
            group: A reentrant callback group.
            topic: The sensor's topic.
            frame: The frame that its messages must name.
            sign: +1, or -1 for a sensor that reports what it exerts on the distal side.
            now: Steady clock [s], for noticing silence.

        """
        self._node = node
        self._frame = frame
        self._reader = WrenchRows(frame, sign)
        self._now = now
        self._guard = StampGuard()
        self._rows = _Rows(7)
        self._bad_in_a_row = 0
        self._complaint = ''
        self._heard = -np.inf
        self.recording = False
        self._listening = Listening(node, group, WrenchStamped, topic, self._receive)

    def listen(self) -> None:
        """Subscribe."""
        self._listening.listen()

    def rest(self) -> None:
        """Unsubscribe; what was recorded stays."""
        self._listening.rest()
        self._heard = -np.inf

    destroy = rest

    def _receive(self, message: WrenchStamped) -> None:
        stamp = conversions.seconds(message.header.stamp)
        jumps = self._guard.counts.clock_jumps
        if not self._guard.admit(stamp):
            return
        if self._guard.counts.clock_jumps > jumps:
            self._rows.clear()
        read = self._reader.read(
            message.header.frame_id, np.array([conversions.wrench_row(message)]), self._told)
        if not read.usable[0]:
            self._bad_in_a_row += 1
            self._guard.count(incomplete=read.incomplete, not_finite=read.not_finite)
            self._complaint = read.complaint
            return
        self._bad_in_a_row = 0
        self._heard = self._now()
        if self.recording and self._rows.count < _MAX_ROWS:
            self._rows.append((stamp, *read.values[0]))

    def _told(self, what: str) -> str:
        return f"F/T topic '{self._listening.topic}' {what}."

    def age(self) -> float:
        """Return how long no usable reading has come, by the steady clock [s]."""
        return float(self._now() - self._heard)

    def complaint(self, patience: float) -> str:
        """Return what is wrong with the readings, or an empty string.

        Args:
            patience: Longest acceptable silence, by the steady clock [s].

        """
        if self._bad_in_a_row >= _BAD_IN_A_ROW:
            return self._complaint
        if self.age() > patience:
            since = f'for {self.age():.1f} s' if np.isfinite(self._heard) else 'at all'
            return (f"No readings come on F/T topic '{self._listening.topic}' {since}. "
                    f"{elsewhere(self._node, self._listening.topic, WrenchStamped)} "
                    'Check sensor_topic and the sensor.')
        return ''

    def clear(self) -> None:
        """Forget what was recorded and start counting anew."""
        self._rows.clear()
        self._guard.reset_counts()

    @property
    def newest(self) -> float:
        """Newest stamp that has come, -inf before the first [s]."""
        return self._guard.newest

    @property
    def recorded(self) -> int:
        """Number of readings recorded."""
        return self._rows.count

    def samples(self) -> WrenchSamples:
        """Return what was recorded."""
        rows = self._rows.values()
        return WrenchSamples(self._frame, rows[:, 0], rows[:, 1:], self._guard.counts)
