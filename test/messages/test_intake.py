# SPDX-License-Identifier: Apache-2.0
"""Serialized messages into samples, thousands at a time: the same numbers as one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from support.bag_examples import NAMES, STORE, joint_state, wrench
from support.joints import plain

from robocal_ros.errors import DataError
from robocal_ros.messages.intake import Intake, JointIntake, TrackerIntake, WrenchIntake
from robocal_ros.messages.marks import Span, StationaryInterval


def stream(**values: Any) -> JointIntake:
    return JointIntake(plain(values.pop('names', NAMES)), values.pop('factor', np.ones(2)),
                       **{'need_effort': True, 'source': 'bag', **values})


def good(first: int, last: int, **values: Any) -> list[bytes]:
    return [joint_state(1.0 + 0.01 * i, position=(0.1 * i, -0.1 * i), effort=(1.0 * i, 2.0),
                        **values) for i in range(first, last)]


class TestJointIntake:
    """Which messages become samples."""

    def test_samples_are_the_messages_in_the_arms_order(self) -> None:
        taken = stream(factor=np.array([2.0, -1.0]))
        taken.take([joint_state(1.5, ('x', 'b', 'a'), (9, 1, 2), (9, 3, 4), (9, 5, 6))])
        samples = taken.bag_samples()
        assert samples.joint_names == NAMES
        assert samples.time.tolist() == [1.5]
        assert samples.position.tolist() == [[2, 1]]
        assert samples.velocity.tolist() == [[4, 3]]
        assert samples.effort.tolist() == [[12, -5]]
        assert samples.source == 'bag'

    @pytest.mark.parametrize(('message', 'words'), [
        ({'effort': ()}, 'holds 0 efforts for 2 joints'),
        ({'effort': (math.nan, 1.0)}, "Effort of joint 'a' is not a finite number"),
        ({'position': (math.inf, 1.0)}, "Position of joint 'a' is not a finite number"),
        ({'position': (1.0,)}, 'holds 1 positions for 2 joints'),
        ({'names': ('panda_joint1', 'panda_joint2')}, "'a' is missing .* panda_joint1"),
    ])
    def test_a_bag_of_no_use_says_why(self, message: dict[str, Any], words: str) -> None:
        taken = stream()
        taken.take([joint_state(1.0 + i, **message) for i in range(5)])
        with pytest.raises(
                DataError, match=f"Bag 'bag' holds no usable joint state.*5 mess.*{words}"):
            taken.bag_samples()

    def test_effort_may_be_absent_where_nobody_needs_it(self) -> None:
        taken = stream(need_effort=False)
        taken.take([joint_state(1.0, effort=()), joint_state(2.0, effort=(math.nan,) * 2)])
        assert not taken.bag_samples().effort.any()

    def test_states_that_the_driver_repeats_are_left_out(self) -> None:
        live, bag = stream(), stream()
        # The driver sends 500 states a second, of which an arm measures every fourth.
        raw = [joint_state(1.0 + 0.002 * i, position=(0.001 * (i // 4), 0.0),
                           effort=(1.0 + i // 4, 2.0)) for i in range(400)]
        bag.take(raw)
        for message in raw:
            live.take_one(message)
        for samples in live.samples().measured_anew(), bag.bag_samples().measured_anew():
            assert np.allclose(np.diff(samples.time), 0.008)
            assert samples.counts.received == 400
            assert np.allclose(np.diff(samples.position[:, 0]), 0.001)

    @pytest.mark.parametrize(('stamps', 'left'), [
        ([(1, 0), (1, 0), (1, 0), (2, 0)], [1.0, 2.0]),
        ([(-5, 0), (-4, 500_000_000), (3, 0)], [-5.0, -3.5, 3.0]),
        ([(2**31 - 1, 999_999_999)], [2**31 - 1 + 1e-9 * 999_999_999]),
        # Nanoseconds beyond a second are no valid stamp, but they are a time.
        ([(1, 0), (1, 4_000_000_000)], [1.0, 5.0]),
        ([(100, 0), (101, 0), (3, 0), (4, 0)], [100.0, 101.0]),
        ([(100, 0), (101, 0), (3, 0), (4, 0), (5, 0), (6, 0)], [5.0, 6.0]),
    ])
    def test_strange_stamps(self, stamps, left) -> None:
        taken = stream()
        taken.take([joint_state(stamp) for stamp in stamps])
        assert taken.bag_samples().time.tolist() == pytest.approx(left)

    @pytest.mark.parametrize('size', [1, 7, 1000])
    def test_a_clock_that_jumps_back_costs_what_came_before(self, size: int) -> None:
        raw = good(0, 300) + good(0, 50)
        taken = stream()
        for begin in range(0, len(raw), size):
            taken.take(raw[begin:begin + size])
        samples = taken.bag_samples()
        assert samples.counts.clock_jumps == 1
        # Two stamps are left out until the third one confirms the jump.
        assert samples.counts.out_of_order == 2
        assert len(samples) == 48
        assert samples.time[0] == 1.02

    @pytest.mark.parametrize('size', [1, 7, 1000])
    def test_a_corrupt_stamp_neither_begins_nor_ends_a_run(self, size: int) -> None:
        raw = good(0, 300)
        # One in the run's time before it, and one after its time within it.
        raw[50:50] = [joint_state(2.5)]
        raw[200:200] = [joint_state(100.0)]
        taken = stream(span=Span(2.0, 3.5))
        for begin in range(0, len(raw), size):
            taken.take(raw[begin:begin + size])
        samples = taken.bag_samples()
        np.testing.assert_allclose(samples.time, 2.0 + 0.01 * np.arange(1, 151))
        assert samples.counts.received == 151
        assert samples.counts.out_of_order == 1

    def test_a_span_begins_and_ends_and_leaves_out(self) -> None:
        taken = stream(span=Span(1.195, 1.795, ((1.395, 1.495),)))
        for message in good(0, 100):
            taken.take([message])
        samples = taken.bag_samples()
        assert samples.effort[:, 0].tolist() == [*range(20, 40), *range(50, 80)]
        assert samples.counts.received == 60

    def test_of_marked_rests_alone_is_kept_what_was_read(self) -> None:
        rests = (StationaryInterval(1.1, 1.3, 'unloaded', 0),
                 StationaryInterval(5.0, 6.0, 'loaded', 0),
                 StationaryInterval(90.0, 91.0, 'loaded', 1))
        taken = stream(need_effort=False, stationary=rests)
        position = np.random.default_rng(0).normal(size=(9000, 2))
        raw = [joint_state(1.0 + 0.001 * i, position=row) for i, row in enumerate(position)]
        for begin in range(0, len(raw), 4096):
            taken.take(raw[begin:begin + 4096])
        samples = taken.bag_samples()
        assert np.array_equal(samples.position, position[[*range(100, 300), *range(4000, 5000)]])
        assert samples.counts.received == 9000

    def test_long_topics_are_averaged(self) -> None:
        taken = stream(budget=1500)
        raw = [joint_state(1.0 + 0.001 * i, effort=(float(i), 0.0)) for i in range(4096)]
        taken.take(raw)
        assert taken.record.averaged == 4
        assert taken.recorded == 4096
        samples = taken.bag_samples()
        assert len(samples) == 1024
        assert samples.effort[:, 0].tolist() == [1.5 + 4.0 * i for i in range(1024)]


QUARTER = (0.0, 0.0, math.sqrt(0.5), math.sqrt(0.5))


def reading(stamp: float, values: Sequence[float], frame: str = 'tracker') -> bytes:
    """Return a serialized point, or pose, written by rosbags."""
    kind = f'geometry_msgs/msg/{"PoseStamped" if len(values) == 7 else "PointStamped"}'
    sec, nanosec = divmod(round(stamp * 1e9), 10**9)
    header = STORE.types['std_msgs/msg/Header'](
        STORE.types['builtin_interfaces/msg/Time'](sec, nanosec), frame)
    content = STORE.types['geometry_msgs/msg/Point'](*values[:3])
    if len(values) == 7:
        content = STORE.types['geometry_msgs/msg/Pose'](
            content, STORE.types['geometry_msgs/msg/Quaternion'](*values[3:]))
    return bytes(STORE.serialize_cdr(STORE.types[kind](header, content), kind))


def tracker(**values: object) -> TrackerIntake:
    return TrackerIntake('tracker/point', **{'orientation': False, 'source': 'bag', **values})


def sensor() -> WrenchIntake:
    return WrenchIntake('ft_topic', 'ft', 1.0, source='bag')


def test_poses() -> None:
    taken = tracker(orientation=True)
    taken.take([reading(1.0 + i, (1.0, 2.0, 3.0, *QUARTER)) for i in range(3)])
    samples = taken.bag_samples()
    assert samples.point.tolist() == [[1.0, 2.0, 3.0]] * 3
    assert samples.orientation.tolist() == [list(QUARTER)] * 3


def test_a_span_begins_and_ends_and_leaves_out() -> None:
    taken = tracker(span=Span(1.95, 5.05, ((2.95, 3.95),)))
    # Before a run another tracker may have sent, in a frame of its own.
    raw = [reading(1.0 + 0.1 * i, (1.0 * i, 0.0, 0.0), 'old' if i < 10 else 'new')
           for i in range(60)]
    for item in raw:
        taken.take([item])
    samples = taken.bag_samples()
    assert samples.frame == 'new'
    assert samples.point[:, 0].tolist() == [*range(10, 20), *range(30, 41)]
    assert samples.counts.received == 31


def test_of_marked_rests_alone_is_kept_what_was_read() -> None:
    rests = (StationaryInterval(1.45, 1.75, 'unloaded', 0),
             StationaryInterval(3.0, 3.2, 'loaded', 0))
    taken = tracker(stationary=rests)
    taken.take([reading(1.0 + 0.1 * i, (1.0 * i, 0.0, 0.0)) for i in range(60)])
    samples = taken.bag_samples()
    assert samples.point[:, 0].tolist() == [5, 6, 7, 20, 21]
    assert samples.counts.received == 60


@pytest.mark.parametrize(('made', 'raw', 'words'), [
    (stream, [], r'joint state.*0 messages\).*is empty'),
    (tracker, [], r'tracker reading.*0 messages\).*is empty'),
    (tracker, [reading(1.0, (math.nan, 0.0, 0.0))], r'tracker reading.*1 messages\).*not finite'),
    (tracker, [reading(1.0, (0.0, 0.0, 0.0))[:30]], 'tracker reading.*layout of their type'),
    (sensor, [wrench(1.0, 'tool', [0.0] * 6)],
     "reading on 'ft_topic'.*1 messages.*names frame 'tool', but 'ft' is expected"),
    (sensor, [wrench(1.0, 'ft', [math.nan] * 6)],
     "reading on 'ft_topic'.*1 messages.*not finite numbers"),
])
def test_a_topic_of_no_use_says_why(
    made: Callable[[], Intake], raw: list[bytes], words: str
) -> None:
    taken = made()
    if raw:
        taken.take(raw)
    with pytest.raises(DataError, match=f"Bag 'bag' holds no usable {words}"):
        taken.bag_samples()


def test_what_is_no_reading_is_counted_and_told() -> None:
    taken = tracker()
    for stamp, x, frame in ((1.0, 1.0, 'tracker'), (1.1, math.nan, 'tracker'),
                            (1.2, 1.0, 'other'), (1.15, 1.0, 'tracker')):
        taken.take_one(reading(stamp, (x, 2.0, 3.0), frame))
    assert "'other' now and 'tracker' before" in taken.problem
    assert len(taken.samples()) == 1
    counts = taken.counts
    assert (counts.not_finite, counts.incomplete, counts.out_of_order) == (1, 1, 1)


def test_a_pose_needs_a_unit_quaternion() -> None:
    taken = tracker(orientation=True)
    taken.take_one(reading(1.0, (0.0,) * 7))
    assert 'quaternions of length 0' in taken.problem
    taken.take_one(reading(1.1, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)))
    assert len(taken.samples()) == 1
