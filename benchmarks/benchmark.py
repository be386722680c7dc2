# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: request, outcome, figures with bands and limits, conditions, parallel cells."""

from __future__ import annotations

import multiprocessing
import os
import platform
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.stats

from robocal_ros import __version__
from robocal_ros.arrays import Array
from robocal_ros.cli.console import ProgressView

Case = TypeVar('Case')

_LIBRARIES = ('numpy', 'scipy', 'pin', 'mujoco', 'ompl', 'idyntree', 'figaroh')


@dataclass(frozen=True)
class Figure:
    """One figure over all cases.

    Attributes:
        series: Method and object of the measurement.
        what: Measured quantity.
        unit: Unit of the numbers.
        median: Median over the cases, or the single value.
        worst: Worst case, or the single value.
        bar: Limit of the worst case; None without a limit.
        at_least: True if the limit is a lower one, and the worst case the smallest.
        band: 95 % confidence band of the median or single value; None if it has none.
        reason: Why the limit is missed, in case it is.

    """

    series: str
    what: str
    unit: str
    median: float
    worst: float
    bar: float | None = None
    at_least: bool = False
    band: tuple[float, float] | None = None
    reason: str = ''

    @classmethod
    def over(
        cls, series: str, what: str, unit: str, values: Sequence[float] | Array,
        bar: float | None = None, *, at_least: bool = False, reason: str = '',
    ) -> Figure:
        """Return the figure of some cases; its band is that of the median."""
        found = np.asarray(values, dtype=float)
        return cls(series, what, unit, float(np.median(found)),
                   float(found.min() if at_least else found.max()), bar, at_least,
                   median_band(found), reason)

    @classmethod
    def single(
        cls, series: str, what: str, unit: str, value: float, bar: float | None = None, *,
        at_least: bool = False, band: tuple[float, float] | None = None, reason: str = '',
    ) -> Figure:
        """Return the figure of one value."""
        return cls(series, what, unit, value, value, bar, at_least, band, reason)

    @classmethod
    def share(
        cls, series: str, what: str, count: int, total: int, bar: float | None = None, *,
        at_least: bool = True, reason: str = '',
    ) -> Figure:
        """Return the figure of a share of ``total`` independent cases [%]."""
        value = 100.0 * count / total
        low, high = share_band(count, total)
        return cls(series, f'{what}, of {total}', '%', value, value, bar, at_least,
                   (100.0 * low, 100.0 * high), reason)

    @property
    def met(self) -> bool | None:
        """True if the worst case meets the limit; None without a limit."""
        if self.bar is None:
            return None
        return self.worst >= self.bar if self.at_least else self.worst <= self.bar


def share_band(count: int, total: int) -> tuple[float, float]:
    """Return the 95 % confidence band of a share (Clopper and Pearson, Biometrika 26 (1934) 404).

    Args:
        count: Number of cases of the kind.
        total: Number of all independent cases.

    """
    band = scipy.stats.binomtest(count, total).proportion_ci(0.95)
    return float(band.low), float(band.high)


def median_band(values: Sequence[float] | Array) -> tuple[float, float] | None:
    """Return the 95 % confidence band of a median, by order statistics; None below six values."""
    found = np.sort(np.asarray(values, dtype=float))
    rank = int(scipy.stats.binom.ppf(0.025, len(found), 0.5))
    if rank < 1:
        return None
    return float(found[rank - 1]), float(found[len(found) - rank])


def bootstrap(
    figure: Callable[[Sequence[int]], float], count: int, draws: int = 500
) -> tuple[float, float] | None:
    """Return the 95 % confidence band of a figure of independent cases; None without one.

    Args:
        figure: Figure of some cases, by their numbers.
        count: Number of the cases.
        draws: Number of bootstrap samples.

    """
    drawn = np.random.default_rng(0).integers(max(count, 1), size=(draws, count)).tolist()
    values = np.array([figure(numbers) for numbers in drawn])
    if count < 2 or not np.isfinite(values).any():
        return None
    low, high = np.nanquantile(values, (0.025, 0.975))
    return float(low), float(high)


@dataclass(frozen=True)
class Request:
    """Options of a benchmark run.

    Attributes:
        seeds: Seeds of the random cells.
        jobs: Number of parallel processes.
        output: Folder for logs.
        quick: True to try every step at the smallest size; limits do not hold then.

    """

    seeds: Sequence[int]
    jobs: int
    output: Path
    quick: bool = False


@dataclass(frozen=True)
class Table:
    """A comparison, for the page.

    Attributes:
        title: Title.
        columns: Names of the columns, with units.
        rows: Rows of cells: Markdown, numbers, or None for an empty cell.

    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]


@dataclass(frozen=True)
class Outcome:
    """Outcome of a benchmark.

    Attributes:
        figures: Figures with their limits.
        cases: The single repetitions.
        remarks: Sentences to print below the figures.
        tables: Comparisons.

    """

    figures: Sequence[Figure]
    cases: Sequence[Any] = ()
    remarks: Sequence[str] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Benchmark:
    """One benchmark; its module has an instance named ``BENCHMARK``.

    Attributes:
        title: Heading of its section on the page.
        about: Sentences on what is measured, and on what.
        run: Runs it; raises `RobocalError` if a repetition fails.
        seeds: Number of random cells that the limits refer to.

    """

    title: str
    about: str
    run: Callable[[Request], Outcome]
    seeds: int = 1


def in_parallel(
    function: Callable[[int], Case], seeds: Sequence[int], jobs: int, title: str,
    keep: Callable[[int, Case], None] = lambda *_: None,
) -> list[Case]:
    """Run a function for each seed in parallel processes, with a progress bar.

    Args:
        function: Function of a seed; picklable.
        seeds: The seeds.
        jobs: Number of parallel processes.
        title: Title of the progress bar.
        keep: Called with each seed and its outcome as soon as there is one, in their order.

    Returns:
        The outcomes in the order of the seeds.

    """
    if not seeds:
        return []
    found: list[Case] = []
    # Spawned processes: forked ones would inherit locks of the parent's threads.
    context = multiprocessing.get_context('spawn')
    with (
        ProgressView(title) as view,
        # Of Ctrl-C, the parent process ends its workers.
        context.Pool(min(jobs, len(seeds)), signal.signal,
                     (signal.SIGINT, signal.SIG_IGN)) as pool,
    ):
        for seed, case in zip(seeds, pool.imap(function, seeds), strict=True):
            found.append(case)
            keep(seed, case)
            view.update(100.0 * len(found) / len(seeds), f'{len(found)} of {len(seeds)} cells')
    return found


def conditions() -> dict[str, Any]:
    """Return time, commit, machine and versions of the installed libraries."""
    found = {item.name: item.version for item in distributions()}
    return {
        'time': datetime.now(timezone.utc).isoformat(timespec='seconds'),
        'commit': _commit(),
        'processor': _processor(),
        'cores': os.cpu_count(),
        'system': platform.platform(),
        'python': platform.python_version(),
        'robocal_ros': __version__,
        **{name: found[name] for name in _LIBRARIES if name in found},
    }


def _commit() -> str:
    """Return the commit that is measured, with a mark if files differ from it.

    Those that benchmarks write themselves do not count.
    """
    def told(*arguments: str) -> str:
        return subprocess.run(
            ['git', *arguments], cwd=Path(__file__).parents[1], capture_output=True, text=True,
            check=True).stdout.strip()

    try:
        changed = told('status', '--porcelain', '--untracked-files=no', '--', '.',
                       ':!bench', ':!docs/benchmarks.md', ':!docs/images')
        return told('describe', '--always', '--exclude', '*') + ('-dirty' if changed else '')
    except (OSError, subprocess.CalledProcessError):
        return 'unknown'


def _processor() -> str:
    """Return the model name of the CPU."""
    information = Path('/proc/cpuinfo')
    text = information.read_text(encoding='utf-8') if information.exists() else ''
    found = re.search(r'^model name\s*: (.*)', text, re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()
