# SPDX-License-Identifier: Apache-2.0
"""How a soft arm moves under a load: against the textbook's formula, and against rest itself."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from support.arms import arm
from support.compliance_cell import COMPLIANCE, Cell, Tool, postures
from support.friction_results import payload_result

from robocal_ros.compliance.measurement import Target
from robocal_ros.compliance.model import (
    Mounted,
    carried_on,
    check_arm,
    given_load,
    mounted_of,
    predicted,
)
from robocal_ros.compliance.parameters import ComplianceParameters
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.robot import Robot, SagCorrection, compliance_by_joint, quintic_path

WHERE = postures(12, seed=4)


def parts(cell: Cell) -> tuple[Robot, Robot, Target]:
    robot = cell.robot()
    return robot, cell.known_load().on(robot), Target(cell.tool, cell.target)


def by_formula(cell: Cell, q: np.ndarray) -> np.ndarray:
    """Return Σ a × (p − o) c Δτ with Δτ = a · ((p_load − o) × m g), joint by joint."""
    robot = cell.robot()
    tool = robot.transform_frame_to_root(q, cell.tool)
    p, p_load = tool.act(cell.target), tool.act(cell.load.com)
    weight = cell.load.mass * np.array(robot.gravity)
    columns = []
    for joint in range(robot.n):
        axis, origin, _ = robot.joint_axis(q, joint)
        columns.append(np.cross(axis, p - origin) * (axis @ np.cross(p_load - origin, weight)))
    return np.column_stack(columns)


@pytest.mark.parametrize('mount', ['upright', 'wall_30', 'ceiling'])
@pytest.mark.parametrize('name', ['robocal', 'ur5', 'panda'])
def test_the_regressor_is_the_textbooks(name: str, mount: str) -> None:
    cell = Cell(name, mount, load=Tool(3.0, np.array([0.05, 0.02, 0.1]), np.zeros((3, 3))))
    robot, loaded, target = parts(cell)
    for q in postures(4, name=name):
        np.testing.assert_allclose(
            predicted(robot, loaded, target, q, q, np.zeros(robot.n))[1], by_formula(cell, q),
            atol=1e-9)


def test_the_targets_jacobian_by_finite_differences() -> None:
    robot, _, target = parts(Cell())
    for q in WHERE[:3]:
        jacobian = robot.pose_and_jacobian(q, target.frame, target.xyz)[2]
        for joint in range(robot.n):
            step = np.zeros(robot.n)
            step[joint] = 1e-6
            ends = [robot.transform_frame_to_root(q + sign * step, target.frame).act(target.xyz)
                    for sign in (1.0, -1.0)]
            np.testing.assert_allclose(jacobian[:3, joint], (ends[0] - ends[1]) / 2e-6, atol=1e-8)


def test_a_small_sag_is_first_order() -> None:
    cell = Cell(compliance=1e-4 * COMPLIANCE)
    robot, loaded, target = parts(cell)
    for q in WHERE:
        found, slope = predicted(robot, loaded, target, q, q, cell.compliance)
        np.testing.assert_allclose(found, by_formula(cell, q) @ cell.compliance, rtol=1e-4,
                                   atol=1e-12)
        np.testing.assert_allclose(slope @ cell.compliance, found, rtol=1e-4, atol=1e-12)


def test_a_large_sag_is_that_of_the_arm_at_rest() -> None:
    """Ten kilograms: the first-order form is micrometres off, the prediction is not."""
    cell = Cell()
    robot, loaded, target = parts(cell)
    off = []
    for q in WHERE:
        expected = cell.target_at(q, True)[1] - cell.target_at(q, False)[1]
        found, _ = predicted(robot, loaded, target, q, q, COMPLIANCE)
        np.testing.assert_allclose(found, expected, atol=1e-10)
        off.append(np.linalg.norm(by_formula(cell, q) @ COMPLIANCE - expected))
    assert max(off) > 5e-7


def test_six_rows_hold_the_turn_too() -> None:
    cell = Cell()
    robot, loaded, target = parts(cell)
    for q in WHERE[:4]:
        found, slope = predicted(robot, loaded, target, q, q, COMPLIANCE, rows=6)
        (turn0, _), (turn1, _) = cell.target_at(q, False), cell.target_at(q, True)
        skew = turn1 @ turn0.T - np.eye(3)
        expected = np.array([skew[2, 1], skew[0, 2], skew[1, 0]])
        np.testing.assert_allclose(found[3:], expected, atol=2e-6)
        assert slope.shape == (6, 6)


def test_what_encoders_see_counts_by_kinematics() -> None:
    cell = Cell(compliance=np.zeros(6))
    robot, loaded, target = parts(cell)
    moved = WHERE[0] + 1e-5 * np.arange(6)
    found, _ = predicted(robot, loaded, target, WHERE[0], moved, np.zeros(6))
    expected = cell.target_at(moved, True)[1] - cell.target_at(WHERE[0], False)[1]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_slope_by_finite_differences() -> None:
    cell = Cell()
    robot, loaded, target = parts(cell)
    q = WHERE[5]
    _, slope = predicted(robot, loaded, target, q, q, COMPLIANCE)
    for joint in range(robot.n):
        step = np.zeros(robot.n)
        step[joint] = 1e-3 * COMPLIANCE[joint]
        ends = [predicted(robot, loaded, target, q, q, COMPLIANCE + sign * step)[0]
                for sign in (1.0, -1.0)]
        # To first order: what a joint's sag does to the others' torques is left out.
        change = ends[0] - ends[1]
        error = np.linalg.norm(slope[:, joint] * 2.0 * step[joint] - change)
        assert error < 5e-3 * np.linalg.norm(change) + 1e-13


def test_a_prismatic_joint_is_refused_by_name() -> None:
    urdf = arm('robocal').urdf.replace(
        '<joint name="joint_3" type="revolute">', '<joint name="joint_3" type="prismatic">')
    with pytest.raises(ConfigurationError, match="Joint 'joint_3' is prismatic"):
        check_arm(Robot(urdf), ComplianceParameters())


@pytest.mark.parametrize(('mass', 'com'), [(0.0, (0, 0, 0)), (-2.0, (0, 0, 0)),
                                           (float('nan'), (0, 0, 0)),
                                           (2.0, (0, float('inf'), 0))])
def test_a_load_that_is_none_is_refused(mass: float, com: tuple[float, ...]) -> None:
    with pytest.raises(DataError, match='load'):
        given_load(mass, com, 'tool0')


class TestMounted:
    """The payload result is the tool that stays mounted, the load, or neither."""

    @staticmethod
    def mounted(payload: float | None, **values: Any) -> Mounted:
        result = None if payload is None else payload_result(payload)
        return mounted_of(Cell().robot(), ComplianceParameters(**values), result)

    @pytest.mark.parametrize(('payload', 'values', 'unloaded', 'loaded', 'note'), [
        (1.1, {'load_mass': 5.0}, 1.1, 6.1, 'is the tool'),
        (1.1, {'load_mass': 5.0, 'payload_is': 'tool'}, 1.1, 6.1, 'is the tool'),
        (5.0, {'load_mass': 5.0, 'payload_is': 'tool'}, 5.0, 10.0, 'is the tool'),
        (5.0, {}, 0.0, 5.0, 'is the load'),
        (5.0, {'payload_is': 'load'}, 0.0, 5.0, 'is the load'),
        (1.1, {'load_mass': 5.0, 'payload_is': 'unused'}, 0.0, 5.0, 'is not used'),
        (None, {'load_mass': 5.0}, 0.0, 5.0, 'no tool is assumed'),
        (None, {'load_mass': 5.0, 'payload_is': 'unused'}, 0.0, 5.0, 'no tool is assumed'),
    ])
    def test_masses_of_both_sets_add_up(self, payload, values, unloaded, loaded, note):
        mounted, robot = self.mounted(payload, **values), Cell().robot()
        bare = sum(inertia.mass for inertia in robot.model.inertias)
        for is_loaded, mass in ((False, unloaded), (True, loaded)):
            arm_there = mounted.on(robot, loaded=is_loaded)
            assert sum(item.mass for item in arm_there.model.inertias) - bare == pytest.approx(
                mass)
        assert note in mounted.note
        assert ('a tool' in mounted.described(loaded=True)) == (unloaded > 0.0)
        assert mounted.described(loaded=False) != mounted.described(loaded=True)

    @pytest.mark.parametrize(('payload', 'values', 'words'), [
        (4.9, {'load_mass': 5.0}, "may be the same body. Set payload_is to 'tool'"),
        (None, {'load_mass': 5.0, 'payload_is': 'tool'}, 'Identify the tool'),
        (None, {'payload_is': 'load'}, 'Identify the load'),
    ])
    def test_what_may_be_either_is_asked_for(self, payload, values, words):
        with pytest.raises(DataError, match=words):
            self.mounted(payload, **values)

    @pytest.mark.parametrize(('payload', 'values'), [
        (None, {}), (1.1, {'payload_is': 'tool'}), (1.1, {'payload_is': 'unused'})])
    def test_an_unknown_load_is_refused_where_it_is_needed(self, payload, values):
        mounted, robot = self.mounted(payload, **values), Cell().robot()
        mounted.on(robot, loaded=False)
        with pytest.raises(DataError, match='The mass of the load is unknown: load_mass is 0'):
            mounted.on(robot, loaded=True)

    def test_two_statements_about_the_load_are_refused(self):
        with pytest.raises(ConfigurationError, match="payload_is is 'load', but load_mass is 5"):
            ComplianceParameters(payload_is='load', load_mass=5.0).check()

    @pytest.mark.parametrize(('carried', 'mass', 'words'), [
        ('auto', 1.1, 'payload result'), ('payload', 1.1, 'payload result'),
        ('load', 6.1, 'tool of 1.1 kg .* and a load of 5 kg'), ('none', 0.0, 'no payload')])
    def test_deflection_assumes_what_carried_names(self, carried, mass, words):
        robot = Cell().robot()
        carrying, what = carried_on(
            robot, ComplianceParameters(load_mass=5.0, carried=carried), payload_result(1.1))
        bare = sum(inertia.mass for inertia in robot.model.inertias)
        assert sum(item.mass for item in carrying.model.inertias) - bare == pytest.approx(mass)
        assert re.search(words, what)

    @pytest.mark.parametrize('role', ['tool', 'load'])
    def test_a_payload_that_is_wanted_may_be_read_after_the_parameters(self, role):
        robot = Cell().robot()
        values = ComplianceParameters(payload_is=role)
        assert carried_on(robot, values, None) == (robot, 'no payload')
        with pytest.raises(DataError, match=f"payload_is is '{role}', but there is no payload"):
            mounted_of(robot, values, None)


class TestCorrection:
    """Known compliance at work."""

    def correction(self, cell: Cell) -> SagCorrection:
        robot, loaded, _ = parts(cell)
        return SagCorrection(robot, loaded, dict(zip(robot.joint_names, COMPLIANCE, strict=True)))

    def tool_at(self, cell: Cell, encoders: np.ndarray) -> np.ndarray:
        return Cell(target=np.zeros(3), compliance=cell.compliance).target_at(encoders, True)[1]

    def test_sag_is_that_of_the_arm_at_rest(self):
        cell = Cell()
        for q in WHERE:
            rigid = cell.robot().transform_frame_to_root(q, cell.tool).translation
            np.testing.assert_allclose(self.correction(cell).sag(q),
                                       self.tool_at(cell, q) - rigid, atol=1e-10)

    def test_sag_of_the_payload_alone_is_the_difference(self):
        cell = Cell()
        q = WHERE[2]
        part = self.correction(cell).sag(q, payload_alone=True)
        both = Cell(target=np.zeros(3))
        moved = both.target_at(q, True)[1] - both.target_at(q, False)[1]
        # The difference of two rests and the rest under the difference, to second order.
        np.testing.assert_allclose(part, moved, atol=5e-6)

    def test_the_corrected_tool_ends_where_the_rigid_model_says(self):
        cell = Cell()
        robot = cell.robot()
        motion = quintic_path(np.stack((WHERE[0], WHERE[1])), np.full(6, 1.0), np.full(6, 2.0))
        found = self.correction(cell).corrected(motion)
        np.testing.assert_array_equal(found.time, motion.time)
        for row in range(len(motion.time)):
            wanted = robot.transform_frame_to_root(motion.position[row], cell.tool)
            reached = self.tool_at(cell, found.position[row])
            uncorrected = self.tool_at(cell, motion.position[row])
            assert np.linalg.norm(reached - wanted.translation) < 1e-9
            assert np.linalg.norm(uncorrected - wanted.translation) > 1e-4

    def test_velocities_and_accelerations_belong_to_the_corrected_way(self):
        cell = Cell()
        motion = quintic_path(np.stack((WHERE[0], WHERE[1])), np.full(6, 1.0), np.full(6, 2.0))
        time = np.linspace(0.0, motion.duration, 400)
        position, velocity, acceleration = motion.sample(time)
        fine = type(motion)(time, position, velocity, acceleration)
        found = self.correction(cell).corrected(fine)
        added = found.position - position
        np.testing.assert_allclose((found.velocity - velocity)[1:-1],
                                   np.gradient(added, time, axis=0)[1:-1], atol=2e-6)
        slope = np.gradient(np.gradient(added, time, axis=0), time, axis=0)
        np.testing.assert_allclose((found.acceleration - acceleration)[3:-3], slope[3:-3],
                                   atol=2e-5)

    def test_a_joint_without_a_number_counts_as_rigid(self):
        robot, loaded, _ = parts(Cell())
        nothing = SagCorrection(robot, loaded, {})
        np.testing.assert_allclose(nothing.sag(WHERE[0]), 0.0, atol=1e-15)

    def test_another_kind_of_result_is_refused(self):
        from support.friction_results import friction_result

        with pytest.raises(DataError, match="kind 'compliance', got 'friction'"):
            compliance_by_joint(friction_result())
