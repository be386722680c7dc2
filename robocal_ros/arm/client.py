# SPDX-License-Identifier: Apache-2.0
"""Client of the joint trajectory controller: sends, monitors and stops motions.

A controller may report success before the arm is at the goal, or for a goal that another one
replaced. So a motion is monitored by the joint states and succeeds only if the arm is at rest at
its goal.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from action_msgs.msg import GoalStatus
from control_msgs.action import FollowJointTrajectory
from rclpy.task import Future
from sensor_msgs.msg import JointState
from unique_identifier_msgs.msg import UUID

from robocal_ros.arm.controller import PAUSED, ControllerGoals, ControllerState
from robocal_ros.arm.protocols import MotionOutcome, MotionStatus, Report, Watch
from robocal_ros.arm.stop_conditions import StopConditions
from robocal_ros.arm.waiting import Waiter
from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, MotionError
from robocal_ros.messages import (
    JointStateStream,
    Silence,
    conversions,
    overload_hint,
    publisher_hint,
)
from robocal_ros.parameters import ArmParameters
from robocal_ros.robot import Robot, Trajectory

STILL_TRAVEL, STILL_TIME = 1e-3, 0.15
"""The arm is at rest if no joint travels further than this [rad] in this time [s]."""

STALL_TIMEOUT = 5.0
"""Longest time of a motion without progress, by the joint states' stamps [s]."""

ANSWER_TIMEOUT = 3.0
"""Longest wait for the controller's answers, by the steady clock [s]."""

# Age of the newest joint state above which an idle node waits for them [s].
_SILENT = 2.0
# Largest time step of the path that postures are compared with [s].
_PATH_PERIOD = 0.01
# Part of the path ahead of the last match that is searched for the next one [s].
_LOOK_AHEAD = 0.5
# The node cancels a motion at this multiple of path_tolerance, at which the controller aborts.
CANCEL_FACTOR = 1.5
# Longest time without monitoring, as on a machine that is busy or was suspended [s].
_UNWATCHED = 1.5
# Longest time to arrive at the goal after the controller reported success [s].
_LATE_ARRIVAL = 30.0
# Longest wait for data of an arm that comes to rest, and age of those that show where it is [s].
_BLIND, _FRESH = 0.8, 0.25
# Longest time for which an arm is followed that does not come to rest, after it was commanded to
# hold its posture; with it, the end of a cancelled procedure is awaited long enough [s].
_FOLLOWED = 10
# Largest delay of joint states that is reckoned with [s].
_OLDEST = 1.0
_ERRORS = {
    FollowJointTrajectory.Result.INVALID_GOAL: 'the goal is not valid any more',
    FollowJointTrajectory.Result.INVALID_JOINTS: 'invalid joints',
    FollowJointTrajectory.Result.OLD_HEADER_TIMESTAMP: 'old time stamp',
    FollowJointTrajectory.Result.PATH_TOLERANCE_VIOLATED: 'the arm left the path',
    FollowJointTrajectory.Result.GOAL_TOLERANCE_VIOLATED: 'the arm did not reach the goal',
}


class _PathFollower:
    """Progress of the arm along a path, from its postures and their stamps.

    The arm is at one of the points that it may have reached: not further than by its stamps, for
    a controller may stretch a motion (speed scaling, a teach pendant's slider) but not hurry it,
    and not before points that it has left. On a path that turns back, points of both legs are
    near the arm; which one it is at need not be known.
    """

    def __init__(self, trajectory: Trajectory, start: float, tolerance: float) -> None:
        self._time = trajectory.dense(_PATH_PERIOD)
        self._path = trajectory.sample(self._time)[0]
        self._start = self._stamp = start
        self._tolerance = tolerance
        self._first = self._last = self._index = 0

    def deviation(self, stamp: float, posture: Array) -> float:
        """Return the distance to the nearest posture that the arm may have reached [rad].

        Args:
            stamp: Stamp of the posture [s].
            posture: Shape (n,) [rad].

        """
        reach = _LOOK_AHEAD + min(self._time[self._last] + max(0.0, stamp - self._stamp),
                                  max(0.0, stamp - self._start))
        self._stamp = stamp
        end = int(np.searchsorted(self._time, reach, 'right'))
        part = self._path[self._first:max(end, self._first + 1)]
        distance = np.abs(part - posture).max(axis=1)
        nearest = int(np.argmin(distance))
        self._index = max(self._index, self._first + nearest)
        near = np.flatnonzero(distance <= self._tolerance)
        if len(near):
            self._first, self._last = self._first + int(near[0]), self._first + int(near[-1])
        return float(distance[nearest])

    @property
    def share(self) -> float:
        """Completed share of the motion's time, 0 … 1."""
        return float(self._time[self._index] / self._time[-1])


class ArmClient:
    """Client that sends motions to the joint trajectory controller and monitors the arm.

    Attributes:
        name: Name of the controller's action.
        controller: Its state.
        goals: Its goals.
        abort: What ends a motion apart from its path.
        parts: These three, to be started, stopped and destroyed by whoever owns the client.
        longest_turn: Longest turn of the node's executor during motions since ``connect`` [s].

    """

    def __init__(
        self, waiter: Waiter, joints: JointStateStream, robot: Robot,
        parameters: Callable[[], ArmParameters], report: Report,
    ) -> None:
        """Create the action client.

        Args:
            waiter: Waits in the node's coroutines.
            joints: The arm's joint states.
            robot: The arm's model.
            parameters: Returns the current parameters.
            report: Shows that an arm does not come to rest.

        """
        controller = parameters().controller
        self._waiter = waiter
        self._joints = joints
        self._joint_names = robot.joint_names
        self._parameters = parameters
        self.name = f'{controller}/follow_joint_trajectory'
        self.controller = ControllerState(
            waiter, f'{controller}/controller_state', robot.joint_names)
        self.goals = ControllerGoals(waiter, self.name)
        self.abort = StopConditions(waiter, robot, joints, parameters)
        self.parts: tuple[Any, ...] = self.controller, self.goals, self.abort
        self._report = report
        self._quiet = Silence(
            self._stamp, lambda: self.controller.stamp, lambda: max(self._joints.period, 1e-3),
            self._joints.catch_up, missed=3, longest=0.15)
        self._goal: UUID | None = None
        self._clock_jumps = self._others_before = 0
        self.longest_turn = 0.0
        waiter.on_stop = self._cancel_now

    def _cancel_now(self) -> None:
        """Send the cancel request at once; the monitored motion checks that the arm stops."""
        if self._goal is not None:
            self.goals.cancel(self._goal)

    def _cancel_if_accepted(self, goal: UUID, sending: Future[Any]) -> None:
        answer = sending.result()
        if answer is not None and answer.accepted:
            self.goals.cancel(goal)

    def missing(self) -> str:
        """Return what a motion would lack of joint states and controller, empty for nothing."""
        lacks = [f"joint states on '{self._joints.topic}'"] if self._joints.age() > _SILENT else []
        if not self.goals.is_ready():
            lacks.append(f"controller '{self.name}'")
        return ' and '.join(lacks)

    def state_problem(self) -> str:
        """Return why the joint states can't be relied on, or an empty string."""
        if problem := self._joints.problem():
            return problem
        # Messages that arrived while the node was late are still queued.
        age = self._joints.age()
        if age > self._parameters().state_timeout + self._waiter.delay:
            since = f'for {age:.2f} s' if np.isfinite(age) else 'yet'
            return (f'No joint states received {since} '
                    f'(limit {self._parameters().state_timeout} s).{overload_hint()}')
        return ''

    def check_commands(self) -> None:
        """Raise a MotionError while the controller commands a motion that is no goal.

        It may have received it by topic, or its drives do not follow.
        """
        values = self._parameters()
        since = self._waiter.now() - values.state_timeout
        if self._commands_change():
            raise MotionError(
                'The arm is already moving, or about to: the posture that controller '
                f"'{self.name}' commands changes. Nothing was sent; end the client that moves it.")
        here, commanded = (self.controller.posture(since, commanded=item)
                           for item in (False, True))
        if here is None or commanded is None:
            return
        # Controllers may count the turns of a continuous joint differently.
        distance = np.abs(np.remainder(commanded - here + np.pi, 2.0 * np.pi) - np.pi)
        worst = int(np.argmax(distance))
        if distance[worst] > values.path_tolerance:
            raise MotionError(
                f"Joint '{self._joint_names[worst]}' is {distance[worst]:.3f} rad from where "
                f"controller '{self.name}' commands it to be (limit {values.path_tolerance:g} rad "
                'by path_tolerance): the drives do not follow. Nothing was sent; check that they '
                'are on and that nothing blocks the arm, then activate the controller again.')

    # ---------------------------------------------------------------------- moving

    async def connect(self, timeout: float) -> None:
        """Wait until the controller's action server and joint states are there.

        Raises:
            ConfigurationError: If they are not ready within ``timeout`` seconds.
            CancelledError: If a stop was requested.

        """
        self.longest_turn = 0.0
        if not await self._waiter.until_stopped(
            lambda: (self._joints.age() < self._parameters().state_timeout
                     and bool(np.isfinite(self._joints.travel(0.1)))), timeout,
        ):
            hint = publisher_hint(self._waiter.node, 'joint_states', JointState)
            if (self._joints.age() < self._parameters().state_timeout
                    and not self._joints.problem()):
                raise ConfigurationError(
                    f"Joint states on '{self._joints.topic}' are too slow: expected at least one "
                    'in 0.1 s. Raise the rate of joint_state_broadcaster or of the driver.')
            raise ConfigurationError(
                self._joints.problem() or 'No joint states received; expected '
                'sensor_msgs/JointState on joint_states. Start the driver (or sim_arm) in this '
                f'namespace and ROS domain. {hint}')
        if not await self._waiter.until_stopped(self.goals.is_ready, timeout):
            suffix = '/follow_joint_trajectory/_action/status'
            # The client's own subscription makes the topic appear: count publishers.
            node = self._waiter.node
            controllers = sorted(
                name.removesuffix(suffix) for name, _ in node.get_topic_names_and_types()
                if name.endswith(suffix) and node.count_publishers(name))
            raise ConfigurationError(
                f"Action server '{self.name}' is not available; available controllers: "
                f'{", ".join(controllers) or "none"}. Load and activate the controller, or '
                'correct the parameter controller.')

    async def execute(
        self, trajectory: Trajectory, progress: Callable[[float], None] | None,
        watch: Watch | None,
    ) -> MotionOutcome:
        """Send a checked motion and monitor it until the arm is at rest.

        Args:
            trajectory: The motion as it is to be sent.
            progress: Called with the completed share.
            watch: Called on every tick; ends the motion by returning a sentence.

        """
        self._clock_jumps = self._joints.counts.clock_jumps
        self._others_before = self.goals.begun
        self._quiet.begin()
        try:
            return await self._send(trajectory, progress, watch)
        except Exception:
            # A defect in a callback: nothing monitors the arm any more.
            self._cancel_now()
            await self._ended(MotionStatus.CANCELLED, '')
            raise
        finally:
            self._goal = None

    async def _send(
        self, trajectory: Trajectory, progress: Callable[[float], None] | None,
        watch: Watch | None,
    ) -> MotionOutcome:
        if not self.goals.is_ready():
            return MotionOutcome(
                MotionStatus.CONTROLLER_LOST,
                f"Controller '{self.name}' is no longer available; nothing was sent.",
                await self.comes_to_rest())
        message = conversions.to_goal(
            trajectory, self._joint_names, self._parameters().path_tolerance,
            self._parameters().goal_tolerance, self._parameters().goal_time)
        start = self._stamp()
        # Known before the answer, so that the goal can be cancelled without one.
        goal = self._goal = self.goals.new_id()
        sending = self.goals.send(message, goal)
        if not await self._waiter.until(sending.done, ANSWER_TIMEOUT):
            # The answer may be lost while the arm moves, or the goal be accepted later.
            self._cancel_now()
            sending.add_done_callback(partial(self._cancel_if_accepted, goal))
            return await self._ended(
                MotionStatus.CONTROLLER_LOST,
                f"Controller '{self.name}' did not answer within {ANSWER_TIMEOUT} s.")
        answer = sending.result()
        if answer is None or not answer.accepted:
            return MotionOutcome(
                MotionStatus.REJECTED,
                f"Controller '{self.name}' rejected the motion. See its log, and check that it "
                'is active.', await self.comes_to_rest())
        # The turns so far, among them that which sends the goal, found the arm at rest.
        self._waiter.take_longest_turn()
        result = self.goals.result(goal)
        follower = _PathFollower(
            trajectory, start, CANCEL_FACTOR * self._parameters().path_tolerance)
        advanced, share = self._stamp(), 0.0
        while not result.done():
            looked = self._waiter.now()
            await self._waiter.tick()
            self.longest_turn = max(self.longest_turn, self._waiter.take_longest_turn())
            problem = self._problem(follower, watch, self._waiter.now() - looked)
            if follower.share > share or follower.share >= 0.999:
                advanced, share = self._stamp(), follower.share
                if progress is not None:
                    progress(share)
            elif problem is None and self._stamp() - advanced > STALL_TIMEOUT:
                paused = f' {PAUSED}' if self.controller.paused else ''
                problem = (MotionStatus.STALLED, f'The arm made no progress for '
                           f'{STALL_TIMEOUT:.0f} s at {100 * share:.0f} % of the motion.{paused}')
            if problem is not None and not result.done():
                return await self._cancel(goal, result, *problem)
        return await self._conclude(result.result(), trajectory, follower)

    def _stamp(self) -> float:
        latest = self._joints.latest
        return latest[0] if latest is not None else 0.0

    def _problem(
        self, follower: _PathFollower, watch: Watch | None, unwatched: float = 0.0
    ) -> tuple[MotionStatus, str] | None:
        """Return a reason to end the motion, if there is one.

        Args:
            follower: Progress along the path.
            watch: Returns a sentence when data are lost.
            unwatched: Time since the last look [s].

        """
        if self._waiter.stop_reason:
            return MotionStatus.CANCELLED, self._waiter.stop_reason
        if self._taken_over:
            return MotionStatus.TAKEN_OVER, self._taken_over
        if unwatched > _UNWATCHED:
            return MotionStatus.LATE, (
                f'This machine was late: for {unwatched:.1f} s (limit {_UNWATCHED} s) nothing '
                'monitored the motion.')
        # Takes joint states: those after a jump of their clock seem to be late.
        lost = self.state_problem() or self._silence()
        if self._joints.counts.clock_jumps > self._clock_jumps:
            return MotionStatus.STATES_LOST, (
                'The clock of the joint states jumped back, so the path can no longer be '
                f'followed.{self._joints.several}')
        if lost:
            return MotionStatus.STATES_LOST, lost
        if (reason := self.abort.problem()) is not None:
            return reason
        deviation = follower.deviation(self._stamp(), self._joints.posture())
        limit = CANCEL_FACTOR * self._parameters().path_tolerance
        if deviation > limit and self._frozen:
            return MotionStatus.STATES_LOST, (
                'The joint states stay the same while the arm moves by the state of controller '
                f"'{self.name}': check the driver.")
        if deviation > limit:
            return MotionStatus.FOREIGN_MOTION, (
                f'The arm is {deviation:.3f} rad off the commanded path (limit {limit:g} rad): '
                f'another client moves it, or it was pushed.{self._joints.several}')
        if not self.goals.is_ready():
            return MotionStatus.CONTROLLER_LOST, (
                f"Controller '{self.name}' disappeared during the motion.")
        problem = watch() if watch is not None else ''
        if problem:
            return MotionStatus.DATA_LOST, problem
        return None

    @property
    def _taken_over(self) -> str:
        """That another client has begun a goal since the motion began, or ''."""
        return '' if self.goals.begun == self._others_before else (
            f"Another client has sent controller '{self.name}' a goal during this motion, which "
            'the controller carries out instead. End that client before you call again.')

    def _silence(self) -> str:
        """Return that joint states are silent while the controller's state goes on, or ''.

        Both are judged by stamps, which may differ by a constant.
        """
        self.controller.look()
        found = self._quiet.beyond()
        if found is None:
            return ''
        if self._joints.unusable:
            return self._joints.unusable
        return (f"No joint states received for {found[0]:.2f} s (limit {found[1]:.2f} s), while "
                f"controller '{self.name}' goes on: joint_state_broadcaster or the driver has "
                f'stopped publishing.{overload_hint()}')

    @property
    def _frozen(self) -> bool:
        """True if the joint states stay the same while the controller sees the arm move."""
        return (self._joints.travel(STILL_TIME) == 0.0
                and STILL_TRAVEL < self.controller.travel(STILL_TIME, -np.inf) < np.inf)

    async def _cancel(
        self, goal: UUID, result: Any, status: MotionStatus, message: str
    ) -> MotionOutcome:
        """Cancel the motion and wait until the arm is at rest."""
        answer = self.goals.cancel(goal)
        if await self._waiter.until(lambda: answer.done() or result.done(), ANSWER_TIMEOUT):
            await self._waiter.until(result.done, ANSWER_TIMEOUT)
            if status not in (MotionStatus.CANCELLED, MotionStatus.TAKEN_OVER):
                message += ' The motion was cancelled.'
        else:
            message += f" Controller '{self.name}' did not answer the cancel request."
        return await self._ended(status, message)

    async def _conclude(
        self, response: Any, trajectory: Trajectory, follower: _PathFollower
    ) -> MotionOutcome:
        """Return the outcome by the controller's result and the posture of the arm at rest."""
        if response.status != GoalStatus.STATUS_SUCCEEDED:
            if self._waiter.stop_reason:
                return await self._ended(MotionStatus.CANCELLED, self._waiter.stop_reason)
            code, text = response.result.error_code, response.result.error_string
            error = _ERRORS.get(code, f'error code {code}') + (f' ("{text}")' if text else '')
            return await self._ended(
                MotionStatus.ABORTED, f'The controller ended the motion: {error}. See its log, '
                'and check that it is active.')
        end = self._waiter.now() + _LATE_ARRIVAL
        # Late joint states may still show the arm at rest before a short motion.
        known = self._stamp() + _OLDEST

        def arrived() -> bool:
            distance = np.abs(self._joints.posture() - trajectory.goal).max()
            return self.resting and bool(
                distance <= self._parameters().goal_tolerance or self._stamp() >= known)

        while not arrived() and self._waiter.now() < end:
            await self._waiter.tick()
            if (problem := self._problem(follower, None)) is not None:
                return await self._ended(*problem, hold=True)
        distance = np.abs(self._joints.posture() - trajectory.goal)
        worst = int(np.argmax(distance))
        if distance[worst] > self._parameters().goal_tolerance:
            return await self._ended(
                MotionStatus.NOT_AT_GOAL,
                f"The controller reported success, but joint '{self._joint_names[worst]}'"
                f' is {distance[worst]:.4f} rad from the goal (limit '
                f'{self._parameters().goal_tolerance} rad).', hold=True)
        return MotionOutcome(MotionStatus.DONE, 'The arm is at rest at the goal.', True)

    def _commands_change(self) -> bool:
        """Return whether the posture that the controller commands changes."""
        since = self._waiter.now() - self._parameters().state_timeout
        return STILL_TRAVEL < self.controller.travel(STILL_TIME, since, commanded=True) < np.inf

    async def _ended(
        self, status: MotionStatus, message: str, *, hold: bool = False
    ) -> MotionOutcome:
        """Follow the arm after a motion until it rests, and return the outcome.

        An arm that does not come to rest is commanded to hold its posture, once.

        Args:
            status: How the motion ended.
            message: A sentence about it.
            hold: Whether no command has stopped the arm yet.

        """
        commanded = self._posture(commanded=True)
        held = self.resting if hold else await self.comes_to_rest()
        here = self._posture()
        if not held and here is not None and not self._taken_over:
            message += ' The arm moved on, and was commanded to hold its posture.'
            await self._hold(here)
            for second in range(_FOLLOWED):
                if held := await self.comes_to_rest(1.0):
                    break
                self._report.note(**{'still moving': f'{second + 1} s after the arm was commanded '
                                     'to hold its posture'})
            here = self._posture()
        if status is MotionStatus.ABORTED:
            # What it commands steps to where the arm rests, which is no motion of others.
            await self._waiter.until(lambda: not self._commands_change(), ANSWER_TIMEOUT)
        if self._taken_over and status is not MotionStatus.CANCELLED:
            return MotionOutcome(MotionStatus.TAKEN_OVER, self._taken_over, held)
        if here is not None and commanded is not None:
            distance = np.abs(here - commanded)
            worst = int(np.argmax(distance))
            if (status is MotionStatus.ABORTED
                    or distance[worst] > self._parameters().path_tolerance):
                message += (f" Joint '{self._joint_names[worst]}' went furthest: it is "
                            f'{distance[worst]:.3f} rad from the posture commanded then.')
        return MotionOutcome(status, message, held)

    def _posture(self, *, commanded: bool = False) -> Array | None:
        """Return the posture that the arm has, or was last commanded to have, (n,) [rad].

        None if neither state of the controller nor joint states have shown it of late, each of a
        single node: those of several nodes may be another arm's.
        """
        self.controller.look()
        seen = None if self.controller.shared else self.controller.posture(
            self._waiter.now() - _FRESH, commanded=commanded)
        if seen is None and self._joints.age() < _FRESH and not self._joints.several:
            return self._joints.posture().copy()
        return seen

    async def _hold(self, posture: Array) -> None:
        """Command a posture, shape (n,) [rad], to stop the arm there."""
        goal = conversions.to_goal(
            Trajectory(np.array([0.0, 0.1]), np.stack((posture, posture)),
                       np.zeros((2, len(posture)))),
            self._joint_names, 0.0, 0.0, 1.0)
        await self._waiter.until(self.goals.send(goal, self.goals.new_id()).done, ANSWER_TIMEOUT)

    @property
    def resting(self) -> bool:
        """True while the joint states show the arm at rest."""
        return (self._joints.age() < self._parameters().state_timeout
                and self._joints.travel(STILL_TIME) < STILL_TRAVEL)

    async def comes_to_rest(self, timeout: float = ANSWER_TIMEOUT) -> bool:
        """Wait until the arm is at rest; return whether joint states or controller show it.

        Args:
            timeout: Longest wait for an arm that they show moving, by the steady clock; without
                either, the wait is shorter [s].

        """
        start = self._waiter.now()
        blind = False

        def rests() -> bool:
            nonlocal blind
            now = self._waiter.now()
            # Only what was received since then counts: a stream may have stopped.
            travel = self.controller.travel(STILL_TIME, max(start, now - _FRESH))
            if np.isfinite(travel) and not self.controller.shared:
                # Joint states may be slow, frozen, or those of another arm, too.
                return travel < STILL_TRAVEL
            if self._joints.age() < min(now - start, self._parameters().state_timeout):
                return self.resting
            blind = now - start > _BLIND + self._waiter.delay
            return False

        return await self._waiter.until(lambda: rests() or blind, timeout) and not blind
