# SPDX-License-Identifier: Apache-2.0
"""Limits of efforts and forces, and stops that the robot reports: each ends a motion."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import WrenchStamped

from robocal_ros.arm.drive_conditions import DriveCondition
from robocal_ros.arm.protocols import MotionStatus
from robocal_ros.arm.waiting import Waiter
from robocal_ros.errors import ConfigurationError
from robocal_ros.messages import JointStateStream, Subscriber, publisher_hint, qos
from robocal_ros.parameters import ArmParameters, named
from robocal_ros.robot import Robot, per_joint

# Largest message with statuses that is read, which takes 20 ms [bytes].
_STATUSES = 100_000


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
        force, torque = message.wrench.force, message.wrench.torque
        self._largest = np.maximum(self._largest, [
            np.hypot(np.hypot(part.x, part.y), part.z) for part in (force, torque)])

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
        return self._wrench_problem()

    def _wrench_problem(self) -> tuple[MotionStatus, str] | None:
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
