# SPDX-License-Identifier: Apache-2.0
"""The result type: verdict, reasons, parameters."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from support.result_examples import example

from robocal_ros.errors import DataError
from robocal_ros.results.result import CalibrationResult, Check, Parameter, State, Verdict
from robocal_ros.results.wording import described, not_shown, reading, rounded, shown, title_of

GOOD = Check('fine', True, 1.0, 2.0, 'm', 'It is fine.')
BAD = Check('broken', False, 3.0, 2.0, 'm', 'It is broken.')


def result(**changes) -> CalibrationResult:
    return replace(example(), **{'checks': (GOOD,), **changes})


def test_a_result_passes_only_with_held_out_data_and_no_failed_check():
    assert result().verdict is Verdict.PASS
    assert result().reasons == ('It is fine.',)
    assert result(validation=()).verdict is Verdict.NOT_EVALUATED
    assert result(validation=()).reasons == ('No held-out data: the fit could not be validated.',)


@pytest.mark.parametrize('validation', [(), example().validation])
def test_one_failed_check_fails_the_result_and_is_the_reason(validation):
    failed = result(checks=(GOOD, BAD), validation=validation)
    assert failed.verdict is Verdict.FAIL
    assert failed.reasons == ('It is broken.',)


def test_a_result_reads_as_its_verdict_and_values():
    some = (Parameter('com_x', 'm', 0.1, 0.01), Parameter('com_y', 'm', 0.2, 0.02),
            Parameter('mass', 'kg', 2.0, note='given'),
            Parameter('inertia_xx', 'kg·m²', state=State.NOT_IDENTIFIED))
    assert repr(result(checks=(BAD,), parameters=some)).splitlines() == [
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


@pytest.mark.parametrize('shape', [(2, 2), (3,), (2, 3)])
def test_the_covariance_must_fit_its_names(shape):
    with pytest.raises(DataError, match=r'Covariance has shape .* expected \(3, 3\)'):
        result(covariance=np.zeros(shape))


def test_parameters_by_name_and_refusals_with_the_names_there_are():
    assert result().parameter('com_z').value == 0.0123
    np.testing.assert_array_equal(result().values(('com_z', 'mass')), [0.0123, 2.0 / 3.0])
    with pytest.raises(DataError, match=r"payload result has no parameter 'com_w'.*com_x, com_z"):
        result().parameter('com_w')
    with pytest.raises(DataError, match=r"'inertia_xx' .*not_evaluated: at rest"):
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


@pytest.mark.parametrize(('value', 'resolution', 'text'), [
    (101.98765, 0.0948, '101.988'),
    (101.98765, 0.948, '101.99'),
    (101.98765, 9.48, '102.0'),
    (-0.0110198, 3.5e-5, '−0.011020'),
    (2.0003357, 0.00139, '2.0003'),
    (12345.678, 1200.0, '12300'),
    (9.996, 0.996, '10.0'),
    (-0.0001, 0.02, '0.000'),
    (0.0, None, '0'),
    (1.0 / 3.0, None, '0.33333'),
    (5.0, 0.0, '5'),
    (5.0, math.inf, '5'),
    (math.inf, 1.0, '∞'),
    (-math.inf, None, '−∞'),
    (math.nan, 1.0, 'not a number'),
])
def test_numbers_get_the_decimals_that_count(
    value: float, resolution: float | None, text: str
) -> None:
    assert rounded(value, resolution) == text


@settings(deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e3))
def test_rounding_stays_well_within_the_resolution(value: float, resolution: float) -> None:
    shown = float(rounded(value, resolution).replace('−', '-'))
    assert abs(shown - value) <= 0.051 * resolution


def test_metres_are_read_in_millimetres() -> None:
    shown = reading(Parameter('com_x', 'm', 0.0179976, 1.524e-5))
    assert (shown.value, shown.half, shown.unit, shown.state) == (
        '17.998', '0.030', 'mm', 'identified')
    assert shown.text == '17.998 ± 0.030 mm'


def test_parameter_without_value_tells_its_state() -> None:
    shown = reading(Parameter('inertia_xx', 'kg·m²', state=State.NOT_EVALUATED))
    assert shown.text == 'not evaluated'


def test_parameters_of_many_joints_without_value_are_listed_once() -> None:
    def left(joint: str, name: str, note: str) -> Parameter:
        return Parameter(f'{joint}.{name}', 'N·m', state=State.NOT_IDENTIFIED, note=note)

    parameters = [left(f'joint_{j}', f'{name}_{side}', 'not chosen') for j in (1, 2)
                  for name in ('static', 'exponent') for side in ('forward', 'backward')]
    parameters += [left('joint_3', 'static_forward', 'one run'), Parameter('mass', 'kg', 2.0)]
    assert not_shown(parameters) == [
        'Not identified: static, exponent of joint_1, joint_2 (not chosen).',
        'Not identified: joint_3.static_forward (one run).']


def test_values_that_are_carried_along_are_told_beside_the_others() -> None:
    mass = Parameter('joint_2.mass', 'kg', 3.0, 0.1, State.NOT_IDENTIFIED, 'by the URDF')
    gain = Parameter('joint_2.effort_scale', '1', 1.1, 0.01)
    given = Parameter('mass', 'kg', 2.0, state=State.NOT_EVALUATED)
    assert shown([mass, gain, given]) == [gain, given]
    assert not_shown([mass, gain, given]) == ['Not identified: joint_2.mass (by the URDF).']


def test_value_that_the_user_gave_says_so() -> None:
    found = reading(Parameter('mass', 'kg', 2.0, state=State.NOT_EVALUATED))
    assert (found.text, found.state) == ('2 kg', 'given')


@pytest.mark.parametrize(('name', 'words'), [
    ('mass', 'mass'),
    ('com_x', 'centre of mass x'),
    ('inertia_xy', 'inertia xy'),
    ('bias_fx', 'sensor bias, force x'),
    ('bias_tz', 'sensor bias, torque z'),
    ('joint_6.torque_offset', 'joint_6, torque offset'),
    ('joint_1.coulomb_forward', 'joint_1, coulomb forward'),
    ('apex', 'apex'),
])
def test_names_in_words(name: str, words: str) -> None:
    assert described(name) == words


def test_title_names_kind_and_method() -> None:
    assert title_of(example()) == 'Payload, two plane'
