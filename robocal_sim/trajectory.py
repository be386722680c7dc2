# SPDX-License-Identifier: Apache-2.0
"""Trajectories as received by the controller, and splines through their points."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TrajectoryPoint:
    """Point of a received trajectory; fields may be empty.

    Attributes:
        time: Time from the start of the trajectory [s].
        positions: Positions [rad], in the order of the trajectory's joint names.
        velocities: Velocities [rad/s].
        accelerations: Accelerations [rad/s²].
        effort: Efforts [N·m].

    """

    time: float
    positions: Sequence[float] = ()
    velocities: Sequence[float] = ()
    accelerations: Sequence[float] = ()
    effort: Sequence[float] = ()


@dataclass(frozen=True)
class Trajectory:
    """Received trajectory.

    Attributes:
        joints: Joint names.
        points: Points.
        stamp: Header stamp [s]; 0: start on arrival.

    """

    joints: tuple[str, ...]
    points: tuple[TrajectoryPoint, ...]
    stamp: float = 0.0


class JointState(NamedTuple):
    """Position [rad], velocity [rad/s] and acceleration [rad/s²] of all joints, shape (n,)."""

    position: FloatArray
    velocity: FloatArray
    acceleration: FloatArray


@dataclass(frozen=True)
class Knot:
    """Trajectory point in the controller's joint order; None for empty fields."""

    time: float
    position: FloatArray
    velocity: FloatArray | None = None
    acceleration: FloatArray | None = None
    effort: FloatArray | None = None


class Spline:
    """Piecewise polynomial motion through knots.

    A segment is quintic if both its knots have velocities and accelerations, cubic if both have
    velocities, else linear. Before the first knot and after the last the arm is at rest.

    Attributes:
        start: Time of the first knot [s].
        end: Time of the last knot [s].

    """

    def __init__(self, knots: Sequence[Knot]) -> None:
        self._times = [knot.time for knot in knots]
        self._coefficients = [_coefficients(a, b) for a, b in pairwise(knots)]
        self._efforts = [np.zeros_like(knot.position) if knot.effort is None else knot.effort
                         for knot in knots]
        self._last = knots[-1].position
        self._first = knots[0].position
        self._zero = np.zeros_like(self._last)
        self.start = self._times[0]
        self.end = self._times[-1]

    def sample(self, time: float) -> JointState:
        """Return the state at a time [s]."""
        if time >= self.end:
            return JointState(self._last, self._zero, self._zero)
        if time < self.start:
            return JointState(self._first, self._zero, self._zero)
        index = bisect.bisect_right(self._times, time) - 1
        s = time - self._times[index]
        powers = np.array((
            (1.0, s, s**2, s**3, s**4, s**5),
            (0.0, 1.0, 2.0 * s, 3.0 * s**2, 4.0 * s**3, 5.0 * s**4),
            (0.0, 0.0, 2.0, 6.0 * s, 12.0 * s**2, 20.0 * s**3),
        ))
        state = powers @ self._coefficients[index]
        return JointState(state[0], state[1], state[2])

    def effort(self, time: float) -> FloatArray:
        """Return the effort at a time [s], linear between knots; one without effort has zero."""
        if not self.start <= time < self.end:
            return self._efforts[0 if time < self.start else -1]
        index = bisect.bisect_right(self._times, time) - 1
        share = (time - self._times[index]) / (self._times[index + 1] - self._times[index])
        mixed: FloatArray = (
            (1.0 - share) * self._efforts[index] + share * self._efforts[index + 1])
        return mixed


def _coefficients(a: Knot, b: Knot) -> FloatArray:
    """Return the polynomial coefficients from a to b, lowest power first, shape (6, n)."""
    duration = b.time - a.time
    result = np.zeros((6, a.position.size))
    result[0] = a.position
    if a.velocity is None or b.velocity is None:
        result[1] = (b.position - a.position) / duration
        return result
    # Extrapolation with the state at a.
    drift = a.position + a.velocity * duration
    result[1] = a.velocity
    if a.acceleration is None or b.acceleration is None:
        gap = b.position - drift
        turn = b.velocity - a.velocity
        result[2] = (3.0 * gap / duration - turn) / duration
        result[3] = (turn - 2.0 * gap / duration) / duration**2
        return result
    result[2] = 0.5 * a.acceleration
    gap = b.position - drift - result[2] * duration**2
    turn = b.velocity - a.velocity - a.acceleration * duration
    bend = b.acceleration - a.acceleration
    result[3] = (10.0 * gap / duration - 4.0 * turn + 0.5 * bend * duration) / duration**2
    result[4] = (-15.0 * gap / duration + 7.0 * turn - bend * duration) / duration**3
    result[5] = (6.0 * gap / duration - 3.0 * turn + 0.5 * bend * duration) / duration**4
    return result
