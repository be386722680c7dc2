# SPDX-License-Identifier: Apache-2.0
"""Node ``payload_identification``: mass and centre of mass of what the arm carries."""

from __future__ import annotations

import sys
from collections.abc import Callable

from geometry_msgs.msg import InertiaStamped
from std_msgs.msg import String
from std_srvs.srv import Trigger

from robocal_ros.arrays import Array
from robocal_ros.capability.capability import Needs
from robocal_ros.errors import RobocalError
from robocal_ros.messages import conversions, marks, qos
from robocal_ros.messages.record import within_budget, wrench_within_budget
from robocal_ros.messages.recording import Recording
from robocal_ros.node.lifecycle import spin
from robocal_ros.node.markers import payload_markers
from robocal_ros.node.procedure_node import ProcedureNode
from robocal_ros.payload import estimate
from robocal_ros.payload.estimate import Knowledge, PayloadParameters
from robocal_ros.payload.model import torque_regressor
from robocal_ros.payload.procedure import (
    ExcitationProcedure,
    StaticPosesProcedure,
    TwoPlaneProcedure,
    excite,
)
from robocal_ros.results.result import CalibrationResult
from robocal_ros.results.store import from_yaml, to_yaml
from robocal_ros.robot import effort_scales
from robocal_ros.robot.friction_law import SteadyFriction, friction_by_joint

Method = TwoPlaneProcedure | StaticPosesProcedure | ExcitationProcedure
METHODS: dict[str, type[Method]] = {
    'two_plane': TwoPlaneProcedure,
    'static_poses': StaticPosesProcedure,
    'excitation': ExcitationProcedure,
}


class PayloadIdentification(ProcedureNode):
    """Finds mass and centre of mass of the tool or load."""

    kind = 'payload'
    parameter_table = PayloadParameters

    def _configure_method(self) -> None:
        self._inertia_publisher = self._publisher(InertiaStamped, '~/inertia')
        self._friction: dict[str, SteadyFriction] = {}
        self._method: Method = METHODS[self.values.method](self)
        self._needs_effort = estimate.needs(self.values).effort
        self.joints.need_effort = self._needs_effort
        if self.values.use_friction:
            self._load_friction()
            self.part(self.subscription(
                String, 'friction_identification/result', self._take_friction, qos.LATCHED))
        self._gains_publisher = self._publisher(String, '~/drive_gains')
        self.service('calibrate_gains', self._on_calibrate_gains)
        stored_gains = self.store.load(effort_scales.KIND)
        if stored_gains is not None:
            self._gains_publisher.publish(String(data=to_yaml(stored_gains)))
        last_good = self.store.load('payload')
        if last_good is not None:
            self.publish(last_good)

    def _load_friction(self) -> None:
        """Use stored friction; the method works without it, so a bad file is no obstacle."""
        try:
            stored = self.store.load('friction')
            if stored is not None:
                self._friction = friction_by_joint(stored)
        except RobocalError as error:
            self.get_logger().warning(
                f'Stored friction not used: {error} Identify friction anew, or set use_friction '
                'to false.')

    def _take_friction(self, message: String) -> None:
        """Use a friction result from the moment it is published."""
        try:
            result = from_yaml(message.data, self.identity, 'friction_identification/result')
            self._friction = friction_by_joint(result)
        except RobocalError as error:
            self.get_logger().warning(f'Friction result not used: {error}')

    async def _on_calibrate_gains(
        self, request: Trigger.Request, response: Trigger.Response
    ) -> Trigger.Response:
        async def calibrate() -> CalibrationResult:
            await self.arm.connect(self.values.connect_timeout)
            self._clear()
            self.joints.need_effort = True
            try:
                return await self.estimate(await self._measure_gains())
            finally:
                self.joints.need_effort = self._needs_effort

        return await self.answered('calibrate_gains', calibrate, response)

    async def _measure_gains(self) -> Callable[[], CalibrationResult]:
        estimate.gain_settings(self.values)
        await excite(self, torque_regressor)
        values, robot, scale = self.values, self.robot.copy(), self.effort_scale
        recording = self.recording(estimate.gain_needs(values))
        return lambda: estimate.estimate_gains(robot, recording, values, scale)

    def _on_sample(self, stamp: float, position: Array, torque: Array) -> None:
        self._method.on_sample(position, torque)

    def _record(self, on: bool) -> None:
        super()._record(on)
        self._method.record(on)

    def _clear(self) -> None:
        super()._clear()
        self._method.clear()

    async def _procedure(self) -> CalibrationResult:
        await self._method.measure()
        return await self.estimate()

    def recording(self, needs: Needs) -> Recording:
        """Return what is recorded, as much of it as the estimation works on."""
        spans, joints = self.replayed_spans(), self.joints.samples()
        joints = joints.chosen(spans.of(marks.JOINTS).holds(joints.time))
        readings = {}
        for need in needs.wrenches:
            samples = self._method.readings()
            samples = samples.chosen(spans.of(need.topic).holds(samples.time))
            readings[need.topic] = wrench_within_budget(samples, needs.budget)
        return Recording(within_budget(joints, needs.budget), readings)

    def _newest_stamps(self) -> dict[str, float]:
        return {**super()._newest_stamps(), **self._method.newest_stamps()}

    def _estimate(self) -> Callable[[], CalibrationResult]:
        values, robot = self.values, self.robot.copy()
        known = Knowledge(
            self.store.load('payload'), self.store.load(estimate.REFERENCE), self._friction)
        recording = self.recording(estimate.needs(values))
        return lambda: estimate.estimate_payload(robot, recording, values, known)

    def publish(self, result: CalibrationResult) -> None:
        """Publish a good result; drive gains have a topic of their own, and are used at once."""
        if result.kind != effort_scales.KIND:
            super().publish(result)
            return
        self._gains_publisher.publish(String(data=to_yaml(result)))
        self.apply_drive_gains(result)

    def _publish_details(self, result: CalibrationResult) -> None:
        self._inertia_publisher.publish(conversions.to_inertia(result))
        self.publish_markers(payload_markers(result))

    def _summary(self, result: CalibrationResult) -> str:
        if result.kind == effort_scales.KIND:
            return estimate.gains_summary(result)
        return estimate.summary(result)


def main(args: list[str] | None = None) -> None:
    """Run the node."""
    sys.exit(spin(lambda: PayloadIdentification('payload_identification'), args))


if __name__ == '__main__':
    main()
