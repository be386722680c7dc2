# SPDX-License-Identifier: Apache-2.0
"""From streams to end positions: averages, their covariance, drift, and the two sets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from support.compliance_cell import SIGMA, Cell, postures

from robocal_ros.compliance.measurement import (
    EndPosition,
    TargetMotion,
    average,
    check_drift,
    displacements,
    end_position,
    find_end_positions,
    pooled_covariances,
    split_by_load,
)
from robocal_ros.compliance.parameters import ComplianceParameters
from robocal_ros.errors import DataError
from robocal_ros.messages import JointSamples, TrackerSamples

NAMES = tuple('abc')
VALUES = ComplianceParameters(settle=0.5, dwell=2.0)
TOLERANCE = VALUES.match_tolerance


def readings(
    count: int = 20, seed: int | list[int] = 0, centre: tuple[float, ...] = (1.0, 2.0, 3.0),
    sigma: float = SIGMA, start: float = 0.0, rho: float = 0.0,
) -> TrackerSamples:
    """Return readings about a point, of noise that may be correlated."""
    white = np.random.default_rng(seed).standard_normal((count, 3))
    noise = white.copy()
    for row in range(1, count):
        noise[row] = rho * noise[row - 1] + np.sqrt(1.0 - rho**2) * white[row]
    return TrackerSamples('tracker', start + 0.1 * np.arange(count), np.array(centre)
                          + sigma * noise)


class TestAverage:
    """One dwell."""

    def test_mean_and_scatter(self):
        given = readings()
        found = average(np.zeros(3), given)
        np.testing.assert_allclose(found.point, given.point.mean(axis=0), rtol=1e-15)
        np.testing.assert_allclose(found.scatter / 19, np.cov(given.point.T), rtol=1e-9)
        assert (found.count, found.rejected) == (20, 0)

    def test_a_wild_reading_is_left_out(self):
        spoilt = readings().point.copy()
        spoilt[7] += [0.0, 0.004, 0.0]
        found = average(np.zeros(3), replace(readings(), point=spoilt))
        assert found.rejected == 1
        assert np.abs(found.point - [1.0, 2.0, 3.0]).max() < 4.0 * SIGMA / np.sqrt(19)

    def test_orientations_are_averaged_too(self):
        turn = Rotation.from_euler('xyz', [0.3, -0.2, 1.0])
        noise = Rotation.from_rotvec(1e-4 * np.random.default_rng(1).standard_normal((50, 3)))
        given = replace(readings(50), orientation=(noise * turn).as_quat())
        found = average(np.zeros(3), given)
        off = (Rotation.from_matrix(found.rotation) * turn.inv()).as_rotvec()
        assert np.abs(off).max() < 4.0 * 1e-4 / np.sqrt(50)
        np.testing.assert_allclose(np.diag(found.scatter)[3:] / 49, 1e-8, rtol=0.6)

    def test_one_reading_is_no_average(self):
        with pytest.raises(DataError, match='at least 2'):
            average(np.zeros(3), readings(1))


class TestCovariance:
    """The covariance of the means."""

    def means(self, rho: float) -> tuple[np.ndarray, np.ndarray]:
        found = [average(np.zeros(3), readings(seed=seed, rho=rho)) for seed in range(300)]
        return np.array([item.point for item in found]), pooled_covariances(found)

    @pytest.mark.parametrize(('rho', 'tolerance'), [(0.0, 0.12), (0.9, 0.3)])
    def test_is_that_of_the_means(self, rho, tolerance):
        means, covariance = self.means(rho)
        stated = np.trace(covariance.mean(axis=0))
        assert np.trace(np.cov(means.T)) == pytest.approx(stated, rel=tolerance)

    def test_a_dwell_that_scatters_far_more_counts_less(self):
        found = [average(np.zeros(3), readings(seed=seed)) for seed in range(20)]
        found.append(average(np.zeros(3), readings(seed=21, sigma=20.0 * SIGMA)))
        covariance = pooled_covariances(found)
        assert np.trace(covariance[20]) > 200.0 * np.trace(covariance[0])
        assert np.trace(covariance[0]) == pytest.approx(3.0 * SIGMA**2 / 20, rel=0.15)

    def test_no_scatter_at_all_is_still_invertible(self):
        found = [average(np.zeros(3), readings(sigma=0.0, seed=seed)) for seed in range(3)]
        assert np.linalg.eigvalsh(pooled_covariances(found)[0]).min() > 0.0


class TestRests:
    """Finding rests in a record."""

    def record(
        self, seen: tuple[tuple[float, float], ...] = ((0.0, 100.0),), rest: float = 3.0
    ) -> tuple[JointSamples, TrackerSamples]:
        """Rest in three postures, one second of moving between them."""
        time = np.arange(0.0, 3.0 * rest + 2.0, 0.01)
        begin = np.array([0.0, rest + 1.0, 2.0 * rest + 2.0])
        level = sum(np.clip(time - start + 1.0, 0.0, 1.0) for start in begin[1:])
        position = np.outer(level, [0.4, -0.2, 0.1])
        still = np.zeros_like(position)
        joints = JointSamples(NAMES, time, position, still, still)
        at = np.arange(0.0, time[-1], 0.1)
        keep = np.any([(at >= a) & (at <= b) for a, b in seen], axis=0)
        points = np.outer(np.interp(at, time, level), [1.0, 0.0, 0.0])
        return joints, TrackerSamples('tracker', at[keep], points[keep])

    def test_every_rest_becomes_one(self):
        found = find_end_positions(*self.record(), VALUES)
        np.testing.assert_allclose([item.point[0] for item in found], [0.0, 1.0, 2.0])
        np.testing.assert_allclose(found[2].posture, [0.8, -0.4, 0.2], atol=1e-12)
        assert [item.count for item in found] == [20, 20, 20]

    def test_rests_that_are_too_short_or_unseen_are_left_out(self):
        assert not find_end_positions(*self.record(rest=2.0), VALUES)
        found = find_end_positions(*self.record(((0.0, 3.0), (7.5, 20.0))), VALUES)
        np.testing.assert_allclose([item.point[0] for item in found], [0.0, 2.0])

    def test_after_dropouts_the_next_stretch_counts(self):
        found = find_end_positions(*self.record(((3.5, 100.0),), rest=6.0),
                                   replace(VALUES, min_readings=15))
        assert len(found) == 3
        assert 4.4 < found[0].time < 5.6

    def test_readings_that_are_still_on_their_way_are_no_part_of_what_is_told(self):
        joints, tracked = self.record()
        received = tracked.between(0.0, 2.25)
        found = find_end_positions(joints.rows(0, 295), received, VALUES)[0]
        assert (found.count, found.begin) == (18, 0.5)
        assert received.time[-1] < found.end < 2.3
        later = end_position(joints, tracked, found.begin, found.end)
        np.testing.assert_array_equal(later.point, found.point)
        np.testing.assert_array_equal(later.posture, found.posture)
        np.testing.assert_array_equal(later.scatter, found.scatter)
        assert (later.count, later.time) == (found.count, found.time)

class TestTrackerSamples:
    """Readings are checked."""

    def test_samples_are_checked(self):
        with pytest.raises(DataError, match='NaN'):
            TrackerSamples('t', np.arange(2.0), np.full((2, 3), np.nan))
        with pytest.raises(DataError, match='must increase'):
            TrackerSamples('t', np.zeros(2), np.zeros((2, 3)))
        with pytest.raises(DataError, match=r'point: expected shape \(3, 3\), got \(2, 3\)'):
            TrackerSamples('t', np.arange(3.0), np.zeros((2, 3)))


def drifted(positions: list[EndPosition], motion: TargetMotion) -> bool:
    try:
        check_drift(positions, VALUES, motion, 'unloaded')
    except DataError:
        return True
    return False


class TestSets:
    """Both sets, matched."""

    WHERE = postures(6)

    def both(self, **changes):
        return Cell().sets(self.WHERE, **changes)

    def join(self, unloaded, loaded, **changes):
        cell = Cell()
        return displacements(unloaded, loaded, cell.registration(), cell.robot(),
                             replace(VALUES, target_xyz=cell.target.tolist(), **changes))

    def test_displacements_are_in_base_axes_whatever_the_order(self):
        cell = Cell(sigma=0.0)
        unloaded, loaded = cell.sets(self.WHERE)
        data = self.join(unloaded, loaded[::-1])
        for row, q in enumerate(self.WHERE):
            expected = cell.target_at(q, True)[1] - cell.target_at(q, False)[1]
            np.testing.assert_allclose(data.value[row], expected, atol=1e-12)
        assert data.held_out.tolist() == [False] * 4 + [True, False]

    def test_one_posture_that_is_measured_without_the_load_alone_is_ignored(self):
        unloaded, loaded = self.both()
        data = self.join(unloaded, loaded[:2] + loaded[3:])
        np.testing.assert_array_equal(data.unloaded, self.WHERE[[0, 1, 3, 4, 5]])

    def test_fewer_loaded_than_unloaded(self):
        unloaded, loaded = self.both()
        with pytest.raises(DataError, match=r'6 postures .* only 4 .* missing: 2, 5\. Call mea'):
            self.join(unloaded, [loaded[i] for i in (0, 2, 3, 5)])

    def test_more_loaded_than_unloaded(self):
        unloaded, loaded = self.both()
        with pytest.raises(DataError, match='2 postures are measured with the load only'):
            self.join(unloaded[2:], loaded)

    def test_nothing_measured(self):
        unloaded, _ = self.both()
        with pytest.raises(DataError, match='loaded set is measured; call measure_loaded'):
            self.join(unloaded, [])

    def test_postures_that_do_not_match(self):
        unloaded, loaded = self.both()
        for i in (2, 4):
            off = loaded[i].posture + np.array([0.0, 0.0, 3e-4, 0.0, 0.0, 0.0])
            loaded[i] = replace(loaded[i], posture=off)
        with pytest.raises(DataError, match=r"missing: 3, 5\. Posture 3 does not match: joint "
                                            r"'joint_3' differs by 3.00e-04 rad"):
            self.join(unloaded, loaded, match_tolerance=1e-4)
        assert len(self.join(unloaded, loaded)) == 6

    def test_points_and_poses_do_not_mix(self):
        unloaded, _ = self.both()
        _, loaded = Cell(turn_sigma=1e-5).sets(self.WHERE, poses=True)
        with pytest.raises(DataError, match='one kind of tracker message'):
            self.join(unloaded, loaded)

    def with_visits(self, shift: float) -> tuple[list, list]:
        """Return both sets; in the loaded one the first posture is seen again, displaced."""
        cell, generator = Cell(), np.random.default_rng(3)
        unloaded, loaded = self.both()
        again = cell.see(self.WHERE[0], True, generator, 1100.0, shift=(shift, 0.0, 0.0))
        return unloaded, [*loaded, again]

    def test_a_tracker_that_drifted_is_refused(self):
        with pytest.raises(DataError, match=r'The tracker drifted: in the loaded set .* 1\d\d µm '
                                            r'off its first reading after 100 s'):
            self.join(*self.with_visits(1.2e-4))

    def test_drift_is_told_by_the_posture_visited_again(self):
        values, motion = replace(VALUES, max_drift=1e-4), Cell().motion
        drift = check_drift(self.with_visits(4e-5)[1], values, motion, 'loaded')
        assert drift == pytest.approx(4e-5, abs=2e-5)
        assert check_drift(self.both()[0], values, motion, 'unloaded') == 0.0

    @pytest.mark.parametrize(('shift', 'drifts'), [(0.0, False), (2e-4, True)])
    def test_joints_that_stick_elsewhere_are_not_called_drift(self, shift, drifts):
        cell, generator = Cell(), np.random.default_rng(4)
        unloaded, _ = self.both()
        elsewhere = self.WHERE[0] + np.array([1e-3, -2e-3, 1e-3, 2e-3, -1e-3, 0.0])
        again = cell.see(elsewhere, False, generator, 100.0, shift=(shift, 0.0, 0.0))
        assert np.linalg.norm(again.point - unloaded[0].point) > 1e-3
        assert drifted([*unloaded, again], cell.motion) == drifts

    @pytest.mark.parametrize(('shift', 'drifts'), [(0.0, 0), (1.2e-3, 10)])
    def test_correlated_noise_is_not_called_drift_and_drift_is(self, shift, drifts):
        """Noise of 0.1 mm that lasts for half a second moves the means by some 0.1 mm."""
        found = 0
        for seed in range(10):
            visits = [average(np.zeros(3), readings(
                40, [seed, row], (1.0 + (row == 11) * shift, 2.0, 3.0), 1e-4, 10.0 * row, 0.9))
                for row in range(12)]
            visits[1:11] = [replace(item, posture=np.full(3, row / 10))
                            for row, item in enumerate(visits[1:11], 1)]
            found += drifted(visits, lambda one, other: np.zeros(3))
        assert found == drifts


class TestSplit:
    """When the load was mounted, from the record alone."""

    WHERE = postures(5)

    def test_the_moment_is_found_with_references_on_both_sides(self):
        cell, generator = Cell(), np.random.default_rng(0)
        order = [0, 1, 2, 0, 3, 4, 0]
        record = [cell.see(self.WHERE[i], loaded, generator, 500.0 * loaded + 10.0 * k)
                  for loaded in (False, True) for k, i in enumerate(order)]
        unloaded, loaded = split_by_load(record, TOLERANCE, cell.motion)
        assert (len(unloaded), len(loaded)) == (7, 7)
        assert unloaded == record[:7]

    def test_joints_that_stick_elsewhere_do_not_hide_it(self):
        cell, generator = Cell(), np.random.default_rng(0)
        order = [0, 1, 2, 0, 3, 4, 0]
        off = [4e-3 if loaded else 0.0 for loaded in (False, True) for _ in order]
        off[3] = 4e-3
        record = [cell.see(self.WHERE[i] - [0.0, gap, 0.0, 0.0, 0.0, 0.0], loaded, generator,
                           500.0 * loaded + 10.0 * k)
                  for (loaded, k, i), gap in zip(
                      ((loaded, k, i) for loaded in (False, True) for k, i in enumerate(order)),
                      off, strict=True)]
        unloaded, loaded = split_by_load(record, TOLERANCE, cell.motion)
        assert (unloaded, loaded) == (record[:7], record[7:])

    def test_one_set_alone_is_refused(self):
        unloaded, _ = Cell().sets(self.WHERE)
        with pytest.raises(DataError, match='visited twice'):
            split_by_load(unloaded, TOLERANCE, Cell().motion)

    def test_a_record_that_mixes_the_sets_is_refused(self):
        unloaded, loaded = Cell().sets(self.WHERE[:2])
        mixed = [unloaded[0], loaded[0], unloaded[1], loaded[1]]
        mixed = [replace(item, time=float(i)) for i, item in enumerate(mixed)]
        with pytest.raises(DataError, match='the load was mounted is ambiguous'):
            split_by_load(mixed, TOLERANCE, Cell().motion)
