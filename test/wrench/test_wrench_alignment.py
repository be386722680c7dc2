# SPDX-License-Identifier: Apache-2.0
"""Readings on their way to one instant: what is refused, interpolated, waited for."""

from __future__ import annotations

import numpy as np
import pytest

from robocal_ros.wrench.alignment import AlignedWindow, Feed
from robocal_ros.wrench.parameters import WrenchParameters


def feed(ranges: tuple[float, ...] = (), **values: float) -> Feed:
    return Feed('ft', WrenchParameters(**values), ranges)


def test_readings_are_interpolated_on_stamps() -> None:
    sensor = feed()
    sensor.add(1.000, (0.0, 10.0))
    sensor.add(1.004, (2.0, 30.0))
    assert sensor.at(1.000) == (0.0, 10.0)
    assert sensor.at(1.001) == pytest.approx([0.5, 15.0])
    assert sensor.at(1.004) == (2.0, 30.0)
    # An older instant may still be asked for.
    assert sensor.at(1.003) == pytest.approx([1.5, 25.0])


def test_nothing_is_invented_outside_and_across_gaps() -> None:
    sensor = feed()
    assert sensor.at(1.0) is None
    sensor.add(1.0, (1.0,))
    sensor.add(1.1, (2.0,))
    assert sensor.at(0.9) is None
    assert sensor.at(1.05) is None
    assert sensor.at(1.2) is None


def test_old_readings_are_dropped_and_new_ones_found() -> None:
    sensor = feed()
    for number in range(20000):
        sensor.add(0.001 * number, (float(number),))
    assert sensor.at(19.9985) == pytest.approx([19998.5])
    assert sensor.at(1.0) is None


def test_saturated_says_where_the_range_ends() -> None:
    sensor = feed(ranges=(100.0, 0.0))
    sensor.add(1.0, (99.0, 5000.0))
    assert not sensor.problem
    sensor.add(1.001, (-100.0, 0.0))
    assert "'ft' is saturated: value 1 of 2 reads -100, its range ends at 100" in sensor.problem
    sensor.add(1.002, (98.0, 0.0))
    assert not sensor.problem


def test_stuck_after_a_while_and_well_again() -> None:
    sensor = feed(stuck_time=0.1)
    for number in range(200):
        sensor.add(0.001 * number, (1.0, 2.0))
    assert 'the same values for 0.1 s' in sensor.problem or 'for 0.2 s' in sensor.problem
    assert sensor.newest == pytest.approx(0.1, abs=0.002)
    sensor.add(0.3, (1.0, 2.1))
    assert not sensor.problem
    assert sensor.newest == 0.3


READING = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)


class TestAlignedWindow:
    """Rows that wait for sensors, but not for those that are late."""

    def make(self) -> tuple[Feed, Feed, AlignedWindow]:
        one, two = feed(stuck_time=0.0), feed(stuck_time=0.0)
        return one, two, AlignedWindow([one, two], 1, WrenchParameters())

    def test_waits_until_all_have_caught_up(self) -> None:
        one, two, samples = self.make()
        for sensor in (one, two):
            sensor.add(0.999, READING)
        samples.add(1.0, np.array([7.0]))
        one.add(1.0, READING)
        assert samples.take() is None
        two.add(1.001, tuple(2.0 * value for value in READING))
        assert samples.take() == 1.0
        np.testing.assert_allclose(
            samples.window.rows, [[7.0, *READING, *(1.5 * np.array(READING))]])
        assert samples.take() is None
        assert samples.missing(0.0) is None

    def test_a_late_sensor_costs_the_others_one_delay_only(self) -> None:
        one, two, samples = self.make()
        two.add(0.95, READING)
        taken = []
        for number in range(50):
            stamp = 1.0 + 0.001 * number
            one.add(stamp, READING)
            samples.add(stamp, np.zeros(1))
            taken.append(samples.take() is not None)
        assert all(taken)
        good, late = samples.missing(samples.newest)
        assert not good
        assert late == "Readings of sensor 'ft' come 99 ms late, more than max_delay (20 ms)."
        assert samples.missing(samples.newest + 0.001) is None

    def test_a_sensor_that_falls_silent_is_waited_for_once(self) -> None:
        one, two, samples = self.make()
        count = 0
        for number in range(100):
            stamp = 0.001 * number
            one.add(stamp, READING)
            if number < 50:
                two.add(stamp, READING)
            samples.add(stamp, np.zeros(1))
            while samples.take() is not None:
                count += 1
        assert count == 100

    def test_cleared(self) -> None:
        one, _, samples = self.make()
        samples.add(1.0, np.zeros(1))
        samples.clear()
        one.clear()
        assert samples.take() is None
        assert np.isinf(samples.newest)
