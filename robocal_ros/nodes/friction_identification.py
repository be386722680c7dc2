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
    merge,
    summary,
    with_temperatures,
)
from robocal_ros.core.friction.fit import MODELS
from robocal_ros.core.friction.planning import FrictionRun, SpeedPlan, check_given
from robocal_ros.core.payload.load import alternative_loads, carried_load
from robocal_ros.core.result import CalibrationResult, Verdict
from robocal_ros.core.robot import Robot
from robocal_ros.errors import ConfigurationError, RobocalError
from robocal_ros.io.result_yaml import from_yaml
from robocal_ros.io.trajectory_set import load_trajectory_set
from robocal_ros.nodes.friction_procedure import FrictionProcedure
from robocal_ros.ros import markers, qos
from robocal_ros.ros.feed_forward import FrictionFeedForward
from robocal_ros.ros.lifecycle import spin
from robocal_ros.ros.parameters import named, parameter
from robocal_ros.ros.procedure import ProcedureNode, ProcedureParameters


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
        '', 'YAML file with a trajectory set of your own, run as the first round; empty plans '
        'one. Further rounds stay within its range; set max_rounds to 1 for none.')
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
        self._check_effort_source()
        self.joints.need_effort = True
        self._settings = FrictionSettings(
            joints=named(values.measure_joints), model=values.model,
            fit_threshold=values.fit_threshold)
        self._settings.check(self.robot)
        plan = SpeedPlan(
            min_speed=values.min_speed, max_speed=values.max_speed, count=values.speed_count,
            max_range=values.max_range, max_duration=values.max_cruise,
            acceleration=values.max_acceleration)
        plan.check()
        given = self._load_given()
        self._loaded = self.robot
        self._alternatives: list[Robot] = []
        self._heard_temperatures: list[float] = []
        self._temperatures: dict[str, float] = {}
        self._points_publisher = self._publisher(JointState, '~/points')
        self._curve_publisher = self._publisher(JointState, '~/curve')
        self._method = FrictionProcedure(
            self, self._wanted(given), given, plan, self._settings, self._load, self._show)
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

    def _check_effort_source(self) -> None:
        if self.values.effort_source == 'current' and set(self.values.torque_constants) == {1.0}:
            raise ConfigurationError(
                "effort_source is 'current', but torque_constants is still 1 N·m/A for every "
                'joint; friction in N·m needs the real constants. Set torque_constants (and '
                'gear_ratios).')

    def _load_given(self) -> list[FrictionRun]:
        if not self.values.trajectory_file:
            return []
        runs = load_trajectory_set(self.values.trajectory_file, self.robot)
        check_given(self.robot, self.limits, runs)
        return runs

    def _wanted(self, given: list[FrictionRun]) -> tuple[str, ...]:
        """Return the joints to measure: those named, else those of the set, else all."""
        in_set = tuple(dict.fromkeys(self.robot.joint_names[run.joint] for run in given))
        missing = [name for name in self._settings.joints if given and name not in in_set]
        if missing:
            raise ConfigurationError(
                f'The trajectory set has no run of {", ".join(missing)}, which measure_joints '
                f'names; it has runs of {", ".join(in_set)}. Correct one of the two.')
        return self._settings.joints or in_set or self.robot.joint_names

    # --------------------------------------------------------- what other nodes tell

    def _carry(self, payload: CalibrationResult) -> None:
        loaded = self.robot.with_payload(carried_load(payload), payload.frame)
        self._alternatives = [self.robot.with_payload(load, payload.frame)
                              for load in alternative_loads(payload)]
        self._loaded = self._feed_forward.robot = loaded

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
            self._heard_temperatures.append(message.temperature)
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
        self._heard_temperatures.clear()
        self._temperatures.clear()

    async def _procedure(self) -> CalibrationResult:
        self._method.lost.clear()
        await self._method.measure()
        return await self.estimate()

    def _show(self, found: JointFriction) -> None:
        """Publish points and curve, for PlotJuggler and RViz."""
        if self._heard_temperatures:
            self._temperatures[found.joint] = float(np.mean(self._heard_temperatures))
            self._heard_temperatures.clear()
        usable = sorted((p for p in found.points if not p.rejected), key=lambda p: p.speed)
        speed = np.array([p.speed for p in usable])
        torque = np.array([p.torque for p in usable])
        self._points_publisher.publish(self._plot(found.joint, speed, torque))
        if found.fits is None:
            return
        fine = np.concatenate([sign * np.geomspace(np.abs(speed).min(), np.abs(speed).max(), 60)
                               for sign in (-1.0, 1.0)])
        fine.sort()
        curve = found.law().torque(fine)
        self._curve_publisher.publish(self._plot(found.joint, fine, curve))
        self.publish_markers(markers.curve_markers(
            self.robot.root_frame, speed, torque, fine, curve, found.joint))
        self.status.note(**{f'{found.joint}: fit degree [%]': f'{found.fit_degree:.2f}'})

    def _plot(self, joint: str, speed: Array, torque: Array) -> JointState:
        message = JointState(name=[joint] * len(speed), velocity=speed.tolist(),
                             effort=torque.tolist())
        message.header.stamp = self.get_clock().now().to_msg()
        return message

    # ------------------------------------------------------------------ estimation

    def _estimate(self) -> Callable[[], CalibrationResult]:
        samples, (robot, alternatives) = self.joints.samples(), self._load()
        # After a run the joints that were measured must be there; in a bag, those that are.
        joints = self._settings.joints or tuple(self._method.finished)
        settings = replace(self._settings, joints=joints)
        temperatures = dict(self._temperatures)
        heard = float(np.mean(self._heard_temperatures)) if self._heard_temperatures else np.nan

        def compute() -> CalibrationResult:
            result, found = estimate(robot, samples, settings, alternatives)
            known = {item.joint: temperatures.get(item.joint, heard) for item in found}
            return with_temperatures(
                result, {name: value for name, value in known.items() if np.isfinite(value)})

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
        return summary(result)

    def _verdict_sentence(self, result: CalibrationResult) -> str:
        sentence = self._summary(result) if result.verdict is Verdict.PASS else (
            f'Verdict {result.verdict.value}: {" ".join(result.reasons)} Joints that passed are '
            'filed; the others keep their last good numbers.')
        lost = self._method.lost
        return f'{sentence} {len(lost)} things went wrong; the first: {lost[0]}' if lost else (
            sentence)


def main(args: list[str] | None = None) -> None:
    """Run the node."""
    sys.exit(spin(lambda: FrictionIdentification('friction_identification'), args))


if __name__ == '__main__':
    main()
