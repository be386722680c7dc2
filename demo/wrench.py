# SPDX-License-Identifier: Apache-2.0
"""External-wrench tour: tare, free motion, three pushes on two links.

The report shows the arm from the side and from above with applied and observed pushes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import plotly.graph_objects as go
from geometry_msgs.msg import PointStamped, WrenchStamped
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile

from demo import default_cell
from demo.mover import ArmMover
from demo.stage import Stage
from demo.tour import Tour, TourOutcome, active, answered
from robocal_ros.arrays import Array
from robocal_ros.cli.console import OUT
from robocal_ros.cli.node_client import NodeClient
from robocal_ros.errors import RobocalError
from robocal_ros.messages import conversions
from robocal_ros.results import LAYOUT, Panel
from robocal_ros.robot import Robot

_TITLE = 'external wrench'
_NODE = 'wrench_observer'
_QUEUE = QoSProfile(depth=5000)
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


class WrenchTour(Tour):
    """Observe pushes; the only prior knowledge of the node is the identified payload."""

    capability = 'wrench'

    def run(self, stage: Stage) -> list[TourOutcome]:
        """Run the tour; see `Tour.run`."""
        child, client = stage.start_node(_NODE, {})
        with active(child, client):
            return [self._observed(stage, client)]

    def _observed(self, stage: Stage, client: NodeClient) -> TourOutcome:
        answer = answered(client, 'tare', _TITLE)
        if not answer.success:
            return TourOutcome(_TITLE, answer.message, None)
        node = stage.session.node
        push = node.create_publisher(WrenchStamped, 'sim_arm/push', 10)
        records = {link: _LinkRecord() for link in sorted({link for link, _, _ in _PUSHES})}
        made = [
            node.create_subscription(kind, f'{_NODE}/links/{link}/{topic}', take, _QUEUE)
            for link, item in records.items()
            for kind, topic, take in ((WrenchStamped, 'wrench', item.add_wrench),
                                      (PointStamped, 'contact', item.add_contact))
        ]
        # The node checks for subscribers periodically.
        stage.wait(lambda: all(item.forces for item in records.values()), 'wrenches')
        with ArmMover(stage) as mover:
            mover.move(_POSTURES, _SPEED, _ACCELERATION)
            mover.start_record_at_rest()
            posture = mover.record()[1][0]
        noise = {link: float(np.sqrt(np.mean(np.square(item.forces)[:, 1:])))
                 for link, item in records.items()}
        alarms = sum(len(item.points) for item in records.values())
        pushes = [_pushed(stage, push, link, np.array(point), np.array(force), records)
                  for link, point, force in _PUSHES]
        for subscription in made:
            node.destroy_subscription(subscription)
        panel = _panel(stage, posture, pushes, noise, alarms)
        OUT.print(f'{_TITLE}: {panel.message}', soft_wrap=True, markup=False,
                  style=None if panel.passed else 'red')
        return TourOutcome(_TITLE, panel.message, None, panel=panel)


def _stamp(message: PointStamped | WrenchStamped) -> float:
    return conversions.seconds(message.header.stamp)


def _pushed(
    stage: Stage, publisher: Publisher[WrenchStamped], link: str, point: Array, force: Array,
    records: dict[str, _LinkRecord],
) -> ObservedPush:
    """Push a link; return applied and observed push, of the link with the most contact points."""
    message = WrenchStamped()
    message.header.frame_id = link
    f, m = message.wrench.force, message.wrench.torque
    f.x, f.y, f.z = force.tolist()
    m.x, m.y, m.z = np.cross(point, force).tolist()
    stage.wait(publisher.get_subscription_count, 'subscription of the simulated arm')
    for item in records.values():
        item.points.clear()
        item.forces.clear()
    publisher.publish(message)
    stage.wait(lambda: any(item.quiet > _QUIET for item in records.values()), 'end of a contact')
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
        **LAYOUT, xaxis={'title': {'text': labels[0]}},
        yaxis={'title': {'text': labels[1]}, 'scaleanchor': 'x', 'scaleratio': 1})
    return drawing
