# SPDX-License-Identifier: Apache-2.0
"""Marks of others: those of a replayed bag count, those of a bag beside a live run do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from sensor_msgs.msg import JointState
from support.ros_rig import NodeRig, joint_state

from robocal_ros.friction.node import FrictionIdentification
from robocal_ros.messages import qos
from robocal_ros.messages.marks import JOINTS, Span
from robocal_ros.node import sample_recorder as module

pytestmark = pytest.mark.usefixtures('ros')


class Rig(NodeRig):
    """A friction node that receives joint states, and marks of a bag."""

    def __init__(self, results: Path) -> None:
        super().__init__(FrictionIdentification, results)
        self.start()
        self.states = self.publisher(JointState, '/joint_states', qos.STREAM)
        self.marks = self.publisher(DiagnosticArray, f'{self.node.get_name()}/marks', qos.MARKS)
        self.received = self.node.recorder._marks._received

    def mark(self, name: str, **values: str) -> None:
        self.marks.publish(DiagnosticArray(status=[DiagnosticStatus(
            name=name, message='run', hardware_id='of a bag',
            values=[KeyValue(key=key, value=value) for key, value in values.items()])]))

    def state(self, time: float) -> None:
        robot = self.node.robot
        self.states.publish(joint_state(
            time, robot.joint_names, np.zeros(robot.n) + 0.1, np.zeros(robot.n),
            np.ones(robot.n)))

    def states_until(self, time: float) -> None:
        for number in range(20):
            self.state(time - 0.01 * (19 - number))
        self.spinner.until(lambda: self.node.recorder.newest == time, what='joint states')

    def run(self, action: Any) -> None:
        self.spinner.run(lambda: self.node.answer('run', action))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.end()


def used(rig: Rig) -> Span:
    return rig.node.recorder._marks.replayed(('run',)).of(JOINTS)


def test_marks_of_others_count_for_a_replayed_recording_only(rig: Rig) -> None:
    rig.mark('begin', joint_states='1.0')
    rig.spinner.until(lambda: len(rig.received) == 1)
    assert used(rig) == Span(1.0)

    async def live() -> str:
        rig.node.recorder.clear()
        assert used(rig) == Span()
        rig.mark('begin', joint_states='55.0')
        await rig.node.waiter.until(lambda: False, 0.5)
        assert used(rig) == Span()
        return 'Done.'

    rig.states_until(50.0)
    rig.run(live)
    # Beside the recording of the run, also after it, for an estimate from it.
    rig.mark('begin', joint_states='56.0')
    rig.states_until(60.0)
    assert not rig.received
    # A bag that is played into the node has older stamps.
    rig.states_until(20.0)
    assert rig.node.joints.counts.clock_jumps == 1
    rig.mark('begin', joint_states='19.9')
    rig.spinner.until(lambda: len(rig.received) == 1)
    assert used(rig) == Span(19.9)
    rig.run(live)
    rig.call('clear')
    rig.mark('begin', joint_states='57.0')
    rig.spinner.until(lambda: len(rig.received) == 1)


def test_a_clock_that_jumps_during_a_run_admits_no_marks_of_others(rig: Rig) -> None:
    async def live() -> str:
        rig.node.recorder.clear()
        for number in range(20):
            rig.state(20.0 + 0.01 * number)
        await rig.node.waiter.until(lambda: rig.node.joints.counts.clock_jumps > 0, 5.0)
        rig.mark('begin', joint_states='55.0')
        await rig.node.waiter.until(lambda: False, 0.5)
        assert used(rig) == Span()
        return 'Done.'

    rig.states_until(50.0)
    rig.run(live)
    assert rig.node.joints.counts.clock_jumps == 1


def test_marks_of_others_are_bounded(rig: Rig) -> None:
    for _ in range(module._MOST + 100):
        rig.mark('begin', joint_states='1.0')
    rig.mark('end', joint_states='2.0')
    rig.spinner.until(lambda: rig.received and rig.received[-1].name == 'end')
    assert len(rig.received) <= module._MOST
