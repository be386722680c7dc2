# SPDX-License-Identifier: Apache-2.0
"""Numbers read straight out of messages are those that the usual way gives."""

from __future__ import annotations

import numpy as np
import pytest
from geometry_msgs.msg import WrenchStamped
from hypothesis import given, settings
from hypothesis import strategies as st
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import Imu, JointState
from support.ros_rig import joint_state, stamp

from robocal_ros.wrench.messages import ImuReader, JointReader, SensorReader, WrenchWriter

pytestmark = pytest.mark.usefixtures('ros')

FRAMES = st.sampled_from(['', 'a', 'ab', 'abc', 'abcd', 'ft_wrist', 'a/rather/long_frame'])
NAMES = ('joint_a', 'b', 'joint_number_three')


def wrench(frame: str, time: float, seed: int) -> WrenchStamped:
    message = WrenchStamped()
    message.header.frame_id = frame
    message.header.stamp = stamp(time)
    values = np.random.default_rng(seed).normal(size=6).tolist()
    force, torque = message.wrench.force, message.wrench.torque
    force.x, force.y, force.z, torque.x, torque.y, torque.z = values
    return message


@given(frames=st.lists(FRAMES, min_size=2, max_size=6), seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_wrenches_whatever_the_frame(frames: list[str], seed: int) -> None:
    reader = SensorReader()
    for number, frame in enumerate(frame for frame in frames for _ in range(2)):
        message = wrench(frame, 12.5 + 0.001 * number, seed + number)
        told, when, values = reader.read(serialize_message(message))
        w = message.wrench
        assert told == frame
        assert when == pytest.approx(12.5 + 0.001 * number, abs=1e-9)
        assert values == (w.force.x, w.force.y, w.force.z, w.torque.x, w.torque.y, w.torque.z)


@given(frame=FRAMES, fast=st.booleans())
@settings(max_examples=20, deadline=None)
def test_written_wrenches_are_read_as_usual(frame: str, fast: bool) -> None:
    writer = WrenchWriter(frame)
    writer._fast &= fast
    for number in range(2):
        values = tuple(0.5 * number + k for k in range(6))
        message = deserialize_message(writer.write(stamp(2.5 + number), values), WrenchStamped)
        assert message.header.frame_id == frame
        assert message.header.stamp == stamp(2.5 + number)
        w = message.wrench
        assert values == (w.force.x, w.force.y, w.force.z, w.torque.x, w.torque.y, w.torque.z)


@given(frame=FRAMES)
@settings(max_examples=20, deadline=None)
def test_imus(frame: str) -> None:
    reader = ImuReader()
    for number in range(3):
        message = Imu()
        message.header.frame_id = frame
        message.header.stamp = stamp(3.0 + number)
        a, w = message.linear_acceleration, message.angular_velocity
        a.x, a.y, a.z, w.x, w.y, w.z = (float(number + k) for k in range(6))
        message.orientation_covariance[0] = -1.0
        told, when, values = reader.read(serialize_message(message))
        assert (told, when) == (frame, 3.0 + number)
        assert values == tuple(float(number + k) for k in range(6))


@given(frame=FRAMES, velocity=st.booleans(), effort=st.booleans(), seed=st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_joint_states_whatever_they_hold(
    frame: str, velocity: bool, effort: bool, seed: int
) -> None:
    reader = JointReader(('joint_number_three', 'joint_a'))
    for number in range(3):
        values = np.random.default_rng(seed + number).normal(size=(3, 3))
        message = joint_state(5.0 + number, NAMES, values[0].tolist(),
                              values[1].tolist() if velocity else (),
                              values[2].tolist() if effort else ())
        message.header.frame_id = frame
        when, q, v, e = reader.read(serialize_message(message))
        assert when == 5.0 + number
        np.testing.assert_array_equal(q, values[0][[2, 0]])
        for told, given_values, there in ((v, values[1], velocity), (e, values[2], effort)):
            if there:
                np.testing.assert_array_equal(told, given_values[[2, 0]])
            else:
                assert told is None
        assert reader.complaint == ''


def test_layouts_that_change_on_the_way() -> None:
    reader = JointReader(NAMES[:2])
    for names, expected in ((NAMES, [1.0, 2.0]), (NAMES[::-1], [3.0, 2.0]), (NAMES, [1.0, 2.0])):
        for _ in range(2):
            _, q, _, _ = reader.read(serialize_message(
                joint_state(1.0, names, [1.0, 2.0, 3.0])))
            np.testing.assert_array_equal(q, expected)
    # As long as before, but with the effort where the velocity was.
    full = JointState(name=list(NAMES), position=[1.0, 2.0, 3.0], velocity=[4.0, 5.0, 6.0])
    other = JointState(name=list(NAMES), position=[1.0, 2.0, 3.0], effort=[4.0, 5.0, 6.0])
    for message in (full, other, full, other):
        _, _, v, e = reader.read(serialize_message(message))
        assert (v is None) == (message is other)
        assert (e is None) == (message is full)


@pytest.mark.parametrize(('message', 'words'), [
    (joint_state(1.0, NAMES[1:], [1.0, 2.0]), "Joint 'joint_a' is missing"),
    (joint_state(1.0, (), ()), 'holds no names'),
    (joint_state(1.0, NAMES, [1.0, 2.0]), 'no position for every joint'),
    (joint_state(1.0, NAMES, [1.0, np.nan, 2.0]), 'not a finite number'),
])
def test_complaints(message: JointState, words: str) -> None:
    reader = JointReader(NAMES[:2])
    for _ in range(2):
        assert reader.read(serialize_message(message))[1] is None
        assert words in reader.complaint
    reader.read(serialize_message(joint_state(2.0, NAMES, [1.0, 2.0, 3.0])))
    assert reader.complaint == ''


def test_a_velocity_that_is_not_finite_is_none() -> None:
    reader = JointReader(NAMES[:2])
    nan = float('nan')
    message = joint_state(1.0, NAMES, [1.0, 2.0, 3.0], [nan, nan, nan], [1.0, nan, 2.0])
    _, q, v, e = reader.read(serialize_message(message))
    assert q is not None
    assert v is None
    assert e is None


def test_big_endian_messages_are_read_the_usual_way() -> None:
    """No ROS 2 middleware here sends them; whoever does is not misread."""
    raw = serialize_message(wrench('ft', 1.0, 1))
    reader = SensorReader()
    reader.read(raw)
    assert reader._size == len(raw)
    assert reader._head == raw[12:reader._at]
