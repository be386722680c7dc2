# SPDX-License-Identifier: Apache-2.0
"""Method excitation and drive gains end to end, on an arm whose efforts are up to 15 % off.

The truth is read here alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml
from lifecycle_msgs.msg import Transition
from std_msgs.msg import String
from support.live_graph import JOINTS, TRUTH, Client, payload_node, sim_arm

from robocal_ros.messages import qos
from robocal_ros.results.result import CalibrationResult, Verdict
from robocal_ros.results.store import from_yaml, read_result

NODE = 'payload_identification'
SCALES = dict(zip(JOINTS, (0.88, 1.13, 0.86, 1.14, 0.87, 1.12), strict=True))
MOMENTS = ('inertia_xx', 'inertia_yy', 'inertia_zz')


@dataclass
class Cell:
    client: Client
    results: Path
    gains: list[String]

    def use(self, **values: object) -> None:
        """Configure the node anew with other parameters."""
        assert self.client.change(Transition.TRANSITION_DEACTIVATE, NODE)
        assert self.client.change(Transition.TRANSITION_CLEANUP, NODE)
        self.client.set(NODE, **values)
        assert self.client.change(Transition.TRANSITION_CONFIGURE, NODE)
        assert self.client.change(Transition.TRANSITION_ACTIVATE, NODE)


@pytest.fixture(scope='module')
def cell(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    folder = tmp_path_factory.mktemp('excitation')
    document = yaml.safe_load(TRUTH.read_text())
    for name, scale in SCALES.items():
        document['joints'][name]['effort_scale'] = scale
    truth = folder / 'truth.yaml'
    truth.write_text(yaml.safe_dump(document))
    with (
        sim_arm(folder / 'sim_arm.log', truth_file=truth, seed=3, joint_states_rate=250.0),
        payload_node(folder / 'node.log', folder / 'results', method='excitation',
                     excitation_source='torque', excitation_repeats=2, state_timeout=5.0,
                     # The simulated arm's links are those of its URDF.
                     arm_model_std=0.001),
    ):
        client.until(lambda: client.state(NODE) == 'active', 120.0)
        yield Cell(client, folder / 'results',
                   client.subscribe(String, f'/{NODE}/drive_gains', qos.LATCHED))


@pytest.fixture(scope='module')
def before(cell: Cell) -> CalibrationResult:
    """What efforts of unknown scale make of the tool."""
    # Unlike the scales, the error of wrong ones shows in a single period.
    cell.client.set(NODE, excitation_repeats=1)
    answer = cell.client.call('run', NODE, 240.0)
    cell.client.set(NODE, excitation_repeats=2)
    passed = cell.results / 'payload.yaml'
    assert passed.exists() == answer.success
    return read_result(passed if answer.success else cell.results / 'payload.failed.yaml')


@pytest.fixture(scope='module')
def scales(cell: Cell, before: CalibrationResult) -> CalibrationResult:
    answer = cell.client.call('calibrate_gains', NODE, 240.0)
    assert answer.success, answer.message
    return read_result(cell.results / 'drive_gains.yaml')


@pytest.fixture(scope='module')
def after(cell: Cell, scales: CalibrationResult) -> CalibrationResult:
    """What calibrated efforts make of the tool and a load of 8 kg that nobody told about."""
    assert cell.client.call('attach_load', 'sim_arm').success
    answer = cell.client.call('run', NODE, 240.0)
    assert cell.client.call('detach_load', 'sim_arm').success
    assert answer.success, answer.message
    return read_result(cell.results / 'payload.yaml')


def test_wrong_scales_spoil_the_mass(before: CalibrationResult) -> None:
    assert abs(before.parameter('mass').value / 2.0 - 1.0) > 0.1


def test_the_effort_scales_of_all_drives_are_identified(scales: CalibrationResult) -> None:
    assert scales.verdict is Verdict.PASS
    for name, truth in SCALES.items():
        found = scales.parameter(f'{name}.effort_scale')
        low, high = found.interval(0.9999)
        assert low < truth < high, found
        assert found.value == pytest.approx(truth, rel=0.03)


def test_the_scales_are_published(
    cell: Cell, scales: CalibrationResult
) -> None:
    cell.client.until(lambda: cell.gains)
    assert from_yaml(cell.gains[-1].data).parameters == scales.parameters


def test_with_the_scales_another_load_is_right_within_one_percent(
    after: CalibrationResult,
) -> None:
    assert after.verdict is Verdict.PASS
    assert after.parameter('mass').value == pytest.approx(10.0, rel=0.01)
    assert after.settings['sag_std'] > 0.0


def test_the_wrist_sensor_identifies_the_inertia(cell: Cell, after: CalibrationResult) -> None:
    # The sensor is calibrated, and no cable pulls at it.
    cell.use(excitation_source='wrench', sensor_gain_std=0.0, cable_stiffness_std=0.0)
    answer = cell.client.call('run', NODE, 240.0)
    assert answer.success, answer.message
    result = read_result(cell.results / 'payload.yaml')
    tool = yaml.safe_load(TRUTH.read_text())['tool']
    assert result.parameter('mass').value == pytest.approx(tool['mass'], rel=0.005)
    centre = np.array([result.parameter(name).value for name in ('com_x', 'com_y', 'com_z')])
    np.testing.assert_allclose(centre, tool['centre_of_mass'], atol=0.5e-3)
    moments = [result.parameter(name).value for name in MOMENTS]
    np.testing.assert_allclose(moments, tool['inertia'][:3], rtol=0.05)
