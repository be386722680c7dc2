# SPDX-License-Identifier: Apache-2.0
"""Client of capability nodes: lifecycle, parameters, services, status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from time import monotonic
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.srv import GetParameters, ListParameters, SetParameters
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter, parameter_value_to_python
from rclpy.signals import SignalHandlerOptions
from rclpy.topic_endpoint_info import TopicEndpointInfo
from std_srvs.srv import Trigger

from robocal_ros import registry
from robocal_ros.errors import ConfigurationError, RobocalError, nearest_name
from robocal_ros.messages import qos, subscribe_text

# Longest turn of the executor [s].
_TURN = 0.05
_ANSWER_TIMEOUT = 60.0
# Longest wait for the answer to a cancel, and interval at which it is repeated [s].
_CANCEL_TIMEOUT, _CANCEL_PERIOD = 20.0, 2.0
_RETRY_PERIOD = 3.0
_REACHED = {'configure': 'inactive', 'activate': 'active', 'deactivate': 'inactive',
            'cleanup': 'unconfigured'}
# Longest wait for the reason of a refusal in the status [s].
_REASON = 1.0
# Time without its status in the graph after which a node has ended [s]: it leaves the graph for a
# moment when it is configured. One that was killed stays for the lease of the middleware.
_ENDED = 3.0
# Time for a server to discover a new client [s].
_SETTLING = 0.3
# Longest discovery [s]: missed announcements are repeated after 3 s (measured). After the first
# node, others follow within the second time.
_DISCOVERY = 4.0
_MORE_NODES = 0.3

UNATTENDED = ('The controller finishes the motion that it has. If the arm must not go on, stop it '
              'by other means.')
"""What a node that has ended without a word leaves behind."""

# Name of a publisher's node until its announcement has come.
_UNKNOWN = '_NODE_NAME_UNKNOWN_'


def full_name(name: str, namespace: str) -> str:
    """Return a topic's full name; a relative one is within the namespace."""
    return name if name.startswith('/') else f'/{namespace.strip("/")}/{name}'.replace('//', '/')


def foreign(publishers: Iterable[TopicEndpointInfo]) -> bool:
    """Return whether a publisher is no node of this package, as far as names have come."""
    return any(item.node_name not in (*registry.nodes(), _UNKNOWN) for item in publishers)


def is_served(node: Node, client: Any) -> bool:
    """Return whether a service has a server.

    A server that ended badly can leave half of itself in the middleware's picture of the graph,
    with which ``service_is_ready`` is false for every later server of the same name.

    Args:
        node: Node of the client.
        client: Client of the service.

    """
    return client.service_is_ready() or node.count_services(client.service_name) > 0


class RosSession(AbstractContextManager['RosSession']):
    """ROS node of this program, spun while the program waits."""

    def __init__(
        self, name: str, domain: int | None = None, *, watch: Callable[[], None] = lambda: None
    ) -> None:
        """Create the node.

        Args:
            name: Name of the node.
            domain: ROS domain; that of the environment when None.
            watch: Called while waiting; an exception from it ends the wait.

        """
        self.watch = watch
        self._context = Context()
        # Ctrl-C raises KeyboardInterrupt, so that the procedure can be cancelled first.
        rclpy.init(args=[], context=self._context, domain_id=domain,
                   signal_handler_options=SignalHandlerOptions.NO)
        self.node = rclpy.create_node(
            name, context=self._context, enable_rosout=False, start_parameter_services=False)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)

    def __exit__(self, *_: object) -> None:
        """Destroy the node."""
        self._executor.shutdown(timeout_sec=0.0)
        self.node.destroy_node()
        rclpy.try_shutdown(context=self._context)

    def spin_until(self, condition: Callable[[], bool], timeout: float = float('inf')) -> bool:
        """Spin until a condition is true; return whether it is.

        Args:
            condition: Checked after each turn of the executor.
            timeout: Longest wait [s].

        """
        end = monotonic() + timeout
        while not condition():
            if monotonic() > end:
                return False
            self.watch()
            self._executor.spin_once(timeout_sec=_TURN)
        return True

    def take(self, turns: int) -> None:
        """Serve what is ready now, at most so many callbacks."""
        for _ in range(turns):
            self._executor.spin_once(timeout_sec=0.0)

    def published(self) -> dict[str, list[str]]:
        """Return the types of all topics with a publisher, by name."""
        return {name: kinds for name, kinds in self.node.get_topic_names_and_types()
                if self.node.count_publishers(name)}

    def other_nodes(self, wait: float = _DISCOVERY) -> list[str]:
        """Return the full names of the domain's other nodes.

        Args:
            wait: Longest wait for their discovery [s].

        """
        def others() -> list[str]:
            names = {f'{space.rstrip("/")}/{name}'
                     for name, space in self.node.get_node_names_and_namespaces()}
            return sorted(names - {self.node.get_fully_qualified_name()})

        if self.spin_until(lambda: bool(others()), wait):
            self.spin_until(lambda: False, min(wait, _MORE_NODES))
        return others()


def _like(value: Any, current: Any) -> Any:
    """Return a value with numbers with a point where the current value has them."""
    if isinstance(value, list) and isinstance(current, list) and current:
        return [_like(item, current[0]) for item in value]
    return float(value) if type(value) is int and isinstance(current, float) else value


class NodeClient:
    """Client of one capability node.

    Attributes:
        name: Full name of the node.
        status: Its newest status.
        result: The newest text on ``~/result``, empty before the first.

    """

    def __init__(self, session: RosSession, name: str, *services: str) -> None:
        """Subscribe to status and result.

        Args:
            session: Session whose node is used.
            name: Name of the node, e.g. ``/payload_identification``.
            services: Services that will be called. Of clients that are discovered meanwhile, no
                request and no early answer is lost.

        """
        self.name = f'/{name.strip("/")}'
        self.status = DiagnosticStatus()
        self.result = ''
        self._session = session
        self._there = float('inf')
        self._clients: dict[str, Any] = {}
        node = session.node
        node.create_subscription(
            DiagnosticStatus, f'{self.name}/status',
            lambda message: setattr(self, 'status', message), qos.LATCHED)
        subscribe_text(node, f'{self.name}/result',
                       lambda message: setattr(self, 'result', message.data))
        for service in ('cancel', *services):
            self.service(Trigger, service)

    @property
    def values(self) -> dict[str, str]:
        """Values of the status by key."""
        return {item.key: item.value for item in self.status.values}

    @property
    def progress(self) -> float:
        """Progress of the procedure [%]."""
        try:
            return float(self.values.get('progress', '0'))
        except ValueError:
            return 0.0

    @property
    def running(self) -> str:
        """What a procedure that is under way reports; empty for none."""
        return '' if self.values.get('phase', 'idle') in ('idle', 'unconfigured') else (
            self.status.message)

    @property
    def ended(self) -> bool:
        """Whether a node that was there has ended without a word; to be asked repeatedly."""
        if self._session.node.count_publishers(f'{self.name}/status'):
            self._there = monotonic()
        return monotonic() > self._there + _ENDED

    def wait_until_there(self, timeout: float) -> None:
        """Wait for the node's lifecycle services.

        Raises:
            ConfigurationError: If they are not available in time.

        """
        if not self._await(self.service(ChangeState, 'change_state'), timeout):
            nodes = ', '.join(self._session.other_nodes(0.0)) or 'none'
            raise ConfigurationError(
                f"Node '{self.name}' was not found within {timeout:.0f} s; nodes in this ROS "
                f'domain: {nodes}. Start it in this domain and namespace, or correct its name.'
            )

    def state(self, timeout: float = _ANSWER_TIMEOUT) -> str:
        """Return the lifecycle state; raises RobocalError without an answer in time [s]."""
        return str(self._answer(GetState, 'get_state', timeout=timeout).current_state.label)

    def change_state(self, transition: str) -> None:
        """Request a lifecycle transition.

        Args:
            transition: ``configure``, ``activate``, ``deactivate`` or ``cleanup``.

        Raises:
            RobocalError: If the node refuses it.

        """
        wanted = Transition(id=getattr(Transition, f'TRANSITION_{transition.upper()}'))
        answer = self._ready(ChangeState, 'change_state').call_async(
            ChangeState.Request(transition=wanted))
        # The answer can be lost. A request that is repeated could be carried out twice.
        if not any(self._session.spin_until(answer.done, _RETRY_PERIOD)
                   or self.state() == _REACHED[transition]
                   for _ in range(round(_ANSWER_TIMEOUT / _RETRY_PERIOD))):
            raise RobocalError(self._unanswered('change_state', _ANSWER_TIMEOUT))
        if answer.done() and not answer.result().success:
            state = self.state()
            told = self._session.spin_until(
                lambda: self.status.level == DiagnosticStatus.ERROR, _REASON)
            raise RobocalError(f"Node '{self.name}' refused to {transition}; it is {state}. "
                               f'{self.status.message if told else "See its log."}')

    def lead_to(self, wanted: str) -> None:
        """Request transitions until the node is ``active`` or ``unconfigured``.

        Raises:
            RobocalError: If the node refuses one.

        """
        steps = {'active': {'unconfigured': 'configure', 'inactive': 'activate'},
                 'unconfigured': {'active': 'deactivate', 'inactive': 'cleanup'}}[wanted]
        while (state := self.state()) != wanted:
            self.change_state(steps.get(state, 'activate'))

    def make_active(
        self, parameters: Mapping[str, Any], timeout: float, *, configure: bool = True
    ) -> None:
        """Activate the node, with a new configuration if there are parameters.

        Args:
            parameters: Parameters to configure it with.
            timeout: Longest wait for a node with ``autostart`` that was just launched [s].
            configure: Whether it may be configured.

        Raises:
            ConfigurationError: If it is not active and must not be configured.

        """
        known = self._parameter_names() if parameters else []
        for name in parameters:
            if name not in known:
                raise ConfigurationError(
                    f"Node '{self.name}' has no parameter '{name}'{nearest_name(name, known)}.")
        end, state = monotonic() + timeout, self.state()
        if state != 'active' and not configure:
            starts_itself = self.parameters(['autostart']).get('autostart', False)
            while starts_itself and state != 'active' and monotonic() < end:
                self._session.spin_until(lambda: False, _SETTLING)
                state = self.state()
        if state == 'active' and not parameters:
            return
        if not configure:
            why = self.status.message
            raise ConfigurationError(
                f"Node '{self.name}' is {state}, not active.{f' {why}' if why else ''} Give "
                f"--configure, or call 'ros2 lifecycle set {self.name} configure' and "
                f"'ros2 lifecycle set {self.name} activate'.")
        if self.running:
            raise ConfigurationError(
                f"A procedure of node '{self.name}' is under way ({self.running}), and a new "
                "configuration would end it. Wait for its end, or call '~/cancel'.")
        if parameters:
            self.lead_to('unconfigured')
            self.set_parameters(parameters)
        self.lead_to('active')

    def parameters(
        self, names: Iterable[str], timeout: float = _ANSWER_TIMEOUT
    ) -> dict[str, Any]:
        """Return the values of those parameters that the node has, each answer in time [s]."""
        has = set(self._parameter_names(timeout))
        known = [name for name in names if name in has]
        values = self._answer(
            GetParameters, 'get_parameters', timeout=timeout, names=known).values
        plain = zip(known, map(parameter_value_to_python, values), strict=True)
        # Lists in place of arrays.
        return {name: list(value) if isinstance(value, Sequence) and not isinstance(value, str)
                else value for name, value in plain}

    def _parameter_names(self, timeout: float = _ANSWER_TIMEOUT) -> list[str]:
        return list(self._answer(ListParameters, 'list_parameters', timeout=timeout).result.names)

    def set_parameters(self, values: Mapping[str, Any]) -> None:
        """Set parameters; an integer may stand for a number with a point.

        Raises:
            ConfigurationError: If the node refuses one.

        """
        current = self.parameters(values)
        values = {name: _like(value, current.get(name)) for name, value in values.items()}
        answer = self._answer(SetParameters, 'set_parameters', parameters=[
            Parameter(name, value=value).to_parameter_msg() for name, value in values.items()])
        for (name, value), outcome in zip(values.items(), answer.results, strict=True):
            if not outcome.successful:
                has = current.get(name, value)
                raise ConfigurationError(
                    f"Node '{self.name}' refused {value!r} for parameter '{name}': "
                    + (outcome.reason if type(has) is type(value) else
                       f'expected a value such as {has!r}, the present one.'))

    def call(
        self, service: str, on_status: Callable[[float, str], None] | None = None
    ) -> Trigger.Response:
        """Call a service and wait for its answer, however long the procedure takes.

        On an interrupt the procedure is cancelled and the arm held before this raises.

        Args:
            service: ``run``, ``estimate``, ``clear`` or ``cancel``.
            on_status: Called with progress [%] and a sentence.

        Raises:
            ConfigurationError: If the node does not offer the service.
            RobocalError: If it ends, or was to be cancelled and does not answer.

        """
        self.result = ''
        future = self._ready(Trigger, service).call_async(Trigger.Request())

        def answered() -> bool:
            # An idle node still has the status of the last procedure.
            if on_status is not None and self.values.get('phase', 'idle') != 'idle':
                on_status(self.progress, self.status.message)
            return bool(future.done()) or self.ended

        try:
            self._session.spin_until(answered)
        except (KeyboardInterrupt, SystemExit):
            self._cancel()
            raise
        if not future.done():
            raise RobocalError(f"Node '{self.name}' has ended before it answered '~/{service}'. "
                               f'{UNATTENDED} Then start the node again.')
        return future.result()

    def _cancel(self) -> None:
        """Cancel the procedure; raises RobocalError if that is not answered."""
        client = self.service(Trigger, 'cancel')
        if self._answers(client, Trigger.Request(), _CANCEL_PERIOD, _CANCEL_TIMEOUT) is None:
            raise RobocalError(
                f"Node '{self.name}' has not answered '~/cancel' within {_CANCEL_TIMEOUT:.0f} s: "
                'the arm may move on. Stop it by other means.')

    def _answers(self, client: Any, request: Any, period: float, timeout: float) -> Any:
        """Return the answer to a request, None without one in time.

        Args:
            client: Client of the service.
            request: The request.
            period: Interval at which it is repeated, since it or its answer can be lost [s].
            timeout: Longest wait [s].

        """
        sent: list[Any] = []
        for _ in range(round(timeout / period)):
            sent.append(client.call_async(request))
            if self._session.spin_until(lambda: any(future.done() for future in sent), period):
                return next(future.result() for future in sent if future.done())
        return None

    def service(self, kind: Any, service: str) -> Any:
        """Return the client of a service of the node."""
        if service not in self._clients:
            self._clients[service] = self._session.node.create_client(
                kind, f'{self.name}/{service}')
        return self._clients[service]

    def _await(self, client: Any, timeout: float) -> bool:
        """Wait for a service; return whether it is there."""
        if self._session.spin_until(client.service_is_ready, min(timeout, _DISCOVERY)):
            return True
        return self._session.spin_until(
            lambda: is_served(self._session.node, client), max(timeout - _DISCOVERY, 0.0))

    def _ready(self, kind: Any, service: str) -> Any:
        new = service not in self._clients
        client = self.service(kind, service)
        if not self._await(client, 10.0):
            raise ConfigurationError(
                f"Node '{self.name}' has no service '~/{service}'. Configure and activate it "
                'first, or check its name.'
            )
        if new:
            # The answer is lost if the server has not yet discovered the client.
            self._session.spin_until(lambda: False, _SETTLING)
        return client

    def _answer(
        self, kind: Any, service: str, *, timeout: float = _ANSWER_TIMEOUT, **fields: Any,
    ) -> Any:
        """Call a service, repeatedly without an answer, and return it.

        Args:
            kind: Type of the service.
            service: Its name.
            timeout: Longest wait [s].
            **fields: Fields of the request.

        """
        answer = self._answers(
            self._ready(kind, service), kind.Request(**fields),
            min(_RETRY_PERIOD, timeout), timeout)
        if answer is None:
            raise RobocalError(self._unanswered(service, timeout))
        return answer

    def _unanswered(self, service: str, timeout: float) -> str:
        return (f"Node '{self.name}' has not answered '~/{service}' within {timeout:.0f} s. "
                'See its log, or restart it.')
