# SPDX-License-Identifier: Apache-2.0
"""The fit: recovers what is there, says what is not, and states its uncertainty honestly."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chi2
from support.arms import MOUNTS, scara
from support.compliance_cell import COMPLIANCE, READINGS, SIGMA, Cell, Tool, postures

from robocal_ros.compliance.fit import ComplianceFit, fit_compliance
from robocal_ros.compliance.measurement import (
    Displacements,
    Target,
    displacements,
    drift_columns,
)
from robocal_ros.compliance.model import bending_columns, predicted
from robocal_ros.compliance.parameters import ComplianceParameters
from robocal_ros.errors import DataError, ExcitationError
from robocal_ros.robot import Robot

WHERE = postures(24, seed=2)
STD = SIGMA * np.sqrt(2.0 / READINGS)
SEEN = [1, 2, 3, 4, 5]
TIMES = np.tile(np.linspace(-1.0, 1.0, 24)[:, None], 2)


def noisy(cell: Cell, where: np.ndarray = WHERE, seed: int = 0, **changes) -> Displacements:
    unloaded, loaded = cell.sets(where, seed, **changes)
    data = displacements(unloaded, loaded, cell.registration(), cell.robot(),
                         ComplianceParameters(target_xyz=cell.target.tolist()))
    return replace(data, held_out=np.zeros(len(data), dtype=bool))


def fitted(cell: Cell, data: Displacements) -> ComplianceFit:
    robot = cell.robot()
    return fit_compliance(robot, cell.known_load().on(robot), Target(cell.tool, cell.target), data)


@pytest.fixture(scope='module')
def exact() -> np.ndarray:
    """Displacements without noise, shape (24, 3)."""
    cell = Cell()
    return np.array([cell.target_at(q, True)[1] - cell.target_at(q, False)[1] for q in WHERE])


def drawn(exact: np.ndarray, seed: int, std: float = STD) -> Displacements:
    noise = std * np.random.default_rng(seed).standard_normal(exact.shape)
    covariance = np.tile(STD**2 * np.eye(3), (len(exact), 1, 1))
    cell = Cell()
    tool, place = map(np.array, zip(*(cell.target_at(q, False) for q in WHERE), strict=True))
    return Displacements(WHERE, WHERE, exact + noise, covariance,
                         np.zeros(len(exact), dtype=bool),
                         drift_columns(place - cell.registration().translation, tool, TIMES),
                         place)


def test_without_noise_the_truth_is_recovered(exact: np.ndarray) -> None:
    """Ten kilograms: also what is beyond the first order."""
    found = fitted(Cell(), drawn(exact, 0, std=0.0))
    np.testing.assert_allclose(found.value[SEEN], COMPLIANCE[SEEN], rtol=1e-6)
    assert found.kept.all()
    assert found.size['angles'] < 1e-6
    assert np.abs(found.drift).max() < 1e-6


def test_scatter_of_the_encoders_is_seen_and_counted(exact: np.ndarray) -> None:
    """Angles that scatter by 2e-5 rad move the target further than the tracker's noise."""
    total, stds, count = 0.0, [], 8
    for seed in range(count):
        cell = Cell(encoder_step=2e-5 * np.sqrt(12.0))
        found = fitted(cell, noisy(cell, seed=seed))
        stds.append(found.size['angles'])
        error = (found.value - COMPLIANCE)[SEEN]
        total += float(error @ np.linalg.solve(found.covariance[np.ix_(SEEN, SEEN)], error))
    # Both sets scatter; what the tracker's noise might be as well is left to it.
    assert np.mean(stds) == pytest.approx(2e-5 * np.sqrt(2.0), rel=0.3)
    freedom = count * len(SEEN)
    assert 0.5 * freedom < total < chi2.ppf(1.0 - 1e-4, freedom)


def test_motors_that_give_way_unseen_by_their_encoders_are_within_the_intervals() -> None:
    """Under load motors give way by up to half an encoder step, which acts like compliance."""
    cell, robot, errors = Cell(), Cell().robot(), []
    loaded = cell.known_load().on(robot)
    for seed in range(3):
        generator = np.random.default_rng([seed, 12])
        unloaded = [cell.see(q, False, generator, 5.0 * i) for i, q in enumerate(WHERE)]
        torque = loaded.gravity_torques(WHERE) - robot.gravity_torques(WHERE)
        unseen = -1.2e-5 * np.sign(torque) * generator.uniform(0.0, 1.0, WHERE.shape)
        held = [cell.see(q, True, generator, 1000.0 + 5.0 * i, true=q + give)
                for i, (q, give) in enumerate(zip(WHERE, unseen, strict=True))]
        data = displacements(unloaded, held, cell.registration(), robot,
                             ComplianceParameters(target_xyz=cell.target.tolist()))
        found = fit_compliance(
            robot, loaded, Target(cell.tool, cell.target),
            replace(data, held_out=np.zeros(len(data), dtype=bool)))
        errors.append((found.value - COMPLIANCE)[SEEN] / found.std()[SEEN])
    assert np.abs(errors).max() < 3.3


@pytest.mark.parametrize('size', [1e-4, 1e-2, 10.0])
def test_bad_tracker_points_do_no_harm(exact: np.ndarray, size: float) -> None:
    data = drawn(exact, 1)
    spoilt = data.value.copy()
    spoilt[[3, 17]] += size * np.array([[1.0, -1.0, 0.5], [0.0, 1.0, 1.0]])
    found = fitted(Cell(), replace(data, value=spoilt))
    clean = fitted(Cell(), data)
    assert np.flatnonzero(~found.kept).tolist() == [3, 17]
    # Without two of 24 postures: little changes, against the stated uncertainty.
    assert (np.abs(found.value - clean.value)[SEEN] < 1.5 * clean.std()[SEEN]).all()


class TestBlind:
    """What cannot be told is said, never numbered."""

    def test_an_axis_parallel_to_gravity(self, exact):
        found = fitted(Cell(), drawn(exact, 0))
        assert set(found.unobservable) == {0}
        assert 'parallel to gravity' in found.unobservable[0]
        assert found.value[0] == 0.0
        assert not found.covariance[0].any()

    def test_on_a_wall_of_thirty_degrees_the_first_joint_is_seen(self):
        found = fitted(Cell(mount='wall_30'), noisy(Cell(mount='wall_30')))
        assert not found.unobservable
        assert abs(found.value[0] - COMPLIANCE[0]) < 4.0 * found.std()[0]
        assert found.std()[0] < 0.05 * found.value[0]

    def test_a_load_centred_on_the_last_axis(self):
        cell = Cell(load=Tool(10.0, np.array([0.0, 0.0, 0.12]), np.zeros((3, 3))))
        found = fitted(cell, noisy(cell))
        assert set(found.unobservable) == {0, 5}
        np.testing.assert_allclose(found.value[[1, 2]], COMPLIANCE[[1, 2]], rtol=0.05)

    def test_a_target_on_the_last_axis(self):
        cell = Cell(target=np.array([0.0, 0.0, 0.05]))
        found = fitted(cell, noisy(cell))
        assert 'mount the target off the axis' in found.unobservable[5]

    def test_joints_whose_effects_are_alike(self):
        """One posture of parallel axes tells the sum alone."""
        robot = Robot(scara(), tool_frame='tip')
        loaded = Robot(scara(), tool_frame='tip').with_payload(
            Cell(load=Tool(2.0, np.array([0.05, 0.0, 0.0]), np.zeros((3, 3)))).known_load().body)
        where = np.tile([0.3, 0.4], (6, 1))
        target = Target('tip', np.array([0.0, 0.0, 0.0]))
        value = np.array([predicted(robot, loaded, target, q, q, np.array([1e-5, 2e-5]))[0]
                          for q in where])
        tool, place, _ = map(np.array, zip(*(
            robot.pose_and_jacobian(q, 'tip', target.xyz) for q in where), strict=True))
        # The whole displacement lies in one plane, and its two columns differ by direction.
        data = Displacements(where, where, value, np.tile(STD**2 * np.eye(3), (6, 1, 1)),
                             np.zeros(6, dtype=bool), drift_columns(place, tool, TIMES[:6]), place)
        found = fit_compliance(robot, loaded, target, data)
        np.testing.assert_allclose(found.value, [1e-5, 2e-5], rtol=1e-6)
        straight = replace(data, unloaded=np.zeros((6, 2)), loaded=np.zeros((6, 2)))
        with pytest.raises(ExcitationError, match='are not separable') as refusal:
            fit_compliance(robot, loaded, target, straight)
        assert set(refusal.value.unobservable) == {'shoulder', 'elbow'}

    def test_no_gravity_no_compliance(self, exact):
        described = Cell().robot()
        robot = Robot(described.urdf, gravity=(0.0, 0.0, 0.0))
        with pytest.raises(ExcitationError, match='no joint compliance observable'):
            fit_compliance(robot, Cell().known_load().on(robot), Target('tool0', Cell().target),
                           drawn(exact, 0))

    def test_too_few_postures(self, exact):
        with pytest.raises(DataError, match='1 postures give 3 measurements'):
            fitted(Cell(), drawn(exact, 0).rows(np.arange(24) < 1))


def test_compliances_are_not_negative(exact: np.ndarray) -> None:
    """A joint as stiff as rock: half of the seeds would make it negative."""
    stiff = COMPLIANCE.copy()
    stiff[3] = 0.0
    cell = Cell(compliance=stiff)
    value = np.array([cell.target_at(q, True)[1] - cell.target_at(q, False)[1] for q in WHERE])
    clipped = 0
    for seed in range(10):
        found = fitted(cell, drawn(value, seed))
        assert (found.value >= 0.0).all()
        clipped += 3 in found.clipped
        assert (np.abs(found.value - stiff)[SEEN] < 4.5 * found.std()[SEEN]).all()
    assert 1 <= clipped <= 9


def test_a_tracker_that_was_knocked_between_the_sets_is_noticed(exact: np.ndarray) -> None:
    knock = np.array([2e-4, -1e-4, 3e-4])
    data = drawn(exact, 4)
    found = fitted(Cell(), replace(data, value=data.value + knock))
    np.testing.assert_allclose((data.drift @ found.drift).mean(axis=0), knock, atol=2e-5)
    assert (np.abs(found.value - COMPLIANCE)[SEEN] < 4.5 * found.std()[SEEN]).all()
    assert (np.abs(found.correction - COMPLIANCE)[SEEN] < 4.5 * found.std()[SEEN]).all()
    assert np.abs(fitted(Cell(), data).drift).max() < 2e-5
    value = data.value + knock
    value[3] += np.array([0.0, 1e-3, 0.0])
    assert np.flatnonzero(~fitted(Cell(), replace(data, value=value)).kept).tolist() == [3]


def test_a_target_that_moved_on_its_mount_is_noticed(exact: np.ndarray) -> None:
    """0.3 mm, as when the load is mounted beside it: the intervals were four times as wide."""
    cell, data = Cell(), drawn(exact, 4)
    pushed = np.array([cell.target_at(q, False)[0] @ [2e-4, -1e-4, 2e-4] for q in WHERE])
    still, found = fitted(cell, data), fitted(cell, replace(data, value=data.value + pushed))
    np.testing.assert_allclose(data.drift @ found.drift, pushed, atol=3e-5)
    assert (np.abs(found.value - COMPLIANCE)[SEEN] < 3.3 * found.std()[SEEN]).all()
    assert (found.std() < 1.5 * still.std())[SEEN].all()


def bent(cell: Cell, where: np.ndarray, across: np.ndarray) -> np.ndarray:
    """Return what the load displaces by bending across the joints, shape (k, 3)."""
    robot, weight = cell.robot(), cell.load.mass * np.array(MOUNTS[cell.mount])
    moved = np.zeros((len(where), 3))
    for row, q in enumerate(where):
        place = robot.transform_frame_to_root(q, cell.tool)
        for joint, share in enumerate(across):
            axis, at, _ = robot.joint_axis(q, joint)
            moment = np.cross(place.act(cell.load.com) - at, weight)
            turn = share * (moment - axis * (axis @ moment))
            moved[row] += np.cross(turn, place.act(cell.target) - at)
    return moved


class TestBending:
    """Bearings that bend across their joints, by a share of the compliance about the axis."""

    @pytest.mark.parametrize('share', [0.05, 0.15, 0.3])
    def test_the_intervals_contain_the_joints_own_compliance(self, exact, share):
        across = share * np.sqrt(COMPLIANCE * np.exp(np.log(COMPLIANCE).mean()))
        across *= np.random.default_rng(3).uniform(0.5, 1.5, 6)
        data = drawn(exact + bent(Cell(), WHERE, across), 5)
        found = fitted(Cell(), data)
        assert (np.abs(found.value - COMPLIANCE)[SEEN] < 3.3 * found.std()[SEEN]).all()
        # What would be taken for compliance without it is far off.
        assert (np.abs(found.correction - COMPLIANCE) / COMPLIANCE)[SEEN].max() > 0.1
        told = found.bending > 3.0 * found.bending_std
        # Links may bend as well, so that little is not certain to be that of a bearing.
        assert told[:6].any() or share < 0.1
        assert not told[6:].any()
        assert (np.abs(found.bending[:6] - across) < 4.0 * found.bending_std[:6]).all()

    def test_what_alone_corrects_the_sag_removes_most_of_it(self, exact):
        across = 0.15 * COMPLIANCE
        data = drawn(exact + bent(Cell(), WHERE, across), 5)
        found = fitted(Cell(), data)
        robot, loaded = Cell().robot(), Cell().known_load().on(Cell().robot())
        left = {name: np.linalg.norm([
            value - predicted(robot, loaded, Target('tool0', Cell().target), q, q, c)[0]
            for q, value in zip(WHERE, data.value, strict=True)])
            for name, c in (('correction', found.correction), ('value', found.value))}
        assert left['correction'] < 0.25 * np.linalg.norm(data.value)
        assert left['correction'] < left['value']

    def test_columns_are_those_of_the_moments(self):
        robot, across = Cell().robot(), np.array([1e-6, 2e-6, 3e-6, 4e-6, 5e-6, 6e-6])
        loaded = Cell().known_load().on(robot)
        columns = np.array([bending_columns(robot, loaded, Target('tool0', Cell().target), q)[0]
                            for q in WHERE])
        np.testing.assert_allclose(columns[..., 0] @ across, bent(Cell(), WHERE, across),
                                   rtol=1e-9, atol=1e-15)

    def test_a_link_is_a_beam(self):
        """A cantilever that turns by c M ds/length yields c F L²/3 to a force at its end."""
        cell = Cell()
        robot, give = cell.robot(), np.array([6e-6, 5e-6, 4e-6, 3e-6, 2e-6, 1e-6])
        loaded, weight = cell.known_load().on(robot), cell.load.mass * np.array(MOUNTS[cell.mount])
        for q in WHERE[:4]:
            columns = bending_columns(robot, loaded, Target('tool0', cell.target), q)[1]
            tool = robot.transform_frame_to_root(q, 'tool0')
            load, target = tool.act(cell.load.com), tool.act(cell.target)
            ends = [robot.joint_axis(q, joint)[1] for joint in range(6)] + [tool.translation]
            moved = np.zeros(3)
            for joint, (one, other) in enumerate(pairwise(ends)):
                for share in (np.arange(2000) + 0.5) / 2000:
                    place = one + share * (other - one)
                    moved += give[joint] / 2000 * np.cross(
                        np.cross(load - place, weight), target - place)
            np.testing.assert_allclose(columns[..., 0] @ give, moved, rtol=1e-6, atol=1e-12)


class TestPoses:
    """Orientation measured too: three more rows for each posture."""

    def test_they_narrow_the_intervals_and_show_the_last_joint(self):
        cell = Cell(turn_sigma=2e-5)
        six, three = noisy(cell, seed=1, poses=True), noisy(cell, seed=1)
        assert six.value.shape == (24, 6)
        found, plain = fitted(cell, six), fitted(cell, three)
        assert (np.abs(found.value - COMPLIANCE)[SEEN] < 4.0 * found.std()[SEEN]).all()
        assert (found.std()[SEEN] < 1.1 * plain.std()[SEEN]).all()
        assert found.std()[5] < 0.3 * plain.std()[5]

    def test_a_target_on_the_axis_does_not_matter_then(self):
        cell = Cell(target=np.array([0.0, 0.0, 0.05]), turn_sigma=2e-5)
        found = fitted(cell, noisy(cell, poses=True))
        assert set(found.unobservable) == {0}
        assert abs(found.value[5] - COMPLIANCE[5]) < 4.0 * found.std()[5]
