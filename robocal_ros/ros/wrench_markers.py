# SPDX-License-Identifier: Apache-2.0
"""What RViz shows of a contact: force, line of action, contact point."""

from __future__ import annotations

from geometry_msgs.msg import Point
from visualization_msgs.msg import Marker

from robocal_ros.core.arrays import Array
from robocal_ros.core.wrench.contact import Contact
from robocal_ros.ros import conversions

# Length of an arrow per force [m/N], and half the drawn length of a line of action [m].
_SCALE = 0.005
_LINE = 0.4
# Markers vanish by themselves after so long [s].
_LIFETIME = 0.3


def _marker(
    frame: str, name: str, number: int, kind: int, colour: tuple[float, float, float, float],
    width: float,
) -> Marker:
    marker = Marker(ns=name, id=number, type=kind, action=Marker.ADD)
    marker.header.frame_id = frame
    marker.frame_locked = True
    marker.pose.orientation.w = 1.0
    marker.scale.x = width
    marker.color.r, marker.color.g, marker.color.b, marker.color.a = colour
    marker.lifetime = conversions.to_duration(_LIFETIME)
    return marker


def _point(values: Array) -> Point:
    x, y, z = (float(value) for value in values)
    return Point(x=x, y=y, z=z)


def contact_markers(frame: str, number: int, contact: Contact, force: float) -> list[Marker]:
    """Return arrow, line of action and contact point.

    Args:
        frame: The link's frame.
        number: The link's number, which keeps markers of links apart.
        contact: The contact, in that frame.
        force: Magnitude of the force [N].

    """
    line = _marker(frame, 'line_of_action', number, Marker.LINE_LIST, (0.6, 0.6, 0.6, 0.8), 0.003)
    line.points = [_point(contact.line_point - _LINE * contact.direction),
                   _point(contact.line_point + _LINE * contact.direction)]
    tip = contact.line_point if contact.point is None else contact.point
    arrow = _marker(frame, 'external_force', number, Marker.ARROW, (0.9, 0.15, 0.1, 1.0), 0.012)
    arrow.scale.y, arrow.scale.z = 0.028, 0.03
    arrow.points = [_point(tip - _SCALE * force * contact.direction), _point(tip)]
    if contact.point is None:
        return [line, arrow]
    ball = _marker(frame, 'contact_point', number, Marker.SPHERE_LIST, (1.0, 0.85, 0.1, 1.0),
                   0.02)
    ball.scale.y = ball.scale.z = 0.02
    ball.points = [_point(contact.point)]
    return [line, arrow, ball]
