# SPDX-License-Identifier: Apache-2.0
"""Use of identified compliance: ``~/deflection`` and sag-corrected trajectories."""

from __future__ import annotations

import numpy as np
from geometry_msgs.msg import Vector3, Vector3Stamped
from trajectory_msgs.msg import JointTrajectory

from robocal_ros.arrays import Array
from robocal_ros.errors import MotionError, RobocalError
from robocal_ros.messages import TEXT_LIMIT, JointStateStream, conversions, qos
from robocal_ros.node import CalibrationNode
from robocal_ros.results import CalibrationResult
from robocal_ros.robot import Robot, SagCorrection, Trajectory, compliance_by_joint

# Period of predictions by stamps [s].
_PERIOD = 0.02


class SagFeedForward:
    """Publisher of the predicted sag, and filter that corrects trajectories for it."""

    def __init__(self, node: CalibrationNode, joints: JointStateStream) -> None:
        """Create the topics; nothing is predicted before a result is used."""
        self._node = node
        self._joints = joints
        self._robot = node.robot.copy()
        self._carrying = self._robot
        self._compliance: dict[str, float] = {}
        self._correction: SagCorrection | None = None
        self._published = -np.inf
        self._message = Vector3Stamped()
        self._message.header.frame_id = node.robot.root_frame
        self._deflection = node.publisher(Vector3Stamped, '~/deflection', qos.RELIABLE)
        self._out = node.publisher(JointTrajectory, '~/trajectory_out', qos.RELIABLE)
        node.subscription(JointTrajectory, '~/trajectory_in', self._pass, qos.RELIABLE,
                          limit=TEXT_LIMIT, idle_only=True)
        joints.listen(self._on_state, lambda: self.subscribed)

    @property
    def subscribed(self) -> bool:
        """True while somebody subscribes to the deflection."""
        return self._deflection.get_subscription_count() > 0

    def use(self, result: CalibrationResult) -> None:
        """Use a compliance result."""
        self._compliance = compliance_by_joint(result)
        self._prepare()

    def carry(self, robot: Robot, carrying: Robot) -> None:
        """Use the arm, without and with its present payload."""
        self._robot, self._carrying = robot, carrying
        self._prepare()

    @property
    def _payload_alone(self) -> bool:
        return not self._node.values.correct_own_weight

    def _prepare(self) -> None:
        if self._compliance:
            self._correction = SagCorrection(self._robot, self._carrying, self._compliance)

    def _on_state(
        self, stamp: float, _position: Array, _velocity: Array, _effort: Array
    ) -> None:
        """Publish the sag at the latest joint state."""
        if (self._correction is None or not self._node.is_active
                or abs(stamp - self._published) < _PERIOD or not self.subscribed
                or (latest := self._joints.latest) is None):
            return
        self._published = stamp
        x, y, z = self._correction.sag(latest[1], payload_alone=self._payload_alone)
        self._message.header.stamp = conversions.to_stamp(latest[0])
        self._message.vector = Vector3(x=float(x), y=float(y), z=float(z))
        self._deflection.publish(self._message)

    def _pass(self, message: JointTrajectory) -> None:
        """Correct and republish a trajectory; invalid ones are dropped with an error."""
        if not self._node.is_active:
            return
        if self._correction is None:
            self._node.get_logger().error(
                'Trajectory not passed on: no compliance is identified yet. Call run, or '
                'measure_unloaded and measure_loaded.')
            return
        try:
            trajectory, order = conversions.from_joint_trajectory(
                message, self._robot.joint_names)
            corrected = self._correction.corrected(
                trajectory, payload_alone=self._payload_alone)
            self._check_limits(corrected)
        except RobocalError as error:
            self._node.get_logger().error(f'Trajectory not passed on: {error}')
            return
        for what, rows in (('positions', corrected.position), ('velocities', corrected.velocity),
                           ('accelerations', corrected.acceleration)):
            for number, point in enumerate(message.points):
                values = np.array(getattr(point, what), dtype=float)
                if len(values) and rows is not None:
                    values[order] = rows[number]
                    setattr(point, what, values.tolist())
        self._out.publish(message)

    def _check_limits(self, trajectory: Trajectory) -> None:
        robot = self._robot
        beyond = np.maximum(trajectory.position - robot.upper,
                            robot.lower - trajectory.position).max(axis=0)
        joint = int(np.argmax(beyond))
        if beyond[joint] > 0.0:
            raise MotionError(
                f"corrected for the sag, joint '{robot.joint_names[joint]}' exceeds its limit by "
                f'{beyond[joint]:.2e} rad. Plan the trajectory with that margin.')
