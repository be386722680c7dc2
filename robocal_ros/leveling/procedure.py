# SPDX-License-Identifier: Apache-2.0
"""Leveling procedure: plan, show, move, and verify by joint states and an IMU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pinocchio as pin
import scipy

from robocal_ros.arm import Report
from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.leveling.model import GRAVITY, LevelingTask, Tool, angle_between, tilt
from robocal_ros.leveling.parameters import LevelingParameters
from robocal_ros.leveling.plan import LevelingPlanner, LevelPlan
from robocal_ros.results import spread
from robocal_ros.robot import SagCorrection

if TYPE_CHECKING:
    from robocal_ros.arm import Arm
    from robocal_ros.messages import Intake, JointStateStream, Stream

# Postures of a motion at which the sag is computed.
_SAG_ROWS = 200
# Share of the speed limits that is used where the motion is corrected for the sag.
_SAG_MARGIN = 0.98
# Length of the running median, which removes encoder jumps of one or two samples that drive
# wind-up causes when the torque changes abruptly.
_MEDIAN = 5
# Largest relative difference between the reading at rest and gravity (scale error).
_REST_TOLERANCE = 0.05


class LevelCheck:
    """Tilt and drift of the tool by the joint states.

    Attributes:
        tilt: Angle between the tool's z axis and its target [rad].
        drift: Distance of the tool point from its initial position [m].
        drift_in_motion: Largest such distance during the motion [m].

    """

    def __init__(self, task: LevelingTask, axis: Array, motion: Array, rest: Array) -> None:
        """Check a leveling motion by measured joint angles.

        Args:
            task: The task.
            axis: The reference's z axis in the root frame, shape (3,).
            motion: Postures during the motion, shape (k, n) [rad]; their running median is used.
            rest: Postures at rest after it, shape (m, n) [rad]; their mean is used.

        """
        rotation, point = task.tool.pose(rest.mean(axis=0))
        padded = np.concatenate((np.tile(task.start, (_MEDIAN, 1)), motion))
        smooth = scipy.ndimage.median_filter(padded, size=(_MEDIAN, 1), mode='nearest')
        points = task.tool.poses(np.concatenate((smooth, rest)))[1]
        self.tilt = tilt(rotation, axis, 'up' if task.target.up else 'down')
        self.drift = float(np.linalg.norm(point - task.point))
        self.drift_in_motion = float(np.linalg.norm(points - task.point, axis=1).max())


def tilt_by_imu(
    specific_force: Array, transform_imu_to_tool: Array, orientation: Array, gravity: Array,
    target_axis: Array,
) -> float:
    """Return the tilt of the tool measured by its IMU [rad].

    An accelerometer at rest reads the vector against gravity. The tool's orientation from the
    joint states is corrected by the smallest rotation that makes both agree. For a reference
    along gravity, the result is the angle between the tool's z axis and the reading.

    Args:
        specific_force: Mean accelerometer reading at rest, IMU frame, shape (3,) [m/s²].
        transform_imu_to_tool: Rotation of the IMU in the tool frame, shape (3, 3).
        orientation: Orientation of the tool by the joint states, shape (3, 3).
        gravity: Gravity in the root frame, shape (3,) [m/s²].
        target_axis: Target of the tool's z axis, root frame, shape (3,).

    Raises:
        DataError: If the reading is not against gravity, or its norm is another one.

    """
    strength, expected = float(np.linalg.norm(specific_force)), float(np.linalg.norm(gravity))
    if abs(strength - expected) > _REST_TOLERANCE * expected:
        raise DataError(
            f'The IMU reads {strength:.2f} m/s² at rest; expected {expected:.2f} m/s². Check its '
            'units and scale, that the arm is at rest, and the parameter gravity.')
    seen = transform_imu_to_tool @ specific_force / strength
    expected_axis = orientation.T @ (-gravity / expected)
    if seen @ expected_axis < 0.0:
        raise DataError(
            'The IMU reads a vector along gravity at rest, by the joint states; expected one '
            'against it, as sensor_msgs/Imu has it. Check the sign of its driver, the mounting of '
            'imu_frame, and the parameter gravity.')
    correction = pin.Quaternion.FromTwoVectors(expected_axis, seen).matrix()
    return angle_between(np.array([0.0, 0.0, 1.0]), correction @ orientation.T @ target_axis)


@dataclass(frozen=True)
class ToolImu:
    """IMU on the tool, averaged at rest.

    Attributes:
        rotation: Its orientation in the tool frame, shape (3, 3).
        stream: Its readings.

    """

    rotation: Array
    stream: Stream[Intake]

    def mean(self) -> Array:
        """Return the mean specific force while recorded, IMU frame, shape (3,) [m/s²].

        Its weights fall to zero at both ends, so that a vibration of few periods averages out
        (Harris, Proc. IEEE 66 (1978) 51, doi 10.1109/PROC.1978.10837).

        Raises:
            DataError: If there were no readings.

        """
        rows = self.stream.samples()
        if not len(rows):
            raise DataError(f'No readings were received from {self.stream.intake.decoder.source} '
                            'while the arm was at rest; check the sensor.')
        return np.asarray(np.average(rows[:, 1:4], 0, np.hanning(len(rows) + 2)[1:-1]))


@contextmanager
def _recorded(*streams: JointStateStream | Stream[Intake] | None) -> Iterator[None]:
    """Record streams anew; None for none."""
    present = [stream for stream in streams if stream is not None]
    for stream in present:
        stream.clear()
        stream.recording = True
    try:
        yield
    finally:
        for stream in present:
            stream.recording = False


@dataclass(eq=False)
class LevelingProcedure:
    """Levels the tool with the parameters at its start.

    Attributes:
        arm: The arm.
        joints: Its joint states.
        report: Receives the progress.
        values: The parameters.
        axis: The reference's z axis in the root frame, shape (3,).
        gravity: Gravity in the root frame, by an identified arm if there is one, (3,) [m/s²].
        imu: IMU to verify the result; None for none.
        show: Called with the initial posture and the plan.
        sag: Sag of the joints under arm and payload; None to level the encoders.
        vertical_std: RMS error of the direction of gravity by an identified arm [rad].

    """

    arm: Arm
    joints: JointStateStream
    report: Report
    values: LevelingParameters
    axis: Array
    gravity: Array
    imu: ToolImu | None
    show: Callable[[Array, LevelPlan], None]
    sag: SagCorrection | None = None
    vertical_std: float = 0.0

    def _tool(self) -> Tool:
        return Tool(self.arm.robot, self.values.tool_point)

    async def rehearse(self) -> str:
        """Plan, show and carry out the motion without verification; return a sentence."""
        plan = await self._plan()
        if plan.trajectory is None or plan.task is None:
            return self._level_already(plan)
        await self.arm.move(plan.trajectory, phase='planning', message='Checking the turn.',
                            share=(50.0, 90.0))
        return (
            f'The tool is tilted by {_degrees(plan.tilt)}; leveling would turn it by '
            f'{_degrees(plan.task.target.angle)} in {plan.trajectory.duration:.1f} s, over '
            f'{len(plan.task.transition_poses(self.values.max_step))} transition poses. '
            f'{plan.note}').rstrip() + self._vertical()

    async def level(self) -> tuple[bool, str]:
        """Level the tool; return whether the result is verified, and the answer."""
        arm, values = self.arm, self.values
        await self._await_readings()
        plan = await self._plan()
        if plan.trajectory is None or plan.task is None:
            if self.imu is not None:
                await self._dwell()
            rotation = self._tool().pose(self._links(arm.posture()[None])[0])[0]
            message = f'{self._level_already(plan)}{self._vertical()}'
            return self._judged(f'{message} Nothing was moved.', rotation, [])
        with _recorded(self.joints):
            await arm.move(plan.trajectory, phase='moving', share=(5.0, 90.0), message=(
                f'Turning the tool by {_degrees(plan.task.target.angle)} about its tool point.'))
            moved = self.joints.newest
            await self._dwell()
            samples = self.joints.samples()
        motion, rest = (self._links(samples.position[rows])
                        for rows in (samples.time <= moved, samples.time > moved))
        check = LevelCheck(plan.task, self.axis, motion, rest)
        bad = []
        if check.tilt > values.tolerance:
            bad.append(f'the residual tilt is above the tolerance of {_degrees(values.tolerance)}')
        if check.drift > values.max_drift:
            bad.append(f'the drift of the tool point is above {1e3 * values.max_drift:.2f} mm')
        message = (
            f'The tool was turned by {_degrees(plan.task.target.angle)}; residual tilt '
            f'{_degrees(check.tilt)}, drift of the tool point {1e3 * check.drift:.2f} mm, '
            f'at most {1e3 * check.drift_in_motion:.2f} mm during the motion.{self._vertical()}')
        self.report.note(tilt=f'{check.tilt:.6g}', drift=f'{check.drift:.6g}')
        done, message = self._judged(message, self._tool().pose(rest.mean(axis=0))[0], bad)
        return done, f'{message} {plan.note if done else ""}'.rstrip()

    async def _dwell(self) -> None:
        """Record the IMU, if there is one, for the time of the verification."""
        with _recorded(None if self.imu is None else self.imu.stream):
            self.report.update('verifying', 'Verifying the result at rest.', progress=92.0)
            await self.arm.dwell(self.values.verify_time)

    def _judged(self, message: str, rotation: Array, bad: list[str]) -> tuple[bool, str]:
        """Return whether nothing is bad, also by the IMU, and the message with it."""
        seen, words = self._by_imu(rotation)
        if seen > self.values.imu_tolerance:
            bad.append(
                f'the IMU measures more than {_degrees(self.values.imu_tolerance)}: check the '
                'mounting of base and IMU, and the parameters gravity and reference')
        return not bad, f'{message}{words}' + (f' Not verified: {"; ".join(bad)}.' if bad else '')

    async def measure(self) -> str:
        """Measure the tilt without moving; return the answer."""
        arm, values = self.arm, self.values
        await self._await_readings()
        with _recorded(self.joints, None if self.imu is None else self.imu.stream):
            self.report.update('measuring', 'Measuring the tilt at rest.', progress=0.0)
            await arm.dwell(values.verify_time)
            posture = self._links(self.joints.samples().position).mean(axis=0)
        rotation = self._tool().pose(posture)[0]
        found = tilt(rotation, self.axis, values.direction)
        self.report.note(tilt=f'{found:.6g}')
        message = (f'The tool is tilted by {_degrees(found)} (tolerance '
                   f'{_degrees(values.tolerance)}).{self._vertical()}')
        return f'{message}{self._by_imu(rotation)[1]} Nothing was moved.'

    async def _await_readings(self) -> None:
        """Wait for readings of the IMU, if there is one, and for the arm to rest."""
        if (imu := self.imu) is not None:
            await self.arm.await_readings(lambda: imu.stream.problem(self.values.state_timeout))
        await self.arm.await_rest()

    async def _plan(self) -> LevelPlan:
        arm = self.arm
        self.report.update('planning', 'Planning the turn.', progress=0.0)
        # Margin for the correction, which changes with the posture.
        share = 1.0 if self.sag is None else _SAG_MARGIN
        velocity, acceleration = (share * limit for limit in arm.speed_limits())
        planner = LevelingPlanner(
            self._tool(), self.axis,
            replace(arm.limits, velocity=velocity, acceleration=acceleration), self.values,
            arm.checker)
        start = self._links(arm.posture()[None])[0]
        plan = await arm.compute(planner.plan, start)
        arm.check_stopped()
        if self.sag is not None and plan.trajectory is not None:
            plan = replace(plan, trajectory=self.sag.corrected(plan.trajectory))
        self.show(start, plan)
        return plan

    def _links(self, encoders: Array) -> Array:
        """Return the link angles at consecutive encoder angles, shape (k, n) [rad]."""
        if self.sag is None or not len(encoders):
            return encoders
        # The sag changes slowly: it is computed for some rows and interpolated.
        rows = spread(len(encoders), _SAG_ROWS)
        sag = np.array([self.sag.link_angles(encoders[row]) - encoders[row] for row in rows])
        every = np.arange(len(encoders))
        return encoders + np.column_stack([np.interp(every, rows, column) for column in sag.T])

    def _level_already(self, plan: LevelPlan) -> str:
        return (f'The tool is level already: tilt {_degrees(plan.tilt)} (tolerance '
                f'{_degrees(self.values.tolerance)}).')

    def _vertical(self) -> str:
        """Return where the vertical is known from, after a space, if not from the parameter."""
        lean = angle_between(self.gravity, self.arm.robot.gravity)
        return '' if self.values.reference != GRAVITY or lean == 0.0 else (
            f' The vertical is that of the identified arm, whose base leans by {_degrees(lean)} '
            f'against the parameter gravity; it is known to ±{_degrees(self.vertical_std)} (1 σ).')

    def _by_imu(self, rotation: Array) -> tuple[float, str]:
        """Return the tilt by the IMU, and a sentence after a space; nothing without an IMU."""
        if self.imu is None:
            return 0.0, ''
        up = {'up': True, 'down': False}.get(
            self.values.direction, bool(rotation[:, 2] @ self.axis > 0.0))
        seen = tilt_by_imu(
            self.imu.mean(), self.imu.rotation, rotation, self.gravity,
            self.axis if up else -self.axis)
        return seen, f' The IMU measures a tilt of {_degrees(seen)}.'


def _degrees(angle: float) -> str:
    """Return an angle in degrees, with more digits below 1°."""
    value = float(np.degrees(angle))
    return f'{value:.1f}°' if value >= 1.0 else f'{value:.3f}°'
