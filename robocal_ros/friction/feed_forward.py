# SPDX-License-Identifier: Apache-2.0
"""Friction compensation: ``~/compensation``, and efforts for ``~/trajectory_in``."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from control_msgs.msg import JointTrajectoryControllerState
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectory

from robocal_ros.arrays import Array
from robocal_ros.errors import RobocalError
from robocal_ros.friction.estimate import friction_temperature
from robocal_ros.friction.model import Compensator, feed_forward
from robocal_ros.messages import conversions, qos
from robocal_ros.messages.stream import JointStateStream
from robocal_ros.messages.subscription import Subscriber
from robocal_ros.node.calibration_node import CalibrationNode
from robocal_ros.results.result import CalibrationResult
from robocal_ros.robot.friction_law import SteadyFriction, friction_by_joint

# A reference velocity older than this is not used [s].
_REFERENCE_AGE = 0.1


class FrictionFeedForward:
    """Publishes the friction torque to add, and fills in the effort of trajectories.

    Attributes:
        robot: The arm with its payload.
        temperature: Temperature at which the friction in use was identified, NaN if unknown.

    """

    def __init__(self, node: CalibrationNode, joints: JointStateStream) -> None:
        """Create the topics; nothing is published before the first result.

        Args:
            node: The node.
            joints: The arm's joint states.

        """
        self.robot = node.robot
        self.temperature = float('nan')
        self._node = node
        self._laws: Mapping[str, SteadyFriction] = {}
        self._compensator: Compensator | None = None
        self._reference: tuple[float, Array] | None = None
        self._order: tuple[tuple[str, ...], list[int]] | None = None
        self._message = JointState(name=list(self.robot.joint_names))
        self._compensation = node.publisher(JointState, '~/compensation', qos.RELIABLE)
        self._out = node.publisher(JointTrajectory, '~/trajectory_out', qos.RELIABLE)
        node.subscription(JointTrajectory, '~/trajectory_in', self._pass, qos.RELIABLE)
        node.stream(Subscriber(
            node, node.group, JointTrajectoryControllerState,
            f'{node.values.controller}/controller_state', self._take_reference))
        joints.listeners.append(self._on_state)

    def use(self, result: CalibrationResult) -> None:
        """Replace the friction result in use."""
        self._laws = friction_by_joint(result)
        self.temperature = friction_temperature(result)
        self._compensator = Compensator(
            self._laws, self.robot.joint_names, width=self._node.values.compensation_width,
            dead_band=self._node.values.compensation_dead_band)

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

    def _on_state(self, stamp: float, velocity: Array) -> None:
        """Publish the friction torque for one joint state."""
        if (self._compensator is None or not self._node.is_active
                or not self._compensation.get_subscription_count()):
            return
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
        if self._compensator is None:
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
