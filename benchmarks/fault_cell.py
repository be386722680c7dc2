# SPDX-License-Identifier: Apache-2.0
"""One node and the simulated arm as processes, and what the fault campaign records of them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from control_msgs.action import FollowJointTrajectory
from control_msgs.msg import JointTrajectoryControllerState
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.action import ActionClient
from rclpy.publisher import Publisher
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger

from demo import default_cell
from demo.processes import Child, Children
from robocal_ros.arrays import Array
from robocal_ros.cli.node_client import NodeClient, RosSession
from robocal_ros.errors import RobocalError
from robocal_ros.messages import conversions, qos
from robocal_ros.results.store import read_result
from robocal_ros.robot.motion import quintic_path

ARM, CONTROLLER = 'sim_arm', 'joint_trajectory_controller'

TRIGGERS = ('run', 'estimate', 'clear', 'cancel')
"""Services of every node."""

HANG = 10.0
"""Longest time until a procedure with a fault has ended [s]."""

# Travel below which the arm rests, and how long it must [rad, s].
_STILL, _REST = 1e-3, 0.3
_START, _PHASE = 60.0, 40.0
_TILTED = np.array([0.3, 0.4, 0.3, 0.6, 0.9, 0.2])
# Linux: prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE), so that a read-only folder is one for root too.
_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE = 24, 1


@dataclass(frozen=True)
class Capability:
    """A node with parameters that make its procedure short.

    Attributes:
        name: Name in the table.
        node: Name of the node.
        module: Its module.
        phases: Phases in which faults are injected, with the service that leads to each; no
            service for an idle node.
        parameters: Parameters of the node.
        prepare: Services called once, so that ``estimate`` has samples and the store a result.
        traits: What faults refer to: ``moves``, ``wrist``, ``effort``, ``stores``.

    """

    name: str
    node: str
    module: str
    phases: Mapping[str, str]
    parameters: Mapping[str, Any]
    prepare: tuple[str, ...] = ()
    traits: frozenset[str] = frozenset({'moves'})


def _kept_by_root(node: str) -> list[str]:
    """Return a command that runs a module without root's right to write anywhere."""
    return [sys.executable, '-c', (
        'import ctypes, runpy, sys;'
        f'ctypes.CDLL(None).prctl({_PR_CAPBSET_DROP}, {_CAP_DAC_OVERRIDE}, 0, 0, 0);'
        "import os; os.execv(sys.executable, [sys.executable, '-m', *sys.argv[1:]])"), node]


class FaultCell:
    """Node and arm; restarts what has died.

    Attributes:
        capability: The node under test.
        session: ROS node of the campaign.
        client: Client of the node under test.
        results: Folder of its results.
        generation: Changes when the node is restarted.
        prepared: Whether the node has samples for ``estimate``.
        statuses: Statuses of the node with their arrival times [s].
        motion: Stamp, arrival time, posture and commanded posture by the controller's state, in
            order [s, s, rad, rad].

    """

    def __init__(
        self, capability: Capability, session: RosSession, children: Children, results: Path
    ) -> None:
        """Subscribe; ``start`` starts the processes."""
        self.capability = capability
        self.session = session
        self.results = results
        self._children = children
        self._mark = self._arm_mark = self._started = self.generation = 0
        self._node: Child | None = None
        self._arm: Child | None = None
        self.client = NodeClient(session, capability.node)
        self._arm_client = NodeClient(session, ARM)
        self.statuses: list[tuple[float, DiagnosticStatus]] = []
        self.motion: list[tuple[float, float, Array, Array]] = []
        self.joint_states: list[JointState] = []
        self.echo: Callable[[JointState], JointState | None] | None = None
        self.prepared = False
        self._services: dict[str, Any] = {}
        self.joint_names: Sequence[str] = ()
        node = session.node
        # Before the first fault: discovery takes longer than the arm may move.
        for service, kind in {**dict.fromkeys(TRIGGERS, Trigger), 'get_state': GetState,
                              'change_state': ChangeState}.items():
            self._services[f'{kind.__name__} {service}'] = node.create_client(
                kind, f'/{capability.node}/{service}')
        self.publisher: Publisher[JointState] = node.create_publisher(
            JointState, 'joint_states', 10)
        self._mover: Any = ActionClient(
            node, FollowJointTrajectory, f'{CONTROLLER}/follow_joint_trajectory')
        self._subscriptions = [
            node.create_subscription(DiagnosticStatus, f'/{capability.node}/status',
                                     self._take_status, qos.LATCHED),
            node.create_subscription(JointTrajectoryControllerState,
                                     f'{CONTROLLER}/controller_state', self._take_motion, 500),
            node.create_subscription(JointState, 'joint_states', self._take_states,
                                     qos_profile_sensor_data)]

    def close(self) -> None:
        """End the processes and remove what was created."""
        self._children.stop()
        for subscription in self._subscriptions:
            self.session.node.destroy_subscription(subscription)
        self.session.node.destroy_publisher(self.publisher)
        self._mover.destroy()
        for client in self._services.values():
            self.session.node.destroy_client(client)

    # ---------------------------------------------------------------------- records

    def _take_status(self, message: DiagnosticStatus) -> None:
        self.statuses.append((time.monotonic(), message))

    def _take_motion(self, message: JointTrajectoryControllerState) -> None:
        self.joint_names = list(message.joint_names)
        self.motion.append((conversions.seconds(message.header.stamp), time.monotonic(),
                            np.array(message.feedback.positions),
                            np.array(message.reference.positions)))

    def _take_states(self, message: JointState) -> None:
        self.joint_states = [*self.joint_states[-20:], message]
        echo = self.echo
        # Own messages, too, arrive here; they carry a frame that the arm's do not.
        if echo is not None and message.header.frame_id != 'echo':
            other = echo(message)
            if other is not None:
                other.header.frame_id = 'echo'
                self.publisher.publish(other)

    def wait(self, condition: Callable[[], Any], timeout: float) -> bool:
        """Spin until a condition holds; return whether it does."""
        return self.session.spin_until(lambda: bool(condition()), timeout)

    def phase(self) -> str:
        """Return the phase by the newest status."""
        if not self.statuses:
            return ''
        return next((item.value for item in self.statuses[-1][1].values
                     if item.key == 'phase'), '')

    def texts(self, since: float) -> str:
        """Return statuses since a time, with their values, and what the node has logged."""
        told = [f'{status.message} ' + ' '.join(item.value for item in status.values)
                for at, status in self.statuses if at > since]
        return '\n'.join([*told, self.log()])

    def log(self) -> str:
        """Return the log of the running node since ``mark``."""
        if self._node is None:
            return ''
        return self._node.log.read_bytes()[self._mark:].decode('utf-8', 'replace')

    def mark(self) -> None:
        """Forget earlier statuses, motion and log."""
        self.statuses.clear()
        self.motion = self.motion[-5:]
        self._mark = self._node.log.stat().st_size if self._node is not None else 0
        self._arm_mark = self._arm.log.stat().st_size if self._arm is not None else 0

    # -------------------------------------------------------------------- processes

    @property
    def node_alive(self) -> bool:
        """Whether the node's process runs."""
        return self._node is not None and self._node.process.poll() is None

    @property
    def arm_alive(self) -> bool:
        """Whether the arm's process runs."""
        return self._arm is not None and self._arm.process.poll() is None

    def processes(self, which: str) -> list[subprocess.Popen[bytes]]:
        """Return the processes of ``node``, ``arm`` or ``both``."""
        found = {'node': [self._node], 'arm': [self._arm], 'both': [self._node, self._arm]}
        return [child.process for child in found[which] if child is not None]

    def send(self, which: str, number: signal.Signals) -> None:
        """Send a signal to ``node``, ``arm`` or ``both``."""
        for process in self.processes(which):
            process.send_signal(number)

    def start(self) -> None:
        """Start what does not run, and bring the node to active.

        Raises:
            RobocalError: If that fails.

        """
        self._started += 1
        if not self.arm_alive:
            self._arm = self._children.start_node('robocal_sim.node', ARM, {
                'real_time_factor': 1.0, 'seed': self._started, 'joint_states_rate': 125.0,
                'truth_file': str(default_cell.TRUTH_FILE.resolve()),
                'cell_file': str(default_cell.CELL_FILE.resolve()),
                **({'initial_positions': _TILTED.tolist()}
                   if self.capability.name == 'leveling' else {})})
            self.motion.clear()
            self._arm_mark = 0
            if not self.wait(lambda: self.motion, _START):
                raise RobocalError(f'The arm does not come up: {self._arm.tail()}')
        if not self.node_alive:
            name = self.capability.node
            file = self.results.parent / f'{name}.yaml'
            self._node = self._children.start(f'{name}_{self._started}', [
                *_kept_by_root(self.capability.module), '--ros-args',
                '--params-file', str(_parameter_file(file, name, {
                    'use_sim_time': True, 'results_dir': str(self.results.resolve()),
                    'max_velocity': 2.0, 'max_acceleration': 4.0, 'connect_timeout': 3.0,
                    **self.capability.parameters}).resolve())])
            self._mark = 0
            self.generation = self._started
            self.client.wait_until_there(_START)
        for _ in range(3):
            state = self.client.state()
            if state == 'active':
                return
            self.client.change_state('configure' if state == 'unconfigured' else 'activate')
        raise RobocalError(f'The node is {self.client.state()}.')

    def restart(self) -> None:
        """End both processes, and start new ones."""
        self._children.stop()
        self.start()

    # --------------------------------------------------------------------- requests

    def fault(self, text: str) -> None:
        """Set a fault of the simulated arm."""
        self._arm_client.set_parameters({'fault': text})

    def set_arm(self, **values: Any) -> None:
        """Set parameters of the simulated arm."""
        self._arm_client.set_parameters(values)

    def request(self, kind: Any, service: str, request: Any) -> Any:
        """Send a request to the node; return its future."""
        key = f'{kind.__name__} {service}'
        client = self._services.get(key)
        if client is None:
            client = self._services[key] = self.session.node.create_client(
                kind, f'/{self.capability.node}/{service}')
        if not self.wait(client.service_is_ready, HANG):
            raise RobocalError(f'{service} is not offered.')
        return client.call_async(request)

    def begin(self, verb: str) -> Any:
        """Call a Trigger service; return its future."""
        return self.request(Trigger, verb, Trigger.Request())

    def to_phase(self, phase: str, verb: str, delay: float = 0.1) -> Any:
        """Lead the node to a phase; return the future of the procedure, None for idle.

        Args:
            phase: The phase.
            verb: Service that leads to it.
            delay: Time to wait in it, unless it is one of computation [s].

        Raises:
            RobocalError: If the phase does not come.

        """
        self.mark()
        if not verb:
            return None
        if self.capability.name == 'leveling':
            self._tilt()
        future = self.begin(verb)
        if not self.wait(lambda: future.done() or self.phase() == phase, _PHASE):
            raise RobocalError(f"Phase '{phase}' does not come; it is '{self.phase()}'.")
        if future.done():
            seen = any(item.value == phase for _, status in self.statuses
                       for item in status.values if item.key == 'phase')
            if not seen:
                raise RobocalError(future.result().message)
        elif phase not in ('planning', 'estimating'):
            self.wait(lambda: False, delay)
        return future

    def _tilt(self) -> None:
        """Move the arm as another client to a posture whose tool is tilted."""
        here = self.motion[-1][2]
        if np.abs(here - _TILTED).max() < 0.01:
            return
        path = quintic_path(np.array([here, _TILTED]), np.full(6, 2.0), np.full(6, 4.0))
        goal = FollowJointTrajectory.Goal(
            trajectory=conversions.to_joint_trajectory(path, self.joint_names))
        sent = self._mover.send_goal_async(goal)
        self.wait(lambda: sent.done(), HANG)
        self.wait(lambda: np.abs(self.motion[-1][2] - _TILTED).max() < 2e-3, HANG)
        self.at_rest()

    # ---------------------------------------------------------------------- figures

    def at_rest(self, timeout: float = HANG) -> bool:
        """Wait until the arm rests; return whether it does."""
        def resting() -> bool:
            newest = self.motion[-1][1] if self.motion else 0.0
            recent = [row for _, at, row, _ in self.motion if at > newest - _REST]
            return (time.monotonic() - newest < _REST and len(recent) > 20
                    and np.ptp(recent, axis=0).max() < _STILL)
        return self.wait(resting, timeout)

    def held_after(self, injected: float) -> float | None:
        """Return the time from an injection until the commands are constant, by their stamps [s].

        Args:
            injected: Steady clock [s]. Faults of the arm count from the stamp in its log.

        Returns:
            None if the arm was not commanded to move at the injection.

        """
        stamp = self._fault_stamp()
        first = next((index for index, row in enumerate(self.motion)
                      if (row[1] >= injected if stamp is None else row[0] > stamp)), 0)
        rows, before = self.motion[first:], self.motion[max(0, first - 5):first]
        if len(rows) < 2 or len(before) < 2:
            return None
        if float(np.ptp([row[3] for row in before], axis=0).max()) < _STILL:
            return None
        away = np.flatnonzero([np.abs(row[3] - rows[-1][3]).max() > _STILL for row in rows])
        last = int(away[-1]) + 1 if len(away) else 0
        steps = np.diff([before[-1][0], *(row[0] for row in rows[:last + 1])])
        # A jump of the clock is no passing of time.
        return float(steps[(steps > 0.0) & (steps < 0.9)].sum())

    def _fault_stamp(self) -> float | None:
        """Return the stamp at which the arm's last fault began; None if it has none, or jumped."""
        if self._arm is None:
            return None
        told = self._arm.log.read_bytes()[self._arm_mark:].decode('utf-8', 'replace')
        found = re.findall(r"fault '(?!none|clock)[^']*' at ([0-9.]+) s", told)
        return float(found[0]) if found else None

    def contents(self) -> dict[str, str]:
        """Return the hashes of the results by path."""
        return {str(path): sha256(path.read_bytes()).hexdigest()
                for path in self.results.rglob('*.yaml')}

    def parses(self) -> bool:
        """Return whether every result file can be read."""
        try:
            for path in self.results.rglob('*.yaml'):
                read_result(path)
        except RobocalError:
            return False
        return True


def _parameter_file(path: Path, name: str, parameters: Mapping[str, Any]) -> Path:
    path.write_text(yaml.safe_dump({name: {'ros__parameters': dict(parameters)}}), 'utf-8')
    return path
