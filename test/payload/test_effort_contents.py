# SPDX-License-Identifier: Apache-2.0
"""Efforts with and without the arm's own torques."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.excitation_cell import exciting
from support.forward import Tool
from test_two_plane import Experiment, experiment, values_for

from robocal_ros.errors import ConfigurationError, ExcitationError
from robocal_ros.estimation.effort_contents import check_contents
from robocal_ros.messages.samples import JointSamples, Recording
from robocal_ros.payload.estimator import PAYLOAD, estimate
from robocal_ros.payload.result import COM
from robocal_ros.results.provenance import Inputs
from robocal_ros.results.result import CalibrationResult
from robocal_ros.robot.model import RigidBodyInertia
from robocal_ros.robot.setup import make_store


@pytest.fixture(scope='module')
def case() -> Experiment:
    return experiment('robocal', 'upright', Tool(2.0, np.array([0.04, -0.06, 0.09])), 0, rate=50.0)


def external(case: Experiment) -> JointSamples:
    """Return the samples with efforts that lack what holds the bare arm."""
    samples = case.samples()
    held = case.robot.gravity_torques(samples.position)
    return case.samples(effort=samples.effort - held)


def found(
    case: Experiment, samples: JointSamples, contents: str, folder: Path
) -> CalibrationResult:
    values = values_for(case, effort_contains=contents, results_dir=str(folder))
    return estimate(case.robot, Recording(samples), values,
                    PAYLOAD.inputs(case.robot, values, make_store(case.robot, values).load))


def test_external_efforts_give_the_payload_of_all_efforts(
    case: Experiment, tmp_path: Path
) -> None:
    usual = found(case, case.samples(), 'all', tmp_path)
    result = found(case, external(case), 'external', tmp_path)
    np.testing.assert_allclose(result.values(COM), usual.values(COM), atol=1e-9)
    assert result.verdict == usual.verdict


def test_a_compensation_at_work_is_detected(case: Experiment, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match='weight of the bare arm.*effort_contains'):
        found(case, external(case), 'all', tmp_path)


def test_efforts_with_gravity_are_not_external(case: Experiment, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="effort_contains is 'external', but"):
        found(case, case.samples(), 'external', tmp_path)


def test_where_gravity_loads_no_joint_nothing_is_checked(case: Experiment) -> None:
    samples = case.samples()
    light = case.robot.without_mass()
    check_contents(samples, light, 'all', 0.5)
    check_contents(samples, light, 'external', 0.5)


@pytest.mark.parametrize('mass', [0.0, 20.0])
def test_a_heavy_payload_alone_is_not_taken_for_the_arm(case: Experiment, mass: float) -> None:
    """Its weight holds as much as the bare arm's."""
    heavy = case.robot.with_payload(RigidBodyInertia(20.0, case.tool.com, np.zeros((3, 3))))
    external = (heavy.gravity_torques(case.motion.position)
                - case.robot.gravity_torques(case.motion.position))
    samples = case.samples(effort=external + 0.3 * np.sign(case.motion.velocity))
    with pytest.raises(ConfigurationError, match="payload .*alone explains.*'external'"):
        check_contents(samples, case.robot, 'all', 0.5, mass)
    check_contents(samples, case.robot, 'external', 0.5, mass)
    both = case.samples(effort=samples.effort + case.robot.gravity_torques(case.motion.position))
    check_contents(both, case.robot, 'all', 0.5, mass)


def test_of_an_arm_that_carries_what_its_model_holds_no_payload_is_doubted(
    case: Experiment
) -> None:
    """Gains that are 30 % low look as if a payload of negative mass lightened the arm."""
    weak = case.samples(effort=0.68 * case.robot.gravity_torques(case.motion.position))
    with pytest.raises(ConfigurationError, match='payload alone explains'):
        check_contents(weak, case.robot, 'all', 0.5)
    check_contents(weak, case.robot, 'all', 0.5, None)
    # Nor in a reference run, whose motion is to be an exciting one.
    values = values_for(case, method='excitation', excitation_source='torque',
                        reference_run='record')
    with pytest.raises(ExcitationError):
        estimate(case.robot, Recording(weak), values, Inputs())
    with pytest.raises(ConfigurationError, match='payload alone explains'):
        estimate(case.robot, Recording(weak), replace(values, reference_run='off'), Inputs())


@pytest.mark.parametrize('sign', [-1.0, 1.0])
def test_one_joint_turning_tells_nothing_of_a_payload(case: Experiment, sign: float) -> None:
    """Static friction of the joints at rest looks like a payload, also a negative one."""
    q = np.tile(case.motion.position[0], (200, 1))
    q[:, -1] += np.linspace(-0.6, 0.6, 200)
    effort = case.robot.gravity_torques(q) + sign * np.array([0.0, 12.0, 8.0, 1.0, 1.0, 0.4])
    check_contents(JointSamples(
        case.robot.joint_names, np.arange(200) / 100.0, q, np.zeros_like(q), effort),
        case.robot, 'all', 0.5)


def test_a_lever_of_more_than_a_metre_is_no_payloads(case: Experiment) -> None:
    """Static friction of joints at rest can look like one."""
    for lever, detected in ((0.5, True), (1.2, False)):
        long = case.robot.with_payload(RigidBodyInertia(
            8.0, np.array([0.0, 0.0, -lever]), np.zeros((3, 3))))
        samples = case.samples(effort=long.gravity_torques(case.motion.position)
                               - case.robot.gravity_torques(case.motion.position))
        with pytest.raises(ConfigurationError, match='alone explains') if (
                detected) else nullcontext():
            check_contents(samples, case.robot, 'all', 0.5, 8.0)


def test_the_least_share_of_the_weight_is_a_parameter(case: Experiment) -> None:
    weak = case.samples(effort=0.4 * case.samples().effort)
    with pytest.raises(ConfigurationError, match=r'at least 50 % \(min_weight_share\)'):
        check_contents(weak, case.robot, 'all', 0.5)
    check_contents(weak, case.robot, 'all', 0.3)


@pytest.mark.parametrize(('scale', 'message'), [
    # N·m/A of the joints.
    (1e3 / np.array([14.0, 14.0, 12.0, 5.0, 5.0, 4.0]),
     r'reaches [\d.]+ N·m, \d+ times its limit of \d+ N·m in the URDF\. As currents in mA they '
     r"would be plausible \([\d.]+ A\): set effort_source to 'current'.* N·m/mA"),
    (np.full(6, 1e3), "In N·mm they would hold the arm: set effort_source to 'current' and torque_"
                      'constants to 0.001'),
])
def test_another_unit_is_named(case: Experiment, scale: np.ndarray, message: str) -> None:
    for contents in ('all', 'external'):
        with pytest.raises(ConfigurationError, match=message):
            check_contents(case.samples(effort=scale * case.samples().effort), case.robot,
                           contents, 0.5)


def test_advice_on_the_unit_is_not_refused_again(case: Experiment) -> None:
    constants = np.array([14.0, 14.0, 12.0, 5.0, 5.0, 4.0])
    milliamperes = 1e3 / constants * case.samples().effort
    with pytest.raises(ConfigurationError, match=r"Where the constants are not known.*'unknown'"):
        check_contents(case.samples(effort=milliamperes), case.robot, 'all', 0.5)
    check_contents(case.samples(effort=1e-3 * constants * milliamperes), case.robot, 'all', 0.5)
    with pytest.raises(ConfigurationError, match="or to 'unknown' if these are not known"):
        check_contents(case.samples(effort=1e-3 * milliamperes), case.robot, 'all', 0.5)
    # Torque constants in N·m/A, and currents in mA.
    with pytest.raises(ConfigurationError, match=r'or to a thousandth of what they are'):
        check_contents(case.samples(effort=constants * milliamperes), case.robot, 'all', 0.5)


def test_peaks_beyond_a_rated_torque_are_plausible(case: Experiment) -> None:
    effort = case.samples().effort
    rated = case.robot.copy()
    rated.effort_limit = np.quantile(np.abs(effort), 0.99, axis=0) / 2.5
    check_contents(case.samples(), rated, 'all', 0.5)


def test_static_friction_of_a_long_rest_is_no_payload(case: Experiment) -> None:
    """It looks like one of negative mass if the rest counts by its duration."""
    motion = exciting(seed=9)
    time = np.maximum(np.linspace(-20.0, 8.0, 400), 0.0)
    q, v, _ = motion.at(time)
    dry, rests = np.array([0.0, 40.0, -20.0, 0.0, 4.0, 0.0]), time[:, None] == 0.0
    effort = case.robot.gravity_torques(q) + np.where(rests, dry, np.abs(dry) * np.sign(v))
    check_contents(JointSamples(case.robot.joint_names, np.linspace(0.0, 28.0, 400), q, v * ~rests,
                                effort), case.robot, 'all', 0.5)


def test_no_samples_contradict_nothing(case: Experiment) -> None:
    check_contents(case.samples().rows(0, 0), case.robot, 'all', 0.5)
