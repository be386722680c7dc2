# SPDX-License-Identifier: Apache-2.0
"""Node ``compliance_calibration``: how far each joint gives way, and the correction for it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import partial

import numpy as np
from geometry_msgs.msg import TransformStamped
from std_msgs.msg import String
from std_srvs.srv import Trigger

from robocal_ros.arm.old_waiting import ServiceCall
from robocal_ros.arrays import Array
from robocal_ros.compliance.estimate import (
    VERBS,
    check_arm,
    estimate,
    estimate_sets,
    stream_counts,
    summary,
    tracker_of,
)
from robocal_ros.compliance.feed_forward import SagFeedForward
from robocal_ros.compliance.markers import sag_markers
from robocal_ros.compliance.measurement import LOADED, UNLOADED, EndPosition
from robocal_ros.compliance.model import Load, carried_on, load_of
from robocal_ros.compliance.parameters import ComplianceParameters
from robocal_ros.compliance.procedure import (
    ComplianceProcedure,
    RestReader,
    TrackerRegistration,
)
from robocal_ros.compliance.registration import Registration
from robocal_ros.errors import ConfigurationError, DataError, MotionError, RobocalError
from robocal_ros.messages import conversions, marks, qos
from robocal_ros.messages.record import within_budget
from robocal_ros.messages.recording import Recording
from robocal_ros.messages.tracker_stream import TrackerStream
from robocal_ros.node.executables import Ending
from robocal_ros.node.procedure_node import ProcedureNode
from robocal_ros.node.process import spin
from robocal_ros.results.result import CalibrationResult, Verdict
from robocal_ros.results.store import from_yaml

# An arm whose load changes gives a jolt; this long it may, before it is seen to rest [s].
_CHANGE = 1.0


class ComplianceCalibration(ProcedureNode):
    """Measures the same postures without and with a load, and tells the joints' compliance."""

    kind = 'compliance'
    parameter_table = ComplianceParameters
    estimated_verbs = VERBS

    def _configure_method(self) -> None:
        values = self.values
        check_arm(self.robot, values)
        self._payload: CalibrationResult | None = None
        self._tracker_name = tracker_of(values).topic
        self._tracker = self.stream(TrackerStream(
            self, self.group, values.tracker_message, values.tracker_topic,
            now=self.pulse.now))
        rest = RestReader(self, self._tracker)
        self._method = ComplianceProcedure(self, rest, self._load, self._preview)
        self._registering = TrackerRegistration(self, rest, self._method)
        self._placing = self._publisher(TransformStamped, '~/tracker_transform')
        self._feed_forward: SagFeedForward = self.part(SagFeedForward(
            self, self.joints, self.robot, own_weight=values.correct_own_weight))
        self._attach = self._optional_service(values.attach_service)
        self._detach = self._optional_service(values.detach_service)
        self._follow_payload()
        for verb, action in (
                ('measure_unloaded', self._measure_unloaded),
                ('measure_loaded', self._measure_loaded),
                ('register_tracker', self._register_tracker)):
            self.service(verb, partial(self._on_step, verb, action))
        last_good = self.store.load(self.kind)
        if last_good is not None:
            self.publish(last_good)

    def _optional_service(self, name: str) -> ServiceCall | None:
        made: ServiceCall | None = self.part(
            ServiceCall(self, self.group, self.pulse, name)) if name else None
        return made

    # ------------------------------------------------------------------- what is carried

    def _follow_payload(self) -> None:
        """Take the payload result that is stored, and new ones as they come."""
        stored = self.store.load('payload')
        if stored is not None:
            self._payload = stored
        self._feed_forward.carry(carried_on(self.robot, self.values, self._payload))
        self.part(self.subscription(
            String, 'payload_identification/result', self._take_payload, qos.LATCHED))

    def _load(self) -> Load:
        """Return what is mounted between the two sets; raises DataError where nobody says."""
        return load_of(self.robot, self.values, self._payload)

    def _take_payload(self, message: String) -> None:
        try:
            payload = from_yaml(message.data, self.identity, 'payload_identification/result')
            carrying = carried_on(self.robot, self.values, payload)
        except RobocalError as error:
            self.get_logger().warning(f'Payload result not used: {error}')
            return
        self._payload = payload
        self._feed_forward.carry(carrying)

    # ------------------------------------------------------------------------- procedure

    async def _procedure(self) -> CalibrationResult:
        if self._attach is None or self._detach is None:
            raise ConfigurationError(
                'run mounts the load by a service, and none is named. Set attach_service and '
                'detach_service, or call measure_unloaded, mount the load, call measure_loaded '
                'and then estimate.')
        self._load()
        method = self._method
        if not method.complete(UNLOADED):
            await self._without_load(self._detach)
            if method.registration is None and self._registers_apart():
                await self._register((1.0, 8.0))
            await method.measure(UNLOADED, (8.0, 50.0))
        self.status.say('mounting', 'Mounting the load.', progress=50.0)
        await self._attach.call()
        await self._calm_down()
        await method.measure(LOADED, (50.0, 95.0))
        self.status.say('unmounting', 'Taking the load off.', progress=95.0)
        await self._detach.call()
        return await self.estimate()

    def _registers_apart(self) -> bool:
        """Tell whether the unloaded set itself does not serve to place the tracker."""
        return bool(self.values.registration == 'three_point' or self.values.find_target)

    async def _without_load(self, detach: ServiceCall) -> None:
        """Make sure that no load is left from an earlier run."""
        try:
            await detach.call()
        except DataError as error:
            self.get_logger().warning(f'Taken for unloaded: {error}')
        await self._calm_down()

    async def _calm_down(self) -> None:
        """Let the arm come to rest after its load has changed."""
        await self.dwell(_CHANGE)
        if not await self.pulse.until(
                lambda: self.arm.resting or bool(self.arm.stop_reason),
                self.values.connect_timeout):
            raise MotionError('The arm does not come to rest after its load has changed; check '
                              'the controller and the load.')
        self.check_stopped()

    async def _measure_unloaded(self) -> str:
        load = self._load()
        if self._method.complete(UNLOADED):
            return ('The unloaded set is complete. Mount the load and call measure_loaded, or '
                    'call clear to measure anew.')
        if self._method.sets[LOADED].visits:
            raise DataError('The loaded set is begun already; finish it with measure_loaded, or '
                            'call clear to measure anew.')
        await self._method.measure(UNLOADED, (0.0, 100.0))
        count = self._method.counts()[UNLOADED]
        return (f'{count} postures are measured without the load.{self._left_out()} Mount the '
                f'load of {load.body.mass:g} kg on {load.frame} now, then call measure_loaded.')

    async def _measure_loaded(self) -> str:
        if not self._method.complete(UNLOADED):
            missing = len(self._method.missing(UNLOADED))
            raise DataError(
                f'The unloaded set is not complete ({missing or "all"} postures are missing). '
                'Take the load off and call measure_unloaded first.')
        if self._method.complete(LOADED):
            return 'Both sets are complete; call estimate, or clear to measure anew.'
        await self._method.measure(LOADED, (0.0, 100.0))
        count = self._method.counts()[LOADED]
        return f'{count} postures are measured with the load. Call estimate; the load may go.'

    def _left_out(self) -> str:
        lost = self._method.lost
        return f' {lost[-1]}' if lost else ''

    async def _register_tracker(self) -> str:
        if self._method.sets[UNLOADED].visits:
            raise DataError('Postures are measured already, with the tracker where it was; call '
                            'clear before placing it anew.')
        found = await self._register((0.0, 100.0))
        x, y, z = found.translation
        target = '' if found.target is None else (
            f' The target is at {np.round(1e3 * found.target, 2).tolist()} mm in '
            f'{self.values.target_frame or self.robot.tool_frame}.')
        return (f'The tracker stands at x {x:.4f}, y {y:.4f}, z {z:.4f} m in '
                f'{self.robot.root_frame}; {len(found.residual)} points fit within '
                f'{1e3 * float(found.residual.max()):.2f} mm, RMS {1e3 * found.rms:.2f} mm.'
                f'{target}')

    async def _register(self, share: tuple[float, float]) -> Registration:
        found = await self._registering.measure(share)
        self._show_registration(found.rotation, found.translation)
        return found

    def _show_registration(self, rotation: Array, translation: Array) -> None:
        message = TransformStamped(child_frame_id=self._tracker.record.frame)
        message.header.frame_id = self.robot.root_frame
        message.header.stamp = self.get_clock().now().to_msg()
        place, turn = message.transform.translation, message.transform.rotation
        place.x, place.y, place.z = (float(value) for value in translation)
        turn.x, turn.y, turn.z, turn.w = (
            float(value) for value in conversions.quaternion(rotation))
        self._placing.publish(message)

    async def _on_step(
        self, verb: str, action: Callable[[], Awaitable[str]], request: Trigger.Request,
        response: Trigger.Response,
    ) -> Trigger.Response:
        """Answer one of the services for measuring step by step."""
        async def step() -> str:
            await self.arm.connect(self.values.connect_timeout)
            self._begin_run()
            return await action()

        answer = await self.answered(verb, step, response)
        if answer.success and verb == 'measure_unloaded':
            self.status.say('waiting for the load', answer.message, progress=50.0,
                            **self._method.counts())
        return answer

    # ------------------------------------------------------------------------- recording

    def _record(self, on: bool) -> None:
        super()._record(on)
        self._tracker.record.recording = on

    def _begin_run(self) -> None:
        """Keep what was measured, so that a cancelled or failed measurement goes on."""
        method = self._method
        finished = method.complete(UNLOADED) and method.complete(LOADED)
        if self.joints.counts.clock_jumps or (finished and self._running == 'run'):
            self._clear()
        elif not method.sets[UNLOADED].visits and method.registration is None:
            # What was recorded before belongs to no set, and places no tracker.
            super()._clear()
            self._tracker.clear()

    def _clear(self) -> None:
        super()._clear()
        self._tracker.clear()
        self._method.clear()

    # ------------------------------------------------------------------------ estimation

    def _estimate(self) -> Callable[[], CalibrationResult]:
        robot, values, method = self.robot.copy(), self.values, self._method
        load = self._load()
        registration = method.registration
        unloaded, loaded = (method.sets[name].positions for name in (UNLOADED, LOADED))
        if not unloaded:
            recording = self._replayed()
            return lambda: estimate(robot, recording, values, load, registration)
        counts = {**stream_counts(self.joints.counts, self._tracker.counts),
                  'left_out_postures': len(method.left_out)}
        return lambda: estimate_sets(robot, unloaded, loaded, load, values, registration,
                                     counts=counts, source=self.joints.source)

    def _replayed(self) -> Recording:
        """Return what is recorded, with the rests that marks out of a bag tell of."""
        spans, joints = self.replayed_spans(), self.joints.samples()
        readings = self._tracker.samples()
        joints = joints.chosen(spans.of(marks.JOINTS).holds(joints.time))
        readings = readings.chosen(spans.of(self._tracker_name).holds(readings.time))
        # Averages over rests are to be exact; where rests are looked for, neighbours may be
        # averaged.
        return Recording(joints if spans.rests else within_budget(joints), tracker=readings,
                         rests=spans.rests)

    def _newest_stamps(self) -> dict[str, float]:
        return {**super()._newest_stamps(), self._tracker_name: self._tracker.record.newest}

    async def _preview(self, unloaded: list[EndPosition], loaded: list[EndPosition]) -> None:
        """Show in the status what the postures measured so far say."""
        load = self._load()
        try:
            result = await self.worker.run(
                self.pulse, estimate_sets, self.robot.copy(), unloaded, loaded, load, self.values,
                self._method.registration)
        except RobocalError as error:
            self.status.note(estimate=f'none yet: {error}')
            return
        self.status.note(**{
            f'{p.name} [µrad/(N·m)]': f'{1e6 * p.value:.2f} ± {1.96e6 * (p.std or 0.0):.2f}'
            for p in result.parameters if p.value is not None})

    def keep(self, result: CalibrationResult) -> None:
        """Save a result and publish it if it is good; draw it in any case."""
        super().keep(result)
        if result.verdict is not Verdict.PASS:
            self._draw(result)

    def _publish_details(self, result: CalibrationResult) -> None:
        self._feed_forward.use(result)
        self._show_registration(np.reshape(result.settings['tracker_rotation'], (3, 3)),
                                np.array(result.settings['tracker_translation']))
        self._draw(result)

    def _draw(self, result: CalibrationResult) -> None:
        """Draw where the target was, and how far the load moved it."""
        unloaded, loaded = (self._method.sets[name].visits for name in (UNLOADED, LOADED))
        if not unloaded or not loaded:
            return
        rotation = np.reshape(result.settings['tracker_rotation'], (3, 3))
        translation = np.array(result.settings['tracker_translation'])
        before, after = ({number: rotation @ item.point + translation
                          for number, item in reversed(visits)}
                         for visits in (unloaded, loaded))
        both = sorted(before.keys() & after.keys())
        self.publish_markers(sag_markers(
            self.robot.root_frame, np.array([before[i] for i in both]),
            np.array([after[i] for i in both]), translation))

    def _summary(self, result: CalibrationResult) -> str:
        return summary(result)


def main(ending: Ending | None = None) -> int:
    """Run the node; returns the exit code."""
    return spin(lambda: ComplianceCalibration('compliance_calibration'), ending or Ending())


if __name__ == '__main__':
    sys.exit(main())
