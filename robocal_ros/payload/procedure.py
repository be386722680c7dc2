# SPDX-License-Identifier: Apache-2.0
"""The wrist F/T sensor as the payload methods use it.

How the two-plane method is carried out on the arm, and what it shows meanwhile.

How the static-poses method is carried out on the arm.

How exciting motions are carried out on the arm: for all ten parameters, and for drive gains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, DataError, ExcitationError
from robocal_ros.estimation.excitation import ExcitationPlan, Regressor, plan_excitation
from robocal_ros.estimation.signals import SLOWEST_SWEEP
from robocal_ros.messages.samples import WrenchSamples, check_effort
from robocal_ros.messages.stream import WrenchStream
from robocal_ros.node.procedure_node import ProcedureNode
from robocal_ros.payload import two_plane
from robocal_ros.payload.estimate import (
    REFERENCE,
    check_reference,
    reads_wrench,
    two_plane_settings,
)
from robocal_ros.payload.model import Plane, body_regressor, torque_regressor
from robocal_ros.payload.plan import SweepRange, TwoPlanePlan, plan_static_poses, plan_two_plane
from robocal_ros.robot.model import RigidBodyInertia, Robot
from robocal_ros.robot.motion import Lspb, Trajectory


class WristSensor:
    """Heard while the node is active, watched while the arm moves.

    Attributes:
        frame: The sensor's frame.

    """

    def __init__(self, node: ProcedureNode) -> None:
        """Prepare to listen.

        Raises:
            ConfigurationError: If the sensor's frame is not in the URDF or its sign is not ±1.

        """
        self._node = node
        values = node.values
        self.frame: str = values.sensor_frame
        node.robot.frame_id(self.frame)
        if abs(values.sensor_sign) != 1.0:
            raise ConfigurationError(f'sensor_sign must be 1.0 or -1.0, got {values.sensor_sign}.')
        self._stream = node.stream(WrenchStream(
            node, node.group, values.sensor_topic, self.frame, values.sensor_sign,
            now=node.pulse.now))

    def complaint(self) -> str:
        """Return what is wrong with the readings, or an empty string."""
        return self._stream.complaint(self._node.values.state_timeout)

    async def wait(self) -> None:
        """Wait for usable readings; raises as ``ArmNode.await_readings``."""
        await self._node.await_readings(self.complaint)

    @property
    def recorded(self) -> int:
        """Number of readings recorded."""
        return self._stream.recorded

    def newest_stamps(self) -> dict[str, float]:
        """Return the newest stamp of the readings by their topic."""
        return {self._node.values.sensor_topic: self._stream.newest}

    def samples(self) -> WrenchSamples:
        """Return what was recorded."""
        return self._stream.samples()

    def clear(self) -> None:
        """Forget what was recorded."""
        self._stream.clear()

    def record(self, on: bool) -> None:
        """Start or end recording."""
        self._stream.recording = on


_PREFLIGHT = 0.3
# Sweeps must be faster than the slowest that is looked for, by this factor.
_LEAST_MARGIN = 1.1
_PLANNED, _APPROACHED, _SWEPT = 5.0, 12.0, 92.0
# Typical scatter of one effort sample, for the interval shown while the joint turns [N·m].
_LIVE_NOISE = 0.1


class TwoPlaneProcedure:
    """Sweeps two joints in both directions and watches the estimate converge."""

    def __init__(self, node: ProcedureNode) -> None:
        """Check what can be checked before the arm moves.

        Raises:
            ConfigurationError: If a parameter does not fit the arm.

        """
        self._node = node
        self._live: tuple[two_plane.PlaneEstimator, float, float, int] | None = None
        if node.values.known_mass > 0.0:
            self.settings()
        elif node.values.second_joint:
            node.robot.index(node.values.second_joint)
        slowest = node.values.sweep_speed * node.values.speed_scale
        if slowest < _LEAST_MARGIN * SLOWEST_SWEEP:
            raise ConfigurationError(
                f'sweep_speed {node.values.sweep_speed} rad/s at speed_scale '
                f'{node.values.speed_scale} makes sweeps of {slowest:.4g} rad/s; at least '
                f'{_LEAST_MARGIN * SLOWEST_SWEEP:.4g} rad/s are needed to tell them from rest. '
                'Raise one of the two.')

    def settings(self) -> two_plane.TwoPlaneSettings:
        """Return the settings; errors as of ``two_plane_settings``."""
        node = self._node
        return two_plane_settings(node.robot, node.values, node.store.load('payload'))

    async def measure(self) -> None:
        """Move through both planes and the held-out sweeps, and back to where it began."""
        node = self._node
        settings = self.settings()
        await node.dwell(_PREFLIGHT)
        # The newer half: what was still on its way when run was called is not now's effort.
        samples = node.joints.samples()
        check_effort(samples.rows(len(samples) // 2, len(samples)), node.robot.joint_names[-1:])
        home = node.joints.posture().copy()
        node.status.say('planning', 'Searching a posture with two horizontal axes.', progress=0.0)
        plan: TwoPlanePlan = await node.worker.run(
            node.pulse, plan_two_plane, node.checker.robot, node.checker, home,
            mass=settings.known_mass, second_joint=node.values.second_joint)
        node.check_stopped()
        await node.move(node.path_trajectory(plan.approach), phase='moving',
                        message='Moving to the start posture.', share=(_PLANNED, _APPROACHED))
        width = (_SWEPT - _APPROACHED) / len(plan.sweeps)
        for number, sweep in enumerate(plan.sweeps):
            await self._sweep(sweep, settings.known_mass, _APPROACHED + number * width, width)
        await node.go_to(home, phase='moving', message='Moving back to where it began.',
                         share=(_SWEPT, 98.0))

    async def _sweep(
        self, sweep: SweepRange, mass: float, begin: float, width: float
    ) -> None:
        node = self._node
        name = node.robot.joint_names[sweep.joint]
        await node.go_to(sweep.end(high=False), phase='moving',
                         message=f'Moving to the start of a sweep of {name}.',
                         share=(begin, begin + 0.2 * width))
        speed = min(node.values.sweep_speed, 0.9 * float(node.robot.velocity_limit[sweep.joint]))
        try:
            plane = Plane.at(node.robot, sweep.posture, sweep.joint)
            tracker = two_plane.PlaneEstimator(plane, mass, _LIVE_NOISE)
        except ExcitationError:
            # A held-out sweep may be about a steep axis; it still validates what it can.
            tracker = None
        what = 'held-out sweep' if sweep.held_out else 'sweep'
        for turn, (start, goal) in enumerate(((sweep.low, sweep.high), (sweep.high, sweep.low))):
            segment = Lspb.with_acceleration(start, goal, speed, node.values.max_acceleration)
            margin = 0.5 * speed * segment.blend + 0.3 * speed
            if tracker is not None and not sweep.held_out:
                self._live = (tracker, sweep.low + margin, sweep.high - margin,
                              1 if goal > start else -1)
            try:
                await node.move(
                    segment.trajectory(sweep.posture, sweep.joint), phase='sweeping',
                    message=f'{what.capitalize()} of {name} '
                            f'{"forward" if goal > start else "backward"}.',
                    share=(begin + (0.2 + 0.4 * turn) * width,
                           begin + (0.6 + 0.4 * turn) * width))
            finally:
                self._live = None

    def on_sample(self, position: Array, torque: Array) -> None:
        """Feed the recursive estimate while the joint turns at constant speed."""
        if self._live is None:
            return
        tracker, low, high, direction = self._live
        joint = tracker.plane.joint
        if not low < position[joint] < high:
            return
        own = float(self._node.robot.gravity_torque(position)[joint])
        tracker.update(float(position[joint]), float(torque[joint]) - own, direction)
        if tracker.filter.count % 25 == 0:
            (x, y), (sx, sy) = tracker.filter.value[:2], tracker.filter.std()[:2]
            name = self._node.robot.joint_names[joint]
            self._node.status.note(**{
                f'{name}: lever along gravity [m]': f'{x:.5f} ± {1.96 * sx:.5f}',
                f'{name}: lever sideways [m]': f'{y:.5f} ± {1.96 * sy:.5f}'})

    def clear(self) -> None:
        """Joint states are all there is to forget."""

    def record(self, on: bool) -> None:
        """Joint states are all there is to record."""

    def readings(self) -> WrenchSamples:
        """Refuse; no sensor is read here."""
        raise DataError("Method 'two_plane' reads no F/T sensor.")

    def newest_stamps(self) -> dict[str, float]:
        """Return nothing; joint states are all there is."""
        return {}


_POSTURES_PLANNED, _MEASURED = 3.0, 93.0


class StaticPosesProcedure:
    """Goes from posture to posture and lets the wrist sensor settle in each."""

    def __init__(self, node: ProcedureNode) -> None:
        """Subscribe to the sensor.

        Raises:
            ConfigurationError: If the sensor's frame is not in the URDF or its sign is not ±1.

        """
        self._node = node
        self._sensor = WristSensor(node)

    async def measure(self) -> None:
        """Visit the postures, and go back to where it began."""
        node = self._node
        await self._sensor.wait()
        home = node.joints.posture().copy()
        node.status.say('planning', 'Choosing postures.', progress=0.0)
        postures: Array = await node.worker.run(
            node.pulse, plan_static_poses, node.checker.robot, node.checker, home,
            sensor_frame=node.values.sensor_frame, count=node.values.poses)
        width = (_MEASURED - _POSTURES_PLANNED) / len(postures)
        for number, posture in enumerate(postures):
            begin = _POSTURES_PLANNED + number * width
            what = f'posture {number + 1} of {len(postures)}'
            await node.go_to(posture, phase='moving', message=f'Moving to {what}.',
                             share=(begin, begin + 0.7 * width), watch=self._sensor.complaint)
            node.status.say('measuring', f'Resting in {what}.', progress=begin + 0.7 * width,
                            readings=str(self._sensor.recorded))
            await node.dwell(node.values.dwell, watch=self._sensor.complaint)
        await node.go_to(home, phase='moving', message='Moving back to where it began.',
                         share=(_MEASURED, 98.0))

    def on_sample(self, position: Array, torque: Array) -> None:
        """Single samples tell nothing here."""

    def readings(self) -> WrenchSamples:
        """Return what the sensor recorded."""
        return self._sensor.samples()

    def clear(self) -> None:
        """Forget the readings."""
        self._sensor.clear()

    def record(self, on: bool) -> None:
        """Start or end recording the sensor."""
        self._sensor.record(on)

    def newest_stamps(self) -> dict[str, float]:
        """Return the newest stamp of the sensor's readings by its topic."""
        return self._sensor.newest_stamps()


_REST = 0.5
_MOTION_PLANNED = 4.0
# Mass that a plan allows for while the payload's is not known [kg].
_GUESS = 1.0


async def excite(
    node: ProcedureNode, regressor: Regressor, watch: Callable[[], str] | None = None
) -> None:
    """Plan an exciting motion about where the arm is, and run it.

    Args:
        node: The node.
        regressor: Rows that one instant adds.
        watch: Says when data are lost.

    """
    values = node.values
    home = node.joints.posture().copy()
    limits = replace(node.limits, acceleration=np.full(
        node.robot.n, values.excitation_acceleration))
    plan = ExcitationPlan(duration=values.excitation_period, repeats=values.excitation_repeats,
                          max_range=values.excitation_range)
    guess = RigidBodyInertia(values.known_mass or _GUESS, np.zeros(3), np.zeros((3, 3)))
    node.status.say('planning', 'Choosing an exciting motion.', progress=0.0)
    trajectory: Trajectory = await node.worker.run(
        node.pulse, plan_excitation, node.checker.robot.with_payload(guess), node.checker, limits,
        home, regressor, plan)
    node.check_stopped()
    await node.dwell(_REST, watch)
    await node.move(trajectory, phase='exciting', message='Running the exciting motion.',
                    share=(_MOTION_PLANNED, 95.0), watch=watch, limits=limits)
    await node.dwell(_REST, watch)


class ExcitationProcedure:
    """Shakes the payload and reads the wrist sensor or the joint torques."""

    def __init__(self, node: ProcedureNode) -> None:
        """Subscribe to the sensor if it is to be read.

        Raises:
            ConfigurationError: If a parameter does not fit, or the reference run is missing.

        """
        self._node = node
        self._sensor = WristSensor(node) if reads_wrench(node.values) else None
        check_reference(node.values, node.store.load(REFERENCE))

    async def measure(self) -> None:
        """Run the exciting motion."""
        if self._sensor is None:
            await excite(self._node, torque_regressor)
            return
        await self._sensor.wait()
        await excite(self._node, _wrench_regressor(self._sensor.frame), self._sensor.complaint)

    def on_sample(self, position: Array, torque: Array) -> None:
        """Single samples tell nothing here."""

    def readings(self) -> WrenchSamples:
        """Return what the sensor recorded; raises DataError where none is read."""
        if self._sensor is None:
            raise DataError('Joint torques are read here, and no F/T sensor.')
        return self._sensor.samples()

    def newest_stamps(self) -> dict[str, float]:
        """Return the newest stamp of the sensor's readings by its topic."""
        return {} if self._sensor is None else self._sensor.newest_stamps()

    def clear(self) -> None:
        """Forget the readings."""
        if self._sensor is not None:
            self._sensor.clear()

    def record(self, on: bool) -> None:
        """Start or end recording the sensor."""
        if self._sensor is not None:
            self._sensor.record(on)


def _wrench_regressor(frame: str) -> Regressor:
    def rows(robot: Robot, q: Array, v: Array, a: Array) -> Array:
        return body_regressor(robot, frame, q, v, a)

    return rows
