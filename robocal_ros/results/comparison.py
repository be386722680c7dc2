# SPDX-License-Identifier: Apache-2.0
"""Comparison of two results of one kind: each difference with its interval."""

from __future__ import annotations

import math

import scipy

from robocal_ros.errors import ConfigurationError
from robocal_ros.results import wording
from robocal_ros.results.report import Panel
from robocal_ros.results.result import Z95, CalibrationResult, State

# Probability of any difference by chance, over all values together.
_CHANCE = 0.05


def comparison(first: CalibrationResult, second: CalibrationResult) -> Panel:
    """Return the differences of two results, as a section of a report.

    Errors of the two count as independent. A difference is significant if chance exceeds it in 5 %
    of such comparisons, all values together (Šidák).

    Args:
        first: One result, such as that of before.
        second: The other one.

    Raises:
        ConfigurationError: If kinds, joints or frames differ.

    """
    for what, own, other in (
            ('kinds', first.kind, second.kind), ('frames', first.frame, second.frame),
            ('joints', first.robot.joint_names, second.robot.joint_names)):
        if own != other:
            raise ConfigurationError(
                f'Results of different {what} cannot be compared: {own} and {other}.')
    known = {item.name: item for item in second.parameters if item.state is State.IDENTIFIED}
    pairs = [(item, known[item.name]) for item in first.parameters
             if item.state is State.IDENTIFIED and item.name in known]
    limit = float(-scipy.special.ndtri(
        0.5 * (1.0 - (1.0 - _CHANCE) ** (1.0 / max(len(pairs), 1)))))
    rows, significant = [], 0
    for a, b in pairs:
        unit, factor = wording.handy(a.unit)
        half = factor * math.hypot(a.half_width() or 0.0, b.half_width() or 0.0)
        change = factor * ((b.value or 0.0) - (a.value or 0.0))
        beyond = abs(change) * Z95 > limit * half
        significant += beyond
        rows.append((wording.described(a.name),
                     *(wording.rounded(factor * (item.value or 0.0), half) for item in (a, b)),
                     wording.rounded(change, half), wording.rounded(half, half), unit,
                     'significant' if beyond else 'within chance'))
    return Panel(
        f'{wording.title_of(second)} against {wording.title_of(first)}', not significant,
        f'{significant} of {len(rows)} values differ by more than chance. Errors count as '
        'independent; those of the same arm model or scale are common to both, and cancel.',
        (('value', False), ('first', True), ('second', True), ('difference', True),
         ('± (95 %)', True), ('unit', False), ('', False)), tuple(rows))
