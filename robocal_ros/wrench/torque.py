# SPDX-License-Identifier: Apache-2.0
"""External joint torques from joint data alone, and the wrench on the tool.

The generalised momentum p = M(q) q̇ changes by τ + Cᵀ q̇ − g + τ_ext, so what is missing in its
balance is the external torque, through a low pass of the gain K and without accelerations (De
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

# A balance that was not followed for so long begins anew [s].
_PAUSE = 0.1
# Speed up to which the bristles of a joint that turned round may not have followed [rad/s].
_STICKING = 0.06
# Share of the threshold below which a collision has ended.
_RELEASE = 0.6
# Components of a tool wrench in words.
_NAMES = ('force x', 'force y', 'force z', 'moment x', 'moment y', 'moment z')
# A component is told when at most this share of it, squared, is blind.
_BLIND_SHARE = 1e-3


class JointFriction:
    """Identified friction of all joints at once, with what standstill leaves open.

    Attributes:
        known: Which joints have a law, shape (n,).
        any_known: Whether one has.
        breakaway: Largest friction at standstill, zero where unknown, shape (n,) [N·m].

    """

    def __init__(
        self, laws: Mapping[str, SteadyFriction], joint_names: Sequence[str],
        values: WrenchParameters,
    ) -> None:
        """Line the laws up.

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
        """Return what friction takes, smooth through standstill, shape (n,) [N·m].

        Args:
            velocity: Joint velocities, shape (n,) [rad/s].

        """
        coulomb, excess, inverse, viscous = np.where(velocity >= 0.0, *self._numbers)
        ratio = velocity * inverse
        level = coulomb + excess * np.exp(-ratio * ratio)
        return np.asarray(level * np.tanh(velocity / self._width) + viscous * velocity)

    def open_torque(self, velocity: Array) -> Array:
        """Return by how much friction may be misjudged, shape (n,) [N·m].

        A joint that sticks may be held by anything up to its breakaway torque, and one that
        has just turned round still by friction of the other direction.

        Args:
            velocity: Joint velocities, shape (n,) [rad/s].

        """
        return np.asarray(self._reversal * np.exp(-(velocity / _STICKING)**2))


class MomentumObserver:
    """Follows the balance of momentum.

    Attributes:
        external: External joint torques, shape (n,) [N·m].
        colliding: Which joints carry more than friction can explain, shape (n,).

    """

    def __init__(self, robot: Robot, friction: JointFriction, values: WrenchParameters) -> None:
        """Start without a balance.

        Args:
            robot: The arm with what it carries.
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
        # Momentum that is accounted for: that of the beginning and all that pushed since.
        self._account = np.zeros(robot.n)

    def clear(self) -> None:
        """Begin the balance anew."""
        self._stamp = -np.inf
        self.colliding = np.zeros_like(self.colliding)
        self._near = False

    def use(self, robot: Robot | None = None, friction: JointFriction | None = None) -> None:
        """Take the arm with another load, or newly identified friction; begin anew."""
        self.robot = self.robot if robot is None else robot.copy()
        self.friction = self.friction if friction is None else friction
        self.clear()

    def update(self, stamp: float, q: Array, v: Array, torque: Array) -> Array:
        """Take a sample and return the external joint torques, shape (n,) [N·m].

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
            # Begun as if nothing external acted.
            self._account = momentum
            self.external = np.zeros_like(momentum)
            return self.external
        # Implicit in the estimate, so that no step is too long for the gain.
        balance = momentum - self._account - pushing * step
        self.external = balance * (self._gain / (1.0 + self._gain * step))
        self._account = self._account + (pushing + self.external) * step
        if self._near or any(map(gt, map(abs, self.external.tolist()), self._limits)):
            self._judge(v)
        return self.external

    def _judge(self, v: Array) -> None:
        """Compare with the thresholds, with what friction leaves open on top."""
        size = np.abs(self.external)
        limit = self._threshold + self.friction.open_torque(v)
        self.colliding = self.friction.known & (
            size > np.where(self.colliding, _RELEASE * limit, limit))
        self._near = bool(self.colliding.any())


@dataclass(frozen=True)
class ToolWrench:
    """A wrench at the tool, as far as the posture shows it.

    Attributes:
        wrench: In tool axes about the tool's origin; NaN where blind, shape (6,) [N, N·m].
        smallest: Smallest singular value of the scaled Jacobian [m].
        unobservable: Directions that the joints don't feel, in words.

    """

    wrench: Array
    smallest: float
    unobservable: tuple[str, ...]


def tool_wrench(torque: Array, jacobian: Array, values: WrenchParameters) -> ToolWrench:
    """Return the tool wrench that explains external joint torques.

    τ = Jᵀ w, inverted by singular values with damping, σ / (σ² + λ²) (Nakamura and Hanafusa,
    J. Dyn. Syst. Meas. Control 108 (1986) 163, doi 10.1115/1.3143764). Directions whose
    singular value is below ``min_singular_value`` are blind: what they would carry is not zero
    but unknown, and components of the wrench that they touch are NaN.

    Args:
        torque: External joint torques, shape (n,) [N·m].
        jacobian: Of the tool frame in tool axes, linear rows first, shape (6, n).
        values: The parameters; ``damping`` is λ.

    """
    # A moment counts as the force that makes it on a lever of this length.
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
    wrench = np.where(hidden > _BLIND_SHARE, np.nan, wrench)
    unobservable = tuple(_told(direction) for direction in directions[:, ~seen].T)
    return ToolWrench(wrench, float(full[-1]), unobservable)


def _told(direction: Array) -> str:
    """Name a direction by its largest components."""
    largest = np.flatnonzero(direction**2 > 0.1)
    order = largest[np.argsort(-np.abs(direction[largest]))]
    return ' and '.join(_NAMES[i] for i in order)


class ToolFrame:
    """The wrench on the tool, in tool axes about the tool frame's origin.

    Attributes:
        by_sensor: Whether an F/T sensor tells it, else joint torques do.

    """

    def __init__(self, arm: SensedArm, values: WrenchParameters) -> None:
        """Choose the source.

        Args:
            arm: The arm cut at its sensors.
            values: The parameters.

        Raises:
            ConfigurationError: If a sensor is asked for and none carries the tool frame.

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
        """Index of the sub-chain that carries the tool frame, -1 if there is none."""
        return -1 if self._chain is None else self._chain.proximal

    def of_link(self, wrench: Array) -> Array:
        """Return a sub-chain's wrench as one on the tool, shape (6,) [N, N·m].

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
