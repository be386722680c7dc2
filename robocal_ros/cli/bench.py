# SPDX-License-Identifier: Apache-2.0
"""`robocal bench`: accuracy and speed on the simulated arm, beside the numbers to reach."""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import signal
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from robocal_ros.cli.console import OUT, ProgressView
from robocal_ros.errors import ConfigurationError

if TYPE_CHECKING:
    from robocal_ros.cli.benchmarks.figures import Figure
    from robocal_ros.cli.benchmarks.payload import Case

NAME = 'bench'
SUMMARY = 'measure accuracy and speed on the simulated arm'

_SEEDS, _LIVE_SEEDS = 20, 3


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f'expected a number of at least 1, got {value}')
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments."""
    parser.add_argument('capability', nargs='?', choices=('payload',), default='payload',
                        help='what to measure (default: %(default)s)')
    parser.add_argument('--seeds', type=_positive,
                        help=f'how many repetitions (default: {_SEEDS}, live {_LIVE_SEEDS})')
    parser.add_argument('--live', action='store_true',
                        help='through the real nodes over DDS, instead of in this process')
    parser.add_argument('--jobs', type=_positive, default=os.cpu_count() or 1,
                        help='how many repetitions at a time (default: %(default)s)')
    parser.add_argument('-o', '--output', type=Path, default=Path('bench_output'),
                        help='folder for the figures (default: %(default)s)')


def run(options: argparse.Namespace) -> int:
    """Run the benchmark.

    Returns:
        0 if every bar is met, else 1.

    Raises:
        RobocalError: If a repetition cannot be carried out.

    """
    from robocal_ros.cli.benchmarks import payload

    count = options.seeds or (_LIVE_SEEDS if options.live else _SEEDS)
    seeds = range(1, count + 1)
    options.output.mkdir(parents=True, exist_ok=True)
    if options.live:
        from robocal_ros.cli.benchmarks.live import run_live

        cases = run_live(seeds, options.output)
    else:
        cases = _in_parallel(seeds, options.jobs)
    figures = payload.figures(cases)
    OUT.print(_table(figures, f'Payload, {count} random cells, '
                              f'{"live" if options.live else "in process"}'))
    _tell_shares(cases)
    path = options.output / 'bench.json'
    _write(path, cases, figures, {'seeds': list(seeds), 'live': options.live,
                                  'jobs': 1 if options.live else options.jobs})
    OUT.print(f'Figures with conditions: {path}', soft_wrap=True)
    return 1 if any(figure.met is False for figure in figures) else 0


def _ignore_interrupt() -> None:
    """Leave Ctrl-C to the parent, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _in_parallel(seeds: Sequence[int], jobs: int) -> list[Case]:
    """Run the repetitions in processes of their own; returns them by seed."""
    from robocal_ros.cli.benchmarks.payload import run_case

    cases = []
    # Fresh processes: forked ones would share the parent's threads half.
    context = multiprocessing.get_context('spawn')
    with (
        ProgressView('payload') as view,
        context.Pool(min(jobs, len(seeds)), _ignore_interrupt) as pool,
    ):
        for case in pool.imap_unordered(run_case, seeds):
            cases.append(case)
            view.update(100.0 * len(cases) / len(seeds), f'{len(cases)} of {len(seeds)} cells')
    return sorted(cases, key=lambda case: case.seed)


def _table(figures: Iterable[Figure], title: str) -> Table:
    from robocal_ros.cli.tables import table_of
    from robocal_ros.io.wording import rounded

    table = table_of((('figure', False), ('median', True), ('worst', True), ('bar', True),
                      ('unit', False), ('', False)), title)
    marks = {True: '[bold green]met[/]', False: '[bold red]missed[/]', None: ''}
    for series, grouped in itertools.groupby(figures, key=lambda figure: figure.series):
        table.add_row(f'[bold]{series}[/]')
        for figure in grouped:
            bar = '' if figure.bar is None else f'≤ {figure.bar:g}'
            numbers = (rounded(float(f'{value:.3g}')) for value in (figure.median, figure.worst))
            table.add_row(f'  {figure.what}', *numbers, bar, figure.unit, marks[figure.met])
    return table


def _tell_shares(cases: Sequence[Case]) -> None:
    """Tell how often verdicts passed, and intervals held the truth."""
    from robocal_ros.cli.benchmarks.figures import coverage

    found = [item for case in cases for item in case.deviations]
    for series in dict.fromkeys(item.series for item in found):
        verdicts = {item.seed: item.verdict for item in found if item.series == series}
        passed = sum(verdict == 'pass' for verdict in verdicts.values())
        inside, count = coverage(found, series)
        OUT.print(f'{series}: verdict pass in {passed} of {len(verdicts)}; {inside} of {count} '
                  '95 % intervals hold the truth.', soft_wrap=True)


def _write(
    path: Path, cases: Sequence[Case], figures: Sequence[Figure], options: dict[str, Any]
) -> None:
    from robocal_ros.cli.benchmarks.figures import conditions

    document = {
        'conditions': {**conditions(), **options},
        'figures': [figure.plain() for figure in figures],
        'cases': [asdict(case) for case in cases],
    }
    try:
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + '\n',
                        encoding='utf-8')
    except OSError as error:
        raise ConfigurationError(
            f'The figures could not be written to {path} ({error.strerror}). '
            'Make the folder writable or name another one.'
        ) from error
