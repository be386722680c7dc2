# SPDX-License-Identifier: Apache-2.0
"""Node ``wrench_observer``: how hard, and where, each link between two F/T sensors is pushed."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from functools import partial
from typing import Any

import numpy as np
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from std_msgs.msg import String
from std_srvs.srv import Trigger

from robocal_ros.capabilities.robot import effort_factor, per_joint
from robocal_ros.core.friction import friction_by_joint
from robocal_ros.core.payload.load import carried_load
from robocal_ros.core.result import CalibrationResult
from robocal_ros.core.wrench.alignment import Feed
from robocal_ros.core.wrench.chains import SensedArm, SensorMount
from robocal_ros.core.wrench.momentum import JointFriction, MomentumObserver
from robocal_ros.core.wrench.observer import WrenchObserver
from robocal_ros.core.wrench.surface import Surface
from robocal_ros.core.wrench.tool import ToolFrame
from robocal_ros.errors import ConfigurationError, RobocalError
from robocal_ros.io.result_yaml import from_yaml, to_yaml
from robocal_ros.nodes.wrench_health import WrenchHealth
from robocal_ros.nodes.wrench_inputs import WrenchInputs
from robocal_ros.nodes.wrench_outputs import WrenchOutputs
from robocal_ros.nodes.wrench_parameters import WrenchParameters, observer_settings
from robocal_ros.nodes.wrench_tare import TareProcedure
from robocal_ros.ros import qos
from robocal_ros.ros.description import mesh_folders
from robocal_ros.ros.lifecycle import spin
from robocal_ros.ros.parameters import named
from robocal_ros.ros.robot_node import Destroyable, RobotNode

# How the names of links begin that an F/T sensor carries.
_PREFIX = 'ft_'
# How often the node looks after itself [s].
_POLL_PERIOD = 0.02
_LOOK_PERIOD = 0.2
# Observations that are worked off at a time, so that services are served in between.
_AT_A_TIME = 200


def per_sensor(values: list[Any], count: int, name: str) -> list[Any]:
    """Return one value for each sensor from one for each or one for all.

    Raises:
        ConfigurationError: If the length fits neither.

    """
    if len(values) not in (1, count):
        raise ConfigurationError(
            f"Parameter '{name}' has {len(values)} values; expected 1 or {count}, one for each "
            'of the sensors.')
    return list(values) if len(values) == count else list(values) * count


def _named_links(urdf: str) -> list[str]:
    """Return the links whose name says that a sensor carries them; checked where they are used."""
    return [name for link in ElementTree.fromstring(urdf).findall('link')
            for name in [link.get('name', '')] if name.startswith(_PREFIX)]


class WrenchObserverNode(RobotNode):
    """Observes; it moves nothing."""

    parameter_table = WrenchParameters

    def _configure(self) -> None:
        super()._configure()
        self.tared = not self.values.require_tare
        arm = self.observer.arm
        self._result_publisher = self._publisher(String, '~/result')
        self._tool_frame = ToolFrame(
            arm, self.values.tool_wrench_source, length=self.values.characteristic_length,
            least=self.values.min_singular_value, damping=self.values.damping)
        self.outputs: WrenchOutputs = self.part(WrenchOutputs(
            self, [chain.link for chain in arm.chains], self._tool_frame,
            self.robot.joint_names, shift=self.values.stamp_estimates,
            markers=self._marker_publisher))
        self.health: WrenchHealth = self.part(WrenchHealth(self))
        self._tare = TareProcedure(self)
        self.service('tare', self._on_tare)
        self._use_results()
        clock = Clock(clock_type=ClockType.STEADY_TIME)
        self._looks = []
        for period, callback in ((_POLL_PERIOD, self._poll), (_LOOK_PERIOD, self._look)):
            timer = self.create_timer(period, callback, self.group, clock=clock)
            timer.cancel()
            self._looks.append(timer)
            self.part(Destroyable(partial(self.destroy_timer, timer)))
        self.status.say('idle', 'Configured; activate to begin.')

    def _check_lists(self) -> None:
        values = self.values
        self._frames = list(named(values.sensor_frames)) or _named_links(self.robot.urdf)
        count = len(self._frames)
        self._topics = (list(values.sensor_topics) if named(values.sensor_topics)
                        else [f'{frame}/wrench' for frame in self._frames])
        for name, given in (('sensor_topics', self._topics),
                            *((name, getattr(values, name)) for name in (
                                'sensor_links', 'imu_topics', 'imu_frames'))):
            if len(given) != count and given != ['']:
                raise ConfigurationError(
                    f"Parameter '{name}' has {len(given)} values; expected {count}, one for each "
                    f'of the sensors {", ".join(self._frames)}.')
        if not all(self._topics):
            raise ConfigurationError(
                'A topic in sensor_topics is empty; expected the topic of an F/T sensor.')
        if len(set(self._topics)) < count:
            raise ConfigurationError(
                'A topic stands twice in sensor_topics; expected one topic for each sensor.')
        for sign in values.sensor_signs:
            if abs(sign) != 1.0:
                raise ConfigurationError(
                    f"Parameter 'sensor_signs' holds {sign:g}; expected 1.0 or -1.0.")

    def _for_each(self, name: str) -> list[Any]:
        return per_sensor(getattr(self.values, name), len(self._frames), name)

    def _mounts(self) -> list[SensorMount]:
        return [SensorMount(frame, link) for frame, link in zip(
            self._frames, self._for_each('sensor_links'), strict=True)]

    def _feeds(self, arm: SensedArm) -> list[Feed]:
        forces, torques = map(self._for_each, ('sensor_force_ranges', 'sensor_torque_ranges'))
        return [
            Feed(mount.frame, max_gap=self.values.max_delay, stuck_time=self.values.stuck_time,
                 ranges=(force,) * 3 + (torque,) * 3)
            for mount, force, torque in zip(arm.mounts, forces, torques, strict=True)
        ]

    def _imus(self) -> dict[int, tuple[str, Feed]]:
        topics, frames = self._for_each('imu_topics'), self._for_each('imu_frames')
        found = {}
        for index, kinematics in enumerate(self._for_each('kinematics')):
            if kinematics != 'imu':
                continue
            if not topics[index] or not frames[index]:
                raise ConfigurationError(
                    f"Kinematics of sensor '{self.values.sensor_frames[index]}' is imu, but "
                    'imu_topics or imu_frames names none for it; expected both.')
            found[index] = (frames[index], Feed(
                frames[index], max_gap=self.values.max_delay, stuck_time=self.values.stuck_time))
        return found

    def _surface(self, arm: SensedArm) -> Surface:
        surface = Surface(arm, mesh_folders(named(self.values.mesh_folders)))
        if surface.blind_links:
            self.get_logger().warning(
                f'No collision geometry for {", ".join(surface.blind_links)}: their meshes were '
                'not found, so no contact point can be told there. Set mesh_folders.')
        chain = arm.chain_of_frame(self.robot.tool_frame)
        if any(self.values.tool_box) and chain is not None:
            surface.add_box(chain, self.robot.tool_frame, self.values.tool_box)
        return surface

    def _momentum(self) -> MomentumObserver | None:
        if not self.values.observe_torque:
            return None
        return MomentumObserver(
            self.robot, self._friction({}), gain=self.values.observer_gain,
            threshold=per_joint(
                self.values.torque_thresholds, self.robot.n, 'torque_thresholds').copy())

    def _friction(self, laws: dict[str, Any]) -> JointFriction:
        return JointFriction(laws, self.robot.joint_names, self.values.friction_width)

    def _joint_stream(self) -> WrenchInputs:
        """Return what hears joint states and sensors alike, and hands them to the observer."""
        self._check_lists()
        arm = SensedArm(self.robot, self._mounts())
        self.observer = WrenchObserver(
            arm, self._feeds(arm), observer_settings(self.values),
            surface=self._surface(arm), imus=self._imus(), momentum=self._momentum())
        self.inputs = self.stream(WrenchInputs(
            self, self.observer, self.robot.joint_names,
            factor=effort_factor(self.robot, self.values),
            signs=self._for_each('sensor_signs'), topics=self._topics,
            imu_topics={index: self._for_each('imu_topics')[index]
                        for index in self.observer.imu_feeds},
            max_delay=self.values.max_delay, on_ready=self._observe))
        return self.inputs

    # ---------------------------------------------------------- what others identified

    def _use_results(self) -> None:
        """Use what is stored now, and what is published from now on."""
        values = self.values
        if values.use_payload:
            self._hear('payload', 'payload_identification/result', self._carry)
        if values.use_friction and self.observer.momentum is not None:
            self._hear('friction', 'friction_identification/result', self._use_friction)
        if values.keep_tare:
            stored = self.store.load('tare')
            if stored is not None:
                self._tare.use(stored)

    def _hear(self, kind: str, topic: str, use: Any) -> None:
        stored = self.store.load(kind)
        if stored is not None:
            use(stored)

        def take(message: String) -> None:
            try:
                use(from_yaml(message.data, self.identity, topic))
            except RobocalError as error:
                self.get_logger().warning(f'{kind.capitalize()} result not used: {error}')

        self.part(self.subscription(String, topic, take, qos.LATCHED))

    def _carry(self, result: CalibrationResult) -> None:
        load = carried_load(result)
        self.observer.carry(load, result.frame)
        self._tare.forget_postures()
        self.get_logger().info(f'The identified payload of {load.mass:.3f} kg is counted.')

    def _use_friction(self, result: CalibrationResult) -> None:
        if self.observer.momentum is not None:
            self.observer.momentum.use(friction=self._friction(friction_by_joint(result)))

    # ---------------------------------------------------------------------- working

    def _activate(self) -> None:
        super()._activate()
        for timer in self._looks:
            timer.reset()
        self.observer.clear()
        self.health.begin()

    def _deactivate(self) -> None:
        if self.values is None or not self._made:
            return
        self._tare.cancel('The node was deactivated.')
        super()._deactivate()
        for timer in self._looks:
            timer.cancel()
        if not self._running:
            self.status.say('idle', 'Inactive.')

    def _release(self) -> None:
        if self._made and hasattr(self, '_tare'):
            self._tare.cancel('The node lets the robot go.')
        super()._release()

    def stop_motion(self, reason: str) -> None:
        """Have a tare end; nothing else is under way here."""
        self._tare.cancel(reason)

    def _observe(self) -> None:
        """Work off what is there."""
        active = self.is_active
        for _ in range(_AT_A_TIME):
            observation = self.observer.take()
            if observation is None:
                return
            if not active:
                continue
            self.health.note(observation)
            if self.tared:
                self.outputs.publish(observation)

    def _poll(self) -> None:
        self.inputs.poll()

    def _look(self) -> None:
        self.outputs.look()
        if self.is_active:
            self.health.report()

    async def _on_tare(self, request: Trigger.Request, response: Trigger.Response) -> Any:
        return await self.answered('tare', self._tare.run, response)

    def publish_tare(self, result: CalibrationResult) -> None:
        """Publish a tare, latched."""
        self._result_publisher.publish(String(data=to_yaml(result)))

    def set_bias(self, bias: np.ndarray) -> None:
        """Take sensor biases off from now on, shape (k, 6) [N, N·m]."""
        self.observer.bias = bias
        self.observer.settle()
        self.tared = True


def main(args: list[str] | None = None) -> None:
    """Run the node."""
    sys.exit(spin(lambda: WrenchObserverNode('wrench_observer'), args))


if __name__ == '__main__':
    main()
