# SPDX-License-Identifier: Apache-2.0
"""Dry run of a procedure: its motions are planned, checked and kept instead of sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from trajectory_msgs.msg import JointTrajectory
from visualization_msgs.msg import Marker

from robocal_ros.arm.gate import GuardedArm
from robocal_ros.arm.protocols import MotionOutcome, MotionStatus, Recorder, Report, Watch
from robocal_ros.arrays import Array
from robocal_ros.messages import JointSamples, conversions
from robocal_ros.robot import MotionLimits, Trajectory

# Postures of each motion at which the place of the tool is computed.
_SHOWN = 25
# Newest samples that stand for those of the resting arm [s].
_REST = 0.5


class PreviewArm(GuardedArm):
    """The arm in a dry run; its one way to send a motion keeps it instead.

    Attributes:
        motions: The motions, at the speed scale.

    """

    def __init__(self, arm: GuardedArm, report: Report) -> None:
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

    def marker(self, frame: str) -> Marker:
        """Return the path of the tool, in the root frame."""
        return conversions.to_marker(frame, 'preview', Marker.LINE_STRIP, (0.9, 0.3, 0.9, 0.9),
                                     (0.004,), points=self._path())

    def trajectory(self) -> JointTrajectory:
        """Return all motions, one after the other without the rests."""
        whole = JointTrajectory(joint_names=list(self.robot.joint_names))
        begin = 0.0
        for motion in self.motions:
            for time, point in zip(
                    motion.time,
                    conversions.to_joint_trajectory(motion, self.robot.joint_names).points,
                    strict=True):
                point.time_from_start = conversions.to_duration(begin + float(time))
                # Where two motions meet, the first has the posture already.
                if time or not whole.points:
                    whole.points.append(point)
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

    on_sample = None

    def samples(self, after: float = -np.inf) -> JointSamples:
        """Return the newest samples recorded."""
        return super().samples(self.newest - _REST)


Arm = GuardedArm
"""The arm as procedures move it; every motion is checked before it is sent."""
