# SPDX-License-Identifier: Apache-2.0
"""What a benchmark of a capability is asked for, and what it brings back."""

from __future__ import annotations

import multiprocessing
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.figures import Figure
from robocal_ros.cli.console import ProgressView

Case = TypeVar('Case')


@dataclass(frozen=True)
class Request:
    """How a benchmark is to be run.

    Attributes:
        seeds: Seeds of the repetitions on drawn cells.
        repetitions: Repetitions where efficiency and coverage are counted.
        jobs: How many repetitions may run at a time.
        live: Through the real nodes over DDS, instead of in this process.
        output: Folder for logs.

    """

    seeds: Sequence[int]
    repetitions: int
    jobs: int
    live: bool
    output: Path


@dataclass(frozen=True)
class Outcome:
    """What was measured.

    Attributes:
        figures: Figures beside their bars.
        cases: The repetitions, as plain data.
        remarks: Sentences to tell below the figures.

    """

    figures: Sequence[Figure]
    cases: Sequence[Any] = ()
    remarks: Sequence[str] = field(default_factory=tuple)


class Benchmark(ABC):
    """Measures one capability; each module of this package has one, as ``BENCHMARK``."""

    title: str
    """What is measured, in words."""

    seeds = 20
    """How many cells are drawn when nobody says."""

    live_seeds = 0
    """The same through the real nodes; 0 where that is not offered."""

    @abstractmethod
    def run(self, request: Request) -> Outcome:
        """Measure.

        Args:
            request: How.

        Raises:
            RobocalError: If a repetition cannot be carried out.

        """


def _ignore_interrupt() -> None:
    """Leave Ctrl-C to the parent, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def in_parallel(
    function: Callable[[int], Case], seeds: Sequence[int], jobs: int, title: str
) -> list[Case]:
    """Run repetitions in processes of their own, with progress; returns them by seed.

    Args:
        function: Carries out the repetition of a seed; of a module's top level.
        seeds: The seeds.
        jobs: How many at a time.
        title: What the progress is called.

    """
    found: dict[int, Case] = {}
    # Fresh processes: forked ones would share the parent's threads half.
    context = multiprocessing.get_context('spawn')
    with (
        ProgressView(title) as view,
        context.Pool(min(jobs, len(seeds)), _ignore_interrupt) as pool,
    ):
        for seed, case in pool.imap_unordered(_Seeded(function), seeds):
            found[seed] = case
            view.update(100.0 * len(found) / len(seeds), f'{len(found)} of {len(seeds)} cells')
    return [found[seed] for seed in seeds]


@dataclass(frozen=True)
class _Seeded:
    """Returns the seed with the outcome, whatever the order in which they come."""

    function: Callable[[int], Any]

    def __call__(self, seed: int) -> tuple[int, Any]:
        return seed, self.function(seed)
