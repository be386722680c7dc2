# SPDX-License-Identifier: Apache-2.0
"""Verification of refusals by an exhaustive search: dense random restarts along the path.

The search shares no code with the planner. Kinematics are computed from the URDF, for many
postures at a time; solutions come from damped Gauss-Newton iterations (Levenberg-Marquardt) that
start at random postures in the whole joint space and around the solutions reached so far. A path
exists if a chain of neighbouring solutions leads from the start to the end of the rotation.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass

import numpy as np

from benchmarks.foreign_arms import ArmUnderTest
from robocal_ros.arrays import Array, Flags

_LAYER = 0.05
_SUBSTEPS = 16
_ITERATIONS = 40
_RESTARTS = 150
_ROUNDS = 60
_AROUND = 4
_NOISE = 0.02
_LINK = 0.3
_SAME = 0.1
_MOST = 400
_ON_LINK = (0.15, 0.3, 0.45, 0.6, 0.75, 0.9)
_DAMPING = 1e-6
_LONGEST_STEP = 0.3


@dataclass(frozen=True)
class _Joint:
    """A joint: fixed placement, then rotation about an axis; ``axis`` is None if it is fixed."""

    rotation: Array
    translation: Array
    axis: Array | None


def _numbers(element: ElementTree.Element | None, name: str, default: str) -> Array:
    text = default if element is None else element.get(name, default)
    return np.array([float(value) for value in text.split()])


def _turns(axis: Array, angle: Array) -> Array:
    """Return rotations about an axis by k angles, shape (k, 3, 3) (Rodrigues' formula)."""
    x, y, z = axis
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    sine, versine = np.sin(angle)[:, None, None], (1.0 - np.cos(angle))[:, None, None]
    return np.eye(3) + sine * cross + versine * (cross @ cross)


def _roll_pitch_yaw(angles: Array) -> Array:
    roll, pitch, yaw = (_turns(axis, angle[None])[0]
                        for axis, angle in zip(np.eye(3), angles, strict=True))
    return yaw @ pitch @ roll


class Chain:
    """Forward kinematics of many postures at a time, computed from the URDF."""

    def __init__(self, urdf: str, tool: str) -> None:
        """Read the joints from the root to a link."""
        tree = ElementTree.fromstring(urdf)
        parents = {
            child.get('link', ''): joint for joint in tree.findall('joint')
            if (child := joint.find('child')) is not None}
        self._joints: list[_Joint] = []
        link = tool
        while link in parents:
            joint = parents[link]
            origin, axis = joint.find('origin'), joint.find('axis')
            direction = _numbers(axis, 'xyz', '1 0 0')
            self._joints.append(_Joint(
                _roll_pitch_yaw(_numbers(origin, 'rpy', '0 0 0')),
                _numbers(origin, 'xyz', '0 0 0'),
                None if joint.get('type') == 'fixed'
                else direction / np.linalg.norm(direction)))
            parent = joint.find('parent')
            link = '' if parent is None else parent.get('link', '')
        self._joints.reverse()

    def poses(self, q: Array) -> tuple[Array, Array, Array]:
        """Return orientations (k, 3, 3), points (k, 3) and Jacobians (k, 6, n)."""
        count, n = q.shape
        rotation, point = np.tile(np.eye(3), (count, 1, 1)), np.zeros((count, 3))
        axes, origins = np.empty((n, count, 3)), np.empty((n, count, 3))
        column = 0
        for joint in self._joints:
            point = point + rotation @ joint.translation
            rotation = rotation @ joint.rotation
            if joint.axis is None:
                continue
            axes[column], origins[column] = rotation @ joint.axis, point
            rotation = rotation @ _turns(joint.axis, q[:, column])
            column += 1
        jacobian = np.concatenate(
            (np.cross(axes, point - origins), axes), axis=2).transpose(1, 2, 0)
        return rotation, point, jacobian


@dataclass(frozen=True)
class Turn:
    """Rotation of the tool about a fixed point and axis.

    Attributes:
        orientation: Orientation at the start, shape (3, 3).
        point: Fixed point, shape (3,) [m].
        axis: Unit axis, shape (3,).
        angle: Angle [rad].

    """

    orientation: Array
    point: Array
    axis: Array
    angle: float

    def at(self, share: float) -> Array:
        """Return the orientation at a share of the path."""
        return _turns(self.axis, np.array([share * self.angle]))[0] @ self.orientation


class SecondOpinion:
    """Exhaustive search for a leveling path, independent of the planner."""

    def __init__(self, arm: ArmUnderTest, margin: float, length: float, seed: int) -> None:
        """Prepare the search.

        Args:
            arm: The arm.
            margin: Smallest allowed singular value of the Jacobian.
            length: Length by which its linear rows are divided [m].
            seed: Seed of the restarts.

        """
        self._arm = arm
        self.chain = Chain(arm.robot.urdf, arm.robot.tool_frame)
        self._lower, self._upper = arm.robot.lower, arm.robot.upper
        self._margin, self._length = margin, length
        self._random = np.random.default_rng(seed)

    def reached(self, start: Array, turn: Turn) -> float:
        """Return the largest share of the path that any chain of solutions reaches.

        Args:
            start: Posture at the start, shape (n,) [rad].
            turn: Rotation of the tool.

        """
        layers = max(2, int(np.ceil(turn.angle / _LAYER)))
        # A start posture near a singularity is allowed.
        margin = min(self._margin, float(self._singular(start[None])[0]))
        front, share = self._spread(start[None], turn, 0.0, margin), 0.0
        for layer in range(1, layers + 1):
            following = self._advanced(front, turn, share, layer / layers, margin)
            share, before = layer / layers, share
            restarted = self._restarts(turn, share, margin)
            linked = self._linked(restarted, following, turn, share, margin)
            front = self._spread(np.concatenate((following, linked)), turn, share, margin)
            if not len(front):
                return before
        return 1.0

    def _restarts(self, turn: Turn, share: float, margin: float) -> Array:
        """Return solutions found from random postures in the whole joint space."""
        low, high = self._arm.robot.sampling_limits()
        guesses = self._random.uniform(low, high, (_RESTARTS, self._arm.robot.n))
        return self._allowed(self._solved(guesses, turn, share, clip=True), margin)

    def _linked(self, found: Array, front: Array, turn: Turn, share: float, margin: float
                ) -> Array:
        """Return those solutions to which a short path leads from one of a front.

        The straight line between the two is brought back onto the turn's share: points that
        end elsewhere, in a singularity or outside the limits, are no way.
        """
        if not len(found) or not len(front):
            return found[:0]
        distances = np.abs(found[:, None] - front[None]).max(axis=2)
        near = distances.min(axis=1) < _LINK
        found, nearest = found[near], front[distances[near].argmin(axis=1)]
        good = np.ones(len(found), dtype=bool)
        for part in _ON_LINK:
            between = nearest + part * (found - nearest)
            back, ok = self._iterated(between, turn, share, clip=False, iterations=10)
            good &= ok & (np.abs(back - between).max(axis=1, initial=0.0) < 0.5 * _LINK)
            good &= self._within(back, 1e-3) & (self._singular(back) >= margin)
        return found[good]

    def _spread(self, layer: Array, turn: Turn, share: float, margin: float) -> Array:
        """Add solutions around the reached ones until there are no new ones."""
        layer = _thinned(layer, np.empty((0, self._arm.robot.n)))
        if self._arm.robot.n <= 6 or not len(layer):
            return layer
        fresh = layer
        for _ in range(_ROUNDS):
            around = self._scattered(np.repeat(fresh, _AROUND, axis=0))
            found = self._allowed(self._solved(around, turn, share, clip=True), margin)
            fresh = _thinned(
                self._linked(found, layer, turn, share, margin), layer)
            layer = np.concatenate((layer, fresh))[:_MOST]
            if not len(fresh) or len(layer) == _MOST:
                break
        return layer

    def _scattered(self, q: Array) -> Array:
        """Return randomly shifted postures, mostly along the null space of the Jacobian."""
        vectors = np.linalg.svd(self.chain.poses(q)[2])[2][:, 6:]
        weights = self._random.normal(size=vectors.shape[:2])
        direction = np.einsum('kr,krn->kn', weights, vectors)
        direction /= np.abs(direction).max(axis=1, keepdims=True)
        length = self._random.uniform(_SAME, _LINK, (len(q), 1))
        return q + length * direction + self._random.uniform(-_NOISE, _NOISE, q.shape)

    def _advanced(
        self, front: Array, turn: Turn, share: float, goal: float, margin: float
    ) -> Array:
        """Follow every solution in small steps to the next share."""
        here = front
        for part in np.linspace(share, goal, _SUBSTEPS + 1)[1:]:
            following, ok = self._iterated(here, turn, float(part), clip=False, iterations=8)
            ok &= np.abs(following - here).max(axis=1) < _LONGEST_STEP
            here = following[ok]
            here = here[self._within(here) & (self._singular(here) >= margin * (1.0 - 1e-6))]
            if not len(here):
                break
        return self._allowed(here, margin)

    def _solved(self, guesses: Array, turn: Turn, share: float, *, clip: bool) -> Array:
        found, ok = self._iterated(guesses, turn, share, clip=clip, iterations=_ITERATIONS)
        return found[ok]

    def _iterated(
        self, q: Array, turn: Turn, share: float, *, clip: bool, iterations: int
    ) -> tuple[Array, Flags]:
        """Iterate towards solutions; return the final postures and which of them are solutions."""
        wanted = turn.at(share)
        missing = self._missing(q, wanted, turn.point)[0]
        for _ in range(iterations):
            missing, jacobian = self._missing(q, wanted, turn.point)
            if np.abs(missing).max(initial=0.0) < 1e-7:
                break
            gram = jacobian @ jacobian.transpose(0, 2, 1) + _DAMPING * np.eye(6)
            solution = np.linalg.solve(gram, missing[..., None])
            step = (jacobian.transpose(0, 2, 1) @ solution)[..., 0]
            longest = np.abs(step).max(axis=1, keepdims=True)
            q = q + step * np.minimum(1.0, 0.5 / np.maximum(longest, 1e-12))
            if clip:
                q = np.clip(q, self._lower, self._upper)
        missing = self._missing(q, wanted, turn.point)[0]
        return q, np.abs(missing).max(axis=1, initial=0.0) < 1e-5

    def _missing(self, q: Array, wanted: Array, point: Array) -> tuple[Array, Array]:
        rotation, here, jacobian = self.chain.poses(q)
        between = wanted @ rotation.transpose(0, 2, 1)
        vector = 0.5 * np.stack((
            between[:, 2, 1] - between[:, 1, 2], between[:, 0, 2] - between[:, 2, 0],
            between[:, 1, 0] - between[:, 0, 1]), axis=1)
        sine = np.linalg.norm(vector, axis=1)
        cosine = 0.5 * (np.trace(between, axis1=1, axis2=2) - 1.0)
        scale = np.arctan2(sine, cosine) / np.maximum(sine, 1e-12)
        return np.concatenate((point - here, vector * scale[:, None]), axis=1), jacobian

    def _within(self, q: Array, slack: float = 1e-9) -> Flags:
        inside: Flags = (q >= self._lower - slack) & (q <= self._upper + slack)
        return np.asarray(inside.all(axis=1))

    def _singular(self, q: Array) -> Array:
        if not len(q):
            return np.zeros(0)
        jacobian = self.chain.poses(q)[2].copy()
        jacobian[:, :3] /= self._length
        return np.asarray(np.linalg.svd(jacobian, compute_uv=False)[:, -1], dtype=np.float64)

    def _allowed(self, q: Array, margin: float) -> Array:
        q = q[self._within(q)]
        q = q[self._singular(q) >= margin * (1.0 - 1e-6)]
        free = [self._arm.checker.is_free(row) for row in q]
        return q[np.array(free, dtype=bool)] if len(q) else q


def _thinned(found: Array, known: Array) -> Array:
    """Return solutions without those close to another or to a known one."""
    kept = list(known)
    for q in found:
        if not kept or np.abs(np.array(kept) - q).max(axis=1).min() > _SAME:
            kept.append(q)
    return np.array(kept[len(known):]).reshape(-1, found.shape[1])
