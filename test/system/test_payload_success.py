# SPDX-License-Identifier: Apache-2.0
"""Both methods on the reference cell, end to end, against the hidden truth.

The truth is read here alone. A second node hears the same topics and never moves: what it
estimates must be the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import InertiaStamped
from lifecycle_msgs.msg import Transition
from std_msgs.msg import String
from support.live_graph import RELIABLE, TRUTH, Client, payload_node, sim_arm
from visualization_msgs.msg import MarkerArray

from robocal_ros.messages import qos
from robocal_ros.results.result import CalibrationResult, State, Verdict
from robocal_ros.results.store import from_yaml, read_result

MOVER, LISTENER = 'payload_identification', 'listener'
COM = ('com_x', 'com_y', 'com_z')


@dataclass
class Cell:
    """The graph, and what the two nodes write and publish."""

    client: Client
    folder: Path
    results: list[String]
    inertias: list[InertiaStamped]
    markers: list[MarkerArray]

    def stored(self, node: str = MOVER) -> CalibrationResult:
        return read_result(self.folder / node / 'payload.yaml')

    def use(self, node: str, **values: object) -> None:
        """Configure a node anew with other parameters."""
        client = self.client
        if client.state(node) == 'active':
            assert client.change(Transition.TRANSITION_DEACTIVATE, node)
            assert client.change(Transition.TRANSITION_CLEANUP, node)
        client.set(node, **values)
        assert client.change(Transition.TRANSITION_CONFIGURE, node)
        assert client.change(Transition.TRANSITION_ACTIVATE, node)

    def run_with_listener(self) -> str:
        """Run while the listener records exactly the same samples; return the run's message."""
        client = self.client
        # Silence around both ends makes the two records start and stop with the same sample.
        client.set('sim_arm', fault='joint_states_silent,ft_silent')
        assert client.call('clear', LISTENER).success
        run = client.begin('run', MOVER)
        client.until(lambda: 'under way' in client.call('clear', MOVER).message)
        client.set('sim_arm', fault='none')
        answer = client.wait(run, 300.0)
        client.set('sim_arm', fault='joint_states_silent,ft_silent')
        assert answer.success, answer.message
        return str(answer.message)

    def estimated_by_both(self) -> list[CalibrationResult]:
        """Return the results of both nodes from their recorded samples."""
        for node in (MOVER, LISTENER):
            answer = self.client.call('estimate', node)
            assert answer.success, answer.message
        return [self.stored(node) for node in (MOVER, LISTENER)]


@pytest.fixture(scope='module')
def cell(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    folder = tmp_path_factory.mktemp('success')
    opened = folder / 'opened.txt'
    # Silences begin and end while simulated time runs: waiting for it must not fail the run.
    common = {**RELIABLE, 'state_timeout': 10.0, 'sweep_speed': 1.0, 'max_velocity': 3.0,
              'max_acceleration': 12.0}
    with (
        sim_arm(folder / 'sim_arm.log'),
        payload_node(folder / 'mover.log', folder / MOVER, opened=opened, **common),
        payload_node(folder / 'listener.log', folder / LISTENER, name=LISTENER, **common),
    ):
        client.statuses[MOVER] = client.subscribe(
            DiagnosticStatus, f'/{MOVER}/status', qos.LATCHED)
        for node in (MOVER, LISTENER):
            client.until(lambda node=node: client.state(node) == 'active')
        yield Cell(
            client, folder,
            client.subscribe(String, f'/{MOVER}/result', qos.LATCHED),
            client.subscribe(InertiaStamped, f'/{MOVER}/inertia', qos.LATCHED),
            client.subscribe(MarkerArray, f'/{MOVER}/markers', qos.LATCHED))


@pytest.fixture(scope='module')
def two_plane(cell: Cell) -> CalibrationResult:
    cell.run_with_listener()
    return cell.stored()


@pytest.fixture(scope='module')
def two_plane_twice(cell: Cell, two_plane: CalibrationResult) -> list[CalibrationResult]:
    """Results of both nodes from the same samples."""
    return cell.estimated_by_both()


@pytest.fixture(scope='module')
def static_poses(cell: Cell, two_plane_twice: object) -> CalibrationResult:
    cell.client.set('sim_arm', fault='none')
    for node in (MOVER, LISTENER):
        cell.use(node, method='static_poses', poses=8, dwell=0.7)
    # The sensor speaks to those whom it has found; whoever is found late misses its first words.
    client = cell.client
    client.until(lambda: client.node.count_subscribers('/ft_wrist/wrench') >= 2)
    client.travel(1.0)
    cell.run_with_listener()
    return cell.stored()


@pytest.fixture(scope='module')
def static_poses_twice(cell: Cell, static_poses: CalibrationResult) -> list[CalibrationResult]:
    return cell.estimated_by_both()


def assert_near_truth(result: CalibrationResult, names: tuple[str, ...]) -> None:
    tool = yaml.safe_load(TRUTH.read_text())['tool']
    truth = dict(zip(('mass', *COM), (tool['mass'], *tool['centre_of_mass']), strict=True))
    assert result.verdict is Verdict.PASS
    for name in names:
        parameter = result.parameter(name)
        assert parameter.state is State.IDENTIFIED
        low, high = parameter.interval(0.999)
        assert low < truth[name] < high, f'{name}: {low} … {high}, truth {truth[name]}'


def assert_same_numbers(one: CalibrationResult, other: CalibrationResult) -> None:
    assert [p.name for p in one.parameters] == [p.name for p in other.parameters]
    for mine, theirs in zip(one.parameters, other.parameters, strict=True):
        assert mine.state is theirs.state
        for value, twin in ((mine.value, theirs.value), (mine.std, theirs.std)):
            assert (value is None) == (twin is None)
            if value is not None:
                assert value == pytest.approx(twin, rel=1e-12, abs=1e-15)
    np.testing.assert_allclose(one.covariance, other.covariance, rtol=1e-12, atol=1e-30)
    assert [(f.after, f.count) for f in one.fit] == [(f.after, f.count) for f in other.fit]
    assert one.time == other.time


def test_two_plane_identifies_the_centre_of_mass(two_plane: CalibrationResult) -> None:
    assert_near_truth(two_plane, COM)
    assert two_plane.method == 'two_plane'


def test_two_plane_estimate_of_a_listener_is_the_same(
    two_plane_twice: list[CalibrationResult],
) -> None:
    assert_same_numbers(*two_plane_twice)


def test_static_poses_identifies_mass_and_centre(static_poses: CalibrationResult) -> None:
    assert_near_truth(static_poses, ('mass', *COM))
    assert static_poses.method == 'static_poses'


def test_static_poses_estimate_of_a_listener_is_the_same(
    static_poses_twice: list[CalibrationResult],
) -> None:
    assert_same_numbers(*static_poses_twice)


def test_file_and_topics_agree(cell: Cell, static_poses_twice: list[CalibrationResult]) -> None:
    text = (cell.folder / MOVER / 'payload.yaml').read_text()
    cell.client.until(lambda: cell.results and cell.results[-1].data == text)
    result = from_yaml(text)
    cell.client.until(lambda: cell.inertias[-1].inertia.m == result.parameter('mass').value)
    inertia = cell.inertias[-1]
    assert inertia.header.frame_id == result.frame == 'tool0'
    com = inertia.inertia.com
    assert (com.x, com.y, com.z) == tuple(result.values(COM))
    # Neither method sees the inertia.
    assert np.isnan(inertia.inertia.ixx)
    markers = {marker.ns: marker for marker in cell.markers[-1].markers}
    assert set(markers) == {'centre_of_mass', 'interval_95'}
    for marker in markers.values():
        place = marker.pose.position
        assert marker.header.frame_id == 'tool0'
        assert (place.x, place.y, place.z) == tuple(result.values(COM))


def test_older_results_are_kept(cell: Cell, static_poses_twice: object) -> None:
    assert len(list((cell.folder / MOVER).rglob('payload*.yaml'))) >= 4


def test_the_node_never_opens_the_truth(cell: Cell, static_poses: CalibrationResult) -> None:
    opened = (cell.folder / 'opened.txt').read_text().splitlines()
    assert any(str(cell.folder / MOVER) in name for name in opened)
    assert not [name for name in opened if TRUTH.name in name or 'robocal_sim/' in name]
