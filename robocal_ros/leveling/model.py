# SPDX-License-Identifier: Apache-2.0
"""Leveling task: reference axis, level orientations, kinematics of the tool, and path of the tool.

Rotations map tool coordinates to the root frame; their columns are the tool's axes. A turn is a
rotation vector in root axes from the current orientation to the level one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pinocchio as pin
import scipy

from robocal_ros.arrays import Array, frozen
from robocal_ros.errors import ConfigurationError
from robocal_ros.robot import Robot, level_axes, link_of, parse_urdf

BASE, GRAVITY = 'base', 'gravity'


def base_frame(robot: Robot) -> str:
    """Return the frame of the link that carries the first joint."""
    joint = next(joint for joint in parse_urdf(robot.urdf).iterfind('joint')
                 if joint.get('name') == robot.joint_names[0])
    return link_of(joint, 'parent')


def reference_axis(robot: Robot, reference: str) -> Array:
    """Return the reference's z axis in the root frame, a unit vector of shape (3,).

    Args:
        robot: The arm.
        reference: ``base`` (link that carries the first joint), ``gravity`` (opposite to it), or
            a frame of the URDF that does not move with the arm.

    Raises:
        ConfigurationError: If the frame does not exist or moves, or gravity is zero.

    """
    if reference == GRAVITY:
        strength = float(np.linalg.norm(robot.gravity))
        if strength < 1e-3:
            raise ConfigurationError(
                "reference is 'gravity', but the parameter gravity is zero; give gravity in the "
                'root frame, or another reference.')
        return frozen(-robot.gravity / strength)
    frame = base_frame(robot) if reference == BASE else reference
    placement = fixed_placement(robot, frame, 'reference', f", '{BASE}' or '{GRAVITY}'")
    return frozen(placement.rotation[:, 2])


def fixed_placement(robot: Robot, frame: str, parameter: str, others: str = '') -> pin.SE3:
    """Return the pose of a frame in the root frame.

    Args:
        robot: The arm.
        frame: The frame.
        parameter: Name of the parameter that names it.
        others: What else the parameter may be, in words.

    Raises:
        ConfigurationError: If the frame does not exist, or moves with the arm.

    """
    if robot.model.frames[robot.frame_id(frame)].parentJoint != 0:
        raise ConfigurationError(f"{parameter} names the frame '{frame}', which moves with the "
                                 f'arm; name a fixed frame{others}.')
    return robot.transform_frame_to_root(np.zeros(robot.n), frame)


HEADINGS = ('nearest', 'x', 'y', 'free')
"""Headings: smallest turn, kept direction of an axis, or unconstrained."""

DIRECTIONS = ('up', 'down', 'nearest')
"""Directions of the tool's z axis relative to the reference's z axis."""

TIE = 2e-3
"""Difference of angles below which two targets are a tie, above encoder noise [rad]."""

SHORTEST_PROJECTION = 0.05
"""Length of a projected axis below which it defines no heading (3° off the vertical)."""

_AXES_OF_A_TIE = 24


class LevelTarget:
    """A level orientation and the turn to it.

    Attributes:
        rotation: Level orientation, shape (3, 3).
        turn: Rotation vector from the current orientation to it, root axes, shape (3,) [rad].
        angle: Angle of the turn [rad].
        up: Whether z points along the reference axis rather than against it.
        note: Explanation of the choice for the user; empty for none.

    """

    def __init__(self, rotation: Array, turn: Array, up: bool, note: str = '') -> None:
        """Turn an orientation of shape (3, 3); other arguments as above."""
        self.rotation, self.turn = frozen(pin.exp3(turn) @ rotation), frozen(turn)
        self.angle, self.up, self.note = float(np.linalg.norm(turn)), up, note


def angle_between(first: Array, second: Array) -> float:
    """Return the angle between two vectors, accurate for small angles [rad]."""
    return float(np.arctan2(np.linalg.norm(np.cross(first, second)), first @ second))


def tilt(rotation: Array, axis: Array, direction: str) -> float:
    """Return the angle between the tool's z axis and its target [rad].

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
    """Return the level orientations, several of them only for a tie.

    With ``nearest`` (and ``free``) the target is the level orientation at the smallest angle: the
    turn takes z to the vertical about a horizontal axis. For z up its yaw is
    atan2(A[1,0] - A[0,1], A[0,0] + A[1,1]), which maximises the trace of the rotation between
    both. With ``x`` or ``y`` that axis keeps the direction of its projection.

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
    above = angle_between(rotation[:, 2], axis)
    if direction != 'nearest':
        wanted = [direction == 'up']
    else:
        wanted = [True, False] if abs(above - 0.5 * np.pi) < TIE else [above < 0.5 * np.pi]
    for up in wanted:
        goal = axis if up else -axis
        targets += (_kept_heading(rotation, goal, heading, up) if heading in ('x', 'y')
                    else _least_turns(rotation, goal, up))
    return targets


def _least_turns(rotation: Array, goal: Array, up: bool) -> list[LevelTarget]:
    """Return the smallest turn, or those about several equally near horizontal axes."""
    turn = _shortest(rotation[:, 2], goal)
    if np.linalg.norm(turn) <= np.pi - TIE:
        return [LevelTarget(rotation, turn, up)]
    first = _projected(rotation[:, 0], goal)
    first /= np.linalg.norm(first)
    targets = []
    for phase in 2.0 * np.pi * np.arange(_AXES_OF_A_TIE) / _AXES_OF_A_TIE:
        normal = np.cos(phase) * first + np.sin(phase) * np.cross(goal, first)
        # Add the remaining turn, because the tool is not exactly upside down.
        about = pin.exp3(np.pi * normal)
        turn = _rotation_vector(pin.exp3(_shortest(about @ rotation[:, 2], goal)) @ about)
        if turn @ normal < 0.0:
            turn = _opposite_turn(turn)
        targets.append(LevelTarget(
            rotation, turn, up,
            'The tool is upside down, so that the turn is equally large about every horizontal '
            'axis; the one with the least joint travel was selected.'))
    return targets


def _shortest(z: Array, goal: Array) -> Array:
    """Return the smallest turn that takes one unit vector to the other, also to its opposite."""
    return np.array(pin.log3(pin.Quaternion.FromTwoVectors(z, goal).matrix()))


def _rotation_vector(rotation: Array) -> Array:
    """Return the rotation vector, accurate also near half a turn."""
    return np.asarray(scipy.spatial.transform.Rotation.from_matrix(rotation).as_rotvec())


def _opposite_turn(turn: Array) -> Array:
    """Return the turn in the opposite direction to the same orientation."""
    return turn * (1.0 - 2.0 * np.pi / float(np.linalg.norm(turn)))


def _kept_heading(rotation: Array, goal: Array, heading: str, up: bool) -> list[LevelTarget]:
    column, note = (0 if heading == 'x' else 1), ''
    projection = _projected(rotation[:, column], goal)
    if np.linalg.norm(projection) < SHORTEST_PROJECTION:
        other = 'y' if heading == 'x' else 'x'
        note = (f"The tool's {heading} axis is vertical and defines no heading; that of {other} "
                'was kept instead.')
        column = 1 - column
        projection = _projected(rotation[:, column], goal)
    kept = projection / np.linalg.norm(projection)
    x = kept if column == 0 else np.cross(kept, goal)
    level = np.column_stack((x, np.cross(goal, x), goal))
    turn = _rotation_vector(level @ rotation.T)
    if np.linalg.norm(turn) <= np.pi - TIE:
        return [LevelTarget(rotation, turn, up, note)]
    note = (f'{note} Both directions of the turn are equally far; the one with the least joint '
            'travel was selected.').strip()
    return [LevelTarget(rotation, either, up, note) for either in (turn, _opposite_turn(turn))]


def _projected(vector: Array, goal: Array) -> Array:
    return vector - (vector @ goal) * goal


class Tool:
    """Forward kinematics of a point of the tool.

    Attributes:
        robot: Copy of the arm.
        point: The point in the tool frame, shape (3,) [m].
        length: Half the length of the stretched arm, which scales metres to radians in singular
            values [m].

    """

    def __init__(self, robot: Robot, point: Sequence[float] = (0.0, 0.0, 0.0)) -> None:
        """Initialise.

        Args:
            robot: The arm.
            point: Point that is held, in the tool frame [m].

        Raises:
            ConfigurationError: If the point is not three finite numbers.

        """
        self.point = frozen(point)
        if self.point.shape != (3,) or not np.isfinite(self.point).all():
            raise ConfigurationError(
                f'tool_point must be three finite numbers in m, got {list(point)}.')
        self.robot = robot.copy()
        model = robot.model
        offsets = [placement.translation for placement in list(model.jointPlacements)[2:]]
        flange = model.frames[robot.frame_id(robot.tool_frame)]
        offsets.append(flange.placement.act(self.point))
        self.length = max(0.5 * sum(float(np.linalg.norm(offset)) for offset in offsets), 1e-2)

    def pose(self, q: Array) -> tuple[Array, Array]:
        """Return orientation (3, 3) and held point (3,) [m] in the root frame.

        Args:
            q: Joint angles, shape (n,) [rad].

        """
        placement = self.robot.transform_frame_to_root(q, self.robot.tool_frame)
        return placement.rotation.copy(), placement.act(self.point)

    def poses(self, positions: Array) -> tuple[Array, Array]:
        """Return orientations (k, 3, 3) and held points (k, 3) of postures of shape (k, n)."""
        found = [self.pose(q) for q in positions]
        return np.array([pose[0] for pose in found]), np.array([pose[1] for pose in found])

    def skeleton(self, q: Array) -> Array:
        """Return base, joints, tool frame and held point, as a stick figure of the arm.

        Args:
            q: Joint angles, shape (n,) [rad].

        Returns:
            Points in the root frame, shape (n + 3, 3) [m].

        """
        placement = self.robot.transform_frame_to_root(q, self.robot.tool_frame)
        joints = [joint.translation for joint in list(self.robot.data.oMi)[1:]]
        return np.array([np.zeros(3), *joints, placement.translation, placement.act(self.point)])

    def least_singular_value(self, jacobian: Array) -> float:
        """Return the smallest singular value of the Jacobian, linear rows divided by ``length``.

        It is 0 at a singularity and about 1 in the best posture (Yoshikawa, Foundations of
        Robotics, sec. 4.3).
        """
        return float(np.linalg.svd(self.scaled(jacobian), compute_uv=False)[-1])

    def scaled(self, rows: Array) -> Array:
        """Return a copy of task rows, the linear ones, which come first, over ``length``."""
        scaled = rows.copy()
        scaled[:3] /= self.length
        return scaled


class LevelingTask:
    """Turn of the tool about one axis (SLERP) with its tool point held in place.

    Shares of the turn run from 0 to 1. With a free heading only the tool's z axis follows the
    turn; rotation about the reference axis is unconstrained.

    Attributes:
        tool: Forward kinematics.
        start: Posture at share 0, shape (n,) [rad].
        point: Position of the tool point, shape (3,) [m].
        target: Level orientation and the turn to it.
        rows: Number of constraints on a posture: 6, or 5 with a free heading.
        redundancy: Degrees of freedom beyond those of the task; negative if there are too few.
        free_heading: Whether rotation about the reference axis is unconstrained.
        across: Two unit vectors normal to the reference axis, shape (2, 3).

    """

    def __init__(
        self, tool: Tool, start: Array, target: LevelTarget, axis: Array, *,
        free_heading: bool = False,
    ) -> None:
        """Initialise.

        Args:
            tool: Forward kinematics.
            start: Current posture, shape (n,) [rad].
            target: Level orientation and the turn to it.
            axis: The reference's z axis in the root frame, shape (3,).
            free_heading: Whether rotation about that axis is unconstrained.

        """
        self.tool = tool
        self.start = start
        self.target = target
        self._first, self.point = tool.pose(start)
        self._axis = axis
        self.free_heading = free_heading
        self.across = level_axes(axis)
        self.rows = 5 if free_heading else 6
        self.redundancy = tool.robot.n - self.rows

    def orientation(self, share: float) -> Array:
        """Return the orientation at a share of the turn, shape (3, 3)."""
        return pin.exp3(share * self.target.turn) @ self._first

    def transition_poses(self, max_step: float) -> Array:
        """Return the orientations between start and target, at least one, shape (k, 3, 3).

        Args:
            max_step: Largest angle between neighbours [rad].

        """
        count = max(1, int(np.ceil(self.target.angle / max_step)) - 1)
        shares = np.arange(1, count + 1) / (count + 1)
        return np.array([self.orientation(share) for share in shares])

    def linearised(self, q: Array, share: float) -> tuple[Array, Array, Array]:
        """Return the task error at a posture, its Jacobian, and the tool's full Jacobian.

        Args:
            q: Joint angles, shape (n,) [rad].
            share: Share of the turn.

        Returns:
            Task error, shape (rows,) [m, rad]; Jacobian that maps joint steps to it, shape
            (rows, n); Jacobian of the tool, shape (6, n).

        """
        tool = self.tool
        rotation, point, jacobian = tool.robot.pose_and_jacobian(
            q, tool.robot.tool_frame, tool.point)
        wanted = self.orientation(share)
        error = np.empty(self.rows)
        error[:3] = self.point - point
        if not self.free_heading:
            error[3:] = pin.log3(wanted @ rotation.T)
            return error, jacobian, jacobian
        now = rotation @ (wanted.T @ self._axis)
        error[3:] = self.across @ np.cross(now, self._axis)
        return error, np.vstack((jacobian[:3], self.across @ jacobian[3:])), jacobian

    def drift(self, q: Array) -> float:
        """Return the distance of the tool point from its held position [m]."""
        return float(np.linalg.norm(self.tool.pose(q)[1] - self.point))
