# SPDX-License-Identifier: Apache-2.0
"""External joint torques from joint data alone, and the wrench on the tool.

The generalised momentum p = M(q) q̇ obeys ṗ = τ + Cᵀ q̇ − g + τ_ext. The observer estimates τ_ext
from this balance, low-pass filtered with the gain K and without accelerations (De
Luca and Mattone, ICRA 2003, doi 10.1109/ROBOT.2003.1241872; Haddadin, De Luca and Albu-Schäffer,
IEEE T-RO 33 (2017) 1292, doi 10.1109/TRO.2017.2723903).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import gt

import numpy as np
import numpy.typing as npt
import pinocchio as pin

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError
from robocal_ros.robot.friction_law import SteadyFriction
from robocal_ros.robot.model import Robot
from robocal_ros.robot.setup import per_joint
from robocal_ros.wrench.model import SensedArm
from robocal_ros.wrench.parameters import WrenchParameters

# Gap after which the momentum balance is reset [s].
_PAUSE = 0.1
# Speed up to which presliding after a reversal may persist [rad/s].
_STICKING = 0.06
# Fraction of the threshold below which a collision ends.
_RELEASE = 0.6
# Components of a tool wrench.
_NAMES = ('force x', 'force y', 'force z', 'moment x', 'moment y', 'moment z')
# A component is published if at most this fraction of it, squared, is unobservable.
_HIDDEN_SHARE = 1e-3


class JointFriction:
    """Identified friction of all joints, with its uncertainty near standstill.

    Attributes:
        known: Whether the friction of each joint is identified, shape (n,).
        any_known: Whether that of any joint is.
        breakaway: Largest friction at standstill, zero if unknown, shape (n,) [N·m].

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

        """
        found = [laws.get(name) for name in joint_names]
        self.known = np.array([law is not None for law in found])
        self.any_known = bool(self.known.any())
        self._width = values.friction_width

        def rows(name: str, fallback: float) -> Array:
            # One row for each direction.
            return np.array([[fallback, fallback] if law is None else getattr(law, name)
                             for law in found]).T

        coulomb, static = rows('coulomb', 0.0), rows('static', 0.0)
        # By direction: level, excess at standstill, 1 / Stribeck speed, viscous; (2, 4, n).
        self._numbers = np.stack((coulomb, static - coulomb,
                                  1.0 / rows('stribeck_velocity', 1.0), rows('viscous', 0.0)), 1)
        self.breakaway = np.maximum(coulomb, static).max(axis=0)
        self._reversal = self.breakaway + coulomb.max(axis=0)

    def torque(self, velocity: Array) -> Array:
        """Return the friction torque, smooth through standstill, shape (n,) [N·m].

        Args:
            velocity: Joint velocities, shape (n,) [rad/s].

        """
        coulomb, excess, inverse, viscous = np.where(velocity >= 0.0, *self._numbers)
        ratio = velocity * inverse
        level = coulomb + excess * np.exp(-ratio * ratio)
        return np.asarray(level * np.tanh(velocity / self._width) + viscous * velocity)

    def open_torque(self, velocity: Array) -> Array:
        """Return the bound of the friction model's error near standstill, shape (n,) [N·m].

        At standstill friction may be anything up to the breakaway torque, and shortly after a
        reversal that of the other direction.

        Args:
            velocity: Joint velocities, shape (n,) [rad/s].

        """
        return np.asarray(self._reversal * np.exp(-(velocity / _STICKING)**2))


class MomentumObserver:
    """Momentum observer of external joint torques.

    Attributes:
        external: External joint torques, shape (n,) [N·m].
        colliding: Whether each joint's torque exceeds its threshold, shape (n,).

    """

    def __init__(self, robot: Robot, friction: JointFriction, values: WrenchParameters) -> None:
        """Start without a momentum balance.

        Args:
            robot: The arm with its load.
            friction: Identified friction.
            values: The parameters.

        Raises:
            ConfigurationError: If ``torque_thresholds`` does not fit the arm.

        """
        self.robot = robot.copy()
        self.friction = friction
        self._gain = values.observer_gain
        self._threshold = per_joint(values.torque_thresholds, robot.n, 'torque_thresholds').copy()
        self.external = np.zeros(robot.n)
        self.colliding: npt.NDArray[np.bool_] = np.zeros(robot.n, dtype=bool)
        self._limits = self._threshold.tolist()
        self._near = False
        self._stamp = -np.inf
        # Initial momentum plus the integral of all torques since.
        self._account = np.zeros(robot.n)

    def clear(self) -> None:
        """Reset the momentum balance."""
        self._stamp = -np.inf
        self.colliding = np.zeros_like(self.colliding)
        self._near = False

    def use(self, robot: Robot | None = None, friction: JointFriction | None = None) -> None:
        """Replace the arm or its friction, and reset."""
        self.robot = self.robot if robot is None else robot.copy()
        self.friction = self.friction if friction is None else friction
        self.clear()

    def update(self, stamp: float, q: Array, v: Array, torque: Array) -> Array:
        """Add a sample and return the external joint torques, shape (n,) [N·m].

        Args:
            stamp: Its instant [s].
            q: Joint angles, shape (n,) [rad].
            v: Joint velocities, shape (n,) [rad/s].
            torque: Drive torques, shape (n,) [N·m].

        """
        model, data = self.robot.model, self.robot.data
        momentum = pin.crba(model, data, q) @ v
        drift = (v @ pin.computeCoriolisMatrix(model, data, q, v)
                 - pin.computeGeneralizedGravity(model, data, q))
        pushing = torque + drift
        if self.friction.any_known:
            pushing -= self.friction.torque(v)
        step = stamp - self._stamp
        self._stamp = stamp
        if not 0.0 < step < _PAUSE:
            # Reset with zero external torque.
            self._account = momentum
            self.external = np.zeros_like(momentum)
            return self.external
        # Implicit integration, stable for every step and gain.
        balance = momentum - self._account - pushing * step
        self.external = balance * (self._gain / (1.0 + self._gain * step))
        self._account = self._account + (pushing + self.external) * step
        if self._near or any(map(gt, map(abs, self.external.tolist()), self._limits)):
            self._judge(v)
        return self.external

    def _judge(self, v: Array) -> None:
        """Compare with the thresholds, raised by the uncertainty of friction."""
        size = np.abs(self.external)
        limit = self._threshold + self.friction.open_torque(v)
        self.colliding = self.friction.known & (
            size > np.where(self.colliding, _RELEASE * limit, limit))
        self._near = bool(self.colliding.any())


@dataclass(frozen=True)
class ToolWrench:
    """Wrench on the tool, as far as it is observable from joint torques.

    Attributes:
        wrench: In tool axes about the tool's origin; NaN if unobservable, shape (6,) [N, N·m].
        smallest: Smallest singular value of the scaled Jacobian [m].
        unobservable: Unobservable directions, for people.

    """

    wrench: Array
    smallest: float
    unobservable: tuple[str, ...]


def tool_wrench(torque: Array, jacobian: Array, values: WrenchParameters) -> ToolWrench:
    """Return the tool wrench that explains external joint torques.

    τ = Jᵀ w, inverted by singular values with damping, σ / (σ² + λ²) (Nakamura and Hanafusa,
    J. Dyn. Syst. Meas. Control 108 (1986) 163, doi 10.1115/1.3143764). Directions whose
    singular value is below ``min_singular_value`` are unobservable: the wrench along them is
    unknown rather than zero, and components of the wrench that they contribute to are NaN.

    Args:
        torque: External joint torques, shape (n,) [N·m].
        jacobian: Of the tool frame in tool axes, linear rows first, shape (6, n).
        values: The parameters; ``damping`` is λ.

    """
    # Moments are divided by this length.
    length = values.characteristic_length
    scale = np.array([1.0, 1.0, 1.0, length, length, length])
    directions, singular, joints = np.linalg.svd(scale[:, None] * jacobian)
    full = np.zeros(6)
    full[:len(singular)] = singular
    seen = full >= values.min_singular_value
    count = int(seen.sum())
    gains = full[:count] / (full[:count]**2 + values.damping**2)
    wrench = scale * (directions[:, :count] @ (gains * (joints[:count] @ torque)))
    hidden = (directions[:, ~seen]**2).sum(axis=1)
    wrench = np.where(hidden > _HIDDEN_SHARE, np.nan, wrench)
    unobservable = tuple(_named(direction) for direction in directions[:, ~seen].T)
    return ToolWrench(wrench, float(full[-1]), unobservable)


def _named(direction: Array) -> str:
    """Return the names of a direction's largest components."""
    largest = np.flatnonzero(direction**2 > 0.1)
    order = largest[np.argsort(-np.abs(direction[largest]))]
    return ' and '.join(_NAMES[i] for i in order)


class ToolFrame:
    """Tool wrench, in tool axes about the tool frame's origin.

    Attributes:
        by_sensor: Whether its source is an F/T sensor, else joint torques.

    """

    def __init__(self, arm: SensedArm, values: WrenchParameters) -> None:
        """Choose the source.

        Args:
            arm: The arm cut at its sensors.
            values: The parameters.

        Raises:
            ConfigurationError: If the source is a sensor and none carries the tool frame.

        """
        source = values.tool_wrench_source
        self._arm = arm
        self._robot = arm.robot.copy()
        self._chain = arm.chain_of_frame(arm.robot.tool_frame)
        if source == 'sensor' and self._chain is None:
            raise ConfigurationError(
                f"tool_wrench_source is 'sensor', but no F/T sensor carries '"
                f"{arm.robot.tool_frame}'; name one that does, or use torque.")
        self.by_sensor = source != 'torque' and self._chain is not None
        self._values = values

    @property
    def link(self) -> int:
        """Index of the sub-chain with the tool frame, -1 without one."""
        return -1 if self._chain is None else self._chain.proximal

    def of_link(self, wrench: Array) -> Array:
        """Transform the wrench on the tool's sub-chain to the tool frame, shape (6,) [N, N·m].

        Args:
            wrench: On the tool's sub-chain, in its frame about its origin, shape (6,).

        Raises:
            ConfigurationError: If no sensor carries the tool frame.

        """
        if self._chain is None:
            raise ConfigurationError('No F/T sensor carries the tool frame.')
        placement = self._arm.frame_in_chain(self._chain, self._robot.tool_frame)
        return np.asarray(placement.inverse().toDualActionMatrix() @ wrench)

    def of_torque(self, posture: Array, torque: Array) -> ToolWrench:
        """Return the tool wrench that explains external joint torques.

        Args:
            posture: Joint angles, shape (n,) [rad].
            torque: External joint torques, shape (n,) [N·m].

        """
        robot = self._robot
        jacobian = np.array(pin.computeFrameJacobian(
            robot.model, robot.data, posture, robot.frame_id(robot.tool_frame),
            pin.ReferenceFrame.LOCAL)).reshape(6, robot.n)
        return tool_wrench(torque, jacobian, self._values)
