# SPDX-License-Identifier: Apache-2.0
"""How the two-plane method is carried out on the arm, and what it shows meanwhile."""

from __future__ import annotations

from robocal_ros.capabilities.payload import two_plane_settings
from robocal_ros.core.arrays import Array
from robocal_ros.core.motion import Lspb
from robocal_ros.core.payload import two_plane
from robocal_ros.core.payload.model import Plane
from robocal_ros.core.payload.postures import SweepRange, TwoPlanePlan, plan_two_plane
from robocal_ros.core.samples import WrenchSamples, check_effort
from robocal_ros.core.signals import SLOWEST_SWEEP
from robocal_ros.errors import ConfigurationError, DataError, ExcitationError
from robocal_ros.ros.procedure import ProcedureNode

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
