# SPDX-License-Identifier: Apache-2.0
"""The base of every capability's node.

Writing a capability node
-------------------------
Derive one class from ``CalibrationNode``, set ``parameter_table``, and write, in this order:

``build``
    Create the parts of the node after its parameters are read and the robot is known: streams
    (``self.stream``), the arm, the recorder, publishers (``self.publisher``), other nodes'
    results (``self.follow``). ``release`` removes all of them; streams are started on activation
    and stopped on deactivation.
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
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from dataclasses import replace
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from rcl_interfaces.msg import SetParametersResult
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.event_handler import PublisherEventCallbacks
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.publisher import Publisher
from rclpy.service import Service
from rclpy.subscription import Subscription
from rclpy.timer import Timer
from rosgraph_msgs.msg import Clock as Tick
from std_msgs.msg import String
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory
from visualization_msgs.msg import Marker, MarkerArray

from robocal_ros import registry
from robocal_ros.arm import PreviewArm, Waiter
from robocal_ros.errors import CancelledError, ConfigurationError, DataError, RobocalError
from robocal_ros.messages import (
    LIMIT,
    TEXT_LIMIT,
    ConditionalGroup,
    Subscriber,
    guarded,
    publisher_hint,
    qos,
    receiver,
)
from robocal_ros.node import parameters, status
from robocal_ros.node.instance import ActiveInstance
from robocal_ros.node.status import StatusReporter
from robocal_ros.parameters import RobotParameters
from robocal_ros.results import CalibrationResult, Verdict, choose, from_yaml, stale_text
from robocal_ros.robot import effort_units, make_robot, make_store, with_own_units

if TYPE_CHECKING:
    from robocal_ros.arm import GuardedArm

SUCCESS = TransitionCallbackReturn.SUCCESS
FAILURE = TransitionCallbackReturn.FAILURE
ERROR = TransitionCallbackReturn.ERROR

# Longest wait for a cancelled procedure to end [s].
_END_TIMEOUT = 15.0
# Longest wait for late imports before a procedure begins without them [s].
_IMPORT_TIMEOUT = 30.0
# Age from which the simulated clock is renewed while no service runs [s].
_OLD_TICK = 0.2
# Time in which the last messages before the end of their senders are delivered [s].
DELIVERY_TIME = 0.5


class Part(Protocol):
    """Resource that ``release`` removes."""

    def destroy(self) -> None:
        """Free the resource."""


class ActivePart(Part, Protocol):
    """Part that works while its node is active."""

    def start(self) -> None:
        """Start, on activation."""

    def stop(self) -> None:
        """Stop, on deactivation; recorded samples are kept."""


class Resumable(Protocol):
    """Journal of a procedure; see ``robocal_ros.node.journal``."""

    resumed: int
    sentence: str

    def remove(self) -> None:
        """Remove what was kept."""


class Answer(NamedTuple):
    """Answer of a service.

    Attributes:
        success: Whether the request was carried out.
        message: A sentence or two with numbers and units, or the reason for the failure.

    """

    success: bool
    message: str


Action = Callable[[], Awaitable[Answer | str]]
AnyPart = TypeVar('AnyPart', bound=Part)
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


class CalibrationNode(LifecycleNode, ABC):
    """Lifecycle node of one capability: guarded transitions, parameters, services, release.

    The constructor only declares parameters; configure creates everything else.

    Attributes:
        values: Current parameters.
        robot: Model of the arm.
        store: Its stored results.
        status: Publisher of the node's status.
        waiter: Waits, worker thread and cancellation for coroutines.
        running: Name of the running service, empty for none.
        is_active: Whether the node is active.

    """

    parameter_table: type[RobotParameters]

    arm: GuardedArm
    """The arm; only of nodes that move it."""

    journal: Resumable | None = None
    """Journal of the procedure; None if it begins anew after a restart."""

    capability: str
    """Name by which the capability is registered: that of its node, if it has no other."""

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
        self.group = ReentrantCallbackGroup()
        self.running = ''
        self._ending = 0
        self._ticked = -math.inf
        super().__init__(name, **kwargs)
        self.values: Any = None
        self.is_active = False
        self._configured = False
        self._starts_itself = False
        self._why_inactive = ''
        self._description = ''
        self._drawn: list[Marker] = []
        self._parts = ExitStack()
        self._streams: list[ActivePart] = []
        self._followed: dict[str, CalibrationResult | None] = {}
        self._result_topics: list[Subscriber] = []
        self._unread: dict[str, tuple[Callable[[str], Awaitable[None]], str]] = {}
        self._reading = False
        self._problems = parameters.declare(self, self.parameter_table)
        self._unknown = parameters.unknown(self, parameters.given_names(self) | {
            item.name for item in kwargs.get('parameter_overrides') or ()})
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
        rehearsed = PreviewArm(self.arm, self.status)
        self._drawn = []
        said = await motions(rehearsed)
        if rehearsed.motions:
            self.publish_markers(MarkerArray(
                markers=[*self._drawn, rehearsed.marker(self.robot.root_frame)]))
            self._preview_topic.publish(rehearsed.trajectory())
        return ' '.join(filter(None, (
            said, rehearsed.summary(self.robot.root_frame), 'Nothing was moved.')))

    # ----------------------------------------------------------------------- parts

    def create_publisher(self, *args: Any, **kwargs: Any) -> Publisher[Any]:
        """Create a publisher without rclpy's default event callbacks.

        These log subscriptions with an incompatible quality of service, which the subscriber logs
        too. Their two waitables per publisher take a third of each turn of the executor.
        """
        return super().create_publisher(
            *args, event_callbacks=PublisherEventCallbacks(use_default_callbacks=False), **kwargs)

    def create_service(
        self, srv_type: Any, srv_name: str, callback: Callable[..., Any], **kwargs: Any
    ) -> Service[Any, Any]:
        """Create a service; an exception in its callback is noted and answered with a failure.

        It would end the node otherwise, also in rclpy's own parameter services, which raise for
        malformed requests.
        """
        own = guarded(self, f'request to {srv_name}', callback)

        async def answering(request: Any, response: Any) -> Any:
            answer = await own(request, response)
            return response if answer is None else answer

        def answered(request: Any, response: Any) -> Any:
            answer = own(request, response)
            return response if answer is None else answer

        return super().create_service(
            srv_type, srv_name, answering if iscoroutinefunction(callback) else answered, **kwargs)

    def create_timer(self, *args: Any, **kwargs: Any) -> Timer:
        """Create a timer; an exception in its callback is noted."""
        period, callback, *others = args
        return super().create_timer(
            period, guarded(self, f'timer {callback.__qualname__}', callback), *others, **kwargs)

    def create_subscription(
        self, *args: Any, limit: int = LIMIT, raw: bool = False, **kwargs: Any
    ) -> Subscription[Any]:
        """Create a subscription that no message can break; see ``receiver``.

        rclpy's to the simulated clock wakes a busy node only. A turn of the executor for each
        tick would cost a tenth of a core. While no service runs, the clock is read when something
        else wakes the node, once a second or more often.

        Args:
            *args: Type of the messages, topic, callback, and what else rclpy expects.
            limit: Largest message [bytes].
            raw: Whether messages are taken as bytes, of any size.
            **kwargs: Passed on to rclpy.

        """
        kind, topic, callback, *others = args

        def tick(message: Tick) -> None:
            self._ticked = time.monotonic()
            callback(message)

        if kind is Tick:
            kwargs['callback_group'] = ConditionalGroup(
                lambda: self.busy or time.monotonic() - self._ticked > _OLD_TICK)
        receive = guarded(self, f'message on {topic}', callback) if raw else receiver(
            self, kind, topic, tick if kind is Tick else callback, limit=limit)
        return super().create_subscription(kind, topic, receive, *others, raw=True, **kwargs)

    def begin(self, what: str, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the executor; an exception in it is noted as what was left out."""
        async def run() -> None:
            await coroutine

        if self.executor is None:
            coroutine.close()
        else:
            self.executor.create_task(guarded(self, what, run))

    def part(self, part: AnyPart) -> AnyPart:
        """Register a part to be destroyed by ``release``; return it."""
        self._parts.callback(part.destroy)
        return part

    def stream(self, stream: AnyActive) -> AnyActive:
        """Register a stream to be started on activation and destroyed by ``release``."""
        self._streams.append(stream)
        return self.part(stream)

    def publisher(self, kind: Any, topic: str, profile: Any = qos.LATCHED) -> Any:
        """Create a publisher."""
        publisher = self.create_publisher(kind, topic, profile)
        self._parts.callback(self.destroy_publisher, publisher)
        return publisher

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
        self._parts.callback(self.destroy_subscription, subscription)

    def _offer_services(self) -> list[Service[Any, Any]]:
        """Create the services; while one of them runs, the others but cancel are refused."""
        def serving(name: str) -> Callable[..., Any]:
            async def serve(request: Trigger.Request, response: Trigger.Response) -> Any:
                response.success, response.message = await self.answer(name, getattr(self, name))
                return response

            return serve

        callbacks = {name: serving(name) for name in self.verbs} | {'cancel': self._on_cancel}
        return [self.create_service(Trigger, f'~/{name}', callback, callback_group=self.group)
                for name, callback in callbacks.items()]

    def follow(
        self, kind: str, use: Callable[[CalibrationResult], object], *, remedy: str = ''
    ) -> None:
        """Use the stored result of a kind now, and new ones as they are published.

        They are read in the worker thread. Those that are published while a service runs are
        used after its end: parsing would delay its motion, and what it uses must not change.

        Args:
            kind: Kind of the results.
            use: Called with each result.
            remedy: What to do if an optional stored result is unusable; empty if it is required.

        Raises:
            RobocalError: If the stored result is unusable, and no remedy is given.

        """
        name, topic = kind.replace('_', ' '), registry.result_topics()[kind]
        try:
            stored = self.store.load(kind)
            if stored is not None:
                use(stored)
                self._followed[kind] = stored
        except RobocalError as error:
            if not remedy:
                raise
            self.get_logger().warning(f'Stored {name} not used: {error} {remedy}')
            self._followed[kind] = None

        def parsed(text: str) -> tuple[CalibrationResult, str]:
            result = from_yaml(text, self.store.robot, topic)
            return result, result.sha256

        async def read(text: str) -> None:
            try:
                result, sha256 = await self.waiter.compute(parsed, text)
                known = self._followed.get(kind)
                if known is None or sha256 != known.sha256:
                    use(result)
                    self._followed[kind] = result
                    await self._warn_stale()
            except RobocalError as error:
                self.get_logger().warning(f'{name.capitalize()} result not used: {error}')

        def receive(message: String) -> None:
            self._unread[topic] = read, message.data
            if not self._reading:
                self._reading = True
                self.begin('result', self._read_results())

        subscriber = self.part(Subscriber(
            self, ConditionalGroup(lambda: not self.running and not self._reading), String, topic,
            receive, profile=qos.LATCHED, limit=TEXT_LIMIT))
        subscriber.start()
        self._result_topics.append(subscriber)

    async def _read_results(self) -> None:
        """Read the newest text of each result topic, and use it."""
        try:
            while self._unread:
                topic = next(iter(self._unread))
                read, text = self._unread.pop(topic)
                await guarded(self, f'message on {topic}', read)(text)
        finally:
            self._reading = False

    def current_result(self, kind: str) -> CalibrationResult | None:
        """Return the result of a kind that is in use: the followed one, else the stored one."""
        return self._followed[kind] if kind in self._followed else self.store.load(kind)

    def gains_in_use(self) -> CalibrationResult | None:
        """Return the result whose effort scales are used, None for none."""
        return choose(self.current_result, (), effort_units(self.values)).gains

    def results_in_use(self) -> dict[str, str]:
        """Return the hashes of the followed results by kind, empty for a missing one."""
        return {kind: '' if result is None else result.sha256
                for kind, result in self._followed.items()}

    async def _warn_stale(self) -> None:
        """Log a warning for each stored result of this node with an outdated input."""
        texts = await self.waiter.compute(self._stale_texts)
        for text in texts:
            self.get_logger().warning(text)
        self.status.note(stale=' '.join(texts) or 'none')

    def _stale_texts(self) -> list[str]:
        texts = []
        for kind in registry.of_node(self.capability).kinds:
            try:
                stored = self.store.load(kind)
                texts.append('' if stored is None else stale_text(stored, self.current_result))
            except RobocalError:
                # A file that cannot be read is reported where it is used.
                continue
        return list(filter(None, texts))

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
        self._starts_itself = True
        self.status = StatusReporter(self, self.group, time.monotonic)
        self._offer_services()
        if self.get_parameter('robot_description').value.strip():
            self._start()
            return
        self._description_topic = self.create_subscription(
            String, 'robot_description', self._on_description, qos.LATCHED,
            callback_group=self.group, limit=TEXT_LIMIT)
        self._reminder = self.create_timer(
            self.get_parameter('description_timeout').value, self._remind, self.group,
            clock=Clock(clock_type=ClockType.STEADY_TIME))
        self._wait_for_description('')

    def _wait_for_description(self, hint: str) -> None:
        self._why_inactive = (
            'Waiting for the robot description on topic '
            f"'{self.resolve_topic_name('robot_description')}'; start the driver, "
            'robot_state_publisher or sim_arm in this namespace and ROS domain, or give the '
            f'parameter robot_description. {hint}').rstrip()
        self.status.update('waiting', self._why_inactive)

    def _remind(self) -> None:
        self._wait_for_description(publisher_hint(self, 'robot_description', String))
        self.get_logger().warning(self._why_inactive, once=True)

    def _on_description(self, message: String) -> None:
        if not message.data.strip():
            return
        self._reminder.cancel()
        if not self._configured:
            self._description = message.data
            self._start()
        # After an unusable description there may be another one.
        if self._configured:
            self.destroy_subscription(self._description_topic)
            self.destroy_timer(self._reminder)

    def _start(self) -> None:
        if self.trigger_configure() != SUCCESS or self.trigger_activate() != SUCCESS:
            self.get_logger().error('autostart failed; configure and activate the node again.')
            self.status.update('unconfigured', self._why_inactive, level=status.ERROR)

    # ---------------------------------------------------------------- transitions

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Read the parameters and the robot description, and create all parts."""
        outcome = self._guarded('configure', self._refuse_while_ending)
        if outcome == SUCCESS:
            outcome = self._guarded('configure', self._configure)
            if outcome != SUCCESS:
                self.release()
        self._configured = outcome == SUCCESS
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
        def cleanup() -> None:
            self._refuse_while_ending()
            self.release()

        return self._guarded('cleanup', cleanup)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop the motion, and release everything after its end."""
        def shutdown() -> None:
            self._deactivate()
            self._release_when_ended()

        return self._guarded('shutdown', shutdown)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Release everything after a defect, so that the node can be configured again."""
        return self._guarded('error handling', self._release_when_ended)

    def _guarded(self, what: str, step: Callable[[], None]) -> TransitionCallbackReturn:
        """Run a step of a transition; log a RobocalError as text, others with the traceback.

        rclpy would drop both, and calls nothing after a failed configure.
        """
        try:
            step()
        except RobocalError as error:
            self._why_inactive = f'Cannot {what}: {error}'
            self.get_logger().error(self._why_inactive)
            return FAILURE
        except Exception as error:  # noqa: BLE001
            self._why_inactive = f'Defect in {what} ({type(error).__name__}); see the log.'
            self.get_logger().fatal(f'Defect in {what}:\n{traceback.format_exc()}')
            return ERROR
        self._why_inactive = ''
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
        if not self._starts_itself:
            self.status = self.part(StatusReporter(self, self.group, self.waiter.now))
        self._forward_core_log()
        self.stream(ActiveInstance(self, self.group, self._give_way))
        self.robot = make_robot(self._robot_description(), values)
        self.status.worded = self.robot.in_own_units
        self.store = make_store(self.robot, values)
        self.markers = self.publisher(MarkerArray, '~/markers')
        self.check(values)
        self.build()
        if hasattr(self, 'arm'):
            self._preview_topic = self.publisher(JointTrajectory, '~/preview_trajectory')
        if not self._starts_itself:
            for service in self._offer_services():
                self._parts.callback(self.destroy_service, service)
        self.status.update('idle', 'Configured; activate to begin.', progress=0.0)

    def _forward_core_log(self) -> None:
        core_log = logging.getLogger('robocal_ros')
        core_log.setLevel(logging.INFO)
        handler = _ForwardToRos(self)
        core_log.addHandler(handler)
        self._parts.callback(core_log.removeHandler, handler)

    def _robot_description(self) -> str:
        """Return the URDF text of the parameter, else of the latched topic.

        Raises:
            ConfigurationError: If neither has one.

        """
        received, self._description = self._description, ''
        if text := self.values.robot_description.strip() or received:
            return str(text)
        texts: list[str] = []
        subscriber = Subscriber(
            self, self.group, String, 'robot_description',
            lambda message: texts.append(message.data) if message.data.strip() else None,
            profile=qos.LATCHED, limit=TEXT_LIMIT)
        subscriber.start()
        timeout = self.values.description_timeout
        end = time.monotonic() + timeout
        while not texts and (left := end - time.monotonic()) > 0.0:
            if subscriber.wait(left):
                subscriber.drain()
        subscriber.stop()
        if not texts:
            raise ConfigurationError(
                "No robot description: parameter 'robot_description' is empty and no message "
                f"arrived on topic '{self.resolve_topic_name('robot_description')}' within "
                f'{timeout} s. '
                f"{publisher_hint(self, 'robot_description', String)} Or start "
                'robot_state_publisher (or sim_arm) in this namespace, or give the parameter.')
        return texts[-1]

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
        if not self._configured:
            return
        if not self.running:
            self.status.update('idle', 'Inactive; samples are kept.')
        self.stop('The node was deactivated.')
        # A motion that is being stopped is monitored to its end.
        self._when_ended(self._stop_unless_active)

    def _give_way(self, reason: str) -> None:
        """Deactivate in favour of the node of this name that was active before."""
        self.get_logger().error(f'Deactivated: {reason}')
        self.trigger_deactivate()
        self._why_inactive = reason
        self.status.update('idle', f'Inactive. {reason}', level=status.ERROR)

    def _stop_unless_active(self) -> None:
        if not self.is_active:
            for stream in self._streams:
                stream.stop()

    # ------------------------------------------------------------------- release

    def release(self) -> None:
        """Undo a complete or partial configure; calling it again has no effect."""
        self.is_active = self._configured = False
        for kept in (self._streams, self._followed, self._result_topics, self._unread):
            kept.clear()
        self._parts.close()

    def _release_when_ended(self) -> None:
        # The ending motion and services that still answer need the parts.
        self.stop('The node releases the robot.')
        # An answer whose service is removed right after it was sent can be lost.
        self._when_ended(self.release, DELIVERY_TIME)

    def _when_ended(self, callback: Callable[[], None], delay: float = 0.0) -> None:
        """Call a function now, or after the end of the procedure that is being stopped."""
        if not self.busy or self.executor is None:
            callback()
            return

        async def wait() -> None:
            await self.waiter.until(lambda: not self.busy, _END_TIMEOUT)
            self._ending += 1
            try:
                await self.waiter.until(lambda: False, delay)
            finally:
                self._ending -= 1
            callback()

        self.executor.create_task(wait)

    def _refuse_while_ending(self) -> None:
        if self.busy:
            raise ConfigurationError(
                f'{self.running or "cancel"} is still ending; call again in a moment.')

    # ------------------------------------------------------------------ services

    @property
    def busy(self) -> bool:
        """True while a procedure runs or a transition waits for its end."""
        return bool(self.running) or self._ending > 0

    def stop(self, reason: str) -> None:
        """Request that the running procedure ends and the arm is held; return at once."""
        if self.running:
            self.waiter.stop(reason)

    async def answer(self, name: str, action: Action) -> Answer:
        """Run the action of a service; return its answer, also for an exception."""
        if not self.is_active:
            return Answer(False, f'The node is not active. {self._why_inactive}'
                          if self._why_inactive else
                          f'The node is not active; activate it before calling {name}.')
        if self.running:
            return Answer(False, f'{self.running} is under way; call cancel first, or wait.')
        for stream in self._streams:
            if isinstance(stream, Subscriber):
                stream.catch_up()
        for topic in self._result_topics:
            topic.catch_up()
        self.running = name
        self.waiter.allow()
        if self.journal is not None:
            self.journal.sentence = ''
        level = status.ERROR
        try:
            await self.waiter.until(lambda: not self.waiter.loading, _IMPORT_TIMEOUT)
            await self.waiter.until_stopped(lambda: not self._reading, math.inf)
            outcome = await action()
            answer = outcome if isinstance(outcome, Answer) else Answer(True, outcome)
            level = status.OK if answer.success else status.WARN
        except CancelledError as error:
            answer, level = Answer(False, str(error)), status.WARN
        except RobocalError as error:
            answer = Answer(False, str(error))
        except Exception as error:  # noqa: BLE001
            # The node stays usable after a defect.
            self.get_logger().fatal(f'Defect in {name}:\n{traceback.format_exc()}')
            answer = Answer(
                False, f'Defect in {name} ({type(error).__name__}: {error}); see the log.')
        finally:
            self.running = ''
            self.waiter.end()
        resumed = '' if self.journal is None else f' {self.journal.sentence}'.rstrip()
        answer = answer._replace(message=self.robot.in_own_units(answer.message) + resumed)
        # Two calls on two lines: rclpy allows one severity for each place that logs.
        if answer.success:
            self.get_logger().info(f'{name}: {answer.message}')
        else:
            self.get_logger().error(f'{name}: {answer.message}')
        self.status.update('idle', answer.message, progress=100.0 if answer.success else None,
                           level=level)
        return answer

    async def _on_cancel(self, request: Trigger.Request, response: Trigger.Response) -> Any:
        running = self.running
        if not running:
            response.success, response.message = True, 'Nothing is running; the arm was not moved.'
            return response
        self.stop('Cancelled on request.')
        self._ending += 1
        try:
            response.success = await self.waiter.until(lambda: not self.running, _END_TIMEOUT)
        finally:
            self._ending -= 1
        if self.journal is not None:
            self.journal.remove()
        response.message = (
            f'{running} was ended.' if response.success else
            f'{running} was cancelled, but has not ended within {_END_TIMEOUT:.0f} s.')
        return response

    async def compute(self, function: Callable[[], CalibrationResult]) -> CalibrationResult:
        """Compute a result in the worker thread.

        Raises:
            RobocalError: If the data are unsuitable.
            CancelledError: If a stop was requested; the result is discarded.

        """
        self.status.update('estimating', 'Estimating from the recorded samples.')
        result = await self.waiter.compute(function)
        self.waiter.check_stopped()
        if self.journal is not None and (resumed := self.journal.resumed):
            result = replace(result, counts={**result.counts, 'resumed': resumed})
        return with_own_units(self.robot, result)

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
            self.parameter_table, given, self.values if self._configured else None,
            self.running, self.check)
        return SetParametersResult(successful=not reason, reason=reason)

    def _on_parameters_set(self, changed: list[Parameter[Any]]) -> None:
        """Apply accepted parameters."""
        for item in changed:
            self._problems.pop(item.name, None)
        if self._configured:
            self.values = parameters.read(self, self.parameter_table)
