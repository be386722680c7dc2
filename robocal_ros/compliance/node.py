# SPDX-License-Identifier: Apache-2.0
"""Node ``compliance_calibration``: identification of joint compliance and correction for sag."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from geometry_msgs.msg import PointStamped, PoseStamped, TransformStamped, Vector3, Vector3Stamped
from visualization_msgs.msg import Marker, MarkerArray

from robocal_ros.arm import PreviewArm, PreviewRecorder, ServiceCall
from robocal_ros.arrays import Array
from robocal_ros.compliance.estimator import (
    COMPLIANCE,
    estimate,
    estimate_sets,
    stream_counts,
    tracker_of,
)
from robocal_ros.compliance.geometry import tracked
from robocal_ros.compliance.geometry_estimator import GEOMETRY, before_and_after
from robocal_ros.compliance.measurement import LOADED, UNLOADED
from robocal_ros.compliance.model import Mounted, carried_on, check_arm, mounted_of
from robocal_ros.compliance.parameters import OF_GEOMETRY, ComplianceParameters
from robocal_ros.compliance.plan import given_postures
from robocal_ros.compliance.procedure import ComplianceProcedure, KeptSets, StationaryReader
from robocal_ros.errors import ConfigurationError, DataError, MotionError
from robocal_ros.messages import TrackerIntake, TrackerStream, conversions, qos
from robocal_ros.node import Action, Answer, ArmNode, Journal, spin
from robocal_ros.results import CalibrationResult, Verdict, with_inputs
from robocal_ros.robot import (
    Robot,
    SagCorrection,
    SteadyFriction,
    Trajectory,
    compliance_by_joint,
    friction_by_joint,
)

# Period of predictions by stamps [s].
_PERIOD = 0.02


class ComplianceCalibration(ArmNode):
    """Lifecycle node that identifies joint compliance from postures without and with a load."""

    capability = 'compliance_calibration'
    parameter_table = ComplianceParameters
    verbs = (*ArmNode.verbs, 'measure_unloaded', 'measure_loaded', 'register_tracker')
    values: ComplianceParameters
    journal: Journal[KeptSets]
    late_modules = (*ArmNode.late_modules, 'scipy.stats')

    def check(self, values: ComplianceParameters) -> None:
        """Raise a ConfigurationError for missing frames and prismatic joints."""
        check_arm(self.robot, values)

    def build(self) -> None:
        """Create streams, arm, recorder and correction, and use the stored result."""
        values = self.values
        self.make_arm(self._wants_sag, values.load_box, values.load_frame)
        need = tracker_of(values)
        self._tracker = self.stream(TrackerStream(
            self, self.group, PoseStamped if need.orientation else PointStamped, need.topic,
            TrackerIntake(self.resolve_topic_name(need.topic), orientation=need.orientation),
            now=self.waiter.now, tolerated=2))
        self.make_recorder('compliance', KeptSets, services=COMPLIANCE.services,
                           tracker=(need.topic, self._tracker))
        self._placing_topic = self.publisher(TransformStamped, '~/tracker_transform')
        reader = StationaryReader(
            self.arm, self.joints, self._tracker, lambda: self.values, self.waiter.until_stopped,
            lambda: self.count_publishers(self._tracker.topic) > 0)
        self._method = ComplianceProcedure(
            self.arm, self.recorder, self.status, reader, lambda: self.values,
            self._mounted, lambda: self._friction, self._show_registration,
            given_postures(values, self.robot, self.arm.checker), self.journal.keep)
        self._deflection = self.publisher(Vector3Stamped, '~/deflection', qos.RELIABLE)
        self._compliance: dict[str, float] = {}
        self._correction: SagCorrection | None = None
        self._published = -np.inf
        self.filter_trajectories(self._corrected)
        self.joints.listen(self._publish_sag, self._wants_sag)
        self._attach, self._detach = (
            self.part(ServiceCall(self.waiter, name)) if name else None
            for name in (values.attach_service, values.detach_service))
        self._friction: dict[str, SteadyFriction] = {}
        self.follow_load(self._use_arm)
        self.results.follow('friction', self._use_friction,
                    remedy='Motions are planned without friction.')
        if last_good := self.store.load('compliance'):
            self._publish(last_good)

    def _mounted(self) -> Mounted:
        """Return what is mounted in both sets; raises as ``mounted_of``."""
        return mounted_of(self.robot, self.values, self.payload)

    def _use_arm(self, known: Robot, payload: CalibrationResult | None) -> None:
        carrying, what = carried_on(known, self.values, payload)
        self._arms = known, carrying
        self._predict_sag()
        self.get_logger().info(f'Deflection and trajectory correction assume {what}.')

    def _use_friction(self, friction: CalibrationResult) -> None:
        self._friction = friction_by_joint(friction)

    # -------------------------------------------------------------------------- services

    async def run(self) -> Answer:
        """Measure both sets, using the services that attach and detach the load."""
        await self._begin()
        geometry = self.values.method == OF_GEOMETRY
        if not geometry and (self._attach is None or self._detach is None):
            raise ConfigurationError(
                'run needs services that mount the load. Set attach_service and detach_service, '
                'or call measure_unloaded, mount the load, call measure_loaded and then estimate.')
        if self.values.measure_posture:
            raise ConfigurationError('measure_posture is set, but run measures whole sets. Set it '
                                     'to 0, or call measure_unloaded or measure_loaded.')
        await self._method.run(self._attach if LOADED in self._method.sets else None, self._detach)
        answer = await self.estimate()
        return answer._replace(message=' '.join((answer.message, *self._method.state.lost)))

    async def rehearse(self, arm: PreviewArm) -> str:
        """Carry out the motions of both sets in a dry run."""
        state = self._method.state
        return await replace(
            self._method, arm=arm, recorder=PreviewRecorder(self.joints),
            state=KeptSets(postures=state.postures, registration=state.registration)).rehearse()

    async def estimate(self) -> Answer:
        """Estimate compliance from the measured sets, else from the recording."""
        robot, values, method = self.robot.copy(), self.values, self._method
        geometry = values.method == OF_GEOMETRY
        if (left := method.missing(LOADED)) and (
                not geometry or method.state.sets[LOADED].visits):
            raise DataError(f'{len(left)} postures are not measured with the load yet. Call '
                            'measure_loaded to continue.')
        mounted, registration = self._mounted(), method.state.registration
        if geometry and (left := method.missing(UNLOADED)):
            raise DataError(f'{len(left)} postures are not measured yet. Call measure_unloaded to '
                            'continue.')
        inputs = COMPLIANCE.inputs(robot, values, self.results.current)
        unloaded, loaded = (method.state.sets[name].positions for name in (UNLOADED, LOADED))
        recording = self.recorder.recording(COMPLIANCE.needs(values))
        counts = {**stream_counts(self.joints.counts, self._tracker.counts),
                  'left_out_postures': len(method.state.left_out)}
        result = await self.compute(lambda: with_inputs(
            estimate_sets(robot, unloaded, loaded, mounted, values, registration, counts=counts)
            if unloaded else estimate(robot, recording, values, mounted, registration), inputs))
        if unloaded:
            self.journal.remove()
        if geometry:
            if unloaded:
                points, before, after = await self.waiter.compute(
                    before_and_after, robot, tracked(unloaded, loaded), values, mounted)
                self.publish_markers(displacement_markers(
                    robot.root_frame, points, {'before': before, 'after': after},
                    'errors × {:.0f}, red by the URDF, up to {:.0f} µm, green calibrated, up to '
                    '{:.0f} µm'))
            # The URDF of a geometry is used once it replaces the present one.
            return self.keep(result, self.publish_result, GEOMETRY.summary)
        if result.verdict is not Verdict.PASS:
            self._draw(result)
        return self.keep(result, self._publish, COMPLIANCE.summary)

    async def clear(self) -> str:
        """Discard the recording and all measurements."""
        return f'{self._discard()} samples discarded.'

    async def measure_unloaded(self) -> str:
        """Measure what is missing of the unloaded set."""
        await self._begin()
        mounted, then = self._mounted(), 'Call estimate'
        if LOADED in self._method.sets:
            load = mounted.known_load()
            then = (f'Mount the load of {load.body.mass:g} kg on {load.frame} now, then call '
                    'measure_loaded')
        if not self.values.measure_posture:
            if self._method.complete(UNLOADED):
                return f'The unloaded set is complete. {then}, or call clear to measure again.'
            if self._method.state.sets[LOADED].visits:
                raise DataError('The loaded set has been started; finish it with measure_loaded, '
                                'or call clear to measure again.')
        return await self._measured(UNLOADED, 'without the load.', (
            f'{mounted.note} {then}.'))

    async def measure_loaded(self) -> str:
        """Measure what is missing of the loaded set."""
        await self._begin()
        if not self._method.complete(UNLOADED):
            missing = len(self._method.missing(UNLOADED))
            raise DataError(
                f'The unloaded set is not complete ({missing or "all"} postures are missing). '
                'Remove the load and call measure_unloaded first.')
        if self._method.complete(LOADED) and not self.values.measure_posture:
            return 'Both sets are complete; call estimate, or clear to measure again.'
        return await self._measured(LOADED, 'with the load.',
                                    'Call estimate; the load may be removed.')

    async def _measured(self, which: str, how: str, further: str) -> str:
        """Measure a set, or one posture of it again; return the answer."""
        await self._method.measure(which, (0.0, 100.0))
        if number := self.values.measure_posture:
            return (f'Posture {number} is measured again. Set measure_posture to 0 to continue '
                    'with the others.')
        return ' '.join((f'{self._method.counts()[which]} postures are measured {how}',
                         *self._method.state.lost[-1:], further))

    async def register_tracker(self) -> str:
        """Register the tracker."""
        await self._begin()
        if self._method.state.sets[UNLOADED].visits:
            raise DataError('Postures have been measured with the present registration; call '
                            'clear before registering the tracker again.')
        found = await self._method.register_tracker((0.0, 100.0))
        x, y, z = found.translation
        target = '' if found.target is None else (
            f' The target is at {np.round(1e3 * found.target, 2).tolist()} mm in '
            f'{self.values.target_frame or self.robot.tool_frame}.')
        return (f'The tracker is at x {x:.4f}, y {y:.4f}, z {z:.4f} m in '
                f'{self.robot.root_frame}; {len(found.residual)} points fit within '
                f'{1e3 * float(found.residual.max()):.2f} mm, RMS {1e3 * found.rms:.2f} mm.'
                f'{target}')

    async def answer(self, name: str, action: Action) -> Answer:
        """Answer a service; after the unloaded set the status asks for the load."""
        answer = await super().answer(name, action)
        if answer.success and name == 'measure_unloaded':
            self.status.update('waiting for the load', answer.message, progress=50.0)
            self.status.note(**self._method.counts())
        return answer

    async def _begin(self) -> None:
        """Connect to the arm; discard measurements that must not be continued."""
        await self.arm.connect()
        method = self._method
        # A load that no service mounts is no part of a run of the geometry.
        sets = method.sets if self._attach or self.values.method != OF_GEOMETRY else (UNLOADED,)
        finished = all(map(method.complete, sets))
        if self.joints.counts.clock_jumps or (finished and self.running == 'run'):
            self._discard()
        elif not method.state.sets[UNLOADED].visits and method.state.registration is None:
            if (kept := await self.journal.resume()) is not None:
                method.resume(kept)
            else:
                # Earlier samples belong to neither set nor registration.
                self.recorder.clear()

    def _discard(self) -> int:
        """Discard recording and measurements; return the number of samples discarded."""
        self.journal.forget()
        self._method.clear()
        return self.recorder.clear()

    # ------------------------------------------------------------------------------- sag

    def _wants_sag(self) -> bool:
        """Return whether somebody subscribes to the deflection."""
        return self._deflection.get_subscription_count() > 0

    def _predict_sag(self) -> None:
        """Predict the sag of the present arm by the identified compliance."""
        if self._compliance:
            self._correction = SagCorrection(*self._arms, self._compliance)

    def _publish_sag(
        self, stamp: float, position: Array, _velocity: Array, _effort: Array
    ) -> None:
        """Publish the sag at the latest joint state."""
        if (self._correction is None or not self.is_active
                or abs(stamp - self._published) < _PERIOD or not self._wants_sag()):
            return
        self._published = stamp
        x, y, z = self._correction.sag(
            position, payload_alone=not self.values.correct_own_weight).tolist()
        message = Vector3Stamped(vector=Vector3(x=x, y=y, z=z))
        message.header.frame_id = self.robot.root_frame
        message.header.stamp = conversions.to_stamp(stamp)
        self._deflection.publish(message)

    def _corrected(self, trajectory: Trajectory) -> dict[str, Array | None]:
        """Return a trajectory corrected for the sag, by field of its points."""
        if self._correction is None:
            raise DataError('no compliance is identified yet. Call run, or measure_unloaded and '
                            'measure_loaded.')
        corrected = self._correction.corrected(
            trajectory, payload_alone=not self.values.correct_own_weight)
        robot = self.robot
        beyond = np.maximum(corrected.position - robot.upper,
                            robot.lower - corrected.position).max(axis=0)
        joint = int(np.argmax(beyond))
        if beyond[joint] > 0.0:
            raise MotionError(
                f"corrected for the sag, joint '{robot.joint_names[joint]}' exceeds its limit by "
                f'{beyond[joint]:.2e} rad. Plan the trajectory with that margin.')
        return {'positions': corrected.position, 'velocities': corrected.velocity,
                'accelerations': corrected.acceleration}

    # --------------------------------------------------------------------------- results

    def _publish(self, result: CalibrationResult) -> None:
        """Publish and use a result that passed."""
        self.publish_result(result)
        self._compliance = compliance_by_joint(result)
        self._predict_sag()
        self._show_registration(np.reshape(result.settings['tracker_rotation'], (3, 3)),
                                np.array(result.settings['tracker_translation']))
        self._draw(result)

    def _show_registration(self, rotation: Array, translation: Array) -> None:
        """Publish the pose of the tracker."""
        message = TransformStamped(child_frame_id=self._tracker.intake.frame)
        message.header.frame_id = self.robot.root_frame
        message.header.stamp = self.get_clock().now().to_msg()
        place = message.transform.translation
        place.x, place.y, place.z = translation.tolist()
        conversions.fill_message(message.transform.rotation, rotation)
        self._placing_topic.publish(message)

    def _draw(self, result: CalibrationResult) -> None:
        """Publish markers of the target and its displacements."""
        unloaded, loaded = (self._method.state.sets[name].visits for name in (UNLOADED, LOADED))
        if not unloaded or not loaded:
            return
        rotation = np.reshape(result.settings['tracker_rotation'], (3, 3))
        translation = np.array(result.settings['tracker_translation'])
        before, after = ({number: rotation @ item.point + translation
                          for number, item in reversed(visits)}
                         for visits in (unloaded, loaded))
        both = sorted(before.keys() & after.keys())
        points = np.array([before[i] for i in both])
        sag = np.array([after[i] for i in both]) - points
        self.publish_markers(displacement_markers(
            self.robot.root_frame, points, {'sag': sag}, 'sag × {:.0f}, up to {:.0f} µm',
            tracker=translation))


# Length of the longest displacement as drawn [m].
_LONGEST = 0.25
# Colours of displacements by their namespace.
_COLOURS = {'sag': (0.2, 0.5, 0.95, 1.0), 'before': (0.9, 0.2, 0.2, 1.0),
            'after': (0.2, 0.8, 0.3, 1.0)}


def displacement_markers(
    frame: str, points: Array, displacements: Mapping[str, Array], caption: str,
    tracker: Array | None = None,
) -> MarkerArray:
    """Return markers of points, of their displacements, all magnified alike, and the tracker.

    Args:
        frame: The root frame.
        points: Shape (k, 3) [m].
        displacements: Displacements by namespace, shape (k, 3) [m]; the first one sets the scale.
        caption: Text with places for the scale and the largest of each displacement [µm].
        tracker: Position of the tracker, shape (3,) [m]; None to leave it out.

    """
    sizes = [float(np.linalg.norm(change, axis=1).max()) if len(change) else 0.0
             for change in displacements.values()]
    scale = _LONGEST / sizes[0] if sizes[0] > 0.0 else 1.0
    text = conversions.to_marker(
        frame, 'sag_caption', Marker.TEXT_VIEW_FACING, (0.9, 0.9, 0.9, 1.0), (0.0, 0.0, 0.06),
        position=(0.0, 0.0, 1.7))
    text.text = caption.format(scale, *(1e6 * size for size in sizes))
    return MarkerArray(markers=[
        conversions.to_marker(frame, 'targets', Marker.SPHERE_LIST, (0.95, 0.45, 0.1, 1.0),
                              (0.012,) * 3, points=points),
        *(conversions.to_marker(
            frame, name, Marker.LINE_LIST, _COLOURS[name], (0.004,),
            points=np.stack((points, points + scale * change), axis=1).reshape(-1, 3))
          for name, change in displacements.items()),
        *([] if tracker is None else [conversions.to_marker(
            frame, 'tracker', Marker.CUBE, (0.3, 0.7, 0.3, 1.0), (0.12,) * 3, position=tracker)]),
        text])


main = partial(spin, ComplianceCalibration)
"""Run the node; returns the exit code."""


if __name__ == '__main__':
    sys.exit(main())
