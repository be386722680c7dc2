# SPDX-License-Identifier: Apache-2.0
"""Measurements of an arm that follows a prescribed motion exactly, without drives and controller.

The physics, the sensors and their errors are those of the simulated arm; a minute of motion takes
a few seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robocal_sim.model import Description
from robocal_sim.physics import ArmPhysics
from robocal_sim.sensors import ForceTorqueSensor, JointSensor, LowPass
from robocal_sim.truth import Cell, ForceTorqueTruth, HiddenTruth, JointTruth

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Motion:
    """Motion of the links, sampled evenly.

    Attributes:
        period: Sampling period [s].
        position: Link angles, shape (k, n) [rad].
        velocity: Link velocities, shape (k, n) [rad/s].
        acceleration: Link accelerations, shape (k, n) [rad/s²].

    """

    period: float
    position: FloatArray
    velocity: FloatArray
    acceleration: FloatArray


@dataclass(frozen=True)
class Measurement:
    """Joint states and readings of the force/torque sensors.

    Attributes:
        time: Stamps of the joint states, shape (k,) [s].
        position: Measured positions, shape (k, n) [rad].
        velocity: Measured velocities, shape (k, n) [rad/s].
        effort: Measured efforts, shape (k, n) [N·m].
        carried: True torques that the joints transmit, shape (k, n) [N·m].
        friction_factor: Factors on the joints' friction at the end, shape (n,).
        wrenches: Stamps, shape (m,) [s], and readings, shape (m, 6) [N, N·m], by sensor frame.

    """

    time: FloatArray
    position: FloatArray
    velocity: FloatArray
    effort: FloatArray
    carried: FloatArray
    friction_factor: FloatArray
    wrenches: dict[str, tuple[FloatArray, FloatArray]]


def measure(
    description: Description, truth: HiddenTruth, cell: Cell, motion: Motion, *,
    seed: int = 0, rate: float = 500.0,
) -> Measurement:
    """Return the measurements of a prescribed motion.

    Args:
        description: The robot.
        truth: The hidden truth; compliance moves the encoders, not the links.
        cell: Sensor noise; its latencies and dropouts have no effect.
        motion: Motion of the links, sampled at least as fast as the joint states.
        seed: Seed of noise and of drawn biases.
        rate: Rate of the joint states [Hz]; the motion's rate is a multiple of it.

    """
    physics = ArmPhysics(description, truth, motion.position[0])
    frames = [sensor.frame for sensor in truth.force_torque_sensors]
    count, joints = motion.position.shape
    encoder, encoder_velocity, reported, carried = np.empty((4, count, joints))
    true = np.empty((len(frames), count, 6))
    for index, state in enumerate(
            zip(motion.position, motion.velocity, motion.acceleration, strict=True)):
        physics.follow(*state, motion.period)
        encoder[index], encoder_velocity[index] = physics.encoder, physics.encoder_velocity
        reported[index] = physics.reported
        carried[index] = physics.effort - physics.friction.torque
        for number, frame in enumerate(frames):
            true[number, index] = physics.wrench(frame)
    time: FloatArray = motion.period * np.arange(count, dtype=np.float64)
    every = round(1.0 / (rate * motion.period))
    generators = [np.random.default_rng(child)
                  for child in np.random.SeedSequence(seed).spawn(1 + len(frames))]
    sensor = JointSensor(
        cell.joint_states, [truth.joints.get(name, JointTruth()) for name in description.joints],
        generators[0])
    position, velocity, effort = sensor.measure(
        encoder[::every], encoder_velocity[::every],
        delayed(time, reported, time[::every] - truth.effort_delay))
    wrenches = {
        item.frame: _readings(
            ForceTorqueSensor(cell.force_torque, item, generator), item, time, true[number],
            motion.position[:, -1], rate)
        for number, (item, generator) in enumerate(
            zip(truth.force_torque_sensors, generators[1:], strict=True))}
    return Measurement(time[::every], position, velocity, effort, carried[::every],
                       physics.friction.factor, wrenches)


def _readings(
    sensor: ForceTorqueSensor, truth: ForceTorqueTruth, time: FloatArray, wrench: FloatArray,
    angle: FloatArray, rate: float,
) -> tuple[FloatArray, FloatArray]:
    low_pass = LowPass(truth.filter_frequency, round(truth.filter_order), float(time[1]))
    stamps: FloatArray = np.arange(
        truth.phase, time[-1], 1.0 / (truth.rate or rate), dtype=np.float64)
    then = delayed(time, low_pass.filtered(wrench), stamps - truth.delay)
    return stamps, sensor.measure(then, stamps, np.interp(stamps, time, angle))


def delayed(time: FloatArray, values: FloatArray, at: FloatArray) -> FloatArray:
    """Return values, shape (k, …), at other times, shape (m,), the first one before the start."""
    found: FloatArray = np.column_stack([np.interp(at, time, column) for column in values.T])
    return found
