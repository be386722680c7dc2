# SPDX-License-Identifier: Apache-2.0
"""Report of results as one self-contained HTML page: verdict, what to do, values, plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import plotly.graph_objects as go

from robocal_ros.results import wording
from robocal_ros.results.page import plural, rendered
from robocal_ros.results.plots import description, figure
from robocal_ros.results.result import CalibrationResult, Fit, Parameter, Verdict

Truth = Mapping[str, Mapping[str, float]]
"""Known values by kind of result and name of parameter, in the result's frame and units."""

# Settings beside standard deviations that a result relies on without measuring them.
_ASSUMED = ('known_mass', 'mass_source', 'arm_load', 'load_mass', 'gravity', 'urdf_payload_mass',
            'model_std', 'reference_run', 'effort_contains', 'widened_priors')
# Parameters in a summary, and the earliest stamp that is a date (2001) [s].
_HEADLINE, _FIRST_DATE = 4, 1e9
_DROPS = ('dropped', 'out_of_order', 'incomplete', 'not_finite', 'implausible', 'clock_jumps',
          'interruptions')


@dataclass(frozen=True)
class Step:
    """What to do with a result.

    Attributes:
        text: The instruction, in sentences.
        commands: Commands to copy, each with a label, which may be empty.
        changes: Changes of a file as a unified diff, empty for none.

    """

    text: str
    commands: tuple[tuple[str, str], ...] = ()
    changes: str = ''


@dataclass(frozen=True)
class Advice:
    """Information for the reader about a result in addition to its content.

    Attributes:
        steps: What to do now, in order.
        stale: Sentences on inputs that are no longer current.

    """

    steps: tuple[Step, ...] = ()
    stale: tuple[str, ...] = ()


@dataclass(frozen=True)
class Panel:
    """Section beside the results: a table and figures from other sources.

    Attributes:
        title: Heading.
        passed: Verdict of the section.
        message: Summary in one or two sentences.
        columns: Headings of the table, and whether the column is numeric.
        rows: Cells of the table as text.
        drawings: Titles and Plotly figures.

    """

    title: str
    passed: bool
    message: str
    columns: tuple[tuple[str, bool], ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    drawings: tuple[tuple[str, go.Figure], ...] = ()

    @property
    def headings(self) -> list[tuple[str, str]]:
        """Headings and looks of the columns."""
        return [(text, 'number' if number else 'words') for text, number in self.columns]


def report_html(
    results: Sequence[CalibrationResult],
    truth: Truth | None = None,
    title: str = 'Calibration report',
    panels: Sequence[Panel] = (),
    advice: Sequence[Advice] = (),
) -> str:
    """Return the report as an HTML page.

    Args:
        results: Results in this order.
        truth: Known values for comparison.
        title: Title of the page.
        panels: Further sections after the results.
        advice: What to do with each result, in their order; empty for nothing.

    """
    items = [_Item(i, result, own, (truth or {}).get(result.kind, {})) for i, (result, own)
             in enumerate(zip(results, advice or [Advice()] * len(results), strict=True))]
    plots = [figure(series) for result in results for series in result.series]
    plots += [drawing for panel in panels for _, drawing in panel.drawings]
    robots = list(dict.fromkeys(result.robot.name for result in results))
    names = ', '.join(f'“{name}”' for name in robots)
    return rendered(
        'report.html', title,
        f'{plural(len(results), "result")} of robot {names}.' if results
        else 'There are no results.',
        plots, items=items, by_hash={item.result.sha256: item for item in items}, panels=panels,
        tally=_tally(items), several_robots=len(robots) > 1,
        description=description, fit_row=_fit_row, changes=_changes)


class _Item:
    """One result as the page shows it."""

    def __init__(
        self, index: int, result: CalibrationResult, advice: Advice, truth: Mapping[str, float]
    ) -> None:
        self.index, self.result, self.advice = index, result, advice
        self.title = wording.title_of(result)
        self.words = wording.VERDICT_WORDS[result.verdict]
        shown = [p for p in result.parameters if p.value is not None]
        # The first ones on one line, and how many there are besides.
        more = len(shown) - _HEADLINE
        self.headline = ' · '.join((
            *(f'{wording.described(p.name)} {wording.reading(p).text}' for p in shown[:_HEADLINE]),
            *([f'{more} more'] if more > 0 else [])))
        # A date, unless the clock counts from a start.
        self.measured = (
            f'at {result.time:.0f} s of its clock' if result.time < _FIRST_DATE else
            datetime.fromtimestamp(result.time, timezone.utc).strftime('%Y-%m-%d %H:%M UTC'))
        self.origin = ', '.join(filter(None, (result.robot.name, result.source, self.measured)))
        self.met = [check for check in result.checks if check.passed and check.evaluated]
        self.prevents = sorted((check for check in result.checks if check not in self.met),
                               key=lambda check: check.passed)
        self.compared = bool(truth.keys() & {p.name for p in shown})
        self.values = [_value(parameter, truth.get(parameter.name)) for parameter in shown]
        self.missing = wording.without_value(result.parameters)
        # Counts and settings by what they say.
        losses = {name: n for name, n in result.counts.items() if name.endswith(_DROPS)}
        self.counted = {name: n for name, n in result.counts.items() if name not in losses}
        self.lost = {name: n for name, n in losses.items() if n}
        self.losses = ('Some messages were lost or unusable:' if self.lost else
                       'No message was lost or unusable.' if losses else
                       'Losses were not counted.')
        self.assumed = {name: value for name, value in result.settings.items()
                        if name.endswith('_std') or name in _ASSUMED}
        self.settings = {name: value for name, value in result.settings.items()
                         if name not in self.assumed}
        # Priors, given values, and results on which this one is built.
        self.assumed |= {item.kind: f'{item.name}, {item.sha256[:12]}…' if item.sha256 else 'none'
                         for item in result.inputs}
        self.used = {item.kind: f'{item.name} {item.sha256}' for item in result.inputs}


def _tally(items: Sequence[_Item]) -> str:
    passed = sum(item.result.verdict is Verdict.PASS for item in items)
    sentences = [f'{passed} of {len(items)} results passed.']
    for text, names in (
        ('Do not use', [i.title for i in items if i.result.verdict is not Verdict.PASS]),
        ('Stale, to be estimated again', [i.title for i in items if i.advice.stale]),
    ):
        if names:
            sentences.append(f'{text}: {"; ".join(names)}.')
    return ' '.join(sentences)


def _changes(text: str) -> list[tuple[str, str]]:
    """Return the lines of a unified diff, each with ``added``, ``removed`` or nothing."""
    kinds = {'+': 'added', '-': 'removed'}
    return [('' if line[:3] in ('+++', '---') else kinds.get(line[:1], ''), line)
            for line in text.splitlines()]


def _value(parameter: Parameter, truth: float | None) -> dict[str, Any]:
    """Return a parameter as shown, with truth and error at the resolution of its interval."""
    compared = ['', '']
    if truth is not None and parameter.value is not None:
        _, factor = wording.handy(parameter.unit)
        half = parameter.half_width()
        resolution = None if half is None else factor * half
        compared = [wording.rounded(factor * truth, resolution),
                    wording.rounded(factor * (parameter.value - truth), resolution)]
    return {'name': parameter.name, 'described': wording.described(parameter.name),
            'shown': wording.reading(parameter), 'note': parameter.note, 'compared': compared}


def _fit_row(fit: Fit) -> list[str]:
    share = f'{100.0 * (1.0 - fit.after / fit.before):.1f} %' if fit.before > 0.0 else ''
    unit, factor = wording.handy(fit.unit)
    before, after = (f'{factor * value:#.3g}'.rstrip('.') for value in (fit.before, fit.after))
    return [fit.what, before, after, unit, share, f'{fit.count}']
