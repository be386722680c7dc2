# SPDX-License-Identifier: Apache-2.0
"""The leveling procedure on an arm that is wherever it was sent: what it verifies, and says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pinocchio as pin
import pytest
from support.compliance_cell import COMPLIANCE, Cell
from support.fake_arm import HOME, FakeArm, FakeReport, fake_arm
from support.leveling_rig import UP, planner

from robocal_ros.errors import DataError
from robocal_ros.leveling.model import Tool
from robocal_ros.leveling.parameters import LevelingParameters
from robocal_ros.leveling.plan import LevelPlan
from robocal_ros.leveling.procedure import (
    LevelCheck,
    LevelingProcedure,
    ToolImu,
    tilt_by_imu,
)
from robocal_ros.messages.samples import JointSamples
from robocal_ros.robot.sag import SagCorrection


@dataclass
class Record:
    """Joint states of the motion, then of the arm at rest."""

    arm: FakeArm
    bent: float = 0.0
    recording: bool = False
    newest: float = 0.01 * 19
    was_on: list[bool] = field(default_factory=list)

    def clear(self) -> None:
        self.was_on.append(self.recording)

    def samples(self) -> JointSamples:
        self.was_on.append(self.recording)
        rest = self.arm.at + self.bent * np.eye(self.arm.robot.n)[4]
        rows = np.concatenate((np.tile(HOME, (20, 1)), np.tile(rest, (10, 1))))
        rows = rows if np.any(self.arm.at != HOME) else np.tile(HOME, (30, 1))
        still = np.zeros_like(rows)
        return JointSamples(self.arm.robot.joint_names, 0.01 * np.arange(30), rows, still, still)


@dataclass
class Imu:
    """Sees gravity as it is, unless it is mounted askew."""

    arm: FakeArm
    askew: float = 0.0
    fault: str = ''
    rotation: np.ndarray = field(default_factory=lambda: np.eye(3))
    recording: bool = False

    @property
    def stream(self) -> Imu:
        return self

    def problem(self, patience: float) -> str:
        return self.fault

    def clear(self) -> None:
        """Nothing is kept."""

    def mean(self) -> np.ndarray:
        rotation = Tool(self.arm.robot).pose(self.arm.at)[0]
        turned = np.array([[1.0, 0.0, 0.0], [0.0, np.cos(self.askew), -np.sin(self.askew)],
                           [0.0, np.sin(self.askew), np.cos(self.askew)]])
        return turned @ rotation.T @ np.array([0.0, 0.0, 9.81])


class Rig:
    """The procedure, and all that it talks to."""

    def __init__(self, *, bent: float = 0.0, imu: dict[str, Any] | None = None,
                 sag: SagCorrection | None = None, **values: Any) -> None:
        self.arm = fake_arm()
        self.record = Record(self.arm, bent)
        self.imu = None if imu is None else Imu(self.arm, **imu)
        self.report = FakeReport()
        self.shown: list[LevelPlan] = []
        self.procedure = LevelingProcedure(
            self.arm, self.record, self.report, LevelingParameters(**values), UP,
            self.arm.robot.gravity, self.imu, lambda start, plan: self.shown.append(plan), sag)

    def tilt(self) -> float:
        axis = Tool(self.arm.robot).pose(self.arm.at)[0][:, 2]
        return float(np.degrees(np.arccos(min(1.0, abs(axis[2])))))


def test_the_tool_is_level_where_it_was() -> None:
    rig = Rig(imu={})
    done, message = asyncio.run(rig.procedure.level())
    assert done, message
    assert rig.tilt() < 0.01
    assert 'turned by 26.5°; residual tilt 0.000°' in message
    assert 'The IMU measures a tilt of 0.000°.' in message
    assert [phase for phase, _ in rig.arm.log] == ['moving', 'dwell']
    assert rig.record.was_on == [False, True]
    assert not rig.record.recording
    assert not rig.imu.recording
    assert len(rig.shown) == 1


def test_the_links_are_leveled_where_the_compliance_is_known() -> None:
    """The true flange of a compliant arm with 10 kg is level, which its encoders are not."""
    cell = Cell()

    def true_tilt(rig: Rig) -> float:
        axis = Tool(rig.arm.robot).pose(cell.angles(rig.arm.at, loaded=True))[0][:, 2]
        return float(np.degrees(np.arccos(min(1.0, abs(axis[2])))))

    rigid = Rig()
    assert asyncio.run(rigid.procedure.level())[0]
    assert true_tilt(rigid) > 0.04
    robot = cell.robot()
    compliance = dict(zip(robot.joint_names, COMPLIANCE, strict=True))
    compliant = Rig(sag=SagCorrection(robot, cell.known_load().on(robot), compliance))
    done, message = asyncio.run(compliant.procedure.level())
    assert done, message
    assert true_tilt(compliant) < 0.002
    assert compliant.tilt() > 0.04


def test_the_verification_takes_the_time_that_is_given() -> None:
    rig = Rig(verify_time=1.7)
    asyncio.run(rig.procedure.level())
    assert rig.arm.log[-1] == ('dwell', 1.7)


def test_a_level_tool_is_left_alone() -> None:
    rig = Rig(tolerance=0.48)
    done, message = asyncio.run(rig.procedure.level())
    assert done
    assert message.startswith('The tool is level already: tilt 26.5°')
    assert asyncio.run(rig.procedure.rehearse()) in message
    assert rig.arm.log == []


@pytest.mark.parametrize(('askew', 'verified'), [(0.002, True), (0.02, False)])
def test_an_imu_also_judges_a_tool_that_is_level_already(askew: float, verified: bool) -> None:
    rig = Rig(imu={'askew': askew})
    asyncio.run(rig.procedure.level())
    done, message = asyncio.run(rig.procedure.level())
    assert done == verified, message
    assert message.startswith('The tool is level already: tilt 0.000°')
    assert 'Nothing was moved. The IMU measures a tilt of ' in message
    assert ('Not verified: the IMU measures more than 0.498°' in message) != verified
    assert [phase for phase, _ in rig.arm.log] == ['moving', 'dwell', 'dwell']


@pytest.mark.parametrize(('given', 'words'), [
    ({'bent': 0.01}, 'Not verified: the residual tilt is above the tolerance of 0.050°'),
    ({'imu': {'askew': 0.02}},
     'Not verified: the IMU measures more than 0.498°: check the mounting'),
    ({'imu': {'askew': 0.002}, 'imu_tolerance': 0.001},
     'Not verified: the IMU measures more than 0.057°'),
])
def test_what_is_not_level_afterwards_is_no_success(given: dict[str, Any], words: str) -> None:
    done, message = asyncio.run(Rig(**given).procedure.level())
    assert not done
    assert words in message


def test_measuring_moves_nothing_and_a_rehearsal_is_one_motion() -> None:
    rig = Rig(imu={})
    measured = asyncio.run(rig.procedure.measure())
    assert measured == ('The tool is tilted by 26.5° (tolerance 0.050°). The IMU measures a tilt '
                        'of 26.5°. Nothing was moved.')
    assert [phase for phase, _ in rig.arm.log] == ['dwell']
    assert not rig.record.recording
    assert not rig.imu.recording
    rehearsed = asyncio.run(rig.procedure.rehearse())
    assert rehearsed.startswith('The tool is tilted by 26.5°; leveling would turn it by 26.5° in ')
    assert [phase for phase, _ in rig.arm.log] == ['dwell', 'planning']
    assert len(rig.shown) == 1


@pytest.mark.parametrize('action', ['level', 'measure'])
def test_a_silent_imu_is_refused_before_anything_moves(action: str) -> None:
    rig = Rig(imu={'fault': 'Nothing comes.'})
    with pytest.raises(DataError, match='Nothing comes'):
        asyncio.run(getattr(rig.procedure, action)())
    assert rig.arm.log == []


# ------------------------------------------------------------------------- verification

GRAVITY = np.array([0.0, 0.0, -9.81])


def turned(roll: float, pitch: float, yaw: float) -> np.ndarray:
    return np.array(pin.rpy.rpyToMatrix(roll, pitch, yaw))


class TestJointStates:
    @pytest.fixture
    def motion(self) -> tuple[LevelPlan, np.ndarray]:
        """A plan, and the postures of a perfect motion."""
        plan = planner('robocal').plan(HOME)
        return plan, plan.trajectory.sample(plan.trajectory.dense(0.002))[0]

    @pytest.mark.parametrize(('off', 'drift'), [(0.0, 0.0), (0.004, 0.0004)])
    def test_what_is_left_is_seen(
        self, motion: tuple[LevelPlan, np.ndarray], off: float, drift: float
    ) -> None:
        plan, way = motion
        rest = np.tile(plan.trajectory.goal + off * np.eye(6)[4], (20, 1))
        check = LevelCheck(plan.task, UP, way, rest)
        assert check.tilt == pytest.approx(off, rel=0.05, abs=1e-6)
        assert check.drift == pytest.approx(drift, rel=0.2, abs=1e-6)
        assert check.drift_in_motion == pytest.approx(
            check.drift, rel=1e-6, abs=0.0 if off else 2e-5)

    @pytest.mark.parametrize(('samples', 'seen'), [(2, False), (6, True)])
    def test_a_jerk_of_two_samples_is_the_encoder_and_a_longer_one_is_drift(
        self, motion: tuple[LevelPlan, np.ndarray], samples: int, seen: bool
    ) -> None:
        plan, jerked = motion
        jerked[:samples] += 1e-3
        check = LevelCheck(plan.task, UP, jerked, np.tile(plan.trajectory.goal, (20, 1)))
        assert (check.drift_in_motion > 3e-4) == seen


class TestImu:
    @pytest.mark.parametrize('mounting', [turned(0.0, 0.0, 0.0), turned(0.4, -1.2, 2.0)])
    @pytest.mark.parametrize('error', [0.0, 0.01, 0.2])
    def test_along_gravity_it_is_the_angle_of_what_is_felt(
        self, mounting: np.ndarray, error: float
    ) -> None:
        """The joint states say level, the tool is not."""
        said = turned(0.0, 0.0, 0.7)
        true = turned(error, 0.0, 0.0) @ said
        felt = mounting.T @ true.T @ -GRAVITY
        seen = tilt_by_imu(felt, mounting, said, GRAVITY, UP)
        assert seen == pytest.approx(error, abs=1e-9)

    def test_a_reference_off_gravity(self) -> None:
        """On a tilted base the tool is level with the base, and the IMU agrees."""
        axis = turned(0.3, 0.0, 0.0)[:, 2]
        said = turned(0.3, 0.0, 0.0) @ turned(0.0, 0.0, 1.0)
        felt = said.T @ -GRAVITY
        assert tilt_by_imu(felt, np.eye(3), said, GRAVITY, axis) < 1e-9
        wrong = (turned(0.02, 0.0, 0.0) @ said).T @ -GRAVITY
        assert tilt_by_imu(wrong, np.eye(3), said, GRAVITY, axis) == pytest.approx(0.02, rel=1e-6)

    def test_free_fall_is_no_rest(self) -> None:
        with pytest.raises(DataError, match='units and scale'):
            tilt_by_imu(np.array([0.0, 0.0, 1.0]), np.eye(3), np.eye(3), GRAVITY, UP)

    @pytest.mark.parametrize('gravity', [GRAVITY, GRAVITY[[2, 0, 1]]])
    def test_a_reading_along_gravity_has_the_wrong_sign(self, gravity: np.ndarray) -> None:
        """On a wall the turn between both has any axis: the tool passed as level."""
        with pytest.raises(DataError, match='Check the sign of its driver'):
            tilt_by_imu(gravity, np.eye(3), np.eye(3), gravity, UP)

    @pytest.mark.parametrize('phase', np.linspace(0.0, np.pi, 5))
    def test_a_vibration_of_half_a_period_too_many_averages_out(self, phase: float) -> None:
        """1 m/s² at 5 Hz for half a second tilted the plain mean by 0.7°."""
        time = np.arange(50) / 100.0
        rows = np.zeros((50, 7))
        rows[:, 1], rows[:, 3] = np.sin(10.0 * np.pi * time + phase), 9.81
        imu = ToolImu(np.eye(3), SimpleNamespace(samples=lambda: rows))
        assert tilt_by_imu(imu.mean(), np.eye(3), np.eye(3), GRAVITY, UP) < np.radians(0.15)
