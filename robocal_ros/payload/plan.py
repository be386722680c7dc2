# SPDX-License-Identifier: Apache-2.0
"""Plans of sweeps in two planes, static postures, and exciting motions.

In an exciting motion each joint moves by q(t) = q0 + Σ a_l sin(l ω t) + b_l cos(l ω t) (Swevers
et al., Optimal Robot Excitation and Identification, IEEE Trans. Robot. Autom. 13 (1997) 730, doi
10.1109/70.631234), with coefficients such that position, velocity and acceleration are those of
rest at both ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product

import numpy as np
import scipy

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, ConvergenceError, MotionError
from robocal_ros.estimation import Channels, d_optimal, runs, scaled_inverse, short_tour
from robocal_ros.payload.model import Plane, second_plane, static_wrench_regressor
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.regression import MIN_MOTION
from robocal_ros.robot import (
    CollisionChecker,
    MotionLimits,
    NewtonEuler,
    RigidBodyInertia,
    Robot,
    Trajectory,
    connect,
)

LAST_RANGE = float(np.radians(90.0))
SECOND_RANGE = float(np.radians(80.0))
_HORIZONTAL = float(np.sin(np.radians(3.0)))
_MARGIN = 0.05
_MIN_RANGE = float(np.radians(40.0))
_MIN_HELD_OUT = float(np.radians(25.0))
_SHORT = 'joint limits or collisions leave too short a sweep'
_TRIES = 120
_ENOUGH = 12
_EFFORT_SHARE = 0.9
_KNOT_PERIOD = 0.02
# Time between the samples by which motions are compared [s].
_SAMPLE_PERIOD = 0.05
# Number of periods that compete at a speed scale.
_PERIODS = 3
_INFORMATION_SAMPLES = 80
_SPEED_SHARE = 0.8
_EXCITED_EFFORT_SHARE = 0.8


@dataclass(frozen=True)
class SweepRange:
    """Sweep of one joint, with all others at rest.

    Attributes:
        joint: Column of the joint.
        posture: Angles of all joints; the turning one's entry is the middle, shape (n,) [rad].
        low: Lower end [rad].
        high: Upper end [rad].
        held_out: Whether it only serves validation.

    """

    joint: int
    posture: Array
    low: float
    high: float
    held_out: bool = False

    def end(self, high: bool) -> Array:
        """Return the posture at one end, shape (n,) [rad]."""
        posture = self.posture.copy()
        posture[self.joint] = self.high if high else self.low
        return posture


@dataclass(frozen=True)
class TwoPlanePlan:
    """Postures and sweeps of the two-plane method.

    Attributes:
        posture: Start posture, with the last axis horizontal, shape (n,) [rad]; the second one is
            as well, unless it is turned in a posture of its own.
        second_joint: Column of the second plane's joint.
        sweeps: Sweeps in order: plane 1, plane 2, then the held-out ones.
        quality: Predicted standard deviation of the worst direction of the centre of mass,
            for unit noise and unit weight; smaller is better.
        approach: Path from the initial posture to ``posture``, shape (k, n) [rad].

    """

    posture: Array
    second_joint: int
    sweeps: tuple[SweepRange, ...]
    quality: float
    approach: Array


def _axis_tilts(robot: Robot, q: Array, joints: Sequence[int]) -> tuple[Array, Array]:
    """Return the vertical components of joint axes (0: horizontal), and their Jacobian."""
    up = -np.array(robot.gravity) / np.linalg.norm(robot.gravity)
    axes, _, slopes = zip(*(robot.joint_axis(q, joint) for joint in joints), strict=True)
    return np.array(axes) @ up, up @ np.array(slopes)


def _quality(robot: Robot, planned: Sequence[SweepRange]) -> float:
    """Predict the worst standard deviation of the centre of mass for unit weight and noise."""
    information = np.zeros((3, 3))
    for sweep in planned:
        plane = Plane.at(robot, sweep.posture, sweep.joint)
        angle = np.linspace(sweep.low, sweep.high, 60)
        columns = plane.regressor(angle, 1.0 / float(np.linalg.norm(robot.gravity)))
        # Friction is estimated jointly: a constant is no information.
        columns = (columns - columns.mean(axis=0)) @ plane.rows
        information += columns.T @ columns / len(angle)
    smallest = float(np.linalg.eigvalsh(information)[0])
    return 1.0 / np.sqrt(smallest) if smallest > 1e-9 else float('inf')


def _holdable(robot: Robot, checker: CollisionChecker, q: Array) -> bool:
    """Return whether the drives hold a posture, and nothing touches."""
    torque = np.abs(robot.gravity_torque(q))
    return bool((torque <= _EFFORT_SHARE * robot.effort_limit).all()) and checker.is_free(q)


class _Refused(Exception):
    """Refusal of a candidate posture, with the reason."""


@dataclass
class _TwoPlaneSearch:
    """Search for a start posture.

    Attributes:
        robot: The arm.
        loaded: The arm with the payload.
        checker: Its collision geometry.
        second: Column of the second plane's joint.
        current: Current posture, shape (n,) [rad].
        together: Whether both planes are measured in one posture.
        reasons: Number of refused candidates by reason.

    """

    robot: Robot
    loaded: Robot
    checker: CollisionChecker
    second: int
    current: Array
    together: bool = True
    reasons: Counter[str] = field(default_factory=Counter)

    def run(self, generator: np.random.Generator) -> Iterator[TwoPlanePlan]:
        """Try postures near the current one first, then farther away; yield those that fit."""
        low, high = self.robot.sampling_limits()
        margin = np.minimum(2.0 * _MARGIN, 0.4 * (high - low))
        low, high = low + margin, high - margin
        middle = np.clip(self.current, low, high)
        for attempt in range(_TRIES):
            spread = min(1.0, 0.1 + attempt / 40.0)
            start = np.clip(middle + spread * (generator.uniform(low, high) - middle), low, high)
            try:
                yield self._candidate(start, low, high)
            except _Refused as refusal:
                self.reasons[str(refusal)] += 1

    def _level(self, joints: Sequence[int], start: Array, low: Array, high: Array) -> Array:
        """Return the posture nearest to a start in which the axes of joints are horizontal."""
        def residual(q: Array) -> Array:
            tilts, _ = _axis_tilts(self.robot, q, joints)
            return np.concatenate((tilts, 1e-3 * (q - start)))

        def slopes(q: Array) -> Array:
            _, jacobian = _axis_tilts(self.robot, q, joints)
            return np.vstack((jacobian, 1e-3 * np.eye(self.robot.n)))

        posture = np.asarray(scipy.optimize.least_squares(
            residual, start, jac=slopes, bounds=(low, high), max_nfev=60).x)
        tilts, _ = _axis_tilts(self.robot, posture, joints)
        if np.abs(tilts).max() > _HORIZONTAL:
            raise _Refused('an axis cannot be made horizontal')
        return posture

    def _candidate(self, start: Array, low: Array, high: Array) -> TwoPlanePlan:
        robot, last, second = self.robot, self.robot.n - 1, self.second
        widest = (robot.upper - robot.lower)[[last, second]].min()
        if widest < 2.0 * (_MARGIN + _MIN_RANGE):
            raise _Refused(_SHORT)
        posture = self._level((last, second) if self.together else (last,), start, low, high)
        # The last joint's own angle changes neither axis: centre it for a wide sweep.
        room = (robot.lower[last] + _MARGIN + LAST_RANGE, robot.upper[last] - _MARGIN - LAST_RANGE)
        posture[last] = np.clip(posture[last], *room) if room[0] < room[1] else (
            0.5 * (robot.lower[last] + robot.upper[last]))
        other = posture if self.together else self._level((second,), posture, low, high)
        sweeps = [self._sweep(posture, last, LAST_RANGE), self._sweep(other, second, SECOND_RANGE)]
        quality = _quality(robot, sweeps)
        if not quality < 1e3:
            raise _Refused('the two axes are parallel')
        sweeps += self._held_out(sweeps)
        return TwoPlanePlan(posture, second, tuple(sweeps), quality,
                            np.stack((self.current, posture)))

    def _sweep(
        self, posture: Array, joint: int, half: float, held_out: bool = False
    ) -> SweepRange:
        """Return the widest range about a posture within limits and without contact."""
        low = max(float(posture[joint]) - half, float(self.robot.lower[joint]) + _MARGIN)
        high = min(float(posture[joint]) + half, float(self.robot.upper[joint]) - _MARGIN)
        angles = np.linspace(low, high, max(3, int(np.ceil((high - low) / 0.04))))
        postures = np.tile(posture, (len(angles), 1))
        postures[:, joint] = angles
        free = np.array([_holdable(self.loaded, self.checker, q) for q in postures])
        centre = int(np.argmin(np.abs(angles - posture[joint])))
        around = [part for part in runs(free) if part[0] <= centre < part[1]]
        if not around:
            raise _Refused('the arm would collide or exceed a torque limit')
        first, end = around[0]
        low, high = float(angles[first]), float(angles[end - 1])
        if high - low < 2.0 * (_MIN_HELD_OUT if held_out else _MIN_RANGE):
            raise _Refused(_SHORT)
        return SweepRange(joint, posture.copy(), low, high, held_out)

    def _held_out(self, fitted: Sequence[SweepRange]) -> list[SweepRange]:
        """Plan shorter sweeps of both joints, each with the other one turned away."""
        held_out = []
        for moving, away in (fitted, fitted[::-1]):
            for turn in (0.6, -0.6, 0.35, -0.35):
                other = moving.posture.copy()
                other[away.joint] += turn
                room = self.robot.lower[away.joint], self.robot.upper[away.joint]
                if not room[0] + _MARGIN <= other[away.joint] <= room[1] - _MARGIN:
                    continue
                try:
                    held_out.append(self._sweep(
                        other, moving.joint, float(np.radians(50.0)), held_out=True))
                except _Refused:
                    continue
                break
            else:
                raise _Refused('no range is left for the held-out sweeps')
        return held_out


def _check_gravity(robot: Robot) -> None:
    if not np.linalg.norm(robot.gravity) > 0.0:
        raise ConfigurationError(
            'Parameter gravity is zero, so a payload at rest causes no torque or force. Set it '
            "in the root frame in m/s², or use method 'excitation'.")


def _cost(robot: Robot, plan: TwoPlanePlan, current: Array) -> float:
    """Return a plan's cost: its quality, weighted by distance and nearness of singularities."""
    way = float(np.abs(plan.posture - current).max())
    smallest = float(np.linalg.svd(robot.tool_jacobian(plan.posture), compute_uv=False)[-1])
    return plan.quality * (1.0 + 0.15 * way) * (1.0 + 0.01 / (smallest + 0.01))


def plan_two_plane(
    robot: Robot, checker: CollisionChecker, current: Array, *, mass: float,
    second_joint: str = '',
) -> TwoPlanePlan:
    """Find postures in which the last axis and a preceding one are horizontal, and the sweeps.

    The second joint is the given one, else the joint closest to the last for which a posture
    exists, in which both axes are horizontal, or else one for each of them. Among the postures
    found, a small predicted interval and a short path count.

    Args:
        robot: The arm without the payload.
        checker: Its collision geometry.
        current: Current posture, shape (n,) [rad].
        mass: Mass of the payload [kg].
        second_joint: Name of the second plane's joint, empty for automatic.

    Raises:
        ConfigurationError: If the arm has fewer than two joints, the second joint is invalid,
            or gravity is zero.
        MotionError: If the current posture is in collision.
        ConvergenceError: If no posture is found; lists the reasons with their counts.

    """
    if robot.n < 2:
        raise ConfigurationError(
            f"Method 'two_plane' needs two joints; this arm has {robot.n}. Use another method.")
    _check_gravity(robot)
    named = second_plane(robot, second_joint)
    seconds = range(robot.n - 2, -1, -1) if named is None else (named,)
    loaded = robot.with_payload(RigidBodyInertia(mass, np.zeros(3), np.zeros((3, 3))))
    reasons = []
    for together, second in product((True, False), seconds):
        search = _TwoPlaneSearch(robot, loaded, checker, second, current, together)
        found = islice(search.run(np.random.default_rng(0)), _ENOUGH)
        for plan in sorted(found, key=lambda plan: _cost(robot, plan, current)):
            try:
                return replace(plan, approach=connect(robot, checker, current, plan.posture))
            except MotionError as error:
                if checker.touching(current):
                    raise
                search.reasons[f'no path: {error}'] += 1
        how = '' if together else ' in a posture of its own'
        reasons.append(f"'{robot.joint_names[second]}'{how}: " + ', '.join(
            f'{reason} ({count} times)' for reason, count in search.reasons.most_common()))
    raise ConvergenceError(
        f"No postures were found in {_TRIES} tries each in which the last joint "
        f"'{robot.joint_names[-1]}' and a second one can sweep with horizontal axes. Reasons: "
        f'{"; ".join(reasons)}. Set another second_joint, clear the space around the arm, or '
        "use method 'static_poses'.")


def plan_static_poses(
    robot: Robot, checker: CollisionChecker, current: Array, *, sensor_frame: str, count: int,
    candidates: int = 300,
) -> Array:
    """Choose postures whose gravity directions separate load and sensor biases best.

    Candidates keep the first joints near the current posture and turn the wrist freely, so
    that paths are short; if a direction is unobservable then, all joints are turned.

    Args:
        robot: The arm without the payload.
        checker: Its collision geometry.
        current: Current posture, shape (n,) [rad].
        sensor_frame: Frame of the wrist sensor.
        count: Number of postures.
        candidates: Number of random postures to choose from.

    Returns:
        Postures in the order of a short tour, shape (count, n) [rad].

    Raises:
        ConfigurationError: If gravity is zero.
        ConvergenceError: If feasible postures are too few, or a direction is unobservable.

    """
    _check_gravity(robot)
    generator = np.random.default_rng(0)
    low, high = robot.sampling_limits()
    low, high = low + _MARGIN, high - _MARGIN
    for spread in (0.1, 1.0):
        reach = np.full(robot.n, spread)
        reach[-3:] = 1.0
        draws = generator.uniform(low, high, (candidates, robot.n))
        draws = np.clip(current + reach * (draws - current), low, high)
        feasible = np.array([q for q in draws if _holdable(robot, checker, q)])
        if len(feasible) < count:
            continue
        blocks = np.array([static_wrench_regressor(
            robot.transform_frame_to_root(q, sensor_frame).rotation.T @ robot.gravity)
            for q in feasible])
        # Columns of similar size: a load's weight is 10 N per kg, its moment about 1 N·m.
        blocks[:, :, 0] *= 0.1
        chosen = d_optimal(blocks, count)
        stacked = blocks[chosen].reshape(-1, blocks.shape[2])
        if np.linalg.cond(stacked / np.linalg.norm(stacked, axis=0)) < 100.0:
            picked = feasible[chosen]
            return picked[short_tour(picked, current)]
    touched = Counter(filter(None, map(checker.touching, draws))).most_common(1)
    raise ConvergenceError(
        f'{len(feasible)} of {candidates} random postures are free of collision and within '
        f'torque limits, and no {count} of them turn the sensor far enough against gravity. '
        f'{"".join(f"Most often {why}. " for why, _ in touched)}Start from a posture with more '
        'free space around the wrist, or correct floor, tool_box or keep_out_boxes.')


class FourierBasis:
    """Fourier series of one period that start and end at rest."""

    def __init__(self, period: float, harmonics: int) -> None:
        """Compute the series with zero position, velocity and acceleration at the ends.

        Args:
            period: Length of one period [s].
            harmonics: Number of harmonics; the band ends at harmonics / period [Hz].

        """
        number = np.arange(1.0, harmonics + 1.0)
        zero = np.zeros(harmonics)
        self._pulsation = 2.0 * np.pi / period * number
        # At t = 0: position Σ b, velocity Σ a ω, acceleration -Σ b ω².
        self._rest = scipy.linalg.null_space(np.block([
            [zero, np.ones(harmonics)], [number, zero], [zero, number**2]]))

    @property
    def size(self) -> int:
        """Number of free coefficients of a joint."""
        return int(self._rest.shape[1])

    def series(self, coefficients: Array, time: Array) -> tuple[Array, Array, Array]:
        """Return excursion, velocity and acceleration.

        Args:
            coefficients: Shape (n, size).
            time: Shape (k,) [s].

        Returns:
            Three arrays of shape (k, n).

        """
        a, b = np.split(self._rest @ coefficients.T, 2)
        w = self._pulsation[:, None]
        phase = np.outer(time, w)
        sine, cosine = np.sin(phase), np.cos(phase)
        return (sine @ a + cosine @ b,
                cosine @ (w * a) - sine @ (w * b),
                -sine @ (w**2 * a) - cosine @ (w**2 * b))


def plan_excitation(
    robot: Robot, checker: CollisionChecker, limits: MotionLimits, middle: Array,
    regressor: Channels, values: PayloadParameters, *, harmonics: int = 4,
    candidates: int = 400, seed: int = 0,
) -> Trajectory:
    """Choose the Fourier series with the most information about the parameters.

    Random series, each joint scaled to its limits, are ranked by the determinant of the
    information matrix (D-criterion); the best one without collision and overload is chosen. At
    a speed scale, the motion lasts as long as a motion at full speed that is slowed by it: longer
    periods with larger excursions compete with more repeats of larger accelerations.

    Args:
        robot: The arm with its payload, or a guess of it.
        checker: Its collision geometry.
        limits: Limits of the motion.
        middle: Posture at both ends, about which the arm moves, shape (n,) [rad].
        regressor: Regressor of the motion, with rows of shape (k, rows, parameters).
        values: For period, repeats and range of the motion.
        harmonics: Number of harmonics; the band ends at harmonics / period [Hz].
        candidates: Number of random series to choose from.
        seed: Seed of the search.

    Returns:
        The motion, ``excitation_repeats`` periods long, divided by the scale of the limits.

    Raises:
        ConvergenceError: If no series is feasible, or all move too little to be used.

    """
    generator = np.random.default_rng(seed)
    longest = values.excitation_period / limits.scale
    bases = [(period, FourierBasis(period, harmonics)) for period in np.unique(np.geomspace(
        values.excitation_period, longest, _PERIODS)).tolist()]
    room = np.minimum(limits.upper - middle, middle - limits.lower) - _MARGIN
    largest = (np.maximum(np.minimum(values.excitation_range, room), 0.0),
               _SPEED_SHARE * limits.velocity, 0.95 * limits.acceleration)
    ranked = []
    for number in range(candidates):
        period, basis = bases[number % len(bases)]
        coefficients = generator.normal(size=(robot.n, basis.size))
        series = basis.series(coefficients, np.arange(0.0, period, _KNOT_PERIOD))
        coefficients *= np.min([most / np.abs(part).max(axis=0) for most, part in zip(
            largest, series, strict=True)], axis=0)[:, None]
        excursion, velocity, acceleration = basis.series(
            coefficients, np.linspace(0.0, period, _INFORMATION_SAMPLES, endpoint=False))
        rows = regressor(middle + excursion, velocity, acceleration)
        rows = rows.reshape(-1, rows.shape[2])
        sign, logarithm = np.linalg.slogdet(rows.T @ rows + 1e-12 * np.eye(rows.shape[1]))
        ranked.append((logarithm if sign > 0 else -np.inf, period, basis, coefficients))
    ranked.sort(key=lambda item: -item[0])
    reasons = {'moves too little at this speed_scale': 0, 'collides': 0, 'overloads a joint': 0}
    torque = NewtonEuler(robot, robot.tool_frame).torque
    limit = _EXCITED_EFFORT_SHARE * robot.effort_limit
    for _, period, basis, coefficients in ranked:
        fine = np.arange(0.0, period, _KNOT_PERIOD)
        for shrink in (1.0, 0.7):
            excursion, velocity, acceleration = basis.series(shrink * coefficients, fine)
            if np.ptp(excursion, axis=0).max() < MIN_MOTION:
                reasons['moves too little at this speed_scale'] += 1
            elif checker.first_contact(middle + excursion):
                reasons['collides'] += 1
            elif (np.abs(torque(middle + excursion[::3], velocity[::3], acceleration[::3]))
                  > limit).any():
                reasons['overloads a joint'] += 1
            else:
                repeats = values.excitation_repeats * longest / period
                return _repeated(basis, shrink * coefficients, middle, period, round(repeats))
    text = ', '.join(f'{what} ({count} times)' for what, count in reasons.items() if count)
    raise ConvergenceError(
        f'None of {candidates} exciting motions about this posture is feasible: the arm {text}. '
        'Start from a posture with more free space, lower excitation_range or '
        'excitation_acceleration, or raise speed_scale where it moves too little.')


def relative_std(motion: Trajectory, regressor: Channels) -> Array:
    """Return standard deviations of the parameters for white noise of unit density, shape (p,).

    Args:
        motion: The motion.
        regressor: Its regressor, as for ``plan_excitation``.

    """
    time = np.linspace(0.0, motion.duration, int(motion.duration / _SAMPLE_PERIOD) + 1)
    rows = regressor(*motion.sample(time))
    rows = rows.reshape(-1, rows.shape[2])
    return np.asarray(np.sqrt(np.diag(scaled_inverse(_SAMPLE_PERIOD * rows.T @ rows))))


def _repeated(
    basis: FourierBasis, coefficients: Array, middle: Array, period: float, repeats: int
) -> Trajectory:
    count = int(np.ceil(repeats * period / _KNOT_PERIOD))
    time = np.linspace(0.0, repeats * period, count + 1)
    excursion, velocity, acceleration = basis.series(coefficients, time)
    # Exactly at rest at the ends, free of rounding errors.
    for series in (excursion, velocity, acceleration):
        series[[0, -1]] = 0.0
    return Trajectory(time, middle + excursion, velocity, acceleration)
