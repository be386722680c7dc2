# SPDX-License-Identifier: Apache-2.0
"""Both methods on the reference cell, end to end, against the hidden truth.

The truth is read here alone. A second node hears the same topics and the marks of the first, as
from a bag, and never moves: what it estimates must be the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from geometry_msgs.msg import InertiaStamped
from std_msgs.msg import String
from support.live_cell import HIDDEN, PAYLOAD, Cell, live_cell
from support.live_graph import RELIABLE, Client, payload_node
from support.same_result import assert_same_result
from visualization_msgs.msg import MarkerArray

from robocal_ros.results.result import CalibrationResult, State, Verdict
from robocal_ros.results.store import from_yaml

LISTENER = 'listener'
COM = ('com_x', 'com_y', 'com_z')


@dataclass
class Pair:
    """Two nodes that hear the same samples; one of them moves the arm."""

    mover: Cell
    listener: Cell

    def run(self) -> CalibrationResult:
        """Run while both record exactly the same samples; return the mover's result."""
        # Silence around both ends makes the two records start and stop with the same sample.
        self.mover.fault('joint_states_silent,ft_silent')
        self.listener.done('clear')
        run = self.mover.begin()
        self.mover.client.until(lambda: 'under way' in self.mover.call('clear').message)
        self.mover.fault('none')
        answer = self.mover.wait(run)
        self.mover.fault('joint_states_silent,ft_silent')
        assert answer.success, answer.message
        return self.mover.stored('payload')

    def assert_the_same_by_both(self) -> None:
        """Both nodes estimate the same numbers from their samples."""
        results = []
        for cell in (self.mover, self.listener):
            cell.done('estimate')
            # The mover's are checked against what it has stored before, too.
            results.append(replace(cell.stored('payload'), checks=()))
        assert_same_result(*results)


@pytest.fixture(scope='module')
def cells(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp('success')
    # Silences begin and end while simulated time runs: waiting for it must not fail the run.
    common = {**RELIABLE, 'state_timeout': 10.0, 'sweep_speed': 1.0, 'max_velocity': 3.0,
              'max_acceleration': 12.0}
    other = folder / 'other'
    with (
        live_cell(client, folder, payload_node, PAYLOAD, topics={
            'result': String, 'inertia': InertiaStamped, 'markers': MarkerArray},
            **common) as mover,
        payload_node(folder / 'listener.log', other, name=LISTENER, remappings={
            '~/marks': '/payload_identification/marks'}, **common) as listener,
    ):
        client.until(lambda: client.state(LISTENER) == 'active')
        yield Pair(mover, Cell(
            client=client, name=LISTENER, arm=mover.arm, node=listener, results=other))


@pytest.fixture(scope='module')
def two_plane(cells: Pair) -> CalibrationResult:
    return cells.run()


@pytest.fixture(scope='module')
def static_poses(cells: Pair, two_plane: CalibrationResult) -> CalibrationResult:
    cells.mover.fault('none')
    for cell in (cells.mover, cells.listener):
        assert cell.configure(method='static_poses', poses=8, dwell=0.7)
    # The sensor speaks to those whom it has found; whoever is found late misses its first words.
    client = cells.mover.client
    client.until(lambda: client.node.count_subscribers('/ft_wrist/wrench') >= 2)
    client.travel(1.0)
    return cells.run()


def assert_near_truth(result: CalibrationResult, names: tuple[str, ...]) -> None:
    tool = HIDDEN['tool']
    truth = dict(zip(('mass', *COM), (tool['mass'], *tool['centre_of_mass']), strict=True))
    assert result.verdict is Verdict.PASS
    for name in names:
        parameter = result.parameter(name)
        assert parameter.state is State.IDENTIFIED
        low, high = parameter.interval(0.999)
        assert low < truth[name] < high, f'{name}: {low} … {high}, truth {truth[name]}'


def test_two_plane_identifies_the_centre_of_mass(
    cells: Pair, two_plane: CalibrationResult
) -> None:
    assert_near_truth(two_plane, COM)
    assert two_plane.method == 'two_plane'
    cells.assert_the_same_by_both()


def test_static_poses_identifies_mass_and_centre(
    cells: Pair, static_poses: CalibrationResult
) -> None:
    assert_near_truth(static_poses, ('mass', *COM))
    assert static_poses.method == 'static_poses'
    cells.assert_the_same_by_both()


def test_file_and_topics_agree(cells: Pair, static_poses: CalibrationResult) -> None:
    cell = cells.mover
    text = (cell.results / 'payload.yaml').read_text()
    received, inertias = cell.received['result'], cell.received['inertia']
    cell.client.until(lambda: received and received[-1].data == text)
    result = from_yaml(text)
    cell.client.until(lambda: inertias[-1].inertia.m == result.parameter('mass').value)
    inertia = inertias[-1]
    assert inertia.header.frame_id == result.frame == 'tool0'
    com = inertia.inertia.com
    assert (com.x, com.y, com.z) == tuple(result.values(COM))
    # Neither method sees the inertia.
    assert np.isnan(inertia.inertia.ixx)
    markers = {marker.ns: marker for marker in cell.received['markers'][-1].markers}
    assert set(markers) == {'centre_of_mass', 'interval_95'}
    for marker in markers.values():
        place = marker.pose.position
        assert marker.header.frame_id == 'tool0'
        assert (place.x, place.y, place.z) == tuple(result.values(COM))


def test_older_results_are_kept(cells: Pair, static_poses: CalibrationResult) -> None:
    assert len(list(cells.mover.results.rglob('payload*.yaml'))) >= 3


def test_the_node_never_opens_the_truth(cells: Pair, static_poses: CalibrationResult) -> None:
    cells.mover.assert_truth_unread()
