# SPDX-License-Identifier: Apache-2.0
"""Friction compensation: ``~/compensation``, efforts for ``~/trajectory_in``, and tracking."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from control_msgs.msg import JointTrajectoryControllerState
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError, RobocalError
from robocal_ros.friction.estimator import friction_temperature
from robocal_ros.friction.model import Compensator, feed_forward
from robocal_ros.friction.track import FrictionTracker, tracked_result
from robocal_ros.messages import TEXT_LIMIT, JointStateStream, Subscriber, conversions, qos
from robocal_ros.node import CalibrationNode
from robocal_ros.results import CalibrationResult, to_yaml
from robocal_ros.robot import DIRECTIONS, Robot, SteadyFriction, friction_by_joint

# A reference velocity older than this is not used [s].
_REFERENCE_AGE = 0.1
# Time between two updates of the laws by tracking [s].
_REPORT_PERIOD = 1.0


class FrictionFeedForward:
    """Publishes the friction torque to add, and fills in the effort of trajectories.

    Attributes:
        robot: The arm with its payload.
        temperature: Temperature at which the friction in use was identified, NaN if unknown.
        newest_temperature: Newest temperature of the arm, NaN if unknown.

    """

    def __init__(self, node: CalibrationNode, joints: JointStateStream) -> None:
        """Create the topics; nothing is published before the first result.

        Args:
            node: The node.
            joints: The arm's joint states.

        """
        self.robot = node.robot
        self.temperature = self.newest_temperature = float('nan')
        self._node = node
        self._laws: Mapping[str, SteadyFriction] = {}
        self._compensator = Compensator(
            {}, self.robot.joint_names, width=node.values.compensation_width,
            dead_band=node.values.compensation_dead_band)
        self._result: CalibrationResult | None = None
        self._tracker: FrictionTracker | None = None
        self._reported = -np.inf
        self._tracked = node.publisher(String, '~/tracked')
        self._reference: tuple[float, Array] | None = None
        self._order: tuple[tuple[str, ...], list[int]] | None = None
        self._message = JointState(name=list(self.robot.joint_names))
        self._compensation = node.publisher(JointState, '~/compensation', qos.RELIABLE)
        self._out = node.publisher(JointTrajectory, '~/trajectory_out', qos.RELIABLE)
        node.subscription(JointTrajectory, '~/trajectory_in', self._pass, qos.RELIABLE,
                          limit=TEXT_LIMIT, idle_only=True)
        self._references = node.stream(Subscriber(
            node, node.group, JointTrajectoryControllerState,
            f'{node.values.controller}/controller_state', self._take_reference))
        joints.listen(self._on_state, lambda: (
            self.tracking or self.subscribed or self._references.subscription is not None))

    def use(self, result: CalibrationResult) -> None:
        """Replace the friction result in use."""
        self._result = result
        self.temperature = friction_temperature(result)
        self._compensate(friction_by_joint(result))
        if self._tracker is not None or self._node.values.track:
            self.track(on=True)

    def use_robot(self, robot: Robot) -> None:
        """Replace the arm with its payload."""
        self.robot = robot
        if self._tracker is not None:
            self._tracker.use(robot)

    def _compensate(self, laws: Mapping[str, SteadyFriction]) -> None:
        self._laws = laws
        self._compensator.use(laws)

    @property
    def tracking(self) -> bool:
        """True if friction is updated from joint states."""
        return self._tracker is not None

    def track(self, *, on: bool) -> None:
        """Begin updating the laws from the identified ones, or return to these.

        Raises:
            DataError: If no friction is identified.

        """
        if self._result is None:
            raise DataError('No friction is identified yet; call run first.')
        laws, values = friction_by_joint(self._result), self._node.values
        self._compensate(laws)
        self._tracker = FrictionTracker(
            self.robot, laws, drift=values.track_drift, model_std=values.arm_model_std,
            tilt_std=values.tilt_std, since=self._result.time, temperature=self.temperature,
        ) if on else None

    def _follow(self, stamp: float, position: Array, effort: Array) -> None:
        """Update the laws, and report them now and then."""
        tracker, result = self._tracker, self._result
        if tracker is None or result is None or not np.isfinite(effort).all():
            return
        tracker.add(stamp, position, effort, self.newest_temperature)
        if abs(stamp - self._reported) < _REPORT_PERIOD:
            return
        self._reported = stamp
        changes = tracker.changes(self.newest_temperature)
        tracked = tracked_result(result, changes, stamp)
        self._compensate(friction_by_joint(tracked))
        self._tracked.publish(String(data=to_yaml(tracked)))
        self._node.status.note(**{
            f'{name}: friction {direction} since identification': str(change)
            for name, sides in changes.items()
            for direction, change in zip(DIRECTIONS, sides, strict=True)},
            **{'changes of the load noticed': str(tracker.load_changes)})

    @property
    def subscribed(self) -> bool:
        """True while somebody subscribes to the compensation."""
        return self._compensation.get_subscription_count() > 0

    def _take_reference(self, message: JointTrajectoryControllerState) -> None:
        names = tuple(message.joint_names)
        if self._order is None or self._order[0] != names:
            if any(name not in names for name in self.robot.joint_names):
                return
            self._order = (names, [names.index(name) for name in self.robot.joint_names])
        velocities = message.reference.velocities
        if len(velocities) != len(names):
            return
        velocity = np.asarray(velocities)[self._order[1]]
        if np.isfinite(velocity).all():
            self._reference = (conversions.seconds(message.header.stamp), velocity)

    def _on_state(self, stamp: float, position: Array, velocity: Array, effort: Array) -> None:
        """Publish the friction torque for one joint state."""
        if self._node.is_active:
            self._follow(stamp, position, effort)
        if self._result is None or not self._node.is_active or not self.subscribed:
            # The commanded velocities are not needed.
            self._references.stop()
            return
        self._references.start()
        reference = self._reference
        commanded = reference is not None and abs(stamp - reference[0]) < _REFERENCE_AGE
        speed = reference[1] if commanded and reference is not None else velocity
        self._message.header.stamp = conversions.to_stamp(stamp)
        self._message.velocity = speed.tolist()
        self._message.effort = self._compensator.torque(speed, measured=not commanded).tolist()
        self._compensation.publish(self._message)

    def _pass(self, message: JointTrajectory) -> None:
        """Fill in the effort of a trajectory and republish it; an invalid one is dropped."""
        if not self._node.is_active:
            return
        if self._result is None:
            self._node.get_logger().warning(
                'No friction result is available: the effort of this trajectory contains gravity '
                'and inertia only.')
        try:
            trajectory, order = conversions.from_joint_trajectory(
                message, self.robot.joint_names)
            torque = feed_forward(self.robot, self._laws, trajectory)
        except RobocalError as error:
            self._node.get_logger().error(f'Trajectory not published: {error}')
            return
        for point, row in zip(message.points, torque, strict=True):
            effort = np.zeros(len(message.joint_names))
            effort[order] = row
            point.effort = effort.tolist()
        self._out.publish(message)
