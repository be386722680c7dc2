# SPDX-License-Identifier: Apache-2.0
"""Motions that excite everything at once: band-limited Fourier series, chosen for information.

Each joint moves by q(t) = q0 + Σ a_l sin(l ω t) + b_l cos(l ω t) (Swevers et al., Optimal Robot
Excitation and Identification, IEEE Trans. Robot. Autom. 13 (1997) 730, doi 10.1109/70.631234),
with coefficients such that position, velocity and acceleration are those of rest at both ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from robocal_ros.arrays import Array
from robocal_ros.errors import ConvergenceError
from robocal_ros.robot.collision import CollisionChecker
from robocal_ros.robot.model import Robot
from robocal_ros.robot.motion import MotionLimits, Trajectory

_KNOT_PERIOD = 0.02
_INFORMATION_SAMPLES = 80
_POSITION_MARGIN = 0.05
_SPEED_SHARE = 0.8
_EFFORT_SHARE = 0.8

Regressor = Callable[[Robot, Array, Array, Array], Array]
"""Rows of one instant for position, velocity, acceleration; shape (rows, parameters)."""


@dataclass(frozen=True)
class ExcitationPlan:
    """What an excitation may look like.

    Attributes:
        duration: Length of one period [s].
        harmonics: Number of harmonics; the band ends at harmonics / duration [Hz].
        repeats: How often the period is run.
        max_range: Farthest excursion of a joint from the middle [rad].
        candidates: How many random series to choose from.
        seed: Seed of the search.

    """

    duration: float = 8.0
    harmonics: int = 4
    repeats: int = 2
    max_range: float = 1.2
    candidates: int = 400
    seed: int = 0


class FourierBasis:
    """Fourier series of one period that begin and end at rest."""

    def __init__(self, plan: ExcitationPlan) -> None:
        """Find the series that have no position, velocity and acceleration at the ends."""
        order = np.arange(1, plan.harmonics + 1)
        self._pulsation = 2.0 * np.pi / plan.duration * order
        zero = np.zeros_like(self._pulsation)
        # At t = 0: position Σ b, velocity Σ a ω, acceleration -Σ b ω².
        ends = np.stack((
            np.concatenate((zero, np.ones_like(zero))),
            np.concatenate((self._pulsation, zero)) / self._pulsation[0],
            np.concatenate((zero, self._pulsation**2)) / self._pulsation[0] ** 2,
        ))
        self._rest = scipy.linalg.null_space(ends)

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
        amplitudes = coefficients @ self._rest.T
        count = len(self._pulsation)
        a, b = amplitudes[:, :count], amplitudes[:, count:]
        phase = np.outer(time, self._pulsation)
        sine, cosine = np.sin(phase), np.cos(phase)
        w = self._pulsation
        return (sine @ a.T + cosine @ b.T,
                (cosine * w) @ a.T - (sine * w) @ b.T,
                -(sine * w**2) @ a.T - (cosine * w**2) @ b.T)


def _scale(
    plan: ExcitationPlan, limits: MotionLimits, middle: Array,
    excursion: Array, velocity: Array, acceleration: Array,
) -> Array:
    """Return by how much each joint's series may be scaled within its limits, shape (n,)."""
    room = np.minimum(plan.max_range, np.minimum(limits.upper - middle, middle - limits.lower)
                      - _POSITION_MARGIN)
    bounds = (
        np.maximum(room, 0.0) / np.abs(excursion).max(axis=0),
        _SPEED_SHARE * limits.velocity / np.abs(velocity).max(axis=0),
        0.95 * limits.acceleration / np.abs(acceleration).max(axis=0),
    )
    return np.asarray(np.minimum.reduce(bounds))


def plan_excitation(
    robot: Robot,
    checker: CollisionChecker,
    limits: MotionLimits,
    middle: Array,
    regressor: Regressor,
    plan: ExcitationPlan,
) -> Trajectory:
    """Choose the series whose samples tell the parameters apart best.

    Random series, each joint scaled to its limits, are ranked by the determinant of the
    information matrix with columns scaled to equal length (D-criterion); the best one that
    touches nothing and overloads no joint is taken.

    Args:
        robot: The arm with (a guess of) what it carries.
        checker: Its collision geometry.
        limits: What no motion may exceed.
        middle: Posture at the ends and in the middle, shape (n,) [rad].
        regressor: Rows that one instant adds.
        plan: What the excitation may look like.

    Returns:
        The motion, ``plan.repeats`` periods long.

    Raises:
        ConvergenceError: If no series is feasible.

    """
    generator = np.random.default_rng(plan.seed)
    basis = FourierBasis(plan)
    fine = np.arange(0.0, plan.duration, _KNOT_PERIOD)
    sparse = np.linspace(0.0, plan.duration, _INFORMATION_SAMPLES, endpoint=False)
    ranked = []
    for _ in range(plan.candidates):
        coefficients = generator.normal(size=(robot.n, basis.size))
        coefficients *= _scale(plan, limits, middle, *basis.series(coefficients, fine))[:, None]
        excursion, velocity, acceleration = basis.series(coefficients, sparse)
        rows = np.vstack([
            regressor(robot, middle + e, v, a)
            for e, v, a in zip(excursion, velocity, acceleration, strict=True)])
        ranked.append((_information(rows), coefficients))
    ranked.sort(key=lambda item: -item[0])
    reasons = {'touches itself': 0, 'overloads a joint': 0}
    for _, coefficients in ranked:
        for shrink in (1.0, 0.7):
            excursion, velocity, acceleration = basis.series(shrink * coefficients, fine)
            if checker.first_contact(middle + excursion):
                reasons['touches itself'] += 1
            elif _overloaded(robot, middle + excursion, velocity, acceleration):
                reasons['overloads a joint'] += 1
            else:
                return _repeated(basis, shrink * coefficients, middle, plan)
    told = ', '.join(f'{what} ({count} times)' for what, count in reasons.items() if count)
    raise ConvergenceError(
        f'None of {plan.candidates} excitations about this posture is feasible: the arm {told}. '
        'Start from a posture with more room, or lower the range or acceleration.')


def _information(rows: Array) -> float:
    """Return the log-determinant of the information about unscaled parameters."""
    sign, logarithm = np.linalg.slogdet(rows.T @ rows + 1e-12 * np.eye(rows.shape[1]))
    return float(logarithm) if sign > 0 else -np.inf


def _overloaded(robot: Robot, position: Array, velocity: Array, acceleration: Array) -> bool:
    return any(
        (np.abs(robot.inverse_dynamics(q, v, a)) > _EFFORT_SHARE * robot.effort_limit).any()
        for q, v, a in zip(position[::3], velocity[::3], acceleration[::3], strict=True))


def _repeated(
    basis: FourierBasis, coefficients: Array, middle: Array, plan: ExcitationPlan
) -> Trajectory:
    count = int(np.ceil(plan.repeats * plan.duration / _KNOT_PERIOD))
    time = np.linspace(0.0, plan.repeats * plan.duration, count + 1)
    excursion, velocity, acceleration = basis.series(coefficients, time)
    # Exactly at rest at the ends, whatever rounding says.
    for series in (excursion, velocity, acceleration):
        series[[0, -1]] = 0.0
    return Trajectory(time, middle + excursion, velocity, acceleration)
