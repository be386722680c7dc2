# SPDX-License-Identifier: Apache-2.0
"""A topic that nobody publishes: the node says where it is instead."""

from __future__ import annotations

import pytest
import rclpy
from geometry_msgs.msg import WrenchStamped
from sensor_msgs.msg import JointState
from support.ros_rig import Spinner

from robocal_ros.messages.stream import publisher_hint

pytestmark = pytest.mark.usefixtures('ros')


def test_another_namespace_and_another_name_are_found() -> None:
    listener = rclpy.create_node('listener', namespace='right')
    talker = rclpy.create_node('talker', namespace='left')
    talker.create_publisher(JointState, 'joint_states', 10)
    talker.create_publisher(WrenchStamped, 'gripper_sensor/data', 10)
    # What the node itself sends is no candidate.
    listener.create_publisher(WrenchStamped, '~/tool_wrench', 10)
    with Spinner(listener, talker) as spinner:
        spinner.until(
            lambda: 'gripper_sensor' in publisher_hint(listener, 'ft/wrench', WrenchStamped))
        told = publisher_hint(listener, 'joint_states', JointState)
        assert "No publisher on '/right/joint_states'" in told
        assert 'sensor_msgs/msg/JointState is published on /left/joint_states.' in told
        assert 'namespace' in told
        told = publisher_hint(listener, 'ft/wrench', WrenchStamped)
        assert 'published on /left/gripper_sensor/data. Set the parameter' in told
        assert 'tool_wrench' not in told


def test_nothing_and_a_silent_publisher_are_told_apart() -> None:
    node = rclpy.create_node('alone')
    with Spinner(node) as spinner:
        assert 'none of sensor_msgs/msg/JointState on any' in publisher_hint(
            node, 'joint_states', JointState)
        node.create_publisher(JointState, 'joint_states', 10)
        spinner.until(
            lambda: 'has a publisher' in publisher_hint(node, 'joint_states', JointState))
