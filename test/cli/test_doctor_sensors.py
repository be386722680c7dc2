# SPDX-License-Identifier: Apache-2.0
"""F/T sensors against the weights distal to them, before the first procedure."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from geometry_msgs.msg import WrenchStamped
from sensor_msgs.msg import JointState
from std_msgs.msg import Header
from support.arms import arm

from robocal_ros.cli.doctor_findings import Finding, Grade
from robocal_ros.cli.doctor_sensors import weight_findings
from robocal_ros.wrench.model import SensedArm, SensorMount

FRAMES = ('ft_link_2_proximal', 'ft_link_3_distal', 'ft_wrist')
HOME = np.array([0.1, 0.3, 0.4, 0.0, 0.6, 0.2])
AWAY = np.array([0.1, -0.3, -0.9, 0.4, -0.9, 0.2])
ROBOT = arm('robocal').robot()
REST = np.zeros(6)


def found(
    *postures: np.ndarray, change: Callable[[np.ndarray], np.ndarray] = lambda readings: readings,
    frames: tuple[str, ...] = FRAMES,
) -> list[Finding]:
    """Return the findings on an arm that rests in each posture."""
    draw = np.random.default_rng(0)
    cut = SensedArm(ROBOT, [SensorMount(frame) for frame in frames])
    bias = draw.uniform(-3.0, 3.0, (len(frames), 6)) * np.repeat([1.0, 0.05], 3)
    states, wrenches = [], {f'/{frame}/wrench': [] for frame in frames}
    for posture in postures:
        ideal = cut.in_measurement(-cut.held(posture, REST, REST))
        for _ in range(100):
            states.append(JointState(name=list(ROBOT.joint_names), position=posture.tolist()))
            rows = change(ideal) + bias + draw.normal(0.0, 0.1, bias.shape) * np.repeat(
                [1.0, 0.02], 3)
            for row, frame, readings in zip(rows, frames, wrenches.values(), strict=True):
                message = WrenchStamped(header=Header(frame_id=frame))
                force, torque = message.wrench.force, message.wrench.torque
                force.x, force.y, force.z, torque.x, torque.y, torque.z = row.tolist()
                readings.append(message)
    return list(weight_findings(ROBOT, states, wrenches))


def flip(row: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda readings: readings * np.where(np.arange(len(readings)) == row, -1.0, 1.0)[
        :, None]


def test_good_sensors_in_two_postures() -> None:
    assert [item.grade for item in found(HOME, AWAY)] == [Grade.GOOD]


@pytest.mark.parametrize(('change', 'words'), [
    (flip(0), "'ft_link_2_proximal' reads the opposite"),
    (lambda readings: readings[[1, 0, 2]], "'ft_link_2_proximal' and 'ft_link_3_distal' read"),
])
def test_reversed_and_swapped_sensors_are_named_in_one_posture(change, words: str) -> None:
    (item,) = found(HOME, change=change)
    assert item.grade is Grade.BAD
    assert words in item.message
    assert '/ft_wrist/wrench (ft_wrist)' in item.remedy


def test_the_sign_of_a_light_load_shows_in_a_second_posture() -> None:
    alone = {'frames': ('ft_wrist',), 'change': flip(0)}
    (item,) = found(HOME, **alone)
    assert item.grade is Grade.WARNING
    assert 'the sign is unchecked: move the arm to another posture' in item.message
    (item,) = found(HOME, AWAY, **alone)
    assert item.grade is Grade.BAD
    assert "between two postures 'ft_wrist' changed by the opposite" in item.message


def test_a_turned_frame_shows_in_a_second_posture() -> None:
    turned = [1, 2, 0, 4, 5, 3]
    items = found(HOME, AWAY, frames=('ft_wrist',), change=lambda readings: readings[:, turned])
    assert items[0].grade is Grade.BAD
    assert "while the weight distal to 'ft_wrist' changes by" in items[0].message


def test_an_arm_that_moves_or_carries_more_is_doubtful() -> None:
    (item,) = found(*np.linspace(HOME, AWAY, 8))
    assert item.grade is Grade.WARNING
    assert 'A joint moved' in item.message
    heavy = np.array([0.0, 0.0, -60.0, 0.0, 0.0, 0.0])
    (item,) = found(HOME, change=lambda readings: readings + heavy)
    assert item.grade is Grade.WARNING
    assert 'A tare would be refused' in item.message
