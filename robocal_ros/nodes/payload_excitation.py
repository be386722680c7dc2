# SPDX-License-Identifier: Apache-2.0
"""How exciting motions are carried out on the arm: for all ten parameters, and for drive gains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from robocal_ros.capabilities.payload import REFERENCE, check_reference, reads_wrench
from robocal_ros.core.arrays import Array
from robocal_ros.core.excitation import ExcitationPlan, Regressor, plan_excitation
from robocal_ros.core.motion import Trajectory
from robocal_ros.core.payload.body import body_regressor, torque_regressor
from robocal_ros.core.robot import RigidBodyInertia, Robot
from robocal_ros.core.samples import WrenchSamples
from robocal_ros.errors import DataError
from robocal_ros.nodes.wrist_sensor import WristSensor
from robocal_ros.ros.procedure import ProcedureNode

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
