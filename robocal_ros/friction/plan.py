# SPDX-License-Identifier: Apache-2.0
"""Constant-speed runs, read from the user's trajectory set or planned from the limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import scipy

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, ConvergenceError, FileFormatError, MotionError
from robocal_ros.estimation import runs as true_runs
from robocal_ros.files import Finite, Section, convert, load, read_text, refuse
from robocal_ros.friction.fit import distinct
from robocal_ros.friction.parameters import FrictionParameters
from robocal_ros.robot import CollisionChecker, Lspb, MotionLimits, Robot, Trajectory

SLOWEST = 1e-3
"""Lowest speed that is planned; lower ones are not distinguishable from rest [rad/s]."""

_MARGIN = 0.05
_CHECK_STEP = 0.04
# Angle covered by slow runs, to average torque ripple [rad].
_MIN_SPAN = 0.13
# Shortest cruise within a sufficient range, and shortest of all [s].
_USUAL_CRUISE, _MIN_CRUISE = 2.0, 0.8
_SETTLING = 0.8
# Factor of the cruise time from round to round, and shift within the free range.
_LONGER, _SHIFT = 1.5, 0.37
# Frequency [Hz] and number of periods of the reversals.
_REVERSAL_FREQUENCY, _REVERSALS = 1.0, 8
_KNOT_PERIOD = 0.02


def planned_speeds(values: FrictionParameters, limit: float) -> Array:
    """Return log-spaced speeds for a joint, as the arm will run them [rad/s].

    The speed scale lowers the highest one only: slower runs than ``min_speed`` would not be told
    from rest.

    Args:
        values: The node's parameters.
        limit: The joint's speed limit [rad/s].

    Raises:
        ConfigurationError: If half the speed limit at the speed scale is not above ``min_speed``.

    """
    fastest = values.speed_scale * min(values.max_speed, 0.5 * limit)
    if fastest <= values.min_speed:
        raise ConfigurationError(
            f'At speed_scale {values.speed_scale:g}, the fastest run is {fastest:.4g} rad/s '
            '(max_speed, and half the speed limit), not above min_speed '
            f'({values.min_speed} rad/s); raise speed_scale or lower min_speed.')
    return np.geomspace(values.min_speed, fastest, values.speed_count)


def check_detectable(speeds: Iterable[float], scale: float) -> None:
    """Raise a ConfigurationError if the speed scale makes given runs too slow to be used.

    Args:
        speeds: Given speeds, before the speed scale [rad/s].
        scale: The speed scale.

    """
    slow = [speed for speed in speeds if scale * speed < SLOWEST]
    if slow:
        raise ConfigurationError(
            f'A run at {min(slow):.4g} rad/s at speed_scale {scale:g} moves at '
            f'{scale * min(slow):.2g} rad/s; at least {SLOWEST:g} rad/s are needed to tell it '
            'from rest. Raise speed_scale, or the speed in '
            'speeds or trajectory_file. The arm was not moved.')


def free_range(
    robot: Robot, checker: CollisionChecker, posture: Array, joint: int, width: float
) -> tuple[float, float]:
    """Return the range of a joint about a posture within its limits and free of contact [rad].

    Args:
        robot: The arm with its payload.
        checker: Its collision geometry.
        posture: Angles of all joints, shape (n,) [rad].
        joint: Column of the joint.
        width: Largest range [rad].

    Raises:
        MotionError: If the posture itself is in contact.

    """
    lower, upper = float(robot.lower[joint]) + _MARGIN, float(robot.upper[joint]) - _MARGIN
    # Near a limit the range is shifted to the other side.
    low = max(min(posture[joint] - 0.5 * width, upper - width), lower)
    high = min(low + width, upper)
    angles = np.linspace(low, high, max(3, int(np.ceil((high - low) / _CHECK_STEP))))
    centre = int(np.argmin(np.abs(angles - posture[joint])))

    def at(angle: float) -> Array:
        return np.where(np.arange(robot.n) == joint, angle, posture)

    if contact := checker.touching(at(angles[centre])):
        raise MotionError(
            f"In the posture for joint '{robot.joint_names[joint]}' {contact}; start from another "
            'posture.')
    free = np.array([checker.is_free(at(angle)) for angle in angles])
    first, stop = next(part for part in true_runs(free) if part[0] <= centre < part[1])
    return float(angles[first]), float(angles[stop - 1])


def plan_runs(
    robot: Robot, checker: CollisionChecker, posture: Array, joint: int,
    values: FrictionParameters, speeds: Sequence[float] = (), number: int = 0,
    within: tuple[float, float] | None = None,
) -> list[Lspb]:
    """Plan runs of a joint at log-spaced speeds, forward and back over the same positions.

    The positions vary from speed to speed, so that torque ripple and errors of the gravity model
    become scatter instead of a bias. Every other speed comes on the way up, the rest on the way
    down, so that friction which drifts is distinguished from friction that depends on the speed.

    Args:
        robot: The arm with its payload.
        checker: Its collision geometry.
        posture: Angles of all joints; those of the others are kept, shape (n,) [rad].
        joint: Column of the joint.
        values: The node's parameters.
        speeds: Speeds that replace the planned ones, as the arm will run them [rad/s]; empty to
            plan them.
        number: Number of the round, from 0; later rounds cruise longer and elsewhere.
        within: Additional bounds of the joint angle [rad].

    Raises:
        ConfigurationError: If half the speed limit is not above ``min_speed``.
        ConvergenceError: If the free range is too short for all of the speeds.
        MotionError: If the posture itself is in contact.

    """
    low, high = free_range(robot, checker, posture, joint, values.max_range)
    if within is not None:
        low, high = max(low, within[0]), min(high, within[1])
    if not speeds:
        speeds = planned_speeds(values, float(robot.velocity_limit[joint])).tolist()
    speeds = [*speeds[::2], *reversed(speeds[1::2])]
    longer = _LONGER**number
    acceleration = values.speed_scale * values.max_acceleration
    runs: list[Lspb] = []
    for place, speed in enumerate(speeds, 1):
        blends = speed**2 / acceleration
        cruise = float(np.clip(longer * _MIN_SPAN / speed, longer * _USUAL_CRUISE,
                               longer * values.max_cruise))
        span = min(speed * (cruise + _SETTLING) + blends, high - low)
        if span < speed * _MIN_CRUISE + blends:
            continue
        # Multiples of the golden ratio are evenly distributed for any number of speeds.
        share = (0.618034 * place + _SHIFT * number) % 1.0
        start = low + share * (high - low - span)
        goal = start + span
        runs += [Lspb.with_acceleration(*ends, speed, acceleration)
                 for ends in ((start, goal), (goal, start))]
    if not runs:
        raise ConvergenceError(
            f"Joint '{robot.joint_names[joint]}' has only {high - low:.3f} rad of free range "
            'about this posture, too short for all of the speeds. Start from another posture.')
    return runs


def plan_reversals(
    robot: Robot, checker: CollisionChecker, posture: Array, joint: int, size: float
) -> Trajectory:
    """Plan small slow reversals of a joint, which show its presliding friction.

    A sine whose amplitude rises from zero and falls to zero within one period each.

    Args:
        robot: The arm with its payload.
        checker: Its collision geometry.
        posture: Centre of the motion, shape (n,) [rad].
        joint: Column of the joint.
        size: Amplitude [rad].

    Raises:
        ConvergenceError: If the free range is too short.
        MotionError: If the posture itself is in contact.

    """
    low, high = free_range(robot, checker, posture, joint, 4.0 * size)
    if min(high - posture[joint], posture[joint] - low) < 1.2 * size:
        raise ConvergenceError(
            f"Joint '{robot.joint_names[joint]}' lacks a free range of ±{1.2 * size:.3g} rad for "
            'its reversals about this posture. Start from another posture.')
    pulsation = 2.0 * np.pi * _REVERSAL_FREQUENCY
    duration = _REVERSALS / _REVERSAL_FREQUENCY
    time = np.linspace(0.0, duration, int(np.ceil(duration / _KNOT_PERIOD)) + 1)
    rise = np.clip(np.minimum(time, duration - time) * _REVERSAL_FREQUENCY, 0.0, 1.0)
    window = rise**4 * (35.0 - 84.0 * rise + 70.0 * rise**2 - 20.0 * rise**3)
    spline = scipy.interpolate.make_interp_spline(
        time, size * window * np.sin(pulsation * time), k=5)
    move, velocity, acceleration = (
        np.outer(spline(time, nu=order), np.eye(robot.n)[joint]) for order in range(3))
    velocity[[0, -1]] = acceleration[[0, -1]] = 0.0
    return Trajectory(time, posture + move, velocity, acceleration)


class _GivenRun(Section):
    joint: str
    start: Finite
    goal: Finite
    speed: Finite
    duration: Finite
    acceleration: Finite | None = None


def load_trajectory_set(
    path: str, robot: Robot, limits: MotionLimits | None = None
) -> dict[str, list[Lspb]]:
    """Read a user's set of constant-speed runs from a YAML file; return them by joint name.

    The file is a list; each entry names a joint and gives ``start``, ``goal`` [rad], ``speed``
    [rad/s] and ``duration`` [s] of one linear segment with parabolic blends, and ``acceleration``
    [rad/s²] at its start if that at its end is another one::

        - {joint: joint_6, start: -0.4, goal: 0.4, speed: 0.25, duration: 3.4}
        - {joint: joint_6, start: 0.4, goal: -0.4, speed: 0.25, duration: 3.4, acceleration: 2.0}

    The other joints keep the angles at the start of the procedure.

    Args:
        path: The file.
        robot: The arm.
        limits: Limits of the moving joint; None to check none.

    Raises:
        FileFormatError: If the file is not such a list, or an entry's numbers don't fit, or exceed
            the limits; with the number of the run, the joint, the value and the limit.
        ConfigurationError: If the file can't be read or a joint is unknown.

    """
    file = Path(path).expanduser()
    document = load(read_text(file, 'trajectory set', 'Correct trajectory_file.'), file.name)
    if not isinstance(document, list) or not document:
        raise refuse(file.name, 'the whole file', 'a list of runs', document)
    runs: dict[str, list[Lspb]] = {}
    inside = np.clip(np.zeros(robot.n), robot.lower, robot.upper)
    for number, entry in enumerate(document, 1):
        item = convert(entry, _GivenRun, file.name, f'run {number}')
        joint = robot.index(item.joint)
        try:
            run = Lspb(item.start, item.goal, item.speed, item.duration, item.acceleration)
            if limits is not None:
                limits.check(run.trajectory(inside, joint))
        except MotionError as error:
            raise FileFormatError(f'{file.name}, run {number}: {error}') from error
        runs.setdefault(item.joint, []).append(run)
    return runs


def weak_speeds(measured: Array, stribeck_velocity: float | None) -> Array:
    """Return speeds for a further round: between and below those near the Stribeck velocity.

    Args:
        measured: Signed speeds of the runs so far, shape (k,), k > 0 [rad/s].
        stribeck_velocity: Stribeck velocity [rad/s]; None if it is not identified, so that still
            lower speeds are needed.

    """
    known = distinct(np.abs(measured))
    lower = 0.5 if stribeck_velocity else np.array([0.5, 0.25, 0.125])
    below = np.atleast_1d(np.maximum(lower * known[0], SLOWEST))
    bend = 2.0 * stribeck_velocity if stribeck_velocity else 0.0
    slow = known[known <= max(bend, known[min(2, len(known) - 1)])]
    between = np.sqrt(slow[1:] * slow[:-1])
    fast = np.sqrt(known[-1:] * known[-2:-1])
    return distinct(np.concatenate((below, between, fast)))
