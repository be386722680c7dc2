# SPDX-License-Identifier: Apache-2.0
"""The leveling node without an arm: what it refuses, shows, and when it levels by rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
import pytest
from action_msgs.msg import GoalStatus, GoalStatusArray
from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.lifecycle import TransitionCallbackReturn
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import String
from support.compliance_results import compliance_result
from support.friction_results import identified_arm
from support.leveling_rig import TILTED
from support.ros_rig import NodeRig, arm_urdf, joint_state, made_rigs, overrides
from visualization_msgs.msg import Marker, MarkerArray

from robocal_ros.errors import DataError
from robocal_ros.leveling.model import Tool
from robocal_ros.leveling.node import Leveling
from robocal_ros.messages import qos
from robocal_ros.results.result import Parameter
from robocal_ros.results.store import ResultStore
from robocal_ros.robot.arm_model import ARM, GRAVITY
from robocal_ros.robot.model import Robot

pytestmark = pytest.mark.usefixtures('ros')

NAMES = tuple(f'joint_{number}' for number in range(1, 7))
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


@pytest.fixture
def resting(rig: Callable[..., Rig]) -> Rig:
    """An active node of an arm at rest."""
    made = rig().start()
    made.rest()
    return made


@pytest.mark.parametrize('used', [True, False])
def test_the_compliance_is_used_unless_switched_off(
    rig: Callable[..., Rig], tmp_path: Path, used: bool
) -> None:
    stored = compliance_result()
    ResultStore(tmp_path, stored.robot).save(stored)
    made = rig(use_compliance=used)
    assert made.configure() == SUCCESS
    assert (made.node._procedure().sag is not None) is used


def test_the_vertical_is_that_of_an_identified_arm_whose_base_leans(
    rig: Callable[..., Rig], tmp_path: Path
) -> None:
    """The tool's axis is 26.5° from straight down, and 4° more from the way things fall."""
    upright = Robot(arm_urdf(), tool_frame='tool0')
    axis, vertical = Tool(upright).pose(TILTED)[0][:, 2], upright.gravity / -9.80665
    across = np.cross(vertical, axis)
    found = pin.exp3(np.radians(4.0) * across / np.linalg.norm(across)) @ upright.gravity
    stored = identified_arm(ARM)
    ResultStore(tmp_path, stored.robot).save(replace(
        stored, settings={'gravity': upright.gravity.tolist()},
        parameters=(*stored.parameters, *(
            Parameter(name, 'm/s²', value, 0.01)
            for name, value in zip(GRAVITY, found.tolist(), strict=True)))))
    made = rig(reference='gravity').start()
    made.rest()
    for verb in ('estimate', 'preview'):
        answer = made.call(verb)
        assert answer.success, answer.message
        assert ' tilted by 30.5°' in answer.message
        assert ('The vertical is that of the identified arm, whose base leans by 4.0° against '
                'the parameter gravity; it is known to ±0.101° (1 σ).') in answer.message


def test_stale_joint_states(rig: Callable[..., Rig]) -> None:
    made = rig().start()
    publisher = made.publisher(JointState, 'joint_states')
    for step in range(60):
        publisher.publish(joint_state(10.0 + 0.01 * step, NAMES, TILTED.tolist(), [0.0] * 6))
    made.spinner.until(lambda: made.node.joints.latest is not None)
    made.spinner.until(lambda: made.node.joints.age() > 1.0)
    answer = made.call('preview')
    assert not answer.success
    assert 'No joint states received for' in answer.message
    assert 'was not moved' in answer.message


@pytest.mark.parametrize('verb', ['run', 'level'])
def test_without_a_controller_the_answer_names_it(resting: Rig, verb: str) -> None:
    answer = resting.call(verb)
    assert not answer.success
    assert 'Action server' in answer.message


def test_preview_shows_and_needs_no_controller(resting: Rig) -> None:
    received = resting.subscribe(MarkerArray, 'markers', qos.LATCHED)
    answer = resting.call('preview')
    assert answer.success, answer.message
    assert 'The tool is tilted by 26.5°' in answer.message
    assert '5 transition poses' in answer.message
    assert 'Nothing was moved' in answer.message
    resting.spinner.until(lambda: received)
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


def test_estimate_measures_the_tilt_and_moves_nothing(resting: Rig) -> None:
    statuses = resting.subscribe(DiagnosticStatus, 'status', qos.LATCHED)
    answer = resting.call('estimate')
    assert answer.success, answer.message
    assert answer.message == ('The tool is tilted by 26.5° (tolerance 0.050°). Nothing was moved.')
    resting.spinner.until(lambda: statuses and statuses[-1].message == answer.message)
    joints = resting.node.joints
    assert not joints.recording
    recorded = joints.recorded
    assert recorded >= 50
    assert resting.call('clear').message == f'{recorded} samples discarded.'
    assert joints.recorded == 0


def test_a_direction_that_is_set_while_active_counts_from_the_next_call_on(resting: Rig) -> None:
    for direction, tilt in (('up', '153.5°'), ('down', '26.5°')):
        resting.set(direction=direction)
        assert f'tilted by {tilt}' in resting.call('estimate').message
    (result,) = resting.node.set_parameters(overrides(reference='gravity'))
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

    @pytest.fixture
    def imu(self, rig: Callable[..., Rig]) -> tuple[Rig, Callable[..., None]]:
        """A node with an IMU, and what publishes its readings."""
        made = rig(imu_topic='tool_imu').start()
        publisher = made.publisher(Imu, 'tool_imu')

        def publish(frame: str, second: int, value: float) -> None:
            message = Imu()
            message.header.frame_id = frame
            message.header.stamp.sec = second
            message.linear_acceleration.z = value
            publisher.publish(message)

        return made, publish

    @pytest.mark.parametrize(('frame', 'value', 'words'), [
        ('imu_nose', 1.0, "names frame 'imu_nose', but 'imu_flange' is expected"),
        ('imu_flange', float('nan'), 'not finite numbers'),
    ])
    def test_bad_readings(
        self, imu: tuple[Rig, Callable[..., None]], frame: str, value: float, words: str
    ) -> None:
        made, publish = imu
        publish(frame, 0, value)
        made.spinner.until(lambda: words in made.node.imu.stream.problem(1.0))

    def test_mean_of_what_came_since(self, imu: tuple[Rig, Callable[..., None]]) -> None:
        made, publish = imu
        averaged = made.node.imu
        with pytest.raises(DataError, match='No readings were received'):
            averaged.mean()
        averaged.stream.recording = True
        for value in (1, 3):
            publish('imu_flange', value, float(value))
        made.spinner.until(lambda: averaged.stream.recorded == 2)
        np.testing.assert_allclose(averaged.mean(), [0.0, 0.0, 2.0])
        averaged.stream.clear()
        with pytest.raises(DataError, match='No readings were received'):
            averaged.mean()


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

    def quiet(self, made: Rig, reasons: list[str], duration: float = 0.5) -> None:
        """Nothing is levelled for a time [s]."""
        end = made.time + duration
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

    @pytest.mark.parametrize(('why', 'code'), [
        ('stopped', GoalStatus.STATUS_CANCELED), ('stopped', GoalStatus.STATUS_ABORTED),
        ('its own', GoalStatus.STATUS_SUCCEEDED), ('inactive', GoalStatus.STATUS_SUCCEEDED)])
    def test_not_after_motions_of_other_kinds(
        self, ruled: tuple[Rig, list[str]], why: str, code: int
    ) -> None:
        made, reasons = ruled
        publish = self.hand(made)
        publish((1, GoalStatus.STATUS_EXECUTING))
        if why == 'its own':
            made.node.running = 'level'
        elif why == 'inactive':
            assert made.node.trigger_deactivate() == SUCCESS
        publish((1, code))
        if why == 'its own':
            self.quiet(made, reasons, 0.3)
            made.node.running = ''
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


def test_preview_says_why_there_is_no_way(rig: Callable[..., Rig]) -> None:
    made = rig().start()
    made.rest(np.array([0.2, 0.6, -1.5, 0.1, 0.4, 0.0]))
    answer = made.call('preview')
    assert not answer.success
    assert 'edge of its workspace or a singular posture' in answer.message
    assert 'The arm was not moved' in answer.message
