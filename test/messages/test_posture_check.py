# SPDX-License-Identifier: Apache-2.0
"""Joint states as real arms send them: wrapped, from two publishers, corrupt, in other units."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from support.bag_examples import NAMES, joint_state
from support.joints import PlainJoints, plain

from robocal_ros.errors import DataError
from robocal_ros.messages.intake import JointIntake
from robocal_ros.messages.samples import JointSamples

TIME = 100.0 + 0.01 * np.arange(400)


def joints(
    lower: Sequence[float] = (-3.2, -3.2), upper: Sequence[float] = (3.2, 3.2), *,
    continuous: Sequence[bool] = (False, False), prismatic: Sequence[bool] = (False, False),
) -> PlainJoints:
    made = plain(NAMES)
    made.lower, made.upper = np.array(lower), np.array(upper)
    made.velocity_limit = np.array([2.0, 2.0])
    made.continuous, made.prismatic = np.array(continuous), np.array(prismatic)
    return made


def motion() -> np.ndarray:
    return np.column_stack((1.0 + 0.5 * np.sin(TIME), -0.5 + 0.3 * np.cos(2.0 * TIME)))


def messages(position: np.ndarray, time: np.ndarray = TIME) -> list[bytes]:
    return [joint_state(divmod(round(1e9 * t), 10**9), NAMES, row.tolist())
            for t, row in zip(time.tolist(), position, strict=True)]


def zeros(time: float) -> bytes:
    return joint_state(divmod(round(1e9 * time), 10**9), NAMES, (0.0, 0.0), (0.0, 0.0), (0.0, 0.0))


def taken(arm: PlainJoints, raw: Sequence[bytes], size: int = 4096) -> JointSamples:
    """Take in messages offline in blocks, and live; return the samples, which are the same."""
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        offline, live = (JointIntake(arm, np.ones(2), need_effort=True) for _ in range(2))
        for begin in range(0, len(raw), size):
            offline.take(raw[begin:begin + size])
        for message in raw:
            live.take_one(message)
        found = live.samples()
        samples = offline.bag_samples()
    assert np.array_equal(samples.position, found.position)
    assert samples.counts == found.counts
    assert offline.problem == live.problem
    return samples


@pytest.mark.parametrize('size', [7, 4096])
def test_a_continuous_joint_that_wraps_is_unwrapped(size: int) -> None:
    true = np.column_stack((2.0 + 3.0 * (TIME - TIME[0]), -1.0 - 2.0 * (TIME - TIME[0])))
    wrapped = (true + math.pi) % (2.0 * math.pi) - math.pi
    arm = joints((-np.inf, -np.inf), (np.inf, np.inf), continuous=(True, True))
    np.testing.assert_allclose(taken(arm, messages(wrapped), size).position, true, atol=1e-12)


def test_a_joint_with_limits_is_not_unwrapped() -> None:
    arm = joints((-6.3, -6.3), (6.3, 6.3))
    position = motion()
    position[200:, 0] -= 2.0 * math.pi
    samples = taken(arm, messages(position))
    assert samples.counts.implausible == 9
    assert samples.position[-1, 0] == position[-1, 0]


@pytest.mark.parametrize('row', [[253.0, -0.5], [1.0, 2.9], [-3.0, -0.5], [0.0, 0.0]])
def test_a_corrupt_row_is_left_out_and_counted(row: list[float]) -> None:
    position = motion()
    position[150] = row
    raw = messages(position)
    if not any(row):
        raw[150] = zeros(TIME[150])
    samples = taken(joints(), raw)
    assert samples.counts.implausible == 1
    assert np.array_equal(samples.position, np.delete(position, 150, axis=0))


@pytest.mark.parametrize(('quantity', 'value', 'words'), [
    (1, 1e50, "Velocity of joint 'b' is 1e+50 in joint_states, far beyond what an arm has"),
    (1, -120.0, "Velocity of joint 'b' is -120 "),
    (2, 1e300, "Effort of joint 'b' is 1e+300 "),
    (2, -2e5, "Effort of joint 'b' is -2e+05 "),
    (0, 1e300, "Position of joint 'b' in joint_states is 1e+300 rad, far beyond"),
])
@pytest.mark.parametrize('place', [0, 150, 399])
@pytest.mark.parametrize('continuous', [False, True])
def test_a_value_that_no_arm_has_is_left_out_and_named(
    quantity: int, value: float, words: str, place: int, continuous: bool
) -> None:
    position, raw = motion(), []
    arm = joints((-np.inf, -np.inf), (np.inf, np.inf), continuous=(True, True)) \
        if continuous else joints()
    for row, time in enumerate(TIME.tolist()):
        # As fast and as strong as arms are at most, and beyond the URDF's limits.
        values = [position[row].tolist(), [0.1, 25.0], [3.0, -4000.0]]
        if row == place:
            values[quantity][1] = value
        raw.append(joint_state(divmod(round(1e9 * time), 10**9), NAMES, *values))
    samples = taken(arm, raw)
    assert samples.counts.implausible == 1
    np.testing.assert_array_equal(samples.time, np.delete(TIME.round(9), place))
    intake = JointIntake(arm, np.ones(2), need_effort=True)
    intake.take(raw[place:place + 1])
    with pytest.raises(DataError, match=re.escape(words)):
        intake.bag_samples()


def test_an_effort_that_no_arm_has_matters_only_where_it_is_needed() -> None:
    intake = JointIntake(joints(), np.array([1.0, 100.0]))
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        for effort in (1e300, 1.7e308, np.inf, np.nan):
            message = joint_state(intake.newest + 1.0 if intake.recorded else 1.0, NAMES,
                                  effort=(1.0, effort))
            assert intake.take_one(message) is not None
            intake.take([joint_state(intake.newest + 1.0, NAMES, effort=(1.0, effort))])
    assert intake.counts.implausible == 0
    assert len(intake.samples()) == 8


def test_rows_before_the_driver_has_read_the_joints_are_left_out() -> None:
    raw = [*(zeros(time) for time in TIME[:50]), *messages(motion())[50:]]
    samples = taken(joints(), raw)
    assert len(samples) == 350
    assert samples.counts.implausible == 50


def test_an_arm_that_stands_at_zero_stays_there() -> None:
    samples = taken(joints(), [zeros(time) for time in TIME])
    assert len(samples) == 400
    assert samples.counts.implausible == 0


def test_positions_that_stay_where_they_leapt_to_are_believed() -> None:
    position = motion()
    position[200:] += [-1.5, 1.5]
    samples = taken(joints(), messages(position))
    assert samples.counts.implausible == 9
    assert len(samples) == 391


@pytest.mark.parametrize(('arm', 'scale', 'words'), [
    (joints(), 180.0 / math.pi, "joint 'a' .* far beyond its limits -3.2 … 3.2 rad. It would fit "
                                'in degrees; have the driver or import give radians'),
    (joints((0.0, -1.0), (2.0, 1.0), prismatic=(True, True)), 1000.0,
     'would fit in millimetres; have the driver or import give metres'),
    (joints(), 1e5, 'Check the driver and the limits'),
])
def test_another_unit_is_named(arm: PlainJoints, scale: float, words: str) -> None:
    intake = JointIntake(arm, np.ones(2))
    intake.take(messages(scale * motion()))
    with pytest.raises(DataError, match=words):
        intake.bag_samples()


def test_a_log_that_is_implausible_in_good_part_is_refused() -> None:
    """Degrees of a posture near zero pass for radians; the few that do are no measurement."""
    position = np.degrees(motion() - motion()[0])
    intake = JointIntake(joints(), np.ones(2))
    intake.take(messages(position))
    with pytest.raises(DataError, match='of 400 joint states .* degrees'):
        intake.bag_samples()


def test_a_driver_that_does_not_fill_in_stamps_is_named() -> None:
    intake = JointIntake(joints(), np.ones(2))
    intake.take(messages(motion(), np.zeros(400)))
    with pytest.raises(DataError, match='399 of 400 stamps .* repeat or go back'):
        intake.bag_samples()


@pytest.mark.parametrize('names', [('finger',), ('finger', 'thumb', 'tool')])
def test_a_gripper_on_the_same_topic_is_no_fault(names: tuple[str, ...]) -> None:
    """Whatever its stamps; neither silence, nor a gap, nor disorder of the arm."""
    arm = messages(motion())
    gripper = [joint_state(divmod(round(1e9 * (time - 0.0005)), 10**9), names, [0.0] * len(names))
               for time in (*TIME[:200], *(0.0 * TIME[200:]))]
    samples = taken(joints(), [item for pair in zip(gripper, arm, strict=True) for item in pair])
    assert np.array_equal(samples.position, motion())
    counts = samples.counts
    assert replace(counts, received=0) == replace(type(counts)(), foreign=400)
