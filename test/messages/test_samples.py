# SPDX-License-Identifier: Apache-2.0
"""What counts as a record of samples, and records in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from robocal_ros.errors import DataError
from robocal_ros.messages.samples import (
    BoundedBuffer,
    JointSamples,
    WrenchSamples,
    check_effort,
    check_joints,
    check_range,
    within_budget,
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


RNG = np.random.default_rng(1)


def rows_of(count: int, gaps: tuple[int, ...] = ()) -> np.ndarray:
    time = 0.001 * np.arange(count)
    for gap in gaps:
        time[gap:] += 1.0
    return np.column_stack((time, RNG.normal(size=(count, 2))))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=8),
       st.lists(st.integers(1, 8000), max_size=3))
def test_pieces_in_which_rows_arrive_do_not_matter(sizes: list[int], gaps: list[int]) -> None:
    rows = rows_of(8000, tuple(gaps))
    whole, pieces = BoundedBuffer(3, 1000), BoundedBuffer(3, 1000)
    whole.add(rows)
    at = 0
    for size in [*sizes, 8000]:
        pieces.add(rows[at:at + size])
        at += size
    assert np.array_equal(whole.rows(), pieces.rows())
    assert whole.averaged == pieces.averaged


def test_rows_within_the_budget_stay_as_they_are() -> None:
    rows = rows_of(5000, (700, 3001))
    record = BoundedBuffer(3, 5000)
    record.add(rows)
    assert np.array_equal(record.rows(), rows)
    assert record.averaged == 1


def test_what_is_too_much_is_averaged_and_means_stay() -> None:
    rows = rows_of(64 * 1024)
    record = BoundedBuffer(3, 9000)
    record.add(rows)
    kept = record.rows()
    assert len(kept) <= 9000
    assert record.averaged == 8
    assert record.forgotten == 0
    assert kept.mean(axis=0) == pytest.approx(rows.mean(axis=0), rel=1e-12, abs=1e-12)
    assert np.array_equal(kept[0], rows[:8].reshape(2, 2, 2, 3).mean(axis=2).mean(
        axis=1).mean(axis=0))


def test_nothing_is_averaged_across_a_gap() -> None:
    rows = rows_of(16 * 1024, tuple(range(501, 16 * 1024, 501)))
    record = BoundedBuffer(3, 4500)
    record.add(rows)
    kept = record.rows()
    assert (np.diff(kept[:, 0]) > 0.0).all()
    for number in range(5):
        mine = rows[number * 501:(number + 1) * 501]
        inside = (kept[:, 0] >= mine[0, 0]) & (kept[:, 0] <= mine[-1, 0])
        assert inside.sum() == pytest.approx(501 / record.averaged, abs=2)


def test_what_cannot_be_averaged_any_more_is_forgotten_from_the_oldest_on() -> None:
    rows = rows_of(64 * 1024)
    record = BoundedBuffer(3, 2048, longest=0.0045)
    record.add(rows)
    kept = record.rows()
    assert record.averaged == 4
    assert len(kept) <= 2048
    assert record.forgotten + len(kept) == 64 * 1024 / 4
    assert kept[-1, 0] == pytest.approx(rows[-4:, 0].mean())


def test_rows_come_out_the_same_one_by_one() -> None:
    rows = rows_of(5000)
    rows[2500:, 0] += 1.0
    blocks, singles = BoundedBuffer(3, 1500), BoundedBuffer(3, 1500)
    blocks.add(rows)
    for row in rows:
        singles.add_one(row[0], row[1:])
    assert np.array_equal(singles.rows(), blocks.rows())
    assert len(singles) == len(singles.rows())


@pytest.mark.parametrize('last', [-1, 0, 700, 1023, 1024, 2500, 3999])
def test_what_is_forgotten_from_the_end_was_never_there(last: int) -> None:
    """Also for what is recorded afterwards: the stretches are those of the rows that are left."""
    rows = rows_of(4000)
    after = rows_of(9000)[8000:]
    record, other = BoundedBuffer(3, 10_000), BoundedBuffer(3, 10_000)
    record.add(rows)
    record.forget_after(rows[last, 0] if last >= 0 else -np.inf)
    other.add(rows[:last + 1])
    for made in (record, other):
        made.add(after)
    assert np.array_equal(record.rows(), other.rows())
    assert len(record) == last + 1 + len(after)
    assert [len(piece) for piece in record._pieces] == [len(piece) for piece in other._pieces]


def test_rows_after_a_stamp() -> None:
    rows = rows_of(4000)
    record = BoundedBuffer(3)
    record.add(rows)
    for row in (0, 500, 1023, 1024, 3998, 3999):
        assert np.array_equal(record.rows(rows[row, 0]), rows[row + 1:])


def test_samples_within_the_budget_are_themselves() -> None:
    rows = rows_of(3000)
    joints = JointSamples(('a',), rows[:, 0], rows[:, 1:2], rows[:, 1:2], rows[:, 2:])
    readings = WrenchSamples('ft', rows[:, 0], np.tile(rows[:, 1:], 3))
    assert within_budget(joints, 3000) is joints
    assert within_budget(readings, 3000) is readings
    fewer, less = within_budget(joints, 1500), within_budget(readings, 1500)
    assert len(fewer) == len(less) == 1500
    assert np.array_equal(fewer.position[:, 0], rows[:, 1].reshape(-1, 2).mean(axis=1))
    assert np.array_equal(less.wrench[:, 5], rows[:, 2].reshape(-1, 2).mean(axis=1))


@pytest.mark.parametrize('cut', [0, 700, 20000])
def test_another_record_goes_on_where_one_ended(cut: int) -> None:
    """As after a restart: what is averaged stays so, and later rows are averaged alike."""
    rows = rows_of(40000, (300, 19000))
    first, second = BoundedBuffer(3, 9000), BoundedBuffer(3, 9000)
    first.add(rows[:cut])
    second.restore(first.rows(), first.averaged, first.forgotten)
    assert np.array_equal(second.rows(), first.rows())
    assert len(second) == len(first)
    second.add(rows[cut:])
    whole = BoundedBuffer(3, 9000)
    whole.add(rows)
    assert second.averaged == whole.averaged
    assert len(second.rows()) <= 9000 + 1024
    weighted = second.rows().mean(axis=0)
    assert weighted == pytest.approx(rows.mean(axis=0), rel=1e-3, abs=2e-3)
    # Nothing is averaged across a gap: no stamp is within one.
    for gap in (300, 19000):
        inside = (second.rows()[:, 0] > rows[gap - 1, 0]) & (second.rows()[:, 0] < rows[gap, 0])
        assert not inside.any()
    second.forget_after(rows[500, 0])
    assert second.rows()[-1, 0] <= rows[500, 0]


# ------------------------------------------------------- drivers that repeat what they measured


def anew(values: np.ndarray, rate: float = 500.0) -> np.ndarray:
    """Return the rows of the values that count."""
    time = np.arange(len(values)) / rate
    wrench = np.zeros((len(values), 6))
    wrench[:, :values.shape[1]] = values
    return np.rint(rate * WrenchSamples('ft', time, wrench).measured_anew().time).astype(int)


def published(measured: np.ndarray, ratio: float, count: int) -> np.ndarray:
    """Return which of the measurements each message holds, at a multiple of their rate."""
    return np.minimum((np.arange(count) / ratio + 1e-9).astype(int), len(measured) - 1)


@pytest.mark.parametrize('ratio', [2.0, 2.5, 4.0, 8.0])
def test_of_repeated_values_those_that_are_new_count(ratio: float) -> None:
    measured = np.random.default_rng(1).normal(size=(200, 3))
    of = published(measured, ratio, int(150 * ratio))
    assert of[anew(measured[of])].tolist() == list(range(150))


def test_a_rest_counts_for_its_duration() -> None:
    # The readings of the device at rest are coarse: most of them are as the one before.
    generator = np.random.default_rng(2)
    rest = (generator.random((400, 1)) < 0.3).astype(float)
    measured = np.vstack((2.0 + np.arange(900.0)[:, None], rest))
    values = measured[published(measured, 4.0, 4 * len(measured))]
    found = values[anew(values)]
    at_rest = found[found < 1.5]
    assert at_rest.mean() == pytest.approx(rest.mean(), abs=0.02)
    assert 200 < len(at_rest) <= 400


@pytest.mark.parametrize('values', [
    # Each message is new; all are the same; coarse readings of an arm at rest.
    np.arange(1000.0)[:, None], np.zeros((1000, 2)), np.zeros((0, 2)),
    (np.random.default_rng(3).random((1000, 1)) < 0.05).astype(float),
    # Two in three are new, as of a device that is a little slower than the messages.
    np.floor(np.arange(1000.0) / 1.5)[:, None],
    # Postures of an arm without noise, half a second each.
    np.floor(np.arange(8000.0) / 250.0)[:, None],
])
def test_other_values_all_count(values: np.ndarray) -> None:
    assert len(anew(values)) == len(values)


# ------------------------------------------------------------------- measurements that saturate

TIME = np.arange(2000) / 250.0


def in_motion(rest: float = 0.0) -> JointSamples:
    """Return an arm that moves after a rest [s]."""
    position = np.sin(np.outer(np.maximum(TIME - rest, 0.0), (1.0, 1.7)))
    return JointSamples(NAMES, TIME, position, np.zeros_like(position), np.zeros_like(position))


def measured(noise: float = 0.05, step: float = 0.0) -> np.ndarray:
    """Return torques of a motion, with noise, in steps."""
    torque = 10.0 * np.sin(np.outer(TIME, (2.0, 0.7)) + (0.0, 1.0))
    torque += noise * np.random.default_rng(4).normal(size=torque.shape)
    return np.round(torque / step) * step if step else torque


@pytest.mark.parametrize(('values', 'words'), [
    (np.clip(measured(), -8.0, 8.0), r'a stays at -?8 N·m for 3.\d s .* is never'),
    (np.minimum(measured(), [9.0, 99.0]), 'a stays at 9 N·m .* is never larger: .* saturates'),
    (np.maximum(measured(step=0.01), [-99.0, -9.5]), 'b stays at -9.5 N·m .* is never smaller'),
])
def test_a_measurement_that_saturates_is_refused(values: np.ndarray, words: str) -> None:
    with pytest.raises(DataError, match=words):
        check_range(in_motion(), TIME, values, NAMES, 'N·m')


@pytest.mark.parametrize('values', [
    measured(), measured(0.0), measured(step=1.0), measured(step=5.0), measured(step=9.0),
    # Nothing below a threshold is reported, and loads of one sign.
    np.where(measured() < 2.0, 0.0, measured()),
    np.zeros((len(TIME), 2)),
])
def test_no_other_measurement_saturates(values: np.ndarray) -> None:
    check_range(in_motion(), TIME, values, NAMES, 'N·m')


def test_a_rest_without_noise_is_no_saturation() -> None:
    values = measured(0.0)
    values[TIME < 2.0] = 11.0
    check_range(in_motion(2.0), TIME, values, NAMES, 'N·m')
    with pytest.raises(DataError, match='a stays at 11 N·m for 2 s'):
        check_range(in_motion(), TIME, values, NAMES, 'N·m')
