# SPDX-License-Identifier: Apache-2.0
"""Motions of each payload method on the arm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from robocal_ros.arm import Keep, Recorder, Report, Watch, keep_nothing
from robocal_ros.arrays import Array
from robocal_ros.estimation import Channels, check_contents
from robocal_ros.messages import Silence, check_effort, overload_hint
from robocal_ros.payload.arm_regression import rigid_regressor
from robocal_ros.payload.model import Plane
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.plan import (
    SweepRange,
    plan_excitation,
    plan_static_poses,
    plan_two_plane,
    relative_std,
)
from robocal_ros.payload.two_plane import PlaneEstimator, known_mass
from robocal_ros.results import Z95, Load, rms
from robocal_ros.robot import Lspb, NewtonEuler, RigidBodyInertia

if TYPE_CHECKING:
    from robocal_ros.arm import Arm
    from robocal_ros.messages import WrenchStream

# Standstill before the arm moves, in which efforts are checked [s].
_PREFLIGHT = 0.3
# Typical scatter of one effort sample, for the interval shown while the joint turns [N·m].
_LIVE_NOISE = 0.1
# Samples between two estimates shown while the joint turns.
_LIVE_EVERY = 25
# Standstill before and after an exciting motion [s].
_REST = 0.5
GUESS = 1.0
"""Payload mass that plans assume while it is unknown [kg]."""
# Places of the moments and products of inertia among a body's parameters.
_MOMENTS = slice(4, 10)


@dataclass(frozen=True)
class KeptPostures:
    """State of a measurement by static_poses that can be gone on with.

    Attributes:
        home: The initial posture, shape (n,) [rad].
        postures: The planned postures, shape (k, n) [rad].
        measured: Number of those that are measured.
        reading: Mean reading of the sensor in the last one of them, shape (6,) [N, N·m].

    """

    home: Array
    postures: Array
    measured: int
    reading: Array


def silence_of(sensor: WrenchStream, recorder: Recorder, longest: float) -> Silence:
    """Return the judge of a sensor that falls silent while joint states go on.

    Args:
        sensor: The sensor.
        recorder: Records the joint states.
        longest: What gaps that ended may extend its limit to [s].

    """
    return Silence(lambda: sensor.newest, lambda: recorder.newest,
                   lambda: sensor.usual_interval, sensor.catch_up, missed=5, longest=longest)


@dataclass(eq=False)
class PayloadProcedure:
    """Motions of the payload methods, with the parameters at the start of the procedure.

    Attributes:
        arm: The arm.
        recorder: Records samples during the motions.
        report: Publishes the progress.
        values: The parameters.
        remark: Sentence on what the speed scale costs, once an exciting motion is planned.

    """

    arm: Arm
    recorder: Recorder
    report: Report
    values: PayloadParameters
    remark: str = ''
    _silence: Silence | None = None

    async def run(
        self, sensor: WrenchStream | None, load: Load, keep: Keep = keep_nothing
    ) -> None:
        """Carry out the motions of the method.

        Args:
            sensor: The wrist sensor, None for methods that read efforts.
            load: Returns the stored results.
            keep: Keeps the state of an unfinished measurement.

        """
        if self.values.method == 'two_plane':
            await self.two_plane(known_mass(self.values, load('payload')).value)
        elif self.values.method == 'excitation':
            await self.excitation(sensor)
        elif sensor is not None:
            await self.static_poses(sensor, keep)

    # ------------------------------------------------------------------- two planes

    async def two_plane(self, mass: float) -> None:
        """Sweep two joints in both directions, run the held-out sweeps, and return.

        Args:
            mass: Mass of the payload [kg].

        """
        arm, values = self.arm, self.values
        await arm.dwell(_PREFLIGHT)
        # The newer half only: earlier samples may have been sent before the call.
        samples = self.recorder.samples()
        samples = samples.rows(len(samples) // 2, len(samples))
        check_effort(samples, arm.robot.joint_names[-1:])
        check_contents(samples, arm.robot, values.effort_contains, values.min_weight_share)
        home = arm.posture()
        self.report.update(
            'planning', 'Searching a posture with two horizontal axes.', progress=0.0)
        plan = await arm.compute(
            plan_two_plane, arm.checker.robot, arm.checker, home, mass=mass,
            second_joint=values.second_joint)
        arm.check_stopped()
        await arm.move(arm.path_trajectory(plan.approach), phase='moving',
                       message='Moving to the start posture.', share=(5.0, 12.0))
        width = (93.0 - 12.0) / len(plan.sweeps)
        for number, sweep in enumerate(plan.sweeps):
            await self._sweep(sweep, mass, 12.0 + number * width, width)
        await self._return(home)

    async def _sweep(self, sweep: SweepRange, mass: float, begin: float, width: float) -> None:
        """Sweep a joint forward and backward, and report the estimate as it converges."""
        arm, values = self.arm, self.values
        name = arm.robot.joint_names[sweep.joint]
        await arm.go_to(sweep.end(high=False), phase='moving',
                        message=f'Moving to the start of a sweep of {name}.',
                        share=(begin, begin + 0.2 * width))
        speed = min(values.sweep_speed, 0.9 * float(arm.robot.velocity_limit[sweep.joint]))
        what = 'held-out sweep' if sweep.held_out else 'sweep'
        tracker = None if sweep.held_out else PlaneEstimator(
            Plane.at(arm.robot, sweep.posture, sweep.joint), mass, _LIVE_NOISE)
        for turn, (start, goal) in enumerate(((sweep.low, sweep.high), (sweep.high, sweep.low))):
            segment = Lspb.with_acceleration(start, goal, speed, values.max_acceleration)
            margin = 0.5 * speed * segment.blend + 0.3 * speed
            if tracker is not None:
                self._show_while_turning(
                    tracker, sweep.low + margin, sweep.high - margin, 1 if goal > start else -1)
            try:
                await arm.move(
                    segment.trajectory(sweep.posture, sweep.joint), phase='sweeping',
                    message=f'{what.capitalize()} of {name} '
                            f'{"forward" if goal > start else "backward"}.',
                    share=(begin + (0.2 + 0.4 * turn) * width,
                           begin + (0.6 + 0.4 * turn) * width))
            finally:
                self.recorder.listen(None)

    def _show_while_turning(
        self, tracker: PlaneEstimator, low: float, high: float, direction: int
    ) -> None:
        """Update the recursive estimate while the joint turns at constant speed, and report it."""
        robot = self.arm.robot
        if self.values.effort_contains == 'external':
            robot = robot.without_mass()
        joint, name = tracker.plane.joint, tracker.plane.name

        def update(stamp: float, position: Array, torque: Array) -> None:
            if not low < position[joint] < high:
                return
            own = float(robot.gravity_torque(position)[joint])
            tracker.update(float(position[joint]), float(torque[joint]) - own, direction)
            if tracker.count % _LIVE_EVERY == 0:
                (x, y, *_), (sx, sy, *_) = tracker.estimate()
                self.report.note(**{
                    f'{name}: lever along gravity [m]': f'{x:.5f} ± {Z95 * sx:.5f}',
                    f'{name}: lever sideways [m]': f'{y:.5f} ± {Z95 * sy:.5f}'})

        self.recorder.listen(update)

    # ----------------------------------------------------------------- static poses

    async def static_poses(
        self, sensor: WrenchStream, keep: Keep = keep_nothing, kept: KeptPostures | None = None
    ) -> None:
        """Measure with the wrist sensor in each posture, and return.

        Args:
            sensor: The sensor.
            keep: Keeps ``KeptPostures`` after each posture.
            kept: State of an earlier start of the node to go on from.

        """
        arm, values = self.arm, self.values
        await arm.await_readings(self._watch(sensor))
        if kept is None:
            home, measured = arm.posture(), 0
            self.report.update('planning', 'Choosing postures.', progress=0.0)
            postures = np.array(await arm.compute(
                plan_static_poses, arm.checker.robot, arm.checker, home,
                sensor_frame=values.sensor_frame, count=values.poses))
        else:
            home, postures, measured = kept.home, kept.postures, kept.measured
        for number in range(measured, len(postures)):
            reading = await self._measure(sensor, postures, number)
            await keep(KeptPostures(home, postures, number + 1, reading),
                       f'{number + 1} of {len(postures)} postures')
        await self._return(home)

    async def _measure(self, sensor: WrenchStream, postures: Array, number: int) -> Array:
        """Measure in a posture; return the mean reading, shape (6,) [N, N·m]."""
        arm = self.arm
        width = (93.0 - 3.0) / len(postures)
        begin = 3.0 + number * width
        what = f'posture {number + 1} of {len(postures)}'
        await arm.go_to(postures[number], phase='moving', message=f'Moving to {what}.',
                        share=(begin, begin + 0.7 * width), watch=self._watch_moving(sensor))
        self.report.update('measuring', f'Measuring in {what}.', progress=begin + 0.7 * width,
                            readings=str(sensor.recorded))
        newest = sensor.newest
        await arm.dwell(self.values.dwell, watch=self._watch(sensor))
        samples = sensor.samples()
        rows = samples.wrench[samples.time > newest]
        return rows.mean(axis=0) if len(rows) else np.full(6, np.nan)

    async def _return(self, home: Array) -> None:
        await self.arm.go_to(home, phase='moving', message='Returning to the initial posture.',
                              share=(93.0, 98.0))

    async def changed(self, sensor: WrenchStream, kept: KeptPostures) -> str:
        """Measure the last posture before a restart again, and return how its reading differs.

        Args:
            sensor: The sensor.
            kept: State before the restart.

        Returns:
            A sentence, after moving to the initial posture; empty if load and sensor are the same.

        """
        await self.arm.await_readings(self._watch(sensor))
        reading = await self._measure(sensor, kept.postures, kept.measured - 1)
        values, change = self.values, reading - kept.reading
        force, torque = float(np.abs(change[:3]).max()), float(np.abs(change[3:]).max())
        if force <= values.max_force_residual and torque <= values.max_torque_residual:
            return ''
        await self._return(kept.home)
        return (f'In posture {kept.measured} the sensor reads {force:.3g} N and {torque:.3g} N·m '
                f'more or less than before the restart (limits {values.max_force_residual:g} N, '
                f'max_force_residual, and {values.max_torque_residual:g} N·m, '
                'max_torque_residual): load or sensor has changed.')

    def _watch(self, sensor: WrenchStream) -> Watch:
        return lambda: sensor.problem(self.values.state_timeout)

    def _watch_moving(self, sensor: WrenchStream) -> Watch:
        """Return the watch of a motion, which is repeated after a silence that ended."""
        if self._silence is None:
            self._silence = silence_of(sensor, self.recorder, self.values.state_timeout)
        silence, at_rest = self._silence, self._watch(sensor)
        silence.begin()

        def problem() -> str:
            found = silence.beyond()
            return at_rest() or ('' if found is None else (
                f"No readings received on F/T topic '{sensor.topic}' for {found[0]:.2f} s (limit "
                f'{found[1]:.2f} s), while joint states go on. Check the sensor.'
                f'{overload_hint()}'))

        return problem

    # ------------------------------------------------------------------- excitation

    async def excitation(self, sensor: WrenchStream | None = None) -> None:
        """Run an exciting motion for the wrist sensor, or for joint torques if it is None."""
        robot = self.arm.robot
        if sensor is None:
            await self._excite(NewtonEuler(robot, robot.tool_frame).torque_regressor)
            return
        await self.arm.await_readings(self._watch(sensor))
        await self._excite(NewtonEuler(robot, self.values.sensor_frame).wrench_regressor, sensor)

    async def arm_excitation(self) -> None:
        """Run an exciting motion for the arm's links and rotors, with ``arm_load`` if any."""
        await self._excite(partial(rigid_regressor, self.arm.robot), mass=self.values.arm_load)

    async def _excite(
        self, regressor: Channels, sensor: WrenchStream | None = None, mass: float | None = None
    ) -> None:
        """Plan an exciting motion about the current posture, and run it.

        Args:
            regressor: Regressor of the motion.
            sensor: The sensor that the motion is for, None for joint torques.
            mass: Mass of the payload [kg]; by default known_mass, or a guess.

        """
        arm, values = self.arm, self.values
        home = arm.posture()
        fastest = replace(arm.limits, acceleration=np.full(
            arm.robot.n, values.excitation_acceleration))
        limits = fastest.scaled(values.speed_scale)
        guess = RigidBodyInertia(values.known_mass or GUESS if mass is None else mass,
                                 np.zeros(3), np.zeros((3, 3)))
        self.report.update('planning', 'Choosing an exciting motion.', progress=0.0)
        robot = arm.checker.robot.with_payload(guess)
        trajectory = await arm.compute(
            plan_excitation, robot, arm.checker, limits, home, regressor, values)
        if values.speed_scale < 1.0 and mass is None and values.method == 'excitation':
            full = await arm.compute(
                plan_excitation, robot, arm.checker, fastest, home, regressor, values)
            slow, fast = (relative_std(motion, regressor)[_MOMENTS]
                          for motion in (trajectory, full))
            self.remark = (
                f'At speed_scale {values.speed_scale:g}, noise makes moments of inertia '
                f'{rms(slow) / rms(fast):.1f} times as uncertain as at 1.0. ')
            self.report.note(**{'speed scale': self.remark.strip()})
        arm.check_stopped()
        watch = None if sensor is None else self._watch(sensor)
        await arm.dwell(_REST, watch)
        await arm.move(trajectory, phase='exciting', message='Running the exciting motion.',
                       share=(4.0, 95.0), limits=limits,
                       watch=None if sensor is None else self._watch_moving(sensor))
        await arm.dwell(_REST, watch)
