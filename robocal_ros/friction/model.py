# SPDX-License-Identifier: Apache-2.0
"""Friction laws: steady friction of one direction, the bristles of LuGre, and compensation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.robot import Robot, SteadyFriction, Trajectory

_BASES = {
    'coulomb': ('coulomb',),
    'coulomb_viscous': ('coulomb', 'viscous'),
    'coulomb_power': ('coulomb', 'viscous', 'exponent'),
    'stribeck': ('coulomb', 'static', 'stribeck_velocity', 'viscous'),
}
_LOAD = '_load'
_PARAMETERS: dict[str, tuple[str, ...]] = {
    **_BASES, **{base + _LOAD: (*names, 'load_factor') for base, names in _BASES.items()}}
MODELS = tuple(_PARAMETERS)
"""Steady laws: four of the speed alone, then the same with friction that grows with load."""
SHAPES = {'coulomb_power': 'exponent', 'stribeck': 'stribeck_velocity'}
"""Parameter in which a law is nonlinear, by the law of the speed alone."""


def parameter_names(model: str) -> tuple[str, ...]:
    """Return the names of a model's parameters, as in results."""
    return _PARAMETERS[model]


def of_speed(model: str) -> str:
    """Return the part of a model that depends on the speed alone."""
    return model.removesuffix(_LOAD)


def evaluate(model: str, value: Array, speed: Array, load: Array | float = 0.0) -> Array:
    """Return |F| of the law of one direction [N·m].

    Args:
        model: Name of the model.
        value: Parameters in the order of ``parameter_names(model)``.
        speed: |v|, shape (k,) [rad/s].
        load: Transmitted torque minus the reference load, shape (k,) [N·m].

    """
    named = dict(zip(parameter_names(model), value, strict=True))
    torque = np.full_like(speed, named['coulomb'])
    if 'static' in named:
        torque += (named['static'] - named['coulomb']) * np.exp(
            -((speed / named['stribeck_velocity']) ** 2))
    torque += named.get('load_factor', 0.0) * np.asarray(load)
    return np.asarray(
        torque + named.get('viscous', 0.0) * speed ** named.get('exponent', 1.0))


def jacobian(
    model: str, value: Array, speed: Array, load: Array | float = 0.0
) -> Array:
    """Return the derivatives of ``evaluate`` by the parameters, shape (k, p)."""
    named = dict(zip(parameter_names(model), value, strict=True))
    power = speed ** named.get('exponent', 1.0)
    columns = {'coulomb': np.ones_like(speed), 'viscous': power,
               'load_factor': np.broadcast_to(load, speed.shape)}
    if 'exponent' in named:
        columns['exponent'] = named['viscous'] * power * np.log(np.maximum(speed, 1e-12))
    if 'static' in named:
        ratio = speed / named['stribeck_velocity']
        bell = np.exp(-(ratio**2))
        columns['coulomb'] = 1.0 - bell
        columns['static'] = bell
        columns['stribeck_velocity'] = (
            (named['static'] - named['coulomb']) * bell * 2.0 * ratio**2
            / named['stribeck_velocity'])
    return np.column_stack([columns[name] for name in parameter_names(model)])


def simulate(
    angle: Array, speed: Array, level: Array, stiffness: float, damping: float, begin: float
) -> Array:
    """Return the torque of the bristles along a motion, σ0 z + σ1 dz/dt [N·m].

    Args:
        angle: Joint angles, shape (k,) [rad].
        speed: Joint speeds, shape (k,) [rad/s].
        level: Steady level g at each speed, shape (k,) [N·m].
        stiffness: σ0 [N·m/rad].
        damping: σ1 [N·m·s/rad].
        begin: Initial torque of the spring [N·m].

    """
    # In terms of the spring's torque s = σ0 z: ds/dx = σ0 (1 − s sgn v / g).
    way = np.diff(angle)
    mean = 0.5 * (level[1:] + level[:-1])
    target = np.where(way < 0.0, -mean, mean)
    decay = np.exp(-stiffness * np.abs(way) / mean)
    spring = begin
    springs = [spring]
    for aim, share in zip(target.tolist(), decay.tolist(), strict=True):
        spring = aim + (spring - aim) * share
        springs.append(spring)
    torque = np.array(springs)
    return np.asarray(torque + damping * (speed - np.abs(speed) * torque / level))


class Compensator:
    """Friction torque at the current speed, without chatter at standstill.

    The step of friction at zero speed is replaced by a smooth rise over ``width``, and a measured
    speed counts as zero until it leaves a dead band, and again below half of it (hysteresis);
    otherwise the noise of the measured speed would become torque.

    Attributes:
        laws: Friction in use by joint name; other joints get zero torque.

    """

    def __init__(
        self, laws: Mapping[str, SteadyFriction], joint_names: Sequence[str],
        *, width: float, dead_band: float,
    ) -> None:
        """Initialise for a set of joints.

        Args:
            laws: Friction by joint name.
            joint_names: The arm's joints, the order of all arrays.
            width: Speed over which the torque rises from zero [rad/s].
            dead_band: Measured speeds below this are standstill [rad/s].

        """
        self.laws, self._names = laws, joint_names
        self._width = width
        self._dead_band = dead_band
        self._moving = np.zeros(len(joint_names), dtype=bool)

    def torque(self, velocity: Array, *, measured: bool) -> Array:
        """Return the torque to add, shape (n,) [N·m].

        Args:
            velocity: Joint velocities, shape (n,) [rad/s].
            measured: Whether they are measured rather than commanded.

        """
        speed = np.abs(velocity)
        gain = np.tanh(speed / self._width)
        if measured:
            self._moving = speed > np.where(self._moving, 0.5 * self._dead_band, self._dead_band)
            gain = np.where(self._moving, gain, 0.0)
        torque = np.zeros_like(velocity)
        for i, name in enumerate(self._names):
            if name in self.laws and gain[i] > 0.0:
                torque[i] = gain[i] * self.laws[name].torque(velocity[i])
        return torque


def feed_forward(
    robot: Robot, laws: Mapping[str, SteadyFriction], trajectory: Trajectory
) -> Array:
    """Return the drive torques of a motion: gravity, inertia and friction.

    Args:
        robot: The arm with its payload.
        laws: Identified friction by joint name.
        trajectory: The motion; without accelerations, those of its spline are used.

    Returns:
        Torque at each knot, shape (k, n) [N·m].

    """
    position, velocity, acceleration = trajectory.sample(trajectory.time)
    if trajectory.acceleration is not None:
        acceleration = trajectory.acceleration
    torque = np.array([robot.inverse_dynamics(q, v, a) for q, v, a
                       in zip(position, velocity, acceleration, strict=True)])
    for i, name in enumerate(robot.joint_names):
        if name in laws:
            torque[:, i] += laws[name].torque(velocity[:, i])
    return torque
