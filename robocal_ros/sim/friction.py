# SPDX-License-Identifier: Apache-2.0
"""LuGre friction with an asymmetric Stribeck curve, for all joints at once.

Source: C. Canudas de Wit, H. Olsson, K. J. Åström, P. Lischinsky, "A new model for control of
systems with friction", IEEE Transactions on Automatic Control 40 (1995) 419-425.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from robocal_ros.sim.truth import FrictionTruth

FloatArray = npt.NDArray[np.float64]


class LuGreFriction:
    """Bristle deflection and friction torque of n joints.

    With g(v) = Fc± + (Fs± − Fc±) exp(−(v/vs±)²):
    dz/dt = v − σ0 |v| z / g(v), torque = σ0 z + σ1 dz/dt + B± v. The bristle equation is linear
    in z for a constant velocity, so each step is integrated exactly: stable for any stiffness.

    Attributes:
        deflection: Bristle deflection z, shape (n,) [rad].
        torque: Friction torque of the last step, against positive velocity, shape (n,) [N·m].

    """

    def __init__(self, joints: Sequence[FrictionTruth]) -> None:
        # Rows: positive, negative velocity. A joint without friction keeps g > 0 here and is
        # masked by its zero stiffness.
        self._coulomb = _by_sign([joint.coulomb for joint in joints])
        self._extra = _by_sign([joint.breakaway for joint in joints]) - self._coulomb
        self._inverse_velocity = 1.0 / _by_sign([joint.stribeck_velocity for joint in joints])
        self._viscous = _by_sign([joint.viscous for joint in joints])
        dry = (self._coulomb + self._extra).min(axis=0) > 0.0
        self._stiffness = np.where(dry, [joint.bristle_stiffness for joint in joints], 0.0)
        self._damping = np.where(dry, [joint.bristle_damping for joint in joints], 0.0)
        self._coulomb = np.where(dry, np.maximum(self._coulomb, 1.0e-9), 1.0)
        self.deflection: FloatArray = np.zeros(len(joints))
        self.torque: FloatArray = np.zeros(len(joints))

    def steady(self, velocity: FloatArray) -> FloatArray:
        """Return F(v) [N·m], shape (n,), the torque at the constant velocity (n,) [rad/s]."""
        positive = velocity >= 0.0
        dry = np.where(self._stiffness > 0.0, self._level(velocity, positive), 0.0)
        return np.sign(velocity) * dry + _choose(self._viscous, positive) * velocity

    def step(self, velocity: FloatArray, duration: float) -> FloatArray:
        """Advance the bristles at constant velocity and return the torque at the end.

        Args:
            velocity: Joint velocities, shape (n,) [rad/s].
            duration: Length of the step [s].

        """
        positive = velocity >= 0.0
        level = self._level(velocity, positive)
        speed = np.abs(velocity)
        exponent = -self._stiffness * speed * (duration / level)
        # (1 − e^−x)/x, with its limit 1 at standstill.
        moving = exponent < -1.0e-12
        ratio = np.divide(np.expm1(exponent), exponent, out=np.ones_like(speed), where=moving)
        rate = velocity - self._stiffness * speed * self.deflection / level
        change = rate * ratio * duration
        self.deflection += change
        self.torque = (
            self._stiffness * self.deflection
            + self._damping * (change / duration)
            + _choose(self._viscous, positive) * velocity
        )
        return self.torque

    def _level(self, velocity: FloatArray, positive: npt.NDArray[np.bool_]) -> FloatArray:
        scaled = velocity * _choose(self._inverse_velocity, positive)
        return _choose(self._coulomb, positive) + _choose(self._extra, positive) * np.exp(
            -scaled * scaled
        )


def _by_sign(pairs: Sequence[tuple[float, float]]) -> FloatArray:
    return np.array(pairs, dtype=np.float64).reshape(-1, 2).T.copy()


def _choose(by_sign: FloatArray, positive: npt.NDArray[np.bool_]) -> FloatArray:
    chosen: FloatArray = np.where(positive, by_sign[0], by_sign[1])
    return chosen
