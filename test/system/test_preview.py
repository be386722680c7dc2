# SPDX-License-Identifier: Apache-2.0
"""Dry runs of the procedures: planned, checked and shown, and nothing moves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.live_cell import COMPLIANCE, FRICTION, PAYLOAD, compliance_node, friction_node
from support.live_graph import JOINTS, Client, Process, payload_node, seconds, sim_arm
from trajectory_msgs.msg import JointTrajectory
from visualization_msgs.msg import MarkerArray

from robocal_ros.messages import qos

WRIST = {'sensor_frame': 'ft_wrist', 'poses': 6}
# The node and its parameters; services of other names than preview begin with it.
CASES: dict[str, tuple[Callable[..., Process], dict[str, Any]]] = {
    'two_plane': (payload_node, {}),
    'static_poses': (payload_node, {'method': 'static_poses', **WRIST}),
    'excitation': (payload_node, {'method': 'excitation', **WRIST}),
    'calibrate_gains': (payload_node, {}),
    'identify_arm': (payload_node, {}),
    'friction': (friction_node, {'measure_joints': ['joint_2', 'joint_6']}),
    'compliance': (compliance_node, {}),
}
NAMES = {'friction': FRICTION, 'compliance': COMPLIANCE}
VERBS = {name: f'preview_{name}' for name in ('calibrate_gains', 'identify_arm')}
LEAST = {'two_plane': 10, 'static_poses': 7, 'excitation': 1, 'calibrate_gains': 1,
         'identify_arm': 1, 'friction': 40, 'compliance': 20}


@pytest.fixture(scope='module')
def simulation(ros: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with sim_arm(tmp_path_factory.mktemp('arm') / 'sim_arm.log', seed=3):
        yield


@pytest.mark.parametrize('what', CASES)
def test_a_dry_run(client: Client, simulation: None, tmp_path: Path, what: str) -> None:
    name = NAMES.get(what, PAYLOAD)
    start, parameters = CASES[what]
    with (
        start(tmp_path / 'node.log', tmp_path / 'results', **parameters),
        client.watching() as received,
    ):
        client.until(lambda: client.state(name) == 'active')
        trajectories = client.subscribe(
            JointTrajectory, f'/{name}/preview_trajectory', qos.LATCHED)
        markers = client.subscribe(MarkerArray, f'/{name}/markers', qos.LATCHED)
        client.until(lambda: received)
        answer = client.call(VERBS.get(what, 'preview'), name)
        assert answer.success, answer.message
        found = re.search(
            r'(\d+) motions?, (\d+) s with rests; tool0 stays within x .* m in world\. '
            r'Nothing was moved\.$', answer.message)
        assert found, answer.message
        assert int(found[1]) >= LEAST[what]
        client.until(lambda: trajectories and any(
            item.ns == 'preview' for array in markers for item in array.markers))
    states = np.array([state.position for _, state in received])
    assert np.ptp(states, axis=0).max() < 1e-3
    shown = trajectories[-1]
    assert tuple(shown.joint_names) == JOINTS
    times = np.array([seconds(point.time_from_start) for point in shown.points])
    places = np.array([point.positions for point in shown.points])
    assert (np.diff(times) > 0.0).all()
    assert 0.0 < times[-1] <= float(found[2]) + 1.0
    np.testing.assert_allclose(places[0], states[-1], atol=2e-3)
    # It ends where it began, and the way there is no pause.
    np.testing.assert_allclose(places[-1], places[0], atol=2e-3)
    assert np.ptp(places, axis=0).max() > 0.2
