# SPDX-License-Identifier: Apache-2.0
"""Friction compensation: ``~/compensation``, efforts for ``~/trajectory_in``, and tracking."""

from __future__ import annotations

import numpy as np
from sensor_msgs.msg import JointState
from std_msgs.msg import String

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.friction.estimator import friction_temperature
from robocal_ros.friction.model import Compensator, feed_forward
from robocal_ros.friction.track import FrictionTracker, tracked_result
from robocal_ros.messages import conversions, qos
from robocal_ros.node import ArmNode
from robocal_ros.results import CalibrationResult, to_yaml
from robocal_ros.robot import DIRECTIONS, ArmFriction, Robot, Trajectory, friction_by_joint

# Largest time between two points of a trajectory with effort [s].
_KNOT_PERIOD = 0.01
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

    def __init__(self, node: ArmNode) -> None:
        """Create the topics; nothing is published before the first result."""
        self.robot = node.robot
        self.temperature = self.newest_temperature = float('nan')
        self._node = node
        self._compensator = Compensator(
            ArmFriction({}, self.robot.joint_names), width=node.values.compensation_width,
            dead_band=node.values.compensation_dead_band)
        self._result: CalibrationResult | None = None
        self._tracker: FrictionTracker | None = None
        self._reported = -np.inf
        self._tracked = node.publisher(String, '~/tracked')
        self._message = JointState(name=list(self.robot.joint_names))
        self._compensation = node.publisher(JointState, '~/compensation', qos.RELIABLE)
        node.filter_trajectories(self._filled, _KNOT_PERIOD)
        node.joints.listen(self._on_state, lambda: self.tracking or self.subscribed)

    def use(self, result: CalibrationResult) -> None:
        """Replace the friction result in use."""
        self._result, self.temperature = result, friction_temperature(result)
        self.track(on=self.tracking or self._node.values.track)

    def warm(self, temperature: float) -> None:
        """Use the friction of a temperature [°C] from now on; tracking does so by itself."""
        self.newest_temperature = temperature
        if self._result is not None and self._tracker is None:
            self._use_laws(self._result, temperature)

    def _use_laws(self, result: CalibrationResult, temperature: float = np.nan) -> None:
        self._compensator.friction = ArmFriction(
            friction_by_joint(result, temperature), self.robot.joint_names)

    def use_robot(self, robot: Robot) -> None:
        """Replace the arm with its payload."""
        self.robot = robot
        if self._tracker is not None:
            self._tracker.use(robot)

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
        values = self._node.values
        self._use_laws(self._result, np.nan if on else self.newest_temperature)
        self._tracker = FrictionTracker(
            self.robot, friction_by_joint(self._result), drift=values.track_drift,
            model_std=values.arm_model_std, tilt_std=values.tilt_std, since=self._result.time,
            temperature=self.temperature,
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
        self._use_laws(tracked)
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

    def _on_state(self, stamp: float, position: Array, velocity: Array, effort: Array) -> None:
        """Publish the friction torque for one joint state."""
        if self._node.is_active:
            self._follow(stamp, position, effort)
        if self._result is None or not self._node.is_active or not self.subscribed:
            return
        controller = self._node.arm.client.controller
        controller.look(every=True)
        reference = controller.commanded_velocity
        commanded = abs(stamp - controller.stamp) < _REFERENCE_AGE and (
            bool(np.isfinite(reference).all()))
        speed = reference if commanded else velocity
        acceleration = controller.commanded_acceleration
        if not (commanded and np.isfinite(acceleration).all()):
            acceleration = np.zeros_like(speed)
        load = self.robot.inverse_dynamics(position, speed, acceleration)
        self._message.header.stamp = conversions.to_stamp(stamp)
        self._message.velocity = speed.tolist()
        self._message.effort = self._compensator.torque(
            stamp, speed, load, measured=not commanded).tolist()
        self._compensation.publish(self._message)

    def _filled(self, trajectory: Trajectory) -> dict[str, Array]:
        """Return the effort of a trajectory."""
        warn, rigid = self._node.get_logger().warning, self._node.values.rigid_feed_forward
        if self._result is None:
            warn('No friction result is available: the effort of this trajectory '
                 f'{"contains gravity and inertia only" if rigid else "is zero"}.')
        controller = self._node.arm.client.controller
        controller.look()
        if controller.commands_effort is False:
            warn('The controller commands no effort, so it refuses ~/trajectory_out. Add effort '
                 'to its command_interfaces (config/controllers.yaml shows how), or add '
                 '~/compensation to the torques where the drives accept them.')
        return {'effort': feed_forward(
            self.robot, self._compensator.friction, trajectory, rigid=rigid)}
