# SPDX-License-Identifier: Apache-2.0
"""The simulated arm as hardware of the real controllers: the same physics behind both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from control_msgs.action import FollowJointTrajectory
from rclpy.action import ActionClient
from rclpy.duration import Duration
from sensor_msgs.msg import JointState
from support.live_graph import JOINTS, ROOT, Client
from support.real_control import Shell, needs_real_control
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from robocal_ros import registry
from robocal_ros.messages import qos

pytestmark = needs_real_control('joint_state_topic_hardware_interface')

PUSH = 20.0


def test_every_capability_finds_the_hidden_truth(tmp_path: Path) -> None:
    # In a domain of its own.
    environment = {name: text for name, text in os.environ.items() if name != 'ROS_DOMAIN_ID'}
    done = subprocess.run(
        [sys.executable, '-m', 'demo', '--controller', 'real', '-o', str(tmp_path)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800.0, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    found = json.loads((tmp_path / 'summary.json').read_text())
    assert {item['capability'] for item in found} == {
        item.name for item in registry.capabilities()}
    assert 'Goal reached, success!' in (tmp_path / 'logs' / 'ros2_control_node.log').read_text()


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
