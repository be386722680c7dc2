# SPDX-License-Identifier: Apache-2.0
"""The faults that the campaign injects: one table, and what its rows are made of."""

from __future__ import annotations

import math
import os
import random
import re
import resource
import signal
import stat
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from action_msgs.msg import GoalStatus
from action_msgs.srv import CancelGoal
from builtin_interfaces.msg import Time
from control_msgs.msg import JointTrajectoryControllerState
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from geometry_msgs.msg import PointStamped, TransformStamped, WrenchStamped
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.msg import Parameter as ParameterMessage, ParameterValue
from rcl_interfaces.srv import DescribeParameters, GetParameters, ListParameters, SetParameters
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import Header, String
from std_srvs.srv import Trigger
from tf2_msgs.msg import TFMessage
from trajectory_msgs.msg import JointTrajectory
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from benchmarks.fault_cell import CAPABILITIES, CONTROLLER, HANG, MOVING, TASK, TRIGGERS, FaultCell
from demo import default_cell
from robocal_ros.errors import RobocalError
from robocal_ros.messages import qos

Inject = Callable[[FaultCell], None]

OWNER_BAR = 3.0
"""Longest time until another node may move the arm after its owner was killed [s]."""


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        name: Name in the table.
        inject: Injects it; what it registers with the cell removes it.
        cause: Pattern of the sentence that names it, and of no other; empty if it is harmless or
            kills the node.
        harmless: Whether the procedure must go on.
        kills: Processes that it ends: ``node``, ``arm`` or ``both``.
        held: Whether a command to hold the arm is possible, and expected.
        trait: Trait of the capabilities that it concerns; empty for all.
        phases: Phases that it concerns; empty for all.
        before: Whether it is injected before the service is called, not in the phase.
        waits: Longest wait for the end of the procedure [s].
        possible: Whether it can be injected on this machine.

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
    possible: bool = True


P = ParamSpec('P')


def _made(function: Callable[Concatenate[FaultCell, P], None]) -> Callable[P, Inject]:
    """Turn an injection with further arguments into a function of these that returns it."""
    def prepare(*args: P.args, **kwargs: P.kwargs) -> Inject:
        return lambda cell: function(cell, *args, **kwargs)
    return prepare


@_made
def _then(cell: FaultCell, *steps: Inject) -> None:
    for step in steps:
        step(cell)


# ---------------------------------------------------------------- processes and requests


@_made
def _signal(cell: FaultCell, which: str, number: signal.Signals) -> None:
    if which == 'node' and number != signal.SIGKILL:
        cell.cancelled = time.monotonic()
    cell.send(which, number)


def _cancel(cell: FaultCell) -> None:
    cell.wait(cell.begin('cancel').done, HANG)


def _cancels(cell: FaultCell) -> None:
    for _number in range(100):
        cell.begin('cancel')


@_made
def stall(cell: FaultCell, which: str, shortest: float, longest: float) -> None:
    """Stop node, arm or both for some time between two [s]."""
    duration = cell.chance.uniform(shortest, longest)
    cell.send(which, signal.SIGSTOP)
    time.sleep(duration)
    cell.send(which, signal.SIGCONT)


@_made
def _sim(cell: FaultCell, text: str) -> None:
    cell.lift(lambda: cell.set_arm(fault='none'))
    cell.set_arm(fault=text)


def _inactive(cell: FaultCell) -> None:
    cell.lift(lambda: cell.set_arm(controller_active=True))
    cell.set_arm(controller_active=False)


def _arm_restarted(cell: FaultCell) -> None:
    cell.send('arm', signal.SIGKILL)
    cell.wait(lambda: not cell.alive('arm'), HANG)
    cell.start()


@_made
def _transition(cell: FaultCell, *numbers: int) -> None:
    for number in numbers:
        request = ChangeState.Request(transition=Transition(id=number))
        cell.expect(cell.request(ChangeState, 'change_state', request).done,
                    'change_state is not answered.')


_RELEASE = _transition(Transition.TRANSITION_DEACTIVATE, Transition.TRANSITION_CLEANUP)
_RESUME = _transition(Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE)


def _anew(*steps: Inject) -> Inject:
    """Return steps between the release and a new configuration of the node."""
    return _then(_RELEASE, *steps, _RESUME)


def _second_run(cell: FaultCell) -> None:
    first, second = cell.begin('run'), cell.begin('run')
    cell.expect(second.done, 'The second run is not answered.')
    if second.result().success and not first.done():
        raise RobocalError('The second run was accepted.')


def _set_parameters(cell: FaultCell) -> None:
    for values in ({'max_velocity': 0.5}, {'results_dir': '/nowhere'}, {'speed_scale': math.nan}):
        with suppress(RobocalError):
            cell.client.set_parameters(values)


def _unknown_type(cell: FaultCell) -> None:
    cell.wait(cell.request(SetParameters, 'set_parameters', SetParameters.Request(parameters=[
        ParameterMessage(name='max_velocity', value=ParameterValue(type=99))])).done, HANG)


def _flood_services(cell: FaultCell) -> None:
    runs = []
    for _number in range(300):
        runs.append(cell.begin('run'))
        cell.request(GetState, 'get_state', GetState.Request())
    # One may be under way.
    cell.lift(lambda: cell.wait(lambda: sum(not run.done() for run in runs) < 2, HANG))


@_made
def _random_requests(cell: FaultCell, count: int) -> None:
    waiting: list[Any] = []
    for _ in range(count):
        if not cell.alive('node'):
            raise RobocalError('The node has ended.')
        kind, service, request = _random_request(cell.chance)
        with suppress(RobocalError):
            waiting.append(cell.request(kind, service, request))
        # A queue of ten requests loses the eleventh.
        if not cell.wait(lambda: sum(not f.done() for f in waiting) < 5, HANG):
            waiting.clear()


def _random_request(chance: random.Random) -> tuple[Any, str, Any]:
    names = ['max_velocity', 'results_dir', 'method', 'state_timeout', 'no_such', '', 'x' * 3000]
    value = ParameterValue(type=chance.randrange(0, 12), double_value=chance.choice(
        (math.nan, math.inf, -1.0, 0.5)), string_value='../' * 20, integer_value=-1)
    requests = {
        chance.choice(TRIGGERS): (Trigger, {}),
        # Not those that end the node for good, which are faults of their own.
        'change_state': (ChangeState, {
            'transition': Transition(id=chance.choice((1, 2, 3, 4, 4, 3, 0, 99, 255)))}),
        'set_parameters': (SetParameters, {
            'parameters': [ParameterMessage(name=chance.choice(names), value=value)]}),
        'get_parameters': (GetParameters, {'names': chance.sample(names, 3)}),
        'describe_parameters': (DescribeParameters, {'names': chance.sample(names, 2)}),
        'list_parameters': (ListParameters, {'depth': chance.randrange(5)})}
    service, (kind, values) = chance.choice(list(requests.items()))
    return kind, service, kind.Request(**values)


def _second_instance(cell: FaultCell) -> None:
    second = cell.spawn('second', cell.parameter_file('second', autostart=True))
    refused = cell.wait(lambda: 'Another node named' in second.tail(100), 3.0 * HANG)
    second.process.terminate()
    second.process.wait(HANG)
    if not refused:
        raise RobocalError('The second node of the name became active.')


def _owner_killed(cell: FaultCell) -> None:
    """Kill the node while another one wants the arm."""
    other = next(item for item in CAPABILITIES
                 if 'moves' in item.traits and item.node != cell.capability.node)
    with closing(FaultCell(other, cell.session, cell.output, cell.results, cell)) as waiting:
        waiting.start()
        cell.to_phase('moving')

        def refused() -> bool:
            run = waiting.begin('run')
            return (waiting.wait(run.done, 1.5)
                    and f'/{cell.capability.node} moves the arm' in run.result().message)

        if not refused():
            raise RobocalError('A second node may move the arm.')
        cell.send('node', signal.SIGKILL)
        called = killed = time.monotonic()
        while refused() and called - killed < 3.0 * HANG:
            called = time.monotonic()
        waiting.wait(waiting.begin('cancel').done, HANG)
    if called - killed > OWNER_BAR:
        raise RobocalError(f'The arm of a killed node was refused for {called - killed:.1f} s.')


def _foreign_page(cell: FaultCell) -> None:
    """Let a page of another origin, that even knows the token, connect to `robocal view`."""
    port = cell.chance.randrange(20000, 30000)
    view = cell.run('view', sys.executable, '-m', 'robocal_ros.cli.main', 'view', '--port',
                    str(port))
    cell.expect(lambda: 'http' in view.tail(), 'The view serves no page.', 2.0 * HANG)
    address = re.findall(r'http\S+', view.tail())[0].replace('http', 'ws')
    for place in (address, address.rpartition('/')[0].rpartition('/')[0]):
        with suppress(InvalidStatus), connect(
                place, proxy=None, origin=Origin('http://evil.example')):
            raise RobocalError('The view accepts a page of another origin.')


# -------------------------------------------------------------------------- streams


def _mirror(
    kind: Any, ending: str, change: Callable[[Any], Any] = deepcopy, count: float = math.inf
) -> Inject:
    return lambda cell: cell.mirror(kind, ending, change, count)


_states = partial(_mirror, JointState, 'joint_states')
_wrenches = partial(_mirror, WrenchStamped, 'ft_wrist/wrench')


def _filled(**values: Any) -> Callable[[JointState], JointState]:
    def change(state: JointState) -> JointState:
        for field, value in values.items():
            setattr(state, field, [value] * len(state.name))
        return state
    return change


def _shifted(seconds: float) -> Callable[[Any], Any]:
    def change(message: Any) -> Any:
        stamp = message.header.stamp
        nanoseconds = stamp.sec * 10**9 + stamp.nanosec + round(seconds * 1e9)
        sec, nanosec = divmod(min(max(nanoseconds, 0), (2**31 - 1) * 10**9), 10**9)
        message.header.stamp = Time(sec=sec, nanosec=nanosec)
        return message
    return change


def _displaced(state: JointState) -> JointState:
    # Between two messages of the arm, whose stamps are at least 2 ms apart.
    state.header.stamp.nanosec = min(state.header.stamp.nanosec + 1_000_000, 999_999_000)
    state.position = [angle + 0.3 for angle in state.position]
    return state


def _malformed(state: JointState) -> JointState:
    kinds: tuple[JointState, ...] = (
        JointState(header=state.header, name=state.name, position=[0.0]),
        JointState(header=state.header, position=[1.0]), JointState(),
        JointState(header=state.header, name=['', *list(state.name)[1:]],
                   position=[math.inf] * len(state.name), effort=[1e308]),
        JointState(header=state.header, name=['x' * 5000] * 50, position=[0.0] * 50))
    return kinds[state.header.stamp.nanosec // 8_000_000 % len(kinds)]


def _many_joints(state: JointState) -> JointState:
    return JointState(header=state.header, name=[f'joint_{number}' for number in range(1000)],
                      position=[0.5] * 1000, velocity=[0.0] * 1000, effort=[0.0] * 1000)


def _twice_named(state: JointState) -> JointState:
    state.name = [state.name[0]] * len(state.name)
    return state


def _force(newtons: float) -> Callable[[WrenchStamped], WrenchStamped]:
    def change(message: WrenchStamped) -> WrenchStamped:
        message.wrench.force.x = newtons
        return message
    return change


def _lost_feedback(message: JointTrajectoryControllerState) -> JointTrajectoryControllerState:
    count = len(message.joint_names)
    message.feedback.positions = message.reference.positions = [math.nan] * count
    return message


def _burst(cell: FaultCell) -> None:
    for state in cell.joint_states[-1:]:
        for _number in range(1000):
            cell.publisher.publish(state)


def _frozen(cell: FaultCell) -> None:
    """Let a driver send the last joint states again and again, with new stamps."""
    last = cell.joint_states[-1]
    _sim('joint_states_silent')(cell)
    cell.injected = time.monotonic()

    def again() -> None:
        seconds, nanoseconds = divmod(round(cell.motion[-1][0] * 1e9), 10**9)
        last.header.stamp = Time(sec=seconds, nanosec=nanoseconds)
        cell.publisher.publish(last)

    cell.made('timer', 0.008, again)


# ------------------------------------------------------------------ messages of strangers


@_made
def _send(
    cell: FaultCell, kind: Any, make: Callable[[int], Any], count: int = 1, ending: str = '',
) -> None:
    """Send messages on all topics of a type that the node subscribes to."""
    for publisher in cell.publishers(kind, ending):
        for number in range(count):
            publisher.publish(make(number))


_GARBAGE = ('', 'claim', 'claim /nobody', '{', 'kind: payload\n...', '&a [*a]\n...', 'x: ' * 10000)
_TEXTS: dict[str, Callable[[], str]] = {
    'list of 1.4 MB': lambda: '- 0\n' * 350_000,
    'list of 50 MB': lambda: '- 0\n' * 12_500_000,
    'nested 100,000 deep': lambda: '[' * 100_000,
    'aliases for billions of values': lambda: 'a0: &a0 x\n' + ''.join(
        f'a{n}: &a{n} [{", ".join([f"*a{n - 1}"] * 9)}]\n' for n in range(1, 12)),
    'NUL bytes': lambda: '\x00' * 100_000,
    'malformed YAML': lambda: 'kind: [payload, {schema_version: 1}\n\t- %\n...',
}


def _text(name: str) -> Inject:
    return _send(String, lambda _: String(data=_TEXTS[name]()))


@_made
def _describe(cell: FaultCell, name: str) -> None:
    """Publish a second description, which may be received before that of the arm."""
    cell.made('publisher', String, 'robot_description', qos.LATCHED).publish(
        String(data=_TEXTS[name]()))


def _marks(number: int) -> DiagnosticArray:
    names = ('begin', 'discard', 'rest', 'end', 'tared', '')
    values = ('1e300 -1e300', 'nan', '', 'x' * 1000)
    return DiagnosticArray(status=[DiagnosticStatus(
        name=names[number % 6], message='run', hardware_id=str(number),
        values=[KeyValue(key='joint_states', value=values[number % 4])])])


def _frames(number: int) -> TFMessage:
    return TFMessage(transforms=[
        TransformStamped(header=Header(frame_id=f'frame_{number}_{item}'),
                         child_frame_id=f'frame_{number}_{item + 1}') for item in range(100)])


# --------------------------------------------------------------------- foreign motions


def _moving_goal(cell: FaultCell) -> JointTrajectory:
    return cell.goal([(2.0, cell.motion[-1][2] + 0.2)])


def _foreign_goal(cell: FaultCell) -> None:
    cell.wait(cell.move(_moving_goal(cell)).done, HANG)


def _rejected_goal(cell: FaultCell) -> None:
    trajectory = _moving_goal(cell)
    trajectory.joint_names = ['elbow', *trajectory.joint_names[1:]]
    cell.wait(cell.move(trajectory).done, HANG)


def _foreign_trajectory(cell: FaultCell) -> None:
    publisher = cell.made('publisher', JointTrajectory, f'{CONTROLLER}/joint_trajectory', 10)
    cell.wait(publisher.get_subscription_count, HANG)
    publisher.publish(_moving_goal(cell))


def _foreign_cancel(cell: FaultCell) -> None:
    client = cell.made('client', CancelGoal,
                       f'{CONTROLLER}/follow_joint_trajectory/_action/cancel_goal')
    cell.wait(client.service_is_ready, HANG)
    cell.injected = time.monotonic()
    cell.wait(client.call_async(CancelGoal.Request()).done, HANG)


@_made
def _during_foreign_hold(cell: FaultCell, trigger: Inject) -> None:
    """Trigger a motion while a foreign goal holds the arm between two motions."""
    here = cell.motion[-1][2]
    sent = cell.move(cell.goal([(1.0, here + 0.1), (5.0, here + 0.1), (6.0, here)]))
    cell.expect(lambda: sent.done() and sent.result().accepted,
                'The foreign goal was not accepted.')
    result = sent.result().get_result_async()
    cell.wait(result.done, 2.0)
    trigger(cell)
    cell.wait(result.done, HANG)
    if not result.done() or result.result().status != GoalStatus.STATUS_SUCCEEDED:
        raise RobocalError('The foreign motion was replaced.')


# ------------------------------------------------------------------------------- files


def _limit_files(cell: FaultCell) -> None:
    """Limit the node's file sizes to zero, which fails as a full disk does."""
    def limit(size: int) -> None:
        for process in (child.process for child in cell.children('node')):
            if process.poll() is None:
                hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)[1]
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE,
                                 (size if size >= 0 else hard, hard))

    cell.lift(lambda: limit(-1))
    limit(0)


@_made
def _chmod(cell: FaultCell, mode: int) -> None:
    def change(to: int) -> None:
        for folder in (cell.results, cell.results / 'history'):
            if folder.exists():
                folder.chmod(to)

    cell.lift(lambda: change(0o755))
    change(mode)


def _small_disk(cell: FaultCell) -> None:
    cell.lift(lambda: os.system(f'umount -l "{cell.results.resolve()}"'))
    if os.system(f'mount -t tmpfs -o size=8k tmpfs "{cell.results.resolve()}"'):
        raise RobocalError('No tmpfs can be mounted.')
    (cell.results / 'other').write_bytes(bytes(4096))


def _moved_aside(cell: FaultCell) -> None:
    """Put a file where the results folder is expected."""
    aside = cell.results.with_name('aside')

    def back() -> None:
        cell.results.unlink()
        aside.rename(cell.results)

    cell.results.rename(aside)
    cell.lift(back)
    cell.results.write_text('no folder', encoding='utf-8')


def _huge(path: Path) -> None:
    with path.open('wb') as file:
        file.truncate(2**40)


_STRANGE_FILES: dict[str, Callable[[Path], object]] = {
    'named pipe': os.mkfifo,
    'device': lambda path: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5)),
    'link to a device': lambda path: path.symlink_to('/dev/zero'),
    'folder': Path.mkdir,
    'file of 1 TB': _huge,
}


@_made
def _planted(cell: FaultCell, make: Callable[[Path], object], *names: str) -> None:
    for name in names:
        path = cell.results / name
        path.unlink(missing_ok=True)
        make(path)
        cell.lift(path.rmdir if path.is_dir() else partial(path.unlink, missing_ok=True))


@_made
def _parameter_file(cell: FaultCell, make: Callable[[Path], object]) -> None:
    """Start a second process with a parameter file that is none."""
    _planted(make, 'strange_parameters')(cell)
    process = cell.spawn('strange', cell.results / 'strange_parameters').process
    ended = cell.wait(lambda: process.poll() is not None, HANG)
    process.terminate()
    stopped = cell.wait(lambda: process.poll() is not None, HANG)
    process.kill()
    if not ended or not process.wait():
        raise RobocalError('A node with this parameter file '
                           f'{"ends only if asked to" if stopped else "must be killed"}.')


# -------------------------------------------------------------- sensors, tracker and load


def _no_other_source(cell: FaultCell) -> None:
    """Silence the sensor, after which no tool wrench of another source may be published."""
    wrenches, sources = list[WrenchStamped](), list[DiagnosticStatus]()
    for kind, topic, taken, profile in (
            (WrenchStamped, 'tool_wrench', wrenches, qos.SENSOR),
            (DiagnosticStatus, 'tool_wrench/source', sources, qos.LATCHED)):
        cell.made('subscription', kind, f'/{cell.capability.node}/{topic}', taken.append, profile)
    cell.expect(lambda: wrenches, 'There is no tool wrench before the fault.')
    _sim('ft_silent')(cell)
    cell.wait(lambda: sources and sources[-1].level == DiagnosticStatus.ERROR, HANG)
    wrenches.clear()
    if cell.wait(lambda: wrenches, 1.5):
        raise RobocalError('The tool wrench goes on from another source.')
    if not sources or 'silent' not in sources[-1].message:
        told = sources[-1].message if sources else ''
        raise RobocalError(f"The source of the tool wrench does not name the silence: '{told}'.")


def _refused_detach(cell: FaultCell) -> None:
    """Let the service that removes the load refuse."""
    def refuse(_: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        response.success, response.message = False, 'There is no crane.'
        return response

    cell.made('service', Trigger, '/crane/detach', refuse)
    _with_parameters(detach_service='/crane/detach')(cell)


def _heavy_tool(cell: FaultCell) -> None:
    """Weld a tool of 6 kg to the flange of the described arm."""
    urdf = default_cell.urdf().replace('</robot>', (
        '<link name="heavy"><inertial><mass value="6"/><origin xyz="0 0 0.1"/><inertia ixx="0.02" '
        'iyy="0.02" izz="0.02" ixy="0" ixz="0" iyz="0"/></inertial></link><joint '
        'name="heavy_joint" type="fixed"><child link="heavy"/><parent link="link_6"/></joint>'
        '</robot>'))
    _with_parameters(robot_description=urdf)(cell)


@_made
def _moved_target(cell: FaultCell, shift: Callable[[FaultCell, float, bool], float]) -> None:
    """Give the node a tracker whose target is moved along its x axis.

    ``shift`` returns by how much [m], given the cell, the time [s], and whether the arm has been
    loaded.
    """
    began, loaded = time.monotonic(), False
    publisher = cell.made('publisher', PointStamped, '/moved/point', qos.STREAM)

    def move(message: PointStamped) -> None:
        nonlocal loaded
        loaded |= cell.phase() == 'mounting'
        message.point.x += shift(cell, time.monotonic() - began, loaded)
        publisher.publish(message)

    cell.made('subscription', PointStamped, '/tracker/point', move, qos.SENSOR)
    _with_parameters(tracker_topic='/moved/point')(cell)


def _drift(_: FaultCell, time: float, loaded: bool) -> float:
    return 5e-4 * math.sin(time / 10.0)


def _bend(cell: FaultCell, _: float, loaded: bool) -> float:
    return 5e-4 * math.sin(2.0 * cell.motion[-1][2][1]) if loaded else 0.0


# ----------------------------------------------------------------------------- geometry


@_made
def _with_parameters(cell: FaultCell, /, **values: Any) -> None:
    """Change parameters of the released node, which is restarted afterwards."""
    def end() -> None:
        cell.send('node', signal.SIGTERM)
        cell.wait(lambda: not cell.alive('node'), HANG)

    cell.lift(end)
    cell.client.set_parameters(values)


def _with_box(parent: str, centre: str, size: str) -> str:
    """Return the arm's URDF with a box called ``obstacle`` fixed to a link."""
    return default_cell.urdf().replace('</robot>', (
        '<link name="obstacle"><collision><geometry>'
        f'<box size="{size}"/></geometry></collision></link>'
        '<joint name="obstacle_joint" type="fixed"><child link="obstacle"/>'
        f'<parent link="{parent}"/><origin xyz="{centre}"/></joint></robot>'))


# ------------------------------------------------------------------------------- table

_ROOT = os.geteuid() == 0
_IDLE = frozenset({'idle', 'observing'})
_STORING = frozenset({'estimating', 'taring'})
_END_OF_NODE = r'asked to shut down'
_DEACTIVATED = r'was deactivated|not active|releases the robot'
_NO_READINGS = r'has been silent|No readings received'
_LATE = rf'This machine was late|No joint states received|{_NO_READINGS}'
_NO_ARM = (r'No joint states|joint states have been received|disappeared|not available|'
           r'did not answer|No longer|silent')
_CANCELLED = r'Cancelled on request'
_ENDED = r'controller ended the motion'
_NO_CONTROLLER = r'disappeared|no longer available|not available|controller ended'
_FOREIGN = r'[Aa]nother client|already moving'
_STUCK = r'[Ee]fforts? .*(are the same|is zero|stuck)'
_STOPPED = r'No joint states received|[Cc]lock .*jumped|have a gap'
_BEYOND = r'far beyond (its limits|what an arm has)|jumps by|nodes publish on'

_harmless = partial(Fault, harmless=True)
_moving = partial(Fault, trait='moves', phases=MOVING)
_idle = partial(Fault, before=True, phases=_IDLE)
_run = partial(Fault, before=True, phases=frozenset({'moving'}))
_storing = partial(Fault, trait='stores', before=True, phases=_STORING)

FAULTS = (
    Fault('node killed', _signal('node', signal.SIGKILL), kills='node', held=False),
    Fault('arm killed', _signal('arm', signal.SIGKILL), _NO_ARM, kills='arm', held=False),
    Fault('arm restarted', _arm_restarted, f'{_NO_ARM}|jumped|late', held=False),
    Fault('node and arm killed', _signal('both', signal.SIGKILL), kills='both', held=False),
    Fault('node: SIGINT', _signal('node', signal.SIGINT), _END_OF_NODE, kills='node'),
    Fault('node: SIGTERM', _signal('node', signal.SIGTERM), _END_OF_NODE, kills='node'),
    _harmless('node stalled 0.1 to 0.5 s', stall('node', 0.1, 0.5)),
    Fault('node stalled 0.5 to 2 s', stall('node', 0.5, 2.0), _LATE, held=False, waits=4.0),
    _harmless('arm stalled 0.1 to 0.4 s', stall('arm', 0.1, 0.4)),
    Fault('arm stalled 0.5 to 2 s', stall('arm', 0.5, 2.0), _LATE, held=False, waits=4.0),
    Fault('node and arm stalled 0.1 to 2 s', stall('both', 0.1, 2.0), _LATE, held=False,
          waits=4.0),
    Fault('deactivate', _transition(Transition.TRANSITION_DEACTIVATE), _DEACTIVATED),
    Fault('deactivate and activate', _transition(
        Transition.TRANSITION_DEACTIVATE, Transition.TRANSITION_ACTIVATE), _DEACTIVATED),
    Fault('deactivate and clean up', _RELEASE, _DEACTIVATED),
    Fault('shut down', _transition(Transition.TRANSITION_ACTIVE_SHUTDOWN), _DEACTIVATED),
    _harmless('invalid transitions', _transition(
        Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE, 99)),
    Fault('cancel', _cancel, _CANCELLED),
    Fault('100 cancels', _cancels, _CANCELLED),
    _harmless('second run', _second_run),
    _harmless('parameters changed', _set_parameters),
    _harmless('parameter of an unknown type', _unknown_type),
    Fault('200 random requests', _random_requests(200), held=False,
          cause=rf'{_CANCELLED}|was deactivated|not active|is under way'),
    _harmless('600 requests at once', _flood_services),
    _harmless('second node of the same name', _second_instance, phases=_IDLE),
    Fault('owner killed, another node wants the arm', _owner_killed, kills='node',
          trait='resumes', phases=_IDLE),
    _moving('page of another origin at `robocal view`', _foreign_page, harmless=True),

    Fault('controller gone', _sim('controller_gone'), _NO_CONTROLLER, trait='moves', held=False),
    Fault('controller restarted', _then(_sim('controller_gone'), _sim('none')),
          rf'{_NO_CONTROLLER}|off the commanded path|no progress', trait='moves', held=False),
    _harmless('controller slow', _sim('controller_slow'), trait='moves'),
    Fault('controller never answers', _sim('controller_silent'), r'did not answer',
          trait='moves', held=False),
    Fault('controller aborts', _sim('controller_abort'), _ENDED, trait='moves'),
    Fault('controller inactive', _inactive, rf'{_ENDED}|rejected the motion', trait='moves'),
    _moving('controller state of a stranger', _mirror(
        JointTrajectoryControllerState, 'controller_state', _lost_feedback), harmless=True),
    _moving('foreign goal', _foreign_goal, _FOREIGN, held=False),
    _moving('foreign goal that is rejected', _rejected_goal, harmless=True),
    _moving('foreign trajectory by topic', _foreign_trajectory, _FOREIGN, held=False),
    _moving('foreign cancel of all goals', _foreign_cancel, rf'{_ENDED}|cancel'),
    _idle('run while a foreign goal holds the arm', _during_foreign_hold(
        lambda cell: cell.begin('run')), _FOREIGN, trait='moves'),
    _idle('rule while a foreign goal holds the arm', _during_foreign_hold(
        _send(String, lambda _: String(data=TASK), ending='task')), harmless=True, trait='rule'),

    Fault('joint states silent', _sim('joint_states_silent'),
          r'No joint states|joint states have been received'),
    _moving('joint states frozen', _frozen, r'stay the same|same in \d+ messages|no progress|'
            r'off the commanded path|No joint states|from the goal', held=False),
    Fault('joint missing', _sim('joint_missing:joint_2'), r"'joint_2' is missing"),
    _harmless('joint states out of order', _sim('stamps_disordered')),
    _harmless('joint states 0.1 s late', _sim('latency:0.1')),
    Fault('joint states 0.4 s late', _sim('latency:0.4'), r'No joint states received|have a gap',
          trait='moves'),
    Fault('joint states at 10 Hz', _sim('joint_states_slow'),
          r'No joint states received|are too slow|have a gap', trait='moves'),
    Fault('efforts not finite', _sim('effort_nan'), r'not a finite number', trait='effort'),
    Fault('efforts stuck', _sim('effort_stuck'), _STUCK, trait='effort'),
    Fault('efforts zero', _sim('effort_zero'), _STUCK, trait='effort'),
    _harmless('joint states twice', _states()),
    Fault('second arm on joint_states', _states(_displaced), r'nodes publish on .*joint_states',
          trait='moves'),
    _harmless('second publisher: not finite', _states(_filled(position=math.nan))),
    _harmless('second publisher: malformed', _states(_malformed)),
    Fault('second publisher: 1000 joints', _states(_many_joints),
          r'expected at most \d+ kB|jumps by|nodes publish on'),
    _harmless('second publisher: one name for all joints', _states(_twice_named)),
    *(Fault(f'second publisher: {field} {value:g}', _states(_filled(**{field: value})), _BEYOND)
      for field, value in (('position', 1e300), ('velocity', 1e50), ('effort', 1e300))),
    *(_harmless(f'one stamp of joint states {name}', _states(_shifted(seconds), 1))
      for name, seconds in (('0.2 s ahead', 0.2), ('2 s ahead', 2.0), ('1 h ahead', 3600.0),
                            ('0.5 s back', -0.5), ('zero', -1e9), ('in 2038', 3e9))),
    _harmless('burst of 1000 joint states', _burst),
    Fault('F/T sensor silent', _sim('ft_silent'), _NO_READINGS, trait='wrist'),
    Fault('F/T sensor not finite', _sim('ft_nan'), r'not finite', trait='wrist'),
    Fault('F/T sensor frozen', _sim('ft_stuck'), r'the same values', trait='wrist'),
    Fault('F/T sensor saturated', _sim('ft_saturated'), r'is saturated|implausible',
          trait='wrist'),
    _harmless('F/T sensor 50 ms late', _sim('ft_late'), trait='wrist'),
    Fault('F/T sensor names another frame', _sim('ft_misframed'), r"names frame '", trait='wrist'),
    _harmless('F/T sensor twice', _wrenches(deepcopy), trait='wrist'),
    _harmless('F/T stamps 0.1 s ahead', _wrenches(_shifted(0.1)), trait='wrist'),
    *(Fault(f'F/T reading of {newtons:g} N', _wrenches(_force(newtons)),
            r'implausible reading|not finite numbers', trait='wrist')
      for newtons in (1e300, math.nan, -math.inf)),
    Fault('IMU silent', _sim('imu_silent'), r'No readings (were )?received (on|from) IMU',
          trait='imu'),
    Fault('tracker silent', _sim('tracker_silent'),
          r'No reading.* received on .*[Tt]racker|tracker did not see', trait='tracker'),
    Fault('F/T sensor silent: no other source of the tool wrench', _no_other_source,
          _NO_READINGS, trait='frames', phases=_IDLE),
    _run('detaching fails', _anew(_refused_detach),
         r'The load was not removed: Service .* call estimate', trait='tracker', waits=300.0),
    _run('tool and load beyond a limit of a joint', _anew(
        _heavy_tool, _with_parameters(load_mass=40.0)),
        r'of its effort limit|exceeds? its effort limit', trait='tracker'),
    _run('tracker drifts', _anew(_moved_target(_drift)), r'The tracker drifted', trait='tracker',
         waits=300.0),
    _run('links bend under the load', _anew(_moved_target(_bend)),
         r'held-out postures the model removes|bend across', trait='tracker', waits=300.0),
    Fault('clock jumps back', _sim('clock_jump_back'), r'jumped back'),
    Fault('clock jumps forward', _sim('clock_jump_forward'), _STOPPED),
    Fault('a stranger sets the clock 1 h ahead', _send(Clock, lambda _: Clock(
        clock=Time(sec=3600)), ending='clock'), _STOPPED),

    _harmless('garbage on text topics', _send(
        String, lambda number: String(data=_GARBAGE[number]), len(_GARBAGE))),
    *(_moving(f'{name} on text topics, then cancel', _then(_text(name), _cancel), _CANCELLED)
      for name in _TEXTS),
    *(_moving(f'{name} on text topics, then SIGTERM', _then(
        _text(name), _signal('node', signal.SIGTERM)), _END_OF_NODE, kills='node')
      for name in ('list of 1.4 MB', 'list of 50 MB')),
    *(_idle(f'second robot_description: {name}', _anew(_describe(name)), harmless=True)
      for name in ('list of 50 MB', 'malformed YAML')),
    _idle('robot description nested 100,000 deep', _anew(_with_parameters(
        robot_description='<robot name="x">' + '<link name="x">' * 100_000)),
        r'[Rr]obot description'),
    _harmless('1000 marks of a stranger', _send(DiagnosticArray, _marks, 1000), phases=MOVING),
    _moving('100,000 claims of invented names', _send(String, lambda number: String(
        data=f'claim /node_{number}'), 100_000, 'owner'), harmless=True),
    _harmless('100,000 frames on /tf', _send(TFMessage, _frames, 1000), trait='frames'),

    _storing('disk full', _limit_files, r'could not be written'),
    _storing('small disk full', _small_disk, r'could not be written|No space', possible=_ROOT),
    _storing('results folder read-only', _chmod(0o555), r'could not be written'),
    _idle('results folder unreadable', _anew(_chmod(0)), r'[Pp]ermission'),
    _idle('results folder is a file', _anew(_moved_aside),
          r'[Nn]ot a directory|not a folder|cannot be'),
    *(fault for name, make in _STRANGE_FILES.items() for fault in (
        _idle(f'result file is a {name}', _anew(_planted(make, 'drive_gains.yaml')),
              r'drive_gains', possible=_ROOT or name != 'device'),
        _run(f'journal is a {name}', _planted(make, *(
            f'{kind}.unfinished' for kind in ('payload', 'friction', 'compliance'))),
            harmless=True, trait='resumes', possible=_ROOT or name != 'device'),
        _idle(f'parameter file is a {name}', _parameter_file(make), harmless=True,
              possible=_ROOT or name != 'device'))),

    _run('obstacle on the base against the first link', _anew(_with_parameters(
        robot_description=_with_box('base_link', '0.07 0.045 0.38', '0.02 0.02 0.05'))),
        r'obstacle', trait='moves'),
    _run('tool box against the link before the last joint', _anew(_with_parameters(
        robot_description=_with_box('link_5', '0.2 0 0.12', '0.02 0.02 0.02'),
        tool_box=[0.3, 0.2, 0.2])), r'obstacle', trait='moves'),
    _run('box that touches the arm', _anew(_with_parameters(
        keep_out_boxes=[0.0, 0.14, 0.7, 0.2, 0.2, 0.2])), r'keep_out_box', trait='moves'),
)
