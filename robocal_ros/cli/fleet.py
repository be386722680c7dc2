# SPDX-License-Identifier: Apache-2.0
"""`robocal fleet`: estimate from many bags, and show the catalogue of their results."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rich.markup import escape

from robocal_ros.cli.console import OUT, ProgressView, print_line, table_of
from robocal_ros.cli.show import verdict_text
from robocal_ros.errors import ConfigurationError, nearest_name
from robocal_ros.results import Verdict, plural

if TYPE_CHECKING:
    from robocal_ros.fleet import Query, Summary

LIBRARIES = ('distributed', 'duckdb', 'fsspec', 'pyarrow')
"""Packages that the fleet needs and nothing else does."""

# Largest number of values listed.
_MAX_VALUES = 1000
_ROBOTS = """
WITH single AS (SELECT DISTINCT robot, kind, result, verdict, time FROM results),
good AS (
    SELECT robot, kind, count(*) AS count, count_if(verdict = 'pass') AS passed,
        max(time) AS newest, coalesce(
            arg_max(verdict, time), CASE count(DISTINCT verdict) WHEN 1 THEN min(verdict) END
        ) AS verdict
    FROM single GROUP BY robot, kind),
bad AS (SELECT robot, kind, count(*) AS failed FROM failures GROUP BY robot, kind)
SELECT * FROM good FULL JOIN bad USING (robot, kind) WHERE robot GLOB ? ORDER BY robot, kind
"""


def run(options: argparse.Namespace) -> int:
    """Run an action.

    Returns:
        0 if every bag has been estimated from, or the catalogue was shown; 1 otherwise.

    Raises:
        RobocalError: If a library is missing, or options or catalogue are unsuitable.

    """
    require()
    return {'estimate': _estimate, 'show': _show, 'dashboard': _dashboard}[options.action](options)


def require(libraries: Sequence[str] = LIBRARIES) -> None:
    """Raise a ConfigurationError that names the command to install missing libraries."""
    missing = [name for name in libraries if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f'robocal fleet needs libraries that are not installed: {", ".join(missing)}. Install '
            f'them with: {shlex.join(["pip", "install", *missing])}')


# ---------------------------------------------------------------------------- estimate


def _estimate(options: argparse.Namespace) -> int:
    from robocal_ros.fleet import Catalogue, Request, find_bags, run as fleet, storage

    request = Request(
        output=storage.absolute(options.output),
        urdf=storage.absolute(options.urdf) if options.urdf else '',
        params_files=tuple(storage.absolute(file) for file in options.params_file),
        overrides=tuple(options.param),
        results_dir=storage.absolute(options.results_dir) if options.results_dir else '',
        robot_from=options.robot_from, namespace=options.namespace,
        remapped=tuple(options.remap), capabilities=tuple(dict.fromkeys(options.capability)))
    bags = find_bags(options.places)
    with ProgressView(f'{len(bags)} bags') as view:
        view.pulse('Starting.')
        summary = fleet.estimate(
            bags, request,
            partial(fleet.workers, options.workers, options.memory_limit, options.scheduler),
            lambda count, name: view.update(
                100.0 * count / len(bags), f'{count} of {len(bags)}, {name}'),
            retry=options.retry)
    _print_summary(summary, options)
    failed = _print_failures(Catalogue(options.output).query, 10, 'bag IN (SELECT unnest(?))',
                             [bag.uri for bag in bags])
    print_line(f'Catalogue: {options.output} (robocal fleet show {options.output})')
    return 1 if failed else 0


def _print_summary(summary: Summary, options: argparse.Namespace) -> None:
    from robocal_ros.fleet import ESTIMATED, SKIPPED

    verdicts = ', '.join(f'{summary.verdicts[item.value]} {item.value}' for item in Verdict
                         if summary.verdicts[item.value])
    new = summary.verdicts.total()
    known = summary.outcomes[ESTIMATED] - new
    parts = (
        (True, plural(summary.bags, 'bag')),
        (True, f'{plural(new, "new result")}{f" ({verdicts})" if verdicts else ""}'),
        (known, plural(known, 'result of the same inputs was there',
                       'results of the same inputs were there')),
        (summary.repeated, f'{plural(summary.repeated, "bag was", "bags were")} finished before'),
        (summary.outcomes[SKIPPED],
         f'{plural(summary.outcomes[SKIPPED], "bag holds", "bags hold")} other runs'))
    print_line(f'{"; ".join(text for count, text in parts if count)}.')
    if len(summary.robots) == 1 and new > 1 and not options.robot_from:
        print_line(f"All are of robot '{next(iter(summary.robots))}', by the name in the URDF. If "
                   'these are several arms of one type, tell them apart with --robot-from.',
                   'yellow')


# -------------------------------------------------------------------------------- show


def _show(options: argparse.Namespace) -> int:
    from robocal_ros.fleet import Catalogue

    query = Catalogue(options.output).query
    if not query('SELECT 1 FROM bags UNION ALL SELECT 1 FROM all_results LIMIT 1'):
        raise ConfigurationError(
            f"'{options.output}' holds no catalogue. Name the output folder of robocal fleet "
            'estimate.')
    if options.parameter:
        _print_values(query, options.robot, options.parameter)
    else:
        _print_robots(query, options.robot)
        _print_failures(query, options.failures, 'robot GLOB ?', options.robot)
    return 0


def _print_robots(query: Query, robot: str) -> None:
    """Print the robots; raises ConfigurationError if none has such a name."""
    rows = query(_ROBOTS, [robot])
    if not rows:
        known = sorted({row['robot'] for row in query(_ROBOTS, ['*']) if row['robot']})
        raise ConfigurationError(f"No robot is named '{robot}'{nearest_name(robot, known)}; there "
                                 f'are: {", ".join(known) or "none"}.')
    OUT.print(table_of(
        (('robot', False), ('kind', False), ('results', True), ('passed', True),
         ('newest', False), ('verdict', False), ('failures', True)),
        ((escape(row['robot'] or '–'), row['kind'] or '–', str(row['count'] or 0),
          str(row['passed'] or 0), _date(row['newest']),
          verdict_text(Verdict(row['verdict'])) if row['verdict'] else '–',
          str(row['failed'] or '')) for row in rows)))


def _print_values(query: Query, robot: str, parameter: str) -> None:
    rows = query(
        'SELECT * FROM results WHERE robot GLOB ? AND parameter GLOB ? '
        f'ORDER BY robot, kind, parameter, time LIMIT {_MAX_VALUES + 1}', [robot, parameter])
    if not rows:
        known = query(
            'SELECT DISTINCT quantity FROM results WHERE robot GLOB ? ORDER BY 1', [robot])
        raise ConfigurationError(
            f"No result of a robot '{robot}' has a parameter '{parameter}'; there are: "
            f'{", ".join(row["quantity"] for row in known) or "none"}, those of joints as '
            '<joint>.<quantity>.')
    OUT.print(table_of(
        (('robot', False), ('parameter', False), ('time', False), ('value', True),
         ('std', True), ('unit', False), ('°C', True), ('verdict', False)),
        ((escape(row['robot']), escape(row['parameter']), _date(row['time']),
          row['state'].replace('_', ' ') if row['value'] is None else f'{row["value"]:.5g}',
          '' if row['std'] is None else f'{row["std"]:.2g}', row['unit'],
          '' if row['temperature'] is None else f'{row["temperature"]:.1f}',
          verdict_text(Verdict(row['verdict']))) for row in rows[:_MAX_VALUES])))
    if len(rows) > _MAX_VALUES:
        print_line(f'The first {_MAX_VALUES} values are shown; narrow down with --robot.',
                   'yellow')


def _print_failures(query: Query, limit: int, condition: str, chosen: object) -> int:
    """Print the newest failures that meet a condition in SQL, those of one reason together.

    Returns:
        Number of all failures.

    """
    rows = query(
        'SELECT first(bag ORDER BY tried DESC, bag) AS bag, kind, reason, count(*) AS count, '
        'sum(count(*)) OVER () AS total, count(*) OVER () AS reasons '
        f'FROM failures WHERE {condition} GROUP BY kind, reason '
        'ORDER BY max(tried) DESC, 1, kind LIMIT ?', [chosen, limit])
    for row in rows:
        others = f' and {row["count"] - 1} more' if row['count'] > 1 else ''
        kind = f', {row["kind"]}' if row['kind'] else ''
        print_line(f'✗ {row["bag"]}{others}{kind}: {row["reason"]}', 'red')
    if not rows:
        return 0
    total, reasons = int(rows[0]['total']), rows[0]['reasons']
    if reasons > len(rows):
        print_line(f'… and {total - sum(row["count"] for row in rows)} more; robocal fleet show '
                   f'lists them with --failures {reasons}.', 'red')
    return total


def _dashboard(options: argparse.Namespace) -> int:
    from robocal_ros.fleet import write_dashboard

    found = write_dashboard(options.folder, options.output, robot=options.robot,
                            robots=options.robots)
    urgent = [item for item in found.findings if item.urgent]
    print_line(f'{len(urgent)} findings need attention, on '
               f'{len({item.robot for item in urgent})} robots: {options.output}')
    return 0


def _date(time: datetime | None) -> str:
    return '–' if time is None else f'{time:%Y-%m-%d %H:%M}'
