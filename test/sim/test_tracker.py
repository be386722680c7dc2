# SPDX-License-Identifier: Apache-2.0
"""Simulated tracker: orientation, drift and dropouts; placement of the arm at rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from robocal_sim.model import Description
from robocal_sim.physics import ArmPhysics
from robocal_sim.sensors import TrackerSensor, rotation_from_rpy
from robocal_sim.simulator import ArmSimulator
from robocal_sim.truth import (
    Cell,
    HiddenTruth,
    TrackerNoise,
    TrackerTruth,
)

PLACE = TrackerTruth(xyz=(2.0, 1.0, 0.5), rpy=(0.1, -0.2, 2.5), target_xyz=(0.0, 0.0, 0.1))
LINK = (Rotation.from_euler('xyz', [0.4, -0.8, 1.5]).as_matrix(), np.array([0.5, 0.1, 0.8]))


def sensor(noise: TrackerNoise, place: TrackerTruth = PLACE, seed: int = 0) -> TrackerSensor:
    return TrackerSensor(noise, place, np.random.default_rng(seed))


def test_orientation_is_that_of_the_link_in_the_tracker_frame() -> None:
    reading = sensor(TrackerNoise(), replace(PLACE, orientation=True)).measure(*LINK)
    assert reading.shape == (7,)
    turned = Rotation.from_quat(reading[3:]).as_matrix()
    np.testing.assert_allclose(rotation_from_rpy(*PLACE.rpy) @ turned, LINK[0], atol=1e-12)
    assert sensor(TrackerNoise()).measure(*LINK).shape == (3,)


def test_orientation_noise_has_the_given_sigma_and_does_not_affect_points() -> None:
    noise = TrackerNoise(position_sigma=1e-5, orientation_sigma=3e-4)
    measured, plain = (sensor(noise, replace(PLACE, orientation=flag)) for flag in (True, False))
    readings = np.array([measured.measure(*LINK) for _ in range(1000)])
    true = Rotation.from_matrix(rotation_from_rpy(*PLACE.rpy).T @ LINK[0])
    off = (Rotation.from_quat(readings[:, 3:]) * true.inv()).as_rotvec()
    assert off.std(axis=0) == pytest.approx([3e-4] * 3, rel=0.1)
    np.testing.assert_array_equal(readings[:, :3], [plain.measure(*LINK) for _ in range(1000)])


def test_frame_drifts_at_the_given_rate_in_a_direction_drawn_from_the_seed() -> None:
    noise = TrackerNoise(drift_rate=1e-7)
    first, other = sensor(noise), sensor(noise, seed=1)
    for item in (first, other):
        moved = item.measure(*LINK, 600.0) - item.measure(*LINK, 0.0)
        assert np.linalg.norm(moved) == pytest.approx(6e-5)
    assert not np.allclose(first.measure(*LINK, 600.0), other.measure(*LINK, 600.0), atol=1e-6)
    still = sensor(TrackerNoise())
    np.testing.assert_array_equal(still.measure(*LINK, 600.0), still.measure(*LINK, 0.0))


def test_simulator_applies_drift_and_dropouts(arm: Description, truth: HiddenTruth) -> None:
    noise = TrackerNoise(rate=100.0, drift_rate=1e-3, dropout=0.5)
    simulator = ArmSimulator(arm, truth, Cell(tracker=noise), seed=2)
    seen = [reading for _ in range(2000) for reading in simulator.step().tracker]
    assert 60 < len(seen) < 140
    moved = np.linalg.norm(seen[-1].values - seen[0].values)
    assert moved == pytest.approx(1e-3 * (seen[-1].time - seen[0].time), rel=0.02)


def test_arm_placed_at_rest_is_in_equilibrium(arm: Description, truth: HiddenTruth) -> None:
    encoders = np.array([0.3, 0.6, -0.7, 0.2, 0.5, 0.1])
    truth = replace(truth, force_torque_sensors=(), imus=())
    placed = ArmPhysics(arm, truth)
    placed.attach_load()
    placed.rest_in(encoders)
    moved = ArmPhysics(arm, truth, start=encoders)
    moved.attach_load()
    for _ in range(3000):
        moved.step(encoders)
    rest, origin = placed.link_pose('flange'), moved.link_pose('flange')
    # The deadband of the drives is 1e-5 rad, the lever arm about a metre.
    np.testing.assert_allclose(rest[1], origin[1], atol=4e-5)
    placed.rest_in(np.zeros(6))
    placed.rest_in(encoders)
    np.testing.assert_allclose(placed.link_pose('flange')[1], rest[1], atol=1e-12)
