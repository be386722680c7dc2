# SPDX-License-Identifier: Apache-2.0
"""Arm, recorder and report for procedures, without ROS and without motion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robocal_ros.errors import DataError
from robocal_ros.messages import JointSamples
from robocal_ros.robot import CollisionChecker, MotionLimits, Robot, Trajectory, quintic_path
from support.arms import arm as example_arm

HOME = np.array([0.3, 0.4, 0.3, 0.6, 0.9, 0.2])
"""Initial posture of the default arm; its tool is tilted by 26°."""


@dataclass
class FakeArm:
    """An arm that reaches every goal at once, and logs the requests."""

    robot: Robot
    checker: CollisionChecker
    max_acceleration: float = 2.0
    at: np.ndarray = field(default_factory=HOME.copy)
    log: list[tuple[str, Any]] = field(default_factory=list)
    watched: list[Callable[[], str] | None] = field(default_factory=list)
    while_moving: Callable[[Trajectory], None] | None = None

    @property
    def limits(self) -> MotionLimits:
        robot = self.robot
        return MotionLimits(robot.joint_names, robot.lower, robot.upper, robot.velocity_limit,
                            np.full(robot.n, self.max_acceleration))

    def posture(self) -> np.ndarray:
        return self.at.copy()

    def check_stopped(self) -> None:
        """Do nothing: this arm is never stopped."""

    async def compute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    async def move(
        self, trajectory: Trajectory, *, phase: str, message: str, share: tuple[float, float],
        watch: Callable[[], str] | None = None, limits: MotionLimits | None = None,
    ) -> None:
        (limits or self.limits).check(trajectory)
        np.testing.assert_allclose(trajectory.start, self.at, atol=1e-9)
        self.log.append((phase, share))
        self.watched.append(watch)
        if self.while_moving is not None:
            self.while_moving(trajectory)
        self.at = np.array(trajectory.goal)

    async def go_to(self, posture: np.ndarray, *, phase: str, message: str,
                    share: tuple[float, float], watch: Any = None, effort: Any = None) -> None:
        self.log.append((phase, share))
        self.watched.append(watch)
        self.at = np.array(posture)

    async def dwell(self, duration: float, watch: Any = None) -> None:
        self.log.append(('dwell', duration))
        self.watched.append(watch)

    async def await_readings(self, watch: Callable[[], str]) -> None:
        if watch():
            raise DataError(watch())

    def path_trajectory(self, postures: np.ndarray) -> Trajectory:
        return quintic_path(postures, *self.speed_limits())

    def speed_limits(self) -> tuple[np.ndarray, np.ndarray]:
        return np.ones(self.robot.n), np.full(self.robot.n, self.max_acceleration)

    async def await_rest(self) -> None:
        """Do nothing: this arm is always at rest."""


@dataclass
class FakeRecorder:
    """A recorder with samples of an arm at rest."""

    names: tuple[str, ...]
    effort: np.ndarray
    on_sample: Any = None

    def listen(self, receive: Any) -> None:
        self.on_sample = receive

    def samples(self) -> JointSamples:
        count = len(self.effort)
        still = np.zeros((count, len(self.names)))
        return JointSamples(self.names, 0.01 * np.arange(count), still, still, self.effort)


@dataclass
class FakeReport:
    """Collects the phases and notes of a procedure."""

    phases: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    def update(self, phase: str, message: str, **values: Any) -> None:
        self.phases.append(phase)

    def note(self, **values: str) -> None:
        self.notes |= values


def fake_arm(name: str = 'robocal') -> FakeArm:
    made = example_arm(name)
    return FakeArm(made.robot(), CollisionChecker(made.robot(), package_dirs=made.package_dirs))
