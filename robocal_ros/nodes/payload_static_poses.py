# SPDX-License-Identifier: Apache-2.0
"""How the static-poses method is carried out on the arm."""

from __future__ import annotations

from robocal_ros.core.arrays import Array
from robocal_ros.core.payload.postures import plan_static_poses
from robocal_ros.core.samples import WrenchSamples
from robocal_ros.nodes.wrist_sensor import WristSensor
from robocal_ros.ros.procedure import ProcedureNode

_PLANNED, _MEASURED = 3.0, 93.0


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
