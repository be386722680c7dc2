# SPDX-License-Identifier: Apache-2.0
"""Records of benchmarks in one results file, and the page that is made from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks.benchmark import Figure, Table
from robocal_ros.errors import FileFormatError
from robocal_ros.results import grouped, plural
from robocal_ros.results.wording import rounded

_DIGITS = 6
_MACHINE = ('processor', 'cores', 'system', 'python')
_RUN = ('time', 'commit', 'taken', 'processor_time', 'seeds', 'jobs', 'live', 'quick')


@dataclass(frozen=True)
class Record:
    """Outcome of one benchmark in the results file.

    Attributes:
        title: Heading.
        about: Sentences on what was measured, and on what.
        conditions: Time, commit, machine, versions, sizes and duration.
        figures: Figures.
        tables: Comparisons.
        remarks: Sentences below the figures.

    """

    title: str
    about: str
    conditions: Mapping[str, Any]
    figures: Sequence[Figure]
    tables: Sequence[Table] = ()
    remarks: Sequence[str] = field(default_factory=tuple)


def read_records(path: Path) -> dict[str, Record]:
    """Return the records by name; none if there is no file.

    Raises:
        FileFormatError: It is not a results file.

    """
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Record])
    except msgspec.MsgspecError as error:
        raise FileFormatError(f'{path} is not a results file of the benchmarks ({error}). Delete '
                              'it and run scripts/bench.') from error


def write_records(path: Path, records: Mapping[str, Record]) -> None:
    """Write the records; numbers keep six digits."""
    plain = {name: {**msgspec.to_builtins(record), 'figures': [
        {**asdict(figure), 'met': figure.met} for figure in record.figures]}
        for name, record in records.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(_rounded(plain)), indent=1) + b'\n')


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f'{value:.{_DIGITS}g}')
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / 'templates'), undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True)
    made.globals['markdown'], made.filters['plural'] = markdown, plural
    return made


def write_page(path: Path, records: Mapping[str, Record]) -> None:
    """Write the page."""
    machines = grouped(records.values(), _machine)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = _environment().get_template('page.md').render(
        met=[met for record in records.values() for met in _met(record)],
        rows=[_overview(record) for record in records.values()],
        machines={words: [record.title for record in own] for words, own in machines.items()},
        sections=map(section, records.values()))
    path.write_text(f'{text.rstrip()}\n', encoding='utf-8')


def section(record: Record) -> str:
    """Return a benchmark's section."""
    series = grouped(record.figures, lambda figure: figure.series)
    return _environment().get_template('section.md').render(
        record=record, cells=record.conditions['seeds'],
        series={name: map(_row, figures) for name, figures in series.items()})


def _met(record: Record) -> list[bool]:
    return [figure.met for figure in record.figures if figure.met is not None]


def _overview(record: Record) -> Sequence[str]:
    """Return title with link, limits met, times, and commit of a benchmark."""
    kept = ''.join(letter for letter in record.title.lower()
                   if letter.isalnum() or letter in ' -_')
    met, known = _met(record), record.conditions
    words = f'{sum(met)} of {len(met)}'
    return (f'[{record.title}](#{kept.replace(" ", "-")})', words if all(met) else f'**{words}**',
            *(f'{known[key]:.0f} s' if key in known else ''
              for key in ('taken', 'processor_time')),
            str(known['time'])[:16], f'`{known["commit"]}`')


def _machine(record: Record) -> str:
    """Return a sentence on the machine and the versions."""
    known = record.conditions
    versions = ', '.join(f'{key} {value}' for key, value in known.items()
                         if key not in (*_MACHINE, *_RUN))
    return (f'{known["processor"]}, {known["cores"]} cores, {known["system"]}, '
            f'Python {known["python"]}; {versions}.')


def _row(figure: Figure) -> Sequence[str]:
    band = '' if figure.band is None else ' to '.join(number(end) for end in figure.band)
    worst = '' if figure.worst == figure.median else number(figure.worst)
    cells = (figure.what, number(figure.median), band, worst, _limit(figure), figure.unit)
    if figure.met is not False:
        return cells
    reason = f' Missed: {figure.reason}' if figure.reason else ' Missed; the reason is unknown.'
    return (f'**{cells[0]}**{reason}', *(f'**{cell}**' if cell else '' for cell in cells[1:]))


def _limit(figure: Figure) -> str:
    return '' if figure.bar is None else f'{"≥" if figure.at_least else "≤"} {figure.bar:g}'


def number(value: float) -> str:
    """Return a number with three significant digits."""
    return rounded(float(f'{value:.3g}'))


def _cell(item: str | float | None) -> str:
    if item is None or item != item:
        return ''
    return item if isinstance(item, str) else number(item)


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str | float | None]]) -> str:
    """Return a table with an empty line behind it; nothing without rows."""
    lines = [f'| {" | ".join(cell.replace("|", chr(92) + "|") for cell in row)} |'
             for row in [[_cell(item) for item in row] for row in rows]]
    head = [f'| {" | ".join(columns)} |', '|---' * len(columns) + '|']
    return '\n'.join([*head, *lines, '']) if lines else ''
