# SPDX-License-Identifier: Apache-2.0
"""The leveling node without an arm: what it refuses, shows, and when it levels by rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from action_msgs.msg import GoalStatus, GoalStatusArray
from rclpy.lifecycle import TransitionCallbackReturn
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import String
from support.compliance_results import compliance_result
from support.ros_rig import NodeRig, arm_urdf, joint_state, made_rigs, overrides
from visualization_msgs.msg import Marker, MarkerArray

from robocal_ros.errors import DataError
from robocal_ros.leveling.model import Tool
from robocal_ros.leveling.node import Leveling
from robocal_ros.messages import qos
from robocal_ros.results.store import ResultStore
from robocal_ros.robot.model import Robot

pytestmark = pytest.mark.usefixtures('ros')

NAMES = tuple(f'joint_{number}' for number in range(1, 7))
TILTED = np.array([0.3, 0.4, 0.3, 0.6, 0.9, 0.2])
SUCCESS = TransitionCallbackReturn.SUCCESS
STATUS = 'joint_trajectory_controller/follow_joint_trajectory/_action/status'


class Rig(NodeRig):
    """The node, and one that plays the robot."""

    def __init__(self, results: Path, **values: Any) -> None:
        super().__init__(Leveling, results, connect_timeout=0.5, state_timeout=1.0, **values)

    def rest(self, posture: np.ndarray = TILTED) -> None:
        """Have joint states come, at rest, from now on."""
        publisher = self.publisher(JointState, 'joint_states')

        def publish() -> None:
            self.time += 0.01
            publisher.publish(joint_state(
                self.time, NAMES, posture.tolist(), [0.0] * 6, [0.0] * 6))

        self.talker.create_timer(0.01, publish)
        self.spinner.until(lambda: self.node.arm.resting)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    yield from made_rigs(partial(Rig, tmp_path))


@pytest.mark.parametrize('used', [True, False])
def test_the_compliance_is_used_unless_switched_off(
    rig: Callable[..., Rig], tmp_path: Path, used: bool
) -> None:
    stored = compliance_result()
    ResultStore(tmp_path, stored.robot).save(stored)
    made = rig(use_compliance=used)
    assert made.configure() == SUCCESS
    assert (made.node._procedure().sag is not None) is used


def test_without_a_controller_the_answer_names_it(rig: Callable[..., Rig]) -> None:
    made = rig().start()
    made.rest()
    for verb in ('run', 'level'):
        answer = made.call(verb)
        assert not answer.success
        assert 'Action server' in answer.message


def test_preview_shows_and_needs_no_controller(rig: Callable[..., Rig]) -> None:
    made = rig().start()
    made.rest()
    received = made.subscribe(MarkerArray, 'markers', qos.LATCHED)
    answer = made.call('preview')
    assert answer.success, answer.message
    assert 'The tool is tilted by 26.5°' in answer.message
    assert '5 transition poses' in answer.message
    assert 'Nothing was moved' in answer.message
    made.spinner.until(lambda: received)
    markers = {(item.ns, item.id): item for item in received[-1].markers}
    assert received[-1].markers[0].action == Marker.DELETEALL
    tool = Tool(Robot(arm_urdf(), tool_frame='tool0'))
    rotation, point = tool.pose(TILTED)

    def tips(name: str) -> np.ndarray:
        points = markers[(name, 0)].points[1::2]
        return np.array([[p.x, p.y, p.z] for p in points]) - point

    np.testing.assert_allclose(tips('current_frame') / 0.12, rotation.T, atol=1e-9)
    assert abs(tips('target_frame')[2] / 0.2)[2] == pytest.approx(1.0, abs=1e-9)
    assert len(tips('transition_poses')) == 3 * 5
    ghosts = [item for (name, _), item in markers.items() if name == 'ghost']
    assert len(ghosts) == 8
    assert len(ghosts[0].points) == 6 + 3
    assert len(markers[('ghost_path', 0)].points) > 5
    assert all(item.header.frame_id == 'world' for item in received[-1].markers)


def test_a_direction_that_is_set_while_active_counts_from_the_next_call_on(
    rig: Callable[..., Rig]
) -> None:
    made = rig().start()
    made.rest()
    for direction, tilt in (('up', '153.5°'), ('down', '26.5°')):
        (result,) = made.node.set_parameters(overrides(direction=direction))
        assert result.successful
        assert f'tilted by {tilt}' in made.call('estimate').message
    (result,) = made.node.set_parameters(overrides(reference='gravity'))
    assert 'reference cannot change while the node is configured' in result.reason


class TestImu:
    def test_silence_is_refused_before_anything_else(self, rig: Callable[..., Rig]) -> None:
        made = rig(imu_topic='tool_imu').start()
        made.rest()
        made.node.arm.connect = self._there
        answer = made.call('level')
        assert not answer.success
        assert "No readings received on IMU topic 'tool_imu' at all" in answer.message
        assert 'was not moved' in answer.message

    @staticmethod
    async def _there() -> None:
        """Stand in for a controller."""

    def test_mean_of_what_came_since(self, rig: Callable[..., Rig]) -> None:
        made = rig(imu_topic='tool_imu').start()
        imu = made.node.imu
        with pytest.raises(DataError, match='No readings were received'):
            imu.mean()
        publisher = made.publisher(Imu, 'tool_imu')
        imu.begin()
        for value in (1.0, 3.0):
            message = Imu()
            message.header.frame_id = 'imu_flange'
            message.header.stamp.sec = round(value)
            message.linear_acceleration.z = value
            publisher.publish(message)
        made.spinner.until(lambda: imu._stream.recorded == 2)
        np.testing.assert_allclose(imu.mean(), [0.0, 0.0, 2.0])
        imu.begin()
        with pytest.raises(DataError, match='No readings were received'):
            imu.mean()

class TestByRule:
    @pytest.fixture
    def ruled(self, rig: Callable[..., Rig]) -> tuple[Rig, list[str]]:
        """A node with a region and a task; what it levels for goes to a list."""
        made = rig(auto_level_after=['world', 'task:carry'],
                   auto_level_box=[4.0, 4.0, 4.0]).start()
        reasons: list[str] = []

        async def level(reason: str) -> None:
            reasons.append(reason)

        made.node.rules._level = level
        made.rest()
        return made, reasons

    @staticmethod
    def status(number: int, code: int) -> GoalStatus:
        item = GoalStatus(status=code)
        item.goal_info.goal_id.uuid = np.full(16, number, dtype=np.uint8)
        return item

    def hand(self, made: Rig) -> Callable[..., None]:
        """Return what publishes the controller's goals."""
        publisher = made.publisher(GoalStatusArray, STATUS, qos.LATCHED)

        def publish(*items: tuple[int, int]) -> None:
            publisher.publish(GoalStatusArray(
                status_list=[self.status(number, code) for number, code in items]))

        return publish

    def quiet(self, made: Rig, reasons: list[str]) -> None:
        """Nothing is levelled for half a second."""
        end = made.time + 0.5
        made.spinner.until(lambda: made.time > end)
        assert not reasons

    def test_a_motion_into_the_region(self, ruled: tuple[Rig, list[str]]) -> None:
        made, reasons = ruled
        publish = self.hand(made)
        publish((1, GoalStatus.STATUS_SUCCEEDED))
        self.quiet(made, reasons)
        publish((1, GoalStatus.STATUS_SUCCEEDED), (2, GoalStatus.STATUS_EXECUTING))
        self.quiet(made, reasons)
        publish((1, GoalStatus.STATUS_SUCCEEDED), (2, GoalStatus.STATUS_SUCCEEDED))
        made.spinner.until(lambda: reasons)
        assert reasons == ["the tool is in the region about 'world'"]

    @pytest.mark.parametrize('code', [GoalStatus.STATUS_CANCELED, GoalStatus.STATUS_ABORTED])
    def test_not_after_a_motion_that_was_stopped(
        self, ruled: tuple[Rig, list[str]], code: int
    ) -> None:
        made, reasons = ruled
        publish = self.hand(made)
        publish((1, GoalStatus.STATUS_EXECUTING))
        publish((1, code))
        self.quiet(made, reasons)

    def test_not_after_its_own_motion(self, ruled: tuple[Rig, list[str]]) -> None:
        made, reasons = ruled
        publish = self.hand(made)
        publish((1, GoalStatus.STATUS_EXECUTING))
        made.node.procedures.running = 'level'
        publish((1, GoalStatus.STATUS_SUCCEEDED))
        end = made.time + 0.3
        made.spinner.until(lambda: made.time > end)
        made.node.procedures.running = ''
        self.quiet(made, reasons)

    def test_a_task_that_needs_a_level_tool(self, ruled: tuple[Rig, list[str]]) -> None:
        made, reasons = ruled
        publisher = made.publisher(String, 'leveling/task')
        publisher.publish(String(data='weld'))
        self.quiet(made, reasons)
        publisher.publish(String(data='carry'))
        made.spinner.until(lambda: reasons)
        assert reasons == ["task 'carry'"]

    @pytest.mark.parametrize(('code', 'levels'), [
        (GoalStatus.STATUS_SUCCEEDED, True), (GoalStatus.STATUS_ABORTED, False)])
    def test_a_task_waits_for_the_goal_of_another_client(
        self, ruled: tuple[Rig, list[str]], code: int, levels: bool
    ) -> None:
        """The arm rests during that goal; a person may come after one that failed."""
        made, reasons = ruled
        publish = self.hand(made)
        publish((1, GoalStatus.STATUS_EXECUTING))
        made.spinner.until(lambda: made.node.arm.client.goals.foreign)
        made.publisher(String, 'leveling/task').publish(String(data='carry'))
        self.quiet(made, reasons)
        assert 'waits until the goal that another client has sent' in made.log['info'][-1]
        publish((1, code))
        if levels:
            made.spinner.until(lambda: reasons)
            assert reasons == ["task 'carry'"]
        else:
            self.quiet(made, reasons)

    def test_no_rule_applies_while_another_client_moves_the_arm(
        self, ruled: tuple[Rig, list[str]]
    ) -> None:
        made, _ = ruled
        assert made.node.rules.reason()
        self.hand(made)((1, GoalStatus.STATUS_CANCELING))
        made.spinner.until(lambda: not made.node.rules.reason())

    def test_outside_of_the_region(self, rig: Callable[..., Rig]) -> None:
        made = rig(auto_level_after=['world'], auto_level_box=[0.2, 0.2, 0.2]).start()
        made.rest()
        assert made.node.rules.reason() == ''

    def test_names_say_what_they_are(self, rig: Callable[..., Rig]) -> None:
        made = rig(auto_level_after=['base_link', 'task:base_link', 'carry'])
        assert made.configure() == SUCCESS
        told = ' '.join(made.log['info'])
        assert "'base_link' is a frame" in told
        assert "'base_link' is a task" in told
        assert "'carry' is a task" in told
