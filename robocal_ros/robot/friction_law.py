# SPDX-License-Identifier: Apache-2.0
"""Joint friction: the law, the friction of a whole arm, and the reader of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from robocal_ros.arrays import Array, Flags, freeze
from robocal_ros.results import CalibrationResult, State

DIRECTIONS = ('forward', 'backward')
TEMPERATURE_FACTOR = '.temperature_factor'
"""Name of a joint's change of friction per kelvin, after the joint."""

LAW_PARAMETERS = ('coulomb', 'static', 'stribeck_velocity', 'viscous', 'exponent', 'load_factor')
"""Parameters of a direction, the order of ``SteadyFriction.covariance``."""


LOAD_FACTOR_STD = 0.05
"""Prior standard deviation of friction per transmitted torque."""

DRIVEN_STD = 0.6 / np.sqrt(3.0)
"""Standard deviation of the difference of a gear's friction between driving and being driven, as a
share of the part that grows with the load: it is up to 60 % either way."""

TEMPERATURE_STD = 0.02
"""Prior standard deviation of the change of friction per kelvin, as a share of it [1/K]: viscous
friction of greased gears changes by about a fifth in 10 K."""


def law_slopes(parameters: Sequence[Array | float], speed: Array, load: Array | float) -> Array:
    """Return the derivatives of friction in one direction by ``LAW_PARAMETERS``, shape (..., 6).

    Args:
        parameters: The parameters, each a number or of the shape of the speeds.
        speed: Size of the speed, positive [rad/s].
        load: Transmitted torque minus the reference load [N·m].

    """
    coulomb, static, stribeck_velocity, viscous, exponent, _ = parameters
    ratio, power = speed / stribeck_velocity, speed ** exponent
    bell = np.exp(-(ratio**2))
    return np.stack((
        1.0 - bell, bell, (static - coulomb) * bell * 2.0 * ratio**2 / stribeck_velocity, power,
        viscous * power * np.log(speed), np.broadcast_to(load, speed.shape)), axis=-1)


@dataclass(frozen=True)
class SteadyFriction:
    """Friction of one joint: its steady law by direction, and its bristles.

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
            part of the law, shape (2, 6, 6). Of the load factor, it states what the runs leave
            open also where the law has none.
        bristle_stiffness: σ0 [N·m/rad], infinite if not identified.
        bristle_damping: σ1 [N·m·s/rad].
        speeds: Lowest and highest speed of the runs, shape (2,) [rad/s].
        holds_zero: Whether the torques of the runs contained the torque zero, which then is part
            of the difference between the directions.
        temperature: Temperature for which the law holds, NaN if unknown [°C].
        temperature_factor: Change of friction per kelvin, as a share of it [1/K].
        temperature_std: Its standard deviation [1/K].

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
    bristle_stiffness: float = np.inf
    bristle_damping: float = 0.0
    speeds: Array = field(default_factory=lambda: np.array([0.0, np.inf]))
    holds_zero: bool = True
    temperature: float = np.nan
    temperature_factor: float = 0.0
    temperature_std: float = TEMPERATURE_STD

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        freeze(self, *LAW_PARAMETERS, 'covariance', 'speeds')

    def level(self, velocity: Array | float, load: Array | float | None = None) -> Array:
        """Return the dry friction of full sliding in the direction of the velocity, ≥ 0 [N·m].

        Args:
            velocity: Joint velocities, any shape [rad/s].
            load: Torque that the gear transmits to the link, of the same shape [N·m]; None for
                the reference load.

        """
        unloaded, factor = self._dry(velocity)
        load = self.reference_load if load is None else np.abs(load)
        return np.asarray(np.maximum(unloaded + factor * load, 0.0))

    def _dry(self, velocity: Array | float) -> tuple[Array, Array]:
        """Return ``level`` without load, and the load factor.

        The level may be negative where the law is extrapolated.
        """
        side = np.less(velocity, 0.0).astype(int)
        excess, factor = (self.static - self.coulomb)[side], self.load_factor[side]
        bell = np.exp(-((velocity / self.stribeck_velocity[side]) ** 2))
        return self.coulomb[side] + excess * bell - factor * self.reference_load, factor

    def _viscous(self, velocity: Array | float) -> Array:
        """Return the size of viscous friction [N·m]."""
        side = np.less(velocity, 0.0).astype(int)
        return np.asarray(self.viscous[side] * np.abs(velocity) ** self.exponent[side])

    def torque(
        self, velocity: Array | float, load: Array | float | None = None,
        sliding: Array | float | None = None,
    ) -> Array:
        """Return the friction torque, positive for positive velocities [N·m].

        Args:
            velocity: Joint velocities, any shape [rad/s].
            load: As for ``level``.
            sliding: Dry friction as a share of its level, -1 to 1; None for full sliding.

        """
        sign = np.sign(velocity)
        share = sign if sliding is None else sliding
        return np.asarray(self.level(velocity, load) * share + self._viscous(velocity) * sign)

    def torque_of_drive(
        self, velocity: Array | float, effort: Array | float,
        sliding: Array | float | None = None,
    ) -> Array:
        """Return the friction torque at a drive torque [N·m].

        The law is solved in closed form for F with the transmitted torque τ = effort − F.

        Args:
            velocity: Joint velocities, any shape [rad/s].
            effort: Drive torques of the same shape [N·m].
            sliding: As for ``torque``, in the direction of the velocity.

        """
        sign = np.sign(velocity)
        share, along = np.abs(sign if sliding is None else sliding), sign * np.asarray(effort)
        (level, factor), viscous = self._dry(velocity), self._viscous(velocity)
        factor, unloaded = share * factor, share * level + viscous
        # |τ| is along − F if the drive moves the load, else F − along.
        pushed = (unloaded + factor * along) / (1.0 + factor)
        held = (unloaded - factor * along) / (1.0 - factor)
        return np.asarray(sign * np.maximum(np.where(along >= unloaded, pushed, held), viscous))

    @property
    def has_bristles(self) -> bool:
        """True if the stiffness of the bristles is identified."""
        return bool(np.isfinite(self.bristle_stiffness))

    def sliding(
        self, angle: Array, velocity: Array, load: Array, spring: float
    ) -> tuple[Array, float]:
        """Return dry friction as a share of its level along a motion, by the bristles.

        Args:
            angle: Joint angles, shape (k,) [rad].
            velocity: Joint velocities, shape (k,) [rad/s].
            load: Transmitted torques, shape (k,) [N·m].
            spring: Initial torque of the spring [N·m].

        Returns:
            Shares, shape (k,), and the torque of the spring at the end [N·m].

        """
        level = np.maximum(self.level(velocity, load), 1e-9)
        springs = bristle_springs(angle, level, self.bristle_stiffness, spring)
        rate = velocity - np.abs(velocity) * springs / level
        return (springs + self.bristle_damping * rate) / level, float(springs[-1])

    @property
    def difference(self) -> float:
        """Half the difference of the directions' levels, which a torque zero adds to [N·m]."""
        return 0.5 * float(self.coulomb[0] - self.coulomb[1])

    def shifted(self, offset: float) -> SteadyFriction:
        """Return the law plus a constant torque [N·m]."""
        step = offset * np.array([1.0, -1.0])
        return replace(self, coulomb=self.coulomb + step, static=self.static + step,
                       holds_zero=False)

    def at(self, temperature: float) -> SteadyFriction:
        """Return the law for a temperature [°C], with its doubt; the same if one is not known."""
        warmer = temperature - self.temperature
        if not np.isfinite(warmer) or warmer == 0.0:
            return self
        # Friction does not vanish, however far a law is extrapolated.
        scale = max(1.0 + self.temperature_factor * warmer, 0.1)
        linear = np.isin(LAW_PARAMETERS, ('coulomb', 'static', 'viscous', 'load_factor'))
        scaled = {name: scale * getattr(self, name)
                  for name in np.array(LAW_PARAMETERS)[linear].tolist()}
        factors = np.where(linear, scale, 1.0)
        known = self.covariance[:, range(6), range(6)] > 0.0
        change = self.temperature_std * warmer * linear * known * np.stack(
            [getattr(self, name) for name in LAW_PARAMETERS], axis=1)
        return replace(
            self, **scaled, temperature=temperature,
            covariance=self.covariance * np.outer(factors, factors)
            + change[:, :, None] * change[:, None, :])

    def slopes(self, velocity: Array, load: Array | float | None = None) -> Array:
        """Return the derivatives of the size of ``torque`` by ``LAW_PARAMETERS``, shape (..., 6).

        Args:
            velocity: Joint velocities, any shape [rad/s].
            load: As for ``torque``.

        """
        side = (velocity < 0.0).astype(int)
        slopes = law_slopes(
            [getattr(self, name)[side] for name in LAW_PARAMETERS],
            np.maximum(np.abs(velocity), 1e-9),
            0.0 if load is None else np.abs(load) - self.reference_load)
        # Without a Stribeck part, static friction equals Coulomb friction.
        lone = ~self.covariance[:, 1, 1].astype(bool)[side]
        slopes[..., 0] = np.where(lone, 1.0, slopes[..., 0])
        return slopes

    def deviation(self, velocity: Array | float, load: Array | float | None = None) -> Array:
        """Return the standard deviation of ``torque``: parameters and misfit of the law [N·m].

        Args:
            velocity: Joint velocities, any shape [rad/s].
            load: As for ``torque``.

        """
        v = np.asarray(velocity, dtype=float)
        slopes, covariance = self.slopes(v, load), self.covariance[(v < 0.0).astype(int)]
        variance = np.einsum('...i,...ij,...j->...', slopes, covariance, slopes)
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


def bristle_springs(angle: Array, level: Array, stiffness: float, begin: float) -> Array:
    """Return the torque of the spring of LuGre's bristles, s = σ0 z, shape (k,) [N·m].

    ``dz/dt = v − σ0 |v| z / g(v)`` gives ``ds/dx = σ0 (1 − s sgn v / g)``, which is solved exactly
    for a constant g within each step.

    Args:
        angle: Joint angles, shape (k,) [rad].
        level: Steady level g there, shape (k,) [N·m].
        stiffness: σ0 [N·m/rad].
        begin: Initial torque of the spring [N·m].

    """
    way = np.diff(angle)
    mean = 0.5 * (level[1:] + level[:-1])
    target = np.where(way < 0.0, -mean, mean)
    decay = np.exp(-stiffness * np.abs(way) / mean)
    spring = begin
    springs = [spring]
    for aim, share in zip(target.tolist(), decay.tolist(), strict=True):
        spring = aim + (spring - aim) * share
        springs.append(spring)
    return np.array(springs)


class ArmFriction:
    """Friction torques of an arm: the one function of all who compensate or subtract friction.

    Attributes:
        laws: Friction by place of the joint; joints without a law count as frictionless.
        known: Whether the friction of each joint is identified, shape (n,).

    """

    def __init__(
        self, laws: Mapping[str, SteadyFriction] | None, joint_names: Sequence[str]
    ) -> None:
        """Arrange laws by joint name in the order of the arm's joints."""
        self.laws = {joint: laws[name] for joint, name in enumerate(joint_names)
                     if laws and name in laws}
        self.known: Flags = np.isin(np.arange(len(joint_names)), list(self.laws))

    def torque(
        self, velocity: Array, load: Array | None = None, *, effort: Array | None = None,
        sliding: Array | None = None,
    ) -> Array:
        """Return the friction torques, shape (..., n) [N·m].

        Args:
            velocity: Joint velocities, shape (..., n) [rad/s].
            load: Torques that the gears transmit to the links, shape (..., n) [N·m]; None for
                those of the identification.
            effort: Drive torques instead of ``load``, shape (..., n) [N·m].
            sliding: Dry friction as a share of its level, shape (..., n); None for full sliding.

        """
        found = np.zeros(np.shape(velocity))
        for joint, law in self.laws.items():
            v, share = velocity[..., joint], None if sliding is None else sliding[..., joint]
            found[..., joint] = (
                law.torque(v, None if load is None else load[..., joint], share)
                if effort is None else law.torque_of_drive(v, effort[..., joint], share))
        return found

    def variance(self, velocity: Array, load: Array) -> Array:
        """Return the diagonal of the covariance of ``torque``, shape (..., n) [N²·m²].

        It contains the parameters, the load factor that the runs leave open, and the scatter about
        the law; not a change of friction since the identification.
        """
        found = np.zeros(np.shape(velocity))
        for joint, law in self.laws.items():
            found[..., joint] = law.deviation(velocity[..., joint], load[..., joint]) ** 2
        return found


def without_zeros(
    laws: Mapping[str, SteadyFriction], zeros: Mapping[str, float]
) -> dict[str, SteadyFriction]:
    """Return laws for torques from which zeros [N·m] are subtracted, both by joint name."""
    return {name: law.shifted(-zeros[name]) if law.holds_zero else law
            for name, law in laws.items()}


def friction_by_joint(
    result: CalibrationResult, temperature: float = np.nan, *, one_sided: bool = False
) -> dict[str, SteadyFriction]:
    """Return the friction laws of a friction result by joint name.

    Parameters are named ``<joint>.coulomb_forward``, ``.static_…``, ``.stribeck_velocity_…``,
    ``.viscous_…``, ``.exponent_…``, ``.load_factor_…``, ``.bristle_stiffness``, and
    ``.bristle_damping``. Joints without identified Coulomb
    friction in both directions are left out. Without an identified Stribeck part, static friction
    equals Coulomb friction.

    Args:
        result: The result.
        temperature: Temperature for which the laws are wanted [°C]; NaN for that of the runs.
        one_sided: Whether joints that are identified in one direction have a law, too, which is
            NaN in the other.

    Raises:
        DataError: If the result is of another kind.

    """
    result.check_kind('friction')
    known = {p.name: p.value for p in result.parameters if p.state is State.IDENTIFIED}
    factors = {p.name: (p.value, p.std) for p in result.parameters
               if p.name.endswith(TEMPERATURE_FACTOR) and p.value is not None and p.std}
    temperatures = result.settings.get('temperatures') or {}
    residual = {fit.what: fit.after for fit in result.fit}
    settings = result.settings.get('laws') or {}
    models = {}
    for joint in result.robot.joint_names:
        names = [[f'{joint}.{name}_{direction}' for name in LAW_PARAMETERS]
                 for direction in DIRECTIONS]
        values = np.array([[known.get(name, np.nan) for name in own] for own in names]).T
        coulomb = values[0]
        if np.isnan(coulomb).sum() > one_sided:
            continue
        law = settings.get(joint) or {}
        factor, factor_std = factors.get(joint + TEMPERATURE_FACTOR, (0.0, TEMPERATURE_STD))
        covariance = np.array([result.covariance_of(own) for own in names])
        # The last parameter is the load factor.
        covariance[:, -1, -1] = np.maximum(
            covariance[:, -1, -1], np.square(law.get('load_factor_std') or 0.0))
        models[joint] = SteadyFriction(
            **{name: np.where(np.isnan(pair), default, pair) for name, pair, default in zip(
                LAW_PARAMETERS, values, (coulomb, coulomb, 1.0, 0.0, 1.0, 0.0), strict=True)},
            std=law.get('std', residual.get(joint, 0.0)),
            reference_load=law.get('reference_load', 0.0),
            covariance=covariance,
            bristle_stiffness=known.get(f'{joint}.bristle_stiffness') or np.inf,
            bristle_damping=known.get(f'{joint}.bristle_damping') or 0.0,
            speeds=np.asarray(law.get('speeds', (0.0, np.inf)), dtype=float),
            holds_zero='torque_zero' not in law,
            temperature=temperatures.get(joint, np.nan),
            temperature_factor=factor, temperature_std=factor_std).at(temperature)
    return models
