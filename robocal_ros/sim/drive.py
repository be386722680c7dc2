# SPDX-License-Identifier: Apache-2.0
"""The drives of the simulated arm: position servos that know the arm but not its tool."""

from __future__ import annotations

import mujoco
import numpy as np
import numpy.typing as npt

from robocal_ros.sim.model import JointLimits

FloatArray = npt.NDArray[np.float64]

BANDWIDTH = 100.0
"""Natural frequency of each position loop [rad/s]."""

INTEGRAL_RATE = 20.0
"""Rate at which the integral takes over a static load [1/s]."""

DEADBAND = 1.0e-5
"""Error below which the integral rests, so that stiction does not make the arm hunt [rad]."""


class CommandLimiter:
    """Turns position commands into a motion that the drives can follow.

    A command within the speed and acceleration limits passes unchanged. Any other is chased at
    the limits: this is what protects the arm when a controller commands a jump. Commands are
    clamped to the position limits, and one that is not finite is ignored.

    Attributes:
        position: Position reference, shape (n,) [rad].
        velocity: Velocity reference, shape (n,) [rad/s].
        acceleration: Acceleration reference, shape (n,) [rad/s²].

    """

    def __init__(
        self, limits: JointLimits, acceleration: FloatArray, start: FloatArray, step: float
    ) -> None:
        self._lower = limits.lower
        self._upper = limits.upper
        self._speed = limits.velocity
        self._acceleration = acceleration
        self._dt = step
        self.position = start.copy()
        self.velocity = np.zeros_like(start)
        self.acceleration = np.zeros_like(start)
        self._target = start.copy()

    def update(self, command: FloatArray) -> None:
        """Advance the reference by one control step towards `command`, shape (n,) [rad]."""
        last = self._target
        target = np.where(np.isfinite(command), command, last)
        target = np.minimum(np.maximum(target, self._lower), self._upper)
        gap = target - self.position
        wanted = gap / self._dt
        change = wanted - self.velocity
        reach = self._acceleration * self._dt
        if (np.abs(wanted) <= self._speed).all() and (np.abs(change) <= reach).all():
            self._advance(wanted, target)
        else:
            self._chase(target, gap, wanted, (target - last) / self._dt)
        self._target = target

    def _advance(self, velocity: FloatArray, position: FloatArray) -> None:
        self.acceleration = (velocity - self.velocity) / self._dt
        self.velocity = velocity
        self.position = position.copy()

    def _chase(
        self, target: FloatArray, gap: FloatArray, wanted: FloatArray, drift: FloatArray
    ) -> None:
        """Approach a target that moves on at the speed `drift`, braking in time."""
        reach = self._acceleration * self._dt
        # Half a step is kept in hand, or the discrete braking would overshoot by one.
        braking = np.sqrt(2.0 * self._acceleration * np.abs(gap)) - 0.5 * reach
        approach = np.clip(drift, -self._speed, self._speed) + np.sign(gap) * np.maximum(
            braking, 0.0
        )
        approach = np.where(np.abs(approach) < np.abs(wanted), approach, wanted)
        approach = np.minimum(np.maximum(approach, -self._speed), self._speed)
        approach = np.minimum(np.maximum(approach, self.velocity - reach), self.velocity + reach)
        self._advance(approach, self.position + approach * self._dt)
        # A brake that began too late must not carry the reference over a joint limit.
        inside = np.minimum(np.maximum(self.position, self._lower), self._upper)
        self.velocity = np.where(inside == self.position, self.velocity, 0.0)
        self.position = inside


class ServoDrive:
    """Computed torque at the reference plus PID on the encoder, at every control step.

    The encoder sits on the motor side: encoder = link angle + compliance · transmitted torque.
    That torque depends on the one commanded, so the proportional term is solved for, which
    makes the loop as soft as the joint really is and stable for any compliance.

    Attributes:
        torque: Commanded drive torque, shape (n,) [N·m].
        reference: The limited command.

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
        self._order = order
        self._compliance = compliance
        self._effort = limits.effort
        self._dt = step
        self._integral = np.zeros_like(start)
        self._count = 0
        self._full = np.zeros((model.nv, model.nv))
        self._data.qpos[order] = start
        self._update_gains()
        reachable = np.where(np.isfinite(limits.effort), 0.8 * limits.effort / self._inertia, 60.0)
        self.reference = CommandLimiter(limits, np.clip(reachable, 8.0, 60.0), start, step)
        self.torque = np.clip(self._feed_forward(), -self._effort, self._effort)

    def preload(self, torque: FloatArray) -> None:
        """Let the integral carry what the model does not know, so that the arm starts at rest.

        Args:
            torque: Drive torque that holds the arm, shape (n,) [N·m].

        """
        self._integral = torque - self._feed_forward()

    def update(
        self, command: FloatArray, position: FloatArray, velocity: FloatArray, lost: FloatArray
    ) -> FloatArray:
        """Return the drive torque, shape (n,) [N·m].

        Args:
            command: Position command, shape (n,) [rad].
            position: Link angles, shape (n,) [rad].
            velocity: Link velocities, shape (n,) [rad/s].
            lost: Torque that friction and the rotor take, shape (n,) [N·m].

        """
        self.reference.update(command)
        if self._count % 10 == 0:
            self._update_gains()
        self._count += 1
        reference = self.reference
        error = reference.position - position + self._compliance * lost
        wanted = (
            self._feed_forward()
            + self._stiffness * error
            + self._damping * (reference.velocity - velocity)
            + self._integral
        ) / self._softening
        self.torque = np.minimum(np.maximum(wanted, -self._effort), self._effort)
        seen = error - self._compliance * self.torque
        free = (np.abs(seen) > DEADBAND) & (wanted == self.torque)
        self._integral += np.where(free, self._stiffness * (INTEGRAL_RATE * self._dt) * seen, 0.0)
        return self.torque

    def _feed_forward(self) -> FloatArray:
        data = self._data
        data.qpos[self._order] = self.reference.position
        data.qvel[self._order] = self.reference.velocity
        data.qacc[self._order] = self.reference.acceleration
        mujoco.mj_inverse(self._model, data)
        torque: FloatArray = data.qfrc_inverse[self._order]
        return torque

    def _update_gains(self) -> None:
        """Scale the gains by the inertia that each joint sees in the present posture."""
        mujoco.mj_forward(self._model, self._data)
        mujoco.mj_fullM(self._model, self._data, self._full)
        self._inertia = np.diagonal(self._full)[self._order]
        self._stiffness = BANDWIDTH**2 * self._inertia
        self._damping = 2.0 * BANDWIDTH * self._inertia
        self._softening = 1.0 + self._stiffness * self._compliance
