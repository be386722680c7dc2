# SPDX-License-Identifier: Apache-2.0
"""Status of the observer: validity of each link, lost messages, drifted biases."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from math import isfinite
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from rclpy.clock import Clock
from rclpy.clock_type import ClockType

from robocal_ros.node import CalibrationNode, status
from robocal_ros.wrench.contact import Place
from robocal_ros.wrench.inputs import WrenchInputs
from robocal_ros.wrench.observer import FILLING, NO_EFFORT, NUMBERS, Observation, WrenchObserver
from robocal_ros.wrench.outputs import ContactReaction, WrenchOutputs

# Interval at which it looks for subscribers and silent streams [s].
_PERIOD = 0.2
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
        fresh: Whether it was observed since the last look.
        silent: Whether it was not observed for too long.

    """

    name: str
    received: float
    reason: str = _WAITING
    logged: str = _WAITING
    place: str = ''
    fresh: bool = False
    silent: bool = False


class WrenchHealth:
    """Monitor and publisher of the validity of each link.

    It looks for subscribers and silent streams periodically while the node is active.
    """

    def __init__(
        self, node: CalibrationNode, observer: WrenchObserver, inputs: WrenchInputs,
        outputs: WrenchOutputs, reaction: ContactReaction | None,
    ) -> None:
        """Create the timer, stopped."""
        self._node = node
        self._observer = observer
        self._inputs = inputs
        self._outputs = outputs
        self._reaction = reaction
        self._timer = node.create_timer(
            _PERIOD, self._look, node.group, clock=Clock(clock_type=ClockType.STEADY_TIME))
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
        self._outputs.look()
        if self._node.is_active:
            self._inputs.attend(self._outputs.subscribed or self._node.busy
                                or self._reaction is not None)
            self._report()

    def note(self, observation: Observation) -> None:
        """Record an observation."""
        self._observations += observation.instants
        self._delay = observation.delay
        reasons = observation.reasons or [
            '' if observation.external is not None else observation.problem or NO_EFFORT]
        for index in observation.links if self._links else (0,):
            self._watched[index].reason, self._watched[index].fresh = reasons[index], True
        if observation.failed:
            self.note_failure(observation.problem)
        for index, contact in observation.contacts.items():
            self._links[index].place = contact.place.value + (
                f' (pitch {contact.pitch:.3f} m)'
                if contact.place in (Place.OUTSIDE, Place.MOMENT) else '')

    def note_failure(self, sentence: str) -> None:
        """Count an instant of which something could not be computed."""
        self._failures = self._failures[0] + 1, sentence

    @property
    def first_reason(self) -> str:
        """Reason why the first invalid link is invalid, empty if all are valid."""
        self._check_silence()
        return next((link.reason for link in self._watched if link.reason), '')

    def _check_silence(self) -> None:
        """Set the reason of links without recent observations."""
        now, observer = self._node.waiter.now(), self._observer
        for index, link in enumerate(self._watched):
            if link.fresh:
                link.received, link.fresh = now, False
            silence = now - link.received
            link.silent = silence >= self._node.values.silence
            if not link.silent:
                continue
            if index in observer.imu_chains:
                feeds = (observer.feeds[index], observer.imu_chains[index].imu)
                feed = next((f for f in feeds if f.problem), min(
                    feeds, key=lambda f: f.newest))
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
            self._outputs.publish_source(None, _NOT_TARED)
        elif self._tool is not None and self._tool.silent:
            self._outputs.publish_source(None, self._tool.reason)
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
        if self._reaction is not None and self._reaction.problem:
            return status.WARN, self._reaction.problem
        if self._outputs.tool_problem:
            return status.WARN, f'No tool wrench: {self._outputs.tool_problem}'
        limit = _DRIFTED * self._node.values.force_threshold
        for link, judge in zip(self._links, self._observer.contacts.judges, strict=True):
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
            'messages lost': str(self._inputs.dropped),
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
        if self._reaction is not None:
            values['hold on contact'] = self._reaction.outcome or 'no contact yet'
        torques = self._observer.torques
        if torques is not None:
            for what, flags in (('joints without friction result', ~torques.friction.known),
                                ('joints in contact', torques.colliding)):
                values[what] = ', '.join(compress(node.robot.joint_names, flags)) or 'none'
        tool = self._outputs.tool
        if tool is not None:
            if isfinite(tool.smallest):
                values['smallest singular value [m]'] = f'{tool.smallest:.4f}'
            values['unobservable directions of the tool wrench'] = ', '.join(
                tool.unobservable) or 'none'
        return values

    def _state(self, index: int) -> str:
        judge = self._observer.contacts.judges[index]
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
