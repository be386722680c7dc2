# SPDX-License-Identifier: Apache-2.0
"""`scripts/bench`: measure accuracy, speed and robustness against stated limits."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from robocal_ros.cli.console import OUT
from robocal_ros.cli.main import positive, run
from robocal_ros.errors import ConfigurationError

if TYPE_CHECKING:
    from benchmarks.benchmark import Benchmark
    from benchmarks.page import Record


_SUMMARY = 'Measure accuracy, speed and robustness against stated limits.'

BENCHMARKS = (
    'reference', 'slow', 'compensation', 'compliance', 'geometry', 'wrench', 'wrench.coverage',
    'loops', 'leveling', 'peers', 'nodes')
"""Names of the benchmarks in the order of the page; each is a module, see `_MODULES`."""
ON_REQUEST = ('campaign', 'prediction', 'guided', 'offline', 'fleet', 'fleet.changes')
"""Names of further benchmarks, which run only if named."""

# Modules whose name is not that of the benchmark with underscores, and names other than BENCHMARK.
_MODULES = {'campaign': 'second_campaign', 'peers': 'peers.recorded', 'slow': 'prediction:SLOW'}
_ROOT = Path(__file__).resolve().parents[1]
_RESULTS, _PAGE = _ROOT / 'bench' / 'results.json', _ROOT / 'docs' / 'benchmarks.md'


def main(arguments: Sequence[str] | None = None) -> int:
    """Run benchmarks; exit codes as in `robocal_ros.cli.main`."""
    parser = argparse.ArgumentParser(prog='scripts/bench', description=_SUMMARY, epilog=(
        'Runs of full size are written to bench/results.json and docs/benchmarks.md; others, and '
        'all logs and single cases, to the output folder.'))
    parser.add_argument('--only', action='append', choices=(*BENCHMARKS, *ON_REQUEST),
                        metavar='NAME', help='run this benchmark; may be repeated (default: all '
                        f'of {", ".join(BENCHMARKS)}; on request: {", ".join(ON_REQUEST)})')
    parser.add_argument('--quick', action='store_true',
                        help='try every step at the smallest size; limits do not hold')
    parser.add_argument('--seeds', '--cells', type=positive,
                        help='number of random cells (default: the number the limits refer to)')
    parser.add_argument('--seed', type=positive, default=1,
                        help='seed of the first cell (default: %(default)s)')
    parser.add_argument('--jobs', type=positive, default=os.cpu_count() or 1,
                        help='number of parallel processes (default: %(default)s)')
    parser.add_argument('-o', '--output', type=Path,
                        help='folder for everything, instead of bench/, docs/ and bench_output/')
    parser.add_argument('--page', action='store_true',
                        help='only write the page again, from the results file')
    parser.set_defaults(run=_run)
    return run(parser, arguments)


def _run(options: argparse.Namespace) -> int:
    """Run the requested benchmarks and write their records and the page.

    Returns:
        0 if every limit is met or the sizes are quick ones, else 1.

    Raises:
        RobocalError: A repetition fails.

    """
    from benchmarks.page import read_records, write_page, write_records

    folder = options.output or Path('bench_output')
    whole = not (options.output or options.quick or options.seeds or options.seed != 1)
    results, page = (_RESULTS, _PAGE) if whole else (
        folder / 'results.json', folder / 'benchmarks.md')
    missed = False
    try:
        for name in () if options.page else options.only or BENCHMARKS:
            record = _run_one(name, options, folder)
            # Read anew: another run may have written meanwhile.
            records = {**read_records(results), name: record}
            write_records(results, {key: records[key] for key in (*BENCHMARKS, *ON_REQUEST)
                                    if key in records})
            missed |= any(figure.met is False for figure in record.figures)
        write_page(page, read_records(results))
    except OSError as error:
        raise ConfigurationError(
            f'The figures could not be written to {error.filename} ({error.strerror}). '
            'Make the folder writable or choose another one with --output.') from error
    OUT.print(f'Figures with conditions: {results}\nPage: {page}', soft_wrap=True)
    return 1 if missed and not options.quick else 0


def _run_one(name: str, options: argparse.Namespace, folder: Path) -> Record:
    from benchmarks.benchmark import Request, conditions
    from benchmarks.page import Record, section

    module, _, own = _MODULES.get(name, name.replace('.', '_')).partition(':')
    benchmark: Benchmark = getattr(
        importlib.import_module(f'benchmarks.{module}'), own or 'BENCHMARK')
    usual = 1 if options.quick else benchmark.seeds
    seeds = tuple(range(options.seed, options.seed + (options.seeds or usual)))
    folder.mkdir(parents=True, exist_ok=True)
    # The commit that is measured is that at the start.
    known, before = conditions(), os.times()
    outcome = benchmark.run(Request(seeds, options.jobs, folder, options.quick))
    # Of this process and of its ended children.
    *used, taken = (late - early for late, early in zip(os.times(), before, strict=True))
    # The single cases, for a closer look.
    (folder / f'{name}.json').write_bytes(msgspec.json.format(msgspec.json.encode(
        outcome.cases, enc_hook=lambda value: value.tolist()), indent=1) + b'\n')
    record = Record(benchmark.title, benchmark.about, {
        **known, 'taken': round(taken, 1),
        'processor_time': round(sum(used), 1), 'seeds': len(seeds),
        'jobs': options.jobs, 'quick': options.quick},
        outcome.figures, outcome.tables, outcome.remarks)
    OUT.print(section(record), soft_wrap=True, markup=False, highlight=False)
    return record


if __name__ == '__main__':
    sys.exit(main())
