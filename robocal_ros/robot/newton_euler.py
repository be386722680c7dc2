# SPDX-License-Identifier: Apache-2.0
"""Recursive Newton-Euler algorithm for all instants of a record at once.

Pinocchio computes one instant per call, and a record has a hundred thousand; here each operation
is vectorised over the instants. The motion of a body enters by twelve numbers, its terms: a
wrench is linear in them and in the body's ten parameters. The recursion is that of Featherstone,
Rigid Body Dynamics Algorithms (2008), section 5.3, with accelerations of points instead of spatial
ones, and with each joint's axis as z.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from robocal_ros.arrays import Array, frozen
from robocal_ros.robot.model import Robot

TERMS = 12
"""Number of terms of a body's motion: acceleration of its origin minus gravity, angular
acceleration, and the products xx, xy, yy, xz, yz, zz of the angular velocity, in body axes."""

_PAIRS = ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))
_AXES = np.eye(3)


def _laws() -> Array:
    """Return the wrench of each unit term and unit parameter, shape (12, 6, 10)."""
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
    """Return the regressor of the wrench that moves a body, in its ten parameters.

    It is linear in the terms: the mean of the terms gives that of the wrench.

    Args:
        terms: Terms of the body's motion, shape (k, 12) [m/s², rad/s²].

    Returns:
        Shape (k, 6, 10), force first, in body axes about the body's origin; columns in
        Pinocchio's order of inertial parameters.

    """
    return (terms @ _LAWS.reshape(TERMS, 60)).reshape(-1, 6, 10)


def level_axes(gravity: Array) -> Array:
    """Return two unit vectors perpendicular to gravity, in its frame, shape (2, 3)."""
    down = gravity / np.linalg.norm(gravity)
    first = np.cross(down, np.eye(3)[int(np.argmin(np.abs(down)))])
    first /= np.linalg.norm(first)
    return np.stack((np.cross(down, first), first))


def on_leaning_base(robot: Robot, tilt: Array) -> Robot:
    """Return a copy of the arm whose base leans against gravity.

    Args:
        robot: The arm.
        tilt: Rotations of gravity about its ``level_axes``, shape (2,) [rad].

    """
    return _under(robot, pin.exp3(tilt @ level_axes(robot.gravity)) @ robot.gravity)


def _under(robot: Robot, gravity: Array) -> Robot:
    """Return a copy of the arm under another gravity [m/s²]."""
    other = robot.copy()
    other.gravity = frozen(gravity)
    other.model.gravity.linear = gravity
    return other


def gravity_changes(robot: Robot) -> list[Robot]:
    """Return the arm under the change of gravity per tilt of the base, about two axes [1/rad].

    Its gravity torques are the derivatives by these tilts; none without gravity.
    """
    return [_under(robot, change) for change in _changes(robot.gravity)]


def _changes(gravity: Array) -> Array:
    """Return the changes of gravity per tilt about its ``level_axes``, shape (2 or 0, 3)."""
    if not gravity.any():
        return np.empty((0, 3))
    return np.cross(level_axes(gravity), gravity)


def wrench_matrix(parameters: Array) -> Array:
    """Return the matrix from a body's terms to its wrench, force first, shape (6, 12).

    Args:
        parameters: Inertial parameters of the body, shape (10,).

    """
    return (_LAWS @ parameters).T


def _acceleration_at(point: Array) -> Array:
    """Return the matrix from terms to a point's acceleration minus gravity, shape (3, 12)."""
    # It is the force on a mass of 1 kg there.
    return wrench_matrix(np.array([1.0, *point, *[0.0] * 6]))[:3]


# Change of that matrix per metre along z.
_SLIDING = _acceleration_at(_AXES[2]) - _acceleration_at(np.zeros(3))


@dataclass(frozen=True)
class _Mount:
    """Placement of a body on its carrier.

    Attributes:
        rotation: Matrix from carrier axes to body axes, shape (3, 3).
        accelerations: Matrix from the carrier's terms to the body's first six, shape (6, 12).
        wrench: Matrix from a wrench in body coordinates to carrier coordinates, shape (6, 6).

    """

    rotation: Array
    accelerations: Array
    wrench: Array

    @classmethod
    def at(cls, rotation: Array, shift: Array) -> _Mount:
        """Create it from rotation matrix and position of the body on its carrier."""
        accelerations = np.zeros((6, TERMS))
        accelerations[:3] = rotation.T @ _acceleration_at(shift)
        accelerations[3:, 3:6] = rotation.T
        return cls(rotation.T, accelerations,
                   np.array(pin.SE3(rotation, shift).toDualActionMatrix()))

    def moved(self, terms: Array, speed: Array) -> Array:
        """Return the motion of a body that is fixed to its carrier.

        Args:
            terms: Terms of the carrier, shape (12, k).
            speed: Angular velocity of the carrier, shape (3, k) [rad/s].

        Returns:
            Acceleration of the origin, angular acceleration, angular velocity, shape (3, 3, k).

        """
        moved = np.empty((3, 3, terms.shape[1]))
        moved[:2] = (self.accelerations @ terms).reshape(2, 3, -1)
        moved[2] = self.rotation @ speed
        return moved


@dataclass(frozen=True)
class _Joint:
    """A joint and its link, whose z is the joint's axis.

    Attributes:
        mount: Placement of the link on the one before, with the joint at zero.
        revolute: Whether the joint is revolute; it is prismatic otherwise.
        own: Matrix from the link's terms to the wrench that moves the link alone, shape (6, 12).

    """

    mount: _Mount
    revolute: bool
    own: Array


@dataclass(frozen=True)
class _Motion:
    """Motion of the root and the links.

    Attributes:
        position: Joint positions, shape (n, k).
        cosine: Cosines of the positions, shape (n, k).
        sine: Sines of the positions, shape (n, k).
        terms: Terms of each body, shape (12, k).
        speed: Angular velocity of each body, shape (3, k) [rad/s].

    """

    position: Array
    cosine: Array
    sine: Array
    terms: list[Array]
    speed: list[Array]


class NewtonEuler:
    """Inverse dynamics of an arm and of a body on one of its frames."""

    def __init__(self, robot: Robot, frame: str) -> None:
        """Convert the arm's model.

        Args:
            robot: The arm.
            frame: Frame on which the body is mounted.

        Raises:
            ConfigurationError: If there is no such frame, or a joint mimics another one.

        """
        robot.check_untied('Identification of links')
        self._armature = np.array(robot.model.armature)
        self._gravity = np.array(robot.gravity)
        mounted = robot.model.frames[robot.frame_id(frame)]
        axes = [np.eye(3)]
        self._joints: list[_Joint] = []
        for number, subspace in enumerate(_subspaces(robot), start=1):
            revolute = bool(np.linalg.norm(subspace[3:]) > 0.5)
            axis = subspace[3:] if revolute else subspace[:3]
            axes.append(pin.Quaternion.FromTwoVectors(_AXES[2], axis).toRotationMatrix())
            inertia = pin.SE3(axes[-1].T, np.zeros(3)).act(robot.model.inertias[number])
            self._joints.append(_Joint(
                _placed(axes[-2], robot.model.jointPlacements[number], axes[-1]), revolute,
                wrench_matrix(inertia.toDynamicParameters())))
        self._carrier = int(mounted.parentJoint)
        self._mount = _placed(axes[self._carrier], mounted.placement, np.eye(3))
        self._frames = [_placed(turned, pin.SE3.Identity(), np.eye(3)) for turned in axes[1:]]

    def tilts(self) -> tuple[NewtonEuler, ...]:
        """Return the arm under the change of gravity per tilt of the base, about two axes [1/rad].

        At rest, its torques and terms are the derivatives by these tilts; none without gravity.
        """
        found = []
        for change in _changes(self._gravity):
            leaning = copy(self)
            leaning._gravity = change
            found.append(leaning)
        return tuple(found)

    def terms(self, q: Array, v: Array, a: Array) -> Array:
        """Return the terms of the body's motion.

        Args:
            q: Joint angles, shape (k, n) [rad].
            v: Joint velocities, shape (k, n) [rad/s].
            a: Joint accelerations, shape (k, n) [rad/s²].

        Returns:
            Shape (k, 12).

        """
        return self._body(self._motion(q, v, a, self._carrier)).T

    def torque(self, q: Array, v: Array, a: Array, parameters: Array | None = None) -> Array:
        """Return the joint torques of the arm, with or without the body.

        Args:
            q: Joint angles, shape (k, n) [rad].
            v: Joint velocities, shape (k, n) [rad/s].
            a: Joint accelerations, shape (k, n) [rad/s²].
            parameters: Inertial parameters of the body, also physically inconsistent ones, shape
                (10,); None for no body.

        Returns:
            Shape (k, n) [N·m].

        """
        motion = self._motion(q, v, a, len(self._joints))
        wrenches = {number: joint.own @ motion.terms[number]
                    for number, joint in enumerate(self._joints, start=1)}
        if parameters is not None and self._carrier:
            wrenches[self._carrier] += (
                self._mount.wrench @ wrench_matrix(parameters) @ self._body(motion))
        return np.asarray(self._torques(motion, wrenches).T + self._armature * a)

    def torque_regressor(self, q: Array, v: Array, a: Array) -> Array:
        """Return the regressor of the joint torques in the body's ten parameters.

        Args:
            q: Joint angles, shape (k, n) [rad].
            v: Joint velocities, shape (k, n) [rad/s].
            a: Joint accelerations, shape (k, n) [rad/s²].

        Returns:
            Shape (k, n, 10).

        """
        regressor = np.zeros((len(self._joints), 10, len(q)))
        if self._carrier:
            self._write_regressor(self._motion(q, v, a, self._carrier), self._carrier,
                                  self._mount, regressor[:self._carrier])
        return regressor.transpose(2, 0, 1)

    def link_regressor(self, q: Array, v: Array, a: Array) -> Array:
        """Return the regressor of the joint torques in the ten parameters of every link.

        Args:
            q: Joint angles, shape (k, n) [rad].
            v: Joint velocities, shape (k, n) [rad/s].
            a: Joint accelerations, shape (k, n) [rad/s²].

        Returns:
            Shape (k, n, 10 n), link by link, in the frames of the joints.

        """
        n, count = len(self._joints), len(q)
        motion = self._motion(q, v, a, n)
        regressor = np.zeros((n, n, 10, count))
        for index, frame in enumerate(self._frames):
            self._write_regressor(motion, index + 1, frame, regressor[:index + 1, index])
        return regressor.reshape(n, 10 * n, count).transpose(2, 0, 1)

    def _write_regressor(self, motion: _Motion, link: int, mount: _Mount, out: Array) -> None:
        """Write the regressor of the torques in the parameters of a body that a link carries.

        Args:
            motion: The motion.
            link: Number of the link.
            mount: Placement of the body on it.
            out: Shape (link, 10, k).

        """
        units = np.repeat(mount.wrench[:, :, None], out.shape[2], axis=2)
        body = _terms(mount.moved(motion.terms[link], motion.speed[link]))
        wrenches = (_LAWS.reshape(TERMS, 60).T @ body).reshape(6, 10, -1)
        np.einsum('nrk,rpk->npk', self._torques(motion, {link: units}), wrenches, out=out)

    def _motion(self, q: Array, v: Array, a: Array, links: int) -> _Motion:
        """Return the motion of the first links (forward recursion)."""
        position, velocity, acceleration = (np.ascontiguousarray(item.T) for item in (q, v, a))
        rest = np.zeros((TERMS, len(q)))
        rest[:3] = -self._gravity[:, None]
        motion = _Motion(position, np.cos(position), np.sin(position), [rest], [rest[3:6]])
        for index, joint in enumerate(self._joints[:links]):
            moved = joint.mount.moved(motion.terms[-1], motion.speed[-1])
            rate, change = velocity[index], acceleration[index]
            if joint.revolute:
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
        """Return joint torques (backward recursion).

        Args:
            motion: The motion.
            wrenches: Wrenches that move the links alone, by link number, shape (6, …, k) each.

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
            torques[index] = total[5 if joint.revolute else 2]
            parts = total.reshape(2, 3, *total.shape[1:])
            if joint.revolute:
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
        # The binding returns a matrix of one column as a vector.
        yield pin.computeJointJacobian(
            robot.model, data, posture, index + 1).reshape(6, robot.n)[:, index]


def _placed(before: Array, placement: pin.SE3, after: Array) -> _Mount:
    """Return the placement of a body in turned axes on a carrier in turned axes."""
    return _Mount.at(before.T @ placement.rotation @ after, before.T @ placement.translation)


def _terms(moved: Array) -> Array:
    """Return the terms, shape (12, k), of accelerations and angular velocity, (3, 3, k)."""
    terms = np.empty((TERMS, moved.shape[2]))
    terms[:6] = moved[:2].reshape(6, -1)
    for row, (i, j) in enumerate(_PAIRS, start=6):
        np.multiply(moved[2, i], moved[2, j], out=terms[row])
    return terms


def _turn(vectors: Array, cosine: Array, sine: Array) -> None:
    """Rotate vectors about z in place; shape (m, 3, …, k)."""
    x, y = vectors[:, 0], vectors[:, 1]
    vectors[:, 0], vectors[:, 1] = cosine * x - sine * y, sine * x + cosine * y
