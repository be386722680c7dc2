# SPDX-License-Identifier: Apache-2.0
"""Which orientation is level: headings, directions, and what to do where they are undefined.

Rotations map tool coordinates to the root frame; their columns are the tool's axes. A turn is a
rotation vector in root axes that leads from the current orientation to the level one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pinocchio as pin
import scipy

from robocal_ros.core.arrays import Array, frozen
from robocal_ros.errors import ConfigurationError

HEADINGS = ('nearest', 'x', 'y', 'free')
"""What becomes of the heading: least turn, kept direction of an axis, or whatever suits."""

DIRECTIONS = ('up', 'down', 'nearest')
"""Where the tool's z axis is to point, along the reference's z axis."""

TIE = 2e-3
"""Two choices whose angles differ by less are a tie: more than the noise of encoders [rad]."""

SHORTEST_PROJECTION = 0.05
"""A projected axis shorter than this (3° off the vertical) defines no heading."""

_AXES_OF_A_TIE = 24


@dataclass(frozen=True)
class LevelTarget:
    """One way to become level.

    Attributes:
        rotation: Level orientation, shape (3, 3).
        turn: Rotation vector from the current orientation to it, root axes, shape (3,) [rad].
        up: Whether z points along the reference axis rather than against it.
        note: What the user should know of how it was chosen; empty for nothing.

    """

    rotation: Array
    turn: Array
    up: bool
    note: str = ''

    @property
    def angle(self) -> float:
        """Angle of the turn [rad]."""
        return float(np.linalg.norm(self.turn))


def angle_between(first: Array, second: Array) -> float:
    """Return the angle between two vectors, exact for small angles too [rad]."""
    return float(np.arctan2(np.linalg.norm(np.cross(first, second)), first @ second))


def tilt(rotation: Array, axis: Array, direction: str) -> float:
    """Return how far the tool's z axis is from where it should point [rad].

    Args:
        rotation: Orientation of the tool, shape (3, 3).
        axis: The reference's z axis, unit vector, shape (3,).
        direction: One of ``DIRECTIONS``.

    """
    above = angle_between(rotation[:, 2], axis)
    return {'up': above, 'down': np.pi - above, 'nearest': min(above, np.pi - above)}[direction]


def level_targets(
    rotation: Array, axis: Array, *, heading: str = 'nearest', direction: str = 'nearest'
) -> list[LevelTarget]:
    """Return the level orientations that fit, several of them only where there is a tie.

    With ``nearest`` (and ``free``) the target is the level orientation at the least angle: the
    turn that takes z to the vertical about a horizontal axis. Its yaw is the closed form
    atan2(A[1,0] - A[0,1], A[0,0] + A[1,1]) for z up (the maximum of the trace of the rotation
    between the two). With ``x`` or ``y`` that axis keeps the direction of its projection.

    Args:
        rotation: Current orientation of the tool, shape (3, 3).
        axis: The reference's z axis, unit vector in the root frame, shape (3,).
        heading: One of ``HEADINGS``.
        direction: One of ``DIRECTIONS``.

    Raises:
        ConfigurationError: If heading or direction is unknown.

    """
    if heading not in HEADINGS or direction not in DIRECTIONS:
        raise ConfigurationError(
            f"heading is '{heading}' and direction '{direction}'; expected one of "
            f'{", ".join(HEADINGS)} and one of {", ".join(DIRECTIONS)}.')
    targets = []
    for up in _wanted_directions(rotation[:, 2], axis, direction):
        goal = axis if up else -axis
        targets += (_kept_heading(rotation, goal, heading, up) if heading in ('x', 'y')
                    else _least_turns(rotation, goal, up))
    return targets


def _wanted_directions(z: Array, axis: Array, direction: str) -> list[bool]:
    if direction != 'nearest':
        return [direction == 'up']
    above = angle_between(z, axis)
    if abs(above - 0.5 * np.pi) < TIE:
        return [True, False]
    return [above < 0.5 * np.pi]


def _least_turns(rotation: Array, goal: Array, up: bool) -> list[LevelTarget]:
    turn = _shortest(rotation[:, 2], goal)
    if np.linalg.norm(turn) <= np.pi - TIE:
        return [LevelTarget(frozen(pin.exp3(turn) @ rotation), frozen(turn), up)]
    return [_half_turn(rotation, goal, up, number) for number in range(_AXES_OF_A_TIE)]


def _half_turn(rotation: Array, goal: Array, up: bool, number: int) -> LevelTarget:
    """Turn about one of many horizontal axes; all of them are equally near."""
    first = rotation[:, 0] - (rotation[:, 0] @ goal) * goal
    first /= np.linalg.norm(first)
    phase = 2.0 * np.pi * number / _AXES_OF_A_TIE
    normal = np.cos(phase) * first + np.sin(phase) * np.cross(goal, first)
    # The tool is not exactly upside down: what is left after the half turn is taken too.
    about = pin.exp3(np.pi * normal)
    rest = _shortest(about @ rotation[:, 2], goal)
    turn = _rotation_vector(pin.exp3(rest) @ about, normal)
    return LevelTarget(
        frozen(pin.exp3(turn) @ rotation), frozen(turn), up,
        'The tool is upside down, so that every horizontal axis turns it equally far; the one '
        'with the least joint travel was taken.')


def _shortest(z: Array, goal: Array) -> Array:
    """Return the turn about a normal to both that takes one unit vector to the other."""
    normal = np.cross(z, goal)
    length = float(np.linalg.norm(normal))
    return normal * (angle_between(z, goal) / length) if length > 0.0 else np.zeros(3)


def _rotation_vector(rotation: Array, axis: Array | None = None) -> Array:
    """Return a rotation's vector; about half a turn, the one that looks along ``axis``."""
    vector: Array = scipy.spatial.transform.Rotation.from_matrix(rotation).as_rotvec()
    if axis is not None and vector @ axis < 0.0:
        vector = _other_way(vector)
    return vector


def _other_way(turn: Array) -> Array:
    """Return the turn that ends in the same orientation the other way round."""
    return turn * (1.0 - 2.0 * np.pi / float(np.linalg.norm(turn)))


def _kept_heading(rotation: Array, goal: Array, heading: str, up: bool) -> list[LevelTarget]:
    column, note = (0 if heading == 'x' else 1), ''
    projection = _projected(rotation[:, column], goal)
    if np.linalg.norm(projection) < SHORTEST_PROJECTION:
        other = 'y' if heading == 'x' else 'x'
        note = (f"The tool's {heading} axis stands upright and defines no heading; that of "
                f'{other} was kept instead.')
        column = 1 - column
        projection = _projected(rotation[:, column], goal)
    kept = projection / np.linalg.norm(projection)
    x = kept if column == 0 else np.cross(kept, goal)
    level = np.column_stack((x, np.cross(goal, x), goal))
    turn = _rotation_vector(level @ rotation.T)
    if np.linalg.norm(turn) <= np.pi - TIE:
        return [LevelTarget(frozen(level), frozen(turn), up, note)]
    told = (f'{note} Both ways round are equally far; the one with the least joint travel was '
            'taken.').strip()
    return [LevelTarget(frozen(level), frozen(way), up, told) for way in (turn, _other_way(turn))]


def _projected(vector: Array, goal: Array) -> Array:
    return vector - (vector @ goal) * goal
