# SPDX-License-Identifier: Apache-2.0
"""`robocal show`: results as tables in the terminal."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from robocal_ros.cli.console import OUT, print_line, table_of
from robocal_ros.errors import ConfigurationError
from robocal_ros.results import wording
from robocal_ros.results.chain import stale_text
from robocal_ros.results.result import CalibrationResult, Verdict
from robocal_ros.results.store import ResultStore, default_directory, read_result

_VERDICT_STYLES = {Verdict.PASS: 'bold green', Verdict.FAIL: 'bold red',
                   Verdict.NOT_EVALUATED: 'bold yellow'}


def run(options: argparse.Namespace) -> int:
    """Show the files.

    Raises:
        ConfigurationError: If one cannot be read.
        FileFormatError: If one is no result file.

    """
    # All are read before the first is shown, so that an error is not lost among tables.
    files = result_files(options.files)
    for path, result in [(path, read_result(path)) for path in files]:
        show_result(result)
        # The newest results are in the results folder, older ones in its folder history.
        folder = path.parent.parent if path.parent.name == 'history' else path.parent
        stale = stale_text(result, ResultStore(folder, result.robot).load)
        if stale and (folder / f'{result.kind}.yaml').exists():
            print_line(stale, 'yellow')
    return 0


def result_files(names: Iterable[str]) -> list[Path]:
    """Return the result files of names: files, or kinds such as ``payload``.

    A kind stands for the stored results of all robots; without one that passed, for the newest
    that did not.

    Raises:
        ConfigurationError: If no result of a kind is stored.

    """
    root = default_directory('robot').parent
    found = []
    for name in names:
        path = Path(name).expanduser()
        if path.suffix or path.is_file() or len(path.parts) > 1:
            found.append(path)
            continue
        stored = sorted(root.glob(f'*/{name}.yaml')) or sorted(root.glob(f'*/{name}.failed.yaml'))
        if not stored:
            kinds = sorted({item.name.partition('.')[0] for item in root.glob('*/*.yaml')})
            raise ConfigurationError(
                f"No file '{name}' and no stored result of this kind in {root}; there are: "
                f'{", ".join(kinds) or "none"}. Run robocal run, name a file, or set ROS_HOME if '
                'the nodes use another one.')
        found += stored
    return found


def verdict_text(verdict: Verdict) -> str:
    """Return a verdict as coloured markup."""
    style = _VERDICT_STYLES[verdict]
    return f'[{style}]{wording.heading(verdict.value)}[/]'


def show_result(result: CalibrationResult) -> None:
    """Show a result: verdict with reasons, values, residuals."""
    OUT.print(f'[bold]{escape(wording.title_of(result))}[/] of {escape(result.robot.name)}: '
              f'{verdict_text(result.verdict)}')
    for check in result.checks:
        mark = '[green]✓[/]' if check.passed else '[red]✗[/]'
        OUT.print(f'  {mark} {escape(check.reason)}', soft_wrap=True)
    if not result.checks:
        OUT.print(escape(' '.join(result.reasons)), soft_wrap=True)
    OUT.print(_parameter_table(result))
    for line in wording.without_value(result.parameters):
        print_line(line, 'dim')
    for item in result.inputs:
        print_line(f'Input {item.kind}: {item.name} {item.sha256[:12]}', 'dim')
    if result.fit or result.validation:
        OUT.print(_residual_table(result))


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
    repeated = any(fit.pure_error is not None for fit in result.fit)
    table = table_of((('residuals (RMS)', False), ('data', False), ('before', True),
                      ('after', True), *((('pure error', True), ('unexplained', True))
                                         if repeated else ()),
                      ('unit', False), ('count', True)))
    for data, fits in (('fitted', result.fit), ('held out', result.validation)):
        for fit in fits:
            parts = [f'{part:.3g}' if part is not None else ''
                     for part in (fit.pure_error, fit.unexplained)] if repeated else []
            table.add_row(escape(fit.what), data, f'{fit.before:.3g}', f'{fit.after:.3g}',
                          *parts, fit.unit, str(fit.count))
    return table
