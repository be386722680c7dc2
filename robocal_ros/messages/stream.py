# SPDX-License-Identifier: Apache-2.0
"""Subscriptions that no message can break, and streams of samples of live topics.

Messages are taken as bytes and bounded before they are turned into Python objects, which may take
a second for a megabyte. A message that is too large or malformed, or that makes a callback raise,
is counted and named (``note_fault``), and the node goes on.

A 1 kHz topic costs a quarter of a core even if its messages are discarded, so an inactive node
does not subscribe to it. In an active node one pass of the executor costs more than the
processing of a message, so the node polls such a topic by itself for a while.

It takes messages with ``handle.take_message`` and waits with a ``WaitSet`` of ``rclpy.impl``,
which are not part of rclpy's public interface; the package uses them only here. Measured with
joint states and four F/T topics at 1 kHz each, best effort, as bytes, one process on two busy
cores (rclpy 9.1): a plain subscription callback takes 116 to 133 µs of processor time per
message, two thirds of a core, and loses up to half of the messages when the machine is busy;
this takes 34 to 46 µs and loses none.
"""

from __future__ import annotations

import os
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from rclpy.callback_groups import CallbackGroup
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.qos import QoSProfile
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.serialization import deserialize_message
from rclpy.subscription import Subscription
from sensor_msgs.msg import JointState, Temperature
from std_msgs.msg import String

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError, RobocalError
from robocal_ros.messages import qos
from robocal_ros.messages.checks import to_seconds
from robocal_ros.messages.decode import Decoded, Message, Rows, State
from robocal_ros.messages.intake import (
    Intake,
    JointIntake,
    TrackerIntake,
    WrenchIntake,
    temperature_intake,
)
from robocal_ros.messages.samples import StreamCounts

if TYPE_CHECKING:
    from rclpy.node import Node

    from robocal_ros.robot import Robot

SPARSE = 0.003
"""Topics with a longer interval between messages are left to the executor [s]."""

LIMIT = 32_000
"""Largest message unless its subscription sets another limit [bytes]; read in 14 ms at most.

Joint states of fifty joints have some 3 kB.
"""

TEXT_LIMIT = 10**6
"""Largest text, such as a result [bytes]; the largest results have some 10⁵."""

# Messages of one topic that are taken at a time, so that no topic starves the others.
_AT_A_TIME = 500
# Most messages that are taken in one turn because they were not needed at once.
_MOST = 4000
# Most topics that a hint lists.
_SHOWN = 6
# Interval at which messages are taken that are not needed at once [s]; the queue holds a second of
# a 2 kHz topic, and the status of an idle node is renewed once a second.
_IDLE_PERIOD = 0.8


_FAULTS: WeakKeyDictionary[Node, Counter[str]] = WeakKeyDictionary()


def faults_of(node: Node) -> Counter[str]:
    """Return how often a node left something out, by what it was, such as ``message on /tf``.

    It could not be used, or a callback raised.
    """
    return _FAULTS.setdefault(node, Counter())


def note_fault(node: Node, what: str, error: Exception) -> None:
    """Count an exception, and log the first one of its kind."""
    faults = faults_of(node)
    faults[what] += 1
    if faults[what] > 1:
        return
    sentence = str(error)
    if not isinstance(error, RobocalError):
        place = traceback.extract_tb(error.__traceback__)[-1]
        sentence = (f'{type(error).__name__}: {" ".join(sentence.split())} '
                    f'({place.filename}, line {place.lineno}).')
    node.get_logger().error(
        f'Left out a {what}: {sentence} Further ones are only counted, in ~/status.')


def guarded(node: Node, what: str, callback: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callback, a coroutine too, whose exceptions are noted instead of raised.

    They would end the node otherwise.

    Args:
        node: The node.
        what: What is left out if it raises, as in ``faults_of``.
        callback: The callback.

    """
    def call(*arguments: Any) -> Any:
        try:
            return callback(*arguments)
        except Exception as error:  # noqa: BLE001
            note_fault(node, what, error)

    async def call_later(*arguments: Any) -> Any:
        try:
            return await callback(*arguments)
        except Exception as error:  # noqa: BLE001
            note_fault(node, what, error)

    return call_later if iscoroutinefunction(callback) else call


def receiver(
    node: Node, kind: Any, topic: str, callback: Callable[[Any], Any], *, raw: bool = False,
    limit: int = LIMIT,
) -> Callable[[bytes], Any]:
    """Return a callback of a subscription to raw messages that no message can break.

    Args:
        node: The node.
        kind: Type of the messages.
        topic: The topic.
        callback: Called with every message that is not too large.
        raw: Whether it is called with bytes.
        limit: Largest message [bytes].

    """
    def receive(message: bytes) -> None:
        if len(message) > limit:
            raise DataError(f'A message has {len(message) / 1e3:.0f} kB; expected at most '
                            f'{limit / 1e3:.0f} kB.')
        callback(message if raw else deserialize_message(message, kind))

    return guarded(node, f'message on {topic}', receive)


def subscribe_text(node: Node, topic: str, callback: Callable[[Any], Any]) -> Subscription[Any]:
    """Subscribe to a latched text, of at most ``TEXT_LIMIT``; arguments as for ``receiver``."""
    return node.create_subscription(
        String, topic, receiver(node, String, topic, callback, limit=TEXT_LIMIT), qos.LATCHED,
        raw=True)


class ConditionalGroup(CallbackGroup):
    """Callback group that the executor serves only while a condition is true."""

    def __init__(self, condition: Callable[[], bool]) -> None:
        """Set the condition."""
        super().__init__()
        self._condition = condition

    def can_execute(self, entity: Any) -> bool:
        """Return whether the executor may wait for an entity."""
        return self._condition()

    def beginning_execution(self, entity: Any) -> bool:
        """Return whether the executor may call it now."""
        return self._condition()

    def ending_execution(self, entity: Any) -> None:
        """Do nothing."""


class Subscriber:
    """Subscription to a fast topic between ``start`` and ``stop``.

    Attributes:
        topic: Full name of the topic.
        subscription: The subscription, None while stopped.

    """

    def __init__(
        self, node: Node, group: CallbackGroup, kind: Any, topic: str,
        receive: Callable[[Any], None], *, raw: bool = False, linger: float = 0.0,
        wake: Callable[[], object] | None = None, busy: Callable[[], bool] | None = None,
        profile: QoSProfile = qos.SENSOR, limit: int = LIMIT,
    ) -> None:
        """Prepare the subscription.

        Args:
            node: The node.
            group: The callback group.
            kind: Type of the messages.
            topic: The topic.
            receive: Called with every message that is not too large.
            raw: Whether it is called with bytes.
            linger: Time for which this topic is polled after a message, as long as more arrive
                [s]; the executor waits for that time.
            wake: Called after a message that woke the executor or was waited for; None to take
                what is queued.
            busy: Returns whether messages are needed at once; otherwise the executor does not
                wait for them, and they are taken every 0.8 s. None to need them always.
            profile: Quality of service.
            limit: Largest message [bytes].

        """
        self._node = node
        self._group = group
        self._kind = kind
        self._name = topic
        self._linger = linger
        self._wake = wake
        self._busy = busy
        self._profile = profile
        self._messages_group = group if busy is None else ConditionalGroup(busy)
        self._timer: Any = None
        context: Any = node.context
        self._wait_set = rclpy_implementation.WaitSet(1, 0, 0, 0, 0, 0, context.handle)
        self.topic: str = node.resolve_topic_name(topic)
        self._limit = limit
        self._receive = receiver(node, kind, self.topic, receive, raw=raw, limit=limit)
        self.subscription: Subscription[Any] | None = None

    def start(self) -> None:
        """Subscribe, unless subscribed already."""
        if self.subscription is None:
            # rclpy writes what is overridden into the profile that it is given.
            self.subscription = self._node.create_subscription(
                self._kind, self._name, self._woken, copy(self._profile),
                callback_group=self._messages_group, raw=True,
                qos_overriding_options=QoSOverridingOptions.with_default_policies())
            if self._busy is not None:
                self._timer = self._node.create_timer(
                    _IDLE_PERIOD, self._poll_idle, self._group,
                    clock=Clock(clock_type=ClockType.STEADY_TIME))

    def stop(self) -> None:
        """Unsubscribe."""
        if self.subscription is not None:
            self._node.destroy_subscription(self.subscription)
            self.subscription = None
        if self._timer is not None:
            self._node.destroy_timer(self._timer)
            self._timer = None

    def destroy(self) -> None:
        """Unsubscribe."""
        self.stop()

    def drain(self) -> int:
        """Take all queued messages; return their number.

        This saves one pass of the executor per message when messages have queued up.
        """
        return self._take_queued(self._receive)

    def _take_queued(self, receive: Callable[[Any], None]) -> int:
        subscription = self.subscription
        if subscription is None:
            return 0
        handle: Any = subscription.handle
        with handle:
            for count in range(_AT_A_TIME):
                # The message just received may have stopped this subscriber.
                taken = (handle.take_message(self._kind, True)
                         if self.subscription is subscription else None)
                if taken is None:
                    return count
                receive(taken[0])
        return _AT_A_TIME

    def _poll_idle(self) -> None:
        if self._busy is None or not self._busy():
            self.catch_up()

    def catch_up(self) -> None:
        """Take all messages that have queued up because they were not needed at once."""
        queued: list[bytes] = []
        while self._take_queued(queued.append) == _AT_A_TIME and len(queued) < _MOST:
            pass
        if any(len(message) > self._limit for message in queued):
            Subscriber._receive_all(self, queued)
        elif queued:
            guarded(self._node, f'message on {self.topic}', self._receive_all)(queued)

    def _receive_all(self, messages: list[bytes]) -> None:
        """Receive messages that have queued up."""
        for message in messages:
            self._receive(message)

    def wait(self, timeout: float) -> bool:
        """Wait for a message, without the executor; return whether one arrived.

        Args:
            timeout: Longest wait [s].

        """
        if self.subscription is None:
            return False
        handle = self.subscription.handle
        with handle:  # destroyed no earlier than this wait ends
            self._wait_set.clear_entities()
            self._wait_set.add_subscription(handle)
            self._wait_set.wait(int(1e9 * timeout))
            return bool(self._wait_set.is_ready('subscription', 0))

    def _woken(self, message: bytes) -> None:
        self._receive(message)
        take = self._wake or self.drain
        take()
        end = time.monotonic() + self._linger
        while (left := end - time.monotonic()) > 0.0 and self.wait(min(left, SPARSE)):
            take()


def type_name(kind: Any) -> str:
    """Return a message type's name, such as ``sensor_msgs/msg/JointState``."""
    package, folder, *_ = str(kind.__module__).split('.')
    return f'{package}/{folder}/{kind.__name__}'


def overload_hint() -> str:
    """Return a sentence with a leading blank if this machine has too much to do, or ''.

    Then messages are late wherever they come from on this machine.
    """
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return '' if load <= cores else (
        f' This machine is overloaded, which makes messages late: {load:.1f} processes want its '
        f'{cores} processors. End what else runs, or run the node on another machine.')


def publisher_hint(node: Node, topic: str, kind: Any, *, stopped: bool = False) -> str:
    """Return where messages of a type are published, if a topic has none.

    Args:
        node: The subscribing node.
        topic: Its topic, relative names within its namespace.
        kind: The message type.
        stopped: Whether messages had arrived.

    Returns:
        Sentences that name the topic's publishers, or else published topics of the same name,
        or else of the same type.

    """
    wanted, name = node.resolve_topic_name(topic), type_name(kind)
    if node.count_publishers(wanted):
        if stopped:
            return f"'{wanted}' still has a publisher, which sends nothing."
        return f"'{wanted}' has a publisher, but no message of type {name} has arrived."
    own = f'{node.get_fully_qualified_name()}/'
    same_type = [
        other for other, kinds in node.get_topic_names_and_types()
        if name in kinds and not other.startswith(own) and node.count_publishers(other)]
    leaf = wanted.rpartition('/')[2]
    same_name = sorted(other for other in same_type if other.rpartition('/')[2] == leaf)
    shown = same_name or sorted(same_type)
    if not shown:
        return f"No publisher on '{wanted}', and none of {name} on any other topic."
    listed = ', '.join(shown[:_SHOWN]) + (', …' if len(shown) > _SHOWN else '')
    remedy = ('Start the node in that namespace, or remap the topic.' if same_name else
              'Set the parameter to this topic, or remap it.')
    return f"No publisher on '{wanted}'; {name} is published on {listed}. {remedy}"


# ----------------------------------------------------------------------------- silence

SILENCE = 0.06
"""Shortest silence that counts [s]."""


@dataclass
class Silence:
    """Silence of a stream: what the stamps of another one advance while its own do not.

    Stamps may differ, and a machine that is late is late for both. Gaps that ended show how late
    messages can be on this machine: the limit is twice the longest, within bounds. A message of
    the other stream that is older than one before says nothing, as it came late.

    Attributes:
        newest: Returns the newest stamp of the stream [s].
        others: Returns that of the other stream [s].
        interval: Returns the usual interval of the stream's messages, 0 if it is not known yet
            [s].
        catch_up: Takes messages of the stream that have arrived and were not taken yet.
        missed: Number of messages that may be lost in a row, whatever their rate.
        longest: What gaps that ended may extend the limit to [s].

    """

    newest: Callable[[], float]
    others: Callable[[], float]
    interval: Callable[[], float]
    catch_up: Callable[[], object]
    missed: int
    longest: float
    _heard = _other = -np.inf
    _since = np.inf
    _gap = _longest = 0.0

    def begin(self) -> None:
        """Begin a motion."""
        self._heard = self._other = -np.inf
        self._since, self._gap = np.inf, 0.0

    def beyond(self) -> tuple[float, float] | None:
        """Return the silence and its limit if it is beyond it [s]."""
        interval = self.interval()
        limit = max(SILENCE, self.missed * interval, min(2.0 * self._longest, self.longest))
        # Before the stream's own: messages that come meanwhile are newer.
        self._other = max(self._other, self.others())
        if self._other - self._since > limit:
            self.catch_up()
        if self.newest() != self._heard:
            self._longest = max(self._longest, self._gap)
            self._heard, self._since, self._gap = self.newest(), self._other, 0.0
        else:
            self._gap = self._other - self._since
        return (self._gap, limit) if interval and limit < self._gap < np.inf else None


# ----------------------------------------------------------------------------- streams

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
        self._newest_values = np.full(3 * self._n, np.nan)
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
        stamp, n = to_seconds(message.stamp), self._n
        posture = message.values[:n]
        usable = message.state is State.USABLE
        # An arm without usable efforts is still monitored.
        if not usable and (message.state >= State.IMPLAUSIBLE or not np.isfinite(posture).all()):
            return
        self._last_received = self._now()
        self._recent.note(stamp, posture)
        if not usable:
            return
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
        return self._newest_values[2 * self._n:]

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
