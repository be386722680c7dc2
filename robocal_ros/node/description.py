# SPDX-License-Identifier: Apache-2.0
"""Where a node gets its robot description from: the parameter, else the latched topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rclpy.wait_for_message import wait_for_message
from std_msgs.msg import String

from robocal_ros.errors import ConfigurationError
from robocal_ros.messages import qos
from robocal_ros.messages.discovery import elsewhere

if TYPE_CHECKING:
    from rclpy.node import Node


def robot_description(node: Node, given: str, timeout: float) -> str:
    """Return the URDF text.

    Args:
        node: The node; its executor need not spin.
        given: The parameter's value, which wins when not empty.
        timeout: Longest wait for the topic [s].

    Raises:
        ConfigurationError: If neither gives one.

    """
    if given.strip():
        return given
    found, message = wait_for_message(
        String, node, 'robot_description', qos_profile=qos.LATCHED, time_to_wait=timeout)
    if not found or message is None or not message.data.strip():
        raise ConfigurationError(
            f"No robot description: parameter 'robot_description' is empty and nothing came on "
            f"topic '{node.resolve_topic_name('robot_description')}' within {timeout} s. "
            f"{elsewhere(node, 'robot_description', String)} Or start robot_state_publisher (or "
            'sim_arm) in this namespace, or give the parameter.'
        )
    return str(message.data)
