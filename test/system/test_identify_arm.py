# SPDX-License-Identifier: Apache-2.0
"""The arm itself, identified live without and with a weighed load, and what it is good for.

The truth is read here alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from std_msgs.msg import String
from support.live_cell import PAYLOAD, Cell, live_cell, scaled_joints, truth_with
from support.live_graph import JOINTS, RELIABLE, Client, payload_node

from robocal_ros.results import CalibrationResult, Verdict, from_yaml, read_result

SCALES = dict(zip(JOINTS, (0.96, 1.05, 0.95, 1.04, 0.97, 1.03), strict=True))


@pytest.fixture(scope='module')
def cell(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    folder = tmp_path_factory.mktemp('arm')
    truth = truth_with(
        folder, joints=scaled_joints(SCALES), tool=None,
        links={'mass': 0.08, 'centre_of_mass': 0.008, 'inertia': 0.1, 'seed': 5.0})
    with live_cell(
        client, folder, payload_node, PAYLOAD, topics={'arm': String},
        arm={'truth_file': truth, 'seed': 3, 'joint_states_rate': 250.0},
        method='excitation', excitation_source='torque', state_timeout=5.0, gain_std=0.1,
        arm_model_std=0.05, **RELIABLE,
    ) as made:
        yield made


@pytest.fixture(scope='module')
def bare(cell: Cell) -> CalibrationResult:
    cell.done('identify_arm')
    return cell.stored('arm')


def test_the_arm_explains_its_torques(bare: CalibrationResult) -> None:
    assert bare.verdict is Verdict.PASS
    assert bare.kind == 'arm'
    for fit in bare.validation:
        assert fit.after < 0.2 * fit.before, fit


def test_the_arm_is_published(cell: Cell, bare: CalibrationResult) -> None:
    received = cell.received['arm']
    cell.client.until(lambda: received)
    assert from_yaml(received[-1].data).parameters == bare.parameters


@pytest.fixture(scope='module')
def weighed(cell: Cell, bare: CalibrationResult) -> Iterator[CalibrationResult]:
    """The arm identified again with the load attached, whose mass is known."""
    assert cell.client.call('attach_load', 'sim_arm').success
    cell.client.set(PAYLOAD, arm_load=8.0)
    cell.done('identify_arm')
    yield cell.stored('arm')
    assert cell.client.call('detach_load', 'sim_arm').success


def test_a_weighed_load_identifies_the_scales_of_the_large_joints(
    weighed: CalibrationResult,
) -> None:
    assert weighed.method == 'loaded'
    for name in JOINTS[1:3]:
        scale = weighed.parameter(f'{name}.effort_scale')
        low, high = scale.interval(0.9999)
        assert low < SCALES[name] < high, scale
        assert scale.std < 0.03


def test_a_payload_by_torque_is_right_with_the_identified_arm(
    cell: Cell, weighed: CalibrationResult
) -> None:
    cell.client.set(PAYLOAD, excitation_repeats=2)
    answer = cell.call('run')
    results = list(cell.results.glob('payload*.yaml'))
    assert results, answer.message
    result = read_result(results[0])
    low, high = result.parameter('mass').interval(0.9999)
    assert low < 8.0 < high
    assert high - low < 0.2 * 8.0
    evidence = next(check for check in result.checks if check.name == 'evidence of the arm model')
    assert evidence.evaluated
    assert 'identified' in evidence.reason
