# SPDX-License-Identifier: Apache-2.0
"""Node ``leveling``: the tool made level where it is, by one call or by rule, and proven so."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from std_srvs.srv import Trigger

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.leveling.estimate import LevelCheck, check_level, tilt_by_imu
from robocal_ros.leveling.markers import leveling_markers
from robocal_ros.leveling.model import LevelingTask, Tool, reference_axis
from robocal_ros.leveling.parameters import LevelingParameters
from robocal_ros.leveling.plan import LevelingPlanner, LevelingSettings, LevelPlan
from robocal_ros.leveling.rules import AutoLeveling, ToolImu
from robocal_ros.node.arm_node import ArmNode
from robocal_ros.node.executables import Ending
from robocal_ros.node.parameters import named
from robocal_ros.node.process import spin
from robocal_ros.robot.motion import MotionLimits

_HALF_TURN = float(np.pi)


@dataclass(frozen=True)
class _Outcome:
    """What became of a call."""

    success: bool
    message: str


class Leveling(ArmNode):
    """Plans, shows, moves and verifies."""

    parameter_table = LevelingParameters

    def _configure(self) -> None:
        super()._configure()
        values = self.values
        self._tool = Tool(self.robot, values.tool_point)
        self._axis = reference_axis(self.robot, values.reference)
        self._planner = self._made_planner()
        self._imu = (ToolImu(self, values.imu_topic, values.imu_frame)
                     if values.imu_topic else None)
        self._auto = AutoLeveling(
            self, self._tool, named(values.auto_level_after), values.auto_level_box,
            self._level_by_rule)
        self.service('level', self._on_level)
        self.service('preview', self._on_preview)
        self.status.say('idle', 'Configured; activate to begin.', progress=0.0)

    def _made_planner(self) -> LevelingPlanner:
        values = self.values
        velocity, acceleration = self.speed_limits()
        return LevelingPlanner(
            Tool(self.robot, values.tool_point), self._axis,
            MotionLimits(self.robot.joint_names, self.robot.lower, self.robot.upper, velocity,
                         acceleration),
            LevelingSettings(
                heading=values.heading, direction=values.direction, tolerance=values.tolerance,
                max_drift=values.max_drift, max_step=values.max_step,
                singularity_margin=values.singularity_margin, limit_margin=values.limit_margin,
                search_time=values.search_time),
            self.checker)

    def _activate(self) -> None:
        super()._activate()
        self.status.say('idle', 'Active; call level or preview.')

    def _deactivate(self) -> None:
        super()._deactivate()
        if self._made and not self._running:
            self.status.say('idle', 'Inactive.')

    # -------------------------------------------------------------------- services

    async def _on_level(self, request: Trigger.Request, response: Trigger.Response) -> Any:
        return await self.answered('level', self._level, response)

    async def _on_preview(self, request: Trigger.Request, response: Trigger.Response) -> Any:
        return await self.answered('preview', self._preview, response)

    async def _level_by_rule(self, reason: str) -> None:
        self.get_logger().info(f'Leveling by rule: {reason}.')
        await self.answered('level', self._level, Trigger.Response())

    def _told(self, outcome: Any) -> tuple[bool, str]:
        if isinstance(outcome, _Outcome):
            return outcome.success, outcome.message
        return super()._told(outcome)

    # --------------------------------------------------------------------- actions

    async def _preview(self) -> str:
        await self._await_states()
        plan = await self._plan()
        if plan.trajectory is None or plan.task is None:
            return self._level_already(plan)
        return (f'The tool is tilted by {_degrees(plan.tilt)}; level would turn it by '
                f'{_degrees(plan.task.angle)} in {plan.trajectory.duration:.1f} s, over '
                f'{len(plan.task.transition_poses(self.values.max_step))} transition poses. '
                f'{plan.note} Nothing was moved.').replace('  ', ' ')

    async def _level(self) -> _Outcome:
        await self.arm.connect(self.values.connect_timeout)
        if self._imu is not None:
            await self._imu.wait()
        await self._await_states()
        plan = await self._plan()
        if plan.trajectory is None or plan.task is None:
            return _Outcome(True, self._level_already(plan))
        self.joints.clear()
        self.joints.recording = True
        try:
            await self.move(plan.trajectory, phase='moving', share=(5.0, 90.0), message=(
                f'Turning the tool by {_degrees(plan.task.angle)}, its point held.'))
            moved = self.joints.recorded
            if self._imu is not None:
                self._imu.begin()
            self.status.say('verifying', 'Verifying the result at rest.', progress=92.0)
            await self.dwell(self.values.verify_time)
            positions = self.joints.samples().position
        finally:
            self.joints.recording = False
        return self._verified(plan, plan.task, positions[:moved], positions[moved:])

    async def _await_states(self) -> None:
        """Wait for joint states of an arm at rest.

        Raises:
            DataError: If there are none, or the arm keeps moving.
            CancelledError: If a stop was asked for meanwhile.

        """
        values = self.values
        await self.pulse.until(
            lambda: self.arm.resting or bool(self.arm.stop_reason), values.connect_timeout)
        self.check_stopped()
        if self.arm.resting:
            return
        age = self.joints.age()
        if age > values.state_timeout:
            since = f'for {age:.1f} s' if np.isfinite(age) else 'at all'
            raise DataError(self.joints.complaint() or (
                f'No joint states have come {since} (limit {values.state_timeout} s). The arm '
                'was not moved; check the driver.'))
        raise DataError('The arm is moving; another client seems to drive it. Nothing was sent; '
                        'call again when it rests.')

    async def _plan(self) -> LevelPlan:
        self.status.say('planning', 'Planning the turn.', progress=0.0)
        start = self.joints.posture().copy()
        plan = await self.worker.run(self.pulse, self._planner.plan, start)
        self.check_stopped()
        self.publish_markers(leveling_markers(self._tool, start, plan, self.values.max_step))
        return plan

    def _level_already(self, plan: LevelPlan) -> str:
        return (f'The tool is level already: tilt {_degrees(plan.tilt)} (tolerance '
                f'{_degrees(self.values.tolerance)}). Nothing was moved.')

    # ---------------------------------------------------------------- verification

    def _verified(
        self, plan: LevelPlan, task: LevelingTask, way: Array, rest: Array
    ) -> _Outcome:
        """Judge the motion by joint states, and by the IMU if there is one."""
        values = self.values
        check = check_level(task, self._axis, way, rest)
        bad = []
        if check.tilt > values.tolerance:
            bad.append(f'the residual tilt is above the tolerance of {_degrees(values.tolerance)}')
        if check.drift > values.max_drift:
            bad.append(f'the tool point is further off than {1e3 * values.max_drift:.2f} mm')
        message = self._summary(plan, task, check)
        if self._imu is not None:
            seen = self._tilt_by_imu(task, rest, self._imu)
            message += f' The IMU sees a tilt of {_degrees(seen)}.'
            if seen > values.imu_tolerance:
                bad.append(f'the IMU sees more than {_degrees(values.imu_tolerance)}: check the '
                           'mounting of base and IMU, and the parameters gravity and reference')
        self.status.note(tilt=f'{check.tilt:.6g}', drift=f'{check.drift:.6g}')
        if bad:
            return _Outcome(False, f'{message} Not verified: {"; ".join(bad)}.')
        return _Outcome(True, f'{message} {plan.note}'.rstrip())

    def _summary(self, plan: LevelPlan, task: LevelingTask, check: LevelCheck) -> str:
        angle = 0.0 if plan.task is None else task.angle
        return (f'The tool was turned by {_degrees(angle)}; residual tilt {_degrees(check.tilt)}, '
                f'tool point {1e3 * check.drift:.2f} mm from where it was, at most '
                f'{1e3 * check.drift_on_way:.2f} mm on the way.')

    def _tilt_by_imu(self, task: LevelingTask, rest: Array, imu: ToolImu) -> float:
        orientation = self._tool.pose(rest.mean(axis=0))[0]
        return tilt_by_imu(imu.mean(), imu.rotation, orientation, np.array(self.robot.gravity),
                           self._axis if task.target.up else -self._axis)


def _degrees(angle: float) -> str:
    """Return an angle in degrees, as fine as it deserves."""
    value = 180.0 * angle / _HALF_TURN
    return f'{value:.1f}°' if value >= 1.0 else f'{value:.3f}°'


def main(ending: Ending | None = None) -> int:
    """Run the node; returns the exit code."""
    return spin(lambda: Leveling('leveling'), ending or Ending())


if __name__ == '__main__':
    sys.exit(main())
