# SPDX-License-Identifier: Apache-2.0
"""The friction procedure on an arm with known friction: rounds, failed runs, and going on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from support.fake_arm import HOME, FakeArm, FakeReport, fake_arm
from support.friction_cell import WRIST, Truth

from robocal_ros.arm.protocols import (
    Keep,
    MotionFailedError,
    MotionOutcome,
    MotionStatus,
    keep_nothing,
)
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.friction.fit import FrictionFit
from robocal_ros.friction.parameters import FrictionParameters
from robocal_ros.friction.procedure import FrictionProcedure, KeptJoints
from robocal_ros.messages.samples import JointSamples
from robocal_ros.robot import urdf_model
from robocal_ros.robot.trajectories import Lspb, Trajectory

STEP = 0.005
FIRST, SECOND = 'joint_6', 'joint_5'
SIMPLE = Truth(static=(0.70, 0.64))
"""Friction without a rise towards low speeds, which few speeds identify."""
VALUES = FrictionParameters(
    speeds=[0.05, 0.1, 0.2, 0.4], model='coulomb_viscous', max_cruise=2.0, max_rounds=1)


@dataclass
class Record:
    """Joint states at even stamps."""

    names: tuple[str, ...]
    rows: list[np.ndarray] = field(default_factory=list)
    discarded: list[int] = field(default_factory=list)
    in_worker: bool = False

    @property
    def recorded(self) -> int:
        return len(self.rows)

    @property
    def newest(self) -> float:
        return STEP * (len(self.rows) - 1)

    def samples(self, after: float = -np.inf) -> JointSamples:
        assert not self.in_worker, 'a worker thread must not read what the node is recording'
        columns = np.array(self.rows).reshape(len(self.rows), 3, len(self.names))
        time = STEP * np.arange(len(self.rows))
        return JointSamples(self.names, time[time > after], *(
            columns[time > after, number] for number in range(3)))

    def discard_after(self, stamp: float) -> None:
        keep = int(np.sum(STEP * np.arange(len(self.rows)) <= stamp))
        self.discarded.append(len(self.rows) - keep)
        del self.rows[keep:]


@dataclass
class DrivenArm(FakeArm):
    """Records the torque that friction and rigid bodies take, and fails on request."""

    truth: Truth = SIMPLE
    record: Record = field(default_factory=lambda: Record(()))
    outcomes: dict[int, MotionOutcome] = field(default_factory=dict)
    runs: int = 0

    def _take(self, q: np.ndarray, v: np.ndarray, a: np.ndarray) -> None:
        noise = 0.02 * np.random.default_rng(len(self.record.rows)).standard_normal(q.shape)
        rigid = [self.robot.inverse_dynamics(*row) for row in zip(q, v, a, strict=True)]
        torque = np.reshape(rigid, q.shape) + self.truth.torque(v) + noise
        self.record.rows.extend(np.stack((q, v, torque), axis=1))

    async def compute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.record.in_worker = True
        try:
            return await super().compute(function, *args, **kwargs)
        finally:
            self.record.in_worker = False

    async def dwell(self, duration: float, watch: Any = None) -> None:
        still = np.zeros((int(duration / STEP), self.robot.n))
        self._take(self.at + still, still, still)

    async def move(self, trajectory: Trajectory, **shown: Any) -> None:
        await super().move(trajectory, **shown)
        self._take(*trajectory.sample(np.arange(0.0, trajectory.duration, STEP)))
        if shown['phase'] == 'running':
            self.runs += 1
            if self.runs in self.outcomes:
                self.outcomes[self.runs].raise_unless_done()


def failing(status: MotionStatus, *runs: int, held: bool = True) -> dict[int, MotionOutcome]:
    return dict.fromkeys(runs, MotionOutcome(status, 'It ended.', held))


@dataclass
class Cell:
    """A procedure on a driven arm."""

    arm: DrivenArm
    procedure: FrictionProcedure
    shown: list[FrictionFit]

    def measure(self, values: FrictionParameters = VALUES) -> None:
        asyncio.run(self.procedure.measure(values))


def cell(
    wanted: Sequence[str] = (FIRST, SECOND), given: Mapping[str, Sequence[Lspb]] = {},
    keep: Keep = keep_nothing, **arm: Any
) -> Cell:
    plain = fake_arm()
    driven = DrivenArm(plain.robot, plain.checker, record=Record(plain.robot.joint_names), **arm)
    shown: list[FrictionFit] = []
    return Cell(driven, FrictionProcedure(
        driven, driven.record, FakeReport(), wanted, given,
        lambda: (driven.robot.copy(), [], urdf_model(
            driven.robot, 0.05, np.zeros(2 * (driven.robot.n,)))), shown.append,
        keep), shown)


def phases(made: Cell) -> list[str]:
    return [phase for phase, _ in made.arm.log]


def test_joint_by_joint_is_run_both_ways_and_the_arm_comes_home() -> None:
    made = cell()
    made.measure()
    assert made.procedure.measured == (FIRST, SECOND)
    assert [found.joint for found in made.shown] == [FIRST, SECOND]
    for found in made.shown:
        assert found.passed
        np.testing.assert_allclose(found.law().coulomb, SIMPLE.coulomb, rtol=0.05)
    assert phases(made) == ['moving', 'running'] * 16 + ['moving']
    np.testing.assert_array_equal(made.arm.at, HOME)
    shares = [share for _, share in made.arm.log]
    assert shares == sorted(shares)
    assert shares[-1] == (92.0, 98.0)
    assert made.procedure.problems == []


def test_a_run_that_the_controller_ended_is_discarded_and_the_others_go_on() -> None:
    made = cell([FIRST], outcomes=failing(MotionStatus.ABORTED, 3))
    made.measure()
    (found,) = made.shown
    assert found.passed
    assert len(found.points) == 7
    assert len(made.arm.record.discarded) == 1
    assert made.procedure.problems == ['Running joint_6 at +0.2 rad/s failed: It ended.']


@pytest.mark.parametrize(('status', 'runs'), [
    (MotionStatus.ABORTED, (1, 2, 3, 4)), (MotionStatus.FOREIGN_MOTION, (1,))])
def test_a_joint_whose_runs_fail_is_left_alone_and_the_next_one_is_run(
    status: MotionStatus, runs: tuple[int, ...]
) -> None:
    made = cell(outcomes=failing(status, *runs))
    made.measure()
    assert [item.passed for item in made.shown] == [False, True]
    assert made.arm.runs == len(runs) + 8
    assert 'Joint joint_6 is skipped' in made.procedure.problems[-1]


def test_an_arm_that_is_not_held_ends_it_and_the_next_call_goes_on() -> None:
    made = cell(outcomes=failing(MotionStatus.ABORTED, 10, held=False))
    with pytest.raises(MotionFailedError, match='not seen to come to rest'):
        made.measure()
    assert made.procedure.measured == (FIRST,)
    assert made.procedure.under_way
    made.measure()
    assert made.procedure.measured == (FIRST, SECOND)
    assert made.arm.runs == 10 + 8
    assert not made.procedure.under_way


def test_another_start_of_the_node_goes_on_with_the_next_joint_about_the_same_posture() -> None:
    kept: list[tuple[KeptJoints, str]] = []

    async def keep(state: KeptJoints, parts: str) -> None:
        kept.append((state, parts))

    first, second = cell(keep=keep), cell()
    first.measure()
    assert [(item.measured, parts) for item, parts in kept] == [
        ((FIRST,), '1 of 2 joints'), ((FIRST, SECOND), '2 of 2 joints')]
    second.arm.at = HOME + 0.1
    second.procedure.resume(kept[0][0])
    assert second.procedure.under_way
    second.measure()
    assert second.procedure.measured == (FIRST, SECOND)
    assert [found.joint for found in second.shown] == [SECOND]
    assert second.arm.runs == 8
    np.testing.assert_array_equal(second.arm.at, HOME)
    second.procedure.clear()
    assert second.procedure.measured == ()


def test_a_law_that_is_not_known_yet_is_looked_for_at_lower_speeds() -> None:
    made = cell([FIRST], truth=WRIST)
    made.measure(FrictionParameters(speeds=[0.08, 0.2, 0.5], max_cruise=4.0, max_rounds=2))
    assert len(made.shown) == 2
    assert made.shown[0].stribeck_unidentified
    speeds = np.abs([p.speed for p in made.shown[1].points])
    assert speeds.min() == pytest.approx(0.01, rel=0.05)
    assert not made.shown[1].stribeck_unidentified


def test_a_law_that_fits_over_the_planned_speeds_needs_no_second_round() -> None:
    made = cell([FIRST], truth=WRIST)
    made.measure(FrictionParameters(
        min_speed=0.08, max_speed=0.5, speed_count=3, max_cruise=4.0, max_rounds=2))
    assert len(made.shown) == 1
    assert made.shown[0].passed
    assert made.shown[0].stribeck_unidentified


def test_given_runs_come_first_from_where_the_other_joints_are() -> None:
    segments = [Lspb.with_acceleration(*ends, speed, 2.0)
                for speed in (0.1, 0.2, 0.4) for ends in ((-0.4, 0.4), (0.4, -0.4))]
    made = cell([FIRST], {FIRST: segments})
    made.measure()
    assert made.arm.runs == 6
    (found,) = made.shown
    assert sorted(np.abs([p.speed for p in found.points]).round(2)) == [
        0.1, 0.1, 0.2, 0.2, 0.4, 0.4]


def test_given_runs_that_would_be_too_slow_are_refused_before_the_arm_moves() -> None:
    segment = Lspb.with_acceleration(-0.02, 0.02, 0.005, 2.0)
    made = cell([FIRST], {FIRST: [segment]})
    slow = replace(VALUES, speeds=[0.0], speed_scale=0.15)
    with pytest.raises(ConfigurationError, match=r'0\.005 rad/s at speed_scale 0\.15 .*moved'):
        made.measure(slow)
    with pytest.raises(ConfigurationError, match='Raise speed_scale'):
        cell([FIRST]).measure(replace(slow, speeds=[0.2, 0.004]))
    assert not made.arm.log


def test_given_speeds_are_run_at_the_speed_scale() -> None:
    made = cell([FIRST])
    made.measure(replace(VALUES, speed_scale=0.5))
    (found,) = made.shown
    assert sorted(np.abs([p.speed for p in found.points]).round(3))[::2] == [0.025, 0.05, 0.1, 0.2]


def test_an_effort_that_says_nothing_ends_it_after_one_run() -> None:
    made = cell([FIRST])
    made.arm._take = lambda q, v, a: made.arm.record.rows.extend(np.stack((q, v, 0.0 * q), axis=1))
    with pytest.raises(DataError, match="'joint_6' is zero"):
        made.measure()
    assert made.arm.runs == 1


@pytest.mark.parametrize('size', [2e-3, 6e-3])
def test_reversals_have_the_size_that_is_given(size: float) -> None:
    made = cell([FIRST])
    joint, rows = made.arm.robot.index(FIRST), made.arm.record.rows
    turned: list[float] = []
    move = made.arm.move

    async def noted(trajectory: Trajectory, **shown: Any) -> None:
        begin = len(rows)
        await move(trajectory, **shown)
        if shown['phase'] == 'reversing':
            turned.append(float(np.ptp([row[0][joint] for row in rows[begin:]])))

    made.arm.move = noted  # type: ignore[method-assign]
    made.measure(replace(VALUES, model='lugre_dynamic', reversal_size=size))
    assert turned == [pytest.approx(2.0 * size, rel=0.05)]
