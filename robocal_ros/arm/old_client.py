# SPDX-License-Identifier: Apache-2.0
"""The one place through which the arm is moved.

A joint trajectory controller lets dangerous goals through and may report success before the
arm is there. So every motion is checked here before it is sent, followed by the joint states
while it runs, and believed only when the arm rests at its goal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
from action_msgs.msg import GoalStatus
from control_msgs.action import FollowJointTrajectory
from control_msgs.msg import JointTrajectoryControllerState
from rclpy.action import ActionClient
from sensor_msgs.msg import JointState

from robocal_ros.arm.old_waiting import Pulse
from robocal_ros.arrays import Array
from robocal_ros.errors import CancelledError, ConfigurationError, MotionError, RobocalError
from robocal_ros.messages import conversions
from robocal_ros.messages.discovery import elsewhere
from robocal_ros.messages.stream import JointStateStream
from robocal_ros.messages.subscription import Listening
from robocal_ros.robot.collision import CollisionChecker
from robocal_ros.robot.motion import MotionLimits, Trajectory

if TYPE_CHECKING:
    from rclpy.callback_groups import CallbackGroup
    from rclpy.node import Node


_STILL_TRAVEL = 1e-3
_STILL_TIME = 0.15
_PATH_PERIOD = 0.01
# How far ahead of where it was last seen the arm is looked for [s].
_LOOK_AHEAD = 0.5
# The controller watches the same tolerance, and knows more: it has the first word.
_FOREIGN_SHARE = 1.5
# How long an arm may go on towards its goal after success was reported [s].
_LATE_ARRIVAL = 30.0
_ERRORS = {
    FollowJointTrajectory.Result.INVALID_GOAL: 'invalid goal, or taken over by another',
    FollowJointTrajectory.Result.INVALID_JOINTS: 'invalid joints',
    FollowJointTrajectory.Result.OLD_HEADER_TIMESTAMP: 'old time stamp',
    FollowJointTrajectory.Result.PATH_TOLERANCE_VIOLATED: 'the arm left the path',
    FollowJointTrajectory.Result.GOAL_TOLERANCE_VIOLATED: 'the arm did not reach the goal',
}


class MotionStatus(Enum):
    """How a motion ended."""

    DONE = 'done'
    REFUSED = 'refused'
    REJECTED = 'rejected'
    ABORTED = 'aborted'
    CANCELLED = 'cancelled'
    STATES_LOST = 'states lost'
    FOREIGN_MOTION = 'foreign motion'
    CONTROLLER_LOST = 'controller lost'
    STALLED = 'stalled'
    NOT_AT_GOAL = 'not at goal'
    DATA_LOST = 'data lost'


@dataclass(frozen=True)
class MotionOutcome:
    """How a motion ended, and where that left the arm.

    Attributes:
        status: How it ended.
        message: A sentence.
        held: Whether the arm was seen at rest afterwards.

    """

    status: MotionStatus
    message: str
    held: bool

    def raise_unless_done(self) -> None:
        """Turn anything but DONE into an error.

        Raises:
            CancelledError: If the motion was ended on request.
            MotionError: If it ended otherwise.

        """
        if self.status is MotionStatus.DONE:
            return
        where = ('The arm is held.' if self.held else
                 'The arm was not seen to come to rest: keep clear and check the controller.')
        if self.status is MotionStatus.CANCELLED:
            raise CancelledError(f'{self.message} {where}')
        raise MotionError(f'{self.message} {where}')


@dataclass(frozen=True)
class ArmSettings:
    """How motions are sent and watched.

    Attributes:
        speed_scale: Scales every motion's speed, 0 … 1.
        start_tolerance: Largest distance of the arm from a motion's start [rad].
        path_tolerance: Largest deviation on the way [rad].
        goal_tolerance: Largest deviation at the end [rad].
        goal_time: Time past the end within which the goal must be met [s].
        state_timeout: Longest silence of the joint states, by the steady clock [s].
        stall_timeout: Longest time without progress, by the joint states' stamps [s].
        answer_timeout: Longest wait for the controller's answers, by the steady clock [s].

    """

    speed_scale: float = 1.0
    start_tolerance: float = 0.02
    path_tolerance: float = 0.1
    goal_tolerance: float = 0.01
    goal_time: float = 2.0
    state_timeout: float = 0.5
    stall_timeout: float = 5.0
    answer_timeout: float = 3.0


class _PathFollower:
    """Where on a path the arm is, judged by the postures alone.

    Time does not enter, so a controller that stretches the motion (speed scaling, a teach
    pendant's slider) is still on its path.
    """

    def __init__(self, trajectory: Trajectory, began: float) -> None:
        self._time = trajectory.dense(_PATH_PERIOD)
        self._path = trajectory.sample(self._time)[0]
        self._at = 0
        self._looked = began

    def deviation(self, stamp: float, posture: Array) -> float:
        """Return the distance to the nearest posture around the last one found [rad].

        Args:
            stamp: Stamp of the posture [s]; the arm cannot be further ahead of where it was
                last seen than the time since then, and half a second, allows.
            posture: Shape (n,) [rad].

        """
        ahead = _LOOK_AHEAD + max(0.0, stamp - self._looked)
        self._looked = stamp
        first = max(0, self._at - 5)
        part = self._path[first:self._at + 1 + math.ceil(ahead / _PATH_PERIOD)]
        distance = np.abs(part - posture).max(axis=1)
        nearest = int(np.argmin(distance))
        self._at = max(self._at, first + nearest)
        return float(distance[nearest])

    @property
    def share(self) -> float:
        """Share of the motion's time that is done, 0 … 1."""
        return float(self._time[self._at] / self._time[-1])


class ArmClient:
    """Moves the arm through its joint trajectory controller, and watches it."""

    def __init__(
        self,
        node: Node,
        group: CallbackGroup,
        pulse: Pulse,
        joints: JointStateStream,
        *,
        controller: str,
        limits: MotionLimits,
        checker: CollisionChecker,
        settings: ArmSettings,
    ) -> None:
        """Create the action client.

        Args:
            node: The node.
            group: A reentrant callback group.
            pulse: Heartbeat to wait by.
            joints: The arm's joint states.
            controller: Name of the controller, absolute or relative to the node's namespace.
            limits: What no motion may exceed.
            checker: Collision geometry.
            settings: How motions are sent and watched.

        """
        self._node = node
        self._pulse = pulse
        self._joints = joints
        self._limits = limits
        self._checker = checker
        self._settings = settings
        self._name = f'{controller}/follow_joint_trajectory'
        self._client: Any = ActionClient(
            node, FollowJointTrajectory, self._name, callback_group=group)
        self._controller_joints: tuple[str, ...] = ()
        self._controller_state = Listening(
            node, group, JointTrajectoryControllerState, f'{controller}/controller_state',
            self._learn_joints)
        self._handle: Any = None
        self._clock_jumps = 0
        self._stop_reason = ''
        self._busy = False

    def listen(self) -> None:
        """Learn which joints the controller moves."""
        if not self._controller_joints:
            self._controller_state.listen()

    def rest(self) -> None:
        """Learn no more."""
        self._controller_state.rest()

    def destroy(self) -> None:
        """Remove client and subscription."""
        self._controller_state.destroy()
        self._client.destroy()

    def _learn_joints(self, message: JointTrajectoryControllerState) -> None:
        self._controller_joints = tuple(message.joint_names)
        # One message names the joints; the rest of a fast topic would only cost time.
        self._controller_state.rest()

    # -------------------------------------------------------------------- stopping

    @property
    def busy(self) -> bool:
        """Whether a motion is under way."""
        return self._busy

    def stop(self, reason: str) -> None:
        """Have the arm stopped now; whoever awaits a motion gets CANCELLED with the reason.

        Returns at once: the request leaves with this call, the waiting motion sees to it that
        the arm comes to rest.
        """
        self._stop_reason = reason
        if self._handle is not None:
            self._handle.cancel_goal_async()

    def rearm(self) -> None:
        """Allow motions again after ``stop``."""
        self._stop_reason = ''

    @property
    def stop_reason(self) -> str:
        """Why motions are stopped, empty while they are allowed."""
        return self._stop_reason

    # -------------------------------------------------------------------- checking

    def check(self, trajectory: Trajectory, limits: MotionLimits | None = None) -> Trajectory:
        """Return a trajectory as it would be sent, or refuse it.

        Raises:
            MotionError: With the reason, the value and its limit.
            ConfigurationError: If the controller moves other joints.

        """
        names = self._limits.joint_names
        if self._controller_joints and set(self._controller_joints) != set(names):
            raise ConfigurationError(
                f"Controller '{self._name}' moves {', '.join(self._controller_joints)}, but "
                f"the arm's joints are {', '.join(names)}. Name the right controller, joints "
                'or tool_frame.'
            )
        scaled = trajectory.slowed(self._settings.speed_scale)
        (limits or self._limits).check(scaled)
        self._check_start(scaled)
        positions = scaled.sample(scaled.dense())[0]
        contact = self._checker.first_contact(positions)
        if contact:
            raise MotionError(f'On this motion {contact}. Nothing was sent.')
        return scaled

    def _check_start(self, trajectory: Trajectory) -> None:
        problem = self._state_problem()
        if problem:
            raise MotionError(f'{problem} Nothing was sent.')
        distance = np.abs(self._joints.posture() - trajectory.start)
        worst = int(np.argmax(distance))
        if distance[worst] > self._settings.start_tolerance:
            raise MotionError(
                f"Joint '{self._limits.joint_names[worst]}' is {distance[worst]:.4f} rad away "
                f"from the motion's start (limit {self._settings.start_tolerance} rad). "
                'Nothing was sent; has something else moved the arm?'
            )
        if self._joints.travel(_STILL_TIME) > 5.0 * _STILL_TRAVEL:
            raise MotionError('The arm is moving already; another client seems to drive it. '
                              'Nothing was sent.')

    def _state_problem(self) -> str:
        """Return why the joint states can't be relied on, or an empty string."""
        complaint = self._joints.complaint()
        if complaint:
            return complaint
        age = self._joints.age()
        if age > self._settings.state_timeout:
            since = f'for {age:.2f} s' if np.isfinite(age) else 'yet'
            return (f'No joint states have come {since} '
                    f'(limit {self._settings.state_timeout} s).')
        return ''

    # ---------------------------------------------------------------------- moving

    async def connect(self, timeout: float) -> None:
        """Wait until the controller's action server and joint states are there.

        Raises:
            ConfigurationError: If they are not within ``timeout`` seconds; says what exists.
            CancelledError: If a stop was asked for meanwhile.

        """
        if not await self._available(
            lambda: (self._joints.age() < self._settings.state_timeout
                     and bool(np.isfinite(self._joints.travel(0.1)))), timeout,
        ):
            there = elsewhere(self._node, 'joint_states', JointState)
            raise ConfigurationError(
                self._joints.complaint() or 'No joint states have come; expected '
                'sensor_msgs/JointState on joint_states. Is the driver, or sim_arm, running in '
                f'this namespace and ROS domain? {there}'
            )
        if not await self._available(self._client.server_is_ready, timeout):
            suffix = '/follow_joint_trajectory/_action/status'
            # The client's own subscription makes the name appear: only who publishes is there.
            controllers = sorted(
                name.removesuffix(suffix) for name, _ in self._node.get_topic_names_and_types()
                if name.endswith(suffix) and self._node.count_publishers(name))
            raise ConfigurationError(
                f"No action server '{self._name}' answers; controllers there: "
                f'{", ".join(controllers) or "none"}. Load and activate the controller, or '
                'correct the parameter controller.'
            )

    async def _available(self, condition: Callable[[], bool], timeout: float) -> bool:
        there = await self._pulse.until(lambda: bool(self._stop_reason) or condition(), timeout)
        if self._stop_reason:
            raise CancelledError(self._stop_reason)
        return there

    async def move(
        self,
        trajectory: Trajectory,
        *,
        progress: Callable[[float], None] | None = None,
        watch: Callable[[], str] | None = None,
        limits: MotionLimits | None = None,
    ) -> MotionOutcome:
        """Check a motion, send it, follow it, and see the arm at rest at its goal.

        Args:
            trajectory: The motion, before the speed scale.
            progress: Called with the share done.
            watch: Called on every beat; a sentence from it ends the motion (lost data).
            limits: Limits of this motion instead of the usual ones.

        Returns:
            How it ended.

        """
        if self._stop_reason:
            return MotionOutcome(MotionStatus.CANCELLED, self._stop_reason, await self._rest())
        try:
            scaled = self.check(trajectory, limits)
        except RobocalError as error:
            return MotionOutcome(MotionStatus.REFUSED, str(error), await self._rest())
        self._busy = True
        self._clock_jumps = self._joints.counts.clock_jumps
        try:
            return await self._sent(scaled, progress, watch)
        finally:
            self._busy = False
            self._handle = None

    async def _sent(
        self,
        trajectory: Trajectory,
        progress: Callable[[float], None] | None,
        watch: Callable[[], str] | None,
    ) -> MotionOutcome:
        if not self._client.server_is_ready():
            return MotionOutcome(MotionStatus.CONTROLLER_LOST, f"Controller '{self._name}' is "
                                 'gone; nothing was sent.', await self._rest())
        goal = conversions.to_goal(
            trajectory, self._limits.joint_names, self._settings.path_tolerance,
            self._settings.goal_tolerance, self._settings.goal_time,
        )
        began = self._stamp()
        sending = self._client.send_goal_async(goal)
        if not await self._pulse.until(sending.done, self._settings.answer_timeout):
            # It may still take the goal: cancel it the moment it does.
            sending.add_done_callback(_cancel_late_goal)
            return MotionOutcome(
                MotionStatus.CONTROLLER_LOST,
                f"Controller '{self._name}' did not answer within "
                f'{self._settings.answer_timeout} s.', await self._rest())
        handle = sending.result()
        if handle is None or not handle.accepted:
            return MotionOutcome(
                MotionStatus.REJECTED,
                f"Controller '{self._name}' rejected the motion; its log says why. Is it active?",
                await self._rest())
        self._handle = handle
        return await self._followed(handle, trajectory, began, progress, watch)

    async def _followed(
        self,
        handle: Any,
        trajectory: Trajectory,
        began: float,
        progress: Callable[[float], None] | None,
        watch: Callable[[], str] | None,
    ) -> MotionOutcome:
        result = handle.get_result_async()
        follower = _PathFollower(trajectory, began)
        advanced, share = self._stamp(), 0.0
        while not result.done():
            await self._pulse.beat()
            problem = self._problem(follower, watch)
            if follower.share > share or follower.share >= 0.999:
                advanced, share = self._stamp(), follower.share
                if progress is not None:
                    progress(share)
            elif self._stamp() - advanced > self._settings.stall_timeout:
                problem = (MotionStatus.STALLED, f'The arm has not moved on for '
                           f'{self._settings.stall_timeout:.0f} s at {100 * share:.0f} % of the '
                           'motion.')
            if problem is not None and not result.done():
                return await self._cancelled(handle, result, *problem)
        return await self._concluded(result.result(), trajectory, follower)

    def _stamp(self) -> float:
        latest = self._joints.latest
        return latest[0] if latest is not None else 0.0

    def _problem(
        self, follower: _PathFollower, watch: Callable[[], str] | None
    ) -> tuple[MotionStatus, str] | None:
        """Look for a reason to end the motion."""
        if self._stop_reason:
            return MotionStatus.CANCELLED, self._stop_reason
        lost = self._state_problem()
        if lost:
            return MotionStatus.STATES_LOST, f'{lost} The motion was cancelled.'
        if self._joints.counts.clock_jumps > self._clock_jumps:
            return MotionStatus.STATES_LOST, (
                'The clock of the joint states jumped back, so the path can no longer be '
                'followed. The motion was cancelled.')
        deviation = follower.deviation(self._stamp(), self._joints.posture())
        limit = _FOREIGN_SHARE * self._settings.path_tolerance
        if deviation > limit:
            return MotionStatus.FOREIGN_MOTION, (
                f'The arm is {deviation:.3f} rad off the commanded path (limit {limit:g} rad): '
                'something else moves it, or it was pushed. The motion was cancelled.')
        if not self._client.server_is_ready():
            return MotionStatus.CONTROLLER_LOST, (
                f"Controller '{self._name}' vanished during the motion.")
        complaint = watch() if watch is not None else ''
        if complaint:
            return MotionStatus.DATA_LOST, f'{complaint} The motion was cancelled.'
        return None

    async def _cancelled(
        self, handle: Any, result: Any, status: MotionStatus, message: str
    ) -> MotionOutcome:
        """Cancel and wait until the arm rests."""
        answer = handle.cancel_goal_async()
        timeout = self._settings.answer_timeout
        answered = await self._pulse.until(lambda: answer.done() or result.done(), timeout)
        if not answered:
            message += f" Controller '{self._name}' did not answer the cancel request."
        else:
            await self._pulse.until(result.done, timeout)
        return MotionOutcome(status, message, await self._rest())

    async def _concluded(
        self, response: Any, trajectory: Trajectory, follower: _PathFollower
    ) -> MotionOutcome:
        """Judge the controller's result by where the arm rests."""
        if response.status != GoalStatus.STATUS_SUCCEEDED:
            held = await self._rest()
            if self._stop_reason:
                return MotionOutcome(MotionStatus.CANCELLED, self._stop_reason, held)
            code = response.result.error_code
            said = _ERRORS.get(code, f'error code {code}')
            text = f' ("{response.result.error_string}")' if response.result.error_string else ''
            return MotionOutcome(MotionStatus.ABORTED,
                                 f'The controller ended the motion: {said}{text}.', held)
        # Success may come before the arm is there, or for a goal that another one replaced.
        problem: tuple[MotionStatus, str] | None = None
        end = self._pulse.now() + _LATE_ARRIVAL
        while not self.resting and problem is None and self._pulse.now() < end:
            await self._pulse.beat()
            problem = self._problem(follower, None)
        if problem is not None:
            return MotionOutcome(*problem, await self._hold())
        distance = np.abs(self._joints.posture() - trajectory.goal)
        worst = int(np.argmax(distance))
        if distance[worst] > self._settings.goal_tolerance:
            return MotionOutcome(
                MotionStatus.NOT_AT_GOAL,
                f"The controller reported success, but joint '{self._limits.joint_names[worst]}'"
                f' is {distance[worst]:.4f} rad from the goal (limit '
                f'{self._settings.goal_tolerance} rad).', await self._hold())
        return MotionOutcome(MotionStatus.DONE, 'The arm rests at the goal.', True)

    async def _hold(self) -> bool:
        """Stop what still moves: command the measured posture; return whether it rests."""
        if not self.resting and self._joints.latest is not None:
            here = self._joints.posture()
            still = np.zeros((2, len(here)))
            goal = conversions.to_goal(
                Trajectory(np.array([0.0, 0.1]), np.stack((here, here)), still),
                self._limits.joint_names, 0.0, 0.0, 1.0)
            await self._pulse.until(
                self._client.send_goal_async(goal).done, self._settings.answer_timeout)
        return await self._rest()

    @property
    def resting(self) -> bool:
        """Whether the arm is seen at rest."""
        return (self._joints.age() < self._settings.state_timeout
                and self._joints.travel(_STILL_TIME) < _STILL_TRAVEL)

    async def _rest(self) -> bool:
        """Wait until the arm rests; return whether it was seen to."""
        began = self._pulse.now()
        # What was heard before says nothing about now: the states may have ended.
        return await self._pulse.until(
            lambda: self.resting and self._joints.age() < self._pulse.now() - began,
            self._settings.answer_timeout)


def _cancel_late_goal(sending: Any) -> None:
    handle = sending.result()
    if handle is not None and handle.accepted:
        handle.cancel_goal_async()
