# SPDX-License-Identifier: Apache-2.0
"""Recording of samples for a procedure, live or from a replayed bag, and its marks."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from robocal_ros.arm import Recorder
from robocal_ros.errors import DataError
from robocal_ros.estimators import Needs
from robocal_ros.messages import (
    Intake,
    JointStateStream,
    Recorded,
    Recording,
    Stream,
    TrackerStream,
    WrenchStream,
    marks,
    no_readings,
    qos,
    within_budget,
)
from robocal_ros.node.calibration_node import CalibrationNode

# Most received marks that are kept, those of some runs, and largest message with marks [bytes].
_MOST, _LIMIT = 4000, 8000


class SampleRecorder(Recorder):
    """Recorder of joint states, F/T readings and a tracker while the node is active.

    If a replayed bag contains marks, only the samples that they assign to its last run are used.
    The recording of a live run has its own marks only.
    """

    def __init__(
        self, node: CalibrationNode, joints: JointStateStream, *,
        wrenches: Mapping[str, WrenchStream] | None = None,
        tracker: tuple[str, TrackerStream] | None = None,
        temperature: Stream[Intake] | None = None, services: tuple[str, ...] = ('run', 'estimate'),
    ) -> None:
        """Create the topic of marks.

        Args:
            node: The node.
            joints: Joint states.
            wrenches: F/T sensors by topic, as in the parameters.
            tracker: The tracker and its topic; None for none.
            temperature: Temperatures [°C]; None for none.
            services: Services whose marks in a replayed bag delimit a run.

        """
        super().__init__(joints)
        self._node = node
        self._tracker = tracker
        self._temperature = temperature
        self._services = services
        self._marked: dict[str, Stream[Any]] = {marks.JOINTS: joints, **(wrenches or {})}
        if tracker is not None:
            self._marked[tracker[0]] = tracker[1]
        self._streams = [*self._marked.values(), *([] if temperature is None else [temperature])]
        self._live = False
        self._marks = Marks(node, lambda: not self._is_live)

    def start(self) -> None:
        """Start recording."""
        for stream in self._streams:
            stream.recording = True

    def stop(self) -> None:
        """Stop recording; recorded samples are kept."""
        for stream in self._streams:
            stream.recording = False

    destroy = stop

    @property
    def _is_live(self) -> bool:
        """True if the recording was begun by a procedure of this node, and is no replayed bag.

        That is known while the procedure runs; later, a clock that jumps is that of a bag.
        """
        return self._live and (self._node.running not in ('', 'estimate')
                               or not self._joints.counts.clock_jumps)

    def clear(self) -> int:
        """Discard all recorded samples, publish the mark, return the number of joint samples."""
        count = self._joints.recorded
        for stream in self._streams:
            stream.clear()
        self._live = self._node.running not in ('', 'clear')
        self._marks.forget()
        self._mark(marks.BEGIN, {})
        return count

    def recording(self, needs: Needs, *, words: Mapping[str, str] | None = None) -> Recording:
        """Return the recorded samples of the run, and mark the beginning of an estimation.

        Args:
            needs: Streams that the estimation reads, and its sample budget.
            words: Further values of the mark by name, for an estimation from a bag.

        """
        spans = self._marks.replayed(self._services)

        def of_run(topic: str) -> Any:
            samples = self._marked[topic].intake.samples()
            return samples.chosen(spans.of(topic).holds(samples.time))

        span, joints = spans.of(marks.JOINTS), of_run(marks.JOINTS)
        wrenches = {need.topic: within_budget(of_run(need.topic), needs.budget)
                    for need in needs.wrenches}
        tracked = None if self._tracker is None else of_run(self._tracker[0])
        found = no_readings() if self._temperature is None else self._temperature.samples()
        self._mark(marks.END, words or {})
        return Recording(
            # Intervals at rest are averaged by the estimator, each over its samples.
            joints if spans.stationary else within_budget(joints, needs.budget), wrenches,
            found[span.holds(found[:, 0])], spans.joints_wanted, tracked, spans.stationary)

    # ---------------------------------------------------------------------- restarts

    @property
    def newest_by_topic(self) -> dict[str, float]:
        """Newest stamp of each stream by topic, -inf before the first [s]."""
        return {stream.topic: stream.newest for stream in self._streams}

    def saved(self) -> dict[str, Recorded]:
        """Return what is recorded by topic, for a later start of the node.

        Without samples if there is a tracker: its readings are averaged while the arm rests.
        """
        return {stream.topic: stream.intake.saved(samples=self._tracker is None)
                for stream in self._streams}

    def restore(self, saved: Mapping[str, Recorded]) -> None:
        """Go on from what an earlier start of the node recorded; mark the time in between.

        Raises:
            DataError: If it is of other streams; the present recording is kept.

        """
        for stream in self._streams:
            earlier = saved.get(stream.topic)
            width = 1 + stream.intake.decoder.width
            if earlier is None or earlier.rows.shape[1:] != (width,):
                raise DataError(f"It lacks the samples of '{stream.topic}'.")
        for stream in self._streams:
            stream.intake.restore(saved[stream.topic])
        self._live = True
        self._marks.forget()
        if self._tracker is None:
            self.resume({name: saved[stream.topic].newest
                         for name, stream in self._marked.items()})

    # ----------------------------------------------------------------------- marks

    def _mark(self, name: str, words: Mapping[str, str]) -> None:
        stamps = {topic: repr(stamp) for topic, stamp in self.stamps().items()}
        self._marks.publish(name, self._node.running, {**stamps, **words})

    def stamps(self) -> dict[str, float]:
        """Return the newest stamp of each marked stream that has one [s]."""
        return {topic: stream.newest for topic, stream in self._marked.items()
                if np.isfinite(stream.newest)}

    def rewind(self, begin: Mapping[str, float]) -> None:
        """Discard the samples after these stamps [s], and pause recording."""
        self.stop()
        for topic, stream in self._marked.items():
            stream.forget_after(begin.get(topic, -np.inf))
        self._joints.intake.guard.count(interruptions=1)

    def resume(self, begin: Mapping[str, float]) -> None:
        """Record again after ``rewind``, and mark what was discarded."""
        self.start()
        self._marks.publish(marks.DISCARD, self._node.running, {
            topic: f'{begin.get(topic, -np.inf)!r} {newest!r}'
            for topic, newest in self.stamps().items()})

    def discard_after(self, stamp: float) -> None:
        """Discard the joint samples after a stamp [s], those of an interrupted motion."""
        self.mark_discarded(self._joints.forget_after(stamp))

    def mark_discarded(self, span: tuple[float, float]) -> None:
        """Mark that joint states after one stamp, up to another [s], are not used."""
        self._marks.publish(marks.DISCARD, self._node.running,
                            {marks.JOINTS: f'{span[0]!r} {span[1]!r}'})

    def mark_stationary(self, interval: marks.StationaryInterval) -> None:
        """Mark an interval in which the arm was measured at rest."""
        self._marks.publish(marks.REST, self._node.running, {
            marks.JOINTS: f'{interval.begin!r} {interval.end!r}', marks.PURPOSE: interval.purpose,
            marks.POSTURE: str(interval.posture)})


class Marks:
    """Publisher of a node's marks that also collects those of a replayed bag."""

    def __init__(self, node: CalibrationNode, replays: Callable[[], bool] = lambda: True) -> None:
        """Create publisher and subscription, which the node's ``release`` removes.

        Args:
            node: The node.
            replays: Returns whether received marks may be of the recording. A bag that is played
                beside a live run has marks of another one.

        """
        self._node = node
        self._replays = replays
        # Distinguishes this start of the node from the recorded one.
        self._own = uuid.uuid4().hex
        self._received: deque[marks.Mark] = deque(maxlen=_MOST)
        self._publisher = node.publisher(DiagnosticArray, f'~/{marks.TOPIC}', qos.MARKS)
        node.subscription(
            DiagnosticArray, f'~/{marks.TOPIC}', self._take, qos.MARKS, limit=_LIMIT)

    def publish(self, name: str, service: str, values: Mapping[str, str]) -> None:
        """Publish a mark; arguments as for ``Mark``."""
        status = DiagnosticStatus(
            level=DiagnosticStatus.OK, name=name, message=service, hardware_id=self._own,
            values=[KeyValue(key=key, value=value) for key, value in values.items()])
        array = DiagnosticArray(status=[status])
        array.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(array)

    def replayed(self, services: Sequence[str]) -> marks.Spans:
        """Return the spans of the last replayed run; without marks, everything is used."""
        return marks.last_run(self._received, services) or marks.Spans()

    def forget(self) -> None:
        """Discard replayed marks."""
        self._received.clear()

    def _take(self, message: DiagnosticArray) -> None:
        if self._replays():
            self._received += [marks.Mark.of(status) for status in message.status
                               if status.hardware_id != self._own]
