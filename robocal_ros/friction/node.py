# SPDX-License-Identifier: Apache-2.0
"""Node ``friction_identification``: friction of each joint against speed, and its compensation."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from geometry_msgs.msg import Point
from sensor_msgs.msg import JointState, Temperature
from std_msgs.msg import String
from visualization_msgs.msg import Marker, MarkerArray

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, RobocalError
from robocal_ros.friction.estimate import estimate, loaded, merge, summary
from robocal_ros.friction.feed_forward import FrictionFeedForward
from robocal_ros.friction.fit import JointFriction
from robocal_ros.friction.parameters import FrictionParameters
from robocal_ros.friction.plan import FrictionRun, check_given
from robocal_ros.friction.procedure import FrictionProcedure
from robocal_ros.friction.trajectory_set import load_trajectory_set
from robocal_ros.messages import conversions, marks, qos
from robocal_ros.messages.record import within_budget
from robocal_ros.messages.recording import Recording
from robocal_ros.node.executables import Ending
from robocal_ros.node.procedure_node import ProcedureNode
from robocal_ros.node.process import spin
from robocal_ros.results.result import CalibrationResult, Verdict
from robocal_ros.results.store import from_yaml
from robocal_ros.robot.model import Robot


class FrictionIdentification(ProcedureNode):
    """Turns joints at constant speeds, one after the other, and reads what friction takes."""

    kind = 'friction'
    parameter_table = FrictionParameters

    def _configure_method(self) -> None:
        values = self.values
        self.joints.need_effort = True
        for name in values.joint_names:
            self.robot.index(name)
        given = self._load_given()
        self._loaded = self.robot
        self._alternatives: list[Robot] = []
        self._temperatures: list[tuple[float, float]] = []
        self._points_publisher = self._publisher(JointState, '~/points')
        self._curve_publisher = self._publisher(JointState, '~/curve')
        self._method = FrictionProcedure(
            self, self._wanted(given), given, self._load, self._show)
        self._feed_forward = self.stream(FrictionFeedForward(
            self, self.joints, self.robot, controller=values.controller,
            width=values.compensation_width, dead_band=values.compensation_dead_band))
        if values.temperature_topic:
            self.fast_topic(Temperature, values.temperature_topic, self._take_temperature)
        if values.use_payload:
            stored = self.store.load('payload')
            if stored is not None:
                self._carry(stored)
            self.part(self.subscription(
                String, 'payload_identification/result', self._take_payload, qos.LATCHED))
        last_good = self.store.load('friction')
        if last_good is not None:
            self.publish(last_good)

    def _load_given(self) -> list[FrictionRun]:
        if not self.values.trajectory_file:
            return []
        runs = load_trajectory_set(self.values.trajectory_file, self.robot)
        check_given(self.robot, self.limits, runs)
        return runs

    def _wanted(self, given: list[FrictionRun]) -> tuple[str, ...]:
        """Return the joints to measure: those named, else those of the set, else all."""
        in_set = tuple(dict.fromkeys(self.robot.joint_names[run.joint] for run in given))
        names: tuple[str, ...] = self.values.joint_names
        missing = [name for name in names if given and name not in in_set]
        if missing:
            raise ConfigurationError(
                f'The trajectory set has no run of {", ".join(missing)}, which measure_joints '
                f'names; it has runs of {", ".join(in_set)}. Correct one of the two.')
        return names or in_set or self.robot.joint_names

    # --------------------------------------------------------- what other nodes tell

    def _carry(self, payload: CalibrationResult) -> None:
        self._loaded, self._alternatives = loaded(self.robot, payload)
        self._feed_forward.robot = self._loaded

    def _load(self) -> tuple[Robot, list[Robot]]:
        """Return copies, for another thread, of the arm with what it carries or may carry."""
        return self._loaded.copy(), [robot.copy() for robot in self._alternatives]

    def _take_payload(self, message: String) -> None:
        """Count a payload result from the moment it is published."""
        try:
            self._carry(from_yaml(message.data, self.identity, 'payload_identification/result'))
        except RobocalError as error:
            self.get_logger().warning(f'Payload result not used: {error}')

    def _take_temperature(self, message: Temperature) -> None:
        if not np.isfinite(message.temperature):
            return
        if self.joints.recording:
            self._temperatures.append(
                (conversions.seconds(message.header.stamp), message.temperature))
        identified = self._feed_forward.temperature
        if abs(message.temperature - identified) > self.values.temperature_warning:
            self.get_logger().warning(
                f'Friction was identified at {identified:.1f} °C; it is '
                f'{message.temperature:.1f} °C now. Identify it anew.',
                throttle_duration_sec=60.0)

    # ------------------------------------------------------------------- procedure

    def _begin_run(self) -> None:
        """Keep what finished joints recorded, so that a cancelled run goes on where it was."""
        if not self._method.under_way or self.joints.counts.clock_jumps:
            self._clear()

    def _clear(self) -> None:
        super()._clear()
        self._method.clear()
        self._temperatures.clear()

    async def _procedure(self) -> CalibrationResult:
        self._method.lost.clear()
        await self._method.measure()
        return await self.estimate()

    def _show(self, found: JointFriction) -> None:
        """Publish points and curve, for PlotJuggler and RViz."""
        speed = np.array([p.speed for p in found.usable])
        torque = np.array([p.torque for p in found.usable])
        self._points_publisher.publish(self._plot(found.joint, speed, torque))
        if not found.fits:
            return
        fine = np.concatenate([sign * np.geomspace(np.abs(speed).min(), np.abs(speed).max(), 60)
                               for sign in (-1.0, 1.0)])
        fine.sort()
        curve = found.law().torque(fine)
        self._curve_publisher.publish(self._plot(found.joint, fine, curve))
        self.publish_markers(curve_markers(
            self.robot.root_frame, speed, torque, fine, curve, found.joint))
        self.status.note(**{f'{found.joint}: fit degree [%]': f'{found.fit_degree:.2f}'})

    def _plot(self, joint: str, speed: Array, torque: Array) -> JointState:
        message = JointState(name=[joint] * len(speed), velocity=speed.tolist(),
                             effort=torque.tolist())
        message.header.stamp = self.get_clock().now().to_msg()
        return message

    # ------------------------------------------------------------------ estimation

    def _estimate(self) -> Callable[[], CalibrationResult]:
        (robot, alternatives), values = self._load(), self.values
        spans, joints = self.replayed_spans(), self.joints.samples()
        span = spans.of(marks.JOINTS)
        readings = np.array(self._temperatures).reshape(-1, 2)
        # After a run the joints that were measured must be there; in a bag, those that are.
        recording = Recording(
            within_budget(joints.chosen(span.holds(joints.time))),
            temperatures=readings[span.holds(readings[:, 0])],
            joints_wanted=tuple(self._method.finished) or spans.joints_wanted)
        return lambda: estimate(robot, recording, values, alternatives)

    def _mark_words(self) -> dict[str, str]:
        return {marks.WANTED: ','.join(self._method.finished)}

    def keep(self, result: CalibrationResult) -> None:
        """Save; joints that passed count even where others failed, and keep what others had."""
        if result.verdict is not Verdict.PASS:
            self.store.save(result)
        vouched = merge(self.store.load('friction'), result)
        if vouched is not None and vouched.verdict is Verdict.PASS:
            super().keep(vouched)

    def _publish_details(self, result: CalibrationResult) -> None:
        self._feed_forward.use(result)

    def _summary(self, result: CalibrationResult) -> str:
        return summary(result)

    def _verdict_sentence(self, result: CalibrationResult) -> str:
        sentence = self._summary(result) if result.verdict is Verdict.PASS else (
            f'Verdict {result.verdict.value}: {" ".join(result.reasons)} Joints that passed are '
            'filed; the others keep their last good numbers.')
        lost = self._method.lost
        return f'{sentence} {len(lost)} things went wrong; the first: {lost[0]}' if lost else (
            sentence)


def curve_markers(
    frame: str, speed: Array, torque: Array, fine: Array, curve: Array, joint: str
) -> MarkerArray:
    """Return measured points and a curve as a drawing above the robot's base.

    One metre across is the range of speeds, half a metre up the range of torques.

    Args:
        frame: Frame of the drawing.
        speed: Measured speeds, shape (k,) [rad/s].
        torque: Measured torques, shape (k,) [N·m].
        fine: Speeds of the curve, shape (m,) [rad/s].
        curve: Its torques, shape (m,) [N·m].
        joint: Name of the joint, for the caption.

    """
    across, up = float(np.abs(fine).max()), float(np.abs(curve).max())

    def marker(name: str, kind: int, colour: tuple[float, float, float, float]) -> Marker:
        made = Marker(ns=name, id=0, type=kind, action=Marker.ADD)
        made.header.frame_id = frame
        made.pose.position.z = 1.8
        made.pose.orientation.w = 1.0
        made.color.r, made.color.g, made.color.b, made.color.a = colour
        return made

    def points(x: Array, y: Array) -> list[Point]:
        return [Point(x=0.0, y=float(-0.5 * a / across), z=float(0.25 * b / up))
                for a, b in zip(x, y, strict=True)]

    measured = marker('friction_points', Marker.SPHERE_LIST, (0.95, 0.45, 0.1, 1.0))
    measured.scale.x = measured.scale.y = measured.scale.z = 0.015
    measured.points = points(speed, torque)
    fitted = marker('friction_curve', Marker.LINE_STRIP, (0.2, 0.5, 0.95, 1.0))
    fitted.scale.x = 0.006
    fitted.points = points(fine, curve)
    axes = marker('friction_axes', Marker.LINE_LIST, (0.6, 0.6, 0.6, 1.0))
    axes.scale.x = 0.003
    axes.points = [Point(y=-0.5), Point(y=0.5), Point(z=-0.25), Point(z=0.25)]
    caption = marker('friction_caption', Marker.TEXT_VIEW_FACING, (0.9, 0.9, 0.9, 1.0))
    caption.pose.position.z = 2.15
    caption.scale.z = 0.06
    caption.text = f'{joint}: ±{across:.3g} rad/s, ±{up:.3g} N·m'
    return MarkerArray(markers=[measured, fitted, axes, caption])


def main(ending: Ending | None = None) -> int:
    """Run the node; returns the exit code."""
    return spin(lambda: FrictionIdentification('friction_identification'), ending or Ending())


if __name__ == '__main__':
    sys.exit(main())
