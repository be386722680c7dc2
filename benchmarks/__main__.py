# SPDX-License-Identifier: Apache-2.0
"""`scripts/bench`: measure accuracy and speed on the simulated arm against stated limits."""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from robocal_ros.cli.console import OUT
from robocal_ros.cli.main import run
from robocal_ros.errors import ConfigurationError

if TYPE_CHECKING:
    from benchmarks.benchmark import Benchmark, Outcome
    from benchmarks.figures import Figure


_SUMMARY = 'Measure accuracy and speed on the simulated arm against stated limits.'

CAPABILITIES = ('payload', 'friction', 'compliance', 'wrench', 'leveling', 'offline',
                'nodes')
"""Names of the benchmarks; each is a module of this package."""
ON_REQUEST = ('campaign',)
"""Names of further benchmarks, which run only if named."""


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f'expected a number of at least 1, got {value}')
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run benchmarks; exit codes as in `robocal_ros.cli.main`."""
    parser = argparse.ArgumentParser(prog='scripts/bench', description=_SUMMARY)
    parser.add_argument('capability', nargs='?', choices=(*CAPABILITIES, *ON_REQUEST),
                        help='what to measure (default: all)')
    parser.add_argument('--seeds', '--cells', type=_positive,
                        help='number of random cells (default: the number the limits refer to)')
    parser.add_argument('--seed', type=_positive, default=1,
                        help='seed of the first cell (default: %(default)s)')
    parser.add_argument('--repetitions', type=_positive, default=200,
                        help='number of repetitions for efficiency and coverage '
                             '(default: %(default)s)')
    parser.add_argument('--live', action='store_true',
                        help='run the real nodes over DDS instead of in this process')
    parser.add_argument('--jobs', type=_positive, default=os.cpu_count() or 1,
                        help='number of parallel processes (default: %(default)s)')
    parser.add_argument('-o', '--output', type=Path, default=Path('bench_output'),
                        help='output folder (default: %(default)s)')
    parser.set_defaults(run=_run)
    return run(parser, arguments)


def _run(options: argparse.Namespace) -> int:
    """Run the requested benchmarks.

    Returns:
        0 if every limit is met, else 1.

    Raises:
        RobocalError: A repetition fails.

    """
    names = (options.capability,) if options.capability else CAPABILITIES
    return max(_run_one(name, options) for name in names)


def _benchmark(name: str) -> Benchmark:
    found: Benchmark = importlib.import_module(f'benchmarks.{name}').BENCHMARK
    return found


def _run_one(name: str, options: argparse.Namespace) -> int:
    from benchmarks.benchmark import Request

    benchmark = _benchmark(name)
    usual = benchmark.live_seeds if options.live else benchmark.seeds
    if not usual:
        raise ConfigurationError(
            f"Benchmark '{name}' has no live mode; run it without --live.")
    seeds = tuple(range(options.seed, options.seed + (options.seeds or usual)))
    options.output.mkdir(parents=True, exist_ok=True)
    outcome = benchmark.run(Request(
        seeds, options.repetitions, options.jobs, options.live, options.output))
    OUT.print(_table(outcome.figures, f'{benchmark.title}, {len(seeds)} random cells, '
                                      f'{"live" if options.live else "in process"}'))
    for remark in outcome.remarks:
        OUT.print(escape(remark), soft_wrap=True)
    path = options.output / f'{name}.json'
    _write(path, outcome, {'seeds': list(seeds), 'live': options.live,
                           'repetitions': options.repetitions,
                           'jobs': 1 if options.live else options.jobs})
    OUT.print(f'Figures with conditions: {path}', soft_wrap=True)
    return 1 if any(figure.met is False for figure in outcome.figures) else 0


def _table(figures: Iterable[Figure], title: str) -> Table:
    from robocal_ros.cli.console import table_of
    from robocal_ros.results.wording import rounded

    table = table_of((('figure', False), ('median', True), ('worst', True), ('bar', True),
                      ('unit', False), ('', False)), title)
    marks = {True: '[bold green]met[/]', False: '[bold red]missed[/]', None: ''}
    for series, grouped in itertools.groupby(figures, key=lambda figure: figure.series):
        table.add_row(f'[bold]{series}[/]')
        for figure in grouped:
            sign = '≥' if figure.at_least else '≤'
            bar = '' if figure.bar is None else f'{sign} {figure.bar:g}'
            numbers = (rounded(float(f'{value:.3g}')) for value in (figure.median, figure.worst))
            table.add_row(f'  {figure.what}', *numbers, bar, figure.unit, marks[figure.met])
    return table


def _plain(case: Any) -> Any:
    return asdict(case) if is_dataclass(case) and not isinstance(case, type) else case


def _write(path: Path, outcome: Outcome, options: dict[str, Any]) -> None:
    from benchmarks.figures import conditions

    document = {
        'conditions': {**conditions(), **options},
        'figures': [figure.plain() for figure in outcome.figures],
        'cases': [_plain(case) for case in outcome.cases],
    }
    try:
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + '\n',
                        encoding='utf-8')
    except OSError as error:
        raise ConfigurationError(
            f'The figures could not be written to {path} ({error.strerror}). '
            'Make the folder writable or choose another one with --output.'
        ) from error


if __name__ == '__main__':
    sys.exit(main())
