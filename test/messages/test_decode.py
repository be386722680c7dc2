# SPDX-License-Identifier: Apache-2.0
"""Bytes into arrays: the numbers that the libraries of ROS read, one by one and in blocks."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from geometry_msgs.msg import PointStamped, PoseStamped, WrenchStamped
from hypothesis import given, strategies as st
from rclpy.serialization import serialize_message
from sensor_msgs.msg import Imu, JointState, Temperature
from support.bag_examples import JOINT_STATE, NAMES, STORE, joint_state, wrench
from support.ros_rig import stamp

from robocal_ros.messages import decode
from robocal_ros.messages.checks import SECOND
from robocal_ros.messages.decode import Decoded, Decoder, JointDecoder, State, stamp_of

RNG = np.random.default_rng(3)
FRAMES = st.sampled_from(['', 'a', 'ab', 'abc', 'abcd', 'ft_wrist', 'a/rather/long_frame'])
LONG = ('joint_a', 'b', 'joint_number_three')
WANTED = ('joint_number_three', 'joint_a')


def joints(names: Sequence[str] = NAMES, **values: Any) -> JointDecoder:
    return JointDecoder(names, np.ones(len(names)), **values)


def both(decoder: Decoder, raw: Sequence[bytes]) -> Decoded:
    """Decode in a block, and assert that one by one gives the same to the last bit."""
    decoded = decoder(raw)
    for row, message in enumerate(raw):
        one = decoder.one(message)
        assert one.state == decoded.states[row]
        assert one.reason == decoded.reasons[row]
        if one.state is not State.UNREADABLE:
            assert one.stamp == decoded.stamps[row]
            assert one.frame == decoded.frames[row]
        if one.state is State.USABLE:
            np.testing.assert_array_equal(np.array(one.values), decoded.values[row])
    return decoded


@pytest.mark.parametrize('big', [False, True])
def test_joint_states_are_those_that_rosbags_reads(big: bool) -> None:
    raw = [joint_state((5, i), ('first', 'second', 'x'), RNG.normal(size=3), RNG.normal(size=3),
                       RNG.normal(size=3), big_endian=big) for i in range(20)]
    decoded = both(joints(('x', 'first')), raw)
    for row, message in enumerate(STORE.deserialize_cdr(item, JOINT_STATE) for item in raw):
        expected = np.concatenate([getattr(message, field)[[2, 0]]
                                   for field in ('position', 'velocity', 'effort')])
        assert decoded.values[row].tolist() == expected.tolist()
    assert decoded.stamps.tolist() == [5 * SECOND + i for i in range(20)]


@given(frame=FRAMES, velocity=st.booleans(), effort=st.booleans(), seed=st.integers(0, 100))
def test_joint_states_are_those_that_rclpy_writes(
    frame: str, velocity: bool, effort: bool, seed: int
) -> None:
    raw, expected = [], []
    for number in range(3):
        q, v, tau = np.random.default_rng(seed + number).normal(size=(3, 3))
        message = JointState(name=list(LONG), position=q.tolist())
        message.header.frame_id = frame
        message.header.stamp = stamp(5.0 + number)
        if velocity:
            message.velocity = v.tolist()
        if effort:
            message.effort = tau.tolist()
        raw.append(serialize_message(message))
        nothing = np.full(3, np.nan)
        expected.append([given[[2, 0]] for given in (
            q, v if velocity else nothing, tau if effort else nothing)])
    decoded = both(joints(WANTED), raw)
    assert (decoded.states == State.USABLE).all()
    np.testing.assert_array_equal(decoded.values, np.reshape(expected, (3, 6)))


def test_every_length_and_order_of_names_is_a_layout_of_its_own() -> None:
    raw = [joint_state(1.0, ('a', 'b')), joint_state(1.1, ('b', 'a')),
           joint_state(1.2, ('a',), (1.0,), (), ()), joint_state(1.3, (), (), (), ()),
           joint_state(1.4, ('a', 'b'), velocity=())]
    decoded = both(joints(), raw)
    nan = math.nan
    np.testing.assert_array_equal(decoded.values[[0, 1, 4]], [
        [0.1, 0.2, 0.3, 0.4, 1.0, 2.0], [0.2, 0.1, 0.4, 0.3, 2.0, 1.0],
        [0.1, 0.2, nan, nan, 1.0, 2.0]])
    assert decoded.states.tolist() == [
        State.USABLE, State.USABLE, State.UNREADABLE, State.UNREADABLE, State.USABLE]
    # As long as another, but with the effort where the velocity was.
    raw = [joint_state(1.0, effort=()), joint_state(1.0, velocity=()), joint_state(1.0, effort=())]
    decoded = both(joints(), raw)
    assert np.isnan(decoded.values).tolist() == [
        [False] * 4 + [True] * 2, [False] * 2 + [True] * 2 + [False] * 2,
        [False] * 4 + [True] * 2]


def test_padding_may_hold_anything() -> None:
    raw = [bytearray(joint_state(1.0 + i, ('a', 'bcd'))) for i in range(2)]
    where = raw[0].index(b'a\0') + 2
    assert raw[0][where:where + 2] == b'\0\0'
    raw[1][where:where + 2] = b'\xab\xcd'
    decoder = joints(('a', 'bcd'))
    decoded = both(decoder, [bytes(item) for item in raw])
    assert decoded.values[0].tolist() == decoded.values[1].tolist()
    assert len(decoder._known) == 1


@pytest.mark.parametrize('spoil', [
    lambda raw: raw[:30], lambda raw: raw[:-1], lambda raw: b'', lambda raw: b'\0\7' + raw[2:],
    lambda raw: raw[:20] + b'\xff\xff\xff\xff' + raw[24:],
    lambda raw: raw[:12] + b'\xff\xff\xff\x7f' + raw[16:],
])
def test_what_is_no_joint_state_is_told(spoil: Any) -> None:
    fine = joint_state(1.0)
    decoded = both(joints(), [fine, spoil(fine), fine])
    assert decoded.states.tolist() == [State.USABLE, State.UNREADABLE, State.USABLE]
    assert 'layout of their type' in decoded.reasons[1]


@pytest.mark.parametrize(('values', 'state', 'words'), [
    ({'names': ('a', 'c')}, State.UNREADABLE, "Joint 'b' is missing from .* holds a, c"),
    ({'names': (), 'position': ()}, State.UNREADABLE, 'no names'),
    ({'position': (0.0,)}, State.INCOMPLETE, '1 positions for 2 joints'),
    ({'position': (0.0, math.nan)}, State.NOT_FINITE, "Position of joint 'b' is not a finite"),
    ({'effort': ()}, State.INCOMPLETE, '0 efforts for 2 joints'),
    ({'effort': (math.inf, 1.0)}, State.NOT_FINITE, "Effort of joint 'a' is not a finite number"),
])
def test_joint_states_of_no_use_say_why(values: dict[str, Any], state: State, words: str) -> None:
    decoded = both(joints(need_effort=True), [joint_state(1.0, **values), joint_state(2.0)])
    assert decoded.states.tolist() == [state, State.USABLE]
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(decoded.reasons[0])
    if 'effort' in values:
        # Where nobody needs it, the effort is unknown, joint by joint.
        decoded = both(joints(), [joint_state(1.0, **values)])
        assert decoded.states[0] == State.USABLE
        assert np.isnan(decoded.values[0, 4])


def test_velocities_are_unknown_joint_by_joint_and_recorded_as_zero() -> None:
    decoder = joints(need_effort=True)
    decoded = both(decoder, [joint_state(1.0, velocity=(math.inf, 0.5)),
                             joint_state(2.0, velocity=(0.5,))])
    nan = math.nan
    np.testing.assert_array_equal(decoded.values[:, 2:4], [[nan, 0.5], [nan, nan]])
    assert decoder.recordable(decoded.values)[:, 2:4].tolist() == [[0.0, 0.5], [0.0, 0.0]]


@given(frames=st.lists(FRAMES, min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_wrenches_whatever_the_frame(frames: list[str], seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(len(frames), 6))
    raw = [wrench(1.0 + i, frame, row)
           for i, (frame, row) in enumerate(zip(frames, values, strict=True))]
    decoded = both(decode.wrenches("F/T topic '/ft'", frames[0], -1.0), raw)
    fits = np.array([frame == frames[0] or not frames[0] for frame in frames])
    np.testing.assert_array_equal(decoded.values[fits], -values[fits])
    assert (decoded.states == np.where(fits, State.USABLE, State.INCOMPLETE)).all()
    if not fits.all():
        assert f"F/T topic '/ft' names frame '{frames[np.argmin(fits)]}'" in decoded.reasons[
            np.argmin(fits)]


def test_readings_that_are_not_finite_say_so() -> None:
    raw = [wrench(1.0, 'f', (1.0, 2.0, 3.0, 4.0, 5.0, value))
           for value in (1.0, math.nan, math.inf, 1.7e308)]
    raw.append(wrench(1.0, 'f', (1.7e308,) * 6))  # finite, though their sum is not
    raw.append(wrench(1.0, 'f', (9e4, -9e4, 0.0, 0.0, 0.0, 9e4)))
    decoded = both(decode.wrenches('The sensor', 'f', 1.0), raw)
    assert decoded.states.tolist() == [
        State.USABLE, State.NOT_FINITE, State.NOT_FINITE, State.IMPLAUSIBLE, State.IMPLAUSIBLE,
        State.USABLE]
    assert decoded.reasons[1].startswith('The sensor sends values that are not finite numbers')


@pytest.mark.parametrize(('made', 'kind', 'field', 'value', 'words'), [
    (lambda source: decode.wrenches(source, '', -1.0), WrenchStamped, 'wrench.torque.y', 1e300,
     'value 5 of 6 is -1e+300, expected less than 1e+05'),
    (lambda source: decode.imus(source, ''), Imu, 'linear_acceleration.z', -1.1e4,
     'value 3 of 6 is -1.1e+04, expected less than 1e+04'),
    (lambda source: decode.imus(source, ''), Imu, 'angular_velocity.x', 2e3,
     'value 4 of 6 is 2000, expected less than 1000'),
    (decode.points, PointStamped, 'point.x', 1e200, 'value 1 of 3 is 1e+200'),
    (decode.poses, PoseStamped, 'pose.position.z', -1e5, 'value 3 of 7 is -1e+05'),
    (decode.temperatures, Temperature, 'temperature', 1e30, 'value 1 of 1 is 1e+30')])
def test_values_that_no_sensor_reads_are_refused_in_every_stream(
    made: Any, kind: Any, field: str, value: float, words: str
) -> None:
    message = kind()
    if kind is PoseStamped:
        message.pose.orientation.w = 1.0
    good = bytes(serialize_message(message))
    *path, name = field.split('.')
    setattr(functools.reduce(getattr, path, message), name, value)
    decoded = both(made('The sensor'), [good, bytes(serialize_message(message)), good])
    assert decoded.states.tolist() == [State.USABLE, State.IMPLAUSIBLE, State.USABLE]
    assert f'The sensor sent an implausible reading: {words}' in decoded.reasons[1]


def test_stamp_of_any_message_with_a_header() -> None:
    assert stamp_of(joint_state((-3, 7))) == -3 * SECOND + 7
    assert stamp_of(joint_state((2, 7), big_endian=True)) == 2 * SECOND + 7
    assert stamp_of(b'\0\1\0\0') is None
