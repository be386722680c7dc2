# SPDX-License-Identifier: Apache-2.0
"""Readings on their way to one instant: refused, interpolated, waited for, windowed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from robocal_ros.messages.checks import from_seconds as ns
from robocal_ros.wrench.alignment import (
    FEWEST,
    NEVER,
    AlignedWindow,
    Feed,
    Saturated,
    Weights,
    Window,
    even_weights,
    leaps,
    matched_weights,
    parabola_weights,
    scatter_of_accelerations,
    slopes_without,
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


def test_a_delay_makes_readings_older_than_their_stamps() -> None:
    sensor = Feed('ft', WrenchParameters(), delay=0.004)
    sensor.add(ns(1.004), six(5.0))
    assert sensor.at(ns(1.0)) == six(5.0)


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


READING = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)


class TestAlignedWindow:
    """Rows that wait for sensors, but not for those that are late."""

    def make(self) -> tuple[Feed, Feed, AlignedWindow]:
        one, two = feed(stuck_time=0.0), feed(stuck_time=0.0)
        return one, two, AlignedWindow([one, two], 1, WrenchParameters())

    def test_cleared(self) -> None:
        one, _, samples = self.make()
        samples.add(ns(1.0), np.zeros(1))
        samples.clear()
        one.clear()
        assert samples.take() is None
        assert samples.newest == NEVER

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


def test_stamps_that_are_ahead_from_the_start_are_found_at_once() -> None:
    window = AlignedWindow([feed()], 1, WrenchParameters())
    assert [bool(window.judge(0, time, ns(0.1))) for time in (5.0, 5.01, 5.01, 5.02)] == [
        False, False, False, True]
    assert not window.judge(0, 5.03, 0)
    window.clear()
    assert window.ahead == ['']


def split(weights: Weights) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of means, and those of slopes [1/s]."""
    mean, slope = weights.both
    return mean, weights.rate * slope


def uneven(seed: int, count: int) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).uniform(0.5e-3, 2e-3, count))


@given(seed=st.integers(0, 10**6), count=st.integers(5, 40))
@settings(max_examples=50, deadline=None)
def test_weights_are_exact_for_straight_lines_whatever_the_stamps(seed: int, count: int) -> None:
    time = uneven(seed, count)
    weights = matched_weights(time)
    mean, slope = split(weights)
    assert mean.sum() == pytest.approx(1.0)
    assert (mean > -1e-12).all()
    assert slope @ (3.0 + 7.0 * time) == pytest.approx(7.0, rel=1e-9)
    assert slope @ np.ones(count) == pytest.approx(0.0, abs=1e-9)


def test_slope_of_velocity_and_mean_of_acceleration_agree() -> None:
    """What makes inertia cancel against the readings, however fast it changes."""
    time = np.arange(21) * 1e-3
    weights = matched_weights(time)
    mean, slope = split(weights)
    for frequency in (2.0, 10.0, 40.0):
        rate = 2.0 * np.pi * frequency
        velocity, acceleration = np.sin(rate * time), rate * np.cos(rate * time)
        assert slope @ velocity == pytest.approx(mean @ acceleration, abs=2e-3 * rate)


def filled(
    stamps: Iterable[int], slope: float = 0.0, fewest: int = FEWEST, length: float = 0.02
) -> Window:
    """Return a window over samples of a straight line through zero, by stamps [ns]."""
    window = Window(length, 1, fewest)
    for stamp in stamps:
        window.add(stamp, np.array([slope * 1e-9 * (stamp % 10**12)]))
    return window


@pytest.mark.parametrize(('stamps', 'delay'), [
    ([1_700_000_000 * 10**9 + 10**6 * number for number in range(3000)], 0.01),
    ([2 * 10**6 * number for number in range(40)], 0.01),
    # Without one of them.
    ([2 * 10**6 * number for number in range(11) if number != 4], None),
], ids=['wall clock', 'slow', 'gap'])
def test_a_straight_line_is_seen_by_any_stamps(stamps: list[int], delay: float | None) -> None:
    window = filled(stamps, 5.0)
    weights = window.weights()
    mean, slope = split(weights)
    assert slope @ window.rows[:, 0] == pytest.approx(5.0, rel=1e-9)
    assert mean.sum() == pytest.approx(1.0)
    if delay is not None:
        assert weights.delay == pytest.approx(delay, rel=1e-9)
        assert len(window) == 1 + round(20e6 / (stamps[-1] - stamps[-2]))


@pytest.mark.parametrize('rate', [100, 125, 250, 500, 1000, 2000])
def test_the_default_window_works_at_any_rate(rate: int) -> None:
    values = WrenchParameters()
    window = filled([ns(number / rate) for number in range(200)], 3.0, values.window_samples,
                    values.window)
    weights = window.weights()
    assert split(weights)[1] @ window.rows[:, 0] == pytest.approx(3.0)
    assert weights.delay == pytest.approx(max(0.5 * values.window, 2.0 / rate), rel=0.2)


@pytest.mark.parametrize('stamps', [
    [0.0, 0.002, 0.004],
    list(np.arange(8) * 0.001),
    [*np.arange(4) * 0.002, *(0.002 * np.arange(2) + 0.020)],
])
def test_too_few_too_short_or_torn_is_no_window(stamps: list[float]) -> None:
    assert filled(map(ns, stamps)).weights() is None


def test_a_gap_is_forgotten_once_it_has_left_the_window() -> None:
    window = filled(map(ns, (*np.arange(11) * 0.002, *(0.05 + np.arange(11) * 0.002))))
    assert window.weights() is not None
    window.clear()
    assert window.weights() is None
    assert window.step == 0


def test_jitter_of_stamps_shares_the_weights_of_even_ones() -> None:
    generator = np.random.default_rng(0)
    window, errors, even = Window(0.02, 1), [], []
    for number in range(400):
        stamp = 10**6 * number + int(generator.normal(0.0, 5e4))
        window.add(stamp, np.array([2.0e-9 * stamp]))
        weights = window.weights()
        if weights is not None:
            even.append(weights.both is even_weights(len(window)).both)
            errors.append(split(weights)[1] @ window.rows[:, 0] - 2.0)
    # 0.05 ms of jitter in 1 ms.
    assert np.mean(even) > 0.9
    assert np.std(errors) < 0.005 * 2.0
    window.add(stamp + 3 * 10**6, np.array([2.0e-9 * (stamp + 3 * 10**6)]))
    assert split(window.weights())[1] @ window.rows[:, 0] == pytest.approx(2.0, rel=1e-9)


@pytest.mark.parametrize('place', range(11))
def test_a_leap_is_seen_and_taken_out_wherever_it_is(place: int) -> None:
    generator = np.random.default_rng(place)
    time = 0.002 * np.arange(11)
    velocity = np.column_stack((0.3 + 2.0 * time, 0.1 - 1.0 * time))
    position = np.column_stack((0.3 * time + time**2, 0.1 * time - 0.5 * time**2))
    velocity += 1e-3 * generator.normal(size=velocity.shape)
    stamps = np.rint(1e9 * time).astype(np.int64)
    position = 2e-5 * np.round(position / 2e-5)
    assert not leaps(stamps, position, velocity).any()
    velocity[place, 0] += 0.05
    position[place:, 0] += 1e-4
    assert leaps(stamps, position, velocity).tolist() == [True, False]
    slopes = slopes_without(stamps, velocity, np.array([True, False]))
    np.testing.assert_allclose(slopes, [2.0, -1.0], atol=0.25)


@pytest.mark.parametrize('count', [5, 20])
def test_scatter_about_a_parabola_tells_the_error_of_its_acceleration(count: int) -> None:
    draw = np.random.default_rng(count)
    size, miss = [], []
    for _ in range(400):
        time = np.sort(draw.uniform(-0.02, 0.02, count))
        shapes = np.column_stack((np.ones(count), time, 0.5 * time**2))
        true = draw.normal(size=(3, 2)) * [[1.0], [1.0], [5.0]]
        np.testing.assert_allclose(parabola_weights(time) @ shapes @ true, true, atol=1e-6)
        # Stamps that jitter err all joints in proportion to their speeds.
        position = shapes @ true + 1e-4 * draw.normal(size=(count, 1)) * true[1]
        size.append(np.linalg.norm(scatter_of_accelerations(time, position), axis=1))
        miss.append((parabola_weights(time) @ position - true)[2])
    z = np.abs(miss) / size
    assert np.mean(z > 3.29) <= 0.005
    assert np.median(z) > {5: 0.02, 20: 0.3}[count]
