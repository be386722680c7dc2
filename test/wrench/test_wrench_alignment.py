# SPDX-License-Identifier: Apache-2.0
"""Readings on their way to one instant: what is refused, interpolated, waited for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from robocal_ros.messages.checks import from_seconds as ns
from robocal_ros.wrench.alignment import (
    NEVER,
    AlignedWindow,
    Feed,
    Saturated,
)
from robocal_ros.wrench.parameters import WrenchParameters


def feed(ranges: tuple[float, ...] = (), **values: float) -> Feed:
    return Feed('ft', WrenchParameters(**values), ranges)


def six(*values: float) -> tuple[float, ...]:
    """Return a reading with these values first."""
    return (*values, *[0.0] * (6 - len(values)))


def test_readings_are_interpolated_on_stamps() -> None:
    sensor = feed()
    sensor.add(ns(1.000), six(0.0, 10.0))
    sensor.add(ns(1.004), six(2.0, 30.0))
    assert sensor.at(ns(1.000)) == six(0.0, 10.0)
    assert sensor.at(ns(1.001)) == pytest.approx(six(0.5, 15.0))
    assert sensor.at(ns(1.004)) == six(2.0, 30.0)
    # An older instant may still be asked for.
    assert sensor.at(ns(1.003)) == pytest.approx(six(1.5, 25.0))


def test_nothing_is_invented_outside_and_across_gaps() -> None:
    sensor = feed()
    assert sensor.at(ns(1.0)) is None
    sensor.add(ns(1.0), six(1.0))
    sensor.add(ns(1.1), six(2.0))
    assert sensor.at(ns(0.9)) is None
    assert sensor.at(ns(1.05)) is None
    assert sensor.at(ns(1.2)) is None


def test_old_readings_are_dropped_and_new_ones_found() -> None:
    sensor = feed()
    for number in range(20000):
        sensor.add(ns(0.001 * number), six(float(number)))
    assert sensor.at(ns(19.9985)) == pytest.approx(six(19998.5))
    assert sensor.at(ns(16.0)) == six(16000.0)
    # Only a few more than are promised.
    assert sensor.at(ns(15.0)) is None


def test_saturated_says_where_the_range_ends() -> None:
    sensor = feed(ranges=(100.0, 0.0))
    sensor.add(ns(1.0), six(99.0, 5000.0))
    assert not sensor.problem
    sensor.add(ns(1.001), six(-100.0, 0.0))
    assert "'ft' is saturated: value 1 of 6 reads -100, its range ends at 100" in sensor.problem
    sensor.add(ns(1.002), six(98.0, 0.0))
    assert not sensor.problem


@pytest.mark.parametrize(('sensor', 'values', 'limit'), [
    (feed(ranges=(200.0,)), six(2500.0), '1998'),
    (feed(ranges=(0.0, 0.0, 0.0, 0.0, 10.0)), six(0.0, 0.0, 0.0, 0.0, -100.0), '99.9')],
    ids=['force', 'moment'])
def test_what_no_sensor_reads_is_refused_by_name(
    sensor: Feed, values: tuple[float, ...], limit: str
) -> None:
    sensor.add(ns(1.000), six(1.0))
    sensor.add(ns(1.001), values)
    assert f'expected less than {limit}' in sensor.problem
    sensor.add(ns(1.002), six(2.0))
    assert not sensor.problem
    assert sensor.rejected == 1
    assert 'implausible' in sensor.refused[1]
    # It is no evidence of a contact either, as a saturated one is.
    assert sensor.around(ns(1.0015)) == [None, six(2.0)]


def test_stuck_after_a_while_and_well_again() -> None:
    sensor = feed(stuck_time=0.1)
    for number in range(200):
        sensor.add(ns(0.001 * number), six(1.0, 2.0))
    assert 'the same values for 0.1 s' in sensor.problem or 'for 0.2 s' in sensor.problem
    assert sensor.at(ns(0.15)) is None
    sensor.add(ns(0.3), six(1.0, 2.1))
    assert not sensor.problem
    assert sensor.at(ns(0.3)) == six(1.0, 2.1)


def test_lost_readings_are_bridged_and_refused_ones_are_not() -> None:
    lost, clipped, refused = feed(), feed(ranges=(200.0,)), feed()
    for sensor in (lost, clipped, refused):
        sensor.add(ns(1.0), six(10.0))
    clipped.add(ns(1.005), six(200.0))
    refused.refuse(ns(1.005), 'not a finite number')
    for sensor in (lost, clipped, refused):
        sensor.add(ns(1.010), six(20.0))
    assert lost.at(ns(1.006)) == pytest.approx(six(16.0))
    for sensor in (clipped, refused):
        assert sensor.at(ns(1.003)) is None
        assert sensor.at(ns(1.006)) is None
        assert sensor.at(ns(1.010)) == six(20.0)
    assert clipped.around(ns(1.006)) == [Saturated(six(200.0)), six(20.0)]
    assert refused.around(ns(1.006)) == [None, six(20.0)]


def test_what_was_refused_before_the_clock_jumped_back_is_no_reason() -> None:
    sensor = feed()
    sensor.refuse(ns(5.0), 'It was not finite.')
    sensor.clear()
    assert 'No readings are received' in sensor.missing_reason(0.0, ns(1.0))
    # The status goes on telling it.
    assert sensor.refused[1] == 'It was not finite.'


def test_a_delay_makes_readings_older_than_their_stamps() -> None:
    sensor = Feed('ft', WrenchParameters(), delay=0.004)
    sensor.add(ns(1.004), six(5.0))
    assert sensor.at(ns(1.0)) == six(5.0)


READING = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)


class TestAlignedWindow:
    """Rows that wait for sensors, but not for those that are late."""

    def make(self) -> tuple[Feed, Feed, AlignedWindow]:
        one, two = feed(stuck_time=0.0), feed(stuck_time=0.0)
        return one, two, AlignedWindow([one, two], 1, WrenchParameters())

    def test_waits_until_all_have_caught_up(self) -> None:
        one, two, samples = self.make()
        for sensor in (one, two):
            sensor.add(ns(0.999), READING)
        samples.add(ns(1.0), np.array([7.0]))
        one.add(ns(1.0), READING)
        assert samples.take() is None
        two.add(ns(1.001), tuple(2.0 * value for value in READING))
        assert samples.take() == ns(1.0)
        np.testing.assert_allclose(
            samples.window.rows[:, :13], [[7.0, *READING, *(1.5 * np.array(READING))]])
        assert samples.take() is None
        assert samples.missing(0) is None

    def test_a_late_sensor_costs_the_others_one_delay_only(self) -> None:
        one, two, samples = self.make()
        two.add(ns(0.95), READING)
        taken = []
        for number in range(50):
            stamp = ns(1.0 + 0.001 * number)
            one.add(stamp, READING)
            samples.add(stamp, np.zeros(1))
            taken.append(samples.take() is not None)
        assert all(taken)
        good, late = samples.missing(samples.newest)
        assert not good
        assert late == "Readings of sensor 'ft' are 99 ms late, more than max_delay (20 ms)."
        assert samples.missing(samples.newest + 1) is None

    def test_a_sensor_that_falls_silent_is_waited_for_once(self) -> None:
        one, two, samples = self.make()
        count = 0
        for number in range(100):
            stamp = ns(0.001 * number)
            one.add(stamp, READING)
            if number < 50:
                two.add(stamp, READING)
            samples.add(stamp, np.zeros(1))
            while samples.take() is not None:
                count += 1
        assert count == 100

    @given(seed=st.integers(0, 10**6), rate=st.sampled_from([30, 250, 1000, 4000]))
    @settings(max_examples=30, deadline=None)
    def test_readings_of_any_rate_are_averaged_between_rows(self, seed: int, rate: int) -> None:
        """The mean between rows is that of the straight lines through all readings."""
        generator = np.random.default_rng(seed)
        one = Feed('ft', WrenchParameters(max_delay=0.1))
        samples = AlignedWindow([one], 1, WrenchParameters(max_delay=0.1, window=0.5))
        stamps = np.cumsum(generator.integers(
            10**9 // (2 * rate), 2 * 10**9 // rate, 10 + rate // 2))
        values = generator.normal(size=len(stamps))
        for stamp, value in zip(stamps.tolist(), values.tolist(), strict=True):
            one.add(stamp, (value, *READING[1:]))
        rows = np.arange(stamps[2] + 1, stamps[-2], 8 * 10**6)[:40]
        for row in rows.tolist():
            samples.add(row, np.zeros(1))
            assert samples.take() == row
        found = samples.window.rows
        means = 0.5 * (found[1:, 1] + found[:-1, 1]) + samples.window.extra[1:, 0]
        corners = np.union1d(rows, stamps)
        course = np.interp(corners, stamps, values)
        several = False
        for number in range(len(rows) - 1):
            inside = (corners >= rows[number]) & (corners <= rows[number + 1])
            if inside.sum() < 4:
                continue
            several = True
            exact = np.trapezoid(course[inside], corners[inside]) / (8 * 10**6)
            assert means[number] == pytest.approx(exact, abs=1e-9)
        assert several or rate < 250

    def test_cleared(self) -> None:
        one, _, samples = self.make()
        samples.add(ns(1.0), np.zeros(1))
        samples.clear()
        one.clear()
        assert samples.take() is None
        assert samples.newest == NEVER


def test_stamps_that_are_ahead_from_the_start_are_found_at_once() -> None:
    window = AlignedWindow([feed()], 1, WrenchParameters())
    assert [bool(window.judge(0, time, ns(0.1))) for time in (5.0, 5.01, 5.01, 5.02)] == [
        False, False, False, True]
    assert not window.judge(0, 5.03, 0)
    window.clear()
    assert window.ahead == ['']
