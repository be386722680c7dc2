# SPDX-License-Identifier: Apache-2.0
"""External joint torques and their zeros, and the tool wrench that explains them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from support.arms import arm
from support.friction_results import identified_arm

from robocal_ros.errors import DataError
from robocal_ros.results.result import CalibrationResult, Efforts, Parameter, Verdict
from robocal_ros.robot.arm_model import ArmModel, on_leaning_base, urdf_model
from robocal_ros.robot.friction_law import SteadyFriction
from robocal_ros.robot.model import Robot
from robocal_ros.robot.setup import stored_zero, torque_zero
from robocal_ros.wrench.model import Instant, SensedArm, TareRecord
from robocal_ros.wrench.observer import WrenchObserver
from robocal_ros.wrench.parameters import WrenchParameters
from robocal_ros.wrench.tare import Zeroing
from robocal_ros.wrench.torque import FrictionInUse, JointTorques, ToolWrench, tool_wrench

LAW = SteadyFriction([4.0, 5.0], [7.0, 8.0], [0.05, 0.05], [6.0, 6.0], std=0.5)


def exact() -> np.ndarray:
    """Return the standard deviations of a model without errors."""
    return np.zeros(6)


def torques_of(robot: Robot, *known: str, **values: object) -> JointTorques:
    made = JointTorques(robot, WrenchParameters(**{
        'torque_thresholds': [5.0], 'friction_width': 1e-3, 'unidentified_friction': [20.0],
        **values}))
    made.use_friction(dict.fromkeys(known, LAW))
    return made


def test_external_torque_is_what_model_rotors_and_friction_leave() -> None:
    robot = arm('robocal').robot()
    made = torques_of(robot, 'joint_2', rotor_inertias=[0.5])
    q, v, a = np.full(6, 0.3), np.full(6, 0.2), np.linspace(1.0, 2.0, 6)
    external = np.array([6.0, -9.0, 4.0, 2.0, -1.5, 0.8])
    model = np.array(pin.rnea(robot.model, robot.data, q, v, a))
    taken = np.zeros(6)
    taken[1] = float(LAW.torque(0.2))
    np.testing.assert_allclose(
        made.update(model, v, a, model + 0.5 * a + taken - external, exact), external,
        atol=1e-9)
    # Many instants at once, by the same law.
    np.testing.assert_allclose(made.friction.torque(np.array([v, -v]), np.ones((2, 6)))[1],
                               made.friction.torque(-v, np.ones(6)))


def test_rotors_of_an_identified_arm_replace_those_of_the_parameter() -> None:
    robot = arm('robocal').robot()
    made = torques_of(robot, 'joint_2', rotor_inertias=[0.5])

    def accelerated() -> np.ndarray:
        still = np.zeros((1, 6))
        return made.external_torque(still, np.ones((1, 6)), np.ones((1, 6)), still)[0]

    by_parameter = accelerated()
    made.use_rotors(np.full(6, 0.7))
    np.testing.assert_allclose(accelerated() - by_parameter, 0.2)
    # The URDF, which drive gains that are newer than the identified arm bring back, has none.
    made.use_rotors(np.zeros(6))
    np.testing.assert_array_equal(accelerated(), by_parameter)


def test_thresholds_wait_where_friction_is_uncertain() -> None:
    robot = arm('robocal').robot()
    made = torques_of(robot, 'joint_2')
    friction = made.friction
    moving, rest = np.full(6, 0.3), np.zeros(6)
    assert friction.known.tolist() == [False, True, False, False, False, False]
    assert friction.uncertainty(rest, rest)[1] == pytest.approx(8.0 + 5.0 + 3.0 * LAW.std)
    assert friction.uncertainty(moving, rest)[1] == pytest.approx(3.0 * LAW.std)
    # Joint 1 has no law: its threshold is wider by unidentified_friction.
    assert friction.uncertainty(moving, rest)[0] == 20.0

    def colliding(joint: int, size: float, velocity: np.ndarray = rest) -> bool:
        torque = np.zeros(6)
        torque[joint] = -size
        made.update(np.zeros(6), velocity, rest, torque - friction.torque(-velocity, rest), exact)
        return bool(made.colliding[joint])

    assert not colliding(1, 17.9)
    assert colliding(1, 19.6)
    # It ends at 60 % of the threshold.
    assert colliding(1, 12.0)
    assert not colliding(1, 11.0)
    assert not colliding(0, 24.9)
    assert colliding(0, 25.1)


@pytest.mark.parametrize('exponent', [1.0, 0.6])
def test_a_law_sublinear_in_speed_is_compensated(exponent: float) -> None:
    law = SteadyFriction(np.array([2.0, 1.8]), np.array([3.0, 2.5]), np.array([0.05, 0.04]),
                         np.array([4.0, 5.0]), exponent=np.full(2, exponent))
    friction = FrictionInUse({'a': law}, ('a', 'b'), WrenchParameters())
    for v in (-0.7, -0.2, 0.3, 0.9):
        speed = np.array([v, v])
        expected = [float(law.torque(v)), 0.0]
        np.testing.assert_allclose(friction.torque(speed, 0.0 * speed), expected, rtol=1e-6)
        one = [friction.one_torque(joint, v, 0.0) for joint in range(2)]
        np.testing.assert_allclose(one, expected, rtol=1e-6)


class TestToolWrench:
    """From torques to the tool, as far as the posture shows it."""

    values = WrenchParameters(min_singular_value=0.02, damping=1e-4)
    wrench = np.array([20.0, -10.0, 5.0, 1.0, -2.0, 0.5])

    def told(self, posture: np.ndarray) -> ToolWrench:
        robot = arm('robocal').robot()
        jacobian = pin.computeFrameJacobian(
            robot.model, robot.data, posture, robot.frame_id('tool0'), pin.ReferenceFrame.LOCAL)
        return tool_wrench(jacobian.T @ self.wrench, jacobian, self.values, 0.04 * np.eye(6))

    def test_a_regular_posture_shows_all(self) -> None:
        told = self.told(np.array([0.2, 0.4, 0.6, 0.3, 0.9, 0.1]))
        np.testing.assert_allclose(told.wrench, self.wrench, rtol=1e-3, atol=1e-2)
        assert told.smallest > 0.02
        assert told.unobservable == ()
        assert np.isfinite(told.covariance).all()

    def test_a_singular_posture_masks_what_it_hides(self) -> None:
        # Elbow stretched: a pull along the arm is felt by no joint.
        told = self.told(np.array([0.0, 0.0, -np.pi / 2, 0.0, 0.5, 0.0]))
        assert told.smallest < 0.02
        assert told.unobservable
        hidden = np.isnan(told.wrench)
        assert hidden.any()
        assert not hidden.all()
        np.testing.assert_array_equal(np.isinf(np.diag(told.covariance)), hidden)
        np.testing.assert_allclose(told.wrench[~hidden], self.wrench[~hidden], rtol=0.02, atol=0.4)

    def test_nothing_is_zero_by_default(self) -> None:
        told = tool_wrench(np.zeros(3), np.eye(6)[:, :3], self.values, np.eye(3))
        assert np.isnan(told.wrench[3:]).all()
        np.testing.assert_array_equal(told.wrench[:3], 0.0)
        assert set(told.unobservable) == {'torque x', 'torque y', 'torque z'}


STILL = np.zeros(6)


class Bench:
    """An arm whose masses differ from the description, with zeros of 0.5 N·m per joint."""

    def __init__(self, seed: int = 3, **values: object) -> None:
        self.draw = np.random.default_rng(seed)
        self.robot = arm('robocal').robot()
        self.observer = WrenchObserver(self.robot, WrenchParameters(**{
            'unidentified_friction': [0.0], 'gain_std': 0.0, 'sensor_frames': [''], **values}))
        self.truth = SensedArm(self.robot, [])
        for joint in range(1, len(self.truth.model.inertias)):
            self.truth.model.inertias[joint].mass *= 1.0 + 0.03 * self.draw.normal()
        self.zero = self.draw.normal(0.0, 0.5, 6)
        self.zeroing = Zeroing(self.observer)

    def posture(self) -> np.ndarray:
        return self.draw.uniform(-1.5, 1.5, 6)

    def add(self, posture: np.ndarray | None = None, extra: np.ndarray | float = 0.0) -> None:
        """Add a rest with extra torques."""
        q = self.posture() if posture is None else posture
        self.truth.held(q, STILL, STILL)
        torque, none = self.truth.torque + self.zero + extra, np.zeros((0, 6))
        record = TareRecord()
        for number in range(50):
            record.add(Instant(10**9 + 10**6 * number, q, none, none, [],
                               torque + 0.05 * self.draw.normal(size=6)))
        self.zeroing.add(record.stacked(), self.observer.values)

    def rest(self, count: int) -> CalibrationResult:
        for _ in range(count):
            self.add()
        return self.zeroing.result(self.observer.values)


def zeros(bench: Bench, offset: np.ndarray) -> CalibrationResult:
    """Return a result with these zeros, whose standard deviations are 0.1 N·m."""
    found = bench.rest(1)
    return replace(found, covariance=0.01 * np.eye(6), parameters=tuple(
        replace(item, value=value, std=0.1)
        for item, value in zip(found.parameters, offset.tolist(), strict=True)))


def test_rests_tell_zeros_from_errors_of_the_links() -> None:
    force = []
    for seed in range(4):
        bench = Bench(seed)
        result = bench.rest(6)
        assert result.verdict is Verdict.PASS, result.reasons
        found = torque_zero(bench.robot, result)
        error = found.offset - bench.zero
        assert error @ np.linalg.solve(found.covariance, error) < 25.0
        jacobian = pin.computeFrameJacobian(
            bench.robot.model, bench.robot.data, np.array([0.2, 0.4, 0.6, 0.3, 0.9, 0.1]),
            bench.robot.frame_id('tool0'), pin.ReferenceFrame.LOCAL)
        force.append(np.linalg.norm(tool_wrench(
            error, jacobian, bench.observer.values, np.eye(6)).wrench[:3]))
    assert max(force) < 0.5


def test_a_base_out_of_level_is_no_zero() -> None:
    """Rests that hardly turn the first joint tell its zero no better than the base is level."""
    for seed in range(4):
        bench = Bench(seed)
        bench.truth.model.gravity.linear = np.array([0.06, -0.05, -9.81])
        for _ in range(8):
            bench.add(bench.posture() * [0.05, 1.0, 1.0, 1.0, 1.0, 1.0])
        result = bench.zeroing.result(bench.observer.values)
        assert result.verdict is Verdict.PASS, result.reasons
        found = torque_zero(bench.robot, result)
        assert np.abs((found.offset - bench.zero) / np.sqrt(
            np.diag(found.covariance))).max() < 3.29


def test_a_base_that_leans_as_an_identified_arm_found_it_is_no_external_torque() -> None:
    bench = Bench()
    leaning = on_leaning_base(bench.robot, np.radians([3.0, -2.0]))
    bench.truth.model.gravity = leaning.model.gravity
    bench.observer.use_arm(ArmModel(
        leaning, urdf_model(bench.robot, 0.03, np.zeros((6, 6))).covariance, 'test', True))
    result = bench.rest(6)
    assert result.verdict is Verdict.PASS, result.reasons
    found = torque_zero(bench.robot, result)
    assert np.abs((found.offset - bench.zero) / np.sqrt(np.diag(found.covariance))).max() < 3.29
    bench.observer.use_arm(None)
    np.testing.assert_array_equal(bench.observer.arm.model.gravity.linear, bench.robot.gravity)


def test_a_hose_that_belongs_to_an_identified_arm_is_no_external_torque() -> None:
    bench = Bench()
    sprung = bench.robot.copy()
    sprung.springs = np.array([[0.0, 0.0, 0.0, 4.0, 3.0, 0.0], np.full(6, 0.2)])
    bench.truth.use_links(sprung)
    bench.observer.use_arm(ArmModel(
        sprung, urdf_model(bench.robot, 0.03, np.zeros((6, 6))).covariance, 'test', True))
    found = torque_zero(bench.robot, bench.rest(6))
    assert np.abs((found.offset - bench.zero) / np.sqrt(np.diag(found.covariance))).max() < 3.29
    arm, q = bench.observer.arm, np.random.default_rng(1).uniform(-1.0, 1.0, (3, 6))
    held, many = arm.held_many(q, np.zeros_like(q), np.zeros_like(q))
    for row, posture in enumerate(q):
        np.testing.assert_allclose(arm.held(posture, STILL, STILL), held[row], atol=1e-9)
        np.testing.assert_allclose(arm.torque, many[row], atol=1e-9)
    bench.observer.use_arm(None)
    without = arm.held_many(q, np.zeros_like(q), np.zeros_like(q))[1]
    np.testing.assert_allclose(many - without, sprung.spring_torque(q), atol=1e-9)


def test_an_earlier_result_tells_the_drift() -> None:
    bench = Bench()
    before = replace(bench.rest(6), time=-99.0)
    after = Bench()
    after.zero = after.zero + 0.5
    after.rest(5)
    found = after.zeroing.result(after.observer.values, before)
    for name in after.robot.joint_names:
        drift = found.parameter(f'{name}.torque_zero_drift')
        assert drift.value == pytest.approx(0.5 / 100.0, abs=4.0 * drift.std)
    # From some of the same rests there is none.
    again = after.zeroing.result(after.observer.values, found)
    assert len(again.parameters) == 6


def test_few_postures_and_friction_that_holds_the_joints_are_not_enough() -> None:
    bench = Bench()
    few = bench.rest(2)
    assert few.verdict is not Verdict.PASS
    # The same posture again replaces the rest there.
    bench.add(bench.zeroing.rests[-1].posture)
    assert len(bench.zeroing.rests) == 2
    held = Bench(unidentified_friction=[5.0]).rest(5)
    assert held.verdict is Verdict.FAIL
    assert 'friction that may hold the joint' in ' '.join(held.reasons)


def test_a_touch_is_refused() -> None:
    bench = Bench()
    bench.rest(6)
    push = np.array([0.0, 6.0, 3.0, 0.0, 1.0, 0.0])
    with pytest.raises(DataError, match='differs by .* and the other postures explain'):
        bench.add(extra=push)
    assert len(bench.zeroing.rests) == 6
    with pytest.raises(DataError, match='contains no efforts'):
        bench.add(extra=np.nan)


def test_a_zero_that_differs_between_postures_fails() -> None:
    bench = Bench(torque_std=[0.1], torque_zero_std=[3.0])
    before = bench.zero.copy()
    for number in range(6):
        bench.zero = before + (-1.0)**number * 0.3 * np.eye(6)[3]
        result = bench.rest(1)
    assert result.verdict is Verdict.FAIL
    assert 'differs from what the other postures predict' in ' '.join(result.reasons)


def test_offsets_of_an_identified_arm_are_zeros_where_no_rest_told_them() -> None:
    bench = Bench()
    names = bench.robot.joint_names
    found = identified_arm('arm', scale=1.0)
    bench.observer.use_gains(found)
    np.testing.assert_array_equal(bench.observer.torques.zero, 0.0)
    offsets = np.linspace(-0.3, 0.3, 6)
    found = replace(found, parameters=(*found.parameters, *(
        Parameter(f'{name}.offset', 'N·m', value, 0.05)
        for name, value in zip(names, offsets.tolist(), strict=True))))
    bench.observer.use_gains(found)
    np.testing.assert_allclose(bench.observer.torques.zero, offsets)
    np.testing.assert_allclose(bench.observer.zero_covariance, 0.0025 * np.eye(6))
    bench.observer.use_torque_zero(zeros(bench, 2.0 * offsets))
    np.testing.assert_allclose(bench.observer.torques.zero, 2.0 * offsets)


def test_zeros_of_other_drive_gains_or_efforts_are_not_used() -> None:
    bench = Bench()
    gains, other = identified_arm('arm'), identified_arm('drive_gains', time=200.0)
    zero = bench.rest(4)
    with_gains = replace(zero, inputs=(gains.as_input(),))
    values = bench.observer.values

    def stored(result: CalibrationResult, used: CalibrationResult | None) -> bool:
        return stored_zero(bench.robot, values, lambda kind: result, used) is result

    assert stored(zero, None)
    assert stored(with_gains, gains)
    assert not stored(zero, gains)
    assert not stored(with_gains, other)
    assert not stored(with_gains, None)
    currents = replace(zero, efforts=Efforts('current', 'all', (2.0,) * 6))
    assert not stored(currents, None)


def external(observer: WrenchObserver, velocity: float, torque: np.ndarray) -> np.ndarray:
    """Return the external torques of an arm without weight, at a velocity of all joints."""
    return observer.torques.update(STILL, np.full(6, velocity), STILL, torque, lambda: STILL)


def test_a_zero_is_subtracted_once() -> None:
    bench, zero = Bench(), np.linspace(-0.8, 0.8, 6)
    observer, names = bench.observer, bench.robot.joint_names
    np.testing.assert_allclose(observer.zero_covariance, 0.25 * np.eye(6))
    known = zeros(bench, zero)
    observer.use_torque_zero(known)
    np.testing.assert_allclose(external(observer, 0.3, zero), 0.0, atol=1e-12)
    np.testing.assert_allclose(observer.zero_covariance, known.covariance)
    # A law of torques without zeros.
    driven = {v: float(LAW.torque(v)) + zero for v in (0.3, -0.3)}
    observer.use_friction(dict.fromkeys(names, replace(LAW, holds_zero=False)))
    for v, torque in driven.items():
        np.testing.assert_allclose(external(observer, v, torque), 0.0, atol=1e-9)
    # Laws whose difference between the directions contains the zeros.
    observer.use_friction({
        name: replace(LAW.shifted(own), holds_zero=True)
        for name, own in zip(names, zero, strict=True)})
    for used in (known, None):
        observer.use_torque_zero(used)
        for v, torque in driven.items():
            np.testing.assert_allclose(external(observer, v, torque), 0.0, atol=1e-9)
        assert not observer.zero_covariance.any()
    # At standstill, the middle of the torques at which such a law holds the joint.
    np.testing.assert_allclose(external(observer, 0.0, zero + LAW.difference), 0.0, atol=1e-12)
