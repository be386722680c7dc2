# SPDX-License-Identifier: Apache-2.0
"""The simulated arm as hardware of the real controllers: the same physics behind both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from control_msgs.action import FollowJointTrajectory
from rclpy.action import ActionClient
from rclpy.duration import Duration
from sensor_msgs.msg import JointState
from support.live_graph import JOINTS, ROOT, Client
from support.real_control import Shell, needs_real_control
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from demo import default_cell
from demo.compliance import SHORT as COMPLIANCE, compliance_truth, known_load
from demo.friction import SHORT as FRICTION, friction_truth
from demo.leveling import LevelingTour
from demo.stage import open_stage
from demo.tour import compare
from robocal_ros import registry
from robocal_ros.messages import qos
from robocal_ros.results import Verdict, read_result
from robocal_ros.robot import Robot

pytestmark = needs_real_control('joint_state_topic_hardware_interface')

PUSH = 20.0


def test_the_demo_starts_ros2_control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In a domain of its own.
    monkeypatch.delenv('ROS_DOMAIN_ID', raising=False)
    with open_stage(tmp_path, 1, full=False, real_controller=True) as stage:
        outcome, = LevelingTour().run(stage)
    assert outcome.passed, outcome.message
    assert 'Goal reached, success!' in (tmp_path / 'logs' / 'ros2_control_node.log').read_text()


def test_every_procedure_finds_the_hidden_truth(tmp_path: Path, ros: None) -> None:
    """By `ros2 launch` and `ros2 service call`; short runs, of some joints and postures."""
    truth = default_cell.hidden_truth()
    known = yaml.safe_load((ROOT / 'config' / 'sim' / 'nodes.yaml').read_text())
    files = {
        **known, '/**': {'ros__parameters': {
            'results_dir': str(tmp_path / 'results'), 'state_timeout': 5.0}},
        '/**/friction_identification': {'ros__parameters': {
            **FRICTION, 'measure_joints': ['joint_6']}},
        '/**/compliance_calibration': {'ros__parameters': {
            **known_load(truth), **COMPLIANCE, 'attach_service': 'sim_arm/attach_load',
            'detach_service': 'sim_arm/detach_load'}}}
    (tmp_path / 'mine.yaml').write_text(yaml.safe_dump(files))
    shell, client = Shell(tmp_path / 'shell'), Client()
    with shell.launch('bringup.launch.py', controller='real', real_time_factor='0.0',
                      params_file=str(tmp_path / 'mine.yaml')) as launched:
        client.until(lambda: launched.has_controllers, what='the controller')
        for node in registry.nodes():
            client.until(lambda node=node: client.state(node) == 'active', what=node)
        for verb in ('payload_identification/run', 'friction_identification/run',
                     'compliance_calibration/run', 'wrench_observer/tare',
                     'wrench_observer/zero', 'leveling/run'):
            success, message = shell.call(f'/{verb}').answer(600.0)
            assert success, (verb, message)
    client.close()
    robot, tool = Robot(default_cell.urdf()), truth.tool
    assert tool is not None
    for kind, hidden in {
        'payload': lambda found: default_cell.payload_truth(tool, robot, found.frame),
        'friction': lambda _: friction_truth(truth, ['joint_6']),
        'compliance': lambda found: compliance_truth(truth, found),
    }.items():
        result = read_result(next((tmp_path / 'results').rglob(f'{kind}.yaml')))
        assert result.verdict is Verdict.PASS
        compared = compare(result, hidden(result))
        assert len(compared) >= 4
        assert all(item.covered for item in compared), compared


def test_efforts_of_trajectories_reach_the_drives(tmp_path: Path, ros: None) -> None:
    text = (ROOT / 'config' / 'controllers.yaml').read_text()
    controllers = tmp_path / 'controllers.yaml'
    controllers.write_text(text.replace(
        'command_interfaces: [position]', 'command_interfaces: [position, effort]', 1))
    shell, client, heard = Shell(tmp_path / 'shell'), Client(), []
    client.node.create_subscription(JointState, '/joint_states', heard.append, qos.RELIABLE)
    action = ActionClient(client.node, FollowJointTrajectory,
                          '/joint_trajectory_controller/follow_joint_trajectory')

    def holds(effort: float) -> float:
        """Hold the arm for a while; return the largest change of joint_2's torque [N·m]."""
        points = [JointTrajectoryPoint(
            positions=[0.0] * 6, velocities=[0.0] * 6, effort=[0.0, effort, 0.0, 0.0, 0.0, 0.0],
            time_from_start=Duration(seconds=at).to_msg()) for at in (0.01, 0.5)]
        handle = client.wait(action.send_goal_async(FollowJointTrajectory.Goal(
            trajectory=JointTrajectory(joint_names=list(JOINTS), points=points))))
        assert handle.accepted
        heard.clear()
        assert client.wait(handle.get_result_async()).result.error_code == 0
        return float(np.ptp([state.effort[JOINTS.index('joint_2')] for state in heard]))

    with shell.launch('bringup.launch.py', controller='real', nodes='none', truth_file='none',
                      cell_file='none', controllers_file=str(controllers)) as launched:
        client.until(lambda: launched.has_controllers, what='the controller')
        client.until(action.server_is_ready, what='the action')
        client.until(lambda: bool(heard), what='joint states')
        assert holds(0.0) < 0.5
        # Until the position loop takes it back.
        assert holds(PUSH) > 0.2 * PUSH
    client.close()
