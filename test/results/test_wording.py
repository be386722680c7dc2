# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import pytest
from hypothesis import given, settings, strategies as st
from support.result_examples import example

from robocal_ros.results.result import Parameter, State
from robocal_ros.results.wording import described, reading, rounded, title_of, without_value


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
    assert without_value(parameters) == [
        'Not identified: static, exponent of joint_1, joint_2 (not chosen).',
        'Not identified: joint_3.static_forward (one run).']


def test_value_that_the_user_gave_says_so() -> None:
    shown = reading(Parameter('mass', 'kg', 2.0, state=State.NOT_EVALUATED))
    assert (shown.text, shown.state) == ('2 kg', 'given')


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
