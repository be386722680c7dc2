# SPDX-License-Identifier: Apache-2.0
"""Conversions, markers and status: what leaves the node."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import numpy as np
import pinocchio as pin
import pytest
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import Quaternion
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.serialization import deserialize_message, serialize_message
from scipy.stats import chi2
from support.ros_rig import Spinner, pair
from trajectory_msgs.msg import JointTrajectory
from transforms3d import quaternions

from robocal_ros.errors import DataError
from robocal_ros.messages import conversions
from robocal_ros.node.status import ERROR, OK, StatusReporter
from robocal_ros.payload.node import payload_markers
from robocal_ros.results.result import CalibrationResult, Parameter, RobotIdentity, State
from robocal_ros.robot.trajectories import Trajectory, quintic_path

pytestmark = pytest.mark.usefixtures('ros')

INERTIA = tuple(f'inertia_{axes}' for axes in ('xx', 'xy', 'xz', 'yy', 'yz', 'zz'))
COM = ('com_x', 'com_y', 'com_z')


@pytest.mark.parametrize('time', [0.0, 0.1, 1.0 / 3.0, 1_700_000_000.123456])
def test_stamps_keep_the_nanosecond(time: float) -> None:
    stamp = conversions.to_stamp(time)
    assert 0 <= stamp.nanosec < 10**9
    assert conversions.seconds(stamp) == pytest.approx(time, abs=1e-9)
    assert conversions.to_stamp(conversions.seconds(stamp)) == stamp


def test_rounding_carries_into_the_seconds() -> None:
    assert conversions.to_stamp(1.9999999999) == Time(sec=2, nanosec=0)
    assert conversions.to_duration(0.9999999999).sec == 1


def test_trajectory_message_holds_the_knots() -> None:
    path = quintic_path(np.array([[0.0, 0.0], [1.0, -0.5]]), np.ones(2), np.ones(2))
    message = conversions.to_joint_trajectory(path, ('a', 'b'))
    message = deserialize_message(serialize_message(message), JointTrajectory)
    assert message.joint_names == ['a', 'b']
    assert message.header.stamp == Time()
    assert [list(p.positions) for p in message.points] == path.position.tolist()
    assert [list(p.velocities) for p in message.points] == path.velocity.tolist()
    assert [list(p.accelerations) for p in message.points] == path.acceleration.tolist()
    times = [conversions.seconds(p.time_from_start) for p in message.points]
    assert times == pytest.approx(path.time, abs=1e-9)


def test_goal_names_every_joint_in_its_tolerances() -> None:
    flat = Trajectory(np.array([0.0, 1.0]), np.zeros((2, 2)), np.zeros((2, 2)))
    goal = conversions.to_goal(flat, ('a', 'b'), 0.1, 0.01, 1.5)
    assert [(t.name, t.position) for t in goal.path_tolerance] == [('a', 0.1), ('b', 0.1)]
    assert [(t.name, t.position) for t in goal.goal_tolerance] == [('a', 0.01), ('b', 0.01)]
    assert conversions.seconds(goal.goal_time_tolerance) == 1.5


def payload(*, inertia: tuple[float, ...] | None = None) -> CalibrationResult:
    """Return a result with a known covariance of the centre of mass."""
    deviations = (0.001, 0.002, 0.004)
    parameters = [Parameter('mass', 'kg', 2.0, None, State.IDENTIFIED)]
    parameters += [Parameter(name, 'm', value, std)
                   for name, value, std in zip(COM, (0.01, -0.02, 0.1), deviations, strict=True)]
    parameters += [
        Parameter(name, 'kg·m²', None, None, State.NOT_EVALUATED) if inertia is None else
        Parameter(name, 'kg·m²', inertia[i], 1e-4) for i, name in enumerate(INERTIA)]
    return CalibrationResult(
        kind='payload', method='two_plane', robot=RobotIdentity('r', 'f', ('a',)), frame='tool0',
        parameters=tuple(parameters), covariance_names=COM,
        covariance=np.diag(np.square(deviations)), fit=(), validation=(), checks=(), counts={},
        settings={}, source='live', time=12.5, software_version='0')


def test_inertia_message_says_nan_for_what_is_not_identified() -> None:
    message = conversions.to_inertia(payload())
    assert message.header.frame_id == 'tool0'
    assert conversions.seconds(message.header.stamp) == 12.5
    assert message.inertia.m == 2.0
    com = message.inertia.com
    assert (com.x, com.y, com.z) == (0.01, -0.02, 0.1)
    assert all(np.isnan(getattr(message.inertia, f'i{a[-2:]}')) for a in INERTIA)


def test_inertia_message_holds_what_is() -> None:
    message = conversions.to_inertia(payload(inertia=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)))
    assert [getattr(message.inertia, f'i{a[-2:]}') for a in INERTIA] == [1, 2, 3, 4, 5, 6]


def by_name(result: CalibrationResult) -> dict:
    return {marker.ns: marker for marker in payload_markers(result).markers}


def test_markers_show_centre_and_interval() -> None:
    made = by_name(payload())
    assert set(made) == {'centre_of_mass', 'interval_95'}
    for marker in made.values():
        place = marker.pose.position
        assert (place.x, place.y, place.z) == (0.01, -0.02, 0.1)
        assert marker.header.frame_id == 'tool0'
    scale = made['interval_95'].scale
    expected = 2.0 * np.sqrt(chi2.ppf(0.95, 3)) * np.array([0.001, 0.002, 0.004])
    np.testing.assert_allclose(sorted((scale.x, scale.y, scale.z)), expected, rtol=1e-9)


def test_interval_ellipsoid_covers_95_percent() -> None:
    """Centres drawn with the covariance lie inside the ellipsoid that often."""
    generator = np.random.default_rng(5)
    factor = 1e-3 * generator.normal(size=(3, 3))
    result = replace(payload(), covariance=factor @ factor.T)
    marker = by_name(result)['interval_95']
    turn = marker.pose.orientation
    axes = pin.Quaternion(turn.w, turn.x, turn.y, turn.z).matrix()
    half = 0.5 * np.array([marker.scale.x, marker.scale.y, marker.scale.z])
    drawn = generator.multivariate_normal(np.zeros(3), result.covariance, 20_000)
    inside = (np.square((drawn @ axes) / half).sum(axis=1) < 1.0).mean()
    assert inside == pytest.approx(0.95, abs=0.01)


def test_equivalent_inertia_is_that_of_a_solid_ellipsoid() -> None:
    squares = np.square([0.05, 0.1, 0.2])
    moments = 2.0 / 5.0 * (squares.sum() - squares)
    made = by_name(payload(inertia=(moments[0], 0.0, 0.0, moments[1], 0.0, moments[2])))
    scale = made['equivalent_inertia'].scale
    np.testing.assert_allclose(sorted((scale.x, scale.y, scale.z)), [0.1, 0.2, 0.4], rtol=1e-9)


class Reporter:
    """A status reporter with a clock turned by hand, and who hears it."""

    def __init__(self) -> None:
        self.node, self.talker = pair()
        self.time = 100.0
        self.reporter = StatusReporter(self.node, ReentrantCallbackGroup(), lambda: self.time)
        self.received: list[DiagnosticStatus] = []
        self.talker.create_subscription(
            DiagnosticStatus, '/subject/status', self.received.append, 50)
        self.spinner = Spinner(self.node, self.talker)
        self.spinner.until(lambda: self.node.count_subscribers('/subject/status') > 0)
        self.spinner.until(lambda: self.reporter._publisher.get_subscription_count() > 0)

    def values(self) -> dict[str, str]:
        return {item.key: item.value for item in self.received[-1].values}


@pytest.fixture
def reporter() -> Iterator[Reporter]:
    made = Reporter()
    yield made
    made.spinner.__exit__(None, None, None)


def test_status_is_throttled_but_changes_pass(reporter: Reporter) -> None:
    for i in range(10):
        reporter.time += 0.03
        reporter.reporter.update('moving', 'On the way.', progress=float(i))
    reporter.reporter.update('idle', 'There.', progress=100.0)
    reporter.spinner.until(lambda: reporter.received and reporter.received[-1].message == 'There.')
    # At 0.03, 0.15 and 0.27 s, then the change.
    assert len(reporter.received) == 4
    assert reporter.values() == {'phase': 'idle', 'progress': '100.0'}


def test_the_last_word_of_an_idle_node_passes_at_once(reporter: Reporter) -> None:
    reporter.reporter.update('idle', 'Configured.')
    reporter.reporter.update('idle', 'Active.')
    reporter.spinner.until(lambda: len(reporter.received) == 2)
    assert reporter.received[-1].message == 'Active.'


def test_level_passes_at_once_and_progress_is_kept_within_bounds(reporter: Reporter) -> None:
    reporter.reporter.update('moving', 'On the way.', progress=250.0)
    reporter.reporter.update('moving', 'Broken.', level=ERROR)
    reporter.spinner.until(lambda: len(reporter.received) == 2)
    assert reporter.received[-1].level == ERROR
    assert reporter.values()['progress'] == '100.0'


def test_values_stay_until_idle(reporter: Reporter) -> None:
    reporter.reporter.update('sweeping', 'One.', samples='12', mass=1.23456789)
    reporter.time += 1.0
    reporter.reporter.note(lever='0.1 ± 0.2')
    reporter.spinner.until(lambda: len(reporter.received) == 2)
    assert reporter.received[-1].message == 'One.'
    assert reporter.values() == {'phase': 'sweeping', 'progress': '0.0', 'samples': '12',
                                 'mass': '1.23457', 'lever': '0.1 ± 0.2'}
    reporter.reporter.update('idle', 'Done.')
    reporter.spinner.until(lambda: len(reporter.received) == 3)
    assert 'samples' not in reporter.values()


def test_diagnostics_come_once_a_second_with_the_nodes_name(reporter: Reporter) -> None:
    arrays: list[DiagnosticArray] = []
    reporter.talker.create_subscription(DiagnosticArray, '/diagnostics', arrays.append, 10)
    reporter.reporter.update('idle', 'Ready.')
    reporter.spinner.until(lambda: len(arrays) >= 2)
    first, second = (conversions.seconds(array.header.stamp) for array in arrays[:2])
    # A machine that is late sends them later.
    assert second - first > 0.9
    assert arrays[0].status[0].name == 'subject'
    assert arrays[0].status[0].message == 'Ready.'
    assert arrays[0].status[0].level == OK


@pytest.mark.parametrize('time', [1e151, -1e151, 2.0**31, math.nan, math.inf])
def test_times_that_no_message_can_hold_are_refused(time: float) -> None:
    for convert in (conversions.to_stamp, conversions.to_duration):
        with pytest.raises(DataError, match='no time that a ROS message can hold'):
            convert(time)


SEEDS = range(10)


def stand_in() -> ModuleType:
    """Return what the distribution's package does, over the library that it wraps."""
    module = ModuleType('tf_transformations')

    def quaternion_from_matrix(matrix: np.ndarray) -> np.ndarray:
        w, x, y, z = quaternions.mat2quat(matrix[:3, :3])
        return np.array([x, y, z, w])

    module.quaternion_from_matrix = quaternion_from_matrix
    return module


@pytest.fixture(params=['transforms3d', 'tf_transformations'])
def backend(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The module as it is with, and without, the distribution's package."""
    kept = sys.modules.pop('tf_transformations', None)
    # None in the table makes the import fail.
    sys.modules['tf_transformations'] = (
        None if request.param == 'transforms3d' else kept or stand_in())  # type: ignore[assignment]
    yield importlib.reload(conversions)
    del sys.modules['tf_transformations']
    if kept is not None:
        sys.modules['tf_transformations'] = kept
    importlib.reload(conversions)


def test_a_quarter_turn_about_z(backend: ModuleType) -> None:
    turn = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    half = np.sqrt(0.5)
    assert backend.quaternion(turn) == pytest.approx([0.0, 0.0, half, half], abs=1e-12)


@pytest.mark.parametrize('seed', SEEDS)
def test_a_rotation_becomes_its_unit_quaternion(seed: int) -> None:
    rotation = pin.exp3(np.random.default_rng(seed).uniform(-3.0, 3.0, 3))
    found = conversions.quaternion(rotation)
    assert found[3] >= 0.0
    assert np.linalg.norm(found) == pytest.approx(1.0, abs=1e-12)
    assert np.abs(pin.Quaternion(rotation).coeffs() @ found) == pytest.approx(1.0, abs=1e-9)
    message = Quaternion()
    conversions.fill_message(message, rotation)
    assert [message.x, message.y, message.z, message.w] == found.tolist()
