# SPDX-License-Identifier: Apache-2.0
"""Dry runs of the procedures: planned, checked and shown, and nothing moves."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.live_cell import (
    COMPLIANCE,
    FRICTION,
    PAYLOAD,
    Cell,
    compliance_node,
    friction_node,
    live_cell,
)
from support.live_graph import JOINTS, Client, payload_node, seconds
from trajectory_msgs.msg import JointTrajectory
from visualization_msgs.msg import MarkerArray

from robocal_ros.errors import CancelledError
from robocal_ros.payload.node import PayloadIdentification

START = {PAYLOAD: payload_node, FRICTION: friction_node, COMPLIANCE: compliance_node}
WRIST = {'sensor_frame': 'ft_wrist', 'poses': 6}


@pytest.fixture(scope='module')
def cell_of(
    client: Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Cell]]:
    """Return the live cell of a node, which lasts until that of another one is asked for."""
    cells: dict[str, Cell] = {}
    with ExitStack() as stack:
        def cell_of(name: str) -> Cell:
            if name not in cells:
                stack.close()
                cells.clear()
                cells[name] = stack.enter_context(live_cell(
                    client, tmp_path_factory.mktemp('cell'), START[name], name, arm={'seed': 3},
                    topics={'preview_trajectory': JointTrajectory, 'markers': MarkerArray},
                    state_timeout=5.0))
            return cells[name]

        yield cell_of


@pytest.mark.parametrize(('name', 'verb', 'parameters', 'least'), [
    (PAYLOAD, 'preview', {}, 10),
    (PAYLOAD, 'preview_calibrate_gains', {}, 1),
    (PAYLOAD, 'preview_after_gains', {'known_mass': 2.0}, 10),
    (PAYLOAD, 'preview_identify_arm', {}, 1),
    (PAYLOAD, 'preview', {'method': 'static_poses', **WRIST}, 7),
    (PAYLOAD, 'preview', {'method': 'excitation', **WRIST}, 1),
    (PAYLOAD, 'preview_calibrate_sensor', {
        'method': 'static_poses', 'known_mass': 2.0, **WRIST}, 7),
    (FRICTION, 'preview', {'measure_joints': ['joint_2', 'joint_6']}, 40),
    (COMPLIANCE, 'preview', {}, 20),
], ids=['two_plane', 'calibrate_gains', 'after_gains', 'identify_arm', 'static_poses',
        'excitation', 'calibrate_sensor', 'friction', 'compliance'])
def test_a_dry_run(
    cell_of: Callable[[str], Cell], name: str, verb: str, parameters: dict[str, Any], least: int
) -> None:
    cell = cell_of(name)
    cell.use(**parameters)
    client, trajectories = cell.client, cell.received['preview_trajectory']
    trajectories.clear()
    cell.received['markers'].clear()
    with client.watching() as received:
        client.until(lambda: received)
        said = cell.done(verb)
        found = re.search(
            r'(\d+) motions?, (\d+) s with rests; tool0 stays within x .* m in world\. '
            r'Nothing was moved\.$', said)
        assert found, said
        assert 'Unprotected, because not set: floor and tool_box.' in said
        if name == PAYLOAD:
            assert 'Expected verdict: ' in said
            assert any('Planned, nothing moves: ' in message for message in cell.messages)
        assert int(found[1]) >= least
        client.until(lambda: trajectories and any(
            item.ns == 'preview' for array in cell.received['markers'] for item in array.markers))
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


def test_what_the_arm_is_kept_clear_of_is_shown(cell_of: Callable[[str], Cell]) -> None:
    cell = cell_of(COMPLIANCE)
    cell.use(floor=-0.3, tool_box=[0.1, 0.1, 0.2], keep_out_boxes=[2.0, 0.0, 0.5, 0.2, 0.3, 0.4])
    cell.received['markers'].clear()
    assert 'Unprotected' not in cell.done('preview')
    cell.client.until(lambda: cell.received['markers'])
    shown = {(item.header.frame_id, item.scale.x, item.scale.z): item.pose.position
             for item in cell.received['markers'][-1].markers if item.ns == 'preview_box'}
    assert shown['tool0', 0.1, 0.2].z == pytest.approx(0.1)
    assert shown['world', 0.2, 0.4].x == pytest.approx(2.0)
    ((_, slab),) = ((place, item) for place, item in shown.items() if place[1] > 1.0)
    assert slab.z == pytest.approx(-0.3, abs=0.02)


@pytest.mark.parametrize(('parameters', 'words'), [
    ({'known_mass': 0.0}, 'needs the mass of the mounted tool: set known_mass'),
    ({'known_mass': 2.0, 'method': 'static_poses', **WRIST}, 'needs no drive gains: call preview'),
])
def test_a_preview_after_gains_that_can_not_be(
    cell_of: Callable[[str], Cell], parameters: dict[str, Any], words: str
) -> None:
    cell = cell_of(PAYLOAD)
    cell.use(**parameters)
    assert words in cell.refused(cell.begin('preview_after_gains'))


def test_a_preview_that_is_cancelled_while_it_estimates_ends() -> None:
    """It does not say that the estimate is expected to be refused."""
    async def stopped(*_: Any) -> None:
        raise CancelledError('Cancelled on request.')

    node: Any = SimpleNamespace(_foreseen=stopped)
    with pytest.raises(CancelledError):
        asyncio.run(PayloadIdentification._expected(node))
