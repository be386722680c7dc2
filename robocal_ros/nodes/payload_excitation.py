# SPDX-License-Identifier: Apache-2.0
"""How exciting motions are carried out on the arm: for all ten parameters, and for drive gains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from robocal_ros.core.arrays import Array
from robocal_ros.core.excitation import ExcitationPlan, Regressor, plan_excitation
from robocal_ros.core.friction import SteadyFriction
from robocal_ros.core.motion import Trajectory
from robocal_ros.core.payload import dynamic, gains
from robocal_ros.core.result import CalibrationResult
from robocal_ros.core.robot import RigidBodyInertia, Robot
from robocal_ros.errors import ConfigurationError
from robocal_ros.nodes.payload_two_plane import centre_text, mass_text
from robocal_ros.nodes.wrist_sensor import WristSensor
from robocal_ros.ros.procedure import ProcedureNode

REFERENCE = 'payload_reference'
_REST = 0.5
_PLANNED = 4.0
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
                    share=(_PLANNED, 95.0), watch=watch, limits=limits)
    await node.dwell(_REST, watch)


class ExcitationProcedure:
    """Shakes the payload and reads the wrist sensor or the joint torques."""

    def __init__(self, node: ProcedureNode) -> None:
        """Subscribe to the sensor if it is to be read.

        Raises:
            ConfigurationError: If a parameter does not fit, or the reference run is missing.

        """
        self._node = node
        by_wrench = node.values.excitation_source == 'wrench'
        self.needs_effort = not by_wrench
        self._sensor = WristSensor(node) if by_wrench else None
        if node.values.reference_run == 'subtract' and node.store.load(REFERENCE) is None:
            raise ConfigurationError(
                "reference_run is 'subtract', but no reference is stored: take the tool off and "
                "run once with reference_run 'record'.")

    async def measure(self) -> None:
        """Run the exciting motion."""
        if self._sensor is None:
            await excite(self._node, dynamic.torque_regressor)
            return
        await self._sensor.wait()
        await excite(self._node, _wrench_regressor(self._sensor.frame), self._sensor.complaint)

    def on_sample(self, position: Array, torque: Array) -> None:
        """Single samples tell nothing here."""

    def estimate(self, friction: Mapping[str, SteadyFriction]) -> Callable[[], CalibrationResult]:
        """Return the estimation of what is recorded, ready for a thread."""
        values, samples = self._node.values, self._node.joints.samples()
        robot = self._node.robot.copy()
        settings = dynamic.DynamicSettings(
            max_payload=values.max_payload, max_com_distance=values.max_com_distance)
        sensor = None if self._sensor is None else self._sensor.samples()
        reference = (self._node.store.load(REFERENCE)
                     if values.reference_run == 'subtract' else None)

        def compute() -> CalibrationResult:
            if sensor is None:
                rows = dynamic.torque_rows(robot, samples, settings, friction)
                frame = robot.tool_frame
            else:
                rows = dynamic.wrench_rows(robot, samples, sensor, settings)
                frame = sensor.frame
            if values.reference_run == 'record':
                return replace(dynamic.estimate_reference(robot, rows, frame, settings,
                                                          samples=samples), kind=REFERENCE)
            return dynamic.estimate(robot, rows, frame, settings, samples=samples,
                                    reference=reference)

        return compute

    def summary(self, result: CalibrationResult) -> str:
        """Return mass, centre of mass and moments of inertia in a sentence."""
        if result.kind == REFERENCE:
            return ("Reference recorded: what the arm's own model lacks will be subtracted from "
                    "runs with reference_run 'subtract'.")
        moments = [result.parameter(f'inertia_{axis}') for axis in ('xx', 'yy', 'zz')]
        told = ('not identified' if any(p.value is None for p in moments) else ', '.join(
            f'{p.name[-2:]} {p.value:.5f} ± {1.96 * (p.std or 0.0):.5f}' for p in moments)
            + ' kg·m²')
        return (f'Mass {mass_text(result)}, centre of mass {centre_text(result)}, inertia about '
                f'it {told}.')

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
        return dynamic.body_regressor(robot, frame, q, v, a)

    return rows


class GainCalibration:
    """Effort scales from an exciting motion with a tool of known mass."""

    def __init__(self, node: ProcedureNode) -> None:
        """Remember the node."""
        self._node = node

    async def measure(self) -> Callable[[], CalibrationResult]:
        """Run the exciting motion; returns the estimation, ready for a thread."""
        node = self._node
        settings = gains.GainSettings(node.values.known_mass, node.values.known_mass_std)
        settings.check()
        await excite(node, dynamic.torque_regressor)
        samples = node.joints.samples()
        # Scales in use are taken back: what is estimated replaces them.
        samples = replace(samples, effort=samples.effort * node.effort_scale)
        robot = node.robot.copy()
        return lambda: gains.estimate(robot, samples, settings)

    def summary(self, result: CalibrationResult) -> str:
        """Return the scales in a sentence."""
        told = ', '.join(
            f'{p.name.split(".")[0]} {p.value:.4f} ± {1.96 * (p.std or 0.0):.4f}'
            if p.value is not None else f'{p.name.split(".")[0]} not identified'
            for p in result.parameters)
        return f'Effort scales (measured over delivered torque): {told}.'
