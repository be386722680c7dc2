# SPDX-License-Identifier: Apache-2.0
"""What every node that knows the robot shares: model, joint states, status, services' answers.

The layers of a node: ``RobocalNode`` (transitions) ← ``RobotNode`` (the robot's model and state)
← ``ArmNode`` (motion) ← ``ProcedureNode`` (recording, estimation, results).
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
from std_msgs.msg import String
from std_srvs.srv import Trigger
from visualization_msgs.msg import MarkerArray

from robocal_ros.arm.old_waiting import Pulse, Worker
from robocal_ros.arrays import Array
from robocal_ros.errors import CancelledError, ConfigurationError, RobocalError
from robocal_ros.messages import qos
from robocal_ros.messages.stream import JointStateStream
from robocal_ros.messages.subscription import Listening
from robocal_ros.node import status
from robocal_ros.node.description import robot_description
from robocal_ros.node.lifecycle import RobocalNode
from robocal_ros.node.status import StatusReporter
from robocal_ros.parameters import RobotParameters
from robocal_ros.results.result import CalibrationResult
from robocal_ros.results.store import from_yaml
from robocal_ros.robot.setup import (
    DRIVE_GAINS,
    effort_factor,
    effort_scale,
    effort_scales,
    make_robot,
    make_store,
)

__all__ = ['ENDING', 'Destroyable', 'RobotNode', 'RobotParameters']

# Longest wait for something that was told to end [s].
ENDING = 15.0
# Longest wait for modules to be imported, before an action goes on without [s].
_LOADING = 30.0


class Stream(Protocol):
    """Something that hears a fast topic while it is asked to."""

    def listen(self) -> None:
        """Subscribe."""

    def rest(self) -> None:
        """Unsubscribe; what was recorded stays."""

    def destroy(self) -> None:
        """Unsubscribe for good."""


AnyStream = TypeVar('AnyStream', bound=Stream)


@dataclass(frozen=True)
class Destroyable:
    """Something that release undoes."""

    destroy: Callable[[], Any]


class _ForwardToRos(logging.Handler):
    """Hands the core's log records to a node's logger."""

    def __init__(self, node: RobocalNode) -> None:
        super().__init__()
        self._logger = node.get_logger()

    def emit(self, record: logging.LogRecord) -> None:
        # Two calls on two lines: rclpy allows one severity for each place that logs.
        if record.levelno >= logging.WARNING:
            self._logger.warning(record.getMessage())
        else:
            self._logger.info(record.getMessage())


class RobotNode(RobocalNode):
    """A node with the robot's model and joint states; one service call at a time."""

    parameter_table = RobotParameters
    values: Any
    _meanwhile = ''

    late_modules: tuple[str, ...] = ()
    """What is imported once the node is active, so that it is active soon."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        """Declare parameters; everything else is made by configure."""
        super().__init__(name, **kwargs)
        self._running = ''
        self._cancelling = 0
        self._made: list[Callable[[], Any]] = []
        self._streams: list[Stream] = []

    # ------------------------------------------------------------------- lifecycle

    def _configure(self) -> None:
        values = self.values
        self.pulse = self.part(Pulse(self, self.group))
        self.worker = Worker()
        self._made.append(self.worker.shutdown)
        self.status = self.part(StatusReporter(self, self.group, self.pulse.now))
        self._forward_core_log()
        urdf = robot_description(self, values.robot_description, values.description_timeout)
        self.robot = make_robot(urdf, values)
        self.store = make_store(self.robot, values)
        self.identity = self.store.robot
        self.joints = self._joint_stream()
        self._marker_publisher = self._publisher(MarkerArray, '~/markers')
        self._use_drive_gains()

    def _joint_stream(self) -> Any:
        """Return what hears the joint states."""
        return self.stream(JointStateStream(
            self, self.group, self.robot.joint_names, now=self.pulse.now,
            factor=effort_factor(self.robot, self.values), on_sample=self._on_sample))

    def _activate(self) -> None:
        self.worker.load(self.late_modules)
        for stream in self._streams:
            stream.listen()

    def _deactivate(self) -> None:
        if not self.moving or self.executor is None:
            self._stop_listening()
            return

        async def rest() -> None:
            await self.pulse.until(lambda: not self.moving, ENDING)
            if not self.is_active:
                self._stop_listening()

        # A motion that is being stopped is watched to its end.
        self.executor.create_task(rest)

    def _stop_listening(self) -> None:
        for stream in self._streams:
            stream.rest()

    def _forward_core_log(self) -> None:
        core_log = logging.getLogger('robocal_ros')
        core_log.setLevel(logging.INFO)
        handler = _ForwardToRos(self)
        core_log.addHandler(handler)
        self._made.append(lambda: core_log.removeHandler(handler))

    def part(self, part: Any) -> Any:
        """Remember a part so that release destroys it."""
        self._made.append(part.destroy)
        return part

    def stream(self, stream: AnyStream) -> AnyStream:
        """Have a stream listen while the node is active, and destroyed by release."""
        self._streams.append(stream)
        self._made.append(stream.destroy)
        return stream

    def fast_topic(self, kind: Any, topic: str, receive: Callable[[Any], None]) -> None:
        """Hear a fast topic while the node is active."""
        self.stream(Listening(self, self.group, kind, topic, receive))

    def subscription(
        self, kind: Any, topic: str, callback: Callable[[Any], None], profile: Any
    ) -> Destroyable:
        """Subscribe to a topic on which little comes; hand the answer to ``part``."""
        made = self.create_subscription(kind, topic, callback, profile,
                                        callback_group=self.group)
        return Destroyable(lambda: self.destroy_subscription(made))

    def service(self, verb: str, callback: Callable[..., Any]) -> None:
        """Offer a Trigger service of the node's own."""
        made = self.create_service(Trigger, f'~/{verb}', callback, callback_group=self.group)
        self._made.append(partial(self.destroy_service, made))

    def _publisher(self, kind: Any, topic: str) -> Any:
        publisher = self.create_publisher(kind, topic, qos.LATCHED)
        self._made.append(partial(self.destroy_publisher, publisher))
        return publisher

    def _use_drive_gains(self) -> None:
        """Apply identified effort scales, the stored ones now and new ones as they come."""
        self.effort_scale = np.ones(self.robot.n)
        if not self.values.use_drive_gains:
            return
        stored = self.store.load(DRIVE_GAINS)
        if stored is not None:
            self.apply_drive_gains(stored)
        self.part(self.subscription(
            String, 'payload_identification/drive_gains', self._take_drive_gains, qos.LATCHED))

    def _take_drive_gains(self, message: String) -> None:
        try:
            self.apply_drive_gains(from_yaml(
                message.data, self.identity, 'payload_identification/drive_gains'))
        except RobocalError as error:
            self.get_logger().warning(f'Drive gains not used: {error}')

    def apply_drive_gains(self, result: CalibrationResult) -> None:
        """Use effort scales from now on; samples with other scales are forgotten."""
        scale = effort_scale(self.robot, result)
        if np.array_equal(scale, self.effort_scale):
            return
        self.effort_scale = scale
        self.joints.set_factor(effort_factor(self.robot, self.values) / scale)
        known = effort_scales(result)
        told = ', '.join(f'{name} {known[name]:.3f}' for name in known)
        self.get_logger().info(f'Efforts are divided by the identified scales: {told}.')

    def _may_release(self) -> None:
        if self.moving:
            raise ConfigurationError(
                f'{self._running or "cancel"} is still ending{self._meanwhile}; call again in a '
                'moment.')

    def _let_go(self) -> None:
        if not self.moving or self.executor is None:
            self._release()
            return

        async def release() -> None:
            await self.pulse.until(lambda: not self.moving, ENDING)
            self._release()

        # What the ending motion needs, and the services that still answer, must outlive it.
        self.stop_motion('The node lets the robot go.')
        self.executor.create_task(release)

    def _release(self) -> None:
        self._streams.clear()
        while self._made:
            self._made.pop()()

    def stop_motion(self, reason: str) -> None:
        """Have what is under way end; returns at once."""

    @property
    def moving(self) -> bool:
        """Whether a procedure is under way, or somebody waits for its end."""
        return bool(self._running) or self._cancelling > 0

    # ------------------------------------------------- what subclasses fill in

    def _on_sample(self, stamp: float, position: Array, torque: Array) -> None:
        """Look at a recorded sample while it arrives."""

    def _before_action(self) -> None:
        """Prepare for a service's action."""

    def _told(self, outcome: Any) -> tuple[bool, str]:
        """Turn the outcome of a service's action into success and message."""
        return True, str(outcome)

    # -------------------------------------------------------------------- services

    async def answered(
        self,
        what: str,
        action: Callable[[], Awaitable[Any]],
        response: Trigger.Response,
    ) -> Trigger.Response:
        """Run a service's action and turn whatever comes of it into an answer."""
        if not self.is_active:
            response.success = False
            response.message = f'The node is not active; activate it before calling {what}.'
            return response
        if self._running:
            response.success = False
            response.message = f'{self._running} is under way; call cancel first, or wait.'
            return response
        self._running = what
        self._before_action()
        level = status.OK
        try:
            await self.pulse.until(lambda: not self.worker.loading, _LOADING)
            outcome = await action()
            response.success, response.message = self._told(outcome)
        except CancelledError as error:
            response.success, response.message = False, str(error)
            level = status.WARN
        except RobocalError as error:
            response.success, response.message = False, str(error)
            level = status.ERROR
        except Exception as error:  # noqa: BLE001
            # A defect: say so, with the traceback, and leave the node usable.
            self.get_logger().fatal(f'Defect in {what}:\n{traceback.format_exc()}')
            response.success = False
            response.message = f'Defect in {what} ({type(error).__name__}: {error}); see the log.'
            level = status.ERROR
        finally:
            self._running = ''
        if not response.success and level == status.OK:
            level = status.WARN
        # Two calls on two lines: rclpy allows one severity for each place that logs.
        if response.success:
            self.get_logger().info(f'{what}: {response.message}')
        else:
            self.get_logger().error(f'{what}: {response.message}')
        self.status.say('idle', response.message, progress=100.0 if response.success else None,
                        level=level)
        return response

    def publish_markers(self, markers: MarkerArray) -> None:
        """Publish markers, latched."""
        self._marker_publisher.publish(markers)
