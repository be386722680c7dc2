# SPDX-License-Identifier: Apache-2.0
"""Processes of a live ROS graph, and a client that talks to them over DDS."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, TypeVar

import numpy as np
import rclpy
import yaml
from control_msgs.action import FollowJointTrajectory
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.msg import SetParametersResult
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.action import ActionClient
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.parameter import Parameter, parameter_value_to_python
from rclpy.qos import QoSProfile, qos_profile_sensor_data
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from robocal_ros import registry
from support import ROOT
from support.forked import Forked
from support.launch_stand_in import Started
from support.ros_rig import PATIENCE, Spinner, await_service

CONFIG = ROOT / 'config'
TRUTH = CONFIG / 'sim' / 'hidden_truth.yaml'
CELL = CONFIG / 'sim' / 'reference_cell.yaml'
JOINTS = tuple(f'joint_{number}' for number in range(1, 7))
CONTROLLER = 'joint_trajectory_controller'


def _argument(value: Any) -> str:
    """Return a value in YAML's syntax."""
    return json.dumps(value) if isinstance(value, bool | list | tuple) else str(value)


AChild = TypeVar('AChild', bound='Child')


class Child:
    """A child process, which ends with the context at the latest."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        with log.open('w') as output:
            self._child: subprocess.Popen[bytes] | Forked = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, 'PYTHONUNBUFFERED': '1'}, stdout=output,
                stderr=subprocess.STDOUT)

    def __enter__(self: AChild) -> AChild:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            sys.stdout.write(f'--- {self.log.name}\n{self.log.read_text()[-6000:]}\n')
        # Not killed: a killed node stays in discovery for a while, and the next one of the same
        # name would be confused with it.
        self._child.terminate()
        try:
            self._child.wait(8.0)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    def send(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def end(self, timeout: float = PATIENCE) -> int:
        """Wait for its end and return the exit code."""
        return self._child.wait(timeout)


class NodeChild(Child):
    """A node in a child process, given the arguments of its command line."""

    def __init__(
        self, module: str, arguments: Sequence[str], log: Path, opened: Path | None = None
    ) -> None:
        self.log = log
        self._child = Forked(module, arguments, log, opened, ROOT)


class Process(NodeChild):
    """A node in a child process."""

    def __init__(
        self, module: str, log: Path, *, name: str = '', namespace: str = '',
        opened: Path | None = None, remappings: Mapping[str, str] = MappingProxyType({}),
        **parameters: Any,
    ) -> None:
        arguments = ['--ros-args']
        for key, value in {'__node': name, '__ns': namespace, **remappings}.items():
            arguments += ['-r', f'{key}:={value}'] if value else []
        for key, value in parameters.items():
            arguments += ['-p', f'{key}:={_argument(value)}']
        super().__init__(module, arguments, log, opened)


def as_launched(item: Started, folder: Path) -> NodeChild:
    """Start a process of this package with the arguments that launch gives it."""
    module = {**registry.nodes(), 'sim_arm': 'robocal_sim.node'}[item.executable]
    values = folder / f'{item.namespace.strip("/")}_{item.name}.yaml'
    values.write_text(yaml.safe_dump(
        {f'{item.namespace}/{item.name}': {'ros__parameters': item.values}}))
    words = ['--ros-args', '-r', f'__node:={item.name}', '-r', f'__ns:={item.namespace or "/"}']
    for file in (*item.files, str(values)):
        words += ['--params-file', file]
    for old, new in item.remappings.items():
        words += ['-r', f'{old}:={new}']
    return NodeChild(module, words, values.with_suffix('.log'))


def sim_arm(log: Path, **parameters: Any) -> Process:
    """Start the simulated arm on the reference cell, as fast as its consumers keep up."""
    # The rate of a slow driver. Tests whose accuracy depends on the number of samples raise it.
    defaults = {'real_time_factor': 0.0, 'truth_file': TRUTH, 'cell_file': CELL,
                'joint_states_rate': 125.0}
    return Process('robocal_sim.node', log, **{**defaults, **parameters})


# Best-effort readers may lose samples; tests of equality must not.
RELIABLE = {
    f'qos_overrides./{topic}.subscription.reliability': 'reliable'
    for topic in ('joint_states', 'ft_wrist/wrench')}


def start_node(
    name: str, log: Path, results: Path, *, opened: Path | None = None, **parameters: Any,
) -> Process:
    """Start a node of the registry, active at once."""
    module = registry.nodes()[name]
    return Process(module, log, name=name, opened=opened, **{
        'use_sim_time': True, 'autostart': True, 'results_dir': results, **parameters})


def payload_node(log: Path, results: Path, **parameters: Any) -> Process:
    """Start a payload node, active at once."""
    return start_node('payload_identification', log, results, **{
        'known_mass': 2.0, 'gain_std': 0.002, 'arm_model_std': 0.01, **parameters})


def trajectory(*rows: tuple[float, Sequence[float]], **further: Any) -> JointTrajectory:
    """Return a trajectory from times [s] and positions [rad], and further fields of its points."""
    return JointTrajectory(joint_names=list(JOINTS), points=[JointTrajectoryPoint(
        positions=[float(value) for value in positions],
        time_from_start=Duration(seconds=at).to_msg(), **further) for at, positions in rows])


class Client:
    """A client that calls services, sets parameters, and records status and joint states.

    Args:
        *others: Nodes that are spun beside its own.
        namespace: Namespace of its node, to which the names of other nodes are relative.

    """

    def __init__(self, *others: Node, namespace: str = '') -> None:
        self.node = rclpy.create_node('client', namespace=namespace)
        self.spinner = Spinner(self.node, *others)
        self.until, self.wait = self.spinner.until, self.spinner.wait
        self._clients: dict[str, Any] = {}
        self.statuses: dict[str, list[DiagnosticStatus]] = {}

    def close(self) -> None:
        if 'action' in vars(self):
            self.action.destroy()
        self.spinner.__exit__(None, None, None)

    @cached_property
    def action(self) -> ActionClient:
        """The action of the arm's controller."""
        return ActionClient(self.node, FollowJointTrajectory,
                            f'{CONTROLLER}/follow_joint_trajectory')

    def send(self, message: JointTrajectory) -> Any:
        """Send a goal to the controller; return its handle, or None if it is rejected."""
        self.until(self.action.server_is_ready, what='the controller')
        handle = self.wait(self.action.send_goal_async(
            FollowJointTrajectory.Goal(trajectory=message)))
        return handle if handle.accepted else None

    def _client(self, kind: Any, name: str) -> Any:
        if name not in self._clients:
            self._clients[name] = self.node.create_client(kind, name)
        client = self._clients[name]
        await_service(self.until, self.node, client)
        return client

    def _ask(self, kind: Any, name: str, request: Any) -> Any:
        """Call a service that may be called twice, until it answers.

        A server that has not yet discovered the reader of the answer loses the answer, as most do
        that were started a moment ago.
        """
        client, asked = self._client(kind, name), list[Any]()

        def answered() -> bool:
            now = time.monotonic()
            if not asked or now > asked[-1][0] + 0.5:
                asked.append((now, client.call_async(request)))
            return any(future.done() for _, future in asked)

        self.until(answered, 30.0, f'the answer of {name}')
        for _, future in asked:
            client.remove_pending_request(future)
        return next(future.result() for _, future in asked if future.done())

    def ask(self, verb: str, node: str = 'payload_identification') -> Trigger.Response:
        """Call a Trigger service that may be called twice, until it answers."""
        return self._ask(Trigger, f'{node}/{verb}', Trigger.Request())

    def begin(self, verb: str, node: str = 'payload_identification') -> Any:
        """Call a Trigger service without waiting for the answer."""
        return self._client(Trigger, f'{node}/{verb}').call_async(Trigger.Request())

    def call(
        self, verb: str, node: str = 'payload_identification', timeout: float = 900.0
    ) -> Trigger.Response:
        return self.wait(self.begin(verb, node), timeout)

    def try_to_set(self, node: str, **values: Any) -> list[SetParametersResult]:
        """Set parameters; return the node's answers."""
        request = SetParameters.Request(parameters=[
            Parameter(name, value=value).to_parameter_msg() for name, value in values.items()])
        return list(self._ask(SetParameters, f'{node}/set_parameters', request).results)

    def set(self, node: str, **values: Any) -> None:
        """Set parameters; fail with the reason of the node if it refuses."""
        for result in self.try_to_set(node, **values):
            assert result.successful, result.reason

    def parameter(self, node: str, name: str) -> Any:
        """Return the value of a parameter."""
        (value,) = self._ask(GetParameters, f'{node}/get_parameters',
                             GetParameters.Request(names=[name])).values
        return parameter_value_to_python(value)

    def change(self, transition: int, node: str = 'payload_identification') -> bool:
        """Request a lifecycle transition and return whether it succeeded."""
        request = ChangeState.Request()
        request.transition.id = transition
        client = self._client(ChangeState, f'{node}/change_state')
        return bool(self.wait(client.call_async(request)).success)

    def state(self, node: str = 'payload_identification') -> str:
        answer = self._ask(GetState, f'{node}/get_state', GetState.Request())
        return str(answer.current_state.label)

    def subscribe(self, kind: Any, topic: str, profile: QoSProfile) -> list[Any]:
        """Subscribe and return the list that received messages are appended to."""
        messages: list[Any] = []
        self.node.create_subscription(kind, topic, messages.append, profile)
        return messages

    def await_phase(
        self, *phases: str, node: str = 'payload_identification', timeout: float = PATIENCE
    ) -> None:
        """Wait for a status, newer than this call, with one of these phases."""
        received = self.statuses[node]
        received.clear()
        self.until(
            lambda: any(phase(status) in phases for status in received), timeout,
            f'phase {" or ".join(phases)}')

    def await_progress(self, name: str, node: str = 'payload_identification') -> None:
        """Wait until the progress within a phase has increased."""
        self.await_phase(name, node=node)
        received = self.statuses[node]

        def grown() -> bool:
            shares = [progress(status) for status in received if phase(status) == name]
            return len(shares) > 1 and shares[-1] > shares[0]

        self.until(grown, what=f'progress of phase {name}')

    @contextmanager
    def watching(self) -> Iterator[list[tuple[float, Any]]]:
        """Subscribe to joint states; yield the list of arrival times and messages.

        A subscriber costs this process as much as the simulation costs the arm's.
        """
        received: list[tuple[float, Any]] = []
        subscription = self.node.create_subscription(
            JointState, '/joint_states',
            lambda state: received.append((time.monotonic(), state)), qos_profile_sensor_data)
        try:
            yield received
        finally:
            self.node.destroy_subscription(subscription)

    def travel(self, window: float = 0.3, timeout: float = PATIENCE) -> float:
        """Return the largest joint travel over a window of stamps [rad]."""
        states: list[JointState] = []
        subscription = self.node.create_subscription(
            JointState, '/joint_states', states.append, qos_profile_sensor_data)

        def span() -> float:
            # Not first and last: stamps may be out of order.
            stamps = [seconds(state.header.stamp) for state in states]
            return max(stamps) - min(stamps) if stamps else 0.0

        try:
            self.until(lambda: span() >= window, timeout, 'joint states')
        finally:
            self.node.destroy_subscription(subscription)
        columns = [dict(zip(state.name, state.position, strict=True)) for state in states]
        return max(
            float(np.ptp([row[name] for row in columns if name in row])) for name in JOINTS
            if any(name in row for row in columns))


def last_motion(received: list[tuple[float, Any]], least: float = 1e-3) -> float:
    """Return the time of the last joint state away from the newest posture, steady clock [s]."""
    end = np.array(received[-1][1].position)
    return max((when for when, state in received
                if np.abs(np.array(state.position) - end).max() > least), default=0.0)


def seconds(stamp: Any) -> float:
    return float(stamp.sec) + 1e-9 * float(stamp.nanosec)


def value(status: DiagnosticStatus, key: str) -> str:
    return next((str(item.value) for item in status.values if item.key == key), '')


def phase(status: DiagnosticStatus) -> str:
    return value(status, 'phase')


def progress(status: DiagnosticStatus) -> float:
    return float(value(status, 'progress'))
