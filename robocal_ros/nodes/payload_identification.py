# SPDX-License-Identifier: Apache-2.0
"""Node ``payload_identification``: mass and centre of mass of what the arm carries."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from geometry_msgs.msg import InertiaStamped
from std_msgs.msg import String
from std_srvs.srv import Trigger

from robocal_ros.core.arrays import Array
from robocal_ros.core.friction import SteadyFriction, friction_by_joint
from robocal_ros.core.payload import gains
from robocal_ros.core.result import CalibrationResult
from robocal_ros.errors import RobocalError
from robocal_ros.io.result_yaml import from_yaml, to_yaml
from robocal_ros.nodes.payload_excitation import ExcitationProcedure, GainCalibration
from robocal_ros.nodes.payload_static_poses import StaticPosesProcedure
from robocal_ros.nodes.payload_two_plane import TwoPlaneProcedure
from robocal_ros.ros import conversions, markers, qos
from robocal_ros.ros.lifecycle import spin
from robocal_ros.ros.parameters import parameter
from robocal_ros.ros.procedure import ProcedureNode, ProcedureParameters

Method = TwoPlaneProcedure | StaticPosesProcedure | ExcitationProcedure
METHODS: dict[str, type[Method]] = {
    'two_plane': TwoPlaneProcedure,
    'static_poses': StaticPosesProcedure,
    'excitation': ExcitationProcedure,
}


@dataclass(frozen=True)
class PayloadParameters(ProcedureParameters):
    """Parameters of payload identification."""

    method: str = parameter(
        'two_plane', 'two_plane: centre of mass from joint torques, the mass being known; '
        'static_poses: mass and centre of mass from a wrist F/T sensor; excitation: all ten '
        'parameters from a fast motion.', choices=tuple(METHODS))
    known_mass: float = parameter(
        0.0, 'Mass of the payload for method two_plane, from a scale; 0 takes it from the stored '
        'result of static_poses.', unit='kg', minimum=0.0, maximum=1000.0)
    known_mass_std: float = parameter(
        0.0, 'Standard deviation of known_mass.', unit='kg', minimum=0.0, maximum=100.0)
    max_payload: float = parameter(
        0.0, 'Heaviest payload the arm may carry; heavier ones are refused. 0 for no limit.',
        unit='kg', minimum=0.0, maximum=1000.0)
    second_joint: str = parameter(
        '', 'Joint of the second plane; empty for the joint before the last, or the next one '
        'before it for which a posture exists.')
    sweep_speed: float = parameter(
        0.25, 'Speed of the sweeps.', unit='rad/s', minimum=0.03, maximum=1.0)
    use_friction: bool = parameter(
        True, 'Subtract identified friction, when there is a result for this arm.')
    sensor_topic: str = parameter('ft_wrist/wrench', 'Topic of the wrist F/T sensor.')
    sensor_frame: str = parameter(
        'ft_wrist', 'Frame of the wrist F/T sensor, a frame of the URDF.')
    sensor_sign: float = parameter(
        1.0, '1 if a hanging tool reads a force along gravity; -1 for sensors that report the '
        'opposite.', minimum=-1.0, maximum=1.0)
    poses: int = parameter(
        14, 'Number of postures of method static_poses.', minimum=6, maximum=100)
    dwell: float = parameter(
        1.0, 'Rest in each posture of method static_poses.', unit='s', minimum=0.7, maximum=60.0)
    posture_std: float = parameter(
        5e-4, 'Standard deviation of the angle between gravity and what URDF and encoders say of '
        'it: sag of the joints, encoder offsets, a base out of level.', unit='rad', minimum=0.0,
        maximum=0.1)
    excitation_source: str = parameter(
        'wrench', 'What method excitation reads: the wrist F/T sensor (wrench), which also shows '
        'inertia, or joint torques (torque).', choices=('wrench', 'torque'))
    excitation_period: float = parameter(
        8.0, 'Period of the exciting motion.', unit='s', minimum=2.0, maximum=60.0)
    excitation_repeats: int = parameter(
        3, 'Periods that are run.', minimum=1, maximum=50)
    excitation_range: float = parameter(
        1.2, 'Farthest excursion of a joint in the exciting motion.', unit='rad', minimum=0.1,
        maximum=3.0)
    excitation_acceleration: float = parameter(
        6.0, 'Largest joint acceleration of the exciting motion; inertia shows in it.',
        unit='rad/s²', minimum=0.1, maximum=100.0)
    reference_run: str = parameter(
        'off', "Method excitation, differentially: 'record' without the tool, then 'subtract' "
        "with it, so that errors of the arm's own model drop out.",
        choices=('off', 'record', 'subtract'))
    max_com_distance: float = parameter(
        1.0, 'Farthest plausible centre of mass from tool_frame.', unit='m', minimum=0.01,
        maximum=10.0)
    max_com_interval: float = parameter(
        0.005, 'Widest half-width of a 95 % interval of the centre of mass that still passes.',
        unit='m', minimum=1e-5, maximum=1.0)


class PayloadIdentification(ProcedureNode):
    """Finds mass and centre of mass of the tool or load."""

    kind = 'payload'
    parameter_table = PayloadParameters

    def _configure_method(self) -> None:
        self._inertia_publisher = self._publisher(InertiaStamped, '~/inertia')
        self._friction: dict[str, SteadyFriction] = {}
        self._method: Method = METHODS[self.values.method](self)
        self.joints.need_effort = self._method.needs_effort
        if self.values.use_friction:
            stored = self.store.load('friction')
            if stored is not None:
                self._friction = friction_by_joint(stored)
            self.part(self.subscription(
                String, 'friction_identification/result', self._take_friction, qos.LATCHED))
        self._gains_publisher = self._publisher(String, '~/drive_gains')
        self._gains = GainCalibration(self)
        self.service('calibrate_gains', self._on_calibrate_gains)
        stored_gains = self.store.load(gains.KIND)
        if stored_gains is not None:
            self._gains_publisher.publish(String(data=to_yaml(stored_gains)))
        last_good = self.store.load('payload')
        if last_good is not None:
            self.publish(last_good)

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
                return await self.estimate(await self._gains.measure())
            finally:
                self.joints.need_effort = self._method.needs_effort

        return await self.answered('calibrate_gains', calibrate, response)

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

    def _estimate(self) -> Callable[[], CalibrationResult]:
        return self._method.estimate(self._friction)

    def publish(self, result: CalibrationResult) -> None:
        """Publish a good result; drive gains have a topic of their own, and are used at once."""
        if result.kind != gains.KIND:
            super().publish(result)
            return
        self._gains_publisher.publish(String(data=to_yaml(result)))
        self.apply_drive_gains(result)

    def _publish_details(self, result: CalibrationResult) -> None:
        self._inertia_publisher.publish(conversions.to_inertia(result))
        self.publish_markers(markers.payload_markers(result))

    def _summary(self, result: CalibrationResult) -> str:
        if result.kind == gains.KIND:
            return self._gains.summary(result)
        return self._method.summary(result)


def main(args: list[str] | None = None) -> None:
    """Run the node."""
    sys.exit(spin(lambda: PayloadIdentification('payload_identification'), args))


if __name__ == '__main__':
    main()
