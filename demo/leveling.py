# SPDX-License-Identifier: Apache-2.0
"""Leveling tour: level a tilted tool with its point held fixed.

The report shows the arm from the side before, during and after the motion, and tilt and drift over
time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from demo.default_cell import rigid_body
from demo.mover import ArmMover
from demo.stage import Stage
from demo.tour import Tour, TourOutcome, active, answered
from robocal_ros.arrays import Array
from robocal_ros.cli.node_client import NodeClient
from robocal_ros.leveling import Tool, tilt
from robocal_ros.results import LAYOUT, Panel
from robocal_ros.robot import deflected

_TITLE = 'leveling'
_PARAMETERS: dict[str, Any] = {'imu_topic': 'imu_flange/imu', 'imu_frame': 'imu_flange'}
# Postures with a tool tilt of 52°, 26° and 72°; the short tour uses the first.
_POSTURES = (
    (0.5, 0.5, -0.2, -0.8, 0.6, -0.3),
    (0.3, 0.4, 0.3, 0.6, 0.9, 0.2),
    (-0.3, 0.1, 0.0, 0.6, -0.5, -0.9),
)
_VELOCITY, _ACCELERATION = 1.5, 3.0
_TILT_BAR, _DRIFT_BAR = 0.05, 0.5
_UP = np.array([0.0, 0.0, 1.0])


class LevelingTour(Tour):
    """Tilt the tool with another client, level it by one call, and verify with an IMU."""

    capability = 'leveling'

    def run(self, stage: Stage) -> list[TourOutcome]:
        """Run the tour; see `Tour.run`."""
        child, client = stage.start_node('leveling', _PARAMETERS)
        with active(child, client), ArmMover(stage) as mover:
            return [self._leveled(stage, mover, client, posture, title) for title, posture in (
                ((f'{_TITLE} {i}', item) for i, item in enumerate(_POSTURES, 1)) if stage.full
                else ((_TITLE, _POSTURES[0]),))]

    def _leveled(
        self, stage: Stage, mover: ArmMover, client: NodeClient, posture: Sequence[float],
        title: str,
    ) -> TourOutcome:
        mover.move([posture], _VELOCITY, _ACCELERATION)
        mover.start_record_at_rest()
        answer = answered(client, 'level', _TITLE)
        time, encoders = mover.record()
        positions = _links(stage, encoders)
        panel = leveling_panel(Tool(stage.robot), time, positions, answer.message,
                               success=answer.success, title=title)
        return TourOutcome(title, answer.message, None, panel=panel)


def _links(stage: Stage, encoders: Array) -> Array:
    """Return where the links are by the hidden compliance and tool, shape (k, n) [rad].

    The node levels the links: by the encoders, the tool leans by the sag of the joints.
    """
    robot, truth = stage.robot, stage.truth
    compliance = np.array([truth.joints[name].compliance if name in truth.joints else 0.0
                           for name in robot.joint_names])
    carrying = robot if truth.tool is None else robot.with_payload(
        rigid_body(truth.tool), truth.tool.parent or None)
    return np.array([deflected(carrying.gravity_torque, angles, compliance)[0]
                     for angles in encoders])


def leveling_panel(
    tool: Tool, time: Array, positions: Array, message: str, *, success: bool, title: str
) -> Panel:
    """Return table and figures of a leveling motion.

    Args:
        tool: Forward kinematics.
        time: Times of the joint states, shape (k,) [s].
        positions: Angles of the links before, during and after it, shape (k, n) [rad].
        message: Answer of the node.
        success: True if it answered success.
        title: Title of the motion.

    """
    rotations, points = tool.poses(positions)
    tilts = np.array([tilt(rotation, _UP, 'nearest') for rotation in rotations])
    drifts = np.linalg.norm(points - points[0], axis=1)
    middle = int(np.argmin(np.abs(tilts - 0.5 * (tilts[0] + tilts[-1]))))
    seen = re.search(r'The IMU measures a tilt of ([\d.]+)°', message)
    rows = (
        ('true tilt', f'{np.degrees(tilts[0]):.2f}', f'{np.degrees(tilts[-1]):.4f}', '°',
         f'≤ {_TILT_BAR:g}'),
        ('true drift of the tool point', '0', f'{1e3 * drifts[-1]:.3f}', 'mm',
         f'≤ {_DRIFT_BAR:g}'),
        ('tilt measured by the IMU', '', seen[1] if seen else '–', '°', ''),
    )
    good = (success and np.degrees(tilts[-1]) <= _TILT_BAR and 1e3 * drifts[-1] <= _DRIFT_BAR)
    return Panel(
        title.capitalize(), bool(good), message,
        (('', False), ('before', True), ('after', True), ('unit', False), ('bar', True)),
        rows,
        tuple((name, arm_figure(tool, positions[row])) for name, row in (
            ('before', 0), ('on the way', middle), ('after', len(positions) - 1)))
        + (('tilt and drift over time', tilt_figure(time, tilts, drifts)),))


_AXES = (('x', '#d55e00'), ('y', '#009e73'), ('z', '#0072b2'))
_ARM, _VERTICAL = '#7f7f7f', '#cc79a7'
_LENGTH, _PLUMB = 0.2, 0.45


def arm_figure(tool: Tool, q: Array) -> go.Figure:
    """Draw the arm from the side, in the vertical plane through base and tool point.

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
        **LAYOUT, xaxis={'title': {'text': 'ahead [m]'}, 'scaleanchor': 'y', 'zeroline': False},
        yaxis={'title': {'text': 'height [m]'}, 'zeroline': True})
    return drawing


def tilt_figure(time: Array, tilts: Array, drifts: Array) -> go.Figure:
    """Draw tilt and drift over time.

    Args:
        time: Times, shape (k,) [s].
        tilts: Tilt of the tool, shape (k,) [rad].
        drifts: Drift of the tool point, shape (k,) [m].

    """
    rows = np.unique(np.linspace(0, len(time) - 1, 600).round().astype(int))
    tilt_name, drift_name = 'tilt [°]', 'drift [mm]'
    drawing = go.Figure([
        go.Scatter(x=time[rows], y=np.degrees(tilts[rows]), mode='lines', name=tilt_name,
                   line={'color': _AXES[2][1], 'width': 2}),
        go.Scatter(x=time[rows], y=1e3 * drifts[rows], mode='lines', name=drift_name, yaxis='y2',
                   line={'color': _AXES[0][1], 'width': 2}),
    ])
    drawing.update_layout(
        **{**LAYOUT, 'margin': {'l': 60, 'r': 60, 't': 8, 'b': 45}},
        xaxis={'title': {'text': 'time [s]'}}, yaxis={'title': {'text': tilt_name}},
        yaxis2={'title': {'text': drift_name}, 'overlaying': 'y', 'side': 'right',
                'showgrid': False, 'rangemode': 'tozero'})
    return drawing
