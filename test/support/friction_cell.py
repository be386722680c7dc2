# SPDX-License-Identifier: Apache-2.0
"""Measurements of joints with friction at constant speeds, independent of the code under test.

The law is written out from its formula, gravity and inertia come from Pinocchio's recursive
Newton-Euler of the untouched URDF, speed profiles from the formula of a trapezoid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from robocal_ros.messages import JointSamples
from robocal_ros.robot import RigidBodyInertia, Robot
from support.arms import arm
from support.forward import Noise, Reference, Tool, measured, tour

NAMES = ('coulomb', 'static', 'stribeck_velocity', 'viscous')
RANDOM_ALONE = Noise(quantisation=0.0)
REFERENCE_CELL = Noise()
TOOL = Tool(2.0, np.array([0.02, -0.01, 0.1]))


@dataclass(frozen=True)
class Truth:
    """Friction of a joint: pairs for positive and negative speed."""

    coulomb: tuple[float, float] = (0.70, 0.64)
    static: tuple[float, float] = (1.20, 1.08)
    stribeck_velocity: tuple[float, float] = (0.040, 0.036)
    viscous: tuple[float, float] = (0.62, 0.68)

    def torque(self, velocity: np.ndarray) -> np.ndarray:
        """Return the friction torque by the formula of each direction [N·m]."""
        found = np.zeros_like(np.asarray(velocity, dtype=float))
        for side, sign in ((0, 1.0), (1, -1.0)):
            speed = np.maximum(sign * np.asarray(velocity, dtype=float), 0.0)
            level = self.coulomb[side] + (self.static[side] - self.coulomb[side]) * np.exp(
                -np.square(speed / self.stribeck_velocity[side]))
            found += sign * np.where(speed > 0.0, level + self.viscous[side] * speed, 0.0)
        return found

    def vector(self) -> np.ndarray:
        """Return the eight parameters: forward, then backward, in the order of ``NAMES``."""
        return np.array([getattr(self, name)[side] for side in (0, 1) for name in NAMES])

    def curve_error(self, law: object, low: float = 0.005, high: float = 0.6) -> float:
        """Return the RMS error of a law over a range of speeds, relative to the truth's [%]."""
        speed = np.linspace(low, high, 400)
        both = np.concatenate((speed, -speed))
        truth = self.torque(both)
        error = law.torque(both) - truth
        return 100.0 * float(np.sqrt(np.mean(error**2) / np.mean(truth**2)))


WRIST = Truth()
"""Friction of the last joint of the reference cell."""


@dataclass(frozen=True)
class ConstantSpeed:
    """One run: joint, start [rad], signed speed [rad/s], and duration of constant speed [s]."""

    joint: int
    start: float
    speed: float
    cruise: float


def both_ways(
    joint: int, speeds: Sequence[float], span: float = 0.13, shortest: float = 2.0,
    longest: float = 8.0, start: float = -0.3,
) -> list[ConstantSpeed]:
    """Return runs forward and back over the same positions."""
    runs = []
    for speed in speeds:
        cruise = float(np.clip(span / speed, shortest, longest)) + 0.8
        way = speed * cruise + speed**2 / ACCELERATION
        runs += [ConstantSpeed(joint, start, speed, cruise),
                 ConstantSpeed(joint, start + way, -speed, cruise)]
    return runs


ACCELERATION = 2.0
SPEEDS = tuple(np.geomspace(0.005, 0.6, 8))


@dataclass(frozen=True)
class Record:
    """A motion and its torques, before noise."""

    joint_names: tuple[str, ...]
    time: np.ndarray
    position: np.ndarray
    velocity: np.ndarray
    torque: np.ndarray
    run: np.ndarray
    """Number, from 1, of the run with constant speed in each sample; 0 for none."""
    runs: tuple[ConstantSpeed, ...]
    counts: dict[str, int] = field(default_factory=dict)

    def samples(self, noise: Noise = REFERENCE_CELL, seed: int = 0, **changes) -> JointSamples:
        arrays = dict(zip(('position', 'velocity', 'effort'), measured(
            self, self.torque, noise, np.random.default_rng(seed)), strict=True))
        return JointSamples(self.joint_names, self.time, **{**arrays, **changes})

    def effort(self, seed: int = 0) -> np.ndarray:
        """Return a copy of the measured effort for modification."""
        return self.samples(seed=seed).effort.copy()

    def rows(self, run: int) -> np.ndarray:
        """Return the samples of a run with constant speed."""
        return np.flatnonzero(self.run == run)


def record(
    truths: dict[int, Truth], runs: Sequence[ConstantSpeed], *, name: str = 'robocal',
    tool: Tool | None = None, rate: float = 250.0, posture: np.ndarray | None = None,
    gravity: Sequence[float] = (0.0, 0.0, -9.81),
) -> Record:
    """Return runs one after the other, with moves to each start and rests in between."""
    robot = arm(name).robot()
    reference = Reference(arm(name).urdf, arm(name).tool, gravity, tool)
    start = np.array([0.2, 0.4, -0.6, 0.3, 0.5, 0.0]) if posture is None else posture.copy()
    ways, here = [], start
    for count, run in enumerate(runs, 1):
        way = abs(run.speed) * run.cruise + run.speed**2 / ACCELERATION
        for angle, speed, number in ((run.start, 0.8, 0), (
                run.start + np.sign(run.speed) * way, abs(run.speed), count)):
            here = here.copy()
            here[run.joint] = angle
            ways.append((here, speed, number))
    # It rests in the end.
    motion = tour(start, [*ways, (here, 1.0, 0)], ACCELERATION, rate)
    torque = reference.torque(motion.position, motion.velocity, motion.acceleration)
    for joint, truth in truths.items():
        torque[:, joint] += truth.torque(motion.velocity[:, joint])
    return Record(robot.joint_names, motion.time, motion.position, motion.velocity, torque,
                  motion.window, tuple(runs))


def loaded(robot: Robot, tool: Tool) -> Robot:
    """Return the robot carrying a tool."""
    return robot.with_payload(RigidBodyInertia(tool.mass, tool.com, tool.inertia))
