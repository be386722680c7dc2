# SPDX-License-Identifier: Apache-2.0
"""The arm client against a controller that lets everything through, in a process of its own."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import rclpy
from action_msgs.msg import GoalStatus
from builtin_interfaces.msg import Duration
from control_msgs.action import FollowJointTrajectory
from control_msgs.msg import JointTrajectoryControllerState
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.task import Future
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, String
from support.live_graph import CONTROLLER, JOINTS, Client, seconds, sim_arm, trajectory
from support.ros_rig import arm_urdf, overrides
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from robocal_ros.arm import client, owner
from robocal_ros.arm.gate import Arm
from robocal_ros.arm.protocols import MotionOutcome, MotionStatus
from robocal_ros.arm.stop_conditions import DriveCondition
from robocal_ros.arm.waiting import Waiter
from robocal_ros.errors import CancelledError, ConfigurationError, MotionError
from robocal_ros.messages import conversions, qos
from robocal_ros.messages.stream import SILENCE, JointStateStream
from robocal_ros.parameters import ArmParameters
from robocal_ros.robot.model import Robot
from robocal_ros.robot.trajectories import MotionLimits, Trajectory, quintic_path

pytestmark = pytest.mark.usefixtures('ros')

TURN = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0])


class SilentReport:
    """Takes the progress of motions, and tells nobody."""

    def update(self, phase: str, message: str, **values: Any) -> None:
        """Tell nobody."""

    def note(self, **values: str) -> None:
        """Tell nobody."""


class Rig(Client):
    """An arm client, the arm, and somebody who interferes."""

    def __init__(
        self, *, tool_frame: str = 'tool0', controller: str = CONTROLLER, namespace: str = '',
        **values: Any,
    ) -> None:
        self.subject = rclpy.create_node(
            'subject', namespace=namespace, parameter_overrides=overrides(use_sim_time=True))
        super().__init__(self.subject, namespace=namespace)
        self.robot = Robot(arm_urdf(), tool_frame=tool_frame)
        group = ReentrantCallbackGroup()
        self.waiter = Waiter(self.subject, group)
        self.joints = JointStateStream(
            self.subject, group, self.robot, now=self.waiter.now,
            factor=np.ones(self.robot.n))
        self.joints.start()
        self.usual = self.values = ArmParameters(
            controller=controller, max_acceleration=4.0, connect_timeout=30.0, **values)
        self.arm = Arm(self.waiter, self.robot, self.joints, lambda: self.values, SilentReport())
        self.sent: list[Any] = []
        actions: Any = self.arm.client.goals
        send = actions.send

        def spy(goal: Any, *arguments: Any, **more: Any) -> Any:
            self.sent.append(goal)
            return send(goal, *arguments, **more)

        actions.send = spy
        self.arm.start()
        self.topic = self.node.create_publisher(
            JointTrajectory, f'{CONTROLLER}/joint_trajectory', 10)

    def __enter__(self) -> Rig:
        self.connect()
        # What is imported when it is first needed must not hold up the first motion.
        self.path(np.zeros(self.robot.n)).sample(0.0)
        self.until(lambda: self.topic.get_subscription_count() > 0)
        return self

    def __exit__(self, *_: object) -> None:
        self.arm.destroy()
        self.joints.destroy()
        self.waiter.destroy()
        self.close()

    def connect(self) -> None:
        self.spinner.run(self.arm.connect)

    def fault(self, text: str = 'none') -> None:
        self.set('sim_arm', fault=text)

    def use(self, **values: Any) -> None:
        self.values = replace(self.usual, **values)

    @property
    def posture(self) -> np.ndarray:
        return self.joints.posture().copy()

    @property
    def stamp(self) -> float:
        return self.joints.latest[0]

    def path(self, goal: np.ndarray, speed: float = 1.0) -> Trajectory:
        n = self.robot.n
        return quintic_path(np.array([self.posture, goal]), np.full(n, speed), np.full(n, 4.0))

    def begin(self, trajectory: Trajectory, *, repeated: bool = False, **options: Any) -> Any:
        """Start a motion, or one that may be repeated, and wait until the arm is on its way."""
        start = self.posture
        task = self.spinner.begin(partial(
            self.arm.move, trajectory, phase='moving', message='', share=(0.0, 1.0),
        ) if repeated else partial(self.arm.try_move, trajectory, **options))
        self.until(lambda: task.done() or np.abs(self.posture - start).max() > 0.1)
        return task

    def move(self, trajectory: Trajectory, limits: MotionLimits | None = None) -> MotionOutcome:
        return self.spinner.run(lambda: self.arm.try_move(trajectory, limits=limits))

    def do(self, trajectory: Trajectory) -> None:
        """Move the arm, which must arrive."""
        outcome = self.move(trajectory)
        assert outcome.status is MotionStatus.DONE, outcome.message

    def end(self, task: Any) -> MotionOutcome:
        # A slow motion that is repeated, perhaps more than once on a busy machine.
        return self.wait(task, 240.0)

    def held(self, task: Any, status: MotionStatus, *words: str) -> None:
        """Wait for the end of a motion, by this status, in these words, and with the arm held."""
        outcome = self.end(task)
        assert outcome.status is status, outcome.message
        for word in words:
            assert word in outcome.message
        assert outcome.held

    def hear_of_others(self, expected: bool) -> None:
        """Wait until the goals of others are known, or known to be over."""
        self.until(lambda: bool(self.arm.client.goals.foreign) is expected)

    def settle(self) -> None:
        """Wait until the arm rests: it sags at first, and it stands while nobody listens."""
        self.until(lambda: self.joints.age() < 0.2 and self.joints.travel(0.2) < 1e-3)

    def rests(self) -> bool:
        """Whether the arm stays where it is for a while."""
        end = self.stamp + 0.35
        self.until(lambda: self.stamp > end and np.isfinite(self.joints.travel(0.25)))
        return self.joints.travel(0.25) < 1e-3


@pytest.fixture(scope='module')
def simulation(ros: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with sim_arm(tmp_path_factory.mktemp('arm') / 'sim_arm.log'):
        yield


@pytest.fixture(scope='module')
def shared(simulation: None) -> Iterator[Rig]:
    """A client with all conditions."""
    # On a busy machine, the arm may be silent for a while.
    with Rig(max_effort_share=[0.0, 0.0, 1.0, 0.0, 0.0, 0.0], guard_topic='ft_wrist/wrench',
             max_force=1e4, max_torque=1e4, stop_statuses=['driver: protective'],
             state_timeout=5.0) as made:
        yield made


@pytest.fixture
def rig(shared: Rig) -> Iterator[Rig]:
    """The arm at rest at zero, without faults."""
    shared.use()
    shared.waiter.stop_reason = ''
    shared.until(lambda: not shared.arm.client.abort.problem())
    shared.settle()
    shared.do(shared.path(np.zeros(6)))
    shared.sent.clear()
    yield shared
    shared.set('sim_arm', fault='none', controller_active=True, speed_scaling=1.0)
    shared.until(lambda: not shared.arm.client.state_problem())
    state = shared.arm.client.controller
    shared.until(lambda: state.look() or not state.paused)


def refused(rig: Rig, trajectory: Trajectory, *words: str) -> None:
    before = rig.posture
    outcome = rig.move(trajectory)
    assert outcome.status is MotionStatus.REFUSED
    for word in words:
        assert word in outcome.message
    assert rig.sent == []
    assert rig.rests()
    assert np.abs(rig.posture - before).max() < 1e-3
    with pytest.raises(MotionError):
        outcome.raise_unless_done()


def test_motion_ends_at_its_goal_at_rest(rig: Rig) -> None:
    goal = np.array([0.2, -0.2, 0.3, 0.4, 0.3, -0.5])
    shares: list[float] = []
    outcome = rig.spinner.run(lambda: rig.arm.try_move(rig.path(goal), progress=shares.append))
    assert outcome == MotionOutcome(MotionStatus.DONE, 'The arm is at rest at the goal.', True)
    assert np.abs(rig.posture - goal).max() < 0.01
    assert rig.rests()
    assert shares == sorted(shares)
    assert shares[-1] > 0.95
    sent = rig.sent[0]
    assert sent.trajectory.header.stamp.sec == sent.trajectory.header.stamp.nanosec == 0
    assert tuple(t.name for t in sent.path_tolerance) == JOINTS
    assert tuple(t.name for t in sent.goal_tolerance) == JOINTS
    assert sent.goal_time_tolerance.sec == 2


class TestRefused:
    """What the real controller would accept is not even sent."""

    def test_far_start(self, rig: Rig) -> None:
        away = 0.3 * TURN
        trajectory = quintic_path(np.array([away, 2 * away]), np.ones(6), np.full(6, 4.0))
        refused(rig, trajectory, "'joint_6' is 0.3", "away from the motion's start",
                'Nothing was sent')

    def test_outside_the_limits(self, rig: Rig) -> None:
        goal = np.zeros(6)
        goal[4] = rig.robot.upper[4] + 0.2
        refused(rig, rig.path(goal), "'joint_5'", 'othing was sent')

    def test_too_fast(self, rig: Rig) -> None:
        n = rig.robot.n
        fast = 5.0 * float(rig.robot.velocity_limit[5])
        trajectory = quintic_path(
            np.array([rig.posture, TURN]), np.full(n, fast), np.full(n, 1000.0))
        refused(rig, trajectory, "'joint_6'", 'othing was sent')

    def test_not_finite(self, rig: Rig) -> None:
        knots = np.zeros((2, 6))
        knots[1, 2] = np.nan
        with pytest.raises(MotionError, match='not finite; nothing was sent'):
            Trajectory(np.array([0.0, 1.0]), knots, np.zeros((2, 6)))
        assert rig.sent == []

    def test_self_collision(self, rig: Rig) -> None:
        checker = rig.arm.checker
        lower, upper = rig.robot.sampling_limits()
        drawn = np.random.default_rng(1).uniform(0.95 * lower, 0.95 * upper, (5000, 6))
        folded = next(posture for posture in drawn if checker.first_contact(posture[None]))
        refused(rig, rig.path(folded), 'On this motion', 'Nothing was sent')

    def test_passing_nearer_than_the_clearance(self, rig: Rig) -> None:
        start, elbow = np.zeros(6), np.eye(6)[2]
        rig.arm.checker.keep_clear(start, 0.0, 0.0)
        bent = next(bend * elbow for bend in np.arange(0.1, rig.robot.upper[2], 0.02)
                    if rig.arm.checker.touching((bend + 0.1) * elbow))
        assert rig.arm.check_path(rig.path(bent), None)
        # Again with what the allowed deviation sweeps.
        rig.spinner.run(rig.arm.keep_clear)
        refused(rig, rig.path(bent), 'On this motion', ' mm from ', 'nearer than the clearance',
                ' % of the path, at [', 'Nothing was sent')

    def test_stale_joint_states(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr('os.getloadavg', lambda: (1000.0, 0.0, 0.0))
        rig.use(state_timeout=0.5)
        trajectory = rig.path(TURN)
        rig.fault('joint_states_silent')
        rig.until(lambda: rig.joints.age() > 0.6)
        outcome = rig.move(trajectory)
        assert outcome.status is MotionStatus.REFUSED
        assert re.match(
            r'No joint states received for \d+\.\d+ s \(limit 0.5 s\)', outcome.message)
        assert 'overloaded' in outcome.message
        # By the state of the controller.
        assert outcome.held
        assert rig.sent == []

    def test_an_arm_that_is_already_moving(self, rig: Rig) -> None:
        rig.topic.publish(conversions.to_joint_trajectory(rig.path(TURN, 0.3), JOINTS))
        rig.until(lambda: rig.posture[5] > 0.05)
        outcome = rig.move(rig.path(np.zeros(6)))
        assert outcome.status is MotionStatus.REFUSED
        assert 'already moving' in outcome.message or "motion's start" in outcome.message
        assert rig.sent == []
        rig.until(lambda: rig.rests() and rig.posture[5] > 0.99)

    def test_a_stop_requested_before_the_motion(self, rig: Rig) -> None:
        rig.waiter.stop('Not now.')
        outcome = rig.move(rig.path(TURN))
        assert (outcome.status, outcome.message) == (MotionStatus.CANCELLED, 'Not now.')
        assert rig.sent == []
        with pytest.raises(CancelledError, match='Not now. The arm is held'):
            outcome.raise_unless_done()

    def test_a_stop_requested_between_motions(self, rig: Rig) -> None:
        rig.waiter.stop('Not now.')
        with pytest.raises(CancelledError, match=r'^Not now\. The arm is held\.$'):
            rig.arm.check_stopped()
        rig.arm.owner.release()
        try:
            with pytest.raises(CancelledError, match=r'^Not now\.$'):
                rig.arm.check_stopped()
        finally:
            rig.arm.owner.claim()


def test_an_unknown_controller_is_refused_naming_others(simulation: None) -> None:
    rig = Rig(controller='arm_controller')
    try:
        rig.use(connect_timeout=1.0)
        rig.until(lambda: np.isfinite(rig.joints.travel(0.1)))
        with pytest.raises(ConfigurationError) as refusal:
            rig.spinner.run(rig.arm.connect)
        assert 'arm_controller/follow_joint_trajectory' in str(refusal.value)
        assert f'available controllers: /{CONTROLLER}. ' in str(refusal.value)
        assert rig.sent == []
    finally:
        rig.__exit__()


def test_controller_of_other_joints_is_refused(simulation: None) -> None:
    with Rig(tool_frame='link_4') as rig:
        assert rig.robot.joint_names == JOINTS[:4]
        state = rig.arm.client.controller
        rig.until(lambda: state.look() or state.joints)
        outcome = rig.move(rig.path(np.zeros(4) + 0.2))
        assert outcome.status is MotionStatus.REFUSED
        assert "the arm's joints are joint_1, joint_2, joint_3, joint_4" in outcome.message
        assert rig.sent == []


def test_a_motion_ends_when_the_arm_is_at_rest_not_when_success_is_reported(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without tolerances a controller reports success while the arm still lags behind."""
    def bare(trajectory: Trajectory, names: Any, *_: float) -> FollowJointTrajectory.Goal:
        return FollowJointTrajectory.Goal(
            trajectory=conversions.to_joint_trajectory(trajectory, names))

    monkeypatch.setattr(conversions, 'to_goal', bare)
    usual = rig.arm.limits
    goal = 2.0 * TURN
    hasty = quintic_path(np.array([rig.posture, goal]), 3.0 * usual.velocity, np.full(6, 500.0))
    begin = rig.stamp
    outcome = rig.move(hasty, replace(
        usual, velocity=10.0 * usual.velocity, acceleration=np.full(6, 1000.0)))
    assert outcome.status is MotionStatus.DONE, outcome.message
    assert abs(rig.posture[5] - 2.0) < 0.01
    assert rig.stamp - begin > 1.5 * hasty.duration
    assert rig.rests()


def test_foreign_trajectory_on_the_topic(rig: Rig) -> None:
    """The controller reports success for the goal that was replaced."""
    task = rig.begin(rig.path(2.0 * TURN, 0.5))
    aside = rig.posture
    aside[0] += 0.8
    # Slow, so that there is time to notice that the arm leaves its path, also on a busy machine,
    # and where simulated time is ten times as fast.
    rig.topic.publish(conversions.to_joint_trajectory(rig.path(aside, 0.12), JOINTS))
    rig.held(task, MotionStatus.FOREIGN_MOTION, 'off the commanded path (limit 0.15 rad)')
    assert rig.rests()
    # Held on the way, not let run to where the other wanted it.
    assert rig.posture[0] < 0.6


class TestAnotherClient:
    """Goals that this node has not sent."""

    @staticmethod
    def holding(rig: Rig, duration: float = 600.0) -> JointTrajectory:
        """Return a motion that stays where the arm is."""
        return trajectory((0.0, rig.posture), (duration, rig.posture), velocities=[0.0] * 6)

    def test_a_goal_that_preempts_is_named(self, rig: Rig) -> None:
        task = rig.begin(rig.path(2.0 * TURN, 0.5))
        goal = rig.posture
        goal[5] += 0.05
        rig.send(conversions.to_joint_trajectory(rig.path(goal), JOINTS))
        outcome = rig.end(task)
        assert outcome.status is MotionStatus.TAKEN_OVER
        assert 'Another client has sent controller' in outcome.message
        with pytest.raises(MotionError, match='Another client controls the arm: keep clear'):
            outcome.raise_unless_done()
        rig.settle()
        assert len(rig.sent) == 1, 'no command against that of the other client'

    def test_a_goal_that_holds_is_not_preempted(self, rig: Rig) -> None:
        handle = rig.send(self.holding(rig))
        result = handle.get_result_async()
        rig.hear_of_others(True)
        outcome = rig.move(rig.path(TURN))
        assert outcome.status is MotionStatus.TAKEN_OVER
        assert (f"Controller '{CONTROLLER}/follow_joint_trajectory' executes a goal of another "
                'client; nothing was sent.') in outcome.message
        assert f'/{CONTROLLER}/follow_joint_trajectory/_action/cancel_goal' in outcome.message
        assert rig.sent == []
        with pytest.raises(MotionError, match='executes a goal of another client'):
            rig.connect()
        assert not result.done()
        rig.wait(handle.cancel_goal_async())
        rig.hear_of_others(False)
        rig.do(rig.path(0.3 * TURN))

    def test_a_node_that_has_the_arm_is_named_rather_than_its_goal(self, rig: Rig) -> None:
        handle = rig.send(self.holding(rig))
        rig.hear_of_others(True)
        claims = rig.node.create_publisher(String, owner.TOPIC, qos.MARKS)
        rig.until(lambda: claims.get_subscription_count() > 0)
        claims.publish(String(data='claim /client'))
        rig.until(lambda: rig.arm.owner.other == '/client')
        with pytest.raises(MotionError, match='Node /client moves the arm; nothing was sent'):
            rig.connect()
        claims.publish(String(data='release /client'))
        rig.node.destroy_publisher(claims)
        rig.wait(handle.cancel_goal_async())
        rig.hear_of_others(False)

    def test_a_goal_that_began_before_the_node_is_known(self, rig: Rig) -> None:
        handle = rig.send(self.holding(rig))
        rig.arm.client.goals.stop()
        rig.arm.client.goals.start()
        rig.hear_of_others(True)
        rig.wait(handle.cancel_goal_async())
        rig.hear_of_others(False)

    def test_goals_of_a_controller_that_was_unloaded_are_over(self, rig: Rig) -> None:
        """Its last status names them for ever."""
        rig.send(self.holding(rig))
        rig.hear_of_others(True)
        rig.fault('controller_gone')
        rig.hear_of_others(False)
        rig.fault()
        rig.until(rig.action.server_is_ready)
        rig.connect()
        rig.do(rig.path(0.3 * TURN))

    def test_a_motion_by_topic_is_seen_before_the_arm_moves(self, rig: Rig) -> None:
        """Slower than what counts as moving."""
        state = rig.arm.client.controller
        # The last motion must not be taken for this one.
        rig.until(lambda: state.travel(0.15, 0.0, commanded=True) < client.STILL_TRAVEL)
        rig.topic.publish(conversions.to_joint_trajectory(rig.path(0.5 * TURN, 0.012), JOINTS))
        rig.until(lambda: client.STILL_TRAVEL < state.travel(0.15, 0.0, commanded=True) < np.inf)
        outcome = rig.move(rig.path(rig.posture + TURN))
        assert outcome.status is MotionStatus.REFUSED
        assert 'commands changes. Nothing was sent' in outcome.message
        assert rig.sent == []
        rig.topic.publish(self.holding(rig, 0.1))
        rig.settle()


def test_controller_deactivated(rig: Rig) -> None:
    task = rig.begin(rig.path(2.0 * TURN, 0.5))
    rig.set('sim_arm', controller_active=False)
    outcome = rig.end(task)
    assert outcome.status is MotionStatus.ABORTED
    assert outcome.message.startswith(
        'The controller ended the motion: the goal is not valid any more ("Current goal cancelled '
        'during deactivate transition.")')
    assert outcome.held
    assert rig.rests()
    outcome = rig.move(rig.path(np.zeros(6)))
    assert outcome.status is MotionStatus.REJECTED
    assert 'check that it is active' in outcome.message


def test_controller_abort(rig: Rig) -> None:
    task = rig.begin(rig.path(2.0 * TURN, 0.5))
    rig.fault('controller_abort')
    rig.held(task, MotionStatus.ABORTED, 'The controller ended the motion',
             'went furthest: it is 0.0')
    # What the controller commands has stepped to where the arm rests; nobody else moves it.
    assert not rig.arm.client._commands_change()
    rig.fault()
    assert rig.move(rig.path(rig.posture)).status is MotionStatus.DONE


@pytest.mark.parametrize(('fault', 'speed', 'status', 'words'), [
    # Compared with what the controller sends: the arm's process, too, may be late.
    ('joint_states_silent', 0.2, MotionStatus.STATES_LOST,
     ('goes on: joint_state_broadcaster or the driver has stopped', 'The motion was cancelled')),
    ('effort_nan:joint_3', 0.2, MotionStatus.OVERLOADED,
     ("The effort of joint 'joint_3' is nan N·m",)),
    ('ft_nan', 0.2, MotionStatus.OVERLOADED, ()),
    # The motion lasts much longer than the silence that ends it.
    ('ft_silent', 0.05, MotionStatus.DATA_LOST, ('No readings were received on guard_topic',)),
])
def test_a_fault_in_mid_motion_ends_it(
    rig: Rig, fault: str, speed: float, status: MotionStatus, words: tuple[str, ...]
) -> None:
    task = rig.begin(rig.path(2.0 * TURN, speed))
    rig.fault(fault)
    rig.held(task, status, *words)
    rig.fault()
    rig.until(lambda: rig.joints.age() < 0.1)
    assert rig.rests()
    assert rig.posture[5] < 1.9


def test_a_problem_reported_by_the_watch_ends_the_motion(rig: Rig) -> None:
    problem = ''
    task = rig.begin(rig.path(2.0 * TURN, 0.5), watch=lambda: problem)
    problem = 'The sensor is gone.'
    outcome = rig.end(task)
    assert outcome.status is MotionStatus.DATA_LOST
    assert outcome.message == 'The sensor is gone. The motion was cancelled.'
    assert outcome.held
    assert rig.rests()


def test_an_exception_while_the_arm_moves_stops_it(rig: Rig) -> None:
    def defective(share: float) -> None:
        if share > 0.3:
            raise ZeroDivisionError('defect')

    with pytest.raises(ZeroDivisionError):
        rig.spinner.run(lambda: rig.arm.try_move(rig.path(2.0 * TURN, 0.5), progress=defective))
    assert rig.rests()
    assert 0.2 < rig.posture[5] < 1.9


class Tape:
    """A recorder that notes what it is asked for."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def stamps(self) -> dict[str, float]:
        return {'joint_states': 1.0}

    def rewind(self, begin: dict[str, float]) -> None:
        self.log.append(f'rewind {begin}')

    def resume(self, begin: dict[str, float]) -> None:
        self.log.append(f'resume {begin}')


class TestRepeated:
    """A motion that something ended which is over."""

    @pytest.fixture
    def tape(self, rig: Rig) -> Iterator[Tape]:
        kept, rig.arm.recorder = rig.arm.recorder, (made := Tape())
        yield made
        rig.arm.recorder = kept

    def test_after_the_machine_was_late(self, rig: Rig, tape: Tape) -> None:
        rig.use(state_timeout=10.0)
        # Slow: the arm may go on at ten times its speed if it takes this process for gone.
        task = rig.begin(rig.path(2.0 * TURN, 0.08), repeated=True)
        time.sleep(1.8)
        rig.end(task)
        assert len(rig.sent) >= 3, 'the motion, the way back, and the motion again'
        assert tape.log[:2] == ["rewind {'joint_states': 1.0}", "resume {'joint_states': 1.0}"]
        assert abs(rig.posture[5] - 2.0) < 0.01

    def test_after_joint_states_were_silent(self, rig: Rig, tape: Tape) -> None:
        task = rig.begin(rig.path(2.0 * TURN, 0.5), repeated=True)
        rig.fault('joint_states_silent')
        rig.until(lambda: rig.joints.age() > 0.3)
        rig.fault()
        rig.end(task)
        assert len(rig.sent) >= 3
        assert len(tape.log) >= 2
        assert abs(rig.posture[5] - 2.0) < 0.01

    def test_not_if_it_never_ends(self, rig: Rig, tape: Tape) -> None:
        task = rig.begin(rig.path(2.0 * TURN, 0.5), repeated=True)
        rig.fault('effort_nan:joint_2')
        rig.joints.need_effort = True
        try:
            with pytest.raises(MotionError, match='effort'):
                rig.end(task)
        finally:
            rig.joints.need_effort = False
        assert len(rig.sent) == 1
        assert not tape.log


def test_clock_that_jumps_back(rig: Rig) -> None:
    task = rig.begin(rig.path(2.0 * TURN, 0.2))
    rig.fault('clock_jump_back')
    outcome = rig.end(task)
    assert outcome.status is MotionStatus.STATES_LOST
    assert 'clock of the joint states jumped back' in outcome.message
    assert rig.rests()


def test_a_clock_that_jumps_forward_before_a_motion_is_no_motion_of_others(rig: Rig) -> None:
    before = rig.stamp
    rig.fault('clock_jump_forward')
    rig.until(lambda: rig.stamp > before + 0.9)
    rig.do(rig.path(0.3 * TURN))


def test_a_motion_scaled_by_the_controller_is_followed(rig: Rig) -> None:
    rig.set('sim_arm', speed_scaling=0.4)
    trajectory = rig.path(0.5 * TURN)
    begin = rig.stamp
    rig.do(trajectory)
    assert rig.stamp - begin > 2.0 * trajectory.duration


def test_a_stalled_motion_is_aborted(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, 'STALL_TIMEOUT', 1.0)
    task = rig.begin(rig.path(2.0 * TURN, 0.5))
    rig.set('sim_arm', speed_scaling=0.0)
    rig.held(task, MotionStatus.STALLED, 'made no progress for 1 s',
             'The speed scaling of the controller is zero')


@pytest.mark.parametrize('scale', [1.0, 0.25])
def test_speed_scale_stretches_the_motion(rig: Rig, scale: float) -> None:
    rig.use(speed_scale=scale)
    trajectory = rig.path(0.4 * TURN)
    begin = rig.stamp
    with rig.watching() as states:
        assert rig.move(trajectory).status is MotionStatus.DONE
    duration = trajectory.duration / scale
    sent = rig.sent[0].trajectory.points[-1].time_from_start
    assert conversions.seconds(sent) == pytest.approx(duration, abs=1e-6)
    assert duration < rig.stamp - begin
    # By the arm: on a busy machine the node may see its rest later.
    moving = [seconds(state.header.stamp) for _, state in states
              if np.abs(np.array(state.velocity)).max() > 1e-2]
    assert 0.8 * duration < moving[-1] - moving[0] < duration + 1.5


class TestConditions:
    """Loads, and stops that the robot reports."""

    def test_a_force_beyond_its_limit(self, rig: Rig) -> None:
        task = rig.begin(rig.path(2.0 * TURN, 0.5))
        rig.use(max_force=1e-3)
        rig.held(task, MotionStatus.OVERLOADED,
                     "The force on guard_topic '/ft_wrist/wrench' is",
                     '(limit 0.001 N by max_force)')
        rig.sent.clear()
        refused(rig, rig.path(TURN), 'by max_force', 'Nothing was sent')

    def test_an_effort_beyond_its_limit(self, rig: Rig) -> None:
        abort = rig.arm.client.abort
        task = rig.begin(rig.path(2.0 * TURN, 0.5))
        limit, abort._limit[2] = abort._limit[2], 1e-3
        outcome = rig.end(task)
        abort._limit[2] = limit
        assert outcome.status is MotionStatus.OVERLOADED
        assert "The effort of joint 'joint_3' is" in outcome.message
        assert '(limit 0.001 N·m by max_effort_share)' in outcome.message
        assert outcome.held

    def test_a_driver_that_stops_the_robot(self, rig: Rig) -> None:
        condition = DriveCondition(rig.node, ReentrantCallbackGroup(), 'running data == true')
        running = rig.node.create_publisher(Bool, 'running', qos.LATCHED)
        running.publish(Bool(data=True))
        rig.arm.client.abort._conditions.append(condition)
        try:
            rig.until(lambda: not condition.problem())
            task = rig.begin(rig.path(2.0 * TURN, 0.2))
            running.publish(Bool(data=False))
            rig.held(task, MotionStatus.STOPPED, "driver reports data False on '/running'")
            rig.sent.clear()
            refused(rig, rig.path(TURN), 'drive_conditions', 'Nothing was sent')
        finally:
            rig.arm.client.abort._conditions.clear()
            condition.stop()
            rig.node.destroy_publisher(running)

    def test_a_controller_state_that_comes_late_is_no_silence_before_it(self, rig: Rig) -> None:
        controller = rig.arm.client.controller
        controller.stop()
        task = rig.begin(rig.path(2.0 * TURN, 0.2))
        assert controller.stamp == -np.inf
        controller.start()
        outcome = rig.end(task)
        assert outcome.status is MotionStatus.DONE, outcome.message
        assert np.isfinite(controller.stamp)

    def test_a_stop_on_diagnostics(self, rig: Rig) -> None:
        publisher = rig.node.create_publisher(DiagnosticArray, '/diagnostics', 10)
        rig.until(lambda: publisher.get_subscription_count() > 0)

        def report(level: bytes, name: str = 'driver: protective stop') -> None:
            publisher.publish(DiagnosticArray(status=[
                DiagnosticStatus(name=name, level=level, message='open')]))

        task = rig.begin(rig.path(2.0 * TURN, 0.5))
        report(DiagnosticStatus.ERROR, 'something else')
        report(DiagnosticStatus.WARN)
        report(DiagnosticStatus.ERROR)
        rig.held(task, MotionStatus.STOPPED,
                     'reports a stop on /diagnostics: driver: protective stop: open.')
        rig.sent.clear()
        refused(rig, rig.path(TURN), 'driver: protective stop', 'Nothing was sent')
        report(DiagnosticStatus.OK)
        rig.until(lambda: not rig.arm.client.abort.problem())
        rig.node.destroy_publisher(publisher)

    def test_a_paused_robot_is_named(self, rig: Rig) -> None:
        rig.set('sim_arm', speed_scaling=0.0)
        state = rig.arm.client.controller
        rig.until(lambda: state.look() or state.paused)
        refused(rig, rig.path(TURN), 'protective or emergency stop', 'Nothing was sent')

    def test_the_guarded_topic_is_one_of_the_namespace(self, ros: None) -> None:
        made = Rig(namespace='/guarded', guard_topic='ft_wrist/wrench', max_force=1.0)
        try:
            assert made.arm.client.abort._wrench.topic == '/guarded/ft_wrist/wrench'
        finally:
            made.__exit__()


@pytest.fixture(scope='module')
def timed(ros: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """An arm in real time: a second of the wall clock is a second of motion."""
    log = tmp_path_factory.mktemp('real_time') / 'sim_arm.log'
    with (
        sim_arm(log, namespace='/real_time', real_time_factor=1.0),
        Rig(namespace='/real_time') as rig,
    ):
        rig.settle()
        yield rig


@pytest.mark.realtime
def test_stop_leaves_the_arm_at_rest_at_once(timed: Rig) -> None:
    task = timed.begin(timed.path(2.0 * TURN, 0.5))
    where, asked = timed.posture, time.monotonic()
    timed.waiter.stop('Enough.')
    outcome = timed.end(task)
    timed.waiter.stop_reason = ''
    assert (outcome.status, outcome.message) == (MotionStatus.CANCELLED, 'Enough.')
    assert outcome.held
    assert time.monotonic() - asked < 2.0
    assert timed.rests()
    # Half a second of travel at the motion's speed would be 0.25 rad.
    assert 0.0 <= timed.posture[5] - where[5] < 0.15


@pytest.mark.realtime
def test_an_arm_that_moves_on_after_an_abort_is_held_once_and_its_place_is_told(
    timed: Rig
) -> None:
    sent = len(timed.sent)
    task = timed.begin(timed.path(timed.posture + 2.0 * TURN, 0.5))
    published = time.monotonic()

    def led_on() -> bool:
        """Lead the arm on along its path, by topic, until it is commanded to hold."""
        nonlocal published
        if len(timed.sent) == sent + 1 and time.monotonic() > published + 0.05:
            published = time.monotonic()
            # Without velocities, at the full speed from the start.
            timed.topic.publish(JointTrajectory(joint_names=list(JOINTS), points=[
                JointTrajectoryPoint(positions=(timed.posture + TURN).tolist(),
                                     time_from_start=Duration(sec=5))]))
        return bool(task.done())

    timed.fault('controller_abort')
    timed.until(lambda: led_on() or GoalStatus.STATUS_EXECUTING not in
                        timed.arm.client.goals._statuses.values())
    begin = timed.posture
    timed.fault()
    timed.until(led_on)
    outcome = timed.end(task)
    assert outcome.status is MotionStatus.ABORTED
    assert 'moved on, and was commanded to hold its posture' in outcome.message
    travelled = float(outcome.message.partition("'joint_6' went furthest: it is ")[2].split()[0])
    assert travelled == pytest.approx(timed.posture[5] - begin[5], abs=0.05)
    assert travelled > 0.1
    assert outcome.held
    assert timed.rests()
    assert len(timed.sent) == sent + 2


@pytest.mark.realtime
def test_a_goal_whose_answer_is_lost_is_cancelled(
    timed: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller has accepted it, and the arm moves."""
    actions = timed.arm.client.goals
    send = actions.send

    def deaf(*arguments: Any, **more: Any) -> Any:
        send(*arguments, **more)
        return Future()

    monkeypatch.setattr(actions, 'send', deaf)
    start = timed.posture
    outcome = timed.end(timed.begin(timed.path(start - 2.0 * TURN, 0.3)))
    assert outcome.status is MotionStatus.CONTROLLER_LOST
    assert 'did not answer within 3.0 s' in outcome.message
    assert outcome.held
    assert timed.rests()
    assert 0.05 < start[5] - timed.posture[5] < 1.5


@pytest.mark.realtime
def test_the_arm_is_held_soon_after_joint_states_stop(timed: Rig) -> None:
    states: list[JointTrajectoryControllerState] = []
    timed.node.create_subscription(
        JointTrajectoryControllerState, f'{CONTROLLER}/controller_state', states.append, 50)
    task = timed.begin(timed.path(timed.posture + TURN, 0.5))
    timed.fault('joint_states_silent')
    outcome = timed.end(task)
    silent = timed.stamp
    assert outcome.held
    commanded = [(seconds(state.header.stamp), state.reference.positions[5]) for state in states]
    held_since = min(stamp for stamp, at in commanded if at == commanded[-1][1])
    assert 0.0 < held_since - silent < SILENCE + 0.1


@pytest.mark.realtime
def test_whoever_called_hears_of_the_hold_within_a_second(timed: Rig) -> None:
    """The joint states stay silent; the controller's state shows the arm at rest."""
    timed.fault()
    timed.settle()
    commands: list[tuple[float, float]] = []
    timed.node.create_subscription(
        JointTrajectoryControllerState, f'{CONTROLLER}/controller_state',
        lambda state: commands.append((time.monotonic(), state.reference.positions[5])), 50)
    start = timed.posture
    task = timed.begin(timed.path(start - TURN, 0.3), repeated=True)
    timed.fault('joint_states_silent')
    with pytest.raises(MotionError, match=r'has stopped publishing.* The arm is held\.'):
        timed.end(task)
    heard = time.monotonic()
    held = min(when for when, at in commands if at == commands[-1][1])
    timed.fault()
    timed.settle()
    assert heard - held < 1.2, 'a second, and what a busy machine adds'


@pytest.mark.realtime
@pytest.mark.parametrize('shared', [False, True])
def test_states_of_another_arm_do_not_move_this_one(timed: Rig, shared: bool) -> None:
    """It is held where its controller alone sees it, and commanded nowhere if none does."""
    timed.fault()
    timed.settle()
    timed.until(lambda: timed.joints.travel(client.STILL_TIME) < client.STILL_TRAVEL)
    shift = np.array([0.3, *5 * [0.0]])
    strange = timed.node.create_publisher(JointState, 'joint_states', 10)
    sent, start = len(timed.sent), timed.posture

    ahead = latest = -np.inf

    def mirror(state: JointState) -> None:
        """Shift a state, and stamp it later than those of the arm that may be queued before it."""
        nonlocal ahead, latest
        if state.position[0] < start[0] + 0.5 * shift[0]:
            ahead = max(ahead, seconds(state.header.stamp) - time.monotonic())
            if state.position[5] > start[5] + 0.05:
                state.position = (np.array(state.position) + shift).tolist()
                latest = time.monotonic() + ahead + 0.05
                state.header.stamp = conversions.to_stamp(latest)
                strange.publish(state)

    topic, controlled = f'{CONTROLLER}/controller_state', start + shift
    stranger = timed.node.create_publisher(JointTrajectoryControllerState, topic, 10)

    def control(state: JointTrajectoryControllerState) -> None:
        at = state.feedback.positions
        if at[5] > start[5] + 0.05 and at[0] < start[0] + 0.5 * shift[0]:
            state.feedback.positions = state.reference.positions = controlled.tolist()
            stranger.publish(state)

    listening = timed.node.create_subscription(JointState, 'joint_states', mirror, 50)
    watching = timed.node.create_subscription(JointTrajectoryControllerState, topic, control, 50)
    # Both of this process.
    timed.until(lambda: strange.get_subscription_count() > 1)
    if not shared:
        timed.node.destroy_subscription(watching)
        timed.node.destroy_publisher(stranger)
        timed.until(lambda: not timed.arm.client.controller.shared)
    outcome = timed.end(timed.spinner.begin(lambda: timed.arm.try_move(
        timed.path(start + TURN, 0.3))))
    if shared:
        timed.node.destroy_subscription(watching)
        timed.node.destroy_publisher(stranger)
    timed.node.destroy_subscription(listening)
    timed.node.destroy_publisher(strange)
    # What the arm itself tells is older until then.
    timed.until(lambda: timed.stamp > latest)
    timed.settle()
    assert outcome.status is MotionStatus.FOREIGN_MOTION
    assert "2 nodes publish on '/real_time/joint_states': if more than one has" in outcome.message
    # Without a state that is its own alone, the arm may not be seen at rest.
    assert outcome.held or shared, outcome.message
    assert len(timed.sent) == sent + 1, 'no command after the cancelled motion'
    np.testing.assert_allclose(timed.posture[:5], start[:5], atol=1e-2)


def test_a_stop_waits_for_a_decelerating_controller(
    ros: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Canceled is reported while the arm still moves; the outcome comes at rest."""
    # A namespace of its own keeps this arm apart from the shared one.
    log = tmp_path_factory.mktemp('braking') / 'sim_arm.log'
    with (
        sim_arm(log, namespace='/braking', decelerate_on_cancel=True, cancel_deceleration=0.5),
        Rig(namespace='/braking') as rig,
    ):
        rig.settle()
        task = rig.begin(rig.path(2.0 * TURN, 0.5))
        rig.waiter.stop('Enough.')
        rig.held(task, MotionStatus.CANCELLED)
        # The controller's states, which may have told it, are finer than the encoders.
        told = rig.stamp
        rig.until(lambda: rig.stamp > told)
        assert rig.joints.travel(0.15) < 1e-3
        assert rig.rests()
