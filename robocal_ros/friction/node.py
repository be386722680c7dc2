# SPDX-License-Identifier: Apache-2.0
"""Node ``friction_identification``: friction of each joint against speed, and its compensation.

The compensation is ``~/compensation``, efforts for ``~/trajectory_in``, and tracking.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import replace
from functools import partial

import numpy as np
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from visualization_msgs.msg import Marker, MarkerArray

from robocal_ros.arm import PreviewArm, PreviewRecorder
from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.friction.estimator import (
    FRICTION,
    friction_temperature,
    known_arm,
    loaded,
    merge,
    summary,
)
from robocal_ros.friction.fit import FrictionFit
from robocal_ros.friction.model import Compensator, feed_forward
from robocal_ros.friction.parameters import FrictionParameters
from robocal_ros.friction.plan import load_trajectory_set
from robocal_ros.friction.procedure import FrictionProcedure, KeptJoints
from robocal_ros.friction.track import FrictionTracker, tracked_result
from robocal_ros.messages import conversions, marks, qos, temperature_stream
from robocal_ros.node import Answer, ArmNode, Journal, spin
from robocal_ros.results import CalibrationResult, Verdict, to_yaml
from robocal_ros.robot import (
    DIRECTIONS,
    ArmFriction,
    ArmModel,
    Robot,
    Trajectory,
    check_effort_unit,
    friction_by_joint,
    other_efforts,
)

# Difference from the temperature of the identification that calls for a new one: viscous friction
# of greased gears changes by about a fifth [K].
_TEMPERATURE_CHANGE = 10.0
# Largest time between two points of a trajectory with effort [s].
_KNOT_PERIOD = 0.01
# A reference velocity older than this is not used [s].
_REFERENCE_AGE = 0.1
# Time between two updates of the laws by tracking [s].
_REPORT_PERIOD = 1.0


class FrictionIdentification(ArmNode):
    """Runs joints at constant speeds, one after the other, and identifies their friction."""

    capability = 'friction_identification'
    parameter_table = FrictionParameters
    verbs = (*ArmNode.verbs, 'track')
    values: FrictionParameters
    journal: Journal[KeptJoints]

    def check(self, values: FrictionParameters) -> None:
        """Refuse joints that the arm does not have."""
        for name in values.joint_names:
            self.robot.index(name)

    def build(self) -> None:
        """Create streams, arm, recorder and compensation, and use the stored result."""
        values = self.values
        self.make_arm(lambda: self._feed_forward.subscribed)
        self.joints.need_effort = True
        temperature = self.stream(temperature_stream(
            self, self.group, values.temperature_topic,
            lambda value: self._feed_forward.warm(value))
        ) if values.temperature_topic else None
        self.make_recorder('friction', KeptJoints, temperature=temperature)
        self._points_topic = self.publisher(JointState, '~/points')
        self._curve_topic = self.publisher(JointState, '~/curve')
        given = {} if not values.trajectory_file else load_trajectory_set(
            values.trajectory_file, self.robot, self.arm.limits)
        self._method = FrictionProcedure(
            self.arm, self.recorder, self.status, self._wanted(given), given, self._load,
            self._show, self.journal.keep)
        self._feed_forward = FrictionFeedForward(self)
        self.follow_load(self._use_arm, payload=values.use_payload)
        if last_good := self.store.load('friction'):
            if text := other_efforts(self.robot, values, last_good):
                self.get_logger().warning(text)
            else:
                self._publish(last_good)

    def _wanted(self, given: Collection[str]) -> tuple[str, ...]:
        """Return the joints to measure: the named ones, those of the set, or all."""
        names = self.values.joint_names
        if missing := [name for name in names if given and name not in given]:
            raise ConfigurationError(
                f'The trajectory set has no run of {", ".join(missing)}, which measure_joints '
                f'names; it has runs of {", ".join(given)}. Correct either of them.')
        return names or tuple(given) or self.robot.joint_names

    def _use_arm(self, known: Robot, payload: CalibrationResult | None) -> None:
        self._feed_forward.use_robot(loaded(known, payload)[0])

    def _load(self) -> tuple[Robot, list[Robot], ArmModel]:
        """Return what is known of the arm, as by ``known_arm``, for another thread."""
        return known_arm(self.robot.copy(), self.values, FRICTION.inputs(
            self.robot, self.values, self.results.current))

    # -------------------------------------------------------------------- services

    async def run(self) -> Answer:
        """Measure the joints, or the rest of them after a cancelled or killed run; estimate."""
        inputs = FRICTION.inputs(self.robot, self.values, self.results.current)
        check_effort_unit(self.values, inputs.gains)
        await self.arm.connect()
        if not self._method.under_way or self.joints.counts.clock_jumps:
            kept = await self.journal.resume()
            if kept is None:
                self._discard()
            else:
                self._method.resume(kept)
        await self._method.measure(self.values)
        return await self.journal.ended_by(self.estimate)

    async def rehearse(self, arm: PreviewArm) -> str:
        """Carry out the first round of each joint in a dry run."""
        await replace(self._method, arm=arm, recorder=PreviewRecorder(self.joints),
                      problems=[]).rehearse(self.values)
        return 'First round of each joint; further ones depend on what is measured:'

    async def estimate(self) -> Answer:
        """Estimate friction from the recording."""
        robot, values = self.robot.copy(), self.values
        inputs = FRICTION.inputs(robot, values, self.results.current)
        measured = self._method.measured
        recording = self.recorder.recording(
            FRICTION.needs(values), words={marks.WANTED: ','.join(measured)})
        # After a run, all measured joints are expected; in a bag, those it names.
        recording = replace(recording, joints_wanted=measured or recording.joints_wanted)
        result = await self.compute(lambda: FRICTION.result(robot, recording, values, inputs))
        return self._save(result)

    async def track(self) -> str:
        """Switch tracking of friction on or off."""
        feed_forward = self._feed_forward
        feed_forward.track(on=not feed_forward.tracking)
        return ('Friction is updated from joint states from now on; see ~/tracked.'
                if feed_forward.tracking else
                'Friction is no longer updated; the identified laws are in use.')

    async def clear(self) -> str:
        """Discard the recording."""
        self.journal.forget()
        return f'{self._discard()} samples discarded.'

    def _discard(self) -> int:
        """Discard recording and finished joints; return the number of samples."""
        self._method.clear()
        return self.recorder.clear()

    def _save(self, result: CalibrationResult) -> Answer:
        """Save the result; joints that failed keep their older parameters."""
        passed = result.verdict is Verdict.PASS
        if not passed:
            self.store.save(result)
        merged = merge(self.store.load('friction'), result)
        if merged is not None and merged.verdict is Verdict.PASS:
            self.store.save(merged)
            self._publish(merged)
        sentence = summary(result) if passed else (
            f'Verdict {result.verdict.value}: {" ".join(result.reasons)} Joints that passed are '
            'stored; the others keep their last accepted parameters.')
        if problems := self._method.problems:
            sentence += f' {len(problems)} problems occurred; the first: {problems[0]}'
        return Answer(passed, sentence)

    def _publish(self, result: CalibrationResult) -> None:
        """Publish an accepted result, and use it for the compensation."""
        self.publish_result(result)
        self._feed_forward.use(result)

    def _show(self, found: FrictionFit) -> None:
        """Publish points and curve for PlotJuggler and RViz."""
        speed, torque = np.array([(p.speed, p.torque) for p in found.usable]).reshape(-1, 2).T
        self._points_topic.publish(self._plot(found.joint, speed, torque))
        if found.choice is None or found.missing:
            return
        side = np.geomspace(np.abs(speed).min(), np.abs(speed).max(), 60)
        fine = np.concatenate((-side[::-1], side))
        curve = found.law().torque(fine)
        self._curve_topic.publish(self._plot(found.joint, fine, curve))
        plot = curve_markers(self.robot.root_frame, speed, torque, fine, curve, found.joint)
        plot.markers[-1].text = self.robot.in_own_units(plot.markers[-1].text)
        self.publish_markers(plot)
        self.status.note(**{f'{found.joint}: fit degree [%]': f'{found.fit_degree:.2f}'})

    def _plot(self, joint: str, speed: Array, torque: Array) -> JointState:
        message = JointState(name=[joint] * len(speed), velocity=speed.tolist(),
                             effort=torque.tolist())
        message.header.stamp = self.get_clock().now().to_msg()
        return message


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
        if abs(temperature - self.temperature) > _TEMPERATURE_CHANGE:
            self._node.get_logger().warning(
                f'Friction was identified at {self.temperature:.1f} °C; it is '
                f'{temperature:.1f} °C now. Identify it again.', throttle_duration_sec=60.0)

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


def curve_markers(
    frame: str, speed: Array, torque: Array, fine: Array, curve: Array, joint: str
) -> MarkerArray:
    """Return a plot of measured points and fitted curve above the robot's base.

    The range of speeds is 1 m wide, the range of torques 0.5 m high.

    Args:
        frame: Frame of the plot.
        speed: Measured speeds, shape (k,) [rad/s].
        torque: Measured torques, shape (k,) [N·m].
        fine: Speeds of the curve, shape (m,) [rad/s].
        curve: Its torques, shape (m,) [N·m].
        joint: Name of the joint, for the caption.

    """
    across, up = float(np.abs(fine).max()), float(np.abs(curve).max())

    def points(x: Array, y: Array) -> Array:
        return np.column_stack((np.zeros(len(x)), -0.5 * x / across, 0.25 * y / up))

    axes = np.array([(0.0, -0.5, 0.0), (0.0, 0.5, 0.0), (0.0, 0.0, -0.25), (0.0, 0.0, 0.25)])
    markers = [
        conversions.to_marker(frame, f'friction_{name}', kind, (*colour, 1.0), (size,) * 3,
                              points=at, position=(0.0, 0.0, height))
        for name, kind, size, colour, at, height in (
            ('points', Marker.SPHERE_LIST, 0.015, (0.95, 0.45, 0.1), points(speed, torque), 1.8),
            ('curve', Marker.LINE_STRIP, 0.006, (0.2, 0.5, 0.95), points(fine, curve), 1.8),
            ('axes', Marker.LINE_LIST, 0.003, (0.6, 0.6, 0.6), axes, 1.8),
            ('caption', Marker.TEXT_VIEW_FACING, 0.06, (0.9, 0.9, 0.9), axes[:0], 2.15))]
    markers[-1].text = f'{joint}: ±{across:.3g} rad/s, ±{up:.3g} N·m'
    return MarkerArray(markers=markers)


main = partial(spin, FrictionIdentification)
"""Run the node; returns the exit code."""


if __name__ == '__main__':
    sys.exit(main())
