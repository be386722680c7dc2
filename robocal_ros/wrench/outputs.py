# SPDX-License-Identifier: Apache-2.0
"""What observations lead to: messages with subscribers, and an arm held on contact."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from geometry_msgs.msg import PointStamped, WrenchStamped
from rclpy.qos import QoSProfile
from rclpy.serialization import serialize_message
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, Float64, Float64MultiArray, Header, MultiArrayDimension
from visualization_msgs.msg import Marker, MarkerArray

from robocal_ros.arm import ControllerGoals
from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, DataError, RobocalError
from robocal_ros.messages import (
    SECOND,
    ConditionalGroup,
    Subscriber,
    conversions,
    from_seconds,
    note_fault,
    qos,
)
from robocal_ros.node import CalibrationNode, status
from robocal_ros.wrench.contact import Contact
from robocal_ros.wrench.fusion import MOST_FRAMES, FrameTree, Fusion
from robocal_ros.wrench.observer import NUMBERS, Observation, WrenchObserver, failure
from robocal_ros.wrench.torque import ToolWrench

# Flags are published on changes, and again after this time [s].
_REPEAT = 0.1
_MARKER_PERIOD = 0.05
_ZEROS = (0.0,) * 6


class _Topic:
    """Publisher that knows whether it has subscribers.

    Messages that differ only in their stamps and in the doubles at their end are serialized here,
    in half of the time that rclpy takes.

    Attributes:
        message: Message to be published.
        subscribed: Whether there were subscribers when they were last looked for.

    """

    def __init__(
        self, node: CalibrationNode, name: str, message: Any, numbers: Sequence[float] = (),
        profile: QoSProfile = qos.STREAM,
    ) -> None:
        """Create the publisher.

        Args:
            node: The node.
            name: The topic.
            message: A message like those to be published.
            numbers: The doubles at its end, for ``send_numbers``.
            profile: Quality of service.

        """
        self._publisher = node.publisher(type(message), name, profile)
        self.message = message
        self.subscribed = False
        self._said: object = None
        self._sent = float('-inf')
        if numbers:
            raw = bytes(serialize_message(message))
            order, doubles = '<' if raw[1] else '>', f'{len(numbers)}d'
            # Spare bytes may follow the doubles.
            end = raw.rindex(struct.pack(order + doubles, *numbers))
            # Encapsulation, stamp, what all messages share, doubles.
            self._begin, self._middle = raw[:4], raw[12:end]
            self._pack = struct.Struct(f'{order}4siI{len(self._middle)}s{doubles}').pack

    def look(self) -> None:
        """Look for subscribers: too expensive to ask at every sample."""
        self.subscribed = self._publisher.get_subscription_count() > 0

    def is_due(self, stamp: float, said: object) -> bool:
        """Return whether to publish something at a stamp [s]: on changes, and periodically."""
        if not self.subscribed or (said == self._said and 0.0 <= stamp - self._sent < _REPEAT):
            return False
        self._said, self._sent = said, stamp
        return True

    def send(self) -> None:
        """Publish the message."""
        self._publisher.publish(self.message)

    def send_value(self, value: float) -> None:
        """Publish a number or flag, if there are subscribers."""
        if self.subscribed:
            self.message.data = value
            self.send()

    def send_flag(self, stamp: float, value: bool) -> None:
        """Publish a flag on changes, and periodically."""
        if self.is_due(stamp, value):
            self.send_value(value)

    def send_matrix(self, matrix: Array) -> None:
        """Publish a square matrix, row by row."""
        size = len(matrix)
        self.message.layout.dim = [
            MultiArrayDimension(label='row', size=size, stride=size * size),
            MultiArrayDimension(label='column', size=size, stride=size)]
        self.message.data = matrix.ravel().tolist()
        self.send()

    def send_numbers(self, stamp: Time, numbers: Sequence[float]) -> None:
        """Publish a message with these doubles at its end."""
        self._publisher.publish(self._pack(
            self._begin, stamp.sec, stamp.nanosec, self._middle, *numbers))


class _LinkTopics:
    """Publishers of one link."""

    def __init__(self, node: CalibrationNode, link: str) -> None:
        base, header = f'~/links/{link}', Header(frame_id=link)
        self.wrench = _Topic(node, f'{base}/wrench', WrenchStamped(header=header), _ZEROS)
        self.contact = _Topic(node, f'{base}/contact', PointStamped(header=header), _ZEROS[:3])
        self.pitch = _Topic(node, f'{base}/pitch', Float64())
        self.bound = _Topic(node, f'{base}/force_lower_bound', Float64())
        self.mass = _Topic(node, f'{base}/effective_mass', Float64())
        self.covariance = _Topic(node, f'{base}/wrench_covariance', Float64MultiArray())
        self.flag = _Topic(node, f'{base}/in_contact', Bool())


def _subscribe_transforms(node: CalibrationNode, frames: FrameTree) -> Subscriber:
    """Subscribe to constant transforms, and to the others while the node is active.

    Returns:
        The subscription to the others, to be drained when a transform is needed.

    Raises:
        ConfigurationError: If the type of these topics is not installed.

    """
    try:
        from tf2_msgs.msg import TFMessage
    except ImportError as error:
        raise ConfigurationError(
            "tool_wrench_frame is not in the robot description, and package 'tf2_msgs', which "
            'is needed to look it up on /tf, is not installed. Install it, or name a frame of '
            'the robot description.') from error

    def take(message: Any, *, constant: bool = False) -> None:
        for item in message.transforms:
            place, turn = item.transform.translation, item.transform.rotation
            stamp = SECOND * item.header.stamp.sec + item.header.stamp.nanosec
            if frames.add(
                    item.header.frame_id, item.child_frame_id, None if constant else stamp,
                    (place.x, place.y, place.z), (turn.x, turn.y, turn.z, turn.w)):
                note_fault(node, 'frame', DataError(
                    f'More than {MOST_FRAMES} are published on /tf and /tf_static; that which was '
                    'not published for longest is forgotten.'))

    node.subscription(TFMessage, '/tf_static', partial(take, constant=True), qos.TRANSFORMS)
    return node.stream(Subscriber(node, ConditionalGroup(lambda: False), TFMessage, '/tf', take,
                                  profile=qos.MOVING_TRANSFORMS))


class WrenchOutputs:
    """Publishers of the observer.

    Attributes:
        tool: Last tool wrench, None without one.
        tool_problem: Why the newest tool wrench is invalid; empty if it is valid.

    """

    def __init__(self, node: CalibrationNode, observer: WrenchObserver, markers: Any) -> None:
        """Create the publishers.

        Args:
            node: The node.
            observer: The observer.
            markers: Publisher of markers.

        Raises:
            ConfigurationError: As for ``Fusion``, or if the type of /tf is not installed.

        """
        arm, values = observer.arm, observer.values
        self._markers = markers
        self._arm, self._torques = arm, observer.torques
        self._names = [chain.link for chain in arm.chains]
        self._shift = values.stamp_estimates
        frames = FrameTree({frame.name for frame in arm.robot.model.frames[1:]},
                           arm.robot.root_frame)
        self._fusion = Fusion(observer, frames)
        self._transforms = _subscribe_transforms(node, frames) if self._fusion.outside else None
        joint_names = arm.robot.joint_names
        self._links = [_LinkTopics(node, link) for link in self._names]
        self._tool = _Topic(node, '~/tool_wrench', WrenchStamped(
            header=Header(frame_id=self._fusion.frame)), _ZEROS)
        name = node.get_fully_qualified_name().lstrip('/')
        self._source = _Topic(node, '~/tool_wrench/source', DiagnosticStatus(
            name=f'{name}: tool wrench', hardware_id=self._fusion.frame), profile=qos.LATCHED)
        self._tool_covariance = _Topic(node, '~/tool_wrench_covariance', Float64MultiArray())
        self._singular = _Topic(node, '~/smallest_singular_value', Float64())
        ones = [1.0] * len(joint_names)
        self._external = _Topic(node, '~/external_torque', JointState(
            name=list(joint_names), effort=ones), ones)
        self._external_covariance = _Topic(
            node, '~/external_torque_covariance', Float64MultiArray())
        self._joints = [_Topic(node, f'~/joints/{name}/in_contact', Bool())
                        for name in joint_names]
        self._tools = self._tool, self._source, self._tool_covariance, self._singular
        self._topics: list[_Topic] = [
            *(topic for link in self._links for topic in vars(link).values()), *self._tools,
            self._external, self._external_covariance, *self._joints]
        self._marked = float('-inf')
        self._markers_subscribed = self._joints_subscribed = False
        self._stamp = Time()
        self.tool: ToolWrench | None = None
        self.tool_problem = ''

    def look(self) -> None:
        """Look for subscribers; called periodically."""
        for topic in self._topics:
            topic.look()
        if self._transforms is not None:
            self._transforms.drain()
        self._joints_subscribed = any(topic.subscribed for topic in self._joints)
        self._markers_subscribed = self._markers.get_subscription_count() > 0

    @property
    def subscribed(self) -> bool:
        """Whether any topic had subscribers when they were last looked for."""
        return self._markers_subscribed or any(topic.subscribed for topic in self._topics)

    def publish(self, observation: Observation) -> None:
        """Publish an observation; nothing of links whose wrench is invalid."""
        stamp = observation.stamp - (observation.delay if self._shift else 0.0)
        self._stamp.sec, self._stamp.nanosec = divmod(from_seconds(stamp), SECOND)
        for index in observation.links:
            if not observation.reasons[index] or index in observation.contacts:
                self._publish_link(index, stamp, observation)
        if observation.external is not None:
            if self._external.subscribed:
                self._external.send_numbers(self._stamp, observation.external.tolist())
            if self._external_covariance.subscribed:
                self._external_covariance.send_matrix(self._fusion.torque_covariance(observation))
        if self._joints_subscribed and observation.colliding is not None:
            for flag, value in zip(self._joints, observation.colliding.tolist(), strict=True):
                flag.send_flag(stamp, value)
        self._publish_tool(observation)
        if self._markers_subscribed and observation.contacts \
                and not 0.0 <= stamp - self._marked < _MARKER_PERIOD:
            self._marked = stamp
            self._markers.publish(MarkerArray(markers=[
                marker for index, contact in observation.contacts.items()
                for marker in contact_markers(
                    self._names[index], index, contact, contact.least or float(
                        np.linalg.norm(observation.wrench[index, :3])))]))

    def _publish_link(self, index: int, stamp: float, observation: Observation) -> None:
        topics = self._links[index]
        valid = not observation.reasons[index]
        if topics.wrench.subscribed and valid:
            topics.wrench.send_numbers(self._stamp, observation.wrench[index].tolist())
        if topics.covariance.subscribed and valid:
            topics.covariance.send_matrix(self._fusion.link_covariance(observation, index))
        contact = observation.contacts.get(index)
        topics.flag.send_flag(stamp, contact is not None)
        if contact is None:
            return
        if contact.least:
            topics.bound.send_value(contact.least)
            return
        topics.pitch.send_value(contact.pitch)
        if topics.mass.subscribed and observation.held.size and observation.motion is not None:
            topics.mass.send_value(self._arm.effective_mass(
                index, observation.motion[0],
                np.zeros(self._arm.robot.n) if self._torques is None else self._torques.rotors,
                contact.line_point if contact.point is None else contact.point,
                contact.direction))
        if contact.point is not None and topics.contact.subscribed:
            topics.contact.send_numbers(self._stamp, contact.point.tolist())

    def _publish_tool(self, observation: Observation) -> None:
        if not any(topic.subscribed for topic in self._tools):
            self.tool_problem = ''
            return
        if self._transforms is not None:
            self._transforms.drain()
        try:
            found = self._fusion.tool(observation)
        except RobocalError as error:
            self.publish_source(None, str(error))
            return
        except (ArithmeticError, ValueError) as error:
            self.publish_source(None, failure(error))
            raise
        if found is None:
            return
        self.tool = found
        self.publish_source(found, found.remark)
        if np.isfinite(found.smallest):
            self._singular.send_value(found.smallest)
        self._tool.send_numbers(self._stamp, found.wrench.tolist())
        if self._tool_covariance.subscribed:
            self._tool_covariance.send_matrix(found.covariance)

    def publish_source(self, found: ToolWrench | None, problem: str) -> None:
        """Publish where the tool wrench comes from, or why there is none.

        It is latched, and published on changes, and periodically.

        Args:
            found: The wrench; None if it is invalid.
            problem: Why it is invalid, or a source is left out.

        """
        self.tool_problem = '' if found else problem
        values = {'source': found.source if found else 'none',
                  'sensors': ', '.join(found.sensors) if found else ''}
        stamp, message = self._stamp, self._source.message
        if not self._source.is_due(stamp.sec + stamp.nanosec / SECOND, (
                *values.values(), NUMBERS.sub('', problem))):
            return
        message.level = status.ERROR if found is None else (status.WARN if problem else status.OK)
        message.message = problem or f'Valid, from {values["source"]}.'
        values['stamp'] = f'{stamp.sec}.{stamp.nanosec:09d}'
        message.values = [KeyValue(key=key, value=value) for key, value in values.items()]
        self._source.send()


# Length of an arrow per force [m/N], and half the drawn length of a line of action [m].
_SCALE = 0.005
_LINE = 0.4
# Lifetime of markers [s].
_LIFETIME = 0.3


def contact_markers(frame: str, number: int, contact: Contact, force: float) -> list[Marker]:
    """Return arrow, line of action and contact point.

    Args:
        frame: The link's frame.
        number: Index of the link, which distinguishes markers of links.
        contact: The contact, in that frame.
        force: Magnitude of the force [N].

    """
    tip = contact.line_point if contact.point is None else contact.point
    along = contact.direction
    ends = contact.line_point - _LINE * along, contact.line_point + _LINE * along
    markers = [
        conversions.to_marker(frame, name, kind, colour, size, number=number, points=points)
        for name, kind, colour, size, points in (
            ('line_of_action', Marker.LINE_LIST, (0.6, 0.6, 0.6, 0.8), (0.003,), ends),
            ('external_force', Marker.ARROW, (0.9, 0.15, 0.1, 1.0), (0.012, 0.028, 0.03),
             (tip - _SCALE * force * along, tip)),
            ('contact_point', Marker.SPHERE_LIST, (1.0, 0.85, 0.1, 1.0), (0.02,) * 3, (tip,)))]
    for marker in markers:
        marker.frame_locked, marker.lifetime = True, conversions.to_duration(_LIFETIME)
    return markers if contact.point is not None else markers[:-1]


class ContactReaction:
    """Cancels all goals of the controller at the begin of a contact; it then holds the arm.

    This is not a safety function: it runs without redundancy and without guaranteed latency, and
    commands nothing to an arm that something else than a goal of this controller moves.

    Attributes:
        outcome: Sentence on the last contact, empty before the first one.

    """

    def __init__(self, node: CalibrationNode, links: Sequence[str]) -> None:
        """Create the client of the controller's action.

        Args:
            node: The node, with the parameters.
            links: Names of the sub-chains.

        """
        self._node, self._links = node, links
        self._action = f'{node.values.controller}/follow_joint_trajectory'
        self._goals = node.part(ControllerGoals(node.waiter, self._action))
        self._held: dict[tuple[int, ...], bool] = {}
        self.outcome = ''

    @property
    def problem(self) -> str:
        """Why the arm could not be held now, empty if it could."""
        return '' if self._goals.cancelling.service_is_ready() else (
            f"Controller '{self._action}' is not available, so a contact does not hold the arm. "
            'Start it, or correct the parameter controller.')

    def note(self, observation: Observation) -> None:
        """Hold the arm if a contact begins; one that lasts does not hold it again."""
        what, held = self._contact(observation), self._held.get(observation.links, False)
        # What is held stays so until the contact ends.
        self._held[observation.links] = bool(what) or (held and bool(observation.contacts))
        if what and not held:
            self._hold(what)

    def _contact(self, observation: Observation) -> str:
        """Return which contact is strong enough, empty for none."""
        for index, contact in observation.contacts.items():
            force = contact.least or float(np.linalg.norm(observation.wrench[index, :3]))
            if force >= self._node.values.hold_force:
                return f'{force:.0f} N on {self._links[index]}'
        if observation.colliding is None or not observation.colliding.any():
            return ''
        return 'torque on ' + ', '.join(
            np.array(self._node.robot.joint_names)[observation.colliding])

    def _hold(self, what: str) -> None:
        problem = self.problem
        self.outcome = problem or (
            f'Contact ({what}): the controller was told to hold the arm.')
        if problem:
            self._node.get_logger().error(self.outcome)
            return
        self._goals.cancel_all().add_done_callback(self._answered)
        self._node.get_logger().warning(self.outcome)

    def _answered(self, answer: Any) -> None:
        response = answer.result()
        if response is None or not response.goals_canceling:
            self.outcome += ' It had no goal to cancel, so what moves the arm goes on.'
            self._node.get_logger().error(self.outcome)
