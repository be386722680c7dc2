# SPDX-License-Identifier: Apache-2.0
"""ROS interface of the simulated trajectory controller: action and topics."""

from __future__ import annotations

from typing import Any, TypeAlias

from control_msgs.action import FollowJointTrajectory
from rclpy.action.server import ActionServer, CancelResponse, GoalResponse, ServerGoalHandle
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node
from rclpy.task import Future
from trajectory_msgs.msg import JointTrajectory

from robocal_ros.errors import ConfigurationError
from robocal_sim.controller import Goal, Status
from robocal_sim.faults import ANSWER_DELAY
from robocal_sim.node_topics import (
    fill_point,
    latched,
    set_stamp,
    stamp_to_seconds,
    to_tolerances,
    to_trajectory,
)
from robocal_sim.simulator import ArmSimulator

try:
    from control_msgs.msg import SpeedScalingFactor
except ImportError:  # Releases before Kilted have no such message.
    SpeedScalingFactor = None

GoalHandle: TypeAlias = 'ServerGoalHandle[Any, Any, Any]'


class ControllerFace:
    """Action `<name>/follow_joint_trajectory` and topics of the trajectory controller.

    All callbacks run in the simulation's thread, between two control cycles.
    """

    def __init__(
        self, node: Node, name: str, simulator: ArmSimulator, group: ReentrantCallbackGroup
    ) -> None:
        self._simulator = simulator
        self._logger = node.get_logger()
        self._handles: dict[Goal, tuple[GoalHandle, Future[None]]] = {}
        # Held goal requests by the simulated time at which they arrived.
        self._held: list[tuple[float, Future[None]]] = []

        # rclpy awaits a coroutine here, which its types don't say.
        on_goal: Any = self._on_goal

        def serve() -> ActionServer[Any, Any, Any]:
            return ActionServer(
                node,
                FollowJointTrajectory,
                f'{name}/follow_joint_trajectory',
                execute_callback=self._execute,
                goal_callback=on_goal,
                handle_accepted_callback=self._on_accepted,
                cancel_callback=self._on_cancel,
                callback_group=group,
            )

        self._serve = serve
        self._action: ActionServer[Any, Any, Any] | None = serve()
        node.create_subscription(
            JointTrajectory, f'{name}/joint_trajectory', self._on_trajectory, 10,
            callback_group=group,
        )
        if SpeedScalingFactor is not None:
            node.create_subscription(
                SpeedScalingFactor, f'{name}/speed_scaling_input', self._on_speed_scaling,
                latched(), callback_group=group,
            )

    @property
    def executing(self) -> int:
        """Number of goals that are being executed."""
        return len(self._handles)

    def set_speed_scaling(self, factor: float) -> None:
        """Set the speed scaling of trajectories.

        Raises:
            ConfigurationError: The factor is not between 0 and 1.

        """
        if not 0.0 <= factor <= 1.0:
            raise ConfigurationError(
                f'The speed scaling is {factor}; expected a factor from 0 to 1.'
            )
        self._simulator.controller.speed_scaling = factor

    def on_action_tick(self) -> None:
        """Send results and feedback of the action."""
        controller = self._simulator.controller
        self._apply_faults()
        for goal in controller.take_ended():
            _, future = self._handles[goal]
            future.set_result(None)
        if controller.goal is not None:
            handle, _ = self._handles[controller.goal]
            handle.publish_feedback(self._feedback())

    def _apply_faults(self) -> None:
        controller, faults = self._simulator.controller, self._simulator.faults
        if 'controller_gone' in faults and self._action is not None:
            # Unloaded: the arm is held, and clients get no result.
            controller.deactivate()
            controller.take_ended()
            self._handles.clear()
            self._action.destroy()
            self._action = None
        elif 'controller_gone' not in faults and self._action is None:
            controller.activate()
            self._action = self._serve()
        held, self._held = self._held, []
        for since, future in held:
            waited = abs(self._simulator.now - since)
            if 'controller_silent' in faults or (
                    'controller_slow' in faults and waited < ANSWER_DELAY):
                self._held.append((since, future))
            else:
                future.set_result(None)

    def _feedback(self) -> Any:
        controller = self._simulator.controller
        feedback = FollowJointTrajectory.Feedback()
        set_stamp(feedback.header.stamp, self._simulator.now)
        feedback.joint_names = list(controller.joints)
        fill_point(feedback.desired, controller.desired)
        fill_point(feedback.actual, controller.measured)
        fill_point(feedback.error, controller.error)
        return feedback

    async def _on_goal(self, request: Any) -> GoalResponse:
        if any(f'controller_{name}' in self._simulator.faults for name in ('silent', 'slow')):
            future: Future[None] = Future()
            self._held.append((self._simulator.now, future))
            await future
        reason = self._simulator.controller.check(
            to_trajectory(request.trajectory),
            self._simulator.now,
            to_tolerances(request.path_tolerance),
            to_tolerances(request.goal_tolerance),
        )
        if reason is None:
            return GoalResponse.ACCEPT
        self._logger.error(f'Goal rejected: {reason}')
        return GoalResponse.REJECT

    def _on_accepted(self, handle: GoalHandle) -> None:
        request = handle.request
        goal = self._simulator.controller.accept_goal(
            to_trajectory(request.trajectory),
            self._simulator.now,
            to_tolerances(request.path_tolerance),
            to_tolerances(request.goal_tolerance),
            stamp_to_seconds(request.goal_time_tolerance),
        )
        self._handles[goal] = (handle, Future())
        handle.execute()

    def _on_cancel(self, handle: GoalHandle) -> CancelResponse:
        self._simulator.controller.cancel(self._goal_of(handle))
        return CancelResponse.ACCEPT

    def _goal_of(self, handle: GoalHandle) -> Goal:
        return next(goal for goal, (other, _) in self._handles.items() if other is handle)

    async def _execute(self, handle: GoalHandle) -> Any:
        """Wait until the controller has ended the goal, and return its result."""
        goal = self._goal_of(handle)
        await self._handles[goal][1]
        del self._handles[goal]
        result = FollowJointTrajectory.Result()
        outcome = goal.outcome
        if outcome is None:
            return result
        result.error_code, result.error_string = outcome.code, outcome.text
        if outcome.status is Status.SUCCEEDED:
            handle.succeed()
        elif outcome.status is Status.CANCELED:
            handle.canceled()
        else:
            handle.abort()
        return result

    def _on_trajectory(self, message: JointTrajectory) -> None:
        reason = self._simulator.controller.accept_topic(
            to_trajectory(message), self._simulator.now
        )
        if reason is not None:
            self._logger.error(f'Trajectory ignored: {reason}')

    def _on_speed_scaling(self, message: Any) -> None:
        try:
            self.set_speed_scaling(message.factor)
        except ConfigurationError as error:
            self._logger.error(str(error))
