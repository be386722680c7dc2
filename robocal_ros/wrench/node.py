# SPDX-License-Identifier: Apache-2.0
"""Node ``wrench_observer``: external wrenches and contacts on the links of the arm."""

from __future__ import annotations

import sys
from dataclasses import replace

from std_msgs.msg import String

from robocal_ros.messages import marks, temperature_stream, to_seconds
from robocal_ros.node import CalibrationNode, DriveGains, Marks, StopRequest, spin
from robocal_ros.results import CalibrationResult, to_yaml, with_inputs
from robocal_ros.robot import (
    SENSOR_CALIBRATION,
    TORQUE_ZERO,
    check_effort_unit,
    check_efforts,
    effort_factor,
    efforts_of,
    friction_by_joint,
    stored_zero,
)
from robocal_ros.wrench import tare
from robocal_ros.wrench.health import WrenchHealth
from robocal_ros.wrench.inputs import WrenchInputs
from robocal_ros.wrench.observer import WrenchObserver, failure
from robocal_ros.wrench.outputs import ContactReaction, WrenchOutputs
from robocal_ros.wrench.parameters import TARE, ZERO, WrenchParameters
from robocal_ros.wrench.tare_procedure import TareOutcome, TareProcedure

# Observations computed at a time, so that services are answered in between: those of the period in
# which subscribers are looked for, at 2 kHz.
_AT_A_TIME = 400


class WrenchObserverNode(CalibrationNode):
    """Observer of external wrenches; it moves nothing."""

    capability = 'wrench_observer'
    parameter_table = WrenchParameters
    verbs = (*CalibrationNode.verbs, TARE, ZERO)
    values: WrenchParameters
    late_modules = ()
    idle_message = 'Active; waiting for samples.'

    def build(self) -> None:
        """Create observer, inputs and outputs, and use stored and published results."""
        values = self.values
        gains = self.results.gains()
        check_efforts(self.robot, values, gains)
        if values.observe_torque:
            check_effort_unit(values, gains)
        self.observer = WrenchObserver(self.robot, values)
        for remark in self.observer.remarks:
            self.get_logger().warning(remark)
        self.outputs = self.part(WrenchOutputs(self, self.observer, self.markers))
        self.inputs = self.stream(WrenchInputs(
            self, self.observer, effort_factor(self.robot, values), self._observe))
        self.reaction = self.part(ContactReaction(self, [
            chain.link for chain in self.observer.arm.chains])) if values.hold_on_contact else None
        self.health = self.stream(
            WrenchHealth(self, self.observer, self.inputs, self.outputs, self.reaction))
        self.marks = Marks(self)
        self._result_topic = self.publisher(String, '~/result')
        self._zero_topic = self.publisher(String, f'~/{TORQUE_ZERO}')
        self._tare = TareProcedure(
            self.observer, self.waiter.until_stopped, lambda: self.health.first_reason)
        DriveGains(self, self.inputs.set_factor, on_use=self._use_gains)
        if values.use_payload:
            self.results.follow('payload', self._carry)
        if values.use_friction and self.observer.torques is not None:
            self._friction: CalibrationResult | None = None
            self._temperature = float('nan')
            self.results.follow('friction', self._use_friction)
            if values.temperature_topic:
                self.stream(temperature_stream(
                    self, self.group, values.temperature_topic, self._take_temperature))
        zero = self._use_zero(gains)
        if zero is not None:
            self._zero_topic.publish(String(data=to_yaml(zero)))
        self.results.follow(SENSOR_CALIBRATION, self.observer.use_calibration)
        stored = tare.kept(values, self.store.load)
        if stored is not None:
            self.observer.use_tare(stored)
            self._publish(stored)

    def _use_friction(self, result: CalibrationResult) -> None:
        self._friction = result
        self.observer.use_friction(friction_by_joint(result, self._temperature))

    def _take_temperature(self, temperature: float) -> None:
        self._temperature = temperature
        if self._friction is not None:
            self._use_friction(self._friction)

    def _use_gains(self, result: CalibrationResult) -> None:
        """Use drive gains, and the links if they were identified with them."""
        if self.observer.use_gains(result):
            self._tare.clear()
        # The unit of the torques changes.
        self._tare.zeroing.rests.clear()
        self._use_zero(result)

    def _use_zero(self, gains: CalibrationResult | None) -> CalibrationResult | None:
        """Use the stored torque zeros if they were found with these drive gains."""
        found = stored_zero(self.robot, self.values, self.store.load, gains)
        self.observer.use_torque_zero(found)
        return found

    def _carry(self, result: CalibrationResult) -> None:
        message = self.observer.use_payload(result)
        # The recorded samples contain the weights predicted for the previous load.
        self._tare.clear()
        self.get_logger().info(message)

    def _observe(self) -> None:
        """Compute and publish the observations whose samples are complete."""
        # The status shows the newest one only.
        newest = not self.inputs.at_once
        for _ in range(_AT_A_TIME):
            observation = self.observer.take(newest=newest)
            if observation is None:
                return
            if not self.is_active:
                continue
            self.health.note(observation)
            if not self.observer.tared:
                continue
            if self.reaction is not None:
                self.reaction.note(observation)
            try:
                self.outputs.publish(observation)
            except (ArithmeticError, ValueError) as error:
                self.health.note_failure(failure(error))

    # -------------------------------------------------------------------- services

    async def run(self) -> str:
        """Collect samples at rest, and tare."""
        self.status.update('taring', 'Collecting samples at rest; do not touch the arm.')
        # What arrived before the call is not part of it.
        self.inputs.take_all()
        return self._kept(await self._tare.run(self.values))

    async def preview(self) -> str:
        """Say what ``run`` does."""
        return (f'run tares the sensors over {self.values.tare_duration:g} s at rest; it moves '
                'nothing.')

    async def zero(self) -> str:
        """Collect samples at rest, and find torque zeros with those of earlier postures."""
        self.status.update('zeroing', 'Collecting samples at rest; do not touch the arm.')
        self.inputs.take_all()
        outcome = await self._tare.zero(self.values, stored_zero(
            self.robot, self.values, self.store.load, self.results.gains()))
        if outcome.result is not None:
            result = replace(
                with_inputs(outcome.result, tare.inputs_of(
                    self.values, self.results.current, torques=True)),
                efforts=efforts_of(self.robot, self.values))
            self.store.save(result)
            self._zero_topic.publish(String(data=to_yaml(result)))
        return outcome.message

    async def tare(self) -> str:
        """Tare; another name of ``run``."""
        return await self.run()

    async def estimate(self) -> str:
        """Tare with the samples collected last."""
        return self._kept(self._tare.estimate(self.values))

    async def clear(self) -> str:
        """Discard the samples collected last; biases stay."""
        return f'{self._tare.clear()} instants discarded; the tare stays.'

    def _kept(self, outcome: TareOutcome) -> str:
        if outcome.result is not None:
            # Lets the bag reader tare with the same samples.
            first, last = outcome.span
            self.marks.publish(marks.TARED, TARE, {
                marks.JOINTS: f'{to_seconds(first)!r} {to_seconds(last)!r}'})
            result = with_inputs(
                outcome.result, tare.inputs_of(self.values, self.results.current))
            self.store.save(result)
            self._publish(result)
        return outcome.message

    def _publish(self, result: CalibrationResult) -> None:
        """Publish a tare, latched."""
        self._result_topic.publish(String(data=to_yaml(result)))


def main(stop_request: StopRequest | None = None) -> int:
    """Run the node; returns the exit code."""
    return spin(lambda: WrenchObserverNode(WrenchObserverNode.capability), stop_request)


if __name__ == '__main__':
    sys.exit(main())
