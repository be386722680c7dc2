# SPDX-License-Identifier: Apache-2.0
"""Sensors: noise, bias, loss, latency and faults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from support.live_graph import JOINTS

from robocal_ros.errors import ConfigurationError
from robocal_sim.faults import SENSOR_RANGE, parse_faults
from robocal_sim.model import Description
from robocal_sim.sensors import (
    ForceTorqueSensor,
    ImuSensor,
    JointSensor,
    Stream,
    TrackerSensor,
    rotation_from_rpy,
)
from robocal_sim.simulator import ArmSimulator
from robocal_sim.truth import (
    Cell,
    ForceTorqueNoise,
    ForceTorqueTruth,
    HiddenTruth,
    JointNoise,
    JointTruth,
    StreamNoise,
    TrackerNoise,
    TrackerTruth,
)

COUNT = 20000


def generator(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_joint_sensor_noise_has_the_given_sigma(cell: Cell) -> None:
    sensor = JointSensor(cell.joint_states, [JointTruth()] * 2, generator())
    truth = np.array([0.123456, -1.0]), np.array([0.5, -0.5]), np.array([10.0, -3.0])
    readings = [sensor.measure(*truth) for _ in range(COUNT)]
    position, velocity, effort = (np.array(values) for values in zip(*readings, strict=True))
    assert (np.abs(position - truth[0]) <= 1e-5 + 1e-12).all()
    assert velocity.std(axis=0) == pytest.approx(1e-3, rel=0.03)
    assert velocity.mean(axis=0) == pytest.approx(truth[1], abs=5e-5)
    assert effort.std(axis=0) == pytest.approx(0.1, rel=0.03)
    assert effort.mean(axis=0) == pytest.approx(truth[2], abs=0.025)


def test_effort_scale_offset_and_ripple() -> None:
    joint = JointTruth(effort_scale=1.1, effort_offset=0.5)
    sensor = JointSensor(JointNoise(effort_ripple=0.2), [joint], generator())
    zero = np.zeros(1)
    efforts = [
        sensor.measure(np.array([angle]), zero, np.array([10.0]))[2][0]
        for angle in np.linspace(0.0, 2.0 * np.pi, 4800, endpoint=False)
    ]
    assert np.mean(efforts) == pytest.approx(11.5, abs=1e-9)
    assert np.max(efforts) == pytest.approx(11.7, abs=1e-3)
    # 24 periods a turn.
    assert np.argmax(np.abs(np.fft.rfft(np.array(efforts) - 11.5))) == 24


def test_force_sensor_bias_is_drawn_within_bounds(cell: Cell) -> None:
    biases = np.array([
        ForceTorqueSensor(cell.force_torque, ForceTorqueTruth('f'), generator(seed)).bias
        for seed in range(200)
    ])
    bound = np.repeat([10.0, 0.5], 3)
    assert (np.abs(biases) <= bound).all()
    assert (np.abs(biases).max(axis=0) > 0.9 * bound).all()


def test_force_sensor_noise_bias_quantisation_and_saturation(cell: Cell) -> None:
    given = ForceTorqueTruth('f', bias=(1.0, 2.0, 3.0, 0.1, 0.2, 0.3))
    sensor = ForceTorqueSensor(cell.force_torque, given, generator())
    readings = np.array([sensor.measure(np.zeros(6)) for _ in range(COUNT)])
    assert readings.mean(axis=0) == pytest.approx(given.bias, abs=0.01)
    assert readings.std(axis=0) == pytest.approx(np.repeat([0.3, 0.01], 3), rel=0.03)
    coarse = ForceTorqueNoise(force_quantisation=0.5, force_range=100.0, torque_range=5.0)
    sensor = ForceTorqueSensor(coarse, ForceTorqueTruth('f'), generator())
    reading = sensor.measure(np.array([0.7, -250.0, 99.9, 9.0, 0.123, -9.0]))
    assert reading == pytest.approx([0.5, -100.0, 100.0, 5.0, 0.123, -5.0])


def test_imu_noise_has_the_given_sigma(cell: Cell) -> None:
    sensor = ImuSensor(cell.imu, generator())
    readings = np.array([sensor.measure(np.zeros(6)) for _ in range(COUNT)])
    assert readings.std(axis=0) == pytest.approx(np.repeat([0.03, 2e-3], 3), rel=0.03)


def test_tracker_measures_in_its_own_frame_within_the_visibility_cone() -> None:
    truth = TrackerTruth(xyz=(2.0, 1.0, 0.5), rpy=(0.1, -0.2, 2.5), target_xyz=(0.0, 0.0, 0.1),
                         visibility_angle=0.5)
    sensor = TrackerSensor(TrackerNoise(), truth, generator())
    origin = np.array([0.3, 0.2, 0.9])
    towards = np.array(truth.xyz) - origin
    z = towards / np.linalg.norm(towards)
    x = np.cross([0.0, 0.0, 1.0], z)
    x /= np.linalg.norm(x)
    rotation = np.column_stack((x, np.cross(z, x), z))
    point = sensor.measure(rotation, origin)
    back = np.array(truth.xyz) + rotation_from_rpy(*truth.rpy) @ point
    assert back == pytest.approx(origin + rotation @ truth.target_xyz)
    assert sensor.measure(rotation @ np.diag([1.0, -1.0, -1.0]), origin) is None


def test_rotation_from_rpy_is_yaw_after_pitch_after_roll() -> None:
    r, p, y = 0.3, -0.7, 2.1
    x = np.array([[1, 0, 0], [0, np.cos(r), -np.sin(r)], [0, np.sin(r), np.cos(r)]])
    yy = np.array([[np.cos(p), 0, np.sin(p)], [0, 1, 0], [-np.sin(p), 0, np.cos(p)]])
    z = np.array([[np.cos(y), -np.sin(y), 0], [np.sin(y), np.cos(y), 0], [0, 0, 1]])
    assert rotation_from_rpy(r, p, y) == pytest.approx(z @ yy @ x)


def test_stream_delays_samples_in_order() -> None:
    stream: Stream[int] = Stream(StreamNoise(latency=0.1), generator())
    assert not stream.immediate
    stream.push(0.0, 1)
    stream.push(0.05, 2)
    assert stream.take(0.09) == []
    assert stream.take(0.1) == [1]
    stream.extra_latency = 1.0
    stream.push(0.1, 3)
    assert stream.take(0.5) == [2]
    assert stream.take(1.2) == [3]


# ----------------------------------------------------------------------- tracker


PLACE = TrackerTruth(xyz=(2.0, 1.0, 0.5), rpy=(0.1, -0.2, 2.5), target_xyz=(0.0, 0.0, 0.1))
LINK = (Rotation.from_euler('xyz', [0.4, -0.8, 1.5]).as_matrix(), np.array([0.5, 0.1, 0.8]))


def tracker(noise: TrackerNoise, place: TrackerTruth = PLACE, seed: int = 0) -> TrackerSensor:
    return TrackerSensor(noise, place, generator(seed))


def test_orientation_is_that_of_the_link_in_the_tracker_frame() -> None:
    reading = tracker(TrackerNoise(), replace(PLACE, orientation=True)).measure(*LINK)
    assert reading.shape == (7,)
    turned = Rotation.from_quat(reading[3:]).as_matrix()
    np.testing.assert_allclose(rotation_from_rpy(*PLACE.rpy) @ turned, LINK[0], atol=1e-12)
    assert tracker(TrackerNoise()).measure(*LINK).shape == (3,)


def test_orientation_noise_has_the_given_sigma_and_does_not_affect_points() -> None:
    noise = TrackerNoise(position_sigma=1e-5, orientation_sigma=3e-4)
    measured, plain = (tracker(noise, replace(PLACE, orientation=flag)) for flag in (True, False))
    readings = np.array([measured.measure(*LINK) for _ in range(1000)])
    true = Rotation.from_matrix(rotation_from_rpy(*PLACE.rpy).T @ LINK[0])
    off = (Rotation.from_quat(readings[:, 3:]) * true.inv()).as_rotvec()
    assert off.std(axis=0) == pytest.approx([3e-4] * 3, rel=0.1)
    np.testing.assert_array_equal(readings[:, :3], [plain.measure(*LINK) for _ in range(1000)])


def test_frame_drifts_at_the_given_rate_in_a_direction_drawn_from_the_seed() -> None:
    noise = TrackerNoise(drift_rate=1e-7)
    first, other = tracker(noise), tracker(noise, seed=1)
    for item in (first, other):
        moved = item.measure(*LINK, 600.0) - item.measure(*LINK, 0.0)
        assert np.linalg.norm(moved) == pytest.approx(6e-5)
    assert not np.allclose(first.measure(*LINK, 600.0), other.measure(*LINK, 600.0), atol=1e-6)
    still = tracker(TrackerNoise())
    np.testing.assert_array_equal(still.measure(*LINK, 600.0), still.measure(*LINK, 0.0))


def test_simulator_applies_drift_and_dropouts(arm: Description, truth: HiddenTruth) -> None:
    noise = TrackerNoise(rate=100.0, drift_rate=1e-3, dropout=0.5)
    simulator = ArmSimulator(arm, truth, Cell(tracker=noise), seed=2)
    seen = [reading for _ in range(2000) for reading in simulator.step().tracker]
    assert 60 < len(seen) < 140
    moved = np.linalg.norm(seen[-1].values - seen[0].values)
    assert moved == pytest.approx(1e-3 * (seen[-1].time - seen[0].time), rel=0.02)


# ------------------------------------------------------------------------ faults


FRAMES = ('ft_link_2_proximal', 'ft_link_2_distal', 'ft_link_3_proximal', 'ft_link_3_distal',
          'ft_wrist')


def test_faults_affect_single_sensors(arm: Description, truth: HiddenTruth) -> None:
    simulator = ArmSimulator(arm, truth)

    def readings(fault: str) -> dict[int, np.ndarray]:
        """Return the last reading of every sensor that publishes."""
        simulator.set_faults(parse_faults(fault, JOINTS, FRAMES))
        return {reading.index: reading.values
                for _ in range(4) for reading in simulator.step().wrenches}

    nominal = readings('none')
    assert np.isnan(readings('ft_nan:ft_wrist')[4]).all()
    assert set(readings('ft_silent:ft_link_2_distal')) == {0, 2, 3, 4}
    assert not readings('ft_silent')
    np.testing.assert_allclose(readings('ft_flipped:ft_wrist')[4], -nominal[4], atol=0.1)
    swapped = readings('ft_swapped:ft_link_2_proximal/ft_wrist')
    np.testing.assert_allclose(swapped[0], nominal[4], atol=0.1)
    np.testing.assert_allclose(swapped[4], nominal[0], atol=0.1)
    assert np.abs(readings('ft_saturated:ft_wrist')[4][:3]).max() == SENSOR_RANGE
    # Other sensors are not affected.
    np.testing.assert_allclose(swapped[2], nominal[2], atol=0.1)


def test_bias_drifts_within_its_bounds() -> None:
    noise = ForceTorqueNoise(force_drift=0.02, torque_drift=1e-3)
    sensor = ForceTorqueSensor(noise, ForceTorqueTruth('f'), generator(0))
    begin, end = sensor.measure(np.zeros(6)), sensor.measure(np.zeros(6), 100.0)
    change = np.abs(end - begin)
    assert (change <= np.repeat([2.0, 0.1], 3)).all()
    assert change.max() > 0.3


@pytest.mark.parametrize(('fault', 'words'), [
    ('ft_nan:ft_moon', "there is no force/torque sensor 'ft_moon'"),
    ('ft_swapped:ft_wrist', 'expected two different sensors'),
    ('ft_swapped:ft_wrist/ft_wrist', 'expected two different sensors'),
    ('ft_swapped:ft_wrist/ft_moon', "'ft_moon'"),
])
def test_invalid_sensor_faults_are_refused(fault: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse_faults(fault, JOINTS, FRAMES)
