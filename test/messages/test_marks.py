# SPDX-License-Identifier: Apache-2.0
"""Marks of a procedure: which samples belong to its last run."""

from __future__ import annotations

import numpy as np
import pytest

from robocal_ros.errors import DataError
from robocal_ros.messages.marks import JOINTS, Mark, Span, StationaryInterval, last_run

RUN = ('run', 'estimate')


def mark(name: str, verb: str, **values: str) -> Mark:
    return Mark(name, verb, values)


def begin(stamp: float, verb: str = 'run') -> Mark:
    return mark('begin', verb, joint_states=str(stamp), ft=str(stamp + 0.5))


def end(stamp: float, verb: str = 'run', **words: str) -> Mark:
    return mark('end', verb, joint_states=str(stamp), **words)


def test_no_marks_tell_nothing() -> None:
    assert last_run([], RUN) is None


def test_a_run_is_from_its_begin_to_its_end() -> None:
    spans = last_run([begin(1.0), end(2.0, measure_joints='a,b')], RUN)
    assert spans.of(JOINTS) == Span(1.0, 2.0)
    assert spans.of('ft') == Span(1.5, np.inf)
    assert spans.of('other') == Span()
    assert spans.joints_wanted == ('a', 'b')
    assert spans.method == ''
    assert last_run([begin(1.0), end(2.0, method='excitation')], RUN).method == 'excitation'


def test_the_last_run_of_the_right_kind_counts() -> None:
    marks = [begin(1.0), end(2.0), begin(3.0), end(4.0),
             begin(5.0, 'calibrate_gains'), end(6.0, 'calibrate_gains'), begin(7.0, 'clear')]
    assert last_run(marks, RUN).of(JOINTS) == Span(3.0, 4.0)
    assert last_run(marks, ('calibrate_gains',)).of(JOINTS) == Span(5.0, 6.0)


def test_a_run_that_has_not_ended_counts_if_there_is_no_other() -> None:
    assert last_run([begin(3.0)], RUN).of(JOINTS) == Span(3.0)
    assert last_run([begin(1.0), end(2.0), begin(3.0)], RUN).of(JOINTS) == Span(1.0, 2.0)


def test_estimating_again_takes_what_was_recorded_meanwhile() -> None:
    marks = [begin(1.0), end(2.0), end(3.0, 'estimate')]
    assert last_run(marks, RUN).of(JOINTS) == Span(1.0, 3.0)


def test_what_was_discarded_does_not_count() -> None:
    marks = [mark('discard', 'run', joint_states='0.1 0.2'), begin(1.0),
             mark('discard', 'run', joint_states='1.25 1.5'), end(2.0)]
    span = last_run(marks, RUN).of(JOINTS)
    assert span.discarded == ((1.25, 1.5),)
    time = np.array([1.0, 1.125, 1.25, 1.375, 1.5, 1.625, 2.0, 2.125])
    assert time[span.holds(time)].tolist() == [1.125, 1.25, 1.625, 2.0]


@pytest.mark.parametrize('told', ['', 'soon', '1.0 2.0', 'nan'])
def test_marks_without_sense_are_refused(told: str) -> None:
    with pytest.raises(DataError, match='--whole'):
        last_run([mark('begin', 'run', joint_states=told), end(2.0)], RUN)


def rest(begin: float, end: float, purpose: str = 'loaded', posture: int = 0) -> Mark:
    return mark('rest', 'run', joint_states=f'{begin!r} {end!r}', set=purpose,
                posture=str(posture))


def test_rests_of_the_run_are_told_in_their_order() -> None:
    marks = [begin(1.0), rest(1.1, 1.2), end(1.3), begin(2.0), rest(2.1, 2.2, 'unloaded', 3),
             rest(2.3, 2.4), end(2.5), rest(2.6, 2.7)]
    spans = last_run(marks, RUN)
    assert spans.stationary == (StationaryInterval(2.1, 2.2, 'unloaded', 3),
                                StationaryInterval(2.3, 2.4, 'loaded', 0))
    assert spans.of(JOINTS) == Span(2.0, 2.5)
    time = np.array([2.0, 2.1, 2.15, 2.2])
    assert time[spans.stationary[0].holds(time)].tolist() == [2.1, 2.15]


def test_measuring_on_after_an_estimate_adds_rests() -> None:
    marks = [begin(1.0), rest(1.1, 1.2), end(1.3), rest(1.4, 1.5), end(1.6)]
    assert [item.begin for item in last_run(marks, RUN).stationary] == [1.1, 1.4]


def test_rests_that_end_in_what_was_discarded_do_not_count() -> None:
    marks = [begin(1.0), rest(1.1, 1.2), rest(1.3, 1.4), rest(1.5, 1.6),
             mark('discard', 'run', joint_states='1.2 1.6'), rest(1.7, 1.8), end(2.0)]
    assert [item.begin for item in last_run(marks, RUN).stationary] == [1.1, 1.7]


@pytest.mark.parametrize('values', [
    {}, {'joint_states': '1.0'}, {'joint_states': '1.0 2.0', 'posture': 'x'},
    {'joint_states': '1.0 2.0'}])
def test_rests_without_sense_are_refused(values: dict[str, str]) -> None:
    with pytest.raises(DataError, match="mark 'rest' has .*--whole"):
        last_run([begin(0.0), mark('rest', 'run', **values), end(2.0)], RUN)


def test_huge_stamps_are_only_numbers() -> None:
    span = last_run([begin(-1e151), end(1e151)], RUN).of(JOINTS)
    assert span.holds(np.array([0.0])).all()
