# SPDX-License-Identifier: Apache-2.0
"""What a procedure records, live or out of a replayed bag, and the marks that tell what counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.capability.capability import Needs
from robocal_ros.messages import marks
from robocal_ros.messages.intake import Intake
from robocal_ros.messages.mark_topic import Marks
from robocal_ros.messages.marks import StationaryInterval
from robocal_ros.messages.record import within_budget, wrench_within_budget
from robocal_ros.messages.samples import JointSamples, Recording, no_readings
from robocal_ros.messages.stream import JointStateStream, Stream, TrackerStream, WrenchStream
from robocal_ros.node.calibration_node import CalibrationNode


class Recorder:
    """Records joint states, F/T readings and a tracker while the node is active.

    A replayed bag may bring the marks of the run that it was recorded of; then only what they
    say belongs to that run counts.

    Attributes:
        on_sample: Called with stamp [s], position [rad] and torque [N·m], shape (n,) each, of
            every sample as it is recorded; None for nobody.

    """

    def __init__(
        self, node: CalibrationNode, joints: JointStateStream, *,
        wrenches: Mapping[str, WrenchStream] | None = None,
        tracker: tuple[str, TrackerStream] | None = None,
        temperature: Stream[Intake] | None = None,
        services: tuple[str, ...] = ('run', 'estimate'),
    ) -> None:
        """Create the topic of marks.

        Args:
            node: The node.
            joints: The joint states.
            wrenches: F/T sensors by topic, as parameters name it.
            tracker: The tracker and its topic; None for none.
            temperature: Temperatures [°C]; None for none.
            services: Services whose marks, in a replayed bag, tell what belongs to a run.

        """
        self._node = node
        self._joints = joints
        self._wrenches = dict(wrenches or {})
        self._tracker = tracker
        self._temperature = temperature
        self._services = services
        self._marks = node.part(Marks(node, node.group))
        self.on_sample: Callable[[float, Array, Array], None] | None = None
        joints.on_sample = self._pass_on

    def _pass_on(self, stamp: float, position: Array, torque: Array) -> None:
        if self.on_sample is not None:
            self.on_sample(stamp, position, torque)

    def start(self) -> None:
        """Record."""
        self._record(True)

    def stop(self) -> None:
        """Record no more; what was recorded stays."""
        self._record(False)

    destroy = stop

    def _record(self, on: bool) -> None:
        self._joints.recording = on
        for stream in self._wrenches.values():
            stream.recording = on
        if self._tracker is not None:
            self._tracker[1].recording = on
        if self._temperature is not None:
            self._temperature.recording = on

    @property
    def recorded(self) -> int:
        """Number of joint samples recorded."""
        return self._joints.recorded

    @property
    def newest(self) -> float:
        """Newest stamp of the joint states, -inf before the first [s]."""
        return self._joints.newest

    def samples(self, after: float = -np.inf) -> JointSamples:
        """Return the joint samples recorded after a stamp [s]."""
        return self._joints.samples(after)

    def clear(self) -> int:
        """Forget what was recorded, and mark that; return how many joint samples it was."""
        count = self._joints.recorded
        self._joints.clear()
        for stream in self._wrenches.values():
            stream.clear()
        if self._tracker is not None:
            self._tracker[1].clear()
        if self._temperature is not None:
            self._temperature.clear()
        self._marks.forget()
        self._mark(marks.BEGIN, {})
        return count

    def recording(
        self, needs: Needs, *, words: Mapping[str, str] | None = None
    ) -> Recording:
        """Return what counts of what is recorded, and mark that an estimation begins.

        Args:
            needs: What the estimation reads, and how many samples it works on at most.
            words: What else an estimation from a bag should know, by name.

        """
        spans, joints = self._marks.replayed(self._services), self._joints.samples()
        span = spans.of(marks.JOINTS)
        joints = joints.chosen(span.holds(joints.time))
        wrenches = {}
        for need in needs.wrenches:
            readings = self._wrenches[need.topic].samples()
            readings = readings.chosen(spans.of(need.topic).holds(readings.time))
            wrenches[need.topic] = wrench_within_budget(readings, needs.budget)
        tracked = None
        if self._tracker is not None:
            tracked = self._tracker[1].samples()
            tracked = tracked.chosen(spans.of(self._tracker[0]).holds(tracked.time))
        found = no_readings() if self._temperature is None else self._temperature.intake.rows()
        self._mark(marks.END, words or {})
        return Recording(
            # Averages over rests are to be exact; elsewhere neighbours may be averaged.
            joints if spans.stationary else within_budget(joints, needs.budget), wrenches,
            found[span.holds(found[:, 0])], spans.joints_wanted, tracked, spans.stationary)

    # ----------------------------------------------------------------------- marks

    def _mark(self, name: str, words: Mapping[str, str]) -> None:
        newest = {marks.JOINTS: self._joints.newest,
                  **{topic: stream.newest for topic, stream in self._wrenches.items()}}
        if self._tracker is not None:
            newest[self._tracker[0]] = self._tracker[1].newest
        stamps = {stream: repr(stamp) for stream, stamp in newest.items() if np.isfinite(stamp)}
        self._marks.publish(name, self._node.running, {**stamps, **words})

    def discard_after(self, stamp: float) -> None:
        """Forget the joint samples after a stamp [s]: a motion cut short is no measurement."""
        self.mark_discarded(self._joints.forget_after(stamp))

    def mark_discarded(self, span: tuple[float, float]) -> None:
        """Note that joint states after one stamp, up to another, do not count [s]."""
        self._marks.publish(marks.DISCARD, self._node.running,
                            {marks.JOINTS: f'{span[0]!r} {span[1]!r}'})

    def mark_stationary(self, interval: StationaryInterval) -> None:
        """Note that the arm was measured at rest."""
        self._marks.publish(marks.REST, self._node.running, {
            marks.JOINTS: f'{interval.begin!r} {interval.end!r}', marks.PURPOSE: interval.purpose,
            marks.POSTURE: str(interval.posture)})
