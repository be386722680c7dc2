# SPDX-License-Identifier: Apache-2.0
"""The wrist F/T sensor as the payload methods use it."""

from __future__ import annotations

from robocal_ros.core.samples import WrenchSamples
from robocal_ros.errors import ConfigurationError
from robocal_ros.ros.procedure import ProcedureNode
from robocal_ros.ros.streams import WrenchStream


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
