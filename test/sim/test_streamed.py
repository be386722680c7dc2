# SPDX-License-Identifier: Apache-2.0
"""`sim_arm` as the hardware of a controller in another process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from support.live_graph import JOINTS, seconds
from support.ros_rig import Log, Spinner

from robocal_ros.errors import ConfigurationError
from robocal_sim import node as sim_node
from robocal_sim.node import SimArm

pytestmark = pytest.mark.usefixtures('ros')

RATE = 250.0


class Commander:
    """Commands a slow sine of joint_1 at every tick of the clock, as hardware of ros2_control."""

    def __init__(self) -> None:
        self.node = rclpy.create_node('commander', namespace='streamed')
        self.ticks: list[float] = []
        self.states: list[tuple[float, float]] = []
        self.silent = False
        # Ticks that it will miss, as threads that sleep by rclcpp's clock may.
        self.missed = 0
        self._publisher = self.node.create_publisher(JointState, 'joint_commands', 1)
        # As rclcpp's clocks: messages may be lost.
        self.node.create_subscription(
            Clock, '/clock', self._on_clock,
            QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT))
        self.node.create_subscription(JointState, 'joint_states', self._on_state, 10)

    def _on_clock(self, message: Clock) -> None:
        now = seconds(message.clock)
        if self.silent or (self.ticks and now <= self.ticks[-1]):
            return
        self.ticks.append(now)
        if self.missed:
            self.missed -= 1
            return
        command = JointState(name=list(JOINTS), position=[self.wanted(now)] + 5 * [np.nan])
        self._publisher.publish(command)

    def _on_state(self, message: JointState) -> None:
        self.states.append((seconds(message.header.stamp), message.position[0]))

    def wanted(self, now: float) -> float:
        return 0.2 * (1.0 - np.cos(2.0 * (now - self.ticks[0])))


@pytest.fixture
def arm() -> Iterator[SimArm]:
    node = SimArm([Parameter('command_rate', value=RATE), Parameter('real_time_factor', value=0.0),
                   Parameter('joint_states_rate', value=125.0)], 'streamed')
    yield node
    node.destroy_node()


def test_each_cycle_waits_for_its_command(arm: SimArm, monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine is not late before these, and not reminded.
    monkeypatch.setattr(sim_node, 'COMMAND_TIMEOUT', 60.0)
    monkeypatch.setattr(sim_node, 'REMIND_AFTER', 5.0)
    log, commander = Log(arm), Commander()
    executor = SingleThreadedExecutor()
    executor.add_node(arm)
    stopped = threading.Event()
    thread = threading.Thread(target=arm.run, args=(executor, stopped.is_set))
    with Spinner(commander.node) as spinner:
        thread.start()
        spinner.until(lambda: commander.ticks and commander.ticks[-1] > commander.ticks[0] + 3.0)
        # Until the arm has heard of the first command, time passes without.
        ticks = np.diff(commander.ticks[-500:])
        assert ticks == pytest.approx(1.0 / RATE, abs=1e-9)
        moved = commander.states[-100:]
        # Two cycles late.
        assert [angle for _, angle in moved] == pytest.approx(
            [commander.wanted(time - 2.0 / RATE) for time, _ in moved], abs=2e-3)

        monkeypatch.setattr(sim_node, 'REMIND_AFTER', 0.02)
        commander.missed, last = 3, commander.ticks[-1]
        spinner.until(lambda: commander.ticks[-1] > last + 0.1)
        assert commander.missed == 0
        assert not log['warning']

        monkeypatch.setattr(sim_node, 'COMMAND_TIMEOUT', 0.5)
        commander.silent = True
        last = commander.ticks[-1]
        spinner.until(lambda: commander.states[-1][0] > last + 1.0)
        held = [angle for time, angle in commander.states if time > last + 0.5]
        assert np.ptp(held) < 1e-4
        assert log['warning'] == [
            'No command on joint_commands for 0.5 s: the arm holds its posture, and simulated '
            'time does not wait until the next one comes.']
        stopped.set()
        thread.join()
    executor.shutdown()


@pytest.mark.parametrize('values', [
    {'speed_scaling': 0.5}, {'controller_active': False}, {'fault': 'imu_silent,controller_gone'}])
def test_what_belongs_to_the_own_controller_is_refused(
    arm: SimArm, values: dict[str, Any]
) -> None:
    name, value = next(iter(values.items()))
    result = arm.set_parameters([Parameter(name, value=value)])[0]
    assert not result.successful
    assert 'command_rate' in result.reason
    assert arm.set_parameters([Parameter('fault', value='imu_silent')])[0].successful


def test_there_is_no_action_beside_the_other_controller(arm: SimArm) -> None:
    names = {name for name, _ in arm.get_service_names_and_types_by_node('sim_arm', '/streamed')}
    assert not [name for name in names if 'follow_joint_trajectory' in name]


def test_rate_of_commands_is_checked() -> None:
    with pytest.raises(ConfigurationError, match='command_rate is 300'):
        SimArm([Parameter('command_rate', value=300.0)], 'streamed')
