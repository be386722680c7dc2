# SPDX-License-Identifier: Apache-2.0
"""Console output: results to the standard output, errors to the standard error."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

# Width of output to a file or a pipe [characters].
_WIDTH = 100


def _console(*, errors: bool = False) -> Console:
    # Names may look like codes of emoji: 'bag:x:1'.
    console = Console(stderr=errors, highlight=False, emoji=False)
    if not console.is_terminal and 'COLUMNS' not in os.environ:
        console.width = _WIDTH
    return console


OUT = _console()
ERRORS = _console(errors=True)

QUIET = 2.0
"""Time without a line on progress, for tasks that are mostly shorter [s]."""

# Progress between two lines without a terminal [%].
_LINE_EVERY = 20.0
# Progress from which the remaining time is estimated [%].
_ESTIMABLE = 4.0


def print_line(text: str, style: str = '', console: Console = OUT) -> None:
    """Print a line without wrapping or markup."""
    console.print(text, style=style or None, soft_wrap=True, markup=False)


class ProgressView:
    """Progress as a bar on a terminal, otherwise as occasional lines."""

    def __init__(self, title: str, console: Console = OUT, quiet: float = 0.0) -> None:
        """Prepare the bar.

        Args:
            title: Name of the task.
            console: Output.
            quiet: Time before the first line without a terminal [s]; shorter tasks print none.

        """
        self._title = title
        self._console = console
        self._quiet = quiet
        self._began = time.monotonic()
        self._printed = -_LINE_EVERY
        self._bar = Progress(
            TextColumn('{task.fields[title]}', style='bold'),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn('{task.fields[remaining]}'),
            TextColumn('{task.description}', style='dim'),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task('', title=title, remaining='', total=100.0)

    def __enter__(self) -> ProgressView:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the bar."""
        self._bar.stop()

    @property
    def elapsed(self) -> float:
        """Time since the start [s]."""
        return time.monotonic() - self._began

    def pulse(self, message: str) -> None:
        """Show a step of unknown duration."""
        self._bar.update(self._task, total=None, description=message, remaining='')

    def update(self, percent: float, message: str) -> None:
        """Show the progress, and the remaining time by the mean speed so far.

        Args:
            percent: 0 … 100.
            message: Current step.

        """
        left = self.elapsed * (100.0 - percent) / max(percent, _ESTIMABLE)
        duration = f'{left:.0f} s' if left < 90.0 else f'{left / 60.0:.0f} min'
        remaining = (f'{duration} left' if _ESTIMABLE <= percent < 100.0 and left >= 1.0 else '')
        self._bar.update(self._task, completed=percent, description=message, remaining=remaining)
        if self._console.is_terminal or self.elapsed < self._quiet:
            return
        if percent >= self._printed + _LINE_EVERY:
            self._printed = percent - percent % _LINE_EVERY
            self._console.print(
                f'  {self._title}: {percent:3.0f} %{f" ({remaining})" if remaining else ""}, '
                f'{message}', soft_wrap=True)


def table_of(
    columns: Sequence[tuple[str, bool]], rows: Iterable[Iterable[str]] = (), title: str = ''
) -> Table:
    """Return a table.

    Args:
        columns: Header of each column, and whether it holds numbers.
        rows: Cells of each row, as markup.
        title: Title; empty for none.

    """
    table = Table(box=box.SIMPLE_HEAD, title=escape(title) or None, title_justify='left',
                  title_style='bold', header_style='dim', pad_edge=False,
                  collapse_padding=True)
    for header, number in columns:
        table.add_column(escape(header), justify='right' if number else 'left', no_wrap=number)
    # The name of a row is wrapped, never cut off.
    table.columns[0].overflow = 'fold'
    for row in rows:
        table.add_row(*row)
    return table


# ------------------------------------------------------------------------- findings


class Grade(str, Enum):
    """Severity of a finding of `robocal doctor`, and its mark."""

    GOOD = '[green]✓[/]'
    WARNING = '[yellow]![/]'
    BAD = '[red]✗[/]'


@dataclass(frozen=True)
class Finding:
    """Outcome of one check.

    Attributes:
        grade: Severity.
        what: Object of the check.
        message: A sentence.
        remedy: What to do, empty for nothing.

    """

    grade: Grade
    what: str
    message: str
    remedy: str = ''


good, doubtful, bad = (partial(Finding, grade) for grade in Grade)
"""Make a finding that needs no action, may spoil results, or must be remedied."""


def show_findings(findings: list[Finding]) -> None:
    """Print findings, and their number by severity."""
    for item in findings:
        OUT.print(item.grade.value, end=' ')
        print_line(f'{item.what}: {item.message}')
        if item.remedy:
            print_line(f'    → {item.remedy}', 'bold')
    count = Counter(item.grade for item in findings)
    OUT.print(f'{count[Grade.BAD]} bad, {count[Grade.WARNING]} doubtful, '
              f'{count[Grade.GOOD]} good.')
