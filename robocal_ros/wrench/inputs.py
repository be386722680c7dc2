# SPDX-License-Identifier: Apache-2.0
"""Joint states, F/T readings and IMU readings into the observer, at a kilohertz.

Waking the executor costs more than all that is computed from a message. So one stream wakes it,
and all others are emptied on the way; which one, the streams decide by coming last.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from geometry_msgs.msg import WrenchStamped
from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from sensor_msgs.msg import Imu, JointState

from robocal_ros.arrays import Array
from robocal_ros.messages.samples import StreamCounts
from robocal_ros.messages.stamps import StampGuard
from robocal_ros.messages.subscription import SPARSE, Listening
from robocal_ros.wrench.messages import ImuReader, JointReader, SensorReader
from robocal_ros.wrench.observer import WrenchObserver
from robocal_ros.wrench.parameters import SensorSource

# Wakes after which the waking stream is judged, and the share of wakes in vain that is too many.
_TRIAL = 200
_IN_VAIN = 0.5
# Without a wake for so long others are looked at all the same [s].
_SILENT = 0.05
# How long to watch the waking stream without the executor [s].
_LINGER = 0.016


def _newest(stream: Stream) -> float:
    return stream.guard.newest


class WrenchInputs:
    """All that the observer hears.

    Attributes:
        counts: What the joint states went through.

    """

    def __init__(
        self, node: Node, observer: WrenchObserver, factor: Array, *, max_delay: float,
        on_ready: Callable[[], None],
    ) -> None:
        """Prepare to listen.

        Args:
            node: The node.
            observer: Takes the samples.
            factor: From the driver's effort to torque, joint by joint, shape (n,).
            max_delay: Longest wait for a sensor, by stamps [s].
            on_ready: Called when there may be something to observe.

        """
        self._node = node
        self._observer = observer
        self._factor = factor
        self._on_ready = on_ready
        sensors = observer.sensors
        self._joint_reader = JointReader(observer.arm.robot.joint_names)
        self._heard = -1.0
        self._wakes = self._in_vain = 0
        self._joints = Stream(node, JointState, 'joint_states', self._on_joints, self._woken)
        self._sensors = [
            Stream(node, WrenchStamped, sensor.topic, self._sensor_receiver(index, sensor),
                   self._woken)
            for index, sensor in enumerate(sensors)
        ]
        self._imus = {
            index: Stream(node, Imu, sensor.imu.topic, self._imu_receiver(index), self._woken)
            for index, sensor in enumerate(sensors) if sensor.imu is not None
        }
        self._streams = [self._joints, *self._sensors, *self._imus.values()]
        self._imu_only = len(self._imus) == len(sensors)
        self._waker = self._sensors[0] if self._imu_only else self._joints
        self._waker.gate.is_open = True
        # Only what others wait for can come too late.
        self._leading = [self._joints, *self._sensors]
        self._late: Stream | None = None
        self._max_delay = max_delay
        self._woken_at = float('-inf')

    def listen(self) -> None:
        """Subscribe; what was observed before is forgotten."""
        self._observer.clear()
        for stream in self._streams:
            stream.listen()

    def rest(self) -> None:
        """Unsubscribe."""
        for stream in self._streams:
            stream.rest()

    destroy = rest

    def set_factor(self, factor: Array) -> None:
        """Change what turns the driver's efforts into torques, shape (n,)."""
        self._factor = factor

    @property
    def counts(self) -> StreamCounts:
        """What the joint states went through."""
        return self._joints.guard.counts

    @property
    def dropped(self) -> int:
        """How many messages of all streams are missing, by the gaps between stamps."""
        return sum(stream.guard.counts.dropped for stream in self._streams)

    @property
    def heard(self) -> float:
        """Newest stamp of the joint states, negative before the first [s]."""
        return self._heard

    @property
    def joint_complaint(self) -> str:
        """Why the last joint states were of no use, empty if they were."""
        return self._joint_reader.complaint

    # -------------------------------------------------------------------- receiving

    def poll(self) -> None:
        """Take what waits if the stream that should wake is silent; called now and then."""
        if time.monotonic() - self._woken_at < _SILENT:
            return
        if not self._imu_only and self._waker is not self._joints:
            self._wake_by(self._joints)
        self._take_all()

    def _woken(self) -> None:
        """Take all that is there, and what comes within the next milliseconds too.

        At a kilohertz the executor's own round costs more than the work; lingering here saves
        most of the rounds, and the node's other callbacks wait a few milliseconds at most.
        """
        self._take_all()
        self._judge_waker()
        now = came = time.monotonic()
        end = now + _LINGER
        while now < end:
            if self._waker.wait(min(end - now, SPARSE)):
                self._waker.empty()
                came = time.monotonic()
                self._take_all()
                self._judge_waker()
            now = time.monotonic()
            if now - came > SPARSE:
                # Too rare to be worth the watching.
                return

    def _take_all(self) -> None:
        # The waking stream too: whoever is behind catches up without a wake for each message.
        for stream in self._streams:
            stream.empty()
        self._on_ready()

    def _judge_waker(self) -> None:
        """Have the stream that comes last wake, so that nothing waits for the next round."""
        if self._imu_only:
            return
        self._woken_at = time.monotonic()
        self._wakes += 1
        now = self._waker.guard.newest
        latest = min(self._leading, key=_newest)
        if 0.0 < now - latest.guard.newest <= self._max_delay:
            self._in_vain += 1
            self._late = latest
        if self._wakes < _TRIAL:
            return
        if self._in_vain > _IN_VAIN * self._wakes and self._late is not None:
            self._wake_by(self._late)
        self._wakes = self._in_vain = 0

    def _wake_by(self, stream: Stream) -> None:
        self._waker.gate.is_open = False
        stream.gate.is_open = True
        self._waker = stream
        self._late = None

    def _admitted(self, guard: LeanGuard, stamp: float) -> bool:
        jumps = guard.jumps
        if not guard.admit(stamp):
            return False
        if guard.jumps > jumps:
            self._note_jump(stamp)
        return True

    def _note_jump(self, stamp: float) -> None:
        # At once, so that what comes after the jump is not forgotten with what came before.
        self._observer.clear()
        self._node.get_logger().warning(
            f'The clock jumped back to {stamp:.3f} s; samples from before are forgotten.',
            throttle_duration_sec=1.0)

    def _on_joints(self, raw: bytes) -> None:
        stamp, position, velocity, effort = self._joint_reader.read(raw)
        if not self._admitted(self._joints.guard, stamp):
            return
        self._heard = stamp
        if position is None:
            self._observer.refuse_joint_state(self._joint_reader.complaint)
            return
        self._observer.add_joint_state(
            stamp, position, velocity, None if effort is None else effort * self._factor)

    def _sensor_receiver(self, index: int, sensor: SensorSource) -> Callable[[bytes], None]:
        reader, expected, sign = SensorReader(), sensor.frame, sensor.sign

        def receive(raw: bytes) -> None:
            frame, stamp, values = reader.read(raw)
            if not self._admitted(self._sensors[index].guard, stamp):
                return
            if frame != expected:
                self._observer.feeds[index].refuse_frame(frame)
                return
            if sign != 1.0:
                values = tuple(-value for value in values)
            self._observer.add_reading(index, stamp, values)

        return receive

    def _imu_receiver(self, index: int) -> Callable[[bytes], None]:
        reader = ImuReader()
        feed = self._observer.imu_feeds[index]
        expected = feed.name

        def receive(raw: bytes) -> None:
            frame, stamp, values = reader.read(raw)
            if not self._admitted(self._imus[index].guard, stamp):
                return
            if frame != expected:
                feed.refuse_frame(frame)
                return
            feed.add(stamp, values)

        return receive


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
        self, node: Node, kind: Any, topic: str, receive: Callable[[bytes], None],
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
