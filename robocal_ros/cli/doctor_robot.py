# SPDX-License-Identifier: Apache-2.0
"""Checks of a robot's ROS graph and messages for `robocal doctor`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import numpy as np
from geometry_msgs.msg import WrenchStamped
from rclpy.action.graph import get_action_names_and_types
from rclpy.qos import QoSReliabilityPolicy
from sensor_msgs.msg import JointState

from robocal_ros import registry
from robocal_ros.arrays import Array
from robocal_ros.cli.console import OUT, Finding, bad, doubtful, good
from robocal_ros.cli.drivers import Recognised, listed, recognised
from robocal_ros.cli.node_client import NodeClient, RosSession, foreign, full_name
from robocal_ros.errors import RobocalError
from robocal_ros.messages import WRENCH, conversions, qos, subscribe_text
from robocal_ros.robot import REVERSED, STANDARD_GRAVITY, Robot
from robocal_ros.wrench import (
    Instant,
    SensedArm,
    SensorMount,
    TareRecord,
    Taring,
    WrenchParameters,
)

_TRAJECTORY = 'control_msgs/action/FollowJointTrajectory'
_DISCOVERY, _STATE_TIMEOUT = 4.0, 5.0
# The graph is complete if nothing appeared in it for this time [s]: missed announcements are
# repeated after 3 s (measured). It is waited for this long at most [s].
_QUIET, _LONGEST = 3.5, 15.0
# Interval at which the graph is looked at [s].
_LOOK = 0.25
_TOOL_FRAME, _CONTROLLER = 'tool0', 'joint_trajectory_controller'
# Rates below the first are too low for any method, below the second to some [Hz].
_USELESS_RATE, _LOW_RATE = 20.0, 100.0
# Largest plausible age of a message with synchronised clocks [s].
_MAX_AGE = 1.0
# Least holding torque at which the scale of an effort is checked [N·m].
_MIN_TORQUE = 4.0
# Largest plausible ratio, either way, of efforts at rest to the holding torques.
_MAX_RATIO = 2.5
_MOUNTED = (' An arm on a wall or a ceiling is compared with an upright one, unless a node of '
            'this package runs whose parameter gravity says so.')
_WHAT = 'F/T sensors against weights'
# First and last part of what was received, as a share, in which the arm must rest, and the number
# of readings of it.
_PART, _READINGS = 0.15, 40
# Change of an expected force that shows a frame [N], and the largest share by which that of the
# readings may differ from it: 0.5 is 30° or half of the weight.
_CLEAR, _MAX_SHARE = 4.0, 0.5


def robot_findings(options: argparse.Namespace) -> Iterator[Finding]:
    """Yield findings about the ROS graph and received messages.

    Args:
        options: ``namespace``, ``joint_states``, ``duration``, ``tool_frame`` and ``controller``;
            the last two empty for those of the recognised driver.

    """
    with RosSession('robocal_doctor') as session:
        if not session.other_nodes(_DISCOVERY):
            yield bad('graph', 'No other node is in this ROS domain.',
                      "Start the robot's driver (or sim_arm); compare ROS_DOMAIN_ID, "
                      'ROS_AUTOMATIC_DISCOVERY_RANGE and RMW_IMPLEMENTATION with its terminal.')
            return
        graph = Graph(session, options.namespace)
        with OUT.status('Receiving messages until no further node or topic appears'):
            graph.collect(options.joint_states, options.duration)
        yield from graph_findings(graph, options)


def graph_findings(graph: Graph, options: argparse.Namespace) -> Iterator[Finding]:
    """Yield findings about a graph that was collected; options as for ``robot_findings``."""
    driver = graph.driver()
    if driver is not None:
        yield driver_finding(driver, options.namespace, options.joint_states)
    robot = yield from _description(graph, options.tool_frame or (
        driver.tool_frame if driver else _TOOL_FRAME))
    topic = graph.name(options.joint_states)
    if states := graph.states():
        yield rate_finding(topic, stamps_of(states), graph.duration)
        yield clock_finding(graph.received, simulated='/clock' in graph.session.published())
        if robot is not None:
            yield from joint_findings(robot, states)
        if any(item.qos_profile.reliability != QoSReliabilityPolicy.RELIABLE
               for item in graph.session.node.get_publishers_info_by_topic(topic)):
            yield good('QoS', f'{topic} is best effort: lost messages are not sent again; the '
                       'nodes count them.')
    else:
        yield _silent(graph, topic, options.joint_states)
    for name, readings in sorted(graph.wrenches.items()):
        yield rate_finding(name, stamps_of(readings), graph.duration)
        if readings:
            yield wrench_finding(name, readings, [] if robot is None else [
                str(frame.name) for frame in robot.model.frames])
    if robot is not None and any(graph.wrenches.values()):
        yield from weight_findings(robot, states, graph.wrenches)
    if not graph.wrenches:
        yield good('F/T sensors', 'None; methods that need one are not available.')
    controller = options.controller or (driver.controller if driver else _CONTROLLER)
    wanted, available = graph.name(f'{controller}/follow_joint_trajectory'), graph.controllers()
    yield good('controller', f'{wanted} is available.') if wanted in available else bad(
        'controller', f'Action {wanted} is not available; available are: '
        f'{", ".join(available) or "none"}.', "Set another one with --controller (and the nodes' "
        "parameter 'controller'), or start it: ros2 control switch_controllers --activate "
        f'{controller}.')
    for name in graph.session.other_nodes(0.0):
        if name.rpartition('/')[2] in registry.nodes():
            yield good(name, f'is {graph.state(name)}.')


def _description(graph: Graph, tool_frame: str) -> Generator[Finding, None, Robot | None]:
    """Yield findings about the description; return the arm, None without one."""
    what = 'robot_description'
    if not graph.description.strip():
        yield _silent(graph, graph.name(what), what)
        return None
    try:
        robot = Robot(graph.description, tool_frame=tool_frame, gravity=graph.gravity())
    except RobocalError as error:
        yield bad(what, str(error), 'Name the frame at the end of the arm with --tool-frame, or '
                  'correct the URDF.')
        return None
    mass = sum(float(inertia.mass) for inertia in robot.model.inertias)
    message = (f"'{robot.name}', {robot.n} joints from '{robot.root_frame}' to '{tool_frame}', "
               f'{mass:.1f} kg.')
    yield good(what, message) if mass >= 0.1 else bad(
        what, message, 'The links have no mass, so weight cannot be separated from other torques. '
        'Add inertials to the URDF.')
    return robot


def driver_finding(driver: Recognised, namespace: str, joint_states: str) -> Finding:
    """Return which driver was recognised, and the commands that start with its parameter file."""
    edits = ', '.join(f'{name}: {value}' for name, value in driver.edits.items())
    topic = driver.driver.joint_states
    launch = ' '.join(filter(None, (
        'ros2 launch robocal_ros bringup.launch.py hardware:=real nodes:=payload_identification',
        'params_file:=my_arm.yaml', f'namespace:={namespace}' if namespace.strip('/') else '',
        '' if topic == 'joint_states' else f'joint_states:={topic}')))
    steps = (driver.driver.remark, f'cp {driver.driver.path} my_arm.yaml',
             f'In it: {edits}' if edits else '', launch,
             '' if topic == joint_states else
             f'Efforts at the full rate are on {topic}: check that one with robocal doctor '
             f'--joint-states {topic}')
    return good('driver', f'{driver.driver.name}, by {", ".join(driver.marks[:3])}.',
                '\n      '.join(filter(None, steps)))


def _silent(graph: Graph, topic: str, name: str) -> Finding:
    published = graph.session.published()
    alike = [other for other in published if other.endswith(f'/{name}') and other != topic]
    if topic in published:
        return bad(topic, 'It has a publisher, but no messages were received.',
                   'Check that the controller is active: ros2 control list_controllers.')
    return bad(topic, 'It has no publisher.', (
        f'{", ".join(alike)} is published: set its namespace with --namespace, / for the root.')
        if alike else 'Start robot_state_publisher and joint_state_broadcaster, or sim_arm.')


# ------------------------------------------------------------------------ subscribing


class Graph:
    """The ROS graph, which is only read, and what was received in one namespace of it.

    Attributes:
        duration: Duration of the subscription [s].
        description: URDF text, empty if none was received.
        received: Times of arrival by the node's clock [s], and joint states.
        wrenches: Messages of F/T sensors by topic.

    """

    def __init__(self, session: RosSession, namespace: str) -> None:
        """Start without messages."""
        self.session = session
        self._namespace = namespace
        self.duration = 0.0
        self.description = ''
        self.received: list[tuple[float, JointState]] = []
        self.wrenches: dict[str, list[WrenchStamped]] = {}

    def name(self, relative: str) -> str:
        """Return a topic's full name."""
        return full_name(relative, self._namespace)

    def states(self) -> list[JointState]:
        """Return the joint states of the publisher with the most joints, which is the arm's."""
        names: Sequence[str] = max(
            (message.name for _, message in self.received), key=len, default=())
        return [message for _, message in self.received if message.name == names]

    def controllers(self) -> list[str]:
        """Return names of joint trajectory action servers."""
        return [name for name, kinds in get_action_names_and_types(self.session.node)
                if _TRAJECTORY in kinds]

    def driver(self) -> Recognised | None:
        """Return the driver, None for an unknown one."""
        space = self.name('')
        names = [name.rpartition('/')[2]
                 for name in (*self.session.other_nodes(0.0), *self.session.published())
                 if name.startswith(space)]
        inside = [name.removeprefix(space).removesuffix('/follow_joint_trajectory')
                  for name in self.controllers() if name.startswith(space)]
        states = self.states()
        return recognised(names, states[0].name if states else (), _rate(stamps_of(states)),
                          inside, self.description)

    def collect(self, joint_states: str, duration: float) -> None:
        """Receive messages until nothing has appeared in the graph for a duration [s]."""
        node = self.session.node
        began = changed = monotonic()
        seen: Any = None
        made = [
            subscribe_text(node, self.name('robot_description'),
                           lambda text: setattr(self, 'description', text.data)),
            node.create_subscription(
                JointState, self.name(joint_states), lambda message: self.received.append(
                    (1e-9 * node.get_clock().now().nanoseconds, message)), qos.SENSOR)]
        while ((now := monotonic()) - changed <= max(duration, _QUIET)
               and now - began <= max(duration, _LONGEST)):
            # Those that no node of this package computes.
            sensors = {topic for topic, kinds in self.session.published().items()
                       if WRENCH in kinds and topic.startswith(self.name(''))
                       and foreign(node.get_publishers_info_by_topic(topic))}
            now_seen = self.session.other_nodes(0.0), self.session.published(), sensors
            if seen != now_seen:
                seen, changed = now_seen, now
            for topic in sensors - self.wrenches.keys():
                self.wrenches[topic] = []
                made.append(node.create_subscription(
                    WrenchStamped, topic, self.wrenches[topic].append, qos.SENSOR))
            self.session.spin_until(lambda: False, _LOOK)
        self.duration = monotonic() - began
        for subscription in made:
            node.destroy_subscription(subscription)

    def state(self, node: str) -> str:
        """Return the lifecycle state of a node in words."""
        client = NodeClient(self.session, node)
        try:
            client.wait_until_there(_STATE_TIMEOUT)
            return client.state(_STATE_TIMEOUT)
        except RobocalError:
            return 'not answering'

    def gravity(self) -> Sequence[float]:
        """Return gravity as a node of this package has it, else of an upright arm [m/s²]."""
        for name in self.session.other_nodes(0.0):
            space, _, node = name.rpartition('/')
            if node in registry.nodes() and f'{space}/' == self.name(''):
                client = NodeClient(self.session, name)
                # A node of another package may have the name.
                with suppress(RobocalError, KeyError):
                    client.wait_until_there(_STATE_TIMEOUT)
                    return list(client.parameters(['gravity'], _STATE_TIMEOUT)['gravity'])
        return STANDARD_GRAVITY


# -------------------------------------------------------------------------- checks


def stamps_of(messages: Iterable[Any]) -> list[float]:
    """Return the stamps of messages [s]."""
    return [conversions.seconds(message.header.stamp) for message in messages]


def _rate(stamps: Sequence[float]) -> float:
    """Return the usual rate of stamps [s] that increase, 0 if it is unknown [Hz]."""
    steps = np.diff(np.array(stamps))
    steps = steps[steps > 0.0]
    return 1.0 / float(np.median(steps)) if len(steps) else 0.0


def rate_finding(what: str, stamps: Sequence[float], duration: float) -> Finding:
    """Check the rate of messages.

    Args:
        what: Name of the topic.
        stamps: Their stamps [s].
        duration: Duration of the subscription [s].

    """
    if len(stamps) < 2:
        return bad(what, f'{len(stamps)} messages were received in {duration:.0f} s.',
                   'Start its publisher, and check the namespace and ROS_DOMAIN_ID.')
    steps = np.diff(np.array(stamps))
    if (steps <= 0.0).mean() > 0.5:
        return bad(what, f'Stamps do not increase (the last is {stamps[-1]:.3f} s).',
                   'Make the driver stamp each message.')
    rate = _rate(stamps)
    late, lost = int((steps <= 0.0).sum()), int((steps > 1.5 / rate).sum())
    message = f'{rate:.0f} Hz' + (f', {lost} gaps' if lost else '') + (
        f', {late} late or repeated' if late else '') + '.'
    if rate < _USELESS_RATE:
        return bad(what, message, f'At least {_USELESS_RATE:.0f} Hz are needed: raise update_rate '
                   'or the publish rate.')
    if rate < _LOW_RATE:
        return doubtful(what, message, f'{_LOW_RATE:.0f} Hz or more improve the estimates: raise '
                        'the publish rate.')
    if lost > 0.01 * len(steps):
        return doubtful(what, message, 'Messages are lost: reduce the load of the machine, or use '
                        'a wired network.')
    return good(what, message)


def clock_finding(received: Sequence[tuple[float, JointState]], *, simulated: bool) -> Finding:
    """Check stamps against the clock.

    Args:
        received: Times of arrival by the clock [s], and joint states.
        simulated: Whether ``/clock`` has a publisher.

    """
    if simulated:
        return good('clock', '/clock is published: every node needs use_sim_time.')
    age = float(np.median([arrival - conversions.seconds(message.header.stamp)
                           for arrival, message in received]))
    message = f'Joint states are {age:.3f} s old on arrival.'
    if abs(age) > 1e6:
        return doubtful('clock', message, "Their clock is not this machine's. For a simulation or "
                        'a bag, set use_sim_time on every node.')
    if not -0.1 < age < _MAX_AGE:
        return doubtful('clock', message, 'Synchronize the clocks (chrony), or set use_sim_time '
                        'on every node if the robot is simulated.')
    return good('clock', message)


def joint_findings(robot: Robot, states: Sequence[JointState]) -> list[Finding]:
    """Check names, velocities and efforts against the robot description."""
    names = list(states[0].name)
    missing = [name for name in robot.joint_names if name not in names]
    if missing:
        return [bad('joint names', f'{", ".join(missing)} not in joint_states, which has '
                    f'{", ".join(names) or "no names"}.', 'Publish them with '
                    'joint_state_broadcaster, or correct the namespace or the URDF.')]
    found = [good('joint names', f'All {robot.n} joints are published.')]
    if len(states[-1].velocity) != len(names):
        found.append(doubtful('velocities', 'Joint states have no velocities.', 'No action '
                              'needed; velocities are differentiated from positions.'))
    return [*found, _effort_finding(robot, states)]


def _effort_finding(robot: Robot, states: Sequence[JointState]) -> Finding:
    names = list(states[0].name)
    rows = [(item.position, item.effort) for item in states
            if len(item.position) == len(item.effort) == len(names)]
    if not rows:
        return bad('efforts', 'Joint states have no efforts.', 'Give every joint an effort state '
                   'interface in the ros2_control description. Without it, only methods that '
                   'read an F/T sensor work.')
    order = [names.index(name) for name in robot.joint_names]
    position, effort = (np.array(part)[:, order] for part in zip(*rows, strict=True))
    for name, column in zip(robot.joint_names, effort.T, strict=True):
        if not np.isfinite(column).all():
            return bad('efforts', f"The effort of joint '{name}' is not a number.",
                       'joint_state_broadcaster publishes NaN for interfaces that the hardware '
                       'does not export: give the joint an effort state interface.')
        if not column.any():
            return bad('efforts', f"The effort of joint '{name}' is always zero.",
                       'Make the driver fill it in; check that the brakes are released.')
    # At rest, they are compared with the holding torques of the URDF.
    if float(np.ptp(position, axis=0).max()) > 0.01:
        return good('efforts', 'Published; not compared with gravity, because the arm moves.')
    held = robot.gravity_torque(position.mean(axis=0))
    loaded = np.abs(held) > _MIN_TORQUE
    if not loaded.any():
        return good('efforts', 'Published; not compared with gravity, which is too small in this '
                    'posture.')
    ratio = effort.mean(axis=0)[loaded] / held[loaded]
    ratios = ', '.join(f'{name} {value:+.2f}' for name, value in zip(
        np.array(robot.joint_names)[loaded], ratio, strict=True))
    message = f'Effort divided by the holding torque of the bare arm: {ratios}.'
    if (ratio < -1.0 / _MAX_RATIO).any():
        return doubtful('efforts', message, f'The sign of some is wrong. {REVERSED}{_MOUNTED}')
    if (np.abs(ratio) < 1.0 / _MAX_RATIO).any() or (ratio > _MAX_RATIO).any():
        return doubtful(
            'efforts', message, 'They look like motor currents, or efforts without gravity, or a '
            "heavy tool is mounted. Without gravity, set effort_contains to 'external'; for "
            "currents, set effort_source to 'current', with torque_constants and gear_ratios."
            f'{_MOUNTED}')
    return good('efforts', message)


def wrench_finding(topic: str, readings: Sequence[WrenchStamped], links: Sequence[str]) -> Finding:
    """Check frame and values of an F/T sensor's messages.

    Args:
        topic: Its topic.
        readings: The messages, at least one.
        links: Frames of the robot description; empty without one.

    """
    frame = _frame_of(readings)
    if not np.isfinite([conversions.wrench_row(item) for item in readings]).all():
        return bad(topic, 'It publishes values that are not finite numbers.',
                   'Check the sensor and its driver.')
    if links and frame not in links:
        return doubtful(
            topic, f"Its frame '{frame}' is not in the robot description.",
            f"Set sensor_message_frame to '{frame}' and sensor_frame to that frame of the URDF, "
            'or correct frame_id in the driver.')
    return good(topic, f"Frame '{frame}'.")


def _frame_of(readings: Sequence[WrenchStamped]) -> str:
    """Return the frame that most of the messages name."""
    return Counter(item.header.frame_id for item in readings).most_common(1)[0][0]


# ----------------------------------------------- F/T sensors against weights


def weight_findings(
    robot: Robot, states: Sequence[JointState], wrenches: Mapping[str, Sequence[WrenchStamped]]
) -> Iterator[Finding]:
    """Yield findings on signs, frames and order of F/T sensors, by the weights of the URDF.

    The first and the last part of the messages are compared with the weights as a tare would. If
    the arm has another posture in the last part, biases do not matter.

    Args:
        robot: The arm.
        states: Joint states of the arm.
        wrenches: Readings by topic.

    """
    links = {str(frame.name) for frame in robot.model.frames}
    frames = {topic: frame for topic, readings in sorted(wrenches.items())
              if readings and (frame := _frame_of(readings)) in links}
    names = list(states[0].name) if states else []
    if not frames or not set(robot.joint_names) <= set(names):
        return
    order = [names.index(name) for name in robot.joint_names]
    posture = np.array([item.position for item in states if len(item.position) == len(names)])
    try:
        arm = SensedArm(robot, [SensorMount(frame) for frame in frames.values()])
        taring, seen = Taring(arm), []
        for last in (False, True):
            readings = np.stack([_part(np.array([
                conversions.wrench_row(item) for item in wrenches[topic]]), last)
                for topic in frames], axis=1)
            record, still = TareRecord(), np.zeros(robot.n)
            for number, (angles, values) in enumerate(zip(
                    _part(posture[:, order], last), readings, strict=True), 1):
                record.add(Instant(
                    number, angles, values, arm.held(angles, still, still), [''] * len(values)))
            seen.append((record, taring.find(record, WrenchParameters())[1]))
    except RobocalError as error:
        text = str(error).replace('The tare was refused', 'A tare would be refused')
        wrong = any(word in text for word in ('swapped', 'opposite', 'turned by 180°'))
        yield (bad if wrong else doubtful)(_WHAT, text, (
            'Correct it before the first procedure; topics in the order '
            + ', '.join(f'{topic} ({frame})' for topic, frame in frames.items()) + f'.{_MOUNTED}')
            if wrong else 'Then check again.')
        return
    yield from _frame_findings(arm, list(frames), [item[0] for item in seen])
    remarks = ' '.join(seen[-1][1])
    if remarks:
        yield doubtful(_WHAT, remarks.replace('tare once more in another posture', (
            'move the arm to another posture while robocal doctor --duration 30 receives')))
    else:
        yield good(_WHAT, 'Readings are those of the weights of the URDF, with plausible biases.')


def _part(rows: Array, last: bool) -> Array:
    """Return evenly spread rows of the first or last part."""
    count = max(2, int(_PART * len(rows)))
    part = rows[-count:] if last else rows[:count]
    return np.asarray(part[np.linspace(0, len(part) - 1, _READINGS).astype(int)])


def _frame_findings(
    arm: SensedArm, topics: Sequence[str], records: Sequence[TareRecord]
) -> Iterator[Finding]:
    """Yield sensors whose force changes in another direction than the weight between postures."""
    rests = [record.stacked() for record in records]
    change = rests[1].readings.mean(axis=0) - rests[0].readings.mean(axis=0)
    held = [arm.in_measurement(-rest.held.mean(axis=0)) for rest in rests]
    expected = held[1] - held[0]
    for topic, mount, seen, weight in zip(
            topics, arm.mounts, change[:, :3], expected[:, :3], strict=True):
        size = float(np.linalg.norm(weight))
        if size > _CLEAR and np.linalg.norm(seen - weight) > _MAX_SHARE * size:
            yield bad(
                topic, f'Between two postures its force changed by ({listed(seen, ".1f")}) N, '
                f"while the weight distal to '{mount.frame}' changes by "
                f'({listed(weight, ".1f")}) N there.',
                'Correct the orientation of that frame in the URDF, frame_id in the driver, or '
                f'the masses distal to it; identify a tool that is mounted.{_MOUNTED}')
