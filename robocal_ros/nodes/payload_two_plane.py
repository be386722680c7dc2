# SPDX-License-Identifier: Apache-2.0
"""How the two-plane method is carried out on the arm, and what it shows meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from robocal_ros.core.arrays import Array
from robocal_ros.core.friction import SteadyFriction
from robocal_ros.core.motion import Lspb
from robocal_ros.core.payload import two_plane
from robocal_ros.core.payload.model import Plane
from robocal_ros.core.payload.postures import SweepRange, TwoPlanePlan, plan_two_plane
from robocal_ros.core.result import CalibrationResult
from robocal_ros.core.samples import check_effort
from robocal_ros.errors import ConfigurationError, ExcitationError
from robocal_ros.ros.procedure import ProcedureNode

_PREFLIGHT = 0.3
_PLANNED, _APPROACHED, _SWEPT = 5.0, 12.0, 92.0
# Typical scatter of one effort sample, for the interval shown while the joint turns [N·m].
_LIVE_NOISE = 0.1


class TwoPlaneProcedure:
    """Sweeps two joints in both directions and watches the estimate converge."""

    needs_effort = True

    def __init__(self, node: ProcedureNode) -> None:
        """Check what can be checked before the arm moves.

        Raises:
            ConfigurationError: If a parameter does not fit the arm.

        """
        self._node = node
        self._live: tuple[two_plane.PlaneEstimator, float, float, int] | None = None
        if node.values.known_mass > 0.0:
            self._settings(node.values.known_mass, node.values.known_mass_std).check(node.robot)
        elif node.values.second_joint:
            node.robot.index(node.values.second_joint)

    def _settings(self, mass: float, std: float) -> two_plane.TwoPlaneSettings:
        values = self._node.values
        return two_plane.TwoPlaneSettings(
            known_mass=mass, known_mass_std=std, second_joint=values.second_joint,
            max_payload=values.max_payload, max_com_distance=values.max_com_distance,
            max_com_interval=values.max_com_interval, posture_std=values.posture_std,
        )

    def settings(self) -> two_plane.TwoPlaneSettings:
        """Return the settings; the mass is the parameter's, else that of the stored result.

        Raises:
            ConfigurationError: If there is neither, or the mass is over the limit.

        """
        values = self._node.values
        mass, std = values.known_mass, values.known_mass_std
        if mass <= 0.0:
            stored = self._node.store.load('payload')
            known = None if stored is None else stored.parameter('mass')
            if known is None or known.value is None:
                raise ConfigurationError(
                    "Method 'two_plane' needs the payload's mass: set known_mass (kg, from a "
                    "scale), or run method 'static_poses' first; its result is then used."
                )
            mass, std = known.value, known.std or 0.0
        settings = self._settings(mass, std)
        settings.check(self._node.robot)
        return settings

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

    def estimate(self, friction: Mapping[str, SteadyFriction]) -> Callable[[], CalibrationResult]:
        """Return the estimation of what is recorded, ready for a thread."""
        samples, settings = self._node.joints.samples(), self.settings()
        robot = self._node.robot.copy()
        return lambda: two_plane.estimate(robot, samples, settings, friction)

    def summary(self, result: CalibrationResult) -> str:
        """Return the centre of mass in a sentence."""
        return f'Centre of mass {centre_text(result)} for a mass of {mass_text(result)}.'

    def clear(self) -> None:
        """Joint states are all there is to forget."""

    def record(self, on: bool) -> None:
        """Joint states are all there is to record."""


def centre_text(result: CalibrationResult) -> str:
    """Return the centre of mass with 95 % intervals in words."""
    parts = []
    for name in two_plane.COM:
        parameter = result.parameter(name)
        value, std = parameter.value or 0.0, parameter.std or 0.0
        parts.append(f'{name[-1]} {1e3 * value:.2f} ± {1.96e3 * std:.2f} mm')
    return f'{", ".join(parts)} in {result.frame} (95 %)'


def mass_text(result: CalibrationResult) -> str:
    """Return the mass in words."""
    parameter = result.parameter('mass')
    value: Any = parameter.value if parameter.value is not None else np.nan
    interval = f' ± {1.96 * parameter.std:.4f}' if parameter.std else ''
    return f'{value:.4f}{interval} kg'
