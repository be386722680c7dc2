# SPDX-License-Identifier: Apache-2.0
"""Report of results as one self-contained HTML page.

Plots show measurements as markers, models as lines and intervals as bands.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from importlib.resources import files
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from robocal_ros import __version__
from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError
from robocal_ros.results import wording
from robocal_ros.results.result import CalibrationResult, Fit, Parameter, Series

Truth = Mapping[str, Mapping[str, float]]
"""Known values by kind of result and name of parameter, in the result's frame and units."""

_BADGES = {'pass': 'pass', 'fail': 'fail', 'not_evaluated': 'not evaluated'}
# Settings beside standard deviations that a result relies on without measuring them.
_ASSUMED = ('known_mass', 'mass_source', 'arm_load', 'load_mass', 'gravity', 'urdf_payload_mass',
            'model_std', 'reference_run', 'effort_contains', 'widened_priors')
_DROPS = ('dropped', 'out_of_order', 'incomplete', 'not_finite', 'implausible', 'clock_jumps',
          'interruptions')


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


def write_report(
    results: Sequence[CalibrationResult],
    path: Path,
    truth: Truth | None = None,
    title: str = 'Calibration report',
    panels: Sequence[Panel] = (),
) -> None:
    """Write the report.

    Args:
        results: Results in this order.
        path: The HTML file.
        truth: Known values for comparison.
        title: Title of the page.
        panels: Further sections after the results.

    Raises:
        ConfigurationError: If the file cannot be written.

    """
    page = report_html(results, truth, title, panels)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding='utf-8')
    except OSError as error:
        raise ConfigurationError(
            f'The report could not be written to {path} ({error.strerror}). '
            'Make the folder writable or name another file.'
        ) from error


def report_html(
    results: Sequence[CalibrationResult],
    truth: Truth | None = None,
    title: str = 'Calibration report',
    panels: Sequence[Panel] = (),
) -> str:
    """Return the page; see ``write_report`` for the arguments."""
    truth = truth or {}
    # In the order of their placeholders on the page.
    plots = [figure(series) for result in results for series in result.series]
    plots += [drawing for panel in panels for _, drawing in panel.drawings]
    figures = [json.loads(plot.to_json()) for plot in plots]
    # "<" in a name could end the script element.
    data = json.dumps(figures, ensure_ascii=False).replace('<', '\\u003c')
    sections = '\n'.join(
        _section(i, result, truth.get(result.kind, {})) for i, result in enumerate(results)
    ) + '\n'.join(_panel(panel) for panel in panels)
    drawing = (
        f'<script type="application/json" id="figures">{data}</script>\n'
        f'<script>{get_plotlyjs()}</script>\n<script>{_asset("report.js")}</script>\n'
    ) if plots else ''
    written = datetime.now(timezone.utc).strftime('%d %B %Y, %H:%M UTC')
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<style>{_asset("report.css")}</style>\n</head>\n<body>\n<main>\n'
        f'<header><h1>{escape(title)}</h1>\n'
        f'<p class="lead">{_introduction(results)}</p></header>\n'
        f'{_overview(results)}\n{sections}\n'
        f'<footer>Written on {written} by robocal_ros {escape(__version__)}.</footer>\n'
        f'</main>\n{drawing}</body>\n</html>\n'
    )


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding='utf-8')


def _introduction(results: Sequence[CalibrationResult]) -> str:
    robots = ', '.join(dict.fromkeys(f'“{result.robot.name}”' for result in results))
    count = f'{len(results)} result' + ('' if len(results) == 1 else 's')
    return escape(f'{count} of robot {robots}.') if results else 'There are no results.'


def _overview(results: Sequence[CalibrationResult]) -> str:
    if len(results) < 2:
        return ''
    rows = ''.join(
        f'<tr><td><a href="#result-{i}">{escape(wording.title_of(result))}</a></td>'
        f'<td class="soft">{escape(_headline(result))}</td><td>{_badge(result)}</td></tr>'
        for i, result in enumerate(results)
    )
    return f'<nav><div class="scroll"><table>{rows}</table></div></nav>'


def _headline(result: CalibrationResult) -> str:
    """Return the first four parameters on one line."""
    found = [p for p in result.parameters if p.value is not None][:4]
    return ' · '.join(
        f'{wording.described(p.name)} {wording.reading(p).text}' for p in found
    )


def _badge(result: CalibrationResult) -> str:
    verdict = result.verdict.value
    return f'<span class="badge {verdict}">{_BADGES[verdict]}</span>'


def _section(index: int, result: CalibrationResult, truth: Mapping[str, float]) -> str:
    plots = ''.join(_plot(series.title) for series in result.series)
    return (
        f'<section id="result-{index}">\n'
        f'<div class="head"><h2>{escape(wording.title_of(result))}</h2>{_badge(result)}</div>\n'
        f'{_verdict(result)}\n{_parameters(result, truth)}\n{_residuals(result)}\n'
        f'{_assumptions(result)}\n'
        + (f'<h3>Plots</h3>\n<div class="plots">{plots}</div>\n' if plots else '')
        + f'{_details(result)}\n</section>'
    )


def _panel(panel: Panel) -> str:
    verdict = 'pass' if panel.passed else 'fail'
    rows = [[escape(cell) for cell in row] for row in panel.rows]
    table = _table(panel.columns, rows) if rows else ''
    drawings = ''.join(_plot(title) for title, _ in panel.drawings)
    return (
        '<section>\n'
        f'<div class="head"><h2>{escape(panel.title)}</h2>'
        f'<span class="badge {verdict}">{verdict}</span></div>\n'
        f'<p>{escape(panel.message)}</p>\n{table}\n'
        + (f'<div class="plots">{drawings}</div>\n' if drawings else '')
        + '</section>'
    )


def _plot(title: str) -> str:
    return (f'<figure><h4>{escape(title)}</h4><div class="plot" role="img" '
            f'aria-label="{escape(title)}"></div></figure>')


def _verdict(result: CalibrationResult) -> str:
    checks = ''.join(
        f'<li class="{"ok" if check.passed else "bad"}">{escape(check.reason)}</li>'
        # Failed checks first.
        for check in sorted(result.checks, key=lambda check: check.passed)
    )
    told = '' if result.checks else f'<p>{escape(" ".join(result.reasons))}</p>'
    return (f'<p><strong>{escape(wording.VERDICT_WORDS[result.verdict])}</strong></p>{told}'
            f'<ul class="checks">{checks}</ul>')


def _table(header: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of HTML cells; a header's flag marks numeric columns."""
    kinds = [' class="number"' if number else ' class="words"' for _, number in header]
    head = ''.join(f'<th{kind}>{escape(text)}</th>'
                   for (text, _), kind in zip(header, kinds, strict=True))
    body = ''.join(
        '<tr>' + ''.join(f'<td{kind}>{cell}</td>'
                         for cell, kind in zip(row, kinds, strict=True)) + '</tr>'
        for row in rows
    )
    return (f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
            f'<tbody>{body}</tbody></table></div>')


def _parameters(result: CalibrationResult, truth: Mapping[str, float]) -> str:
    shown = [p for p in result.parameters if p.value is not None]
    compared = bool(truth.keys() & {p.name for p in shown})
    header = [('Parameter', False), ('Value', True), ('± (95 %)', True), ('Unit', False)]
    if compared:
        header += [('Truth', True), ('Error', True)]
    header += [('State', False)]
    rows = [_parameter_row(p, truth.get(p.name), compared) for p in shown]
    frame = (f' <span class="soft small">in frame <code>{escape(result.frame)}</code></span>'
             if result.frame else '')
    others = ''.join(f'<p class="soft small">{escape(line)}</p>'
                     for line in wording.without_value(result.parameters))
    return f'<h3>Values{frame}</h3>\n{_table(header, rows)}\n{others}'


def _parameter_row(parameter: Parameter, truth: float | None, compared: bool) -> list[str]:
    shown = wording.reading(parameter)
    row = [
        f'{escape(wording.described(parameter.name))}<code>{escape(parameter.name)}</code>',
        shown.value, shown.half, escape(shown.unit),
    ]
    if compared:
        row += _compared(parameter, truth)
    note = f'<div class="soft small">{escape(parameter.note)}</div>' if parameter.note else ''
    return [*row, f'{escape(shown.state)}{note}']


def _compared(parameter: Parameter, truth: float | None) -> list[str]:
    """Return truth and error, rounded to the resolution of the interval."""
    if truth is None or parameter.value is None:
        return ['', '']
    _, factor = wording.handy(parameter.unit)
    half = wording.half_width(parameter)
    resolution = None if half is None else factor * half
    error = wording.rounded(factor * (parameter.value - truth), resolution)
    return [wording.rounded(factor * truth, resolution), error]


def _residuals(result: CalibrationResult) -> str:
    parts = []
    for title, fits, explanation in (
        ('Fit', result.fit,
         'Root mean square of the measurements and of the residuals of the model.'),
        ('Held-out data', result.validation,
         'The same for measurements that were not used in the fit.'),
    ):
        if fits:
            parts.append(f'<h3>{title}</h3>\n<p class="soft small">{explanation}</p>\n'
                         + _table([('Measurement', False), ('Measured', True), ('Residual', True),
                                   ('Unit', False), ('Explained', True), ('Count', True)],
                                  map(_fit_row, fits)))
    return '\n'.join(parts)


def _fit_row(fit: Fit) -> list[str]:
    share = f'{100.0 * (1.0 - fit.after / fit.before):.1f} %' if fit.before > 0.0 else ''
    before, after = (f'{value:#.3g}'.rstrip('.') for value in (fit.before, fit.after))
    return [escape(fit.what), before, after, escape(fit.unit), share, f'{fit.count}']


def _is_assumed(name: str) -> bool:
    """Return whether a setting states something that the result relies on without measuring it."""
    return name.endswith('_std') or name in _ASSUMED


def _assumptions(result: CalibrationResult) -> str:
    """Return what the result takes as given: priors, given values, and results it builds on."""
    assumed = {name: value for name, value in result.settings.items() if _is_assumed(name)}
    for item in result.inputs:
        assumed[item.kind] = f'{item.name}, {item.sha256[:12]}…' if item.sha256 else 'none'
    return f'<h3>Assumed, not measured</h3>{_pairs(assumed)}' if assumed else ''


def _details(result: CalibrationResult) -> str:
    """Return the collapsed section of counts, settings and origin."""
    losses = {name: n for name, n in result.counts.items() if name.endswith(_DROPS)}
    counted = {name: n for name, n in result.counts.items() if name not in losses}
    lost = {name: n for name, n in losses.items() if n}
    summary = ('Some messages were lost or unusable:' if lost else
               'No message was lost or unusable.' if losses else 'Losses were not counted.')
    origin = {
        'robot': result.robot.name,
        'joints': ', '.join(result.robot.joint_names),
        'robot description (SHA-256)': result.robot.urdf_sha256,
        'source': result.source,
        'newest sample [s]': f'{result.time:.3f}',
        'software': f'robocal_ros {result.software_version}',
    }
    inputs = {item.kind: f'{item.name} {item.sha256}' for item in result.inputs}
    settings = {name: value for name, value in result.settings.items() if not _is_assumed(name)}
    return (
        '<details><summary>Counts, settings and origin</summary>\n<div class="two">'
        f'<div><h3>Counts</h3>{_pairs(counted)}'
        f'<h3>Losses</h3><p class="soft small">{summary}</p>{_pairs(lost)}</div>'
        f'<div><h3>Settings</h3>{_pairs(settings)}</div></div>'
        f'<h3>Origin</h3>{_pairs(origin)}'
        + (f'<h3>Inputs</h3>{_pairs(inputs)}' if inputs else '') + '</details>'
    )


def _pairs(values: Mapping[str, object]) -> str:
    rows = ''.join(
        f'<tr><td class="soft">{escape(wording.heading(name))}</td>'
        f'<td style="overflow-wrap: anywhere">{escape(_setting(value))}</td></tr>'
        for name, value in values.items()
    )
    return f'<div class="scroll"><table>{rows}</table></div>'


def _setting(value: object) -> str:
    if isinstance(value, bool):
        return 'yes' if value else 'no'
    if isinstance(value, float):
        return wording.rounded(value)
    if isinstance(value, list):
        return ', '.join(_setting(item) for item in value) or 'none'
    if isinstance(value, dict):
        return '; '.join(f'{key}: {_setting(item)}' for key, item in value.items()) or 'none'
    return 'none' if value is None or value == '' else str(value)


# Okabe and Ito's palette, distinguishable with colour blindness.
_COLOURS = ('#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#7f7f7f')
_UPPER, _LOWER = '95 % upper', '95 % lower'
_SETTLED = 0.5


def figure(series: Series) -> go.Figure:
    """Draw the curves of a series.

    A curve's name may have a suffix after a comma: ``x, held out`` is drawn with hollow markers
    in the colour of ``x``; ``x, 95 % upper`` and ``x, 95 % lower`` as a band about it.
    """
    counted = series.x_label == 'samples'
    subjects = dict.fromkeys(map(_subject, series.curves))
    colours = dict(zip(subjects, itertools.cycle(_COLOURS), strict=False))
    drawing = go.Figure([
        *_bands(series, colours),
        *(_trace(series, name, y, colours[_subject(name)])
          for name, y in series.curves.items() if _remark(name) not in (_UPPER, _LOWER)),
    ])
    drawing.update_layout(
        template='none',
        margin={'l': 60, 'r': 10, 't': 8, 'b': 45},
        showlegend=len(drawing.data) > 1,
        legend={'orientation': 'h', 'x': 0, 'y': 1.02, 'yanchor': 'bottom'},
        hovermode='closest',
        xaxis={'title': {'text': series.x_label}, 'type': 'log' if counted else 'linear',
               'dtick': 1 if counted else None},
        yaxis={'title': {'text': series.y_label},
               'range': _settled_range(series) if counted else None},
    )
    if series.x_label == 'posture':
        drawing.update_xaxes(dtick=1 if len(series.x) <= 16 else None)
    return drawing


def _subject(name: str) -> str:
    return name.partition(',')[0]


def _remark(name: str) -> str:
    return name.partition(',')[2].strip()


def _bands(series: Series, colours: dict[str, str]) -> Iterator[go.Scatter]:
    """Yield the outlines of each band: the lower, then the upper filled down to it."""
    for subject, colour in colours.items():
        lower = series.curves.get(f'{subject}, {_LOWER}')
        upper = series.curves.get(f'{subject}, {_UPPER}')
        if lower is None or upper is None:
            continue
        outline = {'x': series.x, 'mode': 'lines', 'line': {'width': 0}, 'hoverinfo': 'skip',
                   'showlegend': False}
        yield go.Scatter(y=lower, **outline)
        red, green, blue = (int(colour[i:i + 2], 16) for i in (1, 3, 5))
        yield go.Scatter(y=upper, fill='tonexty', fillcolor=f'rgba({red},{green},{blue},0.18)',
                         **outline)


def _trace(series: Series, name: str, y: Array, colour: str) -> go.Scatter:
    shared = {'x': series.x, 'y': y, 'name': name}
    if name.startswith('measured') or series.y_label.startswith('residual'):
        hollow = bool(_remark(name))
        return go.Scatter(
            mode='markers', **shared,
            marker={'color': colour, 'size': 8 if len(series.x) < 40 else 5, 'opacity': 0.8,
                    'symbol': 'circle-open' if hollow else 'circle',
                    'line': {'width': 1.5 if hollow else 0, 'color': colour}},
        )
    if _jumps(y):
        # Two branches in one curve (both directions): a line would jump between them.
        return go.Scatter(mode='markers', **shared,
                          marker={'color': colour, 'size': 7, 'symbol': 'line-ew-open',
                                  'line': {'width': 2}})
    return go.Scatter(mode='lines', **shared, line={'color': colour, 'width': 2})


def _jumps(y: Array) -> bool:
    """Return whether neighbouring points are far apart along the whole curve."""
    return len(y) > 10 and float(np.abs(np.diff(y)).sum()) > 8.0 * float(np.ptp(y))


def _settled_range(series: Series) -> list[float] | None:
    """Return the range of the ordinate after settling; the start may be off scale."""
    late = slice(int(_SETTLED * len(series.x)), None)
    curves = [y[late] for y in series.curves.values()]
    if not curves or not len(curves[0]):
        return None
    low, high = min(y.min() for y in curves), max(y.max() for y in curves)
    margin = 0.08 * (high - low) or 1.0
    return [float(low - margin), float(high + margin)]
