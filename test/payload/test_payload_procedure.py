# SPDX-License-Identifier: Apache-2.0
"""The payload procedures on a fake arm: their motions and the order of them."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.fake_arm import HOME, FakeArm, FakeRecorder, FakeReport, fake_arm

from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.messages.samples import WrenchSamples
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.procedure import KeptPostures, PayloadProcedure, silence_of
from robocal_ros.payload.two_plane import check_sweeps
from robocal_ros.robot.trajectories import Trajectory


@dataclass
class FakeSensor:
    """A sensor that is well until it is not."""

    fault: str = ''
    topic: str = '/ft/wrench'
    recorded: int = 5
    newest: float = 0.0
    usual_interval: float = 0.002
    queued: float = 0.0
    reading: tuple[float, ...] = (1.0, 2.0, 20.0, 0.1, 0.2, 0.3)

    def catch_up(self) -> None:
        self.newest += self.queued
        self.queued = 0.0

    def problem(self, patience: float) -> str:
        return self.fault

    def samples(self) -> WrenchSamples:
        """Return two readings per call, the later ones new."""
        time = self.newest + np.array([-1.0, 0.0, 1.0, 2.0])
        self.newest += 2.0
        old = np.full((2, 6), 99.0)
        return WrenchSamples('ft', time, np.vstack((old, np.tile(self.reading, (2, 1)))))


@pytest.fixture
def arm() -> FakeArm:
    return fake_arm()


@pytest.fixture
def recorder(arm: FakeArm) -> FakeRecorder:
    noise = np.random.default_rng(0).normal(size=(100, arm.robot.n))
    held = arm.robot.gravity_torque(np.zeros(arm.robot.n))
    return FakeRecorder(arm.robot.joint_names, held + 0.01 * noise)


def procedure(arm: FakeArm, recorder: FakeRecorder, **values: Any) -> PayloadProcedure:
    return PayloadProcedure(arm, recorder, FakeReport(), PayloadParameters(**values))


def test_two_planes_are_swept_in_both_directions_and_the_arm_returns(
    arm: FakeArm, recorder: FakeRecorder
) -> None:
    report, values = FakeReport(), PayloadParameters(known_mass=2.0)
    fed: list[int] = []

    def turn(trajectory: Trajectory) -> None:
        """Have the recorder hand on what a turning joint shows."""
        if recorder.on_sample is None:
            return
        fed.append(len(arm.log))
        for time in np.linspace(0.0, trajectory.duration, 400):
            position = trajectory.sample(float(time))[0]
            recorder.on_sample(float(time), position, arm.robot.gravity_torque(position))

    arm.while_moving = turn
    asyncio.run(PayloadProcedure(arm, recorder, report, values).two_plane(2.0))
    np.testing.assert_allclose(arm.at, HOME)
    phases = [phase for phase, _ in arm.log]
    assert phases[0] == 'dwell'
    assert phases.count('sweeping') % 2 == 0
    assert phases.count('sweeping') > len(fed) == 4, 'held-out sweeps show no estimate'
    shares = [share for phase, share in arm.log if phase != 'dwell']
    assert all(low <= high for low, high in shares)
    assert shares[-1] == (93.0, 98.0)
    assert recorder.on_sample is None
    # The arm alone: its payload has no lever.
    levers = [float(text.split()[0]) for name, text in report.notes.items() if 'lever' in name]
    assert len(levers) == 4
    np.testing.assert_allclose(levers, 0.0, atol=1e-6)


def test_a_dead_effort_is_refused_before_the_arm_moves(
    arm: FakeArm, recorder: FakeRecorder
) -> None:
    recorder.effort[:] = 0.0
    with pytest.raises(DataError, match='is zero in all'):
        asyncio.run(procedure(arm, recorder, known_mass=2.0).two_plane(2.0))
    assert [phase for phase, _ in arm.log] == ['dwell']


@pytest.mark.parametrize('motion', [
    lambda made: made.run(None, lambda kind: None),
    lambda made: made.arm_excitation()], ids=['payload', 'arm'])
def test_a_joint_that_follows_another_one_is_refused_before_the_arm_moves(
    arm: FakeArm, recorder: FakeRecorder, motion: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arm.robot, 'mimicking', {'joint_6': 'joint_5'})
    with pytest.raises(ConfigurationError, match='needs a drive on every joint'):
        asyncio.run(motion(procedure(arm, recorder, method='excitation')))
    assert arm.log == []


def test_static_poses_dwell_in_each_posture_and_watch_the_sensor(
    arm: FakeArm, recorder: FakeRecorder
) -> None:
    asyncio.run(procedure(arm, recorder, poses=6, dwell=0.9).static_poses(FakeSensor()))
    assert [phase for phase, _ in arm.log] == ['moving', 'dwell'] * 6 + ['moving']
    assert [value for phase, value in arm.log if phase == 'dwell'] == [0.9] * 6
    assert all(watch is not None for watch in arm.watched[:-1])
    np.testing.assert_allclose(arm.at, HOME)


def silences(
    sensor: FakeSensor, stamps: list[tuple[float, float]], longest: float = 0.5
) -> list[bool]:
    """Return whether a sensor counts as silent, given stamps of joint states and readings."""
    joints = SimpleNamespace(newest=0.0)
    silence = silence_of(sensor, joints, longest)  # type: ignore[arg-type]
    silence.begin()
    found = []
    for stamp, reading in stamps:
        joints.newest, sensor.newest = stamp, reading
        found.append(silence.beyond() is not None)
    return found


def test_a_sensor_is_silent_when_joint_states_go_on_without_it() -> None:
    # Its clock is 5 s ahead.
    going_on = [(0.01 * k, 5.0 + 0.01 * k) for k in range(10)]
    silent = [(0.095 + 0.01 * k, 5.09) for k in range(10)]
    assert silences(FakeSensor(), going_on + silent) == [False] * 16 + [True] * 4
    # Both are late.
    assert not any(silences(FakeSensor(), [*going_on, (0.09, 5.09), (2.0, 7.0)]))
    # Joint states are late for a while.
    assert not any(silences(FakeSensor(), [*going_on, (0.091, 5.3), (0.32, 5.32), (0.34, 5.34)]))
    assert not any(silences(FakeSensor(), [*going_on, (0.3, 5.3), (0.1, 5.31), (0.33, 5.32)]))
    # A slow sensor, and one whose rate is not known yet.
    assert not any(silences(FakeSensor(usual_interval=0.02), going_on + silent))
    assert not any(silences(FakeSensor(usual_interval=0.0), going_on + silent))
    # Readings that are only queued.
    late = FakeSensor(queued=0.09)
    assert not any(silences(late, [*going_on, (0.165, 5.09)]))
    assert late.queued == 0.0


def test_a_gap_that_ended_makes_the_limit_longer() -> None:
    gap = [(0.0, 0.0), *((0.005 + 0.01 * k, 0.0) for k in range(7))]
    again = [(1.0, 1.0), *((1.005 + 0.01 * k, 1.0) for k in range(15))]
    assert silences(FakeSensor(), gap + again) == [False] * 7 + [True] + [False] * 14 + [True] * 2
    assert silences(FakeSensor(), gap + again, 0.1) == (
        [False] * 7 + [True] + [False] * 11 + [True] * 5)


def measured_postures(
    arm: FakeArm, recorder: FakeRecorder, sensor: FakeSensor, *, parts: list[str] | None = None
) -> list[KeptPostures]:
    """Return what is kept of a whole measurement."""
    kept: list[KeptPostures] = []

    async def keep(state: KeptPostures, what: str) -> None:
        kept.append(state)
        if parts is not None:
            parts.append(what)

    asyncio.run(procedure(arm, recorder, poses=6).static_poses(sensor, keep))
    return kept


def test_every_posture_is_kept_with_its_reading(arm: FakeArm, recorder: FakeRecorder) -> None:
    parts: list[str] = []
    kept = measured_postures(arm, recorder, FakeSensor(), parts=parts)
    assert parts == [f'{number} of 6 postures' for number in range(1, 7)]
    assert [item.measured for item in kept] == [1, 2, 3, 4, 5, 6]
    for item in kept:
        np.testing.assert_array_equal(item.home, HOME)
        np.testing.assert_array_equal(item.reading, FakeSensor.reading)
        np.testing.assert_array_equal(item.postures, kept[0].postures)


def test_static_poses_go_on_with_the_next_posture_and_return_to_the_first_start(
    arm: FakeArm, recorder: FakeRecorder
) -> None:
    kept = measured_postures(arm, recorder, FakeSensor())
    arm.log.clear()
    arm.at = HOME + 0.1
    made = procedure(arm, recorder)
    visited: list[np.ndarray] = []
    go_to = arm.go_to

    async def noted(posture: np.ndarray, **others: Any) -> None:
        visited.append(posture)
        await go_to(posture, **others)

    arm.go_to = noted  # type: ignore[method-assign]
    sensor = FakeSensor()
    assert asyncio.run(made.changed(sensor, kept[3])) == ''
    asyncio.run(made.static_poses(sensor, kept=kept[3]))
    np.testing.assert_array_equal(visited, [*kept[0].postures[3:], HOME])


@pytest.mark.parametrize(('reading', 'same'), [
    ((1.0, 2.0, 20.4, 0.1, 0.2, 0.3), True), ((1.0, 2.0, 20.6, 0.1, 0.2, 0.3), False),
    ((1.0, 2.0, 20.0, 0.1, 0.14, 0.3), False), ((np.nan,) * 6, False)])
def test_another_reading_in_the_last_posture_is_noticed(
    arm: FakeArm, recorder: FakeRecorder, reading: tuple[float, ...], same: bool
) -> None:
    kept = measured_postures(arm, recorder, FakeSensor())[3]
    if np.isnan(reading).any():
        kept = replace(kept, reading=np.array(reading))
        reading = FakeSensor.reading
    found = asyncio.run(procedure(arm, recorder).changed(FakeSensor(reading=reading), kept))
    assert (found == '') is same
    if not same:
        assert 'In posture 4 the sensor reads' in found
        np.testing.assert_array_equal(arm.at, HOME)


@pytest.mark.parametrize('method', ['static_poses', 'excitation'])
def test_a_faulty_sensor_is_refused_before_the_arm_moves(
    arm: FakeArm, recorder: FakeRecorder, method: str
) -> None:
    with pytest.raises(DataError, match='unplugged'):
        asyncio.run(getattr(procedure(arm, recorder), method)(FakeSensor('unplugged')))
    assert arm.log == []


@pytest.mark.parametrize('sensor', [None, FakeSensor()])
def test_an_exciting_motion_is_faster_than_others_and_ends_where_it_began(
    arm: FakeArm, recorder: FakeRecorder, sensor: FakeSensor | None
) -> None:
    made = procedure(arm, recorder, excitation_period=4.0, excitation_repeats=2)
    accelerations: list[float] = []
    arm.while_moving = lambda motion: accelerations.append(
        float(np.abs(motion.sample(motion.dense())[2]).max()))
    asyncio.run(made.excitation(sensor))
    assert [phase for phase, _ in arm.log] == ['dwell', 'exciting', 'dwell']
    assert 2.0 < accelerations[0] <= made.values.excitation_acceleration
    np.testing.assert_allclose(arm.at, HOME, atol=1e-6)
    assert all((watch is None) == (sensor is None) for watch in arm.watched)


def test_what_the_speed_scale_costs_is_said_beforehand(
    arm: FakeArm, recorder: FakeRecorder
) -> None:
    slow, full = (procedure(arm, recorder, method='excitation', excitation_period=4.0,
                            excitation_repeats=2, speed_scale=scale) for scale in (0.3, 1.0))
    asyncio.run(slow.excitation(FakeSensor()))
    said = re.fullmatch(r'At speed_scale 0\.3, noise makes moments of inertia (\S+) times as '
                        r'uncertain as at 1\.0\. ', slow.remark)
    assert said is not None
    # As long a motion as one of full speed that is slowed, which would have 1 / 0.3² / √(1 / 0.3).
    assert 1.2 < float(said[1]) < 6.0
    asyncio.run(full.excitation(FakeSensor()))
    assert full.remark == ''


def test_sweeps_that_look_like_rest_are_refused() -> None:
    check_sweeps(PayloadParameters(sweep_speed=0.03))
    with pytest.raises(ConfigurationError, match='Raise one of the two'):
        check_sweeps(PayloadParameters(sweep_speed=0.1, speed_scale=0.1))
