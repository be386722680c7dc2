# SPDX-License-Identifier: Apache-2.0
"""A node with an executor in the test's own thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import rclpy
import xacro
from builtin_interfaces.msg import Time
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState

ROOT = Path(__file__).resolve().parents[2]


def arm_urdf() -> str:
    return str(xacro.process_file(str(ROOT / 'urdf' / 'robocal_arm.urdf.xacro')).toxml())


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
    """Takes the place of a node's logger's methods, and keeps what is said."""

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


class Spinner:
    """Spins nodes until something holds; use as a context manager, which destroys them."""

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
        self, condition: Callable[[], Any], timeout: float = 20.0, what: str = 'the event'
    ) -> None:
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f'{what} did not come within {timeout} s')
            self.executor.spin_once(timeout_sec=0.02)

    def begin(self, coroutine: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Start a coroutine in the executor."""
        async def awaited() -> Any:
            # The executor knows coroutine functions, but not functions that return a coroutine.
            return await coroutine()

        return self.executor.create_task(awaited)

    def run(self, coroutine: Callable[[], Coroutine[Any, Any, Any]], timeout: float = 30.0) -> Any:
        """Run a coroutine in the executor and return its result."""
        task = self.begin(coroutine)
        self.until(task.done, timeout, 'the end of the coroutine')
        return task.result()

    def wait(self, future: Any, timeout: float = 20.0) -> Any:
        self.until(future.done, timeout, 'the answer')
        return future.result()


def pair(name: str = 'subject', **values: Any) -> tuple[Node, Node]:
    """Return a node under test and one that talks to it."""
    return (rclpy.create_node(name, parameter_overrides=overrides(**values)),
            rclpy.create_node('talker'))
