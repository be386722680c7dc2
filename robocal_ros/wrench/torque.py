# SPDX-License-Identifier: Apache-2.0
"""External joint torques from joint data alone, and the wrench on the tool.

The equation of motion, M(q) q̈ + C(q, q̇) q̇ + g(q) + I_r q̈ + τ_f(q̇) = τ + τ_ext, is evaluated on
the means of the observer's window, in the pass that also predicts the sensors' readings. Over a
window this equals the generalised-momentum balance with a finite impulse response for a filter
(Haddadin, De Luca and Albu-Schäffer, IEEE T-RO 33 (2017) 1292, doi 10.1109/TRO.2017.2723903).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robocal_ros.arrays import Array, Flags
from robocal_ros.robot import LAW_PARAMETERS, ArmFriction, Robot, SteadyFriction, per_joint
from robocal_ros.wrench.parameters import CHANNELS, RELEASE, WrenchParameters

_NO_FRICTION = SteadyFriction(np.zeros(2), np.zeros(2), np.ones(2), np.zeros(2))
# Speed up to which presliding after a reversal may persist [rad/s].
_STICKING = 0.06
# Standard deviations of the friction model by which thresholds are raised.
_WIDTH = 3.0
# Those of the model, 99.99 % of normally distributed errors.
_MODEL_WIDTH = 3.9
# Beyond these, exp(-x²) is 0 and tanh(x) is 1 to 1e-12.
_VANISHED, _FULL = 5.3, 15.0
# Signs of the directions.
_SIGNS = np.array([1.0, -1.0])
# Length by which moments are divided to compare them with forces [m]: the size of tools.
_LENGTH = 0.3
# A component is published if at most this fraction of it, squared, is unobservable.
_HIDDEN_SHARE = 1e-3


class FrictionInUse:
    """Identified friction of all joints, with its uncertainty.

    Attributes:
        known: Whether the friction of each joint is identified, shape (n,).

    """

    def __init__(
        self, laws: Mapping[str, SteadyFriction], joint_names: Sequence[str],
        values: WrenchParameters,
    ) -> None:
        """Arrange the friction laws as arrays.

        Args:
            laws: Identified friction by joint name.
            joint_names: The arm's joints.
            values: The parameters.

        Raises:
            ConfigurationError: If ``unidentified_friction`` does not fit the arm.

        """
        self._friction = ArmFriction(laws, joint_names)
        self.known: Flags = self._friction.known
        self._unidentified = per_joint(
            values.unidentified_friction, len(joint_names), 'unidentified_friction')
        every = [laws.get(name, _NO_FRICTION) for name in joint_names]
        self._width = values.friction_width
        coulomb, static, speed, viscous, exponent, factor = (
            np.array([getattr(law, name) for law in every]) for name in LAW_PARAMETERS)
        self._reference_load = np.array([law.reference_load for law in every])
        level, excess = coulomb - factor * self._reference_load[:, None], static - coulomb
        # By joint and direction: level without load, excess at standstill, 1 / Stribeck speed,
        # viscous, exponent of the speed, load factor.
        self._by_joint = np.stack((level, excess, 1.0 / speed, viscous, exponent, factor),
                                  2).tolist()
        # Speed from which friction is a line of the speed alone: 0 without friction, infinite if
        # it never is.
        clear = np.maximum(_FULL * self._width, np.where(excess, _VANISHED * speed, 0.0))
        clear[~np.any((level, excess, viscous, factor), axis=0)] = 0.0
        clear[(exponent != 1.0) | (factor != 0.0)] = np.inf
        # By joint: velocity, level and slope of the line in each direction.
        self.lines = np.stack((_SIGNS * clear, _SIGNS * level, viscous), 2).reshape(-1, 6).tolist()
        breakaway = np.maximum(coulomb, static).max(axis=1)
        self._reversal = breakaway + coulomb.max(axis=1)
        self._load_factor = factor.max(axis=1)

    def torque(self, velocity: Array, effort: Array) -> Array:
        """Return the friction torque, smooth through standstill, shape (..., n) [N·m].

        Args:
            velocity: Joint velocities, shape (..., n) [rad/s].
            effort: Drive torques, shape (..., n) [N·m].

        """
        return self._friction.torque(
            velocity, effort=effort, sliding=np.tanh(velocity / self._width))

    def one_torque(self, joint: int, v: float, effort: float) -> float:
        """Return the friction torque of one joint, as ``torque`` does but faster [N·m].

        Args:
            joint: Its index.
            v: Its velocity [rad/s].
            effort: Its drive torque [N·m].

        """
        coulomb, excess, inverse, viscous, exponent, factor = self._by_joint[joint][v < 0.0]
        ratio, share = v * inverse, math.tanh(abs(v) / self._width)
        moving = viscous * abs(v)**exponent
        size = share * (coulomb + excess * math.exp(-ratio * ratio)) + moving
        if factor:
            factor *= share
            along = math.copysign(effort, effort * v)
            if along < size:
                factor = -factor
            size = max((size + factor * along) / (1.0 + factor), moving)
        return math.copysign(size, v) if v else 0.0

    def _held(self, velocity: Array, load: Array) -> Array:
        """Return what friction may differ by near standstill, shape (..., n) [N·m].

        At standstill friction may be anything up to the breakaway torque, and shortly after a
        reversal that of the other direction.
        """
        reversal = self._reversal + 2.0 * self._load_factor * (np.abs(load) - self._reference_load)
        return np.asarray(np.maximum(reversal, 0.0) * np.exp(-(velocity / _STICKING)**2))

    def variance(self, velocity: Array, load: Array) -> Array:
        """Return the variance of the friction model's error, shape (..., n) [N²·m²].

        What may be anything up to a limit varies by a third of its square.

        Args:
            velocity: Joint velocities, shape (..., n) [rad/s].
            load: Torques that the gears transmit, shape (..., n) [N·m].

        """
        known = self._friction.variance(velocity, load) + self._held(velocity, load)**2 / 3.0
        return np.asarray(np.where(self.known, known, self._unidentified**2 / 3.0))

    def uncertainty(self, velocity: Array, load: Array) -> Array:
        """Return the bound of the friction model's error, shape (..., n) [N·m].

        Args:
            velocity: Joint velocities, shape (..., n) [rad/s].
            load: Torques that the gears transmit, shape (..., n) [N·m].

        """
        known = _WIDTH * np.sqrt(self._friction.variance(velocity, load))
        return np.asarray(
            np.where(self.known, known, self._unidentified) + self._held(velocity, load))


class JointTorques:
    """External joint torques, and collisions by their thresholds.

    Attributes:
        friction: Identified friction.
        rotors: Inertias of the drives in use, reflected to the joints, shape (n,) [kg·m²].
        zero: Measured minus true torques, shape (n,) [N·m].
        threshold: Thresholds without friction, shape (n,) [N·m].
        colliding: Whether each joint's torque exceeds its threshold, shape (n,).
        is_colliding: Whether that of any joint does.

    """

    def __init__(self, robot: Robot, values: WrenchParameters) -> None:
        """Start without friction and without collision.

        Args:
            robot: The arm.
            values: The parameters.

        Raises:
            ConfigurationError: If a parameter with one value per joint does not fit the arm.

        """
        self._names = robot.joint_names
        self._values = values
        self.friction = FrictionInUse({}, robot.joint_names, values)
        self._default_rotor = per_joint(values.rotor_inertias, robot.n, 'rotor_inertias')
        self.use_rotors(np.zeros(robot.n))
        self.zero = np.zeros(robot.n)
        self.threshold = per_joint(values.torque_thresholds, robot.n, 'torque_thresholds')
        self._limits = self.threshold.tolist()
        self.clear()

    def clear(self) -> None:
        """End all collisions."""
        self.colliding: Flags = np.zeros(len(self._names), bool)
        self.is_colliding = False

    def use_friction(self, laws: Mapping[str, SteadyFriction]) -> None:
        """Replace the friction, by joint name; joints that are not named have none."""
        self.friction = FrictionInUse(laws, self._names, self._values)
        self.clear()

    def use_rotors(self, inertia: Array) -> None:
        """Use identified inertias of the drives, or those of the parameters if all are zero.

        Args:
            inertia: Reflected to the joints, shape (n,) [kg·m²].

        """
        self.rotors = np.array(inertia) if np.any(inertia) else self._default_rotor

    def external_torque(self, model: Array, v: Array, a: Array, torque: Array) -> Array:
        """Return external joint torques, shape (m, n) [N·m].

        Args:
            model: Torques that the rigid arm takes, shape (m, n) [N·m].
            v: Joint velocities, shape (m, n) [rad/s].
            a: Joint accelerations, shape (m, n) [rad/s²].
            torque: Drive torques, shape (m, n) [N·m].

        """
        torque = torque - self.rotors * a - self.zero
        return model - torque + self.friction.torque(v, torque)

    def update(
        self, model: Array, v: Array, a: Array, torque: Array, model_std: Callable[[], Array]
    ) -> Array:
        """Add a sample and return its external joint torques.

        Args:
            model: Torques that the rigid arm takes, shape (n,) [N·m].
            v: Joint velocities, shape (n,) [rad/s].
            a: Joint accelerations, shape (n,) [rad/s²].
            torque: Drive torques, shape (n,) [N·m].
            model_std: Returns the standard deviations of ``model``, shape (n,) [N·m].

        """
        torque = torque - self.rotors * a - self.zero
        values: list[float] = []
        beyond = self.is_colliding
        for value, speed, drive, limit, (
                ahead, level, slope, back, level_back, slope_back) in zip(
                (model - torque).tolist(), v.tolist(), torque.tolist(), self._limits,
                self.friction.lines, strict=True):
            if speed > ahead:
                value += level + slope * speed
            elif speed < back:
                value += level_back + slope_back * speed
            elif ahead or back:
                value += self.friction.one_torque(len(values), speed, drive)
            if not -limit <= value <= limit:
                beyond = True
            values.append(value)
        external = np.array(values)
        if beyond:
            self.judge(v, model - external, external, model_std())
        return external

    def judge(self, v: Array, load: Array, external: Array, model_std: Array) -> None:
        """Compare torques with the thresholds, raised by the uncertainty of friction and model.

        Args:
            v: Joint velocities, shape (n,) [rad/s].
            load: Torques that the gears transmit, shape (n,) [N·m].
            external: External joint torques, shape (n,) [N·m].
            model_std: Standard deviations of the torques that the rigid arm takes, (n,) [N·m].

        """
        limit = self.threshold + self.friction.uncertainty(v, load) + _MODEL_WIDTH * model_std
        if self.is_colliding:
            limit = np.where(self.colliding, RELEASE * limit, limit)
        self.colliding = np.abs(external) > limit
        # Faster than a reduction of few flags.
        self.is_colliding = True in self.colliding.tolist()


@dataclass(frozen=True)
class ToolWrench:
    """Wrench on the tool, as far as it is observable from joint torques.

    Attributes:
        wrench: About the origin of its frame; NaN if unobservable, shape (6,) [N, N·m].
        smallest: Smallest singular value of the scaled Jacobian, infinite for F/T sensors [m].
        unobservable: Unobservable directions, for people.
        covariance: Of the wrench; infinite variances, without covariances, of components that are
            unobservable, shape (6, 6).
        sensors: Frames of the F/T sensors that determine it.
        by_torque: Whether joint torques do, too.
        remark: Why a source is left out, empty if none is.

    """

    wrench: Array
    smallest: float
    unobservable: tuple[str, ...]
    covariance: Array
    sensors: tuple[str, ...] = ()
    by_torque: bool = True
    remark: str = ''

    @property
    def source(self) -> str:
        """Kinds of its sources, for people."""
        return ' and '.join((*(['F/T sensors'] if self.sensors else []),
                             *(['joint torques'] if self.by_torque else [])))


def tool_wrench(
    torque: Array, jacobian: Array, values: WrenchParameters, covariance: Array
) -> ToolWrench:
    """Return the tool wrench that explains external joint torques.

    τ = Jᵀ w, inverted by singular values with damping, σ / (σ² + λ²) (Nakamura and Hanafusa,
    J. Dyn. Syst. Meas. Control 108 (1986) 163, doi 10.1115/1.3143764). Directions whose
    singular value is below ``min_singular_value`` are unobservable: the wrench along them is
    unknown rather than zero, and components of the wrench that they contribute to are NaN.

    Args:
        torque: External joint torques, shape (n,) [N·m].
        jacobian: Of the tool frame in tool axes, linear rows first, shape (6, n).
        values: The parameters; ``damping`` is λ.
        covariance: Of the torques, shape (n, n).

    """
    scale = np.repeat((1.0, _LENGTH), 3)
    directions, singular, joints = np.linalg.svd(scale[:, None] * jacobian)
    count = int((singular >= values.min_singular_value).sum())
    gains = singular[:count] / (singular[:count]**2 + values.damping**2)
    inverse = scale[:, None] * (directions[:, :count] * gains) @ joints[:count]
    unseen = directions[:, count:]
    hidden = (unseen**2).sum(axis=1) > _HIDDEN_SHARE
    spread = inverse @ covariance @ inverse.T
    spread[hidden] = spread[:, hidden] = 0.0
    spread[hidden, hidden] = np.inf
    # Six directions have six singular values, as many of them 0 as joints are lacking.
    smallest = float(singular[5]) if len(singular) > 5 else 0.0
    return ToolWrench(np.where(hidden, np.nan, inverse @ torque), smallest,
                      tuple(map(_named, unseen.T)), spread)


def _named(direction: Array) -> str:
    """Return the names of a direction's largest components."""
    largest = np.flatnonzero(direction**2 > 0.1)
    order = largest[np.argsort(-np.abs(direction[largest]))]
    return ' and '.join(CHANNELS[i].replace('_', ' ') for i in order)
