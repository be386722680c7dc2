# SPDX-License-Identifier: Apache-2.0
"""What a robot's graph offers: topics, their messages for a while, action servers, nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from geometry_msgs.msg import WrenchStamped
from lifecycle_msgs.srv import GetState
from rclpy.action.graph import get_action_names_and_types
from rclpy.qos import QoSReliabilityPolicy
from sensor_msgs.msg import JointState
from std_msgs.msg import String

from robocal_ros.cli.doctor_findings import HeardJoints
from robocal_ros.cli.node_client import STATES, RosSession
from robocal_ros.cli.recorder import full_name
from robocal_ros.messages import conversions, qos

WRENCH, JOINT_STATE = 'geometry_msgs/msg/WrenchStamped', 'sensor_msgs/msg/JointState'
_STRING = 'std_msgs/msg/String'
_TRAJECTORY = 'control_msgs/action/FollowJointTrajectory'
_STATE_TIMEOUT = 2.0


@dataclass
class HeardWrench:
    """What came of one F/T sensor.

    Attributes:
        stamps: Stamps of its messages [s].
        frames: How many messages name each frame.
        finite: Whether all values are finite.

    """

    stamps: list[float] = field(default_factory=list)
    frames: Counter[str] = field(default_factory=Counter)
    finite: bool = True


@dataclass
class Heard:
    """What came while listening.

    Attributes:
        description: URDF text, empty if none came.
        joints: Joint states.
        wrenches: F/T sensors by topic.

    """

    description: str = ''
    joints: HeardJoints = field(default_factory=HeardJoints)
    wrenches: dict[str, HeardWrench] = field(default_factory=dict)


class Listener:
    """Looks at a graph and listens to it, without changing anything."""

    def __init__(self, session: RosSession, namespace: str) -> None:
        """Look at the graph from a session, at one namespace of it."""
        self._session = session
        self._namespace = namespace

    def name(self, relative: str) -> str:
        """Return a topic's full name."""
        return full_name(relative, self._namespace)

    def published(self) -> dict[str, list[str]]:
        """Return types of all topics that somebody publishes, by name."""
        node = self._session.node
        return {name: kinds for name, kinds in node.get_topic_names_and_types()
                if node.count_publishers(name)}

    def best_effort(self, topic: str) -> bool:
        """Return whether a publisher of a topic does not send lost messages again."""
        return any(item.qos_profile.reliability != QoSReliabilityPolicy.RELIABLE
                   for item in self._session.node.get_publishers_info_by_topic(topic))

    def controllers(self) -> list[str]:
        """Return names of joint trajectory action servers."""
        return [name for name, kinds in get_action_names_and_types(self._session.node)
                if _TRAJECTORY in kinds]

    def own_nodes(self, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """Yield full name and lifecycle state of nodes with certain names."""
        for full in self._session.other_nodes(0.0):
            if full.rpartition('/')[2] in names:
                yield full, self._state(full)

    def listen(self, duration: float) -> Heard:
        """Listen for a while [s]."""
        heard = Heard()
        node = self._session.node
        made = [
            node.create_subscription(String, self.name('robot_description'),
                                     lambda message: setattr(heard, 'description', message.data),
                                     qos.LATCHED),
            node.create_subscription(
                JointState, self.name('joint_states'),
                lambda message: self._take_joints(heard.joints, message), qos.SENSOR)]
        for topic, kinds in self.published().items():
            if WRENCH in kinds and topic.startswith(self.name('')):
                sensor = heard.wrenches[topic] = HeardWrench()
                made.append(node.create_subscription(
                    WrenchStamped, topic,
                    lambda message, sensor=sensor: _take_wrench(sensor, message), qos.SENSOR))
        self._session.spin_until(lambda: False, duration)
        for subscription in made:
            node.destroy_subscription(subscription)
        return heard

    def _take_joints(self, heard: HeardJoints, message: JointState) -> None:
        now = self._session.node.get_clock().now().nanoseconds
        if tuple(message.name) != heard.names:
            # Another publisher on the topic: only the fuller one is the arm's.
            if len(message.name) < len(heard.names):
                return
            heard.positions.clear()
            heard.efforts.clear()
        heard.names = tuple(message.name)
        heard.velocities = len(message.velocity)
        heard.stamps.append(conversions.seconds(message.header.stamp))
        heard.arrivals.append(1e-9 * now)
        heard.positions.append(list(message.position))
        heard.efforts.append(list(message.effort))

    def _state(self, node: str) -> str:
        client: Any = self._session.node.create_client(GetState, f'{node}/get_state')
        try:
            if not self._session.spin_until(client.service_is_ready, _STATE_TIMEOUT):
                return 'no lifecycle node'
            future: Any = client.call_async(GetState.Request())
            if not self._session.spin_until(future.done, _STATE_TIMEOUT):
                return 'not answering'
            state = future.result().current_state
            return STATES.get(state.id, str(state.label))
        finally:
            self._session.node.destroy_client(client)


def _take_wrench(heard: HeardWrench, message: WrenchStamped) -> None:
    heard.stamps.append(conversions.seconds(message.header.stamp))
    heard.frames[message.header.frame_id] += 1
    heard.finite &= bool(np.isfinite(conversions.wrench_row(message)).all())
