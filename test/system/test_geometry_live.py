# SPDX-License-Identifier: Apache-2.0
"""Geometry end to end: postures planned, measured by the tracker, and estimated.

The truth is read here alone.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path

import numpy as np
import yaml
from std_msgs.msg import String
from support.friction_results import hidden_payload, identity
from support.live_cell import COMPLIANCE, HIDDEN, compliance_node, live_cell
from support.live_graph import TRUTH, Client
from visualization_msgs.msg import MarkerArray

from robocal_ros.results import ResultStore, State, Verdict, from_yaml
from robocal_ros.robot import FRAME_AXES


def test_the_arm_measures_its_geometry_without_a_load(client: Client, tmp_path: Path) -> None:
    moved = np.random.default_rng(3).normal(size=(6, 6)) * np.repeat((1e-3, 2e-3), 3)
    hidden = copy.deepcopy(HIDDEN)
    for row, joint in zip(moved.tolist(), hidden['joints'].values(), strict=True):
        joint['frame'] = row
    truth_file = tmp_path / 'truth.yaml'
    truth_file.write_text(yaml.safe_dump(hidden), encoding='utf-8')
    # The tool is known: the arm bends under it.
    ResultStore(tmp_path / 'results', identity()).save(hidden_payload(TRUTH))
    with live_cell(
        client, tmp_path, compliance_node, COMPLIANCE, arm={'seed': 3, 'truth_file': truth_file},
        topics={'geometry': String, 'result': String, 'markers': MarkerArray},
        method='geometry', load_mass=0.0, posture_count=30, reference_every=10,
    ) as cell:
        assert '30 postures: ' in cell.done('preview')
        assert client.travel() < 1e-3
        answer = cell.done()
        result = cell.stored('geometry')
        estimates, contradictions = cell.shown('estimate'), cell.shown('contradictions')
        # The next run measures anew; cancelled, it leaves the result.
        again = cell.begin()
        cell.await_message('Moving to posture 3')
        cell.cancelled(again)
        assert cell.stored('geometry').time == result.time
    assert result.verdict is Verdict.PASS
    assert 'parameters are observable' in answer
    (published,) = cell.received['geometry']
    drawn = {item.ns: item for item in cell.received['markers'][-1].markers}
    assert re.fullmatch(r'errors × \d+, red by the URDF, up to \d{4} µm, green calibrated, up to '
                        r'\d{1,3} µm', drawn['sag_caption'].text)
    assert len(drawn['before'].points) == len(drawn['after'].points) >= 60
    names = [item.name for item in result.parameters if item.state is State.IDENTIFIED]
    assert from_yaml(published.data).values(names).tolist() == result.values(names).tolist()
    assert cell.received['result'] == []
    # While it measures, the status says what is known, and what does not fit.
    assert len(estimates) > 10
    assert 'none yet' in estimates[0]
    assert 'are observable' in estimates[-1]
    assert contradictions[-1] == 'none'
    (held_out,) = result.validation
    assert held_out.before > 10.0 * held_out.after
    for row, joint in zip(moved.tolist(), result.robot.joint_names, strict=True):
        for axis, known in zip(FRAME_AXES, row, strict=True):
            item = result.parameter(f'{joint}.{axis}')
            assert abs(item.value - known) < 4.5 * item.std, item
        item, truth = result.parameter(f'{joint}.compliance'), HIDDEN['joints'][joint]
        assert abs((item.value or 0.0) - truth['compliance']) < 4.5 * (item.std or 1.0), item
    assert len(names) > 12
    assert result.settings['mounted_unloaded'].startswith('a tool of 2 kg')
