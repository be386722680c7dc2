# SPDX-License-Identifier: Apache-2.0
"""`scripts/faults`: inject faults into the running nodes and record how each ends."""

from __future__ import annotations

import argparse
import math
import os
import platform
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builtin_interfaces.msg import Time
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.msg import ParameterValue
from rcl_interfaces.srv import DescribeParameters, GetParameters, ListParameters, SetParameters
from sensor_msgs.msg import JointState
from std_msgs.msg import Header, String
from std_srvs.srv import Trigger

from benchmarks.fault_cell import HANG, TRIGGERS, Capability, FaultCell
from benchmarks.soak import soak
from demo import default_cell
from demo.compliance import known_load
from demo.domains import own_domain
from demo.processes import Children
from robocal_ros import __version__
from robocal_ros.cli.console import OUT, print_line
from robocal_ros.cli.main import run
from robocal_ros.cli.node_client import RosSession
from robocal_ros.errors import ConfigurationError, RobocalError
from robocal_ros.messages import qos
from robocal_ros.results.store import read_result

_SUMMARY = 'Inject faults into the running nodes on the simulated arm; record how each ends.'
_PAGE = Path(__file__).resolve().parents[1] / 'docs' / 'reliability.md'
_BEGIN, _END = '<!-- campaign: begin -->', '<!-- campaign: end -->'

HOLD_BAR = 0.1
"""Longest time until the arm is held where a command is possible [s]."""

# A procedure that goes on is watched for so long before it is cancelled [s].
_GOES_ON = 2.0
_KILLS = 40

MOVING = frozenset({'moving', 'sweeping', 'running', 'measuring', 'verifying', 'mounting'})
"""Phases in which the procedure depends on the arm's data."""

CAPABILITIES = (
    Capability(
        'payload, F/T sensor', 'payload_identification', 'robocal_ros.payload.node',
        {'idle': '', 'planning': 'run', 'moving': 'run', 'measuring': 'run',
         'estimating': 'estimate'},
        {'method': 'static_poses', 'sensor_frame': 'ft_wrist', 'poses': 6, 'dwell': 0.7,
         'arm_model_std': 0.02, 'max_velocity': 3.0, 'max_acceleration': 12.0},
        ('run',), frozenset({'moves', 'wrist', 'stores'})),
    Capability(
        'payload, torques', 'payload_identification', 'robocal_ros.payload.node',
        {'idle': '', 'planning': 'run', 'moving': 'run', 'sweeping': 'run',
         'estimating': 'estimate'},
        {'method': 'two_plane', 'known_mass': 2.0, 'gain_std': 0.002, 'arm_model_std': 0.02,
         'sweep_speed': 1.0, 'max_velocity': 3.0, 'max_acceleration': 12.0},
        ('run',), frozenset({'moves', 'effort', 'stores'})),
    Capability(
        'friction', 'friction_identification', 'robocal_ros.friction.node',
        {'idle': '', 'moving': 'run', 'running': 'run'},
        {'measure_joints': ['joint_6'], 'speeds': [0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5],
         'max_cruise': 1.3, 'max_velocity': 3.0, 'max_acceleration': 12.0, 'max_rounds': 1,
         'fit_threshold': 100.0},
        traits=frozenset({'moves', 'effort'})),
    Capability(
        'compliance', 'compliance_calibration', 'robocal_ros.compliance.node',
        {'idle': '', 'planning': 'run', 'moving': 'run', 'measuring': 'run'},
        {**known_load(default_cell.hidden_truth()), 'posture_count': 10, 'posture_range': 0.8,
         'dwell': 0.6, 'settle': 0.2, 'reference_every': 5, 'registration': 'three_point',
         'attach_service': 'sim_arm/attach_load', 'detach_service': 'sim_arm/detach_load'}),
    Capability(
        'leveling', 'leveling', 'robocal_ros.leveling.node',
        {'idle': '', 'planning': 'run', 'moving': 'run'}, {'imu_topic': 'imu_flange/imu'}),
    Capability(
        'wrench observer', 'wrench_observer', 'robocal_ros.wrench.node',
        {'observing': '', 'taring': 'run'},
        {'tare_duration': 1.0, 'sensor_force_ranges': [500.0]},
        ('run',), frozenset({'wrist', 'stores'})),
)

Inject = Callable[['FaultCell', random.Random], None]


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        name: Name in the table.
        inject: Injects it.
        cause: Pattern of the sentence that names it; empty if nothing need be said.
        harmless: Whether the procedure must go on.
        kills: Processes that it ends: ``node``, ``arm`` or ``both``.
        held: Whether a command to hold the arm is possible, and expected.
        trait: Trait of the capabilities that it concerns; empty for all.
        phases: Phases that it concerns; empty for all.
        before: Whether it is injected before the service is called, not in the phase.
        waits: Longest wait for the end of the procedure [s].
        lift: Ends it.

    """

    name: str
    inject: Inject
    cause: str = ''
    harmless: bool = False
    kills: str = ''
    held: bool = True
    trait: str = ''
    phases: frozenset[str] = frozenset()
    before: bool = False
    waits: float = HANG
    lift: Inject = lambda cell, _: None


@dataclass
class Outcome:
    """Outcome of one cell of the campaign; None where a question does not apply."""

    capability: str
    phase: str
    fault: str
    survived: bool = False
    held: float | None = None
    within: bool | None = None
    intact: bool = False
    named: bool | None = None
    recovered: bool = False
    went_on: bool = False
    remarks: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing is to be complained of."""
        return (self.survived and self.within is not False and self.intact
                and self.named is not False and self.recovered)


# ------------------------------------------------------------------------------ faults


def _signal(which: str, number: signal.Signals) -> Inject:
    return lambda cell, _: cell.send(which, number)


def _cancel(cell: FaultCell, _: random.Random) -> None:
    cell.wait(cell.begin('cancel').done, HANG)


def _stall(which: str, shortest: float, longest: float) -> Inject:
    def inject(cell: FaultCell, chance: random.Random) -> None:
        duration = chance.uniform(shortest, longest)
        cell.send(which, signal.SIGSTOP)
        time.sleep(duration)
        cell.send(which, signal.SIGCONT)
    return inject


def _sim(text: str) -> Inject:
    return lambda cell, _: cell.fault(text)


def _heal(cell: FaultCell, _: random.Random) -> None:
    cell.fault('none')


def _transition(*numbers: int) -> Inject:
    def inject(cell: FaultCell, _: random.Random) -> None:
        for number in numbers:
            request = ChangeState.Request(transition=Transition(id=number))
            future = cell.request(ChangeState, 'change_state', request)
            if not cell.wait(future.done, HANG):
                raise RobocalError('change_state is not answered.')
    return inject


def _echo(change: Callable[[JointState], JointState | None]) -> Inject:
    def inject(cell: FaultCell, _: random.Random) -> None:
        cell.echo = change
    return inject


def _silence_echo(cell: FaultCell, _: random.Random) -> None:
    cell.echo = None


def _copy(state: JointState) -> JointState:
    header = Header(stamp=Time(sec=state.header.stamp.sec, nanosec=state.header.stamp.nanosec))
    return JointState(header=header, name=list(state.name), position=list(state.position),
                      velocity=list(state.velocity), effort=list(state.effort))


def _displaced(state: JointState) -> JointState:
    other = _copy(state)
    other.position = [angle + 0.3 for angle in state.position]
    # Between two messages of the arm, whose stamps are at least 2 ms apart.
    other.header.stamp.nanosec = min(state.header.stamp.nanosec + 1_000_000, 999_999_999)
    return other


def _not_finite(state: JointState) -> JointState:
    other = _copy(state)
    other.position = [math.nan] * len(state.name)
    return other


def _malformed(state: JointState) -> JointState:
    kinds: tuple[JointState, ...] = (
        JointState(header=state.header, name=state.name, position=[0.0]),
        JointState(header=state.header, position=[1.0]), JointState(),
        JointState(header=state.header, name=['', *list(state.name)[1:]],
                   position=[math.inf] * len(state.name), effort=[1e308]),
        JointState(header=state.header, name=['x' * 5000] * 50, position=[0.0] * 50))
    return kinds[state.header.stamp.nanosec // 8_000_000 % len(kinds)]


def _burst(cell: FaultCell, _: random.Random) -> None:
    for state in cell.joint_states[-1:]:
        for _number in range(1000):
            cell.publisher.publish(_copy(state))


def _garbage(cell: FaultCell, chance: random.Random) -> None:
    topics = ('payload_identification/result', 'friction_identification/result',
              'compliance_calibration/result', 'robocal/owner', 'wrench_observer/result')
    texts = ('', 'claim', 'claim /nobody', '{', 'kind: payload\n...', '\x00' * 100,
             '&a [*a]\n...', 'x: ' * 10000)
    publishers = [cell.session.node.create_publisher(String, topic, qos.LATCHED)
                  for topic in topics]
    cell.wait(lambda: False, 0.3)
    for publisher in publishers:
        for text in texts:
            publisher.publish(String(data=text))
    cell.wait(lambda: False, 0.5)
    for publisher in publishers:
        cell.session.node.destroy_publisher(publisher)


def _second_run(cell: FaultCell, _: random.Random) -> None:
    first, second = cell.begin('run'), cell.begin('run')
    if not cell.wait(second.done, HANG):
        raise RobocalError('The second run is not answered.')
    if second.result().success and not first.done():
        raise RobocalError('The second run was accepted.')


def _set_parameters(cell: FaultCell, _: random.Random) -> None:
    with suppress(RobocalError):
        cell.client.set_parameters({'max_velocity': 0.5})
    with suppress(RobocalError):
        cell.client.set_parameters({'results_dir': '/nowhere'})
    with suppress(RobocalError):
        cell.client.set_parameters({'speed_scale': math.nan})


def _random_requests(count: int) -> Inject:
    def inject(cell: FaultCell, chance: random.Random) -> None:
        waiting: list[Any] = []
        for _ in range(count):
            if not cell.node_alive:
                raise RobocalError('The node has ended.')
            kind, service, request = _random_request(chance)
            with suppress(RobocalError):
                waiting.append(cell.request(kind, service, request))
            # A queue of ten requests loses the eleventh.
            if not cell.wait(lambda: sum(not f.done() for f in waiting) < 5, HANG):
                waiting.clear()
    return inject


def _random_request(chance: random.Random) -> tuple[Any, str, Any]:
    names = ['max_velocity', 'results_dir', 'method', 'state_timeout', 'no_such', '', 'x' * 3000]
    what = chance.randrange(6)
    if what == 0:
        return Trigger, chance.choice(TRIGGERS), Trigger.Request()
    if what == 1:
        # Not those that end the node for good, which are faults of their own.
        number = chance.choice((1, 2, 3, 4, 4, 3, 0, 99, 255))
        return ChangeState, 'change_state', ChangeState.Request(
            transition=Transition(id=number))
    if what == 2:
        value = ParameterValue(type=chance.randrange(0, 12), double_value=chance.choice(
            (math.nan, math.inf, -1.0, 0.5)), string_value='../' * 20, integer_value=-1)
        return SetParameters, 'set_parameters', SetParameters.Request(
            parameters=[ParameterMessage(name=chance.choice(names), value=value)])
    if what == 3:
        return GetParameters, 'get_parameters', GetParameters.Request(
            names=chance.sample(names, 3))
    if what == 4:
        return DescribeParameters, 'describe_parameters', DescribeParameters.Request(
            names=chance.sample(names, 2))
    return ListParameters, 'list_parameters', ListParameters.Request(depth=chance.randrange(5))


def _limit_files(size: int) -> Inject:
    """Return an injection of a limit of the node's file sizes, which fails as a full disk does."""
    def inject(cell: FaultCell, _: random.Random) -> None:
        for process in cell.processes('node'):
            if process.poll() is None:
                hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)[1]
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE,
                                 (size if size >= 0 else hard, hard))
    return inject


def _chmod(mode: int) -> Inject:
    def inject(cell: FaultCell, _: random.Random) -> None:
        for folder in (cell.results, cell.results / 'history'):
            if folder.exists():
                folder.chmod(mode)
    return inject


_END_OF_NODE = r'asked to shut down'
_DEACTIVATED = r'was deactivated|not active|releases the robot'
_LATE = r'This machine was late|No joint states received|silent|No readings|goes on'

FAULTS = (
    Fault('node killed', _signal('node', signal.SIGKILL), kills='node', held=False),
    Fault('arm killed', _signal('arm', signal.SIGKILL), kills='arm', held=False,
          cause=r'No joint states|joint states have been received|disappeared|not available|'
                r'did not answer|No longer|silent'),
    Fault('node and arm killed', _signal('both', signal.SIGKILL), kills='both', held=False),
    Fault('node: SIGINT', _signal('node', signal.SIGINT), _END_OF_NODE, kills='node'),
    Fault('node: SIGTERM', _signal('node', signal.SIGTERM), _END_OF_NODE, kills='node'),
    Fault('node stalled 0.1 to 0.5 s', _stall('node', 0.1, 0.5), harmless=True),
    Fault('node stalled 0.5 to 2 s', _stall('node', 0.5, 2.0), _LATE, held=False, waits=4.0),
    Fault('arm stalled 0.1 to 0.4 s', _stall('arm', 0.1, 0.4), harmless=True),
    Fault('arm stalled 0.5 to 2 s', _stall('arm', 0.5, 2.0), _LATE, held=False, waits=4.0),
    Fault('node and arm stalled 0.1 to 2 s', _stall('both', 0.1, 2.0), _LATE, held=False,
          waits=4.0),
    Fault('deactivate', _transition(Transition.TRANSITION_DEACTIVATE), _DEACTIVATED),
    Fault('deactivate and activate', _transition(
        Transition.TRANSITION_DEACTIVATE, Transition.TRANSITION_ACTIVATE), _DEACTIVATED),
    Fault('deactivate and clean up', _transition(
        Transition.TRANSITION_DEACTIVATE, Transition.TRANSITION_CLEANUP), _DEACTIVATED),
    Fault('shut down', _transition(Transition.TRANSITION_ACTIVE_SHUTDOWN), _DEACTIVATED),
    Fault('invalid transitions', _transition(
        Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE, 99), harmless=True),
    Fault('cancel', _cancel, r'Cancelled on request'),
    Fault('second run', _second_run, harmless=True),
    Fault('parameters changed', _set_parameters, harmless=True),
    Fault('200 random requests', _random_requests(200), held=False),
    Fault('garbage on text topics', _garbage, harmless=True),
    Fault('controller gone', _sim('controller_gone'),
          r'disappeared|no longer available|not available|controller ended', trait='moves',
          held=False, lift=_heal),
    Fault('controller slow', _sim('controller_slow'), harmless=True, trait='moves', lift=_heal),
    Fault('controller never answers', _sim('controller_silent'), r'did not answer',
          trait='moves', held=False, lift=_heal),
    Fault('controller aborts', _sim('controller_abort'), r'controller ended the motion',
          trait='moves', lift=_heal),
    Fault('controller inactive', lambda cell, _: cell.set_arm(controller_active=False),
          r'controller ended the motion|rejected the motion', trait='moves',
          lift=lambda cell, _: cell.set_arm(controller_active=True)),
    Fault('joint states silent', _sim('joint_states_silent'),
          r'No joint states|joint states have been received', lift=_heal),
    Fault('joint missing', _sim('joint_missing:joint_2'), r'[Jj]oint_2', lift=_heal),
    Fault('joint states out of order', _sim('stamps_disordered'), harmless=True, lift=_heal),
    Fault('joint states 0.1 s late', _sim('latency:0.1'), harmless=True, lift=_heal),
    Fault('joint states 0.4 s late', _sim('latency:0.4'), r'joint states', trait='moves',
          lift=_heal),
    Fault('efforts not finite', _sim('effort_nan'), r'not a finite number', trait='effort',
          lift=_heal),
    Fault('joint states twice', _echo(_copy), harmless=True, lift=_silence_echo),
    Fault('second arm on joint_states', _echo(_displaced), trait='moves',
          cause=r'nodes publish on .*joint_states',
          lift=_silence_echo),
    Fault('second publisher: not finite', _echo(_not_finite), harmless=True, lift=_silence_echo),
    Fault('second publisher: malformed', _echo(_malformed), harmless=True, lift=_silence_echo),
    Fault('burst of 1000 joint states', _burst, harmless=True),
    Fault('F/T sensor silent', _sim('ft_silent'), r'No readings received|has been silent',
          trait='wrist', lift=_heal),
    Fault('F/T sensor not finite', _sim('ft_nan'), r'not finite', trait='wrist', lift=_heal),
    Fault('clock jumps back', _sim('clock_jump_back'), r'jumped back', lift=_heal),
    Fault('clock jumps forward', _sim('clock_jump_forward'), r'No joint states|jumped|gap|apart',
          lift=_heal),
    Fault('disk full', _limit_files(0), r'could not be written', trait='stores', before=True,
          phases=frozenset({'estimating', 'taring'}), lift=_limit_files(-1)),
    Fault('results folder read-only', _chmod(0o555), r'could not be written', trait='stores',
          before=True, phases=frozenset({'estimating', 'taring'}), lift=_chmod(0o755)),
)


# ---------------------------------------------------------------------------- campaign


@dataclass(frozen=True)
class Plan:
    """A cell of the product capability x phase x fault."""

    capability: Capability
    phase: str
    fault: Fault


def product() -> list[Plan]:
    """Return all cells, by capability."""
    return [Plan(capability, phase, fault) for capability in CAPABILITIES
            for phase in capability.phases for fault in FAULTS
            if (not fault.trait or fault.trait in capability.traits)
            and (not fault.phases or phase in fault.phases)]


def subset(cells: Sequence[Plan], count: int, seed: int) -> list[Plan]:
    """Return a random part of the cells in which all faults are about equally frequent."""
    chance = random.Random(seed)
    turn: dict[str, int] = {}
    ranked = []
    for index in chance.sample(range(len(cells)), len(cells)):
        name = cells[index].fault.name
        turn[name] = turn.get(name, 0) + 1
        ranked.append((turn[name], chance.random(), index))
    return [cells[index] for index in sorted(item[2] for item in sorted(ranked)[:count])]


def inject(cell: FaultCell, plan: Plan, chance: random.Random) -> Outcome:
    """Carry out one cell of the campaign.

    Raises:
        RobocalError: If the node does not even reach the phase.

    """
    fault, phase = plan.fault, plan.phase
    outcome = Outcome(plan.capability.name, phase, fault.name)
    before = cell.contents()
    verb = plan.capability.phases[phase]
    if fault.before:
        cell.mark()
        fault.inject(cell, chance)
        future = cell.begin(verb)
    else:
        future = cell.to_phase(phase, verb, chance.uniform(0.05, 0.6))
    began = time.monotonic()
    try:
        if not fault.before:
            fault.inject(cell, chance)
        # Some injections take long.
        _await_end(cell, plan, future, time.monotonic(), outcome)
    except RobocalError as error:
        outcome.survived = False
        outcome.remarks.append(str(error))
    finally:
        with suppress(RobocalError):
            fault.lift(cell, chance)
    ended = future is not None and future.done()
    answer = future.result() if ended else None
    _judge_message(cell, fault, phase, began, answer, outcome)
    if cell.arm_alive and 'moves' in plan.capability.traits:
        if not cell.at_rest():
            outcome.survived = False
            outcome.remarks.append('The arm does not come to rest.')
        if phase in MOVING and fault.held and not fault.harmless and not outcome.went_on \
                and not (answer and answer.success):
            outcome.held = cell.held_after(began)
            outcome.within = outcome.held is None or outcome.held <= HOLD_BAR
    outcome.intact = cell.parses() and _kept(before, cell.contents())
    return outcome


def _kept(before: dict[str, str], after: dict[str, str]) -> bool:
    """Return whether all good results are in the history, and the newest ones are among them."""
    history = {path: content for path, content in after.items() if 'history' in Path(path).parts}
    newest = {path: content for path, content in after.items()
              if path not in history and not path.endswith('.failed.yaml')}
    kept = all(path in after and (path in newest or after[path] == content)
               for path, content in before.items() if not path.endswith('.failed.yaml'))
    return kept and set(newest.values()) <= set(history.values())


def _await_end(
    cell: FaultCell, plan: Plan, future: Any, began: float, outcome: Outcome
) -> None:
    """Wait for the end of the procedure, or see that it goes on and cancel it."""
    fault = plan.fault
    if fault.kills in ('node', 'both'):
        outcome.survived = cell.wait(
            lambda: all(process.poll() is not None for process in cell.processes(fault.kills)),
            HANG)
        code = cell.processes('node')[0].poll()
        if fault.cause and code != 0:
            outcome.remarks.append(f'The node exited with {code}.')
            outcome.survived = False
        return
    if future is None:
        cell.wait(lambda: False, _GOES_ON)
        state = cell.request(GetState, 'get_state', GetState.Request())
        outcome.survived = cell.wait(state.done, HANG)
        return
    cell.wait(future.done, _GOES_ON if fault.harmless else fault.waits)
    took = time.monotonic() - began
    if future.done():
        outcome.survived = took < HANG + 2.5
        return
    # It goes on, or waits for the end of the fault.
    outcome.went_on = True
    newest = cell.statuses[-1][0] if cell.statuses else 0.0
    progresses = time.monotonic() - newest < 5.0
    cancel = cell.begin('cancel')
    outcome.survived = cell.wait(lambda: cancel.done() and future.done(), HANG) and progresses
    if not progresses:
        outcome.remarks.append('No answer, and no progress for 5 s.')


def _judge_message(
    cell: FaultCell, fault: Fault, phase: str, began: float, answer: Any, outcome: Outcome
) -> None:
    texts = cell.texts(began)
    message = str(answer.message) if answer is not None else ''
    if 'Defect' in texts or 'Traceback' in texts or 'Defect' in message:
        outcome.survived = False
        outcome.remarks.append('Defect: ' + (texts.strip().splitlines() or [''])[-1])
    if fault.kills in ('node', 'both') and not (fault.cause and phase in MOVING):
        return
    went_on = answer is None or answer.success or outcome.went_on
    told = bool(re.search(fault.cause, f'{message}\n{texts}'))
    if fault.harmless:
        outcome.named = went_on
        if not went_on:
            outcome.remarks.append(f'Ended: {message}')
    elif fault.cause and (told or not went_on or fault.before):
        outcome.named = told
        if not outcome.named:
            outcome.remarks.append(f'Answered: {message}')


def recover(cell: FaultCell, phase: str = 'moving') -> str:
    """Return why the node cannot work again, or an empty string.

    The node is restarted only if its process has ended or it was shut down.

    Args:
        cell: The processes.
        phase: Phase of the fault: after an estimation another one must be possible, after anything
            else a run.

    """
    try:
        if cell.node_alive and cell.client.state() == 'finalized':
            cell.send('node', signal.SIGTERM)
            cell.wait(lambda: not cell.node_alive, HANG)
        generation = cell.generation
        cell.start()
        if phase == 'estimating' and cell.generation == generation:
            answer = cell.begin('estimate')
            if cell.wait(answer.done, 3.0 * HANG) and answer.result().success:
                return ''
        # The next run discards the samples.
        cell.prepared = False
        if 'moves' not in cell.capability.traits:
            answer = cell.begin('run')
            if not cell.wait(answer.done, 3.0 * HANG):
                return 'The tare is not answered.'
            return '' if answer.result().success else str(answer.result().message)
        if not cell.at_rest():
            return 'The arm does not rest.'
        run = cell.to_phase('moving', cell.capability.phases['moving'])
        cancel = cell.begin('cancel')
        if not cell.wait(lambda: cancel.done() and run.done(), HANG):
            return 'Cancel is not answered.'
        return '' if cell.at_rest() else 'The arm does not rest.'
    except RobocalError as error:
        return str(error)


def campaign(
    plans: Sequence[Plan], output: Path, seed: int, *, prepare: bool = True
) -> Iterator[Outcome]:
    """Carry out cells, grouped by capability, in a ROS domain of their own.

    Args:
        plans: The cells.
        output: Folder for logs, and for the results of all nodes.
        seed: Seed of stalls and delays.
        prepare: Whether results are measured first.

    """
    domain = own_domain()
    environment = {'ROS_DOMAIN_ID': str(domain), 'OPENBLAS_NUM_THREADS': '1',
                   'ROS_LOG_DIR': str((output / 'logs' / 'ros').resolve())}
    chance = random.Random(seed)
    results = output / 'results'
    results.mkdir(parents=True, exist_ok=True)
    for capability in CAPABILITIES:
        own = [plan for plan in plans if plan.capability is capability]
        if not own:
            continue
        with RosSession('fault_campaign', domain) as session:
            cell = FaultCell(capability, session, Children(output / 'logs', environment), results)
            try:
                yield from _of_capability(cell, own, chance, prepare)
            finally:
                cell.close()


def _of_capability(
    cell: FaultCell, plans: Sequence[Plan], chance: random.Random, prepare: bool
) -> Iterator[Outcome]:
    cell.start()
    begun = False
    # Cells that need samples first: a node that is restarted has none.
    for plan in sorted(plans, key=lambda plan: plan.phase != 'estimating'):
        if prepare and cell.capability.prepare and (
                not begun or (plan.phase == 'estimating' and not cell.prepared)):
            for verb in cell.capability.prepare:
                answer = cell.begin(verb)
                if not cell.wait(answer.done, 300.0):
                    raise ConfigurationError(f'{cell.capability.name}: {verb} is not answered.')
                if not answer.result().success:
                    print_line(f'{cell.capability.name}: {answer.result().message}', 'yellow')
            begun = cell.prepared = True
        try:
            outcome = inject(cell, plan, chance)
        except RobocalError as error:
            outcome = Outcome(cell.capability.name, plan.phase, plan.fault.name,
                              remarks=[f'Not injected: {error}'])
        # The end of the fault may still be in the queues of the node during the first attempt.
        problem = recover(cell, plan.phase) and recover(cell, plan.phase)
        outcome.recovered = not problem
        if problem:
            outcome.remarks.append(f'Not recovered: {problem}')
            cell.restart()
        yield outcome


_WRITER = """
import sys
from pathlib import Path
from robocal_ros.results.store import ResultStore, read_result
result = read_result(Path(sys.argv[1]))
store = ResultStore(Path(sys.argv[2]), result.robot)
print('ready', flush=True)
while True:
    store.save(result)
"""


def kill_while_writing(source: Path, folder: Path, seed: int, count: int = _KILLS) -> int:
    """Kill a process that writes a result over and over; return how often a file was damaged.

    Args:
        source: A result file.
        folder: Folder to write to.
        seed: Seed of the instants.
        count: Number of kills.

    """
    chance = random.Random(seed)
    damaged = 0
    for _ in range(count):
        with subprocess.Popen([sys.executable, '-c', _WRITER, str(source), str(folder)],
                              stdout=subprocess.PIPE) as writer:
            if writer.stdout is None or not writer.stdout.readline():
                raise RobocalError('The writer did not start.')
            time.sleep(chance.uniform(0.0, 0.05))
            writer.kill()
        try:
            for path in folder.rglob('*.yaml'):
                read_result(path)
        except RobocalError:
            damaged += 1
    return damaged


# ------------------------------------------------------------------------------ stalls

_SIX_JOINTS = Capability(
    'friction of six joints', 'friction_identification', 'robocal_ros.friction.node', {'idle': ''},
    {'speeds': [0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5], 'max_cruise': 3.0, 'max_velocity': 2.0,
     'max_acceleration': 6.0, 'max_rounds': 1}, traits=frozenset({'moves', 'effort'}))
# Shortest and longest time between two stalls [s]: ten of them are spread over most of the run.
_CALM = (5.0, 60.0)
_LONGEST_RUN = 3600.0


def stalled_run(count: int, output: Path, seed: int, duration: float = 1.0) -> int:
    """Stall node or arm at random instants of a friction run of all joints; print how it ends.

    Args:
        count: Number of stalls.
        output: Folder for logs and results.
        seed: Seed of the instants, and of what is stalled.
        duration: Duration of a stall [s].

    Returns:
        0 if the run succeeded after all stalls, else 1.

    """
    domain, chance = own_domain(), random.Random(seed)
    environment = {'ROS_DOMAIN_ID': str(domain), 'OPENBLAS_NUM_THREADS': '1',
                   'ROS_LOG_DIR': str((output / 'logs' / 'ros').resolve())}
    results = output / 'stalls'
    results.mkdir(parents=True, exist_ok=True)
    stalls: list[str] = []
    with RosSession('fault_campaign', domain) as session:
        def made(capability: Capability) -> closing[FaultCell]:
            children = Children(output / 'logs', environment)
            return closing(FaultCell(capability, session, children, results))

        # Friction needs the payload.
        with made(CAPABILITIES[0]) as cell:
            cell.start()
            run = cell.begin('run')
            if not (cell.wait(run.done, 300.0) and run.result().success):
                raise RobocalError('The payload could not be identified.')
        with made(_SIX_JOINTS) as cell:
            cell.start()
            began = time.monotonic()
            run = cell.begin('run')
            while len(stalls) < count and not cell.wait(run.done, chance.uniform(*_CALM)):
                which = chance.choice(('node', 'arm'))
                stalls.append(f'{which} at {time.monotonic() - began:.0f} s ({cell.phase()})')
                _stall(which, duration, duration)(cell, chance)
                # Recordings of the campaign, which this run does not need.
                cell.motion, cell.statuses = cell.motion[-5:], cell.statuses[-5:]
            if not cell.wait(run.done, _LONGEST_RUN):
                raise RobocalError('The run is not answered.')
            took, answer, log = time.monotonic() - began, run.result(), cell.log()
    kept = results / 'friction.yaml'
    counts = read_result(kept).counts if kept.exists() else {}
    good = bool(answer.success) and len(stalls) == count
    command = f'scripts/faults --stalls {count} --seed {seed}'
    print_line(
        f'{conditions(command)} {len(stalls)} stalls of {duration:g} s: {", ".join(stalls)}. '
        f'{"Succeeded" if answer.success else "Failed"} after {took:.0f} s, '
        f'{log.count("The motion is repeated")} motions repeated (interruptions in the result: '
        f'{counts.get("interruptions", "none stored")}). {answer.message}',
        '' if good else 'red')
    return 0 if good else 1


# ------------------------------------------------------------------------------- table


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the Markdown table, a line per fault and the totals."""
    lines = ['| fault | cells | survived | held within 100 ms | longest [ms] | results intact '
             '| cause named | recovered |', '|---|---|---|---|---|---|---|---|']
    names = list(dict.fromkeys(item.fault for item in outcomes))
    order = {fault.name: index for index, fault in enumerate(FAULTS)}
    for name in [*sorted(names, key=lambda name: order.get(name, 99)), '']:
        cells = [item for item in outcomes if name in ('', item.fault)]
        held = [item.held for item in cells if item.held is not None]
        row = [name or '**all**', str(len(cells)), _count(item.survived for item in cells),
               _count(item.within for item in cells if item.held is not None),
               f'{1e3 * max(held):.0f}' if held else '–',
               _count(item.intact for item in cells), _count(item.named for item in cells),
               _count(item.recovered for item in cells)]
        lines.append('| ' + ' | '.join(row) + ' |')
    return '\n'.join(lines)


def _count(values: Iterator[bool | None]) -> str:
    known = [value for value in values if value is not None]
    return f'{sum(known)} of {len(known)}' if known else '–'


def conditions(command: str) -> str:
    """Return the conditions of a campaign as a sentence."""
    return (f'`{command}`, {os.cpu_count()} cores, {platform.system()} {platform.machine()}, '
            f'Python {platform.python_version()}, robocal_ros {__version__}, simulated arm in '
            'real time.')


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; exit code 1 if a cell went wrong."""
    parser = argparse.ArgumentParser(prog='scripts/faults', description=_SUMMARY)
    parser.add_argument('--cells', type=int, default=120,
                        help=f'number of cells of the {len(product())} (default: %(default)s)')
    parser.add_argument('--all', action='store_true', help='all cells; takes hours')
    parser.add_argument('--seed', type=int, default=1,
                        help='seed of the choice, delays and stalls (default: %(default)s)')
    parser.add_argument('--only', default='', metavar='PATTERN',
                        help='only cells whose "capability, phase, fault" matches')
    parser.add_argument('--soak', type=float, default=0.0, metavar='MINUTES',
                        help='no faults: run observer and procedures for so long')
    parser.add_argument('--stalls', type=int, default=0, metavar='NUMBER',
                        help='only this: stall node or arm so often for 1 s in a friction run of '
                        'six joints')
    parser.add_argument('--page', type=Path, default=None,
                        help='documentation page whose table is replaced')
    parser.add_argument('-o', '--output', type=Path, default=Path('fault_output'),
                        help='output folder (default: %(default)s)')
    parser.set_defaults(run=_run)
    return run(parser, arguments)


def _run(options: argparse.Namespace) -> int:
    if options.soak > 0.0:
        return soak(60.0 * options.soak, options.output)
    if options.stalls > 0:
        return stalled_run(options.stalls, options.output, options.seed)
    plans = [plan for plan in product() if re.search(
        options.only, f'{plan.capability.name}, {plan.phase}, {plan.fault.name}')]
    if not options.all:
        plans = subset(plans, options.cells, options.seed)
    outcomes: list[Outcome] = []
    began = time.monotonic()
    for outcome in campaign(plans, options.output, options.seed):
        outcomes.append(outcome)
        held = '' if outcome.held is None else f', held after {1e3 * outcome.held:.0f} ms'
        print_line(
            f'{len(outcomes)} of {len(plans)} ({time.monotonic() - began:.0f} s) '
            f'{outcome.capability}, {outcome.phase}: {outcome.fault}: '
            f'{"good" if outcome.good else "BAD"}{held}. {" ".join(outcome.remarks)}',
            '' if outcome.good else 'red')
    stored = sorted(options.output.glob('results/*.yaml'))
    text = table(outcomes)
    if stored:
        damaged = kill_while_writing(stored[0], options.output / 'killed', options.seed)
        text += (f'\n\nKilled while it wrote results: {_KILLS} times; files damaged: {damaged}.')
    command = f'scripts/faults --seed {options.seed} ' + (
        '--all' if options.all else f'--cells {options.cells}') + (
        f' --only {options.only!r}' if options.only else '')
    text = f'{conditions(command)}\n\n{text}\n'
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / 'faults.md').write_text(text, encoding='utf-8')
    OUT.print(text, markup=False, soft_wrap=True)
    if options.page is not None:
        page = options.page.read_text(encoding='utf-8')
        head, _, rest = page.partition(_BEGIN)
        options.page.write_text(
            f'{head}{_BEGIN}\n{text}{_END}{rest.partition(_END)[2]}', encoding='utf-8')
    return 0 if all(item.good for item in outcomes) else 1


if __name__ == '__main__':
    sys.exit(main())
