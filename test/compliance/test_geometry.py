# SPDX-License-Identifier: Apache-2.0
"""Geometry of the whole arm: the truth of a simulation that shares nothing with the estimator."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy
from support.friction_results import payload_result

from benchmarks.geometry import APART, BALL, LENS, TRACKER, Cell, tip_error
from benchmarks.second_world import ARMS, body, rotation, urdf_of
from robocal_ros.compliance.geometry import (
    ArmGeometry,
    KnownDistance,
    ListOfSets,
    Observations,
    ObservedSet,
    fit_geometry,
    read_observations,
)
from robocal_ros.compliance.geometry_estimator import estimate_geometry, summary
from robocal_ros.compliance.measurement import Target
from robocal_ros.compliance.model import Mounted, mounted_of
from robocal_ros.compliance.parameters import ComplianceParameters
from robocal_ros.errors import DataError, FileFormatError
from robocal_ros.files import read_as
from robocal_ros.results import CalibrationResult, State, Verdict, from_yaml, to_yaml
from robocal_ros.robot import FRAME_AXES, Robot, with_frames

SEED = 1
CELL = Cell(SEED)
ROBOT = Robot(urdf_of(CELL.name), tool_frame=ARMS[CELL.name].tool)
VALUES = ComplianceParameters(target_xyz=CELL.stated.tolist())


@pytest.fixture(scope='module')
def tracked() -> Observations:
    return Cell(SEED).tracker()


@pytest.fixture(scope='module')
def balls() -> Observations:
    return Cell(SEED).sockets()


def estimated(data: Observations, **changes: float | list[float]) -> CalibrationResult:
    values = replace(VALUES, **changes)
    return estimate_geometry(ROBOT, data, values, mounted_of(ROBOT, values, None))


def posed() -> Observations:
    """Return random postures, seen by a tracker of poses."""
    g, cell = np.random.default_rng(0), Cell(SEED)
    q = g.uniform(cell.low, cell.high, (60, len(cell.arm.joints)))
    tips = []
    for cell.target in (*np.eye(3), np.zeros(3), CELL.target):
        tips.append(cell._tip(q))
    axes = np.stack([tip - tips[3] for tip in tips[:3]], axis=2)
    tracker, mounted = rotation(g.normal(size=3)), rotation(0.1 * g.normal(size=3))
    turns = scipy.spatial.transform.Rotation.from_matrix(tracker.T @ axes @ mounted)
    turns *= scipy.spatial.transform.Rotation.from_rotvec(1e-4 * g.normal(size=(60, 3)))
    points = tips[4] @ tracker + TRACKER * g.normal(size=(60, 3))
    return Observations((ObservedSet(
        'poses', 'pose', 'all', 'tracker', 'target', False, cell.motors(q),
        np.hstack((points, turns.as_quat())), tuple(range(1, 61))),))


def touching(seed: int = 0) -> Observations:
    """Return a set in which the target touches a tilted plane."""
    g, cell = np.random.default_rng(seed), Cell(SEED)
    normal = rotation([0.1, -0.2, 0.0])[:, 2]
    q = g.uniform(cell.low, cell.high, (50, len(cell.arm.joints)))
    height = 0.3 + BALL * g.normal(size=len(q))
    for _ in range(30):
        point = cell._tip(q)
        q = cell._nearer(q, point - (point @ normal - height)[:, None] * normal)
    touched = np.abs(cell._tip(q) @ normal - height) < 1e-9
    q = cell.motors(q[touched])
    return Observations((ObservedSet('table', 'plane', 'table', 'table', 'ball', False, q,
                                     np.zeros((len(q), 0)), tuple(range(1, len(q) + 1))),))


CAMERAS = ('camera', 'camera_on_tool')


@pytest.mark.parametrize('kind', ['sockets', 'tracker', 'poses', 'plane', *CAMERAS])
def test_jacobians_are_those_of_finite_differences(
    kind: str, balls: Observations, tracked: Observations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of residuals without a length, away from the nominal arm."""
    # Residuals of images are infinitesimal, too: these have little noise, and are fitted first.
    # Nor do the torques of a compliant arm change with its frames, nor what a scale changes.
    monkeypatch.setattr('benchmarks.geometry.CORNER', 1e-2)
    cell = Cell(SEED)
    cell.compliance = np.zeros(ROBOT.n)
    values = replace(VALUES, board_scale_std=0.0)
    data = cell.camera(kind) if kind in CAMERAS else {
        'sockets': balls, 'tracker': tracked, 'poses': posed(), 'plane': touching()}[kind]
    # With a wave of drift in each direction.
    monkeypatch.setattr('robocal_ros.compliance.geometry._WAVE', 8)
    first = data.sets[0]
    few = replace(first, posture=first.posture[:8], reading=first.reading[:8],
                  corners=first.corners[:8])
    geometry = ArmGeometry(ROBOT, Mounted(None), Target(ROBOT.tool_frame, CELL.stated),
                           replace(data, sets=(few,)), values)
    geometry.linearised()
    geometry.value[:6 * ROBOT.n] = 1e-3 * np.random.default_rng(0).normal(size=6 * ROBOT.n)
    if kind in CAMERAS:
        found = ArmGeometry(ROBOT, Mounted(None), Target(ROBOT.tool_frame, CELL.stated), data,
                            values)
        fit_geometry(found)
        geometry.value[:geometry.drift.start] = found.value[:found.drift.start]
        geometry.targets, geometry.turns, geometry.fixtures = (
            found.targets, found.turns, found.fixtures)
    rows, step = geometry.linearised(), 1e-6
    value, known = geometry.value, (geometry.targets, geometry.turns, geometry.fixtures)
    for column in range(geometry.width):
        ends = []
        for sign in (step, -step):
            geometry.targets, geometry.turns, geometry.fixtures = map(dict, known)
            moved = sign * np.eye(1, geometry.width, column)[0]
            geometry.value = value + moved[:len(value)]
            geometry.move(moved)
            ends.append(geometry.linearised().residual)
        slope = (ends[0] - ends[1]) / (2.0 * step)
        # Residuals of rotation, some milliradians, count as infinitesimal, and the volume of a
        # touched plane does not follow its normal.
        # So do the torques' changes with the deflection.
        stiff = 6 * ROBOT.n <= column < 7 * ROBOT.n
        near = 1e-2 if stiff or kind in ('poses', 'plane') else 1e-4 if kind in CAMERAS else 1e-6
        size = max(float(np.abs(slope).max()), 1.0)
        np.testing.assert_allclose(rows.jacobian[:, column], slope, atol=near * size)


def test_rows_of_each_pose_are_together_behind_known_distances(balls: Observations) -> None:
    """So that what a posture adds is known where postures are chosen."""
    one, other = balls.sets[:2]
    known = KnownDistance((one.fixture, other.fixture), 0.5, 1e-3)
    data, poses = Observations((one, other, *posed().sets), (known,)), len(posed().sets[0])
    geometry = ArmGeometry(
        ROBOT, Mounted(None), Target(ROBOT.tool_frame, CELL.stated), data, VALUES)
    rows = geometry.scaled(1.0)
    assert rows[0, geometry.columns['fixture', one.fixture]].any()
    blocks = rows[-6 * poses:].reshape(poses, 6, geometry.width)
    for part, other_part in ((slice(3), ('turn', 'target')), (slice(3, 6), ('target', 'target'))):
        assert not blocks[:, part, geometry.columns[other_part]].any()
        assert blocks[:, part, geometry.columns['fixture', 'tracker']].any(axis=2).all()


@pytest.mark.parametrize('kind', ['sockets', 'tracker', 'poses', 'everything', *CAMERAS])
def test_the_hidden_arm_is_found_within_the_stated_uncertainty(
    kind: str, balls: Observations, tracked: Observations
) -> None:
    camera = Cell(SEED).camera(kind if kind in CAMERAS else 'camera')
    everything = (*balls.sets[:4], *tracked.sets, *touching().sets, *camera.sets)
    data = camera if kind in CAMERAS else {
        'sockets': balls, 'tracker': tracked, 'poses': posed(),
        'everything': replace(camera, sets=everything)}[kind]
    result = estimated(data)
    assert result.verdict is Verdict.PASS, result.reasons
    truth = {f'{joint}.{axis}': value for joint, moved in zip(
        CELL.arm.joints, CELL.moved.tolist(), strict=True)
        for axis, value in zip(FRAME_AXES, moved, strict=True)}
    truth |= {f'{joint}.compliance': value for joint, value in zip(
        CELL.arm.joints, CELL.compliance.tolist(), strict=True)}
    found = [p for p in result.parameters if p.name in truth and p.value is not None]
    off = [(p.value - truth[p.name]) / p.std for p in found]
    assert np.abs(off).max() < 4.5
    assert np.sqrt(np.mean(np.square(off))) < 1.4
    seen = [p.name for p in found if p.state is State.IDENTIFIED]
    # A vertical axis bears no moment; shift of a frame along its axis is that of the next one.
    assert f'{CELL.arm.joints[0]}.compliance' not in seen
    assert f'{CELL.arm.joints[1]}.compliance' in seen
    (fit,) = result.validation
    assert fit.after < 1.3 * np.sqrt(3.0) * max(TRACKER, BALL)
    assert fit.before > 20.0 * fit.after
    assert 'calibrated' in summary(result)
    assert f'{1e3 * result.settings["tip_rms"]:.2f} mm (RMS)' in summary(result)
    assert from_yaml(to_yaml(result)).values(seen).tolist() == result.values(seen).tolist()


def test_the_written_urdf_is_the_arm_that_was_found(tracked: Observations) -> None:
    result = estimated(tracked, tracker_scale_std=0.0)
    robot = Robot(with_frames(urdf_of(CELL.name), result), tool_frame=ROBOT.tool_frame)
    target = result.values([f'target.{axis}' for axis in 'xyz'])
    # The pose of the root in the tracker's frame is unobservable: distances between points are.
    q = np.random.default_rng(5).uniform(CELL.low, CELL.high, (40, ROBOT.n))
    stiff = result.parameter
    own = np.array([stiff(f'{name}.compliance').value or 0.0 for name in robot.joint_names])
    motors = CELL.motors(q)
    links = [motor - own * robot.gravity_torque(at) for motor, at in zip(motors, q, strict=True)]
    points = np.array([robot.transform_frame_to_root(at, robot.tool_frame).act(target)
                       for at in links])
    true = CELL._tip(q)
    apart = scipy.spatial.distance.pdist
    assert np.sqrt(np.mean((apart(points) - apart(true))**2)) < 2.0 * TRACKER
    # Apart from that pose, the target is as near as the result says.
    turn, _ = scipy.spatial.transform.Rotation.align_vectors(
        true - true.mean(axis=0), points - points.mean(axis=0))
    off = turn.apply(points - points.mean(axis=0)) - (true - true.mean(axis=0))
    assert 0.5 < np.sqrt(np.mean(np.sum(off**2, axis=1))) / result.settings['tip_rms'] < 1.5
    # The first frame and the pose of the tracker are not told apart.
    assert result.parameter(f'{robot.joint_names[0]}.x').state is State.NOT_IDENTIFIED


@pytest.mark.parametrize(('kind', 'scale'), [('tracker', 4e-4), ('camera', 1e-3),
                                             ('camera_on_tool', 1e-3)])
def test_lengths_are_no_more_accurate_than_the_scale_of_what_sees_them(
    kind: str, scale: float, tracked: Observations
) -> None:
    (item,) = (tracked if kind == 'tracker' else (data := Cell(SEED).camera(kind))).sets
    if kind == 'tracker':
        data = Observations((replace(item, reading=item.reading * (1.0 + scale)),))
    else:
        corners = tuple(part * ([1.0 + scale] * 3 + [1.0] * 2) for part in item.corners)
        reading = item.reading * ([1.0 + scale] * 3 + [1.0] * 4)
        data = replace(data, sets=(replace(item, corners=corners, reading=reading),))
    exact = 'tracker_scale_std' if kind == 'tracker' else 'board_scale_std'

    def off(**values: float) -> float:
        result = estimated(data, **values)
        assert result.verdict is Verdict.PASS, result.reasons
        return tip_error(Cell(SEED), result, item.posture.min(axis=0), item.posture.max(
            axis=0)) / result.settings['tip_rms']

    assert off() < 2.5 < 5.0 < off(**{exact: 0.0})


def test_a_known_distance_tells_the_scale_of_a_tracker(
    balls: Observations, tracked: Observations
) -> None:
    (item,) = tracked.sets
    sure = estimated(Observations((*balls.sets, item)), tracker_scale_std=0.0)
    one, other = '0/0', balls.sets[-1].fixture
    apart = np.linalg.norm(np.subtract(*(sure.settings['fixtures'][name]
                                         for name in (one, other))))
    data = Observations((*balls.sets, replace(item, reading=item.reading * 1.001)),
                        (KnownDistance((one, other), apart, 2e-5),))
    scale = estimated(data).parameter('tracker.scale')
    assert scale.state is State.IDENTIFIED
    assert scale.std < 1e-4
    assert abs(scale.value + 0.001) < 3.0 * scale.std


@pytest.mark.parametrize(('off', 'std'), [(5e-4, 2e-5), (1e-3, 1e-5)])
def test_known_distances_stay_where_encoders_are_off_once_per_turn(
    balls: Observations, off: float, std: float
) -> None:
    """The frames that hold it move the sockets, too, but not apart."""
    g = np.random.default_rng(3)
    phase = g.uniform(0.0, 2.0 * np.pi, ROBOT.n)
    sets = tuple(replace(item, posture=item.posture + off * np.sin(item.posture + phase))
                 for item in balls.sets)
    known = tuple(KnownDistance((f'{i}/0', f'{i}/1'), APART, std) for i in range(5))
    result = estimated(Observations(sets, known))
    assert result.verdict is Verdict.PASS, result.reasons
    apart = [item for item in result.parameters if item.name.endswith('.distance')]
    assert len(apart) == 5
    for item in apart:
        assert abs(item.value - APART) < 3.3 * item.std
        assert item.std < 2.0 * std


def test_balls_alone_do_not_shrink_the_arm(balls: Observations) -> None:
    """Without any known length, least squares would: to 49.4 mm and less between sockets."""
    apart = [p for p in estimated(balls).parameters if p.name.endswith('.distance')]
    assert len(apart) == 5
    for item in apart:
        low, high = item.interval()
        assert low < APART < high
        assert item.std < 3e-4


def test_a_known_distance_tells_the_size_of_the_arm(balls: Observations) -> None:
    known = tuple(KnownDistance((f'{i}/0', f'{i}/1'), APART, 2e-5) for i in range(4))
    free = estimated(balls).parameter('4/0 to 4/1.distance')
    tied = estimated(replace(balls, distances=known))
    assert tied.verdict is Verdict.PASS, tied.reasons
    assert tied.parameter('4/0 to 4/1.distance').std < 0.5 * free.std
    wrong = replace(balls, distances=(KnownDistance(('0/0', '0/1'), 0.0504, 2e-5), *known[1:]))
    assert 'known 50.400 mm' in ' '.join(estimated(wrong).reasons)


def test_a_ball_that_slips_on_the_tool_between_two_sets_moves_no_frame() -> None:
    """By 1 mm, which passed with frames and compliances outside their intervals."""
    before, after = Cell(SEED), Cell(SEED)
    after.target = after.target + [8e-4, 0.0, 6e-4]
    # Sockets of the fourth placement on.
    result = estimated(Observations((*before.sockets().sets[:6], *after.sockets().sets[6:])))
    assert result.verdict is Verdict.PASS, result.reasons
    for joint, moved, soft in zip(CELL.arm.joints, CELL.moved, CELL.compliance, strict=True):
        for axis, truth in zip((*FRAME_AXES, 'compliance'), (*moved, soft), strict=True):
            found = result.parameter(f'{joint}.{axis}')
            if found.value is not None:
                low, high = found.interval(0.999)
                assert low < truth < high, found
    assert result.settings['sizes']['slip'] == pytest.approx(5e-4 / 3.0**0.5, rel=0.3)


def test_swapped_files_of_sockets_with_known_distances_are_named(balls: Observations) -> None:
    names = {'0/1': '1/1', '1/1': '0/1'}
    sets = tuple(replace(item, fixture=names.get(item.fixture, item.fixture))
                 for item in balls.sets)
    known = tuple(KnownDistance((f'{i}/0', f'{i}/1'), APART, 2e-5) for i in range(5))
    with pytest.raises(DataError, match=r'sockets 0/0 and 0/1 are \d+ mm apart, but stated'):
        estimated(Observations(sets, known))


def test_a_known_load_tells_the_compliances_better(tracked: Observations) -> None:
    cell = Cell(SEED)
    free = cell.tracker().sets[0]
    tool = cell.arm.tool
    cell.links[-1] += tool @ body(3.0, np.array([0.05, 0.0, 0.1]), np.zeros((3, 3))) @ tool.T
    loaded = replace(cell.tracker().sets[0], name='loaded', fixture='again', loaded=True)
    both = Observations((free, loaded))
    with pytest.raises(DataError, match='load is unknown'):
        estimated(both)
    result = estimated(both, load_mass=3.0, load_com=[0.05, 0.0, 0.1])
    assert result.verdict is Verdict.PASS, result.reasons
    alone, second = estimated(tracked), f'{CELL.arm.joints[1]}.compliance'
    assert result.parameter(second).std < 0.7 * alone.parameter(second).std
    for name, truth in zip(CELL.arm.joints[1:], CELL.compliance[1:], strict=True):
        found = result.parameter(f'{name}.compliance')
        assert abs(found.value - truth) < 4.0 * found.std


def test_an_uncertain_load_or_tool_widens_what_rests_on_it(tracked: Observations) -> None:
    """The load is 17 % lighter than stated, and the weights of the links are hardly known."""
    cell = Cell(SEED)
    free = cell.tracker().sets[0]
    tool = cell.arm.tool
    cell.links[-1] += tool @ body(3.0, np.array([0.05, 0.0, 0.1]), np.zeros((3, 3))) @ tool.T
    loaded = replace(cell.tracker().sets[0], name='loaded', fixture='again', loaded=True)
    stated = {'load_mass': 3.6, 'load_com': [0.05, 0.0, 0.1], 'arm_model_std': 1.0}
    sure, unsure = (estimated(Observations((free, loaded)), **stated, load_mass_std=std)
                    for std in (0.0, 0.6))
    fourth = f'{CELL.arm.joints[3]}.compliance'
    assert unsure.parameter(fourth).std > 3.0 * sure.parameter(fourth).std
    for name, truth in zip(CELL.arm.joints[1:], CELL.compliance[1:], strict=True):
        item = unsure.parameter(f'{name}.compliance')
        assert abs(item.value - truth) < 3.0 * item.std
    # Of the whole arm: a tool that is only roughly known.
    heavy = replace(payload_result(3.0, (0.05, 0.0, 0.1)), robot=ROBOT.identity,
                    frame=ROBOT.tool_frame)
    rough = replace(heavy, covariance=1e4 * heavy.covariance, parameters=tuple(
        replace(item, std=None if item.std is None else 100.0 * item.std)
        for item in heavy.parameters))
    carried = replace(loaded, loaded=False)
    values = replace(VALUES, payload_is='tool')
    known, doubted = (estimate_geometry(
        ROBOT, Observations((carried,)), values, mounted_of(ROBOT, values, result))
        for result in (heavy, rough))
    assert doubted.parameter(fourth).std > 1.05 * known.parameter(fourth).std


def test_slipped_balls_and_rows_of_the_other_socket_are_named(balls: Observations) -> None:
    first, second = balls.sets[:2]
    posture = first.posture.copy()
    posture[3] = second.posture[3]
    posture[7] += 2e-3
    result = estimated(Observations((replace(first, posture=posture), *balls.sets[1:])))
    assert result.verdict is Verdict.PASS, result.reasons
    other, slipped = result.settings['misfits'][:2]
    assert other.startswith('line 4 of 0/0 by ')
    assert 'from the socket 0/1: a line of that file?' in other
    assert slipped.startswith('line 8 of 0/0 by ')
    assert any('line 4 of 0/0' in check.reason for check in result.checks)


@pytest.mark.parametrize('seed', [6, 19, 28])
def test_of_few_observations_only_the_one_that_is_off_is_named(seed: int) -> None:
    """Of 51 coordinates for some 40 unknowns, residuals have a fraction of the noise."""
    cell = Cell(seed)
    (item,) = cell.tracker().sets
    robot = Robot(urdf_of(cell.name), tool_frame=ARMS[cell.name].tool)
    for off in (0.0, 2e-3):
        reading = item.reading[:17] + off * np.outer(np.arange(17) == 5, [1.0, 0.0, 0.0])
        few = replace(item, posture=item.posture[:17], reading=reading, lines=item.lines[:17])
        fit = fit_geometry(ArmGeometry(robot, Mounted(None), Target(
            robot.tool_frame, cell.stated), Observations((few,)), VALUES))
        assert np.flatnonzero(~fit.fits).tolist() == [5] * (off > 0.0)


def test_a_base_that_moved_between_placements_is_named(tracked: Observations) -> None:
    (item,) = tracked.sets
    parts = [replace(item, name=f'part {part}', placement=f'part {part}',
                     posture=item.posture[part::4], reading=item.reading[part::4],
                     lines=item.lines[part::4]) for part in range(4)]
    parts[2] = replace(parts[2], reading=parts[2].reading + [0.002, 0.0, 0.0])
    result = estimated(Observations(tuple(parts)))
    assert result.verdict is Verdict.FAIL
    assert re.search(r'part 2 by [12]\.', ' '.join(result.reasons))


def test_a_tracker_that_is_bumped_while_a_joint_sweeps_moves_no_frame() -> None:
    """In the order of the angles of a joint, its frame and the step look alike."""
    cell = Cell(3)
    (item,) = cell.tracker().sets
    order, robot = np.argsort(item.posture[:, 1]), Robot(
        urdf_of(cell.name), tool_frame=ARMS[cell.name].tool)
    reading = item.reading[order] + np.outer(np.arange(len(order)) >= 30, [2e-4, -1e-4, 1e-4])
    result = estimate_geometry(
        robot, Observations((replace(item, posture=item.posture[order], reading=reading),)),
        ComplianceParameters(target_xyz=cell.stated.tolist()), Mounted(None))
    for joint, moved in zip(cell.arm.joints, cell.moved.tolist(), strict=True):
        for axis, truth in zip(FRAME_AXES, moved, strict=True):
            found = result.parameter(f'{joint}.{axis}')
            assert abs(found.value - truth) < 3.3 * found.std
    assert result.settings['correlation_time'] == 1.0
    assert result.settings['sizes']['drift'] > 3e-5


def test_encoders_that_are_off_once_per_turn_move_no_frame(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rings off their axes by 0.3 mrad, which nine values took for frames and compliance."""
    cell = Cell(7001)
    (item,), g = cell.tracker().sets, np.random.default_rng(1)
    phase = g.uniform(0.0, 6.0, item.posture.shape[1])
    off = 3e-4 * np.sin(item.posture + phase)
    robot = Robot(urdf_of(cell.name), tool_frame=ARMS[cell.name].tool)
    result = estimate_geometry(
        robot, Observations((replace(item, posture=item.posture + off),)),
        ComplianceParameters(target_xyz=cell.stated.tolist()), Mounted(None))
    for joint, moved, soft in zip(
            cell.arm.joints, cell.moved.tolist(), cell.compliance.tolist(), strict=True):
        for axis, truth in zip((*FRAME_AXES, 'compliance'), (*moved, soft), strict=True):
            found = result.parameter(f'{joint}.{axis}')
            assert found.value is None or abs(found.value - truth) < 3.3 * found.std
    assert result.settings['sizes']['encoders'] == pytest.approx(3e-4 / 2.0**0.5, rel=0.4)
    # The calibrated arm holds what it can: 0.23 mm would be left of the fit, and 0.20 at the tip.
    assert result.fit[0].after < 1.8e-4
    motors = cell.motors
    monkeypatch.setattr(cell, 'motors', lambda q: motors(q) + 3e-4 * np.sin(q + phase))
    tip = tip_error(cell, result, item.posture.min(axis=0), item.posture.max(axis=0))
    assert tip < min(1.8e-4, 1.5 * result.settings['tip_rms'])
    # What it leaves is in the distances of held-out postures, too.
    assert result.validation[0].after > result.fit[0].after


def test_an_arm_of_another_type_is_refused(balls: Observations) -> None:
    wrong = Observations(tuple(
        replace(item, posture=item.posture[:, ::-1].copy()) for item in balls.sets))
    with pytest.raises(DataError, match='mm .median. from where they should be'):
        estimated(wrong)


def test_too_few_different_postures_are_refused(balls: Observations) -> None:
    first = balls.sets[0]
    few = replace(first, posture=first.posture[:8], reading=first.reading[:8])
    alike = replace(first, posture=np.tile(first.posture[:1], (len(first), 1)))
    for item in (few, alike):
        with pytest.raises(DataError, match='at least 34 are needed'):
            estimated(Observations((item,)))


def test_postures_that_hardly_differ_do_not_pass(
    balls: Observations, tracked: Observations
) -> None:
    near = [replace(item, posture=item.posture[0] + 2e-5 * np.arange(len(item))[:, None])
            for item in balls.sets[:2]]
    with pytest.raises(DataError, match='Use postures that differ more'):
        estimated(Observations(tuple(near)))
    # A single joint moves.
    g, (item,) = np.random.default_rng(0), tracked.sets
    q = np.tile(np.array(ARMS[CELL.name].home), (len(item), 1))
    q[:, 3] += g.uniform(-0.5, 0.5, len(q))
    seen = CELL._tip(q) + TRACKER * g.normal(size=(len(q), 3))
    result = estimated(Observations((replace(item, posture=CELL.motors(q), reading=seen),)))
    assert result.verdict is Verdict.FAIL
    assert 'use postures that differ more' in ' '.join(result.reasons)


def test_a_mean_error_above_the_limit_fails(balls: Observations) -> None:
    result = estimated(balls, max_held_out_error=5e-5)
    assert result.verdict is Verdict.FAIL
    assert 'max_held_out_error' in ' '.join(result.reasons)


# ------------------------------------------------------------------------------- files


def written(folder: Path, name: str, rows: np.ndarray, header: str = '') -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savetxt(path, rows, delimiter=',', header=header, comments='')
    return path


def test_files_are_sets_by_their_columns_and_lists_say_the_rest(tmp_path: Path) -> None:
    q = np.random.default_rng(0).uniform(CELL.low, CELL.high, (6, ROBOT.n))
    written(tmp_path, 'left/hole.csv', q)
    point = written(tmp_path, 'cell/points.csv', np.hstack((np.degrees(q), 1e3 * q[:, :3])),
                    'angles and points')
    listed = tmp_path / 'list.yaml'
    listed.write_text(
        'sets:\n- {file: cell/points.csv, placement: here, fixture: camera}\n'
        'angle_unit: deg\nlength_unit: mm\n', encoding='utf-8')
    one, other = read_observations([tmp_path / 'left', listed], ROBOT).sets
    assert (one.kind, one.name, one.placement, one.fixture, one.target) == (
        'socket', 'left/hole', 'left', 'left/hole', 'ball')
    assert (other.kind, other.placement, other.fixture, other.target) == (
        'point', 'here', 'camera', 'target')
    np.testing.assert_allclose(other.posture, q)
    np.testing.assert_allclose(other.reading, q[:, :3])
    assert other.lines == tuple(range(2, 8))
    (tmp_path / 'empty').mkdir()
    with pytest.raises(DataError, match='has no set'):
        read_observations([tmp_path / 'empty'], ROBOT)
    with pytest.raises(DataError, match='beyond its limits.*in degrees'):
        read_observations([point], ROBOT)


def images(folder: Path, **changes: str) -> Path:
    """Write images of a fixed camera, its calibration, and a list that names them."""
    item = Cell(SEED).camera('camera').sets[0]
    written(folder, 'images.csv', np.vstack([
        np.hstack((np.tile(q, (len(corners), 1)), corners))
        for q, corners in zip(item.posture, item.corners, strict=True)]))
    fx, fy, cx, cy, *distortion = LENS.tolist()
    (folder / 'ost.yaml').write_text(
        f'image_width: 1600\nimage_height: 1200\ncamera_name: cell\ncamera_matrix: {{rows: 3, '
        f'cols: 3, data: [{fx}, 0, {cx}, 0, {fy}, {cy}, 0, 0, 1]}}\n'
        f'distortion_model: {changes.get("model", "plumb_bob")}\n'
        f'distortion_coefficients: {{rows: 1, cols: 5, data: {distortion}}}\n', encoding='utf-8')
    path = folder / 'list.yaml'
    path.write_text(
        f'sets: [{{file: images.csv, kind: {changes.get("kind", "camera")}}}]\n'
        f'cameras: {{lens: {{file: ost.yaml{changes.get("std", "")}}}}}\n', encoding='utf-8')
    return path


def test_lines_of_one_posture_are_one_image(tmp_path: Path) -> None:
    (found,), (item,) = (data.sets for data in (
        read_observations([images(tmp_path)], ROBOT), Cell(SEED).camera('camera')))
    assert (found.kind, found.fixture, found.target) == ('camera', 'lens', 'board')
    assert found.lines[:3] == (1, 49, 97)
    np.testing.assert_allclose(found.posture, item.posture)
    np.testing.assert_allclose(found.corners, item.corners)
    np.testing.assert_allclose(found.reading, item.reading, atol=1e-6)


def test_a_lens_of_which_little_is_known_is_estimated(tmp_path: Path) -> None:
    result = estimated(read_observations([images(tmp_path)], ROBOT))
    assert result.verdict is Verdict.PASS, result.reasons
    focus = result.parameter('lens.fx')
    assert focus.unit == 'px'
    assert focus.state is State.IDENTIFIED
    assert focus.std < 3.0
    exact = estimated(read_observations([images(tmp_path, std=f', std: {[0.0] * 9}')], ROBOT))
    assert not any(item.name.startswith('lens') for item in exact.parameters)


def test_a_mistaken_corner_and_a_lens_that_is_not_stated_are_refused(tmp_path: Path) -> None:
    path = images(tmp_path)
    rows = np.loadtxt(tmp_path / 'images.csv', delimiter=',')
    rows[100, -2:] = rows[101, -2:]
    written(tmp_path, 'images.csv', rows)
    with pytest.raises(DataError, match='images, line 101: the corner is not where the others'):
        read_observations([path], ROBOT)
    in_line = rows[:48].copy()
    in_line[:, -4:-3] = 0.0
    in_line[:, -2] = 100.0
    written(tmp_path, 'images.csv', in_line)
    with pytest.raises(DataError, match='line 1: the corners of the image determine no pose'):
        read_observations([path], ROBOT)
    written(tmp_path, 'images.csv', rows[:99])
    with pytest.raises(DataError, match='line 97: the image has fewer than 4 corners'):
        read_observations([path], ROBOT)
    for changes, message in (
            ({'kind': 'camera, camera: wrist'}, "no camera 'wrist'.* it has lens"),
            ({'model': 'equidistant'}, "got 9 numbers and 'equidistant' with 5"),
            ({'std': ', std: [1.0]'}, 'std of the list has 1 numbers, expected 9: of fx, fy'),
            ({'kind': "''"}, "with kind 'camera' or 'camera_on_tool'")):
        with pytest.raises(FileFormatError, match=message):
            read_observations([images(tmp_path, **changes)], ROBOT)


def test_a_camera_that_was_moved_is_named(tmp_path: Path) -> None:
    data = Cell(SEED).camera('camera')
    (item,) = data.sets
    parts = [replace(item, name=f'part {part}', placement=f'part {part}',
                     posture=item.posture[part::4], reading=item.reading[part::4],
                     corners=item.corners[part::4], lines=item.lines[part::4])
             for part in range(4)]
    parts[2] = replace(parts[2], corners=tuple(
        corners + [0.0, 0.0, 0.0, 4.0, 0.0] for corners in parts[2].corners))
    result = estimated(replace(data, sets=tuple(parts)))
    assert result.verdict is Verdict.FAIL
    assert 'part 2' in ' '.join(result.reasons)


@pytest.mark.parametrize(('text', 'message'), [
    ('', 'no line of numbers'),
    ('0,0,0\n', '3 columns; expected the angles of'),
    ('header\n0,0,0\n0,x,0\n', 'line 3'),
    ('0,0,0\n0,0\n', 'line 2: 2 columns, expected 3'),
    ('0,nan,0\n', 'line 1 has a number that is not finite'),
])
def test_unreadable_lines_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / 'set.csv'
    path.write_text(text, encoding='utf-8')
    with pytest.raises(FileFormatError, match=message):
        read_observations([path], ROBOT)


def test_lists_that_contradict_themselves_are_refused(tmp_path: Path) -> None:
    q = np.tile(np.array(ARMS[CELL.name].home), (4, 1))
    written(tmp_path, 'a.csv', q)
    written(tmp_path, 'b.csv', np.hstack((q, np.zeros((4, 3)))))
    path = tmp_path / 'list.yaml'
    for text, message in (
            ('sets: [{file: a.csv, fixture: x}, {file: b.csv, fixture: x}]', "The fixture 'x'"),
            ('sets: [{file: a.csv}, {file: a.csv}]', 'Several sets are named'),
            ('sets: [{file: a.csv, fixture: x}]\n'
             'distances: [{between: [x, y], distance: 0.05, std: 0.0001}]', "'y' is no socket")):
        path.write_text(text, encoding='utf-8')
        with pytest.raises(DataError, match=message):
            read_observations([path], ROBOT)


@pytest.mark.parametrize(('camera', 'problem'), [
    ('{file: 3}', r"key 'cameras\[\.\.\.\]\.file': expected a string"),
    ('{file: a.yaml, name: b}', r"key 'cameras\[\.\.\.\]\.name' is unknown; expected only file")])
def test_a_wrong_value_of_a_camera_is_named(tmp_path: Path, camera: str, problem: str) -> None:
    path = tmp_path / 'sets.yaml'
    path.write_text(f'sets: []\ncameras: {{front: {camera}}}\n', encoding='utf-8')
    with pytest.raises(FileFormatError, match=problem):
        read_as(path, 'list of sets', ListOfSets)
