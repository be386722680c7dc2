# SPDX-License-Identifier: Apache-2.0
"""One compliance fit's data: predictions, weights, and which joints can be told at all."""

from __future__ import annotations

import numpy as np

from robocal_ros.core.arrays import Array
from robocal_ros.core.compliance.model import Target, predicted, target_jacobian
from robocal_ros.core.compliance.sets import Displacements
from robocal_ros.core.least_squares import solve
from robocal_ros.core.robot import Robot
from robocal_ros.errors import DataError, ExcitationError

# A joint whose torque stays below this share of the load's weight at one metre gets none.
_NO_TORQUE = 1e-3
_NO_LEVER = 1e-3
_MAX_CONDITION = 1e4


def believed_angles(data: Displacements, share: float) -> Array:
    """Return the joint angles with the load, as far as the encoders are believed, (k, n) [rad].

    Args:
        data: Displacements.
        share: 1 believes every difference between the sets, 0 none.

    """
    return data.unloaded + share * (data.loaded - data.unloaded)


class Problem:
    """Displacements with their predictions and weights.

    Attributes:
        kept: Which displacements take part, shape (k,).
        seen: Columns of the joints that can be told.
        offset: Whether a common displacement of the tracker is found along.
        angle_std: Scatter of joint angles besides the tracker's scatter [rad].
        encoder_share: By how much the encoders' differences between the sets are believed.

    """

    def __init__(
        self, robot: Robot, loaded: Robot, target: Target, data: Displacements
    ) -> None:
        self.robot, self.loaded, self.target, self.data = robot, loaded, target, data
        self.count, self.rows = data.value.shape
        self.kept = np.ones(self.count, dtype=bool)
        self.offset = data.drifted
        self.seen: list[int] = list(range(robot.n))
        self.jacobians = np.array([
            target_jacobian(robot, q, target)[:self.rows] for q in data.loaded])
        self.angle_std = 0.0
        self.encoder_share = 1.0

    def linearised(self, compliance: Array) -> tuple[Array, Array]:
        """Return prediction (k, d) and slope (k, d, n)."""
        believed = believed_angles(self.data, self.encoder_share)
        both = [predicted(self.robot, self.loaded, self.target, a, b, compliance, self.rows)
                for a, b in zip(self.data.unloaded, believed, strict=True)]
        return np.array([p for p, _ in both]), np.array([s for _, s in both])

    def whitening(self, angle_std: float) -> Array:
        """Return what turns each displacement to unit covariance, shape (k, d, d)."""
        total = self.data.covariance + angle_std**2 * (
            self.jacobians @ self.jacobians.transpose(0, 2, 1))
        return np.linalg.inv(np.linalg.cholesky(total))

    def regressor(self, slope: Array) -> Array:
        """Return the columns that are told apart: joints, then the offset; (k, d, p)."""
        columns = slope[:, :, self.seen]
        if not self.offset:
            return columns
        shift = np.zeros((self.count, self.rows, 3))
        shift[:, :3] = np.eye(3)
        return np.concatenate((columns, shift), axis=2)

    def bounds(self) -> tuple[Array, Array]:
        """Return bounds of the unknowns: compliances are not negative, shape (p,) each."""
        free = 3 if self.offset else 0
        lower = np.concatenate((np.zeros(len(self.seen)), np.full(free, -np.inf)))
        return lower, np.full(len(lower), np.inf)

    @property
    def unknowns(self) -> int:
        """Number of unknowns: seen joints, and the offset."""
        return len(self.seen) + 3 * self.offset

    def freedom(self) -> int:
        """Return how many more measurements are kept than there are unknowns.

        Raises:
            DataError: If there are none.

        """
        kept = int(self.kept.sum())
        if kept * self.rows <= self.unknowns:
            raise DataError(
                f'{kept} postures give {kept * self.rows} measurements, which cannot tell '
                f'{self.unknowns} unknowns with a residual to judge them by; measure at least '
                f'{self.unknowns // self.rows + 2} postures, better 30.')
        return kept * self.rows - self.unknowns


def without_torque(problem: Problem) -> dict[int, str]:
    """Find joints that the load's weight does not turn, or that don't move the target."""
    robot, data = problem.robot, problem.data
    torque = np.array([problem.loaded.gravity_torque(q) - robot.gravity_torque(q)
                       for q in data.loaded])
    weight = _weight(problem.robot, problem.loaded)
    lever = np.linalg.norm(problem.jacobians[:, :3], axis=1)
    blind = {}
    for joint in range(robot.n):
        largest = float(np.abs(torque[:, joint]).max())
        if largest < _NO_TORQUE * weight:
            blind[joint] = (
                f'the weight of the load exerts no torque about it (at most {largest:.2g} N·m): '
                'its axis is parallel to gravity, or the load is centred on it')
        elif float(lever[:, joint].max()) < _NO_LEVER and problem.rows == 3:
            blind[joint] = (
                'the target lies on its axis (at most '
                f'{1e3 * float(lever[:, joint].max()):.2g} mm off), so that it does not move; '
                'mount the target off the axis')
    return blind


def _weight(robot: Robot, loaded: Robot) -> float:
    masses = [sum(inertia.mass for inertia in model.inertias)
              for model in (robot.model, loaded.model)]
    return float((masses[1] - masses[0]) * np.linalg.norm(robot.gravity))


def drop_blind(problem: Problem, white: Array, blind: dict[int, str]) -> float:
    """Take joints out that cannot be told from others; return the condition of the rest."""
    names = problem.robot.joint_names
    _, slope = problem.linearised(np.zeros(problem.robot.n))
    while problem.seen:
        columns = (white @ problem.regressor(slope)).reshape(-1, len(problem.bounds()[0]))
        labels = [names[i] for i in problem.seen] + ['x', 'y', 'z'][:3 * problem.offset]
        try:
            return solve(columns, np.zeros(len(columns)), 1.0, labels,
                         max_condition=_MAX_CONDITION).condition
        except ExcitationError as error:
            together = [i for i in problem.seen if names[i] in error.blind] or problem.seen[-1:]
            told = ', '.join(names[i] for i in together)
            for joint in together:
                problem.seen.remove(joint)
                blind[joint] = (f'in these postures the effects of {told} cannot be told apart '
                                f'(condition number {error.condition:.2g})')
    raise ExcitationError(
        "No joint's compliance can be told from these postures and this load: "
        + '; '.join(f"'{names[i]}': {reason}" for i, reason in sorted(blind.items())) + '.',
        needed=problem.robot.n, blind=tuple(names[i] for i in blind))
