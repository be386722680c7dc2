# SPDX-License-Identifier: Apache-2.0
"""Measurement of compliance on the arm: the same postures twice, resumable after a break."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from robocal_ros.arm import Keep, MotionFailedError, MotionStatus, Recorder, Report, keep_nothing
from robocal_ros.arrays import Array
from robocal_ros.compliance.estimator import estimate_sets
from robocal_ros.compliance.geometry_estimator import summary
from robocal_ros.compliance.measurement import (
    LOADED,
    MAX_LOST,
    REGISTRATION,
    UNLOADED,
    EndPosition,
    Registration,
    TargetMotion,
    check_drift,
    check_registration,
    find_end_positions,
    mismatch,
    place_tracker,
    register,
    rest_of,
    target_motion,
)
from robocal_ros.compliance.model import Mounted
from robocal_ros.compliance.parameters import OF_GEOMETRY, ComplianceParameters
from robocal_ros.compliance.plan import (
    least_count,
    plan_geometry,
    plan_postures,
    plan_registration,
    without_overload,
)
from robocal_ros.errors import DataError, MotionError, RobocalError
from robocal_ros.robot import EffortLimits, SteadyFriction

if TYPE_CHECKING:
    from robocal_ros.arm import Arm, ServiceCall
    from robocal_ros.messages import JointStateStream, TrackerStream

_LOG = logging.getLogger(__name__)

# So many consecutive postures that cannot be used point to a fault.
_LOST_IN_A_ROW = 3
_UNSEEN = 'the tracker did not see the target there'
# Difference of the joint angles above which the arm is moved to a posture [rad].
_ELSEWHERE = 1e-4
# Time for the transient after a change of load, before rest is awaited [s].
_CHANGE = 1.0
# Number of further dwells before the target counts as not seen.
_PATIENCE = 3
# Difference of stamps of tracker and joint states that indicates different clocks [s].
_OTHER_CLOCK = 5.0
# Delay behind the newest joint state within which readings are still awaited [s].
_LATE = 0.2

Share = tuple[float, float]
"""Progress of the procedure at start and end [%]."""


class UnusablePostureError(DataError):
    """A posture that was not reached, seen or matched.

    Attributes:
        reason: A clause.

    """

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f'{what.capitalize()} cannot be used: {reason}.')
        self.reason = reason


@dataclass
class MeasuredSet:
    """Measurements of one set.

    Attributes:
        name: ``unloaded`` or ``loaded``.
        visits: Number of the posture and end position, in the order of measurement; the first
            posture is the reference and visited repeatedly.

    """

    name: str
    visits: list[tuple[int, EndPosition]] = field(default_factory=list)

    @property
    def positions(self) -> list[EndPosition]:
        """End positions in the order of measurement."""
        return [position for _, position in self.visits]

    @property
    def postures(self) -> set[int]:
        """Numbers of the measured postures."""
        return {number for number, _ in self.visits}

    def since_reference(self) -> int:
        """Return the number of postures measured since the last visit of the reference."""
        return len(list(takewhile(lambda visit: visit[0], reversed(self.visits))))

    def visits_of(self, number: int) -> list[EndPosition]:
        """Return the end positions in a posture."""
        return [position for at, position in self.visits if at == number]


@dataclass
class KeptSets:
    """State of a measurement, which can be gone on with after a restart.

    Attributes:
        home: Posture at the start of the service, shape (n,) [rad].
        postures: Planned postures, shape (k, n) [rad]; none before the first measurement.
        sets: Measurements without and with the load.
        registration: Tracker pose; None until it is registered.
        placed_by: End positions that it is from.
        left_out: Numbers of postures that could not be reached, seen or matched.
        lost: Problems during the procedure, as sentences.

    """

    home: Array = field(default_factory=lambda: np.empty(0))
    postures: Array = field(default_factory=lambda: np.empty((0, 0)))
    sets: dict[str, MeasuredSet] = field(default_factory=lambda: {
        name: MeasuredSet(name) for name in (UNLOADED, LOADED)})
    registration: Registration | None = None
    placed_by: list[EndPosition] = field(default_factory=list)
    left_out: set[int] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)


@dataclass(eq=False)
class ComplianceProcedure:
    """Registration of the tracker, and measurement of both sets.

    Attributes:
        arm: The arm.
        recorder: Marks the recording.
        report: Shows the progress.
        rest: Reads the tracker while the arm rests.
        parameters: Returns the current parameters.
        mounted: Returns what is mounted in both sets; raises DataError if it is unknown.
        friction: Returns the identified friction by joint name.
        placed: Called with rotation and translation [m] of a new registration.
        given: Postures of posture_file, shape (k, n) [rad]; None to plan them.
        keep: Keeps the state after each posture.
        state: What is planned and measured.

    """

    arm: Arm
    recorder: Recorder
    report: Report
    rest: StationaryReader
    parameters: Callable[[], ComplianceParameters]
    mounted: Callable[[], Mounted]
    friction: Callable[[], Mapping[str, SteadyFriction]]
    placed: Callable[[Array, Array], None]
    given: Array | None
    keep: Keep = keep_nothing
    state: KeptSets = field(default_factory=KeptSets)
    _resumed: bool = False
    _share: Share = (0.0, 100.0)

    def clear(self) -> None:
        """Discard plan, measurements and registration."""
        self.state, self._resumed = KeptSets(), False

    def resume(self, kept: KeptSets) -> None:
        """Go on from the state of an unfinished run."""
        self.state, self._resumed = kept, True

    @property
    def sets(self) -> tuple[str, ...]:
        """Names of the sets; the geometry needs none with a load."""
        alone = self.parameters().method == OF_GEOMETRY and self.mounted().load is None
        return (UNLOADED,) if alone else (UNLOADED, LOADED)

    async def _keep_state(self) -> None:
        """Keep the state for a restart."""
        await self.keep(self.state, ' and '.join(
            f'{count} postures {name}' for name, count in self.counts().items())
            if len(self.state.postures) else 'the registration')

    def _note_home(self) -> Array:
        """Note and return the posture to return to: the present one, or that of a resumed run."""
        if not self._resumed:
            self.state.home = self.arm.posture()
        self._resumed = False
        return self.state.home

    def missing(self, which: str) -> list[int]:
        """Return the numbers of planned postures that are not measured yet."""
        done = self.state.sets[which].postures | self.state.left_out
        return [number for number in range(len(self.state.postures)) if number not in done]

    def complete(self, which: str) -> bool:
        """Return whether a set is complete."""
        return len(self.state.postures) > 0 and not self.missing(which)

    def counts(self) -> dict[str, str]:
        """Return the measured share of both sets, for the status."""
        state = self.state
        total = len(state.postures) - len(state.left_out)
        return {name: f'{len(item.postures - state.left_out)} of {total}'
                for name, item in state.sets.items()}

    async def run(self, attach: ServiceCall | None, detach: ServiceCall | None) -> None:
        """Measure both sets, and register the tracker where the unloaded set does not serve.

        Args:
            attach: Mounts the load; None to measure without it only.
            detach: Removes the load; None if there is no such service.

        Raises:
            RobocalError: See ``measure``; also if ``attach`` or ``detach`` fails.

        """
        values = self.parameters()
        self._check_held(self.arm.posture())
        if not self.complete(UNLOADED):
            if detach is not None:
                try:
                    # A load may be left from an earlier run.
                    await detach.call()
                except DataError as error:
                    self._lose('The load was not removed at the beginning, so none was assumed to '
                               f'be mounted: {error}')
                await self._await_rest()
            if (self.state.registration is None and values.method != OF_GEOMETRY
                    and (values.registration == 'three_point' or values.find_target)):
                await self.register_tracker((1.0, 8.0))
            await self.measure(UNLOADED, (8.0, 50.0 if attach else 95.0))
        if attach is None:
            return
        self.report.update('mounting', 'Mounting the load.', progress=50.0)
        await attach.call()
        await self._await_rest()
        await self.measure(LOADED, (50.0, 95.0))
        self.report.update('unmounting', 'Removing the load.', progress=95.0)
        try:
            if detach is not None:
                await detach.call()
        except DataError as error:
            raise DataError(f'The load was not removed: {error} Both sets are measured: call '
                            'estimate, and remove the load before the arm moves.') from error

    async def rehearse(self) -> str:
        """Carry out the motions of both sets without reading the tracker; return a sentence.

        Raises:
            RobocalError: If the load is unknown, or a motion cannot be planned.

        """
        arm, values, home = self.arm, self.parameters(), self.arm.posture()
        self._check_held(home)
        await self._plan(home)
        postures = self.state.postures
        for part, which in enumerate(self.sets):
            arm.checker.loaded = which == LOADED
            for number, posture in enumerate(postures):
                begin = 100.0 / len(self.sets) * (part + number / len(postures))
                visits = [postures[0]] if number and not number % values.reference_every else []
                for goal in (*visits, posture):
                    await self._move_to(goal, f'a posture ({which})', (begin, begin), which)
                    await arm.dwell(values.settle + values.dwell)
            await self._move_to(home, 'the start', (begin, begin), which)
        return (f'{self.mounted().note} {len(postures)} postures'
                f'{" without and with the load" if LOADED in self.sets else ""}:')

    async def _await_rest(self) -> None:
        """Wait until the arm rests after a change of load."""
        await self.arm.dwell(_CHANGE)
        try:
            await self.arm.await_rest()
        except DataError as error:
            raise MotionError('The arm does not come to rest after its load has changed; check '
                              'the controller and the load.') from error

    # ------------------------------------------------------------------- registration

    async def register_tracker(self, share: Share) -> Registration:
        """Visit postures that spread the target, move back, and register the tracker.

        Raises:
            RobocalError: If too few postures are seen, or the points do not fit.

        """
        arm, values = self.arm, self.parameters()
        home = self._note_home()
        arm.checker.loaded = False
        await self.rest.wait()
        count = 3 if values.registration == 'three_point' else values.registration_postures
        self.report.update('planning', 'Choosing postures for the registration.',
                         progress=share[0])
        # Spare postures: the tracker may not see the target everywhere.
        postures = await arm.compute(
            plan_registration, self._effort(UNLOADED), arm.checker, home, values,
            count + max(2, count // 3))
        seen: list[EndPosition] = []
        width = (share[1] - share[0]) / len(postures)
        for number, posture in enumerate(postures):
            if len(seen) == count:
                break
            begin = share[0] + number * width
            try:
                seen.append(await self._visit(
                    posture, f'posture {number + 1} of the registration', (begin, begin + width),
                    UNLOADED))
            except UnusablePostureError as error:
                self._lose(str(error))
        await self._move_to(home, 'the start', (share[1], share[1]), UNLOADED)
        if len(seen) < count:
            raise DataError(
                f'The tracker saw the target in {len(seen)} of {len(postures)} postures; '
                f'{count} are needed to register it. Check the line of sight, target_axis, '
                'visibility_angle and tracker_position.')
        found = place_tracker(arm.robot, seen, values)
        self.register(found, seen)
        await self._keep_state()
        self.placed(found.rotation, found.translation)
        return found

    def register(self, registration: Registration, seen: Sequence[EndPosition]) -> None:
        """Use a registration and mark its rests; those of an earlier one are discarded."""
        if before := self.state.placed_by:
            self.recorder.mark_discarded((before[0].begin, before[-1].end))
        self.state.registration, self.state.placed_by = registration, list(seen)
        for number, position in enumerate(seen):
            self.recorder.mark_stationary(rest_of(position, REGISTRATION, number))

    # --------------------------------------------------------------- measuring a set

    async def measure(self, which: str, share: Share) -> None:
        """Measure the missing postures of a set, or measure_posture, and move back to the start.

        Args:
            which: ``unloaded`` or ``loaded``.
            share: Progress of the procedure at start and end [%].

        Raises:
            RobocalError: If arm or tracker fail; measurements are kept, and the next call
                continues.

        """
        done, home, self._share = self.state.sets[which], self._note_home(), share
        self._check_held(home)
        await self.rest.wait()
        await self._plan(home)
        self.arm.checker.loaded = which == LOADED
        if number := self.parameters().measure_posture:
            await self._measure_again(done, number - 1)
        else:
            if done.visits and self.missing(which):
                # The tracker may have moved during a break.
                await self._check_reference(done)
            await self._visit_all(done)
            if done.since_reference():
                await self._check_reference(done)
        await self._move_to(home, 'the start', (share[1], share[1]), which)

    def _effort(self, which: str) -> EffortLimits:
        """Return the efforts that motions of a set may need."""
        return EffortLimits(self.mounted().on(self.arm.robot, loaded=which == LOADED),
                            self.friction(), self.parameters().effort_share)

    def _check_held(self, home: Array) -> None:
        """Check room and drives for what is mounted in both sets, before the load is mounted.

        Args:
            home: Posture to which the arm returns, shape (n,) [rad].

        Raises:
            DataError: If the load is unknown.
            MotionError: If something touches there, or a joint needs more than its limit there
                or in a planned posture.

        """
        self.arm.checker.loaded = LOADED in self.sets
        if contact := self.arm.checker.touching(home):
            raise MotionError(
                f'{"With the load in" if LOADED in self.sets else "In"} the present posture, to '
                f'which the arm returns, {contact}. Move the arm clear, or correct tool_box, '
                'load_box or clearance.')
        places = [(home[None], 'the present posture, to which the arm returns',
                   'Move the arm to another posture and call again, or use a lighter load.')]
        if len(self.state.postures):
            places.append((self.state.postures, 'one of the planned postures',
                           'Use a lighter load, or call clear to choose other postures.'))
        for which in self.sets[::-1]:
            effort, bodies = self._effort(which), self.mounted().described(loaded=which == LOADED)
            for postures, where, remedy in places:
                if problem := effort.exceeded(postures):
                    raise MotionError(f'With {bodies} mounted in {where}, {problem}. {remedy}')

    async def _plan(self, home: Array) -> None:
        """Choose postures unless there are some.

        Raises:
            RobocalError: If there are too few.

        """
        if len(self.state.postures):
            return
        self.report.update('planning', 'Choosing postures.', progress=self._share[0])
        efforts = [self._effort(which) for which in self.sets]
        if self.given is None:
            plan = plan_geometry if self.parameters().method == OF_GEOMETRY else plan_postures
            self.state.postures = await self.arm.compute(
                plan, efforts, self.arm.checker, home, self.parameters(), self.state.registration)
            return
        self.state.postures, overloaded = await self.arm.compute(
            without_overload, self.given, efforts)
        for sentence in overloaded:
            self._lose(sentence)

    async def _measure_again(self, done: MeasuredSet, number: int) -> None:
        """Measure one posture again and replace its earlier measurement.

        Raises:
            DataError: If there is no such posture, or it cannot be used.

        """
        if number >= len(self.state.postures):
            raise DataError(f'measure_posture is {number + 1}, but only '
                            f'{len(self.state.postures)} postures are planned.')
        if number == 0 and done.visits:
            await self._check_reference(done)
            return
        position = await self._measured(done, number)
        for old in done.visits_of(number):
            self.recorder.mark_discarded((old.begin, old.end))
        done.visits = [visit for visit in done.visits if visit[0] != number]
        self.state.left_out.discard(number)
        await self._keep(done, number, position)

    async def _visit_all(self, done: MeasuredSet) -> None:
        """Visit the missing postures; those that cannot be used once more at the end."""
        failed, in_a_row = dict.fromkeys(self.missing(done.name), ''), 0
        for again in (False, True):
            waiting, failed = list(failed), {}
            for place, number in enumerate(waiting):
                if done.since_reference() >= self.parameters().reference_every:
                    await self._check_reference(done)
                try:
                    position = await self._measured(done, number)
                except UnusablePostureError as error:
                    failed[number] = error.reason
                    in_a_row += 1
                    self._check_lost(done, in_a_row, number, waiting[place:], error.reason)
                    if not again:
                        self._lose(f'{error} It is measured again at the end.')
                    continue
                in_a_row = 0
                await self._keep(done, number, position)
        self._leave_out(done, failed)

    async def _measured(self, done: MeasuredSet, number: int) -> EndPosition:
        """Measure a posture of a set.

        Raises:
            UnusablePostureError: If the measurement cannot be used.
            RobocalError: As for ``measure``.

        """
        what, robot, values = self._name(done, number), self.arm.robot, self.parameters()
        position = await self._visit(
            self.state.postures[number], what, self._progress(done), done.name)
        if (self.state.registration is not None and done.name == UNLOADED
                and values.method != OF_GEOMETRY):
            check_registration(robot, [position], self.state.registration, values)
        other = self.state.sets[LOADED if done.name == UNLOADED else UNLOADED]
        for partner in other.visits_of(number)[:1]:
            if reason := mismatch(np.abs(position.posture - partner.posture), robot.joint_names,
                                  values.match_tolerance):
                raise UnusablePostureError(what, reason)
        return position

    def _name(self, done: MeasuredSet, number: int) -> str:
        return f'posture {number + 1} of {len(self.state.postures)} ({done.name})'

    def _progress(self, done: MeasuredSet) -> Share:
        """Return the progress before and after the next posture [%]."""
        (begin, end), total = self._share, len(self.state.postures)
        width, count = (end - begin) / total, min(len(done.postures), total - 1)
        return begin + count * width, begin + (count + 1) * width

    async def _keep(self, done: MeasuredSet, number: int, position: EndPosition) -> None:
        done.visits.append((number, position))
        self.recorder.mark_stationary(rest_of(position, done.name, number))
        await self._keep_state()
        await self._preview(done)
        self.report.note(**self.counts())

    async def _preview(self, done: MeasuredSet) -> None:
        """Show a preliminary estimate from what is measured so far in the status."""
        robot, unloaded = self.arm.robot, self.state.sets[UNLOADED].visits
        geometry = self.parameters().method == OF_GEOMETRY
        if (done.name == UNLOADED and not geometry) or len(done.postures) < least_count(robot.n):
            return
        # Compliance needs postures of both sets.
        loaded = [] if done.name == UNLOADED else done.positions
        try:
            result = await self.arm.compute(
                estimate_sets, robot.copy(),
                [item for number, item in unloaded if geometry or number in done.postures], loaded,
                self.mounted(), self.parameters(), self.state.registration)
        except RobocalError as error:
            self.report.note(estimate=f'none yet: {error}')
            return
        if geometry:
            self.report.note(
                estimate=summary(result),
                contradictions='; '.join(result.settings['misfits'][:3]) or 'none')
            return
        self.report.note(**{
            f'{p.name} [µrad/(N·m)]': p.text(2, 1e6)
            for p in result.parameters if p.value is not None})

    def _check_lost(
        self, done: MeasuredSet, in_a_row: int, number: int, left: Sequence[int], reason: str
    ) -> None:
        """Raise a DataError if the tracker fails or several postures cannot be used."""
        fault = self.rest.fault()
        if not fault and in_a_row < _LOST_IN_A_ROW:
            return
        total = len(self.state.postures)
        why = fault or (
            f'The tracker did not see the target long enough in {in_a_row} postures in a row. '
            f'{self.rest.silence()}Check the tracker, the line of sight, target_axis, '
            'visibility_angle and tracker_position.' if reason == _UNSEEN else
            f'{in_a_row} postures in a row cannot be used; in the last one {reason}.')
        raise DataError(
            f'{why} This was in posture {number + 1} of {total} of the {done.name} set; '
            f'{len(done.postures)} postures are measured and kept, {len(left)} are missing. Call '
            f'measure_{done.name} again to continue.')

    def _leave_out(self, done: MeasuredSet, failed: Mapping[int, str]) -> None:
        """Leave out postures that could not be used in two visits, if they are few."""
        named = '; '.join(f'posture {number + 1} ({reason})' for number, reason in failed.items())
        total = len(self.state.postures)
        if len(self.state.left_out | failed.keys()) > MAX_LOST * total or 0 in failed:
            raise DataError(
                f'Of {total} postures of the {done.name} set these cannot be used: {named}. At '
                f'most {100.0 * MAX_LOST:.0f} % are left out, and never the first one. '
                f'Measurements are kept. Remove the cause and call measure_{done.name} again; for '
                'other postures, call clear.')
        self.state.left_out.update(failed)
        for number, reason in failed.items():
            self._lose(f'Posture {number + 1} is left out: {reason}. To measure it again by '
                       f'itself, set measure_posture to {number + 1}.')

    async def _check_reference(self, done: MeasuredSet) -> None:
        """Visit the reference posture again; raises DataError if the tracker drifted."""
        values, (progress, _) = self.parameters(), self._progress(done)
        try:
            position = await self._visit(self.state.postures[0], self._name(done, 0),
                                         (progress, progress), done.name)
        except UnusablePostureError as error:
            raise DataError(
                f'The reference posture of the {done.name} set cannot be used again: '
                f'{error.reason}. Measurements are kept; remove the cause and call '
                f'measure_{done.name} again.') from error
        references = done.visits_of(0)
        if not references:
            await self._keep(done, 0, position)
            return
        try:
            drift = check_drift([*references, position], values, self._motion(values), done.name)
        except DataError as error:
            count = done.since_reference()
            del done.visits[len(done.visits) - count:]
            self.recorder.mark_discarded((references[-1].end, self.recorder.newest))
            await self._keep_state()
            raise DataError(
                f'{error} {count} postures since the last good reference are discarded, '
                f'{len(done.postures)} are kept; call measure_{done.name} to continue.') from error
        await self._keep(done, 0, position)
        self.report.note(**{'drift [µm]': f'{1e6 * drift:.1f}'})

    def _motion(self, values: ComplianceParameters) -> TargetMotion:
        """Return forward kinematics of the target in the tracker's axes, zero if unknown."""
        robot, registration = self.arm.robot, self.state.registration
        if registration is None:
            seen = [item for each in self.state.sets.values() for item in each.positions]
            try:
                registration = register(
                    robot, seen, replace(values, max_registration_residual=np.inf))
            except DataError:
                # Too few postures, as after an early break.
                return lambda one, other: np.zeros(3)
        return target_motion(robot, values, registration)

    # ----------------------------------------------------------------------- motions

    async def _visit(self, posture: Array, what: str, share: Share, which: str) -> EndPosition:
        """Move to a posture and average the tracker there.

        Args:
            posture: Shape (n,) [rad].
            what: Name of the posture.
            share: Progress before and after [%].
            which: Name of the set.

        Raises:
            UnusablePostureError: If there is no way, the controller ended the motion and holds the
                arm, or the tracker does not see the target.
            MotionFailedError: If a motion failed otherwise.

        """
        middle = share[0] + 0.5 * (share[1] - share[0])
        try:
            await self._move_to(posture, what, (share[0], middle), which)
        except MotionFailedError as error:
            outcome = error.outcome
            if outcome.status is not MotionStatus.ABORTED or not outcome.held:
                raise
            reason = f'the arm did not get there: {error}'
        except MotionError as error:
            reason = f'moving there was not possible: {error}'
        else:
            self.report.update('measuring', f'Averaging the tracker in {what}.', progress=middle)
            if (position := await self.rest.read()) is not None:
                return position
            reason = _UNSEEN
        raise UnusablePostureError(what, reason.rstrip('.'))

    async def _move_to(self, posture: Array, what: str, share: Share, which: str) -> None:
        """Move to a posture with what is mounted in a set, unless the arm is there."""
        if np.abs(posture - self.arm.posture()).max() > _ELSEWHERE:
            await self.arm.go_to(posture, phase='moving', message=f'Moving to {what}.',
                                 share=share, effort=self._effort(which))

    def _lose(self, sentence: str) -> None:
        """Report a loss at once, while the arm is still there."""
        self.state.lost.append(sentence)
        self.report.update('measuring', sentence)
        self.report.note(lost=' '.join(self.state.lost))
        _LOG.warning(sentence)


@dataclass(eq=False)
class StationaryReader:
    """Averages joint angles and tracker readings of one rest.

    Attributes:
        arm: The arm.
        joints: Its joint states.
        tracker: The tracker.
        parameters: Returns the current parameters.
        until: Waits for a condition with a timeout [s]; raises CancelledError on a stop request.
        has_sender: Returns whether the tracker's topic has a publisher.

    """

    arm: Arm
    joints: JointStateStream
    tracker: TrackerStream
    parameters: Callable[[], ComplianceParameters]
    until: Callable[[Callable[[], bool], float], Awaitable[bool]]
    has_sender: Callable[[], bool]
    _received: int = 0

    async def wait(self) -> None:
        """Wait for usable tracker messages, or for a publisher while the target is not seen.

        Raises:
            DataError: If there is none in time.
            CancelledError: On a stop request.

        """
        def problem() -> str:
            if self.tracker.age() < np.inf or self.has_sender():
                return self.tracker.problem()
            return (f"Topic '{self.tracker.topic}' has no publisher. Start the tracker's driver, "
                    'or correct tracker_topic and tracker_message.')

        await self.arm.await_readings(problem)

    def silence(self) -> str:
        """Return a long time without readings as a sentence with a space, empty if short."""
        problem = self.tracker.problem(self.parameters().tracker_timeout)
        return f'{problem} ' if problem else ''

    def fault(self) -> str:
        """Return the fault of the tracker's messages as a sentence, empty for none."""
        if problem := self.tracker.problem():
            return problem
        apart = abs(self.tracker.newest - self.joints.newest)
        if self.tracker.counts.received > self._received + 1 and apart > _OTHER_CLOCK:
            return (f'The newest tracker stamp differs by {apart:.1f} s from the joint '
                    'states; both must use one clock.')
        return ''

    def _tracker_has(self, stamp: float) -> bool:
        """Return whether there is a reading as new as a stamp [s]."""
        return self.tracker.newest >= stamp

    async def read(self) -> EndPosition | None:
        """Rest until there are enough readings; return their average, None for too few.

        Raises:
            DataError: If joint states stop.
            CancelledError: On a stop request.

        """
        values, begin = self.parameters(), self.joints.newest
        # Samples of the motion are not needed, and a measurement may last for hours.
        self.joints.forget_after(-np.inf)
        self._received = self.tracker.counts.received
        # Margin: the arm may still creep when it has arrived.
        rest = values.settle + values.dwell + 0.1
        for _ in range(_PATIENCE + 1):
            await self.arm.dwell(rest)
            await self.until(partial(self._tracker_has, self.joints.newest - _LATE),
                             min(1.0, values.tracker_timeout))
            readings = self.tracker.samples(begin)
            found = find_end_positions(self.joints.samples(), readings, values)
            # A longer rest helps only if there were readings at all.
            if found or not len(readings):
                break
            rest = values.dwell
        return found[-1] if found else None
