# SPDX-License-Identifier: Apache-2.0
"""The observer's node without an arm: what it refuses, what it offers, what others hand over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from action_msgs.msg import GoalInfo
from action_msgs.srv import CancelGoal
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import TransformStamped, WrenchStamped
from rclpy.lifecycle import TransitionCallbackReturn
from sensor_msgs.msg import Imu, JointState, Temperature
from std_msgs.msg import Bool, Float64, Float64MultiArray, String
from std_srvs.srv import Trigger
from support.friction_results import (
    calibration_result,
    friction_result,
    identity,
    payload_result,
    project_arm,
    store,
)
from support.live_graph import value
from support.ros_rig import NodeRig, arm_urdf, joint_state, made_rigs, overrides, stamp
from support.wrench_arm import FRAMES
from tf2_msgs.msg import TFMessage
from visualization_msgs.msg import MarkerArray

from robocal_ros.messages import qos
from robocal_ros.results.result import Parameter, Verdict
from robocal_ros.results.store import ResultStore, from_yaml, to_yaml
from robocal_ros.robot.model import RigidBodyInertia
from robocal_ros.wrench.model import Instant, SensedArm, SensorMount, TareRecord
from robocal_ros.wrench.node import WrenchObserverNode
from robocal_ros.wrench.parameters import WrenchParameters
from robocal_ros.wrench.tare import Taring

pytestmark = pytest.mark.usefixtures('ros')

NAMES = tuple(f'joint_{number}' for number in range(1, 7))
WRIST = {'sensor_topics': ['ft_wrist/wrench'], 'sensor_frames': ['ft_wrist']}
SUCCESS = TransitionCallbackReturn.SUCCESS
POSTURE = np.array([0.1, 0.3, 0.4, 0.0, 0.6, 0.2])
PERIOD = 0.002


class Rig(NodeRig):
    """The node, and an arm at rest with one wrist sensor that talks to it."""

    def __init__(self, results: Path, **values: Any) -> None:
        super().__init__(WrenchObserverNode, results, name='observer', **{**WRIST, **values})
        self.noise = np.random.default_rng(0)
        self.reading = np.zeros(6)
        self.effort: list[float] = []
        self.posture = POSTURE
        # Stamps of readings in relation to those of joint states [s].
        self.ahead = 0.0

    def start(self) -> Rig:
        super().start()
        self.joints = self.publisher(JointState, 'joint_states', qos.SENSOR)
        self.wrench = self.publisher(WrenchStamped, 'ft_wrist/wrench', qos.SENSOR)
        return self

    def feed(self, frame: str = 'ft_wrist', wrench: bool = True) -> None:
        """Send one sample."""
        self.time += PERIOD
        if wrench:
            message = WrenchStamped()
            message.header.frame_id = frame
            message.header.stamp = stamp(self.time + self.ahead)
            values = self.reading + 1e-3 * self.noise.normal(size=6)
            force, torque = message.wrench.force, message.wrench.torque
            force.x, force.y, force.z, torque.x, torque.y, torque.z = values.tolist()
            self.wrench.publish(message)
        self.joints.publish(joint_state(
            self.time, NAMES, self.posture.tolist(), [0.0] * 6, self.effort))

    def until(self, condition: Callable[[], bool], what: str = 'the event', **options: Any
              ) -> None:
        """Feed until something holds."""
        def step() -> bool:
            self.feed(**options)
            return bool(condition())

        self.spinner.until(step, what=what)

    def call(self, verb: str) -> Trigger.Response:
        future = self.begin(verb)
        self.until(future.done, 'the answer')
        return future.result()

    def wait(self, duration: float = 0.1) -> None:
        """Feed for some time [s]."""
        end = self.time + duration
        self.until(lambda: self.time > end)

    def status(self, topic: str = 'status') -> list[DiagnosticStatus]:
        return self.subscribe(DiagnosticStatus, topic, qos.LATCHED)

    def wrenches(self, topic: str = 'links/ft_wrist/wrench') -> list[WrenchStamped]:
        return self.subscribe(WrenchStamped, topic)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    yield from made_rigs(partial(Rig, tmp_path))


@pytest.fixture
def free(rig) -> Callable[..., Rig]:
    """Return how to start an arm that needs no tare and that nothing touches."""
    def start(**values: Any) -> Rig:
        made = rig(require_tare=False, **values).start()
        made.reading = weight()
        return made

    return start


def weight(mass: float = 0.0) -> np.ndarray:
    """Return what an ideal wrist sensor reads at rest, with a point mass at the flange."""
    cut = SensedArm(project_arm(), [SensorMount('ft_wrist')])
    if mass:
        cut.carry(RigidBodyInertia(mass, np.array([0.018, -0.011, 0.102]), np.zeros((3, 3))),
                  'flange')
    rest = np.zeros(6)
    return -cut.held(POSTURE, rest, rest)[0]


def test_sensors_are_found_by_their_names(rig) -> None:
    made = rig(sensor_topics=[''], sensor_frames=[''], require_tare=True).start()
    assert [chain.link for chain in made.node.observer.arm.chains] == FRAMES
    assert [item.topic_name for item in made.node.subscriptions].count(
        made.node.resolve_topic_name('ft_link_2_distal/wrench')) == 1


def test_an_arm_without_sensors_is_observed_by_its_torques(rig) -> None:
    made = rig(sensor_topics=[''], sensor_frames=[''])
    made.node.set_parameters(overrides(robot_description=arm_urdf().replace('"ft_', '"part_')))
    NodeRig.start(made)
    made.joints = made.publisher(JointState, 'joint_states', qos.SENSOR)
    held = project_arm().gravity_torque(POSTURE)
    held[1] += 5.0
    made.effort = held.tolist()
    received = made.subscribe(JointState, 'external_torque')
    tool = made.wrenches('tool_wrench')
    least = made.subscribe(Float64, 'smallest_singular_value')
    made.until(lambda: len(received) > 20 and len(tool) > 20 and least, wrench=False)
    assert received[-1].name == list(NAMES)
    assert tool[-1].header.frame_id == 'tool0'
    assert 0.0 < least[-1].data < 0.3
    assert np.isfinite(received[-1].effort).all()
    assert abs(received[-1].effort[1]) == pytest.approx(5.0, abs=0.5)


def test_a_contact_holds_the_arm_once_if_asked_to(rig) -> None:
    made = rig(require_tare=False, hold_on_contact=True, hold_force=20.0).start()
    statuses, mass = made.status(), made.subscribe(Float64, 'links/ft_wrist/effective_mass')
    made.reading = weight()
    made.until(lambda: statuses and 'does not hold the arm' in statuses[-1].message)
    calls: list[float] = []

    def cancel(request: CancelGoal.Request, response: CancelGoal.Response) -> CancelGoal.Response:
        # All goals, whoever sent them.
        assert not any(request.goal_info.goal_id.uuid)
        calls.append(made.time)
        response.goals_canceling = [GoalInfo()] * (len(calls) == 1)
        return response

    server = made.talker.create_service(
        CancelGoal, 'joint_trajectory_controller/follow_joint_trajectory/_action/cancel_goal',
        cancel)
    made.until(lambda: 'Observing' in statuses[-1].message)

    def push(force: float) -> None:
        made.reading = weight() + np.array([force, 0.0, 0.0, 0.0, 0.0, 0.0])
        made.wait()

    push(12.0)
    assert not calls
    push(30.0)
    push(31.0)
    assert len(calls) == 1
    assert 0.0 < mass[-1].data < 100.0
    push(0.0)
    push(30.0)
    assert len(calls) == 2
    made.until(lambda: 'had no goal to cancel' in value(statuses[-1], 'hold on contact'))
    assert 'N on ft_wrist' in value(statuses[-1], 'hold on contact')
    made.talker.destroy_service(server)


def test_zeros_of_the_torques_from_rests_in_several_postures(rig, tmp_path: Path) -> None:
    robot, zero = project_arm(), np.linspace(-0.6, 0.6, 6)
    known = {'unidentified_friction': [0.0], 'arm_model_std': 0.0, 'gain_std': 0.0,
             'tare_duration': 0.2}
    made = rig(require_tare=False, **known).start()
    postures = POSTURE + np.array([[0.0], [0.8], [-0.8]])

    def pose(posture: np.ndarray) -> None:
        made.posture, made.effort = posture, (robot.gravity_torque(posture) + zero).tolist()
        cut = SensedArm(robot, [SensorMount('ft_wrist')])
        made.reading = -cut.held(posture, np.zeros(6), np.zeros(6))[0]

    results = made.subscribe(String, 'torque_zero', qos.LATCHED)
    for number, posture in enumerate(postures, 1):
        pose(posture)
        made.wait()
        answer = made.call('zero')
        assert answer.success, answer.message
        assert ('not used yet' in answer.message) == (number < 3), answer.message
    made.until(lambda: len(results) == 3)
    np.testing.assert_allclose(made.node.observer.torques.zero, zero, atol=0.05)
    assert from_yaml(results[-1].data).verdict is Verdict.PASS
    filed = ResultStore(tmp_path, identity()).load('torque_zero')
    assert filed.sha256 == from_yaml(results[-1].data).sha256
    # A contact is refused, and a further start uses the stored zeros.
    made.reading = made.reading + np.array([30.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    made.wait()
    assert 'Something touches the arm distal to ft_wrist' in made.call('zero').message
    again = rig(require_tare=False, **known)
    again.configure()
    np.testing.assert_allclose(again.node.observer.torques.zero, zero, atol=0.05)


class TestTare:
    """Nothing is told before a tare, and a bad one is refused."""

    def test_the_wrench_comes_with_the_tare(self, rig) -> None:
        made = rig(tare_duration=0.2).start()
        made.reading = weight() + np.array([3.0, -2.0, 1.0, 0.1, 0.0, -0.1])
        received = made.wrenches()
        tool = made.wrenches('tool_wrench')
        results = made.subscribe(String, 'result', qos.LATCHED)
        statuses = made.status()
        sources = made.status('tool_wrench/source')
        made.until(lambda: sources and any('before a tare' in item.message for item in statuses))
        assert 'before a tare' in sources[-1].message
        assert sources[-1].level == DiagnosticStatus.ERROR
        assert not received
        assert not [line for line in made.log['info'] if 'is valid' in line]
        answer = made.call('tare')
        assert answer.success, answer.message
        assert '1 sensors tared over 0.2 s' in answer.message
        assert 'biases up to 3.00 N' in answer.message
        made.until(lambda: len(received) > 20 and len(tool) > 20)
        assert received[-1].header.frame_id == 'ft_wrist'
        assert abs(received[-1].wrench.force.x) < 0.01
        assert tool[-1].header.frame_id == 'tool0'
        made.until(lambda: results)
        assert 'ft_wrist.force_x' in results[-1].data
        made.until(lambda: 'Observing 1 links' in statuses[-1].message)

        # A push: the flag, the force, the markers.
        flags, markers = made.subscribe(Bool, 'links/ft_wrist/in_contact'), []
        markers = made.subscribe(MarkerArray, 'markers', qos.LATCHED)
        pitch = made.subscribe(Float64, 'links/ft_wrist/pitch')
        made.until(lambda: flags and not flags[-1].data)
        made.reading = made.reading + np.array([8.0, 0.0, 0.0, 0.0, 0.4, 0.0])
        made.until(lambda: flags[-1].data and markers and pitch)
        made.until(lambda: abs(received[-1].wrench.force.x - 8.0) < 0.02)
        assert {marker.ns for item in markers for marker in item.markers} >= {
            'line_of_action', 'external_force'}

    def test_a_sensor_of_the_wrong_sign_is_refused(self, rig) -> None:
        made = rig(tare_duration=0.2, tare_force_limit=1.0).start()
        made.reading = -weight()
        received = made.wrenches()
        answer = made.call('tare')
        assert not answer.success
        assert "'ft_wrist' reads the opposite of the weight that it carries" in answer.message
        assert not received

    def test_a_filed_tare_serves_again_if_asked_to(self, rig, tmp_path: Path) -> None:
        store(tmp_path, tare_result())
        assert not rig().start().node.observer.tared
        made = rig(keep_tare=True)
        assert made.configure() == SUCCESS
        assert made.node.observer.tared
        np.testing.assert_allclose(made.node.observer.bias[0], [1, 2, 3, 0.1, 0.2, 0.3])

    @pytest.mark.parametrize('before', [True, False])
    def test_its_load_is_the_one_that_the_first_readings_show(
        self, rig, tmp_path: Path, before: bool
    ) -> None:
        """A load of 1.0 kg was mounted before that tare, or after it, and identified later."""
        bias = np.array([1.0, 2.0, 3.0, 0.1, 0.2, 0.3])
        store(tmp_path, payload_result(1.0), tare_result())
        made = rig(keep_tare=True).start()
        received = made.wrenches()
        made.reading = bias + weight(0.0 if before else 1.0)
        made.until(lambda: bool(received))
        assert np.linalg.norm([getattr(received[-1].wrench.force, axis) for axis in 'xyz']) < 0.1

def tare_result() -> Any:
    cut, record = SensedArm(project_arm(), [SensorMount('ft_wrist')]), TareRecord()
    held = cut.held(POSTURE, np.zeros(6), np.zeros(6))
    for number in range(50):
        readings = np.array([1.0, 2.0, 3.0, 0.1, 0.2, 0.3]) + 1e-3 * (-1.0)**number - held
        record.add(Instant(10**9 + number, POSTURE, readings, held, ['']))
    return Taring(cut).find(record, WrenchParameters())[0]


class TestHandOver:
    """Results meet the observer while all run."""

    def test_payload_and_friction_from_the_store_and_live(self, rig, tmp_path: Path) -> None:
        store(tmp_path, payload_result(1.5), friction_result())
        made = rig(require_tare=False, tare_duration=0.2).start()
        carried = made.node.observer.arm
        rest = np.zeros(6)
        held = np.linalg.norm(carried.held(POSTURE, rest, rest)[0, :3])
        assert held == pytest.approx(9.81 * (0.35 + 1.5))
        assert made.node.observer.torques.friction.known.tolist() == [False] * 5 + [True]
        made.publisher(String, 'payload_identification/result', qos.LATCHED).publish(
            String(data=to_yaml(payload_result(2.5))))
        made.spinner.until(lambda: np.linalg.norm(
            carried.held(POSTURE, rest, rest)[0, :3]) > 9.81 * 2.8)
        made.publisher(String, 'friction_identification/result', qos.LATCHED).publish(
            String(data=to_yaml(friction_result('joint_2'))))
        made.spinner.until(lambda: made.node.observer.torques.friction.known[1])
        made.publisher(String, 'payload_identification/result', qos.LATCHED).publish(
            String(data='kind: nonsense'))
        made.spinner.until(lambda: any('Payload result not used' in line
                                       for line in made.log['warning']))

    def test_friction_is_that_of_the_newest_temperature(self, rig, tmp_path: Path) -> None:
        result = friction_result(temperatures={'joint_6': 22.0})
        store(tmp_path, replace(result, parameters=(*result.parameters, Parameter(
            'joint_6.temperature_factor', '1/K', -0.01, 0.002))))
        made = rig(require_tare=False, temperature_topic='drive_temperature').start()

        def coulomb() -> float:
            return float(made.node.observer.torques.friction._friction.laws[5].coulomb[0])

        assert coulomb() == pytest.approx(0.7)
        made.publisher(Temperature, 'drive_temperature', 10).publish(Temperature(temperature=32.0))
        made.spinner.until(lambda: coulomb() == pytest.approx(0.63))

    def test_the_matrix_of_a_sensor_from_the_store_and_live(self, rig, tmp_path: Path) -> None:
        matrix = np.diag([1.05, 1.0, 1.0, 1.0, 1.0, 1.0])
        store(tmp_path, calibration_result(matrix), tare_result())
        made = rig(keep_tare=True, tare_duration=0.2).start()
        # That tare is one of before the calibration, and its biases are not those of now.
        assert not made.node.observer.tared
        bias = np.array([3.0, -2.0, 1.0, 0.1, 0.0, -0.1])
        made.reading = matrix @ weight() + bias
        assert made.call('tare').success
        # Readings scatter by 1 mN.
        tared = made.node.observer.bias[0].copy()
        np.testing.assert_allclose(tared, bias, atol=1e-3)
        received = made.wrenches()
        made.reading = made.reading + [10.5, 0.0, 0.0, 0.0, 0.0, 0.0]
        made.until(lambda: received and abs(received[-1].wrench.force.x - 10.0) < 0.02)
        # Live: the readings of the tare stay those of the same weight.
        made.reading = matrix @ weight() + bias
        made.until(lambda: abs(received[-1].wrench.force.x) < 0.02)
        made.publisher(String, 'payload_identification/sensor_calibration', qos.LATCHED).publish(
            String(data=to_yaml(calibration_result(np.eye(6)))))
        made.spinner.until(lambda: abs(
            made.node.observer.bias[0, 0] - tared[0] - 0.05 * weight()[0]) < 1e-4)
        again = rig(keep_tare=True)
        assert again.configure() == SUCCESS
        assert again.node.observer.tared

    def test_not_when_told_not_to(self, rig, tmp_path: Path) -> None:
        store(tmp_path, payload_result(1.5), friction_result())
        made = rig(use_payload=False, use_friction=False).start()
        rest = np.zeros(6)
        held = made.node.observer.arm.held(POSTURE, rest, rest)[0, :3]
        assert np.linalg.norm(held) == pytest.approx(9.81 * 0.35)
        assert not made.node.observer.torques.friction.known.any()


class TestTorques:
    """Without link sensors: joint torques, and a tool wrench with what it hides."""

    def test_each_output_has_its_covariance(self, free) -> None:
        made = free(sensor_force_std=[0.4], tool_wrench_frame='base_link')
        made.effort = [0.0] * 6
        names = ('links/ft_wrist/wrench_covariance', 'tool_wrench_covariance',
                 'external_torque_covariance')
        received = [made.subscribe(Float64MultiArray, name) for name in names]
        tool = made.wrenches('tool_wrench')
        made.until(lambda: all(received) and tool)
        matrices = [np.reshape(items[-1].data, (6, 6)) for items in received]
        for matrix in matrices:
            np.testing.assert_allclose(matrix, matrix.T, atol=1e-9)
            assert (np.linalg.eigvalsh(matrix) > 0.0).all()
        assert [dim.size for dim in received[0][-1].layout.dim] == [6, 6]
        # The sensor's noise, and the uncertain weight that the arm has carried without a tare.
        assert np.trace(matrices[0][:3, :3]) == pytest.approx(
            3.0 * 0.4**2 + 2.0 * (0.05 * 0.35 * 9.81)**2, rel=1e-3)
        assert tool[-1].header.frame_id == 'base_link'

    def test_tool_wrench_in_a_frame_that_others_publish(self, rig) -> None:
        made = rig(require_tare=False, tool_wrench_frame='gripper').start()
        made.reading = weight() + np.array([0.0, 0.0, -5.0, 0.0, 0.0, 0.0])
        tool, statuses = made.wrenches('tool_wrench'), made.status()
        reference = made.wrenches()
        made.until(lambda: statuses and "has a transform of 'gripper'" in statuses[-1].message)
        assert not tool
        constant = made.publisher(TFMessage, '/tf_static', qos.TRANSFORMS)
        moving = made.publisher(TFMessage, '/tf')

        def place(parent: str, child: str, time: float) -> TFMessage:
            item = TransformStamped(child_frame_id=child)
            item.header.frame_id, item.header.stamp = parent, stamp(time)
            # x and y exchanged, z reversed.
            item.transform.rotation.x = item.transform.rotation.y = 0.5**0.5
            item.transform.rotation.w = 0.0
            return TFMessage(transforms=[item])

        constant.publish(place('camera', 'gripper', 0.0))
        moving.publish(place('ft_wrist', 'camera', made.time))
        made.until(lambda: tool)
        # Exchanged twice.
        force, expected = tool[-1].wrench.force, reference[-1].wrench.force
        assert tool[-1].header.frame_id == 'gripper'
        assert (force.x, force.y, force.z) == pytest.approx(
            (expected.x, expected.y, expected.z), abs=0.01)
        made.until(lambda: "'camera' to 'ft_wrist' on /tf is 0." in statuses[-1].message)
        constant.publish(place('ft_wrist', 'gripper', 0.0))
        made.until(lambda: tool[-1].wrench.force.z > 0.0)
        force, expected = tool[-1].wrench.force, reference[-1].wrench.force
        assert (force.x, force.y, force.z) == pytest.approx(
            (expected.y, expected.x, -expected.z), abs=0.01)

class TestInput:
    """What the user sees of messages that are not what they should be."""

    def test_wrong_frame_sign_and_silence(self, rig) -> None:
        made = rig(require_tare=False, sensor_signs=[-1.0], silence=0.3).start()
        made.reading = -weight()
        received = made.wrenches()
        statuses = made.status()
        made.until(lambda: len(received) > 20)
        assert abs(received[-1].wrench.force.z) < 0.01
        wrong = "names frame 'tool0', but 'ft_wrist' is expected"
        made.until(lambda: wrong in statuses[-1].message, frame='tool0')
        received.clear()
        made.until(lambda: received)
        made.until(lambda: 'Wrench invalid' in statuses[-1].message, wrench=False)
        made.until(lambda: 'Observing' in statuses[-1].message)
        made.spinner.until(lambda: 'No joint states have been received' in statuses[-1].message)
        assert [line for line in made.log['info'] if "Wrench on 'ft_wrist' is valid" in line]

    def test_messages_may_name_a_frame_that_the_description_lacks(self, rig) -> None:
        made = rig(require_tare=False, sensor_message_frames=['ft_raw']).start()
        received = made.wrenches()
        external = made.subscribe(JointState, 'external_torque')
        statuses = made.status()
        made.until(lambda: received, frame='ft_raw')
        made.until(lambda: "names frame 'ft_wrist', but 'ft_raw'" in statuses[-1].message)
        # The joint states contain no efforts.
        assert not external

    def test_corrupt_numbers_in_a_contact_end_nothing(self, rig) -> None:
        made = rig(require_tare=False).start()
        push = weight() + np.array([30.0, 0.0, 0.0, 0.0, 0.0, 0.0])
        made.reading, made.effort = push, [0.0] * 6
        flags = made.subscribe(Bool, 'links/ft_wrist/in_contact')
        tool, statuses = made.wrenches('tool_wrench'), made.status()
        made.subscribe(Float64MultiArray, 'tool_wrench_covariance')
        made.until(lambda: flags and flags[-1].data and tool)
        made.reading = np.array([0.0, 1e300, 0.0, 0.0, 0.0, 0.0])
        made.feed()
        made.reading = push
        made.time += PERIOD
        made.joints.publish(joint_state(
            made.time, NAMES, POSTURE.tolist(), [0.0, 1e50, 0.0, 0.0, 0.0, 0.0], made.effort))
        made.until(lambda: statuses and 'sent an implausible' in (
            value(statuses[-1], 'readings of ft_wrist refused') or ''))
        tool.clear()
        made.until(lambda: len(tool) > 50 and flags[-1].data)
        assert max(abs(item.wrench.force.y) for item in tool) < 1.0
        assert value(statuses[-1], 'readings of ft_wrist refused').startswith('1, the last one:')
        assert 'joint states refused' in {item.key for item in statuses[-1].values}

    def test_a_silent_sensor_makes_the_tool_wrench_invalid(self, free) -> None:
        made = free()
        tool = made.wrenches('tool_wrench')
        sources = made.status('tool_wrench/source')
        made.until(lambda: len(tool) > 20 and sources and sources[-1].level == DiagnosticStatus.OK)
        assert value(sources[-1], 'source').startswith('F/T sensors')
        assert value(sources[-1], 'sensors') == 'ft_wrist'
        made.until(lambda: sources[-1].level == DiagnosticStatus.ERROR, wrench=False)
        assert "'ft_wrist'" in sources[-1].message
        assert value(sources[-1], 'source') == 'none'
        made.until(lambda: 'silent for' in sources[-1].message, wrench=False)
        assert 'tool_wrench_fallback' in sources[-1].message
        # The latched state names the stamp, the wrench stays away.
        newest = tool[-1].header.stamp
        assert float(value(sources[-1], 'stamp')) > newest.sec + 1e-9 * newest.nanosec + 0.9
        made.until(lambda: sources[-1].level == DiagnosticStatus.OK)
        # Without joint states there is nothing to say it sample by sample.
        made.spinner.until(lambda: 'No joint states have been received' in sources[-1].message)

    def test_joint_torques_take_over_if_they_may_and_say_so(self, rig) -> None:
        made = rig(require_tare=False, tool_wrench_fallback=True).start()
        # Gains are 10 % off.
        made.reading = weight()
        made.effort = (1.1 * project_arm().gravity_torque(POSTURE)).tolist()
        tool = made.wrenches('tool_wrench')
        spread = made.subscribe(Float64MultiArray, 'tool_wrench_covariance')
        sources = made.status('tool_wrench/source')
        made.until(lambda: sources and sources[-1].level == DiagnosticStatus.OK)
        made.until(lambda: value(sources[-1], 'source') == 'joint torques', wrench=False)
        assert sources[-1].level == DiagnosticStatus.WARN
        assert "'ft_wrist'" in sources[-1].message
        tool.clear()
        spread.clear()
        made.until(lambda: len(tool) > 20 and len(spread) > 20, wrench=False)
        found = tool[-1].wrench
        error = np.array([found.force.x, found.force.y, found.force.z,
                          found.torque.x, found.torque.y, found.torque.z])
        known, matrix = np.isfinite(error), np.reshape(spread[-1].data, (6, 6))
        assert np.linalg.norm(error[known]) > 1.0
        assert error[known] @ np.linalg.solve(matrix[np.ix_(known, known)], error[known]) < 12.0

    def test_stamps_ahead_of_the_joint_states_are_invalid(self, free) -> None:
        made = free()
        received = made.wrenches()
        tool, statuses = made.wrenches('tool_wrench'), made.status()
        sources = made.status('tool_wrench/source')
        made.until(lambda: len(received) > 20 and len(tool) > 20)
        made.ahead = 0.1
        named = "Stamps of sensor 'ft_wrist' are 100 ms ahead of joint_states"
        made.until(lambda: statuses and named in statuses[-1].message
                   and sources and named in sources[-1].message)
        # What was observed before may still be on its way.
        made.wait()
        count = len(received), len(tool)
        made.wait(0.5)
        assert (len(received), len(tool)) == count
        made.ahead = 0.0
        made.until(lambda: len(received) > count[0] and 'Observing' in statuses[-1].message)

    def test_samples_that_arrive_while_others_are_taken_are_not_ahead(
        self, free, monkeypatch
    ) -> None:
        """Simulated time can run many times faster than the clock of the computer."""
        made = free()
        received, statuses = made.wrenches(), made.status()
        made.until(lambda: len(received) > 20 and statuses)
        joints = next(item for item in made.node.inputs._streams if 'joint' in item.topic)
        drain = joints.drain

        def drain_while_time_passes() -> int:
            count = drain()
            for _ in range(15):
                made.feed()
            return count

        monkeypatch.setattr(joints, 'drain', drain_while_time_passes)
        begin = int(value(statuses[-1], 'observations'))
        # Longer than a sensor has to be ahead until that counts.
        end = time.monotonic() + 2.0
        made.until(lambda: time.monotonic() > end)
        assert not [item.message for item in statuses if 'ahead' in item.message]
        assert int(value(statuses[-1], 'observations')) > begin + 200

    def test_without_subscribers_samples_wait(self, free) -> None:
        made = free()
        statuses, inputs = made.status(), made.node.inputs

        def observations() -> int:
            return int(value(statuses[-1], 'observations') or 0)

        made.until(lambda: statuses and not inputs.at_once)
        before = observations()
        made.until(lambda: observations() > before + 100)
        assert not inputs.at_once
        received = made.wrenches()
        made.until(lambda: len(received) > 5)
        assert inputs.at_once

    def test_a_clock_that_jumps_back(self, free) -> None:
        made = free()
        received = made.wrenches()
        made.until(lambda: len(received) > 20)
        made.time -= 5.0
        # What was under way may still arrive.
        made.until(lambda: received[-1].header.stamp.sec < 10)
        assert any('The clock jumped back' in line for line in made.log['warning'])

    def test_stamps_can_be_those_of_the_estimate(self, free) -> None:
        made = free(stamp_estimates=True)
        received = made.wrenches()
        made.until(lambda: len(received) > 5)
        last = received[-1].header.stamp
        assert round((last.sec + 1e-9 * last.nanosec - 10.0) / 1e-3) % 2 == 0
        assert made.time - (last.sec + 1e-9 * last.nanosec) > 0.009

    def test_an_imu_alone_drives_its_link(self, rig) -> None:
        made = rig(kinematics=['imu'], imu_topics=['imu'], imu_frames=['imu_flange'],
                   tare_duration=0.2).start()
        imu = made.publisher(Imu, 'imu', qos.SENSOR)
        message = Imu()
        message.header.frame_id = 'imu_flange'
        acceleration = message.linear_acceleration
        made.reading = np.array([1.0, 2.0, -3.0, 0.1, 0.1, 0.1])
        joints, made.joints = made.joints, None

        def step() -> None:
            made.time += PERIOD
            message.header.stamp = stamp(made.time)
            # A live sensor scatters.
            acceleration.z = 9.81 + 1e-3 * float(made.noise.normal())
            imu.publish(message)
            wrench = WrenchStamped()
            wrench.header.frame_id = 'ft_wrist'
            wrench.header.stamp = message.header.stamp
            wrench.wrench.force.x = 1.0 + 1e-3 * float(made.noise.normal())
            made.wrench.publish(wrench)

        made.feed = step
        received = made.wrenches()
        answer = made.call('tare')
        assert answer.success, answer.message
        assert 'only links with IMUs were tared' in answer.message
        made.until(lambda: len(received) > 20)
        assert abs(received[-1].wrench.force.x) < 0.01
        assert joints is not None
