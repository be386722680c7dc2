# SPDX-License-Identifier: Apache-2.0
"""Results as previews expect them, against those of the run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.excitation_cell import RATE, SENSORS, TOOL, WRENCH_NOISE, Record, exciting

from robocal_ros.errors import DataError
from robocal_ros.messages import JointSamples, Recording, WrenchSamples
from robocal_ros.payload import (
    PAYLOAD,
    PayloadParameters,
    duration_in,
    estimator,
    expected_result,
    expected_text,
    gain_std_in,
    objection_in,
    verdict_in,
)
from robocal_ros.results import CalibrationResult, Check, Inputs
from robocal_ros.results.result import Input
from robocal_ros.robot import ARM, DRIVE_GAINS, Trajectory

TOPIC = 'ft_wrist/wrench'
VALUES = PayloadParameters(method='excitation', sensor_frame=SENSORS['robocal'][0],
                           sensor_topic=TOPIC)


@pytest.fixture(scope='module')
def record() -> Record:
    return Record('robocal', TOOL, exciting())


@pytest.fixture(scope='module')
def stored(record: Record) -> CalibrationResult:
    return PAYLOAD.result(record.robot, Recording(record.joints(2), {TOPIC: record.readings(2)}),
                          VALUES, Inputs())


def resting(record: Record, noise: float) -> Recording:
    """Return the scatter of the resting arm."""
    generator, time = np.random.default_rng(1), np.arange(125) / RATE
    still = np.zeros((len(time), record.robot.n))
    return Recording(
        JointSamples(record.robot.joint_names, time, still, still,
                     still + noise * generator.normal(size=still.shape)),
        {TOPIC: WrenchSamples(VALUES.sensor_frame, time, 5.0 + WRENCH_NOISE * generator.normal(
            size=(len(time), 6)))})


def motion(record: Record) -> Trajectory:
    return Trajectory(record.time, *record.motion.at(record.time))


def test_intervals_are_those_of_the_run(record: Record, stored: CalibrationResult) -> None:
    expected = expected_result(PAYLOAD, record.robot, VALUES, Inputs(), motion(record),
                               resting(record, 0.1), TOOL.mass)
    for name in ('mass', 'com_x', 'com_y', 'com_z'):
        ratio = expected.parameter(name).std / stored.parameter(name).std
        assert 1.0 / 1.5 < ratio < 1.5, (name, ratio)
    # What carries the sensor's noise, and no bias of it, is in the expected load.
    assert expected.parameter('mass').value == pytest.approx(TOOL.mass, rel=0.02)
    assert verdict_in(expected_text(expected)) == stored.verdict.value == 'pass'


def test_the_stored_payload_of_the_tool_tells_its_centre(
    record: Record, stored: CalibrationResult
) -> None:
    inputs = Inputs(beside={'payload': stored})
    for values, same in ((VALUES, True), (replace(VALUES, tool='another'), False)):
        expected = expected_result(PAYLOAD, record.robot, values, inputs, motion(record),
                                   resting(record, 0.1), TOOL.mass)
        off = expected.values(('com_x', 'com_y', 'com_z')) - TOOL.com
        assert (np.abs(off).max() < 2e-3) == same


def test_a_sensor_is_expected_to_be_as_exact_as_stated(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated readings without errors of calibration would show an exact one."""
    monkeypatch.setattr(estimator, '_SCATTER', 0.0)
    quiet = resting(record, 0.1)
    own = quiet.wrench(TOPIC)
    quiet = replace(quiet, wrenches={TOPIC: replace(own, wrench=0.1 * own.wrench)})
    deviations = [[expected_result(
        PAYLOAD, record.robot, replace(VALUES, sensor_gain_std=std), Inputs(), motion(record),
        quiet, 8.0).parameter(name).std for name in ('com_x', 'com_y', 'com_z')]
        for std in (0.005, 0.04)]
    assert all(late > 1.2 * early for early, late in zip(*deviations, strict=True)), deviations


def test_a_sensor_that_reads_more_often_tells_more(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside its noise, it scatters by a share of the load between postures."""
    rest = resting(record, 0.1)
    own = rest.wrench(TOPIC)
    often = replace(rest, wrenches={TOPIC: replace(own, time=own.time / 4.0)})

    def residual(rest: Recording) -> float:
        """Return what is expected to be left of the force [N]."""
        return expected_result(PAYLOAD, record.robot, VALUES, Inputs(), motion(record), rest,
                               TOOL.mass).fit[0].after

    scattering = residual(often)
    monkeypatch.setattr(estimator, '_SCATTER', 0.0)
    assert residual(rest) == pytest.approx(2.0 * residual(often), rel=0.02)
    assert scattering > 1.2 * residual(often)


def test_whether_the_model_holds_is_not_foreseen(record: Record) -> None:
    """Such a check would judge the samples that the preview has made up."""
    torque = replace(VALUES, excitation_source='torque', gain_std=0.1)
    for values in (VALUES, torque):
        found = expected_result(PAYLOAD, record.robot, values, Inputs(), motion(record),
                                resting(record, 0.1), TOOL.mass)
        questions = {check.question for check in found.checks}
        assert 'adequate' not in questions
        assert 'informative' in questions


def test_efforts_that_nobody_calibrated_are_expected_to_fail(record: Record) -> None:
    values = replace(VALUES, excitation_source='torque', gain_std=0.1)
    found = expected_result(PAYLOAD, record.robot, values, Inputs(), motion(record),
                            resting(record, 0.1), TOOL.mass)
    assert verdict_in(expected_text(found)) == 'fail'
    assert 'drive gains' in ' '.join(found.reasons)


@pytest.mark.parametrize(('kind', 'known', 'missed', 'word'), [
    ('payload', (), 1.4, 'fail, narrowly'), ('payload', (), 1.6, 'fail'),
    # Without an identified arm, the friction behind drive gains is a guess.
    ('payload', (DRIVE_GAINS,), 2.8, 'fail, narrowly'), ('payload', (DRIVE_GAINS,), 3.2, 'fail'),
    ('payload', (DRIVE_GAINS, ARM), 1.6, 'fail'),
    (DRIVE_GAINS, (), 2.8, 'fail, narrowly'), (DRIVE_GAINS, (ARM,), 1.6, 'fail')])
def test_a_limit_that_is_missed_by_less_than_previews_err_is_missed_narrowly(
    record: Record, kind: str, known: tuple[str, ...], missed: float, word: str
) -> None:
    found = replace(expected_result(
        PAYLOAD, record.robot, VALUES, Inputs(), motion(record), resting(record, 0.1), TOOL.mass
    ), kind=kind, inputs=tuple(
        Input(name, name, name if name in known else '') for name in (ARM, DRIVE_GAINS)))
    narrow = Check('torque error', False, 0.3 * missed, 0.3, 'N·m', 'Not fit. Too wide.')
    text = expected_text(replace(found, checks=(*found.checks, narrow)))
    assert verdict_in(text) == word
    assert objection_in(text) == f'Expected verdict {word}: Not fit'
    # Another reason, such as one without a limit that could be near, decides.
    other = replace(narrow, value=1.0, limit=0.0)
    assert verdict_in(expected_text(replace(
        found, checks=(*found.checks, narrow, other)))) == 'fail'


def test_a_motion_that_is_too_slow_is_refused(record: Record) -> None:
    still = Trajectory(record.time, *(0.0 * part + record.motion.middle if not i else 0.0 * part
                                  for i, part in enumerate(record.motion.at(record.time))))
    with pytest.raises(DataError, match='motion'):
        expected_result(PAYLOAD, record.robot, VALUES, Inputs(), still, resting(record, 0.1), 1.0)


def test_a_silent_sensor_is_refused(record: Record) -> None:
    rest = resting(record, 0.1)
    silent = replace(rest, wrenches={TOPIC: rest.wrench(TOPIC).chosen(np.zeros(125, bool))})
    with pytest.raises(DataError, match="No readings of F/T sensor .* on topic 'ft_wrist/wrench'"):
        expected_result(PAYLOAD, record.robot, VALUES, Inputs(), motion(record), silent, 1.0)


def test_what_an_answer_says_is_read_from_it() -> None:
    text = 'Arm. Expected verdict: fail. Too slow. 3 motions, 71 s with rests; tool0 stays.'
    assert (verdict_in(text), duration_in(text)) == ('fail', 71.0)
    assert objection_in(text) == 'Expected verdict fail: Too slow'
    assert objection_in('No robot. Start it.') == 'No robot. Start it.'
    assert gain_std_in('Expected verdict: pass: a.effort_scale ± 0.035, b.effort_scale ± '
                       '0.02.') == pytest.approx(0.035 / 1.96, rel=1e-3)
    assert (verdict_in('Done.'), duration_in('Done.')) == ('', 0.0)
