# SPDX-License-Identifier: Apache-2.0
"""What every procedure node shares: arm, streams, status, results, and its four services.

A subclass says what ``run`` does (``_procedure``) and how recorded samples become a result
(``_estimate``); everything else is here once.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from std_msgs.msg import String
from std_srvs.srv import Trigger
from visualization_msgs.msg import MarkerArray

from robocal_ros.core.arrays import Array
from robocal_ros.core.collision import CollisionChecker
from robocal_ros.core.motion import MotionLimits, Trajectory, quintic_path
from robocal_ros.core.payload import gains
from robocal_ros.core.planning import connect
from robocal_ros.core.result import CalibrationResult, RobotIdentity, Verdict
from robocal_ros.core.robot import Robot
from robocal_ros.errors import CancelledError, ConfigurationError, DataError, RobocalError
from robocal_ros.io.result_yaml import (
    ResultStore,
    default_directory,
    from_yaml,
    to_yaml,
)
from robocal_ros.ros import qos, status
from robocal_ros.ros.arm_client import ArmClient, ArmSettings
from robocal_ros.ros.description import mesh_folders, robot_description
from robocal_ros.ros.lifecycle import RobocalNode
from robocal_ros.ros.parameters import named, parameter
from robocal_ros.ros.status import StatusReporter
from robocal_ros.ros.streams import JointStateStream
from robocal_ros.ros.waiting import Pulse, Worker

# Longest wait for a procedure that was told to end [s].
_ENDING = 15.0


@dataclass(frozen=True)
class ProcedureParameters:
    """Parameters that all procedure nodes share."""

    autostart: bool = parameter(
        False, 'Configure and activate at start, without a lifecycle manager.')
    robot_description: str = parameter(
        '', 'URDF text; when empty it is taken from the topic robot_description.')
    description_timeout: float = parameter(
        5.0, 'Longest wait for the topic robot_description.', unit='s', minimum=0.1,
        maximum=600.0)
    robot_name: str = parameter(
        '', 'Name under which results are filed; the name in the URDF when empty. Give two arms '
        'of one type two names.')
    tool_frame: str = parameter(
        'tool0', 'Frame of the flange or tool in which results are expressed; the arm is the '
        'chain from the root to it.')
    joints: list[str] = parameter(
        [''], "The arm's joints; [''] for all movable joints from the root to tool_frame.")
    gravity: list[float] = parameter(
        [0.0, 0.0, -9.81], 'Gravity in the root frame of the URDF, for bases that do not stand '
        'upright.', unit='m/s²', minimum=-30.0, maximum=30.0)
    controller: str = parameter(
        'joint_trajectory_controller', 'Name of the joint trajectory controller.')
    connect_timeout: float = parameter(
        5.0, 'Longest wait for joint states and controller when run is called.', unit='s',
        minimum=0.1, maximum=600.0)
    effort_source: str = parameter(
        'torque', 'What the effort field of joint_states holds: link-side torque in N·m, or '
        'motor current in A.', choices=('torque', 'current'))
    torque_constants: list[float] = parameter(
        [1.0], 'With effort_source current: torque constants, one per joint or one for all.',
        unit='N·m/A', minimum=-1e4, maximum=1e4)
    gear_ratios: list[float] = parameter(
        [1.0], 'With effort_source current: gear ratios, one per joint or one for all.',
        minimum=-1e5, maximum=1e5)
    use_drive_gains: bool = parameter(
        True, 'Divide efforts by the effort scales of calibrate_gains, when there is a result.')
    speed_scale: float = parameter(
        1.0, 'Scales the speed of every motion.', minimum=0.01, maximum=1.0)
    max_velocity: float = parameter(
        1.0, 'Fastest joint speed of moves between postures, besides the limits of the URDF.',
        unit='rad/s', minimum=0.01, maximum=10.0)
    max_acceleration: float = parameter(
        2.0, 'Largest joint acceleration.', unit='rad/s²', minimum=0.01, maximum=100.0)
    path_tolerance: float = parameter(
        0.1, 'Largest deviation from the path before a motion is cancelled.', unit='rad',
        minimum=1e-4, maximum=1.0)
    goal_tolerance: float = parameter(
        0.01, 'Largest deviation from the goal at the end.', unit='rad', minimum=1e-5,
        maximum=0.5)
    goal_time: float = parameter(
        2.0, 'Time past the end of a motion within which the goal must be met.', unit='s',
        minimum=0.1, maximum=60.0)
    state_timeout: float = parameter(
        0.5, 'Longest silence of the joint states before a motion is cancelled.', unit='s',
        minimum=0.05, maximum=10.0)
    tool_box: list[float] = parameter(
        [0.0, 0.0, 0.0], 'Size of a box around the mounted tool, x, y, z of tool_frame, for the '
        'collision check; zeros for none.', unit='m', minimum=0.0, maximum=5.0)
    floor: float = parameter(
        -1000.0, 'Height in the root frame, against gravity, below which the arm may not reach; '
        '-1000 for none.', unit='m', minimum=-1000.0, maximum=1000.0)
    mesh_folders: list[str] = parameter(
        [''], 'Further folders in which package:// meshes of the collision geometry are looked '
        'up, besides those of the ROS installation.')
    results_dir: str = parameter(
        '', 'Folder of the result files; ~/.ros/robocal/<robot> when empty.')


def per_joint(values: list[float], count: int, name: str) -> Array:
    """Return one value per joint from one per joint or one for all.

    Raises:
        ConfigurationError: If the length fits neither.

    """
    if len(values) not in (1, count):
        raise ConfigurationError(
            f"Parameter '{name}' has {len(values)} values; expected 1 or {count}, one per joint.")
    return np.broadcast_to(np.array(values, dtype=float), (count,))


@dataclass(frozen=True)
class Destroyable:
    """Something that release undoes."""

    destroy: Callable[[], Any]


class _ForwardToRos(logging.Handler):
    """Hands the core's log records to a node's logger."""

    def __init__(self, node: RobocalNode) -> None:
        super().__init__()
        self._logger = node.get_logger()

    def emit(self, record: logging.LogRecord) -> None:
        # Two calls on two lines: rclpy allows one severity for each place that logs.
        if record.levelno >= logging.WARNING:
            self._logger.warning(record.getMessage())
        else:
            self._logger.info(record.getMessage())


class ProcedureNode(RobocalNode):
    """A node that moves the arm, records, estimates, checks and saves."""

    kind: str
    """Capability, and the name of its result file."""

    parameter_table = ProcedureParameters
    values: Any

    def __init__(self, name: str, **kwargs: Any) -> None:
        """Declare parameters; everything else is made by configure."""
        super().__init__(name, **kwargs)
        self._running = ''
        self._cancelling = 0
        self._made: list[Callable[[], Any]] = []

    # ------------------------------------------------------------------- lifecycle

    def _configure(self) -> None:
        values = self.values
        self.pulse = self.part(Pulse(self, self.group))
        self.worker = Worker()
        self._made.append(self.worker.shutdown)
        self.status = self.part(StatusReporter(self, self.group, self.pulse.now))
        urdf = robot_description(self, values.robot_description, values.description_timeout)
        self.robot = Robot(urdf, tool_frame=values.tool_frame, joints=named(values.joints),
                           gravity=values.gravity, name=values.robot_name)
        self.identity = RobotIdentity(self.robot.name, self.robot.urdf_hash,
                                      self.robot.joint_names)
        folder = (Path(values.results_dir).expanduser() if values.results_dir
                  else default_directory(self.identity.name))
        self.store = ResultStore(folder, self.identity)
        self.checker = self._collision_checker()
        self.limits = self._motion_limits()
        self.joints = self.part(JointStateStream(
            self, self.group, self.robot.joint_names, now=self.pulse.now,
            factor=self._effort_factor(), on_sample=self._on_sample))
        self.arm = self.part(ArmClient(
            self, self.group, self.pulse, self.joints, controller=values.controller,
            limits=self.limits, checker=self.checker,
            settings=ArmSettings(
                speed_scale=values.speed_scale, path_tolerance=values.path_tolerance,
                goal_tolerance=values.goal_tolerance, goal_time=values.goal_time,
                state_timeout=values.state_timeout)))
        self._result_publisher = self._publisher(String, '~/result')
        self._marker_publisher = self._publisher(MarkerArray, '~/markers')
        self._use_drive_gains()
        self._configure_method()
        for verb, callback in (('run', self._on_run), ('estimate', self._on_estimate),
                               ('clear', self._on_clear), ('cancel', self._on_cancel)):
            self.service(verb, callback)
        self.status.say('idle', 'Configured; activate to begin.', progress=0.0)

    def part(self, part: Any) -> Any:
        """Remember a part so that release destroys it."""
        self._made.append(part.destroy)
        return part

    def subscription(
        self, kind: Any, topic: str, callback: Callable[[Any], None], profile: Any
    ) -> Destroyable:
        """Subscribe to a topic; hand the answer to ``part``."""
        made = self.create_subscription(kind, topic, callback, profile,
                                        callback_group=self.group)
        return Destroyable(lambda: self.destroy_subscription(made))

    def service(self, verb: str, callback: Callable[..., Any]) -> None:
        """Offer a Trigger service of the node's own."""
        made = self.create_service(Trigger, f'~/{verb}', callback, callback_group=self.group)
        self._made.append(partial(self.destroy_service, made))

    def _publisher(self, kind: Any, topic: str) -> Any:
        publisher = self.create_publisher(kind, topic, qos.LATCHED)
        self._made.append(partial(self.destroy_publisher, publisher))
        return publisher

    def _collision_checker(self) -> CollisionChecker:
        values = self.values
        core_log = logging.getLogger('robocal_ros')
        core_log.setLevel(logging.INFO)
        handler = _ForwardToRos(self)
        core_log.addHandler(handler)
        self._made.append(lambda: core_log.removeHandler(handler))
        checker = CollisionChecker(
            self.robot.copy(), package_dirs=mesh_folders(named(values.mesh_folders)),
            tool_box=values.tool_box if any(values.tool_box) else (),
            floor=values.floor if values.floor > -1000.0 else None)
        if checker.blind_links:
            self.get_logger().warning(
                f'No collision geometry for {", ".join(checker.blind_links)}: their meshes were '
                'not found, so nothing keeps them from touching. Set mesh_folders.')
        return checker

    def _motion_limits(self) -> MotionLimits:
        return MotionLimits(
            self.robot.joint_names, self.robot.lower, self.robot.upper,
            self.robot.velocity_limit,
            np.full(self.robot.n, self.values.max_acceleration))

    def _effort_factor(self) -> Array:
        if self.values.effort_source == 'torque':
            return np.ones(self.robot.n)
        return (per_joint(self.values.torque_constants, self.robot.n, 'torque_constants')
                * per_joint(self.values.gear_ratios, self.robot.n, 'gear_ratios'))

    def _use_drive_gains(self) -> None:
        """Apply identified effort scales, the stored ones now and new ones as they come."""
        self.effort_scale = np.ones(self.robot.n)
        if not self.values.use_drive_gains:
            return
        stored = self.store.load(gains.KIND)
        if stored is not None:
            self.apply_drive_gains(stored)
        self.part(self.subscription(
            String, 'payload_identification/drive_gains', self._take_drive_gains, qos.LATCHED))

    def _take_drive_gains(self, message: String) -> None:
        try:
            self.apply_drive_gains(from_yaml(
                message.data, self.identity, 'payload_identification/drive_gains'))
        except RobocalError as error:
            self.get_logger().warning(f'Drive gains not used: {error}')

    def apply_drive_gains(self, result: CalibrationResult) -> None:
        """Use effort scales from now on; samples with other scales are forgotten."""
        known = gains.effort_scales(result)
        scale = np.array([known.get(name, 1.0) for name in self.robot.joint_names])
        if np.array_equal(scale, self.effort_scale):
            return
        self.effort_scale = scale
        self.joints.set_factor(self._effort_factor() / scale)
        told = ', '.join(f'{name} {known[name]:.3f}' for name in known)
        self.get_logger().info(f'Efforts are divided by the identified scales: {told}.')

    def _activate(self) -> None:
        self._record(True)
        self.status.say('idle', 'Active; call run, or play a bag and call estimate.')

    def _deactivate(self) -> None:
        if self.values is None or not self._made:
            return
        self._record(False)
        self.stop_motion('The node was deactivated.')
        if not self._running:
            self.status.say('idle', 'Inactive; samples are kept.')

    def _may_release(self) -> None:
        if self.moving:
            raise ConfigurationError(
                f'{self._running or "cancel"} is still ending and the arm is being held; call '
                'again in a moment.')

    def _let_go(self) -> None:
        if not self.moving or self.executor is None:
            self._release()
            return

        async def release() -> None:
            await self.pulse.until(lambda: not self.moving, _ENDING)
            self._release()

        # What the ending motion needs, and the services that still answer, must outlive it.
        self.stop_motion('The node lets the robot go.')
        self.executor.create_task(release)

    def _release(self) -> None:
        while self._made:
            self._made.pop()()

    def stop_motion(self, reason: str) -> None:
        """Have the running procedure stop and the arm held; returns at once."""
        if self._running:
            self.arm.stop(reason)

    @property
    def moving(self) -> bool:
        """Whether a procedure is under way, or somebody waits for its end."""
        return bool(self._running) or self._cancelling > 0

    # ------------------------------------------------- what subclasses fill in

    def _configure_method(self) -> None:
        """Create what the capability needs beyond the shared parts."""

    async def _procedure(self) -> CalibrationResult:
        """Move, record, estimate."""
        raise DataError(f'{self.kind} has no motion of its own.')

    def _estimate(self) -> Callable[[], CalibrationResult]:
        """Return a function, run in a thread, that turns what is recorded into a result."""
        raise DataError(f'{self.kind} has nothing to estimate.')

    def _publish_details(self, result: CalibrationResult) -> None:
        """Publish what the capability offers besides ``~/result``."""

    def _summary(self, result: CalibrationResult) -> str:
        """Return the result in a sentence with numbers, units and intervals."""
        return f'{result.kind} identified.'

    def _on_sample(self, stamp: float, position: Array, torque: Array) -> None:
        """Look at a recorded sample while it arrives."""

    def _record(self, on: bool) -> None:
        """Start or end recording."""
        self.joints.recording = on

    def _begin_run(self) -> None:
        """Forget what an earlier run recorded; a resumable procedure may keep it."""
        self._clear()

    def _clear(self) -> None:
        """Forget recorded samples."""
        self.joints.clear()

    # -------------------------------------------------------------------- services

    async def _on_run(self, request: Trigger.Request, response: Trigger.Response) -> Any:
        async def run() -> CalibrationResult:
            await self.arm.connect(self.values.connect_timeout)
            self._begin_run()
            return await self._procedure()

        return await self.answered('run', run, response)

    async def _on_estimate(self, request: Trigger.Request, response: Trigger.Response) -> Any:
        return await self.answered('estimate', self.estimate, response)

    async def _on_clear(self, request: Trigger.Request, response: Trigger.Response) -> Any:
        async def clear() -> str:
            count = self.joints.recorded
            self._clear()
            return f'{count} samples forgotten.'

        return await self.answered('clear', clear, response)

    async def _on_cancel(self, request: Trigger.Request, response: Trigger.Response) -> Any:
        if not self._running:
            response.success, response.message = True, 'Nothing is running; the arm was not moved.'
            return response
        running = self._running
        self.stop_motion('Cancelled on request.')
        self._cancelling += 1
        try:
            ended = await self.pulse.until(lambda: not self._running, _ENDING)
        finally:
            self._cancelling -= 1
        response.success = ended
        response.message = (f'{running} was ended.' if ended else
                            f'{running} was told to end, but has not within {_ENDING:.0f} s.')
        return response

    async def answered(
        self,
        what: str,
        action: Callable[[], Awaitable[CalibrationResult | str]],
        response: Trigger.Response,
    ) -> Trigger.Response:
        """Run a service's action and turn whatever comes of it into an answer."""
        if not self.is_active:
            response.success = False
            response.message = f'The node is not active; activate it before calling {what}.'
            return response
        if self._running:
            response.success = False
            response.message = f'{self._running} is under way; call cancel first, or wait.'
            return response
        self._running = what
        self.arm.rearm()
        level = status.OK
        try:
            outcome = await action()
            if isinstance(outcome, str):
                response.success, response.message = True, outcome
            else:
                response.success = outcome.verdict is Verdict.PASS
                response.message = self._verdict_sentence(outcome)
        except CancelledError as error:
            response.success, response.message = False, str(error)
            level = status.WARN
        except RobocalError as error:
            response.success, response.message = False, str(error)
            level = status.ERROR
        except Exception as error:  # noqa: BLE001
            # A defect: say so, with the traceback, and leave the node usable.
            self.get_logger().fatal(f'Defect in {what}:\n{traceback.format_exc()}')
            response.success = False
            response.message = f'Defect in {what} ({type(error).__name__}: {error}); see the log.'
            level = status.ERROR
        finally:
            self._running = ''
        if not response.success and level == status.OK:
            level = status.WARN
        # Two calls on two lines: rclpy allows one severity for each place that logs.
        if response.success:
            self.get_logger().info(f'{what}: {response.message}')
        else:
            self.get_logger().error(f'{what}: {response.message}')
        self.status.say('idle', response.message, progress=100.0 if response.success else None,
                        level=level)
        return response

    # --------------------------------------------------- parts of every procedure

    async def estimate(
        self, function: Callable[[], CalibrationResult] | None = None
    ) -> CalibrationResult:
        """Estimate from what is recorded, save, publish; the last good result stays if bad.

        Args:
            function: Computes the result, in a thread; that of the capability by default.

        Raises:
            RobocalError: If the data do not allow an estimate.
            CancelledError: If a stop was asked for meanwhile; nothing is saved then.

        """
        self.status.say('estimating', 'Estimating from the recorded samples.')
        result: CalibrationResult = await self.worker.run(
            self.pulse, function or self._estimate())
        self.check_stopped()
        self.keep(result)
        return result

    def keep(self, result: CalibrationResult) -> None:
        """Save a result, and publish it if it passed; the last good one stays if it did not."""
        self.store.save(result)
        if result.verdict is Verdict.PASS:
            self.publish(result)

    def publish(self, result: CalibrationResult) -> None:
        """Publish a good result, latched."""
        self._result_publisher.publish(String(data=to_yaml(result)))
        self._publish_details(result)

    def publish_markers(self, markers: MarkerArray) -> None:
        """Publish markers, latched."""
        self._marker_publisher.publish(markers)

    def _verdict_sentence(self, result: CalibrationResult) -> str:
        if result.verdict is Verdict.PASS:
            return self._summary(result)
        return (f'Verdict {result.verdict.value}: {" ".join(result.reasons)} '
                'The last good result stays.')

    def check_stopped(self) -> None:
        """Raise CancelledError once a stop was asked for; called between the steps."""
        if self.arm.stop_reason:
            raise CancelledError(self.arm.stop_reason)

    def _check_clock(self) -> None:
        """Raise DataError once the clock has jumped back: samples of the run are lost."""
        if self.joints.counts.clock_jumps:
            raise DataError('The clock of the joint states jumped back during the run, which '
                            'costs the samples before it. The arm is held; call run again.')

    async def move(
        self, trajectory: Trajectory, *, phase: str, message: str, share: tuple[float, float],
        watch: Callable[[], str] | None = None, limits: MotionLimits | None = None,
    ) -> None:
        """Move the arm and report progress.

        Args:
            trajectory: The motion.
            phase: Phase shown meanwhile.
            message: Sentence shown meanwhile.
            share: Progress of the procedure at start and end of this motion [%].
            watch: Says when data are lost.
            limits: Limits of this motion instead of the usual ones.

        Raises:
            MotionError: If the motion did not end at its goal.
            CancelledError: If it was ended on request.

        """
        def progress(done: float) -> None:
            self.status.say(phase, message, progress=share[0] + done * (share[1] - share[0]),
                            samples=str(self.joints.recorded),
                            dropped=str(self.joints.counts.dropped))

        self._check_clock()
        progress(0.0)
        outcome = await self.arm.move(
            trajectory, progress=progress, watch=watch, limits=limits)
        outcome.raise_unless_done()

    async def dwell(self, duration: float, watch: Callable[[], str] | None = None) -> None:
        """Rest for a time, by the stamps of the joint states.

        Raises:
            DataError: If joint states stop coming or ``watch`` complains.
            CancelledError: If a stop was asked for.

        """
        latest = self.joints.latest
        end = (latest[0] if latest else 0.0) + duration
        while (latest := self.joints.latest) is not None and latest[0] < end:
            await self.pulse.beat()
            self.check_stopped()
            self._check_clock()
            complaint = self.joints.complaint() or (watch() if watch is not None else '')
            if not complaint and self.joints.age() > self.values.state_timeout:
                complaint = f'No joint states have come for {self.joints.age():.2f} s.'
            if complaint:
                held = 'is held' if self.arm.resting else 'was not seen at rest: keep clear'
                raise DataError(f'{complaint} The arm {held}.')

    async def go_to(
        self, posture: Array, *, phase: str, message: str, share: tuple[float, float],
        watch: Callable[[], str] | None = None,
    ) -> None:
        """Move to a posture on a way that touches nothing; arguments as of ``move``."""
        self.check_stopped()
        path = await self.worker.run(
            self.pulse, connect, self.checker.robot, self.checker, self.joints.posture().copy(),
            posture)
        await self.move(self.path_trajectory(path), phase=phase, message=message, share=share,
                        watch=watch)

    def speed_limits(self) -> tuple[Array, Array]:
        """Return the speeds and accelerations of moves between postures, shape (n,) each."""
        velocity = np.minimum(self.robot.velocity_limit, self.values.max_velocity)
        return velocity, np.full(self.robot.n, self.values.max_acceleration)

    def path_trajectory(self, postures: Array) -> Trajectory:
        """Return a motion through postures, at rest in each."""
        return quintic_path(postures, *self.speed_limits())
