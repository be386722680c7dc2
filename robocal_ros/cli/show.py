# SPDX-License-Identifier: Apache-2.0
"""`robocal show`: results as tables in the terminal."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.markup import escape

from robocal_ros.cli.console import OUT, print_line, table_of
from robocal_ros.errors import ConfigurationError
from robocal_ros.results import (
    CalibrationResult,
    Load,
    Panel,
    ResultStore,
    Verdict,
    comparison,
    default_directory,
    read_result,
    stale_text,
    wording,
)

_VERDICT_STYLES = {Verdict.PASS: 'bold green', Verdict.FAIL: 'bold red',
                   Verdict.NOT_EVALUATED: 'bold yellow'}

# Kinds of results, inputs before what is built on them.
_ORDER = ('drive_gains', 'arm', 'friction', 'payload', 'compliance', 'geometry',
          'sensor_calibration', 'tare', 'torque_zero')


def run(options: argparse.Namespace) -> int:
    """Show the files.

    Raises:
        ConfigurationError: If one cannot be read.
        FileFormatError: If one is no result file.

    """
    files = result_files(options.files)
    # All are read before the first is shown, so that an error is not lost among tables.
    panel = compared(files) if options.compare else None
    for path, result in [(path, read_result(path)) for path in files]:
        show_result(result)
        load = current_results(result, path)
        if load is not None and (stale := stale_text(result, load)):
            print_line(stale, 'yellow')
    if panel:
        OUT.print(table_of(panel.columns, (map(escape, row) for row in panel.rows), panel.title))
        print_line(panel.message)
    return 0


def compared(files: Sequence[Path]) -> Panel:
    """Return the comparison of two result files; raises ConfigurationError for another number."""
    if len(files) != 2:
        raise ConfigurationError(f'--compare takes two results, got {len(files)}.')
    first, second = (read_result(path) for path in files)
    return comparison(first, second)


def current_results(result: CalibrationResult, path: Path) -> Load | None:
    """Return what loads the current results beside a file, None outside a results folder."""
    # The newest results are in the results folder, older ones in its folder history.
    folder = path.parent.parent if path.parent.name == 'history' else path.parent
    known = (folder / f'{result.kind}.yaml').exists()
    return ResultStore(folder, result.robot).load if known else None


def stored_files(folder: Path | None = None) -> list[Path]:
    """Return the files of all stored results of one robot, inputs before what is built on them.

    For each kind the newest result that passed, and the newest that did not, if it is newer.

    Args:
        folder: Folder of the results; by default that of the only robot with stored results.

    Raises:
        ConfigurationError: If there is none, or several robots have stored results.

    """
    if folder is None:
        root = default_directory('robot').parent
        folders = sorted({item.parent for item in root.glob('*/*.yaml')})
        if len(folders) > 1:
            raise ConfigurationError(
                f'Several robots have stored results: {", ".join(map(str, folders))}. Name one '
                'folder with --results-dir, or a kind, such as payload, for those of all robots.')
        folder = folders[0] if folders else root
    found = []
    for path in sorted(folder.glob('*.yaml')):
        passed = path.with_name(path.name.replace('.failed.yaml', '.yaml'))
        if passed == path or not passed.exists() or (
                passed.stat().st_mtime_ns < path.stat().st_mtime_ns):
            found.append(path)
    if not found:
        raise ConfigurationError(
            f'No stored results in {folder}. Run robocal run, name files, or set ROS_HOME if the '
            'nodes use another one.')
    places = {kind: place for place, kind in enumerate(_ORDER)}
    return sorted(found, key=lambda path: places.get(path.name.partition('.')[0], len(places)))


def result_files(names: Iterable[str], folder: Path | None = None) -> list[Path]:
    """Return the result files of names: files, or kinds such as ``payload``.

    A kind stands for the stored results of all robots, or of one folder; without one that passed,
    for the newest that did not.

    Args:
        names: Files and kinds.
        folder: Folder of the stored results; by default those of all robots.

    Raises:
        ConfigurationError: If no result of a kind is stored.

    """
    root = folder or default_directory('robot').parent
    under = '' if folder else '*/'
    found = []
    for name in names:
        path = Path(name).expanduser()
        if path.suffix or path.is_file() or len(path.parts) > 1:
            found.append(path)
            continue
        stored = (sorted(root.glob(f'{under}{name}.yaml'))
                  or sorted(root.glob(f'{under}{name}.failed.yaml')))
        if not stored:
            kinds = sorted({item.name.partition('.')[0] for item in root.glob(f'{under}*.yaml')})
            raise ConfigurationError(
                f"No file '{name}' and no stored result of this kind in {root}; there are: "
                f'{", ".join(kinds) or "none"}. Run robocal run, name a file, or set ROS_HOME if '
                'the nodes use another one.')
        found += stored
    return found


def verdict_text(verdict: Verdict) -> str:
    """Return a verdict as coloured markup."""
    return f'[{_VERDICT_STYLES[verdict]}]{wording.heading(verdict.value)}[/]'


def show_result(result: CalibrationResult) -> None:
    """Show a result: verdict with reasons, values, residuals."""
    OUT.print(f'[bold]{escape(wording.title_of(result))}[/] of {escape(result.robot.name)}: '
              f'{verdict_text(result.verdict)}')
    for check in result.checks:
        mark = ('[red]✗[/]' if not check.passed else
                '[green]✓[/]' if check.evaluated else '[yellow]?[/]')
        OUT.print(f'  {mark} {escape(check.reason)}', soft_wrap=True)
    if not result.checks:
        OUT.print(escape(' '.join(result.reasons)), soft_wrap=True)
    shown = [(item, wording.reading(item)) for item in wording.shown(result.parameters)]
    OUT.print(table_of(
        (('parameter', False), ('value', True), ('± (95 %)', True), ('unit', False),
         ('state', False), ('', False)),
        ((item.name, own.value, own.half, own.unit, own.state, escape(item.note))
         for item, own in shown), f'in frame {result.frame}' if result.frame else ''))
    for line in wording.not_shown(result.parameters):
        print_line(line, 'dim')
    for item in result.inputs:
        print_line(f'Input {item.kind}: {item.name} {item.sha256[:12]}', 'dim')
    if result.fit or result.validation:
        _show_residuals(result)


def _show_residuals(result: CalibrationResult) -> None:
    repeated = any(fit.pure_error is not None for fit in result.fit)
    OUT.print(table_of(
        (('residuals (RMS)', False), ('data', False), ('before', True), ('after', True),
         *((('pure error', True), ('unexplained', True)) if repeated else ()),
         ('unit', False), ('count', True)),
        ((escape(fit.what), data, f'{fit.before:.3g}', f'{fit.after:.3g}',
          *(('' if part is None else f'{part:.3g}' for part in (fit.pure_error, fit.unexplained))
            if repeated else ()), fit.unit, str(fit.count))
         for data, fits in (('fitted', result.fit), ('held out', result.validation))
         for fit in fits)))
