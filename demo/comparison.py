# SPDX-License-Identifier: Apache-2.0
"""Identified against hidden: what the demo puts side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from robocal_ros.results.result import CalibrationResult, Verdict

LEVEL = 0.999
"""Level of the interval in which the truth must lie."""


@dataclass(frozen=True)
class Comparison:
    """One number, as it is and as it was found.

    Attributes:
        capability: Capability, e.g. ``payload``.
        method: Method.
        parameter: Name of the parameter.
        unit: SI unit of the numbers.
        truth: What the simulated arm hides.
        estimate: What was identified.
        std: Standard deviation of the estimate; None if none is known.
        verdict: Verdict of the result.
        covered: Whether the truth lies in the estimate's 99.9 % interval.

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
        """Return it as plain data."""
        plain = asdict(self)
        del plain['covered']
        return {**plain, 'verdict': self.verdict.value}


def compare(result: CalibrationResult, truth: Mapping[str, float]) -> list[Comparison]:
    """Put the parameters of a result beside the truth, where there is one.

    Args:
        result: What was identified.
        truth: What is hidden, by parameter, in the result's frame.

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
