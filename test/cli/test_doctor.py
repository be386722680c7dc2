# SPDX-License-Identifier: Apache-2.0
"""The doctor's findings, each with its remedy."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from robocal_ros.cli import doctor, doctor_robot
from robocal_ros.cli.doctor_robot import (
    ReceivedJoints,
    clock_finding,
    joint_findings,
    rate_finding,
    wrench_finding,
)
from robocal_ros.cli.findings import Finding, Grade
from robocal_ros.cli.main import main
from robocal_ros.errors import ConfigurationError
from robocal_ros.robot.model import Robot

URDF = (Path(__file__).parents[1] / 'data' / 'two_joint.urdf').read_text()
NAMES = ('shoulder', 'elbow')
POSTURE = [0.3, 0.4]


@pytest.fixture(scope='module')
def robot() -> Robot:
    return Robot(URDF, tool_frame='lower')


def received(robot: Robot, scale: float = 1.0, **changes: object) -> ReceivedJoints:
    effort = (scale * robot.gravity_torque(np.array(POSTURE))).tolist()
    values = {'names': NAMES, 'positions': [POSTURE] * 9, 'efforts': [effort] * 9,
              'velocities': 2}
    return ReceivedJoints(**{**values, **changes})


def effort_of(findings: list[Finding]) -> Finding:
    (found,) = (item for item in findings if item.what == 'efforts')
    return found


@pytest.mark.parametrize(('stamps', 'grade', 'words'), [
    ([], Grade.BAD, '0 messages'),
    ([1.0] * 50, Grade.BAD, 'do not increase'),
    (np.arange(0.0, 3.0, 0.1), Grade.BAD, '10 Hz'),
    (np.arange(0.0, 3.0, 0.02), Grade.WARNING, '50 Hz'),
    (np.arange(0.0, 3.0, 0.002), Grade.GOOD, '500 Hz'),
    (np.delete(np.arange(0.0, 3.0, 0.002), np.arange(9, 1400, 20)), Grade.WARNING, '70 gaps'),
])
def test_rates(stamps, grade: Grade, words: str) -> None:
    found = rate_finding('/joint_states', list(stamps), 3.0)
    assert found.grade is grade
    assert words in found.message
    assert bool(found.remedy) is (grade is not Grade.GOOD)


@pytest.mark.parametrize(('age', 'simulated', 'grade', 'remedy'), [
    (0.01, False, Grade.GOOD, ''), (5.0, False, Grade.WARNING, 'chrony'),
    (-3.0, False, Grade.WARNING, 'chrony'), (1.7e9, False, Grade.WARNING, 'use_sim_time'),
    (1e151, False, Grade.WARNING, 'use_sim_time'), (1.7e9, True, Grade.GOOD, ''),
])
def test_clocks(age: float, simulated: bool, grade: Grade, remedy: str) -> None:
    found = clock_finding(ReceivedJoints(stamps=[0.0, 1.0], arrivals=[age, age + 1.0]),
                          simulated=simulated)
    assert found.grade is grade
    assert remedy in found.remedy


class TestJoints:
    """Names and efforts, by the description."""

    def test_all_is_well(self, robot: Robot) -> None:
        assert {item.grade for item in joint_findings(robot, received(robot))} == {Grade.GOOD}

    def test_another_robot(self, robot: Robot) -> None:
        (found,) = joint_findings(robot, received(robot, names=('a', 'b')))
        assert found.grade is Grade.BAD
        assert 'shoulder, elbow not in joint_states, which has a, b' in found.message

    @pytest.mark.parametrize(('efforts', 'words'), [
        ([[]] * 9, 'have no efforts'),
        ([[np.nan, 1.0]] * 9, "'shoulder' is not a number"),
        ([[1.0, 0.0]] * 9, "'elbow' is always zero"),
    ])
    def test_efforts_of_no_use(self, robot: Robot, efforts, words: str) -> None:
        found = effort_of(joint_findings(robot, received(robot, efforts=efforts)))
        assert found.grade is Grade.BAD
        assert words in found.message
        assert 'effort state interface' in found.remedy or 'driver' in found.remedy

    @pytest.mark.parametrize(('scale', 'grade', 'words'), [
        (1.4, Grade.GOOD, ''), (0.05, Grade.WARNING, 'motor currents'),
        (9.0, Grade.WARNING, 'heavy tool'), (-1.0, Grade.WARNING, 'sign'),
    ])
    def test_size_of_efforts(self, robot: Robot, scale: float, grade: Grade, words: str) -> None:
        found = effort_of(joint_findings(robot, received(robot, scale)))
        assert found.grade is grade
        assert words in found.remedy

    def test_a_moving_arm_is_not_judged(self, robot: Robot) -> None:
        moving = [[0.3 + 0.01 * i, 0.4] for i in range(9)]
        found = effort_of(joint_findings(robot, received(robot, 9.0, positions=moving)))
        assert found.grade is Grade.GOOD


@pytest.mark.parametrize(('frame', 'finite', 'grade'), [
    ('sensor', True, Grade.GOOD), ('nowhere', True, Grade.BAD), ('sensor', False, Grade.BAD)])
def test_force_torque_sensors(frame: str, finite: bool, grade: Grade) -> None:
    assert wrench_finding('/ft', {frame: 9, 'rare': 1}, finite, ['sensor']).grade is grade


def test_a_good_machine_is_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['doctor', '--machine']) == 0
    assert '0 bad' in capsys.readouterr().out


def test_what_is_missing_is_told_with_its_cure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, '_LIBRARIES', {'not_there_at_all': 'nothing'})
    monkeypatch.setattr(doctor, '_NEEDED', ('not_there_at_all',))
    monkeypatch.setenv('ROS_DOMAIN_ID', 'many')
    assert main(['doctor', '--machine']) == 1
    message = capsys.readouterr().out
    assert 'not_there_at_all: not installed; needed for nothing.' in message
    assert 'scripts/setup' in message
    assert "ROS_DOMAIN_ID is 'many'" in message


def test_an_empty_graph_is_bad(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_robot, '_DISCOVERY', 0.2)
    # A domain that no test run takes, so nobody is on it.
    monkeypatch.setenv('ROS_DOMAIN_ID', str(10 + os.getpid() % 15))
    code, message = main(['doctor']), capsys.readouterr().out
    if 'graph' not in message:
        pytest.skip('somebody uses this domain')
    assert code == 1
    assert 'compare ROS_DOMAIN_ID' in message


@pytest.mark.parametrize('text', ['x', '-1', '233', '1.0'])
def test_domain_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv('ROS_DOMAIN_ID', text)
    with pytest.raises(ConfigurationError, match='from 0 to 232'):
        doctor.chosen_domain()
