# SPDX-License-Identifier: Apache-2.0
"""`robocal guide`: postures by Enter, what they tell, and what is refused."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from rclpy.context import Context
from rclpy.node import Node
from sensor_msgs.msg import JointState
from support.fake_procedure import Running
from support.fixtures import Call

from benchmarks.geometry import Cell
from benchmarks.second_world import ARMS, urdf_of
from robocal_ros.messages import qos

DOMAIN = int(os.environ['ROS_DOMAIN_ID'])
CELL = Cell(1)


class Guided(Node):
    """Publishes the joint states of an arm that a hand moves."""

    def __init__(self, context: Context) -> None:
        super().__init__('guided', context=context, enable_rosout=False)
        self.posture, self.speed, self._count = np.zeros(len(CELL.arm.joints)), 0.0, 0
        self._joints = self.create_publisher(JointState, 'joint_states', qos.SENSOR)
        self.timer = self.create_timer(0.01, self._publish)

    def wait(self, messages: int = 100) -> None:
        """Wait until so many further joint states have been published."""
        end = self._count + messages
        while self._count < end:
            time.sleep(0.05)

    def _publish(self) -> None:
        self._count += 1
        self.posture = self.posture + 0.01 * self.speed
        # As drivers do, in another order and with another joint.
        message = JointState(name=[*CELL.arm.joints[::-1], 'gripper'],
                             position=[*self.posture[::-1].tolist(), 0.0])
        message.header.stamp.sec, rest = divmod(self._count, 100)
        message.header.stamp.nanosec = rest * 10_000_000
        self._joints.publish(message)


@pytest.fixture
def arm() -> Iterator[Guided]:
    running = Running(DOMAIN, Guided)
    yield running.node
    running.close()


@pytest.fixture
def urdf(tmp_path: Path) -> Path:
    path = tmp_path / 'arm.urdf'
    path.write_text(urdf_of(CELL.name), encoding='utf-8')
    return path


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Types into the program."""
    read, write = os.pipe()
    with os.fdopen(read) as keyboard, os.fdopen(write, 'w') as typed:
        monkeypatch.setattr('sys.stdin', keyboard)
        yield lambda text: print(text, file=typed, flush=True)


def test_each_enter_writes_a_line_and_says_what_it_tells(
    arm: Guided, hand: Callable[[str], None], urdf: Path, tmp_path: Path, call: Call
) -> None:
    folder = tmp_path / 'sockets'
    first, second = ([q for q in item.posture if (q > CELL.arm.lower).all()
                      and (q < CELL.arm.upper).all()] for item in Cell(1).sockets().sets[:2])
    (folder / 'left').mkdir(parents=True)
    for postures, name in ((first, 'left/hole_0'), (second, 'left/hole_1')):
        np.savetxt(folder / f'{name}.csv', postures[:10], delimiter=',')
    path = folder / 'left' / 'hole_1.csv'

    def guide() -> None:
        for number, posture in enumerate(second[10:12], start=11):
            arm.posture = posture
            arm.wait()
            hand('')
            end = time.monotonic() + 60.0
            while len(path.read_text().splitlines()) < number and time.monotonic() < end:
                time.sleep(0.05)
        # The next Enter finds the arm moving.
        arm.speed = 0.1
        arm.wait()
        hand('')
        arm.timer.cancel()
        time.sleep(2.0)
        hand('')
        hand('q')

    thread = threading.Thread(target=guide, daemon=True)
    thread.start()
    told = call('guide', folder, 'left/hole_1', '--urdf', urdf, '-p',
                f'target_xyz:={CELL.stated.tolist()}', '-p',
                f'tool_frame:={ARMS[CELL.name].tool}', '--results-dir', tmp_path / 'none')
    thread.join()
    written = np.loadtxt(path, delimiter=',')
    np.testing.assert_allclose(written[10:], second[10:12], atol=1e-5)
    told = ' '.join(told.split())
    assert '12 written, 0.' in told
    assert 'mm from the others.' in told
    assert 'parameters are known; more can be told of' in told
    assert told.count('next, for example:') == 6
    assert 'moved by' in told
    assert "No joint states on '/joint_states' for" in told
    assert told.count('Nothing was written') == 2


def test_without_joint_states_it_says_so(urdf: Path, tmp_path: Path, call: Call) -> None:
    told = call('guide', tmp_path / 'sockets', 'left/hole_0', '--urdf', urdf, '--timeout', 0.5,
                '-p', f'tool_frame:={ARMS[CELL.name].tool}', code=2)
    assert 'No joint states with' in told
    assert '--namespace' in told
