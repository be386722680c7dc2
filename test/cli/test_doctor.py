# SPDX-License-Identifier: Apache-2.0
"""The doctor's findings, each with its remedy."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rclpy
from control_msgs.action import FollowJointTrajectory
from geometry_msgs.msg import WrenchStamped
from rclpy.action import ActionServer
from rclpy.context import Context
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Header, String
from support.arms import arm, foreign_urdf
from support.fake_procedure import Running
from support.fixtures import Call
from support.ros_rig import NodeRig

from robocal_ros.cli import doctor, doctor_robot
from robocal_ros.cli.console import Finding, Grade
from robocal_ros.cli.doctor_robot import (
    clock_finding,
    joint_findings,
    rate_finding,
    weight_findings,
    wrench_finding,
)
from robocal_ros.cli.drivers import DRIVERS, recognised
from robocal_ros.cli.main import build_parser, main
from robocal_ros.cli.node_client import RosSession
from robocal_ros.errors import ConfigurationError
from robocal_ros.leveling.node import Leveling
from robocal_ros.messages import qos
from robocal_ros.messages.conversions import to_stamp
from robocal_ros.robot.model import STANDARD_GRAVITY, Robot
from robocal_ros.wrench.model import SensedArm, SensorMount

URDF = (Path(__file__).parents[1] / 'data' / 'two_joint.urdf').read_text()
NAMES = ('shoulder', 'elbow')
POSTURE = [0.3, 0.4]


@pytest.fixture(scope='module')
def robot() -> Robot:
    return Robot(URDF, tool_frame='lower')


def received(
    robot: Robot, scale: float = 1.0, names: tuple[str, ...] = NAMES, positions: Any = None,
    efforts: Any = None,
) -> list[JointState]:
    effort = (scale * robot.gravity_torque(np.array(POSTURE))).tolist()
    return [JointState(name=names, position=position, velocity=[0.0, 0.0], effort=own)
            for position, own in zip(positions or [POSTURE] * 9, efforts or [effort] * 9,
                                     strict=True)]


def effort_of(findings: list[Finding]) -> Finding:
    (found,) = (item for item in findings if item.what == 'efforts')
    return found


@pytest.mark.parametrize(('stamps', 'grade', 'words'), [
    ([], Grade.BAD, '0 messages'),
    ([1.0] * 50, Grade.BAD, 'do not increase'),
    (np.arange(0.0, 3.0, 0.1), Grade.BAD, '10 Hz'),
    (np.arange(0.0, 3.0, 0.02), Grade.WARNING, '50 Hz'),
    (np.arange(0.0, 3.0, 0.002), Grade.GOOD, '500 Hz'),
    (np.delete(np.arange(0.0, 3.0, 0.002), np.arange(9, 1400, 20)), Grade.WARNING, '70 gaps'),
])
def test_rates(stamps, grade: Grade, words: str) -> None:
    found = rate_finding('/joint_states', list(stamps), 3.0)
    assert found.grade is grade
    assert words in found.message
    assert bool(found.remedy) is (grade is not Grade.GOOD)


@pytest.mark.parametrize(('age', 'simulated', 'grade', 'remedy'), [
    (0.01, False, Grade.GOOD, ''), (5.0, False, Grade.WARNING, 'chrony'),
    (-3.0, False, Grade.WARNING, 'chrony'), (1.7e9, False, Grade.WARNING, 'use_sim_time'),
    (1e151, False, Grade.WARNING, 'use_sim_time'), (1.7e9, True, Grade.GOOD, ''),
])
def test_clocks(age: float, simulated: bool, grade: Grade, remedy: str) -> None:
    found = clock_finding([(age + at, JointState(header=Header(stamp=to_stamp(at))))
                           for at in (0.0, 1.0)], simulated=simulated)
    assert found.grade is grade
    assert remedy in found.remedy


class TestJoints:
    """Names and efforts, by the description."""

    def test_all_is_well(self, robot: Robot) -> None:
        assert {item.grade for item in joint_findings(robot, received(robot))} == {Grade.GOOD}

    def test_another_robot(self, robot: Robot) -> None:
        (found,) = joint_findings(robot, received(robot, names=('a', 'b')))
        assert found.grade is Grade.BAD
        assert 'shoulder, elbow not in joint_states, which has a, b' in found.message

    @pytest.mark.parametrize(('efforts', 'words'), [
        ([[]] * 9, 'have no efforts'),
        ([[np.nan, 1.0]] * 9, "'shoulder' is not a number"),
        ([[1.0, 0.0]] * 9, "'elbow' is always zero"),
    ])
    def test_efforts_of_no_use(self, robot: Robot, efforts, words: str) -> None:
        found = effort_of(joint_findings(robot, received(robot, efforts=efforts)))
        assert found.grade is Grade.BAD
        assert words in found.message
        assert 'effort state interface' in found.remedy or 'driver' in found.remedy

    @pytest.mark.parametrize(('scale', 'grade', 'words'), [
        (1.4, Grade.GOOD, ''), (0.05, Grade.WARNING, 'motor currents'),
        (9.0, Grade.WARNING, 'heavy tool'),
        (-1.0, Grade.WARNING, 'torque_constants to -1 for such joints and 1 for others'),
    ])
    def test_size_of_efforts(self, robot: Robot, scale: float, grade: Grade, words: str) -> None:
        found = effort_of(joint_findings(robot, received(robot, scale)))
        assert found.grade is grade
        assert words in found.remedy

    def test_a_moving_arm_is_not_judged(self, robot: Robot) -> None:
        moving = [[0.3 + 0.01 * i, 0.4] for i in range(9)]
        found = effort_of(joint_findings(robot, received(robot, 9.0, positions=moving)))
        assert found.grade is Grade.GOOD


@pytest.mark.parametrize(('frame', 'finite', 'grade'), [
    ('sensor', True, Grade.GOOD), ('nowhere', True, Grade.WARNING),
    ('sensor', False, Grade.BAD)])
def test_force_torque_sensors(frame: str, finite: bool, grade: Grade) -> None:
    readings = [WrenchStamped(header=Header(frame_id=name)) for name in [frame] * 9 + ['rare']]
    readings[3].wrench.torque.y = 0.0 if finite else np.nan
    assert wrench_finding('/ft', readings, ['sensor']).grade is grade


UR_JOINTS = tuple(f'{name}_joint' for name in (
    'shoulder_pan', 'shoulder_lift', 'elbow', 'wrist_1', 'wrist_2', 'wrist_3'))
GRAPHS = {
    'ur_e_series': (
        ('controller_manager', 'io_and_status_controller', 'joint_state_broadcaster', 'wrench'),
        UR_JOINTS, 500.0, ('scaled_joint_trajectory_controller', 'joint_trajectory_controller')),
    'ur_cb3': (('controller_manager', 'joint_states'), UR_JOINTS, 125.0,
                    ('scaled_joint_trajectory_controller',)),
    'franka_fr3': (
        ('franka_robot_state_broadcaster', 'service_server', 'joint_states'),
        tuple(f'fr3_joint{n}' for n in range(1, 8)), 30.0, ('fr3_arm_controller',)),
    'xarm': (('ufactory_driver', 'joint_states'), tuple(f'joint{n}' for n in range(1, 8)),
                  100.0, ('xarm7_traj_controller',)),
    'kuka_lbr': (('lbr_state_broadcaster',), tuple(f'lbr_A{n}' for n in range(1, 8)), 100.0,
                      ('joint_trajectory_controller',)),
    'kinova_gen3': (('controller_manager', 'twist_controller'),
                         tuple(f'joint_{n}' for n in range(1, 8)), 1000.0,
                         ('joint_trajectory_controller',),
                         '<robot><ros2_control><hardware><plugin>kortex_driver/Kortex'
                         'MultiInterfaceHardware</plugin></hardware></ros2_control>'
                         '<link name="end_effector_link"/></robot>'),
}


class TestDriver:
    """The driver, by the names in its graph."""

    @pytest.mark.parametrize('file', GRAPHS)
    def test_is_recognised_with_the_command_that_starts_its_file(self, file: str) -> None:
        found = recognised(*GRAPHS[file])
        assert found is not None
        assert found.driver.file == file
        assert found.edits == {}
        finding = doctor_robot.driver_finding(found, '/left', 'joint_states')
        assert f'config/examples/{file}.yaml my_arm.yaml' in finding.remedy
        assert ('ros2 launch robocal_ros bringup.launch.py hardware:=real '
                'nodes:=payload_identification params_file:=my_arm.yaml namespace:=/left'
                ) in finding.remedy
        other = found.driver.joint_states != 'joint_states'
        assert (f'joint_states:={found.driver.joint_states}' in finding.remedy) is other

    def test_all_are_tried(self) -> None:
        assert set(GRAPHS) == {driver.file for driver in DRIVERS}

    @pytest.mark.parametrize(('names', 'file', 'edits'), [
        # From Lyrical on.
        (((), UR_JOINTS, 500.0, ('joint_trajectory_controller',)), 'ur_e_series',
         {'controller': 'joint_trajectory_controller'}),
        (((), tuple(f'left_{name}' for name in UR_JOINTS), 0.0,
               ('scaled_joint_trajectory_controller',),
               '<robot><link name="left_tool0"/></robot>'),
         'ur_e_series', {'tool_frame': 'left_tool0'}),
        # The second of two arms.
        (((), tuple(f'right_{name}' for name in UR_JOINTS), 0.0,
               ('scaled_joint_trajectory_controller',),
               '<robot><link name="left_tool0"/><link name="right_tool0"/>'
               '<joint name="right_wrist_3_joint"><child link="right_flange"/></joint>'
               '<joint name="right_end"><parent link="right_flange"/>'
               '<child link="right_tool0"/></joint></robot>'),
         'ur_e_series', {'tool_frame': 'right_tool0'}),
        ((('ufactory_driver',), ('joint1',), 100.0, ('lite6_traj_controller',)), 'xarm',
         {'controller': 'lite6_traj_controller'}),
        (((), ('panda_joint1', 'panda_joint2'), 1000.0, ('panda_arm_controller',),
               '<robot><link name="panda_link8"/></robot>'), 'franka_fr3',
         {'tool_frame': 'panda_link8', 'controller': 'panda_arm_controller'}),
    ])
    def test_what_differs_from_the_file_is_named(
        self, names: tuple[Any, ...], file: str, edits: dict[str, str]
    ) -> None:
        found = recognised(*names)
        assert found is not None
        assert (found.driver.file, found.edits) == (file, edits)
        remedy = doctor_robot.driver_finding(found, '', 'joint_states').remedy
        assert all(f'{name}: {value}' in remedy for name, value in edits.items())

    def test_the_simulated_arm_is_none_of_them(self) -> None:
        assert recognised(
            ('sim_arm', 'joint_states', 'payload_identification', 'wrench'),
            tuple(f'joint_{n}' for n in range(1, 7)), 500.0, ('joint_trajectory_controller',),
            arm('robocal').urdf) is None


def test_a_good_machine_is_code_0(call: Call) -> None:
    assert '0 bad' in call('doctor', '--machine')


def test_what_is_missing_is_told_with_its_cure(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, '_LIBRARIES', {'not_there_at_all': 'nothing'})
    monkeypatch.setattr(doctor, '_NEEDED', ('not_there_at_all',))
    monkeypatch.setenv('ROS_DOMAIN_ID', 'many')
    message = call('doctor', '--machine', code=1)
    assert 'not_there_at_all: not installed; needed for nothing.' in message
    assert 'scripts/setup' in message
    assert "ROS_DOMAIN_ID is 'many'" in message


class UniversalRobot(Node):
    """What ur_robot_driver publishes, slowly; the F/T sensor comes a second late."""

    def __init__(self, context: Context) -> None:
        super().__init__('controller_manager', context=context, enable_rosout=False)
        robot = Robot(foreign_urdf('ur10_robot.urdf'))
        posture = np.array([0.0, -1.2, 1.2, -0.8, 0.9, 0.0])
        self._joints = JointState(
            name=list(robot.joint_names), position=posture.tolist(), velocity=[0.0] * 6,
            effort=(0.09 * robot.gravity_torque(posture) + 0.1).tolist())
        self._description = self.create_publisher(String, 'robot_description', qos.LATCHED)
        self._description.publish(String(data=robot.urdf))
        self._states = self.create_publisher(JointState, 'joint_states', qos.SENSOR)
        # Computed by a node of this package, so no sensor.
        self._observer = rclpy.create_node('wrench_observer', context=context)
        self._observer.create_publisher(WrenchStamped, 'wrench_observer/tool_wrench', qos.SENSOR)
        self._wrench: Any = None
        self._server = ActionServer(
            self, FollowJointTrajectory, 'scaled_joint_trajectory_controller/'
            'follow_joint_trajectory', lambda goal: None)
        self._late = self.create_timer(1.0, self._begin_late)
        self.create_timer(0.005, self._publish)

    def _begin_late(self) -> None:
        self.destroy_timer(self._late)
        self._wrench = self.create_publisher(
            WrenchStamped, 'force_torque_sensor_broadcaster/wrench', qos.SENSOR)

    def _publish(self) -> None:
        self._joints.header.stamp = self.get_clock().now().to_msg()
        self._states.publish(self._joints)
        if self._wrench is not None:
            message = WrenchStamped()
            message.header.frame_id = 'tool0_controller'
            message.header.stamp = self._joints.header.stamp
            self._wrench.publish(message)


def test_it_answers_the_same_again_and_waits_for_what_appears_late(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_robot, '_STATE_TIMEOUT', 0.3)
    options = build_parser().parse_args(['doctor', '--duration', '0.5'])
    running = Running(int(os.environ['ROS_DOMAIN_ID']), UniversalRobot)
    try:
        # Rates are those of a machine that may be late.
        told = [[(item.what, item.grade is Grade.BAD)
                 for item in doctor_robot.robot_findings(options)] for _ in range(2)]
    finally:
        running.close()
    assert told[0] == told[1]
    whats = [what for what, _ in told[0]]
    assert whats[0] == 'driver'
    assert '/force_torque_sensor_broadcaster/wrench' in whats
    assert not any('observer/' in what for what in whats)
    assert [what for what, bad in told[0] if bad] == []


@pytest.mark.usefixtures('ros')
def test_weights_are_those_of_the_mounting_that_a_node_knows(tmp_path: Path) -> None:
    rig = NodeRig(Leveling, tmp_path, gravity=[9.81, 0.0, 0.0])
    try:
        with RosSession('doctor', watch=lambda: rig.spinner.executor.spin_once(0.0)) as session:
            assert '/leveling' in session.other_nodes()
            assert doctor_robot.Graph(session, '').gravity() == [9.81, 0.0, 0.0]
            assert doctor_robot.Graph(session, 'left').gravity() == STANDARD_GRAVITY
    finally:
        rig.end()


def test_an_empty_graph_is_bad(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_robot, '_DISCOVERY', 0.2)
    # A domain that no test run takes, so nobody is on it.
    monkeypatch.setenv('ROS_DOMAIN_ID', str(10 + os.getpid() % 15))
    code, message = main(['doctor']), capsys.readouterr().out
    if 'graph' not in message:
        pytest.skip('somebody uses this domain')
    assert code == 1
    assert 'compare ROS_DOMAIN_ID' in message


@pytest.mark.parametrize('text', ['x', '-1', '233', '1.0'])
def test_domain_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv('ROS_DOMAIN_ID', text)
    with pytest.raises(ConfigurationError, match='from 0 to 232'):
        doctor.chosen_domain()


FRAMES = ('ft_link_2_proximal', 'ft_link_3_distal', 'ft_wrist')
HOME = np.array([0.1, 0.3, 0.4, 0.0, 0.6, 0.2])
AWAY = np.array([0.1, -0.3, -0.9, 0.4, -0.9, 0.2])
ROBOT = arm('robocal').robot()
REST = np.zeros(6)


def found(
    *postures: np.ndarray, change: Callable[[np.ndarray], np.ndarray] = lambda readings: readings,
    frames: tuple[str, ...] = FRAMES,
) -> list[Finding]:
    """Return the findings on an arm that rests in each posture."""
    draw = np.random.default_rng(0)
    cut = SensedArm(ROBOT, [SensorMount(frame) for frame in frames])
    bias = draw.uniform(-3.0, 3.0, (len(frames), 6)) * np.repeat([1.0, 0.05], 3)
    states, wrenches = [], {f'/{frame}/wrench': [] for frame in frames}
    for posture in postures:
        ideal = cut.in_measurement(-cut.held(posture, REST, REST))
        for _ in range(100):
            states.append(JointState(name=list(ROBOT.joint_names), position=posture.tolist()))
            rows = change(ideal) + bias + draw.normal(0.0, 0.1, bias.shape) * np.repeat(
                [1.0, 0.02], 3)
            for row, frame, readings in zip(rows, frames, wrenches.values(), strict=True):
                message = WrenchStamped(header=Header(frame_id=frame))
                force, torque = message.wrench.force, message.wrench.torque
                force.x, force.y, force.z, torque.x, torque.y, torque.z = row.tolist()
                readings.append(message)
    return list(weight_findings(ROBOT, states, wrenches))


def flip(row: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda readings: readings * np.where(np.arange(len(readings)) == row, -1.0, 1.0)[
        :, None]


ALONE = {'frames': ('ft_wrist',)}


@pytest.mark.parametrize(('postures', 'options', 'grade', 'words'), [
    ((HOME, AWAY), {}, Grade.GOOD, 'Readings are those of the weights'),
    ((HOME,), {'change': flip(0)}, Grade.BAD, "'ft_link_2_proximal' reads the opposite"),
    ((HOME,), {'change': lambda readings: readings[[1, 0, 2]]}, Grade.BAD,
     "'ft_link_2_proximal' and 'ft_link_3_distal' read"),
    # The sign of a light load, and a turned frame, show in a second posture.
    ((HOME,), {**ALONE, 'change': flip(0)}, Grade.WARNING,
     'the sign is unchecked: move the arm to another posture'),
    ((HOME, AWAY), {**ALONE, 'change': flip(0)}, Grade.BAD,
     "between two postures 'ft_wrist' reads the opposite"),
    ((HOME, AWAY), {**ALONE, 'change': lambda readings: readings[:, [1, 2, 0, 4, 5, 3]]},
     Grade.BAD, "while the weight distal to 'ft_wrist' changes by"),
    (np.linspace(HOME, AWAY, 8), {}, Grade.WARNING, 'A joint moved'),
    ((HOME,), {'change': lambda readings: readings + [0.0, 0.0, -60.0, 0.0, 0.0, 0.0]},
     Grade.WARNING, 'A tare would be refused'),
])
def test_sensors_are_compared_with_the_weights_distal_to_them(
    postures: Sequence[np.ndarray], options: dict[str, Any], grade: Grade, words: str
) -> None:
    item, *others = found(*postures, **options)
    assert item.grade is grade
    assert words in item.message
    # A wrong frame is one of several findings.
    assert not others or 'while' in words
    if ' read' in words and grade is Grade.BAD:
        assert '/ft_wrist/wrench (ft_wrist)' in item.remedy
