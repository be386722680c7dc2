# SPDX-License-Identifier: Apache-2.0
"""Inverse kinematics that stays on its branch, by Newton iterations from a nearby posture.

The step of a redundant arm is the quadratic programme

    min ½ |Δq − b|²  subject to  J Δq = error,  lower ≤ q + Δq ≤ upper

which satisfies position limits exactly and moves the null space towards b (Escande, Mansard,
Wieber, Hierarchical quadratic programming, IJRR 33(7), 2014, doi:10.1177/0278364914521306). The
solution of an arm without redundancy is unique; it is followed past limits too, so that a refusal
can state by how much.
"""

from __future__ import annotations

from dataclasses import dataclass

import daqp
import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.leveling.model import LevelingTask

_ITERATIONS = 8
_POINT_TOLERANCE, _TURN_TOLERANCE = 1e-8, 1e-8
_EQUAL, _BOUND = 5, 0


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
        bias: Preferred step, shape (n,) [rad]; None for none.
        room: Bounds of the step, which count for a redundant arm; None or infinite for none.

    """
    rows, n = jacobian.shape
    if n <= rows or room is None or not np.isfinite((room.lower, room.upper)).any():
        step = np.array(np.linalg.lstsq(jacobian, error, rcond=None)[0])
        if n > rows and bias is not None:
            step += bias - np.linalg.lstsq(jacobian, jacobian @ bias, rcond=None)[0]
        return step
    upper = np.concatenate((room.upper, error))
    lower = np.concatenate((room.lower, error))
    sense = np.array([_BOUND] * n + [_EQUAL] * rows, dtype=np.int32)
    slope = np.zeros(n) if bias is None else -bias
    found, _, flag, _ = daqp.solve(
        np.eye(n), slope, np.ascontiguousarray(jacobian), upper, lower, sense)
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
