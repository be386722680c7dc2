# SPDX-License-Identifier: Apache-2.0
"""Numbers, units and names as shown to readers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from robocal_ros.parameters import all_declarations
from robocal_ros.results.result import CalibrationResult, Parameter, State, Verdict, grouped

_HANDY_UNITS = {'m': ('mm', 1e3), 'rad/(N·m)': ('µrad/(N·m)', 1e6), '1': ('', 1.0)}
_NAMES = {
    'com': 'centre of mass',
    'inertia': 'inertia',
    'bias_f': 'sensor bias, force',
    'bias_t': 'sensor bias, torque',
}

VERDICT_WORDS = {
    Verdict.PASS: 'Pass: every check was met, also on held-out data.',
    Verdict.FAIL: 'Fail: do not use these values. Failed checks:',
    Verdict.NOT_EVALUATED: 'Not evaluated: these values could not be validated.',
}


def heading(text: str) -> str:
    """Return a name with spaces instead of underscores."""
    return text.replace('_', ' ')


def title_of(result: CalibrationResult) -> str:
    """Return the title of a result, e.g. ``Payload, static poses``."""
    kind = heading(result.kind)
    return f'{kind[:1].upper()}{kind[1:]}, {heading(result.method)}'


def described(name: str) -> str:
    """Return a parameter's name in words, e.g. ``centre of mass x`` for ``com_x``."""
    joint, _, own = name.rpartition('.')
    # x is the axis of bias_fx and com_x.
    match = re.fullmatch(rf'({"|".join(_NAMES)})_?([xyz]{{1,2}})', own)
    stem, axis = match.groups() if match else (own, '')
    words = _NAMES.get(stem, heading(stem)) + (f' {axis}' if axis else '')
    return f'{joint}, {words}' if joint else words


def with_unit(name: str) -> str:
    """Return the name of a setting with its unit, if it has one."""
    known = all_declarations().get('known_mass' if name == 'urdf_payload_mass' else name)
    return f'{name} [{known.unit}]' if known and known.unit else name


def handy(unit: str) -> tuple[str, float]:
    """Return the display unit of a quantity, and the factor from SI."""
    return _HANDY_UNITS.get(unit, (unit, 1.0))


def rounded(value: float, resolution: float | None = None) -> str:
    """Return a number with its significant decimals.

    Args:
        value: The number.
        resolution: Uncertainty such as the half-width of its interval; five significant digits
            without it.

    """
    if not math.isfinite(value):
        return {True: '∞', False: '−∞'}[value > 0.0] if math.isinf(value) else 'not a number'
    text = f'{value:.5g}'
    if resolution and math.isfinite(resolution):
        # Two significant digits of the resolution (GUM, JCGM 100:2008, 7.2.6).
        decimals = 1 - math.floor(math.log10(abs(float(f'{abs(resolution):.1e}'))))
        if -5 <= decimals <= 9:
            text = f'{round(value, decimals):.{max(decimals, 0)}f}'
    # A true minus sign aligns with digits; no sign for zero.
    return text.lstrip('-') if float(text) == 0.0 else text.replace('-', '−')


@dataclass(frozen=True)
class Reading:
    """Parameter as shown.

    Attributes:
        value: The number, empty for none.
        half: Half-width of the 95 % interval, empty for none.
        unit: Unit of both, empty for pure numbers.
        state: State in words.

    """

    value: str
    half: str
    unit: str
    state: str

    @property
    def text(self) -> str:
        """Value, interval and unit on one line."""
        if not self.value:
            return self.state
        half = f' ± {self.half}' if self.half else ''
        return f'{self.value}{half} {self.unit}'.rstrip()


def reading(parameter: Parameter) -> Reading:
    """Return a parameter as shown, with its 95 % interval."""
    unit, factor = handy(parameter.unit)
    if parameter.value is None:
        return Reading('', '', unit, heading(parameter.state.value))
    half = parameter.half_width()
    scaled = None if half is None else factor * half
    return Reading(rounded(factor * parameter.value, scaled),
                   rounded(scaled, scaled) if scaled else '', unit,
                   'identified' if parameter.state is State.IDENTIFIED else 'given')


def shown(parameters: Iterable[Parameter]) -> list[Parameter]:
    """Return the parameters whose values say more than what was known before."""
    return [item for item in parameters
            if item.value is not None and item.state is not State.NOT_IDENTIFIED]


def not_shown(parameters: Sequence[Parameter]) -> list[str]:
    """Return sentences on the other parameters, one for each reason."""
    found = shown(parameters)
    missing = grouped((item for item in parameters if item not in found),
                      lambda item: (heading(item.state.value), item.note))
    return [f'{state.capitalize()}: {_listed([item.name for item in items])}'
            f'{f" ({note})" if note else ""}.' for (state, note), items in missing.items()]


def _listed(names: Sequence[str]) -> str:
    """Return names of parameters, those of both directions and of several joints once."""
    own: dict[str, dict[str, None]] = {}
    for name in names:
        joint, _, rest = name.rpartition('.')
        stem, _, side = rest.rpartition('_')
        other = {'forward': 'backward', 'backward': 'forward'}.get(side, '')
        both = f'{joint}.{stem}_{other}' in names
        own.setdefault(joint, {})[stem if both else rest] = None
    joints = grouped(own, lambda joint: tuple(own[joint]))
    return '; '.join(
        f'{", ".join(found)} of {", ".join(of)}' if len(of) > 1 else
        ', '.join(f'{of[0]}.{name}'.lstrip('.') for name in found) for found, of in joints.items())


def setting(value: object) -> str:
    """Return a setting, count or origin as text."""
    if isinstance(value, bool):
        return 'yes' if value else 'no'
    if isinstance(value, float):
        return rounded(value)
    if isinstance(value, list):
        return ', '.join(setting(item) for item in value) or 'none'
    if isinstance(value, dict):
        return '; '.join(f'{key}: {setting(item)}' for key, item in value.items()) or 'none'
    return 'none' if value is None or value == '' else str(value)
