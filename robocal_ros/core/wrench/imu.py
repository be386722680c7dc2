# SPDX-License-Identifier: Apache-2.0
"""A rigid link whose motion an IMU on it measures: no joint data needed."""

from __future__ import annotations

import numpy as np
import pinocchio as pin

from robocal_ros.core.arrays import Array
from robocal_ros.core.wrench.chains import Chain, SensedArm


class ImuLink:
    """One rigid link between sensors, with an IMU.

    The accelerometer measures the specific force a − g at its place; it is moved to the link's
    origin by α × r + ω × (ω × r), and Newton's and Euler's equations do the rest.

    Attributes:
        chain: The link.

    """

    def __init__(self, arm: SensedArm, chain: Chain, frame: str) -> None:
        """Place the IMU.

        Args:
            arm: The arm cut at its sensors.
            chain: The sub-chain, which must be rigid.
            frame: The IMU's frame.

        Raises:
            ConfigurationError: If the sub-chain is not rigid, or the frame not on it.

        """
        arm.robot.frame_id(frame)
        arm.distal_transform(chain)
        self._arm = arm
        placement = arm.frame_in_chain(chain, frame)
        self._rotation = np.array(placement.rotation)
        self._place = np.array(placement.translation)
        self.use(chain)

    def use(self, chain: Chain) -> None:
        """Take the link with what it carries now."""
        self.chain = chain
        distal = self._arm.distal_transform(chain)
        self._over = None if distal is None else np.array(distal.toDualActionMatrix())
        inertia = chain.inertia
        self._inertia = pin.Inertia.Zero() if inertia is None else inertia.to_pinocchio()

    def inertial(self, specific: Array, omega: Array, alpha: Array) -> Array:
        """Return m (a − g) and the matching moment about the link's origin, shape (6,).

        Args:
            specific: Specific force at the IMU, in its axes, shape (3,) [m/s²].
            omega: Angular velocity, in its axes, shape (3,) [rad/s].
            alpha: Angular acceleration, in its axes, shape (3,) [rad/s²].

        """
        turned = self._rotation @ np.column_stack((specific, omega, alpha))
        # Seen from where the origin rests, spatial and classical acceleration agree.
        rotation = pin.Motion(np.zeros(3), turned[:, 1])
        lever = _spin(turned[:, 1]) @ self._place
        at_origin = (turned[:, 0] - _spin(turned[:, 2]) @ self._place
                     - _spin(turned[:, 1]) @ lever)
        acceleration = pin.Motion(at_origin, turned[:, 2])
        momentum = self._inertia * rotation
        return np.asarray((self._inertia * acceleration + rotation.cross(momentum)).vector)

    def net(self, inertial: Array, proximal: Array, distal: Array | None) -> Array:
        """Return the external wrench on the link, in its frame about its origin, shape (6,).

        Args:
            inertial: As of ``inertial``.
            proximal: Reading of its own sensor, in its frame, shape (6,).
            distal: Reading of the next sensor in that one's link frame; None at a free end.

        """
        net = inertial + proximal
        if self._over is not None and distal is not None:
            net -= self._over @ distal
        return net


def _spin(vector: Array) -> Array:
    """Return the matrix of the vector product with a vector, shape (3, 3)."""
    x, y, z = vector
    return np.array(((0.0, -z, y), (z, 0.0, -x), (-y, x, 0.0)))
