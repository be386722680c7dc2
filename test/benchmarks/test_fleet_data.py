# SPDX-License-Identifier: Apache-2.0
"""The simulated fleet: what happens to it, its estimates, and its faulty bags."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from benchmarks.fleet_data import (
    Event,
    SimulatedArm,
    estimates,
    fleet,
    load_of,
    main,
    shifted,
    truth_of,
    write_bag,
)
from benchmarks.offline_bag import Record
from robocal_ros.errors import RobocalError
from robocal_ros.fleet.catalogue import RESULTS, Catalogue
from robocal_ros.fleet.recognition import arms_in
from robocal_ros.fleet.request import Request
from robocal_ros.messages.bag import Bag
from robocal_ros.messages.samples import JointSamples, WrenchSamples

BEGIN = 1.75e9
EVENTS = (Event('damage', 'joint_2', 2, 0.5), Event('wear', 'joint_3', 0, 0.4),
          Event('tool', '', 3, 2.0), Event('wrong_tool', '', 1, 3.0),
          Event('sensor', 'ft_wrist', 0, 10.0))
ARM = SimulatedArm('arm_001', 1, EVENTS, (24.0, 34.0, 24.0, 24.0, 24.0))


def recording() -> Record:
    time = 0.01 * np.arange(60.0)
    values = np.random.default_rng(0).standard_normal((60, 6))
    return Record('<robot name="any"/>', JointSamples(
        tuple(f'joint_{i}' for i in range(1, 7)), time, values, values, values),
        WrenchSamples('ft_wrist', time, values))


def test_events_change_the_hidden_truth_from_their_week_on() -> None:
    first, warm, damaged = (truth_of(ARM, week) for week in range(3))
    before, after = (truth.joints['joint_2'].friction.coulomb for truth in (first, damaged))
    assert after == pytest.approx([1.5 * value for value in before])
    assert warm.joints['joint_2'].friction.viscous[0] == pytest.approx(
        np.exp(-0.2) * first.joints['joint_2'].friction.viscous[0])
    assert [ARM.tool(week) for week in range(5)] == [1.0, 3.0, 1.0, 2.0, 2.0]
    first_load, other = load_of(ARM, 0), load_of(ARM, 3)
    assert other.mass == pytest.approx(2.0 * first_load.mass)
    np.testing.assert_allclose(other.inertia, 2.0 * first_load.inertia)
    assert ARM.drift('ft_wrist', 26) == pytest.approx(5.0)
    assert ARM.friction('joint_3', 52) == pytest.approx(1.4)


def test_estimates_follow_the_events_and_are_rows_of_the_catalogue(tmp_path: Path) -> None:
    arm = replace(ARM, temperatures=(24.0,) * 30, faults={4: 'missing'})
    rows, = estimates([arm])
    assert rows.schema.equals(RESULTS)
    mass = rows.filter(pc.equal(rows['parameter'], 'mass'))['value'].to_numpy()
    assert len(mass) == 29
    np.testing.assert_allclose(mass[[0, 1, 2, 10]] / mass[0], [1.0, 3.0, 1.0, 2.0], rtol=0.05)
    friction = rows.filter(pc.equal(
        rows['parameter'], 'joint_2.coulomb_forward'))['value'].to_numpy()
    assert np.median(friction[2:]) / np.median(friction[:2]) == pytest.approx(1.5, rel=0.1)
    assert main([str(tmp_path), '--arms', '2', '--weeks', '3', '--faults', '0', '--rows']) == 0
    stored, = Catalogue(str(tmp_path)).query('SELECT count(DISTINCT robot) AS robots, count(*) '
                                             'AS rows FROM results')
    assert stored == {'robots': 2, 'rows': 2 * 3 * rows.num_rows // 29}
    assert [arm['name'] for arm in json.loads((tmp_path / 'truth.json').read_text())] == [
        'arm_001', 'arm_002']


def test_a_fleet_repeats_with_its_seed_and_has_faults_and_events() -> None:
    made = fleet(40, 52, 3)
    assert made == fleet(40, 52, 3)
    assert {event.kind for arm in made for event in arm.events} == {
        'wear', 'damage', 'tool', 'wrong_tool', 'sensor', 'stiff'}
    assert {fault for arm in made for fault in arm.faults.values()} == {
        'truncated', 'no_topic', 'corrupted', 'missing'}


def test_bags_name_their_run_and_hold_what_was_recorded(tmp_path: Path) -> None:
    write_bag(tmp_path / 'bag', shifted(recording(), BEGIN), 'friction_identification', 'run',
              31.0, '')
    with Bag(tmp_path / 'bag') as bag:
        arm, = arms_in(bag, Request('out'))
        assert arm.capabilities == ('friction',)
        assert bag.counts['/joint_states'] == bag.counts['/ft_wrist/wrench'] == 60
        assert bag.counts['/joint_6/temperature'] == 1


def test_faulty_bags_lack_what_they_should(tmp_path: Path) -> None:
    record = shifted(recording(), BEGIN)
    for fault in ('no_topic', 'truncated'):
        write_bag(tmp_path / fault, record, 'friction_identification', 'run', 31.0, fault)
    with Bag(tmp_path / 'no_topic') as bag:
        assert not bag.counts.get('/joint_states')
    with pytest.raises(RobocalError), Bag(tmp_path / 'truncated') as bag:
        arms_in(bag, Request('out'))
