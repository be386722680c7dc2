# SPDX-License-Identifier: Apache-2.0
"""Explanation of a refusal: the joint and its excess, the contact, or the missing freedom."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import MotionError
from robocal_ros.leveling.inverse_kinematics import Bounds
from robocal_ros.leveling.model import LevelingTask
from robocal_ros.leveling.path import JointPath, Obstacle, PathRules, follow

_ALIGNED = 0.99
_HELD = 'The arm was not moved.'


@dataclass(frozen=True)
class Refusal:
    """Reason why a path ends early.

    Attributes:
        obstacle: Kind of the obstacle.
        share: Share of the turn that can be reached.
        sentence: Explanation for the user.

    """

    obstacle: Obstacle
    share: float
    sentence: str


class LevelingRefusal(MotionError):
    """Leveling is refused because there is no path.

    Attributes:
        refusal: The reason.

    """

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f'{refusal.sentence} {_HELD}')
        self.refusal = refusal


def explain(task: LevelingTask, rules: PathRules, path: JointPath) -> Refusal:
    """Return the reason why a path is incomplete.

    Args:
        task: The task.
        rules: Constraints.
        path: The path that leads furthest, with its obstacle.

    """
    free = follow(task, _without_limits(task, rules), bounded=False)
    past = _first_past_limit(free, rules.bounds)
    obstacle = path.obstacle or Obstacle.LIMIT
    if obstacle is Obstacle.COLLISION:
        sentence = _collision(path)
    elif past is not None:
        obstacle, sentence = Obstacle.LIMIT, _limit(task, rules.bounds, free, past, path)
    elif obstacle is Obstacle.FREEDOM:
        sentence = _freedom(task, path)
    elif free.obstacle is None and path.touching:
        obstacle, sentence = Obstacle.COLLISION, _collision(path)
    else:
        obstacle, sentence = Obstacle.SINGULARITY, _singularity(task, path)
    if task.redundancy > 0:
        sentence += _search(path)
    return Refusal(obstacle, path.share, sentence)


def _search(path: JointPath) -> str:
    if path.cut_short:
        return (f' The search for other postures of the redundant arm ended at search_time; they '
                f'reach {_percent(path)}.')
    return f' No other posture of the redundant arm reaches more than {_percent(path)}.'


def _without_limits(task: LevelingTask, rules: PathRules) -> PathRules:
    n = task.tool.robot.n
    return PathRules(Bounds(np.full(n, -np.inf), np.full(n, np.inf)), rules.max_step,
                     rules.max_drift, rules.singularity_margin)


def _first_past_limit(free: JointPath, bounds: Bounds) -> int | None:
    """Return the first row of an unlimited path outside the bounds, or None."""
    outside = np.array([bounds.excess(q).any() for q in free.positions])
    return int(np.argmax(outside)) if outside.any() else None


def _percent(path: JointPath) -> str:
    return f'{100.0 * path.share:.0f} % of the turn'


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


def _collision(path: JointPath) -> str:
    first, second = path.touching
    return (f"'{first}' touches '{second}' after {_percent(path)}; make room, or level the tool "
            'further by hand.')


def _singularity(task: LevelingTask, path: JointPath) -> str:
    _, _, jacobian = task.linearised(path.positions[-1], path.share)
    scaled = jacobian.copy()
    scaled[:3] /= task.tool.length
    lost = np.linalg.svd(scaled)[0][:, min(jacobian.shape) - 1]
    return (f'After {_percent(path)} the arm reaches the edge of its workspace or a singular '
            f'posture, in which it can hardly {_motion(lost)}; level the tool elsewhere, or from '
            'another posture.')


def _freedom(task: LevelingTask, path: JointPath) -> str:
    robot = task.tool.robot
    error, jacobian, _ = task.linearised(path.positions[-1], min(1.0, path.share + 1e-3))
    scale = np.concatenate((np.full(3, 1.0 / task.tool.length), np.ones(task.rows - 3)))
    scaled = jacobian * scale[:, None]
    left = error * scale - scaled @ np.linalg.lstsq(scaled, error * scale, rcond=None)[0]
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
    if np.linalg.norm(point) > np.linalg.norm(turn):
        return f'move the tool point along {_axis(point)}'
    return f'turn the tool about {_axis(turn)}'


def _axis(vector: Array) -> str:
    unit = vector / max(float(np.linalg.norm(vector)), 1e-12)
    column = int(np.argmax(np.abs(unit)))
    if abs(unit[column]) > _ALIGNED:
        return f"the root frame's {'xyz'[column]} axis"
    x, y, z = unit * np.sign(unit[column])
    return f"the root frame's direction ({x:.2f}, {y:.2f}, {z:.2f})"
