# SPDX-License-Identifier: Apache-2.0
"""Hidden truth and cell files: values and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from robocal_ros.errors import ConfigurationError
from robocal_sim.truth import Cell, HiddenTruth, load_truth, parse_cell, parse_truth

TOOL = {'mass': 1.0, 'centre_of_mass': [0, 0, 0.1], 'inertia': [1e-3, 1e-3, 1e-3, 0, 0, 0]}


def test_prefix_applies_to_links_and_joints_only(truth: HiddenTruth) -> None:
    left = truth.prefixed('left_')
    assert left.tool is not None
    assert left.load is not None
    assert left.tracker is not None
    assert (left.tool.parent, left.load.parent) == ('left_flange', 'left_flange')
    assert list(left.joints) == [f'left_{name}' for name in truth.joints]
    assert list(left.joints.values()) == list(truth.joints.values())
    assert left.force_torque_sensors[-1].frame == 'left_ft_wrist'
    assert left.imus[-1].frame == 'left_imu_flange'
    assert (left.tracker.frame, left.tracker.target_link) == ('tracker', 'left_flange')
    assert truth.prefixed('') == truth
    assert HiddenTruth().prefixed('left_') == HiddenTruth()


def test_empty_files_are_ideal() -> None:
    assert parse_truth(None) == HiddenTruth()
    assert parse_cell(None) == Cell()


@pytest.mark.parametrize(('content', 'words'), [
    ({'tol': {}}, 'unknown key tol'),
    (['gravity'], 'a mapping with the keys'),
    ({'gravity': [0, 0]}, 'gravity: expected a list of 3 numbers'),
    ({'gravity': [0, 0, 'down']}, "got 'down'"),
    ({'tool': {**TOOL, 'mass': -1}}, 'tool: mass: expected a positive number'),
    ({'tool': {**TOOL, 'mass': True}}, 'tool: mass: expected a finite number'),
    ({'tool': {**TOOL, 'mass': float('nan')}}, 'tool: mass: expected a finite number'),
    ({'tool': {'mass': 1.0}}, 'centre_of_mass, inertia is missing'),
    ({'tool': {**TOOL, 'inertia': [1, 1, 5, 0, 0, 0]}}, 'principal moments'),
    ({'tool': {**TOOL, 'parent': 3}}, 'tool: parent: expected a text'),
    ({'joints': ['a']}, 'a mapping from joint name'),
    ({'joints': {'a': {'compliance': -1e-6}}}, 'joints: a: compliance'),
    ({'joints': {'a': {'effort_scale': 0}}}, 'joints: a: effort_scale'),
    ({'joints': {'a': {'friction': {'coulomb': 2, 'breakaway': 1}}}}, 'Raise breakaway'),
    ({'joints': {'a': {'friction': {'stribeck_velocity': 0}}}}, 'stribeck_velocity'),
    ({'joints': {'a': {'friction': {'viscosity': 0}}}}, 'unknown key viscosity'),
    ({'force_torque_sensors': {'frame': 'a'}}, 'expected a list'),
    ({'force_torque_sensors': [{'topic': 'a'}]}, 'frame is missing'),
    ({'force_torque_sensors': [{'frame': 'a', 'bias': [1]}]}, 'a list of 6 numbers'),
    ({'tracker': {'visibility_angle': 0}}, 'visibility_angle'),
])
def test_invalid_truth_is_refused_with_its_place(content: object, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse_truth(content, 'truth.yaml')


@pytest.mark.parametrize(('content', 'words'), [
    ({'imus': {}}, 'unknown key imus'),
    ({'imu': {'gyro_noise': 1}}, 'unknown key gyro_noise'),
    ({'force_torque': {'force_sigma': -1}}, 'force_torque: force_sigma'),
    ({'joint_states': {'dropout': 1.5}}, 'a probability'),
    ({'tracker': {'rate': 0}}, 'tracker: rate'),
])
def test_invalid_cell_is_refused_with_its_place(content: object, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse_cell(content, 'cell.yaml')


def test_missing_or_malformed_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match='cannot be read'):
        load_truth(tmp_path / 'none.yaml')
    bad = tmp_path / 'bad.yaml'
    bad.write_text('a: [1')
    with pytest.raises(ConfigurationError, match='not valid YAML'):
        load_truth(bad)
