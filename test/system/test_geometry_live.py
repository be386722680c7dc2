# SPDX-License-Identifier: Apache-2.0
"""Geometry end to end: postures planned, measured by the tracker, and estimated.

The truth is read here alone.
"""

from __future__ import annotations

from pathlib import Path

from std_msgs.msg import String
from support.friction_results import hidden_payload, identity
from support.live_cell import COMPLIANCE, HIDDEN, compliance_node, live_cell
from support.live_graph import TRUTH, Client

from robocal_ros.results import ResultStore, State, Verdict, from_yaml
from robocal_ros.robot import FRAME_AXES


def test_the_arm_measures_its_geometry_without_a_load(client: Client, tmp_path: Path) -> None:
    # The tool is known: the arm bends under it.
    ResultStore(tmp_path / 'results', identity()).save(hidden_payload(TRUTH))
    with live_cell(
        client, tmp_path, compliance_node, COMPLIANCE, arm={'seed': 3},
        topics={'geometry': String, 'result': String}, method='geometry', load_mass=0.0,
        posture_count=30, reference_every=10,
    ) as cell:
        assert '30 postures: ' in cell.done('preview')
        assert client.travel() < 1e-3
        answer = cell.done()
        result = cell.stored('geometry')
        estimates, contradictions = cell.shown('estimate'), cell.shown('contradictions')
    assert result.verdict is Verdict.PASS
    assert 'parameters are observable' in answer
    (published,) = cell.received['geometry']
    names = [item.name for item in result.parameters if item.state is State.IDENTIFIED]
    assert from_yaml(published.data).values(names).tolist() == result.values(names).tolist()
    assert cell.received['result'] == []
    # While it measures, the status says what is known, and what does not fit.
    assert len(estimates) > 10
    assert 'none yet' in estimates[0]
    assert 'are observable' in estimates[-1]
    assert contradictions[-1] == 'none'
    joints = result.robot.joint_names
    for joint in joints:
        for axis in FRAME_AXES:
            item = result.parameter(f'{joint}.{axis}')
            assert abs(item.value) < 4.5 * item.std, item
        item, truth = result.parameter(f'{joint}.compliance'), HIDDEN['joints'][joint]
        assert abs((item.value or 0.0) - truth['compliance']) < 4.5 * (item.std or 1.0), item
    assert len(names) > 12
    assert result.settings['mounted_unloaded'].startswith('a tool of 2 kg')
