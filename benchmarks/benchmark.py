# SPDX-License-Identifier: Apache-2.0
"""A benchmark, its request and outcome, and parallel execution."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.figures import Figure
from robocal_ros.cli.console import ProgressView

Case = TypeVar('Case')


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


def _ignore_interrupt() -> None:
    """Ignore Ctrl-C: the parent process ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


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
        keep: Called with each seed and its outcome as soon as there is one.

    Returns:
        The outcomes in the order of the seeds.

    """
    if not seeds:
        return []
    found: dict[int, Case] = {}
    # Spawned processes: forked ones would inherit locks of the parent's threads.
    context = multiprocessing.get_context('spawn')
    with (
        ProgressView(title) as view,
        context.Pool(min(jobs, len(seeds)), _ignore_interrupt) as pool,
    ):
        for seed, case in pool.imap_unordered(_Seeded(function), seeds):
            found[seed] = case
            keep(seed, case)
            view.update(100.0 * len(found) / len(seeds), f'{len(found)} of {len(seeds)} cells')
    return [found[seed] for seed in seeds]


@dataclass(frozen=True)
class _Seeded:
    """Returns the seed with the outcome, because outcomes arrive in any order."""

    function: Callable[[int], Any]

    def __call__(self, seed: int) -> tuple[int, Any]:
        return seed, self.function(seed)
