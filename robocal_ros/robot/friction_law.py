# SPDX-License-Identifier: Apache-2.0
"""Joint friction at steady speed: the law, and how other capabilities read it from a result."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robocal_ros.arrays import Array, frozen
from robocal_ros.errors import DataError
from robocal_ros.results.result import CalibrationResult, State

DIRECTIONS = ('forward', 'backward')


@dataclass(frozen=True)
class SteadyFriction:
    """Steady-state LuGre (Stribeck) friction, different in the two directions.

    F(v) = [Fc + (Fs − Fc) exp(−(v/vs)²)] sgn(v) + B v, with one set of the four numbers for
    v > 0 and one for v < 0 (Canudas de Wit et al., A New Model for Control of Systems with
    Friction, IEEE TAC 40 (1995) 419, doi 10.1109/9.376053).

    Attributes:
        coulomb: Fc forward and backward, shape (2,) [N·m].
        static: Fs forward and backward, shape (2,) [N·m].
        stribeck_velocity: vs forward and backward, shape (2,) [rad/s].
        viscous: B forward and backward, shape (2,) [N·m·s/rad].
        std: Standard deviation of the predicted torque [N·m].

    """

    coulomb: Array
    static: Array
    stribeck_velocity: Array
    viscous: Array
    std: float = 0.0

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for name in ('coulomb', 'static', 'stribeck_velocity', 'viscous'):
            object.__setattr__(self, name, frozen(getattr(self, name)))

    def torque(self, velocity: Array | float) -> Array:
        """Return the friction torque that a drive overcomes [N·m].

        Args:
            velocity: Joint velocities, any shape [rad/s].

        """
        v = np.asarray(velocity, dtype=float)
        side = (v < 0.0).astype(int)
        excess = (self.static - self.coulomb)[side]
        level = self.coulomb[side] + excess * np.exp(-((v / self.stribeck_velocity[side]) ** 2))
        return np.asarray(level * np.sign(v) + self.viscous[side] * v)


def friction_by_joint(result: CalibrationResult) -> dict[str, SteadyFriction]:
    """Read the friction models of a friction result, joint by joint.

    Parameters are named ``<joint>.coulomb_forward``, ``.static_…``, ``.stribeck_velocity_…``,
    ``.viscous_…``. A joint without an identified Coulomb friction is left out; where the
    Stribeck part is not identified the static friction equals Coulomb's.

    Raises:
        DataError: If the result is not one of friction.

    """
    if result.kind != 'friction':
        raise DataError(f"Expected a result of kind 'friction', got '{result.kind}'.")
    known = {p.name: p for p in result.parameters if p.state is State.IDENTIFIED}
    residual = {fit.what: fit.after for fit in result.fit}
    models = {}
    for joint in result.robot.joint_names:

        def pair(name: str, fallback: tuple[float, float], joint: str = joint) -> Array:
            found = [known.get(f'{joint}.{name}_{direction}') for direction in DIRECTIONS]
            return np.array([
                p.value if p is not None else default
                for p, default in zip(found, fallback, strict=True)
            ])

        if f'{joint}.coulomb_forward' not in known or f'{joint}.coulomb_backward' not in known:
            continue
        coulomb = pair('coulomb', (0.0, 0.0))
        models[joint] = SteadyFriction(
            coulomb=coulomb,
            static=pair('static', (float(coulomb[0]), float(coulomb[1]))),
            stribeck_velocity=pair('stribeck_velocity', (1.0, 1.0)),
            viscous=pair('viscous', (0.0, 0.0)),
            std=residual.get(joint, 0.0),
        )
    return models
