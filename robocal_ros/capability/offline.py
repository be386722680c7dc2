# SPDX-License-Identifier: Apache-2.0
"""From a bag to a result, in one go and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.capability.capability import Capability, Needs, TrackerNeed, WrenchNeed
from robocal_ros.errors import ConfigurationError
from robocal_ros.messages import marks
from robocal_ros.messages.bag import Bag, Sink
from robocal_ros.messages.bag_samples import JointStream, WrenchStream
from robocal_ros.messages.marks import Rest, Span, Spans
from robocal_ros.messages.recording import Recording, no_readings
from robocal_ros.messages.selection import (
    JOINT_STATE,
    MARKS,
    POINT,
    POSE,
    TEMPERATURE,
    WRENCH,
    Selection,
    marks_in,
)
from robocal_ros.results.result import CalibrationResult
from robocal_ros.robot.setup import make_robot, make_store, torque_factor

if TYPE_CHECKING:
    from robocal_ros.messages.bag_samples import TrackerStream


@dataclass(frozen=True)
class Outcome:
    """A result, and what is to be said about how it came about.

    Attributes:
        result: The result.
        remarks: Sentences.

    """

    result: CalibrationResult
    remarks: tuple[str, ...]


class OfflineEstimation:
    """One capability's estimation from one bag; made first, so that refusals come early."""

    def __init__(
        self, capability: Capability, bag: Bag, values: Any, urdf: str, selection: Selection
    ) -> None:
        """Look whether all that is needed is there.

        Args:
            capability: What is to be estimated.
            bag: The bag.
            values: The node's parameters.
            urdf: URDF text.
            selection: Which messages count.

        Raises:
            RobocalError: If parameters, robot and bag do not fit each other.

        """
        self._capability = capability
        self._bag = bag
        self._values = values
        self._selection = selection
        self.robot = make_robot(urdf, values)
        self.store = make_store(self.robot, values)
        self._needs: Needs = capability.needs(values)
        self._spans, self._remarks = self._marked()
        self._joint_topic = selection.topic(bag, 'joint_states', JOINT_STATE)
        self._joints = JointStream(
            self.robot.joint_names, self._factor(), need_effort=self._needs.effort,
            source=bag.name, span=self._span(marks.JOINTS), budget=self._needs.budget,
            rests=self._rests())
        self._wrenches = {
            need.topic: (selection.topic(bag, need.topic, WRENCH), self._wrench_stream(need))
            for need in self._needs.wrenches}
        self._tracker = self._tracker_stream(self._needs.tracker)

    @property
    def messages(self) -> int:
        """How many messages are to be read."""
        topics = [self._joint_topic, *(topic for topic, _ in self._wrenches.values())]
        topics += [] if self._tracker is None else [self._tracker[0]]
        return sum(self._bag.counts[topic] for topic in topics)

    def run(self, progress: Callable[[int], None] | None = None) -> Outcome:
        """Read and estimate.

        Args:
            progress: Called with the number of messages read so far, now and then.

        Raises:
            RobocalError: If bag or data do not allow it.

        """
        sinks: dict[str, Sink] = {self._joint_topic: self._joints.take}
        for topic, stream in self._wrenches.values():
            sinks[topic] = stream.take
        if self._tracker is not None:
            sinks[self._tracker[0]] = self._tracker[1].take
        self._bag.read(sinks, progress)
        recording = Recording(
            self._joints.samples(),
            {name: stream.samples() for name, (_, stream) in self._wrenches.items()},
            self._temperatures(), self._spans.joints_wanted,
            None if self._tracker is None else self._tracker[1].samples(), self._rests())
        result = self._capability.estimate(self.robot, recording, self._values, self.store)
        return Outcome(result, (*self._remarks, *self._told()))

    def _factor(self) -> Array:
        """Return what turns the bag's efforts into torques, known drive gains among it."""
        return torque_factor(self.robot, self._values, self.store)

    def _wrench_stream(self, need: WrenchNeed) -> WrenchStream:
        self.robot.frame_id(need.frame)
        if abs(need.sign) != 1.0:
            raise ConfigurationError(f'sensor_sign must be 1.0 or -1.0, got {need.sign}.')
        return WrenchStream(need.topic, need.frame, need.sign, source=self._bag.name,
                            span=self._span(need.topic), budget=self._needs.budget)

    def _tracker_stream(self, need: TrackerNeed | None) -> tuple[str, TrackerStream] | None:
        if need is None:
            return None
        from robocal_ros.messages.bag_samples import TrackerStream

        topic = self._selection.topic(
            self._bag, need.topic, POSE if need.orientation else POINT)
        return topic, TrackerStream(
            need.topic, orientation=need.orientation, source=self._bag.name,
            span=self._span(need.topic), rests=self._rests())

    # ------------------------------------------------------------------------ marks

    def _marked(self) -> tuple[Spans, tuple[str, ...]]:
        """Return the spans of the last run that the bag tells of, and a remark about it."""
        name = f'{self._capability.node}/{marks.TOPIC}'
        topic = self._selection.known_topic(self._bag, name, MARKS)
        if self._selection.whole or topic is None:
            return Spans(), ()
        spans = marks.last_run(marks_in(self._bag, topic), self._capability.verbs)
        if spans is None:
            return Spans(), ()
        return spans, ('The last run that the bag tells of is used; --whole takes all of it.',)

    def _span(self, stream: str) -> Span:
        marked = self._spans.of(stream)
        return Span(max(marked.begin, self._selection.begin),
                    min(marked.end, self._selection.end), marked.discarded)

    def _rests(self) -> tuple[Rest, ...]:
        """Return the rests that marks tell of and that lie within what was selected."""
        span = self._span(marks.JOINTS)
        return tuple(rest for rest in self._spans.rests
                     if span.begin < rest.begin and rest.end <= span.end)

    def _temperatures(self) -> Array:
        if not self._needs.temperature_topic:
            return no_readings()
        topic = self._selection.topic(self._bag, self._needs.temperature_topic, TEMPERATURE)
        span = self._span(marks.JOINTS)
        readings = np.array([
            (message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec, message.temperature)
            for message in self._bag.messages(topic)]).reshape(-1, 2)
        return readings[span.holds(readings[:, 0])]

    def _told(self) -> Iterator[str]:
        streams: list[tuple[str, JointStream | WrenchStream]] = [('joint_states', self._joints)]
        streams += [(name, stream) for name, (_, stream) in self._wrenches.items()]
        for name, stream in streams:
            if stream.averaged > 1:
                yield (f'{stream.kept} messages of {name} are more than are needed: '
                       f'{stream.averaged} neighbours each were averaged.')
            if stream.forgotten:
                yield (f'The bag is longer than fits: the oldest {stream.forgotten} averages of '
                       f'{name} were left out. Choose a part with --from and --to.')
