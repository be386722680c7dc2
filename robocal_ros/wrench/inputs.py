# SPDX-License-Identifier: Apache-2.0
"""Joint states, F/T readings and IMU readings into the observer, at a kilohertz.

Waking the executor costs more than all that is computed from a message. So one stream wakes it,
and all others are emptied on the way; which one, the streams decide by coming last.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from geometry_msgs.msg import WrenchStamped
from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from sensor_msgs.msg import Imu, JointState

from robocal_ros.arrays import Array
from robocal_ros.messages.decode import Decoder, JointDecoder, Message, State
from robocal_ros.messages.intake import Intake
from robocal_ros.messages.stamps import to_seconds
from robocal_ros.messages.stream import Stream
from robocal_ros.messages.subscription import SPARSE
from robocal_ros.wrench.alignment import Feed
from robocal_ros.wrench.observer import WrenchObserver

# Wakes after which the waking stream is judged, and the share of wakes in vain that is too many.
_TRIAL = 200
_IN_VAIN = 0.5
# Without a wake for so long others are looked at all the same [s].
_SILENT = 0.05
# How long to watch the waking stream without the executor [s].
_LINGER = 0.016


class WrenchInputs:
    """All that the observer subscribes to."""

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
        self._on_ready = on_ready
        sensors = observer.sensors
        joint_names = observer.arm.robot.joint_names
        self._n = len(joint_names)
        self._decoder = JointDecoder(joint_names, factor)
        self._wakes = self._in_vain = 0
        self._joints = self._stream(JointState, 'joint_states', self._decoder, self._on_joints)
        self._sensors = [
            self._stream(WrenchStamped, sensor.topic, sensor.decoder(), _receiver(
                observer.feeds[index], partial(observer.add_reading, index)))
            for index, sensor in enumerate(sensors)
        ]
        self._imus = {
            index: self._stream(Imu, sensor.imu.topic, sensor.imu.decoder(), _receiver(
                observer.imu_feeds[index], observer.imu_feeds[index].add))
            for index, sensor in enumerate(sensors) if sensor.imu is not None
        }
        self._streams = [self._joints, *self._sensors, *self._imus.values()]
        self._imu_only = len(self._imus) == len(sensors)
        self._waker = self._sensors[0] if self._imu_only else self._joints
        self._waker.gate.is_open = True
        # Only what others wait for can come too late.
        self._leading = [self._joints, *self._sensors]
        self._late: WakingStream | None = None
        self._max_delay = max_delay
        self._woken_at = float('-inf')

    def _stream(
        self, kind: Any, topic: str, decoder: Decoder, receive: Callable[[Message], None]
    ) -> WakingStream:
        stream = WakingStream(self._node, kind, topic, Intake(decoder), receive, self._woken)
        stream.intake.on_jump = self._note_jump
        return stream

    def start(self) -> None:
        """Subscribe; what was observed before is forgotten."""
        self._observer.clear()
        for stream in self._streams:
            stream.start()

    def stop(self) -> None:
        """Unsubscribe."""
        for stream in self._streams:
            stream.stop()

    destroy = stop

    def set_factor(self, factor: Array) -> None:
        """Change what turns the driver's efforts into torques, shape (n,)."""
        self._decoder.factor = factor

    @property
    def dropped(self) -> int:
        """How many messages of all streams are missing, by the gaps between stamps."""
        return sum(stream.counts.dropped for stream in self._streams)

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
                self._waker.drain()
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
            stream.drain()
        self._on_ready()

    def _judge_waker(self) -> None:
        """Have the stream that comes last wake, so that nothing waits for the next round."""
        if self._imu_only:
            return
        self._woken_at = time.monotonic()
        self._wakes += 1
        now = self._waker.newest
        latest = min(self._leading, key=lambda stream: stream.newest)
        if 0.0 < now - latest.newest <= self._max_delay:
            self._in_vain += 1
            self._late = latest
        if self._wakes < _TRIAL:
            return
        if self._in_vain > _IN_VAIN * self._wakes and self._late is not None:
            self._wake_by(self._late)
        self._wakes = self._in_vain = 0

    def _wake_by(self, stream: WakingStream) -> None:
        self._waker.gate.is_open = False
        stream.gate.is_open = True
        self._waker = stream
        self._late = None

    def _note_jump(self, stamp: float) -> None:
        # At once, so that what comes after the jump is not forgotten with what came before.
        self._observer.clear()
        self._node.get_logger().warning(
            f'The clock jumped back to {stamp:.3f} s; samples from before are forgotten.',
            throttle_duration_sec=1.0)

    def _on_joints(self, message: Message) -> None:
        if message.state is not State.USABLE:
            self._observer.refuse_joint_state(message.reason)
            return
        values, n = message.values, self._n
        self._observer.add_joint_state(
            to_seconds(message.stamp), values[:n], values[n:2 * n], values[2 * n:])


def _receiver(
    feed: Feed, add: Callable[[float, tuple[float, ...]], None]
) -> Callable[[Message], None]:
    def receive(message: Message) -> None:
        if message.state is State.USABLE:
            add(to_seconds(message.stamp), tuple(message.values))
        else:
            feed.refuse(message.reason)

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


class WakingStream(Stream[Intake]):
    """One topic that wakes the executor or is emptied by others; nothing of it is recorded.

    Attributes:
        gate: Whether it wakes the executor.

    """

    def __init__(
        self, node: Node, kind: Any, topic: str, intake: Intake,
        receive: Callable[[Message], None], wake: Callable[[], None],
    ) -> None:
        """Prepare to listen, without waking the executor.

        Args:
            node: The node.
            kind: Type of the messages.
            topic: The topic.
            intake: Decodes and judges its messages.
            receive: Called with every message that counts.
            wake: Called after a message that woke the executor.

        """
        self.gate = Gate(False)
        super().__init__(node, self.gate, kind, topic, intake, on_message=receive, wake=wake)
