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


_AT_REST = 1.0e-3
"""Speed below which friction rises as in a pause [rad/s]."""


class JointFriction:
    """LuGre friction of one joint.

    With g(v) = Fc± + (Fs± − Fc±) exp(−(v/vs±)²) + load dependence · |load|:
    dz/dt = v − σ0 |v| z / g(v), torque = σ0 z + σ1 dz/dt + B± |v|^a sign(v). The bristle
    equation is linear in z for a constant velocity, so each step is integrated exactly: stable
    for any stiffness. A hysteresis torque h of the joint angle q, dh/dq = (h_max sign(v) − h)/q_h
    (P. Dahl, "A solid friction model", Aerospace Corporation TOR-158, 1968), is added; warm-up
    and pauses scale the sum.

    Attributes:
        deflection: Bristle deflection z [rad].

    """

    def __init__(self, truth: FrictionTruth) -> None:
        self.deflection = 0.0
        self._truth = truth
        self._hysteresis = 0.0
        self._time = 0.0
        self._rested = 0.0
        self._load_dependence, self._exponent = truth.load_dependence, truth.viscous_exponent
        self._varies = bool(truth.hysteresis or truth.warm_up or truth.pause_rise)
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

    @property
    def factor(self) -> float:
        """Present factor on all friction, from warm-up and pauses."""
        truth = self._truth
        warm = 1.0 - math.exp(-self._time / truth.warm_up_time)
        return (1.0 + truth.warm_up * warm) * (1.0 + truth.pause_rise * self._rested)

    def release(self) -> None:
        """Relax the bristle and the hysteresis, as in a joint that has never moved."""
        self.deflection = self._hysteresis = 0.0

    def steady(self, velocity: float, load: float = 0.0) -> float:
        """Return the friction torque [N·m] at a constant velocity [rad/s] and load [N·m].

        Hysteresis is fully developed; warm-up and pauses are as they are now.
        """
        level, viscous = self._curve(velocity, load)
        dry = math.copysign(level, velocity) if self._stiffness and velocity else 0.0
        hysteresis = math.copysign(self._truth.hysteresis, velocity) if velocity else 0.0
        return self.factor * (dry + hysteresis + self._viscous(viscous, velocity))

    def step(self, velocity: float, duration: float, load: float = 0.0) -> float:
        """Advance the bristle at constant velocity.

        Args:
            velocity: Joint velocity [rad/s].
            duration: Length of the step [s].
            load: Torque that the joint transmits [N·m].

        Returns:
            Friction torque at the end of the step, opposing positive velocity [N·m].

        """
        level, viscous = self._curve(velocity, load)
        relaxation = self._stiffness * abs(velocity) / level
        exponent = -relaxation * duration
        # (1 − e^−x)/x, with its limit 1 at standstill.
        ratio = math.expm1(exponent) / exponent if exponent < -1.0e-12 else 1.0
        rate = (velocity - relaxation * self.deflection) * ratio
        self.deflection += rate * duration
        torque = (self._stiffness * self.deflection + self._damping * rate
                  + self._viscous(viscous, velocity))
        if self._varies:
            torque = self._vary(torque, velocity, duration)
        return torque

    def _vary(self, torque: float, velocity: float, duration: float) -> float:
        """Return the torque with hysteresis, warm-up and pauses, and advance their states."""
        truth = self._truth
        if velocity:
            limit = math.copysign(truth.hysteresis, velocity)
            kept = math.exp(-abs(velocity) * duration / truth.hysteresis_angle)
            self._hysteresis = limit + (self._hysteresis - limit) * kept
        torque = self.factor * (torque + self._hysteresis)
        self._time += duration
        if abs(velocity) < _AT_REST:
            self._rested = 1.0 - (1.0 - self._rested) * math.exp(-duration / truth.pause_time)
        else:
            self._rested *= math.exp(-duration / truth.run_in_time)
        return torque

    def _viscous(self, viscous: float, velocity: float) -> float:
        if self._exponent == 1.0:
            return viscous * velocity
        return viscous * math.copysign(abs(velocity) ** self._exponent, velocity)

    def _curve(self, velocity: float, load: float) -> tuple[float, float]:
        """Return g(v) [N·m] and B [N·m·s/rad]."""
        coulomb, extra, stribeck, viscous = (self._positive if velocity >= 0.0 else self._negative)
        scaled = velocity / stribeck
        level = coulomb + extra * math.exp(-scaled * scaled)
        return level + self._load_dependence * abs(load), viscous


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

    @property
    def factor(self) -> FloatArray:
        """Present factors on the joints' friction, from warm-up and pauses, shape (n,)."""
        return np.array([joint.factor for joint in self._joints])

    def release(self) -> None:
        """Relax all bristles: the joints are at rest without friction torque."""
        for joint in self._joints:
            joint.release()
        self.torque = np.zeros(len(self._joints))

    def steady(self, velocity: FloatArray, load: FloatArray | None = None) -> FloatArray:
        """Return the friction torque [N·m] at a constant velocity [rad/s], shape (n,) each.

        Args:
            velocity: Joint velocities, shape (n,) [rad/s].
            load: Torques that the joints transmit, shape (n,) [N·m]; none by default.

        """
        loads = [0.0] * len(velocity) if load is None else load.tolist()
        return np.array([joint.steady(rate, carried) for joint, rate, carried in zip(
            self._joints, velocity.tolist(), loads, strict=True)])

    def step(
        self, velocity: FloatArray, duration: float, load: FloatArray | None = None
    ) -> FloatArray:
        """Advance the bristles at constant velocity and return `torque`.

        Args:
            velocity: Joint velocities, shape (n,) [rad/s].
            duration: Length of the step [s].
            load: Torques that the joints transmit, shape (n,) [N·m]; none by default.

        """
        loads = [0.0] * len(velocity) if load is None else load.tolist()
        self.torque = np.array([joint.step(rate, duration, carried) for joint, rate, carried in
                                zip(self._joints, velocity.tolist(), loads, strict=True)])
        return self.torque
