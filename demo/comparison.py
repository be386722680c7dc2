# SPDX-License-Identifier: Apache-2.0
"""Comparison of identified values with the hidden truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from robocal_ros.results import CalibrationResult, Verdict

LEVEL = 0.999
"""Confidence level of the interval that must contain the truth."""


@dataclass(frozen=True)
class Comparison:
    """True and identified value of one parameter.

    Attributes:
        capability: Capability, e.g. ``payload``.
        method: Method.
        parameter: Name of the parameter.
        unit: SI unit of the numbers.
        truth: Hidden value.
        estimate: Identified value.
        std: Standard deviation of the estimate; None if unknown.
        verdict: Verdict of the result.
        covered: True if the 99.9 % interval of the estimate contains the truth.

    """

    capability: str
    method: str
    parameter: str
    unit: str
    truth: float
    estimate: float
    std: float | None
    verdict: Verdict
    covered: bool

    def summary(self) -> dict[str, Any]:
        """Return the fields of `summary.json`."""
        plain = asdict(self)
        del plain['covered']
        return {**plain, 'verdict': self.verdict.value}


def compare(result: CalibrationResult, truth: Mapping[str, float]) -> list[Comparison]:
    """Compare the parameters of a result with their hidden values.

    Args:
        result: The result; parameters without a value are skipped.
        truth: Hidden values by parameter name, in the result's frame.

    """
    found = []
    for name, hidden in truth.items():
        parameter = result.parameter(name)
        if parameter.value is None:
            continue
        interval = parameter.interval(LEVEL)
        found.append(Comparison(
            result.kind, result.method, name, parameter.unit, hidden, parameter.value,
            parameter.std, result.verdict,
            interval is not None and interval[0] <= hidden <= interval[1],
        ))
    return found
