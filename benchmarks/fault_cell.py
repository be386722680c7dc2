# SPDX-License-Identifier: Apache-2.0
"""One node and the simulated arm as processes, and what the fault campaign records of them."""

from __future__ import annotations

import random
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
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
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from demo import default_cell
from demo.compliance import known_load
from demo.processes import Child, Children
from robocal_ros import registry
from robocal_ros.arrays import Array
from robocal_ros.cli.node_client import NodeClient, RosSession
from robocal_ros.errors import RobocalError
from robocal_ros.messages import conversions, qos
from robocal_ros.messages.stream import type_name
from robocal_ros.results import read_result
from robocal_ros.robot import quintic_path

ARM, CONTROLLER = 'sim_arm', 'joint_trajectory_controller'

TRIGGERS = ('run', 'estimate', 'clear', 'cancel')
"""Services of every node."""

HANG = 10.0
"""Longest time until a procedure with a fault has ended [s]."""

HOLD_BAR = 0.1
"""Longest time until the arm is held where a command is possible, and a cancel answered [s]."""

TASK = 'weld'
"""Task that triggers leveling."""

# Travel below which the arm rests, and how long it must [rad, s].
_STILL, _REST = 1e-3, 0.3
_START, _PHASE = 60.0, 40.0
_TILTED = np.array([0.3, 0.4, 0.3, 0.6, 0.9, 0.2])
# Nanoseconds that mark stamps of the campaign; those of the arm are multiples of 1000.
_OWN = 7
# Linux: prctl(PR_CAPBSET_DROP, …) of CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, so that permissions
# hold for root too.
_PR_CAPBSET_DROP, _CAPABILITIES = 24, (1, 2)
# Address space of a node, so that one that reads an endless file fails, and not this machine
# [bytes].
_MEMORY = 6 * 10**9


@dataclass(frozen=True)
class Capability:
    """A node with parameters that make its procedure short.

    Attributes:
        name: Name in the table.
        node: Name of the node.
        phases: Phases in which faults are injected.
        parameters: Parameters of the node.
        traits: What faults refer to: ``moves``, ``wrist``, ``effort``, ``stores``, ``resumes``,
            ``imu``, ``tracker``, ``frames``, ``rule``. What stores is run once before the faults,
            so that ``estimate`` has samples and the store a result.

    """

    name: str
    node: str
    phases: tuple[str, ...]
    parameters: Mapping[str, Any]
    traits: frozenset[str] = frozenset({'moves'})


MOVING = frozenset({'moving', 'sweeping', 'running', 'measuring', 'verifying', 'mounting'})
"""Phases in which the procedure depends on the arm's data."""

CAPABILITIES = (
    Capability(
        'payload, F/T sensor', 'payload_identification',
        ('idle', 'planning', 'moving', 'measuring', 'estimating'),
        {'method': 'static_poses', 'sensor_frame': 'ft_wrist', 'poses': 6, 'dwell': 0.7,
         'arm_model_std': 0.02, 'max_velocity': 3.0, 'max_acceleration': 12.0},
        frozenset({'moves', 'wrist', 'stores', 'resumes'})),
    Capability(
        'payload, torques', 'payload_identification',
        ('idle', 'planning', 'moving', 'sweeping', 'estimating'),
        {'method': 'two_plane', 'known_mass': 2.0, 'gain_std': 0.002, 'arm_model_std': 0.02,
         'sweep_speed': 1.0, 'max_velocity': 3.0, 'max_acceleration': 12.0},
        frozenset({'moves', 'effort', 'stores'})),
    Capability(
        'friction', 'friction_identification', ('idle', 'moving', 'running'),
        {'measure_joints': ['joint_6'], 'speeds': [0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5],
         'max_cruise': 1.3, 'max_velocity': 3.0, 'max_acceleration': 12.0, 'max_rounds': 1,
         'fit_threshold': 100.0},
        frozenset({'moves', 'effort', 'resumes'})),
    Capability(
        'compliance', 'compliance_calibration', ('idle', 'planning', 'moving', 'measuring'),
        {**known_load(default_cell.hidden_truth()), 'posture_count': 10, 'posture_range': 0.8,
         'dwell': 0.6, 'settle': 0.2, 'reference_every': 5, 'registration': 'three_point',
         'attach_service': 'sim_arm/attach_load', 'detach_service': 'sim_arm/detach_load'},
        frozenset({'moves', 'tracker', 'resumes'})),
    Capability(
        'leveling', 'leveling', ('idle', 'planning', 'moving'),
        {'imu_topic': 'imu_flange/imu', 'auto_level_after': [f'task:{TASK}']},
        frozenset({'moves', 'imu', 'rule'})),
    Capability(
        'wrench observer', 'wrench_observer', ('observing', 'taring'),
        {'tare_duration': 1.0, 'sensor_force_ranges': [500.0]},
        frozenset({'wrist', 'stores', 'frames'})),
)


def verb_of(phase: str) -> str:
    """Return the service that leads to a phase; empty for that of an idle node."""
    return {'idle': '', 'observing': '', 'estimating': 'estimate'}.get(phase, 'run')


def mark(message: Any) -> None:
    """Mark the stamp of a message, so that cells do not take it for one of the arm's."""
    stamp = message.header.stamp
    stamp.nanosec = min(stamp.nanosec, 999_999_000) // 1000 * 1000 + _OWN


def _own(message: Any) -> bool:
    return int(message.header.stamp.nanosec) % 1000 == _OWN


def _still(motion: Sequence[tuple[float, float, Array, Array]]) -> bool:
    """Return whether the commanded posture stays the same."""
    return float(np.ptp([row[3] for row in motion], axis=0).max()) < _STILL


def _kept_by_root(node: str) -> list[str]:
    """Return a command that runs a module without root's right to write anywhere."""
    return [sys.executable, '-c', (
        'import ctypes, runpy, sys;'
        f'[ctypes.CDLL(None).prctl({_PR_CAPBSET_DROP}, c, 0, 0, 0) for c in {_CAPABILITIES}];'
        f'import resource; resource.setrlimit(resource.RLIMIT_AS, ({_MEMORY}, {_MEMORY}));'
        "import os; os.execv(sys.executable, [sys.executable, '-m', *sys.argv[1:]])"), node]


class FaultCell:
    """Node and arm; restarts what has died.

    Attributes:
        capability: The node under test.
        session: ROS node of the campaign.
        client: Client of the node under test.
        output: Folder for logs.
        results: Folder of its results.
        generation: Changes when the node is restarted.
        prepared: Whether the node has samples for ``estimate``.
        statuses: Statuses of the node with their arrival times [s].
        motion: Stamp, arrival time, posture and commanded posture by the controller's state, in
            order [s, s, rad, rad].
        injected: Time at which an injection that takes long became effective, 0 if unknown [s].
        chance: What is random about the faults.
        cancelled: Time at which a cancel or a stop signal was sent, 0 for none [s].

    """

    def __init__(
        self, capability: Capability, session: RosSession, output: Path, results: Path,
        beside: FaultCell | None = None, rate: float = 125.0,
    ) -> None:
        """Subscribe; ``start`` starts the processes.

        Args:
            capability: The node under test.
            session: ROS node of the campaign.
            output: Folder for logs.
            results: Folder of the node's results.
            beside: Cell whose arm is used.
            rate: Rate of the arm's joint states [Hz].

        """
        self.capability, self.session = capability, session
        self.output, self.results = output, results
        self._beside, self._rate = beside or self, rate
        self._children = Children(output / 'logs', {'OPENBLAS_NUM_THREADS': '1'})
        results.mkdir(parents=True, exist_ok=True)
        self._mark = self._arm_mark = self._started = self.generation = 0
        self._node: Child | None = None
        self._own_arm: Child | None = None
        self.client = NodeClient(session, capability.node)
        self._arm_client = NodeClient(session, ARM)
        self.statuses: list[tuple[float, DiagnosticStatus]] = []
        self.motion: list[tuple[float, float, Array, Array]] = []
        self.joint_states: list[JointState] = []
        self.injected = self.cancelled = 0.0
        self.prepared = False
        self.chance = random.Random(1)
        self._lifts = ExitStack()
        # Registers what `calm` does.
        self.lift = self._lifts.callback
        self.joint_names: Sequence[str] = ()
        node = session.node
        # Before the first fault: discovery takes longer than the arm may move.
        for service, kind in {**dict.fromkeys(TRIGGERS, Trigger), 'get_state': GetState,
                              'change_state': ChangeState}.items():
            self.client.service(kind, service)
        self.publisher: Publisher[JointState] = node.create_publisher(
            JointState, 'joint_states', 10)
        self.mover: Any = ActionClient(
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
        self.mover.destroy()

    # ---------------------------------------------------------------------- records

    def _take_status(self, message: DiagnosticStatus) -> None:
        self.statuses.append((time.monotonic(), message))

    def _take_motion(self, message: JointTrajectoryControllerState) -> None:
        if _own(message):
            return
        self.joint_names = list(message.joint_names)
        self.motion.append((conversions.seconds(message.header.stamp), time.monotonic(),
                            np.array(message.feedback.positions),
                            np.array(message.reference.positions)))

    def _take_states(self, message: JointState) -> None:
        if not _own(message):
            self.joint_states = [*self.joint_states[-20:], message]

    def wait(self, condition: Callable[[], Any], timeout: float) -> bool:
        """Spin until a condition holds; return whether it does."""
        return self.session.spin_until(lambda: bool(condition()), timeout)

    def expect(self, condition: Callable[[], Any], message: str, timeout: float = HANG) -> None:
        """Spin until a condition holds; raise a RobocalError if it does not in time [s]."""
        if not self.wait(condition, timeout):
            raise RobocalError(message)

    def phase(self) -> str:
        """Return the phase by the newest status."""
        return next((item.value for _, status in self.statuses[-1:] for item in status.values
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

    # ------------------------------------------------------------------- injections

    def made(self, kind: str, *arguments: Any) -> Any:
        """Return a new publisher, subscription, service, client or timer, until ``calm``."""
        node = self.session.node
        item = getattr(node, f'create_{kind}')(*arguments)
        self.lift(partial(getattr(node, f'destroy_{kind}'), item))
        return item

    def calm(self) -> None:
        """Remove what the last injection has created."""
        with suppress(RobocalError):
            self._lifts.close()

    def publishers(self, kind: Any, ending: str = '') -> list[Publisher[Any]]:
        """Publish on all topics of a type that the node subscribes to, until ``calm``.

        Args:
            kind: Type of the messages.
            ending: End of the topics' names.

        """
        topics = self.session.node.get_subscriber_names_and_types_by_node(
            self.capability.node, '/')
        made = [self.made('publisher', kind, topic, qos.MARKS) for topic, kinds in topics
                if topic.endswith(ending) and type_name(kind) in kinds]
        self.wait(lambda: all(item.get_subscription_count() for item in made), 2.0)
        self.in_motion()
        self.injected = time.monotonic()
        return made

    def mirror(
        self, kind: Any, ending: str, change: Callable[[Any], Any], count: float = np.inf
    ) -> None:
        """Publish each message of a topic again, changed, until ``calm``.

        Args:
            kind: Type of the messages.
            ending: End of the topic's name.
            change: Returns the message to publish, which may be the given one.
            count: Number of messages.

        """
        left = [count]

        def again(publisher: Publisher[Any], message: Any) -> None:
            if left[0] > 0 and not _own(message):
                left[0] -= 1
                other = change(message)
                mark(other)
                publisher.publish(other)

        for publisher in self.publishers(kind, ending):
            self.made('subscription', kind, publisher.topic_name, partial(again, publisher),
                      qos_profile_sensor_data)

    # -------------------------------------------------------------------- processes

    @property
    def _arm(self) -> Child | None:
        return self._beside._own_arm

    def children(self, which: str) -> list[Child]:
        """Return the processes of ``node``, ``arm`` or ``both``, with their names."""
        found = {'node': [self._node], 'arm': [self._arm], 'both': [self._node, self._arm]}
        return [child for child in found[which] if child is not None]

    def alive(self, which: str) -> bool:
        """Return whether the process of ``node`` or ``arm`` runs, or one of ``both``."""
        return any(child.process.poll() is None for child in self.children(which))

    def send(self, which: str, number: signal.Signals) -> None:
        """Send a signal to ``node``, ``arm`` or ``both``."""
        for child in self.children(which):
            child.process.send_signal(number)

    def start(self) -> None:
        """Start what does not run, and bring the node to active.

        Raises:
            RobocalError: If that fails.

        """
        self._started += 1
        if not self.alive('arm'):
            self._beside._own_arm = arm = self._children.start_node('robocal_sim.node', ARM, {
                'real_time_factor': 1.0, 'seed': self._started, 'joint_states_rate': self._rate,
                'truth_file': str(default_cell.TRUTH_FILE.resolve()),
                'cell_file': str(default_cell.CELL_FILE.resolve()),
                **({'initial_positions': _TILTED.tolist()}
                   if self.capability.name == 'leveling' else {})})
            self.motion.clear()
            self._arm_mark = 0
            self.expect(lambda: self.motion, f'The arm does not come up; see {arm.log}.', _START)
        if not self.alive('node'):
            self._node = self.spawn(
                f'{self.capability.node}_{self._started}', self.parameter_file('node'))
            self._mark = 0
            self.generation = self._started
            self.client.wait_until_there(_START)
        self.client.lead_to('active')

    def parameter_file(self, name: str, **others: Any) -> Path:
        """Write a parameter file of the node; return its path."""
        path = self.output / f'{self.capability.node}_{name}.yaml'
        path.write_text(yaml.safe_dump({self.capability.node: {'ros__parameters': {
            'use_sim_time': True, 'results_dir': str(self.results.resolve()),
            'max_velocity': 2.0, 'max_acceleration': 4.0, 'connect_timeout': 3.0,
            **self.capability.parameters, **others}}}), 'utf-8')
        return path

    def spawn(self, name: str, parameters: Path) -> Child:
        """Start a process of the node."""
        return self._children.start(name, [
            *_kept_by_root(registry.nodes()[self.capability.node]), '--ros-args', '--params-file',
            str(parameters.absolute())])

    def run(self, name: str, *command: str) -> Child:
        """Start another process, until ``calm``."""
        child = self._children.start(name, list(command))
        self.lift(child.process.kill)
        return child

    def restart(self) -> None:
        """End both processes, and start new ones."""
        self._children.stop()
        self.start()

    # --------------------------------------------------------------------- requests

    def set_arm(self, **values: Any) -> None:
        """Set parameters of the simulated arm."""
        self._arm_client.set_parameters(values)

    def request(self, kind: Any, service: str, request: Any) -> Any:
        """Send a request to the node; return its future."""
        client = self.client.service(kind, service)
        self.expect(client.service_is_ready, f'{service} is not offered.')
        return client.call_async(request)

    def begin(self, verb: str) -> Any:
        """Call a Trigger service; return its future."""
        if verb == 'cancel':
            self.cancelled = self.cancelled or time.monotonic()
        return self.request(Trigger, verb, Trigger.Request())

    def answer(self, verb: str, timeout: float = HANG) -> Any:
        """Call a Trigger service; return its answer.

        Raises:
            RobocalError: If there is none in time [s].

        """
        future = self.begin(verb)
        self.expect(future.done, f'{self.capability.name}: {verb} is not answered.', timeout)
        return future.result()

    def goal(self, points: Sequence[tuple[float, Array]]) -> JointTrajectory:
        """Return a motion through postures at given times from now [s]."""
        return JointTrajectory(joint_names=list(self.joint_names), points=[
            JointTrajectoryPoint(positions=posture.tolist(), velocities=[0.0] * len(posture),
                                 time_from_start=conversions.to_duration(at))
            for at, posture in points])

    def move(self, trajectory: JointTrajectory) -> Any:
        """Send a motion as another client; return the future of its handle."""
        return self.mover.send_goal_async(FollowJointTrajectory.Goal(trajectory=trajectory))

    def to_phase(self, phase: str, delay: float = 0.1) -> Any:
        """Lead the node to a phase; return the future of the procedure, None for idle.

        Args:
            phase: The phase.
            delay: Time to wait in it, unless it is one of computation [s].

        Raises:
            RobocalError: If the phase does not come.

        """
        self.mark()
        if not (verb := verb_of(phase)):
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
            self.in_motion()
        return future

    def in_motion(self) -> None:
        """Wait until a procedure moves the arm, at most 2 s."""
        if self.phase() in MOVING and 'moves' in self.capability.traits:
            self.wait(lambda: not _still(self.motion[-5:]), 2.0)

    def _tilt(self) -> None:
        """Move the arm as another client to a posture whose tool is tilted."""
        here = self.motion[-1][2]
        if np.abs(here - _TILTED).max() < 0.01:
            return
        path = quintic_path(np.array([here, _TILTED]), np.full(6, 2.0), np.full(6, 4.0))
        self.wait(self.move(conversions.to_joint_trajectory(path, self.joint_names)).done, HANG)
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
        stamp = self._fault_stamp() if injected != self.cancelled else None
        # Rows that arrived late, because the campaign was busy, are not later.
        due = injected - min((at - sent for sent, at, _, _ in self.motion
                              if 0.0 < injected - at < 1.0), default=-np.inf)
        first = next((index for index, (sent, at, _, _) in enumerate(self.motion)
                      if (sent > stamp if stamp is not None else
                          at >= injected and not 0.0 <= due - sent < 0.5)), 0)
        rows, before = self.motion[first:], self.motion[max(0, first - 5):first]
        if len(rows) < 2 or len(before) < 2 or _still(before):
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


@contextmanager
def open_cells(
    session: RosSession, capabilities: Iterable[Capability], output: Path, results: Path,
    rate: float = 125.0,
) -> Iterator[list[FaultCell]]:
    """Start nodes around one arm, with one folder of results; on exit, end them.

    Args:
        session: ROS node of the campaign.
        capabilities: The nodes.
        output: Folder for logs.
        results: Folder of the results.
        rate: Rate of the arm's joint states [Hz].

    """
    with ExitStack() as stack:
        cells: list[FaultCell] = []
        for capability in capabilities:
            cells.append(stack.enter_context(closing(FaultCell(
                capability, session, output, results, cells[0] if cells else None, rate))))
            cells[-1].start()
        yield cells
