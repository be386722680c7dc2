# SPDX-License-Identifier: Apache-2.0
"""Report of results as one self-contained HTML page: verdict, what to do, values, plots."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from importlib.resources import files
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from robocal_ros import __version__
from robocal_ros.errors import ConfigurationError
from robocal_ros.results import wording
from robocal_ros.results.plots import description, figure
from robocal_ros.results.result import CalibrationResult, Fit, Input, Parameter, Verdict

Truth = Mapping[str, Mapping[str, float]]
"""Known values by kind of result and name of parameter, in the result's frame and units."""

_BADGES = {'pass': 'pass', 'fail': 'fail', 'not_evaluated': 'not evaluated'}
# Settings beside standard deviations that a result relies on without measuring them.
_ASSUMED = ('known_mass', 'mass_source', 'arm_load', 'load_mass', 'gravity', 'urdf_payload_mass',
            'model_std', 'reference_run', 'effort_contains', 'widened_priors')
# Parameters in a summary, and the earliest stamp that is a date (2001) [s].
_HEADLINE, _FIRST_DATE = 4, 1e9
# Commands of a step, rows of a table and reasons for missing values that are shown unfolded.
_SHOWN, _LONG, _SENTENCES = 2, 40, 6
_NO_SCRIPT = '<noscript><p>The plots need JavaScript.</p></noscript>'
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
    """What a reader is told about a result in addition to its content.

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


def write_report(
    results: Sequence[CalibrationResult],
    path: Path,
    truth: Truth | None = None,
    title: str = 'Calibration report',
    panels: Sequence[Panel] = (),
    advice: Sequence[Advice] = (),
) -> None:
    """Write the report.

    Args:
        results: Results in this order.
        path: The HTML file.
        truth: Known values for comparison.
        title: Title of the page.
        panels: Further sections after the results.
        advice: What to do with each result, in their order; empty for nothing.

    Raises:
        ConfigurationError: If the file cannot be written.

    """
    page = report_html(results, truth, title, panels, advice)
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
    advice: Sequence[Advice] = (),
) -> str:
    """Return the page; see ``write_report`` for the arguments."""
    truth = truth or {}
    told = list(advice) or [Advice()] * len(results)
    # In the order of their placeholders on the page.
    plots = [figure(series) for result in results for series in result.series]
    plots += [drawing for panel in panels for _, drawing in panel.drawings]
    figures = [json.loads(plot.to_json()) for plot in plots]
    # "<" in a name could end the script element.
    data = json.dumps(figures, ensure_ascii=False).replace('<', '\\u003c')
    sections = '\n'.join(
        _section(i, result, truth.get(result.kind, {}), own)
        for i, (result, own) in enumerate(zip(results, told, strict=True))
    ) + '\n'.join(_panel(i, panel) for i, panel in enumerate(panels))
    drawing = (
        f'<script type="application/json" id="figures">{data}</script>\n'
        f'<script>{get_plotlyjs()}</script>\n<script>{_asset("report.js")}</script>\n'
    ) if plots else ''
    written = datetime.now(timezone.utc).strftime('%d %B %Y, %H:%M UTC')
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<style>{_asset("report.css")}</style>\n</head>\n'
        f'<body>\n<header><h1>{escape(title)}</h1>\n'
        f'<p class="lead">{_introduction(results)}</p></header>\n'
        f'<main>\n{_overview(results, told)}\n{_chain(results, told)}\n{sections}\n</main>\n'
        f'<footer>Written on {written} by robocal_ros {escape(__version__)}. '
        'Intervals: 95 %.</footer>\n'
        f'{drawing}</body>\n</html>\n'
    )


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding='utf-8')


def _introduction(results: Sequence[CalibrationResult]) -> str:
    robots = ', '.join(dict.fromkeys(f'“{result.robot.name}”' for result in results))
    count = f'{len(results)} result' + ('' if len(results) == 1 else 's')
    return escape(f'{count} of robot {robots}.') if results else 'There are no results.'


def _overview(results: Sequence[CalibrationResult], advice: Sequence[Advice]) -> str:
    """Return the table of all results, each with a link to its section."""
    if len(results) < 2:
        return ''
    several = len({result.robot.name for result in results}) > 1
    header = [('Result', False), ('Verdict', False), ('Key values', False), ('Measured', False)]
    rows = []
    for i, (result, own) in enumerate(zip(results, advice, strict=True)):
        stale = ' <span class="badge not_evaluated">stale</span>' if own.stale else ''
        rows.append([_link(i, result), f'{_badge(result)}{stale}',
                     f'<span class="soft key">{escape(_headline(result))}</span>',
                     escape(_measured(result.time)),
                     *([escape(result.robot.name)] if several else [])])
    if several:
        header.append(('Robot', False))
    return ('<section aria-labelledby="summary">\n<h2 id="summary">Summary</h2>\n'
            f'<p>{escape(_tally(results, advice))}</p>\n'
            f'{_table(header, rows, "All results")}\n</section>')


def _tally(results: Sequence[CalibrationResult], advice: Sequence[Advice]) -> str:
    passed = sum(result.verdict is Verdict.PASS for result in results)
    sentences = [f'{passed} of {len(results)} results passed.']
    for text, names in (
        ('Do not use', [wording.title_of(result) for result in results
                        if result.verdict is not Verdict.PASS]),
        ('Stale, to be estimated again',
         [wording.title_of(result) for result, own in zip(results, advice, strict=True)
          if own.stale]),
    ):
        if names:
            sentences.append(f'{text}: {"; ".join(names)}.')
    return ' '.join(sentences)


def _link(index: int, result: CalibrationResult) -> str:
    return f'<a href="#result-{index}">{escape(wording.title_of(result))}</a>'


def _chain(results: Sequence[CalibrationResult], advice: Sequence[Advice]) -> str:
    """Return which result was estimated with which others."""
    places = {result.sha256: i for i, result in enumerate(results)}
    if len(results) < 2 or not any(result.inputs for result in results):
        return ''
    rows = []
    for i, (result, own) in enumerate(zip(results, advice, strict=True)):
        users = [_link(j, user) for j, user in enumerate(results)
                 if any(item.sha256 == result.sha256 for item in user.inputs)]
        stale = '<br>'.join(map(escape, own.stale))
        state = (f'<span class="stale">{stale}</span>' if stale else
                 'current' if result.inputs else '–')
        rows.append([
            _link(i, result),
            '<br>'.join(_source(item, places, results) for item in result.inputs) or 'nothing',
            '<br>'.join(users) or '–', state])
    return (
        '<section aria-labelledby="chain">\n'
        '<h2 id="chain">How the results build on each other</h2>\n'
        + _table([('Result', False), ('Estimated with', False), ('Used by', False),
                  ('Inputs', False)], rows, 'Inputs of each result') + '\n</section>')


def _source(
    item: Input, places: Mapping[str, int], results: Sequence[CalibrationResult]
) -> str:
    """Return an input: a link if it is on the page, else its name."""
    if item.sha256 in places:
        return _link(places[item.sha256], results[places[item.sha256]])
    return escape(f'{wording.heading(item.kind)}: {item.name}')


def _measured(time: float) -> str:
    """Return the time of a result as a date, unless its clock counts from a start."""
    if time < _FIRST_DATE:
        return f'at {time:.0f} s of its clock'
    return datetime.fromtimestamp(time, timezone.utc).strftime('%Y-%m-%d %H:%M UTC')


def _headline(result: CalibrationResult) -> str:
    """Return the first parameters on one line, and how many there are besides."""
    found = [p for p in result.parameters if p.value is not None]
    shown = ' · '.join(f'{wording.described(p.name)} {wording.reading(p).text}'
                       for p in found[:_HEADLINE])
    more = len(found) - _HEADLINE
    return f'{shown} · {more} more' if more > 0 else shown


def _badge(result: CalibrationResult) -> str:
    verdict = result.verdict.value
    return f'<span class="badge {verdict}">{_BADGES[verdict]}</span>'


def _section(
    index: int, result: CalibrationResult, truth: Mapping[str, float], advice: Advice
) -> str:
    name = f'result-{index}'
    plots = ''.join(_plot(f'{name}-plot-{i}', series.title, description(series))
                    for i, series in enumerate(result.series))
    origin = ', '.join(filter(None, (result.robot.name, result.source, _measured(result.time))))
    return (
        f'<section id="{name}" class="result" aria-labelledby="{name}-title">\n<div class="head">'
        f'<h2 id="{name}-title">{escape(wording.title_of(result))}</h2>{_badge(result)}</div>\n'
        f'<p class="soft small">{escape(origin)}</p>\n'
        f'{_verdict(result, advice)}\n{_steps(advice.steps)}\n'
        f'{_parameters(result, truth)}\n'
        + (f'<h3>Plots</h3>\n{_NO_SCRIPT}<div class="plots">{plots}</div>\n' if plots else '')
        + f'{_residuals(result)}\n{_assumptions(result)}\n{_details(result)}\n</section>'
    )


def _panel(index: int, panel: Panel) -> str:
    name = f'panel-{index}'
    verdict = 'pass' if panel.passed else 'fail'
    rows = [[escape(cell) for cell in row] for row in panel.rows]
    table = _table(panel.columns, rows, panel.title) if rows else ''
    drawings = ''.join(_plot(f'{name}-plot-{i}', title, title)
                       for i, (title, _) in enumerate(panel.drawings))
    return (
        f'<section aria-labelledby="{name}-title">\n'
        f'<div class="head"><h2 id="{name}-title">{escape(panel.title)}</h2>'
        f'<span class="badge {verdict}">{verdict}</span></div>\n'
        f'<p>{escape(panel.message)}</p>\n{table}\n'
        + (f'<h3>Plots</h3>\n{_NO_SCRIPT}<div class="plots">{drawings}</div>\n'
           if drawings else '')
        + '</section>'
    )


def _plot(name: str, title: str, described: str) -> str:
    return (f'<figure><figcaption>{escape(title)}</figcaption>'
            f'<p class="hidden" id="{name}">{escape(described)}</p>'
            f'<div class="plot" role="img" aria-label="{escape(title)}" '
            f'aria-describedby="{name}"></div></figure>')


def _verdict(result: CalibrationResult, advice: Advice) -> str:
    """Return the verdict and what prevents a pass, then the other checks, folded."""
    prevents = [check for check in result.checks if not check.passed or not check.evaluated]
    met = [check for check in result.checks if check not in prevents]
    look = 'not_evaluated' if advice.stale else result.verdict.value
    stale = ''.join(f'<p class="stale">Stale: {escape(text)}</p>' for text in advice.stale)
    key = (f'<p>{escape(_headline(result))}</p>'
           if result.verdict is Verdict.PASS and not advice.stale else '')
    reasons = ''.join(
        f'<li class="{"open" if check.passed else "bad"}">{escape(check.reason)}</li>'
        for check in sorted(prevents, key=lambda check: check.passed))
    told = '' if prevents or result.verdict is Verdict.PASS else (
        f'<p>{escape(" ".join(result.reasons))}</p>')
    others = ''.join(f'<li class="ok">{escape(check.reason)}</li>' for check in met)
    count = f'{len(met)} check' + ('' if len(met) == 1 else 's')
    return (
        f'<div class="verdict {look}"><p><strong>'
        f'{escape(wording.VERDICT_WORDS[result.verdict])}</strong></p>{key}{told}'
        + (f'<ul class="checks">{reasons}</ul>' if reasons else '') + f'{stale}</div>'
        + (f'<details><summary>{count} met</summary><ul class="checks">{others}</ul></details>'
           if met else ''))


def _steps(steps: Sequence[Step]) -> str:
    if not steps:
        return ''
    items = []
    for step in steps:
        commands = ''.join(_command(label, command, len(step.commands) > _SHOWN)
                           for label, command in step.commands)
        items.append(f'<li><p>{escape(step.text)}</p>{commands}{_changes(step.changes)}</li>')
    return f'<h3>What to do now</h3>\n<ol class="steps">{"".join(items)}</ol>'


def _command(label: str, command: str, folded: bool) -> str:
    text = f'<pre class="command"><code>{escape(command)}</code></pre>'
    if folded:
        return f'<details><summary>{escape(label)}</summary>{text}</details>'
    return (f'<p class="small soft">{escape(label)}</p>' if label else '') + text


def _changes(text: str) -> str:
    """Return a unified diff, folded."""
    if not text:
        return ''
    kinds = {'+': 'added', '-': 'removed'}
    lines = text.splitlines()
    counts = {sign: sum(line.startswith(sign) and not line.startswith(3 * sign)
                        for line in lines) for sign in kinds}
    body = '\n'.join(
        f'<span class="{kinds[line[0]]}">{escape(line)}</span>'
        if line[:1] in kinds and line[:3] not in ('+++', '---') else escape(line)
        for line in lines)
    return (f'<details><summary>Changes of the URDF: {counts["+"]} lines added, {counts["-"]} '
            f'removed</summary><pre class="changes"><code>{body}</code></pre></details>')


def _table(
    header: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str]], caption: str
) -> str:
    """Return a table of HTML cells; a header's flag marks numeric columns."""
    kinds = [' class="number"' if number else ' class="words"' for _, number in header]
    head = ''.join(f'<th scope="col"{kind}>{escape(text)}</th>'
                   for (text, _), kind in zip(header, kinds, strict=True))
    body = ''.join(
        f'<tr><th scope="row"{kinds[0]}>{row[0]}</th>'
        + ''.join(f'<td{kind}>{cell}</td>'
                  for cell, kind in zip(row[1:], kinds[1:], strict=True)) + '</tr>'
        for row in rows
    )
    return _scrolled(caption, f'<thead><tr>{head}</tr></thead><tbody>{body}</tbody>')


def _scrolled(caption: str, rows: str) -> str:
    """Return a table that a narrow page scrolls, by keyboard, too."""
    return (f'<div class="scroll" role="group" tabindex="0" aria-label="{escape(caption)}"><table>'
            f'<caption class="hidden">{escape(caption)}</caption>{rows}</table></div>')


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
    lines = wording.without_value(result.parameters)
    others = ''.join(f'<p class="soft small">{escape(line)}</p>' for line in lines)
    if len(lines) > _SENTENCES:
        others = f'<details><summary>{len(lines)} without value</summary>{others}</details>'
    title = f'Values of {wording.title_of(result)}'
    table = _table(header, rows, title) if rows else ''
    if len(rows) > _LONG:
        table = f'<details><summary>{len(rows)} values</summary>{table}</details>'
    return f'<h3>Values{frame}</h3>\n<div class="values">{table}\n{others}</div>'


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
                                  map(_fit_row, fits), f'{title} of {wording.title_of(result)}'))
    return '\n'.join(parts)


def _fit_row(fit: Fit) -> list[str]:
    share = f'{100.0 * (1.0 - fit.after / fit.before):.1f} %' if fit.before > 0.0 else ''
    unit, factor = wording.handy(fit.unit)
    before, after = (f'{factor * value:#.3g}'.rstrip('.') for value in (fit.before, fit.after))
    return [escape(fit.what), before, after, escape(unit), share, f'{fit.count}']


def _is_assumed(name: str) -> bool:
    """Return whether a setting states something that the result relies on without measuring it."""
    return name.endswith('_std') or name in _ASSUMED


def _assumptions(result: CalibrationResult) -> str:
    """Return what the result takes as given: priors, given values, and results it builds on."""
    assumed = {name: value for name, value in result.settings.items() if _is_assumed(name)}
    for item in result.inputs:
        assumed[item.kind] = f'{item.name}, {item.sha256[:12]}…' if item.sha256 else 'none'
    if not assumed:
        return ''
    return f'<h3>Assumed, not measured</h3>{_pairs(assumed, "Assumed, not measured")}'


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
        f'<div><h3>Counts</h3>{_pairs(counted, "Counts")}'
        f'<h3>Losses</h3><p class="soft small">{summary}</p>{_pairs(lost, "Losses")}</div>'
        f'<div><h3>Settings</h3>{_pairs(settings, "Settings")}</div></div>'
        f'<h3>Origin</h3>{_pairs(origin, "Origin")}'
        + (f'<h3>Inputs</h3>{_pairs(inputs, "Inputs")}' if inputs else '') + '</details>'
    )


def _pairs(values: Mapping[str, object], caption: str) -> str:
    rows = ''.join(
        f'<tr><th scope="row" class="soft">{escape(wording.heading(name))}</th>'
        f'<td class="any">{escape(_setting(value))}</td></tr>'
        for name, value in values.items()
    )
    return _scrolled(caption, f'<tbody>{rows}</tbody>') if rows else ''


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
