# SPDX-License-Identifier: Apache-2.0
"""Calibration matrices of wrist sensors against ones with which readings were composed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.forward import Tool
from test_static_poses import NOISE, Record, record

from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.payload.estimator import SENSOR
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.sensor_calibration import estimate
from robocal_ros.results.result import CalibrationResult, State, Verdict
from robocal_ros.robot.setup import calibration_matrix

# The links between sensor and tool are as in the URDF.
VALUES = PayloadParameters(
    method='static_poses', known_mass=2.0, known_mass_std=0.004, arm_model_std=0.0)


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
    return estimate(case.robot, case.joints(), case.sensor_samples(wrench), replace(
        VALUES, known_mass=case.tool.mass + 0.004 * generator.normal(), **values))


@pytest.mark.parametrize('seed', range(4))
def test_the_matrix_is_found_within_its_intervals_and_corrects_readings(seed: int) -> None:
    generator = np.random.default_rng(seed)
    case = record('robocal', 'upright', Tool(2.0, np.array([0.02, -0.03, 0.08])), seed, dwell=0.5)
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


def test_what_a_shifted_centre_resembles_is_not_identified() -> None:
    case = record('robocal', 'upright', Tool(2.0, np.array([0.02, -0.03, 0.08])), 0, dwell=0.5)
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
    case = record('robocal', 'upright', Tool(2.0, np.array([0.02, -0.03, 0.08])), 1, dwell=0.5)
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
    assert SENSOR.needs(replace(VALUES, **changes)).wrenches
    with pytest.raises(ConfigurationError, match=words):
        estimate(case.robot, case.joints(), case.sensor_samples(case.readings()),
                 replace(VALUES, **changes))


def test_another_result_is_no_matrix() -> None:
    case = record('robocal', 'upright', Tool(2.0, np.zeros(3)), 0, dwell=0.5)
    with pytest.raises(DataError, match='payload'):
        calibration_matrix(case.estimate())
