# SPDX-License-Identifier: Apache-2.0
"""A tracker's messages out of a bag: the readings that a node would hear."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from support.bag_examples import STORE, joint_state
from support.joints import plain

from robocal_ros.errors import DataError
from robocal_ros.messages.intake import JointIntake, TrackerIntake
from robocal_ros.messages.marks import Span, StationaryInterval

RNG = np.random.default_rng(8)
QUARTER = (0.0, 0.0, math.sqrt(0.5), math.sqrt(0.5))


def message(stamp: float, values: Sequence[float], frame: str = 'tracker') -> bytes:
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


def stream(**values: object) -> TrackerIntake:
    return TrackerIntake('tracker/point', **{'orientation': False, 'source': 'bag', **values})


def test_poses() -> None:
    taken = stream(orientation=True)
    taken.take([message(1.0 + i, (1.0, 2.0, 3.0, *QUARTER)) for i in range(3)])
    samples = taken.bag_samples()
    assert samples.point.tolist() == [[1.0, 2.0, 3.0]] * 3
    assert samples.orientation.tolist() == [list(QUARTER)] * 3


def test_a_span_begins_and_ends_and_leaves_out() -> None:
    taken = stream(span=Span(1.95, 5.05, ((2.95, 3.95),)))
    # Before a run another tracker may have sent, in a frame of its own.
    raw = [message(1.0 + 0.1 * i, (1.0 * i, 0.0, 0.0), 'old' if i < 10 else 'new')
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
    taken = stream(stationary=rests)
    taken.take([message(1.0 + 0.1 * i, (1.0 * i, 0.0, 0.0)) for i in range(60)])
    samples = taken.bag_samples()
    assert samples.point[:, 0].tolist() == [5, 6, 7, 20, 21]
    assert samples.counts.received == 60


def test_joint_states_of_marked_rests_alone_are_kept() -> None:
    rests = (StationaryInterval(1.1, 1.3, 'unloaded', 0),
             StationaryInterval(5.0, 6.0, 'loaded', 0),
             StationaryInterval(90.0, 91.0, 'loaded', 1))
    taken = JointIntake(plain(('a', 'b')), np.ones(2), source='bag', stationary=rests)
    position = RNG.normal(size=(9000, 2))
    raw = [joint_state(1.0 + 0.001 * i, position=row) for i, row in enumerate(position)]
    for begin in range(0, len(raw), 4096):
        taken.take(raw[begin:begin + 4096])
    samples = taken.bag_samples()
    assert np.array_equal(samples.position, position[[*range(100, 300), *range(4000, 5000)]])
    assert samples.counts.received == 9000


@pytest.mark.parametrize(('raw', 'words'), [
    ([], r'0 messages\).*is empty'),
    ([message(1.0, (math.nan, 0.0, 0.0))], r'1 messages\).*not finite'),
    ([message(1.0, (0.0, 0.0, 0.0))[:30]], 'layout of their type'),
])
def test_a_topic_of_no_use_says_why(raw: list[bytes], words: str) -> None:
    taken = stream()
    if raw:
        taken.take(raw)
    with pytest.raises(DataError, match=f"Bag 'bag' holds no usable tracker reading.*{words}"):
        taken.bag_samples()


def test_what_is_no_reading_is_counted_and_told() -> None:
    taken = stream()
    for stamp, x, frame in ((1.0, 1.0, 'tracker'), (1.1, math.nan, 'tracker'),
                            (1.2, 1.0, 'other'), (1.15, 1.0, 'tracker')):
        taken.take_one(message(stamp, (x, 2.0, 3.0), frame))
    assert "'other' now and 'tracker' before" in taken.problem
    assert len(taken.samples()) == 1
    counts = taken.counts
    assert (counts.not_finite, counts.incomplete, counts.out_of_order) == (1, 1, 1)


def test_a_pose_needs_a_unit_quaternion() -> None:
    taken = stream(orientation=True)
    taken.take_one(message(1.0, (0.0,) * 7))
    assert 'quaternions of length 0' in taken.problem
    taken.take_one(message(1.1, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)))
    assert len(taken.samples()) == 1
