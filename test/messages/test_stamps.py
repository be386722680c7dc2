# SPDX-License-Identifier: Apache-2.0
"""Stamps that arrive one by one and in blocks: the same ones count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, strategies as st

from robocal_ros.messages.checks import SECOND, StampGuard, Stamps, from_seconds, to_seconds

PERIOD = SECOND // 100

# Steps between stamps, in periods: mostly regular, with repeats, gaps, lateness and jumps.
steps = st.lists(
    st.sampled_from((1.0,) * 12 + (0.0, 3.0, -1.0, -0.4, -20.0, -500.0, 250.0, 1e5)), max_size=150)


def one_by_one(stamps: Sequence[int]) -> tuple[StampGuard, list[bool], list[int]]:
    guard, counts, jumps = StampGuard(), [], []
    for row, stamp in enumerate(stamps):
        before = guard.counts.clock_jumps
        used = guard.admit(stamp)
        if guard.withdrawn is not None:
            counts[max(row for row, admitted in enumerate(counts) if admitted)] = False
        counts.append(used)
        if guard.counts.clock_jumps > before:
            jumps.append(row)
    return guard, counts, jumps


def in_blocks(stamps: Stamps, size: int) -> tuple[StampGuard, list[bool], list[int]]:
    guard, used, jumps = StampGuard(), list[int](), list[int]()
    for begin in range(0, len(stamps), size):
        mask, at = guard.admit_block(stamps[begin:begin + size])
        rows = (begin + np.flatnonzero(mask)).tolist()
        if used and rows and stamps[rows[0]] < stamps[used[-1]] and rows[0] - begin not in at:
            # The last of the earlier blocks was corrupt.
            used.pop()
        used += rows
        jumps += [begin + row for row in at]
    return guard, [row in used for row in range(len(stamps))], jumps


@given(steps, st.integers(1, 40), st.sampled_from((0, 130)))
def test_blocks_are_judged_like_single_stamps(steps: list[float], size: int, regular: int) -> None:
    stamps = 100 * SECOND + (PERIOD * np.cumsum([0.0, *[1.0] * regular, *steps])).astype(np.int64)
    expected, counts, jumps = one_by_one(stamps.tolist())
    guard, found, found_jumps = in_blocks(stamps, size)
    assert found == counts
    assert found_jumps == jumps
    assert guard.counts == expected.counts
    assert guard.newest == expected.newest


def test_a_late_message_was_not_lost() -> None:
    guard = StampGuard()
    order = [*range(30), 31, 30, *range(32, 40)]
    for i in order:
        guard.admit(PERIOD * i)
    assert guard.counts.dropped == 0
    assert guard.counts.out_of_order == 1


def test_a_pause_of_the_recording_is_no_loss() -> None:
    guard = StampGuard()
    for i in range(30):
        guard.admit(PERIOD * i)
    guard.admit(3000 * SECOND)
    assert guard.counts.dropped == 0


@pytest.mark.parametrize('odd', [
    2**31 * SECOND, 0, -5 * SECOND, 5000 * SECOND, *(
        round((100.5 + ahead) * SECOND) for ahead in (0.1, 0.2, 0.99, 1.01, 60.0, 3599.0))])
@pytest.mark.parametrize('place', [10, 50, 99])
def test_a_single_corrupt_stamp_costs_its_message_alone(odd: int, place: int) -> None:
    guard = StampGuard()
    good = 100 * SECOND + PERIOD * np.arange(100)
    stamps = np.insert(good, place, odd + (place - 50) * PERIOD)
    counts, jumps = guard.admit_block(stamps)
    assert guard.counts.clock_jumps == 0
    assert guard.counts.out_of_order == 1
    assert guard.counts.dropped == 0
    assert jumps == []
    assert stamps[counts].tolist() == good.tolist()


@pytest.mark.parametrize('ahead', [0.04, 0.2, 5.0, 3000.0])
@pytest.mark.parametrize('place', [0, 1, 2, 3, 4, 57, 100, 150])
@pytest.mark.parametrize('size', [1, 64, 200])
def test_a_corrupt_stamp_costs_one_message_of_a_stream_with_gaps(
    ahead: float, place: int, size: int
) -> None:
    """Such a stream has no limit of doubt: what follows shows which stamp was corrupt."""
    # Every seventh interval is five times as long.
    good = 100 * SECOND + PERIOD * np.cumsum(np.where(np.arange(200) % 7 == 6, 5, 1))
    odd = good[place] + round(ahead * SECOND)
    stamps = np.insert(good, place, odd)
    guard, used, jumps = in_blocks(stamps, size)
    assert jumps == []
    # The first of all costs the next one too, since only the third tells which of them is right.
    assert stamps[used].tolist() == good.tolist()[int(place == 0):]
    assert guard.counts.clock_jumps == 0
    assert guard.counts.out_of_order == 1 + int(place == 0)


@pytest.mark.parametrize('ahead', [0.07, 0.2, 5.0, 3000.0])
def test_after_a_gap_a_stream_goes_on(ahead: float) -> None:
    """A gap is believed with its third stamp; a short one at once."""
    guard = StampGuard()
    first = 100 * SECOND + PERIOD * np.arange(100)
    later = first[-1] + round(ahead * SECOND) + PERIOD * np.arange(100)
    counts, jumps = guard.admit_block(np.append(first, later))
    left_out = 0 if ahead < 0.08 else 2
    assert counts.tolist() == [True] * 100 + [False] * left_out + [True] * (100 - left_out)
    assert jumps == []
    assert guard.counts.clock_jumps == 0
    assert guard.counts.out_of_order == left_out
    assert guard.counts.dropped == (0 if ahead > 60.0 else round(100.0 * ahead) - 1)


def test_a_stream_with_pauses_or_that_slows_down_loses_nothing() -> None:
    guard = StampGuard()
    # Readings in groups of ten, as of a tracker that measures on request.
    in_groups = [100 * SECOND + 20 * SECOND * group + SECOND // 10 * number
                 for group in range(30) for number in range(10)]
    assert sum(map(guard.admit, in_groups)) >= len(in_groups) - 2
    guard = StampGuard()
    slower = np.cumsum([PERIOD] * 100 + [20 * PERIOD] * 100)
    counts, _ = guard.admit_block(slower)
    assert counts.sum() == 198


def test_a_second_clock_on_the_topic_is_left_out() -> None:
    guard = StampGuard()
    own = 100 * SECOND + PERIOD * np.arange(300)
    both = np.column_stack((own, own + SECOND // 2)).ravel()[100:]
    for stamp in own[:50].tolist():
        assert guard.admit(stamp)
    counts, jumps = guard.admit_block(both)
    assert counts.tolist() == [True, False] * 250
    assert jumps == []


@pytest.mark.parametrize('ahead', [1_700_000_000 * SECOND, -99 * SECOND])
def test_a_clock_that_is_set_is_a_jump(ahead: int) -> None:
    """From simulated time to wall time, for example; the third stamp in a row confirms it."""
    guard = StampGuard()
    first = 100 * SECOND + PERIOD * np.arange(50)
    counts, jumps = guard.admit_block(np.append(first, first + ahead))
    assert guard.counts.clock_jumps == 1
    assert jumps == [52]
    assert counts.tolist() == [True] * 50 + [False] * 2 + [True] * 48


@pytest.mark.parametrize('stamps', [[], [3], [-5, -4]])
def test_few_stamps(stamps: list[int]) -> None:
    guard = StampGuard()
    counts, jumps = guard.admit_block(np.array(stamps, np.int64))
    assert counts.tolist() == [True] * len(stamps)
    assert jumps == []


def test_a_nanosecond_is_told_apart_in_this_century() -> None:
    guard = StampGuard()
    now = 1_800_000_000 * SECOND
    assert guard.admit(now)
    assert guard.admit(now + 1)
    assert guard.newest == now + 1


@given(st.integers(-2**31, 2**31 - 1), st.integers(0, SECOND - 1))
def test_seconds_are_those_of_the_parts_of_a_stamp(sec: int, nanosec: int) -> None:
    stamp = sec * SECOND + nanosec
    assert to_seconds(stamp) == float(sec) + 1e-9 * float(nanosec)
    assert to_seconds(np.array([stamp]))[0] == to_seconds(stamp)
    assert abs(from_seconds(to_seconds(stamp)) - stamp) <= 500
