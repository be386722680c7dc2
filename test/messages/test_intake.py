# SPDX-License-Identifier: Apache-2.0
"""Serialized messages into samples, thousands at a time: the same numbers as one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from support.bag_examples import NAMES, joint_state, wrench
from support.joints import plain

from robocal_ros.errors import DataError
from robocal_ros.messages.intake import JointIntake, WrenchIntake
from robocal_ros.messages.marks import Span


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

    def test_an_empty_topic_says_so(self) -> None:
        with pytest.raises(DataError, match=r'0 messages\).*empty'):
            stream().bag_samples()

    def test_effort_may_be_absent_where_nobody_needs_it(self) -> None:
        taken = stream(need_effort=False)
        taken.take([joint_state(1.0, effort=()), joint_state(2.0, effort=(math.nan,) * 2)])
        assert not taken.bag_samples().effort.any()

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
        expected = [*range(20, 40), *range(50, 80)]
        assert samples.effort[:, 0].tolist() == expected
        assert samples.counts.received == 60

    def test_long_topics_are_averaged(self) -> None:
        taken = stream(budget=1500)
        raw = [joint_state(1.0 + 0.001 * i, effort=(float(i), 0.0)) for i in range(4096)]
        taken.take(raw)
        assert taken.record.averaged == 4
        assert taken.recorded == 4096
        samples = taken.bag_samples()
        assert len(samples) == 1024
        assert samples.effort[:, 0].tolist() == [1.5 + 4.0 * i for i in range(1024)]


class TestWrenchIntake:
    """Which readings become samples."""

    @pytest.mark.parametrize(('frame', 'value', 'words'), [
        ('tool', 0.0, "names frame 'tool', but 'ft' is expected"),
        ('ft', math.nan, 'not finite numbers'),
    ])
    def test_readings_of_no_use_say_why(self, frame: str, value: float, words: str) -> None:
        taken = WrenchIntake('ft_topic', 'ft', 1.0, source='bag')
        taken.take([wrench(1.0, frame, [value] * 6)])
        with pytest.raises(DataError, match=f"'ft_topic'.*1 messages.*{words}"):
            taken.bag_samples()
