# SPDX-License-Identifier: Apache-2.0
"""RViz markers of leveling: current and target frame, transition poses and ghost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from geometry_msgs.msg import Point
from std_msgs.msg import ColorRGBA
from visualization_msgs.msg import Marker, MarkerArray

from robocal_ros.arrays import Array
from robocal_ros.leveling.model import Tool
from robocal_ros.leveling.plan import LevelPlan

_AXES = ((0.9, 0.15, 0.15), (0.15, 0.75, 0.2), (0.2, 0.35, 0.95))
_CURRENT, _TARGET, _BETWEEN = 0.12, 0.20, 0.06
_GHOSTS = 8
_GHOST = (0.2, 0.6, 0.95)


def leveling_markers(tool: Tool, start: Array, plan: LevelPlan, max_step: float) -> MarkerArray:
    """Return the markers of a plan, in the robot's root frame.

    Args:
        tool: Forward kinematics.
        start: Initial posture, shape (n,) [rad].
        plan: The plan; without a motion, only the current frame is shown.
        max_step: Largest turn between two transition poses [rad].

    """
    root = tool.robot.root_frame
    rotation, point = tool.pose(start)
    cleared = Marker(action=Marker.DELETEALL)
    cleared.header.frame_id = root
    markers = [cleared, _frames(root, 'current_frame', [rotation], point, _CURRENT, 0.010)]
    task, path = plan.task, plan.path
    if task is not None and path is not None:
        between = list(task.transition_poses(max_step))
        markers += [
            _frames(root, 'target_frame', [task.orientation(1.0)], point, _TARGET, 0.014),
            _frames(root, 'transition_poses', between, point, _BETWEEN, 0.004),
            *_ghosts(root, tool, path.positions),
            _path_of_z(root, tool, path.positions),
        ]
    return MarkerArray(markers=markers)


def _marker(root: str, name: str, number: int, kind: int, width: float) -> Marker:
    marker = Marker(ns=name, id=number, type=kind, action=Marker.ADD)
    marker.header.frame_id = root
    marker.pose.orientation.w = 1.0
    marker.scale.x = width
    return marker


def _frames(
    root: str, name: str, rotations: Sequence[Array], point: Array, length: float, width: float
) -> Marker:
    """Return frames at one point as red, green and blue axes."""
    marker = _marker(root, name, 0, Marker.LINE_LIST, width)
    for rotation in rotations:
        for axis, (red, green, blue) in zip(rotation.T, _AXES, strict=True):
            marker.points += [_point(point), _point(point + length * axis)]
            marker.colors += [ColorRGBA(r=red, g=green, b=blue, a=1.0)] * 2
    marker.color.a = 1.0
    return marker


def _ghosts(root: str, tool: Tool, positions: Array) -> list[Marker]:
    """Return stick figures of the arm along the path, increasingly opaque."""
    rows = np.unique(np.linspace(0, len(positions) - 1, _GHOSTS).round().astype(int))
    ghosts = []
    for number, row in enumerate(rows):
        marker = _marker(root, 'ghost', number, Marker.LINE_STRIP, 0.012)
        marker.points = [_point(point) for point in tool.skeleton(positions[row])]
        marker.color.r, marker.color.g, marker.color.b = _GHOST
        marker.color.a = 0.15 + 0.55 * number / max(len(rows) - 1, 1)
        ghosts.append(marker)
    return ghosts


def _path_of_z(root: str, tool: Tool, positions: Array) -> Marker:
    """Return the path of the tip of the tool's z axis."""
    marker = _marker(root, 'ghost_path', 0, Marker.LINE_STRIP, 0.005)
    rotations, points = tool.poses(positions)
    marker.points = [_point(tip) for tip in points + _TARGET * rotations[:, :, 2]]
    marker.color.r, marker.color.g, marker.color.b, marker.color.a = 0.95, 0.8, 0.1, 1.0
    return marker


def _point(vector: Array) -> Point:
    x, y, z = (float(value) for value in vector)
    return Point(x=x, y=y, z=z)
