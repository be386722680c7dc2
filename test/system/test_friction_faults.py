# SPDX-License-Identifier: Apache-2.0
"""Bad runs are left out by name, bad joints fail alone, and the good result stays."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from geometry_msgs.msg import WrenchStamped
from support.friction_results import arm_urdf, friction_result, hidden_payload, identity
from support.live_cell import (
    FRICTION,
    Cell,
    curve_error,
    friction_node,
    hidden_friction,
    live_cell,
)
from support.live_graph import TRUTH, Client

from robocal_ros.results import CalibrationResult, ResultStore, State, Verdict
from robocal_ros.robot import friction_by_joint

JOINT = 'joint_6'
# Enough for a fit, and for speeds left out of it, when a few runs fail.
SPEEDS = [0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.14, 0.2, 0.5]


class TestOneJoint:
    """A single joint, with things going wrong while it runs."""

    @pytest.fixture(scope='class')
    @classmethod
    def cell(cls, client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
        folder = tmp_path_factory.mktemp('faults')
        ResultStore(folder / 'results', identity()).save(hidden_payload(TRUTH))
        with live_cell(client, folder, friction_node, FRICTION,
                       arm={'seed': 2, 'push_duration': 0.2}, measure_joints=[JOINT],
                       speeds=SPEEDS) as made:
            yield made

    def test_a_push_an_abort_and_disordered_stamps_affect_only_those_runs(
        self, cell: Cell
    ) -> None:
        client = cell.client
        client.set('sim_arm', fault='stamps_disordered')
        push = client.node.create_publisher(WrenchStamped, '/sim_arm/push', 10)
        message = WrenchStamped()
        message.header.frame_id = 'flange'
        message.wrench.torque.z = 3.0
        run = cell.begin()
        pushed = 'Running joint_6 at -0.08'
        cell.await_message(pushed)
        received = cell.statuses
        while pushed in received[-1].message:
            push.publish(message)
            count = len(received)
            client.until(lambda count=count: len(received) > count)
        cell.await_message('Running joint_6 at +0.04')
        client.set('sim_arm', fault='stamps_disordered,controller_abort')
        client.until(lambda: 'The controller ended' in cell.node.log.read_text())
        client.set('sim_arm', fault='stamps_disordered')
        answer = cell.wait(run)
        assert answer.success, answer.message
        result = cell.stored('friction')
        assert result.verdict is Verdict.PASS
        log = cell.node.log.read_text()
        assert 'failed: The controller ended' in log
        assert 'problems occurred; the first: Running joint_6' in answer.message
        # The push is seen in the torque, or already in the speed.
        assert result.counts['rejected_runs'] or f'{pushed} rad/s is not used: the speed' in log
        assert result.counts['runs'] - result.counts['rejected_runs'] <= 2 * len(SPEEDS) - 2
        assert result.counts['out_of_order'] > 100
        assert curve_error(friction_by_joint(result)[JOINT], hidden_friction(JOINT)) < 3.0


class TestNarrowArm:
    """The arm can do less than its description says: a stop in the range, a weak drive."""

    @pytest.fixture(scope='class')
    @classmethod
    def cell(cls, client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
        folder = tmp_path_factory.mktemp('narrow')
        store = ResultStore(folder / 'results', identity())
        store.save(hidden_payload(TRUTH))
        # From another day: what fails now must not cost these numbers.
        store.save(friction_result('joint_5'))
        urdf = arm_urdf()
        narrow = cls.changed(urdf, 'joint_5', lower='-0.25', upper='0.25')
        narrow = cls.changed(narrow, 'joint_6', effort='1.0')
        with live_cell(
            client, folder, friction_node, FRICTION,
            arm={'seed': 3, 'robot_description': json.dumps(narrow)},
            robot_description=json.dumps(urdf), measure_joints=['joint_5', 'joint_4', 'joint_6'],
            speeds=[0.1, 0.2, 0.35, 0.5], goal_time=0.5,
        ) as made:
            yield made

    @staticmethod
    def changed(urdf: str, joint: str, **limits: str) -> str:
        """Return a description with other limits of a joint."""
        head, name, tail = urdf.partition(f'<joint name="{joint}"')
        before, limit, after = tail.partition('<limit')
        attributes, end, rest = after.partition('/>')
        for key, value in limits.items():
            attributes, count = re.subn(f'{key}="[^"]*"', f'{key}="{value}"', attributes)
            assert count == 1
        return head + name + before + limit + attributes + end + rest

    @pytest.fixture(scope='class')
    @classmethod
    def failed(cls, cell: Cell) -> tuple[str, CalibrationResult]:
        said = cell.refused(cell.begin())
        assert 'Verdict fail' in said
        return said, cell.stored('friction.failed')

    def test_those_joints_fail_with_a_reason(self, failed: tuple[str, CalibrationResult]) -> None:
        message, result = failed
        assert result.verdict is Verdict.FAIL
        for joint in ('joint_5', 'joint_6'):
            assert f"Joint '{joint}':" in message
        assert 'usable runs' in message
        assert 'problems occurred; the first: ' in message
        for parameter in result.parameters:
            if not parameter.name.startswith('joint_4'):
                assert parameter.state is State.NOT_IDENTIFIED

    def test_the_other_joint_is_stored_beside_the_previous_result(
        self, cell: Cell, failed: tuple[str, CalibrationResult]
    ) -> None:
        stored = cell.stored('friction')
        assert stored.verdict is Verdict.PASS
        laws = friction_by_joint(stored)
        assert set(laws) == {'joint_4', 'joint_5'}
        assert laws['joint_5'].coulomb[0] == 0.7
        truth = float(hidden_friction('joint_4').torque(0.3))
        assert abs(float(laws['joint_4'].torque(0.3)) - truth) < 0.03 * truth

    def test_no_defect_is_logged(self, cell: Cell, failed: object) -> None:
        assert 'Defect' not in cell.node.log.read_text()
