# SPDX-License-Identifier: Apache-2.0
"""Dashboard of a fleet as one self-contained HTML page: what needs attention comes first.

The page stays bounded for any number of robots: robots with findings are drawn, others are
counted, and every cut says what is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from robocal_ros import __version__
from robocal_ros.errors import ConfigurationError
from robocal_ros.files import write_atomically
from robocal_ros.fleet.catalogue import Catalogue, rows_from
from robocal_ros.fleet.findings import (
    Finding,
    Key,
    Review,
    Subject,
    Track,
    Urgency,
    day,
    families,
    levels_of,
    name_of,
    review,
)
from robocal_ros.results import wording

ROBOTS = 12
"""Largest number of robots drawn in detail."""

_LISTED, _MATRIX, _FAMILIES, _COMPARED, _FAILED, _REASONS = 40, 60, 6, 60, 20, 12
# Figures of one robot.
_FIGURES = 4
_NORMAL = 1.959964
_BLUE, _ORANGE, _GREEN, _GREY = '#0072b2', '#d55e00', '#009e73', '#7f7f7f'
_SUBJECTS = {Subject.JOINT: 'Joints', Subject.TOOL: 'Tool', Subject.SENSOR: 'Sensors',
             Subject.DRIVE: 'Drives', Subject.ARM: 'Arm'}
_STYLE = """
main section h3 { margin-top: 1.5rem; }
.finding { border-left: .3rem solid var(--line); padding: .1rem 0 .1rem .9rem; margin: .8rem 0; }
.finding.attention { border-color: var(--fail); }
.finding p { max-width: 75ch; }
.what { min-width: 15rem; }
.nowrap { white-space: nowrap; }
figcaption { font-size: .92rem; font-weight: 600; margin-bottom: .25rem; }
.plots { grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); }
table caption { text-align: left; color: var(--soft); font-size: .875rem; padding-bottom: .3rem; }
tbody th { font-weight: 600; text-align: left; padding: .4rem .75rem; color: inherit;
  font-size: inherit; border-bottom: 1px solid var(--line); vertical-align: top; }
tr > :first-child { padding-left: 0; }
tbody tr:last-child > th { border-bottom: 0; }
details table { font-size: .85rem; }
@media (max-width: 44rem) {
  .stack thead { position: absolute; width: 1px; height: 1px; overflow: hidden;
    clip-path: inset(50%); }
  .stack tr, .stack td, .stack tbody th { display: block; border: 0; padding: .1rem 0; }
  .stack tbody tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
  .stack td:nth-child(n + 4), .stack td:nth-child(2) { color: var(--soft); font-size: .875rem; }
}
"""


def write_dashboard(output: str, path: Path, *, robot: str = '*', robots: int = ROBOTS) -> Review:
    """Write the dashboard of a catalogue.

    Args:
        output: Output folder of the fleet.
        path: The HTML file.
        robot: Pattern of the names of the robots.
        robots: Largest number of robots drawn in detail.

    Returns:
        The findings.

    Raises:
        ConfigurationError: If the catalogue cannot be read or has no such robot, or the page
            cannot be written.

    """
    with Catalogue(output).connect() as connection:
        facts = _Facts(
            *(rows_from(connection, sql, [robot])
              for sql in (_ROBOTS, _REASON_COUNTS, _FAILURES)))
        if not facts.robots:
            raise ConfigurationError(
                f"The catalogue in '{output}' has no robot '{robot}'. Name the output folder of "
                'robocal fleet estimate, and a robot of it.')
        found = review(connection, robot)
    page = dashboard_html(found, facts, robots)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, page)
    except OSError as error:
        raise ConfigurationError(
            f'The dashboard could not be written to {path} ({error.strerror}). '
            'Make the folder writable or name another file.') from error
    return found


_ROBOTS = """
WITH good AS (
    SELECT robot, count(DISTINCT result) AS results, min(time) AS oldest, max(time) AS newest,
        count(DISTINCT result) FILTER (verdict = 'fail') AS failed
    FROM results GROUP BY robot),
bad AS (SELECT robot, count(DISTINCT bag) AS bags FROM failures GROUP BY robot)
SELECT robot, coalesce(results, 0) AS results, oldest, newest, coalesce(failed, 0) AS failed,
    coalesce(bags, 0) AS bags
FROM good FULL JOIN bad USING (robot) WHERE robot GLOB ? ORDER BY robot
"""
# Reasons of one kind differ in numbers and names.
_REASON_COUNTS = r"""
SELECT any_value(reason) AS reason, count(*) AS count, count(DISTINCT robot) AS robots
FROM failures WHERE robot GLOB ?
GROUP BY outcome, regexp_replace(reason, '''[^'']*''|[0-9]+', '', 'g')
ORDER BY count DESC, reason
"""
_FAILURES = f"""
SELECT bag, robot, kind, reason, outcome, tried FROM failures WHERE robot GLOB ?
ORDER BY tried DESC, bag, kind LIMIT {_FAILED}
"""


@dataclass(frozen=True)
class _Facts:
    """What the page says beside the findings.

    Attributes:
        robots: Robots with numbers of results and failures.
        reasons: Reasons of failures with numbers.
        failures: Newest failures.

    """

    robots: Sequence[Mapping[str, Any]]
    reasons: Sequence[Mapping[str, Any]]
    failures: Sequence[Mapping[str, Any]]


class _Plots:
    """Figures in the order of their placeholders on the page."""

    def __init__(self) -> None:
        self.figures: list[go.Figure] = []

    def place(self, title: str, described: str, drawing: go.Figure, table: str) -> str:
        """Return the placeholder of a figure with its alternatives: a sentence and a table."""
        self.figures.append(drawing)
        name = f'figure-{len(self.figures)}'
        return (
            f'<figure><figcaption>{escape(title)}</figcaption>'
            f'<div class="plot" role="img" aria-label="{escape(title)}" '
            f'aria-describedby="{name}"></div>'
            f'<p class="soft small" id="{name}">{escape(described)}</p>'
            f'<details><summary class="small">Values as a table</summary>{table}</details>'
            '</figure>')


def dashboard_html(found: Review, facts: _Facts, robots: int = ROBOTS) -> str:
    """Return the page; see ``write_dashboard`` for the arguments."""
    plots = _Plots()
    urgent = [item for item in found.findings if item.urgency is Urgency.ATTENTION]
    others = [item for item in found.findings if item.urgency is not Urgency.ATTENTION]
    ranked = list(dict.fromkeys(item.robot for item in [*urgent, *others]))
    drawn = ranked[:robots]
    body = '\n'.join(filter(None, (
        _urgent(urgent, drawn), _matrix(found, facts, ranked, drawn),
        *(_robot(i, name, found, plots) for i, name in enumerate(drawn)),
        _left_out(ranked, drawn), _siblings(found, plots), _noticed(others, drawn),
        _failures(facts), _reading(found))))
    # "<" in a name could end the script element.
    data = json.dumps([json.loads(plot.to_json()) for plot in plots.figures],
                      ensure_ascii=False).replace('<', '\\u003c')
    drawing = (
        f'<script type="application/json" id="figures">{data}</script>\n'
        f'<script>{get_plotlyjs()}</script>\n<script>{_asset("report.js")}</script>\n'
    ) if plots.figures else ''
    written = datetime.now(timezone.utc).strftime('%d %B %Y, %H:%M UTC')
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>Fleet</title>\n<style>{_asset("report.css")}{_STYLE}</style>\n</head>\n<body>\n'
        f'<main>\n<header><h1>Fleet</h1>\n<p class="lead">{_introduction(facts, urgent)}</p>'
        f'</header>\n{body}\n<footer>Written on {written} by robocal_ros '
        f'{escape(__version__)}. Intervals: 95 %.</footer>\n</main>\n{drawing}</body>\n</html>\n')


def _asset(name: str) -> str:
    return files('robocal_ros.results').joinpath(name).read_text(encoding='utf-8')


def _plural(number: int, word: str, words: str = '') -> str:
    return f'{number} {word if number == 1 else words or word + "s"}'


def _introduction(facts: _Facts, urgent: Sequence[Finding]) -> str:
    results = sum(row['results'] for row in facts.robots)
    times = [row[key] for row in facts.robots for key in ('oldest', 'newest') if row[key]]
    span = (f' from {day(min(times).timestamp())} to {day(max(times).timestamp())}'
            if times else '')
    needing = len({item.robot for item in urgent})
    state = ('No robot needs attention.' if not needing else
             f'{_plural(needing, "robot needs", "robots need")} attention.')
    return escape(f'{state} {_plural(len(facts.robots), "robot")}, '
                  f'{_plural(results, "result")}{span}.')


def _table(
    caption: str, header: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]],
    look: str = '',
) -> str:
    """Return a table of HTML cells; the first of each row is its heading.

    Args:
        caption: Caption.
        header: Heading and class of each column.
        rows: Cells.
        look: ``stack`` to stack the cells of a row on narrow screens.

    """
    head = ''.join(f'<th scope="col" class="{kind}">{escape(text)}</th>' for text, kind in header)
    body = ''
    for row in rows:
        first, *rest = (f' class="{kind}">{cell}' for cell, (_, kind) in zip(
            row, header, strict=True))
        body += (f'<tr><th scope="row"{first}</th>'
                 + ''.join(f'<td{cell}</td>' for cell in rest) + '</tr>')
    return (f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
            f'<table class="{look}"><caption>{escape(caption)}</caption>'
            f'<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>')


def _named(robot: str, drawn: Sequence[str]) -> str:
    name = escape(robot or 'unknown robot')
    return f'<a href="#robot-{drawn.index(robot)}">{name}</a>' if robot in drawn else name


def _findings_table(
    caption: str, findings: Sequence[Finding], drawn: Sequence[str]
) -> str:
    more = len(findings) - _LISTED
    rows = [(_named(item.robot, drawn), escape(item.part), escape(item.sentence),
             escape(day(item.time))) for item in findings[:_LISTED]]
    return _table(caption, (('Robot', 'nowrap'), ('Part', 'nowrap'), ('Finding', 'what'),
                            ('Found', 'nowrap')), rows, 'stack') + (
        f'<p class="soft">{more} more are not listed; robocal fleet show lists all.</p>'
        if more > 0 else '')


def _urgent(findings: Sequence[Finding], drawn: Sequence[str]) -> str:
    if not findings:
        return ('<section><div class="head"><h2>Needs attention</h2>'
                '<span class="badge pass">nothing</span></div>'
                '<p>No joint, tool or sensor has changed beyond its scatter.</p></section>')
    return ('<section><div class="head"><h2>Needs attention</h2>'
            f'<span class="badge fail">{_plural(len(findings), "finding")}</span></div>'
            + _findings_table('Findings that need attention, the newest first', findings, drawn)
            + '</section>')


def _noticed(findings: Sequence[Finding], drawn: Sequence[str]) -> str:
    if not findings:
        return ''
    return ('<section><div class="head"><h2>Also noticed</h2>'
            f'<span class="badge not_evaluated">{_plural(len(findings), "finding")}</span></div>'
            '<p>Changes of tools and loads, and single recordings that differ: not faults of the '
            'robot.</p>'
            + _findings_table('Further findings, the newest first', findings, drawn)
            + '</section>')


def _matrix(
    found: Review, facts: _Facts, ranked: Sequence[str], drawn: Sequence[str]
) -> str:
    """Return robots × what needs attention, those with findings first."""
    known = {row['robot']: row for row in facts.robots}
    order = [*(name for name in ranked if name in known),
             *sorted((name for name in known if name not in ranked),
                     key=lambda name: (-known[name]['bags'], name))]
    rows = []
    for name in order[:_MATRIX]:
        cells = []
        for subject in _SUBJECTS:
            own = [item for item in found.findings
                   if item.robot == name and item.subject is subject]
            urgent = [item for item in own if item.urgency is Urgency.ATTENTION]
            cells.append(_cell(urgent, own))
        row = known[name]
        bags = (f'<span class="badge not_evaluated">{row["bags"]} failed</span>'
                if row['bags'] else '<span class="soft">ok</span>')
        rows.append((_named(name, drawn), *cells, bags, f'{row["results"]}',
                     escape(day(row['newest'].timestamp())) if row['newest'] else '–'))
    rest = len(order) - _MATRIX
    return ('<section><h2>Robots</h2>' + _table(
        'Robots by what needs attention',
        (('Robot', 'nowrap'), *((title, 'nowrap') for title in _SUBJECTS.values()),
         ('Bags', 'nowrap'), ('Results', 'number'), ('Newest', 'nowrap')), rows)
        + (f'<p class="soft">{_plural(rest, "robot is", "robots are")} not listed, '
           f'{"all" if len(ranked) <= _MATRIX else "some"} of them '
           f'{"without" if len(ranked) <= _MATRIX else "with"} findings.</p>' if rest > 0 else '')
        + '</section>')


def _cell(urgent: Sequence[Finding], own: Sequence[Finding]) -> str:
    parts = ', '.join(dict.fromkeys(item.part for item in urgent))
    if urgent:
        return f'<span class="badge fail">{escape(parts)}</span>'
    if own:
        return '<span class="badge not_evaluated">noticed</span>'
    return '<span class="soft">ok</span>'


def _left_out(ranked: Sequence[str], drawn: Sequence[str]) -> str:
    rest = len(ranked) - len(drawn)
    return (f'<section><p>{_plural(rest, "more robot")} with findings '
            f'{"is" if rest == 1 else "are"} not drawn: '
            f'{escape(", ".join(ranked[len(drawn):len(drawn) + _LISTED]))}'
            f'{" …" if rest > _LISTED else ""}. Name one with --robot, or raise --robots.</p>'
            '</section>' if rest > 0 else '')


# ---------------------------------------------------------------------------- one robot


def _robot(index: int, name: str, found: Review, plots: _Plots) -> str:
    own = [item for item in found.findings if item.robot == name]
    urgent = any(item.urgency is Urgency.ATTENTION for item in own)
    badge = ('<span class="badge fail">needs attention</span>' if urgent
             else '<span class="badge not_evaluated">noticed</span>')
    told = ''.join(
        f'<div class="finding {item.urgency.value}"><p>{escape(item.sentence)}</p>'
        + (f'<p class="soft small">{escape(" ".join(item.notes))}</p>' if item.notes else '')
        + '</div>' for item in own)
    # The clearest series of each finding first, then further ones.
    keys: dict[Key, None] = {}
    for place in range(max(len(item.keys) for item in own)):
        for item in own:
            if place < len(item.keys):
                keys[item.keys[place]] = None
    shown = list(keys)[:_FIGURES]
    drawings = ''.join(_drawn(found.tracks[key], plots) for key in shown)
    rest = len(keys) - len(shown)
    return (f'<section id="robot-{index}"><div class="head"><h2>{escape(name)}</h2>{badge}</div>'
            f'{told}<h3>Over time</h3><div class="plots">{drawings}</div>'
            + (f'<p class="soft small">{rest} more series of these findings are not drawn.</p>'
               if rest else '') + '</section>')


def _drawn(track: Track, plots: _Plots) -> str:
    unit, factor = wording.handy(track.unit)
    title = f'{wording.described(track.key.parameter)}, {wording.heading(track.key.kind)}'
    return plots.place(title, _described(track), _course(track, unit, factor),
                       _values(track, unit, factor))


def _described(track: Track) -> str:
    course, unit = track.course, wording.handy(track.unit)
    last = course.segments[-1]
    half = unit[1] * _NORMAL * last.std
    changes = ', '.join(f'{change.kind} found on {day(float(track.history.time[change.alarm]))}'
                        for change in course.changes) or 'no change'
    level = f'{wording.rounded(unit[1] * last.level, half)} ± {wording.rounded(half, half)}'
    warmth = (f' at {course.reference:.0f} °C' if np.isfinite(course.reference) else
              ', temperature unknown')
    return (f'{_plural(len(track.history.time), "recording")}; {changes}; level in the end '
            f'{level} {unit[0]}'.rstrip() + f'{warmth}; scatter between recordings '
            f'{wording.rounded(float(f"{unit[1] * last.scatter:.2g}"))} {unit[0]}'.rstrip() + '.')


def _dates(seconds: Iterable[float]) -> list[str]:
    return [datetime.fromtimestamp(value, timezone.utc).strftime('%Y-%m-%d %H:%M')
            for value in seconds]


def _course(track: Track, unit: str, factor: float) -> go.Figure:
    """Draw estimates with intervals, the course at the reference temperature, and changes."""
    history, course = track.history, track.course
    dates = _dates(history.time)
    single = {item.index for item in course.outliers}
    symbols = ['x' if i in single else 'circle' for i in range(len(dates))]
    colours = [_ORANGE if i in single else _BLUE for i in range(len(dates))]
    drawing = go.Figure()
    for number, segment in enumerate(course.segments):
        rows = np.arange(segment.start, segment.stop)
        if len(rows) < 2:
            continue
        years = (history.time[rows] - history.time[rows[-1]]) / (365.25 * 86400.0)
        line = factor * (segment.level + segment.rate * years)
        half = factor * _NORMAL * np.hypot(segment.std, segment.rate_std * years)
        x = [dates[i] for i in rows]
        outline = {'mode': 'lines', 'line': {'width': 0}, 'hoverinfo': 'skip', 'showlegend': False}
        drawing.add_trace(go.Scatter(x=x, y=line - half, **outline))
        drawing.add_trace(go.Scatter(x=x, y=line + half, fill='tonexty',
                                     fillcolor='rgba(0,158,115,0.18)', **outline))
        drawing.add_trace(go.Scatter(
            x=x, y=line, mode='lines', name='course', legendgroup='course', showlegend=not number,
            line={'color': _GREEN, 'width': 2}))
    warm = np.isfinite(history.temperature).any() and any(
        segment.coefficient for segment in course.segments)
    if warm:
        drawing.add_trace(go.Scatter(
            x=dates, y=factor * course.corrected, mode='markers', name='at one temperature',
            marker={'color': _GREEN, 'size': 5, 'symbol': 'diamond-open'}))
    drawing.add_trace(go.Scatter(
        x=dates, y=factor * history.value, mode='markers', name='estimate',
        error_y={'type': 'data', 'array': factor * _NORMAL * history.std, 'thickness': 1,
                 'width': 0, 'color': _BLUE},
        marker={'color': colours, 'symbol': symbols, 'size': 6}))
    for number, change in enumerate(course.changes):
        middle = dates[change.index]
        drawing.add_vrect(x0=dates[max(change.first - 1, 0)], x1=dates[change.last],
                          fillcolor=_ORANGE, opacity=0.15, line_width=0)
        drawing.add_shape(type='line', x0=middle, x1=middle, y0=0, y1=1, yref='paper',
                          line={'color': _ORANGE, 'width': 1.5, 'dash': 'dash'})
        drawing.add_annotation(x=middle, y=1, yref='paper', text=change.kind, showarrow=False,
                               xanchor='right', xshift=-4, yanchor='top', yshift=-14 * number)
    drawing.update_layout(
        template='none', margin={'l': 60, 'r': 10, 't': 8, 'b': 45}, hovermode='closest',
        legend={'orientation': 'h', 'x': 0, 'y': 1.02, 'yanchor': 'bottom'},
        xaxis={'type': 'date'},
        yaxis={'title': {'text': f'{name_of(track)} [{unit or "1"}]'}})
    return drawing


def _values(track: Track, unit: str, factor: float) -> str:
    history, course = track.history, track.course
    single = {item.index for item in course.outliers}
    marks = {change.index: f'{change.kind} begins' for change in course.changes}
    rows = []
    for i, date in enumerate(_dates(history.time)):
        half = factor * _NORMAL * float(history.std[i])
        warm = history.temperature[i]
        rows.append((
            date[:10], wording.rounded(factor * float(history.value[i]), half),
            wording.rounded(half, half), f'{warm:.1f}' if np.isfinite(warm) else '–',
            wording.rounded(factor * float(course.corrected[i]), half),
            'deviates' if i in single else marks.get(i, '')))
    reference = (f'At {course.reference:.0f} °C' if np.isfinite(course.reference)
                 else 'At one temperature')
    return _table(
        f'{wording.described(track.key.parameter)} of {track.key.robot} [{unit or "1"}]',
        (('Date', 'nowrap'), ('Value', 'number'), ('± (95 %)', 'number'), ('°C', 'number'),
         (reference, 'number'), ('', '')), rows)


# ------------------------------------------------------------------------ comparisons


def _siblings(found: Review, plots: _Plots) -> str:
    """Return robots against each other, for parameters in which one differs."""
    differing = {item.keys[0]: item.robot for item in found.findings if item.kind == 'sibling'}
    if not differing:
        return ''
    drawn: list[str] = []
    left = 0
    for (_, kind, _, parameter), members in families(found.tracks.values()).items():
        flagged = {track.key.robot for track in members if track.key in differing}
        if not flagged:
            continue
        if len(drawn) == _FAMILIES:
            left += 1
            continue
        drawn.append(_compared(f'{wording.described(parameter)}, {wording.heading(kind)}',
                               members, flagged, plots))
    return ('<section><h2>Robots against each other</h2>'
            '<p>Newest levels of one parameter, at one temperature, with the robots that differ '
            'from the others.</p>'
            f'<div class="plots">{"".join(drawn)}</div>'
            + (f'<p class="soft small">{left} more parameters are not drawn.</p>' if left else '')
            + '</section>')


def _compared(
    title: str, members: Sequence[Track], flagged: set[str], plots: _Plots
) -> str:
    levels = levels_of(members)
    unit, factor = wording.handy(members[0].unit)
    order = np.argsort(levels.value)
    # Of many robots, those that differ and an even choice of the others.
    chosen = set(order[np.unique(np.linspace(0, len(order) - 1, min(
        len(order), _COMPARED)).astype(int))].tolist()) | {
        i for i, track in enumerate(members) if track.key.robot in flagged}
    shown = [i for i in order.tolist() if i in chosen]
    names = [members[i].key.robot for i in shown]
    value, half = factor * levels.value[shown], factor * _NORMAL * levels.std[shown]
    colours = [_ORANGE if name in flagged else _BLUE for name in names]
    drawing = go.Figure(go.Scatter(
        x=value, y=names, mode='markers', showlegend=False,
        marker={'color': colours, 'size': 8,
                'symbol': ['diamond' if name in flagged else 'circle' for name in names]},
        error_x={'type': 'data', 'array': half, 'thickness': 1, 'width': 0, 'color': _GREY}))
    drawing.update_layout(
        template='none', margin={'l': 80, 'r': 10, 't': 8, 'b': 45}, hovermode='closest',
        xaxis={'title': {'text': f'[{unit or "1"}]'}},
        yaxis={'type': 'category', 'automargin': True, 'nticks': 15})
    table = _table(f'{title} [{unit or "1"}]', (
        ('Robot', 'nowrap'), ('Value', 'number'), ('± (95 %)', 'number'), ('', '')),
        [(escape(name), wording.rounded(float(number), float(width)),
          wording.rounded(float(width), float(width)), 'differs' if name in flagged else '')
         for name, number, width in zip(names, value, half, strict=True)])
    left = len(members) - len(shown)
    described = (f'{_plural(len(members), "robot")}; {", ".join(sorted(flagged))} '
                 f'{"differs" if len(flagged) == 1 else "differ"} (diamonds).'
                 + (f' {left} are not drawn.' if left else ''))
    return plots.place(title, described, drawing, table)


# ------------------------------------------------------------------------------ bags


def _failures(facts: _Facts) -> str:
    if not facts.reasons:
        return ('<section><div class="head"><h2>Bags</h2><span class="badge pass">all estimated'
                '</span></div><p>No bag failed.</p></section>')
    total = sum(row['count'] for row in facts.reasons)
    reasons = _table('Reasons, the most frequent first; one example each', (
        ('Example', 'what'), ('Failures', 'number'), ('Robots', 'number')), [
        (escape(row['reason']), f'{row["count"]}', f'{row["robots"]}')
        for row in facts.reasons[:_REASONS]])
    rest = len(facts.reasons) - _REASONS
    newest = _table('Newest failures', (
        ('Bag', 'what'), ('Robot', 'nowrap'), ('Kind', 'nowrap'), ('Reason', 'what')), [
        (escape(row['bag']), escape(row['robot'] or '–'), escape(row['kind'] or '–'),
         escape(row['reason'])) for row in facts.failures], 'stack')
    more = total - len(facts.failures)
    return ('<section><div class="head"><h2>Bags without a result</h2>'
            f'<span class="badge not_evaluated">{_plural(total, "failure")}</span></div>'
            + reasons
            + (f'<p class="soft small">{rest} more reasons are not listed.</p>'
               if rest > 0 else '')
            + f'<details><summary>Newest failures</summary>{newest}'
            + (f'<p class="soft small">{more} older ones are not listed.</p>' if more > 0 else '')
            + '</details></section>')


def _reading(found: Review) -> str:
    left = ', '.join(f'{number} {reason}' for reason, number in found.left_out.items() if number)
    return ('<section><h2>How to read this page</h2>'
            '<p>Each estimate is compared with those before it, corrected for temperature where '
            'that was recorded. What differs by more than the stated deviations and the scatter '
            'between recordings is a finding: a step, which three recordings confirm, a trend, or '
            'a single recording that deviates.</p>'
            f'<p>{escape(found.confidence)}</p>'
            f'<p>{_plural(len(found.tracks), "series was", "series were")} checked.'
            + (f' Estimates left out: {escape(left)}.' if left else '') + '</p></section>')
