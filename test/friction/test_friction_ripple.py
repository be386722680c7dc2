# SPDX-License-Identifier: Apache-2.0
"""Torque that repeats over the angle is found, and taken out; where there is none, none is."""

from __future__ import annotations

import numpy as np
import pytest
from support.arms import arm
from support.friction_cell import SPEEDS, WRIST, Record, both_ways, record

from robocal_ros.friction.runs import SpeedPoint, find_runs, ripple_of, without_ripple

JOINT = 5


@pytest.fixture(scope='module')
def made() -> Record:
    return record({JOINT: WRIST}, both_ways(JOINT, SPEEDS))


def points(made: Record, effort: np.ndarray) -> list[SpeedPoint]:
    samples = made.samples(effort=effort)
    robot = arm('robocal').robot()
    return [SpeedPoint(robot, samples, run) for run in find_runs(samples, [JOINT])]


def errors(found: tuple[SpeedPoint, ...] | list[SpeedPoint]) -> np.ndarray:
    return np.array([p.torque - float(WRIST.torque(np.array([p.speed]))[0]) for p in found])


@pytest.mark.parametrize(('cycles', 'amplitude', 'phase'), [
    (24.0, 0.02, 0.3), (24.0, 0.1, 2.0), (50.0, 0.03, -1.0), (101.3, 0.05, 0.9)])
def test_ripple_is_found_and_taken_out(made, cycles, amplitude, phase):
    effort = made.effort(3) + amplitude * np.sin(cycles * made.position + phase)
    before = points(made, effort)
    ripple = ripple_of(before)[0]
    assert ripple.cycles == pytest.approx(cycles, rel=0.02)
    assert np.hypot(ripple.sine, ripple.cosine) == pytest.approx(amplitude, rel=0.1)
    angle = np.linspace(0.0, 1.0, 7)
    np.testing.assert_allclose(ripple.torque(angle), ripple.sine * np.sin(ripple.cycles * angle)
                               + ripple.cosine * np.cos(ripple.cycles * angle))
    after = without_ripple(before, [ripple])
    plain = errors(points(made, made.effort(3)))
    np.testing.assert_allclose(errors(after), plain, atol=0.15 * amplitude)
    assert all(a.std >= b.std for a, b in zip(after, before, strict=True))


def test_two_components_are_found(made):
    effort = (made.effort(1) + 0.08 * np.sin(24.0 * made.position)
              + 0.04 * np.cos(60.0 * made.position))
    found = ripple_of(points(made, effort))
    assert [ripple.cycles for ripple in found[:2]] == pytest.approx([24.0, 60.0], rel=0.05)


def test_noise_is_no_ripple(made):
    for seed in range(6):
        assert ripple_of(points(made, made.effort(seed))) == ()


def test_ripple_that_is_not_proven_is_in_the_intervals_of_short_runs():
    """Their means contain a part of one period; without ripple the intervals stay."""
    speeds = (0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5)
    short = record({JOINT: WRIST}, both_ways(JOINT, speeds, shortest=1.2, longest=1.2), rate=125.0)
    for ripple, low, high in ((0.0, 1.0, 1.01), (0.02, 1.4, 2.5)):
        effort = short.effort(1) + ripple * np.sin(24.0 * short.position + 0.6)
        before = points(short, effort)
        assert ripple_of(before) == ()
        after = without_ripple(before, ())
        wider = [a.std / b.std for a, b in zip(after, before, strict=True)]
        assert all(low <= ratio < high for ratio in wider[:6])
        # Fast runs average over periods.
        assert wider[-1] < 1.05
        assert max(abs(error) / p.std for error, p in zip(
            errors(after), after, strict=True)) < 2.6
