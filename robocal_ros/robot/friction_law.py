# SPDX-License-Identifier: Apache-2.0
"""Joint friction at steady speed: the law, and its reader from results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from robocal_ros.arrays import Array, freeze
from robocal_ros.results import CalibrationResult, State

DIRECTIONS = ('forward', 'backward')
LAW_PARAMETERS = ('coulomb', 'static', 'stribeck_velocity', 'viscous', 'exponent', 'load_factor')
"""Parameters of a direction, the order of ``SteadyFriction.covariance``."""


@dataclass(frozen=True)
class SteadyFriction:
    """Steady friction of one joint, by direction.

    ``F(v, τ) = [Fc + (Fs − Fc) exp(−(v/vs)²) + μ (|τ| − τ0) + B |v|^α] sgn(v)``, with one set of
    parameters for v > 0 and one for v < 0. α = 1 and μ = 0 are LuGre's steady state (Canudas de
    Wit et al., A New Model for Control of Systems with Friction, IEEE TAC 40 (1995) 419, doi
    10.1109/9.376053); μ describes friction that grows with the transmitted torque τ (Hamon,
    Gautier and Garrec, Dynamic Identification of Robots with a Dry Friction Model Depending on
    Load and Velocity, IROS 2010).

    Attributes:
        coulomb: Fc forward and backward, at the reference load, shape (2,) [N·m].
        static: Fs forward and backward, at the reference load, shape (2,) [N·m].
        stribeck_velocity: vs forward and backward, shape (2,) [rad/s].
        viscous: B forward and backward, shape (2,) [N·m·(s/rad)^α].
        std: Standard deviation between runs that the law does not explain [N·m].
        exponent: α forward and backward, shape (2,).
        load_factor: μ forward and backward, shape (2,).
        reference_load: τ0, mean transmitted torque of the runs [N·m].
        covariance: Covariance of ``LAW_PARAMETERS`` by direction, zero for those that are not
            part of the law, shape (2, 6, 6).
        speeds: Lowest and highest speed of the runs, shape (2,) [rad/s].
        holds_zero: Whether the torques of the runs contained the torque zero, which then is part
            of the difference between the directions.

    """

    coulomb: Array
    static: Array
    stribeck_velocity: Array
    viscous: Array
    std: float = 0.0
    exponent: Array = field(default_factory=lambda: np.ones(2))
    load_factor: Array = field(default_factory=lambda: np.zeros(2))
    reference_load: float = 0.0
    covariance: Array = field(default_factory=lambda: np.zeros((2, 6, 6)))
    speeds: Array = field(default_factory=lambda: np.array([0.0, np.inf]))
    holds_zero: bool = True

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        freeze(self, *LAW_PARAMETERS, 'covariance', 'speeds')

    def torque(self, velocity: Array | float, load: Array | float | None = None) -> Array:
        """Return the friction torque, positive for positive velocities [N·m].

        Args:
            velocity: Joint velocities, any shape [rad/s].
            load: Torque that the gear transmits to the link, of the same shape [N·m]; None for
                the reference load.

        """
        v = np.asarray(velocity, dtype=float)
        side = (v < 0.0).astype(int)
        excess = (self.static - self.coulomb)[side]
        level = self.coulomb[side] + excess * np.exp(-((v / self.stribeck_velocity[side]) ** 2))
        if load is not None:
            level = level + self.load_factor[side] * (np.abs(load) - self.reference_load)
        speed = np.abs(v) ** self.exponent[side]
        return np.asarray(level * np.sign(v) + self.viscous[side] * speed * np.sign(v))

    def torque_of_drive(self, velocity: Array | float, effort: Array | float) -> Array:
        """Return the friction torque at a drive torque [N·m].

        The law is solved in closed form for F with the transmitted torque τ = effort − F.

        Args:
            velocity: Joint velocities, any shape [rad/s].
            effort: Drive torques of the same shape [N·m].

        """
        v = np.asarray(velocity, dtype=float)
        sign, factor = np.sign(v), self.load_factor[(v < 0.0).astype(int)]
        unloaded, along = sign * self.torque(v, 0.0), sign * np.asarray(effort)
        # |τ| is along − F if the drive moves the load, else F − along.
        pushed = (unloaded + factor * along) / (1.0 + factor)
        held = (unloaded - factor * along) / (1.0 - factor)
        return np.asarray(sign * np.where(along >= unloaded, pushed, held))

    @property
    def difference(self) -> float:
        """Half the difference of the directions' levels, which a torque zero adds to [N·m]."""
        return 0.5 * float(self.coulomb[0] - self.coulomb[1])

    def shifted(self, offset: float) -> SteadyFriction:
        """Return the law plus a constant torque [N·m]."""
        step = offset * np.array([1.0, -1.0])
        return replace(self, coulomb=self.coulomb + step, static=self.static + step,
                       holds_zero=False)

    def deviation(self, velocity: Array | float, load: Array | float | None = None) -> Array:
        """Return the standard deviation of ``torque``: parameters and misfit of the law [N·m].

        Args:
            velocity: Joint velocities, any shape [rad/s].
            load: As for ``torque``.

        """
        v = np.asarray(velocity, dtype=float)
        side, speed = (v < 0.0).astype(int), np.maximum(np.abs(v), 1e-9)
        ratio = speed / self.stribeck_velocity[side]
        bell, power = np.exp(-(ratio**2)), speed ** self.exponent[side]
        excess = (self.static - self.coulomb)[side]
        slopes = np.stack((
            1.0 - bell, bell, excess * bell * 2.0 * ratio**2 / self.stribeck_velocity[side],
            power, self.viscous[side] * power * np.log(speed),
            np.zeros_like(v) if load is None else np.abs(load) - self.reference_load), axis=-1)
        # Without a Stribeck part, static friction equals Coulomb friction.
        lone = ~self.covariance[:, 1, 1].astype(bool)[side]
        slopes[..., 0] = np.where(lone, 1.0, slopes[..., 0])
        variance = np.einsum('...i,...ij,...j->...', slopes, self.covariance[side], slopes)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0) + self.std**2))

    def linear(self) -> tuple[float, float]:
        """Return Coulomb friction [N·m] and damping [N·m·s/rad], means of both directions.

        They are the least-squares line over the speeds of the runs if the law is not linear.
        """
        if (self.exponent == 1.0).all() or not np.isfinite(self.speeds).all():
            return float(np.mean(self.coulomb)), float(np.mean(self.viscous))
        speed = np.linspace(float(self.speeds[0]), float(self.speeds[1]), 50)
        slope, level = np.polyfit(speed, np.mean(
            [sign * self.torque(sign * speed) for sign in (1.0, -1.0)], axis=0), 1)
        return float(level), float(slope)


def without_zeros(
    laws: Mapping[str, SteadyFriction], zeros: Mapping[str, float]
) -> dict[str, SteadyFriction]:
    """Return laws for torques from which zeros [N·m] are subtracted, both by joint name."""
    return {name: law.shifted(-zeros[name]) if law.holds_zero else law
            for name, law in laws.items()}


def friction_by_joint(result: CalibrationResult) -> dict[str, SteadyFriction]:
    """Return the friction laws of a friction result by joint name.

    Parameters are named ``<joint>.coulomb_forward``, ``.static_…``, ``.stribeck_velocity_…``,
    ``.viscous_…``, ``.exponent_…``, ``.load_factor_…``. Joints without identified Coulomb
    friction in both directions are left out. Without an identified Stribeck part, static friction
    equals Coulomb friction.

    Raises:
        DataError: If the result is of another kind.

    """
    result.check_kind('friction')
    known = {p.name: p.value for p in result.parameters if p.state is State.IDENTIFIED}
    residual = {fit.what: fit.after for fit in result.fit}
    settings = result.settings.get('laws') or {}
    models = {}
    for joint in result.robot.joint_names:
        names = [[f'{joint}.{name}_{direction}' for name in LAW_PARAMETERS]
                 for direction in DIRECTIONS]
        values = np.array([[known.get(name, np.nan) for name in own] for own in names]).T
        coulomb = values[0]
        if np.isnan(coulomb).any():
            continue
        law = settings.get(joint) or {}
        models[joint] = SteadyFriction(
            **{name: np.where(np.isnan(pair), default, pair) for name, pair, default in zip(
                LAW_PARAMETERS, values, (coulomb, coulomb, 1.0, 0.0, 1.0, 0.0), strict=True)},
            std=law.get('std', residual.get(joint, 0.0)),
            reference_load=law.get('reference_load', 0.0),
            covariance=np.array([result.covariance_of(own) for own in names]),
            speeds=np.asarray(law.get('speeds', (0.0, np.inf)), dtype=float),
            holds_zero='torque_zero' not in law)
    return models
