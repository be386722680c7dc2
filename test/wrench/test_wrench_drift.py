# SPDX-License-Identifier: Apache-2.0
"""Drifting biases and torque zeros, followed while the arm moves freely."""

from __future__ import annotations

import numpy as np
import pytest
from support.arms import arm

from robocal_ros.wrench.model import SensedArm, SensorMount, TareReference
from robocal_ros.wrench.observer import Observation, WrenchObserver
from robocal_ros.wrench.parameters import WrenchParameters

RATE = 100
CENTRE = np.array([0.1, 0.3, 0.4, 0.0, 0.6, 0.2])
REST = np.zeros(6)


class Drifting:
    """An arm with a wrist sensor that waves, or rests, while sensor and torques drift."""

    def __init__(self, lag: float, **values: object) -> None:
        robot = arm('robocal').robot()
        self.observer = WrenchObserver(robot, WrenchParameters(
            sensor_frames=['ft_wrist'], unidentified_friction=[0.0], drift_lag=lag, **values))
        self.truth = SensedArm(robot, [SensorMount('ft_wrist')])
        self.noise = np.random.default_rng(0)
        self.bias, self.zero = np.zeros((1, 6)), np.zeros(6)
        self.stamp, self.phase = 10**9, 0.0
        self.observer.use_bias(np.zeros((1, 6)), TareReference(
            CENTRE, self.truth.expected(CENTRE)))

    def run(
        self, duration: float, drift: float = 0.0, zero_drift: float = 0.0, force: float = 0.0,
        speed: float = 1.0,
    ) -> Observation:
        """Return the last observation; drifts [N/s, N·m/s], force on the sensor's x axis [N]."""
        newest = None
        for _ in range(round(duration * RATE)):
            self.stamp += 10**9 // RATE
            self.phase += speed / RATE
            self.bias[0, 0] += drift / RATE
            self.zero[1] += zero_drift / RATE
            q, v, a = (CENTRE + 0.4 * np.sin(self.phase), 0.4 * speed * np.cos(self.phase) + REST,
                       -0.4 * speed**2 * np.sin(self.phase) + REST)
            reading = -self.truth.held(q, v, a)[0] + self.bias[0]
            reading[0] += force
            reading[:3] += 0.3 * self.noise.normal(size=3)
            self.observer.add_reading(0, self.stamp, tuple(reading.tolist()))
            self.observer.add_joint_state(self.stamp, np.concatenate((
                q, v, self.truth.torque + self.zero)))
            while (found := self.observer.take()) is not None:
                newest = found
        return newest

    @property
    def error(self) -> float:
        return float(np.linalg.norm((self.observer.bias - self.bias)[0, :3]))


def test_drifts_are_followed_with_the_stated_lag() -> None:
    constant, following = Drifting(0.0), Drifting(2.0)
    for cell in (constant, following):
        cell.run(10.0, drift=0.15, zero_drift=0.05)
    assert constant.error == pytest.approx(1.5)
    np.testing.assert_array_equal(constant.observer.torques.zero, 0.0)
    # A lag of first order: rate times lag.
    assert following.error == pytest.approx(0.3, abs=0.1)
    assert following.observer.torques.zero[1] == pytest.approx(0.5 - 0.1, abs=0.03)
    # A load that arrives later finds the readings of the tare as they would be now.
    moved = following.observer.reference.readings - following.truth.expected(CENTRE)
    np.testing.assert_allclose(moved, following.observer.bias, atol=1e-9)


def test_nothing_is_followed_into_a_contact_or_at_rest() -> None:
    cell = Drifting(1.0)
    cell.run(2.0)
    touched = cell.run(4.0, force=8.0)
    assert touched.contacts
    # The first instants of the push, before it is complete within the window.
    assert np.abs(cell.observer.bias[0, 0]) < 0.2
    # After its end the force between the thresholds is no drift either.
    cell.run(4.0, force=3.5)
    assert np.abs(cell.observer.bias[0, 0]) < 0.25
    cell.run(4.0, drift=0.2, speed=0.0)
    assert cell.observer.bias[0, 0] < 0.25
