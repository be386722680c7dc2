# SPDX-License-Identifier: Apache-2.0
"""External wrenches from a bag by the node's observer, in the order of stamps."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, compress, groupby, islice
from pathlib import Path

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError, RobocalError
from robocal_ros.estimators import Follower
from robocal_ros.messages import (
    JOINT_STATE,
    MARKS,
    SECOND,
    STRING,
    TEMPERATURE,
    Bag,
    Channel,
    Intake,
    JointIntake,
    Selection,
    Span,
    Stamps,
    State,
    ahead,
    from_seconds,
    in_stamp_order,
    marks,
    marks_in,
    to_seconds,
)
from robocal_ros.results import CalibrationResult, choose, from_yaml, with_inputs
from robocal_ros.robot import (
    SENSOR_CALIBRATION,
    check_effort_unit,
    check_efforts,
    effort_units,
    friction_by_joint,
    make_robot,
    make_store,
    stored_zero,
    torque_factor,
)
from robocal_ros.wrench import tare
from robocal_ros.wrench.fusion import Fusion
from robocal_ros.wrench.model import TareRecord
from robocal_ros.wrench.observer import Observation, WrenchObserver
from robocal_ros.wrench.offline_observer import Block, OfflineObserver
from robocal_ros.wrench.output_file import Digest, WrenchSeries, series_file
from robocal_ros.wrench.parameters import NODE, TARE, WrenchParameters
from robocal_ros.wrench.tare import Taring

Blocks = Generator[Block, None, None]

# Time before and after a span that is read with it, so that its windows are full [s].
_MARGIN = 3.0
# Number of searches for a rest within the duration of a tare.
_LOOKS = 4
# Smallest delay of a sensor that is reported [s], and standard deviations that it must exceed.
_DELAYED, _CLEAR = 5e-4, 4.0
# Number of observations written at a time.
_BLOCK = 4096
# Upper bound of the rounding error of a stamp in seconds [ns].
_ROUNDING = 1000


@dataclass(frozen=True)
class WrenchOutcome:
    """Outcome of the observation of a bag.

    Attributes:
        tare: The last tare used, None if sensors were assumed to have no bias or links with IMUs
            were tared as a whole.
        digest: Summary of the observations.
        remarks: Sentences.

    """

    tare: CalibrationResult | None
    digest: Digest
    remarks: tuple[str, ...]


class _ClockJumpError(Exception):
    """The clock of a bag jumps back."""


class WrenchFollowing:
    """Observation of one bag; the inputs are checked on construction.

    Attributes:
        robot: The arm.
        links: Names of the sub-chains.

    """

    def __init__(
        self, bag: Bag, values: WrenchParameters, urdf: str, selection: Selection
    ) -> None:
        """Check that parameters, robot and bag fit each other.

        Args:
            bag: The bag.
            values: The node's parameters.
            urdf: URDF text.
            selection: Messages to use.

        Raises:
            RobocalError: If parameters, robot and bag do not fit each other.

        """
        self._bag = bag
        self._values = values
        self._selection = selection
        self.robot = make_robot(urdf, values)
        self._store = make_store(self.robot, values)
        self._observer = WrenchObserver(self.robot, values)
        self._remarks = list(self._observer.remarks)
        self.links = tuple(chain.link for chain in self._observer.arm.chains)
        self._topics = self._found_topics()
        marked = selection.known_topic(bag, f'{NODE}/{marks.TOPIC}', MARKS)
        self._marked = [] if selection.whole or marked is None else list(
            marks.tares(marks_in(bag, marked)))
        self._selected = Span(selection.begin, selection.end)
        gains = choose(self._store.load, (), effort_units(values)).gains
        self._factor = torque_factor(self.robot, values, gains)
        if values.observe_torque:
            check_effort_unit(values, gains)
        self._observer.use_gains(gains)
        self._observer.use_torque_zero(stored_zero(self.robot, values, self._store.load, gains))
        self._use_results()

    @property
    def messages(self) -> int:
        """Number of messages to be read."""
        return sum(self._bag.counts[topic] for topic in self._topics.values())

    def run(
        self, series: Path, progress: Callable[[int], None] | None = None, *,
        covariances: bool = False,
    ) -> WrenchOutcome:
        """Tare, then read, observe and write every observation.

        Args:
            series: File of the series: CSV if it ends with .csv, else MCAP.
            progress: Called from time to time with the number of messages read so far.
            covariances: Whether the tool wrench and all covariances are written, too.

        Raises:
            RobocalError: If bag or data are unsuitable, or the file cannot be written.

        """
        self._fusion = Fusion(self._observer) if covariances else None
        with series_file(series, self.links, self.robot.joint_names, self._fusion) as writer:
            result = self.tare()
            bias, reference = self._observer.bias, self._observer.reference
            by_samples = bool(self._observer.imu_chains or self._values.drift_lag)
            try:
                digest = self._observe(
                    result, writer, (self._sampled if by_samples else self._blocks)(progress))
            except _ClockJumpError:
                # Start again sample by sample, which handles jumps.
                writer.restart()
                if result is not None:
                    self._observer.use_bias(bias, reference)
                digest = self._observe(result, writer, self._sampled(progress))
        return WrenchOutcome(self._result, digest, tuple(self._remarks))

    def _observe(
        self, result: CalibrationResult | None, series: WrenchSeries, blocks: Blocks
    ) -> Digest:
        """Write observations and return their summary, with the biases of the first tare."""
        self._result, digest = result, Digest(self.links, self.robot.n)
        # Records the samples of one marked tare after the other.
        self._records = (TareRecord(span) for span in self._marked
                         if span[1] > self._selection.begin)
        self._tare = self._observer.recorder = next(self._records, None)
        for block in ahead(blocks):
            stamps = block.stamps
            if self._values.stamp_estimates:
                stamps = stamps - np.rint(block.delay * SECOND).astype(np.int64)
            digest.add(stamps, block)
            series.add(stamps, block)
        return digest

    def _ended_tare(self, passed: bool) -> bool:
        """Use the marked tare if it is complete, and await the next one then.

        Args:
            passed: Whether its samples have passed: it is left out if they are not complete.

        Returns:
            Whether another one is awaited.

        """
        if self._tare is None or not (self._tare.complete or passed):
            return False
        if self._tare.complete:
            # From the next instant on, as in the live node.
            self._result = self._use_record(self._tare)
        self._tare = self._observer.recorder = next(self._records, None)
        return True

    def _blocks(self, progress: Callable[[int], None] | None) -> Blocks:
        """Observe in whole arrays.

        Raises:
            _ClockJumpError: If the clock jumps back.

        """
        whole = OfflineObserver(self._observer, self._fusion)
        intakes = {topic: channel.intake
                   for topic, channel in self._channels(self._selected).items()}
        sensors = {topic: index for index, topic in enumerate(intakes)}
        joints = self._topics[marks.JOINTS]
        for topic, stamps, values, problems, times in ahead(self._decoded(intakes, progress)):
            if topic == joints:
                usable = np.delete(np.arange(len(stamps)), list(problems))
                whole.add_joint_states(stamps[usable], values[usable], times[usable])
            else:
                whole.add_readings(sensors[topic], stamps, values, problems, times)
            yield from self._advance(whole, final=False)
        yield from self._advance(whole, final=True)
        self._tell_counts(intakes)
        self._tell_delays(whole)

    def _decoded(
        self, intakes: Mapping[str, Intake], progress: Callable[[int], None] | None
    ) -> Generator[tuple[str, Stamps, Array, dict[int, str], Stamps], None, None]:
        """Yield stamps [ns], values, problems by row and times of messages of a topic [ns]."""
        for part in chain.from_iterable(self._bag.groups(intakes, progress)):
            intake = intakes[part.topic]
            decoded = intake.decoder(part.messages)
            counted, jumps = intake.judge(decoded, np.arange(len(part.messages)))
            if jumps:
                raise _ClockJumpError
            rows = counted[self._selected.holds(to_seconds(decoded.stamps[counted]))]
            bad = np.flatnonzero(decoded.states[rows] != State.USABLE)
            yield part.topic, decoded.stamps[rows], decoded.values[rows], {
                place: decoded.reasons[rows[place]] for place in bad.tolist()
            }, part.times[rows]

    def _tell_delays(self, whole: OfflineObserver) -> None:
        """Report sensors whose readings are delayed or early relative to the motion."""
        for sensor, (delay, std) in zip(
                self._observer.sensors, whole.delays.estimates(), strict=True):
            if abs(delay) > max(_DELAYED, _CLEAR * std):
                self._remarks.append(
                    f"Readings of sensor '{sensor.frame}' are {1e3 * abs(delay):.1f} ms "
                    f'{"older" if delay > 0.0 else "younger"} than stamps and sensor_delays say '
                    f'(standard deviation {1e3 * std:.1f} ms). Set its sensor_delays to '
                    f'{sensor.delay + delay:.4f}.')

    def _advance(self, whole: OfflineObserver, *, final: bool) -> Iterator[Block]:
        """Yield all complete observations, with the biases of their time."""
        more = True
        while more:
            until = None if self._tare is None else from_seconds(self._tare.span[1]) + _ROUNDING
            block = whole.take(final=final, until=until)
            if block is not None:
                yield block
            more = self._ended_tare(passed=whole.has_more(final=final))

    def _sampled(self, progress: Callable[[int], None] | None) -> Blocks:
        """Observe sample by sample."""
        def tared() -> Iterator[Observation]:
            for observation in self._observations(self._selected, progress):
                yield observation
                self._ended_tare(passed=self._tare is not None and (
                    observation.stamp > self._tare.span[1] + _MARGIN))

        observations = tared()
        while together := list(islice(observations, _BLOCK)):
            yield Block.of(together, self.robot.n, self._fusion)

    # ------------------------------------------------------------------------ inputs

    def _found_topics(self) -> dict[str, str]:
        """Return full topic names by the node's names of them."""
        bag, selection, sensors = self._bag, self._selection, self._observer.sensors
        topics = {source.topic: selection.topic(bag, source.topic, source.kind)
                  for source, _ in self._observer.inputs}
        needless = sensors and all(sensor.imu is not None for sensor in sensors)
        find = selection.known_topic if needless else selection.topic
        joints = find(bag, 'joint_states', JOINT_STATE)
        return topics if joints is None else {**topics, marks.JOINTS: joints}

    def _use_results(self) -> None:
        """Use stored results of other nodes."""
        values = self._values
        payload = self._store.load('payload') if values.use_payload else None
        if payload is not None:
            self._remarks.append(self._observer.use_payload(payload))
        calibration = self._store.load(SENSOR_CALIBRATION)
        if calibration is not None:
            self._observer.use_calibration(calibration)
        friction = self._store.load('friction') if values.use_friction else None
        check_efforts(self.robot, values, friction)
        if friction is not None:
            self._observer.use_friction(friction_by_joint(friction, self._mean_temperature()))
        torques = self._observer.torques
        if torques is not None and not torques.friction.known.all():
            unknown = ', '.join(compress(self.robot.joint_names, ~torques.friction.known))
            self._remarks.append(
                f'Friction of {unknown} is not known and counts as external joint torque.')

    def _mean_temperature(self) -> float:
        """Return the mean temperature in the bag [°C]; NaN without one."""
        topic = self._values.temperature_topic
        if not topic:
            return float('nan')
        found = [message.temperature for message in self._bag.messages(
            self._selection.topic(self._bag, topic, TEMPERATURE))]
        return float(np.mean([value for value in found if np.isfinite(value)] or [np.nan]))

    # ------------------------------------------------------------------------------- samples

    def _channels(self, span: Span) -> dict[str, Channel]:
        observer, topics = self._observer, self._topics
        channels = {topics[source.topic]: Channel(Intake(source.decoder()), feed.take, span)
                    for source, feed in observer.inputs}
        if marks.JOINTS in topics:
            channels[topics[marks.JOINTS]] = Channel(
                JointIntake(self.robot, self._factor), observer.joint_chains.take_state, span)
        return channels

    def _observations(
        self, span: Span, progress: Callable[[int], None] | None = None
    ) -> Iterator[Observation]:
        """Yield all observations of the samples within a span."""
        observer = self._observer
        observer.clear()
        channels = self._channels(span)
        for samples in in_stamp_order(self._bag, channels, progress):
            if samples is None:
                observer.clear()
                continue
            for stamp, alike in groupby(samples, lambda sample: sample[0]):
                yield from iter(observer.take, None)
                for _, take, content in alike:
                    take(stamp, content)
            yield from iter(observer.take, None)
        if progress is not None:
            self._tell_counts({topic: channel.intake for topic, channel in channels.items()})

    def _tell_counts(self, intakes: dict[str, Intake]) -> None:
        for topic, intake in intakes.items():
            counts = intake.counts
            words = [f'{count} {what}' for count, what in (
                (counts.dropped, 'missing by the gaps between stamps'),
                (counts.out_of_order, 'out of order'),
                (counts.incomplete, 'incomplete or unreadable'),
                (counts.not_finite, 'not finite'),
                (counts.implausible, 'implausible'),
                (counts.clock_jumps, 'with which the clock jumped back')) if count]
            if words:
                self._remarks.append(f'Messages of {topic}: {", ".join(words)}.')

    # ---------------------------------------------------------------------------------- tare

    def _use_record(self, record: TareRecord, *, remark: bool = False) -> CalibrationResult:
        """Compensate the biases of a record from now on."""
        result, remarks = Taring(self._observer.arm).find(record, self._values, self._bag.name)
        self._remarks += (remarks if remark else ()) + tare.contradictions(self._observer, result)
        self._observer.use_tare(result)
        return with_inputs(result, tare.inputs_of(self._values, self._store.load))

    def tare(self) -> CalibrationResult | None:
        """Set the initial biases: stored, marked, published, or of the first rest.

        Returns:
            The tare, None if no sensor is tared.

        Raises:
            RobocalError: If none of them is available, or no bias explains the readings.

        """
        values = self._values
        stored = tare.kept(values, self._store.load)
        if stored is not None:
            self._remarks.append('The tare that is stored is used.')
            self._observer.use_tare(stored)
            if self._observer.weighed_otherwise:
                # What was on the arm at the tare, the first readings tell.
                for _ in self._observations(self._selected):
                    if self._observer.reweigh():
                        break
            return stored
        if not self._observer.sensors:
            return None
        if not values.require_tare and not self._marked:
            self._remarks.append('The sensors are taken to be without bias (require_tare).')
            return None
        found = self._marked_tare() or self._told_tare()
        if found is not None or not values.require_tare:
            return found
        return self._tare_at_rest()

    def _marked_tare(self) -> CalibrationResult | None:
        """Use the last marked tare before the selection, else the first one."""
        before = sum(span[1] <= self._selection.begin for span in self._marked)
        for span in self._marked[max(0, before - 1):]:
            record = self._observer.recorder = TareRecord(span)
            for _ in self._observations(Span(span[0] - _MARGIN, span[1] + _MARGIN)):
                if record.complete:
                    self._remarks.append(
                        f"The node's {TARE} is marked in the bag: the same samples are used.")
                    return self._use_record(record)
        return None

    def _told_tare(self) -> CalibrationResult | None:
        """Return the tare that the node published; used if its samples were not recorded."""
        topic = self._selection.known_topic(self._bag, f'{NODE}/result', STRING)
        if topic is None or self._selection.whole:
            return None
        texts = [str(message.data) for message in self._bag.messages(topic)]
        if not texts:
            return None
        try:
            result = from_yaml(texts[-1], self._store.robot, topic)
            self._observer.use_tare(result)
        except RobocalError as error:
            self._remarks.append(f'The tare on {topic} is not used: {error}')
            return None
        self._remarks.append(f'The tare that the node published on {topic} is used.')
        return result

    def _tare_at_rest(self) -> CalibrationResult | None:
        """Use the first rest; without joint states, whose weights are known then, as a whole."""
        taring, duration = Taring(self._observer.arm), self._values.tare_duration
        by_link, refusal = marks.JOINTS not in self._topics, ''
        record = self._observer.recorder = TareRecord()
        for _ in self._observations(self._selected):
            if (record.link_duration if by_link else record.duration) < duration:
                continue
            try:
                if by_link:
                    self._observer.use_link_biases(taring.find_links(record, self._values))
                    self._remarks.append(
                        'The bag has no joint states, so links with IMUs were tared as a whole '
                        'over the first rest. This holds while their weight and biases turn with '
                        'them.')
                    return None
                taring.at_rest(record, self._values)
            except DataError as error:
                refusal = str(error)
                record.drop(duration / _LOOKS)
                continue
            self._remarks.append(
                f'Tared over the first rest of {duration:g} s, from stamp '
                f'{to_seconds(record.rows[0].stamp):.3f} on.')
            return self._use_record(record, remark=True)
        why = refusal or self._observer.joint_chains.problem or next(
            (feed.problem for feed in self._observer.feeds if feed.problem),
            'Too few samples are there.')
        raise DataError(
            f"Bag '{self._bag.name}' holds no rest of {duration:g} s to tare "
            f'with. The last stretch was refused: {why} Record a rest that nothing touches, or '
            'use a stored tare with -p keep_tare:=true.')


FOLLOWER = Follower('wrench', WrenchParameters, (TARE,), WrenchFollowing)
