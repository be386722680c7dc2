# SPDX-License-Identifier: Apache-2.0
"""Topics of the simulated arm, each with one message that is filled in place."""

from __future__ import annotations

import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from control_msgs.msg import JointTolerance, JointTrajectoryControllerState
from geometry_msgs.msg import PointStamped, PoseStamped, WrenchStamped
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from robocal_sim.controller import ToleranceRequest, TrajectoryController
from robocal_sim.simulator import JointReading, Readings, SensorReading
from robocal_sim.trajectory import JointState as ControllerState, Trajectory, TrajectoryPoint
from robocal_sim.truth import HiddenTruth

STREAM_DEPTH = 2000
"""Depth of the sensor topics: 2 s of data at 1 kHz."""

WRONG_FRAME = 'elsewhere'
"""Frame of force/torque messages under the fault ft_misframed."""

CLOCK_PERIOD = 0.01
"""Period of /clock [s]."""

STATE_PERIOD = 0.01
"""Period of the controller state [s], from the real controller's default update rate."""

_ASK_EVERY = 20
"""Messages of a sensor between two queries of its subscription count."""


def latched(depth: int = 1) -> QoSProfile:
    """Return a reliable, transient-local quality of service."""
    return QoSProfile(
        depth=depth,
        reliability=ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL,
    )


def stamp_to_seconds(stamp: Any) -> float:
    """Return a ROS time or duration in seconds."""
    return float(stamp.sec) + 1.0e-9 * float(stamp.nanosec)


def set_stamp(stamp: Time, seconds: float) -> None:
    """Write a time [s] into a message's stamp, rounded to the nanosecond."""
    nanoseconds = round(seconds * 1.0e9)
    stamp.sec, stamp.nanosec = divmod(nanoseconds, 1_000_000_000)


def to_trajectory(message: JointTrajectory) -> Trajectory:
    """Convert a trajectory message."""
    return Trajectory(
        tuple(message.joint_names),
        tuple(
            TrajectoryPoint(
                stamp_to_seconds(point.time_from_start),
                tuple(point.positions),
                tuple(point.velocities),
                tuple(point.accelerations),
                tuple(point.effort),
            )
            for point in message.points
        ),
        stamp_to_seconds(message.header.stamp),
    )


def to_tolerances(messages: Sequence[JointTolerance]) -> list[ToleranceRequest]:
    """Convert the tolerances of a goal."""
    return [
        ToleranceRequest(item.name, item.position, item.velocity, item.acceleration)
        for item in messages
    ]


def fill_point(message: JointTrajectoryPoint, state: ControllerState) -> None:
    """Write a controller state into a trajectory point."""
    message.positions = array.array('d', state.position)
    message.velocities = array.array('d', state.velocity)
    message.accelerations = array.array('d', state.acceleration)


class _Audience:
    """Test for subscribers of a topic, queried every few messages only."""

    def __init__(self, publisher: Any) -> None:
        self._publisher = publisher
        self._count = 0
        self._present = False

    def __bool__(self) -> bool:
        if self._count % _ASK_EVERY == 0:
            self._present = self._publisher.get_subscription_count() > 0
        self._count += 1
        return self._present


class JointStateTopic:
    """Topic `joint_states`."""

    def __init__(self, node: Node, joints: Sequence[str], extra: Sequence[str] = ()) -> None:
        self.publisher = node.create_publisher(JointState, 'joint_states', latched(STREAM_DEPTH))
        self._joints = tuple(joints)
        self._extra = list(extra)
        self._missing: tuple[int, ...] | None = None
        self._kept: list[int] = []
        self._message = JointState()
        self._message.header.frame_id = 'base_link'
        self._views: list[Any] = []

    def publish(self, reading: JointReading, missing: tuple[int, ...]) -> None:
        """Publish a reading, without the joints with the indices `missing`."""
        if missing != self._missing:
            self._arrange(missing)
        set_stamp(self._message.header.stamp, reading.time)
        values = (reading.position, reading.velocity, reading.effort)
        for view, value in zip(self._views, values, strict=True):
            view[:] = value[self._kept] if missing else value
        self.publisher.publish(self._message)

    def _arrange(self, missing: tuple[int, ...]) -> None:
        """Resize the message's arrays and create views of them."""
        self._missing = missing
        self._kept = [index for index in range(len(self._joints)) if index not in missing]
        message = self._message
        message.name = self._extra + [self._joints[index] for index in self._kept]
        message.position = message.velocity = message.effort = [0.0] * len(message.name)
        # The setters copy, so the views must refer to the message's own arrays.
        arrays = (message.position, message.velocity, message.effort)
        self._views = [np.frombuffer(item, dtype=np.float64)[len(self._extra):] for item in arrays]


class GripperTopic:
    """Joint states of another driver, on the topic of the arm's."""

    def __init__(self, node: Node, joints: Sequence[str]) -> None:
        self._publisher = node.create_publisher(JointState, 'joint_states', latched(STREAM_DEPTH))
        zeros = [0.0] * len(joints)
        self._message = JointState(name=list(joints), position=zeros, velocity=zeros, effort=zeros)

    def publish(self, time: float) -> None:
        """Publish zeros for a time [s]."""
        set_stamp(self._message.header.stamp, time)
        self._publisher.publish(self._message)


class WrenchTopic:
    """Topic of one force/torque sensor."""

    def __init__(self, node: Node, topic: str, frame: str) -> None:
        self._publisher = node.create_publisher(WrenchStamped, topic, STREAM_DEPTH)
        self._audience = _Audience(self._publisher)
        self._message = WrenchStamped()
        self._frame = frame

    def publish(self, reading: SensorReading, misframed: bool) -> None:
        """Publish force and torque, under the fault ft_misframed with a wrong frame."""
        if not self._audience:
            return
        self._message.header.frame_id = WRONG_FRAME if misframed else self._frame
        set_stamp(self._message.header.stamp, reading.time)
        force, torque = self._message.wrench.force, self._message.wrench.torque
        force.x, force.y, force.z, torque.x, torque.y, torque.z = reading.values.tolist()
        self._publisher.publish(self._message)


class ImuTopic:
    """Topic of one IMU; its orientation is marked as not available."""

    def __init__(self, node: Node, topic: str, frame: str) -> None:
        self._publisher = node.create_publisher(Imu, topic, STREAM_DEPTH)
        self._audience = _Audience(self._publisher)
        self._message = Imu()
        self._message.header.frame_id = frame
        self._message.orientation_covariance[0] = -1.0

    def publish(self, reading: SensorReading) -> None:
        """Publish specific force and angular velocity."""
        if not self._audience:
            return
        set_stamp(self._message.header.stamp, reading.time)
        linear, angular = self._message.linear_acceleration, self._message.angular_velocity
        linear.x, linear.y, linear.z, angular.x, angular.y, angular.z = reading.values.tolist()
        self._publisher.publish(self._message)


class TrackerTopic:
    """Topics of the laser tracker: point, and pose if it measures orientation."""

    def __init__(self, node: Node, frame: str, orientation: bool) -> None:
        self._publisher = node.create_publisher(PointStamped, 'tracker/point', STREAM_DEPTH)
        self._message = PointStamped()
        self._message.header.frame_id = frame
        self._poses = (node.create_publisher(PoseStamped, 'tracker/pose', STREAM_DEPTH)
                       if orientation else None)
        self._pose = PoseStamped()
        self._pose.header.frame_id = frame

    def publish(self, reading: SensorReading) -> None:
        """Publish the point, and the pose."""
        set_stamp(self._message.header.stamp, reading.time)
        point = self._message.point
        point.x, point.y, point.z, *turn = reading.values.tolist()
        self._publisher.publish(self._message)
        if self._poses is None:
            return
        self._pose.header.stamp = self._message.header.stamp
        self._pose.pose.position = point
        orientation = self._pose.pose.orientation
        orientation.x, orientation.y, orientation.z, orientation.w = turn
        self._poses.publish(self._pose)


class ClockTopic:
    """Topic `/clock`.

    Args:
        node: Node that publishes it.
        period: Least time between two messages [s].

    """

    def __init__(self, node: Node, period: float = CLOCK_PERIOD) -> None:
        self._period = period
        self._publisher = node.create_publisher(Clock, '/clock', 10)
        self._message = Clock()
        self._due = 0.0

    def publish(self, now: float) -> None:
        """Publish the time [s] if due; a jump back is published at once."""
        if self._due - self._period - 1.0e-9 <= now < self._due - 1.0e-9:
            return
        self._due = now + self._period
        set_stamp(self._message.clock, now)
        self._publisher.publish(self._message)


class ControllerStateTopic:
    """Topic `<controller>/controller_state`."""

    def __init__(self, node: Node, controller: str, joints: Sequence[str]) -> None:
        self._publisher = node.create_publisher(
            JointTrajectoryControllerState, f'{controller}/controller_state', 200
        )
        self._audience = _Audience(self._publisher)
        self._message = JointTrajectoryControllerState()
        self._message.header.frame_id = 'base_link'
        self._message.joint_names = list(joints)

    def publish(self, now: float, controller: TrajectoryController) -> None:
        """Publish reference, feedback and error of the controller, if anybody subscribes."""
        if not self._audience:
            return
        message = self._message
        set_stamp(message.header.stamp, now)
        fill_point(message.reference, controller.desired)
        fill_point(message.feedback, controller.measured)
        fill_point(message.error, controller.error)
        message.output.positions = message.reference.positions
        if controller.commands_effort:
            message.output.effort = array.array('d', controller.effort)
        message.speed_scaling_factor = controller.speed_scaling
        self._publisher.publish(message)


class SimArmTopics:
    """All sensor topics of the simulated arm.

    Attributes:
        joint_states: Publisher of the joint states.

    """

    def __init__(self, node: Node, joints: Sequence[str], truth: HiddenTruth) -> None:
        self._joint_states = JointStateTopic(node, joints, truth.extra_joints)
        self._gripper = GripperTopic(node, truth.gripper.joints) if truth.gripper else None
        self.joint_states = self._joint_states.publisher
        self._wrenches = [
            WrenchTopic(node, sensor.topic or f'{sensor.frame}/wrench',
                        sensor.message_frame or sensor.frame)
            for sensor in truth.force_torque_sensors
        ]
        self._imus = [
            ImuTopic(node, sensor.topic or f'{sensor.frame}/imu', sensor.frame)
            for sensor in truth.imus
        ]
        tracker = truth.tracker
        self._tracker = (
            TrackerTopic(node, tracker.frame, tracker.orientation) if tracker else None)

    def publish(
        self, readings: Readings, missing: tuple[int, ...], misframed: tuple[int, ...]
    ) -> None:
        """Publish all readings of a step.

        Args:
            readings: The readings.
            missing: Joints left out of the joint states.
            misframed: Force/torque sensors whose messages name a wrong frame.

        """
        # Sensors first: a joint state arrives after the readings of the same instant.
        for reading in readings.wrenches:
            self._wrenches[reading.index].publish(reading, reading.index in misframed)
        for reading in readings.imus:
            self._imus[reading.index].publish(reading)
        if self._gripper is not None:
            for time in readings.gripper:
                self._gripper.publish(time)
        for joint_reading in readings.joints:
            self._joint_states.publish(joint_reading, missing)
        if self._tracker is not None:
            for reading in readings.tracker:
                self._tracker.publish(reading)


def publish_description(node: Node, urdf: str) -> Any:
    """Publish the robot description; return the publisher, which must be kept alive."""
    publisher = node.create_publisher(String, 'robot_description', latched())
    publisher.publish(String(data=urdf))
    return publisher
