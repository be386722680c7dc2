# SPDX-License-Identifier: Apache-2.0
"""How far readings lag behind the motion, seen from the motion alone."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import seven_joints
from benchmarks.offline import write_wrench_bag
from benchmarks.wrench_samples import Impact, SampledArm, Settings
from robocal_ros.cli.main import main
from robocal_ros.wrench.observer import WrenchObserver
from robocal_ros.wrench.offline_observer import OfflineObserver
from robocal_ros.wrench.parameters import WrenchParameters

SENSORS = list(seven_joints.SENSORS)
LAG = np.array([0.0, 0.004, 0.008, -0.003])


@cache
def estimates(seed: int, *, moving: bool = True, delays: tuple[float, ...] = (0.0,),
              **settings: float) -> np.ndarray:
    arm = SampledArm(seven_joints.urdf(), SENSORS, Settings(
        filtered=1.0, frequency=0.5, **settings), seed=seed)
    joints, sensors = arm.samples(30.0, [Impact(
        2, np.array([0.0, -40.0, 0.0]), np.array([0.0, 0.04, 0.05]), 10.0, 0.5)], moving=moving)
    whole = OfflineObserver(WrenchObserver(arm.robot, WrenchParameters(
        sensor_frames=SENSORS, require_tare=False, sensor_delays=list(delays))))
    whole.add_joint_states(joints.stamps, joints.values)
    for index, stream in enumerate(sensors):
        whole.add_readings(
            index, stream.stamps + round(1e9 * LAG[index]), stream.values, {})
    whole.take(final=True)
    return np.array(whole.delays.estimates())


def test_delays_are_found_within_their_deviation() -> None:
    off = np.vstack([(found[:, 0] - LAG) / found[:, 1] for found in (
        estimates(seed, inertia_error=0.02) for seed in range(2))])
    assert np.sqrt(np.mean(off**2)) < 2.0
    assert np.abs(off).max() < 5.0


def test_they_are_precise_enough_to_be_of_use() -> None:
    found = estimates(1)
    assert (found[:, 1] < 1e-3).all()
    # What the parameters state is not found again.
    left = estimates(1, delays=tuple(LAG))
    assert (np.abs(left[:, 0]) < 4.0 * left[:, 1] + 2e-4).all()


def test_an_arm_at_rest_tells_none() -> None:
    assert np.isinf(estimates(1, moving=False)[:, 1]).all()


def test_the_command_reports_the_delay_of_a_filter(tmp_path: Path, capsys: Any) -> None:
    bag = tmp_path / 'bag'
    # Its sensors filter with half of the newest value at 1 kHz: a delay of 1 ms.
    write_wrench_bag(bag, 22.0)
    main(['estimate', 'wrench', str(bag), '-o', str(tmp_path / 'tare.yaml'), '--results-dir',
          str(tmp_path / 'results'), '-p', 'require_tare:=false'])
    told = ' '.join(capsys.readouterr().out.split())
    assert "Readings of sensor 'ft_3_proximal' are 1.0 ms older" in told
    assert 'Set its sensor_delays to 0.0010.' in told
