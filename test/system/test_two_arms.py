# SPDX-License-Identifier: Apache-2.0
"""Two arms in two namespaces at once, started as the launch file starts them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import JointState
from support import ROOT
from support.launch_stand_in import Started, launched
from support.live_graph import Client, as_launched

from robocal_ros import launching

SIDES = ('left', 'right')
NODE = 'payload_identification'
SETTINGS = {'state_timeout': 5.0, 'connect_timeout': 20.0}


def started(folder: Path, namespace: str, settings: dict[str, Any], **arguments: str
            ) -> list[Started]:
    """Return what the launch file starts with these arguments."""
    file = folder / f'{namespace}.yaml'
    file.write_text(yaml.safe_dump({f'/**/{NODE}': {'ros__parameters': {
        **settings, 'method': 'static_poses', 'results_dir': str(folder / namespace)}}}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launching, 'is_installed', lambda _: False)
        return launched(patch, 'bringup.launch.py', nodes=NODE, namespace=namespace,
                        params_file=str(file), real_time_factor='0.0', **arguments).started


@pytest.fixture(scope='module')
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two simulated arms with a node each, and two nodes in wrong places; yields their folder."""
    folder = tmp_path_factory.mktemp('two_arms')
    robot = str(ROOT / 'urdf' / 'robocal_arm.urdf.xacro')
    asked = [started(folder, side, SETTINGS, hardware='sim') for side in SIDES]
    asked += [
        started(folder, 'wrong', {'connect_timeout': 3.0}, hardware='real', robot=robot),
        started(folder, 'lost', {'description_timeout': 10.0}, hardware='real')]
    with ExitStack() as stack:
        children = [stack.enter_context(as_launched(item, folder))
                    for one in asked for item in one]
        yield folder
        # All at once: each takes a second to end.
        for one in children:
            one.send(signal.SIGTERM)


class Postures:
    """Where an arm is, and how far it has come."""

    def __init__(self, client: Client, side: str) -> None:
        self.received: list[tuple[float, ...]] = []
        client.node.create_subscription(
            JointState, f'/{side}/joint_states',
            lambda state: self.received.append(tuple(state.position)), qos_profile_sensor_data)

    @property
    def travel(self) -> float:
        return float(np.ptp(np.array(self.received), axis=0).max()) if self.received else 0.0


def test_cancelling_one_arm_does_not_stop_the_other(client: Client, graph: Path) -> None:
    left, right = (Postures(client, side) for side in SIDES)
    client.until(lambda: left.received and right.received, what='both arms')
    for side in SIDES:
        client.until(lambda side=side: client.state(f'{side}/{NODE}') == 'active', what=side)
    answers = {side: client.begin('run', f'{side}/{NODE}') for side in SIDES}
    client.until(lambda: min(left.travel, right.travel) > 0.05, what='motion of both arms')
    assert client.call('cancel', f'left/{NODE}').success
    answer = client.wait(answers['left'])
    assert not answer.success
    assert 'Cancelled on request' in answer.message
    assert not answers['right'].done()
    left.received.clear()
    right.received.clear()
    client.until(lambda: right.travel > 0.05, what='motion of the right arm')
    assert left.travel < 1e-3
    assert client.call('cancel', f'right/{NODE}').success
    client.wait(answers['right'])


def test_there_is_one_clock_for_each_arm(client: Client, graph: Path) -> None:
    client.until(
        lambda: {'/left/clock', '/right/clock'}
        <= {name for name, _ in client.node.get_topic_names_and_types()}, what='the clocks')
    assert not client.node.count_publishers('/clock')


def test_in_the_wrong_namespace_the_answer_names_the_arms(client: Client, graph: Path) -> None:
    client.until(lambda: client.state(f'wrong/{NODE}') == 'active', what='the node')
    answer = client.call('run', f'wrong/{NODE}')
    assert not answer.success
    assert "No publisher on '/wrong/joint_states'" in answer.message
    assert '/left/joint_states, /right/joint_states' in answer.message


def test_without_a_description_the_log_names_the_arms(client: Client, graph: Path) -> None:
    log = graph / f'lost_{NODE}.log'
    client.until(lambda: 'Waiting for the robot' in log.read_text(), what='the reminder')
    assert '/left/robot_description, /right/robot_description' in log.read_text()
