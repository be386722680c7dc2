# SPDX-License-Identifier: Apache-2.0
"""Static poses and calibration of the sensor against wrenches composed apart from them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given, settings, strategies as st
from support.arms import MOUNTS, arm
from support.excitation_cell import SENSORS, wrench_of
from support.forward import Tool, random_tool, trapezoid

from robocal_ros.errors import ConfigurationError, DataError, ExcitationError
from robocal_ros.messages.samples import JointSamples, WrenchSamples
from robocal_ros.payload.estimator import SENSOR
from robocal_ros.payload.model import static_wrench_regressor
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.static_poses import (
    PARAMETERS,
    TILT,
    PoseMeasurement,
    estimate,
    estimate_calibration,
    measure,
)
from robocal_ros.results.result import CalibrationResult, State, Verdict
from robocal_ros.robot.model import Robot
from robocal_ros.robot.setup import calibration_matrix

RATE = 200.0
NOISE = np.array([0.3] * 3 + [0.01] * 3)
TOOL = Tool(2.0, np.array([0.04, -0.06, 0.09]))
BIAS = np.array([7.0, -4.0, 9.0, 0.4, -0.3, 0.2])
# The sensor of these records is calibrated, and the base is level.
EXACT = {'sensor_gain_std': 0.0, 'tilt_std': 0.0, 'arm_model_std': 0.0}


def own_wrench(name: str, tool: Tool | None, gravity: Sequence[float], postures: np.ndarray
               ) -> np.ndarray:
    """Return what hangs on a sensor at rest exerts on it, shape (k, 6)."""
    still = np.zeros_like(postures)
    return wrench_of(name, tool, postures, still, still, gravity)


@dataclass(frozen=True)
class Record:
    """Postures held one after the other, and what the sensor feels without noise."""

    name: str
    robot: Robot
    sensor: str
    tool: Tool
    time: np.ndarray
    position: np.ndarray
    wrench: np.ndarray
    bias: np.ndarray

    def joints(self) -> JointSamples:
        position = np.round(self.position / 2e-5) * 2e-5
        return JointSamples(self.robot.joint_names, self.time, position, 0.0 * position,
                            0.0 * position)

    def readings(self, seed: int = 0, noise: float = 1.0) -> np.ndarray:
        generator = np.random.default_rng(seed)
        return self.wrench + self.bias + noise * NOISE * generator.normal(size=self.wrench.shape)

    def sensor_samples(self, wrench: np.ndarray) -> WrenchSamples:
        return WrenchSamples(self.sensor, self.time, wrench)

    def estimate(self, wrench: np.ndarray | None = None, seed: int = 0,
                 **more) -> CalibrationResult:
        wrench = self.readings(seed) if wrench is None else wrench
        return estimate(self.robot, self.joints(), self.sensor_samples(wrench),
                        PayloadParameters(**{**EXACT, **more}))

    def during(self, number: int) -> np.ndarray:
        """Return which rows lie in a posture, by its place in time."""
        found = measure(self.robot, self.joints(), self.sensor_samples(self.readings()))
        return np.abs(self.position - found[number].posture).max(axis=1) < 1e-3

    @property
    def truth(self) -> np.ndarray:
        return np.array([self.tool.mass, *self.tool.com, *self.bias])


def spread_postures(robot: Robot, count: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    low, high = robot.sampling_limits()
    return generator.uniform(low, high, (count, robot.n))


def held(robot: Robot, postures: np.ndarray, dwell: float) -> tuple[np.ndarray, np.ndarray]:
    """Rest in each posture, with ways between them; times and positions at 200 Hz."""
    pieces, here = [], postures[0]
    for posture in postures:
        if np.abs(posture - here).max() > 1e-9:
            pieces.append(trapezoid(here, posture, 0.1 + np.abs(posture - here).max() / 4.0,
                                    3.0, RATE)[0])
        # Rest is recognised from positions 50 ms to both sides, and 150 ms are cut at the ends.
        pieces.append(np.tile(posture, (int((dwell + 0.4) * RATE), 1)))
        here = posture
    position = np.vstack(pieces)
    return np.arange(len(position)) / RATE, position


def record(name: str, mount: str, tool: Tool, seed: int, *, count: int = 12, dwell: float = 1.0,
           postures: np.ndarray | None = None, bias: np.ndarray = BIAS) -> Record:
    robot = arm(name).robot(mount)
    sensor = SENSORS[name][0]
    postures = spread_postures(robot, count, seed) if postures is None else postures
    time, position = held(robot, postures, dwell)
    # Rows repeat while at rest: compose each posture once.
    unique, back = np.unique(position, axis=0, return_inverse=True)
    wrench = own_wrench(name, tool, MOUNTS[mount], unique)[back.ravel()]
    return Record(name, robot, sensor, tool, time, position, wrench, bias)


@pytest.fixture(scope='module')
def usual() -> Record:
    return record('robocal', 'upright', TOOL, 0)


@pytest.fixture(scope='module')
def short() -> Record:
    return record('robocal', 'upright', TOOL, 0, dwell=0.5)


def error_of(result: CalibrationResult, case: Record) -> np.ndarray:
    return result.values(PARAMETERS) - case.truth


def deviates(result: CalibrationResult, case: Record) -> np.ndarray:
    """Return the errors of mass and centre, in standard deviations."""
    return np.abs(error_of(result, case))[:4] / np.sqrt(np.diag(result.covariance))[:4]


def failed(result: CalibrationResult) -> list[str]:
    return [check.name for check in result.checks if not check.passed]


# ------------------------------------------------------------------------------ recovery


# Each sensor with two mounts.
@pytest.mark.parametrize('number', range(6))
def test_tools_and_biases_are_identified_on_all_sensors_and_mounts(number):
    generator = np.random.default_rng(50 + number)
    name, mount = list(SENSORS)[number % 3], list(MOUNTS)[number % 4]
    bias = np.concatenate((generator.uniform(-10, 10, 3), generator.uniform(-0.5, 0.5, 3)))
    case = record(name, mount, random_tool(generator), number, bias=bias)
    result = case.estimate(seed=number)
    error = error_of(result, case)
    assert abs(error[0]) < 0.005 * case.tool.mass
    # Half a millimetre at 2 kg; lighter tools show less, in proportion.
    assert np.abs(error[1:4]).max() < 0.5e-3 * max(1.0, 2.0 / case.tool.mass)
    assert all(covered(result, case, 0.9999, PARAMETERS))
    assert (result.verdict, failed(result)) == (Verdict.PASS, [])


def test_with_hardly_any_noise_the_result_is_exact(usual):
    result = usual.estimate(usual.readings(noise=1e-6))
    np.testing.assert_allclose(error_of(result, usual), 0.0, atol=2e-4)
    assert abs(error_of(result, usual)[1:4]).max() < 2e-5


def test_the_result_states_method_counts_and_settings(usual):
    result = usual.estimate(tilt_std=0.005)
    assert (result.kind, result.method, result.frame) == ('payload', 'static_poses', 'tool0')
    assert {check.question for check in result.checks} == {
        'informative', 'adequate', 'trustworthy'}
    assert result.counts['poses'] == 12
    assert result.covariance_names == PARAMETERS
    np.testing.assert_allclose(np.sqrt(np.diag(result.covariance)),
                               [result.parameter(p).std for p in PARAMETERS])
    assert result.parameter('inertia_zz').state is State.NOT_EVALUATED
    force, torque = result.validation
    assert (force.unit, torque.unit) == ('N', 'N·m')
    # A mean over a dwell of a second scatters by the noise over the root of about 200.
    assert force.after < 3.0 * 0.3 / np.sqrt(200)
    assert torque.after < 3.0 * 0.01 / np.sqrt(200)
    assert force.before > 5.0


def test_validation_predicts_each_posture_from_the_others_alone(usual):
    poses = measure(usual.robot, usual.joints(), usual.sensor_samples(usual.readings()))
    noise = np.sqrt(np.mean([pose.scatter**2 for pose in poses], axis=0))
    residuals = []
    for i, pose in enumerate(poses):
        others = [p for j, p in enumerate(poses) if j != i]
        weight = np.concatenate([np.sqrt(p.count) / noise for p in others])
        rows = np.vstack([rows_of(usual, p) for p in others])
        value = np.linalg.lstsq(rows * weight[:, None], weight * np.concatenate(
            [without_links(usual, p) for p in others]), rcond=None)[0]
        residuals.append(without_links(usual, pose) - rows_of(usual, pose) @ value)
    result = usual.estimate(cable_stiffness_std=0.0)
    for number, fit in enumerate(result.validation):
        part = np.array(residuals)[:, 3 * number:3 * number + 3]
        # Random effects that happen to be above zero weight postures slightly otherwise.
        assert fit.after == pytest.approx(np.sqrt(np.mean(part**2)), rel=0.03)
        assert fit.after > 1.05 * result.fit[number].after


def rows_of(case: Record, pose: PoseMeasurement) -> np.ndarray:
    return static_wrench_regressor(pose.rotation.T @ case.robot.gravity)


def without_links(case: Record, pose: PoseMeasurement) -> np.ndarray:
    """Return the reading minus the weight of the links at their centre, moved to the origin."""
    weight = pin.Force(pose.distal.mass * pose.rotation.T @ case.robot.gravity, np.zeros(3))
    return pose.wrench - pin.SE3(np.eye(3), pose.distal.com).act(weight).vector


# ------------------------------------------------------- efficiency, intervals, invariants


@given(st.lists(st.floats(-50.0, 50.0), min_size=6, max_size=6))
@settings(max_examples=10)
def test_a_bias_moves_the_biases_alone(short, bias):
    a = short.estimate()
    b = short.estimate(short.readings() + np.array(bias))
    np.testing.assert_allclose(b.values(PARAMETERS) - a.values(PARAMETERS),
                               [0.0] * 4 + bias, atol=1e-6)
    np.testing.assert_allclose(a.covariance, b.covariance, rtol=1e-6, atol=1e-15)


def test_another_tool_frame_moves_the_centre_and_nothing_else(short):
    at_sensor = replace(short, robot=Robot(arm('robocal').urdf, tool_frame='ft_wrist'))
    a, b = short.estimate(), at_sensor.estimate()
    np.testing.assert_allclose(
        b.values(PARAMETERS) - a.values(PARAMETERS), [0, 0, 0, 0.025] + [0] * 6, atol=1e-12)
    np.testing.assert_allclose(a.covariance, b.covariance, rtol=1e-9, atol=1e-18)


# --------------------------------------------------------------------------- wrong things


def flange_up(count: int) -> np.ndarray:
    """Postures in which only the first joint turns: gravity stays put in the sensor."""
    postures = np.tile([0.0, 0.3, -0.2, 0.4, 0.9, 0.3], (count, 1))
    postures[:, 0] = np.linspace(-2.0, 2.0, count)
    return postures


def test_postures_with_one_direction_of_gravity_are_refused():
    case = record('robocal', 'upright', TOOL, 0, postures=flange_up(8))
    with pytest.raises(
            ExcitationError, match=r'unobservable: .*tilt the sensor about both') as caught:
        case.estimate()
    # Every parameter hides behind a bias when gravity never moves: a mass and three biases of
    # force, two of the moments and the biases of torque.
    assert caught.value.rank == 6
    assert {'mass', 'bias_tx', 'bias_ty', 'bias_tz'} <= set(caught.value.unobservable)


def test_two_directions_of_gravity_leave_one_moment_unobservable():
    base = np.array([0.0, 0.3, -0.2, 0.4, 0.9, 0.3])
    postures = np.array([base + [0.5 * i, 0, 0, 0, 1.0 * (i % 2), 0] for i in range(8)])
    case = record('robocal', 'upright', TOOL, 0, postures=postures)
    with pytest.raises(ExcitationError, match='9 of 10 .*moment_') as caught:
        case.estimate()
    assert not {'mass', 'bias_fx', 'bias_fy', 'bias_fz'} & set(caught.value.unobservable)


@pytest.mark.parametrize(('tool', 'postures', 'words'), [
    (TOOL, spread_postures(arm('robocal').robot(), 5, 0),
     r'5 different postures .*at least 6.*Hold each'),
    # The same posture again does not count twice.
    (TOOL, np.repeat(spread_postures(arm('robocal').robot(), 4, 0), 2, axis=0)
     + 0.01 * np.array([[0], [1]] * 4), '4 different postures'),
    (Tool(1e-9, np.zeros(3)), None, r'mass is -?0.00. kg.*Is a tool mounted'),
])
def test_too_few_postures_or_nothing_mounted_are_refused(tool, postures, words):
    case = record('robocal', 'upright', tool, 0, postures=postures)
    with pytest.raises(DataError, match=words):
        case.estimate()


def test_a_sensor_of_the_wrong_sign_is_refused_with_the_remedy(usual):
    with pytest.raises(DataError, match=r'estimated mass is -\d.*sensor_sign'):
        usual.estimate(-usual.readings())


@pytest.mark.parametrize(('share', 'passes'), [(0.002, True), (0.05, False)])
def test_spikes_are_left_out_and_named(usual, share, passes):
    generator = np.random.default_rng(0)
    readings = usual.readings()
    hit = generator.random(len(readings)) < share
    spiky = readings + np.where(hit[:, None], generator.normal(size=readings.shape) * 400.0, 0.0)
    result, clean = usual.estimate(spiky), usual.estimate(readings)
    assert result.parameter('mass').value == pytest.approx(
        clean.parameter('mass').value, abs=clean.parameter('mass').std)
    (check,) = (item for item in result.checks if item.name == 'spikes')
    assert check.passed == passes
    assert check.reason.startswith(f'{result.counts["spikes"]} of ')
    assert not [item for item in clean.checks if item.name == 'spikes']


@pytest.mark.parametrize(('channel', 'value'), [(1, 0.0), (5, 12.3)])
def test_a_stuck_channel_is_named(usual, channel, value):
    readings = usual.readings()
    readings[:, channel] = value
    name = ('force', 'torque')[channel // 3] + ' ' + 'xyz'[channel % 3]
    with pytest.raises(DataError, match=f"Channel {name} of .*'ft_wrist' is constant"):
        usual.estimate(readings)


@pytest.mark.parametrize('channel', [2, 3])
def test_a_channel_that_sticks_in_half_of_the_postures_shows(usual, channel):
    readings = usual.readings()
    readings[len(readings) // 2:, channel] = readings[len(readings) // 2, channel]
    assert usual.estimate(readings).verdict is Verdict.FAIL


def test_a_payload_above_the_limit_is_refused(usual):
    with pytest.raises(DataError, match=r'weighs 2.0. kg, more than max_payload .*1.5 kg'):
        usual.estimate(max_payload=1.5)
    assert usual.estimate(max_payload=2.5).verdict is Verdict.PASS


@pytest.mark.parametrize(('channel', 'number'), [(0, 0), (2, 11), (4, 5)])
def test_a_push_during_one_posture_shows(usual, channel, number):
    readings = usual.readings()
    readings[usual.during(number), channel] += 20.0 * NOISE[channel]
    result = usual.estimate(readings)
    what = 'force' if channel < 3 else 'torque'
    assert f'worst posture, {what}' in failed(result)
    assert f'contact or push in posture {number + 1}' in ' '.join(result.reasons)


@pytest.mark.parametrize('number', [0, 5, 11])
def test_a_push_that_begins_during_a_posture_shows_or_does_no_harm(usual, number):
    there = np.flatnonzero(usual.during(number))
    readings = usual.readings()
    readings[there[len(there) // 2:], 1] += 6.0
    result = usual.estimate(readings)
    assert result.verdict is Verdict.FAIL or deviates(result, usual).max() < 4.0


def test_swapped_axes_show(usual):
    readings = usual.readings()[:, [1, 0, 2, 3, 4, 5]]
    assert usual.estimate(readings).verdict is Verdict.FAIL


def test_links_beyond_the_sensor_widen_the_intervals_and_are_named():
    tool = Tool(1.0, np.array([0.0, 0.0, 0.05]))
    case = record('panda', 'upright', tool, 0)
    exact, usual = case.estimate(), case.estimate(arm_model_std=0.05)
    hand = usual.settings['distal_mass']
    assert hand > 0.5
    assert exact.verdict is Verdict.PASS
    assert usual.parameter('mass').value == exact.parameter('mass').value
    assert usual.parameter('mass').std == pytest.approx(
        np.hypot(exact.parameter('mass').std, 0.05 * hand), rel=1e-3)
    # As a mass by itself it is not sharp.
    narrow = case.estimate(arm_model_std=0.05, max_mass_interval=0.03)
    assert failed(narrow) == ['95 % interval of the mass']
    assert f'{hand:.2f} kg of links distal to the sensor' in narrow.reasons[0]
    without = record('ur5', 'upright', tool, 0).estimate(arm_model_std=0.05)
    assert without.settings['distal_mass'] == 0.0
    assert without.verdict is Verdict.PASS


@pytest.mark.parametrize('share', [-0.1, 0.1])
def test_errors_of_links_beyond_the_sensor_cancel_in_torques(share):
    """What the URDF's hand is too heavy, the payload is too light, and drivers are told both."""
    case = record('panda', 'upright', Tool(1.0, np.array([0.02, 0.0, 0.05])), 0)
    gravity = MOUNTS['upright']
    hand = own_wrench('panda', None, gravity, case.position)
    result = case.estimate(case.readings() + share * hand, arm_model_std=0.05)
    assert result.verdict is Verdict.PASS
    assert 'beside the 0.7' in ' '.join(check.reason for check in result.checks)
    # What the sensor carries, and what the model of the arm holds with the payload.
    carried = own_wrench('panda', case.tool, gravity, case.position) + share * hand
    mass, *com = result.values(PARAMETERS[:4])
    stated = own_wrench('panda', Tool(mass, np.array(com)), gravity, case.position)
    assert np.abs(stated - carried)[:, :3].max() < 0.1
    assert np.abs(stated - carried)[:, 3:].max() < 0.01
    assert abs(mass - case.tool.mass) > 0.05


def test_a_distant_centre_fails_its_check():
    case = record('robocal', 'upright', Tool(2.0, np.array([0.0, 0.0, 1.2])), 0)
    assert 'plausible place' in failed(case.estimate())
    assert 'plausible place' not in failed(case.estimate(max_com_distance=1.3))


def test_the_limits_of_the_residuals_decide_and_a_share_of_the_load_raises_them(usual):
    every = {f'held-out {what}' for what in ('force', 'torque')}
    assert not every & set(failed(usual.estimate()))
    for what in ('force', 'torque'):
        values = {f'max_{what}_residual': 1e-4, 'max_residual_share': 0.0}
        assert every & set(failed(usual.estimate(**values))) == {f'held-out {what}'}
        values['max_residual_share'] = 0.1
        assert not every & set(failed(usual.estimate(**values)))


def test_a_light_tool_fails_by_its_interval_not_silently():
    case = record('robocal', 'upright', Tool(0.05, np.array([0.0, 0.05, 0.0])), 0, dwell=0.5)
    result = case.estimate(max_mass_interval=0.03)
    assert '95 % interval of the mass' in failed(result)
    assert result.parameter('com_x').std > 0.5e-3
    # Whatever its interval, so light a tool hardly loads any joint.
    assert failed(case.estimate()) == []


def test_missing_recordings_are_named(usual):
    joints, sensor = usual.joints(), usual.sensor_samples(usual.readings())
    with pytest.raises(DataError, match='No joint states are recorded'):
        estimate(usual.robot, joints.rows(0, 0), sensor, PayloadParameters())
    nothing = WrenchSamples('ft_wrist', np.zeros(0), np.zeros((0, 6)))
    with pytest.raises(DataError, match="'ft_wrist' are recorded; is its topic"):
        estimate(usual.robot, joints, nothing, PayloadParameters())


def test_too_few_readings_of_a_dwell_do_not_count(usual):
    sensor = WrenchSamples('ft_wrist', usual.time[::40], usual.readings()[::40])
    with pytest.raises(DataError, match='0 different postures'):
        estimate(usual.robot, usual.joints(), sensor, PayloadParameters())


# --------------------------------------------------------------- sensors that are not perfect


def disturbed(case: Record, wrench: np.ndarray, seed: int = 0) -> np.ndarray:
    """Add a wrench to each posture in turn, shape (postures, 6)."""
    readings = case.readings(seed)
    for number, extra in enumerate(wrench):
        readings[case.during(number)] += extra
    return readings


def covered(result: CalibrationResult, case: Record, level: float,
            names: Sequence[str] = PARAMETERS[:4]) -> list[bool]:
    intervals = [result.parameter(name).interval(level) for name in names]
    return [low <= value <= high
            for value, (low, high) in zip(case.truth, intervals, strict=False)]


def test_structured_residuals_of_a_real_sensor_pass_with_intervals_that_cover(short):
    """Calibration matrix, drift and a cable: none of them is what the estimator assumes."""
    generator = np.random.default_rng(101)
    scale = np.array([1.0, 1.0, 1.0, 0.1, 0.1, 0.1])
    matrix = 0.004 * generator.normal(size=(6, 6)) * np.outer(scale, 1.0 / scale)
    age = short.time / short.time[-1]
    drift = generator.normal(size=6) * 0.3 * scale
    cable = generator.normal(size=6) * 0.1 * scale
    readings = (short.readings(1) @ (np.eye(6) + matrix).T
                + np.outer(1.0 - np.exp(-3.0 * age), drift)
                + np.outer(np.sin(short.position[:, 5]), cable))
    result = short.estimate(readings, sensor_gain_std=0.005, tilt_std=0.005)
    assert result.verdict is Verdict.PASS, result.reasons
    # Far beyond white noise, which is 0.03 N for a mean of 100 readings.
    assert result.validation[0].after > 0.05
    assert all(covered(result, short, 0.999))


@pytest.mark.parametrize('seed', [0, 5])
def test_scatter_between_few_postures_is_not_lost_among_drift_and_gains(seed):
    """In six postures these explain nearly all of it by chance."""
    case = record('robocal', 'upright', TOOL, seed, count=6, dwell=0.5)
    scatter = np.random.default_rng(seed).normal(size=(6, 6)) * ([0.2] * 3 + [0.01] * 3)
    result = case.estimate(disturbed(case, scatter, seed))
    assert all(covered(result, case, 0.999, PARAMETERS))


def test_the_stated_gain_of_the_sensor_widens_the_mass(short):
    plain = short.estimate().parameter('mass')
    stated = short.estimate(sensor_gain_std=0.02).parameter('mass')
    # Of all channels, and in addition of each: their mean is off by a third of the variance.
    links = 1.0 + short.estimate().settings['distal_mass'] / TOOL.mass
    expected = np.hypot(plain.std, np.sqrt(4.0 / 3.0) * 0.02 * TOOL.mass * links)
    assert stated.std == pytest.approx(expected, rel=0.1)
    loud = short.estimate(1.03 * short.readings(), sensor_gain_std=0.02, max_mass_interval=0.1)
    links = loud.settings['distal_mass']
    assert loud.parameter('mass').value == pytest.approx(1.03 * (TOOL.mass + links) - links,
                                                         rel=2e-3)
    assert covered(loud, short, 0.95)[0]


def drift(case: Record) -> np.ndarray:
    return case.readings() + np.outer(case.time / case.time[-1], [3.0, -2.0, 2.0, 0.0, 0.0, 0.0])


def cable(case: Record, stiffness: float = 0.3) -> np.ndarray:
    return case.readings() + np.outer(
        case.position[:, 5], stiffness * np.array([10.0, 5.0, 0.0, 1.0, 0.0, 0.0]))


def gain(case: Record) -> np.ndarray:
    return case.readings() * np.array([1.12, 1.0, 1.0, 1.0, 1.0, 1.0])


def saturation(case: Record) -> np.ndarray:
    return np.minimum(case.readings(), case.wrench.max(axis=0) + case.bias - np.array(
        [0.0, 12.0, 0.0, 0.0, 0.0, 0.0]))


def contact(case: Record) -> np.ndarray:
    return disturbed(case, np.eye(12)[:, [3] * 6] * [4.0, 0.0, 3.0, 0.0, 0.2, 0.0])


def wrong_posture(case: Record) -> np.ndarray:
    readings, here, there = case.readings(), case.during(2), case.during(3)
    readings[here] = readings[there].mean(axis=0) + readings[here] - readings[here].mean(axis=0)
    return readings


@pytest.mark.parametrize(('readings', 'words'), [
    (drift, 'drift of the sensor over time'),
    (cable, 'cable or hose'),
    (gain, r'calibration error of the sensor: gain of force x \+1\d\.\d %'),
    (saturation, 'saturated channel: force y'),
    (contact, r'contact or push in posture 4 of 5\.\d\d N'),
    (wrong_posture, 'wrong posture: in posture 3'),
])
def test_residuals_beyond_the_limit_fail_with_their_physical_cause(usual, readings, words):
    result = usual.estimate(readings(usual))
    assert result.verdict is Verdict.FAIL
    assert re.search(f'Most likely cause: an? {words}', ' '.join(result.reasons)), result.reasons


def test_a_cable_that_the_data_show_is_estimated_and_widens_the_intervals(usual):
    plain, pulled = usual.estimate(), usual.estimate(cable(usual, 0.1))
    assert pulled.verdict is Verdict.PASS, pulled.reasons
    assert all(covered(pulled, usual, 0.999))
    assert deviates(pulled, usual).max() < 4.0
    stds = [np.sqrt(np.diag(result.covariance)[:4]) for result in (plain, pulled)]
    assert (stds[1] > stds[0]).all()
    # In data without one there is none.
    sizes = [result.settings['random_effects']['cable of torque'] for result in (plain, pulled)]
    assert sizes[0] < 0.01 < 0.03 < sizes[1]
    # Stiff cables are no part of the model, nor any if none is assumed.
    for result in (usual.estimate(cable(usual, 0.3)),
                   usual.estimate(cable(usual, 0.1), cable_stiffness_std=0.0)):
        assert {'held-out force', 'held-out torque'} & set(failed(result))


@pytest.mark.parametrize('other', [
    Tool(1.9, TOOL.com), Tool(2.0, TOOL.com + [0.008, 0.0, 0.0]), Tool(1.4, TOOL.com)])
def test_a_load_that_changes_is_named_and_both_loads_are_in_the_intervals(usual, other):
    later, readings = record('robocal', 'upright', other, 0), usual.readings()
    after = usual.time > usual.time[usual.during(6)].max()
    readings[after] += (later.wrench - usual.wrench)[after]
    result = usual.estimate(readings)
    assert 'change of load after posture 7' in result.settings['random_effects']
    for case in (usual, later):
        assert all(covered(result, case, 0.999)[:4])
    if other.mass == 1.4:
        assert result.verdict is Verdict.FAIL
        assert all(re.search(r'a load that changed between postures 7 and 8 by -0\.\d+ kg', reason)
                   for reason in result.reasons), result.reasons


def test_where_the_last_joint_rests_no_cable_is_estimated(usual):
    postures = spread_postures(usual.robot, 12, 3)
    postures[:, -1] = 0.3
    result = record('robocal', 'upright', TOOL, 0, postures=postures).estimate()
    assert result.verdict is Verdict.PASS, result.reasons
    assert 'cable of torque' not in result.settings['random_effects']


def tilted(case: Record, degrees: float) -> Record:
    """Have the robot believe in a level base."""
    angle = np.radians(degrees)
    level = Robot(arm('robocal').urdf, gravity=(9.81 * np.sin(angle), 0.0, -9.81 * np.cos(angle)))
    return replace(case, robot=level)


def test_a_tilted_base_is_estimated_if_asked_for(usual):
    case = tilted(usual, 6.0)
    result = case.estimate(estimate_gravity=True)
    assert result.verdict is Verdict.PASS, result.reasons
    angles = [result.parameter(name) for name in TILT]
    assert np.hypot(*(p.value for p in angles)) == pytest.approx(np.radians(6.0), abs=1e-3)
    assert deviates(result, case).max() < 4.0
    assert result.covariance_names == (*PARAMETERS, *TILT)


@pytest.mark.parametrize('lean', [0.0, 5.0])
def test_postures_that_do_not_observe_gravity_leave_the_biases_open(lean):
    """Turning joint 5 alone shows how the base leans about its axis, but not along it."""
    postures = np.tile([0.0, 0.2, -0.6, 0.0, 0.6, 0.3], (10, 1))
    postures[:, 4] = np.linspace(-1.8, 1.8, 10)
    case = record('robocal', 'upright', TOOL, 0, postures=postures)
    gravity = pin.exp3(np.radians([lean, -lean, 0.0])) @ [0.0, 0.0, -9.81]
    result = replace(case, robot=Robot(arm('robocal').urdf, gravity=tuple(gravity))).estimate(
        estimate_gravity=True, sensor_gain_std=0.005, tilt_std=0.005)
    assert result.verdict is Verdict.PASS, result.reasons
    assert all(result.parameter(name).state is State.NOT_IDENTIFIED for name in TILT)
    assert all(covered(result, case, 0.999, PARAMETERS))


@pytest.mark.parametrize('stated', [0.0, 0.005])
def test_a_tilted_base_fails_with_what_to_do(usual, stated):
    result = tilted(usual, 6.0).estimate(tilt_std=stated)
    assert result.verdict is Verdict.FAIL
    assert 'set estimate_gravity' in ' '.join(result.reasons)


def one_line_each(case: Record, readings: np.ndarray, repeats: int = 1) -> CalibrationResult:
    """Estimate from one joint state and one reading per posture, a second apart."""
    rows = np.concatenate([np.flatnonzero(case.during(number))[10:10 + repeats]
                           for number in range(12)])
    time = np.arange(len(rows), dtype=float)
    joints = JointSamples(case.robot.joint_names, time, case.position[rows],
                          0.0 * case.position[rows], 0.0 * case.position[rows])
    return estimate(case.robot, joints, WrenchSamples(case.sensor, time, readings[rows]),
                    PayloadParameters(**EXACT))


def test_one_line_per_posture_is_enough_and_says_that_noise_is_unknown(usual):
    result = one_line_each(usual, usual.readings())
    assert result.verdict is Verdict.PASS, result.reasons
    assert result.counts['poses'] == 12
    assert deviates(result, usual).max() < 4.5
    # Forces of single readings scatter by 0.3 N.
    assert result.settings['random_effects']['scatter of force'] == pytest.approx(0.3, rel=0.4)
    assert 'Noise within postures is unknown' in ' '.join(c.reason for c in result.checks)


def test_repeated_lines_of_a_posture_provide_the_noise(usual):
    result = one_line_each(usual, usual.readings(), repeats=4)
    assert result.counts['poses'] == 12
    assert 'is unknown' not in ' '.join(c.reason for c in result.checks)


# ------------------------------------------------------------------ calibration matrix

# The links between sensor and tool are as in the URDF.
WEIGHED = PayloadParameters(
    method='static_poses', known_mass=2.0, known_mass_std=0.004, arm_model_std=0.0)


def weighed(seed: int) -> Record:
    return record('robocal', 'upright', Tool(2.0, np.array([0.02, -0.03, 0.08])), seed, dwell=0.5)


def matrix_of(generator: np.random.Generator, size: float) -> np.ndarray:
    """Return a calibration matrix whose elements are off by a share, over 10 cm for torque."""
    relative = size * generator.normal(size=(6, 6))
    scale = np.repeat([1.0, 0.1], 3)
    return np.eye(6) + relative * scale[:, None] / scale


def calibrated(
    case: Record, matrix: np.ndarray, seed: int, noise: float = 1.0, **values: float
) -> CalibrationResult:
    generator = np.random.default_rng(seed)
    wrench = case.wrench @ matrix.T + case.bias + noise * NOISE * generator.normal(
        size=case.wrench.shape)
    return estimate_calibration(case.robot, case.joints(), case.sensor_samples(wrench), replace(
        WEIGHED, known_mass=case.tool.mass + 0.004 * generator.normal(), **values))


@pytest.mark.parametrize('seed', range(4))
def test_the_matrix_is_found_within_its_intervals_and_corrects_readings(seed: int) -> None:
    generator = np.random.default_rng(seed)
    case = weighed(seed)
    matrix = matrix_of(generator, 0.01)
    result = calibrated(case, matrix, seed)
    assert result.verdict is Verdict.PASS, result.reasons
    frame, found = calibration_matrix(result)
    assert frame == case.sensor
    deviates = (found - matrix).ravel() / [p.std for p in result.parameters]
    assert np.abs(deviates).max() < 3.5
    # Weights in all directions at the place of the tool, which are other ones than its own.
    force = 20.0 * generator.normal(size=(100, 3))
    contacts = np.hstack((force, np.cross([0.02, -0.03, 0.08], force)))
    read = contacts @ matrix.T
    corrected = read @ np.linalg.inv(found).T
    before, after = (np.sqrt(np.mean((item - contacts)[:, :3]**2)) for item in (read, corrected))
    assert after < 0.3 * before
    held_out = {fit.what: (fit.before, fit.after) for fit in result.validation}
    assert held_out['force'][1] < 0.5 * held_out['force'][0]


@pytest.mark.parametrize('dropped', [0.05, 0.1, 0.3])
def test_a_weighed_tool_that_loses_a_part_does_not_pass_with_wrong_gains(dropped: float) -> None:
    """The weighed mass is that of one of both loads, not their mean."""
    case = weighed(0)
    less = record('robocal', 'upright', Tool(2.0 - dropped, case.tool.com), 0, dwell=0.5)
    wrench, after = case.wrench.copy(), case.time > case.time[case.during(6)].max()
    wrench[after] = less.wrench[after]
    result = calibrated(replace(case, wrench=wrench), np.eye(6), 0)
    gain = result.parameter('fx_by_fx')
    assert result.verdict is Verdict.FAIL or abs(gain.value - 1.0) < 3.29 * gain.std


def test_what_a_shifted_centre_resembles_is_not_identified() -> None:
    case = weighed(0)
    result = calibrated(case, np.eye(6), 0)
    assert result.parameter('tx_by_tx').state is State.NOT_IDENTIFIED
    assert result.parameter('fx_by_ty').state is State.NOT_IDENTIFIED
    assert result.parameter('fx_by_fx').state is State.IDENTIFIED
    # Known by the sum of both, not one by one: the difference resembles a shift along x.
    names = ('ty_by_fz', 'tz_by_fy')
    covariance = result.covariance_of(names)
    shift, sum_ = (np.array([1.0, sign]) for sign in (-1.0, 1.0))
    assert sum_ @ covariance @ sum_ < 0.5 * (shift @ covariance @ shift)


def test_links_of_unknown_mass_below_the_sensor_leave_the_scale_open() -> None:
    case = weighed(1)
    exact, rough = (calibrated(case, np.eye(6), 0, arm_model_std=std) for std in (0.0, 0.05))
    distal = case.robot.distal_inertia(case.sensor).mass
    for result, links in ((exact, 0.0), (rough, 0.05 * distal)):
        names = ('fx_by_fx', 'fy_by_fy', 'fz_by_fz')
        scale = np.sqrt(result.covariance_of(names).mean())
        # With a prior of half a percent for all channels together, and one for each.
        assert scale < np.hypot(0.004, links) / 2.0 * 1.5
        assert scale > 0.9 / np.hypot(1.0 / 0.0058, 2.0 / np.hypot(0.004, links))


def test_a_light_tool_does_not_tell_the_gains() -> None:
    case = record('robocal', 'upright', Tool(0.1, np.array([0.0, 0.0, 0.02])), 0, dwell=0.5)
    result = calibrated(case, np.eye(6), 0)
    assert result.verdict is Verdict.FAIL
    assert any('A heavier tool' in reason for reason in result.reasons)


@pytest.mark.parametrize(('changes', 'words'), [
    ({'known_mass': 0.0}, 'needs the mass of the mounted tool'),
    ({'method': 'two_plane'}, "Set method to 'static_poses'")])
def test_without_what_it_needs_it_is_refused(changes, words: str) -> None:
    case = record('robocal', 'upright', Tool(2.0, np.zeros(3)), 0, count=6, dwell=0.5)
    # With any method its estimator asks for the sensor, not for efforts.
    assert SENSOR.needs(replace(WEIGHED, **changes)).wrenches
    with pytest.raises(ConfigurationError, match=words):
        estimate_calibration(case.robot, case.joints(), case.sensor_samples(case.readings()),
                 replace(WEIGHED, **changes))


def test_another_result_is_no_matrix() -> None:
    case = record('robocal', 'upright', Tool(2.0, np.zeros(3)), 0, dwell=0.5)
    with pytest.raises(DataError, match='payload'):
        calibration_matrix(case.estimate())


@given(st.integers(0, 1000))
def test_a_load_at_rest_by_spatial_algebra(seed):
    generator = np.random.default_rng(seed)
    com, gravity = generator.normal(size=(2, 3))
    weight = pin.SE3(np.eye(3), com).act(pin.Force(1.3 * gravity, np.zeros(3))).vector
    bias = generator.normal(size=6)
    rows = static_wrench_regressor(gravity)
    np.testing.assert_allclose(rows @ [1.3, *(1.3 * com), *bias], weight + bias, atol=1e-12)
