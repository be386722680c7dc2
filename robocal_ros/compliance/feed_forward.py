# SPDX-License-Identifier: Apache-2.0
"""Use of identified compliance: ``~/deflection`` and sag-corrected trajectories."""

from __future__ import annotations

import numpy as np
from geometry_msgs.msg import Vector3, Vector3Stamped

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError, MotionError
from robocal_ros.messages import conversions, qos
from robocal_ros.node import ArmNode
from robocal_ros.results import CalibrationResult
from robocal_ros.robot import Robot, SagCorrection, Trajectory, compliance_by_joint

# Period of predictions by stamps [s].
_PERIOD = 0.02


class SagFeedForward:
    """Publisher of the predicted sag, and filter that corrects trajectories for it."""

    def __init__(self, node: ArmNode) -> None:
        """Create the topics; nothing is predicted before a result is used."""
        self._node = node
        self._robot = node.robot.copy()
        self._carrying = self._robot
        self._compliance: dict[str, float] = {}
        self._correction: SagCorrection | None = None
        self._published = -np.inf
        self._message = Vector3Stamped()
        self._message.header.frame_id = node.robot.root_frame
        self._deflection = node.publisher(Vector3Stamped, '~/deflection', qos.RELIABLE)
        node.filter_trajectories(self._corrected)
        node.joints.listen(self._on_state, lambda: self.subscribed)

    @property
    def subscribed(self) -> bool:
        """True while somebody subscribes to the deflection."""
        return self._deflection.get_subscription_count() > 0

    def use(self, result: CalibrationResult) -> None:
        """Use a compliance result."""
        self._compliance = compliance_by_joint(result)
        self._prepare()

    def carry(self, robot: Robot, carrying: Robot) -> None:
        """Use the arm, without and with its present payload."""
        self._robot, self._carrying = robot, carrying
        self._prepare()

    @property
    def _payload_alone(self) -> bool:
        return not self._node.values.correct_own_weight

    def _prepare(self) -> None:
        if self._compliance:
            self._correction = SagCorrection(self._robot, self._carrying, self._compliance)

    def _on_state(
        self, stamp: float, _position: Array, _velocity: Array, _effort: Array
    ) -> None:
        """Publish the sag at the latest joint state."""
        if (self._correction is None or not self._node.is_active
                or abs(stamp - self._published) < _PERIOD or not self.subscribed
                or (latest := self._node.joints.latest) is None):
            return
        self._published = stamp
        x, y, z = self._correction.sag(latest[1], payload_alone=self._payload_alone)
        self._message.header.stamp = conversions.to_stamp(latest[0])
        self._message.vector = Vector3(x=float(x), y=float(y), z=float(z))
        self._deflection.publish(self._message)

    def _corrected(self, trajectory: Trajectory) -> dict[str, Array | None]:
        """Return a trajectory corrected for the sag, by field of its points."""
        if self._correction is None:
            raise DataError('no compliance is identified yet. Call run, or measure_unloaded and '
                            'measure_loaded.')
        corrected = self._correction.corrected(trajectory, payload_alone=self._payload_alone)
        robot = self._robot
        beyond = np.maximum(corrected.position - robot.upper,
                            robot.lower - corrected.position).max(axis=0)
        joint = int(np.argmax(beyond))
        if beyond[joint] > 0.0:
            raise MotionError(
                f"corrected for the sag, joint '{robot.joint_names[joint]}' exceeds its limit by "
                f'{beyond[joint]:.2e} rad. Plan the trajectory with that margin.')
        return {'positions': corrected.position, 'velocities': corrected.velocity,
                'accelerations': corrected.acceleration}
