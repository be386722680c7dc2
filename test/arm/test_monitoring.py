# SPDX-License-Identifier: Apache-2.0
"""Monitoring of motions by a node that gets its turn late."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
from action_msgs.msg import GoalStatus
from control_msgs.msg import JointTrajectoryControllerState
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.task import Future
from support.ros_rig import HandClock, Spinner, pair
from unique_identifier_msgs.msg import UUID

from robocal_ros.arm import waiting
from robocal_ros.arm.client import ArmClient, _PathFollower
from robocal_ros.arm.controller import ControllerState
from robocal_ros.arm.protocols import MotionOutcome, MotionStatus
from robocal_ros.arm.waiting import TimedExecutor, Waiter
from robocal_ros.errors import MotionError
from robocal_ros.parameters import ArmParameters
from robocal_ros.robot.trajectories import Trajectory, quintic_path

TOLERANCE = 0.15
# Out and back at 1 rad/s, as a joint whose friction is measured.
THERE_AND_BACK = quintic_path(
    np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 0.0]]), np.full(2, 1.0), np.full(2, 8.0))
_GRID = np.linspace(0.0, THERE_AND_BACK.duration, 2001)
# The same motion with a knot every 2 ms, as a planned excitation has them.
MANY_KNOTS = Trajectory(_GRID, *THERE_AND_BACK.sample(_GRID)[:2])


def looks(late: float, seed: int) -> Iterator[float]:
    """Yield instants at which the node looks: every 10 ms, with pauses now and then."""
    rng = np.random.default_rng(seed)
    now = 0.0
    while now < THERE_AND_BACK.duration:
        yield now
        now += 0.01 + (rng.uniform(0.0, late) if rng.uniform() < 0.1 else 0.0)


def posture(trajectory: Trajectory, now: float) -> np.ndarray:
    """Return where an arm with a lag of 30 ms and encoders of 1.5 mrad reports to be."""
    there = trajectory.sample(max(now - 0.03, 0.0))[0]
    return np.asarray(1.5e-3 * np.round(there / 1.5e-3))


@pytest.mark.parametrize('path', [THERE_AND_BACK, MANY_KNOTS])
@pytest.mark.parametrize('late', [0.0, 0.4, 1.5])
def test_an_arm_that_turns_back_is_on_its_path_however_late_the_node(
    path: Trajectory, late: float
) -> None:
    for seed in range(10):
        follower = _PathFollower(path, 100.0, TOLERANCE)
        worst = max(follower.deviation(100.0 + now, posture(THERE_AND_BACK, now))
                    for now in looks(late, seed))
        assert worst < 0.04
        assert follower.share > 0.95 - late / THERE_AND_BACK.duration


def test_a_motion_that_the_controller_stretches_is_on_its_path() -> None:
    follower = _PathFollower(THERE_AND_BACK, 100.0, TOLERANCE)
    for now in np.arange(0.0, 3.0 * THERE_AND_BACK.duration, 0.02):
        assert follower.deviation(100.0 + now, posture(THERE_AND_BACK, now / 3.0)) < 0.04
    assert follower.share > 0.99


def test_an_arm_that_is_pushed_off_its_path_is_seen() -> None:
    follower = _PathFollower(THERE_AND_BACK, 100.0, TOLERANCE)
    for now in np.arange(0.0, 1.0, 0.02):
        follower.deviation(100.0 + now, posture(THERE_AND_BACK, now))
    aside = posture(THERE_AND_BACK, 1.0) + np.array([0.0, 0.2])
    assert follower.deviation(101.0, aside) == pytest.approx(0.2, abs=0.01)


def test_an_arm_that_someone_leads_on_ahead_of_time_is_seen() -> None:
    """The far end of the path is no place that it can have reached."""
    follower = _PathFollower(THERE_AND_BACK, 100.0, TOLERANCE)
    follower.deviation(100.1, posture(THERE_AND_BACK, 0.1))
    assert follower.deviation(100.2, np.array([1.9, 0.0])) > 1.0


@pytest.mark.realtime
@pytest.mark.usefixtures('ros')
def test_the_node_knows_that_it_was_late() -> None:
    node, other = pair()
    with Spinner(node, other) as spinner:
        waiter = Waiter(node, ReentrantCallbackGroup())
        slept = False

        def sleep() -> None:
            nonlocal slept
            if not slept:
                slept = True
                time.sleep(1.5)

        async def wait() -> tuple[bool, float, float]:
            node.create_timer(0.05, sleep)
            # It happened in time, but when the node had its next turn the time was over.
            came = await waiter.until(lambda: slept, 1.0)
            late = waiter.delay
            await waiter.until(lambda: waiter.delay == 0.0, 5.0)
            return came, late, waiter.delay

        try:
            came, late, after = spinner.run(wait, 20.0)
        finally:
            waiter.destroy()
    assert came
    assert 0.2 < late < 2.0
    assert after == 0.0


class LateJoints:
    """Joint states of a moving arm, by a driver that publishes them late [s]."""

    def __init__(self, path: Trajectory, late: float) -> None:
        self._path = path
        self._begin = time.monotonic() + late

    @property
    def latest(self) -> tuple[float, np.ndarray]:
        now = time.monotonic() - self._begin
        return 100.0 + now, self.posture(now)

    def posture(self, now: float | None = None) -> np.ndarray:
        shown = time.monotonic() - self._begin if now is None else now
        return self._path.sample(float(np.clip(shown, 0.0, self._path.duration)))[0]

    def travel(self, window: float) -> float:
        now = time.monotonic() - self._begin
        return float(np.ptp([self.posture(now - back) for back in (0.0, window)], axis=0).max())

    def age(self) -> float:
        return 0.0


@pytest.mark.usefixtures('ros')
@pytest.mark.parametrize('late', [0.0, 0.6])
def test_a_short_motion_seen_late_has_not_missed_its_goal(
    monkeypatch: pytest.MonkeyPatch, late: float
) -> None:
    path = quintic_path(np.array([[0.0, 0.0], [0.1, 0.0]]), np.full(2, 2.0), np.full(2, 8.0))
    assert path.duration < late or late == 0.0
    node, other = pair()
    with Spinner(node, other) as spinner:
        client = object.__new__(ArmClient)
        client._waiter = Waiter(node, ReentrantCallbackGroup())
        client._joints = LateJoints(path, late)
        client._parameters = ArmParameters
        client._joint_names = ('joint_1', 'joint_2')
        monkeypatch.setattr(client, '_problem', lambda *_: None)
        follower = _PathFollower(path, client._stamp(), TOLERANCE)
        done = time.monotonic() + path.duration

        async def conclude() -> MotionOutcome:
            await client._waiter.until(lambda: time.monotonic() > done, 5.0)
            response = SimpleNamespace(status=GoalStatus.STATUS_SUCCEEDED)
            return await client._conclude(response, path, follower)

        try:
            outcome = spinner.run(conclude, 20.0)
        finally:
            client._waiter.destroy()
    assert outcome.status is MotionStatus.DONE, outcome.message


@pytest.mark.usefixtures('ros')
@pytest.mark.parametrize(('off', 'words'), [
    (0.05, ''),
    (0.2, "Joint 'joint_2' is 0.200 rad from where controller .* the drives do not follow"),
    # A continuous joint, counted from another turn.
    (2.0 * np.pi, ''),
])
def test_drives_that_do_not_follow_their_controller(off: float, words: str) -> None:
    node, other = pair()
    with Spinner(node, other) as spinner:
        client = object.__new__(ArmClient)
        client._waiter = Waiter(node, ReentrantCallbackGroup())
        client._parameters, client.name = ArmParameters, 'arm/follow_joint_trajectory'
        client._joint_names = ('joint_1', 'joint_2')
        client.controller = ControllerState(client._waiter, 'state', client._joint_names)
        client.controller.start()
        publisher = other.create_publisher(JointTrajectoryControllerState, 'state', 10)
        spinner.until(publisher.get_subscription_count)
        message = JointTrajectoryControllerState(joint_names=list(client._joint_names))
        message.feedback.positions, message.reference.positions = [0.3, 0.4], [0.3, 0.4 + off]
        message.header.stamp.sec = 7
        assert client.controller.has_reached(8.0), 'a controller need not publish its state'
        publisher.publish(message)
        spinner.until(lambda: client.controller.look() or client.controller.joints)
        assert client.controller.has_reached(7.0)
        assert not client.controller.has_reached(7.1), 'its state is older than the joint states'
        try:
            if words:
                with pytest.raises(MotionError, match=words):
                    client.check_commands()
            else:
                client.check_commands()
        finally:
            client.controller.destroy()
            client._waiter.destroy()


@pytest.mark.usefixtures('ros')
def test_only_turns_during_motions_count_as_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    monkeypatch.setattr(waiting, 'time', clock)
    node, talker = pair()
    executor = TimedExecutor()
    executor.add_node(node)
    client = ArmClient.__new__(ArmClient)
    waiter = client._waiter = Waiter(node, ReentrantCallbackGroup())
    client.longest_turn = 0.0
    result: Future[None] = Future()
    accepted: Future[SimpleNamespace] = Future()
    accepted.set_result(SimpleNamespace(accepted=True))
    client.goals = SimpleNamespace(is_ready=lambda: True, new_id=UUID,
                                   send=lambda *_: accepted, result=lambda _: result)
    client._joint_names = ('a', 'b')
    client._parameters = ArmParameters
    monkeypatch.setattr(client, '_stamp', lambda: 0.0)
    turns = iter((0.1, 0.0, 0.0))

    def look(*_: object) -> None:
        clock.sleep(next(turns, 0.0))
        if next(turns, None) is None:
            result.set_result(None)

    async def conclude(*_: object) -> MotionOutcome:
        return MotionOutcome(MotionStatus.DONE, '', True)

    monkeypatch.setattr(client, '_problem', look)
    monkeypatch.setattr(client, '_conclude', conclude)

    async def moves() -> None:
        clock.sleep(0.8)
        await waiter.tick()
        await client._send(THERE_AND_BACK, None, None)
        await waiter.tick()
        clock.sleep(0.4)

    try:
        task = executor.create_task(moves)
        while not task.done():
            executor.spin_once(timeout_sec=0.1)
        assert client.longest_turn == pytest.approx(0.1)
    finally:
        executor.shutdown()
        waiter.destroy()
        node.destroy_node()
        talker.destroy_node()
