# SPDX-License-Identifier: Apache-2.0
"""What real arms send: saturation, wrapped joints, any sensors, any rate, drift."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from support.arms import arm

from benchmarks import seven_joints
from benchmarks.wrench_samples import FORCE_NOISE, Impact, SampledArm, Settings, follow
from robocal_ros.errors import ConfigurationError
from robocal_ros.messages.checks import PostureCheck
from robocal_ros.robot.model import RigidBodyInertia, Robot
from robocal_ros.wrench.contact import Place
from robocal_ros.wrench.model import SensedArm, SensorMount, TareReference
from robocal_ros.wrench.observer import Observation, WrenchObserver
from robocal_ros.wrench.parameters import WrenchParameters

SENSORS = list(seven_joints.SENSORS)
RANGE = 200.0


def sampled(**settings: Any) -> SampledArm:
    return SampledArm(seven_joints.urdf(), SENSORS, Settings(range=RANGE, **settings), seed=3)


def observer(urdf: str = '', **values: Any) -> WrenchObserver:
    return WrenchObserver(Robot(urdf or seven_joints.urdf()), WrenchParameters(**{
        'sensor_frames': SENSORS, 'sensor_force_ranges': [RANGE], 'require_tare': False,
        **values}))


def forces(found: list[Observation], chain: int) -> np.ndarray:
    return np.array([item.wrench[chain, :3] for item in found if not item.reasons[chain]])


def rms(found: list[Observation], chain: int) -> float:
    return float(np.sqrt(np.mean(np.square(forces(found, chain)))))


def hit(size: float, duration: float, begin: float = 0.2, chain: int = 3) -> Impact:
    return Impact(chain, np.array([-size, 0.0, 0.3 * size]), np.array([0.04, 0.0, 0.02]), begin,
                  duration)


class TestSaturation:
    """Readings at the end of the range are neither bridged nor silent."""

    @pytest.mark.parametrize('duration', [0.005, 0.015, 0.1])
    def test_a_clipped_impact_is_a_contact_with_a_lower_bound(self, duration: float) -> None:
        arm = sampled(filtered=1.0)
        found = follow(observer(), *arm.samples(0.6, [hit(900.0, duration)]))
        during = [item for item in found if 0.2 < arm_time(item) < 0.2 + duration]
        assert all(item.reasons[3].startswith("Sensor 'ft_wrist' is saturated") or
                   item.reasons[3] == '' for item in during)
        bounds = [item.contacts[3] for item in found
                  if 3 in item.contacts and item.contacts[3].place is Place.SATURATED]
        assert bounds
        assert 150.0 < max(contact.least for contact in bounds) <= 940.0
        assert min(arm_time(item) for item in found if 3 in item.contacts) < 0.203
        # What is published as valid holds no part of the impact that was cut off.
        valid = [item for item in found if not item.reasons[3] and arm_time(item) > 0.2]
        assert valid
        assert all(np.linalg.norm(item.wrench[3, :3]) < 100.0 for item in valid)
        assert found[-1].contacts == {}

    def test_a_link_between_two_saturated_sensors_is_not_called_touched(self) -> None:
        found = follow(observer(), *sampled(filtered=1.0).samples(0.4, [hit(900.0, 0.05)]))
        assert {index for item in found for index in item.contacts} == {3}

    @pytest.mark.parametrize(('frames', 'imu'), [
        (['ft_wrist'], 'imu_flange'),
        (['ft_link_2_proximal', 'ft_link_2_distal'], 'imu_link_2')])
    def test_a_link_with_an_imu_has_a_lower_bound_too(self, frames: list[str], imu: str) -> None:
        count = len(frames)
        made = WrenchObserver(arm('robocal').robot(), WrenchParameters(
            sensor_frames=frames, sensor_force_ranges=[RANGE], require_tare=False,
            observe_torque=False, kinematics=['imu', *['joint_states'] * (count - 1)],
            imu_topics=['imu', *[''] * (count - 1)], imu_frames=[imu, *[''] * (count - 1)]))
        draw, found = np.random.default_rng(0), []
        # In free fall nothing holds the link, so its sensors read contacts alone.
        for number in range(300):
            stamp = 10**9 + number * 10**6
            push = 500.0 * (150 <= number < 165)
            made.imu_chains[0].imu.add(stamp, tuple(1e-3 * draw.normal(size=6)))
            for index in reversed(range(count)):
                values = 0.1 * draw.normal(size=6)
                values[0] += push * (index == 0)
                made.feeds[index].add(stamp, tuple(np.clip(values, -RANGE, RANGE).tolist()))
            while (seen := made.take()) is not None:
                found.append(seen)
        touched = [item for item in found if 0 in item.contacts]
        bounds = [item.contacts[0].least for item in touched
                  if item.contacts[0].place is Place.SATURATED]
        assert RANGE - 2.0 < max(bounds) < RANGE + 2.0
        assert touched[0].nanoseconds == 10**9 + 150 * 10**6
        assert not found[-1].contacts
        assert not found[-1].reasons[0]


def arm_time(item: Observation) -> float:
    from benchmarks.wrench_samples import EPOCH

    return (item.nanoseconds - EPOCH) / 1e9


def test_a_sensor_carries_the_link_that_is_named() -> None:
    """The frame of the readings is a bare measurement frame of the link distal to the sensor."""
    made = WrenchObserver(arm('robocal').robot(), WrenchParameters(
        sensor_frames=['flange'], sensor_links=['ft_wrist']))
    assert [chain.link for chain in made.arm.chains] == ['ft_wrist']
    assert [feed.name for feed in made.feeds] == ['flange']


def test_an_arm_without_force_sensors_observes_joint_torques() -> None:
    arm = SampledArm(seven_joints.urdf(), [], Settings(), seed=1)
    made = observer(sensor_frames=[''], sensor_force_ranges=[0.0],
                    urdf=seven_joints.urdf().replace('ft_', 'tube_'))
    assert made.tared
    joints, _ = arm.samples(0.5)
    joints.values[300:, 14 + 3] -= 12.0
    found = follow(made, joints, [])
    external = np.array([item.external for item in found if item.external is not None])
    assert np.abs(external[:200]).max() < 3.0
    assert external[-100:, 3].mean() == pytest.approx(12.0, abs=0.3)
    assert found[-1].wrench.shape == (0, 6)


def test_nothing_to_observe_is_refused() -> None:
    with pytest.raises(ConfigurationError, match='nothing to observe'):
        observer(sensor_frames=[''], observe_torque=False,
                 urdf=seven_joints.urdf().replace('ft_', 'tube_'))


def test_continuous_joints_may_wrap() -> None:
    urdf = seven_joints.urdf().replace('type="revolute"', 'type="continuous"')
    arm = SampledArm(urdf, SENSORS, Settings(centre=2.0, amplitude=2.5, filtered=1.0), seed=2)
    joints, sensors = arm.samples(4.0)
    wrapped = (joints.values[:, :7] + math.pi) % (2.0 * math.pi) - math.pi
    assert np.abs(np.diff(wrapped, axis=0)).max() > 6.0
    joints.values[:, :7] = wrapped
    made = observer(urdf)
    # As joint states are taken in.
    assert PostureCheck(made.arm.robot).check_block(joints.stamps, joints.values) == ({}, {})
    found = follow(made, joints, sensors)
    assert max(np.abs(forces(found, chain)).max() for chain in range(4)) < 2.0


@pytest.mark.parametrize(('rate', 'sensor_rate'), [
    (100.0, 100.0), (125.0, 125.0), (125.0, 1000.0), (500.0, 250.0), (2000.0, 1000.0)])
def test_defaults_work_at_any_rate(rate: float, sensor_rate: float) -> None:
    arm = sampled(rate=rate, sensor_rates=(sensor_rate,), filtered=1.0)
    found = follow(observer(), *arm.samples(3.0))
    valid = [item for item in found if item.reasons == [''] * 4]
    assert len(valid) > 0.9 * len(found)
    assert max(rms(valid, chain) for chain in range(4)) < 1.5 * FORCE_NOISE
    found = follow(observer(), *sampled(
        rate=rate, sensor_rates=(sensor_rate,)).samples(0.5, [hit(100.0, 0.05)]))
    assert 3 in {index for item in found for index in item.contacts}


@pytest.mark.parametrize('duration', [0.005, 0.01, 0.02])
def test_short_impacts_are_contacts(duration: float) -> None:
    found = follow(observer(), *sampled().samples(0.5, [hit(60.0, duration)]))
    assert {index for item in found for index in item.contacts} == {3}


def test_readings_faster_than_joint_states_are_all_used() -> None:
    """Noise is averaged over all readings, not over those next to joint states."""
    slow, fast = (follow(observer(), *sampled(
        rate=125.0, sensor_rates=(rate,), filtered=1.0).samples(4.0)) for rate in (125.0, 1000.0))
    assert rms(fast, 0) < 0.6 * rms(slow, 0)


class TestLoadAfterTare:
    """A payload result that arrives after a tare."""

    load = RigidBodyInertia(1.5, np.array([0.0, 0.02, 0.08]), 1e-3 * np.eye(3))

    def tared(self, arm: SampledArm) -> WrenchObserver:
        made = observer()
        joints, sensors = arm.samples(0.5, moving=False)
        follow(made, joints, sensors)
        readings = np.array([stream.values.mean(axis=0) for stream in sensors])
        posture = joints.values[0, :7]
        made.use_bias(readings - made.arm.expected(posture), TareReference(posture, readings))
        return made

    def test_the_tare_is_redone_for_the_load_that_it_weighed(self) -> None:
        arm = SampledArm(seven_joints.urdf(), SENSORS, Settings(filtered=1.0), seed=5,
                         load=self.load)
        made = self.tared(arm)
        assert made.carry(self.load, 'tool0')
        # The first samples of the motion are a step.
        found = [item for item in follow(made, *arm.samples(2.0)) if arm_time(item) > 0.6]
        assert max(rms(found, chain) for chain in range(4)) < 1.5 * FORCE_NOISE
        assert not any(item.contacts for item in found)

    def test_a_load_that_was_mounted_later_is_not_in_the_tare(self) -> None:
        arm = SampledArm(seven_joints.urdf(), SENSORS, Settings(filtered=1.0), seed=5)
        made = self.tared(arm)
        arm.truth.carry(self.load, 'tool0')
        follow(made, *arm.samples(0.5))
        assert not made.carry(self.load, 'tool0')
        found = follow(made, *arm.samples(2.0))
        assert max(rms(found, chain) for chain in range(4)) < 1.5 * FORCE_NOISE


RATE = 100
CENTRE = np.array([0.1, 0.3, 0.4, 0.0, 0.6, 0.2])
REST = np.zeros(6)


class Drifting:
    """An arm with a wrist sensor that waves, or rests, while sensor and torques drift."""

    def __init__(self, lag: float, **values: object) -> None:
        robot = arm('robocal').robot()
        self.observer = WrenchObserver(robot, WrenchParameters(
            sensor_frames=['ft_wrist'], unidentified_friction=[0.0], drift_lag=lag, **values))
        self.truth = SensedArm(robot, [SensorMount('ft_wrist')])
        self.noise = np.random.default_rng(0)
        self.bias, self.zero = np.zeros((1, 6)), np.zeros(6)
        self.stamp, self.phase = 10**9, 0.0
        self.observer.use_bias(np.zeros((1, 6)), TareReference(
            CENTRE, self.truth.expected(CENTRE)))

    def run(
        self, duration: float, drift: float = 0.0, zero_drift: float = 0.0, force: float = 0.0,
        speed: float = 1.0,
    ) -> Observation:
        """Return the last observation; drifts [N/s, N·m/s], force on the sensor's x axis [N]."""
        newest = None
        for _ in range(round(duration * RATE)):
            self.stamp += 10**9 // RATE
            self.phase += speed / RATE
            self.bias[0, 0] += drift / RATE
            self.zero[1] += zero_drift / RATE
            q, v, a = (CENTRE + 0.4 * np.sin(self.phase), 0.4 * speed * np.cos(self.phase) + REST,
                       -0.4 * speed**2 * np.sin(self.phase) + REST)
            reading = -self.truth.held(q, v, a)[0] + self.bias[0]
            reading[0] += force
            reading[:3] += 0.3 * self.noise.normal(size=3)
            self.observer.feeds[0].add(self.stamp, tuple(reading.tolist()))
            self.observer.joint_chains.add(self.stamp, np.concatenate((
                q, v, self.truth.torque + self.zero)))
            while (found := self.observer.take()) is not None:
                newest = found
        return newest

    @property
    def error(self) -> float:
        return float(np.linalg.norm((self.observer.bias - self.bias)[0, :3]))


def test_drifts_are_followed_with_the_stated_lag() -> None:
    constant, following = Drifting(0.0), Drifting(2.0)
    for cell in (constant, following):
        cell.run(10.0, drift=0.15, zero_drift=0.05)
    assert constant.error == pytest.approx(1.5)
    np.testing.assert_array_equal(constant.observer.torques.zero, 0.0)
    # A lag of first order: rate times lag.
    assert following.error == pytest.approx(0.3, abs=0.1)
    assert following.observer.torques.zero[1] == pytest.approx(0.5 - 0.1, abs=0.03)
    # A load that arrives later finds the readings of the tare as they would be now.
    moved = following.observer.reference.readings - following.truth.expected(CENTRE)
    np.testing.assert_allclose(moved, following.observer.bias, atol=1e-9)


def test_nothing_is_followed_into_a_contact_or_at_rest() -> None:
    cell = Drifting(1.0)
    cell.run(2.0)
    touched = cell.run(4.0, force=8.0)
    assert touched.contacts
    # The first instants of the push, before it is complete within the window.
    assert np.abs(cell.observer.bias[0, 0]) < 0.2
    # After its end the force between the thresholds is no drift either.
    cell.run(4.0, force=3.5)
    assert np.abs(cell.observer.bias[0, 0]) < 0.25
    cell.run(4.0, drift=0.2, speed=0.0)
    assert cell.observer.bias[0, 0] < 0.25
