# SPDX-License-Identifier: Apache-2.0
"""Both methods on the reference cell, end to end, against the hidden truth.

The truth is read here alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from geometry_msgs.msg import InertiaStamped
from std_msgs.msg import String
from support.live_cell import HIDDEN, PAYLOAD, Cell, live_cell
from support.live_graph import Client, payload_node
from visualization_msgs.msg import MarkerArray

from robocal_ros.results.result import CalibrationResult, State, Verdict
from robocal_ros.results.store import from_yaml
from robocal_ros.robot.setup import calibration_matrix

COM = ('com_x', 'com_y', 'com_z')


@pytest.fixture(scope='module')
def cell(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    with live_cell(
        client, tmp_path_factory.mktemp('success'), payload_node, PAYLOAD, topics={
            'result': String, 'inertia': InertiaStamped, 'markers': MarkerArray},
        state_timeout=5.0, sweep_speed=1.0, max_velocity=3.0, max_acceleration=12.0,
    ) as made:
        yield made


@pytest.fixture(scope='module')
def two_plane(cell: Cell) -> CalibrationResult:
    cell.done()
    return cell.stored('payload')


@pytest.fixture(scope='module')
def static_poses(cell: Cell, two_plane: CalibrationResult) -> CalibrationResult:
    assert cell.configure(method='static_poses', poses=8, dwell=0.7)
    cell.done()
    return cell.stored('payload')


def assert_near_truth(result: CalibrationResult, names: tuple[str, ...]) -> None:
    tool = HIDDEN['tool']
    truth = dict(zip(('mass', *COM), (tool['mass'], *tool['centre_of_mass']), strict=True))
    assert result.verdict is Verdict.PASS
    for name in names:
        parameter = result.parameter(name)
        assert parameter.state is State.IDENTIFIED
        low, high = parameter.interval(0.999)
        assert low < truth[name] < high, f'{name}: {low} … {high}, truth {truth[name]}'


def test_two_plane_identifies_the_centre_of_mass(two_plane: CalibrationResult) -> None:
    assert_near_truth(two_plane, COM)
    assert two_plane.method == 'two_plane'


def test_static_poses_identifies_mass_and_centre(static_poses: CalibrationResult) -> None:
    assert_near_truth(static_poses, ('mass', *COM))
    assert static_poses.method == 'static_poses'


def test_file_and_topics_agree(cell: Cell, static_poses: CalibrationResult) -> None:
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


def test_the_sensor_is_calibrated_by_the_weighed_tool(
    cell: Cell, static_poses: CalibrationResult
) -> None:
    """Its readings are exact but for bias and noise."""
    assert cell.configure(method='static_poses', poses=10, dwell=0.7, arm_model_std=0.01,
                          known_mass=HIDDEN['tool']['mass'], known_mass_std=0.002)
    assert 'held out, RMS: force' in cell.done('calibrate_sensor')
    result = cell.stored('sensor_calibration')
    assert result.verdict is Verdict.PASS
    frame, matrix = calibration_matrix(result)
    assert frame == 'ft_wrist'
    deviates = (matrix - np.eye(6)).ravel() / [p.std for p in result.parameters]
    assert np.abs(deviates).max() < 3.5


def test_older_results_are_kept(cell: Cell, static_poses: CalibrationResult) -> None:
    assert len(list(cell.results.rglob('payload*.yaml'))) >= 2


def test_the_node_never_opens_the_truth(cell: Cell, static_poses: CalibrationResult) -> None:
    cell.assert_truth_unread()
