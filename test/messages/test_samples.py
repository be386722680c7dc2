# SPDX-License-Identifier: Apache-2.0
"""What counts as a record of samples."""

from __future__ import annotations

import numpy as np
import pytest

from robocal_ros.errors import DataError
from robocal_ros.messages.samples import (
    JointSamples,
    WrenchSamples,
    check_effort,
    check_joints,
)

NAMES = ('a', 'b')


def joints(k: int = 5, **changes) -> JointSamples:
    generator = np.random.default_rng(0)
    arrays = {name: generator.normal(size=(k, 2)) for name in ('position', 'velocity', 'effort')}
    return JointSamples(NAMES, **{'time': np.arange(float(k)), **arrays, **changes})


def test_samples_cannot_be_changed_and_do_not_follow_their_source():
    time = np.arange(5.0)
    samples = joints(time=time)
    time[0] = -7.0
    assert samples.time[0] == 0.0
    with pytest.raises(ValueError, match='read-only'):
        samples.effort[0, 0] = 1.0


def test_an_empty_record_is_a_record():
    empty = np.zeros((0, 2))
    samples = JointSamples(NAMES, np.zeros(0), empty, empty, empty)
    assert len(samples) == 0


@pytest.mark.parametrize('time', [[0.0, 1.0, 1.0, 2.0, 3.0], [0.0, 2.0, 1.0, 3.0, 4.0]])
def test_stamps_that_do_not_increase_are_refused_with_their_row(time):
    with pytest.raises(DataError, match='stamps must increase, but sample 2 has 1.0.*sort'):
        joints(time=time)


def test_stamps_must_be_finite():
    with pytest.raises(DataError, match='time stamp is not finite; leave'):
        joints(time=[0.0, 1.0, np.nan, 3.0, 4.0])
    with pytest.raises(DataError, match='one axis'):
        joints(time=np.zeros((5, 1)))


@pytest.mark.parametrize('what', ['position', 'velocity', 'effort'])
@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
def test_values_must_be_finite(what, bad):
    values = np.zeros((5, 2))
    values[3, 1] = bad
    with pytest.raises(DataError, match=f'{what}: column 1 holds NaN.*leave those'):
        joints(**{what: values})


@pytest.mark.parametrize('what', ['position', 'velocity', 'effort'])
def test_shapes_must_fit(what):
    with pytest.raises(DataError, match=rf'{what}: expected shape \(5, 2\), got \(5, 3\)'):
        joints(**{what: np.zeros((5, 3))})
    with pytest.raises(DataError, match=r'F/T sensor wrist, wrench: expected shape \(5, 6\)'):
        WrenchSamples('wrist', np.arange(5.0), np.zeros((5, 3)))


def test_sensor_sentences_name_the_sensor():
    with pytest.raises(DataError, match='F/T sensor wrist: stamps must increase'):
        WrenchSamples('wrist', [0.0, 0.0], np.zeros((2, 6)))
    assert len(WrenchSamples('wrist', [0.0, 1.0], np.zeros((2, 6)))) == 2


def test_effort_that_is_all_zero_is_refused():
    effort = np.random.default_rng(0).normal(size=(5, 2))
    effort[:, 1] = 0.0
    samples = joints(effort=effort)
    check_effort(samples, ['a'])
    with pytest.raises(DataError, match="'b' is zero in all 5 samples.*export effort"):
        check_effort(samples, ['a', 'b'])


def test_efforts_without_any_numbers_are_refused():
    # Messages with efforts that are no numbers are left out before.
    with pytest.raises(DataError, match='No joint state has numbers for .*export effort'):
        check_effort(joints().rows(0, 0), NAMES)


@pytest.mark.parametrize('value', [0.1, -3.7, 1e-9])
def test_effort_that_is_stuck_is_refused(value):
    effort = np.random.default_rng(0).normal(size=(5, 2))
    effort[:, 0] = value
    with pytest.raises(DataError, match="'a' is stuck at .*Check the driver"):
        check_effort(joints(effort=effort), NAMES)


def test_samples_of_other_joints_are_refused_with_both_lists():
    check_joints(joints(), ['a', 'b'])
    for names in (['b', 'a'], ['a', 'c'], ['a', 'b', 'c'], ['a']):
        with pytest.raises(DataError, match=f'joints a, b; expected {", ".join(names)}, in this'):
            check_joints(joints(), names)
    with pytest.raises(DataError, match='No joint states are recorded'):
        check_joints(joints().rows(0, 0), ['a', 'b'])
