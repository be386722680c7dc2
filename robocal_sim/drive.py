# SPDX-License-Identifier: Apache-2.0
"""Drives of the simulated arm: position servos that model the arm without its tool."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import numpy.typing as npt

from robocal_sim.model import JointLimits

FloatArray = npt.NDArray[np.float64]

BANDWIDTH = 100.0
"""Natural frequency of each position loop [rad/s]."""

INTEGRAL_RATE = 20.0
"""Rate of the integral term [1/s]."""

DEADBAND = 1.0e-5
"""Position error below which the integral is frozen, against hunting under stiction [rad]."""


class CommandLimiter:
    """Limiter of one joint's position command, in position, velocity and acceleration.

    A command within the limits passes unchanged; any other is approached at the limits.
    Commands that are not finite are ignored.

    Attributes:
        position: Position reference [rad].
        velocity: Velocity reference [rad/s].
        acceleration: Acceleration reference [rad/s²].

    """

    def __init__(
        self, lower: float, upper: float, speed: float, acceleration: float, start: float,
        step: float,
    ) -> None:
        self._lower = lower
        self._upper = upper
        self._speed = speed
        self._acceleration = acceleration
        self._reach = acceleration * step
        self._dt = step
        self.position = start
        self.velocity = 0.0
        self.acceleration = 0.0
        self._target = start

    def update(self, command: float) -> None:
        """Advance the reference by one control step towards a command [rad]."""
        last = self._target
        target = command if math.isfinite(command) else last
        target = min(max(target, self._lower), self._upper)
        wanted = (target - self.position) / self._dt
        if abs(wanted) <= self._speed and abs(wanted - self.velocity) <= self._reach:
            self._advance(wanted, target)
        else:
            self._chase(target, wanted, (target - last) / self._dt)
        self._target = target

    def _advance(self, velocity: float, position: float) -> None:
        self.acceleration = (velocity - self.velocity) / self._dt
        self.velocity = velocity
        self.position = position

    def _chase(self, target: float, wanted: float, drift: float) -> None:
        """Approach a target that moves at the speed `drift`, braking in time."""
        reach, speed = self._reach, self._speed
        gap = target - self.position
        # The margin of half a step prevents an overshoot of the discrete braking.
        braking = max(math.sqrt(2.0 * self._acceleration * abs(gap)) - 0.5 * reach, 0.0)
        approach = min(max(drift, -speed), speed) + math.copysign(braking, gap)
        if abs(approach) >= abs(wanted):
            approach = wanted
        approach = min(max(approach, -speed), speed)
        approach = min(max(approach, self.velocity - reach), self.velocity + reach)
        self._advance(approach, self.position + approach * self._dt)
        # Braking that started too late must not exceed a joint limit.
        inside = min(max(self.position, self._lower), self._upper)
        if inside != self.position:
            self.velocity = 0.0
            self.position = inside


class JointDrive:
    """Position loop of one joint: PID on the encoder plus feed-forward torque.

    The encoder is on the motor side: encoder = link angle + compliance · transmitted torque.
    The transmitted torque depends on the commanded one, so the proportional term is solved
    implicitly, which is stable for any compliance.

    Attributes:
        integral: Torque of the integral term [N·m].
        reference: Limited command.

    """

    def __init__(
        self, reference: CommandLimiter, effort: float, compliance: float, step: float
    ) -> None:
        self.reference = reference
        self.integral = 0.0
        self._effort = effort
        self._compliance = compliance
        self._dt = step

    def scale(self, inertia: float) -> None:
        """Scale the gains by the inertia that the joint sees [kg·m²]."""
        self._stiffness = BANDWIDTH**2 * inertia
        self._damping = 2.0 * BANDWIDTH * inertia
        self._softening = 1.0 + self._stiffness * self._compliance

    def update(self, feed_forward: float, position: float, velocity: float, lost: float) -> float:
        """Return the drive torque [N·m].

        Args:
            feed_forward: Feed-forward torque [N·m].
            position: Link angle [rad].
            velocity: Link velocity [rad/s].
            lost: Torque lost to friction and rotor acceleration [N·m].

        """
        error = self.reference.position - position + self._compliance * lost
        wanted = (
            feed_forward
            + self._stiffness * error
            + self._damping * (self.reference.velocity - velocity)
            + self.integral
        ) / self._softening
        torque = min(max(wanted, -self._effort), self._effort)
        seen = error - self._compliance * torque
        if abs(seen) > DEADBAND and wanted == torque:
            self.integral += self._stiffness * INTEGRAL_RATE * self._dt * seen
        return torque


class ServoDrive:
    """Computed-torque feed-forward at the reference plus the joints' position loops.

    The loops run over Python floats: for so few joints that is several times as fast as arrays.

    Attributes:
        torque: Commanded drive torque, shape (n,) [N·m].

    """

    def __init__(
        self,
        model: mujoco.MjModel,
        order: npt.NDArray[np.intp],
        limits: JointLimits,
        compliance: FloatArray,
        start: FloatArray,
        step: float,
    ) -> None:
        self._model = model
        self._data = mujoco.MjData(model)
        # Views of MuJoCo's memory: each attribute access would create a new one.
        self._state = self._data.qpos, self._data.qvel, self._data.qacc
        self._inverse = self._data.qfrc_inverse
        self._order = order
        self._count = 0
        self._motion: tuple[list[float], list[float], list[float]] = ([], [], [])
        self._fed: FloatArray = np.zeros_like(start)
        self._full = np.zeros((model.nv, model.nv))
        self._data.qpos[order] = start
        inertia = self._inertia()
        reachable = np.where(np.isfinite(limits.effort), 0.8 * limits.effort / inertia, 60.0)
        columns = (limits.lower, limits.upper, limits.velocity, np.clip(reachable, 8.0, 60.0),
                   start, limits.effort, compliance)
        self._joints = [
            JointDrive(CommandLimiter(lower, upper, speed, acceleration, angle, step),
                       effort, soft, step)
            for lower, upper, speed, acceleration, angle, effort, soft in zip(
                *(column.tolist() for column in columns), strict=True)]
        self._scale(inertia)
        self.torque: FloatArray = np.zeros_like(start)

    @property
    def reference(self) -> FloatArray:
        """Limited position command, shape (n,) [rad]."""
        return np.array([joint.reference.position for joint in self._joints])

    def preload(self, torque: FloatArray) -> None:
        """Set the integrals so that the arm starts at rest.

        Args:
            torque: Holding torque of the drives, shape (n,) [N·m].

        """
        for joint, integral in zip(
            self._joints, (torque - self._feed_forward()).tolist(), strict=True
        ):
            joint.integral = integral

    def update(
        self, command: FloatArray, effort: FloatArray, position: FloatArray,
        velocity: FloatArray, lost: FloatArray,
    ) -> FloatArray:
        """Return the drive torque, shape (n,) [N·m].

        Args:
            command: Position command, shape (n,) [rad].
            effort: Effort command, added to the drives' own feed-forward, shape (n,) [N·m].
            position: Link angles, shape (n,) [rad].
            velocity: Link velocities, shape (n,) [rad/s].
            lost: Torque lost to friction and rotor acceleration, shape (n,) [N·m].

        """
        for joint, angle in zip(self._joints, command.tolist(), strict=True):
            joint.reference.update(angle)
        if self._count % 10 == 0:
            self._scale(self._inertia())
        self._count += 1
        columns = (self._feed_forward() + np.nan_to_num(effort, posinf=0.0, neginf=0.0), position,
                   velocity, lost)
        self.torque = np.array([
            joint.update(fed, angle, rate, taken) for joint, fed, angle, rate, taken in zip(
                self._joints, *(column.tolist() for column in columns), strict=True)])
        return self.torque

    def _feed_forward(self) -> FloatArray:
        references = [joint.reference for joint in self._joints]
        motion = ([reference.position for reference in references],
                  [reference.velocity for reference in references],
                  [reference.acceleration for reference in references])
        # Inverse dynamics is a third of the work at rest, where its input stays the same.
        if motion != self._motion:
            for state, values in zip(self._state, motion, strict=True):
                state[self._order] = values
            mujoco.mj_inverse(self._model, self._data)
            self._motion = motion
            self._fed = self._inverse[self._order]
        return self._fed

    def _scale(self, inertia: FloatArray) -> None:
        for joint, value in zip(self._joints, inertia.tolist(), strict=True):
            joint.scale(value)

    def _inertia(self) -> FloatArray:
        """Return the diagonal of the joint-space inertia matrix in the last posture, (n,)."""
        mujoco.mj_forward(self._model, self._data)
        mujoco.mj_fullM(self._model, self._data, self._full)
        seen: FloatArray = np.diagonal(self._full)[self._order]
        return seen
