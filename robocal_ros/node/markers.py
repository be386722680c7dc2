# SPDX-License-Identifier: Apache-2.0
"""What RViz shows of a result."""

from __future__ import annotations

import numpy as np
import scipy
from geometry_msgs.msg import Point
from visualization_msgs.msg import Marker, MarkerArray

from robocal_ros.arrays import Array
from robocal_ros.messages import conversions
from robocal_ros.results.result import CalibrationResult, State

_COM = ('com_x', 'com_y', 'com_z')
# Smallest diameter that can still be seen and clicked [m].
_VISIBLE = 2e-4


def _ellipsoid(
    frame: str, name: str, number: int, centre: Array, axes: Array, diameters: Array,
    colour: tuple[float, float, float, float],
) -> Marker:
    marker = Marker(ns=name, id=number, type=Marker.SPHERE, action=Marker.ADD)
    marker.header.frame_id = frame
    marker.frame_locked = True
    pose = marker.pose
    pose.position.x, pose.position.y, pose.position.z = (float(c) for c in centre)
    if np.linalg.det(axes) < 0.0:
        axes = axes * np.array([1.0, 1.0, -1.0])
    conversions.fill_message(pose.orientation, axes)
    scale = np.maximum(diameters, _VISIBLE)
    marker.scale.x, marker.scale.y, marker.scale.z = (float(d) for d in scale)
    marker.color.r, marker.color.g, marker.color.b, marker.color.a = colour
    return marker


def payload_markers(result: CalibrationResult) -> MarkerArray:
    """Return centre of mass, its 95 % ellipsoid, and the equivalent inertia ellipsoid.

    The inertia ellipsoid is that of a solid ellipsoid with the same mass and inertia; it is
    left out where inertia was not identified.
    """
    com = result.values(_COM)
    rows = [result.covariance_names.index(name) for name in _COM]
    variances, axes = np.linalg.eigh(result.covariance[np.ix_(rows, rows)])
    half = np.sqrt(np.maximum(variances, 0.0) * scipy.special.chdtri(3, 0.05))
    markers = [
        _ellipsoid(result.frame, 'centre_of_mass', 0, com, np.eye(3), np.full(3, 0.012),
                   (0.95, 0.45, 0.1, 1.0)),
        _ellipsoid(result.frame, 'interval_95', 1, com, axes, 2.0 * half, (0.95, 0.8, 0.1, 0.4)),
    ]
    inertia = [result.parameter(f'inertia_{a}') for a in ('xx', 'xy', 'xz', 'yy', 'yz', 'zz')]
    mass = result.parameter('mass').value
    if mass and all(p.state is State.IDENTIFIED and p.value is not None for p in inertia):
        xx, xy, xz, yy, yz, zz = (float(p.value or 0.0) for p in inertia)
        moments, turn = np.linalg.eigh(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]))
        squares = 2.5 / mass * (moments.sum() - 2.0 * moments)
        markers.append(_ellipsoid(
            result.frame, 'equivalent_inertia', 2, com, turn,
            2.0 * np.sqrt(np.maximum(squares, 0.0)), (0.2, 0.5, 0.95, 0.35)))
    return MarkerArray(markers=markers)


def curve_markers(
    frame: str, speed: Array, torque: Array, fine: Array, curve: Array, joint: str
) -> MarkerArray:
    """Return measured points and a curve as a drawing above the robot's base.

    One metre across is the range of speeds, half a metre up the range of torques.

    Args:
        frame: Frame of the drawing.
        speed: Measured speeds, shape (k,) [rad/s].
        torque: Measured torques, shape (k,) [N·m].
        fine: Speeds of the curve, shape (m,) [rad/s].
        curve: Its torques, shape (m,) [N·m].
        joint: Name of the joint, for the caption.

    """
    across, up = float(np.abs(fine).max()), float(np.abs(curve).max())

    def marker(name: str, kind: int, colour: tuple[float, float, float, float]) -> Marker:
        made = Marker(ns=name, id=0, type=kind, action=Marker.ADD)
        made.header.frame_id = frame
        made.pose.position.z = 1.8
        made.pose.orientation.w = 1.0
        made.color.r, made.color.g, made.color.b, made.color.a = colour
        return made

    def points(x: Array, y: Array) -> list[Point]:
        return [Point(x=0.0, y=float(-0.5 * a / across), z=float(0.25 * b / up))
                for a, b in zip(x, y, strict=True)]

    measured = marker('friction_points', Marker.SPHERE_LIST, (0.95, 0.45, 0.1, 1.0))
    measured.scale.x = measured.scale.y = measured.scale.z = 0.015
    measured.points = points(speed, torque)
    fitted = marker('friction_curve', Marker.LINE_STRIP, (0.2, 0.5, 0.95, 1.0))
    fitted.scale.x = 0.006
    fitted.points = points(fine, curve)
    axes = marker('friction_axes', Marker.LINE_LIST, (0.6, 0.6, 0.6, 1.0))
    axes.scale.x = 0.003
    axes.points = [Point(y=-0.5), Point(y=0.5), Point(z=-0.25), Point(z=0.25)]
    caption = marker('friction_caption', Marker.TEXT_VIEW_FACING, (0.9, 0.9, 0.9, 1.0))
    caption.pose.position.z = 2.15
    caption.scale.z = 0.06
    caption.text = f'{joint}: ±{across:.3g} rad/s, ±{up:.3g} N·m'
    return MarkerArray(markers=[measured, fitted, axes, caption])
