# SPDX-License-Identifier: Apache-2.0
"""The simulated arm following trajectories exactly, with what its driver would publish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from robocal_ros.messages import JointSamples, WrenchSamples
from robocal_ros.messages.checks import PostureCheck
from robocal_ros.robot import Robot, Trajectory
from robocal_ros.robot.trajectories import quintic_path
from robocal_sim.model import Description
from robocal_sim.prescribed import Motion, measure
from robocal_sim.truth import Cell, HiddenTruth, ToolTruth


def largest_torques(robot: Robot) -> np.ndarray:
    """Return the largest gravity torques over the workspace, shape (n,) [N·m]."""
    postures = np.random.default_rng(0).uniform(*robot.sampling_limits(), (200, robot.n))
    largest = np.abs(robot.gravity_torques(postures)).max(axis=0)
    return np.maximum(largest, 0.1 * largest.max())


def inertias(robot: Robot, home: np.ndarray) -> np.ndarray:
    """Return the diagonal of the joint-space inertia matrix, shape (n,) [kg·m²]."""
    still = np.zeros(robot.n)
    weight = robot.inverse_dynamics(home, still, still)
    return np.array([robot.inverse_dynamics(home, still, unit)[i] - weight[i]
                     for i, unit in enumerate(np.eye(robot.n))])


def sampled(
    parts: Sequence[Trajectory | float], start: np.ndarray, period: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return position, velocity and acceleration of motions and rests [s], shape (k, n) each."""
    rows, here = [], start
    for part in parts:
        if isinstance(part, Trajectory):
            rows.append(part.sample(np.arange(0.0, part.duration, period)))
            here = part.goal
        else:
            still = np.zeros((max(1, round(part / period)), len(start)))
            rows.append((still + here, still, still))
    position, velocity, acceleration = (np.vstack(column) for column in zip(*rows, strict=True))
    return position, velocity, acceleration


@dataclass(frozen=True)
class FollowedArm:
    """An arm of a hidden truth, its tool at the tool frame, its noise and its rate [Hz]."""

    robot: Robot
    description: Description
    truth: HiddenTruth
    tool: ToolTruth
    noise: Cell
    rate: float

    def record(
        self, motions: Sequence[Trajectory], *, tool: bool = True, rest: float = 0.5
    ) -> tuple[JointSamples, WrenchSamples]:
        """Return the samples of motions with rests [s] and straight ways between them."""
        period = 1.0 / (self.rate * np.ceil(250.0 / self.rate))
        speed = np.minimum(self.robot.velocity_limit, 1.0)
        parts, here = list[Trajectory | float](), motions[0].start
        for motion in motions:
            if np.abs(motion.start - here).max() > 1e-6:
                parts.append(quintic_path(
                    np.stack((here, motion.start)), speed, np.full(len(here), 2.0)))
            parts += [rest, motion]
            here = motion.goal
        found = measure(
            self.description, replace(self.truth, tool=self.tool if tool else None), self.noise,
            Motion(period, *sampled([*parts, rest], motions[0].start, period)),
            seed=1, rate=self.rate)
        # Nodes and robocal estimate check and unwrap positions before they are recorded.
        time = 100.0 + found.time
        rows = np.hstack((found.position, found.velocity, found.effort))
        refused, _ = PostureCheck(self.robot).check_block(
            np.rint(1e9 * time).astype(np.int64), rows)
        kept = np.delete(np.arange(len(time)), list(refused))
        (frame, (stamps, readings)), = found.wrenches.items()
        return (JointSamples(self.robot.joint_names, time[kept], *np.hsplit(rows[kept], 3),
                             source='simulation'),
                WrenchSamples(frame, 100.0 + stamps, readings))
