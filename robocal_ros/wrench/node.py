# SPDX-License-Identifier: Apache-2.0
"""Node ``wrench_observer``: how hard, and where, each link between two F/T sensors is pushed."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from std_msgs.msg import String
from std_srvs.srv import Trigger

from robocal_ros.errors import RobocalError
from robocal_ros.messages import marks, qos
from robocal_ros.messages.mark_topic import Marks
from robocal_ros.node.executables import Ending
from robocal_ros.node.process import spin
from robocal_ros.node.robot_node import Destroyable, RobotNode
from robocal_ros.results.result import CalibrationResult
from robocal_ros.results.store import from_yaml, to_yaml
from robocal_ros.robot.friction_law import friction_by_joint
from robocal_ros.robot.setup import effort_factor
from robocal_ros.wrench import estimate
from robocal_ros.wrench.health import WrenchHealth
from robocal_ros.wrench.inputs import WrenchInputs
from robocal_ros.wrench.observer import WrenchObserver
from robocal_ros.wrench.outputs import WrenchOutputs
from robocal_ros.wrench.parameters import TARE, WrenchParameters
from robocal_ros.wrench.procedure import TareProcedure

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
        self._result_publisher = self._publisher(String, '~/result')
        self.outputs: WrenchOutputs = self.part(WrenchOutputs(
            self, self.observer.arm, self.values, self._marker_publisher))
        self.health: WrenchHealth = self.part(WrenchHealth(
            self, self.observer, self.inputs, self.outputs))
        self.marks: Marks = self.part(Marks(self, self.group))
        self._tare = TareProcedure(
            self.observer, self.values, self.identity, self.pulse,
            lambda: self.health.first_reason)
        self.service(TARE, self._on_tare)
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
        self.observer = WrenchObserver(self.robot, self.values)
        for remark in self.observer.remarks:
            self.get_logger().warning(remark)
        self.inputs = self.stream(WrenchInputs(
            self, self.observer, effort_factor(self.robot, self.values),
            max_delay=self.values.max_delay, on_ready=self._observe))
        return self.inputs

    # ---------------------------------------------------------- what others identified

    def _use_results(self) -> None:
        """Use what is stored now, and what is published from now on."""
        values = self.values
        if values.use_payload:
            self._hear('payload', 'payload_identification/result', self._carry)
        if values.use_friction and self.observer.momentum is not None:
            self._hear('friction', 'friction_identification/result',
                       lambda result: self.observer.use_friction(friction_by_joint(result)))
        if values.keep_tare:
            stored = self.store.load(estimate.KIND)
            if stored is not None:
                self.observer.use_bias(estimate.biases(stored, self._tare.taring.names))
                self.publish_tare(stored)

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
        told = self.observer.use_payload(result)
        self._tare.taring.forget()
        self.get_logger().info(told)

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
            if self.observer.tared:
                self.outputs.publish(observation)

    def _poll(self) -> None:
        self.inputs.poll()

    def _look(self) -> None:
        self.outputs.look()
        if self.is_active:
            self.health.report()

    async def _on_tare(self, request: Trigger.Request, response: Trigger.Response) -> Any:
        return await self.answered(TARE, self._run_tare, response)

    async def _run_tare(self) -> str:
        self.status.say('taring', 'Collecting at rest; let nothing touch the arm.')
        outcome = await self._tare.run()
        if outcome.result is not None:
            # Whoever reads a bag can tare with the same samples.
            first, last = outcome.span
            self.marks.say(marks.TARED, TARE, {marks.JOINTS: f'{first!r} {last!r}'})
            self.store.save(outcome.result)
            self.publish_tare(outcome.result)
        return outcome.message

    def publish_tare(self, result: CalibrationResult) -> None:
        """Publish a tare, latched."""
        self._result_publisher.publish(String(data=to_yaml(result)))


def main(ending: Ending | None = None) -> int:
    """Run the node; returns the exit code."""
    return spin(lambda: WrenchObserverNode('wrench_observer'), ending or Ending())


if __name__ == '__main__':
    sys.exit(main())
