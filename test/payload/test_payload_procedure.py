# SPDX-License-Identifier: Apache-2.0
"""The payload procedures on a fake arm: their motions and the order of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import numpy as np
import pytest
from support.fake_arm import HOME, FakeArm, FakeRecorder, FakeReport, fake_arm

from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.procedure import PayloadProcedure, check_sweeps
from robocal_ros.robot.motion import Trajectory


@dataclass
class FakeSensor:
    """A sensor that is well until it is not."""

    fault: str = ''
    recorded: int = 5

    def problem(self, patience: float) -> str:
        return self.fault


@pytest.fixture
def arm() -> FakeArm:
    return fake_arm()


@pytest.fixture
def recorder(arm: FakeArm) -> FakeRecorder:
    noise = np.random.default_rng(0).normal(size=(100, arm.robot.n))
    held = arm.robot.gravity_torque(np.zeros(arm.robot.n))
    return FakeRecorder(arm.robot.joint_names, held + 0.01 * noise)


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
    assert shares[-1] == (92.0, 98.0)
    assert recorder.on_sample is None
    # The arm alone: its payload has no lever.
    levers = [float(text.split()[0]) for name, text in report.notes.items() if 'lever' in name]
    assert len(levers) == 4
    np.testing.assert_allclose(levers, 0.0, atol=1e-6)


def test_a_dead_effort_is_refused_before_the_arm_moves(
    arm: FakeArm, recorder: FakeRecorder
) -> None:
    recorder.effort[:] = 0.0
    procedure = PayloadProcedure(arm, recorder, FakeReport(), PayloadParameters(known_mass=2.0))
    with pytest.raises(DataError, match='is zero in all'):
        asyncio.run(procedure.two_plane(2.0))
    assert [phase for phase, _ in arm.log] == ['dwell']


def test_static_poses_dwell_in_each_posture_and_watch_the_sensor(
    arm: FakeArm, recorder: FakeRecorder
) -> None:
    values = PayloadParameters(method='static_poses', poses=6, dwell=0.9)
    asyncio.run(PayloadProcedure(arm, recorder, FakeReport(), values).static_poses(FakeSensor()))
    assert [phase for phase, _ in arm.log] == ['moving', 'dwell'] * 6 + ['moving']
    assert [value for phase, value in arm.log if phase == 'dwell'] == [0.9] * 6
    assert all(watch is not None for watch in arm.watched[:-1])
    np.testing.assert_allclose(arm.at, HOME)


@pytest.mark.parametrize('method', ['static_poses', 'excitation'])
def test_a_faulty_sensor_is_refused_before_the_arm_moves(
    arm: FakeArm, recorder: FakeRecorder, method: str
) -> None:
    procedure = PayloadProcedure(arm, recorder, FakeReport(), PayloadParameters(method=method))
    with pytest.raises(DataError, match='unplugged'):
        asyncio.run(getattr(procedure, method)(FakeSensor('unplugged')))
    assert arm.log == []


@pytest.mark.parametrize('sensor', [None, FakeSensor()])
def test_an_exciting_motion_is_faster_than_others_and_ends_where_it_began(
    arm: FakeArm, recorder: FakeRecorder, sensor: FakeSensor | None
) -> None:
    values = PayloadParameters(method='excitation', excitation_period=4.0, excitation_repeats=2)
    accelerations: list[float] = []
    arm.while_moving = lambda motion: accelerations.append(
        float(np.abs(motion.sample(motion.dense())[2]).max()))
    asyncio.run(PayloadProcedure(arm, recorder, FakeReport(), values).excitation(sensor))
    assert [phase for phase, _ in arm.log] == ['dwell', 'exciting', 'dwell']
    assert 2.0 < accelerations[0] <= values.excitation_acceleration
    np.testing.assert_allclose(arm.at, HOME, atol=1e-6)
    assert all((watch is None) == (sensor is None) for watch in arm.watched)


def test_sweeps_that_look_like_rest_are_refused() -> None:
    check_sweeps(PayloadParameters(sweep_speed=0.03))
    with pytest.raises(ConfigurationError, match='Raise one of the two'):
        check_sweeps(replace(PayloadParameters(sweep_speed=0.1), speed_scale=0.1))
