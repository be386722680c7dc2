# SPDX-License-Identifier: Apache-2.0
"""Figures of a benchmark with their limits, and the conditions they were measured under."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from robocal_ros import __version__
from robocal_ros.results.result import CalibrationResult

_LIBRARIES = ('numpy', 'scipy', 'pin', 'mujoco', 'ompl')


@dataclass(frozen=True)
class Timing:
    """Computation time of an estimate.

    Attributes:
        method: Method.
        recorded: Duration of the recording [s].
        samples: Number of joint states in it.
        taken: Computation time [s].

    """

    method: str
    recorded: float
    samples: int
    taken: float


@dataclass(frozen=True)
class Figure:
    """One figure over all cases.

    Attributes:
        series: Method and object of the measurement.
        what: Measured quantity.
        unit: Unit of the numbers.
        median: Median over the cases.
        worst: Worst case.
        bar: Limit of the worst case; None without a limit.
        at_least: True if the limit is a lower one, and the worst case the smallest.

    """

    series: str
    what: str
    unit: str
    median: float
    worst: float
    bar: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """True if the worst case meets the limit; None without a limit."""
        if self.bar is None:
            return None
        return self.worst >= self.bar if self.at_least else self.worst <= self.bar

    def plain(self) -> dict[str, Any]:
        """Return the fields and `met` as plain data."""
        return {**asdict(self), 'met': self.met}


@dataclass(frozen=True)
class Deviation:
    """Deviation of one identified parameter from the truth.

    Attributes:
        series: Method and kind of tool.
        seed: Seed of the case.
        parameter: Name of the parameter.
        unit: Its unit.
        truth: Hidden value.
        error: Identified minus hidden value.
        std: Stated standard deviation; None if none was stated.
        verdict: Verdict of the result.

    """

    series: str
    seed: int
    parameter: str
    unit: str
    truth: float
    error: float
    std: float | None
    verdict: str


def deviations(
    series: str, seed: int, result: CalibrationResult, truth: Mapping[str, float],
    names: Sequence[str],
) -> list[Deviation]:
    """Compare a result with the truth.

    Args:
        series: Method and kind of tool.
        seed: Seed of the case.
        result: The result.
        truth: Hidden values by parameter name.
        names: Parameters to compare.

    """
    values = result.values(names)
    return [
        Deviation(series, seed, name, result.parameter(name).unit, truth[name],
                  float(value - truth[name]), result.parameter(name).std, result.verdict.value)
        for name, value in zip(names, values, strict=True)
    ]


def error_figures(
    found: Sequence[Deviation], series: str, bars: Mapping[str, float]
) -> Iterator[Figure]:
    """Yield median and worst error of each parameter of a series.

    Errors of the mass are relative [%], all others absolute [mm].

    Args:
        found: All deviations.
        series: Series to select.
        bars: Limits by parameter name; the others have none.

    """
    own = [item for item in found if item.series == series]
    for name in dict.fromkeys(item.parameter for item in own):
        items = [item for item in own if item.parameter == name]
        scale = [abs(item.truth) / 100.0 if name == 'mass' else 1e-3 for item in items]
        errors = np.abs([item.error for item in items]) / np.array(scale)
        yield Figure(series, f'error of {name}', '%' if name == 'mass' else 'mm',
                     float(np.median(errors)), float(errors.max()), bars.get(name))


def coverage(found: Sequence[Deviation], series: str) -> tuple[int, int]:
    """Return the number of 95 % intervals of a series that contain the truth, and of all."""
    own = [item for item in found if item.series == series and item.std]
    return sum(abs(item.error) <= 1.96 * (item.std or 0.0) for item in own), len(own)


def shares(found: Sequence[Deviation]) -> list[str]:
    """Return a sentence per series: passed verdicts, and intervals that contain the truth."""
    sentences = []
    for series in dict.fromkeys(item.series for item in found):
        verdicts = {item.seed: item.verdict for item in found if item.series == series}
        passed = sum(verdict == 'pass' for verdict in verdicts.values())
        inside, count = coverage(found, series)
        sentences.append(f'{series}: verdict pass in {passed} of {len(verdicts)}; {inside} of '
                         f'{count} 95 % intervals contain the truth.')
    return sentences


def conditions() -> dict[str, Any]:
    """Return time, machine and versions."""
    return {
        'time': datetime.now(timezone.utc).isoformat(timespec='seconds'),
        'processor': _processor(),
        'cores': os.cpu_count(),
        'system': platform.platform(),
        'python': platform.python_version(),
        'robocal_ros': __version__,
        **{name: _version(name) for name in _LIBRARIES},
    }


def _processor() -> str:
    """Return the model name of the CPU."""
    information = Path('/proc/cpuinfo')
    if information.exists():
        for line in information.read_text(encoding='utf-8').splitlines():
            if line.startswith('model name'):
                return line.partition(':')[2].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return 'not installed as a Python package'
