# SPDX-License-Identifier: Apache-2.0
"""The base of every capability's node.

Writing a capability node
-------------------------
Derive one class from ``CalibrationNode``, set ``parameter_table``, and write, in this order:

``build``
    Create the parts of the node after its parameters are read and the robot is known: streams
    (``self.stream``), the arm, the recorder, publishers (``self.publisher``), other nodes'
    results (``self.results.follow``). ``release`` removes all of them; streams are started on
    activation and stopped on deactivation.
``check``
    Check parameters against the robot and stored results, beyond the ranges of their table. It
    is called before ``build``, and before a change of a dynamic parameter is accepted.
``rehearse``
    Carry out the motions of ``run`` on a ``PreviewArm``, for the service ``preview``.
``run``, ``estimate``, ``clear``
    Implement the services of these names, and of further ones named in ``verbs``. Return a
    sentence, or an ``Answer`` if it may be a failure. A RobocalError is answered with its text;
    any other exception is logged with its traceback, and the node stays usable.

``cancel`` is implemented here: ``self.waiter`` raises CancelledError at the next wait of the
procedure, and the arm is held. Deactivation, shutdown and a signal do the same.

``self.values`` are the current parameters. Those declared ``dynamic`` may change between two
procedures, so read them when a procedure begins instead of keeping copies.
"""

from __future__ import annotations

import logging
import math
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from rcl_interfaces.msg import SetParametersResult
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.service import Service
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory
from visualization_msgs.msg import Marker, MarkerArray

from robocal_ros import registry
from robocal_ros.arm import Arm, PreviewArm, Waiter
from robocal_ros.errors import ConfigurationError, DataError, RobocalError
from robocal_ros.messages import LIMIT, TEXT_LIMIT, Subscriber, publisher_hint, qos, receiver
from robocal_ros.node import parameters, status
from robocal_ros.node.followed_results import FollowedResults
from robocal_ros.node.instance import ActiveInstance
from robocal_ros.node.procedure_node import Answer, Part, ProcedureNode
from robocal_ros.node.status import StatusReporter
from robocal_ros.parameters import RobotParameters
from robocal_ros.results import CalibrationResult, Verdict, check_writable, to_yaml
from robocal_ros.robot import make_robot, make_store, with_own_units

SUCCESS = TransitionCallbackReturn.SUCCESS
FAILURE = TransitionCallbackReturn.FAILURE
ERROR = TransitionCallbackReturn.ERROR

# Time in which the last messages before the end of their senders are delivered [s].
DELIVERY_TIME = 0.5


class ActivePart(Part, Protocol):
    """Part that works while its node is active."""

    def start(self) -> None:
        """Start, on activation."""

    def stop(self) -> None:
        """Stop, on deactivation; recorded samples are kept."""


AnyActive = TypeVar('AnyActive', bound=ActivePart)


class _ForwardToRos(logging.Handler):
    """Log handler that forwards records of modules without ROS to a node's logger."""

    def __init__(self, node: LifecycleNode) -> None:
        super().__init__()
        self._logger = node.get_logger()

    def emit(self, record: logging.LogRecord) -> None:
        # Two calls on two lines: rclpy allows one severity for each place that logs.
        if record.levelno >= logging.WARNING:
            self._logger.warning(record.getMessage())
        else:
            self._logger.info(record.getMessage())


class CalibrationNode(ProcedureNode, ABC):
    """Lifecycle node of one capability: guarded transitions, parameters, services, release.

    The constructor only declares parameters; configure creates everything else.

    Attributes:
        results: Results of other nodes that it uses.

    """

    parameter_table: type[RobotParameters]

    arm: Arm
    """The arm; only of nodes that move it."""

    verbs: tuple[str, ...] = ('run', 'estimate', 'clear', 'preview')
    """Trigger services ``~/name``; each calls the method of its name."""

    late_modules: tuple[str, ...] = tuple(f'scipy.{name}' for name in (
        'linalg', 'spatial', 'optimize', 'interpolate'))
    """Modules imported after activation, to activate sooner; those that others need come first.

    Not scipy.signal, and scipy.stats with it: half of the time, and only some methods need them.
    """

    idle_message = 'Active; call run, or play a bag and call estimate.'
    """Status message of an active, idle node."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        """Declare the parameters.

        Args:
            name: Name of the node.
            **kwargs: Passed on to rclpy.

        """
        self.results = FollowedResults(self)
        super().__init__(name, **kwargs)
        self._awaited: AwaitedDescription | None = None
        self._started_itself = False
        self._drawn: list[Marker] = []
        self._streams: list[ActivePart] = []
        self._offered: list[Service[Any, Any]] = []
        self._problems = parameters.declare(self, self.parameter_table)
        self._unknown = parameters.unknown(self, kwargs.get('parameter_overrides') or ())
        self.add_on_set_parameters_callback(self._on_set_parameters)
        self.add_post_set_parameters_callback(self._on_parameters_set)

    # ------------------------------------------------- implemented by a capability

    def check(self, values: Any) -> None:
        """Raise a ConfigurationError if parameters don't fit the robot or stored results."""

    @abstractmethod
    def build(self) -> None:
        """Create the parts of the node."""

    @abstractmethod
    async def run(self) -> Answer | str:
        """Carry out the whole procedure."""

    @abstractmethod
    async def estimate(self) -> Answer | str:
        """Estimate without moving."""

    @abstractmethod
    async def clear(self) -> Answer | str:
        """Discard the recording."""

    async def rehearse(self, arm: PreviewArm) -> str:
        """Carry out the motions of ``run`` in a dry run; return a sentence, or nothing."""
        raise NotImplementedError

    async def preview(self) -> Answer | str:
        """Plan and check all motions of ``run`` and show them, without moving."""
        return await self.dry_run(self.rehearse)

    async def dry_run(self, motions: Callable[[PreviewArm], Awaitable[str]]) -> str:
        """Plan and check motions and show them, without moving.

        Args:
            motions: Carries them out on the given arm; returns a sentence, or nothing.

        Returns:
            The sentence, and number, duration and extent of the motions.

        """
        await self.arm.await_rest()
        await self.arm.keep_clear()
        rehearsed = PreviewArm(self.arm, self.status)
        self._drawn = []
        said = await motions(rehearsed)
        if rehearsed.motions:
            cleared, root = Marker(action=Marker.DELETEALL), self.robot.root_frame
            cleared.header.frame_id = root
            self.publish_markers(MarkerArray(
                markers=[cleared, *self._drawn, *rehearsed.markers(root)]))
            self._preview_topic.publish(rehearsed.trajectory())
        return ' '.join(filter(None, (
            said, self._unprotected(), rehearsed.summary(self.robot.root_frame),
            'Nothing was moved.')))

    def _unprotected(self) -> str:
        """Return what the collision check does not know as a sentence, empty for nothing."""
        unset = [name for name, known in (
            ('floor', self.values.floor > -1000.0), ('tool_box', any(self.values.tool_box)))
            if not known]
        shapeless = ', '.join(self.arm.checker.missing_meshes)
        return ' '.join(filter(None, (
            f'Unprotected, because not set: {" and ".join(unset)}.' if unset else '',
            f'Without collision shape: {shapeless}.' if shapeless else '')))

    async def prepare(self, name: str) -> None:
        """Wait for results that are being read; refuse if the service could not store its own."""
        await self.waiter.until_stopped(lambda: not self.results.reading, math.inf)
        if registry.of_node(self.capability).results and (
                name != 'clear' and not name.startswith('preview')):
            check_writable(self.store.directory)

    # ----------------------------------------------------------------------- parts

    def stream(self, stream: AnyActive) -> AnyActive:
        """Register a stream to be started on activation and destroyed by ``release``."""
        self._streams.append(stream)
        return self.part(stream)

    def subscription(
        self, kind: Any, topic: str, callback: Callable[[Any], None], profile: Any, *,
        limit: int = LIMIT, idle_only: bool = False,
    ) -> None:
        """Subscribe to a topic with a low rate, also while inactive.

        Args:
            kind: Type of the messages.
            topic: The topic.
            callback: Called with every message.
            profile: Quality of service.
            limit: Largest message [bytes].
            idle_only: Whether messages are left out, unread, while a service runs.

        """
        receive = receiver(self, kind, topic, callback, limit=limit)

        def when_idle(message: bytes) -> None:
            if idle_only and self.running:
                raise DataError(f'{self.running} is under way.')
            receive(message)

        subscription = self.create_subscription(
            kind, topic, when_idle, profile, raw=True, callback_group=self.group)
        self.parts.callback(self.destroy_subscription, subscription)

    def publish_markers(self, markers: MarkerArray) -> None:
        """Publish markers, latched."""
        self._drawn = list(markers.markers)
        self.markers.publish(markers)

    # ------------------------------------------------------------------ autostart

    def start_itself(self) -> None:
        """Configure and activate the node as soon as there is a robot description.

        Services and status are there from now on: what is called meanwhile is answered with what
        the node waits for.
        """
        self._started_itself = True
        self.status = StatusReporter(self, self.group, time.monotonic)
        self._offer_services()
        if self.get_parameter('robot_description').value.strip():
            self._start()
        else:
            self._awaited = AwaitedDescription(self, self._start)

    def _offer_services(self) -> None:
        if not self._offered:
            self._offered = self.offer(self.verbs)

    def _withdraw_services(self) -> None:
        while self._offered:
            self.destroy_service(self._offered.pop())

    def _yield_services(self, other: bool) -> None:
        """Leave the answers to the active node of this name, except those still to be given."""
        if not other:
            self._offer_services()
        elif self._offered and not self.busy:
            self.get_logger().warning(
                'Another node of this name is active: this one offers no procedures meanwhile.')
            self._withdraw_services()

    def _start(self) -> None:
        if self.trigger_configure() != SUCCESS or self.trigger_activate() != SUCCESS:
            self.get_logger().error('autostart failed; configure and activate the node again.')
            self.status.update('unconfigured', self.why_inactive, level=status.ERROR)

    # ---------------------------------------------------------------- transitions

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Read the parameters and the robot description, and create all parts."""
        outcome = self._guarded('configure', self.refuse_while_ending)
        if outcome == SUCCESS:
            outcome = self._guarded('configure', self._configure)
            if outcome != SUCCESS:
                self.release()
                if self._started_itself:
                    self.status.update('unconfigured', self.why_inactive, level=status.ERROR)
        self.is_configured = outcome == SUCCESS
        return outcome

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Subscribe to the streams."""
        outcome = self._guarded('activate', self._activate)
        if outcome != SUCCESS:
            return outcome
        self.is_active = True
        self.get_logger().info('Active.')
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop the motion; recorded samples are kept."""
        outcome = self._guarded('deactivate', self._deactivate)
        return super().on_deactivate(state) if outcome == SUCCESS else outcome

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Release everything."""
        return self._guarded('cleanup', self.refuse_while_ending, self.release)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop the motion, and release everything after its end."""
        return self._guarded('shutdown', self._deactivate, self._release_when_ended)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Release everything after a defect, so that the node can be configured again."""
        return self._guarded('error handling', self._release_when_ended)

    def _guarded(self, what: str, *steps: Callable[[], None]) -> TransitionCallbackReturn:
        """Run the steps of a transition; log a RobocalError as text, others with the traceback.

        rclpy would drop both, and calls nothing after a failed configure.
        """
        try:
            for step in steps:
                step()
        except RobocalError as error:
            self.why_inactive = f'Cannot {what}: {error}'
            self.get_logger().error(self.why_inactive)
            return FAILURE
        except Exception as error:  # noqa: BLE001
            self.why_inactive = f'Defect in {what} ({type(error).__name__}); see the log.'
            self.get_logger().fatal(f'Defect in {what}:\n{traceback.format_exc()}')
            return ERROR
        self.why_inactive = ''
        return SUCCESS

    def _configure(self) -> None:
        if self._unknown:
            raise ConfigurationError(
                f'{" ".join(self._unknown)} Correct the parameter file or the command line and '
                'restart the node; docs/parameters.md lists all.')
        if self._problems:
            raise ConfigurationError(
                f'{" ".join(self._problems.values())} Set {" and ".join(self._problems)} '
                "('ros2 param set') and configure again, or restart the node with it corrected.")
        values = self.values = parameters.read(self, self.parameter_table)
        self.waiter = self.part(Waiter(self, self.group))
        if not self._started_itself:
            self.status = self.part(StatusReporter(self, self.group, self.waiter.now))
        self._forward_core_log()
        self.stream(ActiveInstance(self.waiter, self._give_way, self._yield_services))
        self.robot = make_robot(
            (self._awaited and self._awaited.text) or read_description(self), values)
        self.status.worded = self.robot.in_own_units
        self.store = make_store(self.robot, values)
        self.markers = self.publisher(MarkerArray, '~/markers')
        self.check(values)
        self._result_topics = {
            item.kind: self.publisher(String, f'~/{item.topic}')
            for item in registry.of_node(self.capability).procedures if item.kind}
        self.build()
        if hasattr(self, 'arm'):
            self._preview_topic = self.publisher(JointTrajectory, '~/preview_trajectory')
        self._offer_services()
        if not self._started_itself:
            self.parts.callback(self._withdraw_services)
        self.status.update('idle', 'Configured; activate to begin.', progress=0.0)

    def _forward_core_log(self) -> None:
        core_log = logging.getLogger('robocal_ros')
        core_log.setLevel(logging.INFO)
        handler = _ForwardToRos(self)
        core_log.addHandler(handler)
        self.parts.callback(core_log.removeHandler, handler)

    def _activate(self) -> None:
        for stream in self._streams:
            stream.start()
        self.waiter.load(self.late_modules)
        # What is done now and then is done in the same turns of the executor.
        for timer in self.timers:
            if not timer.is_canceled():
                timer.reset()
        self.status.update('idle', self.idle_message)

    def _deactivate(self) -> None:
        self.is_active = False
        if not self.is_configured:
            return
        if not self.running:
            self.status.update('idle', 'Inactive; samples are kept.')
        self.stop_procedure('The node was deactivated.')
        # A motion that is being stopped is monitored to its end.
        self.when_ended(self._stop_unless_active)

    def _give_way(self, reason: str) -> None:
        """Deactivate in favour of the node of this name that was active before."""
        self.get_logger().error(f'Deactivated: {reason}')
        self.trigger_deactivate()
        self.why_inactive = reason
        self.status.update('idle', f'Inactive. {reason}', level=status.ERROR)

    def _stop_unless_active(self) -> None:
        if not self.is_active:
            for stream in self._streams:
                stream.stop()

    # ------------------------------------------------------------------- release

    def release(self) -> None:
        """Undo a complete or partial configure; calling it again has no effect."""
        self.is_active = self.is_configured = False
        self._streams.clear()
        self.results.clear()
        self.parts.close()

    def _release_when_ended(self) -> None:
        # The ending motion and services that still answer need the parts.
        self.stop_procedure('The node releases the robot.')
        # An answer whose service is removed right after it was sent can be lost.
        self.when_ended(self.release, DELIVERY_TIME)

    # ------------------------------------------------------------------ services

    def catch_up(self) -> None:
        """Receive what was sent last."""
        for stream in self._streams:
            if isinstance(stream, Subscriber):
                stream.catch_up()
        self.results.catch_up()

    async def compute(self, function: Callable[[], CalibrationResult]) -> CalibrationResult:
        """Compute a result in the worker thread.

        Raises:
            RobocalError: If the data are unsuitable.
            CancelledError: If a stop was requested; the result is discarded.

        """
        self.status.update('estimating', 'Estimating from the recorded samples.')
        result = await self.waiter.compute(function)
        self.waiter.check_stopped()
        if resumed := self.journal.resumed:
            result = replace(result, counts={**result.counts, 'resumed': resumed})
        return with_own_units(self.robot, result)

    def publish_result(self, result: CalibrationResult) -> None:
        """Publish a result, latched, on the topic of its kind; without one it is only stored."""
        if result.kind in self._result_topics:
            self._result_topics[result.kind].publish(String(data=to_yaml(result)))

    def keep(
        self, result: CalibrationResult, publish: Callable[[CalibrationResult], None],
        summary: Callable[[CalibrationResult], str],
    ) -> Answer:
        """Save a result; publish it if it passed, otherwise the last good one stays in use."""
        self.store.save(result)
        if result.verdict is not Verdict.PASS:
            return Answer(False, f'Verdict {result.verdict.value}: {" ".join(result.reasons)} '
                                 'The last good result stays in use.')
        publish(result)
        return Answer(True, summary(result))

    # ----------------------------------------------------------------- parameters

    def _on_set_parameters(self, changed: list[Parameter[Any]]) -> SetParametersResult:
        """Accept or reject parameter changes."""
        given = {item.name: item.value for item in changed}
        reason = parameters.refusal(
            self.parameter_table, given, self.values if self.is_configured else None,
            self.running, self.check)
        return SetParametersResult(successful=not reason, reason=reason)

    def _on_parameters_set(self, changed: list[Parameter[Any]]) -> None:
        """Apply accepted parameters."""
        for item in changed:
            self._problems.pop(item.name, None)
        if self.is_configured:
            self.values = parameters.read(self, self.parameter_table)


_TOPIC = 'robot_description'


def read_description(node: ProcedureNode) -> str:
    """Return the URDF text of the parameter, else of the latched topic.

    Raises:
        ConfigurationError: If neither has one.

    """
    if text := node.values.robot_description.strip():
        return str(text)
    texts: list[str] = []
    subscriber = Subscriber(
        node, node.group, String, _TOPIC,
        lambda message: texts.append(message.data) if message.data.strip() else None,
        profile=qos.LATCHED, limit=TEXT_LIMIT)
    subscriber.start()
    timeout = node.values.description_timeout
    end = time.monotonic() + timeout
    while not texts and (left := end - time.monotonic()) > 0.0:
        if subscriber.wait(left):
            subscriber.drain()
    subscriber.stop()
    if not texts:
        raise ConfigurationError(
            "No robot description: parameter 'robot_description' is empty and no message "
            f"arrived on topic '{node.resolve_topic_name(_TOPIC)}' within {timeout} s. "
            f'{publisher_hint(node, _TOPIC, String)} Or start robot_state_publisher (or sim_arm) '
            'in this namespace, or give the parameter.')
    return texts[-1]


class AwaitedDescription:
    """Starts a node with the first usable description, and reports what it waits for until then.

    Attributes:
        text: The received description.

    """

    def __init__(self, node: ProcedureNode, start: Callable[[], None]) -> None:
        """Wait for the topic.

        Args:
            node: The node.
            start: Configures and activates it.

        """
        self._node = node
        self._start = start
        self.text = ''
        self._topic = node.create_subscription(
            String, _TOPIC, self._take, qos.LATCHED, callback_group=node.group, limit=TEXT_LIMIT)
        self._reminder = node.create_timer(
            node.get_parameter('description_timeout').value, self._remind, node.group,
            clock=Clock(clock_type=ClockType.STEADY_TIME))
        self._tell('', status.OK)

    def _tell(self, hint: str, level: bytes) -> None:
        node = self._node
        node.why_inactive = (
            'Waiting for the robot description on topic '
            f"'{node.resolve_topic_name(_TOPIC)}'; start the driver, robot_state_publisher or "
            'sim_arm in this namespace and ROS domain, or give the parameter robot_description. '
            f'{hint}').rstrip()
        node.status.update('waiting', node.why_inactive, level=level)

    def _remind(self) -> None:
        self._tell(publisher_hint(self._node, _TOPIC, String), status.WARN)
        self._node.get_logger().warning(self._node.why_inactive, once=True)

    def _take(self, message: String) -> None:
        if not message.data.strip():
            return
        self._reminder.cancel()
        if not self._node.is_configured:
            self.text = message.data
            self._start()
            self.text = ''
        # After an unusable description there may be another one.
        if self._node.is_configured:
            self._node.destroy_subscription(self._topic)
            self._node.destroy_timer(self._reminder)
