# SPDX-License-Identifier: Apache-2.0
"""`scripts/demo`: calibrate a simulated arm and compare the results with its hidden truth."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from robocal_ros.cli.console import OUT, table_of
from robocal_ros.cli.main import run

if TYPE_CHECKING:
    from demo.stage import Stage
    from demo.tour import Comparison, TourOutcome

# Title and headings of the comparison with the truth.
_TITLE = 'Identified values against the hidden truth'
_COLUMNS = (('', False), ('truth', True), ('identified', True), ('error', True),
            ('± (95 %)', True), ('unit', False))
_SUMMARY = ('Calibrate a simulated arm with every node and compare the results with its hidden '
            'truth.')


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; exit codes as in `robocal_ros.cli.main`."""
    parser = argparse.ArgumentParser(prog='scripts/demo', description=_SUMMARY)
    parser.add_argument('--all', action='store_true',
                        help='run every procedure at full length instead of the short tour')
    parser.add_argument('--controller', choices=('simulated', 'real'), default='simulated',
                        help="what moves the arm: the simulation's own trajectory controller, or "
                        'ros2_control with the arm as its hardware (default: %(default)s)')
    parser.add_argument('--view', action='store_true',
                        help='show the arm in a browser, also after the end, until Ctrl-C')
    parser.add_argument('--seed', type=int, default=1,
                        help='seed of sensor noise and biases (default: %(default)s)')
    parser.add_argument('-o', '--output', type=Path, default=Path('demo_output'),
                        help='output folder for results, report and logs (default: %(default)s)')
    parser.set_defaults(run=_run)
    return run(parser, arguments)


def _run(options: argparse.Namespace) -> int:
    """Run the demo.

    Returns:
        0 if every verdict is pass and no truth lies outside its 99.9 % interval, else 1.

    Raises:
        RobocalError: A node cannot be started or exits.

    """
    began = time.monotonic()
    with _open_stage(options) as stage:
        outcomes = _tour(stage)
        code = _finish(options, outcomes, began)
        if options.view:
            OUT.print('The view stays open; Ctrl-C ends it.')
            with suppress(KeyboardInterrupt):
                stage.session.spin_until(lambda: False)
    return code


def _finish(options: argparse.Namespace, outcomes: Sequence[TourOutcome], began: float) -> int:
    """Print and write the comparison with the truth; return the exit code."""
    from demo.tour import compare

    comparisons = [
        item for outcome in outcomes if outcome.result is not None
        for item in compare(outcome.result, outcome.truth)
    ]
    OUT.print(_table(comparisons))
    for outcome in outcomes:
        if outcome.panel is not None and outcome.panel.rows:
            OUT.print(table_of(outcome.panel.columns, (
                map(escape, row) for row in outcome.panel.rows), outcome.panel.title))
    _write(options.output, outcomes, comparisons)
    problems = _problems(outcomes, comparisons)
    for problem in problems:
        OUT.print(f'[bold red]✗[/] {escape(problem)}', soft_wrap=True)
    if not problems:
        OUT.print('[bold green]✓[/] Every verdict is pass, and every truth lies in its 99.9 % '
                  'interval.', soft_wrap=True)
    OUT.print(f'{time.monotonic() - began:.0f} s. Report: {options.output / "report.html"}; '
              f'results: {options.output}/*.yaml; summary: {options.output / "summary.json"}; '
              f'logs: {options.output / "logs"}', soft_wrap=True, markup=False)
    return 1 if problems else 0


def _tour(stage: Stage) -> list[TourOutcome]:
    """Run the tours in order: later ones use the results of earlier ones."""
    from demo.compliance import ComplianceTour
    from demo.friction import FrictionTour
    from demo.leveling import LevelingTour
    from demo.payload import PayloadTour
    from demo.wrench import WrenchTour

    tours = PayloadTour(), FrictionTour(), ComplianceTour(), WrenchTour(), LevelingTour()
    return [outcome for tour in tours for outcome in tour.run(stage)]


@contextmanager
def _open_stage(options: argparse.Namespace) -> Iterator[Stage]:
    """Start the simulated arm, and the view of it if asked for."""
    # First of all: the libraries take half a minute to load from a slow disk.
    OUT.print('Starting the simulated arm ...')
    from demo.stage import open_stage

    with open_stage(options.output, options.seed, full=options.all,
                    real_controller=options.controller == 'real') as stage:
        OUT.print(f'Simulated arm with hidden tool, friction and noise (seed {options.seed}), in '
                  f'ROS domain {stage.domain}, on this machine only.', soft_wrap=True)
        if options.view:
            OUT.print(stage.start_view(), soft_wrap=True)
        yield stage


def _table(comparisons: Sequence[Comparison]) -> Table:
    from robocal_ros.cli.show import verdict_text

    table = table_of(_COLUMNS, title=_TITLE)
    methods = itertools.groupby(comparisons, key=lambda item: (item.capability, item.method))
    for (capability, method), grouped in methods:
        items = list(grouped)
        table.add_row(f'[bold]{capability}, {method.replace("_", " ")}[/]: '
                      f'{verdict_text(items[0].verdict)}')
        for item in items:
            name, truth, identified, error, *others = _row(item)
            table.add_row(f'  {name}', truth, identified,
                          error if item.covered else f'[bold red]{error}[/]', *others)
        table.add_section()
    return table


def _row(item: Comparison) -> tuple[str, ...]:
    """Return the cells of a comparison, rounded to the resolution of its interval."""
    from robocal_ros.results import Parameter, wording

    shown = wording.reading(Parameter(item.parameter, item.unit, item.estimate, item.std))
    unit, factor = wording.handy(item.unit)
    resolution = None if item.std is None else 2.0 * factor * item.std
    return (item.parameter, wording.rounded(factor * item.truth, resolution), shown.value,
            wording.rounded(factor * (item.estimate - item.truth), resolution), shown.half, unit)


def _write(
    output: Path, outcomes: Sequence[TourOutcome], comparisons: Sequence[Comparison]
) -> None:
    """Write summary, result files and report."""
    from robocal_ros.cli.report import next_steps
    from robocal_ros.files import write_output
    from robocal_ros.results import Advice, Panel, report_html, to_yaml

    summary = [item.summary() for item in comparisons]
    (output / 'summary.json').write_text(json.dumps(summary, indent=2) + '\n', encoding='utf-8')
    results = [outcome.result for outcome in outcomes if outcome.result is not None]
    advice = []
    for result in results:
        path = output / f'{result.kind}_{result.method}.yaml'
        path.write_text(to_yaml(result), encoding='utf-8')
        advice.append(Advice(next_steps(result, path)))
    covered = sum(item.covered for item in comparisons)
    panels = [
        Panel(_TITLE, covered == len(comparisons), f'{covered} of {len(comparisons)} values are '
              'in the 99.9 % interval of their estimate.', _COLUMNS, tuple(
                  (f'{item.capability}, {cells[0]}', *cells[1:])
                  for item in comparisons for cells in [_row(item)])),
        *(outcome.panel for outcome in outcomes if outcome.panel is not None)]
    write_output(output / 'report.html', report_html(
        results, 'Calibration of a simulated arm', panels, advice), 'report')


def _problems(outcomes: Sequence[TourOutcome], comparisons: Sequence[Comparison]) -> list[str]:
    """Return a sentence for each failed tour and each truth outside its interval."""
    problems = [
        f'{outcome.title}: {outcome.message}' for outcome in outcomes if not outcome.passed
    ]
    problems += [
        f'{item.capability}, {item.method}: the hidden {item.parameter} of {item.truth:.6g} '
        f'{item.unit} lies outside the 99.9 % interval of the estimate {item.estimate:.6g} '
        f'{item.unit}.'
        for item in comparisons if not item.covered
    ]
    return problems


if __name__ == '__main__':
    sys.exit(main())
