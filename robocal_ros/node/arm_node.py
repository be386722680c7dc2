# SPDX-License-Identifier: Apache-2.0
"""What every node that moves the arm shares: limits, collision check, arm client, cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from std_srvs.srv import Trigger

from robocal_ros.arm.old_client import ArmClient, ArmSettings
from robocal_ros.arrays import Array
from robocal_ros.errors import CancelledError, DataError
from robocal_ros.node.parameters import named
from robocal_ros.node.robot_node import ENDING, RobotNode
from robocal_ros.parameters import ArmParameters
from robocal_ros.robot.collision import CollisionChecker
from robocal_ros.robot.motion import MotionLimits, Trajectory, quintic_path
from robocal_ros.robot.planning import connect
from robocal_ros.robot.setup import mesh_folders

__all__ = ['ArmNode', 'ArmParameters']


class ArmNode(RobotNode):
    """A node that moves the arm; every motion passes through its arm client."""

    parameter_table = ArmParameters
    late_modules = tuple(f'scipy.{name}' for name in (
        'interpolate', 'linalg', 'ndimage', 'optimize', 'signal', 'spatial', 'stats'))
    _meanwhile = ' and the arm is being held'

    # ------------------------------------------------------------------- lifecycle

    def _configure(self) -> None:
        super()._configure()
        values = self.values
        self.checker = self._collision_checker()
        self.limits = self._motion_limits()
        self.arm = self.stream(ArmClient(
            self, self.group, self.pulse, self.joints, controller=values.controller,
            limits=self.limits, checker=self.checker,
            settings=ArmSettings(
                speed_scale=values.speed_scale, path_tolerance=values.path_tolerance,
                goal_tolerance=values.goal_tolerance, goal_time=values.goal_time,
                state_timeout=values.state_timeout)))
        self.service('cancel', self._on_cancel)

    def _deactivate(self) -> None:
        if self._made:
            self.stop_motion('The node was deactivated.')
        super()._deactivate()

    def _collision_checker(self) -> CollisionChecker:
        values = self.values
        checker = CollisionChecker(
            self.robot.copy(), package_dirs=mesh_folders(named(values.mesh_folders)),
            tool_box=values.tool_box if any(values.tool_box) else (),
            floor=values.floor if values.floor > -1000.0 else None)
        if checker.blind_links:
            self.get_logger().warning(
                f'No collision geometry for {", ".join(checker.blind_links)}: their meshes were '
                'not found, so nothing keeps them from touching. Set mesh_folders.')
        return checker

    def _motion_limits(self) -> MotionLimits:
        return MotionLimits(
            self.robot.joint_names, self.robot.lower, self.robot.upper,
            self.robot.velocity_limit,
            np.full(self.robot.n, self.values.max_acceleration))

    def stop_motion(self, reason: str) -> None:
        """Have the running procedure stop and the arm held; returns at once."""
        if self._running:
            self.arm.stop(reason)

    def _before_action(self) -> None:
        self.arm.rearm()

    # -------------------------------------------------------------------- services

    async def _on_cancel(self, request: Trigger.Request, response: Trigger.Response) -> Any:
        if not self._running:
            response.success, response.message = True, 'Nothing is running; the arm was not moved.'
            return response
        running = self._running
        self.stop_motion('Cancelled on request.')
        self._cancelling += 1
        try:
            ended = await self.pulse.until(lambda: not self._running, ENDING)
        finally:
            self._cancelling -= 1
        response.success = ended
        response.message = (f'{running} was ended.' if ended else
                            f'{running} was told to end, but has not within {ENDING:.0f} s.')
        return response

    # ------------------------------------------------------------- parts of motions

    def check_stopped(self) -> None:
        """Raise CancelledError once a stop was asked for; called between the steps."""
        if self.arm.stop_reason:
            raise CancelledError(self.arm.stop_reason)

    async def await_readings(self, complaint: Callable[[], str]) -> None:
        """Wait until a sensor that the motion needs is of use.

        Args:
            complaint: Says what is wrong with the sensor, empty if nothing is.

        Raises:
            DataError: If it is of no use in time.
            CancelledError: If a stop was asked for meanwhile.

        """
        await self.pulse.until(
            lambda: not complaint() or bool(self.arm.stop_reason), self.values.connect_timeout)
        self.check_stopped()
        if told := complaint():
            raise DataError(f'{told} The arm was not moved.')

    def _check_clock(self) -> None:
        """Raise DataError once the clock has jumped back: samples of the run are lost."""
        if self.joints.counts.clock_jumps:
            raise DataError('The clock of the joint states jumped back during the run, which '
                            'costs the samples before it. The arm is held; call run again.')

    async def move(
        self, trajectory: Trajectory, *, phase: str, message: str, share: tuple[float, float],
        watch: Callable[[], str] | None = None, limits: MotionLimits | None = None,
    ) -> None:
        """Move the arm and report progress.

        Args:
            trajectory: The motion.
            phase: Phase shown meanwhile.
            message: Sentence shown meanwhile.
            share: Progress of the procedure at start and end of this motion [%].
            watch: Says when data are lost.
            limits: Limits of this motion instead of the usual ones.

        Raises:
            MotionError: If the motion did not end at its goal.
            CancelledError: If it was ended on request.

        """
        def progress(done: float) -> None:
            self.status.say(phase, message, progress=share[0] + done * (share[1] - share[0]),
                            samples=str(self.joints.recorded),
                            dropped=str(self.joints.counts.dropped))

        self._check_clock()
        progress(0.0)
        outcome = await self.arm.move(
            trajectory, progress=progress, watch=watch, limits=limits)
        outcome.raise_unless_done()

    async def dwell(self, duration: float, watch: Callable[[], str] | None = None) -> None:
        """Rest for a time, by the stamps of the joint states.

        Raises:
            DataError: If joint states stop coming or ``watch`` complains.
            CancelledError: If a stop was asked for.

        """
        latest = self.joints.latest
        end = (latest[0] if latest else 0.0) + duration
        while (latest := self.joints.latest) is not None and latest[0] < end:
            await self.pulse.beat()
            self.check_stopped()
            self._check_clock()
            complaint = self.joints.complaint() or (watch() if watch is not None else '')
            if not complaint and self.joints.age() > self.values.state_timeout:
                complaint = f'No joint states have come for {self.joints.age():.2f} s.'
            if complaint:
                held = 'is held' if self.arm.resting else 'was not seen at rest: keep clear'
                raise DataError(f'{complaint} The arm {held}.')

    async def go_to(
        self, posture: Array, *, phase: str, message: str, share: tuple[float, float],
        watch: Callable[[], str] | None = None,
    ) -> None:
        """Move to a posture on a way that touches nothing; arguments as of ``move``."""
        self.check_stopped()
        path = await self.worker.run(
            self.pulse, connect, self.checker.robot, self.checker, self.joints.posture().copy(),
            posture)
        await self.move(self.path_trajectory(path), phase=phase, message=message, share=share,
                        watch=watch)

    def speed_limits(self) -> tuple[Array, Array]:
        """Return the speeds and accelerations of moves between postures, shape (n,) each."""
        velocity = np.minimum(self.robot.velocity_limit, self.values.max_velocity)
        return velocity, np.full(self.robot.n, self.values.max_acceleration)

    def path_trajectory(self, postures: Array) -> Trajectory:
        """Return a motion through postures, at rest in each."""
        return quintic_path(postures, *self.speed_limits())
