# SPDX-License-Identifier: Apache-2.0
"""Nodes with an executor in the thread of the test."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import rclpy
from builtin_interfaces.msg import Time
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.node import Node
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger

from robocal_ros.cli.node_client import is_served
from robocal_ros.messages import qos
from robocal_ros.node.calibration_node import SUCCESS, CalibrationNode
from support import ROOT as ROOT
from support.arms import arm_urdf

PATIENCE = 120.0
"""Longest wait for an event [s]: on a busy machine, nodes get a tenth of a core."""


def overrides(**values: Any) -> list[Parameter[Any]]:
    return [Parameter(name, value=value) for name, value in values.items()]


def stamp(time: float) -> Time:
    nanoseconds = round(time * 1e9)
    return Time(sec=nanoseconds // 10**9, nanosec=nanoseconds % 10**9)


def joint_state(
    time: float, names: Sequence[str], position: Sequence[float],
    velocity: Sequence[float] = (), effort: Sequence[float] = (),
) -> JointState:
    message = JointState(name=list(names), position=list(position), velocity=list(velocity),
                         effort=list(effort))
    message.header.stamp = stamp(time)
    return message


class Log:
    """Replaces the methods of a node's logger and collects the messages."""

    def __init__(self, node: Node) -> None:
        self.lines: dict[str, list[str]] = {}
        for severity in ('info', 'warning', 'error', 'fatal'):
            said = self.lines[severity] = []
            setattr(node.get_logger(), severity, partial(self._keep, said))

    @staticmethod
    def _keep(said: list[str], message: str, **_: Any) -> None:
        said.append(message)

    def __getitem__(self, severity: str) -> list[str]:
        return self.lines[severity]


class HandClock:
    """Clock that only the test moves, instead of a module's ``time`` [s]."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, duration: float) -> None:
        self.now += duration


def await_service(until: Callable[..., None], node: Node, client: Any) -> None:
    """Wait for a service, even if traces of an ended server of its name hide that it is ready."""
    try:
        until(client.service_is_ready, 20.0, client.service_name)
    except TimeoutError:
        until(lambda: is_served(node, client), 20.0, client.service_name)


class Spinner:
    """Spins nodes until a condition holds; a context manager that destroys them."""

    def __init__(self, *nodes: Node) -> None:
        self._nodes = nodes
        self.executor = SingleThreadedExecutor()
        for node in nodes:
            self.executor.add_node(node)

    def __enter__(self) -> Spinner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.executor.shutdown()
        for node in self._nodes:
            node.destroy_node()

    def until(
        self, condition: Callable[[], Any], timeout: float = PATIENCE, what: str = 'the event'
    ) -> None:
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f'{what} did not come within {timeout} s')
            self.executor.spin_once(timeout_sec=0.02)

    def begin(self, coroutine: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Start a coroutine in the executor."""
        async def awaited() -> Any:
            # The executor accepts coroutine functions, but not functions that return a coroutine.
            return await coroutine()

        return self.executor.create_task(awaited)

    def run(
        self, coroutine: Callable[[], Coroutine[Any, Any, Any]], timeout: float = PATIENCE
    ) -> Any:
        """Run a coroutine in the executor and return its result."""
        task = self.begin(coroutine)
        self.until(task.done, timeout, 'the end of the coroutine')
        return task.result()

    def wait(self, future: Any, timeout: float = PATIENCE) -> Any:
        self.until(future.done, timeout, 'the answer')
        return future.result()


def pair(name: str = 'subject', **values: Any) -> tuple[Node, Node]:
    """Return a node under test and its peer."""
    return (rclpy.create_node(name, parameter_overrides=overrides(**values)),
            rclpy.create_node('talker'))


class NodeRig:
    """A lifecycle node on the default arm, and its peer."""

    def __init__(
        self, kind: type[CalibrationNode], results: Path, *, name: str = '', **values: Any
    ) -> None:
        self.node = kind(name or kind.__name__.lower(), parameter_overrides=overrides(
            **{'robot_description': arm_urdf(), 'results_dir': str(results), **values}))
        self.talker = rclpy.create_node('talker')
        self.log = Log(self.node)
        self.spinner = Spinner(self.node, self.talker)
        self.time = 10.0

    def configure(self) -> TransitionCallbackReturn:
        return self.node.trigger_configure()

    def start(self) -> NodeRig:
        assert self.configure() == SUCCESS, self.log.lines
        assert self.node.trigger_activate() == SUCCESS
        return self

    def set(self, **values: Any) -> None:
        """Set parameters; fail with the reason if one is refused."""
        for result in self.node.set_parameters(overrides(**values)):
            assert result.successful, result.reason

    def end(self) -> None:
        self.node.release()
        with self.spinner:
            pass

    def subscribe(self, kind: Any, topic: str, profile: Any = qos.RELIABLE) -> list[Any]:
        """Subscribe to a topic of the node and return the list of received messages."""
        received: list[Any] = []
        topic = f'{self.node.get_name()}/{topic}'
        self.talker.create_subscription(kind, topic, received.append, profile)
        self.spinner.until(lambda: self.talker.count_publishers(topic), what=topic)
        return received

    def publisher(self, kind: Any, topic: str, profile: Any = qos.RELIABLE) -> Any:
        """Return a publisher to which the node has subscribed."""
        made = self.talker.create_publisher(kind, topic, profile)
        self.spinner.until(made.get_subscription_count, what=f'a reader of {topic}')
        return made

    def begin(self, verb: str) -> Any:
        """Call a service of the node without waiting for the answer."""
        client = self.talker.create_client(Trigger, f'{self.node.get_name()}/{verb}')
        await_service(self.spinner.until, self.talker, client)
        return client.call_async(Trigger.Request())

    def call(self, verb: str) -> Trigger.Response:
        return self.spinner.wait(self.begin(verb))


MadeRig = TypeVar('MadeRig', bound=NodeRig)


def made_rigs(kind: Callable[..., MadeRig]) -> Iterator[Callable[..., MadeRig]]:
    """Yield a factory of rigs, and end the created ones afterwards."""
    made: list[MadeRig] = []

    def make(*arguments: Any, **values: Any) -> MadeRig:
        made.append(kind(*arguments, **values))
        return made[-1]

    yield make
    for item in made:
        item.end()
