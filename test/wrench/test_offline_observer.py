# SPDX-License-Identifier: Apache-2.0
"""Whole arrays give what the observer gives sample by sample, and delays of the sensors."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
import pytest
from support.wrench_arm import in_blocks

from benchmarks import seven_joints
from benchmarks.offline import write_wrench_bag
from benchmarks.wrench_samples import Impact, SampledArm, Settings, Stream, follow
from robocal_ros.cli.main import main
from robocal_ros.robot.friction_law import SteadyFriction
from robocal_ros.robot.model import Robot
from robocal_ros.wrench.alignment import Feed
from robocal_ros.wrench.fusion import Fusion
from robocal_ros.wrench.model import SensedArm
from robocal_ros.wrench.observer import Observation, WrenchObserver
from robocal_ros.wrench.offline_observer import Block, OfflineObserver, SensorDelays
from robocal_ros.wrench.parameters import WrenchParameters

SENSORS = list(seven_joints.SENSORS)
LAWS = dict.fromkeys(seven_joints.JOINTS[:5], SteadyFriction(
    [4.0, 4.5], [7.0, 7.5], [0.05, 0.05], [5.0, 5.0], std=0.2))


def observer(**values: Any) -> WrenchObserver:
    made = WrenchObserver(Robot(seven_joints.urdf()), WrenchParameters(**{
        'sensor_frames': SENSORS, 'sensor_force_ranges': [150.0], 'require_tare': False,
        'unidentified_friction': [4.0], 'torque_thresholds': [4.0], **values}))
    made.use_friction(LAWS)
    return made


def one_by_one(
    made: WrenchObserver, joints: Stream, sensors: list[Stream],
    problems: dict[tuple[int, int], str],
) -> list[Observation]:
    if not problems:
        return follow(made, joints, sensors)
    marked = {(index, int(sensors[index].stamps[row])): text
              for (index, row), text in problems.items()}
    for index, feed in enumerate(made.feeds):
        def checked(
            stamp: int, values: Any, index: int = index, feed: Feed = feed, add: Any = feed.add
        ) -> None:
            if problem := marked.get((index, stamp)):
                feed.refuse(stamp, problem)
            else:
                add(stamp, values)

        feed.add = checked
    return follow(made, joints, sensors)


def assert_equal(blocks: list[Block], observations: list[Observation], contacts: bool) -> None:
    assert sum(len(block) for block in blocks) == len(observations)
    touched, begin = 0, 0
    for block in blocks:
        items = observations[begin:begin + len(block)]
        begin += len(block)
        assert block.stamps.tolist() == [item.nanoseconds for item in items]
        valid = np.array([[not reason for reason in item.reasons] for item in items])
        np.testing.assert_array_equal(block.valid, valid)
        for mine, theirs in (
            (block.delay, [item.delay for item in items]),
            (block.wrench[valid], np.array([item.wrench for item in items])[valid]),
            (block.external, [np.full(block.external.shape[1], np.nan) if item.external is None
                              else item.external for item in items])):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9)
        for row, item in enumerate(items):
            if item.external is not None:
                assert block.colliding[row].tolist() == item.colliding.tolist()
            found = block.contacts.get(row, {})
            assert found.keys() == item.contacts.keys()
            for index, contact in item.contacts.items():
                touched += 1
                assert found[index].place is contact.place
                assert found[index].least == pytest.approx(contact.least, abs=1e-9)
                if contact.point is not None:
                    np.testing.assert_allclose(found[index].point, contact.point, atol=1e-9)
    assert bool(touched) is contacts


IMPACTS = [
    Impact(0, np.array([-30.0, 5.0, 0.0]), np.array([0.05, 0.0, 0.06]), 0.5, 0.3),
    Impact(3, np.array([-600.0, 0.0, 50.0]), np.array([0.04, 0.0, 0.02]), 1.2, 0.02),
    Impact(2, np.array([0.0, -60.0, 0.0]), np.array([0.0, 0.04, 0.05]), 1.6, 0.01),
]


@pytest.mark.parametrize('size', [97, 1500])
@pytest.mark.parametrize('settings', [
    {}, {'rate': 125.0}, {'jitter': 2e-4}, {'sensor_rates': (1000.0, 500.0, 4000.0, 100.0)}],
    ids=lambda item: ' '.join(item) or 'default')
def test_equal_to_sample_by_sample(settings: dict[str, Any], size: int) -> None:
    arm = SampledArm(seven_joints.urdf(), SENSORS, Settings(**settings), seed=11, laws=LAWS)
    joints, sensors = arm.samples(2.2, IMPACTS)
    _, blocks = in_blocks(observer(), joints, sensors, size)
    assert_equal(blocks, follow(observer(), joints, sensors), contacts=True)


@pytest.mark.parametrize('values', [
    {'use_velocity': False, 'window': 0.04}, {'sensor_delays': [0.003]}, {'stuck_time': 0.05}],
    ids=lambda item: next(iter(item)))
def test_equal_where_samples_are_lost_refused_stuck_or_without_effort(
    values: dict[str, Any]
) -> None:
    arm = SampledArm(seven_joints.urdf(), SENSORS, Settings(), seed=12, laws=LAWS)
    joints, sensors = arm.samples(2.0, IMPACTS[:1])
    draw = np.random.default_rng(0)
    problems = {(1, int(row)): 'A value is not a finite number.'
                for row in draw.integers(300, 900, 5)}
    sensors[2].values[1200:1400] = sensors[2].values[1200]
    kept = np.delete(np.arange(len(sensors[3].stamps)), [700, 701, *range(1500, 1540)])
    sensors[3] = Stream(sensors[3].stamps[kept], sensors[3].values[kept])
    kept = np.delete(np.arange(len(joints.stamps)), [400, *range(1000, 1004)])
    joints = Stream(joints.stamps[kept], joints.values[kept])
    joints.values[600:610, 14:] = np.nan
    joints.values[800:1200:7, 9] = np.nan
    _, blocks = in_blocks(observer(**values), joints, sensors, 333, problems)
    found = one_by_one(observer(**values), joints, sensors, problems)
    assert any(any(item.reasons) for item in found[100:])
    assert_equal(blocks, found, contacts=True)


def test_stamps_that_jitter_and_gaps_between_positions_are_no_contacts() -> None:
    arm = SampledArm(seven_joints.urdf(), SENSORS, Settings(rate=500.0, frequency=0.4), seed=3)
    joints, sensors = arm.samples(1.5)
    late = np.abs(np.random.default_rng(0).normal(0.0, 4e5, len(joints.stamps))).astype(np.int64)
    late[500:] = 0
    kept = np.delete(np.arange(len(late)), np.ravel(np.arange(520, 720, 40)[:, None] + range(8)))
    stamps = np.maximum.accumulate(joints.stamps + late) + np.arange(len(late))
    made = observer(use_velocity=False, window=0.04)
    _, blocks = in_blocks(made, Stream(stamps[kept], joints.values[kept]), sensors)
    valid = np.concatenate([block.valid for block in blocks])
    force = np.where(valid, np.concatenate([block.force for block in blocks]), 0.0)
    assert valid.mean() > 0.9
    assert not any(block.contacts for block in blocks)
    # What jitters is in the covariances; what a gap leaves of a motion is exact.
    assert force[:490].max() > 5.0
    assert force[500:].max() < 3.0


@pytest.mark.parametrize('late', [0, 8])
def test_the_covariance_of_joint_torques_contains_their_delay(late: int) -> None:
    arm = SampledArm(seven_joints.urdf(), SENSORS, Settings(frequency=0.8), seed=4, laws=LAWS)
    joints, sensors = arm.samples(0.3)
    joints.values[late:, 14:] = joints.values[:300 - late, 14:].copy()
    made = observer(arm_model_std=0.0, gain_std=0.0, torque_zero_std=[0.0], torque_std=[0.3],
                    unidentified_friction=[0.0])
    _, blocks = in_blocks(made, joints, sensors, fusion=Fusion(made))
    external, covariance = (np.concatenate(rows)[60:] for rows in zip(*(
        (block.external, block.fused.torque) for block in blocks), strict=True))
    std = np.sqrt(covariance.reshape(-1, 7, 7)[:, range(7), range(7)])
    assert np.abs(external / std).max() < 3.3
    # Where torques hardly change, they count as before.
    assert std.min() < 0.31


def test_the_tool_wrench_and_covariances_are_equal() -> None:
    arm = SampledArm(seven_joints.urdf(), SENSORS, Settings(), seed=13, laws=LAWS)
    # On the tool, with some saturated readings, then on a tube too.
    joints, sensors = arm.samples(0.8, [
        Impact(3, np.array([-30.0, 5.0, 0.0]), np.array([0.04, 0.0, 0.02]), 0.2, 0.6),
        Impact(3, np.array([-600.0, 0.0, 50.0]), np.array([0.04, 0.0, 0.02]), 0.4, 0.02),
        Impact(0, np.array([-30.0, 5.0, 0.0]), np.array([0.05, 0.0, 0.06]), 0.6, 0.2)])
    joints.values[100:110, 14:] = np.nan
    made, live = observer(), observer()
    _, blocks = in_blocks(made, joints, sensors, 300, fusion=Fusion(made))
    found = Fusion(live).all_of(follow(live, joints, sensors))
    for name in ('tool', 'tool_covariance', 'links', 'torque'):
        mine = np.concatenate([getattr(block.fused, name) for block in blocks])
        np.testing.assert_allclose(mine, getattr(found, name), rtol=1e-6, atol=1e-9)
    assert np.isnan(found.torque[:, 0]).sum() > 10
    assert 0 < np.isnan(found.links[:, 3, 0]).sum() < 100
    assert np.isfinite(found.tool).all(axis=1).sum() > 600


def test_corrupt_numbers_cost_only_their_windows() -> None:
    arm = SampledArm(seven_joints.urdf(), SENSORS, Settings(), seed=12, laws=LAWS)
    joints, sensors = arm.samples(2.0, [
        Impact(3, np.array([-60.0, 5.0, 0.0]), np.array([0.04, 0.0, 0.02]), 0.5, 1.3)])
    # During a contact, while everything is computed.
    joints.values[1200, 7:14] = 1e6
    made, live = observer(), observer()
    _, blocks = in_blocks(made, joints, sensors, 333, fusion=Fusion(made))
    found = follow(live, joints, sensors)
    assert_equal(blocks, found, contacts=True)
    fused = Fusion(live).all_of(found)
    assert np.isfinite(fused.tool).all(axis=1).sum() > 1800
    failed = [item for item in found if item.failed]
    assert 0 < len(failed) < 30
    assert all('beyond those of any arm' in item.problem for item in failed)
    assert sum(any(item.reasons) for item in found[100:]) < 120
    assert all(np.abs(item.wrench[3]).max() < 1e3 for item in found if not item.reasons[3])
    assert all(3 in item.contacts for item in found[1400:1700])


def test_an_instant_that_cannot_be_computed_is_invalid() -> None:
    arm = SampledArm(seven_joints.urdf(), SENSORS, Settings(), seed=12)
    made, count = observer(), 0
    between = made.arm.between

    def fails(distal: np.ndarray) -> np.ndarray:
        nonlocal count
        count += 1
        if count == 100:
            raise np.linalg.LinAlgError('Singular matrix.')
        return between(distal)

    made.arm.between = fails
    found = follow(made, *arm.samples(0.4))
    failed = [item for item in found if item.failed]
    assert len(failed) == 1
    assert set(failed[0].reasons) == {
        'The wrench could not be computed: Singular matrix. The next samples are tried again.'}
    assert found[-1].reasons == [''] * 4


def test_stamps_ahead_of_the_joint_states_are_invalid() -> None:
    """From 0.5 s to 1.2 s the stamps of the wrist are 100 ms ahead of the time of recording."""
    joints, sensors = SampledArm(
        seven_joints.urdf(), SENSORS, Settings(sensor_rates=(1000.0,) * 4), seed=2).samples(2.0)
    begin = int(joints.stamps[0])
    arrived = [stream.stamps.copy() for stream in sensors]
    early = (arrived[3] > begin + 500 * 10**6) & (arrived[3] < begin + 1200 * 10**6)
    arrived[3] -= early * 10**8
    # Readings that would arrive before the one that is 100 ms ahead are lost with it.
    kept = [np.ones(len(times), bool) for times in arrived]
    kept[3] = np.minimum.accumulate(arrived[3][::-1])[::-1] == arrived[3]
    whole = OfflineObserver(observer())
    whole.add_joint_states(joints.stamps, joints.values, joints.stamps)
    for index, (stream, times, some) in enumerate(zip(sensors, arrived, kept, strict=True)):
        whole.add_readings(index, stream.stamps[some], stream.values[some], {}, times[some])
    block = whole.take(final=True)
    assert block is not None
    time = (block.stamps - begin) / 1e9
    ahead = (time > 0.55) & (time < 1.05)
    assert not block.valid[ahead, 3].any()
    assert not block.valid[ahead, 2].any()
    assert block.valid[(time > 0.1) & (time < 0.35)].all()
    assert block.valid[ahead][:, :2].all()
    assert block.valid[time > 1.3].all()
    row = int(np.flatnonzero(ahead)[0])
    assert re.match(r"Stamps of sensor 'ft_wrist' are (99|100) ms ahead of joint_states; at most",
                    block.reasons_at(row)[3])


LAG = np.array([0.0, 0.004, 0.008, -0.003])


@cache
def estimates(seed: int, *, moving: bool = True, delays: tuple[float, ...] = (0.0,),
              **settings: float) -> np.ndarray:
    arm = SampledArm(seven_joints.urdf(), SENSORS, Settings(
        filtered=1.0, frequency=0.5, **settings), seed=seed)
    joints, sensors = arm.samples(30.0, [Impact(
        2, np.array([0.0, -40.0, 0.0]), np.array([0.0, 0.04, 0.05]), 10.0, 0.5)], moving=moving)
    late = [Stream(stream.stamps + round(1e9 * lag), stream.values)
            for stream, lag in zip(sensors, LAG, strict=True)]
    whole, _ = in_blocks(WrenchObserver(arm.robot, WrenchParameters(
        sensor_frames=SENSORS, require_tare=False, sensor_delays=list(delays))), joints, late)
    return np.array(whole.delays.estimates())


def test_delays_are_found_within_their_deviation() -> None:
    off = np.vstack([(found[:, 0] - LAG) / found[:, 1] for found in (
        estimates(seed, inertia_error=0.02) for seed in range(2))])
    assert np.sqrt(np.mean(off**2)) < 2.0
    assert np.abs(off).max() < 5.0


def test_errors_of_the_model_in_a_motion_that_repeats_are_no_delay() -> None:
    """Its segments are alike, so that their scatter does not show them."""
    n, step = 7, 2_000_000
    time = 1e-9 * step * np.arange(10_000)[:, None]
    for seed in range(4):
        draw = np.random.default_rng(seed)
        made = WrenchObserver(Robot(seven_joints.urdf()), WrenchParameters(
            sensor_frames=SENSORS[:1], arm_model_std=0.05))
        truth = SensedArm(made.arm.robot, made.arm.mounts)
        delays = SensorDelays(made.arm, 0.02)
        size, phase = draw.uniform(0.3, 0.6, n), draw.uniform(0.0, 6.0, n)
        angle = 2.0 * np.pi * time + phase
        motion = (size * np.sin(angle), 2.0 * np.pi * size * np.cos(angle),
                  -(2.0 * np.pi)**2 * size * np.sin(angle))
        off = made.errors.parameters @ draw.normal(size=made.errors.parameters.shape[1])
        for joint, change in enumerate(off.reshape(-1, 10), 1):
            truth.model.inertias[joint] = pin.Inertia.FromDynamicParameters(
                truth.model.inertias[joint].toDynamicParameters() + change)
        held = made.arm.held_many(*motion)[0]
        noise = np.repeat([0.1, 0.003], 3) * draw.normal(size=held.shape)
        distal = held - truth.held_many(*motion)[0] + noise
        delays.add(10**9 + step * np.arange(10_000), motion, distal - held,
                   np.ones(10_000, bool))
        (delay, std), = delays.estimates()
        assert abs(delay) < min(4.0 * std, 2e-4)
        # A clock that jumps back, and tells the same stamps again, does no harm.
        short = SensorDelays(made.arm, 0.02)
        for part in (slice(6000), slice(3000, 10_000)):
            short.add(10**9 + step * np.arange(10_000)[part], [item[part] for item in motion],
                      (distal - held)[part], np.ones(10_000, bool)[part])
        (delay, std), = short.estimates()
        assert abs(delay) < min(4.0 * std, 2e-4)


def test_they_are_precise_enough_to_be_of_use() -> None:
    found = estimates(1)
    assert (found[:, 1] < 1e-3).all()
    # What the parameters state is not found again.
    left = estimates(1, delays=tuple(LAG))
    assert (np.abs(left[:, 0]) < 4.0 * left[:, 1] + 2e-4).all()


def test_an_arm_at_rest_tells_none() -> None:
    assert np.isinf(estimates(1, moving=False)[:, 1]).all()


def test_the_command_reports_the_delay_of_a_filter(tmp_path: Path, capsys: Any) -> None:
    bag = tmp_path / 'bag'
    # Its sensors filter with half of the newest value at 1 kHz: a delay of 1 ms.
    write_wrench_bag(bag, 22.0)
    main(['estimate', 'wrench', str(bag), '-o', str(tmp_path / 'tare.yaml'), '--results-dir',
          str(tmp_path / 'results'), '-p', 'require_tare:=false'])
    told = ' '.join(capsys.readouterr().out.split())
    found = re.findall(r"sensor '(\S+)' are (\S+) ms older .*?deviation (\S+) ms", told)
    assert {'ft_3_proximal', 'ft_3_distal'} <= {sensor for sensor, *_ in found}
    for _, delay, std in found:
        # To the last digit that is printed.
        assert abs(float(delay) - 1.0) < 2.0 * float(std) + 0.05
    assert 'Set its sensor_delays to 0.0010.' in told
