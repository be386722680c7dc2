# SPDX-License-Identifier: Apache-2.0
"""External-wrench tour: tare, free motion, three pushes on two links.

The report shows the arm from the side and from above with applied and observed pushes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import numpy as np
import plotly.graph_objects as go
from geometry_msgs.msg import PointStamped, WrenchStamped
from rclpy.qos import QoSProfile
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectory

from demo import default_cell
from demo.stage import Stage
from demo.tour import Tour, TourOutcome
from robocal_ros.arrays import Array
from robocal_ros.cli.console import OUT
from robocal_ros.cli.node_client import NodeClient
from robocal_ros.errors import RobocalError
from robocal_ros.messages import conversions, qos
from robocal_ros.results.report import Panel
from robocal_ros.robot import CollisionChecker, Robot, connect, quintic_path

_TITLE = 'external wrench'
_NODE = 'wrench_observer'
_QUEUE = QoSProfile(depth=5000)
_TIMEOUT = 60.0
_SPEED, _ACCELERATION = 1.0, 2.0
# Postures of the free motion; the arm is pushed in the last one.
_POSTURES = ((0.6, -0.3, 0.5, 0.4, 0.6, 0.3), (0.3, 0.35, -0.25, 0.2, 0.5, 0.1))
_DRAWN = ('base_link', 'link_1', 'link_2', 'ft_link_2_proximal', 'ft_link_2_distal', 'link_3',
          'ft_link_3_proximal', 'ft_link_3_distal', 'link_4', 'link_5', 'link_6', 'flange')
_PUSHES = (
    ('ft_link_2_proximal', (0.055, 0.0, 0.20), (-30.0, 0.0, 0.0)),
    ('ft_link_2_proximal', (0.0, -0.055, 0.10), (3.0, 25.0, -4.0)),
    ('ft_link_3_proximal', (0.09, 0.0, 0.046), (-5.0, 4.0, -20.0)),
)
_POSITION_BAR, _FORCE_BAR, _NOISE_BAR = 5e-3, 1.0, 1.5
# Time to leave out at the begin and end of a push, where the window filter rises and falls [s].
_EDGE = 0.06
# A push is over after this time without a contact [s].
_QUIET = 0.2


@dataclass
class _LinkRecord:
    """Forces and contact points of one link: rows of stamp [s] and three values [N] or [m]."""

    forces: list[tuple[float, ...]] = field(default_factory=list)
    points: list[tuple[float, ...]] = field(default_factory=list)

    def add_wrench(self, message: WrenchStamped) -> None:
        force = message.wrench.force
        self.forces.append((_stamp(message), force.x, force.y, force.z))

    def add_contact(self, message: PointStamped) -> None:
        point = message.point
        self.points.append((_stamp(message), point.x, point.y, point.z))

    @property
    def quiet(self) -> float:
        """Time since the last contact of the link, by the stamps [s]."""
        if not self.forces or not self.points:
            return 0.0
        return self.forces[-1][0] - self.points[-1][0]

    def during(self, begin: float, end: float) -> tuple[Array, Array]:
        """Return forces and points between two stamps, shape (k, 3) and (m, 3)."""
        def chosen(rows: list[tuple[float, ...]]) -> Array:
            table = np.array(rows).reshape(-1, 4)
            return table[(begin <= table[:, 0]) & (table[:, 0] <= end), 1:]

        return chosen(self.forces), chosen(self.points)


class _PushClient:
    """Moves and pushes the arm, and records what the observer publishes of its links."""

    def __init__(self, stage: Stage) -> None:
        self._session = stage.session
        self._stage = stage
        node = stage.session.node
        self._push = node.create_publisher(WrenchStamped, 'sim_arm/push', 10)
        self._move = node.create_publisher(
            JointTrajectory, 'joint_trajectory_controller/joint_trajectory', 10)
        self._state: JointState | None = None

    def posture(self) -> Array:
        """Return the joint positions, shape (n,) [rad]."""
        self._state = None
        node = self._session.node
        subscription = node.create_subscription(
            JointState, 'joint_states', self._take_state, qos.SENSOR)
        self._wait(lambda: self._state is not None, 'joint states')
        node.destroy_subscription(subscription)
        state = self._state
        if state is None:
            raise RobocalError('No joint states from the simulated arm; see its log.')
        return np.array([state.position[list(state.name).index(name)]
                         for name in self._stage.robot.joint_names])

    def _take_state(self, message: JointState) -> None:
        self._state = message

    def _wait(self, condition: Any, what: str) -> None:
        if not self._session.spin_until(condition, _TIMEOUT):
            raise RobocalError(f'No {what} within {_TIMEOUT:.0f} s; see the logs.')

    def subscribe(self, links: set[str]) -> tuple[dict[str, _LinkRecord], list[Any]]:
        """Subscribe to links; return their records and the subscriptions to destroy."""
        records = {link: _LinkRecord() for link in sorted(links)}
        node = self._session.node
        made = [
            node.create_subscription(kind, f'{_NODE}/links/{link}/{topic}', take, _QUEUE)
            for link, item in records.items()
            for kind, topic, take in ((WrenchStamped, 'wrench', item.add_wrench),
                                      (PointStamped, 'contact', item.add_contact))
        ]
        # The node checks for subscribers periodically.
        self._wait(lambda: all(item.forces for item in records.values()), 'wrenches')
        return records, made

    def unsubscribe(self, made: list[Any]) -> None:
        """Destroy the subscriptions."""
        for subscription in made:
            self._session.node.destroy_subscription(subscription)

    def move(self) -> None:
        """Move through the postures and wait until the last one is reached."""
        robot = self._stage.robot
        checker = CollisionChecker(robot.copy())
        path = [self.posture()]
        for goal in _POSTURES:
            path += list(connect(robot, checker, path[-1], np.array(goal)))[1:]
        n = robot.n
        motion = quintic_path(
            np.array(path), np.full(n, _SPEED), np.full(n, _ACCELERATION))
        self._wait(self._move.get_subscription_count, 'subscription of the controller')
        self._move.publish(conversions.to_joint_trajectory(motion, robot.joint_names))
        end = monotonic() + _TIMEOUT
        while np.abs(self.posture() - path[-1]).max() > 1e-3:
            if monotonic() > end:
                raise RobocalError('The simulated arm did not reach the posture of the pushes '
                                   f'within {_TIMEOUT:.0f} s; see its log.')
            self._session.spin_until(lambda: False, 0.2)

    def push(self, link: str, point: Array, force: Array, records: dict[str, _LinkRecord]) -> None:
        """Push a link and wait until the contact is over."""
        message = WrenchStamped()
        message.header.frame_id = link
        f, m = message.wrench.force, message.wrench.torque
        f.x, f.y, f.z = force.tolist()
        m.x, m.y, m.z = np.cross(point, force).tolist()
        self._wait(self._push.get_subscription_count, 'subscription of the simulated arm')
        for item in records.values():
            item.points.clear()
            item.forces.clear()
        self._push.publish(message)
        self._wait(lambda: any(item.quiet > _QUIET for item in records.values()),
                   'end of a contact')


class WrenchTour(Tour):
    """Observe pushes; the only prior knowledge of the node is the identified payload."""

    capability = 'wrench'

    def run(self, stage: Stage) -> list[TourOutcome]:
        """Run the tour; see `Tour.run`."""
        _, client = stage.start_node('robocal_ros.wrench.node', _NODE, {})
        client.change_state('configure')
        client.change_state('activate')
        try:
            return [self._observed(stage, client)]
        finally:
            client.change_state('deactivate')
            client.change_state('cleanup')

    def _observed(self, stage: Stage, client: NodeClient) -> TourOutcome:
        answer = client.call('tare')
        OUT.print(f'{_TITLE}: {answer.message}', soft_wrap=True, markup=False,
                  style=None if answer.success else 'red')
        if not answer.success:
            return TourOutcome(_TITLE, answer.message, None)
        pusher = _PushClient(stage)
        records, made = pusher.subscribe({link for link, _, _ in _PUSHES})
        pusher.move()
        noise = {link: float(np.sqrt(np.mean(np.square(item.forces)[:, 1:])))
                 for link, item in records.items()}
        alarms = sum(len(item.points) for item in records.values())
        pushes = []
        for link, point, force in _PUSHES:
            pusher.push(link, np.array(point), np.array(force), records)
            pushes.append(_observed_push(link, np.array(point), np.array(force), records))
        pusher.unsubscribe(made)
        panel = _panel(stage, pusher.posture(), pushes, noise, alarms)
        OUT.print(f'{_TITLE}: {panel.message}', soft_wrap=True, markup=False,
                  style=None if panel.passed else 'red')
        return TourOutcome(_TITLE, panel.message, None, panel=panel)


def _stamp(message: PointStamped | WrenchStamped) -> float:
    return conversions.seconds(message.header.stamp)


def _observed_push(
    link: str, point: Array, force: Array, records: dict[str, _LinkRecord]
) -> ObservedPush:
    """Return applied and observed push, of the link with the most contact points."""
    observed_link = max(records, key=lambda name: len(records[name].points))
    stamps = [row[0] for row in records[observed_link].points]
    forces, points = records[observed_link].during(stamps[0] + _EDGE, stamps[-1] - _EDGE)
    if not len(forces) or not len(points):
        raise RobocalError(
            f"The contact on link '{observed_link}' lasted {stamps[-1] - stamps[0]:.2f} s; "
            f'expected more than {2.0 * _EDGE:.2f} s.')
    return ObservedPush(
        link, point, force, observed_link, points.mean(axis=0), forces.mean(axis=0))


def _panel(
    stage: Stage, posture: Array, pushes: list[ObservedPush], noise: dict[str, float], alarms: int
) -> Panel:
    def formatted(vector: Array, factor: float = 1.0, digits: int = 1) -> str:
        # Adding zero turns a rounded -0.0 into 0.0.
        return ' '.join(f'{round(factor * value, digits) + 0.0:.{digits}f}' for value in vector)

    rows = tuple(
        (push.link if push.link == push.observed_link
         else f'{push.link}, observed on {push.observed_link}',
         formatted(push.force, digits=0), formatted(push.observed_force),
         f'{push.force_error:.2f}', formatted(push.point, 1e3, 0),
         formatted(push.observed_point, 1e3), f'{1e3 * push.point_error:.1f}')
        for push in pushes)
    sigma = default_cell.reference_cell().force_torque.force_sigma
    worst = max(push.point_error for push in pushes)
    rms = max(noise.values())
    largest = max(push.force_error for push in pushes)
    passed = (alarms == 0 and rms <= _NOISE_BAR * sigma and worst <= _POSITION_BAR
              and largest <= _FORCE_BAR
              and all(push.link == push.observed_link for push in pushes))
    return Panel(
        'External wrench: applied and observed pushes', passed,
        f'In free motion up to {_SPEED:g} rad/s the observed force is {rms:.2f} N (RMS per axis; '
        f'sensor noise {sigma:g} N) with {alarms or "no"} false contacts; three pushes are '
        f'located within {1e3 * worst:.1f} mm and measured within {largest:.2f} N.',
        (('link', False), ('pushed [N]', True), ('observed [N]', True), ('error [N]', True),
         ('at [mm]', True), ('observed at [mm]', True), ('error [mm]', True)),
        rows, push_figures(stage.robot, posture, _DRAWN, pushes))


# Length of an arrow per force [m/N].
_SCALE = 0.006
_TRUE, _OBSERVED, _ARM = '#009e73', '#d55e00', '#9a9a9a'
_VIEWS = (('side view', 0, 2, 'x [m]', 'z [m]'), ('top view', 0, 1, 'x [m]', 'y [m]'))


@dataclass(frozen=True)
class ObservedPush:
    """Applied and observed push, in the frames of their links.

    Attributes:
        link: Pushed link.
        point: Point of application, shape (3,) [m].
        force: Applied force, shape (3,) [N].
        observed_link: Link with the observed contact.
        observed_point: Mean contact point, shape (3,) [m].
        observed_force: Mean force, shape (3,) [N].

    """

    link: str
    point: Array
    force: Array
    observed_link: str
    observed_point: Array
    observed_force: Array

    @property
    def point_error(self) -> float:
        """Distance between applied and observed point [m]."""
        return float(np.linalg.norm(self.observed_point - self.point))

    @property
    def force_error(self) -> float:
        """Norm of the force error [N]."""
        return float(np.linalg.norm(self.observed_force - self.force))


def push_figures(
    robot: Robot, posture: Array, links: Sequence[str], pushes: Sequence[ObservedPush]
) -> tuple[tuple[str, go.Figure], ...]:
    """Return title and figure of the side view and the top view.

    Args:
        robot: The arm.
        posture: Joint positions during the pushes, shape (n,) [rad].
        links: Links to connect by lines, from base to tip.
        pushes: Applied and observed pushes.

    """
    origins = np.array([robot.transform_frame_to_root(posture, link).translation
                        for link in links])
    return tuple(
        (f'Pushes, {title}', _view(robot, posture, origins, pushes, first, second, labels))
        for title, first, second, *labels in _VIEWS)


def _view(
    robot: Robot, posture: Array, origins: Array, pushes: Sequence[ObservedPush], first: int,
    second: int, labels: Sequence[str],
) -> go.Figure:
    drawing = go.Figure(go.Scatter(
        x=origins[:, first], y=origins[:, second], mode='lines+markers', name='arm',
        line={'width': 14, 'color': _ARM, 'shape': 'linear'},
        marker={'size': 16, 'color': '#5f5f5f'}, hoverinfo='skip'))
    for name, colour, width in (('pushed', _TRUE, 7), ('observed', _OBSERVED, 2.5)):
        # The legend entry; the arrows themselves are annotations.
        drawing.add_trace(go.Scatter(x=[None], y=[None], mode='lines', name=name,
                                     line={'color': colour, 'width': width}))
        for push in pushes:
            point, force = ((push.point, push.force) if name == 'pushed'
                            else (push.observed_point, push.observed_force))
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
