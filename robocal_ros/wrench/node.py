# SPDX-License-Identifier: Apache-2.0
"""Node ``wrench_observer``: external wrenches and contacts on the links of the arm."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from math import isfinite
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from geometry_msgs.msg import WrenchStamped
from sensor_msgs.msg import Imu, JointState

from robocal_ros.messages import (
    ConditionalGroup,
    Intake,
    JointIntake,
    Message,
    State,
    Stream,
    marks,
    temperature_stream,
    to_seconds,
)
from robocal_ros.node import CalibrationNode, DriveGains, Marks, spin, status
from robocal_ros.results import CalibrationResult, with_inputs
from robocal_ros.robot import (
    SENSOR_CALIBRATION,
    check_effort_unit,
    check_efforts,
    effort_factor,
    efforts_of,
    friction_by_joint,
    stored_zero,
)
from robocal_ros.wrench import tare
from robocal_ros.wrench.contact import Place
from robocal_ros.wrench.observer import (
    FILLING,
    NO_EFFORT,
    NUMBERS,
    Observation,
    WrenchObserver,
    failure,
)
from robocal_ros.wrench.outputs import ContactReaction, WrenchOutputs
from robocal_ros.wrench.parameters import IMU, TARE, ZERO, WrenchParameters
from robocal_ros.wrench.tare import TareOutcome, TareProcedure

# Wake-ups after which the waking stream is reviewed, and the fraction in which another one must
# have arrived last.
_TRIAL = 200
_EARLY_SHARE = 0.5
# Time without a wake-up after which another stream wakes [s].
_SILENT = 0.05
# Time for which the waking stream is watched without the executor, and other callbacks wait [s]. A
# turn of the executor costs more than the work at 1 kHz, and delays samples that arrive meanwhile.
_LINGER = 0.04


class WrenchInputs:
    """Subscriptions of the observer: joint states, F/T readings and IMU readings at 1 kHz.

    Waking the executor costs more than the computation on a message. So only one stream, the one
    that arrives last, wakes it, and all others are emptied on that occasion. None does while
    nobody needs the outputs.

    Attributes:
        node: The node.
        at_once: Whether samples are processed as they arrive; otherwise ``attend`` takes them.
        set_factor: Sets the torque per effort of the driver, shape (n,).

    """

    def __init__(self, node: WrenchObserverNode) -> None:
        """Create the streams of a node with an observer, not subscribed yet."""
        self.node = node
        self._observer = observer = node.observer
        intake = JointIntake(node.robot, effort_factor(node.robot, node.values))
        self.set_factor = intake.set_factor
        # Streams that arrived last, by wake-up.
        self._last = Counter[WakingStream]()
        joints = WakingStream(
            self, JointState, 'joint_states', intake, observer.joint_chains.take_state)
        self._streams = [joints, *(
            WakingStream(self, Imu if source.kind == IMU else WrenchStamped, source.topic,
                         Intake(source.decoder()), feed.take)
            for source, feed in observer.inputs)]
        count = len(observer.sensors)
        self._sensors = self._streams[1:1 + count]
        # Streams whose samples wait for the sensors' readings.
        self._waiting = [joints, *self._streams[1 + count:]]
        # Only streams that others wait for can be late: all but IMUs.
        self._leading = [joints, *self._sensors]
        self._waker, self.at_once = joints, True
        self._woken_at = float('-inf')

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

    def wakes(self, stream: WakingStream) -> bool:
        """Return whether a stream wakes the executor now."""
        return self.at_once and stream is self._waker

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

    def woken(self) -> None:
        """Empty all streams, after a message that woke the executor or followed soon."""
        self.take_all()
        self._review_waker()

    def take_all(self) -> None:
        """Empty all streams, and process what they hold."""
        # A sensor is ahead only of what was taken after its readings: time may pass between, and
        # simulated time runs many times faster.
        self._take(self._sensors)
        self._take(self._waiting)
        for chains in self._observer.all_chains:
            chains.samples.compare(
                time.monotonic(), lambda: self.node.get_clock().now().nanoseconds)
        # Readings that came meanwhile, for what waits for them.
        self._take(self._sensors)
        self.node.observe()

    def _take(self, streams: Sequence[WakingStream]) -> None:
        # The waking stream too, to catch up without a wake-up per message.
        for stream in streams:
            if self.at_once:
                stream.drain()
            else:
                stream.catch_up()

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

    def note_jump(self, stamp: float) -> None:
        """Discard samples when the clock jumps back to a stamp [s]."""
        # At once, so that samples after the jump are kept.
        self._observer.clear()
        self.node.get_logger().warning(
            f'The clock jumped back to {stamp:.3f} s; earlier samples are discarded.',
            throttle_duration_sec=1.0)


class WakingStream(Stream[Intake]):
    """Topic that wakes the executor or is emptied by others; it is not recorded."""

    def __init__(
        self, inputs: WrenchInputs, kind: Any, topic: str, intake: Intake,
        take: Callable[[int | None, Any], None],
    ) -> None:
        """Prepare the subscription.

        Args:
            inputs: What it belongs to.
            kind: Type of the messages.
            topic: The topic.
            intake: Decodes and checks its messages.
            take: Called with the stamp of every accepted message [ns], None if it has none, and
                its values, or its problem as text.

        """
        self._pass_on = take
        intake.on_jump = inputs.note_jump
        super().__init__(inputs.node, ConditionalGroup(lambda: inputs.wakes(self)), kind, topic,
                         intake, wake=inputs.woken, linger=_LINGER)

    def _look_at(self, message: Message) -> None:
        # The observer's feeds detect silence and constant values.
        state = message.state
        self._pass_on(None if state is State.UNREADABLE else message.stamp,
                      message.values if state is State.USABLE else message.reason)


# Interval at which it looks for subscribers and silent streams [s].
_LOOK_EVERY = 0.2
# Time over which the rate of observations is counted [s].
_COUNTED_OVER = 1.0
# Mean force without contact, as a fraction of the threshold, above which a bias has drifted.
_DRIFTED = 0.5
# Duration of a contact that may be a drifted bias [s].
_LONG = 30.0
_WAITING = 'Waiting for samples'
_NOT_TARED = ('No wrench is published before a tare: keep the arm at rest without contact and '
              'call ~/tare, or set require_tare to false.')


@dataclass
class _Link:
    """State of a link.

    Attributes:
        name: Its name.
        received: Time of its last observation [s].
        reason: Why its wrench is invalid, empty if it is valid.
        logged: Kind of the reason that was logged last.
        place: Where the last contact was.
        silent: Whether it was not observed for too long.

    """

    name: str
    received: float
    reason: str = _WAITING
    logged: str = _WAITING
    place: str = ''
    silent: bool = False


class WrenchHealth:
    """Monitor and publisher of the validity of each link.

    It looks for subscribers and silent streams periodically while the node is active.
    """

    def __init__(self, node: WrenchObserverNode) -> None:
        """Create the timer of a node with observer, inputs and outputs, stopped."""
        self._node = node
        self._observer = node.observer
        self._timer = node.waiter.timer(_LOOK_EVERY, self._look)
        self.start()
        self.stop()

    def start(self) -> None:
        """Reset, and start to look."""
        self._timer.reset()
        now, arm = self._node.waiter.now(), self._observer.arm
        self._links = [_Link(chain.link, now) for chain in arm.chains]
        # Without links, external joint torques take their place.
        self._watched = self._links or [_Link('external joint torques', now)]
        carrier = arm.chain_of_frame(arm.robot.tool_frame)
        # On whose samples the tool wrench depends.
        self._tool = self._links[carrier.proximal] if carrier is not None else next(
            (link for index, link in enumerate(self._watched)
             if index not in self._observer.imu_chains), None)
        # Newest observations since the last look, by their sub-chains.
        self._newest: dict[tuple[int, ...], Observation] = {}
        self._observations = self._counted = 0
        self._rate = self._delay = 0.0
        self._counted_at = float('-inf')
        self._failures = 0, ''

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def destroy(self) -> None:
        """Remove the timer."""
        self._node.destroy_timer(self._timer)

    def _look(self) -> None:
        self._node.outputs.look()
        if self._node.is_active:
            self._node.inputs.attend(self._node.outputs.subscribed or self._node.busy
                                or self._node.reaction is not None)
            self._report()

    def note(self, observation: Observation) -> None:
        """Record an observation."""
        self._observations += observation.instants
        self._newest[observation.links] = observation
        if observation.failed:
            self.note_failure(observation.problem)

    def note_failure(self, sentence: str) -> None:
        """Count an instant of which something could not be computed."""
        self._failures = self._failures[0] + 1, sentence

    @property
    def first_reason(self) -> str:
        """Reason why the first invalid link is invalid, empty if all are valid."""
        self._check_silence()
        return next((link.reason for link in self._watched if link.reason), '')

    def _check_silence(self) -> None:
        """Set the reasons of links by the newest observations, or by their silence."""
        now, observer = self._node.waiter.now(), self._observer
        for observation in self._newest.values():
            self._delay = observation.delay
            reasons = observation.reasons or [
                '' if observation.external is not None else observation.problem or NO_EFFORT]
            for index in observation.links if self._links else (0,):
                link = self._watched[index]
                link.received, link.reason = now, reasons[index]
            for index, contact in observation.contacts.items():
                self._links[index].place = contact.place.value + (
                    f' (pitch {contact.pitch:.3f} m)'
                    if contact.place in (Place.OUTSIDE, Place.MOMENT) else '')
        self._newest.clear()
        for index, link in enumerate(self._watched):
            silence = now - link.received
            link.silent = silence >= self._node.values.silence
            if not link.silent:
                continue
            if index in observer.imu_chains:
                feeds = (observer.feeds[index], observer.imu_chains[index].imu)
                feed = next((f for f in feeds if f.problem), min(feeds, key=lambda f: f.newest))
                link.reason = feed.missing_reason(silence)
            else:
                link.reason = observer.joint_chains.problem or (
                    f'No joint states have been received for {silence:.1f} s; check '
                    'joint_state_broadcaster.')

    def _report(self) -> None:
        """Publish the status, and log changes."""
        self._check_silence()
        now = self._node.waiter.now()
        if now - self._counted_at >= _COUNTED_OVER:
            self._rate = (self._observations - self._counted) / (now - self._counted_at)
            self._counted_at, self._counted = now, self._observations
        if not self._observer.tared:
            self._node.outputs.publish_source(None, _NOT_TARED)
        elif self._tool is not None and self._tool.silent:
            self._node.outputs.publish_source(None, self._tool.reason)
        self._log_changes()
        level, message = self._summary()
        if not self._node.busy:
            self._node.status.update('observing', message, level=level, **self._values())
        self._node.status.parts = [self._of_link(index) for index in range(len(self._links))]

    def _log_changes(self) -> None:
        for link in self._links:
            kind = NUMBERS.sub('', link.reason)
            # A window refills after every other reason too; without a tare there is no wrench yet,
            # as the status says.
            if kind == link.logged or link.reason.startswith(FILLING) or not (
                    link.reason or self._observer.tared):
                continue
            link.logged = kind
            if link.reason:
                self._node.get_logger().warning(
                    f"Wrench on '{link.name}' is invalid: {link.reason}")
            else:
                self._node.get_logger().info(f"Wrench on '{link.name}' is valid.")

    def _summary(self) -> tuple[bytes, str]:
        broken = [link for link in self._watched if link.reason]
        if broken:
            what = 'External torque invalid' if not self._links else (
                f'Wrench invalid on {", ".join(link.name for link in broken)}')
            return status.ERROR if len(broken) == len(self._watched) else status.WARN, (
                f'{what}: {broken[0].reason}')
        if not self._observer.tared:
            return status.WARN, _NOT_TARED
        if self._node.reaction is not None and self._node.reaction.problem:
            return status.WARN, self._node.reaction.problem
        if self._node.outputs.tool_problem:
            return status.WARN, f'No tool wrench: {self._node.outputs.tool_problem}'
        limit = _DRIFTED * self._node.values.force_threshold
        for link, judge in zip(self._links, self._observer.judges, strict=True):
            if judge.level > limit:
                return status.WARN, (
                    f"The mean force on '{link.name}' without contact is {judge.level:.1f} N, "
                    'more than half the threshold: a bias has drifted or the load has changed. '
                    'Call ~/tare.')
        observed = f'{len(self._links)} links' if self._links else self._watched[0].name
        return status.OK, f'Observing {observed} with a delay of {1e3 * self._delay:.1f} ms.'

    def _values(self) -> dict[str, Any]:
        node = self._node
        values: dict[str, Any] = {
            'tared': str(self._observer.tared).lower(),
            'observations per second': f'{self._rate:.0f}',
            'delay [ms]': f'{1e3 * self._delay:.2f}',
            'messages lost': str(self._node.inputs.dropped),
            'observations': str(self._observations),
        }
        for index, link in enumerate(self._links):
            values[f'link {link.name}'] = link.reason or self._state(index)
        for what, (count, problem) in (
                ('computations that failed', self._failures),
                ('joint states refused', self._observer.joint_chains.refused),
                *((f'readings of {feed.name} refused', (feed.rejected, feed.refused[1]))
                  for _, feed in self._observer.inputs)):
            if count:
                values[what] = f'{count}, the last one: {problem}'
        if self._node.reaction is not None:
            values['hold on contact'] = self._node.reaction.outcome or 'no contact yet'
        torques = self._observer.torques
        if torques is not None:
            for what, flags in (('joints without friction result', ~torques.friction.known),
                                ('joints in contact', torques.colliding)):
                values[what] = ', '.join(compress(node.robot.joint_names, flags)) or 'none'
        tool = self._node.outputs.tool
        if tool is not None:
            if isfinite(tool.smallest):
                values['smallest singular value [m]'] = f'{tool.smallest:.4f}'
            values['unobservable directions of the tool wrench'] = ', '.join(
                tool.unobservable) or 'none'
        return values

    def _state(self, index: int) -> str:
        judge = self._observer.judges[index]
        if judge.in_contact:
            hint = '; if there is no contact, call ~/tare' if judge.duration > _LONG else ''
            return f'in contact for {judge.duration:.1f} s, {self._links[index].place}{hint}'
        return f'free, {judge.level:.2f} N on average'

    def _of_link(self, index: int) -> DiagnosticStatus:
        name = self._node.get_fully_qualified_name().lstrip('/')
        link, feed = self._links[index], self._observer.feeds[index]
        reason = link.reason or ('' if self._observer.tared else _NOT_TARED)
        return DiagnosticStatus(
            level=status.WARN if reason else status.OK, name=f'{name}: {link.name}',
            hardware_id=feed.name, message=reason or self._state(index),
            values=[KeyValue(key='readings refused', value=str(feed.rejected)),
                    KeyValue(key='last refused', value=feed.refused[1])])


# Observations computed at a time, so that services are answered in between: those of the period in
# which subscribers are looked for, at 2 kHz.
_AT_A_TIME = 400


class WrenchObserverNode(CalibrationNode):
    """Observer of external wrenches; it moves nothing."""

    capability = 'wrench_observer'
    parameter_table = WrenchParameters
    verbs = (*CalibrationNode.verbs, TARE, ZERO)
    values: WrenchParameters
    late_modules = ()
    idle_message = 'Active; waiting for samples.'

    def build(self) -> None:
        """Create observer, inputs and outputs, and use stored and published results."""
        values = self.values
        gains = self.results.gains()
        check_efforts(self.robot, values, gains)
        if values.observe_torque:
            check_effort_unit(values, gains)
        self.observer = WrenchObserver(self.robot, values)
        for remark in self.observer.remarks:
            self.get_logger().warning(remark)
        self.outputs = WrenchOutputs(self, self.observer, self.markers)
        self.inputs = self.stream(WrenchInputs(self))
        self.reaction = ContactReaction(self, [
            chain.link for chain in self.observer.arm.chains]) if values.hold_on_contact else None
        self.health = self.stream(WrenchHealth(self))
        self.marks = Marks(self)
        self._tare = TareProcedure(
            self.observer, self.waiter.until_stopped, lambda: self.health.first_reason)
        DriveGains(self, self.inputs.set_factor, self._use_gains)
        if values.use_payload:
            self.results.follow('payload', self._carry)
        if values.use_friction and self.observer.torques is not None:
            self._friction: CalibrationResult | None = None
            self._temperature = float('nan')
            self.results.follow('friction', self._use_friction)
            if values.temperature_topic:
                self.stream(temperature_stream(
                    self, self.group, values.temperature_topic, self._take_temperature))
        zero = self._use_zero(gains)
        if zero is not None:
            self.publish_result(zero)
        self.results.follow(SENSOR_CALIBRATION, self.observer.use_calibration)
        stored = tare.kept(values, self.store.load)
        if stored is not None:
            self.observer.use_tare(stored)
            self.publish_result(stored)
        # What was on the arm at the tare, the first readings tell.
        self._reweighs = stored is not None and self.observer.weighed_otherwise

    def _use_friction(self, result: CalibrationResult) -> None:
        self._friction = result
        self.observer.use_friction(friction_by_joint(result, self._temperature))

    def _take_temperature(self, temperature: float) -> None:
        self._temperature = temperature
        if self._friction is not None:
            self._use_friction(self._friction)

    def _use_gains(self, result: CalibrationResult) -> None:
        """Use drive gains, and the links if they were identified with them."""
        if self.observer.use_gains(result):
            self._tare.clear()
        # The unit of the torques changes.
        self._tare.zeroing.rests.clear()
        self._use_zero(result)

    def _use_zero(self, gains: CalibrationResult | None) -> CalibrationResult | None:
        """Use the stored torque zeros if they were found with these drive gains."""
        found = stored_zero(self.robot, self.values, self.store.load, gains)
        self.observer.use_torque_zero(found)
        return found

    def _carry(self, result: CalibrationResult) -> None:
        message = self.observer.use_payload(result)
        # The recorded samples contain the weights predicted for the previous load.
        self._tare.clear()
        self.get_logger().info(message)

    def observe(self) -> None:
        """Compute and publish the observations whose samples are complete."""
        # The status shows the newest one only.
        newest = not self.inputs.at_once
        for _ in range(_AT_A_TIME):
            observation = self.observer.take(newest=newest)
            if observation is None:
                return
            if self._reweighs and self.observer.reweigh():
                self._reweighs = False
                continue
            if not self.is_active:
                continue
            self.health.note(observation)
            if not self.observer.tared:
                continue
            if self.reaction is not None:
                self.reaction.note(observation)
            try:
                self.outputs.publish(observation)
            except (ArithmeticError, ValueError) as error:
                self.health.note_failure(failure(error))

    # -------------------------------------------------------------------- services

    async def run(self) -> str:
        """Collect samples at rest, and tare."""
        self.status.update('taring', 'Collecting samples at rest; do not touch the arm.')
        # What arrived before the call is not part of it.
        self.inputs.take_all()
        return self._kept(await self._tare.run(self.values))

    async def preview(self) -> str:
        """Say what ``run`` does."""
        return (f'run tares the sensors over {self.values.tare_duration:g} s at rest; it moves '
                'nothing.')

    async def zero(self) -> str:
        """Collect samples at rest, and find torque zeros with those of earlier postures."""
        self.status.update('zeroing', 'Collecting samples at rest; do not touch the arm.')
        self.inputs.take_all()
        outcome = await self._tare.zero(self.values, stored_zero(
            self.robot, self.values, self.store.load, self.results.gains()))
        if outcome.result is not None:
            result = replace(
                with_inputs(outcome.result, tare.inputs_of(
                    self.values, self.results.current, torques=True)),
                efforts=efforts_of(self.robot, self.values))
            self.store.save(result)
            self.publish_result(result)
        return outcome.message

    async def tare(self) -> str:
        """Tare; another name of ``run``."""
        return await self.run()

    async def estimate(self) -> str:
        """Tare with the samples collected last."""
        return self._kept(self._tare.estimate(self.values))

    async def clear(self) -> str:
        """Discard the samples collected last; biases stay."""
        return f'{self._tare.clear()} instants discarded; the tare stays.'

    def _kept(self, outcome: TareOutcome) -> str:
        if outcome.result is not None:
            # Lets the bag reader tare with the same samples.
            first, last = outcome.span
            self.marks.publish(marks.TARED, TARE, {
                marks.JOINTS: f'{to_seconds(first)!r} {to_seconds(last)!r}'})
            result = with_inputs(outcome.result, tare.inputs_of(self.values, self.results.current))
            self.store.save(result)
            self.publish_result(result)
        return outcome.message


main = partial(spin, WrenchObserverNode)
"""Run the node; returns the exit code."""


if __name__ == '__main__':
    sys.exit(main())
