# SPDX-License-Identifier: Apache-2.0
"""Sensors: noise, bias, loss and latency."""

from __future__ import annotations

import numpy as np
import pytest

from robocal_sim.sensors import (
    ForceTorqueSensor,
    ImuSensor,
    JointSensor,
    Stream,
    TrackerSensor,
    rotation_from_rpy,
)
from robocal_sim.truth import (
    Cell,
    ForceTorqueNoise,
    ForceTorqueTruth,
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
