# SPDX-License-Identifier: Apache-2.0
"""Subscriptions of the observer: joint states, F/T readings and IMU readings at 1 kHz.

Waking the executor costs more than the computation on a message. So only one stream, the one
that arrives last, wakes it, and all others are emptied on that occasion. None does while nobody
needs the outputs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from geometry_msgs.msg import WrenchStamped
from rclpy.node import Node
from sensor_msgs.msg import Imu, JointState

from robocal_ros.arrays import Array
from robocal_ros.messages import (
    SPARSE,
    ConditionalGroup,
    Intake,
    JointIntake,
    Message,
    State,
    Stream,
)
from robocal_ros.wrench.observer import WrenchObserver
from robocal_ros.wrench.parameters import IMU

# Wake-ups after which the waking stream is reviewed, and the fraction in which another one must
# have arrived last.
_TRIAL = 200
_EARLY_SHARE = 0.5
# Time without a wake-up after which another stream wakes [s].
_SILENT = 0.05
# Time for which the waking stream is watched without the executor [s]. A turn of the executor
# delays the samples that arrive during it.
_LINGER = 0.04


class WrenchInputs:
    """Subscriptions of the observer.

    Attributes:
        at_once: Whether samples are processed as they arrive; otherwise ``attend`` takes them.
        set_factor: Sets the torque per effort of the driver, shape (n,).

    """

    def __init__(
        self, node: Node, observer: WrenchObserver, factor: Array, on_ready: Callable[[], None]
    ) -> None:
        """Create the streams, not subscribed yet.

        Args:
            node: The node.
            observer: Receives the samples.
            factor: Torque per effort of the driver, joint by joint, shape (n,).
            on_ready: Called when samples may be complete.

        """
        self._node = node
        self._observer = observer
        self._on_ready = on_ready
        intake = JointIntake(observer.arm.robot, factor)
        self.set_factor = intake.set_factor
        # Streams that arrived last, by wake-up.
        self._last = Counter[WakingStream]()
        joints = self._stream(
            JointState, 'joint_states', intake, observer.joint_chains.take_state)
        self._streams = [joints, *(
            self._stream(Imu if source.kind == IMU else WrenchStamped, source.topic,
                         Intake(source.decoder()), feed.take)
            for source, feed in observer.inputs)]
        # Only streams that others wait for can be late: all but IMUs.
        self._leading = self._streams[:1 + len(observer.sensors)]
        self._waker, self.at_once = joints, True
        self._woken_at = float('-inf')

    def _stream(
        self, kind: Any, topic: str, intake: Intake, take: Callable[[int | None, Any], None]
    ) -> WakingStream:
        stream = WakingStream(
            self._node, kind, topic, intake, take, self._woken,
            lambda own: self.at_once and own is self._waker)
        stream.intake.on_jump = self._note_jump
        return stream

    def start(self) -> None:
        """Subscribe; earlier samples are discarded."""
        self._observer.clear()
        self.at_once = True
        for stream in self._streams:
            stream.start()

    def stop(self) -> None:
        """Unsubscribe."""
        for stream in self._streams:
            stream.stop()

    destroy = stop

    @property
    def dropped(self) -> int:
        """Number of messages missing on all streams, by the gaps between stamps."""
        return sum(stream.counts.dropped for stream in self._streams)

    # -------------------------------------------------------------------- receiving

    def attend(self, at_once: bool) -> None:
        """Empty all streams, unless one wakes the executor; called periodically.

        Args:
            at_once: Whether samples are processed as they arrive from now on.

        """
        now = time.monotonic()
        if at_once and not self.at_once:
            self._woken_at = now
        self.at_once = at_once
        if at_once:
            if now - self._woken_at < _SILENT:
                return
            # What wakes has fallen silent.
            self._waker = max(self._leading, key=lambda stream: stream.newest)
        self.take_all()

    def _woken(self) -> None:
        """Empty all streams, and those messages that follow within some 40 ms too.

        At 1 kHz a turn of the executor costs more than the work; lingering here saves most
        of the turns. Other callbacks of the node wait for that time at most.
        """
        self.take_all()
        self._review_waker()
        now = came = time.monotonic()
        end = now + _LINGER
        while now < end:
            if self._waker.wait(min(end - now, SPARSE)):
                came = time.monotonic()
                self.take_all()
                self._review_waker()
            now = time.monotonic()
            if now - came > SPARSE:
                # Too slow to be worth watching.
                return

    def take_all(self) -> None:
        """Empty all streams, and process what they hold."""
        # The waking stream too, to catch up without a wake-up per message.
        for stream in self._streams:
            if self.at_once:
                stream.drain()
            else:
                stream.catch_up()
        for window in self._observer.windows:
            window.compare(time.monotonic(), lambda: self._node.get_clock().now().nanoseconds)
        self._on_ready()

    def _review_waker(self) -> None:
        """Let the stream that arrives last wake, so that no sample waits for the next cycle."""
        self._woken_at = time.monotonic()
        now = self._waker.newest
        late = min(self._leading, key=lambda stream: stream.newest)
        early = 0.0 < now - late.newest <= self._observer.values.max_delay
        self._last[late if early else self._waker] += 1
        if self._last.total() >= _TRIAL:
            stream, count = self._last.most_common(1)[0]
            if count > _EARLY_SHARE * _TRIAL:
                self._waker = stream
            self._last.clear()

    def _note_jump(self, stamp: float) -> None:
        # At once, so that samples after the jump are kept.
        self._observer.clear()
        self._node.get_logger().warning(
            f'The clock jumped back to {stamp:.3f} s; earlier samples are discarded.',
            throttle_duration_sec=1.0)


class WakingStream(Stream[Intake]):
    """Topic that wakes the executor or is emptied by others; it is not recorded."""

    def __init__(
        self, node: Node, kind: Any, topic: str, intake: Intake,
        take: Callable[[int | None, Any], None], wake: Callable[[], None],
        wakes: Callable[[WakingStream], bool],
    ) -> None:
        """Prepare the subscription.

        Args:
            node: The node.
            kind: Type of the messages.
            topic: The topic.
            intake: Decodes and checks its messages.
            take: Called with the stamp of every accepted message [ns], None if it has none, and
                its values, or its problem as text.
            wake: Called after a message that woke the executor.
            wakes: Returns whether this stream wakes the executor now.

        """
        self._pass_on = take
        super().__init__(
            node, ConditionalGroup(lambda: wakes(self)), kind, topic, intake, wake=wake)

    def _look_at(self, message: Message) -> None:
        # The observer's feeds detect silence and constant values.
        state = message.state
        self._pass_on(None if state is State.UNREADABLE else message.stamp,
                      message.values if state is State.USABLE else message.reason)
