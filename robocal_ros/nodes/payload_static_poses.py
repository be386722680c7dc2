# SPDX-License-Identifier: Apache-2.0
"""How the static-poses method is carried out on the arm."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from robocal_ros.core.arrays import Array
from robocal_ros.core.friction import SteadyFriction
from robocal_ros.core.payload import static_poses
from robocal_ros.core.payload.postures import plan_static_poses
from robocal_ros.core.result import CalibrationResult
from robocal_ros.nodes.payload_two_plane import centre_text, mass_text
from robocal_ros.nodes.wrist_sensor import WristSensor
from robocal_ros.ros.procedure import ProcedureNode

_PLANNED, _MEASURED = 3.0, 93.0


class StaticPosesProcedure:
    """Goes from posture to posture and lets the wrist sensor settle in each."""

    needs_effort = False

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
        width = (_MEASURED - _PLANNED) / len(postures)
        for number, posture in enumerate(postures):
            begin = _PLANNED + number * width
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

    def estimate(self, friction: Mapping[str, SteadyFriction]) -> Callable[[], CalibrationResult]:
        """Return the estimation of what is recorded, ready for a thread."""
        joints, readings = self._node.joints.samples(), self._sensor.samples()
        settings = static_poses.StaticPosesSettings(
            max_payload=self._node.values.max_payload,
            max_com_distance=self._node.values.max_com_distance,
            max_com_interval=self._node.values.max_com_interval)
        robot = self._node.robot.copy()
        return lambda: static_poses.estimate(robot, joints, readings, settings)

    def summary(self, result: CalibrationResult) -> str:
        """Return mass and centre of mass in a sentence."""
        return f'Mass {mass_text(result)}, centre of mass {centre_text(result)}.'

    def clear(self) -> None:
        """Forget the readings."""
        self._sensor.clear()

    def record(self, on: bool) -> None:
        """Start or end recording the sensor."""
        self._sensor.record(on)
