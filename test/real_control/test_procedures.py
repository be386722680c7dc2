# SPDX-License-Identifier: Apache-2.0
"""The procedures on the real controllers with mock hardware, and how faults end them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from control_msgs.action import FollowJointTrajectory
from lifecycle_msgs.msg import Transition
from rclpy.action import ActionClient
from rclpy.duration import Duration
from support.arms import arm
from support.live_graph import JOINTS, Client, Process
from support.real_control import Call, Command, Postures, Shell, needs_real_control
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from robocal_ros import registry

pytestmark = needs_real_control()

CONTROLLER = 'joint_trajectory_controller'
BROADCASTER = 'joint_state_broadcaster'
TILTED = np.array([0.3, 0.4, 0.3, 0.6, 0.9, 0.2])
# A turn of some 4 s, so that faults come in mid-motion.
SLOW = {'speed_scale': 0.3}
# What the procedures lack on hardware without physics.
REFUSED = {
    'payload_identification/preview': 'efforts of all joints',
    'payload_identification/run': 'ffort of joint',
    'friction_identification/run': 'ffort of joint',
    'compliance_calibration/run': 'mount the load',
    'wrench_observer/run': 'same values',
}
# Longest time from a fault to standstill, and to the answer of the caller [s].
REST, ANSWER = 0.1, 1.0


class Cell(Client):
    """The controllers on mock hardware, started by the launch file, and a client."""

    def __init__(self, shell: Shell, launched: Command, namespace: str = '') -> None:
        super().__init__()
        self.shell, self.namespace = shell, namespace
        self.states = Postures(self.node, namespace)
        self.action = ActionClient(self.node, FollowJointTrajectory,
                                   f'{namespace}/{CONTROLLER}/follow_joint_trajectory')
        self.until(lambda: launched.has_controllers, what='the controllers')
        self.until(self.action.server_is_ready, what='the action')
        self.until(lambda: self.states, what='joint states')

    @property
    def posture(self) -> np.ndarray:
        return self.states.newest

    def go_to(self, posture: np.ndarray) -> None:
        """Move the arm without a node."""
        goal = FollowJointTrajectory.Goal(trajectory=JointTrajectory(
            joint_names=list(JOINTS), points=[JointTrajectoryPoint(
                positions=posture.tolist(),
                time_from_start=Duration(seconds=2.0).to_msg())]))
        handle = self.wait(self.action.send_goal_async(goal))
        assert handle.accepted
        assert self.wait(handle.get_result_async()).result.error_code == 0
        self.until(lambda: np.abs(self.posture - posture).max() < 1e-3)

    def switch(self, *, on: str = '', off: str = '') -> Any:
        """Request the activation or deactivation of a controller."""
        from controller_manager_msgs.srv import SwitchController

        client = self._client(
            SwitchController, f'{self.namespace}/controller_manager/switch_controller')
        return client.call_async(SwitchController.Request(
            activate_controllers=[on] if on else [], deactivate_controllers=[off] if off else [],
            strictness=SwitchController.Request.STRICT))

    def until_moving(self) -> None:
        begin = self.posture
        self.until(lambda: np.abs(self.posture - begin).max() > 0.05, what='the motion')

    def tilt(self) -> float:
        """Return the angle between the tool's z axis and the vertical [rad]."""
        robot = arm('robocal').robot()
        axis = robot.pose_and_jacobian(self.posture, 'tool0', np.zeros(3))[0][:, 2]
        return float(np.arccos(np.clip(abs(axis[2]), 0.0, 1.0)))


@pytest.fixture(scope='module')
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    made = Shell(tmp_path_factory.mktemp('ros2'))
    yield made
    made.close()


# These launches come first: that of `cell` stays until the end, in the root namespace too.

def test_two_arms_are_leveled_at_once(shell: Shell, ros: None) -> None:
    one_arm = {'hardware': 'mock', 'nodes': 'leveling'}
    with shell.launch('bringup.launch.py', **one_arm, namespace='left') as left, \
            shell.launch('bringup.launch.py', **one_arm, namespace='right') as right:
        cells = [Cell(shell, left, '/left'), Cell(shell, right, '/right')]
        for one in cells:
            one.until(lambda one=one: one.state(f'{one.namespace[1:]}/leveling') == 'active')
            one.go_to(TILTED)
        calls = [shell.call(f'{one.namespace}/leveling/run') for one in cells]
        for one, call in zip(cells, calls, strict=True):
            success, message = call.answer()
            assert success, message
            one.until(lambda one=one: one.tilt() < 1e-3)
        for one in cells:
            one.close()


def test_mock_hardware_serves_previews_and_other_procedures_refuse_it(
    shell: Shell, tmp_path: Path, ros: None
) -> None:
    parameters = tmp_path / 'parameters.yaml'
    parameters.write_text(yaml.safe_dump({'/**': {'ros__parameters': {
        'results_dir': str(tmp_path)}}, '/**/payload_identification': {'ros__parameters': {
            'known_mass': 2.0}}, '/**/compliance_calibration': {'ros__parameters': {
                'load_mass': 10.0, 'load_com': [0.0, 0.0, 0.1]}}}))
    with shell.launch(
        'bringup.launch.py', hardware='mock', params_file=str(parameters)
    ) as launched:
        one = Cell(shell, launched)
        for name in registry.nodes():
            one.until(lambda name=name: one.state(name) == 'active', what=f'active {name}')
        before, answers = one.posture, {}
        for name in registry.nodes():
            if name != 'wrench_observer':
                answers[f'{name}/preview'] = shell.call(f'/{name}/preview').answer()
            if name != 'leveling':
                answers[f'{name}/run'] = shell.call(f'/{name}/run').answer()
        one.states.clear()
        one.until(lambda: len(one.states))
        np.testing.assert_allclose(one.posture, before, atol=1e-6)
        one.close()
    for name, (success, message) in answers.items():
        assert success == (name not in REFUSED), (name, message)
        assert REFUSED.get(name, '') in message


def test_ctrl_c_ends_the_launch_and_answers(shell: Shell, ros: None) -> None:
    with shell.launch('bringup.launch.py', hardware='mock', nodes='leveling') as launched:
        one = Cell(shell, launched)
        one.until(lambda: one.state('leveling') == 'active')
        one.go_to(TILTED)
        call = shell.call('/leveling/run')
        one.until_moving()
        launched.send(signal.SIGINT)
        success, _ = call.answer(10.0)
        assert not success
        assert launched.end() == 0
        one.close()


@pytest.fixture(scope='module')
def cell(shell: Shell, tmp_path_factory: pytest.TempPathFactory, ros: None) -> Iterator[Cell]:
    parameters = tmp_path_factory.mktemp('cell') / 'parameters.yaml'
    parameters.write_text(yaml.safe_dump({'/**': {'ros__parameters': {
        'results_dir': str(parameters.parent)}}, '/**/leveling': {'ros__parameters': SLOW}}))
    with shell.launch('bringup.launch.py', hardware='mock', nodes='leveling',
                      params_file=str(parameters)) as launched:
        made = Cell(shell, launched)
        made.until(lambda: made.state('leveling') == 'active')
        yield made
        made.close()


def test_a_tool_is_leveled_in_place(cell: Cell) -> None:
    cell.go_to(TILTED)
    assert cell.tilt() > 0.1
    success, message = cell.shell.call('/leveling/run').answer()
    assert success, message
    cell.until(lambda: cell.tilt() < 1e-3, what='the posture of the level tool')


class Fault:
    """Something that ends a motion, and what makes good again."""

    def __init__(self, said: str, do: Callable[[Cell], Any], repair: Callable[[Cell], Any]):
        self.said, self.do, self.repair = said, do, repair


FAULTS = {
    'cancel': Fault('Cancelled on request', lambda cell: cell.begin('cancel', 'leveling'),
                    lambda cell: None),
    'node deactivated': Fault(
        'deactivated', lambda cell: cell.change(Transition.TRANSITION_DEACTIVATE, 'leveling'),
        lambda cell: cell.change(Transition.TRANSITION_ACTIVATE, 'leveling')),
    'controller deactivated': Fault(
        'ended the motion', lambda cell: cell.switch(off=CONTROLLER),
        lambda cell: cell.wait(cell.switch(on=CONTROLLER))),
    'joint states silent': Fault(
        'No joint states received', lambda cell: cell.switch(off=BROADCASTER),
        lambda cell: cell.wait(cell.switch(on=BROADCASTER))),
}


def answered(cell: Cell, call: Call, began: float) -> tuple[str, float]:
    """Wait for the answer while the arm is watched; return it and its time since the fault."""
    cell.until(lambda: 'Trigger_Response' in call.said, what='the answer')
    delay = time.monotonic() - began
    success, message = call.answer()
    assert not success
    return message, delay


@pytest.mark.parametrize('name', FAULTS)
def test_the_arm_rests_and_the_caller_hears_soon_after(cell: Cell, name: str) -> None:
    fault = FAULTS[name]
    cell.go_to(TILTED)
    call = cell.shell.call('/leveling/run')
    cell.until_moving()
    cell.states.clear()
    began = time.monotonic()
    fault.do(cell)
    message, delay = answered(cell, call, began)
    quiet = time.monotonic()
    cell.until(lambda: time.monotonic() > quiet + 0.5)
    # A deactivation of the broadcaster takes some cycles.
    begin = cell.states.newest_state if name == 'joint states silent' else began
    fault.repair(cell)
    cell.until(lambda: cell.state('leveling') == 'active')
    assert fault.said in message
    assert cell.states.last_motion() - begin <= REST
    assert delay <= ANSWER + (begin - began)


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_the_end_of_a_node_ends_its_motion(
    cell: Cell, tmp_path: Path, number: signal.Signals
) -> None:
    cell.go_to(TILTED)
    assert cell.change(Transition.TRANSITION_DEACTIVATE, 'leveling')
    with Process('robocal_ros.leveling.node', tmp_path / 'log', name='leveling_2', autostart=True,
                 results_dir=tmp_path, **SLOW) as process:
        cell.until(lambda: cell.state('leveling_2') == 'active')
        call = cell.shell.call('/leveling_2/run')
        cell.until_moving()
        cell.states.clear()
        began = time.monotonic()
        process.send(number)
        message, delay = answered(cell, call, began)
        assert process.end() == 0
    cell.until(lambda: time.monotonic() > began + 2.0)
    assert cell.change(Transition.TRANSITION_ACTIVATE, 'leveling')
    assert 'shut down' in message
    assert cell.states.last_motion() - began <= REST
    assert delay <= ANSWER
