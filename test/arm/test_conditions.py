# SPDX-License-Identifier: Apache-2.0
"""Conditions under which a motion is ended: efforts, and topics of the robot's driver."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import rclpy
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node
from std_msgs.msg import Bool
from support.ros_rig import Spinner, arm_urdf

from robocal_ros.arm.protocols import MotionStatus
from robocal_ros.arm.stop_conditions import DriveCondition, StopConditions
from robocal_ros.arm.waiting import Waiter
from robocal_ros.errors import ConfigurationError
from robocal_ros.messages import qos
from robocal_ros.messages.stream import JointStateStream
from robocal_ros.parameters import ArmParameters
from robocal_ros.robot.model import Robot


@pytest.fixture
def node(ros: None) -> Iterator[Node]:
    made = rclpy.create_node('subject', namespace='conditions')
    yield made
    made.destroy_node()


@pytest.fixture
def driver(ros: None) -> Iterator[Node]:
    made = rclpy.create_node('driver', namespace='conditions')
    yield made
    made.destroy_node()


def condition(node: Node, text: str) -> DriveCondition:
    return DriveCondition(node, ReentrantCallbackGroup(), text)


@pytest.mark.parametrize('profile', [qos.LATCHED, qos.RELIABLE, qos.SENSOR])
def test_a_robot_that_is_stopped(node: Node, driver: Node, profile) -> None:
    subject = condition(node, 'running data == true')
    subject.start()
    assert "nobody publishes it on '/conditions/running'" in subject.problem()
    publisher = driver.create_publisher(Bool, 'running', profile)
    with Spinner(node, driver) as spinner:
        spinner.until(lambda: 'no message has arrived yet' in subject.problem())
        spinner.until(lambda: publisher.publish(Bool(data=False))
                      or 'unknown' not in subject.problem())
        assert "reports data False on '/conditions/running'" in subject.problem()
        spinner.until(lambda: publisher.publish(Bool(data=True)) or not subject.problem())
        subject.stop()
        assert 'no message has arrived yet' in subject.problem()


def test_a_driver_that_ended_is_not_believed_any_more(node: Node, driver: Node) -> None:
    subject = condition(node, 'running data == true')
    with Spinner(node, driver) as spinner:
        publisher = driver.create_publisher(Bool, 'running', qos.LATCHED)
        publisher.publish(Bool(data=True))
        spinner.until(lambda: not subject.problem())
        driver.destroy_publisher(publisher)
        spinner.until(lambda: 'nobody publishes it' in subject.problem())
        again = driver.create_publisher(Bool, 'running', qos.LATCHED)
        spinner.until(lambda: 'no message has arrived yet' in subject.problem())
        again.publish(Bool(data=True))
        spinner.until(lambda: not subject.problem())


@pytest.mark.parametrize(('text', 'holds'), [
    ('state name == fine', True), ('state name != [bad, fine]', False),
    ('state values == []', False), ("state message==''", True)])
def test_fields_and_values(node: Node, driver: Node, text: str, holds: bool) -> None:
    subject = condition(node, text)
    publisher = driver.create_publisher(DiagnosticStatus, 'state', qos.LATCHED)
    publisher.publish(DiagnosticStatus(name='fine', values=[KeyValue(key='a')]))
    with Spinner(node, driver) as spinner:
        spinner.until(lambda: 'unknown' not in subject.problem())
        assert (not subject.problem()) == holds


def test_a_field_that_messages_lack_is_refused_with_theirs(node: Node, driver: Node) -> None:
    subject = condition(node, 'running mode == 1')
    driver.create_publisher(Bool, 'running', 10)
    with Spinner(node, driver) as spinner, pytest.raises(
            ConfigurationError, match=r"no field 'mode'; they have data"):
        spinner.until(lambda: not subject.problem())


@pytest.mark.parametrize('text', ['running', 'running data', 'running data == ',
                                  'running data = true', 'running data == [1', 'a b c == 1'])
def test_what_is_no_condition_is_refused(node: Node, text: str) -> None:
    with pytest.raises(ConfigurationError, match='expected topic, field'):
        condition(node, text)


def stop_conditions(torque: np.ndarray, **values: Any) -> StopConditions:
    return StopConditions(
        cast(Waiter, SimpleNamespace(node=None, group=None, now=float)), Robot(arm_urdf()),
        cast(JointStateStream, SimpleNamespace(torque=lambda: torque)),
        lambda: ArmParameters(**values))


@pytest.mark.parametrize(('values', 'words'), [
    ({'max_force': 10.0}, 'guard_topic and max_force or max_torque need each other'),
    ({'guard_topic': 'ft'}, 'guard_topic and max_force or max_torque need each other'),
    ({'max_effort_share': [1.0, 1.0]}, "'max_effort_share' has 2 values; expected 1 or 6"),
    ({'max_effort_share': [1.0], 'effort_source': 'unknown'}, 'efforts of a known unit'),
])
def test_parameters_that_contradict_each_other(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        stop_conditions(np.zeros(6), **values)


@pytest.mark.parametrize(('efforts', 'joint'), [
    ({}, ''),
    ({1: 1e4}, 'joint_2'),
    ({1: -1e4, 2: np.nan}, 'joint_3'),
    # Neither names a joint that has no limit, whatever it says.
    ({0: np.nan}, ''),
    ({0: np.nan, 1: 1e4}, 'joint_2'),
    ({0: np.nan, 5: np.nan}, 'joint_6'),
])
def test_the_joint_with_too_large_an_effort_is_named(
    efforts: dict[int, float], joint: str
) -> None:
    torque = np.zeros(6)
    torque[list(efforts)] = list(efforts.values())
    conditions = stop_conditions(
        torque, max_effort_share=(0.0, *5 * (0.9,)), effort_source='torque')
    found = conditions.problem()
    if not joint:
        assert found is None
    else:
        assert found is not None
        status, message = found
        assert status is MotionStatus.OVERLOADED
        assert f"'{joint}'" in message
