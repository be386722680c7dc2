# SPDX-License-Identifier: Apache-2.0
"""Limits of efforts and forces, and stops that the robot reports: each ends a motion.

Drivers tell their state, such as their safety mode, in message types of their own. The type is
found in the graph, so that nothing here depends on a driver.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import yaml
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import WrenchStamped
from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from rclpy.subscription import Subscription

from robocal_ros.arm.protocols import MotionStatus
from robocal_ros.arm.waiting import Waiter
from robocal_ros.errors import ConfigurationError
from robocal_ros.messages import JointStateStream, Subscriber, conversions, publisher_hint, qos
from robocal_ros.parameters import ArmParameters, named
from robocal_ros.robot import Robot, per_joint

# Largest message with statuses that is read, which takes 20 ms [bytes].
_STATUSES = 100_000
_FORM = re.compile(r'(?P<topic>\S+)\s+(?P<field>[\w.]+)\s*(?P<sign>==|!=)\s*(?P<value>.+)')


class DriveCondition:
    """Condition on a topic of the robot's driver, judged by its newest message."""

    def __init__(self, node: Node, group: CallbackGroup, text: str) -> None:
        """Read the condition.

        Args:
            node: The node.
            group: Callback group of the subscription.
            text: The condition, such as ``robot_mode mode == [1, 2]``.

        Raises:
            ConfigurationError: If it is none.

        """
        found = _FORM.fullmatch(text.strip())
        try:
            value = yaml.safe_load(found['value']) if found else None
        except yaml.YAMLError:
            value = None
        if found is None or value is None:
            raise ConfigurationError(
                'drive_conditions: expected topic, field, == or !=, and a value, such as '
                f"'robot_mode mode == [1, 2]'; got '{text}'.")
        self._text, self._field = text.strip(), found['field'].split('.')
        self._values = value if isinstance(value, list) else [value]
        self._equal = found['sign'] == '=='
        self._node, self._group = node, group
        self._topic: str = node.resolve_topic_name(found['topic'])
        self._subscription: Subscription[Any] | None = None
        self._newest: Any = None

    def start(self) -> None:
        """Subscribe, as soon as the topic has a publisher.

        Raises:
            ConfigurationError: If the message type is not installed, or lacks the field.

        """
        if self._subscription is not None:
            return
        publishers = self._node.get_publishers_info_by_topic(self._topic)
        if not publishers:
            return
        package, folder, name = publishers[0].topic_type.split('/')
        try:
            kind = getattr(importlib.import_module(f'{package}.{folder}'), name)
        except (ImportError, AttributeError):
            raise ConfigurationError(
                f"drive_conditions: '{self._topic}' is of type {package}/{folder}/{name}, which "
                f"this environment lacks. Install and source the package '{package}'.") from None
        self._value_in(kind())
        self._subscription = self._node.create_subscription(
            kind, self._topic, self._take,
            qos.offered_by_all([item.qos_profile for item in publishers], 1),
            callback_group=self._group)

    def stop(self) -> None:
        """Unsubscribe."""
        if self._subscription is not None:
            self._node.destroy_subscription(self._subscription)
        self._subscription = self._newest = None

    def _take(self, message: Any) -> None:
        self._newest = message

    def _value_in(self, message: Any) -> Any:
        try:
            return reduce(getattr, self._field, message)
        except AttributeError:
            fields = ', '.join(message.get_fields_and_field_types())
            raise ConfigurationError(
                f"drive_conditions: messages on '{self._topic}' have no field "
                f"'{'.'.join(self._field)}'; they have {fields}.") from None

    def problem(self) -> str:
        """Return why the arm must not move; empty if it may.

        Raises:
            ConfigurationError: As by ``start``.

        """
        self.start()
        published = self._node.count_publishers(self._topic) > 0
        if not published:
            # What a driver said that has ended is not known to be true any more.
            self._newest = None
        if self._newest is None:
            why = 'no message has arrived yet' if published else 'nobody publishes it'
            return (f"The condition '{self._text}' (drive_conditions) is unknown: {why} on "
                    f"'{self._topic}'. Start the driver, or correct the topic.")
        value = self._value_in(self._newest)
        if (value in self._values) == self._equal:
            return ''
        return (f"The robot's driver reports {'.'.join(self._field)} {value} on '{self._topic}' "
                f"(condition '{self._text}', drive_conditions). Release the stop, or start the "
                "robot's program.")


class StopConditions:
    """What ends a motion apart from its path: loads, and stops that others report."""

    def __init__(
        self, waiter: Waiter, robot: Robot, joints: JointStateStream,
        parameters: Callable[[], ArmParameters],
    ) -> None:
        """Prepare the subscriptions.

        Args:
            waiter: Its node subscribes.
            robot: The arm's model.
            joints: The arm's joint states.
            parameters: Returns the current parameters.

        Raises:
            ConfigurationError: If the parameters contradict each other.

        """
        values = parameters()
        share = per_joint(values.max_effort_share, robot.n, 'max_effort_share')
        if share.any() and values.effort_source == 'unknown':
            raise ConfigurationError(
                'max_effort_share needs efforts of a known unit, but effort_source is unknown. '
                'Set max_effort_share to [0.0].')
        if bool(values.guard_topic) != bool(values.max_force or values.max_torque):
            raise ConfigurationError(
                'guard_topic and max_force or max_torque need each other; got guard_topic '
                f"'{values.guard_topic}', max_force {values.max_force} N, max_torque "
                f'{values.max_torque} N·m.')
        self._limit = np.where(share > 0.0, share * robot.effort_limit, np.inf)
        self._robot, self._joints, self._parameters = robot, joints, parameters
        self._node, self._now = waiter.node, waiter.now
        self._names = named(values.stop_statuses)
        self._stopped: dict[str, str] = {}
        self._largest = np.zeros(2)
        self._heard = -np.inf
        diagnostics = Subscriber(
            waiter.node, waiter.group, DiagnosticArray, '/diagnostics', self._take_statuses,
            profile=qos.RELIABLE, limit=_STATUSES) if self._names else None
        self._wrench = Subscriber(
            waiter.node, waiter.group, WrenchStamped, values.guard_topic, self._take_wrench,
            busy=lambda: False) if values.guard_topic else None
        self._conditions = [DriveCondition(waiter.node, waiter.group, text)
                            for text in named(values.drive_conditions)]
        self._subscribers = [
            item for item in (diagnostics, self._wrench, *self._conditions) if item]

    def start(self) -> None:
        """Subscribe."""
        for subscriber in self._subscribers:
            subscriber.start()

    def stop(self) -> None:
        """Unsubscribe."""
        self._stopped.clear()
        self._heard = -np.inf
        for subscriber in self._subscribers:
            subscriber.stop()

    destroy = stop

    def _take_statuses(self, message: DiagnosticArray) -> None:
        for status in message.status:
            if status.name.startswith(self._names):
                if status.level in (DiagnosticStatus.ERROR, DiagnosticStatus.STALE):
                    self._stopped[status.name] = status.message
                else:
                    self._stopped.pop(status.name, None)

    def _take_wrench(self, message: WrenchStamped) -> None:
        self._heard = self._now()
        parts = np.reshape(conversions.wrench_row(message), (2, 3))
        self._largest = np.maximum(self._largest, np.hypot.reduce(parts, axis=1))

    def problem(self) -> tuple[MotionStatus, str] | None:
        """Return why the arm must not move, judging everything received since the last call."""
        for name, text in self._stopped.items():
            return MotionStatus.STOPPED, (
                f'The robot reports a stop on /diagnostics: {name}: {text}.')
        for condition in self._conditions:
            if text := condition.problem():
                return MotionStatus.STOPPED, text
        torque = np.abs(self._joints.torque())
        # An effort that is not finite is no sign of safety.
        beyond = np.isfinite(self._limit) & ~(torque <= self._limit)
        if beyond.any():
            share = np.nan_to_num(torque / self._limit, nan=np.inf)
            worst = int(np.argmax(np.where(beyond, share, -1.0)))
            return MotionStatus.OVERLOADED, self._robot.in_own_units(
                f"The effort of joint '{self._robot.joint_names[worst]}' is "
                f'{torque[worst]:.4g} N·m (limit {self._limit[worst]:.4g} N·m '
                'by max_effort_share): the arm may be in contact.')
        if self._wrench is None:
            return None
        self._wrench.catch_up()
        values = self._parameters()
        if self._now() - self._heard > values.state_timeout:
            hint = publisher_hint(self._node, values.guard_topic, WrenchStamped,
                                  stopped=bool(np.isfinite(self._heard)))
            return MotionStatus.DATA_LOST, (
                f"No readings were received on guard_topic '{self._wrench.topic}' for "
                f'{values.state_timeout} s. {hint}')
        largest, self._largest = self._largest, np.zeros(2)
        for name, found, limit, unit in (
                ('force', largest[0], values.max_force, 'N'),
                ('torque', largest[1], values.max_torque, 'N·m')):
            # A reading that is not finite is no sign of safety.
            if limit and not found <= limit:
                return MotionStatus.OVERLOADED, (
                    f"The {name} on guard_topic '{self._wrench.topic}' is {found:.4g} {unit} "
                    f'(limit {limit:g} {unit} by max_{name}): the arm may be in contact.')
        return None
