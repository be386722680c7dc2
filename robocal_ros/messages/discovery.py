# SPDX-License-Identifier: Apache-2.0
"""Where a topic that nobody publishes may be instead: most often in another namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rclpy.node import Node


_SHOWN = 6


def type_name(kind: Any) -> str:
    """Return a message type's name, such as ``sensor_msgs/msg/JointState``."""
    package, folder, *_ = str(kind.__module__).split('.')
    return f'{package}/{folder}/{kind.__name__}'


def elsewhere(node: Node, topic: str, kind: Any) -> str:
    """Say where a topic is, when nothing comes on it.

    Args:
        node: The node that listens.
        topic: Its topic, relative names within its namespace.
        kind: The message type.

    Returns:
        Sentences: who publishes on the topic, or on which topics of the same name, else of the
        same type, messages are published.

    """
    wanted, name = node.resolve_topic_name(topic), type_name(kind)
    if node.count_publishers(wanted):
        return f"'{wanted}' has a publisher, but no message of type {name} came from it."
    own = f'{node.get_fully_qualified_name()}/'
    same_type = [
        other for other, kinds in node.get_topic_names_and_types()
        if name in kinds and not other.startswith(own) and node.count_publishers(other)]
    leaf = wanted.rpartition('/')[2]
    same_name = sorted(other for other in same_type if other.rpartition('/')[2] == leaf)
    shown = same_name or sorted(same_type)
    if not shown:
        return f"Nobody publishes on '{wanted}', nor {name} on any other topic."
    listed = ', '.join(shown[:_SHOWN]) + (', …' if len(shown) > _SHOWN else '')
    cure = ('Start the node in that namespace, or remap the topic.' if same_name else
            'Name or remap the right one.')
    return f"Nobody publishes on '{wanted}'; {name} is published on {listed}. {cure}"
