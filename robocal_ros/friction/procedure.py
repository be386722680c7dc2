# SPDX-License-Identifier: Apache-2.0
"""Friction measurement: the joints one after the other, each in rounds, resumable."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from typing import TYPE_CHECKING

import numpy as np

from robocal_ros.arm import Keep, MotionFailedError, MotionStatus, Recorder, Report, keep_nothing
from robocal_ros.arrays import Array
from robocal_ros.errors import ConvergenceError, MotionError
from robocal_ros.friction.fit import FrictionFit
from robocal_ros.friction.parameters import DYNAMIC, FrictionParameters
from robocal_ros.friction.plan import check_detectable, plan_reversals, plan_runs, weak_speeds
from robocal_ros.friction.runs import find_runs, read_runs
from robocal_ros.messages import JointSamples, check_effort
from robocal_ros.robot import ArmModel, Lspb, Robot, Trajectory

if TYPE_CHECKING:
    from robocal_ros.arm import Arm

_LOG = logging.getLogger(__name__)

_REST = 0.3
# Number of failed runs in a row after which a joint is skipped.
_MAX_FAILURES = 4
# Estimated time of a run in addition to its segment: approach and rest [s].
_OVERHEAD = 1.5
# Progress at the first and after the last run [%].
_MEASURED = (2.0, 92.0)
# The next run may succeed after these, except for other runs of the joint after FOREIGN_MOTION
# (an obstacle, a stop or another client).
_RECOVERABLE = (MotionStatus.ABORTED, MotionStatus.NOT_AT_GOAL, MotionStatus.REJECTED,
              MotionStatus.FOREIGN_MOTION)


@dataclass(frozen=True)
class KeptJoints:
    """State of a measurement that can be gone on with.

    Attributes:
        home: The initial posture, shape (n,) [rad].
        measured: Names of the finished joints.

    """

    home: Array
    measured: tuple[str, ...]


@dataclass(eq=False)
class FrictionProcedure:
    """Runs joints at constant speeds, one after the other, until their laws are identified.

    Attributes:
        arm: The arm.
        recorder: The recording.
        report: Receives the progress.
        wanted: Names of the joints, in the order of the measurement.
        given: Runs of the user's trajectory set by joint; empty to plan them.
        load: Returns the arm with its payload, with payloads one standard deviation off, and what
            is known of the arm, for another thread.
        show: Called with the friction of a joint after each round.
        keep: Keeps ``KeptJoints`` after each joint.
        measured: Names of the finished joints, in the order of the measurement.
        problems: Problems such as runs that the controller aborted, as sentences.

    """

    arm: Arm
    recorder: Recorder
    report: Report
    wanted: Sequence[str]
    given: Mapping[str, Sequence[Lspb]]
    load: Callable[[], tuple[Robot, list[Robot], ArmModel]]
    show: Callable[[FrictionFit], None]
    keep: Keep = keep_nothing
    measured: tuple[str, ...] = ()
    problems: list[str] = field(default_factory=list)
    _resumed: Array | None = None
    _home: Array = field(default_factory=lambda: np.empty(0))
    _values: FrictionParameters = field(default_factory=FrictionParameters)
    _blocked: bool = False

    @property
    def under_way(self) -> bool:
        """True if some but not all of the joints are finished."""
        return 0 < len(self.measured) < len(self.wanted)

    def clear(self) -> None:
        """Discard all finished joints and problems."""
        self.measured, self._resumed = (), None
        self.problems.clear()

    def resume(self, kept: KeptJoints) -> None:
        """Go on from the state of an earlier start of the node."""
        self.clear()
        self.measured, self._resumed = kept.measured, kept.home

    async def measure(self, values: FrictionParameters) -> None:
        """Measure the unfinished joints, and move back to the initial posture.

        After a restart, that is the posture in which the measurement began.

        Args:
            values: The parameters.

        Raises:
            RobocalError: If a motion fails beyond recovery; finished joints are kept.

        """
        self._begin(values)
        self.problems.clear()
        self._home = self.arm.posture() if self._resumed is None else self._resumed
        left = [name for name in self.wanted if name not in self.measured]
        width = (_MEASURED[1] - _MEASURED[0]) / max(len(left), 1)
        for number, name in enumerate(left):
            await self._measure_joint(
                name, _MEASURED[0] + number * width, width, len(left) - number - 1)
            # A joint whose reversals are cancelled is not finished.
            self.measured = (*self.measured, name)
            await self.keep(KeptJoints(self._home, self.measured),
                            f'{len(self.measured)} of {len(self.wanted)} joints')
        # The measurement is valid even if the arm cannot move back.
        await self._go_to(self._home, 'Moving back to the initial posture', (_MEASURED[1], 98.0))

    async def rehearse(self, values: FrictionParameters) -> None:
        """Carry out the motions of the first round, without estimation.

        Args:
            values: The parameters.

        Raises:
            RobocalError: If a motion cannot be planned.

        """
        self._begin(values)
        self._home = self.arm.posture()
        for number, name in enumerate(self.wanted):
            at = 100.0 * number / len(self.wanted)
            for run in await self._planned(name, 0, self._given_speeds):
                await self._carried_out(run.trajectory(self._home, self.arm.robot.index(name)),
                                        'running', f'the runs of {name}', (at, at))
            if values.model == DYNAMIC:
                await self._reverse(name, at)
        await self._go_to(self._home, 'Moving back to the initial posture', (100.0, 100.0))

    @property
    def _given_speeds(self) -> list[float]:
        """Speeds of the parameter, as the arm will run them [rad/s]."""
        return [self._values.speed_scale * speed for speed in self._values.given_speeds]

    def _begin(self, values: FrictionParameters) -> None:
        """Use the parameters; raises ConfigurationError if a given run could not be used."""
        self._values = values
        runs = chain.from_iterable(self.given.values())
        check_detectable(chain(values.given_speeds, (run.speed for run in runs)),
                         values.speed_scale)

    async def _measure_joint(self, name: str, begin: float, width: float, later: int) -> None:
        """Run a joint in rounds until its law is identified, at most ``max_rounds``."""
        values, began, speeds = self._values, self.recorder.newest, self._given_speeds
        share = width / values.max_rounds
        for number in range(values.max_rounds):
            try:
                runs = await self._planned(name, number, speeds)
            except ConvergenceError as error:
                self._report_problem(str(error))
                runs = []
            await self._run_all(name, runs, begin + number * share, share, later)
            # Taken here: a worker thread would read the record while samples are added to it.
            samples = self.recorder.samples(began).measured_anew()
            found = await self.arm.compute(self._read_joint, name, samples)
            self.show(found)
            # Planned speeds begin at min_speed: if the law fits, what it lacks is not needed.
            full_model_wanted = values.model in ('stribeck', 'stribeck_power', DYNAMIC) or (
                values.model == 'auto' and bool(speeds or self.given))
            identified = found.passed and not found.missing
            satisfied = identified and not (found.stribeck_unidentified and full_model_wanted)
            # Further runs cannot correct a wrong payload.
            if not runs or satisfied or found.wrong_gravity:
                break
            if found.usable:
                known = not (found.choice is None or found.missing or found.stribeck_unidentified)
                speeds = weak_speeds(
                    np.array([p.speed for p in found.usable]),
                    float(found.law().stribeck_velocity.min()) if known else None).tolist()
        if values.model == DYNAMIC and identified:
            await self._reverse(name, begin + width)

    async def _reverse(self, name: str, at: float) -> None:
        """Carry out the reversals of a joint."""
        arm = self.arm
        try:
            motion = await arm.compute(
                plan_reversals, self.load()[0], arm.checker, self._home, arm.robot.index(name),
                self._values.reversal_size)
        except (ConvergenceError, MotionError) as error:
            self._report_problem(str(error))
            return
        motion = arm.limits.scaled(self._values.speed_scale).fitted(motion)
        await self._carried_out(motion, 'reversing', f'the reversals of {name}', (at, at))

    async def _planned(self, name: str, number: int, speeds: Sequence[float]) -> list[Lspb]:
        """Return the runs of a round: first the given ones, then planned ones in their range."""
        arm, given, scale = self.arm, self.given.get(name, ()), self._values.speed_scale
        if given and number == 0:
            return [replace(run, speed=scale * run.speed, duration=run.duration / scale)
                    for run in given]
        ends = [end for run in given for end in (run.start, run.goal)]
        return await arm.compute(
            plan_runs, self.load()[0], arm.checker, self._home, arm.robot.index(name),
            self._values, speeds, number, (min(ends), max(ends)) if ends else None)

    async def _run_all(
        self, name: str, runs: Sequence[Lspb], begin: float, width: float, later: int
    ) -> None:
        joint = self.arm.robot.index(name)
        times = [run.duration + _OVERHEAD for run in runs]
        total, failed, checked = sum(times), 0, False
        for run, time, done in zip(runs, times, accumulate(times, initial=0.0), strict=False):
            at, part = begin + width * done / total, width * time / total
            signed = np.copysign(run.speed, run.goal - run.start)
            what = f'{name} at {signed:+.4g} {self.arm.robot.unit(name, "rad/s")}'
            # All joints are assumed to take equally long.
            self.report.note(**{'remaining [s]': f'{total - done + later * total:.0f}'})
            started = await self._carried_out(
                run.trajectory(self._home, joint), 'running', what, (at, at + part))
            if started is None:
                failed += 1
                if failed == _MAX_FAILURES or self._blocked:
                    self._report_problem(
                        f'Joint {name} is skipped: further runs would fail like the last one.')
                    return
                continue
            samples, failed = self.recorder.samples(started).measured_anew(), 0
            if not any(np.isfinite(found.wander) for found in find_runs(samples, [joint])):
                self._report_problem(
                    f'Running {what} is not used: the speed was not constant. Check whether '
                    'something pushed the arm, or the drive could not follow.')
            if not checked:
                check_effort(samples, [name])
            checked = True

    async def _carried_out(
        self, motion: Trajectory, phase: str, what: str, share: tuple[float, float]
    ) -> float | None:
        """Carry out a motion from its start, between rests.

        Returns:
            The stamp after which its samples begin [s]; None if it failed, without samples.

        """
        arm, recorder = self.arm, self.recorder
        if not await self._go_to(motion.start, f'Moving to the start of {what}',
                                 (share[0], share[0])):
            return None
        await arm.dwell(_REST)
        begin, what = recorder.newest, f'Running {what}'
        if not await self._done(
                arm.move(motion, phase=phase, message=f'{what}.', share=share,
                         limits=arm.limits.scaled(self._values.speed_scale)), what):
            recorder.discard_after(begin)
            return None
        await arm.dwell(_REST)
        return begin

    async def _go_to(self, posture: Array, what: str, share: tuple[float, float]) -> bool:
        """Move to a posture on a collision-free path; return as for ``_done``."""
        return await self._done(self.arm.go_to(
            posture, phase='moving', message=f'{what}.', share=share), what)

    async def _done(self, motion: Awaitable[None], what: str) -> bool:
        """Carry out a motion; return False after a failure from which others can recover."""
        self._blocked = False
        try:
            await motion
        except MotionFailedError as error:
            outcome = error.outcome
            self._blocked = outcome.status is MotionStatus.FOREIGN_MOTION
            if outcome.status not in _RECOVERABLE or not outcome.held:
                raise
            self._report_problem(f'{what} failed: {outcome.message}')
            return False
        return True

    def _report_problem(self, sentence: str) -> None:
        self.problems.append(sentence)
        _LOG.warning(sentence)

    def _read_joint(self, name: str, samples: JointSamples) -> FrictionFit:
        robot, alternatives, arm = self.load()
        points = read_runs(robot, samples, [robot.index(name)], alternatives, arm)
        return FrictionFit(name, points, self._values)
