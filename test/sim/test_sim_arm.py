# SPDX-License-Identifier: Apache-2.0
"""The node over DDS: controller, faults, pacing and shutdown."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import control_msgs.msg
import numpy as np
import pytest
import rclpy
from action_msgs.msg import GoalStatus, GoalStatusArray
from control_msgs.action import FollowJointTrajectory
from control_msgs.msg import JointTrajectoryControllerState
from geometry_msgs.msg import PointStamped, WrenchStamped
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import String
from std_srvs.srv import Trigger
from support.live_graph import CONTROLLER, JOINTS, NodeChild, seconds, sim_arm, trajectory
from support.sim_rig import Rig

from robocal_ros.errors import RobocalError
from robocal_sim.node import SimArm, default_description
from robocal_sim.truth import HiddenTruth

pytestmark = pytest.mark.usefixtures('ros')

SUCCEEDED = GoalStatus.STATUS_SUCCEEDED
ABORTED = GoalStatus.STATUS_ABORTED
CANCELED = GoalStatus.STATUS_CANCELED
MOVED = [0.3, -0.2, 0.25, 0.4, -0.3, 0.5]


@pytest.fixture(scope='module')
def shared(ros: None) -> Iterator[Rig]:
    with Rig() as rig:
        yield rig


@pytest.fixture
def rig(shared: Rig) -> Rig:
    """Return the shared arm, at rest at zero, without faults."""
    shared.reset()
    return shared


def answer(rig: Rig, handle: Any) -> tuple[int, int]:
    ended = rig.result(handle)
    return ended.status, ended.result.error_code


def test_valid_goal(rig: Rig) -> None:
    ended = rig.result(rig.send(trajectory((1.0, MOVED))))
    assert ended.status == SUCCEEDED
    assert ended.result.error_code == 0
    assert ended.result.error_string == 'Goal successfully reached!'
    rig.advance(0.5)
    assert rig.position == pytest.approx(MOVED, abs=2e-3)


def test_status_of_goals_is_published_as_by_rclcpp_action(rig: Rig) -> None:
    """Every change of state, to late subscribers the newest; rejected goals are not listed."""
    topic = f'{CONTROLLER}/follow_joint_trajectory/_action/status'
    received: list[GoalStatusArray] = []
    latched = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    subscription = rig.node.create_subscription(GoalStatusArray, topic, received.append, latched)

    def seen(handle: Any) -> list[int]:
        codes = [item.status for array in list(received) for item in array.status_list
                 if bytes(item.goal_info.goal_id.uuid) == bytes(handle.goal_id.uuid)]
        return [code for code, before in zip(codes, [0, *codes], strict=False) if code != before]

    executing, canceling = GoalStatus.STATUS_EXECUTING, GoalStatus.STATUS_CANCELING
    done = rig.send(trajectory((0.3, [0.1] * 6)))
    rig.until(lambda: seen(done)[-1:] == [SUCCEEDED])
    assert seen(done) == [GoalStatus.STATUS_ACCEPTED, executing, SUCCEEDED]
    first, second = (rig.send(trajectory((9.0, [0.0] * 6))) for _ in range(2))
    rig.until(lambda: seen(first)[-1:] == [ABORTED])
    assert seen(second)[-1] == executing
    late: list[GoalStatusArray] = []
    joined = rig.node.create_subscription(GoalStatusArray, topic, late.append, latched)
    rig.until(lambda: bool(late))
    assert {item.status for item in late[0].status_list} >= {executing}
    assert rig.send(trajectory()) is None
    rig.wait(second.cancel_goal_async())
    rig.until(lambda: seen(second)[-1:] == [CANCELED])
    assert seen(second)[-3:] == [executing, canceling, CANCELED]
    known = {bytes(item.goal_info.goal_id.uuid) for item in received[-1].status_list}
    assert {bytes(handle.goal_id.uuid) for handle in (done, first, second)} <= known
    for item in (subscription, joined):
        rig.node.destroy_subscription(item)


def test_speed_scaling_by_topic(rig: Rig) -> None:
    scaling = getattr(control_msgs.msg, 'SpeedScalingFactor', None)
    if scaling is None:
        pytest.skip('this release of control_msgs has no SpeedScalingFactor')
    topic = f'{CONTROLLER}/speed_scaling_input'
    # As in the original, a publisher that keeps nothing for late subscribers is not heard.
    publisher = rig.node.create_publisher(scaling, topic, QoSProfile(
        depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL))
    rig.until(lambda: publisher.get_subscription_count() > 0)
    offered, = rig.node.get_subscriptions_info_by_topic(topic)
    assert offered.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL
    publisher.publish(scaling(factor=0.5))
    rig.until(lambda: rig.arm._simulator.controller.speed_scaling == 0.5)


def test_feedback_rate_is_twenty_hertz(rig: Rig) -> None:
    received = []
    goal = trajectory((2.0, MOVED))
    client = rig.action
    message = client._action_type.Goal(trajectory=goal)
    handle = rig.wait(client.send_goal_async(
        message, feedback_callback=lambda item: received.append(item.feedback)
    ))
    rig.result(handle)
    stamps = [seconds(item.header.stamp) for item in received]
    assert len(stamps) >= 35
    assert np.median(np.diff(stamps)) == pytest.approx(0.05, abs=1e-6)
    assert list(received[0].joint_names) == list(JOINTS)


@pytest.mark.parametrize(('fault', 'waits'), [
    ('controller_slow', 1.0), ('controller_silent', 2.0)])
def test_controller_that_answers_late(rig: Rig, fault: str, waits: float) -> None:
    rig.set('sim_arm', fault=fault)
    goal = FollowJointTrajectory.Goal(trajectory=trajectory((0.5, MOVED)))
    begin, sent = rig.time, rig.action.send_goal_async(goal)
    rig.advance(0.8)
    assert not sent.done()
    rig.advance(waits - 0.8)
    rig.set('sim_arm', fault='none' if fault == 'controller_silent' else fault)
    rig.until(sent.done)
    assert rig.time - begin >= waits - 0.1
    assert answer(rig, sent.result()) == (SUCCEEDED, 0)


def test_unknown_fault_is_refused(rig: Rig) -> None:
    (result,) = rig.try_to_set('sim_arm', fault='gremlins')
    assert not result.successful
    assert 'gremlins' in result.reason
    assert 'effort_zero' in result.reason


def test_all_topics_are_published(rig: Rig) -> None:
    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    topics = [
        (String, 'robot_description', latched),
        (JointTrajectoryControllerState, f'{CONTROLLER}/controller_state', 10),
        (WrenchStamped, 'ft_link_2_proximal/wrench', 10),
        (Imu, 'imu_flange/imu', 10),
        (PointStamped, 'tracker/point', 10),
        (Clock, '/clock', 10),
    ]
    received: dict[str, Any] = {}
    subscriptions = [
        rig.node.create_subscription(kind, topic, lambda m, topic=topic: received.update(
            {topic: m}), qos)
        for kind, topic, qos in topics
    ]
    rig.send(trajectory((0.5, [0.0, 0.0, 0.0, 0.0, -1.0, 0.0])))
    rig.until(lambda: len(received) == len(topics))
    for subscription in subscriptions:
        rig.node.destroy_subscription(subscription)
    assert received['ft_link_2_proximal/wrench'].header.frame_id == 'ft_link_2_proximal'
    assert received['imu_flange/imu'].header.frame_id == 'imu_flange'
    assert '<robot' in received['robot_description'].data
    assert list(received[f'{CONTROLLER}/controller_state'].joint_names) == list(JOINTS)


@pytest.mark.parametrize('prefix', ['', 'left_'])
def test_default_arm_has_its_truth_with_any_prefix(truth: HiddenTruth, prefix: str) -> None:
    urdf = default_description(prefix=prefix)
    arm = SimArm([Parameter('robot_description', value=urdf)], 'prefixed')
    assert arm._simulator.truth == truth.prefixed(prefix)
    topics = {publisher.topic_name for publisher in arm.publishers}
    arm.destroy_node()
    assert {f'/prefixed/{prefix}ft_wrist/wrench', f'/prefixed/{prefix}imu_flange/imu'} <= topics


def test_push_and_load_change_the_wrist_force(rig: Rig) -> None:
    def wrist() -> np.ndarray:
        force = rig.wrenches[-1].wrench.force
        return np.array((force.x, force.y, force.z))

    rig.advance(0.5)
    rest = wrist()
    pusher = rig.node.create_publisher(WrenchStamped, 'sim_arm/push', 10)
    rig.until(lambda: pusher.get_subscription_count() > 0)
    message = WrenchStamped()
    message.header.frame_id = 'flange'
    message.wrench.force.z = 30.0
    rig.set('sim_arm', push_duration=2.0)
    pusher.publish(message)
    rig.until(lambda: abs(np.linalg.norm(wrist() - rest) - 30.0) < 0.1)
    rig.until(lambda: np.linalg.norm(wrist() - rest) < 0.1)
    for name, weight in (('attach_load', 8.0 * 9.81), ('detach_load', 0.0)):
        client = rig.node.create_client(Trigger, f'sim_arm/{name}')
        rig.until(client.service_is_ready)
        assert rig.wait(client.call_async(Trigger.Request())).success
        rig.until(lambda weight=weight: abs(np.linalg.norm(wrist() - rest) - weight) < 0.1)


CLIENT = '/shared/client'


@pytest.mark.realtime
def test_simulated_time_waits_for_its_consumers(rig: Rig) -> None:
    rig.until(lambda: rig.arm._pacer.consumers == (CLIENT,))
    # The client does not spin here.
    time.sleep(1.0)
    held = rig.arm._simulator.now
    time.sleep(0.4)
    assert rig.arm._simulator.now == held
    # An unresponsive consumer is dropped after two seconds ...
    deadline = time.monotonic() + 10.0
    while rig.arm._pacer.consumers and time.monotonic() < deadline:
        time.sleep(0.05)
    assert rig.arm._pacer.consumers == ()
    # ... and waited for again once it responds.
    rig.until(lambda: rig.arm._pacer.consumers == (CLIENT,))


def test_time_does_not_wait_for_nodes_without_services_or_that_have_left(rig: Rig) -> None:
    def subscribe(node: Node) -> None:
        node.create_subscription(JointState, 'joint_states', lambda _: None, 10)

    rig.until(lambda: rig.arm._pacer.consumers == (CLIENT,))
    mute = rclpy.create_node('mute', namespace='shared', start_parameter_services=False)
    other = rclpy.create_node('other', namespace='shared')
    executor = SingleThreadedExecutor()
    executor.add_node(other)
    try:
        subscribe(mute)
        subscribe(other)

        def both() -> bool:
            executor.spin_once(timeout_sec=0.0)
            return set(rig.arm._pacer.consumers) == {CLIENT, '/shared/other'}

        rig.until(both)
    finally:
        executor.shutdown()
        other.destroy_node()
    rig.until(lambda: rig.arm._pacer.consumers == (CLIENT,))
    rig.advance(1.0)
    mute.destroy_node()


@pytest.mark.realtime
def test_simulated_time_follows_the_real_time_factor() -> None:
    rig = Rig('punctual', real_time_factor=1.0)
    begin, wall = rig.arm._simulator.now, time.monotonic()
    with rig:
        rig.spin(1.2)
        # A busy machine may lag and catch up; since the start, simulated time must not lead.
        assert 0.1 < (rig.time - begin) / (time.monotonic() - wall) < 1.05
        handle = rig.send(trajectory((4.0, MOVED)))
        rig.spin(0.5)
        wall = time.monotonic()
        rig.wait(handle.cancel_goal_async())
        assert rig.result(handle).status == CANCELED
        assert time.monotonic() - wall < 2.0


def test_extra_joints_and_a_gripper_share_the_topic(tmp_path: Path) -> None:
    truth = tmp_path / 'truth.yaml'
    truth.write_text('extra_joints: [rail]\ngripper: {joints: [finger, thumb], rate: 50.0}\n'
                     'force_torque_sensors: [{frame: ft_wrist}]\n', encoding='utf-8')
    with Rig('crowded', truth_file=str(truth)) as rig:
        rig.until(lambda: {len(state.name) for state in rig.states} == {2, 7})
        arm, gripper = (next(state for state in rig.states if len(state.name) == count)
                        for count in (7, 2))
    assert list(arm.name) == ['rail', *JOINTS]
    assert list(gripper.name) == ['finger', 'thumb']
    assert arm.effort[0] == 0.0
    assert abs(arm.effort[2]) > 10.0
    assert len(arm.position) == len(arm.velocity) == 7


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_node_cleanly(rig: Rig, number: signal.Signals, tmp_path: Path) -> None:
    name = f'ending_{number.name.lower()}'
    with sim_arm(tmp_path / 'log', name=name) as process:
        rig.until(lambda: name in rig.node.get_node_names())
        process.send(number)
        assert process.end() == 0
    assert 'Traceback' not in process.log.read_text()


@pytest.mark.parametrize(('parameters', 'words'), [
    ({'truth_file': '/nowhere.yaml'}, '/nowhere.yaml'),
    ({'joints': ['joint_9']}, 'joint_9'),
    ({'joint_states_rate': 333.0}, '333'),
    ({'initial_positions': [9.0]}, 'initial_positions'),
    ({'robot_description': 'arm.urdf'}, 'not valid XML'),
    ({'max_lead': -1.0}, 'max_lead'),
    ({'fault': 'gremlins'}, 'gremlins'),
])
def test_invalid_configuration_is_refused(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(RobocalError, match=words):
        Rig('refused', **parameters)


@pytest.mark.parametrize(('parameters', 'words'), [
    ({'truth_file': '/nowhere.yaml'}, '/nowhere.yaml'),
    ({'real_time_factor': 1}, 'real_time_factor'),
])
def test_invalid_configuration_ends_the_node_with_a_message(
    parameters: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with sim_arm(tmp_path / 'log', **parameters) as process:
        assert process.end() == 1
    said = process.log.read_text()
    assert words in said
    assert 'Traceback' not in said


def test_a_forked_node_that_imports_the_simulation_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of its own process would, by what it opens: no estimator may see the truth."""
    (tmp_path / 'curious.py').write_text('def main():\n    import robocal_sim.truth\n')
    monkeypatch.syspath_prepend(tmp_path)
    with NodeChild('curious', [], tmp_path / 'log', tmp_path / 'opened') as process:
        assert process.end() == 0
    assert 'robocal_sim/' in (tmp_path / 'opened').read_text()
