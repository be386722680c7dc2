# SPDX-License-Identifier: Apache-2.0
"""Joint paths that hold the tool point while the tool turns.

The inverse kinematics stays on its branch, by Newton iterations from a nearby posture. The step of
a redundant arm is the quadratic programme

    min ½ |Δq − b|²  subject to  J Δq = error,  lower ≤ q + Δq ≤ upper

which satisfies position limits exactly and moves the null space towards b (Escande, Mansard,
Wieber, Hierarchical quadratic programming, IJRR 33(7), 2014, doi:10.1177/0278364914521306). The
solution of an arm without redundancy is unique; it is followed past limits too, so that a refusal
can state by how much.

``follow`` tracks the task from the start on one branch of the inverse kinematics, in steps as long
as accuracy, limits and singularities allow.

``search`` finds other paths of a redundant arm. At each share of the turn such an arm meets the
task in a whole set of postures. A front of them, spaced apart, is carried from share to share, and
the null space is explored from each. All moves are short and checked, so a path through the front
is a path of the arm, and an empty front shows that there is none, up to the spacing.

``smoothed`` and ``refined`` remove the corners of such a path and make it dense enough for a
controller.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum

import daqp
import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.leveling.model import LevelingTask
from robocal_ros.robot import CollisionChecker

_ITERATIONS = 8
_POINT_TOLERANCE, _TURN_TOLERANCE = 1e-8, 1e-8
_EQUAL, _BOUND = 5, 0
_SHORTEST = 1e-5
_GROWTH = 1.6
# Largest step towards a singularity, as a share of the smallest singular value.
_CAUTION = 0.5
# Distance from a limit at which the null-space bias sets in [rad].
_ZONE = 0.2


@dataclass(frozen=True)
class Bounds:
    """Bounds of the joint angles.

    Attributes:
        lower: Shape (n,) [rad].
        upper: Shape (n,) [rad].

    """

    lower: Array
    upper: Array

    def excess(self, q: Array) -> Array:
        """Return the distance of each joint outside the bounds, shape (n,) [rad]."""
        return np.maximum(np.maximum(self.lower - q, q - self.upper), 0.0)


@dataclass(frozen=True)
class Reached:
    """A posture that satisfies the task.

    Attributes:
        q: Joint angles, shape (n,) [rad].
        singular: Smallest singular value of the tool's Jacobian.

    """

    q: Array
    singular: float


def joint_step(
    jacobian: Array, error: Array, bias: Array | None = None, room: Bounds | None = None
) -> Array | None:
    """Return the joint step that removes the task error, nearest to a bias; None if infeasible.

    Args:
        jacobian: Shape (rows, n).
        error: Task error, shape (rows,) [m, rad].
        bias: Preferred step of a redundant arm, shape (n,) [rad]; None for none.
        room: Bounds of the step, which count for a redundant arm; None or infinite for none.

    """
    rows, n = jacobian.shape
    bias = np.zeros(n) if bias is None else bias
    if n <= rows or room is None or not np.isfinite((room.lower, room.upper)).any():
        return np.asarray(
            bias + np.linalg.lstsq(jacobian, error - jacobian @ bias, rcond=None)[0])
    upper = np.concatenate((room.upper, error))
    lower = np.concatenate((room.lower, error))
    sense = np.array([_BOUND] * n + [_EQUAL] * rows, dtype=np.int32)
    found, _, flag, _ = daqp.solve(
        np.eye(n), -bias, np.ascontiguousarray(jacobian), upper, lower, sense)
    return np.array(found) if flag == 1 else None


def converge(
    task: LevelingTask, q: Array, share: float, *, bias: Array | None = None,
    bounds: Bounds | None = None,
) -> Reached | None:
    """Return the posture at a share of the turn, by Newton iterations from another posture.

    Args:
        task: The task.
        q: Initial posture, shape (n,) [rad].
        share: Share of the turn.
        bias: Null-space step of the first iteration, shape (n,) [rad]; None for none.
        bounds: Bounds of a redundant arm; None for none.

    Returns:
        None if the iterations do not converge.

    """
    first_step = np.inf
    for iteration in range(_ITERATIONS):
        error, jacobian, full = task.linearised(q, share)
        if (np.abs(error[:3]).max() < _POINT_TOLERANCE
                and np.abs(error[3:]).max() < _TURN_TOLERANCE
                and not (iteration == 0 and bias is not None)):
            return Reached(q, task.tool.least_singular_value(full))
        room = None if bounds is None else Bounds(bounds.lower - q, bounds.upper - q)
        step = joint_step(jacobian, error, bias if iteration == 0 else None, room)
        if step is None:
            return None
        length = float(np.abs(step).max())
        # Corrections that do not shrink diverge or lead to another branch.
        if iteration and length > 0.5 * first_step:
            return None
        first_step = length
        q = q + step
    return None


class Obstacle(Enum):
    """Reasons why a path ends early."""

    LIMIT = 'position limit'
    COLLISION = 'collision'
    SINGULARITY = 'singularity'
    FREEDOM = 'missing freedom'


@dataclass(frozen=True)
class PathRules:
    """Constraints of a path.

    Attributes:
        bounds: Bounds of the joint angles.
        max_step: Largest joint step, and turn, between neighbouring points [rad].
        max_drift: Largest drift of the tool point on straight joint lines between points [m].
        singularity_margin: Smallest allowed singular value; see ``Tool``.
        checker: Collision geometry; None for no check.

    """

    bounds: Bounds
    max_step: float
    max_drift: float
    singularity_margin: float
    checker: CollisionChecker | None = None


@dataclass(frozen=True)
class JointPath:
    """Postures along the turn, as far as they lead.

    Attributes:
        shares: Shares of the turn, ascending from 0, shape (k,).
        positions: Postures, shape (k, n) [rad].
        obstacle: Reason why it ends early; None if it is complete.
        touching: Clause on the two bodies that would be too near; empty for none.
        cut_short: Whether the search ran out of time.

    """

    shares: Array
    positions: Array
    obstacle: Obstacle | None = None
    touching: str = ''
    cut_short: bool = False

    @property
    def share(self) -> float:
        """Share of the turn that is reached."""
        return float(self.shares[-1])

    @property
    def travel(self) -> float:
        """Sum of the travel of all joints [rad]."""
        return float(np.abs(np.diff(self.positions, axis=0)).sum())


class _Checks:
    """Singularity and collision checks along a path; a singular start is allowed.

    Attributes:
        start: The start of the path.

    """

    def __init__(self, task: LevelingTask, rules: PathRules) -> None:
        jacobian = task.linearised(task.start, 0.0)[2]
        self.start = Reached(task.start, task.tool.least_singular_value(jacobian))
        self._rules = rules
        self._threshold = min(rules.singularity_margin, self.start.singular)

    def tighten(self, reached: Reached) -> None:
        """Require the singular value of this posture from now on, up to the full margin."""
        self._threshold = min(
            self._rules.singularity_margin, max(self._threshold, reached.singular))

    def obstacle(self, reached: Reached) -> tuple[Obstacle | None, str]:
        """Return why a posture is too close to a singularity or a contact, and a clause on it."""
        if reached.singular < self._threshold * (1.0 - 1e-6):
            return Obstacle.SINGULARITY, ''
        checker = self._rules.checker
        touching = (checker.touching(reached.q) or '') if checker is not None else ''
        return Obstacle.COLLISION if touching else None, touching


def follow(task: LevelingTask, rules: PathRules) -> JointPath:
    """Follow the task from its start as far as possible.

    A redundant arm is kept within its bounds, and moves away from them where it can; those of
    others are only checked.

    Args:
        task: The task.
        rules: Constraints.

    Returns:
        The path, complete or with the obstacle that ended it.

    """
    checks, bounds = _Checks(task, rules), rules.bounds
    now, shares, positions = checks.start, [0.0], [task.start]
    step = longest = min(1.0, rules.max_step / max(task.target.angle, 1e-9))
    obstacle: Obstacle | None = None
    touching = ''
    while shares[-1] < 1.0:
        reached: Reached | None = None
        shrink = 0.0
        while shrink < 1.0 and step > _SHORTEST:
            share = min(1.0, shares[-1] + step)
            # A shorter step has less of the null-space step.
            bias = step * task.target.angle * _away(bounds, now.q) if task.redundancy > 0 else None
            reached = converge(task, now.q, share, bias=bias, bounds=bounds)
            shrink = 0.4 if reached is None else _shrink(task, rules, now, reached)
            step = min(longest, step * min(_GROWTH, shrink))
        if reached is None or shrink < 1.0:
            near = np.minimum(now.q - bounds.lower, bounds.upper - now.q).min() < rules.max_step
            obstacle = (Obstacle.FREEDOM if task.redundancy < 0 else
                        Obstacle.LIMIT if task.redundancy > 0 and near else
                        Obstacle.SINGULARITY)
        elif bounds.excess(reached.q).any():
            obstacle = Obstacle.LIMIT
        else:
            obstacle, touching = checks.obstacle(reached)
        if reached is None or obstacle is not None:
            break
        now = reached
        checks.tighten(reached)
        shares.append(share)
        positions.append(reached.q)
    return JointPath(np.array(shares), np.array(positions), obstacle, touching)


def _away(bounds: Bounds, q: Array) -> Array:
    """Return the joint step per turn of a redundant arm away from nearby limits, shape (n,)."""
    into_lower = np.clip(1.0 - (q - bounds.lower) / _ZONE, 0.0, 1.0)
    into_upper = np.clip(1.0 - (bounds.upper - q) / _ZONE, 0.0, 1.0)
    return 0.5 * (into_lower - into_upper)


def _shrink(task: LevelingTask, rules: PathRules, now: Reached, reached: Reached) -> float:
    """Return the factor of the step length; at least 1 if the step is acceptable."""
    length = float(np.abs(reached.q - now.q).max())
    near = min(reached.singular, now.singular)
    allowed = min(rules.max_step, max(_CAUTION * near, _CAUTION * rules.singularity_margin))
    by_length = 0.95 * allowed / max(length, 1e-12)
    drift = task.drift(0.5 * (reached.q + now.q))
    # The sag of a chord grows with the square of its length.
    by_drift = 0.95 * float(np.sqrt(rules.max_drift / max(drift, 1e-15)))
    shrink = min(by_length, by_drift)
    return shrink if length <= allowed and drift <= rules.max_drift else max(shrink, 0.2)


_SPACING = 0.12
_NEAR = 0.6
_LAYER = 0.1
_HALVINGS = 3
_LONGEST = 3.0


@dataclass(eq=False)
class _State:
    """A posture of the front, with its predecessor and the travel to it."""

    share: float
    q: Array
    parent: _State | None = None
    cost: float = 0.0

    def to(self, share: float, q: Array) -> _State:
        """Return the state of another posture that is reached from this one."""
        return _State(share, q, self, self.cost + float(np.abs(q - self.q).sum()))


def search(task: LevelingTask, rules: PathRules, patience: float) -> JointPath:
    """Search for a path through the null space.

    Args:
        task: The task.
        rules: Constraints.
        patience: Longest search [s].

    Returns:
        A complete path with corners, or one that leads as far as any posture does.

    """
    return _Front(task, rules, time.monotonic() + patience).run()


class _Front:
    def __init__(self, task: LevelingTask, rules: PathRules, deadline: float) -> None:
        self._task, self._rules, self._deadline = task, rules, deadline
        self._checks = _Checks(task, rules)
        self._blocked = Obstacle.LIMIT
        self._touching = ''

    def run(self) -> JointPath:
        layers = max(2, int(np.ceil(self._task.target.angle / _LAYER)))
        front = self._spread([_State(0.0, self._task.start)])
        deepest = front[0]
        for share in np.arange(1, layers + 1) / layers:
            front = self._spread(self._advance(front, float(share)))
            if not front:
                return self._path(deepest, self._blocked)
            deepest = min(front, key=lambda state: state.cost)
        return self._path(deepest, None)

    def _path(self, last: _State, obstacle: Obstacle | None) -> JointPath:
        chain = [last]
        while chain[0].parent is not None:
            chain.insert(0, chain[0].parent)
        return JointPath(np.array([state.share for state in chain]),
                         np.array([state.q for state in chain]), obstacle,
                         touching=self._touching, cut_short=time.monotonic() > self._deadline)

    def _advance(self, front: list[_State], share: float) -> list[_State]:
        """Carry every posture of the front to the next share."""
        carried: list[_State] = []
        for state in sorted(front, key=lambda state: state.cost):
            if time.monotonic() > self._deadline:
                break
            q = self._carried(state, share)
            if q is not None and not _known(q, carried):
                carried.append(state.to(share, q))
        return carried

    def _carried(self, state: _State, share: float) -> Array | None:
        """Follow one posture from its share to another, in smaller steps if necessary."""
        for halving in range(_HALVINGS):
            q: Array | None = state.q
            for part in np.linspace(state.share, share, 2**halving + 1)[1:]:
                if q is not None:
                    q = self._moved(q, q, float(part))
            if q is not None:
                return q
        return None

    def _moved(self, start: Array, guess: Array, share: float) -> Array | None:
        """Return the posture at a share near a guess; None if it violates a constraint."""
        found = converge(self._task, guess, share, bounds=self._rules.bounds)
        if found is None:
            self._blocked = Obstacle.LIMIT
            return None
        if np.abs(found.q - start).max() > _LONGEST * _SPACING:
            return None
        obstacle, touching = self._checks.obstacle(found)
        if obstacle is None:
            return found.q
        self._blocked, self._touching = obstacle, touching or self._touching
        return None

    def _spread(self, layer: list[_State]) -> list[_State]:
        """Explore the null space from all postures of a share."""
        waiting, bounds = list(layer), self._rules.bounds
        while waiting and time.monotonic() < self._deadline:
            state = waiting.pop(0)
            jacobian = self._task.linearised(state.q, state.share)[1]
            null_space = np.linalg.svd(jacobian)[2][len(jacobian):]
            null_space /= np.abs(null_space).max(axis=1, keepdims=True)
            for step in _SPACING * null_space:
                for move in (step, -step):
                    guess = np.clip(state.q + move, bounds.lower, bounds.upper)
                    if _known(guess, layer):
                        continue
                    q = self._moved(state.q, guess, state.share)
                    if q is not None and not _known(q, layer):
                        layer.append(state.to(state.share, q))
                        waiting.append(layer[-1])
        return layer


def _known(q: Array, layer: list[_State]) -> bool:
    """Return whether a posture is near one of a layer."""
    others = np.array([state.q for state in layer]).reshape(-1, len(q))
    return bool((np.abs(others - q).max(axis=1) < _NEAR * _SPACING).any())


_SWEEPS = 30
_DEEPEST = 8


def smoothed(task: LevelingTask, rules: PathRules, path: JointPath) -> JointPath | None:
    """Return a path without the corners of a search; None if it cannot be refined.

    Every interior point is moved repeatedly to the middle of its neighbours, projected onto the
    task, where the constraints allow it.

    Args:
        task: The task.
        rules: Constraints.
        path: A complete path of a redundant arm.

    """
    even = refined(task, rules, path, np.inf)
    if even is None:
        return None
    checks = _Checks(task, rules)
    shares, positions = even.shares.copy(), even.positions.copy()
    for _ in range(_SWEEPS):
        for row in range(1, len(shares) - 1):
            share = 0.5 * (shares[row - 1] + shares[row + 1])
            middle = 0.5 * (positions[row - 1] + positions[row + 1])
            found = converge(task, middle, share, bounds=rules.bounds)
            if found is not None and checks.obstacle(found)[0] is None:
                shares[row], positions[row] = share, found.q
    return refined(task, rules, JointPath(shares, positions), rules.max_drift)


def refined(
    task: LevelingTask, rules: PathRules, path: JointPath, max_drift: float
) -> JointPath | None:
    """Return a path with points inserted until steps and drift are small enough.

    Args:
        task: The task.
        rules: Constraints.
        path: A complete path.
        max_drift: Largest drift of the tool point between points [m].

    Returns:
        None if a point between two others violates a constraint.

    """
    checks = _Checks(task, rules)
    shares, positions = [float(path.shares[0])], [path.positions[0]]

    def connect(share: float, q: Array, depth: int) -> bool:
        """Append a point, and before it as many as are needed."""
        middle = 0.5 * (positions[-1] + q)
        if np.abs(q - positions[-1]).max() <= rules.max_step and task.drift(middle) <= max_drift:
            shares.append(share)
            positions.append(q)
            return True
        half = 0.5 * (shares[-1] + share)
        between = converge(task, middle, half, bounds=rules.bounds)
        if between is None or depth > _DEEPEST or checks.obstacle(between)[0] is not None:
            return False
        return connect(half, between.q, depth + 1) and connect(share, q, depth + 1)

    for share, q in zip(path.shares[1:].tolist(), path.positions[1:], strict=True):
        if not connect(share, q, 0):
            return None
    return JointPath(np.array(shares), np.array(positions))
