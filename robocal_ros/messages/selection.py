# SPDX-License-Identifier: Apache-2.0
"""Selection of a bag's messages, and contents of a bag other than samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from robocal_ros.errors import ConfigurationError
from robocal_ros.messages.bag import Bag
from robocal_ros.messages.marks import Mark

JOINT_STATE = 'sensor_msgs/msg/JointState'
WRENCH = 'geometry_msgs/msg/WrenchStamped'
POINT = 'geometry_msgs/msg/PointStamped'
POSE = 'geometry_msgs/msg/PoseStamped'
TEMPERATURE = 'sensor_msgs/msg/Temperature'
STRING = 'std_msgs/msg/String'
MARKS = 'diagnostic_msgs/msg/DiagnosticArray'


@dataclass(frozen=True)
class Selection:
    """Topics and times of the messages of a bag that are used.

    Attributes:
        namespace: Namespace of the robot's topics.
        remapped: Topics in the bag by the names that nodes use.
        begin: Stamp after which joint states and readings are used [s].
        end: Stamp up to which they are used [s].
        whole: True to ignore the marks of runs.

    """

    namespace: str = ''
    remapped: Mapping[str, str] = field(default_factory=dict)
    begin: float = -np.inf
    end: float = np.inf
    whole: bool = False

    def topic(self, bag: Bag, name: str, kind: str) -> str:
        """Return a topic's full name in a bag; errors as for ``Bag.find``."""
        return bag.find(self.remapped.get(name, name), kind, self.namespace)

    def known_topic(self, bag: Bag, name: str, kind: str) -> str | None:
        """Return a topic's full name, None if the bag does not have it."""
        if kind not in bag.topics.values():
            return None
        try:
            return self.topic(bag, name, kind)
        except ConfigurationError:
            return None


def description_in(bag: Bag, selection: Selection) -> str:
    """Return the URDF text that a bag holds.

    Raises:
        ConfigurationError: If it holds none.

    """
    try:
        topic = selection.topic(bag, 'robot_description', STRING)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"Bag '{bag.name}' holds no robot description; give the URDF with --urdf. "
            f'({error})') from error
    texts = [str(message.data) for message in bag.messages(topic)]
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise ConfigurationError(
            f"Topic '{topic}' of bag '{bag.name}' is empty; give the URDF with --urdf.")
    return texts[-1]


def marks_in(bag: Bag, topic: str) -> Iterator[Mark]:
    """Yield the marks of a topic, in the order in which they were recorded."""
    for message in bag.messages(topic):
        for status in message.status:
            yield Mark(str(status.name), str(status.message),
                       {str(item.key): str(item.value) for item in status.values})
