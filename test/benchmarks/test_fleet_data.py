# SPDX-License-Identifier: Apache-2.0
"""The simulated fleet: what happens to it, and its estimates."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from benchmarks.fleet_data import Event, SimulatedArm, estimates, main
from robocal_ros.fleet import Catalogue
from robocal_ros.fleet.catalogue import RESULTS

EVENTS = (Event('damage', 'joint_2', 2, 0.5), Event('wear', 'joint_3', 0, 0.4),
          Event('tool', '', 3, 2.0), Event('wrong_tool', '', 1, 3.0),
          Event('sensor', 'ft_wrist', 0, 10.0))
ARM = SimulatedArm('arm_001', 1, EVENTS, (24.0, 34.0, 24.0, 24.0, 24.0))


def test_events_act_from_their_week_on() -> None:
    weeks = np.arange(53)
    assert ARM.friction('joint_2', weeks)[:4].tolist() == [1.0, 1.0, 1.5, 1.5]
    assert ARM.tool(weeks)[:5].tolist() == [1.0, 3.0, 1.0, 2.0, 2.0]
    assert ARM.drift('ft_wrist', weeks)[26] == pytest.approx(5.0)
    assert ARM.friction('joint_3', weeks)[52] == pytest.approx(1.4)


def test_estimates_follow_the_events_and_are_rows_of_the_catalogue(tmp_path: Path) -> None:
    arm = replace(ARM, temperatures=(24.0,) * 30, lost=frozenset({4}))
    rows, = estimates([arm])
    assert rows.schema.equals(RESULTS)
    mass = rows.filter(pc.equal(rows['parameter'], 'mass'))['value'].to_numpy()
    assert len(mass) == 29
    np.testing.assert_allclose(mass[[0, 1, 2, 10]] / mass[0], [1.0, 3.0, 1.0, 2.0], rtol=0.05)
    friction = rows.filter(pc.equal(
        rows['parameter'], 'joint_2.coulomb_forward'))['value'].to_numpy()
    assert np.median(friction[2:]) / np.median(friction[:2]) == pytest.approx(1.5, rel=0.1)
    assert main([str(tmp_path), '--arms', '2', '--weeks', '3', '--lost', '0']) == 0
    stored, = Catalogue(str(tmp_path)).query('SELECT count(DISTINCT robot) AS robots, count(*) '
                                             'AS rows FROM results')
    assert stored == {'robots': 2, 'rows': 2 * 3 * rows.num_rows // 29}
    assert [arm['name'] for arm in json.loads((tmp_path / 'truth.json').read_text())] == [
        'arm_001', 'arm_002']
