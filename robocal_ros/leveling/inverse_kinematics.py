# SPDX-License-Identifier: Apache-2.0
"""Inverse kinematics that never leaves its branch: from a posture along the way, step by step.

Each step is a Newton iteration on what is missing. A redundant arm's step is the quadratic
programme

    min ½ |Δq − b|²  subject to  J Δq = missing,  lower ≤ q + Δq ≤ upper

which keeps position limits exactly and lets the null space pull towards b (Escande, Mansard,
Wieber, Hierarchical quadratic programming, IJRR 33(7), 2014, doi:10.1177/0278364914521306). An
arm without redundancy has one answer; it is followed past limits too, so that a refusal can say
by how much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import daqp
import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.leveling.model import LevelingTask

Bias = Callable[[Array], Array]
"""Where the null space should go from a posture: a joint step, shape (n,) [rad]."""

_ITERATIONS = 8
_POINT_TOLERANCE, _TURN_TOLERANCE = 1e-8, 1e-8
_EQUAL, _BOUND = 5, 0


@dataclass(frozen=True)
class Bounds:
    """Where joints may be while a way is planned.

    Attributes:
        lower: Shape (n,) [rad].
        upper: Shape (n,) [rad].

    """

    lower: Array
    upper: Array

    def excess(self, q: Array) -> Array:
        """Return how far each joint is outside, shape (n,) [rad]."""
        return np.maximum(np.maximum(self.lower - q, q - self.upper), 0.0)


@dataclass(frozen=True)
class Reached:
    """A posture that meets the task.

    Attributes:
        q: Shape (n,) [rad].
        singular: Smallest singular value of the tool's Jacobian there.

    """

    q: Array
    singular: float


def joint_step(
    jacobian: Array, missing: Array, bias: Array | None = None, room: Bounds | None = None
) -> Array | None:
    """Return the joint step that brings what is missing, nearest to a bias; None if none can.

    Args:
        jacobian: Shape (rows, n).
        missing: Shape (rows,).
        bias: Preferred step, shape (n,) [rad]; None for none.
        room: How far joints may step [rad]; None for no limits.

    """
    rows, n = jacobian.shape
    if n <= rows or room is None:
        step = np.array(np.linalg.lstsq(jacobian, missing, rcond=None)[0])
        if n > rows and bias is not None:
            step += bias - np.linalg.lstsq(jacobian, jacobian @ bias, rcond=None)[0]
        return step
    upper = np.concatenate((room.upper, missing))
    lower = np.concatenate((room.lower, missing))
    sense = np.array([_BOUND] * n + [_EQUAL] * rows, dtype=np.int32)
    slope = np.zeros(n) if bias is None else -bias
    found, _, flag, _ = daqp.solve(
        np.eye(n), slope, np.ascontiguousarray(jacobian), upper, lower, sense)
    return np.array(found) if flag == 1 else None


def converge(
    task: LevelingTask, q: Array, share: float, *, bias: Bias | None = None,
    bounds: Bounds | None = None,
) -> Reached | None:
    """Return the posture at a share of the way that Newton's iteration finds from another one.

    Args:
        task: The task.
        q: Where to begin, shape (n,) [rad].
        share: Share of the way.
        bias: Pull of the null space, for the first iteration.
        bounds: Limits that a redundant arm keeps; None for none.

    Returns:
        None if the task cannot be met from there.

    """
    first_step = np.inf
    for iteration in range(_ITERATIONS):
        missing, jacobian, full = task.linearised(q, share)
        if (np.abs(missing[:3]).max() < _POINT_TOLERANCE
                and np.abs(missing[3:]).max() < _TURN_TOLERANCE
                and not (iteration == 0 and bias is not None)):
            return Reached(q, task.tool.least_singular_value(full))
        room = None if bounds is None else Bounds(bounds.lower - q, bounds.upper - q)
        pull = bias(q) if bias is not None and iteration == 0 else None
        step = joint_step(jacobian, missing, pull, room)
        if step is None:
            return None
        length = float(np.abs(step).max())
        # Corrections that don't shrink lead to another branch, or nowhere.
        if iteration and length > 0.5 * first_step:
            return None
        first_step = length
        q = q + step
    return None
