# SPDX-License-Identifier: Apache-2.0
"""Planning of postures that make every joint's compliance observable to the tracker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.compliance.geometry import ArmGeometry, Observations, tracked_set
from robocal_ros.compliance.measurement import (
    HELD_OUT_EVERY,
    EndPosition,
    Registration,
    Target,
    target_pose,
)
from robocal_ros.compliance.model import Mounted, predicted
from robocal_ros.compliance.parameters import ComplianceParameters
from robocal_ros.errors import ConfigurationError, ConvergenceError
from robocal_ros.estimation import d_optimal, short_tour
from robocal_ros.files import convert, load, read_text, refuse
from robocal_ros.robot import CollisionChecker, EffortLimits, Robot

_MARGIN = 0.05
# Margin to the rim of the cone for sag and for the tracker position, which is known roughly [rad].
_CONE_MARGIN = 0.05
# Random candidate postures, and draws per candidate.
_CANDIDATES, _DRAWS_PER_CANDIDATE = 400, 40


def looks_at(
    tracker: Array, robot: Robot, q: Array, target: Target, values: ComplianceParameters
) -> bool:
    """Return whether the tracker is within the cone about target_axis, with a margin.

    Args:
        tracker: Position of the tracker in the root frame, shape (3,) [m].
        robot: The arm.
        q: Joint angles, shape (n,) [rad].
        target: Tracked target.
        values: The node's parameters.

    """
    rotation, point = target_pose(robot, q, target)
    sight, half_angle = tracker - point, values.visibility_angle
    axis = np.array(values.target_axis) / np.linalg.norm(values.target_axis)
    cosine = float((rotation @ axis) @ sight / max(float(np.linalg.norm(sight)), 1e-9))
    return cosine >= np.cos(max(half_angle - _CONE_MARGIN, 0.5 * half_angle))


def tracker_seen(
    values: ComplianceParameters, registration: Registration | None = None
) -> Array | None:
    """Return the position at which the target must look, shape (3,) [m]; None for any.

    Args:
        values: The node's parameters.
        registration: Tracker pose; None to use the parameter tracker_position.

    """
    if values.visibility_angle >= np.pi or (
            registration is None and not any(values.tracker_position)):
        return None
    return np.array(values.tracker_position if registration is None else registration.translation)


def given_postures(
    values: ComplianceParameters, robot: Robot, checker: CollisionChecker
) -> Array | None:
    """Return the postures of posture_file, shape (k, n) [rad]; None if it is not set.

    Raises:
        ConfigurationError: If they are too few or in collision.
        FileFormatError: If the file contains no postures.

    """
    if not values.posture_file:
        return None
    given = load_postures(values.posture_file, robot)
    least = least_count(robot.n)
    if len(given) < least:
        raise ConfigurationError(
            f'posture_file contains {len(given)} postures; at least {least} are needed for '
            f'{robot.n} joints, better 30.')
    for number, posture in enumerate(given, 1):
        if contact := checker.touching(posture):
            raise ConfigurationError(f'In posture {number} of posture_file {contact}. Correct it.')
    return given


def load_postures(path: str, robot: Robot) -> Array:
    """Return the postures of a YAML file, a list of lists of joint angles, shape (k, n) [rad].

    Raises:
        FileFormatError: If the file is not such a list.
        ConfigurationError: If it cannot be read, or a posture violates the joint limits.

    """
    file = Path(path).expanduser()
    document = load(read_text(file, 'posture file', 'Correct posture_file.'), file.name)
    if not isinstance(document, list) or not document:
        raise refuse(file.name, 'the whole file', 'a list of postures', document)
    postures = [convert(entry, list[float], file.name, f'posture {number}')
                for number, entry in enumerate(document, 1)]
    for number, posture in enumerate(postures, 1):
        if len(posture) != robot.n:
            raise refuse(file.name, f'posture {number}',
                         f'{robot.n} angles [rad], of {", ".join(robot.joint_names)}', posture)
        for joint, lower, upper, angle in zip(
                robot.joint_names, robot.lower, robot.upper, posture, strict=True):
            if not lower <= angle <= upper:
                raise ConfigurationError(
                    f"{file.name}, posture {number}: joint '{joint}' is at {angle:g} rad; its "
                    f'limits are {lower:.4g} … {upper:.4g} rad. Correct posture_file.')
    return np.array(postures, dtype=float)


def without_overload(postures: Array, efforts: Sequence[EffortLimits]) -> tuple[Array, list[str]]:
    """Return the postures of posture_file that the drives hold, and a sentence for each other one.

    Args:
        postures: Shape (k, n) [rad].
        efforts: Limits without and with the load.

    Raises:
        ConfigurationError: If too few are left.

    """
    problems = [_overload(efforts, q) for q in postures]
    named = [f'Posture {number} of posture_file is not used: {problem}.'
             for number, problem in enumerate(problems, 1) if problem]
    held = postures[[not problem for problem in problems]]
    least = least_count(postures.shape[1])
    if len(held) < least:
        raise ConfigurationError(
            f'Only {len(held)} postures of posture_file can be held; at least {least} are needed. '
            f'{" ".join(named)} Use a lighter load or other postures, or raise effort_share.')
    return held, named


def _overload(efforts: Sequence[EffortLimits], q: Array) -> str:
    """Return a clause about a joint that cannot hold a posture, empty for none."""
    return next(filter(None, (effort.exceeded(q[None]) for effort in efforts)), '')


def feasible_postures(
    efforts: Sequence[EffortLimits], checker: CollisionChecker, current: Array,
    values: ComplianceParameters, count: int, least: int = 1, *,
    registration: Registration | None = None, seed: int = 0,
) -> Array:
    """Draw random collision-free postures in which the load is held and the target is visible.

    The range about the current posture is widened if it gives too few.

    Args as for ``plan_postures``; returns ``least`` to ``count`` postures, shape (k, n) [rad].

    Raises:
        ConvergenceError: If too few are found; if none, with the reasons.

    """
    robot = efforts[0].robot
    target = Target.of(robot, values, registration)
    tracker = tracker_seen(values, registration)
    generator = np.random.default_rng(seed)
    found: list[Array] = []
    reasons: Counter[str] = Counter()
    for q in _drawn(robot, current, generator, _DRAWS_PER_CANDIDATE * count, values.posture_range):
        if tracker is not None and not looks_at(tracker, robot, q, target, values):
            reasons['the target looks away from the tracker'] += 1
        elif problem := _overload(efforts, q):
            reasons[f'{problem.partition(" needs ")[0]} exceeds its effort limit'] += 1
        elif not checker.is_free(q):
            reasons['the arm touches something'] += 1
        else:
            found.append(q)
            if len(found) == count:
                break
    if not found:
        why = ', '.join(f'{reason} ({n} times)' for reason, n in reasons.most_common())
        raise ConvergenceError(
            f'No posture was found in {_DRAWS_PER_CANDIDATE * count} draws in which the tracker '
            f'sees the target and the arm can hold the load. Rejected because {why}. Check '
            'tracker_position, target_axis, visibility_angle, the load and effort_share, or set '
            'posture_file.')
    if len(found) < least:
        raise ConvergenceError(
            f'Only {len(found)} feasible postures were found, {least} are needed. Check '
            'tracker_position, target_axis and visibility_angle, or lower posture_count or '
            'registration_postures.')
    return np.array(found)


def _drawn(
    robot: Robot, current: Array, generator: np.random.Generator, count: int, reach: float
) -> Iterator[Array]:
    """Yield random postures within the limits, from a widening range."""
    lower, upper = robot.sampling_limits()
    for wider in (1.0, 2.0, 4.0):
        low = np.maximum(lower + _MARGIN, current - wider * reach)
        high = np.maximum(low, np.minimum(upper - _MARGIN, current + wider * reach))
        for _ in range(count // 3):
            yield generator.uniform(low, high)


def plan_postures(
    efforts: Sequence[EffortLimits], checker: CollisionChecker, current: Array,
    values: ComplianceParameters, registration: Registration | None = None,
) -> Array:
    """Choose D-optimal postures for the fit and random ones for validation, in a short tour.

    Every fifth is held out of the fit; it is drawn from the half of the postures in which the load
    displaces the target most.

    Args:
        efforts: The arm with the tool that stays mounted, and its limits, without and with the
            load.
        checker: Collision checker.
        current: Current posture, shape (n,) [rad].
        values: The node's parameters.
        registration: Tracker pose; None to use the parameters.

    Returns:
        Postures in the order of measurement, shape (count, n) [rad].

    Raises:
        ConfigurationError: If the count is too small for the arm, or gravity is zero.
        ConvergenceError: If too few postures are feasible.

    """
    robot, loaded = (effort.robot for effort in efforts)
    count, least = values.posture_count, least_count(robot.n)
    if count < least:
        raise ConfigurationError(
            f'{count} postures are too few to identify and validate the compliances of {robot.n} '
            f'joints; posture_count must be at least {least}, better 30.')
    if not np.linalg.norm(robot.gravity) > 0.0:
        raise ConfigurationError('The gravity is zero, so that a load causes no sag; set gravity '
                                 'in the root frame in m/s².')
    drawn = feasible_postures(efforts, checker, current, values, max(_CANDIDATES, 3 * count),
                              count, registration=registration)
    target, stiff = Target.of(robot, values, registration), np.zeros(robot.n)
    blocks = np.array([predicted(robot, loaded, target, q, q, stiff)[1] for q in drawn])
    size = np.linalg.norm(blocks, axis=1).max(axis=0)
    seen = size > 1e-6 * size.max()
    held_out = count // HELD_OUT_EVERY
    scaled = blocks[:, :, seen] / size[seen]
    chosen = d_optimal(scaled, count - held_out)
    # Postures with a small displacement validate nothing.
    felt = np.linalg.norm(scaled, axis=(1, 2))
    others = [int(i) for i in np.flatnonzero(felt >= np.median(felt)) if i not in chosen]
    others += [i for i in range(len(drawn)) if i not in chosen and i not in others]
    fitted = drawn[chosen][short_tour(drawn[chosen], current)]
    return _interleaved(fitted, drawn[others[:held_out]])


def plan_geometry(
    efforts: Sequence[EffortLimits], checker: CollisionChecker, current: Array,
    values: ComplianceParameters, registration: Registration | None = None,
) -> Array:
    """Choose D-optimal postures for frames and compliances of all joints, in a short tour.

    Args:
        efforts: The arm and its limits, of each set that is measured.
        checker: Collision checker.
        current: Current posture, shape (n,) [rad].
        values: The node's parameters.
        registration: Tracker pose; None to use the parameters.

    Returns:
        Postures in the order of measurement, shape (count, n) [rad].

    Raises:
        ConfigurationError: If the count is too small for the arm.
        ConvergenceError: If too few postures are feasible.

    """
    robot, count = efforts[0].robot, values.posture_count
    drawn = feasible_postures(efforts, checker, current, values, max(_CANDIDATES, 3 * count),
                              count, registration=registration)
    target, nothing = Target.of(robot, values, registration), np.zeros((0, 0))
    poses = [target_pose(robot, q, target) for q in drawn]
    posed = values.tracker_message == 'pose'
    geometry = ArmGeometry(robot, Mounted(None), target, Observations((tracked_set([
        EndPosition(q, point, rotation if posed else None, nothing, nothing, 1, 0, 0.0)
        for q, (rotation, point) in zip(drawn, poses, strict=True)]),)), values)
    blocks = geometry.scaled().reshape(len(drawn), -1, geometry.width)
    least = -(-geometry.least // blocks.shape[1])
    if count < least:
        raise ConfigurationError(
            f'{count} postures are too few for the frames of {robot.n} joints; posture_count must '
            f'be at least {least}, better {3 * least}.')
    chosen = drawn[d_optimal(blocks, count, prior=1.0)]
    return np.asarray(chosen[short_tour(chosen, current)])


def least_count(joints: int) -> int:
    """Return the least number of postures that identifies and validates so many joints."""
    # n / 3 in theory; twice that leaves residuals, and a fifth is held out in addition.
    return max(HELD_OUT_EVERY, int(np.ceil(2 * joints / 3 * HELD_OUT_EVERY / 4)))


def _interleaved(fitted: Array, held_out: Array) -> Array:
    """Insert a held-out posture after every fourth one, the nearest of those left."""
    tour, left = [], list(held_out)
    for number, q in enumerate(fitted, 1):
        tour.append(q)
        if left and number % (HELD_OUT_EVERY - 1) == 0:
            distance = np.abs(np.array(left) - q).max(axis=1)
            tour.append(left.pop(int(np.argmin(distance))))
    return np.array([*tour, *left])


def plan_registration(
    unloaded: EffortLimits, checker: CollisionChecker, current: Array,
    values: ComplianceParameters, count: int
) -> Array:
    """Choose postures that spread the target widely, for registering the tracker.

    D-optimal for the scatter of the target's positions, in a short tour.

    Args:
        unloaded: The arm without the load, and its limits.
        checker: Collision checker.
        current: Current posture, shape (n,) [rad].
        values: The node's parameters.
        count: Number of postures, at least three.

    Returns:
        Postures in the order of measurement, shape (count, n) [rad].

    Raises:
        ConvergenceError: If too few postures are feasible.

    """
    robot = unloaded.robot
    drawn = feasible_postures(
        (unloaded,), checker, current, values, max(60, 8 * count), count, seed=1)
    target = Target.of(robot, values)
    points = np.array([target_pose(robot, q, target)[1] for q in drawn])
    centred = points - points.mean(axis=0)
    blocks = np.concatenate((centred, np.ones((len(points), 1))), axis=1)[:, None, :]
    chosen = d_optimal(blocks / np.abs(blocks).max(axis=0), count)
    return np.asarray(drawn[chosen][short_tour(drawn[chosen], current)])
