# SPDX-License-Identifier: Apache-2.0
"""LuGre friction with an asymmetric Stribeck curve.

Source: C. Canudas de Wit, H. Olsson, K. J. Åström, P. Lischinsky, "A new model for control of
systems with friction", IEEE Transactions on Automatic Control 40 (1995) 419-425.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from robocal_sim.truth import FrictionTruth

FloatArray = npt.NDArray[np.float64]


class JointFriction:
    """LuGre friction of one joint.

    With g(v) = Fc± + (Fs± − Fc±) exp(−(v/vs±)²):
    dz/dt = v − σ0 |v| z / g(v), torque = σ0 z + σ1 dz/dt + B± v. The bristle equation is linear
    in z for a constant velocity, so each step is integrated exactly: stable for any stiffness.

    Attributes:
        deflection: Bristle deflection z [rad].

    """

    def __init__(self, truth: FrictionTruth) -> None:
        self.deflection = 0.0
        dry = min(truth.breakaway) > 0.0
        self._stiffness = float(truth.bristle_stiffness) if dry else 0.0
        self._damping = float(truth.bristle_damping) if dry else 0.0
        # Fc, Fs − Fc, vs and B. Without dry friction g stays positive; the zero stiffness
        # disables the bristle.
        self._positive, self._negative = (
            (max(float(coulomb), 1.0e-9) if dry else 1.0, float(breakaway - coulomb),
             float(velocity), float(viscous))
            for coulomb, breakaway, velocity, viscous in zip(
                truth.coulomb, truth.breakaway, truth.stribeck_velocity, truth.viscous,
                strict=True))

    def steady(self, velocity: float) -> float:
        """Return the friction torque [N·m] at a constant velocity [rad/s]."""
        level, viscous = self._curve(velocity)
        dry = math.copysign(level, velocity) if self._stiffness and velocity else 0.0
        return dry + viscous * velocity

    def step(self, velocity: float, duration: float) -> float:
        """Advance the bristle at constant velocity.

        Args:
            velocity: Joint velocity [rad/s].
            duration: Length of the step [s].

        Returns:
            Friction torque at the end of the step, opposing positive velocity [N·m].

        """
        level, viscous = self._curve(velocity)
        relaxation = self._stiffness * abs(velocity) / level
        exponent = -relaxation * duration
        # (1 − e^−x)/x, with its limit 1 at standstill.
        ratio = math.expm1(exponent) / exponent if exponent < -1.0e-12 else 1.0
        rate = (velocity - relaxation * self.deflection) * ratio
        self.deflection += rate * duration
        return self._stiffness * self.deflection + self._damping * rate + viscous * velocity

    def _curve(self, velocity: float) -> tuple[float, float]:
        """Return g(v) [N·m] and B [N·m·s/rad]."""
        coulomb, extra, stribeck, viscous = (
            self._positive if velocity >= 0.0 else self._negative)
        scaled = velocity / stribeck
        return coulomb + extra * math.exp(-scaled * scaled), viscous


class LuGreFriction:
    """Friction of n joints.

    The loops run over Python floats: for so few joints that is several times as fast as arrays.

    Attributes:
        torque: Friction torque of the last step, opposing positive velocity, (n,) [N·m].

    """

    def __init__(self, joints: Sequence[FrictionTruth]) -> None:
        self._joints = [JointFriction(joint) for joint in joints]
        self.torque: FloatArray = np.zeros(len(joints))

    @property
    def deflection(self) -> FloatArray:
        """Bristle deflections, shape (n,) [rad]."""
        return np.array([joint.deflection for joint in self._joints])

    def steady(self, velocity: FloatArray) -> FloatArray:
        """Return the friction torque [N·m] at a constant velocity [rad/s], shape (n,) each."""
        return np.array([joint.steady(rate) for joint, rate in zip(
            self._joints, velocity.tolist(), strict=True)])

    def step(self, velocity: FloatArray, duration: float) -> FloatArray:
        """Advance the bristles at constant velocity and return `torque`.

        Args:
            velocity: Joint velocities, shape (n,) [rad/s].
            duration: Length of the step [s].

        """
        self.torque = np.array([joint.step(rate, duration) for joint, rate in zip(
            self._joints, velocity.tolist(), strict=True)])
        return self.torque
