# SPDX-License-Identifier: Apache-2.0
"""Tares: biases with the weight taken off, what is no bias, and the procedure without ROS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.signal import lfilter
from support.arms import arm
from support.wrench_arm import FRAMES, ObservedArm

from robocal_ros.errors import CancelledError, DataError
from robocal_ros.results.result import CalibrationResult, Verdict
from robocal_ros.robot.model import RigidBodyInertia
from robocal_ros.wrench.model import (
    Instant,
    LinkInstant,
    SensedArm,
    SensorMount,
    TareRecord,
    bias_names,
    tare_of,
)
from robocal_ros.wrench.observer import WrenchObserver
from robocal_ros.wrench.parameters import WrenchParameters
from robocal_ros.wrench.tare import TareOutcome, TareProcedure, Taring, contradictions

LOAD = RigidBodyInertia(2.0, np.array([0.018, -0.011, 0.102]), np.zeros((3, 3)))
HOME = np.array([0.1, 0.3, 0.4, 0.0, 0.6, 0.2])
AWAY = np.array([0.1, -0.3, -0.9, 0.4, -0.9, 0.2])
NOISE = np.repeat([0.3, 0.01], 3)


class Bench:
    """Sensors with known biases on an arm at rest."""

    def __init__(self, *frames: str, **values: float) -> None:
        names = frames or FRAMES
        self.arm = SensedArm(arm('robocal').robot(), [SensorMount(frame) for frame in names])
        self.taring = Taring(self.arm)
        self.values = WrenchParameters(**values)
        self.generator = np.random.default_rng(4)
        bound = np.repeat([10.0, 0.5], 3)
        self.bias = self.generator.uniform(-bound, bound, (len(names), 6))

    def find(self, record: TareRecord) -> CalibrationResult:
        result, self.remarks = self.taring.find(record, self.values)
        return result

    def off(self, result: CalibrationResult) -> np.ndarray:
        """Return the errors of the biases, shape (k, 6)."""
        return biases(result) - self.bias

    def record(
        self, posture: np.ndarray = HOME, *, carried: RigidBodyInertia | None = None,
        change: object = None, drift: float = 0.0, count: int = 500,
    ) -> TareRecord:
        """Collect at rest; ``carried`` hangs on the arm without the model's knowledge."""
        rest = np.zeros(6)
        believed = self.arm.held(posture, rest, rest)
        truth = SensedArm(self.arm.robot, self.arm.mounts)
        truth.carry(carried, 'flange')
        readings = -truth.held(posture, rest, rest)
        if change is not None:
            readings = change(readings)
        record = TareRecord()
        for number in range(count):
            noisy = readings + self.bias + NOISE * self.generator.normal(size=self.bias.shape)
            record.add(Instant(10**11 + 2 * 10**6 * number, posture + drift * number, noisy,
                               believed, [''] * len(self.bias)))
        return record


def biases(result: CalibrationResult) -> np.ndarray:
    return np.reshape([item.value for item in result.parameters], (-1, 6))


def deviations(result: CalibrationResult) -> np.ndarray:
    return np.reshape([item.std for item in result.parameters], (-1, 6))


def test_biases_are_found_in_any_orientation() -> None:
    bench = Bench()
    for posture in (HOME, AWAY):
        found = bench.find(bench.record(posture))
        assert found.verdict is Verdict.PASS
        assert (np.abs(bench.off(found)) / deviations(found)).max() < 4.5
        np.testing.assert_allclose(
            deviations(found), NOISE / np.sqrt(500) * np.ones((5, 6)), rtol=0.2)
        np.testing.assert_array_equal(found.values(bias_names(FRAMES)), biases(found).ravel())
        assert found.parameter('ft_wrist.torque_z').unit == 'N·m'
        np.testing.assert_array_equal(tare_of(found, FRAMES)[0], biases(found))
    with pytest.raises(DataError, match='no parameter'):
        tare_of(found, ('ft_other',))


def flipped(*rows: int):
    return lambda readings: np.where(
        np.isin(np.arange(len(readings)), rows)[:, None], -readings, readings)


def swapped(one: int, other: int):
    def change(readings: np.ndarray) -> np.ndarray:
        order = list(range(len(readings)))
        order[one], order[other] = order[other], order[one]
        return readings[order]

    return change


@pytest.mark.parametrize('row', range(4))
def test_a_sensor_of_the_wrong_sign_is_named(row: int) -> None:
    bench = Bench()
    words = f"'{FRAMES[row]}' reads the opposite of the weight that it carries"
    with pytest.raises(DataError, match=words):
        bench.find(bench.record(change=flipped(row)))


@pytest.mark.parametrize(('one', 'other'), [(0, 1), (2, 3), (0, 3), (1, 4)])
def test_swapped_sensors_are_named(one: int, other: int) -> None:
    bench = Bench()
    with pytest.raises(DataError, match='swapped') as refusal:
        bench.find(bench.record(change=swapped(one, other)))
    words = f"'{FRAMES[one]}' and '{FRAMES[other]}' read each other's weight"
    assert words in str(refusal.value)


def test_both_at_once() -> None:
    bench = Bench()
    with pytest.raises(DataError, match='reads the opposite.*swapped'):
        bench.find(bench.record(change=lambda readings: swapped(2, 3)(flipped(0)(readings))))


def test_the_sign_of_a_lightly_loaded_sensor_shows_in_a_second_posture() -> None:
    bench = Bench('ft_wrist')
    bench.bias *= 0.3
    bench.find(bench.record(HOME))
    assert 'the sign is unchecked' in bench.remarks[0]
    bench.find(bench.record(AWAY))
    assert bench.remarks == ()

    wrong = Bench('ft_wrist')
    wrong.bias *= 0.3
    wrong.find(wrong.record(HOME, change=flipped(0)))
    with pytest.raises(DataError, match="between two postures 'ft_wrist' reads the opposite"):
        wrong.find(wrong.record(AWAY, change=flipped(0)))


def test_a_frame_turned_by_half_a_turn_is_no_wrong_sign() -> None:
    def turned(readings: np.ndarray) -> np.ndarray:
        return readings * np.tile([1.0, -1.0, -1.0], 2)

    loaded, light = Bench('ft_wrist'), Bench('ft_wrist')
    loaded.arm.carry(LOAD, 'flange')
    for bench in (loaded, light):
        bench.bias *= 0.3
    with pytest.raises(DataError, match='turned by 180° about its x axis') as refusal:
        loaded.find(loaded.record(AWAY, carried=LOAD, change=turned))
    assert 'sensor_signs' not in str(refusal.value)
    light.find(light.record(HOME, change=turned))
    with pytest.raises(DataError, match='between two postures .* turned by 180° about its x'):
        light.find(light.record(AWAY, change=turned))


def test_a_load_that_the_model_lacks_is_recognised() -> None:
    bench = Bench()
    with pytest.raises(DataError, match=r'carry about [12]\.\d kg more than the model contains'):
        bench.find(bench.record(carried=LOAD))
    bench.arm.carry(LOAD, 'flange')
    assert np.abs(bench.off(bench.find(bench.record(carried=LOAD)))).max() < 0.1


def test_a_second_tare_shows_a_load_that_has_moved_and_a_drift() -> None:
    bench = Bench('ft_wrist')
    moved = RigidBodyInertia(LOAD.mass, LOAD.com + [0.0, 0.02, 0.0], LOAD.inertia)

    def told(load: RigidBodyInertia, *postures: np.ndarray, drift: float = 0.0) -> list[str]:
        drifting = np.repeat([drift, 0.0], 3)
        observer = WrenchObserver(bench.arm.robot, WrenchParameters(
            sensor_frames=['ft_wrist'], arm_model_std=0.01))
        # Identified to 1 mm.
        observer.carry(LOAD, 'flange', np.vstack((
            np.zeros((1, 3)), 1e-3 * LOAD.mass * np.eye(3), np.zeros((6, 3)))))
        bench.arm.carry(LOAD, 'flange')
        for number, posture in enumerate(postures):
            result = bench.find(bench.record(
                posture, carried=load, change=lambda it, by=number * drifting: it + by))
            said = contradictions(observer, result)
            observer.use_tare(result)
        return list(said)

    assert told(LOAD, HOME, AWAY) == told(moved, HOME, HOME) == []
    for said in (told(moved, HOME, AWAY), told(LOAD, HOME, HOME, drift=2.0)):
        assert len(said) == 1
        assert "'ft_wrist' has changed by" in said[0]


def test_what_nothing_explains_gives_numbers() -> None:
    bench = Bench()

    def twisted(readings: np.ndarray) -> np.ndarray:
        readings[1] = readings[1][[1, 2, 0, 4, 5, 3]]
        return readings

    with pytest.raises(DataError, match=r"'ft_link_2_distal' would have a bias of [\d.]+ N"):
        bench.find(bench.record(change=twisted))


def test_not_while_moving_shaken_or_blind() -> None:
    bench = Bench()
    with pytest.raises(DataError, match='A joint moved by'):
        bench.find(bench.record(drift=1e-5))
    with pytest.raises(DataError, match='complete instants'):
        bench.find(bench.record(count=5))
    calm, bench.generator = bench.generator, np.random.default_rng(0)
    rough = Bench(tare_force_std=0.1)
    with pytest.raises(DataError, match='scatters by 0.3'):
        rough.find(rough.record())
    bench.generator = calm
    record = bench.record()
    record.add(Instant(2 * 10**11, HOME, np.zeros((5, 6)), record.rows[0].held,
                       ['', '', 'It was silent.', '', '']))
    with pytest.raises(DataError, match="'ft_link_3_proximal' had unusable .* It was silent"):
        bench.find(record)


def test_the_standard_deviation_counts_what_a_filter_correlates() -> None:
    """Of noise that remembers nine tenths, a mean scatters by √19 of what it seems to."""
    bench, record = Bench('ft_wrist'), TareRecord()
    held = bench.record(count=1).rows[0].held
    white = NOISE * bench.generator.normal(size=(700, 6))
    noise = lfilter([0.1], [1.0, -0.9], white, axis=0)[200:]
    for row, reading in enumerate(bench.bias - held + noise[:, None]):
        record.add(Instant(10**11 + 2 * 10**6 * row, HOME, reading, held, ['']))
    ratio = deviations(bench.find(record)) / (noise.std(axis=0) / np.sqrt(500))
    assert np.median(ratio) == pytest.approx(np.sqrt(19.0), rel=0.3)


@pytest.mark.parametrize(('values', 'words'), [
    ({'tare_torque_limit': 0.05}, r'bias of [\d.]+ N and .* expected at most 15 N and 0.05 N·m'),
    ({'tare_torque_std': 0.005}, r'scatters by 0.01\d* N·m \(torque_'),
])
def test_limits_are_those_of_the_parameters(values: dict[str, float], words: str) -> None:
    strict = Bench('ft_wrist', **values)
    strict.bias *= np.repeat([0.3, 1.0], 3)
    with pytest.raises(DataError, match=words):
        strict.find(strict.record())


def test_links_with_imus_are_tared_as_a_whole() -> None:
    bench = Bench()
    record = TareRecord()
    net = np.array([3.0, -2.0, 1.0, 0.1, 0.2, -0.1])
    for number in range(200):
        record.add(LinkInstant(
            10**7 * number, net + 0.01 * bench.generator.normal(size=6),
            1e-3 * bench.generator.normal(size=3), number * np.ones((6, 10))), 2)
    assert record.link_duration == pytest.approx(1.99)
    found = bench.taring.find_links(record, bench.values)[2]
    np.testing.assert_allclose(found.net, net, atol=0.01)
    np.testing.assert_allclose(found.regressor, 99.5)
    record.add(LinkInstant(2 * 10**9, net, np.full(3, 50.0), np.zeros((6, 10))), 2)
    with pytest.raises(DataError, match='rotated at'):
        bench.taring.find_links(record, bench.values)


STEP = 0.01


class ProcedureBench:
    """An observed arm whose time passes while the procedure waits."""

    def __init__(self, **options: object) -> None:
        self.arm = ObservedArm(1, tare_duration=0.3, **options)
        self.arm.carry_tool()
        self.arm.run(0.2)
        self.procedure = TareProcedure(
            self.arm.observer, self.until_stopped, lambda: 'The reason.')
        self.stop_after = np.inf

    async def until_stopped(self, condition: Callable[[], bool], timeout: float) -> bool:
        waited = 0.0
        while not condition():
            if waited > timeout:
                return False
            if waited > self.stop_after:
                raise CancelledError('Enough.')
            self.arm.run(STEP)
            waited += STEP
        return True

    def tare(self) -> TareOutcome:
        return asyncio.run(self.procedure.run(self.arm.values))

    def spoil(self, text: str) -> None:
        from robocal_sim.faults import parse_faults

        self.arm.simulator.set_faults(parse_faults(
            text, self.arm.robot.joint_names, self.arm.frames))


def test_the_result_holds_the_biases_that_are_compensated() -> None:
    bench = ProcedureBench()
    observer = bench.arm.observer
    assert not observer.tared
    began = bench.arm.now
    outcome = bench.tare()
    assert observer.tared
    assert observer.recorder is None
    assert '5 sensors tared over 0.3 s' in outcome.message
    np.testing.assert_array_equal(
        outcome.result.values(bias_names(bench.arm.frames)), observer.bias.ravel())
    first, last = outcome.span
    assert began - 0.01 < 1e-9 * first < began + 0.01
    assert 1e-9 * (last - first) == pytest.approx(0.3, abs=0.01)
    assert np.abs(bench.arm.run(0.2)[-1].wrench[:, :3]).max() < 1.0


def test_links_with_imus_without_joint_states() -> None:
    bench = ProcedureBench(imus={'ft_link_2_proximal': 'imu_link_2'})
    bench.spoil('joint_states_silent')
    bench.arm.run(0.1)
    outcome = bench.tare()
    assert outcome.result is None
    assert 'only links with IMUs were tared, each as a whole: ft_link_2_proximal' in \
        outcome.message
    told = bench.arm.run(0.2)[-1]
    assert told.links == (0,)
    assert np.abs(told.wrench[0, :3]).max() < 1.0
    assert bench.arm.observer.tared


def test_a_cancelled_or_silent_one_leaves_all_as_it_was() -> None:
    bench = ProcedureBench()
    bench.stop_after = 0.1
    with pytest.raises(CancelledError, match='Enough'):
        bench.tare()
    bench.stop_after = np.inf
    bench.spoil('joint_states_silent')
    bench.arm.run(0.1)
    with pytest.raises(DataError, match='The reason. Nothing was tared'):
        bench.tare()
    observer = bench.arm.observer
    assert not observer.tared
    assert observer.recorder is None
    np.testing.assert_array_equal(observer.bias, 0.0)


def test_other_limits_serve_without_new_samples() -> None:
    bench = ProcedureBench()
    strict, values = replace(bench.arm.values, tare_force_limit=0.1), bench.arm.values
    with pytest.raises(DataError, match='No samples at rest are recorded'):
        bench.procedure.estimate(values)
    with pytest.raises(DataError, match='expected at most 0.1 N'):
        asyncio.run(bench.procedure.run(strict))
    assert not bench.arm.observer.tared
    assert '5 sensors tared' in bench.procedure.estimate(values).message
    assert bench.arm.observer.tared
    assert bench.procedure.clear() == pytest.approx(0.3 * 500, abs=6)
    with pytest.raises(DataError, match='No samples at rest are recorded'):
        bench.procedure.estimate(values)
