# SPDX-License-Identifier: Apache-2.0
"""Status of the observer: validity of each link, lost messages, drifted biases."""

from __future__ import annotations

from math import isfinite
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from robocal_ros.messages import qos
from robocal_ros.node import CalibrationNode, status
from robocal_ros.wrench.contact import Place
from robocal_ros.wrench.inputs import WrenchInputs
from robocal_ros.wrench.observer import (
    FILLING,
    NO_EFFORT,
    NUMBERS,
    Observation,
    WrenchObserver,
)
from robocal_ros.wrench.outputs import WrenchOutputs

# Interval of diagnostics [s].
_DIAGNOSE_EVERY = 1.0
# Mean force without contact, as a fraction of the threshold, above which a bias has drifted.
_DRIFTED = 0.5
# Duration of a contact that may be a drifted bias [s].
_LONG = 30.0
_WAITING = 'Waiting for samples'
_NOT_TARED = ('No wrench is published before a tare: keep the arm at rest without contact and '
              'call ~/tare, or set require_tare to false.')


class WrenchHealth:
    """Monitor and publisher of the validity of each link."""

    def __init__(
        self, node: CalibrationNode, observer: WrenchObserver, inputs: WrenchInputs,
        outputs: WrenchOutputs,
    ) -> None:
        """Create the publisher of diagnostics."""
        self._node = node
        self._observer = observer
        self._inputs = inputs
        self._outputs = outputs
        self._links = [chain.link for chain in observer.arm.chains]
        carrier = observer.arm.chain_of_frame(observer.arm.robot.tool_frame)
        self._tool = None if carrier is None else carrier.proximal
        self._diagnostics = node.publisher(DiagnosticArray, '/diagnostics', qos.RELIABLE)
        self.begin()

    def begin(self) -> None:
        """Reset, as on activation."""
        count = len(self._links)
        now = self._node.waiter.now()
        self._reasons = [_WAITING] * count
        self._places = [''] * count
        self._last_received = [now] * count
        self._logged = [_WAITING] * count
        self._observations = 0
        self._counted = (now, 0)
        self._rate = 0.0
        self._delay = 0.0
        self._diagnosed = float('-inf')
        self._fresh = [False] * count
        self._failures = 0, ''
        self._torque_reason = '' if self._links else _WAITING
        self._torque_received = now

    def note(self, observation: Observation) -> None:
        """Record an observation."""
        self._observations += observation.instants
        self._delay = observation.delay
        reasons, fresh = self._reasons, self._fresh
        for index in observation.links:
            reasons[index] = observation.reasons[index]
            fresh[index] = True
        if not self._links:
            self._torque_received = self._node.waiter.now()
            self._torque_reason = '' if observation.external is not None else (
                observation.problem or NO_EFFORT)
        if observation.failed:
            self.note_failure(observation.problem)
        if observation.contacts:
            for index, contact in observation.contacts.items():
                self._places[index] = contact.place.value
                if contact.place in (Place.OUTSIDE, Place.MOMENT):
                    self._places[index] += f' (pitch {contact.pitch:.3f} m)'

    def note_failure(self, sentence: str) -> None:
        """Count an instant of which something could not be computed."""
        self._failures = self._failures[0] + 1, sentence

    @property
    def first_reason(self) -> str:
        """Reason why the first invalid link is invalid, empty if all are valid."""
        self._check_silence()
        return next((reason for reason in self._reasons if reason), self._torque_reason)

    def _check_silence(self) -> None:
        """Set the reason of links, and of the tool wrench, without recent observations."""
        now = self._node.waiter.now()
        observer = self._observer
        self._silent: dict[int | None, str] = {}
        for index, fresh in enumerate(self._fresh):
            if fresh:
                self._last_received[index] = now
                self._fresh[index] = False
                continue
            silence = now - self._last_received[index]
            if silence < self._node.values.silence:
                continue
            if index in observer.imu_feeds:
                feeds = (observer.feeds[index], observer.imu_feeds[index])
                feed = next((f for f in feeds if f.problem), min(
                    feeds, key=lambda f: f.newest))
                self._reasons[index] = feed.missing_reason(silence)
            else:
                self._reasons[index] = self._silent[None] = self._joint_silence(silence)
            self._silent[index] = self._reasons[index]
        silence = now - self._torque_received
        if not self._links and silence >= self._node.values.silence:
            self._torque_reason = self._silent[None] = self._joint_silence(silence)

    def _joint_silence(self, silence: float) -> str:
        return self._observer.joint_problem or (
            f'No joint states have been received for {silence:.1f} s; check '
            'joint_state_broadcaster.')

    def report(self) -> None:
        """Publish the status, log changes, and publish diagnostics once a second."""
        self._check_silence()
        now = self._node.waiter.now()
        since, count = self._counted
        if now - since >= _DIAGNOSE_EVERY:
            self._rate = (self._observations - count) / (now - since)
            self._counted = (now, self._observations)
        unknown = _NOT_TARED if not self._observer.tared else self._silent.get(self._tool, '')
        if unknown:
            self._outputs.refuse_tool(unknown)
        self._log_changes()
        level, message = self._summary()
        if not self._node.busy:
            self._node.status.update('observing', message, level=level, **self._values())
        if now - self._diagnosed >= _DIAGNOSE_EVERY:
            self._diagnosed = now
            self._diagnose()

    def _log_changes(self) -> None:
        for index, (reason, logged) in enumerate(zip(self._reasons, self._logged, strict=True)):
            kind = NUMBERS.sub('', reason)
            # A window refills after every other reason too.
            if kind == logged or reason.startswith(FILLING):
                continue
            if not reason and not self._observer.tared:
                # As the status says, there is no wrench yet.
                continue
            self._logged[index] = kind
            link = self._links[index]
            if reason:
                self._node.get_logger().warning(f"Wrench on '{link}' is invalid: {reason}")
            else:
                self._node.get_logger().info(f"Wrench on '{link}' is valid.")

    def _summary(self) -> tuple[bytes, str]:
        broken = [index for index, reason in enumerate(self._reasons) if reason]
        if broken:
            names = ', '.join(self._links[index] for index in broken)
            return status.ERROR if len(broken) == len(self._links) else status.WARN, (
                f'Wrench invalid on {names}: {self._reasons[broken[0]]}')
        if self._torque_reason:
            return status.ERROR, f'External torque invalid: {self._torque_reason}'
        if not self._observer.tared:
            return status.WARN, _NOT_TARED
        if self._outputs.tool_problem:
            return status.WARN, f'No tool wrench: {self._outputs.tool_problem}'
        drifted = self._drifted()
        if drifted:
            return status.WARN, drifted[0]
        observed = f'{len(self._links)} links' if self._links else 'external joint torques'
        return status.OK, f'Observing {observed} with a delay of {1e3 * self._delay:.1f} ms.'

    def _drifted(self) -> list[str]:
        limit = _DRIFTED * self._node.values.force_threshold
        return [
            f"The mean force on '{self._links[index]}' without contact is {level:.1f} N, more "
            'than half the threshold: a bias has drifted or the load has changed. Call ~/tare.'
            for index, judge in enumerate(self._observer.contacts.judges)
            for level in [judge.level] if level > limit
        ]

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
            values[f'link {link}'] = self._reasons[index] or self._state(index)
        for what, (count, problem) in (
                ('computations that failed', self._failures),
                ('joint states refused', self._observer.joint_chains.refused),
                *((f'readings of {feed.name} refused', (feed.rejected, feed.refused[1]))
                  for feed in (*self._observer.feeds, *self._observer.imu_feeds.values()))):
            if count:
                values[what] = f'{count}, the last one: {problem}'
        torques = self._observer.torques
        if torques is not None:
            unknown = [name for name, known in zip(
                node.robot.joint_names, torques.friction.known.tolist(), strict=True)
                       if not known]
            values['joints without friction result'] = ', '.join(unknown) or 'none'
            values['joints in contact'] = ', '.join(
                name for name, hit in zip(node.robot.joint_names, torques.colliding.tolist(),
                                          strict=True) if hit) or 'none'
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
            return f'in contact for {judge.duration:.1f} s, {self._places[index]}{hint}'
        return f'free, {judge.level:.2f} N on average'

    def _diagnose(self) -> None:
        name = self._node.get_fully_qualified_name().lstrip('/')
        array = DiagnosticArray()
        array.header.stamp = self._node.get_clock().now().to_msg()
        for index, link in enumerate(self._links):
            reason = self._reasons[index]
            if not reason and not self._observer.tared:
                reason = _NOT_TARED
            feed = self._observer.feeds[index]
            array.status.append(DiagnosticStatus(
                level=status.WARN if reason else status.OK, name=f'{name}: {link}',
                hardware_id=feed.name, message=reason or self._state(index),
                values=[KeyValue(key='readings refused', value=str(feed.rejected)),
                        KeyValue(key='last refused', value=feed.refused[1])]))
        self._diagnostics.publish(array)
