# SPDX-License-Identifier: Apache-2.0
"""The leveling node moves the simulated arm: the tool ends level where it was, or nothing moves.

One arm and one node go through all of it; between the tests another client takes the arm to a
posture whose tool is tilted.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from action_msgs.msg import GoalStatus
from support.live_cell import AT_REST, LEVELING, Cell, live_cell
from support.live_graph import JOINTS, Client, phase, start_node, trajectory
from support.ros_rig import arm_urdf

from robocal_ros.leveling import Tool, tilt
from robocal_ros.messages import conversions
from robocal_ros.robot import Robot, quintic_path

# Of the wall clock, which a late machine must not exceed while all is well.
STATE_TIMEOUT = 5.0
UP = np.array([0.0, 0.0, 1.0])
TILTED = np.array([0.3, 0.4, 0.3, 0.6, 0.9, 0.2])


@dataclass(kw_only=True)
class Tilted(Cell):
    """The cell, and what is known of its tool."""

    tool: Tool
    states: list[tuple[float, Any]]

    @property
    def posture(self) -> np.ndarray:
        """The newest posture."""
        count = len(self.states)
        self.client.until(lambda: len(self.states) > count, what='joint states')
        state = self.states[-1][1]
        angles = dict(zip(state.name, state.position, strict=True))
        return np.array([angles[name] for name in JOINTS])

    def send(self, goal: np.ndarray) -> Any:
        """Have another client move the arm; return the handle of its goal."""
        path = quintic_path(np.array([self.posture, goal]), np.full(6, 2.0), np.full(6, 6.0))
        return self.client.send(conversions.to_joint_trajectory(path, JOINTS))

    def take_to(self, goal: np.ndarray) -> None:
        """Have another client move the arm, and see it rest there."""
        result = self.client.wait(self.send(goal).get_result_async())
        assert result.status == GoalStatus.STATUS_SUCCEEDED
        self.client.until(lambda: np.abs(self.posture - goal).max() < AT_REST,
                          what='the arm at its goal')
        assert self.client.travel() < AT_REST

    def tilt(self) -> float:
        return tilt(self.tool.pose(self.posture)[0], UP, 'nearest')

    def point(self) -> np.ndarray:
        return self.tool.pose(self.posture)[1]

    def await_moving(self) -> None:
        """Wait until the arm has begun to move at the node's command."""
        start = self.posture
        self.client.until(
            lambda: np.abs(self.posture - start).max() > 0.02, what='motion of the arm')


def refused_before_moving(cell: Tilted, *words: str) -> None:
    before = cell.posture
    cell.ends(cell.begin('level'), *words)
    assert np.abs(cell.posture - before).max() < AT_REST


@pytest.fixture(scope='module')
def shared(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tilted]:
    with live_cell(
        client, tmp_path_factory.mktemp('leveling'), partial(start_node, LEVELING), LEVELING,
        arm={'initial_positions': TILTED.tolist()}, connect_timeout=3.0, description_timeout=60.0,
        state_timeout=STATE_TIMEOUT, imu_topic='imu_flange/imu', auto_level_box=[3.0, 0.8, 3.0],
    ) as made, client.watching() as states:
        yield Tilted(**vars(made), tool=Tool(Robot(arm_urdf())), states=states)


@pytest.fixture
def cell(shared: Tilted) -> Iterator[Tilted]:
    """The cell without faults, its tool tilted."""
    if np.abs(shared.posture - TILTED).max() > AT_REST:
        shared.take_to(TILTED)
    yield shared
    shared.fault('none')
    shared.client.set('sim_arm', controller_active=True)
    assert shared.arm.running
    assert shared.node.running


def test_level_and_level_again(cell: Tilted) -> None:
    point = cell.point()
    assert cell.tilt() == pytest.approx(np.radians(26.5), abs=1e-3)
    before = cell.client.call('estimate', LEVELING)
    assert re.search(r'tilted by 26\.5°.* The IMU measures a tilt of 26\.\d°', before.message)
    first = len(cell.states)
    answer = cell.client.call('run', LEVELING)
    assert answer.success, answer.message
    angles = np.array([state.position for _, state in cell.states[first:]])
    away = np.linalg.norm(cell.tool.poses(angles)[1] - point, axis=1)
    # A drive's encoder sees its own wind-up for a sample or two where the motion sets in.
    assert np.sort(away)[-4] <= 5e-4
    assert away.max() <= 1e-3
    assert np.degrees(cell.tilt()) <= 0.05
    assert np.linalg.norm(cell.point() - point) <= 5e-4
    told = re.search(r'residual tilt ([\d.]+)°, drift of the tool point ([\d.]+) mm, '
                     r'at most ([\d.]+) mm during the motion\. '
                     r'The IMU measures a tilt of ([\d.]+)°', answer.message)
    assert told, answer.message
    residual, drift, on_way, felt = (float(number) for number in told.groups())
    assert residual <= 0.05
    assert drift <= on_way <= 0.5
    assert felt < 0.2
    cell.await_phase('idle')
    before = cell.posture
    again = cell.call('level')
    assert again.success
    assert 'level already' in again.message
    assert 'Nothing was moved' in again.message
    assert np.abs(cell.posture - before).max() < AT_REST


def test_cancel_during_the_motion_holds_the_arm(cell: Tilted) -> None:
    cell.client.set('sim_arm', speed_scaling=0.3)
    try:
        call = cell.begin('level')
        cell.await_moving()
        assert cell.client.call('cancel', LEVELING).message == 'level was ended.'
        cell.ends(call, 'Cancelled on request', 'The arm is held')
        assert np.degrees(cell.tilt()) > 0.05
    finally:
        cell.client.set('sim_arm', speed_scaling=1.0)
    answer = cell.call('level')
    assert answer.success, answer.message


def test_a_silent_imu_is_noticed_before_moving(cell: Tilted) -> None:
    cell.client.set(LEVELING, state_timeout=2.0)
    cell.fault('imu_silent')
    stale = time.monotonic() + 2.5
    cell.client.until(lambda: time.monotonic() > stale)
    refused_before_moving(cell, 'No readings received on IMU topic', 'was not moved')
    cell.client.set(LEVELING, state_timeout=STATE_TIMEOUT)


def test_silent_joint_states_during_the_motion(cell: Tilted) -> None:
    cell.client.set('sim_arm', speed_scaling=0.3)
    call = cell.begin('level')
    cell.await_moving()
    cell.fault('joint_states_silent')
    cell.wait(call)
    cell.fault('none')
    cell.client.set('sim_arm', speed_scaling=1.0)
    cell.ends(call, 'No joint states received for', 'The motion was cancelled')


def test_while_another_client_moves_the_arm(cell: Tilted) -> None:
    # Positions alone: the controller goes there at a constant speed, for minutes.
    far = TILTED + np.array([0.0, 0.0, 0.0, 0.0, 0.0, -6.0])
    handle = cell.client.send(trajectory((250.0, far)))
    cell.await_moving()
    answer = cell.call('level')
    cell.client.wait(handle.cancel_goal_async())
    assert not answer.success
    assert 'executes a goal of another client' in answer.message


class TestByRule:
    @pytest.fixture
    def elsewhere(self, shared: Tilted) -> Iterator[Tilted]:
        """The tool tilted outside of the region, with rules."""
        assert shared.configure(auto_level_after=['base_link', 'carry'])
        outside = np.array([1.5, 0.4, 0.3, 0.6, 0.9, 0.2])
        assert abs(shared.tool.pose(outside)[1][1]) > 0.45
        shared.client.statuses[LEVELING].clear()
        shared.take_to(outside)
        yield shared
        assert shared.configure(auto_level_after=[''])

    def test_only_in_the_region_and_only_after_success(self, elsewhere: Tilted) -> None:
        cell = elsewhere
        received = cell.statuses
        assert cell.client.travel(1.0) < AT_REST
        assert not any(phase(status) == 'moving' for status in received)
        # A motion that is stopped on the way levels nothing.
        cell.client.set('sim_arm', speed_scaling=0.3)
        handle = cell.send(TILTED)
        cell.await_moving()
        cell.client.wait(handle.cancel_goal_async())
        cell.client.set('sim_arm', speed_scaling=1.0)
        assert cell.client.travel(1.0) < AT_REST
        assert not any(phase(status) == 'moving' for status in received)
        # One that ends in the region does.
        assert abs(cell.tool.pose(TILTED)[1][1]) < 0.35
        cell.client.wait(cell.send(TILTED).get_result_async())
        cell.client.until(lambda: any('residual tilt' in status.message for status in received),
                          what='leveling by rule')
        assert np.degrees(cell.tilt()) <= 0.05
        assert "region about 'base_link'" in cell.node.log.read_text()
