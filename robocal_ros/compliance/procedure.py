# SPDX-License-Identifier: Apache-2.0
"""How compliance is measured on the arm: the same postures twice, going on where it was.

Which postures the compliance node visits.

How the tracker is placed: the unloaded arm shows it the target in some postures.

Reading the tracker while the arm rests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.compliance.estimate import check_registration, place_tracker
from robocal_ros.compliance.measurement import (
    LOADED,
    REGISTRATION,
    UNLOADED,
    EndPosition,
    check_drift,
    drift_of,
    find_end_positions,
    rest_of,
)
from robocal_ros.compliance.model import Load
from robocal_ros.compliance.plan import (
    given_postures,
    least_count,
    plan_postures,
    plan_registration,
)
from robocal_ros.compliance.registration import Registration
from robocal_ros.errors import DataError, MotionError
from robocal_ros.messages.tracker_stream import TrackerStream
from robocal_ros.node.procedure_node import ProcedureNode
from robocal_ros.robot.planning import connect

# So many postures in a row that nobody saw are not postures that look away: something is wrong.
_UNSEEN_IN_A_ROW = 3
_MAX_LOST = 0.2

Preview = Callable[[list[EndPosition], list[EndPosition]], Awaitable[None]]


@dataclass
class MeasuredSet:
    """What is measured with, or without, the load.

    Attributes:
        name: ``unloaded`` or ``loaded``.
        visits: Number of the posture and what was seen there, in the order of measuring; the
            first posture is visited again now and then.

    """

    name: str
    visits: list[tuple[int, EndPosition]] = field(default_factory=list)

    @property
    def positions(self) -> list[EndPosition]:
        """End positions in the order of measuring."""
        return [position for _, position in self.visits]

    @property
    def postures(self) -> set[int]:
        """Numbers of the postures that are measured."""
        return {number for number, _ in self.visits}

    def since_reference(self) -> int:
        """Return how many postures were measured since the first one was last visited."""
        count = 0
        for number, _ in reversed(self.visits):
            if number == 0:
                break
            count += 1
        return count

    def forget_since_reference(self) -> int:
        """Forget what was measured since the last good visit of the reference, and how much."""
        count = self.since_reference()
        if count:
            del self.visits[-count:]
        return count


class ComplianceProcedure:
    """Visits the postures without the load, then with it.

    Attributes:
        postures: What is planned, shape (k, n) [rad]; None before the first measurement.
        sets: What is measured, without and with the load.
        registration: Where the tracker stands; None until it is registered.
        left_out: Numbers of postures that could not be reached or seen.
        lost: What went wrong on the way, as sentences.

    """

    def __init__(
        self, node: ProcedureNode, rest: RestReader, load: Callable[[], Load], preview: Preview
    ) -> None:
        """Prepare; nothing moves yet.

        Args:
            node: The node.
            rest: Reads the tracker while the arm rests.
            load: Returns what is mounted between the two sets.
            preview: Tells what both sets say so far.

        Raises:
            RobocalError: If the user's own postures are no good.

        """
        self._preview = preview
        self._node = node
        self._rest = rest
        self._load = load
        self._given = given_postures(node.values, node.robot, node.checker)
        self.clear()

    def clear(self) -> None:
        """Forget what was planned and measured, also where the tracker stands."""
        self.postures: Array | None = None
        self.sets = {UNLOADED: MeasuredSet(UNLOADED), LOADED: MeasuredSet(LOADED)}
        self.registration: Registration | None = None
        self._placed_by: list[EndPosition] = []
        self.left_out: set[int] = set()
        self.lost: list[str] = []

    def register(self, registration: Registration, seen: Sequence[EndPosition]) -> None:
        """Take where the tracker stands, by what it saw; what placed it before is forgotten."""
        if self._placed_by:
            self._node.mark_discarded((self._placed_by[0].begin, self._placed_by[-1].end))
        self.registration, self._placed_by = registration, list(seen)
        for number, position in enumerate(seen):
            self._node.mark_rest(rest_of(position, REGISTRATION, number))

    def missing(self, which: str) -> list[int]:
        """Return the numbers of the postures that are planned and not yet measured."""
        if self.postures is None:
            return []
        done = self.sets[which].postures | self.left_out
        return [number for number in range(len(self.postures)) if number not in done]

    def complete(self, which: str) -> bool:
        """Tell whether a set is measured."""
        return self.postures is not None and not self.missing(which)

    @property
    def under_way(self) -> bool:
        """Whether something is measured and something is missing."""
        return bool(self.sets[UNLOADED].visits) and not (
            self.complete(UNLOADED) and self.complete(LOADED))

    def counts(self) -> dict[str, str]:
        """Return how much is measured, for the status."""
        total = 0 if self.postures is None else len(self.postures) - len(self.left_out)
        return {name: f'{len(item.postures - self.left_out)} of {total}'
                for name, item in self.sets.items()}

    # ------------------------------------------------------------------- measuring

    async def measure(self, which: str, share: tuple[float, float]) -> None:
        """Measure what is missing of a set, and move back to where it began.

        Args:
            which: ``unloaded`` or ``loaded``.
            share: Progress of the procedure at start and end [%].

        Raises:
            RobocalError: If the arm or the tracker does not do its part; what was measured
                stays, and the next call goes on.

        """
        node, done = self._node, self.sets[which]
        home = node.joints.posture().copy()
        await self._rest.wait()
        if self.postures is None:
            node.status.say('planning', 'Choosing postures.', progress=share[0])
            self.postures = await node.worker.run(node.pulse, self._planned, home)
        if done.visits and self.missing(which):
            # After a break the tracker may have moved: look before going on.
            await self._check_reference(done, share)
        await self._visit_all(done, share)
        if done.since_reference():
            await self._check_reference(done, (share[1], share[1]))
        await node.go_to(home, phase='moving', message='Moving back to where it began.',
                         share=(share[1], share[1]))

    def _planned(self, home: Array) -> Array:
        """Return the postures to measure in, for where the arm is, shape (k, n) [rad]."""
        if self._given is not None:
            return self._given
        robot = self._node.robot.copy()
        return plan_postures(robot, self._load().on(robot), self._node.checker, home,
                             self._node.values, self.registration)

    async def _visit_all(self, done: MeasuredSet, share: tuple[float, float]) -> None:
        """Visit the missing postures; those that were not seen once more in the end."""
        postures = self._known_postures()
        waiting, again, unseen = self.missing(done.name), False, 0
        while waiting:
            failed: list[int] = []
            for place, number in enumerate(waiting):
                if done.since_reference() >= self._node.values.reference_every:
                    await self._check_reference(done, self._at(done, share))
                position = await self._visit(done.name, number, postures[number],
                                             self._at(done, share))
                if position is None:
                    failed.append(number)
                    unseen += 1
                    self._give_up_if_blind(done, unseen, number, waiting[place:])
                    continue
                unseen = 0
                self._take(done, number, position)
                await self._tell(done)
            if again:
                self._leave_out(done, failed)
                return
            waiting, again = failed, True

    def _known_postures(self) -> Array:
        if self.postures is None:
            raise DataError('No postures are planned; call measure_unloaded first.')
        return self.postures

    def _at(self, done: MeasuredSet, share: tuple[float, float]) -> tuple[float, float]:
        """Return the progress before and after the next posture [%]."""
        total = len(self._known_postures())
        width = (share[1] - share[0]) / total
        begin = share[0] + width * min(len(done.postures), total - 1)
        return begin, begin + width

    def _take(self, done: MeasuredSet, number: int, position: EndPosition) -> None:
        if self.registration is not None and done.name == UNLOADED:
            check_registration(
                self._node.robot, [position], self.registration, self._node.values)
        self._keep(done, number, position)
        self._node.status.note(**self.counts())

    def _keep(self, done: MeasuredSet, number: int, position: EndPosition) -> None:
        done.visits.append((number, position))
        self._node.mark_rest(rest_of(position, done.name, number))

    async def _tell(self, done: MeasuredSet) -> None:
        """Tell what the postures that are measured in both sets say."""
        if done.name == UNLOADED or len(done.postures) < least_count(self._node.robot.n):
            return
        unloaded = [item for number, item in self.sets[UNLOADED].visits
                    if number in done.postures]
        await self._preview(unloaded, done.positions)

    def _give_up_if_blind(
        self, done: MeasuredSet, unseen: int, number: int, left: Sequence[int]
    ) -> None:
        """Refuse to go on where the tracker sees nothing any more."""
        fault = self._rest.fault()
        if not fault and unseen < _UNSEEN_IN_A_ROW:
            return
        total = len(self._known_postures())
        why = fault or (
            f'The tracker did not see the target long enough in {unseen} postures in a row. '
            f'{self._rest.silence()}Check the tracker, the line of sight, target_axis, '
            'visibility_angle and tracker_position.')
        raise DataError(
            f'{why} It was lost in posture {number + 1} of {total} of the {done.name} set; '
            f'{len(done.postures)} postures are measured and kept, {len(left)} are missing. Call '
            f'measure_{done.name} again to go on.')

    def _leave_out(self, done: MeasuredSet, failed: Sequence[int]) -> None:
        """Do without postures that were not seen twice, if they are few."""
        if not failed:
            return
        named = ', '.join(str(number + 1) for number in failed)
        total = len(self._known_postures())
        if done.name == LOADED:
            raise DataError(
                f'The target was not seen long enough with the load in postures {named} of '
                f'{total}, which are measured without it. What was measured is kept. Clear the '
                'line of sight and call measure_loaded again.')
        if len(self.left_out) + len(failed) > _MAX_LOST * total:
            raise DataError(
                f'The target was not seen long enough in postures {named} of {total}; more than '
                f'{100.0 * _MAX_LOST:.0f} % would be left out. What was measured is kept. Clear '
                'the line of sight and call measure_unloaded again, or correct target_axis, '
                'visibility_angle and tracker_position and call clear.')
        self.left_out.update(failed)
        self._lose(f'Postures {named} are left out: the tracker did not see the target there.')

    async def _visit(
        self, which: str, number: int, posture: Array, share: tuple[float, float]
    ) -> EndPosition | None:
        """Move to a posture and average the tracker there; None if it was not seen."""
        total = len(self._known_postures())
        what = f'posture {number + 1} of {total} ({which})'
        return await self.visit(posture, what, share)

    async def visit(
        self, posture: Array, what: str, share: tuple[float, float]
    ) -> EndPosition | None:
        """Move to a posture and average the tracker there.

        Args:
            posture: Shape (n,) [rad].
            what: Name of the posture.
            share: Progress before and after [%].

        Returns:
            What was seen; None if too little was, or if no way leads there.

        """
        node = self._node
        middle = share[0] + 0.5 * (share[1] - share[0])
        if np.abs(posture - node.joints.posture()).max() > node.values.match_tolerance:
            try:
                path = await self._way(posture)
            except MotionError as error:
                self._lose(f'Moving to {what} was not possible: {error}')
                return None
            await node.move(node.path_trajectory(path), phase='moving',
                            message=f'Moving to {what}.', share=(share[0], middle))
        node.status.say('measuring', f'Averaging the tracker in {what}.', progress=middle)
        return await self._rest.read()

    async def _way(self, posture: Array) -> Array:
        node = self._node
        node.check_stopped()
        path: Array = await node.worker.run(
            node.pulse, connect, node.checker.robot, node.checker,
            node.joints.posture().copy(), posture)
        return path

    async def _check_reference(self, done: MeasuredSet, share: tuple[float, float]) -> None:
        """Visit the first posture again, and refuse to go on if the tracker drifted."""
        position = await self._visit(done.name, 0, self._known_postures()[0],
                                     (share[0], share[0]))
        if position is None:
            raise DataError(
                f'The reference posture of the {done.name} set was not seen again. What was '
                f'measured is kept; clear the line of sight and call measure_{done.name} again.')
        references = [item for number, item in done.visits if number == 0]
        if not references:
            self._keep(done, 0, position)
            return
        drift = drift_of([*references, position], self._node.values.match_tolerance)
        try:
            check_drift(drift, self._node.values.max_drift, done.name)
        except DataError as error:
            count = done.forget_since_reference()
            self._node.mark_discarded((references[-1].end, self._node.joints.newest))
            raise DataError(
                f'{error} {count} postures since the last good reference are forgotten, '
                f'{len(done.postures)} are kept; call measure_{done.name} to go on.') from error
        self._keep(done, 0, position)
        self._node.status.note(**{'drift [µm]': f'{1e6 * drift.largest:.1f}'})

    def _lose(self, sentence: str) -> None:
        self.lost.append(sentence)
        self._node.get_logger().warning(sentence)


class TrackerRegistration:
    """Visits postures that spread the target, and places the tracker by what it saw."""

    def __init__(
        self, node: ProcedureNode, rest: RestReader, procedure: ComplianceProcedure
    ) -> None:
        """Prepare; nothing moves yet.

        Args:
            node: The node.
            rest: Reads the tracker while the arm rests.
            procedure: Moves to postures.

        """
        self._node = node
        self._rest = rest
        self._procedure = procedure

    async def measure(self, share: tuple[float, float]) -> Registration:
        """Visit the postures, move back, and return where the tracker stands.

        Args:
            share: Progress of the procedure at start and end [%].

        Raises:
            RobocalError: If too few postures are seen, or the points don't fit.

        """
        node, values = self._node, self._node.values
        home = node.joints.posture().copy()
        await self._rest.wait()
        three = values.registration == 'three_point'
        count = 3 if three else values.registration_postures
        node.status.say('planning', 'Choosing postures to place the tracker by.',
                        progress=share[0])
        # Some spare ones: the tracker may not see the target everywhere.
        postures: Array = await node.worker.run(
            node.pulse, plan_registration, node.robot.copy(), node.checker, home, values,
            count + max(2, count // 3))
        seen: list[EndPosition] = []
        width = (share[1] - share[0]) / len(postures)
        for number, posture in enumerate(postures):
            begin = share[0] + number * width
            what = f'posture {number + 1} for placing the tracker'
            position = await self._procedure.visit(posture, what, (begin, begin + width))
            if position is not None:
                seen.append(position)
            if len(seen) == count:
                break
        await node.go_to(home, phase='moving', message='Moving back to where it began.',
                         share=(share[1], share[1]))
        if len(seen) < count:
            raise DataError(
                f'The tracker saw the target in {len(seen)} of {len(postures)} postures; '
                f'{count} are needed to place it. Check the line of sight, target_axis, '
                'visibility_angle and tracker_position.')
        found = place_tracker(node.robot, seen, values)
        self._procedure.register(found, seen)
        return found


# How often a rest is prolonged by another dwell before the target counts as not seen.
_PATIENCE = 3
# Stamps of tracker and joint states further apart than this come from different clocks [s].
_OTHER_CLOCK = 5.0
# Readings older than this by the newest joint state may still be on their way [s].
_LATE = 0.2


class RestReader:
    """Collects joint angles and tracker readings of one rest, and averages them."""

    def __init__(self, node: ProcedureNode, tracker: TrackerStream) -> None:
        """Prepare.

        Args:
            node: The node.
            tracker: The tracker's topic.

        """
        self._node = node
        self._tracker = tracker
        self._received = 0

    async def wait(self) -> None:
        """Wait until somebody sends tracker messages that are of use.

        Raises:
            DataError: If nobody does within the tracker's timeout.
            CancelledError: If a stop was asked for meanwhile.

        """
        node, tracker = self._node, self._tracker
        await node.pulse.until(
            lambda: tracker.age() < np.inf or node.count_publishers(tracker.topic) > 0
            or bool(node.arm.stop_reason), node.values.tracker_timeout)
        node.check_stopped()
        if tracker.complaint():
            raise DataError(f'{tracker.complaint()} The arm was not moved.')
        if tracker.age() == np.inf and not node.count_publishers(tracker.topic):
            raise DataError(
                f"Nobody sends tracker readings on '{tracker.topic}'. Start the tracker's driver, "
                'or correct tracker_topic and tracker_message. The arm was not moved.')

    def silence(self) -> str:
        """Return how long nothing has been heard, as a sentence with a space, or nothing."""
        age = self._tracker.age()
        if age <= self._node.values.tracker_timeout:
            return ''
        since = f'for {age:.0f} s' if np.isfinite(age) else 'at all'
        return f"No reading has come on '{self._tracker.topic}' {since}. "

    def fault(self) -> str:
        """Return what is wrong with the tracker's messages, or an empty string."""
        tracker = self._tracker
        if tracker.complaint():
            return tracker.complaint()
        latest = self._node.joints.latest
        apart = abs(tracker.record.newest - latest[0]) if latest else 0.0
        if tracker.counts.received > self._received + 1 and apart > _OTHER_CLOCK:
            return (f'Tracker messages came, but the newest stamp is {apart:.1f} s off the joint '
                    'states; both must use one clock.')
        return ''

    async def read(self) -> EndPosition | None:
        """Rest until enough readings are in; return their average, None if too few come.

        Raises:
            DataError: If joint states stop coming.
            CancelledError: If a stop was asked for.

        """
        node, values = self._node, self._node.values
        latest = node.joints.latest
        begin = latest[0] if latest else 0.0
        # Nothing of the way here is needed, and one measurement may last for hours.
        node.joints.forget_from(0)
        self._received = self._tracker.counts.received
        # A little more than settle and dwell: the arm may still creep when it has arrived.
        await node.dwell(values.settle + values.dwell + 0.1)
        await self._tracker_keeps_up()
        for _ in range(_PATIENCE):
            found = self._average(begin)
            # Where nothing was seen, more patience won't help; where little was, it may.
            if found is not None or not len(self._tracker.samples(begin)):
                return found
            await node.dwell(values.dwell)
            await self._tracker_keeps_up()
        return self._average(begin)

    async def _tracker_keeps_up(self) -> None:
        """Let messages arrive that were sent before the newest joint state."""
        node, record = self._node, self._tracker.record
        latest = node.joints.latest
        newest = latest[0] if latest else 0.0
        await node.pulse.until(
            lambda: record.newest >= newest - _LATE
            or bool(node.arm.stop_reason), min(1.0, node.values.tracker_timeout))
        node.check_stopped()

    def _average(self, begin: float) -> EndPosition | None:
        found = find_end_positions(
            self._node.joints.samples(), self._tracker.samples(begin), self._node.values)
        return found[-1] if found else None
