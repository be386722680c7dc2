# SPDX-License-Identifier: Apache-2.0
"""Leveling tour: level a tilted tool with its point held fixed.

The report shows the arm from the side before, during and after the motion, and tilt and drift over
time.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import plotly.graph_objects as go
from control_msgs.action import FollowJointTrajectory
from rclpy.action import ActionClient
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import JointState

from demo.default_cell import rigid_body
from demo.stage import Stage
from demo.tour import Tour, TourOutcome
from robocal_ros.arrays import Array
from robocal_ros.cli.console import OUT, ProgressView
from robocal_ros.cli.node_client import NodeClient
from robocal_ros.errors import MotionError, RobocalError
from robocal_ros.leveling import Tool, tilt
from robocal_ros.messages import conversions
from robocal_ros.results.report import Panel
from robocal_ros.robot import CollisionChecker, connect, deflected, quintic_path

_TITLE = 'leveling'
_CONTROLLER = 'joint_trajectory_controller'
_PARAMETERS: dict[str, Any] = {'imu_topic': 'imu_flange/imu', 'imu_frame': 'imu_flange'}
# Postures with a tool tilt of 52°, 26° and 72°; the short tour uses the first.
_POSTURES = (
    (0.5, 0.5, -0.2, -0.8, 0.6, -0.3),
    (0.3, 0.4, 0.3, 0.6, 0.9, 0.2),
    (-0.3, 0.1, 0.0, 0.6, -0.5, -0.9),
)
_VELOCITY, _ACCELERATION = 1.5, 3.0
_ANSWER, _MOTION = 20.0, 120.0
# The arm is at rest if it travels less than this [rad] within this time [s].
_REST, _STILL = 0.2, 1e-4
_TILT_BAR, _DRIFT_BAR = 0.05, 0.5
_UP = np.array([0.0, 0.0, 1.0])


class _ArmMover:
    """Another client of the controller: moves the arm and records its joint states."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._names = stage.robot.joint_names
        self._checker = CollisionChecker(stage.robot.copy())
        self._times: list[float] = []
        self._positions: list[Array] = []
        node = stage.session.node
        # A short queue: states that waited in a long one would be outdated.
        self._subscription = node.create_subscription(
            JointState, 'joint_states', self._take, qos_profile_sensor_data)
        self._client: Any = ActionClient(
            node, FollowJointTrajectory, f'{_CONTROLLER}/follow_joint_trajectory')

    def close(self) -> None:
        """Destroy the action client and the subscription."""
        self._client.destroy()
        self._stage.session.node.destroy_subscription(self._subscription)

    def _take(self, message: JointState) -> None:
        if set(self._names) <= set(message.name):
            angles = dict(zip(message.name, message.position, strict=True))
            self._times.append(conversions.seconds(message.header.stamp))
            self._positions.append(np.array([angles[name] for name in self._names]))

    def clear(self) -> None:
        """Start a new record."""
        self._times, self._positions = [], []

    def start_record_at_rest(self) -> None:
        """Start a new record once the arm is at rest.

        Raises:
            MotionError: The arm does not come to rest.

        """
        self.clear()

        def resting() -> bool:
            if not self._times or self._times[-1] - self._times[0] < _REST:
                return False
            if np.ptp(self._positions, axis=0).max() < _STILL:
                return True
            self.clear()
            return False

        if not self._stage.session.spin_until(resting, _ANSWER):
            raise MotionError('The simulated arm did not come to rest in a tilted posture within '
                              f'{_ANSWER:.0f} s; see its log.')
        self._times, self._positions = self._times[-1:], self._positions[-1:]

    def record(self) -> tuple[Array, Array]:
        """Return times from the start, shape (k,) [s], and postures, shape (k, n) [rad]."""
        time = np.array(self._times)
        return time - time[0], np.array(self._positions)

    def move_to(self, goal: Array) -> None:
        """Move the arm along a collision-free path.

        Raises:
            MotionError: The controller does not accept or finish the motion.

        """
        session = self._stage.session
        self.clear()
        there = session.spin_until(
            lambda: bool(self._positions) and self._client.server_is_ready(), _ANSWER)
        if not there:
            raise MotionError('No joint states or no controller of the simulated arm within '
                              f'{_ANSWER:.0f} s; see its log.')
        robot = self._stage.robot
        path = connect(robot, self._checker, self._positions[-1], goal)
        motion = quintic_path(path, np.full(robot.n, _VELOCITY), np.full(robot.n, _ACCELERATION))
        sending = self._client.send_goal_async(conversions.to_goal(
            motion, self._names, 0.2, 0.01, 2.0))
        session.spin_until(sending.done, _ANSWER)
        handle = sending.result() if sending.done() else None
        if handle is None or not handle.accepted:
            raise MotionError(
                'The simulated arm rejected a motion to a tilted posture; see its log.')
        ending = handle.get_result_async()
        if not session.spin_until(ending.done, _MOTION):
            raise MotionError('The simulated arm did not finish a motion to a tilted posture '
                              f'within {_MOTION:.0f} s; see its log.')


class LevelingTour(Tour):
    """Tilt the tool with another client, level it by one call, and verify with an IMU."""

    capability = 'leveling'

    def run(self, stage: Stage) -> list[TourOutcome]:
        """Run the tour; see `Tour.run`."""
        child, client = stage.start_node(
            'robocal_ros.leveling.node', 'leveling', _PARAMETERS)
        try:
            client.change_state('configure')
            client.change_state('activate')
        except RobocalError as error:
            raise RobocalError(f'{error} The end of {child.log}:\n{child.tail(5)}') from error
        mover = _ArmMover(stage)
        try:
            postures = _POSTURES if stage.full else _POSTURES[:1]
            titles = [f'{_TITLE} {i}' if stage.full else _TITLE
                      for i in range(1, len(postures) + 1)]
            outcomes = [self._leveled(stage, mover, client, np.array(posture), title)
                        for title, posture in zip(titles, postures, strict=True)]
        finally:
            mover.close()
        client.change_state('deactivate')
        client.change_state('cleanup')
        return outcomes

    def _leveled(
        self, stage: Stage, mover: _ArmMover, client: NodeClient, posture: Array, title: str
    ) -> TourOutcome:
        mover.move_to(posture)
        mover.start_record_at_rest()
        with ProgressView(_TITLE) as view:
            answer = client.call('level', view.update)
            elapsed = view.elapsed
        OUT.print(f'{_TITLE}: {answer.message} ({elapsed:.0f} s)', soft_wrap=True,
                  style=None if answer.success else 'red', markup=False)
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
        template='none', margin={'l': 50, 'r': 10, 't': 8, 'b': 40},
        legend={'orientation': 'h', 'x': 0, 'y': 1.02, 'yanchor': 'bottom'},
        xaxis={'title': {'text': 'ahead [m]'}, 'scaleanchor': 'y', 'zeroline': False},
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
        template='none', margin={'l': 60, 'r': 60, 't': 8, 'b': 45},
        legend={'orientation': 'h', 'x': 0, 'y': 1.02, 'yanchor': 'bottom'},
        xaxis={'title': {'text': 'time [s]'}}, yaxis={'title': {'text': tilt_name}},
        yaxis2={'title': {'text': drift_name}, 'overlaying': 'y', 'side': 'right',
                'showgrid': False, 'rangemode': 'tozero'})
    return drawing
