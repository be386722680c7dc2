# SPDX-License-Identifier: Apache-2.0
"""Where the command line writes: results to the standard output, refusals to the error output.

Results as tables in the terminal.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from types import TracebackType

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from robocal_ros.results import wording
from robocal_ros.results.result import CalibrationResult, Verdict

# Width of what goes to a file or a pipe, where nobody says how wide it is shown.
_WIDTH = 100


def _console(*, errors: bool = False) -> Console:
    console = Console(stderr=errors, highlight=False)
    if not console.is_terminal and 'COLUMNS' not in os.environ:
        console.width = _WIDTH
    return console


OUT = _console()
ERRORS = _console(errors=True)

_LINE_EVERY = 20.0


class ProgressView:
    """How far something is: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, title: str, console: Console = OUT) -> None:
        """Prepare the bar.

        Args:
            title: What is under way.
            console: Where to show it.

        """
        self._title = title
        self._console = console
        self._began = time.monotonic()
        self._told = -_LINE_EVERY
        self._bar = Progress(
            TextColumn('{task.fields[title]}', style='bold'),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn('{task.description}', style='dim'),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task('', title=title, total=100.0)

    def __enter__(self) -> ProgressView:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the bar away."""
        self._bar.stop()

    @property
    def elapsed(self) -> float:
        """Time since it began [s]."""
        return time.monotonic() - self._began

    def update(self, percent: float, message: str) -> None:
        """Show how far it is.

        Args:
            percent: 0 … 100.
            message: What is being done.

        """
        self._bar.update(self._task, completed=percent, description=message)
        if not self._console.is_terminal and percent >= self._told + _LINE_EVERY:
            self._told = percent - percent % _LINE_EVERY
            self._console.print(f'  {self._title}: {percent:3.0f} %, {message}', soft_wrap=True)


VERDICT_STYLES = {Verdict.PASS: 'bold green', Verdict.FAIL: 'bold red',
                  Verdict.NOT_EVALUATED: 'bold yellow'}


def table_of(columns: Sequence[tuple[str, bool]], title: str = '') -> Table:
    """Return an empty table.

    Args:
        columns: Header of each column, and whether it holds numbers.
        title: Title; empty for none.

    """
    table = Table(box=box.SIMPLE_HEAD, title=escape(title) or None, title_justify='left',
                  title_style='bold', header_style='dim', pad_edge=False,
                  collapse_padding=True)
    for header, number in columns:
        table.add_column(escape(header), justify='right' if number else 'left', no_wrap=number)
    # What a row is about must be readable in whole, on two lines where one is too short.
    table.columns[0].overflow = 'fold'
    return table


def verdict_text(verdict: Verdict) -> str:
    """Return a verdict in words and in its colour, as markup."""
    style = VERDICT_STYLES[verdict]
    return f'[{style}]{wording.heading(verdict.value)}[/]'


def show_result(console: Console, result: CalibrationResult) -> None:
    """Show a result: verdict with reasons, values, residuals.

    Args:
        console: Where.
        result: The result.

    """
    console.print(f'[bold]{escape(wording.title_of(result))}[/] of {escape(result.robot.name)}: '
                  f'{verdict_text(result.verdict)}')
    for check in result.checks:
        mark = '[green]✓[/]' if check.passed else '[red]✗[/]'
        console.print(f'  {mark} {escape(check.reason)}', soft_wrap=True)
    if not result.checks:
        console.print(escape(' '.join(result.reasons)), soft_wrap=True)
    console.print(_parameter_table(result))
    for line in wording.without_value(result.parameters):
        console.print(line, style='dim', soft_wrap=True, markup=False)
    if result.fit or result.validation:
        console.print(_residual_table(result))


def _parameter_table(result: CalibrationResult) -> Table:
    frame = f'in frame {result.frame}' if result.frame else ''
    table = table_of((('parameter', False), ('value', True), ('± (95 %)', True), ('unit', False),
                      ('state', False), ('', False)), frame)
    for parameter in result.parameters:
        if parameter.value is None:
            continue
        shown = wording.reading(parameter)
        table.add_row(parameter.name, shown.value, shown.half, shown.unit, shown.state,
                      escape(parameter.note))
    return table


def _residual_table(result: CalibrationResult) -> Table:
    table = table_of((('residuals (RMS)', False), ('data', False), ('before', True),
                      ('after', True), ('unit', False), ('count', True)))
    for data, fits in (('fitted', result.fit), ('held out', result.validation)):
        for fit in fits:
            table.add_row(escape(fit.what), data, f'{fit.before:.3g}', f'{fit.after:.3g}',
                          fit.unit, str(fit.count))
    return table
