# SPDX-License-Identifier: Apache-2.0
"""Friction laws: steady friction of one direction, and compensation."""

from __future__ import annotations

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.robot import LAW_PARAMETERS, ArmFriction, Robot, Trajectory, law_slopes

_BASES = {
    'coulomb': ('coulomb',),
    'coulomb_viscous': ('coulomb', 'viscous'),
    'coulomb_power': ('coulomb', 'viscous', 'exponent'),
    'stribeck': ('coulomb', 'static', 'stribeck_velocity', 'viscous'),
    'stribeck_power': ('coulomb', 'static', 'stribeck_velocity', 'viscous', 'exponent'),
}
_LOAD = '_load'
_PARAMETERS: dict[str, tuple[str, ...]] = {
    **_BASES, **{base + _LOAD: (*names, 'load_factor') for base, names in _BASES.items()}}
MODELS = tuple(_PARAMETERS)
"""Steady laws: five of the speed alone, then the same with friction that grows with load."""
SHAPES = ('stribeck_velocity', 'exponent')
"""Parameters in which laws are nonlinear."""
# Parameters of parts that a law lacks.
_ABSENT = {'stribeck_velocity': 1.0, 'viscous': 0.0, 'exponent': 1.0, 'load_factor': 0.0}
# Longest time between two velocities over which bristles are followed, and for which they are at
# standstill [s].
_GAP = 0.1


def parameter_names(model: str) -> tuple[str, ...]:
    """Return the names of a model's parameters, as in results."""
    return _PARAMETERS[model]


def of_speed(model: str) -> str:
    """Return the part of a model that depends on the speed alone."""
    return model.removesuffix(_LOAD)


def complete(model: str, value: Array) -> list[float]:
    """Return all of ``LAW_PARAMETERS``; those of parts that the law lacks have no effect.

    Args:
        model: Name of the model.
        value: Parameters in the order of ``parameter_names(model)``.

    """
    named = dict(zip(parameter_names(model), value.tolist(), strict=True))
    named = {'static': named['coulomb'], **_ABSENT, **named}
    return [named[name] for name in LAW_PARAMETERS]


def evaluate(model: str, value: Array, speed: Array, load: Array | float = 0.0) -> Array:
    """Return |F| of the law of one direction [N·m].

    Args:
        model: Name of the model.
        value: Parameters in the order of ``parameter_names(model)``.
        speed: |v|, shape (k,) [rad/s].
        load: Transmitted torque minus the reference load, shape (k,) [N·m].

    """
    coulomb, static, stribeck_velocity, viscous, exponent, factor = complete(model, value)
    dry = coulomb + (static - coulomb) * np.exp(-((speed / stribeck_velocity) ** 2))
    return np.asarray(dry + factor * np.asarray(load) + viscous * speed ** exponent)


def jacobian(model: str, value: Array, speed: Array, load: Array | float = 0.0) -> Array:
    """Return the derivatives of ``evaluate`` by the parameters, shape (k, p)."""
    names = parameter_names(model)
    slopes = law_slopes(complete(model, value), speed, load)
    if 'static' not in names:
        slopes[:, 0] = 1.0
    return slopes[:, [LAW_PARAMETERS.index(name) for name in names]]


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

    def torque(self, stamp: float, velocity: Array, load: Array, *, measured: bool) -> Array:
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
