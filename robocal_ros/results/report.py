# SPDX-License-Identifier: Apache-2.0
"""Results as self-contained HTML pages: verdict, what to do, values, plots; and their comparison.

Plotly, which takes long to import, is imported with the first plot.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from jinja2 import Environment, PackageLoader, StrictUndefined

from robocal_ros import __version__
from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError
from robocal_ros.results import wording
from robocal_ros.results.result import Z95, CalibrationResult, Fit, Series, State, Verdict, rms

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Settings beside standard deviations that a result relies on without measuring them.
_ASSUMED = ('known_mass', 'mass_source', 'arm_load', 'load_mass', 'gravity', 'urdf_payload_mass',
            'model_std', 'reference_run', 'effort_contains', 'widened_priors')
# Parameters in a summary, and the earliest stamp that is a date (2001) [s].
_HEADLINE, _FIRST_DATE = 4, 1e9
_DROPS = ('dropped', 'out_of_order', 'incomplete', 'not_finite', 'implausible', 'clock_jumps',
          'interruptions')
# Probability of any difference by chance, over all values together.
_CHANCE = 0.05
# Okabe and Ito's palette, distinguishable with colour blindness.
_COLOURS = ('#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#7f7f7f')
LAYOUT = {
    'template': 'none', 'margin': {'l': 60, 'r': 10, 't': 8, 'b': 45}, 'hovermode': 'closest',
    'legend': {'orientation': 'h', 'x': 0, 'y': 1.02, 'yanchor': 'bottom'}}
"""What all plots have in common."""

_RESIDUAL = 'residual'
# Resolution of figures in a description, relative to the largest.
_FINE = 0.01


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
    title: str = 'Calibration report',
    panels: Sequence[Panel] = (),
    advice: Sequence[Advice] = (),
) -> str:
    """Return the report as an HTML page.

    Args:
        results: Results in this order.
        title: Title of the page.
        panels: Further sections after the results.
        advice: What to do with each result, in their order; empty for nothing.

    """
    items = [_Item(i, result, own) for i, (result, own) in enumerate(
        zip(results, advice or [Advice()] * len(results), strict=True))]
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

    def __init__(self, index: int, result: CalibrationResult, advice: Advice) -> None:
        self.index, self.result, self.advice = index, result, advice
        self.title = wording.title_of(result)
        self.words = wording.VERDICT_WORDS[result.verdict]
        self.values = [(p, wording.described(p.name), wording.reading(p))
                       for p in wording.shown(result.parameters)]
        # The first ones on one line, and how many there are besides.
        more = len(self.values) - _HEADLINE
        self.headline = ' · '.join((
            *(f'{name} {shown.text}' for _, name, shown in self.values[:_HEADLINE]),
            *([f'{more} more'] if more > 0 else [])))
        # A date, unless the clock counts from a start.
        self.measured = (
            f'at {result.time:.0f} s of its clock' if result.time < _FIRST_DATE else
            datetime.fromtimestamp(result.time, timezone.utc).strftime('%Y-%m-%d %H:%M UTC'))
        self.origin = ', '.join(filter(None, (result.robot.name, result.source, self.measured)))
        self.met = [check for check in result.checks if check.passed and check.evaluated]
        self.prevents = sorted((check for check in result.checks if check not in self.met),
                               key=lambda check: check.passed)
        self.missing = wording.not_shown(result.parameters)
        # Counts and settings by what they say.
        losses = {name: n for name, n in result.counts.items() if name.endswith(_DROPS)}
        self.counted = {name: n for name, n in result.counts.items() if name not in losses}
        self.lost = {name: n for name, n in losses.items() if n}
        self.losses = ('Some messages were lost or unusable:' if self.lost else
                       'No message was lost or unusable.' if losses else
                       'Losses were not counted.')
        self.assumed: dict[str, Any] = {}
        self.settings: dict[str, Any] = {}
        for name, value in result.settings.items():
            there = self.assumed if name.endswith('_std') or name in _ASSUMED else self.settings
            there[wording.with_unit(name)] = value
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


def _fit_row(fit: Fit) -> list[str]:
    share = f'{100.0 * (1.0 - fit.after / fit.before):.1f} %' if fit.before > 0.0 else ''
    unit, factor = wording.handy(fit.unit)
    before, after = (f'{factor * value:#.3g}'.rstrip('.') for value in (fit.before, fit.after))
    return [fit.what, before, after, unit, share, f'{fit.count}']


# ------------------------------------------------------------------------------ comparison


def comparison(first: CalibrationResult, second: CalibrationResult) -> Panel:
    """Return the differences of two results, as a section of a report.

    Errors of the two count as independent. A difference is significant if chance exceeds it in 5 %
    of such comparisons, all values together (Šidák).

    Args:
        first: One result, such as that of before.
        second: The other one.

    Raises:
        ConfigurationError: If kinds, joints or frames differ.

    """
    for what, own, other in (
            ('kinds', first.kind, second.kind), ('frames', first.frame, second.frame),
            ('joints', *(', '.join(r.robot.joint_names) for r in (first, second)))):
        if own != other:
            raise ConfigurationError(
                f'Results of different {what} cannot be compared: {own} and {other}.')
    known = {item.name: item for item in second.parameters if item.state is State.IDENTIFIED}
    pairs = [(item, known[item.name]) for item in first.parameters
             if item.state is State.IDENTIFIED and item.name in known]
    limit = float(-scipy.special.ndtri(
        0.5 * (1.0 - (1.0 - _CHANCE) ** (1.0 / max(len(pairs), 1)))))
    rows, significant = [], 0
    for a, b in pairs:
        unit, factor = wording.handy(a.unit)
        half = factor * math.hypot(a.half_width() or 0.0, b.half_width() or 0.0)
        change = factor * ((b.value or 0.0) - (a.value or 0.0))
        beyond = abs(change) * Z95 > limit * half
        significant += beyond
        rows.append((wording.described(a.name),
                     *(wording.rounded(factor * (item.value or 0.0), half) for item in (a, b)),
                     wording.rounded(change, half), wording.rounded(half, half), unit,
                     'significant' if beyond else 'within chance'))
    return Panel(
        f'{wording.title_of(second)} against {wording.title_of(first)}', not significant,
        f'{significant} of {len(rows)} values differ by more than chance. Errors count as '
        'independent; those of the same arm model or scale are common to both, and cancel.',
        (('value', False), ('first', True), ('second', True), ('difference', True),
         ('± (95 %)', True), ('unit', False), ('', False)), tuple(rows))


# ----------------------------------------------------------------------------------- plots


def figure(series: Series) -> go.Figure:
    """Draw the curves of a series.

    A curve ``residual`` beside others has an axis of its own, below them. A curve's name may
    have a suffix after a comma: ``x, held out`` is drawn with hollow markers in the colour of
    ``x``.
    """
    import plotly.graph_objects as go

    split = _RESIDUAL in series.curves and len(series.curves) > 1
    subjects = {name: name.partition(',')[0] for name in series.curves}
    colours = dict(zip(dict.fromkeys(subjects.values()), itertools.cycle(_COLOURS), strict=False))
    drawing = go.Figure([
        go.Scatter(x=series.x, y=y, name=name, **_looks(series, name, y, colours[subjects[name]]))
        for name, y in series.curves.items()])
    drawing.update_layout(
        **LAYOUT, showlegend=len(drawing.data) > 1,
        xaxis={'title': {'text': series.x_label}, 'anchor': 'y2' if split else 'y'},
        yaxis={'title': {'text': series.y_label}},
    )
    if split:
        _, bracket, unit = series.y_label.partition('[')
        drawing.update_traces(selector={'name': _RESIDUAL}, yaxis='y2', mode='markers',
                              marker={'size': 4, 'opacity': 0.8, 'symbol': 'circle'})
        drawing.update_layout(
            yaxis={'domain': [0.4, 1.0]},
            yaxis2={'domain': [0.0, 0.3], 'title': {'text': f'{_RESIDUAL}<br>{bracket}{unit}'}})
    if series.x_label == 'posture':
        drawing.update_xaxes(dtick=1 if len(series.x) <= 16 else None)
    return drawing


def description(series: Series) -> str:
    """Return what a plot shows in words, for those who cannot see it."""
    parts = [f'{series.y_label} over {series.x_label}, {plural(len(series.x), "point")}'
             + (f' from {_span(series.x)}' if len(series.x) else '')]
    for name, y in series.curves.items():
        if len(y):
            size = rms(y)
            parts.append(f'{name}: {_span(y)}, root mean square '
                         f'{wording.rounded(size, _FINE * size)}')
    return '; '.join(parts) + '.'


def _span(values: Array) -> str:
    low, high = float(values.min()), float(values.max())
    resolution = _FINE * max(abs(low), abs(high))
    return f'{wording.rounded(low, resolution)} to {wording.rounded(high, resolution)}'


def _looks(series: Series, name: str, y: Array, colour: str) -> dict[str, Any]:
    """Return the looks of a curve: markers for measurements, a line for a model."""
    if name.startswith('measured') or (
            series.y_label.startswith('residual') and not name.startswith(('+', '-'))):
        hollow = ',' in name
        return {'mode': 'markers', 'marker': {
            'color': colour, 'size': 8 if len(series.x) < 40 else 5, 'opacity': 0.8,
            'symbol': 'circle-open' if hollow else 'circle',
            'line': {'width': 1.5 if hollow else 0, 'color': colour}}}
    # Neighbours are far apart along the whole curve.
    if len(y) > 10 and float(np.abs(np.diff(y)).sum()) > 8.0 * float(np.ptp(y)):
        # Two branches in one curve (both directions): a line would jump between them.
        return {'mode': 'markers', 'marker': {
            'color': colour, 'size': 7, 'symbol': 'line-ew-open', 'line': {'width': 2}}}
    return {'mode': 'lines', 'line': {'color': colour, 'width': 2}}


# ----------------------------------------------------------------------------------- pages


def plural(number: int, word: str, words: str = '') -> str:
    """Return a number with its noun."""
    return f'{number} {word if number == 1 else words or word + "s"}'


@cache
def environment() -> Environment:
    """Return the environment of the templates, in which all text is escaped."""
    made = Environment(
        loader=PackageLoader('robocal_ros'), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True)
    made.filters.update(heading=wording.heading, plural=plural, setting=wording.setting)
    return made


def rendered(
    template: str, title: str, lead: str, plots: Sequence[go.Figure], **content: Any
) -> str:
    """Return a page.

    Args:
        template: Name of the template.
        title: Title.
        lead: Sentence below the title.
        plots: Plots in the order of their placeholders.
        **content: What the template shows.

    """
    from plotly.offline import get_plotlyjs

    figures = json.dumps([json.loads(plot.to_json()) for plot in plots], ensure_ascii=False)
    return environment().get_template(template).render(
        title=title, lead=lead, version=__version__,
        written=datetime.now(timezone.utc).strftime('%d %B %Y, %H:%M UTC'),
        # "<" in a name could end the script element.
        figures=figures.replace('<', '\\u003c') if plots else '',
        plotly=get_plotlyjs() if plots else '', **content)
