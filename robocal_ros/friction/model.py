# SPDX-License-Identifier: Apache-2.0
"""Friction laws: steady friction of one direction, and compensation."""

from __future__ import annotations

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.robot import ArmFriction, Robot, Trajectory

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
# Longest time between two velocities over which bristles are followed, and for which they are at
# standstill [s].
_GAP = 0.1


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


class Compensator:
    """Friction torque at the current speed, without chatter at standstill.

    Commanded speeds bend the bristles where these are identified; elsewhere the step of friction
    at zero speed is replaced by a smooth rise over ``width``. A measured speed counts as zero
    until it leaves a dead band, and again below half of it (hysteresis); otherwise the noise of
    the measured speed would become torque. At standstill there is none.

    Attributes:
        friction: Friction in use.

    """

    def __init__(self, friction: ArmFriction, *, width: float, dead_band: float) -> None:
        """Initialise for a set of joints.

        Args:
            friction: Friction of the arm.
            width: Speed over which the torque rises from zero [rad/s].
            dead_band: Measured speeds below this are standstill [rad/s].

        """
        self.friction = friction
        self._width = width
        self._dead_band = dead_band
        self._moving = np.zeros(len(friction.known), dtype=bool)
        self._springs: dict[int, float] = {}
        self._stamp = -np.inf
        # Time for which each joint is commanded to stand [s].
        self._stood = np.zeros(len(friction.known))

    def torque(
        self, stamp: float, velocity: Array, load: Array, *, measured: bool
    ) -> Array:
        """Return the torque to add, shape (n,) [N·m].

        Args:
            stamp: Stamp of the velocities [s].
            velocity: Joint velocities, shape (n,) [rad/s].
            load: Torques that the gears transmit, shape (n,) [N·m].
            measured: Whether the velocities are measured rather than commanded.

        """
        if measured:
            limit = np.where(self._moving, 0.5 * self._dead_band, self._dead_band)
            self._moving = np.abs(velocity) > limit
            velocity = np.where(self._moving, velocity, 0.0)
        sliding = np.tanh(velocity / self._width)
        passed, self._stamp = stamp - self._stamp, stamp
        if measured or not 0.0 <= passed < _GAP:
            self._springs.clear()
        else:
            self._stood = np.where(velocity == 0.0, self._stood + passed, 0.0)
            for joint, law in self.friction.laws.items():
                if self._stood[joint] > _GAP:
                    # The bristles hold the joint, not the drive.
                    self._springs[joint] = 0.0
                elif law.has_bristles:
                    v = np.full(2, velocity[joint])
                    shares, self._springs[joint] = law.sliding(
                        np.array([0.0, v[0] * passed]), v, np.full(2, load[joint]),
                        self._springs.get(joint, 0.0))
                    sliding[joint] = shares[-1]
        return self.friction.torque(velocity, load, sliding=sliding)


def feed_forward(
    robot: Robot, friction: ArmFriction, trajectory: Trajectory, *, rigid: bool = True
) -> Array:
    """Return the drive torques of a motion.

    Args:
        robot: The arm with its payload.
        friction: Identified friction.
        trajectory: The motion; without accelerations, those of its spline are used.
        rigid: Whether gravity and inertia are included, not friction alone.

    Returns:
        Torque at each knot, shape (k, n) [N·m].

    """
    position, velocity, acceleration = trajectory.sample(trajectory.time)
    if trajectory.acceleration is not None:
        acceleration = trajectory.acceleration
    load = np.array([robot.inverse_dynamics(q, v, a) for q, v, a
                     in zip(position, velocity, acceleration, strict=True)])
    sliding = np.sign(velocity)
    for joint, law in friction.laws.items():
        if law.has_bristles:
            sliding[:, joint] = law.sliding(
                position[:, joint], velocity[:, joint], load[:, joint], 0.0)[0]
    torque = friction.torque(velocity, load, sliding=sliding)
    return load + torque if rigid else torque
