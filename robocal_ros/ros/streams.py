# SPDX-License-Identifier: Apache-2.0
"""Topics into samples: joint order by name, stamps in order, gaps and drops counted.

A stream listens from configure to cleanup, so that the arm can be watched at any time; it
records only while asked to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from geometry_msgs.msg import WrenchStamped
from sensor_msgs.msg import JointState
from std_msgs.msg import Header

from robocal_ros.core.arrays import Array
from robocal_ros.core.samples import JointSamples, StreamCounts, WrenchSamples
from robocal_ros.errors import DataError
from robocal_ros.ros import conversions, qos

if TYPE_CHECKING:
    from rclpy.callback_groups import CallbackGroup
    from rclpy.node import Node

# A stamp this much older than the newest one is a jump of the clock, not a late message; so are
# this many older stamps in a row that increase among themselves.
_CLOCK_JUMP = 1.0
_LATE_IN_A_ROW = 10
_RECENT = 0.3
_ACKNOWLEDGE_EVERY = 0.01
_BAD_IN_A_ROW = 10
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

    def values(self) -> Array:
        return self._block[: self.count].copy()


class StampGuard:
    """Tells new stamps from repeated, late and jumping ones, and counts the gaps."""

    def __init__(self) -> None:
        """Start with nothing heard."""
        self.counts = StreamCounts()
        self.newest = -np.inf
        self._intervals: deque[float] = deque(maxlen=101)
        self._period = 0.0
        self._admitted = 0
        self._late = 0
        self._late_stamp = np.inf

    def count(self, **more: int) -> None:
        """Add to the counts by name."""
        self.counts = replace(
            self.counts, **{name: getattr(self.counts, name) + n for name, n in more.items()}
        )

    def reset_counts(self) -> None:
        """Start counting anew."""
        self.counts = StreamCounts()

    def admit(self, stamp: float) -> bool:
        """Take note of a stamp; return whether its message counts.

        A jump back of the clock counts too; tell it by ``counts.clock_jumps``.
        """
        self.count(received=1)
        step = stamp - self.newest
        if step <= 0.0:
            self._late = self._late + 1 if stamp > self._late_stamp else 1
            self._late_stamp = stamp
            if step > -_CLOCK_JUMP and self._late < _LATE_IN_A_ROW:
                self.count(out_of_order=1)
                return False
            self.count(clock_jumps=1)
            self._intervals.clear()
        elif np.isfinite(step):
            if self._period > 0.0 and step > 1.5 * self._period:
                self.count(dropped=round(step / self._period) - 1)
            self._learn_period(step)
        self.newest = stamp
        self._late, self._late_stamp = 0, np.inf
        return True

    def _learn_period(self, step: float) -> None:
        """Keep the median interval; a new one now and then is enough, and cheap."""
        self._intervals.append(step)
        self._admitted += 1
        if self._admitted % 50 == 20:
            self._period = float(np.median(self._intervals))


class JointStateStream:
    """The arm's joint states, in the order of its joints.

    Attributes:
        recording: Whether samples are kept.
        need_effort: Whether a message without effort is unusable.
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
        """Subscribe.

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
        self._factor = factor
        self._on_sample = on_sample
        self._guard = StampGuard()
        self._rows = _Rows(1 + 3 * len(self._names))
        self._order: tuple[tuple[str, ...], list[int]] | None = None
        self._recent: deque[tuple[float, Array]] = deque()
        self._heard = -np.inf
        self._bad_in_a_row = 0
        self._complaint = ''
        self._acknowledged = -np.inf
        self.listeners: list[Callable[[float, Array], None]] = []
        self.recording = False
        self.need_effort = False
        self.source = 'live'
        self._subscription = node.create_subscription(
            JointState, 'joint_states', self._receive, qos.SENSOR, callback_group=group,
            qos_overriding_options=qos.overridable(),
        )
        # A simulator that runs as fast as its consumers keep up wants to know how far they are.
        self._clock_ack = (
            node.create_publisher(Header, 'clock_ack', qos.RELIABLE)
            if node.get_parameter('use_sim_time').value else None
        )

    def destroy(self) -> None:
        """Unsubscribe."""
        self._node.destroy_subscription(self._subscription)
        if self._clock_ack is not None:
            self._node.destroy_publisher(self._clock_ack)
            self._clock_ack = None

    # ------------------------------------------------------------------ receiving

    def _receive(self, message: JointState) -> None:
        stamp = conversions.seconds(message.header.stamp)
        jumps = self._guard.counts.clock_jumps
        if not self._guard.admit(stamp):
            return
        if self._guard.counts.clock_jumps > jumps:
            self._forget_before_jump(stamp)
        self._acknowledge(stamp)
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
            if self._on_sample is not None:
                self._on_sample(stamp, row[:n], row[2 * n:])

    def _note_posture(self, stamp: float, posture: Array) -> None:
        """Know where the arm is, even while the rest of its state is of no use."""
        self._heard = self._now()
        self._recent.append((stamp, posture))
        while stamp - self._recent[0][0] > _RECENT:
            self._recent.popleft()

    def _forget_before_jump(self, stamp: float) -> None:
        self._node.get_logger().warning(
            f'The clock jumped back to {stamp:.3f} s; the {self._rows.count} joint samples '
            'recorded before are forgotten.'
        )
        self._rows.clear()
        self._recent.clear()
        self._acknowledged = -np.inf

    def _acknowledge(self, stamp: float) -> None:
        if self._clock_ack is None or stamp - self._acknowledged < _ACKNOWLEDGE_EVERY:
            return
        self._acknowledged = stamp
        if self._clock_ack.get_subscription_count():
            self._clock_ack.publish(
                Header(stamp=conversions.to_stamp(stamp), frame_id=self._node.get_name()))

    def _columns(self, names: tuple[str, ...]) -> list[int] | None:
        if self._order is None or self._order[0] != names:
            missing = [name for name in self._names if name not in names]
            if missing:
                self._complaint = (
                    f"Joint '{missing[0]}' is missing from joint_states, which holds "
                    f'{", ".join(names) or "no names"}. Check joint_state_broadcaster.'
                )
                return None
            self._order = (names, [names.index(name) for name in self._names])
        return self._order[1]

    def _row(self, message: JointState, stamp: float) -> Array | None:
        """Return position, velocity, torque, or None with a complaint and a count."""
        names = tuple(message.name)
        columns = self._columns(names)
        if columns is None:
            self._guard.count(incomplete=1)
            return None
        if len(message.position) != len(names):
            self._complaint = (f'joint_states holds {len(message.position)} positions for '
                               f'{len(names)} joints.')
            self._guard.count(incomplete=1)
            return None
        n = len(columns)
        row = np.zeros(3 * n)
        row[:n] = np.asarray(message.position)[columns]
        if np.isfinite(row[:n]).all():
            self._note_posture(stamp, row[:n])
        if len(message.velocity) == len(names):
            velocity = np.asarray(message.velocity)[columns]
            row[n:2 * n] = np.where(np.isfinite(velocity), velocity, 0.0)
        if self.need_effort:
            if len(message.effort) != len(names):
                self._complaint = (
                    f'joint_states holds {len(message.effort)} efforts for {len(names)} joints; '
                    'the method needs the drive torque of every joint. Does the hardware '
                    'interface export an effort state?'
                )
                self._guard.count(incomplete=1)
                return None
            row[2 * n:] = np.asarray(message.effort)[columns] * self._factor
        return row if self._finite(row) else None

    def _finite(self, row: Array) -> bool:
        finite = np.isfinite(row)
        if finite.all():
            return True
        n = len(self._names)
        column = int(np.argmin(finite))
        what = ('Position', 'Velocity', 'Effort')[column // n]
        self._complaint = (
            f"{what} of joint '{self._names[column % n]}' is not a finite number in "
            'joint_states; joint_state_broadcaster sends NaN for what the hardware '
            'interface does not export.'
        )
        self._guard.count(not_finite=1)
        return False

    # -------------------------------------------------------------------- watching

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
                f"sensor_msgs/JointState on '{self._subscription.topic_name}'."
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
        self._factor = factor
        self._rows.clear()

    def forget_from(self, row: int) -> None:
        """Forget the samples from a row on: a motion that was cut short is no measurement."""
        self._rows.count = min(self._rows.count, row)

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
        """Subscribe.

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
        self._sign = sign
        self._now = now
        self._guard = StampGuard()
        self._rows = _Rows(7)
        self._bad_in_a_row = 0
        self._complaint = ''
        self._heard = -np.inf
        self.recording = False
        self._subscription = node.create_subscription(
            WrenchStamped, topic, self._receive, qos.SENSOR, callback_group=group,
            qos_overriding_options=qos.overridable(),
        )

    def destroy(self) -> None:
        """Unsubscribe."""
        self._node.destroy_subscription(self._subscription)

    def _receive(self, message: WrenchStamped) -> None:
        stamp = conversions.seconds(message.header.stamp)
        jumps = self._guard.counts.clock_jumps
        if not self._guard.admit(stamp):
            return
        if self._guard.counts.clock_jumps > jumps:
            self._rows.clear()
        row = self._sign * np.array(conversions.wrench_row(message))
        if message.header.frame_id != self._frame:
            self._bad(f"names frame '{message.header.frame_id}', but sensor_frame is "
                      f"'{self._frame}'; correct sensor_frame or the driver", incomplete=1)
        elif not np.isfinite(row).all():
            self._bad('sends values that are not finite numbers; check the sensor', not_finite=1)
        else:
            self._bad_in_a_row = 0
            self._heard = self._now()
            if self.recording and self._rows.count < _MAX_ROWS:
                self._rows.append((stamp, *row))

    def _bad(self, what: str, **count: int) -> None:
        self._bad_in_a_row += 1
        self._guard.count(**count)
        self._complaint = f"F/T topic '{self._subscription.topic_name}' {what}."

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
            return (f"No readings come on F/T topic '{self._subscription.topic_name}' {since}; "
                    'check sensor_topic and the sensor.')
        return ''

    def clear(self) -> None:
        """Forget what was recorded and start counting anew."""
        self._rows.clear()
        self._guard.reset_counts()

    @property
    def recorded(self) -> int:
        """Number of readings recorded."""
        return self._rows.count

    def samples(self) -> WrenchSamples:
        """Return what was recorded."""
        rows = self._rows.values()
        return WrenchSamples(self._frame, rows[:, 0], rows[:, 1:], self._guard.counts)
