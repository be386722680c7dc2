# SPDX-License-Identifier: Apache-2.0
"""The result type: verdict, reasons, parameters."""

from __future__ import annotations

import numpy as np
import pytest

from robocal_ros.errors import DataError
from robocal_ros.results.result import (
    CalibrationResult,
    Check,
    Fit,
    Parameter,
    RobotIdentity,
    State,
    Verdict,
)

GOOD = Check('fine', True, 1.0, 2.0, 'm', 'It is fine.')
BAD = Check('broken', False, 3.0, 2.0, 'm', 'It is broken.')
HELD_OUT = (Fit('torque', 'N·m', 2.0, 0.1, 50),)


def result(**changes) -> CalibrationResult:
    fields = {
        'kind': 'payload', 'method': 'two_plane',
        'robot': RobotIdentity('arm', 'abc', ('a', 'b')), 'frame': 'tool0',
        'parameters': (
            Parameter('com_x', 'm', 0.1, 0.01), Parameter('com_y', 'm', 0.2, 0.02),
            Parameter('mass', 'kg', 2.0, None, State.NOT_EVALUATED, 'given'),
            Parameter('inertia_xx', 'kg·m²', state=State.NOT_IDENTIFIED, note='no motion')),
        'covariance_names': ('com_x', 'com_y'), 'covariance': np.diag([1e-4, 4e-4]),
        'fit': HELD_OUT, 'validation': HELD_OUT, 'checks': (GOOD,), 'counts': {},
        'settings': {}, 'source': 'live', 'time': 1.0, 'software_version': '0', **changes}
    return CalibrationResult(**fields)


def test_a_result_passes_only_with_held_out_data_and_no_failed_check():
    assert result().verdict is Verdict.PASS
    assert result().reasons == ('It is fine.',)
    assert result(validation=()).verdict is Verdict.NOT_EVALUATED
    assert result(validation=()).reasons == (
        'No held-out data: the fit could not be validated.',)


@pytest.mark.parametrize('validation', [(), HELD_OUT])
def test_one_failed_check_fails_the_result_and_is_the_reason(validation):
    failed = result(checks=(GOOD, BAD), validation=validation)
    assert failed.verdict is Verdict.FAIL
    assert failed.reasons == ('It is broken.',)


def test_a_result_reads_as_its_verdict_and_values():
    assert repr(result(checks=(BAD,))).splitlines() == [
        'payload by two_plane of arm: fail', '  com_x 0.1 ± 0.02 m', '  com_y 0.2 ± 0.039 m',
        '  mass 2 kg']
    many = tuple(Parameter(f'p{number}', 'm', 1.0) for number in range(20))
    assert repr(result(parameters=many)).splitlines()[-2:] == ['  p11 1 m', '  … 8 more']


def test_a_result_cannot_be_changed():
    found = result()
    with pytest.raises(ValueError, match='read-only'):
        found.covariance[0, 0] = 0.0
    with pytest.raises(AttributeError):
        found.kind = 'friction'


@pytest.mark.parametrize('shape', [(3, 3), (2,), (2, 3)])
def test_the_covariance_must_fit_its_names(shape):
    with pytest.raises(DataError, match=r'Covariance has shape .* expected \(2, 2\)'):
        result(covariance=np.zeros(shape))


def test_parameters_by_name_and_refusals_with_the_names_there_are():
    assert result().parameter('com_y').value == 0.2
    np.testing.assert_array_equal(result().values(('com_y', 'mass')), [0.2, 2.0])
    with pytest.raises(DataError, match=r"payload result has no parameter 'com_w'.*com_x, com_y"):
        result().parameter('com_w')
    with pytest.raises(DataError, match=r"'inertia_xx' .*not_identified: no motion"):
        result().values(('com_x', 'inertia_xx'))


def test_intervals_of_the_normal_distribution():
    # Two-sided quantiles: 1.959964 sigma at 95 %, 3.290527 sigma at 99.9 %.
    assert Parameter('a', '1', 5.0, 2.0).interval() == pytest.approx(
        (5.0 - 2.0 * 1.959964, 5.0 + 2.0 * 1.959964), abs=1e-5)
    assert Parameter('a', '1', 0.0, 1.0).interval(0.999)[1] == pytest.approx(3.290527, abs=1e-5)
    assert Parameter('a', '1', 5.0).interval() is None
    assert Parameter('a', '1', None, 1.0).interval() is None


def test_texts_have_the_interval_that_the_result_states():
    # Student's two-sided 95 % quantile of 4 degrees of freedom is 2.7764.
    few = Parameter('a', 'm', 0.012, 0.001, freedom=4.0)
    assert few.half_width() == pytest.approx(2.7764e-3, abs=1e-7)
    assert few.text(2, 1e3) == '12.00 ± 2.78'
    assert Parameter('a', 'm', 0.012).text(3) == '0.012'
    assert Parameter('a', 'm', state=State.NOT_IDENTIFIED).text(3) == 'not identified'
