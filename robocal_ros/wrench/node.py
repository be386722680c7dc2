# SPDX-License-Identifier: Apache-2.0
"""Node ``wrench_observer``: how hard, and where, each link between two F/T sensors is pushed."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from std_msgs.msg import String
from std_srvs.srv import Trigger

from robocal_ros.errors import RobocalError
from robocal_ros.messages import qos
from robocal_ros.messages.mark_topic import Marks
from robocal_ros.node.lifecycle import spin
from robocal_ros.node.robot_node import Destroyable, RobotNode
from robocal_ros.results.result import CalibrationResult
from robocal_ros.results.store import from_yaml, to_yaml
from robocal_ros.robot.setup import effort_factor
from robocal_ros.wrench.capability import (
    WrenchParameters,
    make_observer,
    sensors_of,
    use_friction,
    use_payload,
)
from robocal_ros.wrench.health import WrenchHealth
from robocal_ros.wrench.inputs import WrenchInputs
from robocal_ros.wrench.outputs import WrenchOutputs
from robocal_ros.wrench.procedure import TareProcedure
from robocal_ros.wrench.tool import ToolFrame

# How often the node looks after itself [s].
_POLL_PERIOD = 0.02
_LOOK_PERIOD = 0.2
# Observations that are worked off at a time, so that services are served in between.
_AT_A_TIME = 200


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
        self.marks: Marks = self.part(Marks(self, self.group))
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

    def _joint_stream(self) -> WrenchInputs:
        """Return what hears joint states and sensors alike, and hands them to the observer."""
        sensors = sensors_of(self.values, self.robot.urdf)
        self.observer, remarks = make_observer(self.robot, self.values, sensors)
        for remark in remarks:
            self.get_logger().warning(remark)
        self.inputs = self.stream(WrenchInputs(
            self, self.observer, self.robot.joint_names,
            factor=effort_factor(self.robot, self.values), sensors=sensors,
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
        told = use_payload(self.observer, result)
        self._tare.forget_postures()
        self.get_logger().info(told)

    def _use_friction(self, result: CalibrationResult) -> None:
        use_friction(self.observer, self.values, result)

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
