# SPDX-License-Identifier: Apache-2.0
"""Node ``friction_identification``: friction of each joint against speed, and its compensation."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from visualization_msgs.msg import Marker, MarkerArray

from robocal_ros.arm import PreviewArm, PreviewRecorder
from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError
from robocal_ros.friction.estimator import FRICTION, loaded, merge, needs, summary
from robocal_ros.friction.feed_forward import FrictionFeedForward
from robocal_ros.friction.fit import FrictionFit
from robocal_ros.friction.parameters import FrictionParameters
from robocal_ros.friction.plan import FrictionRun, load_trajectory_set
from robocal_ros.friction.procedure import FrictionProcedure, KeptJoints
from robocal_ros.messages import conversions, marks, temperature_stream
from robocal_ros.node import Answer, ArmNode, Journal, StopRequest, spin
from robocal_ros.results import CalibrationResult, Verdict, to_yaml
from robocal_ros.robot import Robot, check_effort_unit, other_efforts

# Difference from the temperature of the identification that calls for a new one: viscous friction
# of greased gears changes by about a fifth [K].
_TEMPERATURE_CHANGE = 10.0


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
            self, self.group, values.temperature_topic, self._take_temperature)
        ) if values.temperature_topic else None
        self.make_recorder('friction', KeptJoints, temperature=temperature)
        self._result_topic = self.publisher(String, '~/result')
        self._points_topic = self.publisher(JointState, '~/points')
        self._curve_topic = self.publisher(JointState, '~/curve')
        given = [] if not values.trajectory_file else load_trajectory_set(
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

    def _wanted(self, given: list[FrictionRun]) -> tuple[str, ...]:
        """Return the joints to measure: the named ones, those of the set, or all."""
        names = self.values.joint_names
        in_set = tuple(dict.fromkeys(self.robot.joint_names[run.joint] for run in given))
        missing = [name for name in names if given and name not in in_set]
        if missing:
            raise ConfigurationError(
                f'The trajectory set has no run of {", ".join(missing)}, which measure_joints '
                f'names; it has runs of {", ".join(in_set)}. Correct either of them.')
        return names or in_set or self.robot.joint_names

    # ------------------------------------------------- payload and temperature

    def _use_arm(self, known: Robot, payload: CalibrationResult | None) -> None:
        self._loaded = loaded(known, payload)
        self._feed_forward.use_robot(self._loaded[0])

    def _load(self) -> tuple[Robot, list[Robot]]:
        """Return copies, for another thread, of the arm with the payload and its alternatives."""
        robot, alternatives = self._loaded
        return robot.copy(), [other.copy() for other in alternatives]

    def _take_temperature(self, temperature: float) -> None:
        self._feed_forward.warm(temperature)
        identified = self._feed_forward.temperature
        if abs(temperature - identified) > _TEMPERATURE_CHANGE:
            self.get_logger().warning(
                f'Friction was identified at {identified:.1f} °C; it is '
                f'{temperature:.1f} °C now. Identify it again.',
                throttle_duration_sec=60.0)

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
            needs(values), words={marks.WANTED: ','.join(measured)})
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
        self._result_topic.publish(String(data=to_yaml(result)))
        self._feed_forward.use(result)

    def _show(self, found: FrictionFit) -> None:
        """Publish points and curve for PlotJuggler and RViz."""
        speed = np.array([p.speed for p in found.usable])
        torque = np.array([p.torque for p in found.usable])
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

    def marker(
        name: str, kind: int, size: float, colour: tuple[float, float, float, float],
        at: Iterable[Sequence[float] | Array] = (), height: float = 1.8,
    ) -> Marker:
        return conversions.to_marker(
            frame, name, kind, colour, (size,) * 3, points=at, position=(0.0, 0.0, height))

    caption = marker('friction_caption', Marker.TEXT_VIEW_FACING, 0.06, (0.9, 0.9, 0.9, 1.0),
                     height=2.15)
    caption.text = f'{joint}: ±{across:.3g} rad/s, ±{up:.3g} N·m'
    return MarkerArray(markers=[
        marker('friction_points', Marker.SPHERE_LIST, 0.015, (0.95, 0.45, 0.1, 1.0),
               points(speed, torque)),
        marker('friction_curve', Marker.LINE_STRIP, 0.006, (0.2, 0.5, 0.95, 1.0),
               points(fine, curve)),
        marker('friction_axes', Marker.LINE_LIST, 0.003, (0.6, 0.6, 0.6, 1.0),
               [(0.0, -0.5, 0.0), (0.0, 0.5, 0.0), (0.0, 0.0, -0.25), (0.0, 0.0, 0.25)]),
        caption])


def main(stop_request: StopRequest | None = None) -> int:
    """Run the node; returns the exit code."""
    return spin(lambda: FrictionIdentification(FrictionIdentification.capability), stop_request)


if __name__ == '__main__':
    sys.exit(main())
