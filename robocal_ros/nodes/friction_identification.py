# SPDX-License-Identifier: Apache-2.0
"""Node ``friction_identification``: friction of each joint against speed, and its compensation."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from sensor_msgs.msg import JointState, Temperature
from std_msgs.msg import String

from robocal_ros.core.arrays import Array
from robocal_ros.core.friction.estimate import (
    FrictionSettings,
    JointFriction,
    estimate,
    estimate_joint,
    merge,
)
from robocal_ros.core.friction.fit import MODELS
from robocal_ros.core.friction.planning import (
    FrictionRun,
    SpeedPlan,
    check_given,
    plan_runs,
    weak_speeds,
)
from robocal_ros.core.friction.runs import find_runs, read_run
from robocal_ros.core.payload.load import carried_load
from robocal_ros.core.result import CalibrationResult, Verdict
from robocal_ros.core.robot import Robot
from robocal_ros.errors import RobocalError
from robocal_ros.io.result_yaml import from_yaml
from robocal_ros.io.trajectory_set import load_trajectory_set
from robocal_ros.ros import markers, qos
from robocal_ros.ros.arm_client import MotionStatus
from robocal_ros.ros.feed_forward import FrictionFeedForward
from robocal_ros.ros.lifecycle import spin
from robocal_ros.ros.parameters import named, parameter
from robocal_ros.ros.procedure import ProcedureNode, ProcedureParameters

_REST = 0.3
# After these the arm is where it was and the next run may still succeed.
_RUN_ALONE = (MotionStatus.ABORTED, MotionStatus.NOT_AT_GOAL, MotionStatus.REJECTED)


@dataclass(frozen=True)
class FrictionParameters(ProcedureParameters):
    """Parameters of friction identification."""

    measure_joints: list[str] = parameter(
        [''], "Joints to identify, in this order; [''] for all of the arm's.")
    speeds: list[float] = parameter(
        [0.0], 'Speeds to run, each in both directions; [0.0] plans them from the limits: '
        'log-spaced from min_speed to max_speed, so denser near zero.', unit='rad/s',
        minimum=0.0, maximum=10.0)
    min_speed: float = parameter(
        0.005, 'Slowest planned speed.', unit='rad/s', minimum=0.001, maximum=1.0)
    max_speed: float = parameter(
        0.6, 'Fastest planned speed; half the joint limit if that is less.', unit='rad/s',
        minimum=0.01, maximum=10.0)
    speed_count: int = parameter(
        10, 'Number of planned speeds in each direction.', minimum=3, maximum=100)
    max_range: float = parameter(
        1.6, 'Widest range of joint angle that is used about the start posture.', unit='rad',
        minimum=0.05, maximum=6.3)
    max_cruise: float = parameter(
        20.0, 'Longest time at constant speed.', unit='s', minimum=1.0, maximum=600.0)
    trajectory_file: str = parameter(
        '', 'YAML file with a trajectory set of your own; empty plans one.')
    model: str = parameter(
        'auto', 'Friction model; auto chooses by information criterion among those that the '
        'data can tell.', choices=('auto', *MODELS))
    fit_threshold: float = parameter(
        5.0, 'Largest fit degree that passes: 100 sqrt(Σ(f-f̂)²/Σf²).', unit='%', minimum=0.01,
        maximum=100.0)
    max_rounds: int = parameter(
        2, 'Most rounds of runs for a joint before it fails.', minimum=1, maximum=20)
    use_payload: bool = parameter(
        True, 'Count the identified payload in the gravity torque, when there is a result.')
    temperature_topic: str = parameter(
        '', 'sensor_msgs/Temperature to file with the result; empty for none.')
    temperature_warning: float = parameter(
        10.0, 'Warn when the temperature is this far from that of the identification.',
        unit='K', minimum=0.1, maximum=200.0)
    compensation_width: float = parameter(
        0.002, 'Speed over which the compensation rises from zero to full friction.',
        unit='rad/s', minimum=1e-5, maximum=1.0)
    compensation_dead_band: float = parameter(
        0.01, 'Measured speeds below this count as standstill in the compensation.',
        unit='rad/s', minimum=0.0, maximum=1.0)


class FrictionIdentification(ProcedureNode):
    """Turns joints at constant speeds, one after the other, and reads what friction takes."""

    kind = 'friction'
    parameter_table = FrictionParameters

    def _configure_method(self) -> None:
        values = self.values
        self.joints.need_effort = True
        self._wanted = named(values.measure_joints) or self.robot.joint_names
        self._settings = FrictionSettings(model=values.model, fit_threshold=values.fit_threshold)
        replace(self._settings, joints=self._wanted).check(self.robot)
        self._plan = SpeedPlan(
            min_speed=values.min_speed, max_speed=values.max_speed, count=values.speed_count,
            max_range=values.max_range, max_duration=values.max_cruise,
            acceleration=values.max_acceleration)
        self._plan.check()
        self._given = self._load_given()
        self._loaded = self.robot
        self._temperature = float('nan')
        self._finished: dict[str, JointFriction] = {}
        self._points_publisher = self._publisher(JointState, '~/points')
        self._curve_publisher = self._publisher(JointState, '~/curve')
        self._feed_forward: FrictionFeedForward = self.part(FrictionFeedForward(
            self, self.joints, self.robot, controller=values.controller,
            width=values.compensation_width, dead_band=values.compensation_dead_band))
        if values.temperature_topic:
            self.part(self.subscription(
                Temperature, values.temperature_topic, self._take_temperature, qos.SENSOR))
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

    def _carry(self, payload: CalibrationResult) -> None:
        self._loaded = self.robot.with_payload(carried_load(payload), payload.frame)
        self._feed_forward.robot = self._loaded

    def _take_payload(self, message: String) -> None:
        """Count a payload result from the moment it is published."""
        try:
            self._carry(from_yaml(message.data, self.identity, 'payload_identification/result'))
        except RobocalError as error:
            self.get_logger().warning(f'Payload result not used: {error}')

    def _take_temperature(self, message: Temperature) -> None:
        self._temperature = message.temperature
        identified = self._feed_forward.temperature
        if abs(self._temperature - identified) > self.values.temperature_warning:
            self.get_logger().warning(
                f'Friction was identified at {identified:.1f} °C; it is {self._temperature:.1f} '
                '°C now. Identify it anew.', throttle_duration_sec=60.0)

    # ------------------------------------------------------------------- procedure

    def _begin_run(self) -> None:
        """Keep what finished joints recorded, so that a cancelled run goes on where it was."""
        if not self._finished or all(name in self._finished for name in self._wanted):
            self._clear()

    def _clear(self) -> None:
        super()._clear()
        self._finished.clear()

    async def _procedure(self) -> CalibrationResult:
        home = self.joints.posture().copy()
        left = [name for name in self._wanted if name not in self._finished]
        width = 90.0 / max(len(left), 1)
        for number, name in enumerate(left):
            await self._measure_joint(name, home, 2.0 + number * width, width)
        await self.go_to(home, phase='moving', message='Moving back to where it began.',
                         share=(92.0, 98.0))
        return await self.estimate()

    async def _measure_joint(
        self, name: str, home: Array, begin: float, width: float
    ) -> None:
        """Run a joint in rounds until its law can be vouched for, or rounds are used up."""
        joint, first_row = self.robot.index(name), self.joints.recorded
        speeds, found = self._speeds(), None
        share = width / self.values.max_rounds
        for number in range(self.values.max_rounds):
            runs = [replace(run, posture=home) for run in self._given if run.joint == joint]
            runs = runs or await self.worker.run(
                self.pulse, plan_runs, self._loaded.copy(), self.checker, home, joint, self._plan,
                speeds, 0.37 * number)
            await self._run_all(name, runs, begin + number * share, share)
            found = await self.worker.run(self.pulse, self._read_joint, name, first_row)
            self._show(found)
            if found.passed and not (found.doubt and self.values.model in ('auto', 'stribeck')):
                break
            law = None if found.fits is None else found.law()
            bend = None if law is None or found.doubt else float(law.stribeck_velocity.min())
            speeds = weak_speeds(np.array([p.speed for p in found.points]), bend, self._plan)
        if found is not None:
            self._finished[name] = found

    def _speeds(self) -> Array | None:
        given = [speed for speed in self.values.speeds if speed > 0.0]
        return np.array(sorted(given)) if given else None

    async def _run_all(
        self, name: str, runs: list[FrictionRun], begin: float, width: float
    ) -> None:
        total = sum(run.segment.duration for run in runs)
        done = 0.0
        for run in runs:
            part = width * run.segment.duration / total
            at = begin + width * done / total
            what = f'{name} at {run.segment.speed:.4g} rad/s'
            await self.go_to(run.start_posture(), phase='moving',
                             message=f'Moving to where {what} starts.', share=(at, at))
            await self.dwell(_REST)
            self.status.note(**{'remaining of this joint [s]':
                                f'{(total - done) / self.values.speed_scale:.0f}'})
            await self._one_run(run, what, at, part)
            done += run.segment.duration

    async def _one_run(self, run: FrictionRun, what: str, at: float, part: float) -> None:
        row = self.joints.recorded

        def progress(share: float) -> None:
            self.status.say('running', f'Running {what}.', progress=at + share * part,
                            samples=str(self.joints.recorded),
                            dropped=str(self.joints.counts.dropped))

        outcome = await self.arm.move(run.trajectory(), progress=progress)
        if outcome.status in _RUN_ALONE and outcome.held:
            self.joints.forget_from(row)
            self.get_logger().warning(f'Run {what} does not count: {outcome.message}')
            return
        outcome.raise_unless_done()
        await self.dwell(_REST)

    def _read_joint(self, name: str, first_row: int) -> JointFriction:
        samples = self.joints.samples()
        samples = samples.rows(first_row, len(samples))
        joint = self.robot.index(name)
        robot = self._loaded.copy()
        runs = find_runs(samples, [joint], self._settings.min_span)
        return estimate_joint(name, [read_run(robot, samples, run) for run in runs],
                              self._settings)

    def _show(self, found: JointFriction) -> None:
        """Publish points and curve, for PlotJuggler and RViz."""
        usable = sorted((p for p in found.points if not p.rejected), key=lambda p: p.speed)
        speed = np.array([p.speed for p in usable])
        self._points_publisher.publish(self._plot(found.joint, speed,
                                                  np.array([p.torque for p in usable])))
        if found.fits is None or not usable:
            return
        fine = np.concatenate([sign * np.geomspace(np.abs(speed).min(), np.abs(speed).max(), 60)
                               for sign in (-1.0, 1.0)])
        fine.sort()
        curve = found.law().torque(fine)
        self._curve_publisher.publish(self._plot(found.joint, fine, curve))
        self.publish_markers(markers.curve_markers(
            self.robot.root_frame, speed, np.array([p.torque for p in usable]), fine, curve,
            found.joint))
        self.status.note(**{f'{found.joint}: fit degree [%]': f'{found.fit_degree:.2f}'})

    def _plot(self, joint: str, speed: Array, torque: Array) -> JointState:
        message = JointState(name=[joint] * len(speed), velocity=speed.tolist(),
                             effort=torque.tolist())
        message.header.stamp = self.get_clock().now().to_msg()
        return message

    # ------------------------------------------------------------------ estimation

    def _estimate(self) -> Callable[[], CalibrationResult]:
        samples, settings = self.joints.samples(), self._settings
        robot: Robot = self._loaded.copy()
        temperature = self._temperature

        def compute() -> CalibrationResult:
            result, _ = estimate(robot, samples, settings)
            if np.isfinite(temperature):
                result = replace(result, settings={**result.settings,
                                                   'temperature': temperature})
            return result

        return compute

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
        return ' '.join(result.reasons)


def main(args: list[str] | None = None) -> None:
    """Run the node."""
    sys.exit(spin(lambda: FrictionIdentification('friction_identification'), args))


if __name__ == '__main__':
    main()
