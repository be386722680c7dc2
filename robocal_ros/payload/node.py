# SPDX-License-Identifier: Apache-2.0
"""Node ``payload_identification``: mass, centre of mass and inertia of the payload."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import numpy as np
import scipy
from geometry_msgs.msg import InertiaStamped, WrenchStamped
from visualization_msgs.msg import Marker, MarkerArray

from robocal_ros import registry
from robocal_ros.arm import PreviewArm, PreviewRecorder, PreviewReport
from robocal_ros.errors import CancelledError, ConfigurationError, RobocalError
from robocal_ros.estimators import Estimator
from robocal_ros.messages import (
    Recording,
    WrenchIntake,
    WrenchStream,
    conversions,
    marks,
    temperature_stream,
)
from robocal_ros.node import Answer, ArmNode, DriveGains, Journal, spin
from robocal_ros.payload import estimator
from robocal_ros.payload.arm_identification import check_load
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.procedure import GUESS, KeptPostures, PayloadProcedure
from robocal_ros.payload.result import COM
from robocal_ros.payload.static_poses import check_weighed
from robocal_ros.results import CalibrationResult, Inputs, Verdict, absence
from robocal_ros.robot import ARM, DRIVE_GAINS, carried_load, check_effort_unit, friction_by_joint

Motions = Callable[[PayloadProcedure], Awaitable[None]]
"""Motions of a calibration."""


class PayloadIdentification(ArmNode):
    """Lifecycle node that identifies payload and arm, and calibrates drives and wrist sensor."""

    capability = 'payload_identification'
    parameter_table = PayloadParameters
    verbs = (*ArmNode.verbs, 'calibrate_gains', 'preview_calibrate_gains', 'preview_after_gains',
             'identify_arm', 'preview_identify_arm',
             'calibrate_sensor', 'preview_calibrate_sensor')
    values: PayloadParameters
    journal: Journal[KeptPostures]
    _sensor: WrenchStream | None

    def check(self, values: PayloadParameters) -> None:
        """Check the parameters against the robot and stored results."""
        estimator.check(self.robot, values, self.store.load)

    def build(self) -> None:
        """Create streams, arm and recorder, and publish the last good results."""
        values = self.values
        self.make_arm()
        needs = estimator.needs(values)
        self.joints.need_effort, self._sensor = needs.effort, None
        for need in needs.wrenches:
            self._sensor = self.stream(WrenchStream(
                self, self.group, WrenchStamped, need.topic, WrenchIntake(
                    self.resolve_topic_name(need.topic), need.frame, need.sign,
                    need.message_frame), now=self.waiter.now, busy=lambda: self.busy,
                remedy='Check sensor_topic and the sensor.'))
        self._gains = DriveGains(self, self.joints.set_factor)
        temperature = self.stream(temperature_stream(
            self, self.group, values.temperature_topic)) if values.temperature_topic else None
        self.make_recorder('payload', KeptPostures, temperature=temperature, wrenches={
            values.sensor_topic: self._sensor} if self._sensor is not None else {})
        if values.use_friction:
            self.results.follow('friction', friction_by_joint, remedy=(
                'Identify friction anew, or set use_friction to false.'))
        self._inertia_topic = self.publisher(InertiaStamped, '~/inertia')
        for kind in registry.of_node(self.capability).results:
            if stored := self.store.load(kind):
                self._publish(stored)

    # -------------------------------------------------------------------- services

    async def run(self) -> Answer:
        """Run the motions of ``values.method``, and estimate."""
        inputs = self._inputs(estimator.PAYLOAD)
        if self._sensor is None:
            check_effort_unit(self.values, inputs.gains)
        await self.arm.connect()
        await self._move_or_resume()
        return await self.journal.ended_by(self.estimate)

    async def _move_or_resume(self) -> None:
        """Run the motions, or the rest of them after an unfinished run."""
        procedure, kept = self._procedure(), await self.journal.resume()
        if kept is not None and self._sensor is not None:
            reason = await procedure.changed(self._sensor, kept)
            if not reason:
                await procedure.static_poses(self._sensor, self.journal.keep, kept)
                return
            self.get_logger().warning(f'{reason} Measuring begins anew.')
            self.journal.forget()
        self.recorder.clear()
        await procedure.run(self._sensor, self.store.load, self.journal.keep)

    async def rehearse(self, arm: PreviewArm) -> str:
        """Carry out the motions of ``values.method`` in a dry run."""
        procedure = self._rehearsal(arm)
        await procedure.run(self._sensor, self.store.load)
        return (f'{procedure.remark}Method {self.values.method}. '
                f'{await self._expected(estimator.PAYLOAD, arm)}')

    def _rehearsal(self, arm: PreviewArm) -> PayloadProcedure:
        return PayloadProcedure(
            arm, PreviewRecorder(self.joints), PreviewReport(self.status), self.values)

    async def _expected(self, *given: Any) -> str:
        """Return what an estimate will state; arguments as for ``_foreseen``."""
        try:
            return estimator.expected_text(await self._foreseen(*given))
        except CancelledError:
            raise
        except RobocalError as error:
            return estimator.refused_text(error)

    async def _foreseen(
        self, by: Estimator, arm: PreviewArm, mass: float | None = None,
        gains: CalibrationResult | None = None,
    ) -> CalibrationResult:
        """Return the expected result of the motions of a dry run.

        Args:
            by: The estimator.
            arm: The arm of the dry run.
            mass: Mass of the load [kg]; by default known_mass, or a guess.
            gains: Drive gains that will be in use; by default those that are.

        Raises:
            RobocalError: If it is expected to be refused.

        """
        values, robot, stored = self.values, self.robot.copy(), self.store.load('payload')
        if mass is None:
            mass = values.known_mass or (GUESS if stored is None else carried_load(stored).mass)
        joints, readings = PreviewRecorder(self.joints).samples(), {}
        if self._sensor is not None:
            readings[values.sensor_topic] = self._sensor.samples(joints.time[0])
        inputs, motion = self._inputs(by), arm.sampled(joints)
        if gains is not None:
            inputs = inputs.with_gains(gains)
        return await self.compute(lambda: estimator.expected_result(
            by, robot, values, inputs, motion, Recording(joints, readings), mass))

    async def estimate(self) -> Answer:
        """Estimate the payload from the recorded samples."""
        return await self._estimated(
            estimator.PAYLOAD, self.recorder.recording(
                estimator.needs(self.values), words={marks.METHOD: self.values.method}))

    async def _estimated(self, by: Estimator, recording: Recording) -> Answer:
        values, robot, inputs = self.values, self.robot.copy(), self._inputs(by)
        result = await self.compute(lambda: by.result(robot, recording, values, inputs))
        return self.keep(result, self._publish_and_use, by.summary)

    def _inputs(self, by: Estimator) -> Inputs:
        """Return the inputs of an estimate; they are refused before anything moves."""
        return by.inputs(self.robot, self.values, self.results.current)

    async def clear(self) -> str:
        """Discard the recorded samples."""
        self.journal.forget()
        return f'{self.recorder.clear()} samples discarded.'

    async def calibrate_gains(self) -> Answer:
        """Run an exciting motion with a tool of known mass, and estimate the drive gains."""
        self.values.check_weighed('calibrate_gains')
        return await self._calibrated(estimator.GAINS, PayloadProcedure.excitation)

    async def preview_calibrate_gains(self) -> str:
        """Plan and check the motion of `calibrate_gains` and show it, without moving."""
        self.values.check_weighed('calibrate_gains')
        return await self._previewed(
            'Drive gains', estimator.GAINS, PayloadProcedure.excitation)

    async def preview_after_gains(self) -> str:
        """Preview ``values.method`` with the drive gains that `calibrate_gains` will find."""
        self.values.check_weighed('preview_after_gains')
        if estimator.reads_wrench(self.values):
            raise ConfigurationError(
                'This method reads the F/T sensor, which needs no drive gains: call preview, or '
                "set method to 'two_plane', or excitation_source to 'torque'.")
        return await self.dry_run(self._rehearse_after_gains)

    async def _rehearse_after_gains(self, arm: PreviewArm) -> str:
        calibration = PreviewArm(self.arm, self.status)
        await self._rehearsal(calibration).excitation()
        try:
            gains = await self._foreseen(estimator.GAINS, calibration)
        except CancelledError:
            raise
        except RobocalError as error:
            return f'Drive gains. {estimator.refused_text(error)}'
        if gains.verdict is not Verdict.PASS:
            return f'Drive gains. {estimator.expected_text(gains)}'
        await self._rehearsal(arm).run(self._sensor, self.store.load)
        return (f'Method {self.values.method}, after calibrate_gains. '
                f'{await self._expected(estimator.PAYLOAD, arm, None, gains)}')

    async def identify_arm(self) -> Answer:
        """Run an exciting motion, and identify the arm, without load or with ``arm_load``."""
        self._check_arm_load()
        check_effort_unit(self.values, self._inputs(estimator.ARM_IDENTIFICATION).gains)
        return await self._calibrated(
            estimator.ARM_IDENTIFICATION, PayloadProcedure.arm_excitation)

    async def preview_identify_arm(self) -> str:
        """Plan and check the motion of `identify_arm` and show it, without moving."""
        self._check_arm_load()
        return await self._previewed('Arm', estimator.ARM_IDENTIFICATION,
                                     PayloadProcedure.arm_excitation, self.values.arm_load)

    async def calibrate_sensor(self) -> Answer:
        """Measure a weighed tool in postures at rest, and estimate the sensor's matrix."""
        check_weighed(self.values)
        return await self._calibrated(estimator.SENSOR, self._method)

    async def preview_calibrate_sensor(self) -> str:
        """Plan and check the motion of `calibrate_sensor` and show it, without moving."""
        check_weighed(self.values)
        return await self._previewed('Sensor', estimator.SENSOR, self._method)

    def _check_arm_load(self) -> None:
        check_load(self.values, self.store.load(ARM), absence(self.store.load, ARM))

    async def _method(self, procedure: PayloadProcedure) -> None:
        await procedure.run(self._sensor, self.store.load)

    async def _calibrated(self, by: Estimator, motions: Motions) -> Answer:
        """Run motions, and estimate from their samples, all of them with effort if it is read."""
        self._inputs(by)
        await self.arm.connect()
        self.recorder.clear()
        needs = by.needs(self.values)
        self.joints.need_effort = needs.effort
        try:
            await motions(self._procedure())
            recording = self.recorder.recording(needs, words=(
                None if needs.effort else {marks.METHOD: self.values.method}))
        finally:
            self.joints.need_effort = estimator.needs(self.values).effort
        return await self._estimated(by, recording)

    async def _previewed(
        self, what: str, by: Estimator, motions: Motions, mass: float | None = None
    ) -> str:
        """Carry out motions in a dry run, and return what an estimate will state."""
        async def rehearsed(arm: PreviewArm) -> str:
            await motions(self._rehearsal(arm))
            return f'{what}. {await self._expected(by, arm, mass)}'

        return await self.dry_run(rehearsed)

    def _procedure(self) -> PayloadProcedure:
        return PayloadProcedure(self.arm, self.recorder, self.status, self.values)

    # --------------------------------------------------------------------- results

    def _publish(self, result: CalibrationResult) -> None:
        """Publish a result; a reference run is only read from its file."""
        self.publish_result(result)
        if result.kind == 'payload':
            self._inertia_topic.publish(conversions.to_inertia(result))
            self.publish_markers(payload_markers(result))

    def _publish_and_use(self, result: CalibrationResult) -> None:
        """Publish a result, and use its drive gains, if any, from now on."""
        self._publish(result)
        if result.kind in (DRIVE_GAINS, ARM):
            self._gains.use(result)


# ----------------------------------------------------------------------------- markers

# Smallest diameter that is visible and clickable in RViz [m].
_VISIBLE = 2e-4


def payload_markers(result: CalibrationResult) -> MarkerArray:
    """Return centre of mass, its 95 % ellipsoid, and the equivalent inertia ellipsoid.

    The latter is the homogeneous ellipsoid of the same mass and inertia; it is omitted if the
    inertia was not identified.
    """
    com = result.values(COM)
    variances, axes = np.linalg.eigh(result.covariance_of(COM))
    half = np.sqrt(np.maximum(variances, 0.0) * scipy.special.chdtri(3, 0.05))
    ellipsoids = [('centre_of_mass', np.eye(3), np.full(3, 0.012), (0.95, 0.45, 0.1, 1.0)),
                  ('interval_95', axes, 2.0 * half, (0.95, 0.8, 0.1, 0.4))]
    body = carried_load(result)
    if body.mass and np.any(body.inertia):
        moments, turn = np.linalg.eigh(body.inertia)
        squares = 2.5 / body.mass * (moments.sum() - 2.0 * moments)
        ellipsoids.append(('equivalent_inertia', turn, 2.0 * np.sqrt(np.maximum(squares, 0.0)),
                           (0.2, 0.5, 0.95, 0.35)))
    markers = []
    for number, (name, turn, diameters, colour) in enumerate(ellipsoids):
        marker = conversions.to_marker(
            result.frame, name, Marker.SPHERE, colour, np.maximum(diameters, _VISIBLE).tolist(),
            number=number, position=com)
        marker.frame_locked = True
        if np.linalg.det(turn) < 0.0:
            turn = turn * np.array([1.0, 1.0, -1.0])
        conversions.fill_message(marker.pose.orientation, turn)
        markers.append(marker)
    return MarkerArray(markers=markers)


main = partial(spin, PayloadIdentification)
"""Run the node; returns the exit code."""


if __name__ == '__main__':
    sys.exit(main())
