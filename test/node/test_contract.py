# SPDX-License-Identifier: Apache-2.0
"""What every node keeps: transitions, refusals in sentences, cancellation, others' results."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rcl_interfaces.msg import Parameter as ParameterMessage, ParameterValue
from rcl_interfaces.srv import SetParameters
from rosgraph_msgs.msg import Clock
from std_msgs.msg import String
from support.compliance_results import compliance_result
from support.friction_results import friction_result, identified_arm, identity, payload_result
from support.parameter_files import node_classes
from support.ros_rig import NodeRig, await_service, made_rigs, overrides
from support.security_policies import PARAMETERS

from robocal_ros import registry
from robocal_ros.errors import DataError
from robocal_ros.messages import qos
from robocal_ros.node.calibration_node import ERROR, FAILURE, SUCCESS, CalibrationNode
from robocal_ros.results.store import ResultStore, from_yaml
from robocal_ros.robot.setup import ARM, DRIVE_GAINS
from robocal_ros.wrench import tare as wrench_tare

pytestmark = pytest.mark.usefixtures('ros')

NODES = node_classes()
RESULTS = [payload_result(), friction_result(), compliance_result(), identified_arm(ARM),
           identified_arm(DRIVE_GAINS)]
Make = Callable[..., NodeRig]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Make nodes that give up soon unless a test waits for them."""
    monkeypatch.setattr(wrench_tare, '_FIRST', 0.3)

    def build(name: str = 'payload_identification', **values: Any) -> NodeRig:
        patience = {} if name == 'wrench_observer' else {'connect_timeout': 0.3}
        return NodeRig(NODES[name], tmp_path, name=name, **{
            'description_timeout': 0.2, **patience, **PARAMETERS[name], **values})

    yield from made_rigs(build)


@pytest.fixture(params=registry.nodes())
def rig(request: pytest.FixtureRequest, make: Make) -> NodeRig:
    return make(request.param)


@pytest.fixture
def running(rig: NodeRig, monkeypatch: pytest.MonkeyPatch) -> tuple[NodeRig, Any]:
    """A node that waits for joint states and a controller, and the pending answer of its run."""
    monkeypatch.setattr(wrench_tare, '_FIRST', 30.0)
    if rig.node.has_parameter('connect_timeout'):
        rig.set(connect_timeout=30.0)
    rig.start()
    run = rig.begin('run')
    rig.spinner.until(lambda: rig.node.busy)
    return rig, run


def entities(node: CalibrationNode) -> dict[str, int]:
    counts = {kind: len(list(getattr(node, kind))) for kind in (
        'publishers', 'subscriptions', 'services', 'clients', 'timers', 'waitables', 'guards')}
    return {**counts, 'log handlers': len(logging.getLogger('robocal_ros').handlers)}


def state(node: CalibrationNode) -> str:
    return str(node._state_machine.current_state[1])


def broken(*_: object) -> None:
    raise ZeroDivisionError('a defect')


# ------------------------------------------------------------------ transitions


@pytest.mark.parametrize('stored', [False, True])
def test_rounds_and_shutdown_leave_nothing_behind(
    rig: NodeRig, tmp_path: Path, stored: bool
) -> None:
    for result in RESULTS if stored else ():
        ResultStore(tmp_path, identity()).save(result)
    node, before = rig.node, entities(rig.node)
    for _ in range(4):
        assert node.trigger_configure() == SUCCESS, rig.log.lines
        assert entities(node) != before
        assert node.trigger_activate() == SUCCESS
        assert node.is_active
        assert node.trigger_deactivate() == SUCCESS
        assert node.trigger_cleanup() == SUCCESS
        assert entities(node) == before
    rig.start()
    assert node.trigger_shutdown() == SUCCESS
    assert state(node) == 'finalized'
    assert entities(node) == before
    node.release()


@pytest.mark.parametrize(('name', 'values', 'words'), [
    *[(name, *case) for name in NODES for case in (
        ({'robot_description': ''},
         "no message arrived on topic '/robot_description' within 0.2 s"),
        ({'robot_description': '<robot'}, 'not well-formed XML.*xacro'),
        ({'robot_description': '<sdf/>'}, "starts with <sdf>; expected a URDF's <robot>"),
        ({'joints': ['joint_1', 'joint_9']}, "Joint 'joint_9' .*joint_6"))],
    *[(name, {'tool_frame': 'tool9'}, "Frame 'tool9' is not in .*tool0")
      for name in NODES if name != 'wrench_observer'],
    *[('payload_identification', *case) for case in (
        ({'second_joint': 'joint_9', 'method': 'two_plane'}, "Joint 'joint_9' .*joint_5"),
        ({'known_mass': 0.0, 'second_joint': 'joint_9', 'method': 'two_plane'},
         "Joint 'joint_9' .*joint_5"),
        ({'sensor_frame': 'wirst'}, "Frame 'wirst' .*ft_wrist"),
        *(({'sensor_sign': 0.5, 'method': method}, 'sensor_sign must be 1.0 or -1.0, got 0.5')
          for method in ('two_plane', 'static_poses', 'excitation')),
        ({'effort_source': 'current', 'torque_constants': [1.0, 2.0]},
         "'torque_constants' has 2 values; expected 1 or 6"),
        ({'known_mass': 2.0, 'max_payload': 1.0, 'method': 'two_plane'},
         'known_mass is 2.0 kg, but max_payload allows 1.0 kg'))],
    *[('friction_identification', *case) for case in (
        ({'measure_joints': ['joint_7']}, 'joint_7.*joint_6'),
        ({'min_speed': 0.5, 'max_speed': 0.3}, 'min_speed.*0.5 and 0.3'),
        ({'effort_source': 'current'}, 'torque_constants.*those of the drives'),
        ({'trajectory_file': 'nowhere.yaml'}, 'nowhere.yaml cannot be read'))],
    *[('compliance_calibration', *case) for case in (
        ({'target_frame': 'spindle'}, "Frame 'spindle' is not in.*flange"),
        ({'load_frame': 'hook'}, "Frame 'hook'"),
        ({'target_axis': [0.0, 0.0, 0.0], 'visibility_angle': 1.0,
          'tracker_position': [2.0, 0.0, 0.0]}, 'target_axis is zero'),
        ({'detach_service': ''}, 'belong together'),
        ({'posture_file': 'nowhere.yaml'}, 'nowhere.yaml cannot be read'))],
    *[('leveling', *case) for case in (
        ({'reference': 'table'}, "Frame 'table' is not in the robot description.*base_link"),
        ({'reference': 'link_4'}, "'link_4', which moves with the arm"),
        ({'imu_frame': 'imu_nose'}, "Frame 'imu_nose'"),
        ({'imu_frame': 'imu_link_3'},
         "'imu_link_3' is not fixed to the tool frame 'tool0'"),
        ({'auto_level_after': ['frame:tabel']}, "Frame 'tabel'.*base_link"),
        ({'auto_level_after': ['link_2']}, "'link_2', which moves with the arm"),
        ({'reference': 'gravity', 'gravity': [0.0, 0.0, 0.0]}, 'gravity is zero'))],
    *[('wrench_observer', *case) for case in (
        ({'sensor_topics': ['w'], 'sensor_frames': ['ft_moon']},
         "'ft_moon' is not in the robot description"),
        ({'sensor_topics': ['w'], 'sensor_frames': ['ft_wrist', 'flange']},
         "'sensor_topics' has 1 values; expected 2"),
        ({'sensor_topics': ['a', 'a'], 'sensor_frames': ['ft_wrist', 'ft_link_3_distal']},
         'sensor_topics lists a topic twice'),
        ({'sensor_topics': ['', 'b'], 'sensor_frames': ['ft_wrist', 'ft_link_3_distal']},
         'has an empty entry; expected the topic'),
        ({'sensor_signs': [0.5]}, "'sensor_signs' has the value 0.5; expected 1.0 or -1.0"),
        ({'sensor_signs': [1.0, 1.0]}, "'sensor_signs' has 2 values"),
        ({'kinematics': ['imu']}, 'imu_topics or imu_frames has no entry'),
        ({'kinematics': ['imu'], 'imu_topics': ['x'], 'imu_frames': ['imu_link_2'],
          'sensor_topics': ['w'], 'sensor_frames': ['ft_wrist']}, 'is not on'),
        ({'torque_thresholds': [1.0, 2.0]}, 'torque_thresholds'),
        ({'sensor_topics': ['w'], 'sensor_frames': ['ft_link_3_distal'],
          'tool_wrench_source': 'sensor', 'tool_frame': 'ft_link_3_proximal'}, 'tool_wrench'))],
])
def test_refused_configure_says_why_and_releases_all(
    make: Make, name: str, values: dict[str, Any], words: str
) -> None:
    rig = make(name)
    node, before = rig.node, entities(rig.node)
    good = {name: node.get_parameter(name).value for name in values}
    rig.set(**values)
    assert node.trigger_configure() == FAILURE
    assert state(node) == 'unconfigured'
    (said,) = rig.log['error']
    assert said.startswith('Cannot configure: ')
    assert re.search(words, said), said
    assert rig.log['fatal'] == []
    assert entities(node) == before
    rig.set(**good)
    assert node.trigger_configure() == SUCCESS


@pytest.mark.parametrize(('name', 'values', 'words'), [
    ('compliance_calibration', {'load_mass': math.nan},
     'load_mass out of range Min: 0.0, Max: 10000.0, value: nan'),
    ('leveling', {'heading': 'north'}, "'heading' is 'north'.*'nearest', 'x', 'y', 'free'"),
    ('leveling', {'direction': 'sideways'}, "'direction' is 'sideways'.*'up', 'down'"),
    ('leveling', {'tool_point': [0.1, 0.2]}, "'tool_point' has 2 values; expected three"),
    ('leveling', {'auto_level_box': [1.0]}, "'auto_level_box' has 1 values; expected three"),
    ('leveling', {'max_step': 3.0}, 'max_step out of range.* Max: 0.5'),
    ('wrench_observer', {'kinematics': ['guess']}, "'joint_states', 'imu'"),
    ('wrench_observer', {'window': 5.0}, 'window out of range'),
    ('wrench_observer', {'stuck_time': -1.0}, 'stuck_time out of range'),
])
def test_what_cannot_be_is_refused_when_it_is_set(
    make: Make, name: str, values: dict[str, Any], words: str
) -> None:
    (answer,) = make(name).node.set_parameters(overrides(**values))
    assert not answer.successful
    assert re.search(words, answer.reason), answer.reason


@pytest.mark.parametrize('transition', ['configure', 'activate'])
def test_a_defect_in_a_transition_is_logged_with_its_traceback(
    rig: NodeRig, monkeypatch: pytest.MonkeyPatch, transition: str
) -> None:
    node, before = rig.node, entities(rig.node)
    with monkeypatch.context() as patch:
        if transition == 'configure':
            patch.setattr(node, 'build', broken)
        else:
            assert node.trigger_configure() == SUCCESS
            patch.setattr(node._streams[-1], 'start', broken)
        assert getattr(node, f'trigger_{transition}')() == ERROR
    assert 'Traceback' in rig.log['fatal'][0]
    assert 'ZeroDivisionError: a defect' in rig.log['fatal'][0]
    assert state(node) == 'unconfigured'
    assert entities(node) == before
    assert node.trigger_configure() == SUCCESS


def test_both_severities_of_the_core_reach_the_nodes_log(rig: NodeRig) -> None:
    """One place in the code forwards both severities; rclpy allows a place but one."""
    assert rig.configure() == SUCCESS
    core = logging.getLogger('robocal_ros.estimation')
    for say in (core.info, core.warning, core.info):
        say('all is well')
    assert rig.log['warning'].count('all is well') == 1
    assert rig.log['info'].count('all is well') == 2


# ------------------------------------------------------------------ services


def test_services_refuse_while_inactive_and_without_joint_states(rig: NodeRig) -> None:
    assert rig.configure() == SUCCESS
    for verb in rig.node.verbs:
        answer = rig.call(verb)
        assert not answer.success
        assert answer.message == f'The node is not active; activate it before calling {verb}.'
    answer = rig.call('cancel')
    assert answer.success
    assert 'Nothing is running' in answer.message
    assert rig.node.trigger_activate() == SUCCESS
    for verb in rig.node.verbs:
        answer = rig.call(verb)
        assert 'Defect' not in answer.message
        assert answer.message[-1] in '.?'
        if verb == 'clear' or (verb, rig.node.get_name()) == ('preview', 'wrench_observer'):
            assert answer.success
        else:
            assert not answer.success
            assert re.search(
                'joint states|samples|No (readings|friction)|no rest|set known_mass|call measure',
                answer.message), (verb, answer.message)
    assert not rig.log['fatal']


def test_cancel_ends_a_run_while_it_waits_and_another_one_is_refused(
    running: tuple[NodeRig, Any]
) -> None:
    rig, run = running
    for verb in rig.node.verbs:
        answer = rig.call(verb)
        assert not answer.success
        assert answer.message == 'run is under way; call cancel first, or wait.'
    answer = rig.call('cancel')
    assert answer.success
    assert answer.message == 'run was ended.'
    assert rig.spinner.wait(run).message.startswith('Cancelled on request.')


def test_cleanup_and_configure_wait_for_a_run_that_ends(running: tuple[NodeRig, Any]) -> None:
    rig, run = running
    node = rig.node
    assert node.trigger_deactivate() == SUCCESS
    assert node.trigger_cleanup() == FAILURE
    assert 'still ending' in rig.log['error'][-1]
    assert 'deactivated' in rig.spinner.wait(run).message
    rig.spinner.until(lambda: not node.busy)
    assert node.trigger_cleanup() == SUCCESS
    assert node.trigger_configure() == SUCCESS


def test_shutdown_lets_a_run_end_first(running: tuple[NodeRig, Any]) -> None:
    rig, run = running
    assert rig.node.trigger_shutdown() == SUCCESS
    assert not rig.spinner.wait(run).success
    rig.spinner.until(lambda: not list(rig.node.subscriptions))
    assert state(rig.node) == 'finalized'


@pytest.mark.parametrize('kind', [11, 255])
def test_a_malformed_parameter_request_does_not_end_the_node(rig: NodeRig, kind: int) -> None:
    rig.start()
    client = rig.talker.create_client(SetParameters, f'{rig.node.get_name()}/set_parameters')
    await_service(rig.spinner.until, rig.talker, client)
    answer = rig.spinner.wait(client.call_async(SetParameters.Request(
        parameters=[ParameterMessage(name='gravity', value=ParameterValue(type=kind))])))
    assert not answer.results
    assert re.search(r'Left out a request to .*/set_parameters: ', rig.log['error'][0])
    assert rig.call('cancel').success


@pytest.mark.parametrize(('error', 'message'), [
    (ZeroDivisionError('a defect'),
     'Defect in estimate (ZeroDivisionError: a defect); see the log.'),
    (DataError('Too few samples.'), 'Too few samples.'),
])
def test_an_exception_in_a_service_is_answered_and_the_node_stays_usable(
    rig: NodeRig, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    def raising() -> None:
        raise error

    async def in_the_worker() -> Any:
        return await rig.node.waiter.compute(raising)

    # Services are offered from configure on.
    monkeypatch.setattr(rig.node, 'estimate', in_the_worker)
    rig.start()
    answer = rig.call('estimate')
    assert not answer.success
    assert answer.message == message
    assert bool(rig.log['fatal']) == isinstance(error, ZeroDivisionError)
    assert rig.call('clear').success


# ------------------------------------------------------------------ results of others


@pytest.mark.parametrize('result', RESULTS, ids=lambda result: result.kind)
def test_a_stored_result_is_published_at_configure(
    make: Make, tmp_path: Path, result: Any
) -> None:
    ResultStore(tmp_path, identity()).save(result)
    node, _, topic = registry.result_topics()[result.kind].partition('/')
    rig = make(node)
    assert rig.configure() == SUCCESS, rig.log.lines
    received = rig.subscribe(String, topic, qos.LATCHED)
    rig.spinner.until(lambda: received)
    assert from_yaml(received[-1].data).sha256 == ResultStore(
        tmp_path, identity()).load(result.kind).sha256


def test_a_published_text_that_is_no_such_result_is_not_used(rig: NodeRig) -> None:
    rig.start()
    rig.spinner.until(lambda: not rig.node.waiter.loading, 60.0)
    followed = {kind: topic for kind, topic in registry.result_topics().items()
                if rig.node.count_subscribers(topic)}
    assert followed
    for kind, topic in followed.items():
        publisher = rig.publisher(String, topic, qos.LATCHED)
        publisher.publish(String(data='kind: tea'))
        said = f'{kind.replace("_", " ").capitalize()} result not used'
        rig.spinner.until(
            lambda said=said: any(said in line for line in rig.log['warning']), what=said)
        assert rig.node.results.current(kind) is None


# ------------------------------------------------------------------ clock


def test_ticks_of_the_simulated_clock_wake_a_busy_node_only(make: Make) -> None:
    rig = make(use_sim_time=True)
    node, spinner = rig.node, rig.spinner
    clock = rig.talker.create_publisher(Clock, '/clock', 10)
    spinner.until(clock.get_subscription_count)

    def seen(ticks: int) -> int:
        """Return how many times the node's clock advances during some ticks of 10 ms."""
        times = set()
        for _ in range(ticks):
            tick.clock.nanosec += 1
            clock.publish(tick)
            end = time.monotonic() + 0.01
            while time.monotonic() < end:
                spinner.executor.spin_once(timeout_sec=0.001)
            times.add(node.get_clock().now().nanoseconds)
        return len(times) - 1

    tick = Clock()
    tick.clock.sec = 5
    began = time.monotonic()
    assert 1 <= seen(100) <= 2 + (time.monotonic() - began) / 0.2
    node.running = 'run'
    assert seen(100) > 50
    assert node.get_clock().now().nanoseconds > 5_000_000_150
    node.running = ''
