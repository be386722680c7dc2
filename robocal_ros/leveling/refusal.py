# SPDX-License-Identifier: Apache-2.0
"""Why there is no way, in a sentence: which joint and by how much, or which freedom is missing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import MotionError
from robocal_ros.leveling.inverse_kinematics import Bounds
from robocal_ros.leveling.model import LevelingTask
from robocal_ros.leveling.path import Obstacle, Way, WayRules, follow

_ALIGNED = 0.99
_HELD = 'The arm was not moved.'


@dataclass(frozen=True)
class Refusal:
    """Why a way ends before its end.

    Attributes:
        obstacle: What is in the way.
        share: Share of the way that can be reached.
        sentence: All of it in words.

    """

    obstacle: Obstacle
    share: float
    sentence: str


class LevelingRefusal(MotionError):
    """Leveling that was refused because there is no way.

    Attributes:
        refusal: Why.

    """

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f'{refusal.sentence} {_HELD}')
        self.refusal = refusal


def explain(task: LevelingTask, rules: WayRules, way: Way) -> Refusal:
    """Return why a way could not be completed.

    Args:
        task: What was to be done.
        rules: What had to be kept.
        way: The furthest way that was found, with its obstacle.

    """
    free = follow(task, _without_limits(task, rules), bounded=False)
    past = _first_past_limit(free, rules.bounds)
    obstacle = way.obstacle or Obstacle.LIMIT
    if obstacle is Obstacle.COLLISION:
        sentence = _collision(way)
    elif past is not None:
        obstacle, sentence = Obstacle.LIMIT, _limit(task, rules.bounds, free, past, way)
    elif obstacle is Obstacle.FREEDOM:
        sentence = _freedom(task, way)
    elif free.obstacle is None and way.touching:
        obstacle, sentence = Obstacle.COLLISION, _collision(way)
    else:
        obstacle, sentence = Obstacle.SINGULARITY, _singularity(task, way)
    if task.redundancy > 0:
        sentence += _search(way)
    return Refusal(obstacle, way.share, sentence)


def _search(way: Way) -> str:
    if way.cut_short:
        return (f' Other postures of the redundant arm were looked for until search_time ended; '
                f'they get to {_percent(way)}.')
    return f' No other posture of the redundant arm gets further than {_percent(way)}.'


def _without_limits(task: LevelingTask, rules: WayRules) -> WayRules:
    n = task.tool.robot.n
    return WayRules(Bounds(np.full(n, -np.inf), np.full(n, np.inf)), rules.max_step,
                    rules.max_drift, rules.singularity_margin)


def _first_past_limit(free: Way, bounds: Bounds) -> int | None:
    """Return the first row of a way without limits that lies outside of them, or None."""
    outside = np.array([bounds.excess(q).any() for q in free.positions])
    return int(np.argmax(outside)) if outside.any() else None


def _percent(way: Way) -> str:
    return f'{100.0 * way.share:.0f} % of the way'


def _limit(task: LevelingTask, bounds: Bounds, free: Way, row: int, way: Way) -> str:
    robot = task.tool.robot
    joint = int(np.argmax(bounds.excess(free.positions[row])))
    column = free.positions[row:, joint]
    above = free.positions[row, joint] > bounds.upper[joint]
    extreme = float(column.max() if above else column.min())
    limit = float(bounds.upper[joint] if above else bounds.lower[joint])
    end = '' if free.obstacle is None else ' and further'
    share = 100.0 * (way.share if robot.n <= task.rows else free.shares[row])
    return (
        f"Joint '{robot.joint_names[joint]}' reaches its limit of {limit:.3f} rad after "
        f'{share:.0f} % of the way; to level the tool it would have to go to '
        f'{extreme:.3f} rad, {abs(extreme - limit):.3f} rad past it{end}.')


def _collision(way: Way) -> str:
    first, second = way.touching
    return (f"'{first}' touches '{second}' after {_percent(way)}; make room, or bring the tool "
            'nearer to level by hand.')


def _singularity(task: LevelingTask, way: Way) -> str:
    _, _, jacobian = task.linearised(way.positions[-1], way.share)
    scaled = jacobian.copy()
    scaled[:3] /= task.tool.length
    lost = np.linalg.svd(scaled)[0][:, min(jacobian.shape) - 1]
    return (f'After {_percent(way)} the arm comes to the edge of its reach or into a singular '
            f'posture, where it can hardly {_motion(lost)} any more; level the tool in a place '
            'with more room, or from another posture.')


def _freedom(task: LevelingTask, way: Way) -> str:
    robot = task.tool.robot
    missing, jacobian, _ = task.linearised(way.positions[-1], min(1.0, way.share + 1e-3))
    scale = np.concatenate((np.full(3, 1.0 / task.tool.length), np.ones(task.rows - 3)))
    scaled = jacobian * scale[:, None]
    left = missing * scale - scaled @ np.linalg.lstsq(scaled, missing * scale, rcond=None)[0]
    if task.free_heading:
        left = np.concatenate((left[:3], task.across.T @ left[3:]))
        cure = 'tilt the tool the way it can, or use an arm with more joints.'
    else:
        cure = "an arm that may turn the tool about the vertical needs heading 'free'."
    return (f'With {robot.n} joints the arm lacks a freedom that leveling needs here: while the '
            f'tool point is held it cannot {_motion(left)}; {cure}')


def _motion(direction: Array) -> str:
    """Return a velocity of the tool in words: point first, then turn."""
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
