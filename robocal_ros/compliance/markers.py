# SPDX-License-Identifier: Apache-2.0
"""What RViz shows of a compliance calibration: tracker, targets, and how far they sagged."""

from __future__ import annotations

import numpy as np
from geometry_msgs.msg import Point
from visualization_msgs.msg import Marker, MarkerArray

from robocal_ros.arrays import Array

# The longest arrow is drawn this long, whatever the sag [m].
_LONGEST = 0.25


def _marker(frame: str, name: str, kind: int, colour: tuple[float, float, float]) -> Marker:
    made = Marker(ns=name, id=0, type=kind, action=Marker.ADD)
    made.header.frame_id = frame
    made.pose.orientation.w = 1.0
    made.color.r, made.color.g, made.color.b = colour
    made.color.a = 1.0
    return made


def _point(xyz: Array) -> Point:
    return Point(x=float(xyz[0]), y=float(xyz[1]), z=float(xyz[2]))


def sag_markers(frame: str, unloaded: Array, loaded: Array, tracker: Array) -> MarkerArray:
    """Return the target's places, its displacements drawn large, and the tracker.

    Args:
        frame: The root frame.
        unloaded: The target without the load, shape (k, 3) [m].
        loaded: The target with it, shape (k, 3) [m].
        tracker: Where the tracker stands, shape (3,) [m].

    """
    change = loaded - unloaded
    largest = float(np.linalg.norm(change, axis=1).max()) if len(change) else 0.0
    scale = _LONGEST / largest if largest > 0.0 else 1.0
    targets = _marker(frame, 'targets', Marker.SPHERE_LIST, (0.95, 0.45, 0.1))
    targets.scale.x = targets.scale.y = targets.scale.z = 0.012
    targets.points = [_point(xyz) for xyz in unloaded]
    sag = _marker(frame, 'sag', Marker.LINE_LIST, (0.2, 0.5, 0.95))
    sag.scale.x = 0.004
    sag.points = [_point(end) for xyz, move in zip(unloaded, change, strict=True)
                  for end in (xyz, xyz + scale * move)]
    stand = _marker(frame, 'tracker', Marker.CUBE, (0.3, 0.7, 0.3))
    stand.scale.x = stand.scale.y = stand.scale.z = 0.12
    stand.pose.position = _point(tracker)
    caption = _marker(frame, 'sag_caption', Marker.TEXT_VIEW_FACING, (0.9, 0.9, 0.9))
    caption.pose.position = _point(np.array([0.0, 0.0, 1.7]))
    caption.scale.z = 0.06
    caption.text = f'sag × {scale:.0f}, up to {1e6 * largest:.0f} µm'
    return MarkerArray(markers=[targets, sag, stand, caption])
