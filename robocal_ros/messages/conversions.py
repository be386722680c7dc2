# SPDX-License-Identifier: Apache-2.0
"""Conversions between arrays and the messages of ROS that nodes send.

Quaternions of ROS are (x, y, z, w). ``tf_transformations`` comes with ROS distributions and is a
layer over ``transforms3d``; where it is not installed, ``transforms3d`` serves in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import scipy
from builtin_interfaces.msg import Duration, Time
from control_msgs.action import FollowJointTrajectory
from control_msgs.msg import JointTolerance
from geometry_msgs.msg import InertiaStamped, Point, Quaternion, WrenchStamped
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint
from visualization_msgs.msg import Marker

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.messages.checks import SECOND, from_seconds, to_seconds
from robocal_ros.results import CalibrationResult
from robocal_ros.robot import Trajectory

try:
    from tf_transformations import quaternion_from_matrix
except ImportError:
    from transforms3d.quaternions import mat2quat

    def quaternion_from_matrix(matrix: Array) -> Array:
        """Return the quaternion (x, y, z, w) of a homogeneous transform's rotation."""
        return np.roll(mat2quat(matrix[:3, :3]), -1)


def quaternion(rotation: Array) -> Array:
    """Return a rotation matrix as a unit quaternion (x, y, z, w), w not negative, shape (4,)."""
    transform = np.eye(4)
    transform[:3, :3] = rotation
    found = np.asarray(quaternion_from_matrix(transform), dtype=float)
    return found if found[3] >= 0.0 else -found


def fill_message(message: Quaternion, rotation: Array) -> None:
    """Write a rotation matrix into a message."""
    message.x, message.y, message.z, message.w = (float(value) for value in quaternion(rotation))


# Seconds are 32-bit integers with a sign.
_LONGEST = 2.0**31 - 1.0


def seconds(stamp: Time) -> float:
    """Return a stamp in seconds [s]."""
    return to_seconds(SECOND * stamp.sec + stamp.nanosec)


def to_stamp(time: float) -> Time:
    """Return seconds as a stamp; raises DataError for times that fit none."""
    return Time(**_parts(time))


def to_duration(time: float) -> Duration:
    """Return seconds as a duration; raises DataError for times that fit none."""
    return Duration(**_parts(time))


def _parts(time: float) -> dict[str, int]:
    if not abs(time) < _LONGEST:
        raise DataError(
            f'{time:g} s is no time that a ROS message can hold; expected less than '
            f'{_LONGEST:.0f} s. Correct the file or the message that it comes from.')
    return dict(zip(('sec', 'nanosec'), divmod(from_seconds(time), SECOND), strict=True))


def to_joint_trajectory(
    trajectory: Trajectory, joint_names: Sequence[str], begin: float = 0.0
) -> JointTrajectory:
    """Return a trajectory as the message of its knots; stamp 0 means: start on arrival.

    Args:
        trajectory: The motion.
        joint_names: Names of its joints.
        begin: Time of the first knot [s].

    """
    accelerations = ([[]] * len(trajectory.time) if trajectory.acceleration is None
                     else trajectory.acceleration.tolist())
    return JointTrajectory(joint_names=list(joint_names), points=[
        JointTrajectoryPoint(time_from_start=to_duration(begin + time), positions=position,
                             velocities=velocity, accelerations=acceleration)
        for time, position, velocity, acceleration in zip(
            trajectory.time.tolist(), trajectory.position.tolist(), trajectory.velocity.tolist(),
            accelerations, strict=True)])


def from_joint_trajectory(
    message: JointTrajectory, joint_names: Sequence[str]
) -> tuple[Trajectory, list[int]]:
    """Return a trajectory message as a trajectory of the arm's joints.

    Missing velocities are taken from a cubic spline through the positions, at rest at its ends.

    Args:
        message: The message.
        joint_names: Names of the arm's joints.

    Returns:
        The trajectory, its time starting at zero, and the arm's columns in the message.

    Raises:
        DataError: If joints are missing or points are not usable.

    """
    names = list(message.joint_names)
    missing = [name for name in joint_names if name not in names]
    if missing or len(message.points) < 2:
        raise DataError(
            f'Expected at least two points for {", ".join(joint_names)}; got '
            f'{len(message.points)} for {", ".join(names) or "no joints"}.')
    order = [names.index(name) for name in joint_names]
    columns = {}
    for what in ('positions', 'velocities', 'accelerations'):
        rows = [getattr(point, what) for point in message.points]
        lengths = {len(row) for row in rows}
        if lengths == {len(names)}:
            columns[what] = np.array(rows, dtype=float)[:, order]
        elif lengths != {0} or what == 'positions':
            raise DataError(f'Points must all have {len(names)} {what}, one per joint.')
    time = np.array([seconds(point.time_from_start) for point in message.points])
    if (np.diff(time) <= 0.0).any():
        raise DataError('Times of the points must increase.')
    if 'velocities' not in columns:
        columns['velocities'] = scipy.interpolate.CubicSpline(
            time, columns['positions'], bc_type='clamped')(time, 1)
    return Trajectory(time - time[0], columns['positions'], columns['velocities'],
                      columns.get('accelerations')), order


def with_knots(message: JointTrajectory, period: float) -> JointTrajectory:
    """Return the same motion with knots at most ``period`` [s] apart.

    Efforts are interpolated linearly by controllers, so that friction needs more knots than the
    motion. Positions without velocities stay as they are: their motion is the controller's choice.

    Raises:
        DataError: As for ``from_joint_trajectory``.

    """
    motion, _ = from_joint_trajectory(message, message.joint_names)
    if not len(message.points[0].velocities):
        return message
    time = np.unique(np.concatenate([
        np.linspace(begin, end, max(1, int(np.ceil((end - begin) / period - 1e-6))) + 1)
        for begin, end in zip(motion.time[:-1], motion.time[1:], strict=True)]))
    position, velocity, acceleration = motion.sample(time)
    finer = to_joint_trajectory(
        Trajectory(time, position, velocity,
                   None if motion.acceleration is None else acceleration),
        message.joint_names, seconds(message.points[0].time_from_start))
    finer.header = message.header
    return finer


def to_goal(
    trajectory: Trajectory, joint_names: Sequence[str], path_tolerance: float,
    goal_tolerance: float, goal_time: float,
) -> FollowJointTrajectory.Goal:
    """Return a trajectory as a goal with tolerances for every joint.

    Args:
        trajectory: The motion.
        joint_names: The controller's joints, in the trajectory's order.
        path_tolerance: Largest deviation on the way [rad].
        goal_tolerance: Largest deviation at the end [rad].
        goal_time: Time past the end within which the goal must be met [s].

    """
    on_path, at_goal = ([JointTolerance(name=name, position=size) for name in joint_names]
                        for size in (path_tolerance, goal_tolerance))
    return FollowJointTrajectory.Goal(
        trajectory=to_joint_trajectory(trajectory, joint_names), path_tolerance=on_path,
        goal_tolerance=at_goal, goal_time_tolerance=to_duration(goal_time))


def wrench_row(message: WrenchStamped) -> tuple[float, ...]:
    """Return a wrench message as force, then torque [N, N·m]."""
    force, torque = message.wrench.force, message.wrench.torque
    return force.x, force.y, force.z, torque.x, torque.y, torque.z


def to_point(xyz: Sequence[float] | Array) -> Point:
    """Return three coordinates as a message."""
    x, y, z = (float(value) for value in xyz)
    return Point(x=x, y=y, z=z)


def to_marker(
    frame: str, name: str, kind: int, colour: Sequence[float], size: Sequence[float], *,
    number: int = 0, points: Iterable[Sequence[float] | Array] = (),
    position: Sequence[float] | Array = (0.0, 0.0, 0.0),
) -> Marker:
    """Return a marker that is to be drawn, not turned.

    Args:
        frame: Frame of its coordinates.
        name: Its namespace.
        kind: Type of the marker, as ``Marker.ARROW``.
        colour: Red, green, blue and opacity, 0 to 1.
        size: Its scale along x, y, z; what is left out is 0 [m].
        number: Distinguishes markers of one namespace.
        points: Its points [m].
        position: Its position [m].

    """
    marker = Marker(ns=name, id=number, type=kind, action=Marker.ADD,
                    points=[to_point(xyz) for xyz in points])
    marker.header.frame_id = frame
    marker.pose.position = to_point(position)
    marker.pose.orientation.w = 1.0
    marker.scale.x, marker.scale.y, marker.scale.z = (*size, 0.0, 0.0)[:3]
    marker.color.r, marker.color.g, marker.color.b, marker.color.a = colour
    return marker


def to_inertia(result: CalibrationResult) -> InertiaStamped:
    """Return a payload result as an inertia message in its tool frame.

    What was not identified is NaN: a zero would look like a value.
    """
    message = InertiaStamped()
    message.header.frame_id = result.frame
    message.header.stamp = to_stamp(result.time)
    values = {p.name: float('nan') if p.value is None else p.value for p in result.parameters}
    message.inertia.m = values['mass']
    for axis in 'xyz':
        setattr(message.inertia.com, axis, values[f'com_{axis}'])
    for axes in ('xx', 'xy', 'xz', 'yy', 'yz', 'zz'):
        setattr(message.inertia, f'i{axes}', values[f'inertia_{axes}'])
    return message
