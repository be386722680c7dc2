# SPDX-License-Identifier: Apache-2.0
"""Pictures of leveling: the arm from the side with its tool's axes, and the course over time."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from robocal_ros.core.arrays import Array
from robocal_ros.core.leveling import Tool

_AXES = (('x', '#d55e00'), ('y', '#009e73'), ('z', '#0072b2'))
_ARM, _VERTICAL = '#7f7f7f', '#cc79a7'
_LENGTH, _PLUMB = 0.2, 0.45


def picture(tool: Tool, q: Array) -> go.Figure:
    """Draw the arm from the side: seen across the vertical plane through base and tool point.

    Args:
        tool: Forward kinematics.
        q: Posture, shape (n,) [rad].

    """
    rotation, point = tool.pose(q)
    ahead = np.array([point[0], point[1], 0.0])
    length = float(np.linalg.norm(ahead))
    ahead = ahead / length if length > 1e-6 else np.array([1.0, 0.0, 0.0])

    def seen(points: Array) -> tuple[Array, Array]:
        return points @ ahead, points[:, 2]

    across, height = seen(tool.skeleton(q))
    here = seen(point[None])
    drawing = go.Figure([
        go.Scatter(x=across, y=height, mode='lines+markers', name='arm',
                   line={'color': _ARM, 'width': 6}, marker={'size': 9, 'color': _ARM}),
        go.Scatter(x=[here[0][0]] * 2, y=[here[1][0] - _PLUMB, here[1][0] + _PLUMB], mode='lines',
                   name='vertical', line={'color': _VERTICAL, 'width': 1.5, 'dash': 'dot'}),
    ])
    for (name, colour), axis in zip(_AXES, rotation.T, strict=True):
        x, y = seen(np.stack((point, point + _LENGTH * axis)))
        drawing.add_scatter(x=x, y=y, mode='lines', name=f"tool's {name}",
                            line={'color': colour, 'width': 4})
    drawing.update_layout(
        template='none', margin={'l': 50, 'r': 10, 't': 8, 'b': 40},
        legend={'orientation': 'h', 'x': 0, 'y': 1.02, 'yanchor': 'bottom'},
        xaxis={'title': {'text': 'ahead [m]'}, 'scaleanchor': 'y', 'zeroline': False},
        yaxis={'title': {'text': 'height [m]'}, 'zeroline': True})
    return drawing


def course(time: Array, tilts: Array, drifts: Array) -> go.Figure:
    """Draw tilt and drift over time.

    Args:
        time: Shape (k,) [s].
        tilts: Tilt of the tool, shape (k,) [rad].
        drifts: Drift of the tool point, shape (k,) [m].

    """
    # A picture of some hundred points shows what thousands would.
    rows = np.unique(np.linspace(0, len(time) - 1, 600).round().astype(int))
    tilt_name, drift_name = 'tilt [°]', 'drift [mm]'
    drawing = go.Figure([
        go.Scatter(x=time[rows], y=np.degrees(tilts[rows]), mode='lines', name=tilt_name,
                   line={'color': _AXES[2][1], 'width': 2}),
        go.Scatter(x=time[rows], y=1e3 * drifts[rows], mode='lines', name=drift_name, yaxis='y2',
                   line={'color': _AXES[0][1], 'width': 2}),
    ])
    drawing.update_layout(
        template='none', margin={'l': 60, 'r': 60, 't': 8, 'b': 45},
        legend={'orientation': 'h', 'x': 0, 'y': 1.02, 'yanchor': 'bottom'},
        xaxis={'title': {'text': 'time [s]'}}, yaxis={'title': {'text': tilt_name}},
        yaxis2={'title': {'text': drift_name}, 'overlaying': 'y', 'side': 'right',
                'showgrid': False, 'rangemode': 'tozero'})
    return drawing
