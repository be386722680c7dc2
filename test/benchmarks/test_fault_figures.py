# SPDX-License-Identifier: Apache-2.0
"""The fault campaign: its table, the time to the hold, and its random messages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import WrenchStamped
from rclpy.serialization import deserialize_message, serialize_message
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from tf2_msgs.msg import TFMessage

from benchmarks.endurance import Messages, Usages, bars_missed
from benchmarks.fault_cell import CAPABILITIES, FaultCell, mark
from benchmarks.fault_table import FAULTS
from benchmarks.faults import product
from robocal_ros.cli.node_client import RosSession


def test_every_fault_has_a_name_of_its_own_and_concerns_a_capability() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names)
    possible = {fault.name for fault in FAULTS if fault.possible}
    assert {plan.fault.name for plan in product()} == possible


def test_every_harmful_fault_has_a_cause_of_its_own() -> None:
    usual = ('Moving to posture 3 of 14; joint_1 … joint_6 by joint_states, frame tool0, topic '
             'ft_wrist/wrench within its range; the tracker, the IMU, effort, clock and stamps go '
             'on. Estimating from the recorded samples.')
    for fault in FAULTS:
        assert fault.harmless or fault.cause or fault.kills in ('node', 'both'), fault.name
        assert not (fault.cause and re.search(fault.cause, usual)), fault.name


def test_late_holds_and_answers_are_missed_bars() -> None:
    assert bars_missed([], [0.02, 0.1]) == []
    assert bars_missed([0.02, 0.11], [0.3]) == [
        '1 of 2 arms were held later than 100 ms after a cancel.',
        '1 of 1 arms were at rest and answered for later than 100 ms after a cancel.']


@pytest.mark.parametrize(('rate', 'grows'), [(0.5, False), (40.0, True)])
def test_memory_that_grows_misses_its_bar(rate: float, grows: bool) -> None:
    usages = Usages([SimpleNamespace(name='sim_arm')])
    noise = np.random.default_rng(1).normal(0.0, 0.2, 400)
    for number in range(400):
        usages.rows[0].append(
            (5.0 * number, 200.0 + rate * 5.0 * number / 3600.0 + noise[number], 20, 30))
    assert bool(usages.growing()) == grows
    assert usages.table().splitlines()[-1].endswith('| 20 | 30 |')


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[FaultCell]:
    with (
        RosSession('fault_campaign', int(os.environ['ROS_DOMAIN_ID'])) as session,
        closing(FaultCell(CAPABILITIES[0], session, tmp_path, tmp_path / 'results')) as made,
    ):
        yield made


def moving(cell: FaultCell, stops: float, late: float = 0.0) -> None:
    """Record 2 s of commands that move until a stamp; those from 1 s on arrive late."""
    for stamp in np.arange(0.0, 2.0, 0.01):
        posture = np.full(6, min(stamp, stops))
        arrival = 100.0 + max(stamp, 1.0 + late if stamp > 1.0 else 0.0)
        cell.motion.append((5.0 + float(stamp), arrival, posture, posture))


@pytest.mark.parametrize('late', [0.0, 0.05])
def test_the_time_to_the_hold_is_known_by_the_stamps(cell: FaultCell, late: float) -> None:
    moving(cell, 1.08, late)
    cell.cancelled = 101.0 + late
    assert cell.held_after(cell.cancelled) == pytest.approx(0.08 - late, abs=0.011)


def test_marked_messages_are_not_taken_for_the_arm_s(cell: FaultCell) -> None:
    state = JointState(name=['joint_1'])
    mark(state)
    cell._take_states(state)
    assert not cell.joint_states
    cell._take_states(JointState(name=['joint_1']))
    assert len(cell.joint_states) == 1


@pytest.mark.parametrize('example', [
    JointState(name=['a', 'b'], position=[0.1, 0.2]), WrenchStamped(), TFMessage(), Clock(),
    DiagnosticArray(status=[DiagnosticStatus(name='begin')]), String(data='claim /x')],
    ids=lambda example: type(example).__name__)
def test_random_messages_can_be_sent_and_repeat_with_the_seed(example: Any) -> None:
    before = repr(example)
    first, second = ([messages.changed(example, 5.0) for _ in range(30)]
                     for messages in (Messages(3), Messages(3)))
    assert repr(first) == repr(second)
    assert len(set(map(repr, first))) > 5
    assert repr(example) == before
    for message in first:
        deserialize_message(serialize_message(message), type(example))


def test_long_texts_end_with_their_allowance() -> None:
    messages = Messages(1)
    for allowed in (0.0, 1e6):
        messages.allowed = allowed
        sizes = [len(messages.changed(String(), 0.0).data) for _ in range(300)]
        assert (max(sizes) > 20_000) == (allowed > 0.0)
