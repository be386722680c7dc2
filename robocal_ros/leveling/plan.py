# SPDX-License-Identifier: Apache-2.0
"""Planning of a checked leveling motion from a posture.

The inverse kinematics stays on its branch, by Newton iterations from a nearby posture. The step of
a redundant arm is the quadratic programme

    min ½ |Δq − b|²  subject to  J Δq = error,  lower ≤ q + Δq ≤ upper

which satisfies position limits exactly and moves the null space towards b (Escande, Mansard,
Wieber, Hierarchical quadratic programming, IJRR 33(7), 2014, doi:10.1177/0278364914521306). The
solution of an arm without redundancy is unique; it is followed past limits too, so that a refusal
can state by how much.

The postures of a path are joined by a cubic spline over the joint travel, measured in seconds at
full speed. Time follows one quintic from rest to rest, so that speed and acceleration are
continuous and zero at both ends. (Time-optimal parameterisation, such as TOPP-RA's, is faster, but
its acceleration jumps between limits, which spills the load of a level tool.)
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

import daqp
import numpy as np
import scipy

from robocal_ros.arrays import Array
from robocal_ros.errors import MotionError
from robocal_ros.leveling.model import LevelingTask, LevelTarget, Tool, level_targets, tilt
from robocal_ros.leveling.parameters import LevelingParameters
from robocal_ros.robot import CollisionChecker, MotionLimits, Trajectory

_ITERATIONS = 8
_TOLERANCE = 1e-8
_EQUAL, _BOUND = 5, 0
_SHORTEST = 1e-5
_GROWTH = 1.6
# Largest step towards a singularity, as a share of the smallest singular value.
_CAUTION = 0.5
# Distance from a limit at which the null-space bias sets in [rad].
_ZONE = 0.2
# Share of max_drift for straight joint lines between points; the rest is for tracking errors.
_SHARE_OF_DRIFT = 0.4
# Of a search: distance of postures in the null space, that within which two are alike as a share
# of it, turn between two sets [rad], smaller steps that are tried, and longest move in distances.
_SPACING, _NEAR = 0.12, 0.6
_LAYER = 0.1
_HALVINGS = 3
_LONGEST = 3.0
# Of smoothing and refinement.
_SWEEPS, _DEEPEST = 30, 8


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

    def about(self, q: Array) -> Bounds:
        """Return the bounds of a step from a posture."""
        return Bounds(self.lower - q, self.upper - q)

    def inward(self, q: Array) -> Array:
        """Return the joint step per turn away from nearby bounds, shape (n,) [rad]."""
        into_lower = np.clip(1.0 - (q - self.lower) / _ZONE, 0.0, 1.0)
        into_upper = np.clip(1.0 - (self.upper - q) / _ZONE, 0.0, 1.0)
        return 0.5 * (into_lower - into_upper)


def joint_step(
    jacobian: Array, error: Array, room: Bounds, bias: Array | None = None
) -> Array | None:
    """Return the joint step that removes the task error, nearest to a bias; None if infeasible.

    Args:
        jacobian: Shape (rows, n).
        error: Task error, shape (rows,) [m, rad].
        room: Bounds of the step, which count for a redundant arm; infinite for none.
        bias: Preferred step of a redundant arm, shape (n,) [rad]; None for none.

    """
    rows, n = jacobian.shape
    bias = np.zeros(n) if bias is None else bias
    if n <= rows or not np.isfinite((room.lower, room.upper)).any():
        return np.asarray(bias + np.linalg.lstsq(jacobian, error - jacobian @ bias, rcond=None)[0])
    upper = np.concatenate((room.upper, error))
    lower = np.concatenate((room.lower, error))
    sense = np.array([_BOUND] * n + [_EQUAL] * rows, dtype=np.int32)
    found, _, flag, _ = daqp.solve(
        np.eye(n), -bias, np.ascontiguousarray(jacobian), upper, lower, sense)
    return np.array(found) if flag == 1 else None


@dataclass(frozen=True)
class Reached:
    """A posture that satisfies the task.

    Attributes:
        q: Joint angles, shape (n,) [rad].
        singular: Smallest singular value of the tool's Jacobian.

    """

    q: Array
    singular: float


class Obstacle(Enum):
    """Reasons why a path ends early."""

    LIMIT = 'position limit'
    COLLISION = 'collision'
    SINGULARITY = 'singularity'
    FREEDOM = 'missing freedom'


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
    def posture(self) -> Array:
        """Last posture, shape (n,) [rad]."""
        return self.positions[-1]

    @property
    def travel(self) -> float:
        """Sum of the travel of all joints [rad]."""
        return float(np.abs(np.diff(self.positions, axis=0)).sum())

    def to(self, share: float, q: Array) -> JointPath:
        """Return the path with one more posture, shape (n,) [rad]."""
        return JointPath(np.append(self.shares, share), np.vstack((self.positions, q)))


class Paths:
    """Joint paths that hold the tool point while the tool turns.

    ``follow`` tracks the task from the start on one branch of the inverse kinematics, in steps as
    long as accuracy, limits and singularities allow. ``Search`` finds other paths of a redundant
    arm; ``smoothed`` and ``refined`` remove the corners of such a path and make it dense enough
    for a controller.

    Attributes:
        task: The task.
        bounds: Bounds of the joint angles.
        values: For steps, drift and distance from singularities; a singular start is allowed.
        checker: Collision geometry; None for no check.

    """

    def __init__(
        self, task: LevelingTask, bounds: Bounds, values: LevelingParameters,
        checker: CollisionChecker | None = None,
    ) -> None:
        """Initialise; arguments as the attributes."""
        self.task, self.bounds, self.values, self.checker = task, bounds, values, checker
        self._drift = _SHARE_OF_DRIFT * values.max_drift
        jacobian = task.linearised(task.start, 0.0)[2]
        self._start = Reached(task.start, task.tool.least_singular_value(jacobian))
        self._threshold = min(values.singularity_margin, self._start.singular)

    def reached(self, q: Array, share: float, bias: Array | None = None) -> Reached | None:
        """Return the posture at a share of the turn, by Newton iterations from another posture.

        Args:
            q: Initial posture, shape (n,) [rad].
            share: Share of the turn.
            bias: Null-space step of the first iteration, shape (n,) [rad]; None for none.

        Returns:
            None if the iterations do not converge.

        """
        last = np.inf
        for iteration in range(_ITERATIONS):
            error, jacobian, full = self.task.linearised(q, share)
            if np.abs(error).max() < _TOLERANCE and (iteration or bias is None):
                return Reached(q, self.task.tool.least_singular_value(full))
            step = joint_step(jacobian, error, self.bounds.about(q), None if iteration else bias)
            if step is None:
                return None
            length = float(np.abs(step).max())
            # Corrections that do not shrink diverge or lead to another branch.
            if iteration and length > 0.5 * last:
                return None
            last = length
            q = q + step
        return None

    def obstacle(
        self, reached: Reached, threshold: float | None = None
    ) -> tuple[Obstacle | None, str]:
        """Return why a posture is too close to a singularity or a contact, and a clause on it.

        Args:
            reached: The posture.
            threshold: Smallest singular value; by default the margin, or that of the start.

        """
        least = self._threshold if threshold is None else threshold
        if reached.singular < least * (1.0 - 1e-6):
            return Obstacle.SINGULARITY, ''
        touching = (self.checker.touching(reached.q) or '') if self.checker is not None else ''
        return Obstacle.COLLISION if touching else None, touching

    def follow(self) -> JointPath:
        """Follow the task from its start as far as possible.

        A redundant arm is kept within its bounds, and moves away from them where it can; those of
        others are only checked.

        Returns:
            The path, complete or with the obstacle that ended it.

        """
        task, bounds, values = self.task, self.bounds, self.values
        now, threshold = self._start, self._threshold
        shares, positions = [0.0], [task.start]
        step = longest = min(1.0, values.max_step / max(task.target.angle, 1e-9))
        obstacle: Obstacle | None = None
        touching = ''
        while shares[-1] < 1.0:
            found: Reached | None = None
            shrink = 0.0
            while shrink < 1.0 and step > _SHORTEST:
                share = min(1.0, shares[-1] + step)
                # A shorter step has less of the null-space step.
                found = self.reached(now.q, share, (
                    step * task.target.angle * bounds.inward(now.q) if task.redundancy > 0
                    else None))
                shrink = 0.4 if found is None else self._shrink(now, found)
                step = min(longest, step * min(_GROWTH, shrink))
            if found is None or shrink < 1.0:
                room = bounds.about(now.q)
                near = np.minimum(-room.lower, room.upper).min() < values.max_step
                obstacle = (Obstacle.FREEDOM if task.redundancy < 0 else
                            Obstacle.LIMIT if task.redundancy > 0 and near else
                            Obstacle.SINGULARITY)
            elif bounds.excess(found.q).any():
                obstacle = Obstacle.LIMIT
            else:
                obstacle, touching = self.obstacle(found, threshold)
            if found is None or obstacle is not None:
                break
            now = found
            # Once the arm is clear of a singular start, it stays clear, up to the full margin.
            threshold = min(values.singularity_margin, max(threshold, found.singular))
            shares.append(share)
            positions.append(found.q)
        return JointPath(np.array(shares), np.array(positions), obstacle, touching)

    def _shrink(self, now: Reached, reached: Reached) -> float:
        """Return the factor of the step length; at least 1 if the step is acceptable."""
        longest = self.values.max_step
        length = float(np.abs(reached.q - now.q).max())
        near = max(min(reached.singular, now.singular), self.values.singularity_margin)
        allowed = min(longest, _CAUTION * near)
        by_length = 0.95 * allowed / max(length, 1e-12)
        drift = self.task.drift(0.5 * (reached.q + now.q))
        # The sag of a chord grows with the square of its length.
        by_drift = 0.95 * float(np.sqrt(self._drift / max(drift, 1e-15)))
        shrink = min(by_length, by_drift)
        return shrink if length <= allowed and drift <= self._drift else max(shrink, 0.2)

    def smoothed(self, path: JointPath) -> JointPath | None:
        """Return a path without the corners of a search; None if it cannot be refined.

        Every interior point is moved repeatedly to the middle of its neighbours, projected onto
        the task, where the constraints allow it.

        Args:
            path: A complete path of a redundant arm.

        """
        even = self.refined(path, np.inf)
        if even is None:
            return None
        shares, positions = even.shares.copy(), even.positions.copy()
        for _ in range(_SWEEPS):
            for row in range(1, len(shares) - 1):
                share = 0.5 * (shares[row - 1] + shares[row + 1])
                found = self.reached(0.5 * (positions[row - 1] + positions[row + 1]), share)
                if found is not None and self.obstacle(found)[0] is None:
                    shares[row], positions[row] = share, found.q
        return self.refined(JointPath(shares, positions))

    def refined(self, path: JointPath, max_drift: float | None = None) -> JointPath | None:
        """Return a path with points inserted until steps and drift are small enough.

        Args:
            path: A complete path.
            max_drift: Largest drift of the tool point between points [m]; by default that of the
                parameters.

        Returns:
            None if a point between two others violates a constraint.

        """
        allowed = self._drift if max_drift is None else max_drift
        shares, positions = [float(path.shares[0])], [path.positions[0]]

        def connect(share: float, q: Array, depth: int) -> bool:
            """Append a point, and before it as many as are needed."""
            middle = 0.5 * (positions[-1] + q)
            if (np.abs(q - positions[-1]).max() <= self.values.max_step
                    and self.task.drift(middle) <= allowed):
                shares.append(share)
                positions.append(q)
                return True
            half = 0.5 * (shares[-1] + share)
            between = self.reached(middle, half)
            if between is None or depth > _DEEPEST or self.obstacle(between)[0] is not None:
                return False
            return connect(half, between.q, depth + 1) and connect(share, q, depth + 1)

        for share, q in zip(path.shares[1:].tolist(), path.positions[1:], strict=True):
            if not connect(share, q, 0):
                return None
        return JointPath(np.array(shares), np.array(positions))


@dataclass
class Search:
    """Search for a path through the null space of a redundant arm.

    At each share of the turn such an arm meets the task in a whole set of postures. A front of
    paths to them, spaced apart, is carried from share to share, and the null space is explored
    from each. All moves are short and checked, and an empty front shows that there is no path, up
    to the spacing.

    Attributes:
        paths: The task and its constraints.
        deadline: Monotonic time of its end [s].
        blocked: Obstacle that was met last.
        touching: Clause on the last contact.

    """

    paths: Paths
    deadline: float
    blocked: Obstacle = Obstacle.LIMIT
    touching: str = ''

    def run(self) -> JointPath:
        """Return a complete path with corners, or one that leads as far as any posture does."""
        task = self.paths.task
        layers = max(2, int(np.ceil(task.target.angle / _LAYER)))
        front = self._spread([JointPath(np.zeros(1), task.start[None])])
        best = front[0]
        for share in np.arange(1, layers + 1) / layers:
            front = self._spread(self._advance(front, float(share)))
            if not front:
                break
            best = min(front, key=lambda path: path.travel)
        return replace(best, obstacle=None if front else self.blocked, touching=self.touching,
                       cut_short=time.monotonic() > self.deadline)

    def _advance(self, front: list[JointPath], share: float) -> list[JointPath]:
        """Carry every path of the front to the next share."""
        carried: list[JointPath] = []
        for path in sorted(front, key=lambda path: path.travel):
            if time.monotonic() > self.deadline:
                break
            q = self._carried(path, share)
            if q is not None and not _known(q, carried):
                carried.append(path.to(share, q))
        return carried

    def _carried(self, path: JointPath, share: float) -> Array | None:
        """Follow the end of a path to another share, in smaller steps if necessary."""
        for halving in range(_HALVINGS):
            q: Array | None = path.posture
            for part in np.linspace(path.share, share, 2**halving + 1)[1:]:
                if q is not None:
                    q = self._moved(q, q, float(part))
            if q is not None:
                return q
        return None

    def _moved(self, start: Array, guess: Array, share: float) -> Array | None:
        """Return the posture at a share near a guess; None if it violates a constraint."""
        found = self.paths.reached(guess, share)
        if found is None:
            self.blocked = Obstacle.LIMIT
            return None
        if np.abs(found.q - start).max() > _LONGEST * _SPACING:
            return None
        obstacle, touching = self.paths.obstacle(found)
        if obstacle is None:
            return found.q
        self.blocked, self.touching = obstacle, touching or self.touching
        return None

    def _spread(self, layer: list[JointPath]) -> list[JointPath]:
        """Explore the null space from the ends of all paths to a share."""
        waiting, bounds = list(layer), self.paths.bounds
        while waiting and time.monotonic() < self.deadline:
            path = waiting.pop(0)
            jacobian = self.paths.task.linearised(path.posture, path.share)[1]
            null_space = np.linalg.svd(jacobian)[2][len(jacobian):]
            null_space /= np.abs(null_space).max(axis=1, keepdims=True)
            for step in _SPACING * null_space:
                for move in (step, -step):
                    guess = np.clip(path.posture + move, bounds.lower, bounds.upper)
                    if _known(guess, layer):
                        continue
                    q = self._moved(path.posture, guess, path.share)
                    if q is not None and not _known(q, layer):
                        layer.append(path.to(path.share, q))
                        waiting.append(layer[-1])
        return layer


def _known(q: Array, layer: list[JointPath]) -> bool:
    """Return whether a posture is near the end of a path."""
    others = np.array([path.posture for path in layer]).reshape(-1, len(q))
    return bool((np.abs(others - q).max(axis=1) < _NEAR * _SPACING).any())


# ------------------------------------------------------------------------------- timing

# Share of the path by relative time.
_QUINTIC = np.polynomial.Polynomial([0.0, 0.0, 0.0, 10.0, -15.0, 6.0])
_SAMPLES = 1000
# Factor of the duration that allows for interpolation between knots.
_RESERVE = 1.02
_MIN_DURATION = 0.2
# Smallest time between knots [s].
_SHORTEST_KNOT = 0.002


def timed(positions: Array, max_velocity: Array, max_acceleration: Array) -> Trajectory:
    """Return the fastest motion along postures within speed and acceleration limits.

    Args:
        positions: Distinct postures in order, shape (k, n) [rad].
        max_velocity: Speed limits, shape (n,) [rad/s].
        max_acceleration: Acceleration limits, shape (n,) [rad/s²].

    """
    steps = np.linalg.norm(np.diff(positions, axis=0) / max_velocity, axis=1)
    travel = np.concatenate(([0.0], np.cumsum(steps)))
    spline = scipy.interpolate.CubicSpline(travel / travel[-1], positions)
    _, velocity, acceleration = _along(spline, np.linspace(0.0, 1.0, _SAMPLES))
    duration = max(
        _RESERVE * float((np.abs(velocity) / max_velocity).max()),
        _RESERVE * float(np.sqrt((np.abs(acceleration) / max_acceleration).max())), _MIN_DURATION)
    # The relative times at which the quintic, exactly 0 and 1 at its ends, reaches the knots.
    fine = np.linspace(0.0, 1.0, 20 * _SAMPLES)
    time = np.interp(spline.x, _QUINTIC(fine), fine)
    keep = _spaced(time * duration, _SHORTEST_KNOT)
    position, velocity, acceleration = _along(spline, time[keep])
    position[0], position[-1] = positions[0], positions[-1]
    return Trajectory(time[keep] * duration, position, velocity / duration,
                      acceleration / duration**2)


def _along(spline: scipy.interpolate.CubicSpline, time: Array) -> tuple[Array, Array, Array]:
    """Return position and its derivatives by relative time along a spline."""
    share, speed, change = (_QUINTIC.deriv(order)(time) for order in range(3))
    speed, change = speed[:, None], change[:, None]
    slope, bend = spline(share, 1), spline(share, 2)
    return spline(share), slope * speed, bend * speed**2 + slope * change


def _spaced(time: Array, shortest: float) -> list[int]:
    """Return the rows of times that are not too close, with the first and last row."""
    keep = [0]
    for row in range(1, len(time) - 1):
        if time[row] - time[keep[-1]] >= shortest and time[-1] - time[row] >= shortest:
            keep.append(row)
    return [*keep, len(time) - 1]


# ------------------------------------------------------------------------------- plans

# Tolerated excess of a position limit at the start, for encoder noise [rad].
_START_NOISE = 1e-3
# Distance of an arm with more than six joints from its limits, where others may take over; more
# than an arm overshoots its goal [rad].
_LIMIT_MARGIN = 0.002


@dataclass(frozen=True)
class LevelPlan:
    """Plan of a leveling motion, or the finding that the tool is level.

    Attributes:
        tilt: Tilt of the tool at the start [rad].
        task: The task; None if the tool is level already.
        path: The postures; None if the tool is level already.
        trajectory: The motion; None if the tool is level already.
        note: Explanation of the choice for the user; empty for none.

    """

    tilt: float
    task: LevelingTask | None = None
    path: JointPath | None = None
    trajectory: Trajectory | None = None
    note: str = ''


@dataclass(frozen=True, eq=False)
class LevelingPlanner:
    """Plans leveling motions of one arm.

    Attributes:
        tool: Forward kinematics of the tool.
        axis: The reference's z axis in the root frame, shape (3,).
        limits: Limits of the motion.
        values: The parameters.
        checker: Collision geometry; None for no check.

    """

    tool: Tool
    axis: Array
    limits: MotionLimits
    values: LevelingParameters
    checker: CollisionChecker | None = None

    def plan(self, start: Array) -> LevelPlan:
        """Plan the motion from a posture.

        Of several equally near targets, the one with the least joint travel is selected.

        Args:
            start: Current posture, shape (n,) [rad].

        Raises:
            LevelingRefusal: If there is no path; with the reason.
            MotionError: If the arm is outside its limits or in contact.

        """
        start = self._checked_start(start)
        values = self.values
        rotation = self.tool.pose(start)[0]
        before = tilt(rotation, self.axis, values.direction)
        if before <= values.tolerance:
            return LevelPlan(before)
        plans, refusals = [], []
        for target in level_targets(rotation, self.axis, heading=values.heading,
                                    direction=values.direction):
            try:
                plans.append(self._planned(before, start, target))
            except LevelingRefusal as refusal:
                refusals.append(refusal)
        if not plans:
            raise max(refusals, key=lambda refusal: refusal.share)
        return min(plans, key=lambda plan: plan.path.travel if plan.path else 0.0)

    def _checked_start(self, start: Array) -> Array:
        """Return the start, clipped to limits that it exceeds by noise."""
        inside = np.clip(start, self.limits.lower, self.limits.upper)
        excess = np.abs(start - inside)
        joint = int(np.argmax(excess))
        if excess[joint] > _START_NOISE:
            raise MotionError(
                f"Joint '{self.limits.joint_names[joint]}' is at {start[joint]:.4f} rad, "
                f'{excess[joint]:.4f} rad past its limit of {inside[joint]:.4f} rad. The arm was '
                'not moved; jog the joint back.')
        if self.checker is not None and (contact := self.checker.touching(inside)):
            raise MotionError(
                f'In the current posture {contact}. The arm was not moved; move it clear by hand, '
                'or correct the collision geometry or clearance.')
        return inside

    def _planned(self, before: float, start: Array, target: LevelTarget) -> LevelPlan:
        """Plan the turn to one target; raises LevelingRefusal."""
        task = LevelingTask(self.tool, start, target, self.axis,
                            free_heading=self.values.heading == 'free')
        limits = self.limits
        margin = np.minimum(_LIMIT_MARGIN if task.redundancy > 0 else 0.0,
                            0.5 * (limits.upper - limits.lower))
        paths = Paths(task, Bounds(np.minimum(limits.lower + margin, start),
                                   np.maximum(limits.upper - margin, start)),
                      self.values, self.checker)
        violation, share = '', 0.0
        for path in self._found(paths):
            if path.obstacle is not None:
                raise refusal(paths, path)
            trajectory = timed(path.positions, limits.velocity, limits.acceleration)
            violation, share = self._violation(task, trajectory), path.share
            if not violation:
                return LevelPlan(before, task, path, trajectory, target.note)
        raise LevelingRefusal(Obstacle.LIMIT, share, violation)

    def _found(self, paths: Paths) -> Iterator[JointPath]:
        """Yield complete paths, the best first, or last an incomplete one."""
        direct = paths.follow()
        if paths.task.redundancy <= 0:
            yield direct
            return
        if direct.obstacle is None:
            yield direct
            if (even := paths.smoothed(direct)) is not None:
                yield even
        found = Search(paths, time.monotonic() + self.values.search_time).run()
        if found.obstacle is not None:
            furthest = max(found, direct, key=lambda path: path.share)
            yield replace(furthest, cut_short=found.cut_short)
            return
        for way in (paths.smoothed, paths.refined):
            if (even := way(found)) is not None:
                yield even

    def _violation(self, task: LevelingTask, trajectory: Trajectory) -> str:
        """Return the constraint that a motion violates, also between its points, or nothing."""
        try:
            self.limits.check(trajectory)
        except MotionError as error:
            return str(error)
        positions = trajectory.sample(trajectory.dense())[0]
        middles = 0.5 * (trajectory.position[1:] + trajectory.position[:-1])
        drift = max(float(np.linalg.norm(self.tool.poses(part)[1] - task.point, axis=1).max())
                    for part in (positions, middles))
        if drift > self.values.max_drift:
            return (f'The tool point would drift {1e3 * drift:.2f} mm; max_drift is '
                    f'{1e3 * self.values.max_drift:.2f} mm.')
        contact = None if self.checker is None else self.checker.first_contact(positions)
        return f'During the motion {contact}.' if contact else ''


# ----------------------------------------------------------------------------- refusals

# Cosine of the angle above which two directions count as parallel.
_ALIGNED = 0.99


class LevelingRefusal(MotionError):
    """Leveling is refused because there is no path.

    Attributes:
        obstacle: Reason why the path ends early.
        share: Share of the turn that can be reached.

    """

    def __init__(self, obstacle: Obstacle, share: float, sentence: str) -> None:
        super().__init__(f'{sentence} The arm was not moved.')
        self.obstacle, self.share = obstacle, share


def refusal(paths: Paths, path: JointPath) -> LevelingRefusal:
    """Return the refusal of an incomplete path.

    Args:
        paths: The task and its constraints.
        path: The path that leads furthest, with its obstacle.

    """
    task, bounds = paths.task, paths.bounds
    unlimited = np.full(task.tool.robot.n, np.inf)
    free = Paths(task, Bounds(-unlimited, unlimited), paths.values).follow()
    past = next((row for row, q in enumerate(free.positions) if bounds.excess(q).any()), None)
    obstacle = path.obstacle or Obstacle.LIMIT
    reach = f'{100.0 * path.share:.0f} % of the turn'
    if obstacle is Obstacle.COLLISION or (
            past is None and obstacle is not Obstacle.FREEDOM and free.obstacle is None
            and path.touching):
        obstacle = Obstacle.COLLISION
        sentence = (f'{path.touching} after {reach}; make room, lower clearance, or level the '
                    'tool further by hand.')
    elif past is not None:
        obstacle, sentence = Obstacle.LIMIT, _limit(task, bounds, free, past, path)
    elif obstacle is Obstacle.FREEDOM:
        sentence = _freedom(task, path)
    else:
        obstacle = Obstacle.SINGULARITY
        jacobian = task.linearised(path.posture, path.share)[2]
        lost = np.linalg.svd(task.tool.scaled(jacobian))[0][:, min(jacobian.shape) - 1]
        sentence = (f'After {reach} the arm reaches the edge of its workspace or a singular '
                    f'posture, in which it can hardly {_motion(lost)}; level the tool elsewhere, '
                    'or from another posture.')
    if task.redundancy > 0:
        sentence += (
            f' The search for other postures of the redundant arm ended at search_time; they '
            f'reach {reach}.' if path.cut_short else
            f' No other posture of the redundant arm reaches more than {reach}.')
    return LevelingRefusal(obstacle, path.share, sentence)


def _limit(task: LevelingTask, bounds: Bounds, free: JointPath, row: int, path: JointPath) -> str:
    robot = task.tool.robot
    joint = int(np.argmax(bounds.excess(free.positions[row])))
    column = free.positions[row:, joint]
    above = free.positions[row, joint] > bounds.upper[joint]
    extreme = float(column.max() if above else column.min())
    limit = float(bounds.upper[joint] if above else bounds.lower[joint])
    end = '' if free.obstacle is None else ' and further'
    share = 100.0 * (path.share if robot.n <= task.rows else free.shares[row])
    return (
        f"Joint '{robot.joint_names[joint]}' reaches its limit of {limit:.3f} rad after "
        f'{share:.0f} % of the turn; to level the tool it would have to move to '
        f'{extreme:.3f} rad, {abs(extreme - limit):.3f} rad past it{end}.')


def _freedom(task: LevelingTask, path: JointPath) -> str:
    robot = task.tool.robot
    error, jacobian, _ = task.linearised(path.posture, min(1.0, path.share + 1e-3))
    scaled, error = task.tool.scaled(jacobian), task.tool.scaled(error)
    left = error - scaled @ np.linalg.lstsq(scaled, error, rcond=None)[0]
    if task.free_heading:
        left = np.concatenate((left[:3], task.across.T @ left[3:]))
        remedy = 'tilt the tool about another axis, or use an arm with more joints.'
    else:
        remedy = "set heading to 'free' to allow rotation about the vertical."
    return (f'With {robot.n} joints the arm lacks a degree of freedom for leveling here: with the '
            f'tool point held it cannot {_motion(left)}; {remedy}')


def _motion(direction: Array) -> str:
    """Return a tool velocity (linear, angular) in words."""
    point, turn = direction[:3], direction[3:]
    what, vector = ('move the tool point along', point) if (
        np.linalg.norm(point) > np.linalg.norm(turn)) else ('turn the tool about', turn)
    unit = vector / max(float(np.linalg.norm(vector)), 1e-12)
    column = int(np.argmax(np.abs(unit)))
    if abs(unit[column]) > _ALIGNED:
        return f"{what} the root frame's {'xyz'[column]} axis"
    x, y, z = unit * np.sign(unit[column])
    return f"{what} the root frame's direction ({x:.2f}, {y:.2f}, {z:.2f})"
