# SPDX-License-Identifier: Apache-2.0
"""Checks of every motion before it is sent, or kept in a dry run.

A joint trajectory controller accepts dangerous goals. So each motion is checked here against
limits, collisions and the present posture before the client sends and monitors it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from trajectory_msgs.msg import JointTrajectory
from visualization_msgs.msg import Marker

from robocal_ros.arm.client import CANCEL_FACTOR, STILL_TIME, STILL_TRAVEL, ArmClient
from robocal_ros.arm.controller import PAUSED
from robocal_ros.arm.owner import ArmOwner
from robocal_ros.arm.protocols import MotionOutcome, MotionStatus, Recorder, Report, Watch
from robocal_ros.arm.waiting import Waiter
from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, DataError, MotionError, RobocalError
from robocal_ros.messages import JointSamples, JointStateStream, conversions
from robocal_ros.parameters import ArmParameters, named
from robocal_ros.robot import (
    CollisionChecker,
    EffortLimits,
    MotionLimits,
    Robot,
    Trajectory,
    connect,
    mesh_folders,
    quintic_path,
)

# Largest distance of the arm from a motion's start [rad].
_START_TOLERANCE = 0.02
# Interval at which an active node looks for joint states and controller: that of idle
# subscriptions, so that both take one turn of the executor [s].
_LOOK_PERIOD = 0.8
# Standstill in which efforts are checked before the first motion [s].
_PREFLIGHT = 0.3
# How often a motion is repeated after transient faults, and the longest wait for their end: of
# sensors, and of joint states, without which whoever called is to hear soon where the arm is [s].
_MAX_REPEATS, _RECOVERY, _STATES_RECOVERY = 3, 5.0, 0.6


class Arm:
    """The arm as procedures move it; every motion is checked before it is sent.

    Attributes:
        robot: The arm's model.
        checker: Its collision geometry.
        owner: Claims the arm for this node.
        recorder: Records the motions; what it recorded of an interrupted motion is discarded.
        check_stopped: Raises CancelledError once a stop was requested; called between the steps.
        compute: Runs a long computation, such as planning, in the worker thread.

    """

    def __init__(
        self, waiter: Waiter, robot: Robot, joints: JointStateStream,
        parameters: Callable[[], ArmParameters], report: Report,
        load_box: Sequence[float] = (), load_frame: str = '',
    ) -> None:
        """Build the collision geometry and create the controller's client.

        Args:
            waiter: Waits in the node's coroutines.
            robot: The arm's model.
            joints: The arm's joint states.
            parameters: Returns the current parameters.
            report: Shows the progress of motions.
            load_box: Size of a box around a load that is mounted at times [m]; empty for none.
            load_frame: Frame of the box.

        """
        self._waiter = waiter
        self.check_stopped, self.compute = waiter.check_stopped, waiter.compute
        self._joints = joints
        self._parameters = parameters
        self._report = report
        self.robot = robot
        values = parameters()
        self.checker = CollisionChecker(
            robot.copy(), package_dirs=mesh_folders(named(values.mesh_folders)),
            tool_box=values.tool_box, load_box=load_box, load_frame=load_frame,
            floor=values.floor if values.floor > -1000.0 else None,
            keep_out=values.keep_out_boxes)
        if self.checker.missing_meshes:
            waiter.node.get_logger().warning(
                f'No collision geometry for {", ".join(self.checker.missing_meshes)}: their '
                'meshes were not found, so their collisions are not detected. Set mesh_folders.')
        if self.checker.by_design:
            waiter.node.get_logger().info(
                f'{", ".join(self.checker.by_design)} touch in nearly every posture, so they are '
                'not checked against each other.')
        self.client = ArmClient(waiter, joints, robot, parameters, report)
        self.owner = ArmOwner(waiter)
        waiter.whereabouts = (
            lambda: 'The arm is held.' if self.owner.claims and self.resting else '')
        self.recorder = Recorder(joints)
        self._missing = ''
        self._timer = waiter.timer(_LOOK_PERIOD, self._look)
        self._timer.cancel()

    def start(self) -> None:
        """Subscribe to the controller's state, and to what may end a motion."""
        for part in self.client.parts:
            part.start()
        self._timer.reset()

    def stop(self) -> None:
        """Unsubscribe."""
        self._timer.cancel()
        for part in self.client.parts:
            part.stop()

    def destroy(self) -> None:
        """Remove client, claim and timer."""
        self._waiter.node.destroy_timer(self._timer)
        self.owner.destroy()
        for part in self.client.parts:
            part.destroy()

    def _look(self) -> None:
        """Report what a motion would lack, and note since when the controller is there."""
        self.client.goals.is_known()
        missing = self.client.missing()
        if missing != self._missing:
            self._missing = missing
            self._report.note(**{'waiting for': missing or 'nothing'})

    @property
    def limits(self) -> MotionLimits:
        """Limits of every motion."""
        return MotionLimits(
            self.robot.joint_names, self.robot.lower, self.robot.upper,
            self.robot.velocity_limit,
            np.full(self.robot.n, self._parameters().max_acceleration))

    @property
    def resting(self) -> bool:
        """True while the joint states show the arm at rest, those included that are queued."""
        self._joints.catch_up()
        return self.client.resting

    def posture(self) -> Array:
        """Return a copy of the posture, shape (n,) [rad]; raises DataError if it is unknown."""
        return self._joints.posture().copy()

    # --------------------------------------------------------------------- the gate

    def check_now(self, trajectory: Trajectory) -> None:
        """Check that nothing speaks against beginning a motion now.

        Args:
            trajectory: The motion.

        Raises:
            MotionError: If the motion must not be sent; with the reason, value and limit.
            ConfigurationError: If the controller moves other joints.

        """
        self.client.controller.look(every=True)
        names, controlled = self.robot.joint_names, self.client.controller.joints
        if controlled and set(controlled) != set(names):
            raise ConfigurationError(
                f"Controller '{self.client.name}' moves {', '.join(controlled)}, but the arm's "
                f"joints are {', '.join(names)}. Correct the parameter controller, joints or "
                'tool_frame.')
        self.owner.check()
        self.client.goals.check()
        if (reason := self.client.abort.problem()) is not None:
            raise MotionError(f'{reason[1]} Nothing was sent.')
        if self.client.controller.paused:
            raise MotionError(f'{PAUSED} Nothing was sent; release it and call again.')
        if problem := self.client.state_problem():
            raise MotionError(f'{problem} Nothing was sent.')
        distance = np.abs(self._joints.posture() - trajectory.start)
        worst = int(np.argmax(distance))
        if distance[worst] > _START_TOLERANCE:
            raise MotionError(
                f"Joint '{self.robot.joint_names[worst]}' is {distance[worst]:.4f} rad away from "
                f"the motion's start (limit {_START_TOLERANCE} rad). Nothing was sent; check "
                f'whether another client moves the arm.{self._joints.several}')
        travel = self._joints.travel(STILL_TIME)
        if not np.isfinite(travel):
            raise MotionError(f'The joint states of the last {STILL_TIME} s have a gap, or their '
                              'clock jumped, so that it is not known whether the arm rests. '
                              'Nothing was sent; check the driver, and call again.')
        if travel > 5.0 * STILL_TRAVEL:
            raise MotionError('The arm is already moving; another client seems to move it. '
                              f'Nothing was sent.{self._joints.several}')
        self.client.check_commands()

    def check_path(self, trajectory: Trajectory, limits: MotionLimits | None) -> Trajectory:
        """Check limits and collisions of a trajectory; return it at the speed scale.

        Args:
            trajectory: The motion before the speed scale, or at that of ``limits``.
            limits: Limits of this motion instead of the usual ones.

        Raises:
            MotionError: If it exceeds a limit or touches; with the value and the limit.

        """
        limits = limits or self.limits
        # The parameter may have been lowered since the motion was planned.
        scaled = trajectory.slowed(min(1.0, self._parameters().speed_scale / limits.scale))
        limits.check(scaled)
        if contact := self.checker.first_contact(scaled.sample(scaled.dense())[0]):
            raise MotionError(
                f'On this motion {contact}. Nothing was sent; start from another posture, or '
                'correct the collision geometry or clearance.')
        return scaled

    # ----------------------------------------------------------------------- moving

    async def connect(self) -> None:
        """Wait until joint states and the controller are available, and claim the arm.

        Raises:
            ConfigurationError: If they are not ready in time.
            MotionError: If another node or client moves the arm.
            DataError: If efforts are needed, and are frozen.
            CancelledError: If a stop was requested.

        """
        await self.client.connect(self._parameters().connect_timeout)
        await self._waiter.until_stopped(
            self.client.goals.is_known, self._parameters().connect_timeout)
        # Its refusal names the node, where that of a goal knows only that it is another client's.
        self.owner.check()
        self.client.goals.check()
        self.owner.claim()
        if self._joints.need_effort:
            await self._check_efforts()
        await self.keep_clear()

    async def keep_clear(self) -> None:
        """Keep the distances for motions from and to the present posture."""
        values = self._parameters()
        nearer = await self.compute(
            self.checker.keep_clear, self.posture(), values.clearance,
            CANCEL_FACTOR * values.path_tolerance)
        if nearer:
            self._waiter.node.get_logger().warning(
                f'{"; ".join(nearer)}: motions may come half as near as the arm rests. Set '
                'clearance to keep another distance.')

    async def _check_efforts(self) -> None:
        """Raise a DataError if no effort of the resting arm changes.

        Single joints may be without load, or held by a brake.
        """
        begin = self._joints.newest
        # A restarted driver may begin its clock anew.
        await self._waiter.until_stopped(
            lambda: not begin <= self._joints.newest < begin + _PREFLIGHT,
            self._parameters().connect_timeout)
        effort = self._joints.samples(begin).effort
        if len(effort) > 1 and not np.ptp(effort, axis=0).any():
            raise DataError(
                f"The efforts of all joints on '{self._joints.topic}' are the same in "
                f'{len(effort)} messages in a row; a live sensor scatters. Check the driver, and '
                'that its hardware interface exports efforts. The arm was not moved.')

    async def try_move(
        self, trajectory: Trajectory, *, limits: MotionLimits | None = None,
        progress: Callable[[float], None] | None = None, watch: Watch | None = None,
    ) -> MotionOutcome:
        """Check and send a motion, monitor it until the arm is at rest, and return its outcome.

        Args:
            trajectory: The motion before the speed scale.
            limits: Limits of this motion instead of the usual ones.
            progress: Called with the completed share.
            watch: Returns a sentence when data are lost, which ends the motion.

        """
        try:
            # In the worker: the collision check takes longer than a turn of the executor may.
            checked = await self.compute(self.check_path, trajectory, limits)
            # After a gap of the joint states, as the check may cause on a busy machine, it takes a
            # moment until the travel is known again, and the controller may report the end of the
            # last motion later than they do.
            newest = self._joints.newest
            await self._waiter.until(lambda: bool(
                np.isfinite(self._joints.travel(STILL_TIME))
                and self.client.controller.has_reached(newest)), 2.0 * STILL_TIME)
            if self._waiter.stop_reason:
                return MotionOutcome(MotionStatus.CANCELLED, self._waiter.stop_reason,
                                     await self.client.comes_to_rest())
            if watch is not None and (problem := watch()):
                return MotionOutcome(MotionStatus.DATA_LOST, f'{problem} Nothing was sent.',
                                     await self.client.comes_to_rest())
            self.check_now(trajectory)
        except RobocalError as error:
            if self.client.goals.foreign:
                return MotionOutcome(MotionStatus.TAKEN_OVER, str(error), self.client.resting)
            return MotionOutcome(MotionStatus.REFUSED, str(error),
                                 await self.client.comes_to_rest())
        return await self.client.execute(checked, progress, watch)

    async def move(
        self, trajectory: Trajectory, *, phase: str, message: str, share: tuple[float, float],
        watch: Watch | None = None, limits: MotionLimits | None = None,
        effort: EffortLimits | None = None,
    ) -> None:
        """Move and report progress; a motion that a transient fault ended is repeated.

        Args:
            trajectory: The motion, from the present posture.
            phase: Phase shown during it.
            message: Sentence shown during it.
            share: Progress of the procedure at its start and end [%].
            watch: Returns a sentence when data are lost.
            limits: Limits of this motion instead of the usual ones.
            effort: Limits of the drive efforts on the way back to a motion that is repeated.

        Raises:
            MotionFailedError: If it was refused or did not end at its goal.
            CancelledError: If it was ended on request.

        """
        def progress(done: float) -> None:
            self._report.update(phase, message,
                                progress=share[0] + done * (share[1] - share[0]),
                                samples=str(self._joints.recorded),
                                dropped=str(self._joints.counts.dropped),
                                **{'longest turn': f'{1e3 * self.client.longest_turn:.1f} ms'})

        begin = self.recorder.stamps()
        self._check_clock()
        progress(0.0)
        outcome = await self.try_move(trajectory, limits=limits, progress=progress, watch=watch)
        for number in range(_MAX_REPEATS):
            if not outcome.transient:
                break
            self._report.update(phase, f'{outcome.message} The arm is held.')
            if not await self._recovered(
                    watch, _STATES_RECOVERY if outcome.status is MotionStatus.STATES_LOST
                    else _RECOVERY):
                break
            self._waiter.node.get_logger().warning(
                f'{outcome.message} The motion is repeated ({number + 1} of {_MAX_REPEATS}).')
            # Nothing is recorded on the way back to the start.
            self.recorder.rewind(begin)
            try:
                outcome = await self.try_move(
                    await self.way(self.posture(), trajectory.start, effort), watch=watch)
            finally:
                self.recorder.resume(begin)
            if outcome.status is MotionStatus.DONE:
                outcome = await self.try_move(
                    trajectory, limits=limits, progress=progress, watch=watch)
        outcome.raise_unless_done()

    async def _recovered(self, watch: Watch | None, timeout: float) -> bool:
        """Wait until the arm rests and all streams deliver again; return whether they do."""
        return not self._joints.counts.clock_jumps and await self._waiter.until_stopped(
            lambda: self.resting and not self.client.state_problem()
            and not (watch is not None and watch()), timeout)

    async def go_to(
        self, posture: Array, *, phase: str, message: str, share: tuple[float, float],
        watch: Watch | None = None, effort: EffortLimits | None = None,
    ) -> None:
        """Move to a posture on a collision-free path; arguments as for ``move``.

        With ``effort``, the path stays where the drives can hold the arm, and the motion is
        slowed where necessary.

        Raises:
            MotionError: As for ``move``, or if no such path is found.
            CancelledError: If it was ended on request.

        """
        self.check_stopped()
        await self.move(await self.way(self.posture(), posture, effort), phase=phase,
                        message=message, share=share, watch=watch, effort=effort)

    async def way(self, start: Array, goal: Array, effort: EffortLimits | None) -> Trajectory:
        """Return a collision-free motion between two postures, within the effort limits."""
        path = await self.compute(
            connect, self.checker.robot, self.checker, start, goal, effort=effort)
        trajectory = self.path_trajectory(path)
        return trajectory if effort is None else await self.compute(effort.slowed, trajectory)

    async def dwell(self, duration: float, watch: Watch | None = None) -> None:
        """Rest for a time, by the stamps of the joint states [s].

        Raises:
            DataError: If joint states stop or ``watch`` returns a problem.
            CancelledError: If a stop was requested.

        """
        latest = self._joints.latest
        end = (latest[0] if latest else 0.0) + duration
        while (latest := self._joints.latest) is not None and latest[0] < end:
            await self._waiter.tick()
            self.check_stopped()
            self._check_clock()
            problem = self.client.state_problem() or (watch() if watch is not None else '')
            if problem:
                held = 'is held' if self.resting else 'was not seen at rest: keep clear'
                raise DataError(f'{problem} The arm {held}.')

    async def await_readings(self, watch: Watch) -> None:
        """Wait until a sensor that the motion needs delivers usable readings.

        Args:
            watch: Returns the problem of the sensor, empty for none.

        Raises:
            DataError: If it delivers none in time.
            CancelledError: If a stop was requested.

        """
        await self._waiter.until_stopped(lambda: not watch(), self._parameters().connect_timeout)
        if problem := watch():
            raise DataError(f'{problem} The arm was not moved.')

    async def await_rest(self) -> None:
        """Wait for joint states of an arm at rest.

        Raises:
            DataError: If there are none, or the arm keeps moving.
            CancelledError: If a stop was requested.

        """
        if await self._waiter.until_stopped(
                lambda: self.resting, self._parameters().connect_timeout):
            return
        if problem := self.client.state_problem():
            raise DataError(f'{problem} The arm was not moved; check the driver.')
        raise DataError('The arm is moving; another client seems to move it. Nothing was sent; '
                        f'call again when it is at rest.{self._joints.several}')

    def _check_clock(self) -> None:
        """Raise DataError once the clock has jumped back: samples of the run are lost."""
        if self._joints.counts.clock_jumps:
            raise DataError('The clock of the joint states jumped back during the run, so the '
                            'samples before it are lost. The arm is held; call run again.')

    def speed_limits(self) -> tuple[Array, Array]:
        """Return the speeds and accelerations of moves between postures, shape (n,) each."""
        values = self._parameters()
        return (np.minimum(self.robot.velocity_limit, values.max_velocity),
                np.full(self.robot.n, values.max_acceleration))

    def path_trajectory(self, postures: Array) -> Trajectory:
        """Return a motion through postures, at rest in each."""
        return quintic_path(postures, *self.speed_limits())


# Postures of each motion at which the place of the tool is computed.
_SHOWN = 25
# Size of what a preview shows of the floor [m].
_SLAB = [2.0, 2.0, 0.01]
# Newest samples that stand for those of the resting arm [s].
_REST = 0.5


class PreviewArm(Arm):
    """The arm in a dry run; its one way to send a motion keeps it instead.

    Attributes:
        motions: The motions, at the speed scale.

    """

    def __init__(self, arm: Arm, report: Report) -> None:
        """Begin at the present posture.

        Args:
            arm: The arm, which stays where it is.
            report: Shows the progress.

        """
        self.__dict__.update(arm.__dict__)
        self._report = PreviewReport(report)
        self._posture = arm.posture()
        self.motions: list[Trajectory] = []
        self._pieces: list[Trajectory] = []

    def posture(self) -> Array:
        """Return the posture after the last motion, shape (n,) [rad]."""
        return self._posture.copy()

    def _check_clock(self) -> None:
        """Do nothing: no samples can be lost."""

    async def try_move(
        self, trajectory: Trajectory, *, limits: MotionLimits | None = None,
        progress: Callable[[float], None] | None = None, watch: Watch | None = None,
    ) -> MotionOutcome:
        """Check a motion as if it were to be sent, and keep it.

        Raises:
            MotionError: If it would be refused; with the value and the limit.
            CancelledError: If a stop was requested.

        """
        self.check_stopped()
        self.motions.append(await self.compute(self.check_path, trajectory, limits))
        self._pieces.append(self.motions[-1])
        self._posture = trajectory.goal.copy()
        return MotionOutcome(MotionStatus.DONE, '', True)

    async def dwell(self, duration: float, watch: Watch | None = None) -> None:
        """Keep the time."""
        still = np.zeros((2, self.robot.n))
        self._pieces.append(Trajectory(np.array([0.0, duration]), still + self._posture, still))

    async def await_readings(self, watch: Watch) -> None:
        """Do nothing: no sensor is needed."""

    # ---------------------------------------------------------------------- outcome

    def summary(self, place: str) -> str:
        """Return number, duration and extent of the motions as a sentence.

        Args:
            place: Name of the frame of the extent.

        """
        if not self.motions:
            return ''
        duration = sum(piece.duration for piece in self._pieces)
        low, high = (part(self._path(), axis=0) for part in (np.min, np.max))
        extent = ', '.join(f'{axis} {a:.2f} … {b:.2f}' for axis, a, b in zip(
            'xyz', low, high, strict=True))
        count = '1 motion' if len(self.motions) == 1 else f'{len(self.motions)} motions'
        return (f'{count}, {duration:.0f} s with rests; {self.robot.tool_frame} stays within '
                f'{extent} m in {place}.')

    def sampled(self, like: JointSamples) -> Trajectory:
        """Return motions and rests as one, with knots at the rate of samples."""
        begins = np.cumsum([0.0, *(piece.duration for piece in self._pieces)])
        time = np.arange(0.0, begins[-1], float(np.median(np.diff(like.time))))
        parts = np.split(time, np.searchsorted(time, begins[1:-1]))
        rows = [piece.sample(part - begin) for piece, part, begin in zip(
            self._pieces, parts, begins[:-1], strict=True)]
        return Trajectory(time, *(np.concatenate(part) for part in zip(*rows, strict=True)))

    def _path(self) -> Array:
        """Return places of the tool along the motions, shape (k, 3) [m]."""
        return np.array([
            self.robot.transform_frame_to_root(posture, self.robot.tool_frame).translation
            for motion in self.motions
            for posture in motion.sample(np.linspace(0.0, motion.duration, _SHOWN))[0]])

    def markers(self, frame: str) -> list[Marker]:
        """Return the path of the tool, in the root frame, and what the arm is kept clear of.

        That is the box of the tool, the floor, if gravity is along the root frame's -z, and the
        boxes to keep out of.
        """
        values = self._parameters()
        boxes = [(frame, box[:3], box[3:])
                 for box in np.reshape(values.keep_out_boxes, (-1, 6)).tolist() if all(box[3:])]
        if any(values.tool_box):
            boxes.append((self.robot.tool_frame, [0.0, 0.0, 0.5 * values.tool_box[2]],
                          values.tool_box))
        if values.floor > -1000.0 and not any(self.robot.gravity[:2]):
            boxes.append((frame, [0.0, 0.0, values.floor - 0.5 * _SLAB[2]], _SLAB))
        return [
            conversions.to_marker(frame, 'preview', Marker.LINE_STRIP, (0.9, 0.3, 0.9, 0.9),
                                  (0.004,), points=self._path()),
            *(conversions.to_marker(own, 'preview_box', Marker.CUBE, (0.9, 0.6, 0.2, 0.3), size,
                                    number=number, position=centre)
              for number, (own, centre, size) in enumerate(boxes))]

    def trajectory(self) -> JointTrajectory:
        """Return all motions, one after the other without the rests."""
        whole = JointTrajectory(joint_names=list(self.robot.joint_names))
        begin = 0.0
        for motion in self.motions:
            points = conversions.to_joint_trajectory(motion, self.robot.joint_names, begin).points
            # Where two motions meet, the first has the posture already.
            whole.points.extend(points[bool(whole.points):])
            begin += motion.duration
        return whole


class PreviewReport:
    """Report of a dry run: procedures tell it of motions and measurements, which are planned."""

    def __init__(self, report: Report) -> None:
        """Set the report of the node."""
        self._report = report

    def update(
        self, phase: str, message: str, *, progress: float | None = None, **values: Any
    ) -> None:
        """Show a sentence as part of the plan."""
        self._report.update('planning', f'Planned, nothing moves: {message}', progress=progress)

    def note(self, **values: str) -> None:
        """Show nothing: there are no estimates."""


class PreviewRecorder(Recorder):
    """Recorder of a dry run: shows the newest samples of the resting arm, and records nothing."""

    def listen(self, receive: Callable[[float, Array, Array], None] | None) -> None:
        """Do nothing."""

    def samples(self, after: float = -np.inf) -> JointSamples:
        """Return the newest samples recorded."""
        return super().samples(self.newest - _REST)
