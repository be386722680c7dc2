# SPDX-License-Identifier: Apache-2.0
"""The arm from the side and from above, with pushes as they were given and as they were seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from robocal_ros.core.arrays import Array
from robocal_ros.core.robot import Robot

# Length of an arrow per force [m/N].
_SCALE = 0.006
_TRUE, _SEEN, _ARM = '#009e73', '#d55e00', '#9a9a9a'
_VIEWS = (('side view', 0, 2, 'x [m]', 'z [m]'), ('top view', 0, 1, 'x [m]', 'y [m]'))


@dataclass(frozen=True)
class SeenPush:
    """One push, as it was given and as it was observed, in the frame of its link.

    Attributes:
        link: The pushed link.
        point: Where it was pushed, shape (3,) [m].
        force: With what, shape (3,) [N].
        seen_link: On which link a contact was told, empty for none.
        seen_point: Where, shape (3,) [m].
        seen_force: With what, shape (3,) [N].

    """

    link: str
    point: Array
    force: Array
    seen_link: str
    seen_point: Array
    seen_force: Array

    @property
    def point_error(self) -> float:
        """Distance of the two points [m]."""
        return float(np.linalg.norm(self.seen_point - self.point))

    @property
    def force_error(self) -> float:
        """Size of the difference of the two forces [N]."""
        return float(np.linalg.norm(self.seen_force - self.force))


def pictures(
    robot: Robot, posture: Array, links: Sequence[str], pushes: Sequence[SeenPush]
) -> tuple[tuple[str, go.Figure], ...]:
    """Return side and top view, with titles.

    Args:
        robot: The arm.
        posture: Joint angles during the pushes, shape (n,) [rad].
        links: Links whose origins are joined to draw the arm, from the base to the tip.
        pushes: The pushes.

    """
    origins = np.array([robot.transform_frame_to_root(posture, link).translation
                        for link in links])
    return tuple(
        (f'Pushes, {title}', _view(robot, posture, origins, pushes, first, second, labels))
        for title, first, second, *labels in _VIEWS)


def _view(
    robot: Robot, posture: Array, origins: Array, pushes: Sequence[SeenPush], first: int,
    second: int, labels: Sequence[str],
) -> go.Figure:
    drawing = go.Figure(go.Scatter(
        x=origins[:, first], y=origins[:, second], mode='lines+markers', name='arm',
        line={'width': 14, 'color': _ARM, 'shape': 'linear'},
        marker={'size': 16, 'color': '#5f5f5f'}, hoverinfo='skip'))
    for name, colour, width in (('pushed', _TRUE, 7), ('observed', _SEEN, 2.5)):
        # The entry of the legend; arrows are annotations.
        drawing.add_trace(go.Scatter(x=[None], y=[None], mode='lines', name=name,
                                     line={'color': colour, 'width': width}))
        for push in pushes:
            point, force = ((push.point, push.force) if name == 'pushed'
                            else (push.seen_point, push.seen_force))
            placement = robot.transform_frame_to_root(posture, push.link)
            head = placement.act(np.array(point))
            tail = head - _SCALE * (placement.rotation @ force)
            drawing.add_annotation(
                x=head[first], y=head[second], ax=tail[first], ay=tail[second], xref='x',
                yref='y', axref='x', ayref='y', showarrow=True, arrowhead=2, arrowcolor=colour,
                arrowwidth=width, arrowsize=1.0 if width < 4 else 0.6, text='')
    drawing.update_layout(
        template='none', margin={'l': 60, 'r': 10, 't': 8, 'b': 45},
        legend={'orientation': 'h', 'x': 0, 'y': 1.02, 'yanchor': 'bottom'},
        xaxis={'title': {'text': labels[0]}},
        yaxis={'title': {'text': labels[1]}, 'scaleanchor': 'x', 'scaleratio': 1})
    return drawing
