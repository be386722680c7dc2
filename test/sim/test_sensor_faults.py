# SPDX-License-Identifier: Apache-2.0
"""Faults of single force/torque sensors, and slow joint states."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from demo import default_cell
from robocal_ros.errors import ConfigurationError
from robocal_sim.faults import SENSOR_RANGE, parse_faults
from robocal_sim.model import read_description
from robocal_sim.sensors import ForceTorqueSensor
from robocal_sim.simulator import ArmSimulator
from robocal_sim.truth import Cell, ForceTorqueNoise, ForceTorqueTruth

JOINTS = tuple(f'joint_{number}' for number in range(1, 7))
FRAMES = ('ft_link_2_proximal', 'ft_link_2_distal', 'ft_link_3_proximal', 'ft_link_3_distal',
          'ft_wrist')


@pytest.fixture(scope='module')
def arm() -> ArmSimulator:
    return ArmSimulator(read_description(default_cell.urdf()), default_cell.hidden_truth(),
                        Cell(), rate=500.0)


@pytest.fixture
def readings(arm: ArmSimulator) -> Callable[..., dict[int, np.ndarray]]:
    def read(fault: str, steps: int = 4) -> dict[int, np.ndarray]:
        """Return the last reading of every sensor that publishes."""
        arm.set_faults(parse_faults(fault, JOINTS, FRAMES))
        found = {}
        for _ in range(steps):
            for reading in arm.step().wrenches:
                found[reading.index] = reading.values
        arm.set_faults(parse_faults('none', JOINTS))
        return found

    return read


def test_faults_affect_single_sensors(readings) -> None:
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
    sensor = ForceTorqueSensor(noise, ForceTorqueTruth('f'), np.random.default_rng(0))
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
