# SPDX-License-Identifier: Apache-2.0
"""External joint torques without link sensors: the generalised-momentum observer.

The momentum p = M(q) q̇ changes by τ + Cᵀ q̇ − g + τ_ext, so what is missing in its balance is
the external torque, through a low pass of the gain K and without accelerations (De Luca and
Mattone, ICRA 2003, doi 10.1109/ROBOT.2003.1241872; Haddadin, De Luca and Albu-Schäffer, IEEE
T-RO 33 (2017) 1292, doi 10.1109/TRO.2017.2723903).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import gt

import numpy as np
import numpy.typing as npt
import pinocchio as pin

from robocal_ros.arrays import Array
from robocal_ros.robot.friction_law import SteadyFriction
from robocal_ros.robot.model import Robot

# A balance that was not followed for so long begins anew [s].
_PAUSE = 0.1
# Speed up to which the bristles of a joint that turned round may not have followed [rad/s].
_STICKING = 0.06


class JointFriction:
    """Identified friction of all joints at once, with what standstill leaves open.

    Attributes:
        known: Which joints have a law, shape (n,).
        any_known: Whether one has.
        breakaway: Largest friction at standstill, zero where unknown, shape (n,) [N·m].

    """

    def __init__(
        self, laws: Mapping[str, SteadyFriction], joint_names: Sequence[str], width: float
    ) -> None:
        """Line the laws up.

        Args:
            laws: Identified friction by joint name.
            joint_names: The arm's joints.
            width: Speed over which friction rises from zero; below it a joint may stick
                [rad/s].

        """
        found = [laws.get(name) for name in joint_names]
        self.known = np.array([law is not None for law in found])
        self.any_known = bool(self.known.any())
        self._width = width

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

    def __init__(
        self, robot: Robot, friction: JointFriction, *, gain: float, threshold: Array,
        release: float = 0.6,
    ) -> None:
        """Start without a balance.

        Args:
            robot: The arm with what it carries.
            friction: Identified friction.
            gain: Bandwidth of the low pass [1/s].
            threshold: External torques from here on are collisions, shape (n,) [N·m].
            release: Share of the threshold below which a collision has ended.

        """
        self.robot = robot.copy()
        self.friction = friction
        self._gain = gain
        self._threshold = threshold
        self._release = release
        self.external = np.zeros(robot.n)
        self.colliding: npt.NDArray[np.bool_] = np.zeros(robot.n, dtype=bool)
        self._limits = threshold.tolist()
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
            size > np.where(self.colliding, self._release * limit, limit))
        self._near = bool(self.colliding.any())
