# SPDX-License-Identifier: Apache-2.0
"""What an exciting record leaves in doubt besides the payload, the same for all its channels.

Joints sag under the torque that they carry, so links are not where encoders on the motor side
say; encoders have offsets; a sensor may tell with a delay; speeds may lag behind positions, as by
half a step where motion is integrated step by step. Each is small, and each looks like a little
inertia. They are estimated along, within what is known of them beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.estimation.blocks import Blocks, Channels, Kinematics, UniformSpline
from robocal_ros.robot.model import Robot

_STEP = 1e-4


@dataclass(frozen=True)
class DoubtSettings:
    """What is known beforehand, as standard deviations; what is 0 is not doubted.

    Attributes:
        posture: Of the angle of each joint [rad].
        sag: Of a joint's angle under its largest torque [rad].
        delay: Of the stamps of what was measured against those of the positions, and of the
            speeds that act against them [s].

    """

    posture: float = 0.0
    sag: float = 0.0
    delay: float = 0.0


@dataclass(frozen=True)
class Doubts:
    """Columns that all channels share, about an estimate of the payload.

    Attributes:
        names: Names of the s columns.
        std: Their standard deviations beforehand, shape (s,).
        columns: What one unit of each adds to the measured values, shape (channels, k, s).

    """

    names: tuple[str, ...]
    std: Array
    columns: Array

    def prior_rows(self, before: int) -> Array:
        """Return rows of a regressor by which what is known beforehand enters as measured.

        Args:
            before: Number of columns before these.

        Returns:
            Shape (s, before + s); zero is measured, with ``std``.

        """
        size = len(self.names)
        return np.hstack((np.zeros((size, before)), np.eye(size)))

    def part(self, rows: slice) -> Doubts:
        """Return some of the instants."""
        return Doubts(self.names, self.std, self.columns[:, rows])

    @classmethod
    def none(cls, channels: int, count: int) -> Doubts:
        """Return no columns at all."""
        return cls((), np.empty(0), np.empty((channels, count, 0)))


def doubts(
    robot: Robot, blocks: Blocks, torque: Array, predicted: Channels, settings: DoubtSettings
) -> Doubts:
    """Work out the columns.

    Args:
        robot: The arm.
        blocks: The motion.
        torque: Torque of its joints at the middles of the blocks with an estimate of what it
            carries, shape (k, n) [N·m]: it makes them sag.
        predicted: What the channels would measure, of shape (channels,) for one instant.
        settings: What is known beforehand.

    """
    usual = blocks.centre.values_of(predicted)
    names: list[str] = []
    std: list[float] = []
    columns: list[Array] = []

    def add(name: str, deviation: float, column: Array) -> None:
        names.append(name)
        std.append(deviation)
        columns.append(column)

    if settings.posture > 0.0:
        for joint, name in enumerate(robot.joint_names):
            shifted = _turned(blocks.centre, joint, (_STEP, 0.0, 0.0))
            add(f'angle of {name}', settings.posture,
                (shifted.values_of(predicted) - usual) / _STEP)
    if settings.sag > 0.0:
        carried = _series(blocks, torque)
        largest = np.abs(carried[0]).max(axis=0)
        limit = np.where(np.isfinite(robot.effort_limit), robot.effort_limit, largest)
        for joint, name in enumerate(robot.joint_names):
            # The link lags behind its encoder by compliance times torque; steps of equal size.
            step = _STEP / max(float(largest[joint]), 1e-9)
            sagged = _turned(blocks.centre, joint, [-step * item[:, joint] for item in carried])
            add(f'compliance of {name}', settings.sag / limit[joint],
                (sagged.values_of(predicted) - usual) / step)
    if settings.delay > 0.0:
        add('delay', settings.delay, -_series(blocks, usual)[1])
        early = replace(blocks.centre, velocity=blocks.centre.velocity
                        - _STEP * blocks.centre.acceleration)
        add('delay of speeds', settings.delay, (early.values_of(predicted) - usual) / _STEP)
    if not names:
        return Doubts.none(usual.shape[1], len(usual))
    return Doubts(tuple(names), np.array(std), np.stack([item.T for item in columns], axis=2))


def _turned(
    motion: Kinematics, joint: int, by: Sequence[Array | float]
) -> Kinematics:
    """Return the motion with one joint elsewhere: angle, speed and acceleration to be added."""
    moved = [motion.position.copy(), motion.velocity.copy(), motion.acceleration.copy()]
    for values, change in zip(moved, by, strict=True):
        values[:, joint] += change
    return Kinematics(*moved)


def _series(blocks: Blocks, values: Array) -> tuple[Array, Array, Array]:
    """Return values at the middles of the blocks, and their first two derivatives."""
    time: Array = blocks.period * np.arange(len(values), dtype=float)
    return UniformSpline(0.0, blocks.period, values).at(time)
