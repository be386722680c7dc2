# SPDX-License-Identifier: Apache-2.0
"""The simulated controller answers and moves as the real one: the same goals to both."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
import rclpy
from action_msgs.msg import GoalStatus
from control_msgs.action import FollowJointTrajectory
from control_msgs.msg import JointTolerance
from rcl_interfaces.srv import SetParameters
from rclpy.action import ActionClient
from rclpy.duration import Duration
from rclpy.parameter import Parameter
from support.live_graph import JOINTS, Process, seconds
from support.real_control import Command, Postures, Shell, needs_real_control
from support.ros_rig import Spinner, await_service, stamp
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from robocal_ros.messages import qos

try:
    from control_msgs.msg import SpeedScalingFactor
except ImportError:  # Releases before Kilted have no such message.
    SpeedScalingFactor = None

pytestmark = needs_real_control()

NAN, INF = float('nan'), float('inf')
# Longest wait for a result: goals without one are cancelled then [s].
_NEVER = 4.0
# The defaults of config/controllers.yaml.
_CONSTRAINTS = {
    'constraints.goal_time': 2.0, 'constraints.stopped_velocity_tolerance': 0.05,
    **{f'constraints.{name}.{kind}': value for name in JOINTS
       for kind, value in (('trajectory', 0.2), ('goal', 0.02))}}


def point(
    time: float, wrist: float, *, velocities: Sequence[float] = (),
    accelerations: Sequence[float] = (), effort: Sequence[float] = (),
    positions: Sequence[float] | None = None,
) -> JointTrajectoryPoint:
    """Return a point at which only joint 6 is turned."""
    return JointTrajectoryPoint(
        positions=[0.0] * 5 + [wrist] if positions is None else [float(x) for x in positions],
        velocities=list(velocities), accelerations=list(accelerations), effort=list(effort),
        time_from_start=Duration(seconds=time).to_msg())


def trajectory(*points: JointTrajectoryPoint, names: Sequence[str] = JOINTS) -> JointTrajectory:
    return JointTrajectory(joint_names=list(names), points=list(points))


def tolerances(
    position: float, velocity: float = 0.0, names: Sequence[str] = JOINTS
) -> list[JointTolerance]:
    return [JointTolerance(name=name, position=position, velocity=velocity) for name in names]


TURN = point(0.8, 0.5)
AWAY = point(0.8, -0.4)
FREE = tolerances(-1.0, -1.0)
STILL = [0.0] * 6


@dataclass(frozen=True)
class Case:
    """One goal, what happens after its acceptance, and when.

    Attributes:
        name: What it shows.
        path: Of joint 6 and the others.
        stamp: Header's stamp relative to now [s]; None for zero.
        goal: Further fields of the goal.
        then: Called with the arm ``after`` seconds.
        before: Called with the arm before the goal is sent.

    """

    name: str
    path: JointTrajectory
    stamp: float | None = None
    goal: dict[str, Any] = field(default_factory=dict)
    then: Callable[[Arm], None] | None = None
    after: float = 0.3
    before: Callable[[Arm], None] | None = None


class Arm:
    """One of the two controllers, and the goal that is sent to it."""

    def __init__(self, node: Any, namespace: str, activate: Callable[[Arm, bool], None]) -> None:
        self.node, self.namespace, self._activate = node, namespace, activate
        controller = f'/{namespace}/joint_trajectory_controller'
        self.action = ActionClient(
            node, FollowJointTrajectory, f'{controller}/follow_joint_trajectory')
        self.topic = node.create_publisher(
            JointTrajectory, f'{controller}/joint_trajectory', qos.RELIABLE)
        self.scaling = SpeedScalingFactor and node.create_publisher(
            SpeedScalingFactor, f'{controller}/speed_scaling_input', qos.LATCHED)
        self.states = Postures(node, f'/{namespace}')
        self.handle: Any = None
        self.second: Any = None
        self.pending: list[Any] = []

    def message(self, case: Case) -> Any:
        goal = FollowJointTrajectory.Goal(trajectory=case.path, **case.goal)
        if case.stamp is not None:
            # The simulated arm has a clock of its own.
            goal.trajectory.header.stamp = stamp(seconds(self.states.stamp) + case.stamp)
        return goal

    def send(self, goal: Any) -> Any:
        sending = self.action.send_goal_async(goal)
        self.pending.append(sending)
        return sending

    def cancel(self) -> None:
        self.pending.append(self.handle.cancel_goal_async())

    def activate(self, on: bool) -> None:
        self._activate(self, on)

    def turn_by_topic(self, path: JointTrajectory) -> None:
        self.topic.publish(path)

    def scale(self, factor: float) -> None:
        if SpeedScalingFactor is not None:
            self.scaling.publish(SpeedScalingFactor(factor=factor))

    @property
    def posture(self) -> np.ndarray:
        return self.states.newest


def also(goal: Any) -> Callable[[Arm], None]:
    """Return what sends another goal."""
    return lambda arm: setattr(arm, 'second', arm.send(goal))


def goal_of(*points: JointTrajectoryPoint) -> Any:
    return FollowJointTrajectory.Goal(trajectory=trajectory(*points))


def cancel_and_send(arm: Arm) -> None:
    """Send another goal as soon as the cancel request is answered."""
    arm.cancel()
    arm.pending[-1].add_done_callback(lambda _: also(goal_of(AWAY))(arm))


MOVES = [1.0] * 6
CASES = [
    Case('one point', trajectory(TURN)),
    Case('two points', trajectory(point(0.4, 0.4), TURN)),
    Case('velocities', trajectory(
        point(0.4, 0.3, velocities=[0.0] * 5 + [0.8]), point(0.8, 0.5, velocities=STILL))),
    Case('velocities and accelerations', trajectory(
        point(0.4, 0.3, velocities=[0.0] * 5 + [0.8], accelerations=STILL),
        point(0.8, 0.5, velocities=STILL, accelerations=STILL))),
    Case('a first point at time zero', trajectory(point(0.0, 0.0), TURN)),
    Case('a step at the start', trajectory(point(0.0, 0.01), TURN)),
    Case('another order of joints', trajectory(
        point(0.8, 0.0, positions=[0.5] + [0.0] * 5), names=JOINTS[::-1])),
    Case('a point at rest at once', trajectory(point(0.0, 0.0))),
    Case('a motion of a millisecond', trajectory(point(0.001, 0.001))),
    Case('no points', trajectory()),
    Case('no joints', trajectory(point(0.8, 0.0, positions=[]), names=())),
    Case('a joint left out', trajectory(
        point(0.8, 0.0, positions=[0.0] * 4 + [0.5]), names=JOINTS[1:])),
    Case('an unknown joint', trajectory(TURN, names=(*JOINTS[:5], 'joint_7'))),
    Case('a joint too many', trajectory(
        point(0.8, 0.0, positions=[0.0] * 6 + [0.5]), names=(*JOINTS, 'joint_6'))),
    Case('a joint named twice', trajectory(TURN, names=(*JOINTS[1:], 'joint_6'))),
    Case('equal times', trajectory(TURN, point(0.8, 0.6))),
    Case('decreasing times', trajectory(TURN, point(0.4, 0.6))),
    Case('a negative time', trajectory(point(-0.4, 0.0), TURN)),
    Case('too few positions', trajectory(point(0.8, 0.0, positions=[0.5] * 5))),
    Case('velocities alone', trajectory(point(0.8, 0.0, positions=(), velocities=STILL))),
    Case('too many velocities', trajectory(point(0.8, 0.5, velocities=[0.0] * 7))),
    Case('too few accelerations', trajectory(point(0.8, 0.5, accelerations=[0.0] * 5))),
    Case('a velocity at the end', trajectory(point(0.8, 0.5, velocities=[0.0] * 5 + [0.1]))),
    Case('a tiny velocity at the end', trajectory(
        point(0.8, 0.5, velocities=[0.0] * 5 + [1e-8]))),
    Case('effort', trajectory(point(0.8, 0.5, effort=MOVES))),
    Case('no number', trajectory(point(0.8, NAN))),
    Case('an infinite position', trajectory(point(0.8, INF))),
    Case('a stamp ahead', trajectory(TURN), stamp=0.5),
    Case('a stamp within the motion', trajectory(point(0.8, 0.1)), stamp=-0.5),
    Case('a stamp too late', trajectory(TURN), stamp=-2.0),
    Case('a distant start within no tolerance', trajectory(point(0.0, 0.3), TURN)),
    Case('the same, tolerances switched off', trajectory(point(0.0, 0.05), TURN), goal={
        'path_tolerance': FREE, 'goal_tolerance': FREE}),
    Case('beyond the limits', trajectory(point(0.8, 0.0, positions=[0, 0, 2.8, 0, 0, 0])),
         goal={'path_tolerance': FREE, 'goal_time_tolerance': Duration(seconds=0.3).to_msg()}),
    Case('a tolerance of an unknown joint', trajectory(point(0.0, 0.05), TURN), goal={
        'path_tolerance': tolerances(1e-3, names=('joint_7',))}),
    Case('an invalid tolerance', trajectory(point(0.0, 0.05), TURN), goal={
        'path_tolerance': tolerances(-2.0)}),
    Case('a tight path tolerance', trajectory(point(0.0, 0.05), TURN), goal={
        'path_tolerance': tolerances(1e-3)}),
    Case('faster than the limit', trajectory(point(0.1, 1.0)), goal={
        'path_tolerance': FREE, 'goal_tolerance': FREE}),
    Case('cancelled', trajectory(TURN), then=Arm.cancel),
    Case('cancelled at once', trajectory(TURN), then=Arm.cancel, after=0.0),
    Case('preempted', trajectory(TURN), then=also(goal_of(AWAY))),
    Case('cancelled for another one', trajectory(TURN), then=cancel_and_send),
    Case('another one is rejected', trajectory(TURN), then=also(goal_of())),
    Case('a trajectory on the topic', trajectory(TURN),
         then=lambda arm: arm.turn_by_topic(trajectory(AWAY))),
    Case('an invalid trajectory on the topic', trajectory(TURN),
         then=lambda arm: arm.turn_by_topic(trajectory())),
    Case('slowed down', trajectory(TURN), before=partial(Arm.scale, factor=0.5)),
    Case('deactivated', trajectory(TURN), then=partial(Arm.activate, on=False)),
    Case('while inactive', trajectory(TURN), before=partial(Arm.activate, on=False)),
]


@dataclass
class Seen:
    """What a controller did with a goal; times since its answer by the joint states [s].

    A busy machine slows the simulated arm and its clock down.
    """

    accepted: bool
    status: int = GoalStatus.STATUS_UNKNOWN
    code: int = 0
    text: str = ''
    duration: float = 0.0
    moved: float = 0.0
    end: tuple[float, ...] = ()
    second: bool | None = None


class Pair:
    """Both controllers, with one node that sends to them."""

    def __init__(self, launched: Command) -> None:
        self.node = rclpy.create_node('client')
        self.spinner = Spinner(self.node)
        self._switches: dict[str, Any] = {}
        self.arms = [Arm(self.node, 'real', self._switch_real),
                     Arm(self.node, 'simulated', self._switch_simulated)]
        self.spinner.until(lambda: launched.has_controllers, what='the controllers')
        for arm in self.arms:
            self.spinner.until(arm.action.server_is_ready, what=arm.namespace)
            self.spinner.until(lambda arm=arm: len(arm.states) > 10)

    def _client(self, kind: Any, name: str) -> Any:
        if name not in self._switches:
            self._switches[name] = self.node.create_client(kind, name)
            await_service(self.spinner.until, self.node, self._switches[name])
        return self._switches[name]

    def _switch_real(self, arm: Arm, on: bool) -> None:
        from controller_manager_msgs.srv import SwitchController

        names = ['joint_trajectory_controller']
        client = self._client(SwitchController, '/real/controller_manager/switch_controller')
        arm.pending.append(client.call_async(SwitchController.Request(
            activate_controllers=names if on else [],
            deactivate_controllers=[] if on else names,
            strictness=SwitchController.Request.STRICT)))

    def _switch_simulated(self, arm: Arm, on: bool) -> None:
        client = self._client(SetParameters, '/simulated/sim_arm/set_parameters')
        arm.pending.append(client.call_async(SetParameters.Request(
            parameters=[Parameter('controller_active', value=on).to_parameter_msg()])))

    def settle(self, arm: Arm) -> None:
        for future in arm.pending:
            self.spinner.until(future.done, what='an answer')
        arm.pending.clear()

    def go_home(self, arm: Arm) -> None:
        """Make the controller as it was, and the arm go to zero."""
        for _ in range(5):
            handle = self.spinner.wait(arm.action.send_goal_async(goal_of(
                point(1.0 + float(np.abs(arm.posture).max()), 0.0))))
            if handle.accepted:
                self.spinner.wait(handle.get_result_async(), 30.0)
                self.spinner.until(arm.states.rests)
                if np.abs(arm.posture).max() < 1e-3:
                    return
            else:
                arm.activate(True)
                self.settle(arm)
        raise AssertionError(f'{arm.namespace} does not go home')

    def try_case(self, case: Case) -> list[Seen]:
        """Send a goal to both; return what they did."""
        for arm in self.arms:
            if case.before is not None:
                case.before(arm)
                self.settle(arm)
            arm.states.clear()
            self.spinner.until(lambda arm=arm: len(arm.states))
            arm.handle = arm.second = None
        # A topic's message is on its way.
        began = time.monotonic()
        self.spinner.until(lambda: time.monotonic() > began + 0.1)
        runs = [_Run(self.spinner, arm, case) for arm in self.arms]
        self.spinner.until(lambda: sum(not run.step() for run in runs) == 0, 60.0, case.name)
        seen = [run.seen for run in runs]
        for arm in self.arms:
            arm.scale(1.0)
            self.settle(arm)
            if case.then is not None or case.before is not None:
                arm.activate(True)
                self.settle(arm)
            self.go_home(arm)
        return seen


class _Run:
    """One goal at one controller, step by step beside the other one."""

    def __init__(self, spinner: Spinner, arm: Arm, case: Case) -> None:
        self._arm, self._case = arm, case
        self._sending = arm.action.send_goal_async(arm.message(case))
        self._answered = self._ended = 0.0
        self._result: Any = None
        self._then = case.then
        self.seen = Seen(False)

    def step(self) -> bool:
        """Do what is due; return whether all has ended and the arm rests."""
        arm = self._arm
        now = seconds(arm.states.stamp)
        if not self._answered:
            if not self._sending.done():
                return False
            self._answered = now
            arm.handle = self._sending.result()
            self.seen.accepted = arm.handle.accepted
            if self.seen.accepted:
                self._result = arm.handle.get_result_async()
        since = now - self._answered
        if self._then is not None and since >= self._case.after:
            self._then(arm)
            self._then = None
        if self._result is not None and not self._ended:
            if self._result.done():
                self._ended = now
                outcome = self._result.result()
                self.seen.status, self.seen.duration = outcome.status, since
                self.seen.code = outcome.result.error_code
                self.seen.text = outcome.result.error_string
            elif since < _NEVER:
                return False
        if self._then is not None or since < 0.4 or not all(item.done() for item in arm.pending):
            return False
        if not arm.states.rests():
            return False
        if arm.second is not None:
            self.seen.second = arm.second.result().accepted
        self.seen.moved = max(0.0, arm.states.last_motion(2e-3, by_stamp=True) - self._answered)
        self.seen.end = tuple(np.round(arm.posture, 3).tolist())
        if self._result is not None and not self._ended:
            arm.cancel()
        return True


@pytest.fixture(scope='module')
def pair(tmp_path_factory: pytest.TempPathFactory, ros: None) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp('imitation')
    shell = Shell(folder)
    with shell.launch('bringup.launch.py', hardware='mock', nodes='none',
                      namespace='real') as launched, \
            Process('robocal_sim.node', folder / 'sim.log', namespace='/simulated',
                    truth_file='none', **_CONSTRAINTS):
        made = Pair(launched)
        with made.spinner:
            yield made


def meaning(text: str) -> str:
    """Return a text without its numbers."""
    return re.sub(r'-?\d+(\.\d+)?', '#', text)


@pytest.mark.parametrize('case', CASES, ids=lambda case: case.name.replace(' ', '_'))
def test_both_answer_and_move_alike(pair: Pair, case: Case) -> None:
    real, simulated = pair.try_case(case)
    assert (simulated.accepted, simulated.status, simulated.code, simulated.second) == (
        real.accepted, real.status, real.code, real.second), (real, simulated)
    assert meaning(simulated.text) == meaning(real.text)
    # Results leave on a tick of 20 Hz.
    assert simulated.duration == pytest.approx(real.duration, abs=0.15), (real, simulated)
    assert simulated.moved == pytest.approx(real.moved, abs=0.15), (real, simulated)
    # What ends a motion may come a few cycles later.
    np.testing.assert_allclose(simulated.end, real.end, atol=0.1 if case.then else 0.01)
