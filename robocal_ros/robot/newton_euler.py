# SPDX-License-Identifier: Apache-2.0
"""Newton's and Euler's laws along the arm, at all instants of a record at once.

Pinocchio takes one instant a call, and a record has a hundred thousand: nearly all of the time
would go into calls. Here a call is an operation on all of them. What the laws need of a body's
motion are twelve numbers, the terms; a wrench is linear in them, and linear in the body's ten
parameters. The recursion is that of Featherstone, Rigid Body Dynamics Algorithms (2008), section
5.3, with accelerations of points for spatial ones, and with each joint's axis as z.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from robocal_ros.arrays import Array
from robocal_ros.robot.model import Robot

TERMS = 12
"""Numbers that describe a body's motion: acceleration of its origin less gravity, angular
acceleration, and the products xx, xy, yy, xz, yz, zz of angular velocity, in its axes."""

_PAIRS = ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))
_AXES = np.eye(3)


def _laws() -> Array:
    """Return what each term adds to a body's wrench, by its ten parameters, (12, 6, 10)."""
    rest = pin.Motion.Zero()
    laws = np.zeros((TERMS, 6, 10))
    for term, unit in enumerate(np.eye(6)):
        laws[term] = pin.bodyRegressor(rest, pin.Motion(unit))

    def turning(speed: Array) -> Array:
        return np.array(pin.bodyRegressor(pin.Motion(np.zeros(3), speed), rest))

    for term, (i, j) in enumerate(_PAIRS, start=6):
        laws[term] = turning(_AXES[i] + _AXES[j]) - turning(_AXES[i]) - turning(_AXES[j])
        if i == j:
            laws[term] = turning(_AXES[i])
    return laws


_LAWS = _laws()


def wrench_regressor(terms: Array) -> Array:
    """Return the wrench that carries a body, linear in its ten parameters.

    Linear in the terms too: of their mean over some time follows the mean wrench.

    Args:
        terms: Motion of the body, shape (k, 12), as of ``TERMS`` [m/s², rad/s²].

    Returns:
        Shape (k, 6, 10), force first, in the body's axes about its origin; columns as ``BODY``.

    """
    return (terms @ _LAWS.reshape(TERMS, 60)).reshape(-1, 6, 10)


def wrench_of(parameters: Array) -> Array:
    """Return the matrix that makes a wrench, force first, of a body's terms, shape (6, 12).

    Args:
        parameters: Of the body, as of ``BODY``, shape (10,).

    """
    return (_LAWS @ parameters).T


def _acceleration_at(point: Array) -> Array:
    """Return the matrix that makes a point's acceleration less gravity of terms, (3, 12)."""
    # What a mass of 1 kg there takes.
    return wrench_of(np.array([1.0, *point, *[0.0] * 6]))[:3]


# What sliding along z by 1 m adds to a point's acceleration.
_SLIDING = _acceleration_at(_AXES[2]) - _acceleration_at(np.zeros(3))


@dataclass(frozen=True)
class _Mount:
    """How one body sits on another.

    Attributes:
        turn: Matrix from a vector in the carrier's axes to the body's, shape (3, 3).
        accelerations: Matrix from the carrier's terms to the body's first six, shape (6, 12).
        wrench: Matrix from a wrench on the body to the same on the carrier, shape (6, 6).

    """

    turn: Array
    accelerations: Array
    wrench: Array

    @classmethod
    def at(cls, rotation: Array, shift: Array) -> _Mount:
        """Build it from the body's placement on its carrier."""
        accelerations = np.zeros((6, TERMS))
        accelerations[:3] = rotation.T @ _acceleration_at(shift)
        accelerations[3:, 3:6] = rotation.T
        return cls(rotation.T, accelerations,
                   np.array(pin.SE3(rotation, shift).toDualActionMatrix()))

    def moved(self, terms: Array, speed: Array) -> Array:
        """Return what the body's motion is if it rests on its carrier.

        Args:
            terms: Of the carrier, shape (12, k).
            speed: Its angular velocity, shape (3, k) [rad/s].

        Returns:
            Acceleration of the origin, angular acceleration, angular velocity, shape (3, 3, k).

        """
        moved = np.empty((3, 3, terms.shape[1]))
        moved[:2] = (self.accelerations @ terms).reshape(2, 3, -1)
        moved[2] = self.turn @ speed
        return moved


@dataclass(frozen=True)
class _Joint:
    """A joint and the link that it moves, whose z is the joint's axis.

    Attributes:
        mount: How the link sits on the one before where the joint stands at zero.
        turns: Whether the joint turns; it slides otherwise.
        own: Matrix from the link's terms to the wrench that moves the link alone, shape (6, 12).

    """

    mount: _Mount
    turns: bool
    own: Array


@dataclass(frozen=True)
class _Motion:
    """A motion worked out, of the root and of the links from there on.

    Attributes:
        position: Of the joints, shape (n, k).
        cosine: Of the positions, shape (n, k).
        sine: Of the positions, shape (n, k).
        terms: Of each body, shape (12, k).
        speed: Angular velocity of each body, shape (3, k) [rad/s].

    """

    position: Array
    cosine: Array
    sine: Array
    terms: list[Array]
    speed: list[Array]


class NewtonEuler:
    """What an arm, and a body on one of its frames, take in motion."""

    def __init__(self, robot: Robot, frame: str) -> None:
        """Take over the arm's model.

        Args:
            robot: The arm.
            frame: Frame on which the body is mounted.

        Raises:
            ConfigurationError: If there is no such frame, or a joint has no drive.

        """
        robot.check_untied('Identification of links')
        self._armature = np.array(robot.model.armature)
        self._gravity = np.array(robot.gravity)
        mounted = robot.model.frames[robot.frame_id(frame)]
        axes = [np.eye(3)]
        self._joints: list[_Joint] = []
        for number, subspace in enumerate(_subspaces(robot), start=1):
            turns = bool(np.linalg.norm(subspace[3:]) > 0.5)
            axis = subspace[3:] if turns else subspace[:3]
            axes.append(pin.Quaternion.FromTwoVectors(_AXES[2], axis).toRotationMatrix())
            inertia = pin.SE3(axes[-1].T, np.zeros(3)).act(robot.model.inertias[number])
            self._joints.append(_Joint(
                _placed(axes[-2], robot.model.jointPlacements[number], axes[-1]), turns,
                wrench_of(inertia.toDynamicParameters())))
        self._carrier = int(mounted.parentJoint)
        self._mount = _placed(axes[self._carrier], mounted.placement, np.eye(3))

    def terms(self, q: Array, v: Array, a: Array) -> Array:
        """Return how the body moves.

        Args:
            q: Joint angles, shape (k, n) [rad].
            v: Joint velocities, shape (k, n) [rad/s].
            a: Joint accelerations, shape (k, n) [rad/s²].

        Returns:
            Shape (k, 12), as of ``TERMS``.

        """
        return self._body(self._moved(q, v, a, self._carrier)).T

    def torque(self, q: Array, v: Array, a: Array, parameters: Array | None = None) -> Array:
        """Return the joint torques of the arm, with the body or without.

        Args:
            q: Joint angles, shape (k, n) [rad].
            v: Joint velocities, shape (k, n) [rad/s].
            a: Joint accelerations, shape (k, n) [rad/s²].
            parameters: Of the body, as of ``BODY``, shape (10,); it need not be a possible one.

        Returns:
            Shape (k, n) [N·m].

        """
        motion = self._moved(q, v, a, len(self._joints))
        wrenches = {number: joint.own @ motion.terms[number]
                    for number, joint in enumerate(self._joints, start=1)}
        if parameters is not None and self._carrier:
            wrenches[self._carrier] += (
                self._mount.wrench @ wrench_of(parameters) @ self._body(motion))
        return np.asarray(self._torques(motion, wrenches).T + self._armature * a)

    def torque_regressor(self, q: Array, v: Array, a: Array) -> Array:
        """Return the joint torques that the body takes, linear in its ten parameters.

        Args:
            q: Joint angles, shape (k, n) [rad].
            v: Joint velocities, shape (k, n) [rad/s].
            a: Joint accelerations, shape (k, n) [rad/s²].

        Returns:
            Shape (k, n, 10).

        """
        motion = self._moved(q, v, a, self._carrier)
        regressor = np.zeros((len(self._joints), 10, len(q)))
        if self._carrier:
            units = np.repeat(self._mount.wrench[:, :, None], len(q), axis=2)
            levers = self._torques(motion, {self._carrier: units})
            wrenches = (_LAWS.reshape(TERMS, 60).T @ self._body(motion)).reshape(6, 10, -1)
            np.einsum('nrk,rpk->npk', levers, wrenches, out=regressor[:self._carrier])
        return regressor.transpose(2, 0, 1)

    def _moved(self, q: Array, v: Array, a: Array, links: int) -> _Motion:
        """Go along the arm as far as some link."""
        position, velocity, acceleration = (np.ascontiguousarray(item.T) for item in (q, v, a))
        rest = np.zeros((TERMS, len(q)))
        rest[:3] = -self._gravity[:, None]
        motion = _Motion(position, np.cos(position), np.sin(position), [rest], [rest[3:6]])
        for index, joint in enumerate(self._joints[:links]):
            moved = joint.mount.moved(motion.terms[-1], motion.speed[-1])
            rate, change = velocity[index], acceleration[index]
            if joint.turns:
                _turn(moved, motion.cosine[index], -motion.sine[index])
                moved[1, 0] += moved[2, 1] * rate
                moved[1, 1] -= moved[2, 0] * rate
                moved[1, 2] += change
                moved[2, 2] += rate
            else:
                moved[0] += position[index] * (_SLIDING @ _terms(moved))
                moved[0, 0] += 2.0 * moved[2, 1] * rate
                moved[0, 1] -= 2.0 * moved[2, 0] * rate
                moved[0, 2] += change
            motion.terms.append(_terms(moved))
            motion.speed.append(moved[2])
        return motion

    def _body(self, motion: _Motion) -> Array:
        """Return the terms of the body, shape (12, k)."""
        return _terms(self._mount.moved(
            motion.terms[self._carrier], motion.speed[self._carrier]))

    def _torques(self, motion: _Motion, wrenches: Mapping[int, Array]) -> Array:
        """Go back along the arm.

        Args:
            motion: The motion.
            wrenches: What moves the links alone, by their numbers, shape (6, …, k) each.

        Returns:
            Torques of the joints up to the last of these links, shape (links, …, k).

        """
        links = max(wrenches)
        total = np.zeros_like(wrenches[links])
        torques = np.empty((links, *total.shape[1:]))
        for index in reversed(range(links)):
            joint = self._joints[index]
            if index + 1 in wrenches:
                total += wrenches[index + 1]
            torques[index] = total[5 if joint.turns else 2]
            parts = total.reshape(2, 3, *total.shape[1:])
            if joint.turns:
                _turn(parts, motion.cosine[index], motion.sine[index])
            else:
                parts[1, 0] -= motion.position[index] * parts[0, 1]
                parts[1, 1] += motion.position[index] * parts[0, 0]
            total = (joint.mount.wrench @ parts.reshape(6, -1)).reshape(total.shape)
        return torques


def _subspaces(robot: Robot) -> Iterator[Array]:
    """Yield the motion that each joint allows, in its own frame, shape (6,)."""
    data, posture = robot.model.createData(), np.zeros(robot.n)
    for index in range(robot.n):
        # The binding gives a matrix of one column one axis.
        yield pin.computeJointJacobian(
            robot.model, data, posture, index + 1).reshape(6, robot.n)[:, index]


def _placed(before: Array, placement: pin.SE3, after: Array) -> _Mount:
    """Return a placement between bodies whose axes were turned."""
    return _Mount.at(before.T @ placement.rotation @ after, before.T @ placement.translation)


def _terms(moved: Array) -> Array:
    """Return the terms of accelerations and angular velocity, shapes (3, 3, k) and (12, k)."""
    terms = np.empty((TERMS, moved.shape[2]))
    terms[:6] = moved[:2].reshape(6, -1)
    for row, (i, j) in enumerate(_PAIRS, start=6):
        np.multiply(moved[2, i], moved[2, j], out=terms[row])
    return terms


def _turn(vectors: Array, cosine: Array, sine: Array) -> None:
    """Turn vectors about z, in place; shape (m, 3, …, k)."""
    x, y = vectors[:, 0], vectors[:, 1]
    vectors[:, 0], vectors[:, 1] = cosine * x - sine * y, sine * x + cosine * y
